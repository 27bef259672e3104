//! How many ports the switches of a shape need, and the shape with another number of hosts.
//!
//! # Model
//! Only the outermost count changes ([`Topology::for_hosts`]). A tree whose top switches run out of
//! ports gets another level, with half of the ports of the level below up, as large trees are
//! built.

use super::Topology;
use super::check::{SpecError, flaw};

/// Levels of a tree; a ninth would have more hosts than can be numbered.
const LEVELS_MAX: usize = 8;

/// Refuses shapes whose switches would need more than `ports` ports.
pub(super) fn check_ports(topology: &Topology, ports: Option<u32>) -> Result<(), SpecError> {
    let Some(ports) = ports else { return Ok(()) };
    let needed = ports_needed(topology);
    if needed <= u64::from(ports) {
        return Ok(());
    }
    flaw("topology", format!("a switch would need {needed} ports, but `switch.ports` says {ports}"))
}

/// Ports of the switch that needs most. Cables between groups are spread over the switches of a
/// group.
fn ports_needed(topology: &Topology) -> u64 {
    let wide = |count: u32| u64::from(count);
    let others = |count: u32| u64::from(count.saturating_sub(1));
    match topology {
        Topology::Star { hosts } => wide(*hosts),
        Topology::TwoSwitch { hosts, trunks } => wide(*hosts) / 2 + wide(*trunks),
        Topology::FatTree { children, parents, cables } => {
            let up = |level: usize| match (parents.get(level), cables.get(level)) {
                (Some(parents), Some(cables)) => wide(*parents) * wide(*cables),
                _ => 0,
            };
            let at = |level: usize| wide(children[level]) * wide(cables[level]) + up(level + 1);
            (0..children.len().min(cables.len())).map(at).max().unwrap_or(0)
        }
        Topology::DragonflyXc {
            groups,
            columns,
            rows,
            hosts_per_router,
            black_cables,
            blue_cables,
        } => {
            let blue = (others(*groups) * wide(*blue_cables))
                .div_ceil(wide(*columns).saturating_mul(wide(*rows)).max(1));
            wide(*hosts_per_router) + others(*columns) + others(*rows) * wide(*black_cables) + blue
        }
        Topology::Dragonfly { groups, switches, hosts_per_switch, local_cables, global_cables } => {
            let global = (others(*groups) * wide(*global_cables)).div_ceil(wide(*switches).max(1));
            wide(*hosts_per_switch) + others(*switches) * wide(*local_cables) + global
        }
        Topology::Explicit { switches, cables, .. } => {
            let mut degree = std::collections::BTreeMap::new();
            for end in cables.iter().flat_map(|(a, b, _)| [a, b]) {
                *degree.entry(end.as_str()).or_insert(0u64) += 1;
            }
            switches.iter().filter_map(|name| degree.get(name.as_str()).copied()).max().unwrap_or(0)
        }
    }
}

/// Returns the smallest shape like `topology` with at least `wanted` hosts.
///
/// # Errors
/// Why there is none.
pub(super) fn resize(
    topology: &Topology,
    wanted: u32,
    ports: Option<u32>,
) -> Result<Topology, String> {
    if wanted == 0 {
        return Err("0 hosts make no network; ask for 1 at least".to_owned());
    }
    let mut grown = topology.for_hosts(wanted);
    match &mut grown {
        Topology::FatTree { children, parents, cables } => {
            grow_tree(children, parents, cables, wanted, ports)
        }
        Topology::Explicit { hosts, .. } if (hosts.len() as u64) < u64::from(wanted) => {
            return Err(format!(
                "this network has {} hosts, cable by cable; {wanted} do not fit",
                hosts.len()
            ));
        }
        _ => {}
    }
    match check_ports(&grown, ports) {
        Ok(()) => Ok(grown),
        Err(flaw) => {
            Err(format!("{wanted} hosts do not fit into this kind of network: {}", flaw.why))
        }
    }
}

fn grow_tree(
    children: &mut Vec<u32>,
    parents: &mut Vec<u32>,
    cables: &mut Vec<u32>,
    wanted: u32,
    ports: Option<u32>,
) {
    let ports = ports.unwrap_or(u32::MAX);
    loop {
        let Some((top, below)) = children.split_last_mut() else { return };
        let inner =
            below.iter().fold(1u32, |product, factor| product.saturating_mul(*factor)).max(1);
        *top = wanted.div_ceil(inner).max(1);
        let per_child = cables.last().copied().unwrap_or(1).max(1);
        let fits = top.saturating_mul(per_child) <= ports;
        if fits || children.len() >= LEVELS_MAX {
            return;
        }
        let half = (ports / 2).max(1);
        if let Some(top) = children.last_mut() {
            *top = (half / per_child).max(1);
        }
        children.push(1);
        parents.push(half);
        cables.push(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(children: &[u32], parents: &[u32], cables: &[u32]) -> Topology {
        Topology::FatTree {
            children: children.to_vec(),
            parents: parents.to_vec(),
            cables: cables.to_vec(),
        }
    }

    #[test]
    fn resize__a_tree_of_36_port_switches_gets_leaves_then_a_level() {
        let small = tree(&[18, 8], &[1, 18], &[1, 1]);
        assert_eq!(resize(&small, 128, Some(36)), Ok(small.clone()));
        assert_eq!(resize(&small, 648, Some(36)), Ok(tree(&[18, 36], &[1, 18], &[1, 1])));
        assert_eq!(resize(&small, 649, Some(36)), Ok(tree(&[18, 18, 3], &[1, 18, 18], &[1, 1, 1])));
        assert_eq!(
            resize(&small, 11_664, Some(36)),
            Ok(tree(&[18, 18, 36], &[1, 18, 18], &[1, 1, 1]))
        );
    }

    #[test]
    fn resize__dragonflies_get_groups_until_their_ports_are_used_up() {
        let one = Topology::Dragonfly {
            groups: 1,
            switches: 16,
            hosts_per_switch: 8,
            local_cables: 1,
            global_cables: 4,
        };
        let Ok(Topology::Dragonfly { groups, .. }) = resize(&one, 485, Some(64)) else {
            panic!("four groups fit")
        };
        assert_eq!(groups, 4);
        assert!(resize(&one, 0, Some(64)).unwrap_err().contains("ask for 1 at least"));
        let sentence = resize(&one, 1_000_000, Some(64)).unwrap_err();
        assert!(sentence.contains("`switch.ports` says 64"), "{sentence}");
    }

    #[test]
    fn check_ports__counts_both_directions_of_a_level() {
        assert!(check_ports(&tree(&[18, 36], &[1, 18], &[1, 1]), Some(36)).is_ok());
        assert!(check_ports(&tree(&[18, 37], &[1, 18], &[1, 1]), Some(36)).is_err());
        assert!(check_ports(&tree(&[18, 18], &[1, 10], &[1, 2]), Some(36)).is_err());
    }
}
