//! Which symbols of the cast lie here: two bits and a check for each sequence that some member may
//! still miss.
//!
//! # Model
//! Sequences below the *floor* are with every member and forgotten. From the floor's block on there
//! is a ring of blocks of 64 sequences. A symbol is *placed* when it was copied to where it
//! belongs, and *held* when the digest of that memory was found to be the sender's: what comes
//! again meanwhile cannot overwrite what is being looked at.
//!
//! # Invariants
//! I1. `floor <= received`, and everything below `received` is held.
//! I2. A symbol that is held is placed, until the floor passes it.

use alloc::vec;
use alloc::vec::Vec;

use super::frame::Algorithm;

/// Sequences in one block: one word of a bitmap.
pub(super) const BLOCK: u64 = 64;

/// What is kept of a symbol besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeldSymbol {
    /// CRC-32C, of the root's memory.
    pub(super) crc: u32,
    /// The object it belongs to.
    pub(super) object: u32,
    /// The way on which others wait for it from here.
    pub(super) relay: Option<Algorithm>,
}

/// The ring of blocks.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    floor: u64,
    received: u64,
    highest: u64,
    placed: Vec<u64>,
    held: Vec<u64>,
    facts: Vec<HeldSymbol>,
}

const fn bit(sequence: u64) -> u64 {
    1 << (sequence % BLOCK)
}

/// Returns the bits of the sequences in `block` that are below `sequence`.
pub(super) const fn below(block: u64, sequence: u64) -> u64 {
    let first = block.saturating_mul(BLOCK);
    if sequence <= first {
        0
    } else if sequence - first >= BLOCK {
        u64::MAX
    } else {
        (1 << (sequence - first)) - 1
    }
}

impl ReceiveWindow {
    /// Creates a `ReceiveWindow` for at least `sequences` above the floor.
    pub(super) fn new(sequences: u32) -> Self {
        let blocks = sequences as usize / BLOCK as usize + 2;
        Self {
            floor: 0,
            received: 0,
            highest: 0,
            placed: vec![0; blocks],
            held: vec![0; blocks],
            facts: vec![HeldSymbol::default(); blocks * BLOCK as usize],
        }
    }

    pub(super) const fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the sequence below which everything is held.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Returns the sequence from which on nothing was ever placed.
    pub(super) const fn highest(&self) -> u64 {
        self.highest
    }

    /// Blocks in the ring.
    pub(super) const fn blocks(&self) -> u64 {
        self.placed.len() as u64
    }

    /// Returns the first block behind the ring.
    pub(super) const fn end(&self) -> u64 {
        (self.floor / BLOCK).saturating_add(self.blocks())
    }

    /// Returns whether there is room for `sequence`, or it was passed.
    pub(super) const fn covers(&self, sequence: u64) -> bool {
        sequence / BLOCK < self.end()
    }

    /// Returns whether `block` is one of the ring's.
    pub(super) const fn is_inside(&self, block: u64) -> bool {
        block >= self.floor / BLOCK && block < self.end()
    }

    fn word(&self, block: u64) -> usize {
        (block % self.blocks()) as usize
    }

    fn place_of(&self, sequence: u64) -> usize {
        self.word(sequence / BLOCK) * BLOCK as usize + (sequence % BLOCK) as usize
    }

    pub(super) fn is_placed(&self, sequence: u64) -> bool {
        sequence < self.received
            || self.covers(sequence)
                && self.placed[self.word(sequence / BLOCK)] & bit(sequence) != 0
    }

    /// Returns what can be handed on of `block`. Below the floor nothing can: that memory was given
    /// back.
    pub(super) fn held(&self, block: u64) -> u64 {
        if self.is_inside(block) {
            self.held[self.word(block)] & !below(block, self.floor)
        } else {
            0
        }
    }

    /// Returns what is known of a symbol in the ring.
    pub(super) fn fact(&self, sequence: u64) -> HeldSymbol {
        self.facts[self.place_of(sequence)]
    }

    /// Records that a symbol was copied to its place. The caller has found that it is covered and
    /// not placed.
    pub(super) fn place(&mut self, sequence: u64, fact: HeldSymbol) {
        let (word, at) = (self.word(sequence / BLOCK), self.place_of(sequence));
        self.placed[word] |= bit(sequence);
        self.facts[at] = fact;
        self.highest = self.highest.max(sequence + 1);
    }

    /// Keeps a symbol: its memory is what it must be.
    pub(super) fn keep(&mut self, sequence: u64) {
        let word = self.word(sequence / BLOCK);
        self.held[word] |= bit(sequence);
        while self.covers(self.received)
            && self.held[self.word(self.received / BLOCK)] & bit(self.received) != 0
        {
            self.received += 1;
        }
    }

    /// Discards a symbol: its memory is not what it must be.
    pub(super) fn discard(&mut self, sequence: u64) {
        let word = self.word(sequence / BLOCK);
        self.placed[word] &= !bit(sequence);
    }

    /// Returns whether a digest under way is of something that still waits for it.
    pub(super) fn awaits(&self, sequence: u64) -> bool {
        sequence >= self.received
            && self.covers(sequence)
            && self.placed[self.word(sequence / BLOCK)]
                & !self.held[self.word(sequence / BLOCK)]
                & bit(sequence)
                != 0
    }

    /// Returns what is not placed of `block`, below `sequence`.
    pub(super) fn missing(&self, block: u64, sequence: u64) -> u64 {
        if !self.is_inside(block) {
            return 0;
        }
        !self.placed[self.word(block)] & below(block, sequence) & !below(block, self.received)
    }

    /// Blocks of which something may be missing below `sequence`.
    pub(super) fn gaps(&self, sequence: u64) -> core::ops::Range<u64> {
        let first = self.received / BLOCK;
        first..sequence.div_ceil(BLOCK).clamp(first, self.end().max(first))
    }

    /// Releases everything below `stable`, as far as it is held: everybody has it.
    pub(super) fn release(&mut self, stable: u64) {
        let stable = stable.min(self.received);
        for block in self.floor / BLOCK..(stable / BLOCK).max(self.floor / BLOCK) {
            let word = self.word(block);
            self.placed[word] = 0;
            self.held[word] = 0;
        }
        self.floor = self.floor.max(stable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(holding: &mut ReceiveWindow, sequences: core::ops::Range<u64>) {
        for sequence in sequences {
            assert!(holding.covers(sequence) && !holding.is_placed(sequence), "{sequence}");
            holding.place(sequence, HeldSymbol { crc: sequence as u32, ..HeldSymbol::default() });
            holding.keep(sequence);
        }
    }

    #[test]
    fn missing__is_what_lies_between_received_and_the_edge() {
        let mut holding = ReceiveWindow::new(256);
        take(&mut holding, 0..3);
        take(&mut holding, 5..70);
        assert_eq!((holding.received(), holding.highest()), (3, 70));
        assert_eq!(holding.missing(0, 70), 0b11000);
        assert_eq!(holding.missing(1, 72), 0b1100_0000);
        assert_eq!(holding.gaps(72), 0..2);
        take(&mut holding, 3..5);
        assert_eq!((holding.received(), holding.missing(0, 70)), (70, 0));
    }

    #[test]
    fn place__what_is_not_kept_is_no_gap_and_not_received() {
        let mut holding = ReceiveWindow::new(64);
        holding.place(0, HeldSymbol::default());
        assert!(holding.is_placed(0) && holding.awaits(0) && holding.held(0) == 0);
        assert_eq!((holding.received(), holding.missing(0, 1)), (0, 0));
        holding.discard(0);
        assert!(!holding.is_placed(0) && !holding.awaits(0));
        assert_eq!(holding.missing(0, 1), 1);
    }

    #[test]
    fn release__the_ring_turns_and_what_was_passed_stays_passed() {
        let mut holding = ReceiveWindow::new(128);
        let blocks = holding.blocks();
        take(&mut holding, 0..blocks * BLOCK);
        assert!(!holding.covers(blocks * BLOCK));
        holding.release(100);
        assert!(holding.covers(blocks * BLOCK) && !holding.covers((blocks + 1) * BLOCK));
        assert!(holding.is_placed(0) && holding.held(0) == 0);
        assert_eq!(holding.held(1), !((1 << 36) - 1));
        take(&mut holding, blocks * BLOCK..(blocks + 1) * BLOCK);
        holding.release(u64::MAX);
        assert_eq!(holding.floor(), (blocks + 1) * BLOCK, "no further than what is held");
        assert_eq!(holding.fact(holding.floor() - 1).crc, holding.floor() as u32 - 1);
    }
}
