//! The rung of formulas: every figure within one per cent, waiting times inside their interval.

use std::fmt::Write as _;

use clearway_sim::spec::Switching;

use super::queueing::{self, MeanWait};
use super::rig::{self, CheckedFigure};
use super::{arbitration, credits, fairness, latency, parking};

/// Relative error at most.
#[cfg(test)]
const TOLERANCE: f64 = 0.01;

/// Figures that stand on one formula, by its name.
fn groups() -> Vec<(&'static str, Vec<CheckedFigure>)> {
    vec![
        ("latency, cut-through", latency::figures(Switching::CutThrough)),
        ("latency, store-and-forward", latency::figures(Switching::StoreAndForward)),
        ("latency, slow memory", latency::slow_hosts()),
        ("credit limit", credits::figures()),
        ("tables by hand", arbitration::by_hand()),
        ("tables, low alone", arbitration::low_alone()),
        ("tables, random", arbitration::random_tables()),
        ("weighted turns", arbitration::weighted()),
        ("strict order", arbitration::strict()),
        ("parking lot, turns", parking::turns()),
        ("parking lot, turns, slow hosts", parking::turns_of_slow_hosts()),
        ("parking lot, arrival, slow hosts", parking::arrivals_of_slow_hosts()),
        ("max-min, one switch", fairness::stars()),
        ("max-min, one trunk", fairness::trunks()),
    ]
}

/// Each formula with how far its worst figure is off.
pub(crate) fn text() -> String {
    let mut text =
        format!("{:<34} {:>7} {:>10}  {}\n", "formula", "figures", "error", "the worst of them");
    for (name, figures) in groups() {
        let worst = rig::worst(&figures);
        let error = 100.0 * worst.error();
        let _ = writeln!(text, "{name:<34} {:>7} {error:>9.4}%  {}", figures.len(), worst.what);
    }
    let _ = writeln!(
        text,
        "\n{:<34} {:>7} {:>10}  95 % interval",
        "M/D/1, services waited", "formula", "mean"
    );
    for MeanWait { load, expected, mean, half } in queueing::waits() {
        let (low, high) = (mean - half, mean + half);
        let _ = writeln!(
            text,
            "load 0.{load:<29} {expected:>10.4} {mean:>10.4}  {low:.4} to {high:.4}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within_tolerance(figures: &[CheckedFigure]) {
        let worst = rig::worst(figures);
        assert!(worst.error() <= TOLERANCE, "{worst:?} is off by {:.3} %", 100.0 * worst.error());
    }

    #[test]
    fn latency__cut_through() {
        within_tolerance(&latency::figures(Switching::CutThrough));
    }

    #[test]
    fn latency__store_and_forward() {
        within_tolerance(&latency::figures(Switching::StoreAndForward));
    }

    #[test]
    fn latency__slow_memory() {
        within_tolerance(&latency::slow_hosts());
    }

    #[test]
    fn credits__one_buffer_each_round_trip() {
        within_tolerance(&credits::figures());
    }

    #[test]
    fn arbitration__tables_by_hand() {
        within_tolerance(&arbitration::by_hand());
        within_tolerance(&arbitration::low_alone());
    }

    #[test]
    fn arbitration__random_tables() {
        within_tolerance(&arbitration::random_tables());
    }

    #[test]
    fn arbitration__weighted_and_strict() {
        within_tolerance(&arbitration::weighted());
        within_tolerance(&arbitration::strict());
    }

    #[test]
    fn parking_lot__turns_halve_and_arrivals_do_not() {
        within_tolerance(&parking::turns());
        within_tolerance(&parking::turns_of_slow_hosts());
        within_tolerance(&parking::arrivals_of_slow_hosts());
    }

    #[test]
    fn max_min__where_turns_imply_it() {
        within_tolerance(&fairness::stars());
        within_tolerance(&fairness::trunks());
    }

    #[test]
    fn queueing__mean_wait_is_that_of_m_d_1() {
        for wait in queueing::waits() {
            assert!((wait.mean - wait.expected).abs() <= wait.half, "{wait:?}");
            // An interval that holds everything says nothing.
            assert!(wait.half < 0.07 * wait.expected, "{wait:?}");
        }
    }
}
