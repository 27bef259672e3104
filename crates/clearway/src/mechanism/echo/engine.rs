//! Sends a word to the next rank of a ring and waits until it is back, as often as it is asked to.

use clearway_proto::base::{Class, LocalNs, Nanos, Rank};
use clearway_proto::wire::{Arrival, Destination, Engine, Input, More, Out, Span};
use serde::{Deserialize, Serialize};

/// The most round trips of a task.
pub(super) const COUNT_MAX: u32 = 1000;
/// A word that is not back by then is sent again.
const RETRY: Nanos = Nanos::from_millis(100);
/// The first byte of a header: a question, or its answer.
const ASK: u8 = 1;
const ANSWER: u8 = 2;

/// What a rank is asked: how many round trips, in a ring of how many ranks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct EchoTask {
    pub(super) ranks: u32,
    pub(super) count: u32,
}

/// The task is over.
#[derive(Debug)]
pub(super) struct EchoDone;

/// One rank.
#[derive(Debug)]
pub(super) struct EchoEngine {
    rank: Rank,
    task: EchoTask,
    /// When the word left that is under way.
    sent: Option<LocalNs>,
    /// In ns.
    trips: Vec<u64>,
}

impl EchoEngine {
    /// Creates a rank without a task.
    pub(super) fn new(rank: Rank) -> Self {
        let trips = Vec::with_capacity(COUNT_MAX as usize);
        Self { rank, task: EchoTask { ranks: 1, count: 0 }, sent: None, trips }
    }

    /// Returns the round trips of a task that is over, once.
    pub(super) fn take_record(&mut self) -> Option<Vec<u64>> {
        let is_over = self.task.count > 0 && self.trips.len() >= self.task.count as usize;
        is_over.then(|| std::mem::take(&mut self.trips))
    }

    /// Returns the number of the round trip under way.
    fn number(&self) -> u32 {
        self.trips.len() as u32
    }

    fn send_next(&mut self, now: LocalNs, out: &mut Out<EchoDone>) {
        self.sent = Some(now);
        let next = Rank((self.rank.0 + 1) % self.task.ranks.max(1));
        send(next, ASK, self.number(), out);
    }
}

fn send(to: Rank, kind: u8, number: u32, out: &mut Out<EchoDone>) {
    let [a, b, c, d] = number.to_le_bytes();
    out.send(Destination::One(to), Class::LowLatency, &[kind, a, b, c, d], Span::EMPTY, None);
}

impl Engine for EchoEngine {
    type Command = EchoTask;
    type Event = EchoDone;

    fn input(&mut self, now: LocalNs, input: Input<'_, EchoTask>, out: &mut Out<EchoDone>) -> More {
        match input {
            Input::Command(task) => {
                self.task = EchoTask { count: task.count.min(COUNT_MAX), ..task };
                self.trips.clear();
                self.send_next(now, out);
            }
            Input::Tick if self.deadline().is_some_and(|due| due <= now) => {
                self.send_next(now, out)
            }
            Input::Arrival(Arrival::Datagram(datagram)) => match *datagram.head {
                [ASK, a, b, c, d] => {
                    send(datagram.from, ANSWER, u32::from_le_bytes([a, b, c, d]), out)
                }
                [ANSWER, a, b, c, d] if u32::from_le_bytes([a, b, c, d]) == self.number() => {
                    let Some(sent) = self.sent.take() else { return More::No };
                    self.trips.push(now.since(sent).0);
                    if self.number() < self.task.count {
                        self.send_next(now, out);
                    } else {
                        out.notify(EchoDone);
                    }
                }
                _ => {}
            },
            _ => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.sent.map(|sent| sent + RETRY)
    }
}
