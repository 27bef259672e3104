//! A task of a job: handles requests of the coordinator, and runs the program. The first task of a
//! node also has the node's mount, and perhaps a server.
//!
//! # Model
//! One thread acts on events; other threads deliver them: requests, signals, and ends of processes.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::message::{JobServer, TaskConnection, TaskReport, TaskRequest, receive, send};
use super::node_mount::{NodeMount, UnmountLimit};
use super::node_server::{NodeServer, wait_for_store};
use super::program::{PASSED_ON, RunningProgram, end_with, shell_status};
use super::shared_store::has_probe;
use super::{ORPHAN_GRACE, TaskSpec};
use crate::run::exit::Exit;

/// How long a program has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// What happens to a task.
enum TaskEvent {
    /// The coordinator wants something; `None` when it is gone.
    Requested(Option<TaskRequest>),
    Signalled(i32),
    ProgramEnded,
    MountEnded,
    /// The mount is gone, and the server has everything, or why not.
    MountClosed(Result<()>),
    /// The store has everything of the log, or why not.
    Drained(Result<()>),
}

/// A task.
pub(super) struct Task<'a> {
    spec: TaskSpec<'a>,
    output: Box<dyn std::io::Write + Send>,
    sender: Sender<TaskEvent>,
    events: Receiver<TaskEvent>,
    server: Option<NodeServer>,
    mount: Option<NodeMount>,
    /// Limits the unmount that is under way.
    unmount: Option<UnmountLimit>,
    program: Option<RunningProgram>,
    /// Signals that came before the program began; none once it has.
    early: Option<Vec<Signal>>,
    /// When a program that has to end is killed.
    kill_at: Option<Instant>,
    is_stopping: bool,
    status: i32,
}

impl<'a> Task<'a> {
    /// Creates a task that listens to the coordinator and to signals from now on.
    ///
    /// # Errors
    /// The system has no room for threads.
    pub(super) fn new(spec: TaskSpec<'a>, (input, output): TaskConnection) -> Result<Self> {
        let (sender, events) = channel();
        let mut signals = Signals::new(PASSED_ON).context("cannot listen for signals")?;
        let signalled = sender.clone();
        thread::spawn(move || {
            signals.forever().all(|signal| signalled.send(TaskEvent::Signalled(signal)).is_ok())
        });
        let requested = sender.clone();
        thread::spawn(move || {
            receive(input, |request| requested.send(TaskEvent::Requested(request)).is_ok());
        });
        Ok(Self {
            spec,
            output,
            sender,
            events,
            server: None,
            mount: None,
            unmount: None,
            program: None,
            early: Some(Vec::new()),
            kill_at: None,
            is_stopping: false,
            status: 0,
        })
    }

    /// Returns the task with a server that is open already.
    pub(super) fn with_server(mut self, server: NodeServer) -> Self {
        self.server = Some(server);
        self
    }

    /// Handles requests until the job is over; returns the status of the program. The
    /// calling thread starts the program, which ends with it.
    ///
    /// # Errors
    /// One sentence: the coordinator is gone.
    pub(super) fn run(mut self) -> Result<i32> {
        loop {
            match self.next()? {
                None => self.kill(),
                Some(TaskEvent::Requested(Some(TaskRequest::Leave))) => return Ok(self.status),
                Some(TaskEvent::Requested(Some(request))) => self.handle_request(request),
                Some(TaskEvent::Requested(None)) => {
                    self.abandon();
                    return Err(anyhow!(
                        "{}, which coordinates the job, is gone",
                        self.spec.coordinator
                    ));
                }
                Some(TaskEvent::Signalled(signal)) => self.pass_on(signal),
                Some(TaskEvent::ProgramEnded) => self.end_program(),
                Some(TaskEvent::MountEnded) => self.mount_ended(),
                Some(TaskEvent::MountClosed(outcome)) => self.mount_closed(&outcome),
                Some(TaskEvent::Drained(Ok(()))) => self.report(&TaskReport::Drained),
                Some(TaskEvent::Drained(Err(why))) => self.fail(&why),
            }
        }
    }

    /// Returns the next event, or `None` when the program must be killed.
    fn next(&self) -> Result<Option<TaskEvent>> {
        let Some(at) = self.kill_at else {
            return self.events.recv().map(Some).context("no event can reach this task any more");
        };
        match self.events.recv_timeout(at.saturating_duration_since(Instant::now())) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(why) => Err(why).context("no event can reach this task any more"),
        }
    }

    fn report(&mut self, report: &TaskReport) {
        send(&mut self.output, report);
    }

    fn fail(&mut self, why: &anyhow::Error) {
        self.report(&TaskReport::Failed { sentence: format!("{why:#}") });
    }

    fn handle_request(&mut self, request: TaskRequest) {
        let outcome = match request {
            TaskRequest::FindProbe { name } => self.find_probe(&name),
            TaskRequest::Serve => self.open_server(),
            TaskRequest::Mount { servers } => self.open_mount(&servers),
            TaskRequest::Run { directory } => self.start(&directory),
            TaskRequest::EndProgram => {
                self.end_soon();
                Ok(())
            }
            TaskRequest::Unmount => {
                self.close_mount();
                Ok(())
            }
            TaskRequest::LimitUnmount => {
                self.unmount.iter().for_each(UnmountLimit::end_soon);
                Ok(())
            }
            TaskRequest::Drain => {
                self.drain();
                Ok(())
            }
            TaskRequest::CloseServer => self.close_server(),
            TaskRequest::Abort => {
                self.stop();
                Ok(())
            }
            TaskRequest::Leave => Ok(()),
        };
        if let Err(why) = outcome {
            self.fail(&why);
        }
    }

    fn find_probe(&mut self, name: &str) -> Result<()> {
        let is_there = has_probe(&self.spec.flags.backing, name)?;
        self.report(&TaskReport::ProbeLookedUp { is_there });
        Ok(())
    }

    fn open_server(&mut self) -> Result<()> {
        let server = NodeServer::open(self.spec.flags, &self.spec.secret, Ipv4Addr::UNSPECIFIED)?;
        self.report(&TaskReport::Serving { port: server.port() });
        self.server = Some(server);
        Ok(())
    }

    /// Starts a thread that waits for the drain: this one must handle signals and requests.
    fn drain(&self) {
        let sender = self.sender.clone();
        let log = self.server.as_ref().map(|server| server.log().to_owned());
        thread::spawn(move || {
            let drained = log.map_or(Ok(()), |log| wait_for_store(&log));
            let drained = drained.context("not everything is in the backing directory");
            sender.send(TaskEvent::Drained(drained))
        });
    }

    fn close_server(&mut self) -> Result<()> {
        if let Some(server) = self.server.take() {
            server.close()?;
        }
        self.report(&TaskReport::ServerClosed);
        Ok(())
    }

    fn open_mount(&mut self, servers: &[JobServer]) -> Result<()> {
        let mount = NodeMount::open(&self.spec, servers)?;
        self.watch(mount.id(), || TaskEvent::MountEnded)?;
        let directory = mount.directory.clone();
        self.mount = Some(mount);
        self.report(&TaskReport::Mounted { directory });
        Ok(())
    }

    fn start(&mut self, directory: &Path) -> Result<()> {
        let program = RunningProgram::spawn(&self.spec, directory)?;
        self.watch(program.id(), || TaskEvent::ProgramEnded)?;
        let early = self.early.take().unwrap_or_default();
        // At a terminal, too: there was no program that could get them.
        early.into_iter().for_each(|signal| program.signal(signal));
        self.program = Some(program);
        Ok(())
    }

    /// Delivers an event when a child has ended. The child is not reaped, so that its process
    /// number is not used again.
    fn watch(&self, process: u32, event: fn() -> TaskEvent) -> Result<()> {
        let process = Pid::from_raw(process.cast_signed()).context("a process without a number")?;
        let process = pidfd_open(process, PidfdFlags::empty()).context("cannot watch a process")?;
        let sender = self.sender.clone();
        thread::spawn(move || {
            while poll(&mut [PollFd::new(&process, PollFlags::IN)], None).is_err() {}
            // A task that has ended does not care.
            let _ = sender.send(event());
        });
        Ok(())
    }

    fn end_soon(&mut self) {
        if let Some(program) = &self.program {
            program.signal(Signal::SIGTERM);
            self.kill_at = Some(Instant::now() + GRACE);
        }
    }

    /// Unmounts in a thread: this one must handle signals and requests.
    fn close_mount(&mut self) {
        let Some(mount) = self.mount.take() else {
            return self.report(&TaskReport::Unmounted);
        };
        self.unmount = Some(mount.unmount_limit());
        let sender = self.sender.clone();
        thread::spawn(move || sender.send(TaskEvent::MountClosed(mount.close())));
    }

    fn mount_closed(&mut self, outcome: &Result<()>) {
        self.unmount = None;
        match outcome {
            Err(why) if !self.is_stopping => self.fail(why),
            _ => self.report(&TaskReport::Unmounted),
        }
    }

    fn stop(&mut self) {
        self.is_stopping = true;
        self.end_soon();
        self.finish_stop();
    }

    /// Ends the mount when there is no program any more.
    fn finish_stop(&mut self) {
        if self.is_stopping && self.program.is_none() {
            self.status = Exit::Failed as i32;
            if let Some(unmount) = &self.unmount {
                // Its end is reported.
                return unmount.end();
            }
            self.stop_mount();
            self.report(&TaskReport::Unmounted);
        }
    }

    fn stop_mount(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.stop();
        }
    }

    /// Kills a program that did not end. One that is blocked on the mount ends only with the mount.
    fn kill(&mut self) {
        self.kill_at = None;
        if let Some(program) = &self.program {
            program.signal(Signal::SIGKILL);
        }
        if self.is_stopping {
            self.stop_mount();
        }
    }

    /// Ends all without a coordinator.
    fn abandon(&mut self) {
        if let Some(program) = self.program.take() {
            program.signal(Signal::SIGKILL);
            self.stop_mount();
            let _ = program.finish();
        }
        self.stop_mount();
        thread::sleep(ORPHAN_GRACE);
    }

    fn pass_on(&mut self, signal: i32) {
        // The coordinator must not take an interrupt for one that the program has seen.
        if self.program.as_ref().is_some_and(RunningProgram::has_ended) {
            self.end_program();
        }
        match (&self.program, &mut self.early, Signal::try_from(signal)) {
            (Some(program), _, Ok(signal)) => program.pass_on(signal),
            (None, Some(early), Ok(signal)) => early.push(signal),
            _ => {}
        }
        if !matches!(signal, SIGUSR1 | SIGUSR2) {
            self.report(&TaskReport::Interrupted);
        }
    }

    fn end_program(&mut self) {
        self.kill_at = None;
        let Some(program) = self.program.take() else { return };
        match program.finish() {
            Ok(status) => {
                self.status = shell_status(status);
                self.report(&TaskReport::Ended(end_with(status)));
            }
            Err(why) => self.fail(&why),
        }
        self.finish_stop();
    }

    fn mount_ended(&mut self) {
        if let Some(mount) = self.mount.as_ref().filter(|_| !self.is_stopping) {
            let sentence = format!("the process of the mount {} ended", mount.directory.display());
            self.report(&TaskReport::Failed { sentence });
        }
    }
}
