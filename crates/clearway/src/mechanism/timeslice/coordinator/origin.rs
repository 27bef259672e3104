//! Which stretch of experiment time the first timeslice of a run is, where timeslices are cut by
//! time.
//!
//! # Model
//! Each input reports when its first microslice starts; the earliest one decides. An input that has
//! none for as long as a silent one is waited for begins with what it has later.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clearway_proto::base::{Nanos, Rank};
use clearway_proto::microslice::SliceRule;
use clearway_proto::timeslice::Policy;

use super::super::messages::TimesliceResponse;
use super::{LOOK_EVERY, TimesliceCoordinator};

/// What inputs reported so far: when the first microslice starts, or that there is none.
#[derive(Debug, Default)]
pub(super) struct FirstStarts {
    starts: BTreeMap<Rank, Option<u64>>,
    /// When the first start was reported.
    since: Option<Instant>,
}

impl FirstStarts {
    pub(super) fn note(&mut self, rank: Rank, start: Option<u64>) {
        self.starts.insert(rank, start);
        if start.is_some() {
            self.since.get_or_insert_with(Instant::now);
        }
    }

    /// Returns whether those that reported nothing are waited for no longer.
    fn is_late(&self, silence: Option<Nanos>) -> bool {
        let since = self.since.zip(silence);
        since.is_some_and(|(since, silence)| since.elapsed() > Duration::from_nanos(silence.0))
    }
}

impl TimesliceCoordinator<'_> {
    /// Waits for the first microslices, and returns the stretch of the earliest one; `None` where
    /// timeslices are not cut by time.
    ///
    /// # Errors
    /// A rank is gone or cannot go on, or starts are too far apart.
    pub(super) fn find_origin(
        &mut self,
        policy: Policy,
        mut starts: FirstStarts,
    ) -> Result<Option<u64>> {
        let feed = &self.task.feed;
        let SliceRule::ByTime(rule) = feed.slices else { return Ok(None) };
        if !feed.has_microslices() || !policy.is_building() {
            return Ok(None);
        }
        while starts.starts.len() < self.plan.inputs as usize && !starts.is_late(rule.silence) {
            match self.next_response(LOOK_EVERY)? {
                Some((rank, Ok(TimesliceResponse::First(start)))) => starts.note(rank, start),
                Some((rank, Ok(TimesliceResponse::Failed(sentence)))) => {
                    bail!("{}: {sentence}", self.name(rank))
                }
                Some((rank, Err(how))) => {
                    bail!("{} {how} before the run began; run again", self.name(rank))
                }
                _ => {}
            }
        }
        let known = starts.starts.iter().filter_map(|(rank, start)| Some((start.as_ref()?, rank)));
        let (first, last) = (known.clone().min(), known.max());
        let Some(((first, of_first), (last, of_last))) = first.zip(last) else {
            return Ok(Some(0));
        };
        if last - first > rule.max_gap.0 {
            bail!(
                "the first microslice of {} starts {} behind that of {}, more than --max-gap {}: their clocks differ, or they \
                 are of different runs; --slice index pairs them by number",
                self.name(*of_last),
                Nanos(last - first),
                self.name(*of_first),
                rule.max_gap
            );
        }
        Ok(Some(rule.stretch_of(*first)))
    }
}
