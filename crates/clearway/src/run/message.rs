//! What the conductor and its ranks say to each other, over pipes or a connection: one JSON value a line.
//!
//! # Model
//! ```text
//!    conductor          rank
//!    Bind        ->           take an address
//!                <-    Bound  where it is
//!    Open        ->           everybody's address is known
//!                <-    Ready  the wire is open
//!    Time        ->           what does your clock say?
//!                <-    Time
//!    Phase, Test ->           run this
//!                <-    Record what was seen
//!    Timeslice   ->    <-     as `timeslice::words` says
//!    Broadcast   ->    <-     as `broadcast::words` says
//!    Leave       ->           the run is over
//! ```

use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::congestion::{Phase, PhaseRecord};
use clearway_proto::gpcnet;
use clearway_proto::wire::OperationSet;
use clearway_runtime::noise::Wait;
use serde::{Deserialize, Serialize};

use super::engine::Measure;
use crate::mechanism::{broadcast, timeslice};
use clearway_wires::{EndLocation, PortRequest, WireSetup};

/// To a rank.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToRank {
    /// First: take an address and make keys. Answer with [`FromRank::Bound`].
    Bind(PortRequest),
    /// Then: where the others are. Answer with [`FromRank::Ready`].
    Open(Setup),
    /// Answer with [`FromRank::Time`].
    Time,
    /// Run this, then answer with [`FromRank::Record`].
    Phase(Phase),
    /// The same, of GPCNeT's own tests.
    Test(Box<gpcnet::Task>),
    /// The same, of timeslice building, which has a conversation of its own.
    Timeslice(timeslice::Asked),
    /// The same, of broadcasts.
    Broadcast(broadcast::Asked),
    /// The run is over. A rank whose conductor falls silent without it has lost its conductor.
    Leave,
}

/// What a rank needs to open its wire.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) measure: Measure,
    pub(crate) wire: WireSetup,
}

/// From a rank.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FromRank {
    /// It has an address.
    Bound(EndLocation),
    /// The wire is open.
    Ready(Ready),
    /// What its clock says.
    Time(LocalNs),
    /// The phase is over.
    Record(Box<RankRecord>),
    /// How timeslices are getting on.
    Timeslice(timeslice::Said),
    /// How broadcasts are.
    Broadcast(broadcast::Said),
    /// It cannot go on; one sentence.
    Failed(String),
    /// Its process ended, and how; said by who waited for it.
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

/// What one rank saw.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RankRecord {
    pub(crate) seen: Seen,
    /// Messages that reached this rank's socket and were dropped there, since it opened.
    pub(crate) receive_overflow: u64,
    /// Datagrams that were not of this job, since it opened.
    pub(crate) strangers: u64,
    /// How long it waited for a processor since the record before, by its own clock.
    pub(crate) waits: Vec<Waited>,
}

/// How long a rank was ready to run and had no processor, in one stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waited {
    /// When the stretch ended.
    pub(crate) at: LocalNs,
    /// How long it was.
    pub(crate) length: Nanos,
    /// What part of it the rank waited.
    pub(crate) waited: Nanos,
}

impl From<Wait> for Waited {
    fn from(Wait { at, length, waited }: Wait) -> Self {
        Self { at, length, waited }
    }
}

impl Waited {
    /// The share of the stretch, in hundredths. A wait is told when it is over, so what began before the stretch may be in it.
    pub(crate) fn percent(self) -> f64 {
        (self.waited.0 as f64 * 100.0 / (self.length.0 as f64).max(1.0)).min(100.0)
    }
}

/// A phase or a test, as one rank saw it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Seen {
    /// Of the congestion test.
    Phase(PhaseRecord),
    /// Of GPCNeT's own.
    Test(gpcnet::Record),
}
