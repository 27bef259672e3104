//! The simulated fabric as a place: the same engine on every rank, over simulated wires, in virtual time.
//!
//! # Model
//! Each phase is a world of its own: a fabric at rest, all ranks booted at time zero. So no phase inherits packets of an
//! earlier one, and a phase is a function of scenario, seed and number. All ranks read one clock, the simulator's: one-way times
//! are exact.
//!
//! A host that stands for several processes has their processors: its engine's costs are divided by their number.
//!
//! # Invariants
//! I1. A message that is still under way when its phase ends was sent and not received: it counts as lost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{Bytes, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::congestion::{Event, Phase};
use clearway_proto::wire::{SHORT_HEAD, Wire};
use clearway_runtime::udp::frame::{FRAME_LENGTH, MESSAGE_MAX};
use clearway_sim::fabric::{self, Options, Slow, Trace, Trains};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::{FabricSpec, LinkRole};
use clearway_sim::topology::{self, Network as Topology};
use clearway_sim::wire::{Bodies, Network, NetworkConfig};
use clearway_sim::world::World;
use clearway_sim::{Picos, calibrate};

use super::ports::{self, Reading};
use super::slowest;
use super::watch::{Watch, victims};
use super::{Backdrop, Clocks, EndAtOnce, Facts, Hosts, Plan, Reach, Sighting, Stage};
use crate::mechanism::congestion::program::{ProgramPart, Troupe};
use crate::mechanism::congestion::windows::Windows;
use crate::mechanism::congestion::with_cast::TestWithCast;
use crate::report::model::{Figure, Labels, Load, Real, Report, SlowMessage, Slowest};
use crate::run::Place;
use crate::scenario::{Fabric, Mechanism, Scenario, SmallMessage};

/// Why no command of the user's runs here.
const NO_PROGRAMS: &str = "a command of yours needs a machine to run on, which the simulator has not";

/// The longest body on a machine: GPCNeT's congestors send 4 KiB, in one message, where a network takes it whole.
const MACHINE_BODY_MAX: u32 = 4096;
/// The engine's longest header of a bulk message, for counting packets.
const BULK_HEAD: u64 = 11;
/// What a symbol's header needs of a packet, to a cache line.
const SYMBOL_HEAD: u64 = 64;
/// The bytes of a ping.
const PING: u64 = 8;
/// Virtual time between boot and the beginning of a phase: commands are read long before.
const LEAD: Nanos = Nanos::from_micros(10);
/// When a phase begins.
const BEGIN: LocalNs = LocalNs(LEAD.0);

/// The simulator.
pub(crate) struct SimStage {
    scenario: Scenario,
    _ending: EndAtOnce,
    key: RandomKey,
    armed: Armed,
    phases: u32,
    spent: Spent,
    /// Only in a repeated run.
    pub(crate) watch: Option<Watch>,
    /// What the ports did in the last phase of each queue.
    loads: Vec<Load>,
    /// By the number of a phase.
    ranked: BTreeMap<u32, Ranked>,
    /// What each phase did.
    pub(crate) digests: Vec<String>,
}

/// What is kept of a phase to tell of its slowest messages.
struct Ranked {
    /// The slowest first.
    slowest: Vec<Slow>,
    events: u64,
}

/// A fabric with one of its queues.
struct Armed {
    queue: String,
    spec: FabricSpec,
    network: Topology,
    hosts: Vec<DeviceId>,
    body_max: u32,
}

/// What the simulation cost.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    wall: Duration,
    simulated: Nanos,
    events: u64,
    packets: u64,
    steps: u64,
}

impl Armed {
    fn new(scenario: &Scenario, queue: &str, key: RandomKey) -> Result<Self> {
        let (mut spec, hosts) = scenario.fabric.simulated(queue, key).map_err(|why| anyhow!(why))?;
        let mut body_max = MACHINE_BODY_MAX;
        if let Fabric::Lab(_) = scenario.fabric {
            // The lab's wire puts a frame of its own into each packet and cuts bodies accordingly.
            spec.packet.header.0 += FRAME_LENGTH as u64;
            spec.packet.payload.0 -= FRAME_LENGTH as u64;
            body_max = (MESSAGE_MAX - SHORT_HEAD) as u32;
        } else if !spec.holds_back() {
            // Nobody sends again what was dropped: a message of several packets would be lost with each of them.
            body_max = body_max.min(spec.packet.payload.0.saturating_sub(BULK_HEAD).max(1) as u32);
        }
        spec.host.clock_ppm = 0;
        let processes = match scenario.mechanism().map_err(|why| anyhow!(why))? {
            Mechanism::Congestion(test) => u64::from(test.processes_per_host.unwrap_or(1)),
            Mechanism::Shares(_) | Mechanism::Timeslice(_) | Mechanism::Broadcast(_) => 1,
        };
        spec.host.input_cost.0 /= processes;
        spec.host.effect_cost.0 /= processes;
        let network = topology::build(&spec).with_context(|| format!("the fabric {}", spec.name))?;
        if let Some(SmallMessage { p50, p99 }) = scenario.fabric.small_message(queue) {
            let real = calibrate::SmallMessage { p50: p50.0.into(), p99: p99.0.into() };
            calibrate::hosts(&mut spec, &network, PING, real);
        }
        Ok(Self { queue: queue.to_owned(), spec, network, hosts, body_max })
    }

    /// Headers of all packets of one message with the longest body.
    fn overhead(&self) -> Bytes {
        let packets = (u64::from(self.body_max) + BULK_HEAD).div_ceil(self.spec.packet.payload.0.max(1));
        Bytes(packets * self.spec.packet.header.0)
    }

    /// A world at rest, ready for what `orders` have of each rank.
    fn world(&self, key: RandomKey, options: Options, orders: &[Phase]) -> Result<World<TestWithCast, fabric::Fabric>> {
        let seed = key.purpose("fabric").stream().next_u64();
        let carrier = fabric::Fabric::new(&self.spec, self.network.clone(), seed, options);
        // What victims look at must be there.
        let looks = |order: &Phase| order.victim.as_ref().is_some_and(|victim| victim.memory() > Bytes(0));
        let bodies = if orders.iter().any(looks) { Bodies::Real } else { Bodies::Phantom };
        let config = NetworkConfig { hosts: self.hosts.clone(), bodies, disk: None, key };
        let symbol_max = (self.spec.packet.payload.0.saturating_sub(SYMBOL_HEAD)).clamp(1, u64::from(u16::MAX)) as u32;
        let mut refused = None;
        let world = World::new(Network::new(carrier, &self.spec, config), |wire| {
            let Phase { loads, victim, .. } = &orders[wire.rank().index()];
            let mut engine = TestWithCast::new(wire, self.body_max, key).expect("a fresh end has room for a region");
            let prepared = engine.prepare(wire, loads.iter().map(|load| &load.kind), symbol_max);
            let given = victim.as_ref().map_or(Ok(()), |victim| engine.prepare_victim(wire, victim));
            refused = refused.take().or(prepared.err()).or(given.err());
            engine
        });
        refused.map_or(Ok(world), Err)
    }
}

impl SimStage {
    /// Makes the fabric of `scenario`.
    pub(crate) fn open(scenario: &Scenario) -> Result<Self> {
        let ending = EndAtOnce::listen()?;
        let key = RandomKey::new(scenario.seed);
        let queues = match scenario.mechanism().map_err(|why| anyhow!(why))? {
            Mechanism::Congestion(test) => &test.queues,
            Mechanism::Shares(test) => &test.queues,
            Mechanism::Broadcast(_) => bail!("broadcasts run in a laboratory: use --on lab"),
            Mechanism::Timeslice(_) => {
                bail!("messages of timeslice building are not followed; its report has a film of them")
            }
        };
        let armed = Armed::new(scenario, queues.first().context("no queue")?, key)?;
        Ok(Self {
            scenario: scenario.clone(),
            _ending: ending,
            key,
            armed,
            phases: 0,
            spent: Spent::default(),
            watch: None,
            loads: Vec::new(),
            ranked: BTreeMap::new(),
            digests: Vec::new(),
        })
    }
}

impl SimStage {
    /// Keeps what the ports did between the first and the last of `readings`, in place of the queue's earlier phases.
    fn keep(&mut self, phase: &str, readings: &[Reading]) {
        let (Some(first), Some(last)) = (readings.first(), readings.last()) else { return };
        let Armed { queue, spec, network, .. } = &self.armed;
        let load = ports::load(queue, phase, spec, &network.graph, [first, last]);
        self.loads.retain(|kept| kept.labels != load.labels);
        self.loads.push(load);
    }
}

impl SimStage {
    /// The world of phase `number`, with all orders given.
    fn start(&self, number: u32, plan: &Plan<'_>, options: Options) -> Result<World<TestWithCast, fabric::Fabric>> {
        let ranks = (0..self.armed.hosts.len() as u32).map(Rank);
        let orders: Vec<Phase> =
            ranks.clone().map(|rank| plan.orders(rank, number, BEGIN, self.armed.overhead())).collect();
        let key = self.key.purpose("phase").node(u64::from(number));
        let mut world = self.armed.world(key, options, &orders)?;
        ranks.zip(orders).for_each(|(rank, order)| world.command(Picos::ZERO, rank, order));
        Ok(world)
    }

    /// Repeats phase `number` and follows `messages`, which are in order of time and do not overlap.
    fn follow(&self, number: u32, plan: &Plan<'_>, messages: &[Slow]) -> Result<Vec<Trace>> {
        let options = Options { trains: Trains::Off, ..Options::default() };
        let mut world = self.start(number, plan, options)?;
        let mut traces = Vec::new();
        for slow in messages {
            world.network_mut().carrier_mut().trace(slow.id);
            world.run_until(slow.posted + slow.latency, &mut |told| {
                if let Event::Burn(length) = told.event {
                    told.processor.spend(length.into());
                }
            });
            traces.extend(world.network().carrier().traced());
        }
        Ok(traces)
    }

    /// The longest time that a port sends one packet.
    fn packet_time(&self) -> Picos {
        let spec = &self.armed.spec;
        let packet = Bytes(spec.packet.payload.0 + spec.packet.header.0);
        let times = spec.links.iter().map(|link| Picos::from(link.rate.time_for(packet)));
        times.max().unwrap_or(Picos::ZERO)
    }

    /// Follows `messages` as far as that is cheap; what is known of them, and why not all of it is.
    fn explained(&self, number: u32, plan: &Plan<'_>, ranked: &Ranked) -> Result<(Vec<Trace>, Option<String>)> {
        let repeats = slowest::repeats(&ranked.slowest, self.packet_time());
        let affordable = (slowest::EVENTS_MAX / ranked.events.max(1)) as usize;
        let mut traces = Vec::new();
        for messages in repeats.iter().take(affordable) {
            traces.extend(self.follow(number, plan, messages)?);
        }
        let note = (repeats.len() > affordable).then(|| {
            let million = ranked.events as f64 / 1e6;
            format!("to follow a message takes {million:.0} million events of the simulator, so not all were followed")
        });
        Ok((traces, note))
    }
}

/// How long `plan` takes: a rank whose processor is away when its phase ends answers later.
fn whole(plan: &Plan<'_>) -> Nanos {
    LEAD + plan.windows.length() + plan.windows.grid.drain.times(2)
}

/// When the window that counts begins and ends.
fn borders(windows: &Windows) -> [Picos; 2] {
    let Windows { grid, congested, .. } = windows;
    [congested.from, congested.until].map(|slice| Picos::from(LEAD + grid.slices(slice)))
}

impl Stage for SimStage {
    fn before(&mut self, _backdrop: &Backdrop<'_>, _work: &mut dyn FnMut() -> Result<()>) -> Result<Sighting> {
        bail!("{NO_PROGRAMS}")
    }

    fn troupe(&self, _part: ProgramPart, _program: &str, _ranks: &[Rank]) -> Result<Troupe> {
        bail!("{NO_PROGRAMS}")
    }

    fn place(&self) -> Place {
        Place::Sim
    }

    fn facts(&self) -> Facts {
        let spec = &self.armed.spec;
        let reach = if spec.holds_back() { Reach::Tree } else { Reach::Link };
        Facts {
            frame: Bytes(spec.packet.payload.0 + spec.packet.header.0),
            reach,
            hosts: Hosts::Simulated,
            clocks: Clocks::One,
            has_multicast: true,
        }
    }

    fn hosts(&self) -> Vec<String> {
        let graph = &self.armed.network.graph;
        self.armed.hosts.iter().map(|host| graph.name(*host).to_owned()).collect()
    }

    fn arm(&mut self, queue: &str) -> Result<()> {
        self.armed = Armed::new(&self.scenario, queue, self.key)?;
        Ok(())
    }

    fn phase(&mut self, plan: &Plan<'_>) -> Result<Sighting> {
        self.phases += 1;
        let started = Instant::now();
        let options = self.watch.as_ref().map_or_else(Options::default, |watch| watch.options(self.phases));
        let mut world = self.start(self.phases, plan, options)?;
        let carrier = world.network_mut().carrier_mut();
        match &self.watch {
            Some(watch) => watch.begin(self.phases, carrier, plan, &self.armed.hosts)?,
            None => carrier.rank_slowest(victims(plan, &self.armed.hosts)),
        }
        let whole = whole(plan);
        let mut records = vec![None; self.armed.hosts.len()];
        let borders = borders(plan.windows);
        let mut readings = Vec::new();
        for until in borders.into_iter().chain([Picos::from(whole)]) {
            world.run_until(until, &mut |told| match told.event {
                Event::PhaseOver { .. } => records[told.rank.index()] = told.engine.take_record(),
                Event::Burn(length) => told.processor.spend(length.into()),
            });
            if borders.contains(&until) {
                readings.push(Reading::of(world.network().carrier(), &self.armed.spec, until));
            }
        }
        self.keep(&plan.what, &readings);
        self.digests.push(format!("{:032x}", world.digest()));
        if let Some(watch) = &mut self.watch {
            watch.end(self.phases, world.network().carrier())?;
        } else {
            let carrier = world.network().carrier();
            let told = carrier.slowest().iter().take(slowest::TOLD).copied().collect();
            self.ranked.insert(self.phases, Ranked { slowest: told, events: carrier.totals().events });
        }
        let totals = world.network().carrier().totals();
        self.spent.wall += started.elapsed();
        self.spent.simulated = self.spent.simulated + whole;
        self.spent.events += totals.events;
        self.spent.packets += totals.packets;
        self.spent.steps += world.steps();
        let records: Option<Vec<_>> = records.into_iter().collect();
        let records = records.context("a simulated rank did not end its phase; this is a defect of the program")?;
        Ok(Sighting { records, waits: Vec::new(), begin: BEGIN, number: self.phases })
    }

    fn slowest(&mut self, queue: &str, number: u32, plan: &Plan<'_>) -> Result<Option<Slowest>> {
        let Some(ranked) = self.ranked.remove(&number).filter(|ranked| !ranked.slowest.is_empty()) else {
            return Ok(None);
        };
        let armed = Armed::new(&self.scenario, queue, self.key)?;
        let last = std::mem::replace(&mut self.armed, armed);
        let explained = self.explained(number, plan, &ranked);
        let armed = std::mem::replace(&mut self.armed, last);
        let (traces, note) = explained?;
        let graph = &armed.network.graph;
        let message = |slow: &Slow| {
            let trace = traces.iter().find(|trace| trace.id == slow.id);
            SlowMessage {
                id: format!("p{number}:{}:{}", graph.name(slow.id.from), slow.id.number),
                ends: [slow.id.from, slow.to].map(|host| graph.name(host).to_owned()),
                bytes: slow.bytes,
                posted_us: slowest::in_us(slow.posted),
                latency_us: slowest::in_us(slow.latency),
                wait: trace.and_then(|trace| slowest::longest_wait(trace, graph)),
            }
        };
        let messages = ranked.slowest.iter().map(message).collect();
        Ok(Some(Slowest { labels: Labels::new(), phase: plan.what.clone(), messages, note }))
    }

    fn introduce(&self, report: &mut Report) {
        let spec = &self.armed.spec;
        let rate = spec
            .link(LinkRole::Host)
            .map_or_else(String::new, |link| format!(", host links of {}", spec.links[usize::from(link)].rate));
        let (hosts, ranks) = (spec.topology.hosts(), self.armed.hosts.len());
        let fact = format!("{}: {ranks} of {hosts} hosts in use{rate}; {}", spec.name, spec.about);
        report.host.facts.insert("simulated fabric".into(), fact);
        let clocks = "all hosts read the simulator's own: one-way times are exact";
        report.host.facts.insert("simulated clocks".into(), clocks.into());
    }

    fn conclude(&self, report: &mut Report) {
        let Spent { wall, simulated, events, packets, steps } = self.spent;
        let seconds = wall.as_secs_f64().max(1e-9);
        let mut push = |name: &str, unit: &str, value: f64, source: &str| {
            report.figures.push(Figure::counted(name, unit, Real::finite(value), 1, source));
        };
        push("simulated_seconds", "s", simulated.as_secs_f64(), "virtual time of all phases");
        push("simulation_wall_seconds", "s", wall.as_secs_f64(), "time of this machine for it");
        push("packets_per_wall_second", "1/s", packets as f64 / seconds, "packets that arrived");
        let fact = format!("{packets} packets, {events} events, {steps} steps of engines");
        report.host.facts.insert("simulation".into(), fact);
        let Armed { spec, network, .. } = &self.armed;
        report.digests.clone_from(&self.digests);
        report.fabric = Some(ports::fabric(spec, &network.graph, self.loads.clone()));
    }
}
