//! What the coordinator and the ranks of broadcasts say to each other.
//!
//! # Model
//! ```text
//!    coordinator            rank
//!    Take          ->             be a member of this cast
//!                  <-     Taken   there is a node
//!                  <-     Ready   (root) every member was heard
//!    Begin         ->             (root) cast short objects by yourself
//!    Cast          ->             (root) cast the next long one
//!                  <-     Has     this long object is with everybody, and here it is what it should be
//!                  <-     Switched, Lost, Out, Helpless
//!    Dead          ->             this rank's process has ended
//!    Die           ->             kill yourself: somebody wants to see what becomes of the cast
//!    Stop          ->             do not run for so long
//!    Filter        ->             (root) what goes to the group reaches nobody from now on
//!                  <-     Done    all objects were cast and are with everybody, or the cast was aborted
//! ```

use clearway_proto::base::{BitsPerSec, Bytes, LocalNs, Nanos};
use clearway_proto::broadcast::{Algorithm, BroadcastRecord};
use clearway_wires::WireNeeds;
use serde::{Deserialize, Serialize};

use super::fault_injection::ArrivalFaults;
use crate::run::session::Protocol;

/// The conversation of broadcasts.
pub(crate) enum BroadcastProtocol {}

impl Protocol for BroadcastProtocol {
    const MECHANISM: &'static str = "broadcast";
    const NEED: WireNeeds = WireNeeds::Datagrams;
    type Request = BroadcastRequest;
    type Response = BroadcastResponse;
}

/// To a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BroadcastRequest {
    Take(Box<BroadcastAssignment>),
    Begin,
    Cast,
    Dead(u32),
    Die,
    Stop(Nanos),
    Filter,
}

/// From a rank.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BroadcastResponse {
    Taken,
    Ready,
    /// The object of this number.
    Has(u32),
    Switched(Algorithm, LocalNs),
    Lost(u32),
    Out,
    Helpless,
    Done(Box<BroadcastResult>),
    /// It cannot go on; one sentence.
    Failed(String),
}

/// What is cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CastTiming {
    /// Objects one by one, each when the coordinator says so.
    Ordered,
    /// Short ones, so far apart.
    Apart(Nanos),
    /// This many at once, and the next when all of them are with everybody.
    Batches(u32),
    /// No cast at all: a datagram to all and an answer of each.
    Bare,
}

/// One cast, as every rank learns of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BroadcastAssignment {
    /// Members tell casts apart by it.
    pub(super) key: u32,
    pub(super) ranks: u32,
    /// Ranks at each leaf of the network, in their order.
    pub(super) per_leaf: u32,
    /// This many ranks cast at the same time, each to a team of all; none: rank 0 casts, and there
    /// are no teams.
    pub(super) roots: u32,
    /// How symbols leave at first; multicast only where the wire has it.
    pub(super) way: Algorithm,
    pub(super) rhythm: CastTiming,
    /// Bytes of an object.
    pub(super) length: Bytes,
    pub(super) objects: u32,
    /// The most that leaves a rank.
    pub(super) rate: Option<BitsPerSec>,
    pub(super) silence: Nanos,
    pub(super) seed: u64,
    #[serde(rename = "rough")]
    pub(super) faults: ArrivalFaults,
    /// The long object that receivers note the way of.
    #[serde(rename = "filmed")]
    pub(super) sampled_object: u32,
}

/// What a rank has seen of a cast.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BroadcastResult {
    /// Of each object: when it was cast (root) or here (receiver), and when it was known to be with
    /// everybody.
    pub(super) times: Vec<[LocalNs; 2]>,
    /// Root: processor time of each long object, or of all short ones together.
    pub(super) processor: Vec<Nanos>,
    /// This many objects are with everybody.
    pub(super) stable: u32,
    /// What was wrong with objects, a sentence each.
    pub(super) faults: Vec<String>,
    /// The first object that is not with everybody.
    pub(super) aborted: Option<u32>,
    pub(super) record: BroadcastRecord,
    /// What went through this host's interfaces meanwhile, of everybody: received and sent.
    pub(super) traffic: Option<[Bytes; 2]>,
    /// Receiver: the longest time between two steps that brought something new of one object.
    pub(super) stall: Nanos,
    /// Messages that this host dropped before anybody read them: those of the share that is to be
    /// lost, and those without room.
    pub(super) lost: u64,
    /// By rank: datagrams with a body that came from it.
    pub(super) sources: Vec<u64>,
    /// Of each team its own channel.
    pub(super) channels: Vec<Option<u8>>,
    /// Receiver: symbols of one object that were here, from time to time.
    #[serde(rename = "film")]
    pub(super) samples: Vec<ProgressSample>,
}

/// How much was here at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgressSample {
    pub(super) at: LocalNs,
    pub(super) symbols: u64,
}
