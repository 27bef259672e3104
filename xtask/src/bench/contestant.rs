//! The contestants: how each is started on a link, and which figures its output holds.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::link::{FAR, Link, NEAR};

/// Figures of one run by name.
pub(super) type RunFigures = Vec<(&'static str, f64)>;

/// Goodput by the sender's processor time.
pub(super) const PER_SENDER: &str = "Gb/s per sender's CPU-second";
/// Goodput by the receiver's processor time.
pub(super) const PER_RECEIVER: &str = "Gb/s per receiver's CPU-second";
/// Goodput by the processor time of both.
pub(super) const PER_BOTH: &str = "Gb/s per CPU-second of both";
/// The least half round trip.
pub(super) const FASTEST: &str = "half round trip, least, us";
/// The median half round trip.
pub(super) const TYPICAL: &str = "half round trip, median, us";
/// The 99th percentile of half round trips.
pub(super) const SLOW: &str = "half round trip, p99, us";
const WALL: &str = "Gb/s";
const LOST: &str = "lost, %";

/// Seconds of one goodput run; iperf3 takes whole ones.
const GOODPUT_S: &str = "2";
/// Seconds of one latency run.
const LATENCY_S: &str = "1";
/// Seconds of a victim's run: it shares a processor with the flood.
const VICTIM_S: &str = "3";
/// Seconds of a flood: it lasts longer than the victim's start and run.
const FLOOD_S: &str = "5";
/// Bytes of one message over libfabric: like the runs that the wire hands to the kernel.
const MESSAGE: &str = "65536";
/// The port of all runs; each run's namespaces are its own.
const PORT: u16 = 7_000;

/// One contestant.
pub(super) struct Contestant {
    /// Its name in tables.
    pub(super) name: &'static str,
    /// The project whose program it needs in addition to this project's.
    pub(super) peer: Peer,
    /// Runs it once.
    pub(super) run: fn(&Link, &Programs) -> Result<RunFigures>,
}

/// A program that is compiled for a contest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    None,
    Libfabric,
}

/// The programs that contests run.
pub(super) struct Programs {
    /// The measuring program of this project.
    pub(super) wire: PathBuf,
    /// The same over libfabric alone, where it can be compiled.
    pub(super) libfabric: Option<PathBuf>,
}

impl Drop for Programs {
    fn drop(&mut self) {
        // Files that stay behind in the system's directory for such things harm nobody.
        let _ = self.libfabric.as_deref().and_then(Path::parent).map(std::fs::remove_dir_all);
    }
}

/// The source of libfabric's program.
const PEER: &str = include_str!("ofi_peer.c");

/// Compiles libfabric's program; `None`, with a reason on standard error, where that cannot be
/// done.
pub(super) fn compile_peer() -> Option<PathBuf> {
    let compile = || {
        let directory =
            std::env::temp_dir().join(format!("clearway-ofi-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let (source, program) = (directory.join("ofi_peer.c"), directory.join("ofi_peer"));
        std::fs::write(&source, PEER)?;
        let output = Command::new("cc")
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(&source)
            .arg("-lfabric")
            .output()?;
        ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(program)
    };
    compile()
        .inspect_err(|error| {
            eprintln!("skipped: libfabric: {error:#}; it needs libfabric-dev and cc")
        })
        .ok()
}

/// libfabric's `tcp`, by its ways to wait.
pub(super) const TCP: &[&str] = &["libfabric tcp", "libfabric tcp, polling"];
/// libfabric's reliability over UDP.
pub(super) const RXD: &[&str] = &["libfabric rxd"];
/// A wire on a host that gets a flood at another port.
pub(super) const FLOOD_ELSEWHERE: &str = "victim, flood at other port";

/// The wire with keys, and what it is measured by.
pub(super) const SEALED: &[Contestant] = &[
    Contestant {
        name: "udp wire, sealed",
        peer: Peer::None,
        run: |link, programs| goodput(link, &programs.wire, ["send-sealed", "receive-sealed"]),
    },
    Contestant {
        name: TCP[0],
        peer: Peer::Libfabric,
        run: |link, programs| libfabric(link, programs, "tcp;ofi_rxm", "wait"),
    },
    Contestant {
        name: TCP[1],
        peer: Peer::Libfabric,
        run: |link, programs| libfabric(link, programs, "tcp;ofi_rxm", "poll"),
    },
    Contestant {
        name: RXD[0],
        peer: Peer::Libfabric,
        run: |link, programs| libfabric(link, programs, "udp;ofi_rxd", "poll"),
    },
    Contestant { name: "iperf3 tcp", peer: Peer::None, run: |link, _| iperf(link, &[]) },
];

pub(super) const CONTESTS: &[Contestant] = &[
    Contestant {
        name: "udp wire",
        peer: Peer::None,
        run: |link, programs| goodput(link, &programs.wire, ["send", "receive"]),
    },
    Contestant {
        name: "udp wire, sealed",
        peer: Peer::None,
        run: |link, programs| goodput(link, &programs.wire, ["send-sealed", "receive-sealed"]),
    },
    Contestant {
        name: "udp wire, real packets",
        peer: Peer::None,
        run: |link, programs| goodput(link, &programs.wire, ["send-real", "receive"]),
    },
    Contestant {
        name: "udp wire, sealed, real packets",
        peer: Peer::None,
        run: |link, programs| goodput(link, &programs.wire, ["send-real-sealed", "receive-sealed"]),
    },
    Contestant { name: "iperf3 tcp", peer: Peer::None, run: |link, _| iperf(link, &[]) },
    Contestant {
        name: "iperf3 udp",
        peer: Peer::None,
        run: |link, _| iperf(link, &["-u", "-b", "0", "-l", "1400"]),
    },
    Contestant {
        name: "latency wire",
        peer: Peer::None,
        run: |link, programs| latency(link, &programs.wire, "ping", "pong"),
    },
    Contestant {
        name: "latency wire, sealed",
        peer: Peer::None,
        run: |link, programs| latency(link, &programs.wire, "ping-sealed", "pong-sealed"),
    },
    Contestant {
        name: "victim, no flood",
        peer: Peer::None,
        run: |link, programs| flooded(link, &programs.wire, None),
    },
    // What a flood costs a host of two processors anyway, whomever it is sent to.
    Contestant {
        name: FLOOD_ELSEWHERE,
        peer: Peer::None,
        run: |link, programs| flooded(link, &programs.wire, Some(PORT + 2)),
    },
    Contestant {
        name: "victim, flood",
        peer: Peer::None,
        run: |link, programs| flooded(link, &programs.wire, Some(PORT)),
    },
    Contestant {
        name: "latency plain",
        peer: Peer::None,
        run: |link, programs| latency(link, &programs.wire, "bare-ping", "bare-pong"),
    },
];

/// Runs `near` against `far`, which first says one line when it is ready; returns what both wrote
/// after it.
pub(super) fn run(near: Command, far: Command) -> Result<(String, String)> {
    run_with(near, far, || Ok(()))
}

/// As [`run`], doing something when the far end is ready.
fn run_with(
    mut near: Command,
    mut far: Command,
    ready: impl FnOnce() -> Result<()>,
) -> Result<(String, String)> {
    let mut far = far.stdout(Stdio::piped()).spawn().context("the far end")?;
    let mut spoken = BufReader::new(far.stdout.take().context("a pipe from the far end")?);
    let mut line = String::new();
    spoken.read_line(&mut line).context("the far end")?;
    ready()?;
    let near = near.output().context("the near end")?;
    let mut rest = String::new();
    spoken.read_to_string(&mut rest).context("the far end")?;
    let far = far.wait().context("the far end")?;
    ensure!(
        near.status.success(),
        "the near end failed: {}",
        String::from_utf8_lossy(&near.stderr).trim()
    );
    ensure!(far.success(), "the far end failed");
    Ok((String::from_utf8_lossy(&near.stdout).into_owned(), rest))
}

/// Both ends of the measuring program in two roles.
fn ends(
    link: &Link,
    program: &Path,
    near: &str,
    far: &str,
    seconds: &str,
) -> Result<(String, String)> {
    let (here, there) = (format!("{NEAR}:{PORT}"), format!("{FAR}:{PORT}"));
    let (mut near_end, mut far_end) = (link.near(), link.far());
    near_end.arg(program).args([near, &here, &there, seconds]);
    far_end.arg(program).args([far, &there, &here, seconds]);
    run(near_end, far_end)
}

/// A figure from a line of `name value` pairs.
pub(super) fn value(line: &str, name: &str) -> Result<f64> {
    let mut words = line.split_ascii_whitespace();
    words
        .find(|word| *word == name)
        .with_context(|| format!("no `{name}` in `{}`", line.trim()))?;
    words
        .next()
        .and_then(|text| text.parse().ok())
        .with_context(|| format!("no figure for `{name}`"))
}

fn goodput(link: &Link, program: &Path, [near, far]: [&str; 2]) -> Result<RunFigures> {
    let (sent, received) = ends(link, program, near, far, GOODPUT_S)?;
    // Bytes that arrived, in bits by ns: the same figure as Gb/s.
    let bits = value(&received, "bytes")? * 8.0;
    let (sender, receiver) = (bits / value(&sent, "cpu_ns")?, bits / value(&received, "cpu_ns")?);
    Ok(vec![
        (PER_SENDER, sender),
        (PER_RECEIVER, receiver),
        (PER_BOTH, both(sender, receiver)),
        (WALL, bits / value(&sent, "wall_ns")?),
        (LOST, 100.0 * (1.0 - value(&received, "messages")? / value(&sent, "messages")?)),
    ])
}

/// Messages of [`MESSAGE`] bytes over a provider of libfabric.
fn libfabric(
    link: &Link,
    programs: &Programs,
    provider: &str,
    waiting: &str,
) -> Result<RunFigures> {
    let program = programs.libfabric.as_deref().context("no program")?;
    let (here, there) = (NEAR.to_string(), FAR.to_string());
    let (mut near, mut far) = (link.near(), link.far());
    near.arg(program).args(["send", provider, &here, &there, GOODPUT_S, MESSAGE, waiting]);
    far.arg(program).args(["receive", provider, &there, &here, GOODPUT_S, MESSAGE, waiting]);
    let (sent, received) = run(near, far)?;
    // The far end also counts what came before the near end began to; each is set against its own
    // time.
    let per =
        |line: &str| Ok::<_, anyhow::Error>(value(line, "bytes")? * 8.0 / value(line, "cpu_ns")?);
    let (sender, receiver) = (per(&sent)?, per(&received)?);
    Ok(vec![
        (PER_SENDER, sender),
        (PER_RECEIVER, receiver),
        (PER_BOTH, both(sender, receiver)),
        (WALL, value(&sent, "bytes")? * 8.0 / value(&sent, "wall_ns")?),
    ])
}

/// Goodput by the processor time of both ends together.
fn both(sender: f64, receiver: f64) -> f64 {
    1.0 / (1.0 / sender + 1.0 / receiver)
}

fn latency(link: &Link, program: &Path, near: &str, far: &str) -> Result<RunFigures> {
    let (line, _) = ends(link, program, near, far, LATENCY_S)?;
    Ok(vec![(FASTEST, value(&line, "min_ns")? / 1e3), (TYPICAL, value(&line, "p50_ns")? / 1e3)])
}

/// A victim's latency while a stranger, on the victim's processor, floods a port of its peer's
/// host. Fails when a datagram of the stranger was accepted.
fn flooded(link: &Link, program: &Path, port: Option<u16>) -> Result<RunFigures> {
    let (here, there) = (format!("{NEAR}:{PORT}"), format!("{FAR}:{PORT}"));
    let (mut near, mut far) = (link.near(), link.far());
    // The flood begins when the far end is ready, which the near end also waits for, and outlasts
    // the victim.
    near.arg(program).args(["victim-sealed", &here, &there, VICTIM_S]);
    far.arg(program).args(["target-sealed", &there, &here, VICTIM_S]);
    let mut stranger = None;
    let outcome = run_with(near, far, || {
        let Some(port) = port else { return Ok(()) };
        let mut flood = link.near();
        flood.arg(program).args([
            "flood",
            &format!("{NEAR}:{}", PORT + 1),
            &format!("{FAR}:{port}"),
            FLOOD_S,
        ]);
        stranger = Some(flood.stdout(Stdio::piped()).spawn().context("the stranger")?);
        Ok(())
    });
    // It ends by itself, and its address is free again before the next run.
    let flood =
        stranger.map(|stranger| stranger.wait_with_output().context("the stranger")).transpose()?;
    let (line, rest) = outcome?;
    let (received, strangers) = (value(&rest, "received")?, value(&rest, "strangers")?);
    let round_trips = value(&line, "round_trips")?;
    let mut seen = vec![
        (TYPICAL, value(&line, "p50_ns")? / 1e3),
        (SLOW, value(&line, "p99_ns")? / 1e3),
        ("round trips lost", value(&line, "lost")?),
        ("growth of memory, KiB", value(&rest, "memory_kib")? - value(&rest, "memory_before_kib")?),
    ];
    if let Some(flood) = flood {
        let flood = String::from_utf8_lossy(&flood.stdout).into_owned();
        seen.push((
            "datagrams of the flood, 10^6/s",
            value(&flood, "messages")? * 1e3 / value(&flood, "wall_ns")?,
        ));
        seen.push(("refused as strangers, 10^6", strangers / 1e6));
        // The victim warms up with a thousand round trips, and each of its messages may be asked
        // once more at the end.
        ensure!(
            received < round_trips + 2_000.0,
            "{received} messages were accepted for {round_trips} round trips"
        );
    }
    Ok(seen)
}

fn iperf(link: &Link, flags: &[&str]) -> Result<RunFigures> {
    let (mut near, mut far) = (link.near(), link.far());
    far.args(["iperf3", "-s", "-1", "--forceflush"]);
    near.args(["iperf3", "-J", "-c", &FAR.to_string(), "-t", GOODPUT_S]).args(flags);
    let (report, _) = run(near, far)?;
    iperf_figures(&report)
}

/// The figures of an iperf3 report. Its processor shares are percent of wall time, user and system
/// together.
fn iperf_figures(report: &str) -> Result<RunFigures> {
    let report: Value = serde_json::from_str(report).context("iperf3's report")?;
    let end = report.get("end").context("iperf3's report has no `end`")?;
    let number = |path: &str| end.pointer(path).and_then(Value::as_f64);
    let sum = if end.get("sum_received").is_some() { "/sum_received" } else { "/sum" };
    let sum = |name: &str| number(&format!("{sum}/{name}"));
    let lost = number("/sum/lost_percent").unwrap_or(0.0);
    let wall = sum("seconds").context("iperf3's report has no time")?;
    // Over UDP some versions count what was sent; what was lost must not count as goodput.
    let arrived = if end.get("sum_received").is_some() { 1.0 } else { 1.0 - lost / 100.0 };
    let bits = sum("bytes").context("iperf3's report has no bytes")? * 8.0 * arrived;
    let cpu = |name: &str| {
        number(&format!("/cpu_utilization_percent/{name}"))
            .map(|percent| percent / 100.0 * wall * 1e9)
    };
    Ok(vec![
        (PER_SENDER, bits / cpu("host_total").context("iperf3's report has no processor time")?),
        (
            PER_RECEIVER,
            bits / cpu("remote_total").context("iperf3's report has no processor time")?,
        ),
        (WALL, bits / (wall * 1e9)),
        (LOST, lost),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value__finds_a_figure_by_its_name() {
        assert_eq!(value("messages 12 bytes 34\n", "bytes").ok(), Some(34.0));
        assert!(value("messages 12 bytes\n", "bytes").is_err());
        assert!(value("messages 12\n", "bytes").is_err());
    }

    #[test]
    fn iperf_figures__percent_of_wall_become_goodput_per_processor_second() {
        let report = r#"{"end": {"sum_received": {"seconds": 2.0, "bytes": 2.5e9},
            "cpu_utilization_percent": {"host_total": 50.0, "remote_total": 100.0}}}"#;
        let seen = iperf_figures(report).expect("a report");
        assert_eq!(seen, [(PER_SENDER, 20.0), (PER_RECEIVER, 10.0), (WALL, 10.0), (LOST, 0.0)]);
    }

    #[test]
    fn iperf_figures__lost_datagrams_are_no_goodput() {
        let report = r#"{"end": {"sum": {"seconds": 1.0, "bytes": 1e9, "lost_percent": 25.0},
            "cpu_utilization_percent": {"host_total": 100.0, "remote_total": 50.0}}}"#;
        let seen = iperf_figures(report).expect("a report");
        assert_eq!(seen, [(PER_SENDER, 6.0), (PER_RECEIVER, 12.0), (WALL, 6.0), (LOST, 25.0)]);
        assert!(iperf_figures("{}").is_err());
    }
}
