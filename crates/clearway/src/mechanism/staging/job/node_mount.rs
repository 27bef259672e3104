//! The mount of a node: a process that the node's first task starts, and that ends with it.
//!
//! # Model
//! The process mounts, prints one line, and serves requests until the mount is gone. The task
//! unmounts. When the task dies, the process's standard input closes; the process then unmounts by
//! itself, and waits for the server no longer than [`SERVER_WAIT`].
//!
//! # Invariants
//! I1. A signal to all processes of a job does not end the mount: programs may still write then.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddrV4;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use clearway_fs::mount::{detach, is_left_behind, unmount};
use clearway_fs::network::mount::{RemoteMountOptions, RemoteMounted, RemoteServer};
use clearway_proto::base::Bytes;
use clearway_runtime::keys;
use clearway_wires::RemoteTransport;
use clearway_wires::hexadecimal::digits_of;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::super::service::{MountConnector, MountProof, ServerAddress, error_reporter};
use super::TaskSpec;
use super::message::JobServer;
use crate::run::exit::Exit;
use crate::run::rank_process::SECRET_VARIABLE;

/// How long a mount waits for its server after its task died.
const SERVER_WAIT: Duration = Duration::from_secs(3);
/// How long the unmount after an interrupt may wait for the server, at first.
const UNMOUNT_GRACE: Duration = Duration::from_secs(7);
/// How long an unmount takes that finds the mount busy.
const UNMOUNT_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Flags of the process of a mount.
#[derive(Debug, Args)]
pub(crate) struct NodeMountFlags {
    /// Mount these servers.
    #[arg(long = "server", value_name = "ADDR:PORT", required = true)]
    servers: Vec<SocketAddrV4>,
    /// Set the bytes of writes that may wait for the server.
    #[arg(long)]
    memory: Bytes,
    /// Remove the directory at the end.
    #[arg(long)]
    temporary: bool,
    /// The mount point.
    directory: PathBuf,
}

/// The line that the process prints.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum MountStart {
    Mounted,
    Failed(String),
}

/// Mounts in this process, until the mount is gone.
///
/// # Errors
/// The standard output cannot be written, or the mount ended with an error.
pub(crate) fn serve(flags: &NodeMountFlags) -> Result<Exit> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The task gets it, too, and ends the mount when programs have ended.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .context("cannot ignore signals")?;
    }
    let mounted = open(flags);
    let line = match &mounted {
        Ok(_) => MountStart::Mounted,
        Err(why) => MountStart::Failed(format!("{why:#}")),
    };
    let mut line = serde_json::to_vec(&line).context("cannot write the answer as JSON")?;
    line.push(b'\n');
    let printed = io::stdout().write_all(&line).and_then(|()| io::stdout().flush());
    let Ok(mounted) = mounted else {
        // The task may be gone.
        remove(&flags.directory, flags.temporary);
        return Ok(Exit::Failed);
    };
    let (directory, is_temporary) = (flags.directory.clone(), flags.temporary);
    let abandoner = mounted.abandoner();
    thread::spawn(move || {
        if printed.is_ok() {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
        }
        // The unmount writes what the kernel has, and so waits for the server, too.
        thread::spawn(move || {
            thread::sleep(SERVER_WAIT);
            abandoner.abandon();
            thread::sleep(UNMOUNT_MAX);
            std::process::exit(Exit::Failed as i32)
        });
        unmount_or_detach(&directory);
        remove(&directory, is_temporary);
    });
    let outcome = mounted.run();
    remove(&flags.directory, flags.temporary);
    outcome?;
    Ok(Exit::Good)
}

fn open(flags: &NodeMountFlags) -> Result<RemoteMounted> {
    let secret = std::env::var(SECRET_VARIABLE).context("the task gave no key")?.into_bytes();
    let options = RemoteMountOptions {
        tree: String::new(),
        directory: flags.directory.clone(),
        memory: flags.memory.0,
        // The servers end with the job.
        timeout: None,
    };
    let servers = flags.servers.iter().map(|address| {
        let (server, proof) = (ServerAddress::from(*address), MountProof::Key(secret.clone()));
        let name = server.to_string();
        let connector = Box::new(MountConnector::new(server, proof, RemoteTransport::Udp));
        RemoteServer { name, connector }
    });
    Ok(RemoteMounted::open(&options, servers.collect(), &error_reporter())?)
}

/// Unmounts; detaches the mount if it stays busy.
fn unmount_or_detach(directory: &Path) {
    if unmount(directory).is_err() {
        // What cannot be detached either is gone already.
        let _ = detach(directory);
    }
}

fn remove(directory: &Path, is_temporary: bool) {
    if is_temporary {
        // The task or the process of the mount may have done it.
        let _ = std::fs::remove_dir(directory);
    }
}

/// Ends the process of a mount, which gives its server up if that does not answer soon, and reports
/// the files that lose bytes.
#[derive(Clone)]
pub(super) struct UnmountLimit(Arc<Mutex<Option<ChildStdin>>>);

impl UnmountLimit {
    /// Has the process end.
    pub(super) fn end(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Has the process end after [`UNMOUNT_GRACE`].
    pub(super) fn end_soon(&self) {
        let limit = self.clone();
        thread::spawn(move || {
            thread::sleep(UNMOUNT_GRACE);
            limit.end();
        });
    }
}

/// The mount of a node, as its first task has it.
pub(super) struct NodeMount {
    process: Child,
    /// The process ends when this is closed.
    stdin: UnmountLimit,
    pub(super) directory: PathBuf,
    is_temporary: bool,
}

impl NodeMount {
    /// Mounts `servers` of the job of `spec`.
    ///
    /// # Errors
    /// One sentence: they cannot be mounted.
    pub(super) fn open(spec: &TaskSpec<'_>, servers: &[JobServer]) -> Result<Self> {
        let directory = match &spec.flags.mount {
            Some(directory) => std::path::absolute(directory)
                .with_context(|| format!("no directory {}", directory.display()))?,
            None => temporary_directory()?,
        };
        let is_temporary = spec.flags.mount.is_none();
        let opened = Self::start(spec, servers, &directory, is_temporary);
        if opened.is_err() {
            remove(&directory, is_temporary);
        }
        opened
    }

    fn start(
        spec: &TaskSpec<'_>,
        servers: &[JobServer],
        directory: &Path,
        is_temporary: bool,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        let memory = format!("{}B", spec.flags.log.memory.0);
        command.args(["stage", "job-mount", "--memory", &memory]);
        for JobServer { host, port } in servers {
            let address = SocketAddrV4::new(host.unwrap_or(spec.coordinator_host), *port);
            command.args(["--server", &address.to_string()]);
        }
        command.args(is_temporary.then_some("--temporary")).arg(directory);
        command.env(SECRET_VARIABLE, &spec.secret);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().context("cannot start the process of the mount")?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let start = serde_json::from_str(&line);
        let directory = directory.to_owned();
        // A wait for the process would close its standard input.
        let stdin = UnmountLimit(Arc::new(Mutex::new(process.stdin.take())));
        let mount = Self { process, stdin, directory, is_temporary };
        match start {
            Ok(MountStart::Mounted) => Ok(mount),
            Ok(MountStart::Failed(why)) => {
                mount.stop();
                bail!(why)
            }
            Err(_) => {
                mount.stop();
                bail!("the process of the mount ended before it had mounted")
            }
        }
    }

    /// Returns the process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns what limits the time of [`NodeMount::close`].
    pub(super) fn unmount_limit(&self) -> UnmountLimit {
        self.stdin.clone()
    }

    /// Unmounts, and waits until the server has everything, or the limit ends the wait.
    ///
    /// # Errors
    /// One sentence: a process still used it, so that later writes are lost.
    pub(super) fn close(mut self) -> Result<()> {
        let outcome = unmount(&self.directory).map_err(|why| {
            // A detached mount ends with its last user, or with its process.
            let _ = detach(&self.directory);
            let _ = self.process.kill();
            anyhow!("cannot unmount {}: {why}", self.directory.display())
        });
        let status = self.process.wait().context("cannot wait for the process of the mount");
        remove(&self.directory, self.is_temporary);
        outcome?;
        match status? {
            status if status.success() => Ok(()),
            status => bail!("the process of the mount ended with {status}"),
        }
    }

    /// Ends it within some seconds; writes that the server lacks then are lost.
    pub(super) fn stop(mut self) {
        // The process unmounts, because a launcher may kill this task meanwhile.
        self.stdin.end();
        let until = Instant::now() + UNMOUNT_MAX + SERVER_WAIT + UNMOUNT_MAX;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        // A killed process leaves its mount behind.
        if is_left_behind(&self.directory) {
            unmount_or_detach(&self.directory);
        }
        remove(&self.directory, self.is_temporary);
    }
}

/// Makes a directory that no other job has.
fn temporary_directory() -> Result<PathBuf> {
    let drawn = keys::random::<8>().context("the system has no randomness")?;
    let path = std::env::temp_dir().join(format!("clearway-stage-{}", digits_of(&drawn)));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}
