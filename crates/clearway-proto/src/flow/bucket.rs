//! A token bucket: a rate, and how far one may run ahead of it.
//!
//! # Model
//! Tokens are bytes times 8e9, so that a rate of *r* bits a second adds exactly *r* of them each
//! nanosecond. The bucket holds a burst at most. What costs more than a burst leaves when the
//! bucket is full, and the debt is paid before anything else leaves.
//!
//! # Invariants
//! I1. Between any two instants, no more than the rate times the time and one burst leaves, and
//!     nothing is lost to rounding.

use crate::base::{BitsPerSec, Bytes, LocalNs};

/// Tokens of a byte: bits of a byte times nanoseconds of a second.
const BYTE: i128 = 8_000_000_000;

/// A rate with a burst.
///
/// ```
/// use clearway_proto::base::{BitsPerSec, Bytes, LocalNs};
/// use clearway_proto::flow::TokenBucket;
/// let mut bucket = TokenBucket::new(BitsPerSec::mega(8), Bytes(1000), LocalNs(0));
/// assert_eq!(bucket.take(LocalNs(0), Bytes(1000)), Ok(()));
/// assert_eq!(bucket.take(LocalNs(0), Bytes(500)), Err(LocalNs(500_000)));
/// assert_eq!(bucket.take(LocalNs(500_000), Bytes(500)), Ok(()));
/// ```
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: BitsPerSec,
    burst: Bytes,
    tokens: i128,
    at: LocalNs,
}

impl TokenBucket {
    /// Creates a bucket that is full at `now`.
    pub fn new(rate: BitsPerSec, burst: Bytes, now: LocalNs) -> Self {
        Self { rate, burst, tokens: i128::from(burst.0) * BYTE, at: now }
    }

    /// Returns the rate.
    pub const fn rate(&self) -> BitsPerSec {
        self.rate
    }

    /// Changes the rate from `now` on.
    pub fn set_rate(&mut self, now: LocalNs, rate: BitsPerSec) {
        self.refill(now);
        self.rate = rate;
    }

    fn full(&self) -> i128 {
        i128::from(self.burst.0) * BYTE
    }

    fn refill(&mut self, now: LocalNs) {
        // A clock that stands still adds nothing; it never goes back.
        let added = i128::from(self.rate.0) * i128::from(now.since(self.at).0);
        self.tokens = self.full().min(self.tokens.saturating_add(added));
        self.at = self.at.max(now);
    }

    /// Takes the tokens of `cost` at `now`.
    ///
    /// # Errors
    /// When they will be there; [`LocalNs`] of the end of time where the rate is zero.
    pub fn take(&mut self, now: LocalNs, cost: Bytes) -> Result<(), LocalNs> {
        self.refill(now);
        let cost = i128::from(cost.0) * BYTE;
        let missing = cost.min(self.full()) - self.tokens;
        if missing <= 0 {
            self.tokens -= cost;
            return Ok(());
        }
        let rate = i128::from(self.rate.0);
        let wait = if rate == 0 { i128::MAX } else { missing.saturating_add(rate - 1) / rate };
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Err(LocalNs(self.at.0.saturating_add(wait)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn take__more_than_a_burst_leaves_from_a_full_bucket_and_is_paid_back() {
        let mut bucket = TokenBucket::new(BitsPerSec(8_000), Bytes(10), LocalNs(0));
        assert_eq!(bucket.take(LocalNs(0), Bytes(1)), Ok(()));
        assert_eq!(bucket.take(LocalNs(0), Bytes(30)), Err(LocalNs(1_000_000)));
        assert_eq!(bucket.take(LocalNs(1_000_000), Bytes(30)), Ok(()));
        assert_eq!(bucket.take(LocalNs(1_000_000), Bytes(1)), Err(LocalNs(22_000_000)));
    }

    #[test]
    fn set_rate__what_was_saved_stays_and_a_rate_of_zero_stops() {
        let mut bucket = TokenBucket::new(BitsPerSec(8_000), Bytes(10), LocalNs(0));
        assert_eq!(bucket.take(LocalNs(0), Bytes(10)), Ok(()));
        bucket.set_rate(LocalNs(2_000_000), BitsPerSec(0));
        assert_eq!(
            (bucket.rate(), bucket.take(LocalNs(9_000_000), Bytes(2))),
            (BitsPerSec(0), Ok(()))
        );
        assert_eq!(bucket.take(LocalNs(9_000_000), Bytes(1)), Err(LocalNs(u64::MAX)));
    }

    proptest! {
        #[test]
        fn take__waiting_until_then_gives_exactly_the_rate(rate in 1_u64..1 << 40, costs in prop::collection::vec(1_u64..100_000, 1..60)) {
            let (rate, burst) = (BitsPerSec(rate), Bytes(50_000));
            let mut bucket = TokenBucket::new(rate, burst, LocalNs(0));
            let (mut now, mut sent) = (LocalNs(0), 0_u64);
            for cost in costs {
                if let Err(at) = bucket.take(now, Bytes(cost)) {
                    prop_assert!(at > now);
                    // A nanosecond earlier is too early.
                    prop_assert!(bucket.clone().take(LocalNs(at.0 - 1), Bytes(cost)).is_err());
                    now = at;
                    prop_assert_eq!(bucket.take(now, Bytes(cost)), Ok(()));
                }
                let allowed = rate.bytes_in(now.since(LocalNs(0))).0 + burst.0 + cost;
                sent += cost;
                prop_assert!(sent <= allowed, "{} of {}", sent, allowed);
            }
        }
    }
}
