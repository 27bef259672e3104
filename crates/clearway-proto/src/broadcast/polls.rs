//! When the root asks how far everybody is: with every 64 symbols, at the end of a long object,
//! once for many short messages, and again and again at the tail until everything is stable.
//!
//! A long object behind which others leave at once has a question of its own if it took longer than
//! a round trip to leave, and otherwise shares that of the next: an answer comes a round trip later
//! anyway. So where sharing ends is measured: at the bytes that are under way.
//!
//! # Source
//! Synchronisation that is delayed and shared by many messages is LA-MPI's; its published code had
//! that or reliability, never both.

use super::receive_window::BLOCK;
use crate::base::{LocalNs, Nanos};

/// The first time without an answer after which a poll is repeated: some round trips, but at most a
/// time that is short compared with a retransmission of TCP.
const FIRST_TRIPS: u64 = 4;
const FIRST_GAP: Nanos = Nanos::from_micros(500);
/// The longest.
const LONGEST_GAP: Nanos = Nanos::from_millis(50);

/// Polls in the time after which a silent member is put out: one that hears nothing of that many is
/// not unlucky.
const BEATS: u64 = 16;

/// Returns after how many symbols is asked, of `window` that may be under way.
fn every(window: u32) -> u32 {
    (BLOCK as u32).min(window / 2).max(1)
}

/// What leaves the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// Something that left before.
    Again,
    /// A short message.
    Short,
    /// A symbol of a long object.
    Long,
    /// The last one.
    End,
    /// The last one, behind which the next object leaves at once.
    Seam,
}

/// Whether an answer to a poll can change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Something is not stable yet.
    Something,
    /// The root only shows that it lives.
    Nothing,
}

/// The root's polls.
#[derive(Debug)]
pub(super) struct Polls {
    /// Symbols of long objects, and short messages, that left since the last one.
    symbols: u32,
    shorts: u32,
    every: u32,
    short_every: u32,
    /// The next poll asks at once about what is below.
    flush: u64,
    /// The time until the next one if nothing else happens, and when that is.
    gap: Nanos,
    first: Nanos,
    due: LocalNs,
    /// When the last poll of its own left, and how long the next one may wait for those whom no
    /// other reaches.
    beat_at: LocalNs,
    most: Nanos,
    /// When was asked last.
    asked_at: LocalNs,
    /// Asked since everybody answered, and whether the last one was because somebody was silent.
    unanswered: u32,
    is_for_silent: bool,
}

impl Polls {
    /// Polls from `now` on, among members that are put out after `silence`.
    pub(super) fn new(window: u32, short_every: u32, silence: Nanos, now: LocalNs) -> Self {
        let every = every(window);
        let short_every = short_every.max(1);
        Self {
            symbols: 0,
            shorts: 0,
            every,
            short_every,
            flush: 0,
            gap: FIRST_GAP,
            first: FIRST_GAP,
            due: now,
            beat_at: now,
            most: Nanos(silence.0 / BEATS),
            asked_at: now,
            unanswered: 0,
            is_for_silent: false,
        }
    }

    /// Makes polls as frequent as symbols under way need them.
    pub(super) fn set_window(&mut self, window: u32) {
        self.every = every(window);
    }

    /// Records that the symbol with `sequence` leaves at `slot`, where a round trip takes `trip`;
    /// says whether a poll goes with it.
    pub(super) fn left(
        &mut self,
        leaves: Departure,
        sequence: u64,
        slot: LocalNs,
        trip: Nanos,
    ) -> bool {
        match leaves {
            Departure::Again => {}
            Departure::Short => self.shorts += 1,
            Departure::Long | Departure::End | Departure::Seam => self.symbols += 1,
        }
        if self.somebody_is_silent() {
            // Polls in symbols may not reach everybody: they must not put off a poll of its own.
            self.due = self.due.min(self.beat_at + self.gap);
        } else {
            if leaves != Departure::Again {
                self.gap = self.first;
            }
            self.due = self.due.max(slot + self.gap);
        }
        let is_seam = leaves == Departure::Seam && slot.since(self.asked_at) >= trip;
        let is_last = leaves == Departure::End || is_seam || sequence + 1 == self.flush;
        let counted = self.symbols >= self.every || self.shorts >= self.short_every;
        // While somebody is silent, what many symbols carry would only put off the answer to what
        // is asked by itself.
        let asks = leaves != Departure::Again && (is_last || counted && !self.somebody_is_silent());
        if asks {
            self.is_for_silent = false;
            self.asked(slot);
        }
        asks
    }

    /// Asks about everything below `sequence` as soon as it has left.
    pub(super) fn flush(&mut self, sequence: u64) {
        self.flush = sequence;
    }

    /// Records that everybody has more, and how long a round trip takes: the next gap is a short
    /// one again.
    pub(super) fn progress(&mut self, now: LocalNs, trip: Nanos) {
        self.first = trip.times(FIRST_TRIPS).min(FIRST_GAP);
        self.poll_soon(now);
    }

    /// Makes the next gap a short one, which begins now.
    pub(super) fn poll_soon(&mut self, now: LocalNs) {
        self.gap = self.first;
        self.due = self.due.min(now + self.gap);
    }

    /// Records that everybody has answered. After an answer to what was asked because somebody was
    /// silent, one poll more without any is enough to ask by itself again: perhaps what symbols
    /// carry reaches nobody any more.
    pub(super) fn answered(&mut self) {
        self.unanswered = u32::from(self.is_for_silent);
    }

    /// Returns whether somebody has not answered for some time.
    pub(super) const fn somebody_is_silent(&self) -> bool {
        self.unanswered >= 2
    }

    pub(super) const fn due(&self) -> LocalNs {
        self.due
    }

    /// Records that a poll of its own leaves at `at`; the next one comes at the latest when a
    /// sixteenth of the silence is over, and then if nothing waits for an answer.
    pub(super) fn beat(&mut self, at: LocalNs, waits: Pending) {
        self.beat_at = at;
        self.is_for_silent = self.somebody_is_silent();
        self.gap = match waits {
            Pending::Something => (self.gap + self.gap).min(LONGEST_GAP).min(self.most),
            Pending::Nothing => self.most,
        };
        self.asked(at);
    }

    fn asked(&mut self, at: LocalNs) {
        (self.symbols, self.shorts) = (0, 0);
        self.asked_at = at;
        self.unanswered += 1;
        self.due = at.min(if self.somebody_is_silent() { self.beat_at } else { at }) + self.gap;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const SILENCE: Nanos = Nanos::from_secs(16);
    const TRIP: Nanos = Nanos::from_micros(1);

    #[test]
    fn left__one_poll_for_many_short_messages_and_one_for_each_long_object() {
        let mut polls = Polls::new(4096, 16, SILENCE, LocalNs(0));
        let asks: Vec<u64> =
            (0..40).filter(|at| polls.left(Departure::Short, *at, LocalNs(*at), TRIP)).collect();
        assert_eq!(asks, [15, 31]);
        assert!(
            !polls.left(Departure::Long, 40, LocalNs(40), TRIP)
                && polls.left(Departure::End, 41, LocalNs(41), TRIP)
        );
        polls.answered();
        assert!(
            (42..105).all(|at| !polls.left(Departure::Long, at, LocalNs(at), TRIP))
                && polls.left(Departure::Long, 105, LocalNs(105), TRIP)
        );
        polls.flush(107);
        assert!(
            !polls.left(Departure::Short, 106 - 1, LocalNs(106), TRIP)
                && polls.left(Departure::Short, 106, LocalNs(107), TRIP)
        );
    }

    #[test]
    fn left__long_objects_that_follow_each_other_within_a_round_trip_share_a_poll() {
        let mut polls = Polls::new(4096, 16, SILENCE, LocalNs(0));
        // Objects of two symbols, one symbol each 100 ns.
        let asks: Vec<u64> = (1..=40)
            .filter(|at| {
                polls.left(
                    if at % 2 == 0 { Departure::Seam } else { Departure::Long },
                    *at,
                    LocalNs(at * 100),
                    TRIP,
                )
            })
            .collect();
        assert_eq!(asks, [10, 20, 30, 40], "once in a round trip");
        assert!(!polls.left(Departure::Long, 41, LocalNs(4_100), TRIP));
        assert!(
            polls.left(Departure::End, 42, LocalNs(4_200), TRIP),
            "behind the last one nothing would ask"
        );
        assert!(
            polls.left(Departure::Seam, 80, LocalNs(5_200), TRIP),
            "what takes a round trip is asked about by itself"
        );
    }

    #[test]
    fn beat__half_a_millisecond_then_twice_as_long_each_time() {
        let mut polls = Polls::new(64, 16, SILENCE, LocalNs(0));
        assert!(!polls.left(Departure::Short, 0, LocalNs(1_000), TRIP));
        let mut gaps = Vec::new();
        for _ in 0..10 {
            let due = polls.due();
            polls.beat(due, Pending::Something);
            gaps.push(polls.due().since(due).0 / 1_000);
        }
        assert_eq!(
            gaps,
            [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 50_000, 50_000, 50_000, 50_000]
        );
        assert!(polls.somebody_is_silent());
        polls.answered();
        assert!(!polls.somebody_is_silent());
        polls.beat(polls.due(), Pending::Nothing);
        assert!(polls.somebody_is_silent(), "one poll more without an answer is enough");
        polls.answered();
        polls.beat(polls.due(), Pending::Nothing);
        polls.answered();
        polls.beat(polls.due(), Pending::Nothing);
        assert!(!polls.somebody_is_silent());
    }

    #[test]
    fn left__a_stream_of_symbols_does_not_put_off_what_the_silent_are_asked() {
        let mut polls = Polls::new(4096, 16, SILENCE, LocalNs(0));
        let ms = |at: u64| LocalNs(at * 1_000_000);
        let asks: Vec<u64> =
            (0..1_900).filter(|at| polls.left(Departure::Long, *at, ms(*at), TRIP)).collect();
        assert_eq!(asks, [63, 127], "what nobody answers is not asked again and again");
        assert_eq!(polls.due(), LocalNs(0) + FIRST_GAP);
        polls.answered();
        assert!(
            polls.left(Departure::Long, 1_900, ms(1_900), TRIP),
            "symbols carry what all are asked"
        );
        assert_eq!(polls.due(), ms(1_900) + FIRST_GAP);
    }
}
