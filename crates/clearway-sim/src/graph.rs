//! A network as devices and directed channels, numbered so that a device's channels lie side by
//! side.
//!
//! # Model
//! A cable joins two ports and is two channels, one each way. Port `p` of a device sends on channel
//! `first + p` and receives on that channel's [`Channel::reverse`]. Hosts are devices `0..hosts`;
//! switches follow.
//!
//! # Invariants
//! I1. `reverse` is an involution that swaps `from` and `to`; channels of one device are contiguous
//!     and in port order.

use core::ops::Range;

/// A host or a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

/// One direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

impl DeviceId {
    /// Returns it as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl ChannelId {
    /// Returns it as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One direction of a cable: owned, and scheduled, by the device that sends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The device that sends.
    pub from: DeviceId,
    /// The device that receives.
    pub to: DeviceId,
    /// The other direction of the same cable.
    pub reverse: ChannelId,
    /// Which of the specification's links this is, by its place in
    /// [`crate::spec::FabricSpec::links`].
    pub link: u8,
}

/// Devices and channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    hosts: u32,
    names: Vec<String>,
    channels: Vec<Channel>,
    /// Where each device's channels begin; one more entry than devices.
    first: Vec<u32>,
}

/// Collects cables; [`GraphBuilder::build`] numbers the channels.
#[derive(Clone, Debug, Default)]
pub struct GraphBuilder {
    hosts: u32,
    names: Vec<String>,
    cables: Vec<(DeviceId, DeviceId, u8)>,
}

impl GraphBuilder {
    /// Devices `0..hosts` named `n0`, `n1`, ...
    pub fn with_hosts(hosts: u32) -> Self {
        Self { hosts, names: (0..hosts).map(|n| format!("n{n}")).collect(), cables: Vec::new() }
    }

    /// Adds a switch.
    pub fn switch(&mut self, name: String) -> DeviceId {
        self.names.push(name);
        DeviceId(self.names.len() as u32 - 1)
    }

    /// Gives `device` another name: hosts of imported networks have their own.
    pub fn rename(&mut self, device: DeviceId, name: String) {
        self.names[device.index()] = name;
    }

    /// Joins `a` and `b` by a cable of kind `link`. Each device's ports are numbered in the order
    /// of its cables.
    pub fn cable(&mut self, a: DeviceId, b: DeviceId, link: u8) {
        self.cables.push((a, b, link));
    }

    /// Builds the graph and numbers its channels. O(cables).
    pub fn build(self) -> Graph {
        let mut first = vec![0u32; self.names.len() + 1];
        for (a, b, _) in &self.cables {
            first[a.index() + 1] += 1;
            first[b.index() + 1] += 1;
        }
        for i in 1..first.len() {
            first[i] += first[i - 1];
        }
        let mut next = first.clone();
        let mut take = |device: DeviceId| {
            let channel = ChannelId(next[device.index()]);
            next[device.index()] += 1;
            channel
        };
        let blank = Channel { from: DeviceId(0), to: DeviceId(0), reverse: ChannelId(0), link: 0 };
        let mut channels = vec![blank; self.cables.len() * 2];
        for (a, b, link) in self.cables {
            let (there, back) = (take(a), take(b));
            channels[there.index()] = Channel { from: a, to: b, reverse: back, link };
            channels[back.index()] = Channel { from: b, to: a, reverse: there, link };
        }
        Graph { hosts: self.hosts, names: self.names, channels, first }
    }
}

impl Graph {
    /// Returns how many devices are hosts: those numbered below.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Returns all devices.
    pub fn devices(&self) -> u32 {
        self.names.len() as u32
    }

    /// Returns whether `device` is a host.
    pub fn is_host(&self, device: DeviceId) -> bool {
        device.0 < self.hosts
    }

    /// Returns the name of `device`, unique in this graph.
    pub fn name(&self, device: DeviceId) -> &str {
        &self.names[device.index()]
    }

    /// Returns all channels by number.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// Returns the channel `id`.
    pub fn channel(&self, id: ChannelId) -> &Channel {
        &self.channels[id.index()]
    }

    /// Returns the numbers of the channels on which `device` sends, in port order.
    pub fn ports(&self, device: DeviceId) -> Range<u32> {
        self.first[device.index()]..self.first[device.index() + 1]
    }

    /// Returns the port of its sender on which `channel` leaves.
    pub fn port_of(&self, channel: ChannelId) -> u32 {
        channel.0 - self.first[self.channel(channel).from.index()]
    }

    /// Returns the port of its receiver on which `channel` arrives.
    pub fn port_into(&self, channel: ChannelId) -> u32 {
        self.port_of(self.channel(channel).reverse)
    }

    /// Returns `channel` for a person: `leaf0 -> n3`.
    pub fn label(&self, channel: ChannelId) -> String {
        let it = self.channel(channel);
        format!("{} -> {}", self.name(it.from), self.name(it.to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build__ports_are_contiguous_and_reverse_swaps_ends() {
        let mut builder = GraphBuilder::with_hosts(3);
        let switch = builder.switch("s".to_owned());
        for host in 0..3 {
            builder.cable(DeviceId(host), switch, 0);
        }
        let graph = builder.build();
        assert_eq!(graph.ports(switch), 3..6);
        for id in (0..6).map(ChannelId) {
            let channel = graph.channel(id);
            let back = graph.channel(channel.reverse);
            assert_eq!((back.from, back.to, back.reverse), (channel.to, channel.from, id));
        }
        assert_eq!(graph.label(ChannelId(4)), "s -> n1");
        assert_eq!((graph.port_of(ChannelId(4)), graph.port_into(ChannelId(1))), (1, 1));
    }
}
