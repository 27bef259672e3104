//! `cargo xtask bench rails`: reliable messages over one and two rails, and over two of which one
//! fails in the middle and comes back; the same over two wires.
//!
//! # Model
//! Two hosts of a lab with two rails of 100 Mb/s each. A rail fails in two ways: its interface goes
//! down at the sender, which the kernel knows, and everything that comes in over it is dropped at
//! both ends, which nobody knows. It comes back while the transfer goes on. Told are the longest
//! time between two writes of 64 KiB that landed, and what the rail carried after its return. Two
//! wires are libfabric (over TCP) and UDP on one rail; there the packets of one of them are dropped
//! at both ends. `loopback` is the same program without a network, checked and unchecked: what
//! looking at the bytes costs.
//!
//! # Not here
//! The ends: `crates/clearway-wires/benches/reliable_bench/`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::pair::{LabPair, incoming, lacks_programs};
use super::{BenchArguments, build, build_program, load, spread};

/// Frames of a packet: as between hosts with segmentation offload, so that processors do not bound.
const FRAMES: u32 = 43;
/// The rate of each rail.
const RATE: &str = "100Mb/s";
/// What is carried in MiB: 1.4 s over two rails, longer than a failure and a return.
const MIB: u32 = 32;
/// What is carried within one host, where the processor is the limit.
const MIB_WITHIN: u32 = 256;
/// When a rail fails, after the transfer began, and how long it is away.
const BEFORE: Duration = Duration::from_millis(400);
const AWAY: Duration = Duration::from_millis(400);
/// The interface of the second rail.
const SECOND: &str = "eth1";

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RailsCase {
    One,
    Two,
    Down,
    Filtered,
    Wires,
    WithoutTcp,
    WithoutUdp,
    Checked,
    Unchecked,
}

impl RailsCase {
    const ALL: [Self; 9] = [
        Self::One,
        Self::Two,
        Self::Down,
        Self::Filtered,
        Self::Wires,
        Self::WithoutTcp,
        Self::WithoutUdp,
        Self::Checked,
        Self::Unchecked,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::One => "one rail",
            Self::Two => "two rails",
            Self::Down => "two, one goes down",
            Self::Filtered => "two, one is filtered",
            Self::Wires => "two wires",
            Self::WithoutTcp => "two, TCP is filtered",
            Self::WithoutUdp => "two, UDP is filtered",
            Self::Checked => "loopback",
            Self::Unchecked => "loopback, unchecked",
        }
    }
}

/// Figures of a case: a value of each for each round.
#[derive(Default)]
struct CaseFigures {
    seconds: Vec<f64>,
    processor: Vec<f64>,
    gap: Vec<f64>,
    /// Of what was carried, the part that the second rail carried after its return.
    returned: Vec<f64>,
}

type RailsFigures = BTreeMap<RailsCase, CaseFigures>;

/// Runs the bench.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    if lacks_programs("rails") {
        return Ok(ExitCode::SUCCESS);
    }
    let bench = build("clearway-wires", "reliable_bench")?;
    let bench = bench.to_str().context("a path that is no text")?;
    let lab = LabPair::up(build_program()?, 2, RATE, "fifo", FRAMES)?;
    let loaded = load();
    let mut figures = RailsFigures::new();
    for round in 0..options.rounds {
        let mut cases = RailsCase::ALL;
        if round % 2 == 1 {
            cases.reverse();
        }
        for case in cases {
            let seen = figures.entry(case).or_default();
            if let Err(error) = measure(&lab, bench, case, seen) {
                eprintln!("skipped: {} in round {round}: {error:#}", case.name());
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

fn measure(lab: &LabPair, bench: &str, case: RailsCase, seen: &mut CaseFigures) -> Result<()> {
    let usual = [bench, "send", "receive"];
    let two_wires = [bench, "send-two-wires", "receive-two-wires"];
    let mut at_return = 0;
    let fails_and_returns = |at_return: &mut u64| {
        thread::sleep(BEFORE);
        fail(lab, case)?;
        thread::sleep(AWAY);
        *at_return = sent_on_second(lab)?;
        mend(lab, case)
    };
    let carried = match case {
        RailsCase::One => lab.carry(usual, 1, MIB, || Ok(()))?,
        RailsCase::Two => lab.carry(usual, 2, MIB, || Ok(()))?,
        RailsCase::Checked => lab.carry_within(usual, MIB_WITHIN)?,
        RailsCase::Unchecked => {
            lab.carry_within([bench, "send-unchecked", "receive-unchecked"], MIB_WITHIN)?
        }
        RailsCase::Down | RailsCase::Filtered => {
            lab.carry(usual, 2, MIB, || fails_and_returns(&mut at_return))?
        }
        RailsCase::Wires => lab.carry(two_wires, 1, MIB, || Ok(()))?,
        RailsCase::WithoutTcp | RailsCase::WithoutUdp => {
            lab.carry(two_wires, 1, MIB, || fails_and_returns(&mut at_return))?
        }
    };
    let mut returned = f64::NAN;
    if matches!(case, RailsCase::Down | RailsCase::Filtered) {
        let since = sent_on_second(lab)?.saturating_sub(at_return);
        returned = since as f64 / (f64::from(MIB) * f64::from(1 << 20));
    }
    seen.seconds.push(carried.seconds);
    seen.processor.push(carried.processor);
    seen.gap.push(carried.gap);
    seen.returned.push(returned);
    Ok(())
}

fn fail(lab: &LabPair, case: RailsCase) -> Result<()> {
    match case {
        RailsCase::Down => set_link(lab, "down"),
        RailsCase::WithoutTcp => drop_at_both(lab, "ip protocol tcp drop"),
        RailsCase::WithoutUdp => drop_at_both(lab, "ip protocol udp drop"),
        _ => drop_at_both(lab, &format!("iifname \"{SECOND}\" drop")),
    }
}

fn drop_at_both(lab: &LabPair, rule: &str) -> Result<()> {
    (0..2).try_for_each(|host| lab.filter(host, &incoming(rule)))
}

fn mend(lab: &LabPair, case: RailsCase) -> Result<()> {
    match case {
        RailsCase::Down => set_link(lab, "up"),
        _ => (0..2).try_for_each(|host| lab.filter(host, "")),
    }
}

fn set_link(lab: &LabPair, state: &str) -> Result<()> {
    let status = lab.on(0, "ip").args(["link", "set", SECOND, state]).status()?;
    ensure!(status.success(), "the link does not go {state}");
    Ok(())
}

/// Bytes that host 0 has sent on the second rail.
fn sent_on_second(lab: &LabPair) -> Result<u64> {
    let output = lab.on(0, "ip").args(["-j", "-s", "link", "show", SECOND]).output()?;
    let links: Value = serde_json::from_slice(&output.stdout).context("what ip says of a link")?;
    links.pointer("/0/stats64/tx/bytes").and_then(Value::as_u64).context("no count of bytes")
}

fn median(
    figures: &RailsFigures,
    case: RailsCase,
    column: fn(&CaseFigures) -> &Vec<f64>,
) -> Option<f64> {
    Some(spread(column(figures.get(&case)?))?.0)
}

fn text(options: &BenchArguments, loaded: f64, figures: &RailsFigures) -> String {
    let mut text = format!(
        "{MIB} MiB between two hosts with two rails of {RATE} (two wires: one rail), {MIB_WITHIN} MiB within one; {} rounds, load {loaded} before and {} after\n\
         median (least to greatest); gap: the longest between two writes of 64 KiB that landed\n\n",
        options.rounds,
        load()
    );
    for (case, seen) in figures {
        let (Some(seconds), Some(gap), Some(processor)) =
            (spread(&seen.seconds), spread(&seen.gap), spread(&seen.processor))
        else {
            continue;
        };
        text.push_str(&format!(
            "  {:<22} {:>6.3} s ({:.3} to {:.3})  gap {:>5.1} ms ({:.1} to {:.1})  processor {:.3} s ({:.3} to {:.3})",
            case.name(),
            seconds.0,
            seconds.1,
            seconds.2,
            1e3 * gap.0,
            1e3 * gap.1,
            1e3 * gap.2,
            processor.0,
            processor.1,
            processor.2
        ));
        if let Some((returned, ..)) =
            spread(&seen.returned).filter(|(returned, ..)| returned.is_finite())
        {
            text.push_str(&format!("  {:.0} % over the rail after its return", 100.0 * returned));
        }
        text.push('\n');
    }
    let ratio = |a, b, column| Some(median(figures, a, column)? / median(figures, b, column)?);
    if let Some(ratio) = ratio(RailsCase::One, RailsCase::Two, |seen| &seen.seconds) {
        text.push_str(&format!("\n  two rails carry {ratio:.2} of what one carries\n"));
    }
    if let Some(ratio) = ratio(RailsCase::Checked, RailsCase::Unchecked, |seen| &seen.processor) {
        text.push_str(&format!(
            "  looking at the bytes takes {:.1} % of the processor's work\n",
            100.0 * (1.0 - 1.0 / ratio)
        ));
    }
    text
}

fn record(options: &BenchArguments, loaded: f64, figures: &RailsFigures) -> Value {
    let figure = |(case, seen): (&RailsCase, &CaseFigures)| {
        json!({"case": case.name(), "seconds": seen.seconds, "processor_seconds": seen.processor, "gap_seconds": seen.gap,
               "part_after_return": seen.returned})
    };
    let all: Vec<Value> = figures.iter().map(figure).collect();
    json!({"bench": "rails", "mib": MIB, "rate": RATE, "rounds": options.rounds, "load": [loaded, load()], "figures": all})
}
