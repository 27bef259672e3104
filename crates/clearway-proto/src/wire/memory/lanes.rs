//! Delays that are drawn: what goes between two ends on one lane stays in order, and lanes overtake
//! each other.
//!
//! # Model
//! A lane is a sender, a receiver and a class of messages, or all writes. Most things take up to a
//! sixteenth of the longest delay, and one in eight takes up to all of it, as where a process or a
//! queue stands still now and then.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{InFlight, MemoryFabric};
use crate::base::{Class, LocalNs, Nanos, RandomKey, RandomStream, Rank};
use crate::wire::Status;

/// One of as many things takes long.
const LONG_EVERY: u64 = 8;
/// The others take up to this part of the longest delay.
const SHORT_PART: u64 = 16;

/// Sender, receiver, and class of messages; none for writes.
pub(super) type DelayLane = (Rank, Rank, Option<Class>);

/// When what was sent last on each lane arrives.
#[derive(Debug)]
pub(super) struct Lanes {
    most: Nanos,
    stream: RandomStream,
    last: BTreeMap<DelayLane, LocalNs>,
}

impl Lanes {
    pub(super) fn new(most: Nanos, seed: u64) -> Self {
        let stream = RandomKey::new(seed).purpose("memory wire lanes").stream();
        Self { most, stream, last: BTreeMap::new() }
    }

    /// Returns when that arrives which would arrive at `earliest` by itself.
    pub(super) fn arrival(&mut self, lane: DelayLane, earliest: LocalNs) -> LocalNs {
        let is_long = self.stream.below(LONG_EVERY) == 0;
        let most = if is_long { self.most.0 } else { self.most.0 / SHORT_PART };
        let drawn = earliest + Nanos(self.stream.below(most + 1));
        let last = self.last.entry(lane).or_insert(drawn);
        *last = drawn.max(*last);
        *last
    }

    /// Returns how much of what is under way to an abandoned peer it still gets, by when it arrives.
    pub(super) fn cut(&mut self, now: LocalNs) -> LocalNs {
        now + Nanos(self.stream.below(self.most.0 + 1))
    }
}

impl MemoryFabric {
    /// Draws how much longer than the latency each message and write takes, up to `most`: order is
    /// kept for each two ends among writes, and among messages of one class. Sends end when they
    /// have arrived, and [`crate::wire::Operation::Abandon`] ends what is under way to a peer, which may get a
    /// part of it. For ends that stay in the fabric.
    pub fn draw_delays(&mut self, most: Nanos) {
        self.lanes = Some(Lanes::new(most, self.config.seed));
        self.wires.iter_mut().for_each(|wire| wire.acknowledges = true);
    }

    /// Ends what is under way from `from` to `to`: what would arrive late does not arrive at all.
    pub(super) fn abandon(&mut self, from: Rank, to: Rank) {
        let Some(cut) = self.lanes.as_mut().map(|lanes| lanes.cut(self.now)) else { return };
        let mut flushed = Vec::new();
        let mut lost = 0;
        self.under_way.retain(|(at, _), (target, flight)| {
            if *target != to || flight.lane(to).is_none_or(|(sender, ..)| sender != from) {
                return true;
            }
            if let InFlight::Message { token, .. } | InFlight::Write { token, .. } = flight {
                flushed.extend(token.take());
            }
            let arrives = *at <= cut;
            lost += usize::from(!arrives && matches!(flight, InFlight::Message { .. }));
            arrives
        });
        (0..lost).for_each(|_| self.wires[from.index()].landed_one());
        flushed.into_iter().for_each(|token| self.answer(from, Some(token), Status::Flushed, 0));
    }
}

#[cfg(test)]
mod tests {
    //! Delays that are drawn, and peers that are given up meanwhile.

    use super::super::MemoryConfig;
    use super::*;
    use crate::wire::{Arrival, Destination, HeadRef, Operation, PathId, Span, Token, Wire};

    const MOST: Nanos = Nanos::from_micros(100);

    #[test]
    fn arrival__a_lane_keeps_its_order_and_others_overtake_it() {
        let mut lanes = Lanes::new(MOST, 1);
        let lane = |class| (Rank(0), Rank(1), class);
        let mut overtaken = 0;
        let mut last = LocalNs(0);
        for now in (0..100_000).step_by(1_000).map(LocalNs) {
            let control = lanes.arrival(lane(Some(Class::Control)), now);
            assert!(control >= last && control >= now && control <= now + MOST);
            last = control;
            overtaken += usize::from(lanes.arrival(lane(None), now + Nanos(1)) < control);
        }
        assert!(overtaken > 5, "{overtaken}");
    }

    #[test]
    fn draw_delays__every_send_to_an_abandoned_peer_ends_once_and_what_follows_arrives() {
        let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
        fabric.draw_delays(MOST);
        let send = |number: u8| Operation::Send {
            to: Destination::One(Rank(1)),
            path: PathId(0),
            class: Class::Control,
            head: HeadRef { start: u32::from(number), length: 1 },
            body: Span::EMPTY,
            token: Some(Token(u64::from(number))),
        };
        let heads: Vec<u8> = (0..51).collect();
        let mut operations: Vec<Operation> = (0..50).map(send).collect();
        operations.extend([Operation::Abandon { peer: Rank(1) }, send(50)]);
        fabric.wire(Rank(0)).post(&operations, &heads, &mut Vec::new());
        fabric.advance(LocalNs(10_000_000));
        fabric.advance(LocalNs(20_000_000));
        let (mut ended, mut heard) = (Vec::new(), Vec::new());
        fabric.wire(Rank(0)).poll(1000, &mut |arrival| {
            if let Arrival::Done { token, status, .. } = arrival {
                ended.push((token.0, status));
            }
        });
        fabric.wire(Rank(1)).poll(1000, &mut |arrival| {
            if let Arrival::Datagram(datagram) = arrival {
                heard.extend_from_slice(datagram.head);
            }
        });
        ended.sort_by_key(|(token, _)| *token);
        let flushed = (0..50).map(|token| (token, Status::Flushed));
        let wanted: Vec<_> = flushed.chain([(50, Status::Complete)]).collect();
        assert_eq!(ended, wanted);
        assert!(heard.is_sorted() && heard.last() == Some(&50), "{heard:?}");
    }
}
