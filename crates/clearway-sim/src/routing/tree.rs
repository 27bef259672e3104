//! Ways through fat trees: up by choice until the target lies below, then down by the target's
//! number.
//!
//! # Model
//! A switch of level `l` is (`a`, `b`): `a` numbers the subtree of `below(l)` hosts it stands on,
//! `b` which of the `width(l)` switches above that subtree it is. Upwards `b` gains a digit,
//! downwards it loses one:
//! ```text
//!    up to parent p of `parents`:   a' = a / children(l+1)         b' = b + p * width(l)
//!    down to child c of `children`: a' = a * children(l) + c       b' = b mod width(l-1)
//! ```
//!
//! # Source
//! Öhring et al., "On generalized fat trees" (IPPS 1995); target modulo choices: Zahavi, "D-Mod-K
//! routing providing non-blocking traffic for shift permutations on real life fat trees" (2010),
//! parallel cables as there.
//!
//! # Invariants
//! I1. No way goes up after it went down: one step keeps it free of deadlock.

use super::selection::{SelectionRule, first_up, pick};
use super::{Backlog, Transit};
use crate::graph::{ChannelId, DeviceId, Graph};

/// The shape of a fat tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FatTree {
    levels: Vec<Level>,
    /// Where each switch stands, in the order of their numbers.
    places: Vec<SwitchPosition>,
    rule: SelectionRule,
}

/// The switches of one level; level 1 stands at place 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// The number of its first switch.
    pub(crate) first: u32,
    /// Hosts below a switch.
    pub(crate) below: u32,
    /// Hosts below each of its children.
    below_child: u32,
    /// Children of a switch.
    pub(crate) children: u32,
    /// Parallel cables to each child.
    pub(crate) down_cables: u32,
    /// Switches above the same subtree.
    pub(crate) width: u32,
    /// Parents of a child.
    child_parents: u32,
    /// Parents of a switch; none at the top.
    pub(crate) parents: u32,
    /// Parallel cables to each parent.
    pub(crate) up_cables: u32,
}

/// Where a switch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SwitchPosition {
    level: usize,
    a: u32,
    b: u32,
}

impl FatTree {
    /// Creates the tree of XGFT vectors that were checked: equally long, nothing zero, products in
    /// 32 bits. O(levels).
    pub(crate) fn new(children: &[u32], parents: &[u32], cables: &[u32], rails: u32) -> Self {
        let hosts: u32 = children.iter().product();
        let (mut first, mut below, mut width) = (hosts, 1, 1);
        let mut levels = Vec::with_capacity(children.len());
        for level in 0..children.len() {
            let below_child = below;
            below *= children[level];
            width *= parents[level];
            let above = (parents.get(level + 1), cables.get(level + 1));
            levels.push(Level {
                first,
                below,
                below_child,
                children: children[level],
                down_cables: if level == 0 { cables[0] * rails } else { cables[level] },
                width,
                child_parents: parents[level],
                parents: above.0.copied().unwrap_or(0),
                up_cables: above.1.copied().unwrap_or(0),
            });
            first += hosts / below * width;
        }
        let mut tree = Self { levels, places: Vec::new(), rule: SelectionRule::Modulo };
        for level in 0..tree.levels.len() {
            let width = tree.levels[level].width;
            let all = 0..tree.switches(level);
            tree.places.extend(all.map(|number| SwitchPosition {
                level,
                a: number / width,
                b: number % width,
            }));
        }
        tree
    }

    pub(super) fn with_rule(self, rule: SelectionRule) -> Self {
        Self { rule, ..self }
    }

    /// Returns the levels from the leaves up.
    pub(crate) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Switches of the level at `place`.
    pub(crate) fn switches(&self, place: usize) -> u32 {
        let top = self.levels[self.levels.len() - 1].below;
        top / self.levels[place].below * self.levels[place].width
    }

    fn place(&self, switch: DeviceId) -> SwitchPosition {
        self.places[(switch.0 - self.levels[0].first) as usize]
    }

    /// Returns the number of a switch.
    fn device(&self, place: SwitchPosition) -> DeviceId {
        let level = &self.levels[place.level];
        DeviceId(level.first + place.a * level.width + place.b)
    }

    /// Returns where the cables from `place` to its child above `target` begin, as a port.
    fn down_port(&self, place: SwitchPosition, target: u32) -> u32 {
        let level = &self.levels[place.level];
        let child = (target - place.a * level.below) / level.below_child;
        child * level.down_cables
    }

    /// Returns which of the parallel cables down a target's number stands for.
    fn down_cable(&self, level: usize, target: u32) -> u32 {
        let it = &self.levels[level];
        target / (it.width / it.child_parents) % (it.child_parents * it.down_cables)
            / it.child_parents
    }

    /// Returns which of the upward ports `number` stands for.
    fn up_port(level: &Level, number: u32) -> u32 {
        let choice = number / level.width % (level.parents * level.up_cables);
        // Asked for every packet: divisions take their time.
        if level.up_cables == 1 {
            choice
        } else {
            choice % level.parents * level.up_cables + choice / level.parents
        }
    }

    pub(super) fn next<B: Backlog>(
        &self,
        graph: &Graph,
        at: DeviceId,
        transit: &mut Transit,
        backlog: &B,
    ) -> Option<ChannelId> {
        transit.step = 0;
        let (ports, target) = (graph.ports(at), transit.target.0);
        if graph.is_host(at) {
            let (count, channel) = (ports.end - ports.start, |n| ChannelId(ports.start + n));
            return match self.rule {
                SelectionRule::Modulo => first_up(target % count, count, channel, backlog),
                rule => pick(rule, rule.key(transit, 0), count, channel, backlog),
            };
        }
        let place = self.place(at);
        let level = &self.levels[place.level];
        if target / level.below == place.a {
            let first = ports.start + self.down_port(place, target);
            if level.down_cables == 1 {
                return first_up(0, 1, |_| ChannelId(first), backlog);
            }
            let channel = |n| ChannelId(first + n);
            return match self.rule {
                SelectionRule::Modulo => first_up(
                    self.down_cable(place.level, target),
                    level.down_cables,
                    channel,
                    backlog,
                ),
                rule => pick(
                    rule,
                    rule.key(transit, place.level as u32),
                    level.down_cables,
                    channel,
                    backlog,
                ),
            };
        }
        self.up(graph, place, transit, backlog)
    }

    fn up<B: Backlog>(
        &self,
        graph: &Graph,
        place: SwitchPosition,
        transit: &Transit,
        backlog: &B,
    ) -> Option<ChannelId> {
        let level = &self.levels[place.level];
        let first = graph.ports(self.device(place)).start + level.children * level.down_cables;
        let count = level.parents * level.up_cables;
        let channel = |n| ChannelId(first + n);
        let chosen = match self.rule {
            SelectionRule::Modulo => {
                first_up(Self::up_port(level, transit.target.0), count, channel, backlog)?
            }
            rule => pick(rule, rule.key(transit, place.level as u32), count, channel, backlog)?,
        };
        // A parent that cannot reach the target is a dead end: there is no way up again.
        let leads = |channel| self.leads(graph, channel, transit.target.0, backlog);
        if backlog.intact() || leads(chosen) {
            return Some(chosen);
        }
        let begin = chosen.0 - first;
        (1..count)
            .map(|n| channel((begin + n) % count))
            .find(|&other| backlog.up(other) && leads(other))
    }

    /// Returns whether the way down that this choice decides is up: from the switch that stands
    /// above `target` as the parent behind `channel` stands above this one. It is the parent itself
    /// where there is no higher choice.
    fn leads<B: Backlog>(
        &self,
        graph: &Graph,
        channel: ChannelId,
        target: u32,
        backlog: &B,
    ) -> bool {
        let parent = self.place(graph.channel(channel).to);
        let mut place = SwitchPosition { a: target / self.levels[parent.level].below, ..parent };
        while place.level > 0 {
            let level = &self.levels[place.level];
            let first = graph.ports(self.device(place)).start + self.down_port(place, target);
            if !(first..first + level.down_cables).any(|n| backlog.up(ChannelId(n))) {
                return false;
            }
            place = self.child(place, target);
        }
        true
    }

    /// Returns the child of `place` above `target`; `place` is not a leaf.
    fn child(&self, place: SwitchPosition, target: u32) -> SwitchPosition {
        let below = &self.levels[place.level - 1];
        SwitchPosition { level: place.level - 1, a: target / below.below, b: place.b % below.width }
    }
}

/// Ways in full.
impl FatTree {
    /// Returns the shortest way on which `number` decides upwards: the target's gives the way of
    /// destination-modulo routing, the source's one way up for all targets.
    pub(super) fn way(
        &self,
        graph: &Graph,
        from: DeviceId,
        to: DeviceId,
        number: u32,
    ) -> Vec<ChannelId> {
        let rails = graph.ports(from);
        let mut way = vec![ChannelId(rails.start + number % (rails.end - rails.start))];
        let mut place = self.place(graph.channel(way[0]).to);
        while to.0 / self.levels[place.level].below != place.a {
            let level = &self.levels[place.level];
            let port = level.children * level.down_cables + Self::up_port(level, number);
            let channel = ChannelId(graph.ports(self.device(place)).start + port);
            way.push(channel);
            place = self.place(graph.channel(channel).to);
        }
        loop {
            let port = self.down_port(place, to.0) + self.down_cable(place.level, to.0);
            way.push(ChannelId(graph.ports(self.device(place)).start + port));
            if place.level == 0 {
                return way;
            }
            place = self.child(place, to.0);
        }
    }

    /// Tells `report` each pair of channels that a packet can hold and ask for, for all ways from
    /// `source` to `target`. Parallel cables count as their first: they are chosen without regard
    /// to what came before.
    pub(super) fn dependencies(
        &self,
        graph: &Graph,
        source: DeviceId,
        target: DeviceId,
        mut report: impl FnMut(ChannelId, ChannelId),
    ) {
        let mut reached =
            vec![(ChannelId(graph.ports(source).start), self.place(attached(graph, source)))];
        while let Some((came, place)) = reached.pop() {
            let level = &self.levels[place.level];
            let ports = graph.ports(self.device(place)).start;
            if target.0 / level.below == place.a {
                let down = ChannelId(ports + self.down_port(place, target.0));
                report(came, down);
                if place.level > 0 {
                    reached.push((down, self.child(place, target.0)));
                }
                continue;
            }
            for parent in 0..level.parents {
                let up = ChannelId(
                    ports + level.children * level.down_cables + parent * level.up_cables,
                );
                report(came, up);
                reached.push((up, self.place(graph.channel(up).to)));
            }
        }
    }

    /// Returns how many ways there are from a host to a far one, parallel cables not counted.
    pub(super) fn ways(&self) -> u64 {
        self.levels
            .iter()
            .fold(1, |ways, level| ways.saturating_mul(u64::from(level.parents.max(1))))
    }
}

/// Returns the switch at the first port of `host`.
fn attached(graph: &Graph, host: DeviceId) -> DeviceId {
    graph.channel(ChannelId(graph.ports(host).start)).to
}
