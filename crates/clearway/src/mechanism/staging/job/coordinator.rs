//! Leads all tasks of a job through its phases: serve, mount, run the programs, unmount, drain. Then
//! it has the servers closed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_runtime::launch::escaped;

use super::message::{
    ApplicationEnd, JobServer, TaskConnection, TaskReport, TaskRequest, receive, send,
};
use super::shared_store::StoreProbe;
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
    /// Its host as the coordinator reaches it, or `None` for the coordinator's own host.
    pub(super) address: Option<Ipv4Addr>,
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

/// A report of a task; nothing, when the task is gone.
type JobEvent = (usize, Option<TaskReport>);

/// The coordinator. Tasks are numbered in the order in which they were added; the first one is the
/// task of its own process.
pub(super) struct TaskCoordinator {
    tasks: Vec<CoordinatedTask>,
    sender: Sender<JobEvent>,
    events: Receiver<JobEvent>,
    /// The port of the server of the first task, which is open already.
    first_port: u16,
    /// Servers of the job.
    servers: usize,
    /// The directory that they share.
    store: PathBuf,
    is_interrupted: bool,
}

impl TaskCoordinator {
    /// Creates the coordinator of a job with this number of servers, at least 1; the first one listens
    /// at `first_port` already.
    pub(super) fn new(first_port: u16, servers: usize, store: PathBuf) -> Self {
        let (sender, events) = channel();
        let (tasks, is_interrupted) = (Vec::new(), false);
        Self { tasks, sender, events, first_port, servers, store, is_interrupted }
    }

    /// Takes in a task.
    pub(super) fn add(&mut self, place: TaskPlace, (input, output): TaskConnection) {
        let (number, sender) = (self.tasks.len(), self.sender.clone());
        thread::spawn(move || {
            receive(input, |report| sender.send((number, report)).is_ok());
        });
        self.tasks.push(CoordinatedTask { place, output, is_there: true });
    }

    /// Runs the job of all tasks, and has the servers closed.
    pub(super) fn run(mut self, policy: DrainPolicy) -> Result<(), JobFailure> {
        let firsts = self.first_tasks();
        let mut outcome = self.run_job(&firsts, policy);
        if let Err(why) = &outcome {
            // The launcher may end this process as soon as another one ends.
            report(why);
            self.stop();
        }
        let closed = self.close_servers(&firsts);
        if let (Ok(()), Err(why)) = (&outcome, &closed) {
            report(why);
            outcome = closed;
        }
        (0..self.tasks.len()).for_each(|task| self.request(task, &TaskRequest::Leave));
        let is_incomplete = self.tasks.iter().any(|task| !task.is_there);
        outcome.map_err(|why| JobFailure { exit: exit_of(&why), is_incomplete })
    }

    /// Returns the first task of each host, in the order of hosts: it has the mount, and perhaps a
    /// server.
    fn first_tasks(&self) -> Vec<usize> {
        let first = |host| self.tasks.iter().position(|task| task.place.host == host);
        (0..self.tasks.len()).map_while(first).collect()
    }

    fn run_job(&mut self, firsts: &[usize], policy: DrainPolicy) -> Result<()> {
        self.check_store(firsts)?;
        let servers = self.serve(firsts)?;
        let directories = self.mount(firsts, &servers)?;
        let has_failed = self.run_programs(&directories)?;
        let did_programs_stop = std::mem::take(&mut self.is_interrupted) && has_failed;
        self.unmount(firsts, did_programs_stop)?;
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
            DrainPolicy::Wait => self.drain(firsts),
        }
    }

    /// Sees that all servers reach one store, and not each a directory of its own host.
    fn check_store(&mut self, firsts: &[usize]) -> Result<()> {
        let others: Vec<usize> = firsts.iter().copied().take(self.servers).skip(1).collect();
        if others.is_empty() {
            return Ok(());
        }
        let probe = StoreProbe::new(&self.store)?;
        let request = TaskRequest::FindProbe { name: probe.name.clone() };
        others.iter().for_each(|other| self.request(*other, &request));
        let mut left = others.len();
        while left > 0 {
            match self.next()? {
                (_, TaskReport::ProbeLookedUp { is_there: true }) => left -= 1,
                (other, TaskReport::ProbeLookedUp { is_there: false }) => bail!(
                    "{} is not one directory for all servers: host {} does not see there what host {} makes; name with --backing a directory of a file system that both hosts have mounted",
                    self.store.display(),
                    self.host_of(other),
                    self.host_of(0)
                ),
                (_, TaskReport::Interrupted) => bail!(Interrupted::default()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the name of the host of a task.
    fn host_of(&self, task: usize) -> &str {
        self.tasks.get(task).map_or("?", |task| task.place.name.as_str())
    }

    /// Has the first task of all other hosts that serve open its server; returns all servers.
    fn serve(&mut self, firsts: &[usize]) -> Result<Vec<JobServer>> {
        let mut servers = BTreeMap::from([(0, JobServer { host: None, port: self.first_port })]);
        for first in firsts.iter().take(self.servers).skip(1) {
            self.request(*first, &TaskRequest::Serve);
        }
        while servers.len() < self.servers {
            match self.next()? {
                (task, TaskReport::Serving { port }) => {
                    let host = self.tasks.get(task).and_then(|task| task.place.address);
                    let place = firsts.iter().position(|first| *first == task);
                    servers.extend(place.map(|place| (place, JobServer { host, port })));
                }
                (_, TaskReport::Interrupted) => bail!(Interrupted::default()),
                _ => {}
            }
        }
        Ok(servers.into_values().collect())
    }

    /// Has the first task of each host mount; returns the mount point of each host.
    fn mount(
        &mut self,
        firsts: &[usize],
        servers: &[JobServer],
    ) -> Result<BTreeMap<usize, PathBuf>> {
        let request = TaskRequest::Mount { servers: servers.to_vec() };
        firsts.iter().for_each(|first| self.request(*first, &request));
        let mut directories = BTreeMap::new();
        while directories.len() < firsts.len() {
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

    /// Has all nodes unmount. After an interrupt the servers have some seconds: one whose log is full
    /// takes bytes only when the drain has made space.
    fn unmount(&mut self, firsts: &[usize], did_programs_stop: bool) -> Result<()> {
        firsts.iter().for_each(|first| self.request(*first, &TaskRequest::Unmount));
        let (mut left, mut is_limited) = (firsts.len(), false);
        loop {
            if (did_programs_stop || self.is_interrupted) && !is_limited {
                is_limited = true;
                firsts.iter().for_each(|first| self.request(*first, &TaskRequest::LimitUnmount));
            }
            if left == 0 {
                return Ok(());
            }
            if let (_, TaskReport::Unmounted) = self.next()? {
                left -= 1;
            }
        }
    }

    /// Waits until the store has everything, or the user does not want to wait.
    fn drain(&mut self, firsts: &[usize]) -> Result<()> {
        let mut left: Vec<usize> = firsts.iter().copied().take(self.servers).collect();
        left.iter().for_each(|server| self.request(*server, &TaskRequest::Drain));
        while !left.is_empty() {
            match self.events.recv().context("all tasks of the job are gone")? {
                (task, Some(TaskReport::Drained)) => left.retain(|server| *server != task),
                (_, Some(TaskReport::Interrupted)) => {
                    return Err(Interrupted::default()).context(CONTINUES);
                }
                (task, Some(TaskReport::Failed { sentence })) => {
                    return Err(self.failure_of(task, &sentence));
                }
                // A task without a server has nothing to lose any more.
                (task, None) => {
                    self.lose(task);
                    if left.contains(&task) {
                        return Err(self.loss_of(task)).context(CONTINUES);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Has all servers closed that are there.
    fn close_servers(&mut self, firsts: &[usize]) -> Result<()> {
        let servers = firsts.iter().copied().take(self.servers);
        let left: Vec<usize> = servers.filter(|server| self.is_there(*server)).collect();
        left.iter().for_each(|server| self.request(*server, &TaskRequest::CloseServer));
        let mut outcome = Ok(());
        self.wait_for_all(left, |this, task, report| match report {
            TaskReport::ServerClosed => true,
            TaskReport::Failed { sentence } => {
                outcome = Err(this.failure_of(task, sentence));
                true
            }
            _ => false,
        });
        outcome
    }

    /// Ends all tasks that are not lost.
    fn stop(&mut self) {
        let has_lost = self.tasks.iter().any(|task| !task.is_there);
        let left: Vec<usize> = (0..self.tasks.len()).filter(|task| self.is_there(*task)).collect();
        left.iter().for_each(|task| self.request(*task, &TaskRequest::Abort));
        self.wait_for_all(left, |_, _, report| *report == TaskReport::Unmounted);
        if has_lost {
            thread::sleep(ORPHAN_GRACE);
        }
    }

    /// Waits until each task of `left` has sent a report that `is_last`; one that does not in time
    /// counts as lost.
    fn wait_for_all(
        &mut self,
        mut left: Vec<usize>,
        mut is_last: impl FnMut(&Self, usize, &TaskReport) -> bool,
    ) {
        let until = Instant::now() + STOPPING;
        while !left.is_empty() {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((task, Some(report))) => {
                    if is_last(self, task, &report) {
                        left.retain(|other| *other != task);
                    }
                }
                Ok((task, None)) => {
                    self.lose(task);
                    left.retain(|other| *other != task);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    left.drain(..).for_each(|task| self.lose(task));
                }
            }
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
        match self.events.recv().context("all tasks of the job are gone")? {
            (task, None) => {
                self.lose(task);
                Err(self.loss_of(task))
            }
            (task, Some(TaskReport::Failed { sentence })) => Err(self.failure_of(task, &sentence)),
            (task, Some(report)) => {
                self.is_interrupted |= report == TaskReport::Interrupted;
                Ok((task, report))
            }
        }
    }

    fn loss_of(&self, task: usize) -> anyhow::Error {
        match self.tasks.get(task) {
            Some(CoordinatedTask { place: TaskPlace { rank, name, .. }, .. }) => {
                anyhow!("task {rank} on host {name} is gone")
            }
            None => anyhow!("a task is gone"),
        }
    }

    fn failure_of(&self, task: usize, sentence: &str) -> anyhow::Error {
        anyhow!("host {}: {sentence}", self.host_of(task))
    }
}

/// Prints why a job fails.
fn report(why: &anyhow::Error) {
    eprintln!("clearway: {}", escaped(&format!("{why:#}")));
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Runs a job of one task that reports this in order; the status, or the error, of the job.
    fn run_with(reports: &[TaskReport]) -> Result<()> {
        let mut input = Vec::new();
        reports.iter().for_each(|report| send(&mut input, report));
        let place = TaskPlace { rank: 0, host: 0, name: "node".to_owned(), address: None };
        let mut coordinator = TaskCoordinator::new(1, 1, PathBuf::new());
        coordinator.add(place, (Box::new(io::Cursor::new(input)), Box::new(io::sink())));
        coordinator.run_job(&[0], DrainPolicy::Wait)
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
        let survived = [mounted(), Signal, ended(ApplicationEnd::Good), Unmounted];
        let drained = run_with(&[&survived[..], &[TaskReport::Drained]].concat());
        assert!(drained.is_ok(), "{drained:?}");
        let lost = run_with(&survived);
        assert!(lost.is_err() && !is_interrupted(&lost), "{lost:?}");
    }
}
