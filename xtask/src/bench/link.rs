//! Two network namespaces joined by a veth pair, and programs run at its ends.
//!
//! # Invariants
//! I1. The second namespace lives as long as this value: its keeper reads a pipe that closes with
//!     it.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The address of this namespace's end.
pub(super) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// The address of the other namespace's end.
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

/// Longest run of any program in s; one that hangs is ended by `timeout`.
const DEADLINE_S: &str = "30";

/// The link; made inside a fresh namespace.
pub(super) struct Link {
    keeper: Child,
    pipe: Option<ChildStdin>,
    /// The cores that the near and the far end run on.
    pub(super) cores: [u32; 2],
}

impl Link {
    /// Makes the second namespace and the link to it.
    pub(super) fn make() -> Result<Self> {
        Self::kept_by(&["-n", "--", "cat"])
    }

    /// Makes the same link to a far end that programs take for another host: it has its own name, and
    /// its `/sys` lists its own interfaces. Needs root.
    pub(super) fn to_host(name: &str) -> Result<Self> {
        let script = "mount -t sysfs sysfs /sys && hostname \"$0\" && exec cat";
        Self::kept_by(&["-num", "--", "sh", "-c", script, name])
    }

    fn kept_by(keeper: &[&str]) -> Result<Self> {
        let mut keeper = Command::new("unshare")
            .args(keeper)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare")?;
        let mut pipe = keeper.stdin.take();
        // The echo comes when the keeper is in its namespace.
        pipe.as_mut().context("a pipe to the keeper")?.write_all(b"?\n").context("the keeper")?;
        let mut echo = String::new();
        BufReader::new(keeper.stdout.take().context("a pipe from the keeper")?)
            .read_line(&mut echo)?;
        let link = Self { keeper, pipe, cores: cores()? };
        link.connect()?;
        Ok(link)
    }

    /// Returns the process that keeps the far end's namespaces.
    pub(super) fn keeper(&self) -> u32 {
        self.keeper.id()
    }

    fn connect(&self) -> Result<()> {
        let keeper = self.keeper.id().to_string();
        ip("ip link set lo up")?;
        ip(&format!("ip link add near type veth peer name far netns {keeper}"))?;
        ip(&format!("ip addr add {NEAR}/24 dev near"))?;
        ip("ip link set near up")?;
        let there = format!("nsenter -t {keeper} -n ");
        ip(&format!("{there}ip link set lo up"))?;
        ip(&format!("{there}ip addr add {FAR}/24 dev far"))?;
        ip(&format!("{there}ip link set far up"))
    }

    /// A command on the near end's core.
    pub(super) fn near(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args([DEADLINE_S, "taskset", "-c", &self.cores[0].to_string()]);
        command
    }

    /// A command in the other namespace on the far end's core.
    pub(super) fn far(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args([DEADLINE_S, "nsenter", "-t", &self.keeper.id().to_string(), "-n"]);
        command.args(["taskset", "-c", &self.cores[1].to_string()]);
        command
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // Without its pipe the keeper ends by itself; waiting leaves no zombie.
        let _ = self.keeper.wait();
    }
}

/// Runs one line of plain words.
fn ip(line: &str) -> Result<()> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output().with_context(|| line.to_string())?;
    ensure!(
        output.status.success(),
        "`{line}` failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// The first two cores that this process may use.
pub(super) fn cores() -> Result<[u32; 2]> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let list =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let mut cores = allowed(list.trim()).into_iter();
    let first = cores.next().context("a core to run on")?;
    let second = cores.next().context("this bench needs two cores, one for each end")?;
    Ok([first, second])
}

/// The cores of a list such as `0-2,5`.
fn allowed(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed__reads_ranges_and_single_cores() {
        assert_eq!(allowed("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(allowed("3"), [3]);
        assert!(allowed("").is_empty());
    }
}
