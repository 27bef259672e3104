//! Which wires the ranks of a job have between them: asked for, chosen, opened, and sealed.
//!
//! # Model
//! ```text
//!    --wire -> WireRequest + hosts of the job -> WirePlan -> every rank's EndLocation -> WireChoice -> every rank's wire
//!              coordinator                                   rank                        coordinator   rank
//! ```
//! Ranks of one host can have a *near* wire between them (shared memory), ranks of several need a
//! *far* one that reaches all. A rank takes its ports before a wire is chosen, because only the
//! holder of a port can tell where it is.
//!
//! This is the one crate that names all wires; above it there are only capabilities.
//!
//! # Invariants
//! I1. All ranks of a run use the same two wires, also a rank that is alone on its host.
//! I2. Messages between machines that nobody seals travel over a fabric that only trusted hosts
//!     reach, or the user asked for it.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))] // tests are named function__case

pub mod addresses;
mod choice;
mod error;
pub mod facts;
pub mod hexadecimal;
mod libfabric;
mod port;
mod request;

use std::net::SocketAddrV4;

use clearway_proto::base::Rank;
use clearway_proto::wire::Granted;
use serde::{Deserialize, Serialize};

pub use choice::{WireChoice, WirePlan};
pub use error::WiresError;
pub use libfabric::Libfabric;
pub use port::{OpenWire, PeerMover, RankPort};
pub use request::{WireName, WireRequest};

/// What kind of network the ranks have between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// A laboratory's: one machine, queues that must see real packets, more ranks than processors.
    Lab,
    /// One machine's own: its ranks read one clock.
    Machine,
    /// Between machines; messages are sealed, or stay on a fabric that only trusted hosts reach.
    Sealed,
    /// Between machines, as open as the user asked for.
    Insecure,
}

impl Network {
    /// Returns whether all ranks read one clock.
    pub const fn is_one_machine(self) -> bool {
        matches!(self, Self::Lab | Self::Machine)
    }
}

/// What an engine needs of its wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireNeeds {
    /// Datagrams that queues see one by one: the queues are what is measured.
    Packets,
    /// Datagrams, many of which may leave as one; the engine repairs losses.
    Datagrams,
    /// One-sided writes that all arrive.
    Writes,
    /// The same, mostly short ones that the peer's program answers.
    ShortWrites,
}

/// What a rank takes ports for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortRequest {
    /// This rank.
    pub rank: Rank,
    /// The number of the run: packets of another one are strangers'.
    pub session: u64,
    /// Port 0 leaves the choice of a port to the system.
    pub address: SocketAddrV4,
    /// What lies between the ranks.
    pub network: Network,
    /// What to have ready for ranks that share no memory with this one.
    pub far: RemoteTransport,
    /// How often this rank's process was started again: its keys are those of as late an epoch.
    #[serde(default)]
    pub incarnation: u32,
}

/// How ranks reach those with which they share no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemoteTransport {
    /// Not at all: all are on one host.
    Nothing,
    /// The UDP wire.
    Udp,
    /// libfabric, whatever its provider.
    Ofi,
    /// libfabric and UDP, each message over either, and all over the other one when one fails.
    Both,
    /// libfabric if it has a fabric that only trusted hosts reach, else UDP; in a laboratory
    /// whatever libfabric has.
    Best,
}

impl RemoteTransport {
    /// Returns whether ranks send datagrams, or may have to.
    const fn has_udp(self) -> bool {
        matches!(self, Self::Udp | Self::Both | Self::Best)
    }

    /// Returns whether ranks use libfabric for sure.
    const fn has_fabric(self) -> bool {
        matches!(self, Self::Ofi | Self::Both)
    }
}

/// Where a rank is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EndLocation {
    /// On the UDP wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddrV4>,
    /// The public half of its keys, on sealed networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<Vec<u8>>,
    /// In which epoch they were made.
    #[serde(default)]
    pub epoch: u32,
    /// What it has of libfabric, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricAccess>,
}

impl EndLocation {
    /// Forgets what nobody needs who reaches it over `far`: lists of a thousand ranks are long.
    pub fn keep(&mut self, far: RemoteTransport) {
        if !far.has_udp() {
            self.address = None;
        }
        match &mut self.fabric {
            Some(FabricAccess::End(end)) if far.has_fabric() => {
                let address = std::mem::take(&mut end.address);
                **end = FabricEnd { address, ..FabricEnd::default() };
            }
            fabric => *fabric = None,
        }
    }
}

/// What a rank has of libfabric.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FabricAccess {
    /// An end of it.
    End(Box<FabricEnd>),
    /// Nothing that could be used, and why.
    None(String),
}

/// An end of a fabric.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FabricEnd {
    /// What peers need, in hexadecimal digits.
    pub address: String,
    /// libfabric's name of the provider.
    pub provider: String,
    /// The interface or device.
    pub domain: String,
    /// The library's version and file.
    pub library: String,
    /// Only trusted hosts reach it.
    pub isolated: bool,
    /// Everything the library offers, and why it was or was not taken.
    pub judged: Vec<String>,
}

/// How a rank opens its wire.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WireSetup {
    /// Never [`RemoteTransport::Best`].
    pub far: RemoteTransport,
    /// The number of each rank's host, where ranks of one host share memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<u32>>,
    /// By rank, its own included.
    pub peers: Vec<EndLocation>,
    /// What the engine needs of it.
    pub need: WireNeeds,
    /// How often this rank's process was started again; the others may have met one before it.
    #[serde(default)]
    pub incarnation: u32,
}

impl WireSetup {
    /// Returns the ranks that share memory with `rank`, itself included, if any do.
    fn sharing_memory_with(&self, rank: Rank) -> Option<Vec<Rank>> {
        let hosts = self.hosts.as_ref()?;
        let own = hosts.get(rank.index())?;
        Some(
            (0..)
                .map(Rank)
                .zip(hosts)
                .filter(|(_, host)| *host == own)
                .map(|(rank, _)| rank)
                .collect(),
        )
    }
}

/// Names what becomes of a class, for a person.
pub const fn grant_name(granted: Granted) -> &'static str {
    match granted {
        Granted::Marked => "marked",
        Granted::Separate => "kept apart in each host",
        Granted::Ignored => "travels like best effort",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_memory_with__are_the_ranks_of_the_same_host() {
        let setting = |hosts| WireSetup {
            far: RemoteTransport::Udp,
            hosts,
            peers: Vec::new(),
            need: WireNeeds::Packets,
            incarnation: 0,
        };
        let three = setting(Some(vec![4, 7, 4]));
        assert_eq!(three.sharing_memory_with(Rank(0)), Some(vec![Rank(0), Rank(2)]));
        assert_eq!(three.sharing_memory_with(Rank(1)), Some(vec![Rank(1)]));
        assert_eq!(three.sharing_memory_with(Rank(3)), None);
        assert_eq!(setting(None).sharing_memory_with(Rank(0)), None);
    }
}
