//! Decides whether measurements made on this machine now can be trusted: processors' noise, and how
//! late timers wake.
//!
//! # Model
//! For about a second this thread does what a quiet rank does: sleeps in a wire's wait for a
//! millisecond, again and again. Noise is sampled next to it. A wait that found no timer exact
//! enough, or a processor that was elsewhere, shows in both. Only then processors are kept awake
//! for an instant: what does that runs, and would be noise itself.

use std::num::NonZero;
use std::thread;

use clearway_proto::base::{BitsPerSec, Bytes, LocalNs, Nanos};
use clearway_proto::stats::{Histogram, Quantile};
use clearway_runtime::RuntimeError;
use clearway_runtime::awake::Awake;
use clearway_runtime::clock;
use clearway_runtime::noise::{NoiseSample, NoiseSampler};
use clearway_runtime::waiting::Waitable;

use super::finding::{Finding, FindingGroup, Status};
use super::pair::TestPair;

/// How long noise is watched: ten samples.
const WATCHED: Nanos = Nanos::from_secs(1);
/// The wait whose end is timed.
const NAP: Nanos = Nanos::from_millis(1);
/// One frame at the lab's default rate takes this long: a timer later than that is a whole frame
/// late.
const LATE: (BitsPerSec, Bytes) = (BitsPerSec::mega(100), Bytes(1514));
/// What takes more than a hundredth of the time shows in a p99.
const SHARE_MAX: f64 = 0.01;
/// The wire's own limit for calling a processor free: a twentieth of the time.
const PRESSURE_MAX: f64 = 0.05;

/// What the processors did while they were watched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ProcessorActivity {
    /// Part of the time in which this thread was ready and had no processor.
    run_delay: Option<f64>,
    /// Part of the time in which some task waited for a processor.
    pressure: Option<f64>,
    /// Part of all processors' time that the hypervisor took.
    steal: Option<f64>,
    /// The median of running tasks, this one included.
    running: Option<u64>,
    /// Processors that this process may use.
    processors: u64,
}

/// Watches for about a second.
pub(super) fn examine() -> FindingGroup {
    let mut findings = Vec::new();
    match TestPair::on_loopback() {
        Ok(pair) => {
            let (noise, lateness) = watch(pair);
            findings.push(judge(&ProcessorActivity::from_samples(
                &noise,
                thread::available_parallelism().map_or(1, NonZero::get) as u64,
            )));
            findings.push(timers(&lateness));
        }
        Err(error) => {
            let found = format!("cannot be watched: {error:#}");
            findings.push(Finding::missing("noise", found, "bring the loopback interface up"));
        }
    }
    findings.push(awake(&Awake::keep()));
    FindingGroup { title: "Processors", findings }
}

fn watch(mut pair: TestPair) -> (Vec<NoiseSample>, Histogram) {
    let begin = clock::now();
    let mut sampler = NoiseSampler::new(begin);
    let (mut noise, mut lateness) = (Vec::new(), Histogram::new());
    let mut now = begin;
    while now.since(begin) < WATCHED {
        let until: LocalNs = now + NAP;
        pair.receiver.wait(Some(until), &[]);
        let woken = clock::now();
        // A signal may end a wait early; that says nothing about timers.
        if woken >= until {
            lateness.record(woken.since(until).0);
        }
        noise.extend(sampler.sample(woken));
        now = clock::now();
    }
    (noise, lateness)
}

impl ProcessorActivity {
    fn from_samples(noise: &[NoiseSample], processors: u64) -> Self {
        let length = noise.iter().map(|sample| sample.length.0).sum::<u64>().max(1) as f64;
        let share = |pick: fn(&NoiseSample) -> Option<Nanos>| {
            let parts: Option<Vec<u64>> =
                noise.iter().map(|sample| pick(sample).map(|part| part.0)).collect();
            parts
                .filter(|parts| !parts.is_empty())
                .map(|parts| parts.iter().sum::<u64>() as f64 / length)
        };
        let mut running: Vec<u64> = noise.iter().filter_map(|sample| sample.running).collect();
        running.sort_unstable();
        Self {
            run_delay: share(|sample| sample.run_delay),
            pressure: share(|sample| sample.pressure),
            steal: share(|sample| sample.steal).map(|steal| steal / processors.max(1) as f64),
            running: running.get(running.len() / 2).copied(),
            processors,
        }
    }

    /// Returns every figure beyond its limit, as the beginning of a sentence.
    fn complaints(&self) -> Vec<&'static str> {
        let beyond = |share: Option<f64>, limit: f64| share.is_some_and(|share| share > limit);
        [
            (
                self.running.is_some_and(|running| running > self.processors),
                "more tasks run than there are processors",
            ),
            (beyond(self.pressure, PRESSURE_MAX), "tasks wait for processors"),
            (beyond(self.run_delay, SHARE_MAX), "this program waited for a processor"),
            (beyond(self.steal, SHARE_MAX), "the hypervisor takes processors away"),
        ]
        .into_iter()
        .filter_map(|(found, complaint)| found.then_some(complaint))
        .collect()
    }

    fn figures(&self) -> String {
        let percent = |share: Option<f64>| {
            share.map_or("unknown".into(), |share| format!("{:.1} %", share * 100.0))
        };
        format!(
            "pressure {}, steal {}, run delay {}, {} running on {}",
            percent(self.pressure),
            percent(self.steal),
            percent(self.run_delay),
            self.running.map_or("unknown".into(), |running| running.to_string()),
            self.processors
        )
    }

    /// Returns whether the kernel tells neither run delay nor pressure.
    fn is_blind(&self) -> bool {
        self.run_delay.is_none() && self.pressure.is_none()
    }
}

fn judge(watched: &ProcessorActivity) -> Finding {
    let (complaints, figures) = (watched.complaints(), watched.figures());
    if watched.is_blind() {
        let remedy = "use a kernel with CONFIG_PSI or CONFIG_SCHED_INFO";
        return Finding::limited(
            "noise",
            format!("{figures}; nobody can tell whether to trust measurements"),
            remedy,
        );
    }
    if complaints.is_empty() {
        return Finding::ok("noise", format!("{figures}; measurements made now can be trusted"));
    }
    let found = format!("{figures}; do not trust measurements made now: {}", complaints.join(", "));
    Finding::limited(
        "noise",
        found,
        "wait until other work has ended, or use a machine of your own",
    )
}

fn timers(lateness: &Histogram) -> Finding {
    let at = |quantile| lateness.quantile(quantile).finite().map(Nanos);
    let (Some(p50), Some(p99)) = (at(Quantile::P50), at(Quantile::P99)) else {
        return Finding::missing(
            "timers",
            "no wait ended in time to be judged",
            "end other work and try again",
        );
    };
    let found =
        format!("a wait of {NAP} ends late by {p50} (median), {p99} (p99 of {})", lateness.count());
    if p99 <= LATE.0.time_for(LATE.1) {
        return Finding::ok("timers", found);
    }
    let remedy = "end other work; on a virtual machine ask for processors of its own";
    Finding { status: Status::Limited, ..Finding::limited("timers", found, remedy) }
}

fn awake(kept: &Result<Awake, RuntimeError>) -> Finding {
    let item = "awake";
    match kept {
        Ok(awake) => Finding::ok(item, format!("a lab can keep processors from sleeping, {awake}")),
        Err(error) => {
            let found =
                format!("processors sleep when a lab is idle and are late to receive: {error}");
            Finding::limited(
                item,
                found,
                "trust absolute times less than factors, and factors below 1 not at all",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awake__a_limit_of_processor_time_is_said() {
        let finding = awake(&Err(RuntimeError::ProcessorTime { granted: 2, processors: 64 }));
        assert_eq!(finding.status, Status::Limited);
        assert!(
            finding.found.contains("may use 64 processors, and the time of 2"),
            "{}",
            finding.found
        );
    }

    fn sample(pressure_ms: u64, running: u64) -> NoiseSample {
        NoiseSample {
            length: Nanos::from_millis(100),
            run_delay: Some(Nanos::ZERO),
            pressure: Some(Nanos::from_millis(pressure_ms)),
            steal: Some(Nanos::from_millis(10)),
            running: Some(running),
            ..NoiseSample::default()
        }
    }

    #[test]
    fn watched__is_shares_of_the_whole_time_and_the_median_of_tasks() {
        let watched =
            ProcessorActivity::from_samples(&[sample(10, 9), sample(30, 1), sample(20, 2)], 2);
        let near = |share: Option<f64>, expected: f64| {
            share.is_some_and(|share| (share - expected).abs() < 1e-9)
        };
        assert!(
            near(watched.pressure, 0.2)
                && near(watched.steal, 0.05)
                && near(watched.run_delay, 0.0)
        );
        assert_eq!(watched.running, Some(2));
    }

    #[test]
    fn watched__what_the_kernel_did_not_tell_once_is_unknown() {
        let watched = ProcessorActivity::from_samples(
            &[sample(0, 1), NoiseSample { pressure: None, ..sample(0, 1) }],
            2,
        );
        assert_eq!(watched.pressure, None);
        assert_eq!(
            ProcessorActivity::from_samples(&[], 2),
            ProcessorActivity { processors: 2, ..ProcessorActivity::default() }
        );
    }

    #[test]
    fn judge__each_kind_of_noise_is_named() {
        let quiet = ProcessorActivity {
            run_delay: Some(0.0),
            pressure: Some(0.01),
            steal: Some(0.0),
            running: Some(1),
            processors: 2,
        };
        assert_eq!(judge(&quiet).status, Status::Ok);
        for (watched, word) in [
            (ProcessorActivity { run_delay: Some(0.02), ..quiet }, "this program waited"),
            (ProcessorActivity { pressure: Some(0.06), ..quiet }, "tasks wait"),
            (ProcessorActivity { steal: Some(0.02), ..quiet }, "hypervisor"),
            (ProcessorActivity { running: Some(3), ..quiet }, "more tasks"),
            (ProcessorActivity { run_delay: None, pressure: None, ..quiet }, "nobody can tell"),
        ] {
            let finding = judge(&watched);
            assert_eq!((finding.status, finding.remedies.len()), (Status::Limited, 1), "{word}");
            assert!(finding.found.contains(word), "{}", finding.found);
        }
    }

    #[test]
    fn timers__a_frame_late_is_limited_and_nothing_timed_is_missing() {
        let of = |late_us: u64| {
            let mut lateness = Histogram::new();
            lateness.record_n(Nanos::from_micros(late_us).0, 100);
            timers(&lateness).status
        };
        assert_eq!((of(60), of(200)), (Status::Ok, Status::Limited));
        assert_eq!(timers(&Histogram::new()).status, Status::Missing);
    }
}
