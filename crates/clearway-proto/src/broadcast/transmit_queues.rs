//! Which symbols are still to leave, to whom, and when the next one may: first sends, handing on
//! and repair are one thing here.
//!
//! # Model
//! A *line* leads to one neighbour or to the group. A symbol that is wanted on a line and held here
//! leaves, lowest sequence first over all lines, at the pace of the rate. A symbol that is wanted
//! and not held waits until it is. A member that asks again for what left on the line a moment ago
//! is not heard: it is under way.
//!
//! # Invariants
//! I1. A symbol leaves on a line at most once for each time it was wanted, and again only when a
//!     round trip has passed.
//! I2. While there is something that was not asked for, what was asked for is at most a quarter of
//!     what leaves, but for a burst.

use alloc::vec;
use alloc::vec::Vec;

use super::frame::{BlockNack, DATA_HEAD};
use super::receive_window::{BLOCK, ReceiveWindow};
use crate::base::{BitsPerSec, Bytes, LocalNs, Nanos};

/// Bytes of a packet on an Ethernet link in addition to the message: Ethernet 14, IP 20, UDP 8, the
/// UDP wire's header 16.
const OVERHEAD: u64 = 58;
/// Packets that leave together, the later ones before their time: a sender that is woken, and a
/// call to its system, cost as much as some packets. A switch's port holds as many.
const TOGETHER: u32 = 16;
/// By how much a packet leaves early at most: at low rates fewer leave together.
const EARLY: Nanos = Nanos::from_millis(1);
/// How far ahead of now packets are handed to the driver, which holds them: longer than a real
/// progress loop sleeps.
const AHEAD: Nanos = Nanos::from_millis(2);

/// What was asked for is a quarter of all when each of it costs what three others bring.
const PRICE: u32 = 3;
/// Symbols that may leave at once because they were asked for: a block.
const BURST: u32 = BLOCK as u32;

/// Messages handed to the driver at most, and never fewer than a few: what a transmit queue takes
/// is found by being refused, and what is refused leaves behind what follows, which looks like a
/// loss.
const MOST: u32 = 4096;
const FEWEST: u32 = 8;

/// What left lately of one block.
#[derive(Clone, Copy, Debug, Default)]
struct RecentlySent {
    now: u64,
    before: u64,
    since: LocalNs,
}

/// The way to one neighbour, or to the group.
#[derive(Debug)]
pub(super) struct NeighbourQueue {
    /// The neighbour's place; `None` for the group.
    pub(super) to: Option<u16>,
    wanted: Vec<u64>,
    /// Of these, what was asked for.
    asked: Vec<u64>,
    count: u32,
    /// Nothing is wanted of any block before.
    lowest: u64,
    lately: Vec<RecentlySent>,
}

impl NeighbourQueue {
    fn new(to: Option<u16>, holding: &ReceiveWindow) -> Self {
        let blocks = holding.blocks() as usize;
        let lowest = holding.floor() / BLOCK;
        let (wanted, asked) = (vec![0; blocks], vec![0; blocks]);
        Self { to, wanted, asked, count: 0, lowest, lately: vec![RecentlySent::default(); blocks] }
    }

    fn at(&self, block: u64) -> usize {
        (block % self.wanted.len() as u64) as usize
    }

    fn want(&mut self, block: u64, symbols: u64) {
        let at = self.at(block);
        self.count += (symbols & !self.wanted[at]).count_ones();
        self.wanted[at] |= symbols;
        self.lowest = self.lowest.min(block);
    }

    /// Returns what of `block` left on this line less than `timeout` ago, up to twice as long.
    fn lately(&self, block: u64, now: LocalNs, timeout: Nanos) -> u64 {
        let lately = &self.lately[self.at(block)];
        match now.since(lately.since).steps_of(timeout) {
            0 => lately.now | lately.before,
            1 => lately.now,
            _ => 0,
        }
    }

    /// Records that a symbol leaves; says whether it was asked for.
    fn left(&mut self, sequence: u64, at: LocalNs, timeout: Nanos) -> bool {
        let (block, bit) = (self.at(sequence / BLOCK), 1 << (sequence % BLOCK));
        let was_asked = self.asked[block] & bit != 0;
        self.count -= u32::from(self.wanted[block] & bit != 0);
        self.wanted[block] &= !bit;
        self.asked[block] &= !bit;
        let lately = &mut self.lately[block];
        match at.since(lately.since).steps_of(timeout) {
            0 => {}
            1 => *lately = RecentlySent { now: 0, before: lately.now, since: at },
            _ => *lately = RecentlySent { now: 0, before: 0, since: at },
        }
        lately.now |= bit;
        was_asked
    }

    /// Returns the first symbol that is wanted and held.
    fn first(&mut self, holding: &ReceiveWindow, which: SymbolSelection) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        for block in self.lowest..holding.end() {
            let wanted = self.wanted[self.at(block)];
            if wanted == 0 && block == self.lowest {
                self.lowest += 1;
            }
            let asked =
                if which == SymbolSelection::Fresh { self.asked[self.at(block)] } else { 0 };
            let ready = wanted & !asked & holding.held(block);
            if ready != 0 {
                return Some(block * BLOCK + u64::from(ready.trailing_zeros()));
            }
        }
        None
    }

    /// Forgets the blocks that the floor has passed.
    fn release(&mut self, from: u64, to: u64) {
        for block in from..to {
            let at = self.at(block);
            self.count -= self.wanted[at].count_ones();
            (self.wanted[at], self.asked[at]) = (0, 0);
            self.lately[at] = RecentlySent::default();
        }
        self.lowest = self.lowest.max(to);
    }
}

/// Which of what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SymbolSelection {
    All,
    /// What was not asked for.
    Fresh,
}

/// A symbol that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextSymbol {
    pub(super) line: usize,
    pub(super) sequence: u64,
    /// When.
    pub(super) slot: LocalNs,
    /// Somebody missed it.
    pub(super) was_asked: bool,
}

/// Everything that is to leave this node.
#[derive(Debug)]
pub(super) struct TransmitQueues {
    lines: Vec<NeighbourQueue>,
    /// What may leave because it was asked for, in thirds of a symbol.
    credit: u32,
    /// The transmit queue refused something, and has no room again yet.
    full: bool,
    /// Handed to the driver and not ended, and how many may be.
    under_way: u32,
    most: u32,
    /// Ended since `most` last grew.
    ended: u32,
    rate: Option<BitsPerSec>,
    /// When the next packet may leave.
    next: LocalNs,
    /// When those leave that leave together, and how many more can.
    together: (LocalNs, u32),
    /// When to look again because too much was handed out.
    wake: Option<LocalNs>,
}

impl TransmitQueues {
    pub(super) fn new(rate: Option<BitsPerSec>) -> Self {
        Self {
            lines: Vec::new(),
            credit: BURST * PRICE,
            full: false,
            under_way: 0,
            most: MOST,
            ended: 0,
            rate,
            next: LocalNs(0),
            together: (LocalNs(0), 0),
            wake: None,
        }
    }

    /// Sets new neighbours; what was wanted is forgotten, and will be asked for again.
    pub(super) fn lead_to(
        &mut self,
        lines: impl Iterator<Item = Option<u16>>,
        holding: &ReceiveWindow,
    ) {
        self.lines.clear();
        for to in lines {
            if self.line(to).is_none() {
                self.lines.push(NeighbourQueue::new(to, holding));
            }
        }
    }

    /// Returns the number of the line to `to`.
    pub(super) fn line(&self, to: Option<u16>) -> Option<usize> {
        self.lines.iter().position(|line| line.to == to)
    }

    /// Returns where a line leads.
    pub(super) fn to(&self, line: usize) -> Option<u16> {
        self.lines.get(line).and_then(|line| line.to)
    }

    /// Returns whether a symbol is to leave on a line.
    pub(super) fn wants(&self, line: usize, sequence: u64) -> bool {
        let is_wanted = |line: &NeighbourQueue| {
            line.wanted[line.at(sequence / BLOCK)] & 1 << (sequence % BLOCK) != 0
        };
        self.lines.get(line).is_some_and(is_wanted)
    }

    pub(super) fn want(&mut self, line: usize, sequence: u64) {
        if let Some(line) = self.lines.get_mut(line) {
            line.want(sequence / BLOCK, 1 << (sequence % BLOCK));
        }
    }

    /// Queues `missing` of `block` for a member on `line`, which the holding covers, and which did
    /// not lose `fresh` of it: that is still to come.
    pub(super) fn repair(
        &mut self,
        line: usize,
        need: BlockNack,
        fresh: u64,
        now: LocalNs,
        timeout: Nanos,
    ) {
        let to_all =
            self.line(None).map_or(0, |group| self.lines[group].lately(need.block, now, timeout));
        if let Some(line) = self.lines.get_mut(line) {
            let missing = need.missing & !to_all & !line.lately(need.block, now, timeout);
            let at = line.at(need.block);
            line.asked[at] |= missing & !line.wanted[at] & !fresh;
            line.want(need.block, missing);
        }
    }

    /// Returns how long full packets with `symbol` bytes take that leave together.
    pub(super) fn burst(&self, symbol: u32) -> Nanos {
        let packets = Bytes(Self::packet(symbol).0 * u64::from(TOGETHER));
        self.rate.map_or(Nanos::ZERO, |rate| rate.time_for(packets).min(EARLY))
    }

    /// Returns the length on a link of a packet with a symbol of `symbol` bytes.
    pub(super) fn packet(symbol: u32) -> Bytes {
        Bytes(u64::from(symbol) + DATA_HEAD as u64 + OVERHEAD)
    }

    /// Changes the pace.
    pub(super) fn set_rate(&mut self, rate: BitsPerSec) {
        self.rate = Some(rate);
    }

    /// Lets nothing leave until then.
    pub(super) fn pause(&mut self, until: LocalNs) {
        self.next = self.next.max(until);
    }

    /// Forgets all that is wanted, and all that left and is under way.
    pub(super) fn forget(&mut self, holding: &ReceiveWindow) {
        self.lines.iter_mut().for_each(|line| *line = NeighbourQueue::new(line.to, holding));
    }

    /// Records that a symbol is handed to the driver.
    pub(super) fn handed(&mut self) {
        self.under_way += 1;
    }

    /// Records that the symbol left.
    pub(super) fn left(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        self.ended += 1;
        if self.ended >= self.most {
            (self.ended, self.most) = (0, (self.most + 1).min(MOST));
        }
    }

    /// Records that the transmit queue refused a symbol: what it has taken is how many leave at a
    /// time from now on.
    pub(super) fn refused(&mut self) {
        self.full = true;
        self.under_way = self.under_way.saturating_sub(1);
        self.most = self.most.min(self.under_way).max(FEWEST);
    }

    pub(super) fn set_room(&mut self) {
        self.full = false;
    }

    fn first(&mut self, holding: &ReceiveWindow, which: SymbolSelection) -> Option<(u64, usize)> {
        let ready = self.lines.iter_mut().enumerate();
        ready.filter_map(|(at, line)| Some((line.first(holding, which)?, at))).min()
    }

    /// Takes the next symbol that may leave.
    pub(super) fn take(
        &mut self,
        holding: &ReceiveWindow,
        length: impl Fn(u64) -> u64,
        now: LocalNs,
        timeout: Nanos,
    ) -> Option<NextSymbol> {
        self.wake =
            (!self.full && self.next > now + AHEAD).then(|| LocalNs(self.next.0 - AHEAD.0 / 2));
        if self.full || self.wake.is_some() || self.under_way >= self.most {
            return None;
        }
        let any = self.first(holding, SymbolSelection::All)?;
        let fresh =
            if self.credit < PRICE { self.first(holding, SymbolSelection::Fresh) } else { None };
        let (sequence, line) = fresh.unwrap_or(any);
        let slot = self.next.max(now);
        let was_asked = self.lines[line].left(sequence, slot, timeout);
        self.credit = match was_asked {
            true => self.credit.saturating_sub(PRICE),
            false => (self.credit + 1).min(BURST * PRICE),
        };
        let Some(rate) = self.rate else {
            return Some(NextSymbol { line, sequence, slot, was_asked });
        };
        self.next = slot + rate.time_for(Bytes(length(sequence) + DATA_HEAD as u64 + OVERHEAD));
        self.together = match self.together {
            (leaves, more) if more > 0 && slot.since(leaves) < EARLY => (leaves, more - 1),
            _ => (slot, TOGETHER - 1),
        };
        Some(NextSymbol { line, sequence, slot: self.together.0, was_asked })
    }

    /// Returns when what leaves now would leave, behind all that was taken.
    pub(super) fn behind_all(&self, now: LocalNs) -> LocalNs {
        self.next.max(now)
    }

    /// Returns when more can be taken than the last time.
    pub(super) const fn deadline(&self) -> Option<LocalNs> {
        self.wake
    }

    /// Releases the blocks that the floor passed.
    pub(super) fn release(&mut self, from: u64, to: u64) {
        self.lines.iter_mut().for_each(|line| line.release(from, to));
    }
}
