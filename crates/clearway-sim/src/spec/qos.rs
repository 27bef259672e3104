//! Tables that keep the classes of an InfiniBand network apart: a plan of levels, lanes and weights,
//! the shares that it gives, and what is wrong with somebody else's.
//!
//! # Model
//! Each class has a service level and a lane of its own, the same at adapters, switches and port 0
//! of switches. Control and low latency are in the high table, the others in the low one by shares,
//! usually 4, 2 and 1 packets. The limit lets the high table send two packets of each of its lanes before
//! one of the low table, so nobody starves.

use clearway_proto::base::{Bytes, Class};

use super::discover;
use super::file::FileError;
use super::import::SourceText;
use super::opensm;
use super::{Arbiter, VlArbitration};
use crate::arbiter::shares;

pub use super::discover::PortAddress;

/// Lanes of the plan: what adapters and switches in use have, as OpenSM counts them.
pub const PLAN_LANES: u8 = 8;
/// Bytes of one weight, and of one step of the high limit.
const WEIGHT_BYTES: u64 = 64;
const LIMIT_BYTES: u64 = 4096;
/// Packets in a turn of each class of the high table.
const HIGH: [(Class, u64); 2] = [(Class::Control, 1), (Class::LowLatency, 1)];
/// The classes of the low table.
pub const LOW_CLASSES: [Class; 3] = [Class::BestEffort, Class::Bulk, Class::Scavenger];
/// Entries of the low table: as many as adapters and switches in use have.
const LOW_ENTRIES: u64 = PLAN_LANES as u64;
/// Packets of one entry of the low table: those of the longest payload that a weight can count.
const ENTRY_PACKETS: u64 = 3;
/// Packets of each lane of the high table before one of the low.
const HIGH_PACKETS: u64 = 2;
/// Headers of a packet: LRH 8, BTH 12, ICRC 4, VCRC 2 (InfiniBand specification volume 1).
const HEADER: u64 = 26;
/// The payloads that ports can be set to: the MTUs of the InfiniBand specification volume 1.
const PAYLOADS: [u64; 5] = [256, 512, 1024, 2048, 4096];

/// The parts that best effort, bulk and scavenger have of what control and low latency leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowShares([u32; LOW_CLASSES.len()]);

impl LowShares {
    /// What the plan has unless somebody chooses other shares.
    pub const USUAL: Self = Self([4, 2, 1]);

    /// Creates shares of these parts, in the order of [`LOW_CLASSES`]; `None` if a class has none, or
    /// more than a million.
    pub fn new(parts: [u32; LOW_CLASSES.len()]) -> Option<Self> {
        parts.iter().all(|parts| (1..=1_000_000).contains(parts)).then_some(Self(parts))
    }

    /// Returns the parts, in the order of [`LOW_CLASSES`].
    pub const fn parts(self) -> [u32; LOW_CLASSES.len()] {
        self.0
    }

    /// Returns whole percents that sum to 100, in the order of [`LOW_CLASSES`]; none is 0.
    pub fn percents(self) -> [u64; LOW_CLASSES.len()] {
        self.divided(100)
    }

    /// Returns the packets that the classes have in a turn: the ratio nearest to the parts that a
    /// port's table has room for, in the order of [`LOW_CLASSES`].
    pub fn packets(self) -> [u64; LOW_CLASSES.len()] {
        let sum = self.sum();
        let fits =
            |packets: &[u64; 3]| packets.iter().map(|of| entries(*of)).sum::<u64>() <= LOW_ENTRIES;
        // The largest difference of a class from its part, as a fraction with this denominator.
        let difference = |packets: &[u64; 3]| {
            let total: u64 = packets.iter().sum();
            let of = packets.iter().zip(self.0);
            let of = of.map(|(packets, part)| (packets * sum).abs_diff(u64::from(part) * total));
            (of.max().unwrap_or(0), total * sum)
        };
        let turns = (LOW_CLASSES.len() as u64..=LOW_ENTRIES * ENTRY_PACKETS)
            .map(|total| self.divided(total))
            .filter(fits);
        // Of equal ones the first, which is the shortest turn.
        let nearer = |best: [u64; 3], other: [u64; 3]| {
            let ((best_off, best_of), (off, of)) = (difference(&best), difference(&other));
            if off * best_of < best_off * of { other } else { best }
        };
        turns.reduce(nearer).unwrap_or([1; LOW_CLASSES.len()])
    }

    fn sum(self) -> u64 {
        self.0.iter().map(|part| u64::from(*part)).sum()
    }

    /// Divides `total` by the parts; everybody gets at least one.
    fn divided(self, total: u64) -> [u64; LOW_CLASSES.len()] {
        let sum = self.sum();
        let mut given = [1; LOW_CLASSES.len()];
        for _ in LOW_CLASSES.len() as u64..total {
            // How far each is behind its part, times the sum.
            let behind = |place: usize| {
                i128::from(u64::from(self.0[place]) * total) - i128::from(given[place] * sum)
            };
            let (mut next, mut most) = (0, behind(0));
            for place in 1..LOW_CLASSES.len() {
                if behind(place) > most {
                    (next, most) = (place, behind(place));
                }
            }
            given[next] += 1;
        }
        given
    }

    /// Returns the low table: classes with more than a packet come at least twice, so that a turn is
    /// short.
    fn table(self) -> Vec<(Class, u64)> {
        let packets = self.packets();
        let rounds = packets.map(entries).into_iter().max().unwrap_or(0);
        let mut table = Vec::new();
        for round in 0..rounds {
            for (class, packets) in LOW_CLASSES.into_iter().zip(packets) {
                // All are there in the last rounds.
                let Some(own) = (round + entries(packets)).checked_sub(rounds) else { continue };
                let until = |own: u64| packets * own / entries(packets);
                table.push((class, until(own + 1) - until(own)));
            }
        }
        table
    }
}

/// Returns the entries of the low table for a class with `packets` in a turn.
fn entries(packets: u64) -> u64 {
    packets.div_ceil(ENTRY_PACKETS).max(packets.min(2))
}

/// Levels, lanes and tables for every port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosPlan {
    /// What a packet carries at most.
    pub payload: Bytes,
    /// The service level of each class, by [`Class::index`]; its lane has the same number.
    pub levels: [u8; Class::ALL.len()],
    /// The lane of each service level; those of no class are on that of best effort.
    pub lane_of_level: [u8; 16],
    /// Both tables, and the limit of the high one.
    pub tables: VlArbitration,
}

impl QosPlan {
    /// Creates the plan for packets that carry `payload`.
    ///
    /// # Errors
    /// One sentence: ports cannot be set to it.
    pub fn new(payload: Bytes) -> Result<Self, String> {
        Self::with_shares(payload, LowShares::USUAL)
    }

    /// Creates the plan in whose low table the classes have these shares.
    ///
    /// # Errors
    /// One sentence: ports cannot be set to the payload.
    pub fn with_shares(payload: Bytes, shares: LowShares) -> Result<Self, String> {
        check_payload(payload)?;
        let levels = opensm::LEVELS;
        let mut lane_of_level = [levels[Class::BestEffort.index()]; 16];
        levels.iter().for_each(|level| lane_of_level[usize::from(*level)] = *level);
        let packet = payload.0 / WEIGHT_BYTES;
        let table = |turns: &[(Class, u64)]| {
            let entry = |(class, packets): &(Class, u64)| {
                (levels[class.index()], (packet * packets).min(255) as u8)
            };
            turns.iter().map(entry).collect()
        };
        let burst = HIGH.len() as u64 * HIGH_PACKETS * payload.0;
        let high_limit = burst.div_ceil(LIMIT_BYTES) as u8;
        let tables = VlArbitration { high: table(&HIGH), low: table(&shares.table()), high_limit };
        Ok(Self { payload, levels, lane_of_level, tables })
    }

    /// Returns the lane of `class`.
    pub fn lane(&self, class: Class) -> u8 {
        self.lane_of_level[usize::from(self.levels[class.index()] & 15)]
    }

    /// Returns the share of a link that each class gets, in thousandths by [`Class::index`], while
    /// those of `busy` always have full packets to send. Classes on one lane share it equally.
    pub fn shares(&self, busy: &[Class]) -> [u64; Class::ALL.len()] {
        let lanes = busy.iter().fold(0, |lanes, class| lanes | 1 << self.lane(*class));
        let all = shares(&Arbiter::Tables(self.tables.clone()), lanes, self.packet() as u32);
        let sum: u64 = all.iter().sum::<u64>().max(1);
        Class::ALL.map(|class| {
            let lane = self.lane(class);
            let sharing = busy.iter().filter(|other| self.lane(**other) == lane).count() as u64;
            let own = if busy.contains(&class) { all[usize::from(lane)] } else { 0 };
            own * 1000 / (sum * sharing.max(1))
        })
    }

    /// Returns the bytes of a full packet with its headers.
    pub const fn packet(&self) -> u64 {
        self.payload.0 + HEADER
    }

    /// Returns the classes that are on one lane where a port has only `lanes`: OpenSM takes lane
    /// numbers modulo as many. Each list has two classes at least.
    pub fn merged(&self, lanes: u8) -> Vec<Vec<Class>> {
        let lanes = lanes.max(1);
        let on = |lane: u8| -> Vec<Class> {
            Class::ALL.into_iter().filter(|class| self.lane(*class) % lanes == lane).collect()
        };
        (0..lanes.min(PLAN_LANES)).map(on).filter(|classes| classes.len() > 1).collect()
    }
}

/// Checks that ports of InfiniBand can be set to packets that carry `payload`.
///
/// # Errors
/// One sentence: they cannot.
pub fn check_payload(payload: Bytes) -> Result<(), String> {
    if PAYLOADS.contains(&payload.0) {
        return Ok(());
    }
    Err(format!(
        "no InfiniBand port carries {payload} in a packet; 256B, 512B, 1KiB, 2KiB and 4KiB work"
    ))
}

/// What an opensm.conf sets at present, in the form of a plan: classes at the levels of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentTables {
    /// At adapters.
    pub adapters: QosPlan,
    /// At switches.
    pub switches: QosPlan,
}

/// Returns what the ports of a network have by an opensm.conf, where packets carry `payload`.
///
/// # Errors
/// What is wrong with the text, with its line.
pub fn present(conf: SourceText<'_>, payload: Bytes) -> Result<PresentTables, FileError> {
    let read = opensm::parse(conf.text).map_err(|wrong| conf.wrong(wrong))?;
    let [adapters, switches] = [read.adapters, read.switches].map(|port| QosPlan {
        payload,
        levels: read.levels,
        lane_of_level: port.lane_of_level,
        tables: VlArbitration { high: port.high, low: port.low, high_limit: port.high_limit },
    });
    Ok(PresentTables { adapters, switches })
}

/// Returns the mistakes in a QoS policy file of OpenSM for a network with this opensm.conf and, if
/// given, these partitions: a sentence each.
///
/// # Errors
/// What is none of these files, with its line.
pub fn check_policy(
    conf: SourceText<'_>,
    policy: SourceText<'_>,
    partitions: Option<SourceText<'_>>,
) -> Result<Vec<String>, FileError> {
    let lanes = opensm::parse(conf.text).map_err(|wrong| conf.wrong(wrong))?;
    let policy = opensm::Policy::parse(policy.text).map_err(|wrong| policy.wrong(wrong))?;
    let partitions = partitions
        .map(|text| opensm::partitions(text.text).map_err(|wrong| text.wrong(wrong)))
        .transpose()?;
    Ok(policy.faults(&lanes, partitions.as_deref()))
}

/// Returns what is wrong with an opensm.conf, a sentence each, where packets carry `payload`.
///
/// # Errors
/// It is no opensm.conf.
pub fn check(conf: SourceText<'_>, payload: Bytes) -> Result<Vec<String>, FileError> {
    opensm::faults(conf.text, payload).map_err(|wrong| conf.wrong(wrong))
}

/// Returns the ports of ibnetdiscover's text that have a cable, and each enhanced port 0 of a switch.
///
/// # Errors
/// What is wrong with the text, with its line.
pub fn ports(net: SourceText<'_>) -> Result<Vec<PortAddress>, FileError> {
    discover::ports(net.text).map_err(|wrong| net.wrong(wrong))
}

/// Returns whether a text is an opensm.conf, right or wrong.
pub fn is_opensm(text: &str) -> bool {
    opensm::is_conf(text)
}

/// Checks that the service levels of a network are free, so that classes can have some.
///
/// # Errors
/// Its routing engine sets their lanes itself; or it is no opensm.conf.
pub fn is_level_free(conf: SourceText<'_>) -> Result<(), FileError> {
    let owner = opensm::owner(conf.text).map_err(|wrong| conf.wrong(wrong))?;
    owner.map_or(Ok(()), |(line, engine)| {
        let why = format!(
            "routing engine {engine} uses service levels to be free of deadlock, and sets their lanes itself: classes can have none; \
             ftree, updn and minhop leave them free"
        );
        Err(conf.wrong((line, why)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new__weights_are_whole_packets_and_every_class_is_served() {
        for payload in PAYLOADS {
            let plan = QosPlan::new(Bytes(payload)).expect("a payload of ports");
            let entries = plan.tables.high.iter().chain(&plan.tables.low);
            assert!(
                entries
                    .clone()
                    .all(|(_, weight)| *weight > 0 && u64::from(*weight) * 64 % payload == 0)
            );
            for class in Class::ALL {
                let lane = plan.lane_of_level[usize::from(plan.levels[class.index()])];
                assert!(entries.clone().any(|(served, _)| *served == lane), "{class}");
            }
            assert!(plan.lane_of_level.iter().all(|lane| *lane < PLAN_LANES));
        }
        let sentence = QosPlan::new(Bytes(1500)).expect_err("Ethernet's");
        assert!(sentence.contains("2KiB and 4KiB work"), "{sentence}");
    }

    #[test]
    fn shares__nobody_starves_and_weights_hold() {
        let plan = QosPlan::new(Bytes(4096)).expect("a payload of ports");
        let all = plan.shares(&Class::ALL);
        assert!(all.iter().all(|share| *share > 0), "{all:?}");
        let low = plan.shares(&[Class::BestEffort, Class::Bulk, Class::Scavenger]);
        assert_eq!(low, [0, 0, 571, 285, 142]);
        let both = plan.shares(&[Class::LowLatency, Class::Bulk]);
        assert_eq!((both[1], both[3]), (800, 200), "four packets, then one");
    }

    #[test]
    fn low_shares__tables_fit_ports_and_come_near_every_share() {
        assert_eq!(LowShares::USUAL.percents(), [57, 29, 14]);
        assert_eq!(LowShares::USUAL.packets(), [4, 2, 1]);
        assert_eq!(LowShares::new([0, 1, 1]), None);
        for parts in [[50, 40, 10], [1, 8, 1], [30, 60, 10], [90, 9, 1], [1, 1, 1], [20, 79, 1]] {
            let shares = LowShares::new(parts).expect("parts");
            assert_eq!(shares.percents().iter().sum::<u64>(), 100);
            let plan = QosPlan::with_shares(Bytes(4096), shares).expect("a payload of ports");
            assert!(plan.tables.low.len() <= 8 && plan.tables.low.iter().all(|(_, of)| *of > 0));
            let got = plan.shares(&LOW_CLASSES);
            let sum: u32 = parts.iter().sum();
            for (class, part) in LOW_CLASSES.into_iter().zip(parts) {
                let wanted = u64::from(part) * 1000 / u64::from(sum);
                assert!(got[class.index()].abs_diff(wanted) < 60, "{parts:?}: {got:?}");
            }
        }
    }

    #[test]
    fn merged__ports_with_fewer_lanes_put_classes_together() {
        let plan = QosPlan::new(Bytes(4096)).expect("a payload of ports");
        assert_eq!(plan.merged(8), Vec::<Vec<Class>>::new());
        assert_eq!(plan.merged(4), [vec![Class::BestEffort, Class::Scavenger]]);
        assert_eq!(plan.merged(1), [Class::ALL.to_vec()]);
    }

    #[test]
    fn present__switches_that_nobody_set_have_the_shares_of_opensm() {
        let text = "qos TRUE\nqos_ca_high_limit 255\nqos_ca_vlarb_high 0:40\nqos_ca_vlarb_low 1:2,2:4,3:8,4:16\n";
        let conf = SourceText { file: "opensm.conf", text };
        let PresentTables { adapters, switches } = present(conf, Bytes(2048)).expect("right");
        assert_eq!(adapters.shares(&Class::ALL), [0, 0, 1000, 0, 0]);
        assert_eq!(switches.shares(&Class::ALL), [125, 125, 500, 125, 125]);
        let one = "qos TRUE\nqos_sl2vl 0,0,0,0,0\nqos_vlarb_low 0:64\n";
        let conf = SourceText { file: "opensm.conf", text: one };
        let together = present(conf, Bytes(2048)).expect("right").adapters;
        assert_eq!(together.shares(&[Class::Bulk, Class::Control]), [500, 0, 0, 500, 0]);
    }
}
