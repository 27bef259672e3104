//! The table of the slowest messages of the worst cell: which they were, and what held each of them
//! up.

use std::fmt::Write;

use crate::report::html::tables::{cell, head, number, table};
use crate::report::html::{section, text};
use crate::report::model::{ExtendedReal, LongestWait, Report, SlowMessage, Slowest};
use crate::report::title::title_of;

const LEAD: &str = "The slowest messages of the victims in the worst cell, and the one port at which each waited longest. \
    Where buffers ahead were full, the root is the port at which the chain of full buffers ends.";

/// Returns the section, or nothing where no message could be followed.
pub(super) fn slowest(report: &Report) -> String {
    let mut body = String::new();
    for slowest in &report.slowest {
        body.push_str(&one(slowest));
    }
    section("slowest", "Why were the slowest messages slow?", LEAD, &body)
}

fn one(slowest: &Slowest) -> String {
    let columns = [
        ("Message", ""),
        ("From \u{2192} to", ""),
        ("Latency", "n"),
        ("Waited most for", ""),
        ("Where", ""),
        ("Root", ""),
    ];
    let rows: String = slowest.messages.iter().map(row).collect();
    let caption =
        format!("{}. Messages that never arrived are not among them.", text(&slowest.phase));
    let mut out = format!("<h3>{}</h3>\n", text(&title_of(&slowest.labels)));
    out.push_str(&table("cards slow", &caption, &head(&columns), &rows));
    if let Some(note) = &slowest.note {
        let _ = writeln!(out, "<p>{}.</p>", text(&sentence(note)));
    }
    if let Some(first) = slowest.messages.first() {
        let _ = writeln!(
            out,
            "<p>The whole way of one of them, hop by hop: <code>clearway sim explain DIR --message {}</code>, where DIR is the \
             directory of this page.</p>",
            text(&first.id)
        );
    }
    out
}

/// Returns `clause` with a capital.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    letters
        .next()
        .map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

fn row(message: &SlowMessage) -> String {
    let [from, to] = &message.ends;
    let [cause, place, root] = message
        .wait
        .as_ref()
        .map_or(["\u{2013}"; 3].map(str::to_owned), |wait| waited(wait, message.latency_us));
    format!(
        "<tr><th scope=\"row\"><code>{}</code></th>{}{}{}{}{}</tr>\n",
        text(&message.id),
        cell("from \u{2192} to", "", &format!("{}\u{a0}\u{2192}\u{a0}{}", text(from), text(to))),
        cell("latency", "n", &micros(message.latency_us)),
        cell("waited most for", "", &cause),
        cell("where", "", &place),
        cell("root", "", &root)
    )
}

/// Returns the cause with its part of `latency_us`, the place, and the root.
fn waited(wait: &LongestWait, latency_us: f64) -> [String; 3] {
    let arrow = |port: &str| text(&port.replace(" -> ", "\u{a0}\u{2192} "));
    let part = real(wait.us / latency_us.max(f64::MIN_POSITIVE) * 100.0);
    let cause = format!("{}, {} ({}\u{202f}%)", text(&wait.cause), micros(wait.us), number(part));
    let root = if wait.root == wait.port {
        text(&wait.because)
    } else {
        format!("{}, {}", arrow(&wait.root), text(&wait.because))
    };
    [cause, arrow(&wait.port), root]
}

/// Returns `value` as a number of a report; what a foreign file holds instead counts as nothing.
fn real(value: f64) -> ExtendedReal {
    ExtendedReal::new(value).unwrap_or(ExtendedReal::finite(0.0))
}

fn micros(us: f64) -> String {
    format!("{}\u{202f}\u{b5}s", number(real(us)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn slowest__names_cause_place_and_root_and_how_to_ask_for_more() {
        let page = slowest(&sample::simulated());
        for said in [
            "<code>p2:n1:77</code>",
            "48.2\u{202f}\u{b5}s",
            "(75",
            "g0s1\u{a0}\u{2192} g1s0",
            "g1s1\u{a0}\u{2192} n6, busy with packets of 3 hosts",
            "--message p2:n1:77",
        ] {
            assert!(page.contains(said), "{said}: {page}");
        }
    }

    #[test]
    fn slowest__what_was_not_followed_says_so() {
        let mut report = sample::simulated();
        report.slowest[0].note = Some("it costs <too> much".to_owned());
        let page = slowest(&report);
        assert!(
            page.contains("It costs &lt;too&gt; much.") && page.contains("\u{2013}</td>"),
            "{page}"
        );
    }

    #[test]
    fn slowest__a_real_network_has_no_such_section() {
        assert_eq!(slowest(&sample::incast_demo()), "");
    }
}
