//! When a node's disk has read, written or kept bytes, what lies in its files, and how it fails.
//!
//! # Model
//! One queue: an operation begins when the one before is over, and takes `latency` and its bytes at `rate`; a sync takes
//! `sync`. A write is in the file when it is over and safe when a later sync is over. What is not safe when the node crashes
//! is gone.
//!
//! # Invariants
//! I1. Operations end in the order in which they began.
//! I2. After a crash a file is as it was when its last sync was over.
//!
//! # Not here
//! Names of files: the application opens, engines see numbers.

use std::collections::BTreeMap;

use clearway_proto::base::{BitsPerSec, Bytes};
use clearway_proto::wire::{Fault, FileId, FileKind};

use crate::memory::{Body, Memory};
use crate::time::{Pace, Picos};

/// What a disk is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// Of each read or write, before its first byte.
    pub latency: Picos,
    /// Of bytes.
    pub rate: BitsPerSec,
    /// Of making everything written safe.
    pub sync: Picos,
    /// Bytes that all files of a node may hold together.
    pub capacity: Bytes,
}

/// How the next operation of a disk goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// It fails and changes nothing.
    Fails,
    /// It is a write of which only the first so many bytes reach the file.
    Torn(Bytes),
    /// It takes so much longer.
    Slow(Picos),
    /// It is a write that would make its file longer: it fails and changes nothing.
    Full,
}

/// How a file operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    Badly(Fault),
}

/// A node's disk.
#[derive(Clone, Debug)]
pub struct Disk {
    spec: DiskSpec,
    free_at: Picos,
    files: BTreeMap<FileId, File>,
    /// Faults to come, latest first.
    faults: Vec<(Picos, DiskFault)>,
    /// What befalls every operation that begins now.
    ailment: Option<DiskFault>,
}

#[derive(Clone, Debug)]
struct File {
    contents: Memory,
    /// What the writes since the last sync replaced, in order.
    replaced: Vec<Replaced>,
}

#[derive(Clone, Debug)]
struct Replaced {
    at: u64,
    body: Body,
    /// The length of the file before.
    length: u64,
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) kind: FileKind,
    pub(crate) file: FileId,
    pub(crate) at: u64,
    pub(crate) length: u64,
    /// The bytes to write.
    pub(crate) body: Body,
    fault: Option<DiskFault>,
}

impl Request {
    pub(crate) const fn new(kind: FileKind, file: FileId, at: u64, length: u64, body: Body) -> Self {
        Self { kind, file, at, length, body, fault: None }
    }
}

impl Disk {
    pub(crate) const fn new(spec: DiskSpec) -> Self {
        Self { spec, free_at: Picos::ZERO, files: BTreeMap::new(), faults: Vec::new(), ailment: None }
    }

    /// Fault: the first operation that begins at `at` or later goes wrong.
    pub fn inject(&mut self, at: Picos, fault: DiskFault) {
        let place = self.faults.partition_point(|(other, _)| *other > at);
        self.faults.insert(place, (at, fault));
    }

    /// Fault: from now on every operation that begins goes wrong like this, or well again.
    pub(crate) fn ail(&mut self, ailment: Option<DiskFault>) {
        self.ailment = ailment;
    }

    pub(crate) fn open(&mut self, file: FileId, contents: Memory) {
        self.files.insert(file, File { contents, replaced: Vec::new() });
    }

    /// The size of `file`; `None` when it is not open.
    pub fn size(&self, file: FileId) -> Option<Bytes> {
        self.files.get(&file).map(|file| Bytes(file.contents.length()))
    }

    /// The bytes of `file`; `None` when it is not open or its bytes are phantoms.
    pub fn bytes(&self, file: FileId) -> Option<&[u8]> {
        self.files.get(&file)?.contents.bytes()
    }

    /// Begins `request` at `now` or when the disk is free; returns when it will be over.
    pub(crate) fn begin(&mut self, now: Picos, request: &mut Request) -> Picos {
        let begins = self.free_at.max(now);
        if self.faults.last().is_some_and(|(at, _)| *at <= begins) {
            request.fault = self.faults.pop().map(|(_, fault)| fault);
        } else {
            request.fault = self.ailment;
        }
        let bytes = u32::try_from(request.length).unwrap_or(u32::MAX);
        let work = match request.kind {
            FileKind::Read | FileKind::Write => self.spec.latency + Pace::of(self.spec.rate).time(bytes),
            FileKind::Sync => self.spec.sync,
        };
        let extra = if let Some(DiskFault::Slow(extra)) = request.fault { extra } else { Picos::ZERO };
        self.free_at = begins + work.max(Picos(1)) + extra;
        self.free_at
    }

    /// Ends `request`; the body holds what was read.
    pub(crate) fn end(&mut self, request: &mut Request) -> Ended {
        if request.fault == Some(DiskFault::Fails) {
            return Ended::Badly(Fault::Io);
        }
        let used: u64 = self.files.values().map(|file| file.contents.length()).sum();
        let Some(file) = self.files.get_mut(&request.file) else { return Ended::Badly(Fault::Gone) };
        let end = request.at.saturating_add(request.length);
        match request.kind {
            FileKind::Read => {
                if end > file.contents.length() {
                    return Ended::Badly(Fault::Io);
                }
                request.body = file.contents.take(request.at..end);
                Ended::Well
            }
            FileKind::Write => {
                let kept = if let Some(DiskFault::Torn(kept)) = request.fault { kept.0 } else { request.length };
                let kept = kept.min(request.length);
                let grows = end.saturating_sub(file.contents.length());
                let full = used + grows > self.spec.capacity.0 || request.fault == Some(DiskFault::Full);
                if grows > 0 && full {
                    return Ended::Badly(Fault::NoSpace);
                }
                file.write(request.at, kept, &request.body);
                if kept == request.length { Ended::Well } else { Ended::Badly(Fault::Io) }
            }
            FileKind::Sync => {
                file.replaced.clear();
                Ended::Well
            }
        }
    }

    /// The node crashed: what was not safe is gone, what was under way never happens.
    pub(crate) fn crash(&mut self, now: Picos) {
        self.free_at = now;
        for file in self.files.values_mut() {
            while let Some(Replaced { at, body, length }) = file.replaced.pop() {
                file.contents.place(at, &body);
                file.contents.truncate(length);
            }
        }
    }
}

impl File {
    fn write(&mut self, at: u64, length: u64, body: &Body) {
        if length == 0 {
            return;
        }
        let before = self.contents.length();
        let old = self.contents.take(at.min(before)..(at + length).min(before));
        self.replaced.push(Replaced { at: at.min(before), body: old, length: before });
        self.contents.grow(at + length);
        self.contents.place(at, &body.prefix(length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(7);

    fn disk() -> Disk {
        let mut disk = Disk::new(DiskSpec {
            latency: Picos::from_micros(10),
            rate: BitsPerSec::mega(8_000),
            sync: Picos::from_micros(100),
            capacity: Bytes(10_000),
        });
        disk.open(FILE, Memory::real(0));
        disk
    }

    fn run(disk: &mut Disk, now: Picos, kind: FileKind, at: u64, bytes: &[u8]) -> (Picos, Ended, Body) {
        let mut request = Request::new(kind, FILE, at, bytes.len() as u64, Body::Bytes(bytes.into()));
        let over = disk.begin(now, &mut request);
        let ended = disk.end(&mut request);
        (over, ended, request.body)
    }

    fn holds(disk: &Disk) -> Vec<u8> {
        disk.bytes(FILE).unwrap_or_default().to_vec()
    }

    #[test]
    fn begin__operations_wait_for_each_other_and_take_their_bytes() {
        let mut disk = disk();
        let (over, ..) = run(&mut disk, Picos::from_micros(5), FileKind::Write, 0, &[1; 1000]);
        assert_eq!(over, Picos::from_micros(16));
        let (over, ..) = run(&mut disk, Picos::from_micros(6), FileKind::Sync, 0, &[]);
        assert_eq!(over, Picos::from_micros(116));
        let (_, ended, body) = run(&mut disk, Picos::ZERO, FileKind::Read, 998, &[0; 2]);
        assert_eq!(ended, Ended::Well);
        assert!(matches!(body, Body::Bytes(bytes) if *bytes == [1, 1]));
        let (_, ended, _) = run(&mut disk, Picos::ZERO, FileKind::Read, 999, &[0; 2]);
        assert_eq!(ended, Ended::Badly(Fault::Io), "behind the end");
    }

    #[test]
    fn inject__faults_hit_the_first_operation_after_their_time() {
        let mut disk = disk();
        disk.inject(Picos::from_micros(1_000), DiskFault::Torn(Bytes(2)));
        disk.inject(Picos::from_micros(500), DiskFault::Fails);
        assert_eq!(run(&mut disk, Picos::ZERO, FileKind::Write, 0, b"abc").1, Ended::Well);
        assert_eq!(run(&mut disk, Picos::from_micros(600), FileKind::Write, 0, b"xyz").1, Ended::Badly(Fault::Io));
        assert_eq!(holds(&disk), b"abc");
        assert_eq!(run(&mut disk, Picos::from_micros(2_000), FileKind::Write, 0, b"xyz").1, Ended::Badly(Fault::Io));
        assert_eq!(holds(&disk), b"xyc");
        assert_eq!(
            run(&mut disk, Picos::from_micros(2_000), FileKind::Write, 9_999, b"xy").1,
            Ended::Badly(Fault::NoSpace)
        );
        assert_eq!(run(&mut disk, Picos::from_micros(2_000), FileKind::Write, 3, b"d").1, Ended::Well);
    }

    #[test]
    fn crash__keeps_what_was_synced_and_nothing_else() {
        let mut disk = disk();
        run(&mut disk, Picos::ZERO, FileKind::Write, 0, b"safe");
        run(&mut disk, Picos::ZERO, FileKind::Sync, 0, &[]);
        run(&mut disk, Picos::ZERO, FileKind::Write, 2, b"gone");
        run(&mut disk, Picos::ZERO, FileKind::Write, 0, b"over");
        run(&mut disk, Picos::ZERO, FileKind::Write, 9, b"beyond");
        disk.crash(Picos::ZERO);
        assert_eq!(holds(&disk), b"safe");
    }
}
