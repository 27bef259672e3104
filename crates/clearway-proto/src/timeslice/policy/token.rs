//! Receiver-driven grants: a builder lets in K inputs at a time, in an order shifted by its own place.
//!
//! # Model
//! A builder's timeslices are *rows*, counted from zero. It grants the contributions of a row to the inputs one after the
//! other, beginning with the input at its own place; when one has landed, the next is granted. As every builder begins
//! elsewhere and all go on at the same pace, at most about K inputs send to a builder and an input sends to about K builders
//! at any time: the linear shift, kept in phase by arrivals instead of clocks.
//!
//! An input that does not answer keeps its grant and is *owed*: its turns in later rows are kept for it, and it gets them as soon
//! as it answers. A grant that takes far longer than usual no longer counts as one of the K, so that a straggler does not
//! stop its builder. The rows bound how far others go on without it.
//!
//! # Source
//! ALICE's transfer tokens and LHCb's shift, without a centre and for each contribution instead of each timeslice.
//!
//! # Invariants
//! I1. Of one input at most `K / inputs`, rounded up, grants are open.
//! I2. No grant is given for a row further than [`ROWS_AHEAD`] behind the oldest that is not complete.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::window::{Pacemaker, Window};
use super::{Cause, Choice, Directing, Sending};
use crate::base::{LocalNs, Nanos};
use crate::timeslice::input::Connections;

/// Rows that are open at a time: an input that is away for that many rotations stops its builders. Eight contributions of 64 KiB in
/// a ring of 32 MiB are 1.6 % of it, which is what our builders are to keep below.
const ROWS_AHEAD: u64 = 8;
/// A grant that takes so many times the usual wait no longer counts. Within it lies what queues of K contributions explain.
const OVERDUE: u64 = 4;
/// The usual wait moves by this part of each new one (as the smoothed round trip of TCP, RFC 6298).
const SMOOTHING: u64 = 8;

/// An input's side: of the grants it can serve, the one whose turn came first.
///
/// In the shift, input `i` is the `(i - c) mod N`-th one of builder `c` in each row. Who serves grants in the order in which they
/// came keeps whatever disorder one delay has made; who serves the earliest turn first leads everybody back into the shift.
#[derive(Debug)]
pub(in crate::timeslice) struct Granted {
    place: usize,
    inputs: usize,
    /// Builders with open grants, and how many.
    open: BTreeMap<usize, u32>,
    chosen: usize,
}

impl Granted {
    /// For the input at `place` of `inputs`.
    pub(in crate::timeslice) const fn new(place: usize, inputs: usize) -> Self {
        Self { place, inputs, open: BTreeMap::new(), chosen: 0 }
    }

    /// The turn of the next contribution to the builder at `place`: its row, and where this input stands in it.
    fn turn(&self, place: usize, connections: &Connections) -> (u64, usize) {
        let row = connections.next_of(place) / connections.builders() as u64;
        (row, (self.place + self.inputs - place % self.inputs) % self.inputs)
    }
}

impl Sending for Granted {
    fn choose(&mut self, _now: LocalNs, connections: &Connections) -> Choice {
        let mut cause = if self.open.is_empty() { Cause::NoCredit } else { Cause::NoMicroslices };
        let mut best = None;
        for place in self.open.keys().copied() {
            match connections.may_send(place) {
                Ok(()) => {
                    let turn = self.turn(place, connections);
                    if best.is_none_or(|(earliest, _)| turn < earliest) {
                        best = Some((turn, place));
                    }
                }
                // A grant for a timeslice that the source does not have yet does not hold up the others.
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

    fn posted(&mut self, _now: LocalNs, _timeslice: u64) {
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
}

/// What a builder knows of one input.
#[derive(Clone, Copy, Debug, Default)]
struct Debtor {
    /// Grants that have not landed.
    open: u32,
    /// Of these, how many no longer count.
    overdue: u32,
    /// Turns that it missed.
    owed: u32,
    /// It stands among those that catch up.
    catches_up: bool,
}

/// A grant that has not become too old.
#[derive(Clone, Copy, Debug)]
struct Given {
    at: LocalNs,
    place: usize,
    /// Which one of its input's.
    number: u64,
}

/// A builder's side.
#[derive(Debug)]
pub(in crate::timeslice) struct Token {
    shift: usize,
    pacemaker: Pacemaker,
    debtors: Vec<Debtor>,
    /// Of each input: grants that have landed.
    landed: Vec<u64>,
    /// Open grants that count.
    counted: u32,
    given: VecDeque<Given>,
    row: u64,
    step: usize,
    /// Inputs that answered and have turns to catch up with.
    catching_up: VecDeque<usize>,
    usual_wait: Nanos,
}

impl Token {
    /// For the builder at `place` with so many inputs.
    pub(in crate::timeslice) fn new(place: usize, inputs: usize, window: Window) -> Self {
        Self {
            shift: place % inputs,
            pacemaker: Pacemaker::new(window, inputs),
            debtors: vec![Debtor::default(); inputs],
            landed: vec![0; inputs],
            counted: 0,
            given: VecDeque::new(),
            row: 0,
            step: 0,
            catching_up: VecDeque::new(),
            usual_wait: Nanos(0),
        }
    }

    fn open_max(&self) -> u32 {
        self.pacemaker.window().div_ceil(self.debtors.len() as u32).max(1)
    }

    /// Grants that are too old no longer count.
    fn forget_overdue(&mut self, now: LocalNs) {
        while let Some(given) = self.given.front().copied() {
            let landed = given.number < self.landed[given.place];
            if !landed && (self.usual_wait == Nanos(0) || now.since(given.at) < self.usual_wait.times(OVERDUE)) {
                break;
            }
            self.given.pop_front();
            if !landed {
                self.debtors[given.place].overdue += 1;
                self.counted -= 1;
            }
        }
    }

    /// Whose turn it is.
    fn next_in_turn(&mut self, oldest: u64) -> Option<usize> {
        let open_max = self.open_max();
        if let Some(place) = self.catching_up.pop_front() {
            let debtor = &mut self.debtors[place];
            (debtor.owed, debtor.catches_up) = (debtor.owed - 1, false);
            return Some(place);
        }
        while self.row < oldest + ROWS_AHEAD {
            let place = (self.shift + self.step) % self.debtors.len();
            self.step += 1;
            if self.step == self.debtors.len() {
                (self.row, self.step) = (self.row + 1, 0);
            }
            let debtor = &mut self.debtors[place];
            if debtor.open < open_max && debtor.owed == 0 {
                return Some(place);
            }
            debtor.owed += 1;
        }
        None
    }
}

impl Directing for Token {
    fn grant(&mut self, now: LocalNs, oldest: u64) -> Option<usize> {
        self.forget_overdue(now);
        if self.counted >= self.pacemaker.window() {
            return None;
        }
        let place = self.next_in_turn(oldest)?;
        let number = self.landed[place] + u64::from(self.debtors[place].open);
        self.given.push_back(Given { at: now, place, number });
        self.debtors[place].open += 1;
        self.counted += 1;
        Some(place)
    }

    fn landed(&mut self, now: LocalNs, place: usize) {
        let debtor = &mut self.debtors[place];
        if debtor.open == 0 {
            return;
        }
        debtor.open -= 1;
        if debtor.overdue > 0 {
            debtor.overdue -= 1;
        } else {
            self.counted -= 1;
        }
        if debtor.owed > 0 && !debtor.catches_up {
            debtor.catches_up = true;
            self.catching_up.push_back(place);
        }
        let number = self.landed[place];
        self.landed[place] += 1;
        let given = self.given.iter().find(|given| given.place == place && given.number == number);
        if let Some(waited) = given.map(|given| now.since(given.at)) {
            let usual = if self.usual_wait == Nanos(0) { waited.0 } else { self.usual_wait.0 };
            self.usual_wait = Nanos((usual - usual / SMOOTHING + waited.0 / SMOOTHING).max(1));
            self.pacemaker.landed(waited);
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let first = self.given.front().filter(|_| self.usual_wait > Nanos(0))?;
        Some(first.at + self.usual_wait.times(OVERDUE))
    }

    fn window(&self) -> Option<u32> {
        Some(self.pacemaker.found())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED_TWO: Window = Window::fixed(2);

    fn drain(token: &mut Token, now: u64, oldest: u64) -> Vec<usize> {
        core::iter::from_fn(|| token.grant(LocalNs(now), oldest)).collect()
    }

    #[test]
    fn grant__goes_round_from_the_builders_own_place() {
        let mut token = Token::new(2, 4, FIXED_TWO);
        assert_eq!(drain(&mut token, 0, 0), [2, 3]);
        token.landed(LocalNs(10), 2);
        assert_eq!(drain(&mut token, 10, 0), [0]);
        token.landed(LocalNs(20), 3);
        token.landed(LocalNs(20), 0);
        assert_eq!(drain(&mut token, 20, 0), [1, 2]);
    }

    #[test]
    fn grant__a_straggler_is_owed_and_does_not_stop_its_builder() {
        let mut token = Token::new(0, 3, FIXED_TWO);
        let mut order = drain(&mut token, 0, 0);
        // Input 1 never answers; the others do after 10 ns each.
        for now in (10..500).step_by(10) {
            for place in [0, 2] {
                if token.debtors[place].open > 0 {
                    token.landed(LocalNs(now), place);
                }
            }
            order.extend(drain(&mut token, now, 0));
        }
        assert_eq!(order.iter().filter(|place| **place == 1).count(), 1, "one open grant: {order:?}");
        assert_eq!(order.iter().filter(|place| **place == 0).count() as u64, ROWS_AHEAD, "no row beyond the bound");
        assert_eq!(u64::from(token.debtors[1].owed), ROWS_AHEAD - 1);
        token.landed(LocalNs(600), 1);
        assert_eq!(token.grant(LocalNs(600), 0), Some(1), "it catches up first");
    }

    #[test]
    fn grant__of_few_inputs_more_than_one_is_open_each() {
        let mut token = Token::new(0, 1, Window::fixed(3));
        assert_eq!(drain(&mut token, 0, 0), [0, 0, 0]);
        token.landed(LocalNs(5), 0);
        assert_eq!(drain(&mut token, 5, 1), [0]);
    }
}
