//! A lane: updates for many PEs, gathered for each of them until their buffer is full, old or
//! wanted.
//!
//! # Model
//! ```text
//!   push -> open buffer of the PE --(full, deadline, flush)--> slot of the ring -> words of the PE
//! ```
//! A session has a lane, and so has a queue. Pushing touches memory of this PE only. A closed
//! buffer is copied into the ring to its PE ([`super::ring`]); nothing but closing takes a lock.
//!
//! The words of a buffer are atomics that are read and written without order: a lane belongs to
//! one thread at a time, and a program that breaks this rule loses updates but corrupts no memory. A lane
//! that any thread may use has a lock.
//!
//! # Invariants
//! I1. An update is kept whole or refused; what is kept is applied once, and in order at its PE.
//! I2. [`UpdateLane::flush`] returns when everything that was pushed before is applied.
//!
//! # Not here
//! What may be pushed, by whom and how much (`comm`, `session`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::stats::Histogram;
use clearway_runtime::clock;

use super::element::{OpenRun, RunWords, UPDATE_WORDS_MAX, WordUpdate};
use super::far_elements::Writers;
use super::ring::{self, Given, SLOT_WORDS};
use crate::fault::Fault;
use crate::job::Job;

/// What became of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Push {
    /// The lane has it.
    Kept,
    /// The lane holds as much as it may. It has not changed.
    Full,
}

/// Why a buffer was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseCause {
    /// It held as much as is gathered.
    Full,
    /// Its oldest update had waited long enough.
    Deadline,
    /// The program wanted order or completion.
    Flush,
}

/// How many causes there are.
pub(crate) const CAUSES: usize = 3;

/// Which threads may use a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneUsers {
    /// One thread at a time, whichever: the program has one, or takes turns.
    InTurn,
    /// This thread ([`thread_number`]).
    Thread(u64),
    /// All threads, at any time.
    All,
}

const IN_TURN: u64 = 0;
const ALL: u64 = u64::MAX;

/// Returns the number of the calling thread, from 1.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// How a lane gathers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneConfig {
    pub(crate) users: LaneUsers,
    /// Updates that it holds at most until they are applied; `u64::MAX` for any number.
    pub(crate) updates_max: u64,
    /// Bytes at which a buffer is full.
    pub(crate) threshold: usize,
    /// How long an update waits in a buffer until a call of the program sends it; `None` for ever.
    pub(crate) deadline: Option<Nanos>,
}

/// A closed buffer that is not applied yet.
#[derive(Clone, Copy, Debug)]
struct Closed {
    /// Applied when this many slots of the ring are.
    slot: u64,
    /// Its number among all that the lane closed.
    sequence: u64,
    updates: u64,
    /// When its oldest update came.
    since: LocalNs,
}

/// The updates for one PE.
#[derive(Debug)]
struct GatherBuffer {
    words: [AtomicU32; SLOT_WORDS],
    used: AtomicU32,
    limit: AtomicU32,
    key: AtomicU32,
    header: AtomicU32,
    operand: AtomicU64,
    /// Updates in runs that have ended.
    ended: AtomicU64,
    /// When the oldest update came.
    since: AtomicU64,
    closed: Mutex<VecDeque<Closed>>,
}

impl RunWords for GatherBuffer {
    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed) as usize
    }

    #[inline]
    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) as usize
    }

    #[inline]
    fn append(&self, word: u32) {
        let used = self.used();
        if let Some(place) = self.words.get(used) {
            place.store(word, Ordering::Relaxed);
            self.used.store(used as u32 + 1, Ordering::Relaxed);
        }
    }

    fn rewrite(&self, at: usize, word: u32) {
        if let Some(place) = self.words.get(at) {
            place.store(word, Ordering::Relaxed);
        }
    }
}

impl GatherBuffer {
    fn new(limit: u32) -> Self {
        Self {
            words: [const { AtomicU32::new(0) }; SLOT_WORDS],
            used: AtomicU32::new(0),
            limit: AtomicU32::new(limit),
            key: AtomicU32::new(0),
            header: AtomicU32::new(0),
            operand: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            since: AtomicU64::new(0),
            closed: Mutex::new(VecDeque::new()),
        }
    }

    #[inline]
    fn run(&self) -> OpenRun {
        OpenRun {
            key: self.key.load(Ordering::Relaxed),
            operand: self.operand.load(Ordering::Relaxed),
            header: self.header.load(Ordering::Relaxed),
        }
    }

    fn set_run(&self, run: OpenRun) {
        self.key.store(run.key, Ordering::Relaxed);
        self.operand.store(run.operand, Ordering::Relaxed);
        self.header.store(run.header, Ordering::Relaxed);
    }

    /// Appends an update that continues the run; whether it did.
    #[inline(always)]
    fn push_same(&self, update: WordUpdate) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let continues = self.run().continues(update) && used < self.limit.load(Ordering::Relaxed);
        match self.words.get(used as usize).filter(|_| continues) {
            Some(word) => {
                word.store(OpenRun::index_of(update), Ordering::Relaxed);
                self.used.store(used + 1, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    /// Appends any update; whether it had room.
    fn push_other(&self, update: WordUpdate) -> bool {
        let mut run = self.run();
        let (written, ended) = run.write(self, update);
        self.set_run(run);
        self.ended.store(self.ended.load(Ordering::Relaxed) + ended as u64, Ordering::Relaxed);
        written.is_some()
    }

    /// Returns how many updates it holds.
    fn updates(&self) -> u64 {
        let run = self.run();
        let in_run = if run.key == 0 { 0 } else { run.elements(self.used()) as u64 };
        self.ended.load(Ordering::Relaxed) + in_run
    }

    /// Empties it into `slot`; the words and the updates.
    fn take(&self, slot: &mut [u32; SLOT_WORDS + 1]) -> (usize, u64) {
        let mut run = self.run();
        let in_run = run.end(self) as u64;
        self.set_run(run);
        let used = self.used().min(SLOT_WORDS);
        slot[0] = used as u32;
        slot[1..].iter_mut().zip(&self.words[..used]).for_each(|(to, from)| {
            *to = from.load(Ordering::Relaxed);
        });
        self.used.store(0, Ordering::Relaxed);
        (used, self.ended.swap(0, Ordering::Relaxed) + in_run)
    }

    fn closed(&self) -> MutexGuard<'_, VecDeque<Closed>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a lane has done since it was configured.
#[derive(Debug, Default)]
pub(crate) struct LaneCounts {
    pub(crate) updates: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) closes: [AtomicU64; CAUSES],
    /// Nanoseconds from the oldest update of a message until this PE knew that it was applied.
    delays: Mutex<Histogram>,
}

impl LaneCounts {
    /// Counts a message whose oldest update came at `since` and that is complete.
    pub(super) fn note_delay(&self, since: LocalNs) {
        self.delays().record(clock::now().since(since).0);
    }

    pub(super) fn delays(&self) -> MutexGuard<'_, Histogram> {
        self.delays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Updates on their way to all PEs.
#[derive(Debug)]
pub(crate) struct UpdateLane {
    buffers: Box<[OnceLock<Box<GatherBuffer>>]>,
    /// Whether a push needs neither the lock nor a look at how much the lane holds.
    is_plain: AtomicBool,
    users: AtomicU64,
    updates_max: AtomicU64,
    limit: AtomicU32,
    deadline: AtomicU64,
    /// Buffers with updates, and closed ones that are not applied.
    open: AtomicU32,
    under_way: AtomicU32,
    /// How many buffers were closed.
    sequence: AtomicU64,
    /// Updates that were closed and not yet applied.
    closed_updates: AtomicU64,
    pub(crate) counts: LaneCounts,
    lock: Mutex<()>,
}

impl UpdateLane {
    pub(super) fn new(pes: usize) -> Self {
        Self {
            buffers: (0..pes).map(|_| OnceLock::new()).collect(),
            is_plain: AtomicBool::new(true),
            users: AtomicU64::new(IN_TURN),
            updates_max: AtomicU64::new(u64::MAX),
            limit: AtomicU32::new(SLOT_WORDS as u32),
            deadline: AtomicU64::new(u64::MAX),
            open: AtomicU32::new(0),
            under_way: AtomicU32::new(0),
            sequence: AtomicU64::new(0),
            closed_updates: AtomicU64::new(0),
            counts: LaneCounts::default(),
            lock: Mutex::new(()),
        }
    }

    /// Prepares the lane for a new use; it is empty.
    pub(super) fn configure(&self, config: &LaneConfig) {
        let users = match config.users {
            LaneUsers::InTurn => IN_TURN,
            LaneUsers::Thread(number) => number,
            LaneUsers::All => ALL,
        };
        self.users.store(users, Ordering::Relaxed);
        let is_plain = users != ALL && config.updates_max == u64::MAX;
        self.is_plain.store(is_plain, Ordering::Relaxed);
        self.updates_max.store(config.updates_max, Ordering::Relaxed);
        let limit = (config.threshold / 4).clamp(UPDATE_WORDS_MAX, SLOT_WORDS) as u32;
        self.limit.store(limit, Ordering::Relaxed);
        let deadline = config.deadline.map_or(u64::MAX, |deadline| deadline.0);
        self.deadline.store(deadline, Ordering::Relaxed);
        for buffer in self.buffers.iter().filter_map(OnceLock::get) {
            buffer.limit.store(limit, Ordering::Relaxed);
        }
        let counts = [&self.counts.updates, &self.counts.messages, &self.counts.bytes];
        counts
            .into_iter()
            .chain(&self.counts.closes)
            .for_each(|one| one.store(0, Ordering::Relaxed));
        *self.counts.delays() = Histogram::new();
    }

    fn guard(&self) -> Option<MutexGuard<'_, ()>> {
        (self.users.load(Ordering::Relaxed) == ALL)
            .then(|| self.lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether one thread at a time uses it, without a bound.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain.load(Ordering::Relaxed)
    }

    /// Returns how many threads use it at a time.
    #[inline]
    pub(super) fn writers(&self) -> Writers {
        if self.users.load(Ordering::Relaxed) == ALL { Writers::Many } else { Writers::One }
    }

    /// Returns whether the calling thread may use it.
    pub(super) fn is_for_this_thread(&self) -> bool {
        match self.users.load(Ordering::Relaxed) {
            IN_TURN | ALL => true,
            number => number == thread_number(),
        }
    }

    /// Keeps an update for PE `pe` of the world.
    ///
    /// # Errors
    /// A PE sent this one what is no update.
    #[inline(always)]
    pub(crate) fn push(
        &self,
        job: &'static Job,
        pe: usize,
        update: WordUpdate,
    ) -> Result<Push, Fault> {
        if self.is_plain()
            && let Some(buffer) = self.buffers.get(pe).and_then(OnceLock::get)
            && buffer.push_same(update)
        {
            return Ok(Push::Kept);
        }
        self.push_any(job, pe, update)
    }

    #[inline(never)]
    fn push_any(&self, job: &'static Job, pe: usize, update: WordUpdate) -> Result<Push, Fault> {
        let _guard = self.guard();
        if !self.has_room_inside(job, 1)? {
            return Ok(Push::Full);
        }
        let limit = self.limit.load(Ordering::Relaxed);
        let buffer = self.buffers[pe].get_or_init(|| Box::new(GatherBuffer::new(limit)));
        if buffer.push_same(update) {
            return Ok(Push::Kept);
        }
        if buffer.used() > 0 {
            if buffer.push_other(update) {
                return Ok(Push::Kept);
            }
            self.close(job, pe, buffer, CloseCause::Full)?;
            job.queues.rings.take_news(job)?;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        job.queues.unfinished.fetch_add(1, Ordering::Relaxed);
        buffer.since.store(clock::now().0, Ordering::Relaxed);
        buffer.push_other(update);
        Ok(Push::Kept)
    }

    /// Returns whether `more` updates may come; makes progress once if not.
    ///
    /// # Errors
    /// As [`UpdateLane::push`].
    pub(crate) fn has_room(&self, job: &'static Job, more: u64) -> Result<bool, Fault> {
        let _guard = self.guard();
        self.has_room_inside(job, more)
    }

    /// Does the same for a caller that has the lock.
    fn has_room_inside(&self, job: &'static Job, more: u64) -> Result<bool, Fault> {
        let most = self.updates_max.load(Ordering::Relaxed);
        if most == u64::MAX || self.held() + more <= most {
            return Ok(true);
        }
        self.close_all(job, CloseCause::Full)?;
        self.help(job)?;
        Ok(self.held() + more <= most)
    }

    /// Returns whether as many updates may ever be outstanding.
    pub(crate) fn may_ever_hold(&self, updates: u64) -> bool {
        updates <= self.updates_max.load(Ordering::Relaxed)
    }

    /// Returns how long an update waits at most; `None` for ever.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let deadline = self.deadline.load(Ordering::Relaxed);
        (deadline < u64::MAX).then_some(Nanos(deadline))
    }

    /// Returns how many updates were pushed and are not known to be applied.
    pub(crate) fn outstanding(&self) -> u64 {
        let _guard = self.guard();
        self.held()
    }

    /// Returns how many updates are in open buffers.
    pub(crate) fn open_updates(&self) -> u64 {
        let _guard = self.guard();
        self.held_open()
    }

    /// Does as [`UpdateLane::outstanding`] for a caller that has the lock.
    fn held(&self) -> u64 {
        self.held_open() + self.closed_updates.load(Ordering::Relaxed)
    }

    fn held_open(&self) -> u64 {
        if self.open.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.each().map(|(_, buffer)| buffer.updates()).sum()
    }

    /// Returns how many updates may still come; `u64::MAX` for any number.
    pub(crate) fn room(&self) -> u64 {
        match self.updates_max.load(Ordering::Relaxed) {
            u64::MAX => u64::MAX,
            most => most.saturating_sub(self.outstanding()),
        }
    }

    fn each(&self) -> impl Iterator<Item = (usize, &GatherBuffer)> {
        self.buffers.iter().enumerate().filter_map(|(pe, one)| Some((pe, &**one.get()?)))
    }

    fn close_all(&self, job: &'static Job, cause: CloseCause) -> Result<(), Fault> {
        if self.open.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.each().try_for_each(|(pe, buffer)| self.close(job, pe, buffer, cause))
    }

    fn close(
        &self,
        job: &'static Job,
        pe: usize,
        buffer: &GatherBuffer,
        cause: CloseCause,
    ) -> Result<(), Fault> {
        if buffer.used() == 0 {
            return Ok(());
        }
        let mut slot = [0; SLOT_WORDS + 1];
        let (words, updates) = buffer.take(&mut slot);
        let since = LocalNs(buffer.since.load(Ordering::Relaxed));
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.counts.updates.fetch_add(updates, Ordering::Relaxed);
        self.counts.messages.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(4 * words as u64, Ordering::Relaxed);
        self.counts.closes[cause as usize].fetch_add(1, Ordering::Relaxed);
        match job.queues.rings.give(job, pe, &slot[..=words])? {
            Given::Applied => {
                self.counts.note_delay(since);
                job.queues.unfinished.fetch_sub(1, Ordering::Relaxed);
            }
            Given::Slot(slot) => {
                let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
                buffer.closed().push_back(Closed { slot, sequence, updates, since });
                self.closed_updates.fetch_add(updates, Ordering::Relaxed);
                self.under_way.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Notes which closed buffers were applied; whether all are.
    fn settle(&self, job: &'static Job, pe: usize, buffer: &GatherBuffer) -> bool {
        let mut closed = buffer.closed();
        if closed.is_empty() {
            return true;
        }
        let applied = job.queues.rings.ring(job.near, pe, job.me).applied();
        while let Some(first) = closed.front().filter(|first| first.slot <= applied) {
            self.closed_updates.fetch_sub(first.updates, Ordering::Relaxed);
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            job.queues.unfinished.fetch_sub(1, Ordering::Relaxed);
            self.counts.note_delay(first.since);
            closed.pop_front();
        }
        closed.is_empty()
    }

    /// Applies at all PEs what was closed, unless another thread does. Returns whether nothing is
    /// under way any more.
    fn help(&self, job: &'static Job) -> Result<bool, Fault> {
        job.queues.rings.take_news(job)?;
        let mut is_empty = true;
        for (pe, buffer) in self.each() {
            if !self.settle(job, pe, buffer) {
                ring::drain(job, pe, job.me)?;
                is_empty &= self.settle(job, pe, buffer);
            }
        }
        Ok(is_empty)
    }

    /// Returns when everything that was pushed before is applied.
    ///
    /// # Errors
    /// As [`UpdateLane::push`].
    pub(crate) fn flush(&self, job: &'static Job) -> Result<(), Fault> {
        let _guard = self.guard();
        self.close_all(job, CloseCause::Flush)?;
        if self.under_way.load(Ordering::Relaxed) > 0 {
            let mut helped = Ok(false);
            job.wait(|| {
                helped = self.help(job);
                !matches!(helped, Ok(false))
            });
            helped?;
        }
        std::sync::atomic::fence(Ordering::SeqCst);
        Ok(())
    }

    /// Sends everything. Returns a ticket for [`UpdateLane::is_done`].
    ///
    /// # Errors
    /// As [`UpdateLane::push`].
    pub(crate) fn flush_later(&self, job: &'static Job) -> Result<u64, Fault> {
        let _guard = self.guard();
        self.close_all(job, CloseCause::Flush)?;
        Ok(self.sequence.load(Ordering::Relaxed))
    }

    /// Returns whether everything is applied that was pushed before the flush with this ticket.
    ///
    /// # Errors
    /// As [`UpdateLane::push`].
    pub(crate) fn is_done(&self, job: &'static Job, ticket: u64) -> Result<bool, Fault> {
        let _guard = self.guard();
        self.help(job)?;
        let is_later = |first: Option<&Closed>| first.is_none_or(|first| first.sequence > ticket);
        Ok(self.each().all(|(_, buffer)| is_later(buffer.closed().front())))
    }

    /// Applies what came here, and closes buffers that have waited long enough; how many updates
    /// are outstanding.
    ///
    /// # Errors
    /// As [`UpdateLane::push`].
    pub(crate) fn progress(&self, job: &'static Job) -> Result<u64, Fault> {
        let _guard = self.guard();
        job.queues.rings.take_news(job)?;
        let is_idle = |count: &AtomicU32| count.load(Ordering::Relaxed) == 0;
        if is_idle(&self.open) && is_idle(&self.under_way) {
            return Ok(0);
        }
        let (now, deadline) = (clock::now(), self.deadline());
        let is_late = |since| deadline.is_some_and(|deadline| now.since(since) >= deadline);
        for (pe, buffer) in self.each() {
            let since = LocalNs(buffer.since.load(Ordering::Relaxed));
            if buffer.used() > 0 && is_late(since) {
                self.close(job, pe, buffer, CloseCause::Deadline)?;
            }
            if self.settle(job, pe, buffer) {
                continue;
            }
            // The target may compute for long.
            let first = buffer.closed().front().map(|first| first.since);
            if first.is_some_and(is_late) {
                ring::drain(job, pe, job.me)?;
                self.settle(job, pe, buffer);
            }
        }
        Ok(self.held())
    }
}
