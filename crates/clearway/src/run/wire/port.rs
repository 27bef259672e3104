//! A rank's side: takes its ports before peers are known, says where it is, and opens the wire that was chosen.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clearway_ofi::{Exposure, OfiConfig, OfiError, OfiPort, OfiWire, Source, Trust, Verdict};
use clearway_proto::base::{Class, Nanos, Rank};
use clearway_proto::reliable::{self, Reliable};
use clearway_proto::wire::{Granted, Wire};
use clearway_runtime::joined::Joined;
use clearway_runtime::keys::{Identity, Keys};
use clearway_runtime::multipath::Multipath;
use clearway_runtime::shm::{ShmConfig, ShmWire};
use clearway_runtime::udp::{self, Multicast, Protection, Segmentation, UdpConfig, UdpPort, UdpWire};
use clearway_runtime::waiting::{self, Waitable, Waiting};

use super::libfabric::Libfabric;
use super::{Fabric, FabricEnd, Far, Setting, Whereabouts};
use crate::run::engine::Measure;
use crate::run::hexadecimal::{bytes_of, digits_of};
use crate::run::message::{Bind, Network, Setup};

/// Where the kernel lists devices of fabrics that are not Ethernet: InfiniBand, EFA and Omni-Path; Slingshot. Asking libfabric
/// takes some 60 ms, looking here none.
const FABRIC_DEVICES: [&str; 2] = ["/sys/class/infiniband", "/sys/class/cxi"];
/// Bytes that Ethernet (14), IPv4 (20) and UDP (8) add, as a shaped link counts them.
const UDP_OVERHEAD: u64 = 14 + 20 + 8;
/// Bytes that the wire (16) and, on the providers of Ethernet, Ethernet (14), IPv4 (20) and TCP with its time stamps (32) add.
const OFI_OVERHEAD: u64 = 16 + 14 + 20 + 32;

/// How long a queue may keep contributions to timeslices until less is sent. How much is under way is for builders to say, and six that are let in
/// at a time take 16 ms where they are 16 KiB long and ports carry 50 Mb/s. A queue kept shorter than that makes all of them share the port
/// evenly, so that none is whole before all are: four inputs and four builders completed timeslices after 29 ms with 2 ms, after 12 to 15 with 20.
const LET_IN_FOR: Nanos = Nanos::from_millis(20);

/// What a rank holds before its wire is opened.
pub(crate) struct Port {
    udp: Option<UdpPort>,
    fabric: Option<OfiPort>,
    identity: Option<Identity>,
    whereabouts: Whereabouts,
}

/// An open wire.
pub(crate) struct Opened {
    pub(crate) wire: Box<dyn Waitable>,
    /// Bytes that wire and network add to each message.
    pub(crate) overhead: u64,
    /// What becomes of each class between hosts, by [`Class::index`].
    pub(crate) classes: [Granted; Class::ALL.len()],
}

impl Port {
    /// Takes what `bind` asks for; `identity` is what this rank's keys are made with, if it has any.
    pub(crate) fn take(bind: &Bind, identity: Option<Identity>) -> Result<Self> {
        let udp = bind.far.has_udp().then(|| UdpPort::bind(bind.address)).transpose()?;
        let fabric = Self::wants_fabric(bind).then(|| OfiPort::open(fabric_config(bind)));
        let fabric = match (fabric, bind.far) {
            (Some(Ok(port)), Far::Best) if !is_isolated(&port) => Some(Err(SHARED.to_owned())),
            (fabric, _) => fabric.map(|fabric| fabric.map_err(|error: OfiError| error.to_string())),
        };
        let whereabouts = Whereabouts {
            address: udp.as_ref().map(UdpPort::address),
            card: identity.as_ref().map(|identity| identity.card().to_vec()),
            fabric: fabric.as_ref().map(|fabric| match fabric {
                Ok(port) => Fabric::End(Box::new(end_of(port))),
                Err(why) => Fabric::None(why.clone()),
            }),
        };
        Ok(Self { udp, fabric: fabric.and_then(Result::ok), identity, whereabouts })
    }

    /// Whether a rank has an end over libfabric ready.
    pub(crate) fn wants_fabric(bind: &Bind) -> bool {
        bind.far.has_fabric() || bind.far == Far::Best && has_fabric_device()
    }

    /// What to tell the conductor.
    pub(crate) fn whereabouts(&self) -> Whereabouts {
        self.whereabouts.clone()
    }

    /// Opens the wire of `setup`, and lets go of what it does not use. Gives up when the conductor of `orders` is gone.
    pub(crate) fn open(self, bind: &Bind, setup: &Setup, orders: BorrowedFd<'_>) -> Result<Opened> {
        let setting = &setup.wire;
        let near = setting.beside(bind.rank).map(|local| share_memory(bind, local, orders)).transpose()?;
        let has_keys = setting.far.has_fabric() || setting.far.has_udp() && bind.network == Network::Sealed;
        let keys = self.identity.filter(|_| has_keys).map(|identity| agree(identity, setting)).transpose()?;
        match setting.far {
            Far::Nothing => {
                let wire = near.context("a rank without any wire")?;
                let classes = wire.capabilities().classes;
                Ok(Opened { wire: Box::new(wire), overhead: 0, classes })
            }
            Far::Udp => {
                let wire = open_udp(self.udp, keys, bind, setup)?;
                let (overhead, classes) = (UDP_OVERHEAD + wire.overhead().0, wire.capabilities().classes);
                let wire = match setup.measure {
                    Measure::Congestion | Measure::Gpcnet | Measure::Broadcast => joined(near, wire, bind)?,
                    // One-sided writes are needed, and everything must arrive.
                    Measure::Timeslice => joined(near, reliable(wire, setting)?, bind)?,
                };
                Ok(Opened { wire, overhead, classes })
            }
            Far::Ofi => {
                let wire = open_fabric(self.fabric, keys.as_ref(), bind, setting)?;
                let classes = wire.capabilities().classes;
                Ok(Opened { wire: joined(near, wire, bind)?, overhead: OFI_OVERHEAD, classes })
            }
            Far::Both => {
                let fabric = open_fabric(self.fabric, keys.as_ref(), bind, setting)?;
                let udp = open_udp(self.udp, keys, bind, setup)?;
                let overhead = OFI_OVERHEAD.max(UDP_OVERHEAD + udp.overhead().0);
                let wire = Multipath::new(fabric, udp, waiting(bind.network))?;
                let classes = wire.capabilities().classes;
                Ok(Opened { wire: joined(near, reliable(wire, setting)?, bind)?, overhead, classes })
            }
            Far::Best => bail!("the conductor has not chosen a wire; this is a defect of the program"),
        }
    }
}

/// Why a fabric is not taken unless it was asked for.
const SHARED: &str = "its best provider runs over a network that others can reach, and seals nothing";

fn has_fabric_device() -> bool {
    let has_entry = |path: &str| Path::new(path).read_dir().is_ok_and(|mut entries| entries.next().is_some());
    FABRIC_DEVICES.into_iter().any(has_entry)
}

fn fabric_config(bind: &Bind) -> OfiConfig {
    OfiConfig {
        source: Source::Address(IpAddr::V4(*bind.address.ip())),
        placement: match bind.network.is_one_machine() {
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
    let (provider, domain) = port.taken().map(|taken| (taken.provider.clone(), taken.domain.clone())).unzip();
    FabricEnd {
        address,
        provider: provider.unwrap_or_default(),
        domain: domain.unwrap_or_default(),
        library: format!("libfabric {} ({})", port.library().version, port.library().path.display()),
        isolated: is_isolated(port),
        judged: port
            .judged()
            .iter()
            .filter(|judged| judged.verdict != Verdict::Behind)
            .map(ToString::to_string)
            .collect(),
    }
}

/// How ranks on `network` wait.
const fn waiting(network: Network) -> Waiting {
    match network {
        // Many hosts share this machine's processors: one that spins would take them from the others. Nor could it see whether
        // one is free, among the threads that keep them awake.
        Network::Lab => Waiting::Sleep,
        Network::Machine | Network::Sealed | Network::Insecure => Waiting::Adaptive,
    }
}

/// As long as `orders` is silent: what comes next is an order to a rank whose wire is open, or the end of the conductor.
fn share_memory(bind: &Bind, local: Vec<Rank>, orders: BorrowedFd<'_>) -> Result<ShmWire> {
    let mut config = ShmConfig::new(bind.rank, bind.session, local);
    config.while_silent = Some(Arc::new(orders.try_clone_to_owned().context("what brings orders")?));
    config.waiting = waiting(bind.network);
    ShmWire::open(config).context("ranks of one host cannot share memory (--wire udp does without)")
}

/// `far`, beside `near` if there is one.
fn joined<F: Waitable + waiting::Source + 'static>(
    near: Option<ShmWire>,
    far: F,
    bind: &Bind,
) -> Result<Box<dyn Waitable>> {
    Ok(match near {
        Some(near) => Box::new(Joined::new(near, far, waiting(bind.network))?),
        None => Box::new(far),
    })
}

fn open_udp(port: Option<UdpPort>, keys: Option<Keys>, bind: &Bind, setup: &Setup) -> Result<UdpWire> {
    let setting = &setup.wire;
    let peers = setting.peers.iter().map(|peer| peer.address).collect::<Option<Vec<_>>>();
    let mut config = UdpConfig::new(bind.rank, bind.session, peers.context("a rank without an address")?);
    config.waiting = waiting(bind.network);
    // Sealed groups need keys of their own, which nobody hands out yet.
    if matches!(setup.measure, Measure::Broadcast | Measure::Congestion) && bind.network != Network::Sealed {
        config.multicast = Some(multicast(bind.session));
    }
    match bind.network {
        Network::Lab => {
            config.placement = udp::Placement::OneMachine;
            // A queue must see the packets that a real network would see. Casts let the ports cut what they do not take whole.
            if setup.measure != Measure::Broadcast {
                config.segmentation = Segmentation::RealPackets;
            }
        }
        Network::Machine => config.placement = udp::Placement::OneMachine,
        Network::Insecure => config.protection = Protection::Insecure,
        Network::Sealed => {
            config.protection = Protection::Keys(keys.context("keys that were not made")?);
        }
    }
    Ok(UdpWire::open([port.context("an address that was not taken")?], config)?)
}

/// Where the groups of a job live that has the number `session`: two jobs seldom meet, and where they do they are strangers.
const fn multicast(session: u64) -> Multicast {
    let [low, high, port, ..] = session.to_le_bytes();
    // The upper half of the administratively scoped addresses (RFC 2365); ports from 20,000 on are seldom anybody's.
    Multicast { base: Ipv4Addr::new(239, 128 | high & 63, low, 0), port: 20_000 + port as u16 }
}

/// What carries timeslices.
fn reliable<W: Wire>(wire: W, setting: &Setting) -> Result<Reliable<W>> {
    let ranks = setting.peers.len() as u32;
    let mut config = reliable::Config::of(ranks);
    config.allowance[Class::Bulk.index()] = LET_IN_FOR;
    Reliable::new(wire, ranks, &config, 0).map_err(|missing| anyhow!("reliable messages: {missing}"))
}

fn agree(identity: Identity, setting: &Setting) -> Result<Keys> {
    let cards: Vec<&[u8]> = setting.peers.iter().map(|peer| peer.card.as_deref().unwrap_or(&[])).collect();
    Ok(identity.agree(&cards)?)
}

fn open_fabric(port: Option<OfiPort>, keys: Option<&Keys>, bind: &Bind, setting: &Setting) -> Result<Libfabric> {
    let address = |peer: &Whereabouts| match &peer.fabric {
        Some(Fabric::End(end)) => bytes_of(&end.address),
        _ => None,
    };
    let peers = setting.peers.iter().map(address).collect::<Option<Vec<_>>>().context("a rank without an end")?;
    let port = port.context("an end that was not opened")?;
    let trust = match keys {
        Some(keys) => Trust::Proofs(keys.proofs()),
        None => Trust::Session(bind.session),
    };
    Ok(Libfabric::new(OfiWire::open(port, bind.rank, &trust, &peers)?, waiting(bind.network)))
}
