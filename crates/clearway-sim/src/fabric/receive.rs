//! Hosts' interfaces, the receiving side: an engine places packets into memory, and a message is
//! over when all of it is there.
//!
//! # Model
//! What a host does with a packet is known when the packet is sent to it. So digest and totals
//! count it then, with the time at which it will be there; only a train that is parted takes that
//! back.

use super::digest::mix;
use super::parts::{CreditReturn, Packet, TrainEnd};
use super::pool::NONE;
use super::{EcnMark, Fabric, FabricConstants, FabricEventKind, Notice, NoticeSet, Payload};
use crate::graph::DeviceId;
use crate::time::Picos;
use crate::traffic::exponential;

impl Fabric {
    /// Returns whether placing `bytes` takes the host behind `port` longer than receiving them.
    pub(super) fn slow(&self, port: u32, bytes: u32) -> bool {
        self.placing_time(port, bytes) > self.ports[port as usize].pace.time(bytes).0
    }

    /// Receives the (first) tail of `packet` at the host behind `channel` at `tail`: now, or in a
    /// future that is certain but for a train being parted.
    pub(super) fn receive(&mut self, channel: u32, packet: u32, tail: u64) {
        let slow = self.slow(channel, self.packets[packet].bytes);
        if slow && self.packets[packet].count > 1 {
            self.part_at_host(packet);
        }
        let it = self.packets[packet];
        if it.marked {
            self.marked(it.message);
        }
        let port = &self.ports[channel as usize];
        let (host, back, lane) = (port.to, port.back, port.first_lane + u32::from(it.in_lane));
        let mut placed = tail;
        let behind = self.faults.is_some() && self.hosts[host as usize].place_free > tail;
        if slow || behind {
            let time = self.placing_time(channel, it.bytes);
            // Placing begins with the first byte, at the earliest.
            let head = tail.saturating_sub(self.ports[channel as usize].pace.time(it.bytes).0);
            let free = &mut self.hosts[host as usize].place_free;
            placed = tail.max(head.max(*free) + time);
            *free = placed;
        }
        self.trace_taken(channel, packet, tail, placed);
        let mut record = NONE;
        if self.lanes[lane as usize].credited {
            let credit = CreditReturn {
                at: placed + back,
                gap: it.gap,
                bytes: it.bytes,
                left: it.count,
                next: NONE,
            };
            record = self.give_credit(channel, lane, credit);
        }
        if it.count == 1 {
            self.resolve_at(&it, host, 1, placed);
            self.packets.free(packet);
            return;
        }
        let last = tail + u64::from(it.count - 1) * it.gap;
        let counted = tail > self.now;
        let train = self.ports[channel as usize].train;
        if train != NONE && self.trains[train].piece == packet {
            self.trains[train].next =
                if counted { TrainEnd::Host(record) } else { TrainEnd::SlowHost(record) };
        }
        if counted {
            self.resolve_at(&it, host, it.count, last);
        } else {
            self.schedule(last, FabricEventKind::Taken, channel, packet);
        }
    }

    /// Takes in, in parts, a train that a slow host cannot take in as one.
    fn part_at_host(&mut self, packet: u32) {
        let first = self.packets[packet];
        let (count, number, tail_at) =
            (first.count - 1, first.number + 1, first.tail_at + first.gap);
        self.packets[packet].count = 1;
        let rest = self.packets.put(Packet { count, number, tail_at, ..first });
        self.schedule(tail_at, FabricEventKind::Arrive, first.in_channel, rest);
        let train = self.ports[first.in_channel as usize].train;
        if train != NONE && self.trains[train].piece == packet {
            self.trains[train].piece = rest;
            self.trains[train].base += 1;
            self.trains[train].next = TrainEnd::Pending;
        }
    }

    /// Records that the last tail of a train, or of what was left of it, has come in.
    pub(super) fn taken(&mut self, channel: u32, packet: u32) {
        let (it, host) = (self.packets[packet], self.ports[channel as usize].to);
        self.resolve_at(&it, host, it.count, self.now);
        self.packets.free(packet);
    }

    /// Accounts for `packet` and its train, if any, which start on the way to the host behind
    /// `port`: the digest and the totals count them with the times at which they will be there.
    pub(super) fn account_delivery(&mut self, port: u32, packet: u32) {
        let host = self.ports[port as usize].to;
        let Packet { message, count, number, tail_at, gap, bytes, .. } = self.packets[packet];
        let id = self.messages[message].id;
        for i in 0..count {
            self.digest.delivered(host, id, number + i, tail_at + u64::from(i) * gap);
        }
        let totals = &mut self.statistics.totals;
        totals.packets += u64::from(count);
        totals.payload += u64::from(bytes - self.constants.header) * u64::from(count);
    }

    /// Withdraws all but the first `keep` packets of the train `packet` on the way to the host
    /// behind `port`; those come when they were to come.
    pub(super) fn withdraw_delivery(&mut self, port: u32, packet: u32, keep: u32) {
        let host = self.ports[port as usize].to;
        let Packet { message, count, number, tail_at, gap, bytes, .. } = self.packets[packet];
        let id = self.messages[message].id;
        for i in keep..count {
            self.digest.not_delivered(host, id, number + i, tail_at + u64::from(i) * gap);
        }
        let taken = count - keep;
        let totals = &mut self.statistics.totals;
        totals.packets -= u64::from(taken);
        totals.payload -= u64::from(bytes - self.constants.header) * u64::from(taken);
    }

    /// Records that `count` packets of the message of `packet` are in the memory of `host` at `at`.
    fn resolve_at(&mut self, packet: &Packet, host: u32, count: u32, at: u64) {
        if packet.target == NONE {
            self.resolve_member(packet.message, host, at, false);
        } else {
            self.resolve(packet.message, count, at);
        }
    }

    /// Records that `count` packets of `message` are in memory or lost at `at`.
    pub(super) fn resolve(&mut self, message: u32, count: u32, at: u64) {
        let it = &mut self.messages[message];
        let in_network = &mut self.connections[it.connection].in_network;
        *in_network = in_network.saturating_sub(count);
        it.resolved += count;
        assert!(it.resolved <= it.packets, "a packet arrives once");
        if it.resolved < it.packets {
            return;
        }
        let (lost, target, tag) = (it.lost, it.target, it.tag);
        if lost {
            self.notices.push(Notice::Lost { tag, to: DeviceId(target), at: Picos(at) });
            self.finish(message);
        } else {
            let at = at + self.handing_over(message, target);
            self.messages[message].deliver_at = at;
            self.schedule(at, FabricEventKind::Deliver, target, message);
        }
    }

    /// Returns the time from the last byte of `message` in the memory of `host` to its report. A
    /// function of both and of the seed, so that it does not matter in which order messages end.
    pub(super) fn handing_over(&self, message: u32, host: u32) -> u64 {
        let FabricConstants { receive_delay, receive_tail, seed, .. } = self.constants;
        if receive_tail == Picos::ZERO {
            return receive_delay;
        }
        let draw = mix(seed ^ mix(self.messages[message].id ^ mix(host.into())));
        receive_delay + exponential(receive_tail.0, draw)
    }

    /// Records that all of `message` is in the memory of `host`.
    pub(super) fn delivered(&mut self, host: u32, message: u32) {
        let it = &mut self.messages[message];
        let cast = it.target == NONE;
        if !cast && it.deliver_at != self.now {
            return;
        }
        it.deliver_at = u64::MAX;
        let marked = if it.marked { EcnMark::Yes } else { EcnMark::No };
        let (tag, from, all) = (it.tag, it.from, it.reports == NoticeSet::All);
        let corrupt = it.corrupt || cast && self.is_spoilt(message, host);
        let payload = if corrupt { Payload::Corrupt } else { Payload::Intact };
        let to = DeviceId(host);
        self.trace_delivery(host, message);
        self.notices.push(Notice::Delivered { tag, to, at: Picos(self.now), marked, payload });
        if cast {
            self.member_over(message);
        } else if all {
            let back = self.acknowledged_after(host, from);
            self.schedule(self.now + back, FabricEventKind::Acknowledge, from, message);
        } else {
            self.forget(message);
        }
    }

    /// Ends the multicast `message`: every member has it or has lost it.
    pub(super) fn cast_over(&mut self, message: u32) {
        if self.messages[message].reports == NoticeSet::All {
            let from = self.messages[message].from;
            self.schedule(self.now + 1, FabricEventKind::Acknowledge, from, message);
        } else {
            self.finish(message);
        }
    }

    /// Ends `message` at its receivers: it is over as soon as its last byte has left its host.
    fn finish(&mut self, message: u32) {
        let it = &mut self.messages[message];
        if it.reports != NoticeSet::Delivery && it.sent_at != u64::MAX {
            it.over = true;
        } else {
            self.forget(message);
        }
    }

    /// Records that the sender knows that `message` was delivered.
    pub(super) fn acknowledged(&mut self, message: u32) {
        let (tag, from) = (self.messages[message].tag, DeviceId(self.messages[message].from));
        self.notices.push(Notice::Acknowledged { tag, from, at: Picos(self.now) });
        self.forget(message);
    }
}
