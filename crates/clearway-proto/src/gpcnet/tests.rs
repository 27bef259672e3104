//! Whole ranks over the memory wire in virtual time: every test, every congestor, with and without
//! loss.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::base::{Class, LocalNs, Nanos, Rank};
use crate::wire::memory::{MemoryConfig, MemoryFabric};
use crate::wire::{Driver, OperationKind, OperationSet, SHORT_HEAD, Span, Wire};

/// The latency of the memory wire in these tests.
const LATENCY: Nanos = Nanos::from_micros(10);

/// All ranks of a job on one memory fabric.
struct GpcnetJob {
    fabric: MemoryFabric,
    drivers: Vec<Driver<GpcnetNode>>,
    number: u32,
}

impl GpcnetJob {
    fn new(config: MemoryConfig) -> Self {
        let operations = OperationSet::from_kinds(&[
            OperationKind::Send,
            OperationKind::Write,
            OperationKind::Read,
        ]);
        Self::with(config, operations)
    }

    fn with(config: MemoryConfig, operations: OperationSet) -> Self {
        let mut fabric = MemoryFabric::new(config);
        let drivers = (0..config.ranks).map(|rank| {
            let wire = fabric.wire(Rank(rank));
            let region = wire.register(MEMORY).expect("there is room");
            let memory = Span { region, offset: 0, length: MEMORY.0 as u32 };
            let node = GpcnetConfig {
                operations,
                ..GpcnetConfig::new(Rank(rank), memory, wire.capabilities())
            };
            Driver::boot(GpcnetNode::new(node), LocalNs(0), 0)
        });
        let drivers = drivers.collect();
        Self { fabric, drivers, number: 0 }
    }

    fn order(&mut self) -> TestParameters {
        self.number += 1;
        let body_max =
            self.fabric.wire(Rank(0)).capabilities().body_max_with_head(SHORT_HEAD) as u32;
        TestParameters {
            number: self.number,
            victim_class: Class::BestEffort,
            congestor_class: Class::BestEffort,
            body_max,
            limit: Nanos::from_secs(100),
            measurements_max: 1,
            rings_max: 2,
            mended: CorrectedDefects::ALL,
        }
    }

    /// Gives the ranks their tasks and runs until all of them are over; returns the records by
    /// rank.
    fn run(&mut self, tasks: &BTreeMap<Rank, Task>) -> BTreeMap<Rank, GpcnetRecord> {
        let start = self.fabric.now();
        for (rank, task) in tasks {
            self.drivers[rank.index()].command(start, task.clone());
        }
        let mut records = BTreeMap::new();
        while records.len() < tasks.len() {
            let now = self.fabric.now();
            let mut wake: Option<LocalNs> = None;
            for (i, driver) in self.drivers.iter_mut().enumerate() {
                let rank = Rank(i as u32);
                let progress = driver.step(self.fabric.wire(rank), &mut |_| ());
                if let Some(record) = driver.engine_mut().take_record() {
                    records.insert(rank, record);
                }
                wake = [wake, progress.next].into_iter().flatten().min();
            }
            let next = [wake, self.fabric.next_arrival()].into_iter().flatten().min();
            assert!(next.is_some() || records.len() == tasks.len(), "a rank is stuck");
            assert!(now < start + Nanos::from_secs(600), "no end in sight");
            self.fabric.advance(next.unwrap_or(now).max(now));
        }
        records
    }

    fn isolated(&mut self, test: Test, slices: &[Vec<Rank>]) -> BTreeMap<Rank, GpcnetRecord> {
        let order = self.order();
        self.run(&order.isolated(test, slices))
    }
}

fn slice(n: u32) -> Vec<Vec<Rank>> {
    [(0..n).map(Rank).collect()].into()
}

fn samples(record: &GpcnetRecord) -> u64 {
    record.times.spectrum.iter().map(|(_, count)| u64::from(count)).sum()
}

fn layout(nodes: usize, each: usize) -> GpcnetLayout {
    let names: Vec<String> = (0..nodes * each).map(|rank| format!("n{:03}", rank / each)).collect();
    GpcnetLayout::by_name(&names)
}

#[test]
fn latency__is_half_of_the_wires_where_nothing_else_costs() {
    for n in [2, 3, 5, 8] {
        let mut job = GpcnetJob::new(MemoryConfig::lossless(n));
        let records = job.isolated(Test::Latency, &slice(n));
        let expected = LATENCY.0 as f64 / 2e3;
        for record in records.values() {
            assert_eq!(samples(record), 400, "two rings of 200 iterations");
            assert_eq!(record.times.blocks, [Nanos(200 * LATENCY.0); 2], "warm-up is not timed");
            assert_eq!(record.failure, None);
        }
        let all: Vec<&GpcnetRecord> = records.values().collect();
        let summary = Summary::from_test(Test::Latency, &all, CorrectedDefects::ALL)
            .expect("there are samples");
        assert_eq!([summary.min, summary.avg, summary.avg_worst, summary.p99], [expected; 4]);
    }
}

#[test]
fn network_tests__each_ends_with_every_iteration_of_every_rank() {
    for n in [2, 5] {
        let mut job = GpcnetJob::new(MemoryConfig::lossless(n));
        for test in Test::NETWORK {
            let counts = test.counts(n as usize);
            let records = job.isolated(test, &slice(n));
            assert_eq!(records.len(), n as usize);
            for record in records.values() {
                assert_eq!(record.failure, None, "{test:?} among {n}");
                assert_eq!(
                    samples(record),
                    u64::from(counts.rings.min(2) * counts.iterations),
                    "{test:?} among {n}"
                );
                assert_eq!(
                    (record.wrong, record.foreign, record.resent),
                    (0, 0, 0),
                    "{test:?} among {n}"
                );
            }
        }
    }
}

#[test]
fn network_tests__each_ends_when_one_message_in_fifty_is_lost() {
    // One-sided operations are never lost on the memory wire.
    for test in Test::NETWORK.into_iter().filter(|test| test.needs().is_none()) {
        let config =
            MemoryConfig { loss_per_million: 20_000, seed: 3, ..MemoryConfig::lossless(5) };
        let mut job = GpcnetJob::new(config);
        let mut order = job.order();
        order.rings_max = 1;
        let records = job.run(&order.isolated(test, &slice(5)));
        for record in records.values() {
            assert_eq!(samples(record), u64::from(test.counts(5).iterations), "{test:?}");
            assert_eq!(record.wrong, 0, "{test:?}");
        }
        let resent: u64 = records.values().map(|record| record.resent).sum();
        assert!(
            resent > 0 || test == Test::Allreduce,
            "{test:?}: reductions repeat themselves, they count nothing"
        );
    }
}

#[test]
fn network_tests__end_where_a_rank_may_have_one_message_under_way() {
    for test in Test::NETWORK {
        let mut job = GpcnetJob::new(MemoryConfig { room: 1, ..MemoryConfig::lossless(4) });
        let mut order = job.order();
        order.rings_max = 1;
        let records = job.run(&order.isolated(test, &slice(4)));
        assert!(
            records.values().all(|record| record.failure.is_none() && record.wrong == 0),
            "{test:?}"
        );
    }
}

#[test]
fn allreduce__takes_one_latency_a_step() {
    let mut job = GpcnetJob::new(MemoryConfig::lossless(8));
    let records = job.isolated(Test::Allreduce, &slice(8));
    // Three steps among eight; warm-up and agreement keep all in step.
    assert!(records.values().all(|record| record.times.spectrum.iter().eq([(3 * LATENCY.0, 200)])));
}

#[test]
fn alltoall__takes_one_latency_for_each_other_rank() {
    for n in [4, 5] {
        let mut job =
            GpcnetJob::new(MemoryConfig { loss_per_million: 0, ..MemoryConfig::lossless(n) });
        let records = job.isolated(Test::Alltoall, &slice(n));
        let times: u64 = records[&Rank(0)].times.blocks.iter().map(|block| block.0).sum();
        assert_eq!(times, 64 * u64::from(n - 1) * LATENCY.0);
    }
}

#[test]
fn limit__ends_a_test_for_all_at_once() {
    for mended in [CorrectedDefects::ALL, CorrectedDefects::NONE] {
        let mut job = GpcnetJob::new(MemoryConfig::lossless(4));
        let mut order = job.order();
        (order.measurements_max, order.rings_max, order.mended) = (50, 2, mended);
        order.limit = Nanos::from_millis(2);
        // A ring of latencies takes 4 ms, and the time is over after two.
        let records = job.run(&order.isolated(Test::Latency, &slice(4)));
        let rings = if mended == CorrectedDefects::ALL { 1 } else { 2 };
        assert!(records.values().all(|record| record.times.blocks.len() == rings), "{mended}");
    }
}

#[test]
fn slices__run_at_the_same_time_and_end_together() {
    let slices = layout(3, 2).all_slices().expect("enough nodes");
    let mut job = GpcnetJob::new(MemoryConfig::lossless(6));
    for test in [Test::Latency, Test::Allreduce] {
        let records = job.isolated(test, &slices);
        assert_eq!(records.len(), 6);
        assert!(records.values().all(|record| record.ranks == 3 && samples(record) >= 200));
    }
}

#[test]
fn congested__victims_wait_for_the_first_pass_and_congestors_end_after_them() {
    for (nodes, loss) in [(15, 0), (10, 5_000)] {
        let draw = layout(nodes, 1).draw(7, CorrectedDefects::NONE).expect("enough nodes");
        for test in Test::LOAD {
            let mut job = GpcnetJob::new(MemoryConfig {
                loss_per_million: loss,
                ..MemoryConfig::lossless(nodes as u32)
            });
            let order = TestParameters { limit: Nanos::from_millis(2), ..job.order() };
            let records = job.run(&order.congested(test, &draw, &|_| true));
            assert_eq!(records.len(), nodes);
            for victim in &draw.victims[0] {
                assert!(samples(&records[victim]) > 0, "{test:?}");
            }
            for group in &draw.groups {
                let has_times = |rank: &Rank| !records[rank].times.blocks.is_empty();
                let sender = group.ranks.last().expect("a group has ranks");
                assert!(
                    has_times(sender) && !records[sender].with_victims.blocks.is_empty(),
                    "{test:?} {group:?}"
                );
                // Only an alltoall has no root.
                assert_eq!(has_times(&group.ranks[0]), group.congestor == Congestor::Alltoall);
                let figures: Vec<&GpcnetRecord> =
                    group.ranks.iter().map(|rank| &records[rank]).collect();
                assert!(
                    Summary::from_congestor(group.congestor, &figures, CorrectedDefects::ALL)
                        .is_some()
                );
            }
        }
    }
}

#[test]
fn congestor__alone_makes_one_pass() {
    let draw = layout(20, 1).draw(7, CorrectedDefects::ALL).expect("enough nodes");
    let mut job = GpcnetJob::new(MemoryConfig::lossless(20));
    for congestor in Congestor::ALL {
        let order = job.order();
        let records = job.run(&order.congestor(congestor, &draw));
        assert_eq!(records.len(), 4);
        assert!(
            records
                .values()
                .all(|record| record.with_victims.blocks.is_empty() && record.failure.is_none())
        );
    }
}

#[test]
fn incast__an_eager_sender_runs_ahead_only_as_published() {
    let draw = layout(20, 1).draw(7, CorrectedDefects::NONE).expect("enough nodes");
    let rate = |mended| {
        let mut job = GpcnetJob::new(MemoryConfig::lossless(20));
        let order = TestParameters { mended, ..job.order() };
        let records = job.run(&order.congestor(Congestor::Incast, &draw));
        let all: Vec<&GpcnetRecord> = records.values().collect();
        Summary::from_congestor(Congestor::Incast, &all, CorrectedDefects::NONE)
            .expect("there are samples")
            .avg
    };
    // Delivered one by one, 4 KiB take a round trip of 20 us: 195.3 MiB/s. Copied and forgotten,
    // far less.
    assert!((rate(CorrectedDefects::ALL) - 195.3).abs() < 0.1);
    assert!(rate(CorrectedDefects::NONE) > 10.0 * 195.3);
}

#[test]
fn refused__what_the_wire_lacks_is_named() {
    let mut job = GpcnetJob::with(
        MemoryConfig::lossless(2),
        OperationSet::from_kinds(&[OperationKind::Send]),
    );
    let failures: Vec<_> =
        Test::NETWORK.map(|test| job.isolated(test, &slice(2))[&Rank(1)].failure).into();
    let expected =
        [None, Some(TestFailure::NoRead), None, Some(TestFailure::NoWrite), None, None, None, None];
    assert_eq!(failures, expected);
}

#[test]
fn run__the_same_twice_gives_the_same_records() {
    let once = || {
        let draw = layout(10, 1).draw(9, CorrectedDefects::ALL).expect("enough nodes");
        let mut job = GpcnetJob::new(MemoryConfig {
            loss_per_million: 10_000,
            seed: 5,
            ..MemoryConfig::lossless(10)
        });
        let order = TestParameters { limit: Nanos::from_millis(2), ..job.order() };
        job.run(&order.congested(Test::Latency, &draw, &|_| true))
    };
    assert_eq!(once(), once());
}
