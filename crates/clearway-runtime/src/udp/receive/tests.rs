//! Which senders are strangers: on a wire without keys by session and address, on one with keys
//! whatever an attacker may try.

use clearway_proto::wire::Destination;
use proptest::prelude::*;

use super::*;
use crate::udp::tests::agreed;

const SESSION: u64 = 7;
const PORT: SocketOrigin = SocketOrigin::Port(PathId(0));
const HEAD: &[u8] = b"head";
const BODY: &[u8] = b"a body";

fn peers() -> Vec<SocketAddrV4> {
    ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"].map(|a| a.parse().expect("an address")).to_vec()
}

fn plain(rank: u32) -> JobAddresses {
    JobAddresses { rank: Rank(rank), session: SESSION, rails: vec![peers()], guard: None }
}

/// Returns three ranks with keys, of which the last may have turned attacker.
fn sealed_members(session: u64, epoch: u32) -> Vec<JobAddresses> {
    let member = |(rank, keys)| JobAddresses {
        session,
        guard: Some(DatagramSealer::new(keys, 2)),
        ..plain(rank)
    };
    (0..).zip(agreed(3, session, epoch)).map(member).collect()
}

fn seal(from: &mut JobAddresses, to: Destination, class: Class) -> Vec<u8> {
    let mut datagram = Vec::new();
    let guard = from.guard.as_mut().expect("keys");
    guard.stage(to, PathId(0), class, [HEAD, BODY], &mut datagram).expect("staged");
    guard.seal(&mut datagram);
    datagram
}

fn to(rank: u32) -> Destination {
    Destination::One(Rank(rank))
}

/// Returns sender, header and body, if `members` take `datagram` for a message.
fn accept(
    members: &mut JobAddresses,
    datagram: &[u8],
    from: u32,
    origin: SocketOrigin,
) -> Option<(Rank, Vec<u8>, Vec<u8>)> {
    let mut bytes = datagram.to_vec();
    match members.judge(&mut bytes, peers()[from as usize], origin) {
        DatagramVerdict::Message(claim) => Some((
            claim.from,
            bytes[claim.head.clone()].to_vec(),
            bytes[claim.head.end..claim.end].to_vec(),
        )),
        DatagramVerdict::Own | DatagramVerdict::Stranger => None,
    }
}

#[test]
fn judge__session_rank_and_address_must_all_fit() {
    let mut members = plain(1);
    let peers = members.rails[0].clone();
    let mut judge =
        |from, session, at| members.judge(&mut frame::write(Rank(from), session, 0), at, PORT);
    let claim = DatagramClaim { from: Rank(0), head: 16..16, end: 16, sealed: None };
    assert_eq!(judge(0, 7, peers[0]), DatagramVerdict::Message(claim));
    assert_eq!(judge(0, 7, peers[2]), DatagramVerdict::Stranger, "another rank's address");
    assert_eq!(judge(0, 7, SocketAddrV4::new(*peers[0].ip(), 2)), DatagramVerdict::Stranger);
    assert_eq!(judge(0, 8, peers[0]), DatagramVerdict::Stranger);
    assert_eq!(judge(3, 7, peers[0]), DatagramVerdict::Stranger);
    assert_eq!(members.judge(&mut [], peers[0], PORT), DatagramVerdict::Stranger);
}

#[test]
fn judge__own_messages_are_messages_on_the_port_and_echoes_in_a_group() {
    let mut members = plain(1);
    let (mut own, at) = (frame::write(Rank(1), 7, 0), members.rails[0][1]);
    assert_eq!(members.judge(&mut own, at, SocketOrigin::Group(GroupId(0))), DatagramVerdict::Own);
    assert!(matches!(members.judge(&mut own, at, PORT), DatagramVerdict::Message(_)));
}

#[test]
fn judge__a_sealed_message_is_taken_once() {
    let mut all = sealed_members(SESSION, 0);
    for class in Class::ALL {
        let datagram = seal(&mut all[0], to(1), class);
        let message = (Rank(0), HEAD.to_vec(), BODY.to_vec());
        assert_eq!(accept(&mut all[1], &datagram, 0, PORT), Some(message));
        assert_eq!(accept(&mut all[1], &datagram, 0, PORT), None, "again");
    }
    assert_eq!(all[1].guard.as_ref().map(|guard| guard.replayed), Some(5));
}

#[test]
fn judge__each_rail_has_addresses_numbers_and_windows_of_its_own() {
    let mut all = sealed_members(SESSION, 0);
    let second: Vec<SocketAddrV4> =
        ["10.1.0.1:1", "10.1.0.2:1", "10.1.0.3:1"].map(|a| a.parse().expect("an address")).to_vec();
    all.iter_mut().for_each(|members| members.rails.push(second.clone()));
    let mut on_second = Vec::new();
    let guard = all[0].guard.as_mut().expect("keys");
    guard.stage(to(1), PathId(1), Class::Bulk, [HEAD, BODY], &mut on_second).expect("staged");
    guard.seal(&mut on_second);
    let on_first = seal(&mut all[0], to(1), Class::Bulk);
    let judge = |members: &mut JobAddresses, datagram: &[u8], at, rail| {
        matches!(
            members.judge(&mut datagram.to_vec(), at, SocketOrigin::Port(PathId(rail))),
            DatagramVerdict::Message(_)
        )
    };
    let member = &mut all[1];
    assert!(!judge(member, &on_second, peers()[0], 0), "sealed for another rail");
    assert!(
        !judge(member, &on_second, second[0], 0) && !judge(member, &on_second, peers()[0], 1),
        "an address of another rail"
    );
    assert!(
        judge(member, &on_second, second[0], 1) && !judge(member, &on_second, second[0], 1),
        "once"
    );
    // Both are number 0 of their class.
    assert!(judge(member, &on_first, peers()[0], 0) && !judge(member, &on_first, second[0], 1));
    assert_eq!(member.guard.as_ref().map(|guard| guard.replayed), Some(1));
}

#[test]
fn judge__every_bit_and_every_byte_counts() {
    let mut all = sealed_members(SESSION, 0);
    let datagram = seal(&mut all[0], to(1), Class::Bulk);
    for bit in 0..8 * datagram.len() {
        let mut flipped = datagram.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(accept(&mut all[1], &flipped, 0, PORT), None, "bit {bit}");
    }
    for length in 0..datagram.len() {
        assert_eq!(accept(&mut all[1], &datagram[..length], 0, PORT), None, "cut to {length}");
    }
    let longer = [&datagram[..], &[0]].concat();
    assert_eq!(accept(&mut all[1], &longer, 0, PORT), None);
    assert!(accept(&mut all[1], &datagram, 0, PORT).is_some(), "attempts use up no number");
    assert_eq!(
        all[1].guard.as_ref().map(|guard| guard.replayed),
        Some(0),
        "and none of them was a replay"
    );
}

#[test]
fn judge__only_the_sealer_the_receiver_and_the_job_fit() {
    let mut all = sealed_members(SESSION, 0);
    let datagram = seal(&mut all[0], to(1), Class::Bulk);
    assert_eq!(accept(&mut all[2], &datagram, 0, PORT), None, "sealed for another rank");
    assert_eq!(accept(&mut all[1], &datagram, 2, PORT), None, "from another address");
    assert_eq!(accept(&mut all[0], &datagram, 0, PORT), None, "own message, reflected");
    let mut reflected = datagram.clone();
    reflected[4] = 1;
    assert_eq!(accept(&mut all[0], &reflected, 1, PORT), None, "reflected in the peer's name");
    // Rank 2 seals for rank 1 and writes rank 0 on it.
    let mut renamed = seal(&mut all[2], to(1), Class::Bulk);
    renamed[4] = 0;
    assert_eq!(accept(&mut all[1], &renamed, 0, PORT), None, "in another rank's name");
    for (mut others, why) in
        [(sealed_members(8, 0), "session"), (sealed_members(SESSION, 1), "epoch")]
    {
        let mut foreign = seal(&mut others[0], to(1), Class::Bulk);
        assert_eq!(accept(&mut all[1], &foreign, 0, PORT), None, "another {why}");
        foreign[8..16].copy_from_slice(&SESSION.to_le_bytes());
        assert_eq!(accept(&mut all[1], &foreign, 0, PORT), None, "another {why} under this number");
    }
    let again = sealed_members(SESSION, 0);
    for mut other in again {
        other.rank = Rank(0);
        let old = seal(&mut other, to(1), Class::Bulk);
        assert_eq!(accept(&mut all[1], &old, 0, PORT), None, "an earlier run of the same job");
    }
    assert_eq!(
        accept(&mut all[1], &frame::write(Rank(0), SESSION, 0), 0, PORT),
        None,
        "not sealed"
    );
    assert_eq!(accept(&mut plain(1), &datagram, 0, PORT), None, "sealed, where none may be");
}

#[test]
fn judge__groups_and_ports_have_different_keys() {
    let mut all = sealed_members(SESSION, 0);
    let (group, other) = (GroupId(3), GroupId(4));
    for id in [group, other] {
        let guard = all[0].guard.as_mut().expect("keys");
        let sealed = guard.renew_group(id, &[Rank(1)]).expect("a key");
        let accepted = all[1].guard.as_mut().expect("keys").accept_group(Rank(0), &sealed[0]);
        assert_eq!(accepted.expect("for this rank"), id);
    }
    let multicast = seal(&mut all[0], Destination::Group(group), Class::Bulk);
    assert_eq!(accept(&mut all[1], &multicast, 0, PORT), None, "a group's message at the port");
    assert_eq!(
        accept(&mut all[1], &multicast, 0, SocketOrigin::Group(other)),
        None,
        "in another group"
    );
    assert_eq!(
        accept(&mut all[2], &multicast, 0, SocketOrigin::Group(group)),
        None,
        "not a member"
    );
    assert!(accept(&mut all[1], &multicast, 0, SocketOrigin::Group(group)).is_some());
    assert_eq!(accept(&mut all[1], &multicast, 0, SocketOrigin::Group(group)), None, "again");
    let single = seal(&mut all[0], to(1), Class::Bulk);
    assert_eq!(
        accept(&mut all[1], &single, 0, SocketOrigin::Group(group)),
        None,
        "a pair's message in a group"
    );
}

proptest! {
    #[test]
    fn judge__any_bytes_from_any_address_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..2_000), from in 0u32..3, tail in prop::collection::vec(any::<u8>(), 0..200),
        head_length in any::<u8>(), number in any::<u64>(), class in 0usize..5
    ) {
        let mut all = sealed_members(SESSION, 0);
        prop_assert_eq!(accept(&mut all[1], &bytes, from, PORT), None);
        let class = Class::ALL[class];
        let good = SealedFrame { from: Rank(from), head_length, class, rail: PathId(0), number: number >> 8 }.write(SESSION);
        prop_assert_eq!(accept(&mut all[1], &[&good, &tail[..]].concat(), from, PORT), None);
    }
}
