//! Compares several roots that cast at the same time with one root: coordinates the ranks, and
//! makes figures and a table.
//!
//! # Model
//! The ranks agree on a channel for each root's team. Then, object after object, all roots get the
//! order to cast at once, and the next time when all ranks have compared all. The roots share what
//! a receiver's link carries: each keeps to its part of the rate.
//!
//! # Invariants
//! I1. What was seen is reported only if every byte was right.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clearway_proto::base::{BitsPerSec, Bytes, Rank};

use super::coordinator::{LOOK_EVERY, STUCK, TIMEOUT, way_of};
use super::fault_injection::ArrivalFaults;
use super::figures::{BYTES, LOSS, MODE};
use super::messages::{
    BroadcastAssignment, BroadcastProtocol, BroadcastRequest, BroadcastResponse, BroadcastResult,
    CastTiming,
};
use super::outcome::quantile;
use super::plan::{BroadcastPlan, CastMode, Millionths};
use crate::report::model::{ExtendedReal, Figure};
use crate::report::numerals::digits;
use crate::run::venue::ProcessVenue;
use crate::run::{detail, notice};

/// From the first root's cast until every rank has the objects of all roots, in s, half of them;
/// labels bytes, loss, mode, roots.
const SECONDS: &str = "broadcast_roots_seconds";
/// The same, 99 of 100.
const SLOW: &str = "broadcast_roots_p99_seconds";
/// Bytes of all roots' objects over what a receiver's link carries in the median time; labels as
/// before.
const GOODPUT: &str = "broadcast_roots_goodput_fraction";
/// Label: how many cast at the same time.
const ROOTS: &str = "roots";

/// What became of one cast of several roots.
pub(crate) struct MultiRootRun {
    roots: u32,
    mode: CastMode,
    length: Bytes,
    loss: Millionths,
    rate: Option<BitsPerSec>,
    /// Seconds of each round.
    seconds: Vec<f64>,
    /// Of each team its own channel.
    channels: Vec<Option<u8>>,
    /// Symbols that left again, of those that left.
    again: f64,
}

/// Casts from one root and from `roots` at once, all lengths, losses and modes of `plan`.
///
/// # Errors
/// One sentence: which rank cannot go on, what was wrong with an object, or who does not answer.
pub(crate) fn with_roots(
    venue: &mut dyn ProcessVenue,
    plan: &BroadcastPlan,
    roots: u32,
) -> Result<Vec<MultiRootRun>> {
    let mut key = 0;
    let mut runs = Vec::new();
    for loss in &plan.losses {
        for length in &plan.lengths {
            for mode in plan.modes_of(*length) {
                for roots in BTreeSet::from([1, roots]) {
                    runs.push(run(venue, plan, (*mode, *length, *loss), roots, key)?);
                    key += roots;
                }
            }
        }
    }
    Ok(runs)
}

/// Runs one cast of `roots`, whose teams have the numbers from `key` on.
fn run(
    venue: &mut dyn ProcessVenue,
    plan: &BroadcastPlan,
    what: (CastMode, Bytes, Millionths),
    roots: u32,
    key: u32,
) -> Result<MultiRootRun> {
    let (mode, length, loss) = what;
    let objects = plan.objects_of(length);
    detail!("{objects} of {length} from {roots} at once, {}, {loss} lost", mode.name());
    let assignment = BroadcastAssignment {
        key,
        ranks: plan.ranks,
        per_leaf: plan.per_leaf(),
        roots,
        way: way_of(venue, plan, what),
        rhythm: CastTiming::Ordered,
        length,
        objects,
        rate: plan.rate.map(|rate| BitsPerSec(rate.0 / u64::from(roots))),
        silence: plan.silence,
        seed: plan.seed,
        faults: ArrivalFaults { lost: loss.0, ..ArrivalFaults::default() },
        sampled_object: 0,
    };
    let ranks: Vec<Rank> = (0..plan.ranks).map(Rank).collect();
    begin(venue, &ranks, &assignment)?;
    let mut accounts: Vec<BroadcastResult> = Vec::new();
    for round in 0..objects {
        for root in &ranks[..roots as usize] {
            venue
                .processes_mut()
                .session::<BroadcastProtocol>()
                .try_request(*root, BroadcastRequest::Cast)?;
        }
        let mut has = BTreeSet::new();
        while has.len() < ranks.len() {
            match next(venue, STUCK)? {
                (rank, BroadcastResponse::Has(object)) if object == round => drop(has.insert(rank)),
                (_, BroadcastResponse::Switched(way, _)) => {
                    notice!("the way changes to {}", way.name())
                }
                (_, BroadcastResponse::Done(account)) => accounts.push(*account),
                _ => {}
            }
        }
    }
    while accounts.len() < ranks.len() {
        if let (_, BroadcastResponse::Done(account)) = next(venue, STUCK)? {
            accounts.push(*account);
        }
    }
    if let Some(fault) = accounts.iter().find_map(|account| account.faults.first()) {
        bail!("{fault}; this is a defect of the program");
    }
    let (sent, again) = accounts.iter().fold((0, 0), |(sent, again), account| {
        (sent + account.record.sent, again + account.record.repairs)
    });
    Ok(MultiRootRun {
        roots,
        mode,
        length,
        loss,
        rate: plan.rate,
        seconds: rounds(&accounts, objects),
        channels: accounts.into_iter().map(|account| account.channels).next().unwrap_or_default(),
        again: again as f64 / (sent as f64).max(1.0),
    })
}

/// Gives all `ranks` their part and waits until every root has heard everybody.
fn begin(
    venue: &mut dyn ProcessVenue,
    ranks: &[Rank],
    assignment: &BroadcastAssignment,
) -> Result<()> {
    for rank in ranks {
        venue
            .processes_mut()
            .session::<BroadcastProtocol>()
            .try_request(*rank, BroadcastRequest::Take(Box::new(assignment.clone())))?;
    }
    let (mut taken, mut ready) = (BTreeSet::new(), BTreeSet::new());
    while taken.len() < ranks.len() || ready.len() < assignment.roots as usize {
        match next(venue, TIMEOUT)? {
            (rank, BroadcastResponse::Taken) => drop(taken.insert(rank)),
            (rank, BroadcastResponse::Ready) => drop(ready.insert(rank)),
            // Of the cast before.
            _ => {}
        }
    }
    Ok(())
}

/// Returns the next response of a rank.
fn next(venue: &mut dyn ProcessVenue, timeout: Duration) -> Result<(Rank, BroadcastResponse)> {
    let deadline = Instant::now() + timeout;
    loop {
        match venue.processes_mut().session::<BroadcastProtocol>().poll(LOOK_EVERY)? {
            Some((rank, Ok(BroadcastResponse::Failed(sentence)))) => {
                bail!("{}: {sentence}", venue.processes().name(rank))
            }
            Some((rank, Ok(said))) => return Ok((rank, said)),
            Some((rank, Err(how))) => {
                bail!("{} {how} in the middle of the cast; run again", venue.processes().name(rank))
            }
            None if Instant::now() > deadline => {
                bail!("nothing moves any more for {timeout:?}; run again")
            }
            None => {}
        }
    }
}

/// Returns the seconds of each round: from the first cast to the last that is here. Ranks of a lab
/// read one clock.
fn rounds(accounts: &[BroadcastResult], objects: u32) -> Vec<f64> {
    let one = |round: usize| {
        let times = || accounts.iter().filter_map(move |account| account.times.get(round));
        let (first, last) =
            (times().map(|times| times[0]).min()?, times().map(|times| times[1]).max()?);
        Some(last.since(first).as_secs_f64())
    };
    (0..objects as usize).filter_map(one).collect()
}

impl MultiRootRun {
    /// Returns the goodput as a part of the rate of a link of a rank that receives from all roots.
    fn goodput(&self) -> Option<f64> {
        let bits = self.length.0 as f64 * 8.0 * f64::from(self.roots);
        Some(bits / quantile(&self.seconds, 0.5)? / self.rate?.0 as f64)
    }

    /// Returns the figures of this run.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let source = "from the first cast until all ranks have the objects of all roots";
        let samples = self.seconds.len() as u64;
        let values = [
            (SECONDS, "s", quantile(&self.seconds, 0.5)),
            (SLOW, "s", quantile(&self.seconds, 0.99)),
            (GOODPUT, "", self.goodput()),
        ];
        let figure = |(name, unit, value): (&str, &str, Option<f64>)| {
            let figure = Figure::counted(name, unit, ExtendedReal::new(value?)?, samples, source);
            let figure =
                figure.with(BYTES, self.length.0.to_string()).with(LOSS, self.loss.to_string());
            Some(figure.with(MODE, self.mode.name()).with(ROOTS, self.roots.to_string()))
        };
        values.into_iter().filter_map(figure).collect()
    }

    /// Returns a line of the table.
    pub(crate) fn row(&self) -> String {
        let channel =
            |own: &Option<u8>| own.map_or_else(|| "shared".into(), |number| number.to_string());
        let channels: Vec<String> = self.channels.iter().map(channel).collect();
        let number = |value: Option<f64>, scale: f64| {
            value
                .and_then(|value| ExtendedReal::new(value * scale))
                .map_or_else(|| "-".into(), digits)
        };
        format!(
            "{:>5} {:<10}{:>9}{:>8}{:>12}{:>12}{:>7}%{:>7}%  {}",
            self.roots,
            self.mode.name(),
            self.length.to_string(),
            self.loss.to_string(),
            number(quantile(&self.seconds, 0.5), 1e3),
            number(quantile(&self.seconds, 0.99), 1e3),
            number(self.goodput(), 1e2),
            number(Some(self.again), 1e2),
            channels.join(" "),
        )
    }

    /// Returns what stands above the lines and below them, for runs on `place`.
    pub(crate) fn frame(place: &str, rows: &[String]) -> String {
        let head = format!(
            "{:>5} {:<10}{:>9}{:>8}{:>12}{:>12}{:>8}{:>8}  {}",
            "roots", "mode", "bytes", "lost", "p50 ms", "p99 ms", "line", "again", "channels"
        );
        format!(
            "broadcasts of several roots at once on {place}, every byte compared at every rank\n\n{head}\n{}\n\n\
             p50, p99: until all ranks have the objects of all roots; line: their bytes over\n\
             what a receiver's link carries in the median time; again: symbols sent again\n",
            rows.join("\n")
        )
    }
}
