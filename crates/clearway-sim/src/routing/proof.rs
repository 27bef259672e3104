//! Proves that no packets can wait for each other in a circle: the channels they hold and ask for
//! have an order.
//!
//! # Model
//! A packet that holds a buffer behind channel `a` at step `s` may ask for one behind `b` at step
//! `t`. These pairs, over all ways that the router can produce, are the edges of a graph; without a
//! circle in it there is no deadlock.
//!
//! # Source
//! Dally, Seitz, "Deadlock-free message routing in multiprocessor interconnection networks" (1987).
//!
//! # Not here
//! Copies of a multicast that hold several channels at once: in a network that is no tree, hold-all
//! replication can block even where every single way is free.

use core::fmt;

use clearway_proto::base::RandomKey;

use super::dragonfly::DragonflyRouter;
use super::tree::FatTree;
use super::{RoutedGraph, RouterKind};
use crate::graph::{ChannelId, DeviceId, Graph};

/// Ways that are walked at most: about a second. Larger machines are sampled.
const WAYS_MAX: u64 = 1 << 20;
/// Channels of a circle that its sentence names.
const NAMED_MAX: usize = 8;

/// What a proof rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlockProof {
    /// Pairs of a channel held and one asked for.
    pub dependencies: u64,
    /// Which ways were walked.
    pub scope: ProofScope,
}

/// Which ways were walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofScope {
    /// All.
    Every,
    /// This many, drawn evenly from all sources, targets and detours.
    Sampled(u64),
}

/// Channels that can wait for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    channels: Vec<(String, u8)>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packets can wait for each other in a circle of channels: ")?;
        for (i, (label, step)) in self.channels.iter().take(NAMED_MAX).enumerate() {
            write!(f, "{}{label} at step {step}", if i == 0 { "" } else { ", " })?;
        }
        match self.channels.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl core::error::Error for Cycle {}

/// Proves that the ways of `network` are free of deadlock. Walks all of them, or a million drawn
/// evenly where there are more.
///
/// # Errors
/// The circle that was found.
///
/// # Cost
/// About a second and some bytes for each channel and step.
pub fn prove_deadlock_free(network: &RoutedGraph) -> Result<DeadlockProof, Cycle> {
    prove(network, |step| step)
}

/// Returns the same if the router used step `rule(step)` instead of each step.
pub(super) fn prove(
    network: &RoutedGraph,
    rule: impl Fn(u8) -> u8,
) -> Result<DeadlockProof, Cycle> {
    let (all, scope) = collect(network, rule);
    let label = |(channel, step)| (network.graph.label(channel), step);
    match all.cycle() {
        None => Ok(DeadlockProof { dependencies: all.count, scope }),
        Some(cycle) => Err(Cycle { channels: cycle.into_iter().map(label).collect() }),
    }
}

/// Returns all dependencies of `network`, steps changed by `rule`.
pub(super) fn collect(
    network: &RoutedGraph,
    rule: impl Fn(u8) -> u8,
) -> (Dependencies, ProofScope) {
    let (graph, router) = (&network.graph, &network.router);
    let mut all = Dependencies::new(graph, router.steps());
    let mut add = |from: (ChannelId, u8), to: (ChannelId, u8)| {
        all.add((from.0, rule(from.1)), (to.0, rule(to.1)))
    };
    let scope = match &router.0 {
        RouterKind::Tree(tree) => walk_tree(graph, tree, &mut add),
        RouterKind::Grid(grid) => walk_grid(graph, grid, &mut add),
        RouterKind::Table(table) => {
            table.dependencies(graph, table.steps(), add);
            ProofScope::Every
        }
    };
    (all, scope)
}

/// Returns the first host of each switch that has hosts.
fn first_hosts(graph: &Graph) -> Vec<DeviceId> {
    let mut hosts: Vec<(DeviceId, DeviceId)> = (0..graph.hosts())
        .map(DeviceId)
        .map(|host| (graph.channel(ChannelId(graph.ports(host).start)).to, host))
        .collect();
    hosts.sort_unstable();
    hosts.dedup_by_key(|&mut (switch, _)| switch);
    hosts.into_iter().map(|(_, host)| host).collect()
}

fn walk_tree(
    graph: &Graph,
    tree: &FatTree,
    add: &mut impl FnMut((ChannelId, u8), (ChannelId, u8)),
) -> ProofScope {
    // All ways to hosts of one leaf are equal but for the last cable, which waits for nothing.
    let hosts = first_hosts(graph);
    let mut pair =
        |from, to| tree.dependencies(graph, from, to, |held, asked| add((held, 0), (asked, 0)));
    let count = hosts.len() as u64;
    if count.saturating_mul(count).saturating_mul(tree.ways()) <= WAYS_MAX {
        for &from in &hosts {
            hosts.iter().for_each(|&to| pair(from, to));
        }
        return ProofScope::Every;
    }
    let pairs = (WAYS_MAX / tree.ways()).max(1);
    let mut draw = RandomKey::new(0).purpose("proof").stream();
    for _ in 0..pairs {
        pair(hosts[draw.below(count) as usize], hosts[draw.below(count) as usize]);
    }
    ProofScope::Sampled(pairs.saturating_mul(tree.ways()))
}

fn walk_grid(
    graph: &Graph,
    grid: &DragonflyRouter,
    add: &mut impl FnMut((ChannelId, u8), (ChannelId, u8)),
) -> ProofScope {
    let hosts = first_hosts(graph);
    let mut walk = |from, to, plan| {
        let way = grid.way_of_plan(graph, from, to, plan);
        way.windows(2).for_each(|pair| add(pair[0], pair[1]));
    };
    let count = hosts.len() as u64;
    let ways = |from: DeviceId| {
        hosts.iter().map(move |&to| grid.ways(from, to)).fold(0, u64::saturating_add)
    };
    let few = count.saturating_mul(count) <= WAYS_MAX;
    if few && hosts.iter().map(|&from| ways(from)).fold(0, u64::saturating_add) <= WAYS_MAX {
        for &from in &hosts {
            for &to in &hosts {
                (0..grid.ways(from, to)).for_each(|plan| walk(from, to, plan));
            }
        }
        return ProofScope::Every;
    }
    let mut draw = RandomKey::new(0).purpose("proof").stream();
    for _ in 0..WAYS_MAX {
        let (from, to) = (hosts[draw.below(count) as usize], hosts[draw.below(count) as usize]);
        walk(from, to, draw.below(grid.ways(from, to)));
    }
    ProofScope::Sampled(WAYS_MAX)
}

/// Which (channel, step) can wait for which.
pub(super) struct Dependencies {
    steps: u32,
    /// At `channel * steps + step`: those that its packets can ask for.
    waits: Vec<Vec<u32>>,
    count: u64,
}

impl Dependencies {
    pub(super) fn new(graph: &Graph, steps: u8) -> Self {
        let steps = u32::from(steps);
        Self { steps, waits: vec![Vec::new(); graph.channels().len() * steps as usize], count: 0 }
    }

    pub(super) fn add(&mut self, held: (ChannelId, u8), asked: (ChannelId, u8)) {
        let place = |(channel, step): (ChannelId, u8)| channel.0 * self.steps + u32::from(step);
        let (held, asked) = (place(held), place(asked));
        let known = &mut self.waits[held as usize];
        if let Err(at) = known.binary_search(&asked) {
            known.insert(at, asked);
            self.count += 1;
        }
    }

    #[cfg(test)]
    pub(super) fn has(&self, held: (ChannelId, u8), asked: (ChannelId, u8)) -> bool {
        let place = |(channel, step): (ChannelId, u8)| channel.0 * self.steps + u32::from(step);
        self.waits[place(held) as usize].binary_search(&place(asked)).is_ok()
    }

    /// Returns a circle, if there is one: depth first, without recursion.
    pub(super) fn cycle(&self) -> Option<Vec<(ChannelId, u8)>> {
        #[derive(Clone, Copy, PartialEq)]
        enum WalkState {
            No,
            OnPath,
            Done,
        }
        let mut seen = vec![WalkState::No; self.waits.len()];
        for root in 0..self.waits.len() {
            if seen[root] != WalkState::No {
                continue;
            }
            seen[root] = WalkState::OnPath;
            let mut path = vec![(root, 0)];
            while let Some((at, next)) = path.last_mut() {
                let Some(&ahead) = self.waits[*at].get(*next) else {
                    seen[*at] = WalkState::Done;
                    path.pop();
                    continue;
                };
                *next += 1;
                match seen[ahead as usize] {
                    WalkState::Done => {}
                    WalkState::No => {
                        seen[ahead as usize] = WalkState::OnPath;
                        path.push((ahead as usize, 0));
                    }
                    WalkState::OnPath => {
                        let on_circle =
                            path.iter().skip_while(|&&(node, _)| node != ahead as usize);
                        return Some(on_circle.map(|&(node, _)| self.name(node)).collect());
                    }
                }
            }
        }
        None
    }

    fn name(&self, node: usize) -> (ChannelId, u8) {
        (ChannelId(node as u32 / self.steps), (node as u32 % self.steps) as u8)
    }
}
