//! How long an acknowledgement takes: from host to host on the empty network, once looked up and
//! then remembered.
//!
//! # Invariants
//! I1. Remembering changes the cost, never the answer: it depends on both hosts alone as long as no
//!     fault changes a link.

use super::Fabric;
use crate::graph::{ChannelId, DeviceId};
use crate::routing::{Backlog, Transit};

/// Hosts whose pairs all have places of their own: six mebibytes. To find one delay anew takes
/// about 2,000 instructions.
const HOSTS_MAX: usize = 512;

/// Delays of pairs of hosts, each at the one place where it may be.
#[derive(Debug)]
pub(super) struct Delays {
    /// A row for each host; a power of two of them.
    rows: usize,
    /// Both hosts, and the delay.
    known: Vec<Option<(u32, u32, u64)>>,
}

impl Delays {
    /// Creates a memory that knows nothing; it is allocated with the first delay that is known.
    pub(super) fn new(hosts: usize) -> Self {
        Self { rows: hosts.clamp(1, HOSTS_MAX).next_power_of_two(), known: Vec::new() }
    }

    const fn place(&self, from: u32, to: u32) -> usize {
        (from as usize * self.rows + to as usize) % (self.rows * self.rows)
    }

    fn known_delay(&self, from: u32, to: u32) -> Option<u64> {
        let known = self.known.get(self.place(from, to)).copied().flatten();
        known.filter(|known| (known.0, known.1) == (from, to)).map(|(_, _, delay)| delay)
    }

    fn keep(&mut self, from: u32, to: u32, delay: u64) {
        self.known.resize(self.rows * self.rows, None);
        let place = self.place(from, to);
        self.known[place] = Some((from, to, delay));
    }
}

/// A network where nobody else is.
struct IdleNetwork;

impl Backlog for IdleNetwork {
    fn bytes(&self, _: ChannelId) -> u64 {
        0
    }

    fn up(&self, _: ChannelId) -> bool {
        true
    }

    fn intact(&self) -> bool {
        true
    }
}

impl Fabric {
    /// Returns the time of an acknowledgement, remembered where no fault can change it.
    pub(super) fn acknowledged_after(&mut self, from: u32, to: u32) -> u64 {
        if self.faults.is_some() {
            return self.acknowledgement_delay(from, to);
        }
        if let Some(delay) = self.delays.known_delay(from, to) {
            return delay;
        }
        let delay = self.acknowledgement_delay(from, to);
        self.delays.keep(from, to, delay);
        delay
    }

    /// Returns what a packet of headers alone takes from port to port on the empty network: the
    /// time of an acknowledgement.
    pub(super) fn acknowledgement_delay(&self, from: u32, to: u32) -> u64 {
        let (source, target) = (DeviceId(from), DeviceId(to));
        let (flow_hash, packet_hash) = (from, to);
        let via = Transit::DIRECT;
        let mut transit = Transit { source, target, flow_hash, packet_hash, via, hops: 0, step: 0 };
        let mut channel = ChannelId(self.network.graph.ports(source).start);
        let mut time = 0;
        loop {
            let port = &self.ports[channel.index()];
            time += port.delay;
            let serial = port.pace.time(self.constants.header).0;
            if port.to_host || port.store_and_forward {
                time += serial;
            }
            let at = DeviceId(port.to);
            match self.network.router.next(&self.network.graph, at, &mut transit, &IdleNetwork) {
                Some(next) if !port.to_host => channel = next,
                _ => return time,
            }
            transit.hops += 1;
        }
    }
}
