//! All ways through a dragonfly, counted and walked: what reports show and what the proof of
//! freedom from deadlock covers.

use super::{DetourPlan, Detours, DragonflyRouter, Endpoints, unskip_both};
use crate::graph::{ChannelId, DeviceId, Graph};
use crate::routing::RouteTarget;

impl DragonflyRouter {
    /// Returns the shortest direct way with its steps: the cable between groups is the best for
    /// this target, or the nearest to the source (the same for all targets in a group).
    pub(crate) fn way(
        &self,
        graph: &Graph,
        from: DeviceId,
        to: DeviceId,
        aim: RouteTarget,
    ) -> Vec<(ChannelId, u8)> {
        let (ends, grid) = (self.ends(from, to), &self.grid);
        let direct = |cable| DetourPlan { detour: None, cable, second: 0 };
        let cables = if ends.source.group == ends.target.group { 1 } else { grid.blue };
        let cable = (0..cables).min_by_key(|&cable| match aim {
            RouteTarget::Target => grid.length(ends, direct(cable)),
            RouteTarget::Source if cables == 1 => 0,
            RouteTarget::Source => grid.distance(
                ends.source.within,
                grid.gateway(ends.source.group, ends.target.group, cable),
            ),
        });
        self.walk(graph, from, to, direct(cable.unwrap_or(0)))
    }

    /// Returns the way by `plan`, over the first of parallel cables.
    fn walk(
        &self,
        graph: &Graph,
        from: DeviceId,
        to: DeviceId,
        plan: DetourPlan,
    ) -> Vec<(ChannelId, u8)> {
        let ends = self.ends(from, to);
        let (mut at, mut step) = (ends.source, 0);
        let mut way = vec![(ChannelId(graph.ports(from).start), 0)];
        loop {
            let bundle = self.grid.hop(at, ends, plan, step);
            step = bundle.step.unwrap_or(step);
            let channel = ChannelId(graph.ports(self.grid.device(at)).start + bundle.port);
            way.push((channel, step));
            let next = graph.channel(channel).to;
            if graph.is_host(next) {
                return way;
            }
            at = self.grid.place(next);
        }
    }

    /// Returns how many plans there are between two hosts.
    pub(crate) fn ways(&self, from: DeviceId, to: DeviceId) -> u64 {
        let ends = self.ends(from, to);
        let (direct, others) = self.plans(ends);
        direct + others
    }

    /// Returns the numbers of direct plans, and of those with a detour.
    fn plans(&self, ends: Endpoints) -> (u64, u64) {
        let (grid, detours) = (&self.grid, self.detours != Detours::Never);
        let Endpoints { source, target, .. } = ends;
        if source == target {
            return (1, 0);
        }
        if source.group == target.group {
            return (2, if detours { u64::from(grid.routers() - 2) } else { 0 });
        }
        let blue = u64::from(grid.blue);
        (blue, if detours { u64::from(grid.groups - 2) * blue * blue } else { 0 })
    }

    /// Returns the plan of number `n` below [`DragonflyRouter::ways`].
    fn plan(&self, ends: Endpoints, n: u64) -> DetourPlan {
        let (direct, _) = self.plans(ends);
        let Some(other) = n.checked_sub(direct) else {
            return DetourPlan { detour: None, cable: n as u32, second: 0 };
        };
        if ends.source.group == ends.target.group {
            let router = unskip_both(other as u32, ends.source.within, ends.target.within);
            return DetourPlan { detour: Some(router), cable: 0, second: 0 };
        }
        let blue = u64::from(self.grid.blue);
        let group =
            unskip_both((other / (blue * blue)) as u32, ends.source.group, ends.target.group);
        DetourPlan {
            detour: Some(group),
            cable: (other / blue % blue) as u32,
            second: (other % blue) as u32,
        }
    }

    /// Returns the way by plan number `n` below [`DragonflyRouter::ways`]. Parallel cables count as
    /// their first: they are chosen without regard to what came before.
    pub(crate) fn way_of_plan(
        &self,
        graph: &Graph,
        from: DeviceId,
        to: DeviceId,
        n: u64,
    ) -> Vec<(ChannelId, u8)> {
        self.walk(graph, from, to, self.plan(self.ends(from, to), n))
    }
}
