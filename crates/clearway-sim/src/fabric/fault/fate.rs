//! What befalls single packets: lost, damaged, doubled or late on a cable, or gone with the switch
//! that held them.
//!
//! # Model
//! Which packet is struck is a function of the fault, of its key, and of how many packets passed
//! there before: no state is shared with the model's own choices.
//!
//! # Invariants
//! I1. No two packets arrive on a channel in one instant, however late some of them are.
//! I2. A second copy is sent only where the buffer ahead has room for it, and takes its own time on
//!     the cable.
//! I3. A packet that is lost on a cable gives its credit back: the receiver saw that something
//!     came.

use super::{ActiveFault, ActiveFaults, FabricFaultKind, FaultOdds, PacketFault, PacketSort};
use crate::fabric::parts::{CreditReturn, Message, Packet};
use crate::fabric::pool::NONE;
use crate::fabric::{Fabric, FabricEventKind, Notice, NoticeSet};
use crate::graph::DeviceId;
use crate::time::Picos;

impl Fabric {
    /// Sweeps away what a switch that died now holds. Until it returns nothing that its neighbours
    /// send arrives, and their credits are whole when it does.
    pub(super) fn sweep(&mut self, device: DeviceId) {
        for port in self.network.graph.ports(device) {
            while self.ports[port as usize].occupied != 0 {
                let lane = self.ports[port as usize].first_lane
                    + self.ports[port as usize].occupied.trailing_zeros();
                let packet = self.queues[self.turn_of(lane)].head;
                self.unqueue(port, lane);
                self.watch_departure(port, packet);
                self.discard_whole(packet);
            }
        }
    }

    /// Discards a packet in a dead switch, with the copies it would have left with.
    fn discard_whole(&mut self, packet: u32) {
        let number = self.packets[packet].hold;
        if number == NONE {
            return self.discard(packet);
        }
        for copy in self.break_hold(number) {
            self.packets[copy].hold = NONE;
            self.discard(copy);
        }
    }

    /// Returns whether `packet`, about to queue, is in a switch that died; it is gone then.
    pub(in crate::fabric) fn is_swept(&mut self, packet: u32) -> bool {
        let Some(faults) = self.faults.as_ref() else { return false };
        let here = self.network.graph.channels()[self.packets[packet].out as usize].from;
        if !faults.dead[here.index()] {
            return false;
        }
        self.discard_whole(packet);
        true
    }

    /// Puts `packet` on the wire of `port`, where something may befall it; its arrival is due at
    /// `arrival`.
    pub(in crate::fabric) fn send_at_risk(
        &mut self,
        port: u32,
        lane: u32,
        packet: u32,
        arrival: u64,
    ) {
        let Some(mut faults) = self.faults.take() else { return };
        let (mut doomed, mut late, mut doubled, mut damaged) =
            (faults.dark[port as usize], 0, false, false);
        let message = &self.messages[self.packets[packet].message];
        let (own_level, cast) = (message.level, message.target == NONE);
        let mut struck = Vec::new();
        let ActiveFaults { cases, risks, .. } = &mut *faults;
        for number in risks.get(&port).into_iter().flatten() {
            let case = &mut cases[*number as usize];
            let FabricFaultKind::Packets { harm, odds, level, sort, .. } = case.fault.what else {
                continue;
            };
            let meant = match sort {
                PacketSort::Any => true,
                PacketSort::Unicast => !cast,
                PacketSort::Multicast => cast,
            };
            let meant = meant && level.is_none_or(|level| level == own_level);
            if !case.active || !meant || !case.strikes(odds) {
                continue;
            }
            struck.push(case.fault.plan);
            match harm {
                PacketFault::Lost => doomed = true,
                PacketFault::Damaged => damaged = true,
                PacketFault::Doubled => doubled = true,
                PacketFault::Late(most) => {
                    late +=
                        1 + case.key.node(case.passed).purpose("late").stream().below(most.0.max(1))
                }
            }
        }
        struck.into_iter().for_each(|plan| *faults.struck.entry(plan).or_default() += 1);
        let arrival = faults.alone(port, self.now, arrival + late);
        if doomed {
            faults.doomed.insert(packet);
        }
        self.faults = Some(faults);
        self.packets[packet].tail_at += late;
        self.schedule(arrival, FabricEventKind::Arrive, port, packet);
        if damaged && !doomed {
            self.damage(port, packet);
        }
        if doubled && !doomed {
            self.double(port, lane, packet, arrival);
        }
    }

    /// Damages `packet` for all that get it by way of `port`.
    fn damage(&mut self, port: u32, packet: u32) {
        let Packet { message, target, .. } = self.packets[packet];
        if target != NONE {
            self.messages[message].corrupt = true;
            return;
        }
        let members = self.members_behind(message, port);
        if let Some(faults) = self.faults.as_mut() {
            faults.spoilt.extend(members.into_iter().map(|member| (message, member)));
        }
    }

    /// Returns whether the multicast `message` reaches `host` damaged.
    pub(in crate::fabric) fn is_spoilt(&mut self, message: u32, host: u32) -> bool {
        self.faults.as_mut().is_some_and(|faults| faults.spoilt.remove(&(message, host)))
    }

    /// Sends a second copy of `packet` behind it on `port`, if there is room for it. It lives as a
    /// message of its own, with the same tag.
    fn double(&mut self, port: u32, lane: u32, packet: u32, arrival: u64) {
        let Packet { message, bytes, target, .. } = self.packets[packet];
        let it = self.messages[message];
        self.absorb(lane);
        let room = !self.lanes[lane as usize].credited || self.lanes[lane as usize].free >= bytes;
        if it.packets != 1 || target == NONE || !room {
            return;
        }
        let serial = self.ports[port as usize].pace.time(bytes).0;
        self.ports[port as usize].busy_until += serial;
        if self.lanes[lane as usize].credited {
            self.lanes[lane as usize].free -= bytes;
        }
        self.statistics.sent(lane, bytes, 1);
        self.connections[it.connection].alive += 1;
        self.connections[it.connection].in_network += 1;
        let message = self.messages.put(Message {
            reports: NoticeSet::Delivery,
            sent_at: u64::MAX,
            next: NONE,
            ..it
        });
        let tail_at = self.packets[packet].tail_at + serial;
        let copy = self.packets.put(Packet { message, tail_at, ..self.packets[packet] });
        self.notices.push(Notice::Doubled {
            tag: it.tag,
            to: DeviceId(target),
            at: Picos(self.now),
        });
        if let Some(faults) = self.faults.as_mut() {
            let arrival = faults.alone(port, self.now, arrival + serial);
            self.schedule(arrival, FabricEventKind::Arrive, port, copy);
        }
    }

    /// Returns whether `packet`, which comes in on `channel`, gets no further. It is gone then, and
    /// its credit on the way back.
    pub(in crate::fabric) fn is_stopped(&mut self, channel: u32, packet: u32) -> bool {
        let Some(faults) = self.faults.as_mut() else { return false };
        let to = self.ports[channel as usize].to;
        let stopped = faults.doomed.remove(&packet)
            || faults.dark[channel as usize]
            || faults.dead[to as usize];
        if !stopped {
            if self.ports[channel as usize].to_host {
                self.account_delivery(channel, packet);
            }
            return false;
        }
        let Packet { bytes, in_lane, .. } = self.packets[packet];
        let lane = self.ports[channel as usize].first_lane + u32::from(in_lane);
        if self.lanes[lane as usize].credited {
            let at = self.now + self.ports[channel as usize].back;
            self.give_credit(
                channel,
                lane,
                CreditReturn { at, gap: 0, bytes, left: 1, next: NONE },
            );
        }
        self.packets[packet].out = channel;
        self.lose(packet);
        true
    }
}

impl ActiveFault {
    /// Returns whether the next packet is struck.
    fn strikes(&mut self, odds: FaultOdds) -> bool {
        self.passed += 1;
        let mut stream = self.key.node(self.passed).stream();
        let mut with = |millionths: u32| stream.below(1_000_000) < u64::from(millionths);
        match odds {
            FaultOdds::Each(millionths) => with(millionths),
            FaultOdds::Nth(n) => self.passed == n,
            FaultOdds::Bursts { begin, end, inside } => {
                let changes = with(if self.in_burst { end } else { begin });
                self.in_burst ^= changes;
                self.in_burst && with(inside)
            }
        }
    }
}

impl ActiveFaults {
    /// Returns the first instant from `arrival` on at which nothing else arrives on `port`; taken
    /// from now on.
    fn alone(&mut self, port: u32, now: u64, mut arrival: u64) -> u64 {
        let taken = self.arrivals.entry(port).or_default();
        *taken = taken.split_off(&now);
        while !taken.insert(arrival) {
            arrival += 1;
        }
        arrival
    }
}
