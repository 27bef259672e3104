//! Writes findings for a person: an aligned list of 80 columns, words before colours.
//!
//! # Invariants
//! I1. No line is wider than [`WIDTH`], save for a single longer word.
//! I2. Escape sequences stand around status words only, and only when a terminal reads them.

use clearway_proto::base::Class;

use super::Diagnosis;
use super::fabric::{Provider, WireClasses};
use super::finding::{FindingGroup, Status};
use super::marking::{MarkTest, ReceivedMark};
use crate::report::numerals::wrap;
use crate::report::terminal::{ColourMode, WIDTH};

/// Where the sentences begin: two spaces, an item of 16, a space, a status of 7, two spaces.
const INDENT: usize = 28;

/// Returns one section with its title, an empty line behind it.
pub(super) fn section(section: &FindingGroup, paint: ColourMode) -> String {
    let mut text = format!("{}\n", section.title);
    for finding in &section.findings {
        let remedies = finding
            .remedies
            .iter()
            .flat_map(|remedy| wrap(&format!("remedy: {remedy}"), WIDTH - INDENT));
        let mut lines = wrap(&finding.found, WIDTH - INDENT).into_iter().chain(remedies);
        let first = lines.next().unwrap_or_default();
        text += &format!("  {:16} {}  {first}\n", finding.item, status(finding.status, paint));
        for line in lines {
            text += &format!("{:INDENT$}{line}\n", "");
        }
    }
    text + "\n"
}

/// Returns the status word, padded to seven columns.
fn status(status: Status, paint: ColourMode) -> String {
    // Blue, yellow and magenta stay apart for readers who confuse red and green.
    let code = match status {
        Status::Ok => "34",
        Status::Limited => "33",
        Status::Missing => "35",
    };
    let (word, pad) = (status.word(), " ".repeat(7usize.saturating_sub(status.word().len())));
    match paint {
        ColourMode::Plain => format!("{word}{pad}"),
        ColourMode::Colour => format!("\u{1b}[{code}m{word}\u{1b}[0m{pad}"),
    }
}

/// Returns what libfabric offers, and why it is taken or not; an empty line behind it.
pub(super) fn providers(providers: &[Provider]) -> String {
    if providers.is_empty() {
        return String::new();
    }
    let mut text = "Providers of libfabric\n".to_owned();
    for it in providers {
        let lines = wrap(&format!("{}; on {}", it.verdict, it.domains.join(", ")), WIDTH - INDENT);
        for (i, line) in lines.into_iter().enumerate() {
            let name = if i == 0 { it.provider.as_str() } else { "" };
            text += &format!("  {name:25} {line}\n");
        }
    }
    text + "\n"
}

/// Returns what classes become on each wire, an empty line behind it.
pub(super) fn classes(wires: &[WireClasses]) -> String {
    let row = |name: &str, cells: [&str; Class::ALL.len()]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:12}")).collect();
        format!("  {name:18}{cells}").trim_end().to_owned() + "\n"
    };
    let mut text =
        "What a class asked for becomes\n".to_owned() + &row("wire", Class::ALL.map(Class::name));
    for it in wires {
        text += &row(&it.wire, it.granted);
    }
    text + "\n"
}

/// Returns the table of marks, an empty line behind it.
pub(super) fn marks(marks: &[MarkTest]) -> String {
    if marks.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "Class marks, as the receiver read them\n  {:10}{:13}{:12}{:12}granted\n",
        "place", "class", "asked DSCP", "seen DSCP"
    );
    for mark in marks {
        let granted = if mark.granted { "yes" } else { "no" };
        let seen = match mark.seen {
            ReceivedMark::Mark { dscp, name } => format!("{dscp:2} {name}"),
            ReceivedMark::Foreign => "unknown".to_owned(),
            ReceivedMark::Lost => "lost".to_owned(),
        };
        let asked = format!("{:2} {}", mark.asked_dscp, mark.asked_name);
        text +=
            &format!("  {:10}{:13}{asked:12}{seen:12}{granted}\n", mark.place.name(), mark.class);
    }
    text + "\n"
}

/// Returns the last line.
pub(super) fn verdict(diagnosis: &Diagnosis) -> String {
    let [ok, limited, missing] =
        [Status::Ok, Status::Limited, Status::Missing].map(|s| diagnosis.count(s));
    let lab = if diagnosis.lab {
        "A lab can be made here: try `clearway demo`."
    } else {
        "No lab can be made here; the remedy stands above, under Lab."
    };
    wrap(&format!("{ok} ok, {limited} limited, {missing} missing. {lab}"), WIDTH).join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::finding::Finding;
    use super::super::marking::TestedPath;
    use super::*;

    #[test]
    fn providers__reasons_wrap_next_to_the_names() {
        let domains = ["eth0 (10.0.0.1)", "eth1 (10.0.1.1)", "docker0 (172.17.0.1)"]
            .map(str::to_owned)
            .into();
        let verdict = "would do, another comes first".to_owned();
        let rows =
            [Provider { provider: "tcp;ofi_rxm".to_owned(), domains, atomics: true, verdict }];
        let expected = "Providers of libfabric\n  \
            tcp;ofi_rxm               would do, another comes first; on eth0 (10.0.0.1),\n  \
            \u{20}                         eth1 (10.0.1.1), docker0 (172.17.0.1)\n\n";
        assert_eq!(providers(&rows), expected);
        assert_eq!(providers(&[]), "");
    }

    #[test]
    fn classes__stand_in_columns_of_a_narrow_terminal() {
        let rows = [WireClasses { wire: "ofi tcp;ofi_rxm".to_owned(), granted: ["separate"; 5] }];
        let text = classes(&rows);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.lines().nth(2).expect("a row").split_whitespace().count(), 7);
    }

    fn sample() -> FindingGroup {
        let long =
            "a sentence that is longer than what is left of eighty columns next to the names";
        FindingGroup {
            title: "Lab",
            findings: vec![
                Finding::ok("namespaces", "as root"),
                Finding::missing("fifo", long, "load sch_tbf"),
            ],
        }
    }

    #[test]
    fn section__aligns_and_wraps_in_eighty_columns() {
        let expected = "Lab\n  \
            namespaces       ok       as root\n  \
            fifo             missing  a sentence that is longer than what is left of\n\
            \u{20}                           eighty columns next to the names\n\
            \u{20}                           remedy: load sch_tbf\n\n";
        assert_eq!(section(&sample(), ColourMode::Plain), expected);
        assert!(expected.lines().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn section__colour_changes_nothing_but_the_words() {
        let coloured = section(&sample(), ColourMode::Colour);
        let plain = ["34", "35", "0"]
            .iter()
            .fold(coloured.clone(), |text, code| text.replace(&format!("\u{1b}[{code}m"), ""));
        assert!(coloured.contains("\u{1b}[34mok\u{1b}[0m     "));
        assert_eq!(plain, section(&sample(), ColourMode::Plain));
    }

    #[test]
    fn marks__a_lost_or_changed_mark_is_not_granted() {
        let seen = [Some(Some(Class::LowLatency)), Some(Some(Class::BestEffort)), Some(None), None];
        let rows = seen.map(|seen| MarkTest::new(TestedPath::Lab, Class::LowLatency, seen));
        let expected = "Class marks, as the receiver read them\n  \
            place     class        asked DSCP  seen DSCP   granted\n  \
            lab       low-latency  46 EF       46 EF       yes\n  \
            lab       low-latency  46 EF        0 CS0      no\n  \
            lab       low-latency  46 EF       unknown     no\n  \
            lab       low-latency  46 EF       lost        no\n\n";
        assert_eq!(marks(&rows), expected);
    }
}
