//! Numbers are never used twice and end in time; group keys change in one direction only.

use std::collections::BTreeSet;

use super::*;
use crate::udp::tests::agreed;

fn guards(ranks: u32) -> Vec<DatagramSealer> {
    agreed(ranks, 7, 0).into_iter().map(|keys| DatagramSealer::new(keys, 2)).collect()
}

fn seal(
    guard: &mut DatagramSealer,
    to: Destination,
    class: Class,
) -> Result<Vec<u8>, RefusalReason> {
    let mut staging = Vec::new();
    guard.stage(to, PathId(0), class, [b"", b"body"], &mut staging)?;
    guard.seal(&mut staging);
    Ok(staging)
}

#[test]
fn seal__no_nonce_comes_twice_under_one_key() {
    let mut guard = guards(2).remove(0);
    guard.renew_group(GroupId(1), &[]).expect("a key");
    for to in [Destination::One(Rank(1)), Destination::Group(GroupId(1))] {
        let mut nonces = BTreeSet::new();
        for _ in 0..100 {
            for class in Class::ALL {
                let datagram = seal(&mut guard, to, class).expect("sealed");
                let sealed = SealedFrame::parse(&datagram, 7).expect("a frame");
                assert!(nonces.insert(sealed.nonce()), "{sealed:?}");
            }
        }
        for class in Class::ALL.into_iter().filter(|_| to == Destination::One(Rank(1))) {
            let mut datagram = Vec::new();
            guard
                .stage(to, PathId(1), class, [b"", b"body"], &mut datagram)
                .expect("a second rail");
            let sealed = SealedFrame::parse(&datagram, 7).expect("a frame");
            assert!(nonces.insert(sealed.nonce()), "{sealed:?}");
        }
    }
    let beyond =
        guard.stage(Destination::One(Rank(1)), PathId(2), Class::Bulk, [b"", b""], &mut Vec::new());
    assert_eq!(beyond, Err(RefusalReason::Path));
}

#[test]
fn seal__every_datagram_of_a_batch_is_opened_by_its_own_receiver() {
    let mut guards = guards(3);
    let mut others = guards.split_off(1);
    // More than are sealed at once, to two receivers in turn.
    let (mut staging, mut ends) = (Vec::new(), Vec::new());
    for i in 0..2 * STAGED_MAX + 3 {
        let to = Destination::One(Rank(1 + i as u32 % 2));
        guards[0]
            .stage(to, PathId(0), Class::Bulk, [&[i as u8], &[7; 40]], &mut staging)
            .expect("staged");
        ends.push(staging.len());
    }
    guards[0].seal(&mut staging);
    let mut begin = 0;
    for (i, end) in ends.into_iter().enumerate() {
        let datagram = &mut staging[begin..end];
        let sealed = SealedFrame::parse(datagram, 7).expect("a frame");
        assert_eq!(others[i % 2].open(&sealed, datagram, SocketOrigin::Port(PathId(0))), Some(()));
        assert_eq!(datagram[frame::SEALED_LENGTH..][..41], [&[i as u8][..], &[7; 40]].concat()[..]);
        begin = end;
    }
}

#[test]
fn seal__refuses_when_the_numbers_of_a_class_are_used_up() {
    let mut guard = guards(2).remove(0);
    let to = Destination::One(Rank(1));
    guard.pairs[1].rails[0].0.0[Class::Bulk.index()] = NUMBERS_MAX - 1;
    assert!(seal(&mut guard, to, Class::Bulk).is_ok());
    for _ in 0..2 {
        assert_eq!(
            seal(&mut guard, to, Class::Bulk),
            Err(RefusalReason::Operation(OperationKind::Send))
        );
    }
    assert!(seal(&mut guard, to, Class::Control).is_ok(), "another class has its own");
}

#[test]
fn seal__for_nobody_is_refused() {
    let mut guard = guards(2).remove(0);
    assert_eq!(seal(&mut guard, Destination::One(Rank(2)), Class::Bulk), Err(RefusalReason::Rank));
    assert_eq!(
        seal(&mut guard, Destination::Group(GroupId(1)), Class::Bulk),
        Err(RefusalReason::Group),
        "a group without key"
    );
}

#[test]
fn accept_group__takes_newer_keys_from_members_only() {
    let group = GroupId(1);
    let mut all = guards(3);
    let first = all[0].renew_group(group, &[Rank(1), Rank(2)]).expect("a key");
    assert_eq!(all[1].accept_group(Rank(0), &first[0]).expect("new"), group);
    let sentence = "what rank 0 sealed is no newer group key for this rank; seal a new one for it";
    assert_eq!(
        all[1].accept_group(Rank(0), &first[0]).expect_err("the same again").to_string(),
        sentence
    );
    assert!(all[1].accept_group(Rank(2), &first[0]).is_err(), "not of that rank");
    assert!(all[1].accept_group(Rank(0), &first[1]).is_err(), "for another rank");
    assert!(all[1].accept_group(Rank(9), &first[0]).is_err(), "no such rank");

    let second = all[0].renew_group(group, &[Rank(1)]).expect("a key");
    assert_eq!(all[1].accept_group(Rank(0), &second[0]).expect("newer"), group);
    assert!(all[1].accept_group(Rank(0), &first[0]).is_err(), "an older key does not come back");
}

#[test]
fn accept_group__who_left_reads_and_writes_no_more() {
    let group = GroupId(1);
    let mut all = guards(3);
    let first = all[0].renew_group(group, &[Rank(1), Rank(2)]).expect("a key");
    for rank in [1, 2] {
        all[rank].accept_group(Rank(0), &first[rank - 1]).expect("new");
    }
    let second = all[0].renew_group(group, &[Rank(1)]).expect("a key");
    all[1].accept_group(Rank(0), &second[0]).expect("newer");
    let mut reaches = |from: usize, to: usize| {
        let mut datagram =
            seal(&mut all[from], Destination::Group(group), Class::Bulk).expect("sealed");
        let sealed = SealedFrame::parse(&datagram, 7).expect("a frame");
        all[to].open(&sealed, &mut datagram, SocketOrigin::Group(group)).is_some()
    };
    assert!(reaches(0, 1));
    assert!(!reaches(0, 2));
    assert!(!reaches(2, 1));
}
