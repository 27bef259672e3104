//! A machine with a log: memory, a disk, and the engine between them, step by step.

use std::collections::VecDeque;

use clearway_proto::base::{Bytes, LocalNs, Nanos, xxh3};
use clearway_proto::staging::{
    BodyCondition, ByteSource, LogCommand, LogConfig, LogEvent, LogId, LogOrigin, LogState, WallNs,
};
use clearway_proto::wire::{
    Arrival, Effect, Fault, FileId, FileKind, Input, More, Operation, Out, RegionId, Span, Status,
    Token,
};

use super::disk::{PendingOperation, TrialDisk};
use super::faulty::{FaultyLog, PlantedLogFault};

pub(super) const SUPERBLOCK: FileId = FileId(1);
pub(super) const SNAPSHOTS: [FileId; 2] = [FileId(2), FileId(3)];
pub(super) const SNAPSHOT_SIZE: usize = 128 << 10;
const FIRST_SEGMENT: u32 = 10;
pub(super) const SEGMENTS: u32 = 4;
pub(super) const SEGMENT_SIZE: usize = 128 << 10;
/// Bytes of a slot of the arena.
pub(super) const SLOT: usize = 20 << 10;
pub(super) const SLOTS: usize = 16;
const SCRATCH: RegionId = RegionId(0);
pub(super) const ARENA: RegionId = RegionId(1);

pub(super) fn segment_files() -> Vec<FileId> {
    (FIRST_SEGMENT..FIRST_SEGMENT + SEGMENTS).map(FileId).collect()
}

pub(super) fn config(origin: LogOrigin) -> LogConfig {
    LogConfig {
        origin,
        superblock: SUPERBLOCK,
        snapshots: SNAPSHOTS,
        snapshot_size: Bytes(SNAPSHOT_SIZE as u64),
        segments: segment_files(),
        segment_size: Bytes(SEGMENT_SIZE as u64),
        bodies_max: Bytes(32 << 10),
        scratch: SCRATCH,
        inodes_max: 64,
        snapshot_every: Bytes(96 << 10),
        linger: Nanos::from_millis(1),
        wall_at_zero: WallNs(1_000_000_000),
    }
}

/// Returns a disk with files of zeros.
pub(super) fn blank() -> TrialDisk {
    let mut disk = TrialDisk::default();
    disk.add(SUPERBLOCK, vec![0; 8 << 10]);
    SNAPSHOTS.iter().for_each(|file| disk.add(*file, vec![0; SNAPSHOT_SIZE]));
    segment_files().into_iter().for_each(|file| disk.add(file, vec![0; SEGMENT_SIZE]));
    disk
}

pub(super) struct Machine {
    pub(super) log: FaultyLog,
    pub(super) disk: TrialDisk,
    scratch: Vec<u8>,
    pub(super) arena: Vec<u8>,
    pub(super) now: LocalNs,
    pub(super) events: VecDeque<LogEvent>,
    /// Bytes that the engine asked to see.
    shown: VecDeque<(Token, Vec<u8>)>,
    out: Out<LogEvent>,
}

impl Machine {
    /// Starts the engine on `disk`.
    pub(super) fn boot(disk: TrialDisk, origin: LogOrigin, fault: Option<PlantedLogFault>) -> Self {
        let origin = match (origin, fault) {
            (LogOrigin::New(_), Some(PlantedLogFault::KeepsLogId)) => LogOrigin::New(LogId(7)),
            (origin, _) => origin,
        };
        let mut machine = Self {
            log: FaultyLog::new(config(origin), fault),
            disk,
            scratch: vec![0; LogConfig::SCRATCH as usize],
            arena: vec![0; SLOT * SLOTS],
            now: LocalNs(0),
            events: VecDeque::new(),
            shown: VecDeque::new(),
            out: Out::with_limit(64),
        };
        machine.give(Input::Boot { incarnation: 0 });
        machine
    }

    /// Starts it, and ends all operations until it is open or refused.
    pub(super) fn open(
        disk: TrialDisk,
        origin: LogOrigin,
        fault: Option<PlantedLogFault>,
    ) -> Result<Self, String> {
        let mut machine = Self::boot(disk, origin, fault);
        for _ in 0..10_000 {
            if !machine.events.is_empty() || machine.disk.pending.is_empty() {
                break;
            }
            machine.end(0, None)?;
        }
        match machine.events.pop_front() {
            Some(LogEvent::Opened(report)) if report.damaged.is_empty() => Ok(machine),
            Some(LogEvent::Opened(report)) => Err(format!("damaged: {report:?}")),
            Some(LogEvent::NotOpened(why)) => Err(format!("not opened: {why}; {why:?}")),
            other => Err(format!("neither opened nor refused: {other:?}")),
        }
    }

    pub(super) fn state(&self) -> &LogState {
        self.log.state()
    }

    pub(super) fn command(&mut self, command: LogCommand) {
        self.give(Input::Command(command));
    }

    pub(super) fn tick(&mut self) {
        if self.log.deadline().is_some_and(|at| at <= self.now) {
            self.give(Input::Tick);
        }
    }

    fn give(&mut self, input: Input<'_, LogCommand>) {
        let mut more = self.log.input(self.now, input, &mut self.out);
        loop {
            self.take_effects();
            more = if more == More::Yes {
                self.log.input(self.now, Input::Tick, &mut self.out)
            } else if let Some((token, bytes)) = self.shown.pop_front() {
                let arrival = Arrival::Shown { token, bytes: &bytes };
                self.log.input(self.now, Input::Arrival(arrival), &mut self.out)
            } else {
                return;
            };
        }
    }

    fn memory(&mut self, span: Span) -> &mut [u8] {
        let region = if span.region == ARENA { &mut self.arena } else { &mut self.scratch };
        let range = span.range_in(region.len()).expect("a span of the region");
        &mut region[range]
    }

    fn take_effects(&mut self) {
        let mut out = std::mem::replace(&mut self.out, Out::with_limit(0));
        let (effects, heads) = out.split();
        for effect in effects {
            let operation = match effect {
                Effect::Notify(event) => {
                    self.events.push_back(event);
                    continue;
                }
                Effect::Operate(timed) => timed.operation,
            };
            match operation {
                Operation::Store { bytes, into } => {
                    let bytes = bytes.bytes_in(heads).expect("bytes of this step");
                    self.memory(into).copy_from_slice(bytes);
                }
                Operation::Show { of, token } => {
                    let bytes = self.memory(of).to_vec();
                    self.shown.push_back((token, bytes));
                }
                Operation::File { kind, file, at, memory, token, .. } => {
                    let bytes = self.memory(memory).to_vec();
                    self.disk.post(kind, file, at, token, memory, &bytes);
                }
                other => panic!("no operation of a log: {other:?}"),
            }
        }
        out.clear();
        self.out = out;
    }

    /// Ends an operation under way, well or with a fault.
    pub(super) fn end(&mut self, index: usize, fault: Option<Fault>) -> Result<(), String> {
        let pending = self.disk.pending.swap_remove(index);
        let PendingOperation { token, kind, file, at, length, memory, .. } = pending.clone();
        let mut value = length as u64;
        match (kind, fault) {
            (FileKind::Write, _) => {
                if *self.memory(memory) != *pending.bytes {
                    return Err(format!("memory was changed under the disk: {memory:?}"));
                }
                if at + length > self.disk.size(file) {
                    return Err(format!("a write beyond the file: {file:?} {at}"));
                }
                // What failed may have reached the disk all the same.
                self.disk.end_write(&pending);
            }
            (FileKind::Sync, None) => self.disk.end_sync(&pending),
            (FileKind::Sync, Some(_)) => self.disk.lose(&pending),
            (FileKind::Read, None) => {
                let bytes = self.disk.read(file, at, length);
                value = bytes.len() as u64;
                self.memory(Span { length: bytes.len() as u32, ..memory }).copy_from_slice(&bytes);
            }
            (FileKind::Read, Some(_)) => {}
        }
        if fault.is_some() && kind == FileKind::Write {
            self.disk.lose_last();
        }
        let (status, value) =
            fault.map_or((Status::Complete, value), |fault| (Status::Failed(fault), 0));
        let at = self.now;
        self.give(Input::Arrival(Arrival::Done { token, status, value, at }));
        Ok(())
    }

    /// Returns `length` bytes of a body from the disk, which have to be those that were written.
    pub(super) fn body(&self, source: ByteSource, length: usize) -> Result<Vec<u8>, String> {
        let ByteSource::Log { body, skip } = source else { return Err("no body".into()) };
        let (body, skip) = self.state().readable(body, skip);
        let place = self.state().body(body).ok_or(format!("{body:?} lies nowhere"))?;
        if place.condition == BodyCondition::Damaged {
            return Err(format!("{body:?} is damaged"));
        }
        let file = segment_files()[place.place.segment as usize];
        let whole =
            self.disk.read(file, place.place.offset() as usize, place.record.length as usize);
        if xxh3(&whole) != place.record.digest {
            return Err(format!("{body:?} is not there any more: {place:?}"));
        }
        let skip = skip as usize;
        whole.get(skip..skip + length).map(<[u8]>::to_vec).ok_or("a body that is too short".into())
    }
}
