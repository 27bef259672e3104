//! Joins the job that it was started for, exchanges a few bytes with all ranks, checks them, and leaves.
//!
//! `mpirun -n 4 meet`, `srun -n 4 meet`, or `meet` alone. Each rank prints one line. `meet --length BYTES` exchanges longer
//! values, and `meet --hang` waits after the first exchange until somebody ends the job, for tests of that.

use std::env;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clearway_runtime::launch::{self, Job, LaunchError, Options};

/// What the command line asks for.
#[derive(Debug, Default)]
struct Asked {
    length: usize,
    hangs: bool,
    aborts: bool,
    options: Options,
}

impl Asked {
    fn read() -> Result<Self, String> {
        let mut asked = Self { length: 100, ..Self::default() };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--length" => asked.length = value()?.parse().map_err(|error| format!("--length: {error}"))?,
                "--patience" => {
                    let seconds = value()?.parse().map_err(|error| format!("--patience: {error}"))?;
                    asked.options.patience = Duration::from_secs(seconds);
                }
                "--pmix-library" => asked.options.pmix_library = Some(value()?.into()),
                "--hang" => asked.hangs = true,
                "--abort" => asked.aborts = true,
                _ => return Err(format!("unknown word {word}")),
            }
        }
        Ok(asked)
    }
}

/// What rank `rank` gives to exchange `round`.
fn contribution(rank: u32, round: u32, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u32).wrapping_mul(31).wrapping_add(rank * 7 + round) as u8).collect()
}

/// One exchange, with everything checked.
fn meet(job: &mut Job, round: u32, length: usize) -> Result<(), LaunchError> {
    let all = job.exchange(&contribution(job.rank().0, round, length))?;
    for (rank, got) in (0..).zip(&all) {
        assert!(*got == contribution(rank, round, length), "rank {rank} gave something else");
    }
    Ok(())
}

fn run(asked: &Asked) -> Result<(), LaunchError> {
    let begun = Instant::now();
    let mut job = launch::join(&asked.options)?;
    let joined = begun.elapsed();
    meet(&mut job, 0, asked.length)?;
    let first = begun.elapsed() - joined;
    let mut line = format!(
        "rank {} of {} by {}: joined in {:.1} ms, exchanged in {:.1} ms",
        job.rank(),
        job.size(),
        job.method(),
        joined.as_secs_f64() * 1e3,
        first.as_secs_f64() * 1e3
    );
    if env::var_os("MEET_NOTES").is_some() {
        line.push_str(&format!("; {}", job.notes().join("; ")));
    }
    line.push('\n');
    // One write for a line, so that lines of ranks that share a pipe do not mix.
    let _ = std::io::stdout().write_all(line.as_bytes());
    if asked.hangs {
        std::thread::sleep(Duration::from_secs(120));
    }
    if asked.aborts && job.rank().0 == job.size() - 1 {
        job.abort(3, "the last rank was asked to abort");
    }
    meet(&mut job, 1, asked.length / 3)?;
    job.barrier()?;
    job.finish()
}

fn main() -> ExitCode {
    let result = Asked::read().and_then(|asked| run(&asked).map_err(|error| error.to_string()));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("meet: {sentence}");
            ExitCode::FAILURE
        }
    }
}
