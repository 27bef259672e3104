//! What ports carried and how long they stood still.

use super::Fabric;
use crate::graph::ChannelId;
use crate::time::Picos;

/// Sums over a whole fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricTotals {
    /// Events processed.
    pub events: u64,
    /// Packets taken in by hosts.
    pub packets: u64,
    /// Bytes of payload in them.
    pub payload: u64,
    /// Packets dropped.
    pub dropped: u64,
}

/// One lane of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStatistics {
    /// Bytes sent, headers included.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
}

/// One port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Time in which something waited and the port was idle: no credit, a pause, or a slow host.
    pub stalled: Picos,
    /// The most that ever waited for it in its switch, in bytes.
    pub queue_max: u32,
    /// Packets dropped for want of room.
    pub dropped: u64,
}

impl PortStatistics {
    /// Records how many bytes wait.
    pub(super) fn queued(&mut self, bytes: u32) {
        self.queue_max = self.queue_max.max(bytes);
    }
}

/// Counters of the whole fabric and of its lanes, in addition to those of ports.
#[derive(Debug)]
pub(super) struct FabricStatistics {
    pub(super) totals: FabricTotals,
    pub(super) lanes: Vec<LaneStatistics>,
}

impl FabricStatistics {
    pub(super) fn new(lanes: usize) -> Self {
        Self { totals: FabricTotals::default(), lanes: vec![LaneStatistics::default(); lanes] }
    }

    pub(super) fn sent(&mut self, lane: u32, bytes: u32, count: u32) {
        let it = &mut self.lanes[lane as usize];
        it.bytes += u64::from(bytes) * u64::from(count);
        it.packets += u64::from(count);
    }

    pub(super) fn take_back(&mut self, lane: u32, bytes: u32, count: u32) {
        let it = &mut self.lanes[lane as usize];
        it.bytes -= u64::from(bytes) * u64::from(count);
        it.packets -= u64::from(count);
    }
}

impl Fabric {
    /// Sums over the whole fabric.
    pub fn totals(&self) -> FabricTotals {
        self.statistics.totals
    }

    /// Returns what `channel` did.
    pub fn port_statistics(&self, channel: ChannelId) -> PortStatistics {
        self.ports[channel.index()].statistics
    }

    /// Returns what each lane of `channel` carried: virtual lanes in order, the steps of each side
    /// by side.
    pub fn lane_statistics(&self, channel: ChannelId) -> &[LaneStatistics] {
        let lanes = self.lanes_per_port as usize;
        &self.statistics.lanes[channel.index() * lanes..][..lanes]
    }

    /// Accounts for what leaves `port` now: what it stood still before counts.
    pub(super) fn account_wait(&mut self, port: u32) {
        let it = &mut self.ports[port as usize];
        let mut since = it.waiting_since.max(it.busy_until);
        if it.from_host {
            since = since.max(
                self.hosts[self.network.graph.channels()[port as usize].from.index()].fetch_free,
            );
        }
        it.statistics.stalled += Picos(self.now - since.min(self.now));
        it.waiting_since = self.now;
    }
}
