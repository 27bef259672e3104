//! When a host's processor gets something done: costs of inputs and operations, interruptions,
//! pauses.
//!
//! # Model
//! A processor does one thing after another. Work that it gets at `t` begins when everything
//! earlier is over. While it is *away* (an interruption by the operating system, a pause) nothing
//! moves; what was begun goes on afterwards. Interruptions come with exponential gaps, each node
//! from its own stream; one in some hundreds can be a hundred times longer.
//!
//! # Invariants
//! I1. Time never goes back, and every input and operation takes at least one picosecond: no node
//!     acts twice at one instant.
//! I2. Integers only: the logarithm is computed by squaring, the same on every machine.

use clearway_proto::base::{RandomKey, RandomStream};

use crate::spec::{HostSpec, Jitter};
use crate::time::Picos;

/// How much longer a rare interruption is ([`Jitter::rare`] says so).
const RARE_FACTOR: u64 = 100;
/// ln 2 in 2^-32.
const LN_2: u64 = 2_977_044_472;

/// A host's processor.
#[derive(Clone, Debug)]
pub struct Processor {
    input_cost: Picos,
    operation_cost: Picos,
    jitter: Jitter,
    stream: RandomStream,
    /// Everything up to here is spent.
    free_at: Picos,
    /// The next interruption.
    interruption: Interruption,
    /// Pauses to come, latest first.
    pauses: Vec<Interruption>,
}

/// A time in which a processor does nothing for us.
#[derive(Clone, Copy, Debug)]
struct Interruption {
    from: Picos,
    length: Picos,
}

impl Processor {
    /// Creates the processor of the node that `key` names.
    pub fn new(host: &HostSpec, key: RandomKey) -> Self {
        let mut processor = Self {
            input_cost: host.input_cost.max(Picos(1)),
            operation_cost: host.effect_cost.max(Picos(1)),
            jitter: host.jitter,
            stream: key.purpose("processor").stream(),
            free_at: Picos::ZERO,
            interruption: Interruption { from: Picos::NEVER, length: Picos::ZERO },
            pauses: Vec::new(),
        };
        processor.draw_interruption(Picos::ZERO);
        processor
    }

    /// Returns the instant up to which this processor has been used.
    pub const fn free_at(&self) -> Picos {
        self.free_at
    }

    /// Lets time pass until `at`, unless it has passed already; returns the instant at which the
    /// processor is there for us.
    pub fn wake(&mut self, at: Picos) -> Picos {
        self.free_at = self.free_at.max(at);
        while let Some(away) = self.take_away(self.free_at) {
            self.free_at = self.free_at.max(away.from + away.length);
        }
        self.free_at
    }

    /// Takes one input.
    pub fn take_input(&mut self) {
        self.spend(self.input_cost);
    }

    /// Posts one operation.
    pub fn post_operation(&mut self) {
        self.spend(self.operation_cost);
    }

    /// Works for `length`, interruptions not counted.
    pub fn spend(&mut self, length: Picos) {
        self.free_at += length;
        // An interruption at the very instant at which the work ends still delays what comes next.
        while let Some(away) = self.take_away(self.free_at) {
            self.free_at += away.length;
        }
    }

    /// Pauses the processor, as a fault or because an engine asked for it, for `length` from `at`
    /// on, or from now on if `at` has passed.
    pub fn pause(&mut self, at: Picos, length: Picos) {
        let from = at.max(self.free_at);
        let place = self.pauses.partition_point(|pause| pause.from > from);
        self.pauses.insert(place, Interruption { from, length });
    }

    /// Returns the earliest time away that begins by `until`, once.
    fn take_away(&mut self, until: Picos) -> Option<Interruption> {
        let pause =
            self.pauses.last().copied().filter(|pause| pause.from <= self.interruption.from);
        if let Some(pause) = pause {
            if pause.from <= until {
                self.pauses.pop();
                return Some(pause);
            }
            return None;
        }
        let away = self.interruption;
        if away.from > until || away.from == Picos::NEVER {
            return None;
        }
        self.draw_interruption(away.from + away.length);
        Some(away)
    }

    fn draw_interruption(&mut self, after: Picos) {
        if self.jitter.period == Picos::ZERO {
            return;
        }
        let gap = exponential(&mut self.stream, self.jitter.period).max(Picos(1));
        let rare = self.jitter.rare > 0 && self.stream.below(u64::from(self.jitter.rare)) == 0;
        let factor = if rare { RARE_FACTOR } else { 1 };
        self.interruption = Interruption {
            from: after + gap,
            length: Picos(self.jitter.length.0.saturating_mul(factor)),
        };
    }
}

/// Returns an exponentially distributed length with the given mean, to 2^-24 of it.
pub(crate) fn exponential(stream: &mut RandomStream, mean: Picos) -> Picos {
    let nats = (u128::from(minus_log2(stream.next_u64())) * u128::from(LN_2)) >> 32;
    Picos(u64::try_from((u128::from(mean.0) * nats) >> 32).unwrap_or(u64::MAX))
}

/// Computes `-log2((draw + 1/2) / 2^64)` in 2^-32, by repeated squaring; exact to the last eight
/// bits.
fn minus_log2(draw: u64) -> u64 {
    let draw = draw | 1;
    let zeros = draw.leading_zeros();
    // In [1, 2) with 63 digits behind the point.
    let mut x = draw << zeros;
    let mut fraction = 0u64;
    for digit in 1..=24 {
        let square = (u128::from(x) * u128::from(x)) >> 63;
        if square >> 64 == 0 {
            x = square as u64;
        } else {
            fraction |= 1 << (32 - digit);
            x = (square >> 1) as u64;
        }
    }
    (u64::from(zeros) + 1) * (1 << 32) - fraction
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{FabricSpec, Routing, Topology};
    use clearway_proto::base::BitsPerSec;
    use proptest::prelude::*;

    fn host(jitter: Jitter) -> HostSpec {
        let plain =
            FabricSpec::plain(Topology::Star { hosts: 2 }, Routing::Minimal, BitsPerSec::mega(1));
        HostSpec { input_cost: Picos(100), effect_cost: Picos(50), jitter, ..plain.host }
    }

    fn quiet() -> Processor {
        Processor::new(&host(Jitter::default()), RandomKey::new(1))
    }

    #[test]
    fn wake__begins_when_earlier_work_is_over() {
        let mut processor = quiet();
        assert_eq!(processor.wake(Picos(1_000)), Picos(1_000));
        processor.take_input();
        processor.post_operation();
        assert_eq!(processor.wake(Picos(1_100)), Picos(1_150));
        assert_eq!(processor.wake(Picos(2_000)), Picos(2_000));
    }

    #[test]
    fn pause__delays_what_is_under_way_and_is_over_for_what_comes_later() {
        let mut processor = quiet();
        processor.pause(Picos(1_050), Picos(500));
        processor.pause(Picos(5_000), Picos(10));
        processor.wake(Picos(1_000));
        processor.take_input();
        assert_eq!(processor.free_at(), Picos(1_600));
        assert_eq!(processor.wake(Picos(4_000)), Picos(4_000));
        assert_eq!(processor.wake(Picos(5_003)), Picos(5_010));
        processor.pause(Picos(7_000), Picos(10));
        assert_eq!(processor.wake(Picos(9_000)), Picos(9_000));
    }

    #[test]
    fn interruptions__take_their_share_of_a_long_computation() {
        let jitter =
            Jitter { period: Picos::from_micros(900), length: Picos::from_micros(100), rare: 0 };
        let mut processor = Processor::new(&host(jitter), RandomKey::new(5));
        processor.spend(Picos::from_micros(9_000_000));
        let share = processor.free_at().as_secs_f64() / 10.0;
        // 10,000 exponential gaps: one standard deviation is 1 % of a tenth.
        assert!((0.995..1.005).contains(&share), "{share}");
    }

    #[test]
    fn interruptions__of_an_idle_processor_pass_without_a_trace() {
        let jitter = Jitter { period: Picos::from_micros(10), length: Picos(1), rare: 0 };
        let mut processor = Processor::new(&host(jitter), RandomKey::new(5));
        let woken = processor.wake(Picos::from_micros(1_000_000));
        assert!(woken <= Picos::from_micros(1_000_000) + Picos(2), "{woken:?}");
    }

    #[test]
    fn exponential__has_the_moments_and_the_tail_of_one() {
        let mut stream = RandomKey::new(9).stream();
        let draws: Vec<f64> = (0..200_000)
            .map(|_| exponential(&mut stream, Picos(1_000_000)).0 as f64 / 1e6)
            .collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let square = draws.iter().map(|x| x * x).sum::<f64>() / draws.len() as f64;
        let beyond_3 = draws.iter().filter(|x| **x > 3.0).count() as f64 / draws.len() as f64;
        // Standard errors: 0.0022, 0.010, 0.0005.
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((square - 2.0).abs() < 0.05, "{square}");
        assert!((beyond_3 - (-3f64).exp()).abs() < 0.003, "{beyond_3}");
    }

    proptest! {
        #[test]
        fn minus_log2__agrees_with_the_real_logarithm(draw: u64) {
            let real = 64.0 - ((draw | 1) as f64).log2();
            let ours = minus_log2(draw) as f64 / (1u64 << 32) as f64;
            prop_assert!((real - ours).abs() < 1e-6, "{real} {ours}");
        }

        #[test]
        fn free_at__never_decreases(seed: u64, steps in prop::collection::vec((0u8..4, 0u64..10_000), 1..60)) {
            let jitter = Jitter { period: Picos(700), length: Picos(90), rare: 5 };
            let mut processor = Processor::new(&host(jitter), RandomKey::new(seed));
            let mut before = Picos::ZERO;
            for (kind, n) in steps {
                match kind {
                    0 => { processor.wake(before + Picos(n)); }
                    1 => processor.take_input(),
                    2 => processor.post_operation(),
                    _ => processor.pause(Picos(n), Picos(n)),
                }
                prop_assert!(processor.free_at() >= before);
                before = processor.free_at();
            }
        }
    }
}
