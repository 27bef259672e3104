//! Draws a plan: each run enables a random part of all faults, with random targets, times and
//! intensities.
//!
//! # Model
//! Swarm testing: a run with everything at once hides what a run with a few faults shows, so which
//! kinds are possible at all is drawn first.
//!
//! # Source
//! Groce, Zhang, Eide, Chen, Regehr, "Swarm testing" (ISSTA 2012).
//!
//! # Invariants
//! I1. A drawn plan can be resolved at the same site, and is over at the end of the window.

use clearway_proto::base::{Class, RandomKey, RandomStream};

use super::plan::{Fault, FaultDurations, FaultKind, FaultPlan, PacketMatch, Side};
use super::resolve::FaultSite;
use crate::fabric::{DownPolicy, FaultOdds, PacketSort};
use crate::graph::{ChannelId, DeviceId};
use crate::time::Picos;
use crate::wire::Completion;

/// Kinds of fault that can be drawn.
const KINDS: u64 = 32;
/// One in this many kinds is possible in a run: five on average, so that pairs of them meet.
const ENABLED_ONE_IN: u64 = 6;

/// Returns a plan for `site` whose faults lie between `from` and `until`.
pub fn draw(key: RandomKey, site: &FaultSite<'_>, from: Picos, until: Picos) -> FaultPlan {
    let mut drawing = FaultDraw { stream: key.purpose("faults").stream(), site, from, until };
    let mut faults = Vec::new();
    for kind in 0..KINDS {
        if drawing.stream.below(ENABLED_ONE_IN) != 0 {
            continue;
        }
        for _ in 0..=drawing.stream.below(2) {
            let fault = drawing.fault(kind);
            // A kind that does not fit this network is left out: no disks, no pauses, no switch.
            if FaultPlan::new(vec![fault.clone()]).resolve(site).is_ok() {
                faults.push(fault);
            }
        }
    }
    FaultPlan::new(faults)
}

struct FaultDraw<'a> {
    stream: RandomStream,
    site: &'a FaultSite<'a>,
    from: Picos,
    until: Picos,
}

impl FaultDraw<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.stream.below(bound)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Draws something between `least` and a thousand times as much; small values are as likely as
    /// large ones.
    fn time(&mut self, least: Picos) -> Picos {
        Picos(least.0 << self.below(10)) + Picos(self.below(least.0.max(1)))
    }

    fn fault(&mut self, kind: u64) -> Fault {
        let window = (self.until - self.from).0;
        let at = self.from + Picos(self.below(window));
        let length = 1 + self.below((self.until - at).0);
        let kind = self.kind(kind);
        let target = self.target(&kind);
        Fault { at, until: at + Picos(length), target, kind }
    }

    fn target(&mut self, kind: &FaultKind) -> String {
        let graph = self.site.graph;
        let channels = graph.channels().len() as u64;
        let switches = u64::from(graph.devices() - graph.hosts()).max(1);
        match kind {
            FaultKind::Loss(_)
            | FaultKind::CaughtCorruption(_)
            | FaultKind::Corruption(_)
            | FaultKind::Duplication(_)
            | FaultKind::Reordering { .. }
            | FaultKind::LinkDown { .. }
            | FaultKind::LinkFlapping { .. }
            | FaultKind::LinkDegraded { .. }
            | FaultKind::LostCredit { .. }
            | FaultKind::StuckLane { .. }
            | FaultKind::WrongLane { .. }
            | FaultKind::WrongArbitration { .. } => {
                // Half of them at a host with a rank, where something passes for certain.
                let busy = !self.site.hosts.is_empty() && self.below(2) == 0;
                let id = if busy {
                    graph.ports(self.one_of(self.site.hosts)).start
                } else {
                    self.below(channels) as u32
                };
                let mut channel = *graph.channel(ChannelId(id));
                if self.below(2) == 0 {
                    channel = *graph.channel(channel.reverse);
                }
                let word = self.one_of(&["->", "--"]);
                format!("{} {word} {}", graph.name(channel.from), graph.name(channel.to))
            }
            FaultKind::SwitchDown { .. } | FaultKind::SwitchSlow { .. } => {
                graph.name(DeviceId(graph.hosts() + self.below(switches) as u32)).to_owned()
            }
            FaultKind::Paused if self.below(4) == 0 => "*".to_owned(),
            _ if self.site.hosts.is_empty() => {
                graph.name(DeviceId(self.below(u64::from(graph.hosts())) as u32)).to_owned()
            }
            _ => graph.name(self.one_of(self.site.hosts)).to_owned(),
        }
    }

    fn struck(&mut self) -> PacketMatch {
        let odds = match self.below(3) {
            0 => FaultOdds::Each(self.one_of(&[1_000, 20_000, 200_000, 1_000_000])),
            1 => FaultOdds::Bursts {
                begin: 20_000,
                end: self.one_of(&[50_000, 300_000]),
                inside: 800_000,
            },
            _ => FaultOdds::Nth(1 + self.below(30)),
        };
        let class = if self.below(3) == 0 { Some(self.class()) } else { None };
        PacketMatch {
            odds,
            class,
            sort: self.one_of(&[
                PacketSort::Any,
                PacketSort::Any,
                PacketSort::Unicast,
                PacketSort::Multicast,
            ]),
        }
    }

    fn class(&mut self) -> Class {
        self.one_of(&Class::ALL)
    }

    fn lane(&mut self) -> u8 {
        self.below(u64::from(self.site.spec.classes.virtual_lanes.max(1))) as u8
    }

    fn kind(&mut self, kind: u64) -> FaultKind {
        match kind {
            0 => FaultKind::Loss(self.struck()),
            1 => FaultKind::CaughtCorruption(self.struck()),
            2 => FaultKind::Corruption(self.struck()),
            3 => FaultKind::Duplication(self.struck()),
            4 => FaultKind::Reordering {
                by: self.time(Picos::from_nanos(50)),
                struck: self.struck(),
            },
            5 => FaultKind::LinkDown {
                packets: self.when_down(),
                notice_after: self.time(Picos::from_nanos(100)),
            },
            6 => {
                let down = self.time(Picos::from_nanos(100));
                let period = down + self.time(Picos::from_nanos(500));
                let (packets, notice_after) = (self.when_down(), self.time(Picos::from_nanos(100)));
                FaultKind::LinkFlapping { down, period, packets, notice_after }
            }
            7 => FaultKind::LinkDegraded {
                percent: self.one_of(&[75, 25, 5]),
                latency: self.time(Picos::from_nanos(10)),
            },
            8 => {
                FaultKind::LostCredit { class: self.class(), bytes: 1 + self.below(20_000) as u32 }
            }
            9 => FaultKind::StuckLane { class: self.class() },
            10 => FaultKind::WrongLane { class: self.class(), lane: self.lane() },
            11 => FaultKind::WrongArbitration { first: self.lane() },
            12 => FaultKind::SwitchDown { notice_after: self.time(Picos::from_nanos(100)) },
            13 => FaultKind::SwitchSlow {
                percent: self.one_of(&[50, 10]),
                latency: self.time(Picos::from_nanos(50)),
            },
            14 => FaultKind::InterfaceDead {
                side: self.one_of(&[Side::Transmit, Side::Receive, Side::Both]),
            },
            15 => {
                let late = Completion::Late(self.time(Picos::from_nanos(500)));
                FaultKind::Completions {
                    end: self.one_of(&[Completion::Error, late, Completion::Never]),
                }
            }
            16 => FaultKind::PauseStorm { class: self.class() },
            17 => FaultKind::SlowReceiver { percent: self.one_of(&[50, 10, 1]) },
            18 => FaultKind::Crash,
            19 => FaultKind::Paused,
            20 => {
                let lengths = self.one_of(&[FaultDurations::Equal, FaultDurations::Exponential]);
                let (every, length) =
                    (self.time(Picos::from_micros(1)), self.time(Picos::from_nanos(20)));
                FaultKind::Interruptions {
                    every,
                    length: Picos(length.0.min(every.0 / 2)),
                    lengths,
                }
            }
            21 => FaultKind::ClockJump { ahead: self.time(Picos::from_micros(1)) },
            22 => {
                FaultKind::ClockDrift { ppm: self.one_of(&[-500_000, -200, 50, 1_000, 1_000_000]) }
            }
            23 => FaultKind::ClockFrozen,
            24 => FaultKind::DiskSlow { by: self.time(Picos::from_micros(1)) },
            25 => FaultKind::DiskFails,
            26 => FaultKind::DiskFull,
            27 => FaultKind::DiskTorn { bytes: self.below(2_000) },
            28 => FaultKind::SendRefused,
            29 => FaultKind::TightQueue { messages: 1 + self.below(3) as u32 },
            30 => FaultKind::SpuriousWake { every: self.time(Picos::from_nanos(100)) },
            _ => FaultKind::LateTimer { by: self.time(Picos::from_micros(1)) },
        }
    }

    fn when_down(&mut self) -> DownPolicy {
        self.one_of(&[DownPolicy::Lost, DownPolicy::Kept])
    }
}
