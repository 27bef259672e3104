//! `cargo xtask bench fabric`: what a simulated packet costs, next to ns-3 and SimGrid on the same
//! pattern in the same run.
//!
//! # Model
//! Each contestant is a process of its own that says how much processor time its run took (without
//! building the network) and, of ours, the most memory. Rounds go forwards and backwards in turn.
//! Peers are programs of `xtask/peers`, built here when their libraries are installed: each once as
//! it is without being asked, once as fast as it can be made.
//!
//! SimGrid has no packets: flows share links fairly. Its *default* model is LV08 with cross-traffic
//! and TCP's window; its *plain* model is CM02 without these and without factors. The plain one is
//! of our speed by packets or better, and slower than ours by trains; only ratios to the default
//! model and to trains are demanded.
//!
//! Costs are compared for each packet or message: the big runs of ns-3 and of SimGrid as it comes
//! are too long, so they carry a part of the same traffic, or run once.
//!
//! # Not here
//! The measured loops: `crates/clearway-sim/benches/fabric_bench.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::contestant::value;
use super::{BenchArguments, Figures, build, load, spread};
use crate::install::PACKAGED;

/// Packets in a second of processor time.
const SPEED: &str = "M packets per CPU second";
/// Processor time of one packet.
const PACKET: &str = "CPU us per packet";
/// Processor time of one message.
const MESSAGE: &str = "CPU us per message";
/// Events of the simulation for one packet.
const EVENTS: &str = "events per packet";
/// The most memory of the process.
const MEMORY: &str = "memory, MB";

/// The program that runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FabricSide {
    Ours,
    Ns3,
    SimGrid,
}

/// One contestant.
struct FabricContestant {
    name: &'static str,
    side: FabricSide,
    arguments: &'static str,
    often: Repetition,
}

/// In how many rounds.
#[derive(PartialEq, Eq)]
enum Repetition {
    Always,
    /// In the first round only: it takes the better part of a minute.
    Once,
}

const fn contest(
    name: &'static str,
    side: FabricSide,
    arguments: &'static str,
) -> FabricContestant {
    FabricContestant { name, side, arguments, often: Repetition::Always }
}

const TREE_64: &str = "tree 64, packets";
const TREE_384: &str = "tree 384, packets";
const USED_384: &str = "tree 384, trains";
const ONCE_64: [&str; 2] = ["tree 64 at once, packets", "tree 64 at once, trains"];
const ONCE_384: [&str; 2] = ["tree 384 at once, packets", "tree 384 at once, trains"];
const XC_1: [&str; 2] = ["xc 384 at 0.5, minimal", "xc 384 at 0.5, adaptive"];
const XC_26: [&str; 2] = ["xc 9984 at 0.3, minimal", "xc 9984 at 0.3, adaptive"];
const NS3_64: &str = "ns-3, tree 64, routes by hand";
const NS3_384: [&str; 2] = ["ns-3, tree 384, global routing", "ns-3, tree 384, routes by hand"];
const SIMGRID_64: &str = "SimGrid, tree 64, plain model";
const SIMGRID_384: [&str; 2] =
    ["SimGrid, tree 384, default model", "SimGrid, tree 384, plain model"];

/// 64 KiB messages everywhere but on the Cray XC; see the programs for their arguments.
const CONTESTS: [FabricContestant; 17] = [
    contest(TREE_64, FabricSide::Ours, "tree 64 65536 in-turn packets"),
    contest(TREE_384, FabricSide::Ours, "tree 384 65536 in-turn packets"),
    contest(USED_384, FabricSide::Ours, "tree 384 65536 in-turn trains"),
    contest(ONCE_64[0], FabricSide::Ours, "tree 64 65536 at-once packets"),
    contest(ONCE_64[1], FabricSide::Ours, "tree 64 65536 at-once trains"),
    contest(ONCE_384[0], FabricSide::Ours, "tree 384 65536 at-once packets"),
    contest(ONCE_384[1], FabricSide::Ours, "tree 384 65536 at-once trains"),
    contest(XC_1[0], FabricSide::Ours, "xc 1 50 minimal"),
    contest(XC_1[1], FabricSide::Ours, "xc 1 50 adaptive"),
    contest(XC_26[0], FabricSide::Ours, "xc 26 30 minimal"),
    contest(XC_26[1], FabricSide::Ours, "xc 26 30 adaptive"),
    contest(NS3_64, FabricSide::Ns3, "8 8 16 1 by-hand"),
    // 8 and 24 of 383 shifts.
    contest(NS3_384[0], FabricSide::Ns3, "16 24 16 48 global"),
    contest(NS3_384[1], FabricSide::Ns3, "16 24 16 16 by-hand"),
    contest(SIMGRID_64, FabricSide::SimGrid, "8 8 65536 1 plain"),
    // All shifts: hosts that drift apart are what makes it slow.
    FabricContestant {
        name: SIMGRID_384[0],
        side: FabricSide::SimGrid,
        arguments: "16 24 65536 1 default",
        often: Repetition::Once,
    },
    contest(SIMGRID_384[1], FabricSide::SimGrid, "16 24 65536 1 plain"),
];

/// Contestants that must deliver every packet at the same picosecond.
const SAME: [[&str; 2]; 3] = [ONCE_64, ONCE_384, [TREE_384, USED_384]];

/// What is demanded of one figure's median.
enum MedianBound {
    AtLeast(f64),
    AtMost(f64),
}

const BARS: [(&str, &str, MedianBound); 8] = [
    (TREE_64, SPEED, MedianBound::AtLeast(3.0)),
    (TREE_384, SPEED, MedianBound::AtLeast(1.4)),
    (XC_1[0], SPEED, MedianBound::AtLeast(0.7)),
    (XC_1[1], SPEED, MedianBound::AtLeast(0.7)),
    (XC_26[0], SPEED, MedianBound::AtLeast(0.07)),
    (XC_26[1], SPEED, MedianBound::AtLeast(0.07)),
    (XC_26[0], MEMORY, MedianBound::AtMost(200.0)),
    (XC_26[1], MEMORY, MedianBound::AtMost(200.0)),
];

/// Ratios of medians: dividend, divisor, figure, and what is demanded where something is.
const RATIOS: [(&str, &str, &str, Option<f64>); 11] = [
    (ONCE_64[0], ONCE_64[1], EVENTS, Some(12.0)),
    (ONCE_384[0], ONCE_384[1], EVENTS, Some(12.0)),
    (NS3_64, TREE_64, PACKET, None),
    (NS3_384[0], TREE_384, PACKET, Some(50.0)),
    (NS3_384[1], TREE_384, PACKET, Some(50.0)),
    (NS3_384[1], USED_384, PACKET, Some(50.0)),
    (SIMGRID_64, TREE_64, MESSAGE, None),
    (SIMGRID_384[0], TREE_384, MESSAGE, Some(5.0)),
    (SIMGRID_384[0], USED_384, MESSAGE, Some(5.0)),
    (SIMGRID_384[1], TREE_384, MESSAGE, None),
    (SIMGRID_384[1], USED_384, MESSAGE, Some(5.0)),
];

/// A peer: its source, what it is linked with, what to install.
const PEERS: [(FabricSide, &str, &[&str], &str); 2] = [
    (
        FabricSide::Ns3,
        "ns3_tree",
        &["-lns3-core", "-lns3-network", "-lns3-internet", "-lns3-point-to-point"],
        "apt install g++ libns3-dev",
    ),
    (
        FabricSide::SimGrid,
        "simgrid_tree",
        &["-std=c++17", "-lsimgrid"],
        "apt install g++ libsimgrid-dev",
    ),
];

/// Runs the whole contest.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    let programs = programs()?;
    let loaded = load();
    let mut figures = Figures::new();
    let mut digests = BTreeMap::new();
    for round in 0..options.rounds {
        let mut contests: Vec<&FabricContestant> = CONTESTS.iter().collect();
        if round % 2 == 1 {
            contests.reverse();
        }
        for contest in contests {
            let Some(program) = programs.get(&contest.side) else { continue };
            if round > 0 && contest.often == Repetition::Once {
                continue;
            }
            let line =
                once(program, contest.arguments).with_context(|| contest.name.to_string())?;
            for (name, figure) in parse_figures(contest.side, &line)? {
                figures.entry((contest.name, name)).or_default().push(figure);
            }
            if let Some(digest) = word(&line, "digest") {
                let first = digests.entry(contest.name).or_insert_with(|| digest.to_string());
                ensure!(first == digest, "{}: two runs differ: {first} and {digest}", contest.name);
            }
        }
    }
    for [one, other] in SAME {
        ensure!(digests.get(one) == digests.get(other), "{one} and {other} deliver differently");
    }
    if options.json {
        println!("{}", record(options, loaded, &figures, &digests));
    } else {
        print!("{}", text(options, loaded, &figures));
    }
    Ok(ExitCode::SUCCESS)
}

/// The programs that can run here.
fn programs() -> Result<BTreeMap<FabricSide, PathBuf>> {
    let mut programs = BTreeMap::from([(FabricSide::Ours, build("clearway-sim", "fabric_bench")?)]);
    let metadata =
        cargo_metadata::MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    let (sources, made) =
        (metadata.workspace_root.join("xtask/peers"), metadata.target_directory.join("peers"));
    std::fs::create_dir_all(&made).context("a directory for the peers' programs")?;
    for (side, name, flags, install) in PEERS {
        let (source, program) = (sources.join(format!("{name}.cc")), made.join(name));
        match compile(source.as_std_path(), program.as_std_path(), flags) {
            Ok(()) => drop(programs.insert(side, program.into())),
            Err(error) => {
                eprintln!("skipped: {name} does not build ({error:#}); to have it: {install}")
            }
        }
    }
    Ok(programs)
}

fn compile(source: &Path, program: &Path, flags: &[&str]) -> Result<()> {
    let output =
        Command::new("c++").arg("-O2").arg("-o").arg(program).arg(source).args(flags).output();
    let output = output.context("no C++ compiler `c++`")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let first =
        complaint.lines().find(|line| line.contains("error") || line.contains("cannot find"));
    ensure!(output.status.success(), "{}", first.unwrap_or("c++ failed"));
    Ok(())
}

/// One run; the line of figures that it wrote last.
fn once(program: &Path, arguments: &str) -> Result<String> {
    let output =
        Command::new(program).args(arguments.split(' ')).output().context("cannot be run")?;
    ensure!(output.status.success(), "failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().last().map(str::to_string).context("said nothing")
}

/// The word after `name`.
fn word<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == name)?;
    words.next()
}

/// The figures of one line.
fn parse_figures(side: FabricSide, line: &str) -> Result<Vec<(&'static str, f64)>> {
    let cpu_us = value(line, "cpu_ns")? / 1e3;
    if side == FabricSide::SimGrid {
        return Ok(vec![(MESSAGE, cpu_us / value(line, "messages")?)]);
    }
    let packets = value(line, "packets")?;
    let mut seen = vec![
        (SPEED, packets / cpu_us),
        (PACKET, cpu_us / packets),
        (EVENTS, value(line, "events")? / packets),
    ];
    if side == FabricSide::Ours {
        ensure!(word(line, "delivered") == word(line, "injected"), "not all was delivered: {line}");
        seen.push((MESSAGE, cpu_us / value(line, "delivered")?));
        seen.push((MEMORY, value(line, "memory_kib")? * 1_024.0 / 1e6));
    }
    Ok(seen)
}

fn median(figures: &Figures, contest: &'static str, name: &'static str) -> Option<f64> {
    Some(spread(figures.get(&(contest, name))?)?.0)
}

/// The comparisons: a sentence, the ratio, what is demanded.
fn ratios(figures: &Figures) -> Vec<(String, f64, Option<f64>)> {
    let ratio = |(over, under, name, bar)| {
        let ratio = median(figures, over, name)? / median(figures, under, name)?;
        Some((format!("{name}, {over} / {under}"), ratio, bar))
    };
    RATIOS.into_iter().filter_map(ratio).collect()
}

fn text(options: &BenchArguments, loaded: f64, figures: &Figures) -> String {
    let mut text = format!(
        "shifted all-to-all of 64 KiB on trees at 100 Gb/s, 4 KiB to anyone on Cray XC groups; profile packaged\n\
         {} rounds, load {loaded} before and {} after; processor time without building the network\n\
         median (least to greatest)\n\n",
        options.rounds,
        load()
    );
    for contest in &CONTESTS {
        // Each in the terms in which it is judged.
        let names: &[&str] = match contest.side {
            FabricSide::Ours => &[SPEED, EVENTS, MEMORY],
            FabricSide::Ns3 => &[PACKET, EVENTS],
            FabricSide::SimGrid => &[MESSAGE],
        };
        for &name in names {
            if let Some((median, least, greatest)) =
                figures.get(&(contest.name, name)).and_then(|all| spread(all))
            {
                text.push_str(&format!(
                    "  {:<34} {name:<26} {median:>9.3} ({least:.3} to {greatest:.3})\n",
                    contest.name
                ));
            }
        }
    }
    text.push_str("\n  digests: equal in all rounds, with and without trains\n\n");
    for (contest, name, bar) in BARS {
        if let Some(median) = median(figures, contest, name) {
            let (words, bar, met) = match bar {
                MedianBound::AtLeast(bar) => ("at least", bar, median >= bar),
                MedianBound::AtMost(bar) => ("at most", bar, median <= bar),
            };
            let verdict = if met { "met" } else { "missed" };
            text.push_str(&format!(
                "  {contest}, {name}: {median:.3}, must be {words} {bar}: {verdict}\n"
            ));
        }
    }
    text.push('\n');
    for (sentence, ratio, bar) in ratios(figures) {
        let verdict = match bar {
            Some(bar) if ratio >= bar => format!(", must be at least {bar}: met"),
            Some(bar) => format!(", must be at least {bar}: missed"),
            None => String::new(),
        };
        text.push_str(&format!("  {sentence}: {ratio:.1}{verdict}\n"));
    }
    text
}

fn record(
    options: &BenchArguments,
    loaded: f64,
    figures: &Figures,
    digests: &BTreeMap<&'static str, String>,
) -> serde_json::Value {
    let each: Vec<_> = figures
        .iter()
        .map(
            |((contest, name), values)| json!({"contest": contest, "name": name, "rounds": values}),
        )
        .collect();
    let commands: BTreeMap<_, _> =
        CONTESTS.iter().map(|contest| (contest.name, contest.arguments)).collect();
    let ratios: BTreeMap<_, _> = ratios(figures)
        .into_iter()
        .map(|(sentence, ratio, bar)| (sentence, json!([ratio, bar])))
        .collect();
    json!({
        "bench": "fabric",
        "profile": PACKAGED,
        "rounds": options.rounds,
        "load": [loaded, load()],
        "arguments": commands,
        "figures": each,
        "digests": digests,
        "ratios": ratios,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_figures__ours_refuses_a_run_that_lost_something() {
        let line =
            "packets 10 events 30 cpu_ns 5000 memory_kib 1000 injected 5 delivered 5 digest ab";
        let figures = parse_figures(FabricSide::Ours, line).expect("a whole run");
        assert_eq!(
            figures,
            [(SPEED, 2.0), (PACKET, 0.5), (EVENTS, 3.0), (MESSAGE, 1.0), (MEMORY, 1.024)]
        );
        assert!(
            parse_figures(FabricSide::Ours, &line.replace("delivered 5", "delivered 4")).is_err()
        );
    }

    #[test]
    fn ratios__leave_out_who_did_not_run() {
        let mut figures = Figures::new();
        figures.insert((TREE_64, PACKET), vec![0.5]);
        figures.insert((NS3_64, PACKET), vec![10.0, 30.0, 20.0]);
        let all = ratios(&figures);
        assert_eq!(all.iter().map(|(_, ratio, _)| *ratio).collect::<Vec<_>>(), [40.0]);
    }

    #[test]
    fn contests__every_bar_and_ratio_names_one() {
        let known = |name: &str| CONTESTS.iter().any(|contest| contest.name == name);
        assert!(BARS.iter().all(|(name, ..)| known(name)));
        assert!(RATIOS.iter().all(|(over, under, ..)| known(over) && known(under)));
    }
}
