//! Priority flow control: when a receiver says stop and go on, and the headroom that keeps it from
//! losing anything meanwhile.
//!
//! # Model
//! ```text
//!    buffer:  0 ........ go ... stop |.............. headroom ..............| end
//!    headroom = the packet that crosses `stop`
//!             + a packet of the other direction, that the pause frame waits for, and the frame itself
//!             + both ways of the cable, and the time the sender takes to heed
//!             + a packet that the sender has just begun
//! ```
//!
//! # Source
//! After IEEE 802.1Qbb and 802.3 as described in "Detecting, Troubleshooting, and Preventing
//! Congestion in Storage Networks" (Cisco Press, chapter 7), which names these parts and bounds the
//! time to heed, in bit times; the standards themselves were not read. The delay that an interface
//! adds to that of the cable is not in the sum. Where `go` lies is left to implementations: two
//! packets below `stop` here, so that single packets do not toggle it.
//!
//! # Invariants
//! I1. A sender that heeds in time never makes [`Ingress`] hold more than `stop` and the headroom.

use clearway_proto::base::BitsPerSec;

use crate::time::{Pace, Picos};

/// Bytes of a pause frame with preamble and gap.
const FRAME: u32 = 64 + 8 + 12;
/// Bits of a quantum, the unit of a pause.
const QUANTUM_BITS: u64 = 512;
/// Quanta until a sender heeds, at most, for rates up to this many Mb/s (the book's 30,720, 40,960,
/// 60,416, 201,728 and 463,360 bit times). Rates in between have the quanta of the next one listed,
/// which is the safe side.
const HEED_QUANTA: [(u64, u64); 5] =
    [(10_000, 60), (25_000, 80), (40_000, 118), (100_000, 394), (400_000, 905)];

/// What the headroom depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CableDelay {
    /// In each direction.
    pub rate: BitsPerSec,
    /// Signal time from end to end.
    pub delay: Picos,
    /// The longest packet of either direction, header included.
    pub packet: u32,
}

impl CableDelay {
    /// Returns the time from the end of a pause frame to the last instant at which its receiver may
    /// begin a packet.
    pub(crate) fn heed(&self) -> Picos {
        let listed = HEED_QUANTA.iter().find(|(mega, _)| self.rate.0 <= mega * 1_000_000);
        let quanta = listed.unwrap_or(&HEED_QUANTA[HEED_QUANTA.len() - 1]).1;
        self.pace().time((quanta * QUANTUM_BITS / 8) as u32)
    }

    /// Returns the time from the decision to pause to its effect, at worst.
    pub(crate) fn reaction(&self) -> Picos {
        self.pace().time(self.packet) + self.frame() + self.delay + self.heed()
    }

    /// Returns the time of a pause frame on the cable, without its delay.
    pub(crate) fn frame(&self) -> Picos {
        self.pace().time(FRAME)
    }

    /// Returns what may still come to a receiver that has decided to pause, the packet that made it
    /// decide included.
    pub(crate) fn headroom(&self) -> u64 {
        let bits = u128::from((self.reaction() + self.delay).0) * u128::from(self.rate.0);
        bits.div_ceil(8_000_000_000_000) as u64 + 2 * u64::from(self.packet)
    }

    fn pace(&self) -> Pace {
        Pace::from_rate(self.rate)
    }
}

/// Where a receiver says stop and go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// At this many bytes or more it says stop.
    pub stop: u64,
    /// At this many or fewer it says go on.
    pub go: u64,
}

impl Thresholds {
    /// Creates the `Thresholds` of a lane with `buffer` bytes; `None` if the headroom leaves less
    /// than three packets of it.
    pub(crate) fn new(buffer: u64, cable: &CableDelay) -> Option<Self> {
        let stop = buffer.checked_sub(cable.headroom())?;
        let packet = u64::from(cable.packet);
        (stop >= 3 * packet).then(|| Self { stop, go: stop - 2 * packet })
    }
}

/// What a receiver tells the sender of its cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseSignal {
    /// Begin no packet of this lane.
    Stop,
    /// Begin again.
    Go,
}

/// One lane of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ingress {
    queued: u64,
    stopped: bool,
}

impl Ingress {
    /// Records that all of a packet is here.
    pub(crate) fn arrived(&mut self, at: &Thresholds, bytes: u32) -> Option<PauseSignal> {
        self.queued += u64::from(bytes);
        let stop = !self.stopped && self.queued >= at.stop;
        self.stopped |= stop;
        stop.then_some(PauseSignal::Stop)
    }

    /// Records that a packet is gone.
    pub(crate) fn left(&mut self, at: &Thresholds, bytes: u32) -> Option<PauseSignal> {
        self.queued = self.queued.saturating_sub(u64::from(bytes));
        let go = self.stopped && self.queued <= at.go;
        self.stopped &= !go;
        go.then_some(PauseSignal::Go)
    }

    /// Returns bytes held.
    pub(crate) fn queued(&self) -> u64 {
        self.queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the most a receiver holds that sends nothing on, when the pause frame waits for a
    /// packet just begun and the sender heeds as late as it may. Packets have `bytes`; the first
    /// leaves the sender at zero.
    fn most_held(cable: &CableDelay, at: &Thresholds, bytes: u32) -> u64 {
        let time = cable.pace().time(bytes);
        let mut ingress = Ingress::default();
        let mut stops = Picos::NEVER;
        for begin in (0u64..).map(|n| Picos(time.0 * n)) {
            if begin > stops {
                break;
            }
            if ingress.arrived(at, bytes) == Some(PauseSignal::Stop) {
                stops = begin + time + cable.delay + cable.reaction();
            }
        }
        ingress.queued()
    }

    fn cable() -> impl Strategy<Value = CableDelay> {
        let rate = prop_oneof![
            Just(10_000u64),
            Just(25_000),
            Just(50_000),
            Just(100_000),
            Just(400_000),
            Just(800_000)
        ];
        (rate, 1u64..2_000_000, 64u32..9_300).prop_map(|(rate, delay, packet)| CableDelay {
            rate: BitsPerSec::mega(rate),
            delay: Picos(delay),
            packet,
        })
    }

    proptest! {
        #[test]
        fn headroom__loses_nothing_at_the_worst_and_wastes_less_than_two_packets(cable in cable(), part in 1u32..100) {
            let buffer = cable.headroom() + 40 * u64::from(cable.packet);
            let at = Thresholds::new(buffer, &cable).expect("a buffer that is long enough");
            let short = (cable.packet * part / 100).max(64).min(cable.packet);
            prop_assert!(most_held(&cable, &at, short) <= buffer);
            let held = most_held(&cable, &at, cable.packet);
            prop_assert!(held <= buffer, "{} of {}", held, buffer);
            prop_assert!(buffer - held <= 2 * u64::from(cable.packet), "{} of {}", held, buffer);
        }
    }

    #[test]
    fn headroom__of_published_examples() {
        // 10 Gb/s, 100 m at 5 ns a metre, frames of 9216 and 20 bytes: 73,888 bit times for each
        // frame, 672 for the pause frame, 30,720 to heed, twice 5,000 of cable; and here the frame
        // that crosses.
        let cable = CableDelay {
            rate: BitsPerSec::mega(10_000),
            delay: Picos::from_nanos(500),
            packet: 9_236,
        };
        assert_eq!(cable.headroom(), (3 * 73_888 + 672 + 30_720 + 2 * 5_000) / 8);
        assert_eq!(cable.heed(), Picos::from_nanos(3_072));
    }

    #[test]
    fn thresholds__a_buffer_that_is_mostly_headroom_has_none() {
        let cable = CableDelay {
            rate: BitsPerSec::mega(100_000),
            delay: Picos::from_nanos(50),
            packet: 4_160,
        };
        assert_eq!(Thresholds::new(cable.headroom() + 3 * 4_160 - 1, &cable), None);
        let at = Thresholds::new(cable.headroom() + 3 * 4_160, &cable).expect("enough");
        assert_eq!(at, Thresholds { stop: 3 * 4_160, go: 4_160 });
    }

    #[test]
    fn ingress__says_stop_and_go_once_each() {
        let at = Thresholds { stop: 300, go: 100 };
        let mut ingress = Ingress::default();
        assert_eq!(
            [(); 5].map(|()| ingress.arrived(&at, 100)),
            [None, None, Some(PauseSignal::Stop), None, None]
        );
        let signals = [(); 5].map(|()| ingress.left(&at, 100));
        assert_eq!(signals, [None, None, None, Some(PauseSignal::Go), None]);
    }
}
