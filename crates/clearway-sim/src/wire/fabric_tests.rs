//! The contract kept over the real fabric.

use clearway_proto::base::{BitsPerSec, Bytes, RandomKey};

use super::tests::{assert_conforms, disk};
use super::{ContentModel, Network, NetworkConfig};
use crate::fabric::{EventSet, Fabric, FabricOptions};
use crate::graph::DeviceId;
use crate::spec::{FabricSpec, LossDomain, Routing, Topology, VIRTUAL_LANES_MAX};
use crate::topology;

fn network(spec: &FabricSpec, options: FabricOptions) -> Network<Fabric> {
    let fabric = Fabric::new(spec, topology::build(spec).expect("a star"), 1, options);
    let hosts = [2, 0, 1].map(DeviceId).into();
    Network::new(
        fabric,
        spec,
        NetworkConfig {
            hosts,
            bodies: ContentModel::Real,
            disk: Some(disk()),
            key: RandomKey::new(3),
        },
    )
}

fn star() -> FabricSpec {
    FabricSpec::plain(Topology::Star { hosts: 4 }, Routing::Minimal, BitsPerSec::mega(100_000))
}

#[test]
fn conformance__of_a_lossless_star() {
    assert_conforms("a lossless star", &mut || network(&star(), FabricOptions::default()));
    assert_conforms("a lossless star, eager events", &mut || {
        network(&star(), FabricOptions { events: EventSet::Eager, ..FabricOptions::default() })
    });
}

#[test]
fn conformance__of_a_star_that_drops() {
    let mut spec = star();
    spec.classes.loss = [LossDomain::Drops { queue: Bytes(2 << 20) }; VIRTUAL_LANES_MAX];
    assert_conforms("a star that drops", &mut || network(&spec, FabricOptions::default()));
}
