//! The engine: calls in, groups to the disk, and what is durable out.
//!
//! # Model
//! Four parts of one state: opening ([`super::opening`]), groups on their way
//! ([`super::commit`]), snapshots ([`super::checkpoint`]), notes ([`super::note`]). All of them put
//! operations into one queue, which a step empties as far as it has room.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::checkpoint::{Checkpoint, SnapshotFailure};
use super::commit::{FlyingGroup, OpenGroup, Syncing, Trouble};
use super::compaction::{Compaction, SegmentUse};
use super::disk_queue::{DiskJob, DiskQueue};
use super::opening::Opening;
use super::snapshot::LogEnd;
use super::state::LogState;
use super::{
    BLOCK, BODY_MAX, Epoch, GroupNumber, LogCommand, LogConfig, LogError, LogEvent, LogId, WallNs,
};
use super::{commit, group};
use crate::base::{Bytes, LocalNs, Nanos};
use crate::wire::{Arrival, Engine, Fault, FileId, Input, More, Out, Queue, Span, Status};

/// The space of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpace {
    /// Bytes of all segments that are written to.
    pub total: Bytes,
    /// Bytes that no group has.
    pub free: Bytes,
    /// Segments that are written to.
    pub segments: u64,
    /// Of them, those that no group has anything in.
    pub segments_free: u64,
    /// Segments that are not written to any more, because the disk failed there.
    pub segments_retired: u64,
    /// Why the last snapshot was not written, if so: no segment becomes free until one is.
    pub snapshot_failed: Option<Fault>,
}

/// How far the log is.
#[derive(Debug)]
pub(super) enum LogPhase {
    /// Nothing was done, or it was refused.
    Closed,
    /// It is read.
    Opening(Box<Opening>),
    /// It takes calls.
    Open,
    /// The disk failed twice.
    Stopped(LogError),
}

/// The log of staged data of one machine.
///
/// Its application registers [`LogConfig::SCRATCH`] bytes of memory and opens the files, then boots
/// it: [`LogEvent::Opened`] or [`LogEvent::NotOpened`] follows.
#[derive(Debug)]
pub struct StagingLog {
    pub(super) config: LogConfig,
    pub(super) disk: DiskQueue,
    pub(super) phase: LogPhase,
    pub(super) state: LogState,
    pub(super) log: LogId,
    pub(super) epoch: Epoch,
    events: VecDeque<LogEvent>,
    /// The time of day at local time zero; it can be before 1970.
    wall_offset: i128,
    pub(super) now: LocalNs,

    /// The group that takes records.
    pub(super) open: OpenGroup,
    /// Groups that are not durable, in order.
    pub(super) in_flight: VecDeque<FlyingGroup>,
    pub(super) syncing: Option<Syncing>,
    /// The disk failed; what is not durable is written again when nothing is under way any more.
    pub(super) trouble: Option<Trouble>,
    /// Failures since the last good sync.
    pub(super) failures: u32,
    /// Behind the last group that has a place.
    pub(super) end: LogEnd,
    /// Behind the last durable group.
    pub(super) durable_end: LogEnd,
    /// The highest use of any segment.
    pub(super) segment_use: u64,
    /// The last group that has a place in each segment.
    pub(super) last_groups: Vec<GroupNumber>,
    /// What files have of each segment.
    pub(super) live: Vec<SegmentUse>,
    pub(super) compaction: Compaction,
    /// The last group that the superblock says to be durable.
    pub(super) noted: GroupNumber,
    /// The group that it says next, once a note is written.
    pub(super) noting: Option<GroupNumber>,
    /// The copy of the superblock that was written last.
    pub(super) note_copy: u64,
    /// When the last group became durable, while nothing came behind it.
    pub(super) quiet_since: Option<LocalNs>,
    pub(super) wants_end: bool,

    /// The last group that a durable snapshot covers, and in which file that is.
    pub(super) covered: (GroupNumber, usize),
    pub(super) checkpoint: Checkpoint,
    /// Bytes of groups since the last snapshot was begun.
    pub(super) since_snapshot: u64,
    /// That the last snapshot failed.
    pub(super) snapshot_failure: Option<SnapshotFailure>,
}

impl StagingLog {
    /// Creates the engine.
    pub fn new(config: LogConfig) -> Self {
        let segments = config.segments.len();
        Self {
            state: LogState::new(config.inodes_max),
            wall_offset: i128::from(config.wall_at_zero.0),
            config,
            disk: DiskQueue::default(),
            phase: LogPhase::Closed,
            log: LogId(0),
            epoch: Epoch(0),
            events: VecDeque::new(),
            now: LocalNs(0),
            open: OpenGroup::default(),
            in_flight: VecDeque::new(),
            syncing: None,
            trouble: None,
            failures: 0,
            end: LogEnd::EMPTY,
            durable_end: LogEnd::EMPTY,
            segment_use: 0,
            last_groups: alloc::vec![GroupNumber(0); segments],
            live: alloc::vec![SegmentUse::default(); segments],
            compaction: Compaction::default(),
            noted: GroupNumber(0),
            noting: None,
            note_copy: 1,
            quiet_since: None,
            wants_end: false,
            covered: (GroupNumber(0), 1),
            checkpoint: Checkpoint::None,
            since_snapshot: 0,
            snapshot_failure: None,
        }
    }

    /// Returns the state as calls see it: with what is applied and not durable.
    pub const fn state(&self) -> &LogState {
        &self.state
    }

    /// Returns the name of the log.
    pub const fn id(&self) -> LogId {
        self.log
    }

    /// Returns the last group that is durable.
    pub const fn durable(&self) -> GroupNumber {
        self.durable_end.group
    }

    /// Returns how many bytes were given another place since the log was opened, so that segments
    /// became free.
    pub const fn moved(&self) -> Bytes {
        Bytes(self.compaction.moved)
    }

    /// Returns how much space the log has.
    pub fn space(&self) -> LogSpace {
        let size = self.config.segment_size.0;
        let retired = self.state.retired.len();
        let behind = self.end.next.map_or(0, |next| size.saturating_sub(next.offset()));
        let segments = self.config.segments.len().saturating_sub(retired) as u64;
        let segments_free = self.free_segments().count() as u64;
        LogSpace {
            total: Bytes(size * segments),
            free: Bytes(size * segments_free + behind),
            segments,
            segments_free,
            segments_retired: retired as u64,
            snapshot_failed: self.snapshot_failure.map(|failure| failure.fault),
        }
    }

    /// Returns whether segments may become free without a further call: a snapshot is written, or
    /// groups are on their way, or bytes are moved.
    pub fn frees_space(&self) -> bool {
        !matches!(self.checkpoint, Checkpoint::None)
            || !self.in_flight.is_empty()
            || self.open.records > 0
            || self.compaction.is_active()
    }

    pub(super) fn notify(&mut self, event: LogEvent) {
        self.events.push_back(event);
    }

    pub(super) fn segment_blocks(&self) -> u32 {
        (self.config.segment_size.0 / BLOCK as u64) as u32
    }

    pub(super) fn segment_file(&self, segment: u32) -> FileId {
        self.config.segments[segment as usize]
    }

    /// Returns the memory of the front of a group.
    pub(super) const fn front_memory(&self, group: GroupNumber) -> Span {
        let slot = group.0 % commit::IN_FLIGHT as u64;
        let offset = slot * group::FRONT_MAX as u64;
        Span { region: self.config.scratch, offset, length: group::FRONT_MAX as u32 }
    }

    /// Returns the memory of everything else.
    pub(super) const fn work_memory(&self) -> Span {
        let offset = (commit::IN_FLIGHT * group::FRONT_MAX) as u64;
        Span { region: self.config.scratch, offset, length: BODY_MAX }
    }

    /// Returns the memory of a superblock that notes what is durable.
    pub(super) const fn note_memory(&self) -> Span {
        let work = self.work_memory();
        Span { offset: work.offset + work.length as u64, length: BLOCK as u32, ..work }
    }

    /// Returns the memory of bytes that get another place.
    pub(super) const fn compaction_memory(&self) -> Span {
        let note = self.note_memory();
        Span { offset: note.offset + note.length as u64, length: BODY_MAX, ..note }
    }

    /// Returns the time of a record made now: the time of day, or that of the last record if the
    /// clock stepped back behind it.
    pub(super) fn record_time(&self) -> WallNs {
        let wall = self.wall_offset + i128::from(self.now.0);
        let wall = u64::try_from(wall.max(0)).unwrap_or(u64::MAX);
        WallNs(wall).max(self.state.time)
    }

    fn set_clock(&mut self, wall: WallNs) {
        self.wall_offset = i128::from(wall.0) - i128::from(self.now.0);
        if wall < self.state.time {
            self.notify(LogEvent::Notice(LogError::ClockBack(Nanos(self.state.time.0 - wall.0))));
        }
    }

    fn command(&mut self, command: LogCommand) {
        match command {
            LogCommand::Append { client, number, class, change, body } => {
                self.append(client, number, class, change, body);
            }
            LogCommand::Commit => self.commit(),
            LogCommand::SetClock(wall) => self.set_clock(wall),
            LogCommand::Finish => {
                self.wants_end = true;
                self.close_if_due();
                self.look_at_end();
            }
        }
    }

    fn arrival(&mut self, arrival: Arrival<'_>) {
        match arrival {
            Arrival::Done { token, status, value, .. } => self.done(token, status, value),
            Arrival::Shown { token, bytes } => match self.disk.end(token, Status::Complete) {
                Some((_, DiskJob::Opening)) => self.opening_shown(bytes),
                Some((_, DiskJob::Compaction)) => self.compaction_shown(bytes),
                _ => {}
            },
            Arrival::Room { queue: Queue::Files } => self.disk.room(),
            _ => {}
        }
    }

    fn done(&mut self, token: crate::wire::Token, status: Status, value: u64) {
        match self.disk.end(token, status) {
            Some((operation, DiskJob::Opening)) => self.opening_done(operation, status, value),
            Some((operation, DiskJob::GroupWrite(group))) => {
                self.group_written(group, operation, status);
            }
            Some((_, DiskJob::GroupSync)) => self.group_synced(status),
            Some((_, DiskJob::Snapshot)) => self.checkpoint_done(status),
            Some((operation, DiskJob::Note)) => self.note_done(operation, status),
            Some((_, DiskJob::Compaction)) => self.compaction_read(status, value),
            None => {}
        }
    }
}

impl Engine for StagingLog {
    type Command = LogCommand;
    type Event = LogEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, LogCommand>,
        out: &mut Out<LogEvent>,
    ) -> More {
        self.now = self.now.max(now);
        match input {
            Input::Boot { .. } => self.open(),
            Input::Tick => {
                self.close_if_due();
                self.note_if_quiet();
                self.begin_checkpoint();
            }
            Input::Arrival(arrival) => self.arrival(arrival),
            Input::Command(command) => self.command(command),
        }
        while out.room() > 0
            && let Some(event) = self.events.pop_front()
        {
            out.notify(event);
        }
        let has_more = self.disk.flush(out) || !self.events.is_empty();
        if has_more { More::Yes } else { More::No }
    }

    fn deadline(&self) -> Option<LocalNs> {
        [self.commit_at(), self.note_at(), self.checkpoint_at()].into_iter().flatten().min()
    }
}
