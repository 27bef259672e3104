//! The figures of a run together, and the series that its page draws.

use clearway_proto::stats::{Histogram, Quantile, jain};
use serde::{Deserialize, Serialize};

use super::outcome::{Application, SharedRun, TransferSet, quantile_us};
use super::roles::Transfer;
use crate::mechanism::congestion::windows::Windows;
use crate::report::model::{ExtendedReal, Figure, ReportPart, labels};

/// A quantile of the application, in us; labels queue, application, phase, quantile.
pub(super) const APPLICATION: &str = "together_application_us";
/// Its p99 with all transfers over its p99 alone; labels queue, application.
pub(super) const APPLICATION_RATIO: &str = "together_application_p99_ratio";
/// What a transfer carried, in bytes per second; labels queue, transfer, company.
pub(super) const RATE: &str = "together_transfer_rate";
/// The same with the others over that alone; labels queue, transfer.
pub(super) const RATE_SHARE: &str = "together_transfer_share";
/// Bytes of transfers on the fullest link over its rate; label queue.
pub(super) const LINE_FRACTION: &str = "together_bulk_line_fraction";
/// How evenly transfers keep their rate, as Jain's index of their shares; label queue.
pub(super) const FAIRNESS: &str = "together_bulk_fairness";

pub(super) const APPLICATION_KIND: &str = "application";
pub(super) const TRANSFER: &str = "transfer";
pub(super) const COMPANY: &str = "company";
/// Values of [`COMPANY`].
pub(super) const ALONE: &str = "alone";
pub(super) const ALL: &str = "all";

/// One run as the page draws it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SharedSeries {
    pub(super) queue: String,
    /// Length of a step.
    pub(super) step_ms: ExtendedReal,
    /// When transfers begin and end, in ms.
    pub(super) load_ms: [ExtendedReal; 2],
    /// The fullest link, from where to where.
    pub(super) link: String,
    /// p99 in us of each kind of application, by its name.
    pub(super) application: Vec<(String, Vec<Option<ExtendedReal>>)>,
    /// Bytes per second of each transfer, by its name.
    pub(super) transfers: Vec<(String, Vec<ExtendedReal>)>,
}

/// All runs with all transfers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TogetherSeries {
    pub(super) runs: Vec<SharedSeries>,
}

impl ReportPart for TogetherSeries {
    const NAME: &'static str = "together";
}

/// Returns the series of those of `runs` that had all transfers.
pub(super) fn series(runs: &[SharedRun], windows: &Windows) -> TogetherSeries {
    let ms = |slice: u32| ExtendedReal::or_infinite(windows.grid.slices(slice).as_secs_f64() * 1e3);
    let drawn: Vec<&SharedRun> = runs.iter().filter(|run| run.set == TransferSet::All).collect();
    // A colour stands for the same in all drawings, also where one has nothing of it.
    let is_drawn = |kind: &Application| drawn.iter().any(|run| run.has_run(*kind));
    let one = |run: &SharedRun| SharedSeries {
        queue: run.queue.clone(),
        step_ms: ms(1),
        link: run.link.as_ref().map(|link| link.name.clone()).unwrap_or_default(),
        load_ms: [ms(windows.load.from), ms(windows.load.until)],
        application: Application::ALL
            .into_iter()
            .filter(is_drawn)
            .map(|kind| {
                let p99 = run.p99_series(kind).into_iter();
                (kind.name().to_owned(), p99.map(|us| us.map(ExtendedReal::or_infinite)).collect())
            })
            .collect(),
        transfers: Transfer::ALL
            .into_iter()
            .filter(|transfer| runs.iter().any(|it| it.set == TransferSet::Alone(*transfer)))
            .map(|transfer| {
                let rates = run.rate_series(transfer, windows).into_iter();
                (transfer.name().to_owned(), rates.map(ExtendedReal::or_infinite).collect())
            })
            .collect(),
    };
    TogetherSeries { runs: drawn.iter().map(|run| one(run)).collect() }
}

/// Returns all figures of `runs`.
pub(super) fn figures(runs: &[SharedRun], windows: &Windows) -> Vec<Figure> {
    let mut figures = Vec::new();
    for run in runs {
        match run.set {
            TransferSet::Alone(transfer) => {
                let rate = run.rate(transfer, windows);
                figures.push(rate_figure(run, transfer, rate, ALONE));
            }
            TransferSet::All => {
                figures.extend(application(run, windows));
                figures.extend(transfers(run, runs, windows));
            }
        }
    }
    figures
}

fn figure(
    run: &SharedRun,
    name: &str,
    unit: &str,
    value: f64,
    samples: u64,
    source: &str,
) -> Figure {
    Figure::counted(name, unit, ExtendedReal::or_infinite(value), samples, source)
        .with(labels::QUEUE, run.queue.as_str())
}

fn rate_figure(run: &SharedRun, transfer: Transfer, rate: f64, company: &str) -> Figure {
    let source = "bytes that arrived while transfers ran";
    figure(run, RATE, "B/s", rate, 1, source).with(TRANSFER, transfer.name()).with(COMPANY, company)
}

fn application(run: &SharedRun, windows: &Windows) -> Vec<Figure> {
    let mut figures = Vec::new();
    for kind in Application::ALL.into_iter().filter(|kind| run.has_run(*kind)) {
        let isolated = run.times(kind, |slice| windows.isolated(slice));
        let congested = run.times(kind, |slice| windows.congested.contains(slice));
        let of_phase = |times: &Histogram, phase: &str| {
            let source = kind.source();
            [(Quantile::P50, "p50"), (Quantile::P99, "p99")].map(|(at, name)| {
                figure(run, APPLICATION, "us", quantile_us(times, at), times.count(), source)
                    .with(APPLICATION_KIND, kind.name())
                    .with(labels::PHASE, phase)
                    .with(labels::QUANTILE, name)
            })
        };
        figures.extend(of_phase(&isolated, labels::ISOLATED));
        figures.extend(of_phase(&congested, labels::CONGESTED));
        if isolated.is_empty() || congested.is_empty() {
            continue;
        }
        let [alone, loaded] = [&isolated, &congested].map(|it| quantile_us(it, Quantile::P99));
        // Where messages were lost alone already, nothing can be said of the transfers.
        let slowdown = if alone.is_finite() { loaded / alone } else { f64::INFINITY };
        let source = "p99 with all transfers over p99 before and after them";
        let ratio = figure(run, APPLICATION_RATIO, "x", slowdown, congested.count(), source);
        figures.push(ratio.with(APPLICATION_KIND, kind.name()));
    }
    figures
}

fn transfers(run: &SharedRun, runs: &[SharedRun], windows: &Windows) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut shares = Vec::new();
    for transfer in Transfer::ALL {
        // One that cannot run in this place did not run alone either.
        let alone = runs.iter().find(|it| it.set == TransferSet::Alone(transfer));
        let Some(alone) = alone.map(|alone| alone.rate(transfer, windows)) else { continue };
        let rate = run.rate(transfer, windows);
        figures.push(rate_figure(run, transfer, rate, ALL));
        let share = rate / alone.max(1.0);
        // Jain's index takes whole amounts.
        shares.push((share * 1e6) as u64);
        let source = "rate with the other transfers over rate alone";
        figures
            .push(figure(run, RATE_SHARE, "1", share, 1, source).with(TRANSFER, transfer.name()));
    }
    if let Some(fairness) = jain(&shares) {
        let source = "Jain's index of the shares that transfers keep";
        figures.push(figure(run, FAIRNESS, "1", fairness, shares.len() as u64, source));
    }
    if let Some(link) = &run.link {
        let source = "bytes of all transfers on the fullest link over its rate, in a lab those of the application too";
        figures.push(figure(run, LINE_FRACTION, "1", link.fraction, 1, source));
    }
    figures
}

#[cfg(test)]
pub(super) mod tests {
    use clearway_proto::base::{Nanos, Rank};
    use clearway_proto::congestion::{LoadSeries, Metric, PhaseRecord, Series, SliceBytes};

    use super::super::outcome::BusiestLink;
    use super::*;
    use crate::mechanism::congestion::windows::Grid;
    use crate::report::model::Report;
    use crate::report::sample;

    fn windows() -> Windows {
        let grid = Grid { slice: Nanos::from_millis(1), drain: Nanos::ZERO };
        Windows::new(grid, Nanos::from_millis(12), Nanos::from_millis(12))
    }

    /// Returns a run in which the application takes `loaded` instead of 1000 ns while transfers
    /// carry `rate` bytes in each slice.
    fn run(queue: &str, set: TransferSet, loaded: u64, rate: u64) -> SharedRun {
        let windows = windows();
        let mut run = SharedRun::new(queue, set, windows.after.until);
        for slice in 0..windows.after.until {
            let is_loaded = windows.load.contains(slice);
            let value = if is_loaded { loaded } else { 1000 };
            let times = (slice, [value; 100].into_iter().collect());
            let series = [Metric::OneWay, Metric::Iteration].map(|metric| Series {
                metric,
                peer: Rank(0),
                slices: vec![times.clone()],
            });
            let load = |transfer: &Transfer| LoadSeries {
                peer: Rank(0),
                class: transfer.class(),
                slices: vec![SliceBytes { slice, body: rate, ..SliceBytes::default() }],
                longest_gap: Nanos::ZERO,
            };
            let loads = [Transfer::Cast, Transfer::Checkpoint];
            let loads = loads.iter().filter(|transfer| is_loaded && set.has(**transfer));
            run.add_record(&PhaseRecord {
                series: series.into(),
                load: loads.map(load).collect(),
                ..PhaseRecord::default()
            });
            run.timed(Application::MpiPing, slice, Nanos(2 * value));
            for transfer in [Transfer::Puts, Transfer::Timeslices] {
                run.carried(transfer, slice, if set.has(transfer) { rate } else { 0 });
            }
        }
        run
    }

    /// Returns a report of runs on two queues.
    pub(in super::super) fn report() -> Report {
        let mut runs: Vec<SharedRun> = Transfer::ALL
            .map(|transfer| run("fifo", TransferSet::Alone(transfer), 1000, 4_000_000))
            .into();
        let link = |fraction| Some(BusiestLink { name: "h1 to switch".to_owned(), fraction });
        runs.push(SharedRun {
            link: link(0.99),
            ..run("fifo", TransferSet::All, 25_000, 2_000_000)
        });
        runs.push(SharedRun {
            link: link(0.95),
            ..run("strict", TransferSet::All, 1_200, 1_000_000)
        });
        let mut report = sample::incast_demo();
        report.figures = figures(&runs, &windows());
        report.set_part(&series(&runs, &windows()));
        report
    }

    #[test]
    fn figures__a_share_is_of_the_same_transfer_alone_and_a_ratio_of_the_same_run() {
        let report = report();
        let value = |name: &str, queue: &str| {
            let of_queue = |it: &&Figure| it.label(labels::QUEUE).is_some_and(|it| it == queue);
            report
                .figures
                .iter()
                .filter(|it| it.name == name)
                .find(of_queue)
                .map(|it| it.value.get())
        };
        let near = |value: Option<f64>, expected: f64| {
            assert!(value.is_some_and(|it| (it / expected - 1.0).abs() < 0.01), "{value:?}");
        };
        near(value(RATE_SHARE, "strict"), 0.25);
        near(value(APPLICATION_RATIO, "fifo"), 25.0);
        near(value(APPLICATION_RATIO, "strict"), 1.2);
        near(value(FAIRNESS, "strict"), 1.0);
        let of_mpi = |it: &&Figure| it.label(APPLICATION_KIND).is_some_and(|it| it == "mpi ping");
        let of_mpi: Vec<&Figure> = report.figures.iter().filter(of_mpi).collect();
        let ratios: Vec<f64> = of_mpi
            .iter()
            .filter(|it| it.name == APPLICATION_RATIO)
            .map(|it| it.value.get())
            .collect();
        assert_eq!([of_mpi.len(), ratios.len()], [10, 2]);
        near(ratios.first().copied(), 25.0);
        near(ratios.last().copied(), 1.2);
    }
}
