//! A link in front of one end, with a rate and a queue: messages come one after the other, and those
//! that find no room are lost.

use crate::base::{BitsPerSec, Bytes, LocalNs, Nanos};

/// What a message needs on an Ethernet link besides itself: Ethernet 14, IP 20, UDP 8, a wire's
/// header 16.
const OVERHEAD: u64 = 58;

/// The link.
#[derive(Debug)]
pub(super) struct Inlet {
    rate: BitsPerSec,
    room: Bytes,
    /// When the last message that entered is through.
    free_at: LocalNs,
    passed: u64,
    dropped: u64,
}

impl Inlet {
    pub(super) const fn new(rate: BitsPerSec, room: Bytes) -> Self {
        Self { rate, room, free_at: LocalNs(0), passed: 0, dropped: 0 }
    }

    /// Takes a message of this length that comes `now`; returns how long it takes until it is
    /// through, `None` when there is no room for it.
    pub(super) fn enter(&mut self, length: Bytes, now: LocalNs) -> Option<Nanos> {
        let packet = Bytes(length.0 + OVERHEAD);
        let waiting = self.free_at.since(now);
        if waiting + self.rate.time_for(packet) > self.rate.time_for(self.room) {
            self.dropped += 1;
            return None;
        }
        self.passed += 1;
        self.free_at = now + waiting + self.rate.time_for(packet);
        Some(self.free_at.since(now))
    }

    pub(super) const fn counts(&self) -> (u64, u64) {
        (self.passed, self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter__one_after_the_other_until_there_is_no_room() {
        let mut inlet = Inlet::new(BitsPerSec::mega(8), Bytes(300));
        let now = LocalNs(1_000);
        let times = [0; 4].map(|_| inlet.enter(Bytes(42), now).map(|time| time.0));
        assert_eq!(times, [Some(100_000), Some(200_000), Some(300_000), None]);
        let later = now + Nanos::from_micros(250);
        assert_eq!(inlet.enter(Bytes(42), later), Some(Nanos::from_micros(150)));
        assert_eq!(inlet.counts(), (4, 1));
    }
}
