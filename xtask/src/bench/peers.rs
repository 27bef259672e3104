//! `cargo xtask bench peers`: broadcasts next to Open MPI, MPICH, udpcast and UFTP, on the same
//! kind of lab.
//!
//! # Model
//! Eight hosts on a switch, links of 200 Mb/s, and for short objects also links of a rate that
//! nothing here reaches; long objects between hosts with segmentation offload, as in `clearway
//! broadcast`. MPI_Bcast runs one rank in each host over TCP, by the library's choice and by single
//! algorithms; udpcast and UFTP carry a file from the first host to all others, whose copies are
//! compared. `clearway broadcast` makes a lab of its own that is the same. Everybody runs once in
//! each round. Loss is made where packets come in, at every host: for peers by the kernel's packet
//! filter, for Clearway in its ranks. MPI is compared without loss only: its launcher loses its own
//! packets as well.
//!
//! # Not here
//! What Clearway measures: `crates/clearway/src/mechanism/broadcast`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::afterwards::Afterwards;
use super::hosts::{Hosts, are_there};
use super::mpi::{MPICH, OPEN_MPI, OPEN_MPI_AS_ROOT};
use super::{BenchArguments, build_program, load, spread};

/// One sends, seven receive.
const HOSTS: usize = 8;
/// Longest run of any program: several times what the slowest takes on a quiet machine.
const DEADLINE: Duration = Duration::from_secs(90);
/// Longest round: what would begin later is left out. On a quiet machine one takes about six
/// minutes.
const ROUND: Duration = Duration::from_secs(1200);
/// How long a receiver may take to end by itself behind the sender.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Ours.
const OURS: &str = "clearway";
/// The MPI libraries' program.
const PEER: &str = include_str!("bcast_peer.c");
/// The usual rate of links.
const RATE: &str = "200Mb/s";
/// The fastest link that a lab makes: here processors bound.
const UNLIMITED: &str = "32Gb/s";
/// Labs: of which rate, and how many frames a packet has, which follows from the objects as in
/// `clearway broadcast`.
const LABS: [(&str, u32); 4] = [(RATE, 1), (RATE, 5), (RATE, 43), (UNLIMITED, 1)];
/// The lab of files.
const FILES: usize = 2;
/// MPI's broadcasts and ours: the lab, bytes, as Clearway writes them, and how often each library
/// does it.
const MESSAGES: [(usize, &str, u64, u32); 6] = [
    (0, "4 B", 4, 200),
    (0, "16 KiB", 16 << 10, 50),
    (1, "1 MiB", 1 << 20, 10),
    (2, "64 MiB", 64 << 20, 1),
    (3, "4 B", 4, 200),
    (3, "16 KiB", 16 << 10, 50),
];
/// The file.
const FILE: (&str, u64) = ("256 MiB", 256 << 20);
/// Thousandths of what comes in that are lost while a file is carried.
const LOSSES: [u32; 3] = [0, 1, 10];
/// Algorithms of Open MPI's `tuned` component, with the bytes of a segment; its own choice is run
/// too.
const ALGORITHMS: [(&str, &str, &str); 5] = [
    ("Open MPI, pipeline 32 KiB", "3", "32768"),
    ("Open MPI, binomial", "6", "0"),
    ("Open MPI, split binary 32 KiB", "4", "32768"),
    ("Open MPI, scatter-allgather", "8", "0"),
    ("Open MPI, scatter-ring", "9", "0"),
];

/// Rate of links, bytes, thousandths lost.
type TransferCase = (&'static str, u64, u32);
/// Seconds by what and who: a value for each round.
type PeersFigures = BTreeMap<(TransferCase, String), Vec<f64>>;

/// A directory that ends with this value; in memory, so that no disk is measured.
struct MemoryDirectory {
    path: PathBuf,
    _gone: Afterwards,
}

impl MemoryDirectory {
    fn make() -> Result<Self> {
        let path = PathBuf::from("/dev/shm").join(format!("clearway-peers-{}", std::process::id()));
        fs::create_dir_all(&path).context("a directory in memory")?;
        let gone = Afterwards::run(Path::new("rm"), &[OsStr::new("-rf"), path.as_os_str()])?;
        Ok(Self { path, _gone: gone })
    }
}

/// Everything that runs.
struct PeersContest {
    /// With what starts programs in it, in the order of [`LABS`]; and which of them is in use.
    labs: Vec<(Hosts, PathBuf)>,
    at: usize,
    room: MemoryDirectory,
    program: PathBuf,
    /// The peer's program by each library, where it can be compiled.
    open_mpi: Option<PathBuf>,
    mpich: Option<PathBuf>,
    udpcast: bool,
    uftp: bool,
    /// When the round ends.
    until: Instant,
}

/// Runs the bench.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    if !are_there("bench peers", &["nft", "ip", "timeout", "cmp", "unshare"]) {
        return Ok(ExitCode::SUCCESS);
    }
    let mut contest = PeersContest::open(build_program()?)?;
    let loaded = load();
    let mut figures = PeersFigures::new();
    for round in 0..options.rounds {
        contest.until = Instant::now() + ROUND;
        contest.messages(round, &mut figures);
        contest.files(round, &mut figures);
    }
    if options.json {
        println!("{}", record(options, loaded, &figures));
    } else {
        print!("{}", text(options, loaded, &figures));
    }
    Ok(ExitCode::SUCCESS)
}

impl PeersContest {
    fn open(program: PathBuf) -> Result<Self> {
        let room = MemoryDirectory::make()?;
        let up = |(rate, frames)| {
            let lab = Hosts::up(program.clone(), HOSTS, rate, "fifo", frames)?;
            let agent = lab.agent(&room.path)?;
            anyhow::Ok((lab, agent))
        };
        let labs = LABS.into_iter().map(up).collect::<Result<_>>()?;
        let [open_mpi, mpich] =
            [OPEN_MPI, MPICH].map(|mpi| mpi.compile(&room.path, "bcast_peer", PEER));
        let udpcast = are_there("udpcast", &["udp-sender", "udp-receiver"]);
        let uftp = are_there("UFTP", &["uftp", "uftpd"]);
        fs::write(room.path.join("file"), content(FILE.1))?;
        Ok(Self {
            labs,
            at: 0,
            program,
            open_mpi,
            mpich,
            udpcast,
            uftp,
            room,
            until: Instant::now(),
        })
    }

    /// The lab in use.
    fn lab(&self) -> &Hosts {
        &self.labs[self.at].0
    }

    /// What begins a command line that is ended when it takes too long.
    fn bounded(&self) -> Result<[String; 3]> {
        let left = self.until.saturating_duration_since(Instant::now()).min(DEADLINE).as_secs();
        ensure!(left > 0, "the round has taken {} min already", ROUND.as_secs() / 60);
        Ok(["timeout".to_owned(), "--kill-after=5".to_owned(), left.to_string()])
    }

    /// Broadcasts of memory, without loss.
    fn messages(&mut self, round: usize, figures: &mut PeersFigures) {
        for (at, name, bytes, times) in MESSAGES {
            self.at = at;
            let rate = LABS[at].0;
            let mut note = |bytes: u64, who: &str, seconds: Result<f64>| match seconds {
                Ok(seconds) => {
                    eprintln!("{who}, {bytes} B, {rate}: {seconds:.6} s");
                    figures.entry(((rate, bytes, 0), who.to_owned())).or_default().push(seconds);
                }
                Err(error) => {
                    eprintln!("skipped: {who}, {bytes} B, {rate}, in round {round}: {error:#}")
                }
            };
            if let Err(error) = self.lab().lose(0) {
                eprintln!("skipped: messages of {bytes} B in round {round}: {error:#}");
                continue;
            }
            note(bytes, OURS, self.ours(name, 0, times));
            if let Some(peer) = &self.open_mpi {
                note(bytes, "Open MPI, its choice", self.run_open_mpi(peer, None, bytes, times));
                for (who, algorithm, segment) in ALGORITHMS {
                    note(
                        bytes,
                        who,
                        self.run_open_mpi(peer, Some([algorithm, segment]), bytes, times),
                    );
                }
            }
            if let Some(peer) = &self.mpich {
                note(bytes, "MPICH", self.run_mpich(peer, bytes, times));
            }
        }
    }

    /// One file to all, with and without loss.
    fn files(&mut self, round: usize, figures: &mut PeersFigures) {
        self.at = FILES;
        for loss in LOSSES {
            let mut note = |who: &str, seconds: Result<f64>| match seconds {
                Ok(seconds) => {
                    eprintln!("{who}, file, {loss} of 1000 lost: {seconds:.3} s");
                    figures
                        .entry(((LABS[FILES].0, FILE.1, loss), who.to_owned()))
                        .or_default()
                        .push(seconds);
                }
                Err(error) => eprintln!(
                    "skipped: {who}, file, {loss} of 1000 lost, in round {round}: {error:#}"
                ),
            };
            note(OURS, self.ours(FILE.0, loss, 1));
            if let Err(error) = self.lab().lose(loss) {
                eprintln!("skipped: files of round {round}: {error:#}");
                continue;
            }
            if self.udpcast {
                note("udpcast", self.carry(|contest, host| contest.udpcast(host)));
            }
            if self.uftp {
                note("UFTP", self.carry(|contest, host| contest.uftp(host)));
            }
        }
    }

    /// What a user of Clearway gets: seconds in the median.
    fn ours(&self, bytes: &str, loss: u32, times: u32) -> Result<f64> {
        let [timeout, kill, seconds] = self.bounded()?;
        let mut command = Command::new(timeout);
        command.args([kill, seconds]).arg(&self.program).args([
            "broadcast",
            "--on",
            "lab",
            "--json",
        ]);
        command.args(["--rate", LABS[self.at].0]);
        command.args(["--ranks", &HOSTS.to_string(), "--bytes", &bytes.replace(' ', "")]);
        command.args([
            "--loss",
            &format!("{}", f64::from(loss) / 1000.0),
            "--objects",
            &times.to_string(),
        ]);
        // Its report is of no use to anybody: the figures are read from standard output.
        let report =
            std::env::temp_dir().join(format!("clearway-bench-broadcast-{}", std::process::id()));
        let output = command
            .args(["--overwrite", "--out"])
            .arg(&report)
            .output()
            .context("clearway broadcast")?;
        let _ = fs::remove_dir_all(&report);
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        let figures: Value =
            serde_json::from_slice(&output.stdout).context("the figures are no JSON")?;
        let is = |figure: &&Value| figure["name"] == "broadcast_seconds";
        let figure = figures["figures"]
            .as_array()
            .into_iter()
            .flatten()
            .find(is)
            .context("no time was reported")?;
        figure["value"].as_f64().context("a time that is none")
    }

    fn run_open_mpi(
        &self,
        peer: &Path,
        by: Option<[&str; 2]>,
        bytes: u64,
        times: u32,
    ) -> Result<f64> {
        let [timeout, kill, seconds_left] = self.bounded()?;
        let mut command = self.lab().on(0, timeout);
        command.args([&kill, &seconds_left, OPEN_MPI.launcher, "-n", &HOSTS.to_string()]);
        command.args(["-H", &self.lab().addresses.join(",")]);
        command.args(["--mca", "plm_rsh_agent"]).arg(&self.labs[self.at].1);
        command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--bind-to", "none"]);
        // Ranks share processors, which the library does not know: to it each has a host.
        command.args(["--mca", "mpi_yield_when_idle", "1"]);
        for who in ["btl_tcp_if_include", "oob_tcp_if_include"] {
            command.args(["--mca", who, &self.lab().network()]);
        }
        if let Some([algorithm, segment]) = by {
            command.args(["--mca", "coll_tuned_use_dynamic_rules", "1"]);
            command.args(["--mca", "coll_tuned_bcast_algorithm", algorithm]);
            command.args(["--mca", "coll_tuned_bcast_algorithm_segmentsize", segment]);
        }
        command.arg(peer).args([bytes.to_string(), times.to_string()]).envs(OPEN_MPI_AS_ROOT);
        seconds(command)
    }

    fn run_mpich(&self, peer: &Path, bytes: u64, times: u32) -> Result<f64> {
        let [timeout, kill, seconds_left] = self.bounded()?;
        let mut command = self.lab().on(0, timeout);
        command.args([&kill, &seconds_left, MPICH.launcher, "-n", &HOSTS.to_string(), "-ppn", "1"]);
        command.args([
            "-hosts",
            &self.lab().addresses.join(","),
            "-localhost",
            &self.lab().addresses[0],
        ]);
        command.args(["-launcher", "ssh", "-launcher-exec"]).arg(&self.labs[self.at].1);
        // Else shared memory is found, whose names are those of the whole machine.
        command.args(["-genv", "UCX_TLS", "tcp", "-genv", "MPIR_CVAR_NOLOCAL", "1"]);
        command.arg(peer).args([bytes.to_string(), times.to_string()]);
        seconds(command)
    }

    /// From the sender's start until the last receiver has ended, or the sender where they do not
    /// end by themselves; all copies are compared. `end` is the command of a host.
    fn carry(&self, end: impl Fn(&Self, usize) -> Result<Command>) -> Result<f64> {
        let copies = || (1..HOSTS).map(|host| self.room.path.join(format!("h{host}")));
        for copy in copies() {
            let _ = fs::remove_dir_all(&copy);
            fs::create_dir_all(&copy)?;
        }
        let mut receivers = Vec::new();
        for host in 1..HOSTS {
            receivers.push(
                end(self, host)?
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()?,
            );
        }
        // They open their sockets meanwhile.
        std::thread::sleep(Duration::from_millis(500));
        let begin = Instant::now();
        let sent =
            end(self, 0)?.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let took = begin.elapsed().as_secs_f64();
        // Daemons stay; those that end by themselves may still be writing what the sender knows to
        // be there.
        let until = Instant::now() + LAST_WORDS;
        for receiver in &mut receivers {
            while matches!(receiver.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ =
                Command::new("kill").arg(receiver.id().to_string()).stderr(Stdio::null()).status();
            let _ = receiver.wait();
        }
        ensure!(sent?.success(), "the sender failed");
        for copy in copies() {
            let same = Command::new("cmp")
                .arg(self.room.path.join("file"))
                .arg(copy.join("file"))
                .output()?;
            ensure!(
                same.status.success(),
                "a copy is not the same: {}",
                String::from_utf8_lossy(&same.stdout).trim()
            );
        }
        Ok(took)
    }

    /// The name of a host's interface.
    fn interface(&self, host: usize) -> Result<String> {
        let output = self
            .lab()
            .on(host, "ip")
            .args(["-4", "-o", "addr", "show", "scope", "global"])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_ascii_whitespace()
            .nth(1)
            .map(str::to_owned)
            .context("a host without an interface")
    }

    fn udpcast(&self, host: usize) -> Result<Command> {
        let [timeout, kill, seconds] = self.bounded()?;
        let mut command = self.lab().on(host, timeout);
        command.args([kill, seconds]).arg(if host == 0 { "udp-sender" } else { "udp-receiver" });
        command.args([
            "--nokbd",
            "--interface",
            &self.interface(host)?,
            "--mcast-rdv-address",
            "239.255.77.1",
        ]);
        match host {
            0 => command.args([
                "--min-receivers",
                "7",
                "--full-duplex",
                "--max-bitrate",
                "190m",
                "--file",
            ]),
            _ => command.arg("--file"),
        };
        command.arg(if host == 0 {
            self.room.path.join("file")
        } else {
            self.room.path.join(format!("h{host}/file"))
        });
        Ok(command)
    }

    fn uftp(&self, host: usize) -> Result<Command> {
        let [timeout, kill, seconds] = self.bounded()?;
        let mut command = self.lab().on(host, timeout);
        command.args([kill, seconds]);
        match host {
            0 => command
                .args(["uftp", "-R", "185000", "-I", &self.interface(0)?])
                .arg(self.room.path.join("file")),
            _ => {
                command.args(["uftpd", "-d", "-I", &self.interface(host)?]);
                command.arg("-D").arg(self.room.path.join(format!("h{host}")))
            }
        };
        Ok(command)
    }
}

/// Bytes that no two places have in common.
fn content(length: u64) -> Vec<u8> {
    (0..length / 8)
        .flat_map(|word| (word + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

/// What the peer's program says.
fn seconds(mut command: Command) -> Result<f64> {
    // Hydra waits for the end of its own input before it ends.
    let output = command.stdin(Stdio::null()).output().context("a launcher")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // Hydra's proxies sometimes fail when all is over and reported: then the launcher fails as
    // well.
    match (value_of(&said, "seconds"), value_of(&said, "wrong")) {
        (Some(seconds), Some(0.0)) => Ok(seconds),
        (Some(_), _) => bail!("bytes are wrong: {}", said.trim()),
        (None, _) => bail!(
            "no time was reported: {} {}",
            said.trim(),
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    }
}

/// The number behind `name` in a line of names and values.
fn value_of(line: &str, name: &str) -> Option<f64> {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

/// The median of `who`, of all who did the same.
fn median(figures: &PeersFigures, what: TransferCase, who: &str) -> Option<f64> {
    Some(spread(figures.get(&(what, who.to_owned()))?)?.0)
}

fn text(options: &BenchArguments, loaded: f64, figures: &PeersFigures) -> String {
    let mut text = format!(
        "one sender, 7 receivers, {} rounds, load {loaded} before and {} after\n\
         seconds, median (least to greatest); MPI: until the last rank has it\n",
        options.rounds,
        load()
    );
    let mut last = None;
    for ((what, who), values) in figures {
        let (rate, bytes, loss) = what;
        if last.replace(what) != Some(what) {
            text += &format!("\n{bytes} B, links of {rate}, {loss} of 1000 lost\n");
        }
        let Some((median_of, least, greatest)) = spread(values) else { continue };
        text += &format!("  {who:<32} {median_of:>10.6} ({least:.6} to {greatest:.6})");
        match median(figures, *what, OURS).filter(|_| who != OURS) {
            Some(ours) => text += &format!("  {OURS} takes {:.3} of it\n", ours / median_of),
            None => text.push('\n'),
        }
    }
    text
}

fn record(options: &BenchArguments, loaded: f64, figures: &PeersFigures) -> Value {
    let one = |((what, who), values): (&(TransferCase, String), &Vec<f64>)| {
        let ours = median(figures, *what, OURS).zip(spread(values)).map(|(ours, its)| ours / its.0);
        let (rate, bytes, loss) = what;
        json!({"rate": rate, "bytes": bytes, "lost_thousandths": loss, "who": who, "seconds": values, "ours_part": ours})
    };
    let all: Vec<Value> = figures.iter().map(one).collect();
    json!({"bench": "peers", "rounds": options.rounds, "load": [loaded, load()], "figures": all})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median__is_of_those_who_did_the_same() {
        let figures = PeersFigures::from([
            (((RATE, 4, 0), OURS.to_owned()), vec![3.0, 1.0, 2.0]),
            (((RATE, 4, 1), OURS.to_owned()), vec![9.0]),
            (((UNLIMITED, 4, 0), OURS.to_owned()), vec![8.0]),
            (((RATE, 4, 0), "MPICH".to_owned()), vec![4.0]),
        ]);
        assert_eq!(median(&figures, (RATE, 4, 0), OURS), Some(2.0));
        assert_eq!(median(&figures, (RATE, 8, 0), OURS), None);
        assert_eq!(value_of("seconds 0.5 p99 1 wrong 0", "wrong"), Some(0.0));
    }
}
