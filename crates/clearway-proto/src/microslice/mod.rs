//! Microslices: their descriptor as every FLESnet file and ring holds it, checks of their contents,
//! a source of made-up ones, and the cut of a stream of them into components of timeslices.
//!
//! # Source
//! The packed structure that the readout of the CBM experiment writes, as FLESnet
//! (cbm-fles/flesnet) declares it; so are the flags, the numbers of subsystems, and the ramp of its
//! pattern generator.
//!
//! # Not here
//! Files of microslices: [`crate::archive`].

mod contents;
mod descriptor;
mod generator;
mod sizes;
mod slicer;

pub use contents::{ContentPattern, fold, pattern_of, ramp_channel};
pub use descriptor::{Microslice, MicrosliceDescriptor, MicrosliceFlags};
pub use generator::{Checksum, Generator, GeneratorPlan};
pub use sizes::{SizeDistribution, UnknownSizeDistribution};
pub use slicer::{CutFaults, Offered, SliceCut, SliceRule, Slicer, TimeRule};
