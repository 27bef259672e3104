//! Many programs under random conditions, and planted faults that must be found.
//!
//! # Model
//! A seed gives ranks, a wire, credits, buffers, a program for each rank, and what goes wrong: loss,
//! doubling, delay, ranks that are killed or stop for a while. That everything is applied once and
//! in order, that a quiet and a fence mean what they say, and that everything ends, is checked by
//! the trial.

mod faulty;
mod feed;
mod strangers;
mod trial;

use std::panic::{AssertUnwindSafe, catch_unwind};

use clearway_proto::base::{RandomKey, RandomStream};

use self::faulty::PlantedFault;
use self::trial::{QueuePlan, QueueTrial, TrialWire};

fn plan(stream: &mut RandomStream, seed: u64) -> QueuePlan {
    let mut below = |bound: u64| stream.below(bound);
    let ranks = match below(40) {
        0 => 17 + below(48) as u32,
        1..6 => 6 + below(8) as u32,
        _ => 2 + below(4) as u32,
    };
    let wire = match below(5) {
        0 | 1 => TrialWire::Plain,
        2 | 3 => TrialWire::Bare,
        _ => TrialWire::Lossy {
            loss: [0, 1_000, 20_000, 50_000][below(4) as usize],
            doubled: [0, 30_000][below(2) as usize],
            late: [0, 50_000][below(2) as usize],
        },
    };
    let steps = if ranks > 16 { 20 + below(20) } else { 20 + below(150) } as u32;
    let killed = if below(4) == 0 && ranks > 2 {
        [(below(u64::from(ranks)) as u32, below(2_000_000))].to_vec()
    } else {
        Vec::new()
    };
    let paused =
        (0..below(4)).map(|_| (below(u64::from(ranks)) as u32, below(3_000_000), below(3_000_000)));
    QueuePlan {
        ranks,
        wire,
        steps,
        paused: paused.collect(),
        killed,
        room: [4, 64, 256][below(3) as usize],
        buffers: 1 + below(8) as u32,
        window: 1 + below(6) as u32,
        requests: 1 + below(3) as u32,
        closes_idle: below(3) > 0,
        fault: None,
        seed,
    }
}

/// Runs a trial; what went wrong.
fn outcome(plan: &QueuePlan) -> Result<(), String> {
    let caught = catch_unwind(AssertUnwindSafe(|| QueueTrial::new(plan.clone()).run()));
    caught.map_err(|why| {
        let text = why.downcast_ref::<String>().cloned();
        text.or_else(|| why.downcast_ref::<&str>().map(|text| String::from(*text)))
            .unwrap_or_default()
    })
}

fn run(seed: u64) {
    let plan = plan(&mut RandomKey::new(seed).purpose("queue swarm").stream(), seed);
    if let Err(why) = outcome(&plan) {
        panic!("seed {seed}: {why}; {plan:?}");
    }
}

/// Seeds that take some seconds.
const SEEDS: u64 = if cfg!(debug_assertions) { 400 } else { 10_000 };

/// `SWARM_FIRST=7 SWARM_SEEDS=1 cargo test -p clearway-proto --test engines swarm` runs one.
#[test]
fn swarm__everything_is_applied_once_in_order_and_ends() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("SWARM_FIRST").unwrap_or(0);
    (first..first + number("SWARM_SEEDS").unwrap_or(SEEDS)).for_each(run);
}

#[test]
fn swarm__planted_faults_are_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let missed = PlantedFault::ALL.map(|fault| {
        let found = (0..40).find(|seed| {
            let plan = plan(&mut RandomKey::new(*seed).purpose("queue swarm").stream(), *seed);
            outcome(&QueuePlan { fault: Some(fault), ..plan }).is_err()
        });
        (fault, found)
    });
    std::panic::set_hook(hook);
    let missed: Vec<_> = missed.iter().filter(|(_, found)| found.is_none()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
