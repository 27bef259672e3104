//! The rate of staging, set by the latency that staging adds to an application.
//!
//! # Model
//! A probe that sends like the application measures latencies all the time. Some samples fall into
//! pauses of staging (*paused*), the others do not (*sending*). Every 50 ms, with `eps` the excess
//! that is tolerated:
//! ```text
//!   e = p90(sending) / p90(paused) - 1
//!   e > eps    rate = rate x max(1/2, 1 - e/2)
//!   else       rate = rate + 2 % of the link
//! ```
//! The ratio is that of the congestion test: the delay that others cause is in both and cancels
//! out, so staging does not slow down for a load that is not its own. A load of others that begins
//! or ends would be in one of the two only. So samples count only after the next pause, and are
//! compared with the slower of the pauses before and after them.
//!
//! A decision needs 3 paused and 10 sending samples, and each sample counts once: else delays of
//! the old rate would reduce the new one. With fewer samples the rate stays; without any
//! sending sample it rises.
//!
//! A controller that starts slowly begins at the least rate and doubles it, instead of the step up,
//! until the first excess: so a load that begins delays nobody for long.
//!
//! A deadline needs a rate, the bytes left divided by the time left: the floor. It has precedence;
//! the report says by how much the rate is raised for it.
//!
//! # Source
//! Pauses: slowdowns as in draft-irtf-iccrg-ledbat-plus-plus. Increase by a part of the whole and
//! decrease in proportion: Chiu and Jain, "Analysis of the increase and decrease algorithms for
//! congestion avoidance in computer networks" (1989).
//!
//! # Invariants
//! I1. The rate is at most that of the link; up to that, at least the floor and 1 % of the link.
//! I2. It falls only for samples that were slower than both pauses around them.
//!
//! # Not here
//! Where samples come from, and what enforces the rate ([`super::TokenBucket`]).

use alloc::vec::Vec;

use crate::base::{BitsPerSec, LocalNs, Nanos};

/// Time between decisions.
const DECIDE_EVERY: Nanos = Nanos::from_millis(50);
/// Samples of pauses that a decision needs: a probe at 1 kHz has them in a period of which
/// staging pauses a twentieth.
const PAUSED_LEAST: usize = 3;
/// Sending samples that a decision needs: the 90th percentile of fewer is their maximum.
const SENDING_LEAST: usize = 10;
/// Samples of a kind that are kept: a second of a probe at 1 kHz.
const SAMPLES_MOST: usize = 1_000;
/// Periods after which samples that were too few for a decision are dropped: a second.
const PERIODS_MOST: u32 = 20;
/// The divisor of the link's rate for a step up: 2 %.
const STEP: u64 = 50;
/// The divisor of the link's rate for the least rate: 1 %. Without any traffic of staging nothing
/// would show that it slows the application no longer.
const LEAST: u64 = 100;
/// Periods of each of the two halves of a minute for which the fastest pause is remembered.
const QUIET_FOR: u32 = 600;

/// Says when a probe was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMoment {
    /// In a pause of staging.
    Paused,
    /// While staging was sending.
    Sending,
}

/// Names what makes the application slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExcessCause {
    /// There were too few samples.
    Unknown,
    /// It is as fast as it is without staging and without others.
    None,
    /// Staging: the rate falls.
    Staging,
    /// Others: it is slow in pauses of staging as well.
    Others,
}

/// Reports a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YieldReport {
    /// By how much the application is slower while staging sends, in thousandths.
    pub excess_permille: u32,
    /// What makes it slow.
    pub cause: ExcessCause,
    /// The rate from now on.
    pub rate: BitsPerSec,
    /// The part of it that only a deadline needs: the excess of the floor over the rate that spares
    /// the application.
    pub for_deadline: BitsPerSec,
}

/// Decides the rate of staging.
#[derive(Clone, Debug)]
pub struct YieldController {
    link: BitsPerSec,
    eps_permille: u32,
    /// The rate that spares the application, without the floor.
    spared: u64,
    /// No excess was seen yet.
    is_starting: bool,
    floor: u64,
    paused: Vec<Nanos>,
    /// Sending samples before the last pause; `pending` are those that no pause followed yet.
    sending: Vec<Nanos>,
    pending: Vec<Nanos>,
    /// The 90th percentile of pauses at the last decision.
    before: Nanos,
    /// The fastest pauses of this half and the one before.
    quiet: [Nanos; 2],
    quiet_periods: u32,
    next: LocalNs,
    /// Periods since the last decision.
    periods: u32,
}

impl YieldController {
    /// Creates a controller for a link, at its full rate. The application may become slower by
    /// `eps_permille` thousandths.
    pub fn new(now: LocalNs, link: BitsPerSec, eps_permille: u32) -> Self {
        Self {
            link,
            eps_permille,
            spared: link.0,
            is_starting: false,
            floor: 0,
            paused: Vec::new(),
            sending: Vec::new(),
            pending: Vec::new(),
            before: Nanos::ZERO,
            quiet: [Nanos::MAX; 2],
            quiet_periods: 0,
            next: now + DECIDE_EVERY,
            periods: 0,
        }
    }

    /// Creates a controller as [`Self::new`] does, which starts slowly.
    pub fn new_slow(now: LocalNs, link: BitsPerSec, eps_permille: u32) -> Self {
        let least = (link.0 / LEAST).max(1);
        Self { spared: least, is_starting: true, ..Self::new(now, link, eps_permille) }
    }

    /// Returns the rate that staging may send at.
    pub fn rate(&self) -> BitsPerSec {
        BitsPerSec(self.spared.max(self.floor).min(self.link.0))
    }

    /// Returns when the next decision is made.
    pub const fn deadline(&self) -> LocalNs {
        self.next
    }

    /// Sets the rate that deadlines need: that of [`super::DeadlineQueue::rate_needed`].
    pub const fn set_floor(&mut self, floor: BitsPerSec) {
        self.floor = floor.0;
    }

    /// Adds a sample of the probe; call it in the order in which probes left.
    pub fn sample(&mut self, moment: ProbeMoment, latency: Nanos) {
        match moment {
            ProbeMoment::Paused => {
                let room = SAMPLES_MOST.saturating_sub(self.sending.len());
                self.pending.truncate(room);
                self.sending.append(&mut self.pending);
                if self.paused.len() < SAMPLES_MOST {
                    self.paused.push(latency);
                }
            }
            ProbeMoment::Sending if self.pending.len() < SAMPLES_MOST => self.pending.push(latency),
            ProbeMoment::Sending => {}
        }
    }

    /// Decides, when it is time.
    pub fn tick(&mut self, now: LocalNs) -> Option<YieldReport> {
        if now < self.next {
            return None;
        }
        self.next = now + DECIDE_EVERY;
        self.periods += 1;
        let (mut excess_permille, mut cause) = (0, ExcessCause::Unknown);
        if self.paused.len() >= PAUSED_LEAST && self.sending.len() >= SENDING_LEAST {
            (excess_permille, cause) = self.judge();
        } else if self.sending.is_empty() && self.pending.is_empty() {
            // A controller that starts slowly has nothing to go by yet.
            if !self.is_starting {
                self.grow();
            }
            self.forget();
        } else if self.periods >= PERIODS_MOST {
            self.forget();
        }
        let rate = self.rate();
        let for_deadline = BitsPerSec(rate.0.saturating_sub(self.spared));
        Some(YieldReport { excess_permille, cause, rate, for_deadline })
    }

    /// Compares the samples, and changes the rate; returns the excess and its cause.
    fn judge(&mut self) -> (u32, ExcessCause) {
        let (paused, sending) = (p90(&mut self.paused), p90(&mut self.sending));
        let isolated = paused.max(self.before).0.max(1);
        let excess = excess_permille(sending.0, isolated);
        let cause = if excess > self.eps_permille {
            let kept = 1_000_u64.saturating_sub(u64::from(excess / 2)).max(500);
            let spared = u128::from(self.spared) * u128::from(kept) / 1_000;
            self.spared = (spared as u64).max(self.link.0 / LEAST);
            self.is_starting = false;
            // These samples left while the rate was too high.
            self.pending.clear();
            ExcessCause::Staging
        } else {
            self.grow();
            let quiet = self.quiet[0].min(self.quiet[1]).min(paused);
            let is_slow = excess_permille(isolated, quiet.0.max(1)) > self.eps_permille;
            if is_slow { ExcessCause::Others } else { ExcessCause::None }
        };
        self.remember(paused);
        self.before = paused;
        self.paused.clear();
        self.sending.clear();
        self.periods = 0;
        (excess, cause)
    }

    fn grow(&mut self) {
        let step = if self.is_starting { self.spared } else { self.link.0 / STEP };
        self.spared = self.spared.saturating_add(step).min(self.link.0);
    }

    fn forget(&mut self) {
        self.paused.clear();
        self.sending.clear();
        self.pending.clear();
        self.periods = 0;
    }

    fn remember(&mut self, paused: Nanos) {
        self.quiet_periods += self.periods;
        if self.quiet_periods >= QUIET_FOR {
            self.quiet = [Nanos::MAX, self.quiet[0]];
            self.quiet_periods = 0;
        }
        self.quiet[0] = self.quiet[0].min(paused);
    }
}

/// Returns by how many thousandths `value` is above `base`.
fn excess_permille(value: u64, base: u64) -> u32 {
    let above = u128::from(value.saturating_sub(base)) * 1_000 / u128::from(base);
    u32::try_from(above).unwrap_or(u32::MAX)
}

/// Returns the value that a tenth of the samples exceed; there is one at least.
fn p90(samples: &mut [Nanos]) -> Nanos {
    let place = (samples.len() * 9).div_ceil(10).saturating_sub(1);
    *samples.select_nth_unstable(place).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{RandomKey, RandomStream};
    use proptest::prelude::*;

    const LINK: u64 = 1_000_000_000;
    const EPS: u32 = 50;

    /// An application that runs during staging: a period has 50 probes, of which the last three of
    /// each 17 or so fall into a pause.
    struct ProbedApplication {
        controller: YieldController,
        now: LocalNs,
        random: RandomStream,
        /// Staging above this rate makes the application slower.
        knee: u64,
        /// By how many thousandths others make it slower.
        others: u64,
    }

    impl ProbedApplication {
        fn new(seed: u64) -> Self {
            let random = RandomKey::new(seed).purpose("yielding").stream();
            let controller = YieldController::new(LocalNs(0), BitsPerSec(LINK), EPS);
            Self { controller, now: LocalNs(0), random, knee: LINK, others: 0 }
        }

        /// Passes a period; others are there from probe `from` on as `others` says.
        fn period(&mut self, from: u64, others: u64) -> YieldReport {
            for probe in 0..50 {
                if probe == from {
                    self.others = others;
                }
                let moment =
                    if probe % 17 >= 15 { ProbeMoment::Paused } else { ProbeMoment::Sending };
                let rate = self.controller.rate().0;
                let own = match moment {
                    ProbeMoment::Paused => 0,
                    // At twice the knee the application takes twice as long.
                    ProbeMoment::Sending => rate.saturating_sub(self.knee) * 1_000 / self.knee,
                };
                // A scatter of 2 %.
                let base = 10_000 + self.random.below(200);
                let latency = base * (1_000 + own) / 1_000 * (1_000 + self.others) / 1_000;
                self.controller.sample(moment, Nanos(latency));
            }
            self.now += DECIDE_EVERY;
            self.controller.tick(self.now).expect("it is time")
        }

        /// Passes periods without a change; the last report.
        fn periods(&mut self, count: u32) -> YieldReport {
            (0..count).map(|_| self.period(0, self.others)).last().expect("a period")
        }
    }

    fn percent(report: &YieldReport) -> u64 {
        report.rate.0 * 100 / LINK
    }

    #[test]
    fn tick__between_decisions_there_is_none() {
        let mut controller = YieldController::new(LocalNs(5), BitsPerSec(LINK), EPS);
        let due = LocalNs(5) + DECIDE_EVERY;
        assert_eq!(controller.deadline(), due);
        assert_eq!(controller.tick(LocalNs(due.0 - 1)), None);
        assert!(controller.tick(due).is_some());
        assert_eq!(controller.deadline(), due + DECIDE_EVERY);
    }

    #[test]
    fn tick__an_excess_is_answered_in_proportion_and_by_a_half_at_most() {
        for (sending, percents, excess) in [(1_040, 100, 40), (1_200, 90, 200), (9_000, 50, 8_000)]
        {
            let mut controller = YieldController::new(LocalNs(0), BitsPerSec(LINK), EPS);
            for _ in 0..3 {
                (0..9).for_each(|_| controller.sample(ProbeMoment::Sending, Nanos(sending)));
                controller.sample(ProbeMoment::Paused, Nanos(1_000));
            }
            let report = controller.tick(LocalNs(0) + DECIDE_EVERY).expect("it is time");
            assert_eq!((percent(&report), report.excess_permille), (percents, excess));
        }
    }

    #[test]
    fn new_slow__the_rate_doubles_until_the_first_excess_and_grows_by_steps_then() {
        let mut machine = ProbedApplication::new(3);
        machine.controller = YieldController::new_slow(LocalNs(0), BitsPerSec(LINK), EPS);
        assert_eq!(machine.controller.rate().0, LINK / LEAST);
        machine.knee = LINK / 5;
        let rates: Vec<u64> = (0..6).map(|_| percent(&machine.periods(1))).collect();
        assert_eq!(rates[..5], [2, 4, 8, 16, 32]);
        assert!(rates[5] < 32, "{rates:?}");
        let before = machine.controller.rate().0;
        machine.knee = LINK;
        assert!(machine.periods(2).rate.0 <= before + 2 * LINK / STEP);
    }

    #[test]
    fn tick__where_nobody_probes_the_rate_rises_and_without_pauses_it_stays() {
        let mut machine = ProbedApplication::new(1);
        machine.knee = LINK / 10;
        machine.periods(20);
        machine.now += DECIDE_EVERY;
        let before = machine.controller.rate().0;
        machine.controller.forget();
        let rises = machine.controller.tick(machine.now).expect("it is time");
        assert_eq!(rises.rate.0, before + LINK / STEP);
        for _ in 0..100 {
            machine.controller.sample(ProbeMoment::Sending, Nanos(1_000_000));
            machine.now += DECIDE_EVERY;
            let stays = machine.controller.tick(machine.now).expect("it is time");
            assert_eq!((stays.rate, stays.cause), (rises.rate, ExcessCause::Unknown));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn tick__staging_comes_down_to_what_harms_nobody_and_back_up(seed: u64, knee_percent in 5_u64..70) {
            let mut machine = ProbedApplication::new(seed);
            machine.knee = LINK / 100 * knee_percent;
            machine.periods(30);
            let mut sum = 0;
            for _ in 0..100 {
                let report = machine.periods(1);
                // A step above the knee, and what the application bears.
                prop_assert!(percent(&report) <= knee_percent * 12 / 10 + 4, "{:?}", report);
                sum += percent(&report);
            }
            prop_assert!(sum / 100 >= knee_percent / 2, "{} of {}", sum / 100, knee_percent);
            machine.knee = LINK;
            let back = machine.periods(55);
            prop_assert_eq!((percent(&back), back.cause), (100, ExcessCause::None));
        }

        #[test]
        fn tick__what_others_cause_throttles_nothing(seed: u64, steps in prop::collection::vec((0_u64..50, 0_u64..5_000), 1..20)) {
            let mut machine = ProbedApplication::new(seed);
            machine.periods(2);
            for (from, others) in steps {
                for report in [machine.period(from, others), machine.periods(1)] {
                    prop_assert_eq!(percent(&report), 100, "{:?}", report);
                }
                let reported = machine.periods(1);
                let cause = reported.cause;
                prop_assert!(cause == ExcessCause::Others || others < 100, "{:?}", reported);
            }
        }

        #[test]
        fn tick__a_deadline_wins_and_the_price_is_reported(seed: u64, floor_percent in 1_u64..150) {
            let mut machine = ProbedApplication::new(seed);
            machine.knee = LINK / 100;
            let floor = LINK / 100 * floor_percent;
            machine.controller.set_floor(BitsPerSec(floor));
            let report = machine.periods(41);
            let reached = floor.min(LINK);
            prop_assert!(report.rate.0 >= reached && report.rate.0 <= LINK);
            if floor_percent > 10 {
                prop_assert_eq!((report.rate.0, report.cause), (reached, ExcessCause::Staging));
                prop_assert!(report.for_deadline.0 > reached / 2 && report.excess_permille > EPS);
            }
            machine.controller.set_floor(BitsPerSec(0));
            let report = machine.periods(1);
            prop_assert_eq!(report.for_deadline, BitsPerSec(0));
            prop_assert!(percent(&report) < 10);
        }
    }
}
