//! The figures of the test, and those that the study published.

use clearway_proto::stats::{Quantile, QuantileValue};

use super::plan::IterationMeaning;
use super::section::{StagingSection, StagingTest};
use super::simulated::{NoiseKind, StagingResult};
use crate::report::model::{ExtendedReal, Figure};

/// The mean time of an iteration in us, half of it where it is there and back; labels queue, test,
/// what, noise.
pub(super) const TIME: &str = "staging_time_us";
/// 99 of 100 iterations take no longer, in us, the same half; the same labels.
pub(super) const P99: &str = "staging_p99_us";
/// What a window carries, in MB/s; the same labels.
pub(super) const BANDWIDTH: &str = "staging_bandwidth";
/// What all writers got rid of while the application ran, in MB/s; the same labels.
pub(super) const WRITTEN: &str = "staging_written";
/// How much less time than on the first queue next to the same writers, in us; labels queue, test,
/// what.
pub(super) const LESS_TIME: &str = "staging_less_time_us";
/// How much more bandwidth, in MB/s; the same labels.
pub(super) const MORE_BANDWIDTH: &str = "staging_more_bandwidth";
/// How long a checkpoint blocks its application, in ms; labels queue, test, what, noise.
pub(super) const BLOCKED: &str = "staging_blocked_ms";
/// How many times longer than with servers it is blocked without; labels queue, test, what.
pub(super) const BLOCKED_RATIO: &str = "staging_blocked_ratio";
/// How many times as long as quiet an application runs during a checkpoint; labels queue, test,
/// what, noise.
pub(super) const OVERLAP: &str = "staging_overlap";
/// What the study published of these; labels test, what.
pub(super) const PUBLISHED: &str = "staging_published";

pub(super) const QUEUE: &str = "queue";
pub(super) const TEST: &str = "test";
pub(super) const WHAT: &str = "what";
pub(super) const NOISE: &str = "noise";

/// What the study published: less time in us of 4 MiB one way, and more MB/s of them.
const PUBLISHED_LESS_US: f64 = 320.0;
const PUBLISHED_MORE_MB: f64 = 674.0;
/// What the group published of the time blocked, in times (Euro-Par workshops 2011, abstract).
const PUBLISHED_RATIO: f64 = 8.3;
/// The length of which it published figures.
const PUBLISHED_BYTES: u64 = 4 << 20;

/// Returns the mean of an iteration in us, as it is counted.
fn time(result: &StagingResult) -> f64 {
    result.mean / 1e3 / part(result)
}

/// Returns by what the time of an iteration is divided.
fn part(result: &StagingResult) -> f64 {
    if result.case.meaning == IterationMeaning::RoundTrip { 2.0 } else { 1.0 }
}

/// Returns what a window carries in MB/s.
fn bandwidth(result: &StagingResult) -> Option<f64> {
    match result.case.meaning {
        IterationMeaning::Window(bytes) => Some(bytes as f64 * 1e3 / result.mean.max(1.0)),
        _ => None,
    }
}

/// Returns all figures of `results`.
pub(super) fn figures(test: &StagingSection, results: &[StagingResult]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = results.iter().flat_map(of_case).collect();
    let first = test.queues.first().map_or("", String::as_str);
    let with_writers = || results.iter().filter(|it| it.noise == NoiseKind::Writers);
    for result in with_writers().filter(|it| it.queue != first) {
        let is_same = |it: &&StagingResult| {
            it.queue == first
                && it.case.test == result.case.test
                && it.case.what == result.case.what
        };
        let Some(one) = with_writers().find(is_same) else { continue };
        figures.push(gain(one, result));
    }
    figures.extend(results.iter().filter_map(|result| blocked_ratio(results, result)));
    figures.extend(results.iter().filter_map(|result| overlap(results, result)));
    figures.extend(published(test));
    figures
}

/// Returns how many times longer a checkpoint takes without servers at the same store.
fn blocked_ratio(results: &[StagingResult], staged: &StagingResult) -> Option<Figure> {
    let is_twin = |it: &&StagingResult| {
        let stores = [&it.case, &staged.case].map(|case| case.storage.map(|rates| rates.store));
        it.noise == NoiseKind::Direct && it.queue == staged.queue && stores[0] == stores[1]
    };
    let direct = results.iter().filter(|_| staged.noise == NoiseKind::Staged).find(is_twin)?;
    let ratio = direct.blocked?.0 as f64 / staged.blocked?.0.max(1) as f64;
    let source = "time blocked by a checkpoint written to the store, over that with servers";
    Some(of_storage(BLOCKED_RATIO, "", ratio, staged, source))
}

/// Returns how many times as long as quiet an application runs during a checkpoint.
fn overlap(results: &[StagingResult], loaded: &StagingResult) -> Option<Figure> {
    let is_loaded = matches!(loaded.noise, NoiseKind::Drain | NoiseKind::Mounts);
    let is_twin = |it: &&StagingResult| {
        it.noise == NoiseKind::Quiet
            && it.queue == loaded.queue
            && it.case.test == loaded.case.test
            && it.case.what == loaded.case.what
    };
    let quiet = results.iter().filter(|_| is_loaded).find(is_twin)?;
    let ratio = loaded.mean / quiet.mean.max(1.0);
    let source = "time of the application's iterations, over that without a checkpoint";
    let figure = figure(OVERLAP, "", ratio, loaded, source);
    Some(figure.with(NOISE, loaded.noise.name()))
}

/// Returns a figure of a checkpoint, which is measured once.
fn of_storage(name: &str, unit: &str, value: f64, result: &StagingResult, source: &str) -> Figure {
    let figure = Figure::counted(name, unit, ExtendedReal::or_infinite(value), 1, source);
    let case = &result.case;
    figure.with(QUEUE, &result.queue).with(TEST, case.test.name()).with(WHAT, &case.what)
}

fn figure(name: &str, unit: &str, value: f64, result: &StagingResult, source: &str) -> Figure {
    let samples = result.iterations.count();
    let figure = Figure::counted(name, unit, ExtendedReal::or_infinite(value), samples, source);
    let case = &result.case;
    figure.with(QUEUE, &result.queue).with(TEST, case.test.name()).with(WHAT, &case.what)
}

fn of_case(result: &StagingResult) -> Vec<Figure> {
    if let Some(blocked) = result.blocked.filter(|_| result.case.test == StagingTest::Checkpoint) {
        let source = "until the servers or the store have all of the last client's bytes";
        let figure = of_storage(BLOCKED, "ms", blocked.0 as f64 / 1e6, result, source);
        return vec![figure.with(NOISE, result.noise.name())];
    }
    let named = |name, unit, value, source: &str| {
        figure(name, unit, value, result, source).with(NOISE, result.noise.name())
    };
    let p99 = match result.iterations.quantile(Quantile::P99) {
        QuantileValue::Finite(value) => value as f64 / 1e3 / part(result),
        _ => f64::INFINITY,
    };
    let mut figures = vec![
        named(TIME, "us", time(result), "mean of all iterations and processes"),
        named(P99, "us", p99, "of all iterations and processes"),
    ];
    figures.extend(bandwidth(result).map(|rate| {
        named(BANDWIDTH, "MB/s", rate, "bytes of a window over its time, answer included")
    }));
    if result.noise == NoiseKind::Writers {
        let source = "bytes of requests that were answered";
        figures.push(named(WRITTEN, "MB/s", result.written / 1e6, source));
    }
    figures
}

/// Returns what `other` has over `one`, the same case on the first queue.
fn gain(one: &StagingResult, other: &StagingResult) -> Figure {
    let source = "with writers, against the first queue";
    match (bandwidth(one), bandwidth(other)) {
        (Some(one), Some(rate)) => figure(MORE_BANDWIDTH, "MB/s", rate - one, other, source),
        _ => figure(LESS_TIME, "us", time(one) - time(other), other, source),
    }
}

/// Returns what was published of the tests that run.
fn published(test: &StagingSection) -> Vec<Figure> {
    let source = "Rajachandrasekar et al., talk of 2012; not fitted";
    let of = |kind: StagingTest, unit: &str, value| {
        let figure = Figure::counted(PUBLISHED, unit, ExtendedReal::finite(value), 1, source);
        figure.with(TEST, kind.name()).with(WHAT, test.large.to_string())
    };
    let mut figures = Vec::new();
    let is_long = test.large.0 == PUBLISHED_BYTES;
    if is_long && test.tests.contains(&StagingTest::Latency) {
        figures.push(of(StagingTest::Latency, "us", PUBLISHED_LESS_US));
    }
    if is_long && test.tests.contains(&StagingTest::Bandwidth) {
        figures.push(of(StagingTest::Bandwidth, "MB/s", PUBLISHED_MORE_MB));
    }
    if test.tests.contains(&StagingTest::Checkpoint) {
        let source = "Rajachandrasekar et al., Euro-Par workshops 2011, abstract; not fitted";
        let ratio = ExtendedReal::finite(PUBLISHED_RATIO);
        let figure = Figure::counted(PUBLISHED, "", ratio, 1, source);
        figures.push(figure.with(TEST, StagingTest::Checkpoint.name()));
    }
    figures
}
