//! What can go wrong when a wire is opened, each as one sentence for a person.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use clearway_proto::base::Rank;
use thiserror::Error;

/// Why the runtime could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The address is not free or not of this host: choose another.
    #[error("cannot open UDP port {address}: {cause}; use an address of this host and a free port, or port 0 for any")]
    Bind {
        /// The address asked for.
        address: SocketAddrV4,
        /// What the system said.
        cause: io::Error,
    },
    /// The system refused something every wire needs: report it with the kernel's version.
    #[error("the system refused to {what}: {cause}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        cause: io::Error,
    },
    /// The rank is not in the list of peers: correct the list.
    #[error("rank {rank} is not among the {ranks} peers; ranks are numbered from 0")]
    RankOutside {
        /// This end's rank.
        rank: Rank,
        /// Entries in the list.
        ranks: usize,
    },
    /// The list of peers names another address for this rank than the one that was bound: correct the list.
    #[error("rank {rank} is listed as {listed} but is bound to {bound}; publish the bound address")]
    OwnAddress {
        /// This end's rank.
        rank: Rank,
        /// What the list says.
        listed: SocketAddrV4,
        /// What the port says.
        bound: SocketAddrV4,
    },
    /// Two ranks share an address: correct the list.
    #[error("ranks {first} and {second} are both listed as {address}; every rank needs a port of its own")]
    SharedAddress {
        /// The lower rank.
        first: Rank,
        /// The higher rank.
        second: Rank,
        /// The address of both.
        address: SocketAddrV4,
    },
    /// The multicast base leaves no room for groups, or the port is bound to no particular interface.
    #[error(
        "cannot multicast to {base} from {interface}; bind to one interface's address and use a base of 239.0.0.0/8 \
         below 239.255.0.0"
    )]
    Multicast {
        /// The base address asked for.
        base: Ipv4Addr,
        /// The address that was bound.
        interface: Ipv4Addr,
    },
}

impl RuntimeError {
    /// Names what was asked of the system when it refused.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { what, cause }
    }
}
