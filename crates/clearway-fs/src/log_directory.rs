//! The files of a log: made whole before anything is in them, held by one process at a time.
//!
//! # Model
//! ```text
//!   lock          held (flock) by the process that has the log open; its number is in it
//!   superblock    made last: a directory without it, or with one of zeros, has no log yet
//!   snapshot-0, snapshot-1
//!   control       the socket of the mount
//!   segments/00000000, 00000001, ..   preallocated
//! ```
//!
//! # Invariants
//! I1. A directory that has other files and no log is not touched.
//! I2. The names of all files are durable before the superblock is written.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clearway_proto::base::Bytes;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock};

use crate::FsError;

/// The name of the socket of a mount.
pub(crate) const CONTROL_NAME: &str = "control";

/// Bytes of a superblock's file: two blocks.
const SUPERBLOCK_BYTES: u64 = 8192;
/// Segments of a log, at least and at most: a smaller one cannot free space, a larger one takes more
/// descriptors than a process has.
const SEGMENTS: std::ops::RangeInclusive<u64> = 4..=SEGMENTS_MAX as u64;
/// The most segments that a log has.
pub(crate) const SEGMENTS_MAX: usize = 512;
/// Bytes of the smallest and largest segment: four of the longest groups, and what a place on disk
/// can say.
const SEGMENT_BYTES: [u64; 2] = [16 << 20, 1 << 30];
/// Bytes of a new log that are filled with zeros: the first write to a block that was only reserved
/// changes the metadata of the file system, which makes a sync half as long again. The log uses its
/// first segments again before others.
const FILL: u64 = 64 << 20;
/// Bytes that are filled at a time.
const FILL_STEP: usize = 1 << 20;

/// Segments with a descriptor for direct writes.
const DIRECT_MAX: usize = 64;
/// File systems whose direct writes `RWF_DSYNC` makes durable: ext4 and XFS (`statfs(2)`).
const DIRECT_SYSTEMS: [rustix::fs::FsWord; 2] = [0xEF53, 0x5846_5342];

/// The sizes of a log that is made.
#[derive(Clone, Copy, Debug)]
pub struct LogSizes {
    /// Bytes of all segments.
    pub total: Bytes,
    /// Inodes that there can be.
    pub inodes: u32,
}

/// The open files of a log.
#[derive(Debug)]
pub(crate) struct LogDirectory {
    pub(crate) path: PathBuf,
    pub(crate) superblock: File,
    pub(crate) snapshots: [File; 2],
    pub(crate) segments: LogSegments,
    /// Whether there is no log in the files yet.
    pub(crate) is_new: bool,
    /// Held as long as this lives.
    _lock: File,
}

/// Returns the size of the segments of a log of `total` bytes: a sixteenth, so that one that waits
/// for a last file keeps little from being free.
fn segment_size(total: u64) -> u64 {
    let [least, most] = SEGMENT_BYTES;
    (total / 16).next_multiple_of(1 << 20).clamp(least, most)
}

impl LogDirectory {
    /// Opens the log in `path`, or makes its files with `sizes`.
    ///
    /// # Errors
    /// [`FsError`].
    pub(crate) fn open(path: &Path, sizes: LogSizes) -> Result<Self, FsError> {
        fs::create_dir_all(path)
            .map_err(FsError::at("cannot make the directory of the log", path))?;
        let has_superblock = path.join("superblock").exists();
        if !has_superblock && !is_free(path)? {
            return Err(FsError::NoLog { path: path.to_owned() });
        }
        let lock = hold(path)?;
        let is_new = !has_superblock || is_blank(&path.join("superblock"))?;
        if is_new {
            if has_content(path)? {
                return Err(FsError::NoSuperblock { path: path.to_owned() });
            }
            make(path, sizes)?;
        }
        let open = |name: &str| open_file(&path.join(name), LogAccess::Write);
        let segments = LogSegments::open(path, LogAccess::Write)?;
        Ok(Self {
            superblock: open("superblock")?,
            snapshots: [open("snapshot-0")?, open("snapshot-1")?],
            segments,
            is_new,
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Returns whether `path` has no log, and [`LogDirectory::open`] would make one.
    pub(crate) fn is_makeable(path: &Path) -> bool {
        let superblock = path.join("superblock");
        let has_log = superblock.exists() && !is_blank(&superblock).unwrap_or(false);
        !has_log && (!path.exists() || superblock.exists() || is_free(path).unwrap_or(false))
    }

    /// Opens a file of the log once more.
    ///
    /// # Errors
    /// The system has no room for another descriptor.
    pub(crate) fn reopen(&self, file: &File) -> Result<File, FsError> {
        file.try_clone().map_err(FsError::at("cannot open again", &self.path))
    }

    /// Opens a segment for direct writes, if the file system is one that makes them durable by
    /// `RWF_DSYNC`. Only the first segments have such a descriptor: the log uses them again before
    /// others, and a process has few.
    pub(crate) fn open_direct(&self, segment: usize) -> Option<File> {
        let file = self.segments.files.get(segment).filter(|_| segment < DIRECT_MAX)?;
        let kind = rustix::fs::fstatfs(file).ok()?.f_type;
        if !DIRECT_SYSTEMS.contains(&kind) {
            return None;
        }
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(OFlags::DIRECT.bits() as i32);
        options.open(self.path.join(segment_name(segment as u64))).ok()
    }

    /// Returns the bytes that a snapshot of `inodes` inodes may have: names and extents included, a
    /// kilobyte each.
    pub(crate) fn snapshot_bytes(inodes: u32) -> u64 {
        (u64::from(inodes) << 10).max(64 << 20)
    }
}

pub(crate) fn segment_name(number: u64) -> String {
    format!("segments/{number:08}")
}

/// The open segments of a log.
#[derive(Debug)]
pub(crate) struct LogSegments {
    pub(crate) files: Vec<File>,
    /// Bytes of each: what most of them have.
    pub(crate) size: u64,
    /// Segments that are shorter, and their lengths. A longer one does no harm.
    pub(crate) short: Vec<(usize, u64)>,
}

impl LogSegments {
    /// Opens the segments of the log in `path`; files of other names are left out.
    ///
    /// # Errors
    /// [`FsError`]: one is missing, or no regular file.
    pub(crate) fn open(path: &Path, access: LogAccess) -> Result<Self, FsError> {
        let wrong = || FsError::at("cannot read the segments of", path);
        let entries = fs::read_dir(path.join("segments")).map_err(wrong())?;
        let mut found = BTreeSet::new();
        for entry in entries {
            let name = entry.map_err(wrong())?.file_name();
            let digits = name.to_str().filter(|name| name.len() == 8 && !name.starts_with('+'));
            found.extend(digits.and_then(|digits| digits.parse::<u64>().ok()));
        }
        if let Some(missing) = (0..).zip(&found).find_map(|(at, it)| (at != *it).then_some(at)) {
            return Err(FsError::NoSegment { path: path.to_owned(), missing });
        }
        let numbers = 0..(found.len() as u64).min(SEGMENTS_MAX as u64);
        let opened = numbers.map(|number| open_file(&path.join(segment_name(number)), access));
        let files: Vec<File> = opened.collect::<Result<_, _>>()?;
        let lengths = files.iter().map(|file| Ok(file.metadata()?.len()));
        let lengths: Vec<u64> = lengths.collect::<io::Result<_>>().map_err(wrong())?;
        let votes = |length: &u64| lengths.iter().filter(|other| *other == length).count();
        let size = lengths.iter().copied().max_by_key(|length| (votes(length), *length));
        let size = size.unwrap_or(0);
        let short = lengths.into_iter().enumerate().filter(|(_, length)| *length < size);
        Ok(Self { size, short: short.collect(), files })
    }
}

/// What the files of a log are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogAccess {
    Read,
    Write,
}

/// Returns whether `path` has nothing but what an interrupted start of a log leaves there.
fn is_free(path: &Path) -> Result<bool, FsError> {
    let entries = fs::read_dir(path).map_err(FsError::at("cannot read the directory", path))?;
    let known =
        ["lock", CONTROL_NAME, "snapshot-0", "snapshot-1", "segments", "mount.log", "lost+found"];
    for entry in entries {
        let name = entry.map_err(FsError::at("cannot read the directory", path))?.file_name();
        if !known.iter().any(|known| name == *known) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a segment or a snapshot begins with bytes: a log writes none before its superblock
/// is durable.
fn has_content(path: &Path) -> Result<bool, FsError> {
    let mut files = vec![path.join("snapshot-0"), path.join("snapshot-1")];
    if let Ok(entries) = fs::read_dir(path.join("segments")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    for file in files.iter().filter(|file| file.is_file()) {
        let (mut begin, opened) = ([0; 512], open_file(file, LogAccess::Read)?);
        let length = opened.read_at(&mut begin, 0).map_err(FsError::at("cannot read", file))?;
        if begin[..length].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes the lock of the log in `path`.
fn hold(path: &Path) -> Result<File, FsError> {
    let name = path.join("lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut lock =
        options.open(&name).map_err(FsError::at("cannot write the lock of the log", &name))?;
    lock_log(&lock, FlockOperation::NonBlockingLockExclusive, path)?;
    let written = lock
        .set_len(0)
        .and_then(|()| lock.rewind())
        .and_then(|()| writeln!(lock, "{}", std::process::id()));
    written.map_err(FsError::at("cannot write the lock of the log", &name))?;
    Ok(lock)
}

/// Locks the open file `lock` of the log in `path`, without waiting.
///
/// # Errors
/// [`FsError::InUse`] names the process that wrote itself into it; else the system's.
pub(crate) fn lock_log(lock: &File, operation: FlockOperation, path: &Path) -> Result<(), FsError> {
    match flock(lock, operation) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            let _ = lock.take(20).read_to_string(&mut holder);
            let holder = holder.trim().parse::<u32>();
            let holder = holder.map_or(String::new(), |process| format!(" (process {process})"));
            Err(FsError::InUse { path: path.to_owned(), holder })
        }
        Err(why) => Err(FsError::at("cannot lock", &path.join("lock"))(why.into())),
    }
}

/// Returns whether a superblock was made and never written.
fn is_blank(path: &Path) -> Result<bool, FsError> {
    let file = open_file(path, LogAccess::Read)?;
    let mut bytes = [0; SUPERBLOCK_BYTES as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(bytes.iter().all(|byte| *byte == 0)),
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => {
            let length = file.metadata().map_err(FsError::at("cannot read", path))?.len();
            Ok(length == 0)
        }
        Err(why) => Err(FsError::at("cannot read", path)(why)),
    }
}

/// Opens a regular file of a log.
pub(crate) fn open_file(path: &Path, access: LogAccess) -> Result<File, FsError> {
    let mut options = OpenOptions::new();
    options.read(true).write(access == LogAccess::Write);
    // A pipe of that name must not keep the command waiting for a writer.
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path).and_then(|file| {
        let is_file = file.metadata()?.is_file();
        is_file.then_some(file).ok_or_else(|| io::Error::other("it is no regular file"))
    });
    file.map_err(FsError::at("cannot open", path))
}

/// Makes the files of a log.
fn make(path: &Path, sizes: LogSizes) -> Result<(), FsError> {
    let size = segment_size(sizes.total.0);
    let count = sizes.total.0 / size;
    if !SEGMENTS.contains(&count) {
        let [least, most] =
            [SEGMENTS.start() * SEGMENT_BYTES[0], SEGMENTS.end() * SEGMENT_BYTES[1]];
        return Err(FsError::Option(format!(
            "--size is out of range; give it a value between {} and {}",
            Bytes(least),
            Bytes(most)
        )));
    }
    let made = make_files(path, size, count);
    if made.is_err() {
        // They may have taken all space of the disk.
        let _ = fs::remove_dir_all(path.join("segments"));
    }
    made
}

fn make_files(path: &Path, size: u64, count: u64) -> Result<(), FsError> {
    let directory = path.join("segments");
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(FsError::at("cannot remove", &directory))?;
    }
    fs::create_dir(&directory).map_err(FsError::at("cannot make", &directory))?;
    for number in 0..count {
        make_file(&path.join(segment_name(number)), size)?;
    }
    for name in ["snapshot-0", "snapshot-1"] {
        make_file(&path.join(name), 0)?;
    }
    let mut first = (0..count).take_while(|number| number * size < FILL);
    first.try_for_each(|number| fill(&path.join(segment_name(number)), size))?;
    sync_directory(&directory)?;
    make_file(&path.join("superblock"), SUPERBLOCK_BYTES)?;
    sync_directory(path)
}

/// Writes zeros to the first [`FILL`] bytes at most of a segment.
fn fill(path: &Path, length: u64) -> Result<(), FsError> {
    let (zeros, end) = (vec![0; FILL_STEP], length.min(FILL));
    let fill = || {
        let file = OpenOptions::new().write(true).open(path)?;
        for at in (0..end).step_by(FILL_STEP) {
            let step = end.saturating_sub(at).min(FILL_STEP as u64) as usize;
            file.write_all_at(&zeros[..step], at)?;
        }
        file.sync_data()
    };
    fill().map_err(FsError::at("cannot write", path))
}

/// Makes a file of `length` bytes that are really there.
fn make_file(path: &Path, length: u64) -> Result<(), FsError> {
    let wrong = || FsError::at("cannot make", path);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(Mode::RUSR.union(Mode::WUSR).bits());
    let file = options.open(path).map_err(wrong())?;
    if length > 0 {
        reserve(&file, length).map_err(wrong())?;
    }
    file.sync_all().map_err(wrong())
}

/// Gives a file `length` bytes that are really there.
pub(crate) fn reserve(file: &File, length: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, length) {
        // Where the file system cannot promise it, a full disk is an error of a later write.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(length),
        outcome => outcome.map_err(io::Error::from),
    }
}

fn sync_directory(path: &Path) -> Result<(), FsError> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(FsError::at("cannot sync the directory", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestDirectory, open_log};

    const SIZES: LogSizes = LogSizes { total: Bytes(64 << 20), inodes: 1000 };

    #[test]
    fn open__a_log_is_made_once_and_held_by_one() {
        let directory = TestDirectory::new();
        let path = directory.path().join("log");
        let log = LogDirectory::open(&path, SIZES).expect("made");
        let segments = &log.segments;
        assert_eq!((segments.files.len(), segments.size, log.is_new), (4, 16 << 20, true));
        let why = LogDirectory::open(&path, SIZES).expect_err("held").to_string();
        assert!(why.contains("in use by another mount (process "), "{why}");
        log.superblock.write_all_at(b"x", 0).expect("written");
        drop(log);
        let again = open_log(&path, SIZES).expect("opened");
        assert_eq!((again.segments.files.len(), again.is_new), (4, false));
    }

    #[test]
    fn open__a_log_that_lost_its_superblock_is_no_new_log() {
        for is_removed in [true, false] {
            let directory = TestDirectory::new();
            let path = directory.path().join("log");
            let log = LogDirectory::open(&path, SIZES).expect("a new log");
            log.segments.files[1].write_all_at(b"CLWYGRP", 0).expect("written");
            drop(log);
            if is_removed {
                fs::remove_file(path.join("superblock")).expect("removed");
            }
            let why = open_log(&path, SIZES).expect_err("a log").to_string();
            assert!(why.contains("its superblock is gone"), "{why}");
            let kept = fs::read(path.join(segment_name(1))).expect("there");
            assert!(kept.starts_with(b"CLWYGRP"), "it is as it was");
        }
    }

    #[test]
    fn open__most_segments_say_their_length_and_nothing_is_cut_off() {
        let directory = TestDirectory::new();
        let path = directory.path().join("log");
        let log = LogDirectory::open(&path, SIZES).expect("a new log");
        log.superblock.write_all_at(b"x", 0).expect("written");
        let set = |lengths: [u64; 4]| {
            let files = log.segments.files.iter().zip(lengths);
            files.for_each(|(file, length)| file.set_len(length).expect("resized"));
        };
        fs::write(path.join("segments/notes.txt"), "mine").expect("written");
        const WHOLE: u64 = 16 << 20;
        for (lengths, short) in [
            ([WHOLE + 1, WHOLE, 5, WHOLE], vec![(2, 5)]),
            ([0, WHOLE, 0, WHOLE], vec![(0, 0), (2, 0)]),
        ] {
            set(lengths);
            let segments = LogSegments::open(&path, LogAccess::Write).expect("opened");
            assert_eq!((segments.files.len(), segments.size), (4, WHOLE));
            assert_eq!(segments.short, short);
            let kept = segments.files.iter().map(|file| file.metadata().expect("there").len());
            assert_eq!(kept.collect::<Vec<_>>(), lengths);
        }
    }

    #[test]
    fn open__a_pipe_in_place_of_a_segment_is_refused_at_once() {
        let directory = TestDirectory::new();
        let path = directory.path().join("log");
        let log = LogDirectory::open(&path, SIZES).expect("a new log");
        log.superblock.write_all_at(b"x", 0).expect("written");
        drop(log);
        let segment = path.join(segment_name(1));
        fs::remove_file(&segment).expect("removed");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &segment, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        let why = LogSegments::open(&path, LogAccess::Read).expect_err("a pipe").to_string();
        assert!(why.contains("it is no regular file"), "{why}");
        let why = open_log(&path, SIZES).expect_err("a pipe").to_string();
        assert!(why.contains("it is no regular file"), "{why}");
    }

    #[test]
    fn open__what_is_no_log_is_left_alone() {
        let directory = TestDirectory::new();
        fs::write(directory.path().join("thesis"), "years of work").expect("written");
        let why = LogDirectory::open(directory.path(), SIZES).expect_err("no log").to_string();
        assert!(why.contains("is not empty and has no log"), "{why}");
        assert_eq!(fs::read_dir(directory.path()).expect("there").count(), 1);
        let small = LogSizes { total: Bytes(1 << 20), ..SIZES };
        let why = LogDirectory::open(&directory.path().join("log"), small).expect_err("small");
        assert!(why.to_string().contains("between 64 MiB and 512 GiB"), "{why}");
    }
}
