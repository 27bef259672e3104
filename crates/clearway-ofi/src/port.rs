//! Opens this rank's end before the peers are known: library, provider, endpoints, and the address
//! to publish.

use std::fmt;
use std::path::PathBuf;

use clearway_proto::base::{Class, Nanos};

use crate::address::PublishedAddress;
use crate::choice::{self, LibraryFound};
use crate::device::Device;
use crate::error::OfiError;
use crate::library::Library;
use crate::provider::{
    self, JudgedOffer, Marking, OfferVerdict, ProviderChoice, ProviderInterface, ProviderRequest,
    ProviderRule, Reach,
};
use crate::wire::layout;

/// How a waiting thread learns that something arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeMethod {
    /// By a descriptor, where the provider has one. Each completion then costs the provider a
    /// little more.
    #[default]
    Descriptor,
    /// Not at all: the caller polls.
    Polled,
}

/// Where the ranks of a job run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// All on this machine (virtual hosts included): they read one clock, and stamps may be
    /// compared.
    OneMachine,
    /// On several machines, each with its own clock.
    #[default]
    ManyMachines,
}

/// What must be known to open an end.
#[derive(Clone, Debug)]
pub struct OfiConfig {
    /// The library's file; `None` for the system's.
    pub library: Option<PathBuf>,
    /// Which provider.
    pub wanted: ProviderChoice,
    /// Through which interface.
    pub source: ProviderInterface,
    /// Where the job's ranks are, as the network sees it.
    pub reach: Reach,
    /// Where the job's ranks are, as their clocks see it.
    pub placement: Placement,
    /// How to learn of arrivals.
    pub waking: WakeMethod,
    /// How long something may wait for a peer that does not take it, or does not answer, before it
    /// is given up.
    pub timeout: Nanos,
}

impl Default for OfiConfig {
    /// Returns the usual options: the system's library and its best provider for several hosts;
    /// timeout of half a minute, longer than a loaded rank is silent between two looks at its
    /// wire.
    fn default() -> Self {
        Self {
            library: None,
            wanted: ProviderChoice::default(),
            source: ProviderInterface::default(),
            reach: Reach::default(),
            placement: Placement::default(),
            waking: WakeMethod::default(),
            timeout: Nanos::from_millis(30_000),
        }
    }
}

/// An opened end whose address can be published before the peers are known.
pub struct OfiPort {
    pub(crate) device: Device,
    pub(crate) rule: ProviderRule,
    pub(crate) published: PublishedAddress,
    pub(crate) config: OfiConfig,
    library: LibraryFound,
    judged: Vec<JudgedOffer>,
}

impl fmt::Debug for OfiPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfiPort")
            .field("library", &self.library)
            .field("speaks", &self.published.speaks())
            .finish()
    }
}

impl OfiPort {
    /// Loads the library, chooses a provider and opens it. Signal handlers are afterwards what they
    /// were before.
    ///
    /// # Errors
    /// No library, no usable provider, or one that refuses what every wire needs.
    pub fn open(config: OfiConfig) -> Result<Self, OfiError> {
        let library = Library::load(config.library.as_deref())?;
        let found = LibraryFound { path: library.path.clone(), version: library.version };
        let wish = ProviderRequest {
            wanted: config.wanted.clone(),
            source: config.source.clone(),
            reach: config.reach,
        };
        let (offer, judged) = choice::choose(&library, &wish)?;
        let rule = provider::rule(&offer.facts.provider);
        let classes: Vec<Option<u32>> = match rule.marking {
            Marking::None => vec![None],
            Marking::Sockets => vec![None; Class::ALL.len()],
            Marking::Provider(_) => {
                Class::ALL.iter().map(|class| Some(provider::tclass(*class))).collect()
            }
        };
        let lanes = classes.len();
        let mut device =
            Device::open(offer, &classes, rule.queues(), layout::keys(lanes), config.waking)?;
        device.add_memory(layout::receive_length(lanes))?;
        device.add_memory(layout::staging_length(lanes))?;
        let names = (0..lanes).map(|lane| device.name(lane)).collect::<Result<_, _>>()?;
        let facts = device.facts();
        let published = PublishedAddress {
            provider: facts.provider.clone(),
            protocol: facts.protocol,
            protocol_version: facts.protocol_version,
            lanes: names,
        };
        Ok(Self { device, rule, published, config, library: found, judged })
    }

    /// Returns the bytes that peers need to reach this end.
    pub fn address(&self) -> Vec<u8> {
        self.published.bytes()
    }

    /// Returns the library in use.
    pub fn library(&self) -> &LibraryFound {
        &self.library
    }

    /// Returns the offer in use.
    pub fn taken(&self) -> Option<&JudgedOffer> {
        self.judged.iter().find(|judged| judged.verdict == OfferVerdict::Taken)
    }

    /// Returns everything that was looked at, with the reasons; one is taken.
    pub fn judged(&self) -> &[JudgedOffer] {
        &self.judged
    }
}
