//! How much of a stream may be under way on one path: as much as the path carries without a queue
//! that stands.
//!
//! # Model
//! Fragments that leave on a path are counted in its own order, whatever their numbers in the
//! stream. Answers are judged by *rounds*: a round is over when a fragment is answered that left
//! after the round began. In a round's shortest round trip nobody was slow by chance; what it has
//! above the shortest seen is a queue that stands. While that is below the class's allowance the
//! window grows, by half in its first rounds, then by one fragment; above, it shrinks in
//! proportion, at most by half. Single losses say nothing, on networks that lose by themselves;
//! where more than a share of a round is lost, a queue overflows, and the window shrinks too.
//! A scavenger takes the same rounds and answers to them in its own way ([`ScavengerWindow`]).
//!
//! # Source
//! Delay as the signal, with its target: Swift (SIGCOMM 2020) and LEDBAT++; the least of a round
//! against noise: BBR. Round trips: RFC 6298; numbers on their own for each path and three later
//! ones as the proof of a loss: RFC 9002, section 6.1.
//!
//! # Invariants
//! I1. The window is never below [`WINDOW_LEAST`] nor above [`super::WINDOW`]; one fragment in a
//!     scavenger's slowdown.

use super::ANSWER_EVERY;
use super::scavenger::{BASE_FOR, RoundDelay, ScavengerWindow};
use crate::base::{Class, LocalNs, Nanos, Smoothed};

/// The window of a path that nothing is known of: RFC 6928.
const WINDOW_FIRST: u32 = 10;
/// The least window: two, so that a later one's answer shows one lost fragment.
pub(super) const WINDOW_LEAST: u32 = 2;
/// Later fragments of a path that were answered before one counts as lost: RFC 9002, section 6.1.1.
const REORDERED_MAX: u64 = 3;
/// How long the shortest round trip is believed, in two halves: routes change, and a queue that
/// always stood looks like distance.
const SHORTEST_FOR: Nanos = Nanos::from_secs(5);
/// Lost fragments of a round that are chance, as one in this many. BBRv2 bears 2 %; networks that
/// lose 1 % have rounds of 3 %.
const CHANCE: u32 = 25;
/// Rounds shorter than this say nothing about a small share of losses.
const ROUND_TOLD: u32 = 32;
/// In rounds of at least this many fragments, a loss of half of them is no chance either: where one
/// in five is lost, one round in a hundred is like that.
const ROUND_LEAST: u32 = 8;
/// The shortest time until a fragment is sent again though nothing was heard: ten times what a
/// scheduler takes on a busy host.
const TIMEOUT_LEAST: Nanos = Nanos::from_millis(2);
/// The longest.
pub(super) const TIMEOUT_MOST: Nanos = Nanos::from_millis(64);
/// Time-outs in a row, while other paths are heard, after which a path counts as down.
const DOWN_AFTER: u32 = 2;
/// How often a path that is down is tried.
const TRY_AGAIN: Nanos = Nanos::from_millis(100);

/// A stream on one path.
#[derive(Clone, Debug)]
pub(super) struct StreamPath {
    class: Class,
    window: u32,
    /// Fragments that left and are neither answered nor lost.
    pub(super) under_way: u32,
    /// The number that the next fragment gets on this path.
    next: u64,
    /// One above the highest number that was answered.
    answered: u64,
    /// The transmit queue is full.
    pub(super) is_blocked: bool,
    trip: Option<Smoothed>,
    /// The shortest round trips of this half and the one before.
    shortest: [Nanos; 2],
    half_over: LocalNs,
    round: PathRound,
    grows_fast: bool,
    /// Has the window's place where the stream is a scavenger's.
    scavenger: Option<ScavengerWindow>,
    /// In a row.
    timeouts: u32,
    /// While the path is down: when it is tried next.
    down_until: Option<LocalNs>,
    wants_question: bool,
    /// The number of the next fragment when the question left that is not answered.
    asked: Option<u64>,
    /// When the last answer came, on this path or of what left on it.
    last_heard: LocalNs,
}

/// Whether what came back answers a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeReply {
    Yes,
    No,
}

/// What was seen since the round began.
#[derive(Clone, Copy, Debug)]
struct PathRound {
    end: u64,
    shortest: Nanos,
    answered: u32,
    lost: u32,
    /// The window was full once: only then does it say what the path carries.
    was_full: bool,
    is_marked: bool,
}

impl PathRound {
    const fn new(end: u64) -> Self {
        Self { end, shortest: Nanos::MAX, answered: 0, lost: 0, was_full: false, is_marked: false }
    }
}

impl StreamPath {
    pub(super) const fn new(class: Class) -> Self {
        let scavenger = match class {
            Class::Scavenger => Some(ScavengerWindow::new()),
            _ => None,
        };
        Self {
            class,
            window: if scavenger.is_some() { WINDOW_LEAST } else { WINDOW_FIRST },
            scavenger,
            under_way: 0,
            next: 0,
            answered: 0,
            is_blocked: false,
            trip: None,
            shortest: [Nanos::MAX; 2],
            half_over: LocalNs(0),
            round: PathRound::new(0),
            grows_fast: true,
            timeouts: 0,
            down_until: None,
            wants_question: false,
            asked: None,
            last_heard: LocalNs(0),
        }
    }

    /// Returns how many fragments may leave now.
    pub(super) fn room(&self, now: LocalNs) -> u32 {
        if self.is_blocked {
            return 0;
        }
        match self.down_until {
            None => self.window.saturating_sub(self.under_way),
            Some(until) => u32::from(now >= until),
        }
    }

    /// Returns whether nothing comes back from this path while others answer.
    pub(super) const fn is_down(&self) -> bool {
        self.down_until.is_some()
    }

    /// Returns whether something timed out since the last answer.
    pub(super) const fn is_suspect(&self) -> bool {
        self.timeouts > 0
    }

    /// Makes a question leave on this path, if it is not down: then one leaves in its time.
    pub(super) const fn want_question(&mut self) {
        self.wants_question = !self.is_down();
    }

    /// Returns whether a question is to leave now.
    pub(super) fn wants_question(&self, now: LocalNs, are_all_down: bool) -> bool {
        let is_due = self.down_until.is_some_and(|until| now >= until) && !are_all_down;
        !self.is_blocked && (self.wants_question || is_due)
    }

    /// Records that a question leaves on this path.
    pub(super) fn ask(&mut self, now: LocalNs) {
        self.wants_question = false;
        // The first of several: one may be lost, and its answer tells only of what left before it.
        self.asked = self.asked.or(Some(self.next));
        self.down_until = self.down_until.map(|_| now + TRY_AGAIN);
    }

    /// Records that something came back on this path; the answer of a question, perhaps. That tells
    /// that what left before it is here or lost, and that a path that was down carries again,
    /// perhaps another way than before.
    pub(super) fn reply_received(&mut self, now: LocalNs, is_answer: ProbeReply) {
        let asked = if is_answer == ProbeReply::Yes { self.asked.take() } else { None };
        self.answered = self.answered.max(asked.map_or(0, |asked| asked + REORDERED_MAX));
        if self.is_down() && is_answer == ProbeReply::Yes {
            let Self { class, next, answered, under_way, is_blocked, .. } = *self;
            *self = Self {
                next,
                answered,
                under_way,
                is_blocked,
                round: PathRound::new(next),
                ..Self::new(class)
            };
        }
        (self.last_heard, self.timeouts) = (now, 0);
    }

    /// Returns whether an answer came after `at`.
    pub(super) fn was_alive_since(&self, at: LocalNs) -> bool {
        self.last_heard > at
    }

    /// Returns how long a fragment that left now would probably take: where one can choose, the
    /// shortest.
    pub(super) fn expected_delay(&self) -> Nanos {
        let trip = self.trip.map_or(Nanos::ZERO, |trip| trip.mean);
        Nanos(trip.0.saturating_mul(u64::from(self.under_way) + 1) / u64::from(self.window))
    }

    /// Records that a fragment leaves; returns its number on this path.
    pub(super) fn leave(&mut self, now: LocalNs) -> u64 {
        self.under_way += 1;
        self.round.was_full |= self.under_way >= self.window;
        if self.down_until.is_some() {
            self.down_until = Some(now + TRY_AGAIN);
        }
        self.next += 1;
        self.next - 1
    }

    /// Returns whether the fragment that left last is to be answered at once: a scavenger hears
    /// twice a round trip how long the queue is. Where its window is narrow, eight fragments that
    /// are answered together are a queue of their own, as long as the one that it may cause.
    pub(super) const fn wants_answer(&self) -> bool {
        let half = if self.window < 2 { 1 } else { self.window / 2 };
        self.scavenger.is_some()
            && half < ANSWER_EVERY
            && (self.next.is_multiple_of(half as u64) || self.under_way >= self.window)
    }

    /// Forgets a fragment that did not leave after all, or is not waited for any more.
    pub(super) fn forget(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Records that the fragment `number` of this path was answered.
    pub(super) fn answer(&mut self, now: LocalNs, number: u64) {
        self.forget();
        self.last_heard = now;
        self.answered = self.answered.max(number + 1);
        self.round.answered += 1;
        self.timeouts = 0;
        self.down_until = None;
    }

    /// Records that a fragment that left more than once was answered: which of its copies arrived,
    /// and on which path, nobody knows.
    pub(super) fn answer_repeated(&mut self) {
        self.forget();
        self.round.answered += 1;
    }

    /// Returns whether `number`, still unanswered, was overtaken by enough others to be lost.
    pub(super) const fn is_overtaken(&self, number: u64) -> bool {
        number + REORDERED_MAX < self.answered
    }

    /// Records that a fragment was lost.
    pub(super) fn packet_lost(&mut self) {
        self.forget();
        self.round.lost += 1;
    }

    /// Records a round trip that was measured at `now`.
    pub(super) fn measure(&mut self, now: LocalNs, trip: Nanos) {
        let trip = trip.max(Nanos(1));
        self.round.shortest = self.round.shortest.min(trip);
        if now >= self.half_over {
            let half = if self.scavenger.is_some() { BASE_FOR } else { SHORTEST_FOR };
            self.half_over = now + half;
            self.shortest = [Nanos::MAX, self.shortest[0]];
        }
        self.shortest[0] = self.shortest[0].min(trip);
        self.trip = Some(Smoothed::after(self.trip, trip));
    }

    /// Records that the network marked what it carried.
    pub(super) fn mark(&mut self) {
        self.round.is_marked = true;
    }

    /// Adapts the window when a round is over. A queue that keeps what arrives for `allowance` is
    /// no harm.
    pub(super) fn adapt(&mut self, now: LocalNs, allowance: Nanos) {
        if self.answered <= self.round.end {
            return;
        }
        let round = core::mem::replace(&mut self.round, PathRound::new(self.next));
        let base = self.shortest[0].min(self.shortest[1]);
        let total = round.answered + round.lost;
        let overflows = total >= ROUND_TOLD && round.lost > total / CHANCE
            || total >= ROUND_LEAST && round.lost > total / 2;
        if let Some(scavenger) = &mut self.scavenger {
            scavenger.round_over(
                now,
                &RoundDelay {
                    shortest: Some(round.shortest).filter(|shortest| *shortest != Nanos::MAX),
                    base,
                    target: allowance,
                    was_full: round.was_full,
                    overflows: overflows || round.is_marked,
                },
            );
            self.window = scavenger.fragments();
            return;
        }
        let target = base.0.saturating_add(allowance.0);
        let late = round.shortest != Nanos::MAX && round.shortest.0 > target;
        if late || overflows || round.is_marked {
            self.grows_fast = false;
            let share =
                if late { self.kept(round.shortest.0, target) } else { self.window * 7 / 10 };
            self.window = share.max(WINDOW_LEAST);
        } else if round.was_full {
            let more = if self.grows_fast { self.window / 2 } else { 1 + self.window / 64 };
            self.window = (self.window + more.max(1)).min(super::WINDOW);
        }
    }

    /// Returns what of the window is kept when its round trips take `trip` and should take
    /// `target`.
    fn kept(&self, trip: u64, target: u64) -> u32 {
        let kept = (u128::from(self.window) * u128::from(target) / u128::from(trip.max(1))) as u32;
        kept.max(self.window / 2)
    }

    /// Returns how long an answer is waited for, after `timeouts` without one.
    pub(super) fn reply_timeout(&self, longest_answer: Nanos) -> Nanos {
        let usual = self
            .trip
            .map_or(TIMEOUT_LEAST.0 * 5, |trip| trip.bound().0.saturating_add(longest_answer.0));
        let doubled = usual.max(TIMEOUT_LEAST.0).saturating_mul(1 << self.timeouts.min(8));
        Nanos(doubled.min(TIMEOUT_MOST.0.max(usual)))
    }

    /// Records that nothing was heard in time.
    pub(super) const fn time_out(&mut self) {
        self.timeouts += 1;
    }

    /// Returns whether that happened again and again.
    pub(super) const fn is_silent(&self) -> bool {
        self.timeouts >= DOWN_AFTER
    }

    /// Takes the path down: what is under way on it is to leave on others.
    pub(super) fn go_down(&mut self, now: LocalNs) {
        (self.down_until, self.asked, self.timeouts) = (Some(now + TRY_AGAIN), None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWANCE: Nanos = Nanos::from_micros(500);

    /// Runs a path of `rate` fragments a millisecond and 100 us; returns its windows, round by
    /// round.
    fn rounds(
        lane: &mut StreamPath,
        rate: u64,
        count: usize,
        lost_of: impl Fn(u64) -> bool,
    ) -> alloc::vec::Vec<u32> {
        let mut now = LocalNs(1);
        let mut windows = alloc::vec::Vec::new();
        for _ in 0..count {
            let sent: alloc::vec::Vec<u64> = (0..lane.room(now)).map(|_| lane.leave(now)).collect();
            for (place, number) in (1..).zip(&sent) {
                let trip = Nanos::from_micros(100).0.max(place * 1_000_000 / rate);
                if lost_of(*number) {
                    lane.packet_lost();
                } else {
                    lane.measure(now, Nanos(trip));
                    lane.answer(now, *number);
                }
            }
            now += Nanos::from_millis(1);
            lane.adapt(now, ALLOWANCE);
            windows.push(lane.window);
        }
        windows
    }

    #[test]
    fn adapt__grows_until_the_queue_stands_for_the_allowance_and_stays_near() {
        // The first of each round finds an empty queue here, so a round is late only by its first:
        // the model has no queue between rounds.
        let mut lane = StreamPath::new(Class::Bulk);
        let windows = rounds(&mut lane, 1_000, 40, |_| false);
        assert!(windows.windows(2).all(|pair| pair[1] >= pair[0]));
        assert_eq!(*windows.last().expect("rounds"), super::super::WINDOW);
    }

    #[test]
    fn adapt__a_round_that_was_late_as_a_whole_shrinks_the_window_in_proportion() {
        let mut lane = StreamPath::new(Class::Bulk);
        lane.measure(LocalNs(1), Nanos::from_micros(100));
        lane.window = 100;
        for _ in 0..100 {
            let number = lane.leave(LocalNs(2));
            lane.measure(LocalNs(2), Nanos::from_micros(800));
            lane.answer(LocalNs(2), number);
        }
        lane.round.shortest = Nanos::from_micros(800);
        lane.adapt(LocalNs(1), ALLOWANCE);
        assert_eq!(lane.window, 75, "600 of 800 us");
    }

    #[test]
    fn adapt__one_loss_in_a_hundred_is_chance_and_one_in_ten_is_not() {
        let mut rare = StreamPath::new(Class::Bulk);
        let windows = rounds(&mut rare, 10_000, 30, |number| number % 100 == 99);
        assert_eq!(*windows.last().expect("rounds"), super::super::WINDOW);
        let mut often = StreamPath::new(Class::Bulk);
        let windows = rounds(&mut often, 10_000, 30, |number| number % 10 == 9);
        assert!(windows.iter().all(|window| *window < 64), "{windows:?}");
    }

    #[test]
    fn adapt__most_of_a_short_round_lost_shrinks_the_window_to_what_arrives() {
        let mut lane = StreamPath::new(Class::Bulk);
        let windows = rounds(&mut lane, 10_000, 12, |number| number % 5 != 0);
        assert!(windows.last().is_some_and(|window| *window < WINDOW_FIRST), "{windows:?}");
    }

    #[test]
    fn adapt__a_window_that_was_never_full_does_not_grow() {
        let mut lane = StreamPath::new(Class::Bulk);
        for _ in 0..50 {
            let number = lane.leave(LocalNs(1));
            lane.measure(LocalNs(1), Nanos::from_micros(100));
            lane.answer(LocalNs(1), number);
            lane.adapt(LocalNs(1), ALLOWANCE);
        }
        assert_eq!(lane.window, WINDOW_FIRST);
    }

    #[test]
    fn hear__a_path_that_was_down_begins_anew_with_numbers_that_go_on() {
        let mut lane = StreamPath::new(Class::Bulk);
        let number = lane.leave(LocalNs(1));
        lane.measure(LocalNs(1), Nanos::from_micros(100));
        lane.window = 99;
        lane.answer(LocalNs(1), number);
        lane.go_down(LocalNs(2));
        assert_eq!((lane.room(LocalNs(2)), lane.room(LocalNs(2) + TRY_AGAIN)), (0, 1));
        lane.ask(LocalNs(2) + TRY_AGAIN);
        lane.reply_received(LocalNs(3) + TRY_AGAIN, ProbeReply::Yes);
        assert_eq!(
            (lane.is_down(), lane.room(LocalNs(3)), lane.expected_delay()),
            (false, WINDOW_FIRST, Nanos::ZERO)
        );
        assert_eq!(lane.leave(LocalNs(3)), number + 1);
    }

    #[test]
    fn timeout__doubles_and_has_an_end() {
        let mut lane = StreamPath::new(Class::Bulk);
        lane.measure(LocalNs(1), Nanos::from_micros(100));
        let first = lane.reply_timeout(Nanos::ZERO);
        assert_eq!(first, TIMEOUT_LEAST);
        lane.time_out();
        assert_eq!(lane.reply_timeout(Nanos::ZERO), first.times(2));
        (0..90).for_each(|_| lane.time_out());
        assert_eq!(lane.reply_timeout(Nanos::ZERO), TIMEOUT_MOST);
    }

    #[test]
    fn hear__what_left_before_the_first_question_is_lost_when_one_is_answered() {
        let mut lane = StreamPath::new(Class::Bulk);
        let numbers: [u64; 4] = core::array::from_fn(|i| {
            if i >= 2 {
                lane.ask(LocalNs(1));
            }
            lane.leave(LocalNs(1))
        });
        lane.reply_received(LocalNs(2), ProbeReply::No);
        assert!(numbers.iter().all(|number| !lane.is_overtaken(*number)));
        lane.reply_received(LocalNs(2), ProbeReply::Yes);
        assert_eq!(numbers.map(|number| lane.is_overtaken(number)), [true, true, false, false]);
    }

    #[test]
    fn is_overtaken__by_three_later_ones() {
        let mut lane = StreamPath::new(Class::Bulk);
        let numbers: [u64; 5] = core::array::from_fn(|_| lane.leave(LocalNs(1)));
        lane.answer(LocalNs(1), numbers[2]);
        assert!(!lane.is_overtaken(numbers[0]));
        lane.answer(LocalNs(1), numbers[3]);
        assert!(lane.is_overtaken(numbers[0]) && !lane.is_overtaken(numbers[1]));
    }
}
