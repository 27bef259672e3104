//! A simulated machine as a venue: engines in this process, on virtual time.
//!
//! # Model
//! A mechanism runs its engines in worlds of their own on the machine ([`SimMachine::world`]), each
//! a fabric at rest, so that no world inherits packets of an earlier one. All ranks read one clock,
//! the simulator's: one-way times are exact.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clearway_proto::base::{Bytes, Nanos, RandomKey};
use clearway_proto::wire::Engine;
use clearway_sim::Picos;
use clearway_sim::fabric;
use clearway_sim::spec::{FabricSpec, LinkRole};
use clearway_sim::world::World;

use super::{
    ClockAgreement, CongestionReach, HostNoise, LaunchSpec, SimMachine, Venue, VenueFacts,
    VenueRanks, ports,
};
use crate::report::model::{ExtendedReal, Figure, PhaseLoad, Report};
use crate::run::interrupt::EndAtOnce;
use crate::run::{CompletedParts, VenueKind};
use crate::scenario::Fabric;

/// What a mechanism changes of a machine before it is built.
pub(crate) type AdjustMachine = Box<dyn Fn(&mut FabricSpec)>;

/// The simulator.
pub(crate) struct SimVenue {
    fabric: Fabric,
    key: RandomKey,
    per_host: u16,
    adjust: AdjustMachine,
    /// The queue under test, and the machine with it.
    armed: Option<(String, SimMachine)>,
    /// What the simulation cost so far.
    spent: SimulationCost,
    /// What the ports did, by queue.
    loads: Vec<PhaseLoad>,
    /// What each world did.
    pub(crate) digests: Vec<String>,
    _ending: EndAtOnce,
}

/// What a simulation cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SimulationCost {
    pub(crate) wall: Duration,
    pub(crate) simulated: Nanos,
    pub(crate) events: u64,
    pub(crate) packets: u64,
    pub(crate) steps: u64,
}

impl SimVenue {
    /// Creates the simulator of `fabric`, for the ranks of `spec`; no queue is armed yet. It holds
    /// nothing outside this process, which an interrupt therefore ends at once, after what is
    /// `complete` was kept.
    ///
    /// # Errors
    /// Signals cannot be listened for.
    pub(crate) fn open(
        fabric: &Fabric,
        spec: &LaunchSpec,
        adjust: AdjustMachine,
        complete: CompletedParts,
    ) -> Result<Self> {
        Ok(Self {
            fabric: fabric.clone(),
            key: RandomKey::new(spec.seed),
            per_host: spec.per_host.max(1),
            adjust,
            armed: None,
            spent: SimulationCost::default(),
            loads: Vec::new(),
            digests: Vec::new(),
            _ending: EndAtOnce::listen(complete)?,
        })
    }

    /// Returns the machine with `queue`.
    ///
    /// # Errors
    /// The fabric has no such queue, or is impossible with it.
    pub(crate) fn machine_with(&self, queue: &str) -> Result<SimMachine> {
        let mut machine = SimMachine::open(&self.fabric, queue, self.key, &*self.adjust)?;
        let per_host = usize::from(self.per_host);
        machine.hosts =
            machine.hosts.into_iter().flat_map(|host| (0..per_host).map(move |_| host)).collect();
        Ok(machine)
    }

    /// Returns the machine with the queue that is armed.
    ///
    /// # Errors
    /// No queue is.
    pub(crate) fn machine(&self) -> Result<&SimMachine> {
        let (_, machine) =
            self.armed.as_ref().context("no queue was armed; this is a defect of the program")?;
        Ok(machine)
    }

    /// Counts `world`, which was begun at `started` and has come to `simulated`: what it did, and what
    /// that cost.
    pub(crate) fn count<E: Engine>(
        &mut self,
        world: &World<E, fabric::Fabric>,
        simulated: Nanos,
        started: Instant,
    ) {
        self.digests.push(format!("{:032x}", world.digest()));
        let totals = world.network().carrier().totals();
        let spent = &mut self.spent;
        spent.wall += started.elapsed();
        spent.simulated = spent.simulated + simulated;
        spent.events += totals.events;
        spent.packets += totals.packets;
        spent.steps += world.steps();
    }

    /// Returns the key of everything random here.
    pub(crate) const fn key(&self) -> RandomKey {
        self.key
    }

    /// Keeps what the ports did in `phase` between two readings, in place of what they did in the
    /// queue's earlier ones, and returns it.
    ///
    /// # Errors
    /// No queue is armed.
    pub(crate) fn keep(
        &mut self,
        phase: &str,
        window: [&ports::CounterReading; 2],
    ) -> Result<PhaseLoad> {
        let (queue, machine) =
            self.armed.as_ref().context("no queue was armed; this is a defect of the program")?;
        let load = ports::load(queue, phase, &machine.spec, &machine.network.graph, window);
        self.loads.retain(|kept| kept.labels != load.labels);
        self.loads.push(load.clone());
        Ok(load)
    }
}

/// Stretches of a phase, between which it is said how far a simulation is.
const STRETCHES: u64 = 50;

/// Returns the ends of stretches of simulated time, the last one being `until`. A world does the
/// same in one stretch.
pub(crate) fn stretches(from: Picos, until: Picos) -> impl Iterator<Item = Picos> {
    let length = until.0.saturating_sub(from.0) / STRETCHES;
    (1..STRETCHES).map(move |number| Picos(from.0 + length * number)).chain([until])
}

impl Venue for SimVenue {
    fn place(&self) -> VenueKind {
        VenueKind::Sim
    }

    fn facts(&self) -> VenueFacts {
        let spec = self.armed.as_ref().map(|(_, machine)| &machine.spec);
        let reach = if spec.is_some_and(FabricSpec::holds_back) {
            CongestionReach::Tree
        } else {
            CongestionReach::Link
        };
        let frame =
            spec.map_or(Bytes(0), |spec| Bytes(spec.packet.payload.0 + spec.packet.header.0));
        VenueFacts {
            frame,
            reach,
            hosts: HostNoise::Simulated,
            clocks: ClockAgreement::One,
            has_multicast: true,
        }
    }

    fn about(&self) -> String {
        let queue = self.armed.as_ref().map_or_else(String::new, |(queue, _)| format!(", {queue}"));
        let name = self
            .armed
            .as_ref()
            .map_or_else(|| self.fabric.to_string(), |(_, machine)| machine.spec.name.clone());
        format!("simulated fabric {name}{queue}")
    }

    fn hosts(&self) -> Vec<String> {
        self.armed.as_ref().map_or_else(Vec::new, |(_, machine)| machine.names())
    }

    fn arm(&mut self, queue: &str) -> Result<()> {
        self.armed = Some((queue.to_owned(), self.machine_with(queue)?));
        Ok(())
    }

    fn ranks(&mut self) -> VenueRanks<'_> {
        VenueRanks::Simulated(self)
    }

    fn introduce(&self, _report: &mut Report) {}

    fn conclude(&self, report: &mut Report) {
        if !self.digests.is_empty() {
            report.digests.clone_from(&self.digests);
        }
        let Some((_, SimMachine { spec, network, hosts, .. })) = &self.armed else { return };
        let rate = spec.link(LinkRole::Host).map_or_else(String::new, |link| {
            format!(", host links of {}", spec.links[usize::from(link)].rate)
        });
        let clocks = "all hosts read the simulator's own: one-way times are exact";
        report.host.facts.insert("simulated clocks".into(), clocks.into());
        let (all, ranks) = (spec.topology.hosts(), hosts.len());
        let fact = format!("{}: {ranks} of {all} hosts in use{rate}; {}", spec.name, spec.about);
        report.host.facts.insert("simulated fabric".into(), fact);
        let SimulationCost { wall, simulated, events, packets, steps } = self.spent;
        let seconds = wall.as_secs_f64().max(1e-9);
        let mut push = |name: &str, unit: &str, value: f64, source: &str| {
            report.figures.push(Figure::counted(
                name,
                unit,
                ExtendedReal::finite(value),
                1,
                source,
            ));
        };
        push("simulated_seconds", "s", simulated.as_secs_f64(), "virtual time of all phases");
        push("simulation_wall_seconds", "s", wall.as_secs_f64(), "time of this machine for it");
        push("packets_per_wall_second", "1/s", packets as f64 / seconds, "packets that arrived");
        let fact = format!("{packets} packets, {events} events, {steps} steps of engines");
        report.host.facts.insert("simulation".into(), fact);
        report.fabric = Some(ports::fabric(spec, &network.graph, self.loads.clone()));
    }
}
