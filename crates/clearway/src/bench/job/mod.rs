//! A run across the ranks of a job: who conducts, who follows, and how they find each other.
//!
//! # Model
//! A launcher starts the same command on every rank. All exchange a [`Card`] through the launcher; the one of rank 0 says where
//! its door is. Rank 0 conducts, and so that conducting takes nothing from measuring, its own rank is a process beside it, as in a
//! laboratory. Every other rank goes to the door and gives its connection to a process that obeys it; what is left of it waits
//! for that process and tells the conductor how it ended.
//!
//! Control goes over connections of its own, between phases only.
//!
//! # Invariants
//! I1. A follower ends when its connection does, and its process with it.
//! I2. Whoever goes in at the door knows a number that only the exchange told.

mod card;
mod door;
mod follow;

use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::{Context, Result};
use clearway_proto::base::BitsPerSec;
use clearway_runtime::launch::{self, Job, Options};

use super::fleet::Member;
use super::message::Network;
use super::rank::SECRET_VARIABLE;
use crate::exit::Exit;
use card::Card;
use door::Door;
pub(crate) use follow::Follower;

/// How long the launcher may take to bring all ranks together: seconds on a busy machine, and a batch system starts slowly.
const PATIENCE: Duration = Duration::from_secs(60);

/// What this process is in its job.
pub(crate) enum Role {
    /// Rank 0.
    Conductor(Box<Site>),
    /// Any other.
    Follower(Follower),
}

/// A job as its conductor sees it.
pub(crate) struct Site {
    job: Job,
    door: Door,
    cards: Vec<Card>,
    sealing: Sealing,
}

/// What the user wants of messages between machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sealing {
    /// Nobody else can read or forge them.
    Sealed,
    /// They travel as they are.
    Insecure,
}

/// Joins the job that a launcher started and finds out what this process is in it.
///
/// # Errors
/// One sentence: why ranks did not come together, and what was tried.
pub(crate) fn enter(sealing: Sealing) -> Result<Role> {
    let mut job = launch::join(&Options { patience: PATIENCE, ..Options::default() })?;
    let door = if job.rank().0 == 0 { Some(Door::open()?) } else { None };
    let own = serde_json::to_vec(&Card::own(door.as_ref())?).context("a card that JSON cannot hold")?;
    let cards = job.exchange(&own)?;
    let cards: Vec<Card> = cards
        .iter()
        .map(|card| serde_json::from_slice(card).context("a rank of another version of this program takes part"))
        .collect::<Result<_>>()?;
    Ok(match door {
        Some(door) => Role::Conductor(Box::new(Site { job, door, cards, sealing })),
        None => Role::Follower(Follower::new(job, cards)?),
    })
}

impl Site {
    /// How many ranks there are.
    pub(crate) fn size(&self) -> u32 {
        self.cards.len() as u32
    }

    /// The rate of the slowest host link of the job, shared by the ranks of its host, where the machines tell it.
    pub(crate) fn rate(&self) -> Option<BitsPerSec> {
        let sharing = |card: &Card| self.cards.iter().filter(|other| other.is_same_host(card)).count() as u64;
        let rates = self.cards.iter().map(|card| card.rate().map(|rate| BitsPerSec(rate.0 / sharing(card))));
        rates.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// How the ranks found each other.
    pub(super) fn launcher(&self) -> String {
        self.job.method().to_string()
    }

    /// Why the ranks did not find each other in another way, a line each.
    pub(crate) fn notes(&self) -> &[String] {
        self.job.notes()
    }

    /// What kind of network lies between the ranks.
    pub(super) fn network(&self) -> Network {
        let first = self.cards.first();
        let together = |card: &Card| first.is_some_and(|first| first.is_same_machine(card));
        match (self.cards.iter().all(together), self.sealing) {
            (true, _) => Network::Machine,
            (false, Sealing::Sealed) => Network::Sealed,
            (false, Sealing::Insecure) => Network::Insecure,
        }
    }

    /// The members of the fleet, this process's own rank first. `watch` is called about ten times a second and can end the wait.
    pub(super) fn members(&self, watch: &mut dyn FnMut() -> Result<()>) -> Result<Vec<Member>> {
        let visitors = self.door.receive(&self.cards, PATIENCE, watch)?;
        let own = visitors.first().map_or(std::net::Ipv4Addr::LOCALHOST, |visitor| visitor.reached);
        let mut command = Member::command()?;
        let child = command
            .env(SECRET_VARIABLE, self.door.job_secret())
            .spawn()
            .context("this process's own rank cannot start")?;
        let name = |rank: usize| self.cards.get(rank).map_or_else(String::new, |card| card.host.clone());
        let mut members = vec![Member::child(name(0), SocketAddrV4::new(own, 0), child)];
        for visitor in visitors {
            let address = SocketAddrV4::new(visitor.from, 0);
            members.push(Member::remote(name(visitor.rank.index()), address, visitor.connection));
        }
        Ok(members)
    }

    /// Leaves the job in order, together with all followers.
    pub(crate) fn leave(mut self) -> Result<()> {
        self.job.barrier()?;
        Ok(self.job.finish()?)
    }

    /// Ends the job for all its ranks, because of `error`.
    pub(crate) fn abort(self, code: Exit, error: &anyhow::Error) -> ! {
        self.job.abort(code as i32, &format!("clearway: {error:#}"))
    }
}
