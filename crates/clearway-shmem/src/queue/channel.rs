//! Data queues: elements that one PE pushes and another one pops.
//!
//! # Model
//! A data queue has a channel for each ordered pair of members, a ring of bytes in the pool of the
//! PE that pops. A push copies into the channel. The target sees pushed bytes a batch at a time, when
//! the program makes progress, or when the channel is full; to a far PE the bytes go then too, as
//! one element of the stream to it. The pusher learns in the same way how much was popped. Elements
//! of a pair come out in the order in which they went in.
//!
//! The end is found by counting (`ending`); `part` has the memory of channels.
//!
//! # Invariants
//! I1. An element is pushed whole or not at all, and popped whole.
//! I2. No more bytes wait in a channel than its share of what the program allowed.

use std::sync::atomic::Ordering;

use clearway_proto::base::{Class, LocalNs};
use clearway_proto::stats::Histogram;
use clearway_runtime::clock;

use super::comm::Elements;
use super::ending::{Ending, EndingState, Tally, TallyBoard};
use super::part::{BlockShape, Parts};
use super::{EAGAIN, QueueAttributes, QueueConfig, QueueUse, find, refuse};
use crate::address::Caller;
use crate::collective::sync::Gathering;
use crate::fault::Fault;
use crate::job::{self, Job};
use crate::team::Team;

/// `SHMEMX_PE_ANY`: any PE that has something.
pub const PE_ANY: i32 = -1;
/// Bytes that may wait in a channel where the program gives no number: more than a
/// second-level cache line of every PE, less than the cache.
const CHANNEL: usize = 64 << 10;
/// Bytes of which the other end learns together.
const BATCH: u64 = 1_024;
/// An offset that stands for no block.
const NONE: u64 = u64::MAX;

/// What [`advance`] returns.
pub const COMPLETE: i32 = 0;
/// A member has more to push.
pub const WORKING: i32 = 1;
/// All members are done, and something is still on its way.
pub const ENDGAME: i32 = 2;

/// What this PE knows of the channel to a member, and of the one from it.
#[derive(Debug)]
struct Member {
    parts: Parts,
    /// The last bytes that were pushed to it, where it is far: there they are of no use before they
    /// are announced, and together they are one element.
    staged: Vec<u8>,
    /// Bytes pushed to it; how many of them were announced to it; how many it had popped when this
    /// PE last looked.
    pushed: u64,
    announced: u64,
    popped_there: u64,
    /// Bytes popped from it; how many of them were reported to it; how many pushed bytes it had
    /// announced when this PE last looked.
    popped: u64,
    reported: u64,
    announced_here: u64,
    /// How many bytes have to be popped there, and when the last of them was pushed: one push that
    /// is timed.
    timed: Option<(u64, LocalNs)>,
}

/// A data queue of this PE.
#[derive(Debug)]
pub(super) struct ChannelQueue {
    team: Team,
    members: Vec<Member>,
    block: usize,
    /// The class of what travels to far members.
    class: Class,
    /// Bytes that may wait in a channel.
    share: u64,
    element_size: usize,
    /// The member at which the next look for elements of any begins.
    next: usize,
    batch: u64,
    ending: Ending,
    /// Whether the queue counts as unfinished: something may not be announced to a member.
    is_unfinished: bool,
    announced_batches: u64,
    delays: Histogram,
}

impl ChannelQueue {
    /// Creates the queue with all members of `team`; `None` for all where one has no room, or has
    /// another share.
    pub(super) fn create(
        job: &'static Job,
        team: Team,
        class: Class,
        config: &QueueConfig,
    ) -> Result<Option<Self>, Fault> {
        let all = Gathering::new(job, team)?;
        let (members, count) = (all.members, all.size());
        let share = match usize::try_from(config.bytes_max).unwrap_or(usize::MAX) {
            0 => CHANNEL,
            bytes => bytes,
        };
        let shape = BlockShape::new(count, share);
        let block = shape.and_then(|shape| shape.take(job));
        let announced = [
            block.map_or(NONE, |block| block as u64),
            share as u64,
            config.element_size as u64,
            class.index() as u64,
        ];
        let mut blocks = Vec::with_capacity(count);
        all.exchange(&announced, |_, words| {
            let theirs = [0, 1, 2, 3].map(|at| words[at].load(Ordering::Relaxed));
            let fits = theirs[0] != NONE && theirs[1..] == announced[1..];
            blocks.extend(fits.then_some(theirs[0] as usize));
        });
        let (Some(block), Some(shape)) = (block, shape) else { return Ok(None) };
        let member = |index: usize| {
            let other = (index, members.pe(index));
            Some(Member::new(Parts::new(job, shape, class, &blocks, other, all.me())?))
        };
        let found: Option<Vec<Member>> = (0..count).map(member).collect();
        let Some(members) = found.filter(|_| blocks.len() == count) else {
            job.queues.pool().give(block);
            return Ok(None);
        };
        Ok(Some(Self {
            team,
            members,
            block,
            class,
            share: share as u64,
            element_size: config.element_size,
            next: 0,
            batch: if job.queues.threshold > 0 { BATCH.min(share as u64 / 2) } else { 0 },
            ending: Ending::default(),
            is_unfinished: false,
            announced_batches: 0,
            delays: Histogram::new(),
        }))
    }

    /// Announces to members everything that was pushed to them and popped from them.
    pub(super) fn publish(&mut self, job: &Job) {
        if std::mem::take(&mut self.is_unfinished) {
            job.queues.unfinished.fetch_sub(1, Ordering::Relaxed);
        }
        for member in &mut self.members {
            self.announced_batches += u64::from(member.tell());
            member.report();
        }
    }

    /// Notes that something may not be announced to a member.
    fn mark_unfinished(&mut self, job: &Job, index: usize) {
        if !std::mem::replace(&mut self.is_unfinished, true) {
            job.queues.unfinished.fetch_add(1, Ordering::Relaxed);
        }
        if self.members.get(index).is_some_and(|member| !member.parts.is_near()) {
            job.queues.note_far(self.class);
        }
    }

    /// Counts the elements that were pushed and not popped, as far as it is known; bytes for
    /// elements of any size.
    pub(super) fn outstanding(&mut self) -> u64 {
        let waiting = self.members.iter_mut().map(|member| {
            member.look(&mut self.delays);
            member.pushed - member.popped_there
        });
        waiting.sum::<u64>() / self.element_size.max(1) as u64
    }

    /// Returns the nanoseconds from pushes until this PE saw that they were popped.
    pub(super) fn delays(&self) -> &Histogram {
        &self.delays
    }

    /// Returns the team whose members flush and release the queue together.
    pub(super) fn team(&self) -> Team {
        self.team
    }

    /// Ends the queue for all members, after everything was announced to them. Returns whether it was
    /// empty everywhere.
    pub(super) fn release(&mut self, job: &'static Job) -> Result<bool, Fault> {
        let waits = self.members.iter().any(|member| member.parts.announced() != member.popped);
        let mut is_empty = true;
        Gathering::new(job, self.team)?.exchange(&[u64::from(waits)], |_, words| {
            is_empty &= words[0].load(Ordering::Relaxed) == 0;
        });
        if is_empty {
            job.queues.pool().give(self.block);
        }
        Ok(is_empty)
    }

    /// Returns the bytes that wait here from member `pe`, and there from this one.
    fn sizes(&self, pe: usize) -> Option<(u64, u64)> {
        let member = self.members.get(pe)?;
        let incoming = member.parts.announced() - member.popped;
        Some((incoming, member.pushed - member.parts.popped()))
    }

    pub(super) fn describe(&self, read: &mut QueueAttributes) {
        let size = self.element_size.max(1) as u64;
        let pushed: u64 = self.members.iter().map(|member| member.pushed).sum();
        let waiting = |member: &Member| member.pushed - member.parts.popped();
        read.outstanding_elems = self.members.iter().map(waiting).sum::<u64>() / size;
        read.available_elems =
            self.members.iter().map(|member| self.share - waiting(member)).sum::<u64>() / size;
        read.elements = pushed / size;
        read.bytes = pushed;
        read.messages = self.announced_batches;
    }

    fn push(&mut self, job: &Job, source: Caller, bytes: u64, pe: usize) -> ChannelPush {
        let share = self.share;
        let Some(member) = self.members.get_mut(pe).filter(|_| bytes <= share) else {
            return ChannelPush::Never;
        };
        if member.pushed + bytes - member.popped_there > share {
            member.look(&mut self.delays);
            if member.pushed + bytes - member.popped_there > share {
                self.announced_batches += u64::from(member.tell());
                return ChannelPush::Full;
            }
        }
        member.put(source, bytes);
        if member.timed.is_none() {
            member.timed = Some((member.pushed, clock::now()));
        }
        if member.pushed - member.announced >= self.batch {
            self.announced_batches += u64::from(member.tell());
        }
        self.mark_unfinished(job, pe);
        ChannelPush::Kept
    }

    /// Pops `bytes` bytes of a member, or of any. Returns the member.
    fn pop(&mut self, job: &Job, dest: Caller, bytes: u64, pe: Option<usize>) -> Option<usize> {
        let count = self.members.len();
        let (first, tries) = pe.map_or((self.next, count), |pe| (pe, 1));
        // A division takes as long as the copy of an element.
        let in_turn = (first..first + tries).map(|at| if at < count { at } else { at - count });
        let index = in_turn.into_iter().find(|index| {
            let member = &mut self.members[*index];
            if member.announced_here - member.popped < bytes {
                member.announced_here = member.parts.announced();
            }
            member.announced_here - member.popped >= bytes
        })?;
        let member = &mut self.members[index];
        member.parts.get(member.popped, dest, bytes);
        member.popped += bytes;
        let is_near = member.parts.is_near();
        // Room that was not announced to a far member is of no use to it.
        if is_near || member.popped - member.reported >= self.batch {
            member.report();
        }
        if !is_near {
            self.mark_unfinished(job, index);
        }
        if pe.is_none() {
            self.next = index + 1;
        }
        Some(index)
    }

    fn advance(&mut self, job: &'static Job, pushing: Pushing) -> i32 {
        self.publish(job);
        self.members.iter_mut().for_each(|member| member.look(&mut self.delays));
        if self.ending.is_complete() {
            return COMPLETE;
        }
        if pushing == Pushing::Continues {
            return WORKING;
        }
        let own = self.members.iter().fold(Tally::default(), |sum, member| Tally {
            pushed: sum.pushed + member.pushed,
            popped: sum.popped + member.popped,
        });
        match self.ending.advance(own, &mut self.members.as_mut_slice()) {
            EndingState::Working => WORKING,
            EndingState::Endgame => ENDGAME,
            EndingState::Complete => COMPLETE,
        }
    }
}

impl TallyBoard for &mut [Member] {
    fn tell(&mut self, round: u64, tally: Tally) {
        self.iter().for_each(|member| member.parts.tell_tally(round, tally));
    }

    fn sum(&self, round: u64) -> Option<Tally> {
        self.iter().try_fold(Tally::default(), |sum, member| {
            let announced = member.parts.tally(round)?;
            // Members compute their counts themselves; only equality counts.
            Some(Tally {
                pushed: sum.pushed.wrapping_add(announced.pushed),
                popped: sum.popped.wrapping_add(announced.popped),
            })
        })
    }
}

/// Whether a program has more to push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushing {
    /// It has.
    Continues,
    /// Nothing, but in response to what it pops.
    Over,
}

impl Pushing {
    /// Reads the argument of C.
    pub(crate) fn from_done(done: i32) -> Self {
        if done == 0 { Self::Continues } else { Self::Over }
    }
}

/// What became of elements that were pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChannelPush {
    Kept,
    Full,
    /// The channel never holds as many, or there is no such PE.
    Never,
}

impl Member {
    fn new(parts: Parts) -> Self {
        Self {
            parts,
            staged: Vec::new(),
            pushed: 0,
            announced: 0,
            popped_there: 0,
            popped: 0,
            reported: 0,
            announced_here: 0,
            timed: None,
        }
    }

    /// Pushes `bytes` bytes to the member, which has room for them.
    #[inline]
    fn put(&mut self, source: Caller, bytes: u64) {
        if self.parts.is_near() || bytes >= BATCH {
            self.send();
            self.parts.put(self.pushed, source, bytes);
        } else {
            let begin = self.staged.len();
            self.staged.resize(begin + bytes as usize, 0);
            source.copy_to(&mut self.staged[begin..]);
        }
        self.pushed += bytes;
    }

    /// Sends what was pushed and waits here.
    fn send(&mut self) {
        let bytes = self.staged.len() as u64;
        if bytes > 0 {
            self.parts.put(self.pushed - bytes, Caller::from_slice(&self.staged), bytes);
            self.staged.clear();
        }
    }

    /// Reads how much the member popped.
    fn look(&mut self, delays: &mut Histogram) {
        self.popped_there = self.parts.popped();
        if let Some((_, since)) = self.timed.take_if(|(bytes, _)| *bytes <= self.popped_there) {
            delays.record(clock::now().since(since).0);
        }
    }

    /// Announces to the member what was pushed to it. Returns whether there was anything.
    fn tell(&mut self) -> bool {
        let is_new = self.announced != self.pushed;
        if is_new {
            self.send();
            self.announced = self.pushed;
            self.parts.tell_pushed(self.announced);
        }
        is_new
    }

    /// Announces to the member what was popped from it, if that is new.
    #[inline]
    fn report(&mut self) {
        if self.reported != self.popped {
            self.reported = self.popped;
            self.parts.tell_popped(self.popped);
        }
    }
}

/// Pushes elements to PE `pe` of the queue's team (`shmemx_queue_data_push`): 0, [`EAGAIN`] where
/// the channel is full, or [`EINVAL`](super::EINVAL).
///
/// # Errors
/// The library is not initialised.
pub fn push(handle: usize, source: Caller, elements: Elements, pe: i32) -> Result<i32, Fault> {
    with(handle, elements, source, |job, data, bytes| {
        if data.ending.is_complete() {
            return refuse(job, || {
                "the queue is complete: shmemx_queue_data_advance returned 0".to_owned()
            });
        }
        let pushed = match usize::try_from(pe) {
            Ok(pe) => data.push(job, source, bytes, pe),
            Err(_) => ChannelPush::Never,
        };
        match pushed {
            ChannelPush::Kept => Ok(0),
            ChannelPush::Full => {
                job.ask();
                Ok(EAGAIN)
            }
            ChannelPush::Never => refuse(job, || {
                format!(
                    "PE {pe} is not in the queue's team, or {bytes} bytes are more than `max_bytes`"
                )
            }),
        }
    })
}

/// Pops elements of PE `pe`, or of any (`shmemx_queue_data_pop`): 0 and the PE that pushed,
/// [`EAGAIN`] where that many elements are not there, or [`EINVAL`](super::EINVAL).
///
/// # Errors
/// The library is not initialised.
pub fn pop(handle: usize, dest: Caller, elements: Elements, pe: i32) -> Result<(i32, i32), Fault> {
    let mut source = pe;
    let popped = with(handle, elements, dest, |job, data, bytes| {
        let asked = usize::try_from(pe).ok();
        if asked.map_or(pe != PE_ANY, |asked| asked >= data.members.len()) {
            return refuse(job, || format!("PE {pe} is not in the queue's team"));
        }
        match data.pop(job, dest, bytes, asked) {
            Some(index) => source = index as i32,
            None => {
                // What this PE waits for may depend on what it pushed.
                data.publish(job);
                job.ask();
                return Ok(EAGAIN);
            }
        }
        Ok(0)
    })?;
    Ok((popped, source))
}

/// Returns the bytes that wait here from PE `pe`, and there from this one
/// (`shmemx_queue_data_size`).
///
/// # Errors
/// The library is not initialised.
pub fn sizes(handle: usize, pe: i32) -> Result<(i32, [u64; 2]), Fault> {
    let job = job::get()?;
    let mut found = [0; 2];
    let mut look = || {
        let queue = find!(job, handle, [QueueUse::Data]);
        let data = queue.data();
        let sizes =
            usize::try_from(pe).ok().zip(data.as_ref()).and_then(|(pe, data)| data.sizes(pe));
        match sizes {
            Some((incoming, outgoing)) => found = [incoming, outgoing],
            None => return refuse(job, || format!("PE {pe} is not in the queue's team")),
        }
        Ok(0)
    };
    Ok((look()?, found))
}

/// Returns whether the queue is complete (`shmemx_queue_data_advance`): [`COMPLETE`], [`WORKING`],
/// [`ENDGAME`], or [`EINVAL`](super::EINVAL). When pushing is over, the program pushes nothing more
/// but in response to what it pops.
///
/// # Errors
/// A PE that gave this one what is no update.
pub fn advance(handle: usize, pushing: Pushing) -> Result<i32, Fault> {
    let job = job::get()?;
    let queue = find!(job, handle, [QueueUse::Data]);
    job.queues.rings.take_news(job)?;
    job.ask();
    match &mut *queue.data() {
        Some(data) => Ok(data.advance(job, pushing)),
        None => refuse(job, || "the queue is no data queue".to_owned()),
    }
}

/// Runs `run` for elements of the queue and as many bytes, with memory of the caller.
fn with(
    handle: usize,
    elements: Elements,
    memory: Caller,
    run: impl FnOnce(&'static Job, &mut ChannelQueue, u64) -> Result<i32, Fault>,
) -> Result<i32, Fault> {
    let job = job::get()?;
    let queue = find!(job, handle, [QueueUse::Data]);
    let bytes = elements.bytes() as u64;
    match &mut *queue.data() {
        Some(data) if bytes > 0 && !memory.is_null() && data.takes(elements) => {
            run(job, data, bytes)
        }
        Some(_) if bytes == 0 => Ok(0),
        _ => refuse(job, || {
            "the elements are not of the queue's `elem_size`, or the pointer is null".to_owned()
        }),
    }
}

impl ChannelQueue {
    fn takes(&self, elements: Elements) -> bool {
        match self.element_size {
            0 => true,
            // Bytes are taken where they are whole elements.
            size if elements.size() == 1 => (elements.bytes()).is_multiple_of(size),
            size => elements.size() == size,
        }
    }
}
