//! The network of a scenario: a laboratory drawn in a few numbers, or a machine that only a
//! simulator has.
//!
//! # Model
//! A laboratory runs in both places: as virtual hosts, and simulated with the same rates and
//! queues. A machine comes from a fabric file and runs on the simulator alone. Both have *queues*
//! to compare, by name: the kinds of queue of the laboratory, the policies of the fabric file.
//!
//! # Invariants
//! I1. Nothing above asks which of the two it is, but for the place that makes it.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use clearway_lab::{LabSpec, QueueKind, Topology, Weights};
use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos, RandomKey};
use clearway_proto::congestion::{NetworkLayout, SwitchedLayout};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::file::{FabricFile, FileOptions};
use clearway_sim::spec::presets::{self, Lab, LabQueue, LabShape};
use clearway_sim::spec::{FabricSpec, LinkRole, Topology as MachineTopology};
use clearway_sim::topology;
use serde::{Deserialize, Serialize};

use super::layout::MachineLayout;
use super::time::Time;

/// The network of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "FabricText", into = "FabricText")]
pub(crate) enum Fabric {
    /// Explicit, of the laboratory's kind.
    Lab(LabFabric),
    /// From a fabric file.
    Machine(MachineFabric),
    /// What there is between the ranks of a job: its queues are the site's, and only what classes
    /// are asked of it can change.
    Site(Topology),
}

/// A laboratory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LabFabric {
    /// How hosts and switches are joined.
    pub(crate) topology: Topology,
    /// Packets that each queue of each port holds.
    pub(crate) queue_packets: u32,
    /// Shares of the classes where queues are weighted.
    pub(crate) weights: Weights,
    /// What small messages take when the laboratory is idle, by queue: with what the simulator's
    /// hosts are calibrated.
    pub(crate) small_message: BTreeMap<QueueKind, SmallMessage>,
}

/// What messages of a few bytes take on an idle network, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SmallMessage {
    /// Half of them take no longer.
    pub(crate) p50: Time,
    /// 99 of 100 take no longer.
    pub(crate) p99: Time,
}

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MachineFabric {
    /// A shipped fabric's name, or the path of a file.
    pub(crate) preset: String,
    /// Hosts in use; the fabric's own number without it.
    pub(crate) nodes: Option<u32>,
    /// Where ranks lie.
    pub(crate) node_map: NodeMap,
}

/// Where ranks lie on a machine's hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeMap {
    /// Drawn from the seed, as a batch system that has run for months leaves them.
    #[default]
    Random,
    /// Rank by rank along the cables.
    Linear,
    /// Each rank in the next group of a dragonfly, or subtree below the top of a tree.
    Cyclic,
    /// Rank by rank along the cables, with each rank of the second half next to one of the first:
    /// the order of tasks that are dealt to the nodes of a job in two rounds.
    Paired,
}

impl NodeMap {
    /// Returns the name used in scenarios and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Linear => "linear",
            Self::Cyclic => "cyclic",
            Self::Paired => "paired",
        }
    }
}

/// What is asked of the network between the ranks of a job, where no queue can be set: the run's
/// name for it is its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedClasses {
    /// All traffic in one class, as if there were no others.
    OneClass,
    /// Each message in its own class; what the site does with it shows.
    Classes,
}

impl RequestedClasses {
    /// All, the judged one last.
    pub(crate) const ALL: [Self; 2] = [Self::OneClass, Self::Classes];

    /// Returns the name in scenarios and reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OneClass => "one-class",
            Self::Classes => "classes",
        }
    }

    /// Returns the variant that is called `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|asked| asked.name() == name)
    }
}

/// Returns the class that a message of `class` asks for on `queue`.
pub(crate) fn requested_class(queue: &str, class: Class) -> Class {
    if RequestedClasses::named(queue) == Some(RequestedClasses::OneClass) {
        Class::BestEffort
    } else {
        class
    }
}

/// The table `[fabric]` as it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FabricText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topology: Option<Topology>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue_packets: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weights: Option<Weights>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    small_message: Option<BTreeMap<QueueKind, SmallMessage>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preset: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_map: Option<NodeMap>,
}

/// Packets of one queue unless a scenario says otherwise: 11.5 ms at 100 Mb/s.
const QUEUE_PACKETS: u32 = 100;
/// The longest frame of the laboratory's Ethernet (IEEE 802.3: 1500 bytes and a header of 14).
const LAB_FRAME: Bytes = Bytes(1514);
/// The longest p99 of a small message that can be simulated: the longest time in a fabric file.
const SMALL_MESSAGE_MAX: Time = Time::millis(1_000);
/// The grid of the laboratory's records: longer than a full queue of 100 packets at 25 Mb/s (46
/// ms), so that samples of two slices share no queue episode by more than their border.
const LAB_SLICE: Time = Time::millis(100);
/// A machine's slice is about as long as its host link takes for this: 20 us at 100 Gb/s, the time
/// in which the buffers of four switches on a way (64 KiB each) drain.
const SLICE_BYTES: Bytes = Bytes(250_000);
/// How long ranks of a laboratory listen for stragglers: several full queues of 100 packets at 25
/// Mb/s.
const LAB_DRAIN: Nanos = Nanos::from_millis(250);
/// The same on a machine, in slices: what congestors left behind has to come out through the
/// fullest port.
const MACHINE_DRAIN: u64 = 10;

impl TryFrom<FabricText> for Fabric {
    type Error = &'static str;
    fn try_from(text: FabricText) -> Result<Self, Self::Error> {
        let FabricText { topology, queue_packets, weights, small_message, preset, nodes, node_map } =
            text;
        match (topology, preset) {
            (Some(_), Some(_)) => {
                Err("[fabric] has both `topology` and `preset`; keep one of them")
            }
            (None, None) => Err(
                "[fabric] needs `topology`, a laboratory, or `preset`, a machine for the simulator",
            ),
            (Some(_), None) if nodes.is_some() || node_map.is_some() => Err(
                "[fabric]: `nodes` and `node-map` belong to a `preset`; a `topology` has `hosts`",
            ),
            (None, Some(_))
                if queue_packets.is_some() || weights.is_some() || small_message.is_some() =>
            {
                Err(
                    "[fabric]: `queue-packets`, `weights` and `small-message` belong to a `topology`; a `preset` has its own",
                )
            }
            (Some(topology), None) => {
                let (queue_packets, weights) =
                    (queue_packets.unwrap_or(QUEUE_PACKETS), weights.unwrap_or_default());
                let small_message = small_message.unwrap_or_default();
                Ok(Self::Lab(LabFabric { topology, queue_packets, weights, small_message }))
            }
            (None, Some(preset)) => {
                let node_map = node_map.unwrap_or_default();
                Ok(Self::Machine(MachineFabric { preset, nodes, node_map }))
            }
        }
    }
}

impl From<Fabric> for FabricText {
    fn from(fabric: Fabric) -> Self {
        let none = Self {
            topology: None,
            queue_packets: None,
            weights: None,
            small_message: None,
            preset: None,
            nodes: None,
            node_map: None,
        };
        match fabric {
            Fabric::Lab(LabFabric { topology, queue_packets, weights, small_message }) => {
                let small_message = (!small_message.is_empty()).then_some(small_message);
                let (queue_packets, weights) = (Some(queue_packets), Some(weights));
                Self { topology: Some(topology), queue_packets, weights, small_message, ..none }
            }
            Fabric::Machine(MachineFabric { preset, nodes, node_map }) => {
                Self { preset: Some(preset), nodes, node_map: Some(node_map), ..none }
            }
            Fabric::Site(topology) => Self { topology: Some(topology), ..none },
        }
    }
}

impl Fabric {
    /// Creates the laboratory of `topology` with everything else as usual.
    pub(crate) fn lab(topology: Topology) -> Self {
        Self::Lab(LabFabric {
            topology,
            queue_packets: QUEUE_PACKETS,
            weights: Weights::default(),
            small_message: BTreeMap::new(),
        })
    }

    /// Creates the fabric of `nodes` hosts of the machine in the fabric file `preset`, in random
    /// places.
    pub(crate) fn machine(preset: String, nodes: Option<u32>) -> Self {
        Self::machine_placed(preset, nodes, NodeMap::Random)
    }

    /// Creates the same, in the places of `node_map`.
    pub(crate) fn machine_placed(preset: String, nodes: Option<u32>, node_map: NodeMap) -> Self {
        Self::Machine(MachineFabric { preset, nodes, node_map })
    }

    /// Returns the network of a job of `ranks`, whose host links have this rate, as far as this
    /// fabric tells how they are joined: a laboratory's topology says how a site is wired, a
    /// machine is not the site.
    pub(crate) fn for_job(&self, ranks: u32, rate: Option<BitsPerSec>) -> Result<Self, String> {
        Ok(Self::Site(match self.wiring()? {
            Topology::TwoSwitch { rate: usual, trunk, .. } => {
                Topology::TwoSwitch { hosts: ranks, rate: rate.unwrap_or(usual), trunk }
            }
            Topology::LeafSpine { leaves, hosts_per_leaf, .. }
                if leaves * hosts_per_leaf != ranks =>
            {
                return Err(format!(
                    "[fabric] has {leaves} leaves of {hosts_per_leaf} hosts, and the job has {ranks} ranks; start {}",
                    leaves * hosts_per_leaf
                ));
            }
            Topology::LeafSpine { leaves, hosts_per_leaf, spines, rate: usual, uplink } => {
                Topology::LeafSpine {
                    leaves,
                    hosts_per_leaf,
                    spines,
                    rate: rate.unwrap_or(usual),
                    uplink,
                }
            }
            Topology::Star { rate: usual, .. } => {
                Topology::Star { hosts: ranks, rate: rate.unwrap_or(usual) }
            }
        }))
    }

    /// Returns how the site of a job is wired.
    pub(crate) fn wiring(&self) -> Result<Topology, String> {
        match self {
            Self::Lab(LabFabric { topology, .. }) | Self::Site(topology) => Ok(*topology),
            Self::Machine(_) => Err(format!(
                "the fabric `{self}` is not that of a job: [fabric] topology says how a site is wired"
            )),
        }
    }

    /// Returns what small messages take on `queue`, where the scenario says it.
    pub(crate) fn small_message(&self, queue: &str) -> Option<SmallMessage> {
        let Self::Lab(LabFabric { small_message, .. }) = self else { return None };
        small_message.get(&queue.parse().ok()?).copied()
    }

    /// Returns how many hosts take part.
    pub(crate) fn hosts(&self) -> Result<u32, String> {
        match self {
            Self::Lab(lab) => Ok(lab.topology.hosts()),
            Self::Machine(machine) => machine.ranks(),
            Self::Site(topology) => Ok(topology.hosts()),
        }
    }

    /// Returns whether full buffers hold packets back under the usual queue, so that congestion
    /// spreads to links that are not full.
    pub(crate) fn holds_back(&self) -> Result<bool, String> {
        match self {
            // What a site's buffers do is not known; lossy networks are the careful guess.
            Self::Lab(_) | Self::Site(_) => Ok(false),
            Self::Machine(machine) => Ok(machine.open(None)?.spec.holds_back()),
        }
    }

    /// Returns the laboratory that this is, or one sentence: a lab cannot be made of it.
    pub(crate) fn as_lab(&self) -> Result<&LabFabric, String> {
        let Self::Lab(lab) = self else {
            return Err(format!(
                "the fabric `{self}` is a machine, which only the simulator has: use --on sim, or describe a lab in [lab.fabric]"
            ));
        };
        Ok(lab)
    }

    /// Returns the queue that is usual at every port.
    pub(crate) fn usual_queue(&self) -> Result<String, String> {
        Ok(self.queues()?.into_iter().next().unwrap_or_default())
    }

    /// Returns the queues that can be named, the usual first.
    pub(crate) fn queues(&self) -> Result<Vec<String>, String> {
        match self {
            Self::Lab(_) => Ok(QueueKind::ALL.map(|kind| kind.name().to_owned()).into()),
            Self::Machine(machine) => {
                presets::policies(&machine.preset).map_err(|error| error.to_string())
            }
            Self::Site(_) => Ok(RequestedClasses::ALL.map(|asked| asked.name().to_owned()).into()),
        }
    }

    /// Says in one sentence why this cannot be, if it cannot.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Lab(lab) => lab.check(),
            Self::Machine(machine) => {
                let spec = machine.open(None)?.spec;
                topology::build(&spec)
                    .map(drop)
                    .map_err(|error| format!("{}: {error}", machine.preset))
            }
            Self::Site(topology) if topology.hosts() < 2 => {
                Err("a job of one rank has no network between its ranks; start at least 2"
                    .to_owned())
            }
            Self::Site(_) => Ok(()),
        }
    }

    /// Refuses queues that hold so much that ramp, settling and slices are too short for them.
    pub(crate) fn check_queue_time(&self) -> Result<(), String> {
        let Self::Lab(LabFabric { topology, queue_packets, .. }) = *self else { return Ok(()) };
        let slowest = match topology {
            Topology::Star { rate, .. } => rate,
            Topology::TwoSwitch { rate, trunk, .. } => rate.min(trunk),
            Topology::LeafSpine { rate, uplink, .. } => rate.min(uplink),
        };
        let time = slowest.time_for(Bytes(u64::from(queue_packets) * LAB_FRAME.0));
        if time <= LAB_SLICE.0 {
            return Ok(());
        }
        Err(format!(
            "a full queue of {queue_packets} packets takes {time} to empty at {slowest}; at most {} can be measured: use \
             fewer queue-packets or a faster link",
            LAB_SLICE.0
        ))
    }

    /// Returns the fabric as draws and expected rates see it.
    pub(crate) fn layout(&self, key: RandomKey) -> Result<Box<dyn NetworkLayout>, String> {
        match self {
            Self::Lab(LabFabric { topology, .. }) | Self::Site(topology) => {
                Ok(Box::new(switched(*topology)))
            }
            Self::Machine(machine) => {
                let spec = machine.open(None)?.spec;
                let network = topology::build(&spec)
                    .map_err(|error| format!("{}: {error}", machine.preset))?;
                let hosts = machine.places(&spec.topology, machine.ranks()?, key);
                Ok(Box::new(MachineLayout::new(spec, network, hosts)))
            }
        }
    }

    /// Returns what the simulator makes of it, with this queue, and the host of each rank.
    pub(crate) fn simulated(
        &self,
        queue: &str,
        key: RandomKey,
    ) -> Result<(FabricSpec, Vec<DeviceId>), String> {
        match self {
            Self::Lab(lab) => {
                let spec = lab.simulated(queue.parse().map_err(|error| format!("{error}"))?)?;
                Ok((spec, (0..lab.topology.hosts()).map(DeviceId).collect()))
            }
            Self::Machine(machine) => {
                let spec = machine.open(Some(queue))?.spec;
                let hosts = machine.places(&spec.topology, machine.ranks()?, key);
                Ok((spec, hosts))
            }
            Self::Site(_) => {
                Err("the network of a job cannot be simulated; describe it in a fabric file"
                    .to_owned())
            }
        }
    }

    /// Returns the usual grid of time.
    pub(crate) fn slice(&self) -> Result<Time, String> {
        match self {
            Self::Lab(_) | Self::Site(_) => Ok(LAB_SLICE),
            Self::Machine(_) => Ok(Time(round(self.host_rate()?.time_for(SLICE_BYTES)))),
        }
    }

    /// Returns the rate of a host's link.
    pub(crate) fn host_rate(&self) -> Result<BitsPerSec, String> {
        match self {
            Self::Lab(LabFabric { topology, .. }) | Self::Site(topology) => {
                Ok(switched(*topology).host_rate)
            }
            Self::Machine(machine) => {
                let spec = machine.open(None)?.spec;
                Ok(spec
                    .link(LinkRole::Host)
                    .map_or(spec.host.memory_rate, |link| spec.links[usize::from(link)].rate))
            }
        }
    }

    /// Returns how long ranks listen for stragglers.
    pub(crate) fn drain(&self, slice: Nanos) -> Nanos {
        match self {
            Self::Lab(_) | Self::Site(_) => LAB_DRAIN,
            Self::Machine(_) => slice.times(MACHINE_DRAIN),
        }
    }

    /// Returns the weights of classes under `queue`, where it has any.
    pub(crate) fn weights(&self, queue: &str) -> Option<[u32; Class::ALL.len()]> {
        match self {
            Self::Lab(lab) if queue == QueueKind::Weighted.name() => {
                Some(Class::ALL.map(|class| lab.weights.weight(class)))
            }
            _ => None,
        }
    }
}

/// Returns one, two or five times a power of ten: the least that is not below `time`.
pub(crate) fn round(time: Nanos) -> Nanos {
    let mut step = 1u64;
    loop {
        if let Some(round) =
            [1, 2, 5].into_iter().map(|n| step.saturating_mul(n)).find(|round| *round >= time.0)
        {
            return Nanos(round);
        }
        step = step.saturating_mul(10);
    }
}

impl LabFabric {
    fn check(&self) -> Result<(), String> {
        for (queue, SmallMessage { p50, p99 }) in &self.small_message {
            if p50 > p99 || *p99 > SMALL_MESSAGE_MAX {
                return Err(format!(
                    "small-message.{queue} is p50 = \"{p50}\", p99 = \"{p99}\"; p50 <= p99 <= {SMALL_MESSAGE_MAX} works"
                ));
            }
        }
        self.spec(QueueKind::Fifo).check().map_err(|error| error.to_string())
    }

    /// Returns the fabric as the laboratory wants it.
    pub(crate) fn spec(&self, queue: QueueKind) -> LabSpec {
        let Self { topology, queue_packets, weights, .. } = *self;
        LabSpec { queue, queue_packets, weights, ..LabSpec::new(topology) }
    }

    /// Returns the fabric as the simulator wants it.
    fn simulated(&self, queue: QueueKind) -> Result<FabricSpec, String> {
        let (shape, rate) = match self.topology {
            Topology::Star { hosts, rate } => (LabShape::Star { hosts }, rate),
            Topology::TwoSwitch { hosts, rate, trunk } => {
                (LabShape::TwoSwitch { hosts, trunk }, rate)
            }
            Topology::LeafSpine { leaves, hosts_per_leaf, spines, rate, uplink } => {
                (LabShape::LeafSpine { leaves, hosts_per_leaf, spines, uplink }, rate)
            }
        };
        let queue = match queue {
            QueueKind::Fifo => LabQueue::Fifo,
            QueueKind::Strict => LabQueue::Strict,
            QueueKind::Weighted => {
                LabQueue::Weighted(Class::ALL.map(|class| self.weights.weight(class)))
            }
            QueueKind::VlArb => LabQueue::VlArb,
        };
        let lab = Lab { shape, rate, queue, queue_packets: self.queue_packets };
        let mut spec = presets::lab(&lab).map_err(|error| error.to_string())?;
        for link in &mut spec.links {
            link.burst = Some(clearway_lab::burst(link.rate));
        }
        Ok(spec)
    }
}

/// Returns `topology` as draws and expected rates see it.
fn switched(topology: Topology) -> SwitchedLayout {
    let hosts = topology.hosts();
    let (switch_size, host_rate, trunk_rate) = match topology {
        Topology::Star { hosts, rate } => (hosts, rate, None),
        Topology::TwoSwitch { hosts, rate, trunk } => (hosts / 2, rate, Some(trunk)),
        Topology::LeafSpine { hosts_per_leaf, spines, rate, uplink, .. } => {
            (hosts_per_leaf, rate, Some(BitsPerSec(uplink.0.saturating_mul(u64::from(spines)))))
        }
    };
    let switch_of = (0..hosts).map(|host| host / switch_size.max(1)).collect();
    SwitchedLayout { switch_of, host_rate, trunk_rate }
}

impl MachineFabric {
    fn open(&self, policy: Option<&str>) -> Result<FabricFile, String> {
        FabricFile::open(&self.preset, FileOptions { policy, hosts: self.nodes })
            .map_err(|error| error.to_string())
    }

    fn ranks(&self) -> Result<u32, String> {
        let hosts = self.open(None)?.spec.topology.hosts();
        Ok(self.nodes.map_or(hosts, |nodes| nodes.min(hosts)))
    }

    fn places(&self, shape: &MachineTopology, ranks: u32, key: RandomKey) -> Vec<DeviceId> {
        let hosts = shape.hosts();
        match self.node_map {
            NodeMap::Random => topology::node_map(hosts, ranks, key.purpose("node map")),
            NodeMap::Linear => (0..ranks).map(DeviceId).collect(),
            NodeMap::Cyclic => cyclic(shape, ranks),
            NodeMap::Paired => paired(ranks),
        }
    }
}

/// Returns the hosts of `ranks` in an order in which neighbourhoods of `shape` take turns.
fn cyclic(shape: &MachineTopology, ranks: u32) -> Vec<DeviceId> {
    let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
    let mut hosts: Vec<_> = (0..shape.hosts())
        .map(|host| {
            let neighbourhood = shape.neighbourhood(DeviceId(host));
            let place = taken.entry(neighbourhood).or_default();
            *place += 1;
            (*place, neighbourhood, DeviceId(host))
        })
        .collect();
    hosts.sort_unstable();
    hosts.into_iter().map(|(_, _, host)| host).take(ranks as usize).collect()
}

/// Returns the hosts of `ranks` with the second half next to the first.
fn paired(ranks: u32) -> Vec<DeviceId> {
    let half = ranks.div_ceil(2);
    let host = |rank| if rank < half { 2 * rank } else { 2 * (rank - half) + 1 };
    (0..ranks).map(host).map(DeviceId).collect()
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lab(_) => f.write_str("lab"),
            Self::Machine(machine) => f.write_str(&machine.preset),
            Self::Site(_) => f.write_str("cluster"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cyclic__each_rank_is_in_the_next_group() {
        let shape = MachineTopology::TwoSwitch { hosts: 6, trunks: 1 };
        assert_eq!(cyclic(&shape, 5), [0, 3, 1, 4, 2].map(DeviceId));
        assert_eq!(cyclic(&MachineTopology::Star { hosts: 3 }, 3), [0, 1, 2].map(DeviceId));
    }

    #[test]
    fn paired__the_second_half_lies_next_to_the_first() {
        assert_eq!(paired(6), [0, 2, 4, 1, 3, 5].map(DeviceId));
        assert_eq!(paired(5), [0, 2, 4, 1, 3].map(DeviceId));
    }

    #[test]
    fn round__goes_up_to_one_two_or_five() {
        let rounded = [1, 3, 5, 6, 11_000, 20_000, 25_000].map(|ns| round(Nanos(ns)).0);
        assert_eq!(rounded, [1, 5, 5, 10, 20_000, 20_000, 50_000]);
    }
}
