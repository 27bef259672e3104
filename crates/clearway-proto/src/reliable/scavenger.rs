//! The congestion window of the scavenger class: it uses the bandwidth that other traffic leaves.
//!
//! # Model
//! The target is the queueing delay that all scavengers of a path together may cause. The window
//! `W`, in fragments, changes once a round. `base` is the shortest round trip that is known,
//! `queue` the shortest of the round less `base`. With `gain = 1 / min(16, ceil(2 target / base))`:
//! ```text
//!   queue < target   W += gain
//!   queue >= target  W += max(gain - W (queue / target - 1), -W / 2)
//!   lost or marked   W -= W / 2
//!
//!   Start --queue > 3/4 target, W at its maximum, lost or marked--> Settle --2 rounds--> Hold
//!   Hold --2 rounds--> Ramp --former W, queue >= target, lost or marked--> Steady
//!   Steady --9 times as long as Hold and Ramp, 60 s at most--> Hold
//! ```
//! `Start` and `Ramp` grow by `gain W` a round. `Hold` has one fragment in flight, so that its
//! queue drains: only then is the base delay measured right, by this stream and by one that began
//! while this one had a queue. A slowdown is `Hold` and `Ramp`; the next one comes after 9 times
//! its length, so that all of them take a tenth of the time at most.
//!
//! Several on one path become equal above the target: the decrease is in proportion to the window,
//! the increase is not.
//!
//! # Source
//! draft-irtf-iccrg-ledbat-plus-plus: gain, decrease, slow start and slowdowns; initial window and
//! age of the base delay: RFC 6817. Differences: a target of the class's allowance, where the draft
//! has 60 ms for the internet. `Hold` has one fragment, where the draft has two: within a cluster
//! the bandwidth-delay product is two or three fragments, so two of each stream would be a queue.
//! `Ramp` also ends when the target is exceeded, so that it delays no traffic that began meanwhile.
//!
//! # Invariants
//! I1. Outside `Hold` the window is never below two fragments nor above [`super::WINDOW`].
//! I2. In `Hold` it is one fragment.

use super::stream_path::WINDOW_LEAST;
use crate::base::{LocalNs, Nanos};

/// Fixed-point parts of a fragment: the gain is a fraction of one.
const PARTS: u64 = 1 << 16;
/// The narrowest window.
const LEAST: u64 = WINDOW_LEAST as u64 * PARTS;
/// The widest.
const WIDEST: u64 = super::WINDOW as u64 * PARTS;
/// The divisor of the smallest gain, as in the draft.
const GAIN_DIVISOR_MOST: u64 = 16;
/// Rounds between the end of the first growth and the first slowdown, as in the draft.
const SETTLE_ROUNDS: u32 = 2;
/// Rounds with one fragment under way, as in the draft.
const HOLD_ROUNDS: u32 = 2;
/// The time from one slowdown to the next, in lengths of the former, as in the draft.
const APART: u64 = 9;
/// The longest time between two slowdowns: a stream that is idle within one measures it too long.
const APART_MOST: Nanos = Nanos::from_secs(60);
/// Half of the time for which the base delay is kept: ten minutes, as in RFC 6817.
pub(super) const BASE_FOR: Nanos = Nanos::from_secs(300);

/// The delays and losses of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundDelay {
    /// Its shortest round trip, if one was measured.
    pub(super) shortest: Option<Nanos>,
    /// The shortest that is known.
    pub(super) base: Nanos,
    /// The queueing delay that is allowed.
    pub(super) target: Nanos,
    /// The window was full: a wider one would have been used.
    pub(super) was_full: bool,
    /// The network lost or marked more packets than chance explains.
    pub(super) overflows: bool,
}

impl RoundDelay {
    fn queue(&self) -> Option<Nanos> {
        self.shortest.map(|shortest| Nanos(shortest.0.saturating_sub(self.base.0)))
    }

    /// Returns by how much the gain is smaller than one.
    fn gain_divisor(&self) -> u64 {
        let twice = self.target.0.saturating_mul(2);
        twice.div_ceil(self.base.0.max(1)).clamp(1, GAIN_DIVISOR_MOST)
    }

    fn is_late(&self) -> bool {
        self.queue().is_some_and(|queue| queue >= self.target)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScavengerPhase {
    /// Grows until a queue begins: slow start.
    Start,
    /// Waits before the first slowdown.
    Settle { rounds: u32 },
    /// Empties its queue.
    Hold { rounds: u32, began: LocalNs },
    /// Grows back to the former window.
    Ramp { began: LocalNs },
    /// Follows the queue.
    Steady { until: LocalNs },
}

/// The window of a scavenger on one path.
#[derive(Clone, Debug)]
pub(super) struct ScavengerWindow {
    parts: u64,
    phase: ScavengerPhase,
    /// The window before the slowdown.
    former: u64,
}

impl ScavengerWindow {
    pub(super) const fn new() -> Self {
        Self { parts: LEAST, phase: ScavengerPhase::Start, former: LEAST }
    }

    /// Returns how many fragments may be in flight.
    pub(super) const fn fragments(&self) -> u32 {
        (self.parts / PARTS) as u32
    }

    /// Adapts to a round that was over at `now`.
    pub(super) fn round_over(&mut self, now: LocalNs, round: &RoundDelay) {
        match self.phase {
            ScavengerPhase::Start => {
                let most = Nanos(round.target.0 / 4 * 3);
                if round.overflows || round.is_late() {
                    self.follow(round);
                    self.phase = ScavengerPhase::Settle { rounds: SETTLE_ROUNDS };
                } else if round.queue().is_some_and(|queue| queue > most) || self.grow(round) {
                    self.phase = ScavengerPhase::Settle { rounds: SETTLE_ROUNDS };
                }
            }
            ScavengerPhase::Settle { rounds } => {
                self.follow(round);
                self.phase = ScavengerPhase::Settle { rounds: rounds.saturating_sub(1) };
                if rounds <= 1 {
                    self.slow_down(now);
                }
            }
            ScavengerPhase::Hold { rounds, began } => {
                self.phase = ScavengerPhase::Hold { rounds: rounds.saturating_sub(1), began };
                if rounds <= 1 {
                    (self.parts, self.phase) = (LEAST, ScavengerPhase::Ramp { began });
                }
            }
            ScavengerPhase::Ramp { began } => {
                if round.overflows || round.is_late() {
                    self.follow(round);
                } else if !self.grow(round) {
                    return;
                }
                let apart = Nanos(now.since(began).0.saturating_mul(APART)).min(APART_MOST);
                self.phase = ScavengerPhase::Steady { until: now + apart };
            }
            ScavengerPhase::Steady { until } => {
                self.follow(round);
                // A window that is not full has no queue of its own.
                if now >= until && round.was_full {
                    self.slow_down(now);
                }
            }
        }
    }

    const fn slow_down(&mut self, now: LocalNs) {
        (self.former, self.parts) = (self.parts, PARTS);
        self.phase = ScavengerPhase::Hold { rounds: HOLD_ROUNDS, began: now };
    }

    /// Grows by the gain's part of the window; returns whether the end of the growth is reached.
    fn grow(&mut self, round: &RoundDelay) -> bool {
        let end = if self.phase == ScavengerPhase::Start { WIDEST } else { self.former };
        if round.was_full {
            self.parts = (self.parts + self.parts / round.gain_divisor()).min(end);
        }
        self.parts >= end
    }

    /// Follows the queue: up by the gain, down in proportion.
    fn follow(&mut self, round: &RoundDelay) {
        let Some(queue) = round.queue().filter(|_| !round.overflows) else {
            if round.overflows {
                self.parts = (self.parts / 2).max(LEAST);
            }
            return;
        };
        let gain = if round.was_full { PARTS / round.gain_divisor() } else { 0 };
        let over = queue.0.saturating_sub(round.target.0);
        let excess = u128::from(self.parts) * u128::from(over) / u128::from(round.target.0.max(1));
        let excess = u64::try_from(excess).unwrap_or(u64::MAX);
        let least = self.parts / 2;
        self.parts = (self.parts + gain).saturating_sub(excess).max(least).clamp(LEAST, WIDEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const TARGET: Nanos = Nanos::from_micros(500);

    /// A full round whose queue was `queue_us`, at a distance of 250 us: the gain is a quarter.
    fn round(queue_us: u64) -> RoundDelay {
        RoundDelay {
            shortest: Some(Nanos::from_micros(250 + queue_us)),
            base: Nanos::from_micros(250),
            target: TARGET,
            was_full: true,
            overflows: false,
        }
    }

    /// A scavenger with `fragments` that follows the queue, with no slowdown before `until`.
    fn steady(fragments: u64, until: LocalNs) -> ScavengerWindow {
        let phase = ScavengerPhase::Steady { until };
        ScavengerWindow { parts: fragments * PARTS, phase, former: LEAST }
    }

    #[test]
    fn round_over__below_the_target_the_gain_is_added_and_above_the_excess_is_taken() {
        let end = LocalNs(u64::MAX);
        // In hundredths of a fragment.
        let after = |queue_us| {
            let mut window = steady(100, end);
            window.round_over(LocalNs(1), &round(queue_us));
            window.parts * 100 / PARTS
        };
        assert_eq!([0, 499, 500].map(after), [10_025; 3]);
        assert_eq!(after(505), 9_925, "a hundredth less, and the gain");
        assert_eq!([1_000, 90_000].map(after), [5_000; 2], "half at most");
    }

    #[test]
    fn round_over__the_gain_is_small_where_the_target_is_long_for_the_distance() {
        for (base_us, divisor) in [(1, 16), (62, 16), (100, 10), (250, 4), (999, 2), (1_000, 1)] {
            let round = RoundDelay { base: Nanos::from_micros(base_us), ..round(0) };
            assert_eq!(round.gain_divisor(), divisor, "{base_us} us");
        }
    }

    #[test]
    fn round_over__what_is_lost_halves_the_window_and_what_was_not_full_does_not_grow() {
        let mut window = steady(100, LocalNs(u64::MAX));
        window.round_over(LocalNs(1), &RoundDelay { was_full: false, ..round(0) });
        assert_eq!(window.fragments(), 100);
        window.round_over(LocalNs(2), &RoundDelay { shortest: None, ..round(0) });
        assert_eq!(window.fragments(), 100);
        window.round_over(LocalNs(3), &RoundDelay { overflows: true, ..round(0) });
        assert_eq!(window.fragments(), 50);
    }

    #[test]
    fn round_over__the_first_growth_ends_at_three_quarters_of_the_target_with_a_slowdown() {
        let mut window = ScavengerWindow::new();
        (0..20).for_each(|_| window.round_over(LocalNs(1), &round(374)));
        assert_eq!(window.phase, ScavengerPhase::Start);
        assert!(window.fragments() >= 100, "a quarter a round: {}", window.fragments());
        window.round_over(LocalNs(2), &round(376));
        let seen: Vec<_> = (0..4)
            .map(|at| {
                window.round_over(LocalNs(3 + at), &round(300));
                window.fragments()
            })
            .collect();
        assert!(seen[0] > 100, "{seen:?}");
        assert_eq!(seen[1..], [1, 1, 2]);
        window.round_over(LocalNs(8), &round(0));
        assert_eq!(window.parts, LEAST * 5 / 4, "it grows again");
    }

    #[test]
    fn round_over__a_slowdown_comes_nine_times_its_length_after_the_last_one() {
        let mut window = steady(50, LocalNs(100));
        let mut narrow = Vec::new();
        for at in 100..1_000 {
            window.round_over(LocalNs(at), &round(100));
            if matches!(window.phase, ScavengerPhase::Hold { rounds: HOLD_ROUNDS, .. }) {
                narrow.push(at);
            }
        }
        let length = |window: &[u64]| window[1] - window[0];
        assert!(narrow.len() > 2, "{narrow:?}");
        // Two rounds, and from 2 to 50 by a quarter each 15 more; later to some more than 50.
        assert!(narrow.windows(2).all(|pair| (160..=240).contains(&length(pair))), "{narrow:?}");
    }

    #[test]
    fn round_over__a_stream_that_does_not_fill_its_window_is_not_slowed_down() {
        let mut window = steady(50, LocalNs(100));
        let idle = RoundDelay { was_full: false, ..round(100) };
        (100..200).for_each(|at| window.round_over(LocalNs(at), &idle));
        assert_eq!(window.fragments(), 50);
        window.round_over(LocalNs(200), &round(100));
        assert_eq!(window.fragments(), 1);
    }

    #[test]
    fn round_over__a_return_ends_where_others_have_taken_the_place() {
        let mut window = steady(100, LocalNs(0));
        (0..20).for_each(|at| window.round_over(LocalNs(at), &round(100)));
        let returned = window.fragments();
        assert!(returned < 100, "{returned}");
        window.round_over(LocalNs(20), &round(600));
        assert!(window.fragments() < returned);
        assert!(matches!(window.phase, ScavengerPhase::Steady { .. }));
    }

    proptest! {
        #[test]
        fn round_over__the_window_stays_within_its_bounds(rounds in prop::collection::vec((any::<Option<u32>>(), any::<u32>(), any::<[bool; 2]>(), 0_u64..1 << 40), 1..400)) {
            let (mut window, mut now) = (ScavengerWindow::new(), LocalNs(0));
            for (trip, base, [was_full, overflows], passed) in rounds {
                now += Nanos(passed);
                let shortest = trip.map(|trip| Nanos(u64::from(trip.max(base))));
                let base = Nanos(u64::from(base));
                window.round_over(now, &RoundDelay { shortest, base, target: TARGET, was_full, overflows });
                let bounds = match window.phase {
                    ScavengerPhase::Hold { .. } => 1..=1,
                    _ => 2..=super::super::WINDOW,
                };
                prop_assert!(bounds.contains(&window.fragments()));
            }
        }
    }
}
