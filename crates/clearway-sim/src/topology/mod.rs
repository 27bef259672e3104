//! Turns the description of a network's shape into a graph and the router that knows it; refuses
//! what cannot be.
//!
//! # Model
//! Hosts are numbered first, by position: neighbours in number share a switch. Then the switches:
//! of a tree from the leaves up, of a dragonfly group by group and row by row. All ports of a host
//! ([`crate::spec::HostSpec::rails`]) go to the same switch, except in explicit graphs, which are
//! cabled as written.
//!
//! # Source
//! Fat trees: Öhring et al. (IPPS 1995). Dragonflies: Kim et al. (ISCA 2008); cables between groups
//! go round the routers in turn, so that no router has two more than another.
//!
//! # Invariants
//! I1. Sizes are checked before anything is allocated ([`estimate`]).

mod cabling;
mod error;
mod estimate;
mod node_map;
#[cfg(test)]
pub(crate) mod sample;
mod scale;
#[cfg(test)]
mod tests;

pub use error::TopologyError;
pub use estimate::{MEMORY_MAX, NetworkSize, estimate};
pub use node_map::node_map;

pub use crate::routing::RoutedGraph;

use crate::graph::Graph;
use crate::routing::{DragonflyShape, FatTree, ForwardingTableError, Router};
use crate::spec::{FabricSpec, LANES_MAX, LinkRole, Routing, Topology};

/// Builds the network that `spec` describes.
///
/// # Errors
/// A shape that cannot be, routing that makes no sense on it, too few lanes, too much memory: one
/// sentence each.
///
/// # Cost
/// O(channels); explicit graphs O(switches * channels).
pub fn build(spec: &FabricSpec) -> Result<RoutedGraph, TopologyError> {
    estimate(spec)?;
    let network = match shape(spec)? {
        Shape::Tree(tree, links) => {
            let router =
                Router::from_tree(tree.clone(), spec.routing).ok_or_else(|| unfit(spec))?;
            RoutedGraph { graph: cabling::tree(&tree, links), router }
        }
        Shape::Grid(grid, links) => {
            let pair = matches!(spec.topology, Topology::TwoSwitch { .. });
            let router = if pair {
                Router::from_pair(grid, spec.routing)
            } else {
                Router::from_dragonfly(grid, spec.routing)
            };
            let router = router.ok_or_else(|| unfit(spec))?;
            let namer = cabling::namer(&spec.topology);
            RoutedGraph { graph: cabling::grid(&grid, links, namer), router }
        }
        Shape::Explicit => {
            let graph = cabling::explicit(spec)?;
            let router = Router::from_graph(&graph, spec.routing).ok_or_else(|| unfit(spec))?;
            let router = router.map_err(|why| no_table(spec, &graph, why))?;
            RoutedGraph { graph, router }
        }
    };
    enough_lanes(spec, network.router.steps())?;
    Ok(network)
}

/// A checked shape, with the places of its links.
enum Shape {
    Tree(FatTree, TreeLinks),
    Grid(DragonflyShape, DragonflyLinks),
    Explicit,
}

/// Links of a tree.
#[derive(Clone, Copy)]
struct TreeLinks {
    host: u8,
    up: u8,
}

/// Links of a dragonfly; those of a dimension that it does not have are not looked at.
#[derive(Clone, Copy)]
struct DragonflyLinks {
    host: u8,
    green: u8,
    black: u8,
    blue: u8,
}

/// Returns the shape that `spec` describes; its size was checked by [`estimate`].
fn shape(spec: &FabricSpec) -> Result<Shape, TopologyError> {
    let link = |role: LinkRole| {
        spec.link(role).ok_or(TopologyError::NoLink { topology: kind(&spec.topology), role })
    };
    let link_if = |count: u32, role| if count > 1 { link(role) } else { Ok(0) };
    let rails = spec.host.rails;
    Ok(match &spec.topology {
        Topology::Star { hosts } => {
            let host = link(LinkRole::Host)?;
            Shape::Tree(FatTree::new(&[*hosts], &[1], &[1], rails), TreeLinks { host, up: 0 })
        }
        Topology::FatTree { children, parents, cables } => {
            let links = TreeLinks {
                host: link(LinkRole::Host)?,
                up: link_if(children.len() as u32, LinkRole::Up)?,
            };
            Shape::Tree(FatTree::new(children, parents, cables, rails), links)
        }
        Topology::TwoSwitch { hosts, trunks } => {
            let (host, green) = (link(LinkRole::Host)?, link(LinkRole::Up)?);
            let (hosts, green_cables) = (hosts / 2, *trunks);
            let grid = DragonflyShape {
                groups: 1,
                rows: 1,
                columns: 2,
                hosts,
                rails,
                green: green_cables,
                black: 1,
                blue: 1,
            };
            Shape::Grid(grid, DragonflyLinks { host, green, black: 0, blue: 0 })
        }
        &Topology::DragonflyXc {
            groups,
            columns,
            rows,
            hosts_per_router,
            black_cables,
            blue_cables,
        } => {
            let links = DragonflyLinks {
                host: link(LinkRole::Host)?,
                green: link_if(columns, LinkRole::Green)?,
                black: link_if(rows, LinkRole::Black)?,
                blue: link_if(groups, LinkRole::Blue)?,
            };
            let (hosts, black, blue) = (hosts_per_router, black_cables, blue_cables);
            Shape::Grid(
                DragonflyShape { groups, rows, columns, hosts, rails, green: 1, black, blue },
                links,
            )
        }
        &Topology::Dragonfly {
            groups,
            switches,
            hosts_per_switch,
            local_cables,
            global_cables,
        } => {
            let links = DragonflyLinks {
                host: link(LinkRole::Host)?,
                green: link_if(switches, LinkRole::Local)?,
                black: 0,
                blue: link_if(groups, LinkRole::Global)?,
            };
            let (hosts, green, blue) = (hosts_per_switch, local_cables, global_cables);
            Shape::Grid(
                DragonflyShape {
                    groups,
                    rows: 1,
                    columns: switches,
                    hosts,
                    rails,
                    green,
                    black: 1,
                    blue,
                },
                links,
            )
        }
        Topology::Explicit { .. } => Shape::Explicit,
    })
}

/// Returns what people call the shape.
fn kind(topology: &Topology) -> &'static str {
    match topology {
        Topology::Star { .. } => "a star",
        Topology::TwoSwitch { .. } => "a pair of switches",
        Topology::FatTree { .. } => "a fat tree",
        Topology::DragonflyXc { .. } => "an XC dragonfly",
        Topology::Dragonfly { .. } => "a dragonfly",
        Topology::Explicit { .. } => "an explicit graph",
    }
}

fn unfit(spec: &FabricSpec) -> TopologyError {
    let (routing, works) = match (spec.routing, &spec.topology) {
        (Routing::DestinationModulo, Topology::Explicit { .. }) => {
            ("destination-modulo routing", "minimal, ecmp, spray and adaptive without detours")
        }
        (Routing::DestinationModulo, _) => {
            ("destination-modulo routing", "minimal, ecmp, spray, valiant and adaptive")
        }
        (Routing::Valiant, Topology::Explicit { .. }) => {
            ("valiant routing", "minimal, ecmp, spray and adaptive without detours")
        }
        (Routing::Valiant, _) => (
            "valiant routing",
            "minimal, destination-modulo, ecmp, spray and adaptive without detours",
        ),
        _ => ("adaptive routing with detours", "adaptive without detours, minimal, ecmp and spray"),
    };
    TopologyError::Routing { topology: kind(&spec.topology), routing, works }
}

fn no_table(spec: &FabricSpec, graph: &Graph, why: ForwardingTableError) -> TopologyError {
    let name = |device| graph.name(device).to_owned();
    match why {
        ForwardingTableError::Apart(from, to) => {
            TopologyError::Apart { from: name(from), to: name(to) }
        }
        ForwardingTableError::Long(from, to) => {
            TopologyError::Long { from: name(from), to: name(to) }
        }
        ForwardingTableError::Steps(tried) => lanes(spec, u32::from(tried) + 1),
    }
}

fn enough_lanes(spec: &FabricSpec, steps: u8) -> Result<(), TopologyError> {
    let fits = usize::from(spec.classes.virtual_lanes.max(1)) * usize::from(steps) <= LANES_MAX;
    if fits { Ok(()) } else { Err(lanes(spec, u32::from(steps))) }
}

fn lanes(spec: &FabricSpec, steps: u32) -> TopologyError {
    let virtual_lanes = u32::from(spec.classes.virtual_lanes.max(1));
    TopologyError::Lanes {
        virtual_lanes,
        steps,
        needed: virtual_lanes * steps,
        fitting: LANES_MAX as u32 / steps,
    }
}
