//! The headers of a broadcast's messages, byte by byte.
//!
//! # Model
//! All numbers little-endian. Every header begins and ends alike; what lies between depends on its
//! kind:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | kind |
//! | 1 | flags: way (bits 0 and 1), sent to the group (bit 2), to be handed down the tree (bit 3) |
//! | 2 | poll: the number of the poll that is asked or answered, zero for none |
//! | 4 | key of the cast: drops what is of another one on a shared group |
//! | 4 | view: how many members were removed (upper half) and the root's place (lower half) |
//! | n | fields by kind |
//! | 4 | CRC-32C of all of this |
//!
//! | kind | frame | direction | fields (bytes) |
//! |---|---|---|---|
//! | 1 | data of a long object | down | sequence 8, object 4, number 4, behind 4, crc 4, length 2; the symbol is the body |
//! | 2 | announce | down | object 4, first 8, length 8, number 4 |
//! | 3 | poll | down | edge 8, stable 8, objects 4, aborted 4, trip 4 |
//! | 4 | status | up | received 8, stable 8, known 4, slots 4, places 4, alive 4, heard 4, slowest 2, lost 4, losing 4, marked 4, settled 1 |
//! | 5 | need | up | block 8, then at most 10 times: blocks further 2, missing 8 |
//! | 6 | view | anyone | at most 40 times: place 2 |
//! | 7 | suspect | up | place 2 |
//! | 8 | abort | up | object 4 |
//! | 9 | have | up | block 8, held 8 |
//! | 10 | short message | down | as data |
//!
//! A *sequence* numbers symbols through the whole cast and is never used for other bytes. `behind`
//! is how far the sequence is above the stable edge. `number` is that of a short message among the
//! short ones (which gives its slot), the symbol's index in data of a long object, and in an
//! announcement the object's number among the long ones.
//!
//! # Invariants
//! I1. Reading never panics, and never allocates.

use serde::{Deserialize, Serialize};

use crate::base::{ByteReader, Head, crc32c};

/// The longest header: that of the wires.
pub(super) const LONGEST: usize = 128;
/// Bytes of a header before its fields.
const COMMON: usize = 12;
/// Bytes of the check behind them.
const CHECK: usize = 4;
/// Bytes of a symbol's header: what a symbol must leave of a message.
pub(super) const DATA_HEAD: usize = COMMON + 26 + CHECK;
/// Blocks in one need.
pub(super) const NEEDS_MAX: usize = 10;
/// Members that a view can have lost: what one header carries.
pub(super) const REMOVED_MAX: usize = 40;

/// How symbols reach the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Algorithm {
    /// The network copies.
    #[default]
    Multicast,
    /// Each member hands on to the next one.
    Chain,
    /// Each member hands on to some others.
    Tree,
    /// The network copies within each leaf, and the last member of a leaf hands on to the first one
    /// of the next, who sends to the group again.
    Segments,
}

impl Algorithm {
    /// Creates an `Algorithm` of the lowest two bits: each value is a way.
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Multicast,
            1 => Self::Chain,
            2 => Self::Tree,
            _ => Self::Segments,
        }
    }

    /// Returns its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Multicast => "multicast",
            Self::Chain => "chain",
            Self::Tree => "tree",
            Self::Segments => "segments",
        }
    }

    /// Returns the two bits that stand for it.
    pub(super) const fn bits(self) -> u8 {
        self as u8
    }
}

/// What every header begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preamble {
    pub(super) algorithm: Algorithm,
    pub(super) to_group: bool,
    pub(super) hand_down: bool,
    /// Everybody in the sender's view takes part in it, as far as the sender knows.
    pub(super) formed: bool,
    pub(super) poll: u16,
    pub(super) key: u32,
    pub(super) view: u32,
}

/// A symbol's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) sequence: u64,
    pub(super) object: u32,
    pub(super) number: u32,
    pub(super) behind: u32,
    pub(super) crc: u32,
    pub(super) length: u16,
    pub(super) extent: ObjectExtent,
}

/// What a symbol is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectExtent {
    /// An object that was announced.
    Long,
    /// Nothing else: it is a message.
    Short,
}

/// What a long object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announce {
    pub(super) object: u32,
    pub(super) first: u64,
    pub(super) length: u64,
    pub(super) number: u32,
}

/// Where the root is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Poll {
    /// All sequences below have left.
    pub(super) edge: u64,
    /// All sequences below are with every member.
    pub(super) stable: u64,
    /// All objects below are announced or were short.
    pub(super) objects: u32,
    /// The first object that ends without success; `u32::MAX` for none.
    pub(super) aborted: u32,
    /// A round trip from the root to all and back, in nanoseconds.
    pub(super) trip: u32,
}

/// How far a part of the tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProgressReport {
    /// Least sequence below which everything is held, without parked members.
    pub(super) received: u64,
    /// The same of all members.
    pub(super) stable: u64,
    /// Least object below which all are known.
    pub(super) known: u32,
    /// Least number of short messages for which there is a slot, since the beginning.
    pub(super) slots: u32,
    /// The same of long objects and places.
    pub(super) places: u32,
    /// Members that this is about.
    pub(super) alive: u32,
    /// Least number of symbols that came through the group.
    pub(super) heard: u32,
    /// The member that is last.
    pub(super) slowest: u16,
    /// Greatest share of symbols that were missed at first, in millionths.
    pub(super) lost: u32,
    /// Members that missed more than a link's own share.
    pub(super) losing: u32,
    /// Greatest share of symbols that were marked, in millionths.
    pub(super) marked: u32,
    /// All know that the cast was aborted.
    pub(super) settled: bool,
}

/// What is missing of one block of 64 sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockNack {
    pub(super) block: u64,
    pub(super) missing: u64,
}

/// Needs of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Nacks {
    all: [BlockNack; NEEDS_MAX],
    count: usize,
}

impl Nacks {
    /// Adds one; false when it does not fit, and belongs into another message.
    pub(super) fn push(&mut self, need: BlockNack) -> bool {
        let first = self.all[0].block;
        let fits =
            self.count == 0 || need.block >= first && need.block - first <= u64::from(u16::MAX);
        if self.count == NEEDS_MAX || !fits {
            return false;
        }
        self.all[self.count] = need;
        self.count += 1;
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = BlockNack> + '_ {
        self.all[..self.count].iter().copied()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Places of members that are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemovedMembers {
    all: [u16; REMOVED_MAX],
    count: usize,
}

impl RemovedMembers {
    pub(super) const NONE: Self = Self { all: [0; REMOVED_MAX], count: 0 };

    /// Adds one; false when there is no room.
    pub(super) fn push(&mut self, place: u16) -> bool {
        if self.count == REMOVED_MAX {
            return false;
        }
        self.all[self.count] = place;
        self.count += 1;
        true
    }

    pub(super) fn as_slice(&self) -> &[u16] {
        &self.all[..self.count]
    }
}

/// One message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BroadcastFrame {
    Data(Symbol),
    Announce(Announce),
    Poll(Poll),
    Status(ProgressReport),
    Need(Nacks),
    View(RemovedMembers),
    /// A member is silent; or who says so is out itself, and never comes back.
    Suspect {
        place: u16,
    },
    /// The cast is to end; with a number it has ended there for who says so.
    Abort {
        object: u32,
    },
    Have {
        block: u64,
        held: u64,
    },
}

impl BroadcastFrame {
    const fn kind(&self) -> u8 {
        match self {
            Self::Data(Symbol { extent: ObjectExtent::Long, .. }) => 1,
            Self::Data(Symbol { extent: ObjectExtent::Short, .. }) => 10,
            Self::Announce(_) => 2,
            Self::Poll(_) => 3,
            Self::Status(_) => 4,
            Self::Need(_) => 5,
            Self::View(_) => 6,
            Self::Suspect { .. } => 7,
            Self::Abort { .. } => 8,
            Self::Have { .. } => 9,
        }
    }

    /// Encodes this frame as a header.
    pub(super) fn encode(&self, preamble: &Preamble) -> Head<LONGEST> {
        let mut head = Head::new();
        let Preamble { to_group, hand_down, formed, .. } = *preamble;
        let flags = [to_group, hand_down, formed].map(u8::from);
        let flags = preamble.algorithm.bits() | flags[0] << 2 | flags[1] << 3 | flags[2] << 4;
        head.put(&[self.kind(), flags]).put(&preamble.poll.to_le_bytes());
        head.put(&preamble.key.to_le_bytes()).put(&preamble.view.to_le_bytes());
        self.put(&mut head);
        let check = crc32c(head.bytes());
        head.put(&check.to_le_bytes());
        head
    }

    fn put(&self, head: &mut Head<LONGEST>) {
        match self {
            Self::Data(data) => {
                head.put(&data.sequence.to_le_bytes()).put(&data.object.to_le_bytes());
                head.put(&data.number.to_le_bytes()).put(&data.behind.to_le_bytes());
                head.put(&data.crc.to_le_bytes()).put(&data.length.to_le_bytes());
            }
            Self::Announce(announce) => {
                head.put(&announce.object.to_le_bytes()).put(&announce.first.to_le_bytes());
                head.put(&announce.length.to_le_bytes()).put(&announce.number.to_le_bytes());
            }
            Self::Poll(poll) => {
                head.put(&poll.edge.to_le_bytes()).put(&poll.stable.to_le_bytes());
                head.put(&poll.objects.to_le_bytes())
                    .put(&poll.aborted.to_le_bytes())
                    .put(&poll.trip.to_le_bytes());
            }
            Self::Status(report) => report.put(head),
            Self::Need(needs) => {
                let first = needs.all[0].block;
                head.put(&first.to_le_bytes());
                for need in needs.iter() {
                    head.put(&((need.block - first) as u16).to_le_bytes());
                    head.put(&need.missing.to_le_bytes());
                }
            }
            Self::View(removed) => {
                for place in removed.as_slice() {
                    head.put(&place.to_le_bytes());
                }
            }
            Self::Suspect { place } => {
                head.put(&place.to_le_bytes());
            }
            Self::Abort { object } => {
                head.put(&object.to_le_bytes());
            }
            Self::Have { block, held } => {
                head.put(&block.to_le_bytes()).put(&held.to_le_bytes());
            }
        }
    }

    /// Reads a header; `None` when the bytes are nothing that [`BroadcastFrame::encode`] writes.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Preamble, Self)> {
        let (rest, check) = bytes.split_last_chunk()?;
        if bytes.len() > LONGEST || crc32c(rest) != u32::from_le_bytes(*check) {
            return None;
        }
        let mut rest = ByteReader::new(rest);
        let [kind, flags] = rest.take()?;
        let preamble = Preamble {
            algorithm: Algorithm::from_bits(flags),
            to_group: flags & 4 != 0,
            hand_down: flags & 8 != 0,
            formed: flags & 16 != 0,
            poll: rest.u16()?,
            key: rest.u32()?,
            view: rest.u32()?,
        };
        if flags & !31 != 0 {
            return None;
        }
        let frame = Self::fields(kind, &mut rest)?;
        rest.is_empty().then_some((preamble, frame))
    }

    fn fields(kind: u8, rest: &mut ByteReader<'_>) -> Option<Self> {
        Some(match kind {
            1 | 10 => Self::Data(Symbol {
                sequence: rest.u64()?,
                object: rest.u32()?,
                number: rest.u32()?,
                behind: rest.u32()?,
                crc: rest.u32()?,
                length: rest.u16()?,
                extent: if kind == 1 { ObjectExtent::Long } else { ObjectExtent::Short },
            }),
            2 => Self::Announce(Announce {
                object: rest.u32()?,
                first: rest.u64()?,
                length: rest.u64()?,
                number: rest.u32()?,
            }),
            3 => {
                let (edge, stable) = (rest.u64()?, rest.u64()?);
                Self::Poll(Poll {
                    edge,
                    stable,
                    objects: rest.u32()?,
                    aborted: rest.u32()?,
                    trip: rest.u32()?,
                })
            }
            4 => Self::Status(ProgressReport::read(rest)?),
            5 => Self::Need(Nacks::read(rest)?),
            6 => {
                let mut removed = RemovedMembers::NONE;
                while !rest.is_empty() {
                    removed.push(rest.u16()?).then_some(())?;
                }
                Self::View(removed)
            }
            7 => Self::Suspect { place: rest.u16()? },
            8 => Self::Abort { object: rest.u32()? },
            9 => Self::Have { block: rest.u64()?, held: rest.u64()? },
            _ => return None,
        })
    }
}

impl ProgressReport {
    fn put(&self, head: &mut Head<LONGEST>) {
        head.put(&self.received.to_le_bytes()).put(&self.stable.to_le_bytes());
        for word in [self.known, self.slots, self.places, self.alive, self.heard] {
            head.put(&word.to_le_bytes());
        }
        head.put(&self.slowest.to_le_bytes());
        head.put(&self.lost.to_le_bytes())
            .put(&self.losing.to_le_bytes())
            .put(&self.marked.to_le_bytes())
            .put(&[u8::from(self.settled)]);
    }

    fn read(rest: &mut ByteReader<'_>) -> Option<Self> {
        Some(Self {
            received: rest.u64()?,
            stable: rest.u64()?,
            known: rest.u32()?,
            slots: rest.u32()?,
            places: rest.u32()?,
            alive: rest.u32()?,
            heard: rest.u32()?,
            slowest: rest.u16()?,
            lost: rest.u32()?,
            losing: rest.u32()?,
            marked: rest.u32()?,
            settled: match rest.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            },
        })
    }
}

impl Nacks {
    fn read(rest: &mut ByteReader<'_>) -> Option<Self> {
        let first = rest.u64()?;
        let mut needs = Self::default();
        while !rest.is_empty() {
            let block = first.checked_add(u64::from(rest.u16()?))?;
            let need = BlockNack { block, missing: rest.u64()? };
            (needs.push(need)).then_some(())?;
        }
        (needs.count > 0 && needs.all[0].block == first).then_some(needs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMMON: Preamble = Preamble {
        algorithm: Algorithm::Chain,
        to_group: true,
        hand_down: false,
        formed: true,
        poll: 0x0201,
        key: 7,
        view: 0x0001_0002,
    };

    #[test]
    fn encode__writes_literal_bytes() {
        let frame = BroadcastFrame::Have { block: 3, held: 0x8000_0000_0000_0001 };
        let bytes = [
            9, 21, 1, 2, 7, 0, 0, 0, 2, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x80,
        ];
        let head = frame.encode(&COMMON);
        assert_eq!(head.bytes()[..28], bytes);
        assert_eq!(head.bytes()[28..], crc32c(&bytes).to_le_bytes());
        assert_eq!(BroadcastFrame::parse(head.bytes()), Some((COMMON, frame)));
        let symbol = Symbol {
            sequence: 1,
            object: 2,
            number: 3,
            behind: 4,
            crc: 5,
            length: 6,
            extent: ObjectExtent::Long,
        };
        let head = BroadcastFrame::Data(symbol).encode(&COMMON);
        let fields = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0];
        assert_eq!(
            (head.bytes()[0], &head.bytes()[12..38], head.bytes().len()),
            (1, &fields[..], DATA_HEAD)
        );
    }

    #[test]
    fn parse__every_frame_comes_back() {
        let mut needs = Nacks::default();
        for block in 5..15 {
            assert!(needs.push(BlockNack { block, missing: 1 << block }));
        }
        assert!(!needs.push(BlockNack { block: 15, missing: 0 }), "ten fit");
        let mut removed = RemovedMembers::NONE;
        assert!((0..REMOVED_MAX as u16).all(|place| removed.push(place)) && !removed.push(0));
        let report = ProgressReport {
            received: 1,
            stable: 2,
            known: 3,
            slots: 4,
            places: 5,
            alive: 6,
            heard: 7,
            slowest: 8,
            lost: 10,
            losing: 12,
            marked: 11,
            settled: true,
        };
        let frames = [
            BroadcastFrame::Data(Symbol {
                sequence: u64::MAX,
                object: 1,
                number: 2,
                behind: 3,
                crc: 4,
                length: 5,
                extent: ObjectExtent::Short,
            }),
            BroadcastFrame::Announce(Announce { object: 1, first: 2, length: 3, number: 4 }),
            BroadcastFrame::Poll(Poll { edge: 1, stable: 2, objects: 3, aborted: 4, trip: 5 }),
            BroadcastFrame::Status(report),
            BroadcastFrame::Need(needs),
            BroadcastFrame::View(removed),
            BroadcastFrame::View(RemovedMembers::NONE),
            BroadcastFrame::Suspect { place: 1 },
            BroadcastFrame::Abort { object: 3 },
            BroadcastFrame::Have { block: 1, held: 2 },
        ];
        for frame in frames {
            let head = frame.encode(&COMMON);
            assert!(head.bytes().len() <= LONGEST);
            assert_eq!(BroadcastFrame::parse(head.bytes()), Some((COMMON, frame)));
            for at in 0..head.bytes().len() {
                let mut bytes = head.bytes().to_vec();
                bytes[at] ^= 0x10;
                assert_eq!(BroadcastFrame::parse(&bytes), None, "byte {at} of {frame:?}");
                assert_eq!(
                    BroadcastFrame::parse(&head.bytes()[..at]),
                    None,
                    "{at} bytes of {frame:?}"
                );
            }
        }
    }

    proptest! {
        /// With the check right whatever comes before it, which random bytes alone never are.
        #[test]
        fn parse__what_it_accepts_is_what_it_would_write(mut bytes in proptest::collection::vec(any::<u8>(), 0..140), kind in 0_u8..12) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Some(flags) = bytes.get_mut(1) {
                *flags &= 15;
            }
            bytes.extend(crc32c(&bytes).to_le_bytes());
            if let Some((preamble, frame)) = BroadcastFrame::parse(&bytes) {
                let head = frame.encode(&preamble);
                prop_assert_eq!(head.bytes(), &bytes[..]);
            }
        }
    }
}
