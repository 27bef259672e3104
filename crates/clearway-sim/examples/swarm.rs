//! Runs the trials of many seeds and stops at the first that violates a check: `swarm FIRST STEP
//! COUNT SECONDS COMMIT OUT`.
//!
//! Trials of seeds `FIRST`, `FIRST + STEP`, ... until `COUNT` are done or the time is over. A
//! failure is shrunk and written to `OUT`. The last lines say what was reached: `run KIND N` and
//! `state KIND STATE N`. `cargo xtask swarm` starts several of these side by side and adds them up.

use std::error::Error;
use std::time::{Duration, Instant};

use clearway_sim::check::{Coverage, Failure, Trial};

/// One in this many trials runs in two ways of computing.
const BOTH_ONE_IN: u64 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, step, count, seconds, commit, out] = arguments.as_slice() else {
        return Err("usage: swarm FIRST STEP COUNT SECONDS COMMIT OUT".into());
    };
    let (first, step, count): (u64, u64, u64) = (first.parse()?, step.parse()?, count.parse()?);
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    let mut coverage = Coverage::default();
    let mut done = 0;
    for seed in (0..count).map(|n| first + n * step) {
        if Instant::now() >= end {
            break;
        }
        let trial = Trial::draw(seed);
        let both = (seed / step.max(1)).is_multiple_of(BOTH_ONE_IN);
        let outcome = if both { trial.run_both_ways() } else { trial.run(&mut |_, _| ()) }?;
        done += 1;
        let states: Vec<_> = outcome.states.iter().copied().collect();
        coverage.add(outcome.struck.iter().copied(), &states);
        if let Some(violation) = outcome.violation {
            println!(
                "violated seed {seed}: {:?} at {}: {}",
                violation.symptom, violation.at, violation.sentence
            );
            let (small, shown) = trial.shrink(violation.symptom);
            let (trail, violation) = match shown {
                Some(shown) => (shown.trail, shown.violation.unwrap_or(violation)),
                None => (outcome.trail, violation),
            };
            let (faults, operations, ranks) =
                (small.plan.faults.len(), small.operations, small.ranks);
            println!("shrunk to {faults} faults, {operations} operations, {ranks} ranks");
            std::fs::write(
                out,
                Failure { trial: small, violation, commit: commit.clone(), trail }.to_text(),
            )?;
            println!("written {out}");
            break;
        }
    }
    println!("done {done}");
    print!("{}", coverage.to_lines());
    Ok(())
}
