//! The state of a fabric, laid out so that one step touches few cache lines.
//!
//! # Model
//! A *port* is the sending side of a channel and belongs to its sender. Each of its *lanes* has the
//! credit for the receiver's buffer and a *ring* of *queues*: in a switch one for each input that
//! has packets for this lane, in a host one for each connection that has messages. Queues of a ring
//! take turns.

use crate::arbiter::{ArbiterState, Choice};
use crate::time::Pace;

use super::bucket::Buckets;
use super::order::NoticeSet;
use super::statistics::PortStatistics;

/// The sending side of a channel.
#[derive(Clone, Debug)]
pub(super) struct Port {
    /// When the packet under way (or the last of a train) has left.
    pub(super) busy_until: u64,
    /// When a packet that may overtake others has left.
    pub(super) express_until: u64,
    /// Where packets may leave faster than the rate.
    pub(super) buckets: Option<Buckets>,
    /// The wake-up that counts; others for this port are stale.
    pub(super) wake_at: u64,
    /// From the first bit sent to the earliest start at the receiver: cable and, at a switch, its
    /// pipeline.
    pub(super) delay: u64,
    /// From the cable's other end back: what a credit takes.
    pub(super) back: u64,
    pub(super) pace: Pace,
    /// A bit for each lane whose ring has a queue.
    pub(super) occupied: u32,
    /// This port's lanes are `lanes[first_lane..]`.
    pub(super) first_lane: u32,
    /// The receiving device.
    pub(super) to: u32,
    /// The train whose window this port carries, if any.
    pub(super) train: u32,
    /// A train that queued in this instant and is not yet parted or sent.
    pub(super) whole: u32,
    /// Bytes waiting in a switch for this port.
    pub(super) queued: u32,
    /// Bytes of the packet under way: they count as backlog until `busy_until`.
    pub(super) on_wire: u32,
    /// Since when something waits, or `busy_until` if that is later: for the time stalled.
    pub(super) waiting_since: u64,
    /// The arbiter, which says which of its lanes sends next.
    pub(super) arbiter: ArbiterState,
    pub(super) statistics: PortStatistics,
    pub(super) dirty: bool,
    /// A copy keeps it while it waits for other outputs.
    pub(super) held: bool,
    pub(super) from_host: bool,
    pub(super) to_host: bool,
    pub(super) store_and_forward: bool,
    /// A packet is through at once, and the port rests afterwards.
    pub(super) at_once: bool,
    pub(super) up: bool,
    /// Routing believes that it is not.
    pub(super) avoided: bool,
}

/// One lane of a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// Bytes free in the receiver's buffer, as far as this side knows.
    pub(super) free: u32,
    /// The queue served last; its successor is next.
    pub(super) ring: u32,
    /// Credits under way to this side, by time.
    pub(super) credit_first: u32,
    pub(super) credit_last: u32,
    /// The queue that a packet which came *in* on this lane joined last: the next one probably
    /// joins it too.
    pub(super) recent: u32,
    /// Bytes waiting in a switch for this lane.
    pub(super) queued: u32,
    /// The step of this virtual lane that sent last (kept at its first step).
    pub(super) turn: u8,
    /// Whether sending needs credit.
    pub(super) credited: bool,
    /// The receiver asked for silence.
    pub(super) paused: bool,
    /// A fault keeps it from sending.
    pub(super) stuck: bool,
}

/// Credits under way: `left` times `bytes`, the first at `at`, `gap` apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct CreditReturn {
    pub(super) at: u64,
    pub(super) gap: u64,
    pub(super) bytes: u32,
    pub(super) left: u32,
    pub(super) next: u32,
}

/// What waits in one ring from one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceQueue {
    /// The lane of whose ring this is a part, by its global number; `NONE` once it left.
    pub(super) lane: u32,
    /// The input channel in a switch, the connection in a host.
    pub(super) source: u32,
    /// First and last packet (in a switch) or message (in a host).
    pub(super) head: u32,
    pub(super) tail: u32,
    /// The next queue of the ring.
    pub(super) next: u32,
    /// Bytes of the packet that is next to leave.
    pub(super) bytes: u32,
}

/// One packet, or a train: `count` equal packets of one message, `gap` apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// When the (first) tail is where the head was on arrival.
    pub(super) tail_at: u64,
    pub(super) gap: u64,
    pub(super) message: u32,
    /// With headers.
    pub(super) bytes: u32,
    /// Its place in the message.
    pub(super) number: u32,
    /// The receiving host; a multicast copy has `NONE` until its branch ends at a host.
    pub(super) target: u32,
    /// The channel on which it came, and the lane of it.
    pub(super) in_channel: u32,
    /// The channel on which it will leave.
    pub(super) out: u32,
    pub(super) via: u32,
    pub(super) next: u32,
    /// Packets in this train; 1 for a single one, 0 for one that was taken back before it arrived.
    pub(super) count: u32,
    /// The place in the input's buffer that it shares with other copies; `NONE` when it has one of
    /// its own.
    pub(super) share: u32,
    /// The copies that leave together with it; `NONE` when it leaves alone.
    pub(super) hold: u32,
    /// What routing asks of its message.
    pub(super) source: u32,
    pub(super) flow_hash: u32,
    pub(super) packet_hash: u32,
    pub(super) level: u8,
    /// It met a queue that marks.
    pub(super) marked: bool,
    pub(super) in_lane: u8,
    pub(super) hops: u8,
    pub(super) step: u8,
}

/// A message that is not yet over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// (source, number among the source's messages): the same in every run.
    pub(super) id: u64,
    pub(super) tag: u64,
    pub(super) from: u32,
    pub(super) target: u32,
    /// The source's channel.
    pub(super) port: u32,
    pub(super) connection: u32,
    pub(super) flow_hash: u32,
    pub(super) bytes: u64,
    /// Payload that left the source.
    pub(super) sent: u64,
    /// Packets that it makes.
    pub(super) packets: u32,
    /// Packets that left the source.
    pub(super) started: u32,
    /// Packets that arrived or were dropped.
    pub(super) resolved: u32,
    /// When its last byte leaves the source, once that is known.
    pub(super) sent_at: u64,
    /// When all of it is in its receiver's memory and reported, once that is known.
    pub(super) deliver_at: u64,
    /// The next message of the connection.
    pub(super) next: u32,
    pub(super) reports: NoticeSet,
    pub(super) level: u8,
    pub(super) marked: bool,
    pub(super) corrupt: bool,
    pub(super) lost: bool,
    /// It ended at its receivers before its last byte left its host.
    pub(super) over: bool,
}

/// A window of equal packets that one port sends without a pause in between that anyone could use.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketTrain {
    /// Distinguishes this record from a later one in the same place.
    pub(super) serial: u64,
    /// When its first packet started here.
    pub(super) start: u64,
    pub(super) gap: u64,
    pub(super) count: u32,
    pub(super) bytes: u32,
    /// The sending port, and its lane.
    pub(super) port: u32,
    pub(super) lane: u32,
    /// The credits it gave back to where it came from; `NONE` at the source.
    pub(super) credit: u32,
    /// The part of it that is not yet fully past the receiver: a packet record, and which packet of
    /// this train is its first.
    pub(super) piece: u32,
    pub(super) base: u32,
    /// What the arbiter gets once the first packet has started.
    pub(super) choice: Option<Choice>,
    /// What became of `piece`.
    pub(super) next: TrainEnd,
    /// Where the packets came from, to take some back.
    pub(super) origin: TrainOrigin,
}

/// What became of the last part of a train.
#[derive(Clone, Copy, Debug)]
pub(super) enum TrainEnd {
    /// Its first head has not arrived, or waits to queue.
    Pending,
    /// It goes on as this train, which has this serial number.
    Train(u32, u64),
    /// A host takes it in, gives these credits back, and has counted it already.
    Host(u32),
    /// A host takes it in, gives these credits back, and will count it when all of it is there.
    SlowHost(u32),
}

/// Where a train came from.
#[derive(Clone, Copy, Debug)]
pub(super) enum TrainOrigin {
    /// A message of this host.
    Message(u32),
    /// The first packet as it left the queue here, and the train it was part of on the channel
    /// before, by number and serial.
    Arrived(Packet, Option<(u32, u64)>),
}
