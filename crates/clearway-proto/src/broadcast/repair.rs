//! What a receiver asks for, of whom and when: a neighbour first, and the one above only for what
//! that one did not bring.
//!
//! # Model
//! A gap is asked for when three newer symbols are here and a quarter of a round trip has passed,
//! and at once when a poll that came behind everything says so. A poll that came another way may be
//! ahead of what is still coming: what lies behind the newest symbol is then asked for when nothing
//! has come for a round trip. Through a group every neighbour has nearly everything, so that the
//! root repairs a share of what its neighbours lose and not of what all lose, and what was asked
//! for is asked of the one above in the tree of reports when no answer has come for a round trip.
//!
//! Along a chain or tree it is the source of the symbols that is asked. Between it and here they
//! may stand in queues for many round trips of a poll, so that silence says nothing: only the last
//! symbol is then asked for, and what it comes before was lost; and the first, because the source
//! may have no place for the last one before others have the first.
//!
//! How much is asked for at a time depends on how much of it comes (`repair_allowance`).
//!
//! # Invariants
//! I1. Nothing is asked for twice within a round trip.

use super::context::BroadcastEvent;
use super::frame::{Algorithm, BlockNack, BroadcastFrame, Nacks};
use super::receive_window::{BLOCK, below};
use super::repair_allowance::RepairAllowance;
use super::state::MemberState;
use crate::base::{LocalNs, Nanos};
use crate::wire::Out;

/// Newer symbols behind a gap before it is taken for one: three, as for TCP (RFC 5681).
const REORDER: u64 = 3;
/// Messages of needs in one go: a quarter of the largest window; the next poll asks for the rest.
const NEEDS: usize = 4;
/// Times that an answer may take after which the one from whom symbols come is taken to get none
/// itself: it may have to ask some times as well.
const STUCK: u64 = 8;

/// Whether a poll can have overtaken symbols that left before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollOrdering {
    /// It came the way of all symbols, with the one before this sequence.
    Behind(u64),
    /// Perhaps.
    Loose,
}

/// The member that is asked for what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepairSource {
    /// A neighbour, or from whom symbols come.
    Near,
    /// To whom this member reports.
    Parent,
}

/// What was asked for.
#[derive(Debug)]
pub(super) struct RepairRequests {
    /// Gaps below were asked for, the oldest of them at `asked_at`.
    asked: u64,
    allowance: RepairAllowance,
    asked_at: LocalNs,
    due: Option<LocalNs>,
    /// Behind the last symbol that came, whether there was a place for it or not.
    seen: u64,
    /// The edge that the last poll named, when a symbol last came, and when one last closed the
    /// first gap, or there came to be one.
    edge: u64,
    came_at: LocalNs,
    moved_at: LocalNs,
}

impl RepairRequests {
    pub(super) const fn new(now: LocalNs) -> Self {
        Self {
            asked: 0,
            allowance: RepairAllowance::new(),
            asked_at: now,
            due: None,
            seen: 0,
            edge: 0,
            came_at: now,
            moved_at: now,
        }
    }

    pub(super) const fn deadline(&self) -> Option<LocalNs> {
        self.due
    }

    /// Asks for everything anew: the neighbours are others, or what was asked of them is forgotten.
    pub(super) fn restart(&mut self, now: LocalNs) {
        self.asked = 0;
        self.moved_at = now;
    }

    /// Records that a symbol came.
    pub(super) fn symbol_arrived(&mut self, sequence: u64, now: LocalNs) {
        self.came_at = now;
        self.seen = self.seen.max(sequence.saturating_add(1));
    }

    /// Records that a symbol was kept; it may have closed the first gap, or lie behind one.
    /// The first gap was at `before`.
    pub(super) fn kept(
        &mut self,
        state: &mut MemberState,
        sequence: u64,
        before: u64,
        now: LocalNs,
    ) {
        if sequence < self.asked {
            self.allowance.came();
        }
        let received = state.holding.received();
        if received > before {
            self.moved_at = now;
            if before < self.asked && received >= self.asked {
                state.reports.waited(now.since(self.asked_at));
            }
        }
        if self.due.is_none() && received.max(self.asked) < self.newest(state) {
            self.due = Some(now + Nanos(state.quiet().0 / 4));
        }
    }

    /// Records that a symbol was not what the sender's memory held.
    pub(super) fn damaged(
        &self,
        state: &MemberState,
        sequence: u64,
        out: &mut Out<BroadcastEvent>,
    ) {
        Self::ask(state, (sequence, sequence + 1), 1, RepairSource::Near, out);
    }

    /// Records that a poll says that everything below the edge has left the root.
    pub(super) fn polled(
        &mut self,
        state: &MemberState,
        order: PollOrdering,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        let edge = edge(state);
        if state.holding.received() >= self.edge {
            (self.came_at, self.moved_at) = (now, now);
        }
        self.edge = edge;
        if state.holding.received() >= edge {
            return;
        }
        match order {
            PollOrdering::Behind(sequence) => self.ask_below(state, edge.min(sequence), now, out),
            PollOrdering::Loose => {
                self.ask_below(state, self.newest(state), now, out);
                let at = now + state.pause();
                self.due = Some(self.due.unwrap_or(at).min(at));
            }
        }
    }

    pub(super) fn tick(
        &mut self,
        state: &MemberState,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if self.due.is_none_or(|at| at > now) {
            return;
        }
        self.due = None;
        let (edge, newest) = (self.edge.min(edge(state)), self.newest(state));
        let rest_is_over = self.came_at + state.pause();
        let is_whole = state.holding.received() >= edge;
        let is_silent = !is_whole && now >= rest_is_over;
        let all = is_silent && state.algorithm == Algorithm::Multicast;
        self.ask_below(state, if all { edge.max(newest) } else { newest }, now, out);
        if is_silent && state.algorithm != Algorithm::Multicast {
            self.ask_of_ends(state, edge, out);
        }
        self.due = (!is_whole && !is_silent).then_some(rest_is_over);
    }

    /// Asks for the first and the last symbol below `edge`, if they were not asked for: what comes
    /// of them says what else was lost.
    fn ask_of_ends(&self, state: &MemberState, edge: u64, out: &mut Out<BroadcastEvent>) {
        let first = state.holding.received();
        // Through a group, what one has not got for so long its neighbour may lack as well.
        let whom = if state.is_fed_by_group() { RepairSource::Parent } else { RepairSource::Near };
        if first >= self.asked {
            Self::ask(state, (first, first + 1), 1, whom, out);
        }
        if self.seen < edge {
            Self::ask(state, (edge - 1, edge), 1, whom, out);
        }
    }

    /// Returns the sequence below which a gap is no symbol that is only late: three have come
    /// behind it, or the last one that has left.
    fn newest(&self, state: &MemberState) -> u64 {
        let is_last = state.algorithm != Algorithm::Multicast && self.seen == self.edge;
        if is_last { self.edge } else { state.holding.highest().saturating_sub(REORDER) }
    }

    /// Asks near by for what is missing below `edge` and was not asked for, and above for what was
    /// and did not come.
    fn ask_below(
        &mut self,
        state: &MemberState,
        edge: u64,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        let received = state.holding.received();
        // As long as the first gap moves, what was asked for is on its way.
        let timeout = self.allowance.timeout(state.repair_timeout());
        if received < self.asked && now.since(self.asked_at.max(self.moved_at)) > timeout {
            self.allowance.lost(missing_below(state, self.asked));
            let is_stuck = now.since(self.moved_at) > state.reports.time_out().times(STUCK);
            let whom = if state.is_fed_by_group() || is_stuck {
                RepairSource::Parent
            } else {
                RepairSource::Near
            };
            self.asked = Self::ask(state, (0, self.asked), self.allowance.room(0), whom, out);
            self.asked_at = now;
        }
        let room = self.allowance.room(missing_below(state, self.asked));
        if edge > self.asked && room > 0 {
            let until = Self::ask(state, (self.asked, edge), room, RepairSource::Near, out);
            if received >= self.asked {
                self.asked_at = now;
            }
            self.asked = until;
        }
    }

    /// Asks for what is missing from sequence `from` on below `edge`, for `room` symbols at most;
    /// returns up to where it fitted.
    fn ask(
        state: &MemberState,
        (from, edge): (u64, u64),
        mut room: u32,
        whom: RepairSource,
        out: &mut Out<BroadcastEvent>,
    ) -> u64 {
        let near = match (whom, state.algorithm) {
            (RepairSource::Near, Algorithm::Multicast) => state.links.near,
            (RepairSource::Near, Algorithm::Chain) => state.links.before,
            (RepairSource::Near, Algorithm::Tree) => state.links.elder,
            (RepairSource::Near, Algorithm::Segments) if state.links.is_head => state.links.before,
            (RepairSource::Near, Algorithm::Segments) => state.links.near,
            (RepairSource::Parent, _) => None,
        };
        let Some(place) = near.or(state.links.parent) else { return edge };
        let (mut messages, mut until) = (0, edge);
        let mut needs = Nacks::default();
        for block in state.holding.gaps(edge) {
            let missing = state.holding.missing(block, edge) & !below(block, from);
            let wanted = lowest(missing, room);
            let need = BlockNack { block, missing: wanted };
            if wanted != 0 && !needs.push(need) {
                state.send(place, &BroadcastFrame::Need(needs), 0, out);
                messages += 1;
                if messages == NEEDS {
                    return block * BLOCK;
                }
                needs = Nacks::default();
                needs.push(need);
            }
            room -= wanted.count_ones();
            if wanted != missing {
                until = block * BLOCK + u64::from((missing & !wanted).trailing_zeros());
                break;
            }
        }
        if !needs.is_empty() {
            state.send(place, &BroadcastFrame::Need(needs), 0, out);
        }
        until
    }
}

/// Returns up to where everything has left the root, as far as it is to be finished.
fn edge(state: &MemberState) -> u64 {
    state.edge.min(state.end().unwrap_or(u64::MAX))
}

/// Returns how many symbols are missing below `sequence`.
fn missing_below(state: &MemberState, sequence: u64) -> u32 {
    let missing = |block| state.holding.missing(block, sequence).count_ones();
    state.holding.gaps(sequence).map(missing).sum()
}

/// Returns the lowest `room` of the `missing` symbols of a block.
fn lowest(missing: u64, room: u32) -> u64 {
    let mut beyond = missing;
    for _ in 0..room.min(missing.count_ones()) {
        beyond &= beyond - 1;
    }
    missing & !beyond
}
