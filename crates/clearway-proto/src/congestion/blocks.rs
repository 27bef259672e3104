//! Where gathered blocks lie, what they say, and whether all are here.
//!
//! # Model
//! Each block says whose it is and in which iteration it was given, modulo [`VARIANTS`]. A rank's
//! memory, which the application gives, holds its own blocks of all variants, and after them blocks
//! of all ranks, twice: those of odd and of even iterations. There a rank's own block is the first,
//! and that of the next place in the ring follows. When an iteration is over, one digest of all
//! blocks says whether each is the right one at its place.
//!
//! # Invariants
//! I1. An iteration's places are used again two iterations later, when nobody asks for its blocks
//!     any more.

use alloc::vec::Vec;

use crate::base::{Bytes, Rank, crc32c};
use crate::wire::{Operation, Span, Token};

use super::context::CongestionContext;
use super::task::{VictimKind, VictimTask};

/// Bytes of a block.
const BLOCK: usize = VictimKind::Allgather.message().0 as usize;
/// Own blocks that differ: leftovers are of two iterations before, and of four only where nothing
/// was written in between.
const VARIANTS: u32 = 16;
/// Parts of one message at most: they are bits of a 128-bit number.
const PARTS_MAX: u32 = 128;
/// What a digest's token begins with, where that of a load has its number, which is smaller.
const TOKEN: u64 = 0xff << 48;

impl VictimTask {
    /// Returns memory that a rank needs to take part: see
    /// [`CongestionNode::give_memory`](super::CongestionNode::give_memory).
    pub fn memory(&self) -> Bytes {
        let blocks = u64::from(VARIANTS) + 2 * self.ring.len() as u64;
        Bytes(if self.kind == VictimKind::Allgather { blocks * BLOCK as u64 } else { 0 })
    }

    /// Writes what a victim of rank `me` needs to find in its memory.
    pub fn fill(memory: &mut [u8], me: Rank) {
        for (place, variant) in memory.chunks_exact_mut(BLOCK).zip(0..VARIANTS) {
            place.copy_from_slice(&block(me, variant));
        }
    }
}

fn block(rank: Rank, variant: u32) -> [u8; BLOCK] {
    let [a, b, c, d] = rank.0.to_le_bytes();
    let [e, f, g, h] = variant.to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// The blocks of one rank's iterations.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Ranks from this one on, in the order of the ring.
    order: Vec<Rank>,
    /// Blocks of one message.
    each: u32,
    /// What must lie there after an iteration; kept for its memory.
    expected: Vec<u8>,
}

impl Blocks {
    /// Creates the `Blocks` of the rank at place `me` of `ring`; a message has at most `body_max`
    /// bytes, or a 128th of the longest where that is more.
    pub(super) fn new(ring: &[Rank], me: u32, body_max: u32) -> Self {
        let (before, after) = ring.split_at(me as usize);
        let order = [after, before].concat();
        let each = (body_max / BLOCK as u32).max((order.len() as u32).div_ceil(PARTS_MAX));
        Self { expected: Vec::with_capacity(order.len() * BLOCK), each: each.max(1), order }
    }

    /// Returns the messages that `count` blocks take.
    pub(super) const fn parts(&self, count: u32) -> u8 {
        count.div_ceil(self.each) as u8
    }

    /// Returns the places of `count` blocks from the `first` on, of an iteration; none without
    /// memory.
    fn places(
        &self,
        cx: &CongestionContext<'_>,
        iteration: u32,
        first: u32,
        count: u32,
    ) -> Option<Span> {
        let (memory, ranks) = (cx.config.memory?, self.order.len() as u32);
        let offset = u64::from(VARIANTS + iteration % 2 * ranks + first) * BLOCK as u64;
        let length = count * BLOCK as u32;
        let is_there = offset + u64::from(length) <= u64::from(memory.length);
        is_there.then_some(Span { offset: memory.offset + offset, length, ..memory })
    }

    /// Returns the places of part `part` of `count` blocks from the `first` on, of an iteration;
    /// none without memory, or such a part.
    pub(super) fn part(
        &self,
        cx: &CongestionContext<'_>,
        iteration: u32,
        first: u32,
        count: u32,
        part: u8,
    ) -> Option<Span> {
        let skip = u32::from(part) * self.each;
        let rest = count.checked_sub(skip)?;
        self.places(cx, iteration, first + skip, rest.min(self.each))
    }

    /// Puts this rank's block of `iteration` to its place.
    pub(super) fn put_own(&self, cx: &mut CongestionContext<'_>, iteration: u32) {
        if let (Some(memory), Some(into)) = (cx.config.memory, self.places(cx, iteration, 0, 1)) {
            let offset = memory.offset + u64::from(iteration % VARIANTS) * BLOCK as u64;
            cx.out.operate(Operation::Copy {
                from: Span { offset, length: BLOCK as u32, ..memory },
                into,
            });
        }
    }

    /// Asks what lies at the places of `iteration`; the answer goes to [`Blocks::are_all_here`].
    pub(super) fn ask(&self, cx: &mut CongestionContext<'_>, iteration: u32) {
        let of = self.places(cx, iteration, 0, self.order.len() as u32).unwrap_or(Span::EMPTY);
        cx.out.operate(Operation::Digest { of, token: Token(TOKEN | u64::from(iteration)) });
    }

    /// Returns whether `digest` is that of the blocks of all of `iteration`; `None` when it answers
    /// another question.
    pub(super) fn are_all_here(
        &mut self,
        iteration: u32,
        token: Token,
        digest: u64,
    ) -> Option<bool> {
        (token == Token(TOKEN | u64::from(iteration))).then(|| {
            self.expected.clear();
            self.expected
                .extend(self.order.iter().flat_map(|rank| block(*rank, iteration % VARIANTS)));
            u64::from(crc32c(&self.expected)) == digest
        })
    }
}
