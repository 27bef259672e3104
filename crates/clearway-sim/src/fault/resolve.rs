//! Finds what a plan names in a network, and turns it into faults of the fabric and faults of
//! nodes.
//!
//! # Invariants
//! I1. Every fault of a plan leads to at least one fault here, or to one sentence that says what is
//!     wrong and what there is.

use std::collections::BTreeMap;

use clearway_proto::base::{Class, Rank};

use super::plan::{Fault, FaultKind, FaultPlan, PacketMatch, Side};
use crate::fabric::{DownPolicy, FabricFault, FabricFaultKind, FaultOdds, PacketFault};
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
pub struct FaultSite<'a> {
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
pub struct ResolvedPlan {
    /// For [`crate::fabric::Fabric::afflict`].
    pub fabric: Vec<FabricFault>,
    pub(super) nodes: Vec<NodeFault>,
}

/// What a target must be.
enum FaultTarget {
    Channels(Vec<ChannelId>),
    Switch(DeviceId),
    Hosts(Vec<DeviceId>),
}

impl FaultPlan {
    /// Finds everything that this plan names in `site`.
    ///
    /// # Errors
    /// One sentence about the first fault that does not fit, with its file and line if it was read
    /// from one.
    pub fn resolve(&self, site: &FaultSite<'_>) -> Result<ResolvedPlan, FileError> {
        let mut resolved = ResolvedPlan::default();
        let names: BTreeMap<&str, DeviceId> = (0..site.graph.devices())
            .map(|id| (site.graph.name(DeviceId(id)), DeviceId(id)))
            .collect();
        for (number, fault) in self.faults.iter().enumerate() {
            let one = FaultInContext { site, names: &names, fault, number: number as u32 };
            one.resolve(&mut resolved).map_err(|why| self.refuse(number, &why))?;
        }
        Ok(resolved)
    }
}

/// One fault on its way.
struct FaultInContext<'a> {
    site: &'a FaultSite<'a>,
    names: &'a BTreeMap<&'a str, DeviceId>,
    fault: &'a Fault,
    number: u32,
}

impl FaultInContext<'_> {
    fn resolve(&self, into: &mut ResolvedPlan) -> Result<(), String> {
        let Fault { at, until, .. } = *self.fault;
        if until <= at {
            return Err(format!(
                "it is over at {until}, not after {at} when it begins; give a later `until`"
            ));
        }
        match (self.place()?, &self.fault.kind) {
            (FaultTarget::Channels(channels), kind) => {
                for channel in channels {
                    self.on_channel(channel, kind, into)?;
                }
            }
            (FaultTarget::Switch(device), FaultKind::SwitchDown { notice_after }) => {
                self.put(FabricFaultKind::Dead { device, notice_after: *notice_after }, into);
            }
            (FaultTarget::Switch(device), FaultKind::SwitchSlow { percent, latency }) => {
                let (percent, latency) = (percentage(*percent)?, *latency);
                for port in self.site.graph.ports(device).map(ChannelId) {
                    let into_it = self.site.graph.channel(port).reverse;
                    self.put(
                        FabricFaultKind::Degraded { channel: port, percent, latency: Picos::ZERO },
                        into,
                    );
                    self.put(
                        FabricFaultKind::Degraded { channel: into_it, percent: 100, latency },
                        into,
                    );
                }
            }
            (FaultTarget::Hosts(hosts), kind) => {
                for host in hosts {
                    self.on_host(host, kind, into)?;
                }
            }
            (FaultTarget::Switch(_), _) => return Err(self.misplaced("a host")),
        }
        Ok(())
    }

    fn put(&self, what: FabricFaultKind, into: &mut ResolvedPlan) {
        let Fault { at, until, .. } = *self.fault;
        into.fabric.push(FabricFault { at, until, what, plan: self.number });
    }

    /// Returns what the target names; the kind of fault says what it must be.
    fn place(&self) -> Result<FaultTarget, String> {
        let target = self.fault.target.as_str();
        for (word, both) in [(" -> ", false), (" -- ", true)] {
            if let Some((a, b)) = target.split_once(word) {
                let (a, b) = (self.device(a)?, self.device(b)?);
                let graph = self.site.graph;
                let there = graph.ports(a).map(ChannelId).filter(|id| graph.channel(*id).to == b);
                let mut channels: Vec<ChannelId> = there.collect();
                if channels.is_empty() {
                    let (a, b) = (graph.name(a), graph.name(b));
                    return Err(format!(
                        "there is no link `{a} -> {b}`; {a} has links to {}",
                        self.neighbours(a)
                    ));
                }
                if both {
                    let back: Vec<ChannelId> =
                        channels.iter().map(|id| graph.channel(*id).reverse).collect();
                    channels.extend(back);
                }
                return Ok(FaultTarget::Channels(channels));
            }
        }
        if target == "*" {
            return Ok(FaultTarget::Hosts((0..self.site.graph.hosts()).map(DeviceId).collect()));
        }
        let device = self.device(target)?;
        if self.site.graph.is_host(device) {
            Ok(FaultTarget::Hosts(vec![device]))
        } else {
            Ok(FaultTarget::Switch(device))
        }
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
        let mut names: Vec<&str> =
            ports.map(|port| graph.name(graph.channel(ChannelId(port)).to)).collect();
        names.dedup();
        let more = if names.len() > 8 { ", ..." } else { "" };
        names.truncate(8);
        format!("{}{more}", names.join(", "))
    }

    fn misplaced(&self, needed: &str) -> String {
        format!(
            "`{}` is not {needed}; name one, as in `n0`, `leaf0` or `n0 -> leaf0`",
            self.fault.target
        )
    }

    fn on_channel(
        &self,
        channel: ChannelId,
        kind: &FaultKind,
        into: &mut ResolvedPlan,
    ) -> Result<(), String> {
        let what = match *kind {
            FaultKind::Loss(struck) | FaultKind::CaughtCorruption(struck) => {
                self.packets(channel, PacketFault::Lost, struck)?
            }
            FaultKind::Corruption(struck) => self.packets(channel, PacketFault::Damaged, struck)?,
            FaultKind::Duplication(struck) => {
                self.packets(channel, PacketFault::Doubled, struck)?
            }
            FaultKind::Reordering { by, struck } => {
                self.packets(channel, PacketFault::Late(by), struck)?
            }
            FaultKind::LinkDown { packets, notice_after } => {
                FabricFaultKind::Down { channel, packets, notice_after }
            }
            FaultKind::LinkFlapping { down, period, packets, notice_after } => {
                let what = FabricFaultKind::Down { channel, packets, notice_after };
                return self.flap(down, period, &what, into);
            }
            FaultKind::LinkDegraded { percent, latency } => {
                FabricFaultKind::Degraded { channel, percent: percentage(percent)?, latency }
            }
            FaultKind::LostCredit { class, bytes } => {
                let lane = self.lane(class);
                if self.site.spec.classes.loss[usize::from(lane)] != LossDomain::Credits {
                    return Err(format!(
                        "class {class} needs no credit here; lose some where `loss = \"credits\"`"
                    ));
                }
                FabricFaultKind::LostCredit { channel, lane, bytes }
            }
            FaultKind::StuckLane { class } => {
                FabricFaultKind::StuckLane { channel, lane: self.lane(class) }
            }
            FaultKind::WrongLane { class, lane } => {
                let level = self.site.spec.classes.service_level[class.index()];
                FabricFaultKind::WrongLane { channel, level, lane: self.known_lane(lane)? }
            }
            FaultKind::WrongArbitration { first } => {
                FabricFaultKind::WrongArbitration { channel, first: self.known_lane(first)? }
            }
            FaultKind::SwitchDown { .. } | FaultKind::SwitchSlow { .. } => {
                return Err(self.misplaced("a switch"));
            }
            _ => return Err(self.misplaced("a host")),
        };
        self.put(what, into);
        Ok(())
    }

    fn packets(
        &self,
        channel: ChannelId,
        harm: PacketFault,
        struck: PacketMatch,
    ) -> Result<FabricFaultKind, String> {
        let PacketMatch { odds, class, sort } = struck;
        check_odds(odds)?;
        let level = class.map(|class| self.site.spec.classes.service_level[class.index()]);
        Ok(FabricFaultKind::Packets { channel, harm, odds, level, sort })
    }

    fn flap(
        &self,
        down: Picos,
        period: Picos,
        what: &FabricFaultKind,
        into: &mut ResolvedPlan,
    ) -> Result<(), String> {
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

    fn on_host(
        &self,
        host: DeviceId,
        kind: &FaultKind,
        into: &mut ResolvedPlan,
    ) -> Result<(), String> {
        let graph = self.site.graph;
        let out: Vec<ChannelId> = graph.ports(host).map(ChannelId).collect();
        let back = || out.iter().map(|id| graph.channel(*id).reverse);
        match *kind {
            FaultKind::InterfaceDead { side } => {
                let dead = |channel| FabricFaultKind::Down {
                    channel,
                    packets: DownPolicy::Lost,
                    notice_after: Picos::NEVER,
                };
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
                back().for_each(|channel| {
                    self.put(FabricFaultKind::StuckLane { channel, lane }, into)
                });
            }
            FaultKind::SlowReceiver { percent } => {
                self.put(
                    FabricFaultKind::SlowHost { device: host, percent: percentage(percent)? },
                    into,
                );
            }
            FaultKind::SwitchDown { .. } | FaultKind::SwitchSlow { .. } => {
                return Err(self.misplaced("a switch"));
            }
            ref kind if kind.is_of_a_node() => return self.on_ranks(host, kind, into),
            _ => return Err(self.misplaced("a link")),
        }
        Ok(())
    }

    fn on_ranks(
        &self,
        host: DeviceId,
        kind: &FaultKind,
        into: &mut ResolvedPlan,
    ) -> Result<(), String> {
        if kind.needs_disk() && self.site.disks == Disks::Absent {
            return Err("nodes of this run have no disks; give them some, or leave this fault out"
                .to_owned());
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
            return Err(format!(
                "no rank runs on {}; name a host that has one",
                self.site.graph.name(host)
            ));
        }
        Ok(())
    }
}

impl FaultKind {
    /// Returns whether it befalls ranks, not the fabric.
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
        matches!(
            self,
            Self::DiskSlow { .. } | Self::DiskFails | Self::DiskFull | Self::DiskTorn { .. }
        )
    }
}

/// Refuses odds that never strike, and more than certainty.
fn check_odds(odds: FaultOdds) -> Result<(), String> {
    let millionths = match odds {
        FaultOdds::Nth(0) => {
            return Err("packets are numbered from 1; `nth = 0` is none of them".to_owned());
        }
        FaultOdds::Nth(_) => return Ok(()),
        FaultOdds::Each(each) => vec![("each", each, 1)],
        FaultOdds::Bursts { begin, end, inside } => {
            vec![("begin", begin, 1), ("end", end, 0), ("inside", inside, 1)]
        }
    };
    match millionths.into_iter().find(|(_, odds, least)| !(*least..=MILLION).contains(odds)) {
        Some((key, odds, least)) => {
            Err(format!("{key} = {odds}; odds are millionths, from {least} to {MILLION}"))
        }
        None => Ok(()),
    }
}

fn percentage(percent: u32) -> Result<u32, String> {
    if (1..=100).contains(&percent) {
        return Ok(percent);
    }
    Err(format!("{percent} percent of a rate is not slower; give 1 to 100"))
}
