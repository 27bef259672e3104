//! Which symbols shall still leave, to whom, and when the next one may: first sends, handing on and repair are one thing here.
//!
//! # Model
//! A *line* leads to one neighbour or to the group. What is wanted on a line and held here leaves, lowest sequence first over all
//! lines, at the pace of the rate. What is wanted and not held waits until it is. Who asks again for what left on the line a
//! moment ago is not heard: it is under way.
//!
//! # Invariants
//! I1. A symbol leaves on a line at most once for each time it was wanted, and again only when a round trip has passed.

use alloc::vec;
use alloc::vec::Vec;

use super::frame::DATA_HEAD;
use super::holding::{BLOCK, Holding};
use crate::base::{BitsPerSec, Bytes, LocalNs, Nanos};

/// What a packet needs on an Ethernet link beside the message: Ethernet 14, IP 20, UDP 8, the UDP wire's header 16.
const OVERHEAD: u64 = 58;
/// How far ahead of now packets are handed to the driver, which holds them: longer than a real progress loop sleeps.
const AHEAD: Nanos = Nanos::from_millis(2);

/// What left lately of one block.
#[derive(Clone, Copy, Debug, Default)]
struct Lately {
    now: u64,
    before: u64,
    since: LocalNs,
}

/// The way to one neighbour, or to the group.
#[derive(Debug)]
pub(super) struct Line {
    /// The neighbour's place; `None` for the group.
    pub(super) to: Option<u16>,
    wanted: Vec<u64>,
    count: u32,
    /// Nothing is wanted of any block before.
    lowest: u64,
    lately: Vec<Lately>,
}

impl Line {
    fn new(to: Option<u16>, holding: &Holding) -> Self {
        let blocks = holding.blocks() as usize;
        let lowest = holding.floor() / BLOCK;
        Self { to, wanted: vec![0; blocks], count: 0, lowest, lately: vec![Lately::default(); blocks] }
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

    /// What of `block` left on this line less than `quiet` ago, up to twice as long.
    fn lately(&self, block: u64, now: LocalNs, quiet: Nanos) -> u64 {
        let lately = &self.lately[self.at(block)];
        match now.since(lately.since).steps_of(quiet) {
            0 => lately.now | lately.before,
            1 => lately.now,
            _ => 0,
        }
    }

    fn left(&mut self, sequence: u64, at: LocalNs, quiet: Nanos) {
        let (block, bit) = (self.at(sequence / BLOCK), 1 << (sequence % BLOCK));
        self.count -= u32::from(self.wanted[block] & bit != 0);
        self.wanted[block] &= !bit;
        let lately = &mut self.lately[block];
        match at.since(lately.since).steps_of(quiet) {
            0 => {}
            1 => *lately = Lately { now: 0, before: lately.now, since: at },
            _ => *lately = Lately { now: 0, before: 0, since: at },
        }
        lately.now |= bit;
    }

    /// The first symbol that is wanted and held.
    fn first(&mut self, holding: &Holding) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        for block in self.lowest..holding.end() {
            let wanted = self.wanted[self.at(block)];
            if wanted == 0 && block == self.lowest {
                self.lowest += 1;
            }
            let ready = wanted & holding.held(block);
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
            self.wanted[at] = 0;
            self.lately[at] = Lately::default();
        }
        self.lowest = self.lowest.max(to);
    }
}

/// Everything that shall leave this node.
#[derive(Debug)]
pub(super) struct Outgoing {
    lines: Vec<Line>,
    /// The transmit queue refused something, and has no room again yet.
    full: bool,
    rate: Option<BitsPerSec>,
    /// When the next packet may leave.
    next: LocalNs,
    /// When to look again because too much was handed out.
    wake: Option<LocalNs>,
}

impl Outgoing {
    pub(super) fn new(rate: Option<BitsPerSec>) -> Self {
        Self { lines: Vec::new(), full: false, rate, next: LocalNs(0), wake: None }
    }

    /// New neighbours; what was wanted is forgotten, and will be asked for again.
    pub(super) fn lead_to(&mut self, lines: impl Iterator<Item = Option<u16>>, holding: &Holding) {
        self.lines.clear();
        for to in lines {
            if self.line(to).is_none() {
                self.lines.push(Line::new(to, holding));
            }
        }
    }

    /// The number of the line to `to`.
    pub(super) fn line(&self, to: Option<u16>) -> Option<usize> {
        self.lines.iter().position(|line| line.to == to)
    }

    /// Where a line leads.
    pub(super) fn to(&self, line: usize) -> Option<u16> {
        self.lines.get(line).and_then(|line| line.to)
    }

    pub(super) fn want(&mut self, line: usize, sequence: u64) {
        if let Some(line) = self.lines.get_mut(line) {
            line.want(sequence / BLOCK, 1 << (sequence % BLOCK));
        }
    }

    /// Somebody on `line` lacks `missing` of `block`, which the holding covers.
    pub(super) fn repair(&mut self, line: usize, block: u64, missing: u64, now: LocalNs, quiet: Nanos) {
        let to_all = self.line(None).map_or(0, |group| self.lines[group].lately(block, now, quiet));
        if let Some(line) = self.lines.get_mut(line) {
            let missing = missing & !to_all & !line.lately(block, now, quiet);
            line.want(block, missing);
        }
    }

    /// On how many lines something of `block` is wanted.
    pub(super) fn waiting(&self, block: u64) -> u16 {
        self.lines.iter().filter(|line| line.wanted[line.at(block)] != 0).count() as u16
    }

    /// Changes the pace.
    pub(super) fn set_rate(&mut self, rate: BitsPerSec) {
        self.rate = Some(rate);
    }

    /// Nothing more is wanted on `line`.
    pub(super) fn empty(&mut self, line: usize) {
        if let Some(line) = self.lines.get_mut(line) {
            line.wanted.fill(0);
            line.count = 0;
        }
    }

    pub(super) fn set_full(&mut self) {
        self.full = true;
    }

    pub(super) fn set_room(&mut self) {
        self.full = false;
    }

    /// Takes the next symbol that may leave: on which line, which, and when.
    pub(super) fn take(
        &mut self,
        holding: &Holding,
        length: impl Fn(u64) -> u64,
        now: LocalNs,
        quiet: Nanos,
    ) -> Option<(usize, u64, LocalNs)> {
        self.wake = (!self.full && self.next > now + AHEAD).then(|| LocalNs(self.next.0 - AHEAD.0 / 2));
        if self.full || self.wake.is_some() {
            return None;
        }
        let ready = self.lines.iter_mut().enumerate().filter_map(|(at, line)| Some((line.first(holding)?, at)));
        let (sequence, at) = ready.min()?;
        let slot = self.next.max(now);
        self.lines[at].left(sequence, slot, quiet);
        if let Some(rate) = self.rate {
            self.next = slot + rate.time_for(Bytes(length(sequence) + DATA_HEAD as u64 + OVERHEAD));
        }
        Some((at, sequence, slot))
    }

    /// When what leaves now would leave, behind all that was taken.
    pub(super) fn behind_all(&self, now: LocalNs) -> LocalNs {
        self.next.max(now)
    }

    /// When more can be taken than the last time.
    pub(super) const fn deadline(&self) -> Option<LocalNs> {
        self.wake
    }

    /// The floor passed some blocks.
    pub(super) fn release(&mut self, from: u64, to: u64) {
        self.lines.iter_mut().for_each(|line| line.release(from, to));
    }
}
