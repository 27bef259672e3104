//! Hosts' interfaces, the sending side: messages wait by connection, and an engine fetches one
//! packet after the other.
//!
//! # Model
//! Each lane of a port has a ring of connections (a target and a class) that take turns packet by
//! packet. A packet exists from the moment it starts on the wire: what waits is messages, so
//! whatever slows a connection down acts on everything that has not left yet. Where an interface
//! serves whole messages, a connection keeps its turn to the end of one, and whose turn is next is
//! drawn; messages of one packet pass.
//!
//! # Invariants
//! I1. Messages of one connection leave in the order of their posts.
//!
//! # Not here
//! How messages come here (`post`), and what becomes of their packets at the other end (`receive`).

use std::collections::VecDeque;

use clearway_proto::base::BitsPerSec;

use super::control::SendGate;
use super::parts::{Packet, TrainOrigin};
use super::pool::NONE;
use super::{Fabric, FabricEventKind, Notice, NoticeSet, Trains};
use crate::arbiter::Choice;
use crate::graph::DeviceId;
use crate::time::{Pace, Picos};

/// A host's interface.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Posts on their way to the interface, by time.
    pub(super) posts: VecDeque<(u64, u32)>,
    /// When the engine that fetches from memory is free.
    pub(super) fetch_free: u64,
    /// Its rate, where this host has its own.
    pub(super) fetch: Option<Pace>,
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
    pub(super) gate: SendGate,
}

impl Fabric {
    /// Limits the fetches of the interface of `host` from memory to `rate` from now on: hosts that
    /// are not all alike, or one that others slow down for a while.
    pub fn limit_fetch(&mut self, host: DeviceId, rate: BitsPerSec) {
        self.hosts[host.index()].fetch = Some(Pace::from_rate(rate));
    }

    /// Returns how long the interface of `host` takes to fetch `bytes`.
    fn fetching_time(&self, host: u32, bytes: u32) -> u64 {
        self.hosts[host as usize].fetch.unwrap_or(self.constants.memory).time(bytes).0
    }

    /// Returns bytes on the wire of the next packet of `message`: at least one, because everything
    /// takes time.
    pub(super) fn next_bytes(&self, message: u32) -> u32 {
        (self.next_payload(message) + self.constants.header).max(1)
    }

    /// Returns the bytes of payload of the next packet of `message`.
    fn next_payload(&self, message: u32) -> u32 {
        let it = &self.messages[message];
        (it.bytes - it.sent).min(u64::from(self.constants.payload)) as u32
    }

    /// Starts the next packet (or train) of the connection whose turn it is on `lane` now.
    pub(super) fn inject(&mut self, port: u32, lane: u32, choice: Choice) {
        let queue = self.turn_of(lane);
        let message = self.queues[queue].head;
        let bytes = self.queues[queue].bytes;
        let payload = self.next_payload(message);
        let serial = self.ports[port as usize].pace.time(bytes).0;
        let fetch = self.fetching_time(self.messages[message].from, bytes);
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
            if it.reports != NoticeSet::Delivery {
                self.schedule(at, FabricEventKind::Sent, from, message);
            }
        }
        self.turn_over(port, lane, message, next);
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
            self.remember(
                port,
                lane,
                packet,
                NONE,
                TrainOrigin::Message(message),
                choice,
                self.now,
            );
        } else {
            self.grant(port, lane, choice);
        }
        self.send(port, lane, packet, self.now);
    }

    /// Continues with message `next` of the connection whose turn it was on `lane` and that sent of
    /// `message`, if there is one and it may.
    fn turn_over(&mut self, port: u32, lane: u32, message: u32, next: u32) {
        let queue = self.turn_of(lane);
        let connection = self.queues[queue].source;
        let keeps = self.constants.by_message && next == message;
        let draws =
            self.constants.by_message && next != message && self.messages[message].packets > 1;
        if next == NONE {
            self.connections[connection].queue = NONE;
            self.leave(port, lane);
            self.queues.free(queue);
        } else {
            self.queues[queue].head = next;
            self.queues[queue].bytes = self.next_bytes(next);
            let opens = self.gate_opens(connection);
            if opens > self.now {
                self.leave(port, lane);
                self.schedule(opens, FabricEventKind::Pace, port, connection);
            } else if !keeps {
                self.rotate(lane);
            }
        }
        if draws {
            self.draw_turn(lane, self.messages[message].id);
        }
    }

    /// Gives the turn on `lane` to one of its connections, drawn from the seed and the message that
    /// is over. O(connections).
    fn draw_turn(&mut self, lane: u32, over: u64) {
        let last = self.lanes[lane as usize].ring;
        if last == NONE {
            return;
        }
        let mut count = 1;
        let mut queue = self.queues[last].next;
        while queue != last {
            (count, queue) = (count + 1, self.queues[queue].next);
        }
        let steps = super::digest::mix(self.constants.seed ^ super::digest::mix(over)) % count;
        (0..steps).for_each(|_| self.rotate(lane));
    }

    /// Returns how many packets can start as one.
    fn train_length(&mut self, port: u32, lane: u32, queue: u32, message: u32) -> u32 {
        if !self.constants.trains || self.options.trains == Trains::Off {
            return 1;
        }
        self.absorb(lane);
        let it = &self.messages[message];
        let lane = &self.lanes[lane as usize];
        let alone = self.ports[port as usize].occupied.count_ones() == 1
            && self.queues[queue].next == queue;
        if !alone || !lane.credited || it.target == NONE {
            return 1;
        }
        let full = (it.bytes - it.sent) / u64::from(self.constants.payload);
        let room = lane.free / (self.constants.payload + self.constants.header);
        full.min(u64::from(room)).max(1) as u32
    }

    /// Takes back the last `taken` packets of a train, which have not started yet: they wait in
    /// their message again.
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
        let last_start =
            self.ports[port as usize].busy_until - self.ports[port as usize].pace.time(bytes).0;
        self.hosts[from as usize].fetch_free = last_start + self.fetching_time(from, bytes);
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

    /// Records that the last byte of `message` has left, unless packets of it were taken back
    /// meanwhile.
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
