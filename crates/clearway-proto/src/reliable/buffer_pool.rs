//! Memory for the bodies of messages that nobody waits for: they are kept here until the peer has
//! them.

use alloc::vec::Vec;

use crate::wire::{RegionId, Span};

/// Bytes of one piece: the bodies of most messages without a token are shorter.
const PIECE: u32 = 2_048;
/// Pieces in all: 1 MiB, what a rank sends in a round trip of 1 ms at 10 Gb/s.
pub(super) const PIECES: usize = 512;

/// Pieces of a region, taken first fit.
#[derive(Debug)]
pub(super) struct BufferPool {
    region: RegionId,
    is_taken: Vec<bool>,
    /// Where the search begins: behind what was taken last.
    next: usize,
}

impl BufferPool {
    /// Bytes that the region must have.
    pub(super) const LENGTH: u64 = PIECE as u64 * PIECES as u64;

    pub(super) fn new(region: RegionId) -> Self {
        Self { region, is_taken: alloc::vec![false; PIECES], next: 0 }
    }

    /// Returns the region.
    pub(super) const fn region(&self) -> RegionId {
        self.region
    }

    /// Returns a span of `length` bytes that nobody has; none when there is none in one piece.
    /// O(pieces) at worst, usually O(length).
    pub(super) fn take(&mut self, length: u32) -> Option<Span> {
        let count = length.div_ceil(PIECE).max(1) as usize;
        let start = self.search(self.next, count).or_else(|| self.search(0, count))?;
        self.is_taken[start..start + count].fill(true);
        self.next = start + count;
        Some(Span { region: self.region, offset: start as u64 * u64::from(PIECE), length })
    }

    fn search(&self, from: usize, count: usize) -> Option<usize> {
        let mut free = 0;
        for (place, is_taken) in self.is_taken.iter().enumerate().skip(from) {
            free = if *is_taken { 0 } else { free + 1 };
            if free == count {
                return Some(place + 1 - count);
            }
        }
        None
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, span: Span) {
        let start = (span.offset / u64::from(PIECE)) as usize;
        let count = span.length.div_ceil(PIECE).max(1) as usize;
        self.is_taken[start..start + count].fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__never_gives_a_byte_twice_and_all_of_them_again_when_they_are_back() {
        let mut kept = BufferPool::new(RegionId(1));
        let mut spans = Vec::new();
        for round in 0..3u32 {
            while let Some(span) = kept.take(1 + (spans.len() as u32 * 1_003 + round) % (5 * PIECE))
            {
                spans.push(span);
            }
            let mut sorted = spans.clone();
            sorted.sort_by_key(|span| span.offset);
            assert!(
                sorted
                    .windows(2)
                    .all(|pair| pair[0].offset + u64::from(pair[0].length) <= pair[1].offset)
            );
            assert!(
                sorted
                    .iter()
                    .all(|span| span.offset + u64::from(span.length) <= BufferPool::LENGTH)
            );
            let back: Vec<Span> = spans.iter().copied().step_by(2).collect();
            spans = spans.iter().copied().skip(1).step_by(2).collect();
            back.into_iter().for_each(|span| kept.give(span));
        }
        spans.into_iter().for_each(|span| kept.give(span));
        assert_eq!(kept.take(BufferPool::LENGTH as u32).map(|span| span.offset), Some(0));
    }
}
