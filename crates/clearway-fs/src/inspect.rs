//! Looks at a log that is not mounted, and changes nothing of it.
//!
//! # Model
//! The files of the log are opened to be read alone, under a shared lock, and given to the recovery of
//! the log: what it finds is what the next mount would find. All bytes that files have in the log are
//! compared with their digests; free space is not looked at.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use clearway_proto::base::{Bytes, Class};
use clearway_proto::staging::{
    ByteSource, InodeKind, InspectedLog, LogError, LogFile, LogLayout, inspect_log,
};
use clearway_proto::wire::Fault;
use rustix::fs::FlockOperation;
use serde::Serialize;

use crate::FsError;
use crate::classes::ClassRules;
use crate::control::ControlPath;
use crate::log_directory::{LogAccess, LogSegments, lock_log, open_file};

/// What is in a log, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogInspection {
    /// The directory of the log.
    pub log: String,
    /// How often it was opened.
    pub epoch: u64,
    /// Segments, and bytes of each.
    pub segments: u32,
    /// Bytes of each segment.
    pub segment_bytes: u64,
    /// Segments that are not used any more, because the disk failed there.
    pub segments_retired: u64,
    /// The last group that is there whole.
    pub last_group: u64,
    /// The group that a snapshot covers; zero without one.
    pub snapshot_group: u64,
    /// Whether the group after the last one is incomplete. It was never acknowledged.
    pub has_torn_tail: bool,
    /// Whether bytes behind the last group are no group: a crash tore one, or it was damaged.
    pub has_unknown_tail: bool,
    /// Segments that are shorter than the others.
    pub segments_short: Vec<u64>,
    /// Copies of the superblock that are damaged or cut short; the other one is used.
    pub superblocks_damaged: u32,
    /// Snapshots that are damaged or not whole; the groups that they cover are used.
    pub snapshots_damaged: u32,
    /// Why a mount would refuse the log: something durable is damaged that all behind it needs.
    pub refused: Option<String>,
    /// Files with damaged bytes: reading these fails, and the store does not get them.
    pub damaged: Vec<ControlPath>,
    /// Files, directories and links.
    pub inodes: u64,
    /// Files whose bytes the store does not have as they are.
    pub undrained_files: u64,
    /// Names, attributes and removals that the store lacks.
    pub lag: u64,
    /// Bytes of files that are in the log, by class.
    pub class_bytes: BTreeMap<Class, u64>,
}

impl LogInspection {
    /// Returns whether there is nothing that an operator should look at.
    pub fn is_clean(&self) -> bool {
        !self.has_torn_tail
            && !self.has_unknown_tail
            && self.segments_short.is_empty()
            && self.superblocks_damaged == 0
            && self.snapshots_damaged == 0
            && self.refused.is_none()
            && self.damaged.is_empty()
            && self.segments_retired == 0
    }
}

/// The files of a log, to be read.
struct LogFiles {
    superblock: File,
    snapshots: [File; 2],
    segments: LogSegments,
    layout: LogLayout,
    /// Keeps others from opening the log meanwhile.
    _lock: File,
}

/// Looks at the log in `path`.
///
/// # Errors
/// [`FsError`]: it is in use, or no log that this release knows.
pub fn inspect(path: &Path) -> Result<LogInspection, FsError> {
    let files = match LogFiles::open(path) {
        Err(why @ FsError::NoSegment { .. }) => {
            return Ok(LogInspection {
                refused: Some(why.to_string()),
                ..LogInspection::new(path)
            });
        }
        opened => opened?,
    };
    let layout = files.layout;
    let mut inspection = LogInspection {
        segments: layout.segments,
        segment_bytes: layout.segment_size.0,
        segments_short: files.segments.short.iter().map(|(at, _)| *at as u64).collect(),
        ..LogInspection::new(path)
    };
    match inspect_log(layout, &mut |file, at, bytes| files.read(file, at, bytes)) {
        Ok(found) => inspection.take(&found),
        // Segments behind the last one that is there are missing.
        Err(LogError::Geometry { segments, .. }) if segments > layout.segments => {
            let why = FsError::NoSegment { path: path.to_owned(), missing: layout.segments.into() };
            inspection.refused = Some(why.to_string());
        }
        Err(
            why @ (LogError::GroupDamaged { .. }
            | LogError::Misplaced { .. }
            | LogError::Inconsistent(_)
            | LogError::SuperblockDamaged),
        ) => inspection.refused = Some(why.to_string()),
        Err(why) => return Err(FsError::Log { path: path.to_owned(), why }),
    }
    Ok(inspection)
}

impl LogInspection {
    /// Creates the inspection of a log of which nothing is known.
    fn new(path: &Path) -> Self {
        Self {
            log: path.display().to_string(),
            epoch: 0,
            segments: 0,
            segment_bytes: 0,
            segments_retired: 0,
            last_group: 0,
            snapshot_group: 0,
            has_torn_tail: false,
            has_unknown_tail: false,
            segments_short: Vec::new(),
            superblocks_damaged: 0,
            snapshots_damaged: 0,
            refused: None,
            damaged: Vec::new(),
            inodes: 0,
            undrained_files: 0,
            lag: 0,
            class_bytes: BTreeMap::new(),
        }
    }

    fn take(&mut self, found: &InspectedLog) {
        let InspectedLog { state, report, epoch, segments_retired } = found;
        let tree = state.tree();
        (self.epoch, self.segments_retired) = (epoch.0, *segments_retired);
        self.last_group = report.last.0;
        self.snapshot_group = report.snapshot.map_or(0, |group| group.0);
        self.has_torn_tail = report.has_torn_tail;
        self.has_unknown_tail = report.has_unknown_tail;
        self.superblocks_damaged = report.superblocks_damaged;
        self.snapshots_damaged = report.snapshots_damaged;
        let path_of = |path: &Option<Vec<u8>>, inode: u64| match path {
            Some(path) => ControlPath::from_bytes(path),
            None => ControlPath(format!("(no name, inode {inode})")),
        };
        let damaged = report.damaged.iter().map(|file| path_of(&file.path, file.inode.0));
        self.damaged = damaged.collect();
        (self.inodes, self.lag) = (tree.count() as u64, tree.store_lag() as u64);
        let rules = ClassRules::from_tree(tree).unwrap_or_default();
        for (inode, node) in tree.inodes() {
            let InodeKind::File(content) = &node.kind else { continue };
            self.undrained_files += u64::from(content.drained() < content.version());
            let sources = content.sources(0, content.size());
            let in_log = sources.iter().filter(|(_, s)| matches!(s, ByteSource::Log { .. }));
            let bytes: u64 = in_log.map(|(length, _)| length).sum();
            if bytes > 0 {
                *self.class_bytes.entry(rules.class_in(tree, inode)).or_default() += bytes;
            }
        }
    }
}

impl LogFiles {
    fn open(path: &Path) -> Result<Self, FsError> {
        let open = |name: &str| open_file(&path.join(name), LogAccess::Read);
        if !path.join("superblock").exists() {
            let listed = std::fs::read_dir(path);
            listed.map_err(FsError::at("cannot read the directory", path))?;
            return Err(FsError::NotLog { path: path.to_owned() });
        }
        let lock = open("lock")?;
        lock_log(&lock, FlockOperation::NonBlockingLockShared, path)?;
        let segments = LogSegments::open(path, LogAccess::Read)?;
        let snapshots = [open("snapshot-0")?, open("snapshot-1")?];
        let length = |file: &File| {
            let metadata = file.metadata();
            metadata.map(|found| found.len()).map_err(FsError::at("cannot read the files of", path))
        };
        let layout = LogLayout {
            segments: u32::try_from(segments.files.len()).unwrap_or(u32::MAX),
            segment_size: Bytes(segments.size),
            snapshot_size: Bytes(length(&snapshots[0])?.max(length(&snapshots[1])?)),
        };
        Ok(Self { superblock: open("superblock")?, snapshots, segments, layout, _lock: lock })
    }

    /// Fills `bytes` from a place of a file on; returns how many there are.
    fn read(&self, file: LogFile, at: u64, bytes: &mut [u8]) -> Result<usize, Fault> {
        let file = match file {
            LogFile::Superblock => &self.superblock,
            LogFile::Snapshot(slot) => self.snapshots.get(slot).ok_or(Fault::Gone)?,
            LogFile::Segment(number) => {
                self.segments.files.get(number as usize).ok_or(Fault::Gone)?
            }
        };
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Fault::Io),
            }
        }
        Ok(filled)
    }
}
