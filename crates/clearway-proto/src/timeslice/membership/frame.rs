//! The headers that members send each other about who takes part, byte by byte.
//!
//! # Model
//! All numbers little-endian. Every header begins with its kind (1 byte) and the epoch that the
//! sender has come to (4 bytes), and ends with its run (2 bytes, as inputs' and builders' headers
//! do); those of an agreement are about the epoch after it.
//!
//! | kind | frame | fields (bytes) |
//! |---|---|---|
//! | 16 | beat | |
//! | 17 | prepare | round 4, leader 4, target 4 |
//! | 18 | promise | round 4, leader 4, horizon 8, released 8; if something was accepted: round 4, leader 4, decision 21 |
//! | 19 | accept | round 4, leader 4, decision 21 |
//! | 20 | accepted | round 4, leader 4 |
//! | 21 | refused | round 4, leader 4 |
//! | 22 | decided: by the epoch itself | decision 21 |
//! | 23 | wish | sort 1, member 4, value 4 |
//!
//! A decision: sort 1, member 4, value 8 (settled, incarnation, weight), from 8.
//!
//! # Invariants
//! I1. Any bytes parse to a frame or to nothing, never to a panic; surplus bytes are refused.

use super::agree::{AgreementMessage, Ballot, ProposedDecision, Stake};
use super::journal::{Change, Decision, RosterMember};
use crate::base::{ByteReader, Head};

/// The lowest kind: lower ones are an input's and a builder's.
pub(in crate::timeslice) const FIRST_KIND: u8 = 16;
/// The longest header: a promise, with its run.
const LONGEST: usize = 64;

/// One header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::timeslice) struct MembershipFrame {
    pub(super) epoch: u32,
    pub(super) body: MembershipBody,
}

/// What it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MembershipBody {
    /// I am there.
    Beat,
    /// About the epoch after.
    Agree(AgreementMessage),
    /// What the epoch decided.
    Decided(Decision),
    /// The decision that is proposed.
    Wish(ProposedDecision),
}

impl MembershipFrame {
    /// Encodes it as a header.
    pub(in crate::timeslice) fn encode(&self) -> Head<LONGEST> {
        let mut head = Head::new();
        head.put(&[self.kind()]).put(&self.epoch.to_le_bytes());
        match self.body {
            MembershipBody::Beat => {}
            MembershipBody::Agree(message) => put_message(&mut head, message),
            MembershipBody::Decided(decision) => put_decision(&mut head, decision),
            MembershipBody::Wish(wish) => put_wish(&mut head, wish),
        }
        head
    }

    /// Returns the first byte of its header.
    pub(in crate::timeslice) const fn kind(&self) -> u8 {
        match self.body {
            MembershipBody::Beat => 16,
            MembershipBody::Agree(AgreementMessage::Prepare { .. }) => 17,
            MembershipBody::Agree(AgreementMessage::Promise { .. }) => 18,
            MembershipBody::Agree(AgreementMessage::Accept { .. }) => 19,
            MembershipBody::Agree(AgreementMessage::Accepted { .. }) => 20,
            MembershipBody::Agree(AgreementMessage::Refused { .. }) => 21,
            MembershipBody::Decided(_) => 22,
            MembershipBody::Wish(_) => 23,
        }
    }

    /// Reads a header; `None` when the bytes are nothing that [`MembershipFrame::encode`] writes.
    pub(in crate::timeslice) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(bytes);
        let kind = rest.u8()?;
        let epoch = rest.u32()?;
        let body = match kind {
            16 => MembershipBody::Beat,
            17 => MembershipBody::Agree(AgreementMessage::Prepare {
                ballot: ballot(&mut rest)?,
                target: RosterMember(rest.u32()?),
            }),
            18 => MembershipBody::Agree(promise(&mut rest)?),
            19 => MembershipBody::Agree(AgreementMessage::Accept {
                ballot: ballot(&mut rest)?,
                decision: decision(&mut rest)?,
            }),
            20 => MembershipBody::Agree(AgreementMessage::Accepted { ballot: ballot(&mut rest)? }),
            21 => MembershipBody::Agree(AgreementMessage::Refused { promised: ballot(&mut rest)? }),
            22 => MembershipBody::Decided(decision(&mut rest)?),
            23 => MembershipBody::Wish(wish(&mut rest)?),
            _ => return None,
        };
        rest.is_empty().then_some(Self { epoch, body })
    }
}

fn put_message(head: &mut Head<LONGEST>, message: AgreementMessage) {
    match message {
        AgreementMessage::Prepare { ballot, target } => {
            put_ballot(head, ballot);
            head.put(&target.0.to_le_bytes());
        }
        AgreementMessage::Promise { ballot, stake, accepted } => {
            put_ballot(head, ballot);
            head.put(&stake.horizon.to_le_bytes()).put(&stake.released.to_le_bytes());
            if let Some((ballot, decision)) = accepted {
                put_ballot(head, ballot);
                put_decision(head, decision);
            }
        }
        AgreementMessage::Accept { ballot, decision } => {
            put_ballot(head, ballot);
            put_decision(head, decision);
        }
        AgreementMessage::Accepted { ballot } | AgreementMessage::Refused { promised: ballot } => {
            put_ballot(head, ballot)
        }
    }
}

fn put_ballot(head: &mut Head<LONGEST>, ballot: Ballot) {
    head.put(&ballot.round.to_le_bytes()).put(&ballot.leader.0.to_le_bytes());
}

fn put_decision(head: &mut Head<LONGEST>, decision: Decision) {
    let (sort, member, value) = match decision.change {
        Change::Nothing => (0, RosterMember(0), 0),
        Change::Remove { member, settled } => (1, member, settled),
        Change::Join { member, incarnation } => (2, member, u64::from(incarnation)),
        Change::Retire { member } => (3, member, 0),
        Change::Weigh { member, weight } => (4, member, u64::from(weight)),
    };
    head.put(&[sort])
        .put(&member.0.to_le_bytes())
        .put(&value.to_le_bytes())
        .put(&decision.from.to_le_bytes());
}

fn put_wish(head: &mut Head<LONGEST>, wish: ProposedDecision) {
    let (sort, value) = match wish {
        ProposedDecision::Suspect(_) => (0, 0),
        ProposedDecision::Dismiss(_) => (1, 0),
        ProposedDecision::Join { incarnation, .. } => (2, incarnation),
        ProposedDecision::Retire(_) => (3, 0),
        ProposedDecision::Weigh { weight, .. } => (4, weight),
    };
    head.put(&[sort]).put(&wish.target().0.to_le_bytes()).put(&value.to_le_bytes());
}

fn ballot(rest: &mut ByteReader<'_>) -> Option<Ballot> {
    Some(Ballot { round: rest.u32()?, leader: RosterMember(rest.u32()?) })
}

fn promise(rest: &mut ByteReader<'_>) -> Option<AgreementMessage> {
    let ballot_promised = ballot(rest)?;
    let stake = Stake { horizon: rest.u64()?, released: rest.u64()? };
    let accepted = if rest.is_empty() { None } else { Some((ballot(rest)?, decision(rest)?)) };
    Some(AgreementMessage::Promise { ballot: ballot_promised, stake, accepted })
}

fn decision(rest: &mut ByteReader<'_>) -> Option<Decision> {
    let (sort, member, value, from) =
        (rest.u8()?, RosterMember(rest.u32()?), rest.u64()?, rest.u64()?);
    let change = match sort {
        0 => Change::Nothing,
        1 => Change::Remove { member, settled: value },
        2 => Change::Join { member, incarnation: u32::try_from(value).ok()? },
        3 => Change::Retire { member },
        4 => Change::Weigh { member, weight: u32::try_from(value).ok()? },
        _ => return None,
    };
    Some(Decision { change, from })
}

fn wish(rest: &mut ByteReader<'_>) -> Option<ProposedDecision> {
    let (sort, member, value) = (rest.u8()?, RosterMember(rest.u32()?), rest.u32()?);
    Some(match sort {
        0 => ProposedDecision::Suspect(member),
        1 => ProposedDecision::Dismiss(member),
        2 => ProposedDecision::Join { member, incarnation: value },
        3 => ProposedDecision::Retire(member),
        4 => ProposedDecision::Weigh { member, weight: value },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__gives_back_what_was_written() {
        let ballot = Ballot { round: 7, leader: RosterMember(3) };
        let decision = Decision {
            change: Change::Remove { member: RosterMember(9), settled: 1 << 40 },
            from: 1 << 41,
        };
        let stake = Stake { horizon: u64::MAX, released: 5 };
        let join = Decision {
            change: Change::Join { member: RosterMember(2), incarnation: u32::MAX },
            from: 3,
        };
        let bodies = [
            MembershipBody::Beat,
            MembershipBody::Agree(AgreementMessage::Prepare { ballot, target: RosterMember(1) }),
            MembershipBody::Agree(AgreementMessage::Promise { ballot, stake, accepted: None }),
            MembershipBody::Agree(AgreementMessage::Promise {
                ballot,
                stake,
                accepted: Some((ballot, decision)),
            }),
            MembershipBody::Agree(AgreementMessage::Accept { ballot, decision: join }),
            MembershipBody::Agree(AgreementMessage::Accepted { ballot }),
            MembershipBody::Agree(AgreementMessage::Refused { promised: ballot }),
            MembershipBody::Decided(decision),
            MembershipBody::Wish(ProposedDecision::Weigh { member: RosterMember(4), weight: 12 }),
        ];
        for body in bodies {
            let frame = MembershipFrame { epoch: 0x0102_0304, body };
            let bytes = frame.encode();
            assert_eq!(MembershipFrame::parse(bytes.bytes()), Some(frame));
            assert_eq!(
                MembershipFrame::parse(&bytes.bytes()[..bytes.bytes().len() - 1]),
                None,
                "{body:?}"
            );
        }
    }

    #[test]
    fn parse__reads_literal_bytes() {
        let beat = MembershipFrame { epoch: 5, body: MembershipBody::Beat };
        assert_eq!(MembershipFrame::parse(&[16, 5, 0, 0, 0]), Some(beat));
        let suspect = MembershipFrame {
            epoch: 1,
            body: MembershipBody::Wish(ProposedDecision::Suspect(RosterMember(2))),
        };
        assert_eq!(
            MembershipFrame::parse(&[23, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]),
            Some(suspect)
        );
        for bytes in [
            &[][..],
            &[16],
            &[16, 0, 0, 0, 0, 0],
            &[24, 0, 0, 0, 0],
            &[23, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(MembershipFrame::parse(bytes), None, "{bytes:?}");
        }
    }
}
