//! `clearway stage`: shows the state of staged files, and controls their drain.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use clearway_fs::client::ControlClient;
use clearway_fs::control::{
    ControlPath, ControlRequest, ControlResponse, DrainState, FileKindName, FileStatus, LeftOut,
    MountStatus, PATHS_MAX, PaceStatus, SafetyLevel,
};
use clearway_fs::inspect::{LogInspection, inspect};
use clearway_fs::store::DrainHeld;
use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos};
use clearway_proto::stats::{Quantile, QuantileValue};
use clearway_runtime::launch::escaped;
use serde::Serialize;

use super::mount_lookup::find_mount;
use super::warm::{WarmFlags, warm};
use super::{counted, for_output, json_text, print};
use crate::mechanism::staging::job::{self, HeldProgramFlags, NodeMountFlags, StageJobFlags};
use crate::mechanism::staging::log_flags::MECHANISM;
use crate::mechanism::staging::service::{ServeFlags, serve};
use crate::policy::PolicyFlags;
use crate::report::FigureFormat;
use crate::report::model::{ExtendedReal, Figure, labels};
use crate::report::numerals::size;
use crate::run::exit::{Exit, wrong_usage};
use crate::run::notice;
use crate::scenario::Time;

/// Show and control files of a mounted log.
#[derive(Debug, Subcommand)]
pub(crate) enum StageCommand {
    /// Serve a log and its store to mounts of other hosts, until a signal ends it.
    Serve(Box<ServeFlags>),
    /// Run a program with a staging mount on each node of a job, under srun, mpiexec or alone.
    ///
    /// The first task serves the log (with --servers N, that of each of the first N nodes), the
    /// first task of each node mounts it, and all tasks run the program with the mount point in
    /// CLEARWAY_STAGE. When all programs have ended, the command
    /// unmounts and waits until the backing directory has everything. The exit status is that of
    /// the program, or 128 plus the number of the signal that killed it.
    Job(Box<StageJobFlags>),
    /// Mount for a node of `stage job`; the program itself starts this.
    #[command(hide = true)]
    JobMount(NodeMountFlags),
    /// Hold the program of a task of `stage job`; the program itself starts this.
    #[command(hide = true)]
    JobProgram(HeldProgramFlags),
    /// Show the space, drain, memory, syncs and classes of a mount.
    Status {
        /// Show the mount of this path.
        #[arg(default_value = ".")]
        path: PathBuf,
        #[command(flatten)]
        format: FigureFormat,
    },
    /// List directories: kind, safety, class, size and bytes in the log of each entry.
    ///
    /// The kind is - (file), d (directory), l (symbolic link) or s (other). The safety is memory
    /// (lost at a crash), logged (on the log's disk), unpublished or cancelled (logged, and left
    /// out of the store), or stored.
    Ls(PathFlags),
    /// Show files and directories themselves, in the columns of `ls`; with --json also the version.
    Stat(PathFlags),
    /// Wait until files are safe; a directory stands for everything below it.
    ///
    /// With `--until stored` the command also waits while the store makes no progress, and then
    /// prints a line on standard error. Only --limit ends the wait. It fails for cancelled and
    /// unpublished files.
    Wait {
        /// Wait until the files survive a loss of power (logged), or also a loss of the log
        /// (stored).
        #[arg(long, value_enum, default_value_t = Safety::Logged)]
        until: Safety,
        /// Wait no longer than this time; exit status 3 says that it is over [default: no limit].
        #[arg(long, value_name = "TIME")]
        limit: Option<Time>,
        /// Wait for these files and directories.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Drain files to the store before others of their class, cancelled files included; return at
    /// once.
    Drain {
        /// Drain these files, and everything below these directories.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Make a set of files appear in the store as a whole, and wait until it is there.
    ///
    /// Before you create the files, set user.clearway.publish=explicit on their directory. Close
    /// the files before you publish them. The command fails when the store shows a part of the set.
    Publish {
        /// Publish these files, and everything below these directories, as one set.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Leave the present versions of files out of the store until their bytes change; keep versions
    /// that the store shows.
    Cancel {
        /// Leave out these files, and everything below these directories.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Read files that only the store has into the memory of this machine, so that later reads are
    /// fast.
    ///
    /// The kernel keeps the bytes until it needs the memory. The command skips files whose bytes
    /// are all in the log.
    Warm(WarmFlags),
    /// Set the class of the later traffic of files. The class of a directory counts below it, where
    /// no file, rule or nearer directory has one.
    SetClass {
        /// Set this class: control, low-latency, best-effort, bulk or scavenger; `inherit` removes
        /// the class that was set.
        class: ClassChoice,
        /// Set the class of these files and directories.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        policy: PolicyFlags,
    },
    /// Check a log that is not mounted, and change nothing. Exit status 3: there are findings.
    Fsck {
        /// Check the log in this directory.
        log: PathBuf,
        /// Write JSON instead of a list.
        #[arg(long)]
        json: bool,
    },
}

/// Paths, and how to print what is found.
#[derive(Debug, Args)]
pub(crate) struct PathFlags {
    /// Show these files and directories.
    #[arg(default_value = ".")]
    paths: Vec<PathBuf>,
    /// Write a line of JSON for each file.
    #[arg(long)]
    json: bool,
}

/// How safe files must be.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Safety {
    /// On the disk of the log.
    Logged,
    /// On the disk of the store.
    Stored,
}

/// A class, or that of the directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassChoice(Option<Class>);

impl std::str::FromStr for ClassChoice {
    type Err = clearway_proto::base::UnknownClass;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "inherit" { Ok(Self(None)) } else { text.parse().map(|class| Self(Some(class))) }
    }
}

/// Does what `command` says.
pub(crate) fn command(command: StageCommand) -> Result<Exit> {
    match command {
        StageCommand::Serve(flags) => return serve(&flags),
        StageCommand::Job(flags) => return job::run(&flags),
        StageCommand::JobMount(flags) => return job::serve_mount(&flags),
        StageCommand::JobProgram(words) => return job::hold_program(&words),
        StageCommand::Status { path, format } => status(&path, format)?,
        StageCommand::Ls(flags) => show(&flags, |paths| ControlRequest::Ls { paths })?,
        StageCommand::Stat(flags) => show(&flags, |paths| ControlRequest::Stat { paths })?,
        StageCommand::Wait { until, limit, paths } => {
            let until = match until {
                Safety::Logged => SafetyLevel::Logged,
                Safety::Stored => SafetyLevel::Stored,
            };
            let wait =
                move || ask(&paths, |paths| ControlRequest::Wait { paths, until }, |_| Ok(()));
            let Some(limit) = limit else { return wait().map(|()| Exit::Good) };
            if limit < Time::millis(1) {
                wrong_usage!("--limit is {limit}; 1ms and longer times work");
            }
            return within(limit, wait);
        }
        StageCommand::Drain { paths } => {
            ask(&paths, |paths| ControlRequest::Drain { paths }, |_| Ok(()))?;
        }
        StageCommand::Publish { paths } => {
            ask(&paths, |paths| ControlRequest::Publish { paths }, |_| Ok(()))?;
        }
        StageCommand::Cancel { paths } => {
            ask(&paths, |paths| ControlRequest::Cancel { paths }, |_| Ok(()))?;
        }
        StageCommand::Warm(flags) => return warm(&flags),
        StageCommand::SetClass { class: ClassChoice(class), paths, policy } => {
            let class = class.map(|class| granted_class(&policy, class));
            ask(&paths, |paths| ControlRequest::SetClass { paths, class }, |_| Ok(()))?;
        }
        StageCommand::Fsck { log, json } => return fsck(&log, json),
    }
    Ok(Exit::Good)
}

/// Does `work` for at most `limit`; what is not done then ends with this process.
fn within(limit: Time, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<Exit> {
    let (done, outcome) = mpsc::channel();
    thread::spawn(move || drop(done.send(work())));
    match outcome.recv_timeout(Duration::from_nanos(limit.0.0)) {
        Ok(outcome) => outcome.map(|()| Exit::Good),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            bail!("the wait failed; this is a defect of the program")
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            notice!("clearway: --limit {limit} is over, and not everything is safe");
            Ok(Exit::Findings)
        }
    }
}

/// Returns the class that the policy of the site grants, and says so if it is another one.
fn granted_class(policy: &PolicyFlags, class: Class) -> Class {
    let Some(grant) = policy.ask((MECHANISM, None), class) else { return class };
    if grant.granted != class {
        grant.say();
    }
    grant.granted
}

/// Sends requests to the mounts of `paths`, one for consecutive paths of one mount.
fn ask(
    paths: &[PathBuf],
    request: impl Fn(Vec<ControlPath>) -> ControlRequest,
    mut take: impl FnMut(ControlResponse) -> Result<()>,
) -> Result<()> {
    let mut take = |response| match response {
        ControlResponse::Notice { what } => {
            // Nobody reads it: the answer comes all the same.
            let _ = writeln!(io::stderr(), "clearway: {}", escaped(&what));
            Ok(())
        }
        response => take(response),
    };
    let found: Vec<(ControlClient, ControlPath)> =
        paths.iter().map(|path| find_mount(path)).collect::<Result<_, _>>()?;
    for of_mount in found.chunk_by(|(one, _), (other, _)| one == other) {
        for some in of_mount.chunks(PATHS_MAX) {
            let Some((client, _)) = some.first() else { continue };
            let names = some.iter().map(|(_, path)| path.clone()).collect();
            let mut outcome = Ok(());
            client.ask(&request(names), |response| {
                if outcome.is_ok() {
                    outcome = take(response);
                }
            })?;
            outcome?;
        }
    }
    Ok(())
}

/// The status of each server of a mount that has several.
#[derive(Serialize)]
struct ServersStatus {
    servers: Vec<MountStatus>,
}

fn status(path: &Path, format: FigureFormat) -> Result<()> {
    let (client, _) = find_mount(path)?;
    let mut found = Vec::new();
    client.ask(&ControlRequest::Status, |response| {
        if let ControlResponse::Status(status) = response {
            found.push(*status);
        }
    })?;
    let text = match found.as_slice() {
        [] => bail!("the mount did not report its status"),
        [status] => format.text(&figures(status), status, || for_output(&page(status)))?,
        several => {
            let of_server = |status: &MountStatus| {
                let server = status.server.clone().unwrap_or_default();
                let labelled = move |figure: Figure| figure.with("server", server.clone());
                figures(status).into_iter().map(labelled).collect::<Vec<_>>()
            };
            let all: Vec<Figure> = several.iter().flat_map(of_server).collect();
            let pages = || for_output(&several.iter().map(page).collect::<Vec<_>>().join("\n"));
            format.text(&all, &ServersStatus { servers: several.to_vec() }, pages)?
        }
    };
    print(&text)
}

/// Returns what `status` counts, as figures.
fn figures(status: &MountStatus) -> Vec<Figure> {
    let figure = |name: &str, unit: &str, value: f64| {
        Figure::counted(name, unit, ExtendedReal::or_infinite(value), 1, "since the mount began")
    };
    let counts = [
        ("staging_log_bytes", "B", status.log_bytes),
        ("staging_log_free_bytes", "B", status.log_bytes_free),
        ("staging_inodes", "", status.inodes),
        ("staging_unlogged_bytes", "B", status.unlogged_bytes),
        ("staging_cached_bytes", "B", status.cached_bytes),
        ("staging_written_bytes", "B", status.written_bytes),
        ("staging_read_bytes", "B", status.read_bytes),
        ("staging_changes", "", status.changes),
        ("staging_stalls", "", status.stalls),
    ];
    let mut figures: Vec<Figure> =
        counts.into_iter().map(|(name, unit, count)| figure(name, unit, count as f64)).collect();
    for (name, by_class) in [
        ("staging_class_bytes", &status.class_bytes),
        ("staging_class_drained_bytes", &status.drained_bytes),
    ] {
        let of = |(class, bytes): (&Class, &u64)| {
            figure(name, "B", *bytes as f64).with("class", class.name())
        };
        figures.extend(by_class.iter().map(of));
    }
    for quantile in [Quantile::P50, Quantile::P99] {
        let nanos = match status.syncs.quantile(quantile) {
            QuantileValue::Finite(nanos) => nanos as f64,
            QuantileValue::Infinite => f64::INFINITY,
            _ => continue,
        };
        let sync = figure("staging_sync_seconds", "s", nanos / 1e9);
        let sync = Figure { samples: status.syncs.count(), ..sync };
        figures.push(sync.with(labels::QUANTILE, quantile.to_string()));
    }
    figures
}

fn page(status: &MountStatus) -> String {
    let used = status.log_bytes.saturating_sub(status.log_bytes_free);
    let mut lines =
        vec![format!("mount    {} (process {})", escaped(&status.mounted_on), status.process)];
    lines.extend(status.server.as_ref().map(|server| format!("server   {}", escaped(server))));
    if status.log.is_empty() {
        // The server alone knows more.
        lines.extend(status.stopped.as_ref().map(|why| format!("stopped  {}", escaped(why))));
        return lines.join("\n") + "\n";
    }
    lines.extend([
        format!(
            "log      {}: {} of {} used",
            escaped(&status.log),
            size(used),
            size(status.log_bytes)
        ),
        format!("store    {}", escaped(&status.store)),
        format!("drain    {}", drain_words(status)),
        format!("inodes   {} of {} used", status.inodes, status.inodes_max),
        format!(
            "memory   {} not on the disk yet, {} for readers",
            size(status.unlogged_bytes),
            size(status.cached_bytes)
        ),
        format!(
            "done     {} written, {} read",
            size(status.written_bytes),
            size(status.read_bytes)
        ),
        format!("changes  {}, {} of them waited", status.changes, status.stalls),
        format!(
            "syncs    {}, {} (p50), {} (p99)",
            status.syncs.count(),
            sync_time(status, Quantile::P50),
            sync_time(status, Quantile::P99)
        ),
        format!("class    {} where no other is set", status.class),
    ]);
    lines.extend(status.pace.as_ref().map(pace_line));
    lines.extend(status.held.as_ref().map(held_line));
    if let Some(why) = &status.snapshot_failed {
        lines.push(format!("snapshot not written: {}; the log frees no space", escaped(why)));
    }
    if status.segments_retired > 0 {
        lines.push(format!("retired  {} segments, where the disk failed", status.segments_retired));
    }
    for class in Class::ALL {
        let of = |by_class: &BTreeMap<Class, u64>| by_class.get(&class).copied().unwrap_or(0);
        let [bytes, files, drained] =
            [&status.class_bytes, &status.class_files, &status.drained_bytes].map(of);
        if bytes + files > 0 {
            let files = counted(files, "file");
            let bytes = size(bytes);
            lines.push(format!("         {class}: {bytes} in the log, {files} not in the store"));
        }
        if drained > 0 {
            lines.push(format!("         {class}: {} drained", size(drained)));
        }
    }
    if status.users.len() > 1 {
        for user in &status.users {
            lines.push(format!("user     {}: {} in the log", user.uid, size(user.log_bytes)));
        }
    }
    if let Some(why) = &status.stopped {
        lines.push(format!("stopped  {}", escaped(why)));
    }
    lines.join("\n") + "\n"
}

/// Returns what a server lets its mounts write, for a person.
fn pace_line(pace: &PaceStatus) -> String {
    let percent = pace.rate.saturating_mul(100) / pace.link.max(1);
    let link = BitsPerSec(pace.link);
    let allowed = format!("pace     bulk and scavenger may write at {percent} % of {link}");
    if pace.senders == 0 {
        return allowed;
    }
    let senders = counted(pace.senders, "mount");
    format!(
        "{allowed}; {senders} writing; small messages are {} % slower",
        pace.excess_permille / 10
    )
}

/// Returns what the agent of the node costs the drain, for a person.
fn held_line(held: &DrainHeld) -> String {
    let whole = |rate: u64| BitsPerSec(if rate < 1_000_000 { rate } else { rate / 1_000 * 1_000 });
    let (time, mean, least) =
        (Nanos(held.time_ns), whole(held.mean_bits_per_second), whole(held.least_bits_per_second));
    format!("limited  {time} by the agent of this node: mean {mean}, minimum {least}")
}

/// Returns the state of the drain, for a person.
fn drain_words(status: &MountStatus) -> String {
    let what = match status.drain {
        DrainState::Idle if status.lag == 0 => return "the store has everything".to_owned(),
        DrainState::Idle => "idle",
        DrainState::Working => "works",
        DrainState::Failing => "steps fail and are tried again",
        DrainState::Parked => "makes no progress",
    };
    let steps = counted(status.draining, "step");
    let late = match status.late_files {
        0 => String::new(),
        late => format!(", {} after their deadline", counted(late, "file")),
    };
    format!("{what}, {}, {steps} under way{late}", counted(status.lag, "difference"))
}

/// Looks at a log.
fn fsck(log: &Path, json: bool) -> Result<Exit> {
    let found = inspect(log)?;
    print(&if json { json_text(&found)? } else { findings(&found) })?;
    Ok(if found.is_clean() { Exit::Good } else { Exit::Findings })
}

/// Returns the contents of a log and its damage, for a person.
fn findings(found: &LogInspection) -> String {
    let mut lines = vec![format!(
        "log      {}: {} segments of {}",
        escaped(&found.log),
        found.segments,
        Bytes(found.segment_bytes)
    )];
    if let Some(why) = &found.refused {
        lines.push(format!("damaged  {}; it cannot be mounted", escaped(why)));
        return lines.join("\n") + "\n";
    }
    lines.push(format!(
        "groups   up to {}, {} in a snapshot, opened {} times",
        found.last_group, found.snapshot_group, found.epoch
    ));
    lines.push(format!("inodes   {}", found.inodes));
    lines.push(match (found.undrained_files, found.lag) {
        (0, 0) => "store    has everything".to_owned(),
        (files, lag) => format!(
            "store    lacks bytes of {}, and has {}; a mount drains them",
            counted(files, "file"),
            counted(lag, "difference")
        ),
    });
    for (class, bytes) in &found.class_bytes {
        lines.push(format!("         {class}: {} in the log", size(*bytes)));
    }
    lines.extend(damage(found));
    if found.is_clean() {
        lines.push("clean    nothing needs attention".to_owned());
    }
    lines.join("\n") + "\n"
}

/// Returns a sentence for each finding.
fn damage(found: &LogInspection) -> Vec<String> {
    let mut lines = Vec::new();
    if found.superblocks_damaged > 0 {
        lines.push(
            "damaged  a copy of the superblock; the other one is whole, and the next mount writes both"
                .to_owned(),
        );
    }
    for number in &found.segments_short {
        lines.push(format!(
            "damaged  segment {number} is shorter than the others; the next mount lengthens it"
        ));
    }
    if found.snapshots_damaged > 0 {
        lines.push(format!(
            "damaged  {} of 2 snapshots; the groups that they cover are whole",
            found.snapshots_damaged
        ));
    }
    if found.has_torn_tail {
        lines.push(
            "torn     the last group was not written whole; no call acknowledged it".to_owned(),
        );
    }
    if found.has_unknown_tail {
        lines.push(
            "torn     the bytes behind the last group are no group: a crash left them, or a last group was damaged"
                .to_owned(),
        );
    }
    if found.segments_retired > 0 {
        lines.push(format!(
            "retired  {} segments where the disk failed; replace the disk",
            found.segments_retired
        ));
    }
    for path in &found.damaged {
        lines.push(format!("damaged  {}: reading its bytes fails", escaped(&path.0)));
    }
    lines
}

/// Returns how long a sync took, for a person.
fn sync_time(status: &MountStatus, quantile: Quantile) -> String {
    match status.syncs.quantile(quantile) {
        QuantileValue::Finite(nanos) => Nanos(nanos).to_string(),
        QuantileValue::Infinite => "failed".to_owned(),
        _ => "-".to_owned(),
    }
}

fn show(flags: &PathFlags, request: impl Fn(Vec<ControlPath>) -> ControlRequest) -> Result<()> {
    let mut out = io::stdout().lock();
    ask(&flags.paths, request, |response| {
        let ControlResponse::File(file) = response else { return Ok(()) };
        let line = if flags.json { serde_json::to_string(&file)? + "\n" } else { line(&file) };
        match out.write_all(line.as_bytes()) {
            Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    })
}

fn line(file: &FileStatus) -> String {
    let kind = match file.what {
        FileKindName::File => '-',
        FileKindName::Directory => 'd',
        FileKindName::Symlink => 'l',
        FileKindName::Special => 's',
    };
    let safety = match file {
        FileStatus { is_stored: true, .. } => "stored",
        FileStatus { is_logged: false, .. } => "memory",
        FileStatus { left_out: Some(LeftOut::Cancelled), .. } => "cancelled",
        FileStatus { left_out: Some(LeftOut::Unpublished), .. } => "unpublished",
        _ => "logged",
    };
    let path = if file.path.0.is_empty() { "." } else { &file.path.0 };
    let [size, log] = [file.size, file.log_bytes].map(|bytes| Bytes(bytes).to_string());
    let class = file.class.to_string();
    format!("{kind} {safety:<11} {class:<11} {size:>11} {log:>11} {}\n", escaped(path))
}

#[cfg(test)]
mod tests {
    //! What an operator sees.

    use super::*;
    use crate::report::numerals::fold;
    use crate::report::terminal::WIDTH;

    #[test]
    fn page__fits_into_80_columns_with_figures_of_a_busy_mount() {
        let bytes = 123_456_789_012;
        let by_class = |figure: u64| Class::ALL.map(|class| (class, figure)).into();
        let status = MountStatus {
            mounted_on: "/mnt/checkpoints".to_owned(),
            log: "/fast/clearway/log".to_owned(),
            store: "/lustre/project/checkpoints".to_owned(),
            process: 4_194_303,
            class: "best-effort".to_owned(),
            log_bytes: 549_755_813_888,
            inodes: 999_999,
            inodes_max: 1_000_000,
            unlogged_bytes: bytes,
            cached_bytes: bytes,
            class_bytes: by_class(bytes),
            class_files: by_class(1_234_567),
            lag: 1_234_567,
            drain: DrainState::Failing,
            draining: 1,
            drained_bytes: by_class(bytes),
            written_bytes: bytes,
            read_bytes: bytes,
            changes: bytes,
            stalls: bytes,
            held: Some(DrainHeld {
                time_ns: 123_456_789_012,
                mean_bits_per_second: 123_456_789,
                least_bits_per_second: 1_234_567,
            }),
            snapshot_failed: Some("the file is not there any more".to_owned()),
            ..MountStatus::default()
        };
        let page = fold(&page(&status), WIDTH);
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH), "{page}");
        let drain =
            "drain    steps fail and are tried again, 1234567 differences, 1 step under way\n";
        assert!(page.contains(drain), "{page}");
    }
}
