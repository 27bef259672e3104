//! `cargo xtask bench shmem --far`: the OpenSHMEM library between two hosts compared with other
//! libraries, the same program linked to each, in one run.
//!
//! # Model
//! Two virtual hosts, each with network, name, mounts and core of its own, on a veth pair without
//! shaping; a PE on each. A round runs every contestant once, forwards and then backwards. The
//! program gives the tenth of its batches and their median; what is printed is the median over
//! rounds of each, and the ratio of each of our wires to the best peer of that row, for tenths and
//! for medians. Plain sockets in turns between the same hosts are the floor.
//!
//! Peers are Open MPI over UCX, where it is installed, and an installation of OpenSHMEM named by
//! `--peer DIR` or `SOS_PREFIX`: its `bin/oshcc` compiles, Hydra starts its PEs by PMI-1, and
//! variables choose libfabric's provider `tcp` where the installation is Sandia's.
//!
//! Behind the rounds come the rates of queues (module `shmem_rate`), with near PEs too.
//!
//! # Invariants
//! I1. All runs in a process namespace of which the bench is the first process, so that nothing
//!     stays behind, whatever ends the bench: the kernel ends the others, and with the last one
//!     the hosts.
//!
//! # Not here
//! The measured loops: `shmem_peer.c`, `floor.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::floor;
use super::hosts::are_there;
use super::link::{FAR, Link, NEAR};
use super::mpi::{MPICH, OPEN_MPI, OPEN_MPI_AS_ROOT};
use super::shm::directory;
use super::shmem::{SOURCE, build_library, compile_own, compile_with_own, figure};
use super::shmem_rate::{EXAMPLES, RATE_SOURCE, RatesSeen, THRESHOLD, THRESHOLDS, millions};
use super::{BenchArguments, INSIDE, build_program, is_root, load, parse, spread};

/// The flag that chooses this bench.
pub(super) const FAR_FLAG: &str = "--far";
/// The words that make this program one end of the floor, on either host.
const ANSWER: &str = "--answer";
const ASK: &str = "--ask";
/// Longest run in s; one that hangs is ended by `timeout`.
const DEADLINE_S: &str = "60";
/// Our contestants: the name of the wire, and the variables that choose it.
const OWN: [(&str, &[(&str, &str)]); 3] = [
    ("udp", &[("SHMEM_WIRE", "udp"), ("SHMEM_INSECURE", "1")]),
    ("udp sealed", &[("SHMEM_WIRE", "udp"), ("SHMEM_INSECURE", "0")]),
    ("ofi", &[("SHMEM_WIRE", "ofi"), ("SHMEM_INSECURE", "1")]),
];
const NAMED: &str = "named peer";
const UCX: &str = "Open MPI";
/// Variables by which Sandia's library uses the veth pair: libfabric calls the network of an address
/// the fabric.
const NAMED_ENVIRONMENT: [(&str, &str); 2] =
    [("SHMEM_OFI_PROVIDER", "tcp"), ("SHMEM_OFI_FABRIC", "10.78.0.0/24")];

/// The goal of a row.
#[derive(Clone, Copy)]
enum Goal {
    Nothing,
    /// At most this part of the better peer's time.
    Ratio(f64),
    /// At least this many millions a second of each PE.
    Millions(f64),
}

const ROWS: [(&str, Goal); 11] = [
    ("p_quiet", Goal::Ratio(0.8)),
    ("g", Goal::Ratio(0.8)),
    ("fetch_add", Goal::Ratio(0.8)),
    ("half_round_trip", Goal::Ratio(0.75)),
    ("put_nbi", Goal::Millions(10.0)),
    ("atomic_inc", Goal::Millions(10.0)),
    ("barrier_all", Goal::Ratio(1.0)),
    ("put_bulk", Goal::Nothing),
    ("get_bulk", Goal::Nothing),
    ("histogram", Goal::Nothing),
    ("index_gather", Goal::Nothing),
];
/// The wire of PEs that share memory, for rates.
const SHARED: &str = "near";
/// The veth's name on either host.
const INTERFACES: [&str; 2] = ["near", "far"];
/// Rows of the floor.
const FLOORS: [&str; 2] = ["tcp", "udp"];

/// By contestant and row: tenth and median of each round, in ns.
type FarSeen = BTreeMap<(&'static str, &'static str), Vec<[f64; 2]>>;

/// The lab and what runs in it.
struct FarContest {
    link: Link,
    directory: PathBuf,
    clearway: PathBuf,
    own: PathBuf,
    /// The program of rates, and the examples.
    rate: PathBuf,
    examples: Vec<PathBuf>,
    /// By contestant.
    peers: Vec<(&'static str, PathBuf)>,
}

/// Runs the bench, or one of the parts as which it starts itself.
pub(super) fn run(arguments: &[String]) -> Result<ExitCode> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let inside = words.iter().position(|word| *word == INSIDE);
    match (words.as_slice(), inside) {
        ([_, ANSWER, wire, at], _) => floor::answer(wire, at.parse()?)?,
        ([_, ASK, wire, from, to], _) => {
            let [p10, p50] = floor::ask(wire, from.parse()?, to.parse()?)?;
            println!("{wire} {p10} {p50} 1 1");
        }
        (words, Some(at)) => {
            let [clearway, library, directory] = words.get(at + 1..).unwrap_or_default() else {
                bail!("{INSIDE} takes the paths of the program, of the library and for files");
            };
            let (options, peer) = options(arguments.get(..at).unwrap_or_default())?;
            let [clearway, library, directory] = [clearway, library, directory].map(Path::new);
            return contend(&options, peer, clearway, library, directory);
        }
        (_, None) => return enter(arguments),
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses the options, and the installation of a peer.
fn options(arguments: &[String]) -> Result<(BenchArguments, Option<PathBuf>)> {
    let mut rest: Vec<String> = arguments.iter().filter(|a| *a != FAR_FLAG).cloned().collect();
    let mut peer = std::env::var_os("SOS_PREFIX").map(PathBuf::from);
    if let Some(at) = rest.iter().position(|argument| argument == "--peer") {
        peer = Some(rest.get(at + 1).context("--peer takes a directory")?.into());
        rest.drain(at..at + 2);
    }
    Ok((parse("shmem", &rest)?, peer))
}

/// Builds what is measured and starts this program as the first of new namespaces.
fn enter(arguments: &[String]) -> Result<ExitCode> {
    options(arguments)?;
    if !is_root()? {
        eprintln!("skipped: bench shmem --far makes virtual hosts with mounts, which takes root");
        return Ok(ExitCode::SUCCESS);
    }
    if !are_there(
        "bench shmem --far",
        &["cc", "timeout", "unshare", "nsenter", "ip", "taskset", "mount", "hostname"],
    ) {
        return Ok(ExitCode::SUCCESS);
    }
    let (program, library) = (build_program()?, build_library()?);
    let own = std::env::current_exe().context("the path of this program")?;
    // Named by a process number that no other bench has; inside all have the same.
    let directory = directory();
    fs::create_dir_all(&directory)?;
    let status = Command::new("unshare")
        .args(["-nump", "--fork", "--mount-proc", "--kill-child", "--"])
        .arg(own)
        .args(["bench", "shmem"])
        .args(arguments)
        .arg(INSIDE)
        .args([&program, &library, &directory])
        .status()
        .context("unshare");
    let _ = fs::remove_dir_all(directory);
    let status = status?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs everything, from the near host.
fn contend(
    options: &BenchArguments,
    peer: Option<PathBuf>,
    clearway: &Path,
    library: &Path,
    directory: &Path,
) -> Result<ExitCode> {
    let contest = prepare(directory.to_owned(), peer, clearway, library)?;
    let loaded = load();
    let mut seen = FarSeen::new();
    for round in 0..options.rounds {
        let mut names: Vec<&'static str> = FLOORS.to_vec();
        names.extend(OWN.iter().map(|(name, _)| own_name(name)));
        names.extend(contest.peers.iter().map(|(name, _)| *name));
        if round % 2 == 1 {
            names.reverse();
        }
        for name in names {
            match contest.measure(name) {
                Ok(text) => {
                    eprintln!("round {round}, {name}:\n{}", text.trim_end());
                    collect(name, &text, &mut seen);
                }
                Err(error) => eprintln!("skipped: {name} in round {round}: {error:#}"),
            }
        }
    }
    if options.json {
        println!("{}", record(options, loaded, &seen));
    } else {
        print!("{}", text(options, loaded, &seen));
        contest.rates();
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the name of our contestant over `wire`; plain sockets have the bare names.
fn own_name(wire: &str) -> &'static str {
    match wire {
        "udp" => "clearway udp",
        "udp sealed" => "clearway udp sealed",
        _ => "clearway ofi",
    }
}

/// Makes the hosts and compiles the programs.
fn prepare(
    directory: PathBuf,
    peer: Option<PathBuf>,
    clearway: &Path,
    library: &Path,
) -> Result<FarContest> {
    let hosts = directory.join("etc-hosts");
    fs::write(&hosts, format!("127.0.0.1 localhost\n{NEAR} near\n{FAR} far\n"))?;
    let mount = format!(
        "mount -t sysfs sysfs /sys && hostname near && mount --bind {} /etc/hosts",
        hosts.display()
    );
    let status = Command::new("sh").args(["-c", &mount]).status().context("sh")?;
    ensure!(status.success(), "the near host has no mounts");
    let link = Link::to_host("far")?;
    let own = compile_own(&directory, library)?;
    let rate = compile_with_own(&directory, "rate", RATE_SOURCE)?;
    let sources =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/clearway-shmem/examples/queues"));
    fs::copy(sources.join("seeded.h"), directory.join("seeded.h")).context("seeded.h")?;
    let example = |name: &str| {
        let source = fs::read_to_string(sources.join(format!("{name}.c"))).context(name.to_owned());
        compile_with_own(&directory, name, &source?)
    };
    let examples = EXAMPLES.iter().map(|(name, ..)| example(name)).collect::<Result<Vec<_>>>()?;
    let mut peers = Vec::new();
    if let Some(program) = peer.and_then(|prefix| compile_named(&directory, &prefix)) {
        peers.push((NAMED, program));
    }
    let libraries = ["-loshmem"];
    if let Some(program) = OPEN_MPI.compile_with(&directory, "peer_of_openmpi", SOURCE, &libraries)
    {
        peers.push((UCX, program));
    }
    if peers.is_empty() {
        eprintln!("no peer is here: --peer DIR names an installation of OpenSHMEM");
    }
    fs::write(directory.join("hostfile"), "near slots=1\nfar slots=1\n")?;
    agent(&directory, &link)?;
    let clearway = clearway.to_owned();
    Ok(FarContest { link, directory, clearway, own, rate, examples, peers })
}

/// Compiles the program with the installation at `prefix`; `None`, with a reason, where it cannot.
fn compile_named(directory: &Path, prefix: &Path) -> Option<PathBuf> {
    if !are_there("the named peer", &[MPICH.launcher]) {
        return None;
    }
    let program = directory.join("peer_named");
    let output = Command::new(prefix.join("bin/oshcc"))
        .args(["-O2", "-o"])
        .args([&program, &directory.join("peer.c")])
        .output();
    match output {
        Ok(output) if output.status.success() => return Some(program),
        Ok(output) => eprintln!(
            "skipped: {}/bin/oshcc: {}",
            prefix.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        Err(error) => eprintln!("skipped: {}/bin/oshcc: {error}", prefix.display()),
    }
    None
}

/// Writes what launchers take for `ssh`: it runs a command on the host of a name.
fn agent(directory: &Path, link: &Link) -> Result<()> {
    let (keeper, [near, far]) = (link.keeper(), link.cores);
    let text = format!(
        "#!/bin/sh\n\
         while case $1 in -*) true;; *) false;; esac; do case $1 in -o|-p|-l|-i) shift;; esac; shift; done\n\
         host=$1; shift\n\
         case $host in\n\
         near|{NEAR}) SSH_CONNECTION='{NEAR} 1 {NEAR} 22'; export SSH_CONNECTION; exec taskset -c {near} sh -c \"$*\";;\n\
         esac\n\
         SSH_CONNECTION='{NEAR} 1 {FAR} 22'; export SSH_CONNECTION\n\
         exec nsenter -t {keeper} -n -u -m taskset -c {far} sh -c \"$*\"\n"
    );
    let path = directory.join("ssh");
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(())
}

impl FarContest {
    /// Runs a contestant once, and returns its output.
    fn measure(&self, name: &'static str) -> Result<String> {
        if FLOORS.contains(&name) {
            return self.floor(name);
        }
        let mut command = match OWN.iter().find(|(wire, _)| own_name(wire) == name) {
            Some((_, settings)) => self.own(settings, &self.own),
            None => {
                let (_, program) =
                    self.peers.iter().find(|(peer, _)| *peer == name).context("no such peer")?;
                let mut command = self.launcher();
                self.peer(name, &mut command);
                command.arg(program);
                command
            }
        };
        whole(command.arg("far"), "done")
    }

    /// Returns a command that runs `program` as a PE on each host, with our library.
    fn own(&self, settings: &[(&str, &str)], program: &Path) -> Command {
        let mut command = self.launcher();
        command.arg(&self.clearway).args(["start", "-n", "2", "--hostfile"]);
        command.arg(self.directory.join("hostfile"));
        for (variable, value) in settings {
            command.args(["-x", &format!("{variable}={value}")]);
        }
        command.arg(program);
        command
    }

    /// Measures what queues gain by gathering, and prints it.
    fn rates(&self) {
        let mut seen = RatesSeen::default();
        for (wire, settings) in OWN.iter().copied().chain([(SHARED, &[][..])]) {
            for threshold in THRESHOLDS {
                let mut command = match wire {
                    SHARED => self.together(threshold),
                    _ => self.own(&[settings, &[(THRESHOLD, threshold)]].concat(), &self.rate),
                };
                // Whichever host PE 0 is on.
                command.args(INTERFACES);
                match whole(&mut command, "done") {
                    Ok(said) => seen.collect(wire, threshold, &said),
                    Err(error) => eprintln!("skipped: rates of {wire}, {threshold}: {error:#}"),
                }
            }
            print!("{}", seen.table(wire));
        }
        println!();
        for (wire, settings) in OWN {
            print!("{}", seen.verdict(wire).unwrap_or_default());
            for ((name, words, wanted), program) in EXAMPLES.iter().zip(&self.examples) {
                let said = whole(self.own(settings, program).args(*words), name);
                match said.and_then(|said| millions(&said)) {
                    Ok(rate) => println!("{wire}: {name} {rate} M/s a PE, wanted {wanted}"),
                    Err(error) => eprintln!("skipped: {name} over {wire}: {error:#}"),
                }
            }
        }
    }

    /// Returns a command that runs the program of rates as two PEs that share memory, on both cores.
    fn together(&self, threshold: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "2", DEADLINE_S]).arg(&self.clearway).args(["start", "-n", "2", "-x"]);
        command.arg(format!("{THRESHOLD}={threshold}")).arg(&self.rate);
        command
    }

    /// Returns a command that runs a launcher on the near host's core, with our `ssh` first in the
    /// path.
    fn launcher(&self) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("timeout");
        command.args(["-k", "2", DEADLINE_S, "taskset", "-c", &self.link.cores[0].to_string()]);
        command.env("PATH", format!("{}:{path}", self.directory.display()));
        command
    }

    /// Adds the launcher of a peer to `command`, up to the program.
    fn peer(&self, name: &'static str, command: &mut Command) {
        let agent = self.directory.join("ssh");
        if name == NAMED {
            command.args([MPICH.launcher, "-launcher", "ssh", "-launcher-exec"]).arg(agent);
            command.args(["-hosts", "near:1,far:1", "-n", "2"]);
            command.envs(NAMED_ENVIRONMENT);
            return;
        }
        let subnet = format!("{NEAR}/24");
        command.args([OPEN_MPI.launcher, "--mca", "plm_rsh_agent"]).arg(agent);
        command.args(["--mca", "oob_tcp_if_include", &subnet, "--host", "near:1,far:1"]);
        // Open MPI leaves UCX alone where it sees no card that it knows.
        for of_ucx in ["opal_common_ucx_tls", "opal_common_ucx_devices"] {
            command.args(["--mca", of_ucx, "any"]);
        }
        command.args(["--mca", "pml", "ucx", "--mca", "spml", "ucx", "--bind-to", "none"]);
        command.args(["-x", "UCX_TLS=tcp,self", "-n", "2"]).envs(OPEN_MPI_AS_ROOT);
    }

    /// Measures plain sockets in turns.
    fn floor(&self, wire: &str) -> Result<String> {
        let own = std::env::current_exe().context("the path of this program")?;
        let (here, there) = (NEAR.to_string(), FAR.to_string());
        let (mut near, mut far) = (self.link.near(), self.link.far());
        let bench = ["bench", "shmem", FAR_FLAG];
        far.arg(&own).args(bench).args([ANSWER, wire, &there]);
        near.arg(&own).args(bench).args([ASK, wire, &here, &there]);
        let mut far = far.stdout(Stdio::piped()).spawn().context("timeout")?;
        let mut ready = String::new();
        let out = far.stdout.take().context("a pipe from the far end")?;
        BufReader::new(out).read_line(&mut ready)?;
        let output = near.output();
        far.wait()?;
        let output = output.context("timeout")?;
        ensure!(ready.trim() == floor::READY, "the far end did not begin");
        ensure!(output.status.success(), "{}", reason(&output));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Runs `command`, and returns what it said if a line of that begins with `last`.
fn whole(command: &mut Command, last: &str) -> Result<String> {
    let output = command.output().context("timeout")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(said.lines().any(|line| line.starts_with(last)), "{}", reason(&output));
    Ok(said)
}

/// Returns why a run under `timeout` counts for nothing.
fn reason(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // With 124 `timeout` ended it, with 137 it had to be killed for that.
    let end = match output.status.code() {
        Some(124 | 137) => "it did not end in time".to_owned(),
        _ => format!("it ended with {}", output.status),
    };
    if said.is_empty() { end } else { format!("{end}: {said}") }
}

fn collect(contest: &'static str, text: &str, seen: &mut FarSeen) {
    let floor = FLOORS.iter().filter(|wire| **wire == contest).copied();
    let rows = ROWS.iter().map(|(row, _)| *row).filter(|_| !FLOORS.contains(&contest));
    for row in rows.chain(floor) {
        match figure(text, row) {
            Ok([p10, p50, ..]) => seen.entry((contest, row)).or_default().push([p10, p50]),
            Err(error) => eprintln!("skipped: {contest}: {error}"),
        }
    }
}

/// Returns the median over rounds of the tenths and of the medians.
fn medians(seen: &FarSeen, contest: &'static str, row: &'static str) -> Option<[f64; 2]> {
    let rounds = seen.get(&(contest, row))?;
    let of = |part: usize| {
        let values: Vec<f64> = rounds.iter().map(|round| round[part]).collect();
        spread(&values).map(|(median, ..)| median)
    };
    Some([of(0)?, of(1)?])
}

/// Returns the least tenth and the least median that `contests` have in this row.
fn best(seen: &FarSeen, contests: &[&'static str], row: &'static str) -> Option<[f64; 2]> {
    let both = contests.iter().filter_map(|contest| medians(seen, contest, row));
    both.reduce(|a, b| [a[0].min(b[0]), a[1].min(b[1])])
}

/// Writes the ratios of each of our wires to the best peer, and the goal. On a busy machine other work
/// changes medians more than tenths, so that both are printed.
fn judged(seen: &FarSeen, row: &'static str, goal: Goal) -> String {
    let mut text = String::new();
    let peer = best(seen, &[NAMED, UCX], row);
    for (wire, _) in OWN {
        let own = best(seen, &[own_name(wire)], row);
        let ratio = own
            .zip(peer)
            .map(|(own, peer)| format!("{:.2} / {:.2}", own[0] / peer[0], own[1] / peer[1]));
        text += &format!("{:>15}", ratio.unwrap_or_else(|| "-".to_owned()));
    }
    let own = best(seen, &OWN.map(|(wire, _)| own_name(wire)), row);
    let rate = own.map_or(String::new(), |[_, ns]| format!(", best {:.2} M/s", 1e3 / ns));
    text + &match goal {
        Goal::Nothing => String::new(),
        Goal::Ratio(wanted) => format!("   wanted {wanted:.2}"),
        Goal::Millions(wanted) => format!("   wanted {wanted:.0} M/s{rate}"),
    }
}

fn text(options: &BenchArguments, loaded: f64, seen: &FarSeen) -> String {
    let contests: Vec<&'static str> =
        OWN.iter().map(|(wire, _)| own_name(wire)).chain([NAMED, UCX]).collect();
    let mut text = format!(
        "two hosts, a PE on each, {} rounds, load {loaded} before and {} after\n\
         ns for each operation, p10 / p50, medians over rounds\n\n{:<17}",
        options.rounds,
        load(),
        ""
    );
    contests.iter().for_each(|contest| text += &format!("{contest:>21}"));
    for (row, _) in ROWS {
        text += &format!("\n{row:<17}");
        for contest in &contests {
            let both = medians(seen, contest, row);
            let cell = both.map_or("-".to_owned(), |[p10, p50]| format!("{p10:.0} / {p50:.0}"));
            text += &format!("{cell:>21}");
        }
    }
    text += &format!("\n\n{:<17}", "to the best peer");
    OWN.iter().for_each(|(wire, _)| text += &format!("{wire:>15}"));
    for (row, goal) in ROWS {
        text += &format!("\n{row:<17}{}", judged(seen, row, goal));
    }
    text += "\n\n";
    for wire in FLOORS {
        if let Some([p10, p50]) = medians(seen, wire, wire) {
            text += &format!("plain {wire}, half a round trip: {p10:.0} / {p50:.0} ns\n");
        }
    }
    text
}

fn record(options: &BenchArguments, loaded: f64, seen: &FarSeen) -> Value {
    let one = |((contest, row), rounds): (&(&str, &str), &Vec<[f64; 2]>)| json!({"contest": contest, "name": row, "rounds": rounds});
    let figures: Vec<Value> = seen.iter().map(one).collect();
    json!({"bench": "shmem --far", "rounds": options.rounds, "load": [loaded, load()], "figures": figures})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a contestant's output in which every row has this median.
    fn said(p50: f64) -> String {
        ROWS.iter().map(|(row, _)| format!("{row} 1.0 {p50} 40 40\n")).collect()
    }

    #[test]
    fn text__ratio_is_to_the_better_peer_of_the_row() {
        let mut seen = FarSeen::new();
        collect("clearway udp", &said(60.0), &mut seen);
        collect(NAMED, "g 1.0 100.0 40 40\n", &mut seen);
        collect(UCX, &said(200.0), &mut seen);
        collect("udp", "udp 5000.0 6000.0 1 1\n", &mut seen);
        let text = text(&BenchArguments { rounds: 1, json: false }, 0.5, &seen);
        let judged = |row: &str| text.lines().rfind(|line| line.starts_with(row)).expect("a row");
        assert_eq!(
            judged("g ").split_ascii_whitespace().collect::<Vec<_>>(),
            ["g", "1.00", "/", "0.60", "-", "-", "wanted", "0.80"]
        );
        assert!(judged("fetch_add ").contains("1.00 / 0.30 "), "{text}");
        assert!(judged("put_nbi ").ends_with("wanted 10 M/s, best 16.67 M/s"), "{text}");
        assert!(text.ends_with("plain udp, half a round trip: 5000 / 6000 ns\n"), "{text}");
    }

    #[test]
    fn whole__a_run_that_is_ended_has_a_reason() {
        let mut hangs = Command::new("timeout");
        let error = whole(hangs.args(["0.05", "sleep", "5"]), "done").expect_err("no last line");
        assert_eq!(error.to_string(), "it did not end in time");
        let mut fails = Command::new("sh");
        let error = whole(fails.args(["-c", "echo why >&2; exit 3"]), "done").expect_err("no line");
        assert_eq!(error.to_string(), "it ended with exit status: 3: why");
    }

    #[test]
    fn options__know_a_peer_and_those_of_all_benches() {
        let words = ["--far", "--rounds", "2", "--peer", "/opt/shmem"].map(str::to_owned);
        let (options, peer) = options(&words).expect("options");
        assert_eq!((options.rounds, peer), (2, Some(PathBuf::from("/opt/shmem"))));
        assert!(super::options(&["--peer".to_owned()]).is_err());
    }
}
