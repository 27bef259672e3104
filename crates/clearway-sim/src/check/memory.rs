//! What each byte of a checked node's memory may be, so that a byte in the wrong place is found.
//!
//! # Model
//! One region: a word for each rank that counts its atomics here, the node's own pattern, and a box
//! for what comes from each rank, which may only ever hold the beginning of that rank's pattern.
//! Behind each of them lies a guard that stays zero.

use clearway_proto::base::{Bytes, Rank};
use clearway_proto::wire::{RefusalReason, RegionId, RemoteSpan, Span, Wire};

/// Bytes of a pattern and of a box.
pub(super) const BOX: u32 = 8192;
/// Bytes of a guard.
const GUARD: u64 = 64;
/// The region that every node registers first.
pub(super) const REGION: RegionId = RegionId(0);

/// Where things lie in a job of this many ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) ranks: u32,
}

impl Layout {
    /// Returns the word that counts the atomics of `rank`.
    pub(super) const fn word(self, rank: Rank) -> RemoteSpan {
        RemoteSpan { region: REGION, offset: rank.0 as u64 * 8 }
    }

    const fn pattern_offset(self) -> u64 {
        self.ranks as u64 * 8 + GUARD
    }

    /// Returns the first `length` bytes of a node's own pattern.
    pub(super) const fn pattern(self, length: u32) -> Span {
        Span { region: REGION, offset: self.pattern_offset(), length }
    }

    /// Returns the first `length` bytes of the box for `rank`.
    pub(super) const fn inbox(self, rank: Rank, length: u32) -> Span {
        let offset = self.pattern_offset() + (rank.0 as u64 + 1) * (BOX as u64 + GUARD);
        Span { region: REGION, offset, length }
    }

    /// Returns the bytes of the region.
    pub(super) const fn size(self) -> u64 {
        self.pattern_offset() + (self.ranks as u64 + 1) * (BOX as u64 + GUARD)
    }

    /// Registers the region of a node and fills in its pattern.
    pub(super) fn register(self, wire: &mut dyn Wire) -> Result<(), RefusalReason> {
        let (rank, region) = (wire.rank(), wire.register(Bytes(self.size()))?);
        let from = self.pattern_offset() as usize;
        let memory = wire.region_mut(region).ok_or(RefusalReason::Memory)?;
        let place = memory.get_mut(from..from + BOX as usize).ok_or(RefusalReason::Memory)?;
        for (i, byte) in place.iter_mut().enumerate() {
            *byte = byte_of(rank, i);
        }
        Ok(())
    }

    /// Returns the first byte in `memory` of `rank` that is not what it may be, and whose box or
    /// guard it is in.
    pub(super) fn inspect(self, rank: Rank, memory: &[u8]) -> Result<(), Stray> {
        let words = self.ranks as usize * 8;
        let own = self.pattern_offset() as usize;
        for (at, byte) in memory.iter().enumerate().skip(words) {
            let Some(behind) = at.checked_sub(own) else {
                if *byte != 0 {
                    return Err(Stray { at, found: *byte, whose: None });
                }
                continue;
            };
            let (place, i) = (
                behind / (BOX as usize + GUARD as usize),
                behind % (BOX as usize + GUARD as usize),
            );
            let whose = if place == 0 { rank } else { Rank(place as u32 - 1) };
            let right = match (i < BOX as usize, place) {
                (false, _) => *byte == 0,
                (true, 0) => *byte == byte_of(whose, i),
                (true, _) => *byte == 0 || *byte == byte_of(whose, i),
            };
            if !right {
                return Err(Stray { at, found: *byte, whose: (i < BOX as usize).then_some(whose) });
            }
        }
        Ok(())
    }
}

/// A byte that should not be where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stray {
    /// Its offset in the region.
    pub(super) at: usize,
    pub(super) found: u8,
    /// Whose pattern should be there; none in a guard.
    pub(super) whose: Option<Rank>,
}

/// Returns byte `i` of the pattern of `rank`: never zero.
fn byte_of(rank: Rank, i: usize) -> u8 {
    (rank.0 as u8)
        .wrapping_mul(31)
        .wrapping_add((i as u8).wrapping_mul(7))
        .wrapping_add((i >> 8) as u8)
        | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inspect__a_byte_in_a_guard_or_in_the_wrong_box_is_found() {
        let layout = Layout { ranks: 3 };
        let mut memory = vec![0u8; layout.size() as usize];
        let own = layout.pattern(BOX).offset as usize;
        (0..BOX as usize).for_each(|i| memory[own + i] = byte_of(Rank(1), i));
        let inbox = layout.inbox(Rank(2), BOX).offset as usize;
        memory[inbox + 5] = byte_of(Rank(2), 5);
        assert_eq!(layout.inspect(Rank(1), &memory), Ok(()));
        memory[inbox + 6] = byte_of(Rank(0), 6);
        assert_eq!(layout.inspect(Rank(1), &memory).unwrap_err().whose, Some(Rank(2)));
        memory[inbox + 6] = 0;
        memory[inbox + BOX as usize] = 1;
        assert_eq!(layout.inspect(Rank(1), &memory).unwrap_err().whose, None);
    }
}
