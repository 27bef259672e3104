//! Many small machines under random faults: nothing is lost without an account, and nothing is
//! built twice by decision.
//!
//! # Model
//! A seed gives inputs, builders, a policy, and faults: sources that lack, repeat, delay or damage
//! microslices, contributions that come with other bytes, sinks, links and processes that are too
//! slow, ranks that die, retire, and come back. Fewer than half of the ranks die or retire; one
//! input and one builder never do.

use clearway_proto::base::{Bytes, Nanos, RandomKey, Rank};
use clearway_proto::timeslice::Policy;

use super::super::numbers::{CompletenessAudit, TimesliceNumbers};
use super::machine::{Fault, Machine, Shape, TimedFault};

/// Seeds: as many as fit into a few seconds, and those of the swarm.
const SEEDS: u64 = if cfg!(debug_assertions) { 40 } else { 10_000 };

fn drawn(seed: u64) -> (Shape, Vec<TimedFault>) {
    let mut stream = RandomKey::new(seed).purpose("ledger").stream();
    let mut below = |bound: u64| stream.below(bound);
    let (inputs, builders) = (2 + below(4) as u32, 2 + below(4) as u32);
    let policy = [Policy::BestEffort, Policy::Offset, Policy::Dfs, Policy::Token];
    let policy = policy[below(4) as usize];
    let length = Nanos::from_millis(4 + below(5));
    let mut safe =
        vec![below(u64::from(inputs)) as u32, inputs + below(u64::from(builders)) as u32];
    let mut strikes = (inputs + builders - 1) / 2;
    let mut faults = Vec::new();
    for _ in 0..below(7) {
        // Applications look every 20 us.
        let at = Nanos(1_000_000 + below(length.0 / 20_000) * 20_000);
        let (input, builder) =
            (below(u64::from(inputs)) as u32, inputs + below(u64::from(builders)) as u32);
        let rank = if below(2) == 0 { input } else { builder };
        let count = 1 + below(60);
        let draw = below(11);
        if draw < 3 {
            if strikes == 0 || safe.contains(&rank) {
                continue;
            }
            strikes -= 1;
            safe.push(rank);
        }
        let fault = match draw {
            0 => Fault::Dead(rank),
            1 | 2 => {
                if draw == 1 {
                    let later = Nanos(at.0 + below(250) * 20_000);
                    faults.push((later, Fault::Joined(rank)));
                }
                Fault::Retired(rank)
            }
            3 | 4 => Fault::Missing(input, count),
            5 => Fault::Repeated(input, count),
            6 => Fault::Late(input, count),
            7 => Fault::Damaged(input, count),
            8 => Fault::Corrupt(input, builder),
            9 => Fault::SlowSink(builder),
            _ => Fault::Paused(input),
        };
        faults.push((at, fault));
    }
    // What a dead builder left is sent again behind what was dealt: inputs must hold all of that.
    let goes = |(_, fault): &TimedFault| matches!(fault, Fault::Dead(_) | Fault::Retired(_));
    let memory = Bytes(if faults.iter().any(goes) { 1 << 20 } else { 256 << 10 });
    (Shape { inputs, builders, policy, length, memory }, faults)
}

fn run(seed: u64) {
    let (shape, faults) = drawn(seed);
    let about = format!("seed {seed}: {shape:?}, {faults:?}");
    let mut machine = Machine::new(shape, &faults);
    machine.run();
    let ledger = machine.ledger();
    for (input, entry) in machine.inputs.iter().zip(&ledger) {
        if let Some(source) = &entry.source {
            assert_eq!(source.offered, input.offered, "{about}");
        }
    }
    let dead = machine.dead.clone();
    let first = machine.living()[0];
    let node = machine.world.engine_mut(Rank(first)).expect("it lives");
    let settled = node.settled().filter(|settled| dead.contains(&settled.rank.0));
    let settled: TimesliceNumbers = settled.map(|settled| settled.timeslice).collect();
    let sinks = machine.sinks.iter().enumerate();
    let living = sinks.filter(|(place, _)| !dead.contains(&(shape.inputs + *place as u32)));
    let all = living.map(|(_, sink)| &sink.taken).chain([&settled]);
    let audit = CompletenessAudit::new(machine.end.unwrap_or(0), all);
    assert_eq!(audit, CompletenessAudit::default(), "{about}");
    let undelivered: u64 = ledger.iter().filter_map(|entry| entry.undelivered).sum();
    let corrupt: u64 = ledger.iter().map(|entry| entry.corrupt).sum();
    let explained = settled.count() + corrupt;
    assert!(undelivered == 0 || explained > 0, "{undelivered}: {about}");
}

/// `LEDGER_FIRST=n LEDGER_SEEDS=m` choose others.
#[test]
fn ledger__nothing_is_lost_without_an_account() {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    let first = number("LEDGER_FIRST").unwrap_or(0);
    (first..first + number("LEDGER_SEEDS").unwrap_or(SEEDS)).for_each(run);
}
