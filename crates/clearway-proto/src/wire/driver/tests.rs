//! The driver's promises to an engine, kept over the memory wire.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::base::{Bytes, Class, Nanos, Rank};
use crate::wire::foreign_memory::WordMemory;
use crate::wire::memory::{MemoryConfig, MemoryFabric};
use crate::wire::{Destination, MemoryAccess, PathId, Queue, forward_wire};

/// What a [`Script`] does at one instant.
#[derive(Clone, Copy, Debug)]
enum ScriptAction {
    /// Sends one byte to rank 1, now or later, with a token.
    Send { byte: u8, not_before: Option<LocalNs> },
    /// Sends to a rank that does not exist.
    Stray,
    /// Gives up rank 1.
    Abandon,
}

/// An engine that does what its script says and notes every input.
#[derive(Debug, Default)]
struct Script {
    acts: Vec<(LocalNs, ScriptAction)>,
    seen: Vec<(LocalNs, ObservedInput)>,
    ticks_wanted: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObservedInput {
    Tick,
    Byte(u8),
    Done(u64, Status),
    Room,
}

impl Engine for Script {
    type Command = (LocalNs, ScriptAction);
    type Event = u8;

    fn input(&mut self, now: LocalNs, input: Input<'_, Self::Command>, out: &mut Out<u8>) -> More {
        match input {
            Input::Command((LocalNs(u64::MAX), act)) => self.perform(act, out),
            Input::Command(act) => self.acts.push(act),
            Input::Tick => {
                self.seen.push((now, ObservedInput::Tick));
                while let Some(place) = self.acts.iter().position(|(at, _)| *at <= now) {
                    let (_, act) = self.acts.remove(place);
                    self.perform(act, out);
                }
            }
            Input::Arrival(Arrival::Datagram(datagram)) => {
                let byte = datagram.head.first().copied().unwrap_or(0);
                self.seen.push((now, ObservedInput::Byte(byte)));
                out.notify(byte);
            }
            Input::Arrival(Arrival::Done { token, status, .. }) => {
                self.seen.push((now, ObservedInput::Done(token.0, status)))
            }
            Input::Arrival(Arrival::Room { .. }) => self.seen.push((now, ObservedInput::Room)),
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
    fn perform(&mut self, act: ScriptAction, out: &mut Out<u8>) {
        let (to, byte, not_before) = match act {
            ScriptAction::Send { byte, not_before } => (Rank(1), byte, not_before),
            ScriptAction::Stray => (Rank(77), 0, None),
            ScriptAction::Abandon => return out.operate(Operation::Abandon { peer: Rank(1) }),
        };
        let (to, path, class, head) =
            (Destination::One(to), PathId(0), Class::Bulk, out.head(&[byte]));
        let send = Operation::Send {
            to,
            path,
            class,
            head,
            body: Span::EMPTY,
            token: Some(Token(u64::from(byte))),
        };
        match not_before {
            Some(at) => out.operate_at(at, send),
            None => out.operate(send),
        }
    }
}

/// Runs two scripts on one fabric, stepped until nothing is left to do.
fn run(config: MemoryConfig, acts: &[(LocalNs, ScriptAction)], ticks_wanted: u32) -> [Script; 2] {
    let mut fabric = MemoryFabric::new(config);
    let mut drivers = [0, 1].map(|_| Driver::boot(Script::default(), LocalNs(0), 0));
    for act in acts {
        drivers[0].command(LocalNs(0), *act);
    }
    drivers[0].engine_mut().ticks_wanted = ticks_wanted;
    for _ in 0..10_000 {
        let now = fabric.now();
        let mut results = Vec::new();
        let wakes: Vec<Option<LocalNs>> = (0..2)
            .map(|i| {
                drivers[i].step(fabric.wire(Rank(i as u32)), &mut |byte| results.push(byte)).next
            })
            .collect();
        let Some(next) = wakes.into_iter().chain([fabric.next_arrival()]).flatten().min() else {
            break;
        };
        fabric.advance(next.max(now));
    }
    drivers.map(|driver| driver.engine)
}

fn send(at: u64, byte: u8, not_before: Option<u64>) -> (LocalNs, ScriptAction) {
    (LocalNs(at), ScriptAction::Send { byte, not_before: not_before.map(LocalNs) })
}

fn bytes(script: &Script) -> Vec<(u64, u8)> {
    let arrived = script.seen.iter().filter_map(|(at, seen)| match seen {
        ObservedInput::Byte(byte) => Some((at.0, *byte)),
        _ => None,
    });
    arrived.collect()
}

#[test]
fn step__paced_operations_leave_at_their_time_and_in_order_of_issue() {
    let acts =
        [send(5, 1, Some(900)), send(5, 2, None), send(5, 3, Some(900)), send(6, 4, Some(100))];
    let [_, receiver] = run(MemoryConfig::lossless(2), &acts, 0);
    let latency = MemoryConfig::lossless(2).latency.0;
    assert_eq!(
        bytes(&receiver),
        [(5 + latency, 2), (100 + latency, 4), (900 + latency, 1), (900 + latency, 3)]
    );
}

#[test]
fn step__a_deadline_is_kept_and_never_early() {
    let [sender, _] = run(MemoryConfig::lossless(2), &[send(500, 1, None), send(700, 2, None)], 0);
    let ticks: Vec<u64> = sender
        .seen
        .iter()
        .filter(|(_, seen)| *seen == ObservedInput::Tick)
        .map(|(at, _)| at.0)
        .collect();
    assert_eq!(ticks, [500, 700]);
}

#[test]
fn step__more_means_a_tick_at_the_same_instant() {
    let [sender, _] = run(MemoryConfig::lossless(2), &[send(500, 1, None)], 3);
    let ticks = sender
        .seen
        .iter()
        .filter(|(at, seen)| *seen == ObservedInput::Tick && *at == LocalNs(500))
        .count();
    assert!(ticks >= 2, "{:?}", sender.seen);
}

#[test]
fn step__every_token_comes_back_once_whatever_becomes_of_it() {
    let config = MemoryConfig { room: 2, ..MemoryConfig::lossless(2) };
    let acts =
        [send(1, 1, None), send(1, 2, None), send(1, 3, None), (LocalNs(1), ScriptAction::Stray)];
    let [sender, receiver] = run(config, &acts, 0);
    let done: Vec<ObservedInput> = sender
        .seen
        .iter()
        .map(|(_, seen)| *seen)
        .filter(|seen| *seen != ObservedInput::Tick)
        .collect();
    let expected = [
        ObservedInput::Done(1, Status::Complete),
        ObservedInput::Done(2, Status::Complete),
        ObservedInput::Done(3, Status::NoRoom),
        ObservedInput::Done(0, Status::Refused(RefusalReason::Rank)),
        ObservedInput::Room,
    ];
    assert_eq!(done, expected);
    assert_eq!(bytes(&receiver).len(), 2);
}

#[test]
fn step__operations_that_are_held_for_a_peer_that_is_given_up_end_flushed() {
    let acts = [send(1, 1, Some(900)), (LocalNs(2), ScriptAction::Abandon), send(3, 2, Some(950))];
    let [sender, receiver] = run(MemoryConfig::lossless(2), &acts, 0);
    let done: Vec<ObservedInput> = sender
        .seen
        .iter()
        .map(|(_, seen)| *seen)
        .filter(|seen| *seen != ObservedInput::Tick)
        .collect();
    assert_eq!(
        done,
        [ObservedInput::Done(1, Status::Flushed), ObservedInput::Done(2, Status::Complete)]
    );
    assert_eq!(bytes(&receiver).len(), 1, "the engine may call a peer that it gave up");
}

#[test]
fn step__what_a_command_asked_for_and_ended_at_once_needs_no_other_input() {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
    let mut driver = Driver::boot(Script::default(), LocalNs(0), 0);
    driver.command(LocalNs(0), send(u64::MAX, 5, None));
    let _ = driver.step(fabric.wire(Rank(0)), &mut |_| {});
    assert_eq!(driver.engine.seen, [(LocalNs(0), ObservedInput::Done(5, Status::Complete))]);
}

#[test]
fn boot__an_idle_engine_has_nothing_to_wake_for() {
    let mut fabric =
        MemoryFabric::new(MemoryConfig { latency: Nanos(5), ..MemoryConfig::lossless(2) });
    let mut driver = Driver::boot(Script::default(), LocalNs(0), 3);
    let progress = driver.step(fabric.wire(Rank(0)), &mut |_| {});
    assert_eq!(progress, Progress { inputs: 0, next: None });
}

/// A wire whose queue is full at every post and empty again at the next poll.
struct FullQueueWire<'a> {
    wire: &'a mut dyn Wire,
    refused: bool,
}

impl Wire for FullQueueWire<'_> {
    forward_wire!(
        wire: rank, capabilities, now, memory, groups, deadline, counters
    );

    fn post(&mut self, operations: &[Operation], _heads: &[u8], answers: &mut Vec<PostOutcome>) {
        self.refused = true;
        answers.extend(operations.iter().map(|_| PostOutcome::NoRoom));
    }

    fn poll(&mut self, _limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        if !core::mem::take(&mut self.refused) {
            return 0;
        }
        sink(Arrival::Room { queue: Queue::Path { path: PathId(0), class: Class::Bulk } });
        1
    }
}

/// A wire that ends each send at once, and counts posts and polls.
struct CountingWire<'a> {
    wire: &'a mut dyn Wire,
    answer: PostOutcome,
    posts: u32,
    polls: u32,
}

impl<'a> CountingWire<'a> {
    fn new(wire: &'a mut dyn Wire) -> Self {
        Self { wire, answer: PostOutcome::Done(0), posts: 0, polls: 0 }
    }
}

impl Wire for CountingWire<'_> {
    forward_wire!(
        wire: rank, capabilities, now, memory, groups, deadline, counters
    );

    fn post(&mut self, operations: &[Operation], _heads: &[u8], answers: &mut Vec<PostOutcome>) {
        self.posts += 1;
        answers.extend(operations.iter().map(|_| self.answer));
    }

    fn poll(&mut self, _limit: usize, _sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.polls += 1;
        0
    }
}

#[test]
fn flush__what_a_command_asked_for_leaves_and_ends_without_a_poll() {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
    let mut wire = CountingWire::new(fabric.wire(Rank(0)));
    let mut driver = Driver::boot(Script::default(), LocalNs(0), 0);
    driver.command(LocalNs(0), (LocalNs(u64::MAX), ScriptAction::Stray));
    driver.flush(&mut wire, &mut |_| {}, None);
    assert_eq!((wire.posts, wire.polls), (1, 0));
    assert_eq!(driver.engine_mut().seen, [(LocalNs(0), ObservedInput::Done(0, Status::Complete))]);
}

#[test]
fn step__a_wire_that_had_nothing_is_polled_once_also_after_what_ended_at_once() {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
    let mut wire = CountingWire::new(fabric.wire(Rank(0)));
    let mut driver = Driver::boot(Script::default(), LocalNs(0), 0);
    // The engine asks for three ticks at this instant, and posts nothing.
    driver.engine_mut().ticks_wanted = 4;
    driver.command(LocalNs(0), send(50, 7, None));
    driver.step(&mut wire, &mut |_| {});
    assert_eq!((driver.engine_mut().seen.len(), wire.posts, wire.polls), (3, 0, 1));
    driver.command(LocalNs(0), (LocalNs(u64::MAX), ScriptAction::Stray));
    driver.step(&mut wire, &mut |_| {});
    assert_eq!((wire.posts, wire.polls), (1, 2));
    assert_eq!(
        driver.engine_mut().seen.last(),
        Some(&(LocalNs(0), ObservedInput::Done(0, Status::Complete)))
    );
    // A queue that is full has room again in a poll, which may be the next one.
    wire.answer = PostOutcome::NoRoom;
    driver.command(LocalNs(0), (LocalNs(u64::MAX), ScriptAction::Stray));
    driver.step(&mut wire, &mut |_| {});
    assert_eq!((wire.posts, wire.polls), (2, 4));
}

#[test]
fn step__a_queue_that_is_free_again_at_once_is_heard_of_after_it_was_full() {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
    let mut driver = Driver::boot(Script::default(), LocalNs(0), 0);
    driver.command(LocalNs(0), send(0, 7, None));
    driver.step(&mut FullQueueWire { wire: fabric.wire(Rank(0)), refused: false }, &mut |_| {});
    let seen: Vec<ObservedInput> = driver.engine_mut().seen.iter().map(|(_, seen)| *seen).collect();
    assert_eq!(
        seen,
        [ObservedInput::Tick, ObservedInput::Done(7, Status::NoRoom), ObservedInput::Room]
    );
}

/// An engine that issues the operations that it is given, each batch in one round, and notes what
/// comes back.
#[derive(Default)]
struct BatchEngine {
    results: Vec<(u64, TokenResult)>,
}

/// What a token came back with: bytes that were shown, or how its operation ended.
type TokenResult = Result<Vec<u8>, (Status, u64)>;

/// Operations, and the bytes of those that store some, in their order.
type EffectBatch = Vec<(Option<LocalNs>, Operation, &'static [u8])>;

impl Engine for BatchEngine {
    type Command = EffectBatch;
    type Event = ();

    fn input(&mut self, _: LocalNs, input: Input<'_, EffectBatch>, out: &mut Out<()>) -> More {
        match input {
            Input::Command(batch) => {
                for (not_before, mut operation, own) in batch {
                    if let Operation::Store { bytes, .. } = &mut operation {
                        *bytes = out.bytes(own);
                    }
                    match not_before {
                        Some(at) => out.operate_at(at, operation),
                        None => out.operate(operation),
                    }
                }
            }
            Input::Arrival(Arrival::Shown { token, bytes }) => {
                self.results.push((token.0, Ok(bytes.to_vec())))
            }
            Input::Arrival(Arrival::Done { token, status, value, .. }) => {
                self.results.push((token.0, Err((status, value))))
            }
            _ => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        None
    }
}

/// Adds a number to each byte, and refuses records that begin with zero.
struct Adder(u8);

impl Applier for Adder {
    fn apply(&mut self, from: Rank, records: &[u8], answer: &mut [u8]) -> Result<usize, Fault> {
        assert_eq!(from, Rank(1));
        if records.first() == Some(&0) {
            return Err(Fault::Malformed);
        }
        answer.iter_mut().zip(records).for_each(|(into, byte)| *into = byte + self.0);
        Ok(records.len())
    }
}

const NOTHING: &[u8] = &[];

fn store(into: Span, bytes: &'static [u8]) -> (Option<LocalNs>, Operation, &'static [u8]) {
    (None, Operation::Store { bytes: HeadRef { start: 0, length: 0 }, into }, bytes)
}

fn show(of: Span, token: u64) -> (Option<LocalNs>, Operation, &'static [u8]) {
    (None, Operation::Show { of, token: Token(token) }, NOTHING)
}

fn apply(of: Span, answer: Span, token: u64) -> (Option<LocalNs>, Operation, &'static [u8]) {
    (None, Operation::Apply { of, from: Rank(1), answer, token: Token(token) }, NOTHING)
}

/// Returns what a clerk learns of `batch`, over memory that the wire allocated or adopted; and what
/// was refused without a token.
fn served(
    is_adopted: bool,
    with: Option<&mut Adder>,
    batch: impl Fn(&dyn Fn(u64, u32) -> Span) -> EffectBatch,
) -> (BatchEngine, u64) {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
    let wire = fabric.wire(Rank(0));
    let region = match is_adopted {
        true => wire.adopt(Arc::new(WordMemory::new(64, MemoryAccess::Peers))),
        false => wire.register(Bytes(64)),
    };
    let region = region.expect("room");
    let mut driver = Driver::boot(BatchEngine::default(), LocalNs(0), 0);
    driver.command(LocalNs(0), batch(&|offset, length| Span { region, offset, length }));
    match with {
        Some(applier) => driver.step_with(wire, &mut |()| {}, applier),
        None => driver.step(wire, &mut |()| {}),
    };
    let refused = driver.refused();
    (driver.engine, refused)
}

#[test]
fn post__small_structures_are_stored_shown_and_applied_in_order_with_the_others() {
    for is_adopted in [false, true] {
        let (clerk, refused) = served(is_adopted, Some(&mut Adder(1)), |at| {
            vec![
                store(at(3, 4), b"abcd"),
                (None, Operation::Copy { from: at(3, 4), into: at(10, 4) }, NOTHING),
                store(at(3, 1), b"z"),
                show(at(2, 6), 1),
                apply(at(10, 4), at(20, 8), 2),
                show(at(20, 5), 3),
                (None, Operation::Digest { of: at(20, 4), token: Token(4) }, NOTHING),
            ]
        });
        let digest = u64::from(crate::base::crc32c(b"bcde"));
        let expected = [
            (1, Ok(b"\0zbcd\0".to_vec())),
            (3, Ok(b"bcde\0".to_vec())),
            (2, Err((Status::Complete, 4))),
            (4, Err((Status::Complete, digest))),
        ];
        assert_eq!(clerk.results, expected, "adopted: {is_adopted}");
        assert_eq!(refused, 0);
    }
}

#[test]
fn post__a_checked_copy_leaves_other_bytes_where_they_are() {
    for is_adopted in [false, true] {
        let (clerk, _) = served(is_adopted, None, |at| {
            let checked = |digest, into, token| {
                let token = Token(token);
                (None, Operation::CopyChecked { from: at(0, 4), into, digest, token }, NOTHING)
            };
            let digest = crate::base::crc32c(b"abcd");
            vec![
                store(at(0, 4), b"abcd"),
                checked(digest, at(8, 4), 1),
                checked(!digest, at(16, 4), 2),
                checked(digest, at(62, 4), 3),
                show(at(8, 12), 4),
            ]
        });
        let found = Err((Status::Complete, u64::from(crate::base::crc32c(b"abcd"))));
        let refused = Err((Status::Refused(RefusalReason::Memory), 0));
        let expected = [
            (4, Ok(b"abcd\0\0\0\0\0\0\0\0".to_vec())),
            (1, found.clone()),
            (2, found),
            (3, refused),
        ];
        assert_eq!(clerk.results, expected);
    }
}

#[test]
fn post__what_small_structures_lack_is_refused_by_name() {
    let long = SHOW_MAX as u32 + 1;
    let batch = |at: &dyn Fn(u64, u32) -> Span| {
        vec![
            store(at(62, 3), b"abc"),
            store(at(0, 2), b"abc"),
            show(at(60, 5), 1),
            show(at(0, long), 2),
            apply(at(0, 4), at(0, APPLY_MAX as u32 + 1), 3),
            apply(at(0, 4), at(8, 4), 4),
        ]
    };
    let (clerk, refused) = served(false, Some(&mut Adder(1)), batch);
    let missing = |missing| Err((Status::Refused(missing), 0));
    let malformed = Err((Status::Failed(Fault::Malformed), 0));
    let by_name = [
        (1, missing(RefusalReason::Memory)),
        (2, missing(RefusalReason::Length)),
        (3, missing(RefusalReason::Length)),
    ];
    assert_eq!(clerk.results, [&by_name[..], &[(4, malformed)]].concat());
    assert_eq!(refused, 2, "stores have no token");
    let (clerk, _) = served(false, None, batch);
    let nobody = missing(RefusalReason::Operation(OperationKind::Apply));
    assert_eq!(clerk.results[2..], [(3, nobody.clone()), (4, nobody)]);
}

#[test]
fn hold__what_is_stored_later_is_kept_until_then() {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
    let region = fabric.wire(Rank(0)).register(Bytes(8)).expect("room");
    let at = |offset, length| Span { region, offset, length };
    let mut driver = Driver::boot(BatchEngine::default(), LocalNs(0), 0);
    let (_, operation, bytes) = store(at(0, 4), b"late");
    driver.command(
        LocalNs(0),
        vec![(Some(LocalNs(500)), operation, bytes), store(at(4, 4), b"soon")],
    );
    for now in [0, 500] {
        fabric.advance(LocalNs(now));
        driver.step(fabric.wire(Rank(0)), &mut |()| {});
        let expected = if now == 0 { b"\0\0\0\0soon" } else { b"latesoon" };
        assert_eq!(fabric.wire(Rank(0)).region(region).expect("registered"), expected);
    }
}
