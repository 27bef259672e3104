//! The choice of victims and congestors: seeded draws that are sure to meet each other on a shared
//! link.
//!
//! # Model
//! One unchanged network gives impact factors from 1 to 13 by the choice of nodes alone, so a draw
//! says what it covers: where there are several switches, some neighbours of the victims' ring lie
//! on different switches, and so do members of every congestor group. Draws that miss this are
//! thrown away and drawn again ([`Draw::rejected`] counts them). The same seed gives the same draws
//! on every machine.
//!
//! # Source
//! GPCNeT splits nodes at random into one fifth victims and four fifths congestors, one draw per
//! run, seeded by the time of day; its shuffle (Sattolo's) reaches only cyclic permutations. Here:
//! every permutation, any seed, several draws.
//!
//! # Invariants
//! I1. Victims and group members are distinct ranks, but for the target of [`Placement::AtVictim`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::base::{BitsPerSec, RandomKey, Rank};

/// Tries before a draw is given up: at 16 hosts on two switches three of four random draws qualify.
const TRIES_MAX: u32 = 10_000;

/// The network as far as draws and expected rates need it.
pub trait NetworkLayout {
    /// Returns how many hosts there are; ranks count them.
    fn hosts(&self) -> usize;

    /// Returns the switch that `rank` hangs on.
    fn switch_of(&self, rank: Rank) -> u32;

    /// Returns the links from `a` to `b`, in order, that all their traffic takes: where it spreads
    /// over several ways, only those at both ends.
    fn path(&self, a: Rank, b: Rank) -> Vec<LinkId>;

    /// Returns the rate of `link`.
    fn rate(&self, link: LinkId) -> BitsPerSec;

    /// Returns whether `a` and `b` hang on different switches.
    fn crossing(&self, a: Rank, b: Rank) -> bool {
        self.switch_of(a) != self.switch_of(b)
    }
}

/// Hosts below switches, switches joined by links of one rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchedLayout {
    /// The switch of each rank.
    pub switch_of: Vec<u32>,
    /// Rate of each host's link.
    pub host_rate: BitsPerSec,
    /// Rate between one switch and all others together; absent with a single switch.
    pub trunk_rate: Option<BitsPerSec>,
}

impl NetworkLayout for SwitchedLayout {
    fn hosts(&self) -> usize {
        self.switch_of.len()
    }

    fn switch_of(&self, rank: Rank) -> u32 {
        self.switch_of.get(rank.index()).copied().unwrap_or(0)
    }

    fn path(&self, a: Rank, b: Rank) -> Vec<LinkId> {
        let mut links = Vec::from([LinkId::FromHost(a)]);
        if self.crossing(a, b) {
            links.extend([
                LinkId::FromSwitch(self.switch_of(a)),
                LinkId::ToSwitch(self.switch_of(b)),
            ]);
        }
        links.push(LinkId::ToHost(b));
        links
    }

    fn rate(&self, link: LinkId) -> BitsPerSec {
        match link {
            LinkId::FromHost(_) | LinkId::ToHost(_) => self.host_rate,
            LinkId::FromSwitch(_) | LinkId::ToSwitch(_) | LinkId::Cable(_) => {
                self.trunk_rate.unwrap_or(self.host_rate)
            }
        }
    }
}

/// One direction of one link of a [`NetworkLayout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkId {
    /// A host's link, outward.
    FromHost(Rank),
    /// A host's link, inward.
    ToHost(Rank),
    /// A switch's links to other switches, outward.
    FromSwitch(u32),
    /// A switch's links to other switches, inward.
    ToSwitch(u32),
    /// One direction of one cable between switches, by the network's own number.
    Cable(u32),
}

/// How congestors lie to victims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// No rank is both: they meet on links between switches.
    #[default]
    Disjoint,
    /// The target of every congestor group is the first victim: they meet at its port.
    AtVictim,
    /// Every member of every group is a victim: they meet at the ports of their own hosts, where
    /// there is no host to spare.
    OnVictims,
}

/// What to draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawRequest {
    /// Victims in the ring.
    pub victims: usize,
    /// Members of each congestor group, its target included.
    pub groups: Vec<usize>,
    /// How they lie to each other.
    pub placement: Placement,
}

/// One draw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draw {
    /// Its place among the draws of a run.
    pub number: u32,
    /// The victims in ring order.
    pub victims: Vec<Rank>,
    /// The congestor groups, each with its target first.
    pub groups: Vec<Vec<Rank>>,
    /// Draws thrown away before this one because they missed the shared links.
    pub rejected: u32,
}

/// Why there is no draw.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// More hosts are asked for than there are.
    TooFewHosts {
        /// Hosts asked for.
        needed: usize,
        /// Hosts there are.
        hosts: usize,
    },
    /// A group that is to consist of victims has more members than there are.
    TooFewVictims {
        /// Members of the group.
        members: usize,
        /// Victims there are.
        victims: usize,
    },
    /// A group or the ring is too small to be what it is called.
    TooSmall {
        /// Victims or members of a group.
        members: usize,
    },
    /// No draw puts victims and every group on several switches.
    Unreachable,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewHosts { needed, hosts } => {
                write!(f, "victims and congestors need {needed} hosts, the network has {hosts}")
            }
            Self::TooFewVictims { members, victims } => {
                write!(f, "a congestor group on victims has {members} members, and there are {victims} victims")
            }
            Self::TooSmall { members } => {
                write!(f, "a ring or congestor group of {members} is too small, two is the least")
            }
            Self::Unreachable => f.write_str(
                "no draw lets victims and every congestor group cross between switches; make the groups larger",
            ),
        }
    }
}

impl core::error::Error for PlanError {}

impl Draw {
    /// Makes draw `number` of the run with `key`.
    ///
    /// # Errors
    /// [`PlanError`] when the request does not fit the layout.
    pub fn new(
        layout: &dyn NetworkLayout,
        request: &DrawRequest,
        key: RandomKey,
        number: u32,
    ) -> Result<Self, PlanError> {
        let hosts = layout.hosts();
        let members = request.groups.iter().sum::<usize>();
        let needed = match request.placement {
            Placement::Disjoint => request.victims + members,
            Placement::AtVictim => request.victims + members - request.groups.len(),
            Placement::OnVictims => {
                request.groups.iter().copied().chain([request.victims]).max().unwrap_or(0)
            }
        };
        if let Some(members) =
            request.groups.iter().copied().find(|members| {
                request.placement == Placement::OnVictims && *members > request.victims
            })
        {
            return Err(PlanError::TooFewVictims { members, victims: request.victims });
        }
        if needed > hosts {
            return Err(PlanError::TooFewHosts { needed, hosts });
        }
        if let Some(members) =
            request.groups.iter().chain([&request.victims]).copied().find(|n| *n < 2)
        {
            return Err(PlanError::TooSmall { members });
        }
        let mut stream = key.purpose("draw").node(u64::from(number)).stream();
        let mut ranks: Vec<Rank> = (0..hosts as u32).map(Rank).collect();
        for rejected in 0..TRIES_MAX {
            stream.shuffle(&mut ranks);
            let draw = Self::deal(&ranks, request, number, rejected);
            if draw.covers(layout) {
                return Ok(draw);
            }
        }
        Err(PlanError::Unreachable)
    }

    fn deal(ranks: &[Rank], request: &DrawRequest, number: u32, rejected: u32) -> Self {
        let (victims, mut rest) = ranks.split_at(request.victims);
        if request.placement == Placement::OnVictims {
            // Each group begins at another victim.
            let group = |(number, size): (usize, &usize)| {
                (0..*size).map(|place| victims[(number + place) % victims.len()]).collect()
            };
            let groups = request.groups.iter().enumerate().map(group).collect();
            return Self { number, victims: victims.to_vec(), groups, rejected };
        }
        let mut groups = Vec::with_capacity(request.groups.len());
        for size in &request.groups {
            let mut group = Vec::with_capacity(*size);
            if request.placement == Placement::AtVictim {
                group.push(victims[0]);
            }
            let (members, others) = rest.split_at(size - group.len());
            group.extend_from_slice(members);
            rest = others;
            groups.push(group);
        }
        Self { number, victims: victims.to_vec(), groups, rejected }
    }

    /// Returns whether victims and every group use links between switches, where there are any.
    fn covers(&self, layout: &dyn NetworkLayout) -> bool {
        let spans =
            |members: &[Rank]| members.iter().any(|rank| layout.crossing(members[0], *rank));
        let first = layout.switch_of(Rank(0));
        let several = (0..layout.hosts() as u32).any(|rank| layout.switch_of(Rank(rank)) != first);
        !several || [&self.victims].into_iter().chain(&self.groups).all(|members| spans(members))
    }
}

/// A stream of traffic for the two functions below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficStream {
    /// The rank that sends.
    pub from: Rank,
    /// The ranks that receive: all of them the same, of which each link carries one copy.
    pub to: Vec<Rank>,
    /// What each of them is offered.
    pub rate: BitsPerSec,
}

impl TrafficStream {
    /// Creates a `TrafficStream` from one to one.
    pub fn single(from: Rank, to: Rank, rate: BitsPerSec) -> Self {
        Self { from, to: Vec::from([to]), rate }
    }

    /// Returns the links that it takes, each once.
    fn links(&self, layout: &dyn NetworkLayout) -> BTreeSet<LinkId> {
        self.to.iter().flat_map(|to| layout.path(self.from, *to)).collect()
    }
}

/// Returns what `streams` together offer to each link that they use.
pub fn offered_loads(
    layout: &dyn NetworkLayout,
    streams: &[TrafficStream],
) -> BTreeMap<LinkId, BitsPerSec> {
    let mut loads = BTreeMap::new();
    for stream in streams {
        for link in stream.links(layout) {
            let load: &mut BitsPerSec = loads.entry(link).or_default();
            load.0 = load.0.saturating_add(stream.rate.0);
        }
    }
    loads
}

/// Returns the max-min fair rate of each stream: nobody can get more without someone smaller
/// getting less.
///
/// The yardstick for congestors: a network that protects victims by throttling congestors below
/// this has not contained anything. Links fill at one pace; what first has none left, or a stream
/// that asks for no more, decides next. Cost: O(different rates that result x (streams + links)).
pub fn max_min_fair(layout: &dyn NetworkLayout, streams: &[TrafficStream]) -> Vec<BitsPerSec> {
    let mut number: BTreeMap<LinkId, usize> = BTreeMap::new();
    // Of each link: bits per second left, streams that still wait for their share.
    let mut links: Vec<(u64, u64)> = Vec::new();
    let mut paths: Vec<Vec<usize>> = Vec::with_capacity(streams.len());
    for stream in streams {
        let path = stream.links(layout).into_iter().map(|link| {
            let place = *number.entry(link).or_insert_with(|| {
                links.push((layout.rate(link).0, 0));
                links.len() - 1
            });
            links[place].1 += 1;
            place
        });
        paths.push(path.collect());
    }
    let mut given = alloc::vec![BitsPerSec(0); streams.len()];
    let mut open: Vec<usize> = (0..streams.len()).collect();
    while !open.is_empty() {
        let share = |link: usize| links[link].0 / links[link].1.max(1);
        let limit_of = |i: usize| {
            paths[i]
                .iter()
                .map(|link| share(*link))
                .min()
                .unwrap_or(u64::MAX)
                .min(streams[i].rate.0)
        };
        let limits: Vec<u64> = open.iter().map(|i| limit_of(*i)).collect();
        let least = limits.iter().copied().min().unwrap_or(0);
        let mut still = Vec::with_capacity(open.len());
        for (i, limit) in open.iter().zip(limits) {
            if limit > least {
                still.push(*i);
                continue;
            }
            given[*i] = BitsPerSec(least);
            for link in &paths[*i] {
                let (left, waiting) = &mut links[*link];
                (*left, *waiting) = (left.saturating_sub(least), *waiting - 1);
            }
        }
        open = still;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_switches() -> SwitchedLayout {
        let switch_of = (0..16).map(|rank| rank / 8).collect();
        SwitchedLayout {
            switch_of,
            host_rate: BitsPerSec::mega(25),
            trunk_rate: Some(BitsPerSec::mega(25)),
        }
    }

    fn star(hosts: usize) -> SwitchedLayout {
        SwitchedLayout {
            switch_of: alloc::vec![0; hosts],
            host_rate: BitsPerSec::mega(100),
            trunk_rate: None,
        }
    }

    #[test]
    fn draw__same_seed_same_draw_and_draws_differ() {
        let request =
            DrawRequest { victims: 4, groups: alloc::vec![6, 6], placement: Placement::Disjoint };
        let key = RandomKey::new(19);
        let draws: Vec<Draw> =
            (0..8).map(|n| Draw::new(&two_switches(), &request, key, n).expect("fits")).collect();
        assert_eq!(draws[3], Draw::new(&two_switches(), &request, key, 3).expect("fits"));
        let distinct: BTreeSet<Vec<Rank>> = draws.iter().map(|draw| draw.victims.clone()).collect();
        assert!(distinct.len() > 1);
    }

    #[test]
    fn draw__victims_and_every_group_cross_the_trunk_and_nobody_is_two() {
        let layout = two_switches();
        let request = DrawRequest {
            victims: 2,
            groups: alloc::vec![3, 2, 9],
            placement: Placement::Disjoint,
        };
        for number in 0..50 {
            let draw = Draw::new(&layout, &request, RandomKey::new(1), number).expect("fits");
            for members in [&draw.victims].into_iter().chain(&draw.groups) {
                assert!(members.iter().any(|rank| layout.crossing(members[0], *rank)), "{draw:?}");
            }
            let all: BTreeSet<Rank> =
                draw.groups.iter().flatten().chain(&draw.victims).copied().collect();
            assert_eq!(all.len(), 16);
        }
    }

    #[test]
    fn draw__at_victim_shares_the_target_and_nothing_else() {
        let request =
            DrawRequest { victims: 2, groups: alloc::vec![4], placement: Placement::AtVictim };
        let draw = Draw::new(&star(8), &request, RandomKey::new(2), 0).expect("fits");
        assert_eq!(draw.groups[0][0], draw.victims[0]);
        let all: BTreeSet<Rank> = draw.groups[0].iter().chain(&draw.victims).copied().collect();
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn draw__on_victims_needs_no_other_host() {
        let request = |victims, groups| {
            let placement = Placement::OnVictims;
            Draw::new(&star(2), &DrawRequest { victims, groups, placement }, RandomKey::new(2), 0)
        };
        let draw = request(2, alloc::vec![2, 2]).expect("fits");
        assert_eq!(draw.groups[0], draw.victims);
        assert_eq!(draw.groups[1], [draw.victims[1], draw.victims[0]]);
        let refused = PlanError::TooFewVictims { members: 3, victims: 2 };
        assert_eq!(request(2, alloc::vec![3]), Err(refused));
        let refused = PlanError::TooFewHosts { needed: 3, hosts: 2 };
        assert_eq!(request(3, alloc::vec![2]), Err(refused));
    }

    #[test]
    fn draw__a_larger_group_holds_the_smaller_one_of_the_same_draw() {
        let draw = |members| {
            let request = DrawRequest {
                victims: 2,
                groups: alloc::vec![members],
                placement: Placement::AtVictim,
            };
            Draw::new(&star(8), &request, RandomKey::new(2), 0).expect("fits")
        };
        let [two, four, seven] = [2, 4, 7].map(draw);
        assert_eq!((&two.victims, &four.victims), (&four.victims, &seven.victims));
        assert!(seven.groups[0].starts_with(&four.groups[0]));
        assert!(four.groups[0].starts_with(&two.groups[0]));
    }

    #[test]
    fn draw__what_does_not_fit_is_refused_with_the_numbers() {
        let request =
            |victims, groups| DrawRequest { victims, groups, placement: Placement::Disjoint };
        let draw = |request| Draw::new(&star(8), &request, RandomKey::new(2), 0);
        assert_eq!(
            draw(request(4, alloc::vec![5])),
            Err(PlanError::TooFewHosts { needed: 9, hosts: 8 })
        );
        assert_eq!(draw(request(1, alloc::vec![5])), Err(PlanError::TooSmall { members: 1 }));
        let lonely = SwitchedLayout { switch_of: alloc::vec![0, 0, 0, 0, 1], ..two_switches() };
        let two_groups = Draw::new(&lonely, &request(2, alloc::vec![2]), RandomKey::new(2), 0);
        assert_eq!(two_groups, Err(PlanError::Unreachable));
    }

    #[test]
    fn fair__an_incast_shares_its_target_and_a_bystander_keeps_its_rate() {
        let mega = BitsPerSec::mega;
        let streams = [(1, 0, 50), (2, 0, 50), (3, 0, 10), (4, 5, 70)]
            .map(|(from, to, rate)| TrafficStream::single(Rank(from), Rank(to), mega(rate)));
        assert_eq!(max_min_fair(&star(8), &streams), [mega(45), mega(45), mega(10), mega(70)]);
        let loads = offered_loads(&star(8), &streams);
        assert_eq!(loads[&LinkId::ToHost(Rank(0))], mega(110));
    }

    #[test]
    fn fair__the_trunk_is_shared_by_those_who_cross_it() {
        let mega = BitsPerSec::mega;
        let streams = [(0, 8), (1, 9), (2, 3)]
            .map(|(from, to)| TrafficStream::single(Rank(from), Rank(to), mega(25)));
        let fair = max_min_fair(&two_switches(), &streams);
        assert_eq!(fair, [BitsPerSec(12_500_000), BitsPerSec(12_500_000), mega(25)]);
    }

    #[test]
    fn fair__of_a_multicast_each_link_carries_one_copy() {
        let mega = BitsPerSec::mega;
        let stream =
            TrafficStream { from: Rank(0), to: [1, 8, 9].map(Rank).into(), rate: mega(50) };
        assert_eq!(max_min_fair(&two_switches(), core::slice::from_ref(&stream)), [mega(25)]);
        let loads = offered_loads(&two_switches(), &[stream]);
        assert_eq!((loads.len(), loads[&LinkId::FromHost(Rank(0))]), (6, mega(50)));
    }
}
