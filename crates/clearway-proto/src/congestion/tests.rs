//! Whole nodes over the memory wire in virtual time: every victim, every congestor, with and
//! without loss.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use crate::stats::{Histogram, Quantile};
use crate::wire::memory::{FaultInjection, MemoryConfig, MemoryFabric};
use crate::wire::{
    Arrival, Datagram, Driver, Effect, Engine, Input, Out, PathId, RegionId, SHORT_HEAD, Span,
    Stamp, Status, Wire,
};

const MS: Nanos = Nanos::from_millis(1);
/// Those that iterate, all together.
const CLOSED: [VictimKind; 5] = [
    VictimKind::BandwidthSync,
    VictimKind::Barrier,
    VictimKind::Allreduce,
    VictimKind::Allgather,
    VictimKind::Alltoall,
];

/// All ranks of a job on one memory fabric.
struct CongestionJob {
    fabric: MemoryFabric,
    drivers: Vec<Driver<CongestionNode>>,
    burns: Vec<Nanos>,
    /// A rank that gets no processor until then.
    asleep: Option<(Rank, LocalNs)>,
    /// A rank whose blocks say that they are another's.
    liar: Option<Rank>,
}

impl CongestionJob {
    fn new(config: MemoryConfig) -> Self {
        Self::with_bodies(config, u32::MAX)
    }

    /// Creates a job in which no body is longer than `longest`.
    fn with_bodies(config: MemoryConfig, longest: u32) -> Self {
        let mut fabric = MemoryFabric::new(config);
        let drivers = (0..config.ranks).map(|rank| {
            let wire = fabric.wire(Rank(rank));
            let body_max =
                wire.capabilities().body_max_with_head(SHORT_HEAD).min(longest as usize) as u32;
            let region = wire.register(Bytes(u64::from(body_max))).expect("there is room");
            let payload = Span { region, offset: 0, length: body_max };
            let shared_clock = wire.capabilities().shared_clock;
            let key = RandomKey::new(7);
            let node = CongestionNode::new(CongestionConfig {
                rank: Rank(rank),
                payload,
                body_max,
                memory: None,
                shared_clock,
                key,
            });
            Driver::boot(node, LocalNs(0), 0)
        });
        let drivers = drivers.collect();
        Self { fabric, drivers, burns: Vec::new(), asleep: None, liar: None }
    }

    /// Gives every rank its phase and runs until all have ended; returns the records by rank.
    fn run(&mut self, phase_of: impl Fn(Rank) -> Phase) -> Vec<PhaseRecord> {
        let start = self.fabric.now();
        for (i, driver) in self.drivers.iter_mut().enumerate() {
            let me = Rank(i as u32);
            driver.command(start, phase_of(me));
            let length = driver.engine_mut().victim().map_or(Bytes(0), VictimTask::memory);
            if length.0 > 0 {
                let wire = self.fabric.wire(me);
                let region = wire.register(length).expect("there is room");
                let owner = if self.liar == Some(me) { Rank(me.0 + 1) } else { me };
                VictimTask::fill(wire.region_mut(region).expect("registered"), owner);
                driver.engine_mut().give_memory(Span {
                    region,
                    offset: 0,
                    length: length.0 as u32,
                });
            }
        }
        let mut records: Vec<Option<PhaseRecord>> = self.drivers.iter().map(|_| None).collect();
        while records.iter().any(Option::is_none) {
            let now = self.fabric.now();
            let mut wake: Option<LocalNs> = None;
            for (i, driver) in self.drivers.iter_mut().enumerate() {
                if let Some((rank, until)) = self.asleep
                    && rank.index() == i
                    && now < until
                {
                    wake = [wake, Some(until)].into_iter().flatten().min();
                    continue;
                }
                let burns = &mut self.burns;
                let progress = driver.step(self.fabric.wire(Rank(i as u32)), &mut |event| {
                    if let CongestionEvent::Burn(length) = event {
                        burns.push(length);
                    }
                });
                if let Some(record) = driver.engine_mut().take_record() {
                    records[i] = Some(record);
                }
                wake = [wake, progress.next].into_iter().flatten().min();
            }
            let next = [wake, self.fabric.next_arrival()].into_iter().flatten().min();
            self.fabric.advance(next.unwrap_or(now).max(now));
            assert!(next.is_some() || records.iter().all(Option::is_some), "a rank is stuck");
        }
        records.into_iter().flatten().collect()
    }
}

fn phase(length: Nanos, victim: Option<VictimTask>, loads: Vec<LoadTask>) -> Phase {
    let slice = Nanos::from_millis(100);
    Phase {
        number: 3,
        begin: LocalNs(1_000_000_000),
        length,
        drain: MS.times(300),
        slice,
        overhead: Bytes(58),
        victim,
        loads,
    }
}

fn ring(n: u32) -> Vec<Rank> {
    (0..n).map(Rank).collect()
}

fn victim(kind: VictimKind, n: u32, interval: Nanos) -> Option<VictimTask> {
    Some(VictimTask { kind, ring: ring(n), class: Class::LowLatency, interval })
}

fn samples(records: &[PhaseRecord], metric: Metric) -> (u64, u64, u64) {
    let all = records
        .iter()
        .flat_map(|r| &r.series)
        .filter(|s| s.metric == metric)
        .flat_map(|s| &s.slices);
    all.fold((0, u64::MAX, 0), |(count, low, high), (_, h)| {
        (count + h.count(), low.min(h.min().unwrap_or(u64::MAX)), high.max(h.max().unwrap_or(0)))
    })
}

/// Iterations that took for ever.
fn never(record: &PhaseRecord) -> u64 {
    record.series.iter().flat_map(|s| &s.slices).map(|(_, h)| h.infinite()).sum()
}

fn sent(records: &[PhaseRecord]) -> u64 {
    records.iter().flat_map(|r| &r.sent).flat_map(|s| &s.slices).map(|(_, n)| n).sum()
}

#[test]
fn ping__every_probe_and_answer_is_timed_one_way() {
    let mut job = CongestionJob::new(MemoryConfig::lossless(3));
    let records = job.run(|_| phase(MS.times(1000), victim(VictimKind::Ping, 3, MS), vec![]));
    let (count, low, high) = samples(&records, Metric::OneWay);
    // 3 ranks x 2 neighbours x about 1000 probes, each answered.
    assert!((11_400..12_600).contains(&count), "{count}");
    assert_eq!(count, sent(&records));
    assert_eq!((low, high), (10_000, 10_000));
    let (round_trips, low, high) = samples(&records, Metric::RoundTrip);
    assert_eq!((round_trips * 2, low, high), (count, 20_000, 20_000));
    assert!(records.iter().all(|r| r.foreign == 0 && r.number == 3));
}

#[test]
fn ping__what_is_lost_is_sent_and_not_received() {
    let config = MemoryConfig { loss_per_million: 50_000, seed: 4, ..MemoryConfig::lossless(2) };
    let records = CongestionJob::new(config)
        .run(|_| phase(MS.times(4000), victim(VictimKind::Get, 2, MS), vec![]));
    let lost = sent(&records) - samples(&records, Metric::OneWay).0;
    let share = lost as f64 / sent(&records) as f64;
    assert!((0.035..0.065).contains(&share), "{share}");
}

#[test]
fn ping__a_rank_that_was_late_sends_what_it_owes_one_by_one() {
    let payload = Span { region: RegionId(2), offset: 0, length: 4096 };
    let config = CongestionConfig {
        rank: Rank(0),
        payload,
        body_max: 4096,
        shared_clock: None,
        memory: None,
        key: RandomKey::new(7),
    };
    let mut node = CongestionNode::new(config);
    let mut out = Out::with_limit(256);
    let mut sent = |node: &mut CongestionNode, now: LocalNs, input: Input<'_, Phase>| {
        out.clear();
        let _ = node.input(now, input, &mut out);
        out.effects().len()
    };
    let phase = phase(MS.times(150), victim(VictimKind::Ping, 2, MS), vec![]);
    let late = phase.begin + MS.times(100);
    let (quarter, end) = (Nanos(MS.0 / 4), phase.begin + phase.length);
    sent(&mut node, LocalNs(0), Input::Command(phase));
    assert_eq!(sent(&mut node, late, Input::Tick), 1);
    assert_eq!(node.deadline(), Some(late + quarter));
    assert_eq!(sent(&mut node, late, Input::Tick), 0);
    assert_eq!(sent(&mut node, late + quarter, Input::Tick), 1);
    assert_eq!(sent(&mut node, end, Input::Tick), 64, "but nothing is left out");
}

#[test]
fn ping__schedules_of_ranks_differ_and_repeat_with_the_seed() {
    let run = || {
        CongestionJob::new(MemoryConfig::lossless(2))
            .run(|_| phase(MS.times(200), victim(VictimKind::Ping, 2, MS), vec![]))
    };
    let (a, b) = (run(), run());
    assert_eq!(a, b);
    assert_ne!(a[0].series, a[1].series);
}

fn iterations_of(kind: VictimKind, ranks: u32, loss_per_million: u32) -> Vec<PhaseRecord> {
    let config = MemoryConfig { loss_per_million, seed: 9, ..MemoryConfig::lossless(ranks) };
    CongestionJob::new(config)
        .run(|_| phase(MS.times(2000), victim(kind, ranks, MS.times(2)), vec![]))
}

fn closed_loops_finish(ranks: impl IntoIterator<Item = u32> + Clone) {
    for kind in CLOSED {
        for ranks in ranks.clone() {
            let records = iterations_of(kind, ranks, 0);
            let (count, low, _) = samples(&records, Metric::Iteration);
            assert!(count >= 990 * u64::from(ranks), "{kind:?} on {ranks}: {count}");
            assert!(low >= 10_000, "{kind:?} on {ranks}: {low} ns is faster than one latency");
            assert!(records.iter().all(|r| r.foreign == 0 && r.resent == 0), "{kind:?} on {ranks}");
        }
    }
}

#[test]
fn iterations__closed_loops_finish_on_any_number_of_ranks() {
    closed_loops_finish([2, 3, 4, 5]);
}

#[test]
fn iterations__closed_loops_finish_on_more_ranks() {
    if cfg!(debug_assertions) {
        return std::eprintln!("skipped: takes seconds; `cargo xtask swarm` runs it");
    }
    closed_loops_finish(6..=12);
}

#[test]
fn iterations__loss_delays_and_never_stops_them() {
    for kind in CLOSED {
        for ranks in [2, 5, 6] {
            let records = iterations_of(kind, ranks, 10_000);
            let per_rank: Vec<u64> = records
                .iter()
                .map(|r| samples(core::slice::from_ref(r), Metric::Iteration).0)
                .collect();
            // Ranks stay within one iteration of each other: nobody ran ahead of a loss, nobody was
            // left behind.
            let (low, high) =
                (per_rank.iter().min().expect("ranks"), per_rank.iter().max().expect("ranks"));
            assert!(*low >= 20 && high - low <= 2, "{kind:?} on {ranks}: {per_rank:?}");
            assert!(records.iter().all(|r| r.foreign == 0), "{kind:?} on {ranks}");
            assert!(records.iter().map(|r| r.resent).sum::<u64>() > 0);
        }
    }
}

#[test]
fn iterations__a_rank_that_woke_up_late_once_is_not_late_for_ever() {
    for kind in CLOSED {
        let p99 = |asleep| {
            let mut job = CongestionJob::new(MemoryConfig::lossless(3));
            job.asleep = asleep;
            let records = job.run(|_| phase(MS.times(2000), victim(kind, 3, MS.times(8)), vec![]));
            let iterations =
                records.iter().flat_map(|r| &r.series).filter(|s| s.metric == Metric::Iteration);
            let times = iterations.flat_map(|s| &s.slices).map(|(_, times)| times);
            Histogram::merged(times).quantile(Quantile::P99).finite().expect("samples")
        };
        let late = p99(Some((Rank(1), LocalNs(5_000_000))));
        assert_eq!(
            late,
            p99(None),
            "{kind:?}: a delay of 5 ms at the beginning shows in later iterations"
        );
    }
}

#[test]
fn iterations__a_partner_that_never_answers_is_an_infinite_time() {
    let mut job = CongestionJob::new(MemoryConfig::lossless(3));
    // Rank 2 is in everyone's ring and takes no part.
    let task = |me: Rank| if me == Rank(2) { None } else { victim(VictimKind::Allreduce, 3, MS) };
    let records = job.run(|me| phase(MS.times(3000), task(me), vec![]));
    for record in &records[..2] {
        assert_eq!(
            (never(record), samples(core::slice::from_ref(record), Metric::Iteration).0),
            (1, 1)
        );
    }
}

#[test]
fn iterations__loss_copies_and_late_messages_change_no_result() {
    let fault_injection = FaultInjection { doubled: 50_000, late: 50_000, damaged: 0 };
    for kind in [VictimKind::Barrier, VictimKind::Allreduce, VictimKind::Allgather] {
        for ranks in [2, 3, 6, 8, 13] {
            let config = MemoryConfig {
                loss_per_million: 20_000,
                fault_injection,
                seed: 5,
                ..MemoryConfig::lossless(ranks)
            };
            // Two blocks in a message: the longest of thirteen ranks are three messages.
            let mut job = CongestionJob::with_bodies(config, 16);
            let records =
                job.run(|_| phase(MS.times(2000), victim(kind, ranks, MS.times(2)), vec![]));
            let (count, ..) = samples(&records, Metric::Iteration);
            assert!(count >= 15 * u64::from(ranks), "{kind:?} on {ranks}: {count}");
            assert!(records.iter().all(|r| r.foreign == 0), "{kind:?} on {ranks}");
            assert!(records.iter().map(|r| r.resent).sum::<u64>() > 0, "{kind:?} on {ranks}");
        }
    }
}

#[test]
fn allgather__takes_as_many_steps_as_messages_double() {
    for (ranks, steps) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)] {
        let records = iterations_of(VictimKind::Allgather, ranks, 0);
        let (_, low, high) = samples(&records, Metric::Iteration);
        assert_eq!((low, high), (steps * 10_000, steps * 10_000), "{ranks}");
    }
}

#[test]
fn allgather__a_wrong_block_is_foreign_and_takes_for_ever() {
    let mut job = CongestionJob::new(MemoryConfig::lossless(5));
    job.liar = Some(Rank(3));
    let records =
        job.run(|_| phase(MS.times(100), victim(VictimKind::Allgather, 5, MS.times(2)), vec![]));
    for record in &records {
        let iterations = samples(core::slice::from_ref(record), Metric::Iteration).0;
        assert!(
            iterations >= 48 && never(record) == iterations && record.foreign == iterations,
            "{record:?}"
        );
    }
}

#[test]
fn allgather__without_memory_ends_no_iteration() {
    let mut job = CongestionJob::new(MemoryConfig::lossless(2));
    for (me, driver) in (0..).map(Rank).zip(&mut job.drivers) {
        driver.command(
            LocalNs(0),
            phase(MS.times(100), victim(VictimKind::Allgather, 2, MS), vec![]),
        );
        driver.step(job.fabric.wire(me), &mut |_| {});
    }
    job.fabric.advance(LocalNs(2_000_000_000));
    for (me, driver) in (0..).map(Rank).zip(&mut job.drivers) {
        driver.step(job.fabric.wire(me), &mut |_| {});
        let record = driver.engine_mut().take_record().expect("the phase is over");
        assert_eq!(samples(&[record], Metric::Iteration).0, 0);
    }
}

/// Rank 0 of two in an operation that it began, and what it answers to rank 1.
struct RankZero {
    node: CongestionNode,
    now: LocalNs,
    out: Out<CongestionEvent>,
}

impl RankZero {
    fn new(kind: VictimKind) -> Self {
        let payload = Span { region: RegionId(2), offset: 0, length: 4096 };
        let memory = Some(Span { region: RegionId(3), ..payload });
        let key = RandomKey::new(7);
        let config = CongestionConfig {
            rank: Rank(0),
            payload,
            body_max: 4096,
            memory,
            shared_clock: None,
            key,
        };
        let phase = phase(MS.times(100), victim(kind, 2, MS), vec![]);
        let (node, now, out) = (CongestionNode::new(config), phase.begin, Out::with_limit(64));
        let mut half = Self { node, now, out };
        half.give(Input::Command(phase));
        half.give(Input::Tick);
        half
    }

    fn give(&mut self, input: Input<'_, Phase>) -> usize {
        self.out.clear();
        let _ = self.node.input(self.now, input, &mut self.out);
        self.out.effects().len()
    }

    /// Gives it `frame` with `body` bytes from rank `from`; how much it does then.
    fn handle_frame(&mut self, from: u32, frame: CongestionFrame, body: u32) -> usize {
        let head = frame.encode(Class::LowLatency, 3);
        let body = Span { region: RegionId::RECEIVE, offset: 0, length: body };
        let (class, at) = (Some(Class::LowLatency), Stamp::Taken(self.now));
        let (from, path, congestion_marked) = (Rank(from), PathId(0), false);
        let datagram =
            Datagram { from, path, class, congestion_marked, at, head: head.bytes(), body };
        self.give(Input::Arrival(Arrival::Datagram(datagram)))
    }

    /// Ends the phase and returns samples, those that took for ever, and what was foreign.
    fn record(mut self) -> (u64, u64, u64) {
        self.now += MS.times(10_000);
        self.give(Input::Tick);
        let record = self.node.take_record().expect("the phase is over");
        (
            samples(core::slice::from_ref(&record), Metric::Iteration).0,
            never(&record),
            record.foreign,
        )
    }
}

#[test]
fn barrier__one_that_somebody_left_alone_is_foreign_and_takes_for_ever() {
    // What rank 1 says when it has come to its first barrier, and when it is in none.
    let (come, left) = (1_000_004, 1);
    for (value, expected) in [(come, (1, 0, 0)), (left, (1, 1, 1))] {
        let mut half = RankZero::new(VictimKind::Barrier);
        half.handle_frame(1, CongestionFrame::Sum { iteration: 1, step: 0, value }, 0);
        assert_eq!(half.record(), expected);
    }
}

#[test]
fn collective__what_no_rank_sends_changes_nothing() {
    let foreign = [
        (1, CongestionFrame::Sum { iteration: 1, step: 0, value: 0 }, 0),
        (1, CongestionFrame::Blocks { iteration: 1, step: 1, part: 0 }, 8),
        (1, CongestionFrame::Blocks { iteration: 1, step: 255, part: 0 }, 8),
        (1, CongestionFrame::Blocks { iteration: 1, step: 0, part: 1 }, 8),
        (1, CongestionFrame::Blocks { iteration: 1, step: 0, part: 255 }, 8),
        (1, CongestionFrame::Blocks { iteration: 1, step: 0, part: 0 }, 16),
        (1, CongestionFrame::Blocks { iteration: 3, step: 0, part: 0 }, 8),
        (2, CongestionFrame::Blocks { iteration: 1, step: 0, part: 0 }, 8),
        (1, CongestionFrame::Question { iteration: 1, step: 1 }, 0),
        (1, CongestionFrame::Question { iteration: 3, step: 0 }, 0),
        (9, CongestionFrame::Question { iteration: 1, step: 0 }, 0),
        (1, CongestionFrame::Segment { iteration: 1, index: 0, count: 1 }, 8),
    ];
    let mut half = RankZero::new(VictimKind::Allgather);
    for (from, frame, body) in foreign {
        assert_eq!(half.handle_frame(from, frame, body), 0, "{frame:?}");
    }
    assert_eq!(half.record(), (0, 0, foreign.len() as u64));
}

#[test]
fn collective__a_question_is_answered_when_there_is_something_to_say() {
    let mut half = RankZero::new(VictimKind::Allgather);
    let block = |iteration| CongestionFrame::Blocks { iteration, step: 0, part: 0 };
    let question = |iteration| CongestionFrame::Question { iteration, step: 0 };
    assert_eq!(half.handle_frame(1, question(1), 0), 1, "sent, so again");
    assert_eq!(half.handle_frame(1, question(2), 0), 0, "not begun");
    assert_eq!(half.handle_frame(1, question(0), 0), 0, "never was");
    assert_eq!(half.handle_frame(1, block(1), 8), 2, "kept, and looked at");
    assert_eq!(half.handle_frame(1, block(1), 8), 0, "here already");
    assert_eq!(half.handle_frame(1, block(2), 8), 1, "kept for the next");
    assert_eq!(half.handle_frame(1, block(0), 8), 0, "long over");
    half.now += MS.times(30);
    assert_eq!(half.give(Input::Tick), 0, "waits for nobody");
    assert_eq!(half.record(), (0, 0, 0));
}

fn load_of(kind: CongestorKind, group: &[Rank], me: Rank, intensity: u32) -> Vec<LoadTask> {
    let pressure = LoadIntensity {
        percent: intensity,
        host_rate: BitsPerSec::mega(100),
        window: None,
        burst: None,
    };
    load_under(kind, group, me, pressure)
}

fn load_under(
    kind: CongestorKind,
    group: &[Rank],
    me: Rank,
    pressure: LoadIntensity,
) -> Vec<LoadTask> {
    let kind = kind.load(0, group, me, pressure);
    let task =
        |kind| LoadTask { kind, class: Class::Bulk, from: MS.times(500), until: MS.times(1500) };
    kind.map(task).into_iter().collect()
}

/// Returns the link bytes received per second of load, over all ranks, in bits per second.
fn received(records: &[PhaseRecord]) -> u64 {
    records.iter().flat_map(|r| &r.load).flat_map(|s| &s.slices).map(|s| s.link * 8).sum()
}

#[test]
fn load__every_pattern_offers_its_rate_for_its_second() {
    let group = ring(4);
    for (kind, expected) in [
        (CongestorKind::Incast, 150),
        (CongestorKind::PutIncast, 150),
        (CongestorKind::GetBroadcast, 150),
        (CongestorKind::Permutation, 600),
        (CongestorKind::Alltoall, 600),
        (CongestorKind::Burst, 30),
    ] {
        let config = MemoryConfig { room: 100_000, ..MemoryConfig::lossless(4) };
        let records = CongestionJob::new(config)
            .run(|me| phase(MS.times(2000), None, load_of(kind, &group, me, 150)));
        let mega = received(&records) / 1_000_000;
        assert!(
            mega.abs_diff(expected) <= expected / 50 + 1,
            "{kind:?}: {mega} Mb/s, not {expected}"
        );
        let outside = records
            .iter()
            .flat_map(|r| &r.load)
            .flat_map(|s| &s.slices)
            .any(|s| s.slice < 5 || s.slice > 15);
        assert!(!outside, "{kind:?} sends outside its time");
        assert!(
            records
                .iter()
                .all(|r| r.skipped == Bytes(0) && r.refused == Bytes(0) && r.foreign == 0)
        );
    }
}

#[test]
fn load__bursts_begin_together_and_pauses_are_silent() {
    let group = ring(4);
    let burst = Some(Burst { on: MS.times(20), period: MS.times(200) });
    let pressure =
        LoadIntensity { percent: 150, host_rate: BitsPerSec::mega(100), window: None, burst };
    for kind in [CongestorKind::Incast, CongestorKind::Alltoall, CongestorKind::PutIncast] {
        let config = MemoryConfig { room: 100_000, ..MemoryConfig::lossless(4) };
        let records = CongestionJob::new(config)
            .run(|me| phase(MS.times(2000), None, load_under(kind, &group, me, pressure)));
        // The load is on from 500 to 1500 ms; slices are of 100 ms, and each second one has a burst.
        let slices: BTreeSet<u32> =
            records.iter().flat_map(|r| &r.load).flat_map(|s| &s.slices).map(|s| s.slice).collect();
        assert_eq!(slices, BTreeSet::from([5, 7, 9, 11, 13]), "{kind:?}");
        let steady = load_under(kind, &group, Rank(1), LoadIntensity { burst: None, ..pressure });
        let steady =
            CongestionJob::new(MemoryConfig { room: 100_000, ..MemoryConfig::lossless(4) }).run(
                |me| {
                    let loads = if me == Rank(1) { steady.clone() } else { Vec::new() };
                    phase(MS.times(2000), None, loads)
                },
            );
        let alone = records[1].offered.0 as f64 / steady[1].offered.0 as f64;
        assert!((0.09..0.15).contains(&alone), "{kind:?} offers {alone} of its rate");
    }
}

#[test]
fn load__a_full_transmit_queue_is_waited_for_and_accounted() {
    let group = ring(2);
    // Four messages under way per 10 ms: far less than 100 Mb/s.
    let config = MemoryConfig { room: 4, latency: MS.times(10), ..MemoryConfig::lossless(2) };
    let records = CongestionJob::new(config)
        .run(|me| phase(MS.times(2000), None, load_of(CongestorKind::Incast, &group, me, 100)));
    let sender = &records[1];
    let arrived: u64 = records[0].load.iter().flat_map(|s| &s.slices).map(|s| s.link).sum();
    assert!(arrived > 0 && sender.refused.0 > 0);
    assert_eq!(sender.offered.0, arrived + sender.refused.0 + sender.skipped.0);
}

#[test]
fn load__lost_puts_do_not_stop_a_put_incast() {
    let group = ring(2);
    let config =
        MemoryConfig { loss_per_million: 20_000, room: 10_000, ..MemoryConfig::lossless(2) };
    let loads = |me| load_of(CongestorKind::PutIncast, &group, me, 100);
    let records = CongestionJob::new(config).run(|me| phase(MS.times(2000), None, loads(me)));
    let slices: Vec<u32> =
        records[0].load.iter().flat_map(|s| &s.slices).map(|s| s.slice).collect();
    assert!(slices.contains(&14), "still sending in the last slice: {slices:?}");
}

#[test]
fn load__a_window_and_not_the_schedule_limits_what_is_under_way() {
    let group = ring(2);
    let pressure = LoadIntensity {
        percent: 1000,
        host_rate: BitsPerSec::mega(100),
        window: Some(2),
        burst: None,
    };
    for kind in [CongestorKind::PutIncast, CongestorKind::GetBroadcast] {
        // Two messages of 4 KiB in one round trip of 20 ms, for a second.
        let config =
            MemoryConfig { latency: MS.times(10), room: 1000, ..MemoryConfig::lossless(2) };
        let loads = |me| load_under(kind, &group, me, pressure);
        let records = CongestionJob::new(config).run(|me| phase(MS.times(2000), None, loads(me)));
        let arrived: u64 =
            records.iter().flat_map(|r| &r.load).flat_map(|s| &s.slices).map(|s| s.body).sum();
        assert_eq!(arrived, 2 * 50 * 4096, "{kind:?}");
    }
}

#[test]
fn load__what_has_left_makes_room_in_the_window_of_a_two_sided_flow() {
    let pressure = LoadIntensity {
        percent: 1000,
        host_rate: BitsPerSec::mega(100),
        window: Some(2),
        burst: None,
    };
    let loads = load_under(CongestorKind::Permutation, &ring(2), Rank(1), pressure);
    let payload = Span { region: RegionId(0), offset: 0, length: 4096 };
    let key = RandomKey::new(1);
    let mut node = CongestionNode::new(CongestionConfig {
        rank: Rank(1),
        payload,
        body_max: 4096,
        shared_clock: None,
        memory: None,
        key,
    });
    let mut out = Out::with_limit(256);
    let mut tokens = Vec::new();
    let mut give = |node: &mut CongestionNode, now: u64, input: Input<'_, Phase>| {
        let _ = node.input(LocalNs(now), input, &mut out);
        tokens.extend(out.effects().iter().filter_map(|effect| match effect {
            Effect::Operate(timed) => timed.operation.token(),
            Effect::Notify(_) => None,
        }));
        out.clear();
        tokens.clone()
    };
    give(&mut node, 0, Input::Command(phase(MS.times(2000), None, loads)));
    let load_on = 1_501_000_000;
    let under_way = give(&mut node, load_on, Input::Tick);
    assert_eq!(under_way.len(), 2);
    assert_eq!(give(&mut node, load_on + 1_000_000, Input::Tick).len(), 2, "both are still here");
    let (token, status, at) = (under_way[0], Status::Complete, LocalNs(load_on + 1_000_000));
    give(&mut node, at.0, Input::Arrival(Arrival::Done { token, status, value: 0, at }));
    assert_eq!(give(&mut node, load_on + 1_100_000, Input::Tick).len(), 3);
}

#[test]
fn load__cpu_only_burns_and_sends_nothing() {
    let mut job = CongestionJob::new(MemoryConfig::lossless(2));
    let records = job
        .run(|me| phase(MS.times(2000), None, load_of(CongestorKind::CpuOnly, &ring(2), me, 80)));
    assert_eq!(job.burns.len(), 200);
    assert!(job.burns.iter().all(|burn| *burn == MS.times(8)));
    assert!(records.iter().all(|r| r.load.is_empty()));
}

#[test]
fn node__frames_of_another_phase_are_foreign() {
    let mut job = CongestionJob::new(MemoryConfig::lossless(2));
    let records = job.run(|me| Phase {
        number: me.0,
        ..phase(MS.times(100), victim(VictimKind::Ping, 2, MS), vec![])
    });
    assert!(records.iter().all(|r| r.foreign > 0 && r.marks.is_empty()));
    assert_eq!(samples(&records, Metric::OneWay).0, 0);
}

#[test]
fn record__crosses_a_process_border_unchanged() {
    let config = MemoryConfig { loss_per_million: 10_000, ..MemoryConfig::lossless(3) };
    let loads = |me| load_of(CongestorKind::Incast, &ring(3), me, 20);
    let records = CongestionJob::new(config)
        .run(|me| phase(MS.times(1600), victim(VictimKind::Ping, 3, MS), loads(me)));
    for record in records {
        let text = serde_json::to_string(&record).expect("a record is JSON");
        assert_eq!(serde_json::from_str::<PhaseRecord>(&text).expect("and back"), record);
    }
}

#[test]
fn command__a_phase_that_the_next_one_ends_is_recorded_too() {
    let mut job = CongestionJob::new(MemoryConfig::lossless(1));
    let driver = &mut job.drivers[0];
    let empty = Phase {
        number: 4,
        begin: LocalNs(0),
        drain: Nanos::ZERO,
        ..phase(Nanos::ZERO, None, Vec::new())
    };
    for phase in [phase(MS.times(10_000), None, Vec::new()), empty] {
        driver.command(job.fabric.now(), phase);
    }
    driver.step(job.fabric.wire(Rank(0)), &mut |_| {});
    let records = core::iter::from_fn(|| driver.engine_mut().take_record());
    assert_eq!(records.map(|record| record.number).collect::<Vec<_>>(), [3, 4]);
}
