//! Turns a congestor's name into flows: who sends what to whom, how fast.
//!
//! # Model
//! Intensity is in hundredths of what the pattern's bottleneck link can carry: 100 fills it, 150
//! offers half as much again. The bottleneck is the target's link for incasts and for the broadcast
//! from one, each member's own link for the rest.
//!
//! # Source
//! GPCNeT's four congestors and their 4 KiB messages. There each rank sends as fast as one
//! outstanding message allows, so the load depends on latency and does not fill slow links; here
//! the offered rate is a parameter and is checked on arrival.

use alloc::vec;
use alloc::vec::Vec;

use crate::base::{BitsPerSec, Bytes, Class, Nanos, Rank, children};

use super::plan::TrafficStream;
use super::task::{
    BroadcastLoad, BroadcastLoadAlgorithm, Burst, CongestorKind, Flow, FlowStyle, LoadKind,
    StagingLoad, StagingPace,
};

/// Bytes of one congestor message (GPCNeT).
const MESSAGE: Bytes = Bytes(4096);
/// Puts of one rank under way: enough to fill a 100-packet queue from three senders (3 x 12 x 4
/// packets).
const PUT_WINDOW: u32 = 12;
/// A burst longer than a 100-packet queue takes to fill at 150 % of 100 Mb/s (23 ms), one fifth of
/// the time.
const BURST: Burst = Burst { on: Nanos::from_millis(40), period: Nanos::from_millis(200) };

/// Bytes of an object of a broadcast: as in `docs/broadcast.md`, some hundred packets.
const OBJECT: Bytes = Bytes(1 << 20);

/// GPCNeT's four congestors, which run at the same time in a group each.
const GPCNET: [CongestorKind; 4] = [
    CongestorKind::Alltoall,
    CongestorKind::Incast,
    CongestorKind::PutIncast,
    CongestorKind::GetBroadcast,
];

/// How hard a pattern loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadIntensity {
    /// Offered load in hundredths of the pattern's bottleneck link.
    pub percent: u32,
    /// The rate of hosts' links.
    pub host_rate: BitsPerSec,
    /// Messages that each member keeps under way at most; without it those of a schedule, and 12
    /// for `put-incast`.
    pub window: Option<u32>,
    /// Present: messages leave only in bursts, at this rate; without it those of `burst` do.
    pub burst: Option<Burst>,
}

impl CongestorKind {
    /// Returns whether the messages of this pattern have a schedule, which bursts can interrupt.
    pub const fn is_scheduled(self) -> bool {
        matches!(
            self,
            Self::Alltoall
                | Self::Incast
                | Self::PutIncast
                | Self::GetBroadcast
                | Self::Permutation
                | Self::Burst
                | Self::Gpcnet
        )
    }

    /// Returns the bursts of this pattern where `asked` were asked for.
    pub fn bursts(self, asked: Option<Burst>) -> Option<Burst> {
        match self {
            Self::Burst => Some(asked.unwrap_or(BURST)),
            scheduled if scheduled.is_scheduled() => asked,
            _ => None,
        }
    }

    /// Returns what member `me` of `group` (target first), the `number`th group, does. `None`:
    /// nothing.
    pub fn load(
        self,
        number: usize,
        group: &[Rank],
        me: Rank,
        pressure: LoadIntensity,
    ) -> Option<LoadKind> {
        let place = group.iter().position(|rank| *rank == me)?;
        let target = group[0];
        let full = pressure.host_rate.percent(pressure.percent);
        let part = BitsPerSec(full.0 / (group.len() as u64 - 1).max(1));
        let burst = self.bursts(pressure.burst);
        let flow = |targets, style, rate| {
            let flow =
                Flow { targets, style, rate, message: MESSAGE, window: pressure.window, burst };
            Some(LoadKind::Flows(vec![flow]))
        };
        let cast = |way| {
            let mut members = group.to_vec();
            // As people list hosts: neighbours are near each other.
            members[1..].sort_unstable();
            let group = number as u16;
            Some(LoadKind::Cast(BroadcastLoad {
                members,
                way,
                object: OBJECT,
                rate: full,
                group,
                control: Class::Control,
            }))
        };
        let to_target = |style| if place == 0 { None } else { flow(vec![target], style, part) };
        match self {
            Self::Program | Self::None => None,
            Self::CpuOnly => Some(LoadKind::Burn { percent: pressure.percent.clamp(1, 100) as u8 }),
            Self::Gpcnet => GPCNET[number % GPCNET.len()].load(number, group, me, pressure),
            Self::Incast => {
                // Two-sided senders run ahead of their root only as far as its eager buffers reach:
                // a message of a window makes room for the next when the root has taken it.
                let style =
                    if pressure.window.is_some() { FlowStyle::Put } else { FlowStyle::Push };
                to_target(style)
            }
            Self::PutIncast => {
                let window = Some(pressure.window.unwrap_or(PUT_WINDOW));
                Self::Incast.load(number, group, me, LoadIntensity { window, ..pressure })
            }
            Self::GetBroadcast => to_target(FlowStyle::Get),
            Self::Burst => to_target(FlowStyle::Push),
            Self::Cast => cast(BroadcastLoadAlgorithm::Multicast),
            Self::CastChain => cast(BroadcastLoadAlgorithm::Chain),
            Self::CastTree => cast(BroadcastLoadAlgorithm::Tree),
            Self::Staging => Some(staging_load(group, pressure, StagingPace::Lanes)),
            Self::StagingYield => {
                let pace = StagingPace::Server { probes: Class::LowLatency };
                Some(staging_load(group, pressure, pace))
            }
            Self::Permutation => {
                flow(vec![group[(place + 1) % group.len()]], FlowStyle::Push, full)
            }
            Self::Alltoall => {
                let others =
                    (1..group.len()).map(|step| group[(place + step) % group.len()]).collect();
                flow(others, FlowStyle::Push, full)
            }
        }
    }
}

/// Returns the load of mounts that write to the first rank of `group`. It has no schedule: lanes find
/// out what the network carries.
fn staging_load(group: &[Rank], pressure: LoadIntensity, pace: StagingPace) -> LoadKind {
    let highest = group.iter().max().map_or(0, |rank| rank.0);
    // One size for most draws: memory is for ranks by their number.
    let ranks = (highest + 1).next_power_of_two();
    LoadKind::Staging(StagingLoad { server: group[0], ranks, rate: pressure.host_rate, pace })
}

impl LoadKind {
    /// Returns the traffic that this load of `me` puts on the network while it is on and in a burst,
    /// one stream for each target.
    pub fn streams(&self, me: Rank) -> Vec<TrafficStream> {
        let flows = match self {
            Self::Flows(flows) => flows,
            Self::Cast(cast) => return cast.streams(me),
            Self::Staging(staging) if staging.server == me => return Vec::new(),
            Self::Staging(StagingLoad { server, rate, .. }) => {
                return vec![TrafficStream::single(me, *server, *rate)];
            }
            Self::Burn { .. } => return Vec::new(),
        };
        let mut streams = Vec::new();
        for flow in flows {
            let each = BitsPerSec(flow.rate.0 / (flow.targets.len() as u64).max(1));
            for target in &flow.targets {
                let (from, to) =
                    if flow.style == FlowStyle::Get { (*target, me) } else { (me, *target) };
                streams.push(TrafficStream::single(from, to, each));
            }
        }
        streams
    }
}

impl BroadcastLoad {
    /// Returns what `me` sends when all goes well. Nobody gets more than the first of the members
    /// can give to each to whom it hands on.
    fn streams(&self, me: Rank) -> Vec<TrafficStream> {
        let Some(place) = self.members.iter().position(|member| *member == me) else {
            return Vec::new();
        };
        let (to, copies): (Vec<usize>, usize) = match self.way {
            BroadcastLoadAlgorithm::Multicast if place == 0 => {
                return vec![TrafficStream {
                    from: me,
                    to: self.members[1..].to_vec(),
                    rate: self.rate,
                }];
            }
            BroadcastLoadAlgorithm::Multicast => return Vec::new(),
            BroadcastLoadAlgorithm::Chain => ((place + 1..self.members.len()).take(1).collect(), 1),
            BroadcastLoadAlgorithm::Tree => (
                children(place, self.members.len()).collect(),
                children(0, self.members.len()).count(),
            ),
        };
        let rate = BitsPerSec(self.rate.0 / (copies as u64).max(1));
        to.into_iter().map(|junior| TrafficStream::single(me, self.members[junior], rate)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: [Rank; 4] = [Rank(5), Rank(1), Rank(2), Rank(3)];
    const PRESSURE: LoadIntensity =
        LoadIntensity { percent: 150, host_rate: BitsPerSec::mega(100), window: None, burst: None };

    fn streams(kind: CongestorKind) -> Vec<TrafficStream> {
        let loads =
            GROUP.iter().filter_map(|me| Some(kind.load(0, &GROUP, *me, PRESSURE)?.streams(*me)));
        loads.flatten().collect()
    }

    #[test]
    fn incast__three_senders_offer_the_targets_link_one_and_a_half_times() {
        let all = streams(CongestorKind::Incast);
        assert_eq!(all.len(), 3);
        assert!(
            all.iter().all(|it| it.to == [Rank(5)]
                && it.from != Rank(5)
                && it.rate == BitsPerSec::mega(50))
        );
    }

    #[test]
    fn get_broadcast__the_traffic_leaves_the_target() {
        assert!(streams(CongestorKind::GetBroadcast).iter().all(|it| it.from == Rank(5)));
    }

    #[test]
    fn permutation__everyone_sends_to_one_and_hears_from_one() {
        let mut targets: Vec<Rank> =
            streams(CongestorKind::Permutation).iter().map(|it| it.to[0]).collect();
        targets.sort_unstable();
        assert_eq!(targets, [Rank(1), Rank(2), Rank(3), Rank(5)]);
    }

    #[test]
    fn burst__offers_the_rate_of_an_incast_part_of_the_time() {
        assert_eq!(streams(CongestorKind::Burst), streams(CongestorKind::Incast));
        let ms = Nanos::from_millis;
        let burst = CongestorKind::Burst.bursts(None).expect("its own");
        for (from, until, on) in
            [(0, 200, 40), (0, 2000, 400), (20, 220, 40), (50, 190, 0), (30, 210, 20), (7, 7, 0)]
        {
            assert_eq!(burst.time_on(ms(from), ms(until)), ms(on), "{from} to {until}");
        }
    }

    #[test]
    fn bursts__those_asked_for_go_to_all_patterns_with_a_schedule() {
        let ms = Nanos::from_millis;
        let asked = Some(Burst { on: ms(10), period: ms(100) });
        let pressure = LoadIntensity { burst: asked, ..PRESSURE };
        for kind in CongestorKind::ALL {
            let load = kind.load(0, &GROUP, Rank(1), pressure);
            let Some(LoadKind::Flows(flows)) = load else {
                assert_eq!(kind.bursts(asked), None, "{kind:?}");
                continue;
            };
            assert!(
                kind.is_scheduled() && flows.iter().all(|flow| flow.burst == asked),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn gpcnet__each_group_runs_another_pattern() {
        let load = |kind: CongestorKind, number| kind.load(number, &GROUP, Rank(2), PRESSURE);
        for (number, kind) in GPCNET.into_iter().enumerate() {
            assert_eq!(load(CongestorKind::Gpcnet, number), load(kind, 0));
            assert_eq!(load(CongestorKind::Gpcnet, number + 4), load(kind, 0));
        }
    }

    #[test]
    fn window__bounds_every_pattern_that_sends() {
        let pressure = LoadIntensity { window: Some(16), ..PRESSURE };
        for kind in CongestorKind::ALL {
            let Some(LoadKind::Flows(flows)) = kind.load(0, &GROUP, Rank(1), pressure) else {
                continue;
            };
            assert!(flows.iter().all(|flow| flow.window == Some(16)), "{kind:?}");
        }
        let Some(LoadKind::Flows(puts)) =
            CongestorKind::PutIncast.load(0, &GROUP, Rank(1), PRESSURE)
        else {
            panic!()
        };
        assert_eq!(puts[0].window, Some(PUT_WINDOW));
    }

    #[test]
    fn staging__every_client_may_fill_its_own_link_and_the_server_sends_nothing() {
        let all = streams(CongestorKind::Staging);
        assert_eq!(all.len(), 3);
        assert!(
            all.iter().all(|it| it.to == [Rank(5)]
                && it.from != Rank(5)
                && it.rate == PRESSURE.host_rate)
        );
    }

    #[test]
    fn cast__everybody_but_the_first_hears_one_whatever_the_way() {
        for kind in [CongestorKind::Cast, CongestorKind::CastChain, CongestorKind::CastTree] {
            let all = streams(kind);
            let mut hear: Vec<Rank> = all.iter().flat_map(|it| it.to.clone()).collect();
            hear.sort_unstable();
            assert_eq!(hear, [Rank(1), Rank(2), Rank(3)], "{kind:?}");
            assert_eq!(all[0].from, Rank(5), "{kind:?}");
        }
        let rate = |kind| streams(kind)[0].rate;
        assert_eq!(rate(CongestorKind::Cast), BitsPerSec::mega(150));
        assert_eq!(rate(CongestorKind::CastChain), BitsPerSec::mega(150));
        assert_eq!(
            rate(CongestorKind::CastTree),
            BitsPerSec::mega(50),
            "three copies leave the first"
        );
    }

    #[test]
    fn none__a_stranger_to_the_group_has_no_load() {
        assert_eq!(CongestorKind::Incast.load(0, &GROUP, Rank(9), PRESSURE), None);
        assert_eq!(CongestorKind::None.load(0, &GROUP, Rank(1), PRESSURE), None);
        assert!(streams(CongestorKind::CpuOnly).is_empty());
    }
}
