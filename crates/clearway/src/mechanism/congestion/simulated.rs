//! Phases of the congestion test on a simulated machine: the same engine on every rank, over
//! simulated wires, in virtual time.
//!
//! # Model
//! Each phase is a world of its own, all ranks booted at time zero: a phase is a function of
//! scenario, seed and number.
//!
//! A host that stands for several processes has their processors: its engine's costs are divided by
//! their number ([`adjust`]).
//!
//! # Invariants
//! I1. A message that is still under way when its phase ends was sent and not received: it counts
//!     as lost.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result};
use clearway_proto::base::{Bytes, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::congestion::{CongestionEvent, LinkId, NetworkLayout, Phase};
use clearway_proto::wire::Wire;
use clearway_sim::Picos;
use clearway_sim::fabric::{self, FabricOptions, RankedMessage, Trace, Trains};
use clearway_sim::graph::ChannelId;
use clearway_sim::wire::{ContentModel, SimWire};
use clearway_sim::world::{World, WorldEvent};

use super::phases::{FULL_PORTS, FullPort, PhasePlan, PhaseResult, PhaseTraces};
use super::replay::{PhaseReplay, victims};
use super::slowest;
use super::staging_load::TestWithStaging;
use super::windows::Windows;
use crate::report::model::{Labels, SlowMessage, Slowest};
use crate::run::reached;
use crate::run::venue::{AdjustMachine, CounterReading, SimMachine, SimVenue, stretches};

/// The longest body on a machine: GPCNeT's congestors send 4 KiB, in one message, where a network
/// takes it whole.
const MACHINE_BODY_MAX: u32 = 4096;
/// The engine's longest header of a bulk message, for counting packets.
const BULK_HEAD: u64 = 11;
/// What a symbol's header needs of a packet, to a cache line.
const SYMBOL_HEAD: u64 = 64;
/// Virtual time between boot and the beginning of a phase: commands are read long before.
const LEAD: Nanos = Nanos::from_micros(10);
/// When a phase begins.
const BEGIN: LocalNs = LocalNs(LEAD.0);

/// What phases on the simulator keep for the end of a run.
#[derive(Default)]
pub(super) struct SimulatedPhases {
    /// Only in a repeated run.
    pub(super) watch: Option<PhaseReplay>,
    /// By the number of a phase.
    ranked: BTreeMap<u32, PhaseTrace>,
}

/// What is kept of a phase to tell of its slowest messages.
struct PhaseTrace {
    /// The slowest first.
    slowest: Vec<RankedMessage>,
    events: u64,
}

/// Returns what the congestion test changes of a machine: hosts stand for `processes` each, and all
/// read one clock.
pub(crate) fn adjust(processes: u32) -> AdjustMachine {
    let processes = u64::from(processes.max(1));
    Box::new(move |spec| {
        spec.host.clock_ppm = 0;
        spec.host.input_cost.0 /= processes;
        spec.host.effect_cost.0 /= processes;
    })
}

/// Returns the longest body of a message on `machine`.
fn body_max(machine: &SimMachine) -> u32 {
    let spec = &machine.spec;
    // The lab's wire cuts bodies; a machine's network takes a message whole.
    let most = if machine.body_max < u32::MAX { machine.body_max } else { MACHINE_BODY_MAX };
    if machine.body_max == u32::MAX && !spec.holds_back() {
        // Nobody sends again what was dropped: a message of several packets would be lost with each
        // of them.
        return most.min(spec.packet.payload.0.saturating_sub(BULK_HEAD).max(1) as u32);
    }
    most
}

/// Returns the headers of all packets of one message with the longest body.
pub(crate) fn overhead(machine: &SimMachine) -> Bytes {
    let packets =
        (u64::from(body_max(machine)) + BULK_HEAD).div_ceil(machine.spec.packet.payload.0.max(1));
    Bytes(packets * machine.spec.packet.header.0)
}

/// Returns a world at rest, ready for what `orders` have of each rank.
fn world(
    machine: &SimMachine,
    key: RandomKey,
    options: FabricOptions,
    orders: &[Phase],
) -> Result<World<TestWithStaging, fabric::Fabric>> {
    let carrier = machine.carrier(key, options);
    // What victims look at must be there.
    let looks =
        |order: &Phase| order.victim.as_ref().is_some_and(|victim| victim.memory() > Bytes(0));
    let bodies = if orders.iter().any(looks) { ContentModel::Real } else { ContentModel::Phantom };
    let mut refused = None;
    let world = machine.world(carrier, bodies, key, |wire| {
        let (engine, refusal) = test_rank(machine, wire, key, &orders[wire.rank().index()]);
        refused = refused.take().or(refusal);
        engine
    });
    refused.map_or(Ok(world), Err)
}

/// Returns the engines of a rank on `machine`, ready for `order`, and what was refused of it.
pub(crate) fn test_rank(
    machine: &SimMachine,
    wire: &mut SimWire,
    key: RandomKey,
    order: &Phase,
) -> (TestWithStaging, Option<anyhow::Error>) {
    let Phase { loads, victim, .. } = order;
    let payload = machine.spec.packet.payload.0;
    let symbol_max = payload.saturating_sub(SYMBOL_HEAD).clamp(1, u64::from(u16::MAX)) as u32;
    let mut engine = TestWithStaging::new(wire, body_max(machine), key)
        .expect("a fresh end has room for a region");
    let prepared = engine.prepare(wire, loads.iter().map(|load| &load.kind), symbol_max);
    let given = victim.as_ref().map_or(Ok(()), |victim| engine.prepare_victim(wire, victim));
    (engine, prepared.err().or(given.err()))
}

/// Returns the world of phase `number` on `machine`, with all orders given.
fn start(
    machine: &SimMachine,
    key: RandomKey,
    number: u32,
    plan: &PhasePlan<'_>,
    options: FabricOptions,
) -> Result<World<TestWithStaging, fabric::Fabric>> {
    let ranks = (0..machine.hosts.len() as u32).map(Rank);
    let orders: Vec<Phase> =
        ranks.clone().map(|rank| plan.orders(rank, number, BEGIN, overhead(machine))).collect();
    let key = key.purpose("phase").node(u64::from(number));
    let mut world = world(machine, key, options, &orders)?;
    ranks.zip(orders).for_each(|(rank, order)| world.command(Picos::ZERO, rank, order));
    Ok(world)
}

impl SimulatedPhases {
    /// Runs phase `number`, which is `plan`, on the machine of `venue`.
    pub(super) fn phase(
        &mut self,
        venue: &mut SimVenue,
        plan: &PhasePlan<'_>,
        number: u32,
    ) -> Result<PhaseResult> {
        let started = Instant::now();
        let machine = venue.machine()?;
        let options =
            self.watch.as_ref().map_or_else(FabricOptions::default, |watch| watch.options(number));
        let mut world = start(machine, venue.key(), number, plan, options)?;
        let carrier = world.network_mut().carrier_mut();
        match &self.watch {
            Some(watch) => watch.begin(number, carrier, plan, &machine.hosts)?,
            None => carrier.rank_slowest(victims(plan, &machine.hosts)),
        }
        let whole = whole(plan);
        let mut records = vec![None; machine.hosts.len()];
        let borders = borders(plan.windows);
        let mut readings = Vec::new();
        for until in borders.into_iter().chain([Picos::from(whole)]) {
            let mut hear = |reported: WorldEvent<'_, TestWithStaging>| match reported.event {
                CongestionEvent::PhaseOver { .. } => {
                    records[reported.rank.index()] = reported.engine.take_record()
                }
                CongestionEvent::Burn(length) => reported.processor.spend(length.into()),
            };
            for stretch in stretches(world.now(), until) {
                world.run_until(stretch, &mut hear);
                reached(stretch.0, Picos::from(whole).0);
            }
            if borders.contains(&until) {
                readings.push(CounterReading::read(
                    world.network().carrier(),
                    &machine.spec,
                    until,
                ));
            }
        }
        if let (Some(first), Some(last)) = (readings.first(), readings.last())
            && plan.traces == PhaseTraces::Kept
        {
            venue.keep(&plan.what, [first, last])?;
        }
        // A repeated run may end here, and its digest is asked for.
        venue.count(&world, whole, started);
        let totals = world.network().carrier().totals();
        if let Some(watch) = &mut self.watch {
            watch.end(number, world.network().carrier())?;
        } else if plan.traces == PhaseTraces::Kept {
            let slowest =
                world.network().carrier().slowest().iter().take(slowest::KEPT).copied().collect();
            self.ranked.insert(number, PhaseTrace { slowest, events: totals.events });
        }
        let records: Option<Vec<_>> = records.into_iter().collect();
        let records = records
            .context("a simulated rank did not end its phase; this is a defect of the program")?;
        let full = match plan.traces {
            PhaseTraces::Kept => full_ports(world.network().carrier()),
            PhaseTraces::Dropped => Vec::new(),
        };
        Ok(PhaseResult { records, waits: Vec::new(), begin: BEGIN, number, full })
    }

    /// Returns the slowest messages of the victims in phase `number`, which was `plan` on `queue`,
    /// and what held them up.
    pub(super) fn slowest(
        &mut self,
        venue: &SimVenue,
        queue: &str,
        number: u32,
        plan: &PhasePlan<'_>,
    ) -> Result<Option<Slowest>> {
        let Some(ranked) = self.ranked.remove(&number).filter(|ranked| !ranked.slowest.is_empty())
        else {
            return Ok(None);
        };
        let machine = venue.machine_with(queue)?;
        let (traces, note) = explained(&machine, venue.key(), number, plan, &ranked)?;
        let graph = &machine.network.graph;
        let message = |slow: &RankedMessage| {
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
}

/// Returns the ports of `fabric` at which most bytes ever waited, the fullest first.
fn full_ports(fabric: &fabric::Fabric) -> Vec<FullPort> {
    let graph = fabric.graph();
    let ids = (0..graph.channels().len() as u32).map(ChannelId);
    let mut all: Vec<(u32, ChannelId)> =
        ids.map(|id| (fabric.port_statistics(id).queue_max, id)).collect();
    all.retain(|(most, _)| *most > 0);
    all.sort_by_key(|(most, id)| (Reverse(*most), *id));
    let unit = "bytes waited there at most";
    let port = |(most, id)| FullPort { name: graph.label(id), amount: u64::from(most), unit };
    all.into_iter().take(FULL_PORTS).map(port).collect()
}

/// Returns the names of the ports of `link`, as the machine of `venue` has them.
pub(super) fn port_names(
    venue: &SimVenue,
    link: LinkId,
    layout: &dyn NetworkLayout,
) -> Vec<String> {
    let Ok(machine) = venue.machine() else { return Vec::new() };
    let graph = &machine.network.graph;
    let of_host = |rank: Rank| {
        let host = machine.hosts.get(rank.index());
        host.into_iter().flat_map(|host| graph.ports(*host)).map(ChannelId).collect::<Vec<_>>()
    };
    // A switch of the layout is that of its first host.
    let trunks = |number: u32| {
        let rank = (0..layout.hosts() as u32).map(Rank).find(|it| layout.switch_of(*it) == number);
        let port = rank.and_then(|rank| of_host(rank).first().copied());
        let switch = port.map(|port| graph.channel(port).to);
        let ports = switch.into_iter().flat_map(|switch| graph.ports(switch)).map(ChannelId);
        ports.filter(|port| !graph.is_host(graph.channel(*port).to)).collect::<Vec<_>>()
    };
    let back =
        |ports: Vec<ChannelId>| ports.into_iter().map(|it| graph.channel(it).reverse).collect();
    let ports = match link {
        LinkId::FromHost(rank) => of_host(rank),
        LinkId::ToHost(rank) => back(of_host(rank)),
        LinkId::FromSwitch(number) => trunks(number),
        LinkId::ToSwitch(number) => back(trunks(number)),
        LinkId::Cable(cable) => vec![ChannelId(cable)],
    };
    let known = ports.into_iter().filter(|port| port.index() < graph.channels().len());
    known.map(|port| graph.label(port)).collect()
}

/// Repeats phase `number` and follows `messages`, which are in order of time and do not overlap.
fn follow(
    machine: &SimMachine,
    key: RandomKey,
    number: u32,
    plan: &PhasePlan<'_>,
    messages: &[RankedMessage],
) -> Result<Vec<Trace>> {
    let options = FabricOptions { trains: Trains::Off, ..FabricOptions::default() };
    let mut world = start(machine, key, number, plan, options)?;
    let mut traces = Vec::new();
    for slow in messages {
        world.network_mut().carrier_mut().trace(slow.id);
        world.run_until(slow.posted + slow.latency, &mut |reported| {
            if let CongestionEvent::Burn(length) = reported.event {
                reported.processor.spend(length.into());
            }
        });
        traces.extend(world.network().carrier().traced());
    }
    Ok(traces)
}

/// Returns the longest time that a port of `machine` sends one packet.
fn packet_time(machine: &SimMachine) -> Picos {
    let spec = &machine.spec;
    let packet = Bytes(spec.packet.payload.0 + spec.packet.header.0);
    let times = spec.links.iter().map(|link| Picos::from(link.rate.time_for(packet)));
    times.max().unwrap_or(Picos::ZERO)
}

/// Follows the slowest messages as far as that is cheap; what is known of them, and why not all of
/// it is.
fn explained(
    machine: &SimMachine,
    key: RandomKey,
    number: u32,
    plan: &PhasePlan<'_>,
    ranked: &PhaseTrace,
) -> Result<(Vec<Trace>, Option<String>)> {
    let repeats = slowest::repeats(&ranked.slowest, packet_time(machine));
    let affordable = (slowest::EVENTS_MAX / ranked.events.max(1)) as usize;
    let mut traces = Vec::new();
    for messages in repeats.iter().take(affordable) {
        traces.extend(follow(machine, key, number, plan, messages)?);
    }
    let note = (repeats.len() > affordable).then(|| {
        let million = ranked.events as f64 / 1e6;
        format!("to follow a message takes {million:.0} million events of the simulator, so not all were followed")
    });
    Ok((traces, note))
}

/// Returns how long `plan` takes: a rank whose processor is away when its phase ends answers later.
fn whole(plan: &PhasePlan<'_>) -> Nanos {
    LEAD + plan.windows.length() + plan.windows.grid.drain.times(2)
}

/// Returns when the window that counts begins and ends.
fn borders(windows: &Windows) -> [Picos; 2] {
    let Windows { grid, congested, .. } = windows;
    [congested.from, congested.until].map(|slice| Picos::from(LEAD + grid.slices(slice)))
}
