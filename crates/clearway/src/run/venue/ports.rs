//! Reads what the ports of a simulated fabric did between two moments, and arranges its devices for
//! a picture.
//!
//! # Model
//! Bytes and stalls are differences of two readings. A port's bytes count when a packet begins, its
//! stall when it ends: at a border of the window each may be off by one packet or one stall. The
//! longest queue is that of the whole phase.

use std::collections::BTreeMap;

use clearway_proto::base::Class;
use clearway_sim::Picos;
use clearway_sim::fabric;
use clearway_sim::graph::{ChannelId, DeviceId, Graph};
use clearway_sim::spec::{FabricSpec, Topology};

use crate::report::model::{
    FabricLink, PhaseLoad, PortLoad, ReportFabric, Switch, SwitchArrangement, labels, rounded,
};

/// Ports in each list of a report: what fits a screen.
const LISTED: usize = 8;
/// Links that a report keeps; beyond them hosts' links are left out, of which a picture could not
/// show any.
const LINKS_MAX: usize = 20_000;

/// The counters of all ports at one moment.
pub(crate) struct CounterReading {
    at: Picos,
    ports: Vec<PortCounters>,
}

struct PortCounters {
    /// By virtual lane.
    bytes: Vec<u64>,
    stalled: Picos,
    dropped: u64,
    queue_max: u32,
}

impl CounterReading {
    /// Reads the counters of `fabric` now. O(lanes).
    pub(crate) fn read(fabric: &fabric::Fabric, spec: &FabricSpec, at: Picos) -> Self {
        let virtual_lanes = usize::from(spec.classes.virtual_lanes.max(1));
        let counters = |id: u32| {
            let (port, lanes) =
                (fabric.port_statistics(ChannelId(id)), fabric.lane_statistics(ChannelId(id)));
            let steps = (lanes.len() / virtual_lanes).max(1);
            let bytes =
                lanes.chunks(steps).map(|lane| lane.iter().map(|step| step.bytes).sum()).collect();
            PortCounters {
                bytes,
                stalled: port.stalled,
                dropped: port.dropped,
                queue_max: port.queue_max,
            }
        };
        Self { at, ports: (0..fabric.graph().channels().len() as u32).map(counters).collect() }
    }
}

/// Returns what the ports of `graph` did between two readings.
pub(super) fn load(
    queue: &str,
    phase: &str,
    spec: &FabricSpec,
    graph: &Graph,
    window: [&CounterReading; 2],
) -> PhaseLoad {
    let length = window[1].at.0.saturating_sub(window[0].at.0).max(1);
    let ports: Vec<PortLoad> = (0..graph.channels().len() as u32)
        .map(|id| port(spec, graph, ChannelId(id), window, length))
        .collect();
    let top = |by: &dyn Fn(&PortLoad) -> f64| {
        let mut all: Vec<&PortLoad> = ports.iter().filter(|port| by(port) > 0.0).collect();
        all.sort_by(|a, b| by(b).total_cmp(&by(a)));
        all.into_iter().take(LISTED).cloned().collect::<Vec<PortLoad>>()
    };
    PhaseLoad {
        labels: [(labels::QUEUE.to_owned(), queue.to_owned())].into(),
        phase: phase.to_owned(),
        window_ms: length as f64 / 1e9,
        lanes: lane_names(spec),
        links: link_loads(&links(spec, graph), &ports),
        busiest: top(&|port| port.load),
        stalled: top(&|port| port.stalled),
    }
}

fn port(
    spec: &FabricSpec,
    graph: &Graph,
    id: ChannelId,
    [first, last]: [&CounterReading; 2],
    length: u64,
) -> PortLoad {
    let channel = graph.channel(id);
    let (before, after) = (&first.ports[id.index()], &last.ports[id.index()]);
    let lanes: Vec<u64> =
        after.bytes.iter().zip(&before.bytes).map(|(b, a)| b.saturating_sub(*a)).collect();
    let bytes: u64 = lanes.iter().sum();
    let rate = spec.links[usize::from(channel.link)].rate.0.max(1) as f64;
    // Picoseconds to seconds.
    let room = rate / 8.0 * length as f64 / 1e12;
    let percent = |part: f64, of: f64| rounded((part / of * 100.0).min(100.0));
    PortLoad {
        ends: [channel.from.0, channel.to.0],
        port: graph.port_of(id),
        load: percent(bytes as f64, room),
        lanes: lanes.iter().map(|lane| percent(*lane as f64, (bytes as f64).max(1.0))).collect(),
        stalled: percent(after.stalled.0.saturating_sub(before.stalled.0) as f64, length as f64),
        queue_bytes: u64::from(after.queue_max),
        drops: after.dropped.saturating_sub(before.dropped),
    }
}

/// Returns the classes that travel on each virtual lane.
fn lane_names(spec: &FabricSpec) -> Vec<String> {
    let classes = &spec.classes;
    let lane_of = |class: Class| {
        classes.lane_of_level[usize::from(classes.service_level[class.index()] & 15)]
    };
    let name = |lane: u8| {
        let here: Vec<&str> = Class::ALL
            .into_iter()
            .filter(|class| lane_of(*class) == lane)
            .map(Class::name)
            .collect();
        match here.len() {
            0 => format!("lane {lane}"),
            n if n == Class::ALL.len() => "all classes".to_owned(),
            _ => here.join(", "),
        }
    };
    (0..classes.virtual_lanes.max(1)).map(name).collect()
}

/// Returns which devices are joined, in order of their numbers.
fn links(spec: &FabricSpec, graph: &Graph) -> Vec<FabricLink> {
    let mut links: BTreeMap<[u32; 2], FabricLink> = BTreeMap::new();
    for channel in graph.channels().iter().filter(|channel| channel.from < channel.to) {
        let ends = [channel.from.0, channel.to.0];
        let gbps = spec.links[usize::from(channel.link)].rate.0 as f64 / 1e9;
        links.entry(ends).or_insert(FabricLink { ends, cables: 0, gbps }).cables += 1;
    }
    let all = links.len();
    links.into_values().filter(|link| all <= LINKS_MAX || link.ends[0] >= graph.hosts()).collect()
}

/// Returns the mean over the parallel cables of each link, both ways.
fn link_loads(links: &[FabricLink], ports: &[PortLoad]) -> Vec<[f64; 2]> {
    let mut sums: BTreeMap<[u32; 2], f64> = BTreeMap::new();
    ports.iter().for_each(|port| *sums.entry(port.ends).or_default() += port.load);
    let mean = |link: &FabricLink, ends: [u32; 2]| {
        rounded(sums.get(&ends).copied().unwrap_or(0.0) / f64::from(link.cables))
    };
    links
        .iter()
        .map(|link| [link.ends, [link.ends[1], link.ends[0]]].map(|ends| mean(link, ends)))
        .collect()
}

/// Returns `spec` and its `graph` as a report shows them, with `loads` of its queues.
pub(super) fn fabric(spec: &FabricSpec, graph: &Graph, loads: Vec<PhaseLoad>) -> ReportFabric {
    let (kind, shape) = match &spec.topology {
        Topology::Star { .. } => ("a star", SwitchArrangement::Rows),
        Topology::TwoSwitch { .. } => ("a pair of switches", SwitchArrangement::Rows),
        Topology::FatTree { .. } => ("a fat tree", SwitchArrangement::Rows),
        Topology::Explicit { .. } => ("cabled as its file says", SwitchArrangement::Rows),
        Topology::DragonflyXc { .. } => ("a Cray XC dragonfly", SwitchArrangement::Groups),
        Topology::Dragonfly { .. } => ("a dragonfly", SwitchArrangement::Groups),
    };
    let name = |device: u32| graph.name(DeviceId(device)).to_owned();
    let distance = distances(graph);
    let switch = |device: u32| {
        let place = device - graph.hosts();
        let [group, row] = match &spec.topology {
            Topology::DragonflyXc { rows, columns, .. } => {
                [place / (rows * columns), place / columns % rows]
            }
            Topology::Dragonfly { switches, .. } => [place / switches, 0],
            _ => [0, distance[device as usize].saturating_sub(1)],
        };
        Switch { name: name(device), group, row }
    };
    let links = links(spec, graph);
    ReportFabric {
        name: spec.name.clone(),
        kind: kind.to_owned(),
        shape,
        cables: graph.channels().len() as u32 / 2,
        hosts: (0..graph.hosts()).map(name).collect(),
        switches: (graph.hosts()..graph.devices()).map(switch).collect(),
        loads: loads.into_iter().filter(|load| load.links.len() == links.len()).collect(),
        links,
    }
}

/// Returns how many cables lie between each device and its nearest host.
fn distances(graph: &Graph) -> Vec<u32> {
    let mut distance = vec![0; graph.devices() as usize];
    let mut reached: Vec<DeviceId> = (0..graph.hosts()).map(DeviceId).collect();
    let mut next = 0;
    while let Some(device) = reached.get(next).copied() {
        next += 1;
        for channel in graph.ports(device) {
            let to = graph.channel(ChannelId(channel)).to;
            if !graph.is_host(to) && distance[to.index()] == 0 {
                distance[to.index()] = distance[device.index()] + 1;
                reached.push(to);
            }
        }
    }
    distance
}
