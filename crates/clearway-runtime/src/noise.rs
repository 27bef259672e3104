//! What this machine's processors did during a measurement: waiting, interruptions, pressure,
//! theft.
//!
//! # Model
//! Latency on a busy machine is partly the network's and partly the processors'. A sample every
//! [`PERIOD`] is reported with the measured figures, so that a reader can tell the two apart. Each
//! value is the growth since the sample before.
//!
//! A rank that measures takes samples of its own waiting only ([`WaitSampler`]): pressure is that
//! of any task, also of one that runs only when nothing else does and is meant to wait
//! ([`awake`](crate::awake)).
//!
//! # Source
//! `proc(5)`: `/proc/thread-self/{schedstat,status}`, `/proc/pressure/cpu`, `/proc/stat`,
//! `/proc/loadavg`. The thread's own files, because those of the process (`/proc/self`) speak of
//! its first thread only.
//!
//! # Invariants
//! I1. What the system does not tell is absent, never zero.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use clearway_proto::base::{LocalNs, Nanos};

/// Time between samples.
pub const PERIOD: Nanos = Nanos::from_millis(100);

/// The unit of `/proc/stat`: `USER_HZ` is 100 on all architectures that Rust supports.
const TICK: Nanos = Nanos::from_millis(10);

/// The processors' part in one stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoiseSample {
    /// When the stretch ended.
    pub at: LocalNs,
    /// How long it was.
    pub length: Nanos,
    /// How long this thread was ready to run and had no processor.
    pub run_delay: Option<Nanos>,
    /// How often this thread was put off its processor against its will.
    pub involuntary_switches: Option<u64>,
    /// How long at least one task of the machine (or container) waited for a processor.
    pub pressure: Option<Nanos>,
    /// How long the hypervisor ran something else, summed over processors.
    pub steal: Option<Nanos>,
    /// Tasks running or ready to run at the end of the stretch.
    pub running: Option<u64>,
}

/// Totals since the system or thread began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NoiseTotals {
    run_delay: Option<Nanos>,
    involuntary_switches: Option<u64>,
    pressure: Option<Nanos>,
    steal: Option<Nanos>,
    running: Option<u64>,
}

impl NoiseTotals {
    fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            run_delay: run_delay(&text("/proc/thread-self/schedstat")),
            involuntary_switches: involuntary_switches(&text("/proc/thread-self/status")),
            pressure: pressure(&text("/proc/pressure/cpu")),
            steal: steal(&text("/proc/stat")),
            running: running_tasks(&text("/proc/loadavg")),
        }
    }

    /// Returns the growth from `before` to `self`.
    fn since(self, before: Self, at: LocalNs, length: Nanos) -> NoiseSample {
        fn grown<T>(now: Option<T>, before: Option<T>, less: impl FnOnce(T, T) -> T) -> Option<T> {
            Some(less(now?, before?))
        }
        NoiseSample {
            at,
            length,
            run_delay: grown(self.run_delay, before.run_delay, |a, b| a - b),
            involuntary_switches: grown(
                self.involuntary_switches,
                before.involuntary_switches,
                u64::saturating_sub,
            ),
            pressure: grown(self.pressure, before.pressure, |a, b| a - b),
            steal: grown(self.steal, before.steal, |a, b| a - b),
            running: self.running,
        }
    }
}

/// Takes samples on the thread that measures.
#[derive(Debug)]
pub struct NoiseSampler {
    last: NoiseTotals,
    sampled: LocalNs,
}

impl NoiseSampler {
    /// Begins the first stretch at `now`.
    pub fn new(now: LocalNs) -> Self {
        Self { last: NoiseTotals::read(), sampled: now }
    }

    /// Returns when the next sample is due.
    fn due(&self) -> LocalNs {
        self.sampled + PERIOD
    }

    /// Returns the stretch that ended, if a sample is due at `now`. Reads five small files: about
    /// 50 us.
    pub fn sample(&mut self, now: LocalNs) -> Option<NoiseSample> {
        (now >= self.due()).then(|| {
            let totals = NoiseTotals::read();
            let sample = totals.since(self.last, now, now.since(self.sampled));
            self.last = totals;
            self.sampled = now;
            sample
        })
    }
}

/// How long a thread was ready to run and had no processor, in one stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorWait {
    /// When the stretch ended.
    pub at: LocalNs,
    /// How long it was.
    pub length: Nanos,
    /// What part of it the thread waited.
    pub waited: Nanos,
}

/// Takes samples of how long its own thread waits for a processor.
#[derive(Debug)]
pub struct WaitSampler {
    schedule: ThreadSchedule,
    waited: Option<Nanos>,
    sampled: LocalNs,
}

impl WaitSampler {
    /// Begins the first stretch at `now`. To be used on the thread that made it.
    pub fn new(now: LocalNs) -> Self {
        let mut schedule = ThreadSchedule::default();
        Self { waited: schedule.run_delay(), schedule, sampled: now }
    }

    /// Returns the stretch that ended, if a sample is due at `now` and the system tells. Reads one
    /// small file, kept open: 1 us.
    pub fn sample(&mut self, now: LocalNs) -> Option<ProcessorWait> {
        let length = now.since(self.sampled);
        if length < PERIOD {
            return None;
        }
        self.sampled = now;
        let before = std::mem::replace(&mut self.waited, self.schedule.run_delay());
        Some(ProcessorWait { at: now, length, waited: self.waited? - before? })
    }
}

/// What the system tells of the thread that reads it.
#[derive(Debug, Default)]
pub(crate) struct ThreadSchedule(Option<File>);

impl ThreadSchedule {
    /// Returns how long this thread has been ready and had no processor.
    pub(crate) fn run_delay(&mut self) -> Option<Nanos> {
        run_delay(&reread(&mut self.0, "/proc/thread-self/schedstat")?)
    }
}

/// Returns the first line of a file that is opened on first use.
pub(crate) fn reread(file: &mut Option<File>, path: &str) -> Option<String> {
    if file.is_none() {
        *file = File::open(path).ok();
    }
    let mut bytes = [0; 256];
    let length = file.as_ref()?.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Returns the second field of a `schedstat`: ns on a run queue.
fn run_delay(schedstat: &str) -> Option<Nanos> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok().map(Nanos)
}

/// Returns the fourth field of `loadavg`: running tasks before the slash.
pub(crate) fn running_tasks(loadavg: &str) -> Option<u64> {
    loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

fn involuntary_switches(status: &str) -> Option<u64> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?
        .trim()
        .parse()
        .ok()
}

/// Returns the `some` line's total, in us.
fn pressure(cpu: &str) -> Option<Nanos> {
    let some = cpu.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split_ascii_whitespace().find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok().map(Nanos::from_micros)
}

/// Returns the eighth figure of the `cpu` line, in clock ticks.
fn steal(stat: &str) -> Option<Nanos> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: u64 = all.split_ascii_whitespace().nth(7)?.parse().ok()?;
    Some(TICK.times(ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsers__read_what_the_kernel_writes() {
        assert_eq!(run_delay("93851278 2501117 1056\n"), Some(Nanos(2_501_117)));
        assert_eq!(running_tasks("0.54 0.24 0.12 3/101 9248\n"), Some(3));
        let status =
            "Name:\tclearway\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(involuntary_switches(status), Some(545));
        let cpu = "some avg10=1.53 avg60=0.87 avg300=0.20 total=1157622\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure(cpu), Some(Nanos::from_micros(1_157_622)));
        let stat = "cpu  10132153 290696 3084719 46828483 16683 0 25195 42 175628 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(steal(stat), Some(Nanos::from_millis(420)));
    }

    #[test]
    fn parsers__what_is_not_reported_is_absent() {
        for text in ["", "\n", "x y z w v\n", "some avg10=0.00\n", "cpu  x\n", "1 -2 3 -4/5\n"] {
            assert_eq!((run_delay(text), running_tasks(text)), (None, None), "{text:?}");
            assert_eq!(
                (involuntary_switches(text), pressure(text), steal(text)),
                (None, None, None),
                "{text:?}"
            );
        }
    }

    #[test]
    fn since__is_the_growth_and_absent_where_either_end_is() {
        let before = NoiseTotals {
            run_delay: Some(Nanos(5)),
            involuntary_switches: Some(1),
            ..NoiseTotals::default()
        };
        let after = NoiseTotals {
            run_delay: Some(Nanos(9)),
            pressure: Some(Nanos(7)),
            running: Some(2),
            ..NoiseTotals::default()
        };
        let sample = after.since(before, LocalNs(10), Nanos(4));
        let expected = NoiseSample {
            at: LocalNs(10),
            length: Nanos(4),
            run_delay: Some(Nanos(4)),
            running: Some(2),
            ..NoiseSample::default()
        };
        assert_eq!(sample, expected);
    }

    #[test]
    fn own_waits__are_reported_when_due_each_stretch_once() {
        let begin = LocalNs(1_000);
        let mut waits = WaitSampler::new(begin);
        if waits.waited.is_none() {
            return eprintln!(
                "skipped: this kernel does not tell how long threads wait (CONFIG_SCHED_INFO)"
            );
        }
        waits.waited = Some(Nanos::ZERO);
        assert_eq!(waits.sample(begin + (PERIOD - Nanos(1))), None);
        let all = waits.sample(begin + PERIOD).expect("due");
        assert_eq!((all.at, all.length), (begin + PERIOD, PERIOD));
        assert_eq!(
            waits.waited,
            Some(all.waited),
            "of everything until now nothing was reported before"
        );
        assert_eq!(waits.sample(begin + PERIOD), None);
    }

    #[test]
    fn sample__only_when_due() {
        let mut sampler = NoiseSampler::new(LocalNs(1_000));
        assert_eq!(sampler.sample(LocalNs(1_000) + (PERIOD - Nanos(1))), None);
        let sample = sampler.sample(LocalNs(1_000) + PERIOD).expect("due");
        assert_eq!((sample.length, sampler.due()), (PERIOD, LocalNs(1_000) + PERIOD + PERIOD));
    }
}
