//! Data queues: elements that one PE pushes and another one pops.
//!
//! # Model
//! A data queue has a channel for each ordered pair of members, a ring of bytes in the pool of the
//! PE that pops. A push copies into the channel. The target learns of it a batch at a time, when
//! the program makes progress, or when the channel is full. Elements of a pair come out in the order
//! in which they went in.
//!
//! *Termination* is found by counting. Each member publishes how many bytes it pushed and popped,
//! and whether it is done, at every [`advance`]; nothing else changes these numbers. A member that finds all
//! done, and as many bytes popped in a first look as pushed in a second one, knows that nothing is
//! on its way and that nobody will push again: a member that is done pushes only because of what it
//! popped, and counts both together.
//!
//! | bytes of a member's block | written by | is |
//! |---|---|---|
//! | 0, 8, 16 | its owner | done, bytes pushed, bytes popped |
//! | 64 and on, for each member | that member, then the owner | pushed and told; 64 further, popped; 128 further, the ring |
//!
//! # Source
//! Four counters: F. Mattern, "Algorithms for distributed termination detection", 1987.
//!
//! # Invariants
//! I1. An element is pushed whole or not at all, and popped whole.
//! I2. No more bytes wait in a channel than its share of what the program allowed.

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_runtime::near::MappedPart;

use super::comm::Elements;
use super::{EAGAIN, QueueAttributes, QueueConfig, QueueUse, find, refuse};
use crate::address::{Caller, Place};
use crate::collective::sync::Gathering;
use crate::fault::Fault;
use crate::job::{self, Job};
use crate::team::{Members, Team};

/// `SHMEMX_PE_ANY`: any PE that has something.
pub const PE_ANY: i32 = -1;
/// Bytes that may wait in a channel where the program does not say how many: more than a second-level
/// cache line of every PE, less than the cache.
const CHANNEL: usize = 64 << 10;
/// Bytes of the counters of a block, and of those of a channel.
const COUNTERS: usize = 64;
const CHANNEL_COUNTERS: usize = 128;
/// Bytes of which the target learns together.
const BATCH: u64 = 1_024;
/// An offset that stands for no block.
const NONE: u64 = u64::MAX;

/// What [`advance`] returns.
pub const COMPLETE: i32 = 0;
/// A member has more to push.
pub const WORKING: i32 = 1;
/// All members are done, and something is still on its way.
pub const ENDGAME: i32 = 2;

/// A channel, at one of its ends.
#[derive(Clone, Copy, Debug)]
struct Channel {
    told: &'static AtomicU64,
    popped: &'static AtomicU64,
    ring: MappedPart,
}

/// What this PE knows of the channel to a member, and of the one from it.
#[derive(Clone, Copy, Debug)]
struct Member {
    to: Channel,
    from: Channel,
    /// The counters of its block.
    done: &'static AtomicU64,
    pushed_total: &'static AtomicU64,
    popped_total: &'static AtomicU64,
    /// Bytes pushed to it; how many of them `pushed_total` shows it; how many it had popped when this
    /// PE last looked.
    pushed: u64,
    told: u64,
    popped_there: u64,
    /// Bytes popped from it, and those that it had told of when this PE last looked.
    popped: u64,
    told_here: u64,
}

/// A data queue of this PE.
#[derive(Debug)]
pub(super) struct ChannelQueue {
    team: Team,
    me: usize,
    members: Vec<Member>,
    block: usize,
    /// Bytes that may wait in a channel, and the length of its ring, a power of two.
    share: u64,
    length: u64,
    element_size: usize,
    /// The member at which the next look for elements of any begins.
    next: usize,
    batch: u64,
    is_complete: bool,
    /// Whether the queue counts as unfinished: a member may not know of everything.
    is_unfinished: bool,
    told_batches: u64,
}

impl ChannelQueue {
    /// Creates the queue with all members of `team`; `None` for all where one has no room, or asks
    /// for another share.
    pub(super) fn create(
        job: &'static Job,
        team: Team,
        config: &QueueConfig,
    ) -> Result<Option<Self>, Fault> {
        let all = Gathering::new(job, team)?;
        let (members, count) = (all.members, all.size());
        if (0..count).any(|index| !job.segments.is_near(members.pe(index))) {
            return Ok(None);
        }
        let share = match usize::try_from(config.bytes_max).unwrap_or(usize::MAX) {
            0 => CHANNEL,
            bytes => bytes,
        };
        let length = share.checked_next_power_of_two().map(|length| length.max(64));
        let bytes = length
            .and_then(|length| length.checked_add(CHANNEL_COUNTERS)?.checked_mul(count))
            .and_then(|bytes| bytes.checked_add(COUNTERS));
        let block = bytes.and_then(|bytes| take_block(job, bytes));
        let told =
            [block.map_or(NONE, |block| block as u64), share as u64, config.element_size as u64];
        let mut blocks = Vec::with_capacity(count);
        all.exchange(&told, |_, words| {
            let theirs = [0, 1, 2].map(|at| words[at].load(Ordering::Relaxed));
            let fits = theirs[0] != NONE && theirs[1..] == told[1..];
            blocks.extend(fits.then_some(theirs[0] as usize));
        });
        let (Some(block), Some(length)) = (block, length) else { return Ok(None) };
        if blocks.len() < count {
            job.queues.pool().give(block);
            return Ok(None);
        }
        let me = all.me();
        let member = |index: usize| Member::new(job, members, &blocks, (index, me), length);
        Ok(Some(Self {
            team,
            me,
            members: (0..count).map(member).collect(),
            block,
            share: share as u64,
            length: length as u64,
            element_size: config.element_size,
            next: 0,
            batch: if job.queues.threshold > 0 { BATCH.min(share as u64 / 2) } else { 0 },
            is_complete: false,
            is_unfinished: false,
            told_batches: 0,
        }))
    }

    /// Tells members of everything that was pushed to them.
    pub(super) fn publish(&mut self, job: &Job) {
        if std::mem::take(&mut self.is_unfinished) {
            job.queues.unfinished.fetch_sub(1, Ordering::Relaxed);
        }
        for member in &mut self.members {
            self.told_batches += u64::from(member.tell());
        }
    }

    /// Elements that were pushed and not popped, as far as it is known; bytes for elements of any
    /// size.
    pub(super) fn outstanding(&mut self, _job: &Job) -> u64 {
        let waiting = self.members.iter_mut().map(|member| {
            member.popped_there = member.to.popped.load(Ordering::Acquire);
            member.pushed - member.popped_there
        });
        waiting.sum::<u64>() / self.element_size.max(1) as u64
    }

    /// `shmemx_queue_flush` of all members: everything that was pushed is where it can be popped.
    pub(super) fn flush(&mut self, job: &'static Job) -> Result<i32, Fault> {
        self.publish(job);
        Gathering::new(job, self.team)?.wait();
        Ok(0)
    }

    /// Ends the queue for all members; whether it was empty everywhere.
    pub(super) fn release(&mut self, job: &'static Job) -> Result<bool, Fault> {
        self.publish(job);
        let all = Gathering::new(job, self.team)?;
        all.wait();
        let waits = self
            .members
            .iter()
            .any(|member| member.from.told.load(Ordering::Acquire) != member.popped);
        let mut is_empty = true;
        all.exchange(&[u64::from(waits)], |_, words| {
            is_empty &= words[0].load(Ordering::Relaxed) == 0;
        });
        if is_empty {
            job.queues.pool().give(self.block);
        }
        Ok(is_empty)
    }

    /// Bytes that wait here from member `pe`, and there from this one.
    fn sizes(&self, pe: usize) -> Option<(u64, u64)> {
        let member = self.members.get(pe)?;
        let incoming = member.from.told.load(Ordering::Acquire) - member.popped;
        Some((incoming, member.pushed - member.to.popped.load(Ordering::Acquire)))
    }

    pub(super) fn describe(&self, _job: &Job, read: &mut QueueAttributes) {
        let size = self.element_size.max(1) as u64;
        let pushed: u64 = self.members.iter().map(|member| member.pushed).sum();
        let waiting = |member: &Member| member.pushed - member.to.popped.load(Ordering::Acquire);
        read.outstanding_elems = self.members.iter().map(waiting).sum::<u64>() / size;
        read.available_elems =
            self.members.iter().map(|member| self.share - waiting(member)).sum::<u64>() / size;
        read.elements = pushed / size;
        read.bytes = pushed;
        read.messages = self.told_batches;
    }

    fn push(&mut self, source: Caller, bytes: u64, pe: usize) -> ChannelPush {
        let (share, length) = (self.share, self.length);
        let Some(member) = self.members.get_mut(pe).filter(|_| bytes <= share) else {
            return ChannelPush::Never;
        };
        if member.pushed + bytes - member.popped_there > share {
            member.popped_there = member.to.popped.load(Ordering::Acquire);
            if member.pushed + bytes - member.popped_there > share {
                self.told_batches += u64::from(member.tell());
                return ChannelPush::Full;
            }
        }
        for (at, from, count) in pieces(member.pushed, bytes, length) {
            in_ring(member.to.ring, at, count).put(source.plus(from as isize), count);
        }
        member.pushed += bytes;
        if member.pushed - member.told >= self.batch {
            self.told_batches += u64::from(member.tell());
        }
        ChannelPush::Kept
    }

    /// Pops `bytes` bytes of a member, or of any; from which.
    fn pop(&mut self, dest: Caller, bytes: u64, pe: Option<usize>) -> Option<usize> {
        let length = self.length;
        let count = self.members.len();
        let (first, tries) = pe.map_or((self.next, count), |pe| (pe, 1));
        let in_turn = (0..tries).map(|step| (first + step) % count);
        let index = in_turn.into_iter().find(|index| {
            let member = &mut self.members[*index];
            if member.told_here - member.popped < bytes {
                member.told_here = member.from.told.load(Ordering::Acquire);
            }
            member.told_here - member.popped >= bytes
        })?;
        let member = &mut self.members[index];
        for (at, to, count) in pieces(member.popped, bytes, length) {
            in_ring(member.from.ring, at, count).get(dest.plus(to as isize), count);
        }
        member.popped += bytes;
        member.from.popped.store(member.popped, Ordering::Release);
        if pe.is_none() {
            self.next = index + 1;
        }
        Some(index)
    }

    fn advance(&mut self, job: &'static Job, pushing: Pushing) -> Result<i32, Fault> {
        if self.is_complete {
            return Ok(COMPLETE);
        }
        self.publish(job);
        let sum = |of: fn(&Member) -> u64| self.members.iter().map(of).sum::<u64>();
        let (pushed, popped) = (sum(|member| member.pushed), sum(|member| member.popped));
        let own = &self.members[self.me];
        // What this PE pushed because of what it popped is counted first.
        own.pushed_total.store(pushed, Ordering::Release);
        own.popped_total.store(popped, Ordering::Release);
        own.done.store(u64::from(pushing == Pushing::Over), Ordering::Release);
        let mut all_done = true;
        let mut look = |of: fn(&Member) -> &AtomicU64| {
            self.members.iter().fold(0u64, |sum, member| {
                all_done &= member.done.load(Ordering::Acquire) == 1;
                sum.wrapping_add(of(member).load(Ordering::Acquire))
            })
        };
        let popped = look(|member| member.popped_total);
        std::sync::atomic::fence(Ordering::SeqCst);
        let pushed = look(|member| member.pushed_total);
        self.is_complete = all_done && popped == pushed;
        Ok(match (all_done, self.is_complete) {
            (_, true) => COMPLETE,
            (true, false) => ENDGAME,
            (false, false) => WORKING,
        })
    }
}

/// Whether a program has more to push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushing {
    /// It has.
    Continues,
    /// Nothing, but because of what it pops.
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
    /// Member `index` of a queue with these blocks, as member `me` sees it.
    fn new(
        job: &Job,
        members: Members,
        blocks: &[usize],
        (index, me): (usize, usize),
        length: usize,
    ) -> Self {
        let part = |owner: usize, at: usize, length: usize| {
            let pool = job.near.pool(job.queues.rings.place(members.pe(owner)).unwrap_or_default());
            MappedPart { start: pool.start + blocks[owner] + at, length }
        };
        let counter = |owner: usize, at: usize| {
            let place = Place::in_part(part(owner, at, 8), 0, 8);
            place.and_then(Place::word::<u64>).expect("counters are aligned")
        };
        let channel = |owner: usize, source: usize| {
            let at = COUNTERS + source * (CHANNEL_COUNTERS + length);
            Channel {
                told: counter(owner, at),
                popped: counter(owner, at + 64),
                ring: part(owner, at + CHANNEL_COUNTERS, length),
            }
        };
        Self {
            to: channel(index, me),
            from: channel(me, index),
            done: counter(index, 0),
            pushed_total: counter(index, 8),
            popped_total: counter(index, 16),
            pushed: 0,
            told: 0,
            popped_there: 0,
            popped: 0,
            told_here: 0,
        }
    }

    /// Tells the member what was pushed to it; whether it did not know.
    fn tell(&mut self) -> bool {
        let is_new = self.told != self.pushed;
        if is_new {
            self.told = self.pushed;
            self.to.told.store(self.told, Ordering::Release);
        }
        is_new
    }
}

/// The pieces of `bytes` bytes in a ring from byte `from` on: where in the ring, where in the
/// caller's memory, how many.
fn pieces(from: u64, bytes: u64, length: u64) -> impl Iterator<Item = (usize, usize, usize)> {
    let at = from & (length - 1);
    let first = bytes.min(length - at);
    let both = [(at, 0, first), (0, first, bytes - first)];
    let number = |(at, of, count): (u64, u64, u64)| (at as usize, of as usize, count as usize);
    both.into_iter().filter(|(_, _, count)| *count > 0).map(number)
}

/// The place of `bytes` bytes of a ring, which they do not leave.
#[inline]
fn in_ring(ring: MappedPart, at: usize, bytes: usize) -> Place {
    Place::in_part(ring, at, bytes).expect("pieces lie in their ring")
}

/// Takes `bytes` bytes of this PE's pool, which are zero where the counters are.
fn take_block(job: &Job, bytes: usize) -> Option<usize> {
    let block = job.queues.pool().take(bytes, COUNTERS)?;
    if job.near.commit_pool(block, block + bytes).is_err() {
        job.queues.pool().give(block);
        return None;
    }
    let pool = job.near.pool(job.queues.rings.place(job.me)?);
    let zeros = [0u8; 4_096];
    for at in (0..bytes).step_by(zeros.len()) {
        let count = zeros.len().min(bytes - at);
        Place::in_part(pool, block + at, count)?.put(Caller::from_slice(&zeros), count);
    }
    Some(block)
}

/// `shmemx_queue_data_push`: 0, [`EAGAIN`] where the channel is full, or
/// [`EINVAL`](super::EINVAL).
///
/// # Errors
/// The library is not initialised.
pub fn push(handle: usize, source: Caller, elements: Elements, pe: i32) -> Result<i32, Fault> {
    with(handle, elements, source, |job, data, bytes| {
        if data.is_complete {
            return refuse(job, || "all members were done with the queue".to_owned());
        }
        let pushed = match usize::try_from(pe) {
            Ok(pe) => data.push(source, bytes, pe),
            Err(_) => ChannelPush::Never,
        };
        match pushed {
            ChannelPush::Kept => {
                if !std::mem::replace(&mut data.is_unfinished, true) {
                    job.queues.unfinished.fetch_add(1, Ordering::Relaxed);
                }
                Ok(0)
            }
            ChannelPush::Full => Ok(EAGAIN),
            ChannelPush::Never => {
                refuse(job, || format!("PE {pe} is none, or never has room for {bytes} bytes"))
            }
        }
    })
}

/// `shmemx_queue_data_pop`: 0 and the PE that pushed, [`EAGAIN`] where that many elements are not
/// there, or [`EINVAL`](super::EINVAL).
///
/// # Errors
/// The library is not initialised.
pub fn pop(handle: usize, dest: Caller, elements: Elements, pe: i32) -> Result<(i32, i32), Fault> {
    let mut source = pe;
    let popped = with(handle, elements, dest, |job, data, bytes| {
        let asked = usize::try_from(pe).ok();
        if asked.map_or(pe != PE_ANY, |asked| asked >= data.members.len()) {
            return refuse(job, || format!("PE {pe} is none of the queue's team"));
        }
        match data.pop(dest, bytes, asked) {
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

/// `shmemx_queue_data_size`: bytes that wait here from PE `pe`, and there from this one.
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
            None => return refuse(job, || format!("PE {pe} is none of the queue's team")),
        }
        Ok(0)
    };
    Ok((look()?, found))
}

/// `shmemx_queue_data_advance`: [`COMPLETE`], [`WORKING`], [`ENDGAME`], or
/// [`EINVAL`](super::EINVAL). When it is over the program promises that it pushes nothing more, but
/// because of what it pops.
///
/// # Errors
/// A PE that gave this one what is no update.
pub fn advance(handle: usize, pushing: Pushing) -> Result<i32, Fault> {
    let job = job::get()?;
    let queue = find!(job, handle, [QueueUse::Data]);
    job.queues.rings.take_news(job)?;
    job.ask();
    match &mut *queue.data() {
        Some(data) => data.advance(job, pushing),
        None => refuse(job, || "the queue has no data".to_owned()),
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
            "elements of the queue have another size, or the pointer is null".to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces__what_reaches_the_end_continues_at_the_beginning() {
        let all = |from, bytes| pieces(from, bytes, 64).collect::<Vec<_>>();
        assert_eq!(all(0, 64), [(0, 0, 64)]);
        assert_eq!(all(64 + 60, 4), [(60, 0, 4)]);
        assert_eq!(all(60, 10), [(60, 0, 4), (0, 4, 6)]);
        assert_eq!(all(5, 0), []);
    }
}
