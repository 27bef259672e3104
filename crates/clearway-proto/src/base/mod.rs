//! The words every other module speaks: time, ranks, classes, units, reproducible randomness,
//! smoothed times, the digest of bytes, how fields are written and read, one tree over places, the
//! steps in which all ranks act together.
//!
//! # Invariants
//! I1. No type here converts silently into another: a rate is never a byte count, a peer's stamp
//!     never a local one.
//!
//! # Not here
//! How a class is marked on a packet: the wires and the lab do that, from [`Class::dscp`].

mod class;
mod digest;
mod head;
mod knomial;
mod random;
mod rank;
mod reader;
mod schedule;
mod smooth;
mod time;
mod units;

pub use class::{Class, Dscp, UnknownClass};
pub use digest::{Crc32c, Xxh3, crc32c, xxh3};
pub use head::Head;
pub use knomial::{NOMIAL_BASE, children, parent};
pub use random::{RandomKey, RandomStream};
pub use rank::{GroupId, Rank};
pub use reader::ByteReader;
pub use schedule::{Participant, STEPS_MAX, Schedule, Step};
pub use smooth::Smoothed;
pub use time::{LocalNs, Nanos, PeerNs, SharedClock};
pub use units::{BitsPerSec, Bytes, UnitError};
