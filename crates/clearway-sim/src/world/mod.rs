//! Runs engines on a simulated network in virtual time: who acts when, and what it costs them.
//!
//! # Model
//! One driver for each rank. A rank runs when something arrived for it, when its deadline is due by
//! its own clock, when a command came, and never before its processor is free. A message that it
//! posts leaves at the instants to which its processor has come, so the rest of the world sees it
//! later, never at the same instant.
//!
//! # Invariants
//! I1. Time never goes back; what happens is a function of specification, seed, engines and
//!     commands.
//! I2. No event costs more because there are more ranks, but for one logarithm.
//!
//! # Not here
//! What a crash means to a job: the caller's.

mod wakes;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use clearway_proto::base::{LocalNs, Rank};
use clearway_proto::wire::{Applier, Driver, Engine, Wire};

use crate::clock::Clock;
use crate::disk::Survival;
use crate::processor::Processor;
use crate::time::Picos;
use crate::wire::{Carrier, Network, SimWire};
use wakes::WakeQueue;

/// An engine's event, and what its listener may touch.
pub struct WorldEvent<'a, E: Engine> {
    /// Whose.
    pub rank: Rank,
    /// True time.
    pub at: Picos,
    /// The same by the rank's clock.
    pub now: LocalNs,
    /// What it says.
    pub event: E::Event,
    /// The engine, for taking results out.
    pub engine: &'a mut E,
    /// The rank's processor: an event can ask for its time.
    pub processor: &'a mut Processor,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The time was over.
    InTime,
    /// Nothing is under way and nobody waits for anything.
    Quiet,
}

/// Engines, their drivers, and the network between them.
///
/// ```
/// use clearway_proto::base::{BitsPerSec, Class, LocalNs, RandomKey, Rank};
/// use clearway_proto::wire::{Arrival, Destination, Engine, Input, More, Out, Span};
/// use clearway_sim::fabric::{Fabric, FabricOptions};
/// use clearway_sim::graph::DeviceId;
/// use clearway_sim::spec::{FabricSpec, Routing, Topology};
/// use clearway_sim::wire::{ContentModel, Network, NetworkConfig};
/// use clearway_sim::{Picos, topology, world::World};
///
/// /// Sends one byte to rank 1 when commanded, and reports each byte that arrives.
/// struct Relay;
///
/// impl Engine for Relay {
///     type Command = u8;
///     type Event = u8;
///
///     fn input(&mut self, _: LocalNs, input: Input<'_, u8>, out: &mut Out<u8>) -> More {
///         match input {
///             Input::Command(byte) => {
///                 let to = Destination::One(Rank(1));
///                 out.send(to, Class::LowLatency, &[byte], Span::EMPTY, None);
///             }
///             Input::Arrival(Arrival::Datagram(datagram)) => out.notify(datagram.head[0]),
///             _ => {}
///         }
///         More::No
///     }
///
///     fn deadline(&self) -> Option<LocalNs> {
///         None
///     }
/// }
///
/// // What the network is made of, its cables, and the fabric at rest.
/// let rate = BitsPerSec::mega(100_000);
/// let spec = FabricSpec::plain(Topology::Star { hosts: 2 }, Routing::Minimal, rate);
/// let cables = topology::build(&spec)?;
/// let fabric = Fabric::new(&spec, cables, 1, FabricOptions::default());
/// // One rank on each host.
/// let hosts = vec![DeviceId(0), DeviceId(1)];
/// let key = RandomKey::new(1);
/// let config = NetworkConfig { hosts, bodies: ContentModel::Real, disk: None, key };
/// let mut world = World::new(Network::new(fabric, &spec, config), |_wire| Relay);
/// world.command(Picos::ZERO, Rank(0), 7);
/// let mut seen = Vec::new();
/// world.run_until(Picos::from_micros(100), &mut |event| seen.push((event.rank, event.event)));
/// assert_eq!(seen, [(Rank(1), 7)]);
/// # Ok::<(), clearway_sim::topology::TopologyError>(())
/// ```
pub struct World<E: Engine, C> {
    network: Network<C>,
    nodes: Vec<WorldNode<E>>,
    wakes: WakeQueue,
    commands: BTreeMap<(Picos, u64), (Rank, E::Command)>,
    commands_count: u64,
    woken: Vec<Rank>,
    events: Vec<E::Event>,
    steps: u64,
}

/// One rank's engine; none while it is down.
struct WorldNode<E: Engine> {
    driver: Option<Driver<E>>,
    /// What applies records that the engine has found; it is lost in a crash.
    applier: Option<Box<dyn Applier>>,
    /// Commands that came while the processor was busy.
    inbox: VecDeque<E::Command>,
    /// When the driver wants to run, by the rank's clock.
    deadline: Option<LocalNs>,
    /// It must run as soon as its processor is free, whatever its clock says: it was booted, or
    /// given something.
    summoned: bool,
}

impl<E: Engine, C: Carrier> World<E, C> {
    /// Starts an engine at every rank of `network`; `make` registers the memory it needs.
    pub fn new(mut network: Network<C>, mut make: impl FnMut(&mut SimWire) -> E) -> Self {
        let ranks = network.ranks();
        let nodes = (0..ranks).map(|rank| {
            let wire = network.wire(Rank(rank));
            let engine = make(wire);
            WorldNode {
                driver: Some(Driver::boot_lean(engine, wire.now(), 0)),
                applier: None,
                inbox: VecDeque::new(),
                deadline: None,
                summoned: false,
            }
        });
        let nodes = nodes.collect();
        let mut world = Self {
            nodes,
            wakes: WakeQueue::new(ranks),
            commands: BTreeMap::new(),
            commands_count: 0,
            woken: Vec::new(),
            events: Vec::new(),
            steps: 0,
            network,
        };
        (0..ranks).for_each(|rank| world.wake(Rank(rank)));
        world
    }

    /// Returns how far virtual time has come.
    pub const fn now(&self) -> Picos {
        self.network.now()
    }

    /// Returns the network.
    pub const fn network(&self) -> &Network<C> {
        &self.network
    }

    /// Returns the network, to look into memory or to disturb the fabric.
    pub const fn network_mut(&mut self) -> &mut Network<C> {
        &mut self.network
    }

    /// Returns the engine of `rank`; `None` while it is down.
    pub fn engine_mut(&mut self, rank: Rank) -> Option<&mut E> {
        self.nodes[rank.index()].driver.as_mut().map(Driver::engine_mut)
    }

    /// Gives `rank` an application that applies records, from its next step on.
    pub fn set_applier(&mut self, rank: Rank, applier: Box<dyn Applier>) {
        self.nodes[rank.index()].applier = Some(applier);
    }

    /// Steps of drivers so far.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Gives `rank` a command at `at`, or as soon after it as its processor is free. Commands of
    /// one instant are given in the order of the calls.
    pub fn command(&mut self, at: Picos, rank: Rank, command: E::Command) {
        self.commands.insert((at.max(self.now()), self.commands_count), (rank, command));
        self.commands_count += 1;
    }

    /// Runs until `until` or until nothing is left to happen. `hear` gets every event of every
    /// engine, in order of time.
    pub fn run_until(
        &mut self,
        until: Picos,
        hear: &mut dyn FnMut(WorldEvent<'_, E>),
    ) -> StopReason {
        loop {
            let wake = self.wakes.first();
            let command = self.commands.first_key_value().map(|((at, _), _)| *at);
            let own = [wake.map(|(at, _)| at), command].into_iter().flatten().min();
            let carried = self.network.next_at();
            match (own, carried) {
                (None, None) => return StopReason::Quiet,
                (own, Some(next)) if next <= until && own.is_none_or(|own| next <= own) => {
                    self.network.advance(own.unwrap_or(Picos::NEVER).min(until));
                    self.run_reached(hear);
                }
                (Some(own), _) if own <= until => {
                    self.network.advance(own);
                    if command.is_some_and(|at| at <= own) {
                        self.deliver_command();
                    } else if let Some((_, rank)) = wake {
                        self.step(rank, hear);
                    }
                }
                _ => {
                    self.network.advance(until);
                    return StopReason::InTime;
                }
            }
        }
    }

    /// Disturbs the clock of `rank`, as a fault. What it waits for moves along.
    pub fn disturb(&mut self, rank: Rank, change: impl FnOnce(&mut Clock)) {
        change(&mut self.network.wire(rank).clock);
        self.schedule(rank);
    }

    /// Runs the driver of `rank`, as a fault, although there may be nothing to do.
    pub fn nudge(&mut self, rank: Rank) {
        self.wake(rank);
    }

    /// Limits transmit queues of `rank`, as a fault, to this many messages, or to as many as they
    /// should hold.
    pub fn tighten(&mut self, rank: Rank, messages: Option<u32>) {
        self.network.wire(rank).tighten(messages);
        self.wake(rank);
    }

    /// Crashes the node of `rank`, as a fault: it loses everything but what `survival` leaves on
    /// its disk, and is silent until [`World::restart`].
    pub fn crash(&mut self, rank: Rank, survival: Survival) {
        self.network.crash(rank, survival);
        let node = &mut self.nodes[rank.index()];
        *node = WorldNode {
            driver: None,
            applier: None,
            inbox: VecDeque::new(),
            deadline: None,
            summoned: false,
        };
        self.wakes.set(rank, Picos::NEVER);
    }

    /// Starts a fresh engine at `rank`, which is down, with the next incarnation. `make` registers
    /// its memory anew.
    pub fn restart(&mut self, rank: Rank, make: impl FnOnce(&mut SimWire) -> E) {
        self.network.revive(rank);
        let wire = self.network.wire(rank);
        let engine = make(wire);
        let driver = Driver::boot_lean(engine, wire.now(), wire.incarnation());
        self.nodes[rank.index()].driver = Some(driver);
        self.wake(rank);
    }

    /// Returns a digest of all inputs and effects of all engines, and of the fabric. Equal for
    /// equal runs.
    pub fn digest(&self) -> u128 {
        let nodes = (0..self.network.ranks())
            .map(|rank| self.network.end(Rank(rank)).digest.folded(u64::from(rank)));
        nodes.fold(self.network.carrier().digest(), u128::wrapping_add)
    }

    /// Runs the ranks that something reached, or puts them off until their processors are free.
    fn run_reached(&mut self, hear: &mut dyn FnMut(WorldEvent<'_, E>)) {
        let mut woken = core::mem::take(&mut self.woken);
        self.network.take_woken(&mut woken);
        for rank in woken.drain(..) {
            if !self.network.end(rank).has_arrivals() {
                // Named twice and served the first time, or down.
            } else if self.network.free_at(rank) <= self.now() {
                self.step(rank, hear);
            } else {
                self.wake(rank);
            }
        }
        self.woken = woken;
    }

    /// Runs `rank` as soon as its processor is free.
    fn wake(&mut self, rank: Rank) {
        if self.nodes[rank.index()].driver.is_some() {
            self.nodes[rank.index()].summoned = true;
            let free_at = self.network.free_at(rank);
            if free_at < self.wakes.wake_at(rank) {
                self.wakes.set(rank, free_at);
            }
        }
    }

    /// Runs `rank` when its deadline is due and its processor free.
    fn schedule(&mut self, rank: Rank) {
        let end = self.network.end(rank);
        let late = end.trouble.late;
        let due = self.nodes[rank.index()]
            .deadline
            .map(|deadline| end.clock().true_time_of(deadline) + late);
        let at_once = end.has_arrivals() || self.nodes[rank.index()].summoned;
        let at = if at_once { Some(Picos::ZERO) } else { due };
        self.wakes.set(rank, at.map_or(Picos::NEVER, |at| at.max(end.processor.free_at())));
    }

    fn deliver_command(&mut self) {
        if let Some((_, (rank, command))) = self.commands.pop_first() {
            let node = &mut self.nodes[rank.index()];
            if node.driver.is_some() {
                node.inbox.push_back(command);
                self.wake(rank);
            }
        }
    }

    /// Runs one step of the driver of `rank`.
    fn step(&mut self, rank: Rank, hear: &mut dyn FnMut(WorldEvent<'_, E>)) {
        let WorldNode { driver: Some(driver), applier, inbox, deadline, summoned } =
            &mut self.nodes[rank.index()]
        else {
            return;
        };
        *summoned = false;
        self.steps += 1;
        let wire = self.network.wire(rank);
        for command in inbox.drain(..) {
            wire.processor.take_input();
            wire.digest.event(wire.processor.free_at(), 5, 0);
            driver.command(wire.now(), command);
        }
        // A tick that is due is paid for before what follows from it leaves; completions at once
        // are paid for behind.
        let due = usize::from(deadline.is_some_and(|deadline| deadline <= wire.now()));
        wire.deferred_inputs = due;
        let polled = wire.polled;
        let reported = &mut self.events;
        let mut hear_one = |event| reported.push(event);
        let progress = match applier {
            Some(applier) => driver.step_with(wire, &mut hear_one, &mut **applier),
            None => driver.step(wire, &mut hear_one),
        };
        let given = progress.inputs - (wire.polled - polled);
        let unpaid = given.saturating_sub(due) + wire.deferred_inputs;
        wire.deferred_inputs = 0;
        (0..unpaid).for_each(|_| wire.processor.take_input());
        wire.digest.event(wire.processor.free_at(), 6, given as u64);
        *deadline = progress.next;
        let (at, now) = (wire.processor.free_at(), wire.now());
        for event in self.events.drain(..) {
            let (engine, processor) = (driver.engine_mut(), &mut wire.processor);
            hear(WorldEvent { rank, at, now, event, engine, processor });
        }
        wire.processor.wake(at);
        self.schedule(rank);
    }
}
