//! Decides every name, number and address of a lab before anything is made; the kernel gets
//! commands, and is never asked.
//!
//! # Model
//! Nodes are hosts, bridges or routers; links join two ends and have one rate in both directions.
//! Each node's table of addresses, neighbours and routes follows from the topology alone, so the
//! same specification always gives the same lab.
//!
//! # Invariants
//! I1. Host `h<i>` is node `i`; its link is link `i`, with the host at end `a` and its switch at
//!     end `b`. Links of further rails come behind.
//! I2. Interface numbers are chosen here: no answer from the kernel is needed to name an interface.
//! I3. Every switch can be sent to by its neighbours: each link is testable without crossing
//!     another.

use std::net::Ipv4Addr;

use clearway_proto::base::{BitsPerSec, Rank};
use serde::{Deserialize, Serialize};

use crate::{LabSpec, Topology};

/// With more hosts than this the neighbours are not all set beforehand (their number grows as the
/// square) but asked for by ARP.
const MESH_HOSTS_MAX: u32 = 128;
/// The bridge of a switch; 1 is the loopback interface.
pub(crate) const BRIDGE_INDEX: u32 = 2;
/// The first port of a switch or router.
const FIRST_PORT: u32 = 3;
/// The interface of a host.
const HOST_INDEX: u32 = 2;

/// A virtual host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedHost {
    /// The place of this host in [`crate::Lab::hosts`]; the natural rank of a job that fills the
    /// lab.
    pub rank: Rank,
    /// `h<rank>`.
    pub name: String,
    /// The address on `interface`.
    pub address: Ipv4Addr,
    /// The switch or leaf router it hangs on.
    pub switch: String,
    /// Its network interface other than the loopback; with several rails the first.
    pub interface: String,
    /// The addresses on further rails: `eth1` and so on.
    #[serde(default)]
    pub further: Vec<Ipv4Addr>,
}

/// How far apart two hosts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// One switch between them.
    SameSwitch,
    /// A trunk or a spine between their switches.
    CrossTrunk,
}

/// The way from one host to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// How far it goes.
    pub tier: Tier,
    /// The rates of the shaped links crossed, in order: the sender's NIC first, the port toward the
    /// receiver last.
    pub rates: Vec<BitsPerSec>,
}

/// A link address: locally administered, made of node and interface numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MacAddress(pub(crate) [u8; 6]);

fn mac(node: usize, index: u32) -> MacAddress {
    let ([n1, n0], [i1, i0]) = ((node as u16).to_be_bytes(), (index as u16).to_be_bytes());
    MacAddress([0x02, 0x77, n1, n0, i1, i0])
}

/// What a node does with packets that are not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeRole {
    Host,
    Bridge,
    Router,
}

/// A static entry: `address` is at link address `mac` behind interface `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) index: u32,
    pub(crate) address: Ipv4Addr,
    pub(crate) mac: MacAddress,
}

/// A route over gateways, or without gateways directly out of interface `index`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) destination: Ipv4Addr,
    pub(crate) prefix: u8,
    pub(crate) via: Vec<Ipv4Addr>,
    pub(crate) index: u32,
}

/// A host, switch or router: one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) role: NodeRole,
    /// A bridge's own address and link address.
    pub(crate) bridge: Option<(Ipv4Addr, MacAddress)>,
    pub(crate) neighbours: Vec<Neighbour>,
    /// Which link address lives behind which port of a bridge.
    pub(crate) behind: Vec<(u32, MacAddress)>,
    pub(crate) routes: Vec<Route>,
}

/// One end of a link.
#[derive(Clone, Debug)]
pub(crate) struct LinkEnd {
    pub(crate) node: usize,
    pub(crate) interface: String,
    pub(crate) index: u32,
    pub(crate) mac: MacAddress,
    /// None on a port of a bridge.
    pub(crate) address: Option<(Ipv4Addr, u8)>,
}

/// A link, shaped at both ends.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) a: LinkEnd,
    pub(crate) b: LinkEnd,
    pub(crate) rate: BitsPerSec,
}

/// A whole lab on paper.
#[derive(Clone, Debug)]
pub(crate) struct LabPlan {
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<Link>,
    pub(crate) hosts: Vec<PlannedHost>,
    topology: Topology,
}

impl LabPlan {
    /// Draws the lab of a checked specification.
    pub(crate) fn new(spec: &LabSpec) -> Self {
        let mut plan = Self {
            nodes: Vec::new(),
            links: Vec::new(),
            hosts: Vec::new(),
            topology: spec.topology,
        };
        for i in 0..spec.topology.hosts() {
            plan.add_node(format!("h{i}"), NodeRole::Host);
        }
        match spec.topology {
            Topology::Star { hosts, rate } => {
                plan.bridged(1, hosts, rate, rate);
                (1..spec.rails).for_each(|rail| plan.add_rail(rail, rate));
            }
            Topology::TwoSwitch { hosts, rate, trunk } => plan.bridged(2, hosts, rate, trunk),
            Topology::LeafSpine { .. } => plan.routed(),
        }
        plan
    }

    /// Returns the way from `a` to `b`.
    pub(crate) fn path(&self, a: Rank, b: Rank) -> Option<HostPath> {
        let (from, to) = (self.hosts.get(a.index())?, self.hosts.get(b.index())?);
        let rate = self.links.get(a.index())?.rate;
        let same = from.switch == to.switch;
        let rates = match self.topology {
            _ if a == b => Vec::new(),
            _ if same => vec![rate, rate],
            Topology::Star { .. } => vec![rate, rate],
            Topology::TwoSwitch { trunk, .. } => vec![rate, trunk, rate],
            Topology::LeafSpine { uplink, .. } => vec![rate, uplink, uplink, rate],
        };
        Some(HostPath { tier: if same { Tier::SameSwitch } else { Tier::CrossTrunk }, rates })
    }

    /// Returns the address by which a neighbour of `node` reaches it over the link that ends in
    /// `end`.
    pub(crate) fn address_of(&self, end: &LinkEnd) -> Ipv4Addr {
        match (end.address, self.nodes[end.node].bridge) {
            (Some((address, _)), _) | (None, Some((address, _))) => address,
            (None, None) => Ipv4Addr::UNSPECIFIED,
        }
    }

    fn add_node(&mut self, name: String, role: NodeRole) -> usize {
        self.nodes.push(Node {
            name,
            role,
            bridge: None,
            neighbours: Vec::new(),
            behind: Vec::new(),
            routes: Vec::new(),
        });
        self.nodes.len() - 1
    }

    fn add_host(&mut self, i: usize, switch: usize, address: Ipv4Addr) {
        self.hosts.push(PlannedHost {
            rank: Rank(i as u32),
            name: self.nodes[i].name.clone(),
            address,
            switch: self.nodes[switch].name.clone(),
            interface: "eth0".into(),
            further: Vec::new(),
        });
    }

    /// Adds one or two bridges, with the hosts spread over them in order.
    fn bridged(&mut self, switches: u32, hosts: u32, rate: BitsPerSec, trunk: BitsPerSec) {
        let first = self.nodes.len();
        for s in 0..switches {
            let node = self.add_node(format!("s{s}"), NodeRole::Bridge);
            self.nodes[node].bridge =
                Some((Ipv4Addr::new(10, 77, 255, s as u8 + 1), mac(node, BRIDGE_INDEX)));
        }
        for i in 0..hosts {
            let switch = first + (i * switches / hosts) as usize;
            let address = bridged_address(0, i);
            let (a, b) = (
                end(i as usize, "eth0".into(), HOST_INDEX, Some((address, 16))),
                end(switch, format!("p{i}"), FIRST_PORT + i, None),
            );
            self.links.push(Link { a, b, rate });
            self.add_host(i as usize, switch, address);
        }
        let trunk_index = FIRST_PORT + hosts;
        if switches == 2 {
            let (a, b) = (
                end(first, "up0".into(), trunk_index, None),
                end(first + 1, "up0".into(), trunk_index + 1, None),
            );
            self.links.push(Link { a, b, rate: trunk });
        }
        self.fill_bridge_tables(first, switches as usize);
        self.fill_host_tables(first, switches as usize);
    }

    /// Adds one more switch with a link to every host: a star next to the first, without multicast.
    fn add_rail(&mut self, rail: u32, rate: BitsPerSec) {
        let switch = self.add_node(format!("s{rail}"), NodeRole::Bridge);
        let bridge = (Ipv4Addr::new(10, 77 + rail as u8, 255, 1), mac(switch, BRIDGE_INDEX));
        self.nodes[switch].bridge = Some(bridge);
        let index = HOST_INDEX + rail;
        let hosts = self.hosts.len();
        let known: Vec<(Ipv4Addr, MacAddress)> = (0..hosts)
            .map(|i| (bridged_address(rail, i as u32), mac(i, index)))
            .chain([bridge])
            .collect();
        for i in 0..hosts {
            let (address, mac) = known[i];
            let port = FIRST_PORT + i as u32;
            let (a, b) = (
                end(i, format!("eth{rail}"), index, Some((address, 16))),
                end(switch, format!("p{i}"), port, None),
            );
            self.links.push(Link { a, b, rate });
            self.hosts[i].further.push(address);
            self.nodes[switch].behind.push((port, mac));
            self.nodes[switch].neighbours.push(Neighbour { index: BRIDGE_INDEX, address, mac });
            let peers = if hosts as u32 <= MESH_HOSTS_MAX { &known[..] } else { &known[hosts..] };
            let others = peers.iter().filter(|(peer, _)| *peer != address);
            self.nodes[i].neighbours.extend(others.map(|&(address, mac)| Neighbour {
                index,
                address,
                mac,
            }));
        }
    }

    /// Tells each bridge where every link address lives and what its own neighbours are.
    fn fill_bridge_tables(&mut self, first: usize, switches: usize) {
        let bridges: Vec<_> =
            (first..first + switches).map(|s| (s, self.nodes[s].bridge)).collect();
        let trunks: Vec<_> = self
            .links
            .iter()
            .skip(self.hosts.len())
            .flat_map(|l| [(l.a.node, l.a.index), (l.b.node, l.b.index)])
            .collect();
        let hosts: Vec<_> =
            self.links.iter().zip(&self.hosts).map(|(l, h)| (l.clone(), h.address)).collect();
        for &(switch, _) in &bridges {
            let toward_others =
                trunks.iter().find(|(node, _)| *node == switch).map(|(_, index)| *index);
            let node = &mut self.nodes[switch];
            for (link, address) in &hosts {
                let here = link.b.node == switch;
                node.behind.extend(
                    (if here { Some(link.b.index) } else { toward_others })
                        .map(|p| (p, link.a.mac)),
                );
                if here {
                    node.neighbours.push(Neighbour {
                        index: BRIDGE_INDEX,
                        address: *address,
                        mac: link.a.mac,
                    });
                }
            }
            for (_, bridge) in bridges.iter().filter(|(other, _)| *other != switch) {
                let Some((address, mac)) = *bridge else { continue };
                node.behind.extend(toward_others.map(|port| (port, mac)));
                node.neighbours.push(Neighbour { index: BRIDGE_INDEX, address, mac });
            }
        }
    }

    /// Tells each host its switch, the other hosts (up to a size), and where multicast goes.
    fn fill_host_tables(&mut self, first: usize, switches: usize) {
        let mut known: Vec<(Ipv4Addr, MacAddress)> =
            (first..first + switches).filter_map(|switch| self.nodes[switch].bridge).collect();
        if self.hosts.len() as u32 <= MESH_HOSTS_MAX {
            known.extend(
                self.hosts.iter().zip(&self.links).map(|(host, link)| (host.address, link.a.mac)),
            );
        }
        for host in &self.hosts {
            let node = &mut self.nodes[host.rank.index()];
            node.neighbours = known
                .iter()
                .filter(|(address, _)| *address != host.address)
                .map(|&(address, mac)| Neighbour { index: HOST_INDEX, address, mac })
                .collect();
            let destination = Ipv4Addr::new(224, 0, 0, 0);
            node.routes.push(Route { destination, prefix: 4, via: Vec::new(), index: HOST_INDEX });
        }
    }

    /// Leaves and spines as routers, a network of two addresses per link.
    fn routed(&mut self) {
        let Topology::LeafSpine { leaves, hosts_per_leaf, spines, rate, uplink } = self.topology
        else {
            return;
        };
        let first_leaf = self.nodes.len();
        for l in 0..leaves {
            self.add_node(format!("lf{l}"), NodeRole::Router);
        }
        let first_spine = self.nodes.len();
        for s in 0..spines {
            self.add_node(format!("sp{s}"), NodeRole::Router);
        }
        for i in 0..leaves * hosts_per_leaf {
            let (l, h) = (i / hosts_per_leaf, i % hosts_per_leaf);
            let leaf = first_leaf + l as usize;
            let address = |last: u32| Ipv4Addr::new(10, 77, l as u8, (h * 4 + last) as u8);
            let a = end(i as usize, "eth0".into(), HOST_INDEX, Some((address(2), 30)));
            let b = end(leaf, format!("p{i}"), FIRST_PORT + h, Some((address(1), 30)));
            let (destination, via) = (Ipv4Addr::UNSPECIFIED, vec![address(1)]);
            self.nodes[i as usize].routes.push(Route { destination, prefix: 0, via, index: 0 });
            self.join(a, b, rate);
            self.add_host(i as usize, leaf, address(2));
        }
        for l in 0..leaves {
            let leaf = first_leaf + l as usize;
            let address = |s: u32, last: u32| Ipv4Addr::new(10, 78, l as u8, (s * 4 + last) as u8);
            for s in 0..spines {
                let spine = first_spine + s as usize;
                let a = end(
                    leaf,
                    format!("u{s}"),
                    FIRST_PORT + hosts_per_leaf + s,
                    Some((address(s, 1), 30)),
                );
                let b = end(spine, format!("d{l}"), FIRST_PORT + l, Some((address(s, 2), 30)));
                let (destination, via) = (Ipv4Addr::new(10, 77, l as u8, 0), vec![address(s, 1)]);
                self.nodes[spine].routes.push(Route { destination, prefix: 24, via, index: 0 });
                self.join(a, b, uplink);
            }
            let (destination, via) =
                (Ipv4Addr::new(10, 77, 0, 0), (0..spines).map(|s| address(s, 2)).collect());
            self.nodes[leaf].routes.push(Route { destination, prefix: 16, via, index: 0 });
        }
    }

    /// Adds a routed link; both ends know each other.
    fn join(&mut self, a: LinkEnd, b: LinkEnd, rate: BitsPerSec) {
        for (near, far) in [(&a, &b), (&b, &a)] {
            if let Some((address, _)) = far.address {
                self.nodes[near.node].neighbours.push(Neighbour {
                    index: near.index,
                    address,
                    mac: far.mac,
                });
            }
        }
        self.links.push(Link { a, b, rate });
    }
}

fn end(node: usize, interface: String, index: u32, address: Option<(Ipv4Addr, u8)>) -> LinkEnd {
    LinkEnd { node, interface, index, mac: mac(node, index), address }
}

/// Returns the address of host `i` in the bridged network of a rail: 250 to a block, so that no
/// address ends in 0 or 255.
fn bridged_address(rail: u32, i: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 77 + rail as u8, (i / 250) as u8, (i % 250 + 1) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const RATE: BitsPerSec = BitsPerSec::mega(100);
    const TRUNK: BitsPerSec = BitsPerSec::mega(25);

    fn plan(topology: Topology) -> LabPlan {
        LabPlan::new(&LabSpec::new(topology))
    }

    fn topologies() -> [Topology; 4] {
        [
            Topology::Star { hosts: 1, rate: RATE },
            Topology::Star { hosts: 1000, rate: RATE },
            Topology::TwoSwitch { hosts: 16, rate: RATE, trunk: TRUNK },
            Topology::LeafSpine {
                leaves: 4,
                hosts_per_leaf: 63,
                spines: 63,
                rate: RATE,
                uplink: TRUNK,
            },
        ]
    }

    #[test]
    fn of__addresses_and_interfaces_are_unique_and_fit() {
        for topology in topologies() {
            let plan = plan(topology);
            let ends: Vec<_> = plan.links.iter().flat_map(|l| [&l.a, &l.b]).collect();
            let macs: BTreeSet<_> = ends.iter().map(|e| e.mac.0).collect();
            let places: BTreeSet<_> = ends.iter().map(|e| (e.node, e.index)).collect();
            let addresses: BTreeSet<_> = ends.iter().filter_map(|e| e.address).collect();
            assert_eq!((macs.len(), places.len()), (ends.len(), ends.len()));
            assert_eq!(addresses.len(), ends.iter().filter(|e| e.address.is_some()).count());
            assert!(ends.iter().all(|e| e.interface.len() < 16), "IFNAMSIZ");
            for (host, link) in plan.hosts.iter().zip(&plan.links) {
                assert_eq!(link.a.node, host.rank.index());
                assert_eq!(link.a.address.unwrap().0, host.address);
                assert_eq!(plan.nodes[link.b.node].name, host.switch);
            }
        }
    }

    #[test]
    fn rails__each_is_a_star_of_its_own_with_a_link_to_every_host() {
        let plan = LabPlan::new(&LabSpec {
            rails: 2,
            ..LabSpec::new(Topology::Star { hosts: 3, rate: RATE })
        });
        assert_eq!((plan.nodes.len(), plan.links.len()), (5, 6));
        let further: Vec<_> = plan.hosts.iter().map(|host| host.further.clone()).collect();
        assert_eq!(further, [1, 2, 3].map(|last| vec![Ipv4Addr::new(10, 78, 0, last)]));
        for (i, link) in plan.links[3..].iter().enumerate() {
            assert_eq!((link.a.node, link.a.interface.as_str(), link.a.index), (i, "eth1", 3));
            assert_eq!(
                (plan.nodes[link.b.node].name.as_str(), link.b.interface.clone()),
                ("s1", format!("p{i}"))
            );
            assert!(plan.nodes[4].behind.contains(&(link.b.index, link.a.mac)));
        }
        let beyond: Vec<_> =
            plan.nodes[0].neighbours.iter().filter(|neighbour| neighbour.index == 3).collect();
        assert_eq!(beyond.len(), 3, "two hosts and the switch");
        let ends: Vec<_> = plan.links.iter().flat_map(|l| [&l.a, &l.b]).collect();
        let macs: BTreeSet<_> = ends.iter().map(|e| e.mac.0).collect();
        assert_eq!(macs.len(), ends.len());
    }

    #[test]
    fn two_switch__each_bridge_knows_where_every_host_lives() {
        let plan = plan(Topology::TwoSwitch { hosts: 4, rate: RATE, trunk: TRUNK });
        let trunk = &plan.links[4];
        let behind = &plan.nodes[4].behind;
        let mac = |host: usize| plan.links[host].a.mac;
        assert!(behind.contains(&(plan.links[1].b.index, mac(1))));
        assert!(behind.contains(&(trunk.a.index, mac(2))));
        assert!(behind.contains(&(trunk.a.index, plan.nodes[5].bridge.unwrap().1)));
        assert_eq!(behind.len(), 5);
        assert_eq!(plan.nodes[0].neighbours.len(), 5, "three hosts and two switches");
    }

    #[test]
    fn path__names_every_shaped_link_in_order() {
        let two = plan(Topology::TwoSwitch { hosts: 8, rate: RATE, trunk: TRUNK });
        let across = two.path(Rank(0), Rank(4)).unwrap();
        assert_eq!(
            (across.tier, across.rates.as_slice()),
            (Tier::CrossTrunk, [RATE, TRUNK, RATE].as_slice())
        );
        let near = two.path(Rank(0), Rank(3)).unwrap();
        assert_eq!((near.tier, near.rates.len()), (Tier::SameSwitch, 2));
        assert!(two.path(Rank(0), Rank(8)).is_none());
        let fat = plan(Topology::LeafSpine {
            leaves: 2,
            hosts_per_leaf: 2,
            spines: 2,
            rate: RATE,
            uplink: TRUNK,
        });
        assert_eq!(fat.path(Rank(1), Rank(2)).unwrap().rates, [RATE, TRUNK, TRUNK, RATE]);
    }

    #[test]
    fn leaf_spine__a_leaf_spreads_over_all_spines() {
        let fat = plan(Topology::LeafSpine {
            leaves: 2,
            hosts_per_leaf: 2,
            spines: 3,
            rate: RATE,
            uplink: TRUNK,
        });
        let leaf = fat.nodes.iter().find(|n| n.name == "lf1").unwrap();
        assert_eq!(leaf.routes[0].via.len(), 3);
        let spine = fat.nodes.iter().find(|n| n.name == "sp2").unwrap();
        assert_eq!(spine.routes.len(), 2);
        assert_eq!(spine.routes[1].via, [Ipv4Addr::new(10, 78, 1, 9)]);
    }
}
