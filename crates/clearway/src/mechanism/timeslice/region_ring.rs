//! A ring in a part of a region.
//!
//! # Model
//! Positions are counters that only grow; a place is a counter modulo the ring's length.

use clearway_proto::wire::{RegionId, Span};

/// A part of a region in which positions go round.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionRing {
    offset: u64,
    length: u64,
    /// Behind the last byte that was written.
    head: u64,
    /// The first byte that is needed.
    tail: u64,
}

impl RegionRing {
    /// Creates the empty ring of `length` bytes at `offset` of a region.
    pub(super) const fn new(offset: u64, length: u64) -> Self {
        Self { offset, length, head: 0, tail: 0 }
    }

    /// Returns how many bytes it has.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the position behind the last byte that was written.
    pub(super) const fn head(&self) -> u64 {
        self.head
    }

    /// Frees everything below `position`.
    pub(super) const fn free(&mut self, position: u64) {
        self.tail = position;
    }

    /// Returns whether `bytes` more have room.
    pub(super) const fn has_room(&self, bytes: u64) -> bool {
        self.head + bytes - self.tail <= self.length
    }

    /// Returns the two spans of the bytes from position `begin` to `end`; the second one is empty
    /// unless the ring ends between them.
    pub(super) fn spans(&self, region: RegionId, begin: u64, end: u64) -> [Span; 2] {
        let (at, bytes) = (begin % self.length, end - begin);
        let first = bytes.min(self.length - at);
        let span =
            |offset, length| Span { region, offset: self.offset + offset, length: length as u32 };
        [span(at, first), span(0, bytes - first)]
    }

    /// Appends `bytes`, for which there is room, to the ring in `memory`.
    pub(super) fn write(&mut self, memory: &mut [u8], bytes: &[u8]) {
        let at = (self.head % self.length) as usize;
        let (first, second) = bytes.split_at(bytes.len().min(self.length as usize - at));
        let begin = self.offset as usize;
        memory[begin + at..begin + at + first.len()].copy_from_slice(first);
        memory[begin..begin + second.len()].copy_from_slice(second);
        self.head += bytes.len() as u64;
    }

    /// Appends `length` bytes, for which there is room, that `fill` writes: into `memory` at once
    /// where they lie in one piece, else into `scratch` first.
    pub(super) fn write_with<T>(
        &mut self,
        memory: &mut [u8],
        length: usize,
        scratch: &mut Vec<u8>,
        fill: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        let at = self.head % self.length;
        if at + length as u64 <= self.length {
            let begin = (self.offset + at) as usize;
            self.head += length as u64;
            return fill(&mut memory[begin..begin + length]);
        }
        scratch.resize(length, 0);
        let filled = fill(scratch);
        self.write(memory, scratch);
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_with__bytes_that_wrap_are_those_that_a_copy_leaves() {
        let mut scratch = Vec::new();
        for begin in 0..16 {
            let [mut copied, mut filled] = [[0; 24]; 2];
            let mut rings = [RegionRing::new(4, 16); 2];
            rings[0].write(&mut copied, &vec![1; begin]);
            rings[1].write(&mut filled, &vec![1; begin]);
            let bytes: Vec<u8> = (10..19).collect();
            rings[0].write(&mut copied, &bytes);
            let said = rings[1].write_with(&mut filled, bytes.len(), &mut scratch, |content| {
                content.copy_from_slice(&bytes);
                content.len()
            });
            assert_eq!((said, filled, rings[1].head()), (9, copied, rings[0].head()));
            assert_eq!((&filled[..4], &filled[20..]), (&[0; 4][..], &[0; 4][..]));
        }
    }
}
