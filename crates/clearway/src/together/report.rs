//! The report of a run together: table, page, conclusion.

use super::Together;
use super::figures::{
    ALL, ALONE, APPLICATION, APPLICATION_KIND, APPLICATION_RATIO, COMPANY, FAIRNESS, LINE_FRACTION,
    RATE, SharedSeries, TRANSFER, TogetherSeries,
};
use super::outcome::Application;
use crate::report::html::drawing::{
    ALONG, Chart, HALF, colour, decades, figure, legend, linear, pairs, sample, tick, time_tick,
};
use crate::report::html::tables::{cell, head, table};
use crate::report::html::{section, text};
use crate::report::model::{Figure, Report, labels};
use crate::report::numerals::digits;
use crate::report::present::Presenter;

impl Presenter for Together {
    fn check(&self, report: &Report) -> Result<(), String> {
        report.check_part::<TogetherSeries>()
    }

    fn conclusion(&self, report: &Report) -> Option<String> {
        let queues = queues(report);
        let (one_class, classes) = (queues.first()?, queues.get(1)?);
        let worst = |queue: &str| {
            let of_queue =
                figures_named(report, APPLICATION_RATIO).filter(|it| is(it, labels::QUEUE, queue));
            // Whether the MPI program takes part depends on the machine.
            let of_queue =
                of_queue.filter(|it| !is(it, "application", Application::MpiPing.name()));
            of_queue.map(|it| it.value).max_by(|a, b| a.get().total_cmp(&b.get()))
        };
        let line =
            figures_named(report, LINE_FRACTION).find(|it| is(it, labels::QUEUE, classes))?;
        let transfers = match transfer_rows(report, &queues).len() {
            1 => "a transfer".to_owned(),
            count => format!("{count} transfers"),
        };
        Some(format!(
            "In one class ({one_class}) the application is {} times slower under {transfers}; in classes ({classes}) {} \
             times, while transfers use {:.0} % of the fullest link",
            digits(worst(one_class)?),
            digits(worst(classes)?),
            line.value.get() * 100.0
        ))
    }

    fn tables(&self, report: &Report) -> Vec<Vec<String>> {
        vec![application_table(report), transfer_table(report)]
    }

    fn sections(&self, report: &Report, _queues: &[String]) -> String {
        let Some(series) = report.part::<TogetherSeries>() else { return String::new() };
        page(&series, &transfers_on_page(report))
    }
}

fn figures_named<'a>(report: &'a Report, name: &'a str) -> impl Iterator<Item = &'a Figure> {
    report.figures.iter().filter(move |figure| figure.name == name)
}

fn is(figure: &Figure, key: &str, value: &str) -> bool {
    figure.label(key).is_some_and(|known| known == value)
}

fn word<'a>(figure: &'a Figure, key: &str) -> &'a str {
    figure.label(key).unwrap_or_default()
}

/// Returns the queues on which all transfers ran, that without classes first.
fn queues(report: &Report) -> Vec<String> {
    let mut queues: Vec<String> = Vec::new();
    for ratio in figures_named(report, APPLICATION_RATIO) {
        let queue = word(ratio, labels::QUEUE);
        if !queues.iter().any(|known| known == queue) {
            queues.push(queue.to_owned());
        }
    }
    queues
}

/// Returns a line for each queue and kind of application.
fn application_table(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for ratio in figures_named(report, APPLICATION_RATIO) {
        if lines.is_empty() {
            lines.push(format!(
                "{:<10} {:<12} {:>14} {:>16} {:>10}",
                "queue", "application", "p99 alone us", "p99 loaded us", "slowdown"
            ));
        }
        let [queue, kind] = [labels::QUEUE, APPLICATION_KIND].map(|key| word(ratio, key));
        let p99 = |phase| {
            let same = |it: &&Figure| {
                is(it, labels::QUEUE, queue)
                    && is(it, APPLICATION_KIND, kind)
                    && is(it, labels::PHASE, phase)
                    && is(it, labels::QUANTILE, "p99")
            };
            figures_named(report, APPLICATION)
                .find(same)
                .map_or(String::new(), |it| digits(it.value))
        };
        let (alone, loaded) = (p99(labels::ISOLATED), p99(labels::CONGESTED));
        let slowdown = format!("{} x", digits(ratio.value));
        lines.push(format!("{queue:<10} {kind:<12} {alone:>14} {loaded:>16} {slowdown:>10}"));
    }
    lines
}

/// What a transfer carried alone, and with the others on each queue.
struct TransferRow {
    transfer: String,
    alone: String,
    loaded: Vec<String>,
}

/// Returns a row for each transfer, whose last columns are those of `queues`.
fn transfer_rows(report: &Report, queues: &[String]) -> Vec<TransferRow> {
    let loaded = |alone: &Figure, queue: &String| {
        let same = |it: &&Figure| {
            is(it, TRANSFER, word(alone, TRANSFER))
                && is(it, COMPANY, ALL)
                && is(it, labels::QUEUE, queue)
        };
        let Some(loaded) = figures_named(report, RATE).find(same) else { return String::new() };
        let percent = 100.0 * loaded.value.get() / alone.value.get().max(1.0);
        format!("{} ({percent:.0} %)", bytes(loaded.value.get()))
    };
    let row = |alone: &Figure| TransferRow {
        transfer: word(alone, TRANSFER).to_owned(),
        alone: bytes(alone.value.get()),
        loaded: queues.iter().map(|queue| loaded(alone, queue)).collect(),
    };
    figures_named(report, RATE).filter(|it| is(it, COMPANY, ALONE)).map(row).collect()
}

/// Returns a line for each transfer, and one for each queue that says what the fullest link carries.
fn transfer_table(report: &Report) -> Vec<String> {
    let queues = queues(report);
    let line = |transfer: &str, alone: &str, loaded: &[String]| {
        let columns: String = loaded.iter().map(|loaded| format!(" {loaded:>22}")).collect();
        format!("{transfer:<12} {alone:>12}{columns}")
    };
    let rows = transfer_rows(report, &queues);
    let mut lines = Vec::new();
    if !rows.is_empty() {
        lines.push(line("transfer", "alone", &queues));
    }
    lines.extend(rows.iter().map(|row| line(&row.transfer, &row.alone, &row.loaded)));
    let series = report.part::<TogetherSeries>().unwrap_or_default();
    let link_of = |queue: &str| {
        let run = series.runs.iter().find(|run| run.queue == queue);
        run.map_or(String::new(), |run| run.link.clone())
    };
    for line in figures_named(report, LINE_FRACTION) {
        let queue = word(line, labels::QUEUE);
        let fairness = figures_named(report, FAIRNESS).find(|it| is(it, labels::QUEUE, queue));
        let fairness = fairness.map_or(String::new(), |it| digits(it.value));
        lines.push(format!(
            "{queue}: {:.1} % of transfers on the fullest link ({}); fairness {fairness}",
            line.value.get() * 100.0,
            link_of(queue)
        ));
    }
    lines
}

/// Returns the same table for the page.
fn transfers_on_page(report: &Report) -> String {
    let queues = queues(report);
    let names: Vec<String> = queues.iter().map(|queue| text(queue)).collect();
    let mut columns = vec![("transfer", ""), ("alone", "n")];
    columns.extend(names.iter().map(|name| (name.as_str(), "n")));
    let row = |row: &TransferRow| {
        let mut cells = cell("transfer", "", &text(&row.transfer));
        cells += &cell("alone", "n", &row.alone);
        let loaded = names.iter().zip(&row.loaded);
        cells.extend(loaded.map(|(name, loaded)| cell(name, "n", loaded)));
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = transfer_rows(report, &queues).iter().map(row).collect();
    let caption = "What each transfer carries alone, and with the others on each queue";
    table("", caption, &head(&columns), &rows)
}

/// Rates and the words of their units.
const RATES: [(f64, &str); 4] = [(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")];

/// Returns the unit that suits `rate`, in bytes per second.
fn unit(rate: f64) -> (f64, &'static str) {
    RATES.into_iter().find(|(size, _)| rate >= *size).unwrap_or((1.0, "B/s"))
}

/// Writes bytes per second with the unit that suits them.
fn bytes(rate: f64) -> String {
    let (size, unit) = unit(rate);
    format!("{:.2} {unit}", rate / size)
}

/// Writes bytes per second as a tick of an axis.
fn rate_tick(rate: f64) -> String {
    let (size, unit) = unit(rate);
    format!("{} {unit}", tick(rate / size))
}

/// Returns the section with a pair of drawings for each run, the application above and transfers
/// below, and `table` behind them.
fn page(series: &TogetherSeries, table: &str) -> String {
    let runs = &series.runs;
    let finite = |value: &f64| value.is_finite() && *value > 0.0;
    let all_times = runs.iter().flat_map(|run| &run.application);
    let times = all_times.flat_map(|(_, p99)| p99.iter().flatten().map(|us| us.get() / 1e6));
    let y = decades(times.filter(finite)).named(time_tick);
    let all_rates = runs.iter().flat_map(|run| &run.transfers);
    let most = all_rates.flat_map(|(_, rates)| rates.iter().map(|rate| rate.get()));
    let rates = linear(0.0, most.filter(finite).fold(1.0, f64::max)).named(rate_tick);
    let mut body = String::new();
    for run in runs {
        let x = linear(0.0, duration(run) / 1e3).named(time_tick);
        let mut above = Chart::new("p99 of the application over time", HALF, &x, &y);
        border(&mut above, run);
        for (place, (_, p99)) in run.application.iter().enumerate() {
            above.series(place);
            above.line("curve", points(run, p99.iter().map(|us| us.map(|us| us.get() / 1e6))));
        }
        let mut below = Chart::new("Rates of transfers over time", HALF, &x, &rates);
        border(&mut below, run);
        for (place, (_, rates)) in run.transfers.iter().enumerate() {
            below.series(place + run.application.len());
            below.line("curve", points(run, rates.iter().map(|rate| Some(rate.get()))));
        }
        let title = format!("Queue {}", text(&run.queue));
        let drawings = format!("{}{}", above.finish(), below.finish());
        body.push_str(&figure(&title, "", &drawings, ""));
    }
    let names = runs.first().map(|run| {
        let application = run.application.iter().map(|(name, _)| format!("{name}, p99"));
        application.chain(run.transfers.iter().map(|(name, _)| name.clone())).collect::<Vec<_>>()
    });
    let names = names.unwrap_or_default();
    let entry = |(place, name): (usize, &String)| {
        sample(ALONG, &format!("curve {}", colour(place)), &text(name))
    };
    let legend = legend(names.iter().enumerate().map(entry));
    section(
        "together",
        "The application and the transfers over time",
        "Above: how long the slowest hundredth of the application's messages takes, logarithmic. Below: what each \
         transfer carries. The transfers run between the two upright lines. A peak that is the same on both queues is an \
         interruption of a host.",
        &(pairs(&legend, &body) + table),
    )
}

/// Returns the length of a run in ms.
fn duration(run: &SharedSeries) -> f64 {
    let steps = run.transfers.iter().map(|(_, rates)| rates.len()).max().unwrap_or(1);
    run.step_ms.get() * steps as f64
}

/// Draws when transfers begin and end.
fn border(chart: &mut Chart, run: &SharedSeries) {
    let [begin, end] = run.load_ms.map(|ms| ms.get() / 1e3);
    chart.upright("switch", begin, "on");
    chart.upright("switch", end, "off");
}

/// Returns the middles of the steps that have a value, in seconds, and the values.
fn points(run: &SharedSeries, values: impl Iterator<Item = Option<f64>>) -> Vec<(f64, f64)> {
    let middle = |step: usize| run.step_ms.get() * (step as f64 + 0.5) / 1e3;
    values.enumerate().filter_map(|(step, value)| Some((middle(step), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::report;
    use super::*;

    #[test]
    fn conclusion__names_both_queues_and_the_slower_kind_of_application() {
        let sentence = Together.conclusion(&report()).expect("a conclusion");
        assert!(sentence.contains("(fifo) the application is 25.0 times slower"), "{sentence}");
        assert!(sentence.contains("(strict) 1.20 times, while transfers use 95 %"), "{sentence}");
    }

    #[test]
    fn tables__fit_a_terminal_and_compare_each_transfer_with_itself_alone() {
        let tables = Together.tables(&report());
        let lines = tables.concat();
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        let cast = lines.iter().find(|line| line.starts_with("cast")).expect("the cast");
        assert!(cast.contains("(50 %)") && cast.contains("(25 %)"), "{cast}");
    }

    #[test]
    fn sections__draw_each_run_whatever_its_series_hold() {
        let page = Together.sections(&report(), &[]);
        assert_eq!(page.matches("<h3>Queue ").count(), 2);
        assert!(page.contains("mpi ping, p99"), "{page}");
        assert!(!page.contains("NaN") && !page.contains("inf\""), "{page}");
    }
}
