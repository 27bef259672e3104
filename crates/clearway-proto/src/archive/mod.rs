//! FLESnet's archives of microslices (`.msa`) and timeslices (`.tsa`), byte for byte, read and
//! written as streams.
//!
//! # Model
//! An archive is what `boost::archive::binary_oarchive` writes on a 64-bit little-endian machine:
//! one [`Header`], then items until the end of the file. Nothing says how many, and no item says
//! how long it is; so an archive can be appended to and cut off anywhere, and is read by walking
//! through it. Lengths are 64 bits wide:
//!
//! | what | bytes |
//! |---|---|
//! | signature | u64 22, `serialization::archive`, u16 version of the library, widths 4 8 4 8 of its numbers, u32 1 |
//! | class | u8 0, u32 version; before the first object of that class in the stream, and not again |
//! | header | class, i32 kind (from version 1), i32 compression (from 2), i64 time, u64 length and host, u64 length and user |
//! | microslice | class, class of descriptor, 32 bytes of descriptor, u64 length and content |
//! | timeslice | class, class of descriptor, descriptor, components, their descriptors |
//! | components | class, u64 count, u32 0; for each u64 length and bytes |
//! | their descriptors | class, u64 count, u32 version of descriptor, class of descriptor before the first; for each 32 bytes (from version 1: 36) |
//!
//! A compressed archive has signature and header in the clear; what follows is one zstd stream with
//! a second archive that has no signature and names its classes anew. Compressing is not done here:
//! behind such a header the bytes have to be given in the clear.
//!
//! # Source
//! Layouts as declared in `lib/fles_ipc` of cbm-fles/flesnet, kinds and versions included, and as
//! Boost's serialization library writes them; tested on files that FLESnet wrote and on what Boost
//! 1.74 reads and writes.
//!
//! # Invariants
//! I1. Any bytes are read as items, or refused with the place and the reason; nothing panics.
//! I2. No length from outside is allocated: memory grows with the bytes that came, up to
//!     [`Limits`].
//! I3. An archive that was read is written again as it was, for every version.
//!
//! # Not here
//! What a microslice means: [`crate::microslice`]. Files, compression: the binary.

mod fault;
mod header;
mod inspect;
mod reader;
mod timeslice;
mod writer;

pub use fault::{ArchiveError, ArchiveFault};
pub use header::{ArchiveKind, Compression, Header, Versions};
pub use inspect::{ArchivePosition, Finding, InspectionSummary, Inspector};
pub use reader::{Item, Limits, Parsed, Reader, Remainder};
pub use timeslice::{
    Component, ComponentDescriptor, Timeslice, TimesliceDescriptor, TimesliceFlags,
};
pub use writer::Writer;

#[cfg(test)]
mod bit_flips;
#[cfg(test)]
mod tests;
