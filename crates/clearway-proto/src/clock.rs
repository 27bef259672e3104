//! A peer's clock, read from here: offset and drift from exchanges of messages, each with a bound
//! of its error.
//!
//! # Model
//! In an *exchange* a question leaves at `asked` and comes back at `back` on this node's clock, and
//! the peer hears it at `heard` and answers at `answered` on its own. No message arrives before it
//! was sent, so at `asked` the peer's clock was at most `heard`, and at `back` at least `answered`:
//! the *offset* (the peer's clock minus this one) has an upper and a lower edge. An edge gets
//! looser with its age by the largest drift that is taken for possible, and is replaced by every
//! one that is tighter. The two edges are kept apart: a question that was quick and an answer that
//! was quick need not belong to one exchange, so a network that is loaded now and then, or in one
//! direction, costs little.
//!
//! The drift lies between the slopes from an early upper edge to any later lower one and from an
//! early lower edge to any later upper one; the longer ago, the narrower. Where no drift is left
//! between them it has changed, and is looked for anew.
//!
//! # Source
//! Cristian, "Probabilistic clock synchronization" (1989); the two edges kept apart as in Marzullo
//! and Owicki (1983); slopes between edges as in Moon, Skelly, Towsley (1999), of which two are
//! enough here.
//!
//! # Invariants
//! I1. The peer's clock lies within the error of a [`ClockReading`], as long as neither clock jumps
//!     and they drift apart no faster than was
//!     said.
//! I2. A jump that contradicts what was known starts everything anew from the exchange that showed
//!     it.
//!
//! # Not here
//! When to ask, and the messages.

use crate::base::{LocalNs, Nanos, PeerNs};

/// Parts per billion in one.
const BILLION: i128 = 1_000_000_000;

/// One question and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockExchange {
    /// The question left.
    pub sent: LocalNs,
    /// The peer heard it.
    pub received: PeerNs,
    /// The peer answered.
    pub replied: PeerNs,
    /// The answer was here.
    pub returned: LocalNs,
}

/// What an exchange did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeOutcome {
    /// It agrees with those before.
    Agreed,
    /// It contradicts those before: a clock jumped. They are forgotten.
    Jumped,
    /// It contradicts itself, so a clock jumped while it was under way, or the peer writes
    /// nonsense. It is not used.
    Nonsense,
}

/// An instant on another clock, and how far it may be off in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading<T> {
    /// The middle of what is possible.
    pub at: T,
    /// The most by which it is off.
    pub error: Nanos,
}

/// By how much a peer's clock runs faster than this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Parts per billion; negative when it runs slower.
    pub ppb: i64,
    /// The most by which that is off, as long as it does not change.
    pub error: u64,
}

/// A bound of the offset.
#[derive(Clone, Copy, Debug)]
struct OffsetBound {
    at: LocalNs,
    /// The peer's clock minus this one.
    offset: i128,
}

impl OffsetBound {
    const fn new(at: LocalNs, peer: PeerNs) -> Self {
        Self { at, offset: peer.0 as i128 - at.0 as i128 }
    }

    /// Returns by how much the offset may have moved since, or until, `at`. Rounded up.
    fn play(self, at: LocalNs, drift_max: u32) -> i128 {
        let age = self.at.0.abs_diff(at.0);
        (i128::from(age) * i128::from(drift_max) + BILLION - 1) / BILLION
    }
}

/// Both bounds, as one exchange or several gave them.
#[derive(Clone, Copy, Debug)]
struct OffsetBounds {
    lower: OffsetBound,
    upper: OffsetBound,
}

impl OffsetBounds {
    /// Returns the least and the greatest offset at `at`.
    fn range(&self, at: LocalNs, drift_max: u32) -> (i128, i128) {
        let Self { lower, upper } = *self;
        (lower.offset - lower.play(at, drift_max), upper.offset + upper.play(at, drift_max))
    }
}

/// The drift, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct DriftEstimate {
    from: OffsetBounds,
    /// Exchanges that may still give better edges to begin from.
    early: u32,
    least: i128,
    most: i128,
}

/// Exchanges that are taken for early: of a few, one is quick.
const EARLY: u32 = 8;

impl DriftEstimate {
    fn from(edges: OffsetBounds, drift_max: u32) -> Self {
        Self {
            from: edges,
            early: EARLY,
            least: -i128::from(drift_max),
            most: i128::from(drift_max),
        }
    }

    /// Takes the edges of one exchange, where `best` are the tightest up to now.
    fn take(&mut self, edges: OffsetBounds, best: OffsetBounds, drift_max: u32) {
        if self.early > 0 {
            (self.early, self.from) = (self.early - 1, best);
            return;
        }
        let slope = |from: OffsetBound, to: OffsetBound| {
            let length = i128::from(to.at.0) - i128::from(from.at.0);
            (length > 0).then(|| (to.offset - from.offset) * BILLION / length)
        };
        self.least =
            slope(self.from.upper, edges.lower).map_or(self.least, |least| least.max(self.least));
        self.most =
            slope(self.from.lower, edges.upper).map_or(self.most, |most| most.min(self.most));
        if self.least > self.most {
            *self = Self::from(best, drift_max);
        }
    }
}

/// What is known of a peer's clock. Takes the same memory however many exchanges there were.
#[derive(Clone, Debug)]
pub struct PeerClock {
    drift_max: u32,
    known: Option<(OffsetBounds, DriftEstimate)>,
}

impl PeerClock {
    /// Creates an estimate that knows only that the clocks drift apart by at most `drift_max` parts
    /// per billion. Crystal oscillators of computers keep 50 parts per million each.
    pub const fn new(drift_max: u32) -> Self {
        Self { drift_max, known: None }
    }

    /// Takes what an exchange shows.
    pub fn take(&mut self, exchange: ClockExchange) -> ExchangeOutcome {
        let ClockExchange { sent: asked, received: heard, replied: answered, returned: back } =
            exchange;
        let edges = OffsetBounds {
            lower: OffsetBound::new(back, answered),
            upper: OffsetBound::new(asked, heard),
        };
        let (least, most) = edges.range(back, self.drift_max);
        if back < asked || answered.0 < heard.0 || least > most {
            return ExchangeOutcome::Nonsense;
        }
        let fresh = (edges, DriftEstimate::from(edges, self.drift_max));
        let Some((best, slopes)) = &mut self.known else {
            self.known = Some(fresh);
            return ExchangeOutcome::Agreed;
        };
        let (known_least, known_most) = best.range(back, self.drift_max);
        if least > known_most || most < known_least {
            self.known = Some(fresh);
            return ExchangeOutcome::Jumped;
        }
        if least > known_least {
            best.lower = edges.lower;
        }
        if most < known_most {
            best.upper = edges.upper;
        }
        slopes.take(edges, *best, self.drift_max);
        ExchangeOutcome::Agreed
    }

    /// Returns what the peer's clock shows when this one shows `at`; `None` before the first
    /// exchange.
    pub fn peer(&self, at: LocalNs) -> Option<ClockReading<PeerNs>> {
        let (middle, error) = self.offset(at)?;
        let shown = (i128::from(at.0) + middle).clamp(0, i128::from(u64::MAX));
        Some(ClockReading { at: PeerNs(shown as u64), error })
    }

    /// Returns what this clock shows when the peer's shows `at`; `None` before the first exchange.
    pub fn local(&self, at: PeerNs) -> Option<ClockReading<LocalNs>> {
        // The offset is that of an instant which is not known before it is taken off: a first guess
        // is wrong by the drift of an offset at most, and the second one by the drift of that.
        let (best, _) = self.known?;
        let clamped = |offset: i128| {
            LocalNs((i128::from(at.0) - offset).clamp(0, i128::from(u64::MAX)) as u64)
        };
        let guess = clamped(best.lower.offset);
        let (middle, _) = self.offset(guess)?;
        let (middle, error) = self.offset(clamped(middle))?;
        Some(ClockReading { at: clamped(middle), error })
    }

    /// Returns how much faster the peer's clock runs; `None` before the first exchange.
    pub fn drift(&self) -> Option<Drift> {
        let (_, DriftEstimate { least, most, .. }) = self.known?;
        // Slopes and their middle are rounded.
        let error = (most - least).div_euclid(2) + 2;
        Some(Drift {
            ppb: i64::try_from((least + most).div_euclid(2)).ok()?,
            error: u64::try_from(error).ok()?,
        })
    }

    /// Returns the middle of the offset at `at`, and the error.
    fn offset(&self, at: LocalNs) -> Option<(i128, Nanos)> {
        let (least, most) = self.known?.0.range(at, self.drift_max);
        let error = (most - least).div_euclid(2) + 1;
        Some((least + (most - least) / 2, Nanos(u64::try_from(error).unwrap_or(u64::MAX))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::RandomKey;

    /// Two clocks that drift by 50 ppm each.
    const DRIFT_MAX: u32 = 100_000;

    /// Returns the peer's clock where this one shows `local`, when it is `offset` ahead at zero and
    /// `ppb` faster.
    fn shown(local: u64, offset: u64, ppb: i64) -> PeerNs {
        PeerNs(
            (i128::from(local) + i128::from(offset) + i128::from(local) * i128::from(ppb) / BILLION)
                as u64,
        )
    }

    /// Returns an exchange that begins at `asked` and takes so long there, at the peer, and back.
    fn exchange(asked: u64, [there, stay, back]: [u64; 3], offset: u64, ppb: i64) -> ClockExchange {
        ClockExchange {
            sent: LocalNs(asked),
            received: shown(asked + there, offset, ppb),
            replied: shown(asked + there + stay, offset, ppb),
            returned: LocalNs(asked + there + stay + back),
        }
    }

    #[test]
    fn peer__is_in_the_middle_of_what_an_exchange_leaves_open() {
        let mut clock = PeerClock::new(0);
        assert_eq!(clock.peer(LocalNs(0)), None);
        // Asked at 100, back at 500 after 100 at the peer, which showed 10,250 to 10,350: the
        // offset is 9,850 to 10,150.
        let exchange = ClockExchange {
            sent: LocalNs(100),
            received: PeerNs(10_250),
            replied: PeerNs(10_350),
            returned: LocalNs(500),
        };
        assert_eq!(clock.take(exchange), ExchangeOutcome::Agreed);
        assert_eq!(
            clock.peer(LocalNs(1_000)),
            Some(ClockReading { at: PeerNs(11_000), error: Nanos(151) })
        );
        assert_eq!(
            clock.local(PeerNs(11_000)),
            Some(ClockReading { at: LocalNs(1_000), error: Nanos(151) })
        );
    }

    #[test]
    fn take__a_quick_question_and_a_quick_answer_may_be_of_two_exchanges() {
        let mut clock = PeerClock::new(0);
        clock.take(exchange(0, [10, 0, 50_000], 7_000, 0));
        clock.take(exchange(100_000, [50_000, 0, 10], 7_000, 0));
        let reading = clock.peer(LocalNs(200_000)).expect("two exchanges");
        assert_eq!((reading.at, reading.error), (PeerNs(207_000), Nanos(11)));
    }

    #[test]
    fn peer__error_holds_whatever_delays_and_drift_do() {
        let mut random = RandomKey::new(7).purpose("delays").stream();
        for ppb in [-100_000, -31_000, 0, 20, 100_000] {
            let mut clock = PeerClock::new(DRIFT_MAX);
            let mut now = 0;
            for _ in 0..2_000 {
                let delays = [0; 3].map(|_: u64| {
                    let most = 2 << random.below(22);
                    500 + random.below(most)
                });
                assert_eq!(
                    clock.take(exchange(now, delays, 5_000_000_000, ppb)),
                    ExchangeOutcome::Agreed
                );
                now += delays.iter().sum::<u64>() + random.below(3_000_000);
                let (reading, truth) =
                    (clock.peer(LocalNs(now)).expect("known"), shown(now, 5_000_000_000, ppb));
                assert!(
                    reading.at.0.abs_diff(truth.0) <= reading.error.0,
                    "{reading:?} of {truth:?}"
                );
                let back = clock.local(truth).expect("known");
                assert!(back.at.0.abs_diff(now) <= back.error.0 + 1, "{back:?} of {now}");
            }
            let drift = clock.drift().expect("seconds have passed");
            assert!(drift.ppb.abs_diff(ppb) <= drift.error, "{drift:?} of {ppb}");
            assert!(drift.error < 5_000, "{drift:?}: seconds show it to a few parts per million");
        }
    }

    #[test]
    fn drift__that_changed_is_found_anew() {
        let mut clock = PeerClock::new(DRIFT_MAX);
        for i in 0..1_000 {
            clock.take(exchange(i * 1_000_000, [1_000; 3], 0, 80_000));
        }
        assert!(clock.drift().expect("known").ppb.abs_diff(80_000) < 5_000, "{:?}", clock.drift());
        // From the second on, 80 us ahead, it is 40 ppm slow.
        for i in 0..1_000 {
            let ClockExchange { sent: asked, received: heard, replied: answered, returned: back } =
                exchange(i * 1_000_000, [1_000; 3], 1_000_080_000, -40_000);
            let later = |at: LocalNs| at + Nanos(1_000_000_000);
            let outcome = clock.take(ClockExchange {
                sent: later(asked),
                received: heard,
                replied: answered,
                returned: later(back),
            });
            assert_eq!(outcome, ExchangeOutcome::Agreed);
        }
        let drift = clock.drift().expect("known");
        assert!(drift.ppb.abs_diff(-40_000) <= drift.error.min(5_000), "{drift:?}");
    }

    #[test]
    fn take__a_jump_of_either_clock_starts_anew() {
        let delays = [1_000; 3];
        for (offset, skipped) in [(40_000_000, 0), (0, 0), (20_000_000, 30_000_000)] {
            let mut clock = PeerClock::new(DRIFT_MAX);
            (0..100).for_each(|i| {
                clock.take(exchange(i * 100_000, delays, 20_000_000, 0));
            });
            // Behind it the peer's clock is elsewhere, or this one is.
            let ClockExchange { sent: asked, received: heard, replied: answered, returned: back } =
                exchange(20_000_000, delays, offset, 0);
            let moved = |at: LocalNs| LocalNs(at.0 + skipped);
            let outcome = clock.take(ClockExchange {
                sent: moved(asked),
                received: heard,
                replied: answered,
                returned: moved(back),
            });
            assert_eq!(outcome, ExchangeOutcome::Jumped);
            let reading = clock.peer(moved(LocalNs(21_000_000))).expect("known");
            assert!(reading.at.0.abs_diff(21_000_000 + offset) <= reading.error.0, "{reading:?}");
            assert!(reading.error < Nanos(2_000), "{reading:?}");
        }
    }

    #[test]
    fn take__nonsense_changes_nothing() {
        let mut clock = PeerClock::new(DRIFT_MAX);
        clock.take(exchange(0, [1_000; 3], 500, 0));
        let before = clock.peer(LocalNs(10_000));
        let nonsense = [
            ClockExchange {
                sent: LocalNs(9_000),
                received: PeerNs(1),
                replied: PeerNs(1),
                returned: LocalNs(8_000),
            },
            ClockExchange {
                sent: LocalNs(9_000),
                received: PeerNs(10),
                replied: PeerNs(9),
                returned: LocalNs(9_100),
            },
            // It was longer at the peer than it was away.
            ClockExchange {
                sent: LocalNs(9_000),
                received: PeerNs(9_500),
                replied: PeerNs(9_900),
                returned: LocalNs(9_100),
            },
            ClockExchange {
                sent: LocalNs(0),
                received: PeerNs(0),
                replied: PeerNs(u64::MAX),
                returned: LocalNs(1),
            },
        ];
        for exchange in nonsense {
            assert_eq!(clock.take(exchange), ExchangeOutcome::Nonsense, "{exchange:?}");
        }
        assert_eq!(clock.peer(LocalNs(10_000)), before);
    }
}
