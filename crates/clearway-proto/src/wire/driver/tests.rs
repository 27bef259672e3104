//! The driver's promises to an engine, kept over the memory wire.

use alloc::vec::Vec;

use super::*;
use crate::base::{Class, Nanos, Rank};
use crate::wire::memory::{MemoryConfig, MemoryFabric};
use crate::wire::{Destination, Missing, PathId, Queue, Span, forward_wire};

/// What a [`Script`] does at one instant.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Sends one byte to rank 1, now or later, with a token.
    Send { byte: u8, not_before: Option<LocalNs> },
    /// Sends to a rank that does not exist.
    Stray,
    /// Gives up rank 1.
    Abandon,
}

/// An engine that does what it is told and notes every input.
#[derive(Debug, Default)]
struct Script {
    acts: Vec<(LocalNs, Act)>,
    seen: Vec<(LocalNs, Seen)>,
    ticks_wanted: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Tick,
    Byte(u8),
    Done(u64, Status),
    Room,
}

impl Engine for Script {
    type Command = (LocalNs, Act);
    type Event = u8;

    fn input(&mut self, now: LocalNs, input: Input<'_, Self::Command>, out: &mut Out<u8>) -> More {
        match input {
            Input::Command((LocalNs(u64::MAX), act)) => self.perform(act, out),
            Input::Command(act) => self.acts.push(act),
            Input::Tick => {
                self.seen.push((now, Seen::Tick));
                while let Some(place) = self.acts.iter().position(|(at, _)| *at <= now) {
                    let (_, act) = self.acts.remove(place);
                    self.perform(act, out);
                }
            }
            Input::Arrival(Arrival::Datagram(datagram)) => {
                let byte = datagram.head.first().copied().unwrap_or(0);
                self.seen.push((now, Seen::Byte(byte)));
                out.tell(byte);
            }
            Input::Arrival(Arrival::Done { token, status, .. }) => self.seen.push((now, Seen::Done(token.0, status))),
            Input::Arrival(Arrival::Room { .. }) => self.seen.push((now, Seen::Room)),
            _ => {}
        }
        self.ticks_wanted = self.ticks_wanted.saturating_sub(1);
        if self.ticks_wanted > 0 { More::Yes } else { More::No }
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.acts.iter().map(|(at, _)| *at).min()
    }
}

impl Script {
    fn perform(&mut self, act: Act, out: &mut Out<u8>) {
        let (to, byte, not_before) = match act {
            Act::Send { byte, not_before } => (Rank(1), byte, not_before),
            Act::Stray => (Rank(77), 0, None),
            Act::Abandon => return out.operate(Operation::Abandon { peer: Rank(1) }),
        };
        let (to, path, class, head) = (Destination::One(to), PathId(0), Class::Bulk, out.head(&[byte]));
        let send = Operation::Send { to, path, class, head, body: Span::EMPTY, token: Some(Token(u64::from(byte))) };
        match not_before {
            Some(at) => out.operate_at(at, send),
            None => out.operate(send),
        }
    }
}

/// Two scripts on one fabric, stepped until nothing is left to do.
fn run(config: MemoryConfig, acts: &[(LocalNs, Act)], ticks_wanted: u32) -> [Script; 2] {
    let mut fabric = MemoryFabric::new(config);
    let mut drivers = [0, 1].map(|_| Driver::boot(Script::default(), LocalNs(0), 0));
    for act in acts {
        drivers[0].command(LocalNs(0), *act);
    }
    drivers[0].engine_mut().ticks_wanted = ticks_wanted;
    for _ in 0..10_000 {
        let now = fabric.now();
        let mut told = Vec::new();
        let wakes: Vec<Option<LocalNs>> =
            (0..2).map(|i| drivers[i].step(fabric.wire(Rank(i as u32)), &mut |byte| told.push(byte)).next).collect();
        let Some(next) = wakes.into_iter().chain([fabric.next_arrival()]).flatten().min() else { break };
        fabric.advance(next.max(now));
    }
    drivers.map(|driver| driver.engine)
}

fn send(at: u64, byte: u8, not_before: Option<u64>) -> (LocalNs, Act) {
    (LocalNs(at), Act::Send { byte, not_before: not_before.map(LocalNs) })
}

fn bytes(script: &Script) -> Vec<(u64, u8)> {
    let arrived = script.seen.iter().filter_map(|(at, seen)| match seen {
        Seen::Byte(byte) => Some((at.0, *byte)),
        _ => None,
    });
    arrived.collect()
}

#[test]
fn step__paced_operations_leave_at_their_time_and_in_order_of_issue() {
    let acts = [send(5, 1, Some(900)), send(5, 2, None), send(5, 3, Some(900)), send(6, 4, Some(100))];
    let [_, receiver] = run(MemoryConfig::lossless(2), &acts, 0);
    let latency = MemoryConfig::lossless(2).latency.0;
    assert_eq!(bytes(&receiver), [(5 + latency, 2), (100 + latency, 4), (900 + latency, 1), (900 + latency, 3)]);
}

#[test]
fn step__a_deadline_is_kept_and_never_early() {
    let [sender, _] = run(MemoryConfig::lossless(2), &[send(500, 1, None), send(700, 2, None)], 0);
    let ticks: Vec<u64> = sender.seen.iter().filter(|(_, seen)| *seen == Seen::Tick).map(|(at, _)| at.0).collect();
    assert_eq!(ticks, [500, 700]);
}

#[test]
fn step__more_means_a_tick_at_the_same_instant() {
    let [sender, _] = run(MemoryConfig::lossless(2), &[send(500, 1, None)], 3);
    let ticks = sender.seen.iter().filter(|(at, seen)| *seen == Seen::Tick && *at == LocalNs(500)).count();
    assert!(ticks >= 2, "{:?}", sender.seen);
}

#[test]
fn step__every_token_comes_back_once_whatever_becomes_of_it() {
    let config = MemoryConfig { room: 2, ..MemoryConfig::lossless(2) };
    let acts = [send(1, 1, None), send(1, 2, None), send(1, 3, None), (LocalNs(1), Act::Stray)];
    let [sender, receiver] = run(config, &acts, 0);
    let done: Vec<Seen> = sender.seen.iter().map(|(_, seen)| *seen).filter(|seen| *seen != Seen::Tick).collect();
    let expected = [
        Seen::Done(1, Status::Complete),
        Seen::Done(2, Status::Complete),
        Seen::Done(3, Status::NoRoom),
        Seen::Done(0, Status::Refused(Missing::Rank)),
        Seen::Room,
    ];
    assert_eq!(done, expected);
    assert_eq!(bytes(&receiver).len(), 2);
}

#[test]
fn step__operations_that_are_held_for_a_peer_that_is_given_up_end_flushed() {
    let acts = [send(1, 1, Some(900)), (LocalNs(2), Act::Abandon), send(3, 2, Some(950))];
    let [sender, receiver] = run(MemoryConfig::lossless(2), &acts, 0);
    let done: Vec<Seen> = sender.seen.iter().map(|(_, seen)| *seen).filter(|seen| *seen != Seen::Tick).collect();
    assert_eq!(done, [Seen::Done(1, Status::Flushed), Seen::Done(2, Status::Complete)]);
    assert_eq!(bytes(&receiver).len(), 1, "the engine may call a peer that it gave up");
}

#[test]
fn step__what_a_command_asked_for_and_ended_at_once_needs_no_other_input() {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
    let mut driver = Driver::boot(Script::default(), LocalNs(0), 0);
    driver.command(LocalNs(0), send(u64::MAX, 5, None));
    let _ = driver.step(fabric.wire(Rank(0)), &mut |_| {});
    assert_eq!(driver.engine.seen, [(LocalNs(0), Seen::Done(5, Status::Complete))]);
}

#[test]
fn boot__an_idle_engine_has_nothing_to_wake_for() {
    let mut fabric = MemoryFabric::new(MemoryConfig { latency: Nanos(5), ..MemoryConfig::lossless(2) });
    let mut driver = Driver::boot(Script::default(), LocalNs(0), 3);
    let progress = driver.step(fabric.wire(Rank(0)), &mut |_| {});
    assert_eq!(progress, Progress { inputs: 0, next: None });
}

/// A wire whose queue is full at every post and empty again at the next harvest.
struct Drained<'a> {
    wire: &'a mut dyn Wire,
    refused: bool,
}

impl Wire for Drained<'_> {
    forward_wire!(
        wire: rank, capabilities, now, memory, groups, deadline, counters
    );

    fn post(&mut self, operations: &[Operation], _heads: &[u8], answers: &mut Vec<Answer>) {
        self.refused = true;
        answers.extend(operations.iter().map(|_| Answer::NoRoom));
    }

    fn harvest(&mut self, _limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        if !core::mem::take(&mut self.refused) {
            return 0;
        }
        sink(Arrival::Room { queue: Queue::Path { path: PathId(0), class: Class::Bulk } });
        1
    }
}

#[test]
fn step__a_queue_that_is_free_again_at_once_is_heard_of_after_it_was_full() {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
    let mut driver = Driver::boot(Script::default(), LocalNs(0), 0);
    driver.command(LocalNs(0), send(0, 7, None));
    driver.step(&mut Drained { wire: fabric.wire(Rank(0)), refused: false }, &mut |_| {});
    let seen: Vec<Seen> = driver.engine_mut().seen.iter().map(|(_, seen)| *seen).collect();
    assert_eq!(seen, [Seen::Tick, Seen::Done(7, Status::NoRoom), Seen::Room]);
}
