//! Full queues on a slow virtual link: who waits, who does not, and that room is reported.
//!
//! Each test runs itself again in a network namespace of its own, which needs no root but a kernel
//! that allows it.

use std::env;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, Rank};
use clearway_proto::wire::{Arrival, Destination, Operation, Out, PathId, PostOutcome, Span, Wire};
use clearway_runtime::udp::{Placement, Segmentation, UdpConfig, UdpPort, UdpWire};
use clearway_runtime::waiting::{Waitable, Waiting};

/// Set for a test that runs inside its namespace.
const INSIDE: &str = "CLEARWAY_TEST_INSIDE";
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// Longest wait for a queue of some kilobytes at 1 Mb/s on a busy machine.
const TIMEOUT: Nanos = Nanos::from_secs(20);
const BODY: u32 = 1_300;

/// Runs test `name` again behind a link of 1 Mb/s whose queue holds `limit` bytes; inside, runs
/// `test`. What a test posts takes the link seconds: its queue does not empty while it is being
/// filled.
fn on_slow_link(name: &str, limit: &str, test: fn()) {
    if env::var_os(INSIDE).is_none() {
        if !Command::new("unshare")
            .args(["-rn", "true"])
            .status()
            .is_ok_and(|status| status.success())
        {
            eprintln!("skipped: {name}: this system allows no network namespace");
            return;
        }
        let own = env::current_exe().expect("the path of this program");
        let mut again = Command::new("unshare");
        again
            .arg("-rn")
            .arg(own)
            .args(["--exact", &format!("full_queues::{name}"), "--nocapture"])
            .env(INSIDE, "1");
        assert!(
            again.status().expect("unshare runs").success(),
            "{name} failed inside its namespace"
        );
        return;
    }
    let queue = format!("tc qdisc add dev near root tbf rate 1mbit burst 3000 limit {limit}");
    let lines = [
        "ip link add near type veth peer name far",
        "ip addr add 10.79.0.1/24 dev near",
        "ip link set near up",
        "ip link set far up",
        // Nobody answers at the other end; the packets need an address to go to.
        "ip neigh add 10.79.0.2 lladdr 02:00:00:00:00:02 dev near nud permanent",
        &queue,
    ];
    for line in lines {
        let mut words = line.split(' ');
        let program = words.next().expect("a program");
        if !Command::new(program).args(words).status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: {name}: `{line}` failed");
            return;
        }
    }
    test();
}

struct FullQueueBench {
    wire: UdpWire,
    body: Span,
}

impl FullQueueBench {
    fn new(segmentation: Segmentation) -> Self {
        let port = UdpPort::bind(SocketAddrV4::new(NEAR, 0)).expect("a free port");
        let peers = vec![port.address(), SocketAddrV4::new(FAR, 9)];
        let mut config = UdpConfig::new(Rank(0), 1, peers);
        config.buffers.send = Bytes(32 << 10);
        config.placement = Placement::OneMachine;
        config.waiting = Waiting::Sleep;
        config.segmentation = segmentation;
        let mut wire = UdpWire::open([port], config).expect("an open wire");
        let region = wire.register(Bytes(u64::from(BODY))).expect("room");
        Self { wire, body: Span { region, offset: 0, length: BODY } }
    }

    fn post(&mut self, class: Class, count: usize) -> Vec<PostOutcome> {
        let mut out: Out<()> = Out::with_limit(1);
        let (to, head, body) = (Destination::One(Rank(1)), out.head(b""), self.body);
        let send = Operation::Send { to, path: PathId(0), class, head, body, token: None };
        let mut answers = Vec::new();
        self.wire.post(&vec![send; count], out.heads(), &mut answers);
        answers
    }

    /// Waits until `class` has room.
    fn await_room(&mut self, class: Class) {
        let end: LocalNs = self.wire.now() + TIMEOUT;
        let mut room = false;
        while !room {
            assert!(self.wire.now() < end, "{class} never had room again");
            self.wire.wait(Some(end), &[]);
            self.wire.poll(64, &mut |arrival| {
                room |= matches!(arrival, Arrival::Room { queue } if queue.class() == Some(class))
            });
        }
    }
}

fn a_full_class_waits_alone() {
    let mut bench = FullQueueBench::new(Segmentation::RealPackets);
    let answers = bench.post(Class::Bulk, 200);
    let taken = answers.iter().take_while(|answer| **answer == PostOutcome::Done(0)).count();
    assert!(0 < taken && taken < 200, "took {taken}");
    assert!(
        answers[taken..].iter().all(|answer| *answer == PostOutcome::NoRoom),
        "nothing overtakes"
    );
    assert_eq!(bench.post(Class::Bulk, 1), [PostOutcome::NoRoom], "until room is reported");
    assert_eq!(
        bench.post(Class::Control, 1),
        [PostOutcome::Done(0)],
        "another class has its own buffer"
    );
    assert_eq!(bench.wire.counters().no_room, 200 - taken as u64 + 1);
    bench.await_room(Class::Bulk);
    assert_eq!(bench.post(Class::Bulk, 1), [PostOutcome::Done(0)]);
}

#[test]
fn socket__a_full_class_waits_alone_and_learns_of_room() {
    on_slow_link(
        "socket__a_full_class_waits_alone_and_is_told_of_room",
        "1000000",
        a_full_class_waits_alone,
    );
}

fn a_full_device_is_tried_again() {
    for segmentation in [Segmentation::RealPackets, Segmentation::Offload] {
        let mut bench = FullQueueBench::new(segmentation);
        assert!(bench.post(Class::Bulk, 100).contains(&PostOutcome::NoRoom), "{segmentation:?}");
        let end = bench.wire.now() + TIMEOUT;
        bench.await_room(Class::Bulk);
        while bench.post(Class::Bulk, 1) == [PostOutcome::NoRoom] {
            assert!(bench.wire.now() < end, "the device's queue never emptied");
            bench.await_room(Class::Bulk);
        }
        assert_eq!(bench.wire.segmentation(), segmentation, "a full queue is no refusal");
    }
}

#[test]
fn device__a_full_queue_is_no_error_and_is_tried_again() {
    on_slow_link(
        "device__a_full_queue_is_no_error_and_is_tried_again",
        "8000",
        a_full_device_is_tried_again,
    );
}
