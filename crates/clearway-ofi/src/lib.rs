//! The libfabric wire: the fabric a site already has, through the library it already has, found at
//! run time.
//!
//! Rooms: [`OfiPort`] and [`OfiWire`] (one rank's end), [`survey`] (which libraries and providers
//! there are, and what speaks against each), [`ProviderChoice`] and [`ProviderInterface`] (what a
//! caller can ask for), [`Trust`] (whom an end hears). Inside: `abi` (the C interface), `library`
//! (loading), `device` (safe handles), `provider` (the rules of choice), `sockets` (marking what
//! the `tcp` provider opened).

#![deny(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))]

#[allow(unsafe_code)]
mod abi;
mod address;
mod choice;
#[allow(unsafe_code)]
mod device;
mod error;
mod frame;
#[allow(unsafe_code)]
mod library;
mod port;
mod provider;
#[allow(unsafe_code)]
mod sockets;
mod trust;
mod wire;

pub use choice::{LibraryFound, LibrarySurvey, survey};
pub use error::OfiError;
pub use library::LibraryVersion;
pub use port::{OfiConfig, OfiPort, Placement, WakeMethod};
pub use provider::{
    Exposure, JudgedOffer, OfferRefusal, OfferVerdict, ProviderChoice, ProviderInterface, Reach,
};
pub use trust::{PROOF_LENGTH, Trust};
pub use wire::{OfiWire, Rest};
