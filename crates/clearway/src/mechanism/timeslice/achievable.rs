//! The micro-benchmark: what unscheduled writes and puts carry, by length, alone and in FLESnet's
//! mix.
//!
//! # Model
//! Half of the nodes send, each to all others in turn, two messages to each under way at a time,
//! and nobody waits for another sender. A *write* is what `raw` does: one-sided, known to its
//! sender when it is there. A *put* is the same where MPI makes it of two-sided messages: what has
//! up to 1 KiB travels with its message and is copied, what is longer is announced and fetched, and
//! either is acknowledged. The *mix* has one message of 16 and two of 64 bytes with each long
//! one.
//!
//! # Source
//! The Data-Flow Scheduler's slides 12 to 14 (CUG 2019): `fi_write` and `MPI_Put`, 64 KiB to 1 MiB.
//!
//! # Not here
//! How messages leave: the policies `raw` and `put` of the engine. `raw` at the length of a run's
//! contributions is the line that the run's throughput is divided by.

use std::collections::BTreeSet;

use anyhow::Result;
use clearway_proto::base::{Bytes, Nanos};
use clearway_proto::microslice::SliceRule;
use clearway_proto::timeslice::{ContributionSizes, Policy};

use super::coordinator::{TimesliceTask, each};
use super::figures::rate;
use super::messages::{BuildSpec, SinkKind, SourceKind};
use super::metrics::TimesliceMetrics;
use super::plan::{TimeslicePlan, UnscheduledMessages};
use super::simulated::{GanttRecording, TimesliceOutcome, TimesliceTestBed};
use crate::report::model::{ExtendedReal, Figure};
use crate::report::numerals::{digits_or_dash, length_shown};
use crate::run::RemainingTime;
use crate::run::venue::ProcessVenue;
use crate::scenario::Fabric;

/// Lengths that are measured (slide 12 to 14).
pub(crate) const LENGTHS: [Bytes; 4] =
    [Bytes(64 << 10), Bytes(128 << 10), Bytes(512 << 10), Bytes(1 << 20)];
/// What a sender carries, in GB/s; labels kind, messages, length.
const RATE: &str = "achievable_sender_rate";
/// Its labels.
const KIND: &str = "kind";
const MESSAGES: &str = "messages";
const LENGTH: &str = "length";
/// A ring holds one contribution; to a page.
const PAGE: u64 = 4096;
/// On a simulated fabric: rotations that are counted at least, and rotations before.
const ROTATIONS: u64 = 2;

/// One kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TrafficKind {
    policy: Policy,
    messages: UnscheduledMessages,
    length: Bytes,
}

impl TrafficKind {
    fn all(lengths: &[Bytes]) -> impl Iterator<Item = Self> + '_ {
        let kinds = [UnscheduledMessages::Alone, UnscheduledMessages::Mixed].into_iter();
        let kinds =
            kinds.flat_map(|messages| [Policy::Raw, Policy::Put].map(|policy| (messages, policy)));
        kinds.flat_map(move |(messages, policy)| {
            lengths.iter().map(move |length| Self { policy, messages, length: *length })
        })
    }

    /// Returns what is run for this line with `seed`.
    fn plan(self, plan: &TimeslicePlan, seed: u64) -> TimeslicePlan {
        let all = self.length.0 + ContributionSizes::SHORT_MESSAGES_BYTES.0;
        let ring = Bytes(all.next_multiple_of(PAGE));
        let policies = vec![self.policy];
        TimeslicePlan {
            contribution: self.length,
            messages: self.messages,
            ring,
            policies,
            seeds: vec![seed],
            ..plan.clone()
        }
    }

    fn task(self, job: &str) -> TimesliceTask {
        let source = match self.messages {
            UnscheduledMessages::Alone => SourceKind::Memory(self.length),
            UnscheduledMessages::Mixed => SourceKind::Mixed(self.length),
        };
        let feed = BuildSpec {
            slices: SliceRule::ByIndex { core: 1, overlap: 0 },
            source,
            sink: SinkKind::Discard,
            timeslices: None,
        };
        let memory = Bytes(
            (self.length.0 + ContributionSizes::SHORT_MESSAGES_BYTES.0).next_multiple_of(PAGE),
        );
        TimesliceTask { feed, memory, job: job.to_owned() }
    }

    const fn kind(self) -> &'static str {
        if matches!(self.policy, Policy::Put) { "put" } else { "write" }
    }

    const fn mix(self) -> &'static str {
        match self.messages {
            UnscheduledMessages::Alone => "alone",
            UnscheduledMessages::Mixed => "mix",
        }
    }
}

/// Runs the micro-benchmark of `plan` under `queue` of a simulated `fabric`.
pub(crate) fn simulate_achievable(
    fabric: &Fabric,
    queue: &str,
    plan: &TimeslicePlan,
    lengths: &[Bytes],
) -> Result<Vec<Figure>> {
    let count = TrafficKind::all(lengths).count() * plan.seeds.len();
    let remaining = RemainingTime::begin("run", vec![1.0; count], None);
    figures(plan, lengths, &mut |line| {
        let run = |seed: &u64| {
            remaining.part(format!("{} {}, {}", line.kind(), line.mix(), line.length));
            let ground = TimesliceTestBed::open(fabric, queue, *seed, &plan.hosts)?;
            let plan = line.plan(plan, *seed);
            let least = plan.rotation_at(ground.host_rate()).times(ROTATIONS);
            let (warm_up, measured) =
                (plan.warm_up.max(least + plan.start_skew), plan.measured.max(least));
            ground.run(
                &TimeslicePlan { warm_up, measured, ..plan },
                line.policy,
                *seed,
                GanttRecording::No,
            )
        };
        plan.seeds.iter().map(run).collect()
    })
}

/// Runs it on `ranks`, watched as `job`.
pub(crate) fn measure_achievable(
    ranks: &mut dyn ProcessVenue,
    plan: &TimeslicePlan,
    job: &str,
    lengths: &[Bytes],
    metrics: &TimesliceMetrics,
) -> Result<Vec<Figure>> {
    let runs: Vec<_> = TrafficKind::all(lengths)
        .flat_map(|line| {
            plan.seeds.iter().map(move |seed| (line.plan(plan, *seed), line.task(job), line.policy))
        })
        .collect();
    let mut outcomes = each(ranks, &runs, metrics)?.into_iter();
    figures(plan, lengths, &mut |_| Ok(outcomes.by_ref().take(plan.seeds.len()).collect()))
}

/// Returns the median, least and most of what `run` showed for each line.
fn figures(
    plan: &TimeslicePlan,
    lengths: &[Bytes],
    run: &mut dyn FnMut(TrafficKind) -> Result<Vec<TimesliceOutcome>>,
) -> Result<Vec<Figure>> {
    let one = |line: TrafficKind| {
        let mut rates: Vec<f64> =
            run(line)?.iter().map(|outcome| rate(outcome) / f64::from(plan.inputs) / 1e9).collect();
        rates.sort_by(f64::total_cmp);
        let at = |place: usize| ExtendedReal::or_infinite(rates.get(place).copied().unwrap_or(0.0));
        let [low, median, high] = [0, rates.len() / 2, rates.len().saturating_sub(1)].map(at);
        let figure =
            Figure::counted(RATE, "GB/s", median, rates.len() as u64, "median of the seeds");
        let figure = Figure { low: Some(low), high: Some(high), ..figure };
        Ok(figure
            .with(KIND, line.kind())
            .with(MESSAGES, line.mix())
            .with(LENGTH, line.length.0.to_string()))
    };
    TrafficKind::all(lengths).map(one).collect()
}

/// Returns the figures of this many senders and receivers as text that ends with a newline.
pub(crate) fn achievable_table(
    place: &str,
    [senders, receivers]: [u32; 2],
    figures: &[Figure],
) -> String {
    let mut text = format!("{place}: {senders} senders, {receivers} receivers\n\n");
    text.push_str("MB/s of a sender   write       put   put of write   write, mix   put, mix\n");
    let find = |length: &str, kind: &str, messages: &str| {
        let wanted = [(LENGTH, length), (KIND, kind), (MESSAGES, messages)];
        let fits =
            |figure: &&Figure| wanted.iter().all(|(key, value)| figure.label(key) == Some(value));
        figures.iter().find(fits).and_then(|figure| ExtendedReal::new(1e3 * figure.value.get()))
    };
    let mut seen = BTreeSet::new();
    for length in figures
        .iter()
        .filter_map(|figure| figure.label(LENGTH))
        .filter(|length| seen.insert(*length))
    {
        let [write, put] = ["write", "put"].map(|kind| find(length, kind, "alone"));
        let [write_mix, put_mix] = ["write", "put"].map(|kind| find(length, kind, "mix"));
        let part =
            put.zip(write).and_then(|(put, write)| ExtendedReal::new(put.get() / write.get()));
        let [write, put, part, write_mix, put_mix] =
            [write, put, part, write_mix, put_mix].map(digits_or_dash);
        text.push_str(&format!(
            "{:<16}{write:>8}{put:>10}{part:>15}{write_mix:>13}{put_mix:>11}\n",
            length_shown(length)
        ));
    }
    text
}

/// Time before anything is counted and time counted on a simulated fabric, where nothing is asked
/// for: rings need not fill.
pub(crate) const SIMULATED: [Nanos; 2] = [Nanos::from_millis(6), Nanos::from_millis(2)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all__is_every_length_of_both_kinds_alone_and_mixed() {
        let lines: Vec<TrafficKind> = TrafficKind::all(&LENGTHS).collect();
        assert_eq!(lines.len(), 16);
        assert_eq!(
            (lines[0].kind(), lines[0].mix(), lines[0].length),
            ("write", "alone", LENGTHS[0])
        );
        assert_eq!(
            (lines[15].kind(), lines[15].mix(), lines[15].length),
            ("put", "mix", LENGTHS[3])
        );
    }

    #[test]
    fn table__has_a_row_for_each_length() {
        let figure = |kind: &str, messages: &str, value: f64| {
            let figure =
                Figure::counted(RATE, "GB/s", ExtendedReal::new(value).expect("finite"), 1, "");
            figure.with(KIND, kind).with(MESSAGES, messages).with(LENGTH, "65536")
        };
        let figures = [
            figure("write", "alone", 4.0),
            figure("put", "alone", 3.0),
            figure("write", "mix", 2.0),
            figure("put", "mix", 1.0),
        ];
        let text = achievable_table("here", [4, 4], &figures);
        let row = text.lines().last().expect("a row").split_whitespace().collect::<Vec<_>>();
        assert_eq!(row, ["64", "KiB", "4000", "3000", "0.75", "2000", "1000"], "{text}");
    }
}
