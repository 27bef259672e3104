//! What to run: a TOML file, read strictly and checked before anything is built.
//!
//! # Model
//! One file names a fabric, one mechanism with its parameters, a seed, and the limits of the verdict. The same file runs in
//! every place that has the fabric. Everything but the fabric and the mechanism has a default; [`Scenario::parameters`] lists
//! every value in force with its origin.
//!
//! # Invariants
//! I1. A key that nothing reads is refused, with the nearest one that something does.
//! I2. A scenario that was read is possible: sizes, rates and roles fit its fabric.

mod shipped;
mod text;

use std::collections::BTreeSet;

use clearway_lab::{LabSpec, QueueKind, Topology, Weights};
use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos, Rank};
use clearway_proto::congestion::{CongestorKind, DrawRequest, Placement, Rules, SwitchedLayout, VictimKind};
use serde::{Deserialize, Serialize};

use crate::report::model::{Origin, Parameter};

use shipped::SHIPPED;
pub(crate) use shipped::shipped;
pub(crate) use text::{read_file, read_text};

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Scenario {
    /// Its name in reports.
    pub(crate) name: String,
    /// One sentence for a person.
    #[serde(default)]
    pub(crate) about: String,
    /// The seed of every random choice; `--seed` overrides it.
    #[serde(default = "one")]
    pub(crate) seed: u64,
    /// The network.
    pub(crate) fabric: Fabric,
    /// Victims beside congestors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) congestion: Option<Congestion>,
    /// Several classes fill one port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shares: Option<Shares>,
    /// The limits of the verdict.
    #[serde(default)]
    pub(crate) verdict: Rules,
}

/// The network of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Fabric {
    /// How hosts and switches are joined.
    pub(crate) topology: Topology,
    /// Packets that each queue of each port holds.
    #[serde(default = "hundred")]
    pub(crate) queue_packets: u32,
    /// Shares of the classes where queues are weighted.
    #[serde(default)]
    pub(crate) weights: Weights,
}

/// What a scenario runs: exactly one of its tables.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mechanism<'a> {
    /// Victims beside congestors.
    Congestion(&'a Congestion),
    /// Several classes fill one port.
    Shares(&'a Shares),
}

/// The congestion test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Congestion {
    /// Queues to compare, in order; the verdict of the run is that of the last.
    pub(crate) queues: Vec<QueueKind>,
    /// Timed patterns.
    pub(crate) victims: Vec<VictimKind>,
    /// Hosts in the victims' ring.
    pub(crate) victim_hosts: usize,
    /// The class of the victims' messages.
    pub(crate) victim_class: Class,
    /// Mean time between messages of one victim to one neighbour, or least time between iterations, in microseconds.
    pub(crate) victim_interval_us: u64,
    /// Loading patterns, one after the other.
    pub(crate) congestors: Vec<CongestorKind>,
    /// Hosts of one congestor group, its target included.
    pub(crate) congestor_hosts: usize,
    /// Groups that run the pattern at the same time.
    pub(crate) congestor_groups: usize,
    /// The class of the congestors' messages.
    pub(crate) congestor_class: Class,
    /// Offered load in hundredths of the pattern's bottleneck link.
    pub(crate) intensity_percent: Vec<u32>,
    /// Processes that each congestor host stands for; each keeps one message under way. Without it a schedule alone decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processes_per_host: Option<u32>,
    /// How congestors lie to victims.
    pub(crate) placement: Placement,
    /// Random assignments of hosts to roles.
    pub(crate) draws: u32,
    /// Time measured without congestors, half before and half after them, in milliseconds.
    pub(crate) isolated_ms: u64,
    /// Time measured with congestors, in milliseconds.
    pub(crate) congested_ms: u64,
    /// Whether each queue is also measured with no congestor at all.
    pub(crate) null_control: NullControl,
}

/// Whether to spend time on proving that nothing but congestors moves the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NullControl {
    /// One draw of each queue and victim without congestors.
    #[default]
    Run,
    /// Trust the machine.
    Skip,
}

impl Default for Congestion {
    fn default() -> Self {
        Self {
            queues: vec![QueueKind::Fifo, QueueKind::Strict],
            victims: vec![VictimKind::Ping],
            victim_hosts: 2,
            victim_class: Class::LowLatency,
            // As in the shipped incast: a rate at which pings wait in a full FIFO rather than get lost (docs/method.md).
            victim_interval_us: 1560,
            congestors: vec![CongestorKind::Incast],
            congestor_hosts: 4,
            congestor_groups: 1,
            congestor_class: Class::Bulk,
            intensity_percent: vec![150],
            processes_per_host: None,
            placement: Placement::AtVictim,
            draws: 1,
            isolated_ms: 4000,
            congested_ms: 4000,
            null_control: NullControl::Run,
        }
    }
}

/// The class share test: one sender for each class, all to one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Shares {
    /// Queues to test.
    pub(crate) queues: Vec<QueueKind>,
    /// Classes that fill the port together.
    pub(crate) classes: Vec<Class>,
    /// What each class offers, in hundredths of the port's rate.
    pub(crate) offered_percent: u32,
    /// Time measured, in milliseconds.
    pub(crate) measured_ms: u64,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            queues: vec![QueueKind::Weighted],
            classes: vec![Class::LowLatency, Class::BestEffort, Class::Bulk, Class::Scavenger],
            offered_percent: 60,
            measured_ms: 5000,
        }
    }
}

fn one() -> u64 {
    1
}

fn hundred() -> u32 {
    100
}

/// The longest time that a full queue may take to empty: one slice of the records, a fifth of ramp and settling.
const QUEUE_TIME_MAX: Nanos = Nanos::from_millis(100);
/// The longest frame of the lab's Ethernet in bytes (IEEE 802.3: 1500 and a header of 14).
const FRAME_MAX: u64 = 1514;
/// The longest name of a scenario: a part of a path, far below the kernel's 255 bytes.
const NAME_MAX: usize = 64;
/// The largest time a scenario may spend in one window: ten minutes. Longer ones are mistyped units.
const WINDOW_MS_MAX: u64 = 600_000;
/// The shortest window that holds blocks enough for an interval: six of 100 ms on each side.
const WINDOW_MS_MIN: u64 = 1200;

/// More processes than any node has processors.
const PROCESSES_MAX: u32 = 1024;

impl Scenario {
    /// Says in one sentence why this cannot run, if it cannot.
    pub(crate) fn check(&self) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        // The name is a directory under out/ unless --out says otherwise.
        if self.name.is_empty()
            || self.name.len() > NAME_MAX
            || self.name.starts_with('.')
            || !self.name.chars().all(plain)
        {
            let name = self.name.escape_debug();
            return Err(format!(
                "the name `{name}` is unusable: 1 to {NAME_MAX} letters, digits, `-`, `_` and `.` work"
            ));
        }
        self.verdict.check().map_err(|why| format!("[verdict]: {why}"))?;
        self.lab(QueueKind::Fifo).check().map_err(|error| format!("[fabric]: {error}"))?;
        match self.mechanism()? {
            Mechanism::Congestion(it) => it.check(&self.fabric).map_err(|why| format!("[congestion]: {why}")),
            Mechanism::Shares(it) => it.check(&self.fabric).map_err(|why| format!("[shares]: {why}")),
        }
    }

    /// What this scenario runs, or why that is not clear.
    pub(crate) fn mechanism(&self) -> Result<Mechanism<'_>, String> {
        match (&self.congestion, &self.shares) {
            (Some(it), None) => Ok(Mechanism::Congestion(it)),
            (None, Some(it)) => Ok(Mechanism::Shares(it)),
            (None, None) => Err("there is nothing to run: add a table [congestion] or [shares]".into()),
            (Some(_), Some(_)) => Err("there are two mechanisms: keep one of [congestion] and [shares]".into()),
        }
    }

    /// The lab that this scenario needs, with one kind of queue.
    pub(crate) fn lab(&self, queue: QueueKind) -> LabSpec {
        let Fabric { topology, queue_packets, weights } = self.fabric;
        LabSpec { topology, queue, queue_packets, weights }
    }

    /// The fabric as draws and expected rates see it.
    pub(crate) fn layout(&self) -> SwitchedLayout {
        self.fabric.layout()
    }

    /// Every value in force, as `table.key`, with who chose it: `given` is the file as it was written.
    pub(crate) fn parameters(&self, given: &str, flags: &BTreeSet<String>) -> Vec<Parameter> {
        let written = given.parse::<toml::Table>().unwrap_or_default();
        let all = toml::Table::try_from(self).unwrap_or_default();
        let mut parameters = Vec::new();
        list(&all, Some(&written), "", flags, &mut parameters);
        parameters
    }
}

/// Appends the leaves of `table` to `parameters`.
fn list(
    table: &toml::Table,
    written: Option<&toml::Table>,
    prefix: &str,
    flags: &BTreeSet<String>,
    parameters: &mut Vec<Parameter>,
) {
    for (key, value) in table {
        let name = format!("{prefix}{key}");
        let there = written.and_then(|table| table.get(key));
        if let toml::Value::Table(inner) = value {
            list(inner, there.and_then(toml::Value::as_table), &format!("{name}."), flags, parameters);
            continue;
        }
        let origin = match (flags.contains(&name), there) {
            (true, _) => Origin::Flag,
            (false, Some(_)) => Origin::Scenario,
            (false, None) => Origin::Default,
        };
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        parameters.push(Parameter { name, value, unit: String::new(), origin });
    }
}

impl Fabric {
    /// Refuses queues that hold so much that ramp, settling and slices are too short for them.
    fn check_queue_time(&self) -> Result<(), String> {
        let slowest = match self.topology {
            Topology::Star { rate, .. } => rate,
            Topology::TwoSwitch { rate, trunk, .. } => rate.min(trunk),
            Topology::LeafSpine { rate, uplink, .. } => rate.min(uplink),
        };
        let held = Bytes(u64::from(self.queue_packets) * FRAME_MAX);
        let time = slowest.time_for(held);
        if time <= QUEUE_TIME_MAX {
            return Ok(());
        }
        let packets = self.queue_packets;
        Err(format!(
            "a full queue of {packets} packets takes {time} to empty at {slowest}; at most {QUEUE_TIME_MAX} can be measured: \
             use fewer queue-packets or a faster link"
        ))
    }

    fn layout(&self) -> SwitchedLayout {
        let hosts = self.topology.hosts();
        let (switch_size, host_rate, trunk_rate) = match self.topology {
            Topology::Star { hosts, rate } => (hosts, rate, None),
            Topology::TwoSwitch { hosts, rate, trunk } => (hosts / 2, rate, Some(trunk)),
            Topology::LeafSpine { hosts_per_leaf, spines, rate, uplink, .. } => {
                (hosts_per_leaf, rate, Some(BitsPerSec(uplink.0.saturating_mul(u64::from(spines)))))
            }
        };
        let switch_of = (0..hosts).map(|host| host / switch_size.max(1)).collect();
        SwitchedLayout { switch_of, host_rate, trunk_rate }
    }
}

/// Refuses an empty list, or one with the same entry twice.
fn distinct<T: Ord + Copy>(what: &str, list: &[T]) -> Result<(), String> {
    if list.is_empty() {
        return Err(format!("{what} is empty; name at least one"));
    }
    let set: BTreeSet<T> = list.iter().copied().collect();
    if set.len() == list.len() { Ok(()) } else { Err(format!("{what} names something twice")) }
}

fn within<T: PartialOrd + std::fmt::Display>(what: &str, value: T, low: T, high: T) -> Result<(), String> {
    if value >= low && value <= high { Ok(()) } else { Err(format!("{what} is {value}; {low} to {high} work")) }
}

impl Congestion {
    /// What one draw chooses, for a pattern that sends.
    pub(crate) fn request(&self) -> DrawRequest {
        let groups = vec![self.congestor_hosts; self.congestor_groups];
        DrawRequest { victims: self.victim_hosts, groups, placement: self.placement }
    }

    /// The victims' interval.
    pub(crate) fn interval(&self) -> Nanos {
        Nanos::from_micros(self.victim_interval_us)
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        distinct("queues", &self.queues.iter().map(|queue| queue.name()).collect::<Vec<_>>())?;
        distinct("victims", &self.victims)?;
        distinct("congestors", &self.congestors)?;
        distinct("intensity-percent", &self.intensity_percent)?;
        for intensity in &self.intensity_percent {
            within("intensity-percent", *intensity, 1, 1000)?;
        }
        fabric.check_queue_time()?;
        within("draws", self.draws, 1, 1000)?;
        within("victim-interval-us", self.victim_interval_us, 50, 1_000_000)?;
        within("isolated-ms", self.isolated_ms, WINDOW_MS_MIN, WINDOW_MS_MAX)?;
        within("congested-ms", self.congested_ms, WINDOW_MS_MIN, WINDOW_MS_MAX)?;
        within("congestor-groups", self.congestor_groups, 1, 100)?;
        within("processes-per-host", self.processes_per_host.unwrap_or(1), 1, PROCESSES_MAX)?;
        let incast = |kind: &&CongestorKind| {
            matches!(
                kind,
                CongestorKind::Incast | CongestorKind::PutIncast | CongestorKind::Burst | CongestorKind::Gpcnet
            )
        };
        if let Some(kind) = self.congestors.iter().find(incast)
            && self.congestor_hosts < 4
        {
            let kind = kind.name();
            return Err(format!(
                "congestor-hosts is {}; {kind} needs a target and at least three senders",
                self.congestor_hosts
            ));
        }
        let key = clearway_proto::base::RandomKey::new(0);
        let draw = clearway_proto::congestion::Draw::new(&fabric.layout(), &self.request(), key, 0);
        draw.map(drop).map_err(|error| error.to_string())
    }
}

impl Shares {
    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        distinct("queues", &self.queues.iter().map(|queue| queue.name()).collect::<Vec<_>>())?;
        distinct("classes", &self.classes)?;
        within("offered-percent", self.offered_percent, 1, 100)?;
        within("measured-ms", self.measured_ms, WINDOW_MS_MIN, WINDOW_MS_MAX)?;
        let offered = self.offered_percent * self.classes.len() as u32;
        if offered < 120 {
            return Err(format!(
                "{} classes at {} % offer {offered} % of the port, 120 % are needed to fill it",
                self.classes.len(),
                self.offered_percent
            ));
        }
        let needed = self.classes.len() + 1;
        let hosts = fabric.topology.hosts() as usize;
        if hosts < needed {
            return Err(format!("{} classes need {needed} hosts, the fabric has {hosts}", self.classes.len()));
        }
        Ok(())
    }

    /// The receiver, and each class with its sender.
    pub(crate) fn senders(&self) -> (Rank, Vec<(Rank, Class)>) {
        (Rank(0), self.classes.iter().zip(1..).map(|(class, rank)| (Rank(rank), *class)).collect())
    }
}

#[cfg(test)]
mod tests;
