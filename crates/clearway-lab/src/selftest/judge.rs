//! Decides from a few bursts whether a port is what it should be, is not, or could not be seen for
//! noise.
//!
//! # Model
//! A port of rate `R` (bytes a second) with a token burst of `B` bytes and a queue of `N` packets
//! of `f` bytes:
//! - a flood of more than `N` packets within `s` seconds lets `P = N + 1 + (B + R s) / f` pass, one
//!   of them being the frame in service: so `N` follows from the kernel's own count of packets,
//!   whatever the receiver heard;
//! - the last of them leaves `(P f - B) / R` seconds after the first was sent: so `R` follows from
//!   the last arrival, which noise can only delay: of several rounds the shortest counts, and too
//!   short a one is a failure by itself; too long ones are a failure where they agree with each
//!   other, because a wrong rate repeats itself and noise does not;
//! - when every class has packets waiting, what passes until the first class is empty shows the
//!   order: shares of a window.
//!
//! # Invariants
//! I1. A burst that took longer than a quarter of what it should fill proves nothing and is void.
//! I2. "Fail" is said only when noise cannot explain the figure; void rounds alone give
//!     "inconclusive".

use clearway_proto::base::{BitsPerSec, Class, Nanos};
use serde::Serialize;

use super::burst::{BurstResult, FRAME};
use crate::queue::{ArbitrationTable, LOW_TABLE_PERCENT, OWN_FRAMES, burst, fifo_bytes, table_of};
use crate::{LabSpec, QueueKind};

/// Rates are distinguished to this fraction; an idle machine measured 98 to 99.6 % of 100 Mb/s.
const RATE_TOLERANCE: f64 = 0.05;
/// Whole frames leave or do not: first and last may each be counted either way.
const DEPTH_TOLERANCE_PACKETS: f64 = 2.0;
/// The same for what a longer queue adds.
const DEPTH_TOLERANCE: f64 = 0.02;
/// A port's timer may be late by this much at either end of a burst (wake-ups on two busy cores,
/// measured).
const TIMER: Nanos = Nanos::from_micros(50);
/// The test distinguishes shares to this fraction; one turn of the largest weight may add to it.
const SHARE_TOLERANCE: f64 = 0.03;
/// The part of a queue that may leave while a flood is still being sent.
const FLOOD_VOID: f64 = 0.25;
/// A packet more of each class for so much more rate, between 20 and 100: twenty pass within 25 ms
/// at 50 Mb/s.
const ORDER_RATE: BitsPerSec = BitsPerSec::mega(5);
/// The part of the first class that may leave while the others are still being sent: enough of it
/// must stay to be overtaken.
const ORDER_VOID: f64 = 0.5;

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// As it should be.
    Pass,
    /// Not as it should be, and noise does not explain it.
    Fail,
    /// The machine was too busy, or is too slow for this rate, to tell.
    Inconclusive,
}

/// One property of one port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortCheck {
    /// `rate`, `depth` or `order`.
    pub name: &'static str,
    /// The unit of the figures.
    pub unit: &'static str,
    /// What the specification says.
    pub expected: f64,
    /// What was seen; none when every round was void.
    pub measured: Option<f64>,
    /// How far they may be apart.
    pub tolerance: f64,
    /// What it came to.
    pub outcome: CheckOutcome,
}

impl PortCheck {
    fn new(
        name: &'static str,
        unit: &'static str,
        expected: f64,
        measured: Option<f64>,
        tolerance: f64,
    ) -> Self {
        let outcome = match measured {
            None => CheckOutcome::Inconclusive,
            Some(measured) if (measured - expected).abs() <= tolerance => CheckOutcome::Pass,
            Some(_) => CheckOutcome::Fail,
        };
        Self { name, unit, expected, measured, tolerance, outcome }
    }

    /// Returns this check, excused where noise explains whatever is wrong with it.
    fn excused(self) -> Self {
        let outcome = if self.outcome == CheckOutcome::Pass {
            CheckOutcome::Pass
        } else {
            CheckOutcome::Inconclusive
        };
        Self { outcome, ..self }
    }
}

/// What is known about the port under test.
#[derive(Clone, Copy)]
pub(super) struct ExpectedPort<'a> {
    pub(super) rate: BitsPerSec,
    pub(super) spec: &'a LabSpec,
}

/// The flood and what the kernel counted of it.
#[derive(Clone, Debug)]
pub(super) struct FloodResult {
    pub(super) seen: BurstResult,
    pub(super) passed: u64,
}

impl ExpectedPort<'_> {
    fn frame_ns(&self) -> f64 {
        self.rate.time_for(FRAME).0 as f64
    }

    /// Returns how many frames leave while a burst of this length is sent, next to those of the
    /// token burst.
    fn left_while(&self, seen: &BurstResult) -> f64 {
        seen.sending.0 as f64 / self.frame_ns()
    }

    /// Returns the floods that came fast enough to fill the queue.
    fn filled<'f>(&self, floods: &'f [FloodResult]) -> impl Iterator<Item = &'f FloodResult> {
        floods
            .iter()
            .filter(|f| self.left_while(&f.seen) <= FLOOD_VOID * f64::from(self.spec.queue_packets))
    }

    fn token_frames(&self) -> f64 {
        burst(self.rate).0 as f64 / FRAME.0 as f64
    }

    /// Returns the queue's depth in packets.
    pub(super) fn depth(&self, floods: &[FloodResult]) -> PortCheck {
        let expected = match self.spec.queue {
            QueueKind::Fifo => (fifo_bytes(self.spec.queue_packets).0 / FRAME.0) as f64,
            QueueKind::Strict | QueueKind::Weighted | QueueKind::VlArb => {
                f64::from(self.spec.queue_packets)
            }
        };
        let left =
            |flood: &FloodResult| (self.token_frames() + self.left_while(&flood.seen)).floor();
        let depths = self.filled(floods).map(|flood| flood.passed as f64 - 1.0 - left(flood));
        let measured = depths.min_by(|a, b| (a - expected).abs().total_cmp(&(b - expected).abs()));
        let late = TIMER.0 as f64 / self.frame_ns();
        let tolerance = DEPTH_TOLERANCE_PACKETS + DEPTH_TOLERANCE * expected + late;
        PortCheck::new("depth", "packets", expected, measured, tolerance)
    }

    /// Returns the port's rate.
    pub(super) fn rate(&self, floods: &[FloodResult]) -> PortCheck {
        let expected = self.rate.0 as f64 / 1e6;
        let bits =
            |f: &FloodResult| ((f.passed * FRAME.0).saturating_sub(burst(self.rate).0) * 8) as f64;
        let late_ns = |f: &FloodResult| f.seen.draining.0 as f64 - bits(f) * 1e3 / expected;
        let heard: Vec<&FloodResult> =
            self.filled(floods).filter(|f| f.seen.arrived.len() as u64 == f.passed).collect();
        let mut rates: Vec<f64> =
            heard.iter().map(|f| bits(f) * 1e3 / f.seen.draining.0.max(1) as f64).collect();
        rates.sort_by(f64::total_cmp);
        let late = TIMER.0 as f64 / (self.frame_ns() * f64::from(self.spec.queue_packets));
        let tolerance = (RATE_TOLERANCE + late) * expected;
        let check = PortCheck::new("rate", "Mb/s", expected, rates.last().copied(), tolerance);
        let waited = heard.iter().all(|f| (0.0..=f.seen.noise.0 as f64).contains(&late_ns(f)));
        // A hypervisor that takes the processor away, and the kernel's own threads, delay a burst
        // without any wait of these two threads.
        let scattered = matches!(rates[..], [least, .., most]
            if most < expected && most - least > tolerance);
        if waited || scattered { check.excused() } else { check }
    }

    /// Returns how many packets of each class the order burst has: more on a fast link, of which
    /// more leave meanwhile, and enough that the window spans several turns of the largest weight.
    pub(super) fn order_packets(&self) -> usize {
        let depth = self.spec.queue_packets as usize;
        let fast = (self.rate.0 / ORDER_RATE.0).clamp(20, 100) as usize;
        match self.spec.queue {
            QueueKind::Fifo => fast.min(depth / Class::ALL.len()),
            QueueKind::Strict => fast.min(depth),
            QueueKind::Weighted | QueueKind::VlArb => fast.max(self.turn() * 5).min(depth),
        }
    }

    /// Returns the order burst: least urgent first, so that every overtaking is the queue's doing.
    pub(super) fn order_burst(&self) -> Vec<Class> {
        let packets = self.order_packets();
        Class::ALL.into_iter().rev().flat_map(|class| std::iter::repeat_n(class, packets)).collect()
    }

    /// Returns how many frames one class may send in its turn.
    fn turn(&self) -> usize {
        let weight = |class| match self.spec.queue {
            QueueKind::Weighted => self.spec.weights.weight(class),
            QueueKind::VlArb => 16,
            QueueKind::Fifo | QueueKind::Strict => 1,
        };
        Class::ALL.into_iter().map(weight).max().unwrap_or(1) as usize
    }

    /// Returns whether classes leave in the order, or with the shares, that the kind of queue
    /// promises.
    pub(super) fn order(&self, rounds: &[BurstResult]) -> PortCheck {
        let packets = self.order_packets();
        let ideal = self.ideal_shares();
        let stayed = |seen: &&BurstResult| self.left_while(seen) <= ORDER_VOID * packets as f64;
        let complete = |seen: &&BurstResult| seen.arrived.len() == packets * Class::ALL.len();
        let windows = rounds.iter().filter(stayed).filter(complete).map(|seen| self.window(seen));
        let errors =
            windows.filter(|window| window.total > 0).map(|w| (w.deviation(&ideal), w.total));
        let best = errors.min_by(|a, b| a.0.total_cmp(&b.0));
        let turn = self.turn() as f64;
        let tolerance =
            best.map_or(SHARE_TOLERANCE, |(_, total)| SHARE_TOLERANCE + turn / total as f64);
        PortCheck::new(
            "order",
            "largest error of a class's share",
            0.0,
            best.map(|(error, _)| error),
            tolerance,
        )
    }

    /// Returns what passes between the end of the burst and the moment the first class has nothing
    /// left.
    fn window(&self, seen: &BurstResult) -> CountingWindow {
        let packets = self.order_packets();
        let own = if self.spec.queue == QueueKind::Strict { OWN_FRAMES } else { 1 };
        let skip = (self.token_frames() + self.left_while(seen)).ceil() as usize + own;
        let mut window = CountingWindow { counts: [0; 5], total: 0 };
        let mut sent = [0; 5];
        for (i, class) in seen.arrived.iter().enumerate() {
            sent[class.index()] += 1;
            if i >= skip {
                window.counts[class.index()] += 1;
                window.total += 1;
                if sent[class.index()] == packets {
                    break;
                }
            }
        }
        window
    }

    /// Returns the share of each class while all of them have packets waiting.
    fn ideal_shares(&self) -> [f64; 5] {
        let spec = self.spec;
        match spec.queue {
            // The burst sends the least urgent first, and a FIFO keeps that order.
            QueueKind::Fifo => [0.0, 0.0, 0.0, 0.0, 1.0],
            QueueKind::Strict => [1.0, 0.0, 0.0, 0.0, 0.0],
            QueueKind::Weighted => {
                let sum: u32 = Class::ALL.into_iter().map(|class| spec.weights.weight(class)).sum();
                Class::ALL.map(|class| f64::from(spec.weights.weight(class)) / f64::from(sum))
            }
            QueueKind::VlArb => Class::ALL.map(|class| {
                let (table, weight) = table_of(class);
                let peers = Class::ALL.into_iter().map(table_of).filter(|(t, _)| *t == table);
                let sum: u32 = peers.map(|(_, weight)| weight).sum();
                let low = f64::from(LOW_TABLE_PERCENT) / 100.0;
                let part = if table == ArbitrationTable::High { 1.0 - low } else { low };
                part * f64::from(weight) / f64::from(sum)
            }),
        }
    }
}

struct CountingWindow {
    counts: [usize; 5],
    total: usize,
}

impl CountingWindow {
    fn deviation(&self, ideal: &[f64; 5]) -> f64 {
        let share = |count: usize| count as f64 / self.total as f64;
        self.counts
            .iter()
            .zip(ideal)
            .map(|(count, ideal)| (share(*count) - ideal).abs())
            .fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests;
