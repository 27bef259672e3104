//! Whether the group still reaches everybody: what every member heard through it, against what
//! left.
//!
//! # Model
//! Members count what they hear of the root through the group; reports carry the least count. When
//! that stands still while members answer polls that came another way, and much has left to the
//! group meanwhile, the group does not reach somebody. If the counts of the root's own leaf go on,
//! it reaches a leaf at least. From time to time the root then sends a message to the group, and
//! when all counts have moved the group is there again.

use super::frame::ProgressReport;
use crate::base::{LocalNs, Nanos};

/// Messages to the group of which somebody heard none. At a tenth lost, all of eight are once in a
/// hundred million.
const UNHEARD: u32 = 8;
/// Between two looks whether a group works again: membership in switches takes seconds to come
/// back.
const PROBE: Nanos = Nanos::from_secs(1);
/// Messages of one look.
pub(super) const PROBES: u32 = 3;

/// What some members heard through the group: the least count, what had left by then, and since
/// when it stands still.
#[derive(Debug, Default)]
struct GroupReceipt {
    least: u32,
    left: u32,
    since: LocalNs,
}

impl GroupReceipt {
    /// Says whether members do not hear the group, of which they heard `least` at the least and
    /// perhaps all of `sent`, and of which `polled` had left when they were asked: who is only slow
    /// hears something of it within `timeout`.
    fn are_deaf(
        &mut self,
        least: u32,
        [polled, sent]: [u32; 2],
        timeout: Nanos,
        now: LocalNs,
    ) -> bool {
        if least > self.least {
            *self = Self { least, left: sent, since: now };
        }
        polled.saturating_sub(self.left) >= UNHEARD && now.since(self.since) >= timeout
    }
}

/// Whom the group reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MulticastScope {
    /// Everybody, as far as is known.
    All,
    /// The root's leaf, and not all.
    Leaf,
    /// Somebody of the root's leaf not either.
    None,
}

/// The root's knowledge of its group.
#[derive(Debug, Default)]
pub(super) struct MulticastProbe {
    /// What had left to the group at the last poll.
    polled: u32,
    all: GroupReceipt,
    leaf: GroupReceipt,
    probe_at: Option<LocalNs>,
}

impl MulticastProbe {
    /// Records that a poll leaves, and how much has left to the group.
    pub(super) fn polled(&mut self, sent: u32) {
        self.polled = sent;
    }

    /// Records that everybody has answered the last poll, how much all have heard, and how much the
    /// root's `leaf` if there is anybody else. Where polls do not go through the group, what it was
    /// `sent` says what can have been heard: the last of it may have been.
    pub(super) fn answered(
        &mut self,
        (all, leaf): (u32, Option<u32>),
        sent: Option<u32>,
        timeout: Nanos,
        now: LocalNs,
    ) -> MulticastScope {
        if sent.is_some() && self.polled.saturating_sub(self.leaf.left) < UNHEARD {
            // Nothing left to the group, so silence must not count against it.
            self.leaf.since = now;
        }
        let left = [self.polled, sent.unwrap_or(self.polled)];
        let is_leaf_deaf = leaf.is_none_or(|leaf| self.leaf.are_deaf(leaf, left, timeout, now));
        match self.all.are_deaf(all, left, timeout, now) {
            false => MulticastScope::All,
            true if is_leaf_deaf => MulticastScope::None,
            true => MulticastScope::Leaf,
        }
    }

    /// Gives the group up at `now`.
    pub(super) fn give_up(&mut self, now: LocalNs) {
        self.probe_at = Some(now + PROBE);
    }

    /// Returns, while the group is given up, whether all have heard something of it.
    pub(super) fn is_back(&mut self, report: &ProgressReport, now: LocalNs) -> bool {
        let is_back = self.probe_at.is_some() && report.heard > self.all.least;
        if is_back {
            self.probe_at = None;
            self.all = GroupReceipt { least: report.heard, left: self.polled, since: now };
        }
        is_back
    }

    /// Returns whether it is time to look; the next time is later.
    pub(super) fn probes(&mut self, now: LocalNs) -> bool {
        let due = self.probe_at.is_some_and(|at| at <= now);
        if due {
            self.probe_at = Some(now + PROBE);
        }
        due
    }

    pub(super) const fn deadline(&self) -> Option<LocalNs> {
        self.probe_at
    }
}
