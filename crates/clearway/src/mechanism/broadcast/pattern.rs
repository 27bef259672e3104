//! What objects are made of: bytes that follow from seed and number, so that a receiver can know
//! them without having seen them.

use std::ops::ControlFlow;

use clearway_proto::base::{Bytes, RandomKey, RandomStream};
use clearway_proto::wire::{Span, Wire, bytes_of};

/// Bytes that a rank makes or compares before it looks after its messages again: some milliseconds,
/// even without optimisation. A rank that took a long object at once would be silent for so long
/// that others go on without it.
const PIECE: usize = 256 << 10;

/// Makes object `number` of a cast with `seed` in the memory at `at`, if there is any.
pub(super) fn make(wire: &mut dyn Wire, at: Span, seed: u64, number: u32) {
    let mut pattern = ObjectPattern::new(at, seed, number);
    while pattern.make_piece(wire).is_continue() {}
}

/// Returns what is wrong with the bytes at `at`, which are to be object `number` of `length` bytes
/// of a cast with `seed`.
pub(super) fn fault(
    wire: &dyn Wire,
    at: Span,
    length: Bytes,
    seed: u64,
    number: u32,
) -> Option<String> {
    let mut pattern = ObjectPattern::new(at, seed, number);
    loop {
        if let ControlFlow::Break(fault) = pattern.compare_piece(wire, length) {
            return fault;
        }
    }
}

/// One object, made or compared piece by piece.
pub(super) struct ObjectPattern {
    pub(super) number: u32,
    at: Span,
    words: RandomStream,
    /// Bytes that are made or compared.
    done: usize,
}

impl ObjectPattern {
    /// Creates the pattern of object `number` of a cast with `seed`, at `at`.
    pub(super) fn new(at: Span, seed: u64, number: u32) -> Self {
        let words =
            RandomKey::new(seed).purpose("broadcast object").node(u64::from(number)).stream();
        Self { number, at, words, done: 0 }
    }

    /// Makes the next piece, if there is memory for it; breaks when that was the last one.
    pub(super) fn make_piece(&mut self, wire: &mut dyn Wire) -> ControlFlow<()> {
        let memory = wire.region_mut(self.at.region).and_then(|memory| {
            let range = self.at.range_in(memory.len())?;
            memory.get_mut(range)
        });
        let bytes = memory.unwrap_or_default();
        let end = bytes.len().min(self.done + PIECE);
        self.fill(bytes.get_mut(self.done..end).unwrap_or_default());
        self.done = end;
        if end == bytes.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Compares the next piece of what has to have `length` bytes; breaks behind the last one, or
    /// with what is wrong.
    pub(super) fn compare_piece(
        &mut self,
        wire: &dyn Wire,
        length: Bytes,
    ) -> ControlFlow<Option<String>> {
        let bytes = bytes_of(wire.region(self.at.region), self.at).unwrap_or_default();
        if bytes.len() as u64 != length.0 {
            return ControlFlow::Break(Some(format!("has {} bytes", bytes.len())));
        }
        let end = bytes.len().min(self.done + PIECE);
        if let Some(at) = self.differs(bytes.get(self.done..end).unwrap_or_default()) {
            return ControlFlow::Break(Some(format!("is wrong at byte {}", self.done + at)));
        }
        self.done = end;
        if end == bytes.len() { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.words.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Returns where `bytes` differ first from what [`Self::fill`] makes.
    fn differs(&mut self, bytes: &[u8]) -> Option<usize> {
        let wrong = |chunk: &[u8]| self.words.next_u64().to_le_bytes()[..chunk.len()] != *chunk;
        bytes.chunks(8).position(wrong).map(|chunk| chunk * 8)
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::Rank;
    use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};

    use super::*;

    #[test]
    fn compare_piece__a_long_object_takes_several_and_finds_the_place_of_one_wrong_byte() {
        let length = 2 * PIECE + 21;
        let mut fabric = MemoryFabric::new(MemoryConfig::lossless(1));
        let wire = fabric.wire(Rank(0));
        let region = wire.register(Bytes(length as u64)).expect("there is room");
        let at = Span { region, offset: 0, length: length as u32 };
        let mut making = ObjectPattern::new(at, 7, 3);
        let pieces = (1..).find(|_| making.make_piece(wire).is_break());
        assert_eq!(pieces, Some(3), "what hears nobody takes a piece at a time");
        let fault = |wire: &dyn Wire, number| fault(wire, at, Bytes(length as u64), 7, number);
        assert_eq!(fault(wire, 3), None);
        assert_eq!(
            fault(wire, 4),
            Some("is wrong at byte 0".to_owned()),
            "another object is other bytes"
        );
        wire.region_mut(region).expect("it is there")[length - 1] ^= 1;
        assert_eq!(fault(wire, 3), Some(format!("is wrong at byte {}", 2 * PIECE + 16)));
        let shorter = Span { length: 20, ..at };
        assert_eq!(super::fault(wire, shorter, Bytes(21), 7, 3), Some("has 20 bytes".to_owned()));
    }
}
