//! What a builder does about those who come and go: who is waited for, and what of its work counts.
//!
//! # Model
//! An input that is out is not waited for any more: what waited for it alone is complete, without
//! it. A contribution of it that has landed stays until it is released. Writes of an input that
//! knows more decisions than this builder are kept until this one knows them too.

use super::*;

impl Builder {
    /// Returns what this builder has at stake while `target` is in question: when that is itself,
    /// what it has released.
    pub(in crate::timeslice) fn stake(&self, journal: &Journal, target: RosterMember) -> Stake {
        let is_me = target == journal.member(Role::Builder(self.place));
        Stake { horizon: 0, released: if is_me { self.first } else { 0 } }
    }

    /// Follows what was decided.
    pub(in crate::timeslice) fn follow(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        decision: Decision,
    ) -> More {
        if let Change::Remove { member, .. }
        | Change::Join { member, .. }
        | Change::Retire { member } = decision.change
            && let Role::Input(place) = cx.journal.role(member)
        {
            self.turn_line(cx, place, member);
            self.look_at_capacity();
        }
        if let Some(policy) = &mut self.policy {
            policy.redealt(cx.journal.deals());
        }
        self.look_again(cx);
        self.forget_moved(cx.journal);
        self.skip(cx.journal);
        (0..self.lines.len()).for_each(|place| self.greet(cx.now, place));
        for place in 0..self.lines.len() {
            for EarlyWrite { into, word, at } in core::mem::take(&mut self.lines[place].early) {
                if let Some((position, timeslice, bytes)) =
                    self.piece(cx.journal, place, into, word, at)
                {
                    self.whole(cx, place, [position, timeslice], bytes, at);
                }
            }
        }
        self.go_on(cx)
    }

    /// Notes that the input at `place` is in, or out, or sends nothing more from some timeslice on.
    fn turn_line(&mut self, cx: &mut TimesliceContext<'_>, place: usize, member: RosterMember) {
        let journal = cx.journal;
        let life =
            journal.life(member).max(journal.life(journal.member(Role::Builder(self.place))));
        let line = &mut self.lines[place];
        let (was_in, is_in) = (line.is_in, journal.takes_part(member));
        let mut range = journal.range(place);
        if was_in {
            // It may have followed, and said where its stream ends, before this builder did.
            range.end = range.end.min(line.end);
        }
        let start = range.start;
        self.assemblies.expect(place, is_in.then_some(range));
        if was_in == is_in {
            return;
        }
        if is_in {
            // It gives this again, and nobody else has given any of it.
            self.assemblies.forget(place, start);
            line.forget(|_, timeslice| timeslice >= start);
        }
        // A contribution that has landed whole stays until it is released; one that has not never
        // will.
        let mut slots = core::mem::take(&mut line.slots);
        slots
            .iter_mut()
            .filter(|slot| slot.state == ContributionState::Landing)
            .for_each(|slot| *slot = ContributionSlot::default());
        let (hello, fill) = (line.hello, line.fill);
        *line =
            InputConnection { slots, fill, hello, ..InputConnection::new(line.peer, is_in, life) };
        let row = journal
            .next(self.place, self.first, &journal.range(place))
            .map(|(position, _)| position);
        line.begins = row.unwrap_or(0);
        match (&mut self.policy, row) {
            (Some(policy), Some(row)) if is_in => policy.input_joined(place, row),
            (Some(policy), _) if !is_in => policy.input_left(place),
            _ => {}
        }
    }

    /// Forgets contributions that stand elsewhere now: inputs that are out had sent them, of which no
    /// decision takes notice.
    fn forget_moved(&mut self, journal: &Journal) {
        let (place, first) = (self.place, self.first);
        for line in &mut self.lines {
            line.forget(|behind, timeslice| journal.nth(place, first + behind) != Some(timeslice));
        }
    }

    /// Timeslices that this builder reported as complete, but that it has no part in building if no
    /// more than `settled` positions of its order count.
    pub(in crate::timeslice) fn void(&self, journal: &Journal, settled: u64) -> Vec<u64> {
        self.assemblies
            .complete_from(settled)
            .filter_map(|position| journal.nth(self.place, position))
            .collect()
    }

    /// Returns whether everything that this builder was to build is released.
    pub(in crate::timeslice) fn is_through(&self, journal: &Journal) -> bool {
        journal.nth(self.place, self.first).is_none()
    }

    /// Notes that the input at `place` has nothing for `end` and later.
    pub(super) fn expect_until(&mut self, cx: &mut TimesliceContext<'_>, place: usize, end: u64) {
        self.lines[place].end = end;
        let range = cx.journal.range(place);
        self.assemblies.expect(place, Some(range.start..range.end.min(end)));
        self.look_again(cx);
        self.skip(cx.journal);
    }

    /// Looks what is complete because others are expected than before.
    fn look_again(&mut self, cx: &mut TimesliceContext<'_>) {
        for complete in self.assemblies.look_again(cx.now, cx.journal) {
            self.complete(cx, complete);
        }
    }

    /// Goes past positions that nobody has anything for.
    pub(super) fn skip(&mut self, journal: &Journal) {
        for position in self.assemblies.skip(journal) {
            self.freed.insert(position);
        }
        self.pass();
    }
}
