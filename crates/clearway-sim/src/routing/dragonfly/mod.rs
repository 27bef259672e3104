//! Ways through dragonflies: inside a group along rows and columns, between groups over one cable
//! or by a third group.
//!
//! # Model
//! Routers of a group stand in `rows` and `columns`; a row and a column are joined all-to-all
//! (green, black). A group that is joined all-to-all is one row. Between each two groups lie `blue`
//! cables; seen from one group its cable ends have numbers `e = place of the other group * blue +
//! cable`, and router `e mod routers` has end `e` as its port `e / routers`.
//!
//! A *plan* is made at the source's router: the cable to the next group, and a group (inside one
//! group: a router) to go by. "Shortest" means over as few groups as possible, over any of the
//! cables between them. Only the source's router decides; nothing is weighed again on the way (no
//! progressive adaption).
//!
//! # Source
//! Kim et al., "Technology-driven, highly-scalable dragonfly topology" (ISCA 2008): UGAL with local
//! knowledge; Faanes et al., "Cray Cascade" (SC 2012): rows, columns and their cables.
//!
//! # Invariants
//! I1. A leg inside a group goes green, then black, at one step; a leg after the first has a higher
//!     step: cables between groups
//!     belong to the leg before them, and a detour inside a group is a leg of its own. A direct way inside one group may go
//!     black first: its green cable then has step 1. So channels are used in the order green 0, black 0, blue 0, green 1,
//!     black 1, blue 1, green 2, black 2, and two or three steps do what a step for each hop would need five or eight for.
//! I2. `next` gives the same answer when it is asked again for a packet that has not moved.

mod ways;

use super::selection::{SelectionRule, below, first_up, mix, pick};
use super::{Backlog, Transit};
use crate::graph::{ChannelId, DeviceId, Graph};

/// The shape of a dragonfly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DragonflyShape {
    pub(crate) groups: u32,
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    /// Hosts at each router.
    pub(crate) hosts: u32,
    /// Ports of each host, all to its router.
    pub(crate) rails: u32,
    /// Parallel cables in a row.
    pub(crate) green: u32,
    /// Parallel cables in a column.
    pub(crate) black: u32,
    /// Cables between each two groups.
    pub(crate) blue: u32,
}

/// A dragonfly with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DragonflyRouter {
    pub(super) grid: DragonflyShape,
    /// Chooses among parallel cables, and plans that are not weighed.
    pub(super) rule: SelectionRule,
    pub(super) detours: Detours,
}

/// When packets go by a third group or router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detours {
    Never,
    Always,
    /// When the best of `minimal` direct plans is worse by more than `bias` than the best of
    /// `detour` others.
    Weighed {
        minimal: u8,
        detour: u8,
        bias: u32,
    },
}

/// What the source's router decided. In [`Transit::via`] the detour has the upper 16 bits, the
/// cable the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DetourPlan {
    /// The group, or inside one group the router (by its place in the group), to go by.
    detour: Option<u32>,
    /// The cable out of the source's group. Inside one group: an odd number goes black first.
    cable: u32,
    /// The cable from the detour's group to the target's.
    second: u32,
}

/// The detour of a plan without one, as written in [`Transit::via`].
const NO_DETOUR: u32 = 0xffff;
/// Groups, routers of a group and cables between groups at most: what 16 bits number, one value
/// kept for "none".
pub(crate) const PLAN_MAX: u32 = NO_DETOUR;
/// Draws of another plan when those weighed are all down: beyond that a router counts as cut off.
const SPARE_DRAWS: u32 = 32;

/// Salts: different draws for one packet.
const SALT_CABLE: u32 = 0x100;
const SALT_DETOUR: u32 = 0x200;
const SALT_SECOND: u32 = 0x300;

/// Parallel channels of one router, as ports.
#[derive(Clone, Copy)]
struct Bundle {
    port: u32,
    count: u32,
    /// The step they are taken at; `None` leaves it.
    step: Option<u8>,
}

/// A router: its group, and its place in it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RouterPosition {
    group: u32,
    within: u32,
}

impl DragonflyShape {
    /// Routers of a group.
    pub(crate) const fn routers(&self) -> u32 {
        self.rows * self.columns
    }

    /// Hosts of all groups.
    pub(crate) const fn all_hosts(&self) -> u32 {
        self.groups * self.routers() * self.hosts
    }

    /// Returns the router that has end `end` of its group's blue cables.
    pub(crate) const fn gateway(&self, group: u32, other: u32, cable: u32) -> u32 {
        (skip(other, group) * self.blue + cable) % self.routers()
    }

    /// Returns the device of the router at place `within` of `group`.
    pub(crate) const fn router(&self, group: u32, within: u32) -> DeviceId {
        DeviceId(self.all_hosts() + group * self.routers() + within)
    }

    const fn place(&self, router: DeviceId) -> RouterPosition {
        let number = router.0 - self.all_hosts();
        RouterPosition { group: number / self.routers(), within: number % self.routers() }
    }

    const fn place_of_host(&self, host: DeviceId) -> RouterPosition {
        let number = host.0 / self.hosts;
        RouterPosition { group: number / self.routers(), within: number % self.routers() }
    }

    const fn device(&self, place: RouterPosition) -> DeviceId {
        self.router(place.group, place.within)
    }

    /// Cables between two routers of a group.
    const fn distance(&self, a: u32, b: u32) -> u32 {
        (a % self.columns != b % self.columns) as u32
            + (a / self.columns != b / self.columns) as u32
    }

    fn green_to(&self, from: u32, column: u32) -> Bundle {
        let port = self.hosts * self.rails + skip(column, from % self.columns) * self.green;
        Bundle { port, count: self.green, step: None }
    }

    fn black_to(&self, from: u32, row: u32) -> Bundle {
        let greens = (self.columns - 1) * self.green;
        let port = self.hosts * self.rails + greens + skip(row, from / self.columns) * self.black;
        Bundle { port, count: self.black, step: None }
    }

    fn blue_to(&self, group: u32, other: u32, cable: u32) -> Bundle {
        let local = (self.columns - 1) * self.green + (self.rows - 1) * self.black;
        let end = skip(other, group) * self.blue + cable;
        Bundle {
            port: self.hosts * self.rails + local + end / self.routers(),
            count: 1,
            step: None,
        }
    }

    fn host_at(&self, host: DeviceId) -> Bundle {
        Bundle { port: host.0 % self.hosts * self.rails, count: self.rails, step: None }
    }

    /// Returns the next cables inside a group, green before black.
    fn toward(&self, from: u32, goal: u32) -> Bundle {
        let column = goal % self.columns;
        if from % self.columns == column {
            self.black_to(from, goal / self.columns)
        } else {
            self.green_to(from, column)
        }
    }

    /// Returns the next cables of a packet at `at`, on the way between `ends` by `plan`, that came
    /// at `step`.
    fn hop(&self, at: RouterPosition, ends: Endpoints, plan: DetourPlan, step: u8) -> Bundle {
        let Endpoints { source, target, host } = ends;
        if source.group == target.group {
            return self.hop_inside(at, ends, plan, step);
        }
        let leg = match (at.group == source.group, at.group == target.group) {
            (true, _) => 0,
            (_, true) => 1 + u8::from(plan.detour.is_some()),
            _ => 1,
        };
        let bundle = if at.group == target.group {
            if at == target {
                return self.host_at(host);
            }
            self.toward(at.within, target.within)
        } else {
            let (other, cable) = match plan.detour {
                Some(detour) if at.group == source.group => (detour, plan.cable),
                Some(_) => (target.group, plan.second),
                None => (target.group, plan.cable),
            };
            let gateway = self.gateway(at.group, other, cable);
            if at.within == gateway {
                self.blue_to(at.group, other, cable)
            } else {
                self.toward(at.within, gateway)
            }
        };
        Bundle { step: Some(leg), ..bundle }
    }

    /// Returns the same where source and target share a group.
    fn hop_inside(
        &self,
        at: RouterPosition,
        ends: Endpoints,
        plan: DetourPlan,
        step: u8,
    ) -> Bundle {
        let Endpoints { source, target, host } = ends;
        if let Some(detour) = plan.detour {
            if step == 0 && at.within != detour {
                return Bundle { step: Some(0), ..self.toward(at.within, detour) };
            }
            if at == target {
                return self.host_at(host);
            }
            return Bundle { step: Some(1), ..self.toward(at.within, target.within) };
        }
        if at == target {
            return self.host_at(host);
        }
        let (row, column) = (target.within / self.columns, target.within % self.columns);
        let corner = at.within / self.columns != row && at.within % self.columns != column;
        if corner && plan.cable % 2 == 1 {
            return Bundle { step: Some(0), ..self.black_to(at.within, row) };
        }
        let late_green = at != source && at.within / self.columns == row;
        Bundle { step: Some(u8::from(late_green)), ..self.toward(at.within, target.within) }
    }

    /// Cables between routers on the way by `plan`.
    fn length(&self, ends: Endpoints, plan: DetourPlan) -> u32 {
        let Endpoints { source, target, .. } = ends;
        if source.group == target.group {
            let detour = plan.detour.unwrap_or(source.within);
            return self.distance(source.within, detour) + self.distance(detour, target.within);
        }
        let leap = |from: RouterPosition, other: u32, cable: u32| {
            let entry =
                RouterPosition { group: other, within: self.gateway(other, from.group, cable) };
            (self.distance(from.within, self.gateway(from.group, other, cable)) + 1, entry)
        };
        let (first, entry) = leap(source, plan.detour.unwrap_or(target.group), plan.cable);
        let (second, entry) =
            if plan.detour.is_some() { leap(entry, target.group, plan.second) } else { (0, entry) };
        first + second + self.distance(entry.within, target.within)
    }
}

/// Both ends of a way.
#[derive(Clone, Copy)]
struct Endpoints {
    source: RouterPosition,
    target: RouterPosition,
    /// The host at the target.
    host: DeviceId,
}

/// Returns the place of `other` among all but `this`.
const fn skip(other: u32, this: u32) -> u32 {
    if other > this { other - 1 } else { other }
}

/// Returns the number that has place `place` among all but `this`.
const fn unskip(place: u32, this: u32) -> u32 {
    if place >= this { place + 1 } else { place }
}

/// Returns the number that has place `place` among all but `a` and `b`, which differ.
const fn unskip_both(place: u32, a: u32, b: u32) -> u32 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    unskip(unskip(place, low), high)
}

impl DragonflyRouter {
    /// Returns how many steps keep all ways free of deadlock (I1).
    pub(super) fn steps(&self) -> u8 {
        let detours = self.detours != Detours::Never;
        match self.grid.groups {
            1 if detours || (self.grid.rows > 1 && self.grid.columns > 1) => 2,
            1 => 1,
            2 => 2,
            _ => 2 + u8::from(detours),
        }
    }

    fn ends(&self, source: DeviceId, target: DeviceId) -> Endpoints {
        let grid = &self.grid;
        Endpoints {
            source: grid.place_of_host(source),
            target: grid.place_of_host(target),
            host: target,
        }
    }

    pub(super) fn next<B: Backlog>(
        &self,
        graph: &Graph,
        at: DeviceId,
        transit: &mut Transit,
        backlog: &B,
    ) -> Option<ChannelId> {
        let ports = graph.ports(at).start;
        if graph.is_host(at) {
            (transit.step, transit.via) = (0, Transit::DIRECT);
            let key = self.rule.key(transit, at.0);
            return pick(self.rule, key, self.grid.rails, |n| ChannelId(ports + n), backlog);
        }
        let (ends, place) = (self.ends(transit.source, transit.target), self.grid.place(at));
        let decides = place == ends.source && place != ends.target && transit.step == 0;
        let plan = if decides {
            self.decide(graph, ends, transit, backlog)?
        } else {
            self.plan_of(transit)
        };
        transit.via = plan.detour.unwrap_or(NO_DETOUR) << 16 | plan.cable;
        let bundle = self.grid.hop(place, ends, plan, transit.step);
        let chosen = self.pick_of(ports, bundle, transit, backlog)?;
        transit.step = bundle.step.unwrap_or(transit.step);
        Some(chosen)
    }

    /// Returns one of parallel channels.
    fn pick_of<B: Backlog>(
        &self,
        ports: u32,
        bundle: Bundle,
        transit: &Transit,
        backlog: &B,
    ) -> Option<ChannelId> {
        let first = ports + bundle.port;
        if bundle.count == 1 {
            return first_up(0, 1, |_| ChannelId(first), backlog);
        }
        if self.rule == SelectionRule::Modulo {
            return first_up(
                transit.target.0 % bundle.count,
                bundle.count,
                |n| ChannelId(first + n),
                backlog,
            );
        }
        pick(
            self.rule,
            self.rule.key(transit, first),
            bundle.count,
            |n| ChannelId(first + n),
            backlog,
        )
    }

    /// Returns the plan that a packet carries.
    fn plan_of(&self, transit: &Transit) -> DetourPlan {
        match transit.via >> 16 {
            NO_DETOUR => DetourPlan { detour: None, cable: transit.via & 0xffff, second: 0 },
            detour => DetourPlan {
                detour: Some(detour),
                cable: transit.via & 0xffff,
                second: self.second(transit, detour),
            },
        }
    }

    /// Returns the cable out of the group of a detour.
    fn second(&self, transit: &Transit, detour: u32) -> u32 {
        below(self.rule.key(transit, SALT_SECOND + detour), self.grid.blue)
    }

    /// Returns the direct plan of draw `draw`.
    fn direct(&self, ends: Endpoints, transit: &Transit, draw: u32) -> DetourPlan {
        let cables = if ends.source.group == ends.target.group { 2 } else { self.grid.blue };
        let first = below(self.rule.key(transit, SALT_CABLE), cables);
        // Consecutive cables: draws are different as long as there are enough.
        DetourPlan { detour: None, cable: (first + draw) % cables, second: 0 }
    }

    /// Returns the detour of draw `draw`, where there is a third group or router.
    fn detour(&self, ends: Endpoints, transit: &Transit, draw: u32) -> Option<DetourPlan> {
        let (source, target) = (ends.source, ends.target);
        let inside = source.group == target.group;
        let others = if inside { self.grid.routers() } else { self.grid.groups }.saturating_sub(2);
        if others == 0 {
            return None;
        }
        let place = below(self.rule.key(transit, SALT_DETOUR + draw), others);
        if inside {
            let router = unskip_both(place, source.within, target.within);
            return Some(DetourPlan { detour: Some(router), cable: 0, second: 0 });
        }
        let group = unskip_both(place, source.group, target.group);
        let cable = below(mix(self.rule.key(transit, SALT_CABLE), group), self.grid.blue);
        Some(DetourPlan { detour: Some(group), cable, second: self.second(transit, group) })
    }

    /// Returns what the source's router decides.
    fn decide<B: Backlog>(
        &self,
        graph: &Graph,
        ends: Endpoints,
        transit: &Transit,
        backlog: &B,
    ) -> Option<DetourPlan> {
        let usable =
            |plan: DetourPlan| self.weigh(graph, ends, plan, transit, backlog).map(|_| plan);
        let chosen = match self.detours {
            Detours::Never => usable(self.direct(ends, transit, 0)),
            Detours::Always => usable(
                self.detour(ends, transit, 0).unwrap_or_else(|| self.direct(ends, transit, 0)),
            ),
            Detours::Weighed { minimal, detour, bias } => {
                let weigh = |plan: DetourPlan| {
                    Some((self.weigh(graph, ends, plan, transit, backlog)?, plan))
                };
                let direct = least(
                    (0..u32::from(minimal)).filter_map(|n| weigh(self.direct(ends, transit, n))),
                );
                let other = least(
                    (0..u32::from(detour)).filter_map(|n| weigh(self.detour(ends, transit, n)?)),
                );
                match (direct, other) {
                    (Some((cost, _)), Some((less, plan)))
                        if cost > less.saturating_add(bias.into()) =>
                    {
                        Some(plan)
                    }
                    (Some((_, plan)), _) | (None, Some((_, plan))) => Some(plan),
                    (None, None) => None,
                }
            }
        };
        chosen.or_else(|| {
            let direct =
                (0..SPARE_DRAWS.min(self.grid.blue.max(2))).map(|n| self.direct(ends, transit, n));
            let others = (0..SPARE_DRAWS).filter_map(|n| self.detour(ends, transit, n));
            let others =
                others.take(if self.detours == Detours::Never { 0 } else { SPARE_DRAWS as usize });
            direct.chain(others).find_map(usable)
        })
    }

    /// Returns what waits ahead of a packet on the way by `plan`, times its length; `None` where
    /// the way is known to be down: in the first cable, or in one between groups (tables are made
    /// anew when such a cable fails).
    fn weigh<B: Backlog>(
        &self,
        graph: &Graph,
        ends: Endpoints,
        plan: DetourPlan,
        transit: &Transit,
        backlog: &B,
    ) -> Option<u64> {
        let (grid, source) = (&self.grid, ends.source);
        let first = grid.hop(source, ends, plan, 0);
        let channel =
            self.pick_of(graph.ports(grid.device(source)).start, first, transit, backlog)?;
        let blue_up = |group: u32, other: u32, cable: u32| {
            let ports = graph.ports(grid.router(group, grid.gateway(group, other, cable))).start;
            backlog.up(ChannelId(ports + grid.blue_to(group, other, cable).port))
        };
        if source.group != ends.target.group {
            let other = plan.detour.unwrap_or(ends.target.group);
            let second =
                || other == ends.target.group || blue_up(other, ends.target.group, plan.second);
            if !blue_up(source.group, other, plan.cable) || !second() {
                return None;
            }
        }
        Some(backlog.bytes(channel).saturating_mul(u64::from(grid.length(ends, plan))))
    }
}

/// Returns the first of those with the least cost.
fn least(plans: impl Iterator<Item = (u64, DetourPlan)>) -> Option<(u64, DetourPlan)> {
    plans.min_by_key(|&(cost, _)| cost)
}
