//! A rank that is conducted: a process obeys the conductor's connection, this one waits for it and says how it ended.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clearway_runtime::launch::Job;

use super::card::Card;
use super::{PATIENCE, door};
use crate::bench::fleet::ending;
use crate::bench::message::FromRank;
use crate::bench::rank::SECRET_VARIABLE;
use crate::exit::Exit;

/// A rank of a job that another conducts.
pub(crate) struct Follower {
    job: Job,
    connection: TcpStream,
    job_secret: String,
}

impl Follower {
    /// Connects to the conductor of `cards`.
    pub(super) fn new(job: Job, cards: Vec<Card>) -> Result<Self> {
        let conductor = cards.first().context("a job without ranks")?;
        let entrance = conductor.door.as_ref().context("rank 0 of this job runs another version of this program")?;
        let alone = cards.iter().all(|card| card.is_same_host(conductor));
        let connection = door::knock(&conductor.reachable(alone), entrance, job.rank(), PATIENCE)?;
        Ok(Self { job, connection, job_secret: entrance.job_secret.clone() })
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
