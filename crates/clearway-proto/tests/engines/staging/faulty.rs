//! The engine with one planted fault, for trials that must find it.
//!
//! # Model
//! What an engine does wrong shows in what it asks of the disk, in the bytes that it writes, in what
//! it makes of the bytes that it reads, or in what it tells its clients. So each fault changes one
//! of these on its way; digests are made to fit where the fault is not about them.

use std::collections::{BTreeMap, VecDeque};

use clearway_proto::base::{LocalNs, crc32c};
use clearway_proto::staging::{
    ClientId, GroupHeader, LogCommand, LogConfig, LogEvent, LogState, StagingLog, TreeChange,
};
use clearway_proto::wire::{
    Arrival, Effect, Engine, Fault, FileId, FileKind, Input, More, Operation, Out, Span, Status,
    Token,
};

use super::machine::{ARENA, SNAPSHOTS, segment_files};

const BLOCK: usize = 4096;
/// Where the memory of bytes that are moved begins in that of the engine.
const MOVED_AT: u64 = LogConfig::SCRATCH - (1 << 20);
/// Bytes of a header and of a head of a record.
const HEADER: usize = 128;
const HEAD: usize = 64;
/// Kinds of records.
const WRITE: u8 = 1;
const DRAINED: u8 = 12;
const RELOCATE: u8 = 21;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlantedLogFault {
    /// Segments are not synced.
    NeverSyncs,
    /// Snapshots are not synced.
    NeverSyncsSnapshots,
    /// What recovery read is not synced.
    SkipsSyncsOfOpening,
    /// The first segment is synced in place of the others.
    SyncsAnotherSegment,
    /// The sync does not wait for the writes.
    SyncsBeforeWrites,
    /// The sync of a record that a file is drained is skipped.
    SkipsSyncsOfDrains,
    /// The sync of a record that bytes have another place is skipped.
    SkipsSyncsOfMoves,
    /// A move is recorded as a write, whatever the file has by then.
    MovesAsWrites,
    /// Bytes that are moved are not written.
    SkipsMovedBodies,
    /// Some bodies are not written.
    SkipsBodies,
    /// Some fronts are not written.
    SkipsFronts,
    /// The last block of a body is not written.
    CutsBodies,
    /// Some bodies are written a block too early.
    MisplacesBodies,
    /// A write that failed counts as good.
    IgnoresWriteErrors,
    /// A sync that failed counts as good.
    IgnoresSyncErrors,
    /// A sync that failed is tried again.
    RetriesSyncs,
    /// All fronts are in one place of memory.
    SharesFrontMemory,
    /// Headers say that they are durable themselves.
    ClaimsDurable,
    /// Headers say that nothing is durable.
    NeverClaimsDurable,
    /// A new log has the name of the one before.
    KeepsLogId,
    /// Two records of a group change places.
    SwapsRecords,
    /// Some writes are recorded a byte too far.
    ShiftsOffsets,
    /// Numbers of calls are not recorded.
    ForgetsNumbers,
    /// The log that a record of a write is in does not name its digest.
    ForgetsBodyDigests,
    /// Recovery believes every front.
    BelievesFronts,
    /// The superblock says that nothing is durable.
    NeverNotes,
    /// Recovery does not look at the last segment.
    OverlooksSegment,
    /// Both snapshots are in one file.
    OneSnapshotFile,
    /// Of snapshots only the header is written.
    SkipsSnapshotState,
    /// A file is drained before it is copied.
    DrainsEarly,
    /// Calls are durable when they are applied.
    AcksApplied,
    /// One call more is durable.
    AcksNext,
    /// Some calls that are durable are not said to be.
    ForgetsAcks,
    /// A call that was made before is made again.
    AppliesAgain,
}

impl PlantedLogFault {
    pub(super) const ALL: [Self; 34] = [
        Self::NeverSyncs,
        Self::NeverSyncsSnapshots,
        Self::SkipsSyncsOfOpening,
        Self::SyncsAnotherSegment,
        Self::SyncsBeforeWrites,
        Self::SkipsSyncsOfDrains,
        Self::SkipsSyncsOfMoves,
        Self::MovesAsWrites,
        Self::SkipsMovedBodies,
        Self::SkipsBodies,
        Self::SkipsFronts,
        Self::CutsBodies,
        Self::MisplacesBodies,
        Self::IgnoresWriteErrors,
        Self::IgnoresSyncErrors,
        Self::RetriesSyncs,
        Self::SharesFrontMemory,
        Self::ClaimsDurable,
        Self::NeverClaimsDurable,
        Self::KeepsLogId,
        Self::SwapsRecords,
        Self::ShiftsOffsets,
        Self::ForgetsNumbers,
        Self::ForgetsBodyDigests,
        Self::BelievesFronts,
        Self::NeverNotes,
        Self::OverlooksSegment,
        Self::OneSnapshotFile,
        Self::SkipsSnapshotState,
        Self::DrainsEarly,
        Self::AcksApplied,
        Self::AcksNext,
        Self::ForgetsAcks,
        Self::AppliesAgain,
    ];
}

/// A file operation that the engine asked for.
#[derive(Clone, Copy)]
struct Asked {
    kind: FileKind,
    file: FileId,
    at: u64,
    memory: Span,
}

/// The engine, and what is wrong with it.
pub(super) struct FaultyLog {
    log: StagingLog,
    fault: Option<PlantedLogFault>,
    inner: Out<LogEvent>,
    asked: BTreeMap<u64, Asked>,
    /// Ends of operations that were not done.
    made_up: VecDeque<Token>,
    /// Ends that the engine had already.
    swallowed: Vec<Token>,
    is_open: bool,
    /// Kinds of the records of the last front.
    kinds: Vec<u8>,
    /// Digests of headers that were changed, by those that the engine computed.
    changed: BTreeMap<u32, u32>,
    count: u64,
}

impl FaultyLog {
    pub(super) fn new(config: LogConfig, fault: Option<PlantedLogFault>) -> Self {
        Self {
            log: StagingLog::new(config),
            fault,
            inner: Out::with_limit(64),
            asked: BTreeMap::new(),
            made_up: VecDeque::new(),
            swallowed: Vec::new(),
            is_open: false,
            kinds: Vec::new(),
            changed: BTreeMap::new(),
            count: 0,
        }
    }

    pub(super) fn state(&self) -> &LogState {
        self.log.state()
    }

    /// Returns how many bytes compaction moved.
    pub(super) fn moved(&self) -> u64 {
        self.log.moved().0
    }

    /// Returns why the last snapshot failed, if so.
    pub(super) fn snapshot_failed(&self) -> Option<Fault> {
        self.log.space().snapshot_failed
    }

    /// Returns the last durable group.
    pub(super) fn durable(&self) -> u64 {
        self.log.durable().0
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        self.log.deadline()
    }

    /// Returns whether the fault strikes now: every `n`-th time.
    fn strikes(&mut self, n: u64) -> bool {
        self.count += 1;
        self.count.is_multiple_of(n)
    }

    pub(super) fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, LogCommand>,
        out: &mut Out<LogEvent>,
    ) -> More {
        let Some(fault) = self.fault else { return self.log.input(now, input, out) };
        let mut shown = Vec::new();
        let Some(input) = self.change_input(fault, input, &mut shown, out) else { return More::No };
        let mut more = self.step(fault, now, input, out);
        while let Some(token) = self.made_up.pop_front() {
            let value = self.asked.get(&token.0).map_or(0, |asked| u64::from(asked.memory.length));
            let done = Arrival::Done { token, status: Status::Complete, value, at: now };
            if self.step(fault, now, Input::Arrival(done), out) == More::Yes {
                more = More::Yes;
            }
        }
        more
    }

    fn step(
        &mut self,
        fault: PlantedLogFault,
        now: LocalNs,
        input: Input<'_, LogCommand>,
        out: &mut Out<LogEvent>,
    ) -> More {
        let mut inner = std::mem::replace(&mut self.inner, Out::with_limit(0));
        let more = self.log.input(now, input, &mut inner);
        let (effects, heads) = inner.split();
        for effect in effects {
            match effect {
                Effect::Notify(event) => self.pass_event(fault, event, out),
                Effect::Operate(timed) => match timed.operation {
                    Operation::Store { bytes, into } => {
                        let bytes = bytes.bytes_in(heads).expect("bytes of this step").to_vec();
                        self.pass_store(fault, bytes, into, out);
                    }
                    operation => self.pass_operation(fault, operation, out),
                },
            }
        }
        inner.clear();
        self.inner = inner;
        more
    }

    fn change_input<'a>(
        &mut self,
        fault: PlantedLogFault,
        input: Input<'a, LogCommand>,
        shown: &'a mut Vec<u8>,
        out: &mut Out<LogEvent>,
    ) -> Option<Input<'a, LogCommand>> {
        match input {
            Input::Command(LogCommand::Append { client, number, class, change, body })
                if fault == PlantedLogFault::AppliesAgain
                    && number <= self.log.state().highest(client) =>
            {
                let number = number + 1;
                Some(Input::Command(LogCommand::Append { client, number, class, change, body }))
            }
            Input::Arrival(Arrival::Done { token, status, value, at }) => {
                self.change_done(fault, token, status, value, at, out)
            }
            Input::Arrival(Arrival::Shown { token, bytes }) => {
                shown.extend(bytes);
                self.change_shown(fault, shown);
                Some(Input::Arrival(Arrival::Shown { token, bytes: shown }))
            }
            other => Some(other),
        }
    }

    fn change_done<'a>(
        &mut self,
        fault: PlantedLogFault,
        token: Token,
        status: Status,
        value: u64,
        at: LocalNs,
        out: &mut Out<LogEvent>,
    ) -> Option<Input<'a, LogCommand>> {
        if let Some(place) = self.swallowed.iter().position(|swallowed| *swallowed == token) {
            self.swallowed.swap_remove(place);
            return None;
        }
        let asked = self.asked.get(&token.0).copied();
        let has_failed = matches!(status, Status::Failed(_));
        let mut end = (status, value);
        match (fault, asked.map(|asked| asked.kind)) {
            (PlantedLogFault::IgnoresWriteErrors, Some(FileKind::Write))
            | (PlantedLogFault::IgnoresSyncErrors, Some(FileKind::Sync))
                if has_failed =>
            {
                end.0 = Status::Complete;
            }
            (PlantedLogFault::RetriesSyncs, Some(FileKind::Sync)) if has_failed => {
                if let Some(Asked { kind, file, at, memory }) = asked {
                    let class = clearway_proto::base::Class::Bulk;
                    out.operate(Operation::File { kind, file, at, memory, class, token });
                }
                return None;
            }
            _ => {}
        }
        Some(Input::Arrival(Arrival::Done { token, status: end.0, value: end.1, at }))
    }

    fn change_shown(&mut self, fault: PlantedLogFault, bytes: &mut [u8]) {
        match fault {
            PlantedLogFault::BelievesFronts if bytes.starts_with(b"CLWYGRP") => {
                refit(&mut bytes[..BLOCK]);
            }
            PlantedLogFault::OverlooksSegment
                if GroupHeader::parse(bytes).is_some_and(|(h, _)| h.place.segment == 2) =>
            {
                bytes.fill(0);
            }
            _ => {}
        }
    }

    fn pass_event(&mut self, fault: PlantedLogFault, event: LogEvent, out: &mut Out<LogEvent>) {
        match (fault, event) {
            (PlantedLogFault::AcksApplied, LogEvent::Applied { client, number }) => {
                out.notify(LogEvent::Applied { client, number });
                out.notify(LogEvent::Durable { client, number });
            }
            (PlantedLogFault::AcksNext, LogEvent::Durable { client, number }) => {
                let highest = self.log.state().highest(client);
                out.notify(LogEvent::Durable { client, number: highest.min(number + 1) });
            }
            (PlantedLogFault::ForgetsAcks, LogEvent::Durable { .. }) if self.strikes(9) => {}
            (PlantedLogFault::DrainsEarly, LogEvent::Drainable { inode, version, size }) => {
                self.count += 1;
                let change = TreeChange::Drained { inode, version, size };
                let class = clearway_proto::base::Class::Bulk;
                let (client, number) = (ClientId(99), self.count);
                let body = Span::EMPTY;
                let call = LogCommand::Append { client, number, class, change, body };
                let mut inner = Out::with_limit(64);
                let _ = self.log.input(LocalNs(0), Input::Command(call), &mut inner);
                let (effects, heads) = inner.split();
                for effect in effects {
                    match effect {
                        Effect::Operate(timed) => match timed.operation {
                            Operation::Store { bytes, into } => {
                                let bytes = out.bytes(bytes.bytes_in(heads).unwrap_or_default());
                                out.operate(Operation::Store { bytes, into });
                            }
                            operation => out.operate(operation),
                        },
                        Effect::Notify(LogEvent::Durable { client, number })
                            if client != ClientId(99) =>
                        {
                            out.notify(LogEvent::Durable { client, number });
                        }
                        Effect::Notify(_) => {}
                    }
                }
            }
            (PlantedLogFault::DrainsEarly, LogEvent::Durable { client: ClientId(99), .. }) => {}
            (_, event) => {
                self.is_open |= matches!(event, LogEvent::Opened(_));
                out.notify(event);
            }
        }
    }

    fn pass_store(
        &mut self,
        fault: PlantedLogFault,
        mut bytes: Vec<u8>,
        mut into: Span,
        out: &mut Out<LogEvent>,
    ) {
        let is_front = bytes.starts_with(b"CLWYGRP");
        if is_front {
            self.kinds = records_of(&bytes).map(|head| bytes[head]).collect();
        }
        let digest = is_front.then(|| word(&bytes, 84));
        match fault {
            PlantedLogFault::ClaimsDurable if is_front => {
                bytes.copy_within(32..40, 40);
            }
            PlantedLogFault::NeverNotes if bytes.starts_with(b"CLWYLOG") => {
                bytes[48..56].fill(0);
                let digest = crc32c(&bytes[..56]);
                bytes[56..60].copy_from_slice(&digest.to_le_bytes());
            }
            PlantedLogFault::NeverClaimsDurable if is_front => {
                bytes[40..48].fill(0);
            }
            PlantedLogFault::SwapsRecords if is_front => {
                let heads: Vec<usize> = records_of(&bytes).collect();
                let plain = |head: usize| bytes[head + 2] == 0 && bytes[head] != WRITE;
                if let Some(pair) = heads.windows(2).find(|pair| plain(pair[0]) && plain(pair[1])) {
                    let (a, b) = (pair[0], pair[1]);
                    let (low, high) = bytes.split_at_mut(b);
                    low[a..a + HEAD].swap_with_slice(&mut high[..HEAD]);
                }
            }
            PlantedLogFault::ShiftsOffsets if is_front => {
                let heads: Vec<usize> = records_of(&bytes).collect();
                let write = heads.into_iter().find(|head| bytes[*head] == WRITE);
                if let Some(head) = write.filter(|_| self.strikes(3)) {
                    bytes[head + 16] ^= 1;
                }
            }
            PlantedLogFault::ForgetsNumbers if is_front => {
                let heads: Vec<usize> = records_of(&bytes).collect();
                heads.into_iter().for_each(|head| bytes[head + 48..head + 56].fill(0));
            }
            PlantedLogFault::ForgetsBodyDigests if is_front => {
                let heads: Vec<usize> = records_of(&bytes).collect();
                for head in
                    heads.into_iter().filter(|head| bytes[*head] == WRITE).collect::<Vec<_>>()
                {
                    bytes[head + 32..head + 40].fill(0);
                }
            }
            PlantedLogFault::SharesFrontMemory if is_front => into.offset = 0,
            PlantedLogFault::MovesAsWrites if is_front => write_moves(&mut bytes),
            _ => {}
        }
        // What names the header of a changed front names it as it is now.
        let name = if is_front { Some(64) } else { bytes.starts_with(b"CLWYSNP").then_some(48) };
        if let Some(at) = name
            && let Some(changed) = self.changed.get(&word(&bytes, at))
        {
            bytes[at..at + 4].copy_from_slice(&changed.to_le_bytes());
            let digest = crc32c(&bytes[..72]);
            if !is_front {
                bytes[72..76].copy_from_slice(&digest.to_le_bytes());
            }
        }
        if let Some(digest) = digest {
            refit(&mut bytes);
            self.changed.insert(digest, word(&bytes, 84));
        }
        let bytes = out.bytes(&bytes);
        out.operate(Operation::Store { bytes, into });
    }

    fn pass_operation(
        &mut self,
        fault: PlantedLogFault,
        mut operation: Operation,
        out: &mut Out<LogEvent>,
    ) {
        let Operation::File { kind, file, at, memory, token, .. } = &mut operation else {
            out.operate(operation);
            return;
        };
        self.asked.insert(token.0, Asked { kind: *kind, file: *file, at: *at, memory: *memory });
        let token = *token;
        let (is_segment, is_snapshot) = (segment_files().contains(file), SNAPSHOTS.contains(file));
        let is_body = *kind == FileKind::Write && memory.region == ARENA;
        let is_front = *kind == FileKind::Write && is_segment && !is_body;
        let is_sync = *kind == FileKind::Sync;
        let skips = match fault {
            PlantedLogFault::NeverSyncs => is_sync && is_segment,
            PlantedLogFault::NeverSyncsSnapshots => is_sync && is_snapshot,
            PlantedLogFault::SkipsSyncsOfOpening => is_sync && !self.is_open,
            PlantedLogFault::SkipsSyncsOfDrains => {
                is_sync && is_segment && self.kinds.contains(&DRAINED)
            }
            PlantedLogFault::SkipsSyncsOfMoves => {
                is_sync && is_segment && self.kinds.contains(&RELOCATE)
            }
            PlantedLogFault::SkipsMovedBodies => is_front && memory.offset >= MOVED_AT,
            PlantedLogFault::SkipsBodies => is_body && self.strikes(5),
            PlantedLogFault::SkipsFronts => is_front && self.strikes(7),
            PlantedLogFault::SkipsSnapshotState => {
                is_snapshot && *kind == FileKind::Write && *at > 0
            }
            _ => false,
        };
        if skips {
            self.made_up.push_back(token);
            return;
        }
        match fault {
            PlantedLogFault::SyncsAnotherSegment if is_sync && is_segment => {
                *file = segment_files()[0]
            }
            PlantedLogFault::SyncsBeforeWrites if *kind == FileKind::Write && is_segment => {
                self.made_up.push_back(token);
                self.swallowed.push(token);
            }
            PlantedLogFault::CutsBodies if is_body && memory.length as usize > BLOCK => {
                memory.length -= BLOCK as u32;
            }
            PlantedLogFault::MisplacesBodies if is_body && self.strikes(5) => *at -= BLOCK as u64,
            PlantedLogFault::SharesFrontMemory if is_front => memory.offset = 0,
            PlantedLogFault::OneSnapshotFile if is_snapshot => *file = SNAPSHOTS[0],
            _ => {}
        }
        out.operate(operation);
    }
}

/// Makes writes of the moves in a front that is whole here.
fn write_moves(front: &mut Vec<u8>) {
    let heads: Vec<usize> = records_of(front).collect();
    let Some(last) = heads.last() else { return };
    if last + HEAD + word(front, 72) as usize > front.len() {
        return;
    }
    let (mut inline, padded) = (last + HEAD, front.len());
    for head in heads {
        let length = usize::from(u16::from_le_bytes([front[head + 2], front[head + 3]]));
        if front[head] == RELOCATE {
            front[head] = WRITE;
            front[head + 2..head + 4].fill(0);
            // Bytes of the body before them.
            front[head + 28..head + 32].fill(0);
            front.drain(inline..inline + length);
            let left = word(front, 72) - length as u32;
            front[72..76].copy_from_slice(&left.to_le_bytes());
        } else {
            inline += length;
        }
    }
    front.resize(padded, 0);
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Returns where the heads of a front begin that is whole here.
fn records_of(front: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let count = word(front, 68) as usize;
    let fits = HEADER + count * HEAD <= front.len();
    (0..if fits { count } else { 0 }).map(|record| HEADER + record * HEAD)
}

/// Makes both digests of a front fit its bytes, if all of them are here.
fn refit(front: &mut [u8]) {
    let heads = (word(front, 68) as usize).saturating_mul(HEAD);
    let end = HEADER.saturating_add(heads).saturating_add(word(front, 72) as usize);
    if let Some(covered) = front.get(HEADER..end) {
        let digest = crc32c(covered);
        front[80..84].copy_from_slice(&digest.to_le_bytes());
    }
    let digest = crc32c(&front[..84]);
    front[84..88].copy_from_slice(&digest.to_le_bytes());
}
