//! Joins the job that it was started for, exchanges a few bytes with all ranks, checks them, and
//! leaves.
//!
//! `mpirun -n 4 meet`, `srun -n 4 meet`, or `meet` alone. Each rank prints one line. `meet --length
//! BYTES` exchanges longer values, `meet --hang` waits after the first exchange until somebody ends
//! the job, and `meet --read` prints its standard input, for tests of that.
//!
//! `meet --hosts FILE [--ssh PROGRAM] [--ssh-argument ARGUMENT]... [--address ADDRESS] [...] --
//! ...` starts itself over ssh on the hosts of a file, with the words behind `--`, and is the last
//! rank itself.
//!
//! `meet --here RANKS [--input] [--program PROGRAM] -- ...` starts itself, or another program, on
//! this host with the words behind `--`, is none of the ranks, and waits for them; with `--input`
//! rank 0 has its standard input.

use std::env;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clearway_runtime::launch::{
    self, HereOptions, Job, JoinMethod, JoinOptions, LaunchError, SshOptions, StandardInput,
    hostfile,
};

/// What the command line asks for.
#[derive(Debug, Default)]
struct MeetArguments {
    length: usize,
    hangs: bool,
    aborts: bool,
    reads: bool,
    options: JoinOptions,
    hosts: Option<PathBuf>,
    ssh: SshOptions,
    here: Option<u32>,
    local: HereOptions,
    program: Option<PathBuf>,
    rest: Vec<String>,
}

impl MeetArguments {
    fn read() -> Result<Self, String> {
        let mut flags = Self { length: 100, ..Self::default() };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--length" => {
                    flags.length = value()?.parse().map_err(|error| format!("--length: {error}"))?
                }
                "--timeout" => {
                    let seconds =
                        value()?.parse().map_err(|error| format!("--timeout: {error}"))?;
                    flags.options.timeout = Duration::from_secs(seconds);
                    flags.ssh.timeout = flags.options.timeout;
                }
                "--pmix-library" => flags.options.pmix_library = Some(value()?.into()),
                "--hosts" => flags.hosts = Some(value()?.into()),
                "--ssh" => flags.ssh.ssh = value()?.into(),
                "--here" => {
                    flags.here = Some(value()?.parse().map_err(|error| format!("--here: {error}"))?)
                }
                "--input" => flags.local.input = StandardInput::ToRank0,
                "--program" => flags.program = Some(value()?.into()),
                "--ssh-argument" => flags.ssh.ssh_arguments.push(value()?.into()),
                "--address" => {
                    let address = value()?.parse().map_err(|error| format!("--address: {error}"));
                    flags.ssh.addresses.push(address?);
                }
                "--" => flags.rest = words.by_ref().collect(),
                "--hang" => flags.hangs = true,
                "--abort" => flags.aborts = true,
                "--read" => flags.reads = true,
                _ => return Err(format!("unknown word {word}")),
            }
        }
        Ok(flags)
    }
}

/// What rank `rank` gives to exchange `round`.
fn contribution(rank: u32, round: u32, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u32).wrapping_mul(31).wrapping_add(rank * 7 + round) as u8).collect()
}

/// One exchange, with everything checked.
fn exchange_round(job: &mut Job, round: u32, length: usize) -> Result<(), LaunchError> {
    let all = job.exchange(&contribution(job.rank().0, round, length))?;
    for (rank, got) in (0..).zip(&all) {
        assert!(*got == contribution(rank, round, length), "rank {rank} gave something else");
    }
    Ok(())
}

fn run(flags: &MeetArguments) -> Result<(), LaunchError> {
    if let Some(ranks) = flags.here {
        let program = flags.program.clone().or_else(|| env::current_exe().ok()).unwrap_or_default();
        let arguments: Vec<OsString> = flags.rest.iter().map(OsString::from).collect();
        let started = launch::start_here(ranks, program.as_os_str(), &arguments, &flags.local)?;
        return started.wait(&mut || ControlFlow::Continue(()));
    }
    let begun = Instant::now();
    let mut job = match &flags.hosts {
        Some(hosts) => start(flags, hosts)?,
        None => launch::join(&flags.options)?,
    };
    let joined = begun.elapsed();
    let is_given = matches!(job.method(), JoinMethod::Ssh | JoinMethod::Here);
    assert_eq!(
        job.secret().is_some(),
        is_given,
        "only a process that starts ranks gives them a secret"
    );
    exchange_round(&mut job, 0, flags.length)?;
    let first = begun.elapsed() - joined;
    let mut line = format!(
        "rank {} of {} by {}, process {}: joined in {:.1} ms, exchanged in {:.1} ms",
        job.rank(),
        job.size(),
        job.method(),
        std::process::id(),
        joined.as_secs_f64() * 1e3,
        first.as_secs_f64() * 1e3
    );
    if env::var_os("MEET_NOTES").is_some() {
        line.push_str(&format!("; {}", job.notes().join("; ")));
    }
    if flags.reads {
        let mut input = String::new();
        let _ = std::io::stdin().read_to_string(&mut input);
        line.push_str(&format!("; standard input has {input:?}"));
    }
    line.push('\n');
    // One write for a line, so that lines of ranks that share a pipe do not mix.
    let _ = std::io::stdout().write_all(line.as_bytes());
    if flags.hangs {
        std::thread::sleep(Duration::from_secs(120));
    }
    if flags.aborts {
        // When all have said their line.
        job.barrier()?;
        if job.rank().0 == job.size() - 1 {
            job.abort(3, "the last rank was asked to abort");
        }
    }
    exchange_round(&mut job, 1, flags.length / 3)?;
    job.barrier()?;
    job.finish()
}

/// Starts this program over ssh.
fn start(flags: &MeetArguments, hosts: &Path) -> Result<Job, LaunchError> {
    let program = env::current_exe().unwrap_or_default().to_string_lossy().into_owned();
    let hosts = hostfile::read(hosts)?;
    launch::start_over_ssh(&hosts, &program, &flags.rest, &flags.ssh, &mut || {
        ControlFlow::Continue(())
    })
}

fn main() -> ExitCode {
    let result = MeetArguments::read().map_err(|wrong| (wrong, 1));
    let result = result
        .and_then(|flags| run(&flags).map_err(|error| (error.to_string(), error.exit_code())));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((sentence, code)) => {
            eprintln!("meet: {sentence}");
            ExitCode::from(u8::try_from(code).unwrap_or(1))
        }
    }
}
