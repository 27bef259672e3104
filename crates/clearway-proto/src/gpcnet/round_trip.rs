//! How long a message and its confirmation take, and from that how long to wait before it counts as
//! lost.
//!
//! # Model
//! One message at a time is timed. A confirmation in time changes a smoothed round trip and its
//! variation; the time-out is the one and four times the other. One that did not come in time
//! doubles the time-out, until a message that was sent once only is confirmed again: the
//! confirmation of one that was repeated may be that of either, and teaches nothing.
//!
//! # Source
//! RFC 6298: weights (2.3), doubling (5.5), Karn's rule (3). Its least and first time-outs, of a
//! second, are those of the internet.
//!
//! # Invariants
//! I1. A time-out is never less than [`LEAST`] nor more than [`MOST`].

use crate::base::{LocalNs, Nanos, Smoothed};

/// Before anything is known: twice a full queue of 100 packets at 100 Mb/s (11.5 ms).
pub(super) const FIRST: Nanos = Nanos::from_millis(25);
/// Four full queues of 100 packets at 25 Mb/s.
pub(super) const MOST: Nanos = Nanos::from_millis(200);
/// A peer whose processor went to somebody else for a slice is late and has lost nothing: slices of
/// Linux are about 3 ms and end with a tick, every 4 ms where there are 250 a second.
pub(super) const LEAST: Nanos = Nanos::from_millis(4);

/// What was learned of the way to one peer and back.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    known: Option<Smoothed>,
    timeout: Nanos,
    /// What is timed, and since when.
    timed: Option<(u64, LocalNs)>,
}

impl RoundTrip {
    /// Creates an estimate that knows nothing yet.
    pub(super) const fn new() -> Self {
        Self { known: None, timeout: FIRST, timed: None }
    }

    /// Returns how long to wait for a confirmation.
    pub(super) const fn timeout(&self) -> Nanos {
        self.timeout
    }

    /// Records that message `number` leaves for the first time.
    pub(super) fn sent(&mut self, number: u64, now: LocalNs) {
        self.timed.get_or_insert((number, now));
    }

    /// Records that all messages below `count` are confirmed.
    pub(super) fn confirmed(&mut self, count: u64, now: LocalNs) {
        if let Some((_, at)) = self.timed.take_if(|(number, _)| *number < count) {
            self.learn(now.since(at));
        }
    }

    /// Forgets what is timed: it did not leave, or its confirmation will not tell which of two was
    /// confirmed.
    pub(super) fn forget(&mut self) {
        self.timed = None;
    }

    /// Records that nothing was confirmed within the time-out.
    pub(super) fn missed(&mut self) {
        self.forget();
        self.timeout = MOST.min(self.timeout.times(2));
    }

    fn learn(&mut self, took: Nanos) {
        let known = Smoothed::after(self.known, took);
        self.known = Some(known);
        self.timeout = known.bound().clamp(LEAST, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Records message `number`, confirmed after `took`.
    fn round(trip: &mut RoundTrip, number: u64, took: Nanos) {
        let at = LocalNs(number * 1_000 * MS);
        trip.sent(number, at);
        trip.confirmed(number + 1, at + took);
    }

    #[test]
    fn timeout__is_the_smoothed_round_trip_and_four_variations_of_it() {
        let mut trip = RoundTrip::new();
        assert_eq!(trip.timeout(), FIRST);
        round(&mut trip, 0, Nanos(8 * MS));
        assert_eq!(trip.timeout(), Nanos(24 * MS), "8 and 4 times 4");
        round(&mut trip, 1, Nanos(16 * MS));
        assert_eq!(trip.timeout(), Nanos(29 * MS), "7 + 2, and 4 times 3 + 2");
    }

    #[test]
    fn timeout__stays_between_its_bounds() {
        let mut trip = RoundTrip::new();
        (0..100).for_each(|number| round(&mut trip, number, Nanos(50_000)));
        assert_eq!(trip.timeout(), LEAST);
        round(&mut trip, 100, Nanos(u64::MAX / 2));
        assert_eq!(trip.timeout(), MOST);
        (0..100).for_each(|_| trip.missed());
        assert_eq!(trip.timeout(), MOST);
    }

    #[test]
    fn missed__doubles_until_a_message_that_was_sent_once_is_confirmed() {
        let mut trip = RoundTrip::new();
        round(&mut trip, 0, Nanos(MS));
        trip.sent(1, LocalNs(0));
        trip.missed();
        trip.confirmed(2, LocalNs(90 * MS));
        assert_eq!(
            trip.timeout(),
            LEAST.times(2),
            "the confirmation of a repeated message teaches nothing"
        );
        round(&mut trip, 2, Nanos(MS));
        assert_eq!(trip.timeout(), LEAST);
    }

    #[test]
    fn confirmed__counts_from_the_first_of_those_under_way() {
        let mut trip = RoundTrip::new();
        trip.sent(5, LocalNs(0));
        trip.sent(6, LocalNs(30 * MS));
        trip.confirmed(5, LocalNs(31 * MS));
        assert_eq!(trip.timeout(), FIRST, "not the one that is timed");
        trip.confirmed(7, LocalNs(40 * MS));
        assert_eq!(trip.timeout(), Nanos(120 * MS), "40 and 4 times 20");
    }
}
