//! The parts of a network, where nobody wrote them down: one rank of each host pings those of the
//! others before the run begins, over the wire of the run.
//!
//! # Model
//! Hosts measure in the rounds of a [`Tournament`], each with one partner at a time, as victims of
//! the congestion test that ping each other in a ring of two. A round is a phase of that engine, and
//! its four slices are the quarters of which the least round trip is kept
//! ([`RoundTripTable`]). It ends by time, whoever answers, so that no host waits for another, and all
//! rounds together take [`PingSchedule::takes`].
//!
//! Rounds begin a time after the order that each rank hears, so that clocks need not agree: orders
//! arrive within about a millisecond of each other, and what a partner does not answer yet is no
//! sample.
//!
//! # Invariants
//! I1. Whatever a rank does or does not do, the measurement is over [`GRACE`] after its last round.
//!
//! # Not here
//! What the round trips say: `clearway_proto::timeslice`.

mod rank;
mod simulated;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::congestion::{
    CongestionConfig, CongestionNode, Metric, Phase, PhaseRecord, VictimKind, VictimTask,
};
use clearway_proto::timeslice::{NetworkParts, QUARTERS, RoundTripTable, Tournament};
use clearway_proto::wire::{Span, Wire};
use serde::{Deserialize, Serialize};

pub(super) use self::rank::ping;
pub(super) use self::simulated::measure_simulated;
use super::messages::{TimesliceProtocol, TimesliceRequest, TimesliceResponse};
use crate::run::notice;
use crate::run::venue::ProcessVenue;

/// The distances of fewer are too few to show parts.
const HOSTS_MIN: u32 = 6;
/// The least and the longest time from one ping of a host to the next: longer than a round trip
/// between hosts of one site, and so long that hosts which share few processors, as in a lab, keep up.
const INTERVAL: [Nanos; 2] = [Nanos::from_micros(200), Nanos::from_millis(1)];
/// The fewest and the most pings of a quarter: the least time of fewer is uncertain, and that of more
/// is no better.
const PINGS: [u64; 2] = [8, 64];
/// How long a round waits for answers behind its last ping.
const DRAIN: Nanos = Nanos::from_millis(2);
/// Between two rounds: within it orders arrive at all ranks.
const REST: Nanos = Nanos::from_micros(1_500);
/// How long few hosts may measure.
const USUAL: Nanos = Nanos::from_secs(2);
/// How long many may.
const MOST: Nanos = Nanos::from_secs(5);
/// From an order to the first round: orders to a thousand ranks take some 50 ms.
const LEAD: Nanos = Nanos::from_millis(250);
/// How long a rank may take to say what it measured on a busy machine.
const GRACE: Duration = Duration::from_secs(2);
/// How often a wait looks around.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Parts that people read one by one.
const NAMED_MAX: usize = 8;
/// Bytes of a ping.
const PING: u32 = 8;

/// When a host pings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PingTimes {
    /// From one ping to the next, on average.
    interval: Nanos,
    /// A quarter of a round.
    quarter: Nanos,
    /// How long a round waits for answers behind its last ping.
    drain: Nanos,
    /// From the beginning of a round to that of the next.
    slot: Nanos,
}

impl PingTimes {
    const fn new(interval: Nanos, pings: u64, drain: Nanos, rest: Nanos) -> Self {
        let quarter = Nanos(interval.0 * pings);
        Self {
            interval,
            quarter,
            drain,
            slot: Nanos(quarter.0 * QUARTERS as u64 + drain.0 + rest.0),
        }
    }

    /// Returns the shortest times.
    const fn shortest() -> Self {
        Self::new(INTERVAL[0], PINGS[0], DRAIN, REST)
    }

    /// Returns those with which `rounds` take the usual time, if they can.
    fn from_rounds(rounds: usize) -> Self {
        let slot = USUAL.0 / rounds.max(1) as u64;
        let quarter = slot.saturating_sub(DRAIN.0 + REST.0) / QUARTERS as u64;
        let interval = (quarter / PINGS[0]).clamp(INTERVAL[0].0, INTERVAL[1].0);
        let pings = (quarter / interval).clamp(PINGS[0], PINGS[1]);
        Self::new(Nanos(interval), pings, DRAIN, REST)
    }
}

/// What one rank pings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PingOrder {
    /// The first round begins so long after the order was heard.
    wait: Nanos,
    seed: u64,
    times: PingTimes,
    /// Of each round.
    partners: Vec<Option<u32>>,
}

impl PingOrder {
    /// Returns the phase of round `number` of rank `me`, where the first begins at `begin`; `None` if
    /// it rests.
    fn phase(&self, me: Rank, number: usize, begin: LocalNs) -> Option<Phase> {
        let partner = Rank((*self.partners.get(number)?)?);
        let PingTimes { interval, quarter, drain, slot } = self.times;
        // Both must have the same ring.
        let ring = vec![me.min(partner), me.max(partner)];
        Some(Phase {
            number: number as u32,
            begin: begin + slot.times(number as u64),
            length: quarter.times(QUARTERS as u64),
            drain,
            slice: quarter,
            overhead: Bytes(0),
            victim: Some(VictimTask {
                kind: VictimKind::Ping,
                ring,
                class: Class::Control,
                interval,
            }),
            loads: Vec::new(),
        })
    }
}

/// The least round trips of a rank with a partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PingResult {
    partner: u32,
    least: [Option<Nanos>; QUARTERS],
}

impl PingResult {
    /// Returns those that `record` has.
    fn all(record: &PhaseRecord) -> impl Iterator<Item = Self> {
        let times = record.series.iter().filter(|series| series.metric == Metric::RoundTrip);
        times.map(|series| {
            let mut least = [None; QUARTERS];
            for (quarter, times) in &series.slices {
                if let Some(least) = least.get_mut(*quarter as usize) {
                    *least = times.min().map(Nanos);
                }
            }
            Self { partner: series.peer.0, least }
        })
    }
}

/// Returns the engine that pings at the end of `wire`.
///
/// # Errors
/// The wire has no memory for a ping.
fn node(wire: &mut (impl Wire + ?Sized), seed: u64) -> Result<CongestionNode> {
    let Ok(region) = wire.register(Bytes(u64::from(PING))) else {
        bail!("its wire has no memory for a ping");
    };
    Ok(CongestionNode::new(CongestionConfig {
        rank: wire.rank(),
        payload: Span { region, offset: 0, length: PING },
        body_max: PING,
        memory: None,
        shared_clock: None,
        key: RandomKey::new(seed),
    }))
}

/// Which hosts ping each other when.
struct PingSchedule {
    /// The rank of each host that pings.
    ranks: Vec<Rank>,
    tournament: Tournament,
    times: PingTimes,
    seed: u64,
}

impl PingSchedule {
    /// Creates the schedule of hosts with these ranks.
    fn new(hosts: &[Vec<Rank>], seed: u64) -> Self {
        let most = (MOST.0 / PingTimes::shortest().slot.0) as usize;
        let ranks: Vec<Rank> = hosts.iter().filter_map(|ranks| ranks.first().copied()).collect();
        let tournament = Tournament::new(ranks.len() as u32, most, RandomKey::new(seed));
        let times = PingTimes::from_rounds(tournament.rounds());
        Self { ranks, tournament, times, seed }
    }

    /// Returns how long all rounds take.
    fn takes(&self) -> Nanos {
        self.times.slot.times(self.tournament.rounds() as u64)
    }

    /// Returns the order to the rank of `host`, which waits for so long.
    fn order(&self, host: u32, wait: Nanos) -> PingOrder {
        let partner = |round| {
            let partner = self.tournament.partner(round, host)?;
            self.ranks.get(partner as usize).map(|rank| rank.0)
        };
        let partners = (0..self.tournament.rounds()).map(partner).collect();
        PingOrder { wait, seed: self.seed, times: self.times, partners }
    }

    /// Returns the host of each rank that pings.
    fn host_of(&self) -> BTreeMap<Rank, u32> {
        self.ranks.iter().copied().zip(0..).collect()
    }
}

/// The parts of a network as its hosts measured them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeasuredNetwork {
    /// By rank; empty where there is one part.
    pub(crate) by_rank: Vec<u32>,
    parts: NetworkParts,
    /// Pairs of hosts that were measured, and that there are.
    pairs: [usize; 2],
}

impl MeasuredNetwork {
    /// Creates what `table` says of hosts with these ranks.
    fn new(hosts: &[Vec<Rank>], table: &RoundTripTable) -> Self {
        let parts = table.parts();
        let count = hosts.len();
        let mut by_rank = BTreeMap::new();
        for (ranks, part) in hosts.iter().zip(&parts.of_host).filter(|_| parts.count() > 1) {
            by_rank.extend(ranks.iter().map(|rank| (*rank, *part)));
        }
        let pairs = [table.known_pairs(), count * count.saturating_sub(1) / 2];
        Self { by_rank: by_rank.into_values().collect(), parts, pairs }
    }

    /// Returns it for people, in a line.
    pub(crate) fn about(&self) -> String {
        let NetworkParts { of_host, within, between, silent } = &self.parts;
        let micros = |time: &Nanos| format!("{:.1} us", time.as_micros_f64());
        let hosts = of_host.len();
        let sampled = match self.pairs {
            _ if of_host.len() < HOSTS_MIN as usize => {
                return format!(
                    "did not measure the network: it takes {HOSTS_MIN} hosts to show parts"
                );
            }
            [0, _] => return "measured no parts of the network: no host answers".to_owned(),
            [known, all] if known < all => format!("; {known} of {all} pairs were measured"),
            _ => String::new(),
        };
        let count = self.parts.count();
        if count < 2 {
            return format!(
                "measured no parts of the network: {hosts} hosts have round trips of {}{sampled}",
                micros(within)
            );
        }
        let size = |part: usize| {
            let size = of_host.iter().filter(|of| usize::try_from(**of) == Ok(part)).count();
            let is_silent = silent.is_some_and(|silent| usize::try_from(silent) == Ok(part));
            if is_silent { format!("{size} without answers") } else { size.to_string() }
        };
        let mut sizes: Vec<String> = (0..count.min(NAMED_MAX)).map(size).collect();
        if count > NAMED_MAX {
            sizes.push("...".to_owned());
        }
        let between = match between {
            Nanos(0) => String::new(),
            between => format!(", {} between", micros(between)),
        };
        format!(
            "measured {count} parts of the network, between which turns alternate (hosts): {}; round trips of {} within{between}{sampled}",
            sizes.join(", "),
            micros(within)
        )
    }
}

/// Lets the ranks of `venue` on `hosts` measure their network.
///
/// # Errors
/// The user interrupted, or the process of a rank has ended: without it no run begins.
pub(crate) fn measure(
    venue: &mut dyn ProcessVenue,
    hosts: &[Vec<Rank>],
    seed: u64,
) -> Result<MeasuredNetwork> {
    let count = hosts.len() as u32;
    if count < HOSTS_MIN {
        return Ok(MeasuredNetwork::new(hosts, &RoundTripTable::new(count)));
    }
    let schedule = PingSchedule::new(hosts, seed);
    let takes = Duration::from_nanos(schedule.takes().0);
    notice!("{count} hosts measure the network for {:.1} s", takes.as_secs_f64());
    let mut answers = PingAnswers::new(&schedule);
    let begun = Instant::now();
    let lead = Duration::from_nanos(LEAD.0);
    for (rank, host) in &answers.host_of {
        let wait = Nanos(lead.saturating_sub(begun.elapsed()).as_nanos() as u64);
        let order = TimesliceRequest::Ping(Box::new(schedule.order(*host, wait)));
        venue.processes_mut().session::<TimesliceProtocol>().try_request(*rank, order)?;
    }
    let deadline = begun + lead + takes + GRACE;
    while !answers.missing.is_empty() && Instant::now() < deadline {
        let said = venue.processes_mut().session::<TimesliceProtocol>().poll(LOOK_EVERY)?;
        if let Some((rank, said)) = said {
            answers.take(rank, said, &|rank| venue.processes().name(rank))?;
        }
    }
    for sentence in answers.remarks(&|rank| venue.processes().name(rank)) {
        notice!("clearway: {sentence}");
    }
    Ok(MeasuredNetwork::new(hosts, &answers.table))
}

/// What ranks say of what they measured.
struct PingAnswers {
    host_of: BTreeMap<Rank, u32>,
    /// Ranks that have not answered.
    missing: BTreeSet<Rank>,
    table: RoundTripTable,
    /// Why ranks measured nothing.
    failed: Vec<(Rank, String)>,
}

impl PingAnswers {
    fn new(schedule: &PingSchedule) -> Self {
        Self {
            host_of: schedule.host_of(),
            missing: schedule.ranks.iter().copied().collect(),
            table: RoundTripTable::new(schedule.ranks.len() as u32),
            failed: Vec::new(),
        }
    }

    /// Takes what `rank` said, or how its process ended; `name` is that of a rank.
    ///
    /// # Errors
    /// It ended: without it no run begins.
    fn take(
        &mut self,
        rank: Rank,
        said: Result<TimesliceResponse, String>,
        name: &dyn Fn(Rank) -> String,
    ) -> Result<()> {
        match said {
            Ok(TimesliceResponse::Pinged(results)) => {
                if let (true, Some(host)) = (self.missing.remove(&rank), self.host_of.get(&rank)) {
                    note(&mut self.table, *host, &results, &self.host_of);
                }
            }
            Ok(TimesliceResponse::Failed(sentence)) => {
                if self.missing.remove(&rank) {
                    self.failed.push((rank, sentence));
                }
            }
            Err(how) => bail!("{} {how} while the network was measured; run again", name(rank)),
            Ok(_) => {}
        }
        Ok(())
    }

    /// Returns what was not measured, a sentence each.
    fn remarks(&self, name: &dyn Fn(Rank) -> String) -> Vec<String> {
        let failed = self.failed.iter();
        let failed = failed.map(|(rank, why)| format!("{} measures nothing: {why}", name(*rank)));
        let silent = self.missing.first().map(|first| {
            format!(
                "{} of {} hosts do not say what they measured, as {}: the run begins without that",
                self.missing.len(),
                self.host_of.len(),
                name(*first)
            )
        });
        failed.chain(silent).collect()
    }
}

/// Adds what `host` measured.
fn note(
    table: &mut RoundTripTable,
    host: u32,
    results: &[PingResult],
    host_of: &BTreeMap<Rank, u32>,
) {
    for PingResult { partner, least } in results {
        let Some(partner) = host_of.get(&Rank(*partner)) else { continue };
        for (quarter, time) in least.iter().enumerate() {
            time.iter().for_each(|time| table.add(host, *partner, quarter, *time));
        }
    }
}

#[cfg(test)]
mod tests {
    //! Orders, bounds, and what is said.

    use super::*;

    fn hosts(count: u32, each: u32) -> Vec<Vec<Rank>> {
        // Ranks of a host do not follow each other.
        (0..count).map(|host| (0..each).map(|n| Rank(n * count + host)).collect()).collect()
    }

    #[test]
    fn takes__is_within_the_bound_whatever_the_number_of_hosts() {
        for count in [6, 7, 64, 506, 507, 2_000, 5_000] {
            let schedule = PingSchedule::new(&hosts(count, 1), 1);
            assert!(schedule.takes() <= MOST, "{count}: {}", schedule.takes());
            assert_eq!(schedule.tournament.is_sampled(), count > 506, "{count}");
        }
        assert!(PingSchedule::new(&hosts(20, 1), 1).takes() <= USUAL);
    }

    #[test]
    fn order__partners_are_ranks_and_ping_each_other_at_the_same_time() {
        let schedule = PingSchedule::new(&hosts(5, 3), 1);
        let begin = LocalNs(1_000);
        for round in 0..schedule.tournament.rounds() {
            let mut pinging = 0;
            for (rank, host) in schedule.host_of() {
                let order = schedule.order(host, LEAD);
                let Some(phase) = order.phase(rank, round, begin) else { continue };
                let victim = phase.victim.as_ref().expect("a victim");
                let partner = victim.ring.iter().find(|other| **other != rank).expect("two");
                let theirs = schedule.order(schedule.host_of()[partner], LEAD);
                assert_eq!(theirs.phase(*partner, round, begin), Some(phase));
                pinging += 1;
            }
            assert_eq!(pinging, 4, "one of five rests");
        }
    }

    fn table(count: u32, distance: impl Fn(u32, u32) -> u64) -> RoundTripTable {
        let mut table = RoundTripTable::new(count);
        for a in 0..count {
            for b in (a + 1..count).filter(|b| distance(a, *b) > 0) {
                (0..QUARTERS).for_each(|quarter| table.add(a, b, quarter, Nanos(distance(a, b))));
            }
        }
        table
    }

    #[test]
    fn take__a_rank_that_fails_or_is_silent_holds_nobody_up_and_one_that_ends_ends_the_run() {
        let schedule = PingSchedule::new(&hosts(6, 2), 1);
        let mut answers = PingAnswers::new(&schedule);
        let name = |rank: Rank| format!("rank {rank}");
        let pinged = |rank: u32| {
            let partners = (0..7).filter(|partner| *partner != rank);
            let least = [Some(Nanos(2_000)); QUARTERS];
            Ok(TimesliceResponse::Pinged(
                partners.map(|partner| PingResult { partner, least }).collect(),
            ))
        };
        // The second rank of a host was not asked.
        for rank in [0, 1, 2, 3, 3, 9] {
            answers.take(Rank(rank), pinged(rank), &name).expect("it lives");
        }
        let failed = || Ok(TimesliceResponse::Failed("no memory".to_owned()));
        for rank in [4, 4, 0] {
            answers.take(Rank(rank), failed(), &name).expect("it lives");
        }
        answers.take(Rank(5), Ok(TimesliceResponse::Found), &name).expect("it lives");
        let silent =
            "1 of 6 hosts do not say what they measured, as rank 5: the run begins without that";
        assert_eq!(answers.remarks(&name), ["rank 4 measures nothing: no memory", silent]);
        // What the others measured with them counts.
        assert_eq!(answers.table.known_pairs(), 14);
        let sentence = answers.take(Rank(2), Err("was killed by signal 9".to_owned()), &name);
        let sentence = sentence.expect_err("it ended").to_string();
        assert_eq!(
            sentence,
            "rank 2 was killed by signal 9 while the network was measured; run again"
        );
    }

    #[test]
    fn new__ranks_that_share_a_host_are_always_together() {
        let of = |a: u32, b: u32| if a / 3 == b / 3 { 2_100 } else { 3_400 };
        let found = MeasuredNetwork::new(&hosts(6, 2), &table(6, of));
        assert_eq!(found.by_rank, [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
        let said = found.about();
        assert!(said.contains("measured 2 parts") && said.contains("(hosts): 3, 3;"), "{said}");
        assert!(said.ends_with("round trips of 2.1 us within, 3.4 us between"), "{said}");
    }

    #[test]
    fn about__says_what_was_not_measured() {
        let of = |count, distance: &dyn Fn(u32, u32) -> u64| {
            MeasuredNetwork::new(&hosts(count, 1), &table(count, distance))
        };
        let flat = of(6, &|_, _| 2_000);
        assert!(flat.by_rank.is_empty());
        assert!(flat.about().ends_with("6 hosts have round trips of 2.0 us"), "{}", flat.about());
        let few = of(5, &|_, _| 2_000);
        assert!(few.by_rank.is_empty() && few.about().ends_with("it takes 6 hosts to show parts"));
        let none = of(6, &|_, _| 0);
        assert!(none.by_rank.is_empty() && none.about().ends_with("no host answers"));
        let silent = of(6, &|a, b| if a == 1 || b == 1 { 0 } else { 2_000 });
        assert_eq!(silent.by_rank, [0, 1, 0, 0, 0, 0]);
        let said = silent.about();
        assert!(
            said.contains("(hosts): 5, 1 without answers; round trips of 2.0 us within;"),
            "{said}"
        );
        assert!(said.ends_with("10 of 15 pairs were measured"), "{said}");
        let many = of(40, &|a, b| if a / 2 == b / 2 { 1_000 } else { 9_000 }).about();
        assert!(many.contains("measured 20 parts") && many.contains(" 2, 2, ...; "), "{many}");
    }

    #[test]
    fn all__quarters_are_the_slices_of_a_phase() {
        let mut early = clearway_proto::stats::Histogram::new();
        [9_000, 7_000].into_iter().for_each(|time| early.record(time));
        let late = std::iter::once(8_000).collect();
        let slices = vec![(0, early), (3, late), (4, std::iter::once(1).collect())];
        let peer = Rank(6);
        let series = [Metric::SendLag, Metric::RoundTrip].map(|metric| {
            clearway_proto::congestion::Series { metric, peer, slices: slices.clone() }
        });
        let record = PhaseRecord { series: series.to_vec(), ..PhaseRecord::default() };
        let least = [Some(Nanos(7_000)), None, None, Some(Nanos(8_000))];
        assert_eq!(
            PingResult::all(&record).collect::<Vec<_>>(),
            [PingResult { partner: 6, least }]
        );
    }
}
