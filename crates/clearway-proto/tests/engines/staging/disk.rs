//! A disk whose operations end in any order, and everything that a crash can leave on it.
//!
//! # Model
//! Each file has its safe bytes and, behind them, a list of writes that no sync has made safe. A
//! sync makes safe what was over when it was asked for. After a sync that failed, what it should
//! have made safe never is, whatever syncs follow: such are the caches of Linux.

use std::collections::BTreeMap;
use std::rc::Rc;

use clearway_proto::base::RandomKey;
use clearway_proto::wire::{FileId, FileKind, Span, Token};

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// An operation under way.
#[derive(Clone, Debug)]
pub(super) struct PendingOperation {
    pub(super) token: Token,
    pub(super) kind: FileKind,
    pub(super) file: FileId,
    pub(super) at: usize,
    pub(super) length: usize,
    pub(super) memory: Span,
    /// Bytes of a write, as they were when it was posted.
    pub(super) bytes: Rc<[u8]>,
    /// Writes that were over when it was posted.
    posted: u64,
}

#[derive(Clone, Debug)]
struct Unsynced {
    file: FileId,
    at: usize,
    bytes: Rc<[u8]>,
    /// How many writes were over before.
    number: u64,
    /// A sync of it failed.
    is_lost: bool,
}

/// What a crash is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CrashKind {
    /// The process ends: what was written stays in the cache.
    Kill,
    /// Of what is not safe, the sectors that this key draws are on the disk.
    Power(RandomKey),
}

#[derive(Clone, Debug, Default)]
pub(super) struct TrialDisk {
    safe: BTreeMap<FileId, Rc<Vec<u8>>>,
    unsynced: Vec<Unsynced>,
    pub(super) pending: Vec<PendingOperation>,
    writes: u64,
}

impl TrialDisk {
    pub(super) fn add(&mut self, file: FileId, bytes: Vec<u8>) {
        self.safe.insert(file, Rc::new(bytes));
    }

    /// Returns bytes as a read finds them.
    pub(super) fn read(&self, file: FileId, at: usize, length: usize) -> Vec<u8> {
        let safe = &self.safe[&file];
        let end = (at + length).min(safe.len());
        let mut bytes = safe[at.min(end)..end].to_vec();
        for write in self.unsynced.iter().filter(|write| write.file == file) {
            overlay(&mut bytes, at, write.at, &write.bytes);
        }
        bytes
    }

    pub(super) fn post(
        &mut self,
        kind: FileKind,
        file: FileId,
        at: u64,
        token: Token,
        memory: Span,
        bytes: &[u8],
    ) {
        let (at, posted, length) = (at as usize, self.writes, bytes.len());
        let bytes = bytes.into();
        self.pending.push(PendingOperation {
            token,
            kind,
            file,
            at,
            length,
            memory,
            bytes,
            posted,
        });
    }

    pub(super) fn size(&self, file: FileId) -> usize {
        self.safe[&file].len()
    }

    /// Ends a write: its bytes can be read.
    pub(super) fn end_write(&mut self, write: &PendingOperation) {
        let (file, at, bytes) = (write.file, write.at, Rc::clone(&write.bytes));
        self.unsynced.push(Unsynced { file, at, bytes, number: self.writes, is_lost: false });
        self.writes += 1;
    }

    /// Ends a sync: what was over when it was asked for is safe.
    pub(super) fn end_sync(&mut self, sync: &PendingOperation) {
        let covered = |write: &Unsynced| write.file == sync.file && write.number < sync.posted;
        // What was lost once stays lost, and so does what lies under it in the cache.
        let is_safe: Vec<bool> =
            self.unsynced.iter().map(|write| covered(write) && !write.is_lost).collect();
        let mut kept = Vec::new();
        for (write, is_safe) in self.unsynced.drain(..).zip(is_safe) {
            if is_safe {
                let file = Rc::make_mut(self.safe.get_mut(&write.file).unwrap());
                let end = write.at + write.bytes.len();
                file[write.at..end].copy_from_slice(&write.bytes);
                // In the cache it lies over what was lost before.
                kept.retain(|old: &Unsynced| {
                    let is_apart = old.at >= end || write.at >= old.at + old.bytes.len();
                    old.file != write.file || is_apart
                });
            } else {
                kept.push(write);
            }
        }
        self.unsynced = kept;
    }

    /// Ends a sync badly: what it should have made safe never is.
    pub(super) fn lose(&mut self, sync: &PendingOperation) {
        for write in &mut self.unsynced {
            write.is_lost |= write.file == sync.file && write.number < sync.posted;
        }
    }

    /// The last write failed.
    pub(super) fn lose_last(&mut self) {
        if let Some(write) = self.unsynced.last_mut() {
            write.is_lost = true;
        }
    }

    /// Returns the disk as a crash leaves it.
    pub(super) fn crashed(&self, kind: CrashKind) -> Self {
        let mut left = self.clone();
        left.pending.clear();
        let under_way = self.pending.iter().filter(|pending| pending.kind == FileKind::Write);
        let under_way = under_way.map(|write| (write.file, write.at, &write.bytes));
        match kind {
            CrashKind::Kill => {
                // The system ends what it has begun, or not.
                for (number, (file, at, bytes)) in (0..).zip(under_way) {
                    if (number + self.writes).is_multiple_of(2) {
                        let (bytes, number) = (Rc::clone(bytes), left.writes);
                        left.unsynced.push(Unsynced { file, at, bytes, number, is_lost: false });
                        left.writes += 1;
                    }
                }
            }
            CrashKind::Power(key) => {
                left.unsynced.clear();
                let over = self.unsynced.iter().map(|write| (write.file, write.at, &write.bytes));
                for (number, (file, at, bytes)) in (0..).zip(over.chain(under_way)) {
                    let file = Rc::make_mut(left.safe.get_mut(&file).unwrap());
                    keep_drawn(file, at, bytes, key.node(number));
                }
            }
        }
        left
    }

    /// Makes everything safe.
    pub(super) fn sync_all(&mut self) {
        for write in self.unsynced.drain(..) {
            let file = Rc::make_mut(self.safe.get_mut(&write.file).unwrap());
            file[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }

    /// Makes the digest of a copy of a superblock fit.
    pub(super) fn fit_superblock(&mut self, file: FileId, at: usize) {
        let bytes = &mut Rc::make_mut(self.safe.get_mut(&file).unwrap())[at..];
        let digest = clearway_proto::base::crc32c(&bytes[..56]);
        bytes[56..60].copy_from_slice(&digest.to_le_bytes());
    }

    /// Puts bytes where they are safe.
    pub(super) fn put(&mut self, file: FileId, at: usize, bytes: &[u8]) {
        Rc::make_mut(self.safe.get_mut(&file).unwrap())[at..at + bytes.len()]
            .copy_from_slice(bytes);
    }

    /// Flips a bit of what is safe.
    pub(super) fn flip(&mut self, file: FileId, byte: usize, bit: u32) {
        Rc::make_mut(self.safe.get_mut(&file).unwrap())[byte] ^= 1 << bit;
    }
}

/// Puts those sectors of a write into `file` that `key` draws: all, none, or each with one half.
fn keep_drawn(file: &mut [u8], at: usize, bytes: &[u8], key: RandomKey) {
    let mut stream = key.stream();
    let all = stream.below(4);
    for (sector, bytes) in (0..).zip(bytes.chunks(SECTOR)) {
        let is_kept = match all {
            0 => false,
            1 => true,
            _ => stream.below(2) == 0,
        };
        if is_kept {
            let at = at + sector * SECTOR;
            file[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// Puts the part of `bytes`, which begin at `from`, into a window that begins at `at`.
fn overlay(window: &mut [u8], at: usize, from: usize, bytes: &[u8]) {
    let (low, high) = (at.max(from), (at + window.len()).min(from + bytes.len()));
    if low < high {
        window[low - at..high - at].copy_from_slice(&bytes[low - from..high - from]);
    }
}
