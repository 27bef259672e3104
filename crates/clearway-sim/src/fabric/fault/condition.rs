//! What a port, a lane, an arbiter or a device is at any time: its specification, changed by the
//! faults active then.
//!
//! # Model
//! Nothing is undone when a fault ends. The state that it changed is set afresh from what is sound
//! and from all faults that are still active, so faults may overlap and end in any order. Credits
//! are the exception: bytes are taken, and given back.
//!
//! # Invariants
//! I1. When no fault is active, everything is as specified.
//! I2. A lane gives a fault no more credits than it has; what is missing is taken from those that come
//!     back.

use super::{BEGINS, DownPolicy, FabricFaultKind};
use crate::arbiter::ArbiterState;
use crate::fabric::Fabric;
use crate::fabric::parts::Packet;
use crate::graph::{ChannelId, DeviceId};
use crate::spec::{Arbiter, VIRTUAL_LANES_MAX};

impl Fabric {
    /// Returns the channels that lead to `device`.
    pub(super) fn ports_into(&self, device: DeviceId) -> impl Iterator<Item = u32> + use<> {
        let graph = &self.network.graph;
        let into: Vec<u32> =
            graph.ports(device).map(|port| graph.channel(ChannelId(port)).reverse.0).collect();
        into.into_iter()
    }

    /// Sets what `port` is now: its specification changed by every active fault.
    pub(super) fn derive(&mut self, port: u32) {
        let Some(faults) = self.faults.as_mut() else { return };
        let (mut pace, mut delay) = faults.sound[port as usize];
        let (mut up, mut avoided, mut dark, mut stuck) = (true, false, false, 0u32);
        let to = DeviceId(self.ports[port as usize].to);
        for case in &faults.cases {
            match case.fault.what {
                FabricFaultKind::Down { channel, packets, .. } if channel.0 == port => {
                    avoided |= case.noticed;
                    up &= !(case.active && packets == DownPolicy::Kept);
                    dark |= case.active && packets == DownPolicy::Lost;
                }
                FabricFaultKind::Dead { device, .. } if device == to => {
                    avoided |= case.noticed;
                    dark |= case.active;
                }
                FabricFaultKind::Degraded { channel, percent, latency }
                    if channel.0 == port && case.active =>
                {
                    pace = pace.slowed_to(percent);
                    delay += latency.0;
                }
                FabricFaultKind::StuckLane { channel, lane }
                    if channel.0 == port && case.active =>
                {
                    stuck |= 1 << lane
                }
                _ => {}
            }
        }
        faults.dark[port as usize] = dark;
        let it = &mut self.ports[port as usize];
        (it.pace, it.delay, it.up, it.avoided) = (pace, delay, up, avoided);
        let first = it.first_lane;
        for lane in 0..self.lanes_per_port {
            self.lanes[(first + lane) as usize].stuck =
                stuck & 1 << (lane / u32::from(self.steps)) != 0;
        }
        self.touch(port);
    }

    /// Credits of a lane disappear, and come back when the fault ends.
    pub(super) fn steal(&mut self, number: u32, channel: u32, lane: u8, bytes: u32, what: u32) {
        let lane = self.ports[channel as usize].first_lane + u32::from(lane * self.steps);
        self.absorb(lane);
        let Some(faults) = self.faults.as_mut() else { return };
        let case = &mut faults.cases[number as usize];
        let it = &mut self.lanes[lane as usize];
        if what == BEGINS {
            let now = bytes.min(it.free);
            it.free -= now;
            case.taken = bytes;
            *faults.debt.entry(lane).or_default() += bytes - now;
        } else {
            let debt = faults.debt.entry(lane).or_default();
            let never_taken = case.taken.min(*debt);
            *debt -= never_taken;
            it.free += std::mem::take(&mut case.taken) - never_taken;
        }
        self.touch(channel);
    }

    /// Returns what of a credit of `bytes` for `lane` arrives.
    pub(in crate::fabric) fn after_theft(&mut self, lane: u32, bytes: u32) -> u32 {
        let debt = self.faults.as_mut().and_then(|faults| faults.debt.get_mut(&lane));
        let Some(debt) = debt else { return bytes };
        let stolen = bytes.min(*debt);
        *debt -= stolen;
        bytes - stolen
    }

    /// Sets the table of lanes of `channel` as the active faults have it.
    pub(super) fn relabel(&mut self, channel: u32) {
        let Some(faults) = self.faults.as_mut() else { return };
        let slot = &mut self.table_of_port[channel as usize];
        let sound = *faults.tables.entry(channel).or_insert(*slot);
        let mut table = self.tables[usize::from(sound)];
        for case in faults.cases.iter().filter(|case| case.active) {
            if let FabricFaultKind::WrongLane { channel: at, level, lane } = case.fault.what
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
    pub(super) fn misrule(&mut self, channel: u32) {
        let Some(faults) = self.faults.as_mut() else { return };
        let slot = &mut self.ports[channel as usize].arbiter;
        let wrong =
            faults.cases.iter().filter(|case| case.active).find_map(|case| match case.fault.what {
                FabricFaultKind::WrongArbitration { channel: at, first } if at.0 == channel => {
                    Some(first)
                }
                _ => None,
            });
        match wrong {
            Some(first) => {
                let mut rank = [1; VIRTUAL_LANES_MAX];
                rank[usize::from(first)] = 0;
                let wrong = ArbiterState::new(&Arbiter::Strict { rank });
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
    pub(super) fn derive_devices(&mut self) {
        let Some(faults) = self.faults.as_mut() else { return };
        faults.dead.fill(false);
        faults.slow.clear();
        for case in faults.cases.iter().filter(|case| case.active) {
            match case.fault.what {
                FabricFaultKind::Dead { device, .. } => faults.dead[device.index()] = true,
                FabricFaultKind::SlowHost { device, percent } => {
                    let slowest = faults.slow.entry(device.0).or_insert(percent);
                    *slowest = percent.min(*slowest);
                }
                _ => {}
            }
        }
    }

    /// Returns how long `packet`, whose head is here, must wait so that `out` does not overtake its
    /// tail, whatever the rates of channels have become since it was sent and will be when it
    /// leaves.
    #[inline(always)]
    pub(in crate::fabric) fn wait_for_tail(&self, packet: u32, out: u32) -> u64 {
        let Packet { in_channel, bytes, tail_at, .. } = self.packets[packet];
        match &self.faults {
            None => self.deferral(in_channel, out, bytes),
            Some(faults) => {
                tail_at.saturating_sub(self.now + faults.sound[out as usize].0.time(bytes).0)
            }
        }
    }

    /// Returns the time that the host behind `port` takes to place `bytes`.
    pub(in crate::fabric) fn placing_time(&self, port: u32, bytes: u32) -> u64 {
        let sound = self.constants.memory.time(bytes).0;
        let host = self.ports[port as usize].to;
        match self.faults.as_ref().and_then(|faults| faults.slow.get(&host)) {
            None => sound,
            Some(percent) => {
                sound.max(self.ports[port as usize].pace.slowed_to(*percent).time(bytes).0)
            }
        }
    }
}
