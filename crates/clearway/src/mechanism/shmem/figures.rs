//! The figures of the benchmark.

use clearway_proto::stats::{Quantile, QuantileValue};

use super::program::PeOperation;
use super::section::{ShmemPattern, ShmemSection};
use super::simulated::{PhaseClasses, ShmemPhase};
use crate::report::model::{ExtendedReal, Figure};

/// 99 of 100 operations take no longer, in us; labels classes, operation, pattern.
pub(super) const P99: &str = "shmem_p99_us";
/// Half of them; the same labels.
pub(super) const P50: &str = "shmem_p50_us";
/// p99 under load over p99 without; the same labels.
pub(super) const IMPACT: &str = "shmem_congestion_impact";
/// p99 with one class over p99 with classes; labels operation, pattern.
pub(super) const GAIN: &str = "shmem_class_gain";
/// What all long puts carried, in GB/s; labels classes, pattern.
pub(super) const BULK: &str = "shmem_bulk_rate";

pub(super) const CLASSES: &str = "classes";
pub(super) const OPERATION: &str = "operation";
pub(super) const PATTERN: &str = "pattern";

/// A label of figures of `shmem-tail` only.
pub(super) const CONGESTOR: &str = "congestor";
/// Another quantile of a latency that `shmem-tail` measures.
pub(super) const LATENCY: &str = "shmem_latency_us";
/// The phase or pattern without congestors.
pub(super) const ISOLATED: &str = "isolated";

/// Returns the name of what congestors do.
const fn pattern_name(pattern: Option<ShmemPattern>) -> &'static str {
    match pattern {
        None => ISOLATED,
        Some(pattern) => pattern.name(),
    }
}

/// Returns the quantile of `phase` in ns; infinite where nothing ended.
fn quantile(phase: &ShmemPhase, operation: PeOperation, at: Quantile) -> f64 {
    match phase.latency[operation as usize].quantile(at) {
        QuantileValue::Finite(value) => value as f64,
        _ => f64::INFINITY,
    }
}

/// Returns all figures of `phases`.
pub(super) fn figures(test: &ShmemSection, phases: &[ShmemPhase]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for phase in phases {
        let isolated = phases.iter().find(|it| it.classes == phase.classes && it.pattern.is_none());
        for operation in PeOperation::ALL {
            figures.extend(of_phase(phase, isolated, operation));
        }
        if phase.pattern.is_some() {
            let rate = phase.bulk_bytes as f64 / test.measured.0.0.max(1) as f64;
            let figure = figure(BULK, "GB/s", rate, 1, "bytes of long puts that ended");
            figures.push(labelled(figure, phase));
        }
    }
    figures.extend(gains(phases));
    figures
}

fn figure(name: &str, unit: &str, value: f64, samples: u64, source: &str) -> Figure {
    Figure::counted(name, unit, ExtendedReal::or_infinite(value), samples, source)
}

fn labelled(figure: Figure, phase: &ShmemPhase) -> Figure {
    figure.with(CLASSES, phase.classes.name()).with(PATTERN, pattern_name(phase.pattern))
}

fn of_phase(
    phase: &ShmemPhase,
    isolated: Option<&ShmemPhase>,
    operation: PeOperation,
) -> Vec<Figure> {
    let samples = phase.latency[operation as usize].count();
    let source = "from the instant at which an operation was wanted until its end";
    let named = |name, unit, value, source: &str| {
        let figure = figure(name, unit, value, samples, source);
        labelled(figure, phase).with(OPERATION, operation.name())
    };
    let p99 = quantile(phase, operation, Quantile::P99);
    let mut figures = vec![
        named(P50, "us", quantile(phase, operation, Quantile::P50) / 1e3, source),
        named(P99, "us", p99 / 1e3, source),
    ];
    if let Some(isolated) = isolated.filter(|_| phase.pattern.is_some()) {
        let impact = p99 / quantile(isolated, operation, Quantile::P99).max(1.0);
        figures.push(named(IMPACT, "x", impact, "p99 under load over p99 without"));
    }
    figures
}

/// Returns how much less p99 is with classes.
fn gains(phases: &[ShmemPhase]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for one in phases.iter().filter(|it| it.classes == PhaseClasses::One) {
        let several =
            |it: &&ShmemPhase| it.classes == PhaseClasses::Several && it.pattern == one.pattern;
        let Some(several) = phases.iter().find(several) else { continue };
        for operation in PeOperation::ALL {
            let [one_p99, several_p99] =
                [one, several].map(|phase| quantile(phase, operation, Quantile::P99));
            let samples = several.latency[operation as usize].count();
            let gain = figure(
                GAIN,
                "x",
                one_p99 / several_p99.max(1.0),
                samples,
                "p99 with one class over p99 with classes",
            );
            let gain = gain.with(PATTERN, pattern_name(one.pattern));
            figures.push(gain.with(OPERATION, operation.name()));
        }
    }
    figures
}
