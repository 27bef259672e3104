//! What members say, and how it leaves: room that is there, and room that is not.

use super::*;
use crate::base::Rank;
use crate::timeslice::layout::TimesliceLayout;

const INTERVAL: Nanos = Nanos(1_000);

/// Returns the first of four inputs, which has something to say to three others.
fn about_to_beat() -> Membership {
    let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect();
    let layout = TimesliceLayout::new(ranks(0..4), ranks(4..5), &[]).expect("a sound layout");
    let mut membership =
        Membership::new(RosterMember(0), Arc::new(Journal::new(&Arc::new(layout))), INTERVAL);
    membership.boot(LocalNs(0), 0);
    membership.tick(LocalNs(0), &mut |_| Stake::default());
    membership
}

#[test]
fn done__without_room_a_header_waits_for_it_and_leaves_first() {
    let mut membership = about_to_beat();
    let (to, frame) = membership.next_frame().expect("a beat");
    membership.done(to, frame.kind(), Status::NoRoom);
    assert!(membership.next_frame().is_none(), "there is no room");
    membership.room();
    assert_eq!(membership.next_frame(), Some((to, frame)));
    membership.done(to, frame.kind(), Status::Complete);
    let others: Vec<_> = core::iter::from_fn(|| membership.next_frame()).collect();
    assert_eq!(others.len(), 2, "{others:?}");
    assert!(others.iter().all(|(member, _)| *member != to), "it has left once");
}

#[test]
fn tick__room_that_is_never_announced_is_tried_again() {
    let mut membership = about_to_beat();
    let (to, frame) = membership.next_frame().expect("a beat");
    membership.done(to, frame.kind(), Status::NoRoom);
    membership.tick(LocalNs(INTERVAL.0), &mut |_| Stake::default());
    assert!(membership.next_frame().is_some());
}

#[test]
fn consider__nothing_is_led_before_the_node_follows_what_was_decided() {
    let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect();
    let layout = TimesliceLayout::new(ranks(0..2), ranks(2..5), &[]).expect("a sound layout");
    let mut membership =
        Membership::new(RosterMember(0), Arc::new(Journal::new(&Arc::new(layout))), INTERVAL);
    membership.boot(LocalNs(0), 0);
    let mut asked = Vec::new();
    let mut arrive = |membership: &mut Membership, from: u32, body| {
        let mut stakes = |target| {
            asked.push(target);
            Stake::default()
        };
        membership.arrival(
            LocalNs(1),
            RosterMember(from),
            MembershipFrame { epoch: 0, body },
            &mut stakes,
        );
        asked.clone()
    };
    for builder in [2, 3] {
        arrive(
            &mut membership,
            builder,
            MembershipBody::Wish(ProposedDecision::Retire(RosterMember(builder))),
        );
    }
    let said =
        core::iter::from_fn(|| membership.next_frame()).find_map(|(_, frame)| match frame.body {
            MembershipBody::Agree(AgreementMessage::Prepare { ballot, .. }) => Some(ballot),
            _ => None,
        });
    let ballot = said.expect("a question");
    for from in 1..5 {
        let promise = AgreementMessage::Promise { ballot, stake: Stake::default(), accepted: None };
        arrive(&mut membership, from, MembershipBody::Agree(promise));
    }
    for from in 1..3 {
        let asked = arrive(
            &mut membership,
            from,
            MembershipBody::Agree(AgreementMessage::Accepted { ballot }),
        );
        assert_eq!(asked, [RosterMember(2)], "one thing at a time");
    }
    let (decision, _) = membership.news().expect("a decision");
    assert_eq!(decision.change, Change::Retire { member: RosterMember(2) });
    let mut next = None;
    membership.followed(LocalNs(2), &mut |target| {
        next = Some(target);
        Stake::default()
    });
    assert_eq!(next, Some(RosterMember(3)));
}

/// The builder 4 of two inputs and three builders is another process, and hears that an input is
/// out before it hears the same of its predecessor.
#[test]
fn learn__a_wish_to_join_stays_while_the_predecessor_still_takes_part() {
    let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect();
    let layout = TimesliceLayout::new(ranks(0..2), ranks(2..5), &[]).expect("a sound layout");
    let mut membership =
        Membership::new(RosterMember(4), Arc::new(Journal::new(&Arc::new(layout))), INTERVAL);
    membership.boot(LocalNs(0), 1);
    membership.want_in(LocalNs(0));
    let wishes = |membership: &mut Membership, epoch: u32, change| {
        let decided = MembershipBody::Decided(Decision { change, from: 0 });
        let frame = MembershipFrame { epoch, body: decided };
        membership.arrival(LocalNs(1), RosterMember(0), frame, &mut |_| Stake::default());
        membership.tick(membership.deadline(), &mut |_| Stake::default());
        let said: Vec<_> = core::iter::from_fn(|| membership.next_frame()).collect();
        said.into_iter().find_map(|(_, frame)| match frame.body {
            MembershipBody::Wish(wish @ ProposedDecision::Join { .. }) => Some(wish),
            _ => None,
        })
    };
    let out = |member| Change::Remove { member: RosterMember(member), settled: 0 };
    assert!(wishes(&mut membership, 1, out(1)).is_some(), "its predecessor is in");
    let Some(ProposedDecision::Join { member, incarnation }) = wishes(&mut membership, 2, out(4))
    else {
        panic!("it no longer wants to join");
    };
    assert_eq!(wishes(&mut membership, 3, Change::Join { member, incarnation }), None);
    assert!(membership.is_in());
}
