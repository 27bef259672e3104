//! Finds what a plan names in a network, and turns it into faults of the fabric and faults of nodes.
//!
//! # Invariants
//! I1. Every fault of a plan leads to at least one fault here, or to one sentence that says what is wrong and what there is.

use std::collections::BTreeMap;

use clearway_proto::base::{Class, Rank};

use super::plan::{Fault, FaultKind, Plan, Side, Struck};
use crate::fabric::{FabricFault, Harm, Odds, Trouble, WhenDown};
use crate::graph::{ChannelId, DeviceId, Graph};
use crate::spec::file::FileError;
use crate::spec::{FabricSpec, LossDomain};
use crate::time::Picos;

/// Periods of one flapping link at most: each is a fault of its own.
const FLAPS_MAX: u64 = 10_000;
/// Certainty, in millionths.
const MILLION: u32 = 1_000_000;

/// The network that a plan is for.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// What it is made of.
    pub spec: &'a FabricSpec,
    /// Its devices and channels.
    pub graph: &'a Graph,
    /// The host of each rank; none when no ranks run on it.
    pub hosts: &'a [DeviceId],
    /// Whether ranks have disks.
    pub disks: Disks,
}

/// Whether the nodes of a run have disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// Every node has one.
    Present,
    /// None has.
    Absent,
}

/// Something that befalls a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeFault {
    pub(super) at: Picos,
    pub(super) until: Picos,
    pub(super) rank: Rank,
    /// One of those that [`FaultKind`] calls a host's, but for the interface's.
    pub(super) kind: FaultKind,
    /// The place of the fault in its plan.
    pub(super) plan: u32,
}

/// A plan that fits a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// For [`crate::fabric::Fabric::afflict`].
    pub fabric: Vec<FabricFault>,
    pub(super) nodes: Vec<NodeFault>,
}

/// What a target must be.
enum Place {
    Channels(Vec<ChannelId>),
    Switch(DeviceId),
    Hosts(Vec<DeviceId>),
}

impl Plan {
    /// Finds everything that this plan names in `site`.
    ///
    /// # Errors
    /// One sentence about the first fault that does not fit, with its file and line if it was read from one.
    pub fn resolve(&self, site: &Site<'_>) -> Result<Resolved, FileError> {
        let mut resolved = Resolved::default();
        let names: BTreeMap<&str, DeviceId> =
            (0..site.graph.devices()).map(|id| (site.graph.name(DeviceId(id)), DeviceId(id))).collect();
        for (number, fault) in self.faults.iter().enumerate() {
            let one = One { site, names: &names, fault, number: number as u32 };
            one.resolve(&mut resolved).map_err(|why| self.refuse(number, &why))?;
        }
        Ok(resolved)
    }
}

/// One fault on its way.
struct One<'a> {
    site: &'a Site<'a>,
    names: &'a BTreeMap<&'a str, DeviceId>,
    fault: &'a Fault,
    number: u32,
}

impl One<'_> {
    fn resolve(&self, into: &mut Resolved) -> Result<(), String> {
        let Fault { at, until, .. } = *self.fault;
        if until <= at {
            return Err(format!("it is over at {until}, not after {at} when it begins; give a later `until`"));
        }
        match (self.place()?, &self.fault.kind) {
            (Place::Channels(channels), kind) => {
                for channel in channels {
                    self.on_channel(channel, kind, into)?;
                }
            }
            (Place::Switch(device), FaultKind::SwitchDown { notice_after }) => {
                self.put(Trouble::Dead { device, notice_after: *notice_after }, into);
            }
            (Place::Switch(device), FaultKind::SwitchSlow { percent, latency }) => {
                let (percent, latency) = (percentage(*percent)?, *latency);
                for port in self.site.graph.ports(device).map(ChannelId) {
                    let into_it = self.site.graph.channel(port).reverse;
                    self.put(Trouble::Degraded { channel: port, percent, latency: Picos::ZERO }, into);
                    self.put(Trouble::Degraded { channel: into_it, percent: 100, latency }, into);
                }
            }
            (Place::Hosts(hosts), kind) => {
                for host in hosts {
                    self.on_host(host, kind, into)?;
                }
            }
            (Place::Switch(_), _) => return Err(self.misplaced("a host")),
        }
        Ok(())
    }

    fn put(&self, what: Trouble, into: &mut Resolved) {
        let Fault { at, until, .. } = *self.fault;
        into.fabric.push(FabricFault { at, until, what, plan: self.number });
    }

    /// What the target names; the kind of fault says what it must be.
    fn place(&self) -> Result<Place, String> {
        let target = self.fault.target.as_str();
        for (word, both) in [(" -> ", false), (" -- ", true)] {
            if let Some((a, b)) = target.split_once(word) {
                let (a, b) = (self.device(a)?, self.device(b)?);
                let graph = self.site.graph;
                let there = graph.ports(a).map(ChannelId).filter(|id| graph.channel(*id).to == b);
                let mut channels: Vec<ChannelId> = there.collect();
                if channels.is_empty() {
                    let (a, b) = (graph.name(a), graph.name(b));
                    return Err(format!("there is no link `{a} -> {b}`; {a} has links to {}", self.neighbours(a)));
                }
                if both {
                    let back: Vec<ChannelId> = channels.iter().map(|id| graph.channel(*id).reverse).collect();
                    channels.extend(back);
                }
                return Ok(Place::Channels(channels));
            }
        }
        if target == "*" {
            return Ok(Place::Hosts((0..self.site.graph.hosts()).map(DeviceId).collect()));
        }
        let device = self.device(target)?;
        if self.site.graph.is_host(device) { Ok(Place::Hosts(vec![device])) } else { Ok(Place::Switch(device)) }
    }

    fn device(&self, name: &str) -> Result<DeviceId, String> {
        let name = name.trim();
        self.names.get(name).copied().ok_or_else(|| {
            let graph = self.site.graph;
            let (first, last) = (graph.name(DeviceId(0)), graph.name(DeviceId(graph.hosts().saturating_sub(1))));
            let switch = if graph.devices() > graph.hosts() { graph.name(DeviceId(graph.hosts())) } else { first };
            format!("there is no host or switch `{name}`; hosts are {first} to {last}, switches begin with {switch}")
        })
    }

    fn neighbours(&self, name: &str) -> String {
        let graph = self.site.graph;
        let ports = self.names.get(name).map(|device| graph.ports(*device)).unwrap_or_default();
        let mut names: Vec<&str> = ports.map(|port| graph.name(graph.channel(ChannelId(port)).to)).collect();
        names.dedup();
        let more = if names.len() > 8 { ", ..." } else { "" };
        names.truncate(8);
        format!("{}{more}", names.join(", "))
    }

    fn misplaced(&self, needed: &str) -> String {
        format!("`{}` is not {needed}; name one, as in `n0`, `leaf0` or `n0 -> leaf0`", self.fault.target)
    }

    fn on_channel(&self, channel: ChannelId, kind: &FaultKind, into: &mut Resolved) -> Result<(), String> {
        let what = match *kind {
            FaultKind::Loss(struck) | FaultKind::CaughtCorruption(struck) => {
                self.packets(channel, Harm::Lost, struck)?
            }
            FaultKind::Corruption(struck) => self.packets(channel, Harm::Damaged, struck)?,
            FaultKind::Duplication(struck) => self.packets(channel, Harm::Doubled, struck)?,
            FaultKind::Reordering { by, struck } => self.packets(channel, Harm::Late(by), struck)?,
            FaultKind::LinkDown { packets, notice_after } => Trouble::Down { channel, packets, notice_after },
            FaultKind::LinkFlapping { down, period, packets, notice_after } => {
                let what = Trouble::Down { channel, packets, notice_after };
                return self.flap(down, period, &what, into);
            }
            FaultKind::LinkDegraded { percent, latency } => {
                Trouble::Degraded { channel, percent: percentage(percent)?, latency }
            }
            FaultKind::LostCredit { class, bytes } => {
                let lane = self.lane(class);
                if self.site.spec.classes.loss[usize::from(lane)] != LossDomain::Credits {
                    return Err(format!("class {class} needs no credit here; lose some where `loss = \"credits\"`"));
                }
                Trouble::LostCredit { channel, lane, bytes }
            }
            FaultKind::StuckLane { class } => Trouble::StuckLane { channel, lane: self.lane(class) },
            FaultKind::WrongLane { class, lane } => {
                let level = self.site.spec.classes.service_level[class.index()];
                Trouble::WrongLane { channel, level, lane: self.known_lane(lane)? }
            }
            FaultKind::WrongArbitration { first } => {
                Trouble::WrongArbitration { channel, first: self.known_lane(first)? }
            }
            FaultKind::SwitchDown { .. } | FaultKind::SwitchSlow { .. } => return Err(self.misplaced("a switch")),
            _ => return Err(self.misplaced("a host")),
        };
        self.put(what, into);
        Ok(())
    }

    fn packets(&self, channel: ChannelId, harm: Harm, struck: Struck) -> Result<Trouble, String> {
        let Struck { odds, class, sort } = struck;
        check_odds(odds)?;
        let level = class.map(|class| self.site.spec.classes.service_level[class.index()]);
        Ok(Trouble::Packets { channel, harm, odds, level, sort })
    }

    fn flap(&self, down: Picos, period: Picos, what: &Trouble, into: &mut Resolved) -> Result<(), String> {
        let Fault { at, until, .. } = *self.fault;
        if down == Picos::ZERO || down >= period || (until - at).0 / period.0 > FLAPS_MAX {
            return Err(format!(
                "down for {down} in every {period} until {until}; down must be shorter than the period, and {FLAPS_MAX} periods are the most"
            ));
        }
        let mut begin = at;
        while begin < until {
            let (what, until) = (what.clone(), (begin + down).min(until));
            into.fabric.push(FabricFault { at: begin, until, what, plan: self.number });
            begin += period;
        }
        Ok(())
    }

    fn lane(&self, class: Class) -> u8 {
        let classes = &self.site.spec.classes;
        classes.lane_of_level[usize::from(classes.service_level[class.index()] & 15)]
    }

    fn known_lane(&self, lane: u8) -> Result<u8, String> {
        let lanes = self.site.spec.classes.virtual_lanes.max(1);
        if lane < lanes {
            return Ok(lane);
        }
        Err(format!("there is no virtual lane {lane}; this fabric has lanes 0 to {}", lanes - 1))
    }

    fn on_host(&self, host: DeviceId, kind: &FaultKind, into: &mut Resolved) -> Result<(), String> {
        let graph = self.site.graph;
        let out: Vec<ChannelId> = graph.ports(host).map(ChannelId).collect();
        let back = || out.iter().map(|id| graph.channel(*id).reverse);
        match *kind {
            FaultKind::InterfaceDead { side } => {
                let dead = |channel| Trouble::Down { channel, packets: WhenDown::Lost, notice_after: Picos::NEVER };
                if side != Side::Receive {
                    out.iter().for_each(|channel| self.put(dead(*channel), into));
                }
                if side != Side::Transmit {
                    back().for_each(|channel| self.put(dead(channel), into));
                }
            }
            FaultKind::PauseStorm { class } => {
                let lane = self.lane(class);
                if self.site.spec.classes.loss[usize::from(lane)] != LossDomain::Pauses {
                    return Err(format!(
                        "nobody heeds pauses of class {class} here; storms need a fabric with `loss = \"pauses\"`"
                    ));
                }
                back().for_each(|channel| self.put(Trouble::StuckLane { channel, lane }, into));
            }
            FaultKind::SlowReceiver { percent } => {
                self.put(Trouble::SlowHost { device: host, percent: percentage(percent)? }, into);
            }
            FaultKind::SwitchDown { .. } | FaultKind::SwitchSlow { .. } => return Err(self.misplaced("a switch")),
            ref kind if kind.is_of_a_node() => return self.on_ranks(host, kind, into),
            _ => return Err(self.misplaced("a link")),
        }
        Ok(())
    }

    fn on_ranks(&self, host: DeviceId, kind: &FaultKind, into: &mut Resolved) -> Result<(), String> {
        if kind.needs_disk() && self.site.disks == Disks::Absent {
            return Err("nodes of this run have no disks; give them some, or leave this fault out".to_owned());
        }
        let every = match kind {
            FaultKind::Interruptions { every, .. } | FaultKind::SpuriousWake { every } => *every,
            _ => Picos::NEVER,
        };
        if every == Picos::ZERO {
            return Err("`every` is no time at all; give at least 1ps".to_owned());
        }
        let Fault { at, until, .. } = *self.fault;
        let ranks = (0u32..).zip(self.site.hosts).filter(|(_, at)| **at == host);
        let before = into.nodes.len();
        into.nodes.extend(ranks.map(|(rank, _)| NodeFault {
            at,
            until,
            rank: Rank(rank),
            kind: kind.clone(),
            plan: self.number,
        }));
        if into.nodes.len() == before && self.fault.target != "*" {
            return Err(format!("no rank runs on {}; name a host that has one", self.site.graph.name(host)));
        }
        Ok(())
    }
}

impl FaultKind {
    /// Whether it befalls ranks, not the fabric.
    fn is_of_a_node(&self) -> bool {
        matches!(
            self,
            Self::Completions { .. }
                | Self::Crash
                | Self::Paused
                | Self::Interruptions { .. }
                | Self::ClockJump { .. }
                | Self::ClockDrift { .. }
                | Self::ClockFrozen
                | Self::SendRefused
                | Self::TightQueue { .. }
                | Self::SpuriousWake { .. }
                | Self::LateTimer { .. }
        ) || self.needs_disk()
    }

    fn needs_disk(&self) -> bool {
        matches!(self, Self::DiskSlow { .. } | Self::DiskFails | Self::DiskFull | Self::DiskTorn { .. })
    }
}

/// Refuses odds that never strike, and more than certainty.
fn check_odds(odds: Odds) -> Result<(), String> {
    let millionths = match odds {
        Odds::Nth(0) => return Err("packets are numbered from 1; `nth = 0` is none of them".to_owned()),
        Odds::Nth(_) => return Ok(()),
        Odds::Each(each) => vec![("each", each, 1)],
        Odds::Bursts { begin, end, inside } => vec![("begin", begin, 1), ("end", end, 0), ("inside", inside, 1)],
    };
    match millionths.into_iter().find(|(_, odds, least)| !(*least..=MILLION).contains(odds)) {
        Some((key, odds, least)) => Err(format!("{key} = {odds}; odds are millionths, from {least} to {MILLION}")),
        None => Ok(()),
    }
}

fn percentage(percent: u32) -> Result<u32, String> {
    if (1..=100).contains(&percent) {
        return Ok(percent);
    }
    Err(format!("{percent} percent of a rate is not slower; give 1 to 100"))
}
