//! Snapshots: the state after a group, as bytes.
//!
//! # Model
//! ```text
//!   0   magic "CLWYSNP\0"
//!   8   uuid of the log (16 bytes)
//!  24   number of the last group that it covers (u64)
//!  32   epoch of that group (u64)
//!  40   use of its segment (u64)
//!  48   digest of its header (u32)
//!  52   segment and block behind it (2 x u32); both 0xffff_ffff when the segment is full or none is
//!  60   CRC-32C of the state (u32)
//!  64   bytes of the state (u64), which begins at the next block
//!  72   CRC-32C of the bytes before (u32), then zeros to the end of the block
//! ```
//! The state is a list of inodes, of bodies, of clients, of retired segments, and of what the backing
//! store lacks (places, attributes, members of sets), each behind its
//! length; names and values behind theirs. How many bytes of a body files have is counted again
//! from the extents.
//!
//! # Invariants
//! I1. Any bytes are a snapshot or none; memory is bounded by their length.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::group::LogPlace;
use super::record::RecordBody;
use super::state::{BodyCondition, BodyPlace, LogState};
use super::tree::{
    BodyId, EntryName, Extent, FileContent, Inode, InodeKind, MovingDirectory, NameLag, OwnerUsage,
    SetMember, SpecialKind, SpecialNode, StoreLag, Tree, TreePlace,
};
use super::{BLOCK, BODY_MAX, ClientId, Epoch, GroupNumber, InodeId, LogId, WallNs};
use crate::base::{ByteReader, crc32c};

const MAGIC: [u8; 8] = *b"CLWYSNP\0";
const COVERED: usize = 72;
/// The number of a segment or block that is none.
const NONE: u32 = u32::MAX;
/// Versions of files beyond this are not believed: nobody changes a file that often.
const VERSION_MAX: u64 = u64::MAX >> 1;

/// Where a log ends: behind its last group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogEnd {
    /// The last group; 0 before the first.
    pub(super) group: GroupNumber,
    pub(super) epoch: Epoch,
    /// The digest of its header.
    pub(super) digest: u32,
    /// The use of its segment.
    pub(super) segment_use: u64,
    /// The place behind it; none where a segment has to be begun.
    pub(super) next: Option<LogPlace>,
}

impl LogEnd {
    /// The end of a log without groups.
    pub(super) const EMPTY: Self =
        Self { group: GroupNumber(0), epoch: Epoch(0), digest: 0, segment_use: 0, next: None };
}

/// What a snapshot says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    pub(super) log: LogId,
    pub(super) end: LogEnd,
    /// Bytes of the state.
    pub(super) length: u64,
    /// The digest of the state.
    pub(super) digest: u32,
}

impl SnapshotHeader {
    /// Returns the block that a snapshot begins with.
    pub(super) fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..8].copy_from_slice(&MAGIC);
        block[8..24].copy_from_slice(&self.log.0.to_le_bytes());
        let words = [self.end.group.0, self.end.epoch.0, self.end.segment_use];
        for (field, word) in block[24..48].chunks_exact_mut(8).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        let next = self.end.next.unwrap_or(LogPlace { segment: NONE, block: NONE });
        let words = [self.end.digest, next.segment, next.block, self.digest];
        for (field, word) in block[48..64].chunks_exact_mut(4).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        block[64..COVERED].copy_from_slice(&self.length.to_le_bytes());
        let digest = crc32c(&block[..COVERED]);
        block[COVERED..COVERED + 4].copy_from_slice(&digest.to_le_bytes());
        block
    }

    /// Reads the header at the beginning of `block`; `None` when there is none that is whole.
    pub(super) fn parse(block: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(block);
        let magic = rest.take()?;
        let log = LogId(rest.u128()?);
        let (group, epoch) = (GroupNumber(rest.u64()?), Epoch(rest.u64()?));
        let (segment_use, header_digest) = (rest.u64()?, rest.u32()?);
        let next = LogPlace { segment: rest.u32()?, block: rest.u32()? };
        let (digest, length) = (rest.u32()?, rest.u64()?);
        let is_whole = magic == MAGIC && rest.u32()? == crc32c(block.get(..COVERED)?);
        let next = (next.segment != NONE).then_some(next);
        let end = LogEnd { group, epoch, digest: header_digest, segment_use, next };
        is_whole.then_some(Self { log, end, length, digest })
    }
}

/// Reads the state of a snapshot, with room for `inodes_max` inodes; `None` when the bytes are none.
/// One that has the bytes has compared their digest.
pub fn parse_snapshot(bytes: &[u8], inodes_max: u32) -> Option<LogState> {
    let mut rest = ByteReader::new(bytes);
    let state = read_state(&mut rest, inodes_max)?;
    rest.is_empty().then_some(state)
}

fn put_run(bytes: &mut Vec<u8>, run: &[u8]) {
    bytes.extend((run.len() as u32).to_le_bytes());
    bytes.extend(run);
}

fn put_words(bytes: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
}

impl LogState {
    /// Returns the bytes of a snapshot of this state.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_words(
            &mut bytes,
            &[self.time.0, self.tree.next_inode.0, self.tree.inodes.len() as u64],
        );
        for (id, inode) in &self.tree.inodes {
            put_inode(&mut bytes, *id, inode);
        }
        put_words(&mut bytes, &[self.bodies.len() as u64]);
        for (id, body) in &self.bodies {
            put_words(&mut bytes, &[id.group.0]);
            bytes.extend(id.index.to_le_bytes());
            for word in [body.place.segment, body.place.block, body.record.length] {
                bytes.extend(word.to_le_bytes());
            }
            put_words(&mut bytes, &[body.record.digest]);
            bytes.push(u8::from(body.condition == BodyCondition::Damaged));
        }
        put_words(&mut bytes, &[self.clients.len() as u64]);
        for (client, number) in &self.clients {
            put_words(&mut bytes, &[client.0, *number]);
        }
        put_words(&mut bytes, &[self.retired.len() as u64]);
        for segment in &self.retired {
            bytes.extend(segment.to_le_bytes());
        }
        put_lag(&mut bytes, &self.tree.lag);
        bytes
    }
}

fn put_lag(bytes: &mut Vec<u8>, lag: &StoreLag) {
    let StoreLag { names, nodes, members, dead, moving, .. } = lag;
    put_words(bytes, &[names.len() as u64]);
    for (place, name) in names {
        put_place(bytes, place);
        put_words(bytes, &[name.stored.map_or(0, |inode| inode.0), name.changed.0]);
    }
    put_words(bytes, &[nodes.len() as u64]);
    for (inode, group) in nodes {
        put_words(bytes, &[inode.0, group.0]);
    }
    put_words(bytes, &[members.len() as u64]);
    for (inode, member) in members {
        let published = member.published.unwrap_or_default();
        put_words(bytes, &[inode.0, member.set, published.0]);
    }
    put_words(bytes, &[dead.len() as u64]);
    for (inode, group) in dead {
        put_words(bytes, &[inode.0, group.0]);
    }
    bytes.push(u8::from(moving.is_some()));
    if let Some(MovingDirectory { inode, to, group }) = moving {
        put_place(bytes, to);
        put_words(bytes, &[inode.0, group.0]);
    }
}

fn put_place(bytes: &mut Vec<u8>, place: &TreePlace) {
    put_words(bytes, &[place.directory.0]);
    put_run(bytes, place.name.bytes());
}

fn put_inode(bytes: &mut Vec<u8>, id: InodeId, inode: &Inode) {
    put_words(bytes, &[id.0, inode.atime.0, inode.mtime.0, inode.ctime.0]);
    for word in [inode.mode, inode.uid, inode.gid, inode.links, inode.xattrs.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    for (name, value) in &inode.xattrs {
        put_run(bytes, name.bytes());
        put_run(bytes, value);
    }
    bytes.push(u8::from(inode.has_object));
    match &inode.kind {
        InodeKind::File(content) => {
            bytes.push(1);
            let FileContent { size, version, shortened, backed, drained, extents, logged: _ } =
                content;
            put_words(bytes, &[*size, *version, *shortened, *backed]);
            put_words(bytes, &[*drained, extents.len() as u64]);
            for (start, extent) in extents {
                put_words(bytes, &[*start, extent.end, extent.version, extent.body.group.0]);
                bytes.extend(extent.body.index.to_le_bytes());
                bytes.extend(extent.skip.to_le_bytes());
            }
        }
        InodeKind::Directory { parent, entries } => {
            bytes.push(2);
            put_words(bytes, &[parent.0, entries.len() as u64]);
            for (name, entry) in entries {
                put_run(bytes, name.bytes());
                put_words(bytes, &[entry.0]);
            }
        }
        InodeKind::Symlink(target) => {
            bytes.push(3);
            put_run(bytes, target);
        }
        InodeKind::Special(SpecialNode { kind, device }) => {
            bytes.extend([4, *kind as u8]);
            bytes.extend(device.to_le_bytes());
        }
    }
}

fn run<'a>(rest: &mut ByteReader<'a>) -> Option<&'a [u8]> {
    let length = rest.u32()? as usize;
    rest.run(length)
}

fn read_state(rest: &mut ByteReader<'_>, inodes_max: u32) -> Option<LogState> {
    let time = WallNs(rest.u64()?);
    let next_inode = InodeId(rest.u64()?);
    let mut inodes = BTreeMap::new();
    for _ in 0..rest.u64()? {
        let (id, inode) = read_inode(rest)?;
        inodes.insert(id, inode);
    }
    let mut bodies = BTreeMap::new();
    for _ in 0..rest.u64()? {
        let id = BodyId { group: GroupNumber(rest.u64()?), index: rest.u16()? };
        let place = LogPlace { segment: rest.u32()?, block: rest.u32()? };
        let (length, digest) = (rest.u32()?, rest.u64()?);
        if !(1..=BODY_MAX).contains(&length) {
            return None;
        }
        let condition = match rest.u8()? {
            0 => BodyCondition::Sound,
            1 => BodyCondition::Damaged,
            _ => return None,
        };
        // Its file, and the place in that, are those of its extents.
        let record = RecordBody { inode: InodeId(0), offset: 0, length, digest };
        bodies.insert(id, BodyPlace { place, record, live: 0, condition });
    }
    let mut clients = BTreeMap::new();
    for _ in 0..rest.u64()? {
        clients.insert(ClientId(rest.u64()?), rest.u64()?);
    }
    let mut retired = BTreeSet::new();
    for _ in 0..rest.u64()? {
        retired.insert(rest.u32()?);
    }
    let highest = inodes.last_key_value().map_or(0, |(id, _): (&InodeId, _)| id.0);
    let places = places_of(&inodes);
    let lag = read_lag(rest)?;
    let usage = OwnerUsage::of_bytes(&inodes);
    let inode_usage = OwnerUsage::of_inodes(&inodes);
    let tree = Tree { inodes, next_inode, inodes_max, places, lag, usage, inode_usage };
    let moving = BTreeMap::new();
    let mut state = LogState { tree, bodies, moving, clients, retired, time };
    (highest < next_inode.0 && count_live(&mut state)).then_some(state)
}

/// Returns the places of all inodes.
fn places_of(inodes: &BTreeMap<InodeId, Inode>) -> BTreeMap<InodeId, BTreeSet<TreePlace>> {
    let mut places: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (directory, inode) in inodes {
        let InodeKind::Directory { entries, .. } = &inode.kind else { continue };
        for (name, entry) in entries {
            let place = TreePlace { directory: *directory, name: name.clone() };
            places.entry(*entry).or_default().insert(place);
        }
    }
    places
}

fn read_flag(rest: &mut ByteReader<'_>) -> Option<bool> {
    match rest.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn read_place(rest: &mut ByteReader<'_>) -> Option<TreePlace> {
    let directory = InodeId(rest.u64()?);
    Some(TreePlace { directory, name: EntryName::new(run(rest)?).ok()? })
}

fn read_lag(rest: &mut ByteReader<'_>) -> Option<StoreLag> {
    let mut lag = StoreLag::default();
    for _ in 0..rest.u64()? {
        let place = read_place(rest)?;
        let (stored, changed) = (rest.u64()?, GroupNumber(rest.u64()?));
        let stored = (stored > 0).then_some(InodeId(stored));
        lag.insert(place, NameLag { stored, changed });
    }
    for _ in 0..rest.u64()? {
        lag.nodes.insert(InodeId(rest.u64()?), GroupNumber(rest.u64()?));
    }
    for _ in 0..rest.u64()? {
        let (inode, set) = (InodeId(rest.u64()?), rest.u64()?);
        let published = Some(GroupNumber(rest.u64()?)).filter(|group| group.0 > 0);
        lag.members.insert(inode, SetMember { set, published });
    }
    for _ in 0..rest.u64()? {
        lag.dead.insert(InodeId(rest.u64()?), GroupNumber(rest.u64()?));
    }
    if read_flag(rest)? {
        let to = read_place(rest)?;
        let (inode, group) = (InodeId(rest.u64()?), GroupNumber(rest.u64()?));
        lag.moving = Some(MovingDirectory { inode, to, group });
    }
    Some(lag)
}

/// Finds the files of bodies, and counts the bytes that they have; `false` when files have what is
/// not there.
fn count_live(state: &mut LogState) -> bool {
    for (id, inode) in &state.tree.inodes {
        let InodeKind::File(content) = &inode.kind else { continue };
        for (start, extent) in &content.extents {
            let bytes = extent.end - start;
            let Some(body) = state.bodies.get_mut(&extent.body) else { return false };
            if u64::from(extent.skip) + bytes > u64::from(body.record.length) {
                return false;
            }
            body.live = body.live.saturating_add(bytes as u32);
            body.record.inode = *id;
            body.record.offset = start.saturating_sub(u64::from(extent.skip));
        }
    }
    state.bodies.retain(|_, body| body.live > 0);
    true
}

fn read_inode(rest: &mut ByteReader<'_>) -> Option<(InodeId, Inode)> {
    let id = InodeId(rest.u64()?);
    let atime = WallNs(rest.u64()?);
    let (mtime, ctime) = (WallNs(rest.u64()?), WallNs(rest.u64()?));
    let (mode, uid, gid, links) = (rest.u32()?, rest.u32()?, rest.u32()?, rest.u32()?);
    let mut xattrs: BTreeMap<EntryName, Box<[u8]>> = BTreeMap::new();
    for _ in 0..rest.u32()? {
        xattrs.insert(EntryName::new(run(rest)?).ok()?, run(rest)?.into());
    }
    let has_object = read_flag(rest)?;
    let kind = match rest.u8()? {
        1 => InodeKind::File(read_content(rest)?),
        2 => {
            let parent = InodeId(rest.u64()?);
            let mut entries = BTreeMap::new();
            for _ in 0..rest.u64()? {
                entries.insert(EntryName::new(run(rest)?).ok()?, InodeId(rest.u64()?));
            }
            InodeKind::Directory { parent, entries }
        }
        3 => InodeKind::Symlink(run(rest)?.into()),
        4 => {
            let kind = *SpecialKind::ALL.get(usize::from(rest.u8()?))?;
            InodeKind::Special(SpecialNode { kind, device: rest.u32()? })
        }
        _ => return None,
    };
    Some((id, Inode { kind, mode, uid, gid, links, atime, mtime, ctime, xattrs, has_object }))
}

fn read_content(rest: &mut ByteReader<'_>) -> Option<FileContent> {
    let (size, version) = (rest.u64()?, rest.u64()?);
    let (shortened, backed) = (rest.u64()?, rest.u64()?);
    let drained = rest.u64()?;
    let mut extents = BTreeMap::new();
    let (mut behind, mut logged) = (0, 0);
    for _ in 0..rest.u64()? {
        let (start, end, made) = (rest.u64()?, rest.u64()?, rest.u64()?);
        let body = BodyId { group: GroupNumber(rest.u64()?), index: rest.u16()? };
        let skip = rest.u32()?;
        let is_placed = start >= behind && start < end && end <= size;
        if !is_placed || end - start > u64::from(BODY_MAX) || made > version {
            return None;
        }
        behind = end;
        logged += end - start;
        extents.insert(start, Extent { end, body, skip, version: made });
    }
    let is_sound =
        version <= VERSION_MAX && shortened <= version && drained <= version && backed <= size;
    let content = FileContent { size, version, shortened, backed, drained, extents, logged };
    is_sound.then_some(content)
}
