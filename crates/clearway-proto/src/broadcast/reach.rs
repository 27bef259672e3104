//! Whether the group still reaches everybody: what every member heard through it, against what left.
//!
//! # Model
//! Members count what they hear of the root through the group; reports carry the least count. When that stands still while members
//! answer polls that came another way, and much has left to the group meanwhile, the group does not reach somebody. From time to
//! time the root then sends a message to the group, and when all counts have moved the group is there again.

use super::frame::Report;
use crate::base::{LocalNs, Nanos};

/// Messages to the group of which somebody heard none. At a tenth lost, all of eight are once in a hundred million.
const UNHEARD: u32 = 8;
/// Between two looks whether a group works again: membership in switches takes seconds to come back.
const PROBE: Nanos = Nanos::from_secs(1);
/// Messages of one look.
pub(super) const PROBES: u32 = 3;

/// The root's knowledge of its group.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// What had left to the group at the last poll, and when somebody's count last moved.
    polled: u32,
    moved: u32,
    moved_at: LocalNs,
    /// The least count.
    heard: u32,
    probe_at: Option<LocalNs>,
}

impl Reach {
    /// A poll leaves; so much has left to the group.
    pub(super) fn polled(&mut self, sent: u32) {
        self.polled = sent;
    }

    /// Everybody has answered the last poll. Says whether the group does not reach somebody: who is only slow hears something of it
    /// within `patience`.
    pub(super) fn is_lost(&mut self, report: &Report, patience: Nanos, now: LocalNs) -> bool {
        if report.heard > self.heard {
            (self.heard, self.moved, self.moved_at) = (report.heard, self.polled, now);
        }
        self.polled - self.moved >= UNHEARD && now.since(self.moved_at) >= patience
    }

    /// The group is given up at `now`.
    pub(super) fn give_up(&mut self, now: LocalNs) {
        self.probe_at = Some(now + PROBE);
    }

    /// While it is given up: whether all have heard something of it.
    pub(super) fn is_back(&mut self, report: &Report, now: LocalNs) -> bool {
        let is_back = self.probe_at.is_some() && report.heard > self.heard;
        if is_back {
            self.probe_at = None;
            (self.heard, self.moved, self.moved_at) = (report.heard, self.polled, now);
        }
        is_back
    }

    /// Whether it is time to look; the next time is later.
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
