//! Trials find what is planted, shrink it, and repeat it from a file.

use std::ops::Range;

use super::{Coverage, Failure, Symptom, Trial};
use crate::fault::{Fault, FaultKind};
use crate::time::Picos;

/// Returns the trial of `seed` with a deliberate bug: credits of every link from the first switch
/// are lost and never come back.
fn sabotaged(seed: u64) -> Trial {
    let mut trial = Trial::draw(seed);
    let graph = crate::topology::build(&trial.spec).unwrap().graph;
    let switch = crate::graph::DeviceId(graph.hosts());
    for port in graph.ports(switch) {
        let channel = crate::graph::ChannelId(port);
        trial.plan.faults.push(Fault {
            at: Picos::from_micros(2),
            until: Picos::from_micros(1 << 40),
            target: graph.label(channel),
            kind: FaultKind::LostCredit {
                class: clearway_proto::base::Class::Bulk,
                bytes: u32::MAX,
            },
        });
    }
    trial
}

#[test]
fn trials__of_some_seeds_hold_all_checks_in_every_way_to_compute() {
    let mut coverage = Coverage::default();
    for seed in 0..150 {
        let outcome = Trial::draw(seed).run_both_ways().unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        let states: Vec<_> = outcome.states.into_iter().collect();
        coverage.add(outcome.struck, &states);
    }
    // A few pairs are rare; most must be there.
    assert!(coverage.never().len() < 8, "{:?}", coverage.never());
}

#[test]
fn failure__a_deliberate_bug_is_found_shrunk_written_and_replayed() {
    let seeds = (0..40)
        .filter(|seed| Trial::draw(*seed).spec.classes.loss[0] == crate::spec::LossDomain::Credits);
    let found = seeds.map(sabotaged).find_map(|trial| {
        let outcome = trial.run(&mut |_, _| ()).unwrap();
        outcome.violation.map(|violation| (trial, violation))
    });
    let (trial, violation) = found.expect("lost credits show");
    assert!(matches!(violation.symptom, Symptom::Leak), "{violation:?}");
    let (small, outcome) = trial.shrink(violation.symptom);
    assert_eq!(small.plan.faults.len(), 1, "{:?}", small.plan);
    assert!(small.operations < trial.operations || trial.operations == 1);
    let outcome = outcome.expect("what was shrunk still fails");
    let violation = outcome.violation.unwrap();
    let failure =
        Failure { trial: small, violation, commit: "none".to_owned(), trail: outcome.trail };
    let read = Failure::parse("FAILURE.toml", &failure.to_text()).unwrap();
    assert_eq!(
        (read.trial.seed, &read.trial.plan.faults),
        (failure.trial.seed, &failure.trial.plan.faults)
    );
    let again = read.trial.run(&mut |_, _| ()).unwrap();
    assert_eq!(again.violation.as_ref(), Some(&read.violation));
    assert_eq!(read.agrees_for(&again.trail), again.trail.len());
}

#[test]
fn failure__what_cannot_be_replayed_is_refused_with_its_line() {
    let outcome = Trial::draw(1).run(&mut |_, _| ()).unwrap();
    let violation =
        super::Violation { symptom: Symptom::Twice, at: outcome.end, sentence: "no".to_owned() };
    let failure =
        Failure { trial: Trial::draw(1), violation, commit: String::new(), trail: Vec::new() };
    let text = failure.to_text();
    let refused = |old: &str, new: &str| {
        let changed = text.replacen(old, new, 1);
        assert_ne!(changed, text, "{text}");
        Failure::parse("FAILURE.toml", &changed).unwrap_err().to_string()
    };
    let sentence = refused("format = 1", "format = 7\nfuture = true");
    assert!(
        sentence.starts_with("FAILURE.toml: line 1: format 7 is not known, this program replays 1"),
        "{sentence}"
    );
    let sentence = refused("symptom = \"twice\"", "symptom = \"thrice\"");
    assert!(sentence.contains("unknown variant `thrice`"), "{sentence}");
    let sentence = refused("ranks = ", "ranks = 1000");
    assert!(sentence.contains("but this fabric has hosts for 2 to"), "{sentence}");
    let sentence = refused("operations = ", "operations = 99999");
    assert!(sentence.starts_with("FAILURE.toml: line 5: operations = 99999"), "{sentence}");
}

fn kept_exactly(seeds: Range<u64>) {
    for seed in seeds {
        let trial = Trial::draw(seed);
        let text = trial.spec.to_text();
        let wanted = crate::spec::file::FileOptions::default();
        let read = crate::spec::file::FabricFile::parse("kept.toml", &text, wanted).unwrap().spec;
        let (ours, kept) =
            (trial.run(&mut |_, _| ()), Trial { spec: read, ..trial }.run(&mut |_, _| ()));
        assert_eq!(ours.unwrap().trail, kept.unwrap().trail, "seed {seed}");
    }
}

#[test]
fn memory__networks_that_were_drawn_are_kept_exactly() {
    kept_exactly(0..12);
}

#[test]
fn memory__many_networks() {
    if cfg!(debug_assertions) {
        return std::eprintln!("skipped: takes seconds; `cargo xtask swarm` runs it");
    }
    kept_exactly(12..400);
}
