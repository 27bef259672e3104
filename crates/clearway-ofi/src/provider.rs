//! Which of a library's offers a job uses, and what speaks against each of the others.
//!
//! # Model
//! Each provider that is known has a [`ProviderRule`]: where it stands in the order, what it does
//! with a class, and who can be reached. An offer is *judged* against what the caller asked for;
//! the best one that nothing speaks against is taken. The judgements are kept as data, so that a
//! person can see why a fabric was not used.
//!
//! # Source
//! Order and exclusions: measured on libfabric 1.17 and 2.x (half round trip of 64 B, `fi_write` of
//! 1 MiB): `sockets` 200 us and 7 Gb/s, officially deprecated (`fi_sockets(7)`); `udp;ofi_rxd` at
//! most 1.8 Gb/s, and in 1.17 it crashes on fetching atomics; `tcp` 6 us and 40 Gb/s; `shm` 0.3 us.
//! In 1.17 `tcp` has no reliable datagrams of its own: there `tcp;ofi_rxm` has everything, and
//! `net` is faster but without atomics (it became `tcp` in 1.18). `shm` of 2.5 lost a message of 8
//! KiB in a flood of small ones (this crate's tests), that of 1.17 did not. When a peer closes,
//! `net` of 1.17 crashes in `fi_inject`, `ofi_rxm` of 1.17 leaves some sends without an end, and
//! `tcp` of 2.5 ends all of them. Classes: `fi_cxi(7)` and the providers' sources; no provider
//! honours a DSCP, and only cxi and efa look at the class at all.
//!
//! # Invariants
//! I1. At most one offer is taken, and none that a sentence speaks against.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use clearway_proto::base::Class;
use clearway_proto::wire::Granted;

use crate::abi::*;
use crate::library::OfferFacts;

/// Which provider the caller wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProviderChoice {
    /// The best one there is.
    #[default]
    Best,
    /// This one, by libfabric's name for it (`tcp`, `verbs;ofi_rxm`).
    Named(String),
}

/// Through which interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProviderInterface {
    /// Whichever comes first. Only for a machine with one.
    #[default]
    Any,
    /// The one with this address. Providers without IP addresses are not held to it.
    Address(IpAddr),
    /// The one that libfabric calls so: an interface of the system for `tcp`, a device for others.
    Domain(String),
}

/// Where the job's ranks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// On several hosts, real or virtual.
    #[default]
    ManyHosts,
    /// All on this one.
    OneHost,
}

/// What became of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfferVerdict {
    /// This is the one.
    Taken,
    /// It would do, but another comes first.
    Behind,
    /// It will not do.
    Refused(OfferRefusal),
}

/// Why an offer will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OfferRefusal {
    /// It is known to be unfit; the sentence says how.
    Unfit(&'static str),
    /// Nothing is known of it.
    Unknown,
    /// The caller named another provider.
    NotWanted,
    /// It uses another interface than the one asked for.
    OtherInterface,
    /// It reaches this host only.
    OneHostOnly,
    /// It needs something from its user that this wire does not do.
    Mode(&'static str),
    /// It carries shorter messages than the wire's.
    TooShort,
}

impl fmt::Display for OfferVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("taken"),
            Self::Behind => f.write_str("would do, another comes first"),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl fmt::Display for OfferRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unfit(why) | Self::Mode(why) => why,
            Self::Unknown => "not known to work; name it to try",
            Self::NotWanted => "another provider was asked for",
            Self::OtherInterface => "uses another interface than the one asked for",
            Self::OneHostOnly => "reaches this host only",
            Self::TooShort => "carries too short messages",
        })
    }
}

/// An offer with what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedOffer {
    /// libfabric's name of the provider.
    pub provider: String,
    /// The interface or device.
    pub domain: String,
    /// Its IP address, if it has one.
    pub source: Option<IpAddr>,
    /// Whether it has remote atomics of its own.
    pub atomics: bool,
    /// How exposed it is: who can reach it.
    pub exposure: Exposure,
    /// What became of it.
    pub verdict: OfferVerdict,
}

impl fmt::Display for JudgedOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.provider, self.domain)?;
        if let Some(source) = self.source {
            write!(f, " ({source})")?;
        }
        write!(f, ": {}", self.verdict)
    }
}

/// How exposed an end of a fabric is: who can reach it. No provider seals what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// The hosts of the fabric, or of a part of it that its hardware keeps apart.
    Isolated,
    /// Anybody who reaches an ordinary network, as far as is known.
    Open,
}

/// What can be done about a class on a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marking {
    /// Nothing: one lane carries all classes.
    None,
    /// The provider's own: a lane for each class, opened with libfabric's number for it.
    Provider([Granted; Class::ALL.len()]),
    /// The wire marks the TCP sockets that the provider opened: a lane for each class.
    Sockets,
}

impl Marking {
    /// Returns what each class becomes.
    pub(crate) fn granted(self) -> [Granted; Class::ALL.len()] {
        match self {
            Self::None => [Granted::Ignored; Class::ALL.len()],
            Self::Provider(granted) => granted,
            Self::Sockets => [Granted::Marked; Class::ALL.len()],
        }
    }
}

/// How completion queues are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueSharing {
    /// One for all lanes: looking costs the same, however many lanes it is for.
    Shared,
    /// One for each lane: to look at a queue asks the kernel once for each lane of it.
    OfLane,
}

/// What is known of a provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProviderRule {
    name: &'static str,
    /// What its classes become.
    pub(crate) marking: Marking,
    scope: Scope,
    network: Network,
}

/// What lies under a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    /// A fabric of hosts: Slingshot (virtual networks), EFA (a placement within a private network),
    /// Omni-Path (partitions); or no network at all.
    Closed,
    /// InfiniBand, whose partitions the switches enforce, or Ethernet: the device tells.
    ByDevice,
    /// Ethernet, or not known.
    Ethernet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Fabric,
    /// This host only, and only in releases before this one (as the provider counts: 118.0 is
    /// 1.18).
    HostBefore(u32),
    Never(&'static str),
}

/// What is known, the best first.
const RULES: [ProviderRule; 11] = [
    ProviderRule {
        name: "shm",
        marking: Marking::None,
        scope: Scope::HostBefore(118 << 16),
        network: Network::Closed,
    },
    ProviderRule {
        name: "cxi",
        marking: Marking::Provider(BY_CXI),
        scope: Scope::Fabric,
        network: Network::Closed,
    },
    ProviderRule {
        name: "verbs;ofi_rxm",
        marking: Marking::None,
        scope: Scope::Fabric,
        network: Network::ByDevice,
    },
    ProviderRule {
        name: "efa",
        marking: Marking::Provider(BY_EFA),
        scope: Scope::Fabric,
        network: Network::Closed,
    },
    ProviderRule {
        name: "psm3",
        marking: Marking::None,
        scope: Scope::Fabric,
        network: Network::Ethernet,
    },
    ProviderRule {
        name: "opx",
        marking: Marking::None,
        scope: Scope::Fabric,
        network: Network::Closed,
    },
    ProviderRule {
        name: "tcp",
        marking: Marking::Sockets,
        scope: Scope::Fabric,
        network: Network::Ethernet,
    },
    ProviderRule {
        name: "tcp;ofi_rxm",
        marking: Marking::Sockets,
        scope: Scope::Fabric,
        network: Network::Ethernet,
    },
    ProviderRule {
        name: "net",
        marking: Marking::Sockets,
        scope: Scope::Fabric,
        network: Network::Ethernet,
    },
    ProviderRule {
        name: "sockets",
        marking: Marking::None,
        scope: Scope::Never("deprecated, and 30 times slower than tcp"),
        network: Network::Ethernet,
    },
    ProviderRule {
        name: "udp;ofi_rxd",
        marking: Marking::None,
        scope: Scope::Never("slower than 2 Gb/s, crashes on atomics"),
        network: Network::Ethernet,
    },
];

/// Where the kernel lists devices of verbs.
const DEVICES: &str = "/sys/class/infiniband";

/// A provider that is not in the table, if the caller insists on it.
const UNKNOWN: ProviderRule = ProviderRule {
    name: "",
    marking: Marking::None,
    scope: Scope::Fabric,
    network: Network::Ethernet,
};

/// `cxip_cmdq.c`, `fi_cxi(7)`: two classes and best effort; control and scavenger become best
/// effort. In the order of [`Class::ALL`].
const BY_CXI: [Granted; Class::ALL.len()] =
    [Granted::Ignored, Granted::Marked, Granted::Marked, Granted::Marked, Granted::Ignored];

/// `efa_base_ep.c`: low latency has a service level of its own, everything else the default. In the
/// order of [`Class::ALL`].
const BY_EFA: [Granted; Class::ALL.len()] =
    [Granted::Ignored, Granted::Marked, Granted::Marked, Granted::Ignored, Granted::Ignored];

/// Returns libfabric's number for a class.
pub(crate) const fn tclass(class: Class) -> u32 {
    match class {
        Class::Control => FI_TC_NETWORK_CTRL,
        Class::LowLatency => FI_TC_LOW_LATENCY,
        Class::BestEffort => FI_TC_BEST_EFFORT,
        Class::Bulk => FI_TC_BULK_DATA,
        Class::Scavenger => FI_TC_SCAVENGER,
    }
}

/// Returns the rule for a provider by libfabric's name.
pub(crate) fn rule(provider: &str) -> ProviderRule {
    RULES.into_iter().find(|rule| rule.name == provider).unwrap_or(UNKNOWN)
}

impl ProviderRule {
    /// Returns how queues are shared: `ofi_rxm` progresses each endpoint by itself
    /// (`rxm_ep_do_progress`: one `poll` or `epoll_wait` over its sockets), `net` and `tcp` have
    /// one set of sockets for a domain (`xnet_run_progress`), and devices are looked at in memory.
    pub(crate) fn queues(&self) -> QueueSharing {
        if self.name.ends_with(";ofi_rxm") { QueueSharing::OfLane } else { QueueSharing::Shared }
    }
}

/// Returns who can reach the end that `facts` offer; `devices` is where the kernel lists devices of
/// verbs.
fn exposure(facts: &OfferFacts, devices: &Path) -> Exposure {
    let closed = match rule(&facts.provider).network {
        Network::Closed => true,
        Network::ByDevice => is_infiniband(&devices.join(&facts.domain)),
        Network::Ethernet => false,
    };
    if closed { Exposure::Isolated } else { Exposure::Open }
}

/// Returns whether every port of a device of verbs is one of InfiniBand (`ports/N/link_layer`,
/// `Documentation/ABI/stable/sysfs-class-infiniband`).
fn is_infiniband(device: &Path) -> bool {
    let Ok(ports) = std::fs::read_dir(device.join("ports")) else { return false };
    let layer = |port: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(port?.path().join("link_layer"))
    };
    let mut layers = ports.map(layer).peekable();
    layers.peek().is_some()
        && layers.all(|layer| layer.is_ok_and(|layer| layer.trim() == "InfiniBand"))
}

/// What the caller asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProviderRequest {
    pub(crate) wanted: ProviderChoice,
    pub(crate) source: ProviderInterface,
    pub(crate) reach: Reach,
}

/// Returns what speaks against an offer.
fn refusal(facts: &OfferFacts, wish: &ProviderRequest) -> Option<OfferRefusal> {
    let known = RULES.iter().find(|rule| rule.name == facts.provider);
    if let Some(ProviderRule { scope: Scope::Never(why), .. }) = known {
        return Some(OfferRefusal::Unfit(why));
    }
    match (&wish.wanted, known) {
        (ProviderChoice::Named(name), _) if *name != facts.provider => {
            return Some(OfferRefusal::NotWanted);
        }
        (ProviderChoice::Best, None) => return Some(OfferRefusal::Unknown),
        (_, Some(ProviderRule { scope: Scope::HostBefore(release), .. }))
            if facts.provider_version >= *release =>
        {
            return Some(OfferRefusal::Unfit("loses messages when its queue is full, seen in 2.5"));
        }
        (ProviderChoice::Best, Some(ProviderRule { scope: Scope::HostBefore(_), .. }))
            if wish.reach == Reach::ManyHosts =>
        {
            return Some(OfferRefusal::OneHostOnly);
        }
        _ => {}
    }
    let interface_fits = match &wish.source {
        ProviderInterface::Any => true,
        ProviderInterface::Address(address) => {
            facts.source.is_none_or(|source| source.ip() == *address)
        }
        ProviderInterface::Domain(domain) => facts.domain == *domain,
    };
    if !interface_fits {
        return Some(OfferRefusal::OtherInterface);
    }
    if facts.mode & !(FI_CONTEXT | FI_CONTEXT2) != 0 {
        return Some(OfferRefusal::Mode("wants more from its user than contexts"));
    }
    if facts.order & FI_ORDER_SAS == 0 {
        return Some(OfferRefusal::Mode("does not keep messages in order"));
    }
    (facts.message_max < crate::frame::MESSAGE_MAX).then_some(OfferRefusal::TooShort)
}

/// Returns where an offer stands among those that will do: the provider's place, then the library's
/// own order.
fn place(facts: &OfferFacts) -> usize {
    RULES.iter().position(|rule| rule.name == facts.provider).unwrap_or(RULES.len())
}

/// Judges all offers; the index of the one taken, and a verdict for each.
pub(crate) fn judge<'a>(
    offers: impl Iterator<Item = &'a OfferFacts> + Clone,
    wish: &ProviderRequest,
) -> (Option<usize>, Vec<JudgedOffer>) {
    let fit = offers.clone().enumerate().filter(|(_, facts)| refusal(facts, wish).is_none());
    let taken = fit.min_by_key(|(i, facts)| (place(facts), *i)).map(|(i, _)| i);
    let judged = offers.enumerate().map(|(i, facts)| JudgedOffer {
        provider: facts.provider.clone(),
        domain: facts.domain.clone(),
        source: facts.source.map(|source| source.ip()),
        atomics: facts.atomics,
        exposure: exposure(facts, Path::new(DEVICES)),
        verdict: match refusal(facts, wish) {
            Some(refusal) => OfferVerdict::Refused(refusal),
            None if taken == Some(i) => OfferVerdict::Taken,
            None => OfferVerdict::Behind,
        },
    });
    (taken, judged.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(provider: &str, domain: &str, source: Option<&str>) -> OfferFacts {
        OfferFacts {
            provider: provider.into(),
            domain: domain.into(),
            source: source.map(|source| source.parse().expect("an address")),
            order: FI_ORDER_SAS,
            message_max: usize::MAX,
            ..OfferFacts::default()
        }
    }

    fn taken(offers: &[OfferFacts], wish: &ProviderRequest) -> Option<String> {
        judge(offers.iter(), wish).0.map(|i| format!("{} {}", offers[i].provider, offers[i].domain))
    }

    fn of_1_17() -> Vec<OfferFacts> {
        vec![
            offer("net", "eth0", Some("10.0.0.1:0")),
            offer("tcp;ofi_rxm", "lo", Some("127.0.0.1:0")),
            offer("tcp;ofi_rxm", "eth0", Some("10.0.0.1:0")),
            offer("udp;ofi_rxd", "eth0", Some("10.0.0.1:0")),
            offer("sockets", "eth0", Some("10.0.0.1:0")),
            offer("shm", "shm", None),
        ]
    }

    #[test]
    fn judge__tcp_over_rxm_is_complete_and_the_source_is_pinned() {
        let at = |source: &str| ProviderRequest {
            source: ProviderInterface::Address(source.parse().expect("an address")),
            ..ProviderRequest::default()
        };
        assert_eq!(taken(&of_1_17(), &at("10.0.0.1")).as_deref(), Some("tcp;ofi_rxm eth0"));
        assert_eq!(taken(&of_1_17(), &at("127.0.0.1")).as_deref(), Some("tcp;ofi_rxm lo"));
        assert_eq!(taken(&of_1_17(), &at("10.9.9.9")), None, "no interface has the address");
        let domain = ProviderRequest {
            source: ProviderInterface::Domain("eth0".into()),
            ..ProviderRequest::default()
        };
        assert_eq!(taken(&of_1_17(), &domain).as_deref(), Some("tcp;ofi_rxm eth0"));
    }

    #[test]
    fn judge__a_real_fabric_comes_first_and_shared_memory_only_within_a_host() {
        let mut offers = of_1_17();
        assert_eq!(
            taken(
                &offers,
                &ProviderRequest { reach: Reach::OneHost, ..ProviderRequest::default() }
            )
            .as_deref(),
            Some("shm shm")
        );
        offers[5].provider_version = 205 << 16;
        assert_ne!(
            taken(
                &offers,
                &ProviderRequest { reach: Reach::OneHost, ..ProviderRequest::default() }
            )
            .as_deref(),
            Some("shm shm")
        );
        offers.push(offer("psm3", "opa0", None));
        offers.push(offer("cxi", "cxi0", None));
        assert_eq!(taken(&offers, &ProviderRequest::default()).as_deref(), Some("cxi cxi0"));
    }

    #[test]
    fn judge__what_is_unfit_stays_refused_when_it_is_named_and_says_why() {
        for name in ["sockets", "udp;ofi_rxd"] {
            let wish = ProviderRequest {
                wanted: ProviderChoice::Named(name.into()),
                ..ProviderRequest::default()
            };
            let (taken, judged) = judge(of_1_17().iter(), &wish);
            assert_eq!(taken, None);
            let verdict = |judged: &JudgedOffer| judged.verdict.clone();
            let unfit = judged.iter().find(|judged| judged.provider == name).map(verdict);
            assert!(
                matches!(unfit, Some(OfferVerdict::Refused(OfferRefusal::Unfit(_)))),
                "{name}: {unfit:?}"
            );
        }
        let (_, judged) = judge(of_1_17().iter(), &ProviderRequest::default());
        let said: Vec<String> = judged.iter().map(ToString::to_string).collect();
        assert_eq!(said[0], "net on eth0 (10.0.0.1): would do, another comes first");
        assert_eq!(said[1], "tcp;ofi_rxm on lo (127.0.0.1): taken");
        assert_eq!(said[5], "shm on shm: reaches this host only");
    }

    #[test]
    fn exposure__verbs_are_isolated_on_infiniband_and_ethernet_is_open() {
        let devices =
            std::env::temp_dir().join(format!("clearway-ofi-devices-{}", std::process::id()));
        for (device, layers) in [
            ("ib0", &["InfiniBand\n"][..]),
            ("roce0", &["Ethernet\n"]),
            ("both0", &["InfiniBand", "Ethernet"]),
        ] {
            for (port, layer) in layers.iter().enumerate() {
                let port = devices.join(device).join("ports").join(port.to_string());
                std::fs::create_dir_all(&port).expect("a directory");
                std::fs::write(port.join("link_layer"), layer).expect("a file");
            }
        }
        let found = |provider, domain| exposure(&offer(provider, domain, None), &devices);
        assert_eq!(found("verbs;ofi_rxm", "ib0"), Exposure::Isolated);
        for open in ["roce0", "both0", "gone0"] {
            assert_eq!(found("verbs;ofi_rxm", open), Exposure::Open, "{open}");
        }
        assert_eq!(
            [found("cxi", "cxi0"), found("tcp", "ib0")],
            [Exposure::Isolated, Exposure::Open]
        );
        assert_eq!([found("novel", "ib0"), found("psm3", "ib0")], [Exposure::Open; 2]);
        std::fs::remove_dir_all(&devices).expect("removed");
    }

    #[test]
    fn judge__an_unknown_provider_must_be_named() {
        let offers = [offer("novel", "n0", None)];
        assert_eq!(taken(&offers, &ProviderRequest::default()), None);
        let named = ProviderRequest {
            wanted: ProviderChoice::Named("novel".into()),
            ..ProviderRequest::default()
        };
        assert_eq!(taken(&offers, &named).as_deref(), Some("novel n0"));
    }

    #[test]
    fn judge__what_the_wire_cannot_do_is_refused() {
        let mut prefix = offer("tcp", "eth0", None);
        prefix.mode = FI_CONTEXT | 1 << 58;
        let mut unordered = offer("tcp", "eth0", None);
        unordered.order = 0;
        let mut short = offer("tcp", "eth0", None);
        short.message_max = 4096;
        assert_eq!(taken(&[prefix, unordered, short], &ProviderRequest::default()), None);
    }
}
