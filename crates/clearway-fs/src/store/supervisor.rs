//! Supervises the child process of a store: starts it, sends it steps, and gives it up when it is
//! stuck.
//!
//! # Model
//! ```text
//!   none --a step waits--> working --no progress, nonsense or death--> given up --reaped--> none
//! ```
//! A process whose thread waits in the kernel for a store that is gone does not end at once: it
//! gets a signal, and ends when the store answers. Until then no other child is started, because
//! the store can still carry out the pending call; steps that arrive in this time end as stuck. No
//! thread waits for the process: its descriptor shows when it can be reaped.
//!
//! # Invariants
//! I1. There is at most one child.
//! I2. Each accepted step ends once.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clearway_proto::base::BitsPerSec;
use clearway_proto::staging::{StepEnd, StoreTask};
use clearway_proto::wire::Fault;
use clearway_runtime::wake_signal::WakeSignal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::frame::{
    ChildPlaces, NEWS_MAX, StepNews, parse_news, rate_frame, take_frame, task_frame,
};
use super::worker::StoreOptions;

/// How often reaping is tried where the kernel gives no descriptor of a process, before 5.3.
const REAP_EVERY: Duration = Duration::from_secs(1);
/// How long a child may take to end by itself, and then by a signal.
const END_MAX: Duration = Duration::from_secs(2);
/// Bytes that are read at a time: some hundred frames.
const READ_BYTES: usize = 4096;
/// Bytes of the standard error of a child that are read at a time.
const ERRORS_MAX: usize = 64 << 10;
/// How often a rate that changes is asked for.
const ALLOWED_FOR: Duration = Duration::from_millis(100);
/// Lines of it that are kept until they are taken.
const LINES_MAX: usize = 16;

/// What the supervisor shares with the thread that gives it steps.
pub(super) struct SupervisorDesk {
    lists: Mutex<DeskLists>,
    /// Wakes the supervisor.
    wake: WakeSignal,
    /// Is raised when there is an end.
    signal: Arc<WakeSignal>,
}

#[derive(Default)]
struct DeskLists {
    tasks: VecDeque<StoreTask>,
    ends: VecDeque<(u64, StepEnd)>,
    /// What children wrote to their standard error.
    lines: VecDeque<String>,
    is_closed: bool,
    process: Option<u32>,
}

impl SupervisorDesk {
    pub(super) fn new(signal: Arc<WakeSignal>) -> io::Result<Self> {
        Ok(Self { lists: Mutex::default(), wake: WakeSignal::new()?, signal })
    }

    fn lock(&self) -> MutexGuard<'_, DeskLists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, task: StoreTask) {
        self.lock().tasks.push_back(task);
        self.wake.raise();
    }

    pub(super) fn poll(&self) -> Option<(u64, StepEnd)> {
        self.lock().ends.pop_front()
    }

    pub(super) fn take_line(&self) -> Option<String> {
        self.lock().lines.pop_front()
    }

    /// Keeps what a child wrote to its standard error.
    fn add_lines(&self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut lists = self.lock();
        let room = LINES_MAX.saturating_sub(lists.lines.len());
        lists.lines.extend(lines.take(room).map(str::to_owned));
        drop(lists);
        self.signal.raise();
    }

    /// Returns the process of the child.
    pub(super) fn process(&self) -> Option<u32> {
        self.lock().process
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.wake.raise();
    }

    fn end(&self, number: u64, end: StepEnd) {
        self.lock().ends.push_back((number, end));
        self.signal.raise();
    }
}

/// A child that works.
struct WorkingChild {
    process: Child,
    socket: UnixStream,
    /// Its standard error; none when the child closed it.
    errors: Option<ChildStderr>,
    /// Bytes that it has not taken yet, and how many of them it has.
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    /// When a step under way made progress last.
    steps: BTreeMap<u64, Instant>,
    /// Can be read when the process has ended.
    ended: Option<OwnedFd>,
    /// The rate that it has.
    rate: Option<BitsPerSec>,
}

enum ChildState {
    None,
    Working(WorkingChild),
    /// It got its signal.
    GivenUp {
        process: Child,
        ended: Option<OwnedFd>,
    },
}

/// Runs in a thread of its own.
pub(super) struct Supervisor {
    options: StoreOptions,
    desk: Arc<SupervisorDesk>,
    waiting: VecDeque<StoreTask>,
    state: ChildState,
    /// Steps when the allowance was asked last.
    allowed: usize,
}

impl WorkingChild {
    fn start(options: &StoreOptions, rate: Option<BitsPerSec>) -> io::Result<Self> {
        let (socket, input) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let mut command = Command::new(&options.program);
        command.arg0("clearway").args(&options.arguments).stdin(OwnedFd::from(input));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        // A signal of the terminal is for the mount, which ends the child.
        let mut process = command.process_group(0).spawn()?;
        let errors = process.stderr.take();
        if let Some(errors) = &errors {
            ioctl_fionbio(errors, true)?;
        }
        let ended = pidfd_open(Pid::from_child(&process), PidfdFlags::empty()).ok();
        let steps = u32::try_from(options.steps).unwrap_or(u32::MAX);
        let (store, log) = (options.store.clone(), options.log.clone());
        let owner = options.owner;
        let places = ChildPlaces { store, log, steps, owner, rate };
        let output = places.to_frame();
        let (input, steps) = (Vec::new(), BTreeMap::new());
        Ok(Self { process, socket, errors, output, sent: 0, input, steps, ended, rate })
    }

    fn set_rate(&mut self, rate: BitsPerSec) {
        if self.rate.replace(rate) != Some(rate) {
            self.output.extend(rate_frame(rate));
        }
    }

    fn begin(&mut self, task: &StoreTask) {
        self.output.extend(task_frame(task.number, &task.step));
        self.steps.insert(task.number, Instant::now());
    }

    /// Sends what the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(rest) {
                Ok(count) => self.sent += count,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Takes what the child says; an error when it has ended or says nonsense.
    fn receive(&mut self, desk: &SupervisorDesk) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        loop {
            let count = match self.socket.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(why),
            };
            self.input.extend(bytes.get(..count).unwrap_or_default());
            while let Some(frame) = take_frame(&mut self.input, NEWS_MAX)? {
                let (number, news) = parse_news(&frame).ok_or(io::ErrorKind::InvalidData)?;
                let last = self.steps.get_mut(&number).ok_or(io::ErrorKind::InvalidData)?;
                match news {
                    StepNews::Progress => *last = Instant::now(),
                    StepNews::End(end) => {
                        self.steps.remove(&number);
                        desk.end(number, end);
                    }
                }
            }
        }
    }

    /// Takes what the child wrote to its standard error.
    fn receive_errors(&mut self, desk: &SupervisorDesk) {
        let Some(errors) = &mut self.errors else { return };
        let mut text = Vec::new();
        let mut bytes = [0; READ_BYTES];
        let is_open = loop {
            match errors.read(&mut bytes) {
                Ok(0) => break false,
                Ok(count) => text.extend(bytes.get(..count).unwrap_or_default()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => break why.kind() == io::ErrorKind::WouldBlock,
            }
            if text.len() >= ERRORS_MAX {
                break true;
            }
        };
        if !text.is_empty() {
            desk.add_lines(&text);
        }
        if !is_open {
            self.errors = None;
        }
    }

    /// Returns when a step has made no progress for too long.
    fn deadline(&self, timeout: Duration) -> Option<Instant> {
        self.steps.values().min().map(|last| *last + timeout)
    }

    /// Ends the process and its steps.
    fn give_up(mut self, desk: &SupervisorDesk, end: StepEnd) -> ChildState {
        let _ = self.process.kill();
        self.steps.keys().for_each(|number| desk.end(*number, end));
        ChildState::GivenUp { process: self.process, ended: self.ended }
    }
}

impl Supervisor {
    pub(super) fn new(options: StoreOptions, desk: Arc<SupervisorDesk>) -> Self {
        Self { options, desk, waiting: VecDeque::new(), state: ChildState::None, allowed: 0 }
    }

    /// Works until the desk is closed.
    pub(super) fn run(mut self) {
        loop {
            {
                let mut lists = self.desk.lock();
                let DeskLists { tasks, is_closed, .. } = &mut *lists;
                if *is_closed {
                    break;
                }
                self.waiting.append(tasks);
            }
            self.reap();
            self.give();
            self.rest();
            self.hear();
        }
        self.end();
    }

    /// Takes a child that was given up out of the table of processes, if it has ended.
    fn reap(&mut self) {
        if let ChildState::GivenUp { process, .. } = &mut self.state
            && !matches!(process.try_wait(), Ok(None))
        {
            self.state = ChildState::None;
            self.desk.lock().process = None;
        }
    }

    /// Gives steps to the child.
    fn give(&mut self) {
        let rate = self.rate();
        if matches!(self.state, ChildState::None) && !self.waiting.is_empty() {
            match WorkingChild::start(&self.options, rate) {
                Ok(child) => {
                    self.desk.lock().process = Some(child.process.id());
                    self.state = ChildState::Working(child);
                }
                // Too many processes, or too little memory: later there may be room.
                Err(_) => self.end_waiting(StepEnd::Failed(Fault::Io)),
            }
        }
        match &mut self.state {
            ChildState::None => {}
            ChildState::GivenUp { .. } => self.end_waiting(StepEnd::Stuck),
            ChildState::Working(child) => {
                while child.steps.len() < self.options.steps
                    && let Some(task) = self.waiting.pop_front()
                {
                    child.begin(&task);
                }
                rate.into_iter().for_each(|rate| child.set_rate(rate));
                // That it has ended is heard next.
                let _ = child.send();
            }
        }
    }

    /// Returns the rate of copies from now on.
    fn rate(&mut self) -> Option<BitsPerSec> {
        let under_way = match &self.state {
            ChildState::Working(child) => child.steps.len(),
            _ => 0,
        };
        let steps = self.waiting.len() + under_way;
        let before = std::mem::replace(&mut self.allowed, steps);
        let allowance = self.options.allowance.as_ref().filter(|_| steps.max(before) > 0);
        let allowed = allowance.map(|allowance| allowance.take(steps));
        self.options.rate.into_iter().chain(allowed).min()
    }

    fn end_waiting(&mut self, end: StepEnd) {
        while let Some(task) = self.waiting.pop_front() {
            self.desk.end(task.number, end);
        }
    }

    /// Waits until something happens.
    fn rest(&self) {
        let mut descriptors = vec![PollFd::new(&self.desk.wake, PollFlags::IN)];
        let mut timeout = None;
        match &self.state {
            ChildState::None => {}
            ChildState::Working(child) => {
                let wants = if child.output.is_empty() {
                    PollFlags::IN
                } else {
                    PollFlags::IN | PollFlags::OUT
                };
                descriptors.push(PollFd::new(&child.socket, wants));
                if let Some(errors) = &child.errors {
                    descriptors.push(PollFd::new(errors, PollFlags::IN));
                }
                let deadline = child.deadline(self.options.timeout);
                timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                if let Some(allowance) =
                    self.options.allowance.as_ref().filter(|_| self.allowed > 0)
                {
                    let changes_in = allowance.changes_in();
                    timeout = timeout.into_iter().chain(changes_in).chain([ALLOWED_FOR]).min();
                }
            }
            ChildState::GivenUp { ended: Some(ended), .. } => {
                descriptors.push(PollFd::new(ended, PollFlags::IN));
            }
            ChildState::GivenUp { ended: None, .. } => timeout = Some(REAP_EVERY),
        }
        wait(&mut descriptors, timeout);
        self.desk.wake.clear();
    }

    /// Takes what the child says, and looks whether it works.
    fn hear(&mut self) {
        let ChildState::Working(child) = &mut self.state else { return };
        let heard = child.receive(&self.desk);
        // A child that ends has written its reason before.
        child.receive_errors(&self.desk);
        let now = Instant::now();
        let is_stuck = child.deadline(self.options.timeout).is_some_and(|at| at <= now);
        let end = match heard {
            Err(_) => StepEnd::Failed(Fault::Io),
            Ok(()) if is_stuck => StepEnd::Stuck,
            Ok(()) => return,
        };
        if let ChildState::Working(child) = std::mem::replace(&mut self.state, ChildState::None) {
            self.state = child.give_up(&self.desk, end);
        }
    }

    /// Lets the child end, and ends it if it does not.
    fn end(self) {
        let (mut process, ended) = match self.state {
            ChildState::None => return,
            ChildState::Working(WorkingChild { process, ended, socket, .. }) => {
                // The end of its input ends it.
                drop(socket);
                (process, ended)
            }
            ChildState::GivenUp { process, ended } => (process, ended),
        };
        for _ in 0..2 {
            if let Some(ended) = &ended {
                let timeout = self.options.timeout.min(END_MAX);
                wait(&mut [PollFd::new(ended, PollFlags::IN)], Some(timeout));
            }
            if !matches!(process.try_wait(), Ok(None)) {
                return;
            }
            let _ = process.kill();
        }
    }
}

fn wait(descriptors: &mut [PollFd<'_>], timeout: Option<Duration>) {
    // A millisecond more: to come early would be to come again.
    let timeout =
        timeout.and_then(|after| Timespec::try_from(after + Duration::from_millis(1)).ok());
    // An interruption is one more look.
    let _ = poll(descriptors, timeout.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDirectory;
    use clearway_proto::base::Class;
    use clearway_proto::staging::StoreStep;

    fn carry_out(desk: &SupervisorDesk, number: u64) -> StepEnd {
        let step = StoreStep::Sweep { keeps: Vec::new() };
        desk.begin(StoreTask { number, class: Class::Bulk, step });
        loop {
            if let Some((ended, end)) = desk.poll() {
                assert_eq!(ended, number);
                return end;
            }
            wait(&mut [PollFd::new(&*desk.signal, PollFlags::IN)], None);
            desk.signal.clear();
        }
    }

    #[test]
    fn run__nobody_waits_for_a_child_that_does_not_end() {
        let directory = TestDirectory::new();
        let signal = Arc::new(WakeSignal::new().expect("a counter"));
        let desk = Arc::new(SupervisorDesk::new(signal).expect("a counter"));
        let (store, log) = (directory.path().to_owned(), directory.path().join("log"));
        let options = StoreOptions::new(store, log);
        // As one whose call to a store does not return: it is there, and gets no other signal.
        let process = Command::new("sleep").arg("1000").spawn().expect("a process");
        let pid = Pid::from_child(&process);
        let ended = pidfd_open(pid, PidfdFlags::empty()).ok();
        let mut supervisor = Supervisor::new(options, Arc::clone(&desk));
        supervisor.state = ChildState::GivenUp { process, ended };
        let thread = std::thread::spawn(move || supervisor.run());
        assert_eq!(carry_out(&desk, 1), StepEnd::Stuck);
        assert_eq!(carry_out(&desk, 2), StepEnd::Stuck);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("ended");
        let mut number = 3;
        while carry_out(&desk, number) == StepEnd::Stuck {
            number += 1;
        }
        assert_eq!(carry_out(&desk, number + 1), StepEnd::Done);
        desk.close();
        thread.join().expect("ended");
    }
}
