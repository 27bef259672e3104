//! The superblock: which log this is, how it is laid out, and how often it was opened.
//!
//! # Model
//! Two copies, each in a block of its own, in one file. They are written in turn, with a sync
//! between: at every instant one of the two is whole. The one of the later epoch counts.
//! ```text
//!   0   magic "CLWYLOG\0"
//!   8   version (u32): 3
//!  12   segments (u32)
//!  16   uuid (16 bytes)
//!  32   epoch (u64): grows by one with every opening
//!  40   bytes of a segment (u64)
//!  48   durable (u64): a group that was durable when this copy was written
//!  56   CRC-32C of the bytes before (u32), then zeros to the end of the block
//! ```
//! Version 2 has no records `RELOCATE`, and is otherwise the same. An opening writes version 3, so that
//! a release that does not know these records refuses the log.
//!
//! # Invariants
//! I1. Any bytes are a superblock or the reason why not.

use super::{BLOCK, Epoch, GroupNumber, LogError, LogId};
use crate::base::{ByteReader, crc32c};

/// Copies of the superblock.
pub(super) const COPIES: u64 = 2;
const MAGIC: [u8; 8] = *b"CLWYLOG\0";
const VERSION: u32 = 3;
/// The oldest version that is read.
const VERSION_MIN: u32 = 2;
/// Bytes that the digest covers.
const COVERED: usize = 56;

/// What is true for all groups of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) log: LogId,
    pub(super) epoch: Epoch,
    pub(super) segments: u32,
    pub(super) segment_size: u64,
    pub(super) durable: GroupNumber,
}

impl Superblock {
    /// Returns the block that holds this superblock.
    pub(super) fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&self.segments.to_le_bytes());
        block[16..32].copy_from_slice(&self.log.0.to_le_bytes());
        block[32..40].copy_from_slice(&self.epoch.0.to_le_bytes());
        block[40..48].copy_from_slice(&self.segment_size.to_le_bytes());
        block[48..COVERED].copy_from_slice(&self.durable.0.to_le_bytes());
        let digest = crc32c(&block[..COVERED]);
        block[COVERED..COVERED + 4].copy_from_slice(&digest.to_le_bytes());
        block
    }

    /// Reads a copy.
    ///
    /// # Errors
    /// [`LogError::WrongMagic`], [`LogError::Version`], [`LogError::SuperblockDamaged`].
    pub(super) fn parse(block: &[u8]) -> Result<Self, LogError> {
        let mut rest = ByteReader::new(block);
        if rest.take() != Some(MAGIC) {
            return Err(LogError::WrongMagic);
        }
        let fields = || {
            let version = rest.u32()?;
            let segments = rest.u32()?;
            let log = LogId(rest.u128()?);
            let epoch = Epoch(rest.u64()?);
            let segment_size = rest.u64()?;
            let durable = GroupNumber(rest.u64()?);
            let is_whole = rest.u32()? == crc32c(block.get(..COVERED)?);
            is_whole.then_some((version, Self { log, epoch, segments, segment_size, durable }))
        };
        let (version, superblock) = { fields }().ok_or(LogError::SuperblockDamaged)?;
        let is_known = (VERSION_MIN..=VERSION).contains(&version);
        if is_known { Ok(superblock) } else { Err(LogError::Version(version)) }
    }
}
