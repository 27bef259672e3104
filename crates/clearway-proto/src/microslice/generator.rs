//! A stream of microslices made of nothing but a plan: the same on every machine, each one without
//! those before it.
//!
//! # Model
//! Length, time and content of microslice `n` are functions of the plan and `n`. Inputs that hold
//! different channels of one plan therefore need to tell each other nothing, and one that receives
//! a microslice can make it again and compare.
//!
//! # Source
//! FLESnet's generator: equipment 0xE001, subsystem 0xF0, format 0x81, the ramp and the checksum
//! next to it.

use alloc::vec::Vec;

use super::contents::{FLES, RAMP, fold, write_ramp};
use super::{MicrosliceDescriptor, MicrosliceFlags, SizeDistribution};
use crate::base::{Nanos, RandomKey, crc32c};

/// The equipment of FLESnet's generator.
const EQUIPMENT: u16 = 0xe001;

/// What stands in the CRC field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// CRC-32C, with the flag that says so.
    Crc32c,
    /// What FLESnet's generator writes and its pattern check asks for: [`fold`], without the flag.
    Fold,
}

/// Describes a stream of microslices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratorPlan {
    /// Which stream; stands in every word of the ramp.
    pub channel: u16,
    /// Seed of the lengths; channels of one seed differ all the same.
    pub seed: u64,
    /// The law of the lengths.
    pub sizes: SizeDistribution,
    /// Mean length of a content in bytes.
    pub mean_bytes: u32,
    /// Experiment time from one microslice to the next.
    pub period: Nanos,
    /// What stands in the CRC field.
    pub checksum: Checksum,
}

/// Makes the microslices of a plan.
#[derive(Clone, Debug)]
pub struct Generator {
    plan: GeneratorPlan,
    lengths: RandomKey,
}

impl Generator {
    /// Creates a `Generator` for `plan`.
    pub fn new(plan: GeneratorPlan) -> Self {
        let lengths = RandomKey::new(plan.seed).node(u64::from(plan.channel)).purpose("microslice");
        Self { plan, lengths }
    }

    /// Returns the length of the content of microslice `number` in bytes, a multiple of 8. Takes
    /// some 10 ns to 100 ns.
    pub fn size(&self, number: u64) -> u32 {
        self.plan.sizes.draw(self.plan.mean_bytes, &mut self.lengths.node(number).stream())
    }

    /// Returns when microslice `number` starts, in ns of experiment time.
    pub const fn start(&self, number: u64) -> u64 {
        number.saturating_mul(self.plan.period.0)
    }

    /// Writes the content of microslice `number` into `content`, which is emptied first, and
    /// describes it; the offset is left at zero. Allocates only where `content` has to grow.
    pub fn microslice(&self, number: u64, content: &mut Vec<u8>) -> MicrosliceDescriptor {
        content.resize(self.size(number) as usize, 0);
        self.fill(number, content)
    }

    /// Writes the content of microslice `number` over `content`, which has [`Generator::size`] bytes
    /// of it, and describes it; the offset is left at zero.
    pub fn fill(&self, number: u64, content: &mut [u8]) -> MicrosliceDescriptor {
        write_ramp(self.plan.channel, content);
        let (flags, crc) = match self.plan.checksum {
            Checksum::Crc32c => (MicrosliceFlags::CRC_VALID, crc32c(content)),
            Checksum::Fold => (MicrosliceFlags::default(), fold(content)),
        };
        MicrosliceDescriptor {
            format: MicrosliceDescriptor::FORMAT,
            version: MicrosliceDescriptor::VERSION,
            equipment: EQUIPMENT,
            flags,
            subsystem: FLES,
            subsystem_format: RAMP,
            index: self.start(number),
            crc,
            size: content.len() as u32,
            offset: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: GeneratorPlan = GeneratorPlan {
        channel: 3,
        seed: 1,
        sizes: SizeDistribution::Skewed,
        mean_bytes: 1024,
        period: Nanos::from_micros(100),
        checksum: Checksum::Crc32c,
    };

    #[test]
    fn size__is_the_same_everywhere_and_in_any_order() {
        // Runs quote seeds; a change here would make every one of them another run.
        let generator = Generator::new(PLAN);
        let backwards: Vec<u32> = (0..6).rev().map(|number| generator.size(number)).collect();
        let forwards: Vec<u32> = (0..6).map(|number| generator.size(number)).collect();
        assert!(backwards.iter().rev().eq(&forwards));
        assert_eq!(forwards, FROZEN);
        let other = Generator::new(GeneratorPlan { channel: 4, ..PLAN });
        assert!((0..6).any(|number| other.size(number) != generator.size(number)));
    }

    const FROZEN: [u32; 6] = [760, 976, 856, 568, 936, 880];

    #[test]
    fn microslice__both_checksums_are_those_of_the_content() {
        let mut content = Vec::new();
        let descriptor = Generator::new(PLAN).microslice(5, &mut content);
        assert_eq!(descriptor.crc, crc32c(&content));
        assert!(descriptor.flags.has(MicrosliceFlags::CRC_VALID));
        assert_eq!((descriptor.index, descriptor.size as usize), (500_000, content.len()));
        let plan = GeneratorPlan {
            sizes: SizeDistribution::Constant,
            mean_bytes: 16,
            checksum: Checksum::Fold,
            ..PLAN
        };
        let descriptor = Generator::new(plan).microslice(0, &mut content);
        assert_eq!(content, [0, 0, 0, 0, 0, 0, 3, 0, 8, 0, 0, 0, 0, 0, 3, 0]);
        assert_eq!((descriptor.crc, descriptor.flags), (8, MicrosliceFlags(0)));
    }
}
