//! What a coordinator tells of its run while it lasts, and who looks at it.
//!
//! # Model
//! A *board* is a file of one line of JSON that the coordinator replaces whole once a second, in a
//! directory that belongs to its user alone. It is removed at the end; that of a coordinator that
//! was killed counts for nothing, since its process is gone.
//!
//! # Invariants
//! I1. A run does not depend on its board: where none can be written there is none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_lab::permission::outer_uid;
use clearway_proto::base::{Nanos, Rank};
use clearway_proto::stats::Histogram;
use clearway_proto::timeslice::{Cause, Policy, TimesliceRecord};
use clearway_runtime::launch::{ExitReason, quoted, ssh_command};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use super::ledger::SourceCounts;
use super::losses::BuilderWait;
use super::messages::TimesliceProgress;
use super::metrics::TimesliceMetrics;
use super::page::millis;
use crate::run::exit::Exit;
use crate::run::job::host_name;
use crate::run::notice;

/// How often a board is renewed.
const EVERY: Duration = Duration::from_secs(1);
/// How often a watcher looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a host may take to answer ssh, which may have to ask a name server or two.
const SSH_TIMEOUT: Duration = Duration::from_secs(30);
/// What the file of a board is called, before the name of its run.
const KIND: &str = "timeslice";
/// A rank that did less than this part of what the median did is a straggler.
const STRAGGLER: f64 = 0.9;

/// What stands on a board.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct BoardState {
    /// The coordinator's process.
    process: u32,
    policy: String,
    /// Since the run began.
    seconds: f64,
    /// Of all builders, in bytes a second.
    rate: f64,
    timeslices: u64,
    /// Absent where no timeslice was complete.
    completion_ms_p50: Option<f64>,
    completion_ms_p99: Option<f64>,
    ranks: Vec<RankStatus>,
    /// Ranks that the run goes on without, and how each ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    out: Vec<String>,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RankStatus {
    name: String,
    /// Contributions in a second: sent by an input, received by a builder.
    contributions: f64,
    /// Builder: how full its rings are at most, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fill: Option<f64>,
    /// Whom or what it waits for most of the time, and in how many percent of it where that is
    /// known.
    waits: String,
}

/// The coordinator's side.
pub(super) struct StatusBoard {
    path: Option<PathBuf>,
    names: Vec<String>,
    policy: Policy,
    begun: Instant,
    renewed: Instant,
    /// What was counted since it was renewed.
    live: BTreeMap<Rank, RankActivity>,
    completion: Histogram,
    /// What was counted since the first run began.
    sums: TimesliceMetrics,
    /// Timeslices that were complete when this run began.
    timeslices_before: u64,
    out: BTreeMap<Rank, String>,
}

/// What one rank did since the board was renewed.
#[derive(Clone, Debug, Default)]
struct RankActivity {
    contributions: u64,
    bytes: u64,
    /// In how long.
    span: Nanos,
    is_builder: bool,
    /// In millionths.
    fill: u64,
    /// Nanoseconds by cause.
    blocked: [u64; Cause::ALL.len()],
    waits: BuilderWait,
    /// Microslices of an input that are in no timeslice, since the run began.
    lacking: u64,
    /// Those of them that a builder held back: the builder that held back most.
    held_back: Option<(u32, u64)>,
}

impl RankActivity {
    /// Returns `count` in a second. What ranks say comes when it comes: the time that they counted
    /// in is theirs, not the board's.
    fn in_second(&self, count: u64) -> f64 {
        count as f64 / self.span.as_secs_f64().max(1e-9)
    }

    /// Returns what held an input most of the time.
    fn cause(&self) -> String {
        let most = Cause::ALL.into_iter().max_by_key(|cause| self.blocked[*cause as usize]);
        match most.map(|cause| (cause, self.blocked[cause as usize])) {
            Some((cause, nanos)) if nanos > 0 => {
                format!("{} {:.0} %", cause.name(), self.in_second(nanos) / 1e7)
            }
            _ => "nothing".to_owned(),
        }
    }
}

impl StatusBoard {
    /// Creates a board for `job`, whose ranks have these names. What they say is added to `sums`.
    pub(super) fn open(job: &str, names: Vec<String>, sums: TimesliceMetrics) -> Self {
        let path = directory().and_then(|directory| path_of(&directory, KIND, job));
        let path = path.map_err(|why| {
            notice!("clearway: nobody can watch this run: {why:#}");
        });
        let now = Instant::now();
        let (live, completion) = (BTreeMap::new(), Histogram::default());
        let policy = Policy::Raw;
        let out = BTreeMap::new();
        Self {
            path: path.ok(),
            names,
            policy,
            begun: now,
            renewed: now,
            live,
            completion,
            sums,
            timeslices_before: 0,
            out,
        }
    }

    /// Notes that a run of `policy` begins.
    pub(super) fn begin(&mut self, policy: Policy) {
        (self.policy, self.begun) = (policy, Instant::now());
        self.sums.lock().begin();
        self.timeslices_before = self.sums.lock().timeslices(policy);
        self.out.clear();
        self.note_ranks();
    }

    /// Notes how many ranks take part.
    fn note_ranks(&self) {
        let (all, out) = (self.names.len() as u64, self.out.len() as u64);
        self.sums.lock().ranks = [all.saturating_sub(out), out];
    }

    /// Notes that the run goes on without `rank`, which ended as `how` says.
    pub(super) fn lose(&mut self, rank: Rank, how: &str) {
        self.live.remove(&rank);
        if self.out.insert(rank, how.to_owned()).is_none() {
            self.sums.lock().lose(self.policy, rank);
            self.note_ranks();
        }
    }

    /// Notes that `rank` is on `host` now.
    pub(super) fn move_rank(&mut self, rank: Rank, host: &str) {
        if let Some(name) = self.names.get_mut(rank.index()) {
            host.clone_into(name);
        }
    }

    /// Notes that `rank` takes part again.
    pub(super) fn join(&mut self, rank: Rank) {
        self.out.remove(&rank);
        self.note_ranks();
    }

    /// Adds what `rank` says of itself, and renews the board if it is time.
    pub(super) fn add(&mut self, rank: Rank, progress: &TimesliceProgress) {
        self.sums.lock().add(self.policy, rank, progress);
        let live = self.live.entry(rank).or_default();
        live.lacking = progress.source.as_ref().map_or(0, SourceCounts::lacking);
        live.held_back = progress.source.as_ref().and_then(SourceCounts::most_held_back);
        live.span = live.span + progress.span;
        match &progress.record {
            TimesliceRecord::Input(record) => {
                live.contributions += record.contributions;
                live.blocked.iter_mut().zip(record.blocked).for_each(|(sum, more)| *sum += more.0);
            }
            TimesliceRecord::Builder(record) => {
                live.is_builder = true;
                live.contributions += record.contributions;
                live.bytes += record.bytes;
                live.fill = live.fill.max(record.fill.max().unwrap_or(0));
                live.waits = progress.waits;
                self.completion.merge(&record.completion);
            }
        }
        if self.renewed.elapsed() >= EVERY {
            self.renew();
        }
    }

    fn renew(&mut self) {
        let rank = |(rank, live): (&Rank, &RankActivity)| RankStatus {
            name: self.name(rank.index()),
            contributions: live.in_second(live.contributions),
            fill: live.is_builder.then_some(live.fill as f64 / 1e4),
            waits: match live.waits {
                BuilderWait::Input(input) => self.name(input as usize),
                BuilderWait::Sink => "its sink".to_owned(),
                BuilderWait::Nothing => live.cause() + &self.lacking(live),
            },
        };
        let state = BoardState {
            process: std::process::id(),
            policy: self.policy.name().to_owned(),
            seconds: self.begun.elapsed().as_secs_f64(),
            rate: self.live.values().map(|live| live.in_second(live.bytes)).sum(),
            timeslices: self.sums.lock().timeslices(self.policy) - self.timeslices_before,
            completion_ms_p50: millis(&self.completion, "p50"),
            completion_ms_p99: millis(&self.completion, "p99"),
            ranks: self.live.iter().map(rank).collect(),
            out: self
                .out
                .iter()
                .map(|(rank, how)| format!("{} {how}", self.name(rank.index())))
                .collect(),
        };
        if let Some(path) = &self.path {
            // A board that cannot be renewed is old, which a watcher sees.
            let _ = replace(path, &state);
        }
        self.live.clear();
        self.completion = Histogram::default();
        self.renewed = Instant::now();
    }

    /// Returns what an input lacks, as the end of a sentence.
    fn lacking(&self, live: &RankActivity) -> String {
        let RankActivity { lacking, held_back, .. } = *live;
        let held_back = held_back.map_or_else(String::new, |(builder, count)| {
            format!(", {count} of them held back by {}", self.name(builder as usize))
        });
        if lacking > 0 {
            format!("; {lacking} microslices lacking{held_back}")
        } else {
            String::new()
        }
    }

    fn name(&self, rank: usize) -> String {
        self.names.get(rank).map_or_else(String::new, |host| format!("rank {rank} ({host})"))
    }
}

impl Drop for StatusBoard {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Replaces the file at `path`, in a directory of this user's alone: readers see all of it.
pub(super) fn replace<T: Serialize>(path: &Path, state: &T) -> Result<()> {
    let fresh = path.with_extension("new");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh);
    file?.write_all(&serde_json::to_vec(state)?)?;
    Ok(fs::rename(&fresh, path)?)
}

/// Returns where boards can be, best first: a launcher may keep from its ranks what a login sets.
fn directories() -> impl Iterator<Item = PathBuf> {
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(|runtime| PathBuf::from(runtime).join("clearway"));
    // In an ordinary user's lab the coordinator is user 0 of a namespace. Watchers outside are not.
    runtime.into_iter().chain([PathBuf::from(format!("/tmp/clearway-{}", outer_uid()))])
}

/// Returns the first directory of boards that there is, or can be made.
pub(super) fn directory() -> Result<PathBuf> {
    let mut last = Ok(PathBuf::new());
    for path in directories() {
        last = made(path);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Returns `path`, made if it is not there.
fn made(path: PathBuf) -> Result<PathBuf> {
    if let Err(error) = DirBuilder::new().mode(0o700).create(&path)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| format!("{} cannot be made", path.display()));
    }
    let found = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
    if !found.is_dir() || found.uid() != Uid::effective().as_raw() || found.mode() & 0o077 != 0 {
        bail!("{} is no directory of this user's alone", path.display());
    }
    Ok(path)
}

/// Returns where the file of this `kind` of `job` is in `directory`.
pub(super) fn path_of(directory: &Path, kind: &str, job: &str) -> Result<PathBuf> {
    check_name(job)?;
    Ok(directory.join(format!("{kind}-{job}")))
}

/// Returns where the file of this `kind` of `job` can be, best first.
pub(super) fn paths_of(kind: &str, job: &str) -> Result<Vec<PathBuf>> {
    directories().map(|directory| path_of(&directory, kind, job)).collect()
}

/// Checks that `job` can be the name of a run.
pub(super) fn check_name(job: &str) -> Result<()> {
    if job.is_empty() || !is_plain(job) {
        bail!("`{job}` is no name of a run; letters, digits, `-`, `_` and `.` make one");
    }
    Ok(())
}

/// Returns whether no shell and no directory takes `name` for more than it is.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Shows the board of `job`, a name or `NAME@HOST`, until its run is over. On another host
/// `program` does it, which is where this one is unless it is said.
///
/// # Errors
/// There is no such run, or its host cannot be reached.
pub(crate) fn watch(
    job: &str,
    program: Option<&Path>,
    show: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Exit> {
    match place_of(job)? {
        RunLocation::Here(name) => watch_here(name, show),
        RunLocation::There(name, host) => watch_there(name, host, program, show),
    }
}

/// Where a run is coordinated, and its name there.
pub(super) enum RunLocation<'a> {
    Here(&'a str),
    /// On the host behind it.
    There(&'a str, &'a str),
}

/// Returns where `job`, a name or `NAME@HOST`, is.
pub(super) fn place_of(job: &str) -> Result<RunLocation<'_>> {
    let own = host_name()?;
    Ok(match job.split_once('@') {
        Some((job, host)) if own != host => RunLocation::There(job, host),
        here => RunLocation::Here(here.map_or(job, |(job, _)| job)),
    })
}

fn watch_here(job: &str, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<Exit> {
    let paths = paths_of(KIND, job)?;
    let read = |path: &PathBuf| serde_json::from_slice::<BoardState>(&fs::read(path).ok()?).ok();
    let mut last: Option<BoardState> = None;
    loop {
        match paths.iter().filter_map(read).find(|state| is_alive(state.process)) {
            Some(state) => {
                if last.as_ref() != Some(&state) {
                    show(&page(&state))?;
                    last = Some(state);
                }
            }
            None if last.is_some() => return Ok(Exit::Good),
            None => bail!(
                "no run `{job}` is coordinated on this host; it says its name and host when it begins, and {job}@HOST is watched over ssh"
            ),
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Lets the same program on `host` watch `job`, and shows its lines as they come.
fn watch_there(
    job: &str,
    host: &str,
    program: Option<&Path>,
    show: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Exit> {
    check_name(job)?;
    let (mut ssh, program) = remote_command(&format!("timeslice watch {job}"), host, program)?;
    let mut ssh = ssh
        .stdout(Stdio::piped())
        .spawn()
        .context("ssh, which reaches other hosts, cannot be started")?;
    let output = ssh.stdout.take().context("an ssh without output")?;
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        show(&(line + "\n"))?;
    }
    let status = ssh.wait().context("ssh cannot be waited for")?;
    match remote_failure(status, host, &program) {
        Some(error) => Err(error),
        None if status.success() => Ok(Exit::Good),
        None => Ok(Exit::Failed),
    }
}

/// Returns the ssh that runs `program` with `words` on `host`, and where the program is there.
pub(super) fn remote_command(
    words: &str,
    host: &str,
    program: Option<&Path>,
) -> Result<(Command, String)> {
    if host.is_empty() || host.starts_with('-') || !is_plain(host) {
        bail!("`{host}` is no name of a host");
    }
    let program = program.map_or_else(std::env::current_exe, |program| Ok(program.to_owned()));
    let program = program.context("the path of this program")?.display().to_string();
    let line = format!("exec {} {words}", quoted(&program));
    let mut ssh = ssh_command("ssh", SSH_TIMEOUT);
    ssh.args([host, &line]).stdin(Stdio::null());
    Ok((ssh, program))
}

/// Returns why `program` was not run on `host` at all, if ssh ended with `status` because of that.
pub(super) fn remote_failure(
    status: ExitStatus,
    host: &str,
    program: &str,
) -> Option<anyhow::Error> {
    match ExitReason::from_status(status) {
        _ if status.success() => None,
        ExitReason::Unreachable => Some(anyhow!("host {host} cannot be reached over ssh")),
        ExitReason::NoProgram => Some(anyhow!(
            "host {host} has no program {program}; put the same there, or say where it is with --remote-program"
        )),
        ExitReason::Ended => None,
    }
}

/// Returns whether `process` of this host runs.
pub(super) fn is_alive(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Returns a board as text.
fn page(state: &BoardState) -> String {
    let BoardState {
        policy,
        seconds,
        rate,
        timeslices,
        completion_ms_p50: p50,
        completion_ms_p99: p99,
        ..
    } = state;
    let mut text =
        format!("{policy}, {seconds:.0} s: {:.2} MB/s, {timeslices} timeslices", rate / 1e6);
    if let (Some(p50), Some(p99)) = (p50, p99) {
        let _ = write!(text, ", complete after {p50:.2} ms (p50), {p99:.2} ms (p99)");
    }
    text.push('\n');
    for is_builder in [false, true] {
        let of_kind = || state.ranks.iter().filter(|rank| rank.fill.is_some() == is_builder);
        let mut rates: Vec<f64> = of_kind().map(|rank| rank.contributions).collect();
        rates.sort_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
        for RankStatus { name, contributions, fill, waits } in of_kind() {
            let part = fill
                .map_or_else(|| "input".to_owned(), |fill| format!("builder, rings {fill:.1} %"));
            let mark = if *contributions < STRAGGLER * median { "  STRAGGLER" } else { "" };
            let _ = writeln!(
                text,
                "  {name}: {part}, {contributions:.0} contributions/s, waits for {waits}{mark}"
            );
        }
    }
    for dead in &state.out {
        let _ = writeln!(text, "  {dead}");
    }
    text
}

#[cfg(test)]
mod tests {
    use clearway_proto::timeslice::InputRecord;

    use super::*;

    #[test]
    fn add__shares_are_of_the_time_that_ranks_counted_in() {
        let mut board = StatusBoard {
            path: None,
            names: Vec::new(),
            policy: Policy::Raw,
            begun: Instant::now(),
            // Two samples of 200 ms come in one look.
            renewed: Instant::now(),
            live: BTreeMap::new(),
            completion: Histogram::default(),
            sums: TimesliceMetrics::default(),
            timeslices_before: 0,
            out: BTreeMap::new(),
        };
        for number in [1, 2] {
            let mut record = InputRecord { contributions: 10, ..InputRecord::default() };
            record.blocked[Cause::NoCredit as usize] = Nanos::from_millis(150);
            let (record, span) = (TimesliceRecord::Input(record), Nanos::from_millis(200));
            let progress = TimesliceProgress {
                number,
                record,
                span,
                timeslices: 0,
                processor: Nanos::ZERO,
                source: None,
                waits: BuilderWait::Nothing,
            };
            board.add(Rank(0), &progress);
        }
        let live = &board.live[&Rank(0)];
        assert_eq!(
            (live.cause(), live.in_second(live.contributions)),
            (format!("{} 75 %", Cause::NoCredit.name()), 50.0)
        );
    }

    #[test]
    fn page__tells_no_time_to_complete_where_nothing_was_complete() {
        let (policy, ranks, out) = ("dfs".to_owned(), Vec::new(), Vec::new());
        let (completion_ms_p50, completion_ms_p99) = (None, None);
        let state = BoardState {
            process: 1,
            policy,
            seconds: 2.0,
            rate: 0.0,
            timeslices: 0,
            completion_ms_p50,
            completion_ms_p99,
            ranks,
            out,
        };
        assert_eq!(page(&state), "dfs, 2 s: 0.00 MB/s, 0 timeslices\n");
    }
}
