//! `clearway mount` and `clearway umount`: a log of staged files as a directory.
//!
//! # Model
//! Unless it stays in the foreground, the command starts itself again as the process of the mount.
//! It prints the messages of that process until the mount works, and ends. From then on the process
//! writes errors and warnings into a file: `mount.log` in the directory of the log, or a file of
//! its own for a mount of a server.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use clearway_fs::control::{ControlRequest, ControlResponse};
use clearway_fs::mount::{
    MountOptions, Mounted, Reporter, Unmounter, detach, is_left_behind, unmount,
};
use clearway_fs::network::mount::{
    RemoteMountOptions, RemoteMounted, RemoteServer, ServersAbandoner,
};
use clearway_runtime::launch::escaped;
use clearway_runtime::munge::{MungeDaemon, SOCKET};
use clearway_wires::RemoteTransport;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::mount_lookup::find_mount;
use super::{counted, forced_unmount, mount_copies};
use crate::mechanism::staging::log_flags::LogFlags;
use crate::mechanism::staging::metrics::{MountMetrics, RemoteMountMetrics};
use crate::mechanism::staging::service::{MountConnector, MountProof, RemoteTree};
use crate::report::model::rfc3339;
use crate::run::exit::{Exit, wrong_usage};
use crate::run::key_file;
use crate::run::metrics::{MetricSource, MetricsAddress, MetricsListener};
use crate::run::notice;
use crate::scenario::seconds;

/// What the process of a mount prints when the mount works.
const READY: &str = "mounted";

/// How often a command looks whether a log is closed.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Looks between two searches for copies of a mount (three seconds): a copy that a command has
/// only while it starts is gone by then.
const LOOKS_PER_COPY: u32 = 150;
/// How long a mount that a signal ended waits for its servers.
const SERVERS_GRACE: Duration = Duration::from_secs(60);
/// How long the end of a mount may take: all that is in memory is written to the disk of the log.
const CLOSE_MAX: Duration = Duration::from_secs(300);

/// Flags of `clearway mount`.
#[derive(Debug, Args)]
pub(crate) struct MountFlags {
    /// Keep files in a log in the directory LOG, and copy them to the existing directory STORE,
    /// both on this machine. If LOG is missing or empty, the command makes a log there. --size,
    /// --inodes, --class, --rule, --deadline, --store-timeout, --drain-rate, --shared-store and
    /// --policy need --local.
    #[arg(long, value_name = "LOG:STORE")]
    local: Option<LocalPlaces>,
    /// Mount on this existing directory. Without --local, name the server before it, as in
    /// `SERVER[:PORT][:/TREE] DIRECTORY`, or several, as in `SERVER1,SERVER2 DIRECTORY`: each name
    /// at the top of the mount is on one of them [default: port 27183, the root of the tree].
    #[arg(value_name = "[SERVER] DIRECTORY", required = true, num_args = 1..=2)]
    places: Vec<PathBuf>,
    /// Read the key from this file; the server must accept it. Without --local, give --key or
    /// --munge.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["local", "munge"])]
    key: Option<PathBuf>,
    /// Prove by munge, instead of a key, which user mounts. The server needs --munge, and runs as
    /// root or as the same user. munged listens at SOCKET [default: /run/munge/munge.socket.2].
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true, default_missing_value = SOCKET, conflicts_with = "local")]
    munge: Option<PathBuf>,
    /// Carry the data to the server over this wire.
    #[arg(long, value_enum, default_value_t = ServerWire::Udp, conflicts_with = "local")]
    wire: ServerWire,
    /// Fail all requests after this many seconds, or a time such as 5min, without a connection to
    /// the server. Writes that the server lacks are lost then; unmount, and mount again [default:
    /// no limit].
    #[arg(long, value_name = "SECONDS", conflicts_with = "local", value_parser = seconds)]
    server_timeout: Option<Duration>,
    #[command(flatten)]
    log: LogFlags,
    /// Serve metrics of the mount for Prometheus over HTTP, at ADDR:PORT, or at a port of the
    /// loopback address. There is no authentication: everyone who reaches the address can read
    /// them [default: none].
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<MetricsAddress>,
    /// Stay in the foreground, and print errors and warnings on standard error; Ctrl-C unmounts.
    #[arg(long)]
    foreground: bool,
    /// Write errors and warnings to mount.log once the mount works; the program itself sets this.
    #[arg(long, hide = true)]
    background: bool,
}

/// What carries the traffic between a mount and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ServerWire {
    /// Sealed UDP.
    Udp,
    /// libfabric, which is not sealed: only trusted hosts may reach its network.
    Ofi,
}

/// The directories of a log and its store.
#[derive(Clone, Debug)]
struct LocalPlaces {
    log: PathBuf,
    store: PathBuf,
}

impl FromStr for LocalPlaces {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((log, store)) if !log.is_empty() && !store.is_empty() => {
                Ok(Self { log: log.into(), store: store.into() })
            }
            _ => Err("name two directories, as in /fast/log:/slow/store".to_owned()),
        }
    }
}

/// What a command line asks to mount.
enum MountSource<'a> {
    Local(&'a LocalPlaces),
    Served(RemoteTree),
}

impl MountFlags {
    /// Returns what is mounted, and where.
    fn places(&self) -> Result<(MountSource<'_>, &Path)> {
        match (&self.local, self.places.as_slice()) {
            (Some(local), [directory]) => Ok((MountSource::Local(local), directory)),
            (Some(_), _) => {
                wrong_usage!("--local names log and store; name one directory to mount on")
            }
            (None, [served, directory]) => {
                let served = served.to_str().context("the name of a server is text")?;
                let served = served.parse().map_err(|why: String| anyhow!(why))?;
                Ok((MountSource::Served(served), directory))
            }
            (None, _) => wrong_usage!(
                "name what to mount: --local LOG:STORE DIRECTORY, or SERVER[:PORT][,SERVER...][:/TREE] DIRECTORY"
            ),
        }
    }

    /// Returns what shows a server whose mount this is.
    fn proof(&self) -> Result<MountProof> {
        match (&self.key, &self.munge) {
            (Some(file), _) => Ok(MountProof::Key(key_file::key(file)?)),
            (None, Some(socket)) => Ok(MountProof::Munge(MungeDaemon::at(socket)?)),
            (None, None) => {
                wrong_usage!("name the file of the server's key with --key FILE, or use --munge")
            }
        }
    }
}

/// A mount that works.
enum Serving {
    Local(Mounted),
    Remote(RemoteMounted),
}

impl Serving {
    fn open(flags: &MountFlags, reporter: &Reporter) -> Result<Self> {
        let (source, directory) = flags.places()?;
        let directory = directory.to_owned();
        match source {
            MountSource::Local(LocalPlaces { log, store }) => {
                let log = flags.log.options(log, store);
                Ok(Self::Local(Mounted::open(&MountOptions { log, directory }, reporter)?))
            }
            MountSource::Served(served) => {
                if let Some(flag) = flags.log.first_of_log() {
                    wrong_usage!(
                        "{flag} is for the log, which the server has: set it with `clearway stage serve`; `clearway stage set-class` sets classes of files"
                    );
                }
                let far = match flags.wire {
                    ServerWire::Udp => RemoteTransport::Udp,
                    ServerWire::Ofi => RemoteTransport::Ofi,
                };
                let options = RemoteMountOptions {
                    tree: served.tree,
                    directory,
                    memory: flags.log.memory.0,
                    timeout: flags.server_timeout,
                };
                let servers = served.servers.into_iter().map(|server| {
                    let name = server.to_string();
                    let connector = Box::new(MountConnector::new(server, flags.proof()?, far));
                    Ok(RemoteServer { name, connector })
                });
                let servers = servers.collect::<Result<_>>()?;
                Ok(Self::Remote(RemoteMounted::open(&options, servers, reporter)?))
            }
        }
    }

    fn metrics(&self) -> Arc<dyn MetricSource> {
        match self {
            Self::Local(mounted) => Arc::new(MountMetrics(mounted.status_reader())),
            Self::Remote(mounted) => Arc::new(RemoteMountMetrics(mounted.status_reader())),
        }
    }

    /// Returns what gives up the servers, if there are any.
    fn abandoner(&self) -> Option<ServersAbandoner> {
        match self {
            Self::Local(_) => None,
            Self::Remote(mounted) => Some(mounted.abandoner()),
        }
    }

    fn unmounter(&mut self) -> Unmounter {
        match self {
            Self::Local(mounted) => mounted.unmounter(),
            Self::Remote(mounted) => mounted.unmounter(),
        }
    }

    /// Returns the file for errors and warnings of a mount in the background.
    fn journal(&self, flags: &MountFlags) -> PathBuf {
        match (self, &flags.local) {
            (Self::Remote(mounted), _) => mounted.journal(),
            (Self::Local(_), Some(local)) => local.log.join("mount.log"),
            (Self::Local(_), None) => PathBuf::from("mount.log"),
        }
    }

    fn run(self) -> Result<(), clearway_fs::FsError> {
        match self {
            Self::Local(mounted) => mounted.run(),
            Self::Remote(mounted) => mounted.run(),
        }
    }
}

/// Mounts in this process, or starts the process that does.
pub(crate) fn mount(flags: &MountFlags) -> Result<Exit> {
    if flags.foreground || flags.background { serve(flags) } else { start() }
}

/// Does steps of a drain for the mount that started this process.
pub(crate) fn serve_store() -> Result<Exit> {
    clearway_fs::store::serve().context("cannot work for a mount")?;
    Ok(Exit::Good)
}

/// Starts this command again as the process of the mount, and waits until that works.
fn start() -> Result<Exit> {
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).arg("--background");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().context("cannot start the process of the mount")?;
    let said = child.stderr.take();
    // Read next to what is printed, so that the child never waits; ends with the child, or with
    // this process.
    let said = std::thread::spawn(move || {
        said.map(|said| io::copy(&mut BufReader::new(said), &mut io::stderr()))
    });
    let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    for line in lines.into_iter().flatten().map_while(Result::ok) {
        if line == READY {
            return Ok(Exit::Good);
        }
        let _ = writeln!(io::stderr(), "{line}");
    }
    let _ = said.join();
    let status = child.wait().context("cannot wait for the process of the mount")?;
    // It has said why, on the same standard error.
    std::process::exit(status.code().unwrap_or(Exit::Failed as i32));
}

/// Where the process of a mount writes errors and warnings.
#[derive(Debug)]
enum Journal {
    StandardError,
    /// To the process that started this one.
    Starter,
    File(File),
}

impl Journal {
    fn write(&mut self, sentence: &str) {
        let mut line = format!("clearway: {}\n", escaped(sentence));
        if let Self::File(_) = self {
            // Nobody reads a file at the time of its sentences.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            line = format!("{} {line}", rfc3339(now.as_secs()));
        }
        // Without room for it, the sentence is lost; the mount goes on.
        let _ = match self {
            Self::StandardError => io::stderr().write_all(line.as_bytes()),
            Self::Starter => io::stdout().write_all(line.as_bytes()),
            Self::File(file) => file.write_all(line.as_bytes()),
        };
    }
}

/// Removes a journal without a sentence when it is dropped: after the last one could be written.
struct EmptyJournal(PathBuf);

impl Drop for EmptyJournal {
    fn drop(&mut self) {
        if self.0.metadata().is_ok_and(|found| found.len() == 0) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

/// Mounts in this process, until it is unmounted.
fn serve(flags: &MountFlags) -> Result<Exit> {
    let first = if flags.background { Journal::Starter } else { Journal::StandardError };
    let journal = Arc::new(Mutex::new(first));
    let kept = Arc::clone(&journal);
    let reporter: Reporter = Arc::new(move |sentence| {
        kept.lock().unwrap_or_else(PoisonError::into_inner).write(sentence);
    });
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
    // An address that cannot be bound is an error before anything is mounted.
    let metrics = MetricsListener::bind(flags.metrics)?;
    let mut mounted = Serving::open(flags, &reporter)?;
    let source = mounted.metrics();
    let metrics = metrics.map(|listener| listener.serve("mount", source)).transpose()?;
    if let Some(metrics) = &metrics {
        reporter(&format!("metrics: {}", metrics.place()));
    }
    let is_cut_short = unmount_at_signals(signals, &mut mounted, &reporter);
    let _left = matches!(mounted, Serving::Remote(_) if flags.background)
        .then(|| EmptyJournal(mounted.journal(flags)));
    if flags.background {
        let path = mounted.journal(flags);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        *journal.lock().unwrap_or_else(PoisonError::into_inner) = Journal::File(file);
        let mut out = io::stdout();
        writeln!(out, "{READY}")
            .and_then(|()| out.flush())
            .context("cannot report that the mount works: the command that started it has ended")?;
    }
    let outcome = mounted.run();
    drop(metrics);
    if let Err(why) = &outcome {
        reporter(&why.to_string());
    }
    outcome?;
    Ok(if is_cut_short.load(Ordering::SeqCst) { Exit::Interrupted } else { Exit::Good })
}

/// Has a thread unmount at each signal, until that works. Returns whether programs or servers were
/// not waited for.
fn unmount_at_signals(
    mut signals: Signals,
    mounted: &mut Serving,
    reporter: &Reporter,
) -> Arc<AtomicBool> {
    let (unmounter, abandoner) = (mounted.unmounter(), mounted.abandoner());
    let (reporter, is_cut_short) = (Arc::clone(reporter), Arc::new(AtomicBool::new(false)));
    let cut = Arc::clone(&is_cut_short);
    std::thread::spawn(move || {
        for _ in signals.forever() {
            match unmounter.unmount_for_signal(&cut) {
                Ok(()) => break,
                Err(why) => reporter(&format!("cannot unmount: {why}; the mount stays")),
            }
        }
        if let Some(abandoner) = abandoner {
            // The process ends earlier when the servers have everything.
            std::thread::sleep(SERVERS_GRACE);
            cut.store(true, Ordering::SeqCst);
            abandoner.abandon();
        }
    });
    is_cut_short
}

/// Whether an unmount waits for a server and for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnmountKind {
    Usual,
    /// The servers of the mount are given up, and programs lose their files.
    Forced,
}

/// Unmounts, and waits until everything is in the log.
pub(crate) fn umount(directory: &Path, kind: UnmountKind) -> Result<Exit> {
    if kind == UnmountKind::Forced
        && let Some(ended) = forced_unmount::end(directory)?
    {
        return Ok(ended);
    }
    let (client, _) = match find_mount(directory) {
        Ok(found) => found,
        Err(why) => return umount_left_behind(directory, why),
    };
    if kind == UnmountKind::Forced {
        client.ask(&ControlRequest::Abandon, |_| ())?;
    }
    let mut found = None;
    client.ask(&ControlRequest::Status, |response| {
        if let ControlResponse::Status(status) = response {
            let lacks = status.lag;
            let process = status.server.map(|_| status.process);
            found = Some((PathBuf::from(status.log), process, lacks));
        }
    })?;
    let (log, process, lacks) =
        found.ok_or_else(|| anyhow!("the mount did not report the directory of its log"))?;
    let device = rustix::fs::stat(&client.mounted_on).map(|found| found.st_dev).ok();
    let unmounted = match kind {
        UnmountKind::Usual => unmount(&client.mounted_on),
        // Its process ends with the last program that uses it.
        UnmountKind::Forced => detach(&client.mounted_on),
    };
    unmounted.with_context(|| {
        let mount = client.mounted_on.display();
        format!("cannot unmount {mount}; close what is open there (`fuser -vm {mount}` lists it)")
    })?;
    match process {
        Some(_) if kind == UnmountKind::Forced => {}
        Some(process) => wait_for_process(process)?,
        None => wait_for(&log, device)?,
    }
    if lacks > 0 && process.is_none() {
        notice!(
            "clearway: the drain is unfinished: the store lacked {} at the unmount; the next mount of {} continues",
            counted(lacks, "difference"),
            escaped(&log.display().to_string())
        );
    }
    Ok(Exit::Good)
}

/// Unmounts a mount whose process is gone. Nothing can be written there any more, so it may be busy.
fn umount_left_behind(directory: &Path, why: clearway_fs::FsError) -> Result<Exit> {
    if !is_left_behind(directory) {
        bail!(why);
    }
    detach(directory).with_context(|| format!("cannot unmount {}", directory.display()))?;
    Ok(Exit::Good)
}

/// Waits until the process of a mount has ended.
fn wait_for_process(process: u32) -> Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return Ok(()) };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], None)
        .context("cannot wait for the process of the mount")?;
    Ok(())
}

/// Waits until no process has the log in `path` open. The kernel ends a mount only when its last copy
/// is unmounted; `device` is that of the mount.
fn wait_for(path: &Path, device: Option<u64>) -> Result<()> {
    let lock = File::open(path.join("lock"));
    let lock = lock.with_context(|| format!("cannot see whether {} is closed", path.display()))?;
    let begun = Instant::now();
    let mut looks = 0;
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => {}
            outcome => {
                return outcome
                    .with_context(|| format!("cannot see whether {} is closed", path.display()));
            }
        }
        looks += 1;
        if looks % LOOKS_PER_COPY == 0
            && let Some(copy) = device.and_then(mount_copies::find)
        {
            bail!(
                "unmounted here, but {copy} has a copy of the mount, so its process still has the log {} open; unmount it there, or end that process",
                path.display()
            );
        }
        if begun.elapsed() > CLOSE_MAX {
            bail!(
                "unmounted, but a process has the log {} open after {} s; its disk is slow, or a container has a copy of the mount",
                path.display(),
                CLOSE_MAX.as_secs()
            );
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
