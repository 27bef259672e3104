//! Runs a world while its nodes suffer what a plan says, each thing at its time.
//!
//! # Model
//! Faults of the fabric are events of the fabric. Faults of nodes happen between two instants of
//! the world: everything up to and including the instant has happened, nothing later has.
//!
//! # Invariants
//! I1. A node that several faults crash is down until the last of them is over.

use std::collections::{BTreeMap, VecDeque};

use clearway_proto::base::{Bytes, Nanos, RandomKey, Rank};
use clearway_proto::wire::Engine;

use super::plan::{FaultDurations, FaultKind};
use super::resolve::{NodeFault, ResolvedPlan};
use crate::disk::{DiskFault, Survival};
use crate::fabric::Fabric;
use crate::processor::exponential;
use crate::time::Picos;
use crate::wire::SimWire;
use crate::world::{StopReason, World, WorldEvent};

/// Interruptions of one fault at most: ten seconds of a kernel's 1 kHz tick.
const INTERRUPTIONS_MAX: u64 = 10_000;

/// What happens to a node at an instant.
#[derive(Debug)]
struct NodeStep {
    at: Picos,
    rank: Rank,
    act: NodeAction,
    kind: FaultKind,
    /// Until the fault is over.
    length: Picos,
    plan: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeAction {
    Begin,
    End,
}

/// Applies the faults of nodes of one plan to one world.
#[derive(Debug)]
pub struct Injector {
    steps: VecDeque<NodeStep>,
    /// Crashes that are not over, by rank.
    down: BTreeMap<Rank, u32>,
    struck: BTreeMap<u32, u64>,
    key: RandomKey,
}

/// Makes the engine of a rank that comes back.
pub type RestartEngine<'a, E> = &'a mut dyn FnMut(&mut SimWire) -> E;

impl Injector {
    /// Creates an `Injector` for the faults of nodes in `resolved`. `key` decides lengths that the
    /// plan leaves open.
    pub fn new(resolved: &ResolvedPlan, key: RandomKey) -> Self {
        let mut steps = Vec::new();
        for NodeFault { at, until, rank, kind, plan } in &resolved.nodes {
            let (at, until, rank, plan, length) = (*at, *until, *rank, *plan, *until - *at);
            let mut put =
                |at, act| steps.push(NodeStep { at, rank, act, kind: kind.clone(), length, plan });
            if let FaultKind::SpuriousWake { every } = kind {
                let count = (length.0 / every.0).min(INTERRUPTIONS_MAX);
                (0..=count).for_each(|n| put(at + Picos(every.0 * n), NodeAction::Begin));
            } else {
                put(at, NodeAction::Begin);
                put(until, NodeAction::End);
            }
        }
        steps.sort_by_key(|step| step.at);
        Self { steps: steps.into(), down: BTreeMap::new(), struck: BTreeMap::new(), key }
    }

    /// Returns how often the fault `plan` of the plan befell a node.
    pub fn strikes(&self, plan: u32) -> u64 {
        self.struck.get(&plan).copied().unwrap_or(0)
    }

    /// Runs as [`World::run_until`] does, with the faults that are due.
    pub fn run_until<E: Engine>(
        &mut self,
        world: &mut World<E, Fabric>,
        until: Picos,
        remake: RestartEngine<'_, E>,
        hear: &mut dyn FnMut(WorldEvent<'_, E>),
    ) -> StopReason {
        while let Some(at) = self.steps.front().map(|step| step.at).filter(|at| *at <= until) {
            world.run_until(at, hear);
            while world.now() < at {
                world.network_mut().advance(at);
            }
            if let Some(step) = self.steps.pop_front() {
                self.take(&step, world, remake);
            }
        }
        world.run_until(until, hear)
    }

    fn take<E: Engine>(
        &mut self,
        step: &NodeStep,
        world: &mut World<E, Fabric>,
        remake: RestartEngine<'_, E>,
    ) {
        let NodeStep { at, rank, length, ref kind, .. } = *step;
        let begins = step.act == NodeAction::Begin;
        if begins {
            *self.struck.entry(step.plan).or_default() += 1;
        }
        match *kind {
            FaultKind::Crash => self.crash(step, world, remake),
            FaultKind::Paused if begins => {
                world.network_mut().wire(rank).processor.pause(at, length)
            }
            FaultKind::Interruptions { every, length: each, lengths } if begins => {
                let mut stream =
                    self.key.node(u64::from(step.plan)).node(u64::from(rank.0)).stream();
                let processor = &mut world.network_mut().wire(rank).processor;
                for n in 0..(length.0 / every.0).min(INTERRUPTIONS_MAX) {
                    let each = if lengths == FaultDurations::Equal {
                        each
                    } else {
                        exponential(&mut stream, each)
                    };
                    processor.pause(at + Picos(every.0 * n), each);
                }
            }
            FaultKind::ClockJump { ahead } if begins => {
                world.disturb(rank, |clock| clock.jump(at, Nanos(ahead.nanos().0)));
            }
            FaultKind::ClockDrift { ppm } if begins => {
                world.disturb(rank, |clock| clock.drift_for(at, length, ppm))
            }
            FaultKind::ClockFrozen if begins => {
                world.disturb(rank, |clock| clock.freeze(at, length))
            }
            FaultKind::SpuriousWake { .. } => world.nudge(rank),
            FaultKind::DiskSlow { .. }
            | FaultKind::DiskFails
            | FaultKind::DiskFull
            | FaultKind::DiskTorn { .. } => {
                if let Some(disk) = &mut world.network_mut().wire(rank).disk {
                    disk.set_fault(disk_fault(kind).filter(|_| begins));
                }
            }
            FaultKind::Completions { end } => {
                world.network_mut().wire(rank).trouble.completions = begins.then_some(end);
            }
            FaultKind::SendRefused => world.tighten(rank, begins.then_some(0)),
            FaultKind::TightQueue { messages } => world.tighten(rank, begins.then_some(messages)),
            FaultKind::LateTimer { by } => {
                world.network_mut().wire(rank).trouble.late = if begins { by } else { Picos::ZERO };
                world.disturb(rank, |_| ());
            }
            _ => {}
        }
    }

    fn crash<E: Engine>(
        &mut self,
        step: &NodeStep,
        world: &mut World<E, Fabric>,
        remake: RestartEngine<'_, E>,
    ) {
        let down = self.down.entry(step.rank).or_default();
        match step.act {
            NodeAction::Begin => {
                *down += 1;
                if *down == 1 {
                    world.crash(step.rank, Survival::Nothing);
                }
            }
            NodeAction::End => {
                *down -= 1;
                if *down == 0 {
                    world.restart(step.rank, remake);
                }
            }
        }
    }
}

fn disk_fault(kind: &FaultKind) -> Option<DiskFault> {
    match *kind {
        FaultKind::DiskSlow { by } => Some(DiskFault::Slow(by)),
        FaultKind::DiskFails => Some(DiskFault::Fails),
        FaultKind::DiskFull => Some(DiskFault::Full),
        FaultKind::DiskTorn { bytes } => Some(DiskFault::Torn(Bytes(bytes))),
        _ => None,
    }
}
