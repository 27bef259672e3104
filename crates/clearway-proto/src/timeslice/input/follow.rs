//! What an input does about those who come and go: what it has at stake, and what is sent again to
//! whom.
//!
//! # Model
//! An input that was asked for its stake sends nothing at or beyond its horizon and hears no more
//! of what the builder in question releases, until something is decided. Then it goes on by the new
//! orders. Contributions that a removed builder has settled count as released; the rest was never
//! given back to the source, and stands in the orders of others.

use super::*;
use crate::timeslice::membership::{Change, Decision, RosterMember, Stake};

/// The rotations for which an input goes on while a decision is made: as many as rings are ahead
/// under policies that grant, so that nobody stands still for one. But no further than it has
/// something to send: what a dead builder left stands behind what is dealt by the old turns, and an
/// input whose memory is full of it gets nothing more before that was sent.
const HEADROOM_ROTATIONS: u64 = 4;
/// The timeslices for which it goes on at least, where rotations are short.
const HEADROOM_LEAST: u64 = 64;

impl InputNode {
    /// Returns what this input has at stake while `target` is in question, to which it holds from
    /// now on.
    pub(in crate::timeslice) fn stake(&mut self, target: RosterMember) -> Stake {
        let journal = self.connections.journal.clone();
        let rotations = HEADROOM_ROTATIONS * self.connections.all.len() as u64;
        let least = self.reached.max(journal.from());
        let ahead = least
            .saturating_add(rotations.max(HEADROOM_LEAST))
            .min(self.connections.supply.ready().min(self.connections.send_limit()).max(least));
        let horizon = *self.connections.horizon.get_or_insert(ahead);
        let released = match journal.role(target) {
            Role::Builder(place) if place < self.connections.all.len() => {
                let connection = &mut self.connections.all[place];
                connection.is_frozen = true;
                connection.released
            }
            _ => 0,
        };
        Stake { horizon, released }
    }

    /// Follows what was decided.
    pub(in crate::timeslice) fn follow(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        decision: Decision,
    ) -> More {
        self.connections.journal = cx.journal.clone();
        let changed = match decision.change {
            Change::Remove { member, .. } | Change::Join { member, .. } => {
                Some(cx.journal.role(member))
            }
            _ => None,
        };
        if let (Change::Join { .. }, Some(Role::Input(_)), Some(from)) =
            (decision.change, changed, &mut self.connections.bounded_from)
        {
            *from = cx.journal.epoch();
        }
        match (decision.change, changed) {
            (Change::Remove { settled, .. }, Some(Role::Builder(place))) => {
                self.lose(cx, place, settled)
            }
            (Change::Join { member, .. }, Some(Role::Builder(place))) => {
                let life = cx
                    .journal
                    .life(member)
                    .max(cx.journal.life(cx.journal.member(Role::Input(self.place))));
                let connection = BuilderConnection::new(
                    self.connections.all[place].peer,
                    ConnectionState::Calling,
                    life,
                );
                self.connections.all[place] =
                    BuilderConnection { reported: self.reports_made, ..connection };
                self.burdens.forget(place);
                self.outbox.want(place);
                self.retry_at.get_or_insert(cx.now + RETRY);
            }
            _ => {}
        }
        self.connections.horizon = None;
        self.connections.look_up_all(self.place);
        self.policy.redealt(cx.now, &self.connections);
        for place in 0..self.connections.all.len() {
            if core::mem::take(&mut self.connections.all[place].is_frozen) {
                self.hear_released(cx, place);
            }
        }
        self.notify_end();
        self.look_if_ready(cx);
        self.try_to_end();
        self.look_if_ended(cx);
        self.go_on(cx)
    }

    /// Loses the builder at `place`, which is out. Contributions that it has settled are released;
    /// the others are sent again, to others.
    fn lose(&mut self, cx: &mut TimesliceContext<'_>, place: usize, settled: u64) {
        let connection = &mut self.connections.all[place];
        self.writes -= connection.writes;
        let gone = BuilderConnection::new(connection.peer, ConnectionState::Out, connection.life);
        let sent = core::mem::replace(connection, gone).sent;
        self.again.retain(|(builder, ..)| *builder as usize != place);
        self.policy.builder_left(place);
        let mut free = None;
        for sent in sent.into_iter().filter(|sent| sent.position < settled) {
            free = self.connections.supply.release(sent.timeslice).or(free);
            self.policy.released(cx.now, place, sent.turn);
            self.record.released += 1;
        }
        if let Some(timeslice) = free {
            cx.out.notify(TimesliceEvent::Free { timeslice });
        }
    }

    /// Notifies builders where the stream ends, which matters to them as soon as they may have
    /// earlier timeslices behind later ones.
    pub(super) fn notify_end(&mut self) {
        if self.connections.journal.epoch() > 0 && self.connections.supply.end().is_some() {
            for (place, connection) in self.connections.all.iter_mut().enumerate() {
                connection.tells_end = true;
                self.outbox.want(place);
            }
        }
    }
}
