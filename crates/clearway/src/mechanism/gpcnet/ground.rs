//! Where the ranks of GPCNeT's tests are: gives each its task, and collects what it recorded.
//!
//! # Model
//! A [`Ground`] knows the host of each rank and what its wire can do. Ranks are processes (`processes`), or simulated in this one.
//! The simulator makes a fabric at rest for every test, so
//! that no test inherits packets of an earlier one, and a test is a function of fabric, seed and number.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{Nanos, RandomKey, Rank};
use clearway_proto::gpcnet::{Event, MEMORY, Node, NodeConfig, Record, Task};
use clearway_proto::wire::{OperationSet, SHORT_HEAD, Span, Wire};
use clearway_runtime::udp::frame::{FRAME_LENGTH, MESSAGE_MAX};
use clearway_sim::Picos;
use clearway_sim::fabric::{self, Options};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::FabricSpec;
use clearway_sim::topology::{self, Network as Topology};
use clearway_sim::wire::{Bodies, Network, NetworkConfig, SimWire};
use clearway_sim::world::{Ended, World};

use crate::run::stage::EndAtOnce;
use crate::scenario::Fabric;

/// Where the ranks are.
pub(super) trait Ground {
    /// The host of each rank, by name.
    fn names(&self) -> Vec<String>;

    /// What the ranks' wire can do.
    fn operations(&self) -> OperationSet;

    /// The longest body that all wires carry in one message.
    fn body_max(&self) -> u32;

    /// Measurements of a test where nobody says how many.
    fn measurements(&self) -> u32;

    /// What it is, for a person.
    fn about(&self) -> String;

    /// Runs one test and returns the record of each rank that has a task. What takes longer than `patience` is stuck.
    fn run(&mut self, tasks: &BTreeMap<Rank, Task>, patience: Nanos) -> Result<BTreeMap<Rank, Record>>;

    /// What is known of it after the tests, a sentence each.
    fn remarks(&self) -> Vec<String>;
}

/// The simulator.
pub(super) struct Simulated {
    spec: FabricSpec,
    network: Topology,
    /// By rank.
    hosts: Vec<DeviceId>,
    body_max: u32,
    key: RandomKey,
    operations: OperationSet,
    tests: u64,
    about: String,
    _ending: EndAtOnce,
}

impl Simulated {
    /// The hosts of `fabric` with this `queue`, each with `ppn` ranks.
    pub(super) fn open(fabric: &Fabric, queue: &str, seed: u64, ppn: u32) -> Result<Self> {
        let ending = EndAtOnce::listen()?;
        let key = RandomKey::new(seed);
        let (mut spec, hosts) = fabric.simulated(queue, key).map_err(|why| anyhow!(why))?;
        let body_max = match fabric {
            Fabric::Machine(_) | Fabric::Site(_) => u32::MAX,
            Fabric::Lab(_) => {
                // The lab's wire puts a frame of its own into each packet and cuts bodies accordingly.
                spec.packet.header.0 += FRAME_LENGTH as u64;
                spec.packet.payload.0 -= FRAME_LENGTH as u64;
                (MESSAGE_MAX - SHORT_HEAD) as u32
            }
        };
        spec.host.clock_ppm = 0;
        let network = topology::build(&spec).with_context(|| format!("the fabric {}", spec.name))?;
        let about = format!("simulated fabric {}, {queue}", spec.name);
        let hosts = hosts.into_iter().flat_map(|host| (0..ppn).map(move |_| host)).collect();
        let operations = OperationSet::of(&[]);
        let mut ground = Self { spec, network, hosts, body_max, key, operations, tests: 0, about, _ending: ending };
        let mut world = ground.world();
        let wire = world.network_mut().wire(Rank(0)).capabilities();
        ground.operations = wire.operations;
        ground.body_max = ground.body_max.min(u32::try_from(wire.body_beside(SHORT_HEAD)).unwrap_or(u32::MAX));
        Ok(ground)
    }

    fn world(&self) -> World<Node, fabric::Fabric> {
        let key = self.key.purpose("gpcnet").node(self.tests);
        let seed = key.purpose("fabric").stream().next_u64();
        let carrier = fabric::Fabric::new(&self.spec, self.network.clone(), seed, Options::default());
        let config = NetworkConfig { hosts: self.hosts.clone(), bodies: Bodies::Phantom, disk: None, key };
        World::new(Network::new(carrier, &self.spec, config), |wire| self.node(wire))
    }

    fn node(&self, wire: &mut SimWire) -> Node {
        let region = wire.register(MEMORY).expect("a fresh end has room for a region");
        let memory = Span { region, offset: 0, length: MEMORY.0 as u32 };
        Node::new(NodeConfig::new(wire.rank(), memory, wire.capabilities()))
    }
}

impl Ground for Simulated {
    fn names(&self) -> Vec<String> {
        self.hosts.iter().map(|host| self.network.graph.name(*host).to_owned()).collect()
    }

    fn operations(&self) -> OperationSet {
        self.operations
    }

    fn body_max(&self) -> u32 {
        self.body_max
    }

    fn measurements(&self) -> u32 {
        // One already has 30 rings of 200 iterations, and the simulator repeats itself exactly.
        1
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    fn run(&mut self, tasks: &BTreeMap<Rank, Task>, patience: Nanos) -> Result<BTreeMap<Rank, Record>> {
        self.tests += 1;
        let mut world = self.world();
        for (rank, task) in tasks {
            world.command(Picos::ZERO, *rank, task.clone());
        }
        let mut records = BTreeMap::new();
        // Longer and longer stretches: a test of a microsecond shall not cost a second of idle ranks.
        let mut until = Nanos::from_micros(100);
        while records.len() < tasks.len() {
            let ended = world.run_until(Picos::from(until), &mut |told| match told.event {
                Event::Over { .. } => records.extend(told.engine.take_record().map(|record| (told.rank, record))),
            });
            if records.len() < tasks.len() && (ended == Ended::Quiet || until > patience) {
                bail!("a simulated rank did not end its test; this is a defect of the program");
            }
            until = until + Nanos((until.0 / 16).max(100_000));
        }
        Ok(records)
    }

    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}
