//! Drains the log: gives the engine of the drain its news, a worker its steps, and the log the records.
//!
//! # Model
//! ```text
//!   log events --news--> round of the drain thread --steps--> worker --> store
//!                         |   ^                                  |
//!                      records +-------------- ends -------------+
//! ```
//! Requests and the thread of the log only note that there is news; a thread of its own looks at it
//! under the lock. After a round it rests for some times as long as the round took, so that a long
//! list of differences takes the lock for a part of the time only. The thread looks at
//! news of the log at most once in [`NEWS_EVERY`], so that syncs seldom wait for the lock.
//!
//! # Invariants
//! I1. No call to the store is made under the lock, and none by the mount but those of readers.
//! I2. A change that found the log full waits only as long as the store gets on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos};
use clearway_proto::staging::{
    ClientId, DrainNotice, DrainPolicy, InodeId, LogCommand, LogError, LogState, StepEnd,
    StoreDrain, StoreDrainConfig, StorePath, StoreStep, StoreTask, StrangerFate, Tree, TreeChange,
};
use clearway_proto::wire::{Fault, Span};
use clearway_runtime::wake_signal::WakeSignal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::core::Core;
use super::due::{DueFiles, change_sentence};
use super::{Engine, wall_now};
use crate::store::{DrainHeld, OBJECTS_NAME, StoreWorker, stranger_name};
use crate::stored::members_of;

/// The client whose calls are the records of the drain.
pub(super) const DRAIN: ClientId = ClientId(2);
/// Files that are copied at a time, and other steps: what a worker does at a time.
const FILES: u32 = 4;
const NAMES: u32 = 4;
/// Bytes of one pass: long enough for the disk, short enough that a change of class is soon felt.
const PASS: Bytes = Bytes(64 << 20);
/// Differences of each kind that are looked at under the lock: less than a millisecond.
const LOOK: usize = 1024;
/// How long what failed is left alone.
const PAUSE: Nanos = Nanos::from_secs(1);
/// How long a file is left alone after a change: many files change again or are removed by then.
const DELAY: Nanos = Nanos::from_secs(1);
/// How long steps may fail until changes do not wait for the store any more.
const FAILING_MAX: Nanos = Nanos::from_secs(5);
/// The shortest time between two looks at news of the log.
const NEWS_EVERY: Duration = Duration::from_millis(2);
/// How long the thread rests after a round, in rounds.
const REST_ROUNDS: u32 = 4;
const REST_MAX: Duration = Duration::from_secs(1);
/// Sentences about files of other programs, at most.
const REPORTED_MAX: usize = 1000;
/// Weights of the classes: urgent ones get most of the store, and none starves.
const WEIGHTS: [(Class, u32); 5] = [
    (Class::Control, 16),
    (Class::LowLatency, 8),
    (Class::BestEffort, 4),
    (Class::Bulk, 2),
    (Class::Scavenger, 1),
];

/// What was drained since the mount began.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainCounts {
    /// Bytes that were copied, by the class that they had then.
    pub(crate) bytes: BTreeMap<Class, u64>,
    /// Versions of files that the store got whole.
    pub(crate) files: u64,
    /// Steps that failed.
    pub(crate) failures: u64,
}

/// A pass of a file on its way to the store.
#[derive(Clone, Copy, Debug)]
struct CopyUnderWay {
    class: Class,
    bytes: u64,
    /// The file has a deadline.
    is_due: bool,
}

/// How the drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainCondition {
    /// There is nothing to do.
    Idle,
    /// It gets on.
    Working,
    /// Steps fail, and none succeeded since.
    Failing,
    /// The store makes no progress.
    Parked,
}

/// The drain of a mount.
pub(super) struct Draining {
    pub(super) drain: StoreDrain,
    worker: StoreWorker,
    /// The copies under way, by step.
    copies: BTreeMap<u64, CopyUnderWay>,
    due: DueFiles,
    /// Files that come before others.
    pub(super) urgent: BTreeSet<InodeId>,
    counts: DrainCounts,
    /// Since when steps fail, if none succeeded since.
    failing_since: Option<LocalNs>,
    /// Causes that an operator knows of, and paths.
    reported_faults: BTreeSet<String>,
    reported_strangers: BTreeSet<String>,
    is_parked_reported: bool,
    is_absence_reported: bool,
}

impl Draining {
    fn new(worker: StoreWorker, recorded: u64, tree: &Tree) -> Self {
        let config = StoreDrainConfig {
            files: FILES,
            names: NAMES,
            pass: PASS,
            pause: PAUSE,
            delay: DELAY,
            weights: WEIGHTS.to_vec(),
            look: LOOK,
            recorded,
        };
        Self {
            drain: StoreDrain::new(config, tree),
            worker,
            copies: BTreeMap::new(),
            due: DueFiles::default(),
            urgent: BTreeSet::new(),
            counts: DrainCounts::default(),
            failing_since: None,
            reported_faults: BTreeSet::new(),
            reported_strangers: BTreeSet::new(),
            is_parked_reported: false,
            is_absence_reported: false,
        }
    }

    /// Reviews deadlines; returns sentences for `mount.log`.
    fn review_due(&mut self, now: LocalNs, tree: &Tree) -> Vec<String> {
        let change = self.due.review(now, wall_now(), self.drain.due(tree));
        if change.is_some() {
            self.drain.policies_changed();
        }
        change.as_ref().map(change_sentence).into_iter().chain(self.due.sentence()).collect()
    }

    fn condition(&self) -> DrainCondition {
        if self.drain.is_parked() {
            DrainCondition::Parked
        } else if self.drain.is_idle() && self.drain.retry_at().is_none() {
            DrainCondition::Idle
        } else if self.failing_since.is_some() {
            DrainCondition::Failing
        } else {
            DrainCondition::Working
        }
    }

    /// Takes the ends of steps.
    fn take_ends(&mut self, now: LocalNs, state: &LogState) {
        while let Some((number, end)) = self.worker.poll() {
            let copied = self.copies.remove(&number);
            if let StepEnd::Done | StepEnd::DoneWithStranger(_) = end {
                self.failing_since = None;
                if let Some(CopyUnderWay { class, bytes, is_due }) = copied {
                    *self.counts.bytes.entry(class).or_default() += bytes;
                    self.due.copied(if is_due { bytes } else { 0 });
                }
            }
            if self.drain.end(now, state, number, end) {
                self.failing_since.get_or_insert(now);
                self.counts.failures += 1;
            }
        }
    }

    fn begin(&mut self, task: StoreTask) {
        if let StoreStep::Copy { inode, pieces, .. } = &task.step {
            let bytes = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
            let is_due = self.drain.is_due(*inode);
            self.copies.insert(task.number, CopyUnderWay { class: task.class, bytes, is_due });
        }
        self.worker.begin(task);
    }

    /// Returns sentences for `mount.log`: each cause once, until the store works again.
    fn sentences(&mut self) -> Vec<String> {
        let mut sentences: Vec<String> = Vec::new();
        while let Some(line) = self.worker.take_line() {
            sentences.push(format!("the process that changes the store: {line}"));
        }
        while let Some(notice) = self.drain.take_notice() {
            match notice {
                DrainNotice::Failed { step, fault } => {
                    if self.reported_faults.insert(fault.to_string()) {
                        let what = describe(&step);
                        sentences.push(format!(
                            "the store {}: cannot {what}: {fault}{}; it is tried again until it works",
                            self.worker.store().display(),
                            remedy(fault)
                        ));
                    }
                }
                DrainNotice::Stranger { step, fate } => {
                    let sentence = stranger_sentence(&step, fate);
                    if self.reported_strangers.len() < REPORTED_MAX
                        && self.reported_strangers.insert(sentence.clone())
                    {
                        sentences.push(sentence);
                    }
                }
                DrainNotice::Absent if !self.is_absence_reported => {
                    self.is_absence_reported = true;
                    sentences.push(format!(
                        "{} does not lead to the store of this log; files stay in the log until the store, and its file system, are there again",
                        self.worker.store().display()
                    ));
                }
                DrainNotice::Parked if !self.is_parked_reported => {
                    self.is_parked_reported = true;
                    sentences.push(
                        "the store makes no progress; files stay in the log, and the drain is tried again"
                            .to_owned(),
                    );
                }
                DrainNotice::Parked | DrainNotice::Absent | DrainNotice::Published(_) => {}
            }
        }
        let is_well = self.failing_since.is_none() && self.drain.retry_at().is_none();
        let is_bad = self.is_parked_reported || self.is_absence_reported;
        if is_well && (is_bad || !self.reported_faults.is_empty()) {
            (self.is_parked_reported, self.is_absence_reported) = (false, false);
            self.reported_faults = BTreeSet::new();
            sentences.push("the store works again".to_owned());
        }
        sentences
    }
}

fn shown(path: &StorePath) -> String {
    let names: Vec<_> =
        path.names.iter().map(|name| String::from_utf8_lossy(name.bytes())).collect();
    format!("/{}", names.join("/"))
}

/// Returns the sentence for something of another program that a step found.
fn stranger_sentence(step: &StoreStep, fate: StrangerFate) -> String {
    let place = match (step, fate) {
        (StoreStep::Sweep { .. }, _) => format!("/{OBJECTS_NAME}"),
        (StoreStep::MoveDirectory { from, .. }, StrangerFate::Stays) => shown(from),
        _ => place_of(step).unwrap_or_else(|| "a name".to_owned()),
    };
    match (step, fate) {
        (StoreStep::Sweep { .. }, _) => format!(
            "the store: another program made entries of {place}, which is for Clearway alone; they stay there"
        ),
        (_, StrangerFate::Stays) => {
            format!("the store: another program changed what is at {place}; it stays there")
        }
        (_, StrangerFate::Moved(number)) => {
            let name = place.rsplit('/').next().unwrap_or_default();
            let moved = stranger_name(name.as_bytes(), number);
            format!(
                "the store: another program made what was at {place}; its name is now {}",
                String::from_utf8_lossy(&moved)
            )
        }
    }
}

/// Returns the path in the store that a step changes.
fn place_of(step: &StoreStep) -> Option<String> {
    match step {
        StoreStep::Link { to: at, .. }
        | StoreStep::MakeDirectory { at }
        | StoreStep::MoveDirectory { to: at, .. }
        | StoreStep::Unlink { at }
        | StoreStep::RemoveDirectory { at }
        | StoreStep::Settle { at, .. } => Some(shown(at)),
        _ => None,
    }
}

/// Returns what an operator can do against a fault, to be read behind it.
const fn remedy(fault: Fault) -> &'static str {
    match fault {
        Fault::Denied => {
            "; mount its file system for writing, and let the user of this mount write there"
        }
        Fault::NoSpace => "; make room on its file system",
        _ => "",
    }
}

/// Returns what a step does, to be read behind "cannot".
fn describe(step: &StoreStep) -> String {
    let place = place_of(step).unwrap_or_default();
    match step {
        StoreStep::Sweep { .. } => "look at its objects".to_owned(),
        StoreStep::Copy { inode, .. } => format!("copy the file with inode {}", inode.0),
        StoreStep::Make { inode, .. } => format!("make the object of inode {}", inode.0),
        StoreStep::Settle { .. } => format!("set the attributes of {place}"),
        StoreStep::Link { .. } | StoreStep::MakeDirectory { .. } => format!("make {place}"),
        StoreStep::MoveDirectory { .. } => format!("move a directory to {place}"),
        StoreStep::Unlink { .. } | StoreStep::RemoveDirectory { .. } => format!("remove {place}"),
        StoreStep::DropOld { .. } | StoreStep::Drop { .. } => "remove an object".to_owned(),
        StoreStep::SyncDirectories { .. } => "sync directories".to_owned(),
    }
}

impl Core {
    /// Notes that the drain has something to look at.
    pub(super) fn notify_drain(&mut self) {
        if let Some(draining) = &mut self.draining {
            draining.drain.stir();
            self.has_drain_news = true;
        }
    }

    /// Takes whether there is something to look at that the thread of the drain was not woken for.
    pub(super) fn take_drain_news(&mut self) -> bool {
        std::mem::take(&mut self.has_drain_news) && self.draining.is_some()
    }

    /// Changes the engine of the drain by `update`, if there is one.
    pub(crate) fn update_drain(&mut self, update: impl FnOnce(&mut StoreDrain, &Tree)) {
        if let Some(draining) = &mut self.draining {
            update(&mut draining.drain, self.driver.engine_mut().state().tree());
            self.has_drain_news = true;
        }
    }

    /// Returns what `query` finds in the engine of the drain; `None` when nothing is drained.
    pub(crate) fn query_drain<T>(
        &mut self,
        query: impl FnOnce(&StoreDrain, &Tree) -> T,
    ) -> Option<T> {
        let draining = self.draining.as_ref()?;
        Some(query(&draining.drain, self.driver.engine_mut().state().tree()))
    }

    /// Drains a file before others of its class.
    pub(crate) fn promote(&mut self, inode: InodeId) {
        if let Some(draining) = &mut self.draining {
            draining.urgent.insert(inode);
            draining.drain.policy_changed(inode);
            self.has_drain_news = true;
        }
    }

    /// Gives the drain a new version of a file.
    pub(super) fn note_drainable(&mut self, version: (InodeId, u64, u64)) {
        let now = self.now_local();
        self.update_drain(|drain, tree| drain.drainable(now, tree, version));
        if let Some(draining) = &mut self.draining
            && draining.urgent.contains(&version.0)
        {
            draining.drain.policy_changed(version.0);
        }
    }

    /// Returns how the drain is, and what it did.
    pub(crate) fn drain_status(&self) -> (DrainCondition, DrainCounts, u64) {
        match &self.draining {
            Some(draining) => {
                let under_way = draining.drain.under_way() as u64;
                (draining.condition(), draining.counts.clone(), under_way)
            }
            None => (DrainCondition::Idle, DrainCounts::default(), 0),
        }
    }

    /// Returns how many files are later in the store than their deadline.
    pub(crate) fn late_files(&self) -> u64 {
        self.draining.as_ref().map_or(0, |draining| draining.due.late())
    }

    /// Returns the child process that changes the store.
    pub(crate) fn store_process(&self) -> Option<u32> {
        self.draining.as_ref()?.worker.process()
    }

    /// Returns for how long and how far the agent of the node held the drain back, if it did.
    pub(crate) fn drain_held(&self) -> Option<DrainHeld> {
        self.draining.as_ref()?.worker.held_back()
    }

    /// Returns whether a full log may have space soon: the store gets on, and something is left that
    /// it can have.
    pub(crate) fn may_get_space(&mut self) -> bool {
        let now = self.now_local();
        let is_moving = !self.is_all_durable() || self.driver.engine_mut().frees_space();
        let Some(draining) = &self.draining else { return false };
        let is_failing = draining.failing_since.is_some_and(|since| now.since(since) > FAILING_MAX);
        let has_work = !draining.drain.is_idle() || draining.drain.deadline().is_some();
        !draining.drain.is_parked() && !is_failing && (is_moving || has_work)
    }

    /// Returns whether less than half of the log is free, or a change waits.
    fn is_space_short(&mut self) -> bool {
        let space = self.space();
        space.free.0 < space.total.0 / 2 || self.counts().1 > 0
    }

    /// Does all that the drain can do now; returns when to do it again.
    fn drain_round(&mut self) -> Option<LocalNs> {
        let now = self.now_local();
        let delay = if self.is_space_short() { Nanos::ZERO } else { DELAY };
        self.update_drain(|drain, _| drain.set_delay(delay));
        self.has_drain_news = false;
        let Self { draining, driver, .. } = self;
        let draining = draining.as_mut()?;
        draining.take_ends(now, driver.engine_mut().state());
        let mut sentences = draining.review_due(now, driver.engine_mut().state().tree());
        while self.append_record() {}
        while let Some(task) = self.next_task(now) {
            self.draining.as_mut()?.begin(task);
            // A decision may be a record.
            while self.append_record() {}
        }
        while self.append_record() {}
        let draining = self.draining.as_mut()?;
        sentences.append(&mut draining.sentences());
        let waits = draining.drain.waits_for_records();
        let deadline =
            draining.drain.deadline().into_iter().chain(draining.due.next_review()).min();
        if waits {
            self.command(LogCommand::Commit);
        }
        sentences.into_iter().for_each(|sentence| self.say(sentence));
        self.retry_parked();
        deadline
    }

    fn next_task(&mut self, now: LocalNs) -> Option<StoreTask> {
        let Self { draining, driver, classes, .. } = self;
        let Draining { drain, urgent, due, .. } = draining.as_mut()?;
        let log = driver.engine_mut();
        let policy = |tree: &Tree, inode| {
            let policy = classes.drain_policy(tree, inode, urgent);
            let raised = |_| classes.limited(due.class(policy.class));
            let class = policy.due.map_or(policy.class, raised);
            DrainPolicy { class, ..policy }
        };
        drain.next_task(now, log.state(), log.durable(), &policy)
    }

    /// Appends a record of the drain; whether there may be another one.
    fn append_record(&mut self) -> bool {
        let Some((number, change)) = self.draining.as_ref().and_then(|d| d.drain.next_record())
        else {
            return false;
        };
        let drained = match &change {
            TreeChange::Drained { inode, .. } => Some(*inode),
            _ => None,
        };
        let taken = drained.map(|inode| (inode, self.taken_bytes(inode)));
        let outcome = self.offer_as(DRAIN, number, change, Class::BestEffort, Span::EMPTY);
        if let (Some((inode, taken)), Ok(())) = (taken, outcome) {
            self.note_drained(inode, taken);
        }
        let is_whole = |core: &mut Self, inode| {
            let content = core.tree().content(inode);
            content.is_none_or(|content| content.drained() == content.version())
        };
        let whole = drained.filter(|inode| outcome.is_ok() && is_whole(self, *inode));
        let Some(draining) = &mut self.draining else { return false };
        if let Some(inode) = whole {
            draining.urgent.remove(&inode);
            draining.counts.files += 1;
        }
        draining.drain.record_taken(outcome);
        // What the log takes later is offered again when something is durable.
        !matches!(
            outcome,
            Err(LogError::Full | LogError::Busy | LogError::NotOpen | LogError::Stopped(_))
        )
    }

    /// Gives up sets that a crash left without some of their members; returns those that the log
    /// does not let go of now.
    fn release_torn_sets(&mut self) -> Vec<u64> {
        let mut sets: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, member) in self.tree().members().filter(|(_, member)| member.published.is_none()) {
            *sets.entry(member.set).or_default() += 1;
        }
        let torn = sets.into_iter().filter(|(set, count)| members_of(*set) != *count);
        let mut is_kept = |set: &u64| self.append(TreeChange::Release { set: *set }, &[]).is_err();
        torn.map(|(set, _)| set).filter(|set| is_kept(set)).collect()
    }
}

/// Waits until one of `signals` is raised, or for `timeout`; returns whether one is.
fn wait_for(signals: &[&WakeSignal], timeout: Duration) -> bool {
    let mut descriptors: Vec<PollFd<'_>> =
        signals.iter().map(|signal| PollFd::new(*signal, PollFlags::IN)).collect();
    // An interruption is one more look.
    poll(&mut descriptors, Timespec::try_from(timeout).ok().as_ref()) != Ok(0)
}

impl Engine {
    /// Drains the log by `worker` until the engine is closed.
    pub(crate) fn drain_by(&self, worker: StoreWorker) {
        let _ = self.reader.set(worker.reader());
        self.look(|core| {
            let torn = core.release_torn_sets();
            let recorded = core.state().highest(DRAIN);
            let mut draining = Draining::new(worker, recorded, core.tree());
            torn.into_iter().for_each(|set| draining.drain.gather(set));
            core.draining = Some(draining);
            core.has_drain_news = true;
        });
    }

    /// Runs the drain until it is ended.
    pub(super) fn run_drain(&self) {
        while !self.is_drain_over.load(Ordering::Acquire) {
            self.drain_signal.clear();
            self.drain_news.clear();
            let mut core = self.lock();
            let begun = Instant::now();
            let next = core.drain_round();
            // The log begins to write records at once.
            core.step();
            let now = core.now_local();
            self.send(core);
            self.note_progress();
            let took = begun.elapsed();
            std::thread::sleep((took * REST_ROUNDS).min(REST_MAX));
            let timeout = next.map(|next| Duration::from_nanos(next.since(now).0));
            let timeout = timeout.map_or(REST_MAX, |timeout| timeout.min(REST_MAX));
            let signals = [&*self.drain_signal, &self.drain_news];
            if !wait_for(&signals[..1], timeout.min(NEWS_EVERY)) && timeout > NEWS_EVERY {
                wait_for(&signals, timeout - NEWS_EVERY);
            }
        }
        let draining = self.look(|core| core.draining.take());
        if let Some(Draining { worker, .. }) = draining {
            worker.close();
        }
    }

    fn note_progress(&self) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.progressed.notify_all();
    }

    /// Returns how many rounds of the drain there were.
    pub(crate) fn rounds(&self) -> u64 {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there were more rounds than `before`, or for `most`.
    pub(crate) fn wait_for_progress(&self, before: u64, most: Duration) {
        let rounds = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let _ended = self.progressed.wait_timeout_while(rounds, most, |rounds| *rounds == before);
    }

    /// Returns whether nothing is drained any more because the mount ends.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_drain_over.load(Ordering::Acquire)
    }
}
