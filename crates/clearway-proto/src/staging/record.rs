//! The records of the log: how a change of the tree is written in 64 bytes and its names, and read
//! again.
//!
//! # Model
//! All numbers are little-endian. Names and other short bytes of a record, its *inline* bytes, lie
//! behind the heads of its group, in the order of the records; the bytes of a `WRITE` and a `RELOCATE`
//! are a body of the group.
//! ```text
//!   0   kind (u8)
//!   1   class (u8), by its index
//!   2   inline bytes (u16)
//!   4   zero (u32)
//!   8   inode (u64)
//!  16   a (u64)
//!  24   b (u64)
//!  32   c (u64)
//!  40   client (u64)
//!  48   number of the call of this client (u64)
//!  56   time in nanoseconds since 1970 (u64)
//!
//!   kind           a            b                           c             inline
//!    1 WRITE       offset       length                      XXH3 of the body
//!    2 CREATE      parent       mode | node << 32           uid | gid<<32 name, target of a link
//!    3 LINK        parent       0                           0             name
//!    4 UNLINK      parent       0                           0             name
//!    5 RMDIR       parent       0                           0             name
//!    6 RENAME      from parent  bytes of the first name     to parent     both names
//!    7 ATTRIBUTES  mtime        mode | set << 32            uid | gid<<32 atime (u64), if set
//!    8 SET XATTR   0            bytes of the name           0             name, value
//!    9 UNSET XATTR 0            0                           0             name
//!   10 TRUNCATE    size         0                           0
//!   11 FORGET      0            0                           0
//!   12 DRAINED     version      size                        0
//!   13 RETIRED     segment      0                           0
//!   14 STORED      directory    0                           0             name
//!   15 MOVING      directory    0                           0             name
//!   16 SETTLED     group        0                           0
//!   17 DROPPED     0            0                           0
//!   18 HOLD        set          0                           0
//!   19 PUBLISHED   set          0                           0
//!   20 RELEASE     set          0                           0
//!   21 RELOCATE    offset       length | skip << 32         XXH3 of the body group (u64), index (u16)
//! ```
//! `group` and `index` of a `RELOCATE` name the body that has had the bytes, `skip` the bytes of it
//! before them.
//! `node` of a `CREATE` is 1 for a file, 2 for a directory, 3 | bytes of the name << 8 for a symbolic
//! link, and 4 | bytes of the name << 8 | kind << 16 for a pipe (kind 0), a socket (1), a block device
//! (2) or a character device (3); the number of the device (u32) stands behind such a name. The inode
//! of `STORED` is 0 where nothing is. `set` of `ATTRIBUTES` has bit 0 for the mode, 1 for the owner, 2
//! for mtime, 3 for atime.
//!
//! # Invariants
//! I1. Any bytes are a record or none, and what was read is written again as the same bytes.

use alloc::vec::Vec;

use super::tree::{
    AttributeSet, BodyId, EntryName, NodeKind, SpecialKind, SpecialNode, TreeChange, TreePlace,
};
use super::{BODY_MAX, ClientId, GroupNumber, InodeId, WallNs};
use crate::base::{ByteReader, Class};

/// Bytes of the head of a record.
pub(super) const HEAD: usize = 64;

/// One change of the log, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The client that asked for it.
    pub client: ClientId,
    /// The number of the client's call.
    pub number: u64,
    /// The class of the traffic that brought it.
    pub class: Class,
    /// The time that the change leaves in the tree.
    pub time: WallNs,
    /// The change.
    pub change: LogChange,
}

/// The bytes of a file that a record brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordBody {
    /// The file.
    pub inode: InodeId,
    /// The place of the first of them in the file.
    pub offset: u64,
    /// How many.
    pub length: u32,
    /// Their XXH3.
    pub digest: u64,
}

/// What a record changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogChange {
    /// The tree.
    Tree(TreeChange),
    /// The log itself: a segment is not written to any more.
    Retired(u32),
}

const SET_MODE: u64 = 1;
const SET_OWNER: u64 = 2;
const SET_MTIME: u64 = 4;
const SET_ATIME: u64 = 8;

/// Fields of a head that depend on the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fields {
    kind: u8,
    inode: u64,
    a: u64,
    b: u64,
    c: u64,
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl LogRecord {
    /// Adds the head to `heads` and the inline bytes to `inline`.
    pub(super) fn encode(&self, heads: &mut Vec<u8>, inline: &mut Vec<u8>) {
        let before = inline.len();
        let Fields { kind, inode, a, b, c } = match &self.change {
            LogChange::Tree(change) => fields_of(change, inline),
            LogChange::Retired(segment) => {
                Fields { kind: 13, a: u64::from(*segment), ..Fields::default() }
            }
        };
        heads.extend([kind, self.class.index() as u8]);
        heads.extend(((inline.len() - before) as u16).to_le_bytes());
        heads.extend([0; 4]);
        for word in [inode, a, b, c, self.client.0, self.number, self.time.0] {
            heads.extend(word.to_le_bytes());
        }
    }

    /// Takes a head from `heads` and its inline bytes from `inline`.
    pub(super) fn decode(heads: &mut ByteReader<'_>, inline: &mut ByteReader<'_>) -> Option<Self> {
        let (kind, class, length) = (heads.u8()?, heads.u8()?, heads.u16()?);
        if heads.u32()? != 0 {
            return None;
        }
        let (inode, a, b, c) = (heads.u64()?, heads.u64()?, heads.u64()?, heads.u64()?);
        let (client, number) = (ClientId(heads.u64()?), heads.u64()?);
        let time = WallNs(heads.u64()?);
        let class = *Class::ALL.get(usize::from(class))?;
        let mut bytes = ByteReader::new(inline.run(usize::from(length))?);
        let fields = Fields { kind, inode, a, b, c };
        let change = match kind {
            13 => LogChange::Retired(u32::try_from(a).ok()?),
            _ => LogChange::Tree(change_of(fields, &mut bytes)?),
        };
        let record = Self { client, number, class, time, change };
        // Fields that a kind does not have are zero, so one change has one form.
        (bytes.is_empty() && record.has_form(fields)).then_some(record)
    }

    fn has_form(&self, fields: Fields) -> bool {
        let expected = match &self.change {
            LogChange::Tree(change) => fields_of(change, &mut Vec::new()),
            LogChange::Retired(segment) => {
                Fields { kind: 13, a: u64::from(*segment), ..Fields::default() }
            }
        };
        expected == fields
    }

    /// Returns its body, if it has one.
    pub fn body(&self) -> Option<RecordBody> {
        match self.change {
            LogChange::Tree(
                TreeChange::Write { inode, offset, length, digest }
                | TreeChange::Relocate { inode, offset, length, digest, .. },
            ) => Some(RecordBody { inode, offset, length, digest }),
            _ => None,
        }
    }
}

/// Returns the word of what a new entry is, and adds to `inline` what stands behind its name.
fn node_word(node: &NodeKind, name: u32, inline: &mut Vec<u8>) -> u32 {
    match node {
        NodeKind::File => 1,
        NodeKind::Directory => 2,
        NodeKind::Symlink(target) => {
            inline.extend(target);
            3 | name << 8
        }
        NodeKind::Special(SpecialNode { kind, device }) => {
            inline.extend(device.to_le_bytes());
            4 | name << 8 | (*kind as u32) << 16
        }
    }
}

fn fields_of(change: &TreeChange, inline: &mut Vec<u8>) -> Fields {
    let none = Fields::default();
    match change {
        TreeChange::Write { inode, offset, length, digest } => {
            Fields { kind: 1, inode: inode.0, a: *offset, b: u64::from(*length), c: *digest }
        }
        TreeChange::Relocate { inode, offset, length, body, skip, digest } => {
            inline.extend(body.group.0.to_le_bytes());
            inline.extend(body.index.to_le_bytes());
            Fields { kind: 21, inode: inode.0, a: *offset, b: pair(*length, *skip), c: *digest }
        }
        TreeChange::Create { inode, parent, name, node, mode, uid, gid } => {
            inline.extend(name.bytes());
            let node = node_word(node, name.bytes().len() as u32, inline);
            let (b, c) = (pair(*mode, node), pair(*uid, *gid));
            Fields { kind: 2, inode: inode.0, a: parent.0, b, c }
        }
        TreeChange::Link { inode, parent, name } => {
            inline.extend(name.bytes());
            Fields { kind: 3, inode: inode.0, a: parent.0, ..none }
        }
        TreeChange::Unlink { parent, name } => {
            inline.extend(name.bytes());
            Fields { kind: 4, a: parent.0, ..none }
        }
        TreeChange::RemoveDirectory { parent, name } => {
            inline.extend(name.bytes());
            Fields { kind: 5, a: parent.0, ..none }
        }
        TreeChange::Rename { from, name, to, new_name } => {
            inline.extend(name.bytes());
            inline.extend(new_name.bytes());
            Fields { kind: 6, a: from.0, b: name.bytes().len() as u64, c: to.0, ..none }
        }
        TreeChange::Attributes { inode, set } => {
            let bits = set.mode.map_or(0, |_| SET_MODE)
                | set.owner.map_or(0, |_| SET_OWNER)
                | set.mtime.map_or(0, |_| SET_MTIME)
                | set.atime.map_or(0, |_| SET_ATIME);
            inline.extend(set.atime.iter().flat_map(|time| time.0.to_le_bytes()));
            let b = u64::from(set.mode.unwrap_or(0)) | bits << 32;
            let c = set.owner.map_or(0, |(uid, gid)| pair(uid, gid));
            Fields { kind: 7, inode: inode.0, a: set.mtime.map_or(0, |time| time.0), b, c }
        }
        TreeChange::SetXattr { inode, name, value } => {
            inline.extend(name.bytes());
            inline.extend(value);
            Fields { kind: 8, inode: inode.0, b: name.bytes().len() as u64, ..none }
        }
        TreeChange::UnsetXattr { inode, name } => {
            inline.extend(name.bytes());
            Fields { kind: 9, inode: inode.0, ..none }
        }
        TreeChange::Truncate { inode, size } => {
            Fields { kind: 10, inode: inode.0, a: *size, ..none }
        }
        TreeChange::Forget { inode } => Fields { kind: 11, inode: inode.0, ..none },
        other => store_fields_of(other, inline),
    }
}

/// Returns the fields of what is about the backing store.
fn store_fields_of(change: &TreeChange, inline: &mut Vec<u8>) -> Fields {
    let none = Fields::default();
    match change {
        TreeChange::Drained { inode, version, size } => {
            Fields { kind: 12, inode: inode.0, a: *version, b: *size, ..none }
        }
        TreeChange::Stored { place, inode } => {
            inline.extend(place.name.bytes());
            let inode = inode.map_or(0, |inode| inode.0);
            Fields { kind: 14, inode, a: place.directory.0, ..none }
        }
        TreeChange::Moving { inode, to } => {
            inline.extend(to.name.bytes());
            Fields { kind: 15, inode: inode.0, a: to.directory.0, ..none }
        }
        TreeChange::Settled { inode, group } => {
            Fields { kind: 16, inode: inode.0, a: group.0, ..none }
        }
        TreeChange::Dropped { inode } => Fields { kind: 17, inode: inode.0, ..none },
        TreeChange::Hold { inode, set } => Fields { kind: 18, inode: inode.0, a: *set, ..none },
        TreeChange::Published { set } => Fields { kind: 19, a: *set, ..none },
        TreeChange::Release { set } => Fields { kind: 20, a: *set, ..none },
        // All others have fields of their own.
        _ => none,
    }
}

fn change_of(fields: Fields, inline: &mut ByteReader<'_>) -> Option<TreeChange> {
    let Fields { kind, inode, a, b, c } = fields;
    let inode = InodeId(inode);
    let mut name = |length: Option<usize>| {
        let length = length.unwrap_or(inline.remaining().len());
        EntryName::new(inline.run(length)?).ok()
    };
    Some(match kind {
        1 => {
            let length = u32::try_from(b).ok().filter(|length| (1..=BODY_MAX).contains(length))?;
            TreeChange::Write { inode, offset: a, length, digest: c }
        }
        2 => {
            let ((mode, node), (uid, gid)) = (halves(b), halves(c));
            let (name, node) = match node & 0xff {
                1 if node == 1 => (name(None)?, NodeKind::File),
                2 if node == 2 => (name(None)?, NodeKind::Directory),
                3 => {
                    let name = name(Some(node as usize >> 8))?;
                    let target = inline.run(inline.remaining().len())?;
                    (name, NodeKind::Symlink(target.into()))
                }
                4 => {
                    let name = name(Some((node >> 8 & 0xff) as usize))?;
                    let kind = *SpecialKind::ALL.get((node >> 16) as usize)?;
                    (name, NodeKind::Special(SpecialNode { kind, device: inline.u32()? }))
                }
                _ => return None,
            };
            TreeChange::Create { inode, parent: InodeId(a), name, node, mode, uid, gid }
        }
        3 => TreeChange::Link { inode, parent: InodeId(a), name: name(None)? },
        4 => TreeChange::Unlink { parent: InodeId(a), name: name(None)? },
        5 => TreeChange::RemoveDirectory { parent: InodeId(a), name: name(None)? },
        6 => {
            let first = name(Some(usize::try_from(b).ok()?))?;
            let new_name = name(None)?;
            TreeChange::Rename { from: InodeId(a), name: first, to: InodeId(c), new_name }
        }
        7 => {
            let (mode, bits) = halves(b);
            let has = |bit| u64::from(bits) & bit != 0;
            let set = AttributeSet {
                mode: has(SET_MODE).then_some(mode),
                owner: has(SET_OWNER).then_some(halves(c)),
                mtime: has(SET_MTIME).then_some(WallNs(a)),
                atime: if has(SET_ATIME) { Some(WallNs(inline.u64()?)) } else { None },
            };
            TreeChange::Attributes { inode, set }
        }
        8 => {
            let name = name(Some(usize::try_from(b).ok()?))?;
            let value = inline.run(inline.remaining().len())?.into();
            TreeChange::SetXattr { inode, name, value }
        }
        9 => TreeChange::UnsetXattr { inode, name: name(None)? },
        10 => TreeChange::Truncate { inode, size: a },
        11 => TreeChange::Forget { inode },
        21 => relocation_of(fields, inline)?,
        _ => store_change_of(fields, inline)?,
    })
}

/// Returns the move of bytes to another place.
fn relocation_of(fields: Fields, inline: &mut ByteReader<'_>) -> Option<TreeChange> {
    let Fields { inode, a: offset, b, c: digest, .. } = fields;
    let (length, skip) = halves(b);
    let body = BodyId { group: GroupNumber(inline.u64()?), index: inline.u16()? };
    let is_good = (1..=BODY_MAX).contains(&length) && skip <= BODY_MAX - length;
    let inode = InodeId(inode);
    is_good.then_some(TreeChange::Relocate { inode, offset, length, body, skip, digest })
}

/// Returns what is about the backing store.
fn store_change_of(fields: Fields, inline: &mut ByteReader<'_>) -> Option<TreeChange> {
    let Fields { kind, inode, a, b, .. } = fields;
    let inode = InodeId(inode);
    let mut place = || {
        let name = EntryName::new(inline.run(inline.remaining().len())?).ok()?;
        Some(TreePlace { directory: InodeId(a), name })
    };
    Some(match kind {
        12 => TreeChange::Drained { inode, version: a, size: b },
        14 => {
            let place = place()?;
            TreeChange::Stored { place, inode: (inode.0 > 0).then_some(inode) }
        }
        15 => TreeChange::Moving { inode, to: place()? },
        16 => TreeChange::Settled { inode, group: GroupNumber(a) },
        17 => TreeChange::Dropped { inode },
        18 => TreeChange::Hold { inode, set: a },
        19 => TreeChange::Published { set: a },
        20 => TreeChange::Release { set: a },
        _ => return None,
    })
}
