//! What this process says on standard error while it works: notices, details, and how long it will
//! still take.
//!
//! # Model
//! There is one line that is rewritten, because there is one standard error. A thread rewrites it,
//! so that a simulation that returns to nobody for seconds need not. Whatever else is written takes
//! the line back first.
//!
//! # Invariants
//! I1. Nothing of a forecast is left on the terminal when it is dropped.
//!
//! # Not here
//! When which line is due: `run::forecast`. Errors and results, which nothing keeps back.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::forecast::{Forecast, ForecastPlace, ForecastText};

/// How often the thread looks whether a line is due.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Erases the line; what does not fit into it is cut off, not continued in the
/// next (ECMA-48, DECAWM).
const LINE_BEGINS: &str = "\r\x1b[K\x1b[?7l";
const LINE_ENDS: &str = "\x1b[?7h";
const TAKEN_BACK: &str = "\r\x1b[K";

/// How much is said of what is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors and results.
    Quiet,
    /// Also what a user should know of the run, and how long it takes.
    #[default]
    Usual,
    /// Also each step.
    Detailed,
}

static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();
static SHOWN: Mutex<Shown> = Mutex::new(Shown { run: None, has_line: false });

/// What is shown at present.
struct Shown {
    run: Option<(Forecast, Instant)>,
    /// Whether a line stands there that is to be rewritten.
    has_line: bool,
}

fn shown() -> MutexGuard<'static, Shown> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets how much this process says; the first call counts.
pub(crate) fn set_verbosity(verbosity: Verbosity) {
    let _ = VERBOSITY.set(verbosity);
}

fn verbosity() -> Verbosity {
    VERBOSITY.get().copied().unwrap_or_default()
}

/// Writes a notice, unless less was asked for.
macro_rules! notice {
    ($($words:tt)*) => {
        $crate::run::say($crate::run::Verbosity::Usual, format_args!($($words)*))
    };
}
pub(crate) use notice;

/// Writes a step of the work, if more was asked for.
macro_rules! detail {
    ($($words:tt)*) => {
        $crate::run::say($crate::run::Verbosity::Detailed, format_args!($($words)*))
    };
}
pub(crate) use detail;

/// Writes `words` as a line on standard error, for those who asked for as much.
pub(crate) fn say(least: Verbosity, words: Arguments<'_>) {
    if verbosity() >= least {
        let mut shown = shown();
        shown.take_back();
        // A line that nobody can read is no reason to stop.
        let _ = writeln!(stderr(), "{words}");
    }
}

/// Erases the line that is rewritten, before something else is written.
pub(crate) fn erase_line() {
    shown().take_back();
}

impl Shown {
    fn take_back(&mut self) {
        if std::mem::take(&mut self.has_line) {
            let _ = write!(stderr(), "{TAKEN_BACK}");
        }
    }

    fn step(&mut self) {
        let Some((forecast, begun)) = &mut self.run else { return };
        match forecast.step(begun.elapsed()) {
            Some(ForecastText::Rewritten(line)) => {
                let _ = write!(stderr(), "{LINE_BEGINS}{line}{LINE_ENDS}");
                let _ = stderr().flush();
                self.has_line = true;
            }
            Some(ForecastText::Line(line)) => {
                let _ = writeln!(stderr(), "{line}");
            }
            None => {}
        }
    }
}

/// The forecast of a run under way; dropped, it ends.
pub(crate) struct RemainingTime(Option<JoinHandle<()>>);

impl RemainingTime {
    /// Begins to tell how long parts of these weights take, each called `noun`. A unit of weight
    /// takes `planned`, where that is known.
    pub(crate) fn begin(noun: &'static str, weights: Vec<f64>, planned: Option<Duration>) -> Self {
        if verbosity() == Verbosity::Quiet {
            return Self(None);
        }
        let place = match stderr().is_terminal() {
            true => ForecastPlace::Terminal,
            false => ForecastPlace::Lines,
        };
        shown().run = Some((Forecast::new(place, noun, weights, planned), Instant::now()));
        let work = || {
            loop {
                let mut shown = shown();
                if shown.run.is_none() {
                    return;
                }
                shown.step();
                drop(shown);
                thread::park_timeout(LOOK_EVERY);
            }
        };
        Self(thread::Builder::new().name("remaining".into()).spawn(work).ok())
    }

    /// Notes that the next part begins, which is `what`.
    pub(crate) fn part(&self, what: impl ToString) {
        if let Some((forecast, begun)) = &mut shown().run {
            forecast.begin_part(begun.elapsed(), what.to_string());
        }
        if let Some(thread) = &self.0 {
            thread.thread().unpark();
        }
    }
}

impl Drop for RemainingTime {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let mut shown = shown();
            shown.run = None;
            shown.take_back();
            drop(shown);
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Notes that `done` of `all` of the part under way is done, where a forecast wants to know.
pub(crate) fn reached(done: u64, all: u64) {
    if let Some((forecast, begun)) = &mut shown().run {
        forecast.reach(begun.elapsed(), done as f64 / all.max(1) as f64);
    }
}
