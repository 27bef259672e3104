//! One cell of the test matrix: which victim under which congestor, on which queue, with which
//! hosts.

use std::collections::BTreeSet;
use std::fmt;

use clearway_proto::base::{BitsPerSec, Nanos, Rank};
use clearway_proto::congestion::{
    CongestorKind, Draw, LinkId, LoadIntensity, LoadKind, LoadTask, Metric, NetworkLayout,
    StagingPace, TrafficStream, VictimKind, VictimTask, max_min_fair, offered_loads,
};

use super::windows::Windows;
use crate::mechanism::congestion::phases::PhaseRole;
use crate::mechanism::congestion::{Bursts, CongestionSection};
use crate::report::model::{Labels, labels};
use crate::report::title::cell_title;
use crate::run::venue::{ClockAgreement, CongestionReach, VenueFacts};
use crate::scenario::requested_class;

/// What distinguishes the cells of one run, but for the draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case<'a> {
    pub(crate) queue: &'a str,
    pub(crate) victim: VictimKind,
    pub(crate) congestor: CongestorKind,
    /// In hundredths of the bottleneck link; shown only where a run has several.
    pub(crate) intensity: u32,
    /// When the congestors send.
    pub(crate) bursts: Bursts,
    /// Hosts of a group, where groups grow.
    pub(crate) members: Option<usize>,
}

impl<'a> Case<'a> {
    /// Creates the case of a program of the user's. The victim's pattern has no effect: only
    /// the load of its cell is used.
    pub(crate) fn for_program(
        queue: &'a str,
        congestor: CongestorKind,
        intensity: u32,
        bursts: Bursts,
    ) -> Self {
        Self { queue, victim: VictimKind::Ping, congestor, intensity, bursts, members: None }
    }
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.congestor == CongestorKind::None {
            return write!(f, "{}: {} alone", self.queue, self.victim.name());
        }
        let mut all = Labels::from([
            (labels::VICTIM.to_owned(), self.victim.name().to_owned()),
            (labels::CONGESTOR.to_owned(), self.congestor.name().to_owned()),
            (labels::BURSTS.to_owned(), self.bursts.to_string()),
        ]);
        all.extend(self.members.map(|hosts| (labels::MEMBERS.to_owned(), hosts.to_string())));
        write!(f, "{}: {}", self.queue, cell_title(&all))
    }
}

/// Whether the congestors of a cell do what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CongestorPresence {
    /// They load.
    Loading,
    /// They send nothing, and all else is as if they did.
    Silent,
}

/// A case with its hosts.
pub(crate) struct Cell<'a> {
    pub(crate) case: Case<'a>,
    pub(crate) draw: &'a Draw,
    pub(crate) test: &'a CongestionSection,
    pub(crate) layout: &'a dyn NetworkLayout,
    pub(crate) windows: Windows,
    pub(crate) facts: VenueFacts,
    pub(crate) congestors: CongestorPresence,
}

impl Cell<'_> {
    /// Returns the metric in which the victims are judged.
    pub(crate) const fn metric(&self) -> Metric {
        match (self.case.victim, self.facts.clocks) {
            (VictimKind::Ping, ClockAgreement::One) => Metric::OneWay,
            // Two clocks cannot time one way, but each its own messages there and back.
            (VictimKind::Ping, ClockAgreement::Several) | (VictimKind::Get, _) => Metric::RoundTrip,
            (
                VictimKind::BandwidthSync
                | VictimKind::Barrier
                | VictimKind::Allreduce
                | VictimKind::Allgather
                | VictimKind::Alltoall,
                _,
            ) => Metric::Iteration,
        }
    }

    /// Returns what `rank` does.
    pub(crate) fn part(&self, rank: Rank) -> PhaseRole {
        let loads = match self.congestors {
            CongestorPresence::Loading => self.loads(rank),
            CongestorPresence::Silent => Vec::new(),
        };
        PhaseRole { victim: self.victim(rank), loads }
    }

    /// Returns what `rank` does as a victim.
    fn victim(&self, rank: Rank) -> Option<VictimTask> {
        self.draw.victims.contains(&rank).then(|| VictimTask {
            kind: self.case.victim,
            ring: self.draw.victims.clone(),
            class: requested_class(self.case.queue, self.test.victim_class),
            interval: self.test.victim_interval.0,
        })
    }

    /// Returns what `rank` does as a congestor.
    pub(crate) fn loads(&self, rank: Rank) -> Vec<LoadTask> {
        let [from, until] = [self.windows.load.from, self.windows.load.until]
            .map(|at| self.windows.grid.slices(at));
        let class = requested_class(self.case.queue, self.test.congestor_class);
        let task = |kind| LoadTask { kind: self.resolve(kind), class, from, until };
        self.kinds(rank).map(task).collect()
    }

    /// Returns `kind`, as this queue and this draw have it.
    fn resolve(&self, mut kind: LoadKind) -> LoadKind {
        if let LoadKind::Cast(cast) = &mut kind {
            // A member of another draw must not hear this one.
            cast.group += (self.draw.number as usize * self.draw.groups.len()) as u16;
            cast.control = requested_class(self.case.queue, cast.control);
        }
        if let LoadKind::Staging(staging) = &mut kind
            && let StagingPace::Server { probes } = &mut staging.pace
        {
            *probes = requested_class(self.case.queue, *probes);
        }
        kind
    }

    fn kinds(&self, rank: Rank) -> impl Iterator<Item = LoadKind> {
        let Case { congestor, intensity, bursts, .. } = self.case;
        let host_rate = self.layout.rate(LinkId::FromHost(rank));
        let pressure = LoadIntensity {
            percent: intensity,
            host_rate,
            window: self.test.processes_per_host,
            burst: bursts.engine(),
        };
        let groups = self.draw.groups.iter().enumerate();
        groups.filter_map(move |(number, group)| congestor.load(number, group, rank, pressure))
    }

    /// Returns the congestors' traffic, while they send, also of those that are silent.
    fn streams(&self) -> Vec<TrafficStream> {
        let ranks = (0..self.layout.hosts() as u32).map(Rank);
        ranks
            .flat_map(|rank| {
                self.kinds(rank).flat_map(move |kind| kind.streams(rank)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Returns the congestors' traffic; none of those that are silent.
    fn sent_streams(&self) -> Vec<TrafficStream> {
        match self.congestors {
            CongestorPresence::Loading => self.streams(),
            CongestorPresence::Silent => Vec::new(),
        }
    }

    /// Returns what the congestors together could deliver while victims are measured if the network
    /// shared its links fairly and kept nothing in its buffers; absent when they send nothing.
    pub(crate) fn fair_rate(&self) -> Option<BitsPerSec> {
        let streams = self.sent_streams();
        let rates = max_min_fair(self.layout, &streams).into_iter().zip(&streams);
        let total = rates.fold(0u64, |sum, (rate, stream)| {
            sum.saturating_add(rate.0.saturating_mul(stream.to.len() as u64))
        });
        let mean = (u128::from(total) * u128::from(self.time_on().0)
            / u128::from(self.windows.congested.length(self.windows.grid).0.max(1)))
            as u64;
        (!streams.is_empty()).then_some(BitsPerSec(mean))
    }

    /// Returns how much of the congested window is in bursts.
    fn time_on(&self) -> Nanos {
        let Windows { grid, load, congested, .. } = self.windows;
        let length = congested.length(grid);
        let Some(burst) = self.case.congestor.bursts(self.case.bursts.engine()) else {
            return length;
        };
        if length < burst.period {
            // Around a program, where nobody knows how long the window will be.
            let part = u128::from(length.0) * u128::from(burst.on.0) / u128::from(burst.period.0);
            return Nanos(part as u64);
        }
        let since = |slice: u32| grid.slices(slice - load.from);
        burst.time_on(since(congested.from), since(congested.until))
    }

    /// Returns what the congestors offer of the fullest link from which victims can suffer; absent
    /// when they send nothing. Those are the links that victims use, and all links where full
    /// buffers hold packets back.
    pub(crate) fn overload(&self) -> Option<f64> {
        let streams = self.sent_streams();
        let loads = offered_loads(self.layout, &streams);
        let used: BTreeSet<LinkId> = match self.facts.reach {
            CongestionReach::Link => {
                self.victim_pairs().flat_map(|(a, b)| self.layout.path(a, b)).collect()
            }
            CongestionReach::Tree => loads.keys().copied().collect(),
        };
        let parts = used.into_iter().map(|link| {
            let load = loads.get(&link).copied().unwrap_or_default();
            load.0 as f64 / self.layout.rate(link).0 as f64
        });
        (!streams.is_empty()).then(|| parts.fold(0.0, f64::max))
    }

    /// Returns the links of [`Self::overload`] that congestors use, each with the part of its rate
    /// that they offer, the fullest first.
    pub(crate) fn suspects(&self) -> Vec<(LinkId, f64)> {
        let loads = offered_loads(self.layout, &self.sent_streams());
        let exposed = self.exposed();
        let used: BTreeSet<LinkId> =
            exposed.iter().flat_map(|(a, b)| self.layout.path(*a, *b)).collect();
        let is_reached =
            |link: &LinkId| self.facts.reach == CongestionReach::Tree || used.contains(link);
        let part = |(link, load): (LinkId, BitsPerSec)| {
            (link, load.0 as f64 / self.layout.rate(link).0.max(1) as f64)
        };
        let mut all: Vec<_> =
            loads.into_iter().filter(|(link, _)| is_reached(link)).map(part).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }

    /// Returns the congestors whose messages pass `link`.
    pub(crate) fn senders_over(&self, link: LinkId) -> BTreeSet<Rank> {
        let streams = self.sent_streams();
        let passes = |stream: &&TrafficStream| {
            stream.to.iter().any(|to| self.layout.path(stream.from, *to).contains(&link))
        };
        streams.iter().filter(passes).map(|stream| stream.from).collect()
    }

    /// Returns the pairs of victims whose messages cross a link that congestors fill; all pairs
    /// where there is no such pair.
    ///
    /// A pair that shares no full link with congestors cannot suffer from them on a network whose
    /// switches drop: counting it in would only dilute the others. Where full buffers hold packets
    /// back every pair can. A round trip is exposed by either of its ways.
    pub(crate) fn exposed(&self) -> BTreeSet<(Rank, Rank)> {
        if self.facts.reach == CongestionReach::Tree {
            return self.victim_pairs().collect();
        }
        let loads = offered_loads(self.layout, &self.streams());
        let full =
            |link: &LinkId| loads.get(link).is_some_and(|load| *load >= self.layout.rate(*link));
        let crosses = |a, b| self.layout.path(a, b).iter().any(full);
        let both_ways = self.metric() == Metric::RoundTrip;
        let pairs: BTreeSet<_> = self.victim_pairs().collect();
        let exposed: BTreeSet<_> = pairs
            .iter()
            .copied()
            .filter(|(a, b)| crosses(*a, *b) || both_ways && crosses(*b, *a))
            .collect();
        if exposed.is_empty() { pairs } else { exposed }
    }

    /// Returns the time of one full packet on each link of the victims' longest path, both ways for
    /// a round trip: what a message can wait on a busy network however it is classed.
    pub(crate) fn floor(&self) -> Nanos {
        let time = |link| self.layout.rate(link).time_for(self.facts.frame);
        let of_path = |(a, b)| {
            self.layout.path(a, b).into_iter().fold(Nanos::ZERO, |sum, link| sum + time(link))
        };
        let ways = if self.metric() == Metric::RoundTrip { 2 } else { 1 };
        self.victim_pairs().map(of_path).max().unwrap_or(Nanos::ZERO).times(ways)
    }

    /// Returns the neighbours of the ring, both ways.
    fn victim_pairs(&self) -> impl Iterator<Item = (Rank, Rank)> {
        let ring = &self.draw.victims;
        let next = (0..ring.len()).map(|i| (ring[i], ring[(i + 1) % ring.len()]));
        next.flat_map(|(a, b)| [(a, b), (b, a)])
    }
}
