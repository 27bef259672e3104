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
//! A rank that dies is noticed here by its end, and by the others in their own way (`course`); what it had built is said by them at the
//! end. Where ranks can be started anew they are before the next run; where they cannot there is none.
//!
//! # Not here
//! Archives: looked for before the run, kept after it: `files`.
//!
//! # Invariants
//! I1. What was counted is told only of runs in which every timeslice was built, once.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clearway_proto::base::{Bytes, Rank};
use clearway_proto::stats::Histogram;
use clearway_proto::timeslice::Policy;

use super::Run;
use super::board::Board;
use super::count::{Count, Length};
use super::course::{Course, Death};
use super::numbers::{Audit, Numbers};
use super::plan::Plan;
use super::simulated::Outcome;
use super::words::{Account, Asked, Assignment, Building, Feed, Said, SinkKind};
use crate::run::exit::Exit;
use crate::run::session::Session;
use crate::run::venue::ProcessVenue;

/// How long ranks may take for what takes no time but that of a busy machine, and the last timeslices to be built.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a decision may be under way that makes those that are left enough.
const DECISION: Duration = Duration::from_secs(2);
/// How long nodes of a run that is over stay: what was said last, and nobody waits for, arrives meanwhile.
const SETTLE: Duration = Duration::from_millis(100);
/// How often a wait looks around.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Heartbeats before a run begins: then everybody was heard once, and is missed if it falls silent.
const BEATS: u32 = 2;

/// What ranks shall do.
pub(crate) struct Task {
    pub(crate) feed: Feed,
    /// Bytes that an input holds until they are built.
    pub(crate) memory: Bytes,
    /// The name under which it can be watched.
    pub(crate) job: String,
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
    /// Timeslices that were counted as built.
    pub(super) timeslices: u64,
    /// Ranks that the runs went on without.
    pub(super) deaths: Vec<Death>,
    pub(super) audit: Audit,
}

impl Built {
    /// How a program ends that built this: archives with faults end `msa check` the same way.
    pub(crate) fn exit(&self) -> Exit {
        if self.account.faults.is_empty() && self.account.cut == 0 { Exit::Good } else { Exit::Congested }
    }

    /// Adds what was built in another run.
    fn add(&mut self, built: Self) {
        self.given += built.given;
        self.timeslices += built.timeslices;
        self.took += built.took;
        built.cost.into_iter().for_each(|(policy, values)| self.cost.entry(policy).or_default().extend(values));
        self.account = std::mem::take(&mut self.account).and(built.account);
        self.deaths.extend(built.deaths);
    }
}

/// Compares the policies of `plan` on `ranks`, made-up contributions of `feed` in all of them; what was built in all. Ends early when
/// a rank died that cannot be started anew.
///
/// # Errors
/// One sentence: which rank cannot go on or is gone, or that a timeslice was lost.
pub(crate) fn compare(ranks: &mut dyn ProcessVenue, plan: &Plan, task: &Task) -> Result<(Vec<Run>, Built)> {
    let mut conductor = Conductor::new(ranks, plan, task)?;
    let (mut runs, mut all) = (Vec::new(), Built::default());
    for seed in &plan.seeds {
        let mut one = |policy: Policy| -> Result<Option<Outcome>> {
            if !conductor.is_complete()? {
                return Ok(None);
            }
            let (outcome, built) = conductor.run(policy, *seed, Length::timed(plan))?;
            all.add(built);
            Ok(Some(outcome))
        };
        let Some(raw) = one(Policy::Raw)? else { break };
        let mut run = Run { host_rate: None, raw, policies: Vec::new() };
        for policy in &plan.policies {
            run.policies.extend(one(*policy)?.map(|outcome| (*policy, outcome)));
        }
        runs.push(run);
    }
    Ok((runs, all))
}

/// Runs each of `runs`, a plan with one seed, its task and its policy, one after the other.
///
/// # Errors
/// As [`compare`].
pub(super) fn each(ranks: &mut dyn ProcessVenue, runs: &[(Plan, Task, Policy)]) -> Result<Vec<Outcome>> {
    let Some((plan, task, _)) = runs.first() else { return Ok(Vec::new()) };
    let mut conductor = Conductor::new(ranks, plan, task)?;
    let mut outcomes = Vec::new();
    for (plan, task, policy) in runs {
        (conductor.plan, conductor.task) = (plan, task);
        let seed = plan.seeds.first().copied().unwrap_or(1);
        outcomes.push(conductor.run(*policy, seed, Length::timed(plan))?.0);
    }
    Ok(outcomes)
}

/// Builds what the sources of `feed` have with the first policy of `plan`.
///
/// # Errors
/// As [`compare`].
pub(crate) fn build(ranks: &mut dyn ProcessVenue, plan: &Plan, task: &Task) -> Result<Built> {
    let mut conductor = Conductor::new(ranks, plan, task)?;
    let policy = plan.policies.first().copied().unwrap_or(Policy::Token);
    let seed = plan.seeds.first().copied().unwrap_or(1);
    let run = conductor.look().and_then(|()| conductor.run(policy, seed, Length::Source));
    let (outcome, built) = run.map_err(|error| conductor.give_up(error))?;
    Ok(Built { completion: outcome.completion, ..built })
}

/// Conducts runs.
struct Conductor<'a> {
    venue: &'a mut dyn ProcessVenue,
    plan: &'a Plan,
    task: &'a Task,
    board: Board,
    runs: u32,
    /// Ranks whose processes have ended.
    gone: BTreeSet<Rank>,
    /// What builders write, by the name that it has until it is kept.
    unfinished: BTreeMap<Rank, String>,
}

impl<'a> Conductor<'a> {
    fn new(venue: &'a mut dyn ProcessVenue, plan: &'a Plan, task: &'a Task) -> Result<Self> {
        let ranks = venue.processes();
        let (there, wanted) = (ranks.hosts().len(), plan.inputs + plan.builders);
        if there != wanted as usize {
            bail!("{} inputs and {} builders are {wanted} ranks, and there are {there}", plan.inputs, plan.builders);
        }
        let board = Board::open(&task.job, ranks.hosts());
        let (gone, unfinished) = (BTreeSet::new(), BTreeMap::new());
        Ok(Self { venue, plan, task, board, runs: 0, gone, unfinished })
    }

    fn session(&mut self) -> Session<'_, Building> {
        self.venue.processes_mut().session()
    }

    fn name(&self, rank: Rank) -> String {
        self.venue.processes().name(rank)
    }

    /// Whether a run can begin with all ranks: those that are gone are started anew, where that is possible.
    fn is_complete(&mut self) -> Result<bool> {
        self.settle()?;
        let Some(first) = self.gone.first().copied() else { return Ok(true) };
        let is_complete = self.venue.renew()?;
        if is_complete {
            self.gone.clear();
        } else {
            eprintln!("clearway: {} is gone and is not started anew: nothing more is compared", self.name(first));
        }
        Ok(is_complete)
    }

    /// Hears what was told of the run before.
    fn settle(&mut self) -> Result<()> {
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            self.hear(LOOK_EVERY)?;
        }
        Ok(())
    }

    /// The next that a rank says, or how it ended.
    fn hear(&mut self, patience: Duration) -> Result<Option<(Rank, Result<Said, String>)>> {
        let heard = self.session().poll(patience)?;
        if let Some((rank, Err(_))) = &heard {
            self.gone.insert(*rank);
        }
        Ok(heard)
    }

    fn ask(&mut self, rank: Rank, asked: Asked) -> Result<()> {
        self.session().try_request(rank, asked)
    }

    /// Runs `policy` once.
    fn run(&mut self, policy: Policy, seed: u64, length: Length) -> Result<(Outcome, Built)> {
        self.begin(policy, seed)?;
        let mut course = Course::new(self.plan, policy, length.uncounted());
        for rank in course.living().collect::<Vec<_>>() {
            self.ask(rank, Asked::Begin(length.sample()))?;
        }
        let mut count = Count::new(self.plan, length);
        self.board.begin(policy);
        let mut moved = Instant::now();
        while !course.is_over() {
            if let Some((rank, wanted)) = course.next_change() {
                self.ask(rank, Asked::of(wanted))?;
            }
            match self.hear(course.patience(LOOK_EVERY))? {
                Some((rank, Ok(said))) => {
                    if self.take(&mut course, &mut count, rank, said, length)? {
                        moved = Instant::now();
                    }
                }
                Some((rank, Err(how))) => {
                    moved = Instant::now();
                    self.miss(&mut course, &mut count, rank, how)?;
                }
                None => self.look_if_stuck(&course, policy, moved)?,
            }
            self.steer(&mut course, &count)?;
        }
        self.conclude(policy, course, count)
    }

    /// Takes notice of what `rank` said; whether anything moved.
    fn take(&mut self, course: &mut Course, count: &mut Count, rank: Rank, said: Said, length: Length) -> Result<bool> {
        match said {
            Said::Lost(other) => {
                if course.know(Rank(other), rank) {
                    count.lose(Rank(other));
                    let how = course.deaths().find(|death| death.rank == Rank(other)).map_or("", Death::how);
                    self.board.lose(Rank(other), how);
                }
                return Ok(true);
            }
            // The others say so as well, and theirs counts.
            Said::Out { is_retired } => {
                if let (true, Some(end)) = (course.step_aside(rank, is_retired), course.end) {
                    self.ask(rank, Asked::End(end))?;
                }
            }
            Said::Joined => {
                if course.join(rank) {
                    count.join(rank);
                    self.board.join(rank);
                    self.welcome(course, rank, length)?;
                }
                return Ok(true);
            }
            Said::Done(account) if course.is_awaited(rank) => drop(course.done.insert(rank, *account)),
            Said::Failed(sentence) if course.is_awaited(rank) => bail!("{}: {sentence}", self.name(rank)),
            // What a rank that is out says late is of no use to anybody.
            _ if !course.is_there(rank) => {}
            Said::Progress(progress) => {
                self.board.add(rank, &progress);
                return Ok(count.add(rank, &progress));
            }
            Said::Over(given) => drop(course.over.insert(rank, given)),
            Said::Helpless => course.helpless(rank),
            // An input that has joined has met the builders.
            Said::Ready => {}
            Said::Found
            | Said::Writes(_)
            | Said::Kept
            | Said::Taken
            | Said::Settled(_)
            | Said::Done(_)
            | Said::Failed(_) => {
                bail!("{} is confused", self.name(rank))
            }
        }
        Ok(false)
    }

    /// Tells `rank`, which has joined, what the others were told.
    fn welcome(&mut self, course: &Course, rank: Rank, length: Length) -> Result<()> {
        if rank.0 >= self.plan.inputs {
            return Ok(());
        }
        if let Some(end) = course.end {
            return self.ask(rank, Asked::End(end));
        }
        self.ask(rank, Asked::Begin(length.sample()))?;
        if course.held { self.ask(rank, Asked::Hold) } else { Ok(()) }
    }

    /// The process of `rank` has ended.
    fn miss(&mut self, course: &mut Course, count: &mut Count, rank: Rank, how: String) -> Result<()> {
        if !course.is_watched {
            bail!("{} {how} in the middle of the run; run again", self.name(rank));
        }
        self.board.lose(rank, &how);
        let was_there = course.miss(rank, how);
        if was_there {
            count.lose(rank);
        }
        match course.lacks() {
            Some(what) => bail!("{}; no {what} is left, so the run cannot go on", self.all_dead(course)),
            None => Ok(()),
        }
    }

    /// Who is out, and how, as the beginning of a sentence.
    fn all_dead(&self, course: &Course) -> String {
        let one = |death: &Death| format!("{} {}", self.name(death.rank), death.how());
        course.all_deaths().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Refuses to wait any longer for what does not come.
    fn look_if_stuck(&self, course: &Course, policy: Policy, moved: Instant) -> Result<()> {
        if let Some(rank) = course.is_helpless() {
            let (name, dead) = (self.name(rank), self.all_dead(course));
            let dead = if dead.is_empty() { String::new() } else { format!(" ({dead})") };
            bail!(
                "{name} reaches too few of the others to go on{dead}: more than half of those that were there must be, or half with \
                 the first of them"
            );
        }
        if course.are_too_few() && moved.elapsed() > DECISION {
            bail!(
                "{}, and too few are left to go on: more than half of those that were there must be, or half with the first of them",
                self.all_dead(course)
            );
        }
        if moved.elapsed() <= PATIENCE {
            return Ok(());
        }
        if let Some((death, rank)) = course.unknown() {
            bail!(
                "{} {}, and {} does not know after {PATIENCE:?}",
                self.name(death.rank),
                death.how(),
                self.name(rank)
            );
        }
        if course.end.is_none() && course.all_deaths().next().is_some() {
            bail!(
                "{}, and the others have not moved for {PATIENCE:?}: inputs may be too far apart for what they can hold, and --memory gives \
                 them more",
                self.all_dead(course)
            );
        }
        if course.end.is_some() {
            let stuck = course.missing().map_or_else(String::new, |rank| self.name(rank));
            bail!(
                "{stuck} waits for its last timeslices under {} and nothing has moved for {PATIENCE:?}",
                policy.name()
            );
        }
        Ok(())
    }

    /// Adds up what all have, those that are out included.
    fn conclude(&mut self, policy: Policy, course: Course, count: Count) -> Result<(Outcome, Built)> {
        let took = course.took();
        let settled = match course.living().next() {
            Some(first) if course.all_deaths().next().is_some() => self.settled(first)?,
            _ => Vec::new(),
        };
        for change in course.left_out() {
            let (name, what) = (self.name(Rank(change.when.rank)), change.wanted.sentence());
            eprintln!("clearway: {name} was to {what}, but the run was over before");
        }
        // Who is done itself says what it has, of all times that it took part.
        let is_done = |(rank, _): &(u32, Numbers)| course.done.contains_key(&Rank(*rank));
        let settled: Vec<_> = settled.into_iter().filter(|one| !is_done(one)).collect();
        let (given, mut deaths) = (course.end.unwrap_or(0), course.all_deaths().cloned().collect::<Vec<_>>());
        for death in &mut deaths {
            (death.policy, death.name) = (Some(policy), self.name(death.rank));
            if death.back.is_none() && !course.done.contains_key(&death.rank) {
                let own = settled.iter().filter(|(rank, _)| *rank == death.rank.0);
                death.settled = own.map(|(_, numbers)| numbers.count()).sum();
                death.archive = self.archive_of(death.rank);
            }
        }
        let done = course.done.keys().copied().collect();
        let taken = course.done.values().map(|account| &account.taken);
        let all = || taken.clone().chain(settled.iter().map(|(_, numbers)| numbers));
        let audit = Audit::of(given, all());
        let timeslices = all().map(Numbers::count).sum();
        let cost = count.cost();
        let mut outcome = Outcome { losses: course.losses(), ..count.outcome };
        let built = Built {
            given,
            timeslices,
            account: course.done.into_values().fold(Account::default(), Account::and),
            took,
            completion: Histogram::default(),
            cost: cost.map(|cost| (policy, vec![cost])).into_iter().collect(),
            deaths,
            audit,
        };
        if policy.is_building() {
            self.check(&built)?;
            self.keep(&done)?;
            outcome.audit = Some(audit);
        }
        Ok((outcome, built))
    }

    /// What builders had built that are out, as `rank` knows it.
    fn settled(&mut self, rank: Rank) -> Result<Vec<(u32, Numbers)>> {
        self.ask(rank, Asked::Tell)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.hear(LOOK_EVERY)? {
                Some((_, Ok(Said::Settled(settled)))) => return Ok(settled),
                Some((teller, Err(how))) if teller == rank => bail!("{} {how} at the end of the run", self.name(rank)),
                _ => {}
            }
        }
        bail!("{} does not say what those had built that are out", self.name(rank))
    }

    /// Gives every rank its part, builders first: an input that found a builder of the run before would take it for its own.
    fn begin(&mut self, policy: Policy, seed: u64) -> Result<()> {
        let plan = self.plan;
        let heartbeat = plan.heartbeat.filter(|_| policy.is_building());
        let assignment = Assignment {
            number: self.runs,
            inputs: plan.inputs,
            builders: plan.builders,
            // What nobody builds has no turns: streams of unlike length to builders would end at no common timeslice.
            weights: if policy.is_building() { plan.weights.clone() } else { Vec::new() },
            policy,
            window: plan.window,
            dfs: plan.dfs,
            ring: plan.ring,
            memory: self.task.memory,
            start_skew: plan.start_skew,
            seed,
            heartbeat,
            feed: self.task.feed.clone(),
        };
        self.runs += 1;
        self.settle()?;
        let [inputs, builders] = [0..plan.inputs, plan.inputs..plan.inputs + plan.builders];
        for (ranks, answers) in [(builders, 1), (inputs, 2)] {
            for rank in ranks.clone() {
                self.ask(Rank(rank), Asked::Take(Box::new(assignment.clone())))?;
            }
            self.await_all(ranks.len() * answers)?;
        }
        if let Some(rank) = self.gone.first() {
            bail!("{} ended before the run began; run again", self.name(*rank));
        }
        thread::sleep(heartbeat.map_or(Duration::ZERO, |every| Duration::from_nanos(every.0) * BEATS));
        Ok(())
    }

    /// Waits until ranks have given so many answers to what they were asked before the run.
    fn await_all(&mut self, mut missing: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while missing > 0 {
            match self.hear(LOOK_EVERY)? {
                Some((_, Ok(Said::Found | Said::Taken | Said::Ready))) => missing -= 1,
                Some((rank, Ok(Said::Writes(name)))) => drop(self.unfinished.insert(rank, name)),
                Some((rank, Ok(Said::Failed(sentence)))) => bail!("{}: {sentence}", self.name(rank)),
                Some((rank, Err(how))) => bail!("{} {how} before the run began; run again", self.name(rank)),
                // What was told of the run before.
                Some(_) => {}
                None if Instant::now() > deadline => bail!("inputs and builders did not meet within {PATIENCE:?}"),
                None => {}
            }
        }
        Ok(())
    }

    /// Tells inputs what follows from how far all are.
    fn steer(&mut self, course: &mut Course, count: &Count) -> Result<()> {
        let inputs: Vec<Rank> = course.inputs().collect();
        if course.end.is_some() {
            return Ok(());
        }
        if course.over.len() == inputs.len() {
            let end = course.over.values().copied().max().unwrap_or(0);
            course.end = Some(end);
            return inputs.into_iter().chain(course.aside()).try_for_each(|rank| self.ask(rank, Asked::End(end)));
        }
        if !course.held && count.is_over() {
            course.held = true;
            course.over.clear();
            return inputs.into_iter().try_for_each(|rank| self.ask(rank, Asked::Hold));
        }
        let furthest = count.furthest();
        let behind = course.over.iter().filter(|(_, given)| **given < furthest).map(|(rank, _)| *rank);
        for rank in behind.collect::<Vec<_>>() {
            if course.padded.insert(rank, furthest) < Some(furthest) {
                self.ask(rank, Asked::Pad(furthest))?;
            }
        }
        Ok(())
    }

    /// Refuses a run that did not build all of its timeslices.
    fn check(&self, built: &Built) -> Result<()> {
        let Built { given, account, audit, .. } = built;
        if *audit != Audit::default() {
            bail!(
                "{} of {given} timeslices were not built, and {} were built twice; this is a defect of the program",
                audit.lost,
                audit.duplicated
            );
        }
        if !account.faults.is_empty() && self.task.feed.sink == SinkKind::Check {
            let faults = account.faults.iter().map(|(sentence, count)| format!("{sentence} ({count} times)"));
            eprintln!("clearway: {}", faults.collect::<Vec<_>>().join("; "));
        }
        Ok(())
    }
}
