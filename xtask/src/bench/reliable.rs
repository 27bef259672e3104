//! `cargo xtask bench reliable`: reliable messages over UDP compared with the kernel's TCP, on one
//! path of a virtual cluster, with and without loss.
//!
//! # Model
//! Two hosts of a lab with links of 200 Mb/s. Each round carries the same bytes once by each
//! contestant, forwards and then backwards. Loss is made where packets come in, at both ends, by a
//! rule of the kernel's packet filter that drops a share at random; so answers are lost as well;
//! every packet is one frame there. TCP runs with the congestion control that the kernel uses by
//! itself, and with CUBIC. The figure is the time from the first byte sent to the last one known to
//! be there.
//!
//! # Not here
//! The ends: `crates/clearway-wires/benches/reliable_bench/`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::pair::{LabPair, lacks_programs};
use super::{BenchArguments, build, build_program, load, spread};

/// Frames of a packet where none is lost: as between hosts with segmentation offload, which TCP has
/// as well.
const FRAMES: u32 = 43;
/// The rate of the links.
const RATE: &str = "200Mb/s";
/// The same in bit/s.
const RATE_BITS: f64 = 200e6;
/// What is carried, in MiB: long enough that beginnings do not count (0.7 s).
const MIB: u32 = 16;
/// Share of packets lost, in thousandths.
const LOSSES: [u32; 3] = [0, 1, 10];
/// Ours, first.
const OURS: &str = "reliable";
/// Contestants: name, role of the sender, role of the receiver.
const CONTESTANTS: [(&str, &str, &str); 5] = [
    (OURS, "send", "receive"),
    ("reliable, scavenger", "send-scavenger", "receive"),
    ("reliable, unchecked", "send-unchecked", "receive-unchecked"),
    ("tcp", "tcp-send", "tcp-receive"),
    ("tcp cubic", "tcp-send-cubic", "tcp-receive"),
];
/// Seconds, and processor seconds of both ends, by loss and contestant: a value for each round.
type ReliableFigures = BTreeMap<(u32, &'static str), Vec<[f64; 2]>>;

/// Runs the bench.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    if lacks_programs("reliable") {
        return Ok(ExitCode::SUCCESS);
    }
    let bench = build("clearway-wires", "reliable_bench")?;
    let bench = bench.to_str().context("a path that is no text")?;
    let program = build_program()?;
    let loaded = load();
    let mut figures = ReliableFigures::new();
    for loss in LOSSES {
        // A packet of many frames would be lost as one.
        let lab =
            LabPair::up(program.clone(), 1, RATE, "fifo", if loss == 0 { FRAMES } else { 1 })?;
        lab.lose(loss)?;
        for round in 0..options.rounds {
            let mut contestants = CONTESTANTS;
            if round % 2 == 1 {
                contestants.reverse();
            }
            for (name, send, receive) in contestants {
                match lab.carry([bench, send, receive], 1, MIB, || Ok(())) {
                    Ok(seen) => figures
                        .entry((loss, name))
                        .or_default()
                        .push([seen.seconds, seen.processor]),
                    Err(error) => eprintln!("skipped: {name} in round {round}: {error:#}"),
                }
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

fn column(values: &[[f64; 2]], which: usize) -> Vec<f64> {
    values.iter().map(|value| value[which]).collect()
}

/// The goodput of ours as a part of a contestant's.
fn ratio(figures: &ReliableFigures, loss: u32, name: &'static str) -> Option<f64> {
    let median = |name| Some(spread(&column(figures.get(&(loss, name))?, 0))?.0);
    Some(median(name)? / median(OURS)?)
}

fn text(options: &BenchArguments, loaded: f64, figures: &ReliableFigures) -> String {
    let bits = f64::from(MIB) * 8.0 * f64::from(1 << 20);
    let mut text = format!(
        "{MIB} MiB over one path of {RATE}, {} rounds, load {loaded} before and {} after\n\
         median (least to greatest); processor: seconds of both ends\n\n",
        options.rounds,
        load()
    );
    for ((loss, name), values) in figures {
        let (seconds, processor) = (spread(&column(values, 0)), spread(&column(values, 1)));
        if let (Some((median, least, greatest)), Some((processor, _, _))) = (seconds, processor) {
            text.push_str(&format!(
                "  {:>4.1} % lost  {name:<20} {median:>6.3} s ({least:.3} to {greatest:.3})  {:>5.1} % of the rate  processor {processor:.3}",
                f64::from(*loss) / 10.0,
                100.0 * bits / median / RATE_BITS
            ));
            match ratio(figures, *loss, name).filter(|_| *name != OURS) {
                Some(ratio) => text.push_str(&format!("  {OURS} carries {ratio:.2} of it\n")),
                None => text.push('\n'),
            }
        }
    }
    text
}

fn record(options: &BenchArguments, loaded: f64, figures: &ReliableFigures) -> Value {
    let figure = |((loss, name), values): (&(u32, &'static str), &Vec<[f64; 2]>)| {
        json!({"lost_thousandths": loss, "contestant": name, "seconds": column(values, 0), "processor_seconds": column(values, 1),
               "ours_part": ratio(figures, *loss, name)})
    };
    let all: Vec<Value> = figures.iter().map(figure).collect();
    json!({"bench": "reliable", "mib": MIB, "rate": RATE, "rounds": options.rounds, "load": [loaded, load()], "figures": all})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio__is_of_goodputs() {
        let figures = ReliableFigures::from([
            ((10, OURS), vec![[2.0, 0.0]]),
            ((10, "tcp"), vec![[3.0, 0.0]]),
        ]);
        assert_eq!((ratio(&figures, 10, "tcp"), ratio(&figures, 0, "tcp")), (Some(1.5), None));
    }
}
