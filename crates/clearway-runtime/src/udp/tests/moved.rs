//! A rank whose process is another one, at another port: it and its peers hear each other, and
//! nobody hears the process before it.

use std::cell::RefCell;

use super::*;

/// Returns a wire of rank 1 of 2 at a port other than that of `job`, and the move that announces
/// it.
fn newcomer(job: &UdpLoopback, protection: Protection) -> (UdpWire, PeerMove) {
    let members = &job.wires[1].listener.members;
    let port = UdpPort::bind(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 0)).expect("a port");
    let address = port.address();
    let mut config = UdpConfig::new(Rank(1), members.session, vec![members.rails[0][0], address]);
    (config.placement, config.waiting) = (Placement::OneMachine, Waiting::Sleep);
    config.protection = protection;
    let wire = UdpWire::open([port], config).expect("an open wire");
    (wire, PeerMove { rank: Rank(1), address, card: None })
}

/// Lets `job`'s rank 0 follow `to`, and checks that it talks with `newcomer` and with nobody else.
fn check_move(mut job: UdpLoopback, moves: &PeerMoves, newcomer: UdpWire, to: PeerMove) {
    moves.announce(to);
    // The wire follows before it looks.
    job.wires[0].poll(64, &mut |arrival| panic!("{arrival:?}"));
    let before = std::mem::replace(&mut job.wires[1], newcomer);
    assert_eq!(job.send(0, 1, Class::Bulk, b"to it", Span::EMPTY), PostOutcome::Done(0));
    assert_eq!(job.await_messages(1, 1), [(Rank(0), Some(Class::Bulk), b"to it".to_vec())]);
    assert_eq!(job.send(1, 0, Class::Bulk, b"of it", Span::EMPTY), PostOutcome::Done(0));
    assert_eq!(job.await_messages(0, 1), [(Rank(1), Some(Class::Bulk), b"of it".to_vec())]);
    job.wires[1] = before;
    assert_eq!(job.send(1, 0, Class::Bulk, b"late", Span::EMPTY), PostOutcome::Done(0));
    let strangers = job.wires[0].counters().strangers;
    while job.wires[0].counters().strangers == strangers {
        job.wires[0].wait(Some(clock::now() + TIMEOUT), &[]);
        job.wires[0].poll(64, &mut |arrival| panic!("{arrival:?}"));
    }
    assert_eq!(job.wires[0].counters().errors, 0);
}

#[test]
fn announce__a_peer_at_another_port_is_heard_there_and_no_longer_where_it_was() {
    let moves = PeerMoves::default();
    let job = UdpLoopback::new(2, |config| {
        if config.rank == Rank(0) {
            config.moves = moves.clone();
        }
    });
    let (wire, to) = newcomer(&job, Protection::OnOneMachine);
    check_move(job, &moves, wire, to);
}

/// Returns the job of two ranks with keys, its queue of moves for rank 0, and the cards of both.
fn sealed() -> (UdpLoopback, PeerMoves, Vec<Vec<u8>>) {
    let (moves, own, cards) =
        (PeerMoves::default(), RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let job = UdpLoopback::new(2, |config| {
        if config.rank == Rank(0) {
            config.moves = moves.clone();
            let scope = || KeyScope { session: config.session, epoch: 0, secret: None };
            let pair = |rank| RankKeyPair::new(Rank(rank), scope()).expect("a key pair");
            *own.borrow_mut() = vec![pair(0), pair(1)];
            *cards.borrow_mut() = own.borrow().iter().map(|own| own.card().to_vec()).collect();
        }
        let keys = own.borrow_mut().remove(0).agree(&cards.borrow()).expect("good cards");
        config.protection = Protection::Keys(keys);
    });
    (job, moves, cards.into_inner())
}

#[test]
fn announce__a_peer_with_keys_of_a_later_epoch_is_understood() {
    let (job, moves, cards) = sealed();
    let session = job.wires[0].listener.members.session;
    let scope = KeyScope { session, epoch: 1, secret: None };
    let own = RankKeyPair::new(Rank(1), scope).expect("a key pair");
    let card = own.card();
    let keys = own.agree_across(&[(&cards[0], 0), (&card, 1)]).expect("good cards");
    let (wire, to) = newcomer(&job, Protection::Keys(keys));
    check_move(job, &moves, wire, PeerMove { card: Some((1, card.to_vec())), ..to });
}

#[test]
fn announce__with_a_wrong_card_or_none_a_peer_stays_where_it_was() {
    let (mut job, moves, cards) = sealed();
    let there = job.wires[1].address();
    let to = PeerMove {
        rank: Rank(1),
        address: SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 9),
        card: None,
    };
    let cards = [None, Some((0, cards[1].clone())), Some((1, cards[1].clone())), Some((1, vec![]))];
    let count = cards.len() as u64;
    cards.into_iter().for_each(|card| moves.announce(PeerMove { card, ..to.clone() }));
    moves.announce(PeerMove { rank: Rank(2), ..to });
    job.wires[0].poll(64, &mut |arrival| panic!("{arrival:?}"));
    assert_eq!(job.wires[0].counters().errors, count + 1);
    assert_eq!(job.wires[0].listener.members.address(Rank(1), PathId(0)), Some(there));
    assert_eq!(job.send(0, 1, Class::Bulk, b"still", Span::EMPTY), PostOutcome::Done(0));
    assert_eq!(job.await_messages(1, 1).len(), 1);
}
