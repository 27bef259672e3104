//! Chooses one of several channels that lead the same way: by hash, by number, or by the least
//! backlog of a few.
//!
//! # Invariants
//! I1. A choice is a function of the packet and of the queues here; equal backlogs leave the
//!     earlier draw.
//! I2. A channel that is down is chosen only if nothing else is: then nothing is.

use super::{Backlog, Transit};
use crate::graph::ChannelId;

/// By what a choice is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelectionRule {
    /// The hash of source and target.
    Pair,
    /// The number of the target.
    Modulo,
    /// The hash of the flow.
    Flow,
    /// The hash of the packet.
    Packet,
    /// The least backlog of this many draws by the hash of the packet.
    Least(u8),
}

/// The two odd multipliers of SplitMix64 (Steele, Lea, Flood 2014).
const MULTIPLIERS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// Mixes 32 bits that depend on all bits of `hash` and `salt`.
pub(super) const fn mix(hash: u32, salt: u32) -> u32 {
    let mut z = (hash as u64) << 32 | salt as u64;
    z = (z ^ (z >> 30)).wrapping_mul(MULTIPLIERS[0]);
    z = (z ^ (z >> 27)).wrapping_mul(MULTIPLIERS[1]);
    (z >> 32) as u32
}

/// Returns a number below `bound` from all bits of `hash`; zero when `bound` is.
pub(super) const fn below(hash: u32, bound: u32) -> u32 {
    ((hash as u64 * bound as u64) >> 32) as u32
}

impl SelectionRule {
    /// Returns the number that stands for a packet under this rule, different for each `salt`.
    pub(super) const fn key(self, transit: &Transit, salt: u32) -> u32 {
        let hash = match self {
            Self::Pair => mix(transit.source.0, transit.target.0),
            Self::Modulo => transit.target.0,
            Self::Flow => transit.flow_hash,
            Self::Packet | Self::Least(_) => transit.packet_hash,
        };
        mix(hash, salt)
    }

    /// Returns how many draws are compared.
    const fn draws(self) -> u32 {
        match self {
            Self::Least(draws) if draws > 1 => draws as u32,
            _ => 1,
        }
    }
}

/// Returns one of `count` channels `channel(0..count)`, by `rule` and `key`; `None` when all are
/// down.
pub(super) fn pick<B: Backlog>(
    rule: SelectionRule,
    key: u32,
    count: u32,
    channel: impl Fn(u32) -> ChannelId,
    backlog: &B,
) -> Option<ChannelId> {
    let begin = below(key, count);
    let draws = rule.draws();
    if count == 1 || draws == 1 {
        return first_up(begin, count, channel, backlog);
    }
    let mut best = None;
    for draw in 0..draws.min(count) {
        // As many draws as channels: all of them, so that none is asked twice.
        let place =
            if draws >= count { wrap(begin, draw, count) } else { below(mix(key, draw), count) };
        let candidate = channel(place);
        let bytes = if backlog.up(candidate) { backlog.bytes(candidate) } else { continue };
        if best.is_none_or(|(least, _)| bytes < least) {
            best = Some((bytes, candidate));
        }
    }
    best.map(|(_, channel)| channel).or_else(|| first_up(begin, count, channel, backlog))
}

/// Returns the first channel from place `begin` on, around, that is up.
pub(super) fn first_up<B: Backlog>(
    begin: u32,
    count: u32,
    channel: impl Fn(u32) -> ChannelId,
    backlog: &B,
) -> Option<ChannelId> {
    if backlog.intact() {
        return (begin < count).then(|| channel(begin));
    }
    (0..count)
        .map(|ahead| channel(wrap(begin, ahead, count)))
        .find(|&candidate| backlog.up(candidate))
}

/// Returns `begin + ahead` around `count`; both are below it.
const fn wrap(begin: u32, ahead: u32, count: u32) -> u32 {
    let place = begin + ahead;
    if place >= count { place - count } else { place }
}
