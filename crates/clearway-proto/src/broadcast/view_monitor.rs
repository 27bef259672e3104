//! The members that take part from now on: silence, deaths that are known, and how everybody learns
//! of them.
//!
//! # Model
//! The root puts out who is silent; members above others tell it who is. When the root itself is
//! silent the first living member of the list takes its part, the second one after twice the
//! silence, and so on. The root sends a view to all, and everybody to those from whom something of
//! another view comes. A view is *formed* when all its members have reported in it. Of two views
//! that follow the last formed one the later one counts, and nothing of another view is listened
//! to.
//!
//! # Invariants
//! I1. On silence alone a view follows only if it keeps more than half of the last formed one, or
//!     half of it with its root: two
//!     halves of a network that is cut do not both go on. A death that is known needs no such count.
//! I2. A member that stood still itself does not blame the others for what it did not hear.
//! I3. Members that are silent at the same time are judged together: all go, or none. Putting out
//!     as many as the count allows, and then
//!     none of the rest, would end nothing, and those that speak again would be out.

use super::context::{BroadcastEvent, SlowReceivers};
use super::frame::BroadcastFrame;
use super::node::BroadcastNode;
use super::root::Root;
use super::tree::View;
use crate::base::{LocalNs, Nanos};
use crate::wire::{Operation, Out};

/// Looks at who is silent, in one silence.
const LOOKS: u64 = 4;

/// What is known besides views.
#[derive(Debug)]
pub(super) struct ViewMonitor {
    /// Dead for certain.
    dead: alloc::vec::Vec<u16>,
    look_at: LocalNs,
    last_input: LocalNs,
    answered_at: LocalNs,
    helpless: bool,
}

impl ViewMonitor {
    pub(super) const fn new() -> Self {
        let zero = LocalNs(0);
        Self {
            dead: alloc::vec::Vec::new(),
            look_at: zero,
            last_input: zero,
            answered_at: zero,
            helpless: false,
        }
    }

    pub(super) const fn deadline(&self) -> LocalNs {
        self.look_at
    }
}

impl BroadcastNode {
    /// Notes an input, and whether this node stood still before it.
    pub(super) fn note(&mut self, now: LocalNs) {
        let gap = now.since(self.watch.last_input);
        self.watch.last_input = now;
        if gap.0 > self.state.config.silence.0 / 2 {
            self.state.reports.reset_silence(now);
            if let Some(receiver) = &mut self.receiver {
                receiver.root_heard = now;
            }
        }
    }

    /// Looks at who is silent.
    pub(super) fn look(&mut self, now: LocalNs, out: &mut Out<BroadcastEvent>) {
        if self.watch.look_at > now {
            return;
        }
        let silence = self.state.config.silence;
        self.watch.look_at = now + Nanos((silence.0 / LOOKS).max(1));
        let silent: alloc::vec::Vec<u16> = self.state.reports.silent(silence, now).collect();
        if self.root.is_some() {
            self.watch.helpless &= !silent.is_empty();
            self.remove(&silent, now, out);
        } else {
            let root = self.state.view.root();
            silent.iter().for_each(|place| {
                self.state.send(root, &BroadcastFrame::Suspect { place: *place }, 0, out)
            });
        }
        self.look_at_root(now, out);
        self.evict(now, out);
    }

    /// Takes the root's part if that is silent and everybody before this member in the list had the
    /// time to.
    fn look_at_root(&mut self, now: LocalNs, out: &mut Out<BroadcastEvent>) {
        let (None, Some(receiver)) = (&self.root, &self.receiver) else { return };
        let root = self.state.view.root();
        let is_dead = |place: &u16| self.watch.dead.contains(place);
        // This holds nearly always, and the list below is too long to walk each time.
        if !is_dead(&root) && now.since(receiver.root_heard) < self.state.config.silence {
            self.watch.helpless = false;
            return;
        }
        let before =
            self.state.view.places().filter(|place| *place != root && *place < self.state.me);
        let before: alloc::vec::Vec<u16> = before.filter(|place| !is_dead(place)).collect();
        let known = is_dead(&root);
        let turns = before.len() as u64 + u64::from(!known);
        if now.since(receiver.root_heard) < self.state.config.silence.times(turns)
            || (known && turns > 0 && !self.is_late(now, turns))
        {
            return;
        }
        let dead = self.watch.dead.clone();
        let gone = core::iter::once(root).chain(before).chain(dead);
        let mut view = self.state.view.clone();
        for place in gone {
            view = view.without(place, self.state.me).unwrap_or(view);
        }
        self.follow(view, now, out);
    }

    fn is_late(&self, now: LocalNs, turns: u64) -> bool {
        let silence = self.state.config.silence.times(turns);
        self.receiver.as_ref().is_some_and(|receiver| now.since(receiver.root_heard) >= silence)
    }

    /// Puts out who holds everybody up for too long, if that is the rule.
    fn evict(&mut self, now: LocalNs, out: &mut Out<BroadcastEvent>) {
        let SlowReceivers::Evict(timeout) = self.state.config.slow_receivers else { return };
        if let Some(place) =
            self.root.as_ref().and_then(|root| root.hopeless(&self.state, timeout, now))
        {
            self.remove(&[place], now, out);
        }
    }

    /// Removes, at the root, these `places`, which do not take part any more.
    pub(super) fn remove(&mut self, places: &[u16], now: LocalNs, out: &mut Out<BroadcastEvent>) {
        let without = |view: View, place: &u16| view.without(*place, self.state.me).unwrap_or(view);
        let view = places.iter().fold(self.state.view.clone(), without);
        if view != self.state.view {
            self.follow(view, now, out);
        }
    }

    /// Records that a member knows that `place` is dead.
    pub(super) fn known_dead(&mut self, place: u16, now: LocalNs, out: &mut Out<BroadcastEvent>) {
        if !self.watch.dead.contains(&place) && place != self.state.me {
            self.watch.dead.push(place);
        }
        self.watch.helpless = false;
        if self.root.is_some() && place != self.state.me {
            self.remove(&[place], now, out);
        }
        self.look_at_root(now, out);
    }

    /// Makes `view` the one that counts, if it may follow the present one.
    fn follow(&mut self, view: View, now: LocalNs, out: &mut Out<BroadcastEvent>) {
        let removed = &view.removed().as_slice()[self.state.base.removed().as_slice().len()..];
        let all_known = removed.iter().all(|place| self.watch.dead.contains(place));
        if view == self.state.view || !all_known && !view.may_follow(&self.state.base) {
            if !self.watch.helpless && view != self.state.view {
                self.watch.helpless = true;
                out.notify(BroadcastEvent::Helpless);
            }
            // Perhaps the others have gone on without this member, and can tell.
            self.ask_all(out);
            return;
        }
        self.adopt(view, now, out);
        let frame = BroadcastFrame::View(*self.state.view.removed());
        self.state.send_to_group(&frame, 0, now, out);
    }

    fn ask_all(&self, out: &mut Out<BroadcastEvent>) {
        let frame = BroadcastFrame::View(*self.state.view.removed());
        let is_asked = |place: &u16| *place != self.state.me && !self.watch.dead.contains(place);
        let others = self.state.base.places().filter(is_asked);
        others.for_each(|place| self.state.send(place, &frame, 0, out));
    }

    /// Returns whether `view`, in which perhaps all its members take part, counts more than the
    /// present one: a later one that follows the last formed one, or a formed one instead of one
    /// that is not and does not follow it.
    pub(super) fn joins(&self, view: &View, formed: bool) -> bool {
        let state = &self.state;
        let is_later = view.word() > state.view.word() && (formed || view.follows(&state.base));
        is_later || formed && !state.is_formed && !state.view.follows(view)
    }

    /// Handles a view that another member announces.
    pub(super) fn handle_view(
        &mut self,
        view: View,
        formed: bool,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if !view.is_in(self.state.me) || self.root.is_some() && view.root() != self.state.me {
            self.is_out = true;
            out.notify(BroadcastEvent::Out);
            self.state.send(view.root(), &BroadcastFrame::Suspect { place: self.state.me }, 0, out);
            self.state.view = view;
            return;
        }
        self.adopt(view, now, out);
        if formed {
            self.state.formed();
        }
    }

    fn adopt(&mut self, view: View, now: LocalNs, out: &mut Out<BroadcastEvent>) {
        let before = core::mem::replace(&mut self.state.view, view);
        self.state.is_formed = false;
        self.watch.helpless = false;
        let lost = before.places().filter(|place| !self.state.view.is_in(*place));
        for place in lost {
            let rank = self.state.config.members[usize::from(place)].rank;
            out.operate(Operation::Abandon { peer: rank });
            out.notify(BroadcastEvent::Lost { rank });
        }
        self.state.rewire(now);
        if before.root() != self.state.view.root() {
            self.state.reports.forget_polls();
            if self.state.is_root() {
                self.inherit(now);
            }
        }
        if let Some(root) = &mut self.root {
            root.viewed(&mut self.state, now);
        }
        if let Some(receiver) = &mut self.receiver {
            receiver.viewed(&self.state, now, out);
        }
        let frame = BroadcastFrame::View(*self.state.view.removed());
        self.state.send_down(&frame, 0, None, out);
    }

    /// Makes this member the root, of what is left, from now on.
    fn inherit(&mut self, now: LocalNs) {
        self.root = Some(alloc::boxed::Box::new(Root::successor(&self.state, now)));
        self.state.ask_from(now);
    }

    /// Handles something of another view that came from `place`: notifies a member that is behind.
    /// A member that is ahead answers when it sees how far this node is.
    pub(super) fn differs(&mut self, place: u16, now: LocalNs, out: &mut Out<BroadcastEvent>) {
        self.answer(place, &BroadcastFrame::View(*self.state.view.removed()), now, out);
    }

    /// Answers once in a round trip of a local network: a member that did not get the answer sends
    /// again.
    pub(super) fn answer(
        &mut self,
        place: u16,
        frame: &BroadcastFrame,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if now.since(self.watch.answered_at) >= Nanos::from_micros(20)
            || self.watch.answered_at == LocalNs(0)
        {
            self.watch.answered_at = now;
            self.state.send(place, frame, 0, out);
        }
    }
}
