//! What a receiver says of itself and of those below it, and when: one report for each poll,
//! however much comes in between.
//!
//! # Model
//! A poll is answered when all children have answered: at the end of all objects as soon as
//! everything is here, or after half a round trip without; in the middle at once where something is
//! missing, otherwise when what came has been looked at; at once where an object is not known, so
//! that it is announced again. A member that had to say that something is missing at the end of all
//! objects says so again when it is here, because nobody polls behind.
//!
//! # Invariants
//! I1. Others have reported in this view what a report claims for them.

use super::context::{BroadcastEvent, SlowReceivers};
use super::frame::{BroadcastFrame, ProgressReport};
use super::rate_control::LOST;
use super::state::MemberState;
use crate::base::{LocalNs, Nanos};
use crate::wire::Out;

/// A receiver's reports.
#[derive(Debug)]
pub(super) struct ReportSender {
    /// When a report is due at the latest, and what the last one said.
    due: Option<LocalNs>,
    /// A poll waits for its answer.
    asked: bool,
    last: Option<ProgressReport>,
    /// Messages that came through the group.
    heard: u32,
    /// Symbols that were missed at first, were marked and were new, since the beginning, and at the
    /// last report.
    counts: [u64; 3],
    counted: [u64; 3],
    lately: LossAverage,
    rates: [u32; 2],
    /// When it last lost more than a link's own share.
    lost_at: Option<LocalNs>,
    /// Since when it is far behind, and whether the others go on without waiting for it.
    behind_since: Option<LocalNs>,
    is_parked: bool,
}

/// Of fewer symbols a share lost says little: of the 64 between two polls one receiver of seven
/// often misses 3 % where 1 % is lost.
const SAMPLE: u64 = 512;

/// A member that lost something counts as losing for so long: members report at different times,
/// and lose in turns what does not fit into a queue that they share.
const LOSING: Nanos = Nanos::from_secs(4);

/// Symbols missed, of all, of which older ones count less and less.
#[derive(Clone, Copy, Debug, Default)]
struct LossAverage {
    missed: u64,
    all: u64,
}

impl LossAverage {
    fn add(&mut self, missed: u64, new: u64) {
        if self.all >= 2 * SAMPLE {
            (self.missed, self.all) = (self.missed / 2, self.all / 2);
        }
        (self.missed, self.all) = (self.missed + missed, self.all + missed + new);
    }
}

/// What the application has given.
#[derive(Clone, Copy, Debug)]
pub(super) struct ApplicationCredit {
    /// Messages that find a slot, since the beginning.
    pub(super) slots: u32,
    /// Long objects that find a place.
    pub(super) places: u32,
    /// Slots in all.
    pub(super) all: u32,
}

impl ReportSender {
    pub(super) const fn new() -> Self {
        Self {
            due: None,
            asked: false,
            last: None,
            heard: 0,
            counts: [0; 3],
            counted: [0; 3],
            lately: LossAverage { missed: 0, all: 0 },
            rates: [0; 2],
            lost_at: None,
            behind_since: None,
            is_parked: false,
        }
    }

    pub(super) const fn deadline(&self) -> Option<LocalNs> {
        self.due
    }

    /// Records a message of the root, which perhaps came through the group and was perhaps marked
    /// by the network.
    pub(super) fn packet_received(&mut self, to_group: bool, is_marked: bool) {
        self.heard = self.heard.saturating_add(u32::from(to_group));
        self.counts[1] += u64::from(is_marked);
    }

    /// Counts the symbols that were missed when a newer one came.
    pub(super) fn missed(&mut self, symbols: u64) {
        self.counts[0] += symbols;
    }

    /// Records that a new symbol was kept.
    pub(super) fn kept(&mut self) {
        self.counts[2] += 1;
    }

    /// Makes a report leave within `wait`, if none leaves sooner.
    pub(super) fn soon(&mut self, now: LocalNs, wait: Nanos) {
        self.due.get_or_insert(now + wait);
    }

    /// Enters another view: what was said in the one before counts no more.
    pub(super) fn restart(&mut self, now: LocalNs) {
        (self.last, self.asked) = (None, false);
        self.due = Some(now);
    }

    /// Handles a new poll.
    pub(super) fn polled(
        &mut self,
        state: &mut MemberState,
        credit: ApplicationCredit,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        self.park(state, now);
        self.asked = true;
        // A poll that follows soon does not put off the answer to the one before.
        let is_leaf = state.links.children.is_empty();
        self.soon(now, if is_leaf { Nanos(state.quiet().0 / 2) } else { state.quiet() });
        if state.edge > state.tail() {
            return self.report(state, credit, now, out);
        }
        self.came(state, credit, now, out);
    }

    /// Records that something came: perhaps all that the last poll waits for is here now.
    pub(super) fn came(
        &mut self,
        state: &mut MemberState,
        credit: ApplicationCredit,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        let is_whole = state.holding.received() >= state.edge;
        if self.asked && (is_whole || is_short(state)) && state.reports.all_answered() {
            return self.report(state, credit, now, out);
        }
        let was_short = !self.asked && self.last.is_some_and(|last| last.stable < state.edge);
        if is_whole && was_short && state.edge >= state.tail() {
            let merged = state.reports.merged(Some(self.own(state, credit, now)), now);
            if merged.is_some_and(|merged| merged.stable >= state.edge) {
                self.report(state, credit, now, out);
            }
        }
    }

    /// Reports when the root may wait for slots or places that are there.
    pub(super) fn freed(&mut self, state: &MemberState, credit: ApplicationCredit, now: LocalNs) {
        let own = self.own(state, credit, now);
        let (Some(last), Some(merged)) = (self.last, state.reports.merged(Some(own), now)) else {
            return;
        };
        if merged.places > last.places || merged.slots > last.slots.saturating_add(credit.all / 2) {
            self.soon(now, state.quiet());
        }
    }

    pub(super) fn tick(
        &mut self,
        state: &mut MemberState,
        credit: ApplicationCredit,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if self.due.is_none_or(|at| at > now) {
            return;
        }
        // Perhaps the group does not reach these children: the poll must reach them another way.
        let poll = state.poll();
        state
            .reports
            .unanswered()
            .for_each(|child| state.send(child, &poll, state.reports.poll(), out));
        self.report(state, credit, now, out);
    }

    /// Leaves the others alone, or comes back to them, by how far behind this member is and for how
    /// long.
    fn park(&mut self, state: &MemberState, now: LocalNs) {
        let SlowReceivers::Park(timeout) = state.config.slow_receivers else { return };
        let behind = state.edge.saturating_sub(state.holding.received());
        let most = u64::from(state.config.window / 2);
        match self.behind_since {
            _ if behind < most => (self.behind_since, self.is_parked) = (None, false),
            None => self.behind_since = Some(now),
            Some(since) => self.is_parked = now.since(since) > timeout,
        }
    }

    /// Returns what this member alone has to say.
    fn own(&self, state: &MemberState, credit: ApplicationCredit, now: LocalNs) -> ProgressReport {
        // A symbol that was given up must not be reported: somebody would find it to be with
        // everybody.
        let stable = state.holding.received().min(state.end().unwrap_or(u64::MAX));
        ProgressReport {
            received: if self.is_parked { u64::MAX } else { stable },
            stable,
            known: state.objects.known(),
            slots: credit.slots,
            places: credit.places,
            alive: 1,
            heard: self.heard,
            slowest: state.me,
            lost: self.rates[0],
            losing: u32::from(self.lost_at.is_some_and(|at| now.since(at) < LOSING)),
            marked: self.rates[1],
            settled: state.is_aborted(),
        }
    }

    /// Returns the shares of symbols missed lately, and marked since the last report.
    fn count(&mut self, now: LocalNs) {
        let [missed, marked, new] = [0, 1, 2].map(|what| self.counts[what] - self.counted[what]);
        self.rates = [0; 2];
        if new > 0 {
            self.counted = self.counts;
            self.lately.add(missed, new);
            let share = |part: u64, all: u64| (part.min(all) * 1_000_000 / all) as u32;
            self.rates = [
                share(self.lately.missed, self.lately.all.max(SAMPLE)),
                share(marked, new + missed),
            ];
            if self.rates[0] > LOST {
                // The root slows down by this share: what comes then is counted anew.
                self.rates[0] = share(self.lately.missed, self.lately.all);
                self.lost_at = Some(now);
                self.lately = LossAverage::default();
            }
        }
    }

    fn report(
        &mut self,
        state: &mut MemberState,
        credit: ApplicationCredit,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        (self.due, self.asked) = (None, false);
        self.count(now);
        let Some(parent) = state.links.parent else { return };
        if let Some(report) = state.reports.merged(Some(self.own(state, credit, now)), now) {
            state.send(parent, &BroadcastFrame::Status(report), state.reports.poll(), out);
            self.last = Some(report);
            state.reports.consume();
        }
    }
}

/// Returns, in the middle of objects, whether something is missing, so that waiting brings nothing.
fn is_short(state: &MemberState) -> bool {
    let lacks = |block| state.holding.missing(block, state.edge) != 0;
    state.edge < state.tail() && state.holding.gaps(state.edge).any(lacks)
}
