//! The rule by itself, and jobs in virtual time in which one builder's sink is ten times slower for
//! a while.

use alloc::sync::Arc;
use std::collections::BTreeMap;

use super::*;
use crate::base::{Bytes, Class, LocalNs, Nanos, RandomKey, RandomStream, Rank};
use crate::timeslice::membership::Journal;
use crate::timeslice::{
    ContributionSizes, ContributionSource, Dfs, Policy, ReleasePolicy, SpeedUp, TimesliceCommand,
    TimesliceConfig, TimesliceEvent, TimesliceLayout, TimesliceNode, WriteSlots,
};
use crate::wire::memory::{MemoryConfig, MemoryFabric};
use crate::wire::{Driver, Span, Wire};

/// Lets a window pass in which so much was due and released in each interval by builders that weigh
/// so much.
fn window(
    burdens: &mut LoadEstimator,
    clock: &mut u64,
    sights: [Option<(u64, u64, u32)>; 3],
) -> [BuilderLoad; 3] {
    for _ in 0..WINDOW {
        *clock += 1;
        burdens.interval(|place| {
            sights[place].map(|(due, rate, weight)| BuilderSample {
                due,
                released: rate * *clock,
                weight,
            })
        });
    }
    [0, 1, 2].map(|place| burdens.load_at(place))
}

#[test]
fn interval__who_is_slow_and_has_much_due_is_heavy_after_two_windows() {
    use BuilderLoad::{Heavy, Light, Usual};
    let (mut burdens, mut clock) = (LoadEstimator::new(3), 0);
    let mut window =
        |third| window(&mut burdens, &mut clock, [(2, 10, 16), (2, 10, 16), third].map(Some));
    assert_eq!(window((5, 1, 16)), [Light, Light, Usual], "one window is none");
    assert_eq!(window((5, 1, 16)), [Light, Light, Heavy]);
    assert_eq!(window((4, 1, 16)), [Light, Light, Usual], "not more than twice as much");
    assert_eq!(window((2, 1, 16)), [Light, Light, Light], "its share");
    assert_eq!(window((2, 1, 1)), [Light, Light, Usual]);
    assert_eq!(window((2, 1, 1)), [Light, Light, Heavy], "sixteen times its share");
    assert_eq!(window((0, 1, 1)), [Light, Light, Heavy], "nothing to be seen");
    for _ in 0..3 {
        assert_eq!(window((99, 6, 16)), [Light; 3], "it is fast enough");
    }
}

#[test]
fn interval__who_takes_no_part_is_no_measure() {
    let (mut burdens, mut clock) = (LoadEstimator::new(3), 0);
    let sights = [Some((9, 1, 16)), None, Some((1, 5, 16))];
    window(&mut burdens, &mut clock, sights);
    assert_eq!(
        window(&mut burdens, &mut clock, sights),
        [BuilderLoad::Heavy, BuilderLoad::Usual, BuilderLoad::Light]
    );
}

/// Returns what a builder weighs after each of this many intervals, of which it can do the turns of
/// `able`.
fn course(relief: &mut LoadShedder, weight: &mut u32, able: u32, intervals: u32) -> u32 {
    let mut changes = 0;
    for _ in 0..intervals {
        let burden = if *weight > able { BuilderLoad::Heavy } else { BuilderLoad::Light };
        if let Some(wanted) = relief.interval(*weight, [burden; 4].into_iter()) {
            (*weight, changes) = (wanted, changes + 1);
        }
    }
    changes
}

#[test]
fn interval__a_builder_ten_times_slower_comes_to_a_sixteenth_and_back() {
    let (mut relief, mut weight) = (LoadShedder::new(16), 16);
    assert_eq!(course(&mut relief, &mut weight, 1, 4 * REST), 2);
    assert_eq!(weight, 1);
    let tries = course(&mut relief, &mut weight, 1, 20 * TIMEOUT[1]);
    assert!((10..=44).contains(&tries), "there and back each time: {tries}");
    course(&mut relief, &mut weight, 16, 4 * TIMEOUT[1]);
    assert_eq!(weight, 16);
    assert_eq!(course(&mut relief, &mut weight, 16, 10 * TIMEOUT[1]), 0);
}

#[test]
fn interval__half_of_the_inputs_change_nothing() {
    let mut relief = LoadShedder::new(16);
    let burdens = [BuilderLoad::Heavy, BuilderLoad::Light, BuilderLoad::Heavy, BuilderLoad::Usual];
    assert!((0..10 * REST).all(|_| relief.interval(16, burdens.into_iter()).is_none()));
}

const RANKS: u32 = 4;
const BEAT: Nanos = Nanos::from_micros(20);
/// What a sink takes for a timeslice; the wire takes no time for bytes, so sinks are what limits
/// the job.
const SERVICE: u64 = 10_000;
const RING: u64 = 1024;
const LENGTH: u64 = 64;

/// Four inputs and four builders, each of which hands its timeslices to a sink one after the other.
struct LoadJob {
    fabric: MemoryFabric,
    drivers: Vec<Driver<TimesliceNode>>,
    /// Of each builder: how much longer than the others its sink takes, and when it has done all it
    /// was handed.
    factors: [u64; RANKS as usize],
    busy_until: [u64; RANKS as usize],
    /// Sinks take up to this many times as long as usual, by chance.
    noise: u64,
    stream: RandomStream,
    releases: BTreeMap<(u64, u64), u32>,
    built: u64,
}

impl LoadJob {
    fn new(policy: Policy, dfs: Dfs) -> Self {
        let mut fabric = MemoryFabric::new(MemoryConfig {
            latency: Nanos(500),
            ..MemoryConfig::lossless(2 * RANKS)
        });
        let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect();
        let layout = Arc::new(
            TimesliceLayout::new(ranks(0..RANKS), ranks(RANKS..2 * RANKS), &[])
                .expect("a sound layout"),
        );
        let driver = |rank| {
            let length = RING * u64::from(RANKS);
            let region = fabric.wire(Rank(rank)).register(Bytes(length)).expect("there is room");
            let memory = Span { region, offset: 0, length: LENGTH as u32 };
            let node = TimesliceNode::new(TimesliceConfig {
                rank: Rank(rank),
                run: 0,
                layout: layout.clone(),
                policy,
                window: crate::timeslice::Window { least: 2, most: 8 },
                dfs,
                source: ContributionSource::Endless(
                    memory,
                    ContributionSizes::Constant(Bytes(LENGTH)),
                ),
                slots: WriteSlots::from_policy(policy),
                rings: Span { region, offset: 0, length: length as u32 },
                ring: Bytes(RING),
                release: ReleasePolicy::ByCommand,
                heartbeat: Some(BEAT),
                class: Class::Bulk,
                control: Class::Control,
            });
            Driver::boot(node, LocalNs(0), 0)
        };
        let drivers = (0..2 * RANKS).map(driver).collect();
        let stream = RandomKey::new(1).purpose("sinks").stream();
        let (factors, busy_until) = ([1; RANKS as usize], [0; RANKS as usize]);
        let releases = BTreeMap::new();
        let mut job =
            Self { fabric, drivers, factors, busy_until, noise: 1, stream, releases, built: 0 };
        (0..RANKS).for_each(|rank| {
            job.drivers[rank as usize].command(LocalNs(0), TimesliceCommand::Begin)
        });
        job
    }

    /// Runs for this many milliseconds; says how many timeslices were released.
    fn run(&mut self, millis: u64) -> u64 {
        let (until, before) = (self.fabric.now() + Nanos::from_millis(millis), self.built);
        while self.fabric.now() < until {
            let now = self.fabric.now();
            while let Some(entry) =
                self.releases.first_entry().filter(|entry| entry.key().0 <= now.0)
            {
                let ((_, timeslice), rank) = entry.remove_entry();
                self.drivers[rank as usize].command(now, TimesliceCommand::Release { timeslice });
                self.built += 1;
            }
            let mut next = self.releases.keys().next().map(|(at, _)| LocalNs(*at));
            for rank in 0..2 * RANKS {
                let mut events = Vec::new();
                let driver = &mut self.drivers[rank as usize];
                let progress =
                    driver.step(self.fabric.wire(Rank(rank)), &mut |event| events.push(event));
                next = [next, progress.next].into_iter().flatten().min();
                events.into_iter().for_each(|event| self.handle_event(rank, event));
            }
            let next = [next, self.fabric.next_arrival()]
                .into_iter()
                .flatten()
                .min()
                .expect("hearts beat");
            self.fabric.advance(next.max(now + Nanos(20)));
        }
        self.built - before
    }

    fn handle_event(&mut self, rank: u32, event: TimesliceEvent) {
        assert!(
            !matches!(
                event,
                TimesliceEvent::Lost { .. } | TimesliceEvent::Out | TimesliceEvent::Helpless
            ),
            "{event:?}"
        );
        if let TimesliceEvent::Complete { timeslice, .. } = event {
            let place = (rank - RANKS) as usize;
            let service = SERVICE * self.factors[place] * (1 + self.stream.below(self.noise));
            let due = self.busy_until[place].max(self.fabric.now().0) + service;
            self.busy_until[place] = due;
            self.releases.insert((due, timeslice), rank);
        }
    }

    fn journal(&mut self) -> Arc<Journal> {
        self.drivers[0].engine_mut().journal().clone()
    }

    fn weights(&mut self) -> [u32; 4] {
        let journal = self.journal();
        [0, 1, 2, 3].map(|place| journal.weight(place))
    }
}

/// Intervals in which a turn of the slow one is a small part.
const SHORT: Dfs = Dfs { interval: 100, history: 5, gate: 995, speed_up: SPEED_UP };
const SPEED_UP: Option<SpeedUp> = Some(SpeedUp { difference: 5, step: 5, intervals: 5, hold: 20 });

const BUILDING: [Policy; 4] = [Policy::BestEffort, Policy::Offset, Policy::Dfs, Policy::Token];

/// Without the slow one the others could build three quarters; it can add a tenth of its quarter.
#[test]
fn job__a_builder_ten_times_slower_is_worked_around_and_comes_back() {
    for policy in BUILDING {
        let mut job = LoadJob::new(policy, SHORT);
        job.run(5);
        let usual = job.run(5);
        job.factors[1] = 10;
        job.run(40);
        // Later the slow builder asks for more turns now and then, in vain.
        assert!(job.weights()[1] <= 2, "{policy:?}: {:?}", job.weights());
        let slow = job.run(20) / 4;
        assert!(
            slow as f64 >= 0.9 * 3.1 / 4.0 * usual as f64,
            "{policy:?}: {slow} of {usual}, {:?}",
            job.weights()
        );
        job.factors[1] = 1;
        job.run(90);
        assert_eq!(job.weights(), [16; 4], "{policy:?}");
        assert!(job.run(5) as f64 >= 0.95 * usual as f64, "{policy:?}");
    }
}

/// An interval of the published length has 2,500 rounds, of which the slow one can do 250: it must
/// neither keep the next one from beginning nor be what later ones are paced by.
#[test]
fn job__dfs_with_long_intervals_waits_for_no_slow_builder() {
    let mut job = LoadJob::new(Policy::Dfs, Dfs::default());
    job.run(5);
    let usual = job.run(20);
    job.factors[1] = 10;
    job.run(20);
    for _ in 0..5 {
        let slow = job.run(20);
        assert!(
            slow as f64 >= 0.9 * 3.1 / 4.0 * usual as f64,
            "{slow} of {usual}, {:?}",
            job.weights()
        );
    }
}

/// Sinks take one to three times as long, each time anew.
#[test]
fn job__healthy_builders_keep_their_turns_under_noise() {
    for policy in BUILDING {
        let mut job = LoadJob::new(policy, SHORT);
        job.noise = 3;
        job.run(60);
        assert_eq!((job.weights(), job.journal().epoch()), ([16; 4], 0), "{policy:?}");
    }
}
