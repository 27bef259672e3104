//! What one rank is asked to do in one test. Plain values, made by the coordinator, sent to each
//! rank.
//!
//! # Model
//! An isolated test is a [`TaskKind::Victim`] for every rank that is measured and nothing for the
//! others. A test under load is a task for everybody, with [`Task::everyone`] filled:
//! victims begin when all congestors have made a first pass, and congestors end when all victims
//! have. A congestor without `everyone` makes its first pass and ends.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::defects::CorrectedDefects;
use super::kinds::{Congestor, Counts, Test};
use super::layout::LoadDraw;
use crate::base::{Class, Nanos, Rank};

/// One rank's part in one test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Grows with every test of a run. Frames of another number are strangers.
    pub number: u32,
    /// The class of all its messages.
    pub class: Class,
    /// The longest body of one message: all ranks cut messages alike.
    pub body_max: u32,
    /// Everyone who takes part, in the same order for all; empty when there is nobody to wait for.
    pub everyone: Vec<Rank>,
    /// What to do.
    pub work: TaskKind,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// Be measured.
    Victim(TestTask),
    /// Load the network.
    Congestor(CongestorTask),
}

/// A test as one of its ranks makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestTask {
    /// Which.
    pub test: Test,
    /// The ranks of this rank's slice.
    pub slice: Vec<Rank>,
    /// The number of the slice: it decides about the rings.
    pub slice_number: u32,
    /// The ranks of all slices, in the same order for all.
    pub wide: Vec<Rank>,
    /// Loop counts.
    pub counts: Counts,
    /// How long it may go on.
    pub limit: Nanos,
    /// What is not as published.
    pub mended: CorrectedDefects,
}

/// A congestor as one of its ranks makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CongestorTask {
    /// Which.
    pub congestor: Congestor,
    /// The ranks of this rank's group, its root first.
    pub group: Vec<Rank>,
    /// Measurements of the first pass, if the time suffices.
    pub measurements: u32,
    /// How long the first pass may go on.
    pub limit: Nanos,
    /// What is not as published.
    pub mended: CorrectedDefects,
}

/// How a whole test is run: what all its ranks have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestParameters {
    /// The number of the test in its run.
    pub number: u32,
    /// The class of the victims' messages.
    pub victim_class: Class,
    /// The class of the congestors' messages.
    pub congestor_class: Class,
    /// The longest body that the wires of all ranks carry in one message.
    pub body_max: u32,
    /// How long each loop may go on.
    pub limit: Nanos,
    /// At most this many measurements, whatever the published counts are.
    pub measurements_max: u32,
    /// At most this many rings of a measurement.
    pub rings_max: u32,
    /// What is not as published.
    pub mended: CorrectedDefects,
}

impl TestParameters {
    fn task(&self, class: Class, everyone: &[Rank], work: TaskKind) -> Task {
        Task {
            number: self.number,
            class,
            body_max: self.body_max,
            everyone: everyone.into(),
            work,
        }
    }

    fn victim(
        &self,
        test: Test,
        slices: &[Vec<Rank>],
        everyone: &[Rank],
        tasks: &mut BTreeMap<Rank, Task>,
    ) {
        // A slice of one has nobody to talk to.
        let slices: Vec<(u32, &Vec<Rank>)> =
            (0..).zip(slices).filter(|(_, slice)| slice.len() > 1).collect();
        let wide: Vec<Rank> = slices.iter().flat_map(|(_, slice)| slice.iter().copied()).collect();
        for (slice_number, slice) in slices {
            let mut counts = test.counts(slice.len());
            counts.measurements = counts.measurements.min(self.measurements_max);
            counts.rings = counts.rings.min(self.rings_max).max(1);
            for rank in slice {
                let work = TaskKind::Victim(TestTask {
                    test,
                    slice: slice.clone(),
                    slice_number,
                    wide: wide.clone(),
                    counts,
                    limit: self.limit,
                    mended: self.mended,
                });
                tasks.insert(*rank, self.task(self.victim_class, everyone, work));
            }
        }
    }

    /// Returns the tasks of a test that runs alone in `slices`.
    pub fn isolated(&self, test: Test, slices: &[Vec<Rank>]) -> BTreeMap<Rank, Task> {
        let mut tasks = BTreeMap::new();
        self.victim(test, slices, &[], &mut tasks);
        tasks
    }

    /// Returns the tasks of a congestor that makes one pass alone.
    pub fn congestor(&self, congestor: Congestor, draw: &LoadDraw) -> BTreeMap<Rank, Task> {
        let mut tasks = BTreeMap::new();
        self.load(draw, &|other| other == congestor, &[], &mut tasks);
        tasks
    }

    /// Returns the tasks of a test under load of `draw` that are `possible` on the wire.
    pub fn congested(
        &self,
        test: Test,
        draw: &LoadDraw,
        possible: &dyn Fn(Congestor) -> bool,
    ) -> BTreeMap<Rank, Task> {
        let mut tasks = BTreeMap::new();
        self.load(draw, possible, &[], &mut tasks);
        self.victim(test, &draw.victims, &[], &mut tasks);
        let everyone: Vec<Rank> = tasks.keys().copied().collect();
        tasks.values_mut().for_each(|task| task.everyone.clone_from(&everyone));
        tasks
    }

    fn load(
        &self,
        draw: &LoadDraw,
        possible: &dyn Fn(Congestor) -> bool,
        everyone: &[Rank],
        tasks: &mut BTreeMap<Rank, Task>,
    ) {
        for group in
            draw.groups.iter().filter(|group| possible(group.congestor) && group.ranks.len() > 1)
        {
            for rank in &group.ranks {
                let work = TaskKind::Congestor(CongestorTask {
                    congestor: group.congestor,
                    group: group.ranks.clone(),
                    measurements: Congestor::MEASUREMENTS.min(self.measurements_max),
                    limit: self.limit,
                    mended: self.mended,
                });
                tasks.insert(*rank, self.task(self.congestor_class, everyone, work));
            }
        }
    }
}
