//! A machine's network as draws and fair rates see it: the links on which all traffic between two
//! hosts surely lies.
//!
//! # Model
//! Where all packets of a pair take one way, that way counts. Where routing spreads them, only the
//! links at both ends count: traffic that is spread well fills no link between switches before it
//! fills those, and what spreads badly is the network's own fault, so it must not lower the
//! yardstick.

use clearway_proto::base::{BitsPerSec, Rank};
use clearway_proto::congestion::{LinkId, NetworkLayout};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::{FabricSpec, LinkRole, Routing};
use clearway_sim::topology::RoutedGraph;

/// A machine's network.
pub(super) struct MachineLayout {
    network: RoutedGraph,
    /// The host of each rank.
    hosts: Vec<DeviceId>,
    /// The rate of each kind of cable.
    rates: Vec<BitsPerSec>,
    /// What a host's port carries at most: the link, or its interface to memory.
    host_rate: BitsPerSec,
    ways: PathCount,
}

/// How many ways packets of one pair take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathCount {
    One,
    Several,
}

impl MachineLayout {
    /// Creates a layout; `network` is that of `spec`, and `hosts` has the host of each rank.
    pub(super) fn new(spec: FabricSpec, network: RoutedGraph, hosts: Vec<DeviceId>) -> Self {
        let rates: Vec<BitsPerSec> = spec.links.iter().map(|link| link.rate).collect();
        let link = spec
            .link(LinkRole::Host)
            .map_or(spec.host.memory_rate, |link| rates[usize::from(link)]);
        let ways = match spec.routing {
            Routing::Minimal | Routing::DestinationModulo => PathCount::One,
            Routing::Ecmp | Routing::Spray | Routing::Valiant | Routing::Adaptive { .. } => {
                PathCount::Several
            }
        };
        Self { network, hosts, rates, host_rate: link.min(spec.host.memory_rate), ways }
    }

    fn host(&self, rank: Rank) -> DeviceId {
        self.hosts.get(rank.index()).copied().unwrap_or(DeviceId(0))
    }
}

impl NetworkLayout for MachineLayout {
    fn hosts(&self) -> usize {
        self.hosts.len()
    }

    fn switch_of(&self, rank: Rank) -> u32 {
        let graph = &self.network.graph;
        let port = graph.ports(self.host(rank)).next();
        port.map_or(0, |port| graph.channels()[port as usize].to.0)
    }

    fn path(&self, a: Rank, b: Rank) -> Vec<LinkId> {
        let mut links = vec![LinkId::FromHost(a)];
        if self.ways == PathCount::One {
            let way = self.network.router.way(&self.network.graph, self.host(a), self.host(b));
            let between = way.len().saturating_sub(1).max(1);
            links.extend(
                way[1.min(way.len())..between.min(way.len())]
                    .iter()
                    .map(|channel| LinkId::Cable(channel.0)),
            );
        }
        links.push(LinkId::ToHost(b));
        links
    }

    fn rate(&self, link: LinkId) -> BitsPerSec {
        match link {
            LinkId::Cable(channel) => {
                let kind =
                    self.network.graph.channels().get(channel as usize).map(|channel| channel.link);
                kind.and_then(|kind| self.rates.get(usize::from(kind)))
                    .copied()
                    .unwrap_or(self.host_rate)
            }
            _ => self.host_rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::fabric::{Fabric, MachineFabric, NodeMap};
    use clearway_proto::base::RandomKey;

    fn layout(preset: &str, nodes: u32) -> Box<dyn NetworkLayout> {
        let machine = MachineFabric {
            preset: preset.to_owned(),
            nodes: Some(nodes),
            node_map: NodeMap::Linear,
        };
        Fabric::Machine(machine).layout(RandomKey::new(1)).expect("it is shipped")
    }

    #[test]
    fn path__of_one_way_crosses_the_tree_and_of_several_only_its_ends() {
        let tree = layout("edr", 128);
        assert_eq!(
            tree.path(Rank(0), Rank(1)),
            [LinkId::FromHost(Rank(0)), LinkId::ToHost(Rank(1))]
        );
        assert!(!tree.crossing(Rank(0), Rank(17)) && tree.crossing(Rank(0), Rank(18)));
        let up_and_down = tree.path(Rank(0), Rank(18));
        assert!(
            matches!(up_and_down[..], [_, LinkId::Cable(_), LinkId::Cable(_), _]),
            "{up_and_down:?}"
        );
        assert!(up_and_down.iter().all(|link| tree.rate(*link) == BitsPerSec::mega(100_000)));
        let dragonfly = layout("slingshot", 485);
        assert_eq!((dragonfly.hosts(), dragonfly.path(Rank(0), Rank(484)).len()), (485, 2));
    }
}
