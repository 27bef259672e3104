//! A made-up report in the likeness of the incast demonstration: eight hosts, one FIFO queue
//! against strict priority.

use clearway_proto::base::{RandomKey, RandomStream};
use clearway_proto::stats::Histogram;

use super::model::*;

/// What the network does to the victim in one queue, in microseconds and percent.
struct SampleLevel {
    queue: &'static str,
    isolated: [f64; 2],
    congested: [f64; 2],
    goodput: f64,
    loss: f64,
}

const LEVELS: [SampleLevel; 2] = [
    SampleLevel {
        queue: "fifo",
        isolated: [12.4, 28.3],
        congested: [11_956.0, 12_069.0],
        goodput: 98.6,
        loss: 0.31,
    },
    SampleLevel {
        queue: "strict",
        isolated: [12.3, 27.9],
        congested: [13.0, 60.0],
        goodput: 97.9,
        loss: 0.0,
    },
];

const VICTIM: &str = "ping-8B";
const CONGESTOR: &str = "incast-6:1";

/// Returns the report; the same on every machine.
pub(crate) fn incast_demo() -> Report {
    let command = [
        "clearway",
        "bench",
        "scenarios/incast.toml",
        "--on",
        "lab",
        "--seed",
        "19",
        "--out",
        "out/incast",
    ];
    let scenario = ReportScenario { name: "incast".to_owned(), text: SCENARIO.to_owned() };
    let mut report = Report::new(command.map(str::to_owned).into(), "lab", scenario, 19);
    report.created = rfc3339(1_767_225_599);
    report.program.commit = Some("0123456789ab".to_owned());
    report.verdict = Some(verdict());
    report.parameters = parameters();
    report.host = host();
    report.warnings = vec![
        "tc queues drop when full; InfiniBand, Slingshot and PFC fabrics wait instead: congestion there spreads further".to_owned(),
        "11 of 4000 steps were left out: threads of the run waited more than 10 % of the step for a processor".to_owned(),
    ];
    let mut stream = RandomKey::new(19).purpose("sample").stream();
    for level in &LEVELS {
        report.figures.extend(figures(level));
        report.survival.extend(curves(level, &mut stream));
        report.timelines.push(timeline(level, &mut stream));
        report.heat.push(heat(level, &mut stream));
        report.shares.extend(shares(level));
    }
    report.draws = (0..10).map(|n| draw(n, &mut stream)).collect();
    report
}

/// Returns a report of what rarely happens: nothing came back, nothing was sent, one sample, one
/// host, long foreign names.
pub(crate) fn odd() -> Report {
    let mut report = incast_demo();
    let long =
        "a-name-without-any-space-that-is-longer-than-a-narrow-window-is-wide-</script>".to_owned();
    for figure in &mut report.figures {
        (figure.value, figure.low, figure.high) =
            (ExtendedReal::INFINITE, Some(ExtendedReal::finite(0.0)), Some(ExtendedReal::INFINITE));
        figure.labels.insert(labels::VICTIM.to_owned(), long.clone());
    }
    report.survival[0].points = vec![(28.0, 0.0)];
    report.survival[1].points.clear();
    report.survival[2].points = vec![(28.0, 1.0)];
    report.timelines.truncate(1);
    report.timelines[0].victim_p99_us = vec![None, Some(ExtendedReal::INFINITE), None];
    report.timelines[0].goodput_mbps.truncate(1);
    report.timelines[0].cpu_noise.clear();
    report.timelines[0].ideal_mbps = None;
    report.heat[0] = HeatMap {
        labels: Labels::new(),
        ranks: vec![long.clone()],
        rows: vec![vec![Some(ExtendedReal::INFINITE)]],
    };
    let ranks: Vec<String> = (0..100).map(|n| format!("node{n:04}")).collect();
    let row = |from: usize| {
        (0..100)
            .map(|to| {
                ExtendedReal::new(if to == 7 {
                    f64::INFINITY
                } else {
                    1.0 + (from * to % 9) as f64
                })
            })
            .collect()
    };
    report.heat[1] = HeatMap { labels: Labels::new(), rows: (0..100).map(row).collect(), ranks };
    report.shares[0].reached = Some(ExtendedReal::INFINITE);
    report.draws.truncate(2);
    report.draws[0].cif[0] =
        DrawFactor { labels: Labels::new(), value: ExtendedReal::INFINITE, low: None, high: None };
    report.warnings = vec![long];
    report
}

/// Returns the demo with text that would be markup.
pub(crate) fn hostile() -> Report {
    let attack = "</script><script>alert(1)</script><!--\" onload='x'\u{2028}";
    let mut report = incast_demo();
    report.scenario.name = attack.to_owned();
    report.command.push(attack.to_owned());
    report.warnings.push(attack.to_owned());
    for figure in &mut report.figures {
        figure.labels.insert(labels::QUEUE.to_owned(), attack.to_owned());
        figure.unit = attack.to_owned();
    }
    report.heat[0].ranks[0] = attack.to_owned();
    report.shares[0].granted = attack.to_owned();
    report
}

/// Returns the demo as if it had been simulated, on two groups of two switches with two hosts each.
pub(crate) fn simulated() -> Report {
    let mut report = incast_demo();
    report.place = "sim".to_owned();
    let host = |n: u32| FabricLink { ends: [n, 8 + n / 2], cables: 1, gbps: 100.0 };
    let mut links: Vec<FabricLink> = (0..8).map(host).collect();
    links.extend([[8, 9], [10, 11]].map(|ends| FabricLink { ends, cables: 1, gbps: 100.0 }));
    links.push(FabricLink { ends: [9, 10], cables: 2, gbps: 200.0 });
    let port = |ends, load, stalled| PortLoad {
        ends,
        port: 3,
        load,
        lanes: vec![12.5, 87.5],
        stalled,
        queue_bytes: 65_536,
        drops: 0,
    };
    let load = |queue: &str| PhaseLoad {
        labels: with(Labels::new(), labels::QUEUE, queue),
        phase: format!("{queue}: {VICTIM} under {CONGESTOR}, draw 1"),
        window_ms: 2.0,
        lanes: vec!["control, low-latency".to_owned(), "best-effort, bulk, scavenger".to_owned()],
        links: (0..links.len()).map(|i| [i as f64 * 10.0, 3.0]).collect(),
        busiest: vec![port([9, 10], 99.8, 0.0)],
        stalled: vec![port([9, 10], 99.8, 76.0), port([0, 8], 30.0, 41.5), port([1, 8], 30.0, 0.5)],
    };
    report.fabric = Some(ReportFabric {
        name: "pairs".to_owned(),
        kind: "a dragonfly".to_owned(),
        shape: SwitchArrangement::Groups,
        cables: 12,
        hosts: (0..8).map(|n| format!("n{n}")).collect(),
        switches: (0..4)
            .map(|n| Switch { name: format!("g{}s{}", n / 2, n % 2), group: n / 2, row: 0 })
            .collect(),
        loads: LEVELS.iter().map(|level| load(level.queue)).collect(),
        links,
    });
    report.slowest = vec![slowest()];
    report
}

/// Returns one message that was followed and one that was not.
fn slowest() -> Slowest {
    let wait = LongestWait {
        cause: "room in the next buffer".to_owned(),
        port: "g0s1 -> g1s0".to_owned(),
        us: 36.4,
        root: "g1s1 -> n6".to_owned(),
        because: "busy with packets of 3 hosts".to_owned(),
    };
    let message = |number: u32, latency_us, wait| SlowMessage {
        id: format!("p2:n1:{number}"),
        ends: ["n1".to_owned(), "n5".to_owned()],
        bytes: 35,
        posted_us: 1000.0,
        latency_us,
        wait,
    };
    Slowest {
        labels: labels_of(&LEVELS[0]),
        phase: format!("fifo: {VICTIM} under {CONGESTOR}, draw 1"),
        messages: vec![message(77, 48.2, Some(wait)), message(90, 31.0, None)],
        note: None,
    }
}

fn labels_of(level: &SampleLevel) -> Labels {
    let pairs =
        [(labels::QUEUE, level.queue), (labels::VICTIM, VICTIM), (labels::CONGESTOR, CONGESTOR)];
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn with(mut labels: Labels, key: &str, value: &str) -> Labels {
    labels.insert(key.to_owned(), value.to_owned());
    labels
}

fn verdict() -> Verdict {
    let part = |queue: &str, outcome, sentence: &str| PartVerdict {
        labels: with(Labels::new(), labels::QUEUE, queue),
        outcome,
        sentence: sentence.to_owned(),
    };
    let rule = |name: &str, limit, unit: &str, sentence: &str| VerdictRule {
        name: name.to_owned(),
        limit: ExtendedReal::finite(limit),
        unit: unit.to_owned(),
        sentence: sentence.to_owned(),
    };
    Verdict {
        outcome: RunOutcome::Congested,
        sentence: "With one FIFO queue a 6:1 incast slows small messages 426 times (p99 28.3 us to 12.1 ms); \
                   strict priority holds them at 60 us while the incast keeps 98 % of its rate."
            .to_owned(),
        reasons: vec![
            "null control without a congestor: factor 1.00 [0.97..1.04], so the machine itself is quiet".to_owned(),
            "10 draws, each across the shared port; offered load 171 % of it".to_owned(),
            "the congestor ran at 98 % of its ideal while victims were measured".to_owned(),
        ],
        parts: vec![
            part("fifo", RunOutcome::Congested, "p99 rises 426 times; the victim waits behind a queue of 100 packets."),
            part("strict", RunOutcome::Contained, "p99 stays below the time of one bulk packet on the wire (115 us)."),
        ],
        rules: vec![
            rule("null-control", 1.1, "x", "the factor without a congestor must lie within 1/1.1 and this"),
            rule("cif-p99", 1.5, "x", "upper end of the factor of p99, for every victim, or below the packet floor"),
            rule("packet-floor", 115.4, "us", "one full packet of the lowest class cannot be interrupted"),
            rule("goodput", 80.0, "%", "the congestor must keep this share of its ideal: protection, not throttling"),
        ],
    }
}

fn figures(level: &SampleLevel) -> Vec<Figure> {
    let estimate = |name: &str, unit: &str, value: f64, spread: f64| Figure {
        low: Some(ExtendedReal::finite(round(value * (1.0 - spread)))),
        high: Some(ExtendedReal::finite(round(value * (1.0 + spread)))),
        labels: labels_of(level),
        ..Figure::counted(
            name,
            unit,
            ExtendedReal::finite(value),
            40_000,
            "median over 10 draws, 100 ms blocks, 1000 resamples",
        )
    };
    let mut figures = Vec::new();
    for (phase, values) in
        [(labels::ISOLATED, level.isolated), (labels::CONGESTED, level.congested)]
    {
        for (quantile, value) in ["p50", "p99"].into_iter().zip(values) {
            let figure = estimate("victim_latency", "us", value, 0.03);
            figures.push(figure.with(labels::PHASE, phase).with(labels::QUANTILE, quantile));
        }
    }
    for (i, quantile) in ["p50", "p99"].into_iter().enumerate() {
        let value = round(level.congested[i] / level.isolated[i]);
        figures.push(
            estimate("congestion_impact_factor", "x", value, 0.05).with(labels::QUANTILE, quantile),
        );
    }
    let loss =
        Figure::counted("victim_loss", "%", ExtendedReal::finite(level.loss), 40_000, "counted");
    figures
        .push(Figure { labels: labels_of(level), ..loss }.with(labels::PHASE, labels::CONGESTED));
    figures.push(estimate("congestor_goodput_share", "%", level.goodput, 0.004));
    figures
}

/// Returns three decimals, and no more digits than a file keeps, so that a report that was read
/// back is the same.
fn round(value: f64) -> f64 {
    rounded((value * 1000.0).round() / 1000.0)
}

/// Returns a latency whose median and 99 % quantile are about those given.
fn latency_ns(stream: &mut RandomStream, [p50, p99]: [f64; 2]) -> u64 {
    let uniform = (stream.below(1 << 40) + 1) as f64 / (1u64 << 40) as f64;
    // A logistic distribution of the logarithm: its odds are a power of the value.
    let shape = (p99 / p50).ln() / 99f64.ln();
    let tail = ((1.0 - uniform) / uniform).powf(shape);
    (p50 * tail.clamp(0.55, (p99 / p50) * 3.0) * 1e3) as u64
}

fn curves(level: &SampleLevel, stream: &mut RandomStream) -> Vec<SurvivalCurve> {
    let phases =
        [(labels::ISOLATED, level.isolated, 0.0), (labels::CONGESTED, level.congested, level.loss)];
    let curve = |(phase, values, loss): (&str, [f64; 2], f64)| {
        let mut histogram: Histogram = (0..40_000).map(|_| latency_ns(stream, values)).collect();
        histogram.record_infinite((loss * 400.0) as u64);
        let mut curve =
            SurvivalCurve::from_histogram(&histogram, with(labels_of(level), labels::PHASE, phase));
        curve
            .points
            .iter_mut()
            .for_each(|(_, fraction)| *fraction = (*fraction * 1e6).round() / 1e6);
        curve
    };
    phases.map(curve).into()
}

fn timeline(level: &SampleLevel, stream: &mut RandomStream) -> Timeline {
    let phase = |name: &str, from_s, to_s| TimelinePhase { name: name.to_owned(), from_s, to_s };
    let phases = vec![
        phase("isolated", 0.0, 4.0),
        phase("congested", 4.0, 10.0),
        phase("isolated", 10.0, 14.0),
    ];
    let mut timeline = Timeline {
        labels: labels_of(level),
        step_ms: 100.0,
        start_s: 0.0,
        victim_p99_us: Vec::new(),
        goodput_mbps: Vec::new(),
        cpu_noise: Vec::new(),
        ideal_mbps: Some(ExtendedReal::finite(95.6)),
        phases,
    };
    for step in 0..140u32 {
        let loaded = (40..100).contains(&step);
        let jitter = |stream: &mut RandomStream, value: f64| {
            round(value * (0.94 + stream.below(120) as f64 / 1000.0))
        };
        let p99 = jitter(stream, if loaded { level.congested[1] } else { level.isolated[1] });
        let lost = loaded && level.loss > 0.0 && step % 17 == 3;
        let silent = step == 70;
        timeline.victim_p99_us.push((!silent).then_some(if lost {
            ExtendedReal::INFINITE
        } else {
            ExtendedReal::finite(p99)
        }));
        let ramp = [0.4, 0.9].get((step as usize).wrapping_sub(40)).copied().unwrap_or(1.0);
        let goodput = if loaded { jitter(stream, 94.0 * ramp) } else { 0.0 };
        timeline.goodput_mbps.push(Some(ExtendedReal::finite(goodput.min(95.6))));
        let burst = if step == 118 { 9.0 } else { 0.0 };
        timeline.cpu_noise.push(Some(ExtendedReal::finite(round(
            0.4 + stream.below(1200) as f64 / 1000.0 + burst,
        ))));
    }
    timeline
}

fn heat(level: &SampleLevel, stream: &mut RandomStream) -> HeatMap {
    let ranks: Vec<String> = (0..8).map(|n| format!("h{n}")).collect();
    let factor = level.congested[1] / level.isolated[1];
    let mut cell = |from: usize, to: usize| {
        let through_hot_port = to == 0;
        let value = if through_hot_port { factor } else { 1.0 + stream.below(200) as f64 / 1000.0 };
        let slow_cable = (from, to) == (5, 2);
        (from != to)
            .then(|| ExtendedReal::finite(round(if slow_cable { value * 3.4 } else { value })))
    };
    let rows = (0..8).map(|from| (0..8).map(|to| cell(from, to)).collect()).collect();
    HeatMap { labels: labels_of(level), ranks, rows }
}

fn shares(level: &SampleLevel) -> Vec<ClassShare> {
    let strict = level.queue == "strict";
    let share =
        |class: &str, asked: &str, configured: f64, reached: f64, starved: f64| ClassShare {
            labels: with(Labels::new(), labels::QUEUE, level.queue),
            class: class.to_owned(),
            asked: asked.to_owned(),
            granted: if strict {
                format!("{asked}, own queue")
            } else {
                format!("{asked}, shared queue")
            },
            configured: strict.then(|| ExtendedReal::finite(configured)),
            reached: Some(ExtendedReal::finite(reached)),
            starved_ms: Some(ExtendedReal::finite(starved)),
        };
    if strict {
        vec![
            share("low-latency", "EF", 10.0, 9.8, 0.2),
            share("best-effort", "CS0", 50.0, 51.3, 3.1),
            share("bulk", "CS1", 35.0, 34.4, 4.6),
            share("scavenger", "LE", 5.0, 4.5, 61.0),
        ]
    } else {
        vec![
            share("low-latency", "EF", 0.0, 1.2, 12.4),
            share("best-effort", "CS0", 0.0, 33.1, 9.0),
            share("bulk", "CS1", 0.0, 32.9, 9.4),
            share("scavenger", "LE", 0.0, 32.8, 9.1),
        ]
    }
}

fn draw(n: u32, stream: &mut RandomStream) -> Draw {
    let mut factor = |level: &SampleLevel| {
        let spread = 0.6 + stream.below(800) as f64 / 1000.0;
        let value = level.congested[1] / level.isolated[1] * spread;
        let at = |scale: f64| ExtendedReal::finite(round(value * scale));
        DrawFactor {
            labels: with(with(Labels::new(), labels::QUEUE, level.queue), labels::QUANTILE, "p99"),
            value: at(1.0),
            low: Some(at(0.91)),
            high: Some(at(1.08)),
        }
    };
    let cif = LEVELS.iter().map(&mut factor).collect();
    Draw { draw: n, seed: 1_900 + u64::from(n), cif }
}

fn parameters() -> Vec<Parameter> {
    let parameter = |name: &str, value: &str, unit: &str, origin| Parameter {
        name: name.to_owned(),
        value: value.to_owned(),
        unit: unit.to_owned(),
        origin,
    };
    vec![
        parameter("hosts", "8", "", ParameterOrigin::Scenario),
        parameter("link", "100 Mb/s", "", ParameterOrigin::Scenario),
        parameter("queue-packets", "100", "packets", ParameterOrigin::Scenario),
        parameter("draws", "10", "", ParameterOrigin::Default),
        parameter("probe-period", "1", "ms", ParameterOrigin::Default),
        parameter("seed", "19", "", ParameterOrigin::Flag),
    ]
}

fn host() -> ReportHost {
    let facts = [
        ("clock source", "tsc"),
        ("segmentation offload", "off on every virtual link"),
        ("qdisc", "htb + pfifo"),
    ];
    ReportHost {
        kernel: "Linux 6.12.0 x86_64".to_owned(),
        cpus: 8,
        memory_bytes: 16 << 30,
        load_before: Some([0.21, 0.34, 0.30]),
        load_after: Some([1.92, 0.88, 0.49]),
        hypervisor: Some("KVM".to_owned()),
        facts: facts.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    }
}

const SCENARIO: &str = r#"# Six hosts send to one; a seventh pings it. </script><b>not markup</b>
name = "incast"

[fabric]
preset = "star"
hosts = 8
link = "100 Mb/s"

[[queue]]
name = "fifo"

[[queue]]
name = "strict"
"#;

/// Where the same report lies as a file, for tests that run the program and for readers of
/// `docs/report.md`.
const FIXTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/incast-demo/report.json");

#[test]
fn fixture__is_this_report() {
    let expected = serde_json::to_string(&incast_demo()).expect("written");
    if std::env::var_os("CLEARWAY_BLESS").is_some() {
        std::fs::create_dir_all(std::path::Path::new(FIXTURE).parent().expect("a directory"))
            .expect("made");
        std::fs::write(FIXTURE, &expected).expect("written");
    }
    let found = std::fs::read_to_string(FIXTURE).unwrap_or_default();
    assert!(
        found == expected,
        "{FIXTURE} differs from this file; CLEARWAY_BLESS=1 cargo test -p clearway writes it"
    );
}
