//! How the first member brings a team to a channel: asks, proposes, tries again, and gives up in
//! bounded time.
//!
//! # Model
//! An *attempt* is a round of ASK and HAVE, and then one of PROPOSE and VOTE. Each has a number,
//! and a member that hears a greater one takes its promise back. After a no one round of ASK takes
//! all promises back; then the leader waits a random time, up to twice as long after each no, so
//! that of two teams that wanted the same channel one comes first, and asks anew.
//!
//! # Invariants
//! I1. A channel is stamped only if every living member has promised it in one attempt.

use alloc::vec;
use alloc::vec::Vec;

use super::frame::{ChannelAssignment, ChannelsFrame, Holdings, Vote};
use super::team::{Team, TeamContext};
use crate::base::{LocalNs, Nanos};

/// Times that a team gets a no until it takes the shared channel. With waits of up to 2, 4 .. 32
/// retries they last some hundred round trips in all, in which a recalled team of idle members has
/// long let go.
const TRIES: u32 = 12;
/// Doublings of the wait.
const DOUBLINGS: u32 = 5;
/// Tries after which another channel is recalled: its team does not give this one up.
const RECALL_EVERY: u32 = 3;

/// Where an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormationPhase {
    Begun,
    /// Promises are taken back; then comes the wait.
    Voiding,
    Asking,
    Proposing(u8),
}

/// An agreement under way: the leader's side, and the number of the attempt at all.
#[derive(Debug)]
pub(super) struct Formation {
    attempt: u32,
    tries: u32,
    step: FormationPhase,
    /// Whose answers are here.
    answered: Vec<bool>,
    holdings: Holdings,
    /// The channel that is being recalled, and all that were.
    recall: Option<u8>,
    recalled: u8,
    not_before: LocalNs,
}

impl Formation {
    pub(super) fn new(members: usize) -> Self {
        Self {
            attempt: 0,
            tries: 0,
            step: FormationPhase::Begun,
            answered: vec![false; members],
            holdings: Holdings::default(),
            recall: None,
            recalled: 0,
            not_before: LocalNs(0),
        }
    }

    /// Returns when the wait after a no is over.
    pub(super) fn not_before(&self) -> Option<LocalNs> {
        (self.step == FormationPhase::Voiding && self.answered.iter().all(|answered| *answered))
            .then_some(self.not_before)
    }

    fn frame(&self) -> Option<ChannelsFrame> {
        match self.step {
            FormationPhase::Begun => None,
            FormationPhase::Voiding | FormationPhase::Asking => {
                Some(ChannelsFrame::Ask { attempt: self.attempt, recall: self.recall })
            }
            FormationPhase::Proposing(channel) => {
                Some(ChannelsFrame::Propose { attempt: self.attempt, channel })
            }
        }
    }
}

impl Team {
    /// Leads the formation as far as answers allow.
    pub(super) fn lead(&mut self, bench: &mut TeamContext<'_>) {
        if self.forming.step == FormationPhase::Begun {
            self.ask(FormationPhase::Asking, bench);
        }
        while self.leads() {
            let waits = self.unanswered(bench);
            if waits.iter().any(|place| self.is_silent(*place, 1, bench)) {
                return self.declare(ChannelAssignment::Shared, bench);
            }
            if !waits.is_empty() {
                return;
            }
            match self.forming.step {
                FormationPhase::Proposing(channel) => {
                    self.declare(ChannelAssignment::Own(channel), bench)
                }
                FormationPhase::Voiding if bench.now < self.forming.not_before => return,
                FormationPhase::Voiding => self.ask(FormationPhase::Asking, bench),
                FormationPhase::Begun | FormationPhase::Asking => self.choose(bench),
            }
        }
    }

    fn unanswered(&self, bench: &TeamContext<'_>) -> Vec<u16> {
        let answered = |place: &u16| {
            self.forming.answered.get(usize::from(*place)).is_some_and(|answered| *answered)
        };
        self.others(bench).into_iter().filter(|place| !answered(place)).collect()
    }

    /// Asks all what they hold, which takes back what they promised.
    fn ask(&mut self, step: FormationPhase, bench: &mut TeamContext<'_>) {
        bench.pool.free(self.key, None);
        bench.recall = self.forming.recall;
        self.forming.holdings = bench.holdings;
        self.forming.attempt += 1;
        self.step(step, bench);
    }

    /// Takes back after a no, waits, and asks anew.
    fn retry(&mut self, bench: &mut TeamContext<'_>) {
        self.forming.tries += 1;
        if self.forming.tries > TRIES {
            return self.declare(ChannelAssignment::Shared, bench);
        }
        let most = bench.config.retry.times(1 << self.forming.tries.min(DOUBLINGS));
        self.forming.not_before = bench.now + Nanos(bench.stream.below(most.0));
        self.ask(FormationPhase::Voiding, bench);
    }

    fn step(&mut self, step: FormationPhase, bench: &mut TeamContext<'_>) {
        self.forming.step = step;
        for (place, answered) in self.forming.answered.iter_mut().enumerate() {
            let rank = self.members.get(place);
            *answered =
                place == usize::from(self.me) || rank.is_none_or(|rank| bench.dead.contains(rank));
        }
        if let Some(frame) = self.forming.frame() {
            self.others(bench).into_iter().for_each(|place| self.send(place, &frame, bench));
        }
        self.wait_anew(bench);
    }

    /// Chooses a channel, at the leader: all have said what they hold.
    fn choose(&mut self, bench: &mut TeamContext<'_>) {
        self.forming.holdings.busy |= bench.pool.busy_for(self.key);
        if let Some(channel) =
            self.forming.holdings.free().filter(|channel| bench.pool.hold(*channel, self.key))
        {
            return self.step(FormationPhase::Proposing(channel), bench);
        }
        let is_time =
            self.forming.recall.is_none() || self.forming.tries.is_multiple_of(RECALL_EVERY);
        let idlest = self.forming.holdings.idlest(self.forming.recalled).filter(|_| is_time);
        if let Some(channel) = idlest {
            self.forming.recall = Some(channel);
            self.forming.recalled |= 1 << channel;
        }
        match self.forming.recall {
            Some(_) => self.retry(bench),
            None => self.declare(ChannelAssignment::Shared, bench),
        }
    }

    /// Handles, at the leader, what a member says that it holds.
    pub(super) fn had(&mut self, from: u16, attempt: u32, holdings: &Holdings) {
        if self.leads()
            && attempt == self.forming.attempt
            && matches!(self.forming.step, FormationPhase::Voiding | FormationPhase::Asking)
        {
            self.forming.holdings.merge(holdings);
            self.answered(from);
        }
    }

    fn answered(&mut self, from: u16) {
        if let Some(answered) = self.forming.answered.get_mut(usize::from(from)) {
            *answered = true;
        }
    }

    /// Handles, at the leader, the vote of a member.
    pub(super) fn voted(
        &mut self,
        from: u16,
        attempt: u32,
        vote: Vote,
        bench: &mut TeamContext<'_>,
    ) {
        let is_asked = matches!(self.forming.step, FormationPhase::Proposing(_))
            && attempt == self.forming.attempt;
        match vote {
            _ if !self.leads() || !is_asked => {}
            Vote::Yes => self.answered(from),
            Vote::No => self.retry(bench),
        }
    }

    /// Asks those again, at the leader, that have not answered.
    pub(super) fn ask_all_again(&mut self, bench: &mut TeamContext<'_>) {
        self.unanswered(bench).into_iter().for_each(|place| self.ask_again(place, bench));
    }

    pub(super) fn ask_again(&mut self, place: u16, bench: &mut TeamContext<'_>) {
        if let Some(frame) = self.forming.frame() {
            self.send(place, &frame, bench);
        }
    }

    /// Returns whether `attempt` of the leader counts here; promises of older ones do not any more.
    fn is_attempt(&mut self, from: u16, attempt: u32, bench: &mut TeamContext<'_>) -> bool {
        if from != 0 || self.version.number > 0 || attempt < self.forming.attempt {
            return false;
        }
        if attempt > self.forming.attempt {
            bench.pool.free(self.key, None);
            self.forming.attempt = attempt;
        }
        true
    }

    /// Handles the leader's question what this rank holds.
    pub(super) fn asked(&mut self, from: u16, attempt: u32, bench: &mut TeamContext<'_>) {
        if self.is_attempt(from, attempt, bench) {
            let holdings = bench.holdings;
            self.send(from, &ChannelsFrame::Have { attempt, holdings }, bench);
        }
    }

    /// Handles the leader's proposal of a channel.
    pub(super) fn proposed(
        &mut self,
        from: u16,
        attempt: u32,
        channel: u8,
        bench: &mut TeamContext<'_>,
    ) {
        if self.is_attempt(from, attempt, bench) {
            let vote = if bench.pool.hold(channel, self.key) { Vote::Yes } else { Vote::No };
            self.send(from, &ChannelsFrame::Vote { attempt, vote }, bench);
        }
    }
}
