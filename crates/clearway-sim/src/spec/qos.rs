//! Tables that keep the classes of an InfiniBand network apart: a plan of levels, lanes and weights,
//! the shares that it gives, and what is wrong with somebody else's.
//!
//! # Model
//! Each class has a service level and a lane of its own, the same at adapters, switches and port 0
//! of switches. Control and low latency are in the high table, the others in the low one by weights
//! of 4, 2 and 1 packets. The limit lets the high table send two packets of each of its lanes before
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
/// Packets in a turn of each class: the high table, and the low one, in which classes that have
/// more than two packets come twice, so that a turn is short.
const HIGH: [(Class, u64); 2] = [(Class::Control, 1), (Class::LowLatency, 1)];
const LOW: [(Class, u64); 5] = [
    (Class::BestEffort, 2),
    (Class::Bulk, 1),
    (Class::BestEffort, 2),
    (Class::Bulk, 1),
    (Class::Scavenger, 1),
];
/// Packets of each lane of the high table before one of the low.
const HIGH_PACKETS: u64 = 2;
/// Headers of a packet: LRH 8, BTH 12, ICRC 4, VCRC 2 (InfiniBand specification volume 1).
const HEADER: u64 = 26;
/// The payloads that ports can be set to.
const PAYLOADS: [u64; 5] = [256, 512, 1024, 2048, 4096];

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
        if !PAYLOADS.contains(&payload.0) {
            return Err(format!(
                "no port carries {payload} in a packet; 256B to 4KiB work, in powers of two"
            ));
        }
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
        let tables = VlArbitration { high: table(&HIGH), low: table(&LOW), high_limit };
        Ok(Self { payload, levels, lane_of_level, tables })
    }

    /// Returns the share of a link that each class gets, in thousandths by [`Class::index`], while
    /// those of `busy` always have full packets to send.
    pub fn shares(&self, busy: &[Class]) -> [u64; Class::ALL.len()] {
        let lane = |class: Class| self.levels[class.index()];
        let lanes = busy.iter().fold(0, |lanes, class| lanes | 1 << lane(*class));
        let packet = (self.payload.0 + HEADER) as u32;
        let all = shares(&Arbiter::Tables(self.tables.clone()), lanes, packet);
        let sum: u64 = all.iter().sum::<u64>().max(1);
        Class::ALL.map(|class| all[usize::from(lane(class))] * 1000 / sum)
    }
}

/// Returns what is wrong with an opensm.conf, a sentence each, where packets carry `payload`.
///
/// # Errors
/// What is no opensm.conf, or has an option that OpenSM would bend, with its line.
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
        assert!(sentence.contains("256B to 4KiB"), "{sentence}");
    }

    #[test]
    fn shares__nobody_starves_and_weights_hold() {
        let plan = QosPlan::new(Bytes(4096)).expect("a payload of ports");
        let all = plan.shares(&Class::ALL);
        assert!(all.iter().all(|share| *share > 0), "{all:?}");
        let low = plan.shares(&[Class::BestEffort, Class::Bulk, Class::Scavenger]);
        assert_eq!(low, [0, 0, 571, 285, 142]);
        let beside = plan.shares(&[Class::LowLatency, Class::Bulk]);
        assert_eq!((beside[1], beside[3]), (800, 200), "four packets, then one");
    }
}
