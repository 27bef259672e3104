//! The header of a piece.
//!
//! # Model
//! ```text
//!   0   magic 0x63
//!   1   kind: REQUEST 1, RESPONSE 2
//!   2   class, by its index
//!   3   zero
//!   4   number of the call (u64)
//!  12   bytes of the parcel's header (u32)
//!  16   bytes of its data (u32)
//!  20   where the piece lies in both together (u32)
//! ```
//!
//! # Invariants
//! I1. Any bytes are a frame or none.

use super::{DATA_MAX, HEADER_MAX};
use crate::base::{ByteReader, Class, Head};

/// Bytes of it.
pub(super) const HEAD: usize = 24;

const MAGIC: u8 = 0x63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParcelKind {
    Request,
    Response,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceFrame {
    pub(super) kind: ParcelKind,
    pub(super) class: Class,
    pub(super) number: u64,
    pub(super) header: u32,
    pub(super) data: u32,
    pub(super) at: u32,
}

impl PieceFrame {
    pub(super) fn encode(&self) -> Head<HEAD> {
        let kind = match self.kind {
            ParcelKind::Request => 1,
            ParcelKind::Response => 2,
        };
        let mut head = Head::new();
        head.put(&[MAGIC, kind, self.class.index() as u8, 0]).put(&self.number.to_le_bytes());
        for number in [self.header, self.data, self.at] {
            head.put(&number.to_le_bytes());
        }
        head
    }

    pub(super) fn decode(head: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(head);
        let [magic, kind, class, zero] = rest.take()?;
        let kind = match kind {
            1 => ParcelKind::Request,
            2 => ParcelKind::Response,
            _ => return None,
        };
        let class = *Class::ALL.get(usize::from(class))?;
        let (number, header, data, at) = (rest.u64()?, rest.u32()?, rest.u32()?, rest.u32()?);
        let is_good = magic == MAGIC
            && zero == 0
            && rest.is_empty()
            && header <= HEADER_MAX
            && data <= DATA_MAX
            && at <= header + data;
        is_good.then_some(Self { kind, class, number, header, data, at })
    }
}
