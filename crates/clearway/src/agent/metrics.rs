//! The figures of an agent.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use clearway_proto::flow::AgentFigures;
use clearway_proto::stats::{Quantile, QuantileValue};

use super::probes::ProbeCounts;
use crate::run::metrics::{MetricLabels, MetricSheet, MetricSource, MetricTitle, MetricUnit};

const ROUND_TRIP: MetricTitle = MetricTitle {
    name: "agent_round_trip",
    help: "Round trips of probes in the last 30 to 60 s: the median and the 99th percentile.",
    unit: MetricUnit::Seconds,
};
const EXCESS: MetricTitle = MetricTitle {
    name: "agent_excess",
    help: "By how much probes were slower while scavengers send than in their pauses.",
    unit: MetricUnit::Ratio,
};
const SCAVENGERS: MetricTitle = MetricTitle {
    name: "agent_scavengers",
    help: "Scavengers of the node: connected, and with something to send.",
    unit: MetricUnit::Number,
};
const ALLOWED: MetricTitle = MetricTitle {
    name: "agent_allowed",
    help: "Part of the link that all scavengers may use.",
    unit: MetricUnit::Ratio,
};
const PEERS: MetricTitle = MetricTitle {
    name: "agent_peers",
    help: "Peers that answer probes, and that do not.",
    unit: MetricUnit::Number,
};
const PROBES: MetricTitle = MetricTitle {
    name: "agent_probes",
    help: "Probes that left, and those without an answer.",
    unit: MetricUnit::Number,
};
const REFUSALS: MetricTitle = MetricTitle {
    name: "agent_refusals",
    help: "Packets, messages and connections that were refused.",
    unit: MetricUnit::Number,
};

/// What is shown of an agent.
#[derive(Clone, Debug)]
pub(super) struct AgentState {
    pub(super) figures: AgentFigures,
    pub(super) link: u64,
    pub(super) probes: ProbeCounts,
    /// Connections that were ended, and that found no place.
    pub(super) ended: u64,
    pub(super) refused: u64,
}

/// What the thread of the agent shows to that of the metrics.
pub(super) struct AgentMetrics(pub(super) Mutex<AgentState>);

impl MetricSource for AgentMetrics {
    fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let AgentState { figures, link, probes, ended, refused } = state;
        let label =
            |name: &'static str, value: &str| -> MetricLabels { vec![(name, value.to_owned())] };
        let quantile = |which| match figures.round_trips.quantile(which) {
            QuantileValue::Finite(nanos) => Some(nanos as f64 / 1e9),
            _ => None,
        };
        let trips = [("0.5", Quantile::P50), ("0.99", Quantile::P99)];
        let trips = trips.into_iter().filter_map(|(name, which)| {
            quantile(which).map(|seconds| (label("quantile", name), seconds))
        });
        sheet.ratios(&ROUND_TRIP, trips)?;
        let of_none = |value: f64| [(MetricLabels::new(), value)];
        sheet.ratios(&EXCESS, of_none(f64::from(figures.excess_permille) / 1e3))?;
        sheet.ratios(&ALLOWED, of_none(figures.allowed.0 as f64 / link.max(1) as f64))?;
        let scavengers = [
            (label("state", "connected"), figures.scavengers as u64),
            (label("state", "sending"), figures.demanding as u64),
        ];
        sheet.gauges(&SCAVENGERS, scavengers)?;
        let silent = figures.peers.saturating_sub(figures.peers_reachable);
        let peers = [
            (label("state", "answering"), figures.peers_reachable as u64),
            (label("state", "silent"), silent as u64),
        ];
        sheet.gauges(&PEERS, peers)?;
        let sent = [
            (label("state", "sent"), figures.probes),
            (label("state", "unanswered"), figures.unanswered),
        ];
        sheet.counters(&PROBES, sent)?;
        let refusals = [
            ("malformed", probes.malformed),
            ("unsolicited", probes.unsolicited),
            ("rate-limited", probes.refused),
            ("protocol-error", ended),
            ("full", refused),
        ];
        sheet.counters(&REFUSALS, refusals.map(|(name, value)| (label("kind", name), value)))
    }
}
