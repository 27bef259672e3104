//! The library as its users see it: what is found, what is said about it, and two ends that talk.

#![allow(non_snake_case)]

use std::path::Path;
use std::time::{Duration, Instant};

use clearway_ofi::{
    JudgedOffer, LibrarySurvey, LibraryVersion, OfferRefusal, OfferVerdict, OfiConfig, OfiError,
    OfiPort, OfiWire, Placement, ProviderChoice, ProviderInterface, Reach, Rest, Trust, WakeMethod,
    survey,
};
use clearway_proto::base::{Class, Rank};
use clearway_proto::wire::{Arrival, Destination, Operation, Out, PathId, Span, Wire};

const LOOPBACK: ProviderInterface =
    ProviderInterface::Address(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

/// How long a message may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn survey__names_the_library_and_says_why_each_offer_is_not_taken() {
    let LibrarySurvey { library, offers } = match survey(None, ProviderChoice::Best, LOOPBACK) {
        Ok(survey) => survey,
        Err(error) => return eprintln!("skipped: survey: {error}"),
    };
    assert!(library.path.is_absolute(), "{library:?}");
    assert!(library.version >= LibraryVersion { major: 1, minor: 17 }, "{library:?}");
    let taken: Vec<&JudgedOffer> =
        offers.iter().filter(|judged| judged.verdict == OfferVerdict::Taken).collect();
    assert!(taken.len() <= 1, "{taken:?}");
    for judged in offers
        .iter()
        .filter(|judged| judged.provider == "sockets" || judged.provider == "udp;ofi_rxd")
    {
        assert!(
            matches!(judged.verdict, OfferVerdict::Refused(OfferRefusal::Unfit(_))),
            "{judged}"
        );
    }
}

#[test]
fn survey__a_path_without_a_library_says_what_would_work() {
    let error = survey(
        Some(Path::new("/nowhere/libfabric.so.1")),
        ProviderChoice::Best,
        ProviderInterface::Any,
    )
    .expect_err("no library");
    assert!(matches!(error, OfiError::NoLibrary { .. }));
    assert!(error.to_string().contains("/nowhere/libfabric.so.1"), "{error}");
}

#[test]
fn open__a_provider_that_nobody_has_is_refused_with_the_list_of_those_there_are() {
    let config = OfiConfig {
        wanted: ProviderChoice::Named("carrier-pigeon".into()),
        source: LOOPBACK,
        ..OfiConfig::default()
    };
    match OfiPort::open(config) {
        Err(OfiError::NoLibrary { said }) => eprintln!("skipped: refusals: {said}"),
        Err(error) => {
            assert!(error.to_string().contains("another provider was asked for"), "{error}")
        }
        Ok(port) => panic!("{port:?}"),
    }
}

#[test]
fn wire__two_polled_ends_talk() {
    let config = OfiConfig {
        source: LOOPBACK,
        reach: Reach::ManyHosts,
        placement: Placement::OneMachine,
        waking: WakeMethod::Polled,
        ..OfiConfig::default()
    };
    let ports: Result<Vec<OfiPort>, _> = (0..2).map(|_| OfiPort::open(config.clone())).collect();
    let ports = match ports {
        Ok(ports) => ports,
        Err(error) => return eprintln!("skipped: two ends: {error}"),
    };
    assert_eq!(
        ports[0].judged().iter().filter(|judged| judged.verdict == OfferVerdict::Taken).count(),
        1
    );
    assert!(ports[0].library().path.is_absolute());
    let peers: Vec<Vec<u8>> = ports.iter().map(OfiPort::address).collect();
    let open = |(rank, port)| {
        OfiWire::open(port, Rank(rank), &Trust::Session(7), &peers).expect("an open wire")
    };
    let mut wires: Vec<OfiWire> = (0..).zip(ports).map(open).collect();
    let mut out: Out<()> = Out::with_limit(1);
    let head = out.head(b"hello");
    let to = Destination::One(Rank(1));
    let send = Operation::Send {
        to,
        path: PathId(0),
        class: Class::LowLatency,
        head,
        body: Span::EMPTY,
        token: None,
    };
    wires[0].post(&[send], out.heads(), &mut Vec::new());
    let until = Instant::now() + TIMEOUT;
    while Instant::now() < until {
        wires[0].look();
        let mut heard = Vec::new();
        wires[1].poll(8, &mut |arrival| {
            if let Arrival::Datagram(datagram) = arrival {
                heard.extend_from_slice(datagram.head);
            }
        });
        if !heard.is_empty() {
            assert_eq!(heard, b"hello");
            assert!(wires[1].rest() == Rest::Poll, "a polled end has no descriptor");
            assert_eq!(wires[0].marked_sockets().1, 0, "no socket refuses its mark");
            eprintln!("atomics are the provider's own: {}", wires[0].has_native_atomics());
            return;
        }
        std::thread::yield_now();
    }
    panic!("nothing came");
}
