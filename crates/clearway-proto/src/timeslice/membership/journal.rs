//! What was decided so far, and everything that follows from it: who takes part, and who builds
//! what.
//!
//! # Model
//! The state of a job is an *epoch*: a number, 0 for the [`TimesliceLayout`] of the beginning, and
//! what the decisions so far made of that. One epoch decides one [`Change`], and from which
//! timeslice on turns are dealt anew. All answers are pure functions of the decisions, so every
//! member that knows the same ones says the same.
//!
//! No input has sent anything to `from` or later when a change is decided, so cutting all orders
//! there is nothing that a builder could have seen otherwise. Of a builder that is removed, the
//! positions below `settled` are built. The rest of its order is dealt to the others in turn.
//!
//! # Invariants
//! I1. Every timeslice stands in the order of one builder, or below what is settled of a removed
//!     one, and nowhere else.
//! I2. At least one input and one builder with turns remain.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::order::BuilderOrder;
use crate::base::Rank;
use crate::timeslice::layout::{EQUAL_WEIGHT, Role, TimesliceLayout};
use crate::timeslice::turns::Turns;

/// A timeslice as far ahead as this is not believed: at one in a nanosecond two weeks away.
const AHEAD_MAX: u64 = 1 << 50;
/// The largest weight: sixteen times an equal's.
const WEIGHT_MAX: u32 = 16 * EQUAL_WEIGHT;

/// A place on the roster: inputs first, then builders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::timeslice) struct RosterMember(pub(in crate::timeslice) u32);

impl RosterMember {
    pub(in crate::timeslice) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What one epoch changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::timeslice) enum Change {
    /// Nothing: who was to be removed is there.
    Nothing,
    /// A member is out; of a builder, `settled` positions are built.
    Remove { member: RosterMember, settled: u64 },
    /// A member is in, as a new one.
    Join { member: RosterMember, incarnation: u32 },
    /// A member has no part in what is dealt from here on, and stays until what it has is done.
    Retire { member: RosterMember },
    /// A builder has this many turns.
    Weigh { member: RosterMember, weight: u32 },
}

/// What one epoch decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::timeslice) struct Decision {
    pub(in crate::timeslice) change: Change,
    /// The first timeslice that is dealt anew.
    pub(in crate::timeslice) from: u64,
}

/// Turns that were dealt at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::timeslice) struct Deal {
    /// The first timeslice.
    pub(in crate::timeslice) from: u64,
    /// How many make a round, in which the builder that weighs most has one.
    pub(in crate::timeslice) round: u64,
    /// Whether builders share timeslices in other proportions than before, because one of them
    /// weighs other.
    pub(in crate::timeslice) is_weighed: bool,
    /// Rounds before these.
    rounds: u64,
}

/// How a member stands.
#[derive(Clone, Copy, Debug)]
struct MemberStatus {
    takes_part: bool,
    /// The epoch that it joined in.
    life: u32,
    /// With which it joined.
    incarnation: u32,
}

/// All decisions, and what follows.
#[derive(Clone, Debug)]
pub(in crate::timeslice) struct Journal {
    layout: Arc<TimesliceLayout>,
    decisions: Vec<Decision>,
    standings: Vec<MemberStatus>,
    /// Of each input: the timeslices that it has something for, in this life of its.
    ranges: Vec<Range<u64>>,
    /// Of each input: the first timeslice that it was to have something for, in its first life.
    begun: Vec<Option<u64>>,
    weights: Vec<u32>,
    orders: Vec<BuilderOrder>,
    turns: Arc<Turns>,
    from: u64,
    /// The first timeslice of the input that joined last.
    newest_start: u64,
    deals: Vec<Deal>,
    /// In which epoch builders were removed, what they left, and how many positions of it are built.
    settled: Vec<(u32, RosterMember, Arc<BuilderOrder>, u64)>,
}

impl Journal {
    /// Creates epoch 0 of `layout`.
    pub(in crate::timeslice) fn new(layout: &Arc<TimesliceLayout>) -> Self {
        let takes_part = |rank: &Rank| !layout.is_absent(*rank);
        let standing =
            |rank| MemberStatus { takes_part: takes_part(rank), life: 0, incarnation: 0 };
        let there = |(weight, rank): (&u32, _)| if takes_part(rank) { *weight } else { 0 };
        let weights: Vec<u32> = layout.weights().iter().zip(layout.builders()).map(there).collect();
        let one = || Turns::new(&vec![1; layout.builders().len()]);
        let turns = Turns::new(&weights).or_else(one).expect("every layout has a builder");
        let mut journal = Self {
            decisions: Vec::new(),
            standings: layout.inputs().iter().chain(layout.builders()).map(standing).collect(),
            ranges: vec![0..u64::MAX; layout.inputs().len()],
            begun: layout.inputs().iter().map(|rank| takes_part(rank).then_some(0)).collect(),
            weights,
            orders: (0..layout.builders().len()).map(BuilderOrder::new).collect(),
            turns: Arc::new(turns),
            from: 0,
            newest_start: 0,
            deals: Vec::new(),
            settled: Vec::new(),
            layout: layout.clone(),
        };
        journal.note_deal();
        journal.orders.iter_mut().for_each(|order| order.deal(&journal.turns, 0));
        journal
    }

    /// Returns how many decisions there are.
    pub(in crate::timeslice) fn epoch(&self) -> u32 {
        self.decisions.len() as u32
    }

    /// Returns what epoch `epoch`, from one, decided.
    pub(in crate::timeslice) fn decision(&self, epoch: u32) -> Option<Decision> {
        self.decisions.get(epoch.checked_sub(1)? as usize).copied()
    }

    /// Returns how many places the roster has.
    pub(in crate::timeslice) fn roster(&self) -> usize {
        self.standings.len()
    }

    /// Returns everybody who takes part, ascending.
    pub(in crate::timeslice) fn members(&self) -> impl Iterator<Item = RosterMember> + '_ {
        (0..self.roster() as u32).map(RosterMember).filter(|member| self.takes_part(*member))
    }

    /// Returns whether `member` takes part.
    pub(in crate::timeslice) fn takes_part(&self, member: RosterMember) -> bool {
        self.standings.get(member.index()).is_some_and(|standing| standing.takes_part)
    }

    /// Returns the epoch in which `member` joined last.
    pub(in crate::timeslice) fn life(&self, member: RosterMember) -> u32 {
        self.standings.get(member.index()).map_or(0, |standing| standing.life)
    }

    /// Returns the incarnation with which `member` joined last.
    pub(in crate::timeslice) fn incarnation(&self, member: RosterMember) -> u32 {
        self.standings.get(member.index()).map_or(0, |standing| standing.incarnation)
    }

    /// Returns whether nothing more is dealt to `member`.
    pub(in crate::timeslice) fn is_retired(&self, member: RosterMember) -> bool {
        match self.role(member) {
            Role::Input(place) => self.ranges[place].end < u64::MAX,
            Role::Builder(place) => self.weights[place] == 0,
        }
    }

    /// Returns what `member`, who stands on the roster, does.
    pub(in crate::timeslice) fn role(&self, member: RosterMember) -> Role {
        let inputs = self.layout.inputs().len();
        match member.index().checked_sub(inputs) {
            Some(place) => Role::Builder(place),
            None => Role::Input(member.index()),
        }
    }

    /// Returns the member who has `role`.
    pub(in crate::timeslice) fn member(&self, role: Role) -> RosterMember {
        match role {
            Role::Input(place) => RosterMember(place as u32),
            Role::Builder(place) => RosterMember((self.layout.inputs().len() + place) as u32),
        }
    }

    /// Returns the member of `rank`.
    pub(in crate::timeslice) fn member_of(&self, rank: Rank) -> Option<RosterMember> {
        self.layout.role(rank).map(|role| self.member(role))
    }

    /// Returns the rank of `member`, who stands on the roster.
    pub(in crate::timeslice) fn rank(&self, member: RosterMember) -> Rank {
        match self.role(member) {
            Role::Input(place) => self.layout.inputs()[place],
            Role::Builder(place) => self.layout.builders()[place],
        }
    }

    /// Returns the timeslices for which the input at `place` has something, as far as is decided.
    pub(in crate::timeslice) fn range(&self, place: usize) -> Range<u64> {
        self.ranges[place].clone()
    }

    /// Returns whether a timeslice without the input at `place` lacks something: it had begun by
    /// then and not been retired.
    pub(in crate::timeslice) fn is_missed(&self, place: usize, timeslice: u64) -> bool {
        self.begun[place].is_some_and(|begun| begun <= timeslice)
            && timeslice < self.ranges[place].end
    }

    /// Returns the first timeslice that was dealt in the turns of now.
    pub(in crate::timeslice) const fn from(&self) -> u64 {
        self.from
    }

    /// Returns the earliest timeslice at which the next deal, or the next input, can begin. It is not
    /// before the first one of the newest input, which has computed its range already.
    pub(in crate::timeslice) fn next_start(&self) -> u64 {
        self.from.max(self.newest_start)
    }

    /// Returns the builder of `timeslice` by the turns of now: true from [`Journal::from`] on.
    pub(in crate::timeslice) fn turn_of(&self, timeslice: u64) -> usize {
        self.turns.builder_of(timeslice)
    }

    /// Returns all deals, ascending: the first one from timeslice zero on, each up to the next.
    pub(in crate::timeslice) fn deals(&self) -> &[Deal] {
        &self.deals
    }

    /// Returns how many timeslices make a round now.
    pub(in crate::timeslice) fn round(&self) -> u64 {
        self.deals.last().map_or(1, |deal| deal.round)
    }

    /// Returns the round that `timeslice` is dealt in, of all.
    pub(in crate::timeslice) fn round_of(&self, timeslice: u64) -> u64 {
        let deal = self.deals.iter().rev().find(|deal| deal.from <= timeslice);
        deal.map_or(0, |deal| deal.rounds + (timeslice - deal.from) / deal.round)
    }

    /// Returns what the builder at `place` weighs.
    pub(in crate::timeslice) fn weight(&self, place: usize) -> u32 {
        self.weights[place]
    }

    /// Returns whether the builder at `place` has fewer turns than at the beginning, and some.
    pub(in crate::timeslice) fn is_relieved(&self, place: usize) -> bool {
        (1..self.layout.weights()[place]).contains(&self.weights[place])
    }

    /// Returns the timeslice as of which `position` of the builder at `place` is due: these never
    /// descend.
    pub(in crate::timeslice) fn turn(&self, place: usize, position: u64) -> Option<u64> {
        self.orders[place].turn(position)
    }

    /// Returns how many positions of the builder at `place`, from `position` on, are due before
    /// `end` and have a timeslice in `range`.
    pub(in crate::timeslice) fn count(
        &self,
        place: usize,
        position: u64,
        range: &Range<u64>,
        end: u64,
    ) -> u64 {
        self.orders[place].count(position, range, end)
    }

    /// Returns the earliest timeslice before `end` that the builder at `place` has at `position` of
    /// its order or behind it.
    pub(in crate::timeslice) fn earliest(
        &self,
        place: usize,
        position: u64,
        end: u64,
    ) -> Option<u64> {
        if end == 0 { None } else { self.orders[place].earliest(position, end) }
    }

    /// Returns the timeslice of the builder at `place` at `position` of its order.
    pub(in crate::timeslice) fn nth(&self, place: usize, position: u64) -> Option<u64> {
        // Before anything is decided an order is its builder's turns: one table for all instead of
        // one for each.
        if self.decisions.is_empty() {
            self.turns.nth(place, position)
        } else {
            self.orders[place].nth(position)
        }
    }

    /// Returns the first position of the builder at `place`, not before `position`, with a
    /// timeslice in `range`; and that timeslice.
    pub(in crate::timeslice) fn next(
        &self,
        place: usize,
        position: u64,
        range: &Range<u64>,
    ) -> Option<(u64, u64)> {
        if !self.decisions.is_empty() {
            return self.orders[place].next(position, range);
        }
        let position = position.max(self.turns.before(place, range.start));
        let timeslice =
            self.turns.nth(place, position).filter(|timeslice| range.contains(timeslice))?;
        Some((position, timeslice))
    }

    /// Returns the timeslices that removed builders have built, in their order, and the epoch of
    /// each removal.
    pub(in crate::timeslice) fn settled(
        &self,
    ) -> impl Iterator<Item = (u32, RosterMember, u64)> + '_ {
        let of_one =
            |(epoch, member, order, count): &(u32, RosterMember, Arc<BuilderOrder>, u64)| {
                let (epoch, member, order) = (*epoch, *member, order.clone());
                (0..*count)
                    .map_while(move |position| order.nth(position))
                    .map(move |timeslice| (epoch, member, timeslice))
            };
        self.settled.iter().flat_map(of_one)
    }

    /// Returns whether those for whom `votes` is true can decide: more than half of the members, or
    /// half with the first one.
    pub(in crate::timeslice) fn is_quorum(&self, votes: impl Fn(RosterMember) -> bool) -> bool {
        let all = self.members().count();
        let for_it = self.members().filter(|member| votes(*member)).count();
        let first = self.members().next().is_some_and(&votes);
        2 * for_it > all || 2 * for_it == all && first
    }

    /// Returns the journal with one more decision; `None` when that decision is none that could be
    /// made.
    pub(in crate::timeslice) fn with(&self, decision: Decision) -> Option<Self> {
        if decision.from < self.from || decision.from - self.from > AHEAD_MAX {
            return None;
        }
        let mut next = self.clone();
        next.decisions.push(decision);
        next.apply(decision.change, decision.from).then_some(next)
    }

    /// Returns whether `change` is one that could be made now.
    pub(in crate::timeslice) fn permits(&self, change: Change) -> bool {
        self.with(Decision { change, from: self.from }).is_some()
    }

    fn apply(&mut self, change: Change, from: u64) -> bool {
        match change {
            Change::Nothing => true,
            Change::Remove { member, settled } => {
                self.takes_part(member) && self.remove(member, settled, from)
            }
            Change::Join { member, incarnation } => {
                let stands = member.index() < self.roster();
                // A wish to join that was granted before is not granted again.
                let is_new = incarnation > self.incarnation(member);
                stands && is_new && !self.takes_part(member) && self.join(member, incarnation, from)
            }
            Change::Retire { member } => {
                if !self.takes_part(member) || self.is_retired(member) {
                    return false;
                }
                match self.role(member) {
                    Role::Input(place) => {
                        self.ranges[place].end = from;
                        (0..self.ranges.len()).any(|place| self.sends(place))
                    }
                    Role::Builder(place) => self.weigh(place, 0, from),
                }
            }
            Change::Weigh { member, weight } => {
                let sound = self.takes_part(member)
                    && !self.is_retired(member)
                    && (1..=WEIGHT_MAX).contains(&weight);
                match self.role_of(member) {
                    Some(Role::Builder(place)) if sound && self.weigh(place, weight, from) => {
                        self.deals.iter_mut().last().is_some_and(|deal| {
                            deal.is_weighed = true;
                            true
                        })
                    }
                    _ => false,
                }
            }
        }
    }

    fn role_of(&self, member: RosterMember) -> Option<Role> {
        (member.index() < self.roster()).then(|| self.role(member))
    }

    /// Returns whether more timeslices are expected of the input at `place`.
    fn sends(&self, place: usize) -> bool {
        self.standings[place].takes_part && self.ranges[place].end == u64::MAX
    }

    fn remove(&mut self, member: RosterMember, settled: u64, from: u64) -> bool {
        self.standings[member.index()].takes_part = false;
        match self.role(member) {
            Role::Input(_) => (0..self.ranges.len()).any(|place| self.standings[place].takes_part),
            Role::Builder(place) => {
                self.weights[place] = 0;
                self.orders[place].cut(from);
                let left =
                    Arc::new(core::mem::replace(&mut self.orders[place], BuilderOrder::new(place)));
                self.settled.push((self.epoch(), member, left.clone(), settled));
                self.redeal(from, Some((left, settled)))
            }
        }
    }

    fn join(&mut self, member: RosterMember, incarnation: u32, from: u64) -> bool {
        self.standings[member.index()] =
            MemberStatus { takes_part: true, life: self.epoch(), incarnation };
        match self.role(member) {
            Role::Input(place) => {
                self.ranges[place] = from..u64::MAX;
                self.newest_start = self.newest_start.max(from);
                self.begun[place].get_or_insert(from);
                true
            }
            Role::Builder(place) => self.weigh(place, self.layout.weights()[place], from),
        }
    }

    fn weigh(&mut self, place: usize, weight: u32, from: u64) -> bool {
        self.weights[place] = weight;
        self.redeal(from, None)
    }

    /// Deals all from `from` on by the weights of now, and before it what a removed builder `left`.
    fn redeal(&mut self, from: u64, left: Option<(Arc<BuilderOrder>, u64)>) -> bool {
        let Some(turns) = Turns::new(&self.weights) else { return false };
        (self.turns, self.from) = (Arc::new(turns), from);
        self.note_deal();
        for order in &mut self.orders {
            order.cut(from);
            if let Some((of, settled)) = &left {
                order.inherit(of, *settled, &self.turns, from);
            }
            order.deal(&self.turns, from);
        }
        true
    }

    /// Remembers the deal of now. A timeslice that was dealt there before and never sent is none.
    fn note_deal(&mut self) {
        let is_weighed = self.deals.iter().any(|deal| deal.from >= self.from && deal.is_weighed);
        self.deals.retain(|deal| deal.from < self.from);
        let sum: u64 = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        let most = u64::from(self.weights.iter().copied().max().unwrap_or(0)).max(1);
        let before = |deal: &Deal| deal.rounds + (self.from - deal.from).div_ceil(deal.round);
        let rounds = self.deals.last().map_or(0, before);
        let round = ((sum + most / 2) / most).max(1);
        self.deals.push(Deal { from: self.from, round, is_weighed, rounds });
    }
}

#[cfg(test)]
mod tests;
