//! `cargo xtask bench scavenger`: what reliable messages of class scavenger use of a link alone,
//! against TCP with CUBIC, and against each other.
//!
//! # Model
//! Two hosts of a lab with a link of 200 Mb/s and a FIFO queue; every packet is one frame. Flows go from
//! one host to the other; the kernel's packet filter counts their packets where they come in, with the
//! headers of IP. A share is what it counted of a flow from one instant to another, over what the link
//! carries in that time. Each round has:
//! ```text
//!   alone        a scavenger                                  share of the link
//!   late         CUBIC, a second later a scavenger            over half of the link
//!   early        a scavenger, a second later CUBIC            over half of the link
//!   latecomer    a scavenger, three seconds later another     Jain's index of both
//! ```
//! What begins does not count: the window begins two seconds after the last flow, and with two
//! scavengers eight, because the earlier one first has to slow down.
//!
//! # Not here
//! The ends: `crates/clearway-wires/benches/reliable_bench/`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::pair::{LabPair, lacks_programs};
use super::{BenchArguments, build, build_program, load, spread};

/// Frames of a packet: as a switch sees them.
const FRAMES: u32 = 1;
/// The rate of the link, and the same in bit/s.
const RATE: &str = "200Mb/s";
const RATE_BITS: f64 = 200e6;
/// What a flow would carry: more than the link does until it is ended.
const MIB: u32 = 1 << 12;
/// Bytes of Ethernet around a packet of IP: the lab's link counts a frame's header.
const FRAME_HEAD: f64 = 14.0;
/// What is counted of a flow: long enough for several slowdowns of a scavenger.
const WINDOW: Duration = Duration::from_secs(10);
/// Between the last flow's beginning and the window.
const SETTLE: Duration = Duration::from_secs(2);
const SETTLE_BOTH: Duration = Duration::from_secs(8);
/// Ports of both ends of a flow, by its place.
const PORTS: [[u16; 2]; 2] = [[7_000, 7_001], [7_100, 7_101]];

/// What sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowKind {
    Scavenger,
    Cubic,
}

impl FlowKind {
    /// Returns the roles of the ends, and the protocol.
    const fn roles(self) -> [&'static str; 3] {
        match self {
            Self::Scavenger => ["send-scavenger", "receive", "udp"],
            Self::Cubic => ["tcp-send-cubic", "tcp-receive", "tcp"],
        }
    }
}

/// What runs in a round, and what is said of it.
struct ScavengerCase {
    name: &'static str,
    flows: &'static [FlowKind],
    apart: Duration,
    settle: Duration,
    /// The least, or the most, that is wanted.
    aim: &'static str,
}

const CASES: [ScavengerCase; 4] = [
    ScavengerCase {
        name: "alone, of the link",
        flows: &[FlowKind::Scavenger],
        apart: Duration::ZERO,
        settle: SETTLE,
        aim: ">= 0.9",
    },
    ScavengerCase {
        name: "after CUBIC, of its fair share",
        flows: &[FlowKind::Cubic, FlowKind::Scavenger],
        apart: Duration::from_secs(1),
        settle: SETTLE,
        aim: "<= 0.15",
    },
    ScavengerCase {
        name: "before CUBIC, of its fair share",
        flows: &[FlowKind::Scavenger, FlowKind::Cubic],
        apart: Duration::from_secs(1),
        settle: SETTLE,
        aim: "<= 0.15",
    },
    ScavengerCase {
        name: "two, Jain's index",
        flows: &[FlowKind::Scavenger, FlowKind::Scavenger],
        apart: Duration::from_secs(3),
        settle: SETTLE_BOTH,
        aim: ">= 0.9",
    },
];

/// By case: the figure, and the part of the link that all flows used; a value for each round.
type ScavengerFigures = BTreeMap<&'static str, Vec<[f64; 2]>>;

/// Runs the bench.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    if lacks_programs("scavenger") {
        return Ok(ExitCode::SUCCESS);
    }
    let bench = build("clearway-wires", "reliable_bench")?;
    let bench = bench.to_str().context("a path that is no text")?;
    let lab = LabPair::up(build_program()?, 1, RATE, "fifo", FRAMES)?;
    let loaded = load();
    let mut figures = ScavengerFigures::new();
    for round in 0..options.rounds {
        for case in &CASES {
            match measure(&lab, bench, case) {
                Ok(seen) => figures.entry(case.name).or_default().push(seen),
                Err(error) => eprintln!("skipped: {} in round {round}: {error:#}", case.name),
            }
        }
    }
    if options.json {
        println!("{}", record(options, loaded, &figures));
    } else {
        print!("{}", text(options, loaded, &figures));
    }
    Ok(ExitCode::SUCCESS)
}

/// Both ends of a flow, which end with this value.
struct Flow([Child; 2]);

impl Drop for Flow {
    fn drop(&mut self) {
        // `timeout` passes its signal on to what it runs.
        for child in &mut self.0 {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// Begins the flow `kind` at this place.
fn begin(lab: &LabPair, bench: &str, kind: FlowKind, place: usize) -> Result<Flow> {
    let [send, receive, _] = kind.roles();
    let [near, far] = [0, 1].map(|host| lab.end(host, PORTS[place][host]));
    let mib = MIB.to_string();
    let mut receiver =
        lab.on(1, bench).args([receive, &far, &near, &mib]).stdout(Stdio::piped()).spawn()?;
    let ready = receiver.stdout.take().context("a pipe from the receiver")?;
    let ready = BufReader::new(ready).lines().next().transpose()?;
    let sender = lab.on(0, bench).args([send, &near, &far, &mib]).stdout(Stdio::null()).spawn();
    let flow = Flow([sender?, receiver]);
    ensure!(ready.as_deref() == Some("ready"), "the receiver does not begin");
    Ok(flow)
}

/// Runs a case; returns its figure, and the part of the link that all of it used.
fn measure(lab: &LabPair, bench: &str, case: &ScavengerCase) -> Result<[f64; 2]> {
    lab.filter(1, &counters(case.flows))?;
    let mut flows = Vec::new();
    for (place, kind) in case.flows.iter().enumerate() {
        if place > 0 {
            thread::sleep(case.apart);
        }
        flows.push(begin(lab, bench, *kind, place)?);
    }
    thread::sleep(case.settle);
    let before = (counted(lab)?, Instant::now());
    thread::sleep(WINDOW);
    let after = (counted(lab)?, Instant::now());
    drop(flows);
    let link = RATE_BITS / 8.0 * after.1.duration_since(before.1).as_secs_f64();
    let shares: Vec<f64> =
        before.0.iter().zip(&after.0).map(|(before, after)| (after - before) / link).collect();
    Ok([figure(case.flows, &shares), shares.iter().sum()])
}

/// Returns what is said of flows with these parts of the link.
fn figure(flows: &[FlowKind], shares: &[f64]) -> f64 {
    match (flows, shares) {
        ([FlowKind::Scavenger, FlowKind::Scavenger], [one, other]) => {
            (one + other).powi(2) / (2.0 * (one.powi(2) + other.powi(2)))
        }
        _ => {
            let own = flows.iter().position(|kind| *kind == FlowKind::Scavenger);
            let own = own.and_then(|place| shares.get(place)).copied().unwrap_or(f64::NAN);
            own * flows.len() as f64
        }
    }
}

/// Returns rules of `nft` that count what comes in of each flow.
fn counters(flows: &[FlowKind]) -> String {
    let names = || flows.iter().enumerate();
    let made: String = names().map(|(place, _)| format!(" counter flow{place} {{ }}\n")).collect();
    let rules: String = names()
        .map(|(place, kind)| {
            let [_, _, protocol] = kind.roles();
            format!(" {protocol} dport {} counter name flow{place}\n", PORTS[place][1])
        })
        .collect();
    format!(
        "table ip flows {{\n{made} chain in {{\n type filter hook input priority 0\n{rules} }}\n}}\n"
    )
}

/// Returns the bytes that came in of each flow, with the headers of frames.
fn counted(lab: &LabPair) -> Result<Vec<f64>> {
    let output = lab.on(1, "nft").args(["-j", "list", "counters"]).output().context("nft")?;
    ensure!(output.status.success(), "nft does not list its counters");
    bytes(&serde_json::from_slice(&output.stdout)?).context("nft lists no counters")
}

/// Reads the counters of flows, in the order of their names.
fn bytes(listed: &Value) -> Option<Vec<f64>> {
    let mut counters = BTreeMap::new();
    for counter in listed.get("nftables")?.as_array()?.iter().filter_map(|it| it.get("counter")) {
        let number = |key: &str| counter.get(key).and_then(Value::as_f64);
        let bytes = number("bytes")? + FRAME_HEAD * number("packets")?;
        counters.insert(counter.get("name")?.as_str()?, bytes);
    }
    (!counters.is_empty()).then(|| counters.into_values().collect())
}

fn column(values: &[[f64; 2]], which: usize) -> Vec<f64> {
    values.iter().map(|value| value[which]).collect()
}

fn text(options: &BenchArguments, loaded: f64, figures: &ScavengerFigures) -> String {
    let mut text = format!(
        "scavengers on {RATE}, {} rounds of {} s, load {loaded} before and {} after\n\
         median (least to greatest)\n\n",
        options.rounds,
        WINDOW.as_secs(),
        load()
    );
    for case in &CASES {
        let Some(values) = figures.get(case.name) else { continue };
        let (own, all) = (spread(&column(values, 0)), spread(&column(values, 1)));
        if let (Some((median, least, greatest)), Some((all, _, _))) = (own, all) {
            text.push_str(&format!(
                "  {:<32} {median:>6.3} ({least:.3} to {greatest:.3})  aim {:<7}  all flows {all:.3} of the link\n",
                case.name, case.aim
            ));
        }
    }
    text
}

fn record(options: &BenchArguments, loaded: f64, figures: &ScavengerFigures) -> Value {
    let cases = CASES.iter().filter_map(|case| {
        let values = figures.get(case.name)?;
        Some(json!({
            "case": case.name,
            "aim": case.aim,
            "figure": column(values, 0),
            "all_flows": column(values, 1),
        }))
    });
    json!({
        "bench": "scavenger",
        "rate": RATE,
        "rounds": options.rounds,
        "window_s": WINDOW.as_secs(),
        "load": [loaded, load()],
        "cases": cases.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure__is_of_the_fair_share_or_an_index() {
        use FlowKind::{Cubic, Scavenger};
        assert_eq!(figure(&[Scavenger], &[0.95]), 0.95);
        assert_eq!(figure(&[Cubic, Scavenger], &[0.9, 0.05]), 0.1);
        assert_eq!(figure(&[Scavenger, Cubic], &[0.05, 0.9]), 0.1);
        assert_eq!(figure(&[Scavenger, Scavenger], &[0.5, 0.5]), 1.0);
        assert_eq!(figure(&[Scavenger, Scavenger], &[0.5, 0.0]), 0.5);
    }

    #[test]
    fn bytes__are_those_of_counters_by_name_with_frames() {
        let listed = json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"counter": {"family": "ip", "name": "flow1", "packets": 2, "bytes": 3000}},
            {"counter": {"family": "ip", "name": "flow0", "packets": 0, "bytes": 0}},
        ]});
        assert_eq!(bytes(&listed), Some(vec![0.0, 3028.0]));
        assert_eq!(bytes(&json!({"nftables": []})), None);
    }
}
