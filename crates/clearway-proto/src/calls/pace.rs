//! The pace of a client, which its server sets: frames, and the delay of the client's pieces.
//!
//! # Model
//! ```text
//!   0   magic 0x70
//!   1   kind: PROBE 1, ECHO 2, PACE 3
//!   2   class of a probe and its echo, by its index
//!   3   zero
//!   4   PROBE, ECHO: when the probe left, by the server's clock   PACE: bits a second
//!  12   PROBE: zero   ECHO: how long the client had it, in ns     PACE: length of a pause, in ns
//!  20   PROBE, ECHO: zero                                         PACE: bytes of the longest piece (u32)
//! ```
//! A client answers a probe at once, in the probe's class. A pace holds until the next one, for the
//! classes [`Class::Bulk`] and below together. A pause begins when its pace arrives.
//!
//! Under a pace, pieces are as long as what the whole link carries in 50 us, so that no other packet
//! waits longer for one of them. Bytes under way are bounded by what the pace carries in 2 ms: what
//! was posted before a pause is soon delivered.
//!
//! # Invariants
//! I1. Any bytes are a frame or none.
//! I2. A client without a pace sends as fast as its wire.

use super::FRAME;
use crate::base::{BitsPerSec, ByteReader, Bytes, Class, Head, LocalNs, Nanos};
use crate::flow::TokenBucket;

/// Bytes of a frame.
const HEAD: usize = 24;
const MAGIC: u8 = 0x70;
/// The longest pause: a server that names a longer one is wrong.
const PAUSE_MAX: Nanos = Nanos::from_millis(50);
/// What may be under way, as a time at the pace.
const UNDER_WAY: Nanos = Nanos::from_millis(2);
/// The length of a piece, as a time on the link.
const PIECE: Nanos = Nanos::from_micros(50);
/// The least length of a piece: fits into a packet of Ethernet.
const PIECE_MIN: u64 = 1 << 10;

/// A frame of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaceFrame {
    Probe { class: Class, sent_at: LocalNs },
    Echo { class: Class, sent_at: LocalNs, delay: Nanos },
    Pace { pace: ClientPace, pause: Nanos },
}

/// How fast a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPace {
    /// The rate of this client.
    pub rate: BitsPerSec,
    /// Bytes of its longest piece.
    pub piece: u32,
}

impl ClientPace {
    /// Creates the pace of a client that has `rate` of a link.
    pub fn new(rate: BitsPerSec, link: BitsPerSec) -> Self {
        let piece = link.bytes_in(PIECE).0.clamp(PIECE_MIN, u64::from(FRAME));
        Self { rate, piece: 1 << piece.ilog2() }
    }
}

impl PaceFrame {
    pub(super) fn decode(head: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(head);
        let [magic, kind, class, zero] = rest.take()?;
        let (first, second, piece) = (rest.u64()?, rest.u64()?, rest.u32()?);
        if magic != MAGIC || zero != 0 || !rest.is_empty() {
            return None;
        }
        let class = *Class::ALL.get(usize::from(class))?;
        let sent_at = LocalNs(first);
        match kind {
            1 if second == 0 && piece == 0 => Some(Self::Probe { class, sent_at }),
            2 if piece == 0 => Some(Self::Echo { class, sent_at, delay: Nanos(second) }),
            3 if piece.is_power_of_two() && u64::from(piece) >= PIECE_MIN && piece <= FRAME => {
                let pace = ClientPace { rate: BitsPerSec(first), piece };
                Some(Self::Pace { pace, pause: Nanos(second) })
            }
            _ => None,
        }
    }

    pub(super) fn encode(self) -> Head<HEAD> {
        let (kind, first, second, piece) = match self {
            Self::Probe { sent_at, .. } => (1, sent_at.0, 0, 0),
            Self::Echo { sent_at, delay, .. } => (2, sent_at.0, delay.0, 0),
            Self::Pace { pace, pause } => (3, pace.rate.0, pause.0, pace.piece),
        };
        let mut head = Head::new();
        head.put(&[MAGIC, kind, self.class().index() as u8, 0]).put(&first.to_le_bytes());
        head.put(&second.to_le_bytes()).put(&piece.to_le_bytes());
        head
    }

    /// Returns the class in which it travels.
    pub(super) const fn class(self) -> Class {
        match self {
            Self::Probe { class, .. } | Self::Echo { class, .. } => class,
            Self::Pace { .. } => Class::LowLatency,
        }
    }
}

/// Delays a client's pieces.
#[derive(Clone, Debug)]
pub(super) struct LanePace {
    pace: ClientPace,
    bucket: TokenBucket,
    paused_until: LocalNs,
}

impl LanePace {
    pub(super) fn new(now: LocalNs, pace: ClientPace, pause: Nanos) -> Self {
        let bucket = TokenBucket::new(pace.rate, Bytes(u64::from(pace.piece)), now);
        Self { pace, bucket, paused_until: now + pause.min(PAUSE_MAX) }
    }

    /// Changes the pace.
    pub(super) fn set(&mut self, now: LocalNs, pace: ClientPace, pause: Nanos) {
        if pace.piece != self.pace.piece {
            return *self = Self::new(now, pace, pause);
        }
        self.bucket.set_rate(now, pace.rate);
        self.pace = pace;
        self.paused_until = now + pause.min(PAUSE_MAX);
    }

    /// Returns whether a class is held back.
    pub(super) const fn holds(class: Class) -> bool {
        class.index() >= Class::Bulk.index()
    }

    /// Returns the bytes of the longest piece.
    pub(super) const fn piece(&self) -> u32 {
        self.pace.piece
    }

    /// Returns the bytes that may be under way in all: two pieces at least.
    pub(super) fn under_way(&self) -> u64 {
        self.pace.rate.bytes_in(UNDER_WAY).0.max(2 * u64::from(self.pace.piece))
    }

    /// Takes the tokens of a piece, or returns when to ask again.
    pub(super) fn take(&mut self, now: LocalNs, length: u32) -> Result<(), LocalNs> {
        if now < self.paused_until {
            return Err(self.paused_until);
        }
        self.bucket.take(now, Bytes(u64::from(length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: ClientPace = ClientPace { rate: BitsPerSec(8_000_000), piece: 1024 };

    #[test]
    fn decode__what_is_encoded_is_read_and_other_bytes_are_nothing() {
        let (class, sent_at) = (Class::LowLatency, LocalNs(u64::MAX));
        for frame in [
            PaceFrame::Probe { class, sent_at },
            PaceFrame::Echo { class, sent_at, delay: Nanos(3) },
            PaceFrame::Pace { pace: PACE, pause: Nanos(9) },
        ] {
            let head = frame.encode();
            assert_eq!(PaceFrame::decode(head.bytes()), Some(frame));
            assert_eq!(PaceFrame::decode(&head.bytes()[1..]), None);
            assert_eq!(PaceFrame::decode(&[head.bytes(), &[0]].concat()), None);
        }
        let mut odd = PaceFrame::Pace { pace: PACE, pause: Nanos(9) }.encode().bytes().to_vec();
        odd[20] ^= 1;
        assert_eq!(PaceFrame::decode(&odd), None, "a piece of an odd length");
    }

    #[test]
    fn new__a_piece_is_short_on_a_slow_link_and_a_frame_at_most() {
        let piece = |mega| ClientPace::new(BitsPerSec(1), BitsPerSec::mega(mega)).piece;
        assert_eq!([10, 200, 1_000, 100_000].map(piece), [1 << 10, 1 << 10, 4 << 10, FRAME]);
    }

    #[test]
    fn take__nothing_leaves_in_a_pause_and_the_rate_holds_behind_it() {
        let mut pace = LanePace::new(LocalNs(0), PACE, Nanos(1_000));
        assert_eq!(pace.take(LocalNs(999), 1), Err(LocalNs(1_000)));
        assert_eq!(pace.take(LocalNs(1_000), 1024), Ok(()));
        assert_eq!(pace.take(LocalNs(1_000), 1000), Err(LocalNs(1_001_000)));
        pace.set(LocalNs(2_000), PACE, Nanos::from_secs(9));
        assert_eq!(pace.take(LocalNs(2_000), 1), Err(LocalNs(2_000) + PAUSE_MAX));
    }
}
