//! Tells what befell one message: where each of its packets waited, for how long, and for what.
//!
//! # Model
//! While a packet waits at a port its time is a row of segments with one cause each. A segment ends
//! when something starts on that port, or when the port was looked at in vain. Where the cause is
//! missing room ahead, the ports are followed to the one that fills the buffers (`chain`).
//!
//! # Invariants
//! I1. Watching changes no result.
//! I2. The causes of a wait add up to the wait.
//!
//! # Not here
//! How a message is followed (`tracer`), and which one is worth it (`slowest`). Sentences for
//! people: the caller's.

mod chain;
mod slowest;
mod tracer;

#[cfg(test)]
mod tests;

pub use chain::{ChainLink, CongestionChain, RootCause};
pub use slowest::{MessageSelection, RankedMessage};

use super::parts::Packet;
use super::{EventSet, Fabric, Trains};
use crate::graph::{ChannelId, DeviceId};
use crate::time::Picos;
use slowest::Ranking;
use tracer::Tracer;

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

    const fn from_key(key: u64) -> Self {
        Self {
            from: DeviceId((key >> Self::NUMBER_BITS) as u32),
            number: key & ((1 << Self::NUMBER_BITS) - 1),
        }
    }
}

/// Why a packet stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitCause {
    /// The port was sending a packet of this message when ours came.
    Busy(MessageId),
    /// The port sent an earlier packet of the same message.
    Own,
    /// A packet that came from this channel was chosen first; `None` for another message of the
    /// same host.
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
    pub cause: WaitCause,
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
    /// The device that got its last packet; `None` while nobody has.
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
    /// What [`WaitCause::Credit`] names.
    pub chains: Vec<CongestionChain>,
}

/// What a fabric keeps an eye on.
#[derive(Debug)]
pub(super) enum TraceMode {
    Nothing,
    Slowest(Box<Ranking>),
    Message(Box<Tracer>),
}

impl Fabric {
    /// Follows the message `id`, which is not yet posted. A message that was watched before is
    /// forgotten.
    ///
    /// # Panics
    /// When [`super::FabricOptions`] ask for eager events or trains, whose packets cannot be
    /// distinguished: a mistake of the caller.
    pub fn trace(&mut self, id: MessageId) {
        let plain = self.options.events == EventSet::Lazy && self.options.trains == Trains::Off;
        assert!(plain, "traces need lazy events and no trains");
        let key = u64::from(id.from.0) << MessageId::NUMBER_BITS | id.number;
        self.watch = TraceMode::Message(Box::new(Tracer::new(key, self.ports.len())));
    }

    /// Returns what is known of the followed message; `None` when it was not posted.
    pub fn traced(&self) -> Option<Trace> {
        let TraceMode::Message(tracer) = &self.watch else { return None };
        tracer.finished_trace(self)
    }

    /// Lets `see` look at the fabric if a message is followed.
    #[inline]
    fn observe(&mut self, see: impl FnOnce(&mut Tracer, &Self)) {
        if let TraceMode::Message(_) = self.watch {
            self.show(see);
        }
    }

    /// Shows an event, out of line: what happens everywhere pays for one comparison.
    #[cold]
    fn show(&mut self, see: impl FnOnce(&mut Tracer, &Self)) {
        if let TraceMode::Message(mut tracer) =
            std::mem::replace(&mut self.watch, TraceMode::Nothing)
        {
            see(&mut tracer, self);
            self.watch = TraceMode::Message(tracer);
        }
    }

    /// Traces that `message` is posted at `at`.
    pub(super) fn trace_post(&mut self, message: u32, at: u64) {
        if let TraceMode::Slowest(ranking) = &mut self.watch {
            ranking.posted(message, at);
        }
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, message) {
                tracer.posted(fabric.messages[message], at);
            }
        });
    }

    /// Traces that `message` reached its host's interface.
    pub(super) fn trace_accept(&mut self, message: u32) {
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, message) {
                tracer.accepted(fabric, message);
            }
        });
    }

    /// Traces that `packet` was routed in a switch.
    pub(super) fn trace_routed(&mut self, packet: u32) {
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, fabric.packets[packet].message) {
                tracer.arrived(fabric, &fabric.packets[packet]);
            }
        });
    }

    /// Traces that `packet` queues for its output.
    pub(super) fn trace_queued(&mut self, packet: u32) {
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, fabric.packets[packet].message) {
                tracer.queued(fabric, &fabric.packets[packet]);
            }
        });
    }

    /// Traces that `packet` starts on `lane` of `port`.
    pub(super) fn trace_start(&mut self, port: u32, lane: u32, packet: u32) {
        self.observe(|tracer, fabric| tracer.started(fabric, port, lane, packet));
    }

    /// Traces that `port` was arbitrated.
    pub(super) fn trace_look(&mut self, port: u32) {
        self.observe(|tracer, fabric| tracer.looked(fabric, port));
    }

    /// Traces that `packet` comes in at the host behind `port` at `tail` and is in memory at
    /// `placed`.
    pub(super) fn trace_taken(&mut self, port: u32, packet: u32, tail: u64, placed: u64) {
        self.observe(|tracer, fabric| {
            let Packet { message, number, .. } = fabric.packets[packet];
            if tracer.is_own(fabric, message) {
                tracer.taken(port, number, tail, placed);
            }
        });
    }

    /// Traces that `packet` is dropped.
    pub(super) fn trace_loss(&mut self, packet: u32) {
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, fabric.packets[packet].message) {
                tracer.dropped(fabric, &fabric.packets[packet]);
            }
        });
    }

    /// Traces that `message` is delivered to `host`.
    pub(super) fn trace_delivery(&mut self, host: u32, message: u32) {
        if let TraceMode::Slowest(ranking) = &mut self.watch {
            let (it, now) = (&self.messages[message], self.now);
            ranking.delivered(message, it, self.connections[it.connection].key.2, host, now);
        }
        self.observe(|tracer, fabric| {
            if tracer.is_own(fabric, message) {
                tracer.delivered(fabric);
            }
        });
    }
}
