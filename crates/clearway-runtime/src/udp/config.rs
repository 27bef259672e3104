//! What must be known to open a UDP wire, and the checks that it makes sense.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use clearway_proto::base::{GroupId, Rank};

use super::frame::RAILS_MAX;
use super::moves::PeerMoves;
use super::socket::SocketBuffers;
use super::transmit::Segmentation;
use crate::keys::JobKeys;
use crate::waiting::Waiting;
use crate::{JobMember, RuntimeError};

/// Where the ranks of a job run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All on this machine (virtual hosts included): they read one clock, and stamps may be
    /// compared.
    OneMachine,
    /// On several machines, each with its own clock.
    ManyMachines,
}

/// What keeps strangers from reading and forging a wire's datagrams.
#[derive(Debug)]
pub enum Protection {
    /// Nothing. Enough on one machine, virtual hosts included, and refused between machines.
    OnOneMachine,
    /// Each datagram is sealed. The keys belong to this wire alone.
    Keys(JobKeys),
    /// Nothing, between machines as well: anybody who reaches the network can forge messages.
    /// Damage on the way is found by the checksums of UDP and of each link only; a further one
    /// would cost half of what sealing does and keep nobody out.
    Insecure,
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
    /// Returns the address of `group`.
    pub(super) fn address(self, group: GroupId) -> SocketAddrV4 {
        SocketAddrV4::new(
            Ipv4Addr::from(u32::from(self.base).saturating_add(u32::from(group.0))),
            self.port,
        )
    }

    /// Returns whether the groups fit: administratively scoped addresses are 239.0.0.0/8 (RFC
    /// 2365); 65,536 groups must fit behind the base.
    fn fits(self) -> bool {
        self.base >= Ipv4Addr::new(239, 0, 0, 0) && self.base <= Ipv4Addr::new(239, 255, 0, 0)
    }
}

/// One rank's part in a job over UDP.
#[derive(Debug)]
pub struct UdpConfig {
    /// This end's rank.
    pub rank: Rank,
    /// The job's number: datagrams of another one are dropped. It keeps jobs apart, not attackers
    /// out.
    pub session: u64,
    /// The addresses of all ranks by number, this one's included, on each rail: each rail is a
    /// network of its own, and a path of the wire.
    pub rails: Vec<Vec<SocketAddrV4>>,
    /// Multicast, if the job uses it; on the first rail.
    pub multicast: Option<Multicast>,
    /// Sizes of socket buffers.
    pub buffers: SocketBuffers,
    /// How to wait.
    pub waiting: Waiting,
    /// Where the ranks run.
    pub placement: Placement,
    /// How exposed the job's messages are: who can read and forge them.
    pub protection: Protection,
    /// Whether runs of messages leave as one large packet.
    pub segmentation: Segmentation,
    /// How the wire hears of peers that are other processes now.
    pub moves: PeerMoves,
}

impl UdpConfig {
    /// Creates the configuration of a job on several machines over one rail without multicast, with
    /// default buffers, adaptive waiting and segmentation offload. Unless all its addresses are of
    /// the loopback, it needs keys, another placement, or to be called insecure.
    pub fn new(rank: Rank, session: u64, peers: Vec<SocketAddrV4>) -> Self {
        Self {
            rank,
            session,
            rails: vec![peers],
            multicast: None,
            buffers: SocketBuffers::default(),
            waiting: Waiting::Adaptive,
            placement: Placement::ManyMachines,
            protection: Protection::OnOneMachine,
            segmentation: Segmentation::Offload,
            moves: PeerMoves::default(),
        }
    }

    /// Finds what cannot work, before a socket is touched.
    pub(super) fn check(&self, bound: &[SocketAddrV4]) -> Result<(), RuntimeError> {
        let (rails, ranks) = (self.rails.len(), self.ranks());
        if !(1..=RAILS_MAX).contains(&rails)
            || bound.len() != rails
            || self.rails.iter().any(|rail| rail.len() != ranks)
        {
            return Err(RuntimeError::Rails { rails, ports: bound.len(), most: RAILS_MAX });
        }
        let mut ranks_by_address = BTreeMap::new();
        for (rail, bound) in self.rails.iter().zip(bound) {
            self.check_own(rail, *bound)?;
            for (rank, address) in (0..).map(Rank).zip(rail) {
                if let Some(first) = ranks_by_address.insert(address, rank) {
                    return Err(RuntimeError::SharedAddress {
                        first,
                        second: rank,
                        address: *address,
                    });
                }
            }
        }
        self.check_protection()?;
        match (self.multicast, bound[0].ip()) {
            (Some(multicast), interface) if !multicast.fits() || interface.is_unspecified() => {
                Err(RuntimeError::Multicast { base: multicast.base, interface: *interface })
            }
            _ => Ok(()),
        }
    }

    /// Returns how many ranks the job has.
    pub(super) fn ranks(&self) -> usize {
        self.rails.first().map_or(0, Vec::len)
    }

    fn check_own(&self, rail: &[SocketAddrV4], bound: SocketAddrV4) -> Result<(), RuntimeError> {
        let (rank, ranks) = (self.rank, rail.len());
        let listed = *rail.get(rank.index()).ok_or(RuntimeError::RankOutside { rank, ranks })?;
        if listed.port() != bound.port()
            || (listed.ip() != bound.ip() && !bound.ip().is_unspecified())
        {
            return Err(RuntimeError::OwnAddress { rank, listed, bound });
        }
        Ok(())
    }

    fn check_protection(&self) -> Result<(), RuntimeError> {
        match &self.protection {
            Protection::Keys(keys) => {
                let wire =
                    JobMember { rank: self.rank, ranks: self.ranks(), session: self.session };
                let keys = keys.member();
                if keys == wire { Ok(()) } else { Err(RuntimeError::ForeignKeys { keys, wire }) }
            }
            Protection::OnOneMachine if self.placement == Placement::ManyMachines => {
                let mut peers = self.rails.iter().flat_map(|rail| (0..).map(Rank).zip(rail));
                peers
                    .find(|(_, peer)| !peer.ip().is_loopback())
                    .map_or(Ok(()), |(rank, address)| {
                        Err(RuntimeError::Unprotected { rank, address: *address })
                    })
            }
            Protection::OnOneMachine | Protection::Insecure => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyScope, RankKeyPair};

    fn at(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
    }

    fn refusal(change: impl FnOnce(&mut UdpConfig)) -> String {
        refusal_of(&[at(2)], change)
    }

    fn refusal_of(bound: &[SocketAddrV4], change: impl FnOnce(&mut UdpConfig)) -> String {
        let mut config = UdpConfig::new(Rank(1), 7, vec![at(1), at(2), at(3)]);
        assert!(config.check(&[at(2)]).is_ok());
        change(&mut config);
        config.check(bound).expect_err("cannot work").to_string()
    }

    #[test]
    fn check__says_what_is_wrong_and_what_would_work() {
        assert_eq!(
            refusal(|c| c.rank = Rank(3)),
            "rank 3 is not among the 3 peers; ranks are numbered from 0"
        );
        let sentence = "rank 1 is listed as 127.0.0.1:9 but is bound to 127.0.0.1:2; publish the bound address";
        assert_eq!(refusal(|c| c.rails[0][1] = at(9)), sentence);
        let sentence = "ranks 0 and 2 are both listed as 127.0.0.1:1; every rank needs a port of its own on every rail";
        assert_eq!(refusal(|c| c.rails[0][2] = at(1)), sentence);
        let sentence = "ranks 1 and 1 are both listed as 127.0.0.1:2; every rank needs a port of its own on every rail";
        assert_eq!(
            refusal_of(&[at(2), at(2)], |c| c.rails.push(vec![at(4), at(2), at(6)])),
            sentence
        );
        let sentence = "2 rails and 1 ports do not fit; every rank needs an address and a port on each of at most 4 rails";
        assert_eq!(refusal(|c| c.rails.push(vec![at(4), at(5), at(6)])), sentence);
        for base in [[224, 0, 0, 1], [239, 255, 0, 1]] {
            let multicast = Multicast { base: base.into(), port: 9 };
            assert!(refusal(|c| c.multicast = Some(multicast)).starts_with("cannot multicast to "));
        }
    }

    #[test]
    fn check__messages_leave_the_machine_only_sealed_or_by_request() {
        let away = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 3);
        let sentence = "rank 2 at 10.0.0.2:3 is on another machine, and there are no keys; agree on keys through the \
                        launcher, or ask for an insecure wire";
        assert_eq!(refusal(|c| c.rails[0][2] = away), sentence);
        for change in [(|c| c.protection = Protection::Insecure) as fn(&mut UdpConfig), |c| {
            c.placement = Placement::OneMachine
        }] {
            let mut config = UdpConfig::new(Rank(1), 7, vec![at(1), at(2), away]);
            change(&mut config);
            assert!(config.check(&[at(2)]).is_ok());
        }
    }

    #[test]
    fn check__keys_of_another_job_are_refused() {
        let identity = RankKeyPair::new(Rank(0), KeyScope { session: 8, epoch: 0, secret: None })
            .expect("a key pair");
        let card = identity.card();
        let keys = identity.agree(&[card]).expect("own card");
        let sentence = "the keys are those of rank 0 of 1 in session 8, but the wire is rank 1 of 3 in session 7; agree \
                        with the cards of this job";
        assert_eq!(refusal(|c| c.protection = Protection::Keys(keys)), sentence);
    }

    #[test]
    fn address__group_n_is_the_nth_after_the_base() {
        let multicast = Multicast { base: Ipv4Addr::new(239, 255, 0, 0), port: 9 };
        assert_eq!(
            multicast.address(GroupId(u16::MAX)),
            "239.255.255.255:9".parse().expect("an address")
        );
    }
}
