//! A directory with a program and a scenario of its own, by which the processes of a run are found; gone at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

/// The longest that anything here may take on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);
/// Two phases of the shortest windows that can be judged.
const SCENARIO: &str = include_str!("../fixtures/short.toml");

/// A process of a run.
struct Process {
    pid: Pid,
    line: String,
    environment: String,
}

/// Where a test's runs happen.
pub(crate) struct Ground {
    directory: PathBuf,
}

impl Ground {
    pub(crate) fn new(name: &str) -> Self {
        // Tests of one name run in threads of one process.
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
        let directory = std::env::temp_dir().join(format!("clearway-{name}-{}-{thread}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join("short.toml"), SCENARIO).expect("a scenario");
        fs::copy(env!("CARGO_BIN_EXE_clearway"), directory.join("clearway")).expect("a copy of the program");
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Processes of the test's own program.
    fn processes(&self) -> Vec<Process> {
        let program = self.path("clearway").display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("processes").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let read = |name: &str| {
                let bytes = fs::read(entry.path().join(name)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            let line = read("cmdline").replace('\0', " ");
            if line.starts_with(&program) {
                found.push(Process { pid: Pid::from_raw(pid), line, environment: read("environ") });
            }
        }
        found
    }

    /// Waits until `count` processes have `word` in their command lines.
    pub(crate) fn wait_for(&self, word: &str, count: usize) -> Vec<Pid> {
        self.wait(count, |process| process.line.contains(word))
    }

    /// Waits for the process that a launcher started as `rank`.
    pub(crate) fn wait_for_rank(&self, rank: u32) -> Pid {
        let names = ["SLURM_PROCID", "PMIX_RANK", "PMI_RANK"].map(|name| format!("{name}={rank}"));
        let is_rank = |environment: &str| environment.split('\0').any(|pair| names.iter().any(|name| name == pair));
        self.wait(1, |process| process.line.contains(" run ") && is_rank(&process.environment))[0]
    }

    fn wait(&self, count: usize, is_one: impl Fn(&Process) -> bool) -> Vec<Pid> {
        let until = Instant::now() + DEADLINE;
        loop {
            let found: Vec<Pid> = self.processes().into_iter().filter(&is_one).map(|process| process.pid).collect();
            if found.len() == count {
                return found;
            }
            assert!(Instant::now() < until, "the ranks do not start: {:?}", self.lines());
            std::thread::yield_now();
        }
    }

    pub(crate) fn expect_nothing_left(&self) {
        let until = Instant::now() + DEADLINE;
        while !self.processes().is_empty() {
            assert!(Instant::now() < until, "left behind: {:?}", self.lines());
            std::thread::yield_now();
        }
    }

    fn lines(&self) -> Vec<String> {
        self.processes().into_iter().map(|process| process.line).collect()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// All that a run said.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
