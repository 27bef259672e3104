//! What a laboratory's report says about the hosts of the same laboratory when it is simulated.
//!
//! # Model
//! The time of a ping on an idle laboratory is its processors', and differs between machines and
//! hours. The simulator predicts queues, not processors: it gets that time. What loaded phases
//! showed is not looked at.

use std::collections::BTreeMap;

use clearway_lab::QueueKind;
use clearway_proto::base::Nanos;
use clearway_proto::congestion::VictimKind;

use super::names;
use crate::report::model::{Figure, Report, labels};
use crate::scenario::{SmallMessage, Time};

/// Returns what pings took in the idle phases of `report`, by queue: the median over its cells.
pub(crate) fn small_messages(report: &Report) -> BTreeMap<QueueKind, SmallMessage> {
    let of = |kind: QueueKind| {
        let [p50, p99] = ["p50", "p99"].map(|quantile| median(report, kind, quantile));
        Some((kind, SmallMessage { p50: p50?, p99: p99? }))
    };
    QueueKind::ALL.into_iter().filter_map(of).collect()
}

/// Returns the median of all `quantile`s of idle pings on `queue`; absent where there are none, or
/// where some never arrived.
fn median(report: &Report, queue: QueueKind, quantile: &str) -> Option<Time> {
    let ping = VictimKind::Ping.name();
    let wanted = [
        (labels::QUEUE, queue.name()),
        (labels::VICTIM, ping),
        (labels::PHASE, labels::ISOLATED),
        (labels::QUANTILE, quantile),
    ];
    let is_wanted = |figure: &&Figure| {
        figure.name == names::LATENCY
            && wanted.iter().all(|(key, value)| figure.label(key) == Some(*value))
    };
    let mut values: Vec<f64> =
        report.figures.iter().filter(is_wanted).map(|figure| figure.value.get()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.get(values.len() / 2).copied().filter(|us| us.is_finite())?;
    Some(Time(Nanos((middle * 1e3).round() as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::ExtendedReal;
    use crate::report::sample;

    #[test]
    fn small_messages__come_from_idle_pings_alone() {
        let mut report = sample::incast_demo();
        assert_eq!(small_messages(&report), BTreeMap::new(), "its victims are no pings");
        for figure in &mut report.figures {
            figure.labels.insert(labels::VICTIM.to_owned(), VictimKind::Ping.name().to_owned());
        }
        let found = small_messages(&report);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [QueueKind::Fifo, QueueKind::Strict]);
        for figure in &mut report.figures {
            if figure.label(labels::PHASE) == Some(labels::CONGESTED) {
                figure.value = ExtendedReal::INFINITE;
            }
        }
        assert_eq!(small_messages(&report), found);
        report.figures.retain(|figure| figure.label(labels::PHASE) != Some(labels::ISOLATED));
        assert_eq!(small_messages(&report), BTreeMap::new());
    }
}
