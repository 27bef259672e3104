//! Receiver-driven grants: a builder lets in K inputs at a time, in an order shifted by its own
//! place.
//!
//! # Model
//! A builder's timeslices are *rows*, counted from zero. It grants the contributions of a row to
//! the inputs one after the other, beginning with the input at its own place; when one has landed,
//! the next is granted. As every builder begins elsewhere and all go on at the same pace, at most
//! about K inputs send to a builder and an input sends to about K builders at any time: the linear
//! shift, kept in phase by arrivals instead of clocks.
//!
//! K counts contributions of the mean length: what is open is counted in bytes, each grant as long
//! as its input's contributions have been, so that many short ones are let in together and few long
//! ones; yet never fewer than three quarters of K, since one long one alone leaves the link idle
//! between it and the next.
//!
//! A builder gives no turn further than two windows behind the oldest grant that is open, so that
//! an input that is a little slower than the others sets the pace: it has a few contributions to
//! send at any time and not one for every builder, and no other one leads it by a row.
//!
//! An input that does not answer keeps its grant and is *behind*: its turns in later rows are kept
//! for it, and it gets them as soon as it answers. A grant that takes far longer than usual no
//! longer counts, neither as one of the K nor as the oldest, so that a straggler does not stop its
//! builder. The rows bound how far others go on without it.
//!
//! # Source
//! ALICE's transfer tokens and LHCb's shift, without a centre and for each contribution instead of
//! each timeslice.
//!
//! # Invariants
//! I1. Of one input at most `K / inputs`, rounded up, and one more grants are open.
//! I2. No grant is given for a row further ahead of the oldest that is not complete than [`Slack`]
//!     allows.
//! I3. From the oldest grant that counts and has not landed on, fewer than [`REACH`] windows have
//!     been granted when one more is.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::slack::Slack;
use super::window::{Pacemaker, Window};
use super::{Cause, Choice, Directing, Sending, TurnView};
use crate::base::{LocalNs, Nanos};

/// A grant that takes this many times the usual wait no longer counts. Within it lies what queues
/// of K contributions explain, and full cables between parts of a network, over which some of the
/// contributions come. Of 300 and of 400 inputs and as many builders, in turn on the hosts of two
/// and three groups of `aries`, with turns that alternate between groups, 4, 6 and 16 carry 0.73,
/// 0.60 and 0.95, and 0.43, 0.96 and 0.92 of raw.
const OVERDUE: u64 = 16;
/// Grants that are open whatever their length, in quarters of K. Of 32 inputs, four of which send
/// 64 times as much (512 KiB) as the others, to four builders on `aries`, none, a third, a half,
/// three quarters and all of K carry 0.64, 0.81, 0.78, 0.84 and 0.83 of raw.
const FEW_OF_FOUR: u32 = 3;
/// Windows that are granted from the oldest open grant on. 32 inputs that differ by up to 2 % and
/// 32 builders on `aries`, interfaces of 3.5 GB/s, have their timeslices complete after 1.03, 1.08,
/// 1.15, 1.24 and 1.47 rotations with 1, 1.5, 2, 3 and no bound, at one throughput. Where hosts are
/// away for 20 contributions now and then, they carry 0.93, 0.96, 0.97, 0.99 and 0.99 of raw.
const REACH: u64 = 2;
/// The usual wait moves by this part of each new one (as the smoothed round trip of TCP, RFC 6298).
const SMOOTHING: u64 = 8;

/// An input's side: of the grants it can serve, the one whose turn came first.
///
/// In the shift, input `i` is the `(i - c) mod N`-th one of builder `c` in each row. An input that
/// serves grants in the order in which they came keeps whatever disorder one delay has made; who
/// serves the earliest turn first leads everybody back into the shift.
#[derive(Debug)]
pub(in crate::timeslice) struct TokenInput {
    place: usize,
    inputs: usize,
    /// Builders with open grants, and how many.
    open: BTreeMap<usize, u32>,
    chosen: usize,
}

impl TokenInput {
    /// Creates a `TokenInput` for the input at `place` of `inputs`.
    pub(in crate::timeslice) const fn new(place: usize, inputs: usize) -> Self {
        Self { place, inputs, open: BTreeMap::new(), chosen: 0 }
    }

    /// Returns the turn of the next contribution to the builder at `place`: its row, and where this
    /// input stands in it.
    fn turn(&self, place: usize, view: &dyn TurnView) -> (u64, usize) {
        let row = view.turn_of(place).map_or(u64::MAX, |turn| view.round_of(turn));
        (row, (self.place + self.inputs - place % self.inputs) % self.inputs)
    }
}

impl Sending for TokenInput {
    fn choose(&mut self, _now: LocalNs, view: &dyn TurnView) -> Choice {
        let mut cause = if self.open.is_empty() { Cause::NoCredit } else { Cause::NoMicroslices };
        let mut best = None;
        for place in self.open.keys().copied() {
            match view.may_send(place) {
                Ok(()) => {
                    let turn = self.turn(place, view);
                    if best.is_none_or(|(earliest, _)| turn < earliest) {
                        best = Some((turn, place));
                    }
                }
                // A grant for a timeslice that the source does not have yet does not hold up the
                // others.
                Err(Cause::NoMicroslices) => {}
                Err(other) => cause = other,
            }
        }
        match best {
            Some((_, place)) => {
                self.chosen = place;
                Choice::Post(place)
            }
            None => Choice::Blocked(cause),
        }
    }

    fn posted(&mut self, _now: LocalNs, _turn: u64) {
        if let Entry::Occupied(mut open) = self.open.entry(self.chosen) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
    }

    fn granted(&mut self, place: usize, count: u32) {
        let open = self.open.entry(place).or_default();
        *open = open.saturating_add(count);
    }

    fn builder_left(&mut self, place: usize) {
        self.open.remove(&place);
    }
}

/// What a builder knows of one input.
#[derive(Clone, Copy, Debug, Default)]
struct InputGrants {
    /// Grants that have not landed.
    open: u32,
    /// Grants that have.
    landed: u64,
    /// Bytes of its contributions, smoothed; zero before the first.
    size: u64,
    /// Turns that it missed.
    backlog: u32,
    /// It stands among those that catch up.
    catches_up: bool,
    /// It has no turns in rows before this one; none ever while it is out.
    begins: Option<u64>,
}

/// A grant that has not become too old.
#[derive(Clone, Copy, Debug)]
struct OpenGrant {
    at: LocalNs,
    place: usize,
    /// Which one of its input's.
    number: u64,
    /// How long it was expected to be.
    bytes: u64,
}

/// A builder's side.
#[derive(Debug)]
pub(in crate::timeslice) struct TokenBuilder {
    shift: usize,
    pacemaker: Pacemaker,
    slack: Slack,
    inputs: Vec<InputGrants>,
    /// Inputs whose contributions' length is known, and the sum of these.
    known: u64,
    sizes: u64,
    /// Open grants that count, and their bytes.
    counted: u32,
    bytes: u64,
    /// From the oldest one on that is open and counts; those behind it may have landed.
    open_grants: VecDeque<OpenGrant>,
    /// The bytes of these.
    reached: u64,
    row: u64,
    step: usize,
    /// Inputs that answered and have turns to catch up with.
    catching_up: VecDeque<usize>,
    usual_wait: Nanos,
}

impl TokenBuilder {
    /// Creates a `TokenBuilder` for the builder at `place` with this many inputs.
    pub(in crate::timeslice) fn new(place: usize, inputs: usize, window: Window) -> Self {
        Self {
            shift: place % inputs,
            pacemaker: Pacemaker::new(window, inputs),
            slack: Slack::new(),
            inputs: vec![InputGrants { begins: Some(0), ..InputGrants::default() }; inputs],
            known: 0,
            sizes: 0,
            counted: 0,
            bytes: 0,
            open_grants: VecDeque::new(),
            reached: 0,
            row: 0,
            step: 0,
            catching_up: VecDeque::new(),
            usual_wait: Nanos(0),
        }
    }

    /// Grants that one input may have open: its share of the window, and one by which it catches
    /// up. Without that an input that once was late stays so, since its turn always finds the grant
    /// of the turn before still open: 6 inputs on `aries` carry 0.80 of raw without it, 1.00 with
    /// it.
    fn open_max(&self) -> u32 {
        self.pacemaker.window().div_ceil(self.inputs.len() as u32) + 1
    }

    /// Returns the mean length of one contribution of each input; one byte while nothing is known.
    fn mean_size(&self) -> u64 {
        self.sizes.checked_div(self.known).map_or(1, |mean| mean.max(1))
    }

    /// Grants that are too old no longer count.
    fn forget_overdue(&mut self, now: LocalNs) {
        while let Some(given) = self.open_grants.front().copied() {
            let landed = given.number < self.inputs[given.place].landed;
            if !landed
                && (self.usual_wait == Nanos(0)
                    || now.since(given.at) < self.usual_wait.times(OVERDUE))
            {
                break;
            }
            self.open_grants.pop_front();
            self.reached -= given.bytes;
            if !landed {
                self.counted -= 1;
                self.bytes -= given.bytes;
            }
        }
    }

    /// Learns how many bytes a contribution of the input at `place` had.
    fn learn_size(&mut self, place: usize, bytes: u64) {
        if self.known == 0 {
            // A grant from before anything was known counts as this one.
            self.open_grants.iter_mut().for_each(|given| given.bytes = bytes);
            self.reached = bytes * self.open_grants.len() as u64;
            self.bytes = self.reached;
        }
        let input = &mut self.inputs[place];
        let before = input.size;
        if before == 0 {
            self.known += 1;
            input.size = bytes;
        } else {
            input.size = (before - before / SMOOTHING + bytes / SMOOTHING).max(1);
        }
        self.sizes = self.sizes - before + input.size;
    }

    /// Returns the input whose turn it is.
    fn next_in_turn(&mut self, oldest: u64) -> Option<usize> {
        let open_max = self.open_max();
        if let Some(place) = self.catching_up.pop_front() {
            let input = &mut self.inputs[place];
            (input.backlog, input.catches_up) = (input.backlog - 1, false);
            return Some(place);
        }
        while self.slack.allows(self.row, oldest) {
            let place = (self.shift + self.step) % self.inputs.len();
            self.step += 1;
            if self.step == self.inputs.len() {
                (self.row, self.step) = (self.row + 1, 0);
            }
            let row = if self.step == 0 { self.row - 1 } else { self.row };
            let input = &mut self.inputs[place];
            if input.begins.is_none_or(|begins| row < begins) {
                continue;
            }
            if input.open < open_max && input.backlog == 0 {
                return Some(place);
            }
            input.backlog += 1;
        }
        None
    }
}

impl Directing for TokenBuilder {
    fn grant(&mut self, now: LocalNs, oldest: u64) -> Option<usize> {
        self.forget_overdue(now);
        let mean = self.mean_size();
        let window = self.pacemaker.window();
        let few = self.counted < window * FEW_OF_FOUR / 4;
        let reach = u64::from(window) * REACH;
        let is_behind = self.open_grants.len() as u64 >= reach && self.reached >= mean * reach;
        if is_behind || self.bytes >= mean * u64::from(window) && !few {
            return None;
        }
        let place = self.next_in_turn(oldest)?;
        let input = &mut self.inputs[place];
        let bytes = if input.size == 0 { mean } else { input.size };
        self.open_grants.push_back(OpenGrant {
            at: now,
            place,
            number: input.landed + u64::from(input.open),
            bytes,
        });
        input.open += 1;
        self.counted += 1;
        self.bytes += bytes;
        self.reached += bytes;
        Some(place)
    }

    fn landed(&mut self, now: LocalNs, place: usize, bytes: u32) {
        let bytes = u64::from(bytes).max(1);
        if self.inputs[place].open == 0 {
            return;
        }
        self.learn_size(place, bytes);
        let mean = self.mean_size();
        let input = &mut self.inputs[place];
        let number = input.landed;
        (input.open, input.landed) = (input.open - 1, number + 1);
        if input.backlog > 0 && !input.catches_up {
            input.catches_up = true;
            self.catching_up.push_back(place);
        }
        // A grant that is not found no longer counted: it must not be subtracted twice.
        let given =
            self.open_grants.iter().find(|given| given.place == place && given.number == number);
        if let Some(&OpenGrant { at, bytes: expected, .. }) = given {
            self.counted -= 1;
            self.bytes -= expected;
            let waited = now.since(at);
            let usual = if self.usual_wait == Nanos(0) { waited.0 } else { self.usual_wait.0 };
            self.usual_wait = Nanos((usual - usual / SMOOTHING + waited.0 / SMOOTHING).max(1));
            // The shorter ones have a shorter floor, against which longer ones would always seem to
            // wait.
            if bytes >= mean {
                self.pacemaker.landed(waited);
            }
        }
    }

    fn input_left(&mut self, place: usize) {
        let input = core::mem::take(&mut self.inputs[place]);
        for given in self
            .open_grants
            .iter()
            .filter(|given| given.place == place && given.number >= input.landed)
        {
            self.counted -= 1;
            self.bytes -= given.bytes;
        }
        self.open_grants.retain(|given| given.place != place);
        self.reached = self.open_grants.iter().map(|given| given.bytes).sum();
        self.known -= u64::from(input.size > 0);
        self.sizes -= input.size;
        self.catching_up.retain(|other| *other != place);
    }

    fn input_joined(&mut self, place: usize, row: u64) {
        // Rows that have been let in already are owed to it.
        let turn = (place + self.inputs.len() - self.shift) % self.inputs.len();
        let passed = self.row + u64::from(turn < self.step);
        let missed = u32::try_from(passed.saturating_sub(row)).unwrap_or(u32::MAX);
        self.inputs[place] = InputGrants {
            backlog: missed,
            catches_up: missed > 0,
            begins: Some(row),
            ..InputGrants::default()
        };
        if missed > 0 {
            self.catching_up.push_back(place);
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let first = self.open_grants.front().filter(|_| self.usual_wait > Nanos(0))?;
        Some(first.at + self.usual_wait.times(OVERDUE))
    }

    fn window(&self) -> Option<u32> {
        Some(self.pacemaker.found())
    }
}

#[cfg(test)]
mod tests {
    use super::super::slack::ROWS_MOST;
    use super::*;

    const FIXED_TWO: Window = Window::fixed(2);

    fn drain(token: &mut TokenBuilder, now: u64, oldest: u64) -> Vec<usize> {
        core::iter::from_fn(|| token.grant(LocalNs(now), oldest)).collect()
    }

    #[test]
    fn grant__goes_round_from_the_builders_own_place() {
        let mut token = TokenBuilder::new(2, 4, FIXED_TWO);
        assert_eq!(drain(&mut token, 0, 0), [2, 3]);
        token.landed(LocalNs(10), 2, 100);
        assert_eq!(drain(&mut token, 10, 0), [0]);
        token.landed(LocalNs(20), 3, 100);
        token.landed(LocalNs(20), 0, 100);
        assert_eq!(drain(&mut token, 20, 0), [1, 2]);
    }

    #[test]
    fn grant__a_straggler_is_owed_and_does_not_stop_its_builder() {
        let mut token = TokenBuilder::new(0, 3, FIXED_TWO);
        let mut order = drain(&mut token, 0, 0);
        // Input 1 never answers; the others do after 10 ns each.
        for now in (10..500).step_by(10) {
            for place in [0, 2] {
                if token.inputs[place].open > 0 {
                    token.landed(LocalNs(now), place, 100);
                }
            }
            order.extend(drain(&mut token, now, 0));
        }
        assert_eq!(
            order.iter().filter(|place| **place == 1).count(),
            2,
            "its share and one: {order:?}"
        );
        assert_eq!(
            order.iter().filter(|place| **place == 0).count() as u64,
            ROWS_MOST,
            "no row beyond the bound"
        );
        assert_eq!(u64::from(token.inputs[1].backlog), ROWS_MOST - 2);
        token.landed(LocalNs(600), 1, 100);
        assert_eq!(token.grant(LocalNs(600), 0), Some(1), "it catches up first");
    }

    #[test]
    fn grant__the_oldest_open_one_is_at_most_two_windows_behind() {
        let mut token = TokenBuilder::new(0, 20, FIXED_TWO);
        let mut order = drain(&mut token, 0, 0);
        // Input 0 does not answer; the others do at once.
        for place in 1..20 {
            if token.inputs[place].open > 0 {
                token.landed(LocalNs(10), place, 100);
                order.extend(drain(&mut token, 10, 0));
            }
        }
        assert_eq!(order, [0, 1, 2, 3], "two windows of two");
        token.landed(LocalNs(11), 0, 100);
        assert_eq!(drain(&mut token, 11, 0), [4, 5], "it goes on when the oldest one has landed");
        assert_eq!(drain(&mut token, 1_000, 0), [6, 7], "and without those that take far too long");
    }

    /// Input 0 sends 450 bytes, seven others 50: a mean of 100, so that 400 may be open, and at
    /// least three grants.
    #[test]
    fn grant__many_short_ones_are_let_in_together_and_few_long_ones() {
        let mut token = TokenBuilder::new(0, 8, Window::fixed(4));
        let size = |place| if place == 0 { 450 } else { 50 };
        assert_eq!(drain(&mut token, 0, 0), [0, 1, 2, 3], "nothing is known of lengths");
        let mut token = TokenBuilder::new(0, 8, Window::fixed(4));
        (0..8).for_each(|place| token.learn_size(place, size(place)));
        assert_eq!(
            drain(&mut token, 20, 0),
            [0, 1, 2],
            "the long one and as many as there must be"
        );
        token.landed(LocalNs(30), 0, 450);
        assert_eq!(
            drain(&mut token, 30, 0),
            [3, 4, 5, 6, 7, 0],
            "short ones until the next long one"
        );
    }

    #[test]
    fn grant__of_few_inputs_more_than_one_is_open_each() {
        let mut token = TokenBuilder::new(0, 1, Window::fixed(3));
        assert_eq!(drain(&mut token, 0, 0), [0, 0, 0]);
        token.landed(LocalNs(5), 0, 100);
        assert_eq!(drain(&mut token, 5, 1), [0]);
    }
}
