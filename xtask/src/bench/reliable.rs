//! `cargo xtask bench reliable`: reliable messages over UDP beside the kernel's TCP, on one path of a virtual cluster, with and without loss.
//!
//! # Model
//! Two hosts of a lab with links of 200 Mb/s. Each round carries the same bytes once by each contestant, forwards and then backwards.
//! Loss is made where packets come in, at both ends, by a rule of the kernel's packet filter that drops a share at random; so answers are lost
//! as well. TCP runs with the congestion control that the kernel uses by itself, and with CUBIC. What counts is the time from the first
//! byte sent to the last one known to be there.
//!
//! # Not here
//! The ends: `crates/clearway-runtime/examples/reliable_bench.rs`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Asked, build, build_program, load, spread};

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
const CONTESTANTS: [(&str, &str, &str); 4] = [
    (OURS, "send", "receive"),
    ("reliable, unchecked", "send-unchecked", "receive-unchecked"),
    ("tcp", "tcp-send", "tcp-receive"),
    ("tcp cubic", "tcp-send-cubic", "tcp-receive"),
];
/// Longest run of any program in s; one that hangs is ended by `timeout`.
const DEADLINE_S: &str = "60";
/// The ports of sender and receiver.
const PORTS: [u16; 2] = [7_000, 7_001];

/// Seconds, and processor seconds of both ends, by loss and contestant: a value for each round.
type Figures = BTreeMap<(u32, &'static str), Vec<[f64; 2]>>;

/// A lab that ends with this value.
struct Lab {
    program: PathBuf,
    name: String,
    addresses: [String; 2],
}

impl Lab {
    fn up(program: PathBuf) -> Result<Self> {
        let name = format!("bench-{}", std::process::id());
        let mut lab = Self { program, name, addresses: Default::default() };
        let up =
            ["lab", "up", "--name", &lab.name, "--hosts", "2", "--rate", RATE, "--queue", "fifo", "--skip-self-test"];
        let output = Command::new(&lab.program).args(up).output().context("clearway lab up")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        for host in 0..2 {
            let output = lab.on(host, "ip").args(["-4", "-o", "addr", "show", "scope", "global"]).output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let address = text.split_ascii_whitespace().nth(3).and_then(|net| net.split('/').next());
            lab.addresses[host] = address.context("a host without an address")?.to_owned();
        }
        Ok(lab)
    }

    /// `program` on a host.
    fn on(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.arg(DEADLINE_S).arg(&self.program).args([
            "lab",
            "exec",
            "--name",
            &self.name,
            &format!("h{host}"),
            "--",
        ]);
        command.arg(program);
        command
    }

    /// Lets both hosts lose so many thousandths of what comes in.
    fn lose(&self, thousandths: u32) -> Result<()> {
        let rule = match thousandths {
            0 => String::new(),
            _ => format!(
                "table ip lossy {{\n chain in {{\n type filter hook input priority 0\n numgen random mod 1000 < {thousandths} drop\n }}\n}}\n"
            ),
        };
        for host in 0..2 {
            let mut child = self.on(host, "nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().context("nft")?;
            let mut input = child.stdin.take().context("a pipe to nft")?;
            input.write_all(format!("flush ruleset\n{rule}").as_bytes())?;
            drop(input);
            ensure!(child.wait()?.success(), "nft refuses the rule");
        }
        Ok(())
    }

    /// One transfer; seconds and processor seconds.
    fn carry(&self, bench: &str, send: &str, receive: &str) -> Result<[f64; 2]> {
        let mib = MIB.to_string();
        let [near, far] = [0, 1].map(|host| format!("{}:{}", self.addresses[host], PORTS[host]));
        let mut receiver = self.on(1, bench).args([receive, &far, &near, &mib]).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(receiver.stdout.take().context("a pipe from the receiver")?).lines();
        ensure!(lines.next().transpose()?.as_deref() == Some("ready"), "the receiver does not begin");
        let sent = self.on(0, bench).args([send, &near, &far, &mib]).output()?;
        let received = lines.next().transpose()?.unwrap_or_default();
        receiver.wait()?;
        ensure!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr).trim());
        let sent = String::from_utf8_lossy(&sent.stdout).into_owned();
        let seconds = value_of(&sent, "seconds").context("no time was told")?;
        let processor = value_of(&sent, "processor").zip(value_of(&received, "processor"));
        Ok([seconds, processor.map_or(f64::NAN, |(near, far)| near + far)])
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A lab that does not go down is ended with its keeper.
        let _ = Command::new(&self.program).args(["lab", "down", "--name", &self.name]).output();
    }
}

/// The number behind `name` in a line of names and values.
fn value_of(line: &str, name: &str) -> Option<f64> {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

/// Runs the bench.
pub(super) fn run(asked: &Asked) -> Result<ExitCode> {
    for program in ["nft", "ip", "timeout"] {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("skipped: bench reliable needs the program `{program}`");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let bench = build("clearway-runtime", "reliable_bench")?;
    let bench = bench.to_str().context("a path that is no text")?;
    let lab = Lab::up(build_program()?)?;
    let loaded = load();
    let mut figures = Figures::new();
    for loss in LOSSES {
        lab.lose(loss)?;
        for round in 0..asked.rounds {
            let mut contestants = CONTESTANTS;
            if round % 2 == 1 {
                contestants.reverse();
            }
            for (name, send, receive) in contestants {
                match lab.carry(bench, send, receive) {
                    Ok(seen) => figures.entry((loss, name)).or_default().push(seen),
                    Err(error) => eprintln!("skipped: {name} in round {round}: {error:#}"),
                }
            }
        }
    }
    if asked.json {
        println!("{}", record(asked, loaded, &figures));
    } else {
        print!("{}", text(asked, loaded, &figures));
    }
    Ok(ExitCode::SUCCESS)
}

fn column(values: &[[f64; 2]], which: usize) -> Vec<f64> {
    values.iter().map(|value| value[which]).collect()
}

/// The goodput of ours as a part of a contestant's.
fn ratio(figures: &Figures, loss: u32, name: &'static str) -> Option<f64> {
    let median = |name| Some(spread(&column(figures.get(&(loss, name))?, 0))?.0);
    Some(median(name)? / median(OURS)?)
}

fn text(asked: &Asked, loaded: f64, figures: &Figures) -> String {
    let bits = f64::from(MIB) * 8.0 * f64::from(1 << 20);
    let mut text = format!(
        "{MIB} MiB over one path of {RATE}, {} rounds, load {loaded} before and {} after\n\
         median (least to greatest); processor: seconds of both ends\n\n",
        asked.rounds,
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

fn record(asked: &Asked, loaded: f64, figures: &Figures) -> Value {
    let figure = |((loss, name), values): (&(u32, &'static str), &Vec<[f64; 2]>)| {
        json!({"lost_thousandths": loss, "contestant": name, "seconds": column(values, 0), "processor_seconds": column(values, 1),
               "ours_part": ratio(figures, *loss, name)})
    };
    let all: Vec<Value> = figures.iter().map(figure).collect();
    json!({"bench": "reliable", "mib": MIB, "rate": RATE, "rounds": asked.rounds, "load": [loaded, load()], "figures": all})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of__is_the_number_behind_its_name() {
        let line = "seconds 0.5 processor 0.25 datagrams 3";
        assert_eq!(["seconds", "datagrams", "bytes"].map(|name| value_of(line, name)), [Some(0.5), Some(3.0), None]);
    }

    #[test]
    fn ratio__is_of_goodputs() {
        let figures = Figures::from([((10, OURS), vec![[2.0, 0.0]]), ((10, "tcp"), vec![[3.0, 0.0]])]);
        assert_eq!((ratio(&figures, 10, "tcp"), ratio(&figures, 0, "tcp")), (Some(1.5), None));
    }
}
