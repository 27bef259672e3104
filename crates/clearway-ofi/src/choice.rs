//! Looks through the libraries and providers of this machine, and chooses.
//!
//! # Model
//! A library is asked for offers with atomics of their own, and for offers without; and both again
//! for the address that the caller wants, if it is not among them, because some providers list an
//! interface only when they are asked for its address. What comes twice is kept once: with atomics,
//! unless that costs the order of messages behind writes. (`ofi_rxm` keeps one or the other; its
//! atomics are done by the peer's processor, which this wire can do as well.) An order is not asked
//! for: then providers tell what they keep. One question costs 10 to 20 ms, since every provider
//! looks for its devices.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::abi::FI_ORDER_SAW;
use crate::error::OfiError;
use crate::library::{EndpointRequirements, Library, LibraryVersion, Offer};
use crate::provider::{self, JudgedOffer, ProviderChoice, ProviderInterface, ProviderRequest};

/// A library that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryFound {
    /// The file it came from.
    pub path: PathBuf,
    /// The interface version that it speaks.
    pub version: LibraryVersion,
}

/// What there is on this machine, for a person who asks why a fabric is not used.
#[derive(Clone, Debug)]
pub struct LibrarySurvey {
    /// The library.
    pub library: LibraryFound,
    /// Everything it offers, with the reasons.
    pub offers: Vec<JudgedOffer>,
}

/// Looks at the library at `named` (or the system's) as [`crate::OfiPort::open`] would, without
/// opening anything.
///
/// # Errors
/// There is no library, or it is too old. That nothing can be used is no error here: the survey
/// says so.
pub fn survey(
    named: Option<&Path>,
    wanted: ProviderChoice,
    source: ProviderInterface,
) -> Result<LibrarySurvey, OfiError> {
    let library = Library::load(named)?;
    let offers = offers(&library, &source);
    let wish = ProviderRequest { wanted, source, ..ProviderRequest::default() };
    let (_, offers) = provider::judge(offers.iter().map(|offer| &offer.facts), &wish);
    Ok(LibrarySurvey {
        library: LibraryFound { path: library.path, version: library.version },
        offers,
    })
}

/// Returns the offer to use, with all judgements.
///
/// # Errors
/// Nothing will do; the sentence names what was looked at.
pub(crate) fn choose(
    library: &Library,
    wish: &ProviderRequest,
) -> Result<(Offer, Vec<JudgedOffer>), OfiError> {
    let mut offers = offers(library, &wish.source);
    let (taken, judged) = provider::judge(offers.iter().map(|offer| &offer.facts), wish);
    match taken {
        Some(i) => Ok((offers.swap_remove(i), judged)),
        None => Err(OfiError::NoProvider {
            version: library.version.to_string(),
            said: describe_offers(&judged),
        }),
    }
}

/// Returns all judgements in one line, without repeating equal ones.
fn describe_offers(judged: &[JudgedOffer]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in judged.iter().map(|judged| format!("{} ({})", judged.provider, judged.verdict)) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        "it lists none with reliable datagrams and one-sided operations".into()
    } else {
        lines.join(", ")
    }
}

fn offers(library: &Library, source: &ProviderInterface) -> Vec<Offer> {
    let mut offers = Vec::new();
    query_offers(library, None, &mut offers);
    if let ProviderInterface::Address(address) = source
        && !offers
            .iter()
            .any(|offer| offer.facts.source.is_some_and(|source| source.ip() == *address))
    {
        query_offers(library, Some(*address), &mut offers);
    }
    offers
}

fn query_offers(library: &Library, source: Option<IpAddr>, offers: &mut Vec<Offer>) {
    for atomics in [true, false] {
        // A library that fails one question may answer another; that nothing was found is said by
        // the chooser.
        for offer in library.offers(&EndpointRequirements { atomics, source }).unwrap_or_default() {
            let same = |old: &&mut Offer| {
                let (a, b) = (&old.facts, &offer.facts);
                (&a.provider, &a.domain, a.source) == (&b.provider, &b.domain, b.source)
            };
            match offers.iter_mut().find(same) {
                None => offers.push(offer),
                Some(old) if offer.facts.order & !old.facts.order & FI_ORDER_SAW != 0 => {
                    *old = offer
                }
                Some(_) => {}
            }
        }
    }
}
