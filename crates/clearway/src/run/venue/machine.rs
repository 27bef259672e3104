//! A simulated machine: a fabric with one of its queues, its cables, and the host of each rank;
//! worlds of engines run on it.

use anyhow::{Context, Result, anyhow};
use clearway_proto::base::{BitsPerSec, RandomKey};
use clearway_proto::wire::{Engine, SHORT_HEAD};
use clearway_runtime::udp::frame::{FRAME_LENGTH, MESSAGE_MAX};
use clearway_sim::calibrate;
use clearway_sim::fabric::{self, FabricOptions};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::{FabricSpec, LinkRole};
use clearway_sim::topology::{self, RoutedGraph as Topology};
use clearway_sim::wire::{ContentModel, Network, NetworkConfig, SimWire};
use clearway_sim::world::World;

use crate::scenario::{Fabric, SmallMessage};

/// The bytes of the small message with which hosts are calibrated: a ping.
const PING: u64 = 8;

/// A simulated machine.
pub(crate) struct SimMachine {
    pub(crate) spec: FabricSpec,
    pub(crate) network: Topology,
    /// The host of each rank.
    pub(crate) hosts: Vec<DeviceId>,
    /// The longest body of one message that the wire of the same place outside the simulator takes.
    pub(crate) body_max: u32,
}

impl SimMachine {
    /// Creates the machine of `fabric` with `queue`, as `adjust` changes it; `key` draws where
    /// ranks lie. Where the scenario says what small messages take, the hosts are calibrated to it.
    ///
    /// # Errors
    /// One sentence: what of the fabric is impossible.
    pub(crate) fn open(
        fabric: &Fabric,
        queue: &str,
        key: RandomKey,
        adjust: &dyn Fn(&mut FabricSpec),
    ) -> Result<Self> {
        let (mut spec, hosts) = fabric.simulated(queue, key).map_err(|why| anyhow!(why))?;
        let mut body_max = u32::MAX;
        if let Fabric::Lab(_) = fabric {
            // The lab's wire puts a frame of its own into each packet and cuts bodies accordingly.
            spec.packet.header.0 += FRAME_LENGTH as u64;
            spec.packet.payload.0 -= FRAME_LENGTH as u64;
            body_max = (MESSAGE_MAX - SHORT_HEAD) as u32;
        }
        adjust(&mut spec);
        let mut machine = Self { body_max, ..Self::build(spec, hosts)? };
        if let Some(SmallMessage { p50, p99 }) = fabric.small_message(queue) {
            let real = calibrate::SmallMessage { p50: p50.0.into(), p99: p99.0.into() };
            calibrate::hosts(&mut machine.spec, &machine.network, PING, real);
        }
        Ok(machine)
    }

    /// Creates the machine of `spec`, with a rank on each of `hosts`.
    ///
    /// # Errors
    /// The topology of `spec` is impossible.
    pub(crate) fn build(spec: FabricSpec, hosts: Vec<DeviceId>) -> Result<Self> {
        let network =
            topology::build(&spec).with_context(|| format!("the fabric {}", spec.name))?;
        Ok(Self { spec, network, hosts, body_max: u32::MAX })
    }

    /// Returns the names of the hosts, by rank.
    pub(crate) fn names(&self) -> Vec<String> {
        self.hosts.iter().map(|host| self.network.graph.name(*host).to_owned()).collect()
    }

    /// Returns the rate of a host's link; what its memory takes where it has none.
    pub(crate) fn host_rate(&self) -> BitsPerSec {
        let link =
            self.spec.link(LinkRole::Host).and_then(|link| self.spec.links.get(usize::from(link)));
        link.map_or(self.spec.host.memory_rate, |link| link.rate)
    }

    /// Returns its fabric at rest; `key` draws what is random in it.
    pub(crate) fn carrier(&self, key: RandomKey, options: FabricOptions) -> fabric::Fabric {
        let seed = key.purpose("fabric").stream().next_u64();
        fabric::Fabric::new(&self.spec, self.network.clone(), seed, options)
    }

    /// Returns a world on `carrier`, with the engine that `make` gives at the end of each wire.
    pub(crate) fn world<E: Engine>(
        &self,
        carrier: fabric::Fabric,
        bodies: ContentModel,
        key: RandomKey,
        make: impl FnMut(&mut SimWire) -> E,
    ) -> World<E, fabric::Fabric> {
        let config = NetworkConfig { hosts: self.hosts.clone(), bodies, disk: None, key };
        World::new(Network::new(carrier, &self.spec, config), make)
    }
}
