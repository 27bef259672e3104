//! Timeslice building by ranks that are processes: one policy after the other, conducted and counted.
//!
//! # Model
//! A run begins with nodes of its own on every rank and ends when everything that was given was built: then nothing of it is left
//! in the network, and the next can begin. What is counted comes in samples that each rank takes by its own clock, all begun
//! by one order. A run is *timed*, where schedules are compared: then inputs stop when the last sample was taken. Or it has a
//! *source*, and ends when that is over at all inputs.
//!
//! An input whose source is over before those of others goes on with empty contributions, as far as the others are: else their
//! timeslices would never be complete.
//!
//! # Invariants
//! I1. What was counted is told only of runs in which every timeslice was built, once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clearway_proto::base::{Bytes, Nanos, Rank};
use clearway_proto::stats::Histogram;
use clearway_proto::timeslice::{Policy, Record};

use super::Run;
use super::board::Board;
use super::plan::Plan;
use super::simulated::Outcome;
use super::words::{Account, Asked, Assignment, Feed, Progress, Said, SinkKind};
use crate::bench::{Held, Ranks};

/// Samples of what is counted, at most.
const SAMPLES_MAX: u64 = 200;
/// The shortest sample: longer than ranks on a busy machine are away.
const SAMPLE_LEAST: Nanos = Nanos::from_millis(50);
/// The samples of a run that has a source.
const SAMPLE: Nanos = Nanos::from_millis(200);
/// How long ranks may take for what takes no time but that of a busy machine, and the last timeslices to be built.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long nodes of a run that is over stay: what was said last, and nobody waits for, arrives meanwhile.
const SETTLE: Duration = Duration::from_millis(100);
/// How often a wait looks around.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a run is.
#[derive(Clone, Copy)]
enum Length {
    /// These samples are not counted, then those are, each of this length.
    Timed { skipped: u64, counted: u64, sample: Nanos },
    /// As long as its sources are.
    Source,
}

impl Length {
    fn timed(plan: &Plan) -> Self {
        let counted = (plan.measured.0 / SAMPLE_LEAST.0).clamp(1, SAMPLES_MAX);
        let sample = Nanos((plan.measured.0 / counted).max(1));
        Self::Timed { skipped: plan.warm_up.0.div_ceil(sample.0), counted, sample }
    }

    const fn sample(self) -> Nanos {
        match self {
            Self::Timed { sample, .. } => sample,
            Self::Source => SAMPLE,
        }
    }

    fn is_counted(self, number: u64) -> bool {
        match self {
            Self::Timed { skipped, counted, .. } => number > skipped && number <= skipped + counted,
            Self::Source => true,
        }
    }

    fn is_over(self, number: u64) -> bool {
        match self {
            Self::Timed { skipped, counted, .. } => number >= skipped + counted,
            Self::Source => false,
        }
    }
}

/// What ranks shall do.
pub(crate) struct Task {
    pub(crate) feed: Feed,
    /// Bytes that an input holds until they are built.
    pub(crate) memory: Bytes,
    /// The name under which it can be watched.
    pub(crate) job: String,
    /// Schedules are compared for a time; otherwise the source says when it is over.
    pub(crate) is_timed: bool,
}

/// What became of all that a run was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Built {
    /// Timeslices that all inputs gave.
    pub(crate) given: u64,
    /// Everything that sinks have taken, and what inputs say of their sources.
    pub(crate) account: Account,
    /// From the order to begin to the end.
    pub(crate) took: Duration,
    /// From the first to the last contribution of a timeslice, in ns.
    pub(crate) completion: Histogram,
    /// Bytes that landed for each second of processor time of all ranks, by policy, a value for each seed.
    pub(crate) cost: BTreeMap<Policy, Vec<f64>>,
}

/// Compares the policies of `plan` on `held`, made-up contributions of `feed` in all of them; what was built in all.
///
/// # Errors
/// One sentence: which rank cannot go on or is gone, or that a timeslice was lost.
pub(crate) fn compare(held: &mut Held, plan: &Plan, task: &Task) -> Result<(Vec<Run>, Built)> {
    let mut conductor = Conductor::new(held, plan, task)?;
    let (mut runs, mut all) = (Vec::new(), Built::default());
    for seed in &plan.seeds {
        let mut one = |policy: Policy| {
            let (outcome, built) = conductor.run(policy, *seed, Length::timed(plan))?;
            all.given += built.given;
            all.took += built.took;
            built.cost.into_iter().for_each(|(policy, values)| all.cost.entry(policy).or_default().extend(values));
            all.account = std::mem::take(&mut all.account).and(built.account);
            Ok(outcome)
        };
        let raw = one(Policy::Raw)?;
        let policies = plan.policies.iter().map(|policy| one(*policy).map(|outcome| (*policy, outcome)));
        runs.push(Run { host_rate: None, raw, policies: policies.collect::<Result<_>>()? });
    }
    Ok((runs, all))
}

/// Builds what the sources of `feed` have with the first policy of `plan`.
///
/// # Errors
/// As [`compare`].
pub(crate) fn build(held: &mut Held, plan: &Plan, task: &Task) -> Result<Built> {
    let mut conductor = Conductor::new(held, plan, task)?;
    let policy = plan.policies.first().copied().unwrap_or(Policy::Token);
    let (outcome, built) = conductor.run(policy, plan.seeds.first().copied().unwrap_or(1), Length::Source)?;
    Ok(Built { completion: outcome.completion, ..built })
}

/// Conducts runs.
struct Conductor<'a> {
    ranks: &'a mut Ranks,
    plan: &'a Plan,
    task: &'a Task,
    board: Board,
    runs: u32,
}

impl<'a> Conductor<'a> {
    fn new(held: &'a mut Held, plan: &'a Plan, task: &'a Task) -> Result<Self> {
        let ranks = held.ranks_mut();
        let (there, wanted) = (ranks.hosts().len(), plan.inputs + plan.builders);
        if there != wanted as usize {
            bail!("{} inputs and {} builders are {wanted} ranks, and there are {there}", plan.inputs, plan.builders);
        }
        let board = Board::open(&task.job, ranks.hosts());
        Ok(Self { ranks, plan, task, board, runs: 0 })
    }

    fn inputs(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.plan.inputs).map(Rank)
    }

    fn builders(&self) -> impl Iterator<Item = Rank> + use<> {
        (self.plan.inputs..self.plan.inputs + self.plan.builders).map(Rank)
    }

    /// Runs `policy` once.
    fn run(&mut self, policy: Policy, seed: u64, length: Length) -> Result<(Outcome, Built)> {
        self.begin(policy, seed)?;
        let started = Instant::now();
        for rank in self.inputs().chain(self.builders()) {
            self.ranks.ask(rank, Asked::Begin(length.sample()))?;
        }
        let mut count = Count::new(self.plan, length);
        self.board.begin(policy);
        let mut course = Course::default();
        let mut moved = Instant::now();
        while course.done.len() < (self.plan.inputs + self.plan.builders) as usize {
            match self.hear()? {
                Some((rank, Said::Progress(progress))) => {
                    let has_moved = count.add(rank, &progress);
                    self.board.add(rank, &progress);
                    moved = if has_moved { Instant::now() } else { moved };
                }
                Some((rank, Said::Over(given))) => drop(course.over.insert(rank, given)),
                Some((rank, Said::Done(account))) => drop(course.done.insert(rank, *account)),
                Some((rank, Said::Failed(sentence))) => bail!("{}: {sentence}", self.ranks.name(rank)),
                Some((rank, Said::Taken | Said::Ready)) => bail!("{} is confused", self.ranks.name(rank)),
                None if course.end.is_some() && moved.elapsed() > PATIENCE => {
                    let stuck = course.missing(self.plan).map_or_else(String::new, |rank| self.ranks.name(rank));
                    bail!(
                        "{stuck} waits for its last timeslices under {} and nothing has moved for {PATIENCE:?}",
                        policy.name()
                    )
                }
                None => {}
            }
            self.steer(&mut course, &count)?;
        }
        let built = Built {
            given: course.end.unwrap_or(0),
            account: course.done.into_values().fold(Account::default(), Account::and),
            took: started.elapsed(),
            completion: Histogram::default(),
            cost: BTreeMap::from([(policy, vec![count.cost()])]),
        };
        self.check(policy, &built)?;
        Ok((count.outcome, built))
    }

    /// Gives every rank its part, builders first: an input that found a builder of the run before would take it for its own.
    fn begin(&mut self, policy: Policy, seed: u64) -> Result<()> {
        let plan = self.plan;
        let assignment = Assignment {
            number: self.runs,
            inputs: plan.inputs,
            builders: plan.builders,
            policy,
            window: plan.window,
            dfs: plan.dfs,
            ring: plan.ring,
            memory: self.task.memory,
            start_skew: plan.start_skew,
            seed,
            feed: self.task.feed.clone(),
        };
        self.runs += 1;
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            self.hear()?;
        }
        let (inputs, builders): (Vec<_>, Vec<_>) = (self.inputs().collect(), self.builders().collect());
        for (ranks, answers) in [(builders, 1), (inputs, 2)] {
            for rank in &ranks {
                self.ranks.ask(*rank, Asked::Take(Box::new(assignment.clone())))?;
            }
            let (mut missing, deadline) = (ranks.len() * answers, Instant::now() + PATIENCE);
            while missing > 0 {
                match self.hear()? {
                    Some((_, Said::Taken | Said::Ready)) => missing -= 1,
                    Some((rank, Said::Failed(sentence))) => bail!("{}: {sentence}", self.ranks.name(rank)),
                    // What was told of the run before.
                    Some(_) => {}
                    None if Instant::now() > deadline => bail!("inputs and builders did not meet within {PATIENCE:?}"),
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<Option<(Rank, Said)>> {
        self.ranks.hear(LOOK_EVERY)
    }

    /// Tells inputs what follows from how far all are.
    fn steer(&mut self, course: &mut Course, count: &Count) -> Result<()> {
        let inputs: Vec<Rank> = self.inputs().collect();
        if course.end.is_some() {
            return Ok(());
        }
        if course.over.len() == inputs.len() {
            let end = course.over.values().copied().max().unwrap_or(0);
            course.end = Some(end);
            return inputs.into_iter().try_for_each(|rank| self.ranks.ask(rank, Asked::End(end)));
        }
        if !course.held && count.is_over() {
            course.held = true;
            course.over.clear();
            return inputs.into_iter().try_for_each(|rank| self.ranks.ask(rank, Asked::Hold));
        }
        let furthest = count.given.values().copied().max().unwrap_or(0);
        let behind = course.over.iter().filter(|(_, given)| **given < furthest).map(|(rank, _)| *rank);
        for rank in behind.collect::<Vec<_>>() {
            if course.padded.insert(rank, furthest) < Some(furthest) {
                self.ranks.ask(rank, Asked::Pad(furthest))?;
            }
        }
        Ok(())
    }

    /// Refuses a run that did not build all of its timeslices.
    fn check(&self, policy: Policy, built: &Built) -> Result<()> {
        if !policy.is_building() {
            return Ok(());
        }
        let Built { given, account, .. } = built;
        let numbers = (0..*given).fold(0_u64, u64::wrapping_add);
        if (account.timeslices, account.numbers) != (*given, numbers) {
            bail!(
                "{} of {given} timeslices were built, or one was built twice; this is a defect of the program",
                account.timeslices
            );
        }
        if !account.faults.is_empty() && self.task.feed.sink == SinkKind::Check {
            let faults = account.faults.iter().map(|(sentence, count)| format!("{sentence} ({count} times)"));
            eprintln!("clearway: {}", faults.collect::<Vec<_>>().join("; "));
        }
        Ok(())
    }
}

/// How far a run is.
#[derive(Default)]
struct Course {
    /// Inputs were told to hold.
    held: bool,
    /// Inputs that give no more by themselves, and how many they gave.
    over: BTreeMap<Rank, u64>,
    /// How far they were told to go on with empty contributions.
    padded: BTreeMap<Rank, u64>,
    end: Option<u64>,
    done: BTreeMap<Rank, Account>,
}

impl Course {
    /// The first rank that is not done.
    fn missing(&self, plan: &Plan) -> Option<Rank> {
        (0..plan.inputs + plan.builders).map(Rank).find(|rank| !self.done.contains_key(rank))
    }
}

/// What was counted of a run.
struct Count {
    length: Length,
    ranks: usize,
    inputs: usize,
    outcome: Outcome,
    /// The last sample of each rank.
    last: BTreeMap<Rank, u64>,
    /// Timeslices that inputs gave.
    given: BTreeMap<Rank, u64>,
    /// Contributions of each input so far.
    sent: BTreeMap<Rank, u64>,
    /// Processor time of each rank before what is counted and at its end.
    processor: BTreeMap<Rank, [Nanos; 2]>,
    /// The same at each sample, until all inputs have told theirs.
    samples: BTreeMap<u64, Vec<u64>>,
}

impl Count {
    fn new(plan: &Plan, length: Length) -> Self {
        Self {
            length,
            ranks: (plan.inputs + plan.builders) as usize,
            inputs: plan.inputs as usize,
            outcome: Outcome::of(plan, plan.measured),
            last: BTreeMap::new(),
            given: BTreeMap::new(),
            sent: BTreeMap::new(),
            processor: BTreeMap::new(),
            samples: BTreeMap::new(),
        }
    }

    /// Whether every rank has told its last sample.
    fn is_over(&self) -> bool {
        self.last.len() == self.ranks && self.last.values().all(|number| self.length.is_over(*number))
    }

    /// Bytes that landed for each second of processor time.
    fn cost(&self) -> f64 {
        let spent: f64 = self.processor.values().map(|[before, at_end]| (at_end.0 - before.0) as f64 / 1e9).sum();
        if spent > 0.0 { self.outcome.bytes as f64 / spent } else { 0.0 }
    }

    /// Adds what `rank` counted; whether anything moved.
    fn add(&mut self, rank: Rank, progress: &Progress) -> bool {
        let Progress { number, ref record, timeslices, processor, .. } = *progress;
        self.last.insert(rank, number);
        let is_counted = self.length.is_counted(number);
        let [before, at_end] = self.processor.entry(rank).or_insert([processor; 2]);
        if is_counted {
            *at_end = processor;
        } else if *before == *at_end {
            (*before, *at_end) = (processor, processor);
        }
        let outcome = &mut self.outcome;
        if is_counted {
            outcome.add(rank, record);
        }
        match record {
            Record::Input(record) => {
                self.given.insert(rank, timeslices);
                let sent = self.sent.entry(rank).or_default();
                *sent += record.contributions;
                if is_counted {
                    let sample = self.samples.entry(number).or_default();
                    sample.push(*sent);
                    if sample.len() == self.inputs {
                        outcome.gap.record(sample.iter().max().unwrap_or(&0) - sample.iter().min().unwrap_or(&0));
                        self.samples.remove(&number);
                    }
                }
                record.contributions > 0
            }
            Record::Builder(record) => {
                if is_counted && self.length.is_over(number) {
                    outcome.windows.extend(record.window);
                }
                record.contributions > 0
            }
        }
    }
}
