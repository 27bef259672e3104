//! `cargo xtask swarm`: thousands of small simulated networks under random faults, with every
//! checker riding along.
//!
//! # Model
//! Each job is a process of `crates/clearway-sim/examples/swarm.rs` with every n-th seed. A
//! violation ends its job, which shrinks the trial and writes it to a file; one command then
//! replays it. What was reached under which fault is added up over all jobs; a pair that must
//! sometimes be reached and never was fails the swarm, if it was long enough to tell.
//!
//! `swarm casts` casts files between processes of this machine under drawn mishaps instead
//! (`casts`); `swarm` itself does so for a while at its end.
//!
//! Before all it runs the tests that development builds skip because `cargo test` has no time for
//! them: explorations in full, and many seeds.
//!
//! # Not here
//! Trials, checkers and shrinking: `clearway_sim::check`.

mod casts;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

pub(crate) use self::casts::Draws;

/// Seeds without `--seeds`: a few minutes on one processor.
const SEEDS: u64 = 20_000;
/// The rarest pair that must be reached was reached in one of 1,300 runs, so ten thousand miss it
/// once in 2,000 swarms.
const SEEDS_THAT_TELL: u64 = 10_000;

/// Casts with mishaps behind everything else: some minutes.
const CASTS: u64 = 60;

/// Which trials a command runs, and with how many jobs for how long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TrialArguments {
    pub(crate) first: u64,
    pub(crate) seeds: u64,
    pub(crate) jobs: u64,
    pub(crate) minutes: u64,
}

impl TrialArguments {
    /// Reads the arguments of `command`, which runs at most `jobs_max` jobs; they replace what `self`
    /// has.
    pub(crate) fn parse(
        mut self,
        command: &str,
        jobs_max: u64,
        arguments: &[String],
    ) -> Result<Self> {
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let slot = match argument.as_str() {
                "--first" => &mut self.first,
                "--seeds" => &mut self.seeds,
                "--jobs" => &mut self.jobs,
                "--minutes" => &mut self.minutes,
                other => {
                    bail!("{command} knows --seeds, --jobs, --minutes and --first, not `{other}`")
                }
            };
            let number = arguments.next().and_then(|text| text.parse().ok());
            *slot = number.with_context(|| format!("{argument} takes a whole number"))?;
        }
        ensure!((1..=jobs_max).contains(&self.jobs), "--jobs takes a number from 1 to {jobs_max}");
        Ok(self)
    }
}

/// What the jobs said, added up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    done: u64,
    violations: Vec<String>,
    files: Vec<String>,
    runs: BTreeMap<String, u64>,
    /// By kind of fault, then by state.
    states: BTreeMap<String, BTreeMap<String, u64>>,
    sometimes: Vec<(String, String)>,
}

/// Runs `swarm [casts] [--seeds N] [--jobs N] [--minutes N] [--first SEED]`.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    if let Some(("casts", arguments)) =
        arguments.split_first().map(|(first, rest)| (first.as_str(), rest))
    {
        let TrialArguments { first, seeds, minutes, .. } = parse(arguments)?;
        casts::run(
            &crate::bench::build_program()?,
            first,
            seeds,
            Duration::from_secs(minutes * 60),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = parse(arguments)?;
    if !explore()? {
        return Ok(ExitCode::FAILURE);
    }
    let program = crate::bench::build_example("clearway-sim", "swarm")?;
    let out = PathBuf::from("out/swarm");
    std::fs::create_dir_all(&out).with_context(|| format!("{}", out.display()))?;
    let begun = std::time::Instant::now();
    let jobs: Vec<Child> =
        (0..options.jobs).map(|job| start(&program, &options, job, &out)).collect::<Result<_>>()?;
    let mut findings = Findings::default();
    for job in jobs {
        let output = job.wait_with_output().context("a job")?;
        ensure!(
            output.status.success(),
            "a job ended with {}: its last words are above",
            output.status
        );
        findings.add(&String::from_utf8_lossy(&output.stdout));
    }
    let seconds = begun.elapsed().as_secs_f64();
    print!("{}", findings.table());
    println!(
        "{} seeds in {seconds:.1} s: {:.0} a second",
        findings.done,
        findings.done as f64 / seconds
    );
    casts::run(
        &crate::bench::build_program()?,
        options.first,
        CASTS,
        Duration::from_secs(options.minutes * 60),
    )?;
    Ok(findings.verdict())
}

/// Runs the tests of the engines and the fabric in the release build, which skips none for its
/// length, random OpenSHMEM programs, the examples of queues and the accounts of timeslice building
/// with many seeds; whether all hold.
fn explore() -> Result<bool> {
    let engines = ["--lib", "--package", "clearway-proto", "--package", "clearway-sim"];
    let programs_of_engines = ["--package", "clearway-proto", "--test", "engines"];
    let programs = ["--package", "clearway-shmem", "--test", "pes", "--", "random", "--seeds=1000"];
    let queues = ["--package", "clearway-shmem", "--test", "programs", "--", "examples::"];
    let ledgers = ["--package", "clearway", "--bin", "clearway", "timeslice::losses::swarm"];
    Ok(test(&engines)?
        && test(&programs_of_engines)?
        && test(&programs)?
        && test(&queues)?
        && test(&ledgers)?)
}

fn test(which: &[&str]) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--release"]).args(which);
    Ok(command.status().context("cargo")?.success())
}

fn parse(arguments: &[String]) -> Result<TrialArguments> {
    let usual = TrialArguments { first: 0, seeds: SEEDS, jobs: 2, minutes: 60 };
    usual.parse("swarm", 1024, arguments)
}

fn start(program: &Path, options: &TrialArguments, job: u64, out: &Path) -> Result<Child> {
    let file = out.join(format!("FAILURE-{job}.toml"));
    // A file of an earlier swarm would look like a failure of this one.
    let _ = std::fs::remove_file(&file);
    let count = options.seeds / options.jobs + u64::from(job < options.seeds % options.jobs);
    let numbers = [options.first + job, options.jobs, count, options.minutes * 60];
    let mut command = Command::new(program);
    command.args(numbers.map(|number| number.to_string())).arg(commit()).arg(file);
    command.stdout(Stdio::piped()).spawn().with_context(|| format!("{}", program.display()))
}

/// The commit that is checked out, for people who read a failure.
fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

impl Findings {
    /// Takes over what one job printed.
    fn add(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["done", count] => self.done += count.parse().unwrap_or(0),
                ["run", kind, count] => {
                    *self.runs.entry((*kind).to_owned()).or_default() += count.parse().unwrap_or(0)
                }
                ["state", kind, state, count] => {
                    let states = self.states.entry((*kind).to_owned()).or_default();
                    *states.entry((*state).to_owned()).or_default() += count.parse().unwrap_or(0);
                }
                ["sometimes", kind, state] => {
                    let pair = ((*kind).to_owned(), (*state).to_owned());
                    if !self.sometimes.contains(&pair) {
                        self.sometimes.push(pair);
                    }
                }
                ["written", file] => self.files.push((*file).to_owned()),
                ["violated" | "shrunk", ..] => self.violations.push(line.to_owned()),
                _ => {}
            }
        }
    }

    /// Runs in which a state (row) was reached under a kind of fault (line), most frequent first.
    fn table(&self) -> String {
        let mut text = String::new();
        for (kind, runs) in &self.runs {
            let states = self.states.get(kind).into_iter().flatten();
            let states: Vec<String> =
                states.map(|(state, count)| format!("{state} {count}")).collect();
            text.push_str(&format!("{kind:<18}{runs:>7}  {}\n", states.join(", ")));
        }
        text
    }

    /// Pairs that should have been reached and were not.
    fn never(&self) -> Vec<String> {
        let reached = |kind: &str, state: &str| {
            self.states.get(kind).is_some_and(|states| states.contains_key(state))
        };
        let never = self.sometimes.iter().filter(|(kind, state)| !reached(kind, state));
        never.map(|(kind, state)| format!("{state} under {kind}")).collect()
    }

    fn verdict(&self) -> ExitCode {
        self.violations.iter().for_each(|line| println!("{line}"));
        for file in &self.files {
            println!("replay it: cargo run --release -- sim replay {file}");
        }
        let never = self.never();
        if !never.is_empty() {
            println!("never reached: {}", never.join(", "));
        }
        let reported = self.done >= SEEDS_THAT_TELL && !never.is_empty();
        if self.violations.is_empty() && !reported { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__defaults_and_mistakes() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = parse(&words("--seeds 7 --jobs 3")).unwrap();
        assert_eq!(options, TrialArguments { first: 0, seeds: 7, jobs: 3, minutes: 60 });
        assert!(parse(&words("--seed 7")).unwrap_err().to_string().contains("not `--seed`"));
        assert!(parse(&words("--jobs 0")).is_err());
    }

    #[test]
    fn findings__jobs_add_up_and_what_was_never_reached_is_named() {
        let mut findings = Findings::default();
        findings.add("done 6000\nrun loss 2\nstate loss Sent 2\nsometimes loss Sent\nsometimes crash Restarted\n");
        findings.add("done 4000\nrun loss 1\nstate loss Sent 1\nsometimes loss Sent\n");
        assert_eq!(
            (findings.done, findings.runs["loss"], findings.states["loss"]["Sent"]),
            (10_000, 3, 3)
        );
        assert_eq!(findings.never(), ["Restarted under crash"]);
        assert_eq!(findings.verdict(), ExitCode::FAILURE);
        findings.add("state crash Restarted 1\n");
        assert_eq!(findings.verdict(), ExitCode::SUCCESS);
        findings.add("violated seed 4: Leak at 3 us: lane 0\nwritten out/FAILURE-0.toml\n");
        assert_eq!(findings.verdict(), ExitCode::FAILURE);
    }
}
