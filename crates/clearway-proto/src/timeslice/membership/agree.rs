//! One decision for each epoch: what a member promises, accepts and proposes.
//!
//! # Model
//! Single-decree Paxos, once for each epoch, by the members of the epoch before. The member that
//! leads a *ballot* first asks everybody ([`AgreementMessage::Prepare`]); an answer
//! ([`AgreementMessage::Promise`]) says what was accepted before, and what the one who answers has
//! at *stake*: from then on until the epoch is decided, an input sends nothing at or beyond its
//! horizon and hears no more of what the builder in question releases, so nothing that it reported
//! can change. When enough have answered, the decision follows from the answers, and is proposed
//! ([`AgreementMessage::Accept`]). A proposal that a quorum has accepted is decided.
//!
//! Everything but the removal of an input depends on what inputs have at stake, and needs the
//! answers of all inputs. The removal of an input needs a quorum only: what it may have sent or
//! freed no longer counts. So inputs that do not answer are removed first. Nobody is removed before
//! the one who leads says that it has had time to answer ([`Agreement::waited`]). A builder that
//! asked to go answers too: its last releases may still be under way to the inputs.
//!
//! # Source
//! Lamport, The Part-Time Parliament (1998).
//!
//! # Invariants
//! I1. One decision in each epoch, whatever is lost, late, doubled or dead.
//! I2. A decision that deals anew lies behind everything that any input has sent, and settles
//!     everything that any input has freed.
//!
//! # Not here
//! When to lead, and whom to ask again: `membership`, which has the clock.

use alloc::collections::{BTreeMap, BTreeSet};

use super::journal::{Change, Decision, Journal, RosterMember};
use crate::timeslice::layout::Role;

/// A try to decide: a higher one takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::timeslice) struct Ballot {
    pub(in crate::timeslice) round: u32,
    pub(in crate::timeslice) leader: RosterMember,
}

/// What somebody wants to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::timeslice) enum ProposedDecision {
    /// This member is silent: out with it, unless it answers.
    Suspect(RosterMember),
    /// This member is done and wants to go.
    Dismiss(RosterMember),
    /// A rank of the roster wants to be in.
    Join { member: RosterMember, incarnation: u32 },
    /// This member wants nothing more to be dealt to it.
    Retire(RosterMember),
    /// This builder is to have other turns.
    Weigh { member: RosterMember, weight: u32 },
}

impl ProposedDecision {
    /// Returns the member that it is about.
    pub(in crate::timeslice) const fn target(self) -> RosterMember {
        match self {
            Self::Suspect(member) | Self::Dismiss(member) | Self::Retire(member) => member,
            Self::Join { member, .. } | Self::Weigh { member, .. } => member,
        }
    }

    /// Returns the change it comes to, where a builder's `settled` positions are built.
    pub(super) const fn change(self, settled: u64) -> Change {
        match self {
            Self::Suspect(member) | Self::Dismiss(member) => Change::Remove { member, settled },
            Self::Join { member, incarnation } => Change::Join { member, incarnation },
            Self::Retire(member) => Change::Retire { member },
            Self::Weigh { member, weight } => Change::Weigh { member, weight },
        }
    }
}

/// What a member stands to lose by a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::timeslice) struct Stake {
    /// An input: it sends nothing from this timeslice on before it knows the decision.
    pub(in crate::timeslice) horizon: u64,
    /// Positions that the builder in question has released, as far as the member knows and will
    /// know.
    pub(in crate::timeslice) released: u64,
}

/// What members say to each other about the epoch after the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::timeslice) enum AgreementMessage {
    /// A ballot begins; it is about this member.
    Prepare { ballot: Ballot, target: RosterMember },
    /// No lower ballot is answered any more.
    Promise { ballot: Ballot, stake: Stake, accepted: Option<(Ballot, Decision)> },
    /// The ballot comes to this.
    Accept { ballot: Ballot, decision: Decision },
    /// It is accepted.
    Accepted { ballot: Ballot },
    /// This higher ballot was promised.
    Refused { promised: Ballot },
}

/// The ballot that this member leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct LedBallot {
    ballot: Ballot,
    wish: ProposedDecision,
    promises: BTreeMap<RosterMember, (Stake, Option<(Ballot, Decision)>)>,
    /// The one in question has had time to answer.
    waited: bool,
    proposed: Option<Decision>,
    accepted: BTreeSet<RosterMember>,
}

/// One member's part in deciding one epoch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::timeslice) struct Agreement {
    me: RosterMember,
    promised: Option<Ballot>,
    accepted: Option<(Ballot, Decision)>,
    /// The highest round heard of.
    round: u32,
    lead: Option<LedBallot>,
}

impl Agreement {
    /// Creates a ballot in which nothing was said yet.
    pub(in crate::timeslice) const fn new(me: RosterMember) -> Self {
        Self { me, promised: None, accepted: None, round: 0, lead: None }
    }

    /// Begins a ballot for `wish`, above all that were heard of. Says what to ask everybody, this
    /// member included.
    pub(in crate::timeslice) fn lead(&mut self, wish: ProposedDecision) -> AgreementMessage {
        self.round = self.round.saturating_add(1);
        let ballot = Ballot { round: self.round, leader: self.me };
        let (promises, accepted) = (BTreeMap::new(), BTreeSet::new());
        self.lead =
            Some(LedBallot { ballot, wish, promises, waited: false, proposed: None, accepted });
        AgreementMessage::Prepare { ballot, target: wish.target() }
    }

    /// Returns what this member leads for.
    pub(in crate::timeslice) fn leads(&self) -> Option<ProposedDecision> {
        self.lead.as_ref().map(|lead| lead.wish)
    }

    /// Gives up leading.
    pub(in crate::timeslice) fn give_up(&mut self) {
        self.lead = None;
    }

    /// Returns what to ask `member` again, who has not answered what was asked last.
    pub(in crate::timeslice) fn unanswered(
        &self,
        member: RosterMember,
    ) -> Option<AgreementMessage> {
        let lead = self.lead.as_ref()?;
        match lead.proposed {
            Some(_) if lead.accepted.contains(&member) => None,
            Some(decision) => Some(AgreementMessage::Accept { ballot: lead.ballot, decision }),
            None if lead.promises.contains_key(&member) => None,
            None => {
                Some(AgreementMessage::Prepare { ballot: lead.ballot, target: lead.wish.target() })
            }
        }
    }

    /// Handles a request for a promise. `stake` is called when it is given.
    pub(in crate::timeslice) fn prepared(
        &mut self,
        ballot: Ballot,
        stake: impl FnOnce() -> Stake,
    ) -> AgreementMessage {
        self.round = self.round.max(ballot.round);
        match self.promised.filter(|promised| *promised > ballot) {
            Some(promised) => AgreementMessage::Refused { promised },
            None => {
                self.promised = Some(ballot);
                AgreementMessage::Promise { ballot, stake: stake(), accepted: self.accepted }
            }
        }
    }

    /// Handles the promise of `from`. Says what to propose to everybody when that was the last
    /// promise needed.
    pub(in crate::timeslice) fn promised(
        &mut self,
        journal: &Journal,
        from: RosterMember,
        ballot: Ballot,
        answer: (Stake, Option<(Ballot, Decision)>),
    ) -> Option<AgreementMessage> {
        let lead =
            self.lead.as_mut().filter(|lead| lead.ballot == ballot && lead.proposed.is_none())?;
        lead.promises.insert(from, answer);
        lead.propose(journal)
    }

    /// Records that the subject of this member's ballot has had time to answer. Says what to
    /// propose to everybody when nothing else was waited for.
    pub(in crate::timeslice) fn waited(&mut self, journal: &Journal) -> Option<AgreementMessage> {
        let lead = self.lead.as_mut().filter(|lead| lead.proposed.is_none())?;
        lead.waited = true;
        let proposal = lead.propose(journal);
        // Time counts from the answers of all others.
        lead.waited = proposal.is_some();
        proposal
    }

    /// Handles a proposal.
    pub(in crate::timeslice) fn proposed(
        &mut self,
        ballot: Ballot,
        decision: Decision,
    ) -> AgreementMessage {
        self.round = self.round.max(ballot.round);
        match self.promised.filter(|promised| *promised > ballot) {
            Some(promised) => AgreementMessage::Refused { promised },
            None => {
                self.promised = Some(ballot);
                self.accepted = Some((ballot, decision));
                AgreementMessage::Accepted { ballot }
            }
        }
    }

    /// Records that `from` has accepted. Says what is decided when that made a quorum.
    pub(in crate::timeslice) fn accepted(
        &mut self,
        journal: &Journal,
        from: RosterMember,
        ballot: Ballot,
    ) -> Option<Decision> {
        let lead = self.lead.as_mut().filter(|lead| lead.ballot == ballot)?;
        let decision = lead.proposed?;
        lead.accepted.insert(from);
        journal.is_quorum(|member| lead.accepted.contains(&member)).then_some(decision)
    }

    /// Records that a member has promised a higher ballot than this member's.
    pub(in crate::timeslice) fn refused(&mut self, promised: Ballot) {
        self.round = self.round.max(promised.round);
        if self.lead.as_ref().is_some_and(|lead| lead.ballot < promised) {
            self.lead = None;
        }
    }
}

impl LedBallot {
    fn propose(&mut self, journal: &Journal) -> Option<AgreementMessage> {
        let decision = self.decision(journal)?;
        self.proposed = Some(decision);
        Some(AgreementMessage::Accept { ballot: self.ballot, decision })
    }

    /// Returns what follows from the promises; `None` while more of them are needed.
    fn decision(&self, journal: &Journal) -> Option<Decision> {
        let has = |member: RosterMember| self.promises.contains_key(&member);
        if !journal.is_quorum(has) {
            return None;
        }
        let accepted = self.promises.values().filter_map(|(_, accepted)| *accepted);
        if let Some((_, decision)) = accepted.max_by_key(|(ballot, _)| *ballot) {
            return Some(decision);
        }
        let target = self.wish.target();
        let from = journal.from();
        if matches!(self.wish, ProposedDecision::Suspect(_)) && has(target) {
            return Some(Decision { change: Change::Nothing, from });
        }
        let leaves =
            matches!(self.wish, ProposedDecision::Suspect(_) | ProposedDecision::Dismiss(_));
        if leaves && !has(target) && !self.waited {
            return None;
        }
        if leaves && matches!(journal.role(target), Role::Input(_)) {
            return Some(Decision { change: self.wish.change(0), from });
        }
        let is_input = |member: &RosterMember| matches!(journal.role(*member), Role::Input(_));
        if !journal.members().filter(is_input).all(has) {
            return None;
        }
        let stakes = || self.promises.values().map(|(stake, _)| stake);
        let from = stakes().map(|stake| stake.horizon).fold(journal.next_start(), u64::max);
        let settled = stakes().map(|stake| stake.released).max().unwrap_or(0);
        Some(Decision { change: self.wish.change(settled), from })
    }
}

#[cfg(test)]
mod tests;
