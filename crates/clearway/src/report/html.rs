//! Renders a report as one page that needs no network, no server and no second file.
//!
//! # Model
//! All words and tables are written here, so the page reads without scripts; the script of
//! `assets/report.js` draws the charts from the report itself, which is embedded as JSON. The page
//! forbids itself every foreign source.
//!
//! # Invariants
//! I1. Text of a report reaches the page through [`text`] or [`embedded`] only; neither can open a
//!     tag or end a script.
//! I2. Every chart has a caption that says what to see, and its words do not need the chart.

use std::fmt::Write;

use clearway_runtime::launch::quoted;

use super::model::{Report, RunOutcome, Verdict, labels};
use super::present::Presenter;
use super::title::title_of;

#[cfg(test)]
pub(crate) mod browser;
pub(crate) mod drawing;
mod fabric;
mod place_comparison;
pub(crate) mod tables;

const CHART_STYLE: &str = include_str!("../../assets/uplot/uPlot.min.css");
const CHART_SCRIPT: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const PAGE_STYLE: &str = include_str!("../../assets/report.css");
const PAGE_SCRIPT: &str = include_str!("../../assets/report.js");

/// Nothing may be fetched; scripts and styles stand in the page.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";

/// Returns the page of `report`: the sections of `presenters`, then those that any report has.
pub(crate) fn render(report: &Report, presenters: &[&dyn Presenter]) -> String {
    let queues = queues(report);
    let title =
        format!("{} {}: {}", report.program.name, report.scenario.name, outcome_word(report));
    let mut page = String::with_capacity(256 * 1024);
    page.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n");
    put(&mut page, &["<meta http-equiv=\"Content-Security-Policy\" content=\"", POLICY, "\">\n"]);
    put(&mut page, &["<title>", &text(&title), "</title>\n"]);
    put(
        &mut page,
        &["<style>", CHART_STYLE, "</style>\n<style>\n", PAGE_STYLE, "</style>\n</head>\n<body>\n"],
    );
    let conclusion = presenters.iter().find_map(|presenter| presenter.conclusion(report));
    page.push_str(&header(report, conclusion.as_deref()));
    page.push_str("<main>\n");
    for presenter in presenters {
        page.push_str(&presenter.sections(report, &queues));
    }
    for section in [
        place_comparison::comparison(report),
        fabric::fabric(report, &queues),
        warnings(report),
        tables::parameters(report),
        tables::host(report),
        reproduce(report),
        tables::figures(report),
    ] {
        page.push_str(&section);
    }
    page.push_str("</main>\n");
    page.push_str(&footer(report));
    let material = serde_json::json!({ "queues": queues, "report": report });
    put(
        &mut page,
        &[
            "<script type=\"application/json\" id=\"material\">",
            &embedded(&material.to_string()),
            "</script>\n",
        ],
    );
    put(
        &mut page,
        &[
            "<script>",
            CHART_SCRIPT,
            "</script>\n<script>\n",
            PAGE_SCRIPT,
            "</script>\n</body>\n</html>\n",
        ],
    );
    page
}

fn put(page: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| page.push_str(part));
}

/// Returns `raw` as text or as the value of a quoted attribute.
pub(crate) fn text(raw: &str) -> String {
    let mut safe = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(c),
        }
    }
    safe
}

/// Returns `sentence` with the sign that the rest of the page uses where a number of microseconds
/// is written `12 us`.
fn micro(sentence: &str) -> String {
    let mut parts = sentence.split(" us");
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let is_unit = out.ends_with(|c: char| c.is_ascii_digit())
            && !part.starts_with(|c: char| c.is_alphanumeric());
        out.push_str(if is_unit { "\u{202f}\u{b5}s" } else { " us" });
        out.push_str(part);
    }
    out
}

/// Returns `json` so that it may stand inside a script element: these characters occur within
/// strings only, where JSON allows them to be written by number. The two separators end a line for
/// older scripts.
fn embedded(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(safe, "\\u{:04x}", c as u32);
            }
            _ => safe.push(c),
        }
    }
    safe
}

/// Returns the queues of the run in order of appearance: a queue keeps its colour through the whole
/// page.
fn queues(report: &Report) -> Vec<String> {
    let of_figures = report.figures.iter().map(|figure| &figure.labels);
    let of_charts = report
        .survival
        .iter()
        .map(|curve| &curve.labels)
        .chain(report.shares.iter().map(|s| &s.labels));
    let mut queues: Vec<String> = Vec::new();
    for queue in of_figures.chain(of_charts).filter_map(|all| all.get(labels::QUEUE)) {
        if !queues.contains(queue) {
            queues.push(queue.clone());
        }
    }
    queues
}

/// Returns the place of `queue` in `queues`, which gives it its colour.
pub(crate) fn queue_place(queue: &str, queues: &[String]) -> usize {
    queues.iter().position(|known| known == queue).unwrap_or(0)
}

/// Returns the style class that gives a queue its colour.
pub(crate) fn queue_class(queue: &str, queues: &[String]) -> String {
    drawing::colour(queue_place(queue, queues))
}

/// Returns a queue's name behind a swatch of its colour.
pub(crate) fn queue_name(queue: &str, queues: &[String]) -> String {
    drawing::coloured(queue_place(queue, queues), queue)
}

/// Returns a section of the page; nothing where it has no body.
pub(crate) fn section(id: &str, title: &str, lead: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    let lead =
        if lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{lead}</p>\n") };
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{title}</h2>\n{lead}{body}</section>\n"
    )
}

fn outcome_word(report: &Report) -> &'static str {
    report.verdict.as_ref().map_or("report", |verdict| verdict.outcome.word())
}

/// Returns the style class and the sign of an outcome; the sign tells it without colour.
fn outcome_look(outcome: RunOutcome) -> (&'static str, &'static str) {
    match outcome {
        RunOutcome::Contained => ("contained", "\u{2713}"),
        RunOutcome::Congested => ("congested", "\u{26a0}\u{fe0e}"),
        RunOutcome::Invalid => ("invalid", "?"),
    }
}

fn header(report: &Report, conclusion: Option<&str>) -> String {
    let created = report.created.replace('T', " ").replace('Z', " UTC");
    let what = [
        &report.scenario.name,
        &format!("on {}", report.place),
        &format!("seed {}", report.seed),
        &created,
    ];
    let what = what.iter().map(|part| text(part)).collect::<Vec<_>>().join(" &middot; ");
    let verdict = match &report.verdict {
        Some(judged) => verdict(judged, conclusion),
        None => unjudged(report, conclusion),
    };
    let warned = match report.warnings.len() {
        0 => String::new(),
        1 => "<p class=\"warned\"><a href=\"#warnings\">1 warning</a> limits what this run proves.</p>\n".to_owned(),
        n => format!("<p class=\"warned\"><a href=\"#warnings\">{n} warnings</a> limit what this run proves.</p>\n"),
    };
    format!(
        "<header>\n<p class=\"kicker\"><b>{}</b> {what}</p>\n{verdict}{warned}</header>\n",
        text(&report.program.name)
    )
}

/// Returns the heading of a run without a verdict: its conclusion, and what its scenario is about.
fn unjudged(report: &Report, conclusion: Option<&str>) -> String {
    let about = report
        .parameters
        .iter()
        .find(|parameter| parameter.name == "about" && !parameter.value.is_empty());
    let about = about.map(|about| about.value.as_str());
    let (heading, sentence) = match (conclusion, about) {
        (Some(conclusion), about) => (conclusion, about),
        (None, about) => (about.unwrap_or(&report.scenario.name), None),
    };
    let sentence = sentence.map_or_else(String::new, |sentence| {
        format!("<p class=\"sentence\">{}</p>\n", text(sentence))
    });
    format!("<h1>{}</h1>\n{sentence}", text(&micro(heading)))
}

fn verdict(verdict: &Verdict, conclusion: Option<&str>) -> String {
    let (class, sign) = outcome_look(verdict.outcome);
    let sign = format!("<span class=\"sign\" aria-hidden=\"true\">{sign}</span>");
    let (word, sentence) = (verdict.outcome.word(), text(&micro(&verdict.sentence)));
    let heading = match conclusion {
        Some(conclusion) => format!(
            "<p class=\"outcome {class}\">{sign}{word}</p>\n<h1>{}</h1>\n",
            text(&micro(conclusion))
        ),
        None => format!("<h1 class=\"outcome {class}\">{sign}{word}</h1>\n"),
    };
    let mut out = format!("{heading}<p class=\"sentence\">{sentence}</p>\n");
    if !verdict.parts.is_empty() {
        out.push_str("<ul class=\"parts\">\n");
        for part in &verdict.parts {
            let (class, sign) = outcome_look(part.outcome);
            let (name, word) = (text(&title_of(&part.labels)), part.outcome.word());
            let _ = writeln!(
                out,
                "<li class=\"{class}\"><b>{name}</b> <span class=\"word\"><span aria-hidden=\"true\">{sign}</span> {word}</span><p>{}</p></li>",
                text(&micro(&part.sentence))
            );
        }
        out.push_str("</ul>\n");
    }
    let is_invalid = verdict.outcome == RunOutcome::Invalid;
    if is_invalid && !verdict.reasons.is_empty() {
        let steps = verdict.reasons.iter().map(|step| code(&text(&micro(step))));
        let steps = steps.collect::<Vec<_>>().join(" ");
        let _ = writeln!(out, "<p class=\"next\"><b>Next step:</b> {steps}</p>");
    }
    let folded = if is_invalid { &[][..] } else { &verdict.reasons[..] };
    if !(folded.is_empty() && verdict.rules.is_empty()) {
        let reasons = list(&folded.iter().map(|reason| micro(reason)).collect::<Vec<_>>());
        let rules = tables::rules(&verdict.rules);
        let _ = writeln!(
            out,
            "<details><summary>Why, and by which limits</summary>\n{reasons}{rules}</details>"
        );
    }
    out
}

/// Returns text of the page with what stands between backquotes as code.
fn code(safe: &str) -> String {
    let mut parts = safe.split('`');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (place, part) in parts.enumerate() {
        out.push_str(if place % 2 == 0 { "<code>" } else { "</code>" });
        out.push_str(part);
    }
    out
}

fn list(sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let items: String =
        sentences.iter().map(|sentence| format!("<li>{}</li>\n", text(sentence))).collect();
    format!("<ul>\n{items}</ul>\n")
}

fn warnings(report: &Report) -> String {
    let body = if report.warnings.is_empty() {
        "<p>None.</p>\n".to_owned()
    } else {
        list(&report.warnings)
    };
    section("warnings", "Warnings", "", &body)
}

/// Returns `word` as a shell reads it back, without quotes where it needs none.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { quoted(word) }
}

fn reproduce(report: &Report) -> String {
    let command = report.command.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
    let commit = report
        .program
        .commit
        .as_ref()
        .map_or_else(String::new, |commit| format!(", commit {commit}"));
    let version = text(&format!("{} {}{commit}", report.program.name, report.program.version));
    let body = format!(
        "<p>With {version}, and the scenario below:</p>\n<pre class=\"command\" tabindex=\"0\"><code>{}</code></pre>\n\
         <details><summary>Scenario <code>{}</code></summary>\n<pre tabindex=\"0\"><code>{}</code></pre>\n</details>\n\
         <p>The figures of this page lie next to it in <code>report.json</code>; <code>clearway diff</code> compares two of them.</p>\n",
        text(&command),
        text(&report.scenario.name),
        text(&report.scenario.text)
    );
    section("reproduce", "How to reproduce", "", &body)
}

fn footer(report: &Report) -> String {
    format!(
        "<footer><p>{} {}, schema {}. Charts: uPlot 1.6.32 (MIT), included.</p></footer>\n",
        text(&report.program.name),
        text(&report.program.version),
        text(&report.schema)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn micro__changes_units_and_no_words() {
        assert_eq!(
            micro("from 1.18 us to 48.4 us; it used us 3 users"),
            "from 1.18\u{202f}\u{b5}s to 48.4\u{202f}\u{b5}s; it used us 3 users"
        );
    }

    #[test]
    fn embedded__is_the_same_json() {
        let report = sample::hostile();
        let json = serde_json::to_string(&report).expect("written");
        let back: Report = serde_json::from_str(&embedded(&json)).expect("read back");
        assert_eq!(back, report);
    }

    #[test]
    fn render__names_no_foreign_source() {
        let page = render(&sample::incast_demo(), &[]);
        for loading in ["src=", "@import", "url(", "href=\"http"] {
            let found = page.replace(CHART_SCRIPT, "").replace("-src ", "").contains(loading);
            assert!(!found, "the page must not contain {loading}");
        }
    }

    #[test]
    fn verdict__that_allows_no_statement_says_what_to_change() {
        let mut report = sample::incast_demo();
        let judged = report.verdict.as_mut().expect("judged");
        judged.outcome = RunOutcome::Invalid;
        judged.reasons = vec!["Measure longer: `--time <20s>`.".to_owned()];
        let page = render(&report, &[]);
        let step = "<b>Next step:</b> Measure longer: <code>--time &lt;20s&gt;</code>.</p>";
        assert_eq!(page.matches(step).count(), 1);
        let place = |id: &str| page.find(&format!("<section id=\"{id}\"")).expect(id);
        assert!(place("warnings") < place("parameters"));
    }

    #[test]
    fn shell_word__is_what_a_shell_reads_back() {
        assert_eq!(
            (shell_word("--seed=1"), shell_word("a b"), shell_word("it's")),
            ("--seed=1".into(), "'a b'".into(), "'it'\\''s'".into())
        );
    }
}
