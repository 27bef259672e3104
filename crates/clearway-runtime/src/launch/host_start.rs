//! Shares connections of ssh to a host among the ranks that are started there.
//!
//! # Model
//! The ranks of a host form groups of at most [`SshConnection::COMMANDS_MAX`]. A group of several
//! first connects to the host, by an ssh that is the master, and then starts each rank by an ssh of
//! its own over this connection: that ssh carries the rank's secret, output and exit status. A group
//! of one rank, and a program that is not ssh, have a connection for each rank.
//!
//! # Invariants
//! I1. Where the master fails each rank gets a connection of its own. Its ssh says what is wrong, or
//!     uses what the user's configuration shares.
//! I2. Nothing here waits for a host.
//!
//! # Not here
//! How commands share a connection (`ssh_connection`).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::ssh_connection::{OpeningConnection, SshConnection};

/// Ranks of one host that share a connection, or have one each.
#[derive(Debug)]
pub(super) struct RankGroup<'a> {
    pub(super) host: &'a str,
    /// Those not yet started.
    ranks: VecDeque<u32>,
    way: HostWay,
}

/// Whether ranks of a host can share a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostSharing {
    /// It is ssh.
    Shared,
    /// It is another program, each call of which is a connection.
    Own,
}

/// How the ranks of a group get to their host.
#[derive(Debug)]
enum HostWay {
    /// Over a connection that is not opened yet.
    Unopened,
    Opening(OpeningConnection),
    /// Over the connection of this number.
    Shared(usize),
    Own,
    /// As `Own`, because the master failed.
    OwnAfterMaster,
}

/// What a group needs next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextStart {
    /// Nothing: all are started, or the connection is on its way.
    Nothing,
    Master,
    Rank(u32),
}

impl<'a> RankGroup<'a> {
    /// Forms the groups of the ranks whose hosts are `places`.
    pub(super) fn form(places: &[&'a str], sharing: HostSharing) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        // The last group of each host.
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        for (rank, host) in (0..).zip(places) {
            let at = last.get(host).copied().filter(|at| {
                groups.get(*at).is_some_and(|group| group.ranks.len() < SshConnection::COMMANDS_MAX)
            });
            let at = at.unwrap_or(groups.len());
            if at == groups.len() {
                last.insert(host, at);
                groups.push(Self { host, ranks: VecDeque::new(), way: HostWay::Own });
            }
            groups[at].ranks.push_back(rank);
        }
        for group in groups.iter_mut().filter(|group| group.ranks.len() > 1) {
            if sharing == HostSharing::Shared {
                group.way = HostWay::Unopened;
            }
        }
        groups
    }

    /// Returns what comes next.
    pub(super) fn next(&self) -> NextStart {
        match (&self.way, self.ranks.front()) {
            (HostWay::Opening(_), _) | (_, None) => NextStart::Nothing,
            (HostWay::Unopened, _) => NextStart::Master,
            (_, Some(rank)) => NextStart::Rank(*rank),
        }
    }

    /// Notes that the first of the remaining ranks is started.
    pub(super) fn note_start(&mut self) {
        self.ranks.pop_front();
    }

    /// Notes that the connection is on its way.
    pub(super) fn note_opening(&mut self, opening: OpeningConnection) {
        self.way = HostWay::Opening(opening);
    }

    pub(super) fn is_opening(&self) -> bool {
        matches!(self.way, HostWay::Opening(_))
    }

    /// Appends its connection to `connections` once that is open, without waiting for it; gives it up
    /// after `patience`.
    pub(super) fn take_connection(
        &mut self,
        connections: &mut Vec<SshConnection>,
        patience: Duration,
    ) {
        let HostWay::Opening(opening) = &self.way else { return };
        if !opening.is_decided() {
            if opening.age() >= patience {
                self.way = HostWay::OwnAfterMaster;
            }
            return;
        }
        let HostWay::Opening(opening) = std::mem::replace(&mut self.way, HostWay::OwnAfterMaster)
        else {
            return;
        };
        if let Ok(connection) = opening.finish() {
            self.way = HostWay::Shared(connections.len());
            connection.forward_output();
            connections.push(connection);
        }
    }

    /// Returns the connection that its ranks share, of `connections`.
    pub(super) fn connection<'c>(
        &self,
        connections: &'c [SshConnection],
    ) -> Option<&'c SshConnection> {
        match self.way {
            HostWay::Shared(at) => connections.get(at),
            _ => None,
        }
    }

    /// Returns whether its master failed.
    pub(super) fn has_lost_master(&self) -> bool {
        matches!(self.way, HostWay::OwnAfterMaster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(places: &[&str], sharing: HostSharing) -> Vec<(String, Vec<u32>, NextStart)> {
        let groups = RankGroup::form(places, sharing);
        let shape = |it: &RankGroup<'_>| {
            (it.host.to_owned(), it.ranks.iter().copied().collect(), it.next())
        };
        groups.iter().map(shape).collect()
    }

    #[test]
    fn form__ranks_of_a_host_share_a_connection_and_a_single_one_needs_none() {
        let found = shape(&["a", "a", "b", "a"], HostSharing::Shared);
        let expected = [
            ("a".to_owned(), vec![0, 1, 3], NextStart::Master),
            ("b".to_owned(), vec![2], NextStart::Rank(2)),
        ];
        assert_eq!(found, expected);
        let alone = shape(&["a", "a"], HostSharing::Own);
        assert_eq!(alone, [("a".to_owned(), vec![0, 1], NextStart::Rank(0))]);
    }

    #[test]
    fn form__a_connection_carries_as_many_ranks_as_a_server_takes_sessions() {
        let places = vec!["a"; SshConnection::COMMANDS_MAX * 2 + 1];
        let sizes: Vec<usize> =
            shape(&places, HostSharing::Shared).iter().map(|(_, ranks, _)| ranks.len()).collect();
        assert_eq!(sizes, [SshConnection::COMMANDS_MAX, SshConnection::COMMANDS_MAX, 1]);
    }
}
