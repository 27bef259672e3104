//! Looks through the libraries and providers of this machine, and chooses.
//!
//! # Model
//! A library is asked for offers with atomics of their own, and for offers without; and both again for the address that
//! the caller wants, if it is not among them, because some providers list an interface only when they are asked for its
//! address. What comes twice is kept once: with atomics, unless that costs the order of messages behind writes. (`ofi_rxm`
//! keeps one or the other; its atomics are done by the peer's processor, which this wire can do as well.) An order is not
//! asked for: then providers tell what they keep. One question costs 10 to 20 ms, since every provider looks for its
//! devices.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::abi::FI_ORDER_SAW;
use crate::error::OfiError;
use crate::library::{Library, LibraryVersion, Offer, Question};
use crate::provider::{self, Judged, Source, Wanted, Wish};

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
pub struct Survey {
    /// The library.
    pub library: LibraryFound,
    /// Everything it offers, with the reasons.
    pub offers: Vec<Judged>,
}

/// Looks at the library at `named` (or the system's) as [`crate::OfiPort::open`] would, without opening anything.
///
/// # Errors
/// There is no library, or it is too old. That nothing can be used is no error here: the survey says so.
pub fn survey(named: Option<&Path>, wanted: Wanted, source: Source) -> Result<Survey, OfiError> {
    let library = Library::load(named)?;
    let offers = offers(&library, &source);
    let wish = Wish { wanted, source, ..Wish::default() };
    let (_, offers) = provider::judge(offers.iter().map(|offer| &offer.facts), &wish);
    Ok(Survey { library: LibraryFound { path: library.path, version: library.version }, offers })
}

/// The offer to use, with all judgements.
///
/// # Errors
/// Nothing will do; the sentence names what was looked at.
pub(crate) fn choose(library: &Library, wish: &Wish) -> Result<(Offer, Vec<Judged>), OfiError> {
    let mut offers = offers(library, &wish.source);
    let (taken, judged) = provider::judge(offers.iter().map(|offer| &offer.facts), wish);
    match taken {
        Some(i) => Ok((offers.swap_remove(i), judged)),
        None => Err(OfiError::NoProvider { version: library.version.to_string(), said: said_of(&judged) }),
    }
}

/// All judgements in one line, without repeating equal ones.
fn said_of(judged: &[Judged]) -> String {
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

fn offers(library: &Library, source: &Source) -> Vec<Offer> {
    let mut offers = Vec::new();
    ask(library, None, &mut offers);
    if let Source::Address(address) = source
        && !offers.iter().any(|offer| offer.facts.source.is_some_and(|source| source.ip() == *address))
    {
        ask(library, Some(*address), &mut offers);
    }
    offers
}

fn ask(library: &Library, source: Option<IpAddr>, offers: &mut Vec<Offer>) {
    for atomics in [true, false] {
        // A library that fails one question may answer another; that nothing was found is said by the chooser.
        for offer in library.offers(&Question { atomics, source }).unwrap_or_default() {
            let same = |old: &&mut Offer| {
                let (a, b) = (&old.facts, &offer.facts);
                (&a.provider, &a.domain, a.source) == (&b.provider, &b.domain, b.source)
            };
            match offers.iter_mut().find(same) {
                None => offers.push(offer),
                Some(old) if offer.facts.order & !old.facts.order & FI_ORDER_SAW != 0 => *old = offer,
                Some(_) => {}
            }
        }
    }
}
