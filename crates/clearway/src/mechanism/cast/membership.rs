//! One member's end of the broadcast: its port, its keys, its wire and the engine's configuration.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use clearway_proto::base::{BitsPerSec, Bytes, Class, GroupId, Nanos, Rank};
use clearway_proto::broadcast::{Algorithm, BroadcastConfig, BroadcastNode, Member, SlowReceivers};
use clearway_proto::wire::{Driver, RegionId, Span, Wire};
use clearway_runtime::clock;
use clearway_runtime::keys::{JobSecret, KeyScope, RankKeyPair};
use clearway_runtime::udp::{Multicast, Placement, Protection, UdpConfig, UdpPort, UdpWire};

use super::message::{BroadcastMembership, MemberAddress, MemberNetwork};
use super::record::OBJECT_MAX;
use clearway_wires::hexadecimal::{bytes_of, digits_of};

/// Objects that a member has memory for: one is read or written, one is on its way, the others are
/// waited for.
pub(super) const PLACES: usize = 4;
/// The rank that sends.
pub(super) const ROOT: Rank = Rank(0);
/// The group of a cast, where there is one.
const GROUP: GroupId = GroupId(0);
/// The keys of the broadcast are others than those of the connections.
const EPOCH: u32 = 1;
/// Symbols under way to the slowest member at most: 5.6 MB, so that nobody stops while a processor
/// is busy with others.
const WINDOW: u32 = 4096;
/// The rate at which a cast begins: what any cluster has. At ten times as much it is after some
/// hundredths of a second.
const FIRST_RATE: BitsPerSec = BitsPerSec::mega(100);
/// Symbols that are remembered, so that a member that is behind is served by its neighbours.
const HISTORY: u32 = 2 * WINDOW;
/// Short objects that a member has room for: ends of streams and of small trees.
const SLOTS: u32 = 64;
/// Short objects between two synchronisations.
const SYNC_EVERY: u32 = 16;
/// A member that says nothing for so long is put out. A process that ends is known from its
/// connection at once; this is for one that is stopped, or a host that hangs.
const SILENCE: Nanos = Nanos::from_secs(30);

/// A port, before others are known.
pub(super) struct MemberPort {
    seat: BroadcastMembership,
    port: UdpPort,
    identity: Option<RankKeyPair>,
    card: String,
}

/// An open end.
pub(super) struct MemberEnd {
    pub(super) wire: UdpWire,
    seat: BroadcastMembership,
    members: u32,
}

impl MemberPort {
    /// Takes a port for `seat`; `secret` is what all members know.
    ///
    /// # Errors
    /// One sentence: the address is none of this host's, for example.
    pub(super) fn take(seat: BroadcastMembership, secret: &[u8]) -> Result<Self> {
        let port = UdpPort::bind(SocketAddrV4::new(seat.address, 0))?;
        let identity = match seat.network {
            MemberNetwork::Loopback => None,
            MemberNetwork::Sealed => {
                let secret = Some(JobSecret::new(secret.to_vec())?);
                Some(RankKeyPair::new(
                    Rank(seat.rank),
                    KeyScope { session: seat.session, epoch: EPOCH, secret },
                )?)
            }
        };
        let card =
            identity.as_ref().map_or_else(String::new, |identity| digits_of(&identity.card()));
        Ok(Self { seat, port, identity, card })
    }

    /// Returns what the others must know.
    pub(super) fn place(&self) -> MemberAddress {
        MemberAddress { address: self.port.address(), card: self.card.clone() }
    }

    /// Opens the wire to `places`, all members by rank.
    ///
    /// # Errors
    /// One sentence: a card that is wrong, or a system that refuses.
    pub(super) fn open(self, places: &[MemberAddress]) -> Result<MemberEnd> {
        let Self { seat, port, identity, .. } = self;
        let peers = places.iter().map(|place| place.address).collect();
        let mut config = UdpConfig::new(Rank(seat.rank), seat.session, peers);
        match identity {
            None => config.placement = Placement::OneMachine,
            Some(identity) => {
                let cards =
                    places.iter().map(|place| bytes_of(&place.card)).collect::<Option<Vec<_>>>();
                config.protection =
                    Protection::Keys(identity.agree(&cards.context("a card that is none")?)?);
            }
        }
        config.multicast =
            seat.group.map(|group| Multicast { base: *group.ip(), port: group.port() });
        let mut wire = UdpWire::open([port], config)?;
        if seat.group.is_some() && Rank(seat.rank) != ROOT {
            // A member that cannot join hears nothing from the group, and the cast finds another
            // way. The root would only get back what it sends.
            let _ = wire.join(GROUP);
        }
        Ok(MemberEnd { wire, seat, members: places.len() as u32 })
    }
}

impl MemberEnd {
    /// Returns the key of the group, for each other member; nothing where there is none, or no need
    /// of one.
    ///
    /// # Errors
    /// A system without randomness.
    pub(super) fn group_keys(&mut self) -> Result<Option<Vec<String>>> {
        if self.seat.group.is_none() || self.seat.network == MemberNetwork::Loopback {
            return Ok(None);
        }
        let members: Vec<Rank> = (1..self.members).map(Rank).collect();
        let sealed = self.wire.renew_group(GROUP, &members)?;
        Ok(Some(sealed.iter().map(|key| digits_of(key)).collect()))
    }

    /// Takes the key of the group.
    ///
    /// # Errors
    /// It is none, or not the root's.
    pub(super) fn take_group_key(&mut self, key: &str) -> Result<()> {
        let key = bytes_of(key).context("a key that is none")?;
        Ok(self.wire.accept_group(ROOT, &key).map(drop)?)
    }

    /// Sets up memory for [`PLACES`] objects and for short ones, and the engine.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn start(&mut self) -> Result<(RegionId, Driver<BroadcastNode>)> {
        let symbol = BroadcastConfig::symbol_max(self.wire.capabilities())
            .context("a wire that cannot broadcast")?;
        let no_memory = |missing| anyhow!("memory for objects: {missing}");
        let region = self.wire.register(Bytes((PLACES * OBJECT_MAX) as u64)).map_err(no_memory)?;
        let length = SLOTS * symbol;
        let slots = self.wire.register(Bytes(length.into())).map_err(no_memory)?;
        let members: Arc<[Member]> =
            (0..self.members).map(|rank| Member { rank: Rank(rank), leaf: 0 }).collect();
        let group = self.seat.group.map(|_| GROUP);
        let node = BroadcastNode::new(BroadcastConfig {
            rank: Rank(self.seat.rank),
            members,
            root: ROOT,
            group,
            key: self.seat.key,
            symbol,
            window: WINDOW,
            history: HISTORY,
            slots: Span { region: slots, offset: 0, length },
            rate: self.seat.rate.map(BitsPerSec),
            first_rate: Some(FIRST_RATE),
            sync_every: SYNC_EVERY,
            silence: SILENCE,
            slow_receivers: SlowReceivers::Wait,
            algorithm: if group.is_some() { Algorithm::Multicast } else { Algorithm::Chain },
            class: self.seat.class,
            control: Class::Control,
        });
        Ok((region, Driver::boot(node, clock::now(), 0)))
    }
}

/// Returns where the object number `place` of a member's memory lies.
pub(super) const fn place_of(region: RegionId, place: usize, length: usize) -> Span {
    Span { region, offset: (place * OBJECT_MAX) as u64, length: length as u32 }
}

/// Returns the group of a cast with this number, on networks that have one: organisation-local
/// addresses (RFC 2365), which stay in the network as the wire sends them with one hop.
pub(super) fn group(session: u64, address: Ipv4Addr) -> Option<SocketAddrV4> {
    let [low, high, port_low, port_high, ..] = session.to_le_bytes();
    let port = 49152 + u16::from_le_bytes([port_low, port_high]) % 16384;
    (!address.is_loopback()).then(|| SocketAddrV4::new(Ipv4Addr::new(239, 192, low, high), port))
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::LocalNs;
    use clearway_proto::broadcast::{BroadcastCommand, BroadcastEvent};

    use super::*;

    const SECRET: &[u8] = b"sixteen bytes at least";

    fn seat(rank: u32, network: MemberNetwork, group: Option<SocketAddrV4>) -> BroadcastMembership {
        BroadcastMembership {
            session: 7,
            rank,
            address: Ipv4Addr::LOCALHOST,
            network,
            group,
            key: 9,
            rate: None,
            class: Class::Bulk,
        }
    }

    /// One object from the first member to all others.
    fn broadcast(network: MemberNetwork, group: Option<SocketAddrV4>) {
        let port = |rank| MemberPort::take(seat(rank, network, group), SECRET).expect("a port");
        let ports: Vec<MemberPort> = (0..3).map(port).collect();
        let places: Vec<MemberAddress> = ports.iter().map(MemberPort::place).collect();
        let mut ends: Vec<MemberEnd> =
            ports.into_iter().map(|port| port.open(&places).expect("agreed")).collect();
        if let Some(keys) = ends[0].group_keys().expect("random") {
            ends[1..]
                .iter_mut()
                .zip(keys)
                .for_each(|(end, key)| end.take_group_key(&key).expect("the root's"));
        }
        let mut members: Vec<_> = ends.iter_mut().map(|end| end.start().expect("memory")).collect();
        let object: Vec<u8> = (0..100_000_u32).map(|at| (at / 7) as u8).collect();
        let from = place_of(members[0].0, 0, object.len());
        ends[0].wire.region_mut(from.region).expect("its own")[..object.len()]
            .copy_from_slice(&object);
        members[0].1.command(LocalNs(0), BroadcastCommand::Cast { from });
        for (region, driver) in &mut members[1..] {
            driver.command(
                LocalNs(0),
                BroadcastCommand::Place { into: place_of(*region, 0, OBJECT_MAX) },
            );
        }
        let mut stable = [false; 3];
        while stable != [true; 3] {
            for ((_, driver), (end, stable)) in
                members.iter_mut().zip(ends.iter_mut().zip(&mut stable))
            {
                driver.step(&mut end.wire, &mut |event| match event {
                    BroadcastEvent::Stable { .. } => *stable = true,
                    BroadcastEvent::Aborted { .. }
                    | BroadcastEvent::Out
                    | BroadcastEvent::Lost { .. } => {
                        panic!("{event:?}")
                    }
                    _ => {}
                });
            }
        }
        for (end, (region, _)) in ends.iter().zip(&members).skip(1) {
            assert!(end.wire.region(*region).expect("its own")[..object.len()] == object);
        }
    }

    #[test]
    fn open__members_hear_each_other_plain_and_sealed() {
        broadcast(MemberNetwork::Loopback, None);
        broadcast(MemberNetwork::Sealed, None);
    }

    #[test]
    fn group_keys__members_hear_the_group_or_find_another_way() {
        let group = Some(SocketAddrV4::new(Ipv4Addr::new(239, 192, 77, 1), 51_234));
        broadcast(MemberNetwork::Loopback, group);
        broadcast(MemberNetwork::Sealed, group);
    }

    #[test]
    fn open__a_card_made_with_another_secret_is_refused() {
        let sealed = |rank, secret| {
            MemberPort::take(seat(rank, MemberNetwork::Sealed, None), secret).expect("a port")
        };
        let (own, stranger) = (sealed(0, SECRET), sealed(1, b"another sixteen bytes"));
        let places = [own.place(), stranger.place()];
        assert!(own.open(&places).is_err());
    }

    #[test]
    fn group__is_nothing_on_the_loopback() {
        assert_eq!(group(0x0403_0201, Ipv4Addr::LOCALHOST), None);
        assert_eq!(
            group(0x0403_0201, Ipv4Addr::new(10, 0, 0, 1)),
            "239.192.1.2:50179".parse().ok()
        );
    }
}
