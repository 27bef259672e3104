//! Timed exchanges in iterations: each rank sends one message to each of its peers and gets one
//! from each, then, for bandwidth with synchronisation, passes a barrier.
//!
//! # Source
//! GPCNeT's random ring bandwidth + sync test (peers are the two neighbours) and its alltoall
//! (peers are all others).
//!
//! # Invariants
//! I1. An iteration is over when everything is sent, acknowledged and received, and the barrier
//!     passed: not before.

use alloc::vec::Vec;

use crate::base::{Class, LocalNs, Nanos, Rank, Schedule};
use crate::wire::{More, Span};

use super::collective::Collective;
use super::context::{CongestionConfig, CongestionContext};
use super::frame::CongestionFrame;
use super::task::{Phase, VictimKind, VictimTask};
use super::transfer::{IncomingTransfer, OutgoingTransfer, Segmentation};

/// A rank's part in repeated exchanges.
#[derive(Debug)]
pub(super) struct RepeatedExchange {
    class: Class,
    interval: Nanos,
    outgoing: Vec<OutgoingTransfer>,
    incoming: Vec<IncomingTransfer>,
    barrier: Option<Collective>,
    iteration: u32,
    state: ExchangeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExchangeState {
    /// The next iteration begins then.
    Resting(LocalNs),
    /// Messages are under way since then.
    Moving(LocalNs),
    /// All messages are through; the iteration began then.
    Syncing(LocalNs),
    /// The phase is over.
    Ended,
}

impl RepeatedExchange {
    pub(super) fn new(task: &VictimTask, phase: &Phase, config: &CongestionConfig) -> Self {
        let sync = task.kind == VictimKind::BandwidthSync;
        let peers = if sync {
            task.neighbours(config.rank)
        } else {
            task.ring.iter().copied().filter(|rank| *rank != config.rank).collect()
        };
        let shape = Segmentation::new(task.kind.message(), config.body_max);
        Self {
            class: task.class,
            interval: task.interval,
            outgoing: peers.iter().map(|peer| OutgoingTransfer::new(*peer, shape)).collect(),
            incoming: peers.iter().map(|peer| IncomingTransfer::new(*peer, shape)).collect(),
            barrier: sync
                .then(|| Collective::new(Schedule::Barrier, &task.ring, task.class, config)),
            iteration: 0,
            state: ExchangeState::Resting(phase.begin),
        }
    }

    /// Returns when the iteration under way began.
    pub(super) fn begun(&self) -> Option<LocalNs> {
        match self.state {
            ExchangeState::Moving(started) | ExchangeState::Syncing(started) => Some(started),
            ExchangeState::Resting(_) | ExchangeState::Ended => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        match self.state {
            ExchangeState::Resting(until) => Some(until),
            ExchangeState::Moving(_) => {
                self.outgoing.iter().filter_map(OutgoingTransfer::deadline).min()
            }
            ExchangeState::Syncing(_) => self.barrier.as_ref().and_then(Collective::deadline),
            ExchangeState::Ended => None,
        }
    }

    pub(super) fn tick(&mut self, cx: &mut CongestionContext<'_>) -> More {
        match self.state {
            ExchangeState::Resting(until) if cx.now >= cx.end() && until <= cx.now => {
                self.state = ExchangeState::Ended
            }
            ExchangeState::Resting(until) if until <= cx.now => self.start(cx),
            _ => {}
        }
        self.outgoing.iter_mut().for_each(|outgoing| outgoing.tick(cx, self.class));
        if let Some(barrier) = &mut self.barrier {
            barrier.tick(cx);
        }
        self.go_on(cx);
        More::No
    }

    pub(super) fn arrival(
        &mut self,
        cx: &mut CongestionContext<'_>,
        from: Rank,
        frame: CongestionFrame,
    ) {
        match frame {
            CongestionFrame::Segment { iteration, index, count } => {
                match self.incoming.iter_mut().find(|incoming| incoming.peer == from) {
                    Some(incoming) => incoming.segment(cx, self.class, iteration, index, count),
                    None => cx.record.foreign += 1,
                }
            }
            CongestionFrame::SegmentAck { iteration, received } => {
                match self.outgoing.iter_mut().find(|outgoing| outgoing.peer == from) {
                    Some(outgoing) => outgoing.acknowledged(cx, self.class, iteration, received),
                    None => cx.record.foreign += 1,
                }
            }
            CongestionFrame::Sum { .. } | CongestionFrame::Question { .. } => {
                match &mut self.barrier {
                    Some(barrier) => barrier.arrival(cx, from, Span::EMPTY, frame),
                    None => cx.record.foreign += 1,
                }
            }
            _ => cx.record.foreign += 1,
        }
        self.go_on(cx);
    }

    fn start(&mut self, cx: &mut CongestionContext<'_>) {
        self.iteration += 1;
        for incoming in &mut self.incoming {
            incoming.start(self.iteration);
        }
        for outgoing in &mut self.outgoing {
            outgoing.start(cx, self.class, self.iteration);
        }
        self.state = ExchangeState::Moving(cx.now);
    }

    /// Takes every step that has become possible.
    fn go_on(&mut self, cx: &mut CongestionContext<'_>) {
        if let ExchangeState::Moving(started) = self.state
            && self.outgoing.iter().all(OutgoingTransfer::complete)
            && self.incoming.iter().all(IncomingTransfer::complete)
        {
            self.state = ExchangeState::Syncing(started);
            if let Some(barrier) = &mut self.barrier {
                barrier.start(cx, self.iteration, 0);
            }
        }
        if let ExchangeState::Syncing(started) = self.state
            && self.barrier.as_ref().is_none_or(|barrier| barrier.result().is_some())
        {
            cx.iteration_over(started);
            self.state = ExchangeState::Resting(cx.next_round(self.interval));
        }
    }
}
