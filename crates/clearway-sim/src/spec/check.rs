//! Whether a specification makes sense: everything that can be judged before a graph is built.
//!
//! # Not here
//! Whether the shape can be cabled and routed ([`crate::topology::build`]), and without deadlock
//! ([`crate::routing`]).

use clearway_proto::base::{BitsPerSec, Bytes, Class};

use super::read::NO_LANE;
use super::{
    Arbiter, ClassMap, CongestionControl, FabricSpec, LossDomain, Replication, Switching, Topology,
    VlArbitration,
};
use crate::control::pauses::{CableDelay, Thresholds};
use crate::time::Picos;
use crate::topology::{TopologyError, estimate};

/// Entries of one arbitration table: two blocks of 32 (OpenSM, `ib_types.h`).
const TABLE_ENTRIES_MAX: usize = 64;
/// Packets at most; also keeps every sum of a packet's times far from the end of the clock.
const PACKET_BYTES_MAX: u64 = 1 << 20;
/// Rates of cables, in bits a second: two orders slower and faster than any network in use. At
/// neither end does the time of a packet come near to nothing or to the end of the clock.
const RATES: [u64; 2] = [1_000_000, 100_000_000_000_000];
/// The longest delay, cost or timer: light goes to the moon in it. Sums of a thousand are far from
/// the end of the clock.
const TIME_MAX: Picos = Picos(1_000_000_000_000);
/// Ports of one host.
const RAILS_MAX: u32 = 16;

/// What is wrong with a specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct SpecError {
    /// The key, as in files; `policy` stands for the policy in force.
    pub key: String,
    /// What is wrong and what would work.
    pub why: String,
}

/// Returns a flaw at `key`.
pub(super) fn flaw<T>(key: impl Into<String>, why: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError { key: key.into(), why: why.into() })
}

impl FabricSpec {
    /// Refuses what cannot work: counts of zero, more than memory holds, buffers without room for a
    /// packet, lanes that never get a turn, weights the standard forbids.
    ///
    /// # Errors
    /// The first flaw.
    pub fn check(&self) -> Result<(), SpecError> {
        self.check_packet()?;
        self.check_times()?;
        self.check_host()?;
        self.check_shape()?;
        self.check_links()?;
        self.check_classes()?;
        for (end, arbiter) in
            [("host", &self.arbitration.host), ("switch", &self.arbitration.switch)]
        {
            check_arbiter(&format!("policy.{end}"), arbiter, &self.classes)?;
        }
        self.check_control()
    }

    /// Returns whether a lane in use holds packets back where there is no room ahead, so that
    /// congestion spreads to links that are not full. Where none does, what finds no room is
    /// dropped.
    pub fn holds_back(&self) -> bool {
        self.used_lanes().any(|lane| !matches!(self.classes.loss[lane], LossDomain::Drops { .. }))
    }

    /// Returns a packet with its headers.
    pub(super) fn packet_bytes(&self) -> Bytes {
        Bytes(self.packet.payload.0.saturating_add(self.packet.header.0))
    }

    fn check_packet(&self) -> Result<(), SpecError> {
        if self.packet.payload.0 == 0 {
            return flaw(
                "packet.payload",
                "packets without payload carry nothing; give at least 1 B",
            );
        }
        if self.packet_bytes().0 > PACKET_BYTES_MAX {
            return flaw(
                "packet.payload",
                format!("a packet has at most {} with its header", Bytes(PACKET_BYTES_MAX)),
            );
        }
        Ok(())
    }

    /// Refuses times that would come near to the end of the clock when they are added up.
    fn check_times(&self) -> Result<(), SpecError> {
        let host = &self.host;
        let named = [
            ("switch.delay", self.switch.delay),
            ("host.transmit-delay", host.transmit_delay),
            ("host.receive-delay", host.receive_delay),
            ("host.receive-tail", host.receive_tail),
            ("host.input-cost", host.input_cost),
            ("host.effect-cost", host.effect_cost),
            ("host.jitter.length", host.jitter.length),
        ];
        let named = named.into_iter().map(|(key, time)| (key.to_owned(), time));
        let cables =
            self.links.iter().map(|link| (format!("link.{}.delay", link.name), link.delay));
        match named.chain(cables).find(|(_, time)| *time > TIME_MAX) {
            Some((key, _)) => flaw(key, "longer than 1s, which nothing in a network takes"),
            None => Ok(()),
        }
    }

    fn check_shape(&self) -> Result<(), SpecError> {
        // Elsewhere an output that is kept may be the one that what is waited for must pass.
        let tree = matches!(self.topology, Topology::Star { .. } | Topology::FatTree { .. });
        if self.switch.replication == Replication::HoldAll && !tree {
            let why = "copies that leave all at once are free of deadlock in stars and fat trees only; `each-branch` works here";
            return flaw("switch.replication", why);
        }
        match estimate(self) {
            Ok(_) => Ok(()),
            Err(error @ TopologyError::NoCandidate) => flaw("routing.minimal", error.to_string()),
            Err(error) => flaw("topology", error.to_string()),
        }
    }

    fn check_links(&self) -> Result<(), SpecError> {
        if self.links.len() > 256 {
            return flaw("link", "more than 256 kinds of links");
        }
        let packet = self.packet_bytes();
        let holds_back = self.holds_back();
        let pauses = self.used_lanes().any(|lane| self.classes.loss[lane] == LossDomain::Pauses);
        for link in &self.links {
            let key = |what: &str| format!("link.{}.{what}", link.name);
            check_rate(key("rate"), link.rate)?;
            if link.delay.0 == 0 {
                return flaw(
                    key("delay"),
                    "a cable without delay joins two instants; give at least 1ps",
                );
            }
            if holds_back && link.buffer < packet {
                let why = format!(
                    "{} cannot hold one packet of {packet}: nothing would ever be sent",
                    link.buffer
                );
                return flaw(key("buffer"), why);
            }
            let cable = CableDelay { rate: link.rate, delay: link.delay, packet: packet.0 as u32 };
            if pauses && Thresholds::new(link.buffer.0, &cable).is_none() {
                let least = Bytes(cable.headroom() + 3 * packet.0);
                let why = format!(
                    "{} is too little for pauses at this rate; give at least {least}",
                    link.buffer
                );
                return flaw(key("buffer"), why);
            }
            if link.buffer.0 > u64::from(u32::MAX) {
                return flaw(
                    key("buffer"),
                    format!("{} for each lane; at most 4 GiB", link.buffer),
                );
            }
            if let Some(burst) = link.burst {
                self.check_burst(burst).map_err(|why| SpecError { key: key("burst"), why })?;
            }
        }
        Ok(())
    }

    fn check_burst(&self, burst: Bytes) -> Result<(), String> {
        let packet = self.packet_bytes();
        if self.switch.switching != Switching::TokenBucket {
            return Err(
                "only with switch.switching = \"token-bucket\" can packets leave faster than the rate".to_owned()
            );
        }
        if burst < packet || burst.0 > u64::from(u32::MAX) {
            return Err(format!("{burst}; at least one packet of {packet}, at most 4 GiB"));
        }
        Ok(())
    }

    fn check_host(&self) -> Result<(), SpecError> {
        let host = &self.host;
        if host.rails == 0 || host.rails > RAILS_MAX {
            return flaw(
                "host.rails",
                format!("{} ports; a host has 1 to {RAILS_MAX}", host.rails),
            );
        }
        // No upper limit: memory that costs no time is an ideal that models are compared with.
        check_rate("host.memory-rate".to_owned(), host.memory_rate.min(BitsPerSec(RATES[1])))?;
        if host.clock_ppm > 100_000 {
            return flaw(
                "host.clock-ppm",
                format!("{} is no clock; at most 100000", host.clock_ppm),
            );
        }
        if host.jitter.period.0 > 0 && host.jitter.length >= host.jitter.period {
            return flaw(
                "host.jitter.length",
                "interruptions are longer than the time between them",
            );
        }
        Ok(())
    }

    /// Returns the virtual lanes that some class travels on.
    fn used_lanes(&self) -> impl Iterator<Item = usize> {
        let classes = &self.classes;
        let tables = core::iter::once(&classes.lane_of_level)
            .chain(classes.lane_exceptions.iter().map(|exception| &exception.lane_of_level));
        let mut used = [false; super::VIRTUAL_LANES_MAX];
        for table in tables {
            for level in classes.service_level {
                let lane = table.get(usize::from(level)).copied().unwrap_or(NO_LANE);
                if lane < NO_LANE {
                    used[usize::from(lane)] = true;
                }
            }
        }
        (0..used.len()).filter(move |lane| used[*lane])
    }

    fn check_classes(&self) -> Result<(), SpecError> {
        let classes = &self.classes;
        if classes.virtual_lanes == 0 || classes.virtual_lanes > NO_LANE {
            return flaw(
                "policy.virtual-lanes",
                format!("{}; there are 1 to 15", classes.virtual_lanes),
            );
        }
        for class in Class::ALL {
            let level = classes.service_level[class.index()];
            if level > 15 {
                let why = format!("{level}; service levels go from 0 to 15");
                return flaw(format!("policy.service-level.{class}"), why);
            }
            if classes.lane_of_level[usize::from(level)] == NO_LANE {
                let why = format!(
                    "class {class} travels at service level {level}, which has no lane: it would be dropped"
                );
                return flaw(format!("policy.service-level.{class}"), why);
            }
        }
        check_lanes("policy.lane-of-level", &classes.lane_of_level, classes.virtual_lanes)?;
        for exception in &classes.lane_exceptions {
            check_lanes("policy.exceptions", &exception.lane_of_level, classes.virtual_lanes)?;
        }
        let packet = self.packet_bytes();
        for lane in self.used_lanes() {
            if let LossDomain::Drops { queue } = classes.loss[lane]
                && queue < packet
            {
                return flaw(
                    "policy.queue",
                    format!("{queue} cannot hold one packet of {packet}: all would be dropped"),
                );
            }
        }
        Ok(())
    }

    fn check_control(&self) -> Result<(), SpecError> {
        let key = |what: &str| format!("congestion-control.{what}");
        match self.congestion_control {
            CongestionControl::None => Ok(()),
            CongestionControl::Edge(edge) if edge.sources == 0 => {
                flaw(key("sources"), "an incast has at least 1 source")
            }
            CongestionControl::Edge(edge) if edge.notice_delay.0 == 0 => {
                flaw(key("notice-delay"), "a notice takes time; give at least 1ps")
            }
            CongestionControl::Edge(_) => Ok(()),
            CongestionControl::Dcqcn(cc) if cc.mark_min >= cc.mark_max => flaw(
                key("mark-max"),
                format!("{} is not above mark-min, {}", cc.mark_max, cc.mark_min),
            ),
            CongestionControl::Dcqcn(cc) if cc.mark_probability > 1_000_000 => flaw(
                key("mark-millionths"),
                format!("{} is more than all, 1000000", cc.mark_probability),
            ),
            CongestionControl::Dcqcn(cc)
                if cc.notice_interval.0 == 0 || cc.increase_period.0 == 0 =>
            {
                flaw(
                    key("increase-period"),
                    "timers of DCQCN must be longer than nothing, and so must notice-interval",
                )
            }
            CongestionControl::Dcqcn(cc) if cc.gain_shift > 16 => flaw(
                key("gain-shift"),
                format!("{}; the gain is 2^-shift, with a shift from 0 to 16", cc.gain_shift),
            ),
            CongestionControl::Dcqcn(_) => Ok(()),
        }
    }
}

fn check_rate(key: String, rate: BitsPerSec) -> Result<(), SpecError> {
    let [least, most] = RATES.map(BitsPerSec);
    match rate.0 {
        0 => flaw(key, "a rate of zero carries nothing"),
        _ if rate < least || rate > most => {
            flaw(key, format!("{rate}; it must be from {least} to {most}"))
        }
        _ => Ok(()),
    }
}

fn check_lanes(key: &str, lanes: &[u8; 16], virtual_lanes: u8) -> Result<(), SpecError> {
    let wrong = (0..).zip(lanes).find(|(_, lane)| **lane != NO_LANE && **lane >= virtual_lanes);
    match wrong {
        Some((level, lane)) => {
            let level: u8 = level;
            let why = format!(
                "service level {level} is on lane {lane}, but there are {virtual_lanes} virtual lanes; 15 is none"
            );
            flaw(key, why)
        }
        None => Ok(()),
    }
}

fn check_arbiter(key: &str, arbiter: &Arbiter, classes: &ClassMap) -> Result<(), SpecError> {
    let mut lanes: Vec<u8> = Class::ALL.map(|class| classes.service_level[class.index()]).to_vec();
    lanes = lanes.into_iter().map(|level| classes.lane_of_level[usize::from(level)]).collect();
    match arbiter {
        Arbiter::RoundRobin | Arbiter::Strict { .. } => Ok(()),
        Arbiter::Weighted { quantum, first } => {
            let idle = lanes.iter().find(|lane| {
                quantum[usize::from(**lane)] == 0 && first[usize::from(**lane)].is_none()
            });
            match idle {
                Some(lane) => flaw(
                    format!("{key}.quantum"),
                    format!("lane {lane} has neither a quantum nor a place in `first`"),
                ),
                None => Ok(()),
            }
        }
        Arbiter::Tables(tables) => check_tables(key, tables, classes.virtual_lanes, &lanes),
    }
}

fn check_tables(
    key: &str,
    tables: &VlArbitration,
    virtual_lanes: u8,
    used: &[u8],
) -> Result<(), SpecError> {
    for (name, table) in [("high", &tables.high), ("low", &tables.low)] {
        let key = format!("{key}.{name}");
        if table.len() > TABLE_ENTRIES_MAX {
            return flaw(
                key,
                format!("{} entries; a table has at most {TABLE_ENTRIES_MAX}", table.len()),
            );
        }
        for (lane, weight) in table {
            if *lane >= NO_LANE {
                return flaw(key, format!("virtual lane {lane}; tables hold 0 to 14"));
            }
            if *weight > 0 && *lane >= virtual_lanes {
                let why = format!(
                    "weight for lane {lane}, but there are {virtual_lanes} virtual lanes; weight 0 is for lanes not in use"
                );
                return flaw(key, why);
            }
        }
    }
    let has_turn = |lane: u8| {
        tables.high.iter().chain(&tables.low).any(|(entry, weight)| *entry == lane && *weight > 0)
    };
    match used.iter().find(|lane| !has_turn(**lane)) {
        Some(lane) => {
            let why = format!(
                "lane {lane} has no weight in either table: what travels on it would wait for ever"
            );
            flaw(format!("{key}.low"), why)
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
