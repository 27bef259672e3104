//! Shows what is in archives, and what is wrong with them, on a terminal.
//!
//! # Invariants
//! I1. Nothing that a file says of itself can steer the terminal.

use std::fmt::Write;

use super::survey::{
    CheckReport, ContentReport, FileReport, FindingReport, HeaderReport, OriginReport, PlaceReport,
};
use crate::report::numerals::{printable, size};

/// CBM's numbers of subsystems.
const SUBSYSTEMS: [(u8, &str); 16] = [
    (0x10, "STS"),
    (0x20, "MVD"),
    (0x30, "RICH"),
    (0x40, "TRD"),
    (0x48, "TRD2D"),
    (0x50, "MUCH"),
    (0x58, "MUST"),
    (0x60, "TOF"),
    (0x70, "ECAL"),
    (0x80, "PSD"),
    (0x81, "FSD"),
    (0x90, "BMON"),
    (0xe0, "TRB3"),
    (0xe1, "hodoscope"),
    (0xe2, "Cherenkov"),
    (0xf0, "FLES"),
];

/// Returns what `msa info` prints.
pub(crate) fn described(reports: &[FileReport]) -> String {
    reports.iter().map(description).collect::<Vec<_>>().join("\n")
}

fn description(report: &FileReport) -> String {
    let mut page = format!("{}\n", printable(&report.file));
    let mut line = |name: &str, text: &str| page.push_str(&format!("  {name:<8} {text}\n"));
    if let Some(header) = &report.header {
        line("holds", &holds(header, &report.contents));
        if header.kind == "timeslices" && report.contents.items > 0 {
            line("numbers", &numbers(&report.contents));
        }
        if let (Some(first), Some(last)) = (report.contents.first_ns, report.contents.last_ns) {
            line(
                "times",
                &format!("{first} to {last} ns ({})", period(last.saturating_sub(first))),
            );
        }
        for origin in &report.contents.origins {
            line("from", &source(origin));
        }
        line("made", &printable(&made(header)));
        line("format", &format(header));
    }
    for (name, text) in troubles(report) {
        line(name, &text);
    }
    page
}

fn holds(header: &HeaderReport, contents: &ContentReport) -> String {
    let ContentReport { items, microslices, content_bytes, .. } = *contents;
    let sizes = match (contents.smallest_bytes, contents.largest_bytes) {
        (Some(low), Some(high)) if low == high => format!(", {} each", size(low)),
        (Some(low), Some(high)) => format!(", {} to {} each", size(low), size(high)),
        _ => String::new(),
    };
    let microslices =
        format!("{}, {} in all{sizes}", count(microslices, "microslice"), size(content_bytes));
    match header.kind {
        "timeslices" => format!("{} of {microslices}", count(items, "timeslice")),
        _ => microslices,
    }
}

fn numbers(contents: &ContentReport) -> String {
    let number =
        |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let components = match (contents.fewest_components, contents.most_components) {
        (Some(low), Some(high)) if low != high => format!("{low} to {high} components"),
        (_, high) => count(high.unwrap_or(0), "component"),
    };
    let incomplete = match contents.incomplete_timeslices {
        0 => String::new(),
        some => format!("; {some} marked as incomplete"),
    };
    format!(
        "{} to {}, {components} each{incomplete}",
        number(contents.first_timeslice),
        number(contents.last_timeslice)
    )
}

fn source(origin: &OriginReport) -> String {
    let OriginReport { subsystem, subsystem_format, equipment } = *origin;
    let name = SUBSYSTEMS
        .iter()
        .find(|(number, _)| *number == subsystem)
        .map_or("an unknown subsystem", |(_, name)| name);
    let content = match (subsystem, subsystem_format) {
        (0xf0, 0x81) => "ramp",
        (0xf0, 0x80) => "content that nobody wrote",
        _ => "format",
    };
    format!(
        "{name} (0x{subsystem:02x}), {content} (0x{subsystem_format:02x}), equipment 0x{equipment:04x}"
    )
}

fn made(header: &HeaderReport) -> String {
    format!("{} by {} on {}", date(header.created_s), header.user, header.host)
}

fn format(header: &HeaderReport) -> String {
    let mut text = match header.compression {
        "none" => "not compressed".to_owned(),
        other => format!("compressed by {other}"),
    };
    let _ = write!(
        text,
        "; versions: Boost archive {}, header {}",
        header.library_version, header.header_version
    );
    for (what, version) in
        [("timeslice", header.timeslice_version), ("component", header.component_version)]
    {
        if let Some(version) = version {
            let _ = write!(text, ", {what} {version}");
        }
    }
    text
}

/// Returns what keeps a file from being read to its end.
fn troubles(report: &FileReport) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(sentence) = &report.broken {
        lines.push(("BROKEN", printable(sentence)));
    }
    if report.unfinished {
        lines.push(("unfinished", "by its name: its writer was stopped, or is at work".to_owned()));
    }
    if report.cut {
        let text = match report.cut_item_bytes {
            0 => {
                "the compressed stream is not closed; all items that are there are whole".to_owned()
            }
            bytes => format!("the last item ends after {}; all before it are whole", size(bytes)),
        };
        lines.push(("cut off", text));
    }
    lines
}

/// Returns what `msa check` prints.
pub(crate) fn checked(reports: &[FileReport]) -> String {
    let mut page = format!(
        "{:>10} {:>12} {:>11} {:>11} {:>11} {:>8}  file\n",
        "items", "microslices", "content", "CRCs", "ramps", "faults"
    );
    for report in reports {
        let dash = |number: u64| if number == 0 { "-".to_owned() } else { number.to_string() };
        let [crcs, ramps, faults] = match &report.check {
            Some(check) => {
                let faults = check.faults + u64::from(report.ends_early());
                [dash(check.crcs), dash(check.ramps), faults.to_string()]
            }
            None => ["-"; 3].map(str::to_owned),
        };
        let ContentReport { items, microslices, content_bytes, .. } = report.contents;
        let (content, file) = (size(content_bytes), printable(&report.file));
        let _ = writeln!(
            page,
            "{items:>10} {microslices:>12} {content:>11} {crcs:>11} {ramps:>11} {faults:>8}  {file}"
        );
    }
    for report in reports {
        let lines = remarks(report);
        if !lines.is_empty() {
            let _ = write!(page, "\n{}\n", printable(&report.file));
        }
        for line in lines {
            let _ = writeln!(page, "  {line}");
        }
    }
    let _ = writeln!(page, "\n{}", verdict(reports));
    page
}

fn remarks(report: &FileReport) -> Vec<String> {
    let mut lines: Vec<String> =
        troubles(report).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
    let Some(check) = &report.check else { return lines };
    lines.extend(check.findings.iter().map(finding));
    let CheckReport { unchecked, marked, .. } = *check;
    if marked > 0 {
        lines.push(format!(
            "{} marked by their detector as cut off or wrong",
            count(marked, "microslice")
        ));
    }
    if report.contents.incomplete_timeslices > 0 {
        lines.push(format!(
            "{} marked as incomplete",
            count(report.contents.incomplete_timeslices, "timeslice")
        ));
    }
    if unchecked > 0 {
        lines.push(format!(
            "{} without a CRC and without a known pattern: contents not checked",
            count(unchecked, "microslice")
        ));
    }
    lines
}

fn finding(found: &FindingReport) -> String {
    let FindingReport { count, first, finding, .. } = found;
    let place = first.map_or_else(String::new, |PlaceReport { item, component, microslice }| {
        let part = |name: &str, number: Option<u32>| {
            number.map_or_else(String::new, |number| format!(", {name} {number}"))
        };
        format!(
            " (first in item {item}{}{})",
            part("component", component),
            part("microslice", microslice)
        )
    });
    let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
    format!("{times}: {}{place}", finding.sentence())
}

fn verdict(reports: &[FileReport]) -> String {
    let files = count(reports.len() as u64, "file");
    match reports.iter().filter(|report| report.is_faulty()).count() {
        0 => format!("no faults in {files}"),
        faulty => format!("FAULTS in {faulty} of {files}"),
    }
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns a length of time in the unit that keeps it readable.
fn period(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// Returns `2026-08-01 01:15:33 UTC` for seconds since 1970, by the civil calendar counted in eras
/// of 400 years from a first of March.
fn date(seconds: i64) -> String {
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01, so that the day that only leap years have is the last of its year.
    let day = day.saturating_add(719_468);
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Months from March on have 31 30 31 30 31 days, twice and a bit: 153 days in five months.
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, late) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{:04}-{month:02}-{of_month:02} {hour:02}:{minute:02}:{second:02} UTC",
        era * 400 + year + late
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date__known_days_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_431_983_971), "2015-05-18 21:19:31 UTC");
        assert_eq!(date(-1), "1969-12-31 23:59:59 UTC");
        assert_eq!(date(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert_eq!(date(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert!(date(i64::MAX).ends_with("UTC") && date(i64::MIN).ends_with("UTC"));
    }

    #[test]
    fn size__changes_its_unit_at_1024() {
        assert_eq!(
            [0, 1023, 1024, 65_536, u64::MAX].map(size),
            ["0 B", "1023 B", "1.0 KiB", "64.0 KiB", "16384.0 PiB"]
        );
        assert_eq!(
            [999, 1_500, 9_900_000, 3_000_000_000].map(period),
            ["999 ns", "1.5 us", "9.9 ms", "3.0 s"]
        );
    }
}
