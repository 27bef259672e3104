//! Brings the backing store to what the tree is: bytes, names and attributes, in an order in which a
//! crash never shows a name without its bytes and never loses bytes that the log let go of.
//!
//! # Model
//! The tree keeps its difference to the store (`tree/lag.rs`). This engine looks for differences
//! that can be ended, gives steps to a worker, and records what it did. It acts only on what is
//! durable in the log.
//! ```text
//!   bytes        Copy --synced, compared--> DRAINED --durable--> the object gets its names
//!   names        Link, Unlink, MakeDirectory, RemoveDirectory --directories synced--> STORED
//!   directories  MOVING --durable--> MoveDirectory --directories synced--> STORED
//!   attributes   Settle, Make --> SETTLED
//!   objects      Drop --> DROPPED, when the inode is gone and has no name in the store; DropOld
//! ```
//! The bytes of a file are copied in passes of some MiB into its object, and the object gets its
//! names when it has all bytes of the newest version; so the log has space again while a file is
//! still written. An object with a name is never written to: its next version begins as a copy.
//!
//! Edges: a directory is at its place before what is in it; a name comes after bytes and attributes;
//! one thing happens at a place at a time; a directory is removed after what is in it. A directory
//! moves while nothing else happens to names, so that paths stay what they are; when its new place
//! is taken, it waits among the objects, so directories that change places need no other rule. While a
//! move that failed waits for its next try, names come and go that do not lie in the directory.
//!
//! A *set* is held by a record for each member, which keeps its names out of the store. When all
//! bytes and attributes of all members are in objects, `PUBLISHED` becomes durable, and only then
//! the first name appears. A crash before it leaves nothing visible, one after it leaves names that
//! are completed.
//!
//! A step that fails is tried again after a pause. A store that makes no progress is left alone,
//! and then tried with one step.
//!
//! # Invariants
//! I1. `DRAINED` is appended only after the worker synced and compared the object.
//! I2. No step begins whose reason is not durable.
//! I3. At most one step is under way at a place and for an inode.
//! I4. What may have been tried at a place, in this life or the last one, is done again or undone
//!     before the place leaves the lag.
//!
//! # Not here
//! Calls of files: workers do them. Rates inside a step.

mod decide;
mod due;
mod fresh;
mod scan;
mod step;

pub use step::{
    CopyPiece, DrainNotice, StepEnd, StoreAttributes, StoreStep, StoreTask, StrangerFate,
};

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use self::decide::StoreView;
pub use self::due::DueFile;
use self::fresh::FreshFiles;
use self::scan::LagScan;
use super::drain::{DrainEnd, DrainJob, DrainLimits, DrainOrder, DrainTarget};
use super::tree::{BodyId, FileContent, OwnerUsage, Tree, TreePlace};
use super::{GroupNumber, InodeId, LogError, LogState, TreeChange, WallNs};
use crate::base::{Bytes, Class, LocalNs, Nanos};
use crate::wire::Fault;

/// Names that are changed before their directories are synced, and that are decided at once.
const BATCH: usize = 256;
/// The store, in the order of copies.
const STORE: DrainTarget = DrainTarget(0);

/// How a store is drained.
#[derive(Clone, Debug)]
pub struct StoreDrainConfig {
    /// Files that are copied at a time.
    pub files: u32,
    /// Other steps at a time.
    pub names: u32,
    /// Bytes of one pass.
    pub pass: Bytes,
    /// How long what failed is left alone.
    pub pause: Nanos,
    /// How long a file is left alone after its first change that the store does not have, unless it
    /// has the bytes of a pass in the log, or somebody waits for the store.
    pub delay: Nanos,
    /// Differences of each kind that are looked at between two steps, at least one.
    pub look: usize,
    /// Weights of the classes in each owner's share; a class without one is not drained.
    pub weights: Vec<(Class, u32)>,
    /// The number of the last record of the log that a drain appended.
    pub recorded: u64,
}

/// What of a file goes to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainWish {
    /// Everything.
    All,
    /// What nobody sees: names come when the set is published that it is a member of. What the store
    /// already shows stays as it is for users: a new version takes its place.
    Unseen,
    /// Nothing: no new bytes and no first name.
    Nothing,
}

/// How a file is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainPolicy {
    /// The class.
    pub class: Class,
    /// Its place among the files of its class: the earliest is drained first.
    pub deadline: WallNs,
    /// When the store has to have it; none where nobody said so.
    pub due: Option<WallNs>,
    /// What of it.
    pub wish: DrainWish,
}

/// What a step is for.
#[derive(Clone, Debug)]
enum FlightKind {
    Sweep,
    Copy {
        job: DrainJob,
        version: u64,
        size: u64,
        settles: Option<GroupNumber>,
        /// The bodies that it reads.
        bodies: Vec<BodyId>,
    },
    Settle {
        group: GroupNumber,
    },
    Name {
        change: TreeChange,
        directories: Vec<InodeId>,
        leaves: Option<InodeId>,
    },
    Sync(Vec<Flight>),
    DropOld,
    Drop,
    /// Shows whether the store is at its path, for all that asked up to this number.
    Check(u64),
    /// There is no step, only a record.
    Record,
    /// The record that a directory moves.
    MoveRecord,
}

/// A step under way, or one whose record is not durable yet.
#[derive(Clone, Debug)]
struct Flight {
    kind: FlightKind,
    /// Whether it relies on paths of the store; until its record is durable, no directory moves.
    uses_path: bool,
    /// Nothing else happens there.
    place: Option<TreePlace>,
    /// Nothing else happens to it.
    inode: Option<InodeId>,
}

impl Flight {
    const fn new(kind: FlightKind) -> Self {
        Self { kind, uses_path: false, place: None, inode: None }
    }
}

/// A record that is not in the log yet.
#[derive(Clone, Debug)]
struct WaitingRecord {
    change: TreeChange,
    /// The step that it is the last record of.
    of: Option<Flight>,
}

/// Whether the objects were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweepState {
    NotBefore(LocalNs),
    UnderWay,
    Done,
}

/// Requests to see whether the store is at its path.
#[derive(Debug, Default)]
struct StoreChecks {
    requested: u64,
    done: u64,
    is_under_way: bool,
    not_before: LocalNs,
}

/// Brings a backing store to what the tree of a log is.
#[derive(Debug)]
pub struct StoreDrain {
    config: StoreDrainConfig,
    order: DrainOrder,
    sweep: SweepState,
    /// Whether the objects are looked at again when `former` is empty: names that no record knows of
    /// may have kept old ones.
    sweeps_again: bool,
    /// The newest durable version of files, and its size.
    versions: BTreeMap<InodeId, (u64, u64)>,
    /// Files that the store has to have at a time, since they were put into the order.
    due: BTreeMap<InodeId, DueFile>,
    /// Files to copy that are not in the order.
    unqueued: BTreeSet<InodeId>,
    queued: BTreeSet<InodeId>,
    /// Files that changed not long ago.
    fresh: FreshFiles,
    /// Files that nobody wants in the store as they are: owner, and bytes in the log.
    left_out: BTreeMap<InodeId, (u32, u64)>,
    left_out_usage: OwnerUsage,
    /// Files that somebody writes to.
    open: BTreeSet<InodeId>,
    /// Sets that do not have all their members yet.
    gathering: BTreeSet<u64>,
    /// Steps that are decided and not begun.
    ready: VecDeque<(StoreStep, Flight)>,
    flights: BTreeMap<u64, (StoreStep, Flight)>,
    steps: u64,
    busy_places: BTreeSet<TreePlace>,
    busy_inodes: BTreeSet<InodeId>,
    /// Steps that rely on paths, from the decision until their record is durable.
    naming: usize,
    /// The directory that moves.
    moving: Option<InodeId>,
    /// Where a directory is that waits until that is none.
    wanted_move: Option<TreePlace>,
    /// Names that were changed and whose directories are not synced.
    unsynced: Vec<Flight>,
    is_syncing: bool,
    records: VecDeque<WaitingRecord>,
    recorded: u64,
    /// Steps whose last record has this number.
    undurable: VecDeque<(u64, Flight)>,
    retry_places: BTreeMap<TreePlace, LocalNs>,
    retry_inodes: BTreeMap<InodeId, LocalNs>,
    /// Places where something may have been put in an earlier life that no record knows of; and
    /// whether a step of this life may have changed that.
    former: BTreeMap<TreePlace, bool>,
    /// Places where a step failed, and what may have a name there.
    unsure: BTreeMap<TreePlace, BTreeSet<InodeId>>,
    /// Files that may have old objects.
    old: BTreeSet<InodeId>,
    /// Inodes that may have objects that no record knows of.
    unrecorded: BTreeSet<InodeId>,
    /// Until when the store is left alone, because it made no progress.
    parked: Option<LocalNs>,
    checks: StoreChecks,
    notices: VecDeque<DrainNotice>,
    /// Things that happened since the pass over all differences began.
    stirs: usize,
    /// The pass; none when it went through all of them.
    scan: Option<LagScan>,
}

impl StoreDrain {
    /// Creates the engine for the log whose state after opening is `tree`.
    pub fn new(config: StoreDrainConfig, tree: &Tree) -> Self {
        let mut order = DrainOrder::default();
        let limits = DrainLimits { files: config.files, pause: config.pause };
        order.add_target(STORE, limits, &config.weights);
        let mut drain = Self {
            order,
            sweep: SweepState::NotBefore(LocalNs(0)),
            sweeps_again: false,
            versions: BTreeMap::new(),
            due: BTreeMap::new(),
            unqueued: BTreeSet::new(),
            queued: BTreeSet::new(),
            fresh: FreshFiles::default(),
            left_out: BTreeMap::new(),
            left_out_usage: OwnerUsage::default(),
            open: BTreeSet::new(),
            gathering: BTreeSet::new(),
            ready: VecDeque::new(),
            flights: BTreeMap::new(),
            steps: 0,
            busy_places: BTreeSet::new(),
            busy_inodes: BTreeSet::new(),
            naming: 0,
            moving: None,
            wanted_move: None,
            unsynced: Vec::new(),
            is_syncing: false,
            records: VecDeque::new(),
            recorded: config.recorded,
            undurable: VecDeque::new(),
            retry_places: BTreeMap::new(),
            retry_inodes: BTreeMap::new(),
            former: BTreeMap::new(),
            unsure: BTreeMap::new(),
            old: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            parked: None,
            checks: StoreChecks::default(),
            notices: VecDeque::new(),
            stirs: 1,
            scan: None,
            config,
        };
        for (place, name) in &tree.lag.names {
            drain.old.extend(name.stored.into_iter().chain(tree.wanted(place)));
            // Nothing is put where a directory is that leaves.
            if !name.stored.is_some_and(|stored| tree.is_store_directory(stored)) {
                drain.former.insert(place.clone(), false);
            }
        }
        drain.sweeps_again = !drain.former.is_empty();
        for (inode, _) in tree.inodes() {
            if let Some(content) = tree.content(inode)
                && content.drained() < content.version()
            {
                drain.versions.insert(inode, (content.version(), content.size()));
                drain.unqueued.insert(inode);
            }
        }
        drain
    }

    /// Takes [`super::LogEvent::Drainable`].
    pub fn drainable(&mut self, now: LocalNs, tree: &Tree, of: (InodeId, u64, u64)) {
        let (inode, version, size) = of;
        self.versions.insert(inode, (version, size));
        let logged = tree.content(inode).map_or(0, FileContent::logged);
        let is_left_alone = self.config.delay > Nanos::ZERO && logged < self.config.pass.0;
        if is_left_alone && !self.unqueued.contains(&inode) {
            self.fresh.add(inode, now + self.config.delay);
        } else {
            self.fresh.remove(inode);
            self.unqueued.insert(inode);
        }
        self.stir();
    }

    /// Sets how long files are left alone: without a delay, those that are now come at once.
    pub fn set_delay(&mut self, delay: Nanos) {
        self.config.delay = delay;
        if delay == Nanos::ZERO {
            let fresh = self.fresh.take_all();
            self.end_delay(fresh);
        }
    }

    fn end_delay(&mut self, fresh: Vec<InodeId>) {
        self.stirs += fresh.len();
        self.unqueued.extend(fresh);
    }

    /// Notes that somebody waits until the store has a file: it is not left alone, nor because
    /// somebody writes to it.
    pub fn awaited(&mut self, inode: InodeId) {
        self.closed(inode);
        self.policy_changed(inode);
    }

    /// Takes the news that the log has something more.
    pub fn stir(&mut self) {
        self.stirs += 1;
    }

    /// Takes [`super::LogEvent::Durable`] of the client that appends the records of this engine.
    pub fn durable(&mut self, number: u64) {
        while self.undurable.front().is_some_and(|(last, _)| *last <= number) {
            if let Some((_, flight)) = self.undurable.pop_front() {
                // That a directory is to move says nothing about what the store has there.
                if let Some(place) = &flight.place
                    && !matches!(flight.kind, FlightKind::MoveRecord)
                {
                    self.unsure.remove(place);
                    self.former.remove(place);
                }
                self.let_go(&flight);
            }
        }
        if self.sweeps_again && self.former.is_empty() {
            self.sweeps_again = false;
            self.sweep = SweepState::NotBefore(LocalNs(0));
        }
        self.stir();
    }

    /// Notes that somebody writes to a file: as long as it is open for that, no new version of it
    /// becomes visible.
    pub fn opened(&mut self, inode: InodeId) {
        self.open.insert(inode);
    }

    /// Notes that nobody writes to a file any more.
    pub fn closed(&mut self, inode: InodeId) {
        self.open.remove(&inode);
        self.stir();
    }

    /// Takes the news that class or deadline of a file changed; they hold from its next pass on. If the
    /// file is left alone, that ends.
    pub fn policy_changed(&mut self, inode: InodeId) {
        let is_queued = self.queued.remove(&inode);
        if is_queued {
            self.order.forget(inode);
        }
        if is_queued | self.fresh.remove(inode) {
            self.unqueued.insert(inode);
        }
        self.stir();
    }

    /// Takes the news that class or deadline of many files changed.
    pub fn policies_changed(&mut self) {
        self.order.forget_waiting();
        self.unqueued.append(&mut self.queued);
        self.stir();
    }

    /// Notes that a set gets its members: until [`StoreDrain::gathered`] it is not published.
    pub fn gather(&mut self, set: u64) {
        self.gathering.insert(set);
    }

    /// Notes that a set has all its members, or was given up.
    pub fn gathered(&mut self, set: u64) {
        self.gathering.remove(&set);
        self.stir();
    }

    /// Requests a step that shows whether the store is at its path: records tell only what the store
    /// had. Returns the number that [`StoreDrain::checked`] reaches when the store was there.
    pub fn request_check(&mut self) -> u64 {
        self.checks.requested += 1;
        self.checks.requested
    }

    /// Returns the number of the last request for which the store was at its path.
    pub const fn checked(&self) -> u64 {
        self.checks.done
    }

    /// Returns how much of the log files take that nobody wants in the store, by owner: only their
    /// owners free that.
    pub const fn left_out(&self) -> &OwnerUsage {
        &self.left_out_usage
    }

    /// Takes what an operator should know.
    pub fn take_notice(&mut self) -> Option<DrainNotice> {
        self.notices.pop_front()
    }

    /// Returns whether the store makes no progress.
    pub const fn is_parked(&self) -> bool {
        self.parked.is_some()
    }

    /// Returns when to call [`StoreDrain::next_task`] again: at once while a pass over the differences
    /// is not over, when a delay ends, or when something that failed is tried again.
    pub fn deadline(&self) -> Option<LocalNs> {
        let is_free = self.ready.is_empty() && self.records.is_empty() && self.parked.is_none();
        if is_free && self.scan.is_some() && self.sweep == SweepState::Done {
            return Some(LocalNs(0));
        }
        let fresh = self.fresh.next_due().filter(|_| self.parked.is_none());
        self.retry_at().into_iter().chain(fresh).min()
    }

    /// Returns when something that failed is tried again.
    pub fn retry_at(&self) -> Option<LocalNs> {
        if self.parked.is_some() {
            return self.parked.filter(|_| self.flights.is_empty());
        }
        let retries = self.retry_places.values().chain(self.retry_inodes.values()).copied();
        let sweep = match self.sweep {
            SweepState::NotBefore(at) if self.is_quiet() => Some(at),
            _ => None,
        };
        let waits = self.checks.requested > self.checks.done && !self.checks.is_under_way;
        let check = waits.then_some(self.checks.not_before);
        retries.chain(sweep).chain(check).min()
    }

    /// Returns whether the store has all of `inode`: bytes, attributes and names, and a durable record
    /// says so.
    /// Of a directory, what is in it is not looked at, but its names are.
    pub fn has(&self, tree: &Tree, inode: InodeId) -> bool {
        let is_whole = |inode| {
            tree.content(inode).is_none_or(|content| content.drained() == content.version())
        };
        tree.node_lag(inode).is_none()
            && !self.busy_inodes.contains(&inode)
            && is_whole(inode)
            && tree.has_all_names(inode)
            && tree.places(inode).all(|place| {
                tree.name_lag(place).is_none()
                    && !self.busy_places.contains(place)
                    && self.is_settled(tree, place.directory)
            })
    }

    /// Returns whether nothing is left to do but what is left out, waits for a later try, or waits
    /// until a file is closed.
    pub fn is_idle(&self) -> bool {
        self.stirs == 0
            && self.scan.is_none()
            && self.sweep == SweepState::Done
            && self.flights.is_empty()
            && self.ready.is_empty()
            && self.queued.is_empty()
            && self.fresh.is_empty()
            && self.records.is_empty()
            && self.undurable.is_empty()
            && self.unsynced.is_empty()
    }

    /// Returns whether no step is under way, and none waits for its record.
    fn is_quiet(&self) -> bool {
        self.flights.is_empty() && self.records.is_empty()
    }

    /// Returns whether nothing can happen before records are durable.
    pub fn waits_for_records(&self) -> bool {
        self.flights.is_empty() && !self.undurable.is_empty()
    }

    /// Returns how many steps are under way.
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Returns whether nobody has seen `inode` in the store, and nobody sees it before a record that
    /// is appended now.
    pub fn can_hold(&self, tree: &Tree, inode: InodeId) -> bool {
        tree.stored_places(inode).next().is_none()
            && !self.busy_inodes.contains(&inode)
            && !self.may_be_somewhere(inode)
    }

    /// Returns whether `inode` may have a name that no record knows of.
    fn may_be_somewhere(&self, inode: InodeId) -> bool {
        !self.former.is_empty() || self.was_tried(inode)
    }

    /// Returns whether a name of `inode` may come or go that no record knows of.
    fn was_tried(&self, inode: InodeId) -> bool {
        self.former.values().any(|is_acted_on| *is_acted_on)
            || self.unsure.values().any(|tried| tried.contains(&inode))
    }

    /// Returns the next record to append, under the number that it has to have. Its outcome is given
    /// to [`StoreDrain::record_taken`] before the next one is asked for.
    pub fn next_record(&self) -> Option<(u64, TreeChange)> {
        self.records.front().map(|record| (self.recorded + 1, record.change.clone()))
    }

    /// Takes whether the log took the record of [`StoreDrain::next_record`].
    pub fn record_taken(&mut self, outcome: Result<(), LogError>) {
        // The log takes it later.
        if let Err(LogError::Full | LogError::Busy | LogError::NotOpen | LogError::Stopped(_)) =
            outcome
        {
            return;
        }
        let Some(WaitingRecord { change, of }) = self.records.pop_front() else { return };
        self.stir();
        if outcome.is_err() {
            // The tree changed meanwhile: what was done is looked at again.
            of.iter().for_each(|flight| self.let_go(flight));
            return;
        }
        self.recorded += 1;
        self.undurable.extend(of.map(|flight| (self.recorded, flight)));
        match change {
            TreeChange::Drained { inode, .. } | TreeChange::Settled { inode, .. } => {
                self.unrecorded.remove(&inode);
            }
            TreeChange::Published { set } => self.notices.push_back(DrainNotice::Published(set)),
            _ => {}
        }
    }

    fn hold(&mut self, flight: &Flight) {
        self.busy_places.extend(flight.place.clone());
        self.busy_inodes.extend(flight.inode);
        self.naming += usize::from(flight.uses_path);
    }

    fn let_go(&mut self, flight: &Flight) {
        if let Some(place) = &flight.place {
            self.busy_places.remove(place);
        }
        if let Some(inode) = flight.inode {
            self.busy_inodes.remove(&inode);
            self.unqueued.insert(inode);
            self.moving.take_if(|moving| *moving == inode);
        }
        self.naming -= usize::from(flight.uses_path);
    }

    fn record(&mut self, change: TreeChange, of: Option<Flight>) {
        self.records.push_back(WaitingRecord { change, of });
    }

    /// Gives the next step that can be begun; `policy` gives the class of an inode. Cost: at most
    /// [`StoreDrainConfig::look`] differences of each kind. A pass over all of them begins once for
    /// as many things that happened as a part of them.
    pub fn next_task(
        &mut self,
        now: LocalNs,
        state: &LogState,
        durable: GroupNumber,
        policy: &dyn Fn(&Tree, InodeId) -> DrainPolicy,
    ) -> Option<StoreTask> {
        if self.parked.is_some_and(|until| until > now || !self.flights.is_empty()) {
            return None;
        }
        let view = StoreView { now, state, tree: state.tree(), durable };
        let (step, flight) = match self.sweep {
            // What has no record yet must not be taken for a rest.
            SweepState::NotBefore(at) if at <= now && self.is_quiet() => {
                self.sweep = SweepState::UnderWay;
                (decide::sweep(&view), Flight::new(FlightKind::Sweep))
            }
            SweepState::Done => {
                self.wake_retries(now);
                let due = self.fresh.take_due(now);
                self.end_delay(due);
                let is_due = self.flights.is_empty() || self.stirs >= view.tree.store_lag() / 16;
                if self.scan.is_none() && self.stirs > 0 && is_due {
                    self.stirs = 0;
                    self.scan = Some(LagScan::new());
                }
                if self.ready.is_empty()
                    && let Some(scan) = self.scan.take()
                {
                    self.scan = self.look(&view, policy, scan);
                }
                let step = self.next_check(now).or_else(|| self.next_ready());
                let step = step.or_else(|| self.next_copy(&view));
                step.or_else(|| self.next_sync(&view))?
            }
            _ => return None,
        };
        if let StoreStep::Copy { inode, .. } | StoreStep::Make { inode, .. } = step {
            self.unrecorded.insert(inode);
        }
        self.steps += 1;
        let class = flight.inode.map_or(Class::BestEffort, |inode| policy(view.tree, inode).class);
        self.flights.insert(self.steps, (step.clone(), flight));
        Some(StoreTask { number: self.steps, class, step })
    }

    fn wake_retries(&mut self, now: LocalNs) {
        let waiting = self.retry_places.len() + self.retry_inodes.len();
        self.retry_places.retain(|_, at| *at > now);
        self.retry_inodes.retain(|_, at| *at > now);
        self.stirs += waiting - self.retry_places.len() - self.retry_inodes.len();
    }

    fn next_check(&mut self, now: LocalNs) -> Option<(StoreStep, Flight)> {
        let checks = &mut self.checks;
        let waits = checks.requested > checks.done && !checks.is_under_way;
        if !waits || checks.not_before > now {
            return None;
        }
        checks.is_under_way = true;
        let step = StoreStep::SyncDirectories { at: Vec::new() };
        Some((step, Flight::new(FlightKind::Check(checks.requested))))
    }

    fn next_ready(&mut self) -> Option<(StoreStep, Flight)> {
        let is_copy =
            |(_, flight): &&(StoreStep, Flight)| matches!(flight.kind, FlightKind::Copy { .. });
        let copies = self.flights.values().filter(is_copy).count();
        let is_free = self.flights.len() - copies < self.config.names as usize;
        if is_free { self.ready.pop_front() } else { None }
    }

    /// Takes the end of a step; returns whether it failed. What is not known is left alone: it
    /// belongs to a worker that was given up. A copy that found other bytes where the log does not
    /// keep any for it now is no failure, and is decided again at once.
    pub fn end(&mut self, now: LocalNs, state: &LogState, number: u64, end: StepEnd) -> bool {
        let Some((step, flight)) = self.flights.remove(&number) else { return false };
        self.stir();
        if end == StepEnd::Failed(Fault::Malformed)
            && let FlightKind::Copy { bodies, .. } = &flight.kind
            && bodies.iter().any(|body| state.body(*body).is_none())
        {
            self.failed(now, now, flight);
            return false;
        }
        match end {
            StepEnd::Done => {}
            StepEnd::DoneWithStranger(fate) => {
                self.notices.push_back(DrainNotice::Stranger { step, fate });
            }
            StepEnd::Absent => self.notices.push_back(DrainNotice::Absent),
            StepEnd::Failed(fault) => self.notices.push_back(DrainNotice::Failed { step, fault }),
            StepEnd::Stuck => {
                if self.parked.is_none_or(|until| until <= now) {
                    self.notices.push_back(DrainNotice::Parked);
                }
                self.parked = Some(now + self.config.pause);
            }
        }
        if let StepEnd::Done | StepEnd::DoneWithStranger(_) = end {
            self.parked = None;
            self.done(now, flight);
            false
        } else {
            self.failed(now, now + self.config.pause, flight);
            true
        }
    }

    fn done(&mut self, now: LocalNs, flight: Flight) {
        match flight.kind.clone() {
            FlightKind::Sweep => self.sweep = SweepState::Done,
            FlightKind::Copy { job, version, size, settles, .. } => {
                let inode = job.inode;
                self.order.end(now, inode, DrainEnd::Durable);
                let drained = TreeChange::Drained { inode, version, size };
                let Some(group) = settles else { return self.record(drained, Some(flight)) };
                self.record(drained, None);
                self.record(TreeChange::Settled { inode, group }, Some(flight));
            }
            FlightKind::Settle { group } => {
                if let Some(inode) = flight.inode {
                    self.record(TreeChange::Settled { inode, group }, Some(flight));
                }
            }
            FlightKind::Name { .. } => self.unsynced.push(flight),
            FlightKind::Sync(synced) => {
                self.is_syncing = false;
                for flight in synced {
                    if let FlightKind::Name { change, .. } = flight.kind.clone() {
                        self.record(change, Some(flight));
                    }
                }
            }
            FlightKind::Drop => {
                if let Some(inode) = flight.inode {
                    self.unrecorded.remove(&inode);
                    self.record(TreeChange::Dropped { inode }, Some(flight));
                }
            }
            FlightKind::Check(number) => {
                (self.checks.done, self.checks.is_under_way) = (number, false);
            }
            FlightKind::DropOld | FlightKind::Record | FlightKind::MoveRecord => {
                self.let_go(&flight);
            }
        }
    }

    /// Undoes a step that was not done; it is tried again at `again`.
    fn failed(&mut self, now: LocalNs, again: LocalNs, flight: Flight) {
        let undone = match flight.kind {
            FlightKind::Sweep => {
                self.sweep = SweepState::NotBefore(again);
                return;
            }
            FlightKind::Check(_) => {
                (self.checks.not_before, self.checks.is_under_way) = (again, false);
                return;
            }
            FlightKind::Sync(flights) => {
                self.is_syncing = false;
                flights
            }
            FlightKind::Copy { job, .. } => {
                self.order.end(now, job.inode, DrainEnd::Superseded);
                alloc::vec![flight]
            }
            _ => alloc::vec![flight],
        };
        for flight in undone {
            self.let_go(&flight);
            match (&flight.place, flight.inode, &flight.kind) {
                (Some(place), inode, FlightKind::Name { leaves, .. }) => {
                    let tried = self.unsure.entry(place.clone()).or_default();
                    tried.extend(inode.iter().chain(leaves));
                }
                (_, Some(inode), FlightKind::DropOld) => drop(self.old.insert(inode)),
                _ => {}
            }
            self.retry_places.extend(flight.place.map(|place| (place, again)));
            self.retry_inodes.extend(flight.inode.map(|inode| (inode, again)));
        }
    }
}
