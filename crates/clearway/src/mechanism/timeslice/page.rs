//! What was built, for a person, as data or in a report: how much, how fast, whether it was right,
//! and where it is.

use std::fmt::Write;

use clearway_proto::base::Nanos;
use clearway_proto::stats::Histogram;
use serde::Serialize;

use super::coordinator::BuildResult;
use super::figures::{BUILT, COMPLETION, DUPLICATED, LOST, POLICY, reading};
use super::ledger::{BuilderEntry, LedgerEntry};
use super::losses::{DropCause, LossRow, by_cause};
use super::numbers::CompletenessAudit;
use super::plan::TimeslicePlan;
use super::run_progress::RankLoss;
use crate::report::model::{ExtendedReal, Figure, Report, labels};
use crate::report::numerals::digits;

/// Bytes for each second of processor time of all ranks, in B/s; label policy.
const COST: &str = "timeslice_bytes_per_processor_second";

/// What is reported of a run that has a source.
#[derive(Debug, Serialize)]
pub(crate) struct RunSummary {
    timeslices: u64,
    /// Timeslices that nobody built although an input had something for them, and those that were
    /// built twice.
    lost: u64,
    duplicated: u64,
    /// Ranks that it went on without.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    out: Vec<LostRankSummary>,
    /// Timeslices that lack microslices of some input.
    incomplete: u64,
    microslices: u64,
    /// Of contents, as inputs gave them.
    bytes: u64,
    seconds: f64,
    /// `null` where no timeslice was complete.
    completion_ms_p50: Option<f64>,
    completion_ms_p99: Option<f64>,
    /// Contents that were compared with their CRC or pattern.
    checked: u64,
    faults: u64,
    /// Archives that ended with a cut item.
    cut: u64,
    written: Vec<String>,
    /// What became of the microslices of each input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<LedgerEntry>,
    /// What each builder built, and what its connections lack.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    builders: Vec<BuilderEntry>,
    /// What was lost when, by second and input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    losses: Vec<LossRow>,
    /// How many seconds one of these stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_seconds: Option<u64>,
}

/// A rank that a run went on without.
#[derive(Debug, Serialize)]
struct LostRankSummary {
    rank: u32,
    how: String,
    /// Since the run began.
    seconds: f64,
    detection_ms: f64,
    redistribution_ms: f64,
    /// When it took part again, since the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    back_seconds: Option<f64>,
    /// Of a builder: how many timeslices count as built by it; the first ones in its archive.
    settled: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    archive: Option<String>,
}

impl From<&RankLoss> for LostRankSummary {
    fn from(death: &RankLoss) -> Self {
        let [detection_ms, redistribution_ms] = death.known.after_ms();
        Self {
            rank: death.rank.0,
            how: death.how_it_ended().to_owned(),
            seconds: death.known.died.as_secs_f64(),
            detection_ms,
            redistribution_ms,
            back_seconds: death.back.map(Nanos::as_secs_f64),
            settled: death.settled,
            archive: death.archive.clone(),
        }
    }
}

/// Returns what was built, and how it went.
pub(crate) fn run_summary(built: &BuildResult) -> RunSummary {
    let BuildResult { account, took, .. } = built;
    RunSummary {
        timeslices: built.timeslices,
        lost: built.audit.lost,
        duplicated: built.audit.duplicated,
        out: built.deaths.iter().map(LostRankSummary::from).collect(),
        incomplete: account.incomplete,
        microslices: account.source.given,
        bytes: account.source.bytes,
        seconds: took.as_secs_f64(),
        completion_ms_p50: millis(&built.completion, "p50"),
        completion_ms_p99: millis(&built.completion, "p99"),
        checked: account.checked,
        faults: account.faults.iter().map(|(_, count)| count).sum(),
        cut: account.cut,
        written: account.written.clone(),
        inputs: built.ledger.clone(),
        builders: built.builders.clone(),
        losses: built.losses.0.clone(),
        loss_seconds: Some(built.losses.1).filter(|_| !built.losses.0.is_empty()),
    }
}

/// Returns a quantile of nanoseconds in milliseconds; nothing where nothing was counted.
pub(super) fn millis(histogram: &Histogram, quantile: &str) -> Option<f64> {
    reading(histogram, quantile).map(|nanos| nanos / 1e6)
}

/// Returns what each policy of `built` costs, as figures: medians of the seeds.
pub(crate) fn costs(built: &BuildResult) -> impl Iterator<Item = Figure> {
    built.cost.iter().map(|(policy, values)| {
        let (cost, source) = (
            ExtendedReal::finite(median(values)),
            "bytes that landed over processor time of all ranks",
        );
        Figure::counted(COST, "B/s", cost, values.len() as u64, source).with(POLICY, policy.name())
    })
}

/// Adds what was `built` of a source under the first policy of `plan` to `report`.
pub(crate) fn write_built(plan: &TimeslicePlan, built: &BuildResult, report: &mut Report) {
    let reported = run_summary(built);
    let policy = plan.policies.first().map_or("", |policy| policy.name());
    let figure = |name: &str, unit: &str, value: f64, source: &str| {
        Figure::counted(name, unit, ExtendedReal::or_infinite(value), 1, source)
            .with(POLICY, policy)
    };
    let counted = "counted at the end of the run";
    report.figures.extend([
        figure(BUILT, "", reported.timeslices as f64, counted),
        figure(LOST, "", reported.lost as f64, counted),
        figure(DUPLICATED, "", reported.duplicated as f64, counted),
        figure("timeslices_incomplete", "", reported.incomplete as f64, counted),
        figure("timeslice_microslices", "", reported.microslices as f64, counted),
        figure("timeslice_contents_checked", "", reported.checked as f64, counted),
        figure("timeslice_faults", "", reported.faults as f64, counted),
        figure("archives_cut", "", reported.cut as f64, counted),
        figure("timeslice_content_bytes", "B", reported.bytes as f64, counted),
        figure(
            "timeslice_build_seconds",
            "s",
            reported.seconds,
            "from the order to begin to the end",
        ),
    ]);
    for (quantile, value) in
        [("p50", reported.completion_ms_p50), ("p99", reported.completion_ms_p99)]
    {
        let source = "from the first to the last contribution of a timeslice";
        let one = value
            .map(|value| figure(COMPLETION, "ms", value, source).with(labels::QUANTILE, quantile));
        report.figures.extend(one);
    }
    report.figures.extend(ledger_figures(built));
    report.figures.extend(link_figures(built));
    write_remarks(built, report);
    if !reported.written.is_empty() {
        report.host.facts.insert("archives written".to_owned(), reported.written.join(", "));
    }
}

/// Returns what became of the microslices of each input, without accounts that are zero.
fn ledger_figures(built: &BuildResult) -> impl Iterator<Item = Figure> {
    built.ledger.iter().flat_map(|entry| {
        entry.accounts().map(|(account, count)| {
            let (value, source) =
                (ExtendedReal::finite(count as f64), "counted by the input and by builders");
            Figure::counted("timeslice_source_microslices", "", value, 1, source)
                .with("input", entry.input.to_string())
                .with("account", account)
        })
    })
}

/// Returns what connections lack, without accounts that are zero.
fn link_figures(built: &BuildResult) -> impl Iterator<Item = Figure> {
    let links = built
        .builders
        .iter()
        .flat_map(|entry| entry.links.iter().map(move |link| (entry.builder.to_string(), *link)));
    links.flat_map(|(builder, link)| {
        let accounts = [
            ("timeslices without it", link.absent),
            ("corrupt contributions", link.corrupt),
            ("held back", link.held_back),
        ];
        accounts.into_iter().filter(|(_, count)| *count > 0).map(move |(account, count)| {
            let (value, source) =
                (ExtendedReal::finite(count as f64), "counted by the builder, or by the input");
            Figure::counted("timeslice_link_losses", "", value, 1, source)
                .with("input", link.input.to_string())
                .with("builder", builder.clone())
                .with("account", account)
        })
    })
}

/// Returns why sources dropped microslices, a sentence for each input and cause, the largest
/// number first.
fn drop_sentences(built: &BuildResult) -> Vec<String> {
    let (rows, step) = &built.losses;
    let sentence = |(input, cause, count, [first, last]): (u32, DropCause, u64, [u64; 2])| {
        let (end, cause) = (last + step, cause.sentence());
        format!(
            "{count} microslices of input {input} dropped from second {first} to {end}, {cause}"
        )
    };
    by_cause(rows).into_iter().take(SHOWN).map(sentence).collect()
}

/// Adds what `built` cost, and what a reader must know of it, to `report`.
pub(crate) fn write_remarks(built: &BuildResult, report: &mut Report) {
    report.figures.extend(costs(built));
    let words = |line: String| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    report.warnings.extend(built.deaths.iter().map(|death| words(lines_of(death))));
    let faults = built.account.faults.iter();
    report.warnings.extend(faults.map(|(sentence, count)| format!("{sentence}: {count} times")));
    report.warnings.extend(drop_sentences(built));
    report.warnings.extend(built.ledger.iter().filter_map(|entry| entry.fault.clone()));
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Returns the same as text that ends with a newline.
pub(crate) fn page(about: &str, plan: &TimeslicePlan, built: &BuildResult) -> String {
    let number = |value: f64| digits(ExtendedReal::finite(value));
    let reported = run_summary(built);
    let mut text =
        format!("timeslices on {about}: {} inputs, {} builders\n\n", plan.inputs, plan.builders);
    let _ = writeln!(
        text,
        "  built      {} timeslices in {} s",
        reported.timeslices,
        number(reported.seconds)
    );
    let rate = reported.bytes as f64 / reported.seconds / 1e6;
    let _ = writeln!(
        text,
        "  contents   {} microslices, {} MB, {} MB/s",
        reported.microslices,
        number(reported.bytes as f64 / 1e6),
        number(rate)
    );
    if let Some([p50, p99]) = reported
        .completion_ms_p50
        .zip(reported.completion_ms_p99)
        .map(|both| <[f64; 2]>::from(both).map(number))
    {
        let _ = writeln!(
            text,
            "  complete   {p50} ms after the first contribution (p50), {p99} ms (p99)"
        );
    }
    text + &account(built)
}

/// Returns whether what was built was right, and where it is; nothing where nobody looked.
pub(crate) fn account(built: &BuildResult) -> String {
    let account = &built.account;
    let mut text = String::new();
    if account.checked > 0 {
        let _ = writeln!(text, "  checked    {} contents, CRC and pattern", account.checked);
    }
    if account.incomplete > 0 {
        let _ = writeln!(
            text,
            "  incomplete {} timeslices lack microslices of an input",
            account.incomplete
        );
    }
    if account.cut > 0 {
        let _ = writeln!(
            text,
            "  cut        {} archives ended with a cut item, which was left out",
            account.cut
        );
    }
    built.deaths.iter().for_each(|death| text.push_str(&lines_of(death)));
    if !built.deaths.is_empty() {
        let CompletenessAudit { lost, duplicated } = built.audit;
        let _ = writeln!(
            text,
            "  lost       {lost} of {} timeslices; built twice: {duplicated}",
            built.given
        );
    }
    for (policy, values) in &built.cost {
        let cost = digits(ExtendedReal::finite(median(values) / 1e6));
        let _ = writeln!(
            text,
            "  cost       {}: {cost} MB for each second of processor time of all ranks",
            policy.name()
        );
    }
    text += &ledger_lines(&built.ledger);
    for sentence in drop_sentences(built) {
        let _ = writeln!(text, "  lost       {sentence}");
    }
    for (sentence, count) in &account.faults {
        let _ = writeln!(text, "  FAULT      {sentence}: {count} times");
    }
    for path in &account.written {
        let _ = writeln!(text, "  written    {path}");
    }
    text
}

/// Inputs that are shown at most: the report has all.
const SHOWN: usize = 16;

/// Returns what became of the microslices of inputs from which something is lacking.
fn ledger_lines(ledger: &[LedgerEntry]) -> String {
    let mut text = String::new();
    let lacking = || ledger.iter().filter(|entry| !entry.is_whole());
    for entry in lacking().take(SHOWN) {
        let accounts: Vec<_> =
            entry.accounts().map(|(account, count)| format!("{count} {account}")).collect();
        let dead = if entry.is_dead { ", died" } else { "" };
        let _ = writeln!(text, "  input {:<4} {}{dead}", entry.input, accounts.join(", "));
    }
    if let Some(more @ 1..) = lacking().count().checked_sub(SHOWN) {
        let _ = writeln!(text, "             and {more} more inputs; the report has all");
    }
    for fault in ledger.iter().filter_map(|entry| entry.fault.as_ref()) {
        let _ = writeln!(text, "  MISCOUNT   {fault}");
    }
    text
}

/// Returns who died, and what counts of its work.
fn lines_of(death: &RankLoss) -> String {
    let RankLoss { name, settled, known, .. } = death;
    let number = |value: f64| digits(ExtendedReal::finite(value));
    let policy = death.policy.map_or("", |policy| policy.name());
    let mut text = format!("  out        {name} {} under {policy}", death.how_it_ended());
    if known.by.is_some() {
        let [first, last] = known.after_ms().map(number);
        let _ = write!(text, ": known after {first} ms, by all after {last} ms");
    }
    if let Some(back) = death.back {
        let _ = write!(
            text,
            "; back after {} ms",
            number(back.0.saturating_sub(known.died.0) as f64 / 1e6)
        );
    }
    text.push('\n');
    match &death.archive {
        Some(path) => {
            let _ = writeln!(
                text,
                "             the first {settled} timeslices of {path} count; others built what stands behind them"
            );
        }
        None if *settled > 0 => {
            let _ = writeln!(text, "             {settled} timeslices count that it had built");
        }
        None => {}
    }
    text
}
