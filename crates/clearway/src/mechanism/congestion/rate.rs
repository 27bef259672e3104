//! Measures how fast the host links of a job are, where no interface says it: bulk messages between
//! hosts, for a moment.
//!
//! # Model
//! One pair of hosts after the other, spread over the job: the ranks of the one send to the ranks
//! of the other as fast as those take it, a window of messages under way, so that nobody else's
//! network is flooded and receivers keep up; what arrives is counted, headers included, in slices
//! of time. The rate is the median over all slices of all pairs; how far the pairs are apart is
//! reported next to it. A link that ranks cannot fill shows what the ranks can carry, which is what
//! congestors can offer.
//!
//! A job on one host has no link between hosts. Its ranks then send in a ring, and share what
//! arrives.

use std::fmt;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos, Rank};
use clearway_proto::congestion::{Flow, FlowStyle, LoadKind, LoadTask};
use clearway_proto::stats::Estimate;

use super::phases::{BackgroundLoad, PhaseResult, PhaseRunner};
use super::windows::Grid;

/// Slices as long as a full queue of 100 packets takes at 25 Mb/s, so that a queue's filling shows
/// in the first only.
const SLICE: Nanos = Nanos::from_millis(50);
/// Slices before anything counts: the link's queue fills, sleeping processors wake.
const WARM_UP: u32 = 2;
/// Slices that count for each pair.
const COUNTED: u32 = 6;
/// How long ranks listen for what is still under way.
const DRAIN: Nanos = Nanos::from_millis(100);
/// Pairs at most: four seconds in all. Hosts of one job seldom have different links.
const PAIRS_MAX: usize = 8;
/// More than any link: the window decides.
const UNBOUNDED: BitsPerSec = BitsPerSec(400_000_000_000);
/// Bytes of a message, as of a congestor's (GPCNeT).
const MESSAGE: Bytes = Bytes(4096);
/// Messages of one rank under way: 96 packets, which the shortest queues of switches and
/// laboratories hold (100), and enough for 30 Gb/s when a round trip takes 35 us.
const WINDOW: u32 = 32;

/// A rate that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MeasuredRate {
    /// Of one rank's part of its host's link.
    pub(crate) rate: BitsPerSec,
    /// How far pairs of hosts are apart; nothing where all ranks are on one.
    spread: Option<RateSpread>,
}

/// The lowest and the highest of some pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RateSpread {
    pairs: usize,
    low: BitsPerSec,
    high: BitsPerSec,
}

impl fmt::Display for MeasuredRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for each rank, measured ", self.rate)?;
        match self.spread {
            Some(RateSpread { pairs, low, high }) => {
                write!(f, "between {pairs} pairs of hosts ({low} to {high})")
            }
            None => f.write_str("between the ranks of one host"),
        }
    }
}

/// Measures the links between `hosts`, each with its ranks.
pub(crate) fn measure(stage: &mut PhaseRunner<'_>, hosts: &[Vec<Rank>]) -> Result<MeasuredRate> {
    let ranks_max = hosts.iter().map(Vec::len).max().context("a job without hosts")? as u64;
    let mut all = Vec::new();
    let mut of_pairs = Vec::new();
    for (from, to) in pairs(hosts) {
        let rates = exchange(stage, &from, &to)?;
        let median = Estimate::median(&rates).context("no slice was counted")?.value;
        if median <= 0.0 {
            let names = stage.hosts();
            let name = |rank: &[Rank]| names.get(rank[0].index()).cloned().unwrap_or_default();
            bail!(
                "no bulk message came from host {} to host {}, so the rate of their links cannot be measured; does a firewall \
                 drop UDP between them?",
                name(&from),
                name(&to)
            );
        }
        of_pairs.push(median / ranks_max as f64);
        all.extend(rates.into_iter().map(|rate| rate / ranks_max as f64));
    }
    let median = Estimate::median(&all).context("no pair of hosts was measured")?.value;
    let low = of_pairs.iter().copied().fold(f64::INFINITY, f64::min);
    let high = of_pairs.iter().copied().fold(0.0, f64::max);
    let spread = RateSpread { pairs: of_pairs.len(), low: rounded(low), high: rounded(high) };
    Ok(MeasuredRate { rate: rounded(median), spread: (hosts.len() > 1).then_some(spread) })
}

/// Rounds to three digits: no measurement of half a second has more.
fn rounded(bits: f64) -> BitsPerSec {
    let bits = bits as u64;
    let unit = 10_u64.pow(bits.checked_ilog10().unwrap_or(0).saturating_sub(2));
    BitsPerSec((bits + unit / 2) / unit * unit)
}

/// Returns the senders and receivers of each exchange, at most [`PAIRS_MAX`], spread evenly over
/// the hosts.
fn pairs(hosts: &[Vec<Rank>]) -> Vec<(Vec<Rank>, Vec<Rank>)> {
    if let [only] = hosts {
        let mut next = only.clone();
        next.rotate_left(1);
        return vec![(only.clone(), next)];
    }
    let count = hosts.len().min(PAIRS_MAX);
    let pair = |i: usize| {
        let at = i * hosts.len() / count;
        (hosts[at].clone(), hosts[(at + 1) % hosts.len()].clone())
    };
    (0..count).map(pair).collect()
}

/// Returns what the `to` received together from the `from`, slice by slice, in bits per second.
fn exchange(stage: &mut PhaseRunner<'_>, from: &[Rank], to: &[Rank]) -> Result<Vec<f64>> {
    let loads = |rank: Rank| match from.iter().position(|sender| *sender == rank) {
        Some(at) if to[at % to.len()] != rank => vec![flood(to[at % to.len()])],
        _ => Vec::new(),
    };
    let grid = Grid { slice: SLICE, drain: DRAIN };
    let measured = grid.slices(COUNTED + 1);
    let background = BackgroundLoad {
        grid,
        loads: &loads,
        ramp: grid.slices(WARM_UP),
        longest: Nanos::from_secs(10),
    };
    let phase_result = stage.run_during_load(&background, &mut || {
        thread::sleep(Duration::from_nanos(measured.0));
        Ok(())
    })?;
    Ok((WARM_UP..WARM_UP + COUNTED).map(|slice| arrived(&phase_result, slice)).collect())
}

fn flood(target: Rank) -> LoadTask {
    let (style, window) = (FlowStyle::Put, Some(WINDOW));
    let flow = Flow {
        targets: vec![target],
        style,
        rate: UNBOUNDED,
        message: MESSAGE,
        window,
        burst: None,
    };
    LoadTask {
        kind: LoadKind::Flows(vec![flow]),
        class: Class::Bulk,
        from: Nanos::ZERO,
        until: Nanos::ZERO,
    }
}

/// Returns what arrived in `slice`, in bits per second.
fn arrived(phase_result: &PhaseResult, slice: u32) -> f64 {
    let series = phase_result.records.iter().flat_map(|record| &record.load);
    let bytes: u64 = series
        .flat_map(|series| &series.slices)
        .filter(|it| it.slice == slice)
        .map(|it| it.link)
        .sum();
    bytes as f64 * 8.0 / SLICE.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(counts: &[u32]) -> Vec<Vec<Rank>> {
        let mut next = 0;
        let mut host = |count: &u32| {
            next += count;
            (next - count..next).map(Rank).collect()
        };
        counts.iter().map(&mut host).collect()
    }

    #[test]
    fn pairs__are_few_and_spread_over_the_job() {
        let many = pairs(&hosts(&[1; 100]));
        let firsts: Vec<u32> = many.iter().map(|(from, _)| from[0].0).collect();
        assert_eq!(firsts, [0, 12, 25, 37, 50, 62, 75, 87]);
        assert!(many.iter().all(|(from, to)| from != to));
        assert_eq!(pairs(&hosts(&[2, 1])).len(), 2);
    }

    #[test]
    fn pairs__one_host_is_a_ring_of_its_ranks() {
        let ring = pairs(&hosts(&[3]));
        assert_eq!(ring, [(vec![Rank(0), Rank(1), Rank(2)], vec![Rank(1), Rank(2), Rank(0)])]);
    }

    #[test]
    fn rounded__keeps_three_digits_of_any_rate() {
        for (bits, expected) in
            [(484_965_312.0, 485_000_000), (96.4, 96), (0.0, 0), (24_960_000_000.0, 25_000_000_000)]
        {
            assert_eq!(rounded(bits), BitsPerSec(expected), "{bits}");
        }
    }

    #[test]
    fn display__says_how_far_pairs_are_apart() {
        let mega = BitsPerSec::mega;
        let measured = MeasuredRate {
            rate: mega(94),
            spread: Some(RateSpread { pairs: 4, low: mega(90), high: mega(95) }),
        };
        let expected =
            "94 Mb/s for each rank, measured between 4 pairs of hosts (90 Mb/s to 95 Mb/s)";
        assert_eq!(measured.to_string(), expected);
        let alone = MeasuredRate { spread: None, ..measured };
        assert_eq!(
            alone.to_string(),
            "94 Mb/s for each rank, measured between the ranks of one host"
        );
    }
}
