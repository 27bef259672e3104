//! How many hosts a shape has, which of them are neighbours, and the smallest shape of the same
//! kind for a wanted number.

use crate::graph::DeviceId;
use crate::spec::Topology;

impl Topology {
    /// Returns how many hosts there are; saturates.
    pub fn hosts(&self) -> u32 {
        u32::try_from(self.hosts_wide()).unwrap_or(u32::MAX)
    }

    /// Returns the same without a bound.
    pub(super) fn hosts_wide(&self) -> u128 {
        match self {
            Self::Star { hosts } | Self::TwoSwitch { hosts, .. } => (*hosts).into(),
            Self::FatTree { children, .. } => product(children),
            Self::DragonflyXc { groups, columns, rows, hosts_per_router, .. } => {
                product(&[*groups, *columns, *rows, *hosts_per_router])
            }
            Self::Dragonfly { groups, switches, hosts_per_switch, .. } => {
                product(&[*groups, *switches, *hosts_per_switch])
            }
            Self::Explicit { hosts, .. } => hosts.len() as u128,
        }
    }

    /// Returns the number of the outermost part of the network that `host` lies in: a subtree below
    /// the top of a fat tree, a group of a dragonfly, one of two switches. Zero where there is one
    /// part only, and in explicit graphs.
    pub fn neighbourhood(&self, host: DeviceId) -> u32 {
        let hosts = match self {
            Self::Star { .. } | Self::Explicit { .. } => return 0,
            Self::TwoSwitch { hosts, .. } => u128::from(*hosts / 2),
            Self::FatTree { children, .. } => match children.split_last() {
                Some((_, below)) if !below.is_empty() => product(below),
                _ => return 0,
            },
            Self::DragonflyXc { columns, rows, hosts_per_router, .. } => {
                product(&[*columns, *rows, *hosts_per_router])
            }
            Self::Dragonfly { switches, hosts_per_switch, .. } => {
                product(&[*switches, *hosts_per_switch])
            }
        };
        u128::from(host.0).checked_div(hosts).map_or(0, |part| part as u32)
    }

    /// Returns the smallest network of the same kind that holds `hosts`: stars and two switches
    /// take as many (two switches an even number), fat trees get as many subtrees below the top and
    /// dragonflies as many groups as are needed, more or fewer than now. An explicit graph stays as
    /// it is.
    pub fn for_hosts(&self, hosts: u32) -> Self {
        let hosts = hosts.max(1);
        // A part without hosts cannot be repeated; building refuses it by its own sentence.
        let parts = |part: u128| u128::from(hosts).div_ceil(part.max(1)) as u32;
        let mut other = self.clone();
        match &mut other {
            Self::Star { hosts: n } => *n = hosts,
            Self::TwoSwitch { hosts: n, .. } => *n = hosts.div_ceil(2).saturating_mul(2),
            Self::FatTree { children, .. } => {
                if let Some((top, rest)) = children.split_last_mut() {
                    *top = parts(product(rest));
                }
            }
            Self::DragonflyXc { groups, columns, rows, hosts_per_router, .. } => {
                *groups = parts(product(&[*columns, *rows, *hosts_per_router]));
            }
            Self::Dragonfly { groups, switches, hosts_per_switch, .. } => {
                *groups = parts(product(&[*switches, *hosts_per_switch]));
            }
            Self::Explicit { .. } => {}
        }
        other
    }
}

/// Returns the product without overflow: beyond 2^127 it stays there.
pub(super) fn product(factors: &[u32]) -> u128 {
    factors.iter().fold(1, |product, &factor| product.saturating_mul(factor.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::sample::{dragonfly, explicit, fat_tree, xc};

    #[test]
    fn neighbourhood__is_the_outermost_part() {
        let of = |topology: &Topology, host| topology.neighbourhood(DeviceId(host));
        let groups = xc([3, 2, 4, 2, 1, 1]);
        assert_eq!([of(&groups, 15), of(&groups, 16), of(&groups, 47)], [0, 1, 2]);
        let groups = dragonfly([3, 4, 2, 1, 1]);
        assert_eq!([of(&groups, 7), of(&groups, 8), of(&groups, 23)], [0, 1, 2]);
        let tree = fat_tree(&[2, 3, 4], &[1, 2, 2], &[1, 1, 1]);
        assert_eq!(
            [of(&tree, 5), of(&tree, 6), of(&tree, 23)],
            [0, 1, 3],
            "subtrees of the top, not leaves"
        );
        let pair = Topology::TwoSwitch { hosts: 6, trunks: 1 };
        assert_eq!([of(&pair, 2), of(&pair, 3)], [0, 1]);
        for one in [Topology::Star { hosts: 8 }, fat_tree(&[8], &[1], &[1]), explicit(8, [(0, 1)])]
        {
            assert_eq!(of(&one, 7), 0);
        }
    }
}
