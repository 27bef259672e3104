//! Where a packet goes next: from the shape of the network, the packet's own hash, and the queues
//! this switch can see.
//!
//! # Model
//! Routing keeps no state of its own and draws nothing: a choice is a function of the packet's
//! hash, its place on the way and the backlog of the local channels. Each hop also names the
//! *step*: the number of the buffer class that keeps cyclic waiting impossible. Steps never
//! decrease along a way.
//!
//! Of channels elsewhere only whether they are up is asked, where a way would lead into them
//! without another choice: real networks make their tables anew when a cable fails.
//!
//! # Invariants
//! I1. `next` asked again for a packet that has not moved answers for the queues as they are then,
//!     and the way stays valid.
//! I2. Nothing is allocated for a packet.

mod dragonfly;
mod multicast;
mod proof;
mod selection;
mod table;
#[cfg(test)]
mod tests;
mod tree;

use crate::graph::{ChannelId, DeviceId, Graph};
use crate::spec::Routing;

pub(crate) use dragonfly::{DragonflyShape, PLAN_MAX};
pub use multicast::{Branch, MulticastTree, tree};
pub use proof::{Cycle, DeadlockProof, ProofScope, prove_deadlock_free};
pub(crate) use table::{DISTANCE_MAX, ForwardingTableError};
pub(crate) use tree::FatTree;

use dragonfly::{Detours, DragonflyRouter};
use selection::SelectionRule;
use table::ForwardingTable;

/// What a switch can see of its own channels.
pub trait Backlog {
    /// Returns the bytes that wait for `channel` or are being sent on it.
    fn bytes(&self, channel: ChannelId) -> u64;
    /// Returns whether `channel` can be used at all.
    fn up(&self, channel: ChannelId) -> bool;
    /// Returns whether all channels of the network can be used: then none needs to be asked for.
    fn intact(&self) -> bool;
}

/// The part of a packet that routing reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Where it came from.
    pub source: DeviceId,
    /// Where it goes: a host.
    pub target: DeviceId,
    /// The same for all packets of one flow (source, target, class).
    pub flow_hash: u32,
    /// Different for each packet.
    pub packet_hash: u32,
    /// Set by routing: what it decided for this packet, or [`Transit::DIRECT`] as long as it has
    /// not.
    pub via: u32,
    /// Switches passed so far: counted by who moves the packet; routing does not need it.
    pub hops: u8,
    /// Set by routing: the step of the next channel.
    pub step: u8,
}

impl Transit {
    /// Nothing decided.
    pub const DIRECT: u32 = u32::MAX;
}

/// The rule by which the packets of one network find their way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router(RouterKind);

/// A graph and the router for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedGraph {
    /// Devices and channels.
    pub graph: Graph,
    /// Where packets go.
    pub router: Router,
}

/// What the ways are computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RouterKind {
    Tree(FatTree),
    Grid(DragonflyRouter),
    Table(ForwardingTable),
}

/// For whom a way is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteTarget {
    /// For this target alone.
    Target,
    /// Shared as far as possible by all targets of the source.
    Source,
}

impl Router {
    /// Returns the channel on which a packet at `at` leaves; sets the packet's step. To be called
    /// at the source host, then at each switch. A host that chooses its port itself need not ask,
    /// as long as the packet is fresh: `via` is [`Transit::DIRECT`], `step` zero. `None`: all ways
    /// that are allowed from here are down.
    ///
    /// # Cost
    /// Some ten nanoseconds, no allocation; for a weighed choice at the source of a dragonfly that
    /// for each candidate.
    #[inline]
    pub fn next<B: Backlog>(
        &self,
        graph: &Graph,
        at: DeviceId,
        transit: &mut Transit,
        backlog: &B,
    ) -> Option<ChannelId> {
        match &self.0 {
            RouterKind::Tree(tree) => tree.next(graph, at, transit, backlog),
            RouterKind::Grid(grid) => grid.next(graph, at, transit, backlog),
            RouterKind::Table(table) => table.next(graph, at, transit, backlog),
        }
    }

    /// Returns how many steps keep the ways free of deadlock: 1 at least.
    pub fn steps(&self) -> u8 {
        match &self.0 {
            RouterKind::Tree(_) => 1,
            RouterKind::Grid(grid) => grid.steps(),
            RouterKind::Table(table) => table.steps(),
        }
    }

    /// Returns the shortest way without a detour between two hosts, first channel first; empty when
    /// they are the same.
    ///
    /// For latency floors, acknowledgements and pictures; O(length), in dragonflies O(cables
    /// between two groups).
    pub fn way(&self, graph: &Graph, from: DeviceId, to: DeviceId) -> Vec<ChannelId> {
        self.way_by(graph, from, to, RouteTarget::Target)
            .into_iter()
            .map(|(channel, _)| channel)
            .collect()
    }

    /// Returns the same with steps; empty when both ends are the same.
    fn way_by(
        &self,
        graph: &Graph,
        from: DeviceId,
        to: DeviceId,
        aim: RouteTarget,
    ) -> Vec<(ChannelId, u8)> {
        if from == to {
            return Vec::new();
        }
        match &self.0 {
            RouterKind::Tree(tree) => {
                let number = if aim == RouteTarget::Target { to.0 } else { from.0 };
                tree.way(graph, from, to, number).into_iter().map(|channel| (channel, 0)).collect()
            }
            RouterKind::Grid(grid) => grid.way(graph, from, to, aim),
            RouterKind::Table(table) => table.way(graph, from, to),
        }
    }

    /// Creates routing in a fat tree, or `None` where `routing` makes no sense there.
    pub(crate) fn from_tree(tree: FatTree, routing: Routing) -> Option<Self> {
        Some(Self(RouterKind::Tree(tree.with_rule(rule(routing)?))))
    }

    /// Creates routing in a dragonfly, or `None` where `routing` makes no sense there.
    pub(crate) fn from_dragonfly(grid: DragonflyShape, routing: Routing) -> Option<Self> {
        let (rule, detours) = match routing {
            Routing::DestinationModulo => return None,
            Routing::Valiant => (SelectionRule::Packet, Detours::Always),
            Routing::Adaptive { minimal, detour, bias } => {
                // Of parallel cables all are compared: there are few.
                (SelectionRule::Least(u8::MAX), Detours::Weighed { minimal, detour, bias })
            }
            other => (rule(other)?, Detours::Never),
        };
        Some(Self(RouterKind::Grid(DragonflyRouter { grid, rule, detours })))
    }

    /// Creates routing between two switches, or `None` where `routing` makes no sense there.
    pub(crate) fn from_pair(grid: DragonflyShape, routing: Routing) -> Option<Self> {
        Some(Self(RouterKind::Grid(DragonflyRouter {
            grid,
            rule: rule(routing)?,
            detours: Detours::Never,
        })))
    }

    /// Creates routing in any graph; `None` where `routing` makes no sense there.
    pub(crate) fn from_graph(
        graph: &Graph,
        routing: Routing,
    ) -> Option<Result<Self, ForwardingTableError>> {
        if routing == Routing::DestinationModulo {
            return None;
        }
        Some(
            ForwardingTable::new(graph, rule(routing)?).map(|table| Self(RouterKind::Table(table))),
        )
    }
}

/// Returns the rule of a choice among shortest ways; `None` for routing that leaves them.
fn rule(routing: Routing) -> Option<SelectionRule> {
    match routing {
        Routing::Minimal => Some(SelectionRule::Pair),
        Routing::DestinationModulo => Some(SelectionRule::Modulo),
        Routing::Ecmp => Some(SelectionRule::Flow),
        Routing::Spray => Some(SelectionRule::Packet),
        Routing::Adaptive { minimal, detour: 0, .. } => Some(SelectionRule::Least(minimal)),
        Routing::Adaptive { .. } | Routing::Valiant => None,
    }
}
