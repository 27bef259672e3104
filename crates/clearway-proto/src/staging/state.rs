//! What a log has come to after some group: the tree, where bodies lie, how far each client is.
//!
//! # Invariants
//! I1. The state after a group is a function of the groups up to it.
//! I2. A body is known as long as a file has a byte of it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use super::record::{LogChange, LogRecord, RecordBody};
use super::recovery::DamagedFile;
use super::tree::{BodyId, ByteSource, DroppedBytes, InodeKind, Tree, TreeChange, TreeError};
use super::{BLOCK, ClientId, InodeId, LogPlace, WallNs, blocks};

/// Where a body lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPlace {
    /// Its first block.
    pub place: LogPlace,
    /// The bytes: a reader checks the digest of them all before it believes any of them.
    pub record: RecordBody,
    /// Bytes of it that files have.
    pub live: u32,
    /// Whether recovery found its bytes damaged.
    pub condition: BodyCondition,
}

/// What is known of the bytes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyCondition {
    /// Nothing bad.
    Sound,
    /// They are not those that were written; nobody is given them.
    Damaged,
}

/// The state of a log after a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    pub(super) tree: Tree,
    pub(super) bodies: BTreeMap<BodyId, BodyPlace>,
    /// Bodies that are not durable and have bytes of another one: that one, and its bytes before them.
    pub(super) moving: BTreeMap<BodyId, (BodyId, u32)>,
    /// The highest number of each client's calls.
    pub(super) clients: BTreeMap<ClientId, u64>,
    /// Segments that are not written to any more.
    pub(super) retired: BTreeSet<u32>,
    /// The latest time of a record.
    pub(super) time: WallNs,
}

impl LogState {
    /// Creates the state before the first group.
    pub(super) fn new(inodes_max: u32) -> Self {
        Self {
            tree: Tree::new(inodes_max),
            bodies: BTreeMap::new(),
            moving: BTreeMap::new(),
            clients: BTreeMap::new(),
            retired: BTreeSet::new(),
            time: WallNs(0),
        }
    }

    /// Returns the tree.
    pub const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the body on disk with the bytes of `body` behind the first `skip`, and how many of its
    /// bytes are before them. A body that is moved is read at its old place until the new one is
    /// durable.
    pub fn readable(&self, body: BodyId, skip: u32) -> (BodyId, u32) {
        let moved = self.moving.get(&body);
        moved.map_or((body, skip), |(from, before)| (*from, before.saturating_add(skip)))
    }

    /// Returns where a body lies; `None` when it is not written yet or no file needs it.
    pub fn body(&self, body: BodyId) -> Option<&BodyPlace> {
        self.bodies.get(&body)
    }

    /// Returns the highest number of the calls of `client`: where it continues after a crash.
    pub fn highest(&self, client: ClientId) -> u64 {
        self.clients.get(&client).copied().unwrap_or(0)
    }

    /// Returns the files that have bytes of damaged bodies.
    pub fn damaged_files(&self) -> impl Iterator<Item = InodeId> {
        let is_damaged = |body: &BodyId| {
            self.bodies.get(body).is_some_and(|body| body.condition == BodyCondition::Damaged)
        };
        self.tree.inodes().filter_map(move |(id, inode)| match &inode.kind {
            InodeKind::File(content) => {
                let sources = content.sources(0, content.size());
                let mut bodies = sources.iter().filter_map(|(_, source)| match source {
                    ByteSource::Log { body, .. } => Some(body),
                    _ => None,
                });
                bodies.any(is_damaged).then_some(id)
            }
            _ => None,
        })
    }

    /// Returns the same files with their paths.
    pub(super) fn damaged_list(&self) -> Vec<DamagedFile> {
        let files = self.damaged_files();
        files.map(|inode| DamagedFile { inode, path: self.tree.path(inode) }).collect()
    }

    /// Makes the change of a record; `body` is the name of its body if it has one.
    ///
    /// # Errors
    /// Why the tree refuses it; nothing has changed.
    pub(super) fn apply(
        &mut self,
        record: &LogRecord,
        body: BodyId,
        dropped: &mut Vec<DroppedBytes>,
    ) -> Result<(), TreeError> {
        match &record.change {
            LogChange::Tree(change) => self.tree.apply(change, body, record.time, dropped)?,
            LogChange::Retired(segment) => drop(self.retired.insert(*segment)),
        }
        let highest = self.clients.entry(record.client).or_insert(0);
        *highest = record.number.max(*highest);
        self.time = record.time.max(self.time);
        Ok(())
    }

    /// Lets go of bytes of bodies; `change` gets each of these bodies as it was before and as it is
    /// then. Bodies without any are forgotten.
    pub(super) fn release(
        &mut self,
        dropped: &[DroppedBytes],
        change: &mut dyn FnMut(&BodyPlace, &BodyPlace),
    ) {
        for DroppedBytes { body, bytes } in dropped {
            if let Some(known) = self.bodies.get_mut(body) {
                let before = *known;
                known.live = known.live.saturating_sub(*bytes);
                change(&before, known);
                if known.live == 0 {
                    self.bodies.remove(body);
                }
            }
        }
    }

    /// Returns the runs of blocks of a body that its file has bytes of.
    pub(super) fn live_runs(&self, body: BodyId, record: &RecordBody) -> Vec<Range<u32>> {
        let Some(content) = self.tree.content(record.inode) else { return Vec::new() };
        let block = BLOCK as u32;
        let mut runs: Vec<Range<u32>> = Vec::new();
        for (bytes, source) in content.sources(record.offset, u64::from(record.length)) {
            let ByteSource::Log { body: of, skip } = source else { continue };
            if of != body {
                continue;
            }
            let start = skip / block * block;
            let end = (blocks(u64::from(skip) + bytes) * block).min(record.length);
            match runs.last_mut() {
                Some(last) if last.end >= start => last.end = end,
                _ => runs.push(start..end),
            }
        }
        runs
    }
}

/// Returns the file whose bytes a change writes or cuts.
pub(super) const fn changed_file(change: &LogChange) -> Option<InodeId> {
    match change {
        LogChange::Tree(TreeChange::Write { inode, .. } | TreeChange::Truncate { inode, .. }) => {
            Some(*inode)
        }
        _ => None,
    }
}
