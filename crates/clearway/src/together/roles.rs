//! Assigns the hosts of a network to the application and to the bulk transfers.
//!
//! # Model
//! A host has the number of its rank; on a machine ranks are placed at random. Hosts form four quarters, and each
//! transfer has two of them, so that each host carries two transfers and the application:
//! ```text
//!    quarter            1         2         3         4
//!    timeslices      inputs   builders
//!    cast                      members   members
//!    checkpoint                          clients   clients, some of them servers
//!    puts              PEs                           PEs
//!    application      all: half of the hosts ping each other, the others run programs that
//!                     do allreduce
//!    MPI program                2 of them
//! ```

use std::ops::Range;

use clearway_proto::base::{Class, Nanos, RandomKey, Rank};
use clearway_proto::congestion::{VictimKind, VictimTask};

/// Hosts of a program that does allreduce. A rare interruption of one holds up all: in larger programs
/// these, and not the network, would be the slowest hundredth.
const PROGRAM_MAX: usize = 16;

/// A bulk transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Transfer {
    /// Puts of an OpenSHMEM program.
    Puts,
    /// Timeslice building.
    Timeslices,
    /// A file to many hosts.
    Cast,
    /// A checkpoint to staging servers.
    Checkpoint,
}

impl Transfer {
    pub(super) const ALL: [Self; 4] = [Self::Puts, Self::Timeslices, Self::Cast, Self::Checkpoint];

    /// Returns the name in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Puts => "puts",
            Self::Timeslices => "timeslices",
            Self::Cast => "cast",
            Self::Checkpoint => "checkpoint",
        }
    }

    /// Returns the class that its mechanism asks for.
    pub(super) const fn class(self) -> Class {
        match self {
            Self::Puts => Class::BestEffort,
            Self::Timeslices | Self::Cast => Class::Bulk,
            Self::Checkpoint => Class::Scavenger,
        }
    }
}

/// Which hosts do what.
#[derive(Clone, Debug)]
pub(super) struct HostRoles {
    /// Hosts whose application pings, in ring order.
    pub(super) pings: Vec<Rank>,
    /// Hosts of each program that does allreduce.
    pub(super) allreduce: Vec<Vec<Rank>>,
    pub(super) inputs: Range<u32>,
    pub(super) builders: Range<u32>,
    /// The first one casts.
    pub(super) members: Vec<Rank>,
    /// Groups of a server and its clients, the server first.
    pub(super) staging: Vec<Vec<Rank>>,
    /// The hosts of PEs.
    pub(super) pes: Vec<Rank>,
}

impl HostRoles {
    /// Assigns `hosts`, at least 8, with a staging server for each `staging_group` of them.
    pub(super) fn new(hosts: u32, staging_group: u32, key: RandomKey) -> Self {
        let border = |quarter: u32| (u64::from(hosts) * u64::from(quarter) / 4) as u32;
        let quarters = |from: u32, until: u32| (border(from)..border(until)).map(Rank);
        let mut ring: Vec<Rank> = (0..hosts).map(Rank).collect();
        key.purpose("application").stream().shuffle(&mut ring);
        let others = ring.split_off(ring.len() / 2);
        let programs = others.len().div_ceil(PROGRAM_MAX).max(1);
        let allreduce = others.chunks(others.len().div_ceil(programs)).map(<[Rank]>::to_vec);
        let mut stagers: Vec<Rank> = quarters(2, 4).rev().collect();
        // As equal as groups can be, and none of a server alone.
        let groups = (stagers.len() as u32 / staging_group.max(2)).max(1) as usize;
        let servers = stagers.len() - groups;
        let mut staging: Vec<Vec<Rank>> =
            stagers.drain(..groups).map(|server| vec![server]).collect();
        debug_assert_eq!(stagers.len(), servers);
        stagers.into_iter().enumerate().for_each(|(n, client)| staging[n % groups].push(client));
        Self {
            pings: ring,
            allreduce: allreduce.collect(),
            inputs: border(0)..border(1),
            builders: border(1)..border(2),
            members: quarters(1, 3).collect(),
            staging,
            pes: quarters(3, 4).chain(quarters(0, 1)).collect(),
        }
    }

    /// Returns the hosts of an MPI program of two ranks: the links of builders have timeslices and the
    /// cast, which run in every place.
    pub(super) const fn mpi(&self) -> [Rank; 2] {
        [Rank(self.builders.start), Rank(self.builders.end - 1)]
    }

    /// Returns what the application does on `host`, with this mean time between pings, or least time
    /// between allreduces.
    pub(super) fn application(&self, host: Rank, interval: Nanos) -> VictimTask {
        let program = self.allreduce.iter().find(|program| program.contains(&host));
        let (kind, ring) = match program {
            Some(program) => (VictimKind::Allreduce, program),
            None => (VictimKind::Ping, &self.pings),
        };
        VictimTask { kind, ring: ring.clone(), class: Class::LowLatency, interval }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn new__each_host_carries_two_transfers_and_the_application() {
        for (hosts, group) in [(8, 2), (9, 8), (64, 8), (383, 7)] {
            let roles = HostRoles::new(hosts, group, RandomKey::new(7));
            let ranks = |range: &Range<u32>| range.clone().map(Rank).collect::<Vec<_>>();
            let staged = roles.staging.concat();
            let parts = [
                ranks(&roles.inputs),
                ranks(&roles.builders),
                roles.members.clone(),
                staged.clone(),
                roles.pes.clone(),
            ];
            for host in (0..hosts).map(Rank) {
                let carried = parts.iter().filter(|part| part.contains(&host)).count();
                assert_eq!(carried, 2, "host {} of {hosts}", host.0);
                let programs = roles.allreduce.iter().chain([&roles.pings]);
                assert_eq!(programs.filter(|program| program.contains(&host)).count(), 1);
            }
            assert_eq!(staged.iter().collect::<BTreeSet<_>>().len(), staged.len());
            assert!(roles.staging.iter().all(|group| group.len() >= 2));
            assert!(roles.pings.len() >= 2);
            let [first, second] = roles.mpi();
            assert!(first != second && [first, second].iter().all(|it| roles.members.contains(it)));
            assert!(roles.allreduce.iter().all(|hosts| (2..=PROGRAM_MAX).contains(&hosts.len())));
        }
    }
}
