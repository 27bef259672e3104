//! The wire over real loopback sockets: the contract's suite, strangers, overflow, classes apart,
//! closed ports.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_proto::wire::conformance::{self, Fabric, Need};
use clearway_proto::wire::{HeadRef, Out, Token};

use super::*;
use crate::keys::{JobKeys, KeyScope, RankKeyPair};
use crate::waiting::Waiting;
use crate::waiting::asleep::assert_wakes;
use clearway_proto::reliable::{ReliableWire, StreamConfig};

mod moved;
mod sealed;

/// Sessions of this test process, so that tests running side by side are strangers to each other.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// Longest wait for an arrival that is expected.
const TIMEOUT: Nanos = Nanos::from_millis(20);

struct UdpLoopback {
    wires: Vec<UdpWire>,
}

impl UdpLoopback {
    fn new(ranks: u32, change: impl Fn(&mut UdpConfig)) -> Self {
        Self::over_rails(1, ranks, change)
    }

    /// Creates ranks over several rails: rail `n` is the loopback network 127.0.n.0.
    fn over_rails(rails: u8, ranks: u32, change: impl Fn(&mut UdpConfig)) -> Self {
        let bind = |rail| {
            UdpPort::bind(SocketAddrV4::new(Ipv4Addr::new(127, 0, rail, 1), 0))
                .expect("a free port")
        };
        let ports: Vec<Vec<UdpPort>> = (0..ranks).map(|_| (0..rails).map(bind).collect()).collect();
        let addresses =
            |rail: u8| ports.iter().map(|ports| ports[usize::from(rail)].address()).collect();
        let addresses: Vec<Vec<SocketAddrV4>> = (0..rails).map(addresses).collect();
        let session =
            u64::from(std::process::id()) << 32 | SESSIONS.fetch_add(1, Ordering::Relaxed);
        let open = |(rank, ports): (u32, Vec<UdpPort>)| {
            let mut config = UdpConfig::new(Rank(rank), session, addresses[0].clone());
            config.rails.clone_from(&addresses);
            config.multicast = Some(Multicast {
                base: Ipv4Addr::new(239, 192, 7, 0),
                port: addresses[0][0].port(),
            });
            config.placement = Placement::OneMachine;
            config.waiting = Waiting::Sleep;
            change(&mut config);
            UdpWire::open(ports, config).expect("an open wire")
        };
        Self { wires: (0..ranks).zip(ports).map(open).collect() }
    }

    /// Polls at `rank` until `count` messages came; returns sender, class and head of each.
    fn await_messages(&mut self, rank: usize, count: usize) -> Vec<(Rank, Option<Class>, Vec<u8>)> {
        let wire = &mut self.wires[rank];
        let mut seen = Vec::new();
        let mut tries = 0;
        while seen.len() < count && tries < 100 {
            wire.wait(Some(clock::now() + TIMEOUT), &[]);
            wire.poll(64, &mut |arrival| {
                if let Arrival::Datagram(d) = arrival {
                    seen.push((d.from, d.class, d.head.to_vec()));
                }
            });
            tries += 1;
        }
        seen
    }

    fn send(&mut self, from: usize, to: u32, class: Class, head: &[u8], body: Span) -> PostOutcome {
        self.send_by(PathId(0), from, to, class, head, body)
    }

    fn send_by(
        &mut self,
        path: PathId,
        from: usize,
        to: u32,
        class: Class,
        head: &[u8],
        body: Span,
    ) -> PostOutcome {
        let mut out: Out<()> = Out::with_limit(1);
        let head = out.head(head);
        let to = Destination::One(Rank(to));
        let send = Operation::Send { to, path, class, head, body, token: Some(Token(0)) };
        let mut answers = Vec::new();
        self.wires[from].post(&[send], out.heads(), &mut answers);
        answers[0]
    }
}

impl Fabric for UdpLoopback {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        &mut self.wires[rank.index()]
    }

    /// Waits until any wire has something to read, at most 2 ms.
    fn pass_time(&mut self) {
        let (first, others) = self.wires.split_first_mut().expect("ranks");
        let others: Vec<BorrowedFd<'_>> =
            others.iter().flat_map(|wire| wire.listener.sockets()).collect();
        first.wait(Some(clock::now() + Nanos::from_millis(2)), &others);
    }
}

/// Returns the keys of all ranks of `session`.
pub(super) fn agreed(ranks: u32, session: u64, epoch: u32) -> Vec<JobKeys> {
    let identity = |rank| {
        RankKeyPair::new(Rank(rank), KeyScope { session, epoch, secret: None }).expect("a key pair")
    };
    let identities: Vec<RankKeyPair> = (0..ranks).map(identity).collect();
    let cards: Vec<_> = identities.iter().map(RankKeyPair::card).collect();
    identities.into_iter().map(|identity| identity.agree(&cards).expect("good cards")).collect()
}

/// Checks the contract of a wire that has no one-sided operations and no files.
fn check(wire: &str, make: impl FnMut() -> UdpLoopback) {
    use OperationKind::{Atomic, File, Read, Write};
    let lacks = [Write, Read, Atomic, File].map(Need::Operation);
    eprint!("{}", conformance::check(wire, &lacks, make).expect("every promise is kept"));
}

/// Real packets and the smallest buffers.
fn narrow(config: &mut UdpConfig) {
    config.segmentation = Segmentation::RealPackets;
    config.buffers = SocketBuffers { send: Bytes(1), receive: Bytes(64 << 10) };
}

#[test]
fn conformance__the_udp_wire_keeps_the_contract() {
    check("UDP", || UdpLoopback::new(conformance::RANKS, |_| {}));
}

#[test]
fn conformance__over_two_rails() {
    check("UDP over two rails", || UdpLoopback::over_rails(2, conformance::RANKS, |_| {}));
}

#[test]
fn rails__a_message_travels_on_the_one_it_is_bound_to_and_strangers_are_reported_on_each() {
    let mut job = UdpLoopback::over_rails(2, 2, |_| {});
    for (rail, class) in [0, 1, 1, 0].into_iter().zip(Class::ALL) {
        let path = PathId(rail);
        assert_eq!(job.send_by(path, 0, 1, class, &[rail], Span::EMPTY), PostOutcome::Done(0));
        let mut seen = Vec::new();
        for _ in 0..100 {
            job.wires[1].wait(Some(clock::now() + TIMEOUT), &[]);
            job.wires[1].poll(64, &mut |arrival| {
                if let Arrival::Datagram(d) = arrival {
                    seen.push((d.path, d.class, d.head.to_vec()));
                }
            });
            if !seen.is_empty() {
                break;
            }
        }
        assert_eq!(seen, [(path, Some(class), vec![rail])]);
    }
    assert_eq!(
        job.send_by(PathId(2), 0, 1, Class::Bulk, b"", Span::EMPTY),
        PostOutcome::Refused(RefusalReason::Path)
    );
    // Rank 0's frame from an address that is its own on the other rail only.
    let [first, second] = [0, 1].map(|rail| job.wires[1].listener.members.rails[rail][1]);
    let session = job.wires[1].listener.members.session;
    let stranger = UdpSocket::bind((Ipv4Addr::new(127, 0, 1, 1), 0)).expect("a free port");
    for to in [first, second] {
        stranger.send_to(&frame::write(Rank(0), session, 0), to).expect("sent");
    }
    assert_eq!(job.send(0, 1, Class::Bulk, b"friend", Span::EMPTY), PostOutcome::Done(0));
    assert_eq!(job.await_messages(1, 1).len(), 1);
    assert_eq!(job.wires[1].counters().strangers, 2);
}

#[test]
fn conformance__with_real_packets_and_the_smallest_buffers() {
    check("UDP in real packets", || UdpLoopback::new(conformance::RANKS, narrow));
}

#[test]
fn poll__strangers_are_counted_and_never_given() {
    let mut job = UdpLoopback::new(2, |_| {});
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let session = job.wires[1].listener.members.session;
    let messages: [&[u8]; 4] = [b"", b"noise", &frame::write(Rank(0), session, 0), &[0xff; 2_000]];
    for message in messages {
        stranger.send_to(message, job.wires[1].address()).expect("sent");
    }
    assert_eq!(job.send(0, 1, Class::BestEffort, b"friend", Span::EMPTY), PostOutcome::Done(0));
    let seen = job.await_messages(1, 1);
    assert_eq!(seen, [(Rank(0), Some(Class::BestEffort), b"friend".to_vec())]);
    let counters = job.wires[1].counters();
    assert_eq!((counters.strangers, counters.received), (4, 1));
}

#[test]
fn counters__every_message_that_overflowed_is_counted() {
    const BURST: u64 = 400;
    let mut job = UdpLoopback::new(2, |config| {
        config.segmentation = Segmentation::RealPackets;
        config.buffers.receive = Bytes(16 << 10);
    });
    for _ in 0..BURST {
        assert_eq!(job.send(0, 1, Class::Bulk, &[0; 64], Span::EMPTY), PostOutcome::Done(0));
    }
    // Loopback delivers within the send: what is not there now was dropped.
    let mut received = 0;
    loop {
        let count = job.wires[1].poll(64, &mut |_| {}) as u64;
        received += count;
        if count == 0 {
            break;
        }
    }
    let overflow = job.wires[1].overflow(Class::Bulk);
    assert!(
        received < BURST,
        "the burst must overflow {:?}",
        job.wires[1].granted_buffers(Class::Bulk)
    );
    assert_eq!(received + overflow, BURST);
    assert_eq!(job.wires[1].counters().receive_overflow, overflow);
}

#[test]
fn classes__a_flood_of_one_class_overflows_only_its_own_buffer() {
    let mut job = UdpLoopback::new(2, |config| {
        config.segmentation = Segmentation::RealPackets;
        config.buffers.receive = Bytes(16 << 10);
    });
    for _ in 0..400 {
        job.send(0, 1, Class::Bulk, &[0; 64], Span::EMPTY);
    }
    job.send(0, 1, Class::Control, b"credit", Span::EMPTY);
    let seen = job.await_messages(1, 1);
    assert_eq!(
        seen[0],
        (Rank(0), Some(Class::Control), b"credit".to_vec()),
        "the urgent class is read first"
    );
    assert!(job.wires[1].overflow(Class::Bulk) > 0);
    assert_eq!(job.wires[1].overflow(Class::Control), 0);
}

#[test]
fn post__a_closed_port_of_a_peer_is_counted_and_fails_no_send() {
    let mut job = UdpLoopback::new(2, |_| {});
    job.wires.pop();
    for _ in 0..20 {
        assert_eq!(job.send(0, 1, Class::Control, b"anyone?", Span::EMPTY), PostOutcome::Done(0));
        job.await_messages(0, 0);
    }
    job.wires[0].wait(Some(clock::now() + TIMEOUT), &[]);
    job.wires[0].poll(64, &mut |arrival| panic!("{arrival:?} from nobody"));
    assert!(job.wires[0].counters().errors > 0);
    let woken = job.wires[0].wait(Some(clock::now() + Nanos::from_millis(1)), &[]);
    assert!(!woken.wire, "drained reports must not keep the wire awake");
}

#[test]
fn post__a_copy_over_a_planned_body_does_not_change_what_was_sent() {
    let mut job = UdpLoopback::new(2, |_| {});
    let region = job.wires[0].register(Bytes(8)).expect("room");
    job.wires[0].region_mut(region).expect("registered").copy_from_slice(b"old.new.");
    let (old, new) = (Span { region, offset: 0, length: 4 }, Span { region, offset: 4, length: 4 });
    let mut out: Out<()> = Out::with_limit(4);
    let head = out.head(b"");
    let to = Destination::One(Rank(1));
    let send =
        Operation::Send { to, path: PathId(0), class: Class::Bulk, head, body: old, token: None };
    let mut answers = Vec::new();
    job.wires[0].post(
        &[send, Operation::Copy { from: new, into: old }, send],
        out.heads(),
        &mut answers,
    );
    assert_eq!(answers, [PostOutcome::Done(0); 3]);
    let mut bodies = Vec::new();
    while bodies.len() < 2 {
        job.wires[1].wait(Some(clock::now() + TIMEOUT), &[]);
        let mut spans = Vec::new();
        job.wires[1].poll(64, &mut |arrival| {
            if let Arrival::Datagram(d) = arrival {
                spans.push(d.body);
            }
        });
        let arena = job.wires[1].region(RegionId::RECEIVE).expect("an arena");
        bodies.extend(
            spans.iter().map(|span| arena[span.range_in(arena.len()).expect("inside")].to_vec()),
        );
    }
    assert_eq!(bodies, [b"old.".to_vec(), b"new.".to_vec()]);
}

#[test]
fn poll__bodies_of_a_joined_run_are_each_in_place() {
    const COUNT: usize = 200;
    let mut job = UdpLoopback::new(2, |_| {});
    let region = job.wires[0].register(Bytes(COUNT as u64 * 1_000)).expect("room");
    for (i, byte) in job.wires[0].region_mut(region).expect("registered").iter_mut().enumerate() {
        *byte = (i / 1_000) as u8;
    }
    let mut out: Out<()> = Out::with_limit(COUNT);
    let to = Destination::One(Rank(1));
    let sends: Vec<Operation> = (0..COUNT as u64)
        .map(|i| {
            let head: HeadRef = out.head(&[i as u8]);
            let body = Span { region, offset: i * 1_000, length: 1_000 };
            Operation::Send {
                to,
                path: PathId(0),
                class: Class::BestEffort,
                head,
                body,
                token: None,
            }
        })
        .collect();
    let mut answers = Vec::new();
    job.wires[0].post(&sends, out.heads(), &mut answers);
    let accepted = answers.iter().filter(|answer| **answer == PostOutcome::Done(0)).count();
    let mut next = 0;
    while next < accepted {
        let woken = job.wires[1].wait(Some(clock::now() + TIMEOUT), &[]);
        let mut seen = Vec::new();
        let count = job.wires[1].poll(64, &mut |arrival| {
            if let Arrival::Datagram(d) = arrival {
                seen.push((d.head[0], d.body));
            }
        });
        assert!(
            count <= 64 && (woken.wire || count > 0 || next > 0),
            "nothing came after {next} of {accepted}"
        );
        let arena = job.wires[1].region(RegionId::RECEIVE).expect("an arena");
        for (head, body) in seen {
            assert_eq!(usize::from(head), next);
            assert_eq!(arena[body.range_in(arena.len()).expect("inside")], [next as u8; 1_000]);
            next += 1;
        }
    }
    assert!(accepted >= 64, "one class's buffer takes more than one run: {accepted}");
}

#[test]
fn send__a_rank_can_write_to_itself() {
    let mut job = UdpLoopback::new(1, |_| {});
    assert_eq!(job.send(0, 0, Class::LowLatency, b"to myself", Span::EMPTY), PostOutcome::Done(0));
    assert_eq!(job.await_messages(0, 1).len(), 1);
    assert_eq!(job.wires[0].counters().sent, 1);
}

#[test]
fn rest__a_thread_sleeps_without_the_wire_and_wakes_for_each_message() {
    let mut job = UdpLoopback::new(2, |_| {});
    let receiver = job.wires.pop().expect("two");
    assert_wakes(&mut job.wires[0], receiver);
}

#[test]
fn rest__reliable_messages_wake_as_well() {
    let streams = StreamConfig::new(2);
    let wires = UdpLoopback::new(2, |_| {}).wires.into_iter();
    let mut wires: Vec<_> = wires
        .map(|wire| ReliableWire::new(wire, 2, &streams, 0).expect("all that is needed"))
        .collect();
    let receiver = wires.pop().expect("two");
    assert_wakes(&mut wires[0], receiver);
}
