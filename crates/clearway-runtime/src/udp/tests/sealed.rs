//! A wire with keys over real sockets: the contract's suite, somebody in the middle, and a flood in
//! a peer's name.

use socket2::{Domain, Socket, Type};

use super::*;
use crate::udp::frame::SealedFrame;

/// The groups that the suite uses, or may come to use.
const GROUPS: u16 = 8;

impl UdpLoopback {
    /// Creates a loopback as [`Loopback::new`] does, with keys for all pairs and groups.
    fn sealed(ranks: u32, change: impl Fn(&mut UdpConfig)) -> Self {
        let keys = std::cell::RefCell::new(Vec::new());
        let mut job = Self::new(ranks, |config| {
            change(config);
            let mut keys = keys.borrow_mut();
            if config.rank == Rank(0) {
                *keys = agreed(ranks, config.session, 0);
            }
            config.protection = Protection::Keys(keys.remove(0));
        });
        let others: Vec<Rank> = (1..ranks).map(Rank).collect();
        for group in (0..GROUPS).map(GroupId) {
            let sealed = job.wires[0].renew_group(group, &others).expect("a key");
            for (wire, sealed) in job.wires[1..].iter_mut().zip(&sealed) {
                assert_eq!(wire.accept_group(Rank(0), sealed).expect("a key for it"), group);
            }
        }
        job
    }
}

#[test]
fn conformance__a_sealed_wire_keeps_the_contract() {
    check("sealed UDP", || UdpLoopback::sealed(conformance::RANKS, |_| {}));
}

#[test]
fn conformance__sealed_with_real_packets_and_the_smallest_buffers() {
    check("sealed UDP in real packets", || UdpLoopback::sealed(conformance::RANKS, narrow));
}

#[test]
fn overhead__is_a_datagram_without_head_and_body() {
    let (plain, sealed) = (UdpLoopback::new(1, |_| {}), UdpLoopback::sealed(1, |_| {}));
    let longest = |job: &UdpLoopback| {
        let capabilities = job.wires[0].capabilities();
        capabilities.message_max + job.wires[0].overhead().0 as usize
    };
    assert_eq!((longest(&plain), longest(&sealed)), (1_472, 1_472));
    assert!(plain.wires[0].overhead() < sealed.wires[0].overhead());
}

/// Returns a socket that sends from the address of `wire`, as an attacker who forges addresses can.
/// It joins the port's sockets as one that the kernel's steering never chooses.
fn in_the_name_of(wire: &UdpWire) -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
    socket.set_reuse_port(true).expect("shared");
    socket.bind(&wire.address().into()).expect("the port of the wire");
    socket.into()
}

/// Returns what rank 0 really sends, seen by somebody who sits where it takes rank 1 to be.
fn intercepted(job: &mut UdpLoopback, count: usize) -> Vec<Vec<u8>> {
    let middle = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    middle.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("a limit");
    let Ok(std::net::SocketAddr::V4(address)) = middle.local_addr() else {
        panic!("an IPv4 address")
    };
    let peer = std::mem::replace(&mut job.wires[0].listener.members.rails[0][1], address);
    let mut out: Out<()> = Out::with_limit(count);
    let sends: Vec<Operation> = (0..count)
        .map(|i| {
            let head = out.head(&[i as u8; 40]);
            let to = Destination::One(Rank(1));
            Operation::Send {
                to,
                path: PathId(0),
                class: Class::Bulk,
                head,
                body: Span::EMPTY,
                token: None,
            }
        })
        .collect();
    let mut answers = Vec::new();
    job.wires[0].post(&sends, out.heads(), &mut answers);
    assert_eq!(answers, vec![PostOutcome::Done(0); count]);
    job.wires[0].listener.members.rails[0][1] = peer;
    let mut bytes = [0; 2_048];
    (0..count)
        .map(|_| {
            let length = middle.recv(&mut bytes).expect("what was sent");
            bytes[..length].to_vec()
        })
        .collect()
}

#[test]
fn poll__each_segment_of_a_run_is_sealed_by_itself_and_taken_once_in_any_order() {
    const COUNT: usize = 40;
    let mut job = UdpLoopback::sealed(2, |_| {});
    let mut datagrams = intercepted(&mut job, COUNT);
    for (i, datagram) in datagrams.iter().enumerate() {
        assert!(
            !datagram[frame::SEALED_LENGTH..].windows(8).any(|bytes| bytes == [i as u8; 8]),
            "message {i} in clear"
        );
    }
    let attacker = in_the_name_of(&job.wires[0]);
    datagrams.reverse();
    for datagram in datagrams.iter().chain(&datagrams) {
        attacker.send_to(datagram, job.wires[1].address()).expect("sent");
    }
    let seen = job.await_messages(1, COUNT);
    let expected: Vec<Vec<u8>> = (0..COUNT).rev().map(|i| vec![i as u8; 40]).collect();
    assert_eq!(seen.into_iter().map(|(_, _, head)| head).collect::<Vec<_>>(), expected);
    drain(&mut job);
    let counters = job.wires[1].counters();
    assert_eq!((counters.received, counters.strangers), (COUNT as u64, COUNT as u64));
    assert_eq!(job.wires[1].replayed(), COUNT as u64);
}

/// Polls at rank 1 until nothing is left; nothing of it may be a message.
fn drain(job: &mut UdpLoopback) {
    let mut before = u64::MAX;
    while job.wires[1].counters().strangers != before {
        before = job.wires[1].counters().strangers;
        job.wires[1].wait(Some(clock::now() + TIMEOUT), &[]);
        job.wires[1].poll(64, &mut |arrival| panic!("{arrival:?} from a stranger"));
    }
}

#[test]
fn poll__a_flood_in_a_peers_name_is_counted_and_changes_nothing() {
    const FLOOD: u64 = 3_000;
    let mut job = UdpLoopback::sealed(2, |_| {});
    let session = job.wires[1].listener.members.session;
    let attacker = in_the_name_of(&job.wires[0]);
    let memory = |job: &UdpLoopback| format!("{:?}", job.wires[1].listener.inbox.capacities());
    let before = memory(&job);
    for i in 0..FLOOD {
        let class = Class::ALL[(i % 5) as usize];
        let frame = SealedFrame {
            from: Rank(0),
            head_length: (i % 80) as u8,
            class,
            rail: PathId(0),
            number: i << (i % 40),
        };
        let datagram = [&frame.write(session)[..], &[i as u8; 200]].concat();
        attacker.send_to(&datagram, job.wires[1].address()).expect("sent");
        if i % 50 == 0 {
            drain(&mut job);
        }
    }
    drain(&mut job);
    let counters = job.wires[1].counters();
    assert_eq!((counters.received, counters.strangers + counters.receive_overflow), (0, FLOOD));
    assert_eq!((memory(&job), job.wires[1].replayed()), (before, 0));
    assert_eq!(job.send(0, 1, Class::Bulk, b"friend", Span::EMPTY), PostOutcome::Done(0));
    assert_eq!(job.await_messages(1, 1), [(Rank(0), Some(Class::Bulk), b"friend".to_vec())]);
}

#[test]
fn group_keys__a_wire_without_keys_needs_none() {
    let mut job = UdpLoopback::new(1, |_| {});
    let sentence = "this wire has no keys, so its groups need none";
    assert_eq!(
        job.wires[0].renew_group(GroupId(0), &[]).expect_err("no keys").to_string(),
        sentence
    );
    assert_eq!(job.wires[0].accept_group(Rank(0), b"").expect_err("no keys").to_string(), sentence);
}
