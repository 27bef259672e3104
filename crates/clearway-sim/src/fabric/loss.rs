//! Packets that do not arrive: dropped by a full queue, or without a way.

use super::Fabric;
use super::parts::{CreditReturn, Packet};
use super::pool::NONE;

impl Fabric {
    /// Returns whether the queue of `lane` has no room for `bytes`.
    pub(super) fn overflows(&self, lane: u32, bytes: u32) -> bool {
        let limit = self.limits[(lane % self.lanes_per_port / u32::from(self.steps)) as usize];
        self.lanes[lane as usize].queued.saturating_add(bytes) > limit
    }

    /// Drops a packet in a switch at its output `port`.
    pub(super) fn drop_at(&mut self, port: u32, packet: u32) {
        self.ports[port as usize].statistics.dropped += u64::from(self.packets[packet].count);
        let it = self.packets[packet];
        if it.share == NONE {
            let lane = self.ports[it.in_channel as usize].first_lane + u32::from(it.in_lane);
            self.advance_after(lane, self.now);
        }
        self.discard(packet);
    }

    /// Drops a packet that found no room in a buffer whose sender was not paused in time.
    pub(super) fn overrun(&mut self, packet: u32) {
        let Packet { in_channel, .. } = self.packets[packet];
        self.ports[in_channel as usize].statistics.dropped += 1;
        self.lose(packet);
    }

    /// Drops a packet in a switch. Its place in the buffer is free again.
    pub(super) fn discard(&mut self, packet: u32) {
        let it = self.packets[packet];
        let Packet { count, bytes, gap, in_channel, in_lane, .. } = it;
        if it.share != NONE {
            self.leave_share(it, self.now);
        } else {
            let input = &self.ports[in_channel as usize];
            let lane = input.first_lane + u32::from(in_lane);
            self.freed(
                in_channel,
                lane,
                CreditReturn { at: self.now + input.back, gap, bytes, left: count, next: NONE },
            );
        }
        self.lose(packet);
    }

    /// Loses a packet that has no place in any buffer.
    pub(super) fn lose(&mut self, packet: u32) {
        let it = self.packets[packet];
        let Packet { message, count, .. } = it;
        self.trace_loss(packet);
        self.packets.free(packet);
        self.statistics.totals.dropped += u64::from(count);
        if it.target == NONE {
            self.lose_branch(message, it.out, self.now);
        } else {
            self.messages[message].lost = true;
            self.resolve(message, count, self.now);
        }
    }
}
