//! Timeslice building by ranks that are processes: one policy after the other, coordinated and
//! counted.
//!
//! # Model
//! A run begins with nodes of its own on every rank and ends when everything that was given was
//! built: then nothing of it is left in the network, and the next can begin. What is counted comes
//! in samples that each rank takes by its own clock, all begun by one order. A run is *timed*,
//! where schedules are compared: then inputs stop when the last sample was taken. Or it has a
//! *source*, and ends when that is over at all inputs.
//!
//! An input whose source is over before those of others continues with empty contributions, as far
//! as the others are: else their timeslices would never be complete.
//!
//! A rank that dies is noticed here by its end, and by the others in their own way
//! (`run_progress`); what it had built is said by them at the end. Where ranks can be started anew
//! they are before the next run; where they cannot there is none.
//!
//! # Not here
//! Archives: looked for before the run, kept after it: `files`. The first timeslice: `origin`.
//!
//! # Invariants
//! I1. What was counted is reported only of runs in which every timeslice was built, once.

mod files;
mod origin;
mod restart;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clearway_proto::base::{Bytes, Rank};
use clearway_proto::stats::Histogram;
use clearway_proto::timeslice::Policy;

use self::origin::FirstStarts;
use super::SeedRun;
use super::count::{RunCounts, RunLength};
use super::join::KeptCredential;
use super::ledger::{BuilderEntry, BuilderReports, LedgerEntry, add_built};
use super::losses::LossRow;
use super::messages::{
    BuildSpec, SinkKind, TimesliceAssignment, TimesliceProtocol, TimesliceRequest,
    TimesliceResponse, TimesliceResult,
};
use super::metrics::TimesliceMetrics;
use super::numbers::{CompletenessAudit, TimesliceNumbers};
use super::plan::TimeslicePlan;
use super::run_progress::{RankLoss, RunProgress};
use super::scheduled_change::ScheduledAction;
use super::settled::SettledWork;
use super::simulated::TimesliceOutcome;
use super::status_board::StatusBoard;
use crate::run::exit::Exit;
use crate::run::session::Session;
use crate::run::venue::ProcessVenue;
use crate::run::{RemainingTime, notice, reached};

/// How long ranks may take for what takes no time but that of a busy machine, and the last
/// timeslices to be built.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a decision may be under way that makes those that are left enough.
const DECISION: Duration = Duration::from_secs(2);
/// How long nodes of a run that is over stay: what was said last, and nobody waits for, arrives
/// meanwhile.
const SETTLE: Duration = Duration::from_millis(100);
/// How often a wait looks around.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Heartbeats before a run begins: then everybody was heard once, and is missed if it falls silent.
const BEATS: u32 = 2;

/// What ranks are to do.
pub(crate) struct TimesliceTask {
    pub(crate) feed: BuildSpec,
    /// Bytes that an input holds until they are built.
    pub(crate) memory: Bytes,
    /// The name under which it can be watched.
    pub(crate) job: String,
}

/// What became of all that a run was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct BuildResult {
    /// Timeslices that all inputs gave.
    pub(crate) given: u64,
    /// Everything that sinks have taken, and what inputs say of their sources.
    pub(crate) account: TimesliceResult,
    /// From the order to begin to the end.
    pub(crate) took: Duration,
    /// From the first to the last contribution of a timeslice, in ns.
    pub(crate) completion: Histogram,
    /// Bytes that landed for each second of processor time of all ranks, by policy, a value for
    /// each seed.
    pub(crate) cost: BTreeMap<Policy, Vec<f64>>,
    /// Timeslices that were counted as built.
    pub(super) timeslices: u64,
    /// Ranks that the runs went on without.
    pub(super) deaths: Vec<RankLoss>,
    pub(super) audit: CompletenessAudit,
    /// What became of the microslices of each input; empty where sources have none. Of several runs,
    /// entries that are wrong.
    pub(super) ledger: Vec<LedgerEntry>,
    /// The same by builder; empty where sources have no microslices, or of several runs.
    pub(super) builders: Vec<BuilderEntry>,
    /// The same by time, and how many seconds a row stands for.
    pub(super) losses: (Vec<LossRow>, u64),
}

impl BuildResult {
    /// Returns how a program ends that built this: archives with faults end `msa check` the same
    /// way.
    pub(crate) fn exit(&self) -> Exit {
        if self.ledger.iter().any(|entry| entry.fault.is_some()) {
            return Exit::Failed;
        }
        if self.account.faults.is_empty() && self.account.cut == 0 {
            Exit::Good
        } else {
            Exit::Findings
        }
    }

    /// Adds what was built in another run.
    fn add(&mut self, built: Self) {
        self.given += built.given;
        self.timeslices += built.timeslices;
        self.took += built.took;
        built
            .cost
            .into_iter()
            .for_each(|(policy, values)| self.cost.entry(policy).or_default().extend(values));
        self.account = std::mem::take(&mut self.account).and(built.account);
        self.deaths.extend(built.deaths);
        self.ledger.extend(built.ledger.into_iter().filter(|entry| entry.fault.is_some()));
    }
}

/// Compares the policies of `plan` on `ranks`, made-up contributions of `feed` in all of them; what
/// was built in all. Ends early when a rank died that cannot be started anew. `metrics` has what
/// ranks do.
///
/// # Errors
/// One sentence: which rank cannot go on or is gone, or that a timeslice was lost.
pub(crate) fn compare(
    ranks: &mut dyn ProcessVenue,
    plan: &TimeslicePlan,
    task: &TimesliceTask,
    metrics: &TimesliceMetrics,
) -> Result<(Vec<SeedRun>, BuildResult)> {
    let mut coordinator = TimesliceCoordinator::new(ranks, plan, task, metrics)?;
    let (mut runs, mut all) = (Vec::new(), BuildResult::default());
    let remaining = plan.remaining(plan.seeds.len() * (plan.policies.len() + 1));
    for seed in &plan.seeds {
        let mut one = |policy: Policy| -> Result<Option<TimesliceOutcome>> {
            if !coordinator.is_complete()? {
                return Ok(None);
            }
            remaining.part(format!("seed {seed}, {}", policy.name()));
            let (outcome, built) = coordinator.run(policy, *seed, RunLength::timed(plan))?;
            all.add(built);
            Ok(Some(outcome))
        };
        let Some(raw) = one(Policy::Raw)? else { break };
        let mut run = SeedRun { host_rate: None, raw, policies: Vec::new() };
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
pub(super) fn each(
    ranks: &mut dyn ProcessVenue,
    runs: &[(TimeslicePlan, TimesliceTask, Policy)],
    metrics: &TimesliceMetrics,
) -> Result<Vec<TimesliceOutcome>> {
    let Some((plan, task, _)) = runs.first() else { return Ok(Vec::new()) };
    let mut coordinator = TimesliceCoordinator::new(ranks, plan, task, metrics)?;
    let mut outcomes = Vec::new();
    let remaining = plan.remaining(runs.len());
    for (plan, task, policy) in runs {
        remaining.part(format!("{} of {}", policy.name(), plan.contribution));
        (coordinator.plan, coordinator.task) = (plan, task);
        let seed = plan.seeds.first().copied().unwrap_or(1);
        outcomes.push(coordinator.run(*policy, seed, RunLength::timed(plan))?.0);
    }
    Ok(outcomes)
}

/// Builds what the sources of `feed` have with the first policy of `plan`.
///
/// # Errors
/// As [`compare`].
pub(crate) fn build(
    ranks: &mut dyn ProcessVenue,
    plan: &TimeslicePlan,
    task: &TimesliceTask,
    metrics: &TimesliceMetrics,
) -> Result<BuildResult> {
    let mut coordinator = TimesliceCoordinator::new(ranks, plan, task, metrics)?;
    let policy = plan.policies.first().copied().unwrap_or(Policy::Token);
    let seed = plan.seeds.first().copied().unwrap_or(1);
    // A source without an end has no time that is left.
    let remaining = task.feed.timeslices.map(|_| RemainingTime::begin("run", vec![1.0], None));
    remaining.iter().for_each(|remaining| remaining.part(policy.name()));
    let run =
        coordinator.check_sources().and_then(|()| coordinator.run(policy, seed, RunLength::Source));
    let (outcome, built) = run.map_err(|error| coordinator.give_up(error))?;
    Ok(BuildResult { completion: outcome.completion, ..built })
}

/// Coordinates runs.
struct TimesliceCoordinator<'a> {
    venue: &'a mut dyn ProcessVenue,
    plan: &'a TimeslicePlan,
    task: &'a TimesliceTask,
    board: StatusBoard,
    /// Where processes find the way into a job.
    _credential: Option<KeptCredential>,
    runs: u32,
    /// The stretch of time of the first timeslice of this run, where it is cut by time.
    origin: Option<u64>,
    /// Ranks whose processes have ended.
    dead_ranks: BTreeSet<Rank>,
    /// What builders write, by the name that it has until it is kept.
    unfinished: BTreeMap<Rank, String>,
    /// What ranks were given to do last.
    assignment: Option<TimesliceAssignment>,
}

impl<'a> TimesliceCoordinator<'a> {
    fn new(
        venue: &'a mut dyn ProcessVenue,
        plan: &'a TimeslicePlan,
        task: &'a TimesliceTask,
        metrics: &TimesliceMetrics,
    ) -> Result<Self> {
        let ranks = venue.processes();
        let (there, wanted) = (ranks.hosts().len(), plan.inputs + plan.builders);
        if there != wanted as usize {
            bail!(
                "{} inputs and {} builders are {wanted} ranks, and there are {there}",
                plan.inputs,
                plan.builders
            );
        }
        restart::check(venue, plan)?;
        let ranks = venue.processes();
        let board = StatusBoard::open(&task.job, ranks.hosts(), metrics.clone());
        let credential = venue.credential().map(|own| KeptCredential::write(&task.job, own));
        let _credential = credential.and_then(|kept| {
            kept.map_err(|why| notice!("clearway: nobody can join this run: {why:#}")).ok()
        });
        let (dead_ranks, unfinished) = (BTreeSet::new(), BTreeMap::new());
        Ok(Self {
            venue,
            plan,
            task,
            board,
            _credential,
            runs: 0,
            origin: None,
            dead_ranks,
            unfinished,
            assignment: None,
        })
    }

    fn session(&mut self) -> Session<'_, TimesliceProtocol> {
        self.venue.processes_mut().session()
    }

    fn name(&self, rank: Rank) -> String {
        self.venue.processes().name(rank)
    }

    /// Returns whether a run can begin with all ranks: those that are gone are started anew, where
    /// that is possible.
    fn is_complete(&mut self) -> Result<bool> {
        self.drain_responses()?;
        let Some(first) = self.dead_ranks.first().copied() else { return Ok(true) };
        let is_complete = self.venue.renew()?;
        if is_complete {
            self.dead_ranks.clear();
        } else {
            notice!(
                "clearway: {} is gone and is not started anew: nothing more is compared",
                self.name(first)
            );
        }
        Ok(is_complete)
    }

    /// Takes in late reports of the run before.
    fn drain_responses(&mut self) -> Result<()> {
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            self.next_response(LOOK_EVERY)?;
        }
        Ok(())
    }

    /// Returns the next that a rank says, or how it ended.
    fn next_response(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<(Rank, Result<TimesliceResponse, String>)>> {
        let heard = self.session().poll(timeout)?;
        if let Some((rank, Err(_))) = &heard {
            self.dead_ranks.insert(*rank);
        }
        Ok(heard)
    }

    fn request(&mut self, rank: Rank, asked: TimesliceRequest) -> Result<()> {
        self.session().try_request(rank, asked)
    }

    fn request_begin(&mut self, rank: Rank, length: RunLength, reported: u64) -> Result<()> {
        let (every, origin) = (length.sample(), self.origin);
        self.request(rank, TimesliceRequest::Begin { every, origin, reported })
    }

    /// Runs `policy` once.
    fn run(
        &mut self,
        policy: Policy,
        seed: u64,
        length: RunLength,
    ) -> Result<(TimesliceOutcome, BuildResult)> {
        self.origin = self.begin(policy, seed)?;
        let mut run_progress = RunProgress::new(self.plan, policy, length.uncounted())?;
        for rank in run_progress.living().collect::<Vec<_>>() {
            self.request_begin(rank, length, 0)?;
        }
        let mut count = RunCounts::new(self.plan, length);
        self.board.begin(policy);
        let mut moved = Instant::now();
        while !run_progress.is_over() {
            if let Some((rank, wanted)) = run_progress.next_change() {
                if wanted == ScheduledAction::Return && run_progress.has_no_process(rank) {
                    self.restart(&mut run_progress, &mut count, rank)?;
                } else {
                    self.request(rank, TimesliceRequest::from_action(wanted))?;
                }
            }
            if self.admit_newcomer(&mut run_progress, &mut count)? {
                moved = Instant::now();
            }
            match self.next_response(run_progress.timeout(LOOK_EVERY))? {
                Some((rank, Ok(said))) => {
                    if self.handle_response(&mut run_progress, &mut count, rank, said, length)? {
                        moved = Instant::now();
                    }
                }
                Some((rank, Err(how))) => {
                    moved = Instant::now();
                    self.rank_died(&mut run_progress, &mut count, rank, how)?;
                }
                None => self.check_for_stall(&run_progress, policy, moved)?,
            }
            self.send_due_requests(&mut run_progress, &count)?;
            self.task.feed.timeslices.iter().for_each(|all| reached(count.furthest(), *all));
        }
        self.conclude(policy, run_progress, count)
    }

    /// Takes notice of what `rank` said; whether anything moved.
    fn handle_response(
        &mut self,
        run_progress: &mut RunProgress,
        count: &mut RunCounts,
        rank: Rank,
        said: TimesliceResponse,
        length: RunLength,
    ) -> Result<bool> {
        match said {
            TimesliceResponse::Lost { rank: other, epoch } => {
                if run_progress.note_loss_known(Rank(other), rank, epoch) {
                    self.count_out(run_progress, count, Rank(other));
                }
                return Ok(true);
            }
            TimesliceResponse::Out { is_retired } => {
                if run_progress.note_out(rank) {
                    self.count_out(run_progress, count, rank);
                }
                if let (true, Some(end)) =
                    (run_progress.rank_left(rank, is_retired), run_progress.end)
                {
                    self.request(rank, TimesliceRequest::End(end))?;
                }
            }
            TimesliceResponse::Joined { epoch } => {
                if run_progress.join(rank, epoch) {
                    count.join(rank);
                    self.board.join(rank);
                    self.admit_rank(run_progress, rank, length, count.reported())?;
                }
                return Ok(true);
            }
            TimesliceResponse::Done(account) if run_progress.is_awaited(rank) => {
                run_progress.note_done(rank, *account)
            }
            TimesliceResponse::Failed(sentence) if run_progress.is_awaited(rank) => {
                bail!("{}: {sentence}", self.name(rank))
            }
            said if run_progress.is_restarting(rank) => self.introduce(rank, said)?,
            // What a rank that is out says late is of no use to anybody.
            _ if !run_progress.is_there(rank) => {}
            TimesliceResponse::Progress(progress) => {
                self.board.add(rank, &progress);
                run_progress.note_losses(rank, &progress);
                return Ok(count.add(rank, &progress));
            }
            TimesliceResponse::Over(given) => drop(run_progress.over.insert(rank, given)),
            TimesliceResponse::Helpless => run_progress.helpless(rank),
            // An input that has joined has met the builders; what was measured comes too late.
            TimesliceResponse::Ready
            | TimesliceResponse::First(_)
            | TimesliceResponse::Pinged(_) => {}
            TimesliceResponse::Found
            | TimesliceResponse::Writes(_)
            | TimesliceResponse::Kept
            | TimesliceResponse::Taken
            | TimesliceResponse::Settled(_)
            | TimesliceResponse::Done(_)
            | TimesliceResponse::Failed(_) => {
                bail!("{} is confused", self.name(rank))
            }
        }
        Ok(false)
    }

    /// Expects nothing more of `rank`, which is out.
    fn count_out(&mut self, run_progress: &RunProgress, count: &mut RunCounts, rank: Rank) {
        count.lose(rank);
        let death = run_progress.deaths().find(|death| death.rank == rank);
        self.board.lose(rank, death.map_or("", RankLoss::how_it_ended));
    }

    /// Tells `rank`, which has joined, what the others received.
    fn admit_rank(
        &mut self,
        run_progress: &RunProgress,
        rank: Rank,
        length: RunLength,
        reported: u64,
    ) -> Result<()> {
        let is_builder = rank.0 >= self.plan.inputs;
        if is_builder && !run_progress.was_restarted(rank) {
            return Ok(());
        }
        if let (Some(end), false) = (run_progress.end, is_builder) {
            return self.request(rank, TimesliceRequest::End(end));
        }
        self.request_begin(rank, length, reported)?;
        if run_progress.held && !is_builder {
            self.request(rank, TimesliceRequest::Hold)
        } else {
            Ok(())
        }
    }

    /// Takes note that the process of `rank` has ended.
    fn rank_died(
        &mut self,
        run_progress: &mut RunProgress,
        count: &mut RunCounts,
        rank: Rank,
        how: String,
    ) -> Result<()> {
        if !run_progress.is_watched {
            bail!("{} {how} in the middle of the run; run again", self.name(rank));
        }
        self.board.lose(rank, &how);
        let was_there = run_progress.rank_died(rank, how);
        if was_there {
            count.lose(rank);
        }
        match run_progress.next_missing() {
            Some(what) => {
                bail!("{}; no {what} is left, so the run cannot go on", self.all_dead(run_progress))
            }
            None => Ok(()),
        }
    }

    /// Returns who is out, and how, as the beginning of a sentence.
    fn all_dead(&self, run_progress: &RunProgress) -> String {
        let one = |death: &RankLoss| format!("{} {}", self.name(death.rank), death.how_it_ended());
        run_progress.all_deaths().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Refuses to wait any longer for what does not come.
    fn check_for_stall(
        &self,
        run_progress: &RunProgress,
        policy: Policy,
        moved: Instant,
    ) -> Result<()> {
        if let Some(rank) = run_progress.is_helpless() {
            let (name, dead) = (self.name(rank), self.all_dead(run_progress));
            let dead = if dead.is_empty() { String::new() } else { format!(" ({dead})") };
            bail!(
                "{name} reaches too few of the others to go on{dead}: more than half of those that were there must be, or half with \
                 the first of them"
            );
        }
        if run_progress.are_too_few() && moved.elapsed() > DECISION {
            bail!(
                "{}, and too few are left to go on: more than half of those that were there must be, or half with the first of them",
                self.all_dead(run_progress)
            );
        }
        if moved.elapsed() <= TIMEOUT {
            return Ok(());
        }
        if let Some((death, rank)) = run_progress.unknown() {
            bail!(
                "{} {}, and {} does not know after {TIMEOUT:?}",
                self.name(death.rank),
                death.how_it_ended(),
                self.name(rank)
            );
        }
        if run_progress.end.is_none() && run_progress.all_deaths().next().is_some() {
            bail!(
                "{}, and the others have not moved for {TIMEOUT:?}: inputs may be too far apart for what they can hold, and --memory gives \
                 them more",
                self.all_dead(run_progress)
            );
        }
        if run_progress.end.is_some() {
            let one = |(rank, lacks): (Rank, Option<Rank>)| match lacks {
                Some(input) => format!("{} (for {})", self.name(rank), self.name(input)),
                None => self.name(rank),
            };
            let stuck: Vec<_> = run_progress.all_missing().map(one).collect();
            bail!(
                "nothing has moved for {TIMEOUT:?} and the last timeslices under {} are waited for by {}",
                policy.name(),
                stuck.join(", ")
            );
        }
        Ok(())
    }

    /// Adds up what all have, those that are out included.
    fn conclude(
        &mut self,
        policy: Policy,
        mut run_progress: RunProgress,
        count: RunCounts,
    ) -> Result<(TimesliceOutcome, BuildResult)> {
        let took = run_progress.took();
        let mut settled = match run_progress.living().next() {
            Some(first) if run_progress.all_deaths().next().is_some() => {
                self.built_by_dead(first)?
            }
            _ => Vec::new(),
        };
        for change in run_progress.left_out() {
            let (name, what) = (self.name(Rank(change.when.rank)), change.wanted.sentence());
            notice!("clearway: {name} was to {what}, but the run was over before");
        }
        SettledWork::keep_lost(&mut settled, &run_progress);
        let (given, deaths) =
            (run_progress.end.unwrap_or(0), self.deaths(policy, &run_progress, &settled));
        let done = run_progress.done.keys().copied().collect();
        let taken = run_progress.done.values().map(|account| &account.taken);
        let all = || taken.clone().chain(settled.iter().map(|work| &work.numbers));
        let audit = CompletenessAudit::new(given, all());
        let timeslices = all().map(TimesliceNumbers::count).sum();
        let cost = count.cost();
        let restarted = |rank: &Rank| run_progress.was_restarted(*rank);
        let ledger = self.ledger(policy, &run_progress.done, settled.is_empty(), &restarted);
        let entry = |builder: u32| {
            let result = run_progress.done.get(&Rank(builder));
            BuilderEntry::new(builder, result.map(|result| &result.built[..]), &ledger)
        };
        let first = self.plan.inputs;
        let builders = if ledger.is_empty() { 0..0 } else { first..first + self.plan.builders };
        let builders = builders.map(entry).collect();
        let losses = (run_progress.lost.finish(), run_progress.lost.step());
        // They are still to be gone when the next run begins.
        self.dead_ranks.extend(run_progress.restarting());
        let mut outcome = TimesliceOutcome { losses: run_progress.losses(), ..count.outcome };
        let built = BuildResult {
            given,
            timeslices,
            account: run_progress
                .done
                .into_values()
                .fold(TimesliceResult::default(), TimesliceResult::and),
            took,
            completion: Histogram::default(),
            cost: cost.map(|cost| (policy, vec![cost])).into_iter().collect(),
            deaths,
            audit,
            ledger,
            builders,
            losses,
        };
        if policy.is_building() {
            self.check(&built)?;
            self.keep(&done)?;
            outcome.audit = Some(audit);
        }
        Ok((outcome, built))
    }

    /// Returns what became of the microslices of each input, as those say that are `done`;
    /// `is_whole` says whether those are all that built anything.
    fn ledger(
        &self,
        policy: Policy,
        done: &BTreeMap<Rank, TimesliceResult>,
        is_whole: bool,
        was_restarted: &dyn Fn(&Rank) -> bool,
    ) -> Vec<LedgerEntry> {
        let feed = &self.task.feed;
        if !feed.has_microslices() || !policy.is_building() {
            return Vec::new();
        }
        let reports = match (&feed.sink, is_whole) {
            (SinkKind::Discard, _) => BuilderReports::None,
            (_, true) => BuilderReports::All,
            (_, false) => BuilderReports::Some,
        };
        let mut built = Vec::new();
        done.values().for_each(|result| add_built(&mut built, &result.built));
        let entry = |input: u32| {
            // A process that was killed took along what its source had offered until then.
            let source = done.get(&Rank(input)).filter(|_| !was_restarted(&Rank(input)));
            let source = source.map(|result| &result.source);
            let built = built.get(input as usize).copied().unwrap_or_default();
            LedgerEntry::new(input, source, built, reports)
        };
        (0..self.plan.inputs).map(entry).collect()
    }

    /// Returns what builders had built that are out, as `rank` knows it.
    fn built_by_dead(&mut self, rank: Rank) -> Result<Vec<SettledWork>> {
        self.request(rank, TimesliceRequest::Tell)?;
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            match self.next_response(LOOK_EVERY)? {
                Some((_, Ok(TimesliceResponse::Settled(settled)))) => return Ok(settled),
                Some((teller, Err(how))) if teller == rank => {
                    bail!("{} {how} at the end of the run", self.name(rank))
                }
                _ => {}
            }
        }
        bail!("{} does not say what those had built that are out", self.name(rank))
    }

    /// Gives every rank its part, builders first, since an input would take a builder of the run
    /// before for its own; returns the stretch of time of the first timeslice.
    fn begin(&mut self, policy: Policy, seed: u64) -> Result<Option<u64>> {
        let plan = self.plan;
        let heartbeat = plan.heartbeat.filter(|_| policy.is_building());
        let assignment = TimesliceAssignment {
            number: self.runs,
            inputs: plan.inputs,
            builders: plan.builders,
            // What nobody builds has no turns: streams of unlike length to builders would end at no
            // common timeslice.
            weights: if policy.is_building() { plan.weights.clone() } else { Vec::new() },
            neighbourhoods: plan.neighbourhoods().to_vec(),
            policy,
            window: plan.window,
            dfs: plan.dfs,
            ring: plan.ring,
            memory: self.task.memory,
            start_skew: plan.start_skew,
            seed,
            heartbeat,
            class: plan.class(),
            feed: self.task.feed.clone(),
            restart: None,
        };
        self.assignment = Some(assignment.clone());
        self.runs += 1;
        self.drain_responses()?;
        let [inputs, builders] = [0..plan.inputs, plan.inputs..plan.inputs + plan.builders];
        let mut starts = FirstStarts::default();
        for (ranks, answers) in [(builders, 1), (inputs, 2)] {
            for rank in ranks.clone() {
                self.request(Rank(rank), TimesliceRequest::Take(Box::new(assignment.clone())))?;
            }
            self.await_all(ranks.len() * answers, &mut starts)?;
        }
        let origin = self.find_origin(policy, starts)?;
        if let Some(rank) = self.dead_ranks.first() {
            bail!("{} ended before the run began; run again", self.name(*rank));
        }
        thread::sleep(
            heartbeat.map_or(Duration::ZERO, |every| Duration::from_nanos(every.0) * BEATS),
        );
        Ok(origin)
    }

    /// Waits until ranks have given this many answers to what they were asked before the run.
    fn await_all(&mut self, mut missing: usize, starts: &mut FirstStarts) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while missing > 0 {
            match self.next_response(LOOK_EVERY)? {
                Some((
                    _,
                    Ok(
                        TimesliceResponse::Found
                        | TimesliceResponse::Taken
                        | TimesliceResponse::Ready,
                    ),
                )) => missing -= 1,
                Some((rank, Ok(TimesliceResponse::First(start)))) => starts.note(rank, start),
                Some((rank, Ok(TimesliceResponse::Writes(name)))) => {
                    drop(self.unfinished.insert(rank, name))
                }
                Some((rank, Ok(TimesliceResponse::Failed(sentence)))) => {
                    bail!("{}: {sentence}", self.name(rank))
                }
                Some((rank, Err(how))) => {
                    bail!("{} {how} before the run began; run again", self.name(rank))
                }
                // A late report of the run before.
                Some(_) => {}
                None if Instant::now() > deadline => {
                    bail!("inputs and builders did not meet within {TIMEOUT:?}")
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Tells inputs what follows from how far all are.
    fn send_due_requests(
        &mut self,
        run_progress: &mut RunProgress,
        count: &RunCounts,
    ) -> Result<()> {
        let inputs: Vec<Rank> = run_progress.inputs().collect();
        if run_progress.end.is_some() {
            return Ok(());
        }
        if run_progress.can_end() {
            let end = run_progress.over.values().copied().max().unwrap_or(0);
            run_progress.end = Some(end);
            return inputs
                .into_iter()
                .chain(run_progress.retired())
                .try_for_each(|rank| self.request(rank, TimesliceRequest::End(end)));
        }
        if !run_progress.held && count.is_over() {
            run_progress.held = true;
            run_progress.over.clear();
            return inputs
                .into_iter()
                .try_for_each(|rank| self.request(rank, TimesliceRequest::Hold));
        }
        let furthest = count.furthest();
        let behind =
            run_progress.over.iter().filter(|(_, given)| **given < furthest).map(|(rank, _)| *rank);
        for rank in behind.collect::<Vec<_>>() {
            if run_progress.padded.insert(rank, furthest) < Some(furthest) {
                self.request(rank, TimesliceRequest::Pad(furthest))?;
            }
        }
        Ok(())
    }

    /// Refuses a run that did not build all of its timeslices.
    fn check(&self, built: &BuildResult) -> Result<()> {
        let BuildResult { given, account, audit, .. } = built;
        if *audit != CompletenessAudit::default() {
            bail!(
                "{} of {given} timeslices were not built, and {} were built twice; this is a defect of the program",
                audit.lost,
                audit.duplicated
            );
        }
        if !account.faults.is_empty() && self.task.feed.sink == SinkKind::Check {
            let faults = account
                .faults
                .iter()
                .map(|(sentence, count)| format!("{sentence} ({count} times)"));
            notice!("clearway: {}", faults.collect::<Vec<_>>().join("; "));
        }
        Ok(())
    }
}
