//! Reliable messages and one-sided writes over real UDP sockets: the contract's suite, plain and
//! sealed, and over full buffers.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_proto::base::{Bytes, Class, Nanos, Rank};
use clearway_proto::reliable::{ReliableWire, StreamConfig};
use clearway_proto::wire::conformance::{self, Fabric, Need};
use clearway_proto::wire::{
    Arrival, Operation, OperationKind, PathId, PostOutcome, RemoteSpan, Span, Status, Token, Wire,
};
use clearway_runtime::keys::{JobKeys, KeyScope, RankKeyPair};
use clearway_runtime::udp::{
    Placement, Protection, Segmentation, SocketBuffers, UdpConfig, UdpPort, UdpWire,
};
use clearway_runtime::waiting::{Waitable, Waiting};

/// Sessions of this test process, so that tests running side by side are strangers to each other.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

struct ReliableJob {
    wires: Vec<ReliableWire<UdpWire>>,
}

impl ReliableJob {
    fn new(ranks: u32, change: impl Fn(&mut UdpConfig)) -> Self {
        Self::over_rails(1, ranks, change)
    }

    /// Rail `n` is the loopback network 127.0.n.0.
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
            config.placement = Placement::OneMachine;
            config.waiting = Waiting::Sleep;
            change(&mut config);
            let wire = UdpWire::open(ports, config).expect("an open wire");
            ReliableWire::new(wire, ranks, &StreamConfig::new(ranks), 0)
                .expect("all that is needed")
        };
        Self { wires: (0..ranks).zip(ports).map(open).collect() }
    }
}

impl Fabric for ReliableJob {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        &mut self.wires[rank.index()]
    }

    /// All ranks of a job are driven until nobody waits for anybody, however slow the machine is.
    fn pass_time(&mut self) {
        for _ in 0..10_000 {
            for wire in &mut self.wires {
                let until = wire.now() + Nanos::from_micros(500);
                wire.wait(Some(until), &[]);
                wire.poll(0, &mut |_| {});
            }
            if self.wires.iter().all(|wire| wire.deadline().is_none()) {
                return;
            }
        }
    }
}

fn run_suite(wire: &str, make: &mut dyn FnMut() -> ReliableJob) {
    use OperationKind::{Atomic, File, Multicast, Read};
    let lacks = [Multicast, Read, Atomic, File].map(Need::Operation);
    let outcomes = conformance::check(&format!("reliable over {wire}"), &lacks, make);
    eprint!("{}", outcomes.expect("every promise is kept"));
}

#[test]
fn conformance__over_udp() {
    run_suite("UDP", &mut || ReliableJob::new(conformance::RANKS, |_| {}));
}

#[test]
fn conformance__over_two_rails() {
    run_suite("UDP, two rails", &mut || ReliableJob::over_rails(2, conformance::RANKS, |_| {}));
}

#[test]
fn conformance__over_real_packets_and_the_smallest_buffers() {
    run_suite("UDP in real packets", &mut || {
        ReliableJob::new(conformance::RANKS, |config| {
            config.segmentation = Segmentation::RealPackets;
            config.buffers = SocketBuffers { send: Bytes(1), receive: Bytes(1) };
        })
    });
}

#[test]
fn conformance__over_sealed_datagrams() {
    run_suite("sealed UDP", &mut || {
        let session =
            u64::from(std::process::id()) << 32 | SESSIONS.fetch_add(1, Ordering::Relaxed);
        let identity = |rank| {
            RankKeyPair::new(Rank(rank), KeyScope { session, epoch: 0, secret: None })
                .expect("a key pair")
        };
        let identities: Vec<RankKeyPair> = (0..conformance::RANKS).map(identity).collect();
        let cards: Vec<_> = identities.iter().map(RankKeyPair::card).collect();
        let keys: Vec<JobKeys> =
            identities.into_iter().map(|own| own.agree(&cards).expect("good cards")).collect();
        let keys = std::cell::RefCell::new(keys.into_iter());
        ReliableJob::new(conformance::RANKS, |config| {
            config.session = session;
            config.protection = Protection::Keys(keys.borrow_mut().next().expect("a rank's keys"));
        })
    });
}

/// 16 MiB in all directions at once, through receive buffers that hold a few datagrams.
#[test]
fn writes__of_all_to_all_through_small_buffers_arrive_as_they_were() {
    const LENGTH: u32 = 2 << 20;
    let mut job = ReliableJob::new(3, |config| {
        config.buffers = SocketBuffers { send: Bytes(64 << 10), receive: Bytes(16 << 10) }
    });
    let bytes: Vec<u8> = (0..LENGTH).map(|i| (i ^ i >> 9) as u8).collect();
    let mut regions = Vec::new();
    for wire in &mut job.wires {
        let source = wire.register(Bytes(u64::from(LENGTH))).expect("memory");
        wire.region_mut(source).expect("registered").copy_from_slice(&bytes);
        regions.push((source, wire.register(Bytes(3 * u64::from(LENGTH))).expect("memory")));
    }
    for from in 0..3u32 {
        for to in (0..3u32).filter(|to| *to != from) {
            let write = Operation::Write {
                to: Rank(to),
                path: PathId(0),
                class: Class::Bulk,
                from: Span { region: regions[from as usize].0, offset: 0, length: LENGTH },
                into: RemoteSpan {
                    region: regions[to as usize].1,
                    offset: u64::from(from * LENGTH),
                },
                immediate: Some(u64::from(from)),
                token: Some(Token(u64::from(to))),
            };
            let mut answers = Vec::new();
            job.wires[from as usize].post(&[write], &[], &mut answers);
            assert_eq!(answers, [PostOutcome::Posted]);
        }
    }
    let (mut done, mut landed) = (0, 0);
    while done < 6 || landed < 6 {
        job.pass_time();
        for wire in &mut job.wires {
            wire.poll(64, &mut |arrival| match arrival {
                Arrival::Landed { .. } => landed += 1,
                Arrival::Done { status, .. } => {
                    assert_eq!(status, Status::Complete);
                    done += 1;
                }
                _ => {}
            });
        }
    }
    for (to, (wire, (_, target))) in job.wires.iter().zip(&regions).enumerate() {
        for from in (0..3).filter(|from| *from != to) {
            let there = &wire.region(*target).expect("registered")[from * LENGTH as usize..]
                [..LENGTH as usize];
            assert!(there == bytes, "{from} to {to}");
        }
    }
}
