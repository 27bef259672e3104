//! `cargo xtask bench ofi`: the libfabric wire compared with the same provider without it, between
//! two virtual hosts.
//!
//! # Model
//! Messages of 64 bytes in turns, next to a bare loop of `fi_send` and `fi_cq_read` and next to
//! libfabric's own `fi_pingpong`, which tells a mean only; one-sided writes of 64 KiB and 1 MiB, 16
//! under way at a time, next to a bare loop of `fi_write`. All ends poll.
//!
//! # Not here
//! The measured loops: `crates/clearway-ofi/benches/ofi_bench.rs` and `ofi_peer.c`.

use anyhow::{Context, Result};

use super::contestant::{Contestant, PER_SENDER, Peer, Programs, RunFigures, TYPICAL, run, value};
use super::link::{FAR, Link, NEAR};

/// The mean half round trip.
pub(super) const MEAN: &str = "half round trip, mean, us";
/// Contests of the wire and of libfabric alone, in pairs.
pub(super) const PAIRS: [[&str; 2]; 3] = [
    ["ofi wire, 64 B in turns", "libfabric, 64 B in turns"],
    ["ofi wire, writes of 64 KiB", "libfabric, writes of 64 KiB"],
    ["ofi wire, writes of 1 MiB", "libfabric, writes of 1 MiB"],
];
/// libfabric's own program.
pub(super) const PINGPONG: &str = "fi_pingpong";

/// What the wire chooses on plain Ethernet with Debian's libfabric.
const PROVIDER: &str = "tcp;ofi_rxm";
/// Seconds of one run.
const LENGTH_S: &str = "1";
/// Turns of `fi_pingpong`: about as many as fit in [`LENGTH_S`].
const TURNS: &str = "30000";

pub(super) const OFI: &[Contestant] = &[
    Contestant {
        name: PAIRS[0][0],
        peer: Peer::None,
        run: |link, programs| wire(link, programs, ["ping", "pong"], "64"),
    },
    Contestant {
        name: PAIRS[0][1],
        peer: Peer::Libfabric,
        run: |link, programs| bare(link, programs, ["ping", "pong"], "64"),
    },
    Contestant { name: PINGPONG, peer: Peer::None, run: |link, _| pingpong(link) },
    Contestant {
        name: PAIRS[1][0],
        peer: Peer::None,
        run: |link, programs| wire(link, programs, ["write", "target"], "65536"),
    },
    Contestant {
        name: PAIRS[1][1],
        peer: Peer::Libfabric,
        run: |link, programs| bare(link, programs, ["write", "target"], "65536"),
    },
    Contestant {
        name: PAIRS[2][0],
        peer: Peer::None,
        run: |link, programs| wire(link, programs, ["write", "target"], "1048576"),
    },
    Contestant {
        name: PAIRS[2][1],
        peer: Peer::Libfabric,
        run: |link, programs| bare(link, programs, ["write", "target"], "1048576"),
    },
];

fn wire(
    link: &Link,
    programs: &Programs,
    [near_role, far_role]: [&str; 2],
    size: &str,
) -> Result<RunFigures> {
    let (here, there) = (NEAR.to_string(), FAR.to_string());
    let (mut near, mut far) = (link.near(), link.far());
    near.arg(&programs.wire).args([near_role, &here, &there, LENGTH_S, size]);
    far.arg(&programs.wire).args([far_role, &there, &here, LENGTH_S, size]);
    figures(&run(near, far)?.0)
}

fn bare(
    link: &Link,
    programs: &Programs,
    [near_role, far_role]: [&str; 2],
    size: &str,
) -> Result<RunFigures> {
    let program = programs.libfabric.as_deref().context("no program")?;
    let (here, there) = (NEAR.to_string(), FAR.to_string());
    let (mut near, mut far) = (link.near(), link.far());
    near.arg(program).args([near_role, PROVIDER, &here, &there, LENGTH_S, size, "poll"]);
    far.arg(program).args([far_role, PROVIDER, &there, &here, LENGTH_S, size, "poll"]);
    figures(&run(near, far)?.0)
}

/// The figures of either program's line.
fn figures(line: &str) -> Result<RunFigures> {
    if let Ok(median) = value(line, "p50_ns") {
        return Ok(vec![(TYPICAL, median / 1e3), (MEAN, value(line, "mean_ns")? / 1e3)]);
    }
    Ok(vec![(PER_SENDER, value(line, "bytes")? * 8.0 / value(line, "cpu_ns")?)])
}

fn pingpong(link: &Link) -> Result<RunFigures> {
    let (mut near, mut far) = (link.near(), link.far());
    // It says nothing when it is ready, so its end of a pipe is opened for it; the near one asks
    // again until it is heard.
    far.args([
        "sh",
        "-c",
        "echo ready; exec fi_pingpong -e rdm -S 64 -p \"$0\" -I \"$1\" >/dev/null",
        PROVIDER,
        TURNS,
    ]);
    near.args([
        "sh",
        "-c",
        "sleep 0.5; exec fi_pingpong -e rdm -S 64 -p \"$0\" -I \"$1\" \"$2\"",
        PROVIDER,
        TURNS,
    ]);
    near.arg(FAR.to_string());
    Ok(vec![(MEAN, pingpong_mean(&run(near, far)?.0)?)])
}

/// The column `usec/xfer` of `fi_pingpong`: half a round trip.
fn pingpong_mean(text: &str) -> Result<f64> {
    let line = text
        .lines()
        .find(|line| line.starts_with("64 "))
        .with_context(|| format!("no figures in `{text}`"))?;
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    words.get(6).and_then(|word| word.parse().ok()).context("no column usec/xfer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pingpong_mean__is_the_column_of_microseconds() {
        let text = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    64      5k      =5k      625k        2.01s      0.32     201.02       0.00\n";
        assert_eq!(pingpong_mean(text).ok(), Some(201.02));
        assert!(pingpong_mean("").is_err());
    }

    #[test]
    fn figures__of_turns_and_of_writes() {
        let turns = figures("round_trips 9 min_ns 1 p50_ns 8000 mean_ns 9000\n").expect("turns");
        assert_eq!(turns, [(TYPICAL, 8.0), (MEAN, 9.0)]);
        let writes = figures("messages 1 bytes 1000 wall_ns 9 cpu_ns 400\n").expect("writes");
        assert_eq!(writes, [(PER_SENDER, 20.0)]);
    }
}
