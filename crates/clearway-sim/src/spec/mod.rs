//! What a simulated network is made of: plain values, in the units of the simulation, checked
//! before anything is built.
//!
//! # Model
//! A link is a kind of cable; every channel of that kind has its rate, delay and buffers. A class
//! travels at a service level; a lane table says on which virtual lane of a channel that is. Each
//! virtual lane has as many *steps* as the routing needs to stay free of deadlock, and each step
//! its own buffer and credits: what is called a lane below is one step of one virtual lane.
//!
//! # Not here
//! Classes, lanes and arbiters (`policy`). Reading files (`file`), where the figures come from
//! (`figure`), the shape of the network ([`crate::topology`]).

mod check;
mod discover;
pub mod explain;
pub mod figure;
pub mod file;
pub mod import;
mod opensm;
mod plain;
mod policy;
pub mod presets;
pub mod qos;
mod read;
mod section;
mod size;
mod tree;
mod write;

pub(crate) use tree::plainly;

pub use policy::{
    Arbiter, Arbitration, ClassMap, CongestionControl, Dcqcn, EdgeControl, LaneException,
    LossDomain, VlArbitration,
};

use clearway_proto::base::{BitsPerSec, Bytes};

use crate::time::Picos;

/// Virtual lanes at most: as many as InfiniBand has (15 for traffic, one for management).
pub const VIRTUAL_LANES_MAX: usize = 16;
/// Lanes (virtual lanes times steps) of one channel at most: one machine word has a bit for each.
pub const LANES_MAX: usize = 32;

/// A whole network.
#[derive(Clone, Debug, PartialEq)]
pub struct FabricSpec {
    /// Its name in reports.
    pub name: String,
    /// One sentence for a person.
    pub about: String,
    /// How it is cabled.
    pub topology: Topology,
    /// How packets find their way.
    pub routing: Routing,
    /// The kinds of cable; topologies name them by [`LinkRole`].
    pub links: Vec<LinkSpec>,
    /// What every switch is like.
    pub switch: SwitchSpec,
    /// What every host is like.
    pub host: HostSpec,
    /// Packets.
    pub packet: PacketSpec,
    /// How classes travel.
    pub classes: ClassMap,
    /// The arbitration of a channel: one rule for hosts' channels, one for switches'.
    pub arbitration: Arbitration,
    /// What is done against congestion.
    pub congestion_control: CongestionControl,
}

/// The shape of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// All hosts on one switch.
    Star {
        /// Hosts.
        hosts: u32,
    },
    /// Two switches with half of the hosts each, joined by parallel cables.
    TwoSwitch {
        /// Hosts together; even.
        hosts: u32,
        /// Parallel cables between the switches.
        trunks: u32,
    },
    /// An extended generalised fat tree: level `i` (from the hosts) has switches with `children[i]`
    /// below, and every device below level `i` has `parents[i]` above it, each by `cables[i]`
    /// parallel cables.
    ///
    /// Source: Öhring, Ibel, Das, Kumar, "On generalized fat trees" (IPPS 1995): XGFT(h; m; w).
    FatTree {
        /// Children of a switch of each level, from the leaves up; the product is the number of
        /// hosts.
        children: Vec<u32>,
        /// Parents of a device below each level, from the hosts up; the first entry is 1.
        parents: Vec<u32>,
        /// Parallel cables of each such pair.
        cables: Vec<u32>,
    },
    /// Cray XC groups: routers in a grid, all-to-all in each row (green) and column (black), groups
    /// joined by blue cables.
    DragonflyXc {
        /// Groups.
        groups: u32,
        /// Routers in one row (a chassis): 16 in a real machine.
        columns: u32,
        /// Rows (chassis) in one group: 6 in a real machine.
        rows: u32,
        /// Hosts at each router: 4 in a real machine.
        hosts_per_router: u32,
        /// Parallel cables between routers of one column: 3 in a real machine.
        black_cables: u32,
        /// Cables between each pair of groups.
        blue_cables: u32,
    },
    /// Groups of switches that are joined all-to-all, groups joined all-to-all.
    Dragonfly {
        /// Groups.
        groups: u32,
        /// Switches in a group.
        switches: u32,
        /// Hosts at each switch.
        hosts_per_switch: u32,
        /// Parallel cables between switches of a group.
        local_cables: u32,
        /// Cables between each pair of groups.
        global_cables: u32,
    },
    /// Cable by cable.
    Explicit {
        /// Names of the hosts.
        hosts: Vec<String>,
        /// Names of the switches.
        switches: Vec<String>,
        /// Ends by name, and the link by its place in [`FabricSpec::links`].
        cables: Vec<(String, String, u8)>,
    },
}

/// What a cable is for; topologies look their links up by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRole {
    /// Host to switch.
    Host,
    /// Between levels of a tree, between the two switches of a trunk, or any cable of an explicit
    /// graph.
    Up,
    /// Inside a row of a Cray XC group.
    Green,
    /// Inside a column of a Cray XC group.
    Black,
    /// Between Cray XC groups.
    Blue,
    /// Inside a group of a dragonfly.
    Local,
    /// Between groups of a dragonfly.
    Global,
}

/// How packets find their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Shortest paths; the same one for all packets of a source and a target (hash of the two where
    /// there are several).
    Minimal,
    /// Fat trees: the upward port is the target's number modulo the choices, so that each target
    /// has one way down.
    DestinationModulo,
    /// Shortest paths, chosen by a hash of the flow.
    Ecmp,
    /// Shortest paths, chosen anew for each packet.
    Spray,
    /// Dragonflies: by way of a random group (or router inside one group).
    Valiant,
    /// The least loaded of some candidates. Fat trees: `minimal` upward ports, drawn anew for each
    /// packet. Dragonflies (UGAL with local knowledge): `minimal` shortest and `detour` Valiant
    /// ways; a detour must be better by `bias` bytes after both are weighed by their lengths.
    Adaptive {
        /// Shortest candidates.
        minimal: u8,
        /// Candidates by a detour.
        detour: u8,
        /// Bytes in favour of the shortest.
        bias: u32,
    },
}

/// A kind of cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Its name in files and reports.
    pub name: String,
    /// What it is for.
    pub role: LinkRole,
    /// In each direction, headers included.
    pub rate: BitsPerSec,
    /// Signal time from end to end.
    pub delay: Picos,
    /// Receive buffer for each lane.
    pub buffer: Bytes,
    /// What may leave back to back behind a token bucket; without it one packet, of whatever
    /// length.
    pub burst: Option<Bytes>,
}

/// What every switch is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchSpec {
    /// From the head of a packet at the input to the earliest start at the output.
    pub delay: Picos,
    /// When a packet may leave.
    pub switching: Switching,
    /// In which order packets wait.
    pub queueing: Queueing,
    /// How copies of a multicast leave.
    pub replication: Replication,
}

/// When a packet may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switching {
    /// As soon as its head is there (and its tail cannot be overtaken).
    CutThrough,
    /// When its tail is there.
    StoreAndForward,
    /// When it is there, and then at once as a whole; the channel rests afterwards until it is paid
    /// for, as far as that is more than the link's burst. A software queue behind a token bucket:
    /// an idle one lets packets through in no time.
    TokenBucket,
}

/// In which order packets wait in a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// Each input keeps a queue for each output; outputs take from inputs in turn.
    VirtualOutput,
    /// Each lane of an input is one queue: a packet that cannot leave blocks those behind it.
    InputFifo,
    /// Each lane of an output is one queue in order of arrival.
    OutputFifo,
}

/// How copies of a multicast leave a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// Each copy as soon as its own branch is free.
    EachBranch,
    /// All at once, when every branch is free: one slow receiver stalls the tree.
    HoldAll,
}

/// What every host is like. Times are of the unloaded host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Network ports.
    pub rails: u32,
    /// From a post to the first byte at the port: doorbell, descriptor, fetching.
    pub transmit_delay: Picos,
    /// From the last byte at the port to its report in memory.
    pub receive_delay: Picos,
    /// Mean of an exponential addition to it, drawn for each message: processors that slept. None
    /// when zero. Messages may overtake each other by it.
    pub receive_tail: Picos,
    /// The rate at which the interface fetches from and places into memory, each way.
    pub memory_rate: BitsPerSec,
    /// The processor's cost of one input of an engine.
    pub input_cost: Picos,
    /// The processor's cost of one operation.
    pub effect_cost: Picos,
    /// Interruptions by the operating system.
    pub jitter: Jitter,
    /// In which order messages are served.
    pub service: Service,
    /// Clocks are off by up to this many parts per million, each host by its own amount.
    pub clock_ppm: u32,
}

/// In which order a host's interface serves messages of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Connections (a target and a class) take turns, packet by packet: queue pairs of RDMA.
    ByConnection,
    /// One after the other as they were posted: sockets above one queue for each class.
    InOrder,
    /// One whole message after another, of a connection that is drawn; messages of one packet pass:
    /// an interface with one engine for bulk data and a window for short messages.
    ByMessage,
}

/// How often a host's processor is elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    /// Mean time between interruptions (exponential); none when zero.
    pub period: Picos,
    /// Length of most interruptions.
    pub length: Picos,
    /// One in this many is a hundred times longer; none when zero.
    pub rare: u32,
}

/// Packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSpec {
    /// Payload of a packet at most.
    pub payload: Bytes,
    /// Bytes that headers and gaps add to each.
    pub header: Bytes,
}

impl FabricSpec {
    /// Returns the place of the link with `role`, if there is one.
    pub fn link(&self, role: LinkRole) -> Option<u8> {
        self.links.iter().position(|link| link.role == role).map(|place| place as u8)
    }
}
