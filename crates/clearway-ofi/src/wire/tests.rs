//! The wire on real libraries, over loopback: the contract's suite, classes on sockets, peers that are gone.
//!
//! The system's libfabric is tested where there is one; further libraries are named, separated by colons, in
//! `CLEARWAY_TEST_LIBFABRIC`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_proto::wire::conformance::{self, Fabric, Outcome};

use super::*;
use crate::port::OfiConfig;
use crate::provider::{Reach, Source, Wanted};

/// Sessions of this test process, so that tests running side by side are strangers to each other.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// The libraries to test; `None` is the system's.
fn libraries() -> Vec<Option<PathBuf>> {
    let named = std::env::var("CLEARWAY_TEST_LIBFABRIC").unwrap_or_default();
    std::iter::once(None)
        .chain(named.split(':').filter(|path| !path.is_empty()).map(|path| Some(path.into())))
        .collect()
}

/// Providers of the releases that plain Ethernet needs, and what each is tested for.
const PROVIDERS: [&str; 4] = ["tcp", "tcp;ofi_rxm", "net", "shm"];

fn config(library: Option<PathBuf>, provider: &str) -> OfiConfig {
    OfiConfig {
        library,
        wanted: Wanted::Named(provider.into()),
        source: Source::Address([127, 0, 0, 1].into()),
        reach: Reach::OneHost,
        placement: Placement::OneMachine,
        ..OfiConfig::default()
    }
}

struct Loopback {
    wires: Vec<OfiWire>,
}

impl Loopback {
    fn new(ranks: u32, config: &OfiConfig) -> Result<Self, OfiError> {
        let ports: Vec<OfiPort> = (0..ranks).map(|_| OfiPort::open(config.clone())).collect::<Result<_, _>>()?;
        let peers: Vec<Vec<u8>> = ports.iter().map(OfiPort::address).collect();
        let session = u64::from(std::process::id()) << 32 | SESSIONS.fetch_add(1, Ordering::Relaxed);
        let open = |(rank, port)| OfiWire::open(port, Rank(rank), session, &peers);
        Ok(Self { wires: (0..ranks).zip(ports).map(open).collect::<Result<_, _>>()? })
    }
}

impl Fabric for Loopback {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        &mut self.wires[rank.index()]
    }

    /// Lets every end work a little without taking arrivals away, then gives the processor to whoever wants it.
    fn pass_time(&mut self) {
        for _ in 0..100 {
            for wire in &mut self.wires {
                wire.look();
            }
            std::thread::yield_now();
        }
    }
}

/// Runs `test` with every library and provider that is there; prints what is not.
fn with_each(test: &dyn Fn(&OfiConfig, &str)) {
    for library in libraries() {
        let name = library.as_ref().map_or("the system's libfabric".into(), |path| path.display().to_string());
        for provider in PROVIDERS {
            let config = config(library.clone(), provider);
            match OfiPort::open(config.clone()) {
                Ok(port) => test(&config, &format!("{} of {name} {}", provider, port.library().version)),
                Err(error @ (OfiError::NoLibrary { .. } | OfiError::NoProvider { .. })) => {
                    eprintln!("skipped: {provider} of {name}: {error}");
                }
                Err(error) => panic!("{provider} of {name}: {error}"),
            }
        }
    }
}

#[test]
fn conformance__on_every_library_and_provider() {
    with_each(&|config, name| {
        for (case, outcome) in conformance::run(&mut || Loopback::new(conformance::RANKS, config).expect("open wires"))
        {
            match outcome {
                Outcome::Passed => {}
                Outcome::Skipped(kind) => eprintln!("skipped: {case}: {name} has no {}", kind.name()),
                Outcome::Failed(sentence) => panic!("{name}: {case}: {sentence}"),
            }
        }
    });
}
