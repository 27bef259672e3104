//! InfiniBand's arbitration between virtual lanes: a table of high and one of low priority, and a
//! limit between them.
//!
//! # Model
//! ```text
//!    15 before all --> high table, until its limit is used up --> one packet of the low table --> limit afresh
//! ```
//! A table is a list of (lane, weight). Its current entry sends while it has weight left; then, or
//! when its lane has nothing to send, the next entry with a weight and a packet is the current one
//! and has its whole weight again.
//!
//! # Source
//! After 7.6.9 of the InfiniBand specification, volume 1, as described in OpenSM's
//! `doc/QoS_management_in_OpenSM.txt`, section 7, and in Mellanox's manuals, which repeat it; the
//! specification itself was not read. Weights of 0 to 255 in 64 bytes that "may be transmitted from
//! that VL when its turn in the arbitration occurs", 0 skips the entry, lanes 0 to 14, a lane may
//! be listed several times and in both tables, the limit counts 4096 bytes, 255 is unbounded, 0 is
//! a single packet. Mellanox's model for OMNeT++ (`vlarb.cc`) counts the same units, and decides
//! only between whole packets.
//!
//! # Decisions where the text is silent or read in two ways
//! - *Rounding up*: an entry may begin a packet while any weight is left, so that it sends
//!   ceil(weight / packet) packets; what it overdraws is forgotten, not charged to its next turn.
//!   (The OMNeT++ model lets an entry whose weight is exactly used up begin one more; then a weight
//!   of one packet would send two.)
//! - *Units*: each packet counts in whole units of 64 bytes, headers included, as its credits do.
//! - *The limit* is read the same way: high priority may begin a packet while it is not used up.
//! - *An opportunity* for low priority is given when the limit is used up, and taken if a low lane
//!   has a packet and room ahead; if none has, it has passed and the limit begins afresh with the
//!   next packet of high priority.
//! - *Idle times*: only grants move the state, so an idle channel does not begin the limit afresh.
//!   The difference is at most one packet of low priority, sent earlier.
//! - *Weight left over* when a lane runs dry in its turn is lost.

use super::Choice;
use crate::spec::{VIRTUAL_LANES_MAX, VlArbitration};

/// Bytes of a unit of weight and of a credit.
const UNIT: u32 = 64;
/// Units of one step of the limit: 4096 bytes.
const LIMIT_UNITS: u16 = 64;
/// A limit that is none.
const UNBOUNDED: u8 = 255;
/// Management: before all others, in no table.
const MANAGEMENT: u8 = 15;

/// Units of a packet.
pub(super) fn units(bytes: u32) -> u32 {
    bytes.div_ceil(UNIT)
}

/// Units that high priority may use up before low priority has its opportunity, or no bound. A
/// packet may begin while one is left; so one unit is what makes a limit of zero a single packet.
pub(super) fn limit_units(high_limit: u8) -> Option<u16> {
    (high_limit != UNBOUNDED).then(|| (u16::from(high_limit) * LIMIT_UNITS).max(1))
}

/// The rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArbitrationTables {
    high: WeightTable,
    low: WeightTable,
    limit: Option<u16>,
}

/// One table: entries that are never served are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WeightTable {
    entries: Vec<(u8, u8)>,
    lanes: u32,
}

impl WeightTable {
    fn new(entries: &[(u8, u8)]) -> Self {
        let served = |(lane, weight): &(u8, u8)| *weight > 0 && *lane < MANAGEMENT;
        let entries: Vec<_> = entries.iter().copied().filter(served).collect();
        let lanes = entries.iter().fold(0, |all, (lane, _)| all | 1 << lane);
        Self { entries, lanes }
    }
}

impl ArbitrationTables {
    /// Takes the tables as they are written.
    pub(super) fn new(rule: &VlArbitration) -> Self {
        Self {
            high: WeightTable::new(&rule.high),
            low: WeightTable::new(&rule.low),
            limit: limit_units(rule.high_limit),
        }
    }
}

/// Where one table stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TablePosition {
    entry: u8,
    /// Units sent in this turn.
    used: u16,
}

impl TablePosition {
    /// Returns the entry that sends next.
    fn next(self, table: &WeightTable, eligible: u32) -> Option<u8> {
        if table.lanes & eligible == 0 {
            return None;
        }
        let count = table.entries.len();
        let here = usize::from(self.entry);
        let ready = |entry: usize| eligible & 1 << table.entries[entry].0 != 0;
        if self.used < u16::from(table.entries[here].1) && ready(here) {
            return Some(self.entry);
        }
        (1..=count)
            .map(|ahead| (here + ahead) % count)
            .find(|entry| ready(*entry))
            .map(|entry| entry as u8)
    }

    /// Records that `entry`, found by `next`, sends `units`.
    fn send(&mut self, table: &WeightTable, entry: u8, units: u16) {
        let goes_on =
            entry == self.entry && self.used < u16::from(table.entries[usize::from(entry)].1);
        let before = if goes_on { self.used } else { 0 };
        *self = Self { entry, used: before.saturating_add(units) };
    }
}

/// Where both tables of a channel stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TablePositions {
    high: TablePosition,
    low: TablePosition,
    /// Units that high priority sent since low priority last had an opportunity.
    sent: u16,
}

/// An entry of one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableEntry {
    High(u8),
    Low(u8),
}

impl TablePositions {
    /// Returns the next lane to send.
    pub(super) fn pick(&self, rule: &ArbitrationTables, eligible: u32) -> Option<u8> {
        if eligible & 1 << MANAGEMENT != 0 {
            return Some(MANAGEMENT);
        }
        self.turn(rule, eligible).map(|turn| match turn {
            TableEntry::High(entry) => rule.high.entries[usize::from(entry)].0,
            TableEntry::Low(entry) => rule.low.entries[usize::from(entry)].0,
        })
    }

    /// Moves on to the entry that `choice` came from.
    pub(super) fn grant(&mut self, rule: &ArbitrationTables, choice: Choice) {
        if choice.lane == MANAGEMENT {
            return;
        }
        let units = u16::try_from(units(choice.bytes)).unwrap_or(u16::MAX);
        match self.turn(rule, choice.eligible) {
            Some(TableEntry::High(entry)) => {
                let before = if self.used_up(rule) { 0 } else { self.sent };
                self.sent = before.saturating_add(units);
                self.high.send(&rule.high, entry, units);
            }
            Some(TableEntry::Low(entry)) => {
                self.sent = 0;
                self.low.send(&rule.low, entry, units);
            }
            None => {}
        }
    }

    /// Returns whether low priority must have its opportunity.
    fn used_up(&self, rule: &ArbitrationTables) -> bool {
        rule.limit.is_some_and(|limit| self.sent >= limit)
    }

    /// Returns the data lane whose turn it is.
    fn turn(&self, rule: &ArbitrationTables, eligible: u32) -> Option<TableEntry> {
        let high = || self.high.next(&rule.high, eligible).map(TableEntry::High);
        let low = || self.low.next(&rule.low, eligible).map(TableEntry::Low);
        if self.used_up(rule) { low().or_else(high) } else { high().or_else(low) }
    }
}

const _: () = assert!(MANAGEMENT as usize == VIRTUAL_LANES_MAX - 1);
