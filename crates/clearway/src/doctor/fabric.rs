//! Asks the libfabric of this machine what it offers, why each provider is taken or not, and what
//! classes become on every wire.
//!
//! # Model
//! The library is loaded and asked as a run would do it. What is granted to a class is what an
//! opened wire says of itself; where the wire marks sockets that the provider opened, a message of
//! each class is sent over loopback first, and the sockets that carry their mark are counted.
//!
//! # Not here
//! Marks that a receiver has read: `marking`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use clearway_ofi::{
    JudgedOffer, LibrarySurvey, OfferVerdict, OfiConfig, OfiError, OfiPort, OfiWire, Placement,
    ProviderChoice, ProviderInterface, Trust, WakeMethod, survey,
};
use clearway_proto::base::{Class, Rank};
use clearway_proto::wire::{Arrival, Destination, Granted, Operation, Out, PathId, Span, Wire};
use clearway_runtime::shm::{ShmConfig, ShmWire};
use serde::Serialize;

use super::finding::{Finding, FindingGroup};

/// The item that tells which library there is.
pub(super) const LIBRARY: &str = "libfabric";
/// The only address that every machine has.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Longer than a first message takes over loopback, connecting included, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(3);

/// One provider as it was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Provider {
    pub(super) provider: String,
    /// The interfaces or devices for which it was judged so.
    pub(super) domains: Vec<String>,
    /// Whether it has remote atomics of its own.
    pub(super) atomics: bool,
    pub(super) verdict: String,
}

/// What the classes become on one wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct WireClasses {
    pub(super) wire: String,
    /// By class, in the order of [`Class::ALL`].
    pub(super) granted: [&'static str; Class::ALL.len()],
}

/// What was found.
#[derive(Debug)]
pub(super) struct FabricExamination {
    pub(super) section: FindingGroup,
    pub(super) providers: Vec<Provider>,
    pub(super) classes: Vec<WireClasses>,
}

/// Asks and tries everything.
pub(super) fn examine() -> FabricExamination {
    let mut classes = vec![WireClasses::new("udp", [Granted::Marked; Class::ALL.len()])];
    let mut findings = vec![shared_memory(&mut classes)];
    let providers = match survey(None, ProviderChoice::Best, ProviderInterface::Any) {
        Err(error) => {
            findings.push(no_library(&error));
            Vec::new()
        }
        Ok(survey) => {
            findings.push(library(&survey));
            findings.push(talk(&mut classes));
            grouped(&survey.offers)
        }
    };
    FabricExamination { section: FindingGroup { title: "Wires", findings }, providers, classes }
}

impl WireClasses {
    fn new(wire: &str, granted: [Granted; Class::ALL.len()]) -> Self {
        let word = |granted| match granted {
            Granted::Marked => "marked",
            Granted::Separate => "separate",
            Granted::Ignored => "ignored",
        };
        Self { wire: wire.to_owned(), granted: granted.map(word) }
    }
}

/// Opens the shared-memory wire for one rank.
fn shared_memory(classes: &mut Vec<WireClasses>) -> Finding {
    let item = "shared memory";
    match ShmWire::open(ShmConfig::new(Rank(0), u64::from(std::process::id()), vec![Rank(0)])) {
        Ok(wire) => {
            classes.push(WireClasses::new("shm", wire.capabilities().classes));
            Finding::ok(
                item,
                "memory files can be made and mapped (memfd); they need no room in /dev/shm",
            )
        }
        Err(error) => Finding::missing(
            item,
            error.to_string(),
            "allow memfd_create and more memory to this user",
        ),
    }
}

fn no_library(error: &OfiError) -> Finding {
    let remedy =
        "install libfabric 1.17 or later (Debian: libfabric1); over UDP Clearway runs without it";
    Finding::missing(LIBRARY, error.to_string(), remedy)
}

fn library(survey: &LibrarySurvey) -> Finding {
    let LibrarySurvey { library, offers } = survey;
    let found = format!("{}, version {}", library.path.display(), library.version);
    match offers.iter().find(|judged| judged.verdict == OfferVerdict::Taken) {
        Some(taken) => Finding::ok(LIBRARY, format!("{found}: {} comes first", taken.provider)),
        None => {
            let found = format!("{found}: no provider of it can be used (table below)");
            Finding::limited(LIBRARY, found, "install the provider of your fabric, or use UDP")
        }
    }
}

/// Offers of one provider with one verdict as one line, those that are taken first.
fn grouped(offers: &[JudgedOffer]) -> Vec<Provider> {
    let mut groups: Vec<Provider> = Vec::new();
    let order = |judged: &&JudgedOffer| match judged.verdict {
        OfferVerdict::Taken => 0,
        OfferVerdict::Behind => 1,
        OfferVerdict::Refused(_) => 2,
    };
    let mut sorted: Vec<&JudgedOffer> = offers.iter().collect();
    sorted.sort_by_key(order);
    for judged in sorted {
        let verdict = judged.verdict.to_string();
        let domain = judged
            .source
            .map_or(judged.domain.clone(), |source| format!("{} ({source})", judged.domain));
        let same = |group: &&mut Provider| {
            (&group.provider, &group.verdict) == (&judged.provider, &verdict)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.domains.push(domain),
            None => groups.push(Provider {
                provider: judged.provider.clone(),
                domains: vec![domain],
                atomics: judged.atomics,
                verdict,
            }),
        }
    }
    groups
}

/// Lets two ends of the libfabric wire exchange a message of each class on loopback.
fn talk(classes: &mut Vec<WireClasses>) -> Finding {
    let item = "libfabric ends";
    match try_talking(classes) {
        Ok(finding) => finding,
        Err(error) => Finding::limited(
            item,
            error.to_string(),
            "let connections over loopback pass, or use UDP",
        ),
    }
}

fn try_talking(classes: &mut Vec<WireClasses>) -> Result<Finding, OfiError> {
    let config = OfiConfig {
        source: ProviderInterface::Address(LOOPBACK),
        placement: Placement::OneMachine,
        waking: WakeMethod::Polled,
        ..OfiConfig::default()
    };
    let ports = [OfiPort::open(config.clone())?, OfiPort::open(config)?];
    let provider = ports[0].judged().iter().find(|judged| judged.verdict == OfferVerdict::Taken);
    let provider = provider.map_or_else(String::new, |judged| judged.provider.clone());
    let peers = [ports[0].address(), ports[1].address()];
    let [first, second] = ports;
    let session = Trust::Session(std::process::id().into());
    let mut sender = OfiWire::open(first, Rank(0), &session, &peers)?;
    let mut receiver = OfiWire::open(second, Rank(1), &session, &peers)?;
    classes.push(WireClasses::new(&format!("ofi {provider}"), sender.capabilities().classes));
    let arrived = Class::ALL
        .into_iter()
        .filter(|class| is_delivered(&mut sender, &mut receiver, *class))
        .count();
    let (marked, refused) = sender.marked_sockets();
    let item = "libfabric ends";
    let found = format!(
        "over {provider} {arrived} of {} messages, one of each class, arrived",
        Class::ALL.len()
    );
    if arrived < Class::ALL.len() {
        return Ok(Finding::limited(
            item,
            found,
            "end other work and try again; if it stays, use UDP",
        ));
    }
    Ok(match (marked, refused) {
        (0, 0) => Finding::ok(
            item,
            format!("{found}; the provider marks by itself, or not at all (table below)"),
        ),
        (_, 0) => {
            Finding::ok(item, format!("{found}; {marked} of its sockets carry their class's mark"))
        }
        _ => {
            let found = format!("{found}; {refused} of its sockets refuse their class's mark");
            Finding::limited(item, found, "let this user set IP_TOS and SO_PRIORITY up to 6")
        }
    })
}

/// Returns whether a message of `class` comes through in time.
fn is_delivered(sender: &mut OfiWire, receiver: &mut OfiWire, class: Class) -> bool {
    let mut out: Out<()> = Out::with_limit(1);
    let head = out.head(b"clearway doctor");
    let to = Destination::One(Rank(1));
    let send = Operation::Send { to, path: PathId(0), class, head, body: Span::EMPTY, token: None };
    sender.post(&[send], out.heads(), &mut Vec::new());
    let until = Instant::now() + TIMEOUT;
    let mut is_there = false;
    while !is_there && Instant::now() < until {
        sender.look();
        receiver.poll(8, &mut |arrival| is_there |= matches!(arrival, Arrival::Datagram(_)));
        std::thread::yield_now();
    }
    is_there
}

#[cfg(test)]
mod tests {
    use clearway_ofi::{Exposure, OfferRefusal};

    use super::*;

    fn judged(provider: &str, domain: &str, verdict: OfferVerdict) -> JudgedOffer {
        JudgedOffer {
            provider: provider.into(),
            domain: domain.into(),
            source: None,
            atomics: false,
            exposure: Exposure::Open,
            verdict,
        }
    }

    #[test]
    fn grouped__one_line_for_a_provider_and_its_reason_the_taken_one_first() {
        let slow = OfferVerdict::Refused(OfferRefusal::Unfit("slow"));
        let offers = [
            judged("sockets", "lo", slow.clone()),
            judged("tcp", "lo", OfferVerdict::Behind),
            judged("tcp", "eth0", OfferVerdict::Taken),
            judged("sockets", "eth0", slow),
        ];
        let lines: Vec<(String, String)> =
            grouped(&offers).into_iter().map(|it| (it.provider, it.domains.join(" "))).collect();
        let expected = [("tcp", "eth0"), ("tcp", "lo"), ("sockets", "lo eth0")];
        assert_eq!(lines, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn library__without_a_usable_provider_is_limited() {
        let Ok(mut found) =
            survey(None, ProviderChoice::Best, ProviderInterface::Address(LOOPBACK))
        else {
            return eprintln!("skipped: no libfabric on this machine");
        };
        found.offers.retain(|judged| judged.verdict != OfferVerdict::Taken);
        assert_eq!(library(&found).remedies.len(), 1);
    }
}
