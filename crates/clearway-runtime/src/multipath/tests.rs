//! Two wires of loopback sockets, one of which can be cut: the contract's suite, memory of either,
//! and reliable messages that change wires.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_proto::base::{Bytes, Class, Rank};
use clearway_proto::reliable::{ReliableWire, StreamConfig};
use clearway_proto::wire::conformance::{self, Fabric, Need};
use clearway_proto::wire::{Out, RemoteSpan, Status, Token, bytes_of, forward_wire};

use super::*;
use crate::clock;
use crate::udp::{Placement, UdpConfig, UdpPort};
use crate::waiting::asleep::assert_wakes;

/// Sessions of this test process, so that tests running side by side are strangers to each other.
static SESSIONS: AtomicU64 = AtomicU64::new(1 << 21);

/// Longest wait for what is expected; nothing is asserted about how long it took.
const TIMEOUT: Nanos = Nanos::from_millis(20_000);

/// A wire that accepts everything and carries nothing while it is cut.
#[derive(Debug)]
struct CutWire {
    wire: UdpWire,
    is_cut: Rc<Cell<bool>>,
    /// Messages that it carried.
    carried: Rc<Cell<u64>>,
}

impl Wire for CutWire {
    forward_wire!(
        wire: rank, capabilities, now, memory, groups, poll, deadline, counters
    );

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        for operation in operations {
            let is_send = matches!(operation, Operation::Send { .. });
            if is_send && self.is_cut.get() {
                answers.push(PostOutcome::Done(0));
            } else {
                self.wire.post(&[*operation], heads, answers);
                self.carried.set(self.carried.get() + u64::from(is_send));
            }
        }
    }
}

impl Wake for CutWire {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        self.wire.wake_descriptors()
    }

    fn rest(&mut self) -> Rest {
        self.wire.rest()
    }
}

impl WaitSource for CutWire {
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        self.wire.poll_ready(timeout, extra)
    }
}

/// Ranks with two wires each, and what cuts the first.
struct MultipathJob {
    ends: Vec<MultipathWire<CutWire>>,
    is_cut: Rc<Cell<bool>>,
    carried: Rc<Cell<u64>>,
}

impl MultipathJob {
    fn new(ranks: u32) -> Self {
        let (is_cut, carried) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let session =
            u64::from(std::process::id()) << 32 | SESSIONS.fetch_add(2, Ordering::Relaxed);
        let [first, second] = [session, session + 1].map(|session| udp(ranks, session));
        let ends = first.into_iter().zip(second).map(|(wire, second)| {
            let first = CutWire { wire, is_cut: Rc::clone(&is_cut), carried: Rc::clone(&carried) };
            MultipathWire::new(first, second, Waiting::Sleep).expect("two ends of one rank")
        });
        Self { ends: ends.collect(), is_cut, carried }
    }

    fn post(&mut self, from: usize, operation: Operation, heads: &[u8]) -> PostOutcome {
        let mut answers = Vec::new();
        self.ends[from].post(&[operation], heads, &mut answers);
        answers[0]
    }

    /// Waits for one message at `rank`: on which path it came, and where its body lies.
    fn await_message(&mut self, rank: usize) -> (PathId, Span) {
        let end = &mut self.ends[rank];
        let until = clock::now() + TIMEOUT;
        let mut seen = None;
        while seen.is_none() && clock::now() < until {
            end.wait(Some(until), &[]);
            end.poll(1, &mut |arrival| {
                if let Arrival::Datagram(datagram) = arrival {
                    seen = Some((datagram.path, datagram.body));
                }
            });
        }
        seen.expect("a message")
    }

    fn bytes(&self, rank: usize, span: Span) -> &[u8] {
        bytes_of(self.ends[rank].region(span.region), span).expect("a span of this wire")
    }
}

fn udp(ranks: u32, session: u64) -> Vec<UdpWire> {
    let bind = |_| UdpPort::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let ports: Vec<UdpPort> = (0..ranks).map(bind).collect();
    let peers: Vec<SocketAddrV4> = ports.iter().map(UdpPort::address).collect();
    let open = |(rank, port): (Rank, UdpPort)| {
        let mut config = UdpConfig::new(rank, session, peers.clone());
        config.placement = Placement::OneMachine;
        config.waiting = Waiting::Sleep;
        UdpWire::open([port], config).expect("an open wire")
    };
    (0..).map(Rank).zip(ports).map(open).collect()
}

fn send(to: u32, path: u8, body: Span) -> (Operation, Vec<u8>) {
    let mut out: Out<()> = Out::with_limit(1);
    let head = out.head(b"head");
    let (to, path) = (Destination::One(Rank(to)), PathId(path));
    (
        Operation::Send { to, path, class: Class::Bulk, head, body, token: None },
        out.heads().to_vec(),
    )
}

impl Fabric for MultipathJob {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        &mut self.ends[rank.index()]
    }

    fn pass_time(&mut self) {
        for end in &mut self.ends {
            end.wait(Some(clock::now() + Nanos::from_millis(1)), &[]);
        }
    }
}

#[test]
fn conformance__of_two_wires_as_one() {
    use OperationKind::{Atomic, File, Multicast, Read, Write};
    let lacks = [Write, Read, Atomic, Multicast, File].map(Need::Operation);
    let outcomes = conformance::check("multipath of two UDP", &lacks, || {
        MultipathJob::new(conformance::RANKS)
    });
    eprint!("{}", outcomes.expect("every promise is kept"));
}

#[test]
fn post__a_body_leaves_from_either_memory_over_either_wire() {
    let mut job = MultipathJob::new(2);
    let regions = [0, 1].map(|rank: usize| job.ends[rank].register(Bytes(8)).expect("room"));
    assert_eq!(regions[0], regions[1], "regions have one number everywhere");
    job.ends[0].region_mut(regions[0]).expect("registered").copy_from_slice(b"the body");
    let own = Span { region: regions[0], offset: 0, length: 8 };
    for arrives_on in [0, 1] {
        let (operation, heads) = send(1, arrives_on, own);
        assert_eq!(job.post(0, operation, &heads), PostOutcome::Done(0));
        let (path, arrived) = job.await_message(1);
        assert_eq!((path, job.bytes(1, arrived)), (PathId(arrives_on), &b"the body"[..]));
        let digest = job.ends[1].digest(arrived).expect("bytes that are here");
        assert_eq!(
            job.post(1, Operation::Digest { of: arrived, token: Token(0) }, &[]),
            PostOutcome::Done(digest.into())
        );
        for returns_on in [0, 1] {
            let (operation, heads) = send(0, returns_on, arrived);
            assert_eq!(job.post(1, operation, &heads), PostOutcome::Done(0));
            let (path, back) = job.await_message(0);
            assert_eq!((path, job.bytes(0, back)), (PathId(returns_on), &b"the body"[..]));
        }
        assert_eq!(
            job.post(1, Operation::Copy { from: arrived, into: own }, &[]),
            PostOutcome::Done(0)
        );
        assert_eq!(job.bytes(1, own), b"the body");
        job.ends[1].region_mut(regions[1]).expect("registered").fill(0);
    }
    let (operation, heads) = send(1, 2, own);
    assert_eq!(job.post(0, operation, &heads), PostOutcome::Refused(RefusalReason::Path));
    let (operation, heads) = send(1, 1, Span { offset: 1, ..own });
    assert_eq!(job.post(0, operation, &heads), PostOutcome::Refused(RefusalReason::Memory));
}

/// What is copied into memory leaves as it then is, although the copy is the first wire's and the
/// message the second's.
#[test]
fn post__operations_on_memory_apply_in_their_order() {
    let mut job = MultipathJob::new(2);
    let region = job.ends[0].register(Bytes(4)).expect("room");
    job.ends[0].region_mut(region).expect("registered").copy_from_slice(b"abcd");
    let [low, high] = [0, 2].map(|offset| Span { region, offset, length: 2 });
    let [(before, heads), (after, _)] = [send(1, 1, low), send(1, 1, low)];
    let mut answers = Vec::new();
    job.ends[0].post(
        &[before, Operation::Copy { from: high, into: low }, after],
        &heads,
        &mut answers,
    );
    assert_eq!(answers, [PostOutcome::Done(0); 3]);
    for expected in [b"ab", b"cd"] {
        let (_, body) = job.await_message(1);
        assert_eq!(job.bytes(1, body), expected);
    }
}

/// More than passages hold goes out in one call.
#[test]
fn post__a_batch_longer_than_the_passage_leaves_whole() {
    let mut job = MultipathJob::new(2);
    let length = job.ends[0].capabilities().body_max_with_head(4) as u32;
    let count = (PASSAGE / u64::from(length)) as u8 + 2;
    let region = job.ends[0].register(Bytes(u64::from(length) * u64::from(count))).expect("room");
    let memory = job.ends[0].region_mut(region).expect("registered");
    memory.chunks_mut(length as usize).zip(0..).for_each(|(piece, number)| piece.fill(number));
    let offset = |number| u64::from(number) * u64::from(length);
    let sends: Vec<_> = (0..count)
        .map(|number| send(1, 1, Span { region, offset: offset(number), length }))
        .collect();
    let operations: Vec<Operation> = sends.iter().map(|(operation, _)| *operation).collect();
    let mut answers = Vec::new();
    job.ends[0].post(&operations, &sends[0].1, &mut answers);
    assert_eq!(answers, vec![PostOutcome::Done(0); usize::from(count)]);
    for number in 0..count {
        let (_, body) = job.await_message(1);
        assert!(job.bytes(1, body).iter().all(|byte| *byte == number), "message {number}");
    }
}

/// Writes one after the other, while the first wire is cut and mended again: each lands once, in
/// order, and in the end both carry.
#[test]
fn reliable__writes_go_on_over_the_wire_that_is_left_and_back() {
    const WRITES: u64 = 600;
    const LENGTH: u32 = 20_000;
    let MultipathJob { ends, is_cut, carried } = MultipathJob::new(2);
    let mut ends = ends.into_iter().map(|end| {
        ReliableWire::new(end, 2, &StreamConfig::new(2), 0).expect("all that is needed")
    });
    let [mut source, mut target] = [(); 2].map(|()| ends.next().expect("two ends"));
    let regions =
        [&mut source, &mut target].map(|end| end.register(Bytes(LENGTH.into())).expect("memory"));
    let from = Span { region: regions[0], offset: 0, length: LENGTH };
    let into = RemoteSpan { region: regions[1], offset: 0 };
    let (mut posted, mut done, mut landed) = (0, 0, Vec::new());
    let (mut while_cut, mut since) = (0, 0);
    let until = clock::now() + TIMEOUT;
    // On until the wire that was mended has carried something again: it is tried every 100 ms.
    loop {
        let is_enough = posted >= WRITES && carried.get() >= since + 100;
        if is_enough && done == posted {
            break;
        }
        assert!(
            clock::now() < until,
            "{done} of {posted} are done; carried {} of {since}",
            carried.get()
        );
        while !is_enough && posted < done + 8 {
            let (path, class, token) = (PathId(0), Class::Bulk, Some(Token(posted)));
            let write = Operation::Write {
                to: Rank(1),
                path,
                class,
                from,
                into,
                immediate: Some(posted),
                token,
            };
            let mut answers = Vec::new();
            source.post(&[write], &[], &mut answers);
            assert_eq!(answers, [PostOutcome::Posted]);
            posted += 1;
        }
        for end in [&mut source, &mut target] {
            end.wait(Some(clock::now() + Nanos::from_micros(100)), &[]);
            end.poll(64, &mut |arrival| match arrival {
                Arrival::Landed { immediate, .. } => landed.push(immediate),
                Arrival::Done { status, .. } => {
                    assert_eq!(status, Status::Complete);
                    done += 1;
                }
                _ => {}
            });
        }
        if !is_cut.get() && (WRITES / 3..WRITES / 2).contains(&done) {
            is_cut.set(true);
            while_cut = done;
        } else if is_cut.get() && done >= WRITES / 2 {
            is_cut.set(false);
            since = carried.get();
        }
    }
    assert!(while_cut > 0 && landed.len() as u64 == posted, "{} of {posted}", landed.len());
    assert!(landed.iter().copied().eq(0..posted), "each once and in order");
}

#[test]
fn new__ends_of_two_ranks_are_no_wire() {
    let mut job = MultipathJob::new(2);
    let [second, first] = [(); 2].map(|()| job.ends.pop().expect("two ends"));
    let error =
        MultipathWire::new(first.first, second.second, Waiting::Sleep).expect_err("two ranks");
    assert!(matches!(error, RuntimeError::OtherRank { near: Rank(0), far: Rank(1) }), "{error}");
}

#[test]
fn rest__a_thread_sleeps_without_the_wire_and_wakes_for_each_message() {
    let session = SESSIONS.fetch_add(2, Ordering::Relaxed);
    let pairs = udp(2, session).into_iter().zip(udp(2, session + 1));
    let join = |(first, second)| {
        MultipathWire::new(first, second, Waiting::Sleep).expect("two ends of one rank")
    };
    let mut ends: Vec<_> = pairs.map(join).collect();
    let receiver = ends.pop().expect("two");
    assert_wakes(&mut ends[0], receiver);
}
