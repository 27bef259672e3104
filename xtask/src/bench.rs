//! `cargo xtask bench wire`: the UDP wire compared with iperf3 and plain sockets, in one run on
//! one virtual link. `cargo xtask bench sealed`: its goodput with keys compared with libfabric's
//! providers, on the same link. `cargo xtask bench shm`: the shared-memory wire compared with Open
//! MPI's (module `shm`). `cargo xtask bench shmem`: the OpenSHMEM library compared with Open MPI's
//! (module `shmem`), with `--far` between two hosts (module `shmem_far`). `cargo xtask bench
//! crowd`: an allreduce among more ranks than processors compared with Open MPI's (module
//! `crowd`). `cargo xtask bench ofi`: the libfabric wire compared with libfabric alone, on the
//! same link (module `ofi`). `cargo xtask bench start`: how long ranks take to find each other
//! (module `start`). `cargo xtask bench reliable`: reliable messages over UDP compared with TCP,
//! with and without loss (module `reliable`). `cargo xtask bench rails`: one and two rails, and
//! one that fails and comes back (module `rails`). `cargo xtask bench faults`: minutes of them
//! over a network that does its worst (module `faults`). `cargo xtask bench peers`: broadcasts
//! compared with Open MPI, MPICH, udpcast and UFTP (module `peers`). `cargo xtask bench
//! timeslice`: what timeslice building costs compared with bare writes (module `timeslice`).
//! `cargo xtask bench put`: unscheduled writes and puts compared with MPI_Put (module `put`).
//! `cargo xtask bench fabric`: the simulated fabric compared with other simulators (module
//! `fabric`). `cargo xtask bench staging`: a mounted log compared with a file system that does
//! nothing (module `staging`). `cargo xtask bench scavenger`: the class scavenger alone, against
//! TCP, and against itself (module `scavenger`). `cargo xtask bench budget`: what hosts that join
//! and leave send together of a class with a budget (module `budget`). `cargo xtask bench
//! checkpoint`: the latency of an MPI program during checkpoints (module `checkpoint`). `cargo
//! xtask bench sustained`: the rate of a long write through a mount, compared with that of each
//! part of its path (module `sustained`).
//!
//! # Model
//! Two network namespaces joined by a veth pair, with or without root. Each round runs every
//! contestant once, forwards and then backwards, so that what the machine does meanwhile meets all
//! of them. Goodput is counted per second of processor time (user and system), which other load on
//! the machine disturbs least; latency as least and median.
//!
//! # Not here
//! The measured loops: `crates/clearway-runtime/benches/wire_bench.rs`.

mod afterwards;
mod budget;
mod checkpoint;
mod contestant;
mod crowd;
mod fabric;
mod faults;
mod floor;
mod hosts;
mod link;
mod mpi;
mod ofi;
mod pair;
mod peers;
mod put;
mod rails;
mod reliable;
mod scavenger;
mod served;
mod shm;
mod shmem;
mod shmem_far;
mod shmem_rate;
mod staging;
mod start;
mod sustained;
mod timeslice;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;
use serde_json::json;

use self::contestant::{CONTESTS, Contestant, Programs, SEALED};
use self::link::Link;
use crate::install::PACKAGED;

/// The marker with which this program runs itself inside its own namespace.
const INSIDE: &str = "--inside";

/// Rounds without `--rounds`: enough for a median that one bad round does not move.
const ROUNDS: usize = 5;

/// Figures by contest and name, one a round.
type Figures = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// What was asked for.
struct BenchArguments {
    rounds: usize,
    json: bool,
}

/// Runs `bench
/// wire|sealed|ofi|shm|shmem|crowd|start|reliable|rails|faults|peers|timeslice|put|fabric|staging|scavenger [--rounds
/// N] [--json]`, `budget [--program PATH]`, or
/// `checkpoint|sustained [--rounds N] [--program PATH]`, and for `shmem` `--far [--peer DIR]`.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let rest = arguments.get(1..).unwrap_or_default();
    match arguments.first().map(String::as_str) {
        Some("wire") => on_link("wire", CONTESTS, rest),
        Some("sealed") => on_link("sealed", SEALED, rest),
        Some("ofi") => on_link("ofi", ofi::OFI, rest),
        Some("shm") => shm::run(&parse("shm", rest)?),
        Some("shmem") if rest.iter().any(|word| word == shmem_far::FAR_FLAG) => {
            shmem_far::run(rest)
        }
        Some("shmem") => shmem::run(&parse("shmem", rest)?),
        Some("crowd") => crowd::run(&parse("crowd", rest)?),
        Some("start") => start::run(&parse("start", rest)?),
        Some("reliable") => reliable::run(&parse("reliable", rest)?),
        Some("rails") => rails::run(&parse("rails", rest)?),
        Some("faults") => faults::run(&parse("faults", rest)?),
        Some("peers") => peers::run(&parse("peers", rest)?),
        Some("timeslice") => timeslice::run(&parse("timeslice", rest)?),
        Some("put") => put::run(&parse("put", rest)?),
        Some("fabric") => fabric::run(&parse("fabric", rest)?),
        Some("staging") => staging::run(&parse("staging", rest)?),
        Some("scavenger") => scavenger::run(&parse("scavenger", rest)?),
        Some("budget") => budget::run(rest),
        Some("checkpoint") => checkpoint::run(rest),
        Some("sustained") => sustained::run(rest),
        _ => bail!(
            "usage: cargo xtask bench wire|sealed|ofi|shm|shmem|crowd|start|reliable|rails|faults|peers|timeslice|put|fabric|staging|scavenger [--rounds N] [--json]; budget [--program PATH]; checkpoint|sustained [--rounds N] [--program PATH]; shmem: [--far [--peer DIR]]"
        ),
    }
}

/// A bench whose contestants run on a virtual link.
fn on_link(bench: &'static str, contests: &[Contestant], rest: &[String]) -> Result<ExitCode> {
    let options = parse(bench, rest)?;
    if let Some(program) = rest.iter().position(|a| a == INSIDE).and_then(|at| rest.get(at + 1)) {
        return inside(bench, &options, contests, PathBuf::from(program));
    }
    for program in ["unshare", "nsenter", "ip", "taskset", "timeout"] {
        if Command::new(program).arg("--version").output().is_err()
            && Command::new(program).arg("-V").output().is_err()
        {
            eprintln!("skipped: bench {bench} needs the program `{program}`");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let (package, program) = if bench == "ofi" {
        ("clearway-ofi", "ofi_bench")
    } else {
        ("clearway-runtime", "wire_bench")
    };
    let program = build(package, program)?;
    let own = std::env::current_exe().context("the path of this program")?;
    // `-r` makes this user root of a namespace of its own; real root needs none.
    let flags = if is_root()? { "-n" } else { "-rn" };
    let status = Command::new("unshare")
        .args([flags, "--"])
        .arg(own)
        .args(["bench", bench])
        .args(rest)
        .arg(INSIDE)
        .arg(program)
        .status()
        .context("unshare")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(bench: &str, arguments: &[String]) -> Result<BenchArguments> {
    let mut options = BenchArguments { rounds: ROUNDS, json: false };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => options.json = true,
            "--rounds" => {
                let rounds = arguments
                    .next()
                    .and_then(|text| text.parse().ok())
                    .filter(|rounds| *rounds > 0);
                options.rounds = rounds.context("--rounds takes a number from 1 on")?;
            }
            INSIDE => drop(arguments.next()),
            other => bail!("bench {bench} does not know `{other}`; it takes --rounds N and --json"),
        }
    }
    Ok(options)
}

/// Reads the rounds of a bench that runs the program at `--program PATH`, if that is given.
fn parse_with_program(bench: &str, arguments: &[String]) -> Result<(usize, Option<PathBuf>)> {
    let mut rest = arguments.to_vec();
    let mut program = None;
    if let Some(at) = rest.iter().position(|word| word == "--program") {
        let path = rest.get(at + 1).context("--program takes a path")?;
        program = Some(PathBuf::from(path).canonicalize().with_context(|| path.clone())?);
        rest.drain(at..at + 2);
    }
    let options = parse(bench, &rest)?;
    if options.json {
        bail!("bench {bench} prints no JSON");
    }
    Ok((options.rounds, program))
}

fn is_root() -> Result<bool> {
    let id = Command::new("id").arg("-u").output().context("id")?;
    Ok(id.stdout.trim_ascii() == b"0")
}

/// Builds the measuring program `bench` of `package` as users' programs are built.
fn build(package: &str, bench: &str) -> Result<PathBuf> {
    built(&["-p", package, "--bench", bench], bench)
}

/// Builds the example `example` of `package` as users' programs are built.
pub(crate) fn build_example(package: &str, example: &str) -> Result<PathBuf> {
    built(&["-p", package, "--example", example], example)
}

/// Builds the program itself as users' programs are built.
pub(crate) fn build_program() -> Result<PathBuf> {
    built(&["-p", "clearway", "--bin", "clearway"], "clearway")
}

/// Builds `what` as users' programs are built; returns the path of the program or shared library
/// `name`, which cargo says: names of benches have a hash.
fn built(what: &[&str], name: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--profile", PACKAGED, "--message-format=json-render-diagnostics"]);
    command.args(what);
    let output = command.stderr(Stdio::inherit()).output().context("cargo")?;
    ensure!(output.status.success(), "{} does not build", what.join(" "));
    let program =
        Message::parse_stream(output.stdout.as_slice()).filter_map(|message| {
            match message.ok()? {
                Message::CompilerArtifact(artifact) if artifact.target.name == name => {
                    let library =
                        artifact.filenames.into_iter().find(|file| file.extension() == Some("so"));
                    artifact.executable.or(library)
                }
                _ => None,
            }
        });
    program.last().map(PathBuf::from).with_context(|| format!("cargo names no file of {name}"))
}

/// The load of the machine over the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

fn inside(
    bench: &str,
    options: &BenchArguments,
    contests: &[Contestant],
    program: PathBuf,
) -> Result<ExitCode> {
    let link = Link::make()?;
    let needs_peer = contests.iter().any(|contest| contest.peer == contestant::Peer::Libfabric);
    let programs =
        Programs { wire: program, libfabric: needs_peer.then(contestant::compile_peer).flatten() };
    let loaded = load();
    let mut figures = Figures::new();
    for round in 0..options.rounds {
        let mut contests: Vec<_> = contests.iter().collect();
        if round % 2 == 1 {
            contests.reverse();
        }
        for contest in contests {
            match (contest.run)(&link, &programs) {
                Ok(seen) => {
                    for (name, value) in seen {
                        figures.entry((contest.name, name)).or_default().push(value);
                    }
                }
                Err(error) => eprintln!("skipped: {} in round {round}: {error:#}", contest.name),
            }
        }
    }
    if options.json {
        println!("{}", record(bench, options, &link, loaded, &figures));
    } else {
        print!("{}", text(options, &link, loaded, &figures));
    }
    Ok(ExitCode::SUCCESS)
}

/// Median, least and greatest.
fn spread(values: &[f64]) -> Option<(f64, f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some((*sorted.get(sorted.len() / 2)?, *sorted.first()?, *sorted.last()?))
}

fn text(options: &BenchArguments, link: &Link, loaded: f64, figures: &Figures) -> String {
    let mut text = format!(
        "veth pair, MTU 1500, {} rounds, cores {} and {}, load {loaded} before and {} after\n\
         median (least to greatest)\n\n",
        options.rounds,
        link.cores[0],
        link.cores[1],
        load()
    );
    for ((contest, name), values) in figures {
        if let Some((median, least, greatest)) = spread(values) {
            text.push_str(&format!(
                "  {contest:<30} {name:<34} {median:>9.2} ({least:.2} to {greatest:.2})\n"
            ));
        }
    }
    text.push('\n');
    for (sentence, ratio) in ratios(figures) {
        text.push_str(&format!("  {sentence:<70} {ratio:.2}\n"));
    }
    text
}

/// The comparisons that the bench is for: ratios of medians, for latency also of the least.
fn ratios(figures: &Figures) -> Vec<(&'static str, f64)> {
    let of = |contest, name| figures.get(&(contest, name)).and_then(|values| spread(values));
    let medians = |a, b, name| Some(of(a, name)?.0 / of(b, name)?.0);
    let leasts = |a, b, name| Some(of(a, name)?.1 / of(b, name)?.1);
    let pair = |number: usize, name| medians(ofi::PAIRS[number][0], ofi::PAIRS[number][1], name);
    let slow = |a, b| medians(a, b, contestant::SLOW);
    let (sender, receiver, both) =
        (contestant::PER_SENDER, contestant::PER_RECEIVER, contestant::PER_BOTH);
    // A peer counts with the better of its ways to wait.
    let best = |a, peers: &[&'static str], name| {
        let ratios = peers.iter().filter_map(|b| medians(a, *b, name));
        ratios.min_by(f64::total_cmp)
    };
    [
        (
            "goodput per sender's CPU-second, wire / iperf3 TCP",
            medians("udp wire", "iperf3 tcp", sender),
        ),
        (
            "goodput per sender's CPU-second, wire / iperf3 UDP",
            medians("udp wire", "iperf3 udp", sender),
        ),
        (
            "goodput per receiver's CPU-second, wire / iperf3 TCP",
            medians("udp wire", "iperf3 tcp", receiver),
        ),
        (
            "goodput per receiver's CPU-second, wire / iperf3 UDP",
            medians("udp wire", "iperf3 udp", receiver),
        ),
        (
            "goodput per sender's CPU-second, sealed wire / iperf3 TCP",
            medians("udp wire, sealed", "iperf3 tcp", sender),
        ),
        (
            "goodput per sender's CPU-second, sealed wire / wire",
            medians("udp wire, sealed", "udp wire", sender),
        ),
        (
            "goodput per receiver's CPU-second, sealed wire / iperf3 TCP",
            medians("udp wire, sealed", "iperf3 tcp", receiver),
        ),
        (
            "goodput per receiver's CPU-second, sealed wire / wire",
            medians("udp wire, sealed", "udp wire", receiver),
        ),
        (
            "median half round trip, sealed wire / wire",
            medians("latency wire, sealed", "latency wire", contestant::TYPICAL),
        ),
        (
            "goodput per sender's CPU-second, sealed wire / libfabric tcp",
            best("udp wire, sealed", contestant::TCP, sender),
        ),
        (
            "goodput per receiver's CPU-second, sealed wire / libfabric tcp",
            best("udp wire, sealed", contestant::TCP, receiver),
        ),
        (
            "goodput per CPU-second of both, sealed wire / libfabric tcp",
            best("udp wire, sealed", contestant::TCP, both),
        ),
        (
            "goodput per sender's CPU-second, sealed wire / libfabric rxd",
            best("udp wire, sealed", contestant::RXD, sender),
        ),
        (
            "goodput per CPU-second of both, sealed wire / libfabric rxd",
            best("udp wire, sealed", contestant::RXD, both),
        ),
        ("median half round trip, 64 B, ofi wire / libfabric alone", pair(0, contestant::TYPICAL)),
        (
            "mean half round trip, 64 B, ofi wire / fi_pingpong",
            medians(ofi::PAIRS[0][0], ofi::PINGPONG, ofi::MEAN),
        ),
        ("bytes per CPU-second, writes of 64 KiB, ofi wire / libfabric alone", pair(1, sender)),
        ("bytes per CPU-second, writes of 1 MiB, ofi wire / libfabric alone", pair(2, sender)),
        (
            "p99 half round trip, flood at the port / at another port",
            slow("victim, flood", contestant::FLOOD_ELSEWHERE),
        ),
        (
            "p99 half round trip, flood at the port / no flood",
            slow("victim, flood", "victim, no flood"),
        ),
        (
            "least half round trip, wire / plain sockets",
            leasts("latency wire", "latency plain", contestant::FASTEST),
        ),
        (
            "median half round trip, wire / plain sockets",
            medians("latency wire", "latency plain", contestant::TYPICAL),
        ),
    ]
    .into_iter()
    .filter_map(|(sentence, ratio)| Some((sentence, ratio?)))
    .collect()
}

fn record(
    bench: &str,
    options: &BenchArguments,
    link: &Link,
    loaded: f64,
    figures: &Figures,
) -> serde_json::Value {
    let each: Vec<_> = figures
        .iter()
        .map(
            |((contest, name), values)| json!({"contest": contest, "name": name, "rounds": values}),
        )
        .collect();
    let ratios: BTreeMap<_, _> = ratios(figures).into_iter().collect();
    json!({
        "bench": bench,
        "rounds": options.rounds,
        "cores": link.cores,
        "load": [loaded, load()],
        "figures": each,
        "ratios": ratios,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread__is_median_least_and_greatest() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn ratios__compare_medians_and_leave_out_who_did_not_run() {
        let mut figures = Figures::new();
        figures.insert(("udp wire", contestant::PER_SENDER), vec![30.0, 10.0, 20.0]);
        figures.insert(("iperf3 tcp", contestant::PER_SENDER), vec![10.0]);
        assert_eq!(ratios(&figures), [("goodput per sender's CPU-second, wire / iperf3 TCP", 2.0)]);
    }

    #[test]
    fn parse__refuses_what_it_does_not_know() {
        assert!(parse("wire", &["--rounds".into(), "0".into()]).is_err());
        assert!(parse("wire", &["--fast".into()]).is_err());
        assert_eq!(
            parse("wire", &["--rounds".into(), "7".into(), "--json".into()])
                .map(|a| (a.rounds, a.json))
                .ok(),
            Some((7, true))
        );
    }
}
