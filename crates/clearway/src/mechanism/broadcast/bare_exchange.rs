//! What a broadcast is compared with: one datagram to all, one answer of each, and nothing that
//! makes sure of either.

use clearway_proto::base::{Class, GroupId, LocalNs, Nanos, Rank};
use clearway_proto::wire::{Arrival, Destination, Engine, Input, More, Out, Span};

/// What is waited for is lost.
const LOST: Nanos = Nanos::from_millis(20);
/// Attempts after which the group is taken to reach nobody: each peer gets a datagram of its own
/// from then on.
const ATTEMPTS: u32 = 10;
/// Bytes of a datagram: a number, as long as the shortest object that is measured.
const HEAD: usize = 4;

/// One end of it.
#[derive(Debug)]
pub(super) struct BareExchange {
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
pub(super) struct ExchangeDone;

/// Begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartExchange;

impl BareExchange {
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

    fn send_round(&mut self, now: LocalNs, out: &mut Out<ExchangeDone>) {
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

    fn next(&mut self, now: LocalNs, out: &mut Out<ExchangeDone>) {
        if self.number == self.rounds {
            return out.notify(ExchangeDone);
        }
        self.number += 1;
        self.attempts = 0;
        self.answers = vec![false; self.ranks as usize];
        self.times.push([now; 2]);
        self.send_round(now, out);
    }

    fn answer_received(
        &mut self,
        from: Rank,
        number: u32,
        now: LocalNs,
        out: &mut Out<ExchangeDone>,
    ) {
        if self.rank != Rank(0) {
            return out.send(
                Destination::One(from),
                Class::Control,
                &number.to_le_bytes(),
                Span::EMPTY,
                None,
            );
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

impl Engine for BareExchange {
    type Command = StartExchange;
    type Event = ExchangeDone;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, StartExchange>,
        out: &mut Out<ExchangeDone>,
    ) -> More {
        match input {
            Input::Command(StartExchange) => self.next(now, out),
            Input::Arrival(Arrival::Datagram(datagram)) => {
                // What is left of the cast before is longer.
                if let Ok(number) = <[u8; HEAD]>::try_from(datagram.head) {
                    self.answer_received(datagram.from, u32::from_le_bytes(number), now, out);
                }
            }
            Input::Tick if self.deadline().is_some_and(|at| at <= now) => self.send_round(now, out),
            _ => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.waits().then(|| self.sent + LOST)
    }
}
