//! Follows one message through the ports: what waits, since when, and for what; what became of each
//! of its packets.
//!
//! # Model
//! The fabric shows what it does; nothing here is asked for a decision. A waiter stands for a
//! packet at a port, or for all that is still to come in the message's host. It has one cause at a
//! time; what a cause took is added up when it changes.
//!
//! # Invariants
//! I1. The fabric is only read.
//! I2. The causes of a wait add up to the wait.

use std::collections::BTreeMap;

use super::{CongestionChain, Hop, MessageId, Trace, Wait, WaitCause};
use crate::fabric::Fabric;
use crate::fabric::parts::{Message, Packet};
use crate::fabric::pool::NONE;
use crate::graph::{ChannelId, DeviceId};
use crate::time::Picos;

/// A packet that waits, or the message in its host.
#[derive(Debug)]
struct Waiter {
    /// `NONE` for the message in its host.
    number: u32,
    port: u32,
    /// By its global number.
    lane: u32,
    input: u32,
    arrived: u64,
    /// Whether it stands at its port.
    queued: bool,
    since: u64,
    cause: WaitCause,
    /// The transmission for which `cause` was found.
    judged: u64,
    waits: Vec<Wait>,
}

/// What a port sent last, and the place of that in all that was sent.
#[derive(Clone, Copy, Debug)]
struct Sending {
    message: u64,
    serial: u64,
}

/// The last packet at a host: when its tail came and when it was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LastPacket {
    placed: u64,
    tail: u64,
    number: u32,
    port: u32,
}

/// Follows one message.
#[derive(Debug)]
pub(in crate::fabric) struct Tracer {
    key: u64,
    /// The message as it was posted, and when.
    message: Option<(Message, u64)>,
    waiters: Vec<Waiter>,
    /// By packet and port.
    hops: BTreeMap<(u32, u32), Hop>,
    taken: Option<LastPacket>,
    delivered: Option<u64>,
    lost: Option<(u32, u64)>,
    chains: Vec<CongestionChain>,
    sending: Vec<Sending>,
    sends: u64,
}

impl Waiter {
    /// Sets what it waits for to `cause` from `now` on.
    fn turn_to(&mut self, cause: WaitCause, now: u64) {
        let length = Picos(now - self.since);
        if length > Picos::ZERO {
            match self.waits.iter_mut().find(|wait| wait.cause == self.cause) {
                Some(wait) => {
                    wait.length += length;
                    // Looking twice for the same reason is one wait; each turn of another is one.
                    wait.times += u32::from(
                        cause != self.cause || matches!(cause, WaitCause::Turn(_) | WaitCause::Own),
                    );
                }
                None => self.waits.push(Wait { cause: self.cause, times: 1, length }),
            }
        }
        self.since = now;
        self.cause = cause;
    }
}

impl Tracer {
    pub(super) fn new(key: u64, ports: usize) -> Self {
        Self {
            key,
            message: None,
            waiters: Vec::new(),
            hops: BTreeMap::new(),
            taken: None,
            delivered: None,
            lost: None,
            chains: Vec::new(),
            sending: vec![Sending { message: u64::MAX, serial: 0 }; ports],
            sends: 0,
        }
    }

    pub(super) fn is_own(&self, fabric: &Fabric, message: u32) -> bool {
        fabric.messages[message].id == self.key
    }

    pub(super) fn accepted(&mut self, fabric: &Fabric, message: u32) {
        let Message { port, level, .. } = fabric.messages[message];
        self.wait(fabric, NONE, port, fabric.lane_of(port, level, 0), NONE, WaitCause::Own);
        self.enqueue(fabric, NONE, port);
    }

    /// Records that something begins to wait; [`Tracer::stand`] says where it stands.
    fn wait(
        &mut self,
        fabric: &Fabric,
        number: u32,
        port: u32,
        lane: u32,
        input: u32,
        cause: WaitCause,
    ) {
        let (arrived, since) = (fabric.now, fabric.now);
        let (queued, judged, waits) = (false, 0, Vec::new());
        self.waiters.push(Waiter {
            number,
            port,
            lane,
            input,
            arrived,
            queued,
            since,
            cause,
            judged,
            waits,
        });
    }

    fn enqueue(&mut self, fabric: &Fabric, number: u32, port: u32) {
        if let Some(it) = self.waiters.iter_mut().find(|it| (it.number, it.port) == (number, port))
        {
            it.turn_to(WaitCause::Own, fabric.now);
            it.queued = true;
        }
    }

    pub(super) fn arrived(&mut self, fabric: &Fabric, packet: &Packet) {
        let lane = fabric.lane_of(packet.out, packet.level, packet.step);
        let cause = if fabric.fifos.is_empty() { WaitCause::Tail } else { WaitCause::Input };
        self.wait(fabric, packet.number, packet.out, lane, packet.in_channel, cause);
    }

    pub(super) fn queued(&mut self, fabric: &Fabric, packet: &Packet) {
        // Copies of a multicast come without having been routed here.
        if !self.waiters.iter().any(|it| (it.number, it.port) == (packet.number, packet.out)) {
            self.arrived(fabric, packet);
        }
        self.enqueue(fabric, packet.number, packet.out);
    }

    /// Records that `packet` starts on `port`; it still knows where it came from.
    pub(super) fn started(&mut self, fabric: &Fabric, port: u32, lane: u32, packet: u32) {
        let it = fabric.packets[packet];
        let own = self.is_own(fabric, it.message);
        self.sends += 1;
        self.sending[port as usize] =
            Sending { message: fabric.messages[it.message].id, serial: self.sends };
        if own {
            self.leave(fabric, port, lane, &it);
        }
        for i in 0..self.waiters.len() {
            let waiter = &self.waiters[i];
            if waiter.port != port || !waiter.queued {
                continue;
            }
            let barred = if waiter.lane == lane { None } else { self.barred(fabric, i) };
            let chosen = if own {
                WaitCause::Own
            } else {
                WaitCause::Turn((it.in_channel != NONE).then_some(ChannelId(it.in_channel)))
            };
            let waiter = &mut self.waiters[i];
            waiter.turn_to(barred.unwrap_or(chosen), fabric.now);
            waiter.judged = self.sends;
        }
    }

    /// Records that `packet`, which is ours, leaves `port`. In its host the packets behind it
    /// continue to wait.
    fn leave(&mut self, fabric: &Fabric, port: u32, lane: u32, packet: &Packet) {
        let at_source = packet.in_channel == NONE;
        let number = if at_source { NONE } else { packet.number };
        let Some(place) = self.waiters.iter().position(|it| (it.number, it.port) == (number, port))
        else {
            return;
        };
        self.waiters[place].turn_to(WaitCause::Own, fabric.now);
        let mut waits = self.waiters[place].waits.clone();
        waits.sort_by_key(|wait| (std::cmp::Reverse(wait.length), wait.cause));
        let hop = Hop {
            channel: ChannelId(port),
            lane: lane % fabric.lanes_per_port,
            input: (!at_source).then_some(ChannelId(packet.in_channel)),
            arrived: Picos(self.waiters[place].arrived),
            started: Picos(fabric.now),
            waits,
        };
        self.hops.insert((packet.number, port), hop);
        let message = &fabric.messages[packet.message];
        if !at_source || message.started == message.packets {
            self.waiters.swap_remove(place);
        }
    }

    /// Records that `port` was arbitrated: what still waits there waits for a reason.
    pub(super) fn looked(&mut self, fabric: &Fabric, port: u32) {
        for i in 0..self.waiters.len() {
            let waiter = &self.waiters[i];
            if waiter.port != port || !waiter.queued {
                continue;
            }
            if let Some(cause) = self.reason(fabric, i) {
                self.waiters[i].turn_to(cause, fabric.now);
            }
        }
    }

    /// Returns why the waiter does not move now; `None` when that is known already.
    fn reason(&mut self, fabric: &Fabric, waiter: usize) -> Option<WaitCause> {
        let port = &fabric.ports[self.waiters[waiter].port as usize];
        if port.busy_until > fabric.now && port.up {
            let Sending { message, serial } = self.sending[self.waiters[waiter].port as usize];
            if std::mem::replace(&mut self.waiters[waiter].judged, serial) == serial {
                return None;
            }
            let sending = if message == self.key {
                WaitCause::Own
            } else {
                WaitCause::Busy(MessageId::from_key(message))
            };
            return Some(if self.is_held_back(fabric, waiter) {
                WaitCause::HeldBack
            } else {
                sending
            });
        }
        if let Some(barred) = self.barred(fabric, waiter) {
            return Some(barred);
        }
        let device = fabric.network.graph.channels()[self.waiters[waiter].port as usize].from;
        (port.from_host && fabric.hosts[device.index()].fetch_free > fabric.now)
            .then_some(WaitCause::Memory)
    }

    /// Returns what keeps the waiter from being chosen at all.
    fn barred(&mut self, fabric: &Fabric, waiter: usize) -> Option<WaitCause> {
        let Waiter { port, lane, .. } = self.waiters[waiter];
        let (port, it) = (&fabric.ports[port as usize], &fabric.lanes[lane as usize]);
        if !port.up || it.stuck {
            return Some(WaitCause::Down);
        }
        if port.held {
            return Some(WaitCause::Kept);
        }
        if self.is_held_back(fabric, waiter) {
            return Some(WaitCause::HeldBack);
        }
        if it.paused {
            return Some(WaitCause::Pause);
        }
        fabric.lacks_room(lane).then(|| WaitCause::Credit(self.chain_from(fabric, lane)))
    }

    fn is_held_back(&self, fabric: &Fabric, waiter: usize) -> bool {
        let Some((message, _)) = &self.message else { return false };
        let at_source = self.waiters[waiter].input == NONE;
        let queue = fabric.connections[message.connection].queue;
        at_source && queue != NONE && fabric.queues[queue].lane == NONE
    }

    /// Returns the number of the chain that begins at `lane` now.
    fn chain_from(&mut self, fabric: &Fabric, lane: u32) -> usize {
        let chain = fabric.chain(lane);
        match self.chains.iter().position(|known| known.is_like(&chain)) {
            Some(known) => {
                self.chains[known].grow(&chain);
                known
            }
            None => {
                self.chains.push(chain);
                self.chains.len() - 1
            }
        }
    }

    /// Records that the message was posted at `at`.
    pub(super) fn posted(&mut self, message: Message, at: u64) {
        self.message = Some((message, at));
    }

    /// Records that one of its packets comes in at the host behind `port` at `tail` and is in
    /// memory at `placed`.
    pub(super) fn taken(&mut self, port: u32, number: u32, tail: u64, placed: u64) {
        self.taken = self.taken.max(Some(LastPacket { placed, tail, number, port }));
    }

    /// Records that one of its packets is dropped.
    pub(super) fn dropped(&mut self, fabric: &Fabric, packet: &Packet) {
        self.waiters.retain(|it| (it.number, it.port) != (packet.number, packet.out));
        self.lost = self.lost.or(Some((packet.in_channel, fabric.now)));
    }

    /// Records that the message is delivered to somebody.
    pub(super) fn delivered(&mut self, fabric: &Fabric) {
        self.delivered = Some(fabric.now);
    }

    /// Returns what is known of the message; `None` when it was not posted.
    pub(super) fn finished_trace(&self, fabric: &Fabric) -> Option<Trace> {
        let (message, posted) = self.message?;
        let last = self.taken;
        Some(Trace {
            id: MessageId::from_key(self.key),
            to: last.map(|last| DeviceId(fabric.ports[last.port as usize].to)),
            bytes: message.bytes,
            packets: message.packets,
            posted: Picos(posted),
            hops: last.map_or_else(Vec::new, |last| self.way(last)),
            tail: Picos(last.map_or(0, |last| last.tail)),
            placed: Picos(last.map_or(0, |last| last.placed)),
            delivered: self.delivered.map(Picos),
            lost: self.lost.map(|(port, at)| (ChannelId(port), Picos(at))),
            chains: self.chains.clone(),
        })
    }

    /// Returns the ports of the packet that came last, in order.
    fn way(&self, last: LastPacket) -> Vec<Hop> {
        let mut way = Vec::new();
        let mut port = Some(ChannelId(last.port));
        while let Some(hop) = port.and_then(|port| self.hops.get(&(last.number, port.0))) {
            way.push(hop.clone());
            port = hop.input;
        }
        way.reverse();
        way
    }
}
