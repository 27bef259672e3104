//! The log of staged data on a simulated node, whose disk takes its time and loses power.
//!
//! # Model
//! A program makes files and writes each of them. It is run again and again, each time to another
//! instant: there the node crashes, the disk keeps of what is not synced nothing, all, or drawn
//! sectors, and the node starts again. What the log finds then is what the first calls of the
//! program made, for some number of calls that is at least that of the durable ones.

use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos, RandomKey, Rank, xxh3};
use clearway_proto::staging::{
    ByteSource, ClientId, EntryName, InodeId, LogCommand, LogConfig, LogEvent, LogId, LogOrigin,
    LogState, NodeKind, StagingLog, TreeChange, WallNs,
};
use clearway_proto::wire::{FileId, RegionId, Span, Wire};
use clearway_sim::Picos;
use clearway_sim::disk::{DiskSpec, Survival};
use clearway_sim::fabric::{Fabric, FabricOptions};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::{FabricSpec, Routing, Topology};
use clearway_sim::topology;
use clearway_sim::wire::{ContentModel, Network, NetworkConfig, SimWire};
use clearway_sim::world::{World, WorldEvent};

const NODE: Rank = Rank(0);
const CLIENT: ClientId = ClientId(1);
const SEGMENTS: u32 = 4;
const SEGMENT_SIZE: Bytes = Bytes(128 << 10);
const SNAPSHOT_SIZE: Bytes = Bytes(64 << 10);
const ARENA: RegionId = RegionId(1);
const SLOT: u64 = 8 << 10;
/// Bytes of each file.
const LENGTH: u32 = 5_000;
/// Calls of the program: a file, and its bytes.
const CALLS: u64 = 60;
/// From one call to the next.
const PAUSE: Picos = Picos::from_micros(70);

fn config(origin: LogOrigin) -> LogConfig {
    LogConfig {
        origin,
        superblock: FileId(1),
        snapshots: [FileId(2), FileId(3)],
        snapshot_size: SNAPSHOT_SIZE,
        segments: (10..10 + SEGMENTS).map(FileId).collect(),
        segment_size: SEGMENT_SIZE,
        bodies_max: Bytes(32 << 10),
        scratch: RegionId(0),
        inodes_max: 64,
        snapshot_every: Bytes(64 << 10),
        linger: Nanos::ZERO,
        wall_at_zero: WallNs(0),
    }
}

/// An engine of its own memory; the arena has the bytes of each file in its slot.
fn engine(wire: &mut SimWire, origin: LogOrigin) -> StagingLog {
    let config = config(origin);
    assert_eq!(wire.register(Bytes(LogConfig::SCRATCH)), Ok(config.scratch));
    assert_eq!(wire.register(Bytes(SLOT * CALLS)), Ok(ARENA));
    let arena = wire.region_mut(ARENA).expect("an arena");
    for (number, slot) in (0..).zip(arena.chunks_mut(SLOT as usize)) {
        slot.fill(number);
    }
    if origin != LogOrigin::Existing {
        let files = [(config.superblock, Bytes(8 << 10))]
            .into_iter()
            .chain(config.snapshots.map(|file| (file, SNAPSHOT_SIZE)))
            .chain(config.segments.iter().map(|file| (*file, SEGMENT_SIZE)));
        files.for_each(|(file, size)| wire.open(file, size).expect("a disk"));
    }
    StagingLog::new(config)
}

fn world() -> World<StagingLog, Fabric> {
    let rate = BitsPerSec::mega(100_000);
    let spec = FabricSpec::plain(Topology::Star { hosts: 1 }, Routing::Minimal, rate);
    let cables = topology::build(&spec).expect("a star");
    let fabric = Fabric::new(&spec, cables, 1, FabricOptions::default());
    let disk = DiskSpec {
        latency: Picos::from_micros(20),
        rate: BitsPerSec::mega(8_000),
        sync: Picos::from_micros(200),
        capacity: Bytes(1 << 30),
    };
    let key = RandomKey::new(1);
    let (hosts, bodies, disk) = (vec![DeviceId(0)], ContentModel::Real, Some(disk));
    let network = Network::new(fabric, &spec, NetworkConfig { hosts, bodies, disk, key });
    World::new(network, |wire| engine(wire, LogOrigin::New(LogId(1))))
}

/// The call of this number, and its body.
fn call(number: u64) -> LogCommand {
    let inode = InodeId(2 + (number - 1) / 2);
    let (change, body) = if number % 2 == 1 {
        let name = EntryName::new(format!("f{}", inode.0).as_bytes()).expect("a name");
        let (parent, node) = (InodeId::ROOT, NodeKind::File);
        let create = TreeChange::Create { inode, parent, name, node, mode: 0o644, uid: 0, gid: 0 };
        (create, Span::EMPTY)
    } else {
        let bytes = vec![inode.0 as u8; LENGTH as usize];
        let (offset, length, digest) = (3, LENGTH, xxh3(&bytes));
        let body = Span { region: ARENA, offset: inode.0 * SLOT, length };
        (TreeChange::Write { inode, offset, length, digest }, body)
    };
    LogCommand::Append { client: CLIENT, number, class: Class::Bulk, change, body }
}

/// Checks that `state` is what the first calls made, and returns how many.
fn found(state: &LogState, world: &World<StagingLog, Fabric>) -> u64 {
    let calls = state.highest(CLIENT);
    assert_eq!(state.tree().inodes().count() as u64, 1 + calls.div_ceil(2));
    let disk = world.network().end(NODE).disk.as_ref().expect("a disk");
    for inode in 2..2 + calls / 2 {
        let content = state.tree().content(InodeId(inode)).expect("a file");
        let sources = content.sources(0, content.size());
        let [(3, ByteSource::Zeros), (length, ByteSource::Log { body, skip: 0 })] = sources[..]
        else {
            panic!("file {inode} is {sources:?}")
        };
        assert_eq!(length, u64::from(LENGTH));
        let place = state.body(body).expect("a place");
        let segment = disk.bytes(FileId(10 + place.place.segment)).expect("a segment");
        let bytes = &segment[place.place.offset() as usize..][..LENGTH as usize];
        assert!(bytes.iter().all(|byte| u64::from(*byte) == inode), "bytes of file {inode}");
    }
    calls
}

/// Runs the program until `at`, crashes, and starts again; calls that were durable, and calls that
/// are found.
fn crash_at(at: Picos, survival: Survival) -> (u64, u64) {
    let mut world = world();
    for number in 1..=CALLS {
        let due = Picos(PAUSE.0 * (10 + number));
        // Calls that come later would be those of the node that started again.
        if due <= at {
            world.command(due, NODE, call(number));
        }
    }
    let mut durable = 0;
    world.run_until(at, &mut |event: WorldEvent<'_, StagingLog>| {
        if let LogEvent::Durable { number, .. } = event.event {
            durable = number;
        }
    });
    world.crash(NODE, survival);
    world.restart(NODE, |wire| engine(wire, LogOrigin::Existing));
    let mut opened = None;
    world.run_until(at + Picos::from_micros(1_000_000), &mut |event| {
        if opened.is_none() {
            opened = Some(event.event);
        }
    });
    match opened {
        Some(LogEvent::Opened(report)) if report.damaged.is_empty() => {}
        other => panic!("at {at:?} after {survival:?}: {other:?}"),
    }
    let state = world.engine_mut(NODE).expect("it runs").state().clone();
    (durable, found(&state, &world))
}

#[test]
fn crash__at_any_instant_what_is_durable_is_found_on_the_simulated_disk() {
    let (mut least, mut most, mut ahead) = (u64::MAX, 0, 0);
    let instants = if cfg!(debug_assertions) { 60 } else { 600 };
    // Calls end after 5 ms; the log is made in the first half.
    let step = PAUSE.0 * (CALLS + 4) / instants;
    for instant in 0..instants {
        let at = Picos(PAUSE.0 * 11 + step * instant + instant * 997);
        let drawn = Survival::Drawn(RandomKey::new(instant));
        for survival in [Survival::Nothing, Survival::All, drawn] {
            let (durable, found) = crash_at(at, survival);
            assert!(found >= durable, "at {at:?} after {survival:?}: {found} of {durable}");
            (least, most) = (least.min(durable), most.max(durable));
            ahead += u64::from(found > durable);
        }
    }
    assert!(least < 4 && most > CALLS - 10, "crashes from {least} to {most} durable calls");
    assert!(ahead > 0, "what was not synced is found sometimes");
}
