//! Whether bulk data flows, so that a wake-up may bring several packets.
//!
//! # Model
//! A thread that sleeps on a socket is woken by every packet, which costs more than the packet, and
//! in the sender's time where both are of one machine. While much arrives in sockets of bulk data
//! and of groups, a thread first sleeps on the others alone for a moment: packets gather meanwhile
//! as they do in an adapter that holds interrupts back. What is urgent wakes it all the same.
//!
//! # Invariants
//! I1. A message waits no longer than [`GATHER`] for this, and none in a class that is not bulk.

use clearway_proto::base::{LocalNs, Nanos};

/// How long packets gather: 20 of 1500 bytes at 1 Gb/s, four at 200 Mb/s; adapters hold interrupts
/// back for as long.
pub(super) const GATHER: Nanos = Nanos::from_micros(250);
/// Less than this in [`LOOK`] is no flow: 16 KiB in 1 ms are 131 Mb/s, which short messages back
/// and forth do not reach.
const FLOW: u64 = 16 << 10;
const LOOK: Nanos = Nanos::from_millis(1);

/// What came lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ArrivalRate {
    bytes: u64,
    since: LocalNs,
    is_on: bool,
}

impl ArrivalRate {
    /// Counts bytes that came in sockets whose messages may wait.
    pub(super) const fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Returns whether packets may gather now.
    pub(super) fn is_on(&mut self, now: LocalNs) -> bool {
        let time = now.since(self.since);
        if time >= LOOK {
            self.is_on = self.bytes >= FLOW.saturating_mul(time.0 / LOOK.0);
            (self.bytes, self.since) = (0, now);
        }
        self.is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(at: u64) -> LocalNs {
        LocalNs(at * 1_000)
    }

    #[test]
    fn is_on__full_packets_at_200_megabits_gather_and_short_messages_do_not() {
        let mut flow = ArrivalRate::default();
        assert!(!flow.is_on(us(5_000)));
        (0..17).for_each(|_| flow.add(1_500));
        assert!(!flow.is_on(us(5_900)) && flow.is_on(us(6_100)), "once in a millisecond");
        (0..20).for_each(|_| flow.add(100));
        assert!(flow.is_on(us(7_000)) && !flow.is_on(us(7_200)));
        flow.add(20_000);
        assert!(!flow.is_on(us(17_200)), "2 KB in a millisecond");
    }
}
