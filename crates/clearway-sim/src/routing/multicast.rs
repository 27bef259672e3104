//! The tree on which copies of one message reach all members of a group: fixed by sender and
//! members.
//!
//! # Invariants
//! I1. Each member but the sender is the end of exactly one channel of the tree, and no device is
//!     entered twice.

use std::collections::{BTreeMap, BTreeSet};

use super::{RouteTarget, RoutedGraph};
use crate::graph::{ChannelId, DeviceId};

/// A channel that one copy takes, and its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The channel.
    pub channel: ChannelId,
    /// The step it is taken at.
    pub step: u8,
}

/// Where copies leave each device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MulticastTree {
    branches: BTreeMap<DeviceId, Vec<Branch>>,
}

impl MulticastTree {
    /// Returns the branches of copies that leave `device`, in the order of its ports; none where
    /// the tree does not pass or ends.
    pub fn branches(&self, device: DeviceId) -> &[Branch] {
        self.branches.get(&device).map_or(&[], Vec::as_slice)
    }
}

/// Returns the tree from `from` to `members` (the sender and repetitions among them are passed
/// over). Make it once for a group and sender.
///
/// Ways are the shortest; upwards in a fat tree all members share the one that the sender's number
/// stands for, and each other group of a dragonfly is entered once, over the cable nearest to the
/// sender.
///
/// # Cost
/// O(members * length of a way).
pub fn tree(network: &RoutedGraph, from: DeviceId, members: &[DeviceId]) -> MulticastTree {
    let RoutedGraph { graph, router } = network;
    let mut entered = BTreeSet::from([from]);
    let mut branches: BTreeMap<DeviceId, Vec<Branch>> = BTreeMap::new();
    for &member in members {
        let way = router.way_by(graph, from, member, RouteTarget::Source);
        // Ways may part and meet again: join the tree where this one touches it last.
        let new = way
            .iter()
            .rev()
            .take_while(|(channel, _)| !entered.contains(&graph.channel(*channel).to))
            .count();
        for &(channel, step) in &way[way.len() - new..] {
            entered.insert(graph.channel(channel).to);
            branches.entry(graph.channel(channel).from).or_default().push(Branch { channel, step });
        }
    }
    branches.values_mut().for_each(|leaving| leaving.sort_unstable_by_key(|branch| branch.channel));
    MulticastTree { branches }
}
