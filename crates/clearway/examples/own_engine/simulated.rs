//! The engine on a simulated switch with four hosts.

use clearway_proto::base::{BitsPerSec, RandomKey};
use clearway_proto::wire::Wire;
use clearway_sim::Picos;
use clearway_sim::fabric::{Fabric, FabricOptions};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::{FabricSpec, Routing, Topology};
use clearway_sim::topology;
use clearway_sim::wire::{ContentModel, Network, NetworkConfig};
use clearway_sim::world::World;

use crate::engine::RollCall;

/// Returns the names that rank 0 collects, or nothing after a simulated second.
pub(crate) fn run(ranks: u32) -> Vec<u8> {
    let star = Topology::Star { hosts: ranks };
    let spec = FabricSpec::plain(star, Routing::Minimal, BitsPerSec::mega(100_000));
    let cables = topology::build(&spec).expect("a star is possible");
    let fabric = Fabric::new(&spec, cables, 1, FabricOptions::default());
    let hosts = (0..ranks).map(DeviceId).collect();
    let config =
        NetworkConfig { hosts, bodies: ContentModel::Real, disk: None, key: RandomKey::new(1) };
    let network = Network::new(fabric, &spec, config);
    let mut world = World::new(network, |wire| RollCall::new(wire.rank(), ranks));
    let mut names = Vec::new();
    world.run_until(Picos::from_micros(1_000_000), &mut |event| names = event.event);
    names
}
