//! Encodes steps and their outcomes for the socket between the process of a mount and its child.
//!
//! # Model
//! A frame is its length in four bytes and that many bytes. Numbers are little-endian. A length
//! precedes each part whose length is not fixed.
//! ```text
//!   to the child     places   first frame: directories of store and log, most steps at a time, mark
//!                    task     the number of a step, and the step
//!                    rate     the rate of copies from now on
//!   from the child   part     the number of a step that made progress
//!                    end      the number of a step, and its outcome
//! ```
//!
//! # Invariants
//! I1. Any bytes are a frame or none; what is decoded has at most as many parts as there are bytes.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clearway_proto::base::{BitsPerSec, ByteReader};
use clearway_proto::staging::{
    CopyPiece, EntryName, InodeId, LogId, LogPlace, NodeKind, SpecialKind, SpecialNode, StepEnd,
    StoreAttributes, StoreBase, StorePath, StoreStep, StrangerFate, WallNs,
};

use super::owner::{StoreOwner, StoreSharing};
use clearway_proto::wire::Fault;

/// Bytes of the longest frame to a child: a pass of some millions of pieces.
pub(super) const TASK_MAX: u32 = 1 << 30;
/// Bytes of the longest frame from a child.
pub(super) const NEWS_MAX: u32 = 16;

/// What a child works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChildPlaces {
    pub(super) store: PathBuf,
    pub(super) log: PathBuf,
    pub(super) steps: u32,
    /// The log that the mark of the store names; none where the store has no mark.
    pub(super) owner: Option<StoreOwner>,
    /// The rate of copies; none without a bound.
    pub(super) rate: Option<BitsPerSec>,
}

/// What a child says of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepNews {
    Progress,
    End(StepEnd),
}

const SPECIALS: [SpecialKind; 4] =
    [SpecialKind::Pipe, SpecialKind::Socket, SpecialKind::Block, SpecialKind::Character];

/// Writes fields behind each other.
struct FrameWriter(Vec<u8>);

impl FrameWriter {
    fn new() -> Self {
        Self(vec![0; 4])
    }

    fn u8(&mut self, number: u8) -> &mut Self {
        self.0.push(number);
        self
    }

    fn u32(&mut self, number: u32) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u64(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        self
    }

    fn path(&mut self, path: &StorePath) -> &mut Self {
        self.u8(u8::from(path.base == StoreBase::Objects)).u32(path.names.len() as u32);
        for name in &path.names {
            self.bytes(name.bytes());
        }
        self
    }

    fn attributes(&mut self, attributes: &StoreAttributes) -> &mut Self {
        let StoreAttributes { mode, owner: (user, group), atime, mtime, xattrs } = attributes;
        self.u32(*mode).u32(*user).u32(*group).u64(atime.0).u64(mtime.0);
        self.u32(xattrs.len() as u32);
        for (name, value) in xattrs {
            self.bytes(name.bytes()).bytes(value);
        }
        self
    }

    fn piece(&mut self, piece: &CopyPiece) {
        let CopyPiece { place, length, digest, skip, offset, bytes } = piece;
        self.u32(place.segment).u32(place.block).u32(*length).u64(*digest);
        self.u32(*skip).u64(*offset).u32(*bytes);
    }

    /// Puts the length in front.
    fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() - 4) as u32;
        if let Some(front) = self.0.first_chunk_mut() {
            *front = length.to_le_bytes();
        }
        self.0
    }
}

impl ChildPlaces {
    pub(super) fn to_frame(&self) -> Vec<u8> {
        let mut frame = FrameWriter::new();
        let (store, log) = (self.store.as_os_str().as_bytes(), self.log.as_os_str().as_bytes());
        frame.bytes(store).bytes(log).u32(self.steps);
        let owner = self.owner.map_or(Vec::new(), |owner| owner.log.0.to_le_bytes().to_vec());
        let is_shared = self.owner.is_some_and(|owner| owner.sharing == StoreSharing::Shared);
        frame.bytes(&owner).u32(u32::from(is_shared)).u64(self.rate.map_or(0, |rate| rate.0));
        frame.finish()
    }

    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(frame);
        let mut path = || Some(PathBuf::from(OsStr::from_bytes(run(&mut rest)?)));
        let (store, log) = (path()?, path()?);
        let steps = rest.u32()?;
        let owning = match run(&mut rest)? {
            [] => None,
            bytes => Some(LogId(u128::from_le_bytes(bytes.try_into().ok()?))),
        };
        let sharing = match rest.u32()? {
            0 => StoreSharing::Alone,
            1 => StoreSharing::Shared,
            _ => return None,
        };
        let owner = owning.map(|log| StoreOwner { log, sharing });
        let rate = Some(BitsPerSec(rest.u64()?)).filter(|rate| rate.0 > 0);
        rest.is_empty().then_some(Self { store, log, steps, owner, rate })
    }
}

/// Returns the frame of a step.
pub(super) fn task_frame(number: u64, step: &StoreStep) -> Vec<u8> {
    let mut frame = FrameWriter::new();
    frame.u64(number);
    match step {
        StoreStep::Sweep { keeps } => {
            frame.u8(0).u32(keeps.len() as u32);
            for inode in keeps {
                frame.u64(inode.0);
            }
        }
        StoreStep::Copy { inode, is_named, keep, size, pieces, attributes } => {
            frame.u8(1).u64(inode.0).u8(u8::from(*is_named)).u64(*keep).u64(*size);
            frame.attributes(attributes).u32(pieces.len() as u32);
            pieces.iter().for_each(|piece| frame.piece(piece));
        }
        StoreStep::Make { inode, node, attributes } => {
            frame.u8(2).u64(inode.0).attributes(attributes);
            match node {
                NodeKind::File => frame.u8(0),
                NodeKind::Directory => frame.u8(1),
                NodeKind::Symlink(target) => frame.u8(2).bytes(target),
                NodeKind::Special(SpecialNode { kind, device }) => {
                    let kind = SPECIALS.iter().position(|other| other == kind);
                    frame.u8(3).u8(kind.unwrap_or_default() as u8).u32(*device)
                }
            };
        }
        StoreStep::Settle { at, attributes } => drop(frame.u8(3).path(at).attributes(attributes)),
        StoreStep::Link { inode, to } => drop(frame.u8(4).u64(inode.0).path(to)),
        StoreStep::MakeDirectory { at } => drop(frame.u8(5).path(at)),
        StoreStep::MoveDirectory { from, to } => drop(frame.u8(6).path(from).path(to)),
        StoreStep::Unlink { at } => drop(frame.u8(7).path(at)),
        StoreStep::RemoveDirectory { at } => drop(frame.u8(8).path(at)),
        StoreStep::DropOld { inode } => drop(frame.u8(9).u64(inode.0)),
        StoreStep::Drop { inode } => drop(frame.u8(10).u64(inode.0)),
        StoreStep::SyncDirectories { at } => {
            frame.u8(11).u32(at.len() as u32);
            for path in at {
                frame.path(path);
            }
        }
    }
    frame.finish()
}

/// The kind of a frame with a rate, behind those of steps.
const RATE: u8 = 12;

/// Returns the frame of a rate of copies.
pub(super) fn rate_frame(rate: BitsPerSec) -> Vec<u8> {
    let mut frame = FrameWriter::new();
    frame.u64(rate.0).u8(RATE);
    frame.finish()
}

/// Returns the rate that a frame has; `None` where it has a step, or is none.
pub(super) fn parse_rate(frame: &[u8]) -> Option<BitsPerSec> {
    let mut rest = ByteReader::new(frame);
    let rate = BitsPerSec(rest.u64()?);
    (rest.u8()? == RATE && rest.is_empty() && rate.0 > 0).then_some(rate)
}

/// Returns the step that a frame has, and its number.
pub(super) fn parse_task(frame: &[u8]) -> Option<(u64, StoreStep)> {
    let rest = &mut ByteReader::new(frame);
    let number = rest.u64()?;
    let step = match rest.u8()? {
        0 => StoreStep::Sweep { keeps: list(rest, inode)? },
        1 => StoreStep::Copy {
            inode: inode(rest)?,
            is_named: flag(rest)?,
            keep: rest.u64()?,
            size: rest.u64()?,
            attributes: attributes(rest)?,
            pieces: list(rest, piece)?,
        },
        2 => {
            let (inode, attributes) = (inode(rest)?, attributes(rest)?);
            StoreStep::Make { inode, node: node(rest)?, attributes }
        }
        3 => StoreStep::Settle { at: path(rest)?, attributes: attributes(rest)? },
        4 => StoreStep::Link { inode: inode(rest)?, to: path(rest)? },
        5 => StoreStep::MakeDirectory { at: path(rest)? },
        6 => StoreStep::MoveDirectory { from: path(rest)?, to: path(rest)? },
        7 => StoreStep::Unlink { at: path(rest)? },
        8 => StoreStep::RemoveDirectory { at: path(rest)? },
        9 => StoreStep::DropOld { inode: inode(rest)? },
        10 => StoreStep::Drop { inode: inode(rest)? },
        11 => StoreStep::SyncDirectories { at: list(rest, path)? },
        _ => return None,
    };
    rest.is_empty().then_some((number, step))
}

fn list<'a, T>(
    rest: &mut ByteReader<'a>,
    parse: impl Fn(&mut ByteReader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = rest.u32()?;
    // Each takes bytes, so the list ends with them.
    (0..count).map(|_| parse(rest)).collect()
}

fn run<'a>(rest: &mut ByteReader<'a>) -> Option<&'a [u8]> {
    let length = rest.u32()?;
    rest.run(length as usize)
}

fn flag(rest: &mut ByteReader<'_>) -> Option<bool> {
    match rest.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn inode(rest: &mut ByteReader<'_>) -> Option<InodeId> {
    rest.u64().map(InodeId)
}

fn name(rest: &mut ByteReader<'_>) -> Option<EntryName> {
    EntryName::new(run(rest)?).ok()
}

fn path(rest: &mut ByteReader<'_>) -> Option<StorePath> {
    let base = if flag(rest)? { StoreBase::Objects } else { StoreBase::Root };
    Some(StorePath { base, names: list(rest, name)? })
}

fn attributes(rest: &mut ByteReader<'_>) -> Option<StoreAttributes> {
    Some(StoreAttributes {
        mode: rest.u32()?,
        owner: (rest.u32()?, rest.u32()?),
        atime: WallNs(rest.u64()?),
        mtime: WallNs(rest.u64()?),
        xattrs: list(rest, |rest| Some((name(rest)?, run(rest)?.into())))?,
    })
}

fn piece(rest: &mut ByteReader<'_>) -> Option<CopyPiece> {
    Some(CopyPiece {
        place: LogPlace { segment: rest.u32()?, block: rest.u32()? },
        length: rest.u32()?,
        digest: rest.u64()?,
        skip: rest.u32()?,
        offset: rest.u64()?,
        bytes: rest.u32()?,
    })
}

fn node(rest: &mut ByteReader<'_>) -> Option<NodeKind> {
    Some(match rest.u8()? {
        0 => NodeKind::File,
        1 => NodeKind::Directory,
        2 => NodeKind::Symlink(run(rest)?.into()),
        3 => {
            let kind = *SPECIALS.get(usize::from(rest.u8()?))?;
            NodeKind::Special(SpecialNode { kind, device: rest.u32()? })
        }
        _ => return None,
    })
}

/// The code of the first of [`FAULTS`].
const FIRST_FAULT: u8 = 6;
const FAULTS: [Fault; 5] =
    [Fault::NoSpace, Fault::Io, Fault::Denied, Fault::Gone, Fault::Malformed];

/// Returns the frame of what happened to a step.
pub(super) fn news_frame(number: u64, news: StepNews) -> Vec<u8> {
    let mut frame = FrameWriter::new();
    frame.u64(number).u8(match news {
        StepNews::Progress => 0,
        StepNews::End(StepEnd::Done) => 1,
        StepNews::End(StepEnd::DoneWithStranger(StrangerFate::Stays)) => 2,
        StepNews::End(StepEnd::Stuck) => 3,
        StepNews::End(StepEnd::Absent) => 4,
        StepNews::End(StepEnd::DoneWithStranger(StrangerFate::Moved(_))) => 5,
        StepNews::End(StepEnd::Failed(fault)) => {
            let index = FAULTS.iter().position(|other| *other == fault);
            // A fault that is not listed is one of the device.
            FIRST_FAULT + index.unwrap_or(1) as u8
        }
    });
    if let StepNews::End(StepEnd::DoneWithStranger(StrangerFate::Moved(suffix))) = news {
        frame.u32(suffix);
    }
    frame.finish()
}

/// Returns the number of a step and what happened to it.
pub(super) fn parse_news(frame: &[u8]) -> Option<(u64, StepNews)> {
    let mut rest = ByteReader::new(frame);
    let number = rest.u64()?;
    let news = match rest.u8()? {
        0 => StepNews::Progress,
        1 => StepNews::End(StepEnd::Done),
        2 => StepNews::End(StepEnd::DoneWithStranger(StrangerFate::Stays)),
        3 => StepNews::End(StepEnd::Stuck),
        4 => StepNews::End(StepEnd::Absent),
        5 => StepNews::End(StepEnd::DoneWithStranger(StrangerFate::Moved(rest.u32()?))),
        code => {
            let index = usize::from(code.checked_sub(FIRST_FAULT)?);
            StepNews::End(StepEnd::Failed(*FAULTS.get(index)?))
        }
    };
    rest.is_empty().then_some((number, news))
}

/// Reads a frame of at most `longest` bytes; `None` at the end of the stream.
pub(super) fn read_frame(from: &mut impl Read, longest: u32) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        outcome => outcome?,
    }
    let length = u32::from_le_bytes(length);
    if length > longest {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Memory is taken as bytes come, not as the length says.
    let mut frame = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut frame)?;
    let is_whole = frame.len() == length as usize;
    Ok(is_whole.then_some(frame))
}

/// Takes the first frame of some bytes; `None` while it is not there whole.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] when it is longer than `longest`.
pub(super) fn take_frame(bytes: &mut Vec<u8>, longest: u32) -> io::Result<Option<Vec<u8>>> {
    let Some(length) = ByteReader::new(bytes).u32() else { return Ok(None) };
    if length > longest {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let end = 4 + length as usize;
    let Some(frame) = bytes.get(4..end).map(<[u8]>::to_vec) else { return Ok(None) };
    bytes.drain(..end);
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn paths() -> impl Strategy<Value = StorePath> {
        let name = prop::collection::vec(1..=255_u8, 1..20)
            .prop_filter_map("a name", |bytes| EntryName::new(&bytes).ok());
        (any::<bool>(), prop::collection::vec(name, 0..4)).prop_map(|(is_object, names)| {
            let base = if is_object { StoreBase::Objects } else { StoreBase::Root };
            StorePath { base, names }
        })
    }

    fn all_attributes() -> impl Strategy<Value = StoreAttributes> {
        let value = prop::collection::vec(any::<u8>(), 0..9);
        (any::<[u32; 3]>(), any::<[u64; 2]>(), value).prop_map(
            |([mode, user, group], times, value)| {
                let name = EntryName::new(b"user.x").expect("a name");
                let (atime, mtime) = (WallNs(times[0]), WallNs(times[1]));
                let xattrs = vec![(name, value.into())];
                StoreAttributes { mode, owner: (user, group), atime, mtime, xattrs }
            },
        )
    }

    fn pieces() -> impl Strategy<Value = Vec<CopyPiece>> {
        let piece = (any::<[u32; 5]>(), any::<[u64; 2]>());
        let piece = piece.prop_map(|([segment, block, length, skip, bytes], [digest, offset])| {
            CopyPiece { place: LogPlace { segment, block }, length, digest, skip, offset, bytes }
        });
        prop::collection::vec(piece, 0..5)
    }

    fn nodes() -> impl Strategy<Value = NodeKind> {
        let target = prop::collection::vec(any::<u8>(), 0..9);
        prop_oneof![
            target.prop_map(|target| NodeKind::Symlink(target.into())),
            (0..4_usize, any::<u32>()).prop_map(|(kind, device)| {
                NodeKind::Special(SpecialNode { kind: SPECIALS[kind], device })
            }),
        ]
    }

    fn steps() -> impl Strategy<Value = StoreStep> {
        let inode = || any::<u64>().prop_map(InodeId);
        prop_oneof![
            prop::collection::vec(inode(), 0..5).prop_map(|keeps| StoreStep::Sweep { keeps }),
            (any::<[u64; 3]>(), any::<bool>(), pieces(), all_attributes()).prop_map(
                |([inode, keep, size], is_named, pieces, attributes)| {
                    let inode = InodeId(inode);
                    StoreStep::Copy { inode, is_named, keep, size, pieces, attributes }
                }
            ),
            (inode(), nodes(), all_attributes())
                .prop_map(|(inode, node, attributes)| StoreStep::Make { inode, node, attributes }),
            (paths(), all_attributes())
                .prop_map(|(at, attributes)| StoreStep::Settle { at, attributes }),
            (inode(), paths()).prop_map(|(inode, to)| StoreStep::Link { inode, to }),
            paths().prop_map(|at| StoreStep::MakeDirectory { at }),
            (paths(), paths()).prop_map(|(from, to)| StoreStep::MoveDirectory { from, to }),
            paths().prop_map(|at| StoreStep::Unlink { at }),
            paths().prop_map(|at| StoreStep::RemoveDirectory { at }),
            inode().prop_map(|inode| StoreStep::DropOld { inode }),
            inode().prop_map(|inode| StoreStep::Drop { inode }),
            prop::collection::vec(paths(), 0..3).prop_map(|at| StoreStep::SyncDirectories { at }),
        ]
    }

    fn all_news() -> impl Strategy<Value = StepNews> {
        prop_oneof![
            Just(StepNews::Progress),
            Just(StepNews::End(StepEnd::Done)),
            Just(StepNews::End(StepEnd::DoneWithStranger(StrangerFate::Stays))),
            any::<u32>()
                .prop_map(|n| StepNews::End(StepEnd::DoneWithStranger(StrangerFate::Moved(n)))),
            Just(StepNews::End(StepEnd::Stuck)),
            Just(StepNews::End(StepEnd::Absent)),
            (0..FAULTS.len()).prop_map(|fault| StepNews::End(StepEnd::Failed(FAULTS[fault]))),
        ]
    }

    proptest! {
        #[test]
        fn task_frame__a_step_comes_back(number in any::<u64>(), step in steps()) {
            let mut bytes = task_frame(number, &step);
            let read = read_frame(&mut &bytes[..], TASK_MAX).expect("memory").expect("a frame");
            prop_assert_eq!(parse_task(&read), Some((number, step)));
            prop_assert_eq!(take_frame(&mut bytes, TASK_MAX).expect("a frame"), Some(read.clone()));
            prop_assert!(bytes.is_empty());
            for end in 0..read.len() {
                prop_assert_eq!(parse_task(&read[..end]), None);
            }
        }

        #[test]
        fn news_frame__news_come_back(number in any::<u64>(), news in all_news()) {
            let bytes = news_frame(number, news);
            prop_assert!(bytes.len() <= 4 + NEWS_MAX as usize);
            prop_assert_eq!(parse_news(&bytes[4..]), Some((number, news)));
        }

        #[test]
        fn parse__any_bytes_are_a_frame_or_none(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            let (_, _) = (parse_task(&bytes), parse_news(&bytes));
            prop_assert!(parse_task(&bytes).is_none() || parse_rate(&bytes).is_none());
            let _ = ChildPlaces::parse(&bytes);
            let _ = read_frame(&mut &bytes[..], NEWS_MAX);
            let _ = take_frame(&mut bytes.clone(), NEWS_MAX);
        }
    }

    #[test]
    fn child_places__come_back_whatever_their_bytes_are() {
        let store = PathBuf::from(OsStr::from_bytes(b"/st\xffore"));
        for rate in [None, Some(BitsPerSec(5))] {
            let (store, log) = (store.clone(), "/log".into());
            let owner = Some(StoreOwner { log: LogId(7 << 100), sharing: StoreSharing::Shared });
            let places = ChildPlaces { store, log, steps: 8, owner, rate };
            assert_eq!(ChildPlaces::parse(&places.to_frame()[4..]), Some(places));
        }
    }

    #[test]
    fn take_frame__a_length_without_end_is_refused() {
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        assert!(take_frame(&mut bytes, NEWS_MAX).is_err());
        assert!(read_frame(&mut &bytes[..], NEWS_MAX).is_err());
    }
}
