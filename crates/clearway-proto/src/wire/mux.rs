//! Runs one engine and any number of engines of another kind over one wire: each gets what arrives,
//! and keeps what is its own.
//!
//! # Model
//! A datagram is given to all engines: frames say whose they are, and an engine drops what is not
//! its own as it drops what is damaged. A token comes back to the engine that issued it, because
//! the engine's number is in its upper bits while the wire has it. The others are numbered from
//! zero, in the order in which they were added, and stay.
//!
//! # Invariants
//! I1. No engine sees the end of another's operation.
//! I2. No engine keeps the others from writing for ever: who is first at a tick changes.

use alloc::vec::Vec;

use super::{Arrival, Effect, Engine, Input, More, Out, TimedOperation, Token};
use crate::base::LocalNs;

/// Bits of a token that are an engine's: two for a kind, twelve and forty-four for what it numbers.
const TOKEN_BITS: u32 = 58;
/// As many engines as the other bits can name.
const ENGINES_MAX: usize = 1 << (u64::BITS - TOKEN_BITS);

/// What [`EngineMux`] may be asked.
#[derive(Debug)]
pub enum MuxCommand<C, E: Engine> {
    /// Something of the one engine.
    One(C),
    /// One more of the others, which is booted at once.
    Add(E),
    /// Something of the other with this number.
    Of(usize, E::Command),
}

/// An event, and the engine that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MuxEvent<A, B> {
    /// By the one engine.
    One(A),
    /// By the other with this number.
    Of(usize, B),
}

/// One engine and others, at most 63.
pub struct EngineMux<A: Engine, B: Engine> {
    one: MuxedEngine<A>,
    others: Vec<MuxedEngine<B>>,
    incarnation: u32,
    /// The engine that is first at the next tick: zero for the one, then the others.
    first: usize,
}

/// An engine, and what it wrote in one step.
struct MuxedEngine<E: Engine> {
    engine: E,
    out: Out<E::Event>,
    wants_more: bool,
}

impl<E: Engine> MuxedEngine<E> {
    const fn new(engine: E) -> Self {
        Self { engine, out: Out::growing(0), wants_more: false }
    }

    fn wants_tick(&self, now: LocalNs) -> bool {
        self.wants_more || self.engine.deadline().is_some_and(|at| at <= now)
    }

    /// Takes `input`, and makes what is wished for that of all; `number` goes into tokens.
    fn give<F>(
        &mut self,
        number: usize,
        now: LocalNs,
        input: Input<'_, E::Command>,
        out: &mut Out<F>,
        wrap: impl Fn(E::Event) -> F,
    ) {
        self.wants_more &= !matches!(input, Input::Tick);
        self.out.limit_to(out.room());
        self.wants_more |= self.engine.input(now, input, &mut self.out) == More::Yes;
        let (effects, heads) = self.out.split();
        for effect in effects {
            match effect {
                Effect::Notify(event) => out.notify(wrap(event)),
                Effect::Operate(TimedOperation { mut operation, not_before }) => {
                    operation.relabel(|token| labelled(token, number));
                    if let Some(bytes) = operation.own_bytes() {
                        *bytes = out.head(bytes.bytes_in(heads).unwrap_or_default());
                    }
                    match not_before {
                        Some(at) => out.operate_at(at, operation),
                        None => out.operate(operation),
                    }
                }
            }
        }
        self.out.clear();
    }
}

/// Returns the token of engine `number` while the wire has it.
fn labelled(token: Token, number: usize) -> Token {
    assert!(token.0 >> TOKEN_BITS == 0, "an engine's tokens leave room for its number");
    Token(token.0 | (number as u64) << TOKEN_BITS)
}

impl<A: Engine, B: Engine> EngineMux<A, B> {
    /// Creates a mux of `one` engine, without engines of the other kind.
    pub const fn new(one: A) -> Self {
        Self { one: MuxedEngine::new(one), others: Vec::new(), incarnation: 0, first: 0 }
    }

    /// Returns the other engine with this number, for taking results out.
    pub fn other(&self, number: usize) -> Option<&B> {
        self.others.get(number).map(|other| &other.engine)
    }

    fn give_other(
        &mut self,
        number: usize,
        now: LocalNs,
        input: Input<'_, B::Command>,
        out: &mut Out<MuxEvent<A::Event, B::Event>>,
    ) {
        if let Some(other) = self.others.get_mut(number) {
            other.give(number + 1, now, input, out, |event| MuxEvent::Of(number, event));
        }
    }

    /// Ticks those that want it; one that finds no room is first the next time.
    fn tick(&mut self, now: LocalNs, out: &mut Out<MuxEvent<A::Event, B::Event>>) {
        let count = 1 + self.others.len();
        let first = self.first;
        for turn in (first..count).chain(0..first) {
            let other = turn.checked_sub(1);
            let wants = match other {
                Some(number) => self.others.get(number).is_some_and(|other| other.wants_tick(now)),
                None => self.one.wants_tick(now),
            };
            if wants && out.room() == 0 {
                self.first = turn;
                return;
            }
            match other {
                _ if !wants => {}
                Some(number) => self.give_other(number, now, Input::Tick, out),
                None => self.one.give(0, now, Input::Tick, out, MuxEvent::One),
            }
        }
        self.first = (first + 1) % count;
    }

    fn arrival(
        &mut self,
        now: LocalNs,
        arrival: Arrival<'_>,
        out: &mut Out<MuxEvent<A::Event, B::Event>>,
    ) {
        let own = |token: Token| Token(token.0 & ((1 << TOKEN_BITS) - 1));
        let of_one = match arrival {
            Arrival::Done { token, status, value, at } => {
                Some((token, Arrival::Done { token: own(token), status, value, at }))
            }
            Arrival::Shown { token, bytes } => {
                Some((token, Arrival::Shown { token: own(token), bytes }))
            }
            _ => None,
        };
        if let Some((token, arrival)) = of_one {
            match ((token.0 >> TOKEN_BITS) as usize).checked_sub(1) {
                Some(number) => self.give_other(number, now, Input::Arrival(arrival), out),
                None => self.one.give(0, now, Input::Arrival(arrival), out, MuxEvent::One),
            }
            return;
        }
        self.one.give(0, now, Input::Arrival(arrival), out, MuxEvent::One);
        (0..self.others.len())
            .for_each(|number| self.give_other(number, now, Input::Arrival(arrival), out));
    }
}

impl<A: Engine, B: Engine> Engine for EngineMux<A, B> {
    type Command = MuxCommand<A::Command, B>;
    type Event = MuxEvent<A::Event, B::Event>;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, Self::Command>,
        out: &mut Out<Self::Event>,
    ) -> More {
        match input {
            Input::Boot { incarnation } => {
                self.incarnation = incarnation;
                self.one.give(0, now, Input::Boot { incarnation }, out, MuxEvent::One);
            }
            Input::Tick => self.tick(now, out),
            Input::Arrival(arrival) => self.arrival(now, arrival, out),
            Input::Command(MuxCommand::One(command)) => {
                self.one.give(0, now, Input::Command(command), out, MuxEvent::One)
            }
            Input::Command(MuxCommand::Of(number, command)) => {
                self.give_other(number, now, Input::Command(command), out)
            }
            Input::Command(MuxCommand::Add(engine)) => {
                let number = self.others.len();
                assert!(number + 1 < ENGINES_MAX, "a token has room for so many engines");
                self.others.push(MuxedEngine::new(engine));
                let incarnation = self.incarnation;
                self.give_other(number, now, Input::Boot { incarnation }, out);
            }
        }
        let wants_more = self.one.wants_more || self.others.iter().any(|other| other.wants_more);
        // An engine that was not ticked for want of room is due still, and the driver looks at the
        // deadline.
        if wants_more { More::Yes } else { More::No }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let others = self.others.iter().filter_map(|other| other.engine.deadline());
        others.chain(self.one.engine.deadline()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Class, Nanos, Rank};
    use crate::wire::memory::{MemoryConfig, MemoryFabric};
    use crate::wire::{Destination, Driver, Span, Wire};

    /// Sends its letter when it is due, and hears only its own.
    struct Letter {
        letter: u8,
        due: Option<LocalNs>,
        done: u32,
    }

    impl Letter {
        fn new(letter: u8) -> Self {
            Self { letter, due: None, done: 0 }
        }
    }

    impl Engine for Letter {
        type Command = LocalNs;
        type Event = u8;

        fn input(&mut self, now: LocalNs, input: Input<'_, LocalNs>, out: &mut Out<u8>) -> More {
            match input {
                Input::Command(due) => self.due = Some(due),
                Input::Tick => {
                    assert!(
                        self.due.take().is_some_and(|due| due <= now),
                        "a tick that nobody asked for"
                    );
                    let token = Some(Token(7));
                    out.send(
                        Destination::One(Rank(1)),
                        Class::Bulk,
                        &[self.letter],
                        Span::EMPTY,
                        token,
                    );
                }
                Input::Arrival(Arrival::Datagram(datagram)) if datagram.head == [self.letter] => {
                    out.notify(self.letter)
                }
                Input::Arrival(Arrival::Done { token: Token(7), .. }) => self.done += 1,
                _ => {}
            }
            More::No
        }

        fn deadline(&self) -> Option<LocalNs> {
            self.due
        }
    }

    #[test]
    fn mux__each_engine_hears_its_own_and_ends_its_own() {
        let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
        let mut drivers = [0, 1].map(|_| {
            let mut driver = Driver::boot(EngineMux::new(Letter::new(b'a')), LocalNs(0), 0);
            driver.command(LocalNs(0), MuxCommand::Add(Letter::new(b'b')));
            driver.command(LocalNs(0), MuxCommand::Add(Letter::new(b'c')));
            driver
        });
        let asks = [
            MuxCommand::Of(1, LocalNs(1_000)),
            MuxCommand::One(LocalNs(2_000)),
            MuxCommand::Of(1, LocalNs(3_000)),
        ];
        for (ask, due) in asks.into_iter().zip([1_000, 2_000, 3_000]) {
            drivers[0].command(fabric.now(), ask);
            fabric.advance(LocalNs(due));
            drivers[0].step(fabric.wire(Rank(0)), &mut |event| panic!("{event:?} at the sender"));
        }
        let mut events = Vec::new();
        fabric.advance(fabric.now() + Nanos::from_millis(1));
        drivers[1].step(fabric.wire(Rank(1)), &mut |event| events.push(event));
        assert_eq!(events, [MuxEvent::Of(1, b'c'), MuxEvent::One(b'a'), MuxEvent::Of(1, b'c')]);
        let sender = drivers[0].engine_mut();
        let done = [0, 1].map(|number| sender.other(number).map(|engine| engine.done));
        assert_eq!((sender.one.engine.done, done), (1, [Some(0), Some(2)]));
        assert_eq!(fabric.wire(Rank(0)).counters().sent, 3);
    }

    #[test]
    fn mux__without_room_the_next_is_first_the_next_time() {
        let due = |letter| Letter { due: Some(LocalNs(5)), ..Letter::new(letter) };
        let mut mux = EngineMux::new(due(b'a'));
        let mut out = Out::with_limit(8);
        for letter in *b"bc" {
            assert_eq!(
                mux.input(LocalNs(0), Input::Command(MuxCommand::Add(due(letter))), &mut out),
                More::No
            );
        }
        let mut sent = Vec::new();
        for _ in 0..3 {
            out = Out::with_limit(1);
            let _ = mux.input(LocalNs(5), Input::Tick, &mut out);
            sent.extend_from_slice(out.heads());
        }
        assert_eq!((sent, mux.deadline()), (b"abc".to_vec(), None));
    }
}
