//! `cargo xtask bench faults [--rounds N]`: a minute of reliable messages between two processes,
//! over two rails that lose, damage, double, reorder and fail, while the receiver is stopped now
//! and then. The result is whether every byte was what it should be.
//!
//! # Model
//! The faults are made by the kernel's packet filter at both hosts, for what comes in: a share is
//! dropped, one byte of a share is changed behind the checksum of UDP, a share comes twice, and a
//! share is marked as of another class where it leaves, so that it overtakes or is overtaken. On
//! top of that, by turns drawn from the round's number: a rail is filtered for a while, a rail's
//! interface goes down for a while, the receiver is stopped for a while. The draws of each round
//! can be repeated.
//!
//! # Not here
//! The ends: `crates/clearway-runtime/benches/reliable_faults.rs`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::pair::{LabPair, lacks_programs, output, value_of};
use super::{BenchArguments, build, build_program};

/// The rate of each rail.
const RATE: &str = "100Mb/s";
/// Length of one round.
const SECONDS: u64 = 60;
/// In thousandths, for what comes in at each host: lost, damaged, doubled; and for what leaves:
/// sent in another class.
const SHARES: [u32; 4] = [20, 5, 10, 10];
/// The interface of the second rail.
const SECOND: &str = "eth1";

/// What goes wrong for a while.
#[derive(Clone, Copy, Debug)]
enum FaultPeriod {
    Filtered(usize),
    Down,
    Stopped,
}

/// Runs the rounds; a failure if a byte was wrong.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    if lacks_programs("faults") {
        return Ok(ExitCode::SUCCESS);
    }
    let bench = build("clearway-runtime", "reliable_faults")?;
    let bench = bench.to_str().context("a path that is no text")?;
    let lab = LabPair::up(build_program()?, 2, RATE, "strict", 1)?;
    let mut is_good = true;
    for round in 0..options.rounds as u64 {
        let lines = one(&lab, bench, round);
        is_good &= lines.is_ok();
        match lines {
            Ok([sent, received]) if options.json => {
                println!(
                    "{}",
                    json!({"bench": "faults", "round": round, "sent": sent.trim(), "received": received})
                );
            }
            Ok([sent, received]) => {
                println!(
                    "round {round}: every byte as it was\n  sent: {}\n  received: {received}",
                    sent.trim()
                )
            }
            Err(error) => println!("round {round}: FAILED: {error:#}"),
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The rules of a host for an address of each rail, one rail filtered perhaps.
fn rules(own: &[String], filtered: Option<usize>) -> String {
    let [lost, damaged, doubled, moved] = SHARES;
    let filter = filtered.map_or_else(String::new, |rail| format!("iifname \"eth{rail}\" drop\n"));
    let double: String = (0..)
        .zip(own)
        .map(|(rail, own)| {
            let address = own.split(':').next().unwrap_or_default();
            format!("iifname \"eth{rail}\" numgen random mod 1000 < {doubled} dup to {address}\n")
        })
        .collect();
    format!(
        "table ip faults {{\n\
         chain before {{\n type filter hook prerouting priority 0\n {filter}{double} }}\n\
         chain in {{\n type filter hook input priority 0\n \
         numgen random mod 1000 < {lost} drop\n \
         udp length > 80 numgen random mod 1000 < {damaged} @th,560,8 set 0xee\n }}\n\
         chain out {{\n type filter hook output priority 0\n numgen random mod 1000 < {moved} ip dscp set 0x01\n }}\n}}\n"
    )
}

fn one(lab: &LabPair, bench: &str, seed: u64) -> Result<[String; 2]> {
    let own = [0, 1].map(|host| lab.ends(host, 2));
    let ends = own.clone().map(|ends| ends.split(',').map(str::to_owned).collect::<Vec<_>>());
    let set =
        |filtered| (0..2).try_for_each(|host| lab.filter(host, &rules(&ends[host], filtered)));
    set(None)?;
    let (seconds, seed_text) = (SECONDS.to_string(), seed.to_string());
    let mut receiver = lab
        .on(1, bench)
        .args(["receive", &own[1], &own[0], &seconds, &seed_text])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines =
        BufReader::new(receiver.stdout.take().context("a pipe from the receiver")?).lines();
    ensure!(lines.next().transpose()?.as_deref() == Some("ready"), "the receiver does not begin");
    let sender = lab
        .on(0, bench)
        .args(["send", &own[0], &own[1], &seconds, &seed_text])
        .stdout(Stdio::piped())
        .spawn()?;
    let begin = Instant::now();
    let mut drawn = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = move |below: u64| {
        // xorshift64*: Vigna 2016.
        drawn ^= drawn >> 12;
        drawn ^= drawn << 25;
        drawn ^= drawn >> 27;
        (drawn.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % below
    };
    while begin.elapsed() < Duration::from_secs(SECONDS) {
        thread::sleep(Duration::from_millis(200 + draw(1_500)));
        let turn = [
            FaultPeriod::Filtered(0),
            FaultPeriod::Filtered(1),
            FaultPeriod::Down,
            FaultPeriod::Stopped,
        ][draw(4) as usize];
        let length = Duration::from_millis(50 + draw(600));
        take(lab, turn, length, &receiver, &set)?;
    }
    let sent = output(sender)?;
    let received = lines.next().transpose()?.unwrap_or_default();
    ensure!(receiver.wait()?.success(), "the receiver says: {received}");
    let same = ["operations", "bytes"]
        .iter()
        .all(|name| value_of(&sent, name) == value_of(&received, name));
    ensure!(same, "sent: {}, received: {received}", sent.trim());
    Ok([sent, received])
}

/// Lets something go wrong for a while.
fn take(
    lab: &LabPair,
    turn: FaultPeriod,
    length: Duration,
    receiver: &Child,
    set: &dyn Fn(Option<usize>) -> Result<()>,
) -> Result<()> {
    let link = |state: &str| lab.on(0, "ip").args(["link", "set", SECOND, state]).status();
    // The receiver is what `timeout` started, in a group of its own.
    let signal = |name: &str| {
        Command::new("kill").args([name, "--", &format!("-{}", receiver.id())]).status()
    };
    match turn {
        FaultPeriod::Filtered(rail) => set(Some(rail))?,
        FaultPeriod::Down => drop(link("down")?),
        FaultPeriod::Stopped => drop(signal("-STOP")?),
    }
    thread::sleep(length);
    match turn {
        FaultPeriod::Filtered(_) => set(None)?,
        FaultPeriod::Down => drop(link("up")?),
        FaultPeriod::Stopped => drop(signal("-CONT")?),
    }
    Ok(())
}
