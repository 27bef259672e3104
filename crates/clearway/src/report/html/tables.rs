//! The tables of the page: how one is made, parameters, host, every figure. On narrow screens each
//! row becomes a card.

use std::fmt::Write;

use super::{section, text};
use crate::report::model::{ExtendedReal, Figure, Report, VerdictRule, labels};
use crate::report::numerals::{INFINITE, digits};
use crate::report::title::title_of;

/// Returns a number as the page writes it: thousands apart, the sign for infinity.
pub(crate) fn number(real: ExtendedReal) -> String {
    let plain = digits(real);
    if plain == INFINITE {
        return "\u{221e}".to_owned();
    }
    let (sign, rest) =
        plain.strip_prefix('-').map_or(("", plain.as_str()), |rest| ("\u{2212}", rest));
    if rest.len() < 5 || !rest.bytes().all(|b| b.is_ascii_digit()) {
        return format!("{sign}{rest}");
    }
    let groups: Vec<&str> =
        rest.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or("")).collect();
    format!("{sign}{}", groups.join("\u{202f}"))
}

/// Writes a number that may be missing.
pub(crate) fn or_dash(real: Option<ExtendedReal>) -> String {
    real.map_or_else(|| "\u{2013}".to_owned(), number)
}

/// Writes the ends of the interval of `figure`; empty where it has none.
pub(crate) fn ends(figure: &Figure) -> String {
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format!("{} to {}", number(low), number(high)),
        _ => String::new(),
    }
}

/// Returns a remark where a figure stands on luck.
pub(crate) fn few(figure: &Figure) -> &'static str {
    if figure.is_supported() { "" } else { " (fewer than ten samples beyond)" }
}

/// Returns a table cell that knows the name of its column, for screens on which the head is not
/// shown.
pub(crate) fn cell(column: &str, class: &str, content: &str) -> String {
    format!("<td data-label=\"{}\" class=\"{class}\">{content}</td>", text(column))
}

pub(crate) fn table(class: &str, caption: &str, head: &str, body: &str) -> String {
    format!(
        "<div class=\"scroll\"><table class=\"{class}\">\n<caption>{caption}</caption>\n<thead>{head}</thead>\n<tbody>\n{body}</tbody>\n</table></div>\n"
    )
}

pub(crate) fn head(columns: &[(&str, &str)]) -> String {
    let cells: String = columns
        .iter()
        .map(|(name, class)| format!("<th scope=\"col\" class=\"{class}\">{name}</th>"))
        .collect();
    format!("<tr>{cells}</tr>")
}

/// Returns the limits of the verdict.
pub(crate) fn rules(rules: &[VerdictRule]) -> String {
    if rules.is_empty() {
        return String::new();
    }
    let row = |rule: &VerdictRule| {
        let limit = format!("{} {}", number(rule.limit), text(&rule.unit));
        format!(
            "<tr><th scope=\"row\">{}</th>{}{}</tr>\n",
            text(&rule.name),
            cell("limit", "n", &limit),
            cell("", "", &text(&rule.sentence))
        )
    };
    let body: String = rules.iter().map(row).collect();
    table(
        "cards",
        "The limits that were in force.",
        &head(&[("Rule", ""), ("Limit", "n"), ("What is compared", "")]),
        &body,
    )
}

/// Returns every parameter with who chose it.
pub(crate) fn parameters(report: &Report) -> String {
    if report.parameters.is_empty() {
        return String::new();
    }
    let mut body = String::new();
    // What a scenario says about itself stands with the scenario; it sets nothing.
    for parameter in report.parameters.iter().filter(|parameter| parameter.name != "about") {
        let (value, origin) =
            (text(&format!("{} {}", parameter.value, parameter.unit)), parameter.origin.word());
        let origin = cell("chosen by", &format!("origin {origin}"), origin);
        let _ = writeln!(
            body,
            "<tr><th scope=\"row\">{}</th>{}{origin}</tr>",
            text(&parameter.name),
            cell("value", "", &value)
        );
    }
    let columns = [("Parameter", ""), ("Value", ""), ("Chosen by", "")];
    section(
        "parameters",
        "Parameters",
        "",
        &table("cards", "Everything that was in force, and who chose it.", &head(&columns), &body),
    )
}

/// Returns the machine and how busy it was.
pub(crate) fn host(report: &Report) -> String {
    let host = &report.host;
    let load = |load: Option<[f64; 3]>| {
        load.map(|[a, b, c]| format!("{a:.2}, {b:.2}, {c:.2} (1, 5, 15 min)"))
    };
    let gib = host.memory_bytes as f64 / f64::from(1u32 << 30);
    let mut facts = vec![
        ("kernel", host.kernel.clone()),
        ("processors", host.cpus.to_string()),
        ("memory", format!("{gib:.1} GiB")),
        ("hypervisor", host.hypervisor.clone().unwrap_or_else(|| "none seen".to_owned())),
    ];
    facts.extend(load(host.load_before).map(|load| ("load before", load)));
    facts.extend(load(host.load_after).map(|load| ("load after", load)));
    facts.extend(host.facts.iter().map(|(name, value)| (name.as_str(), value.clone())));
    let row = |(name, value): &(&str, String)| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>\n", text(name), text(value))
    };
    let body: String = facts.iter().map(row).collect();
    section("host", "Machine", "", &format!("<dl>\n{body}</dl>\n"))
}

/// Returns every figure of the run, folded away.
pub(crate) fn figures(report: &Report) -> String {
    if report.figures.is_empty() {
        return String::new();
    }
    let row = |figure: &Figure| {
        let phase = [labels::PHASE, labels::QUANTILE].map(|key| figure.label(key).unwrap_or(""));
        let known = [
            labels::VICTIM,
            labels::CONGESTOR,
            labels::PLACE,
            labels::QUEUE,
            labels::PHASE,
            labels::QUANTILE,
        ];
        let others = figure.labels.iter().filter(|(key, _)| !known.contains(&key.as_str()));
        let others: Vec<String> = others.map(|(key, value)| format!("{key} {value}")).collect();
        let what = [title_of(&figure.labels), others.join(", "), phase.join(" ")];
        let what = text(what.join(" ").trim());
        let (value, samples) = (
            format!("{} {}", number(figure.value), text(figure.shown_unit())),
            format!("{}{}", figure.samples, few(figure)),
        );
        format!(
            "<tr><th scope=\"row\">{}</th>{}{}{}{}{}</tr>\n",
            text(&figure.name),
            cell("of", "", &what),
            cell("value", "n", &value),
            cell("95 %", "n", &ends(figure)),
            cell("samples", "n", &samples),
            cell("source", "", &text(&figure.source))
        )
    };
    let body: String = report.figures.iter().map(row).collect();
    let columns = [
        ("Figure", ""),
        ("Of", ""),
        ("Value", "n"),
        ("95 %", "n"),
        ("Samples", "n"),
        ("Source", ""),
    ];
    let table = table("cards", "Every figure of the run.", &head(&columns), &body);
    section(
        "figures",
        "All figures",
        "",
        &format!(
            "<details><summary>{} figures</summary>\n{table}</details>\n",
            report.figures.len()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number__sets_thousands_apart() {
        let cases = [
            (11_956.0, "11\u{202f}956"),
            (999.0, "999"),
            (1_234.0, "1234"),
            (-1_234_567.0, "\u{2212}1\u{202f}234\u{202f}567"),
            (0.31, "0.31"),
        ];
        for (value, expected) in cases {
            assert_eq!(number(ExtendedReal::finite(value)), expected);
        }
        assert_eq!(number(ExtendedReal::INFINITE), "\u{221e}");
    }
}
