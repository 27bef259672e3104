//! Makes a fabric from its specification: every port, lane and buffer, at rest.

use std::collections::BTreeMap;

use clearway_proto::base::Class;

use super::bucket::Buckets;
use super::control::{CongestionState, PauseState};
use super::digest::FabricDigest;
use super::fifo::Fifo;
use super::host::Host;
use super::parts::{Lane, Port};
use super::pool::{Arena, NONE};
use super::statistics::{FabricStatistics, PortStatistics};
use super::{Fabric, FabricConstants, FabricOptions};
use crate::arbiter::ArbiterState;
use crate::event::PendingEvents;
use crate::graph::{Channel, ChannelId, Graph};
use crate::spec::{
    Arbiter, ClassMap, CongestionControl, FabricSpec, LANES_MAX, LossDomain, Queueing, Replication,
    Routing, Service, Switching,
};
use crate::time::Pace;
use crate::topology::RoutedGraph;

impl Fabric {
    /// Creates a fabric at rest. `seed` decides what hashes decide: which of several equal ways a
    /// packet takes.
    ///
    /// Cost: about 100 bytes for each channel and 40 for each of its lanes.
    pub fn new(spec: &FabricSpec, network: RoutedGraph, seed: u64, options: FabricOptions) -> Self {
        let graph = &network.graph;
        let steps = network.router.steps().max(1);
        let lanes_per_port = u32::from(spec.classes.virtual_lanes.max(1)) * u32::from(steps);
        assert!(lanes_per_port as usize <= LANES_MAX, "checked when the specification was read");
        let (tables, table_of_port) = lane_tables(&spec.classes, graph);
        let count = graph.channels().len();
        let (host, switch) = (
            ArbiterState::new(&spec.arbitration.host),
            ArbiterState::new(&spec.arbitration.switch),
        );
        let ports = (0..count as u32).map(|id| {
            let arbiter =
                if graph.is_host(graph.channel(ChannelId(id)).from) { &host } else { &switch };
            port(spec, graph, ChannelId(id), lanes_per_port, arbiter.clone())
        });
        let ports = ports.collect();
        let lanes: Vec<Lane> = graph
            .channels()
            .iter()
            .flat_map(|channel| {
                (0..lanes_per_port)
                    .map(|lane| a_lane(spec, channel, lane as usize / usize::from(steps)))
            })
            .collect();
        let lane_count = lanes.len();
        Self {
            now: 0,
            events: PendingEvents::new(options.queue),
            options,
            steps,
            lanes_per_port,
            tables,
            table_of_port,
            constants: constants(spec, seed, steps),
            limits: spec.classes.loss.map(limit),
            ports,
            statistics: FabricStatistics::new(lane_count),
            lanes,
            queues: Arena::new(),
            packets: Arena::new(),
            messages: Arena::new(),
            credits: Arena::new(),
            fifos: if spec.switch.queueing == Queueing::InputFifo {
                vec![Fifo::EMPTY; lane_count]
            } else {
                Vec::new()
            },
            trains: Arena::new(),
            train_serial: 0,
            hosts: (0..graph.hosts()).map(|_| Host::default()).collect(),
            connections: Arena::new(),
            connection_of: vec![Vec::new(); graph.hosts() as usize],
            dirty: Vec::new(),
            current: 0,
            notices: Vec::new(),
            digest: FabricDigest::new(graph.hosts()),
            groups: BTreeMap::new(),
            tree_of: BTreeMap::new(),
            trees: Vec::new(),
            casts: BTreeMap::new(),
            shares: Arena::new(),
            holds: Arena::new(),
            faults: None,
            control: CongestionState::new(spec, count),
            words: Arena::new(),
            pauses: PauseState::new(
                spec,
                graph.channels().iter().map(|channel| channel.link),
                lane_count,
            ),
            rates: spec.links.iter().map(|link| link.rate).collect(),
            buffers: spec.links.iter().map(|link| link.buffer.0).collect(),
            watch: super::trace::TraceMode::Nothing,
            delays: super::acknowledgement::Delays::new(graph.hosts() as usize),
            network,
        }
    }
}

/// Returns a bit for each lane of the virtual lanes in `express`.
fn express_lanes(express: u16, steps: u8) -> u32 {
    let lanes = |lane: u32| ((1 << steps) - 1) << (lane * u32::from(steps));
    (0..16).filter(|lane| express & 1 << lane != 0).fold(0, |all, lane| all | lanes(lane))
}

/// Returns what the queue of one lane of an output holds before it drops.
fn limit(loss: LossDomain) -> u32 {
    match loss {
        LossDomain::Drops { queue } => u32::try_from(queue.0).unwrap_or(u32::MAX),
        LossDomain::Credits | LossDomain::Pauses => u32::MAX,
    }
}

fn constants(spec: &FabricSpec, seed: u64, steps: u8) -> FabricConstants {
    // A train stands for packets that go one way and that an arbiter would have let through one by
    // one unchanged.
    let one_way =
        matches!(spec.routing, Routing::Minimal | Routing::DestinationModulo | Routing::Ecmp);
    let steady =
        |arbiter: &Arbiter| matches!(arbiter, Arbiter::RoundRobin | Arbiter::Strict { .. });
    let steady = steady(&spec.arbitration.host) && steady(&spec.arbitration.switch);
    let lossless = spec.classes.loss.iter().all(|loss| *loss == LossDomain::Credits);
    let calm = spec.congestion_control == CongestionControl::None;
    let voq = spec.switch.queueing == Queueing::VirtualOutput;
    FabricConstants {
        payload: spec.packet.payload.0 as u32,
        header: spec.packet.header.0 as u32,
        transmit_delay: spec.host.transmit_delay.0.max(1),
        receive_delay: spec.host.receive_delay.0.max(1),
        receive_tail: spec.host.receive_tail,
        memory: Pace::from_rate(spec.host.memory_rate),
        hold_all: spec.switch.replication == Replication::HoldAll,
        in_order: spec.host.service == Service::InOrder,
        by_message: spec.host.service == Service::ByMessage,
        output_fifo: spec.switch.queueing == Queueing::OutputFifo,
        express: express_lanes(spec.arbitration.express, steps),
        foreseeable: lossless && calm,
        trains: one_way
            && steady
            && voq
            && spec.switch.switching != Switching::TokenBucket
            && lossless
            && calm
            && spec.host.rails == 1,
        lossless,
        level: Class::ALL.map(|class| spec.classes.service_level[class.index()]),
        seed,
    }
}

fn port(
    spec: &FabricSpec,
    graph: &Graph,
    id: ChannelId,
    lanes_per_port: u32,
    arbiter: ArbiterState,
) -> Port {
    let channel = graph.channel(id);
    let link = &spec.links[usize::from(channel.link)];
    let to_host = graph.is_host(channel.to);
    // No cable is without length: an instant must not feed itself.
    let cable = link.delay.0.max(1);
    let longest = (spec.packet.payload.0 + spec.packet.header.0) as u32;
    Port {
        busy_until: 0,
        express_until: 0,
        buckets: Buckets::new(link, longest),
        wake_at: u64::MAX,
        delay: cable + if to_host { 0 } else { spec.switch.delay.0 },
        back: cable,
        pace: Pace::from_rate(link.rate),
        occupied: 0,
        first_lane: id.0 * lanes_per_port,
        to: channel.to.0,
        train: NONE,
        whole: NONE,
        queued: 0,
        on_wire: 0,
        waiting_since: 0,
        arbiter,
        statistics: PortStatistics::default(),
        dirty: false,
        held: false,
        from_host: graph.is_host(channel.from),
        to_host,
        store_and_forward: spec.switch.switching != Switching::CutThrough,
        at_once: spec.switch.switching == Switching::TokenBucket,
        up: true,
        avoided: false,
    }
}

fn a_lane(spec: &FabricSpec, channel: &Channel, virtual_lane: usize) -> Lane {
    let buffer = spec.links[usize::from(channel.link)].buffer.0;
    Lane {
        free: u32::try_from(buffer).unwrap_or(u32::MAX),
        ring: NONE,
        credit_first: NONE,
        credit_last: NONE,
        recent: NONE,
        queued: 0,
        turn: 0,
        credited: spec.classes.loss[virtual_lane] == LossDomain::Credits,
        paused: false,
        stuck: false,
    }
}

/// Returns the lane tables in use, and which of them each port has.
fn lane_tables(classes: &ClassMap, graph: &Graph) -> (Vec<[u8; 16]>, Vec<u8>) {
    let mut tables = vec![classes.lane_of_level];
    let mut of_port = vec![0u8; graph.channels().len()];
    for exception in &classes.lane_exceptions {
        let known = tables.iter().position(|table| *table == exception.lane_of_level);
        let table = known.unwrap_or_else(|| {
            tables.push(exception.lane_of_level);
            tables.len() - 1
        });
        for (channel, slot) in graph.channels().iter().zip(&mut of_port) {
            if graph.name(channel.from) == exception.from && graph.name(channel.to) == exception.to
            {
                *slot = table as u8;
            }
        }
    }
    (tables, of_port)
}
