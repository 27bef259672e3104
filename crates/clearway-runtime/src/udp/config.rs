//! What must be known to open a UDP wire, and the checks that it makes sense.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use clearway_proto::base::{GroupId, Rank};

use super::socket::Buffers;
use super::transmit::Segmentation;
use crate::RuntimeError;
use crate::waiting::Waiting;

/// Where the ranks of a job run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All on this machine (virtual hosts included): they read one clock, and stamps may be compared.
    OneMachine,
    /// On several machines, each with its own clock.
    ManyMachines,
}

/// Where a job's multicast groups live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multicast {
    /// The address of group 0; group `n` has the `n`-th address after it.
    pub base: Ipv4Addr,
    /// The port of all groups.
    pub port: u16,
}

impl Multicast {
    /// The address of `group`.
    pub(super) fn address(self, group: GroupId) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::from(u32::from(self.base).saturating_add(u32::from(group.0))), self.port)
    }

    /// Administratively scoped addresses are 239.0.0.0/8 (RFC 2365); 65,536 groups must fit behind the base.
    fn fits(self) -> bool {
        self.base >= Ipv4Addr::new(239, 0, 0, 0) && self.base <= Ipv4Addr::new(239, 255, 0, 0)
    }
}

/// One rank's part in a job over UDP.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// This end's rank.
    pub rank: Rank,
    /// The job's number: datagrams of another one are dropped. It keeps jobs apart, not attackers out.
    pub session: u64,
    /// The addresses of all ranks by number, this one's included.
    pub peers: Vec<SocketAddrV4>,
    /// Multicast, if the job uses it.
    pub multicast: Option<Multicast>,
    /// Sizes of socket buffers.
    pub buffers: Buffers,
    /// How to wait.
    pub waiting: Waiting,
    /// Where the ranks run.
    pub placement: Placement,
    /// Whether runs of messages leave as one large packet.
    pub segmentation: Segmentation,
}

impl UdpConfig {
    /// A job on several machines without multicast, with default buffers, adaptive waiting and segmentation offload.
    pub fn new(rank: Rank, session: u64, peers: Vec<SocketAddrV4>) -> Self {
        Self {
            rank,
            session,
            peers,
            multicast: None,
            buffers: Buffers::default(),
            waiting: Waiting::Adaptive,
            placement: Placement::ManyMachines,
            segmentation: Segmentation::Offload,
        }
    }

    /// Finds what cannot work, before a socket is touched.
    pub(super) fn check(&self, bound: SocketAddrV4) -> Result<(), RuntimeError> {
        let rank = self.rank;
        let ranks = self.peers.len();
        let listed = *self.peers.get(rank.index()).ok_or(RuntimeError::RankOutside { rank, ranks })?;
        if listed.port() != bound.port() || (listed.ip() != bound.ip() && !bound.ip().is_unspecified()) {
            return Err(RuntimeError::OwnAddress { rank, listed, bound });
        }
        let mut ranks_by_address = BTreeMap::new();
        for (rank, address) in (0..).map(Rank).zip(&self.peers) {
            if let Some(first) = ranks_by_address.insert(address, rank) {
                return Err(RuntimeError::SharedAddress { first, second: rank, address: *address });
            }
        }
        match self.multicast {
            Some(multicast) if !multicast.fits() || bound.ip().is_unspecified() => {
                Err(RuntimeError::Multicast { base: multicast.base, interface: *bound.ip() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
    }

    fn refusal(change: impl FnOnce(&mut UdpConfig)) -> String {
        let mut config = UdpConfig::new(Rank(1), 7, vec![at(1), at(2), at(3)]);
        assert!(config.check(at(2)).is_ok());
        change(&mut config);
        config.check(at(2)).expect_err("cannot work").to_string()
    }

    #[test]
    fn check__says_what_is_wrong_and_what_would_work() {
        assert_eq!(refusal(|c| c.rank = Rank(3)), "rank 3 is not among the 3 peers; ranks are numbered from 0");
        let sentence = "rank 1 is listed as 127.0.0.1:9 but is bound to 127.0.0.1:2; publish the bound address";
        assert_eq!(refusal(|c| c.peers[1] = at(9)), sentence);
        let sentence = "ranks 0 and 2 are both listed as 127.0.0.1:1; every rank needs a port of its own";
        assert_eq!(refusal(|c| c.peers[2] = at(1)), sentence);
        for base in [[224, 0, 0, 1], [239, 255, 0, 1]] {
            let multicast = Multicast { base: base.into(), port: 9 };
            assert!(refusal(|c| c.multicast = Some(multicast)).starts_with("cannot multicast to "));
        }
    }

    #[test]
    fn address__group_n_is_the_nth_after_the_base() {
        let multicast = Multicast { base: Ipv4Addr::new(239, 255, 0, 0), port: 9 };
        assert_eq!(multicast.address(GroupId(u16::MAX)), "239.255.255.255:9".parse().expect("an address"));
    }
}
