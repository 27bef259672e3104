//! The memory of channels: what a member of a data queue reads of the others, and where it writes
//! for them.
//!
//! # Model
//! A member has a block in the pool of its host, with a part for each member. It reads its own
//! block only. Its counts and bytes for another member it writes into its part there: with stores where
//! that member is near, with elements of the stream to it where it is far. Both keep their order,
//! so a count is seen behind the bytes that it counts.
//!
//! | bytes of a part | written by the other member |
//! |---|---|
//! | 0 | how many bytes it pushed, as far as it announced them |
//! | 64 | how many bytes of this member it popped |
//! | 128, 152 | round, bytes pushed, bytes popped, by the parity of the round ([`super::ending`]) |
//! | 192 and on | the ring: bytes that it pushed |
//!
//! # Invariants
//! I1. A member writes its own parts only, and nobody else does.

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_proto::base::Class;
use clearway_runtime::near::MappedPart;

use super::ending::Tally;
use crate::address::{Caller, Place, Segment};
use crate::far::FarObject;
use crate::job::Job;

/// Bytes in front of the ring of a part.
const COUNTERS: usize = 192;
/// Blocks begin at multiples of a cache line.
const LINE: usize = 64;
/// The words of a part.
const ANNOUNCED: usize = 0;
const POPPED: usize = 64;
const TALLIES: [usize; 2] = [128, 152];

/// Where the parts of a block lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockShape {
    /// Bytes of a ring, a power of two.
    pub(super) ring: usize,
    members: usize,
}

impl BlockShape {
    /// Creates the shape of blocks for `members` members with room for `bytes` bytes from each;
    /// `None` where no memory has as many.
    pub(super) fn new(members: usize, bytes: usize) -> Option<Self> {
        let ring = bytes.checked_next_power_of_two()?.max(LINE);
        ring.checked_add(COUNTERS)?.checked_mul(members)?;
        Some(Self { ring, members })
    }

    const fn part(self) -> usize {
        COUNTERS + self.ring
    }

    /// Takes a block of this PE's pool, whose bytes are zero.
    pub(super) fn take(self, job: &Job) -> Option<usize> {
        let bytes = self.part() * self.members;
        let block = job.queues.pool().take(bytes, LINE)?;
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
}

/// The part of this member in another one's block.
#[derive(Clone, Copy, Debug)]
enum PartThere {
    Near(MappedPart),
    Far(FarObject),
}

/// The part of another member in this one's block, and the part of this one in the other's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    here: MappedPart,
    there: PartThere,
    announced: &'static AtomicU64,
    popped: &'static AtomicU64,
    ring: u64,
}

impl Parts {
    /// Finds the parts of member `other`, which is PE `pe`, and of member `me`, in the blocks that
    /// the members took. `None` where a block leaves its pool.
    pub(super) fn new(
        job: &'static Job,
        shape: BlockShape,
        class: Class,
        blocks: &[usize],
        (other, pe): (usize, usize),
        me: usize,
    ) -> Option<Self> {
        let at = |owner: usize, writer: usize| {
            let at = blocks.get(owner)?.checked_add(writer * shape.part())?;
            at.is_multiple_of(LINE).then_some(at)
        };
        let near = |place, at| {
            let start = Place::in_part(job.near.pool(place), at, shape.part())?.pointer().addr();
            Some(MappedPart { start, length: shape.part() })
        };
        let here = near(job.queues.rings.place(job.me)?, at(me, other)?)?;
        let there = match job.queues.rings.place(pe) {
            Some(place) => PartThere::Near(near(place, at(other, me)?)?),
            None => {
                let far = job.far.as_ref()?;
                PartThere::Far(far.object(class, pe, Segment::Pool, at(other, me)?))
            }
        };
        let word = |at: usize| Place::in_part(here, at, 8)?.word::<u64>();
        let (announced, popped) = (word(ANNOUNCED)?, word(POPPED)?);
        Some(Self { here, there, announced, popped, ring: shape.ring as u64 })
    }

    /// Returns whether the other member's memory is mapped here.
    #[inline]
    pub(super) fn is_near(&self) -> bool {
        matches!(self.there, PartThere::Near(_))
    }

    /// Returns how many pushed bytes the other member announced.
    #[inline]
    pub(super) fn announced(&self) -> u64 {
        self.announced.load(Ordering::Acquire)
    }

    /// Returns how many popped bytes of this member the other one announced.
    #[inline]
    pub(super) fn popped(&self) -> u64 {
        self.popped.load(Ordering::Acquire)
    }

    /// Announces how many bytes this member pushed.
    pub(super) fn tell_pushed(&self, bytes: u64) {
        self.tell(ANNOUNCED, bytes);
    }

    /// Announces how many bytes of the other member this one popped.
    #[inline]
    pub(super) fn tell_popped(&self, bytes: u64) {
        self.tell(POPPED, bytes);
    }

    /// Sends the tally of this member in `round`.
    pub(super) fn tell_tally(&self, round: u64, tally: Tally) {
        let at = TALLIES[(round & 1) as usize];
        self.tell(at + 8, tally.pushed);
        self.tell(at + 16, tally.popped);
        // The member that sees the round reads the rest.
        self.tell(at, round);
    }

    /// Returns the tally of the other member in `round`, if it arrived.
    pub(super) fn tally(&self, round: u64) -> Option<Tally> {
        let at = TALLIES[(round & 1) as usize];
        let word = |at: usize| {
            let word = Place::in_part(self.here, at, size_of::<u64>())?.word::<u64>()?;
            Some(word.load(Ordering::Acquire))
        };
        let is_announced = word(at)? == round;
        is_announced.then_some(Tally { pushed: word(at + 8)?, popped: word(at + 16)? })
    }

    #[inline]
    fn tell(&self, at: usize, value: u64) {
        match self.there {
            PartThere::Near(part) => {
                let word = Place::in_part(part, at, size_of::<u64>()).and_then(Place::word::<u64>);
                word.expect("counters are aligned").store(value, Ordering::Release);
            }
            PartThere::Far(object) => {
                object.plus(at).put(Caller::from_slice(&[value]), size_of::<u64>());
            }
        }
    }

    /// Copies `bytes` bytes into the other member's ring, from byte `from` of all that were ever
    /// pushed on.
    #[inline]
    pub(super) fn put(&self, from: u64, source: Caller, bytes: u64) {
        for (at, of, count) in pieces(from, bytes, self.ring) {
            let source = source.plus(of as isize);
            match self.there {
                PartThere::Near(part) => in_ring(part, at, count).put(source, count),
                PartThere::Far(object) => object.plus(COUNTERS + at).put(source, count),
            }
        }
    }

    /// Copies `bytes` bytes out of the ring here, from byte `from` of all on.
    #[inline]
    pub(super) fn get(&self, from: u64, dest: Caller, bytes: u64) {
        for (at, to, count) in pieces(from, bytes, self.ring) {
            in_ring(self.here, at, count).get(dest.plus(to as isize), count);
        }
    }
}

/// Finds `bytes` bytes of the ring of a part, which they do not leave.
#[inline]
fn in_ring(part: MappedPart, at: usize, bytes: usize) -> Place {
    Place::in_part(part, COUNTERS + at, bytes).expect("pieces lie in their ring")
}

/// Returns the pieces of `bytes` bytes in a ring from byte `from` on: where in the ring, where in
/// the caller's memory, how many.
fn pieces(from: u64, bytes: u64, length: u64) -> impl Iterator<Item = (usize, usize, usize)> {
    let at = from & (length - 1);
    let first = bytes.min(length - at);
    let both = [(at, 0, first), (0, first, bytes - first)];
    let number = |(at, of, count): (u64, u64, u64)| (at as usize, of as usize, count as usize);
    both.into_iter().filter(|(_, _, count)| *count > 0).map(number)
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

    #[test]
    fn new__a_shape_has_room_for_each_member_or_is_none() {
        let shape = BlockShape::new(3, 100).expect("room");
        assert_eq!((shape.ring, shape.part()), (128, 320));
        assert_eq!(BlockShape::new(1, 1).expect("room").ring, LINE);
        assert!(BlockShape::new(2, usize::MAX).is_none());
        assert!(BlockShape::new(usize::MAX, 64).is_none());
    }
}
