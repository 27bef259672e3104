//! Faults that are planted into what a mount asked of its disk, or into what it acknowledged, and that
//! the comparison must find.
//!
//! # Model
//! What a log does wrong shows in what it asks of its disk and in when it answers. So each fault changes
//! the record of a real run on its way: a sync is left out, comes too early or is of another file, bytes
//! are not written, cut, or in another place, an answer comes too early. Nothing is planted into the
//! program. A fault that is found nowhere says that the comparison could miss a real one.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, bail};

use super::disk::{DiskChange, DiskImage, NodeNumber};
use super::session::{CrashPrograms, LifeRecord, TrialLength, run};
use super::states::{FirstState, Recoverer, StateChoice, StateCounts, check};

/// Trials in which faults are looked for: short ones, and one that reuses segments.
const TRIALS: [TrialLength; 4] =
    [TrialLength::Short, TrialLength::Short, TrialLength::Filling, TrialLength::Usual];
/// How a group begins.
const FRONT: &[u8] = b"CLWYGRP";
const BLOCK: usize = 4096;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CrashFault {
    /// Segments are not synced.
    NeverSyncsSegments,
    /// Every third sync of a segment is left out.
    SkipsSomeSyncs,
    /// After a while nothing is synced.
    StopsSyncing,
    /// The first segment is synced in place of the others.
    SyncsFirstSegment,
    /// The superblock is synced in place of segments.
    SyncsSuperblockInstead,
    /// The directory is synced in place of segments.
    SyncsDirectoryInstead,
    /// A sync does not wait for the front of its group.
    SyncsBeforeFronts,
    /// A sync does not wait for the last body of its group.
    SyncsBeforeBodies,
    /// Some fronts are not written.
    SkipsFronts,
    /// Some bodies are not written.
    SkipsBodies,
    /// Of fronts only the first sector is written.
    CutsFronts,
    /// The last block of a body is not written.
    CutsBodies,
    /// Some fronts are a block too far.
    MisplacesFronts,
    /// Some bodies are a block too far.
    MisplacesBodies,
    /// Some fronts are those of the group before.
    RepeatsFronts,
    /// Some fronts have a wrong bit.
    FlipsFronts,
    /// Some bodies have a wrong bit.
    FlipsBodies,
    /// Everything goes into the first segment.
    WritesOneSegment,
    /// The superblock is not written.
    SkipsSuperblocks,
    /// The superblock is not synced.
    NeverSyncsSuperblock,
    /// Superblocks are written in part.
    CutsSuperblocks,
    /// The directory of the log is not synced.
    NeverSyncsDirectory,
    /// The directory of the segments is not synced.
    NeverSyncsSegmentNames,
    /// The directory of the log is synced before the superblock has its name.
    SyncsDirectoryEarly,
    /// Segments have no length before they are written.
    SkipsLengths,
    /// What recovery read is not synced.
    SkipsSyncsOfOpening,
    /// Snapshots are not synced.
    NeverSyncsSnapshots,
    /// Of snapshots only the header is written.
    SkipsSnapshotState,
    /// Snapshots are in one file.
    WritesOneSnapshot,
    /// Answers come before the sync.
    AnswersBeforeSync,
    /// A change counts as safe when the next one begins.
    BelievesMemory,
    /// One change more is acknowledged.
    AnswersForNext,
}

impl CrashFault {
    const ALL: [Self; 32] = [
        Self::NeverSyncsSegments,
        Self::SkipsSomeSyncs,
        Self::StopsSyncing,
        Self::SyncsFirstSegment,
        Self::SyncsSuperblockInstead,
        Self::SyncsDirectoryInstead,
        Self::SyncsBeforeFronts,
        Self::SyncsBeforeBodies,
        Self::SkipsFronts,
        Self::SkipsBodies,
        Self::CutsFronts,
        Self::CutsBodies,
        Self::MisplacesFronts,
        Self::MisplacesBodies,
        Self::RepeatsFronts,
        Self::FlipsFronts,
        Self::FlipsBodies,
        Self::WritesOneSegment,
        Self::SkipsSuperblocks,
        Self::NeverSyncsSuperblock,
        Self::CutsSuperblocks,
        Self::NeverSyncsDirectory,
        Self::NeverSyncsSegmentNames,
        Self::SyncsDirectoryEarly,
        Self::SkipsLengths,
        Self::SkipsSyncsOfOpening,
        Self::NeverSyncsSnapshots,
        Self::SkipsSnapshotState,
        Self::WritesOneSnapshot,
        Self::AnswersBeforeSync,
        Self::BelievesMemory,
        Self::AnswersForNext,
    ];
}

/// What a node of the disk is to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogRole {
    Directory,
    SegmentNames,
    Superblock,
    Snapshot,
    Segment,
    Other,
}

/// The files of a log.
struct LogNodes {
    directory: Option<NodeNumber>,
    names: Option<NodeNumber>,
    superblock: Option<NodeNumber>,
    snapshots: Vec<NodeNumber>,
    segments: Vec<NodeNumber>,
}

impl LogNodes {
    /// Finds them on the disk as it was at the end of a life.
    fn new(record: &LifeRecord) -> Self {
        let mut image: DiskImage = record.disk.base.clone();
        record.disk.journal.iter().for_each(|change| image.apply(change, || true));
        let names = image.find("log/segments");
        let segments = names.and_then(|names| image.entries(names));
        Self {
            directory: image.find("log"),
            names,
            superblock: image.find("log/superblock"),
            snapshots: ["log/snapshot-0", "log/snapshot-1"]
                .iter()
                .filter_map(|name| image.find(name))
                .collect(),
            segments: segments.into_iter().flatten().map(|(_, node)| *node).collect(),
        }
    }

    fn role(&self, node: NodeNumber) -> LogRole {
        match Some(node) {
            it if it == self.directory => LogRole::Directory,
            it if it == self.names => LogRole::SegmentNames,
            it if it == self.superblock => LogRole::Superblock,
            _ if self.snapshots.contains(&node) => LogRole::Snapshot,
            _ if self.segments.contains(&node) => LogRole::Segment,
            _ => LogRole::Other,
        }
    }
}

/// What a change is to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeRole {
    Front,
    Body,
    Write(LogRole),
    Length(LogRole),
    Sync(LogRole),
    Other,
}

fn role_of(nodes: &LogNodes, change: &DiskChange) -> ChangeRole {
    match change {
        DiskChange::Write { node, bytes, .. } => match nodes.role(*node) {
            LogRole::Segment if bytes.starts_with(FRONT) => ChangeRole::Front,
            LogRole::Segment => ChangeRole::Body,
            role => ChangeRole::Write(role),
        },
        DiskChange::Resize { node, .. } => ChangeRole::Length(nodes.role(*node)),
        DiskChange::Sync { node } => ChangeRole::Sync(nodes.role(*node)),
        _ => ChangeRole::Other,
    }
}

/// Plants a fault into what happened in a life.
fn plant(fault: CrashFault, record: &LifeRecord) -> LifeRecord {
    let mut record = record.clone();
    match fault {
        CrashFault::BelievesMemory => {
            record.writers.iter_mut().for_each(|notes| notes.believe_memory());
        }
        CrashFault::AnswersForNext => {
            record.writers.iter_mut().for_each(|notes| notes.acknowledge_next());
        }
        CrashFault::AnswersBeforeSync => answer_early(&mut record),
        CrashFault::SyncsBeforeFronts | CrashFault::SyncsBeforeBodies => {
            let late = match fault {
                CrashFault::SyncsBeforeFronts => ChangeRole::Front,
                _ => ChangeRole::Body,
            };
            swap(&mut record, ChangeRole::Sync(LogRole::Segment), |role, _| role == late);
        }
        CrashFault::SyncsDirectoryEarly => {
            swap(
                &mut record,
                ChangeRole::Sync(LogRole::Directory),
                |_, change| matches!(change, DiskChange::Enter { name, .. } if name == b"superblock"),
            );
        }
        _ => plant_changes(fault, &mut record),
    }
    record
}

/// Lets every acknowledgement come before the last sync in front of it.
fn answer_early(record: &mut LifeRecord) {
    let nodes = LogNodes::new(record);
    let is_sync =
        |change: &DiskChange| role_of(&nodes, change) == ChangeRole::Sync(LogRole::Segment);
    let known = record.writers.iter_mut().flat_map(|notes| &mut notes.acknowledged);
    for known in known {
        let before = record.disk.journal.iter().take(known.position);
        if let Some(sync) = before.enumerate().rfind(|(_, change)| is_sync(change)) {
            known.position = sync.0;
        }
    }
}

/// Lets each sync of a kind change places with the last change before it for which `is_late`.
fn swap(
    record: &mut LifeRecord,
    sync: ChangeRole,
    is_late: impl Fn(ChangeRole, &DiskChange) -> bool,
) {
    let nodes = LogNodes::new(record);
    let journal = &mut record.disk.journal;
    let mut last = None;
    for at in 0..journal.len() {
        let role = role_of(&nodes, &journal[at]);
        if is_late(role, &journal[at]) {
            last = Some(at);
        } else if role == sync
            && let Some(late) = last.take()
        {
            journal.swap(at, late);
        }
    }
}

/// Plants a fault that changes single changes of the disk.
fn plant_changes(fault: CrashFault, record: &mut LifeRecord) {
    let mut planter = FaultPlanter { fault, nodes: LogNodes::new(record), count: 0, last: None };
    let ready = record.openings.first().map_or(0, |opening| opening.end);
    for (at, change) in record.disk.journal.iter_mut().enumerate() {
        let opens = record.openings.iter().any(|opening| opening.contains(&at));
        let role = role_of(&planter.nodes, change);
        // A segment without a length is another fault, which is found at once.
        if role == ChangeRole::Sync(LogRole::Segment) && at < ready {
            continue;
        }
        if planter.leaves_out(role, change, opens.then_some(()), at) {
            *change = DiskChange::Nothing;
            continue;
        }
        planter.redirect(role, change);
        if let DiskChange::Write { bytes, .. } = change {
            let mut changed = bytes.to_vec();
            planter.rewrite(role, &mut changed);
            *bytes = changed.into();
        }
    }
}

/// Where a planter is in a journal.
struct FaultPlanter {
    fault: CrashFault,
    nodes: LogNodes,
    /// Changes of the kind that the fault strikes now and then.
    count: u32,
    /// The front before.
    last: Option<Vec<u8>>,
}

impl FaultPlanter {
    /// Returns whether a change is the fifth of its kind, or the third of a more seldom one.
    fn strikes(&mut self, role: ChangeRole, kind: ChangeRole) -> bool {
        let every = if matches!(kind, ChangeRole::Sync(_)) { 3 } else { 5 };
        self.count += u32::from(role == kind);
        role == kind && self.count.is_multiple_of(every)
    }

    fn leaves_out(
        &mut self,
        role: ChangeRole,
        change: &DiskChange,
        opens: Option<()>,
        at: usize,
    ) -> bool {
        let sync = ChangeRole::Sync(LogRole::Segment);
        match self.fault {
            CrashFault::NeverSyncsSegments => role == sync,
            CrashFault::SkipsSomeSyncs => self.strikes(role, sync),
            CrashFault::StopsSyncing => at > 150 && role == sync,
            CrashFault::SkipsFronts => self.strikes(role, ChangeRole::Front),
            CrashFault::SkipsBodies => self.strikes(role, ChangeRole::Body),
            CrashFault::SkipsSuperblocks => role == ChangeRole::Write(LogRole::Superblock),
            CrashFault::NeverSyncsSuperblock => role == ChangeRole::Sync(LogRole::Superblock),
            CrashFault::NeverSyncsDirectory => role == ChangeRole::Sync(LogRole::Directory),
            CrashFault::NeverSyncsSegmentNames => role == ChangeRole::Sync(LogRole::SegmentNames),
            CrashFault::SkipsLengths => {
                // The zeros that a new log is filled with give its segments a length too.
                let is_fill = matches!(change, DiskChange::Write { bytes, .. } if bytes.iter().all(|byte| *byte == 0));
                role == ChangeRole::Length(LogRole::Segment)
                    || (role == ChangeRole::Body && is_fill)
            }
            CrashFault::SkipsSyncsOfOpening => role == sync && opens.is_some(),
            CrashFault::NeverSyncsSnapshots => role == ChangeRole::Sync(LogRole::Snapshot),
            CrashFault::SkipsSnapshotState => {
                role == ChangeRole::Write(LogRole::Snapshot)
                    && matches!(change, DiskChange::Write { at, .. } if *at > 0)
            }
            _ => false,
        }
    }

    /// Changes which file a change is of, or where in it.
    fn redirect(&mut self, role: ChangeRole, change: &mut DiskChange) {
        let is_sync = role == ChangeRole::Sync(LogRole::Segment);
        match (self.fault, change) {
            (CrashFault::SyncsFirstSegment, DiskChange::Sync { node }) if is_sync => {
                *node = self.nodes.segments[0];
            }
            (CrashFault::SyncsSuperblockInstead, DiskChange::Sync { node }) if is_sync => {
                *node = self.nodes.superblock.unwrap_or(*node);
            }
            (CrashFault::SyncsDirectoryInstead, DiskChange::Sync { node }) if is_sync => {
                *node = self.nodes.directory.unwrap_or(*node);
            }
            (CrashFault::WritesOneSegment, DiskChange::Write { node, .. })
                if matches!(role, ChangeRole::Front | ChangeRole::Body) =>
            {
                *node = self.nodes.segments[0];
            }
            (CrashFault::WritesOneSnapshot, DiskChange::Write { node, .. })
                if role == ChangeRole::Write(LogRole::Snapshot) =>
            {
                *node = self.nodes.snapshots[0];
            }
            (CrashFault::MisplacesFronts, DiskChange::Write { at, .. })
                if self.strikes(role, ChangeRole::Front) =>
            {
                *at += BLOCK as u64;
            }
            (CrashFault::MisplacesBodies, DiskChange::Write { at, .. })
                if self.strikes(role, ChangeRole::Body) =>
            {
                *at += BLOCK as u64;
            }
            _ => {}
        }
    }

    /// Changes what is written.
    fn rewrite(&mut self, role: ChangeRole, bytes: &mut Vec<u8>) {
        let half = bytes.len() / 2;
        match (self.fault, role) {
            (CrashFault::CutsFronts, ChangeRole::Front) => bytes.truncate(512),
            (CrashFault::CutsSuperblocks, ChangeRole::Write(LogRole::Superblock)) => {
                bytes.truncate(30);
            }
            (CrashFault::CutsBodies, ChangeRole::Body) if bytes.len() > BLOCK => {
                bytes.truncate(bytes.len() - BLOCK);
            }
            (CrashFault::FlipsBodies, ChangeRole::Body) if self.strikes(role, role) => {
                bytes[half] ^= 4;
            }
            (CrashFault::FlipsFronts, ChangeRole::Front) if self.strikes(role, role) => {
                bytes[60] ^= 4;
            }
            (CrashFault::RepeatsFronts, ChangeRole::Front) => {
                let own = bytes.clone();
                if self.strikes(role, role)
                    && let Some(last) = self.last.take()
                {
                    *bytes = last;
                }
                self.last = Some(own);
            }
            _ => {}
        }
    }
}

/// Plants each fault into trials from seed `first` on until it is found, `jobs` of them at a time; the
/// names of those that are not.
///
/// # Errors
/// A trial without a fault fails, or the system.
pub(super) fn find_all(programs: &CrashPrograms, first: u64, jobs: u64) -> Result<Vec<String>> {
    let mut records = Vec::new();
    for (seed, length) in (first..).zip(TRIALS) {
        records.extend(run(programs, seed, length).with_context(|| format!("seed {seed}"))?);
    }
    // The shorter ones cost less.
    records.sort_by_key(|record| record.disk.journal.len());
    let (left, missed) = (Mutex::new(CrashFault::ALL.to_vec()), Mutex::default());
    thread::scope(|scope| {
        let find = || -> Result<()> {
            let mut recoverer = Recoverer::new(&programs.recover);
            loop {
                let fault = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some(fault) = fault else { return Ok(()) };
                if let Some(sentence) = find(fault, &records, first, &mut recoverer)? {
                    println!("{fault:?}: {sentence}");
                } else {
                    let missed: &Mutex<Vec<String>> = &missed;
                    missed
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(format!("{fault:?}"));
                }
            }
        };
        let working: Vec<_> = (0..jobs).map(|_| scope.spawn(find)).collect();
        let mut outcomes = working.into_iter().map(ScopedJoinHandle::join);
        outcomes.try_for_each(|outcome| outcome.unwrap_or_else(|_| bail!("a job ended by a fault")))
    })?;
    Ok(missed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Looks for a fault in the records; what was found.
fn find(
    fault: CrashFault,
    records: &[LifeRecord],
    seed: u64,
    recoverer: &mut Recoverer,
) -> Result<Option<String>> {
    let mut counts = StateCounts::default();
    for record in records {
        let choice = StateChoice { begins: FirstState::Mounted, drawn: 1, stride: 1, seed };
        if let Some(found) = check(&plant(fault, record), choice, recoverer, &mut counts)? {
            let why: String = found.why.chars().take(100).collect();
            return Ok(Some(format!("found after {} states: {why}", counts.states)));
        }
    }
    Ok(None)
}

/// Asserts that faults are found whose states are few.
#[cfg(test)]
pub(super) fn assert_some_are_found(records: &[LifeRecord], recoverer: &mut Recoverer) {
    for fault in [CrashFault::NeverSyncsSegments, CrashFault::AnswersBeforeSync] {
        let found = find(fault, records, 1, recoverer).expect("states");
        assert!(found.is_some(), "{fault:?} is not found");
    }
}
