//! Parcels that leave: cut into pieces, a bounded number of which is under way.
//!
//! # Invariants
//! I1. Pieces of one peer and class are posted in order; one that found no room is posted before all
//!     behind it.
//! I2. The memory of a parcel is free when no piece of it is under way.

use alloc::collections::{BTreeMap, VecDeque};

use super::frame::{ParcelKind, PieceFrame};
use super::{CallConfig, FRAME, Parcel};
use crate::base::{Class, Rank};
use crate::wire::{Destination, Operation, Out, PathId, Span, Status, Token};

/// Pieces of one peer and class under way: 2 MiB, more than any path of a cluster holds, and fewer
/// than a reliable wire takes.
const UNDER_WAY: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Piece {
    frame: PieceFrame,
    body: Span,
    is_last: bool,
}

#[derive(Debug, Default)]
struct OutLane {
    parcels: VecDeque<Parcel>,
    /// How much of the first one is cut.
    cut: u32,
    /// Pieces that found no room, by their order.
    returned: BTreeMap<u64, Piece>,
    under_way: usize,
    is_blocked: bool,
}

#[derive(Debug)]
pub(super) struct ParcelOutbox {
    kind: ParcelKind,
    piece_max: u32,
    lanes: BTreeMap<(Class, Rank), OutLane>,
    under_way: BTreeMap<u64, (Rank, Piece)>,
    /// Pieces of each parcel that are under way, and whether all of it is cut.
    parcels: BTreeMap<(Rank, u64), (u32, bool)>,
    last_token: u64,
}

/// What the end of a piece means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceEnd {
    Nothing,
    /// The memory of this parcel is free.
    Free(Rank, u64),
    /// The peer cannot be reached.
    Lost(Rank),
}

impl ParcelOutbox {
    pub(super) const fn new(kind: ParcelKind, config: &CallConfig) -> Self {
        Self {
            kind,
            piece_max: config.piece_max,
            lanes: BTreeMap::new(),
            under_way: BTreeMap::new(),
            parcels: BTreeMap::new(),
            last_token: 0,
        }
    }

    pub(super) fn push(&mut self, to: Rank, parcel: Parcel) {
        self.parcels.insert((to, parcel.number), (0, false));
        self.lanes.entry((parcel.class, to)).or_default().parcels.push_back(parcel);
    }

    /// Posts pieces, the most urgent first; returns whether there are more than `out` has room for.
    pub(super) fn flush<E>(&mut self, out: &mut Out<E>) -> bool {
        for ((_, to), lane) in &mut self.lanes {
            while !lane.is_blocked && lane.under_way < UNDER_WAY {
                if out.room() == 0 {
                    return true;
                }
                let (order, piece) = match lane.returned.pop_first() {
                    Some(returned) => returned,
                    None => {
                        let Some(piece) = lane.cut_piece(self.kind, self.piece_max) else { break };
                        self.last_token += 1;
                        if let Some((count, is_cut)) =
                            self.parcels.get_mut(&(*to, piece.frame.number))
                        {
                            (*count, *is_cut) = (*count + 1, piece.is_last);
                        }
                        (self.last_token, piece)
                    }
                };
                lane.under_way += 1;
                self.under_way.insert(order, (*to, piece));
                let head = out.head(piece.frame.encode().bytes());
                out.operate(Operation::Send {
                    to: Destination::One(*to),
                    path: PathId(0),
                    class: piece.frame.class,
                    head,
                    body: piece.body,
                    token: Some(Token(order)),
                });
            }
        }
        false
    }

    /// Takes the end of a piece.
    pub(super) fn end(&mut self, token: Token, status: Status) -> PieceEnd {
        let Some((to, piece)) = self.under_way.remove(&token.0) else { return PieceEnd::Nothing };
        let Some(lane) = self.lanes.get_mut(&(piece.frame.class, to)) else {
            return PieceEnd::Nothing;
        };
        lane.under_way -= 1;
        match status {
            Status::Complete => {}
            Status::NoRoom => {
                lane.is_blocked = true;
                lane.returned.insert(token.0, piece);
                return PieceEnd::Nothing;
            }
            _ => return PieceEnd::Lost(to),
        }
        let key = (to, piece.frame.number);
        let Some((count, is_cut)) = self.parcels.get_mut(&key) else { return PieceEnd::Nothing };
        *count -= 1;
        if *count > 0 || !*is_cut {
            return PieceEnd::Nothing;
        }
        self.parcels.remove(&key);
        PieceEnd::Free(to, piece.frame.number)
    }

    /// Notes that pieces of a class find room again.
    pub(super) fn room(&mut self, class: Class) {
        for ((of, _), lane) in &mut self.lanes {
            lane.is_blocked &= *of != class;
        }
    }

    /// Drops everything for a peer.
    pub(super) fn drop_peer(&mut self, peer: Rank) {
        self.lanes.retain(|(_, to), _| *to != peer);
        self.parcels.retain(|(to, _), _| *to != peer);
    }
}

impl OutLane {
    fn cut_piece(&mut self, kind: ParcelKind, piece_max: u32) -> Option<Piece> {
        let parcel = *self.parcels.front()?;
        let Parcel { number, class, header, data } = parcel;
        let at = self.cut;
        let frame =
            PieceFrame { kind, class, number, header: header.length, data: data.length, at };
        let (of, from) = if at < header.length { (header, at) } else { (data, at - header.length) };
        // A piece lies in the header or in one frame of the data.
        let length = (of.length - from).min(piece_max).min(FRAME - from % FRAME);
        let body = Span { offset: of.offset + u64::from(from), length, ..of };
        let body = if length == 0 { Span::EMPTY } else { body };
        self.cut += length;
        let is_last = self.cut == header.length + data.length;
        if is_last {
            self.parcels.pop_front();
            self.cut = 0;
        }
        Some(Piece { frame, body, is_last })
    }
}
