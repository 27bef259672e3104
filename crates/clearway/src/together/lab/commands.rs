//! The commands of transfers in the hosts of a lab: servers, mounts, and the lines that load.
//!
//! # Model
//! What takes time to come up and sends nothing by itself, receivers of the cast, the staging server
//! and its mounts, is there before a run and ends after it. The lines that load are run by guards, as
//! congestor commands are.
//!
//! # Invariants
//! I1. A mount is gone before its server is, also when a terminal interrupts: servers have process
//!     groups of their own.
//! I2. All files lie below one directory of the user's, which is removed at the end.
//! I3. When this process is killed, servers end, and the next run removes what it left.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clearway_lab::Lab;
use clearway_proto::base::{RandomKey, Rank};
use clearway_runtime::{clock, launch};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, geteuid};

use super::super::roles::{HostRoles, Transfer};
use super::counters::TransferCounter;
use super::mpi_ping::{self, MpiTools};
use super::puts;

/// Ports of metrics, on the loopback of their hosts.
const TIMESLICES: u16 = 9464;
const CAST: u16 = 9465;
const CHECKPOINT: u16 = 9466;
/// The files in which PEs count end with the number of a PE behind this name.
const PUT_COUNTERS: &str = "put-counter";
/// The file in which the MPI program writes its times.
const MPI_TIMES: &str = "mpi-times";
/// Where the staging server listens.
const SERVER_PORT: u16 = 27183;
/// Bytes of the staging server's log.
const LOG: &str = "512MiB";
/// Bytes of the file that is cast again and again; random, because casts compress.
const CAST_FILE: usize = 16 << 20;
/// How long a server may take until it says where it listens.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a mount may take to end, whose server is there.
const UNMOUNTED_WITHIN: Duration = Duration::from_secs(20);
/// How often an end is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The names of directories begin so, before the process and a number.
const DIRECTORY: &str = "clearway-together-";
/// Runs a command until this process closes its standard input, however it ends.
const UNTIL_CLOSED: &str =
    "\"$@\" </dev/null & process=$!; cat >/dev/null; kill $process; wait $process";

/// The commands of one run.
pub(super) struct LabCommands {
    directory: PathBuf,
    program: PathBuf,
    /// Servers, receivers, and processes that hold the network namespace of a host.
    servers: Vec<Child>,
    mounts: Vec<PathBuf>,
}

/// A line for the shell that loads, and where.
pub(super) struct LoadLine {
    pub(super) transfer: Transfer,
    pub(super) line: String,
    pub(super) hosts: Vec<Rank>,
}

impl Transfer {
    /// Returns the host whose command counts.
    pub(super) fn counting_host(self, roles: &HostRoles) -> Option<Rank> {
        match self {
            Self::Puts => roles.pes.first().copied(),
            Self::Timeslices => Some(Rank(roles.inputs.start)),
            Self::Cast => roles.members.first().copied(),
            Self::Checkpoint => roles.staging.first()?.first().copied(),
        }
    }
}

impl LabCommands {
    /// Makes a directory for the files of commands below that of temporary files.
    pub(super) fn new(key: RandomKey) -> Result<Self> {
        remove_leftovers();
        let name = format!("{DIRECTORY}{}-{:x}", std::process::id(), clock::now().0);
        let directory = std::env::temp_dir().join(name);
        // Commands run what lies here: nobody else may have made it.
        DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
        let program = std::env::current_exe().context("the path of this program")?;
        let this = Self { directory, program, servers: Vec::new(), mounts: Vec::new() };
        let mut stream = key.purpose("contents").stream();
        let mut words = |bytes: usize| -> Vec<u8> {
            (0..bytes / 8).flat_map(|_| stream.next_u64().to_le_bytes()).collect()
        };
        this.write("key", &words(32), 0o600)?;
        this.write("file", &words(CAST_FILE), 0o600)?;
        Ok(this)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn write(&self, name: &str, contents: &[u8], mode: u32) -> Result<()> {
        let path = self.path(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let written = file.and_then(|mut file| file.write_all(contents));
        written.with_context(|| format!("{} cannot be written", path.display()))
    }

    fn make(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir_all(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(path)
    }

    /// Returns the counter of what a transfer carried.
    pub(super) fn counter(&self, transfer: Transfer) -> TransferCounter {
        let (port, name) = match transfer {
            Transfer::Puts => return TransferCounter::Files(self.path(PUT_COUNTERS)),
            Transfer::Timeslices => (TIMESLICES, "clearway_timeslice_landed_bytes_total"),
            Transfer::Cast => (CAST, "clearway_cast_received_bytes_total"),
            Transfer::Checkpoint => (CHECKPOINT, "clearway_staging_written_bytes_total"),
        };
        TransferCounter::Served { port, name }
    }

    /// Starts what `transfer` needs before it loads, and returns the lines that load.
    ///
    /// # Errors
    /// One sentence: what did not start.
    pub(super) fn prepare(
        &mut self,
        lab: &Lab,
        roles: &HostRoles,
        transfer: Transfer,
    ) -> Result<Vec<LoadLine>> {
        let lines = match transfer {
            Transfer::Puts => vec![self.puts(lab, roles)?],
            Transfer::Timeslices => vec![self.timeslices(lab, roles)?],
            Transfer::Cast => vec![self.cast(lab, roles)?],
            Transfer::Checkpoint => self.checkpoint(lab, roles)?,
        };
        Ok(lines)
    }

    /// Starts `command` on `host`; it ends when this value is dropped.
    fn start(&mut self, lab: &Lab, host: Rank, command: &Command) -> Result<&mut Child> {
        let name = command.get_program().display().to_string();
        let mut shell = Command::new("sh");
        shell.args(["-c", UNTIL_CLOSED, "sh"]).arg(command.get_program());
        shell.args(command.get_args()).stdin(Stdio::piped()).stdout(Stdio::null());
        shell.stderr(Stdio::piped()).process_group(0);
        let child = lab.spawn(host, shell);
        self.servers.push(child.with_context(|| format!("{name} cannot start on host {host}"))?);
        self.servers.last_mut().context("a process that was just started")
    }

    /// Starts `command`, a server of this program, and waits until it says that it `listens`.
    fn serve(&mut self, lab: &Lab, host: Rank, command: &Command, listens: &str) -> Result<()> {
        let child = self.start(lab, host, command)?;
        let output = child.stderr.take().context("a server without output")?;
        let lines = forwarded(BufReader::new(output));
        let mut last = String::new();
        while let Ok(line) = lines.recv_timeout(TIMEOUT) {
            if line.contains(listens) {
                return Ok(());
            }
            last = line;
        }
        bail!("a server on host {host} does not listen: {last}")
    }

    /// Makes what a launcher on the first of `ranks` needs to start processes on all of them: a script
    /// `ssh` that enters the network namespace of a host instead of connecting to it, and a list of
    /// hosts. Returns a directory for PATH, and the list, both as words for a shell.
    fn reach(&mut self, lab: &Lab, name: &str, ranks: &[Rank]) -> Result<[String; 2]> {
        let (mut cases, mut hosts) = (String::new(), String::new());
        for rank in ranks {
            let host = host_name(lab, *rank)?;
            let mut holder = Command::new("sleep");
            holder.arg("infinity");
            let process = self.start(lab, *rank, &holder)?.id();
            let address = address(lab, *rank)?;
            cases += &format!("{host}|{address}) process={process}; break;;\n");
            hosts += &format!("{host}\n");
        }
        let coordinator = address(lab, *ranks.first().context("a job without hosts")?)?;
        // Virtual hosts have the machine's name, which leads nowhere in their network.
        let script = format!(
            "#!/bin/sh\nprocess=none\nwhile [ $# -gt 0 ]; do\ncase $1 in\n{cases}esac\nshift\ndone\n\
             if [ $process = none ]; then echo \"no virtual host is named\" >&2; exit 255; fi\nshift\n\
             line=$(printf %s \"$*\" | sed \"s/CLEARWAY_MEET='[^:']*:/CLEARWAY_MEET='{coordinator}:/\")\n\
             exec nsenter --net=/proc/$process/ns/net /bin/sh -c \"$line\"\n"
        );
        self.make(name)?;
        let [ssh, list] = ["ssh", "hosts"].map(|file| format!("{name}/{file}"));
        self.write(&ssh, script.as_bytes(), 0o700)?;
        self.write(&list, hosts.as_bytes(), 0o600)?;
        Ok([name, &list].map(|name| quoted(&self.path(name))))
    }

    /// Compiles the MPI program for `hosts`; returns the line for the shell that runs it from the first
    /// of them, and the file in which it writes its times.
    pub(super) fn mpi(
        &mut self,
        lab: &Lab,
        hosts: [Rank; 2],
        tools: &MpiTools,
    ) -> Result<(String, PathBuf)> {
        let program = mpi_ping::PROGRAM.compile(tools.compiler(), &self.directory)?;
        let [bin, _] = self.reach(lab, "reach-mpi", &hosts)?;
        let [first, second] = [address(lab, hosts[0])?, address(lab, hosts[1])?];
        let times = self.path(MPI_TIMES);
        let launch = tools.launch(&bin, [&first, &second]);
        Ok((format!("{launch} {} {}", quoted(&program), quoted(&times)), times))
    }

    /// Compiles the OpenSHMEM program.
    fn puts(&mut self, lab: &Lab, roles: &HostRoles) -> Result<LoadLine> {
        let tools = puts::tools().map_err(anyhow::Error::msg)?;
        let program = puts::PROGRAM.compile(&tools.oshcc, &self.directory)?;
        let [bin, hosts] = self.reach(lab, "reach-puts", &roles.pes)?;
        let line = format!(
            "PATH={bin}:$PATH SHMEM_CLASS={} exec {} --launcher here --hostfile {hosts} {} {}",
            puts::CLASS,
            quoted(&tools.oshrun),
            quoted(&program),
            quoted(&self.path(PUT_COUNTERS))
        );
        let first = *roles.pes.first().context("puts without PEs")?;
        Ok(LoadLine { transfer: Transfer::Puts, line, hosts: vec![first] })
    }

    /// Prepares timeslice building.
    fn timeslices(&mut self, lab: &Lab, roles: &HostRoles) -> Result<LoadLine> {
        let ranks: Vec<Rank> = (roles.inputs.start..roles.builders.end).map(Rank).collect();
        let [bin, hosts] = self.reach(lab, "reach-timeslices", &ranks)?;
        let out = quoted(&self.path("timeslices"));
        let line = format!(
            "PATH={bin}:$PATH exec {} timeslice build --hostfile {hosts} --timeslices 100000000 --contribution 16KiB \
             --ring 512KiB --insecure --wire udp --metrics 127.0.0.1:{TIMESLICES} --out {out} --overwrite",
            quoted(&self.program)
        );
        let coordinator = Rank(roles.inputs.start);
        Ok(LoadLine { transfer: Transfer::Timeslices, line, hosts: vec![coordinator] })
    }

    /// Starts the receivers of the cast.
    fn cast(&mut self, lab: &Lab, roles: &HostRoles) -> Result<LoadLine> {
        let (root, receivers) = roles.members.split_first().context("a cast without members")?;
        // On a switch that floods them, casts would fill the links of hosts that take no part.
        lab.multicast_only_to(&roles.members)?;
        let mut targets = Vec::new();
        for host in receivers {
            let into = self.make(&format!("received-{}", host.0))?;
            let mut command = Command::new(&self.program);
            command.args(["cast", "serve", "--key"]).arg(self.path("key")).arg("--into").arg(into);
            self.serve(lab, *host, &command, "listening at")?;
            targets.push(address(lab, *host)?);
        }
        let [key, file] = ["key", "file"].map(|name| quoted(&self.path(name)));
        let stream = launch::quoted(&format!("while cat {file}; do :; done"));
        let line = format!(
            "exec {} cast --exec {stream} --name stream --key {key} --to {} --metrics \
             127.0.0.1:{CAST}",
            quoted(&self.program),
            targets.join(",")
        );
        Ok(LoadLine { transfer: Transfer::Cast, line, hosts: vec![*root] })
    }

    /// Starts the staging server and its mounts.
    fn checkpoint(&mut self, lab: &Lab, roles: &HostRoles) -> Result<Vec<LoadLine>> {
        let group = roles.staging.first().context("a checkpoint without hosts")?;
        let (server, clients) = group.split_first().context("a checkpoint without a server")?;
        let [log, store] = [self.make("log")?, self.make("store")?];
        let server_address = format!("{}:{SERVER_PORT}", address(lab, *server)?);
        let mut command = Command::new(&self.program);
        command.args([
            "stage",
            "serve",
            "--size",
            LOG,
            "--class",
            Transfer::Checkpoint.class().name(),
        ]);
        command.args(["--listen", &server_address]);
        command.args(["--metrics", &format!("127.0.0.1:{CHECKPOINT}")]);
        command.arg("--data").arg(log).arg("--backing").arg(store);
        command.arg("--key").arg(self.path("key"));
        self.serve(lab, *server, &command, " at ")?;
        let mut lines = Vec::new();
        for client in clients {
            let directory = self.make(&format!("mount-{}", client.0))?;
            let mut command = Command::new(&self.program);
            command.args(["mount", &server_address]).arg(&directory);
            command.arg("--key").arg(self.path("key"));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.process_group(0);
            let mounting = lab.spawn(*client, command).context("clearway mount cannot start")?;
            let output = mounting.wait_with_output().context("clearway mount")?;
            if !output.status.success() {
                bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
            }
            self.mounts.push(directory.clone());
            // Small files: closing one waits for what the server lacks of it. That of all clients together must
            // cross the link within the time that a command has to end.
            let line = format!(
                "n=0; while dd if=/dev/zero of={}/part.$n bs=512K count=1 oflag=direct 2>/dev/null; do \
                 n=$(( (n + 1) % 16 )); done; exit 1",
                quoted(&directory)
            );
            lines.push(LoadLine { transfer: Transfer::Checkpoint, line, hosts: vec![*client] });
        }
        Ok(lines)
    }

    /// Unmounts, and ends all servers.
    fn end(&mut self) {
        for mount in self.mounts.drain(..) {
            let mut command = Command::new(&self.program);
            command.arg("umount").arg(&mount).process_group(0);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let ended = command.spawn().map(|mut unmounting| has_succeeded(&mut unmounting));
            if !matches!(ended, Ok(true)) {
                // Its process ends with the lab.
                let _ = umount2(&mount, MntFlags::MNT_DETACH);
            }
        }
        for mut server in self.servers.drain(..) {
            let _ = killpg(Pid::from_raw(server.id().cast_signed()), Signal::SIGKILL);
            let _ = server.wait();
        }
    }
}

impl Drop for LabCommands {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Waits for `process`, and ends it when it takes too long; returns whether it succeeded.
fn has_succeeded(process: &mut Child) -> bool {
    let until = Instant::now() + UNMOUNTED_WITHIN;
    while Instant::now() < until {
        if let Ok(Some(status)) = process.try_wait() {
            return status.success();
        }
        thread::sleep(LOOK_EVERY);
    }
    // It may wait in the kernel for the mount, and cannot be waited for.
    let _ = process.kill();
    false
}

/// Removes what runs of this user left that were killed.
fn remove_leftovers() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let of_run = name.to_str().and_then(|name| name.strip_prefix(DIRECTORY));
        let process = of_run.and_then(|rest| rest.split('-').next()).filter(|it| !it.is_empty());
        let is_own = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == geteuid().as_raw());
        let is_gone = |process: &str| !Path::new("/proc").join(process).exists();
        if !is_own || !process.is_some_and(is_gone) {
            continue;
        }
        for mount in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            if mount.file_name().as_encoded_bytes().starts_with(b"mount-") {
                let _ = umount2(&mount.path(), MntFlags::MNT_DETACH);
            }
        }
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// Returns the lines of `output` as they come; nobody's output waits for a reader.
fn forwarded(output: impl BufRead + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

fn host_name(lab: &Lab, host: Rank) -> Result<&str> {
    let host = lab.hosts().get(host.index()).context("a host that the lab has not")?;
    Ok(&host.name)
}

fn address(lab: &Lab, host: Rank) -> Result<String> {
    let host = lab.hosts().get(host.index()).context("a host that the lab has not")?;
    Ok(host.address.to_string())
}

/// Returns `path` as a word of a line for the shell.
fn quoted(path: &Path) -> String {
    launch::quoted(&path.display().to_string())
}
