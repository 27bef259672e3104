//! `cargo xtask crash`: what a mount promised, after every loss of power that a disk allows.
//!
//! # Model
//! Real programs write on a real mount, whose log lies on a disk of ours that remembers which changes
//! were synced (`disk`, `server`, `writer`, `session`). Then the loss of power is tried at each
//! position of what the disk was asked, with all, nothing and drawn parts of the unsynced changes
//! surviving, and each state is opened by the recovery of the program (`states`). What is found must lie
//! between what was acknowledged and what was asked for. Faults that are planted into the journal must
//! be found (`faults`).
//!
//! # Not here
//! The same for the engine on a simulated disk: `crates/clearway-proto/tests/engines/staging`.

mod disk;
mod faults;
mod server;
mod session;
mod states;
mod tree;
mod writer;

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::disk::Survival;
use self::server::ForgetfulDisk;
use self::session::{CrashPrograms, TrialLength};
use self::states::{FirstState, Recoverer, StateChoice, StateCounts};
use crate::swarm::TrialArguments;

/// Trials without `--seeds`: some minutes on two processors.
const SEEDS: u64 = 30;
/// Drawn states at each position.
const DRAWN: u64 = 2;

fn parse(arguments: &[String]) -> Result<TrialArguments> {
    let usual = TrialArguments { first: 0, seeds: SEEDS, jobs: 4, minutes: 60 };
    usual.parse("crash", 64, arguments)
}

/// Runs `crash [--seeds N] [--jobs N] [--minutes N] [--first SEED]`.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let options = parse(arguments)?;
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: crash needs /dev/fuse");
        return Ok(ExitCode::SUCCESS);
    }
    let programs = CrashPrograms {
        clearway: crate::bench::build_program()?,
        recover: crate::bench::build_example("clearway-fs", "recover")?,
    };
    enumerate(&programs, &options)?;
    let begun = Instant::now();
    let missed = faults::find_all(&programs, options.first, options.jobs)?;
    println!("planted faults: {:.1} s", begun.elapsed().as_secs_f64());
    ensure!(missed.is_empty(), "planted faults that were not found: {}", missed.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// Runs trials and looks at all their states.
fn enumerate(programs: &CrashPrograms, options: &TrialArguments) -> Result<()> {
    let (begun, limit) = (Instant::now(), Duration::from_secs(options.minutes * 60));
    let next = AtomicU64::new(options.first);
    let total = Mutex::new((StateCounts::default(), 0_u64));
    let end = options.first.saturating_add(options.seeds);
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..options.jobs)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut recoverer = Recoverer::new(&programs.recover);
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end || begun.elapsed() > limit {
                            return Ok(());
                        }
                        let length =
                            if seed % 5 == 4 { TrialLength::Filling } else { TrialLength::Usual };
                        let counts = trial(programs, seed, length, &mut recoverer);
                        let counts = counts.with_context(|| format!("seed {seed}"));
                        // The other jobs need not begin another one.
                        let counts = counts.inspect_err(|why| {
                            eprintln!("{why:#}");
                            next.store(end, Ordering::Relaxed);
                        })?;
                        let StateCounts { states, opened } = counts;
                        println!("seed {seed}, {length:?}: {states} states, {opened} opened");
                        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                        total.0.states += counts.states;
                        total.0.opened += counts.opened;
                        total.1 += 1;
                    }
                })
            })
            .collect();
        jobs.into_iter()
            .try_for_each(|job| job.join().unwrap_or_else(|_| bail!("a job ended by a fault")))
    })?;
    let (counts, trials) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = begun.elapsed().as_secs_f64();
    let StateCounts { states, opened } = counts;
    println!("{trials} trials, {states} states, {opened} of them different: {seconds:.1} s");
    Ok(())
}

/// Runs a trial and looks at its states.
///
/// # Errors
/// The first thing that is wrong.
fn trial(
    programs: &CrashPrograms,
    seed: u64,
    length: TrialLength,
    recoverer: &mut Recoverer,
) -> Result<StateCounts> {
    let records = session::run(programs, seed, length)?;
    let mut counts = StateCounts::default();
    for (life, record) in records.iter().enumerate() {
        let choice = StateChoice { begins: FirstState::PowerOn, drawn: DRAWN, stride: 1, seed };
        if let Some(fault) = states::check(record, choice, recoverer, &mut counts)? {
            let directory = format!("out/crash/seed-{seed}");
            fault.keep(Path::new(&directory)).with_context(|| directory.clone())?;
            let (position, survival) = (fault.position, fault.survival);
            bail!(
                "life {life}, power lost at {position}, survives {survival:?}: {}; the log is in \
                 {directory}",
                fault.why
            );
        }
    }
    Ok(counts)
}

/// Runs `forgetful-disk DIR`: a disk for experiments by hand.
pub(crate) fn run_disk(arguments: &[String]) -> Result<ExitCode> {
    let [directory] = arguments else { bail!("forgetful-disk takes the directory to mount on") };
    let disk = ForgetfulDisk::new(&[]);
    let mounted = disk.mount(Path::new(directory)).context("cannot mount the disk")?;
    println!(
        "mounted; `lose` takes what is not synced, `lose SEED` a drawn part of it, `count` counts \
         changes; the end of the input unmounts"
    );
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.as_slice(), words.get(1).map(|seed| seed.parse())) {
            (["lose"], None) => drop(disk.lose_power(Survival::Nothing)),
            (["lose", _], Some(Ok(seed))) => drop(disk.lose_power(Survival::Drawn(seed))),
            (["count"], None) => {}
            _ => {
                println!("not understood: {line}");
                continue;
            }
        }
        println!("done; {} changes since power came", disk.position());
        std::io::stdout().flush()?;
    }
    mounted.unmount().context("cannot unmount the disk; close what is open there")?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the programs that were built with this test; `None`, and says why, where a trial
    /// cannot run.
    fn programs() -> Option<CrashPrograms> {
        if let Err(why) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            eprintln!("skipped: /dev/fuse cannot be opened: {why}");
            return None;
        }
        let own = std::env::current_exe().expect("a program");
        let built = own.ancestors().nth(2).expect("the directory of the build");
        let (clearway, recover) = (built.join("clearway"), built.join("examples/recover"));
        if let Some(missing) = [&clearway, &recover].into_iter().find(|program| !program.exists()) {
            eprintln!("skipped: {} is not built", missing.display());
            return None;
        }
        Some(CrashPrograms { clearway, recover })
    }

    #[test]
    fn parse__defaults_and_mistakes() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = parse(&words("--seeds 7 --first 3")).unwrap();
        assert_eq!(options, TrialArguments { first: 3, seeds: 7, jobs: 4, minutes: 60 });
        assert!(parse(&words("--seed 7")).unwrap_err().to_string().contains("not `--seed`"));
        assert!(parse(&words("--jobs 0")).is_err());
    }

    #[test]
    fn crash__what_was_acknowledged_survives_each_loss_of_power_and_faults_are_found() {
        let Some(programs) = programs() else { return };
        let records = match session::run(&programs, 1, TrialLength::Short) {
            Err(why) if format!("{why:#}").contains("Operation not permitted") => {
                eprintln!("skipped: {why:#}");
                return;
            }
            records => records.expect("a trial"),
        };
        let (mut recoverer, mut counts) =
            (Recoverer::new(&programs.recover), StateCounts::default());
        for record in &records {
            let choice = StateChoice { begins: FirstState::Mounted, drawn: 1, stride: 5, seed: 1 };
            let fault = states::check(record, choice, &mut recoverer, &mut counts).expect("states");
            assert!(fault.is_none(), "{fault:?}");
        }
        assert!(counts.opened > 10, "{counts:?}");
        faults::assert_some_are_found(&records, &mut recoverer);
    }
}
