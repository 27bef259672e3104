//! Shortest ways through any graph, from a table of next channels made once.
//!
//! # Model
//! Hosts that hang on one switch only share that switch as their *goal*; other hosts are goals
//! themselves. For each goal and each switch the table has the distance and the set of channels
//! that lead closer; equal sets of a switch are kept once. A packet's step is the number of its
//! hops so far, but at most the last step. How many steps suffice is tried out: the fewest for
//! which no channel can wait for itself.
//!
//! # Invariants
//! I1. Distances fall by one with each hop, so every way ends.
//! I2. `next` gives the same answer when it is asked again for a packet that has not moved.

use std::collections::{BTreeMap, VecDeque};

use super::proof::Dependencies;
use super::selection::{SelectionRule, pick};
use super::{Backlog, Transit};
use crate::graph::{ChannelId, DeviceId, Graph};
use crate::spec::LANES_MAX;

/// No way: the distance of what cannot be reached.
const FAR: u8 = u8::MAX;
/// Switches on a way at most: a byte holds these numbers and [`FAR`].
pub(crate) const DISTANCE_MAX: u32 = 250;

/// Next channels for each goal and switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForwardingTable {
    rule: SelectionRule,
    steps: u8,
    hosts: u32,
    switches: u32,
    /// What leads to each host.
    goals: Vec<u32>,
    /// The device of each goal.
    goal_devices: Vec<DeviceId>,
    /// Hops to go, at `goal * switches + switch`.
    distance: Vec<u8>,
    /// Which of the switch's sets, at the same place.
    set: Vec<u16>,
    /// Where each switch's sets begin in `sets`.
    first_set: Vec<u32>,
    /// Where each set begins in `pool`, and its length.
    sets: Vec<(u32, u32)>,
    pool: Vec<ChannelId>,
}

/// Why there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardingTableError {
    /// No way from one device to the other.
    Apart(DeviceId, DeviceId),
    /// More than [`DISTANCE_MAX`] hops between two devices.
    Long(DeviceId, DeviceId),
    /// This many steps do not suffice.
    Steps(u8),
}

impl ForwardingTable {
    /// Creates the table of `graph`, whose hosts all have a switch. O(goals * channels).
    pub(crate) fn new(graph: &Graph, rule: SelectionRule) -> Result<Self, ForwardingTableError> {
        let (hosts, switches) = (graph.hosts(), graph.devices() - graph.hosts());
        let (goals, goal_devices) = goals(graph);
        let mut table = Self {
            rule,
            steps: 1,
            hosts,
            switches,
            goals,
            goal_devices,
            distance: Vec::new(),
            set: Vec::new(),
            first_set: Vec::new(),
            sets: Vec::new(),
            pool: Vec::new(),
        };
        for goal in 0..table.goal_devices.len() {
            table.measure(graph, goal)?;
        }
        table.collect_sets(graph);
        table.steps = table.fewest_steps(graph)?;
        Ok(table)
    }

    /// Adds the distances to one goal.
    fn measure(&mut self, graph: &Graph, goal: usize) -> Result<(), ForwardingTableError> {
        let begin = self.distance.len();
        self.distance.resize(begin + self.switches as usize, FAR);
        let device = self.goal_devices[goal];
        let mut reached = VecDeque::from([(device, 0u32)]);
        if !graph.is_host(device) {
            self.distance[begin + (device.0 - self.hosts) as usize] = 0;
        }
        while let Some((device, far)) = reached.pop_front() {
            for port in graph.ports(device) {
                let next = graph.channel(ChannelId(port)).to;
                if graph.is_host(next) {
                    continue;
                }
                let distance = &mut self.distance[begin + (next.0 - self.hosts) as usize];
                if *distance == FAR {
                    if far >= DISTANCE_MAX {
                        return Err(ForwardingTableError::Long(self.goal_devices[goal], next));
                    }
                    *distance = far as u8 + 1;
                    reached.push_back((next, far + 1));
                }
            }
        }
        match self.distance[begin..].iter().position(|&distance| distance == FAR) {
            Some(switch) => Err(ForwardingTableError::Apart(
                DeviceId(self.hosts + switch as u32),
                self.goal_devices[goal],
            )),
            None => Ok(()),
        }
    }

    /// Finds for each switch and goal the channels that lead closer.
    fn collect_sets(&mut self, graph: &Graph) {
        self.set = vec![0; self.distance.len()];
        for switch in 0..self.switches {
            self.first_set.push(self.sets.len() as u32);
            let mut known: BTreeMap<Vec<ChannelId>, u16> = BTreeMap::new();
            for goal in 0..self.goal_devices.len() {
                let at = goal * self.switches as usize + switch as usize;
                let closer: Vec<ChannelId> = graph
                    .ports(DeviceId(self.hosts + switch))
                    .map(ChannelId)
                    .filter(|&channel| {
                        let to = graph.channel(channel).to;
                        to == self.goal_devices[goal]
                            || !graph.is_host(to)
                                && u16::from(self.distance_of(goal, to)) + 1
                                    == u16::from(self.distance[at])
                    })
                    .collect();
                let place = known.len() as u16;
                self.set[at] = *known.entry(closer).or_insert_with_key(|set| {
                    self.sets.push((self.pool.len() as u32, set.len() as u32));
                    self.pool.extend(set);
                    place
                });
            }
        }
    }

    fn distance_of(&self, goal: usize, switch: DeviceId) -> u8 {
        self.distance[goal * self.switches as usize + (switch.0 - self.hosts) as usize]
    }

    /// Returns the channels that lead closer to `goal`; empty at the goal.
    fn closer(&self, goal: usize, switch: DeviceId) -> &[ChannelId] {
        let switch = (switch.0 - self.hosts) as usize;
        let place =
            u32::from(self.set[goal * self.switches as usize + switch]) + self.first_set[switch];
        let (begin, length) = self.sets[place as usize];
        &self.pool[begin as usize..(begin + length) as usize]
    }

    /// Hops between switches at most.
    fn longest(&self) -> u8 {
        self.distance.iter().copied().max().unwrap_or(0)
    }

    /// Returns the fewest steps for which no channel can wait for itself.
    fn fewest_steps(&self, graph: &Graph) -> Result<u8, ForwardingTableError> {
        // One step for each hop always suffices.
        let enough = self.longest().max(1);
        for steps in 1..=enough.min(LANES_MAX as u8) {
            let mut all = Dependencies::new(graph, steps);
            self.dependencies(graph, steps, |from, to| all.add(from, to));
            if all.cycle().is_none() {
                return Ok(steps);
            }
        }
        Err(ForwardingTableError::Steps(LANES_MAX as u8))
    }

    pub(crate) fn steps(&self) -> u8 {
        self.steps
    }

    pub(super) fn next<B: Backlog>(
        &self,
        graph: &Graph,
        at: DeviceId,
        transit: &mut Transit,
        backlog: &B,
    ) -> Option<ChannelId> {
        let goal = self.goals[transit.target.index()] as usize;
        let key = self.rule.key(transit, at.0);
        if graph.is_host(at) {
            (transit.step, transit.via) = (0, Transit::DIRECT);
            let rails = self.rails(graph, goal, at);
            let count = rails.clone().count() as u32;
            let nth = |n| rails.clone().nth(n as usize).unwrap_or(ChannelId(graph.ports(at).start));
            return pick(self.rule, key, count, nth, backlog);
        }
        if at == self.goal_devices[goal] {
            let ports = graph.ports(transit.target);
            let into = |n| graph.channel(ChannelId(ports.start + n)).reverse;
            return pick(self.rule, key, ports.end - ports.start, into, backlog);
        }
        let distance = u32::from(self.distance_of(goal, at));
        if transit.via == Transit::DIRECT {
            transit.via = distance;
        }
        let hops = transit.via.saturating_sub(distance);
        transit.step = hops.min(u32::from(self.steps) - 1) as u8;
        let closer = self.closer(goal, at);
        pick(self.rule, key, closer.len() as u32, |n| closer[n as usize], backlog)
    }

    /// Returns the ports of `host` that begin a shortest way.
    fn rails<'a>(
        &'a self,
        graph: &'a Graph,
        goal: usize,
        host: DeviceId,
    ) -> impl Iterator<Item = ChannelId> + Clone + 'a {
        let distance = move |port: u32| self.distance_of(goal, graph.channel(ChannelId(port)).to);
        let least = graph.ports(host).map(distance).min();
        graph.ports(host).filter(move |&port| Some(distance(port)) == least).map(ChannelId)
    }

    /// Returns the first of the shortest ways with its steps.
    pub(super) fn way(&self, graph: &Graph, from: DeviceId, to: DeviceId) -> Vec<(ChannelId, u8)> {
        let goal = self.goals[to.index()] as usize;
        let mut way: Vec<(ChannelId, u8)> =
            self.rails(graph, goal, from).take(1).map(|channel| (channel, 0)).collect();
        while let Some(&(last, step)) = way.last() {
            let at = graph.channel(last).to;
            if at == to {
                break;
            }
            if at == self.goal_devices[goal] {
                way.push((graph.channel(ChannelId(graph.ports(to).start)).reverse, step));
                break;
            }
            let hops = (way.len() - 1).min(usize::from(self.steps) - 1);
            let Some(&next) = self.closer(goal, at).first() else { break };
            way.push((next, hops as u8));
        }
        way
    }

    /// Tells `report` each pair of (channel, step) that a packet can hold and ask for, over all
    /// ways, if there were `steps`.
    pub(super) fn dependencies(
        &self,
        graph: &Graph,
        steps: u8,
        mut report: impl FnMut((ChannelId, u8), (ChannelId, u8)),
    ) {
        let last = u32::from(steps) - 1;
        let entries: Vec<bool> = (self.hosts..graph.devices())
            .map(|switch| {
                graph
                    .ports(DeviceId(switch))
                    .any(|port| graph.is_host(graph.channel(ChannelId(port)).to))
            })
            .collect();
        for goal in 0..self.goal_devices.len() {
            let mut order: Vec<DeviceId> = (self.hosts..graph.devices()).map(DeviceId).collect();
            order.sort_by_key(|&switch| core::cmp::Reverse(self.distance_of(goal, switch)));
            // Bit s: a packet can be at this switch with its next channel at step s.
            let mut mask: Vec<u32> = entries.iter().map(|&entry| u32::from(entry)).collect();
            for switch in order {
                let here = mask[(switch.0 - self.hosts) as usize];
                for &channel in self.closer(goal, switch) {
                    let next = graph.channel(channel).to;
                    if here == 0 || graph.is_host(next) {
                        continue;
                    }
                    let ahead = &mut mask[(next.0 - self.hosts) as usize];
                    for step in (0..=last).filter(|step| here >> step & 1 == 1) {
                        let after = (step + 1).min(last);
                        *ahead |= 1 << after;
                        for &then in self.closer(goal, next) {
                            report((channel, step as u8), (then, after as u8));
                        }
                    }
                }
            }
        }
    }
}

/// Returns the goal of each host, and the device of each goal.
fn goals(graph: &Graph) -> (Vec<u32>, Vec<DeviceId>) {
    let mut known: BTreeMap<DeviceId, u32> = BTreeMap::new();
    let mut devices = Vec::new();
    let goals = (0..graph.hosts()).map(DeviceId).map(|host| {
        let mut switches = graph.ports(host).map(|port| graph.channel(ChannelId(port)).to);
        let first = switches.next().unwrap_or(host);
        let device = if switches.all(|other| other == first) { first } else { host };
        *known.entry(device).or_insert_with(|| {
            devices.push(device);
            devices.len() as u32 - 1
        })
    });
    let goals = goals.collect();
    (goals, devices)
}
