//! Bytes as what one rank of a job gets from strangers: records for its heap, or headers for its
//! engine.
//!
//! # Model
//! An even first byte: the rest is a batch. An odd one: again and again what comes (1 byte), from
//! whom (1), how many bytes of it (1), and these.

use clearway_proto::base::{Class, LocalNs, Nanos, Rank};
use clearway_proto::queue::{
    Batch, ContextId, Element, HeapAccess, OpenBuffer, Place, Push, QueueCommand, QueueConfig,
    QueueEvent, QueueLimits, QueueNode, Ticket, WordChange, apply, read_elements,
};
use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};
use clearway_proto::wire::{
    Arrival, Datagram, Effect, Engine, Fault, Input, More, Out, PathId, RegionId, RemoteSpan, Span,
    Stamp, Status, Wire,
};

const RANKS: u32 = 4;
/// Bytes of the heap, between as many that nobody may change.
const HEAP: usize = 64;
/// Calls with nothing new that are made at most while the engine says that it has more to do.
const AGAIN_MAX: usize = 64;

/// Feeds a rank with `bytes`. It may do with them what it likes, but not panic, nor change what is
/// outside its heap.
pub(crate) fn run(bytes: &[u8]) {
    match bytes.split_first() {
        Some((first, rest)) if first % 2 == 0 => feed_heap(rest),
        Some((_, rest)) => feed_node(rest),
        None => {}
    }
}

struct GuardedHeap([u8; 3 * HEAP]);

impl GuardedHeap {
    fn range(&mut self, at: Place, length: usize) -> Result<&mut [u8], Fault> {
        let begin = usize::try_from(at.offset).map_err(|_| Fault::Malformed)?;
        let end = begin.checked_add(length).filter(|end| *end <= HEAP && at.segment == 1);
        Ok(&mut self.0[HEAP..][begin..end.ok_or(Fault::Malformed)?])
    }
}

impl HeapAccess for GuardedHeap {
    fn put(&mut self, at: Place, bytes: &[u8]) -> Result<(), Fault> {
        self.range(at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn get(&mut self, at: Place, into: &mut [u8]) -> Result<(), Fault> {
        into.copy_from_slice(self.range(at, into.len())?);
        Ok(())
    }

    fn atomic(&mut self, at: Place, change: WordChange) -> Result<u64, Fault> {
        let word = self.range(at, change.width.bytes())?;
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        let old = u64::from_le_bytes(bytes);
        word.copy_from_slice(&change.next(old).to_le_bytes()[..word.len()]);
        Ok(old)
    }

    fn data(&mut self, _: Rank, queue: u32, _: &[u8]) -> Result<(), Fault> {
        if queue == 0 { Ok(()) } else { Err(Fault::Malformed) }
    }

    fn fetched(&mut self, _: Rank, ticket: Ticket, _: &[u8]) -> Result<(), Fault> {
        if ticket.0 < 8 { Ok(()) } else { Err(Fault::Malformed) }
    }
}

fn limits() -> QueueLimits {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(RANKS));
    QueueLimits::new(RANKS, fabric.wire(Rank(0)).capabilities()).expect("a wire that will do")
}

fn feed_heap(records: &[u8]) {
    let mut heap = GuardedHeap([7; 3 * HEAP]);
    let mut answer = [0; 256];
    if let Ok(length) = apply(&mut heap, Rank(1), records, &mut answer) {
        assert!(length <= answer.len());
        let mut sink = |element| match element {
            Element::Value { .. } => Ok(()),
            _ => Err(Fault::Malformed),
        };
        read_elements(&answer[..length], &mut sink).expect("answers are records");
    }
    let is_kept = heap.0[..HEAP].iter().chain(&heap.0[2 * HEAP..]).all(|byte| *byte == 7);
    assert!(is_kept, "a byte outside the heap is another one");
    write_again(records);
}

/// What was read is read again when it was written again.
fn write_again(records: &[u8]) {
    let mut elements = Vec::new();
    let _ = read_elements(records, &mut |element| {
        elements.push(element);
        Ok(())
    });
    let mut buffer = vec![0; 32 + 32 * elements.len() + records.len()];
    let length = buffer.len() as u32;
    let mut open = OpenBuffer::new(&QueueLimits { answer: u32::MAX, ..limits() });
    for element in &elements {
        assert_eq!(open.push(&mut buffer, *element), Push::Kept, "{element:?}");
    }
    let batch = open.close(&mut buffer, Span { region: RegionId(0), offset: 0, length });
    let mut again = elements.iter();
    read_elements(&buffer[..batch.buffer.length as usize], &mut |element| {
        assert_eq!(Some(&element), again.next());
        Ok(())
    })
    .expect("what was written is read");
    assert!(again.next().is_none());
}

fn feed_node(mut rest: &[u8]) {
    let mut fabric = MemoryFabric::new(MemoryConfig::lossless(RANKS));
    let wire = fabric.wire(Rank(0)).capabilities();
    let mut config =
        QueueConfig::new(Rank(0), RANKS, wire, RegionId(0), [Some(RegionId(1)), None, None, None])
            .expect("a wire that will do");
    config.timeout = Nanos(1_000);
    if let [first, more @ ..] = rest {
        // Without reads, gets wait for writes of peers.
        if first % 2 == 0 {
            config.wire.operations = Default::default();
            config.wire.sends_follow_writes = false;
        }
        rest = more;
    }
    let (mut node, mut out, mut now) = (QueueNode::new(config), Out::with_limit(64), LocalNs(0));
    for command in commands() {
        give_input(&mut node, now, Input::Command(command), &mut out);
    }
    while let [what, from, length, more @ ..] = rest {
        let (head, behind) = more.split_at(more.len().min(usize::from(*length)));
        rest = behind;
        if what % 4 == 0 {
            now += Nanos(u64::from(*length) * 100);
            give_input(&mut node, now, Input::Tick, &mut out);
            continue;
        }
        let (from, path, class, at) =
            (Rank(u32::from(*from)), PathId(0), Some(Class::Bulk), Stamp::Taken(now));
        let body = Span { region: RegionId::RECEIVE, offset: 0, length: 8 };
        let datagram = Datagram { from, path, class, congestion_marked: false, at, head, body };
        give_input(&mut node, now, Input::Arrival(Arrival::Datagram(datagram)), &mut out);
    }
}

/// What the rank waits for.
fn commands() -> Vec<QueueCommand> {
    let (context, class) = (ContextId(0), Class::Bulk);
    let span = |length| Span { region: RegionId(2), offset: 0, length };
    let there = RemoteSpan { region: RegionId(1), offset: 0 };
    let peers = (1..RANKS).map(Rank).flat_map(|peer| {
        let close = |requests| {
            let batch = Batch { buffer: span(9), elements: 2, requests };
            QueueCommand::Close { peer, class, context, batch }
        };
        let put =
            QueueCommand::Put { peer, class, context, from: span(8), into: there, signal: None };
        let get = QueueCommand::Get {
            peer,
            class,
            context,
            from: there,
            into: span(8),
            ticket: Ticket(1),
        };
        [close(0), close(1), put, QueueCommand::Fence { context, peer: None }, get, close(2)]
    });
    peers.chain([QueueCommand::Flush { context, peer: None }, QueueCommand::Finish]).collect()
}

/// Gives `input`, ends everything that was asked for, and calls again while there is more to do.
fn give_input(
    node: &mut QueueNode,
    now: LocalNs,
    input: Input<'_, QueueCommand>,
    out: &mut Out<QueueEvent>,
) {
    let mut more = node.input(now, input, out);
    for _ in 0..AGAIN_MAX {
        let (effects, _) = out.split();
        let tokens = effects.filter_map(|effect| match effect {
            Effect::Operate(timed) => timed.operation.token(),
            Effect::Notify(_) => None,
        });
        let tokens: Vec<_> = tokens.collect();
        out.clear();
        if more == More::No && tokens.is_empty() {
            return;
        }
        for token in tokens {
            let done = Arrival::Done { token, status: Status::Complete, value: 8, at: now };
            let _ = node.input(now, Input::Arrival(done), out);
        }
        more = node.input(now, Input::Tick, out);
    }
}
