//! Timed small messages on a schedule that no reply can delay.
//!
//! # Model
//! Every rank of the ring sends to both neighbours at intended times whose distances are uniform in
//! `interval/2 ..= 3/2 interval`, so that probes do not keep step with anything periodic. A
//! neighbour answers at once. Each message carries the intended time and the stamp of its real
//! send; its receiver records the one-way time if clocks are shared, and the asker records
//! the round trip from the *intended* time: a probe that was sent late because its process waited
//! is late, not left out.
//!
//! # Source
//! Open loop against coordinated omission: wrk2's argument. Ring of neighbours: GPCNeT's random
//! ring latency test.
//!
//! # Invariants
//! I1. Every message sent is counted at its sender under the slice of its intended time, and
//!     recorded at its receiver
//!     under the same slice: the difference is the loss.

use alloc::vec::Vec;

use crate::base::{Class, LocalNs, Nanos, PeerNs, RandomStream, Rank};
use crate::wire::{Datagram, More};

use super::context::{CongestionConfig, CongestionContext};
use super::frame::{CongestionFrame, ReplyKind};
use super::record::Metric;
use super::task::{Phase, VictimTask};

/// Messages of one call, so that a process that woke up late gives others their turn.
const BURST_MAX: usize = 64;
/// Parts of the interval that lie at least between two sends of a process that is late: half of the
/// least distance of intended times. All that it owes at once would not find room in a queue, and
/// count as lost by the network.
const CATCH_UP: u64 = 4;

/// The sender and answerer of probes.
#[derive(Debug)]
pub(super) struct Probe {
    class: Class,
    body: u32,
    neighbours: Vec<Rank>,
    interval: Nanos,
    schedule: RandomStream,
    next: Option<LocalNs>,
    /// No probe is sent before, however late it is, until the phase ends.
    not_before: LocalNs,
    sequence: u32,
}

impl Probe {
    pub(super) fn new(task: &VictimTask, phase: &Phase, config: &CongestionConfig) -> Self {
        let key = config
            .key
            .purpose("probe schedule")
            .node(u64::from(phase.number))
            .node(u64::from(config.rank.0));
        let mut schedule = key.stream();
        let interval = Nanos(task.interval.0.max(1));
        let first = phase.begin + Nanos(schedule.below(interval.0));
        Self {
            class: task.class,
            body: task.kind.message().0 as u32,
            neighbours: task.neighbours(config.rank),
            interval,
            schedule,
            next: Some(first),
            not_before: phase.begin,
            sequence: 0,
        }
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        self.next.map(|intended| intended.max(self.not_before))
    }

    /// Sends what is due.
    pub(super) fn tick(&mut self, cx: &mut CongestionContext<'_>) -> More {
        for _ in 0..BURST_MAX {
            let Some(intended) = self.next else { return More::No };
            if intended >= cx.end() {
                self.next = None;
                return More::No;
            }
            if intended.max(self.not_before) > cx.now {
                return More::No;
            }
            self.ask(cx, intended);
            self.not_before = cx.end().min(cx.now + Nanos(self.interval.0 / CATCH_UP));
            self.next = Some(
                intended + Nanos(self.interval.0 / 2 + self.schedule.below(self.interval.0 + 1)),
            );
        }
        More::Yes
    }

    fn ask(&mut self, cx: &mut CongestionContext<'_>, intended: LocalNs) {
        let offset = intended.since(cx.phase.begin);
        let slice = cx.slice_at(intended);
        for neighbour in &self.neighbours {
            let sent = PeerNs(cx.now.0);
            let frame = CongestionFrame::Probe {
                sequence: self.sequence,
                intended: offset.0,
                sent,
                answer: ReplyKind::Wanted,
            };
            cx.send(*neighbour, self.class, frame, self.body, None);
            cx.record.count_sent(*neighbour, slice);
            cx.record.time(Metric::SendLag, *neighbour, slice, cx.now.since(intended));
        }
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Takes a neighbour's probe or answer.
    pub(super) fn arrival(
        &mut self,
        cx: &mut CongestionContext<'_>,
        datagram: &Datagram<'_>,
        frame: CongestionFrame,
    ) {
        let CongestionFrame::Probe { sequence, intended, sent, answer } = frame else { return };
        if !self.neighbours.contains(&datagram.from) || intended >= cx.phase.length.0 {
            cx.record.foreign += 1;
            return;
        }
        let at = datagram.at.instant();
        let begun = cx.phase.begin + Nanos(intended);
        let slice = cx.slice_at(begun);
        if let Some(clock) = cx.config.shared_clock {
            cx.record.time(Metric::OneWay, datagram.from, slice, at.since(sent.on(clock)));
        }
        match answer {
            ReplyKind::Given => {
                cx.record.time(Metric::RoundTrip, datagram.from, slice, at.since(begun))
            }
            ReplyKind::Wanted => {
                let sent = PeerNs(cx.now.0);
                let frame =
                    CongestionFrame::Probe { sequence, intended, sent, answer: ReplyKind::Given };
                cx.send(datagram.from, self.class, frame, self.body, None);
                cx.record.count_sent(datagram.from, slice);
            }
        }
    }
}
