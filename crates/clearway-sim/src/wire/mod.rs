//! The simulated wire: every operation of the contract, carried by a fabric that knows lengths and
//! not bytes.
//!
//! # Model
//! ```text
//!    SimWire (one rank's end) --post--> outbox --launch--> Network --order--> carrier
//!        ^-------------- ready <------ deliver, answer, repeat --------- notice --'
//! ```
//! A [`Network`] owns the carrier (the fabric, or a stand-in in tests) and all ends. Contents
//! travel apart from the carrier's orders: a message is described once, when it is posted, and its
//! bytes come into the other memory when the carrier says that it was delivered. Requests to read
//! and to change words are answered by the other end's interface, without its processor.
//!
//! # Not here
//! Time's passing for nodes (`world`); what an engine does.

mod capabilities;
mod carrier;
mod digest;
mod end;
mod end_fault;
#[cfg(test)]
mod fabric_tests;
mod flight;
mod network;
#[cfg(test)]
pub(crate) mod test_carrier;
#[cfg(test)]
mod tests;

pub use crate::memory::{ByteOrigin, Extent};
pub use end::SimWire;
pub use end_fault::Completion;
pub use network::Network;

pub(crate) use end_fault::EndFault;

use clearway_proto::base::{Class, GroupId, RandomKey};
use clearway_proto::wire::{Capabilities, OperationKind};

use crate::clock::Clock;
use crate::disk::{Disk, DiskSpec};
use crate::fabric::{Notice, SendRequest};
use crate::graph::DeviceId;
use crate::processor::Processor;
use crate::time::{Pace, Picos};

/// What carries messages from host to host in virtual time.
pub trait Carrier {
    /// Kinds of operation that it cannot carry.
    const LACKS: &'static [OperationKind] = &[];

    /// Returns how far it has come.
    fn now(&self) -> Picos;

    /// Takes a message that leaves its host's memory at `at`, which is not before [`Carrier::now`].
    fn post(&mut self, at: Picos, order: SendRequest);

    /// Returns when something happens next.
    fn next(&self) -> Option<Picos>;

    /// Works through instants up to and including `until`, to the first that makes notices; returns
    /// the time reached.
    fn advance(&mut self, until: Picos, notices: &mut Vec<Notice>) -> Picos;

    /// Lets `host` receive what is sent to `group` from now on.
    fn join(&mut self, group: GroupId, host: DeviceId);

    /// Returns a digest of everything that happened.
    fn digest(&self) -> u128;
}

/// What regions, files and bodies are made of, apart from regions of [`SimWire::register_real`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentModel {
    /// Bytes, copied when a message is posted and when it arrives.
    Real,
    /// Descriptions of bytes: see [`Extent`]. Headers stay real.
    Phantom,
    /// Lengths alone: regions always hold their own bytes, whatever is written into them. Headers
    /// stay real.
    Lengths,
}

/// What a network is asked to be beyond its specification.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// The host of each rank.
    pub hosts: Vec<DeviceId>,
    /// What memory is made of.
    pub bodies: ContentModel,
    /// Every node's disk; without one there are no file operations.
    pub disk: Option<DiskSpec>,
    /// Root of clocks, interruptions and damage.
    pub key: RandomKey,
}

/// What an end is made of.
struct EndConfig {
    ranks: u32,
    bodies: ContentModel,
    capabilities: Capabilities,
    copy_pace: Pace,
    lossy: [bool; Class::ALL.len()],
    clock: Clock,
    processor: Processor,
    disk: Option<Disk>,
}

/// Returns a random map of ranks to hosts: hosts in random order, `ranks_per_host` consecutive
/// ranks on each.
pub fn scattered(hosts: u32, ranks: u32, ranks_per_host: u32, key: RandomKey) -> Vec<DeviceId> {
    let mut order: Vec<u32> = (0..hosts).collect();
    key.purpose("placement").stream().shuffle(&mut order);
    let seats = order.into_iter().flat_map(|host| (0..ranks_per_host).map(move |_| DeviceId(host)));
    seats.take(ranks as usize).collect()
}
