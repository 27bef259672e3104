//! Moves packets: posts go in, deliveries come out, everything between is a function of
//! specification and seed.
//!
//! # Model
//! Virtual cut-through with credits. A packet's head reaches a switch, waits in the queue of its
//! input for its output, and leaves when the output is free, its lane has credit for the whole
//! packet, and arbiter and turn choose it. Its credit returns to the sender before when its tail
//! has left.
//!
//! An *instant* has two phases. First everything that happens then is applied: arrivals, credits,
//! wake-ups, posts, in the order of (kind, entity). Then the ports that were touched are
//! arbitrated, in the order of their numbers. Everything that a phase starts happens later, because
//! every cable and every byte takes time, so an instant never feeds itself.
//!
//! An arbitration that sends nothing changes nothing. Therefore it does not matter how often a port
//! is asked, and events that nobody waits for can be left out: the end of a transmission when
//! nothing waits behind it, a credit that nobody lacks.
//!
//! # Cost
//! What every packet passes on every hop is compiled as a few large functions
//! (`#[inline(always)]`), what few pass as functions of their own: calls and saved registers were a
//! seventh of all instructions. A hop in a tree takes about 1200.
//!
//! # Source
//! The event rules follow the measurements of a probe; the lazily split train is our own. Virtual
//! cut-through: Kermani, Kleinrock (1979).
//!
//! # Invariants
//! I1. Credits are conserved: what a lane has, what is under way to it, and what lies in the
//!     receiver's buffer make its size.
//! I2. No event is put into an instant by that instant's second phase.
//! I3. [`FabricOptions`] change the cost, never the result.
//!
//! # Not here
//! Bytes: a message is a number of them (`wire` carries the contents). Nodes and their clocks
//! (`world`).

mod acknowledgement;
mod arbitration;
mod audit;
mod bucket;
mod build;
mod control;
mod credit;
mod digest;
mod fault;
mod fifo;
mod host;
mod loss;
mod multicast;
mod order;
mod parts;
mod pool;
mod post;
mod receive;
mod statistics;
mod switch;
mod trace;
mod train;

#[cfg(test)]
mod tests;

pub use crate::event::EventQueueKind;
pub use audit::{Leak, Stall};
pub(crate) use bucket::Buckets;
pub use fault::{DownPolicy, FabricFault, FabricFaultKind, FaultOdds, PacketFault, PacketSort};
pub use order::{
    EcnMark, EventSet, FabricOptions, Notice, NoticeSet, Payload, SendRequest, Target, Trains,
};
pub use statistics::{FabricTotals, LaneStatistics, PortStatistics};
pub use trace::{
    ChainLink, CongestionChain, Hop, MessageId, MessageSelection, RankedMessage, RootCause, Trace,
    Wait, WaitCause,
};

use std::collections::BTreeMap;

use clearway_proto::base::{BitsPerSec, GroupId};

use crate::event::{Event, PendingEvents as EventOrder};
use crate::graph::Graph;
use crate::spec::VIRTUAL_LANES_MAX;
use crate::time::{Pace, Picos};
use crate::topology::RoutedGraph;

use control::{CongestionState, NoticeInFlight, PauseState};
use digest::FabricDigest;
use fifo::Fifo;
use host::{Connection, Host};
use multicast::{CastTree, HeldPacket, Membership, MulticastProgress, SharedBuffer};
use parts::{CreditReturn, Lane, Message, Packet, PacketTrain, Port, SourceQueue};
use pool::Arena;

/// What happens; the value is the order within an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum FabricEventKind {
    /// A head (at a host: a tail) came in on a channel.
    Arrive = 0,
    /// A packet that had to wait for its own tail may now queue.
    Ready = 1,
    /// A credit is back (eager only).
    Credit = 2,
    /// A port may have something to do.
    Wake = 3,
    /// A message reached its host's interface.
    Post = 4,
    /// A message has left its host.
    Sent = 5,
    /// A message is in its receiver's memory.
    Deliver = 6,
    /// A sender's interface knows that a message was delivered.
    Acknowledge = 7,
    /// The last tail of a train came in at a host.
    Taken = 8,
    /// A notice reached a sender.
    Notice = 9,
    /// A connection that was held back may send.
    Pace = 10,
    /// A packet has left a buffer whose sender is paused and released.
    Left = 11,
    /// The sender of a cable heeds a pause or a release.
    Pause = 12,
    /// The first packet of an input's queue has left.
    Advance = 14,
    /// A fault begins, ends or becomes known.
    Fault = 15,
}

/// A network in motion.
pub struct Fabric {
    now: u64,
    events: EventOrder,
    options: FabricOptions,
    network: RoutedGraph,
    steps: u8,
    lanes_per_port: u32,
    tables: Vec<[u8; 16]>,
    table_of_port: Vec<u8>,
    constants: FabricConstants,
    /// What the queue of one lane of an output holds, by virtual lane.
    limits: [u32; VIRTUAL_LANES_MAX],
    ports: Vec<Port>,
    lanes: Vec<Lane>,
    queues: Arena<SourceQueue>,
    packets: Arena<Packet>,
    messages: Arena<Message>,
    credits: Arena<CreditReturn>,
    /// By lane, where inputs keep one queue for each; empty elsewhere.
    fifos: Vec<Fifo>,
    trains: Arena<PacketTrain>,
    train_serial: u64,
    hosts: Vec<Host>,
    connections: Arena<Connection>,
    connection_of: Vec<Vec<((u32, u8), u32)>>,
    dirty: Vec<u32>,
    current: u32,
    notices: Vec<Notice>,
    statistics: statistics::FabricStatistics,
    digest: FabricDigest,
    groups: BTreeMap<GroupId, Vec<u32>>,
    tree_of: BTreeMap<(u32, Membership), u32>,
    trees: Vec<CastTree>,
    casts: BTreeMap<u32, MulticastProgress>,
    shares: Arena<SharedBuffer>,
    holds: Arena<HeldPacket>,
    faults: Option<Box<fault::ActiveFaults>>,
    control: CongestionState,
    words: Arena<NoticeInFlight>,
    pauses: PauseState,
    /// By link: rate, and buffer of a lane.
    rates: Vec<BitsPerSec>,
    buffers: Vec<u64>,
    watch: trace::TraceMode,
    delays: acknowledgement::Delays,
}

/// What does not change while a fabric runs.
#[derive(Clone, Copy, Debug)]
struct FabricConstants {
    payload: u32,
    header: u32,
    transmit_delay: u64,
    receive_delay: u64,
    receive_tail: Picos,
    memory: Pace,
    hold_all: bool,
    express: u32,
    in_order: bool,
    by_message: bool,
    output_fifo: bool,
    /// Trains may be made at all: packets of a flow take one way, and lone lanes leave arbiters
    /// unchanged.
    trains: bool,
    /// Whether the last hop to a host holds no surprise: nothing is dropped there, and nobody acts
    /// on what arrives.
    foreseeable: bool,
    lossless: bool,
    /// The service level of each class.
    level: [u8; 5],
    seed: u64,
}

impl Fabric {
    /// Returns the time reached.
    pub fn now(&self) -> Picos {
        Picos(self.now)
    }

    /// Returns when something happens next.
    pub fn next(&self) -> Option<Picos> {
        self.events.next_at()
    }

    /// Returns the devices and channels.
    pub fn graph(&self) -> &Graph {
        &self.network.graph
    }

    /// Processes instants up to and including `until`, and stops early after the first one that
    /// made notices, which are appended to `notices`. Returns the time reached.
    pub fn advance(&mut self, until: Picos, notices: &mut Vec<Notice>) -> Picos {
        while let Some(first) = self.events.pop_until(until) {
            self.instant(first);
            if !self.notices.is_empty() {
                notices.append(&mut self.notices);
                return first.at;
            }
        }
        self.now = self.now.max(until.0);
        until
    }

    /// Runs both phases of the instant whose first event is `first`.
    fn instant(&mut self, first: Event) {
        self.now = first.at.0;
        let mut next = Some(first);
        while let Some(event) = next {
            self.current = event.key;
            self.statistics.totals.events += 1;
            self.apply(event);
            next = self.events.pop_until(first.at);
        }
        self.arbitrate_dirty();
    }

    /// Runs the second phase of an instant.
    fn arbitrate_dirty(&mut self) {
        if self.dirty.len() > 1 {
            self.dirty.sort_unstable();
        }
        for i in 0..self.dirty.len() {
            let port = self.dirty[i];
            self.ports[port as usize].dirty = false;
            self.arbitrate(port);
            self.trace_look(port);
        }
        self.dirty.clear();
    }

    #[inline(always)]
    fn apply(&mut self, event: Event) {
        let (entity, arg) = (event.entity(), event.arg);
        match event.kind() {
            0 => self.arrive(entity, arg),
            1 => self.enqueue(arg),
            2 => self.credit_event(entity, arg),
            3 => self.woken(entity),
            4 => self.posted(entity),
            5 => self.sent(arg),
            6 => self.delivered(entity, arg),
            7 => self.acknowledged(arg),
            8 => self.taken(entity, arg),
            9 => self.noticed(entity, arg),
            10 => self.paced(entity, arg),
            11 => self.leave_place(entity, arg),
            12 => self.pause(entity, arg),
            14 => self.advance_fifo(entity),
            _ => self.fault_event(entity, arg),
        }
    }

    fn schedule(&mut self, at: u64, kind: FabricEventKind, entity: u32, arg: u32) {
        self.events.push(Event::new(Picos(at), kind as u8, entity, arg));
    }

    fn touch(&mut self, port: u32) {
        let it = &mut self.ports[port as usize];
        if !it.dirty {
            it.dirty = true;
            self.dirty.push(port);
        }
    }

    /// Asks for `port` to be looked at in the instant `at`.
    fn wake(&mut self, port: u32, at: u64) {
        let it = &mut self.ports[port as usize];
        if at < it.wake_at {
            it.wake_at = at;
            self.schedule(at, FabricEventKind::Wake, port, 0);
        }
    }

    fn woken(&mut self, port: u32) {
        let it = &mut self.ports[port as usize];
        if it.wake_at == self.now {
            it.wake_at = u64::MAX;
            self.touch(port);
        }
    }

    /// Returns a digest of everything delivered so far: which packet of which message reached whom
    /// at which picosecond. It does not depend on the order in which equal instants are processed.
    pub fn digest(&self) -> u128 {
        self.digest.total()
    }

    /// Returns the same by receiving host: where two runs differ.
    pub fn digest_by_host(&self) -> &[u128] {
        self.digest.by_host()
    }

    /// Returns the same by windows of 2^30 ps: when two runs differ.
    pub fn digest_by_window(&self) -> &[u128] {
        self.digest.by_window()
    }
}
