//! Groups on their way: when they are closed, where they go, and when they are durable.
//!
//! # Model
//! ```text
//!   open --close--> written block by block --sync of the segment--> durable
//! ```
//! The open group is closed when no other is on its way and one of these holds: somebody waits for
//! it, it is worth a sync of its own, or it lingered. It is also closed when a record does not fit in
//! it any more. So a file that is made, written and closed takes one sync. One sync is under way at a time; it covers the groups of its segment that were completely
//! written when it was asked for. Groups become durable in order.
//!
//! # Invariants
//! I1. No group is durable before all groups in front of it.
//! I2. No memory of a front is written while the disk reads it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::disk_queue::{DiskJob, DiskOperation};
use super::group::{GroupFront, GroupHeader, LogPlace};
use super::log::{LogPhase, StagingLog};
use super::opening::fault_of;
use super::record::{LogChange, LogRecord, RecordBody};
use super::recovery::{Recovered, RecoveryReport};
use super::snapshot::LogEnd;
use super::state::{BodyCondition, BodyPlace, changed_file};
use super::tree::{BodyId, DroppedBytes, SpaceNeed, TreeChange, TreeError};
use super::{BLOCK, BODY_MAX, ClientId, GroupNumber, InodeId, LogError, LogEvent, blocks};
use crate::base::{Class, LocalNs};
use crate::wire::{Fault, FileKind, Span, Status};

/// Groups that are closed and not durable: with 4 MiB of bodies in each, as much as an application
/// may write ahead of the disk.
pub(super) const IN_FLIGHT: usize = 64;
/// Segments that stay free when data are taken. A log that took data into its last segment could
/// not record that others are free. Names can be removed until that segment is half full; the other
/// half is for records that let go of bytes.
pub(super) const RESERVED: usize = 1;

/// Blocks of a group that is not kept open for more: with as many, a sync takes a small part of the
/// time of the write.
const WORTH_A_SYNC: u32 = (1 << 20) / BLOCK as u32;

/// A body of a group.
#[derive(Clone, Copy, Debug)]
struct GroupBody {
    id: BodyId,
    memory: Span,
    record: RecordBody,
}

/// A group that takes records.
#[derive(Debug, Default)]
pub(super) struct OpenGroup {
    front: GroupFront,
    bodies: Vec<GroupBody>,
    /// The last call of each client.
    clients: BTreeMap<ClientId, u64>,
    /// What no file has any more once the group is durable.
    dropped: Vec<DroppedBytes>,
    files: BTreeSet<InodeId>,
    pub(super) records: u32,
    /// When the first record came.
    since: LocalNs,
    /// Whether somebody waits for it.
    is_awaited: bool,
}

/// A closed group.
#[derive(Debug)]
pub(super) struct FlyingGroup {
    number: GroupNumber,
    group: OpenGroup,
    /// Files that it changed, as they are behind it: version and size.
    drainable: Vec<(InodeId, u64, u64)>,
    segment: u32,
    /// Behind it.
    end: LogEnd,
    /// Writes that are not over.
    writes: u32,
}

/// A sync that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Syncing {
    segment: u32,
    /// The last group that it covers.
    last: GroupNumber,
}

/// The disk failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    segment: u32,
    fault: Fault,
}

impl StagingLog {
    /// Begins behind what recovery found.
    pub(super) fn commit_from(&mut self, found: Recovered) -> RecoveryReport {
        self.state = found.state;
        for body in self.state.bodies.values() {
            if let Some(segment) = self.live.get_mut(body.place.segment as usize) {
                segment.change(None, Some(body));
            }
        }
        (self.end, self.durable_end) = (found.end, found.end);
        if found.end.next.is_some_and(|next| self.state.retired.contains(&next.segment)) {
            self.end.next = None;
        }
        if found.end.group > found.covered.0 {
            // What was read now need not be read again.
            self.since_snapshot = self.config.snapshot_every.0;
        }
        self.segment_use = found.segment_use;
        self.last_groups = found.last_groups;
        self.covered = found.covered;
        found.report
    }

    /// Takes a call.
    pub(super) fn append(
        &mut self,
        client: ClientId,
        number: u64,
        class: Class,
        change: TreeChange,
        body: Span,
    ) {
        let event = match self.phase {
            LogPhase::Open if number <= self.state.highest(client) => {
                LogEvent::Known { client, number }
            }
            LogPhase::Open => {
                let (time, need) = (self.record_time(), change.space_need());
                let record =
                    LogRecord { client, number, class, time, change: LogChange::Tree(change) };
                match self.take_record(&record, need, body) {
                    Ok(()) => LogEvent::Applied { client, number },
                    Err(why) => LogEvent::Refused { client, number, why },
                }
            }
            LogPhase::Stopped(why) => LogEvent::Refused { client, number, why },
            LogPhase::Closed | LogPhase::Opening(_) => {
                LogEvent::Refused { client, number, why: LogError::NotOpen }
            }
        };
        let is_known = matches!(event, LogEvent::Known { .. });
        self.notify(event);
        if is_known && !self.is_on_its_way(client) {
            self.notify(LogEvent::Durable { client, number: self.state.highest(client) });
        }
        self.close_if_due();
    }

    /// Returns whether a call of `client` is not durable yet.
    fn is_on_its_way(&self, client: ClientId) -> bool {
        let flying = self.in_flight.iter().map(|flying| &flying.group);
        flying.chain([&self.open]).any(|group| group.clients.contains_key(&client))
    }

    pub(super) fn take_record(
        &mut self,
        record: &LogRecord,
        need: SpaceNeed,
        body: Span,
    ) -> Result<(), LogError> {
        let bodies_max = self.config.bodies_max.0;
        if let Some(RecordBody { length, .. }) = record.body() {
            let padded = u64::from(blocks(u64::from(length))) * BLOCK as u64;
            let is_good = body.length == length
                && (1..=BODY_MAX).contains(&length)
                && body.offset.is_multiple_of(BLOCK as u64)
                && padded <= bodies_max;
            if !is_good {
                return Err(LogError::BadBody);
            }
        }
        if !self.open.front.fits(record, bodies_max) {
            if self.open.records == 0 {
                return Err(TreeError::NameTooLong.into());
            }
            if !self.close() {
                return Err(LogError::Busy);
            }
            if !self.open.front.fits(record, bodies_max) {
                return Err(TreeError::NameTooLong.into());
            }
        }
        if !self.has_space(record, need) {
            return Err(LogError::Full);
        }
        self.push(record, body)?;
        Ok(())
    }

    /// Applies a record, and adds it to the open group.
    fn push(&mut self, record: &LogRecord, memory: Span) -> Result<(), TreeError> {
        let group = GroupNumber(self.end.group.0 + 1);
        let id = BodyId { group, index: self.open.bodies.len() as u16 };
        if let LogChange::Tree(change) = &record.change {
            self.state.tree().check_room(change)?;
        }
        self.state.apply(record, id, &mut self.open.dropped)?;
        if let LogChange::Tree(TreeChange::Relocate { body, skip, .. }) = record.change {
            self.state.moving.insert(id, (body, skip));
        }
        self.open.front.push(record);
        if self.open.records == 0 {
            self.open.since = self.now;
        }
        self.open.records += 1;
        if let Some(record) = record.body() {
            self.open.bodies.push(GroupBody { id, memory, record });
        }
        let number = self.open.clients.entry(record.client).or_insert(0);
        *number = record.number.max(*number);
        self.open.files.extend(changed_file(&record.change));
        self.quiet_since = None;
        Ok(())
    }

    /// Returns whether the open group has a place with this record too.
    fn has_space(&self, record: &LogRecord, need: SpaceNeed) -> bool {
        let blocks = self.open.front.blocks_with(record);
        let (fits, free) = (self.fits_behind(blocks), self.free_segments().count());
        match need {
            SpaceNeed::Grows => free > RESERVED || (fits && free == RESERVED),
            SpaceNeed::Removes => free > 0 || self.fits_behind(blocks + self.segment_blocks() / 2),
            SpaceNeed::Frees => free > 0 || fits,
        }
    }

    fn fits_behind(&self, blocks: u32) -> bool {
        self.end.next.is_some_and(|next| {
            u64::from(next.block) + u64::from(blocks) <= u64::from(self.segment_blocks())
        })
    }

    /// Returns the segments that can be begun.
    pub(super) fn free_segments(&self) -> impl Iterator<Item = u32> {
        (0..self.config.segments.len() as u32).filter(|segment| self.is_free(*segment))
    }

    pub(super) fn is_free(&self, segment: u32) -> bool {
        let index = segment as usize;
        self.live[index].bodies == 0
            && self.last_groups[index] <= self.covered.0
            && !self.state.retired.contains(&segment)
            && self.end.next.is_none_or(|next| next.segment != segment)
    }

    /// Returns whether a snapshot is all that a segment needs to be free.
    pub(super) fn waits_for_snapshot(&self) -> bool {
        let few = self.free_segments().count() <= RESERVED + 1;
        few && (0..self.live.len()).any(|segment| {
            self.live[segment].bodies == 0
                && self.last_groups[segment] > self.covered.0
                && self.end.next.is_none_or(|next| next.segment as usize != segment)
                && !self.state.retired.contains(&(segment as u32))
        })
    }

    /// Closes the open group as soon as nothing is on its way.
    pub(super) fn commit(&mut self) {
        self.open.is_awaited = self.open.records > 0;
        self.close_if_due();
    }

    /// Returns when the open group is closed, if nothing is on its way.
    pub(super) fn commit_at(&self) -> Option<LocalNs> {
        if self.open.records == 0 || !self.in_flight.is_empty() || self.trouble.is_some() {
            return None;
        }
        let is_due =
            self.open.is_awaited || self.wants_end || self.open.front.blocks() >= WORTH_A_SYNC;
        Some(if is_due { self.now } else { self.open.since + self.config.linger })
    }

    /// Closes the open group if it is due.
    pub(super) fn close_if_due(&mut self) {
        if self.commit_at().is_some_and(|at| at <= self.now) {
            self.close();
        }
    }

    /// Closes the open group; `false` when that cannot be done now.
    fn close(&mut self) -> bool {
        let is_ready = matches!(self.phase, LogPhase::Open)
            && self.trouble.is_none()
            && self.in_flight.len() < IN_FLIGHT;
        if !is_ready || !self.has_place(self.open.front.blocks()) {
            return false;
        }
        let group = core::mem::take(&mut self.open);
        let files = group.files.iter().filter_map(|inode| {
            self.state.tree.content(*inode).map(|file| (*inode, file.version(), file.size()))
        });
        let flying = FlyingGroup {
            number: GroupNumber(self.end.group.0 + 1),
            drainable: files.collect(),
            group,
            segment: 0,
            end: self.end,
            writes: 0,
        };
        self.quiet_since = None;
        self.in_flight.push_back(flying);
        self.write_group(self.in_flight.len() - 1);
        self.begin_checkpoint();
        true
    }

    fn has_place(&self, blocks: u32) -> bool {
        self.fits_behind(blocks) || self.free_segments().next().is_some()
    }

    /// Gives a group a place behind the end, and writes it there. There is a place.
    fn write_group(&mut self, index: usize) {
        let blocks = self.in_flight[index].group.front.blocks();
        let place = match self.end.next.filter(|_| self.fits_behind(blocks)) {
            Some(next) => next,
            None => {
                let Some(segment) = self.free_segments().next() else { return };
                self.segment_use += 1;
                self.end.segment_use = self.segment_use;
                LogPlace { segment, block: 0 }
            }
        };
        let number = self.in_flight[index].number;
        let header = GroupHeader {
            log: self.log,
            epoch: self.epoch,
            number,
            durable: self.durable_end.group,
            segment_use: self.end.segment_use,
            place,
            previous: self.end.digest,
            records: 0,
            inline: 0,
            body_blocks: 0,
            front_digest: 0,
        };
        let (front, header, digest) = self.in_flight[index].group.front.finish(header);
        let next = LogPlace { block: place.block + blocks, ..place };
        self.end = LogEnd {
            group: number,
            epoch: self.epoch,
            digest,
            segment_use: header.segment_use,
            next: Some(next),
        };
        self.last_groups[place.segment as usize] = number;
        self.since_snapshot += u64::from(blocks) * BLOCK as u64;
        let memory = Span { length: front.len() as u32, ..self.front_memory(number) };
        let job = DiskJob::GroupWrite(number);
        self.disk.store(&front, memory.region, memory.offset, job);
        let file = self.segment_file(place.segment);
        self.disk.file(FileKind::Write, file, place.offset(), memory, job);
        let bodies = self.in_flight[index].group.bodies.clone();
        self.write_bodies(
            &bodies,
            LogPlace { block: place.block + header.front_blocks(), ..place },
            job,
        );
        let flying = &mut self.in_flight[index];
        (flying.segment, flying.end) = (place.segment, self.end);
        flying.writes = 1 + bodies.len() as u32;
    }

    fn write_bodies(&mut self, bodies: &[GroupBody], first: LogPlace, job: DiskJob) {
        let file = self.segment_file(first.segment);
        let mut place = first;
        for GroupBody { id, memory, record } in bodies {
            let length = blocks(u64::from(memory.length));
            let padded = Span { length: length * BLOCK as u32, ..*memory };
            self.disk.file(FileKind::Write, file, place.offset(), padded, job);
            let (record, live) = (*record, record.length);
            let known = BodyPlace { place, record, live, condition: BodyCondition::Sound };
            if let Some(before) = self.state.bodies.insert(*id, known) {
                self.live[before.place.segment as usize].change(Some(&before), None);
            }
            self.live[place.segment as usize].change(None, Some(&known));
            place.block += length;
        }
    }

    /// Takes the end of a write.
    pub(super) fn group_written(
        &mut self,
        group: GroupNumber,
        operation: DiskOperation,
        status: Status,
    ) {
        let DiskOperation::File { file, .. } = operation else { return };
        if let Some(fault) = fault_of(status) {
            let segment = (0..).zip(&self.config.segments).find(|(_, other)| **other == file);
            self.fail(segment.map_or(0, |(segment, _)| segment), fault);
        } else if let Some(flying) = self.in_flight.iter_mut().find(|flying| flying.number == group)
        {
            flying.writes = flying.writes.saturating_sub(1);
        }
        self.rewrite_if_possible();
        self.sync_if_due();
    }

    /// Asks for a sync of the first group's segment if that group is written.
    fn sync_if_due(&mut self) {
        let is_ready = self.syncing.is_none() && self.trouble.is_none();
        let Some(first) = self.in_flight.front().filter(|_| is_ready) else { return };
        let segment = first.segment;
        let written = self.in_flight.iter().take_while(|f| f.writes == 0 && f.segment == segment);
        let Some(last) = written.last().map(|flying| flying.number) else { return };
        self.syncing = Some(Syncing { segment, last });
        let file = self.segment_file(segment);
        self.disk.file(FileKind::Sync, file, 0, Span::EMPTY, DiskJob::GroupSync);
    }

    /// Takes the end of a sync.
    pub(super) fn group_synced(&mut self, status: Status) {
        let Some(Syncing { segment, last }) = self.syncing.take() else { return };
        match fault_of(status) {
            Some(fault) => self.fail(segment, fault),
            // In trouble the groups are written again all the same.
            None if self.trouble.is_some() => {}
            None => {
                self.failures = 0;
                while self.in_flight.front().is_some_and(|flying| flying.number <= last) {
                    if let Some(flying) = self.in_flight.pop_front() {
                        self.make_durable(flying);
                    }
                }
                if self.in_flight.is_empty() && self.open.records == 0 {
                    self.quiet_since = Some(self.now);
                }
            }
        }
        self.rewrite_if_possible();
        self.close_if_due();
        self.sync_if_due();
        self.begin_checkpoint();
        self.write_checkpoint();
        self.compact();
        self.look_at_end();
    }

    fn make_durable(&mut self, flying: FlyingGroup) {
        self.durable_end = flying.end;
        for body in &flying.group.bodies {
            self.state.moving.remove(&body.id);
        }
        let live = &mut self.live;
        self.state.release(&flying.group.dropped, &mut |before, after| {
            if let Some(segment) = live.get_mut(before.place.segment as usize) {
                segment.change(Some(before), Some(after).filter(|after| after.live > 0));
            }
        });
        for (client, number) in flying.group.clients {
            if client != ClientId::LOG {
                self.notify(LogEvent::Durable { client, number });
            }
        }
        for (inode, version, size) in flying.drainable {
            self.notify(LogEvent::Drainable { inode, version, size });
        }
    }

    /// Retires a segment that the disk failed in.
    fn fail(&mut self, segment: u32, fault: Fault) {
        if self.trouble.is_none() {
            self.trouble = Some(Trouble { segment, fault });
            self.disk.drop_groups();
        }
    }

    /// Writes everything again that is not durable, once the disk has let go of its memory.
    fn rewrite_if_possible(&mut self) {
        let Some(Trouble { segment, fault }) = self.trouble else { return };
        if self.disk.has_groups() {
            return;
        }
        self.trouble = None;
        self.syncing = None;
        self.failures += 1;
        self.state.retired.insert(segment);
        self.drop_checkpoint();
        if self.failures > 1 {
            return self.stop(fault);
        }
        self.notify(LogEvent::Notice(LogError::Retired { segment, fault }));
        self.end = LogEnd { next: None, ..self.durable_end };
        for index in 0..self.in_flight.len() {
            if !self.has_place(self.in_flight[index].group.front.blocks()) {
                return self.stop(fault);
            }
            self.write_group(index);
        }
        self.record_retired(segment);
    }

    fn record_retired(&mut self, segment: u32) {
        let record = LogRecord {
            client: ClientId::LOG,
            number: 0,
            class: Class::Control,
            time: self.record_time(),
            change: LogChange::Retired(segment),
        };
        // Where it does not fit it is not recorded: the disk will fail there again.
        if self.open.front.fits(&record, self.config.bodies_max.0)
            && self.has_space(&record, SpaceNeed::Frees)
        {
            // The tree does not refuse what is none of its changes.
            let _ = self.push(&record, Span::EMPTY);
        }
        self.close_if_due();
    }

    fn stop(&mut self, fault: Fault) {
        let why = LogError::Stopped(fault);
        // What is not durable now never is, whatever the disk says of it later.
        self.in_flight.clear();
        self.open = OpenGroup::default();
        self.phase = LogPhase::Stopped(why);
        self.notify(LogEvent::Stopped(why));
    }
}
