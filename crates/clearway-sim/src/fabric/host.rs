//! Hosts' interfaces: messages wait by connection, one engine fetches packets from memory, another places them.
//!
//! # Model
//! A post reaches the interface after `transmit_delay`. Each lane of a port has a ring of connections (a target and a class)
//! that take turns packet by packet. A packet exists from the moment it starts on the wire: what waits is messages, so
//! whatever slows a connection down acts on everything that has not left yet.
//!
//! # Invariants
//! I1. Messages of one connection leave in the order of their posts.

use std::collections::VecDeque;

use super::control::Gate;
use super::multicast::Membership;
use super::parts::{Credit, Message, Next, Origin, Packet};
use super::pool::NONE;
use crate::arbiter::Choice;

use super::{Fabric, Kind, Marked, Notice, Order, Payload, Reports, Target, Trains};
use crate::graph::DeviceId;
use crate::time::Picos;

/// A host's interface.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Posts on their way to the interface, by time.
    pub(super) posts: VecDeque<(u64, u32)>,
    /// When the engine that fetches from memory is free.
    pub(super) fetch_free: u64,
    /// When the engine that places into memory is free.
    pub(super) place_free: u64,
    /// Messages so far.
    pub(super) messages: u64,
}

/// Messages of one host to one target in one class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    /// Host, target and class: how to find it.
    pub(super) key: (u32, u32, u8),
    /// Its queue while it has messages that have not left.
    pub(super) queue: u32,
    /// Messages that are not over.
    pub(super) alive: u32,
    /// Packets that left and are neither there nor lost.
    pub(super) in_network: u32,
    /// What holds it back.
    pub(super) gate: Gate,
}

impl Fabric {
    /// Takes `order`, which the host's program posts at `at`.
    ///
    /// # Panics
    /// When `at` lies in the past, or the order names a host or port that is not there: a mistake of the caller.
    pub fn post(&mut self, at: Picos, order: Order) {
        assert!(at.0 >= self.now, "a post in the past");
        let from = order.from;
        let is_host = |host: DeviceId| self.network.graph.is_host(host);
        assert!(is_host(from), "no such host");
        let membership = match order.to {
            Target::Host(target) => {
                assert!(is_host(target), "no such host");
                None
            }
            Target::Group(group) => Some(Membership::Joined(group)),
            Target::Range(first, last) => {
                assert!(is_host(first) && is_host(last), "no such host");
                Some(Membership::Range(first.0, last.0))
            }
        };
        let target = if let Target::Host(target) = order.to { target.0 } else { NONE };
        let ports = self.network.graph.ports(from);
        let port = ports.start + u32::from(order.rail);
        assert!(ports.contains(&port), "no such port");
        let packets = order.bytes.div_ceil(u64::from(self.constants.payload)).max(1);
        let host = &mut self.hosts[from.index()];
        let id = u64::from(from.0) << 40 | host.messages;
        host.messages += 1;
        let class = order.class.index() as u8;
        let key = (from.0, if self.constants.in_order { NONE } else { target }, class);
        let message = self.messages.put(Message {
            id,
            tag: order.tag,
            from: from.0,
            target,
            port,
            connection: NONE,
            flow_hash: (super::digest::mix(u64::from(from.0) << 32 | u64::from(target) ^ u64::from(class) << 60) >> 32)
                as u32,
            bytes: order.bytes,
            sent: 0,
            packets: u32::try_from(packets).expect("a message of less than four billion packets"),
            started: 0,
            resolved: 0,
            sent_at: u64::MAX,
            deliver_at: u64::MAX,
            next: NONE,
            reports: order.reports,
            level: self.constants.level[order.class.index()],
            marked: false,
            corrupt: false,
            lost: false,
            over: false,
        });
        self.messages[message].connection = self.connect(key);
        self.trace_post(message, at.0);
        if let Some(membership) = membership {
            let tree = self.cast_to(from.0, membership);
            if self.nobody(tree) {
                self.forget(message);
                return;
            }
            self.begin_cast(message, tree);
        }
        let due = at.0 + self.constants.transmit_delay;
        let posts = &mut self.hosts[from.index()].posts;
        let place = posts.partition_point(|(time, _)| *time <= due);
        let first_of_its_instant = place == 0 || posts[place - 1].0 < due;
        posts.insert(place, (due, message));
        if first_of_its_instant {
            self.schedule(due, Kind::Post, from.0, 0);
        }
    }

    /// The connection of `key`, with one message more.
    fn connect(&mut self, key: (u32, u32, u8)) -> u32 {
        let connections = &mut self.connections;
        let own = &mut self.connection_of[key.0 as usize];
        let place = match own.binary_search_by_key(&(key.1, key.2), |(k, _)| *k) {
            Ok(at) => own[at].1,
            Err(at) => {
                let place = connections.put(Connection { key, queue: NONE, alive: 0, in_network: 0, gate: Gate::Open });
                own.insert(at, ((key.1, key.2), place));
                place
            }
        };
        connections[place].alive += 1;
        place
    }

    /// A message is over.
    fn forget(&mut self, message: u32) {
        let connection = self.messages[message].connection;
        self.messages.free(message);
        let it = &mut self.connections[connection];
        it.alive -= 1;
        if it.alive == 0 && matches!(it.gate, Gate::Open) {
            let key = it.key;
            let own = &mut self.connection_of[key.0 as usize];
            if let Ok(at) = own.binary_search_by_key(&(key.1, key.2), |(k, _)| *k) {
                own.remove(at);
            }
            self.connections.free(connection);
        }
    }

    /// The posts of `host` that are due reach its interface.
    pub(super) fn posted(&mut self, host: u32) {
        while let Some((due, message)) = self.hosts[host as usize].posts.front().copied()
            && due <= self.now
        {
            self.hosts[host as usize].posts.pop_front();
            self.accept(message);
        }
    }

    /// `message` reaches the interface.
    fn accept(&mut self, message: u32) {
        let Message { port, connection, level, .. } = self.messages[message];
        let same = match self.ports[port as usize].train {
            NONE => true,
            train => {
                matches!(self.trains[train].origin, Origin::Message(before) if self.connection_still(before, train) == connection)
            }
        };
        if !same {
            self.disturb(port);
        }
        let queue = self.connections[connection].queue;
        if queue == NONE {
            let bytes = self.next_bytes(message);
            let queue = self.new_queue(connection, message, bytes);
            self.connections[connection].queue = queue;
            let opens = self.gate_opens(connection);
            if opens > self.now {
                self.schedule(opens, Kind::Pace, port, connection);
            } else {
                let lane = self.lane_of(port, level, 0);
                self.enter(port, lane, queue);
            }
        } else {
            let tail = self.queues[queue].tail;
            self.messages[tail].next = message;
            self.queues[queue].tail = message;
        }
        self.trace_accept(message);
        self.touch(port);
    }

    /// The connection of a train's message while packets of it are still to start; a message that is over has none.
    fn connection_still(&self, message: u32, train: u32) -> u32 {
        let it = &self.trains[train];
        let last = it.start + u64::from(it.count - 1) * it.gap;
        if last >= self.now { self.messages[message].connection } else { NONE }
    }

    /// Bytes on the wire of the next packet of `message`: at least one, because everything takes time.
    fn next_bytes(&self, message: u32) -> u32 {
        (self.next_payload(message) + self.constants.header).max(1)
    }

    /// Bytes of payload of the next packet of `message`.
    fn next_payload(&self, message: u32) -> u32 {
        let it = &self.messages[message];
        (it.bytes - it.sent).min(u64::from(self.constants.payload)) as u32
    }

    /// The next packet (or train) of the connection whose turn it is on `lane` starts now.
    pub(super) fn inject(&mut self, port: u32, lane: u32, choice: Choice) {
        let queue = self.turn_of(lane);
        let message = self.queues[queue].head;
        let bytes = self.queues[queue].bytes;
        let payload = self.next_payload(message);
        let serial = self.ports[port as usize].pace.time(bytes).0;
        let fetch = self.constants.memory.time(bytes).0;
        let gap = serial.max(fetch);
        let count = self.train_length(port, lane, queue, message);
        self.end_train(port);
        let it = &mut self.messages[message];
        let number = it.started;
        it.started += count;
        it.sent += u64::from(payload) * u64::from(count);
        let (over, target, from) = (it.started == it.packets, it.target, it.from);
        let (flow_hash, level, id) = (it.flow_hash, it.level, it.id);
        let packet_hash = self.packet_hash(id, number);
        let it = &self.messages[message];
        let connection = it.connection;
        let next = if over { it.next } else { message };
        self.connections[connection].in_network += count;
        self.pass_gate(connection, target, bytes);
        if over {
            // Behind a token bucket it is through before its time is over.
            let last = if self.ports[port as usize].at_once { 1 } else { serial };
            let it = &mut self.messages[message];
            it.sent_at = self.now + u64::from(count - 1) * gap + last;
            let at = it.sent_at;
            if it.reports != Reports::Delivery {
                self.schedule(at, Kind::Sent, from, message);
            }
        }
        self.turn_over(port, lane, next);
        self.hosts[from as usize].fetch_free = self.now + u64::from(count - 1) * gap + fetch;
        let packet = self.packets.put(Packet {
            tail_at: 0,
            gap,
            message,
            bytes,
            number,
            target,
            in_channel: NONE,
            out: port,
            via: crate::routing::Transit::DIRECT,
            next: NONE,
            share: NONE,
            hold: NONE,
            source: from,
            flow_hash,
            packet_hash,
            level,
            marked: false,
            count,
            in_lane: 0,
            hops: 0,
            step: 0,
        });
        if count > 1 {
            self.remember(port, lane, packet, NONE, Origin::Message(message), choice, self.now);
        } else {
            self.grant(port, lane, choice);
        }
        self.send(port, lane, packet, self.now);
    }

    /// The connection whose turn it was on `lane` goes on with message `next`, if there is one and it may.
    fn turn_over(&mut self, port: u32, lane: u32, next: u32) {
        let queue = self.turn_of(lane);
        let connection = self.queues[queue].source;
        if next == NONE {
            self.connections[connection].queue = NONE;
            self.leave(port, lane);
            self.queues.free(queue);
            return;
        }
        self.queues[queue].head = next;
        self.queues[queue].bytes = self.next_bytes(next);
        let opens = self.gate_opens(connection);
        if opens > self.now {
            self.leave(port, lane);
            self.schedule(opens, Kind::Pace, port, connection);
        } else {
            self.rotate(lane);
        }
    }

    /// How many packets can start as one.
    fn train_length(&mut self, port: u32, lane: u32, queue: u32, message: u32) -> u32 {
        if !self.constants.trains || self.options.trains == Trains::Off {
            return 1;
        }
        self.absorb(lane);
        let it = &self.messages[message];
        let lane = &self.lanes[lane as usize];
        let alone = self.ports[port as usize].occupied.count_ones() == 1 && self.queues[queue].next == queue;
        if !alone || !lane.credited || it.target == NONE {
            return 1;
        }
        let full = (it.bytes - it.sent) / u64::from(self.constants.payload);
        let room = lane.free / (self.constants.payload + self.constants.header);
        full.min(u64::from(room)).max(1) as u32
    }

    /// The last `taken` packets of a train have not started yet: they wait in their message again.
    pub(super) fn take_back(&mut self, message: u32, port: u32, taken: u32) {
        let bytes = self.constants.payload + self.constants.header;
        let it = &mut self.messages[message];
        let over = it.started == it.packets;
        it.started -= taken;
        it.sent -= u64::from(taken) * u64::from(self.constants.payload);
        it.sent_at = u64::MAX;
        let (connection, level, from) = (it.connection, it.level, it.from);
        let in_network = &mut self.connections[connection].in_network;
        *in_network = in_network.saturating_sub(taken);
        let last_start = self.ports[port as usize].busy_until - self.ports[port as usize].pace.time(bytes).0;
        self.hosts[from as usize].fetch_free = last_start + self.constants.memory.time(bytes).0;
        let queue = self.connections[connection].queue;
        if queue == NONE {
            self.messages[message].next = NONE;
            let queue = self.new_queue(connection, message, bytes);
            self.connections[connection].queue = queue;
            let lane = self.lane_of(port, level, 0);
            self.enter(port, lane, queue);
            self.ports[port as usize].waiting_since = last_start;
        } else {
            if over {
                self.messages[message].next = self.queues[queue].head;
                self.queues[queue].head = message;
            }
            self.queues[queue].bytes = bytes;
        }
        self.touch(port);
    }

    /// Whether placing `bytes` takes the host behind `port` longer than receiving them.
    pub(super) fn slow(&self, port: u32, bytes: u32) -> bool {
        self.placing_time(port, bytes) > self.ports[port as usize].pace.time(bytes).0
    }

    /// The (first) tail of `packet` comes in at the host behind `channel` at `tail`: now, or in a future that is certain but
    /// for a train being parted.
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
            let credit = Credit { at: placed + back, gap: it.gap, bytes: it.bytes, left: it.count, next: NONE };
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
            self.trains[train].next = if counted { Next::Host(record) } else { Next::SlowHost(record) };
        }
        if counted {
            self.resolve_at(&it, host, it.count, last);
        } else {
            self.schedule(last, Kind::Taken, channel, packet);
        }
    }

    /// A train that a slow host cannot take in as one.
    fn part_at_host(&mut self, packet: u32) {
        let first = self.packets[packet];
        let (count, number, tail_at) = (first.count - 1, first.number + 1, first.tail_at + first.gap);
        self.packets[packet].count = 1;
        let rest = self.packets.put(Packet { count, number, tail_at, ..first });
        self.schedule(tail_at, Kind::Arrive, first.in_channel, rest);
        let train = self.ports[first.in_channel as usize].train;
        if train != NONE && self.trains[train].piece == packet {
            self.trains[train].piece = rest;
            self.trains[train].base += 1;
            self.trains[train].next = Next::Pending;
        }
    }

    /// The last tail of a train, or of what was left of it, has come in.
    pub(super) fn taken(&mut self, channel: u32, packet: u32) {
        let (it, host) = (self.packets[packet], self.ports[channel as usize].to);
        self.resolve_at(&it, host, it.count, self.now);
        self.packets.free(packet);
    }

    /// `packet` and its train, if any, start on the way to the host behind `port`: the digest and the totals count them with
    /// the times at which they will be there.
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

    /// Of the train `packet` on the way to the host behind `port` only the first `keep` packets come when they were to come.
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

    /// `count` packets of the message of `packet` are in the memory of `host` at `at`.
    fn resolve_at(&mut self, packet: &Packet, host: u32, count: u32, at: u64) {
        if packet.target == NONE {
            self.resolve_member(packet.message, host, at, false);
        } else {
            self.resolve(packet.message, count, at);
        }
    }

    /// `count` packets of `message` are in memory or lost at `at`.
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
            let at = at + self.constants.receive_delay;
            self.messages[message].deliver_at = at;
            self.schedule(at, Kind::Deliver, target, message);
        }
    }

    /// All of `message` is in the memory of `host`.
    pub(super) fn delivered(&mut self, host: u32, message: u32) {
        let it = &mut self.messages[message];
        let cast = it.target == NONE;
        if !cast && it.deliver_at != self.now {
            return;
        }
        it.deliver_at = u64::MAX;
        let marked = if it.marked { Marked::Yes } else { Marked::No };
        let (tag, from, all) = (it.tag, it.from, it.reports == Reports::All);
        let corrupt = it.corrupt || cast && self.is_spoilt(message, host);
        let payload = if corrupt { Payload::Corrupt } else { Payload::Intact };
        let to = DeviceId(host);
        self.trace_delivery(host, message);
        self.notices.push(Notice::Delivered { tag, to, at: Picos(self.now), marked, payload });
        if cast {
            self.member_over(message);
        } else if all {
            let back = self.acknowledgement_delay(host, from);
            self.schedule(self.now + back, Kind::Acknowledge, from, message);
        } else {
            self.forget(message);
        }
    }

    /// Every member of the multicast `message` has it or has lost it.
    pub(super) fn cast_over(&mut self, message: u32) {
        if self.messages[message].reports == Reports::All {
            let from = self.messages[message].from;
            self.schedule(self.now + 1, Kind::Acknowledge, from, message);
        } else {
            self.finish(message);
        }
    }

    /// Nothing more comes of `message` at its receivers: it is over as soon as its last byte has left its host.
    fn finish(&mut self, message: u32) {
        let it = &mut self.messages[message];
        if it.reports != Reports::Delivery && it.sent_at != u64::MAX {
            it.over = true;
        } else {
            self.forget(message);
        }
    }

    /// The sender knows that `message` was delivered.
    pub(super) fn acknowledged(&mut self, message: u32) {
        let (tag, from) = (self.messages[message].tag, DeviceId(self.messages[message].from));
        self.notices.push(Notice::Acknowledged { tag, from, at: Picos(self.now) });
        self.forget(message);
    }

    /// The last byte of `message` has left, unless packets of it were taken back meanwhile.
    pub(super) fn sent(&mut self, message: u32) {
        let it = &mut self.messages[message];
        if it.sent_at == self.now {
            it.sent_at = u64::MAX;
            let (tag, from) = (it.tag, DeviceId(it.from));
            self.notices.push(Notice::Sent { tag, from, at: Picos(self.now) });
            if self.messages[message].over {
                self.forget(message);
            }
        }
    }
}
