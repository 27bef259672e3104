//! Faults at known ranks of a simulated machine with 64 nodes, and the accounts that name them.

use clearway_proto::base::{Bytes, Nanos, Rank};
use clearway_proto::timeslice::Policy;

use super::super::ledger::{LedgerEntry, SourceCounts};
use super::machine::{FAULT, Fault, Machine, Shape};
use super::{DropCause, by_cause};

const INPUTS: u32 = 32;
const SHAPE: Shape = Shape {
    inputs: INPUTS,
    builders: 32,
    policy: Policy::Token,
    length: Nanos::from_millis(18),
    memory: Bytes(256 << 10),
};

fn ran(faults: &[Fault]) -> Machine {
    let faults: Vec<_> = faults.iter().map(|fault| (FAULT, *fault)).collect();
    let mut machine = Machine::new(SHAPE, &faults);
    machine.run();
    machine
}

/// Which part of what `count` says of all inputs is that of input `rank`; and how much that is.
fn part_at(ledger: &[LedgerEntry], rank: u32, count: impl Fn(&SourceCounts) -> u64) -> (f64, u64) {
    let counts = |entry: &LedgerEntry| entry.source.as_ref().map_or(0, &count);
    let all: u64 = ledger.iter().map(counts).sum();
    let own = counts(&ledger[rank as usize]);
    (own as f64 / all.max(1) as f64, own)
}

/// Which part of the microslices that were dropped has a cause for which `is_right` holds, and how
/// many were dropped.
fn part_of_causes(machine: &mut Machine, is_right: impl Fn(u32, DropCause) -> bool) -> (f64, u64) {
    let causes = by_cause(&machine.losses.finish());
    let all: u64 = causes.iter().map(|(_, _, count, _)| count).sum();
    let right = causes.iter().filter(|(input, cause, ..)| is_right(*input, *cause));
    (right.map(|(_, _, count, _)| count).sum::<u64>() as f64 / all.max(1) as f64, all)
}

#[test]
fn ledger__faults_of_sources_and_links_are_found_where_they_are() {
    let mut machine = ran(&[
        Fault::Missing(3, 40),
        Fault::Repeated(5, 30),
        Fault::Late(7, 20),
        Fault::Damaged(11, 10),
        Fault::Corrupt(13, INPUTS + 19),
    ]);
    let ledger = machine.ledger();
    assert_eq!(part_at(&ledger, 3, |source| source.missing), (1.0, 40));
    assert_eq!(part_at(&ledger, 5, |source| source.repeated), (1.0, 30));
    assert_eq!(part_at(&ledger, 7, |source| source.late), (1.0, 20));
    assert_eq!(part_at(&ledger, 11, |source| source.damaged), (1.0, 10));
    assert_eq!(part_at(&ledger, 0, |source| source.overflowed).1, 0);
    let corrupt = machine.sinks.iter().enumerate().flat_map(|(place, sink)| {
        let inputs = sink.built.iter().enumerate().filter(|(_, counts)| counts.corrupt > 0);
        inputs.map(move |(input, counts)| (place, input, counts.corrupt))
    });
    assert_eq!(corrupt.collect::<Vec<_>>(), [(19, 13, machine.corrupted)]);
    assert!(machine.corrupted > 5);
    for row in machine.losses.finish() {
        assert!((6..9).contains(&row.second), "{row:?}");
    }
}

/// Runs with `fault`, and asks for causes for which `is_right` holds.
fn check_causes(fault: Fault, is_right: impl Fn(u32, DropCause) -> bool) {
    let mut machine = ran(&[fault]);
    machine.ledger();
    let (right, all) = part_of_causes(&mut machine, is_right);
    let causes = by_cause(&machine.losses.finish());
    assert!(right >= 0.99 && all > 100, "{right} of {all}: {causes:?}");
}

#[test]
fn ledger__a_drop_names_the_sink_that_is_too_slow() {
    let slow = INPUTS + 8;
    check_causes(Fault::SlowSink(slow), |_, cause| cause == DropCause::Sink(slow));
}

#[test]
fn ledger__a_drop_names_the_input_whose_link_is_too_slow() {
    check_causes(Fault::SlowLink(9), |_, cause| cause == DropCause::Input(9));
}

#[test]
fn ledger__a_drop_names_the_input_whose_process_is_away() {
    check_causes(Fault::Paused(30), |input, cause| match cause {
        DropCause::Itself => input == 30,
        cause => cause == DropCause::Input(30),
    });
}

#[test]
fn ledger__what_the_dead_take_along_is_counted_for_them_alone() {
    let machine = ran(&[Fault::Dead(21)]);
    let ledger = machine.ledger();
    let absent: Vec<_> = ledger.iter().map(|entry| entry.absent).collect();
    assert!(ledger[21].is_dead && absent[21] > 100, "{absent:?}");
    assert_eq!(absent.iter().sum::<u64>(), absent[21]);

    let dead = INPUTS + 13;
    let mut machine = ran(&[Fault::Dead(dead)]);
    let ledger = machine.ledger();
    let node = machine.world.engine_mut(Rank(0)).expect("it lives");
    let settled = node.settled().filter(|settled| settled.rank.0 == dead).count() as u64;
    assert!(settled > 0);
    for entry in &ledger {
        assert_eq!(entry.undelivered, Some(5 * settled), "{entry:?}");
    }
}
