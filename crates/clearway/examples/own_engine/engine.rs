//! An engine of one's own: rank 0 asks every other rank for its name, and asks again until it has
//! all of them.

use clearway_proto::base::{Class, LocalNs, Nanos, Rank};
use clearway_proto::wire::{Arrival, Destination, Engine, Input, More, Out, Span};

/// Datagrams can be lost: a question without an answer is asked again after this time.
const RETRY: Nanos = Nanos::from_millis(10);
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;

/// One rank. It has no socket, no clock and no thread: it sees inputs, and writes effects into
/// `out`.
pub(crate) struct RollCall {
    rank: Rank,
    names: Vec<Option<u8>>,
    deadline: Option<LocalNs>,
}

impl RollCall {
    /// Creates the engine of `rank` in a job of `ranks`.
    pub(crate) fn new(rank: Rank, ranks: u32) -> Self {
        let mut names = vec![None; ranks as usize];
        names[rank.index()] = Some(name_of(rank));
        Self { rank, names, deadline: None }
    }

    fn ask_missing(&mut self, now: LocalNs, out: &mut Out<Vec<u8>>) {
        let missing = (0..).map(Rank).zip(&self.names).filter(|(_, name)| name.is_none());
        for (peer, _) in missing {
            out.send(Destination::One(peer), Class::LowLatency, &[QUESTION], Span::EMPTY, None);
        }
        self.deadline = Some(now + RETRY);
    }
}

fn name_of(rank: Rank) -> u8 {
    b'a' + rank.0 as u8
}

impl Engine for RollCall {
    type Command = ();
    /// The names of all ranks, sent once by rank 0.
    type Event = Vec<u8>;

    fn input(&mut self, now: LocalNs, input: Input<'_, ()>, out: &mut Out<Vec<u8>>) -> More {
        match input {
            Input::Boot { .. } if self.rank == Rank(0) => self.ask_missing(now, out),
            Input::Tick => self.ask_missing(now, out),
            Input::Arrival(Arrival::Datagram(datagram)) => match *datagram.head {
                [QUESTION] => {
                    let answer = [ANSWER, name_of(self.rank)];
                    out.send(
                        Destination::One(datagram.from),
                        Class::LowLatency,
                        &answer,
                        Span::EMPTY,
                        None,
                    );
                }
                // An answer that comes twice changes nothing, and bytes of another kind are no
                // answer.
                [ANSWER, name] if self.deadline.is_some() => {
                    self.names[datagram.from.index()] = Some(name);
                    if let Some(names) = self.names.iter().copied().collect() {
                        self.deadline = None;
                        out.notify(names);
                    }
                }
                _ => {}
            },
            _ => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.deadline
    }
}
