//! How fast the root sends: down when the worst receiver loses much or the network marks, once in a
//! round trip, and slowly up again.
//!
//! # Source
//! Additive increase and multiplicative decrease (RFC 5681) with the factor of CUBIC's and DCTCP's
//! kin, 0.8, because one reaction is to the worst of many receivers.
//!
//! # Invariants
//! I1. The rate is never above the configured one, and never below a sixteenth of it.

use crate::base::{BitsPerSec, Bytes, LocalNs, Nanos};

/// Losses up to 3 % are a link's own: multicast at 1 % has been measured to lose a fifteenth of its
/// rate to repair, and slower sending would not make it less.
pub(super) const LOST: u32 = 30_000;
/// Marks are only made by congestion.
pub(super) const MARKED: u32 = 10_000;

/// The root's rate.
#[derive(Debug)]
pub(super) struct RateControl {
    most: Option<BitsPerSec>,
    rate: u64,
    changed: LocalNs,
}

impl RateControl {
    pub(super) fn new(most: Option<BitsPerSec>) -> Self {
        Self { most, rate: most.map_or(0, |most| most.0), changed: LocalNs(0) }
    }

    /// Takes the worst that was reported: shares lost and marked in millionths. Gives the new rate,
    /// if it changes.
    pub(super) fn reported(
        &mut self,
        lost: u32,
        marked: u32,
        trip: Nanos,
        symbol: u32,
        now: LocalNs,
    ) -> Option<BitsPerSec> {
        let most = self.most?.0;
        let trips = now.since(self.changed).steps_of(trip);
        let is_bad = lost > LOST || marked > MARKED;
        if trips == 0 || self.rate == most && !is_bad {
            return None;
        }
        self.changed = now;
        // One symbol more in each round trip that went by.
        let step = BitsPerSec(
            Bytes(u64::from(symbol) * 8).0.saturating_mul(1_000_000_000) / trip.0.max(1),
        );
        self.rate = if is_bad {
            self.rate / 5 * 4
        } else {
            self.rate.saturating_add(step.0.saturating_mul(trips))
        };
        self.rate = self.rate.clamp(most / 16, most);
        Some(BitsPerSec(self.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Nanos = Nanos::from_micros(200);

    #[test]
    fn reported__down_once_in_a_round_trip_and_up_by_a_symbol() {
        let mut pace = RateControl::new(Some(BitsPerSec::mega(1_000)));
        assert_eq!(
            pace.reported(10_000, 0, TRIP, 1_000, LocalNs(1_000_000)),
            None,
            "1 % is a link's own loss"
        );
        assert_eq!(
            pace.reported(50_000, 0, TRIP, 1_000, LocalNs(1_000_000)),
            Some(BitsPerSec::mega(800))
        );
        assert_eq!(pace.reported(50_000, 0, TRIP, 1_000, LocalNs(1_199_999)), None);
        assert_eq!(
            pace.reported(0, 20_000, TRIP, 1_000, LocalNs(1_200_000)),
            Some(BitsPerSec::mega(640))
        );
        assert_eq!(
            pace.reported(0, 0, TRIP, 1_000, LocalNs(1_600_000)),
            Some(BitsPerSec::mega(720)),
            "8000 bits in 200 us, twice"
        );
        assert_eq!(
            pace.reported(0, 0, TRIP, 1_000, LocalNs(9_000_000)),
            Some(BitsPerSec::mega(1_000))
        );
    }

    #[test]
    fn reported__never_below_a_sixteenth() {
        let mut pace = RateControl::new(Some(BitsPerSec::mega(160)));
        let rates: alloc::vec::Vec<_> = (1..40)
            .filter_map(|at| pace.reported(1_000_000, 0, TRIP, 1_000, LocalNs(at * 1_000_000)))
            .collect();
        assert_eq!(rates.last(), Some(&BitsPerSec::mega(10)));
        assert_eq!(
            RateControl::new(None).reported(1_000_000, 0, TRIP, 1_000, LocalNs(1_000_000)),
            None
        );
    }
}
