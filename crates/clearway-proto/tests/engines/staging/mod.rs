//! The log of staged data under drawn loads, crashes and failures, and planted faults that must be
//! found.

mod careless;
mod cases;
mod compaction;
mod disk;
mod drained;
mod faulty;
mod feed;
mod fresh;
mod machine;
mod model;
mod store;
mod strangers;
mod trial;

use std::panic::{AssertUnwindSafe, catch_unwind};

use clearway_proto::base::RandomKey;

use self::careless::DriverFault;
use self::drained::{DrainedFigures, DrainedPlan, DrainedTrial};
use self::faulty::PlantedLogFault;
use self::trial::{Trial, TrialFigures, TrialPlan};

fn plan(seed: u64) -> TrialPlan {
    let mut stream = RandomKey::new(seed).purpose("staging swarm").stream();
    let mut below = |bound: u64| stream.below(bound);
    TrialPlan {
        seed,
        steps: 40 + below(400) as u32,
        crashes: [0, 2, 2, 4][below(4) as usize],
        deaths: [0, 10, 30][below(3) as usize],
        failures: [0, 0, 3, 10][below(4) as usize],
        drains: [0, 30, 90][below(3) as usize],
        fault: None,
    }
}

/// Runs a trial; what it did, or what went wrong.
fn outcome(plan: &TrialPlan) -> Result<TrialFigures, String> {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut trial = Trial::new(plan.clone())?;
        trial.run()?;
        Ok(trial.figures)
    }));
    caught.unwrap_or_else(|why| {
        let text = why.downcast_ref::<String>().cloned();
        Err(text.or_else(|| why.downcast_ref::<&str>().map(|t| t.to_string())).unwrap_or_default())
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Seeds that take some seconds.
const SEEDS: u64 = if cfg!(debug_assertions) { 30 } else { 2_000 };

/// `SWARM_FIRST=7 SWARM_SEEDS=1 cargo test -p clearway-proto --test engines staging` runs one.
#[test]
fn swarm__what_is_durable_is_found_after_every_crash() {
    let first = number("SWARM_FIRST").unwrap_or(0);
    let mut total = TrialFigures::default();
    for seed in first..first + number("SWARM_SEEDS").unwrap_or(SEEDS) {
        match outcome(&plan(seed)) {
            Ok(figures) => total.add(&figures),
            Err(why) => panic!("seed {seed}: {why}; {:?}", plan(seed)),
        }
    }
    println!("{total:?}");
    if number("SWARM_SEEDS").is_none() {
        assert!(total.is_busy(), "the swarm leaves something out: {total:?}");
    }
}

#[test]
fn swarm__planted_faults_are_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = PlantedLogFault::ALL.map(|fault| {
        let found = (0..200).find_map(|seed| {
            let why = outcome(&TrialPlan { fault: Some(fault), ..plan(seed) }).err()?;
            Some((seed, why))
        });
        (fault, found)
    });
    std::panic::set_hook(hook);
    for (fault, found) in &found {
        println!("{fault:?}: {found:?}");
    }
    let missed: Vec<_> = found.iter().filter(|(_, found)| found.is_none()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

fn drained_plan(seed: u64) -> DrainedPlan {
    let mut stream = RandomKey::new(seed).purpose("drained swarm").stream();
    let mut below = |bound: u64| stream.below(bound);
    DrainedPlan {
        seed,
        steps: 60 + below(500) as u32,
        crashes: [0, 1, 2][below(3) as usize],
        deaths: [0, 10, 30][below(3) as usize],
        failures: [0, 20, 100][below(3) as usize],
        pass: [4 << 10, 30 << 10, 1 << 30][below(3) as usize],
        look: [1, 3, 1 << 20][below(3) as usize],
        fault: None,
    }
}

fn drained_outcome(plan: &DrainedPlan) -> Result<DrainedFigures, String> {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut trial = DrainedTrial::new(plan.clone())?;
        trial.run()?;
        Ok(trial.figures)
    }));
    caught.unwrap_or_else(|why| {
        let text = why.downcast_ref::<String>().cloned();
        Err(text.or_else(|| why.downcast_ref::<&str>().map(|t| t.to_string())).unwrap_or_default())
    })
}

/// `SWARM_FIRST=7 SWARM_SEEDS=1 cargo test -p clearway-proto --test engines drained` runs one.
#[test]
fn drained_swarm__the_store_gets_the_tree_across_crashes_of_both() {
    let first = number("SWARM_FIRST").unwrap_or(0);
    let mut total = DrainedFigures::default();
    for seed in first..first + number("SWARM_SEEDS").unwrap_or(SEEDS) {
        match drained_outcome(&drained_plan(seed)) {
            Ok(figures) => total.add(&figures),
            Err(why) => panic!("seed {seed}: {why}; {:?}", drained_plan(seed)),
        }
    }
    println!("{total:?}");
    if number("SWARM_SEEDS").is_none() {
        assert!(total.is_busy(), "the swarm leaves something out: {total:?}");
    }
}

#[test]
fn drained__a_directory_that_never_moves_keeps_only_what_is_in_it_waiting() {
    let plan = DrainedPlan { crashes: 0, deaths: 0, failures: 0, ..drained_plan(1) };
    DrainedTrial::new(plan).and_then(|mut trial| trial.fail_moves()).expect("all the others");
}

#[test]
fn drained_swarm__planted_faults_of_the_driver_are_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = DriverFault::ALL.map(|fault| {
        let found = (0..1000).find_map(|seed| {
            let plan = DrainedPlan { fault: Some(fault), ..drained_plan(seed) };
            Some((seed, drained_outcome(&plan).err()?))
        });
        (fault, found)
    });
    std::panic::set_hook(hook);
    for (fault, found) in &found {
        println!(
            "{fault:?}: {:?}",
            found.as_ref().map(|(seed, why)| (seed, &why[..why.len().min(200)]))
        );
    }
    let missed: Vec<_> = found.iter().filter(|(_, found)| found.is_none()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
