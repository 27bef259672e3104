//! Any datagrams at all, to a rank that sends reliable messages: nothing panics, nothing grows
//! without bound.

#![no_main]

use clearway_proto::base::{Bytes, Class, Head, LocalNs, Nanos, Rank, crc32c};
use clearway_proto::reliable::{
    Message, MessageCompletion, MessageTarget, ReliableCommand, ReliableConfig, ReliableEvent,
    ReliableNode, StreamConfig,
};
use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};
use clearway_proto::wire::{
    Arrival, Datagram, Engine, Input, More, Out, PathId, RegionId, Span, Stamp, Wire,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let below = MemoryFabric::new(MemoryConfig::lossless(2)).wire(Rank(0)).capabilities().clone();
    // Data that leave carry acknowledgements.
    let answer_soon = Nanos::from_micros(100);
    let streams = StreamConfig { inbox: Bytes(8 << 10), answer_soon, ..StreamConfig::new(2) };
    let mut node = ReliableNode::new(ReliableConfig {
        ranks: 2,
        below,
        streams,
        inboxes: RegionId(0),
        kept: RegionId(1),
    });
    let mut out: Out<ReliableEvent> = Out::with_limit(1024);
    let _: More = node.input(LocalNs(0), Input::Boot { incarnation: 0 }, &mut out);
    let target = MessageTarget::Inbox { head: Head::from_bytes(b"ours").expect("short") };
    let body = Span { region: RegionId(5), offset: 0, length: 9_000 };
    let message = Message { target, body, ticket: MessageCompletion { token: None, kept: None } };
    let _: More = node.input(
        LocalNs(0),
        Input::Command(ReliableCommand::Send { to: Rank(1), class: Class::Bulk, message }),
        &mut out,
    );
    for (place, chunk) in bytes.chunks(64).enumerate() {
        let mut head = chunk.to_vec();
        // A digest that holds, or the fuzzer would never get past it.
        if head.len() >= 8 {
            head[4..8].fill(0);
            let digest = crc32c(&head);
            head[4..8].copy_from_slice(&digest.to_le_bytes());
        }
        let now = LocalNs(place as u64 * 50_000);
        let datagram = Datagram {
            from: Rank(1),
            path: PathId(0),
            class: None,
            congestion_marked: false,
            at: Stamp::Taken(now),
            head: &head,
            body: Span { region: RegionId::RECEIVE, offset: 0, length: u32::from(chunk[0]) * 8 },
        };
        let _: More = node.input(now, Input::Arrival(Arrival::Datagram(datagram)), &mut out);
        let _: More = node.input(now, Input::Tick, &mut out);
        assert!(out.effects().len() <= 2_000);
        out.clear();
    }
});
