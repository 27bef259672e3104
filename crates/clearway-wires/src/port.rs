//! A rank takes its ports before its peers are known, says where it is, and opens the wire that the
//! coordinator chose.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use clearway_ofi::{
    Exposure, OfferVerdict, OfiConfig, OfiError, OfiPort, OfiWire, ProviderInterface, Trust,
};
use clearway_proto::base::{Class, Nanos, Rank};
use clearway_proto::reliable::{self, ReliableWire};
use clearway_proto::wire::{Granted, Wire};
use clearway_runtime::RuntimeError;
use clearway_runtime::joined::JoinedWire;
use clearway_runtime::keys::{JobKeys, RankKeyPair};
use clearway_runtime::multipath::MultipathWire;
use clearway_runtime::shm::{ShmConfig, ShmWire};
use clearway_runtime::udp::{
    self, Multicast, PeerMove, PeerMoves, Protection, Segmentation, UdpConfig, UdpPort, UdpWire,
};
use clearway_runtime::waiting::{self, Waitable, Waiting};

use crate::hexadecimal::{bytes_of, digits_of};
use crate::{
    EndLocation, FabricAccess, FabricEnd, Libfabric, Network, PortRequest, RemoteTransport,
    WireNeeds, WireSetup, WiresError,
};

/// Where the kernel lists devices of fabrics that are not Ethernet: InfiniBand, EFA and Omni-Path;
/// Slingshot. Asking libfabric takes some 60 ms, looking here none.
const FABRIC_DEVICES: [&str; 2] = ["/sys/class/infiniband", "/sys/class/cxi"];
/// Bytes that Ethernet (14), IPv4 (20) and UDP (8) add, as a shaped link counts them.
const UDP_OVERHEAD: u64 = 14 + 20 + 8;
/// Bytes that the wire (16) and, on the providers of Ethernet, Ethernet (14), IPv4 (20) and TCP
/// with its time stamps (32) add.
const OFI_OVERHEAD: u64 = 16 + 14 + 20 + 32;

/// How long a queue may keep contributions to timeslices until less is sent. How much is under way
/// is for builders to say, and six that are let in at a time take 16 ms where they are 16 KiB long
/// and ports carry 50 Mb/s. A queue kept shorter than that makes all of them share the port evenly,
/// so that none is whole before all are: four inputs and four builders completed timeslices after
/// 29 ms with 2 ms, after 12 to 15 with 20.
const LET_IN_FOR: Nanos = Nanos::from_millis(20);

/// How long the acknowledgement of a short write waits: a program that is asked answers within, and
/// several writes are acknowledged together. An acknowledgement takes the processor for 3 us, as
/// long as an answer (measured on a virtual network).
const ANSWERED_WITHIN: Nanos = Nanos::from_micros(100);

/// What a rank holds before its wire is opened.
pub struct RankPort {
    udp: Option<UdpPort>,
    fabric: Option<OfiPort>,
    identity: Option<RankKeyPair>,
    location: EndLocation,
    moves: PeerMoves,
}

/// Tells an open wire where peers are whose processes are other ones now. Wires over UDP alone
/// follow.
#[derive(Clone, Debug, Default)]
pub struct PeerMover(PeerMoves);

impl PeerMover {
    /// Lets the wire take `rank` for the process at `location` from its next look on.
    pub fn announce(&self, rank: Rank, location: EndLocation) {
        let EndLocation { address, card, epoch, .. } = location;
        if let Some(address) = address {
            let card = card.map(|card| (epoch, card));
            self.0.announce(PeerMove { rank, address, card });
        }
    }
}

/// An open wire.
pub struct OpenWire {
    /// The wire, which can be waited for.
    pub wire: Box<dyn Waitable + Send>,
    /// Bytes that wire and network add to each message.
    pub overhead: u64,
    /// What becomes of each class between hosts, by [`Class::index`].
    pub classes: [Granted; Class::ALL.len()],
    /// The way to tell it of peers that are other processes.
    pub mover: PeerMover,
}

impl RankPort {
    /// Takes the ports that `request` asks for; `identity` is what this rank's keys are made with,
    /// if it has any.
    pub fn take(request: &PortRequest, identity: Option<RankKeyPair>) -> Result<Self, WiresError> {
        let udp = request.far.has_udp().then(|| UdpPort::bind(request.address)).transpose()?;
        let fabric = Self::wants_fabric(request).then(|| OfiPort::open(fabric_config(request)));
        let fabric = match (fabric, request.far) {
            (Some(Ok(port)), RemoteTransport::Best)
                if request.network != Network::Lab && !is_isolated(&port) =>
            {
                Some(Err(SHARED.to_owned()))
            }
            (fabric, _) => fabric.map(|fabric| fabric.map_err(|error: OfiError| error.to_string())),
        };
        let location = EndLocation {
            address: udp.as_ref().map(UdpPort::address),
            card: identity.as_ref().map(|identity| identity.card().to_vec()),
            epoch: request.incarnation,
            fabric: fabric.as_ref().map(|fabric| match fabric {
                Ok(port) => FabricAccess::End(Box::new(end_of(port))),
                Err(why) => FabricAccess::None(why.clone()),
            }),
        };
        let moves = PeerMoves::default();
        Ok(Self { udp, fabric: fabric.and_then(Result::ok), identity, location, moves })
    }

    /// Returns whether `request` makes a rank open an end on libfabric.
    pub fn wants_fabric(request: &PortRequest) -> bool {
        request.far.has_fabric()
            || request.far == RemoteTransport::Best
                && (request.network == Network::Lab || has_fabric_device())
    }

    /// Returns what the coordinator needs to know of this rank.
    pub fn location(&self) -> EndLocation {
        self.location.clone()
    }

    /// Opens the wire of `setup` and closes what it does not use. Gives up when the coordinator
    /// behind `orders` is gone.
    ///
    /// # Errors
    /// A sentence: what was refused, or which of the wires cannot be opened here.
    pub fn open(
        self,
        request: &PortRequest,
        setup: &WireSetup,
        orders: BorrowedFd<'_>,
    ) -> Result<OpenWire, WiresError> {
        let near = setup
            .sharing_memory_with(request.rank)
            .map(|local| share_memory(request, local, orders))
            .transpose()?;
        let mover = PeerMover(self.moves.clone());
        let has_keys =
            setup.far.has_fabric() || setup.far.has_udp() && request.network == Network::Sealed;
        let keys = self
            .identity
            .filter(|_| has_keys)
            .map(|identity| agree(identity, setup))
            .transpose()?;
        match setup.far {
            RemoteTransport::Nothing => {
                let wire = near.ok_or(WiresError::Setup("a rank has no wire"))?;
                let classes = wire.capabilities().classes;
                Ok(OpenWire { wire: Box::new(wire), overhead: 0, classes, mover })
            }
            RemoteTransport::Udp => {
                let wire = open_udp((self.udp, self.moves), keys, request, setup)?;
                let (overhead, classes) =
                    (UDP_OVERHEAD + wire.overhead().0, wire.capabilities().classes);
                let wire = match setup.need {
                    WireNeeds::Packets | WireNeeds::Datagrams => joined(near, wire, request)?,
                    // One-sided writes are needed, and everything must arrive.
                    WireNeeds::Writes | WireNeeds::ShortWrites => {
                        joined(near, reliable(wire, setup)?, request)?
                    }
                };
                Ok(OpenWire { wire, overhead, classes, mover })
            }
            RemoteTransport::Ofi => {
                let wire = open_fabric(self.fabric, keys.as_ref(), request, setup)?;
                let classes = wire.capabilities().classes;
                let wire = joined(near, wire, request)?;
                Ok(OpenWire { wire, overhead: OFI_OVERHEAD, classes, mover })
            }
            RemoteTransport::Both => {
                let fabric = open_fabric(self.fabric, keys.as_ref(), request, setup)?;
                let udp = open_udp((self.udp, self.moves), keys, request, setup)?;
                let overhead = OFI_OVERHEAD.max(UDP_OVERHEAD + udp.overhead().0);
                let wire = MultipathWire::new(fabric, udp, waiting(request.network))?;
                let classes = wire.capabilities().classes;
                Ok(OpenWire {
                    wire: joined(near, reliable(wire, setup)?, request)?,
                    overhead,
                    classes,
                    mover,
                })
            }
            RemoteTransport::Best => {
                Err(WiresError::Setup("the coordinator has not chosen a wire"))
            }
        }
    }
}

/// Why a fabric is not taken unless it was asked for.
const SHARED: &str =
    "its best provider runs over a network that others can reach, and seals nothing";

fn has_fabric_device() -> bool {
    let has_entry =
        |path: &str| Path::new(path).read_dir().is_ok_and(|mut entries| entries.next().is_some());
    FABRIC_DEVICES.into_iter().any(has_entry)
}

fn fabric_config(request: &PortRequest) -> OfiConfig {
    OfiConfig {
        source: ProviderInterface::Address(IpAddr::V4(*request.address.ip())),
        placement: match request.network.is_one_machine() {
            true => clearway_ofi::Placement::OneMachine,
            false => clearway_ofi::Placement::ManyMachines,
        },
        ..OfiConfig::default()
    }
}

fn is_isolated(port: &OfiPort) -> bool {
    port.taken().is_some_and(|taken| taken.exposure == Exposure::Isolated)
}

fn end_of(port: &OfiPort) -> FabricEnd {
    let address = digits_of(&port.address());
    let (provider, domain) =
        port.taken().map(|taken| (taken.provider.clone(), taken.domain.clone())).unzip();
    FabricEnd {
        address,
        provider: provider.unwrap_or_default(),
        domain: domain.unwrap_or_default(),
        library: format!(
            "libfabric {} ({})",
            port.library().version,
            port.library().path.display()
        ),
        isolated: is_isolated(port),
        judged: port
            .judged()
            .iter()
            .filter(|judged| judged.verdict != OfferVerdict::Behind)
            .map(ToString::to_string)
            .collect(),
    }
}

/// Returns how ranks on `network` wait.
const fn waiting(network: Network) -> Waiting {
    match network {
        // Many hosts share this machine's processors: one that spins would take them from the
        // others. Nor could it see whether one is free, among the threads that keep them awake.
        Network::Lab => Waiting::Sleep,
        Network::Machine | Network::Sealed | Network::Insecure => Waiting::Adaptive,
    }
}

/// Shares memory as long as `orders` is silent: what comes next is an order to a rank whose wire is
/// open, or the end of the coordinator.
fn share_memory(
    request: &PortRequest,
    local: Vec<Rank>,
    orders: BorrowedFd<'_>,
) -> Result<ShmWire, WiresError> {
    let mut config = ShmConfig::new(request.rank, request.session, local);
    config.while_silent = Some(Arc::new(
        orders
            .try_clone_to_owned()
            .map_err(|cause| RuntimeError::System { what: "duplicate a descriptor", cause })?,
    ));
    config.waiting = waiting(request.network);
    ShmWire::open(config).map_err(WiresError::Memory)
}

/// Returns `far`, joined with `near` if there is one.
fn joined<F: Waitable + waiting::WaitSource + Send + 'static>(
    near: Option<ShmWire>,
    far: F,
    request: &PortRequest,
) -> Result<Box<dyn Waitable + Send>, WiresError> {
    Ok(match near {
        Some(near) => Box::new(JoinedWire::new(near, far, waiting(request.network))?),
        None => Box::new(far),
    })
}

fn open_udp(
    (port, moves): (Option<UdpPort>, PeerMoves),
    keys: Option<JobKeys>,
    request: &PortRequest,
    setup: &WireSetup,
) -> Result<UdpWire, WiresError> {
    let peers = setup.peers.iter().map(|peer| peer.address).collect::<Option<Vec<_>>>();
    let mut config = UdpConfig::new(
        request.rank,
        request.session,
        peers.ok_or(WiresError::Setup("a rank has no address"))?,
    );
    (config.waiting, config.moves) = (waiting(request.network), moves);
    // Sealed groups need keys of their own, which nobody hands out yet.
    if !needs_all(setup.need) && request.network != Network::Sealed {
        config.multicast = Some(multicast(request.session));
    }
    match request.network {
        Network::Lab => {
            config.placement = udp::Placement::OneMachine;
            // A queue must see the packets that a real network would see. Casts let the ports cut
            // what they do not take whole.
            if setup.need != WireNeeds::Datagrams {
                config.segmentation = Segmentation::RealPackets;
            }
        }
        Network::Machine => config.placement = udp::Placement::OneMachine,
        Network::Insecure => config.protection = Protection::Insecure,
        Network::Sealed => {
            config.protection =
                Protection::Keys(keys.ok_or(WiresError::Setup("a rank has no keys"))?);
        }
    }
    Ok(UdpWire::open([port.ok_or(WiresError::Setup("a rank has no port"))?], config)?)
}

/// Returns where the groups of a job live that has the number `session`: two jobs seldom meet, and
/// where they do they are strangers.
const fn multicast(session: u64) -> Multicast {
    let [low, high, port, ..] = session.to_le_bytes();
    // The upper half of the administratively scoped addresses (RFC 2365); ports from 20,000 on are
    // seldom anybody's.
    Multicast { base: Ipv4Addr::new(239, 128 | high & 63, low, 0), port: 20_000 + port as u16 }
}

/// Returns whether everything must arrive.
const fn needs_all(need: WireNeeds) -> bool {
    matches!(need, WireNeeds::Writes | WireNeeds::ShortWrites)
}

/// Returns the wire that carries timeslices, and elements of OpenSHMEM.
fn reliable<W: Wire>(wire: W, setup: &WireSetup) -> Result<ReliableWire<W>, WiresError> {
    let ranks = setup.peers.len() as u32;
    let mut config = reliable::StreamConfig::new(ranks);
    config.allowance[Class::Bulk.index()] = LET_IN_FOR;
    if setup.need == WireNeeds::ShortWrites {
        config.answer_soon = ANSWERED_WITHIN;
    }
    ReliableWire::new(wire, ranks, &config, setup.incarnation).map_err(WiresError::Reliable)
}

fn agree(identity: RankKeyPair, setup: &WireSetup) -> Result<JobKeys, WiresError> {
    let cards: Vec<(&[u8], u32)> =
        setup.peers.iter().map(|peer| (peer.card.as_deref().unwrap_or(&[]), peer.epoch)).collect();
    Ok(identity.agree_across(&cards)?)
}

fn open_fabric(
    port: Option<OfiPort>,
    keys: Option<&JobKeys>,
    request: &PortRequest,
    setup: &WireSetup,
) -> Result<Libfabric, WiresError> {
    let address = |peer: &EndLocation| match &peer.fabric {
        Some(FabricAccess::End(end)) => bytes_of(&end.address),
        _ => None,
    };
    let peers = setup
        .peers
        .iter()
        .map(address)
        .collect::<Option<Vec<_>>>()
        .ok_or(WiresError::Setup("a rank has no end on libfabric"))?;
    let port = port.ok_or(WiresError::Setup("a rank opened no end on libfabric"))?;
    let trust = match keys {
        Some(keys) => Trust::Proofs(keys.proofs()),
        None => Trust::Session(request.session),
    };
    Ok(Libfabric::new(OfiWire::open(port, request.rank, &trust, &peers)?, waiting(request.network)))
}
