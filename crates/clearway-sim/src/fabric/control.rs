//! Carries what congestion control says: notices to senders, whose connections then pause in their
//! interface; pauses to the sender of a cable.
//!
//! # Model
//! A connection that may not send yet leaves its ring and comes back when its time has come;
//! messages behind it in the same connection wait with it, other connections do not. Notices travel
//! apart from the data, in a time of their own.
//!
//! # Invariants
//! I1. A connection is in its ring exactly when it has messages and may send.
//! I2. A pause is decided on what lies in a receiver's lane and takes effect after the worst
//!     reaction of the cable.
//!
//! # Not here
//! The rules themselves ([`crate::control`]).

use super::parts::Packet;
use super::pool::NONE;
use super::{Fabric, FabricEventKind};
use crate::control::dcqcn::{self, Notifier, Reaction};
use crate::control::edge::{self, EdgeRules};
use crate::control::pauses::{CableDelay, Ingress, PauseSignal, Thresholds};
use crate::control::throttle::Throttle;
use crate::graph::ChannelId;
use crate::spec::{CongestionControl, Dcqcn, FabricSpec, LossDomain};
use crate::time::{Pace, Picos};

/// What holds a connection back.
#[derive(Clone, Copy, Debug)]
pub(super) enum SendGate {
    /// Nothing.
    Open,
    /// The last switch before its target.
    Throttle(Throttle),
    /// Marks that its packets met.
    Reaction(Reaction, Notifier),
}

/// The congestion control of a fabric.
#[derive(Debug)]
pub(super) enum CongestionState {
    None,
    /// At the last switch before each host: rules and state by channel, where the channel leads to
    /// a host.
    Edge {
        threshold: u64,
        sources: usize,
        notice_delay: u64,
        ports: Vec<Option<Box<edge::EdgePort>>>,
        said: Vec<edge::EdgeNotice>,
    },
    Dcqcn(Dcqcn),
}

/// A notice under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoticeInFlight {
    /// Whose packets it is about.
    pub(super) target: u32,
    /// From the last switch; without it: a packet of this connection was marked.
    edge: Option<edge::EdgeNotice>,
    connection: u32,
}

/// Pauses: thresholds and what lies there, by channel and lane.
#[derive(Debug, Default)]
pub(super) struct PauseState {
    /// By channel: thresholds and the time of a signal.
    cables: Vec<Option<(Thresholds, u64)>>,
    /// By lane.
    ingress: Vec<Ingress>,
}

impl CongestionState {
    pub(super) fn new(spec: &FabricSpec, channels: usize) -> Self {
        match spec.congestion_control {
            CongestionControl::None => Self::None,
            CongestionControl::Edge(rule) => Self::Edge {
                threshold: rule.threshold.0,
                sources: rule.sources as usize,
                notice_delay: rule.notice_delay.0.max(1),
                ports: (0..channels).map(|_| None).collect(),
                said: Vec::new(),
            },
            CongestionControl::Dcqcn(rule) => Self::Dcqcn(rule),
        }
    }
}

impl PauseState {
    pub(super) fn new(spec: &FabricSpec, links: impl Iterator<Item = u8>, lanes: usize) -> Self {
        if !spec.classes.loss.contains(&LossDomain::Pauses) {
            return Self::default();
        }
        let packet = (spec.packet.payload.0 + spec.packet.header.0) as u32;
        let cables = links.map(|link| {
            let link = &spec.links[usize::from(link)];
            let cable = CableDelay { rate: link.rate, delay: link.delay, packet };
            Thresholds::new(link.buffer.0, &cable)
                .map(|thresholds| (thresholds, cable.reaction().0.max(1)))
        });
        Self { cables: cables.collect(), ingress: vec![Ingress::default(); lanes] }
    }

    fn of_channel(&self, channel: u32) -> Option<(Thresholds, u64)> {
        self.cables.get(channel as usize).copied().flatten()
    }
}

impl Fabric {
    /// Watches a packet that begins to wait for `port`: the control of its end hears of it, and
    /// queues that mark mark it.
    #[inline]
    pub(super) fn watch_arrival(&mut self, port: u32, lane: u32, packet: u32) {
        if !matches!(self.control, CongestionState::None) {
            self.judge_arrival(port, lane, packet);
        }
    }

    fn judge_arrival(&mut self, port: u32, lane: u32, packet: u32) {
        let Packet { message, bytes, number, .. } = self.packets[packet];
        let from = self.messages[message].from;
        let now = Picos(self.now);
        match &mut self.control {
            CongestionState::None => {}
            CongestionState::Edge { threshold, sources, notice_delay, ports, said } => {
                let it = &self.ports[port as usize];
                if !it.to_host {
                    return;
                }
                let packet = self.constants.payload + self.constants.header;
                let delay = *notice_delay;
                let rules = EdgeRules {
                    threshold: *threshold,
                    sources: *sources,
                    notice_delay: Picos(delay),
                    pace: it.pace,
                    packet,
                };
                ports[port as usize]
                    .get_or_insert_default()
                    .arrived(&rules, now, from, bytes, said);
                let target = it.to;
                for notice in std::mem::take(said) {
                    let word = self.words.put(NoticeInFlight {
                        target,
                        edge: Some(notice),
                        connection: NONE,
                    });
                    self.schedule(self.now + delay, FabricEventKind::Notice, notice.source, word);
                }
            }
            CongestionState::Dcqcn(rule) => {
                let hash = super::digest::mix(
                    self.messages[message].id ^ u64::from(number) << 44 ^ self.now,
                ) as u32;
                if dcqcn::marks(rule, u64::from(self.lanes[lane as usize].queued), hash) {
                    self.packets[packet].marked = true;
                }
            }
        }
    }

    /// Watches a packet that leaves `port`.
    pub(super) fn watch_departure(&mut self, port: u32, packet: u32) {
        if let CongestionState::Edge { ports, .. } = &mut self.control
            && let Some(watcher) = &mut ports[port as usize]
        {
            let Packet { message, bytes, .. } = self.packets[packet];
            watcher.left(Picos(self.now), self.messages[message].from, bytes);
        }
    }

    /// Handles a marked packet of `message` that is at its host: the sender is notified, but not
    /// too often.
    pub(super) fn marked(&mut self, message: u32) {
        self.messages[message].marked = true;
        let CongestionState::Dcqcn(rule) = &self.control else { return };
        let rule = *rule;
        let (connection, from, target) = {
            let it = &self.messages[message];
            (it.connection, it.from, it.target)
        };
        if target == NONE {
            return;
        }
        let line = self.line_rate(self.messages[message].port);
        let gate = &mut self.connections[connection].gate;
        if let SendGate::Open = gate {
            *gate = SendGate::Reaction(Reaction::new(line), Notifier::default());
        }
        let SendGate::Reaction(_, notifier) = gate else { return };
        if notifier.marked(&rule, Picos(self.now)) {
            let delay = self.acknowledgement_delay(target, from).max(1);
            let word = self.words.put(NoticeInFlight { target, edge: None, connection });
            self.schedule(self.now + delay, FabricEventKind::Notice, from, word);
        }
    }

    fn line_rate(&self, port: u32) -> clearway_proto::base::BitsPerSec {
        self.rates[usize::from(self.network.graph.channel(ChannelId(port)).link)]
    }

    /// Handles a notice that reaches `host`.
    pub(super) fn noticed(&mut self, host: u32, word: u32) {
        let NoticeInFlight { target, edge, connection } = self.words[word];
        self.words.free(word);
        let now = Picos(self.now);
        match (edge, &self.control) {
            (Some(notice), _) => {
                let packet = self.constants.payload + self.constants.header;
                let pace = self.pace_into(target);
                for class in 0..5 {
                    let Some(connection) = self.connection_of[host as usize]
                        .iter()
                        .find(|(k, _)| *k == (target, class))
                        .map(|(_, c)| *c)
                    else {
                        continue;
                    };
                    let it = &mut self.connections[connection];
                    let in_network = u64::from(it.in_network) * u64::from(packet);
                    let mut throttle = if let SendGate::Throttle(throttle) = it.gate {
                        throttle
                    } else {
                        Throttle::OPEN
                    };
                    throttle.handle_notice(now, notice, in_network, pace, packet);
                    it.gate = SendGate::Throttle(throttle);
                    self.hold_back(connection);
                }
            }
            (None, CongestionState::Dcqcn(rule)) => {
                let rule = *rule;
                if let SendGate::Reaction(reaction, _) = &mut self.connections[connection].gate {
                    reaction.notified(&rule, now);
                }
            }
            (None, _) => {}
        }
    }

    /// Returns the pace of the channel that leads to `host`.
    fn pace_into(&self, host: u32) -> Pace {
        let own = self.network.graph.ports(crate::graph::DeviceId(host)).start;
        let back = self.network.graph.channel(ChannelId(own)).reverse;
        self.ports[back.index()].pace
    }

    /// Returns when `connection` may send next; now at the earliest.
    pub(super) fn gate_opens(&mut self, connection: u32) -> u64 {
        let now = Picos(self.now);
        match &mut self.connections[connection].gate {
            SendGate::Open => self.now,
            SendGate::Throttle(throttle) => throttle.ready_at(now).0,
            SendGate::Reaction(reaction, _) => reaction.ready_at(now).0,
        }
    }

    /// Records that a packet of `bytes` of `connection` starts now.
    pub(super) fn pass_gate(&mut self, connection: u32, target: u32, bytes: u32) {
        let now = Picos(self.now);
        if let SendGate::Open = self.connections[connection].gate {
            return;
        }
        // A multicast has no one channel at its end; only marks of other messages can hold it back.
        let pace = if target == NONE { Pace::INSTANT } else { self.pace_into(target) };
        match (&mut self.connections[connection].gate, &self.control) {
            (SendGate::Throttle(throttle), _) => throttle.sent(now, bytes, pace),
            (SendGate::Reaction(reaction, _), CongestionState::Dcqcn(rule)) => {
                reaction.sent(rule, now, bytes)
            }
            _ => {}
        }
    }

    /// Takes `connection` out of its ring if it may not send now.
    fn hold_back(&mut self, connection: u32) {
        let queue = self.connections[connection].queue;
        if queue == NONE || self.queues[queue].lane == NONE {
            return;
        }
        let at = self.gate_opens(connection);
        if at > self.now {
            let lane = self.queues[queue].lane;
            self.withdraw(lane / self.lanes_per_port, lane, queue);
            self.schedule(
                at,
                FabricEventKind::Pace,
                self.messages[self.queues[queue].head].port,
                connection,
            );
        }
    }

    /// Puts `connection`, which wanted to be looked at now, back into its ring if it may send.
    pub(super) fn paced(&mut self, port: u32, connection: u32) {
        let queue = self.connections[connection].queue;
        if queue == NONE || self.queues[queue].lane != NONE {
            return;
        }
        let at = self.gate_opens(connection);
        if at > self.now {
            self.schedule(at, FabricEventKind::Pace, port, connection);
            return;
        }
        let level = self.messages[self.queues[queue].head].level;
        let lane = self.lane_of(port, level, 0);
        self.enter(port, lane, queue);
        self.touch(port);
    }

    /// Puts a packet into the buffer behind `channel`. Returns whether there was room for it.
    pub(super) fn take_place(&mut self, channel: u32, lane: u32, bytes: u32) -> bool {
        let Some((thresholds, delay)) = self.pauses.of_channel(channel) else { return true };
        let limit = thresholds.stop + self.pause_headroom(channel);
        if self.pauses.ingress[lane as usize].queued() + u64::from(bytes) > limit {
            return false;
        }
        if let Some(signal) = self.pauses.ingress[lane as usize].arrived(&thresholds, bytes) {
            self.signal(channel, lane, signal, delay);
        }
        true
    }

    fn pause_headroom(&self, channel: u32) -> u64 {
        let link = usize::from(self.network.graph.channel(ChannelId(channel)).link);
        let thresholds =
            self.pauses.of_channel(channel).map_or(0, |(thresholds, _)| thresholds.stop);
        self.buffers[link].saturating_sub(thresholds)
    }

    /// Records that a packet has left the buffer behind the channel of `lane`.
    pub(super) fn leave_place(&mut self, lane: u32, bytes: u32) {
        let channel = lane / self.lanes_per_port;
        let Some((thresholds, delay)) = self.pauses.of_channel(channel) else { return };
        if let Some(signal) = self.pauses.ingress[lane as usize].left(&thresholds, bytes) {
            self.signal(channel, lane, signal, delay);
        }
    }

    fn signal(&mut self, channel: u32, lane: u32, signal: PauseSignal, delay: u64) {
        let _ = channel;
        let stop = u32::from(signal == PauseSignal::Stop);
        self.schedule(self.now + delay, FabricEventKind::Pause, lane, stop);
    }

    /// Makes the sender of the cable of `lane` heed a signal.
    pub(super) fn pause(&mut self, lane: u32, stop: u32) {
        self.lanes[lane as usize].paused = stop == 1;
        self.touch(lane / self.lanes_per_port);
    }
}
