//! The table of ports at which victims wait, with those who fill them.

use crate::report::html::tables::{cell, head, table};
use crate::report::html::{section, text};
use crate::report::model::{Culprit, Report};
use crate::report::numerals::wrap;
use crate::report::terminal::WIDTH;
use crate::report::title::title_of;

/// Returns the table for a terminal.
pub(super) fn lines(report: &Report) -> Vec<String> {
    if report.culprits.is_empty() {
        return Vec::new();
    }
    let one = |culprit: &Culprit| {
        let sentence = format!(
            "{}: {}, filled by {}; {}",
            title_of(&culprit.labels),
            culprit.port,
            culprit.senders.join(", "),
            culprit.because
        );
        let lines = wrap(&sentence, WIDTH - 4).into_iter().enumerate();
        let indented = |(i, line)| format!("{}{line}", if i == 0 { "  " } else { "    " });
        lines.map(indented).collect::<Vec<_>>()
    };
    let title = "Where victims wait, and for whom".to_owned();
    [title].into_iter().chain(report.culprits.iter().flat_map(one)).collect()
}

/// Returns the section of the page.
pub(super) fn page(report: &Report) -> String {
    let row = |culprit: &Culprit| {
        format!(
            "<tr><th scope=\"row\">{}</th>{}{}{}</tr>\n",
            text(&title_of(&culprit.labels)),
            cell("port", "", &text(&culprit.port.replace(" -> ", "\u{a0}\u{2192} "))),
            cell("filled by", "", &text(&culprit.senders.join(", "))),
            cell("because", "", &text(&culprit.because))
        )
    };
    let body: String = report.culprits.iter().map(row).collect();
    if body.is_empty() {
        return body;
    }
    let columns = [("Cell", ""), ("Port", ""), ("Filled by", ""), ("Because", "")];
    let caption = "For each congested cell the port at which victims wait, of its worst draw.";
    let lead = "Which link is full, and whose messages fill it.";
    let table = table("cards", caption, &head(&columns), &body);
    section("culprits", "Where do victims wait, and for whom?", lead, &table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Labels;
    use crate::report::sample;

    #[test]
    fn culprits__have_port_and_senders_and_fit_a_terminal() {
        let mut report = sample::incast_demo();
        assert!(lines(&report).is_empty() && page(&report).is_empty());
        report.culprits = vec![Culprit {
            labels: Labels::from([("queue".to_owned(), "fifo".to_owned())]),
            port: "switch -> n1".to_owned(),
            senders: (2..14).map(|i| format!("n{i}")).collect(),
            because: "measured: 151400 bytes waited there at most".to_owned(),
        }];
        let lines = lines(&report);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        assert!(lines[1].contains("fifo: switch -> n1, filled by n2, n3"), "{lines:#?}");
        let page = page(&report);
        assert!(page.contains("switch\u{a0}\u{2192} n1") && page.contains("n13"), "{page}");
    }
}
