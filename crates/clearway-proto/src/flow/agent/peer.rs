//! What an agent knows of one peer: its shortest round trip, and whether it answers.

use crate::base::{LocalNs, Nanos};

/// Each half of the time for which the shortest round trip is remembered.
const SHORTEST_FOR: Nanos = Nanos::from_secs(30);
/// A peer that did not answer this many probes in a row does not count.
const MISSED_MOST: u32 = 3;
/// How often such a peer is probed.
const SILENT_EVERY: Nanos = Nanos::from_secs(1);
/// A sample of the shortest round trip: a million, so that the millionth part is seen.
const UNIT: u64 = 1_000_000;

/// A peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbedPeer {
    /// The shortest of this half, and of the one before.
    shortest: [Nanos; 2],
    half_began: LocalNs,
    /// Probes without an answer since the last one; none before the first answer.
    missed: Option<u32>,
    probed_at: Option<LocalNs>,
}

impl ProbedPeer {
    pub(super) const fn new(now: LocalNs) -> Self {
        Self { shortest: [Nanos::MAX; 2], half_began: now, missed: None, probed_at: None }
    }

    /// Takes note of an answer.
    pub(super) fn answered(&mut self, now: LocalNs, took: Nanos) {
        self.missed = Some(0);
        if now.since(self.half_began) >= SHORTEST_FOR {
            (self.shortest, self.half_began) = ([Nanos::MAX, self.shortest[0]], now);
        }
        self.shortest[0] = self.shortest[0].min(took);
    }

    /// Takes note of a probe that had no answer in time.
    pub(super) fn missed(&mut self) {
        self.missed = self.missed.map(|missed| missed.saturating_add(1));
    }

    /// Takes note of a probe.
    pub(super) const fn probed(&mut self, now: LocalNs) {
        self.probed_at = Some(now);
    }

    /// Returns whether it answers.
    pub(super) fn is_reachable(&self) -> bool {
        self.missed.is_some_and(|missed| missed < MISSED_MOST)
    }

    /// Returns whether it may be probed now.
    pub(super) fn is_due(&self, now: LocalNs) -> bool {
        self.is_reachable() || self.probed_at.is_none_or(|at| now.since(at) >= SILENT_EVERY)
    }

    /// Returns a round trip as a multiple of the shortest one.
    pub(super) fn sample(&self, took: Nanos) -> Nanos {
        let shortest = self.shortest[0].min(self.shortest[1]).min(took).0.max(1);
        let times = u128::from(took.0) * u128::from(UNIT) / u128::from(shortest);
        Nanos(u64::try_from(times).unwrap_or(u64::MAX))
    }
}
