//! Bytes of records and headers, when buffers are full and closed, and what the engine writes in
//! one round. Whole programs: `tests/engines/queue`.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::frame::{QueueFrame, QueueMessage};
use super::*;
use crate::base::LocalNs;
use crate::wire::memory::{MemoryConfig, MemoryFabric};
use crate::wire::{
    Arrival, Datagram, Effect, Engine, Fault, Input, More, Operation, Out, PathId, Stamp, Token,
    Wire,
};

const SPAN: Span = Span { region: RegionId(0), offset: 0, length: 1 << 16 };

fn limits() -> QueueLimits {
    QueueLimits { batch: 1024, answer: 64, element: 44, window: 4, requests: 2 }
}

fn at(offset: u64) -> Place {
    Place { segment: 1, offset }
}

fn add(offset: u64, operand: u64) -> Element<'static> {
    let change = WordChange::new(AtomicStep::Add, WordWidth::Eight, operand);
    Element::Atomic { at: at(offset), change }
}

/// Writes `elements`; the bytes.
fn written(elements: &[Element<'_>]) -> (Vec<u8>, Batch) {
    let mut buffer = vec![0; 1 << 16];
    let mut open = OpenBuffer::new(&QueueLimits { answer: u32::MAX, ..limits() });
    for element in elements {
        assert_eq!(open.push(&mut buffer, *element), Push::Kept);
    }
    let batch = open.close(&mut buffer, SPAN);
    buffer.truncate(batch.buffer.length as usize);
    (buffer, batch)
}

/// Checks that `bytes` are read as `elements`.
fn assert_read(bytes: &[u8], elements: &[Element<'_>]) {
    let mut rest = elements.iter();
    let read = read_elements(bytes, &mut |element| {
        assert_eq!(Some(&element), rest.next());
        Ok(())
    });
    assert_eq!((read, rest.next()), (Ok(()), None));
}

#[test]
fn push__a_run_of_additions_of_one_costs_four_bytes_each() {
    let elements = [add(8, 1), add(16, 1), add(0, 1)];
    let (bytes, batch) = written(&elements);
    let expected = [
        0x12, 0x17, 3, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0,
        248, 255, 255, 255,
    ];
    assert_eq!(bytes, expected);
    assert_eq!((batch.elements, batch.requests), (3, 0));
    assert_read(&bytes, &elements);
}

#[test]
fn push__an_operand_that_changes_stands_with_each_element() {
    let elements: Vec<_> = (0..100).map(|n| add(8 * n, n)).collect();
    let (bytes, _) = written(&elements);
    // Two headers, one constant, and twelve bytes an element.
    assert_eq!(bytes.len(), 12 + 8 + 4 + 12 + 99 * 12);
    assert_read(&bytes, &elements);
}

#[test]
fn push__tickets_that_follow_each_other_stand_once() {
    let get = |n: u32| Element::Get { at: at(8 * u64::from(n)), length: 8, ticket: Ticket(n) };
    let elements: Vec<_> = (5..105).map(get).collect();
    let (bytes, batch) = written(&elements);
    assert_eq!((bytes.len(), batch.requests), (16 + 100 * 4, 100));
    assert_read(&bytes, &elements);
    let (bytes, _) = written(&[get(1), get(3)]);
    assert_eq!(bytes.len(), 2 * (16 + 4));
}

#[test]
fn push__places_far_apart_begin_a_run() {
    let elements = [add(0, 1), add(1 << 31, 1), add(u64::MAX, 1)];
    let (bytes, _) = written(&elements);
    assert_eq!(bytes.len(), 3 * (12 + 8 + 4));
    assert_read(&bytes, &elements);
}

#[test]
fn push__a_full_buffer_keeps_what_it_has() {
    let mut open = OpenBuffer::new(&limits());
    let mut buffer = [0; 24 + 4];
    assert_eq!(open.push(&mut buffer, add(0, 1)), Push::Kept);
    assert_eq!(open.push(&mut buffer, add(8, 1)), Push::Kept);
    assert_eq!(open.push(&mut buffer, add(16, 1)), Push::Full);
    assert_eq!(open.push(&mut buffer, Element::Data { queue: 0, bytes: &[1] }), Push::Full);
    let batch = open.close(&mut buffer, SPAN);
    assert_eq!((batch.elements, batch.buffer.length), (2, 28));
    assert_read(&buffer, &[add(0, 1), add(8, 1)]);
    assert!(open.is_empty());
}

#[test]
fn push__answers_to_all_requests_fit_in_their_place() {
    let mut open = OpenBuffer::new(&limits());
    let mut buffer = [0; 1024];
    let kept = (0..100).take_while(|n| {
        let element = Element::Get { at: at(0), length: 8, ticket: Ticket(*n) };
        open.push(&mut buffer, element) == Push::Kept
    });
    let kept = kept.count();
    // A header of 8 bytes, and words.
    assert_eq!(kept, (64 - 8) / 8);
    let batch = open.close(&mut buffer, SPAN);
    let mut answer = [0; 64];
    let length = apply(&mut Blank, Rank(0), &buffer[..batch.buffer.length as usize], &mut answer);
    assert_eq!(length, Ok(64));
    assert_eq!(
        apply(&mut Blank, Rank(0), &buffer[..batch.buffer.length as usize], &mut answer[..63]),
        Err(Fault::Malformed)
    );
}

/// A heap that reads as zeros at offsets below 100, and refuses everything else.
struct Blank;

impl HeapAccess for Blank {
    fn put(&mut self, at: Place, _: &[u8]) -> Result<(), Fault> {
        if at.offset < 100 { Ok(()) } else { Err(Fault::Malformed) }
    }

    fn get(&mut self, at: Place, into: &mut [u8]) -> Result<(), Fault> {
        into.fill(0);
        self.put(at, &[])
    }

    fn atomic(&mut self, at: Place, _: WordChange) -> Result<u64, Fault> {
        self.put(at, &[]).map(|()| 0)
    }

    fn data(&mut self, _: Rank, _: u32, _: &[u8]) -> Result<(), Fault> {
        Err(Fault::Malformed)
    }

    fn fetched(&mut self, _: Rank, _: Ticket, _: &[u8]) -> Result<(), Fault> {
        Err(Fault::Malformed)
    }
}

#[test]
fn apply__stops_at_the_first_element_that_is_refused() {
    struct Log(Vec<u64>);
    impl HeapAccess for Log {
        fn put(&mut self, at: Place, _: &[u8]) -> Result<(), Fault> {
            self.0.push(at.offset);
            Blank.put(at, &[])
        }
        fn get(&mut self, at: Place, into: &mut [u8]) -> Result<(), Fault> {
            Blank.get(at, into)
        }
        fn atomic(&mut self, at: Place, change: WordChange) -> Result<u64, Fault> {
            Blank.atomic(at, change)
        }
        fn data(&mut self, from: Rank, queue: u32, bytes: &[u8]) -> Result<(), Fault> {
            Blank.data(from, queue, bytes)
        }
        fn fetched(&mut self, from: Rank, ticket: Ticket, bytes: &[u8]) -> Result<(), Fault> {
            Blank.fetched(from, ticket, bytes)
        }
    }
    let put = |offset| Element::Put { at: at(offset), bytes: &[1] };
    let (bytes, _) = written(&[put(1), put(100), put(2)]);
    let mut log = Log(Vec::new());
    assert_eq!(apply(&mut log, Rank(0), &bytes, &mut []), Err(Fault::Malformed));
    assert_eq!(log.0, [1, 100]);
}

#[test]
fn read_elements__what_is_no_record_is_refused() {
    let refused: &[&[u8]] = &[
        &[0, 0, 1, 0],
        &[0x12, 0x17, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        // A word that is narrower than atomics are, a flag that nobody has, an atomic fetch.
        &[0x12, 0x11, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        &[0x12, 0x37, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        &[0x10, 3, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0],
        &[0x17, 3, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0, 1, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        &[6, 0, 2, 0, 0, 0, 0, 0, 1],
    ];
    for bytes in refused {
        assert_eq!(read_elements(bytes, &mut |_| Ok(())), Err(Fault::Malformed), "{bytes:?}");
    }
}

#[test]
fn read_elements__a_run_that_is_cut_short_gives_the_elements_that_are_there() {
    let elements = [add(8, 1), add(16, 1), add(0, 1)];
    let (bytes, _) = written(&elements);
    for missing in 1..=4 {
        let mut read = Vec::new();
        let done = read_elements(&bytes[..bytes.len() - missing], &mut |element| {
            read.push(element);
            Ok(())
        });
        assert_eq!((done, &read[..]), (Err(Fault::Malformed), &elements[..2]));
    }
}

fn places() -> impl Strategy<Value = Place> {
    let offset = prop_oneof![0..4096_u64, any::<u64>()];
    (0..4_u8, offset).prop_map(|(segment, offset)| Place { segment, offset })
}

fn elements() -> impl Strategy<Value = Element<'static>> {
    static BYTES: [u8; PUT_MAX] = [5; PUT_MAX];
    let widths = (0..4_usize).prop_map(|index| WordWidth::ALL[index]);
    let operands = prop_oneof![Just(1), any::<u64>()];
    let changes = (0..7_usize, 2..4_usize, operands, any::<u64>()).prop_map(
        |(step, width, operand, compare)| {
            let (step, width) = (AtomicStep::ALL[step], WordWidth::ALL[width]);
            let operand = if step == AtomicStep::Fetch { 0 } else { width.cut(operand) };
            let compare = if step == AtomicStep::CompareSwap { width.cut(compare) } else { 0 };
            WordChange { step, width, operand, compare }
        },
    );
    let tickets = prop_oneof![0..3_u32, any::<u32>()].prop_map(Ticket);
    prop_oneof![
        (places(), widths.clone(), any::<u64>()).prop_map(|(at, width, value)| Element::Word {
            at,
            width,
            value: width.cut(value)
        }),
        (places(), 0..=PUT_MAX)
            .prop_map(|(at, length)| Element::Put { at, bytes: &BYTES[..length] }),
        (places(), widths, any::<i64>(), 0..64_usize).prop_map(|(at, width, stride, count)| {
            Element::Strided { at, width, stride, words: &BYTES[..count * width.bytes()] }
        }),
        (places(), changes.clone()).prop_map(|(at, change)| match change.step {
            AtomicStep::Fetch | AtomicStep::CompareSwap => {
                Element::FetchAtomic { at, change, ticket: Ticket(0) }
            }
            _ => Element::Atomic { at, change },
        }),
        (places(), changes, tickets.clone())
            .prop_map(|(at, change, ticket)| { Element::FetchAtomic { at, change, ticket } }),
        (places(), 0..=PUT_MAX as u16, tickets.clone())
            .prop_map(|(at, length, ticket)| Element::Get { at, length, ticket }),
        (places(), tickets.clone()).prop_map(|(at, ticket)| Element::Get { at, length: 8, ticket }),
        (any::<u32>(), 0..=PUT_MAX)
            .prop_map(|(queue, length)| Element::Data { queue, bytes: &BYTES[..length] }),
        (tickets, 0..10_usize)
            .prop_map(|(ticket, length)| Element::Value { ticket, bytes: &BYTES[..length] }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn push__what_was_written_is_read(elements in prop::collection::vec(elements(), 0..14)) {
        let (bytes, batch) = written(&elements);
        prop_assert_eq!(batch.elements as usize, elements.len());
        assert_read(&bytes, &elements);
    }

    #[test]
    fn read_elements__any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = read_elements(&bytes, &mut |_| Ok(()));
        let _ = QueueFrame::decode(&bytes);
    }
}

#[test]
fn frame__fields_are_where_the_documentation_says() {
    let message = QueueMessage::Batch { has_requests: true };
    let (class, asks) = (Class::Bulk, true);
    let frame = QueueFrame { message, class, asks, number: 5, applied: 6, released: 7 };
    let head = frame.encode();
    let mut expected = [0; 28];
    expected[..4].copy_from_slice(&[0x51, 1, 3, 3]);
    (expected[4], expected[12], expected[20]) = (5, 6, 7);
    assert_eq!(head.bytes(), expected);
    let from = RemoteSpan { region: RegionId(2), offset: 9 };
    let message = QueueMessage::Pull { from, into: SPAN };
    let pull = QueueFrame { message, asks: false, ..frame };
    assert_eq!(pull.encode().bytes().len(), frame::HEAD_MAX);
    for frame in [frame, pull] {
        let head = frame.encode();
        assert_eq!(QueueFrame::decode(head.bytes()), Some(frame));
        for length in 0..head.bytes().len() {
            assert_eq!(QueueFrame::decode(&head.bytes()[..length]), None);
        }
    }
    for (place, byte) in [(0, 0x50), (1, 9), (2, 5), (3, 8)] {
        let mut bytes = expected;
        bytes[place] = byte;
        assert_eq!(QueueFrame::decode(&bytes), None, "{byte} at {place}");
    }
}

#[test]
fn cause__full_then_idle_then_late() {
    let policy = ClosingPolicy::new(20);
    let (mut open, mut buffer) = (OpenBuffer::new(&limits()), [0; 64]);
    let cause =
        |open: &OpenBuffer, stream, age| policy.cause(open, Class::Bulk, stream, Nanos(age));
    let (idle, busy) = (StreamState::Idle, StreamState::Busy);
    assert_eq!(cause(&open, idle, 2_000_000), None);
    assert_eq!(open.push(&mut buffer, Element::Data { queue: 0, bytes: &[1; 11] }), Push::Kept);
    assert_eq!(cause(&open, idle, 0), Some(ClosingCause::Idle));
    assert_eq!(cause(&open, busy, 999_999), None);
    assert_eq!(cause(&open, busy, 1_000_000), Some(ClosingCause::Deadline));
    assert_eq!(
        policy.cause(&open, Class::LowLatency, busy, Nanos(20_000)),
        Some(ClosingCause::Deadline)
    );
    let gathers = ClosingPolicy { closes_idle: false, ..policy.clone() };
    assert_eq!(gathers.cause(&open, Class::Bulk, idle, Nanos(0)), None);
    assert_eq!(open.push(&mut buffer, Element::Data { queue: 0, bytes: &[] }), Push::Kept);
    assert_eq!(cause(&open, busy, 0), Some(ClosingCause::Full));
}

fn node(change: impl Fn(&mut QueueConfig)) -> QueueNode {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(4));
    let wire = fabric.wire(Rank(0)).capabilities();
    let mut config =
        QueueConfig::new(Rank(0), 4, wire, RegionId(9), [Some(RegionId(1)), None, None, None])
            .expect("a wire that will do");
    config.limits = limits();
    change(&mut config);
    QueueNode::new(config)
}

/// What a node did in one round.
#[derive(Debug, Default)]
struct RoundEffects {
    operations: Vec<Operation>,
    frames: Vec<QueueFrame>,
    events: Vec<QueueEvent>,
}

/// An engine, and the calls of a driver around it.
struct DrivenQueue {
    node: QueueNode,
    out: Out<QueueEvent>,
    now: LocalNs,
}

impl DrivenQueue {
    fn new(node: QueueNode) -> Self {
        Self { node, out: Out::with_limit(1024), now: LocalNs(0) }
    }

    fn give(&mut self, input: Input<'_, QueueCommand>) {
        let _ = self.node.input(self.now, input, &mut self.out);
    }

    fn close(&mut self, peer: u32, class: Class, requests: u32) {
        let batch = Batch { buffer: SPAN, elements: 3, requests };
        let context = ContextId(class.index() as u32);
        self.give(Input::Command(QueueCommand::Close { peer: Rank(peer), class, context, batch }));
    }

    fn arrive(&mut self, from: u32, frame: QueueFrame) {
        let (from, path, class, at) = (Rank(from), PathId(0), None, Stamp::Taken(self.now));
        let (head, body) = (frame.encode(), Span { region: RegionId::RECEIVE, ..SPAN });
        let head = head.bytes();
        let datagram = Datagram { from, path, class, congestion_marked: false, at, head, body };
        self.give(Input::Arrival(Arrival::Datagram(datagram)));
    }

    fn end(&mut self, token: Option<Token>, status: Status) {
        let token = token.expect("it has one");
        self.give(Input::Arrival(Arrival::Done { token, status, value: 0, at: self.now }));
    }

    /// Ends the round with its tick.
    fn round(&mut self) -> RoundEffects {
        self.give(Input::Tick);
        let mut effects = RoundEffects::default();
        let (all, heads) = self.out.split();
        for effect in all {
            match effect {
                Effect::Notify(event) => effects.events.push(event),
                Effect::Operate(timed) => {
                    if let Operation::Send { head, .. } = timed.operation {
                        let bytes = head.bytes_in(heads).expect("its own");
                        effects.frames.push(QueueFrame::decode(bytes).expect("a frame"));
                    }
                    effects.operations.push(timed.operation);
                }
            }
        }
        self.out.clear();
        effects
    }
}

fn batch_frame(class: Class, number: u64) -> QueueFrame {
    let message = QueueMessage::Batch { has_requests: false };
    QueueFrame { message, class, asks: false, number, applied: 0, released: 0 }
}

#[test]
fn tick__urgent_classes_are_applied_and_sent_first() {
    let mut queue = DrivenQueue::new(node(|_| {}));
    for class in [Class::Bulk, Class::Scavenger, Class::LowLatency, Class::BestEffort] {
        queue.arrive(1, batch_frame(class, 1));
        queue.close(2, class, 0);
    }
    let effects = queue.round();
    assert!(matches!(effects.operations[0], Operation::Apply { .. }));
    assert_eq!(
        effects.operations.iter().filter(|it| matches!(it, Operation::Apply { .. })).count(),
        4
    );
    let classes: Vec<_> = effects.frames.iter().map(|frame| frame.class).collect();
    assert_eq!(classes, [Class::LowLatency, Class::BestEffort, Class::Bulk, Class::Scavenger]);
}

#[test]
fn tick__a_stream_without_a_wait_is_asked_twice_a_window() {
    let mut queue = DrivenQueue::new(node(|_| {}));
    for _ in 0..9 {
        queue.close(1, Class::Bulk, 0);
    }
    let asks: Vec<_> = (0..9).flat_map(|_| queue.round().frames).map(|frame| frame.asks).collect();
    // The window of four is full, and the peer has been asked twice.
    assert_eq!(asks, [false, true, false, true]);
    let counts =
        QueueFrame { message: QueueMessage::Counts, applied: 2, ..batch_frame(Class::Bulk, 0) };
    queue.arrive(1, counts);
    let effects = queue.round();
    let (context, peer) = (ContextId(3), Rank(1));
    assert_eq!(effects.events, [QueueEvent::Ended { context, peer, count: 6 }]);
    assert_eq!(effects.frames.len(), 1);
}

#[test]
fn flush__asks_with_the_last_batch_or_by_a_message_of_its_own() {
    let flush = QueueCommand::Flush { context: ContextId(3), peer: None };
    let mut queue = DrivenQueue::new(node(|_| {}));
    queue.close(1, Class::Bulk, 0);
    queue.give(Input::Command(flush));
    assert!(queue.round().frames[0].asks);
    assert!(queue.round().frames.is_empty());
    let mut queue = DrivenQueue::new(node(|_| {}));
    queue.close(1, Class::Bulk, 0);
    assert!(!queue.round().frames[0].asks);
    queue.give(Input::Command(flush));
    queue.give(Input::Command(flush));
    let frames = queue.round().frames;
    assert_eq!(frames.len(), 1);
    assert!(frames[0].asks && frames[0].message == QueueMessage::Counts);
}

#[test]
fn flush__what_waits_for_credit_asks_when_it_leaves() {
    let mut queue = DrivenQueue::new(node(|_| {}));
    for _ in 0..5 {
        queue.close(1, Class::Bulk, 0);
    }
    let full: Vec<_> = (0..5).flat_map(|_| queue.round().frames).map(|frame| frame.asks).collect();
    // All that left was asked about already; the fifth batch waits for credit.
    assert_eq!(full, [false, true, false, true]);
    queue.give(Input::Command(QueueCommand::Flush { context: ContextId(3), peer: None }));
    assert!(queue.round().frames.is_empty());
    let counts =
        QueueFrame { message: QueueMessage::Counts, applied: 4, ..batch_frame(Class::Bulk, 0) };
    queue.arrive(1, counts);
    let asks: Vec<_> = queue.round().frames.iter().map(|frame| frame.asks).collect();
    assert_eq!(asks, [true]);
}

#[test]
fn room__what_was_refused_leaves_before_what_follows() {
    let mut queue = DrivenQueue::new(node(|_| {}));
    queue.close(1, Class::Bulk, 0);
    let first = queue.round();
    queue.close(1, Class::Bulk, 0);
    queue.end(first.operations[0].token(), Status::NoRoom);
    assert!(queue.round().frames.is_empty());
    let queue_of = crate::wire::Queue::Path { path: PathId(0), class: Class::Bulk };
    queue.give(Input::Arrival(Arrival::Room { queue: queue_of }));
    let numbers: Vec<_> = (0..2).flat_map(|_| queue.round().frames).map(|it| it.number).collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn requests__no_more_leave_than_the_peer_has_places_for_answers() {
    let mut queue = DrivenQueue::new(node(|_| {}));
    for _ in 0..4 {
        queue.close(1, Class::LowLatency, 3);
    }
    let sent: usize = (0..5).map(|_| queue.round().frames.len()).sum();
    assert_eq!(sent, 2);
    // A peer with no place for the answer is none of ours.
    for number in 1..=3 {
        let message = QueueMessage::Batch { has_requests: true };
        queue.arrive(1, QueueFrame { message, ..batch_frame(Class::LowLatency, number) });
    }
    assert!(queue.round().events.contains(&QueueEvent::Malformed(Rank(1))));
}

#[test]
fn datagram__what_nobody_sends_ends_everything_for_its_sender() {
    let frames: [QueueFrame; 4] = [
        batch_frame(Class::Bulk, 2),
        QueueFrame { applied: 2, ..batch_frame(Class::Bulk, 1) },
        QueueFrame { released: 1, ..batch_frame(Class::Bulk, 1) },
        QueueFrame {
            message: QueueMessage::Answer { is_refused: false },
            ..batch_frame(Class::Bulk, 1)
        },
    ];
    for frame in frames {
        let mut queue = DrivenQueue::new(node(|_| {}));
        queue.close(1, Class::Bulk, 0);
        let sent = queue.round();
        queue.arrive(1, frame);
        let (context, peer) = (ContextId(3), Rank(1));
        let events = queue.round().events;
        let expected = [
            QueueEvent::Malformed(peer),
            QueueEvent::Lost(peer),
            QueueEvent::Ended { context, peer, count: 3 },
        ];
        assert_eq!(events, expected, "{frame:?}");
        queue.end(sent.operations[0].token(), Status::Complete);
        assert_eq!(queue.round().events, [QueueEvent::Free { buffer: SPAN }]);
    }
}

#[test]
fn deadline__a_silent_peer_is_asked_again() {
    let mut queue = DrivenQueue::new(node(|config| config.timeout = Nanos(1_000)));
    queue.close(1, Class::Bulk, 1);
    let sent = queue.round();
    queue.end(sent.operations[0].token(), Status::Complete);
    let _ = queue.round();
    for _ in 0..3 {
        queue.now = queue.node.deadline().expect("something is open");
        let asked = queue.round();
        let asks = asked.frames.iter().filter(|frame| frame.asks).count();
        asked
            .operations
            .iter()
            .for_each(|operation| queue.end(operation.token(), Status::Complete));
        if asks == 1 {
            return;
        }
    }
    panic!("nobody asked");
}

#[test]
fn deadline__a_peer_whose_credit_is_awaited_is_asked_again() {
    let mut queue = DrivenQueue::new(node(|config| {
        (config.timeout, config.limits.requests) = (Nanos(1_000), 1);
    }));
    queue.close(1, Class::Bulk, 1);
    queue.close(1, Class::Bulk, 1);
    let sent = queue.round();
    queue.end(sent.operations[0].token(), Status::Complete);
    // The answer is here, and its place at the peer is not known to be free.
    let message = QueueMessage::Answer { is_refused: false };
    queue.arrive(1, QueueFrame { message, applied: 1, ..batch_frame(Class::Bulk, 1) });
    let applied = queue.round();
    queue.end(applied.operations[0].token(), Status::Complete);
    assert_eq!(queue.round().events.len(), 1);
    for _ in 0..3 {
        queue.now = queue.node.deadline().expect("a batch waits for credit");
        if queue.round().frames.iter().any(|frame| frame.asks) {
            return;
        }
    }
    panic!("nobody asked");
}

#[test]
fn counts__a_question_is_answered_though_the_last_answer_is_not_acknowledged() {
    let mut queue = DrivenQueue::new(node(|_| {}));
    for number in 1..=2 {
        queue.arrive(1, QueueFrame { asks: true, ..batch_frame(Class::Bulk, number) });
        let applied = queue.round().operations[0].token();
        queue.end(applied, Status::Complete);
        let frames = queue.round().frames;
        assert_eq!(frames.iter().map(|frame| frame.applied).collect::<Vec<_>>(), [number]);
    }
}

#[test]
fn limits__a_wire_that_loses_messages_or_has_short_ones_is_refused() {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
    let wire = fabric.wire(Rank(0)).capabilities().clone();
    let lossy = Capabilities { delivery: Delivery::Lossy, ..wire.clone() };
    let refused = RefusalReason::Operation(OperationKind::Send);
    assert_eq!(QueueLimits::new(2, &lossy), Err(refused));
    let short = Capabilities { message_max: 200, ..wire.clone() };
    assert_eq!(QueueLimits::new(2, &short), Err(RefusalReason::Length));
    let limits = QueueLimits::new(2, &wire).expect("it will do");
    assert_eq!(limits.batch as usize, wire.message_max - frame::HEAD_MAX);
    assert_eq!(limits.answer_memory(2), Bytes(2 * 5 * 16 * u64::from(limits.answer)));
}

#[test]
fn input__nothing_to_do_wants_no_tick() {
    let mut queue = DrivenQueue::new(node(|_| {}));
    let more = queue.node.input(LocalNs(0), Input::Boot { incarnation: 0 }, &mut queue.out);
    assert_eq!((more, queue.node.deadline()), (More::No, None));
}
