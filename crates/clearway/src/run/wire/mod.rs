//! What ranks talk over: what the user wants, what each rank has, what the conductor takes of it, and how it is opened.
//!
//! # Model
//! ```text
//!    --wire -> Wanted + hosts of the job -> Ways -> every rank's Whereabouts -> Choice -> every rank's wire
//!              conductor                           rank                         conductor  rank
//! ```
//! Ranks of one host can have *near* wires between them (shared memory), ranks of several need a *far* one that reaches all. A rank
//! takes its ports before anybody is chosen, because only who holds a port can tell where it is.
//!
//! # Invariants
//! I1. All ranks of a run use the same two wires: who is alone on its host as well.
//! I2. Messages between machines that nobody seals travel over a fabric that only trusted hosts reach, or the user asked for it.

mod choice;
pub(crate) mod facts;
mod libfabric;
mod port;
mod wanted;

pub(crate) use choice::Ways;
pub(crate) use port::{Opened, Port};
pub(crate) use wanted::{Wanted, WireName};

use std::net::SocketAddrV4;

use clearway_proto::base::Rank;
use clearway_proto::wire::Granted;
use serde::{Deserialize, Serialize};

/// How ranks reach those with which they share no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Far {
    /// Not at all: all are on one host.
    Nothing,
    /// The UDP wire.
    Udp,
    /// libfabric, whatever its provider.
    Ofi,
    /// libfabric and UDP, each message over either, and all over the other one when one fails.
    Both,
    /// libfabric if it has a fabric that only trusted hosts reach, else UDP.
    Best,
}

impl Far {
    /// Whether ranks send datagrams, or may have to.
    const fn has_udp(self) -> bool {
        matches!(self, Self::Udp | Self::Both | Self::Best)
    }

    /// Whether ranks use libfabric for sure.
    const fn has_fabric(self) -> bool {
        matches!(self, Self::Ofi | Self::Both)
    }
}

/// Where a rank is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Whereabouts {
    /// On the UDP wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<SocketAddrV4>,
    /// The public half of its keys, on sealed networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) card: Option<Vec<u8>>,
    /// What it has of libfabric, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fabric: Option<Fabric>,
}

impl Whereabouts {
    /// Forgets what nobody needs who reaches it over `far`: lists of a thousand ranks are long.
    pub(crate) fn keep(&mut self, far: Far) {
        if !far.has_udp() {
            self.address = None;
        }
        match &mut self.fabric {
            Some(Fabric::End(end)) if far.has_fabric() => {
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
pub(crate) enum Fabric {
    /// An end of it.
    End(Box<FabricEnd>),
    /// Nothing that could be used, and why.
    None(String),
}

/// An end of a fabric.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FabricEnd {
    /// What peers need, in hexadecimal digits.
    pub(crate) address: String,
    /// libfabric's name of the provider.
    pub(crate) provider: String,
    /// The interface or device.
    pub(crate) domain: String,
    /// The library's version and file.
    pub(crate) library: String,
    /// Only trusted hosts reach it.
    pub(crate) isolated: bool,
    /// Everything the library offers, and why it was or was not taken.
    pub(crate) judged: Vec<String>,
}

/// How a rank opens its wire.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// Never [`Far::Best`].
    pub(crate) far: Far,
    /// The number of each rank's host, where ranks of one host share memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<Vec<u32>>,
    /// By rank, its own included.
    pub(crate) peers: Vec<Whereabouts>,
}

impl Setting {
    /// The ranks that share memory with `rank`, itself included, if any do.
    fn beside(&self, rank: Rank) -> Option<Vec<Rank>> {
        let hosts = self.hosts.as_ref()?;
        let own = hosts.get(rank.index())?;
        Some((0..).map(Rank).zip(hosts).filter(|(_, host)| *host == own).map(|(rank, _)| rank).collect())
    }
}

/// What becomes of a class, for a person.
pub(crate) const fn grant_name(granted: Granted) -> &'static str {
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
    fn beside__are_the_ranks_of_the_same_host() {
        let setting = |hosts| Setting { far: Far::Udp, hosts, peers: Vec::new() };
        let three = setting(Some(vec![4, 7, 4]));
        assert_eq!(three.beside(Rank(0)), Some(vec![Rank(0), Rank(2)]));
        assert_eq!(three.beside(Rank(1)), Some(vec![Rank(1)]));
        assert_eq!(three.beside(Rank(3)), None);
        assert_eq!(setting(None).beside(Rank(0)), None);
    }
}
