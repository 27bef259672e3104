//! The figures of broadcasts.

use clearway_proto::base::{Bytes, Nanos};
use clearway_proto::broadcast::{Costs, MulticastReach};

use super::messages::CastTiming;
use super::outcome::{CastResult, quantile};
use super::plan::{BroadcastPlan, CastMode, Millionths};
use crate::report::model::{ExtendedReal, Figure, labels};

/// From the order to cast until every receiver has the object, in s, half of them; labels bytes,
/// loss, mode.
pub(crate) const SECONDS: &str = "broadcast_seconds";
/// The same, 99 of 100.
pub(crate) const SLOW: &str = "broadcast_p99_seconds";
/// The time until the root knows that; labels bytes, loss, mode, quantile.
pub(super) const KNOWN: &str = "broadcast_known_seconds";
/// One of sixteen that are cast at once, until the root knows that all have all, over their number;
/// labels bytes, loss, mode, quantile.
pub(super) const AMORTISED: &str = "broadcast_amortised_seconds";
/// A datagram to all and an answer of each, without any engine, in s; labels loss, quantile.
pub(super) const BARE: &str = "broadcast_bare_seconds";
/// The median of short objects over that of bare exchanges of the same run; labels bytes, loss,
/// mode, kind.
pub(super) const RATIO: &str = "broadcast_bare_ratio";
/// Bytes of an object over what the line carries in the median time; labels bytes, loss, mode.
pub(super) const GOODPUT: &str = "broadcast_goodput_fraction";
/// Processor time of the root for an object, in s; labels bytes, loss, mode.
pub(crate) const PROCESSOR: &str = "broadcast_root_cpu_seconds";
/// The same of what a user gets, who chooses no mode; labels bytes, loss.
const SENDER: &str = "broadcast_sender_cpu_seconds";
/// Symbols that left again, by whomever, for each one that the objects have; labels bytes, loss,
/// mode.
pub(super) const REPAIRS: &str = "broadcast_repairs_fraction";

/// The longest time in which a receiver got nothing new in the middle of an object, in s; labels
/// bytes, loss, mode.
pub(super) const STALL: &str = "broadcast_stall_seconds";
/// Symbols that came to a receiver that had them, for each one that the objects have; labels bytes,
/// loss, mode.
pub(super) const DOUBLED: &str = "broadcast_doubled_fraction";

/// Labels of these figures.
pub(super) const BYTES: &str = "bytes";
pub(super) const LOSS: &str = "loss";
pub(super) const MODE: &str = "mode";
pub(super) const KIND: &str = "kind";

/// Quantiles that are reported.
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

/// Returns all figures of `outcomes`.
pub(crate) fn figures(plan: &BroadcastPlan, outcomes: &[CastResult]) -> Vec<Figure> {
    let mut figures: Vec<Figure> =
        outcomes.iter().flat_map(|outcome| cast_figures(plan, outcome)).collect();
    figures.extend(ratios(&figures));
    figures
}

/// Returns the figures of one cast.
fn cast_figures(plan: &BroadcastPlan, outcome: &CastResult) -> Vec<Figure> {
    let cast = &outcome.cast;
    let labelled = |figure: Figure| {
        figure
            .with(BYTES, cast.length.0.to_string())
            .with(LOSS, cast.loss.to_string())
            .with(MODE, cast.mode.name())
    };
    let quantiles = |name: &str, values: &[f64], source: &str| -> Vec<Figure> {
        let one = |(label, at): (&str, f64)| {
            let figure = Figure::counted(
                name,
                "s",
                ExtendedReal::or_infinite(quantile(values, at)?),
                values.len() as u64,
                source,
            );
            Some(figure.with(labels::QUANTILE, label))
        };
        QUANTILES.into_iter().filter_map(one).collect()
    };
    match cast.rhythm {
        CastTiming::Bare => {
            let source = "a datagram to all, until the last answer";
            quantiles(BARE, &outcome.known(), source)
                .into_iter()
                .map(|figure| figure.with(LOSS, cast.loss.to_string()))
                .collect()
        }
        CastTiming::Batches(_) => {
            let source = "a batch until the root knows that all have it, over its objects";
            quantiles(AMORTISED, &outcome.amortised(), source).into_iter().map(labelled).collect()
        }
        CastTiming::Ordered | CastTiming::Apart(_) => {
            let completions = outcome.completions();
            let end = if outcome.is_one_clock {
                "until the last receiver has it"
            } else {
                "until the root knows"
            };
            let mut figures = plain_quantiles(&completions, end);
            figures.extend(quantiles(
                KNOWN,
                &outcome.known(),
                "until the root knows that all have it",
            ));
            figures.extend(counted(plan, outcome, &completions));
            let processor = figures.iter().find(|figure| figure.name == PROCESSOR).cloned();
            let sender = processor.filter(|_| cast.mode == CastMode::Auto).map(|figure| {
                let figure = Figure { name: SENDER.to_owned(), ..figure };
                figure.with(BYTES, cast.length.0.to_string()).with(LOSS, cast.loss.to_string())
            });
            figures.into_iter().map(labelled).chain(sender).collect()
        }
    }
}

/// Returns the median and p99 of `completions`, each with a name of its own.
fn plain_quantiles(completions: &[f64], source: &str) -> Vec<Figure> {
    let one = |(name, at)| {
        Some(Figure::counted(
            name,
            "s",
            ExtendedReal::or_infinite(quantile(completions, at)?),
            completions.len() as u64,
            source,
        ))
    };
    [(SECONDS, 0.5), (SLOW, 0.99)].into_iter().filter_map(one).collect()
}

/// Returns what is no time of an object.
fn counted(plan: &BroadcastPlan, outcome: &CastResult, completions: &[f64]) -> Vec<Figure> {
    let samples = completions.len() as u64;
    let (record, cast) = (outcome.record(), &outcome.cast);
    let mut figures = Vec::new();
    if let Some(cpu) = quantile(&outcome.processor(), 0.5) {
        figures.push(Figure::counted(
            PROCESSOR,
            "s",
            ExtendedReal::or_infinite(cpu),
            samples,
            "processor time of the root's process",
        ));
    }
    // Of a message in one packet it would say how long the packet is.
    let is_long = cast.rhythm == CastTiming::Ordered;
    if let Some((median, rate)) = quantile(completions, 0.5).zip(plan.rate).filter(|_| is_long) {
        let fraction = cast.length.0 as f64 * 8.0 / median / rate.0 as f64;
        figures.push(Figure::counted(
            GOODPUT,
            "",
            ExtendedReal::or_infinite(fraction),
            samples,
            "of the link's rate, headers included",
        ));
    }
    if is_long && samples > 0 {
        figures.push(Figure::counted(
            STALL,
            "s",
            ExtendedReal::or_infinite(outcome.stall()),
            samples,
            "of the slowest receiver",
        ));
    }
    if record.received > 0 {
        let of_all = |count: u64| ExtendedReal::or_infinite(count as f64 / record.received as f64);
        let source = "symbols sent because asked for, of those that all receivers need";
        figures.push(Figure::counted(REPAIRS, "", of_all(record.repairs), samples, source));
        let source = "symbols that came to receivers that had them, of those that all need";
        figures.push(Figure::counted(DOUBLED, "", of_all(record.doubled), samples, source));
    }
    figures
}

/// Returns figures of short objects next to bare exchanges with the same loss.
fn ratios(figures: &[Figure]) -> Vec<Figure> {
    let is_median =
        |figure: &&Figure| figure.name == SECONDS || figure.label(labels::QUANTILE) == Some("p50");
    let bare = |loss: Option<&str>| {
        let same = |figure: &&Figure| figure.name == BARE && figure.label(LOSS) == loss;
        figures.iter().filter(is_median).find(same).map(|figure| figure.value.get())
    };
    let is_reported = |name, figure: &Figure| {
        let same = |other: &&Figure| {
            other.name == name
                && [BYTES, LOSS, MODE].iter().all(|key| other.label(key) == figure.label(key))
        };
        figures.iter().any(|other| same(&other))
    };
    // Long objects have stalls.
    let is_short = |figure: &Figure| is_reported(AMORTISED, figure) && !is_reported(STALL, figure);
    let one = |figure: &Figure| {
        let kind = match figure.name.as_str() {
            SECONDS if is_short(figure) => "alone",
            AMORTISED if is_short(figure) => "amortised",
            _ => return None,
        };
        let ratio = figure.value.get() / bare(figure.label(LOSS))?;
        let ratio = Figure::counted(
            RATIO,
            "",
            ExtendedReal::or_infinite(ratio),
            figure.samples,
            "median over median of the same run",
        );
        let labels =
            [BYTES, LOSS, MODE].into_iter().filter_map(|key| Some((key, figure.label(key)?)));
        Some(labels.fold(ratio.with(KIND, kind), |ratio, (key, value)| ratio.with(key, value)))
    };
    figures.iter().filter(is_median).filter_map(one).collect()
}

/// Returns what each way costs by the engine's model, and which one that makes the best; `symbol`
/// is what a message carries.
pub(crate) fn explained(
    plan: &BroadcastPlan,
    figures: &[Figure],
    symbol: Bytes,
    multicast: MulticastReach,
) -> String {
    let bare = |loss: Millionths| {
        let loss = loss.to_string();
        let same = |figure: &&Figure| figure.name == BARE && figure.label(LOSS) == Some(&loss);
        figures.iter().find(same).map(|figure| Nanos((figure.value.get() * 1e9 / 2.0) as u64))
    };
    let mut text =
        String::from("\nwhat each way costs, from the rate and half of the bare exchange:\n");
    for loss in &plan.losses {
        let latency = bare(*loss).unwrap_or(Nanos::from_micros(100));
        for length in &plan.lengths {
            let circumstances = plan.circumstances(*length, symbol, latency, *loss);
            let costs = Costs::new(&circumstances, multicast);
            text += &format!("  {length}, {loss} lost: {costs}; best: {}\n", costs.best().name());
        }
    }
    text
}
