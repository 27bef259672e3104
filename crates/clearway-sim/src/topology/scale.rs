//! How many hosts a shape has, and the smallest shape of the same kind for a wanted number.

use crate::spec::Topology;

impl Topology {
    /// How many hosts there are; saturates.
    pub fn hosts(&self) -> u32 {
        u32::try_from(self.hosts_wide()).unwrap_or(u32::MAX)
    }

    /// The same without a bound.
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

    /// The smallest network of the same kind that holds `hosts`: stars and two switches take as many (two switches an even
    /// number), fat trees get as many subtrees below the top and dragonflies as many groups as are needed, more or fewer than
    /// now. An explicit graph stays as it is.
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

/// The product without overflow: beyond 2^127 it stays there.
pub(super) fn product(factors: &[u32]) -> u128 {
    factors.iter().fold(1, |product, &factor| product.saturating_mul(factor.into()))
}
