//! Timeslice building from the command line: every schedule has its figures, the same ones each
//! time, and mistakes have a sentence.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Four inputs and four builders, so small that it is over at once.
const SMALL: &str = "--inputs 4 --builders 4 --contribution 4KiB --ring 64KiB --start-skew 20us --warm-up 300us \
                     --measured 300us --interval 16 --history 5 --policy best-effort,offset,dfs,token";

/// The program with `line` in `directory`.
fn clearway(directory: &Path, line: &str) -> Output {
    let words = line.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(words)
        .current_dir(directory)
        .output()
        .expect("the program")
}

/// A directory of this test alone.
fn directory(name: &str) -> PathBuf {
    let directory =
        std::env::temp_dir().join(format!("clearway-timeslice-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// Schedules compared where reports are in nobody's way.
fn timeslice(line: &str) -> Output {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let directory = directory(&format!("call-{}", CALLS.fetch_add(1, Ordering::Relaxed)));
    let output = clearway(&directory, &format!("timeslice compare {line}"));
    fs::remove_dir_all(directory).expect("removed");
    output
}

fn page(line: &str) -> String {
    let output = timeslice(line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The value of the figure `name` of `policy`, and of a quantile where it has one.
fn value(figures: &[serde_json::Value], name: &str, policy: &str, quantile: Option<&str>) -> f64 {
    let same = |figure: &&serde_json::Value| {
        let label = |key: &str| figure["labels"][key].as_str();
        figure["name"] == name && label("policy") == Some(policy) && label("quantile") == quantile
    };
    let figure = figures.iter().find(same).unwrap_or_else(|| panic!("no {name} of {policy}"));
    figure["value"].as_f64().expect("a number")
}

/// The figures that are printed for programs.
fn figures_in(text: &str) -> Vec<serde_json::Value> {
    let read: serde_json::Value = serde_json::from_str(text).expect("JSON");
    read["figures"].as_array().expect("figures").clone()
}

#[test]
fn timeslice__every_schedule_carries_data_and_the_figures_repeat() {
    let line = format!("{SMALL} --json --seed 3,4");
    let text = page(&line);
    assert_eq!(page(&line), text, "a simulation repeats itself exactly");
    let figures = figures_in(&text);
    assert_eq!(value(&figures, "timeslice_throughput_fraction", "raw", None), 1.0);
    for policy in ["best-effort", "offset", "dfs", "token"] {
        let fraction = value(&figures, "timeslice_throughput_fraction", policy, None);
        assert!((0.01..2.0).contains(&fraction), "{policy}: {fraction}");
        let [p50, p99] =
            ["p50", "p99"].map(|q| value(&figures, "timeslice_completion_ms", policy, Some(q)));
        assert!(p50 <= p99 && p99 < 0.3, "{policy}: {p50} {p99}");
        let fill = value(&figures, "builder_buffer_fill_fraction", policy, Some("p99"));
        assert!((0.0..=1.0).contains(&fill), "{policy}: a ring is never more than full, {fill}");
    }
    assert!(value(&figures, "builder_window_contributions", "token", None) >= 2.0);
}

#[test]
fn timeslice__the_table_has_a_row_for_each_schedule_and_fits_a_terminal() {
    let table = page(SMALL);
    for policy in ["raw", "best-effort", "offset", "dfs", "token"] {
        let rows = table.lines().filter(|line| line.split(' ').next() == Some(policy));
        assert_eq!(rows.count(), 1, "{policy}\n{table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn timeslice__without_a_builder_that_dies_the_others_go_on() {
    let line = format!("{SMALL} --kill 5@100us --heartbeat 50us")
        .replace("--measured 300us", "--measured 2ms");
    let figures = figures_in(&page(&format!("{line} --json")));
    for policy in ["best-effort", "offset", "dfs", "token"] {
        let [first, last, back] = ["detection_ms", "redistribution_ms", "recovery_rotations"]
            .map(|name| value(&figures, name, policy, None));
        assert!(
            0.1 <= first && first <= last && last < 0.5,
            "{policy}: some beats are missed, {first} {last}"
        );
        assert!(back >= 0.0, "{policy}: {back}");
    }
}

#[test]
fn timeslice__a_mistake_has_one_sentence() {
    for (line, word) in [
        ("--policy fifo", "best-effort"),
        ("--window 9-3", "2-64"),
        ("--contribution 64KiB --ring 1KiB", "one contribution"),
        ("--measured 0ms", "something must be measured"),
        ("--queue fast", "shared"),
        ("--builders 3 --weights 1,2", "one for each"),
        ("--builders 2 --weights 1,0", "one positive number for each builder"),
        ("--fabric nowhere", "nowhere"),
        ("--kill 64@1ms --heartbeat 1ms", "below 64"),
        ("--kill 1@1ms", "--heartbeat"),
        ("--on lab --kill 8@1ms", "below 8"),
    ] {
        let output = timeslice(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(word), "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn timeslice__flags_that_mean_nothing_for_a_subcommand_are_none_of_it() {
    let directory = directory("refused");
    for (line, word) in [
        (
            "--inputs 4",
            "clearway timeslice [OPTIONS] <compare|build|achievable|watch|join|consume>",
        ),
        ("compare --timeslices 4", "unexpected argument '--timeslices'"),
        ("compare --source run_%i.msa", "possible values: pattern, memory"),
        ("compare --sink ts_%b.tsa", "possible values: check, discard"),
        ("build --on sim", "possible values: lab, cluster"),
        ("build --measured 1s", "unexpected argument '--measured'"),
        ("build --fabric edr", "unexpected argument '--fabric'"),
        ("build --policy dfs,token", "invalid value 'dfs,token'"),
        ("achievable --policy token", "unexpected argument '--policy'"),
        ("achievable --ring 1MiB", "unexpected argument '--ring'"),
    ] {
        let output = clearway(&directory, &format!("timeslice {line}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(word), "{line}: {said}");
    }
    for (line, word) in [
        ("compare --sizes skewed", "--sizes is for --on lab or cluster, and this is --on sim"),
        ("compare --source memory", "--source is for --on lab or cluster, and this is --on sim"),
        ("achievable --wire shm", "--wire is for --on lab or cluster, and this is --on sim"),
        ("compare --topology t.conf", "--topology FILE is for --on cluster, and this is --on sim"),
        (
            "build --topology none",
            "--topology none is for --on sim or cluster, and this is --on lab",
        ),
        (
            "build",
            "--timeslices says how many to build, and clearway timeslice compare builds for a time",
        ),
        ("build --source run.msa", "write %i where the number of the input stands"),
    ] {
        let output = clearway(&directory, &format!("timeslice {line}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(word), "{line}: {said}");
    }
    assert_eq!(
        fs::read_dir(&directory).expect("a directory").count(),
        0,
        "what is refused leaves nothing"
    );
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn compare__leaves_a_report_that_can_be_rendered_again() {
    let directory = directory("report");
    let line = format!("timeslice compare {SMALL} --seed 3,4");
    let output = clearway(&directory, &line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.ends_with("report: out/timeslice-compare/1/report.html\n"),
        "{said}"
    );
    let table = String::from_utf8(output.stdout).expect("text");
    let text = fs::read_to_string(directory.join("out/timeslice-compare/latest/report.json"))
        .expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["place"], &report["seed"]), (&"sim".into(), &3.into()));
    let parameter = |name: &str| {
        let all = report["parameters"].as_array().expect("a list");
        let found = all
            .iter()
            .find(|parameter| parameter["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"));
        (
            found["value"].as_str().expect("text").to_owned(),
            found["origin"].as_str().expect("text").to_owned(),
        )
    };
    assert_eq!(parameter("contribution"), ("4 KiB".to_owned(), "flag".to_owned()));
    assert_eq!(parameter("seed"), ("3,4".to_owned(), "flag".to_owned()));
    assert_eq!(parameter("fabric"), ("aries".to_owned(), "default".to_owned()));
    assert_eq!(
        report["building"]["policies"].as_array().expect("a list").len(),
        5,
        "raw and four schedules"
    );
    assert_eq!(report["digests"].as_array().expect("a list").len(), 10, "each of two seeds");
    let figures = report["figures"].as_array().expect("a list");
    assert_eq!(value(figures, "timeslice_throughput_fraction", "raw", None), 1.0);
    fs::remove_file(directory.join("out/timeslice-compare/1/report.html")).expect("a page");
    let again = clearway(&directory, "report out/timeslice-compare");
    let rendered = String::from_utf8_lossy(&again.stdout);
    let row = |text: &str| text.lines().find(|line| line.starts_with("token")).map(str::to_owned);
    assert!(row(&table).is_some() && row(&rendered) == row(&table), "{rendered}\n{table}");
    assert!(directory.join("out/timeslice-compare/1/report.html").exists());
    let refused = clearway(&directory, &format!("{line} --out out/timeslice-compare/1"));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("add --overwrite"));
    fs::remove_dir_all(directory).expect("removed");
}
