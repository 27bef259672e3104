//! Whole jobs over the memory wire in virtual time: every policy delivers every byte to its
//! timeslice once.

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::collections::BTreeMap;

use super::frame::{TimesliceFrame, WriteImmediate};
use super::*;
use crate::base::{Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use crate::wire::memory::{MemoryConfig, MemoryFabric};
use crate::wire::{
    Arrival, Datagram, Driver, Engine, Input, Out, PathId, RegionId, Span, Stamp, Wire,
};

/// What a job is made of.
#[derive(Clone, Copy)]
struct JobShape {
    run: u16,
    inputs: u32,
    builders: u32,
    policy: Policy,
    ring: u64,
    window: Window,
    room: usize,
    release: ReleasePolicy,
    heartbeat: Option<Nanos>,
}

const SMALL: JobShape = JobShape {
    run: 0,
    inputs: 3,
    builders: 2,
    policy: Policy::Token,
    ring: 4096,
    window: Window { least: 2, most: 8 },
    room: 64,
    release: ReleasePolicy::AtOnce,
    heartbeat: None,
};

/// Returns the byte at `at` of the contribution of input `place` to `timeslice`.
fn content(place: usize, timeslice: u64, at: usize) -> u8 {
    (place as u64 * 31 + timeslice * 7 + at as u64) as u8
}

/// All ranks of a job on one memory fabric.
struct TimesliceJob {
    shape: JobShape,
    fabric: MemoryFabric,
    drivers: Vec<Driver<TimesliceNode>>,
    /// Timeslices complete, with their builder.
    built: BTreeMap<u64, Rank>,
    ended: Vec<Rank>,
    aborted: Vec<Rank>,
    too_long: Vec<(u64, u64)>,
}

impl TimesliceJob {
    fn new(shape: JobShape, source: ContributionSource) -> Self {
        let ranks = shape.inputs + shape.builders;
        let mut fabric = MemoryFabric::new(MemoryConfig {
            room: shape.room,
            latency: Nanos(1000),
            ..MemoryConfig::lossless(ranks)
        });
        let (inputs, builders) = ((0..shape.inputs).map(Rank), (shape.inputs..ranks).map(Rank));
        let layout = Arc::new(
            TimesliceLayout::new(inputs.collect(), builders.collect(), &[])
                .expect("a sound layout"),
        );
        let driver = |rank| {
            let length = shape.ring * u64::from(shape.inputs);
            let region = fabric.wire(Rank(rank)).register(Bytes(length)).expect("there is room");
            let node = TimesliceNode::new(TimesliceConfig {
                rank: Rank(rank),
                run: shape.run,
                layout: layout.clone(),
                policy: shape.policy,
                window: shape.window,
                dfs: Dfs { interval: 20, history: 5, ..Dfs::default() },
                source,
                slots: WriteSlots::from_policy(shape.policy),
                rings: Span { region, offset: 0, length: length as u32 },
                ring: Bytes(shape.ring),
                release: shape.release,
                heartbeat: shape.heartbeat,
                class: Class::Bulk,
                control: Class::Control,
            });
            Driver::boot(node, LocalNs(0), 0)
        };
        let drivers = (0..ranks).map(driver).collect();
        Self {
            shape,
            fabric,
            drivers,
            built: BTreeMap::new(),
            ended: Vec::new(),
            aborted: Vec::new(),
            too_long: Vec::new(),
        }
    }

    fn command(&mut self, rank: u32, command: TimesliceCommand) {
        let now = self.fabric.now();
        self.drivers[rank as usize].command(now, command);
    }

    /// Gives every input `timeslices` contributions of `length(timeslice)` bytes in two pieces, and
    /// the end of its stream.
    fn feed(&mut self, timeslices: u64, length: impl Fn(u64) -> u32) {
        for place in 0..self.shape.inputs {
            let lengths = (0..timeslices).map(&length);
            let total = lengths.clone().map(u64::from).sum();
            let wire = self.fabric.wire(Rank(place));
            let region = wire.register(Bytes(total)).expect("there is room");
            let bytes = wire.region_mut(region).expect("it was registered");
            let mut offset = 0_u64;
            let mut all = Vec::new();
            for (timeslice, length) in lengths.enumerate() {
                let begin = offset as usize;
                for at in 0..length as usize {
                    bytes[begin + at] = content(place as usize, timeslice as u64, at);
                }
                let (head, rest) = (length / 3, length - length / 3);
                let spans = [
                    Span { region, offset, length: head },
                    Span { region, offset: offset + u64::from(head), length: rest },
                ];
                all.push(ContributionSpans::new(spans).expect("contributions are not empty"));
                offset += u64::from(length);
            }
            all.into_iter().for_each(|pieces| self.command(place, TimesliceCommand::Give(pieces)));
            self.command(place, TimesliceCommand::Finish { timeslice: timeslices });
            self.command(place, TimesliceCommand::Begin);
        }
    }

    /// Runs until nothing happens any more or `until`, and looks at each timeslice when it is
    /// complete.
    fn run(&mut self, until: LocalNs) {
        loop {
            let now = self.fabric.now();
            let mut wake: Option<LocalNs> = None;
            for rank in 0..self.drivers.len() {
                let mut events = Vec::new();
                let progress = self.drivers[rank]
                    .step(self.fabric.wire(Rank(rank as u32)), &mut |event| events.push(event));
                events.into_iter().for_each(|event| self.handle_event(Rank(rank as u32), event));
                wake = [wake, progress.next].into_iter().flatten().min();
            }
            let next = [wake, self.fabric.next_arrival()].into_iter().flatten().min();
            match next.filter(|next| *next <= until) {
                Some(next) => self.fabric.advance(next.max(now)),
                None => return,
            }
        }
    }

    fn handle_event(&mut self, rank: Rank, event: TimesliceEvent) {
        match event {
            TimesliceEvent::Complete { timeslice, missing, .. } => {
                assert_eq!(missing, 0);
                assert_eq!(
                    self.built.insert(timeslice, rank),
                    None,
                    "timeslice {timeslice} was built twice"
                );
                if self.shape.release == ReleasePolicy::ByCommand {
                    self.check_contents(rank, timeslice);
                    let now = self.fabric.now();
                    self.drivers[rank.index()]
                        .command(now, TimesliceCommand::Release { timeslice });
                }
            }
            TimesliceEvent::Ended => self.ended.push(rank),
            TimesliceEvent::Aborted { .. } => self.aborted.push(rank),
            TimesliceEvent::Refused { missing, .. } => panic!("{missing}"),
            TimesliceEvent::TooLong { bytes, ring } => self.too_long.push((bytes, ring)),
            _ => {}
        }
    }

    fn check_contents(&mut self, rank: Rank, timeslice: u64) {
        for place in 0..self.shape.inputs as usize {
            let span = self.drivers[rank.index()].engine_mut().contribution(place, timeslice);
            let span = span.expect("a complete timeslice has all contributions");
            let region = self.fabric.wire(rank).region(span.region).expect("the rings are there");
            let bytes = &region[span.range_in(region.len()).expect("within the rings")];
            let wrong = bytes
                .iter()
                .enumerate()
                .find(|(at, byte)| **byte != content(place, timeslice, *at));
            assert_eq!(wrong, None, "timeslice {timeslice}, input {place}");
        }
    }

    fn record(&mut self, rank: u32) -> TimesliceRecord {
        let now = self.fabric.now();
        self.drivers[rank as usize].engine_mut().take_record(now).expect("it has a role")
    }
}

const BUILDING: [Policy; 4] = [Policy::BestEffort, Policy::Offset, Policy::Dfs, Policy::Token];
const LATE: LocalNs = LocalNs(60_000_000_000);

#[test]
fn job__every_byte_comes_to_its_timeslice_once_and_the_stream_ends() {
    for policy in BUILDING {
        for (inputs, builders, ring) in [(1, 1, 600), (3, 2, 700), (2, 5, 4096), (8, 8, 2000)] {
            let shape = JobShape {
                inputs,
                builders,
                policy,
                ring,
                release: ReleasePolicy::ByCommand,
                ..SMALL
            };
            let mut job = TimesliceJob::new(shape, ContributionSource::Given);
            job.feed(200, |timeslice| 1 + (timeslice * 37 % 500) as u32);
            job.run(LATE);
            assert_eq!(job.built.len(), 200, "{policy:?}, {inputs} to {builders}");
            let right = |(timeslice, rank): (&u64, &Rank)| {
                timeslice % u64::from(builders) == u64::from(rank.0 - inputs)
            };
            assert!(job.built.iter().all(right), "builders take turns");
            assert_eq!(
                job.ended.len() as u32,
                inputs + builders,
                "{policy:?}: everybody knows of the end"
            );
        }
    }
}

#[test]
fn job__a_narrow_transmit_queue_delays_and_loses_nothing() {
    for policy in BUILDING {
        let shape = JobShape {
            inputs: 4,
            builders: 4,
            policy,
            room: 2,
            release: ReleasePolicy::ByCommand,
            ..SMALL
        };
        let mut job = TimesliceJob::new(shape, ContributionSource::Given);
        job.feed(60, |timeslice| 100 + timeslice as u32);
        job.run(LATE);
        assert_eq!((job.built.len(), job.ended.len()), (60, 8), "{policy:?}");
    }
}

#[test]
fn job__a_builder_that_keeps_its_timeslices_stops_its_inputs_at_the_ring() {
    for policy in BUILDING {
        let shape = JobShape { inputs: 2, builders: 1, policy, ring: 1000, ..SMALL };
        let mut job = TimesliceJob::new(
            JobShape { release: ReleasePolicy::ByCommand, ..shape },
            ContributionSource::Given,
        );
        // Nobody hears of completion: nothing is ever released.
        job.feed(50, |_| 300);
        for _ in 0..2000 {
            for rank in 0..3 {
                let _ = job.drivers[rank].step(job.fabric.wire(Rank(rank as u32)), &mut |_| {});
            }
            let Some(next) = job.fabric.next_arrival() else { break };
            job.fabric.advance(next);
        }
        job.fabric.advance(job.fabric.now() + Nanos(1000));
        let TimesliceRecord::Input(input) = job.record(0) else { panic!("rank 0 is an input") };
        assert_eq!(
            (input.contributions, input.released),
            (3, 0),
            "{policy:?}: three contributions of 300 fit 1000"
        );
        assert!(input.blocked[Cause::NoCredit as usize] > Nanos(0));
    }
}

#[test]
fn job__an_endless_source_needs_no_commands() {
    let memory = Span { region: RegionId(0), offset: 0, length: 512 };
    let sizes = ContributionSizes::Between(Bytes(100), Bytes(500), RandomKey::new(5));
    for policy in BUILDING {
        let mut job = TimesliceJob::new(
            JobShape { policy, ..SMALL },
            ContributionSource::Endless(memory, sizes),
        );
        (0..3).for_each(|rank| job.command(rank, TimesliceCommand::Begin));
        job.run(LocalNs(2_000_000));
        let TimesliceRecord::Builder(builder) = job.record(3) else {
            panic!("rank 3 is a builder")
        };
        assert!(builder.timeslices > 100, "{policy:?}: {builder:?}");
        assert_eq!(builder.doubled + builder.strangers, 0);
        let expected: u64 = (0..builder.timeslices).map(|row| 3 * sizes.length_at(row * 2).0).sum();
        assert!(builder.bytes >= expected, "{policy:?}: at least what is complete has landed");
        let reached = |job: &mut TimesliceJob, rank: usize| {
            job.drivers[rank].engine_mut().reached().expect("it is an input")
        };
        let timeslice = (0..3).map(|rank| reached(&mut job, rank)).max().expect("three inputs");
        (0..3).for_each(|rank| job.command(rank, TimesliceCommand::Finish { timeslice }));
        job.run(LATE);
        assert_eq!(job.ended.len(), 5, "{policy:?}");
    }
}

#[test]
fn job__raw_writes_are_counted_and_build_nothing() {
    let memory = Span { region: RegionId(0), offset: 0, length: 512 };
    let source = ContributionSource::Endless(memory, ContributionSizes::Constant(Bytes(512)));
    let mut job = TimesliceJob::new(JobShape { policy: Policy::Raw, ..SMALL }, source);
    (0..3).for_each(|rank| job.command(rank, TimesliceCommand::Begin));
    job.run(LocalNs(100_000));
    let TimesliceRecord::Builder(builder) = job.record(4) else { panic!("rank 4 is a builder") };
    assert!(builder.contributions > 50);
    assert_eq!((builder.bytes, builder.timeslices), (builder.contributions * 512, 0));
}

#[test]
fn job__puts_are_taken_in_copied_or_fetched_and_none_is_lost() {
    for (sizes, messages) in
        [(ContributionSizes::Constant(Bytes(512)), 1), (ContributionSizes::Mixed(Bytes(20_000)), 4)]
    {
        let length = sizes.length_at(0).0;
        let memory = Span { region: RegionId(0), offset: 0, length: length as u32 };
        let shape = JobShape { policy: Policy::Put, ring: 1 << 16, ..SMALL };
        let mut job = TimesliceJob::new(shape, ContributionSource::Endless(memory, sizes));
        (0..3).for_each(|rank| job.command(rank, TimesliceCommand::Begin));
        job.run(LocalNs(200_000));
        let reached = |job: &mut TimesliceJob, rank: usize| {
            job.drivers[rank].engine_mut().reached().expect("it is an input")
        };
        let timeslice = (0..3).map(|rank| reached(&mut job, rank)).max().expect("three inputs");
        (0..3).for_each(|rank| job.command(rank, TimesliceCommand::Finish { timeslice }));
        job.run(LATE);
        assert_eq!(job.ended.len(), 5, "{sizes:?}: every put was acknowledged");
        let mut records = (3..5).map(|rank| match job.record(rank) {
            TimesliceRecord::Builder(builder) => builder,
            TimesliceRecord::Input(_) => panic!("rank {rank} is a builder"),
        });
        assert!(records.all(|builder| {
            let expected = builder.contributions / messages * length;
            builder.contributions > 50 && builder.bytes == expected && builder.strangers == 0
        }));
    }
}

#[test]
fn job__an_abort_reaches_everybody_and_silences_them() {
    let memory = Span { region: RegionId(0), offset: 0, length: 512 };
    let mut job = TimesliceJob::new(
        SMALL,
        ContributionSource::Endless(memory, ContributionSizes::Constant(Bytes(64))),
    );
    (0..3).for_each(|rank| job.command(rank, TimesliceCommand::Begin));
    job.run(LocalNs(50_000));
    job.command(1, TimesliceCommand::Abort);
    job.run(LATE);
    let mut aborted = job.aborted.clone();
    aborted.sort();
    assert_eq!(aborted, (0..5).map(Rank).collect::<Vec<_>>());
    assert_eq!(job.fabric.next_arrival(), None);
}

#[test]
fn job__a_token_builder_lets_in_no_more_than_its_window() {
    let memory = Span { region: RegionId(0), offset: 0, length: 512 };
    let shape = JobShape { inputs: 8, builders: 1, window: Window::fixed(3), ..SMALL };
    let mut job = TimesliceJob::new(
        shape,
        ContributionSource::Endless(memory, ContributionSizes::Constant(Bytes(64))),
    );
    (0..8).for_each(|rank| job.command(rank, TimesliceCommand::Begin));
    for steps in 1..400 {
        job.run(LocalNs(steps * 500));
        let reached = |driver: &mut Driver<TimesliceNode>| {
            driver.engine_mut().reached().expect("it is an input")
        };
        let sent: Vec<_> = job.drivers[..8].iter_mut().map(reached).collect();
        let spread = sent.iter().max().expect("eight") - sent.iter().min().expect("eight");
        assert!(spread <= 2, "inputs stay within a row of each other: {sent:?}");
    }
}

#[test]
fn job__a_contribution_longer_than_a_ring_is_reported_once_by_its_input() {
    let mut job = TimesliceJob::new(JobShape { ring: 100, ..SMALL }, ContributionSource::Given);
    job.feed(4, |timeslice| if timeslice < 2 { 50 } else { 101 });
    job.run(LATE);
    assert_eq!(job.too_long, [(101, 100); 3]);
    assert_eq!(job.built.len(), 2);
}

/// Gives `rank` an arrival that no peer of this program would send; what it then counts as strange.
fn strange(job: &mut TimesliceJob, rank: u32, arrival: Arrival<'_>) -> u64 {
    let mut out = Out::with_limit(64);
    let now = job.fabric.now();
    let _ = job.drivers[rank as usize].engine_mut().input(now, Input::Arrival(arrival), &mut out);
    match job.record(rank) {
        TimesliceRecord::Input(input) => input.strangers,
        TimesliceRecord::Builder(builder) => builder.strangers + builder.doubled,
    }
}

#[test]
fn job__nonsense_from_a_peer_changes_nothing_but_a_count() {
    for policy in BUILDING {
        let mut job = TimesliceJob::new(JobShape { policy, ..SMALL }, ContributionSource::Given);
        let heads = (0..=9_u8).flat_map(|kind| [0, 0xff, 0x7f].map(|fill| (kind, fill)));
        job.run(LocalNs(5_000));
        for (kind, fill) in heads {
            for length in 0..26 {
                let mut head = std::vec![fill; length];
                head.iter_mut().take(1).for_each(|first| *first = kind);
                head.extend(job.shape.run.to_le_bytes());
                // An abort is no nonsense, and ends everything; a hello of another start is
                // answered.
                if kind == 6 || kind == 1 || kind == 4 {
                    continue;
                }
                for (from, to) in [(3, 0), (0, 3), (1, 0), (4, 3)] {
                    let at = Stamp::Taken(job.fabric.now());
                    let (path, class) = (PathId(0), Some(Class::Control));
                    let body = Span::EMPTY;
                    let datagram = Datagram {
                        from: Rank(from),
                        path,
                        class,
                        congestion_marked: false,
                        at,
                        head: &head,
                        body,
                    };
                    strange(&mut job, to, Arrival::Datagram(datagram));
                }
            }
        }
        for immediate in [u64::MAX, 0x7fff_ffff, 1, 0x00ff_ffff_0000_0000, 0x0300_0000_0000_0000] {
            let into = Span { region: RegionId(0), offset: u64::MAX, length: u32::MAX };
            let at = Stamp::Taken(job.fabric.now());
            let landed = Arrival::Landed { from: Rank(0), into, immediate, at };
            let strangers = strange(&mut job, 3, landed);
            assert!(
                strangers > 0 || immediate == 0x0300_0000_0000_0000,
                "{policy:?} {immediate:x}"
            );
        }
    }
}

#[test]
fn job__what_is_left_of_an_earlier_run_is_no_part_of_the_next() {
    for policy in BUILDING {
        let mut job =
            TimesliceJob::new(JobShape { run: 1, policy, ..SMALL }, ContributionSource::Given);
        job.run(LocalNs(5_000));
        // An end that an input repeated because its answer was late, and that it was late itself;
        // and a write of a rank that was out.
        let end =
            [TimesliceFrame::End { life: 0, timeslices: 9 }.encode().bytes(), &0_u16.to_le_bytes()]
                .concat();
        let word = WriteImmediate::new(0, 0, 1, [0; 3]).word();
        for (input, builder) in (0..3).flat_map(|input| [(input, 3), (input, 4)]) {
            let at = Stamp::Taken(job.fabric.now());
            let (path, class, body) = (PathId(0), Some(Class::Control), Span::EMPTY);
            let datagram = Datagram {
                from: Rank(input),
                path,
                class,
                congestion_marked: false,
                at,
                head: &end,
                body,
            };
            strange(&mut job, builder, Arrival::Datagram(datagram));
            let into = Span { region: RegionId(0), offset: 0, length: 8 };
            strange(
                &mut job,
                builder,
                Arrival::Landed { from: Rank(input), into, immediate: word, at },
            );
        }
        job.run(LocalNs(20_000));
        assert_eq!((job.built.len(), job.ended.len()), (0, 0), "{policy:?}");
        job.feed(40, |_| 100);
        job.run(LATE);
        assert_eq!((job.built.len(), job.ended.len()), (40, 5), "{policy:?}");
    }
}

#[test]
fn job__nonsense_about_members_decides_nothing() {
    let mut job = TimesliceJob::new(
        JobShape { heartbeat: Some(Nanos(20_000)), ..SMALL },
        ContributionSource::Given,
    );
    job.run(LocalNs(50_000));
    for (kind, fill) in (16..=24_u8).flat_map(|kind| [0, 0xff, 0x7f].map(|fill| (kind, fill))) {
        for length in 0..70 {
            let mut head = std::vec![fill; length];
            head.iter_mut().take(1).for_each(|first| *first = kind);
            head.extend(job.shape.run.to_le_bytes());
            for (from, to) in [(3, 0), (0, 3), (1, 0), (4, 3)] {
                let at = Stamp::Taken(job.fabric.now());
                let (path, class, body) = (PathId(0), Some(Class::Control), Span::EMPTY);
                let datagram = Datagram {
                    from: Rank(from),
                    path,
                    class,
                    congestion_marked: false,
                    at,
                    head: &head,
                    body,
                };
                strange(&mut job, to, Arrival::Datagram(datagram));
            }
        }
    }
    job.run(LocalNs(1_000_000));
    assert!(job.drivers.iter_mut().all(|driver| driver.engine_mut().journal().epoch() == 0));
    job.feed(40, |_| 100);
    job.run(LocalNs(5_000_000));
    assert_eq!((job.built.len(), job.ended.len()), (40, 5));
}

#[test]
fn job__watching_costs_each_rank_three_messages_in_an_interval() {
    let mut job = TimesliceJob::new(
        JobShape { heartbeat: Some(Nanos(100_000)), ..SMALL },
        ContributionSource::Given,
    );
    job.feed(40, |_| 100);
    job.run(LocalNs(10_050_000));
    let sent = |job: &mut TimesliceJob| {
        (0..5).map(|rank| job.fabric.wire(Rank(rank)).counters().sent).collect::<Vec<_>>()
    };
    let before = sent(&mut job);
    job.run(LocalNs(20_050_000));
    let more: Vec<u64> =
        sent(&mut job).iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(more, [300; 5]);
}
