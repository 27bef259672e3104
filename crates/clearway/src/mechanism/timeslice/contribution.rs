//! The bytes that an input gives to a timeslice: a head, the descriptors of its microslices, and
//! their contents.
//!
//! # Model
//! All numbers little-endian, no padding:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | start of the timeslice in ns of experiment time; all bits set if it has none |
//! | 8 | 4 | number of microslices |
//! | 12 | 4 | number of them in the core of this timeslice |
//! | 16 | 4 | faults: [`CutFaults`] |
//! | 20 | 32 each | descriptors, then contents in the same order |
//!
//! # Invariants
//! I1. Bytes are a contribution only if the sizes in their descriptors add up to their length.

use clearway_proto::base::ByteReader;
use clearway_proto::microslice::{CutFaults, MicrosliceDescriptor};

/// Begins a contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContributionHead {
    /// When the timeslice starts; `None` where it is cut by index.
    pub(super) start: Option<u64>,
    pub(super) microslices: u32,
    pub(super) core: u32,
    pub(super) faults: CutFaults,
}

impl ContributionHead {
    pub(super) const BYTES: usize = 20;
    /// What stands for a contribution that is not there.
    pub(super) const NONE: Self =
        Self { start: None, microslices: 0, core: 0, faults: CutFaults::MISSING };

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.start.unwrap_or(u64::MAX).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.microslices.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.core.to_le_bytes());
        bytes[16..].copy_from_slice(&self.faults.0.to_le_bytes());
        bytes
    }

    /// Returns the head of `contribution`, and its descriptors and contents; `None` where these do
    /// not fit together.
    pub(super) fn parse(contribution: &[u8]) -> Option<(Self, &[u8])> {
        let mut rest = ByteReader::new(contribution);
        let (start, microslices) = (rest.u64()?, rest.u32()?);
        let (core, faults) = (rest.u32()?, CutFaults(rest.u32()?));
        let data = contribution.get(Self::BYTES..)?;
        let (descriptors, _) = data.as_chunks::<{ MicrosliceDescriptor::BYTES }>();
        let descriptors = descriptors.get(..microslices as usize)?;
        let contents = descriptors
            .iter()
            .map(|bytes| u64::from(MicrosliceDescriptor::from_bytes(bytes).size))
            .sum::<u64>();
        let length = contents + size_of_val(descriptors) as u64;
        let start = Some(start).filter(|start| *start < u64::MAX);
        let head = Self { start, microslices, core, faults };
        (length == data.len() as u64 && core <= microslices).then_some((head, data))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns `sizes` as a contribution whose microslices begin at 100, 110, ..., all but the last
    /// `overlap` of them core.
    pub(crate) fn contribution(sizes: &[u32], overlap: u32) -> Vec<u8> {
        let microslices = sizes.len() as u32;
        let core = microslices.saturating_sub(overlap);
        let head =
            ContributionHead { start: None, microslices, core, faults: CutFaults::default() };
        let descriptor = |(size, number): (&u32, u64)| MicrosliceDescriptor {
            size: *size,
            index: 100 + 10 * number,
            ..MicrosliceDescriptor::from_bytes(&[0; MicrosliceDescriptor::BYTES])
        };
        let descriptors = sizes.iter().zip(0..).flat_map(|size| descriptor(size).to_bytes());
        let contents = std::iter::repeat_n(7, sizes.iter().sum::<u32>() as usize);
        head.to_bytes().into_iter().chain(descriptors).chain(contents).collect()
    }

    #[test]
    fn parse__a_head_comes_back_with_what_it_heads() {
        for sizes in [&[5, 0, 9, 1][..], &[64], &[0, 0], &[]] {
            let bytes = contribution(sizes, 0);
            let (head, data) = ContributionHead::parse(&bytes).expect("a contribution");
            assert_eq!((head.microslices as usize, head.start), (sizes.len(), None));
            assert_eq!(data.len(), bytes.len() - ContributionHead::BYTES);
        }
        let head =
            ContributionHead { start: Some(7), microslices: 0, core: 0, faults: CutFaults::LATE };
        assert_eq!(ContributionHead::parse(&head.to_bytes()), Some((head, &[][..])));
    }

    #[test]
    fn parse__bytes_that_do_not_fit_together_are_none() {
        let whole = contribution(&[5, 6], 0);
        (0..whole.len()).for_each(|end| assert_eq!(ContributionHead::parse(&whole[..end]), None));
        for (at, value) in [(8, 3), (8, 255), (11, 255), (12, 3), (20 + 20, 6), (20 + 23, 255)] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            assert_eq!(ContributionHead::parse(&bytes), None, "{value} at {at}");
        }
    }
}
