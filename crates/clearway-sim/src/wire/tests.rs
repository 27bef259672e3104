//! The contract kept over the stand-in: conformance, loss, damage, phantoms, files, crashes.

use clearway_proto::base::{BitsPerSec, Bytes, Class, GroupId, LocalNs, RandomKey, Rank};
use clearway_proto::wire::conformance::{self, Need};
use clearway_proto::wire::{
    Arrival, AtomicKind, Delivery, Destination, Fault, FileId, FileKind, Granted, Operation,
    OperationKind, Out, PathId, PostOutcome, RefusalReason, RegionId, RemoteSpan, Span, Status,
    Token, Wire,
};

use super::test_carrier::TestCarrier;
use super::{ByteOrigin, Carrier, ContentModel, Extent, Network, NetworkConfig, scattered};
use crate::disk::{DiskFault, DiskSpec, Survival};
use crate::graph::DeviceId;
use crate::spec::{FabricSpec, LossDomain, Routing, Topology};
use crate::time::{Pace, Picos};

const RATE: BitsPerSec = BitsPerSec::mega(100_000);
const LATENCY: Picos = Picos::from_micros(1);

fn spec() -> FabricSpec {
    FabricSpec::plain(Topology::Star { hosts: 4 }, Routing::Minimal, RATE)
}

pub(crate) fn disk() -> DiskSpec {
    DiskSpec {
        latency: Picos::from_micros(20),
        rate: BitsPerSec::mega(8_000),
        sync: Picos::from_micros(500),
        capacity: Bytes(1 << 20),
    }
}

fn config(hosts: &[u32], bodies: ContentModel) -> NetworkConfig {
    let hosts = hosts.iter().copied().map(DeviceId).collect();
    NetworkConfig { hosts, bodies, disk: Some(disk()), key: RandomKey::new(3) }
}

fn network(hosts: &[u32], bodies: ContentModel) -> Network<TestCarrier> {
    Network::new(
        TestCarrier::new(8, Pace::from_rate(RATE), LATENCY),
        &spec(),
        config(hosts, bodies),
    )
}

/// Ends of a network, for the suite, and how many files were opened.
pub(crate) struct TestEnds<C>(pub(crate) Network<C>, u32);

impl<C: Carrier> conformance::Fabric for TestEnds<C> {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        self.0.wire(rank)
    }

    fn pass_time(&mut self) {
        let soon = self.0.now() + Picos::from_micros(10);
        let at = self.0.next_at().map_or(soon, |next| next.max(soon));
        while self.0.next_at().is_some_and(|next| next <= at) {
            self.0.advance(at);
        }
        self.0.advance(at);
    }

    fn open_file(&mut self, rank: Rank) -> Option<FileId> {
        self.1 += 1;
        let file = FileId(self.1);
        self.0.wire(rank).open(file, Bytes(0)).ok().map(|()| file)
    }
}

/// Checks the contract of simulated ends; `name` says of which.
pub(crate) fn assert_conforms<C: Carrier>(name: &str, make: &mut dyn FnMut() -> Network<C>) {
    // Packets may take several ways, and a simulated node has no memory outside its regions.
    let others = [Need::SendsFollowWrites, Need::AnyLocal];
    let lacks: Vec<Need> = C::LACKS.iter().copied().map(Need::Operation).chain(others).collect();
    let outcomes =
        conformance::check(&format!("simulated, {name}"), &lacks, || TestEnds(make(), 0));
    eprint!("{}", outcomes.expect("every promise is kept"));
}

#[test]
fn conformance__of_ranks_on_hosts_of_their_own() {
    assert_conforms("hosts of their own", &mut || network(&[2, 0, 1], ContentModel::Real));
}

#[test]
fn conformance__of_ranks_that_share_hosts() {
    assert_conforms("one host", &mut || network(&[0, 0, 0], ContentModel::Real));
    assert_conforms("two share a host", &mut || network(&[1, 1, 0], ContentModel::Real));
    assert_conforms("two others share a host", &mut || network(&[0, 1, 1], ContentModel::Real));
}

#[test]
fn conformance__of_clocks_that_differ() {
    let mut spec = spec();
    spec.host.clock_ppm = 50;
    let make = || {
        Network::new(
            TestCarrier::new(3, Pace::from_rate(RATE), LATENCY),
            &spec,
            config(&[0, 1, 2], ContentModel::Real),
        )
    };
    assert!(make().wire(Rank(0)).capabilities().shared_clock.is_none());
    assert_conforms("clocks that differ", &mut { make });
}

/// What an end got, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReceivedArrival {
    Message(Rank, Vec<u8>, Span),
    Landed(Rank, Span),
    Done(u64, Status, u64),
    Other,
}

fn look(network: &mut Network<TestCarrier>, rank: u32) -> Vec<ReceivedArrival> {
    let mut seen = Vec::new();
    network.wire(Rank(rank)).poll(64, &mut |arrival| {
        seen.push(match arrival {
            Arrival::Datagram(d) => ReceivedArrival::Message(d.from, d.head.to_vec(), d.body),
            Arrival::Landed { from, into, .. } => ReceivedArrival::Landed(from, into),
            Arrival::Done { token, status, value, .. } => {
                ReceivedArrival::Done(token.0, status, value)
            }
            _ => ReceivedArrival::Other,
        });
    });
    seen
}

fn pass(network: &mut Network<TestCarrier>) {
    while let Some(next) = network.next_at() {
        network.advance(next);
    }
}

fn post(
    network: &mut Network<TestCarrier>,
    rank: u32,
    operation: Operation,
    heads: &[u8],
) -> PostOutcome {
    let mut answers = Vec::new();
    network.wire(Rank(rank)).post(&[operation], heads, &mut answers);
    answers[0]
}

fn send(
    network: &mut Network<TestCarrier>,
    from: u32,
    to: Destination,
    head: &[u8],
    body: Span,
) -> PostOutcome {
    let mut out: Out<()> = Out::with_limit(1);
    let head = out.head(head);
    let send = Operation::Send {
        to,
        path: PathId(0),
        class: Class::Bulk,
        head,
        body,
        token: Some(Token(1)),
    };
    post(network, from, send, out.heads())
}

fn register(network: &mut Network<TestCarrier>, rank: u32, bytes: u64) -> RegionId {
    network.wire(Rank(rank)).register(Bytes(bytes)).expect("there is room")
}

fn write(region: RegionId, into: RegionId, offset: u64, length: u32) -> Operation {
    Operation::Write {
        to: Rank(1),
        path: PathId(0),
        class: Class::Bulk,
        from: Span { region, offset: 0, length },
        into: RemoteSpan { region: into, offset },
        immediate: Some(5),
        token: Some(Token(2)),
    }
}

#[test]
fn write__a_lost_one_is_repeated_and_completes_once() {
    let mut network = network(&[0, 1], ContentModel::Real);
    let (source, target) = (register(&mut network, 0, 64), register(&mut network, 1, 64));
    network.carrier_mut().lose = 1;
    post(&mut network, 0, write(source, target, 0, 64), &[]);
    network.advance(Picos::from_micros(10));
    network.carrier_mut().lose = u64::MAX;
    pass(&mut network);
    assert_eq!(
        look(&mut network, 1),
        [ReceivedArrival::Landed(Rank(0), Span { region: target, offset: 0, length: 64 })]
    );
    assert_eq!(look(&mut network, 0), [ReceivedArrival::Done(2, Status::Complete, 0)]);
    assert!(network.now() > Picos::from_micros(67_000));
    assert_eq!(network.under_way(), 0);
}

#[test]
fn write__what_is_lost_every_time_ends_flushed() {
    let mut network = network(&[0, 1], ContentModel::Real);
    let (source, target) = (register(&mut network, 0, 64), register(&mut network, 1, 64));
    network.carrier_mut().lose = 1;
    post(&mut network, 0, write(source, target, 0, 64), &[]);
    assert_eq!(
        send(&mut network, 0, Destination::One(Rank(1)), b"lost", Span::EMPTY),
        PostOutcome::Posted
    );
    pass(&mut network);
    let done = |token, status| ReceivedArrival::Done(token, status, 0);
    assert_eq!(look(&mut network, 0), [done(1, Status::Complete), done(2, Status::Flushed)]);
    assert_eq!(look(&mut network, 1), []);
    assert_eq!(network.under_way(), 0);
}

#[test]
fn write__to_a_node_that_is_down_ends_flushed_and_to_one_that_came_back_refused() {
    let mut network = network(&[0, 1], ContentModel::Real);
    let (source, target) = (register(&mut network, 0, 64), register(&mut network, 1, 64));
    post(&mut network, 0, write(source, target, 0, 64), &[]);
    network.crash(Rank(1), Survival::Nothing);
    pass(&mut network);
    assert_eq!(look(&mut network, 0), [ReceivedArrival::Done(2, Status::Flushed, 0)]);
    network.revive(Rank(1));
    let target = register(&mut network, 1, 64);
    post(&mut network, 0, write(source, target, 0, 64), &[]);
    send(&mut network, 0, Destination::One(Rank(1)), b"stale", Span::EMPTY);
    network.crash(Rank(1), Survival::Nothing);
    network.revive(Rank(1));
    let target = register(&mut network, 1, 64);
    pass(&mut network);
    let refused = Status::Refused(RefusalReason::Memory);
    assert!(look(&mut network, 0).contains(&ReceivedArrival::Done(2, refused, 0)));
    assert_eq!(
        look(&mut network, 1),
        [ReceivedArrival::Message(Rank(0), b"stale".to_vec(), Span::EMPTY)]
    );
    assert!(network.wire(Rank(1)).region(target).expect("real").iter().all(|byte| *byte == 0));
    assert_eq!(network.under_way(), 0);
}

#[test]
fn crash__completions_of_the_dead_are_not_given_to_the_risen() {
    let mut network = network(&[0, 1], ContentModel::Real);
    let (source, target) = (register(&mut network, 0, 8), register(&mut network, 1, 64));
    post(&mut network, 0, write(source, target, 0, 8), &[]);
    let (kind, at) = (AtomicKind::FetchAdd(1), RemoteSpan { region: target, offset: 8 });
    let (path, class) = (PathId(0), Class::Control);
    post(
        &mut network,
        0,
        Operation::Atomic { to: Rank(1), path, class, kind, at, token: Token(3) },
        &[],
    );
    let memory = Span { region: source, offset: 0, length: 8 };
    network.wire(Rank(0)).open(FileId(1), Bytes(0)).expect("a disk");
    let file = Operation::File {
        kind: FileKind::Write,
        file: FileId(1),
        at: 0,
        memory,
        class,
        token: Token(4),
    };
    post(&mut network, 0, file, &[]);
    network.crash(Rank(0), Survival::Nothing);
    network.revive(Rank(0));
    pass(&mut network);
    assert_eq!(look(&mut network, 0), []);
    let words = network.wire(Rank(1)).region(target).expect("real").to_vec();
    assert_eq!(words[8], 1, "what was posted goes on its way");
    assert_eq!(network.under_way(), 0);
}

#[test]
fn group__ranks_of_one_host_get_a_copy_each() {
    let mut network = network(&[0, 0, 1, 1, 2], ContentModel::Real);
    let group = GroupId(2);
    for rank in [0, 1, 2, 3] {
        network.wire(Rank(rank)).join(group).expect("multicast");
    }
    assert_eq!(
        send(&mut network, 0, Destination::Group(group), b"all", Span::EMPTY),
        PostOutcome::Posted
    );
    pass(&mut network);
    let copies: Vec<usize> = (0..5).map(|rank| look(&mut network, rank).len()).collect();
    assert_eq!(copies, [1, 1, 1, 1, 0], "rank 0 hears that it was sent");
    assert_eq!(network.under_way(), 0);
    send(&mut network, 4, Destination::Group(GroupId(77)), b"nobody", Span::EMPTY);
    pass(&mut network);
    assert_eq!(look(&mut network, 4), [ReceivedArrival::Done(1, Status::Complete, 0)]);
    assert_eq!(network.under_way(), 0);
}

#[test]
fn damage__flips_one_bit_of_head_or_body() {
    let mut network = network(&[0, 1], ContentModel::Real);
    let region = register(&mut network, 0, 8);
    network.carrier_mut().damage = 1;
    let (mut heads, mut bodies) = (0, 0);
    for _ in 0..40 {
        send(
            &mut network,
            0,
            Destination::One(Rank(1)),
            &[0; 8],
            Span { region, offset: 0, length: 8 },
        );
        pass(&mut network);
        let seen = look(&mut network, 1);
        let ReceivedArrival::Message(_, head, body) = &seen[0] else { panic!("{seen:?}") };
        let receive = network.wire(Rank(1)).region(RegionId::RECEIVE).expect("real");
        let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
        let in_body = ones(&receive[body.range_in(receive.len()).expect("inside")]);
        assert_eq!(ones(head) + in_body, 1);
        heads += ones(head);
        bodies += in_body;
        look(&mut network, 0);
    }
    assert!(heads > 5 && bodies > 5, "{heads} {bodies}");
}

#[test]
fn phantom__placement_order_and_damage_are_visible_without_bytes() {
    let mut network = network(&[0, 1], ContentModel::Phantom);
    let giant = 1 << 40;
    let (source, target) = (register(&mut network, 0, giant), register(&mut network, 1, giant));
    let span = Span { region: source, offset: 0, length: 100 };
    network.wire(Rank(0)).name(span, 9).expect("inside");
    post(&mut network, 0, write(source, target, 1_000, 150), &[]);
    pass(&mut network);
    let at = |offset, length| Span { region: target, offset, length };
    let named = Extent { origin: ByteOrigin::Named(9), offset: 0, length: 100 };
    let rest =
        Extent { origin: ByteOrigin::Region { rank: 0, region: 0 }, offset: 100, length: 50 };
    assert_eq!(network.end(Rank(1)).extents(at(1_000, 150)), Ok(vec![named, rest]));
    let own = ByteOrigin::Region { rank: 1, region: 0 };
    assert_eq!(
        network.end(Rank(1)).extents(at(998, 2)),
        Ok(vec![Extent { origin: own, offset: 998, length: 2 }])
    );
    network.carrier_mut().damage = 1;
    send(&mut network, 0, Destination::One(Rank(1)), b"", span);
    pass(&mut network);
    let seen = look(&mut network, 1);
    let ReceivedArrival::Message(_, _, body) = seen[1] else { panic!("{seen:?}") };
    let extents = network.end(Rank(1)).extents(body).expect("inside");
    assert_eq!(extents.iter().map(|extent| extent.length).sum::<u64>(), 100);
    assert_eq!(extents.iter().filter(|extent| extent.origin == ByteOrigin::Damaged).count(), 1);
    let copy = Operation::Copy { from: body, into: at(0, 100) };
    assert_eq!(post(&mut network, 1, copy, &[]), PostOutcome::Done(0));
    assert_eq!(network.end(Rank(1)).extents(at(0, 100)), Ok(extents));
}

#[test]
fn register_real__records_travel_and_are_kept_although_other_bodies_are_phantoms() {
    for bodies in [ContentModel::Phantom, ContentModel::Lengths] {
        let mut network = network(&[0, 1], bodies);
        let phantom: Vec<RegionId> =
            (0..2).map(|rank| register(&mut network, rank, 1 << 40)).collect();
        let [source, target] =
            [0, 1].map(|rank| network.wire(Rank(rank)).register_real(Bytes(64)).expect("room"));
        assert_eq!(network.wire(Rank(0)).region(phantom[0]), None);
        network.wire(Rank(0)).region_mut(source).expect("real")[..6].copy_from_slice(b"record");
        let record = Span { region: source, offset: 0, length: 6 };
        // A phantom message and a real one in one poll.
        let bulk = Span { region: phantom[0], offset: 0, length: 10 };
        send(&mut network, 0, Destination::One(Rank(1)), b"bulk", bulk);
        send(&mut network, 0, Destination::One(Rank(1)), b"name", record);
        pass(&mut network);
        let bodies: Vec<Span> = look(&mut network, 1)
            .into_iter()
            .map(|seen| {
                if let ReceivedArrival::Message(_, _, body) = seen {
                    body
                } else {
                    panic!("{seen:?}")
                }
            })
            .collect();
        let received =
            network.wire(Rank(1)).region(RegionId::RECEIVE).expect("a real body").to_vec();
        let parts: Vec<&[u8]> = bodies
            .iter()
            .map(|body| &received[body.range_in(received.len()).expect("inside")])
            .collect();
        assert_eq!(parts, [&[0; 10][..], b"record"]);
        assert_eq!(
            network.end(Rank(1)).extents(bodies[0]).expect("inside").len(),
            1,
            "bulk is still a phantom"
        );
        // Copied to phantom memory, and from there to real memory.
        let at = |region, offset, length| Span { region, offset, length };
        for (from, into) in [
            (bodies[1], at(phantom[1], 1 << 30, 6)),
            (at(phantom[1], (1 << 30) - 2, 10), at(target, 20, 10)),
            (at(phantom[1], 0, 4), at(target, 22, 4)),
        ] {
            assert_eq!(
                post(&mut network, 1, Operation::Copy { from, into }, &[]),
                PostOutcome::Done(0)
            );
            if into.offset == 20 {
                assert_eq!(
                    &network.wire(Rank(1)).region(target).expect("real")[20..30],
                    b"\0\0record\0\0"
                );
            }
        }
        let bytes = network.wire(Rank(1)).region(target).expect("real");
        assert_eq!(&bytes[20..30], b"\0\0\0\0\0\0rd\0\0", "phantoms are zeros in real memory");
        // A write of real bytes, and a file that holds them between phantoms.
        post(&mut network, 0, write(source, target, 40, 6), &[]);
        network.wire(Rank(0)).open(FileId(1), Bytes(0)).expect("a disk");
        let class = Class::Bulk;
        let job = |kind, at, memory| Operation::File {
            kind,
            file: FileId(1),
            at,
            memory,
            class,
            token: Token(9),
        };
        post(&mut network, 0, job(FileKind::Write, 0, at(phantom[0], 0, 4_096)), &[]);
        post(&mut network, 0, job(FileKind::Write, 4_096, record), &[]);
        post(&mut network, 0, job(FileKind::Read, 4_090, at(source, 32, 12)), &[]);
        pass(&mut network);
        assert_eq!(&network.wire(Rank(1)).region(target).expect("real")[40..46], b"record");
        assert_eq!(
            &network.wire(Rank(0)).region(source).expect("real")[32..44],
            b"\0\0\0\0\0\0record"
        );
        look(&mut network, 1);
        assert_eq!(network.wire(Rank(1)).region(RegionId::RECEIVE), None, "nothing real arrived");
    }
}

#[test]
fn file__is_written_read_and_synced_and_its_faults_are_reported() {
    let mut network = network(&[0], ContentModel::Real);
    let region = register(&mut network, 0, 16);
    network.wire(Rank(0)).region_mut(region).expect("real")[..4].copy_from_slice(b"kept");
    network.wire(Rank(0)).open(FileId(1), Bytes(0)).expect("a disk");
    let span = |offset, length| Span { region, offset, length };
    let class = Class::Scavenger;
    let job = |kind, at, memory, token| Operation::File {
        kind,
        file: FileId(1),
        at,
        memory,
        class,
        token: Token(token),
    };
    let jobs = [
        job(FileKind::Write, 3, span(0, 4), 1),
        job(FileKind::Sync, 0, Span::EMPTY, 2),
        job(FileKind::Read, 2, span(8, 5), 3),
        job(FileKind::Read, 3, span(8, 5), 4),
    ];
    let mut answers = Vec::new();
    network.wire(Rank(0)).post(&jobs, &[], &mut answers);
    assert_eq!(answers, [PostOutcome::Posted; 4]);
    pass(&mut network);
    let done = |token, status, value| ReceivedArrival::Done(token, status, value);
    let ended = [
        done(1, Status::Complete, 4),
        done(2, Status::Complete, 0),
        done(3, Status::Complete, 5),
        done(4, Status::Complete, 4),
    ];
    assert_eq!(look(&mut network, 0), ended);
    assert_eq!(
        &network.wire(Rank(0)).region(region).expect("real")[8..13],
        b"keptt",
        "a short read leaves the rest"
    );
    network.wire(Rank(0)).disk.as_mut().expect("a disk").inject(Picos::ZERO, DiskFault::Fails);
    post(&mut network, 0, job(FileKind::Write, 0, span(0, 4), 5), &[]);
    pass(&mut network);
    assert_eq!(look(&mut network, 0), [done(5, Status::Failed(Fault::Io), 0)]);
    let closed = Operation::File {
        kind: FileKind::Sync,
        file: FileId(9),
        at: 0,
        memory: Span::EMPTY,
        class,
        token: Token(6),
    };
    assert_eq!(post(&mut network, 0, closed, &[]), PostOutcome::Refused(RefusalReason::Memory));
}

#[test]
fn crash__a_write_under_way_reaches_the_disk_when_all_survives() {
    for (survival, left) in [(Survival::Nothing, &b""[..]), (Survival::All, b"torn")] {
        let mut network = network(&[0], ContentModel::Real);
        let region = register(&mut network, 0, 4);
        network.wire(Rank(0)).region_mut(region).expect("real").copy_from_slice(b"torn");
        network.wire(Rank(0)).open(FileId(1), Bytes(0)).expect("a disk");
        let (memory, class) = (Span { region, offset: 0, length: 4 }, Class::Bulk);
        let write = Operation::File {
            kind: FileKind::Write,
            file: FileId(1),
            at: 0,
            memory,
            class,
            token: Token(1),
        };
        assert_eq!(post(&mut network, 0, write, &[]), PostOutcome::Posted);
        network.crash(Rank(0), survival);
        network.revive(Rank(0));
        pass(&mut network);
        assert_eq!(look(&mut network, 0), [], "its completion died with the node");
        let disk = network.wire(Rank(0)).disk.as_ref().expect("a disk");
        assert_eq!(disk.bytes(FileId(1)), Some(left), "{survival:?}");
    }
}

#[test]
fn post__each_operation_leaves_when_the_processor_has_come_to_it() {
    let mut spec = spec();
    spec.host.effect_cost = Picos::from_micros(2);
    spec.host.input_cost = Picos::from_micros(7);
    let mut network = Network::new(
        TestCarrier::new(2, Pace::INSTANT, LATENCY),
        &spec,
        config(&[0, 1], ContentModel::Real),
    );
    for _ in 0..3 {
        send(&mut network, 0, Destination::One(Rank(1)), b"", Span::EMPTY);
    }
    pass(&mut network);
    let mut at = Vec::new();
    network.wire(Rank(1)).poll(64, &mut |arrival| {
        if let Arrival::Datagram(datagram) = arrival {
            at.push(datagram.at.instant());
        }
    });
    assert_eq!(at, [LocalNs(3_000), LocalNs(5_000), LocalNs(7_000)]);
    assert_eq!(network.wire(Rank(1)).now(), LocalNs(7_000 + 3 * 7_000));
}

#[test]
fn capabilities__say_what_the_specification_grants() {
    let mut spec = spec();
    spec.classes.lane_of_level = core::array::from_fn(|level| level as u8 % 3);
    spec.classes.service_level = [0, 1, 2, 5, 4];
    spec.classes.loss[2] = LossDomain::Drops { queue: Bytes(1 << 16) };
    spec.host.rails = 2;
    let carrier = TestCarrier::new(2, Pace::from_rate(RATE), LATENCY);
    let mut network = Network::new(
        carrier,
        &spec,
        NetworkConfig { disk: None, ..config(&[0, 1], ContentModel::Real) },
    );
    let capabilities = network.wire(Rank(0)).capabilities().clone();
    let (separate, marked) = (Granted::Separate, Granted::Marked);
    assert_eq!(capabilities.classes, [separate, marked, marked, marked, marked]);
    assert_eq!(capabilities.delivery, Delivery::Lossy);
    assert_eq!(capabilities.paths, [Some(RATE), Some(RATE)]);
    assert!(!capabilities.operations.has(OperationKind::File));
    assert!(capabilities.shared_clock.is_some());
}

#[test]
fn scattered__every_host_has_its_seats_and_order_is_drawn() {
    let map = scattered(10, 20, 2, RandomKey::new(4));
    assert!(map.chunks(2).all(|pair| pair[0] == pair[1]));
    let mut hosts: Vec<u32> = map.iter().map(|host| host.0).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, (0..20).map(|seat| seat / 2).collect::<Vec<u32>>());
    assert_ne!(map, scattered(10, 20, 2, RandomKey::new(5)));
    assert_eq!(scattered(10, 7, 1, RandomKey::new(4)).len(), 7);
}
