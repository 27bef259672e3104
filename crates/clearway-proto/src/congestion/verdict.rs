//! Decides what a measurement allows to say: CONTAINED, CONGESTED, or nothing (INVALID).
//!
//! # Model
//! The impact factor alone cannot decide: on an idle network a small message takes microseconds,
//! and waiting for one frame in service already multiplies that. So there is a *floor*: the time of
//! one full frame on each link of the path, which no queueing discipline can take away from a
//! message that arrives while the link is busy.
//!
//! - CONTAINED: the upper end of the factor is at most `factor_max`, or the upper end of the excess
//!   is at most the floor.
//! - CONGESTED: the lower end of the factor is above `factor_max`, the lower end of the excess
//!   above the floor, and the excess `noise_ratio` times what changed without congestors and
//!   `delay_ratio` times what processors did to processes.
//! - INVALID: anything that makes either statement unsafe: a null control that shows impact without
//!   congestors, an idle network on which messages already wait longer than the floor, a load that
//!   never became one, an interval on both sides of the limit.
//!
//! Congestors short of their fair rate never acquit. Where the network itself held them up, they do
//! not shield it either: harm at less load than was asked for is harm at that load all the more.
//! Where the machine may have held them up, it may have held up the victims too, and nothing is
//! said. Congestors that yield fall short on purpose: where the same congestors without yielding
//! allow a statement on the same queue, theirs is judged as it is, with what yielding costs them.
//!
//! Noise makes latencies longer. Under load it could convict a network wrongly, so the
//! excess must be far above it; in the base case it could acquit one wrongly, so an idle p99 above
//! `idle_limit` forbids every statement.
//!
//! # Source
//! Rules 1 to 3 of `docs/method.md`, with their defaults. That protection by throttling is no
//! protection: a network that stops congestors altogether would score best in GPCNeT.
//!
//! # Invariants
//! I1. CONTAINED is never said when congestors fell short of `congestor_share_min` of their fair
//!     rate, unless they yielded and a statement about the same without yielding is there.
//! I2. A shortfall that the network caused never turns CONGESTED into INVALID.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::base::Nanos;
use crate::stats::Estimate;

/// What can be said of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum NetworkOutcome {
    /// Victims hardly notice congestors.
    Contained,
    /// Victims suffer from congestors.
    Congested,
    /// The measurement allows neither statement.
    Invalid,
}

impl fmt::Display for NetworkOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Contained => "CONTAINED",
            Self::Congested => "CONGESTED",
            Self::Invalid => "INVALID",
        })
    }
}

/// The limits of a verdict; every one can be changed in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rules {
    /// Largest impact factor on p99 that counts as contained.
    pub factor_max: f64,
    /// The null control's factor interval lies above this ...
    pub null_low: f64,
    /// ... and below this.
    pub null_high: f64,
    /// Congestors reach at least this part of their max-min fair rate while victims are measured.
    pub congestor_share_min: f64,
    /// Congestors offer at least this part of some link that victims use.
    pub overload_min: f64,
    /// The excess is at least this many times the change that the null control showed.
    pub noise_ratio: f64,
    /// The excess is at least this many times the delay between the intended and the real sends of
    /// processes. One-way times do not contain that delay, but kernel threads that carry packets
    /// wait for processors like any process.
    pub delay_ratio: f64,
    /// Largest slowdown of a program of the user's that counts as contained.
    pub slowdown_max: f64,
}

impl Rules {
    /// Says in one sentence which limit nothing can be judged by, if there is one.
    ///
    /// # Errors
    /// That sentence: a limit that is negative or not finite, a factor below 1, or null limits that
    /// leave out 1.
    pub fn check(&self) -> Result<(), String> {
        let limits = [
            ("factor-max", self.factor_max),
            ("null-low", self.null_low),
            ("null-high", self.null_high),
            ("congestor-share-min", self.congestor_share_min),
            ("overload-min", self.overload_min),
            ("noise-ratio", self.noise_ratio),
            ("delay-ratio", self.delay_ratio),
            ("slowdown-max", self.slowdown_max),
        ];
        if let Some((name, limit)) =
            limits.into_iter().find(|(_, limit)| !limit.is_finite() || *limit < 0.0)
        {
            return Err(format!("{name} is {limit}; a finite number of at least 0 works"));
        }
        if self.slowdown_max < 1.0 {
            return Err(format!(
                "slowdown-max is {}; below 1 no program could ever be unharmed",
                self.slowdown_max
            ));
        }
        if self.factor_max < 1.0 {
            return Err(format!(
                "factor-max is {}; below 1 no network could ever be contained",
                self.factor_max
            ));
        }
        if self.null_low > 1.0 || self.null_high < 1.0 {
            let (low, high) = (self.null_low, self.null_high);
            return Err(format!(
                "null-low is {low} and null-high {high}; the range must hold 1, which is no change"
            ));
        }
        Ok(())
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            factor_max: 1.5,
            null_low: 0.8,
            null_high: 1.25,
            congestor_share_min: 0.8,
            overload_min: 1.2,
            noise_ratio: 10.0,
            delay_ratio: 2.0,
            slowdown_max: 1.1,
        }
    }
}

/// What can have held up congestors that fell short of their fair rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LimitingFactor {
    /// The network alone: full buffers hold senders back, and nothing else does.
    Network {
        /// The share that the same congestors reached on the first queue of the run, where the
        /// victims were congested. Absent where this is that queue, or where the victims did not
        /// suffer there.
        unprotected: Option<f64>,
    },
    /// The congestors, which yield to others.
    Yielding {
        /// The share that the same congestors reached on the same queue without yielding. Absent
        /// where that was not measured or allows no statement.
        unyielding: Option<f64>,
    },
    /// Perhaps the machine that runs them: then it may have held up victims too.
    Unknown,
}

/// What was measured of one victim under one congestor.
#[derive(Clone, Debug, PartialEq)]
pub struct VictimEvidence {
    /// Impact factor on p99.
    pub factor: Estimate,
    /// p99 alone, in nanoseconds.
    pub isolated: Estimate,
    /// p99 under load, in nanoseconds.
    pub congested: Estimate,
    /// One full frame on each link of the longest path.
    pub floor: Nanos,
    /// p99 of the delay between the intended and the real send while congestors ran: what
    /// processors do to a process.
    pub processor_delay: Nanos,
    /// What congestors reached of their max-min fair rate; absent when the pattern sends nothing.
    pub congestor_share: Option<f64>,
    /// What held them up if that is little.
    pub brake: LimitingFactor,
    /// What congestors offered of the fullest link that victims use; absent when the pattern sends
    /// nothing.
    pub overload: Option<f64>,
    /// The longest p99 that an idle network explains; absent for patterns whose time is their own
    /// work.
    pub idle_limit: Option<Nanos>,
    /// The same victims with no congestors at all, measured in the same run.
    pub null: Option<NullEvidence>,
}

/// What the null control showed: the phases of a measurement, without anyone who congests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NullEvidence {
    /// "Impact" factor on p99.
    pub factor: Estimate,
    /// p99 of the isolated windows, in nanoseconds.
    pub isolated: Estimate,
    /// p99 of the window in which congestors would run.
    pub congested: Estimate,
}

impl NullEvidence {
    /// Returns the largest change of p99 that nobody caused, in nanoseconds; infinite as soon as
    /// any of it was lost.
    fn change(&self) -> f64 {
        if self.congested.high.is_infinite() || self.isolated.high.is_infinite() {
            return f64::INFINITY; // of two infinities the difference would be none
        }
        (self.congested.high - self.isolated.low).max(self.isolated.high - self.congested.low)
    }
}

/// An outcome and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The outcome.
    pub outcome: NetworkOutcome,
    /// Half sentences that led to it.
    pub reasons: Vec<String>,
    /// Sentences that say what to change, where it allows no statement.
    pub next_steps: Vec<String>,
}

/// What forbids a statement, and what to change.
pub(super) type Flaw = (String, &'static str);

const LONGER: &str =
    "Measure longer: a higher `--time`, or `isolated` and `congested` of the scenario.";
const IDLE: &str =
    "Repeat it while the machine is idle, with fewer hosts, or with a lower rate of links.";
const LOST: &str =
    "Let victims send less, or nothing else use the network: messages are lost without congestors.";
const MORE_LOAD: &str = "Offer more load: a higher `--intensity`, or congestors whose target is a victim (`placement` of the scenario).";
pub(super) const REACH: &str = "Let congestors reach more: fewer of them, or a lower rate of links, so that processors keep up.";
const COMPARE: &str = "Measure the same congestors without yielding before those that yield, as in `--congestors staging,staging-yield`, so that they allow a statement.";

/// From this part of another load on, a load counts as the same: what draws and windows of one run
/// differ by.
const LOAD_ALIKE: f64 = 0.9;

/// Applies `rules` to `evidence`.
pub fn judge(rules: &Rules, evidence: &VictimEvidence) -> Verdict {
    let mut flaws = flaws(rules, evidence);
    let Some(share) = evidence.congestor_share.filter(|share| *share < rules.congestor_share_min)
    else {
        return if flaws.is_empty() { effect(rules, evidence) } else { invalid(flaws) };
    };
    let (reached, needed) = (share * 100.0, rules.congestor_share_min * 100.0);
    let shortfall =
        format!("congestors reached {reached:.0} % of their fair rate, {needed:.0} % are needed");
    match evidence.brake {
        LimitingFactor::Unknown => flaws.push((shortfall.clone(), REACH)),
        LimitingFactor::Yielding { unyielding: None } => flaws.push((shortfall.clone(), COMPARE)),
        LimitingFactor::Network { .. } if !flaws.is_empty() => {
            flaws.push((shortfall.clone(), REACH));
        }
        LimitingFactor::Network { .. } | LimitingFactor::Yielding { .. } => {}
    }
    if !flaws.is_empty() {
        return invalid(flaws);
    }
    let mut verdict = effect(rules, evidence);
    verdict.reasons.push(match (verdict.outcome, evidence.brake) {
        (NetworkOutcome::Invalid, _) => shortfall,
        (_, LimitingFactor::Yielding { unyielding: Some(unyielding) }) => format!(
            "congestors yielded: they reached {reached:.0} % of their fair rate, and {:.0} % without yielding",
            unyielding * 100.0
        ),
        (NetworkOutcome::Congested, _) => format!(
            "congestors reached {reached:.0} % of their fair rate because the network held them up too, and what harms at less \
             load harms at full load"
        ),
        (_, LimitingFactor::Network { unprotected: Some(unprotected) })
            if share >= unprotected * LOAD_ALIKE =>
        {
            format!(
                "congestors reached {reached:.0} % of their fair rate, as much as where victims suffered ({:.0} %), so nobody was \
                 protected by throttling them",
                unprotected * 100.0
            )
        }
        (NetworkOutcome::Contained, _) => return invalid(Vec::from([(shortfall, REACH)])),
    });
    verdict
}

/// Returns the verdict that allows no statement because of `flaws`.
pub(super) fn invalid(flaws: Vec<Flaw>) -> Verdict {
    let mut verdict =
        Verdict { outcome: NetworkOutcome::Invalid, reasons: Vec::new(), next_steps: Vec::new() };
    for (reason, step) in flaws {
        verdict.reasons.push(reason);
        if !verdict.next_steps.iter().any(|known| known == step) {
            verdict.next_steps.push(step.to_string());
        }
    }
    verdict
}

/// Returns what the intervals say of a measurement without flaws.
fn effect(rules: &Rules, evidence: &VictimEvidence) -> Verdict {
    let factor = &evidence.factor;
    let floor = evidence.floor.0 as f64;
    let excess_low = evidence.congested.low - evidence.isolated.high;
    let excess_high = evidence.congested.high - evidence.isolated.low;
    let verdict = |outcome, reason: String| Verdict {
        outcome,
        reasons: Vec::from([reason]),
        next_steps: Vec::new(),
    };
    if factor.high <= rules.factor_max {
        let reason = format!(
            "p99 under load is at most {:.2} times p99 alone, the limit is {}",
            factor.high, rules.factor_max
        );
        return verdict(NetworkOutcome::Contained, reason);
    }
    if excess_high <= floor {
        let reason = format!(
            "p99 grows by at most {}, less than the {} that full frames in service cost on this path",
            nanos(excess_high),
            evidence.floor
        );
        return verdict(NetworkOutcome::Contained, reason);
    }
    if factor.low <= rules.factor_max || excess_low <= floor {
        let reason = format!(
            "p99 under load is between {:.2} and {:.2} times p99 alone, on both sides of the limit {}",
            factor.low, factor.high, rules.factor_max
        );
        return invalid(Vec::from([(reason, LONGER)]));
    }
    let by_chance = evidence.null.as_ref().map_or(0.0, NullEvidence::change);
    let by_processors = evidence.processor_delay.0 as f64;
    if excess_low < rules.noise_ratio * by_chance || excess_low < rules.delay_ratio * by_processors
    {
        let reason = format!(
            "p99 grows by {}, but it changes by {} without congestors and processors delay processes by {}: the machine is \
             too busy to tell",
            nanos(excess_low),
            nanos(by_chance),
            evidence.processor_delay
        );
        return invalid(Vec::from([(reason, IDLE)]));
    }
    let reason = if factor.value.is_finite() {
        let [value, low] = [factor.value, factor.low].map(|times| format!("{times:.1}"));
        // An interval that ends at its value, as printed, says nothing more.
        let least = if low == value { String::new() } else { format!(", at least {low} times") };
        format!("p99 under load is {value} times p99 alone{least}")
    } else {
        "more than one message in a hundred never arrives, so p99 has no end".to_string()
    };
    verdict(NetworkOutcome::Congested, reason)
}

/// Returns everything that forbids any statement.
fn flaws(rules: &Rules, evidence: &VictimEvidence) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    if let Some(null) = &evidence.null
        && !null.factor.lies_within(rules.null_low, rules.null_high)
        && null.change() > evidence.floor.0 as f64
    {
        let reason = format!(
            "without any congestor p99 already changes by a factor of {:.2} to {:.2}, the limits are {} to {}",
            null.factor.low, null.factor.high, rules.null_low, rules.null_high
        );
        flaws.push((reason, IDLE));
    }
    if evidence.isolated.value.is_infinite() {
        let reason = "p99 alone is already lost, so there is nothing to compare with".to_string();
        flaws.push((reason, LOST));
    } else if let Some(limit) = evidence.idle_limit
        && evidence.isolated.high > limit.0 as f64
    {
        let reason = format!(
            "p99 alone is up to {}, an idle network explains {limit} at most: the machine is too busy",
            nanos(evidence.isolated.high)
        );
        flaws.push((reason, IDLE));
    }
    if let Some(overload) = evidence.overload
        && overload < rules.overload_min
    {
        let reason = format!(
            "congestors offered {:.0} % of the fullest link that victims use, {:.0} % are needed",
            overload * 100.0,
            rules.overload_min * 100.0
        );
        flaws.push((reason, MORE_LOAD));
    }
    flaws
}

fn nanos(value: f64) -> String {
    if value.is_finite() {
        Nanos(value.max(0.0) as u64).to_string()
    } else {
        "more than was ever measured".to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate::new(value, [low, high], 1000)
    }

    fn evidence(isolated_us: f64, congested_us: f64, spread: f64) -> VictimEvidence {
        let around = |us: f64| estimate(us * 1e3, us * 1e3 / spread, us * 1e3 * spread);
        let factor = congested_us / isolated_us;
        VictimEvidence {
            factor: estimate(factor, factor / spread, factor * spread),
            isolated: around(isolated_us),
            congested: around(congested_us),
            floor: Nanos::from_micros(242),
            processor_delay: Nanos::from_micros(80),
            congestor_share: Some(0.99),
            brake: LimitingFactor::Unknown,
            overload: Some(1.5),
            idle_limit: Some(Nanos::from_micros(242)),
            null: Some(null(28.0, 29.0)),
        }
    }

    fn null(isolated_us: f64, congested_us: f64) -> NullEvidence {
        let around = |us: f64| estimate(us * 1e3, us * 950.0, us * 1050.0);
        let factor = congested_us / isolated_us;
        NullEvidence {
            factor: estimate(factor, factor * 0.9, factor * 1.1),
            isolated: around(isolated_us),
            congested: around(congested_us),
        }
    }

    fn outcome(evidence: &VictimEvidence) -> NetworkOutcome {
        judge(&Rules::default(), evidence).outcome
    }

    #[test]
    fn judge__a_full_queue_is_congestion_and_one_frame_in_service_is_not() {
        assert_eq!(outcome(&evidence(28.0, 12_000.0, 1.1)), NetworkOutcome::Congested);
        assert_eq!(outcome(&evidence(28.0, 90.0, 1.1)), NetworkOutcome::Contained);
        assert_eq!(outcome(&evidence(28.0, 30.0, 1.1)), NetworkOutcome::Contained);
    }

    #[test]
    fn judge__a_bound_that_is_printed_like_its_value_is_not_said_again() {
        let reason = |spread| {
            let verdict = judge(&Rules::default(), &evidence(28.0, 12_000.0, spread));
            verdict.reasons.concat()
        };
        assert_eq!(reason(1.0), "p99 under load is 428.6 times p99 alone");
        assert!(reason(1.1).ends_with("428.6 times p99 alone, at least 389.6 times"));
    }

    #[test]
    fn judge__an_interval_on_both_sides_of_the_limit_is_invalid() {
        let slow_pattern = VictimEvidence { idle_limit: None, ..evidence(1000.0, 1500.0, 1.3) };
        assert_eq!(outcome(&slow_pattern), NetworkOutcome::Invalid);
    }

    #[test]
    fn judge__a_busy_machine_cannot_convict() {
        let busy = |ms| VictimEvidence {
            processor_delay: Nanos::from_millis(ms),
            ..evidence(28.0, 12_000.0, 1.1)
        };
        assert_eq!(outcome(&busy(4)), NetworkOutcome::Congested);
        assert_eq!(outcome(&busy(6)), NetworkOutcome::Invalid);
        let unsteady =
            VictimEvidence { null: Some(null(28.0, 220.0)), ..evidence(28.0, 2_000.0, 1.1) };
        assert_eq!(outcome(&unsteady), NetworkOutcome::Invalid);
    }

    #[test]
    fn judge__starved_congestors_prove_nothing_however_well_victims_do() {
        let throttled = VictimEvidence { congestor_share: Some(0.5), ..evidence(28.0, 28.0, 1.01) };
        assert_eq!(outcome(&throttled), NetworkOutcome::Invalid);
        let idle = VictimEvidence { overload: Some(0.9), ..evidence(28.0, 28.0, 1.01) };
        assert_eq!(outcome(&idle), NetworkOutcome::Invalid);
    }

    #[test]
    fn judge__harm_at_less_than_the_fair_load_is_harm_where_the_network_was_the_brake() {
        let held = |congested_us, spread| VictimEvidence {
            congestor_share: Some(0.5),
            brake: LimitingFactor::Network { unprotected: None },
            null: None,
            ..evidence(28.0, congested_us, spread)
        };
        let verdict = judge(&Rules::default(), &held(12_000.0, 1.1));
        assert_eq!(verdict.outcome, NetworkOutcome::Congested);
        assert!(
            verdict.reasons.iter().any(|reason| reason.contains("50 %")),
            "{:?}",
            verdict.reasons
        );
        assert!(
            verdict.reasons.iter().any(|reason| reason.contains("less load")),
            "{:?}",
            verdict.reasons
        );
        // Nothing short of proof: a small change, a change of less than the floor, an interval on
        // both sides.
        for unproven in [held(28.0, 1.01), held(90.0, 1.1), held(290.0, 1.2)] {
            let verdict = judge(&Rules::default(), &unproven);
            assert_eq!(verdict.outcome, NetworkOutcome::Invalid);
            assert!(
                verdict.reasons.iter().any(|reason| reason.contains("80 % are needed")),
                "{:?}",
                verdict.reasons
            );
        }
        // A machine that kept congestors from sending may have kept victims waiting.
        let machine = VictimEvidence { brake: LimitingFactor::Unknown, ..held(12_000.0, 1.1) };
        assert_eq!(outcome(&machine), NetworkOutcome::Invalid);
    }

    #[test]
    fn judge__a_shortfall_that_protects_nobody_allows_an_acquittal() {
        let held = |unprotected| VictimEvidence {
            congestor_share: Some(0.5),
            brake: LimitingFactor::Network { unprotected },
            null: None,
            ..evidence(28.0, 28.0, 1.01)
        };
        let verdict = judge(&Rules::default(), &held(Some(0.52)));
        assert_eq!(verdict.outcome, NetworkOutcome::Contained);
        assert!(
            verdict.reasons.iter().any(|reason| reason.contains("(52 %)")),
            "{:?}",
            verdict.reasons
        );
        // Where they reached more while victims suffered, less may be what protects.
        assert_eq!(outcome(&held(Some(0.6))), NetworkOutcome::Invalid);
        assert_eq!(outcome(&held(None)), NetworkOutcome::Invalid);
        let machine = VictimEvidence { brake: LimitingFactor::Unknown, ..held(Some(0.52)) };
        assert_eq!(outcome(&machine), NetworkOutcome::Invalid);
    }

    #[test]
    fn judge__congestors_that_yield_are_judged_where_the_same_without_yielding_are() {
        let yields = |congested_us, unyielding| VictimEvidence {
            congestor_share: Some(0.45),
            brake: LimitingFactor::Yielding { unyielding },
            ..evidence(28.0, congested_us, 1.01)
        };
        for (congested_us, outcome) in
            [(30.0, NetworkOutcome::Contained), (12_000.0, NetworkOutcome::Congested)]
        {
            let verdict = judge(&Rules::default(), &yields(congested_us, Some(0.99)));
            assert_eq!(verdict.outcome, outcome);
            assert!(
                verdict.reasons[1].contains("45 % of their fair rate, and 99 % without yielding"),
                "{:?}",
                verdict.reasons
            );
        }
        let verdict = judge(&Rules::default(), &yields(30.0, None));
        assert_eq!(verdict.outcome, NetworkOutcome::Invalid);
        assert_eq!(verdict.next_steps, [COMPARE]);
        // What it reached is no flaw: it fell short on purpose.
        let busy = VictimEvidence { overload: Some(0.9), ..yields(30.0, Some(0.99)) };
        assert_eq!(judge(&Rules::default(), &busy).next_steps, [MORE_LOAD]);
        // One that yields and reaches its share needs nothing to compare with.
        let full = VictimEvidence { congestor_share: Some(0.96), ..yields(30.0, None) };
        assert_eq!(outcome(&full), NetworkOutcome::Contained);
    }

    #[test]
    fn judge__what_else_forbids_a_statement_forbids_it_despite_a_shortfall() {
        let held = || VictimEvidence {
            congestor_share: Some(0.5),
            brake: LimitingFactor::Network { unprotected: None },
            null: None,
            ..evidence(28.0, 12_000.0, 1.1)
        };
        let lost = Estimate::new(f64::INFINITY, [f64::INFINITY; 2], 1000);
        let busy_control = Some(null(28.0, 600.0));
        assert_eq!(
            outcome(&VictimEvidence { null: busy_control, ..held() }),
            NetworkOutcome::Invalid
        );
        assert_eq!(outcome(&VictimEvidence { isolated: lost, ..held() }), NetworkOutcome::Invalid);
        assert_eq!(
            outcome(&VictimEvidence { overload: Some(0.9), ..held() }),
            NetworkOutcome::Invalid
        );
    }

    #[test]
    fn judge__a_null_control_that_shows_impact_spoils_everything() {
        let with_null = |isolated, congested| VictimEvidence {
            null: Some(null(isolated, congested)),
            ..evidence(28.0, 28.0, 1.01)
        };
        assert_eq!(outcome(&with_null(28.0, 600.0)), NetworkOutcome::Invalid);
        assert_eq!(outcome(&with_null(600.0, 28.0)), NetworkOutcome::Invalid);
        // A change that is less than one frame on the path shows nothing but the fineness of the
        // clock.
        assert_eq!(outcome(&with_null(28.0, 40.0)), NetworkOutcome::Contained);
    }

    #[test]
    fn judge__a_null_control_that_was_lost_spoils_everything() {
        let lost = Estimate::new(f64::INFINITY, [f64::INFINITY; 2], 1000);
        let factor = Estimate::unbounded(f64::INFINITY, 0);
        let null = Some(NullEvidence { factor, isolated: lost, congested: lost });
        assert_eq!(
            outcome(&VictimEvidence { null, ..evidence(28.0, 28.0, 1.01) }),
            NetworkOutcome::Invalid
        );
    }

    #[test]
    fn judge__a_lost_base_case_allows_no_statement() {
        let lost = Estimate::new(f64::INFINITY, [f64::INFINITY; 2], 1000);
        let factor = Estimate::unbounded(f64::INFINITY, 0);
        for congested in [lost, estimate(28e3, 28e3, 28e3)] {
            let base = evidence(28.0, 28.0, 1.01);
            let iterations = VictimEvidence {
                idle_limit: None,
                factor,
                isolated: lost,
                congested,
                null: None,
                ..base
            };
            assert_eq!(outcome(&iterations), NetworkOutcome::Invalid);
        }
    }

    #[test]
    fn judge__a_base_case_full_of_noise_cannot_acquit() {
        // A full queue of 12 ms looks harmless compared with 9 ms of waiting for a processor.
        assert_eq!(outcome(&evidence(9_000.0, 12_000.0, 1.05)), NetworkOutcome::Invalid);
    }

    #[test]
    fn judge__lost_victims_are_congested_not_absent() {
        let mut lost = evidence(28.0, 12_000.0, 1.1);
        lost.congested = Estimate::new(f64::INFINITY, [12e6, f64::INFINITY], 1000);
        lost.factor = Estimate::new(f64::INFINITY, [400.0, f64::INFINITY], 1000);
        assert_eq!(outcome(&lost), NetworkOutcome::Congested);
    }
}
