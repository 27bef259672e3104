//! Takes the figures of a congestion test out of its report, as text: one line for each queue, and
//! one for each of its draws.

use std::fmt::Write as _;

use serde_json::Value;

/// The figures of `report`, with the decimals that it has.
pub(crate) fn text(report: &Value) -> String {
    let mut text = format!("seed {}\n", report["seed"]);
    line(&mut text, ["queue", "figure", "value", "low", "high"].map(str::to_owned));
    let figures = || list(&report["figures"]);
    let queues = figures().filter(|figure| is_factor(figure)).map(|figure| label(figure, "queue"));
    for queue in queues {
        let of_queue = |figure: &&Value| label(figure, "queue") == queue;
        for figure in figures().filter(of_queue).filter(|figure| wanted(figure)) {
            row(&mut text, queue, &name(figure), figure);
        }
        for draw in list(&report["draws"]) {
            for factor in list(&draw["cif"]).filter(of_queue) {
                row(&mut text, queue, &format!("factor p99, draw {}", draw["draw"]), factor);
            }
        }
    }
    shmem_rows(report, &mut text);
    staging_rows(report, &mut text);
    together_rows(report, &mut text);
    text
}

/// Adds the figures of an application and transfers on one network, if the report has any.
fn together_rows(report: &Value, text: &mut String) {
    let is_of_together =
        |figure: &&Value| figure["name"].as_str().is_some_and(|it| it.starts_with("together_"));
    for figure in list(&report["figures"]).filter(is_of_together) {
        let name = figure["name"].as_str().unwrap_or_default();
        let keys = ["queue", "application", "transfer", "company", "phase", "quantile", "link"];
        let words = keys.map(|key| label(figure, key));
        let words = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
        let value = number(&figure["value"]);
        let _ = writeln!(text, "{name:<30} {:<40} {value:>12}", words.join(" "));
    }
}

/// Adds the figures of an application with writers, if the report has any.
fn staging_rows(report: &Value, text: &mut String) {
    let is_of_staging =
        |figure: &&Value| figure["name"].as_str().is_some_and(|it| it.starts_with("staging_"));
    for figure in list(&report["figures"]).filter(is_of_staging) {
        let name = figure["name"].as_str().unwrap_or_default();
        let [queue, test, what, noise] =
            ["queue", "test", "what", "noise"].map(|key| label(figure, key));
        let value = number(&figure["value"]);
        let _ =
            writeln!(text, "{name:<22} {queue:<13} {test:<9} {what:<18} {noise:<7} {value:>12}");
    }
}

/// Adds the figures of OpenSHMEM operations, if the report has any.
fn shmem_rows(report: &Value, text: &mut String) {
    let is_of_shmem =
        |figure: &&Value| figure["name"].as_str().is_some_and(|it| it.starts_with("shmem_"));
    for figure in list(&report["figures"]).filter(is_of_shmem) {
        let name = figure["name"].as_str().unwrap_or_default();
        let [classes, pattern, operation] =
            ["classes", "pattern", "operation"].map(|key| label(figure, key));
        let value = number(&figure["value"]);
        let _ = writeln!(text, "{name:<24} {classes:<9} {pattern:<9} {operation:<10} {value:>9}");
    }
}

/// The factor that machines are compared by.
fn is_factor(figure: &Value) -> bool {
    figure["name"] == "congestion_impact_factor" && label(figure, "quantile") == "p99"
}

fn wanted(figure: &Value) -> bool {
    let latency = figure["name"] == "victim_latency" && label(figure, "quantile") == "p99";
    latency
        || is_factor(figure)
        || figure["name"] == "congestor_goodput_share"
        || figure["name"] == "victim_loss"
}

fn name(figure: &Value) -> String {
    match figure["name"].as_str().unwrap_or_default() {
        "congestion_impact_factor" => "factor p99, median".to_owned(),
        "victim_latency" => format!("p99 {}, us", label(figure, "phase")),
        "congestor_goodput_share" => "goodput, %".to_owned(),
        "victim_loss" => "lost, %".to_owned(),
        other => other.to_owned(),
    }
}

fn row(text: &mut String, queue: &str, name: &str, figure: &Value) {
    let [value, low, high] = ["value", "low", "high"].map(|key| number(&figure[key]));
    line(text, [queue.to_owned(), name.to_owned(), value, low, high]);
}

fn line(text: &mut String, [queue, name, value, low, high]: [String; 5]) {
    let _ = writeln!(text, "{queue:<8} {name:<20} {value:>9} {low:>9} {high:>9}");
}

/// A number as the report has it; what was counted has no interval.
fn number(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(word) => word.clone(),
        number => number.to_string(),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn label<'a>(figure: &'a Value, key: &str) -> &'a str {
    figure["labels"][key].as_str().unwrap_or_default()
}
