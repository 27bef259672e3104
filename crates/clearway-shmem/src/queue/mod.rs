//! Queues: operations and data that a program hands over to be sent together.
//!
//! # Model
//! A *communication queue* takes puts, gets and atomic operations; a *data queue* takes elements
//! that the target pops. What may wait is gathered: atomic updates for a neighbour go through a
//! `lane`, and elements of data queues through channels ([`channel`]). Puts and gets of
//! neighbours are copies, which no gathering makes faster, and are over when they are pushed. A
//! *QOS queue* is a communication queue that never gathers.
//!
//! | completion | of what |
//! |---|---|
//! | [`flush`] | everything that was pushed before |
//! | [`fence`] | orders what was pushed to a PE before what is pushed to it afterwards |
//! | `shmem_barrier_all`, `shmem_finalize`, waits | queues of the calling thread, too |
//! | `shmem_quiet` | of contexts, not of queues |
//!
//! A mistake of the program does not end the job: the call returns [`EINVAL`], nothing is written,
//! and `SHMEM_DEBUG` prints the reason in one sentence.
//!
//! # Source
//! OpenSHMEM queues, proposal 0.1 of 2021, and its extension by service classes; where these leave
//! something open, [docs/shmem.md](../../../docs/shmem.md) has the answer.
//!
//! # Not here
//! Offload to network cards, cache stashing.

pub mod channel;
mod class;
pub mod comm;

pub(crate) mod element;
mod ending;
mod far_elements;
pub(crate) mod lane;
mod part;
mod ring;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use clearway_proto::base::{Class, Nanos};
use clearway_proto::stats::{Histogram, Quantile};

use self::channel::ChannelQueue;
pub use self::class::{ClassGrant, QueueClass};
use self::far_elements::FarElements;
use self::lane::{CAUSES, LaneConfig, LaneUsers, UpdateLane, thread_number};
use self::ring::Rings;
use crate::collective::sync::Gathering;
use crate::constants::THREAD_MULTIPLE;
use crate::far::Far;
use crate::fault::Fault;
use crate::heap::HeapLedger;
use crate::job::{self, Job};
use crate::team::{Members, Team};

/// The result of a call that did nothing because the queue is full, or empty. The program may call
/// again.
pub const EAGAIN: i32 = 1;
/// The result of a call with a wrong argument.
pub const EINVAL: i32 = -1;

/// `SHMEMX_QCFG_QOS`: the bit of a configuration's mask that makes its class valid.
pub const MASK_CLASS: i64 = 1;

/// Bytes at which gathered operations leave unless a variable sets another number: as many as a slot
/// of a ring holds.
pub(crate) const THRESHOLD: usize = 4_096;
/// Queues and sessions that a PE can have at once.
const QUEUES_MAX: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 10;
/// Bits of a queue's state below its generation: its use.
const USE_BITS: u32 = 8;

/// What an entry of the table is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum QueueUse {
    /// For nothing.
    Free = 0,
    /// A session of a context has its lane.
    Session,
    /// `SHMEMX_QUEUE_COMM`.
    Comm,
    /// `SHMEMX_QUEUE_QOS`.
    Qos,
    /// `SHMEMX_QUEUE_DATA`.
    Data,
}

/// The configuration of a queue: `shmemx_queue_config_t`, by its numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueConfig {
    /// `SHMEMX_QUEUE_COMM`, `_DATA` or `_QOS`.
    pub kind: i32,
    /// `SHMEMX_QUEUE_EXCLUSIVE` or `_SHARED`.
    pub sharing: i32,
    /// Elements outstanding at most in a communication queue; 0 for any number.
    pub elements_max: u64,
    /// Bytes that wait at most in a data queue from one PE to another; 0 for 64 KiB.
    pub bytes_max: u64,
    /// The class, where `has_class`, or for a QOS queue.
    pub class: i32,
    /// Whether the program chose the class.
    pub has_class: bool,
    /// Seconds that an element waits at most; 0 or less for what the class has.
    pub timeout_s: f64,
    /// Bytes of an element of a data queue; 0 for any.
    pub element_size: usize,
}

/// Communication queues, data queues, and those that never gather.
const KINDS: [QueueUse; 3] = [QueueUse::Comm, QueueUse::Data, QueueUse::Qos];

/// What a queue is and did: `shmemx_queue_attr_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct QueueAttributes {
    /// The handle.
    pub queue_id: u64,
    /// Elements that were pushed and are not complete.
    pub outstanding_elems: u64,
    /// Elements that may still come; the largest number for no limit.
    pub available_elems: u64,
    /// The class that it has.
    pub granted_class: i32,
    /// The DSCP of its packets, -1 where it sends none.
    pub granted_mark: i32,
    /// Elements that were pushed.
    pub elements: u64,
    /// Messages in which they left. What is done at once has none.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Messages that left because a buffer was full.
    pub closed_full: u64,
    /// Because its oldest element had waited long enough.
    pub closed_deadline: u64,
    /// Because of a flush or a fence.
    pub closed_flush: u64,
    /// Nanoseconds from a push until this PE knew that it was complete, in half of the cases at
    /// most; 0 where nothing was measured.
    pub p50_ns: u64,
    /// In 99 of 100 cases at most.
    pub p99_ns: u64,
    /// Messages of the class to PEs of other hosts since the queue was created, those of other queues
    /// and contexts included.
    pub far_messages: u64,
    /// Bytes of these messages.
    pub far_bytes: u64,
}

/// An entry of the table.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Generation and use.
    state: AtomicU64,
    pub(crate) lane: UpdateLane,
    gathers: AtomicBool,
    class: AtomicU32,
    /// The class that it has, and the mark of its packets.
    granted: AtomicI32,
    mark: AtomicI32,
    start: AtomicI32,
    stride: AtomicI32,
    size: AtomicI32,
    /// Elements that were done at once.
    direct: AtomicU64,
    far: FarElements,
    data: Mutex<Option<ChannelQueue>>,
}

impl Queue {
    fn new(pes: usize) -> Self {
        Self {
            state: AtomicU64::new(0),
            lane: UpdateLane::new(pes),
            gathers: AtomicBool::new(true),
            class: AtomicU32::new(0),
            granted: AtomicI32::new(0),
            mark: AtomicI32::new(-1),
            start: AtomicI32::new(0),
            stride: AtomicI32::new(1),
            size: AtomicI32::new(0),
            direct: AtomicU64::new(0),
            far: FarElements::new(pes),
            data: Mutex::new(None),
        }
    }

    #[inline]
    fn is_used_for(&self, wanted: QueueUse) -> bool {
        self.state.load(Ordering::Relaxed) as u8 == wanted as u8
    }

    /// Returns the world's number of PE `pe` of the queue's team.
    #[inline]
    fn world_pe(&self, pe: i32) -> Option<usize> {
        let size = self.size.load(Ordering::Relaxed);
        let (start, stride) =
            (self.start.load(Ordering::Relaxed), self.stride.load(Ordering::Relaxed));
        (pe as u32).lt(&(size as u32)).then(|| (start + stride * pe) as usize)
    }

    fn set_members(&self, members: Members) {
        self.start.store(members.start, Ordering::Relaxed);
        self.stride.store(members.stride, Ordering::Relaxed);
        self.size.store(members.size, Ordering::Relaxed);
    }

    fn data(&self) -> MutexGuard<'_, Option<ChannelQueue>> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the class of what it sends to PEs of other hosts.
    fn far_class(&self) -> Class {
        let class = QueueClass::ALL.get(self.class.load(Ordering::Relaxed) as usize);
        class.copied().unwrap_or(QueueClass::Medium).far()
    }

    /// Returns how many elements for far PEs are not complete.
    fn far_outstanding(&self, job: &Job) -> u64 {
        job.far.as_ref().map_or(0, |far| self.far.outstanding(far, self.far_class()))
    }

    /// Counts `elements` elements that were pushed to far PE `pe`.
    fn count_far(&self, job: &Job, pe: usize, elements: usize) {
        if let Some(far) = &job.far {
            let class = self.far_class();
            let issued = far.issued(pe, class);
            self.count_issued(job, far, (pe, class), elements, issued);
        }
    }

    /// Does the same where `issued` elements have been issued to the PE in the class.
    #[inline]
    fn count_issued(
        &self,
        job: &Job,
        far: &Far,
        (pe, class): (usize, Class),
        elements: usize,
        issued: u64,
    ) {
        self.far.count(far, class, pe, elements, issued, self.lane.writers());
        job.queues.note_far(class);
    }

    /// Requests acknowledgements of far PEs, which send none by themselves, where the last request is
    /// old enough. Returns how many elements for far PEs are not complete.
    fn progress_far(&self, job: &Job) -> u64 {
        let outstanding = self.far_outstanding(job);
        if let Some(far) = job.far.as_ref().filter(|_| outstanding > 0)
            && self.lane.deadline().is_some_and(|deadline| self.far.is_late(deadline))
        {
            far.send(self.far_class());
        }
        outstanding
    }

    /// Returns whether `more` elements may come, or the result of the call; makes progress once if
    /// not.
    fn admit(&self, job: &'static Job, more: usize) -> Result<Admission, Fault> {
        let more = more as u64;
        if !self.lane.may_ever_hold(more) {
            return Ok(Admission::Never);
        }
        let has_room = || more <= self.room(job);
        if has_room() {
            return Ok(Admission::Room);
        }
        self.lane.has_room(job, more)?;
        if let Some(far) = job.far.as_ref().filter(|_| self.far_outstanding(job) > 0) {
            far.send(self.far_class());
            far.poll();
        }
        Ok(if has_room() { Admission::Room } else { Admission::Full })
    }

    /// Returns how many elements may still come; `u64::MAX` for any number.
    fn room(&self, job: &Job) -> u64 {
        match self.lane.room() {
            u64::MAX => u64::MAX,
            room => room.saturating_sub(self.far_outstanding(job)),
        }
    }

    /// Counts `elements` elements that were done at once.
    fn count_direct(&self, elements: usize) {
        self.lane.writers().add(&self.direct, elements as u64);
    }
}

/// Whether a queue takes more elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Room,
    /// It holds as many as it may.
    Full,
    /// They are more than it ever holds.
    Never,
}

/// All queues of this PE, and what they share.
#[derive(Debug)]
pub(crate) struct Queues {
    table: Box<[OnceLock<Box<Queue>>]>,
    rings: Rings,
    /// Open buffers and closed ones that are not applied, of all lanes.
    unfinished: AtomicU32,
    /// The pool's blocks.
    pool: Mutex<HeapLedger>,
    threshold: usize,
    /// The classes in which queues pushed something to far PEs since a barrier, a bit each.
    far_classes: AtomicU32,
}

impl Queues {
    /// Creates those of one PE. `places` has the place of each PE of the job on this host, and
    /// `near` the PE at each place; the pool has `pool` bytes. A buffer is full at `threshold`
    /// bytes, and 0 switches gathering off.
    pub(crate) fn new(
        places: Vec<Option<usize>>,
        near: Vec<usize>,
        pool: usize,
        threshold: usize,
    ) -> Self {
        Self {
            table: (0..QUEUES_MAX).map(|_| OnceLock::new()).collect(),
            rings: Rings::new(places, near),
            unfinished: AtomicU32::new(0),
            pool: Mutex::new(HeapLedger::new(pool)),
            threshold,
            far_classes: AtomicU32::new(0),
        }
    }

    /// Notes that a queue pushed something to far PEs in `class`.
    #[inline]
    fn note_far(&self, class: Class) {
        let bit = 1 << class.index();
        if self.far_classes.load(Ordering::Relaxed) & bit == 0 {
            self.far_classes.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes an entry; its number and handle.
    fn take(&self, pes: usize, wanted: QueueUse) -> Option<(usize, usize)> {
        for (index, entry) in self.table.iter().enumerate().skip(1) {
            let queue = entry.get_or_init(|| Box::new(Queue::new(pes)));
            let state = queue.state.load(Ordering::Acquire);
            let generation = (state >> USE_BITS) + 1;
            let next = generation << USE_BITS | wanted as u64;
            let is_free = state as u8 == QueueUse::Free as u8;
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            if is_free && queue.state.compare_exchange(state, next, order.0, order.1).is_ok() {
                return Some((index, (generation as usize) << INDEX_BITS | index));
            }
        }
        None
    }

    /// Gives an entry back.
    fn release(&self, queue: &Queue) {
        let generation = (queue.state.load(Ordering::Acquire) >> USE_BITS) + 1;
        queue.state.store(generation << USE_BITS | QueueUse::Free as u64, Ordering::Release);
    }

    /// Finds the queue of a handle.
    #[inline]
    fn find(&self, handle: usize) -> Option<&Queue> {
        let queue = self.table.get(handle & (QUEUES_MAX - 1))?.get()?;
        let generation = queue.state.load(Ordering::Relaxed) >> USE_BITS;
        (generation == (handle >> INDEX_BITS) as u64).then_some(&**queue)
    }

    /// Returns entry `number`, which a session has.
    #[inline]
    pub(crate) fn session(&self, number: usize) -> Option<&UpdateLane> {
        Some(&self.table.get(number)?.get()?.lane)
    }

    /// Returns whether operations are gathered at all.
    pub(crate) fn gathers(&self) -> bool {
        self.threshold > 0 && self.rings.has_neighbours()
    }

    /// Takes a lane for a session; its number.
    pub(crate) fn take_session(&self, pes: usize, users: LaneUsers) -> Option<usize> {
        let (number, _) = self.take(pes, QueueUse::Session)?;
        self.session(number)?.configure(&LaneConfig {
            users,
            updates_max: u64::MAX,
            threshold: self.threshold,
            deadline: Some(Nanos::from_millis(1)),
        });
        Some(number)
    }

    /// Gives the lane of a session back, which is empty.
    pub(crate) fn give_session(&self, number: usize) {
        if let Some(queue) = self.table.get(number).and_then(OnceLock::get) {
            self.release(queue);
        }
    }

    /// Gives all queues back, at the program's end.
    pub(crate) fn clear(&self) {
        for queue in self.table.iter().filter_map(OnceLock::get) {
            if !queue.is_used_for(QueueUse::Free) {
                *queue.data() = None;
                self.release(queue);
            }
        }
        let mut pool = self.pool();
        *pool = HeapLedger::new(pool.length());
    }

    fn pool(&self) -> MutexGuard<'_, HeapLedger> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completes what the calling thread pushed to sessions and queues. Called where the program waits:
/// what it waits for may depend on what it pushed.
///
/// # Errors
/// A PE sent this one what is no update.
#[inline]
pub(crate) fn finish(job: &'static Job) -> Result<(), Fault> {
    if job.queues.unfinished.load(Ordering::Relaxed) == 0 { Ok(()) } else { finish_all(job) }
}

#[cold]
#[inline(never)]
fn finish_all(job: &'static Job) -> Result<(), Fault> {
    for queue in job.queues.table.iter().filter_map(OnceLock::get) {
        if !queue.is_used_for(QueueUse::Free) && queue.lane.is_for_this_thread() {
            queue.lane.flush(job)?;
            if let Some(channels) = &mut *queue.data() {
                channels.publish(job);
            }
        }
    }
    Ok(())
}

/// Completes what queues pushed to far PEs, and what [`finish`] announced to them. Called by
/// barriers, which complete queues.
pub(crate) fn complete_far(job: &Job) {
    let Some(far) = &job.far else { return };
    let classes = job.queues.far_classes.swap(0, Ordering::Relaxed);
    let is_noted = |class: &Class| classes & 1 << class.index() != 0;
    Class::ALL.into_iter().filter(is_noted).for_each(|class| far.quiet(class));
}

/// Returns which threads may use a lane that is exclusive, or shared.
pub(crate) fn users(is_shared: bool) -> Result<LaneUsers, Fault> {
    Ok(match (job::query_thread()?, is_shared) {
        (THREAD_MULTIPLE, true) => LaneUsers::All,
        (THREAD_MULTIPLE, false) => LaneUsers::Thread(thread_number()),
        _ => LaneUsers::InTurn,
    })
}

/// Refuses a call that a program cannot make.
#[cold]
#[inline(never)]
fn refuse(job: &Job, sentence: impl FnOnce() -> String) -> Result<i32, Fault> {
    if job.debug {
        job.say(&format!("queue: {}", sentence()));
    }
    Ok(EINVAL)
}

/// The queue of `handle` where it is one of `uses`, or the result of the call.
macro_rules! find {
    ($job:ident, $handle:expr, $uses:expr) => {
        match $job
            .queues
            .find($handle)
            .filter(|queue| $uses.iter().any(|one| queue.is_used_for(*one)))
        {
            Some(queue) => queue,
            None => {
                return refuse($job, || {
                    format!(
                        "`queue` is {:#x}: this thread has no queue of this handle that takes the call; it may have been destroyed",
                        $handle
                    )
                });
            }
        }
    };
}
use find;

/// Queues that take operations.
const COMM: [QueueUse; 2] = [QueueUse::Comm, QueueUse::Qos];

/// Creates a queue (`shmemx_queue_create`): its handle, 0 where there is none. A data queue is
/// created by all members of `team` together.
///
/// # Errors
/// The library is not initialised.
pub fn create(team: Team, config: &QueueConfig) -> Result<(i32, usize), Fault> {
    let job = job::get()?;
    let refused = |sentence: &str| refuse(job, || sentence.to_owned()).map(|answer| (answer, 0));
    let kind = usize::try_from(config.kind).ok().and_then(|kind| KINDS.get(kind).copied());
    let class = usize::try_from(config.class).ok().and_then(|class| QueueClass::ALL.get(class));
    let (Some(kind), Some(class)) = (kind, class) else {
        return refused("`qtype` or `qos_class` is wrong; use types 0 to 2 and classes 0 to 3");
    };
    // A configuration of zeros requests no class, although 0 is the highest.
    let class = if config.has_class || kind == QueueUse::Qos { *class } else { QueueClass::Medium };
    let is_shared = match config.sharing {
        0 => false,
        1 if job::query_thread()? == THREAD_MULTIPLE => true,
        1 => return refused("a shared queue needs SHMEM_THREAD_MULTIPLE"),
        _ => return refused("`sharing_model` is wrong; use 0 (exclusive) or 1 (shared)"),
    };
    let Ok((entry, members)) = job.teams.get(team) else {
        return refused("`team` is no team of this PE");
    };
    let Some((number, handle)) = job.queues.take(job.segments.pes(), kind) else {
        return refused("this PE has no handle left for a queue; destroy one");
    };
    let queue = job.queues.table[number].get().expect("taken just now");
    queue.set_members(members);
    queue.class.store(class as u32, Ordering::Relaxed);
    let grant = job.grant(class, entry);
    queue.granted.store(grant.granted, Ordering::Relaxed);
    queue.mark.store(grant.mark, Ordering::Relaxed);
    queue.direct.store(0, Ordering::Relaxed);
    queue.far.clear(job.far.as_ref().map_or([0; 2], |far| far.sent(queue.far_class())));
    let gathers = job.queues.gathers() && kind == QueueUse::Comm;
    queue.gathers.store(gathers, Ordering::Relaxed);
    queue.lane.configure(&LaneConfig {
        users: users(is_shared)?,
        updates_max: if config.elements_max == 0 { u64::MAX } else { config.elements_max },
        threshold: job.queues.threshold,
        deadline: deadline(config.timeout_s, class),
    });
    if kind == QueueUse::Data {
        let made = ChannelQueue::create(job, team, class.far(), config)?;
        let is_made = made.is_some();
        *queue.data() = made;
        if !is_made {
            job.queues.release(queue);
            return refused(
                "a PE of the team lacks memory for the queue, or gave another `config`",
            );
        }
    }
    Ok((0, handle))
}

/// Returns how long an element may wait.
fn deadline(timeout_s: f64, class: QueueClass) -> Option<Nanos> {
    match timeout_s {
        seconds if seconds == f64::INFINITY => None,
        seconds if seconds > 0.0 => Some(Nanos((seconds * 1e9) as u64)),
        _ => Some(class.deadline()),
    }
}

/// Destroys a queue (`shmemx_queue_destroy`): [`EAGAIN`] where something is outstanding, and the
/// queue stays. A data queue is destroyed by all members together.
///
/// # Errors
/// The library is not initialised.
pub fn destroy(handle: usize) -> Result<i32, Fault> {
    let job = job::get()?;
    let queue = find!(job, handle, KINDS);
    if queue.is_used_for(QueueUse::Data) {
        queue.settle(job)?;
        let mut data = queue.data();
        if let Some(one) = &mut *data
            && !one.release(job)?
        {
            return Ok(EAGAIN);
        }
        *data = None;
    } else if queue.lane.progress(job)? + queue.far_outstanding(job) > 0 {
        return Ok(EAGAIN);
    }
    job.queues.release(queue);
    Ok(0)
}

/// Sends what has waited long enough and applies what came (`shmemx_queue_progress`). Returns how
/// many elements are outstanding.
///
/// # Errors
/// A PE sent this one what is no update.
pub fn progress(handle: usize) -> Result<i32, Fault> {
    let job = job::get()?;
    let queue = find!(job, handle, KINDS);
    let mut outstanding = queue.lane.progress(job)? + queue.progress_far(job);
    if queue.is_used_for(QueueUse::Data)
        && let Some(data) = &mut *queue.data()
    {
        data.publish(job);
        outstanding = data.outstanding();
    }
    job.ask();
    Ok(i32::try_from(outstanding).unwrap_or(i32::MAX))
}

/// Orders what was pushed to a PE before what is pushed to it afterwards (`shmemx_queue_fence`).
///
/// # Errors
/// As [`progress`].
pub fn fence(handle: usize) -> Result<i32, Fault> {
    let job = job::get()?;
    find!(job, handle, COMM).lane.flush(job)?;
    Ok(0)
}

/// Completes everything, for all PEs to see (`shmemx_queue_flush`). That of a data queue is called
/// by all members together.
///
/// # Errors
/// As [`progress`].
pub fn flush(handle: usize) -> Result<i32, Fault> {
    let job = job::get()?;
    let queue = find!(job, handle, KINDS);
    if queue.is_used_for(QueueUse::Data) {
        queue.settle(job)?;
        return Ok(0);
    }
    queue.lane.flush(job)?;
    if let Some(far) = &job.far {
        far.quiet(queue.far_class());
    }
    Ok(0)
}

/// Sends everything (`shmemx_queue_flush_nbi`): 0 and the ticket for [`test()`].
///
/// # Errors
/// As [`progress`].
pub fn flush_nbi(handle: usize) -> Result<(i32, u64), Fault> {
    let job = job::get()?;
    let find = || {
        find!(job, handle, COMM);
        Ok(0)
    };
    match (find()?, job.queues.find(handle)) {
        (0, Some(queue)) => {
            if let Some(far) = &job.far {
                far.send(queue.far_class());
            }
            Ok((0, queue.lane.flush_later(job)?))
        }
        (answer, _) => Ok((answer, 0)),
    }
}

/// Returns 1 when everything is complete that was pushed before the flush of `ticket`
/// (`shmemx_queue_test`).
///
/// # Errors
/// As [`progress`].
pub fn test(handle: usize, ticket: u64) -> Result<i32, Fault> {
    let job = job::get()?;
    let queue = find!(job, handle, COMM);
    job.ask();
    let is_done = queue.lane.is_done(job, ticket)? && queue.far_outstanding(job) == 0;
    Ok(i32::from(is_done))
}

/// Reads what a queue is and did (`shmemx_queue_attr`).
///
/// # Errors
/// The library is not initialised.
pub fn attributes(handle: usize) -> Result<(i32, QueueAttributes), Fault> {
    let job = job::get()?;
    let mut read = QueueAttributes::default();
    let mut fill = || {
        let queue = find!(job, handle, KINDS);
        read = queue.attributes(job, handle);
        Ok(0)
    };
    Ok((fill()?, read))
}

impl Queue {
    /// Returns when all members of a data queue have the counts of this one, and this one has
    /// theirs. Called by all members together.
    fn settle(&self, job: &'static Job) -> Result<(), Fault> {
        let team = self.data().as_mut().map(|data| {
            data.publish(job);
            data.team()
        });
        if let Some(far) = &job.far {
            far.quiet(self.far_class());
        }
        // Not with the lock: a member may have to pop before another one comes here.
        if let Some(team) = team {
            Gathering::new(job, team)?.wait();
        }
        Ok(())
    }

    fn attributes(&self, job: &Job, handle: usize) -> QueueAttributes {
        let counts = &self.lane.counts;
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let [closed_full, closed_deadline, closed_flush]: [u64; CAUSES] =
            [0, 1, 2].map(|cause| count(&counts.closes[cause]));
        let sent = |far: &Far| self.far.sent(far.sent(self.far_class()));
        let [far_messages, far_bytes] = job.far.as_ref().map_or([0; 2], sent);
        let mut read = QueueAttributes {
            queue_id: handle as u64,
            outstanding_elems: self.lane.outstanding() + self.far_outstanding(job),
            available_elems: self.room(job),
            granted_class: self.granted.load(Ordering::Relaxed),
            granted_mark: self.mark.load(Ordering::Relaxed),
            elements: count(&self.direct) + count(&counts.updates) + self.lane.open_updates(),
            messages: count(&counts.messages),
            bytes: count(&counts.bytes),
            far_messages,
            far_bytes,
            closed_full,
            closed_deadline,
            closed_flush,
            ..QueueAttributes::default()
        };
        let delays = match &*self.data() {
            Some(data) => {
                data.describe(&mut read);
                data.delays().clone()
            }
            None => Histogram::merged([&*counts.delays(), &*self.far.delays()]),
        };
        let quantile = |of| delays.quantile(of).finite().unwrap_or_default();
        (read.p50_ns, read.p99_ns) = (quantile(Quantile::P50), quantile(Quantile::P99));
        read
    }
}
