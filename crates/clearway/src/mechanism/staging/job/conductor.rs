//! Orders all tasks of a job through its phases: mount, run the programs, unmount. Then it waits
//! for the drain, and closes the server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_fs::client::ControlClient;
use clearway_fs::control::{ControlPath, ControlRequest, ControlResponse, SafetyLevel};
use clearway_runtime::launch::escaped;

use super::super::service::Service;
use super::message::{ApplicationEnd, Order, TaskConnection, TaskReport, receive, send};
use super::{DrainPolicy, ORPHANS};
use crate::run::exit::{Exit, exit_of};
use crate::run::interrupt::Interrupted;

/// How long tasks have to end after a failure; a task stops its program and its mount within some
/// ten seconds.
const STOPPING: Duration = Duration::from_secs(20);
/// What becomes of a drain that nobody waits for.
const CONTINUES: &str = "the next server of the log continues the drain";

/// Where a task is.
pub(super) struct TaskPlace {
    pub(super) rank: u32,
    /// The number of its host.
    pub(super) host: usize,
    /// The name of its host.
    pub(super) name: String,
}

/// A task, and the way to it.
struct ConductedTask {
    place: TaskPlace,
    output: Box<dyn std::io::Write + Send>,
    /// Its connection has not ended.
    is_there: bool,
}

/// A job that failed, after the message about it was printed.
pub(super) struct JobFailure {
    pub(super) exit: Exit,
    /// A task is gone, so that not all can leave together.
    pub(super) is_incomplete: bool,
}

/// What the conductor hears.
enum JobEvent {
    /// A task reports; nothing, when it is gone.
    Reported(usize, Option<TaskReport>),
    /// The store has everything, or why not.
    Drained(Result<()>),
}

/// The conductor. Tasks are numbered in the order in which they were added; the first one is the
/// task of its own process.
pub(super) struct Conductor {
    tasks: Vec<ConductedTask>,
    sender: Sender<JobEvent>,
    heard: Receiver<JobEvent>,
    is_interrupted: bool,
}

impl Default for Conductor {
    fn default() -> Self {
        let (sender, heard) = channel();
        Self { tasks: Vec::new(), sender, heard, is_interrupted: false }
    }
}

impl Conductor {
    /// Takes in a task.
    pub(super) fn add(&mut self, place: TaskPlace, (input, output): TaskConnection) {
        let (number, sender) = (self.tasks.len(), self.sender.clone());
        thread::spawn(move || {
            receive(input, |report| sender.send(JobEvent::Reported(number, report)).is_ok());
        });
        self.tasks.push(ConductedTask { place, output, is_there: true });
    }

    /// Conducts the job of all tasks, and closes the server.
    pub(super) fn conduct(
        mut self,
        service: Service,
        log: &Path,
        policy: DrainPolicy,
    ) -> Result<(), JobFailure> {
        let mut outcome = self.run_job(service.address.port(), log, policy);
        if let Err(why) = &outcome {
            // The launcher may end this process as soon as another one ends.
            report(why);
            self.stop();
        }
        let closed = service.close();
        if let (Ok(()), Err(why)) = (&outcome, &closed) {
            report(why);
            outcome = closed;
        }
        (0..self.tasks.len()).for_each(|task| self.order(task, &Order::Leave));
        let is_incomplete = self.tasks.iter().any(|task| !task.is_there);
        outcome.map_err(|why| JobFailure { exit: exit_of(&why), is_incomplete })
    }

    fn run_job(&mut self, port: u16, log: &Path, policy: DrainPolicy) -> Result<()> {
        let first = |host| self.tasks.iter().position(|task| task.place.host == host);
        let holders: Vec<usize> = (0..self.tasks.len()).map_while(first).collect();
        let directories = self.mount(&holders, port)?;
        let has_failed = self.run_programs(&directories)?;
        self.unmount(&holders)?;
        match (policy, self.is_interrupted && has_failed) {
            (DrainPolicy::Leave, _) => Ok(()),
            (DrainPolicy::Wait, true) => {
                eprintln!("clearway: interrupted; {CONTINUES}");
                Ok(())
            }
            (DrainPolicy::Wait, false) => self.drain(log),
        }
    }

    /// Lets the first task of each host mount; returns the mount point of each host.
    fn mount(&mut self, holders: &[usize], port: u16) -> Result<BTreeMap<usize, PathBuf>> {
        holders.iter().for_each(|holder| self.order(*holder, &Order::Mount { port }));
        let mut directories = BTreeMap::new();
        while directories.len() < holders.len() {
            match self.next()? {
                (task, TaskReport::Mounted { directory }) => {
                    let host = self.tasks.get(task).map(|task| task.place.host);
                    directories.extend(host.map(|host| (host, directory)));
                }
                (_, TaskReport::Interrupted) => bail!(Interrupted::default()),
                _ => {}
            }
        }
        Ok(directories)
    }

    /// Lets all tasks run the program to its end; returns whether one failed.
    fn run_programs(&mut self, directories: &BTreeMap<usize, PathBuf>) -> Result<bool> {
        for task in 0..self.tasks.len() {
            let host = self.tasks.get(task).map(|task| task.place.host);
            let directory = host.and_then(|host| directories.get(&host));
            let directory = directory.context("a host without a mount")?.clone();
            self.order(task, &Order::Run { directory });
        }
        let mut ends: BTreeMap<usize, ApplicationEnd> = BTreeMap::new();
        while ends.len() < self.tasks.len() {
            let (task, TaskReport::Ended(end)) = self.next()? else { continue };
            let was_killed = ends.values().any(|end| *end == ApplicationEnd::Killed);
            ends.insert(task, end);
            if end == ApplicationEnd::Killed && !was_killed {
                let others = (0..self.tasks.len()).filter(|task| !ends.contains_key(task));
                others.collect::<Vec<_>>().into_iter().for_each(|task| {
                    self.order(task, &Order::End);
                });
            }
        }
        Ok(ends.values().any(|end| *end != ApplicationEnd::Good))
    }

    fn unmount(&mut self, holders: &[usize]) -> Result<()> {
        holders.iter().for_each(|holder| self.order(*holder, &Order::Unmount));
        let mut left = holders.len();
        while left > 0 {
            if let (_, TaskReport::Unmounted) = self.next()? {
                left -= 1;
            }
        }
        Ok(())
    }

    /// Waits until the store has everything, or the user does not want to wait.
    fn drain(&mut self, log: &Path) -> Result<()> {
        let client = ControlClient::of_log(log);
        let sender = self.sender.clone();
        thread::spawn(move || sender.send(JobEvent::Drained(wait_for_store(&client))));
        loop {
            match self.heard.recv().context("a conductor without tasks")? {
                JobEvent::Drained(outcome) => {
                    return outcome.context("not everything is in the backing directory");
                }
                JobEvent::Reported(_, Some(TaskReport::Interrupted)) => {
                    return Err(Interrupted::default()).context(CONTINUES);
                }
                JobEvent::Reported(task, None) => self.lose(task),
                JobEvent::Reported(..) => {}
            }
        }
    }

    /// Ends all tasks that are not lost.
    fn stop(&mut self) {
        let has_lost = self.tasks.iter().any(|task| !task.is_there);
        (0..self.tasks.len()).for_each(|task| self.order(task, &Order::Stop));
        let until = Instant::now() + STOPPING;
        let mut left: Vec<usize> =
            (0..self.tasks.len()).filter(|task| self.is_there(*task)).collect();
        while !left.is_empty() {
            match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(JobEvent::Reported(task, Some(TaskReport::Unmounted))) => {
                    left.retain(|other| *other != task)
                }
                Ok(JobEvent::Reported(task, None)) => {
                    self.lose(task);
                    left.retain(|other| *other != task);
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    left.drain(..).for_each(|task| self.lose(task));
                }
            }
        }
        if has_lost {
            thread::sleep(ORPHANS);
        }
    }

    fn is_there(&self, task: usize) -> bool {
        self.tasks.get(task).is_some_and(|task| task.is_there)
    }

    fn lose(&mut self, task: usize) {
        if let Some(task) = self.tasks.get_mut(task) {
            task.is_there = false;
        }
    }

    fn order(&mut self, task: usize, order: &Order) {
        if let Some(task) = self.tasks.get_mut(task).filter(|task| task.is_there) {
            send(&mut task.output, order);
        }
    }

    /// Returns the next report.
    ///
    /// # Errors
    /// One sentence: a task failed or is gone.
    fn next(&mut self) -> Result<(usize, TaskReport)> {
        let (number, report) = loop {
            if let JobEvent::Reported(number, report) =
                self.heard.recv().context("a conductor without tasks")?
            {
                break (number, report);
            }
        };
        let place = self.tasks.get(number).map(|task| (task.place.rank, task.place.name.clone()));
        let (rank, name) = place.context("a report of an unknown task")?;
        match report {
            None => {
                self.lose(number);
                Err(anyhow!("task {rank} on host {name} is gone"))
            }
            Some(TaskReport::Failed { sentence }) => Err(anyhow!("host {name}: {sentence}")),
            Some(report) => {
                self.is_interrupted |= report == TaskReport::Interrupted;
                Ok((number, report))
            }
        }
    }
}

/// Prints why a job fails.
fn report(why: &anyhow::Error) {
    eprintln!("clearway: {}", escaped(&format!("{why:#}")));
}

/// Returns when the store has everything.
fn wait_for_store(client: &ControlClient) -> Result<()> {
    let paths = vec![ControlPath::from_bytes(b"")];
    let request = ControlRequest::Wait { paths, until: SafetyLevel::Stored };
    client.ask(&request, |response| {
        if let ControlResponse::Notice { what } = response {
            eprintln!("clearway: {}", escaped(&what));
        }
    })?;
    Ok(())
}
