//! GPCNeT's own tests where ranks are processes: in a lab, and across a job that a launcher starts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::waiting::comes;

/// A launcher that speaks PMI-1.
const LAUNCHER: &str = "mpiexec.hydra";
/// The exit status of a run that lacks a permission.
const NO_PERMISSION: i32 = 5;
/// The exit status of a run that was interrupted.
const INTERRUPTED: i32 = 130;
/// The shortest tests that have figures.
const SHORT: [&str; 6] = ["--rings", "1", "--measurements", "1", "--limit", "200ms"];

/// A directory of this test alone.
fn directory(name: &str) -> PathBuf {
    let directory =
        std::env::temp_dir().join(format!("clearway-gpcnet-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// A run of GPCNeT's tests in a lab, `more` included.
fn in_lab(directory: &Path, more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command
        .args(["gpcnet", "-v"])
        .args(more)
        .args(["--on", "lab", "--overwrite", "--out"])
        .arg(directory);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program")
}

/// What the run said, unless this machine refuses it a lab.
fn unless_refused(output: Output) -> Option<Output> {
    if output.status.code() == Some(NO_PERMISSION) {
        eprintln!("skipped: {}", said(&output).trim());
        return None;
    }
    Some(output)
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The figures of the row `name` in each table of `text`; those of tests that were refused are left
/// out.
fn figures(text: &str, name: &str) -> Vec<Vec<f64>> {
    let rows = text.lines().filter(|line| line.starts_with('|') && line.contains(name));
    let figures = |row: &str| {
        row.split('|').filter_map(|cell| cell.trim().trim_end_matches('X').parse().ok()).collect()
    };
    rows.map(figures).collect()
}

/// Whether `factor` can be `above` over `below`, all three printed with one decimal place. However
/// short or disturbed a run is, its tables agree.
fn is_ratio(factor: f64, above: f64, below: f64) -> bool {
    const HALF: f64 = 0.05 + 1e-9;
    let least = (above - HALF) / (below + HALF);
    let most = if below > HALF { (above + HALF) / (below - HALF) } else { f64::INFINITY };
    (least - HALF..=most + HALF).contains(&factor)
}

/// Processes that `parent` has started and not yet reaped.
fn children(parent: u32) -> Vec<Pid> {
    let listed =
        fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| pid.parse().ok().map(Pid::from_raw)).collect()
}

/// Waits until `run` measures, which it says; nothing if it says that it cannot.
fn measures(run: &mut Child) -> Option<()> {
    let mut errors = BufReader::new(run.stderr.as_mut().expect("a pipe"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a line");
    if line.starts_with("clearway:") {
        eprint!("skipped: {line}");
        return None;
    }
    Some(())
}

#[test]
fn lab__several_ranks_a_host_print_the_tables_of_the_network_test() {
    let directory = directory("lab");
    let run =
        in_lab(&directory, &[&["network", "--hosts", "3", "--ppn", "2"][..], &SHORT].concat());
    let Some(output) = unless_refused(run.wait_with_output().expect("an end")) else { return };
    assert!(output.status.success(), "{}", said(&output));
    let text = fs::read_to_string(directory.join("gpcnet.txt")).expect("what was printed");
    assert_eq!(text.as_bytes(), output.stdout);
    assert!(text.contains("Test with 6 MPI ranks (3 nodes)"), "{text}");
    let latency = &figures(&text, "RR Two-sided Lat")[0];
    assert!(latency.len() == 2 && latency.iter().all(|figure| *figure > 0.0), "{text}");
    // 100 Mb/s are 11.9 MiB/s, and two ranks share a host's: the queue enforces it. How far below
    // they stay is the machine's business.
    let [bandwidth, _] = figures(&text, "RR Two-sided BW (131072 B)")[0][..] else {
        panic!("{text}")
    };
    assert!(bandwidth < 11.9, "{text}");
    assert!(
        text.contains("RR Put BW (131072 B): refused: this wire has no one-sided write"),
        "{text}"
    );
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn lab__a_rank_that_is_killed_is_named_and_nothing_is_left() {
    let directory = directory("kill");
    let mut run = in_lab(&directory, &["load", "--hosts", "10"]);
    if measures(&mut run).is_some() {
        let rank = children(run.id())[3];
        kill(rank, Signal::SIGKILL).expect("killed");
    }
    let Some(output) = unless_refused(run.wait_with_output().expect("an end")) else { return };
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("was killed by signal 9 in the middle of the run"), "{said}");
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 0, "no tables");
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn lab__an_interrupt_ends_the_run_and_its_ranks() {
    let directory = directory("interrupt");
    let mut run = in_lab(&directory, &["load", "--hosts", "10"]);
    let ranks = measures(&mut run).map_or_else(Vec::new, |()| children(run.id()));
    // One that is stopped cannot notice anything.
    if let Some(rank) = ranks.first() {
        kill(*rank, Signal::SIGSTOP).expect("stopped");
    }
    kill(Pid::from_raw(run.id() as i32), Signal::SIGINT).expect("signalled");
    let Some(output) = unless_refused(run.wait_with_output().expect("an end")) else { return };
    assert_eq!(output.status.code(), Some(INTERRUPTED), "{}", said(&output));
    // The program reaps its ranks before it ends.
    assert!(ranks.len() == 10 && ranks.iter().all(|rank| kill(*rank, None).is_err()), "{ranks:?}");
    fs::remove_dir_all(&directory).expect("removed");
}

/// A run of GPCNeT's tests on `ranks` ranks of a job, each on a host of its own name, or nothing
/// where that cannot be.
fn across(directory: &Path, ranks: usize, more: &[&str]) -> Option<Child> {
    // A name of its own needs a namespace for names, and that a user who is root in it.
    let named = ["-Ur", "-u", "sh", "-c", "hostname node$PMI_RANK && exec \"$0\" \"$@\""];
    match Command::new("unshare").args(["-Ur", "-u", "sh", "-c", "hostname node"]).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            eprintln!("skipped: no host names of their own for ranks: {}", said(&output).trim());
            return None;
        }
        Err(error) => {
            eprintln!("skipped: unshare cannot be started: {error}");
            return None;
        }
    }
    let mut command = Command::new(LAUNCHER);
    command
        .args(["-n", &ranks.to_string(), "unshare"])
        .args(named)
        .arg(env!("CARGO_BIN_EXE_clearway"));
    command
        .args(["gpcnet"])
        .args(more)
        .args(["--on", "cluster", "--overwrite", "--out"])
        .arg(directory);
    match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            eprintln!("skipped: {LAUNCHER} cannot be started: {error}");
            None
        }
    }
}

#[test]
fn cluster__ranks_of_a_job_print_the_tables_of_the_load_test() {
    let directory = directory("job");
    let Some(run) = across(&directory, 10, &[&["load"][..], &SHORT].concat()) else { return };
    let output = run.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", said(&output));
    let text = fs::read_to_string(directory.join("gpcnet.txt")).expect("what was printed");
    assert!(text.contains("Test with 10 MPI ranks (10 nodes)"), "{text}");
    for name in ["RR Two-sided Lat", "RR Two-sided BW+Sync", "Multiple Allreduce"] {
        let [isolated, congested, factors] = &figures(&text, name)[..] else {
            panic!("{name} in {text}")
        };
        for (&factor, (&isolated, &congested)) in factors.iter().zip(isolated.iter().zip(congested))
        {
            let (worse, better) =
                if name.contains("BW") { (isolated, congested) } else { (congested, isolated) };
            assert!(
                is_ratio(factor, worse, better),
                "{factor}X is not {worse} over {better}: {name} in {text}"
            );
        }
        assert_eq!([isolated.len(), congested.len(), factors.len()], [2; 3], "{name} in {text}");
    }
    assert!(text.contains("job launched by PMI-1; all ranks on one machine"), "{text}");
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn cluster__a_rank_that_is_killed_is_named_and_nothing_is_left() {
    let directory = directory("job-kill");
    let Some(mut run) = across(&directory, 10, &["load"]) else { return };
    let launcher = run.id();
    measures(&mut run).expect("it measures");
    let mut all = descendants(launcher);
    let rank =
        all.iter().rev().find(|(_, line)| line.contains("rank --with-parent")).expect("a rank").0;
    kill(rank, Signal::SIGKILL).expect("killed");
    let output = run.wait_with_output().expect("an end");
    assert!(!output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("was killed by signal 9 in the middle of the run"),
        "{}",
        said(&output)
    );
    let are_gone = comes(|| {
        all.retain(|(pid, line)| command_line(*pid) == *line);
        all.is_empty()
    });
    assert!(are_gone, "left behind: {all:?}");
    fs::remove_dir_all(&directory).expect("removed");
}

/// The arguments of process `pid`; none when it has ended.
fn command_line(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// All processes below `parent`, and their command lines.
fn descendants(parent: u32) -> Vec<(Pid, String)> {
    let mut all = Vec::new();
    for pid in children(parent) {
        all.push((pid, command_line(pid)));
        all.extend(descendants(pid.as_raw() as u32));
    }
    all
}

#[test]
fn sim__load_is_the_usual_suite_and_flags_of_the_congestion_test_are_none_of_this_one() {
    let directory = directory("sim");
    let run = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
        // It writes a report where it runs.
        command.current_dir(&directory);
        command.arg("gpcnet").args(words.split_whitespace()).output().expect("the program")
    };
    let output = run("--fabric edr --nodes 20 --rings 1 --measurements 1");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(figures(&said(&output), "Multiple Allreduce").len(), 3, "{}", said(&output));
    // The hosts that a lab has without a flag are enough.
    let output = run("--on sim --rings 1 --measurements 1");
    assert!(output.status.success(), "{}", said(&output));
    for refused in ["--victims ping", "--draws 2", "--fabric edr --hosts 8", "--overwrite"] {
        assert_eq!(run(refused).status.code(), Some(2), "{refused}");
    }
    let drawn = run("--on cluster --queue fifo");
    assert!(
        said(&drawn).contains("--queue draws a network, and --on cluster measures the one"),
        "{}",
        said(&drawn)
    );
    assert!(directory.join("out/gpcnet/latest/report.json").exists());
    fs::remove_dir_all(&directory).expect("removed");
}
