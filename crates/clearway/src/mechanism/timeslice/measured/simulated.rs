//! The same on a simulated fabric at rest: a function of fabric, places of ranks and seed.

use clearway_proto::base::{LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::congestion::CongestionEvent;
use clearway_proto::timeslice::{RoundTripTable, Tournament};
use clearway_proto::wire::Wire;
use clearway_sim::Picos;
use clearway_sim::fabric::FabricOptions;
use clearway_sim::wire::ContentModel;

use super::{
    HOSTS_MIN, MeasuredNetwork, PingOrder, PingResult, PingSchedule, PingTimes, node, note,
};
use crate::run::venue::SimMachine;

/// When the first round begins: commands are read long before.
const BEGIN: Nanos = Nanos::from_micros(10);
/// Two pings of each host in a quarter, far apart: nothing of a fabric at rest changes between them.
const TIMES: PingTimes =
    PingTimes::new(Nanos::from_micros(100), 2, Nanos::from_millis(1), Nanos::from_micros(100));
/// Pairs that are simulated, some seconds of this machine, but for the least rounds.
const PAIRS_MAX: usize = 60_000;
/// With these a host of thousands meets some of each group.
const ROUNDS_MIN: usize = 64;

/// Measures the network between the hosts of `machine`, each of which has one rank.
pub(in super::super) fn measure_simulated(machine: &SimMachine, seed: u64) -> MeasuredNetwork {
    let ranks: Vec<Rank> = (0..machine.hosts.len() as u32).map(Rank).collect();
    let hosts: Vec<Vec<Rank>> = ranks.iter().map(|rank| vec![*rank]).collect();
    let count = ranks.len() as u32;
    let mut table = RoundTripTable::new(count);
    if count < HOSTS_MIN {
        return MeasuredNetwork::new(&hosts, &table);
    }
    let key = RandomKey::new(seed).purpose("measured");
    let most = (2 * PAIRS_MAX / hosts.len()).max(ROUNDS_MIN);
    let tournament = Tournament::new(count, most, key);
    let schedule = PingSchedule { ranks, tournament, times: TIMES, seed };
    let host_of = schedule.host_of();
    let carrier = machine.carrier(key, FabricOptions::default());
    let mut world = machine.world(carrier, ContentModel::Phantom, key, |wire| {
        node(wire, seed).expect("a fresh end has room for a region")
    });
    let orders: Vec<PingOrder> = (0..count).map(|host| schedule.order(host, Nanos::ZERO)).collect();
    // Each host has a clock of its own.
    let begins: Vec<LocalNs> =
        schedule.ranks.iter().map(|rank| world.network_mut().wire(*rank).now() + BEGIN).collect();
    for round in 0..schedule.tournament.rounds() {
        let until = BEGIN + TIMES.slot.times(round as u64 + 1);
        for ((rank, order), begin) in schedule.ranks.iter().zip(&orders).zip(&begins) {
            let phase = order.phase(*rank, round, *begin);
            phase.into_iter().for_each(|phase| world.command(world.now(), *rank, phase));
        }
        world.run_until(Picos::from(until), &mut |reported| {
            let CongestionEvent::PhaseOver { .. } = reported.event else { return };
            let (Some(host), Some(record)) =
                (host_of.get(&reported.rank), reported.engine.take_record())
            else {
                return;
            };
            note(&mut table, *host, &PingResult::all(&record).collect::<Vec<_>>(), &host_of);
        });
    }
    MeasuredNetwork::new(&hosts, &table)
}

#[cfg(test)]
mod tests {
    //! Small networks of shipped links and hosts, ranks in no order.

    use clearway_sim::graph::DeviceId;
    use clearway_sim::spec::{Topology, presets};

    use super::*;

    /// Returns what 24 hosts of `topology` with links and hosts of `preset` measure, and the part of
    /// each, both by rank.
    fn measured(preset: &str, topology: Topology) -> (MeasuredNetwork, Vec<u32>) {
        let mut spec = presets::load(preset, None).expect("a shipped fabric");
        spec.topology = topology;
        let hosts: Vec<DeviceId> = (0..24).map(|rank| DeviceId(rank * 7 % 24)).collect();
        let machine = SimMachine::build(spec, hosts).expect("a sound fabric");
        let mut numbers: Vec<u32> = Vec::new();
        let mut number = |part: u32| {
            let known = numbers.iter().position(|known| *known == part);
            known.unwrap_or_else(|| {
                numbers.push(part);
                numbers.len() - 1
            }) as u32
        };
        let part = |host: &DeviceId| number(machine.spec.topology.neighbourhood(*host));
        let parts = machine.hosts.iter().map(part).collect();
        (measure_simulated(&machine, 1), parts)
    }

    #[test]
    fn measure_simulated__the_parts_of_an_idle_dragonfly_are_its_groups() {
        let xc = Topology::DragonflyXc {
            groups: 3,
            columns: 2,
            rows: 2,
            hosts_per_router: 2,
            black_cables: 1,
            blue_cables: 2,
        };
        let dragonfly = Topology::Dragonfly {
            groups: 3,
            switches: 4,
            hosts_per_switch: 2,
            local_cables: 1,
            global_cables: 2,
        };
        for (preset, topology) in [("aries", xc), ("slingshot", dragonfly)] {
            let (found, parts) = measured(preset, topology);
            assert_eq!(found.by_rank, parts, "{preset}: {}", found.about());
        }
    }

    #[test]
    fn measure_simulated__the_parts_of_an_idle_tree_are_below_its_top_and_a_switch_has_none() {
        let tree =
            Topology::FatTree { children: vec![6, 4], parents: vec![1, 3], cables: vec![1, 1] };
        let (found, parts) = measured("edr", tree);
        assert_eq!(found.by_rank, parts, "{}", found.about());
        let (found, _) = measured("hdr100", Topology::Star { hosts: 24 });
        assert!(found.by_rank.is_empty(), "{}", found.about());
        assert_eq!(found, measured("hdr100", Topology::Star { hosts: 24 }).0, "it repeats itself");
    }
}
