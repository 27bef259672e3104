//! Membership of a job: members watch each other, agree on every change, and know what follows from
//! it.
//!
//! # Model
//! [`Journal`]: what was decided, and what follows. [`FailureDetector`]: who is silent.
//! [`Agreement`]: one decision for each epoch. This module ties them to a clock and to each other:
//!
//! - Each interval a member sends a beat to its watchers. A beat carries the epoch of its sender,
//!   so that a member that is behind learns what it lacks, also that it is out.
//! - A member that has a wish (a watcher's suspicion, or to join, to retire, to go) tells it to the
//!   first few members each interval, until it is decided or no longer wished.
//! - The first member that nobody suspects is the *steward*: it leads. Two that believe to be it
//!   hinder each other at worst.
//!
//! # Invariants
//! I1. Every member passes through the same epochs in the same order.
//! I2. Without a fault or a wish nothing is sent but beats: three in an interval for each member.
//!
//! # Not here
//! What inputs and builders do then: theirs.

mod agree;
mod failure_detector;
mod frame;
mod journal;
mod order;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::agree::{Agreement, AgreementMessage, Ballot};
use self::failure_detector::{FailureDetector, watchers};
use self::frame::MembershipBody;
use super::layout::Role;
use crate::base::{LocalNs, Nanos};
use crate::wire::Status;

pub(super) use agree::{ProposedDecision, Stake};
pub(super) use frame::{FIRST_KIND, MembershipFrame};
pub(super) use journal::{Change, Deal, Decision, Journal, RosterMember};

/// Members that get a wish: the steward, and those that are it when it is dead too.
const WISH_RECIPIENTS: usize = 3;
/// Intervals for which a wish counts after it was sent: it is sent again in each.
const WISH_INTERVALS: u64 = 4;
/// Intervals for which a leader waits at least before it goes on without those that have not
/// answered. Behind the last answer it waits twice as long again as that took.
const LEAD_INTERVALS: u64 = 3;
/// How often these are doubled at most, while not even a quorum answers.
const DOUBLINGS_MAX: u32 = 3;
/// Intervals for which a member that answered although it was suspected is not suspected again.
const REPRIEVE_INTERVALS: u64 = 30;
/// Intervals after which a job that can decide nothing says so.
const HELPLESS_INTERVALS: u64 = 20;
/// Decisions sent to who is behind in answer to one message.
const LESSONS: u32 = 8;
/// Messages of this kind under way at a time: transmit queues have room for 64 and more.
const UNDER_WAY_MAX: usize = 32;
/// Messages that wait to leave, for each place of the roster: what one ballot asks, answers and
/// announces.
const QUEUE_MAX: usize = 4;
/// Intervals between two ticks after which this node must have been away.
const AWAY_INTERVALS: u64 = 2;

/// Says what this node has at stake when the member is the one in question, and holds to it.
pub(super) type Stakes<'a> = &'a mut dyn FnMut(RosterMember) -> Stake;

/// One node's part in it.
#[derive(Debug)]
pub(super) struct Membership {
    me: RosterMember,
    incarnation: u32,
    interval: Nanos,
    journal: Arc<Journal>,
    agree: Agreement,
    watch: FailureDetector,
    watchers: Vec<RosterMember>,
    /// What this node wants for itself.
    own: Option<ProposedDecision>,
    /// What others want, and when they last said so.
    wishes: BTreeMap<ProposedDecision, LocalNs>,
    /// Until when a member is not suspected.
    reprieved: BTreeMap<RosterMember, LocalNs>,
    /// When everybody was asked what is asked now, when the last of those who answered did, and
    /// when those who did not were asked again.
    lead_since: LocalNs,
    answered_at: LocalNs,
    asked_at: LocalNs,
    /// How often the time to answer is doubled.
    doublings: u32,
    /// Since when something should be decided.
    helpless_since: Option<LocalNs>,
    reported_helpless: bool,
    next_tick: LocalNs,
    /// Whom a joiner asks next.
    asked: usize,
    queue: VecDeque<(RosterMember, MembershipFrame)>,
    under_way: Vec<(RosterMember, MembershipFrame)>,
    /// The transmit queue had no room for the last one.
    is_full: bool,
    news: VecDeque<(Decision, Arc<Journal>)>,
}

impl Membership {
    /// Creates the part of `me` in `journal`, with a beat in each `interval`.
    pub(super) fn new(me: RosterMember, journal: Arc<Journal>, interval: Nanos) -> Self {
        Self {
            me,
            incarnation: 0,
            interval: Nanos(interval.0.max(1)),
            agree: Agreement::new(me),
            watch: FailureDetector::new(interval),
            watchers: Vec::new(),
            own: None,
            wishes: BTreeMap::new(),
            reprieved: BTreeMap::new(),
            lead_since: LocalNs(0),
            answered_at: LocalNs(0),
            asked_at: LocalNs(0),
            doublings: 0,
            helpless_since: None,
            reported_helpless: false,
            next_tick: LocalNs(0),
            asked: me.index(),
            queue: VecDeque::new(),
            under_way: Vec::with_capacity(UNDER_WAY_MAX),
            is_full: false,
            news: VecDeque::new(),
            journal,
        }
    }

    /// Begins: this node has come up.
    pub(super) fn boot(&mut self, now: LocalNs, incarnation: u32) {
        // The upper half counts processes, the lower half how often one of them joined.
        self.incarnation = incarnation << 16;
        self.next_tick = now;
        self.turn_to(now);
    }

    /// Returns whether this node takes part, as what it is now.
    pub(super) fn is_in(&self) -> bool {
        self.journal.takes_part(self.me) && self.journal.incarnation(self.me) == self.incarnation
    }

    /// Takes a wish of this node for itself, until it is decided.
    pub(super) fn want(&mut self, now: LocalNs, wish: ProposedDecision) {
        self.own = Some(wish);
        self.next_tick = self.next_tick.min(now);
    }

    /// Takes the same wish, if the node wants nothing else.
    pub(super) fn want_idly(&mut self, now: LocalNs, wish: ProposedDecision) {
        if self.own.is_none() {
            self.want(now, wish);
        }
    }

    /// Takes the wish of this node, which is out, to be in.
    pub(super) fn want_in(&mut self, now: LocalNs) {
        if !self.is_in() {
            // Never with a number that it had: a decision about an earlier try must not count for
            // this one.
            self.incarnation =
                self.incarnation.max(self.journal.incarnation(self.me)).saturating_add(1);
            self.want(
                now,
                ProposedDecision::Join { member: self.me, incarnation: self.incarnation },
            );
        }
    }

    /// Returns what was decided, once each, with the journal that it led to.
    pub(super) fn news(&mut self) -> Option<(Decision, Arc<Journal>)> {
        self.news.pop_front()
    }

    /// Records that the node follows all that was decided; the next may be.
    pub(super) fn followed(&mut self, now: LocalNs, stakes: Stakes<'_>) {
        self.consider(now, stakes);
    }

    /// Returns whether nothing was decided for long although something should be; true once.
    pub(super) fn is_helpless(&mut self, now: LocalNs) -> bool {
        let long = self.interval.times(HELPLESS_INTERVALS << self.doublings);
        // The time in which this node was away itself does not count.
        let is =
            !self.was_away(now) && self.helpless_since.is_some_and(|since| now.since(since) > long);
        let tell = is && !self.reported_helpless;
        self.reported_helpless |= is;
        tell
    }

    pub(super) const fn deadline(&self) -> LocalNs {
        self.next_tick
    }

    /// Returns the next header to send, while there is room for it.
    pub(super) fn next_frame(&mut self) -> Option<(RosterMember, MembershipFrame)> {
        if self.is_full || self.under_way.len() >= UNDER_WAY_MAX {
            return None;
        }
        let next = self.queue.pop_front()?;
        self.under_way.push(next);
        Some(next)
    }

    /// Records that a header of `kind` to the member has left, or found no room: then it leaves
    /// first when there is some.
    pub(super) fn done(&mut self, to: RosterMember, kind: u8, status: Status) {
        let found =
            self.under_way.iter().position(|(member, frame)| *member == to && frame.kind() == kind);
        let Some(header) = found.map(|at| self.under_way.remove(at)) else { return };
        if status == Status::NoRoom {
            self.is_full = true;
            self.queue.push_front(header);
        }
    }

    /// Continues: there is room again.
    pub(super) fn room(&mut self) {
        self.is_full = false;
    }

    /// Returns whether this node has not had its turn for long, or its clock has jumped.
    fn was_away(&self, now: LocalNs) -> bool {
        now.since(self.next_tick) > self.interval.times(AWAY_INTERVALS)
    }

    /// Handles the time, as an interval may have passed.
    pub(super) fn tick(&mut self, now: LocalNs, stakes: Stakes<'_>) {
        if now < self.next_tick {
            return;
        }
        if self.was_away(now) {
            self.watch.restart(now);
            self.wishes.clear();
            self.helpless_since = self.helpless_since.map(|_| now);
        }
        self.next_tick = now + self.interval;
        // Whatever a wire forgets to say stops nobody for longer than this.
        self.under_way.clear();
        self.is_full = false;
        if self.queue.len() > QUEUE_MAX * self.journal.roster() {
            // Nothing leaves: what matters is said again when something does.
            self.queue.clear();
        }
        if !self.is_in() {
            return self.ask_in();
        }
        let beat = self.frame(MembershipBody::Beat);
        self.queue.extend(self.watchers.iter().map(|watcher| (*watcher, beat)));
        let is_reprieved =
            |member: &RosterMember| self.reprieved.get(member).is_some_and(|until| now < *until);
        let suspects: Vec<RosterMember> =
            self.watch.overdue(now).filter(|member| !is_reprieved(member)).collect();
        if self.watch.is_alone(now) {
            self.helpless_since.get_or_insert(now);
        } else if self.wishes.is_empty() {
            self.helpless_since = None;
        }
        let own = self.own;
        for wish in suspects.into_iter().map(ProposedDecision::Suspect).chain(own) {
            self.propagate(now, wish);
        }
        let life = self.interval.times(WISH_INTERVALS);
        self.wishes.retain(|_, reported| now.since(*reported) <= life);
        self.lead_on(now, stakes);
        self.consider(now, stakes);
    }

    /// Handles a header of `from`, who stands on the roster.
    pub(super) fn arrival(
        &mut self,
        now: LocalNs,
        from: RosterMember,
        frame: MembershipFrame,
        stakes: Stakes<'_>,
    ) {
        let mine = self.journal.epoch();
        if let MembershipBody::Decided(decision) = frame.body {
            if frame.epoch == mine + 1 {
                self.learn(now, decision);
            }
            return;
        }
        let is_peer = self.is_in() && self.journal.takes_part(from);
        match frame.body {
            _ if frame.epoch < mine => self.teach(from, frame.epoch),
            _ if frame.epoch > mine => {
                self.queue.push_back((from, self.frame(MembershipBody::Beat)))
            }
            MembershipBody::Beat if is_peer => self.watch.heartbeat_received(from, now),
            MembershipBody::Agree(message) if is_peer => self.agreed(now, from, message, stakes),
            _ => {}
        }
        if let MembershipBody::Wish(wish) = frame.body
            && self.is_in()
            && frame.epoch <= mine
        {
            self.wished(now, from, wish, frame.epoch);
            self.consider(now, stakes);
        }
    }

    fn frame(&self, body: MembershipBody) -> MembershipFrame {
        MembershipFrame { epoch: self.journal.epoch(), body }
    }

    fn turn_to(&mut self, now: LocalNs) {
        self.watch.turn_to(&self.journal, self.me, now);
        self.watchers = watchers(&self.journal, self.me);
    }

    /// Sends `to` the decisions after `epoch`.
    fn teach(&mut self, to: RosterMember, epoch: u32) {
        let last = self.journal.epoch().min(epoch.saturating_add(LESSONS));
        for epoch in epoch + 1..=last {
            let decision = self
                .journal
                .decision(epoch)
                .map(|decision| MembershipFrame { epoch, body: MembershipBody::Decided(decision) });
            self.queue.extend(decision.map(|frame| (to, frame)));
        }
    }

    /// Asks two of the roster in turn, at a node that is out: one of them will be there.
    fn ask_in(&mut self) {
        let Some(wish @ ProposedDecision::Join { .. }) = self.own else { return };
        let frame = self.frame(MembershipBody::Wish(wish));
        for _ in 0..2 {
            self.asked = (self.asked + 1) % self.journal.roster();
            if self.asked != self.me.index() {
                self.queue.push_back((RosterMember(self.asked as u32), frame));
            }
        }
    }

    /// Tells the first few members that are not suspected of `wish`, this one too if it is one of
    /// them.
    fn propagate(&mut self, now: LocalNs, wish: ProposedDecision) {
        self.wishes.insert(wish, now);
        let frame = self.frame(MembershipBody::Wish(wish));
        let trusted = self
            .journal
            .members()
            .filter(|member| !self.wishes.contains_key(&ProposedDecision::Suspect(*member)));
        let recipients: Vec<RosterMember> =
            trusted.filter(|member| *member != wish.target()).take(WISH_RECIPIENTS).collect();
        self.queue.extend(
            recipients
                .into_iter()
                .filter(|member| *member != self.me)
                .map(|member| (member, frame)),
        );
    }

    /// Handles a wish of `from`, in `epoch`.
    fn wished(&mut self, now: LocalNs, from: RosterMember, wish: ProposedDecision, epoch: u32) {
        let target = wish.target();
        if target.index() >= self.journal.roster() {
            return;
        }
        match wish {
            ProposedDecision::Suspect(_)
                if target == self.me || !self.journal.takes_part(target) => {}
            ProposedDecision::Suspect(_)
                if self.reprieved.get(&target).is_some_and(|until| now < *until) => {}
            ProposedDecision::Join { member, incarnation } => {
                let is_in = self.journal.takes_part(member);
                if incarnation <= self.journal.incarnation(member) {
                    // Of an earlier try, which was granted.
                } else if from == member {
                    // A rank that asks to join while it takes part has lost everything that it had:
                    // it is gone, and another is there.
                    self.propagate(
                        now,
                        if is_in { ProposedDecision::Suspect(member) } else { wish },
                    );
                } else {
                    self.wishes.insert(wish, now);
                }
            }
            // A wish from before the last decision may no longer be wished after it.
            ProposedDecision::Weigh { .. } if epoch < self.journal.epoch() => {}
            _ => {
                self.wishes.insert(wish, now);
            }
        }
    }

    /// Returns what should be decided first: inputs that are silent, then builders, then the rest.
    fn wanted(&self) -> Option<ProposedDecision> {
        let is_input =
            |wish: &ProposedDecision| matches!(self.journal.role(wish.target()), Role::Input(_));
        let rank = |wish: &ProposedDecision| {
            (!matches!(wish, ProposedDecision::Suspect(_)), !is_input(wish), *wish)
        };
        let possible =
            self.wishes.keys().copied().filter(|wish| self.journal.permits(wish.change(0)));
        possible.min_by_key(rank)
    }

    fn is_suspected(&self, member: RosterMember) -> bool {
        self.wishes.contains_key(&ProposedDecision::Suspect(member))
    }

    /// Leads, if this node is the steward and there is something to decide. But not before it
    /// follows what was decided: what it says to be at stake it must hold to, and following frees
    /// it of that.
    fn consider(&mut self, now: LocalNs, stakes: Stakes<'_>) {
        if !self.is_in()
            || self.agree.leads().is_some()
            || self.wishes.is_empty()
            || !self.news.is_empty()
        {
            return;
        }
        let steward = self.journal.members().find(|member| !self.is_suspected(*member));
        if steward != Some(self.me) {
            return;
        }
        let wanted = self.wanted();
        if wanted.is_some()
            || self.wishes.keys().any(|wish| matches!(wish, ProposedDecision::Suspect(_)))
        {
            self.helpless_since.get_or_insert(now);
        }
        if let Some(wish) = wanted {
            let question = self.agree.lead(wish);
            self.ask_all(now, question, stakes);
        }
    }

    /// Returns whether a member that has not answered has had time: twice as long again as the
    /// slowest of the others, and some intervals.
    fn has_had_time(&self, now: LocalNs) -> bool {
        let slowest = self.answered_at.since(self.lead_since);
        let intervals = self.interval.times(LEAD_INTERVALS << self.doublings);
        now.since(self.answered_at) > slowest.times(2).max(intervals)
    }

    /// Asks again who has not answered, ever more rarely. After a while who is in question is given
    /// up; if others are missing they are suspected, where enough answered, and another ballot
    /// begins.
    fn lead_on(&mut self, now: LocalNs, stakes: Stakes<'_>) {
        if self.agree.leads().is_none() {
            return;
        }
        let silent =
            |member: &RosterMember| *member != self.me && self.agree.unanswered(*member).is_some();
        let silent: Vec<RosterMember> = self.journal.members().filter(silent).collect();
        if self.has_had_time(now) {
            if let Some(proposal) = self.agree.waited(&self.journal) {
                return self.ask_all(now, proposal, stakes);
            }
            // A member that has promised something waits until it is decided, whether it is still
            // wished or not.
            self.wishes.extend(self.agree.leads().map(|wish| (wish, now)));
            self.agree.give_up();
            if !self.journal.is_quorum(|member| !silent.contains(&member)) {
                self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
                return;
            }
            let inputs = silent
                .into_iter()
                .filter(|member| matches!(self.journal.role(*member), Role::Input(_)));
            let inputs: Vec<RosterMember> = inputs.collect();
            return inputs
                .into_iter()
                .for_each(|member| self.propagate(now, ProposedDecision::Suspect(member)));
        }
        if now.since(self.asked_at) < self.asked_at.since(self.lead_since).max(self.interval) {
            return;
        }
        self.asked_at = now;
        for member in silent {
            let again = self
                .agree
                .unanswered(member)
                .map(|message| self.frame(MembershipBody::Agree(message)));
            self.queue.extend(again.map(|frame| (member, frame)));
        }
    }

    /// Asks all members; this one answers at once.
    fn ask_all(&mut self, now: LocalNs, message: AgreementMessage, stakes: Stakes<'_>) {
        (self.lead_since, self.answered_at, self.asked_at) = (now, now, now);
        let frame = self.frame(MembershipBody::Agree(message));
        let others = self.journal.members().filter(|member| *member != self.me);
        let mut others: Vec<RosterMember> = others.collect();
        // The member in question must get the most time.
        let target = self.agree.leads().map(ProposedDecision::target);
        others.sort_by_key(|member| Some(*member) != target);
        self.queue.extend(others.into_iter().map(|member| (member, frame)));
        self.agreed(now, self.me, message, stakes);
    }

    /// Handles a message about the next epoch.
    fn agreed(
        &mut self,
        now: LocalNs,
        from: RosterMember,
        message: AgreementMessage,
        stakes: Stakes<'_>,
    ) {
        if matches!(message, AgreementMessage::Promise { .. } | AgreementMessage::Accepted { .. })
            && self.agree.unanswered(from).is_some()
        {
            self.answered_at = now;
        }
        let is_leaders = |ballot: Ballot| ballot.leader == from;
        let answer = match message {
            // Nobody leads for another one: a promise to nobody would stop this node for good.
            AgreementMessage::Prepare { ballot, .. } | AgreementMessage::Accept { ballot, .. }
                if !is_leaders(ballot) =>
            {
                return;
            }
            AgreementMessage::Prepare { ballot, target } => {
                self.agree.prepared(ballot, || stakes(target))
            }
            AgreementMessage::Accept { ballot, decision } => self.agree.proposed(ballot, decision),
            AgreementMessage::Promise { ballot, stake, accepted } => {
                if self.wishes.remove(&ProposedDecision::Suspect(from)).is_some() {
                    self.reprieved.insert(from, now + self.interval.times(REPRIEVE_INTERVALS));
                }
                let journal = self.journal.clone();
                if let Some(proposal) =
                    self.agree.promised(&journal, from, ballot, (stake, accepted))
                {
                    self.ask_all(now, proposal, stakes);
                }
                return;
            }
            AgreementMessage::Accepted { ballot } => {
                let journal = self.journal.clone();
                if let Some(decision) = self.agree.accepted(&journal, from, ballot) {
                    self.announce(now, decision);
                }
                return;
            }
            AgreementMessage::Refused { promised } => return self.agree.refused(promised),
        };
        if from == self.me {
            self.agreed(now, self.me, answer, stakes);
        } else {
            self.queue.push_back((from, self.frame(MembershipBody::Agree(answer))));
        }
    }

    /// Announces what this node's ballot has decided: everybody learns it, also a member that is
    /// out by it.
    fn announce(&mut self, now: LocalNs, decision: Decision) {
        let before = self.journal.clone();
        self.learn(now, decision);
        let epoch = self.journal.epoch();
        let frame = MembershipFrame { epoch, body: MembershipBody::Decided(decision) };
        let joined = match decision.change {
            Change::Join { member, .. } => Some(member),
            _ => None,
        };
        let others = before.members().chain(joined).filter(|member| *member != self.me);
        self.queue.extend(others.map(|member| (member, frame)));
    }

    /// Learns the next epoch.
    fn learn(&mut self, now: LocalNs, decision: Decision) {
        let Some(journal) = self.journal.with(decision) else { return };
        self.journal = Arc::new(journal);
        self.agree = Agreement::new(self.me);
        self.helpless_since = None;
        self.doublings = self.doublings.saturating_sub(1);
        let journal = self.journal.clone();
        let open = |wish: &ProposedDecision| {
            journal.permits(wish.change(0)) && !matches!(wish, ProposedDecision::Weigh { .. })
        };
        self.wishes.retain(|wish, _| open(wish));
        // A new process may hear of other changes before that of the removal of its predecessor.
        let is_in = self.is_in();
        let stays = |wish: &ProposedDecision| {
            open(wish) || !is_in && matches!(wish, ProposedDecision::Join { .. })
        };
        self.own = self.own.filter(stays);
        self.turn_to(now);
        self.news.push_back((decision, journal));
    }
}

#[cfg(test)]
mod tests;
