//! Keeps real bytes that were placed into phantom memory, and reads ranges that have both kinds.
//!
//! # Model
//! A *run* is a sequence of real bytes at one place of a phantom memory. It replaces what the
//! extents say of its range. A body that has both kinds is a list of pieces.
//!
//! # Invariants
//! I1. Runs do not overlap, and none is empty.

use core::ops::Range;
use std::collections::BTreeMap;

use super::phantom::{Extent, PhantomMemory};
use super::{Memory, MessageBody};

/// Bytes of one kind within a body that has both.
#[derive(Clone, Debug)]
pub(crate) enum BodyRun {
    /// Real ones.
    Bytes(Box<[u8]>),
    /// Phantoms.
    Extent(Extent),
}

impl BodyRun {
    pub(super) const fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Extent(extent) => extent.length,
        }
    }
}

/// The real bytes of one phantom memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct RealRuns(BTreeMap<u64, Box<[u8]>>);

impl RealRuns {
    /// Puts real bytes to `at`.
    pub(super) fn insert(&mut self, at: u64, bytes: &[u8]) {
        self.remove(at..at + bytes.len() as u64);
        if !bytes.is_empty() {
            self.0.insert(at, bytes.into());
        }
    }

    /// Removes the real bytes in `range`.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        if self.0.is_empty() {
            return;
        }
        for (start, bytes) in self.cut_by(range.clone()) {
            self.0.remove(&start);
            let end = start + bytes.len() as u64;
            if start < range.start {
                self.0.insert(start, bytes[..(range.start - start) as usize].into());
            }
            if end > range.end {
                self.0.insert(range.end, bytes[(range.end - start) as usize..].into());
            }
        }
    }

    /// Returns copies of the runs that have bytes in `range`, in order.
    fn cut_by(&self, range: Range<u64>) -> Vec<(u64, Box<[u8]>)> {
        if range.is_empty() {
            return Vec::new();
        }
        let before = self.0.range(..range.start).next_back();
        let before = before.filter(|(start, bytes)| *start + bytes.len() as u64 > range.start);
        before
            .into_iter()
            .chain(self.0.range(range))
            .map(|(start, bytes)| (*start, bytes.clone()))
            .collect()
    }

    /// Reads `range` of memory that is `phantom` apart from these runs.
    pub(super) fn take(&self, phantom: &PhantomMemory, range: Range<u64>) -> MessageBody {
        if self.0.is_empty() {
            return phantom.take(range);
        }
        let mut pieces: Vec<BodyRun> = Vec::new();
        let mut at = range.start;
        let behind = |pieces: &mut Vec<BodyRun>, range: Range<u64>| {
            pieces.extend(phantom.take(range).extents().iter().copied().map(BodyRun::Extent));
        };
        for (start, bytes) in self.cut_by(range.clone()) {
            behind(&mut pieces, at..start.max(at));
            let end = (start + bytes.len() as u64).min(range.end);
            let first = start.max(range.start);
            let part = &bytes[(first - start) as usize..(end - start) as usize];
            match pieces.last_mut() {
                Some(BodyRun::Bytes(last)) => *last = [&**last, part].concat().into(),
                _ => pieces.push(BodyRun::Bytes(part.into())),
            }
            at = end;
        }
        match (pieces.len(), pieces.pop()) {
            (0, _) | (_, None) => phantom.take(range),
            (1, Some(BodyRun::Bytes(bytes))) if at == range.end => MessageBody::Bytes(bytes),
            (_, Some(last)) => {
                pieces.push(last);
                behind(&mut pieces, at..range.end);
                MessageBody::Mixed(pieces.into())
            }
        }
    }
}

/// Returns memory that holds `pieces` and nothing else.
pub(super) fn memory_of(pieces: &[BodyRun]) -> Memory {
    let mut memory =
        Memory::Phantom(PhantomMemory::from_extents(&[]), BTreeMap::new(), RealRuns::default());
    let mut at = 0;
    for piece in pieces {
        memory.grow(at + piece.length());
        match piece {
            BodyRun::Bytes(bytes) => memory.place(at, &MessageBody::Bytes(bytes.clone())),
            BodyRun::Extent(extent) => memory.place(at, &MessageBody::One(*extent)),
        }
        at += piece.length();
    }
    memory
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{ByteOrigin, CopyHistory};
    use super::*;

    const SIZE: u64 = 48;

    /// What one byte of a memory is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Byte {
        Real(u8),
        Of(ByteOrigin, u64),
    }

    /// Returns a body byte by byte.
    fn spelt(body: &MessageBody) -> Vec<Byte> {
        let of = |e: &Extent| {
            (0..e.length).map(|i| Byte::Of(e.origin, e.offset + i)).collect::<Vec<_>>()
        };
        match body {
            MessageBody::Bytes(bytes) => bytes.iter().copied().map(Byte::Real).collect(),
            MessageBody::Mixed(pieces) => {
                let piece = |piece: &BodyRun| match piece {
                    BodyRun::Bytes(bytes) => bytes.iter().copied().map(Byte::Real).collect(),
                    BodyRun::Extent(extent) => of(extent),
                };
                pieces.iter().flat_map(piece).collect()
            }
            _ => body.extents().iter().flat_map(of).collect(),
        }
    }

    proptest! {
        #[test]
        fn place__copies_between_real_and_phantom_memory_are_those_byte_by_byte(
            copies in prop::collection::vec((0usize..3, 0usize..3, 0..SIZE, 0..SIZE, 0..SIZE), 0..30)
        ) {
            let home = |rank| ByteOrigin::Region { rank, region: 0 };
            let mut memories = vec![Memory::real(SIZE as usize)];
            memories.extend((1..3).map(|rank| Memory::phantom(CopyHistory::Extents, SIZE, home(rank))));
            for (i, byte) in memories[0].bytes_mut().expect("real").iter_mut().enumerate() {
                *byte = 100 + i as u8;
            }
            let mut plain: Vec<Vec<Byte>> = memories.iter().map(|memory| spelt(&memory.take(0..SIZE))).collect();
            for (from, to, source, target, length) in copies {
                let length = length.min(SIZE - source).min(SIZE - target);
                let body = memories[from].take(source..source + length);
                prop_assert_eq!(body.length(), length);
                memories[to].place(target, &body);
                let bytes = plain[from][source as usize..(source + length) as usize].to_vec();
                for (place, byte) in plain[to][target as usize..].iter_mut().zip(bytes) {
                    *place = match byte {
                        Byte::Of(..) if to == 0 => Byte::Real(0),
                        byte => byte,
                    };
                }
                prop_assert_eq!(&spelt(&memories[to].take(0..SIZE)), &plain[to]);
                let cut = body.part(length / 3..length);
                prop_assert_eq!(spelt(&cut), spelt(&body)[(length / 3) as usize..].to_vec());
            }
        }
    }

    #[test]
    fn truncate__bytes_behind_the_end_do_not_come_back() {
        let mut memory = Memory::phantom(CopyHistory::Nothing, SIZE, ByteOrigin::Damaged);
        memory.place(4, &MessageBody::Bytes([7; 8].into()));
        memory.truncate(6);
        memory.grow(SIZE);
        let (real, own) = (Byte::Real(7), |i| Byte::Of(ByteOrigin::Damaged, i));
        assert_eq!(spelt(&memory.take(3..8)), [own(3), real, real, own(6), own(7)]);
    }

    #[test]
    fn digest__of_bytes_that_lie_in_phantom_memory_is_that_of_the_bytes() {
        let bytes = MessageBody::Bytes((*b"header").into());
        let mut memory = Memory::phantom(CopyHistory::Extents, SIZE, ByteOrigin::Damaged);
        memory.place(9, &bytes);
        assert_eq!(memory.take(9..15).digest(), bytes.digest());
        let mixed = memory.take(8..16);
        let mut damaged = mixed.clone();
        damaged.damage(1, 0);
        assert_ne!(mixed.digest(), damaged.digest());
        assert_eq!(spelt(&damaged)[1], Byte::Real(b'h' ^ 1));
        damaged.damage(0, 0);
        assert_eq!(spelt(&damaged)[0], Byte::Of(ByteOrigin::Damaged, 0));
    }
}
