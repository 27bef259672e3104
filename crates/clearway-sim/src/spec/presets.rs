//! The fabrics that are shipped, by name, and the laboratory's network in the simulator's terms.
//!
//! # Model
//! Shipped fabrics are the files of `fabrics/`, compiled in. They are read by the same code as a
//! user's file; how to write one stands in `docs/fabrics.md`.

use clearway_proto::base::{BitsPerSec, Bytes, Class};

use super::file::{FabricFile, FileError, FileOptions};
use super::{Arbiter, FabricSpec, LinkRole, LossDomain, Topology, VIRTUAL_LANES_MAX};

/// Every shipped fabric: its name and its file.
const SHIPPED: [(&str, &str); 10] = [
    ("aries", include_str!("../../../../fabrics/aries.toml")),
    ("clos-100ge", include_str!("../../../../fabrics/clos-100ge.toml")),
    ("clos-25ge", include_str!("../../../../fabrics/clos-25ge.toml")),
    ("clos-400ge", include_str!("../../../../fabrics/clos-400ge.toml")),
    ("edr", include_str!("../../../../fabrics/edr.toml")),
    ("elan3", include_str!("../../../../fabrics/elan3.toml")),
    ("hdr100", include_str!("../../../../fabrics/hdr100.toml")),
    ("lab", include_str!("../../../../fabrics/lab.toml")),
    ("qdr", include_str!("../../../../fabrics/qdr.toml")),
    ("slingshot", include_str!("../../../../fabrics/slingshot.toml")),
];

/// The longest frame as the laboratory's queues count it: 1500 bytes and an Ethernet header.
const LAB_FRAME: Bytes = Bytes(1514);

/// Returns the names of all shipped fabrics.
pub fn names() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

/// Returns the file of the shipped fabric `name`.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the fabric `name_or_path` under `policy`, or under its own default.
///
/// # Errors
/// One sentence about the first thing that is wrong.
pub fn load(name_or_path: &str, policy: Option<&str>) -> Result<FabricSpec, FileError> {
    FabricFile::open(name_or_path, FileOptions { policy, hosts: None }).map(|file| file.spec)
}

/// Returns the names of the policies of `name_or_path`, its default first.
///
/// # Errors
/// As [`load`].
pub fn policies(name_or_path: &str) -> Result<Vec<String>, FileError> {
    let file = FabricFile::open(name_or_path, FileOptions::default())?;
    let (default, mut others) = (file.policy, file.policies);
    others.retain(|(name, _)| *name != default);
    Ok(core::iter::once(default).chain(others.into_iter().map(|(name, _)| name)).collect())
}

/// A network as the laboratory makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lab {
    /// How the hosts hang together.
    pub shape: LabShape,
    /// Of every host's link.
    pub rate: BitsPerSec,
    /// What each port does with packets that wait.
    pub queue: LabQueue,
    /// How many packets each queue holds.
    pub queue_packets: u32,
}

/// How the hosts of a laboratory hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabShape {
    /// All on one switch.
    Star {
        /// Hosts.
        hosts: u32,
    },
    /// Half on each of two switches, one trunk between them.
    TwoSwitch {
        /// Hosts, even.
        hosts: u32,
        /// The rate of the trunk.
        trunk: BitsPerSec,
    },
    /// Leaves and spines; flows spread by a hash.
    LeafSpine {
        /// Leaves.
        leaves: u32,
        /// Hosts of each.
        hosts_per_leaf: u32,
        /// Spines.
        spines: u32,
        /// The rate of each link between leaf and spine.
        uplink: BitsPerSec,
    },
}

/// What a port of a laboratory does with packets that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabQueue {
    /// One queue for all classes.
    Fifo,
    /// The most urgent class first.
    Strict,
    /// Turns by weight, by [`Class::index`].
    Weighted([u32; Class::ALL.len()]),
    /// InfiniBand-like tables.
    VlArb,
}

/// Returns the network of a laboratory. Queues of one class, which count packets there, hold as
/// many of the longest frames here.
///
/// # Errors
/// What cannot be: no hosts, a rate of zero, a weight of zero.
pub fn lab(lab: &Lab) -> Result<FabricSpec, FileError> {
    let policy = match lab.queue {
        LabQueue::Fifo => "fifo",
        LabQueue::Strict => "strict",
        LabQueue::Weighted(_) => "weighted",
        LabQueue::VlArb => "vlarb",
    };
    let mut spec = load("lab", Some(policy))?;
    let mut uplink = lab.rate;
    spec.topology = match lab.shape {
        LabShape::Star { hosts } => Topology::Star { hosts },
        LabShape::TwoSwitch { hosts, trunk } => {
            uplink = trunk;
            Topology::TwoSwitch { hosts, trunks: 1 }
        }
        LabShape::LeafSpine { leaves, hosts_per_leaf, spines, uplink: rate } => {
            uplink = rate;
            Topology::FatTree {
                children: vec![hosts_per_leaf, leaves],
                parents: vec![1, spines],
                cables: vec![1, 1],
            }
        }
    };
    for link in &mut spec.links {
        link.rate = if link.role == LinkRole::Host { lab.rate } else { uplink };
    }
    let queue = Bytes(LAB_FRAME.0 * u64::from(lab.queue_packets));
    spec.classes.loss = [LossDomain::Drops { queue }; VIRTUAL_LANES_MAX];
    if let LabQueue::Weighted(weights) = lab.queue {
        let mut quantum = [0; VIRTUAL_LANES_MAX];
        for (place, weight) in quantum.iter_mut().zip(weights) {
            *place = weight.saturating_mul(LAB_FRAME.0 as u32);
        }
        let arbiter = Arbiter::Weighted { quantum, first: [None; VIRTUAL_LANES_MAX] };
        spec.arbitration.host = arbiter.clone();
        spec.arbitration.switch = arbiter;
    }
    let wrong = |flaw: super::check::SpecError| FileError::Unreadable {
        file: "lab".to_owned(),
        why: flaw.to_string(),
    };
    spec.check().map_err(wrong)?;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped__every_fabric_is_right_under_every_policy_and_says_where_its_figures_come_from() {
        for name in names() {
            let file = FabricFile::open(name, FileOptions::default())
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(file.spec.name, name);
            assert!(file.figures.len() > 30, "{name}: {} figures", file.figures.len());
            for figure in &file.figures {
                let known = figure.source.is_some() && figure.confidence.is_some();
                assert!(
                    known,
                    "{name}: {} = {} has no source or no confidence",
                    figure.key, figure.value
                );
            }
            for policy in policies(name).unwrap() {
                let file =
                    FabricFile::open(name, FileOptions { policy: Some(&policy), hosts: None });
                let proved = file.and_then(|file| file.prove());
                assert!(proved.is_ok(), "{name} {policy}: {:?}", proved.err());
            }
        }
    }

    #[test]
    fn shipped__one_lane_is_the_default_of_machines_and_a_lane_of_its_own_their_second_policy() {
        for name in names().into_iter().filter(|name| *name != "lab") {
            let shared = load(name, None).unwrap();
            assert_eq!(shared.classes.virtual_lanes, 1, "{name}");
            let lanes = load(name, Some("lanes")).unwrap().classes;
            let lane =
                |class: Class| lanes.lane_of_level[usize::from(lanes.service_level[class.index()])];
            assert_ne!(lane(Class::LowLatency), lane(Class::Bulk), "{name}");
        }
    }

    #[test]
    fn shipped__published_machines_fit() {
        for (name, hosts) in [
            ("edr", 128),
            ("aries", 336),
            ("aries", 384),
            ("slingshot", 485),
            ("edr", 11_664),
            ("aries", 9_984),
        ] {
            let file = FabricFile::open(name, FileOptions { policy: None, hosts: Some(hosts) });
            assert!(file.is_ok(), "{name} {hosts}: {file:?}");
        }
        let many = FileOptions { policy: None, hosts: Some(1_000_000_000) };
        assert!(FabricFile::open("edr", many).is_err());
    }

    #[test]
    fn lab__rate_queue_and_shape_are_those_of_the_scenario() {
        let trunk = BitsPerSec::mega(25);
        let shape = LabShape::TwoSwitch { hosts: 16, trunk };
        let spec = lab(&Lab {
            shape,
            rate: BitsPerSec::mega(50),
            queue: LabQueue::Fifo,
            queue_packets: 10,
        })
        .unwrap();
        assert_eq!(spec.topology, Topology::TwoSwitch { hosts: 16, trunks: 1 });
        let rate = |role| spec.links[usize::from(spec.link(role).unwrap())].rate;
        assert_eq!((rate(LinkRole::Host), rate(LinkRole::Up)), (BitsPerSec::mega(50), trunk));
        assert_eq!(spec.classes.loss[0], LossDomain::Drops { queue: Bytes(15_140) });
        let queue = LabQueue::Weighted([1, 1, 1, 0, 1]);
        let weightless =
            Lab { shape: LabShape::Star { hosts: 2 }, rate: trunk, queue, queue_packets: 10 };
        assert!(lab(&weightless).unwrap_err().to_string().contains("lane 3"));
    }
}
