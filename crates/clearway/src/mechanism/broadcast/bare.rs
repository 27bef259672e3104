//! What a broadcast is compared with: one datagram to all, one answer of each, and nothing that makes sure of either.

use clearway_proto::base::{Class, GroupId, LocalNs, Nanos, Rank};
use clearway_proto::wire::{Arrival, Destination, Engine, Input, More, Out, Span};

/// What is waited for is lost.
const LOST: Nanos = Nanos::from_millis(20);
/// Attempts after which the group is taken to reach nobody: each peer gets a datagram of its own from then on.
const ATTEMPTS: u32 = 10;
/// Bytes of a datagram: a number, as long as the shortest object that is measured.
const HEAD: usize = 4;

/// One end of it.
#[derive(Debug)]
pub(super) struct Bare {
    rank: Rank,
    ranks: u32,
    group: Option<GroupId>,
    rounds: u32,
    number: u32,
    answers: Vec<bool>,
    attempts: u32,
    sent: LocalNs,
    /// When each round began and ended.
    pub(super) times: Vec<[LocalNs; 2]>,
}

/// All rounds are over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over;

/// Begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin;

impl Bare {
    pub(super) fn new(rank: Rank, ranks: u32, group: Option<GroupId>, rounds: u32) -> Self {
        Self {
            rank,
            ranks,
            group,
            rounds,
            number: 0,
            answers: Vec::new(),
            attempts: 0,
            sent: LocalNs(0),
            times: Vec::new(),
        }
    }

    fn ask(&mut self, now: LocalNs, out: &mut Out<Over>) {
        let head = self.number.to_le_bytes();
        let mut send = |to| out.send(to, Class::Control, &head, Span::EMPTY, None);
        match self.group {
            Some(group) => send(Destination::Group(group)),
            None => (1..self.ranks).for_each(|rank| send(Destination::One(Rank(rank)))),
        }
        (self.sent, self.attempts) = (now, self.attempts + 1);
        if self.attempts == ATTEMPTS {
            self.group = None;
        }
    }

    fn next(&mut self, now: LocalNs, out: &mut Out<Over>) {
        if self.number == self.rounds {
            return out.notify(Over);
        }
        self.number += 1;
        self.attempts = 0;
        self.answers = vec![false; self.ranks as usize];
        self.times.push([now; 2]);
        self.ask(now, out);
    }

    fn heard(&mut self, from: Rank, number: u32, now: LocalNs, out: &mut Out<Over>) {
        if self.rank != Rank(0) {
            return out.send(Destination::One(from), Class::Control, &number.to_le_bytes(), Span::EMPTY, None);
        }
        if number != self.number || !self.waits() {
            return;
        }
        if let Some(answer) = self.answers.get_mut(from.index()) {
            *answer = true;
        }
        if !self.waits() {
            if let Some(times) = self.times.last_mut() {
                times[1] = now;
            }
            self.next(now, out);
        }
    }

    fn waits(&self) -> bool {
        self.answers.iter().skip(1).any(|answer| !answer)
    }
}

impl Engine for Bare {
    type Command = Begin;
    type Event = Over;

    fn input(&mut self, now: LocalNs, input: Input<'_, Begin>, out: &mut Out<Over>) -> More {
        match input {
            Input::Command(Begin) => self.next(now, out),
            Input::Arrival(Arrival::Datagram(datagram)) => {
                // What is left of the cast before is longer.
                if let Ok(number) = <[u8; HEAD]>::try_from(datagram.head) {
                    self.heard(datagram.from, u32::from_le_bytes(number), now, out);
                }
            }
            Input::Tick if self.deadline().is_some_and(|at| at <= now) => self.ask(now, out),
            _ => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.waits().then(|| self.sent + LOST)
    }
}
