//! The log as requests see it: changes in, their places in memory and on disk, and when they are safe.
//!
//! # Model
//! A thread with a request holds the lock around this, makes the change, and lets go. A change is
//! visible at once. An answer that has to wait until changes are durable waits as a [`Waiter`]; a
//! change that the log cannot take yet waits in the queue of its source ([`ParkedChanges`]).
//!
//! # Invariants
//! I1. No waiter is answered well before the log says that its changes are durable.
//! I2. Changes of one source are made in the order in which they came.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use clearway_proto::base::{Class, LocalNs};
use clearway_proto::staging::{
    BodyId, ByteSource, ClientId, FileContent, InodeId, LogCommand, LogError, LogEvent, LogId,
    LogShares, LogSpace, LogState, StagingLog, Tree, TreeChange, TreeError, UserWrite, WallNs,
};
use clearway_proto::stats::Histogram;
use clearway_proto::wire::{Driver, RegionId, Span, Wire};
use clearway_runtime::files::FileWire;
use clearway_runtime::waiting::{Rest, Wake};
use rustix::io::Errno;

use super::DISK;
use super::draining::{DRAIN, Draining};
use super::life::Lives;
use super::local_wire::LocalWire;
use super::parked::{ChangeSource, ParkedChange, ParkedChanges, Shortage};
use super::sentence_limit::SentenceLimit;
use super::store_space::StoreSpace;
use crate::arena::{Arena, Loan};
use crate::handles::Handles;

/// The one client of a log that is mounted on its own machine.
pub(super) const CLIENT: ClientId = ClientId(1);

/// Sends the answer of a request.
pub(crate) type Answer<T> = Box<dyn FnOnce(Result<T, Errno>) + Send>;

/// Why a change is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It cannot be.
    Errno(Errno),
    /// It cannot be now: try again when something is durable.
    Lacks(Shortage),
}

impl From<Errno> for Held {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<TreeError> for Held {
    fn from(why: TreeError) -> Self {
        Self::Errno(errno_of(why))
    }
}

/// Returns the error of the system for a refusal of the tree.
pub(crate) const fn errno_of(why: TreeError) -> Errno {
    match why {
        TreeError::NotFound => Errno::NOENT,
        TreeError::Exists => Errno::EXIST,
        TreeError::NotDirectory => Errno::NOTDIR,
        TreeError::IsDirectory => Errno::ISDIR,
        TreeError::NotEmpty => Errno::NOTEMPTY,
        TreeError::NameTooLong => Errno::NAMETOOLONG,
        TreeError::Invalid => Errno::INVAL,
        TreeError::TooLarge => Errno::FBIG,
        TreeError::TooManyLinks => Errno::MLINK,
        TreeError::Full => Errno::NOSPC,
        TreeError::NoAttribute => Errno::NODATA,
        TreeError::Superseded => Errno::AGAIN,
        _ => Errno::IO,
    }
}

/// What becomes of files without a name that were open when the log was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanPolicy {
    Forget,
    /// Keep them for now: clients on the network may have them open still.
    Keep,
}

/// A write whose bytes the log reads.
#[derive(Debug)]
struct LentWrite {
    number: u64,
    offset: u64,
    length: u64,
}

/// An answer that waits until all changes up to a number are durable.
struct Waiter {
    answer: Answer<()>,
    since: LocalNs,
}

/// The numbers in the log of the records of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallStamp {
    client: ClientId,
    /// The number of the next record that is not the last of the call.
    next: u64,
    /// The number of the last record.
    last: u64,
    is_last: bool,
}

impl CallStamp {
    /// Creates the stamp of a call whose records have numbers from `next` to `last`; a call has one
    /// record unless [`Core::continue_call`] says otherwise.
    pub(crate) const fn new(client: ClientId, next: u64, last: u64) -> Self {
        Self { client, next, last, is_last: true }
    }
}

/// What was counted since the mount began.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoreCounts {
    /// Changes of the tree, writes among them.
    pub(crate) changes: u64,
    pub(crate) written_bytes: u64,
    /// Changes that waited for memory or for the log.
    pub(crate) stalls: u64,
    /// How long answers waited until changes were durable, in ns; infinite those that never were.
    pub(crate) syncs: Histogram,
}

/// Everything that the lock protects.
pub(crate) struct Core {
    pub(super) driver: Driver<StagingLog>,
    pub(super) wire: FileWire<LocalWire>,
    pub(super) arena: Arc<Arena>,
    pub(super) region: RegionId,
    /// The number of the last change, and of the last durable one.
    last: u64,
    durable: u64,
    /// Changes that are not durable, in order: their number, and client and number in the log.
    order: VecDeque<(u64, ClientId, u64)>,
    /// The call whose changes are made.
    call: Option<CallStamp>,
    /// Why the change that was tried last was refused.
    refused: Option<LogError>,
    events: Vec<LogEvent>,
    lent: VecDeque<LentWrite>,
    /// Bytes of writes that are not durable, and how many there may be.
    unlogged: u64,
    unlogged_max: u64,
    /// Bodies in memory, for readers.
    bodies: BTreeMap<BodyId, (u64, Arc<Loan>)>,
    body_bytes: u64,
    waiters: BTreeMap<(u64, u64), Waiter>,
    waiters_ever: u64,
    parked: ParkedChanges,
    /// How users share the log; none where one user has all of it.
    pub(crate) shares: Option<LogShares>,
    counts: CoreCounts,
    /// Answers that are due, to be sent without the lock.
    due: Vec<Box<dyn FnOnce() + Send>>,
    /// Inodes without a name that nobody has any more, and that the log still has.
    to_forget: Vec<InodeId>,
    pub(crate) lives: Lives,
    store_space: StoreSpace,
    pub(crate) handles: Handles,
    pub(crate) classes: crate::classes::ClassRules,
    stopped: Option<LogError>,
    /// What an operator should read.
    sentences: Vec<String>,
    /// Bounds those that programs cause.
    sentence_limit: SentenceLimit,
    /// What [`LogCommand::Finish`] asked for is done.
    pub(super) is_finished: bool,
    /// A thread does short operations of the disk until what it awaits is durable.
    is_led: bool,
    /// The drain; none before it begins and after it ended.
    pub(super) draining: Option<Draining>,
    /// Whether its thread has something to look at.
    pub(super) has_drain_news: bool,
    /// Sets of files that were published.
    pub(crate) sets_ever: u64,
    /// Files that a command makes a set of.
    pub(crate) claimed: BTreeSet<InodeId>,
}

impl Core {
    /// Begins with a log that is open, and may keep `memory` bytes of writes.
    pub(super) fn new(
        driver: Driver<StagingLog>,
        wire: FileWire<LocalWire>,
        arena: Arc<Arena>,
        region: RegionId,
        memory: u64,
        orphans: OrphanPolicy,
    ) -> Self {
        let mut core = Self {
            driver,
            wire,
            arena,
            region,
            last: 0,
            durable: 0,
            order: VecDeque::new(),
            call: None,
            refused: None,
            events: Vec::new(),
            lent: VecDeque::new(),
            unlogged: 0,
            unlogged_max: memory / 2,
            bodies: BTreeMap::new(),
            body_bytes: 0,
            waiters: BTreeMap::new(),
            waiters_ever: 0,
            parked: ParkedChanges::default(),
            shares: None,
            counts: CoreCounts::default(),
            due: Vec::new(),
            to_forget: Vec::new(),
            lives: Lives::default(),
            store_space: StoreSpace::default(),
            handles: Handles::default(),
            classes: crate::classes::ClassRules::default(),
            stopped: None,
            sentences: Vec::new(),
            sentence_limit: SentenceLimit::default(),
            is_finished: false,
            is_led: false,
            draining: None,
            has_drain_news: false,
            sets_ever: 0,
            claimed: BTreeSet::new(),
        };
        core.last = core.state().highest(CLIENT);
        core.durable = core.last;
        // Files that a process had open when the last mount ended.
        if orphans == OrphanPolicy::Forget {
            core.to_forget = core.tree().orphans().collect();
        }
        core
    }

    /// Returns the state of the log, with everything that is applied.
    pub(crate) fn state(&mut self) -> &LogState {
        self.driver.engine_mut().state()
    }

    /// Returns the state of the log, and what is known of the space of files in the store.
    pub(super) fn state_and_space(&mut self) -> (&LogState, &mut StoreSpace) {
        (self.driver.engine_mut().state(), &mut self.store_space)
    }

    /// Returns the name of the log.
    pub(crate) fn log_id(&mut self) -> LogId {
        self.driver.engine_mut().id()
    }

    /// Returns the tree.
    pub(crate) fn tree(&mut self) -> &Tree {
        self.driver.engine_mut().state().tree()
    }

    /// Returns why the log takes no more changes.
    pub(crate) const fn stopped(&self) -> Option<LogError> {
        self.stopped
    }

    /// Returns the bytes that are not durable, and those in memory that are.
    pub(crate) const fn memory_bytes(&self) -> (u64, u64) {
        (self.unlogged, self.body_bytes.saturating_sub(self.unlogged))
    }

    /// Takes the sentences that are not reported.
    pub(super) fn take_sentences(&mut self) -> Vec<String> {
        std::mem::take(&mut self.sentences)
    }

    /// Keeps a sentence for the log of the mount.
    pub(crate) fn say(&mut self, sentence: String) {
        self.sentences.push(sentence);
    }

    /// Keeps a sentence about what a program did, unless there were many lately.
    pub(crate) fn say_of_program(&mut self, sentence: String) {
        let now = self.now_local();
        self.sentences.extend(self.sentence_limit.take(now, sentence));
    }

    /// Makes a change that concerns `inodes`, in the class of the first.
    pub(crate) fn append(&mut self, change: TreeChange, inodes: &[InodeId]) -> Result<(), Held> {
        let class = inodes.first().map_or(Class::BestEffort, |inode| self.class_of(*inode));
        let number = self.offer(change, class, Span::EMPTY)?;
        inodes.iter().for_each(|inode| self.lives.changed(*inode, number));
        Ok(())
    }

    /// Makes a change; returns its number.
    fn offer(&mut self, change: TreeChange, class: Class, body: Span) -> Result<u64, Held> {
        let number = self.last + 1;
        let (client, stamped) = match self.call {
            None => (CLIENT, number),
            Some(CallStamp { client, last, is_last: true, .. }) => (client, last),
            Some(CallStamp { client, next, .. }) => (client, next),
        };
        match self.offer_as(client, stamped, change, class, body) {
            Ok(()) => {
                self.last = number;
                self.order.push_back((number, client, stamped));
                match &mut self.call {
                    // What follows from the call is nobody's.
                    Some(CallStamp { is_last: true, .. }) => self.call = None,
                    Some(call) => call.next += 1,
                    None => {}
                }
                self.counts.changes += 1;
                Ok(number)
            }
            Err(LogError::Busy) => Err(Held::Lacks(Shortage::Common)),
            Err(LogError::Full) if self.may_get_space() => Err(Held::Lacks(Shortage::Common)),
            Err(LogError::Full) => Err(Held::Errno(Errno::NOSPC)),
            Err(LogError::Tree(why)) => Err(why.into()),
            Err(_) => Err(Held::Errno(Errno::IO)),
        }
    }

    /// Begins a call of a client: the records that follow are its.
    pub(crate) const fn begin_call(&mut self, call: CallStamp) {
        self.call = Some(call);
    }

    /// Says that the next record is not the last of the call.
    pub(crate) const fn continue_call(&mut self) {
        if let Some(call) = &mut self.call {
            call.is_last = false;
        }
    }

    /// Says that the next record is the last of the call.
    pub(crate) const fn finish_call(&mut self) {
        if let Some(call) = &mut self.call {
            call.is_last = true;
        }
    }

    /// Ends a call.
    pub(crate) const fn end_call(&mut self) {
        self.call = None;
    }

    /// Makes a change of a client under a number.
    pub(super) fn offer_as(
        &mut self,
        client: ClientId,
        number: u64,
        change: TreeChange,
        class: Class,
        body: Span,
    ) -> Result<(), LogError> {
        let now = self.wire.now();
        self.driver.command(now, LogCommand::Append { client, number, class, change, body });
        if self.state().highest(client) == number {
            return Ok(());
        }
        // The reason is among the events, which leave with what the log wants done.
        self.refused = None;
        self.pump();
        Err(self.refused.take().unwrap_or(LogError::NotOpen))
    }

    /// Returns the time of the log's clock.
    pub(super) fn now_local(&self) -> LocalNs {
        self.wire.now()
    }

    /// Returns whether all changes are durable.
    pub(super) const fn is_all_durable(&self) -> bool {
        self.last == self.durable
    }

    /// Writes the bytes of `loan` at `offset` of a file.
    pub(crate) fn write(
        &mut self,
        inode: InodeId,
        offset: u64,
        loan: &Arc<Loan>,
        digest: u64,
    ) -> Result<(), Held> {
        let length = loan.bytes().len() as u64;
        if self.stopped.is_some() {
            return Err(Held::Errno(Errno::IO));
        }
        if self.unlogged > 0 && self.unlogged + length > self.unlogged_max {
            return Err(Held::Lacks(Shortage::Common));
        }
        self.check_share(inode, length)?;
        let class = self.class_of(inode);
        let place = self.arena.lend(Arc::clone(loan));
        let body = Span { region: self.region, offset: place, length: length as u32 };
        let change = TreeChange::Write { inode, offset, length: length as u32, digest };
        let number = match self.offer(change, class, body) {
            Ok(number) => number,
            Err(held) => {
                self.arena.take_back(place);
                return Err(held);
            }
        };
        self.lives.changed(inode, number);
        self.lent.push_back(LentWrite { number, offset: place, length });
        self.unlogged += length;
        self.counts.written_bytes += length;
        if let Some(body) = self.body_at(inode, offset) {
            self.bodies.insert(body, (number, Arc::clone(loan)));
            self.body_bytes += length;
        }
        Ok(())
    }

    /// Checks that the owner of a file may take `length` bytes more of the log.
    fn check_share(&mut self, inode: InodeId, length: u64) -> Result<(), Held> {
        let Some(shares) = self.shares else { return Ok(()) };
        let Some(uid) = self.tree().inode(inode).map(|inode| inode.uid) else { return Ok(()) };
        let (space, write) = (self.space(), UserWrite { uid, length, unplaced: self.unlogged });
        if shares.allow(&space, self.tree().log_usage(), write) {
            return Ok(());
        }
        let taken = self.tree().log_usage().amount_by(uid);
        let left_out = self.query_drain(|drain, _| drain.left_out().amount_by(uid));
        let waits = self.may_get_space() && left_out.is_some_and(|left_out| left_out < taken);
        Err(if waits { Held::Lacks(Shortage::Share) } else { Held::Errno(Errno::DQUOT) })
    }

    /// Checks that a user may have one more inode, or name of one.
    pub(crate) fn check_inode_share(&mut self, uid: u32) -> Result<(), Held> {
        let is_shared = self.shares.is_some();
        let tree = self.tree();
        let inodes_max = u64::from(tree.inodes_max());
        if !is_shared || LogShares::allow_inode(inodes_max, tree.inode_usage(), uid) {
            return Ok(());
        }
        // No drain frees an inode: waiting would not help.
        Err(Held::Errno(Errno::DQUOT))
    }

    /// Returns the body that holds the byte at `offset`.
    fn body_at(&mut self, inode: InodeId, offset: u64) -> Option<BodyId> {
        match self.tree().content(inode)?.sources(offset, 1).first() {
            Some((_, ByteSource::Log { body, .. })) => Some(*body),
            _ => None,
        }
    }

    /// Returns the bytes of a body, if they are in memory.
    pub(crate) fn body_in_memory(&self, body: BodyId) -> Option<&Arc<Loan>> {
        self.bodies.get(&body).map(|(_, loan)| loan)
    }

    /// Sends `answer` when the last change of `inode` is durable.
    pub(crate) fn wait_for(&mut self, inode: InodeId, answer: Answer<()>) {
        self.wait(self.lives.last_change(inode), answer);
    }

    /// Sends `answer` when all changes are durable.
    pub(crate) fn wait_for_all(&mut self, answer: Answer<()>) {
        self.wait(self.last, answer);
    }

    fn wait(&mut self, number: u64, answer: Answer<()>) {
        if number <= self.durable {
            self.due.push(Box::new(move || answer(Ok(()))));
        } else if self.stopped.is_some() {
            self.counts.syncs.record_infinite(1);
            self.due.push(Box::new(move || answer(Err(Errno::IO))));
        } else {
            self.command(LogCommand::Commit);
            self.waiters_ever += 1;
            let since = self.wire.now();
            self.waiters.insert((number, self.waiters_ever), Waiter { answer, since });
        }
    }

    /// Returns whether the last change of `inode` is durable.
    pub(crate) fn is_logged(&self, inode: InodeId) -> bool {
        self.lives.last_change(inode) <= self.durable
    }

    /// Keeps a change that the log cannot take yet. `shortage` is what it lacked, if it was tried.
    pub(super) fn park(
        &mut self,
        source: ChangeSource,
        shortage: Option<Shortage>,
        change: ParkedChange,
    ) {
        self.counts.stalls += 1;
        self.has_drain_news |= shortage.is_some();
        self.parked.push(source, shortage, change);
    }

    /// Returns whether a new change of `source` has to wait for others.
    pub(super) fn must_wait(&self, source: ChangeSource) -> bool {
        self.parked.must_wait(source)
    }

    /// Returns what was counted, and how many changes wait.
    pub(crate) fn counts(&self) -> (&CoreCounts, u64) {
        (&self.counts, self.parked.count() as u64)
    }

    /// Keeps an answer until it can be sent without the lock.
    pub(super) fn push_due(&mut self, answer: Box<dyn FnOnce() + Send>) {
        self.due.push(answer);
    }

    /// Takes the answers that are due.
    pub(super) fn take_due(&mut self) -> Vec<Box<dyn FnOnce() + Send>> {
        std::mem::take(&mut self.due)
    }

    /// Lets go of `count` references of the kernel to an inode.
    pub(crate) fn forget(&mut self, inode: InodeId, count: u64) {
        if self.lives.forget(inode, count, self.durable) {
            self.forget_if_orphan(inode);
        }
    }

    /// Removes an inode that has no name and that nobody has.
    pub(crate) fn forget_if_orphan(&mut self, inode: InodeId) {
        let is_nameless = self.tree().inode(inode).is_some_and(|inode| inode.links == 0);
        if is_nameless && !self.lives.is_held(inode) {
            self.to_forget.push(inode);
            self.forget_orphans();
        }
    }

    /// Removes all inodes without a name that nobody has.
    pub(crate) fn forget_all_orphans(&mut self) {
        let orphans: Vec<InodeId> = self.tree().orphans().collect();
        for inode in orphans {
            self.forget_if_orphan(inode);
        }
    }

    /// Holds an inode as the kernel does that refers to it.
    pub(crate) fn hold(&mut self, inode: InodeId) {
        let place = self.tree().places(inode).next();
        let home = place.map(|place| (place.directory, place.name.clone()));
        self.lives.hold(inode, home);
    }

    pub(super) fn forget_orphans(&mut self) {
        while let Some(inode) = self.to_forget.pop() {
            match self.append(TreeChange::Forget { inode }, &[]) {
                Ok(()) => {
                    self.lives.remove(inode);
                    self.store_space.remove(inode);
                }
                Err(Held::Errno(Errno::NOENT)) => {}
                Err(_) => {
                    self.to_forget.push(inode);
                    return;
                }
            }
        }
    }

    /// Lets the log post what it wants, and hears what it says.
    pub(super) fn pump(&mut self) {
        let events = &mut self.events;
        self.driver.flush(&mut self.wire, &mut |event| events.push(event), None);
        self.hear();
    }

    /// Does all that can be done now; returns when to step again.
    pub(super) fn step(&mut self) -> Option<LocalNs> {
        loop {
            let events = &mut self.events;
            let progress = self.driver.step(&mut self.wire, &mut |event| events.push(event));
            let before = self.durable;
            self.hear();
            if self.durable != before || self.stopped.is_some() {
                self.forget_orphans();
            }
            // Also without a durable change of their client there may be space now.
            if !self.retry_parked() {
                return progress.next;
            }
        }
    }

    /// Begins to lead, if nobody does and there is something to wait for: returns the number of the
    /// last change that is awaited.
    pub(super) fn begin_lead(&mut self) -> Option<u64> {
        let awaited = self.last_awaited()?;
        if std::mem::replace(&mut self.is_led, true) {
            return None;
        }
        self.wire.begin_inline(DISK);
        Some(awaited)
    }

    /// Returns the number of the last change that is awaited.
    pub(super) fn last_awaited(&self) -> Option<u64> {
        self.waiters.last_key_value().map(|((number, _), _)| *number)
    }

    /// Returns whether a change is durable, or never will be.
    pub(super) const fn has_durable(&self, number: u64) -> bool {
        self.durable >= number || self.stopped.is_some()
    }

    /// Ends to lead.
    pub(super) fn end_lead(&mut self) {
        self.is_led = false;
        self.wire.end_inline(DISK);
    }

    /// Says how the thread that steps may rest.
    pub(super) fn rest(&mut self) -> Rest {
        self.wire.rest()
    }

    /// Makes the changes that waited, as far as the log takes them; whether any was.
    pub(super) fn retry_parked(&mut self) -> bool {
        let (mut any, mut passed) = (false, 0);
        while passed <= self.parked.source_count()
            && let Some((source, mut change)) = self.parked.take()
        {
            match change(self) {
                Ok(()) => (any, passed) = (true, 0),
                Err(shortage) => {
                    self.parked.put_back(source, change, shortage);
                    if shortage == Shortage::Common {
                        break;
                    }
                    passed += 1;
                }
            }
        }
        any
    }

    fn hear(&mut self) {
        for event in std::mem::take(&mut self.events) {
            match event {
                LogEvent::Durable { client: DRAIN, number } => {
                    self.update_drain(|drain, _| drain.durable(number));
                }
                LogEvent::Durable { client, number } => {
                    let is_covered = |(_, of, stamped): &(u64, ClientId, u64)| {
                        *of == client && *stamped <= number
                    };
                    // The log is one order: with this change all before it are durable.
                    if let Some(covered) = self.order.iter().rposition(is_covered) {
                        let last = self.order.drain(..=covered).next_back();
                        self.take_durable(last.map_or(0, |(number, ..)| number));
                    }
                    self.notify_drain();
                }
                LogEvent::Drainable { inode, version, size } => {
                    self.note_drainable((inode, version, size));
                }
                LogEvent::Refused { why, .. } => self.refused = Some(why),
                LogEvent::Notice(why) => self.say(why.to_string()),
                LogEvent::Stopped(why) => self.stop(why),
                LogEvent::Finished => self.is_finished = true,
                _ => {}
            }
        }
    }

    fn take_durable(&mut self, number: u64) {
        self.durable = self.durable.max(number);
        while self.lent.front().is_some_and(|lent| lent.number <= number) {
            if let Some(lent) = self.lent.pop_front() {
                self.arena.take_back(lent.offset);
                self.unlogged -= lent.length;
            }
        }
        let later = self.waiters.split_off(&(self.durable + 1, 0));
        let now = self.wire.now();
        for (_, Waiter { answer, since }) in std::mem::replace(&mut self.waiters, later) {
            self.counts.syncs.record(now.since(since).0);
            self.due.push(Box::new(move || answer(Ok(()))));
        }
        self.lives.settle(self.durable);
        self.evict();
    }

    /// Drops the oldest durable bodies while there are more than may be.
    fn evict(&mut self) {
        while self.body_bytes > 2 * self.unlogged_max
            && let Some(first) = self.bodies.first_entry()
            && first.get().0 <= self.durable
        {
            let (_, (_, loan)) = first.remove_entry();
            self.body_bytes -= loan.bytes().len() as u64;
        }
    }

    /// Takes the end of the log: what is not durable never will be.
    fn stop(&mut self, why: LogError) {
        self.say(why.to_string());
        self.stopped = Some(why);
        let lost = self.lives.changed_after(self.durable);
        self.handles.fail(|inode| lost.contains(&inode));
        self.counts.syncs.record_infinite(self.waiters.len() as u64);
        for (_, Waiter { answer, .. }) in std::mem::take(&mut self.waiters) {
            self.due.push(Box::new(move || answer(Err(Errno::IO))));
        }
    }

    /// Returns the time of day.
    pub(crate) fn now(&self) -> WallNs {
        super::wall_now()
    }

    /// Returns how much space the log has.
    pub(crate) fn space(&mut self) -> LogSpace {
        self.driver.engine_mut().space()
    }

    /// Returns how many bytes the log gave another place since the mount began.
    pub(crate) fn moved_bytes(&mut self) -> u64 {
        self.driver.engine_mut().moved().0
    }

    /// Returns the bytes of a file that lie in the log.
    pub(crate) fn log_bytes(&mut self, inode: InodeId) -> u64 {
        self.tree().content(inode).map_or(0, FileContent::logged)
    }

    /// Gives the log a command that needs no answer.
    pub(super) fn command(&mut self, command: LogCommand) {
        let now = self.wire.now();
        self.driver.command(now, command);
    }
}
