//! A directory with a program and a scenario of its own, by which the processes of a run are found;
//! gone at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::unistd::Pid;

use crate::processes::{self, FoundProcess};
use crate::waiting::{has_bytes, wait_until};

/// Two phases of the shortest windows that can be judged.
pub(crate) const SHORT: &str = "short.toml";
/// The same with windows that are still open when the run is ended.
pub(crate) const LONG: &str = "long.toml";

/// What a shell says that stands in for a rank of Slurm.
const STAND_IN: &str = "exec scancel";

/// Where a test's runs happen.
pub(crate) struct ClusterDirectory {
    directory: PathBuf,
}

impl ClusterDirectory {
    pub(crate) fn new(name: &str) -> Self {
        // Tests of one name run in threads of one process.
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
        let directory =
            std::env::temp_dir().join(format!("clearway-{name}-{}-{thread}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join(SHORT), include_str!("../fixtures/short.toml"))
            .expect("a scenario");
        fs::write(directory.join(LONG), include_str!("../fixtures/long.toml")).expect("a scenario");
        // Not in this process: a child that another thread forks meanwhile would hold the copy open
        // for writing, and the kernel executes no such file.
        let mut copy = Command::new("cp");
        let copied = copy.arg(env!("CARGO_BIN_EXE_clearway")).arg(directory.join("clearway"));
        assert!(copied.status().expect("cp").success(), "no copy of the program");
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Processes of the test's own program, and shells that stand in for its ranks.
    fn processes(&self) -> Vec<FoundProcess> {
        let program = self.path("clearway").display().to_string();
        let is_one = |line: &str| {
            line.starts_with(&program) || line.contains(STAND_IN) && line.contains(&program)
        };
        processes::all().filter(|process| is_one(&process.line)).collect()
    }

    /// Waits until `count` processes have `word` in their command lines.
    pub(crate) fn wait_for(&self, word: &str, count: usize) -> Vec<Pid> {
        self.wait(count, |process| process.line.contains(word))
    }

    /// Waits for the process that a launcher started as `rank`.
    pub(crate) fn wait_for_rank(&self, rank: u32) -> Pid {
        self.wait_for_one(" run ", rank)
    }

    /// Waits until the last of three builders has written something, and for the process that a
    /// launcher started as `rank`.
    pub(crate) fn wait_for_building(&self, rank: u32) -> Pid {
        let written = self.path("ts_2.tsa.unfinished");
        wait_until("the last builder writes", || has_bytes(&written, 100_000));
        self.wait_for_one(" timeslice ", rank)
    }

    /// Waits for the shell that stands in for `rank`.
    pub(crate) fn wait_for_stand_in(&self, rank: u32) -> Pid {
        self.wait_for_one(STAND_IN, rank)
    }

    /// Waits for the process with `word` in its command line and the environment of `rank`.
    pub(crate) fn wait_for_one(&self, word: &str, rank: u32) -> Pid {
        let names = ["SLURM_PROCID", "PMIX_RANK", "PMI_RANK"].map(|name| format!("{name}={rank}"));
        let is_rank = |process: &FoundProcess| {
            let environment =
                fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|pair| names.iter().any(|name| name.as_bytes() == pair))
        };
        self.wait(1, |process| process.line.contains(word) && is_rank(process))[0]
    }

    fn wait(&self, count: usize, is_one: impl Fn(&FoundProcess) -> bool) -> Vec<Pid> {
        let look = || self.processes().into_iter().filter(&is_one).collect();
        let found = processes::wait_until("the ranks start", look, |found| found.len() == count);
        found.into_iter().map(|process| process.pid).collect()
    }

    pub(crate) fn expect_nothing_left(&self) {
        processes::wait_until("nothing is left", || self.processes(), <[FoundProcess]>::is_empty);
    }
}

impl Drop for ClusterDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// All that a run said.
pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
