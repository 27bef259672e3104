//! Reads a log without opening it: what recovery would find, and all bytes of files; nothing is
//! written.
//!
//! # Not here
//! Whether somebody has the log open: what is read while it changes says nothing.

use alloc::vec::Vec;

use super::record::RecordBody;
use super::recovery::{FileRange, LogFile, Recovery, RecoveryReport, RecoveryStep, ScanExtent};
use super::state::{BodyCondition, BodyPlace, LogState};
use super::{BLOCK, BODY_MAX, Epoch, LogError};
use crate::base::{Bytes, xxh3};
use crate::wire::Fault;

/// The files of a log that is inspected.
#[derive(Clone, Copy, Debug)]
pub struct LogLayout {
    /// Segments.
    pub segments: u32,
    /// Bytes of each.
    pub segment_size: Bytes,
    /// Bytes of the longer snapshot.
    pub snapshot_size: Bytes,
}

/// A log as it was found.
#[derive(Debug)]
pub struct InspectedLog {
    /// What an opening would begin with.
    pub state: LogState,
    /// What recovery says, and all files with damaged bytes.
    pub report: RecoveryReport,
    /// How often it was opened.
    pub epoch: Epoch,
    /// Segments that are not written to any more, because the disk failed there.
    pub segments_retired: u64,
}

/// Looks at the bodies that a snapshot covers: an opening believes them until they are read.
fn check_bodies(state: &mut LogState, read: &mut LogRead<'_>) {
    let mut buffer = Vec::new();
    for body in state.bodies.values_mut() {
        let BodyPlace { place, record: RecordBody { length, digest, .. }, .. } = *body;
        let is_sound = length <= BODY_MAX && {
            buffer.resize(length as usize, 0);
            let count = read(LogFile::Segment(place.segment), place.offset(), &mut buffer);
            count == Ok(buffer.len()) && xxh3(&buffer) == digest
        };
        if !is_sound {
            body.condition = BodyCondition::Damaged;
        }
    }
}

/// Fills a buffer from a place of a file on, and returns how many bytes there are.
pub type LogRead<'a> = dyn FnMut(LogFile, u64, &mut [u8]) -> Result<usize, Fault> + 'a;

/// Reads a log. `read` fills its buffer from a place of a file on, and returns how many bytes there
/// are.
///
/// # Errors
/// Why an opening would be refused.
pub fn inspect_log(layout: LogLayout, read: &mut LogRead<'_>) -> Result<InspectedLog, LogError> {
    let segment_blocks = layout.segment_size.0 / BLOCK as u64;
    let segment_blocks = u32::try_from(segment_blocks).map_err(|_| LogError::Configuration)?;
    let snapshot_size = layout.snapshot_size.0;
    let (segments, extent) = (layout.segments, ScanExtent::All);
    let mut recovery = Recovery::new(segments, segment_blocks, snapshot_size, u32::MAX, extent);
    let mut buffer = Vec::new();
    let fill = |FileRange { file, at, length }, read: &mut LogRead<'_>, buffer: &mut Vec<u8>| {
        buffer.clear();
        buffer.resize(length as usize, 0);
        let count = read(file, at, buffer)?;
        buffer.truncate(count);
        Ok::<_, Fault>(())
    };
    loop {
        match recovery.step() {
            RecoveryStep::Bytes(range) => {
                let filled = fill(range, read, &mut buffer);
                recovery.give_bytes(filled.map(|()| &buffer[..]));
            }
            RecoveryStep::Digest(range) => {
                let filled = fill(range, read, &mut buffer);
                let is_whole = buffer.len() == range.length as usize;
                recovery.give_digest(filled.map(|()| is_whole.then(|| xxh3(&buffer))));
            }
            RecoveryStep::Failed(why) => return Err(why),
            RecoveryStep::Found(found) => {
                let segments_retired = found.state.retired.len() as u64;
                let epoch = found.superblock.epoch;
                let (mut state, mut report) = (found.state, found.report);
                check_bodies(&mut state, read);
                report.damaged = state.damaged_list();
                return Ok(InspectedLog { state, report, epoch, segments_retired });
            }
        }
    }
}
