//! Engines on small simulated fabrics that suffer what a plan says, for tests that draw many of
//! them.

use clearway_proto::base::RandomKey;
use clearway_proto::wire::Engine;
use clearway_sim::Picos;
use clearway_sim::fabric::{Fabric, FabricOptions};
use clearway_sim::fault::{Disks, FaultPlan, FaultSite, Injector, RestartEngine};
use clearway_sim::graph::{ChannelId, DeviceId};
use clearway_sim::spec::{FabricSpec, Routing, Topology, presets};
use clearway_sim::topology;
use clearway_sim::wire::{ContentModel, Network, NetworkConfig, SimWire};
use clearway_sim::world::{World, WorldEvent};

/// How long a world runs before its applications answer.
const TURN: Picos = Picos::from_micros(20);

/// A fat tree or a dragonfly of 24 hosts; `below` draws which.
pub(crate) fn drawn(below: &mut dyn FnMut(u64) -> u64) -> FabricSpec {
    let mut spec =
        presets::load(["edr", "slingshot"][below(2) as usize], None).expect("a shipped fabric");
    match &mut spec.topology {
        Topology::Dragonfly { groups, switches, hosts_per_switch, global_cables, .. } => {
            (*groups, *switches, *hosts_per_switch, *global_cables) = (3, 2, 4, 2);
            spec.routing = Routing::Minimal;
        }
        _ => {
            spec.topology =
                Topology::FatTree { children: vec![4, 6], parents: vec![1, 4], cables: vec![1, 1] }
        }
    }
    spec
}

/// The name of the host of `rank`.
pub(crate) fn host(rank: u32) -> String {
    format!("n{rank}")
}

/// The switch of the host of `rank`, and its name.
pub(crate) fn leaf(spec: &FabricSpec, rank: u32) -> (u32, String) {
    let network = topology::build(spec).expect("it was checked");
    let graph = &network.graph;
    let switch = graph.channel(ChannelId(graph.ports(DeviceId(rank)).start)).to;
    (switch.0, graph.name(switch).to_owned())
}

/// A world under way, and what befalls it.
pub(crate) struct FaultyWorld<E: Engine> {
    pub(crate) world: World<E, Fabric>,
    injector: Injector,
}

impl<E: Engine> FaultyWorld<E> {
    /// An engine of `make` on each of the first `ranks` hosts of the fabric of `spec`, under
    /// `plan`. Bodies are real bytes.
    pub(crate) fn new(
        spec: &FabricSpec,
        ranks: u32,
        seed: u64,
        plan: &FaultPlan,
        make: impl FnMut(&mut SimWire) -> E,
    ) -> Self {
        let network = topology::build(spec).expect("it was checked");
        let key = RandomKey::new(seed);
        let hosts: Vec<DeviceId> = (0..ranks).map(DeviceId).collect();
        let site = FaultSite { spec, graph: &network.graph, hosts: &hosts, disks: Disks::Absent };
        let resolved = plan.resolve(&site).expect("what was drawn is there");
        let mut carrier = Fabric::new(spec, network.clone(), seed, FabricOptions::default());
        carrier.afflict(resolved.fabric.clone(), key.purpose("faults of the fabric"));
        let config = NetworkConfig { hosts, bodies: ContentModel::Real, disk: None, key };
        let world = World::new(Network::new(carrier, spec, config), make);
        Self { world, injector: Injector::new(&resolved, key.purpose("faults of nodes")) }
    }

    /// Runs a while; `hear` gets what engines tell, `remake` makes those that come back.
    pub(crate) fn turn(
        &mut self,
        remake: RestartEngine<'_, E>,
        hear: &mut dyn FnMut(WorldEvent<'_, E>),
    ) {
        let until = self.world.now() + TURN;
        self.injector.run_until(&mut self.world, until, remake, hear);
    }
}
