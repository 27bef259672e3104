//! Made-up broadcasts: in a laboratory with a laggard, a loss and a change of the way, and on
//! simulated machines.

use super::casting::*;
use crate::report::model::*;

const HOSTS: u32 = 8;
const MODES: [&str; 3] = ["auto", "chain", "tree"];
const LOSSES: [&str; 2] = ["0", "0.01"];

/// Broadcasts in a laboratory.
pub(crate) fn casting() -> Report {
    let scenario =
        ReportScenario { name: "broadcasts".to_owned(), text: "name = \"broadcasts\"".to_owned() };
    let mut report = Report::new(vec!["clearway".to_owned()], "lab", scenario, 3);
    let mut casts = Vec::new();
    for (bytes, name) in [(4, "4"), (64 << 20, "67108864")] {
        for loss in LOSSES {
            for (place, mode) in MODES.into_iter().enumerate() {
                let labels = labels_of(&[("bytes", name), ("loss", loss), ("mode", mode)]);
                report.figures.extend(times(bytes, place, &labels));
                casts.push(run(bytes, place, labels));
            }
        }
    }
    let hosts = (0..HOSTS).map(|n| format!("node-{n:04}.cluster.example.org")).collect();
    report.set_part(&BroadcastReport { hosts, rate_mbps: ExtendedReal::finite(200.0), casts });
    report
}

/// Broadcasts on simulated machines.
pub(crate) fn scaling() -> Report {
    let scenario =
        ReportScenario { name: "broadcasts".to_owned(), text: "name = \"broadcasts\"".to_owned() };
    let mut report = Report::new(vec!["clearway".to_owned()], "sim", scenario, 3);
    for fabric in ["edr", "slingshot"] {
        for ranks in [8_u32, 64, 1000] {
            for (place, mode) in ["multicast", "chain", "tree"].into_iter().enumerate() {
                let ranks_label = ranks.to_string();
                let labels = [
                    ("bytes", "1048576"),
                    ("loss", "0"),
                    ("mode", mode),
                    ("fabric", fabric),
                    ("ranks", &ranks_label),
                ];
                let with = |figure: Figure| {
                    labels.iter().fold(figure, |figure, (key, value)| figure.with(key, *value))
                };
                let time = 2.6e-4 * f64::from(ranks).powf(0.3 * place as f64);
                report.figures.push(with(Figure::counted(
                    "broadcast_seconds",
                    "s",
                    ExtendedReal::finite(time),
                    1,
                    "made up",
                )));
                for (links, ratio) in
                    [("from-hosts", place as f64), ("to-hosts", 1.0), ("between-switches", 0.1)]
                {
                    let figure = Figure::counted(
                        "broadcast_link_bytes",
                        "",
                        ExtendedReal::finite(ratio),
                        1,
                        "made up",
                    );
                    report.figures.push(with(figure).with("links", links));
                }
            }
        }
    }
    report
}

fn labels_of(all: &[(&str, &str)]) -> Labels {
    all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn times(bytes: u64, place: usize, labels: &Labels) -> Vec<Figure> {
    let time = 1.5e-4 + bytes as f64 * 4.2e-8 * (1.0 + place as f64);
    let all = [
        ("broadcast_seconds", time),
        ("broadcast_p99_seconds", 1.4 * time),
        ("broadcast_root_cpu_seconds", 0.1 * time),
    ];
    let with =
        |figure: Figure| labels.iter().fold(figure, |figure, (key, value)| figure.with(key, value));
    let mut figures: Vec<Figure> = all
        .into_iter()
        .map(|(name, value)| {
            with(Figure::counted(name, "s", ExtendedReal::finite(value), 200, "made up"))
        })
        .collect();
    if bytes == 4 {
        let ratio =
            Figure::counted("broadcast_bare_ratio", "", ExtendedReal::finite(1.7), 200, "made up");
        figures.push(with(ratio).with("kind", "alone"));
        let bare = Figure::counted(
            "broadcast_bare_seconds",
            "s",
            ExtendedReal::finite(9e-5),
            500,
            "made up",
        );
        figures.push(bare.with("loss", labels["loss"].clone()).with(labels::QUANTILE, "p50"));
    }
    figures
}

fn run(bytes: u64, place: usize, labels: Labels) -> CastRun {
    let receivers = u64::from(HOSTS - 1);
    let lost = if labels["loss"] == "0" { 0 } else { 3_300 };
    let source = |host: u64| match (host, place) {
        (0, _) => Vec::new(),
        (_, 0) => vec![46_000],
        (_, 1) => (0..host).map(|from| if from + 1 == host { 46_000 } else { 0 }).collect(),
        _ => (0..host).map(|from| if from == host / 4 * 4 % host { 46_000 } else { 0 }).collect(),
    };
    let copies = [1, 1, 4][place];
    CastRun {
        bytes,
        objects: 2,
        way: ["multicast", "chain", "tree"][place].to_owned(),
        symbols: CastSymbols {
            needed: 92_000 * receivers,
            lost,
            damaged: 0,
            early: lost / 40,
            repairs: lost * 2,
            doubled: lost / 3,
        },
        links: (0..=receivers)
            .map(|host| if host == 0 { [2 * copies * bytes, 900] } else { [800, 2 * bytes] })
            .collect(),
        sources: (0..=receivers).map(source).collect(),
        samples: (bytes > 4).then(|| progress_samples(place)),
        labels,
    }
}

/// Returns samples that are steady but for a stall at the last receiver.
fn progress_samples(place: usize) -> CastProgressSamples {
    let whole =
        |receiver: u32| 2_800.0 * (1.0 + 0.4 * place as f64) + f64::from(receiver * receiver) * 9.0;
    let progress = |receiver: u32| {
        let at = |n: u32| f64::from(n) / 100.0 * whole(receiver);
        let stalls = |n: u32| receiver + 2 == HOSTS && (40..50).contains(&n);
        let part = move |n: u32| if stalls(n) { 40.0 } else { f64::from(n) };
        (0..=100).map(|n| (ExtendedReal::finite(at(n)), ExtendedReal::finite(part(n)))).collect()
    };
    CastProgressSamples {
        object: 1,
        whole_ms: (0..HOSTS - 1)
            .map(|receiver| Some(ExtendedReal::finite(whole(receiver))))
            .collect(),
        switches: if place == 0 {
            vec![(ExtendedReal::finite(1_200.0), "chain".to_owned())]
        } else {
            Vec::new()
        },
        progress: (0..HOSTS - 1).map(progress).collect(),
    }
}
