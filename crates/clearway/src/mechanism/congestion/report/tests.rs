//! The whole of a congestion test's report, on a terminal and as a page.

use super::super::CongestionTest;
use crate::report::html::{self, browser};
use crate::report::model::{ExtendedReal, labels};
use crate::report::present::Presenter;
use crate::report::sample;
use crate::report::terminal::{self, ColourMode, WIDTH};

const PRESENTERS: [&dyn Presenter; 1] = [&CongestionTest];

#[test]
fn terminal__of_the_demo_is_this() {
    assert_eq!(
        terminal::render(&sample::incast_demo(), &PRESENTERS, ColourMode::Plain),
        include_str!("demo.txt")
    );
}

#[test]
fn terminal__never_exceeds_eighty_columns_nor_lets_escapes_through() {
    let mut report = sample::incast_demo();
    for figure in &mut report.figures {
        figure.value = ExtendedReal::finite(123_456_789.0);
        figure.high = Some(ExtendedReal::INFINITE);
        figure
            .labels
            .insert(labels::QUEUE.to_owned(), "a-queue-with-a-very-long-name\u{1b}[31m".to_owned());
    }
    for share in &mut report.shares {
        share.class = "x".repeat(100);
        share.granted = "\u{1b}]0;title\u{7}".repeat(9);
    }
    let text = terminal::render(&report, &PRESENTERS, ColourMode::Plain);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(WIDTH), "{widest:?}\n{text}");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn terminal__marks_a_factor_that_stands_on_few_samples() {
    let mut report = sample::incast_demo();
    report.figures.iter_mut().for_each(|figure| figure.samples = 999);
    let text = terminal::render(&report, &PRESENTERS, ColourMode::Plain);
    assert!(
        text.contains("~426 [405..448]") && text.contains("~ fewer than ten samples"),
        "{text}"
    );
}

#[test]
fn terminal__a_run_without_shares_shows_marks_and_no_empty_column() {
    let mut report = sample::incast_demo();
    for share in &mut report.shares {
        (share.configured, share.reached, share.starved_ms) = (None, None, None);
        share.granted = "46 seen".to_owned();
    }
    let text = terminal::render(&report, &PRESENTERS, ColourMode::Plain);
    let heading = text.lines().position(|line| line == "Marks (DSCP)").expect("the table");
    let columns =
        text.lines().nth(heading + 1).expect("its head").split_whitespace().collect::<Vec<_>>();
    assert_eq!(columns, ["queue", "class", "asked", "seen"]);
    assert!(!text.contains("got %") && !text.contains("46 seen"), "{text}");
}

#[test]
fn page__hostile_text_stays_text() {
    let page = html::render(&sample::hostile(), &PRESENTERS);
    let opened = page.matches("<script").count();
    assert_eq!((opened, page.matches("</script").count()), (3, 3));
    let scripts = page.find("id=\"material\"").expect("the material");
    assert!(!page.contains("<!--") && !page[..scripts].contains("\" onload"));
    assert!(!page[scripts..].contains('\u{2028}'));
}

#[test]
fn page__names_no_foreign_source() {
    let page = html::render(&sample::simulated(), &PRESENTERS);
    let words = page[..page.find("id=\"material\"").expect("the material")].replace("-src ", "");
    for loading in ["src=", "@import", "url(", "href=\"http"] {
        assert!(!words.contains(loading), "the page must not contain {loading}");
    }
}

#[test]
fn page__says_everything_without_scripts() {
    let page = html::render(&sample::incast_demo(), &PRESENTERS);
    let words = &page[..page.find("id=\"material\"").expect("the material")];
    for said in [
        "CONGESTED",
        "11\u{202f}956",
        "clearway bench scenarios/incast.toml",
        "Linux 6.12.0",
        "scavenger",
        "h5",
    ] {
        assert!(words.contains(said), "the page must say {said}");
    }
}

#[test]
fn page__names_each_curve_next_to_a_sample_of_its_line() {
    let page = html::render(&sample::incast_demo(), &PRESENTERS);
    let legend =
        page.split("<ul class=\"legend\">").nth(1).and_then(|rest| rest.split("</ul>").next());
    let entries: Vec<&str> = legend.expect("a legend").trim().lines().collect();
    let wanted = [
        ("q0", true, "fifo, isolated"),
        ("q0", false, "fifo, congested: 0.31"),
        ("q1", true, "strict, isolated"),
        ("q1", false, "strict, congested"),
    ];
    assert_eq!(entries.len(), wanted.len());
    for (entry, (colour, dashed, name)) in entries.into_iter().zip(wanted) {
        let right =
            entry.contains(colour) && entry.contains("dashed") == dashed && entry.contains(name);
        assert!(right, "{name}: {entry}");
    }
}

#[test]
fn page__an_empty_report_has_no_charts() {
    let mut report = sample::incast_demo();
    report.verdict = None;
    report.figures.clear();
    report.survival.clear();
    report.timelines.clear();
    report.heat.clear();
    report.shares.clear();
    report.draws.clear();
    let page = html::render(&report, &PRESENTERS);
    assert!(!page.contains("class=\"chart\"") && page.contains("How to reproduce"));
}

#[test]
fn page__leaves_out_what_a_small_run_cannot_say() {
    let mut report = sample::incast_demo();
    report.draws.truncate(1);
    report.heat.truncate(1);
    report.heat[0].rows.iter_mut().flatten().for_each(|cell| *cell = None);
    report.heat[0].rows[2][5] = ExtendedReal::new(0.63);
    report.heat[0].rows[5][2] = ExtendedReal::new(173.0);
    report.shares.iter_mut().for_each(|share| (share.configured, share.reached) = (None, None));
    let page = html::render(&report, &PRESENTERS);
    let words = &page[..page.find("id=\"material\"").expect("the material")];
    for absent in
        ["choice of hosts changes", "data-kind=\"heat\"", "stands out", "All classes send"]
    {
        assert!(!words.contains(absent), "{absent}");
    }
    assert!(
        words.contains("h5 to h2") && words.contains("173\u{d7}") && words.contains(">Marks</h2>")
    );
}

#[test]
fn page__is_drawn_whole_in_every_window() {
    browser::check("demo", &sample::incast_demo(), &PRESENTERS, 6);
}

#[test]
fn page__copes_with_losses_gaps_and_lone_samples() {
    browser::check("odd", &sample::odd(), &PRESENTERS, 4);
}

#[test]
fn page__shows_a_simulated_fabric_in_every_window() {
    browser::check("fabric", &sample::simulated(), &PRESENTERS, 6);
}
