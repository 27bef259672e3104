//! Two hosts of a lab for benches of transfers: programs on them, faults made by the kernel's
//! packet filter, one transfer timed.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::afterwards::Afterwards;

/// Longest run of any program in s; one that hangs is ended by `timeout`.
const DEADLINE_S: &str = "120";
/// The ports of sender and receiver.
const PORTS: [u16; 2] = [7_000, 7_001];

/// Returns whether a program is missing that a bench of this kind needs; says which.
pub(super) fn lacks_programs(bench: &str) -> bool {
    let is_missing = |program: &&str| Command::new(program).arg("--version").output().is_err();
    let missing = ["nft", "ip", "timeout"].into_iter().find(is_missing);
    missing
        .inspect(|program| eprintln!("skipped: bench {bench} needs the program `{program}`"))
        .is_some()
}

/// A lab that ends with this value.
pub(super) struct LabPair {
    program: PathBuf,
    name: String,
    /// By host and rail.
    addresses: [Vec<String>; 2],
    _down: Afterwards,
}

/// What one end said of a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferSummary {
    /// From the first byte sent to the last one known to be there.
    pub(super) seconds: f64,
    /// Of both ends.
    pub(super) processor: f64,
    /// The longest time between two writes that landed, in s.
    pub(super) gap: f64,
}

impl LabPair {
    /// Creates two hosts with this many rails of `rate`, queues of `queue`, and packets of up to
    /// this many `frames`.
    pub(super) fn up(
        program: PathBuf,
        rails: usize,
        rate: &str,
        queue: &str,
        frames: u32,
    ) -> Result<Self> {
        let name = format!("bench-{frames}-{}", std::process::id());
        // A lab that does not go down is ended with its keeper.
        let down = Afterwards::run(&program, &["lab", "down", "--name", &name])?;
        let mut lab = Self { program, name, addresses: Default::default(), _down: down };
        let (rails, frames) = (rails.to_string(), frames.to_string());
        let up =
            ["lab", "up", "--name", &lab.name, "--hosts", "2", "--rails", &rails, "--rate", rate];
        let up = up.into_iter().chain(["--queue", queue, "--offload", &frames, "--skip-self-test"]);
        let output = Command::new(&lab.program).args(up).output().context("clearway lab up")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        for host in 0..2 {
            let output = lab
                .on(host, "ip")
                .args(["-4", "-o", "addr", "show", "scope", "global"])
                .output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let of_line = |line: &str| {
                Some(line.split_ascii_whitespace().nth(3)?.split('/').next()?.to_owned())
            };
            lab.addresses[host] = text.lines().filter_map(of_line).collect();
            ensure!(!lab.addresses[host].is_empty(), "a host without an address");
        }
        Ok(lab)
    }

    /// `program` on a host.
    pub(super) fn on(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("timeout");
        let name = format!("h{host}");
        command.arg(DEADLINE_S).arg(&self.program).args([
            "lab",
            "exec",
            "--share-mounts",
            "--name",
            &self.name,
            &name,
            "--",
            program,
        ]);
        command
    }

    /// Gives a host these rules of `nft`, and no others.
    pub(super) fn filter(&self, host: usize, rules: &str) -> Result<()> {
        let mut child =
            self.on(host, "nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().context("nft")?;
        let mut input = child.stdin.take().context("a pipe to nft")?;
        input.write_all(format!("flush ruleset\n{rules}").as_bytes())?;
        drop(input);
        ensure!(child.wait()?.success(), "nft refuses the rule");
        Ok(())
    }

    /// Lets both hosts lose this many thousandths of what comes in.
    pub(super) fn lose(&self, thousandths: u32) -> Result<()> {
        let drops = format!("numgen random mod 1000 < {thousandths} drop");
        let rule = if thousandths == 0 { String::new() } else { incoming(&drops) };
        (0..2).try_for_each(|host| self.filter(host, &rule))
    }

    /// The addresses of a host's ends on the first `rails` rails, as the programs take them.
    pub(super) fn ends(&self, host: usize, rails: usize) -> String {
        let ends = self.addresses[host]
            .iter()
            .take(rails)
            .map(|address| format!("{address}:{}", PORTS[host]));
        ends.collect::<Vec<_>>().join(",")
    }

    /// The address of a host's end on the first rail at `port`.
    pub(super) fn end(&self, host: usize, port: u16) -> String {
        format!("{}:{port}", self.addresses[host][0])
    }

    /// Runs one transfer over this many rails of host 0 to host 1; `meanwhile` is called when it
    /// has begun.
    pub(super) fn carry(
        &self,
        roles: [&str; 3],
        rails: usize,
        mib: u32,
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<TransferSummary> {
        self.transfer(roles, [0, 1], [0, 1].map(|host| self.ends(host, rails)), mib, meanwhile)
    }

    /// One transfer within host 0.
    pub(super) fn carry_within(&self, roles: [&str; 3], mib: u32) -> Result<TransferSummary> {
        self.transfer(roles, [0, 0], PORTS.map(|port| format!("127.0.0.1:{port}")), mib, || Ok(()))
    }

    fn transfer(
        &self,
        [bench, send, receive]: [&str; 3],
        hosts: [usize; 2],
        [near, far]: [String; 2],
        mib: u32,
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<TransferSummary> {
        let mib = mib.to_string();
        let mut receiver = self
            .on(hosts[1], bench)
            .args([receive, &far, &near, &mib])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines =
            BufReader::new(receiver.stdout.take().context("a pipe from the receiver")?).lines();
        ensure!(
            lines.next().transpose()?.as_deref() == Some("ready"),
            "the receiver does not begin"
        );
        let sender = self
            .on(hosts[0], bench)
            .args([send, &near, &far, &mib])
            .stdout(Stdio::piped())
            .spawn()?;
        let acted = meanwhile();
        let sent = output(sender)?;
        let received = lines.next().transpose()?.unwrap_or_default();
        receiver.wait()?;
        acted?;
        let seconds = value_of(&sent, "seconds").context("no time was reported")?;
        let processor = value_of(&sent, "processor").zip(value_of(&received, "processor"));
        let processor = processor.map_or(f64::NAN, |(near, far)| near + far);
        Ok(TransferSummary {
            seconds,
            processor,
            gap: value_of(&received, "gap").unwrap_or(f64::NAN),
        })
    }
}

/// A table of `nft` with this rule for what comes in.
pub(super) fn incoming(rule: &str) -> String {
    format!(
        "table ip faults {{\n chain in {{\n type filter hook input priority 0\n {rule}\n }}\n}}\n"
    )
}

/// What a program said that ended well.
pub(super) fn output(child: Child) -> Result<String> {
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "a program failed: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The number behind `name` in a line of names and values.
pub(super) fn value_of(line: &str, name: &str) -> Option<f64> {
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of__is_the_number_behind_its_name() {
        let line = "seconds 0.5 processor 0.25 datagrams 3";
        assert_eq!(
            ["seconds", "datagrams", "bytes"].map(|name| value_of(line, name)),
            [Some(0.5), Some(3.0), None]
        );
    }
}
