//! Turns a rate and a kind of queue into kernel queues, and reads back what each class carried,
//! dropped and holds.
//!
//! # Model
//! Two layers. The outer one is a token bucket (TBF). It cuts batched sends into frames before they
//! are queued and, but for `strict`, it is the link: it has the link's rate `R` and holds the frame
//! in service, for which a packet that comes waits whatever its class. The inner one is an HTB that
//! keeps the order: its classes are so fast that none ever waits for its own tokens, and what is
//! left is deficit round robin by quantum.
//!
//! Under `strict` the link has *express* frames: an urgent packet does not wait for the frame in
//! service, as on Ethernet with frame preemption. The HTB itself has the rate `R` then. Urgent
//! classes draw on a bucket of `R` that only they use and the link's bucket is charged; the others
//! leave with what the link's bucket has left, strictly by priority.
//!
//! | kind | below the cutter or link `1:` |
//! |---|---|
//! | fifo | `4:1` alone, as many bytes as the given number of longest frames |
//! | strict | `10:100` = R above `10:101` = R for control and low latency, and above the other three |
//! | weighted | `10:1..5`, quantum = frame x weight |
//! | vlarb | `2:2` = 0.9 R before `2:3` = 0.1 R, each may have all; below them `20:1..2` and `30:3..5`, quantum = frame x weight |
//!
//! A single FIFO counts bytes, because that is what buffers of switches hold: a small packet often
//! finds room where a full frame does not. Queues of one class count packets.
//!
//! # Source
//! `net/sched/sch_tbf.c`, `sch_htb.c`, `include/uapi/linux/pkt_sched.h`, `pkt_cls.h`,
//! `gen_stats.h`. InfiniBand arbitration: IBA specification volume 1, 7.6.9 (high and low tables,
//! limit of high priority). Frame preemption: IEEE 802.1Qbu and 802.3br.
//!
//! # Invariants
//! I1. Nothing but a port's own queues limits what waits there.
//! I2. The class of a packet follows from its DSCP alone; unknown marks are best effort, ARP is
//!     control.
//! I3. The minor number of a class of its own is the class's place plus one, under every kind.
//! I4. A frame in the queues is a frame on the wire, however it was handed to the kernel, unless
//!     packets of many frames are asked for.

use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos};

use crate::netlink::{ACK, CREATE, DUMP, EXCL, MissingObject, NetlinkRequest, REQUEST};
use crate::rtattr::{NetlinkMessage, find, u32_at, u64_at};
use crate::{LabSpec, QueueKind};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_NEWTCLASS: u16 = 40;
const RTM_GETTCLASS: u16 = 42;
const RTM_NEWTFILTER: u16 = 44;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TC_H_ROOT: u32 = 0xffff_ffff;

/// The link itself.
const LINK: u32 = 1;
/// The layer of the two tables, under [`QueueKind::VlArb`].
const TABLES: u32 = 2;
/// The one queue of [`QueueKind::Fifo`].
const ONE: u32 = 4;
/// From here on major numbers are of queues with a class each.
const CLASSES: u32 = 0x10;
const HIGH: u32 = 0x20;
const LOW: u32 = 0x30;

/// The longest frame as the queues count it: 1500 bytes and an Ethernet header.
pub(crate) const FRAME: Bytes = Bytes(1514);
/// The fewest bytes that may leave back to back: two frames, as in the reference measurements.
const BURST_MIN: u64 = 2 * FRAME.0;
/// The time that a late timer may cost without lowering the rate; wake-ups of 50 us and more were
/// measured on two busy cores.
const BURST_TIME: Nanos = Nanos::from_micros(100);
/// A turn of one frame.
const FRAME_QUANTUM: u32 = FRAME.0 as u32;
/// HTB's divisor from rate to quantum; every class states its quantum, so any value that avoids its
/// warning.
const RATE_TO_QUANTUM: u32 = 10_000;

/// The class of [`QueueKind::Strict`] that is the whole link, and the one that urgent classes draw
/// on.
const WHOLE_LINK: u32 = 0x100;
const EXPRESS: u32 = 0x101;
/// Classes that do not wait for a frame in service under [`QueueKind::Strict`].
const URGENT: [Class; 2] = [Class::Control, Class::LowLatency];
/// HTB gives every class a rate of its own, served before any order: small enough to be nothing,
/// one frame in 12 s.
const OWN_RATE: BitsPerSec = BitsPerSec(1_000);
/// Frames that leave at once after arming because every class of [`QueueKind::Strict`] begins with
/// tokens for one.
pub(crate) const OWN_FRAMES: usize = Class::ALL.len();

/// Classes of the high table with their weights: the reference measurements gave low latency 64 and
/// the next class 16.
const HIGH_TABLE: [(Class, u32); 2] = [(Class::Control, 16), (Class::LowLatency, 64)];
/// Classes of the low table with their weights.
const LOW_TABLE: [(Class, u32); 3] =
    [(Class::BestEffort, 8), (Class::Bulk, 2), (Class::Scavenger, 1)];
/// What the limit of high priority leaves to the low table, in hundredths of the link.
pub(crate) const LOW_TABLE_PERCENT: u32 = 10;

/// Returns how many bytes may leave a link of `rate` back to back after it was idle.
pub fn burst(rate: BitsPerSec) -> Bytes {
    Bytes(rate.bytes_in(BURST_TIME).0.max(BURST_MIN))
}

/// Returns what the one queue of [`QueueKind::Fifo`] holds: `packets` of the longest frames.
pub(crate) fn fifo_bytes(packets: u32) -> Bytes {
    Bytes(u64::from(packets) * FRAME.0)
}

/// Returns the weight of `class` in its table under [`QueueKind::VlArb`], and whether that is the
/// high table.
pub(crate) fn table_of(class: Class) -> (ArbitrationTable, u32) {
    let within =
        |table: &[(Class, u32)]| table.iter().find(|(c, _)| *c == class).map(|(_, weight)| *weight);
    match within(&HIGH_TABLE) {
        Some(weight) => (ArbitrationTable::High, weight),
        None => (ArbitrationTable::Low, within(&LOW_TABLE).unwrap_or(1)),
    }
}

/// One of the two tables of InfiniBand-like arbitration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArbitrationTable {
    High,
    Low,
}

/// One inner class of equal priority.
struct LeafClass {
    class: Class,
    quantum: u32,
}

impl LeafClass {
    fn weighted(class: Class, weight: u32) -> Self {
        Self { class, quantum: FRAME_QUANTUM * weight }
    }
}

/// Collects the requests for one port.
struct PortRequests {
    index: u32,
    limit: u32,
    requests: Vec<NetlinkRequest>,
}

/// Returns the requests that remove what a port's queues are.
pub(crate) fn disarm(index: u32) -> NetlinkRequest {
    let message = NetlinkMessage::new(RTM_DELQDISC, REQUEST | ACK, &tcmsg(index, 0, TC_H_ROOT, 0));
    NetlinkRequest {
        doing: "remove the queues of a port".into(),
        message,
        missing: MissingObject::Accept,
    }
}

/// Returns the requests that give the interface `index`, which has none, its rate and queues;
/// packets of more than `frames` are cut.
pub(crate) fn arm(
    index: u32,
    rate: BitsPerSec,
    spec: &LabSpec,
    frames: u32,
) -> Vec<NetlinkRequest> {
    let mut port = PortRequests { index, limit: spec.queue_packets, requests: Vec::new() };
    let longest = Bytes(FRAME.0 * u64::from(frames));
    let bucket = match spec.queue {
        QueueKind::Strict => TokenBucket { rate: UNLIMITED.rate / 2, ..UNLIMITED }, // below the peak, as TBF demands
        // A bucket that holds less than a packet never lets it go.
        QueueKind::Fifo | QueueKind::Weighted | QueueKind::VlArb => {
            TokenBucket::new(rate, burst(rate).max(longest))
        }
    };
    port.link(bucket, longest);
    let below = handle(LINK, 1);
    let weighted = |class: Class| LeafClass::weighted(class, spec.weights.weight(class));
    match spec.queue {
        QueueKind::Fifo => port.one(below),
        QueueKind::Strict => port.urgency(below, rate),
        QueueKind::Weighted => {
            port.classes(below, CLASSES, Class::BestEffort, &Class::ALL.map(weighted))
        }
        QueueKind::VlArb => port.tables(below, rate),
    }
    port.requests
}

fn handle(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

fn minor(class: Class) -> u32 {
    class.index() as u32 + 1
}

/// Writes a `struct tcmsg`.
fn tcmsg(index: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, index, handle, parent, info].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Writes a `struct tc_ratespec` on Ethernet (link layer 1 spares the kernel its rate tables).
fn ratespec(bytes_per_sec: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[1] = 1;
    bytes[8..12].copy_from_slice(&bytes_per_sec.to_ne_bytes());
    bytes
}

/// One token bucket: bytes a second, and the bytes it holds.
#[derive(Clone, Copy)]
struct TokenBucket {
    rate: u32,
    burst: Bytes,
}

/// So fast that order alone decides: the largest rate of `struct tc_ratespec`, with 1 ms of it, far
/// above any outer burst.
const UNLIMITED: TokenBucket = TokenBucket { rate: u32::MAX, burst: Bytes(u32::MAX as u64 / 1000) };

impl TokenBucket {
    fn new(rate: BitsPerSec, burst: Bytes) -> Self {
        Self { rate: (rate.0 / 8) as u32, burst }
    }

    /// Returns the burst as the time it takes at the rate, in kernel ticks of 64 ns
    /// (`PSCHED_SHIFT`).
    fn ticks(self) -> u32 {
        let time = BitsPerSec(u64::from(self.rate) * 8).time_for(self.burst);
        u32::try_from(time.0 / 64).unwrap_or(u32::MAX)
    }
}

/// Writes a `struct tc_htb_opt` for a class that owns `rate` and may borrow up to `ceil`.
fn htb_options(rate: TokenBucket, ceil: TokenBucket, quantum: u32, priority: u32) -> Vec<u8> {
    let mut bytes = [ratespec(rate.rate), ratespec(ceil.rate)].concat();
    for word in [rate.ticks(), ceil.ticks(), quantum, 0, priority] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes
}

impl PortRequests {
    fn request(
        &mut self,
        doing: &str,
        kind: u16,
        fixed: &[u8],
        fill: impl FnOnce(NetlinkMessage) -> NetlinkMessage,
    ) {
        let message = fill(NetlinkMessage::new(kind, REQUEST | ACK | CREATE | EXCL, fixed));
        self.requests.push(NetlinkRequest::new(doing, message));
    }

    fn link(&mut self, bucket: TokenBucket, longest: Bytes) {
        // The second bucket limits nothing but the size: what is longer is cut before it is queued.
        let size = TokenBucket { burst: longest, ..UNLIMITED };
        // struct tc_tbf_qopt: rate, peak rate, limit (none: the inner queues have theirs), burst,
        // burst of the peak.
        let mut options = [ratespec(bucket.rate), ratespec(size.rate)].concat();
        for word in [0, bucket.ticks(), size.ticks()] {
            options.extend_from_slice(&word.to_ne_bytes());
        }
        let (bytes, longest) = (bucket.burst.0 as u32, longest.0 as u32);
        let fixed = tcmsg(self.index, handle(LINK, 0), TC_H_ROOT, 0);
        self.request("add a TBF queue", RTM_NEWQDISC, &fixed, |m| {
            // TCA_TBF_PARMS, and both bursts in bytes: times would be rounded to less than a frame.
            m.text(TCA_KIND, "tbf")
                .nest(TCA_OPTIONS, |m| m.attr(1, &options).u32(6, bytes).u32(7, longest))
        });
    }

    fn one(&mut self, parent: u32) {
        self.htb(parent, ONE, 1);
        self.class(
            handle(ONE, 0),
            handle(ONE, 1),
            &htb_options(UNLIMITED, UNLIMITED, FRAME_QUANTUM, 0),
        );
        let limit = (fifo_bytes(self.limit).0 as u32).to_ne_bytes();
        let fixed = tcmsg(self.index, 0, handle(ONE, 1), 0);
        self.request("add a bfifo queue", RTM_NEWQDISC, &fixed, |m| {
            m.text(TCA_KIND, "bfifo").attr(TCA_OPTIONS, &limit)
        });
    }

    fn htb(&mut self, parent: u32, major: u32, default: u32) {
        // struct tc_htb_glob: version 3, rate2quantum, default class, debug, direct packets.
        let glob: Vec<u8> = [3, RATE_TO_QUANTUM, default, 0, 0]
            .iter()
            .flat_map(|w: &u32| w.to_ne_bytes())
            .collect();
        let fixed = tcmsg(self.index, handle(major, 0), parent, 0);
        self.request("add an HTB queue", RTM_NEWQDISC, &fixed, |m| {
            m.text(TCA_KIND, "htb").nest(TCA_OPTIONS, |m| m.attr(2, &glob))
        });
    }

    fn class(&mut self, parent: u32, class: u32, options: &[u8]) {
        let fixed = tcmsg(self.index, class, parent, 0);
        self.request("add an HTB class", RTM_NEWTCLASS, &fixed, |m| {
            m.text(TCA_KIND, "htb").nest(TCA_OPTIONS, |m| m.attr(1, options))
        });
    }

    fn fifo(&mut self, parent: u32) {
        let limit = self.limit.to_ne_bytes();
        let fixed = tcmsg(self.index, 0, parent, 0);
        self.request("add a pfifo queue", RTM_NEWQDISC, &fixed, |m| {
            m.text(TCA_KIND, "pfifo").attr(TCA_OPTIONS, &limit)
        });
    }

    /// Adds the layer between for InfiniBand-like arbitration: within its share a table goes by
    /// priority, above it borrows.
    fn tables(&mut self, parent: u32, rate: BitsPerSec) {
        let low = rate.percent(LOW_TABLE_PERCENT);
        let high = BitsPerSec(rate.0 - low.0);
        self.htb(parent, TABLES, 3);
        self.class(
            handle(TABLES, 0),
            handle(TABLES, 1),
            &htb_options(UNLIMITED, UNLIMITED, FRAME_QUANTUM, 0),
        );
        for (minor, share, priority) in [(2, high, 0), (3, low, 1)] {
            let options = htb_options(
                TokenBucket::new(share, burst(rate)),
                UNLIMITED,
                FRAME_QUANTUM,
                priority,
            );
            self.class(handle(TABLES, 1), handle(TABLES, minor), &options);
        }
        let leaves = |table: &[(Class, u32)]| -> Vec<LeafClass> {
            table.iter().map(|&(class, weight)| LeafClass::weighted(class, weight)).collect()
        };
        self.classes(handle(TABLES, 2), HIGH, Class::LowLatency, &leaves(&HIGH_TABLE));
        self.classes(handle(TABLES, 3), LOW, Class::BestEffort, &leaves(&LOW_TABLE));
        for (class, _) in HIGH_TABLE {
            self.marked(TABLES, class, 2);
        }
        self.address_resolution(TABLES, 2);
    }

    /// Adds strict order on a link with express frames: urgent classes draw on a bucket of the
    /// whole rate that only they use, and are charged to the link's bucket afterwards; the others
    /// wait for what the link's bucket has left.
    fn urgency(&mut self, parent: u32, rate: BitsPerSec) {
        let (all, own) = (TokenBucket::new(rate, burst(rate)), TokenBucket::new(OWN_RATE, FRAME));
        self.htb(parent, CLASSES, minor(Class::BestEffort));
        let (link, express) = (handle(CLASSES, WHOLE_LINK), handle(CLASSES, EXPRESS));
        self.class(handle(CLASSES, 0), link, &htb_options(all, all, FRAME_QUANTUM, 0));
        self.class(link, express, &htb_options(all, all, FRAME_QUANTUM, 0));
        for class in Class::ALL {
            let options = htb_options(own, all, FRAME_QUANTUM, class.index() as u32);
            self.leaf(
                if URGENT.contains(&class) { express } else { link },
                CLASSES,
                class,
                Class::BestEffort,
                &options,
            );
        }
    }

    /// Adds the inner layer: one FIFO per class, ordered by priority and quantum alone.
    fn classes(&mut self, parent: u32, major: u32, default: Class, leaves: &[LeafClass]) {
        self.htb(parent, major, minor(default));
        for leaf in leaves {
            let options = htb_options(UNLIMITED, UNLIMITED, leaf.quantum, 0);
            self.leaf(handle(major, 0), major, leaf.class, default, &options);
        }
    }

    /// Adds a class with its FIFO and the filters that bring it its packets.
    fn leaf(&mut self, parent: u32, major: u32, class: Class, default: Class, options: &[u8]) {
        self.class(parent, handle(major, minor(class)), options);
        self.fifo(handle(major, minor(class)));
        if class != default {
            self.marked(major, class, minor(class));
        }
        if class == Class::Control {
            self.address_resolution(major, minor(class));
        }
    }

    /// Sends packets that carry the mark of `class` to `major:minor`.
    fn marked(&mut self, major: u32, class: Class, minor: u32) {
        // The second byte of the IPv4 header, without its two congestion bits.
        let (mask, value) = ([0, 0xfc, 0, 0], [0, class.dscp().tos(), 0, 0]);
        self.filter(major, 0x0800, mask, value, minor);
    }

    fn address_resolution(&mut self, major: u32, minor: u32) {
        self.filter(major, 0x0806, [0; 4], [0; 4], minor);
    }

    fn filter(&mut self, major: u32, ether_type: u16, mask: [u8; 4], value: [u8; 4], minor: u32) {
        // One preference per protocol: the kernel keeps filters of one preference to one protocol.
        let preference = u32::from(ether_type & 0xf) + 1;
        let info = preference << 16 | u32::from(ether_type.to_be());
        // struct tc_u32_sel: TC_U32_TERMINAL, no shift, one key, then struct tc_u32_key at offset
        // 0.
        let mut selector = vec![1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        selector.extend_from_slice(&mask);
        selector.extend_from_slice(&value);
        selector.extend_from_slice(&[0; 8]);
        let fixed = tcmsg(self.index, 0, handle(major, 0), info);
        self.request("add a u32 filter", RTM_NEWTFILTER, &fixed, |m| {
            m.text(TCA_KIND, "u32")
                .nest(TCA_OPTIONS, |m| m.u32(1, handle(major, minor)).attr(5, &selector))
        });
    }
}

/// What one class of a port has done since its queues were armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassCounters {
    /// None for the one queue of [`QueueKind::Fifo`].
    pub(crate) class: Option<Class>,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) drops: u64,
    pub(crate) backlog_packets: u64,
}

/// Asks for all classes of a port.
pub(crate) fn request_counters(index: u32) -> NetlinkMessage {
    NetlinkMessage::new(RTM_GETTCLASS, REQUEST | DUMP, &tcmsg(index, 0, 0, 0))
}

/// Reads one answer to [`ask_counters`]: none for the layers above the queues that hold packets.
pub(crate) fn counters(body: &[u8]) -> Option<ClassCounters> {
    let handle = u32_at(body, 8)?;
    let class = match handle >> 16 {
        ONE => None,
        CLASSES.. => Some(*Class::ALL.get((handle & 0xffff).checked_sub(1)? as usize)?),
        _ => return None,
    };
    let stats = find(body.get(20..)?, TCA_STATS2)?;
    // TCA_STATS_BASIC (1): u64 bytes, u32 packets. TCA_STATS_QUEUE (3): u32 length, backlog, drops,
    // requeues, overlimits. TCA_STATS_PKT64 (8): u64 packets, where 32 bits did not do.
    let (basic, queue) = (find(stats, 1)?, find(stats, 3)?);
    let packets =
        find(stats, 8).and_then(|p| u64_at(p, 0)).or_else(|| u32_at(basic, 8).map(u64::from))?;
    Some(ClassCounters {
        class,
        packets,
        bytes: u64_at(basic, 0)?,
        drops: u64::from(u32_at(queue, 8)?),
        backlog_packets: u64::from(u32_at(queue, 0)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket__a_burst_is_reported_as_its_time() {
        // 3028 bytes at 100 Mb/s take 242.24 us: 3785 ticks of 64 ns.
        assert_eq!(TokenBucket::new(BitsPerSec::mega(100), Bytes(3028)).ticks(), 3785);
        assert_eq!(UNLIMITED.ticks(), 15_624);
    }

    #[test]
    fn burst__is_two_frames_until_a_timers_lateness_is_more() {
        assert_eq!(burst(BitsPerSec::mega(100)), Bytes(3028));
        assert_eq!(burst(BitsPerSec::mega(1000)), Bytes(12_500));
    }

    #[test]
    fn tables__hold_every_class_once() {
        for class in Class::ALL {
            let high = HIGH_TABLE.iter().filter(|(c, _)| *c == class).count();
            let low = LOW_TABLE.iter().filter(|(c, _)| *c == class).count();
            assert_eq!(high + low, 1);
        }
        assert_eq!(table_of(Class::LowLatency), (ArbitrationTable::High, 64));
        assert_eq!(table_of(Class::Bulk), (ArbitrationTable::Low, 2));
    }

    #[test]
    fn counters__a_captured_answer_reads_as_its_figures() {
        let basic = [12_345u64.to_ne_bytes().as_slice(), &7u32.to_ne_bytes(), &[0; 4]].concat();
        let queue: Vec<u8> = [3u32, 4326, 2, 0, 0].iter().flat_map(|w| w.to_ne_bytes()).collect();
        let message = NetlinkMessage::new(RTM_NEWTCLASS, 0, &tcmsg(2, handle(0x10, 4), 0, 0))
            .text(TCA_KIND, "htb")
            .nest(TCA_STATS2, |m| m.attr(1, &basic).attr(3, &queue));
        let mut bytes = Vec::new();
        message.write(0, &mut bytes);
        let body = &bytes[crate::rtattr::HEADER..];
        let expected = ClassCounters {
            class: Some(Class::Bulk),
            packets: 7,
            bytes: 12_345,
            drops: 2,
            backlog_packets: 3,
        };
        assert_eq!(counters(body), Some(expected));
        for cut in 0..body.len() {
            let _ = counters(&body[..cut]);
        }
    }
}
