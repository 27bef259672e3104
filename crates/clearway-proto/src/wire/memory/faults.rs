//! Faults of a network in addition to loss: it doubles, delays and damages some messages, and
//! carries none on a path that was cut, or to a group for a rank that is deaf to groups.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use super::InFlight;
use crate::base::{RandomKey, RandomStream, Rank};
use crate::wire::PathId;

/// Which faults a [`super::MemoryFabric`] injects into messages, in millionths of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultInjection {
    /// Arrive twice.
    pub doubled: u32,
    /// Arrive up to 20 latencies late, behind others.
    pub late: u32,
    /// Arrive with one bit changed.
    pub damaged: u32,
}

/// The longest delay, in latencies.
const LATE_MAX: u64 = 20;

/// What becomes of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageFate {
    /// It arrives once more, this many latencies later.
    pub(super) again: Option<u64>,
    /// Latencies next to the first.
    pub(super) late: u64,
}

/// Decides the fate of messages.
#[derive(Debug)]
pub(super) struct FaultState {
    injection: FaultInjection,
    stream: RandomStream,
    cut: BTreeSet<PathId>,
    multicast_blocked: BTreeSet<Rank>,
    leaf: Option<u32>,
}

impl FaultState {
    pub(super) fn new(injection: FaultInjection, seed: u64) -> Self {
        Self {
            injection,
            stream: RandomKey::new(seed).purpose("memory wire weather").stream(),
            cut: BTreeSet::new(),
            multicast_blocked: BTreeSet::new(),
            leaf: None,
        }
    }

    /// Returns whether `path` carries nothing.
    pub(super) fn is_cut(&self, path: PathId) -> bool {
        self.cut.contains(&path)
    }

    pub(super) fn cut_path(&mut self, path: PathId) {
        self.cut.insert(path);
    }

    pub(super) fn restore_path(&mut self, path: PathId) {
        self.cut.remove(&path);
    }

    /// Returns whether messages of `from` to groups do not arrive at `to`.
    pub(super) fn is_multicast_blocked(&self, from: Rank, to: Rank) -> bool {
        self.multicast_blocked.contains(&to)
            || self.leaf.is_some_and(|leaf| from.0 / leaf != to.0 / leaf)
    }

    pub(super) fn limit_multicast_to_leaf(&mut self, leaf: u32) {
        self.leaf = Some(leaf.max(1));
    }

    pub(super) fn block_multicast(&mut self, rank: Rank) {
        self.multicast_blocked.insert(rank);
    }

    pub(super) fn unblock_multicast(&mut self, rank: Rank) {
        self.multicast_blocked.remove(&rank);
    }

    fn strikes(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.stream.below(1_000_000) < u64::from(per_million)
    }

    /// Returns what becomes of a message; a damaged one is changed now.
    pub(super) fn decide(&mut self, flight: &mut InFlight) -> MessageFate {
        let FaultInjection { doubled, late, damaged } = self.injection;
        if self.strikes(damaged)
            && let InFlight::Message { head, body, .. } = flight
        {
            self.damage(head, body);
        }
        let late = if self.strikes(late) { 1 + self.stream.below(LATE_MAX) } else { 0 };
        let again = self.strikes(doubled).then(|| self.stream.below(LATE_MAX));
        MessageFate { again, late }
    }

    fn damage(&mut self, head: &mut Box<[u8]>, body: &mut Box<[u8]>) {
        let place = self.stream.below((head.len() + body.len()).max(1) as u64) as usize;
        let bit = 1u8 << self.stream.below(8);
        if let Some(byte) = head.iter_mut().chain(body.iter_mut()).nth(place) {
            *byte ^= bit;
        }
    }
}
