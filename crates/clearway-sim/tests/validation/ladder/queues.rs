//! The study of OpenSHMEM queues: small puts of 32 nodes under load, with a service level of
//! their own and without.
//!
//! # Model
//! Fabric `hdr100`. 640 elements of work, 20 on each node: of each node's, 10 put 8 bytes to a
//! random other node every 10 us on average, the others stand for congestors: an all-to-all of 128
//! KiB messages without end, and an incast of all nodes to one. Congestors are best effort and
//! bulk; puts are low latency, and have a class of their own under policy `levels`. 2 ms;
//! percentiles are over what was injected.
//!
//! # Source
//! Venkatesan, Gorentla Venkata, "Improving QoS for OpenSHMEM using in-network priority" (UCF
//! 2022): 32 nodes, 640 PEs, three service lanes, more than 2.5 times less tail latency. What its
//! congestors send is not said; GPCNeT's are taken.

use std::fmt::Write as _;

use clearway_proto::base::{Class, RandomKey};
use clearway_proto::stats::{Quantile, QuantileValue};
use clearway_sim::Picos;
use clearway_sim::fabric::{NoticeSet, SendRequest, Target};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::presets;
use clearway_sim::traffic::{self, Arrivals, Timed, TrafficSource};

use super::rig;

const NODES: u32 = 32;
/// Elements of a node that put.
const PUTTING: usize = 10;

/// Whether congestors send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Congestors {
    /// Nobody does.
    Off,
    /// All do.
    On,
}

/// Median and 99th percentile of puts, in nanoseconds.
pub(crate) fn puts(policy: &str, congestors: Congestors) -> [f64; 2] {
    let spec = presets::load("hdr100", Some(policy)).expect("a shipped fabric");
    let mut fabric = rig::fabric(&spec, 1);
    if congestors == Congestors::On {
        // Tags of messages that are not timed; see `traffic::open`.
        let (rail, reports, tag) = (0, NoticeSet::Delivery, u64::MAX);
        for from in 0..NODES {
            let all = (1..NODES).map(|shift| ((from + shift) % NODES, Class::Bulk));
            for (to, class) in all.chain((from != 0).then_some((0, Class::BestEffort))) {
                let (from, to) = (DeviceId(from), Target::Host(DeviceId(to)));
                fabric.post(
                    Picos::ZERO,
                    SendRequest { from, to, class, bytes: 128 << 20, rail, reports, tag },
                );
            }
        }
    }
    let source = |from: u32| TrafficSource {
        from,
        to: None,
        class: Class::LowLatency,
        bytes: 8,
        interval: Picos::from_micros(10),
        arrivals: Arrivals::Poisson,
        timed: Timed::From(Picos::from_micros(200)),
    };
    let sources: Vec<TrafficSource> =
        (0..NODES).flat_map(|from| vec![source(from); PUTTING]).collect();
    let (until, last) = (Picos::from_micros(2_000), Picos::from_micros(2_200));
    let outcome =
        traffic::open(&mut fabric, &sources, until, last, RandomKey::new(3).purpose("puts"));
    [Quantile::P50, Quantile::P99].map(|quantile| match outcome.latency.quantile(quantile) {
        QuantileValue::Finite(ns) => ns as f64,
        _ => f64::INFINITY,
    })
}

/// Puts under both policies.
pub(crate) fn text() -> String {
    let mut text = format!("{:<28} {:>10} {:>10}\n", "8 B puts, ns", "p50", "p99");
    for policy in ["shared", "levels"] {
        for congestors in [Congestors::Off, Congestors::On] {
            let [p50, p99] = puts(policy, congestors);
            let _ = writeln!(
                text,
                "{:<28} {p50:>10} {p99:>10}",
                format!("{policy}, congestors {congestors:?}")
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts__a_class_of_their_own_makes_the_tail_shorter() {
        let [quiet, shared, levels] =
            [("shared", Congestors::Off), ("shared", Congestors::On), ("levels", Congestors::On)]
                .map(|(policy, congestors)| puts(policy, congestors)[1]);
        assert!(shared / levels >= 2.5, "{shared} / {levels}");
        assert!(levels / quiet < 2.5, "{levels} / {quiet}");
    }
}
