//! One page that says what a fabric is made of: shape, ways, latencies, lanes, and where each
//! figure comes from.
//!
//! # Model
//! The latencies are those of a message alone in the network, by the plain formula: cables,
//! switches, serialization on each cable, the interfaces at both ends; packets of one message
//! follow each other.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use clearway_proto::base::{Bytes, Class};

use super::file::{FabricFile, FileError};
use super::read::NO_LANE;
use super::{
    Arbiter, CongestionControl, FabricSpec, LinkSpec, LossDomain, Queueing, Replication, Routing,
    Switching, Topology, VlArbitration,
};
use crate::fabric::Buckets;
use crate::graph::{ChannelId, DeviceId, Graph};
use crate::routing::{DeadlockProof, ProofScope};
use crate::time::{Pace, Picos};
use crate::topology::{RoutedGraph, estimate};

/// Message sizes whose latencies are shown.
const SIZES: [u64; 2] = [8, 4096];
/// Targets that are looked at; larger networks are sampled evenly.
const TARGETS_MAX: u32 = 4096;

/// Returns the page of `file`.
///
/// # Errors
/// As [`FabricFile::prove`].
///
/// # Cost
/// As [`FabricFile::prove`].
pub fn explain(file: &FabricFile) -> Result<String, FileError> {
    let (network, proof) = file.prove()?;
    let spec = &file.spec;
    let mut page = Explanation(String::new());
    page.line(format_args!("{}: {}", spec.name, spec.about));
    page.shape(spec, &network.graph);
    page.ways(spec, &network, &proof);
    page.devices(spec);
    page.lanes(file, network.router.steps());
    page.figures(file);
    Ok(page.0)
}

/// Text that grows line by line.
struct Explanation(String);

impl Explanation {
    /// Writes a line; writing to a `String` cannot fail.
    fn line(&mut self, what: impl Display) {
        let _ = writeln!(self.0, "{what}");
    }

    fn head(&mut self, title: &str) {
        self.line(format_args!("\n{title}"));
    }

    fn shape(&mut self, spec: &FabricSpec, graph: &Graph) {
        self.head("Shape");
        let (hosts, switches) = (graph.hosts(), graph.devices() - graph.hosts());
        let cables = graph.channels().len() / 2;
        self.line(format_args!(
            "  {}: {hosts} hosts, {switches} switches, {cables} cables",
            shape_of(&spec.topology)
        ));
        self.line(format_args!(
            "  {:<14} {:>7}  {:>12}  {:>10}  buffer of a lane",
            "cable", "number", "rate", "delay"
        ));
        for (place, link) in spec.links.iter().enumerate() {
            let channels = graph
                .channels()
                .iter()
                .filter(|channel| usize::from(channel.link) == place)
                .count();
            if channels > 0 {
                let (rate, delay) = (link.rate.to_string(), link.delay.to_string());
                self.line(format_args!(
                    "  {:<14} {:>7}  {rate:>12}  {delay:>10}  {}",
                    link.name,
                    channels / 2,
                    link.buffer
                ));
            }
        }
        if let Ok(size) = estimate(spec) {
            let memory = Bytes(u64::try_from(size.bytes >> 10).unwrap_or(u64::MAX) << 10);
            self.line(format_args!(
                "  about {} MiB of memory in a simulation",
                memory.0.div_ceil(1 << 20)
            ));
        }
    }

    fn ways(&mut self, spec: &FabricSpec, network: &RoutedGraph, proof: &DeadlockProof) {
        self.head("Ways");
        self.line(format_args!("  routing: {}", routing_of(spec.routing)));
        let walked = match proof.scope {
            ProofScope::Every => "all ways".to_owned(),
            ProofScope::Sampled(ways) => format!("{ways} ways, drawn evenly,"),
        };
        let steps = network.router.steps();
        let plural = if steps == 1 { "step" } else { "steps" };
        self.line(format_args!(
            "  free of deadlock with {steps} {plural} of each virtual lane: {walked} were walked"
        ));
        let by_hops = nearest_ways(network);
        let total: u64 = by_hops.values().map(|(count, _)| count).sum();
        self.line("  shortest ways from n0, and a message alone from memory to memory (processors come on top):");
        self.line(format_args!(
            "  {:>10}  {:>8}  {:>10}  {:>10}",
            "switches", "hosts", "8 B", "4 KiB"
        ));
        for (hops, (count, way)) in &by_hops {
            let [small, large] =
                SIZES.map(|bytes| unloaded(spec, &network.graph, way, bytes).to_string());
            let share = format!("{} %", (count * 100 + total / 2) / total.max(1));
            self.line(format_args!("  {hops:>10}  {share:>8}  {small:>10}  {large:>10}"));
        }
    }

    fn devices(&mut self, spec: &FabricSpec) {
        self.head("Switches and hosts");
        let switch = &spec.switch;
        let switching = match switch.switching {
            Switching::CutThrough => "cut-through",
            Switching::StoreAndForward => "store and forward",
            Switching::TokenBucket => "token buckets",
        };
        let queueing = match switch.queueing {
            Queueing::VirtualOutput => "inputs keep a queue for each output",
            Queueing::InputFifo => "each lane of an input is one queue",
            Queueing::OutputFifo => "each lane of an output is one queue",
        };
        let replication = match switch.replication {
            Replication::EachBranch => "copies of a multicast leave each for itself",
            Replication::HoldAll => "copies of a multicast leave together",
        };
        self.line(format_args!(
            "  switch: {}, {switching}; {queueing}; {replication}",
            switch.delay
        ));
        let host = &spec.host;
        self.line(format_args!(
            "  host: {} to send, {} to receive, memory at {}, {} for an input and {} for an operation of the processor",
            host.transmit_delay, host.receive_delay, host.memory_rate, host.input_cost, host.effect_cost
        ));
        self.line(format_args!(
            "  packets of {} and {} of headers",
            spec.packet.payload, spec.packet.header
        ));
        let control = match spec.congestion_control {
            CongestionControl::None => "none".to_owned(),
            CongestionControl::Edge(edge) => format!(
                "the last switch slows the sources of an incast when {} from {} or more of them wait for a host; a notice takes {}",
                edge.threshold, edge.sources, edge.notice_delay
            ),
            CongestionControl::Dcqcn(cc) => {
                format!(
                    "marks from {} to {} of a queue, DCQCN at sources",
                    cc.mark_min, cc.mark_max
                )
            }
        };
        self.line(format_args!("  congestion control: {control}"));
    }

    fn lanes(&mut self, file: &FabricFile, steps: u8) {
        let (spec, classes) = (&file.spec, &file.spec.classes);
        self.head(&format!("Lanes under policy {}", file.policy));
        let lanes = classes.virtual_lanes;
        self.line(format_args!(
            "  virtual lanes: {lanes}; buffers of a channel: {}",
            u32::from(lanes) * u32::from(steps)
        ));
        self.line(format_args!(
            "  {:<12}  {:>5}  {:>4}  when there is no room",
            "class", "level", "lane"
        ));
        for class in Class::ALL {
            let level = classes.service_level[class.index()];
            let lane = classes.lane_of_level[usize::from(level)];
            let loss = match classes.loss[usize::from(lane.min(NO_LANE))] {
                LossDomain::Credits => "waits for credit".to_owned(),
                LossDomain::Pauses => "pauses the sender".to_owned(),
                LossDomain::Drops { queue } => format!("drops when {queue} wait"),
            };
            self.line(format_args!("  {:<12}  {level:>5}  {lane:>4}  {loss}", class.name()));
        }
        if !classes.lane_exceptions.is_empty() {
            self.line(format_args!(
                "  {} channels have another table",
                classes.lane_exceptions.len()
            ));
        }
        self.line(format_args!(
            "  next on a host's cable: {}",
            arbiter_of(&spec.arbitration.host, lanes)
        ));
        self.line(format_args!(
            "  next on a switch's cable: {}",
            arbiter_of(&spec.arbitration.switch, lanes)
        ));
        self.head("Policies");
        for (name, about) in &file.policies {
            self.line(format_args!("  {name:<14} {about}"));
        }
    }

    fn figures(&mut self, file: &FabricFile) {
        self.head("Figures and where they come from");
        let width = file.figures.iter().map(|figure| figure.key.len()).max().unwrap_or(0);
        for figure in &file.figures {
            let confidence = figure.confidence.map_or("unsaid", |confidence| confidence.name());
            let source = figure.source.as_deref().unwrap_or("no source");
            self.line(format_args!("  {:<width$}  {:<9} {}", figure.key, confidence, figure.value));
            self.line(format_args!("  {:<width$}  {:<9} {source}", "", ""));
        }
    }
}

fn shape_of(topology: &Topology) -> String {
    let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" x ");
    match topology {
        Topology::Star { .. } => "one switch".to_owned(),
        Topology::TwoSwitch { trunks, .. } => {
            format!("two switches with {trunks} cables between them")
        }
        Topology::FatTree { children, .. } => {
            format!("fat tree of {} levels ({} below)", children.len(), list(children))
        }
        Topology::DragonflyXc { groups, columns, rows, .. } => {
            format!("Cray XC dragonfly, {groups} groups of {rows} rows of {columns} routers")
        }
        Topology::Dragonfly { groups, switches, .. } => {
            format!("dragonfly, {groups} groups of {switches} switches")
        }
        Topology::Explicit { .. } => "cable by cable".to_owned(),
    }
}

fn routing_of(routing: Routing) -> String {
    match routing {
        Routing::Minimal => "one shortest way for each pair".to_owned(),
        Routing::DestinationModulo => {
            "upward by the target's number, so that each target has one way down".to_owned()
        }
        Routing::Ecmp => "shortest ways by a hash of the flow".to_owned(),
        Routing::Spray => "shortest ways, drawn anew for each packet".to_owned(),
        Routing::Valiant => "by way of a random group".to_owned(),
        Routing::Adaptive { minimal, detour: 0, .. } => {
            format!("the least loaded of {minimal} shortest ways, for each packet")
        }
        Routing::Adaptive { minimal, detour, bias } => format!(
            "the least loaded of {minimal} shortest ways and {detour} detours, for each packet; {} in favour of the shortest",
            Bytes(bias.into())
        ),
    }
}

fn arbiter_of(arbiter: &Arbiter, lanes: u8) -> String {
    let lanes = usize::from(lanes);
    match arbiter {
        Arbiter::RoundRobin => "lanes take turns".to_owned(),
        Arbiter::Strict { rank } => {
            let mut order: Vec<usize> = (0..lanes).collect();
            order.sort_by_key(|lane| rank[*lane]);
            let order: Vec<String> = order.iter().map(usize::to_string).collect();
            format!("lanes in strict order {}", order.join(", "))
        }
        Arbiter::Weighted { quantum, first } => {
            let mut urgent: Vec<(u8, usize)> =
                (0..lanes).filter_map(|lane| Some((first[lane]?, lane))).collect();
            urgent.sort_unstable();
            let mut words: Vec<String> =
                urgent.iter().map(|(_, lane)| format!("lane {lane} first")).collect();
            let weighted = (0..lanes).filter(|lane| first[*lane].is_none());
            words.extend(
                weighted.map(|lane| format!("lane {lane} by {}", Bytes(quantum[lane].into()))),
            );
            words.join(", ")
        }
        Arbiter::Tables(tables) => tables_of(tables),
    }
}

fn tables_of(tables: &VlArbitration) -> String {
    let list = |table: &[(u8, u8)]| {
        let entries = table
            .iter()
            .filter(|(_, weight)| *weight > 0)
            .map(|(lane, weight)| format!("{lane}:{weight}"));
        let entries: Vec<String> = entries.collect();
        if entries.is_empty() { "nothing".to_owned() } else { entries.join(", ") }
    };
    let limit = match tables.high_limit {
        0 => "one packet at a time".to_owned(),
        255 => "without limit, so the low table may starve".to_owned(),
        limit => format!("{} at a time", Bytes(u64::from(limit) << 12)),
    };
    format!(
        "high table {} ({limit}), low table {} (lane:weight in 64 bytes)",
        list(&tables.high),
        list(&tables.low)
    )
}

/// Returns, by the number of switches on the way, how many hosts are that far from the first one,
/// and one such way.
fn nearest_ways(network: &RoutedGraph) -> BTreeMap<usize, (u64, Vec<ChannelId>)> {
    let hosts = network.graph.hosts();
    let stride = hosts.div_ceil(TARGETS_MAX).max(1) as usize;
    let mut by_hops = BTreeMap::new();
    for target in (1..hosts).step_by(stride) {
        let way = network.router.way(&network.graph, DeviceId(0), DeviceId(target));
        let entry: &mut (u64, Vec<ChannelId>) =
            by_hops.entry(way.len().saturating_sub(1)).or_insert_with(|| (0, way));
        entry.0 += 1;
    }
    by_hops
}

/// Returns the time of `bytes` along `way`, from memory to memory, when nothing else is on it.
fn unloaded(spec: &FabricSpec, graph: &Graph, way: &[ChannelId], bytes: u64) -> Picos {
    let payload = spec.packet.payload.0.max(1);
    let header = spec.packet.header.0;
    let links = way.iter().map(|channel| &spec.links[usize::from(graph.channel(*channel).link)]);
    let links: Vec<&LinkSpec> = links.collect();
    let mut free = vec![Picos::ZERO; way.len()];
    let mut buckets: Vec<_> =
        links.iter().map(|link| Buckets::new(link, (payload + header) as u32)).collect();
    let mut done = Picos::ZERO;
    let mut left = bytes;
    loop {
        let packet = u32::try_from(left.min(payload) + header).unwrap_or(u32::MAX);
        // The first channel may begin once the interface has the packet; a later one once its head
        // is through the switch.
        let (mut head, mut tail) = (spec.host.transmit_delay, spec.host.transmit_delay);
        for (place, link) in links.iter().enumerate() {
            let length = Pace::from_rate(link.rate).time(packet);
            let (ready, until) = match (place, spec.switch.switching) {
                (0, _) => (head, head),
                (_, Switching::StoreAndForward) => {
                    (tail + spec.switch.delay, tail + spec.switch.delay)
                }
                (_, Switching::TokenBucket) => (head + spec.switch.delay, head + spec.switch.delay),
                (_, Switching::CutThrough) => {
                    (head + spec.switch.delay, (tail + spec.switch.delay) - length)
                }
            };
            let start = ready.max(until).max(free[place]);
            let spent =
                buckets[place].as_mut().map(|buckets| Picos(buckets.spend(start.0, length.0)));
            free[place] = spent.unwrap_or(start + length);
            let seen =
                if spec.switch.switching == Switching::TokenBucket { Picos::ZERO } else { length };
            (head, tail) = (start + link.delay, start + seen + link.delay);
        }
        done = done.max(tail);
        left = left.saturating_sub(payload);
        if left == 0 {
            return done + spec.host.receive_delay;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::file::FileOptions;
    use crate::spec::presets;
    use crate::topology::build;

    #[test]
    fn unloaded__is_the_sum_of_its_parts_on_one_switch() {
        let text = "format = 1\nextends = \"edr\"\n[topology]\nkind = \"star\"\nhosts = 2\n[routing]\nkind = \"ecmp\"\n\
                    [packet]\npayload = \"1000B\"\nheader = \"0B\"\n[host]\ntransmit-delay = \"400ns\"\nreceive-delay = \"250ns\"\n\
                    [link.host]\nrate = \"8Gb/s\"\ndelay = \"10ns\"\n[switch]\ndelay = \"90ns\"\n";
        let cut = FabricFile::parse("f", text, FileOptions::default()).unwrap();
        let stored = format!("{text}switching = \"store-and-forward\"\n");
        let stored = FabricFile::parse("f", &stored, FileOptions::default()).unwrap();
        let time = |file: &FabricFile, bytes| {
            let network = build(&file.spec).unwrap();
            let way = network.router.way(&network.graph, DeviceId(0), DeviceId(1));
            unloaded(&file.spec, &network.graph, &way, bytes).0 / 1_000
        };
        // 8 Gb/s is one byte in a nanosecond.
        assert_eq!(time(&cut, 8), 400 + 10 + 90 + 10 + 8 + 250);
        assert_eq!(time(&stored, 8), 400 + 8 + 10 + 90 + 8 + 10 + 250);
        assert_eq!(time(&cut, 3_000), 400 + 10 + 90 + 10 + 3_000 + 250);
        assert_eq!(time(&stored, 3_000), 400 + 10 + 90 + 10 + 4_000 + 250);
    }

    #[test]
    fn explain__every_shipped_fabric_and_policy_has_a_page_with_all_its_figures() {
        for name in presets::names() {
            for policy in presets::policies(name).unwrap() {
                let file =
                    FabricFile::open(name, FileOptions { policy: Some(&policy), hosts: None })
                        .unwrap();
                let page = explain(&file).unwrap();
                assert!(page.contains(&format!("Lanes under policy {policy}")), "{page}");
                for figure in &file.figures {
                    assert!(
                        page.contains(&figure.key) && page.contains(&figure.value),
                        "{name}: {figure:?}"
                    );
                }
            }
        }
    }
}
