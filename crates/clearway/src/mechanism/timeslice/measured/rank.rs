//! A rank that pings: round after round, until the order is done or the coordinator wants something
//! else.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use anyhow::Result;
use clearway_proto::base::{LocalNs, Rank};
use clearway_proto::congestion::{CongestionEvent, CongestionNode};
use clearway_proto::wire::{Driver, Wire};
use clearway_runtime::waiting::Waitable;
use clearway_runtime::{clock, progress};

use super::super::messages::{TimesliceProtocol, TimesliceRequest};
use super::{PingOrder, PingResult, node};
use crate::run::rank_process::{Incoming, Requests};

/// What came of an order.
pub(in super::super) struct PingOutcome {
    pub(in super::super) results: Vec<PingResult>,
    /// What the coordinator said meanwhile.
    pub(in super::super) asked: VecDeque<Incoming<TimesliceRequest>>,
    /// The coordinator has not closed its connection.
    pub(in super::super) is_coordinated: bool,
}

/// Pings as `order` says over `wire`. What comes from the coordinator meanwhile ends it.
///
/// # Errors
/// The wire has no memory for a ping.
pub(in super::super) fn ping(
    wire: &mut dyn Waitable,
    requests: &mut Requests<TimesliceProtocol>,
    order: &PingOrder,
) -> Result<PingOutcome> {
    let now = clock::now();
    let node = node(wire, order.seed)?;
    let input = requests.source().try_clone_to_owned()?;
    let rank = wire.rank();
    let mut driver = Driver::boot(node, now, 0);
    let outcome = PingOutcome { results: Vec::new(), asked: VecDeque::new(), is_coordinated: true };
    let mut host = PingHost {
        order,
        rank,
        begin: now + order.wait,
        requests,
        round: 0,
        is_pinging: false,
        outcome,
    };
    progress::run(&mut driver, wire, &[input.as_fd()], &mut host);
    Ok(host.outcome)
}

struct PingHost<'a> {
    order: &'a PingOrder,
    rank: Rank,
    /// Of the first round.
    begin: LocalNs,
    requests: &'a mut Requests<TimesliceProtocol>,
    /// The next.
    round: usize,
    is_pinging: bool,
    outcome: PingOutcome,
}

impl progress::EngineHost<CongestionNode> for PingHost<'_> {
    fn event(&mut self, event: CongestionEvent) {
        if let CongestionEvent::PhaseOver { .. } = event {
            self.is_pinging = false;
        }
    }

    fn control(&mut self, _which: usize, _now: LocalNs, _driver: &mut Driver<CongestionNode>) {
        match self.requests.waiting() {
            Some(asked) => self.outcome.asked.extend(asked),
            None => self.outcome.is_coordinated = false,
        }
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<CongestionNode>,
        _wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        if !self.outcome.is_coordinated || !self.outcome.asked.is_empty() {
            return ControlFlow::Break(());
        }
        if self.is_pinging {
            return ControlFlow::Continue(None);
        }
        while let Some(record) = driver.engine_mut().take_record() {
            self.outcome.results.extend(PingResult::all(&record));
        }
        while self.round < self.order.partners.len() {
            let phase = self.order.phase(self.rank, self.round, self.begin);
            self.round += 1;
            if let Some(phase) = phase {
                driver.command(now, phase);
                self.is_pinging = true;
                return ControlFlow::Continue(Some(now));
            }
        }
        ControlFlow::Break(())
    }
}
