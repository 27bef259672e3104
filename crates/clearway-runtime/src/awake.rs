//! Keeps processors awake during a measurement, so that a measurement under load has no advantage.
//!
//! # Model
//! An idle processor sleeps, and wakes late: by microseconds on a real machine, by tens of them on
//! a virtual one, whose hypervisor first has to run it again. A loaded network keeps processors
//! awake and an idle one does not, so small messages would be slower on the idle one. There are two
//! ways out, and the first that can be had is taken:
//!
//! 1. The kernel is asked to let no processor sleep, where a driver that heeds this puts them to
//!    sleep. It costs nobody anything.
//! 2. A thread on each processor spins under the idle policy: every other task of its control group
//!    goes first, and at once. Other groups (and other sessions, where the kernel makes groups of
//!    them) share processors with it as with any task.
//!
//! # Source
//! `Documentation/power/pm_qos_interface.rst` (`/dev/cpu_dma_latency` counts as long as it is
//! open), `Documentation/admin-guide/pm/cpuidle.rst`, `sched(7)` (`SCHED_IDLE`).
//!
//! # Invariants
//! I1. Nothing of this outlives the process, however it ends: there are only threads and an open
//!     file.
//! I2. No thread spins under another policy, on another processor than its own, or where a limit of
//!     processor time is shared
//!     with what is measured.
//!
//! # Not here
//! When to: where all that is measured is on this machine, which the caller knows.

#![allow(unsafe_code)]

use std::fmt;
use std::fs::{self, File};
use std::hint;
use std::io::{self, Write};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::RuntimeError;

/// The driver that puts processors to sleep; `none` where they just halt.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// Takes the latest that a processor may wake, in us.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// As long as this lives, the processors that its maker may use are awake.
#[derive(Debug)]
#[must_use = "processors sleep again when this is dropped"]
pub struct Awake(WakeMethod);

#[derive(Debug)]
enum WakeMethod {
    Request { _held: File },
    Threads(SpinThreads),
}

impl Awake {
    /// Keeps the processors awake that this thread may use.
    ///
    /// # Errors
    /// The kernel does not heed requests, or not this user's, and what stands against spinning
    /// threads.
    pub fn keep() -> Result<Self, RuntimeError> {
        if let Some(held) = request() {
            return Ok(Self(WakeMethod::Request { _held: held }));
        }
        let allowed = sched_getaffinity(None)
            .map_err(|error| RuntimeError::system("list processors")(error.into()))?;
        let processors: Vec<usize> =
            (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).collect();
        let granted = thread::available_parallelism().map_or(1, NonZero::get);
        if granted < processors.len() {
            return Err(RuntimeError::ProcessorTime { granted, processors: processors.len() });
        }
        SpinThreads::start(&processors).map(|threads| Self(WakeMethod::Threads(threads)))
    }
}

impl fmt::Display for Awake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            WakeMethod::Request { .. } => f.write_str("by the kernel, which was asked to"),
            WakeMethod::Threads(SpinThreads { count: 1, .. }) => {
                f.write_str("by a thread that runs when nothing else does")
            }
            WakeMethod::Threads(SpinThreads { count, .. }) => {
                write!(f, "by {count} threads that run when nothing else does")
            }
        }
    }
}

/// Asks the kernel; `None` where that has no effect or is not this user's right.
fn request() -> Option<File> {
    if !heeds_requests(&fs::read_to_string(DRIVER).ok()?) {
        return None;
    }
    let mut held = File::options().write(true).open(LATENCY).ok()?;
    held.write_all(&0i32.to_ne_bytes()).ok()?;
    Some(held)
}

/// Returns whether the driver of this name takes a limit of how deeply processors may sleep.
fn heeds_requests(driver: &str) -> bool {
    !matches!(driver.trim(), "" | "none")
}

/// Spinning threads.
#[derive(Debug)]
struct SpinThreads {
    stop: Arc<AtomicBool>,
    count: usize,
}

impl SpinThreads {
    /// Starts one on each of `processors`; returns when all of them spin, or none.
    fn start(processors: &[usize]) -> Result<Self, RuntimeError> {
        let threads = Self { stop: Arc::default(), count: processors.len() };
        let (sender, settled) = channel();
        for processor in processors.iter().copied() {
            let (stop, sender) = (threads.stop.clone(), sender.clone());
            let spin = move || {
                let is_settled = pin_to(processor);
                let may_spin = is_settled.is_ok();
                let _ = sender.send(is_settled);
                // The one that starts the threads waits until the last of them has said it.
                drop(sender);
                while may_spin && !stop.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            };
            thread::Builder::new()
                .name("awake".into())
                .spawn(spin)
                .map_err(RuntimeError::system("start a thread"))?;
        }
        drop(sender);
        settled
            .iter()
            .collect::<io::Result<()>>()
            .map_err(RuntimeError::system("run a thread at idle priority"))?;
        Ok(threads)
    }
}

impl Drop for SpinThreads {
    fn drop(&mut self) {
        // Nobody waits for them: on a busy machine it can take long until they run again, and end.
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Puts this thread on `processor`, behind everything else there.
fn pin_to(processor: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads `parameters`, which lives until it returns, and changes nothing but
    // this thread's policy.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(sched_setaffinity(None, &only)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the threads of this process called `awake`: policy (field 41 of `proc_pid_stat(5)`)
    /// and processor (field 39).
    fn spinning() -> Vec<(String, String)> {
        let tasks = fs::read_dir("/proc/self/task").expect("a list of threads");
        let stats =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
        let mut found: Vec<_> = stats
            .filter_map(|stat| {
                let (name, rest) = stat.split_once('(')?.1.split_once(')')?;
                // The third field is the first behind the name.
                let field = |number: usize| {
                    rest.split_ascii_whitespace().nth(number - 3).map(str::to_owned)
                };
                (name == "awake").then(|| Some((field(39)?, field(41)?)))?
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn heeds_requests__a_machine_without_a_driver_halts_unasked() {
        assert!(heeds_requests("intel_idle\n") && heeds_requests("haltpoll\n"));
        assert!(!heeds_requests("none\n") && !heeds_requests(""));
    }

    /// One test for all of it: threads of another would be counted.
    #[test]
    fn threads__run_on_their_processors_under_the_idle_policy_and_end_with_their_owner() {
        let absent = CpuSet::MAX_CPU - 1;
        assert!(matches!(SpinThreads::start(&[absent]), Err(RuntimeError::System { .. })));
        let allowed = sched_getaffinity(None).expect("the processors of this thread");
        let processors: Vec<usize> =
            (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).collect();
        // The one that was refused may not have ended yet.
        while !spinning().is_empty() {
            thread::yield_now();
        }
        let threads = match SpinThreads::start(&processors) {
            Ok(threads) => threads,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let idle = libc::SCHED_IDLE.to_string();
        let mut expected: Vec<_> =
            processors.iter().map(|number| (number.to_string(), idle.clone())).collect();
        expected.sort();
        assert_eq!(spinning(), expected);
        drop(threads);
        while !spinning().is_empty() {
            thread::yield_now();
        }
    }
}
