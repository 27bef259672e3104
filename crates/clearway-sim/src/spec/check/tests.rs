//! Tests of the checks on specifications that were made in code.

use super::*;
use crate::spec::{LaneException, presets};

fn edr() -> FabricSpec {
    presets::load("edr", None).unwrap()
}

fn flawed(change: impl FnOnce(&mut FabricSpec)) -> SpecError {
    let mut spec = edr();
    change(&mut spec);
    spec.check().unwrap_err()
}

#[test]
fn check__nothing_happens_at_once_at_both_ends() {
    let flaw = flawed(|spec| spec.links[0].delay = Picos::ZERO);
    assert_eq!(flaw.key, "link.host.delay");
}

#[test]
fn check__exceptions_name_lanes_that_exist() {
    let mut lanes = [NO_LANE; 16];
    lanes[0] = 1;
    let exception = LaneException { from: "a".into(), to: "b".into(), lane_of_level: lanes };
    let flaw = flawed(|spec| spec.classes.lane_exceptions.push(exception));
    assert_eq!(flaw.key, "policy.exceptions");
}

#[test]
fn check__lossy_queues_hold_a_packet_and_buffers_need_not() {
    let mut spec = edr();
    spec.links[0].buffer = Bytes(1);
    spec.classes.loss =
        [LossDomain::Drops { queue: Bytes(100_000) }; crate::spec::VIRTUAL_LANES_MAX];
    assert_eq!(spec.check(), Ok(()));
    spec.classes.loss = [LossDomain::Drops { queue: Bytes(100) }; crate::spec::VIRTUAL_LANES_MAX];
    assert_eq!(spec.check().unwrap_err().key, "policy.queue");
}

#[test]
fn check__only_a_token_bucket_has_a_burst_and_it_holds_a_packet() {
    assert_eq!(flawed(|spec| spec.links[0].burst = Some(Bytes(100_000))).key, "link.host.burst");
    let mut spec = presets::load("lab", None).unwrap();
    spec.links[0].burst = Some(Bytes(1514));
    assert_eq!(spec.check(), Ok(()));
    for wrong in [0, 1513, 1 << 32] {
        spec.links[0].burst = Some(Bytes(wrong));
        assert_eq!(spec.check().unwrap_err().key, "link.host.burst", "{wrong}");
    }
}

#[test]
fn check__pauses_need_headroom() {
    let mut spec = presets::load("clos-100ge", None).unwrap();
    spec.links[0].buffer = Bytes(30_000);
    let flaw = spec.check().unwrap_err();
    assert!(flaw.why.contains("too little for pauses"), "{flaw}");
    let least: Bytes = flaw.why.rsplit_once("at least ").unwrap().1.parse().unwrap();
    spec.links[0].buffer = least;
    assert_eq!(spec.check(), Ok(()));
    spec.links[0].buffer = Bytes(least.0 - 1);
    assert!(spec.check().is_err());
}

#[test]
fn check__rates_and_times_stay_away_from_both_ends_of_the_clock() {
    for rate in [0, 1, 999_999, 100_000_000_000_001, u64::MAX] {
        assert_eq!(
            flawed(|spec| spec.links[0].rate = BitsPerSec(rate)).key,
            "link.host.rate",
            "{rate}"
        );
    }
    assert_eq!(flawed(|spec| spec.host.memory_rate = BitsPerSec(1)).key, "host.memory-rate");
    let sentence = flawed(|spec| spec.links[0].rate = BitsPerSec(1)).to_string();
    assert_eq!(sentence, "link.host.rate: 1 b/s; it must be from 1 Mb/s to 100000 Gb/s");
    let long = Picos(1_000_000_000_001);
    assert_eq!(flawed(|spec| spec.links[0].delay = long).key, "link.host.delay");
    assert_eq!(flawed(|spec| spec.switch.delay = Picos::NEVER).key, "switch.delay");
    assert_eq!(flawed(|spec| spec.host.effect_cost = long).key, "host.effect-cost");
}
