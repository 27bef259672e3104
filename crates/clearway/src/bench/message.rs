//! What the conductor and its ranks say to each other over pipes: one JSON value a line.

use std::net::SocketAddrV4;

use clearway_proto::base::Rank;
use clearway_proto::congestion::{Phase, PhaseRecord};
use serde::{Deserialize, Serialize};

/// To a rank.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ToRank {
    /// First: who it is and where the others are.
    Open(Setup),
    /// Run this, then answer with [`FromRank::Record`].
    Phase(Phase),
}

/// What a rank needs to open its wire.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) rank: Rank,
    pub(super) session: u64,
    pub(super) seed: u64,
    /// By rank, its own included.
    pub(super) peers: Vec<SocketAddrV4>,
}

/// From a rank.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FromRank {
    /// The wire is open.
    Ready(Ready),
    /// The phase is over.
    Record(Box<RankRecord>),
    /// It cannot go on; one sentence.
    Failed(String),
}

/// What an opened wire can do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    /// The longest body of one message.
    pub(super) body_max: u32,
    /// Bytes that the wire and the network add to each message.
    pub(super) overhead: u64,
}

/// A phase as one rank saw it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RankRecord {
    pub(super) record: PhaseRecord,
    /// Messages that reached this rank's socket and were dropped there, since it opened.
    pub(super) receive_overflow: u64,
    /// Datagrams that were not of this job, since it opened.
    pub(super) strangers: u64,
}
