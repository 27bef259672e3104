//! Lays the cables of each shape in the order in which the routers expect the ports.

use std::collections::BTreeMap;

use super::{DragonflyLinks, TopologyError, TreeLinks};
use crate::graph::{DeviceId, Graph, GraphBuilder};
use crate::routing::{DragonflyShape, FatTree};
use crate::spec::{FabricSpec, Topology};

/// Returns a fat tree: ports of a switch lead down child by child, then up parent by parent.
pub(super) fn tree(tree: &FatTree, links: TreeLinks) -> Graph {
    let levels = tree.levels();
    let hosts = tree.switches(levels.len() - 1) / levels[levels.len() - 1].width
        * levels[levels.len() - 1].below;
    let mut builder = GraphBuilder::with_hosts(hosts);
    for (place, level) in levels.iter().enumerate() {
        for number in 0..tree.switches(place) {
            builder.switch(tree_name(
                place,
                levels.len(),
                number / level.width,
                number % level.width,
            ));
        }
    }
    for host in 0..hosts {
        let leaf = DeviceId(levels[0].first + host / levels[0].below);
        (0..levels[0].down_cables).for_each(|_| builder.cable(DeviceId(host), leaf, links.host));
    }
    for (place, pair) in levels.windows(2).enumerate() {
        let (level, above) = (&pair[0], &pair[1]);
        for number in 0..tree.switches(place) {
            let (a, b) = (number / level.width / above.children, number % level.width);
            for parent in 0..level.parents {
                let up = DeviceId(above.first + a * above.width + b + parent * level.width);
                (0..level.up_cables)
                    .for_each(|_| builder.cable(DeviceId(level.first + number), up, links.up));
            }
        }
    }
    builder.build()
}

/// Returns the name of a switch: `leaf3`, `spine2`, and between them `pod1mid4` (with more than one
/// such level `pod1mid4l3`).
fn tree_name(place: usize, levels: usize, a: u32, b: u32) -> String {
    match place {
        _ if levels == 1 => "switch".to_owned(),
        0 => format!("leaf{a}"),
        _ if place + 1 == levels => format!("spine{b}"),
        _ if levels == 3 => format!("pod{a}mid{b}"),
        _ => format!("pod{a}mid{b}l{}", place + 1),
    }
}

/// Names of routers by group, row and column.
pub(super) type Namer = fn(u32, u32, u32) -> String;

/// Returns how routers of `topology` are called: Cray's group, chassis and slot; group and switch;
/// or left and right.
pub(super) fn namer(topology: &Topology) -> Namer {
    match topology {
        Topology::DragonflyXc { .. } => |group, row, column| format!("g{group}c{row}s{column}"),
        Topology::TwoSwitch { .. } => {
            |_, _, column| if column == 0 { "left".to_owned() } else { "right".to_owned() }
        }
        _ => |group, _, column| format!("g{group}s{column}"),
    }
}

/// Returns a dragonfly: ports of a router lead to its hosts, along its row, along its column, to
/// other groups, each in order of number.
pub(super) fn grid(grid: &DragonflyShape, links: DragonflyLinks, name: Namer) -> Graph {
    let hosts = grid.all_hosts();
    let mut builder = GraphBuilder::with_hosts(hosts);
    for (group, row) in
        (0..grid.groups).flat_map(|group| (0..grid.rows).map(move |row| (group, row)))
    {
        (0..grid.columns).for_each(|column| _ = builder.switch(name(group, row, column)));
    }
    for host in 0..hosts {
        let router = DeviceId(hosts + host / grid.hosts);
        (0..grid.rails).for_each(|_| builder.cable(DeviceId(host), router, links.host));
    }
    for group in 0..grid.groups {
        let router = |row: u32, column: u32| grid.router(group, row * grid.columns + column);
        for row in 0..grid.rows {
            for (a, b) in pairs(grid.columns) {
                (0..grid.green)
                    .for_each(|_| builder.cable(router(row, a), router(row, b), links.green));
            }
        }
        for column in 0..grid.columns {
            for (a, b) in pairs(grid.rows) {
                (0..grid.black)
                    .for_each(|_| builder.cable(router(a, column), router(b, column), links.black));
            }
        }
    }
    for (a, b) in pairs(grid.groups) {
        for cable in 0..grid.blue {
            let end = |group, other| grid.router(group, grid.gateway(group, other, cable));
            builder.cable(end(a, b), end(b, a), links.blue);
        }
    }
    builder.build()
}

/// Returns all pairs below `n`, the lower number first.
fn pairs(n: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..n).flat_map(move |a| (a + 1..n).map(move |b| (a, b)))
}

/// Returns an explicit graph, cable by cable.
pub(super) fn explicit(spec: &FabricSpec) -> Result<Graph, TopologyError> {
    let Topology::Explicit { hosts, switches, cables } = &spec.topology else {
        return Ok(GraphBuilder::default().build());
    };
    let count = hosts.len() as u32;
    let mut builder = GraphBuilder::with_hosts(count);
    let mut numbers: BTreeMap<&str, DeviceId> = BTreeMap::new();
    for (place, name) in hosts.iter().chain(switches).enumerate() {
        let device = DeviceId(place as u32);
        if device.0 < count {
            builder.rename(device, name.clone())
        } else {
            _ = builder.switch(name.clone())
        }
        if numbers.insert(name, device).is_some() {
            return Err(TopologyError::SameName { name: name.clone() });
        }
    }
    let mut loose: Vec<bool> = vec![true; hosts.len()];
    for (from, to, link) in cables {
        let find = |name: &String| {
            let unknown = || TopologyError::UnknownDevice {
                from: from.clone(),
                to: to.clone(),
                unknown: name.clone(),
            };
            numbers.get(name.as_str()).copied().ok_or_else(unknown)
        };
        let (a, b) = (find(from)?, find(to)?);
        let refuse = |why| Err(TopologyError::Cable { from: from.clone(), to: to.clone(), why });
        match (a.0 < count, b.0 < count) {
            _ if a == b => return refuse("both ends are the same device; remove it"),
            _ if usize::from(*link) >= spec.links.len() => {
                return refuse("its link is not among the links; name one that is");
            }
            (true, true) => return refuse("both ends are hosts; put a switch between them"),
            _ => {}
        }
        [a, b].iter().filter(|end| end.0 < count).for_each(|host| loose[host.index()] = false);
        builder.cable(a, b, *link);
    }
    match loose.iter().position(|&loose| loose) {
        Some(host) => Err(TopologyError::Loose { host: hosts[host].clone() }),
        None => Ok(builder.build()),
    }
}
