//! Bytes as what a log finds on its disk.
//!
//! # Model
//! The first byte chooses: the rest is the state of a snapshot, or what an engine is shown while it
//! opens its log. Digests, places and numbers of what it is shown are mostly made to fit, so that
//! records get as far as the tree.

use std::collections::BTreeSet;

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, crc32c, xxh3};
use clearway_proto::staging::{
    ClientId, Epoch, GroupHeader, GroupNumber, InodeId, LogCommand, LogConfig, LogEvent, LogId,
    LogOrigin, LogPlace, LogRecord, LogState, RecordBody, StagingLog, TreeChange, WallNs,
    parse_snapshot,
};
use clearway_proto::wire::{
    Arrival, Effect, Engine, Fault, FileId, FileKind, Input, More, Operation, Out, RegionId, Span,
    Status, Token,
};

const BLOCK: usize = 4096;
/// Bytes of the head of a record, and the kinds with a body.
const HEAD: usize = 64;
const WRITE: u8 = 1;
const RELOCATE: u8 = 21;
const SEGMENTS: u32 = 3;
const SEGMENT_SIZE: u64 = 128 << 10;
const LOG: LogId = LogId(5);
/// Inputs of one opening.
const STEPS_MAX: usize = 4_000;

/// Feeds a log with `bytes`. It may do with them what it likes, but not panic, and not go on for
/// ever; and what it read as a state it writes again as the same state.
pub(crate) fn run(bytes: &[u8]) {
    match bytes.split_first() {
        Some((first, rest)) if first % 4 == 0 => {
            if let Some(state) = parse_snapshot(rest, 64) {
                check_state(&state);
            }
        }
        Some((_, rest)) => Feeder::new(rest).open(),
        None => {}
    }
}

fn check_state(state: &LogState) {
    let bytes = state.encode();
    let again = parse_snapshot(&bytes, 64).expect("a state that was written");
    assert_eq!(again.encode(), bytes);
    for (id, inode) in state.tree().inodes() {
        let _ = (state.tree().path(id), inode.links);
        if let Some(content) = state.tree().content(id) {
            let sources = content.sources(0, content.size());
            let length: u64 = sources.iter().map(|(length, _)| length).sum();
            assert_eq!(length, content.size(), "sources of inode {}", id.0);
        }
    }
    let _ = (state.damaged_files().count(), state.tree().orphans().count());
}

struct Feeder<'a> {
    rest: &'a [u8],
    log: StagingLog,
    out: Out<LogEvent>,
    /// The group that is shown next, and the digest of the header before.
    number: u64,
    previous: u32,
    /// The front that was shown last, for as long as it is longer than what was shown.
    front: Vec<u8>,
    front_at: (u32, u64),
    /// Where bodies of zeros lie: segment file and byte.
    bodies: BTreeSet<(u32, u64)>,
    is_open: bool,
}

impl<'a> Feeder<'a> {
    fn new(rest: &'a [u8]) -> Self {
        let config = LogConfig {
            origin: LogOrigin::Existing,
            superblock: FileId(1),
            snapshots: [FileId(2), FileId(3)],
            snapshot_size: Bytes(64 << 10),
            segments: (10..10 + SEGMENTS).map(FileId).collect(),
            segment_size: Bytes(SEGMENT_SIZE),
            bodies_max: Bytes(32 << 10),
            scratch: RegionId(0),
            inodes_max: 16,
            snapshot_every: Bytes(16 << 10),
            linger: Nanos::ZERO,
            wall_at_zero: WallNs(0),
        };
        Self {
            rest,
            log: StagingLog::new(config),
            out: Out::with_limit(64),
            number: 1,
            previous: 0,
            front: Vec::new(),
            front_at: (u32::MAX, 0),
            bodies: BTreeSet::new(),
            is_open: false,
        }
    }

    fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        *first
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        let mut taken = taken.to_vec();
        taken.resize(length, 0);
        taken
    }

    fn open(&mut self) {
        let mut tasks = self.give(Input::Boot { incarnation: 0 });
        for _ in 0..STEPS_MAX {
            let Some(operation) = tasks.pop() else { break };
            let more = self.answer(operation);
            tasks.extend(more);
        }
        assert!(tasks.is_empty(), "it never ends");
        if self.is_open {
            check_state(self.log.state());
            let change = TreeChange::Truncate { inode: InodeId(2), size: 5 };
            let (client, number, class) = (ClientId(3), u64::MAX, Class::Bulk);
            let body = Span::EMPTY;
            self.give(Input::Command(LogCommand::Append { client, number, class, change, body }));
            check_state(self.log.state());
        }
    }

    fn give(&mut self, input: Input<'_, LogCommand>) -> Vec<Operation> {
        let mut operations = Vec::new();
        let mut more = self.log.input(LocalNs(0), input, &mut self.out);
        loop {
            let (effects, _) = self.out.split();
            for effect in effects {
                match effect {
                    Effect::Operate(timed) => operations.push(timed.operation),
                    Effect::Notify(event) => self.is_open |= matches!(event, LogEvent::Opened(_)),
                }
            }
            self.out.clear();
            if more == More::No {
                return operations;
            }
            more = self.log.input(LocalNs(0), Input::Tick, &mut self.out);
        }
    }

    fn done(&mut self, token: Token, status: Status, value: u64) -> Vec<Operation> {
        let at = LocalNs(0);
        self.give(Input::Arrival(Arrival::Done { token, status, value, at }))
    }

    fn answer(&mut self, operation: Operation) -> Vec<Operation> {
        match operation {
            Operation::File { kind: FileKind::Read, file, at, memory, token, .. } => {
                self.front_at = (file.0, at);
                match self.byte() {
                    255 => self.done(token, Status::Failed(Fault::Io), 0),
                    254 => self.done(token, Status::Complete, 100),
                    _ => self.done(token, Status::Complete, u64::from(memory.length)),
                }
            }
            Operation::File { token, memory, .. } => {
                self.done(token, Status::Complete, u64::from(memory.length))
            }
            Operation::Show { of, token } => {
                let bytes = self.shown(of.length as usize);
                self.give(Input::Arrival(Arrival::Shown { token, bytes: &bytes }))
            }
            _ => Vec::new(),
        }
    }

    fn shown(&mut self, length: usize) -> Vec<u8> {
        let (file, at) = self.front_at;
        let mut bytes = match file {
            1 => self.superblock(),
            2 | 3 if at == 0 => self.snapshot_header(),
            2 | 3 => self.take(length),
            _ if self.bodies.contains(&self.front_at) => Vec::new(),
            _ => self.group(LogPlace { segment: file - 10, block: (at / BLOCK as u64) as u32 }),
        };
        bytes.resize(length, 0);
        bytes
    }

    fn superblock(&mut self) -> Vec<u8> {
        let mut bytes = b"CLWYLOG\0\x03\0\0\0".to_vec();
        bytes.extend(SEGMENTS.to_le_bytes());
        bytes.extend(LOG.0.to_le_bytes());
        bytes.extend(u64::from(self.byte() % 3).to_le_bytes());
        bytes.extend(SEGMENT_SIZE.to_le_bytes());
        bytes.extend(u64::from(self.byte() / 64).to_le_bytes());
        let digest = crc32c(&bytes);
        bytes.extend(digest.to_le_bytes());
        bytes
    }

    /// The header of the state that follows it here.
    fn snapshot_header(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte()) * 4;
        let state = self.rest.get(..length).unwrap_or(self.rest);
        let mut bytes = b"CLWYSNP\0".to_vec();
        bytes.extend(LOG.0.to_le_bytes());
        bytes.extend([0; 24]);
        bytes.extend([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        bytes.extend(crc32c(state).to_le_bytes());
        bytes.extend((state.len() as u64).to_le_bytes());
        let digest = crc32c(&bytes);
        bytes.extend(digest.to_le_bytes());
        bytes
    }

    fn group(&mut self, place: LogPlace) -> Vec<u8> {
        let kind = self.byte();
        if kind < 16 {
            return vec![0; BLOCK];
        }
        if kind >= 128 && !self.front.is_empty() {
            // The front again: recovery looks twice at some places.
            return self.front.clone();
        }
        let records = usize::from(kind % 4);
        let inline = usize::from(self.byte() % 64);
        let mut covered = Vec::new();
        for _ in 0..records {
            // A kind, its inline bytes, numbers that are small or whatever comes.
            let (record, length, small) = (self.byte() % 22, self.byte() % 24, self.byte() % 8);
            covered.extend([record, self.byte() % 5, length, 0, 0, 0, 0, 0]);
            for _ in 0..7 {
                let word = if small > 0 {
                    u64::from(self.byte() % 16)
                } else {
                    u64::from_le_bytes(self.take(8).try_into().expect("eight bytes"))
                };
                covered.extend(word.to_le_bytes());
            }
            let head = covered.len() - HEAD;
            let length =
                u64::from_le_bytes(covered[head + 24..head + 32].try_into().expect("eight"));
            if matches!(record, WRITE | RELOCATE) && length < BLOCK as u64 && small < 6 {
                // Its body is there: zeros.
                let digest = xxh3(&vec![0; length as usize]);
                covered[head + 32..head + 40].copy_from_slice(&digest.to_le_bytes());
            }
        }
        let names = self.take(inline);
        covered.extend(names);
        let header = GroupHeader {
            log: LOG,
            epoch: Epoch(1),
            number: GroupNumber(self.number),
            durable: GroupNumber(u64::from(self.byte() / 32)),
            segment_use: 1,
            place,
            previous: self.previous,
            records: records as u32,
            inline: inline as u32,
            body_blocks: u32::from(self.byte() % 3),
            front_digest: crc32c(&covered),
        };
        let (bytes, digest) = header.encode();
        (self.number, self.previous) = (self.number + 1, digest);
        self.front = bytes.to_vec();
        self.front.extend(covered);
        let read = header.records_in(&self.front).unwrap_or_default();
        let mut block = place.block + header.front_blocks();
        for RecordBody { length, .. } in read.iter().filter_map(LogRecord::body) {
            self.bodies.insert((10 + place.segment, u64::from(block) * BLOCK as u64));
            block += length.div_ceil(BLOCK as u32);
        }
        self.front.clone()
    }
}
