//! Groups: the unit in which records reach the disk, durable as a whole or not there.
//!
//! # Model
//! ```text
//!   | header 128 | head 64 | head 64 | .. | inline bytes | zeros |  body, zeros | body, zeros | ..
//!   |<-------------- front: whole blocks of 4 KiB -------------->|<- whole blocks each ->|
//!
//!   0   magic "CLWYGRP\0"
//!   8   uuid of the log (16 bytes)
//!  24   epoch (u64)
//!  32   number of the group (u64)
//!  40   durable (u64): the highest group that was known to be synced when this header was made
//!  48   use (u64): how many segments were begun before this one was
//!  56   segment (u32)
//!  60   block of the segment where this header lies (u32)
//!  64   digest of the header of the group before (u32)
//!  68   records (u32)
//!  72   inline bytes (u32)
//!  76   blocks of all bodies (u32)
//!  80   CRC-32C of heads and inline bytes (u32)
//!  84   CRC-32C of the bytes 0 to 84 (u32): the digest of the header
//!  88   zeros
//! ```
//! The group behind lies where this one ends, or at the beginning of another segment. It names this
//! one's digest, so a group that an earlier life of the log left there is not taken for it; and a
//! header names its own place, so a copy of it in a body is not taken for one.
//!
//! # Invariants
//! I1. Any bytes are a header or none; a front has the records that its header counts or is none.

use alloc::vec::Vec;

use super::record::{HEAD, LogRecord};
use super::{BLOCK, Epoch, GroupNumber, LogId, blocks};
use crate::base::{ByteReader, crc32c};

/// Bytes of a header.
pub(super) const HEADER: usize = 128;
/// Bytes of the longest front: 500 records, or the longest names and values and some more.
pub(super) const FRONT_MAX: usize = 32 << 10;
/// Bytes of all bodies of the longest group: at 1 GB/s, four milliseconds of a disk, so that a sync
/// is a small part of them.
pub(super) const BODIES_MAX: u64 = 4 << 20;
/// Bytes of the longest body: one write of an application, or several that were joined.
pub const BODY_MAX: u32 = 1 << 20;

const MAGIC: [u8; 8] = *b"CLWYGRP\0";
const COVERED: usize = 84;

/// A place in the log where a group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// The segment.
    pub segment: u32,
    /// Blocks from its beginning.
    pub block: u32,
}

impl LogPlace {
    /// Returns the bytes from the beginning of the segment.
    pub const fn offset(self) -> u64 {
        self.block as u64 * BLOCK as u64
    }
}

/// What a group says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The log that it belongs to.
    pub log: LogId,
    /// The life of the log in which it was written.
    pub epoch: Epoch,
    /// Its place in the order of all groups.
    pub number: GroupNumber,
    /// The highest group known to be synced when it was written.
    pub durable: GroupNumber,
    /// How many segments were begun before that in which it lies.
    pub segment_use: u64,
    /// Where it lies.
    pub place: LogPlace,
    /// The digest of the header before.
    pub previous: u32,
    /// Records.
    pub records: u32,
    /// Bytes of names behind the heads.
    pub inline: u32,
    /// Blocks of all bodies.
    pub body_blocks: u32,
    /// The digest of heads and inline bytes.
    pub front_digest: u32,
}

impl GroupHeader {
    /// Returns the bytes of the header and its digest.
    pub fn encode(&self) -> ([u8; HEADER], u32) {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.log.0.to_le_bytes());
        let words = [self.epoch.0, self.number.0, self.durable.0, self.segment_use];
        for (field, word) in bytes[24..56].chunks_exact_mut(8).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        let place = [self.place.segment, self.place.block, self.previous];
        let sizes = [self.records, self.inline, self.body_blocks, self.front_digest];
        for (field, word) in
            bytes[56..COVERED].chunks_exact_mut(4).zip(place.into_iter().chain(sizes))
        {
            field.copy_from_slice(&word.to_le_bytes());
        }
        let digest = crc32c(&bytes[..COVERED]);
        bytes[COVERED..COVERED + 4].copy_from_slice(&digest.to_le_bytes());
        (bytes, digest)
    }

    /// Reads the header at the beginning of `bytes`, and its digest; `None` when there is none that
    /// is whole.
    pub fn parse(bytes: &[u8]) -> Option<(Self, u32)> {
        let bytes = bytes.get(..HEADER)?;
        let mut rest = ByteReader::new(bytes);
        let magic = rest.take()?;
        let log = LogId(rest.u128()?);
        let (epoch, number) = (Epoch(rest.u64()?), GroupNumber(rest.u64()?));
        let (durable, segment_use) = (GroupNumber(rest.u64()?), rest.u64()?);
        let place = LogPlace { segment: rest.u32()?, block: rest.u32()? };
        let (previous, records, inline) = (rest.u32()?, rest.u32()?, rest.u32()?);
        let (body_blocks, front_digest, digest) = (rest.u32()?, rest.u32()?, rest.u32()?);
        let is_whole = magic == MAGIC
            && digest == crc32c(&bytes[..COVERED])
            && rest.remaining().iter().all(|byte| *byte == 0);
        let header = Self {
            log,
            epoch,
            number,
            durable,
            segment_use,
            place,
            previous,
            records,
            inline,
            body_blocks,
            front_digest,
        };
        let is_bounded = header.front_bytes() <= FRONT_MAX as u64
            && u64::from(body_blocks) * BLOCK as u64 <= BODIES_MAX;
        (is_whole && is_bounded).then_some((header, digest))
    }

    /// Returns the bytes of header, heads and inline bytes.
    fn front_bytes(&self) -> u64 {
        (HEADER as u64)
            .saturating_add(u64::from(self.records) * HEAD as u64)
            .saturating_add(u64::from(self.inline))
    }

    /// Returns the blocks of header, heads and inline bytes.
    pub fn front_blocks(&self) -> u32 {
        blocks(self.front_bytes())
    }

    /// Returns the blocks of the whole group.
    pub fn blocks(&self) -> u64 {
        u64::from(self.front_blocks()) + u64::from(self.body_blocks)
    }

    /// Reads the records of the front that begins with this header; `None` when they are not whole.
    pub fn records_in(&self, front: &[u8]) -> Option<Vec<LogRecord>> {
        let covered = front.get(HEADER..usize::try_from(self.front_bytes()).ok()?)?;
        if crc32c(covered) != self.front_digest {
            return None;
        }
        let (heads, inline) = covered.split_at_checked(self.records as usize * HEAD)?;
        let (mut heads, mut inline) = (ByteReader::new(heads), ByteReader::new(inline));
        let mut records = Vec::with_capacity(self.records as usize);
        for _ in 0..self.records {
            records.push(LogRecord::decode(&mut heads, &mut inline)?);
        }
        let bodies = records.iter().filter_map(LogRecord::body);
        let blocks: u64 = bodies.map(|body| u64::from(blocks(u64::from(body.length)))).sum();
        (inline.is_empty() && blocks == u64::from(self.body_blocks)).then_some(records)
    }
}

/// The front of a group while records are added to it.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupFront {
    heads: Vec<u8>,
    inline: Vec<u8>,
    body_blocks: u32,
}

impl GroupFront {
    /// Returns whether `record` still fits in a group with bodies of `bodies_max` bytes.
    pub(super) fn fits(&self, record: &LogRecord, bodies_max: u64) -> bool {
        let (mut heads, mut inline) = (Vec::new(), Vec::new());
        record.encode(&mut heads, &mut inline);
        let bytes = HEADER + self.heads.len() + self.inline.len() + heads.len() + inline.len();
        let bodies = u64::from(self.body_blocks + body_blocks(record)) * BLOCK as u64;
        bytes <= FRONT_MAX && bodies <= bodies_max
    }

    /// Adds a record, which fits.
    pub(super) fn push(&mut self, record: &LogRecord) {
        record.encode(&mut self.heads, &mut self.inline);
        self.body_blocks += body_blocks(record);
    }

    /// Returns the blocks of the group with `record` too.
    pub(super) fn blocks_with(&self, record: &LogRecord) -> u32 {
        let (mut heads, mut inline) = (Vec::new(), Vec::new());
        record.encode(&mut heads, &mut inline);
        let front = HEADER + self.heads.len() + self.inline.len() + heads.len() + inline.len();
        blocks(front as u64) + self.body_blocks + body_blocks(record)
    }

    /// Returns the blocks of the group as it is now.
    pub(super) fn blocks(&self) -> u32 {
        blocks((HEADER + self.heads.len() + self.inline.len()) as u64) + self.body_blocks
    }

    /// Returns the bytes of the front, and the header that it begins with, which `header` completes.
    pub(super) fn finish(&self, header: GroupHeader) -> (Vec<u8>, GroupHeader, u32) {
        let mut front = Vec::with_capacity(FRONT_MAX);
        front.resize(HEADER, 0);
        front.extend(&self.heads);
        front.extend(&self.inline);
        let header = GroupHeader {
            records: (self.heads.len() / HEAD) as u32,
            inline: self.inline.len() as u32,
            body_blocks: self.body_blocks,
            front_digest: crc32c(&front[HEADER..]),
            ..header
        };
        let (bytes, digest) = header.encode();
        front[..HEADER].copy_from_slice(&bytes);
        front.resize(blocks(front.len() as u64) as usize * BLOCK, 0);
        (front, header, digest)
    }
}

/// Returns the blocks of the body of `record`.
fn body_blocks(record: &LogRecord) -> u32 {
    record.body().map_or(0, |body| blocks(u64::from(body.length)))
}
