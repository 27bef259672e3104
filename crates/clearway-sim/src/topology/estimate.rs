//! How large a network will be, counted before anything is allocated.
//!
//! # Invariants
//! I1. Counting saturates: no description overflows it, however absurd.

use super::scale::product;
use super::{TopologyError, kind};
use crate::routing::PLAN_MAX;
use crate::spec::{FabricSpec, LANES_MAX, Routing, Topology};

/// Memory of a network at most, in bytes: a laptop has some left next to it.
pub const MEMORY_MAX: u128 = 4 << 30;
/// Bytes of a device: its name (24 and 16 characters), its state in the fabric.
const DEVICE_BYTES: u128 = 128;
/// Bytes of a channel: 16 in the graph, one cache line of state and its part of queues in the
/// fabric.
const CHANNEL_BYTES: u128 = 128;
/// Bytes of a lane: one cache line.
const LANE_BYTES: u128 = 64;
/// Bytes of a table of an explicit graph for each goal and switch: distance and set.
const TABLE_BYTES: u128 = 3;

/// How large a network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkSize {
    /// Hosts.
    pub hosts: u128,
    /// Hosts and switches.
    pub devices: u128,
    /// Directed channels: two for each cable.
    pub channels: u128,
    /// Lanes: channels times virtual lanes times steps; for explicit graphs as many as there can
    /// be.
    pub lanes: u128,
    /// Memory of all that.
    pub bytes: u128,
}

/// Counts what the network of `spec` is made of, without building it.
///
/// # Errors
/// Counts that cannot be, or more than [`MEMORY_MAX`]; the sentence says how many hosts would fit.
///
/// # Cost
/// O(levels) and no memory.
pub fn estimate(spec: &FabricSpec) -> Result<NetworkSize, TopologyError> {
    check(spec)?;
    let size = size(spec, &spec.topology);
    if size.bytes <= MEMORY_MAX {
        return Ok(size);
    }
    let fitting = largest(spec);
    Err(TopologyError::Memory {
        topology: kind(&spec.topology),
        hosts: size.hosts,
        bytes: size.bytes,
        fitting,
    })
}

/// Returns the most hosts that fit, by halving the range: sizes grow with hosts.
fn largest(spec: &FabricSpec) -> Option<u32> {
    let fits = |hosts: u32| {
        let topology = spec.topology.for_hosts(hosts);
        size(spec, &topology).bytes <= MEMORY_MAX && topology.hosts_wide() >= hosts.into()
    };
    let (mut good, mut bad) = (0, u32::MAX);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) { good = middle } else { bad = middle }
    }
    (good > 0).then_some(good)
}

fn size(spec: &FabricSpec, topology: &Topology) -> NetworkSize {
    let hosts = topology.hosts_wide();
    let rails = u128::from(spec.host.rails);
    let (switches, cables, steps, table) = match topology {
        Topology::Star { .. } => (1, hosts.saturating_mul(rails), 1, 0),
        Topology::TwoSwitch { trunks, .. } => {
            (2, hosts.saturating_mul(rails).saturating_add((*trunks).into()), 1, 0)
        }
        Topology::FatTree { children, parents, cables } => {
            let (switches, above) = tree_parts(children, parents, cables);
            let below = product(&[cables[0]]).saturating_mul(hosts).saturating_mul(rails);
            (switches, above.saturating_add(below), 1, 0)
        }
        &Topology::DragonflyXc { groups, columns, rows, black_cables, blue_cables, .. } => {
            let grid = [groups, rows, columns, 1, black_cables, blue_cables];
            let (switches, cables) = grid_parts(grid);
            (
                switches,
                cables.saturating_add(hosts.saturating_mul(rails)),
                grid_steps(spec, groups),
                0,
            )
        }
        &Topology::Dragonfly { groups, switches, local_cables, global_cables, .. } => {
            let grid = [groups, 1, switches, local_cables, 1, global_cables];
            let (switches, cables) = grid_parts(grid);
            (
                switches,
                cables.saturating_add(hosts.saturating_mul(rails)),
                grid_steps(spec, groups),
                0,
            )
        }
        Topology::Explicit { switches, cables, .. } => {
            let switches = switches.len() as u128;
            (switches, cables.len() as u128, LANES_MAX as u128, switches.saturating_mul(hosts))
        }
    };
    let devices = hosts.saturating_add(switches);
    let channels = cables.saturating_mul(2);
    let lanes_each = (u128::from(spec.classes.virtual_lanes.max(1)) * steps).min(LANES_MAX as u128);
    let lanes = channels.saturating_mul(lanes_each);
    let parts = [
        (devices, DEVICE_BYTES),
        (channels, CHANNEL_BYTES),
        (lanes, LANE_BYTES),
        (table, TABLE_BYTES),
    ];
    let bytes = parts
        .iter()
        .fold(0u128, |sum, (count, each)| sum.saturating_add(count.saturating_mul(*each)));
    NetworkSize { hosts, devices, channels, lanes, bytes }
}

/// Switches of a fat tree, and cables above the leaves.
fn tree_parts(children: &[u32], parents: &[u32], cables: &[u32]) -> (u128, u128) {
    (0..children.len()).fold((0u128, 0u128), |(switches, above), level| {
        let of_level =
            product(&children[level + 1..]).saturating_mul(product(&parts(parents, level + 1)));
        let up = (parents.get(level + 1), cables.get(level + 1));
        let each = product(&[up.0.copied().unwrap_or(0), up.1.copied().unwrap_or(0)]);
        (switches.saturating_add(of_level), above.saturating_add(of_level.saturating_mul(each)))
    })
}

fn parts(vector: &[u32], length: usize) -> Vec<u32> {
    vector.iter().take(length).copied().collect()
}

/// Routers of a dragonfly, and cables between them, from [groups, rows, columns, green, black,
/// blue].
fn grid_parts([groups, rows, columns, green, black, blue]: [u32; 6]) -> (u128, u128) {
    let pairs = |n: u32| u128::from(n) * u128::from(n.saturating_sub(1)) / 2;
    let greens = pairs(columns).saturating_mul(product(&[groups, rows, green]));
    let blacks = pairs(rows).saturating_mul(product(&[groups, columns, black]));
    let blues = pairs(groups).saturating_mul(blue.into());
    (product(&[groups, rows, columns]), greens.saturating_add(blacks).saturating_add(blues))
}

/// Steps at most.
fn grid_steps(spec: &FabricSpec, groups: u32) -> u128 {
    let detours = matches!(spec.routing, Routing::Valiant | Routing::Adaptive { .. });
    if groups > 2 && detours { 3 } else { 2 }
}

/// Refuses counts that cannot be.
fn check(spec: &FabricSpec) -> Result<(), TopologyError> {
    let topology = kind(&spec.topology);
    let some = |counts: &[(u32, &'static str)]| match counts.iter().find(|(count, _)| *count == 0) {
        Some(&(_, what)) => Err(TopologyError::Zero { topology, what }),
        None => Ok(()),
    };
    if matches!(spec.routing, Routing::Adaptive { minimal: 0, .. }) {
        return Err(TopologyError::NoCandidate);
    }
    some(&[(spec.host.rails, "rails of a host")])?;
    match &spec.topology {
        &Topology::Star { hosts } => some(&[(hosts, "hosts")]),
        &Topology::TwoSwitch { hosts, trunks } => {
            some(&[(hosts, "hosts"), (trunks, "trunks")])?;
            if hosts % 2 == 1 { Err(TopologyError::Odd { hosts }) } else { Ok(()) }
        }
        Topology::FatTree { children, parents, cables } => check_tree(children, parents, cables),
        &Topology::DragonflyXc {
            groups,
            columns,
            rows,
            hosts_per_router,
            black_cables,
            blue_cables,
        } => {
            some(&[
                (groups, "groups"),
                (columns, "columns"),
                (rows, "rows"),
                (hosts_per_router, "hosts at a router"),
            ])?;
            some(&[(if rows > 1 { black_cables } else { 1 }, "black cables")])?;
            some(&[(if groups > 1 { blue_cables } else { 1 }, "blue cables")])?;
            check_grid(topology, groups, product(&[rows, columns]), blue_cables)
        }
        &Topology::Dragonfly {
            groups,
            switches,
            hosts_per_switch,
            local_cables,
            global_cables,
        } => {
            some(&[
                (groups, "groups"),
                (switches, "switches"),
                (hosts_per_switch, "hosts at a switch"),
            ])?;
            some(&[(if switches > 1 { local_cables } else { 1 }, "local cables")])?;
            some(&[(if groups > 1 { global_cables } else { 1 }, "global cables")])?;
            check_grid(topology, groups, switches.into(), global_cables)
        }
        Topology::Explicit { hosts, switches, .. } => some(&[
            (u32::from(!hosts.is_empty()), "hosts"),
            (u32::from(!switches.is_empty()), "switches"),
        ]),
    }
}

fn check_tree(children: &[u32], parents: &[u32], cables: &[u32]) -> Result<(), TopologyError> {
    let zero = |vector: &[u32]| vector.is_empty() || vector.contains(&0);
    let named = [
        (children, "children on one level"),
        (parents, "parents on one level"),
        (cables, "cables on one level"),
    ];
    if children.len() != parents.len() || children.len() != cables.len() {
        return Err(TopologyError::Levels {
            children: children.len(),
            parents: parents.len(),
            cables: cables.len(),
        });
    }
    if let Some(&(_, what)) = named.iter().find(|(vector, _)| zero(vector)) {
        return Err(TopologyError::Zero { topology: "a fat tree", what });
    }
    if parents[0] != 1 {
        return Err(TopologyError::Leaves { parents: parents[0] });
    }
    Ok(())
}

fn check_grid(
    topology: &'static str,
    groups: u32,
    routers: u128,
    cables: u32,
) -> Result<(), TopologyError> {
    let counts = [
        (groups.into(), "groups"),
        (routers, "routers in a group"),
        (cables.into(), "cables between two groups"),
    ];
    match counts.into_iter().find(|&(count, _)| count > PLAN_MAX.into()) {
        Some((count, what)) => Err(TopologyError::Many { topology, what, count }),
        None => Ok(()),
    }
}
