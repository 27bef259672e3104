//! The messages between a coordinator and its ranks, over pipes or a connection: one JSON value a
//! line.
//!
//! # Model
//! ```text
//!    coordinator        rank
//!    Bind        ->           take an address
//!                <-    Bound  where it is
//!    Open        ->           everybody's address is known, and which mechanism it is
//!                <-    Ready  the wire is open
//!    Time        ->           what does your clock say?
//!                <-    Time
//!    Moved       ->           a rank is another process, at another address
//!    Request     ->           as the mechanism's `Protocol` says
//!                <-    Response
//!    Leave       ->           the run is over
//! ```
//!
//! # Not here
//! What a mechanism's requests and responses are: its own `messages`; sending and receiving them:
//! `session`, `rank_process`.

use clearway_proto::base::{LocalNs, Rank};
use clearway_proto::wire::OperationSet;
use clearway_wires::{EndLocation, PortRequest, WireSetup};
use serde::{Deserialize, Serialize};

/// To a rank; `R` is what a mechanism's coordinator asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToRank<R> {
    /// First: take an address and make keys. Answer with [`FromRank::Bound`].
    Bind(PortRequest),
    /// Then: where the others are. Answer with [`FromRank::Ready`].
    Open(Setup),
    /// Answer with [`FromRank::Time`].
    Time,
    /// The process of a rank is another one, which is there.
    Moved { rank: Rank, location: EndLocation },
    /// Of the mechanism.
    Request(R),
    /// The run is over. A rank whose coordinator falls silent without it has lost its coordinator.
    Leave,
}

/// What a rank needs to open its wire and to know its part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    /// The name of the mechanism.
    pub(crate) mechanism: String,
    pub(crate) wire: WireSetup,
}

/// From a rank; `S` is what it says to its mechanism's coordinator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FromRank<S> {
    /// It has an address.
    Bound(EndLocation),
    /// The wire is open.
    Ready(Ready),
    /// What its clock says.
    Time(LocalNs),
    /// Of the mechanism.
    Response(S),
    /// It cannot go on; one sentence.
    Failed(String),
    /// Its process ended, and how; sent by the process that waited for it.
    Ended(String),
}

/// What an opened wire can do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// The longest body of one message.
    pub(crate) body_max: u32,
    /// Bytes that the wire and the network add to each message.
    pub(crate) overhead: u64,
    /// What it can be asked for.
    pub(crate) operations: OperationSet,
    /// What becomes of each class between hosts, in the order of classes, for a person.
    pub(crate) classes: Vec<String>,
}
