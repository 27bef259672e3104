//! What goes wrong in a fabric and when: packets harmed on links, links and switches down or slow, lanes stuck, credits lost.
//!
//! # Model
//! Faults are named before anything is posted. Each begins and ends as an event of its own, the last of its instant; what a
//! port is at any time is its specification changed by the faults that are active then. Which packet is struck is a function
//! of the fault, of its key, and of how many packets passed there before: no state is shared with the model's own choices.
//!
//! # Invariants
//! I1. A fabric without faults computes what it would compute without this module.
//! I2. With faults every packet travels alone and every arrival is an event, so that [`super::Options`] still change nothing.
//! I3. A packet that is lost on a cable gives its credit back: the receiver saw that something came.
//!
//! # Not here
//! Names, files and drawing ([`crate::fault`]); what befalls nodes, clocks and disks.

#[cfg(test)]
mod tests;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};

use clearway_proto::base::RandomKey;

use super::parts::{Credit, Message, Packet};
use super::pool::NONE;
use super::{Fabric, Kind, Notice, Reports, Trains};
use crate::arbiter::Arbitration;
use crate::graph::{ChannelId, DeviceId};
use crate::spec::{Arbiter, VIRTUAL_LANES_MAX};
use crate::time::{Pace, Picos};

pub use trouble::{FabricFault, Harm, Odds, Sort, Trouble, WhenDown};

/// What a fault event is about, in the order of the bits of its argument.
const BEGINS: u32 = 0;
const ENDS: u32 = 1;
const NOTICED: u32 = 2;
const FORGOTTEN: u32 = 3;

/// One fault and how far it has come.
#[derive(Debug)]
struct Case {
    fault: FabricFault,
    active: bool,
    /// Routing knows.
    noticed: bool,
    /// Packets that passed.
    passed: u64,
    in_burst: bool,
    key: RandomKey,
    /// Bytes that it took, to be given back.
    taken: u32,
}

/// All faults of a fabric.
#[derive(Debug)]
pub(super) struct Faults {
    cases: Vec<Case>,
    /// How often each fault of the plan did something.
    struck: BTreeMap<u32, u64>,
    /// As specified, by port: pace and delay.
    sound: Vec<(Pace, u64)>,
    /// The sound tables and arbiters of channels that have, or had, wrong ones.
    tables: BTreeMap<u32, u8>,
    arbiters: BTreeMap<u32, Arbitration>,
    /// Channels on which everything is lost now.
    dark: Vec<bool>,
    /// Devices that are dead now.
    dead: Vec<bool>,
    /// In percent of the link's rate, by host.
    slow: BTreeMap<u32, u32>,
    /// Packets under way that will not arrive.
    doomed: BTreeSet<u32>,
    /// Arrivals to come on channels where packets are late, so that no two are at once.
    arrivals: BTreeMap<u32, BTreeSet<u64>>,
    /// Credits that a lane owes to a fault, by lane.
    owed: BTreeMap<u32, u32>,
    /// Multicasts that arrive damaged: message and host.
    spoilt: BTreeSet<(u32, u32)>,
}

impl Fabric {
    /// Lets `faults` happen. `key` decides which packets are struck. No faults, no change.
    ///
    /// # Panics
    /// When something was posted before, faults were named before, or one of them names what is not there: mistakes of the
    /// caller.
    pub fn afflict(&mut self, faults: Vec<FabricFault>, key: RandomKey) {
        if faults.is_empty() {
            return;
        }
        assert!(
            self.now == 0 && self.events.next_at().is_none() && self.faults.is_none(),
            "faults come first, and once"
        );
        self.options.trains = Trains::Off;
        for (number, fault) in (0u32..).zip(&faults) {
            self.schedule(fault.at.0, Kind::Fault, number, BEGINS);
            self.schedule(fault.until.0, Kind::Fault, number, ENDS);
            if let Trouble::Down { notice_after, .. } | Trouble::Dead { notice_after, .. } = fault.what
                && fault.at + notice_after < fault.until
            {
                self.schedule((fault.at + notice_after).0, Kind::Fault, number, NOTICED);
                self.schedule((fault.until + notice_after).0, Kind::Fault, number, FORGOTTEN);
            }
        }
        let (ports, devices) = (self.ports.len(), self.network.graph.devices() as usize);
        let case = |(number, fault): (u64, FabricFault)| Case {
            active: false,
            noticed: false,
            passed: 0,
            in_burst: false,
            key: key.node(u64::from(fault.plan)).node(number),
            taken: 0,
            fault,
        };
        self.faults = Some(Box::new(Faults {
            cases: (0u64..).zip(faults).map(case).collect(),
            struck: BTreeMap::new(),
            sound: self.ports.iter().map(|port| (port.pace, port.delay)).collect(),
            tables: BTreeMap::new(),
            arbiters: BTreeMap::new(),
            dark: vec![false; ports],
            dead: vec![false; devices],
            slow: BTreeMap::new(),
            doomed: BTreeSet::new(),
            arrivals: BTreeMap::new(),
            owed: BTreeMap::new(),
            spoilt: BTreeSet::new(),
        }));
    }

    /// How often the fault with the caller's number `plan` did something.
    pub fn strikes(&self, plan: u32) -> u64 {
        self.faults.as_ref().and_then(|faults| faults.struck.get(&plan).copied()).unwrap_or(0)
    }

    /// A fault begins, ends, or becomes known.
    pub(super) fn fault_event(&mut self, number: u32, what: u32) {
        let Some(mut faults) = self.faults.take() else { return };
        let case = &mut faults.cases[number as usize];
        match what {
            BEGINS | ENDS => case.active = what == BEGINS,
            _ => case.noticed = what == NOTICED,
        }
        let (trouble, plan) = (case.fault.what.clone(), case.fault.plan);
        if what == BEGINS && !matches!(trouble, Trouble::Packets { .. }) {
            *faults.struck.entry(plan).or_default() += 1;
        }
        self.faults = Some(faults);
        match trouble {
            Trouble::Packets { .. } => {}
            Trouble::LostCredit { channel, lane, bytes } => self.steal(number, channel.0, lane, bytes, what),
            Trouble::WrongLane { channel, .. } => self.relabel(channel.0),
            Trouble::WrongArbitration { channel, .. } => self.misrule(channel.0),
            Trouble::SlowHost { .. } => self.derive_devices(),
            Trouble::Down { channel, .. } | Trouble::Degraded { channel, .. } | Trouble::StuckLane { channel, .. } => {
                self.derive(channel.0);
            }
            Trouble::Dead { device, .. } => {
                self.derive_devices();
                if what == BEGINS {
                    self.sweep(device);
                }
                self.ports_into(device).for_each(|port| self.derive(port));
            }
        }
    }

    /// The channels that lead to `device`.
    fn ports_into(&self, device: DeviceId) -> impl Iterator<Item = u32> + use<> {
        let graph = &self.network.graph;
        let into: Vec<u32> = graph.ports(device).map(|port| graph.channel(ChannelId(port)).reverse.0).collect();
        into.into_iter()
    }

    /// Sets what `port` is now: its specification changed by every active fault.
    fn derive(&mut self, port: u32) {
        let Some(faults) = self.faults.as_mut() else { return };
        let (mut pace, mut delay) = faults.sound[port as usize];
        let (mut up, mut avoided, mut dark, mut stuck) = (true, false, false, 0u32);
        let to = DeviceId(self.ports[port as usize].to);
        for case in &faults.cases {
            match case.fault.what {
                Trouble::Down { channel, packets, .. } if channel.0 == port => {
                    avoided |= case.noticed;
                    up &= !(case.active && packets == WhenDown::Kept);
                    dark |= case.active && packets == WhenDown::Lost;
                }
                Trouble::Dead { device, .. } if device == to => {
                    avoided |= case.noticed;
                    dark |= case.active;
                }
                Trouble::Degraded { channel, percent, latency } if channel.0 == port && case.active => {
                    pace = pace.slowed_to(percent);
                    delay += latency.0;
                }
                Trouble::StuckLane { channel, lane } if channel.0 == port && case.active => stuck |= 1 << lane,
                _ => {}
            }
        }
        faults.dark[port as usize] = dark;
        let it = &mut self.ports[port as usize];
        (it.pace, it.delay, it.up, it.avoided) = (pace, delay, up, avoided);
        let first = it.first_lane;
        for lane in 0..self.lanes_per_port {
            self.lanes[(first + lane) as usize].stuck = stuck & 1 << (lane / u32::from(self.steps)) != 0;
        }
        self.touch(port);
    }

    /// Credits of a lane disappear, and come back when the fault ends.
    fn steal(&mut self, number: u32, channel: u32, lane: u8, bytes: u32, what: u32) {
        let lane = self.ports[channel as usize].first_lane + u32::from(lane * self.steps);
        self.absorb(lane);
        let Some(faults) = self.faults.as_mut() else { return };
        let case = &mut faults.cases[number as usize];
        let it = &mut self.lanes[lane as usize];
        if what == BEGINS {
            let now = bytes.min(it.free);
            it.free -= now;
            case.taken = bytes;
            *faults.owed.entry(lane).or_default() += bytes - now;
        } else {
            let owed = faults.owed.entry(lane).or_default();
            let never_taken = case.taken.min(*owed);
            *owed -= never_taken;
            it.free += std::mem::take(&mut case.taken) - never_taken;
        }
        self.touch(channel);
    }

    /// What of a credit of `bytes` for `lane` arrives.
    pub(super) fn after_theft(&mut self, lane: u32, bytes: u32) -> u32 {
        let owed = self.faults.as_mut().and_then(|faults| faults.owed.get_mut(&lane));
        let Some(owed) = owed else { return bytes };
        let stolen = bytes.min(*owed);
        *owed -= stolen;
        bytes - stolen
    }

    /// Sets the table of lanes of `channel` as the active faults have it.
    fn relabel(&mut self, channel: u32) {
        let Some(faults) = self.faults.as_mut() else { return };
        let slot = &mut self.table_of_port[channel as usize];
        let sound = *faults.tables.entry(channel).or_insert(*slot);
        let mut table = self.tables[usize::from(sound)];
        for case in faults.cases.iter().filter(|case| case.active) {
            if let Trouble::WrongLane { channel: at, level, lane } = case.fault.what
                && at.0 == channel
            {
                table[usize::from(level & 15)] = lane;
            }
        }
        let known = self.tables.iter().position(|known| *known == table);
        *slot = known.unwrap_or(self.tables.len()) as u8;
        if known.is_none() {
            self.tables.push(table);
        }
    }

    /// Gives `channel` the arbiter that the active faults let it have.
    fn misrule(&mut self, channel: u32) {
        let Some(faults) = self.faults.as_mut() else { return };
        let slot = &mut self.arbiters[channel as usize];
        let wrong = faults.cases.iter().filter(|case| case.active).find_map(|case| match case.fault.what {
            Trouble::WrongArbitration { channel: at, first } if at.0 == channel => Some(first),
            _ => None,
        });
        match wrong {
            Some(first) => {
                let mut rank = [1; VIRTUAL_LANES_MAX];
                rank[usize::from(first)] = 0;
                let wrong = Arbitration::new(&Arbiter::Strict { rank });
                let sound = std::mem::replace(slot, wrong);
                faults.arbiters.entry(channel).or_insert(sound);
            }
            None => {
                if let Some(sound) = faults.arbiters.remove(&channel) {
                    *slot = sound;
                }
            }
        }
    }

    /// Sets which devices are dead and which hosts are slow now.
    fn derive_devices(&mut self) {
        let Some(faults) = self.faults.as_mut() else { return };
        faults.dead.fill(false);
        faults.slow.clear();
        for case in faults.cases.iter().filter(|case| case.active) {
            match case.fault.what {
                Trouble::Dead { device, .. } => faults.dead[device.index()] = true,
                Trouble::SlowHost { device, percent } => {
                    let slowest = faults.slow.entry(device.0).or_insert(percent);
                    *slowest = percent.min(*slowest);
                }
                _ => {}
            }
        }
    }

    /// What a switch that died now holds is gone. Until it returns nothing that its neighbours send arrives, and their credits
    /// are whole when it does.
    fn sweep(&mut self, device: DeviceId) {
        for port in self.network.graph.ports(device) {
            while self.ports[port as usize].occupied != 0 {
                let lane = self.ports[port as usize].first_lane + self.ports[port as usize].occupied.trailing_zeros();
                let packet = self.queues[self.turn_of(lane)].head;
                self.unqueue(port, lane);
                self.watch_departure(port, packet);
                self.discard_whole(packet);
            }
        }
    }

    /// A packet in a dead switch is gone, with the copies it would have left with.
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

    /// Whether `packet`, about to queue, is in a switch that died; it is gone then.
    pub(super) fn is_swept(&mut self, packet: u32) -> bool {
        let Some(faults) = self.faults.as_ref() else { return false };
        let here = self.network.graph.channels()[self.packets[packet].out as usize].from;
        if !faults.dead[here.index()] {
            return false;
        }
        self.discard_whole(packet);
        true
    }

    /// How long `packet`, whose head is here, must wait so that `out` does not overtake its tail, whatever the rates of channels
    /// have become since it was sent and will be when it leaves.
    pub(super) fn wait_for_tail(&self, packet: u32, out: u32) -> u64 {
        let Packet { in_channel, bytes, tail_at, .. } = self.packets[packet];
        match &self.faults {
            None => self.deferral(in_channel, out, bytes),
            Some(faults) => tail_at.saturating_sub(self.now + faults.sound[out as usize].0.time(bytes).0),
        }
    }

    /// The time that the host behind `port` takes to place `bytes`.
    pub(super) fn placing_time(&self, port: u32, bytes: u32) -> u64 {
        let sound = self.constants.memory.time(bytes).0;
        let host = self.ports[port as usize].to;
        match self.faults.as_ref().and_then(|faults| faults.slow.get(&host)) {
            None => sound,
            Some(percent) => sound.max(self.ports[port as usize].pace.slowed_to(*percent).time(bytes).0),
        }
    }

    /// Puts `packet` on the wire of `port`, where something may befall it; its arrival is due at `arrival`.
    pub(super) fn send_at_risk(&mut self, port: u32, lane: u32, packet: u32, arrival: u64) {
        let Some(mut faults) = self.faults.take() else { return };
        let (mut doomed, mut late, mut doubled, mut damaged) = (faults.dark[port as usize], 0, false, false);
        let message = &self.messages[self.packets[packet].message];
        let (own_level, cast) = (message.level, message.target == NONE);
        let mut struck = Vec::new();
        for case in &mut faults.cases {
            let Trouble::Packets { channel, harm, odds, level, sort } = case.fault.what else { continue };
            let meant = match sort {
                Sort::Any => true,
                Sort::Unicast => !cast,
                Sort::Multicast => cast,
            };
            let meant = meant && level.is_none_or(|level| level == own_level);
            if !case.active || channel.0 != port || !meant || !case.strikes(odds) {
                continue;
            }
            struck.push(case.fault.plan);
            match harm {
                Harm::Lost => doomed = true,
                Harm::Damaged => damaged = true,
                Harm::Doubled => doubled = true,
                Harm::Late(most) => {
                    late += 1 + case.key.node(case.passed).purpose("late").stream().below(most.0.max(1))
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
        self.schedule(arrival, Kind::Arrive, port, packet);
        if damaged && !doomed {
            self.damage(port, packet);
        }
        if doubled && !doomed {
            self.double(port, lane, packet, arrival);
        }
    }

    /// Whoever gets `packet` by way of `port` gets it damaged.
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

    /// Whether the multicast `message` reaches `host` damaged.
    pub(super) fn is_spoilt(&mut self, message: u32, host: u32) -> bool {
        self.faults.as_mut().is_some_and(|faults| faults.spoilt.remove(&(message, host)))
    }

    /// A second copy of `packet` follows on `port`, if there is room for it. It lives as a message of its own, with the same
    /// tag.
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
        let message = self.messages.put(Message { reports: Reports::Delivery, sent_at: u64::MAX, next: NONE, ..it });
        let tail_at = self.packets[packet].tail_at + serial;
        let copy = self.packets.put(Packet { message, tail_at, ..self.packets[packet] });
        self.notices.push(Notice::Doubled { tag: it.tag, to: DeviceId(target), at: Picos(self.now) });
        if let Some(faults) = self.faults.as_mut() {
            let arrival = faults.alone(port, self.now, arrival + serial);
            self.schedule(arrival, Kind::Arrive, port, copy);
        }
    }

    /// Whether `packet`, which comes in on `channel`, gets no further. It is gone then, and its credit on the way back.
    pub(super) fn is_stopped(&mut self, channel: u32, packet: u32) -> bool {
        let Some(faults) = self.faults.as_mut() else { return false };
        let to = self.ports[channel as usize].to;
        let stopped = faults.doomed.remove(&packet) || faults.dark[channel as usize] || faults.dead[to as usize];
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
            self.give_credit(channel, lane, Credit { at, gap: 0, bytes, left: 1, next: NONE });
        }
        self.packets[packet].out = channel;
        self.lose(packet);
        true
    }
}

impl Case {
    /// Whether the next packet is struck.
    fn strikes(&mut self, odds: Odds) -> bool {
        self.passed += 1;
        let mut stream = self.key.node(self.passed).stream();
        let mut with = |millionths: u32| stream.below(1_000_000) < u64::from(millionths);
        match odds {
            Odds::Each(millionths) => with(millionths),
            Odds::Nth(n) => self.passed == n,
            Odds::Bursts { begin, end, inside } => {
                let changes = with(if self.in_burst { end } else { begin });
                self.in_burst ^= changes;
                self.in_burst && with(inside)
            }
        }
    }
}

impl Faults {
    /// The first instant from `arrival` on at which nothing else arrives on `port`; taken from now on.
    fn alone(&mut self, port: u32, now: u64, mut arrival: u64) -> u64 {
        let taken = self.arrivals.entry(port).or_default();
        *taken = taken.split_off(&now);
        while !taken.insert(arrival) {
            arrival += 1;
        }
        arrival
    }
}
