//! Where an input's next contribution goes in its ring at a builder, and how much of the ring is
//! free.
//!
//! # Model
//! Positions are counters that only grow; a place is a counter modulo the ring's length. A
//! contribution lies in one piece: one that would pass the ring's end skips what is left of it, and
//! the skipped bytes count as used until it is released.
//!
//! # Source
//! FLESnet's compute buffer (`cn_wp`, `cn_ack`).
//!
//! # Invariants
//! I1. `tail <= head <= tail + length`: what is not released is never written over.

/// The sender's view of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    length: u64,
    head: u64,
    tail: u64,
}

/// A place in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingRange {
    /// Bytes from the ring's beginning.
    pub(super) offset: u64,
    /// The counter at its beginning.
    begin: u64,
    /// The counter behind it.
    pub(super) end: u64,
}

impl Ring {
    /// Creates an empty ring of `length` bytes.
    pub(super) const fn new(length: u64) -> Self {
        Self { length, head: 0, tail: 0 }
    }

    /// Returns the place of a contribution of `bytes` that were to be sent now; `None` while the
    /// ring has no room.
    pub(super) const fn place(&self, bytes: u64) -> Option<RingRange> {
        if bytes > self.length {
            return None;
        }
        let offset = self.head % self.length;
        let left = self.length - offset;
        let (offset, begin) =
            if bytes > left { (0, self.head + left) } else { (offset, self.head) };
        let end = begin + bytes;
        let tail = if self.head == self.tail { begin } else { self.tail };
        if end - tail > self.length { None } else { Some(RingRange { offset, begin, end }) }
    }

    /// Takes `place`.
    pub(super) const fn take(&mut self, place: RingRange) {
        if self.head == self.tail {
            self.tail = place.begin;
        }
        self.head = place.end;
    }

    /// Frees everything before the counter `end` again.
    pub(super) fn release(&mut self, end: u64) {
        assert!((self.tail..=self.head).contains(&end), "only what was taken is released");
        self.tail = end;
    }

    /// Returns its length in bytes.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place__skips_the_end_of_the_ring() {
        let mut ring = Ring::new(100);
        let first = ring.place(60).expect("it is empty");
        assert_eq!(first, RingRange { offset: 0, begin: 0, end: 60 });
        ring.take(first);
        assert_eq!(ring.place(60), None);
        let third = ring.place(30).expect("there are forty left");
        ring.take(third);
        ring.release(60);
        let second = ring.place(50).expect("the first was released");
        assert_eq!(second, RingRange { offset: 0, begin: 100, end: 150 });
        ring.take(second);
        assert_eq!(ring.place(11), None, "the ten skipped bytes count as used");
    }

    #[test]
    fn place__an_empty_ring_takes_what_fits_it_wherever_it_stands() {
        let mut ring = Ring::new(100);
        ring.take(ring.place(60).expect("it is empty"));
        ring.release(60);
        let whole = ring.place(100).expect("nothing lies in it");
        assert_eq!(whole.offset, 0);
        ring.take(whole);
        ring.release(whole.end);
        assert_eq!(ring.place(100).map(|place| place.offset), Some(0));
    }

    #[test]
    fn place__a_full_ring_has_room_again_only_for_what_was_released() {
        let mut ring = Ring::new(96);
        for _ in 0..3 {
            let place = ring.place(32).expect("there is room");
            ring.take(place);
        }
        assert_eq!(ring.place(1), None);
        ring.release(32);
        assert_eq!(ring.place(32), Some(RingRange { offset: 0, begin: 96, end: 128 }));
        assert_eq!(ring.place(97), None);
    }
}
