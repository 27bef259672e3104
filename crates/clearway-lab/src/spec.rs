//! What a lab looks like: its name, topology, rates and queues, with the impossible refused in one
//! sentence.
//!
//! # Model
//! A specification is plain values that read from a scenario file. [`LabSpec::check`] is the only
//! gate: what passes it can be planned without further questions.

use std::fmt;
use std::str::FromStr;

use clearway_proto::base::{BitsPerSec, Class};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::link::OFFLOAD_MAX;

/// The most rails of a lab: what a wire over UDP takes.
const RAILS_MAX: u32 = 4;
/// The most hosts of one lab: a Linux bridge has 1024 ports (`BR_MAX_PORTS`,
/// `net/bridge/br_private.h`).
const HOSTS_MAX: u32 = 1000;
/// Below this one 1514-byte frame holds the link for more than 12 ms: no class could be fast.
const RATE_MIN: BitsPerSec = BitsPerSec::mega(1);
/// Far above what a software link carries; the kernel's 32-bit byte rate ends at 34 Gb/s (`struct
/// tc_ratespec`).
const RATE_MAX: BitsPerSec = BitsPerSec::mega(32_000);
/// A deeper queue holds more packets than the default socket buffers of a self-test's burst can
/// carry.
const QUEUE_PACKETS_MAX: u32 = 10_000;
/// The measured reference depth: 100 packets of 1442 bytes at 100 Mb/s wait 11.5 ms.
const QUEUE_PACKETS: u32 = 100;
/// The largest weight: InfiniBand's arbitration tables hold 8-bit weights.
const WEIGHT_MAX: u32 = 255;

/// The name of a lab: lower-case letters, digits and dashes, at most 32, beginning with a letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabName(String);

impl LabName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for LabName {
    type Err = LabError;
    fn from_str(text: &str) -> Result<Self, LabError> {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let first = text.chars().next().is_some_and(|c| c.is_ascii_lowercase());
        if first && text.len() <= 32 && text.chars().all(known) {
            return Ok(Self(text.to_owned()));
        }
        Err(LabError::Impossible(format!(
            "`{text}` cannot name a lab: use at most 32 lower-case letters, digits and dashes, beginning with a letter"
        )))
    }
}

impl TryFrom<String> for LabName {
    type Error = LabError;
    fn try_from(text: String) -> Result<Self, LabError> {
        text.parse()
    }
}

impl From<LabName> for String {
    fn from(name: LabName) -> Self {
        name.0
    }
}

/// How the hosts hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum Topology {
    /// All hosts on one switch.
    Star {
        /// Hosts, `1..=1000`.
        hosts: u32,
        /// The rate of every host's link.
        rate: BitsPerSec,
    },
    /// Two switches with half of the hosts each, joined by one trunk.
    TwoSwitch {
        /// Hosts, even.
        hosts: u32,
        /// The rate of every host's link.
        rate: BitsPerSec,
        /// The rate of the trunk.
        trunk: BitsPerSec,
    },
    /// Leaves and spines as routers; flows spread over the spines by a hash of addresses and ports.
    /// Unicast only.
    LeafSpine {
        /// Leaf routers, `1..=250`.
        leaves: u32,
        /// Hosts below each leaf, `1..=63`.
        hosts_per_leaf: u32,
        /// Spine routers, `1..=63`.
        spines: u32,
        /// The rate of every host's link.
        rate: BitsPerSec,
        /// The rate of every link between a leaf and a spine.
        uplink: BitsPerSec,
    },
}

impl Topology {
    /// Returns how many hosts there are.
    pub fn hosts(&self) -> u32 {
        match *self {
            Self::Star { hosts, .. } | Self::TwoSwitch { hosts, .. } => hosts,
            Self::LeafSpine { leaves, hosts_per_leaf, .. } => leaves.saturating_mul(hosts_per_leaf),
        }
    }

    /// Returns every rate with what it is the rate of.
    fn rates(&self) -> Vec<(&'static str, BitsPerSec)> {
        match *self {
            Self::Star { rate, .. } => vec![("host links", rate)],
            Self::TwoSwitch { rate, trunk, .. } => vec![("host links", rate), ("trunk", trunk)],
            Self::LeafSpine { rate, uplink, .. } => vec![("host links", rate), ("uplinks", uplink)],
        }
    }
}

/// What a port does with the packets that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueKind {
    /// One queue for all classes: what a switch without configuration does.
    Fifo,
    /// A queue per class; the most urgent that waits goes first.
    #[default]
    Strict,
    /// A queue per class; each gets its [`Weights`] share of the link, what one leaves goes to the
    /// others.
    Weighted,
    /// InfiniBand-like arbitration: a high table before a low one, which keeps a tenth of the link.
    #[serde(rename = "vlarb")]
    VlArb,
}

impl QueueKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Fifo, Self::Strict, Self::Weighted, Self::VlArb];

    /// Returns the name used in scenarios, reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Strict => "strict",
            Self::Weighted => "weighted",
            Self::VlArb => "vlarb",
        }
    }
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for QueueKind {
    type Err = LabError;
    fn from_str(text: &str) -> Result<Self, LabError> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            LabError::Impossible(format!("`{text}` is not a kind of queue; the kinds are {known}"))
        })
    }
}

/// The share of each class under [`QueueKind::Weighted`], `1..=255`; only their ratios matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Weights {
    /// Weight of [`Class::Control`].
    pub control: u32,
    /// Weight of [`Class::LowLatency`].
    pub low_latency: u32,
    /// Weight of [`Class::BestEffort`].
    pub best_effort: u32,
    /// Weight of [`Class::Bulk`].
    pub bulk: u32,
    /// Weight of [`Class::Scavenger`].
    pub scavenger: u32,
}

impl Weights {
    /// Returns the weight of `class`.
    pub const fn weight(&self, class: Class) -> u32 {
        match class {
            Class::Control => self.control,
            Class::LowLatency => self.low_latency,
            Class::BestEffort => self.best_effort,
            Class::Bulk => self.bulk,
            Class::Scavenger => self.scavenger,
        }
    }
}

impl Default for Weights {
    /// Returns the ratios 8:4:2:1 of the reference measurements, with control like low latency.
    fn default() -> Self {
        Self { control: 8, low_latency: 8, best_effort: 4, bulk: 2, scavenger: 1 }
    }
}

/// A whole lab.
///
/// ```
/// use clearway_lab::{LabSpec, Topology};
/// use clearway_proto::base::BitsPerSec;
/// let spec = LabSpec::new(Topology::Star { hosts: 8, rate: BitsPerSec::mega(100) });
/// assert!(spec.check().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabSpec {
    /// How the hosts hang together.
    pub topology: Topology,
    /// Rails, `1..=4`: stars side by side, each a network and a switch of its own, with a link to
    /// every host.
    #[serde(default = "one_rail")]
    pub rails: u32,
    /// What every port does with waiting packets.
    #[serde(default)]
    pub queue: QueueKind,
    /// How many packets wait at most, per class (under [`QueueKind::Fifo`]: in all), `10..=10000`.
    #[serde(default = "queue_packets")]
    pub queue_packets: u32,
    /// Shares under [`QueueKind::Weighted`].
    #[serde(default)]
    pub weights: Weights,
}

fn one_rail() -> u32 {
    1
}

fn queue_packets() -> u32 {
    QUEUE_PACKETS
}

impl LabSpec {
    /// Specifies `topology` on one rail with strict queues of 100 packets per class.
    pub fn new(topology: Topology) -> Self {
        let (queue, weights) = (QueueKind::Strict, Weights::default());
        Self { topology, rails: 1, queue, queue_packets: QUEUE_PACKETS, weights }
    }

    /// Checks that packets of up to `frames` frames (1 to 43) can pass whole.
    ///
    /// # Errors
    /// [`LabError::Impossible`] with what works.
    pub fn check_offload(&self, frames: u32) -> Result<(), LabError> {
        let refuse = |sentence: String| Err(LabError::Impossible(sentence));
        if !(1..=OFFLOAD_MAX).contains(&frames) {
            return refuse(format!(
                "packets of {frames} frames are impossible: 1 to {OFFLOAD_MAX} work"
            ));
        }
        if frames > 1 && self.queue != QueueKind::Fifo {
            return refuse(format!(
                "{} queues count packets, and would count {frames} frames as one: use fifo queues",
                self.queue
            ));
        }
        Ok(())
    }

    /// Checks that this can be built.
    ///
    /// # Errors
    /// [`LabError::Impossible`] with what is wrong and what would work.
    pub fn check(&self) -> Result<(), LabError> {
        let refuse = |sentence: String| Err(LabError::Impossible(sentence));
        let hosts = self.topology.hosts();
        if !(1..=HOSTS_MAX).contains(&hosts) {
            return refuse(format!(
                "a lab of {hosts} hosts is impossible: 1 to {HOSTS_MAX} hosts work"
            ));
        }
        if let Topology::TwoSwitch { .. } = self.topology
            && !hosts.is_multiple_of(2)
        {
            return refuse(format!(
                "{hosts} hosts do not split evenly over two switches: use {} or {}",
                hosts - 1,
                hosts + 1
            ));
        }
        let most = if matches!(self.topology, Topology::Star { .. }) { RAILS_MAX } else { 1 };
        if !(1..=most).contains(&self.rails) {
            return refuse(format!(
                "{} rails are impossible: 1 works, and up to {RAILS_MAX} in a star",
                self.rails
            ));
        }
        if let Topology::LeafSpine { leaves, hosts_per_leaf, spines, .. } = self.topology {
            for (what, given, most) in [
                ("leaves", leaves, 250),
                ("hosts per leaf", hosts_per_leaf, 63),
                ("spines", spines, 63),
            ] {
                if !(1..=most).contains(&given) {
                    return refuse(format!("{given} {what} are impossible: 1 to {most} work"));
                }
            }
        }
        for (what, rate) in self.topology.rates() {
            if !(RATE_MIN..=RATE_MAX).contains(&rate) {
                return refuse(format!(
                    "the {what} cannot have {rate}: {RATE_MIN} to {RATE_MAX} work"
                ));
            }
        }
        if !(10..=QUEUE_PACKETS_MAX).contains(&self.queue_packets) {
            let given = self.queue_packets;
            return refuse(format!(
                "a queue of {given} packets is impossible: 10 to {QUEUE_PACKETS_MAX} work"
            ));
        }
        for class in Class::ALL {
            let weight = self.weights.weight(class);
            if !(1..=WEIGHT_MAX).contains(&weight) {
                return refuse(format!(
                    "class {class} cannot have weight {weight}: 1 to {WEIGHT_MAX} work"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(topology: Topology) -> String {
        LabSpec::new(topology).check().unwrap_err().to_string()
    }

    #[test]
    fn check__the_impossible_is_refused_with_what_would_work() {
        let rate = BitsPerSec::mega(100);
        assert_eq!(
            sentence(Topology::Star { hosts: 0, rate }),
            "a lab of 0 hosts is impossible: 1 to 1000 hosts work"
        );
        assert!(sentence(Topology::Star { hosts: 1001, rate }).contains("1 to 1000"));
        assert_eq!(
            sentence(Topology::TwoSwitch { hosts: 7, rate, trunk: rate }),
            "7 hosts do not split evenly over two switches: use 6 or 8"
        );
        assert_eq!(
            sentence(Topology::TwoSwitch { hosts: 8, rate, trunk: BitsPerSec(64_000) }),
            "the trunk cannot have 64 kb/s: 1 Mb/s to 32 Gb/s work"
        );
        let fat = |leaves, hosts_per_leaf, spines| Topology::LeafSpine {
            leaves,
            hosts_per_leaf,
            spines,
            rate,
            uplink: rate,
        };
        assert_eq!(sentence(fat(2, 64, 1)), "64 hosts per leaf are impossible: 1 to 63 work");
        assert_eq!(sentence(fat(2, 4, 0)), "0 spines are impossible: 1 to 63 work");
        assert!(sentence(fat(u32::MAX, u32::MAX, 1)).contains("1 to 1000"));
    }

    #[test]
    fn check__queues_and_weights_have_bounds() {
        let good = LabSpec::new(Topology::Star { hosts: 2, rate: BitsPerSec::mega(1) });
        assert!(good.check().is_ok());
        assert!(LabSpec { queue_packets: 9, ..good }.check().is_err());
        assert!(LabSpec { rails: 4, ..good }.check().is_ok());
        let pair =
            Topology::TwoSwitch { hosts: 2, rate: BitsPerSec::mega(1), trunk: BitsPerSec::mega(1) };
        for spec in [LabSpec { rails: 0, ..good }, LabSpec { rails: 2, topology: pair, ..good }] {
            let sentence =
                format!("{} rails are impossible: 1 works, and up to 4 in a star", spec.rails);
            assert_eq!(spec.check().unwrap_err().to_string(), sentence);
        }
        let weights = Weights { bulk: 0, ..Weights::default() };
        assert_eq!(
            LabSpec { weights, ..good }.check().unwrap_err().to_string(),
            "class bulk cannot have weight 0: 1 to 255 work"
        );
    }

    #[test]
    fn spec__reads_as_written_in_a_scenario() {
        let text = r#"{"topology": {"kind": "two-switch", "hosts": 16, "rate": "100Mb/s", "trunk": "0.1 Gb/s"},
                       "queue": "vlarb", "weights": {"low-latency": 16}}"#;
        let spec: LabSpec = serde_json::from_str(text).unwrap();
        let rate = BitsPerSec::mega(100);
        assert_eq!(spec.topology, Topology::TwoSwitch { hosts: 16, rate, trunk: rate });
        assert_eq!(
            (spec.queue, spec.queue_packets, spec.weights.low_latency),
            (QueueKind::VlArb, 100, 16)
        );
        let again: LabSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(again, spec);
    }

    #[test]
    fn name__what_could_leave_a_directory_is_refused() {
        for bad in ["", "../x", "A", "-a", "0a", "a/b", "a b", &"a".repeat(33)] {
            assert!(bad.parse::<LabName>().is_err(), "{bad:?}");
        }
        assert_eq!("lab-2".parse::<LabName>().unwrap().as_str(), "lab-2");
    }

    #[test]
    fn queue_kind__names_read_back() {
        for kind in QueueKind::ALL {
            assert_eq!(kind.name().parse::<QueueKind>().unwrap(), kind);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        assert!(
            "prio"
                .parse::<QueueKind>()
                .unwrap_err()
                .to_string()
                .contains("fifo, strict, weighted, vlarb")
        );
    }
}
