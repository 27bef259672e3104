//! The conversation of one mechanism: its coordinator sends requests to rank processes and takes
//! their responses.
//!
//! # Invariants
//! I1. A rank that ends is reported once, by name; whether the run goes on without it is for the
//!     coordinator to decide.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clearway_proto::base::Rank;
use clearway_wires::WireNeeds;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::{FromRank, ToRank};
use super::processes::{RankEvent, RankProcesses};

/// How often a wait for responses looks for the user's interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a rank that says something else is.
const RESPONSE: &str = "a rank answered something else; this is a defect of the program";

/// What the coordinator and the ranks of one mechanism say to each other.
pub(crate) trait Protocol {
    /// The mechanism's name, by which a rank process finds its part.
    const MECHANISM: &'static str;
    /// What its engine needs of the wire.
    const NEED: WireNeeds;
    /// To a rank.
    type Request: Serialize + DeserializeOwned;
    /// From a rank.
    type Response: Serialize + DeserializeOwned;
}

/// What a coordinator has of its ranks.
pub(crate) struct Session<'a, P> {
    processes: &'a mut RankProcesses,
    protocol: PhantomData<P>,
}

impl<'a, P: Protocol> Session<'a, P> {
    /// Creates the conversation of `P` with `processes`, which were started for it.
    pub(super) fn new(processes: &'a mut RankProcesses) -> Self {
        Self { processes, protocol: PhantomData }
    }

    /// Sends `request` to `rank`.
    ///
    /// # Errors
    /// The rank is gone; the sentence says how it ended.
    pub(crate) fn request(&mut self, rank: Rank, request: P::Request) -> Result<()> {
        self.processes.send(rank, &ToRank::Request(request))
    }

    /// Sends `request` to `rank`, if it is there: [`Session::poll`] tells of its end.
    ///
    /// # Errors
    /// The request cannot be written as JSON.
    pub(crate) fn try_request(&mut self, rank: Rank, request: P::Request) -> Result<()> {
        self.processes.try_send(rank, &ToRank::Request(request))
    }

    /// Returns the next response, if one comes within `timeout`; or how a rank ended, once.
    ///
    /// # Errors
    /// The user interrupted, or a rank refuses to go on.
    pub(crate) fn poll(&mut self, timeout: Duration) -> Result<RankEvent<P::Response>> {
        match self.processes.poll_or_end(timeout)? {
            Some((rank, Ok(FromRank::Response(response)))) => Ok(Some((rank, Ok(response)))),
            Some((_, Ok(_))) => bail!("{RESPONSE}"),
            Some((rank, Err(how))) => Ok(Some((rank, Err(how)))),
            None => Ok(None),
        }
    }

    /// Returns one response of each of `ranks` that `take` keeps, in that order. `watch` is called
    /// some twenty times a second and can end the wait.
    ///
    /// # Errors
    /// A rank is gone or is silent for longer than `timeout`; what `watch` says.
    pub(crate) fn responses<T>(
        &mut self,
        ranks: &[Rank],
        timeout: Duration,
        watch: &mut dyn FnMut() -> Result<()>,
        mut take: impl FnMut(Rank, P::Response) -> Result<Option<T>>,
    ) -> Result<Vec<T>> {
        let deadline = Instant::now() + timeout;
        let mut taken: BTreeMap<Rank, T> = BTreeMap::new();
        while let Some(silent) = ranks.iter().find(|rank| !taken.contains_key(rank)) {
            watch()?;
            match self.processes.poll(LOOK_EVERY)? {
                Some((rank, FromRank::Response(response))) => {
                    taken.extend(take(rank, response)?.map(|it| (rank, it)));
                }
                Some(_) => bail!("{RESPONSE}"),
                None if Instant::now() > deadline => {
                    return Err(self.processes.silent(*silent, timeout));
                }
                None => {}
            }
        }
        Ok(ranks.iter().filter_map(|rank| taken.remove(rank)).collect())
    }
}
