//! The rank processes of a run: started inside the lab's hosts, told what to do, heard, and missed when they die.
//!
//! # Invariants
//! I1. Every rank is reaped; dropping the fleet closes all pipes first, which ends the ranks.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddrV4;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_lab::Lab;
use clearway_proto::base::Rank;

use super::message::{FromRank, RankRecord, Ready, Setup, ToRank};

/// The port of every rank in its own host.
const PORT: u16 = 7_470;
/// How long ranks may take to start on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// One rank process.
struct Process {
    host: String,
    child: Child,
    orders: Option<ChildStdin>,
}

/// What the reader of one rank's output found.
type Heard = (Rank, Option<FromRank>);

/// All ranks.
pub(super) struct Fleet {
    processes: Vec<Process>,
    heard: Receiver<Heard>,
    facts: Ready,
}

impl Fleet {
    /// Starts a rank on every host of `lab` and waits until all wires are open.
    pub(super) fn start(lab: &Lab, session: u64, seed: u64, watch: &mut dyn FnMut() -> Result<()>) -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let peers: Vec<SocketAddrV4> = lab.hosts().iter().map(|host| SocketAddrV4::new(host.address, PORT)).collect();
        let (sender, heard) = channel();
        let mut fleet = Self { processes: Vec::new(), heard, facts: Ready { body_max: 0, overhead: 0 } };
        for host in lab.hosts() {
            let mut command = Command::new(&program);
            // A process group of its own: an interrupt at the terminal reaches the conductor, which then ends all in order.
            command.arg("rank").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
            let mut child =
                lab.spawn(host.rank, command).with_context(|| format!("a rank on host {} cannot start", host.name))?;
            let (orders, output) = (child.stdin.take(), child.stdout.take());
            listen(host.rank, output.context("a rank without output")?, sender.clone());
            fleet.processes.push(Process { host: host.name.clone(), child, orders });
            let setup = Setup { rank: host.rank, session, seed, peers: peers.clone() };
            fleet.tell(host.rank, &ToRank::Open(setup))?;
        }
        let answers = fleet.gather(START_PATIENCE, watch, |message| match message {
            FromRank::Ready(ready) => Some(ready),
            _ => None,
        })?;
        fleet.facts = answers.into_iter().next().context("a lab without hosts")?;
        Ok(fleet)
    }

    /// What the ranks' wires can do.
    pub(super) fn facts(&self) -> &Ready {
        &self.facts
    }

    /// Gives `rank` an order.
    pub(super) fn tell(&mut self, rank: Rank, order: &ToRank) -> Result<()> {
        let mut line = serde_json::to_vec(order).context("an order that JSON cannot hold")?;
        line.push(b'\n');
        let process = self.processes.get_mut(rank.index()).context("no such rank")?;
        let orders = process.orders.as_mut().context("the rank is being ended")?;
        if orders.write_all(&line).is_err() {
            return Err(self.death(rank));
        }
        Ok(())
    }

    /// Waits for every rank's record; `watch` is called about ten times a second and can end the wait.
    pub(super) fn records(
        &mut self,
        patience: Duration,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<RankRecord>> {
        self.gather(patience, watch, |message| match message {
            FromRank::Record(record) => Some(*record),
            _ => None,
        })
    }

    /// One answer of each rank, by rank.
    fn gather<T>(
        &mut self,
        patience: Duration,
        watch: &mut dyn FnMut() -> Result<()>,
        take: impl Fn(FromRank) -> Option<T>,
    ) -> Result<Vec<T>> {
        let deadline = Instant::now() + patience;
        let mut answers: Vec<Option<T>> = self.processes.iter().map(|_| None).collect();
        while answers.iter().any(Option::is_none) {
            watch()?;
            match self.heard.recv_timeout(Duration::from_millis(50)) {
                Ok((rank, Some(FromRank::Failed(sentence)))) => {
                    bail!("host {} cannot take part: {sentence}", self.processes[rank.index()].host);
                }
                Ok((rank, Some(message))) => answers[rank.index()] = take(message),
                Ok((rank, None)) => {
                    // The user's interrupt may have ended the rank first.
                    watch()?;
                    return Err(self.death(rank));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    let silent = answers.iter().position(Option::is_none).unwrap_or(0);
                    bail!(
                        "host {} has not answered for {patience:?}; the machine may be too busy",
                        self.processes[silent].host
                    );
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("all ranks are gone"),
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// How a rank that went silent ended, as an error.
    fn death(&mut self, rank: Rank) -> anyhow::Error {
        let process = &mut self.processes[rank.index()];
        process.orders = None;
        let how = process.child.wait().map_or_else(|error| error.to_string(), ending);
        anyhow!("rank {rank} on host {} {how} in the middle of the run; run again", process.host)
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with status {code}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Reads a rank's lines on a thread of their own until its output closes.
fn listen(rank: Rank, output: ChildStdout, sender: Sender<Heard>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let message = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            let over = message.is_none();
            if sender.send((rank, message)).is_err() || over {
                return;
            }
        }
        let _ = sender.send((rank, None));
    });
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for process in &mut self.processes {
            process.orders = None;
        }
        for process in &mut self.processes {
            // A rank that is stopped or stuck would not notice its closed pipe.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}
