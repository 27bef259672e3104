//! One node's monotonic clock: what it reads at each true instant, and the first instant at which
//! it reads a given time.
//!
//! # Model
//! A clock is a list of segments. Within one, `local(t) = base + (t - since) * slope`, with `slope`
//! in 2^-32: 2^32 is a perfect clock, 0 a frozen one. Bases are kept in 2^-32 ps, so no division
//! takes part until a reading is rounded down to the clock's resolution.
//!
//! # Invariants
//! I1. Readings never decrease; segments meet exactly, except where a jump was asked for.
//! I2. [`Clock::true_time_of`] is the least instant whose reading is at least the one asked for.
//!
//! # Not here
//! Estimating another node's clock: an engine's business.

use clearway_proto::base::{LocalNs, Nanos, RandomKey};

use crate::time::Picos;

/// A slope of one.
const ONE: u64 = 1 << 32;
/// One nanosecond in the unit of bases.
const NANO: u128 = 1_000 << 32;
/// Nanoseconds within which nodes that do not share a clock were started: an hour, more than any
/// engine may take for granted.
const OFFSET_MAX: u64 = 3_600_000_000_000;

/// A stretch of time with one rate.
#[derive(Clone, Copy, Debug)]
struct Segment {
    since: Picos,
    base: u128,
    slope: u64,
}

impl Segment {
    fn at(&self, t: Picos) -> u128 {
        self.base + u128::from((t - self.since).0) * u128::from(self.slope)
    }

    /// Returns the first instant of this segment, were it endless, at which it reaches `wanted`.
    fn reaches(&self, wanted: u128) -> Picos {
        if wanted <= self.base {
            return self.since;
        }
        let up = (wanted - self.base).saturating_add(u128::from(self.slope.max(1)) - 1);
        let length = match self.slope {
            0 => return Picos::NEVER,
            // The usual case, without a division of 128 bits.
            ONE => up >> 32,
            slope => up / u128::from(slope),
        };
        u64::try_from(length).map_or(Picos::NEVER, |length| self.since + Picos(length))
    }
}

/// A clock that is off, drifts, and can be disturbed.
#[derive(Clone, Debug)]
pub struct Clock {
    segments: Vec<Segment>,
    resolution: u64,
}

impl Clock {
    /// Creates a clock that reads true time in whole nanoseconds.
    pub fn perfect() -> Self {
        Self::starting_at(LocalNs(0), 0, Nanos(1))
    }

    /// Creates a clock that reads `first` at the beginning, runs `ppm` parts per million fast
    /// (negative: slow) and shows multiples of `resolution`.
    pub fn starting_at(first: LocalNs, ppm: i32, resolution: Nanos) -> Self {
        let base = u128::from(first.0) * NANO;
        Self {
            segments: vec![Segment { since: Picos::ZERO, base, slope: slope(ppm) }],
            resolution: resolution.0.max(1),
        }
    }

    /// Creates the clock of the node that `key` names: somewhere within `ppm_max`, started
    /// somewhere within an hour. Perfect when `ppm_max` is zero: then all nodes share one clock.
    pub fn drawn(key: RandomKey, ppm_max: u32) -> Self {
        if ppm_max == 0 {
            return Self::perfect();
        }
        let mut stream = key.purpose("clock").stream();
        let span = u64::from(ppm_max.min(1_000_000)) * 2 + 1;
        let ppm = stream.below(span) as i64 - i64::from(ppm_max.min(1_000_000));
        Self::starting_at(LocalNs(stream.below(OFFSET_MAX)), ppm as i32, Nanos(1))
    }

    /// Returns what the clock reads at `t`. O(1) unless `t` lies before recent disturbances.
    pub fn local(&self, t: Picos) -> LocalNs {
        let segment = self.segments.iter().rev().find(|segment| segment.since <= t);
        let fine = segment.map_or(0, |segment| segment.at(t));
        let ns = match u64::try_from(fine >> 32) {
            Ok(picos) => picos / 1_000,
            Err(_) => u64::try_from(fine / NANO).unwrap_or(u64::MAX),
        };
        LocalNs(if self.resolution == 1 { ns } else { ns - ns % self.resolution })
    }

    /// Returns the least instant at which the clock reads `local` or more; [`Picos::NEVER`] when
    /// there is none.
    pub fn true_time_of(&self, local: LocalNs) -> Picos {
        let shown = match self.resolution {
            1 => u128::from(local.0),
            resolution => u128::from(local.0.div_ceil(resolution)) * u128::from(resolution),
        };
        let wanted = shown * NANO;
        let ends = self.segments.iter().skip(1).map(|next| next.since).chain([Picos::NEVER]);
        for (segment, end) in self.segments.iter().zip(ends) {
            let at = segment.reaches(wanted);
            if at < end {
                return at;
            }
        }
        Picos::NEVER
    }

    /// Sets the clock, as a fault, `ahead` further from `at` on than it would be. A disturbance
    /// given for a time before the latest one counts from that one.
    pub fn jump(&mut self, at: Picos, ahead: Nanos) {
        let slope = self.last().slope;
        self.change(at, u128::from(ahead.0) * NANO, slope);
    }

    /// Lets the clock, as a fault, run `ppm` parts per million fast (negative: slow) from `at` on.
    pub fn drift(&mut self, at: Picos, ppm: i32) {
        self.change(at, 0, slope(ppm));
    }

    /// Stops the clock, as a fault, for `length` from `at` on; then it goes on from where it stood.
    pub fn freeze(&mut self, at: Picos, length: Picos) {
        let slope = self.last().slope;
        self.change(at, 0, 0);
        let thaw = self.last().since + length;
        self.change(thaw, 0, slope);
    }

    /// Lets the clock, as a fault, run `ppm` parts per million fast (negative: slow) for `length`
    /// from `at` on, then as before.
    pub fn drift_for(&mut self, at: Picos, length: Picos, ppm: i32) {
        let before = self.last().slope;
        self.drift(at, ppm);
        let end = self.last().since + length;
        self.change(end, 0, before);
    }

    fn last(&self) -> Segment {
        self.segments.last().copied().unwrap_or(Segment { since: Picos::ZERO, base: 0, slope: ONE })
    }

    fn change(&mut self, at: Picos, ahead: u128, slope: u64) {
        let last = self.last();
        let since = at.max(last.since);
        self.segments.push(Segment { since, base: last.at(since) + ahead, slope });
    }
}

/// Returns the slope of a clock that runs `ppm` parts per million fast; at least frozen.
fn slope(ppm: i32) -> u64 {
    let off = i64::from(ppm) * ONE as i64 / 1_000_000;
    u64::try_from(ONE as i64 + off).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Change {
        Jump(u32),
        Drift(i16),
        Freeze(u32),
    }

    fn changes() -> impl Strategy<Value = Vec<(u64, Change)>> {
        let change = prop_oneof![
            any::<u32>().prop_map(Change::Jump),
            any::<i16>().prop_map(Change::Drift),
            any::<u32>().prop_map(Change::Freeze),
        ];
        prop::collection::vec((0u64..1 << 42, change), 0..6)
    }

    fn clock(ppm: i16, resolution: u64, changes: &[(u64, Change)]) -> Clock {
        let mut clock = Clock::starting_at(LocalNs(77), i32::from(ppm), Nanos(resolution));
        for (at, change) in changes {
            match *change {
                Change::Jump(ns) => clock.jump(Picos(*at), Nanos(u64::from(ns))),
                Change::Drift(ppm) => clock.drift(Picos(*at), i32::from(ppm)),
                Change::Freeze(ps) => clock.freeze(Picos(*at), Picos(u64::from(ps) * 1_000)),
            }
        }
        clock
    }

    proptest! {
        #[test]
        fn local__never_decreases(
            ppm: i16, resolution in 1u64..2_000, changes in changes(), a in 0u64..1 << 43, b in 0u64..1 << 43
        ) {
            let clock = clock(ppm, resolution, &changes);
            prop_assert!(clock.local(Picos(a.min(b))) <= clock.local(Picos(a.max(b))));
        }

        #[test]
        fn true_time_of__is_the_least_instant_that_reads_so_much(
            ppm: i16, resolution in 1u64..2_000, changes in changes(), wanted in 0u64..1 << 33
        ) {
            let clock = clock(ppm, resolution, &changes);
            let at = clock.true_time_of(LocalNs(wanted));
            prop_assert!(at < Picos::NEVER);
            prop_assert!(clock.local(at) >= LocalNs(wanted));
            if at > Picos::ZERO {
                prop_assert!(clock.local(at - Picos(1)) < LocalNs(wanted));
            }
        }

        #[test]
        fn drift__segments_meet_within_one_nanosecond(ppm: i16, drift: i16, at in 1u64..1 << 42) {
            let mut clock = Clock::starting_at(LocalNs(5), i32::from(ppm), Nanos(1));
            clock.drift(Picos(at), i32::from(drift));
            let (before, after) = (clock.local(Picos(at - 1)), clock.local(Picos(at)));
            prop_assert!(after.since(before) <= Nanos(1));
        }
    }

    #[test]
    fn local__ten_parts_per_million_are_ten_microseconds_in_a_second() {
        let second = Picos::from_micros(1_000_000);
        let fast = Clock::starting_at(LocalNs(0), 10, Nanos(1)).local(second);
        assert!((1_000_009_999..=1_000_010_000).contains(&fast.0), "{fast:?}");
        assert_eq!(Clock::perfect().local(second), LocalNs(1_000_000_000));
    }

    #[test]
    fn freeze__goes_on_from_where_it_stood() {
        let mut clock = Clock::perfect();
        clock.freeze(Picos::from_micros(10), Picos::from_micros(5));
        assert_eq!(clock.local(Picos::from_micros(14)), LocalNs(10_000));
        assert_eq!(clock.local(Picos::from_micros(16)), LocalNs(11_000));
        assert_eq!(clock.true_time_of(LocalNs(10_001)), Picos(15_001_000));
    }

    #[test]
    fn drawn__stays_within_its_bound_and_differs_by_node() {
        let key = RandomKey::new(3);
        let gain = |node| {
            let clock = Clock::drawn(key.node(node), 20);
            let hour = Picos::from_micros(3_600_000_000);
            clock.local(hour).since(clock.local(Picos::ZERO)).0 as i64 - 3_600_000_000_000
        };
        let gains: Vec<i64> = (0..100).map(gain).collect();
        assert!(gains.iter().all(|gain| gain.abs() <= 20 * 3_600_000 + 1), "{gains:?}");
        assert!(gains.iter().any(|gain| *gain > 0) && gains.iter().any(|gain| *gain < 0));
        assert_eq!(Clock::drawn(key, 0).local(Picos(1_000)), LocalNs(1));
    }
}
