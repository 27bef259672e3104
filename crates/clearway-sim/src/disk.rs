//! When a node's disk has read, written or kept bytes, what lies in its files, and how it fails.
//!
//! # Model
//! One queue: an operation begins when the one before is over, and takes `latency` and its bytes at
//! `rate`; a sync takes `sync`. A write is in the file when it is over and safe when a later sync
//! is over. A read that reaches the end of its file brings the bytes in front of the end.
//! [`Survival`] says what a crash leaves of the writes that are not safe: a device writes sectors
//! in any order, and a node can stop between any two of them.
//!
//! # Invariants
//! I1. Operations end in the order in which they began.
//! I2. After a crash a sector has the bytes of the last sync, or those of one unsynced write,
//!     applied in order.
//! I3. After a crash with [`Survival::Nothing`] a file is as it was when its last sync was over.
//!
//! # Not here
//! Names of files: the application opens, engines see numbers.

use std::collections::BTreeMap;

use clearway_proto::base::{BitsPerSec, Bytes, RandomKey};
use clearway_proto::wire::{Fault, FileId, FileKind};

use crate::memory::{Memory, MessageBody};
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
    /// It is a write of which only the first bytes, this many, reach the file.
    Torn(Bytes),
    /// It takes so much longer.
    Slow(Picos),
    /// It is a write that would make its file longer: it fails and changes nothing.
    Full,
}

/// Bytes that a disk writes whole or not at all: the smallest logical block of the NVMe and SCSI
/// standards.
const SECTOR: u64 = 512;

/// Says which writes since the last sync are on a disk after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// None of them. Writes under way never happen.
    Nothing,
    /// All of them, writes under way included.
    All,
    /// Of each write, writes under way included, the sectors of 512 bytes that this key draws, half
    /// of them on average. A file is as long as the last surviving sector or the last sync made it.
    Drawn(RandomKey),
}

/// How a file operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskCompletion {
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
    /// The writes since the last sync, in order.
    unsynced: Vec<Unsynced>,
}

/// A write that is not safe.
#[derive(Clone, Debug)]
struct Unsynced {
    at: u64,
    length: u64,
    /// What it replaced.
    old: MessageBody,
    /// The length of the file before.
    length_before: u64,
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct DiskRequest {
    pub(crate) kind: FileKind,
    pub(crate) file: FileId,
    pub(crate) at: u64,
    pub(crate) length: u64,
    /// The bytes to write.
    pub(crate) body: MessageBody,
    fault: Option<DiskFault>,
}

impl DiskRequest {
    pub(crate) const fn new(
        kind: FileKind,
        file: FileId,
        at: u64,
        length: u64,
        body: MessageBody,
    ) -> Self {
        Self { kind, file, at, length, body, fault: None }
    }
}

impl Disk {
    pub(crate) const fn new(spec: DiskSpec) -> Self {
        Self {
            spec,
            free_at: Picos::ZERO,
            files: BTreeMap::new(),
            faults: Vec::new(),
            ailment: None,
        }
    }

    /// Injects a fault: the first operation that begins at `at` or later goes wrong.
    pub fn inject(&mut self, at: Picos, fault: DiskFault) {
        let place = self.faults.partition_point(|(other, _)| *other > at);
        self.faults.insert(place, (at, fault));
    }

    /// Sets a fault: from now on every operation that begins goes wrong like this, or well again.
    pub(crate) fn set_fault(&mut self, ailment: Option<DiskFault>) {
        self.ailment = ailment;
    }

    pub(crate) fn open(&mut self, file: FileId, contents: Memory) {
        self.files.insert(file, File { contents, unsynced: Vec::new() });
    }

    /// Returns the size of `file`; `None` when it is not open.
    pub fn size(&self, file: FileId) -> Option<Bytes> {
        self.files.get(&file).map(|file| Bytes(file.contents.length()))
    }

    /// Returns the bytes of `file`; `None` when it is not open or its bytes are phantoms.
    pub fn bytes(&self, file: FileId) -> Option<&[u8]> {
        self.files.get(&file)?.contents.bytes()
    }

    /// Begins `request` at `now` or when the disk is free; returns when it will be over.
    pub(crate) fn begin(&mut self, now: Picos, request: &mut DiskRequest) -> Picos {
        let begins = self.free_at.max(now);
        if self.faults.last().is_some_and(|(at, _)| *at <= begins) {
            request.fault = self.faults.pop().map(|(_, fault)| fault);
        } else {
            request.fault = self.ailment;
        }
        let bytes = u32::try_from(request.length).unwrap_or(u32::MAX);
        let work = match request.kind {
            FileKind::Read | FileKind::Write => {
                self.spec.latency + Pace::from_rate(self.spec.rate).time(bytes)
            }
            FileKind::Sync => self.spec.sync,
        };
        let extra =
            if let Some(DiskFault::Slow(extra)) = request.fault { extra } else { Picos::ZERO };
        self.free_at = begins + work.max(Picos(1)) + extra;
        self.free_at
    }

    /// Ends `request`; the body holds what was read.
    pub(crate) fn end(&mut self, request: &mut DiskRequest) -> DiskCompletion {
        if request.fault == Some(DiskFault::Fails) {
            return DiskCompletion::Badly(Fault::Io);
        }
        let used: u64 = self.files.values().map(|file| file.contents.length()).sum();
        let Some(file) = self.files.get_mut(&request.file) else {
            return DiskCompletion::Badly(Fault::Gone);
        };
        let end = request.at.saturating_add(request.length);
        match request.kind {
            FileKind::Read => {
                let behind = file.contents.length();
                request.body = file.contents.take(request.at.min(behind)..end.min(behind));
                DiskCompletion::Well
            }
            FileKind::Write => {
                let kept = if let Some(DiskFault::Torn(kept)) = request.fault {
                    kept.0
                } else {
                    request.length
                };
                let kept = kept.min(request.length);
                let grows = end.saturating_sub(file.contents.length());
                let full =
                    used + grows > self.spec.capacity.0 || request.fault == Some(DiskFault::Full);
                if grows > 0 && full {
                    return DiskCompletion::Badly(Fault::NoSpace);
                }
                file.write(request.at, kept, &request.body);
                if kept == request.length {
                    DiskCompletion::Well
                } else {
                    DiskCompletion::Badly(Fault::Io)
                }
            }
            FileKind::Sync => {
                file.unsynced.clear();
                DiskCompletion::Well
            }
        }
    }

    /// Ends `request`, under way when the node crashed, as far as a crash that keeps writes can see
    /// it.
    pub(crate) fn interrupt(&mut self, mut request: DiskRequest) {
        if request.kind == FileKind::Write {
            self.end(&mut request);
        }
    }

    /// Crashes the node: what was safe stays, and of the rest what `survival` says.
    pub(crate) fn crash(&mut self, now: Picos, survival: Survival) {
        self.free_at = now;
        for (id, file) in &mut self.files {
            match survival {
                Survival::Nothing => drop(file.roll_back()),
                Survival::All => file.unsynced.clear(),
                Survival::Drawn(key) => file.keep_drawn(key.node(u64::from(id.0))),
            }
        }
    }
}

impl File {
    fn write(&mut self, at: u64, length: u64, body: &MessageBody) {
        if length == 0 {
            return;
        }
        let before = self.contents.length();
        let old = self.contents.take(at.min(before)..(at + length).min(before));
        self.unsynced.push(Unsynced { at, length, old, length_before: before });
        self.contents.grow(at + length);
        self.contents.place(at, &body.prefix(length));
    }

    /// Makes the file what it was at the last sync; returns the writes since then, the latest
    /// first.
    fn roll_back(&mut self) -> Vec<(u64, MessageBody)> {
        let mut writes = Vec::new();
        while let Some(Unsynced { at, length, old, length_before }) = self.unsynced.pop() {
            // Later writes are undone already, so the bytes here are those that this write put
            // there.
            writes.push((at, self.contents.take(at..at + length)));
            self.contents.place(at.min(length_before), &old);
            self.contents.truncate(length_before);
        }
        writes
    }

    /// Makes the file what it was at the last sync, with the sectors of later writes that `key`
    /// draws.
    fn keep_drawn(&mut self, key: RandomKey) {
        let writes = self.roll_back();
        for (number, (at, body)) in (0..).zip(writes.into_iter().rev()) {
            let mut stream = key.node(number).stream();
            let end = at + body.length();
            let mut start = at;
            while start < end {
                let next = (start / SECTOR + 1).saturating_mul(SECTOR).min(end);
                if stream.below(2) == 0 {
                    self.contents.grow(next);
                    self.contents.place(start, &body.part(start - at..next - at));
                }
                start = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    fn run(
        disk: &mut Disk,
        now: Picos,
        kind: FileKind,
        at: u64,
        bytes: &[u8],
    ) -> (Picos, DiskCompletion, MessageBody) {
        let mut request =
            DiskRequest::new(kind, FILE, at, bytes.len() as u64, MessageBody::Bytes(bytes.into()));
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
        assert_eq!(ended, DiskCompletion::Well);
        assert!(matches!(body, MessageBody::Bytes(bytes) if *bytes == [1, 1]));
        let (_, ended, body) = run(&mut disk, Picos::ZERO, FileKind::Read, 999, &[0; 2]);
        assert_eq!((ended, body.length()), (DiskCompletion::Well, 1), "over the end");
        let (_, ended, body) = run(&mut disk, Picos::ZERO, FileKind::Read, u64::MAX, &[0; 2]);
        assert_eq!((ended, body.length()), (DiskCompletion::Well, 0), "behind the end");
    }

    #[test]
    fn inject__faults_hit_the_first_operation_after_their_time() {
        let mut disk = disk();
        disk.inject(Picos::from_micros(1_000), DiskFault::Torn(Bytes(2)));
        disk.inject(Picos::from_micros(500), DiskFault::Fails);
        assert_eq!(run(&mut disk, Picos::ZERO, FileKind::Write, 0, b"abc").1, DiskCompletion::Well);
        assert_eq!(
            run(&mut disk, Picos::from_micros(600), FileKind::Write, 0, b"xyz").1,
            DiskCompletion::Badly(Fault::Io)
        );
        assert_eq!(holds(&disk), b"abc");
        assert_eq!(
            run(&mut disk, Picos::from_micros(2_000), FileKind::Write, 0, b"xyz").1,
            DiskCompletion::Badly(Fault::Io)
        );
        assert_eq!(holds(&disk), b"xyc");
        assert_eq!(
            run(&mut disk, Picos::from_micros(2_000), FileKind::Write, 9_999, b"xy").1,
            DiskCompletion::Badly(Fault::NoSpace)
        );
        assert_eq!(
            run(&mut disk, Picos::from_micros(2_000), FileKind::Write, 3, b"d").1,
            DiskCompletion::Well
        );
    }

    #[test]
    fn crash__keeps_what_was_synced_and_what_survives() {
        let written = |survival| {
            let mut disk = disk();
            run(&mut disk, Picos::ZERO, FileKind::Write, 0, b"safe");
            run(&mut disk, Picos::ZERO, FileKind::Sync, 0, &[]);
            run(&mut disk, Picos::ZERO, FileKind::Write, 2, b"gone");
            run(&mut disk, Picos::ZERO, FileKind::Write, 0, b"over");
            run(&mut disk, Picos::ZERO, FileKind::Write, 9, b"beyond");
            disk.crash(Picos::ZERO, survival);
            // Data that a crash left are safe from the next one.
            let left = holds(&disk);
            disk.crash(Picos::ZERO, Survival::Nothing);
            assert_eq!(holds(&disk), left);
            left
        };
        assert_eq!(written(Survival::Nothing), b"safe");
        assert_eq!(written(Survival::All), b"overne\0\0\0beyond");
    }

    #[test]
    fn interrupt__a_write_under_way_counts_as_unsynced() {
        let mut disk = disk();
        let request =
            |kind| DiskRequest::new(kind, FILE, 1, 4, MessageBody::Bytes((*b"torn").into()));
        disk.interrupt(request(FileKind::Write));
        disk.interrupt(request(FileKind::Sync));
        assert_eq!(holds(&disk), b"\0torn");
        disk.crash(Picos::ZERO, Survival::Nothing);
        assert_eq!(holds(&disk), b"");
    }

    /// Draws writes of one sector or several, by first byte, length and contents; zero bytes stand
    /// for a sync.
    fn jobs() -> impl Strategy<Value = Vec<(u64, usize, u8)>> {
        prop::collection::vec(
            (0u64..2_000, prop_oneof![1 => Just(0usize), 3 => 1usize..1_500], 1u8..),
            0..7,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn crash__a_drawn_sector_is_that_of_the_last_sync_or_of_one_write_since(jobs in jobs(), seed: u64) {
            let survival = Survival::Drawn(RandomKey::new(seed));
            let mut disk = disk();
            let mut synced: Vec<u8> = Vec::new();
            // Writes since the last sync, as what each of them would make of zeros.
            let mut since: Vec<(usize, Vec<u8>)> = Vec::new();
            for (at, length, fill) in jobs {
                if length == 0 {
                    run(&mut disk, Picos::ZERO, FileKind::Sync, 0, &[]);
                    synced = holds(&disk);
                    since.clear();
                } else {
                    run(&mut disk, Picos::ZERO, FileKind::Write, at, &vec![fill; length]);
                    since.push((at as usize, vec![fill; length]));
                }
            }
            let mut again = disk.clone();
            disk.crash(Picos::ZERO, survival);
            again.crash(Picos::ZERO, survival);
            let left = holds(&disk);
            prop_assert_eq!(&left, &holds(&again), "one key, one outcome");
            prop_assert!(left.len() >= synced.len(), "a synced length is lost");
            for (number, sector) in left.chunks(SECTOR as usize).enumerate() {
                let first = number * SECTOR as usize;
                prop_assert!(explains(first, sector, &synced, &since), "sector {} has bytes of nobody", number);
            }
        }
    }

    /// Returns whether some of the writes `since`, applied in order to what was `synced`, make
    /// `sector`.
    fn explains(first: usize, sector: &[u8], synced: &[u8], since: &[(usize, Vec<u8>)]) -> bool {
        let base: Vec<u8> =
            (first..first + sector.len()).map(|i| synced.get(i).copied().unwrap_or(0)).collect();
        (0u32..1 << since.len()).any(|kept| {
            let mut made = base.clone();
            for (_, (at, bytes)) in
                since.iter().enumerate().filter(|(number, _)| kept & 1 << number != 0)
            {
                for (i, byte) in made.iter_mut().enumerate() {
                    let place = (first + i).checked_sub(*at);
                    *byte = place.and_then(|place| bytes.get(place)).copied().unwrap_or(*byte);
                }
            }
            made == sector
        })
    }

    #[test]
    fn crash__a_drawn_outcome_has_sectors_of_both_kinds() {
        let mut disk = disk();
        run(&mut disk, Picos::ZERO, FileKind::Write, 0, &[1; 8192]);
        run(&mut disk, Picos::ZERO, FileKind::Sync, 0, &[]);
        run(&mut disk, Picos::ZERO, FileKind::Write, 0, &[2; 8192]);
        disk.crash(Picos::ZERO, Survival::Drawn(RandomKey::new(1)));
        let left = holds(&disk);
        let new = left.chunks(512).filter(|sector| *sector == [2; 512]).count();
        let old = left.chunks(512).filter(|sector| *sector == [1; 512]).count();
        assert!(new > 3 && old > 3 && new + old == 16, "{new} new and {old} old sectors");
    }
}
