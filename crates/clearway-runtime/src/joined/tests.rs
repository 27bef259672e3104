//! Shared memory together with loopback sockets: the contract's suite in every arrangement of
//! hosts, bodies that change wires, sleep.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clearway_proto::base::{Bytes, Class, Rank};
use clearway_proto::wire::conformance::{self, Fabric, Need};
use clearway_proto::wire::{Delivery, Granted, OperationKind, Out, StampSource, Token};

use super::*;
use crate::clock;
use crate::shm::ShmConfig;
use crate::udp::{Multicast, Placement, UdpConfig, UdpPort, UdpWire};
use crate::waiting::asleep::assert_wakes;

/// Sessions of this test process, so that tests running side by side are strangers to each other.
static SESSIONS: AtomicU64 = AtomicU64::new(1 << 20);

/// Longest wait for what is expected; nothing is asserted about how long it took.
const TIMEOUT: Nanos = Nanos::from_millis(20_000);

/// Ranks on hosts that do not share memory.
struct JoinedHosts {
    wires: Vec<JoinedWire<UdpWire>>,
}

impl JoinedHosts {
    /// Creates the ranks; `hosts` says for each on which host it is.
    fn new(hosts: &[u32]) -> Self {
        let session =
            u64::from(std::process::id()) << 32 | SESSIONS.fetch_add(1, Ordering::Relaxed);
        let bind = |_: &u32| {
            UdpPort::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port")
        };
        let ports: Vec<UdpPort> = hosts.iter().map(bind).collect();
        let peers: Vec<SocketAddrV4> = ports.iter().map(UdpPort::address).collect();
        let open = |rank: Rank, port: UdpPort| {
            let same_host = |other: &Rank| hosts[other.index()] == hosts[rank.index()];
            let local = (0..hosts.len() as u32).map(Rank).filter(same_host).collect();
            let near = ShmWire::open(ShmConfig::new(rank, session, local)).expect("shared memory");
            let mut config = UdpConfig::new(rank, session, peers.clone());
            config.multicast =
                Some(Multicast { base: Ipv4Addr::new(239, 192, 8, 0), port: peers[0].port() });
            config.placement = Placement::OneMachine;
            let far = UdpWire::open([port], config).expect("an open wire");
            JoinedWire::new(near, far, Waiting::Sleep).expect("two ends of one rank")
        };
        let open = &open;
        let wires = thread::scope(|scope| {
            let opening: Vec<_> = (0..)
                .map(Rank)
                .zip(ports)
                .map(|(rank, port)| scope.spawn(move || open(rank, port)))
                .collect();
            opening.into_iter().map(|opening| opening.join().expect("opened")).collect()
        });
        Self { wires }
    }

    fn post(&mut self, from: usize, operation: Operation, heads: &[u8]) -> PostOutcome {
        let mut answers = Vec::new();
        self.wires[from].post(&[operation], heads, &mut answers);
        answers[0]
    }

    fn send(&mut self, from: usize, to: u32, head: &[u8], body: Span) -> PostOutcome {
        let (send, heads) = send(to, head, body);
        self.post(from, send, &heads)
    }

    /// Waits for one message at `rank`: its sender, head, and where its body lies.
    fn await_message(&mut self, rank: usize) -> (Rank, Vec<u8>, Span) {
        let wire = &mut self.wires[rank];
        let until = clock::now() + TIMEOUT;
        let mut seen = None;
        while seen.is_none() && clock::now() < until {
            wire.wait(Some(until), &[]);
            wire.poll(1, &mut |arrival| {
                if let Arrival::Datagram(d) = arrival {
                    seen = Some((d.from, d.head.to_vec(), d.body));
                }
            });
        }
        seen.expect("a message")
    }

    fn bytes(&self, rank: usize, span: Span) -> &[u8] {
        bytes_of(self.wires[rank].region(span.region), span).expect("a span of this wire")
    }
}

fn send(to: u32, head: &[u8], body: Span) -> (Operation, Vec<u8>) {
    let mut out: Out<()> = Out::with_limit(1);
    let head = out.head(head);
    let to = Destination::One(Rank(to));
    (
        Operation::Send { to, path: PathId(0), class: Class::Bulk, head, body, token: None },
        out.heads().to_vec(),
    )
}

impl Fabric for JoinedHosts {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        &mut self.wires[rank.index()]
    }

    /// Waits at each wire until it has something to read, at most 1 ms.
    fn pass_time(&mut self) {
        for wire in &mut self.wires {
            wire.wait(Some(clock::now() + Nanos::from_millis(1)), &[]);
        }
    }
}

#[test]
fn conformance__in_every_arrangement_of_hosts() {
    for hosts in [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 1, 2]] {
        let wire = format!("shared memory and UDP, hosts {hosts:?}");
        let lacks =
            [OperationKind::Write, OperationKind::Read, OperationKind::Atomic, OperationKind::File];
        let outcomes =
            conformance::check(&wire, &lacks.map(Need::Operation), || JoinedHosts::new(&hosts));
        eprint!("{}", outcomes.expect("every promise is kept"));
    }
}

#[test]
fn post__a_batch_for_both_is_answered_in_its_order_and_messages_of_one_host_take_no_packet() {
    let mut hosts = JoinedHosts::new(&[0, 0, 1]);
    let mut out: Out<()> = Out::with_limit(8);
    let mut operations = Vec::new();
    for to in [1, 2, 77, 0, 1, 2] {
        let (head, to) = (out.head(&[to as u8]), Destination::One(Rank(to)));
        let (path, class, body) = (PathId(0), Class::Bulk, Span::EMPTY);
        operations.push(Operation::Send { to, path, class, head, body, token: Some(Token(0)) });
    }
    let mut answers = vec![PostOutcome::NoRoom];
    hosts.wires[0].post(&operations, out.heads(), &mut answers);
    let done = PostOutcome::Done(0);
    assert_eq!(
        answers,
        [
            PostOutcome::NoRoom,
            done,
            done,
            PostOutcome::Refused(RefusalReason::Rank),
            done,
            done,
            done
        ]
    );
    assert_eq!(
        [0, 1, 1, 2, 2].map(|rank: usize| hosts.await_message(rank).1),
        [[0], [1], [1], [2], [2]].map(Vec::from)
    );
    assert_eq!((hosts.wires[0].far().counters().sent, hosts.wires[0].counters().sent), (2, 5));
}

#[test]
fn post__an_arrived_body_can_be_kept_and_passed_on_over_either_wire() {
    let mut hosts = JoinedHosts::new(&[0, 0, 1]);
    let region = hosts.wires[0].register(Bytes(8)).expect("room");
    hosts.wires[0].region_mut(region).expect("registered").copy_from_slice(b"the body");
    let kept: Vec<RegionId> =
        (1..3).map(|rank: usize| hosts.wires[rank].register(Bytes(8)).expect("room")).collect();
    assert_eq!(kept, [region; 2], "regions have one number everywhere");
    let mut body = Span { region, offset: 0, length: 8 };
    // Around: over shared memory, over the network, over the network back to the first.
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        assert_eq!(hosts.send(from, to as u32, b"head", body), PostOutcome::Done(0));
        let (sender, head, arrived) = hosts.await_message(to);
        assert_eq!((sender.index(), &head[..]), (from, &b"head"[..]));
        assert_eq!(hosts.bytes(to, arrived), b"the body", "{from} to {to}");
        let into = Span { region, offset: 0, length: 8 };
        assert_eq!(
            hosts.post(to, Operation::Copy { from: arrived, into }, &[]),
            PostOutcome::Done(0)
        );
        assert_eq!(hosts.bytes(to, into), b"the body", "kept at {to}");
        body = arrived;
    }
    let (_, _, last) = {
        // From the network over shared memory.
        assert_eq!(hosts.send(0, 1, b"", body), PostOutcome::Done(0));
        hosts.await_message(1)
    };
    assert_eq!(hosts.bytes(1, last), b"the body");
    // And what arrived over shared memory goes back over it.
    assert_eq!(hosts.send(1, 0, b"", last), PostOutcome::Done(0));
    let (_, _, back) = hosts.await_message(0);
    assert_eq!(hosts.bytes(0, back), b"the body");
}

#[test]
fn post__arrived_bytes_go_nowhere_that_is_no_place_for_them() {
    let mut hosts = JoinedHosts::new(&[0, 0, 1]);
    let region = hosts.wires[0].register(Bytes(8)).expect("room");
    assert_eq!(hosts.send(0, 1, b"", Span { region, offset: 0, length: 8 }), PostOutcome::Done(0));
    let (_, _, body) = hosts.await_message(1);
    let kept = hosts.wires[1].register(Bytes(8)).expect("room");
    let passage = hosts.wires[1].passage;
    for into in [
        Span { region: kept, offset: 1, length: 8 },
        Span { region: kept, offset: 0, length: 7 },
        Span { region: RegionId(99), offset: 0, length: 8 },
        Span { region: RegionId::RECEIVE, offset: 0, length: 8 },
        Span { region: passage, offset: 0, length: 8 },
    ] {
        let answer = hosts.post(1, Operation::Copy { from: body, into }, &[]);
        assert_eq!(answer, PostOutcome::Refused(RefusalReason::Memory), "{into:?}");
    }
    let outside = Span { offset: 4, ..body };
    for to in [0, 2] {
        assert_eq!(
            hosts.send(1, to, b"", outside),
            PostOutcome::Refused(RefusalReason::Memory),
            "to {to}"
        );
    }
}

#[test]
fn wait__who_sleeps_is_woken_over_both_wires() {
    const TURNS: u32 = 2_000;
    let mut hosts = JoinedHosts::new(&[0, 0, 1]);
    let mut wires = hosts.wires.drain(..);
    let [mut first, mut near, mut far] = [(); 3].map(|()| wires.next().expect("three wires"));
    let echo = |wire: &mut JoinedWire<UdpWire>| {
        for _ in 0..TURNS {
            let mut came = false;
            while !came {
                wire.wait(Some(clock::now() + TIMEOUT), &[]);
                wire.poll(1, &mut |arrival| came |= matches!(arrival, Arrival::Datagram(_)));
            }
            let (send, heads) = send(0, b"", Span::EMPTY);
            wire.post(&[send], &heads, &mut Vec::new());
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| echo(&mut near));
        scope.spawn(|| echo(&mut far));
        let until = clock::now() + TIMEOUT;
        for turn in 0..TURNS {
            for to in [1, 2] {
                let (send, heads) = send(to, b"", Span::EMPTY);
                first.post(&[send], &heads, &mut Vec::new());
            }
            let mut came = 0;
            while came < 2 {
                first.wait(Some(until), &[]);
                assert!(clock::now() < until, "a wake-up was lost in turn {turn}");
                first.poll(64, &mut |arrival| {
                    came += u32::from(matches!(arrival, Arrival::Datagram(_)))
                });
            }
        }
    });
}

#[test]
fn weaker__is_what_both_can_do() {
    let hosts = JoinedHosts::new(&[0, 1]);
    let [near, far] = [hosts.wires[0].near.capabilities(), hosts.wires[0].far.capabilities()];
    let both = hosts.wires[0].capabilities();
    assert_eq!(both.delivery, Delivery::Lossy);
    assert_eq!(
        (both.body_max, both.stamp),
        (near.body_max.min(far.body_max), StampSource::Reading)
    );
    assert_eq!(both.operations, far.operations);
    assert!(both.shared_clock.is_some() && both.classes == [Granted::Separate; Class::ALL.len()]);
    let none = Capabilities {
        shared_clock: None,
        classes: [Granted::Ignored; Class::ALL.len()],
        ..far.clone()
    };
    let both = weaker("joined", near, &none);
    assert!(both.shared_clock.is_none() && both.classes == [Granted::Ignored; Class::ALL.len()]);
}

#[test]
fn new__ends_of_two_ranks_are_no_wire() {
    let mut hosts = JoinedHosts::new(&[0, 1]);
    let [second, first] = [(); 2].map(|()| hosts.wires.pop().expect("two wires"));
    let error = JoinedWire::new(first.near, second.far, Waiting::Sleep).expect_err("two ranks");
    assert!(matches!(error, RuntimeError::OtherRank { near: Rank(0), far: Rank(1) }), "{error}");
}

#[test]
fn rest__a_thread_sleeps_without_the_wire_and_wakes_for_messages_of_either() {
    for hosts in [[0, 0], [0, 1]] {
        let mut hosts = JoinedHosts::new(&hosts);
        let receiver = hosts.wires.pop().expect("two");
        assert_wakes(&mut hosts.wires[0], receiver);
    }
}
