//! Figures of an ideal port, of wrong ports, and of a disturbed machine.

use super::*;
use crate::{Topology, Weights};

const RATE: BitsPerSec = BitsPerSec::mega(100);

fn spec(queue: QueueKind) -> LabSpec {
    LabSpec { queue, ..LabSpec::new(Topology::Star { hosts: 2, rate: RATE }) }
}

/// Returns what a port of `rate` and `depth` does with a flood sent within 0.6 ms, the receiver
/// `late_us` late.
fn flood(rate: BitsPerSec, depth: u64, late_us: u64, noise_us: u64) -> FloodResult {
    let sending = Nanos::from_micros(600);
    let passed = depth + 1 + (burst(rate).0 + rate.bytes_in(sending).0) / FRAME.0;
    let bytes = clearway_proto::base::Bytes(passed * FRAME.0 - burst(rate).0);
    let draining = rate.time_for(bytes) + Nanos::from_micros(late_us);
    let arrived = vec![Class::BestEffort; passed as usize];
    FloodResult {
        seen: BurstResult { arrived, sending, draining, noise: Nanos::from_micros(noise_us) },
        passed,
    }
}

fn outcomes(floods: &[FloodResult]) -> (CheckOutcome, CheckOutcome) {
    let spec = spec(QueueKind::Strict);
    let expected = ExpectedPort { rate: RATE, spec: &spec };
    (expected.rate(floods).outcome, expected.depth(floods).outcome)
}

#[test]
fn flood__an_ideal_port_passes() {
    assert_eq!(outcomes(&[flood(RATE, 100, 50, 0)]), (CheckOutcome::Pass, CheckOutcome::Pass));
}

#[test]
fn flood__a_wrong_rate_or_depth_fails_however_often() {
    let slow = || flood(BitsPerSec::mega(80), 100, 0, 0);
    assert_eq!(outcomes(&[slow(), slow(), slow()]).0, CheckOutcome::Fail);
    assert_eq!(
        outcomes(&[flood(RATE, 100, 0, 0), flood(BitsPerSec::mega(120), 100, 0, 0)]).0,
        CheckOutcome::Fail
    );
    assert_eq!(outcomes(&[flood(RATE, 90, 0, 0)]).1, CheckOutcome::Fail);
    assert_eq!(outcomes(&[flood(RATE, 110, 0, 0)]).1, CheckOutcome::Fail);
}

#[test]
fn flood__lateness_that_the_threads_waited_is_no_failure() {
    let late = || flood(RATE, 100, 3_000, 3_100);
    assert_eq!(outcomes(&[late(), late()]).0, CheckOutcome::Inconclusive);
    assert_eq!(
        outcomes(&[late(), flood(RATE, 100, 100, 0)]).0,
        CheckOutcome::Pass,
        "the shortest round counts"
    );
    assert_eq!(
        outcomes(&[flood(RATE, 100, 3_000, 100)]).0,
        CheckOutcome::Fail,
        "late without having waited"
    );
}

#[test]
fn flood__lateness_that_nobody_counted_is_no_failure_where_rounds_differ() {
    let late = |late_us| flood(RATE, 100, late_us, 0);
    assert_eq!(
        outcomes(&[late(3_000), late(1_200), late(2_100)]).0,
        CheckOutcome::Inconclusive,
        "a wrong rate would have been the same each time"
    );
    assert_eq!(outcomes(&[late(3_000), late(3_100), late(2_900)]).0, CheckOutcome::Fail);
    let fast = || flood(BitsPerSec::mega(120), 100, 0, 0);
    assert_eq!(
        outcomes(&[fast(), late(1_200), late(3_000)]).0,
        CheckOutcome::Fail,
        "noise makes no port faster"
    );
}

#[test]
fn flood__a_burst_that_took_too_long_is_void() {
    let mut slow = flood(RATE, 100, 0, 0);
    slow.seen.sending = Nanos::from_millis(4);
    assert_eq!(outcomes(&[slow]), (CheckOutcome::Inconclusive, CheckOutcome::Inconclusive));
}

/// Returns the order in which an ideal queue with these turns (frames a class may send in a row)
/// empties a full burst.
fn round_robin(turns: [usize; 5], packets: usize) -> Vec<Class> {
    let mut left = [packets; 5];
    let mut out = Vec::new();
    while out.len() < 5 * packets {
        for class in Class::ALL {
            let n = turns[class.index()].min(left[class.index()]);
            left[class.index()] -= n;
            out.extend(std::iter::repeat_n(class, n));
        }
    }
    out
}

fn order(queue: QueueKind, arrived: Vec<Class>) -> CheckOutcome {
    let spec = spec(queue);
    let expected = ExpectedPort { rate: RATE, spec: &spec };
    let seen = BurstResult {
        arrived,
        sending: Nanos::from_micros(300),
        draining: Nanos::ZERO,
        noise: Nanos::ZERO,
    };
    expected.order(&[seen]).outcome
}

fn packets(queue: QueueKind) -> usize {
    ExpectedPort { rate: RATE, spec: &spec(queue) }.order_packets()
}

#[test]
fn order__each_kind_knows_its_own_and_refuses_the_others() {
    let weights = Weights::default();
    for queue in [QueueKind::Fifo, QueueKind::Strict, QueueKind::Weighted] {
        let n = packets(queue);
        let mut fifo: Vec<Class> = round_robin([n; 5], n);
        fifo.reverse();
        let strict = round_robin([n; 5], n);
        let weighted = round_robin(Class::ALL.map(|class| weights.weight(class) as usize), n);
        let pass = |is: bool| if is { CheckOutcome::Pass } else { CheckOutcome::Fail };
        assert_eq!(order(queue, fifo), pass(queue == QueueKind::Fifo), "{queue} against fifo");
        assert_eq!(
            order(queue, strict),
            pass(queue == QueueKind::Strict),
            "{queue} against strict"
        );
        assert_eq!(
            order(queue, weighted),
            pass(queue == QueueKind::Weighted),
            "{queue} against weighted"
        );
    }
}

#[test]
fn order__a_lost_packet_makes_the_round_void() {
    let mut arrived = round_robin([20; 5], packets(QueueKind::Strict));
    arrived.pop();
    assert_eq!(order(QueueKind::Strict, arrived), CheckOutcome::Inconclusive);
}
