//! Leads all tasks of a job through its phases: mount, run the programs, unmount. Then it waits
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
use super::message::{ApplicationEnd, TaskConnection, TaskReport, TaskRequest, receive, send};
use super::{DrainPolicy, ORPHAN_GRACE};
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
struct CoordinatedTask {
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

/// What the coordinator learns from tasks and from the drain.
enum JobEvent {
    /// A task reports; nothing, when it is gone.
    Reported(usize, Option<TaskReport>),
    /// The store has everything, or why not.
    Drained(Result<()>),
}

/// The coordinator. Tasks are numbered in the order in which they were added; the first one is the
/// task of its own process.
pub(super) struct TaskCoordinator {
    tasks: Vec<CoordinatedTask>,
    sender: Sender<JobEvent>,
    events: Receiver<JobEvent>,
    is_interrupted: bool,
}

impl Default for TaskCoordinator {
    fn default() -> Self {
        let (sender, events) = channel();
        Self { tasks: Vec::new(), sender, events, is_interrupted: false }
    }
}

impl TaskCoordinator {
    /// Takes in a task.
    pub(super) fn add(&mut self, place: TaskPlace, (input, output): TaskConnection) {
        let (number, sender) = (self.tasks.len(), self.sender.clone());
        thread::spawn(move || {
            receive(input, |report| sender.send(JobEvent::Reported(number, report)).is_ok());
        });
        self.tasks.push(CoordinatedTask { place, output, is_there: true });
    }

    /// Runs the job of all tasks, and closes the server.
    pub(super) fn run(
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
        (0..self.tasks.len()).for_each(|task| self.request(task, &TaskRequest::Leave));
        let is_incomplete = self.tasks.iter().any(|task| !task.is_there);
        outcome.map_err(|why| JobFailure { exit: exit_of(&why), is_incomplete })
    }

    fn run_job(&mut self, port: u16, log: &Path, policy: DrainPolicy) -> Result<()> {
        let first = |host| self.tasks.iter().position(|task| task.place.host == host);
        let holders: Vec<usize> = (0..self.tasks.len()).map_while(first).collect();
        let directories = self.mount(&holders, port)?;
        let has_failed = self.run_programs(&directories)?;
        let did_programs_stop = std::mem::take(&mut self.is_interrupted) && has_failed;
        self.unmount(&holders)?;
        match policy {
            DrainPolicy::Leave => Ok(()),
            DrainPolicy::Wait if did_programs_stop => {
                eprintln!("clearway: interrupted; {CONTINUES}");
                Ok(())
            }
            // No program was there any more that could decide what the interrupt means.
            DrainPolicy::Wait if self.is_interrupted => {
                Err(Interrupted::default()).context(CONTINUES)
            }
            DrainPolicy::Wait => self.drain(log),
        }
    }

    /// Lets the first task of each host mount; returns the mount point of each host.
    fn mount(&mut self, holders: &[usize], port: u16) -> Result<BTreeMap<usize, PathBuf>> {
        holders.iter().for_each(|holder| self.request(*holder, &TaskRequest::Mount { port }));
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
            self.request(task, &TaskRequest::Run { directory });
        }
        let mut ends: BTreeMap<usize, ApplicationEnd> = BTreeMap::new();
        while ends.len() < self.tasks.len() {
            let (task, TaskReport::Ended(end)) = self.next()? else { continue };
            let was_killed = ends.values().any(|end| *end == ApplicationEnd::Killed);
            ends.insert(task, end);
            if end == ApplicationEnd::Killed && !was_killed {
                let others = (0..self.tasks.len()).filter(|task| !ends.contains_key(task));
                others.collect::<Vec<_>>().into_iter().for_each(|task| {
                    self.request(task, &TaskRequest::EndProgram);
                });
            }
        }
        Ok(ends.values().any(|end| *end != ApplicationEnd::Good))
    }

    fn unmount(&mut self, holders: &[usize]) -> Result<()> {
        holders.iter().for_each(|holder| self.request(*holder, &TaskRequest::Unmount));
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
            match self.events.recv().context("all tasks of the job are gone")? {
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
        (0..self.tasks.len()).for_each(|task| self.request(task, &TaskRequest::Abort));
        let until = Instant::now() + STOPPING;
        let mut left: Vec<usize> =
            (0..self.tasks.len()).filter(|task| self.is_there(*task)).collect();
        while !left.is_empty() {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
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
            thread::sleep(ORPHAN_GRACE);
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

    fn request(&mut self, task: usize, request: &TaskRequest) {
        if let Some(task) = self.tasks.get_mut(task).filter(|task| task.is_there) {
            send(&mut task.output, request);
        }
    }

    /// Returns the next report.
    ///
    /// # Errors
    /// One sentence: a task failed or is gone.
    fn next(&mut self) -> Result<(usize, TaskReport)> {
        let (number, report) = loop {
            if let JobEvent::Reported(number, report) =
                self.events.recv().context("all tasks of the job are gone")?
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Runs a job of one task that reports this in order; the status, or the error, of the job.
    fn run_with(reports: &[TaskReport]) -> Result<()> {
        let mut input = Vec::new();
        reports.iter().for_each(|report| send(&mut input, report));
        let place = TaskPlace { rank: 0, host: 0, name: "node".to_owned() };
        let mut coordinator = TaskCoordinator::default();
        coordinator.add(place, (Box::new(io::Cursor::new(input)), Box::new(io::sink())));
        coordinator.run_job(1, Path::new("/no/such/log"), DrainPolicy::Wait)
    }

    #[test]
    fn run_job__an_interrupt_is_the_program_s_until_it_has_ended_and_then_stops_the_drain() {
        use TaskReport::{Interrupted as Signal, Unmounted};
        let mounted = || TaskReport::Mounted { directory: PathBuf::from("/mnt") };
        let ended = TaskReport::Ended;
        let is_interrupted = |outcome: &Result<()>| {
            outcome.as_ref().is_err_and(|why| why.downcast_ref::<Interrupted>().is_some())
        };
        let late = run_with(&[mounted(), ended(ApplicationEnd::Good), Signal, Unmounted]);
        assert!(is_interrupted(&late), "{late:?}");
        let obeyed = run_with(&[mounted(), Signal, ended(ApplicationEnd::Bad), Unmounted]);
        assert!(obeyed.is_ok(), "{obeyed:?}");
        // There is no such log, so the drain fails.
        let survived = run_with(&[mounted(), Signal, ended(ApplicationEnd::Good), Unmounted]);
        assert!(survived.is_err() && !is_interrupted(&survived), "{survived:?}");
    }
}
