//! Follows one message: where each of its packets waited, for how long, and for what.
//!
//! # Model
//! While a packet waits at a port its time is a row of segments with one cause each. A segment ends when something starts on
//! that port, or when the port was looked at in vain. Where the cause is missing room ahead, the ports are followed to the one
//! that fills the buffers (`chain`).
//!
//! # Invariants
//! I1. Watching changes no result.
//! I2. The causes of a wait add up to the wait.
//!
//! # Not here
//! Sentences for people: the caller's. Which messages are worth following (`slowest`).

mod chain;
mod slowest;

#[cfg(test)]
mod tests;

pub use chain::{Chain, Link, Root};
pub use slowest::{Among, Slow};

use std::collections::BTreeMap;

use super::parts::{Message, Packet};
use super::pool::NONE;
use super::{Events, Fabric, Trains};
use crate::graph::{ChannelId, DeviceId};
use crate::time::Picos;
use slowest::Ranking;

/// Names a message: the same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId {
    /// The sending host.
    pub from: DeviceId,
    /// Its place among what this host posted.
    pub number: u64,
}

impl MessageId {
    /// The bits of the number within the fabric's own name of a message.
    const NUMBER_BITS: u32 = 40;

    const fn of(key: u64) -> Self {
        Self { from: DeviceId((key >> Self::NUMBER_BITS) as u32), number: key & ((1 << Self::NUMBER_BITS) - 1) }
    }
}

/// Why a packet stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The port was sending a packet of this message when ours came.
    Busy(MessageId),
    /// The port sent an earlier packet of the same message.
    Own,
    /// A packet that came from this channel was chosen first; `None` for another message of the same host.
    Turn(Option<ChannelId>),
    /// The lane of the channel ahead had no room; where that comes from is in [`Trace::chains`].
    Credit(usize),
    /// The receiver asked for silence.
    Pause,
    /// Congestion control held the connection back in its host.
    HeldBack,
    /// The host's interface was fetching from memory.
    Memory,
    /// It was not the first of its input's queue.
    Input,
    /// The output is faster than the input: it would have overtaken its own tail.
    Tail,
    /// A multicast kept the port while it waited for others.
    Kept,
    /// A fault.
    Down,
}

/// Time that went to one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Why.
    pub cause: Cause,
    /// How often.
    pub times: u32,
    /// How long in all.
    pub length: Picos,
}

/// One port on a packet's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The port: the channel that it sends on.
    pub channel: ChannelId,
    /// The lane of it: virtual lanes in order, the steps of each side by side.
    pub lane: u32,
    /// Where the packet came from; `None` in its host.
    pub input: Option<ChannelId>,
    /// When its head (in its host: the message) was there.
    pub arrived: Picos,
    /// When it left.
    pub started: Picos,
    /// What it waited for in between, the longest first.
    pub waits: Vec<Wait>,
}

/// One message on its way, as its last packet saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Which.
    pub id: MessageId,
    /// Who got its last packet; `None` while nobody has.
    pub to: Option<DeviceId>,
    /// Its length without headers.
    pub bytes: u64,
    /// Packets that it makes.
    pub packets: u32,
    /// When its program posted it.
    pub posted: Picos,
    /// The ports of the packet that came last, in order.
    pub hops: Vec<Hop>,
    /// When that packet's last byte was at the host.
    pub tail: Picos,
    /// When it was in memory.
    pub placed: Picos,
    /// When the message was delivered to the last who gets it.
    pub delivered: Option<Picos>,
    /// Where and when the first packet was dropped.
    pub lost: Option<(ChannelId, Picos)>,
    /// What [`Cause::Credit`] names.
    pub chains: Vec<Chain>,
}

/// What a fabric keeps an eye on.
#[derive(Debug)]
pub(super) enum Watch {
    Nothing,
    Slowest(Box<Ranking>),
    Message(Box<Tracer>),
}

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
    cause: Cause,
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
struct Taken {
    placed: u64,
    tail: u64,
    number: u32,
    port: u32,
}

/// Follows one message.
#[derive(Debug)]
pub(super) struct Tracer {
    key: u64,
    /// The message as it was posted, and when.
    message: Option<(Message, u64)>,
    waiters: Vec<Waiter>,
    /// By packet and port.
    hops: BTreeMap<(u32, u32), Hop>,
    taken: Option<Taken>,
    delivered: Option<u64>,
    lost: Option<(u32, u64)>,
    chains: Vec<Chain>,
    sending: Vec<Sending>,
    sends: u64,
}

impl Waiter {
    /// What it waits for is `cause` from `now` on.
    fn turn_to(&mut self, cause: Cause, now: u64) {
        let length = Picos(now - self.since);
        if length > Picos::ZERO {
            match self.waits.iter_mut().find(|wait| wait.cause == self.cause) {
                Some(wait) => {
                    wait.length += length;
                    // Looking twice for the same reason is one wait; each turn of another is one.
                    wait.times += u32::from(cause != self.cause || matches!(cause, Cause::Turn(_) | Cause::Own));
                }
                None => self.waits.push(Wait { cause: self.cause, times: 1, length }),
            }
        }
        self.since = now;
        self.cause = cause;
    }
}

impl Tracer {
    fn new(key: u64, ports: usize) -> Self {
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

    fn is_own(&self, fabric: &Fabric, message: u32) -> bool {
        fabric.messages[message].id == self.key
    }

    fn accepted(&mut self, fabric: &Fabric, message: u32) {
        let Message { port, level, .. } = fabric.messages[message];
        self.wait(fabric, NONE, port, fabric.lane_of(port, level, 0), NONE, Cause::Own);
        self.stand(fabric, NONE, port);
    }

    /// Something begins to wait; where it stands is told by [`Tracer::stand`].
    fn wait(&mut self, fabric: &Fabric, number: u32, port: u32, lane: u32, input: u32, cause: Cause) {
        let (arrived, since) = (fabric.now, fabric.now);
        let (queued, judged, waits) = (false, 0, Vec::new());
        self.waiters.push(Waiter { number, port, lane, input, arrived, queued, since, cause, judged, waits });
    }

    fn stand(&mut self, fabric: &Fabric, number: u32, port: u32) {
        if let Some(it) = self.waiters.iter_mut().find(|it| (it.number, it.port) == (number, port)) {
            it.turn_to(Cause::Own, fabric.now);
            it.queued = true;
        }
    }

    fn arrived(&mut self, fabric: &Fabric, packet: &Packet) {
        let lane = fabric.lane_of(packet.out, packet.level, packet.step);
        let cause = if fabric.fifos.is_empty() { Cause::Tail } else { Cause::Input };
        self.wait(fabric, packet.number, packet.out, lane, packet.in_channel, cause);
    }

    fn queued(&mut self, fabric: &Fabric, packet: &Packet) {
        // Copies of a multicast come without having been routed here.
        if !self.waiters.iter().any(|it| (it.number, it.port) == (packet.number, packet.out)) {
            self.arrived(fabric, packet);
        }
        self.stand(fabric, packet.number, packet.out);
    }

    /// `packet` starts on `port`; it still knows where it came from.
    fn started(&mut self, fabric: &Fabric, port: u32, lane: u32, packet: u32) {
        let it = fabric.packets[packet];
        let own = self.is_own(fabric, it.message);
        self.sends += 1;
        self.sending[port as usize] = Sending { message: fabric.messages[it.message].id, serial: self.sends };
        if own {
            self.leave(fabric, port, lane, &it);
        }
        for i in 0..self.waiters.len() {
            let waiter = &self.waiters[i];
            if waiter.port != port || !waiter.queued {
                continue;
            }
            let barred = if waiter.lane == lane { None } else { self.barred(fabric, i) };
            let chosen =
                if own { Cause::Own } else { Cause::Turn((it.in_channel != NONE).then_some(ChannelId(it.in_channel))) };
            let waiter = &mut self.waiters[i];
            waiter.turn_to(barred.unwrap_or(chosen), fabric.now);
            waiter.judged = self.sends;
        }
    }

    /// `packet`, which is ours, leaves `port`. In its host the packets behind it go on waiting.
    fn leave(&mut self, fabric: &Fabric, port: u32, lane: u32, packet: &Packet) {
        let at_source = packet.in_channel == NONE;
        let number = if at_source { NONE } else { packet.number };
        let Some(place) = self.waiters.iter().position(|it| (it.number, it.port) == (number, port)) else { return };
        self.waiters[place].turn_to(Cause::Own, fabric.now);
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

    /// `port` was arbitrated: what still waits there waits for a reason.
    fn looked(&mut self, fabric: &Fabric, port: u32) {
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

    /// Why the waiter does not move now; `None` when that is known already.
    fn reason(&mut self, fabric: &Fabric, waiter: usize) -> Option<Cause> {
        let port = &fabric.ports[self.waiters[waiter].port as usize];
        if port.busy_until > fabric.now && port.up {
            let Sending { message, serial } = self.sending[self.waiters[waiter].port as usize];
            if std::mem::replace(&mut self.waiters[waiter].judged, serial) == serial {
                return None;
            }
            let sending = if message == self.key { Cause::Own } else { Cause::Busy(MessageId::of(message)) };
            return Some(if self.is_held_back(fabric, waiter) { Cause::HeldBack } else { sending });
        }
        if let Some(barred) = self.barred(fabric, waiter) {
            return Some(barred);
        }
        let device = fabric.network.graph.channels()[self.waiters[waiter].port as usize].from;
        (port.from_host && fabric.hosts[device.index()].fetch_free > fabric.now).then_some(Cause::Memory)
    }

    /// What keeps the waiter from being chosen at all.
    fn barred(&mut self, fabric: &Fabric, waiter: usize) -> Option<Cause> {
        let Waiter { port, lane, .. } = self.waiters[waiter];
        let (port, it) = (&fabric.ports[port as usize], &fabric.lanes[lane as usize]);
        if !port.up || it.stuck {
            return Some(Cause::Down);
        }
        if port.held {
            return Some(Cause::Kept);
        }
        if self.is_held_back(fabric, waiter) {
            return Some(Cause::HeldBack);
        }
        if it.paused {
            return Some(Cause::Pause);
        }
        fabric.lacks_room(lane).then(|| Cause::Credit(self.chain_from(fabric, lane)))
    }

    fn is_held_back(&self, fabric: &Fabric, waiter: usize) -> bool {
        let Some((message, _)) = &self.message else { return false };
        let at_source = self.waiters[waiter].input == NONE;
        let queue = fabric.connections[message.connection].queue;
        at_source && queue != NONE && fabric.queues[queue].lane == NONE
    }

    /// The number of the chain that begins at `lane` now.
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

    /// The ports of the packet that came last, in order.
    fn way(&self, last: Taken) -> Vec<Hop> {
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

impl Fabric {
    /// Follows the message `id`, which is not yet posted. What was watched before is forgotten.
    ///
    /// # Panics
    /// When [`super::Options`] ask for eager events or trains, whose packets cannot be told apart: a mistake of the caller.
    pub fn trace(&mut self, id: MessageId) {
        let plain = self.options.events == Events::Lazy && self.options.trains == Trains::Off;
        assert!(plain, "traces need lazy events and no trains");
        let key = u64::from(id.from.0) << MessageId::NUMBER_BITS | id.number;
        self.watch = Watch::Message(Box::new(Tracer::new(key, self.ports.len())));
    }

    /// What is known of the followed message; `None` when it was not posted.
    pub fn traced(&self) -> Option<Trace> {
        let Watch::Message(it) = &self.watch else { return None };
        let (message, posted) = it.message?;
        let last = it.taken;
        Some(Trace {
            id: MessageId::of(it.key),
            to: last.map(|last| DeviceId(self.ports[last.port as usize].to)),
            bytes: message.bytes,
            packets: message.packets,
            posted: Picos(posted),
            hops: last.map_or_else(Vec::new, |last| it.way(last)),
            tail: Picos(last.map_or(0, |last| last.tail)),
            placed: Picos(last.map_or(0, |last| last.placed)),
            delivered: it.delivered.map(Picos),
            lost: it.lost.map(|(port, at)| (ChannelId(port), Picos(at))),
            chains: it.chains.clone(),
        })
    }

    /// Lets `see` look at the fabric if a message is followed.
    #[inline]
    fn observe(&mut self, see: impl FnOnce(&mut Tracer, &Self)) {
        if let Watch::Message(_) = self.watch
            && let Watch::Message(mut tracer) = std::mem::replace(&mut self.watch, Watch::Nothing)
        {
            see(&mut tracer, self);
            self.watch = Watch::Message(tracer);
        }
    }

    /// `message` is posted at `at`.
    pub(super) fn trace_post(&mut self, message: u32, at: u64) {
        if let Watch::Slowest(ranking) = &mut self.watch {
            ranking.posted(message, at);
        }
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, message) {
                tracer.message = Some((fabric.messages[message], at));
            }
        });
    }

    /// `message` reached its host's interface.
    pub(super) fn trace_accept(&mut self, message: u32) {
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, message) {
                tracer.accepted(fabric, message);
            }
        });
    }

    /// `packet` was routed in a switch.
    pub(super) fn trace_routed(&mut self, packet: u32) {
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, fabric.packets[packet].message) {
                tracer.arrived(fabric, &fabric.packets[packet]);
            }
        });
    }

    /// `packet` queues for its output.
    pub(super) fn trace_queued(&mut self, packet: u32) {
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, fabric.packets[packet].message) {
                tracer.queued(fabric, &fabric.packets[packet]);
            }
        });
    }

    /// `packet` starts on `lane` of `port`.
    pub(super) fn trace_start(&mut self, port: u32, lane: u32, packet: u32) {
        self.observe(|tracer, fabric| tracer.started(fabric, port, lane, packet));
    }

    /// `port` was arbitrated.
    pub(super) fn trace_look(&mut self, port: u32) {
        self.observe(|tracer, fabric| tracer.looked(fabric, port));
    }

    /// `packet` comes in at the host behind `port` at `tail` and is in memory at `placed`.
    pub(super) fn trace_taken(&mut self, port: u32, packet: u32, tail: u64, placed: u64) {
        self.observe(|tracer, fabric| {
            let Packet { message, number, .. } = fabric.packets[packet];
            if tracer.is_own(fabric, message) {
                tracer.taken = tracer.taken.max(Some(Taken { placed, tail, number, port }));
            }
        });
    }

    /// `packet` is dropped.
    pub(super) fn trace_loss(&mut self, packet: u32) {
        self.observe(|tracer, fabric| {
            let Packet { message, in_channel, number, out, .. } = fabric.packets[packet];
            if tracer.is_own(fabric, message) {
                tracer.waiters.retain(|it| (it.number, it.port) != (number, out));
                tracer.lost = tracer.lost.or(Some((in_channel, fabric.now)));
            }
        });
    }

    /// `message` is delivered to `host`.
    pub(super) fn trace_delivery(&mut self, host: u32, message: u32) {
        if let Watch::Slowest(ranking) = &mut self.watch {
            let (it, now) = (&self.messages[message], self.now);
            ranking.delivered(message, it, self.connections[it.connection].key.2, host, now);
        }
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, message) {
                tracer.delivered = Some(fabric.now);
            }
        });
    }
}
