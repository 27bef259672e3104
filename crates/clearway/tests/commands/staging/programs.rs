//! Programs on a mount: checkpoints whose writers and mounts are killed at each step, SQLite while its
//! server is killed, and HDF5 files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};

use super::drained::{assert_same, count};
use super::served::ServedPlace;
use super::{PROGRAM, StagingPlace, error_of, staged};
use crate::waiting::comes;

const CHECKPOINTS: &str = include_str!("checkpoints.py");
const SQLITE_WRITER: &str = include_str!("sqlite_writer.py");
const HDF5_FILE: &str = include_str!("hdf5_file.py");
/// Writers of one database.
const WRITERS: u32 = 3;
/// Asks a database for its health and its rows.
const SQLITE_CHECK: &str = "
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], uri=True)
print(database.execute('pragma integrity_check').fetchone()[0])
for row in database.execute('select writer, number from t where length(bytes) = 3000'):
    print(*row)
";

/// Starts a script with pipes; `None`, and says why, on a machine without Python.
fn python(script: &str, arguments: &[&str]) -> Option<Child> {
    let mut command = Command::new("python3");
    command.args(["-c", script]).args(arguments);
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    started.inspect_err(|why| eprintln!("skipped: python3 does not start: {why}")).ok()
}

/// A program that saves checkpoints into a mount.
struct Saver {
    process: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// Files of one checkpoint.
    files: usize,
}

/// How a save ended.
#[derive(Debug, PartialEq, Eq)]
enum SaveEnd {
    /// It passed all points and said that it saved.
    Saved,
    /// It was killed at a point.
    Killed { at: String },
}

/// What dies at a point of a save.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Program,
    Mount,
}

impl Saver {
    fn start(kind: &str, place: &StagingPlace) -> Option<Self> {
        let root = place.path("mnt").display().to_string();
        let mut process = python(CHECKPOINTS, &[kind, &root, PROGRAM])?;
        let input = process.stdin.take().expect("piped");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut saver = Self { process, input, lines, files: 0 };
        let first = saver.line();
        if let Some(missing) = first.strip_prefix("missing ") {
            eprintln!("skipped: {missing}");
            return None;
        }
        let files = first.strip_prefix("ready ").and_then(|files| files.parse().ok());
        saver.files = files.expect("a program that is ready");
        Some(saver)
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a line").expect("text")
    }

    fn say(&mut self, what: &str) {
        self.input.write_all(what.as_bytes()).expect("a program that runs");
    }

    /// Saves a checkpoint, and kills the victim at a point.
    fn save(
        &mut self,
        step: u32,
        kill_at: u32,
        victim: Victim,
        place: &mut StagingPlace,
    ) -> SaveEnd {
        self.say(&format!("save {step}\n"));
        let (mut points, mut end) = (0, None);
        loop {
            let line = self.line();
            if line == "ended" {
                return end.expect("a save that ended without a kill");
            } else if line == format!("saved {step}") {
                end = Some(SaveEnd::Saved);
                continue;
            }
            // Others of its processes may come to a point before they die.
            let at = line.strip_prefix("at ").expect("a point").to_owned();
            points += 1;
            if points == kill_at {
                if let Victim::Mount = victim {
                    place.kill();
                }
                self.say("k");
                end = Some(SaveEnd::Killed { at });
            } else if points < kill_at {
                self.say("g");
            }
        }
    }

    /// Loads the newest checkpoint of a directory, and returns which it is.
    fn load(&mut self, directory: &Path) -> u32 {
        self.say(&format!("load {}\n", directory.display()));
        let line = self.line();
        line.strip_prefix("loaded ").and_then(|step| step.parse().ok()).expect("a checkpoint")
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns whether `stage publish` had returned.
fn is_published(end: &SaveEnd) -> bool {
    match end {
        SaveEnd::Saved => true,
        SaveEnd::Killed { at } => {
            ["published", "written", "renamed", "stored", "removed"].contains(&at.as_str())
        }
    }
}

/// Saves checkpoints, each killed one point later than that before, until one is not killed. At any
/// time the store has the last one that was published, whole.
fn kill_at_each_point(kind: &str, victim: Victim) {
    let Some(mut place) = StagingPlace::new() else { return };
    let Some(mut saver) = Saver::start(kind, &place) else { return };
    if !place.mount(&[]) {
        return;
    }
    let store = place.path("store");
    assert_eq!(saver.save(0, u32::MAX, victim, &mut place), SaveEnd::Saved);
    let (mut last, mut stored) = (0, 0);
    for kill_at in 1.. {
        // A job that starts again saves the step after the last one that it finds.
        let step = last + 1;
        let end = saver.save(step, kill_at, victim, &mut place);
        let found = saver.load(&store);
        assert!((stored..=step).contains(&found), "{found} after {stored}: {end:?}");
        let directory = store.join(format!("step.{step}"));
        if is_published(&end) {
            assert_eq!(count(&directory), saver.files, "{end:?}");
        }
        if end == SaveEnd::Saved {
            assert_eq!(found, step);
            assert!(kill_at > 10, "{kill_at} points");
            break;
        }
        if let Victim::Mount = victim {
            assert!(place.mount(&[]));
        }
        // A set that a kill found under way appears as a whole, or not at all.
        fs::write(place.on_mount("after"), kill_at.to_le_bytes()).expect("written");
        staged(&["wait", "--until", "stored"], &[&place.on_mount("after")]);
        let is_whole = || [0, saver.files].contains(&count(&directory));
        assert!(comes(is_whole), "{end:?}: {} files", count(&directory));
        stored = saver.load(&store);
        last = saver.load(&place.path("mnt"));
        assert!((stored..=step).contains(&last), "{last} after {stored}: {end:?}");
    }
    place.umount();
}

#[test]
fn programs__a_checkpoint_of_ranks_is_whole_wherever_its_program_is_killed() {
    kill_at_each_point("scr", Victim::Program);
}

#[test]
fn programs__a_checkpoint_of_ranks_is_whole_wherever_its_mount_is_killed() {
    kill_at_each_point("scr", Victim::Mount);
}

#[test]
fn programs__a_pytorch_checkpoint_loads_wherever_its_program_is_killed() {
    kill_at_each_point("dcp", Victim::Program);
}

#[test]
fn programs__a_pytorch_checkpoint_loads_wherever_its_mount_is_killed() {
    kill_at_each_point("dcp", Victim::Mount);
}

/// Returns the rows of a database, each as a writer and a number; it must be intact.
fn rows(database: &Path, mode: &str) -> BTreeSet<String> {
    let mut command = Command::new("python3");
    command.args(["-c", SQLITE_CHECK]).arg(format!("file:{}?{mode}", database.display()));
    let output = command.output().expect("Python");
    assert!(output.status.success(), "{}", error_of(&output));
    let said = String::from_utf8(output.stdout).expect("text");
    let mut lines = said.lines().map(str::to_owned);
    assert_eq!(lines.next().as_deref(), Some("ok"));
    lines.collect()
}

/// Starts a writer of a database, whose commits `commits` gets.
fn start_writer(
    database: &Path,
    mode: &str,
    writer: u32,
    commits: &Sender<String>,
) -> Option<Child> {
    let path = database.display().to_string();
    let mut process = python(SQLITE_WRITER, &[&path, mode, &writer.to_string()])?;
    let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let commits = commits.clone();
    std::thread::spawn(move || {
        let rows = lines.map_while(Result::ok).map(|number| format!("{writer} {number}"));
        rows.for_each(|row| drop(commits.send(row)));
    });
    Some(process)
}

/// Writes a database from several processes while its server is killed, and looks for each row whose
/// commit returned.
fn write_database(mode: &str) {
    let Some(mut served) = ServedPlace::new() else { return };
    if !served.mount("mnt", "") {
        return;
    }
    let database = served.place.on_mount("database");
    let (commits, committed) = channel();
    let start = |writer| start_writer(&database, mode, writer, &commits);
    let Some(first) = start(0) else { return };
    // SQLite does not wait for other writers while it sets the mode.
    let mut acknowledged = vec![committed.recv().expect("a commit")];
    let mut writers = vec![first];
    writers.extend((1..WRITERS).filter_map(start));
    drop(commits);
    for round in 1..6 {
        acknowledged.extend((0..3 * round).map(|_| committed.recv().expect("a commit")));
        served.kill();
        served.start();
    }
    // SQLite moves its log into the database when the last program closes it, but not when two do at
    // once.
    for writer in &mut writers {
        drop(writer.stdin.take());
        assert!(writer.wait().expect("an end").success());
    }
    acknowledged.extend(committed.iter());
    let acknowledged: BTreeSet<String> = acknowledged.into_iter().collect();
    assert!(acknowledged.is_subset(&rows(&database, "mode=ro")), "a commit is lost");
    // All programs have closed the database, so its file has everything.
    staged(&["wait", "--until", "stored"], &[&served.place.path("mnt")]);
    let stored = served.place.path("store/database");
    assert!(acknowledged.is_subset(&rows(&stored, "immutable=1")), "the store lacks a commit");
    served.umount("mnt");
    served.kill();
    served.start();
    assert!(served.mount("other", ""));
    let other = served.place.path("other/database");
    assert!(acknowledged.is_subset(&rows(&other, "mode=ro")), "the next mount lacks a commit");
    served.umount("other");
}

#[test]
fn programs__sqlite_with_a_write_ahead_log_loses_no_commit_when_its_server_is_killed() {
    write_database("wal");
}

#[test]
fn programs__sqlite_with_a_rollback_journal_loses_no_commit_when_its_server_is_killed() {
    write_database("delete");
}

#[test]
fn programs__an_hdf5_file_has_readers_while_it_is_written_and_arrives_in_the_store() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&[]) {
        return;
    }
    let file = place.on_mount("file.h5").display().to_string();
    let Some(process) = python(HDF5_FILE, &[&file]) else { return };
    let output = process.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(missing) = said.strip_prefix("missing ") {
        eprintln!("skipped: {}", missing.trim_end());
    } else {
        assert_eq!(said, "written\n");
        assert_same(&place);
    }
    place.umount();
}
