//! A made-up run of timeslice building.

use super::building::*;
use crate::report::model::*;

/// Returns a made-up run of timeslice building: raw writes, a scheduler with intervals, and one
/// that was slowed down.
pub(crate) fn building() -> Report {
    let scenario =
        ReportScenario { name: "timeslices".to_owned(), text: "name = \"timeslices\"".to_owned() };
    let mut report = Report::new(vec!["clearway".to_owned()], "sim", scenario, 3);
    let five =
        |scale: f64| [0.5, 0.8, 1.0, 1.3, 2.0].map(|value| ExtendedReal::finite(value * scale));
    let policy = |(place, name): (usize, &str)| BuildingPolicy {
        policy: name.to_owned(),
        completion_ms: (place > 0).then(|| five(10f64.powi(place as i32 - 2))),
        fills: if place > 0 {
            (0..8).map(|n| five(10.0 + f64::from(n))).collect()
        } else {
            Vec::new()
        },
        blocked: [("no-credit", 30.0), ("paced", 20.0)]
            .map(|(cause, part)| (cause.to_owned(), ExtendedReal::finite(part)))
            .into(),
        step_ms: 0.5,
        pulse: (0..200)
            .map(|n| ExtendedReal::finite(if (50..90).contains(&n) { 0.75 } else { 0.97 }))
            .collect(),
        intervals: if place == 1 { (0..40).map(building_interval).collect() } else { Vec::new() },
        gantt: (place > 0).then(|| BuildingGantt {
            step_us: 4.0,
            rows: (0..8u32)
                .map(|row| (0..80u32).map(|n| (n % 7 > 0).then_some((n / 7 + row) % 8)).collect())
                .collect(),
        }),
    };
    report.set_part(&BuildingReport {
        inputs: 8,
        builders: 8,
        contribution_bytes: 65_536,
        ring_bytes: 32 << 20,
        rotation_ms: 0.15,
        slower_ms: Some([25.0, 45.0].map(ExtendedReal::finite)),
        policies: ["raw", "dfs", "a-policy-with-a-rather-long-name"]
            .into_iter()
            .enumerate()
            .map(policy)
            .collect(),
    });
    for (name, value) in [("raw", 1.0), ("dfs", 0.9)] {
        let figure = Figure::counted(
            "timeslice_throughput_fraction",
            "",
            ExtendedReal::finite(value),
            3,
            "made up",
        );
        report.figures.push(figure.with("policy", name));
    }
    report
}

fn building_interval(n: u32) -> BuildingInterval {
    let start = f64::from(n) * 2.0;
    BuildingInterval {
        interval: n,
        start_ms: ExtendedReal::finite(start + 0.1),
        spread_ms: ExtendedReal::finite(0.05),
        duration_ms: ExtendedReal::finite(2.0 + f64::from(n % 5) / 10.0),
        proposed_ms: (n > 1).then(|| [start, 2.0].map(ExtendedReal::finite)),
    }
}
