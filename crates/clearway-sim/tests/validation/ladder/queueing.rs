//! Waiting at one port under Poisson arrivals: the M/D/1 queue.
//!
//! # Model
//! 32 hosts behind cables a thousand times as fast as the port, each with a Poisson process of
//! one-packet messages: their sum is one. Each seed is an independent run; the means of the runs
//! give the 95 % interval by Student's distribution. The order of service (turns among inputs) does
//! not change the mean, because all packets are equal.
//!
//! # Source
//! Kleinrock, "Queueing systems", volume 1 (1975), 5.6: W = rho / (2 (1 - rho)) x service.

use std::sync::LazyLock;

use clearway_proto::base::{BitsPerSec, Class, RandomKey};
use clearway_sim::Picos;
use clearway_sim::spec::FabricSpec;
use clearway_sim::traffic::{self, Arrivals, Timed, TrafficSource};

use super::rig::{self, gigabits};

/// Independent runs of each load.
const RUNS: u64 = 20;
/// The 97.5 % point of Student's distribution with 19 degrees of freedom (any table of it).
const STUDENT: f64 = 2.093;
/// Packets of one run.
const PACKETS: u64 = 20_000;
/// A packet, and the port's rate: 3276.8 ns each.
const PACKET: u64 = 4096;

/// The mean wait at one load in units of the service time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeanWait {
    /// Load in hundredths.
    pub(crate) load: u64,
    /// By the formula.
    pub(crate) expected: f64,
    /// Mean of the runs' means.
    pub(crate) mean: f64,
    /// Half of the 95 % interval.
    pub(crate) half: f64,
}

/// Loads from 0.2 to 0.9, run once for all who ask.
pub(crate) fn waits() -> &'static [MeanWait] {
    static WAITS: LazyLock<Vec<MeanWait>> = LazyLock::new(waits_of_all_loads);
    &WAITS
}

fn waits_of_all_loads() -> Vec<MeanWait> {
    let mut rates: Vec<BitsPerSec> = vec![gigabits(10_000); 33];
    rates[0] = gigabits(10);
    let spec = rig::star(&rates).spec();
    [20, 40, 60, 80, 90].map(|load| wait(&spec, load)).into()
}

fn wait(spec: &FabricSpec, load: u64) -> MeanWait {
    let service = PACKET as f64 * rig::pace(gigabits(10));
    let empty = rig::alone(spec, 1, 0, PACKET).0 as f64;
    let means: Vec<f64> =
        (0..RUNS).map(|seed| (latency(spec, load, seed) - empty) / service).collect();
    let mean = means.iter().sum::<f64>() / RUNS as f64;
    let variance = means.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (RUNS - 1) as f64;
    let rho = load as f64 / 100.0;
    MeanWait {
        load,
        expected: rho / (2.0 * (1.0 - rho)),
        mean,
        half: STUDENT * (variance / RUNS as f64).sqrt(),
    }
}

/// The mean from post to memory in one run, in picoseconds; the first tenth is left out.
fn latency(spec: &FabricSpec, load: u64, seed: u64) -> f64 {
    let between = 3_276_800 * 100 / load;
    let until = Picos(between * PACKETS);
    let timed = Timed::From(Picos(until.0 / 10));
    let source = |from: u32| TrafficSource {
        from,
        to: Some(0),
        class: Class::BestEffort,
        bytes: PACKET,
        interval: Picos(between * 32),
        arrivals: Arrivals::Poisson,
        timed,
    };
    let sources: Vec<TrafficSource> = (1..=32).map(source).collect();
    let mut fabric = rig::fabric(spec, seed);
    let outcome = traffic::open(
        &mut fabric,
        &sources,
        until,
        Picos::NEVER,
        RandomKey::new(seed).purpose("queueing"),
    );
    assert_eq!(outcome.injected, outcome.delivered);
    // Latencies are counted in whole nanoseconds, rounded down.
    (outcome.latency.mean().expect("messages") + 0.5) * 1e3
}
