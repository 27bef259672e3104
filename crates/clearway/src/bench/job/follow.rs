//! A rank that is conducted: a process obeys the conductor's connection, this one waits for it and says how it ended.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clearway_runtime::launch::Job;

use super::{PATIENCE, door, exchange, secret_word};
use crate::bench::fleet::ending;
use crate::bench::message::FromRank;
use crate::bench::rank::SECRET_VARIABLE;
use crate::exit::Exit;

/// Where the ssh came from that started this process. Other ranks know nobody by an address of loopback.
fn ssh_came_from() -> Option<Ipv4Addr> {
    let words = std::env::var("SSH_CONNECTION").ok()?;
    words.split(' ').next()?.parse().ok().filter(|address: &Ipv4Addr| !address.is_loopback())
}

/// A rank of a job that another conducts.
pub(crate) struct Follower {
    job: Job,
    connection: TcpStream,
    job_secret: String,
}

impl Follower {
    /// Connects to the conductor of `job`.
    pub(super) fn new(mut job: Job) -> Result<Self> {
        let cards = exchange(&mut job, None)?;
        let with_door = cards.iter().find_map(|card| Some((card, card.door.as_ref()?)));
        let (conductor, entrance) = with_door.context("no rank of this job conducts it")?;
        let alone = cards.iter().all(|card| card.is_same_host(conductor));
        let mut addresses = conductor.reachable(alone);
        if !alone && let Some(address) = ssh_came_from() {
            addresses.insert(0, address);
        }
        let connection = door::knock(&addresses, entrance, job.rank(), PATIENCE)?;
        let job_secret = secret_word(&job).or_else(|| entrance.job_secret.clone());
        Ok(Self { job, connection, job_secret: job_secret.context("a job whose ranks share no secret")? })
    }

    /// Obeys until the conductor is done.
    pub(crate) fn follow(mut self) -> Result<Exit> {
        let program = std::env::current_exe().context("the path of this program")?;
        let both = || self.connection.try_clone().map(|it| Stdio::from(OwnedFd::from(it)));
        let [input, output] = [both(), both()].map(|end| end.context("a connection in both directions"));
        let mut rank = Command::new(program)
            .args(["rank", "--with-parent"])
            .env(SECRET_VARIABLE, &self.job_secret)
            .stdin(input?)
            .stdout(output?)
            .spawn()
            .context("this rank's process cannot start")?;
        let status = rank.wait().context("this rank's process cannot be waited for")?;
        if !status.success() {
            // In the middle of a line the conductor reads this as the end of that line: it hears that something is wrong.
            let sentence = FromRank::Ended(ending(status));
            let line = serde_json::to_string(&sentence).context("a sentence that JSON cannot hold")?;
            let _ = writeln!(&self.connection, "\n{line}");
            // A launcher ends a job as soon as one of its processes fails, the conductor with it, which shall say why first. It
            // ends the job itself; if it cannot, this wait has an end too.
            let _ = self.job.barrier();
            return Ok(Exit::Failed);
        }
        drop(self.connection);
        self.job.barrier()?;
        self.job.finish()?;
        Ok(Exit::Good)
    }
}
