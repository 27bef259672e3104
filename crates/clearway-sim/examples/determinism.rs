//! Prints one line for each shipped fabric: the digest of a fixed run, which must be the same on
//! every machine, in every build, in every process, and however it is computed.

use clearway_proto::base::{Class, RandomKey};
use clearway_sim::Picos;
use clearway_sim::fabric::{EventQueueKind, EventSet, Fabric, FabricOptions, Trains};
use clearway_sim::spec::{FabricSpec, presets};
use clearway_sim::topology;
use clearway_sim::traffic::{self, Arrivals, Timed, TrafficSource};

/// Hosts of each machine, rounded up to what its shape allows.
const HOSTS: u32 = 24;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for name in presets::names() {
        for policy in presets::policies(name)? {
            let mut spec = presets::load(name, Some(&policy))?;
            spec.topology = spec.topology.for_hosts(HOSTS);
            let mut digests: Vec<u128> =
                ways().iter().map(|way| digest(&spec, *way)).collect::<Result<_, _>>()?;
            digests.dedup();
            let shown: Vec<String> =
                digests.iter().map(|digest| format!("{digest:032x}")).collect();
            println!("{name:<12} {policy:<14} {}", shown.join(" "));
            if digests.len() != 1 {
                return Err(format!("{name} under {policy}: ways to compute it differ").into());
            }
        }
    }
    Ok(())
}

/// Every way to compute the same thing.
fn ways() -> Vec<FabricOptions> {
    let mut all = Vec::new();
    for queue in [EventQueueKind::Heap, EventQueueKind::Wheel] {
        for events in [EventSet::Eager, EventSet::Lazy] {
            all.extend([Trains::Off, Trains::On].map(|trains| FabricOptions {
                queue,
                events,
                trains,
            }));
        }
    }
    all
}

fn digest(spec: &FabricSpec, options: FabricOptions) -> Result<u128, Box<dyn std::error::Error>> {
    let network = topology::build(spec)?;
    let hosts = network.graph.hosts();
    let mut fabric = Fabric::new(spec, network, 1, options);
    // Half of each host's rate to anyone, and small messages in another class.
    let rate = spec.links[0].rate;
    let bulk = Picos::from(rate.percent(50).time_for(clearway_proto::base::Bytes(20_000)));
    let source = |from, class, bytes, interval| TrafficSource {
        from,
        to: None,
        class,
        bytes,
        interval,
        arrivals: Arrivals::Poisson,
        timed: Timed::No,
    };
    let sources: Vec<TrafficSource> = (0..hosts)
        .flat_map(|from| {
            [source(from, Class::Bulk, 20_000, bulk), source(from, Class::LowLatency, 8, bulk)]
        })
        .collect();
    let until = Picos(bulk.0 * 40);
    traffic::open(&mut fabric, &sources, until, Picos(until.0 * 2), RandomKey::new(7));
    fabric.settle();
    Ok(fabric.digest())
}
