//! Parcels that leave: cut into pieces, a bounded number of which is under way.
//!
//! # Invariants
//! I1. Pieces of one peer and class are posted in order; one that found no room is posted before all
//!     behind it.
//! I2. The memory of a parcel is free when no piece of it is under way.
//! I3. Under a pace, what is cut of the classes that it holds back is no more than the pace allows.

use alloc::collections::{BTreeMap, VecDeque};

use super::frame::{ParcelKind, PieceFrame};
use super::pace::LanePace;
use super::{CallConfig, ClientPace, FRAME, Parcel};
use crate::base::{Class, LocalNs, Nanos, Rank};
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
    pub(super) gate: PaceGate,
    lanes: BTreeMap<(Class, Rank), OutLane>,
    under_way: BTreeMap<u64, (Rank, Piece)>,
    /// Pieces of each parcel that are under way, and whether all of it is cut.
    parcels: BTreeMap<(Rank, u64), (u32, bool)>,
    last_token: u64,
}

/// Lets pieces leave at the pace of a peer, if it set one.
#[derive(Debug)]
pub(super) struct PaceGate {
    pace: Option<LanePace>,
    /// Bytes under way of the classes that a pace holds back.
    under_way: u64,
    /// When the pace lets the next piece leave.
    pub(super) waits_until: Option<LocalNs>,
}

impl PaceGate {
    const fn new() -> Self {
        Self { pace: None, under_way: 0, waits_until: None }
    }

    /// Changes the pace.
    pub(super) fn set(&mut self, now: LocalNs, pace: ClientPace, pause: Nanos) {
        match &mut self.pace {
            Some(before) => before.set(now, pace, pause),
            none => *none = Some(LanePace::new(now, pace, pause)),
        }
    }

    /// Returns the bytes of the longest piece that `lane` may send next, or `None` if none may leave.
    fn piece(&mut self, now: LocalNs, class: Class, lane: &OutLane, piece_max: u32) -> Option<u32> {
        let Some(pace) = self.pace.as_mut().filter(|_| LanePace::holds(class)) else {
            return Some(piece_max);
        };
        // Less urgent classes must not take the tokens that this one waits for.
        if self.waits_until.is_some() {
            return None;
        }
        let piece_max = piece_max.min(pace.piece());
        let length = lane.next_bytes(piece_max)?.length;
        // The end of a piece that is under way is the next occasion.
        if self.under_way + u64::from(length) > pace.under_way() {
            return None;
        }
        match pace.take(now, length) {
            Ok(()) => Some(piece_max),
            Err(until) => {
                self.waits_until = Some(until);
                None
            }
        }
    }

    fn left(&mut self, piece: &Piece) {
        if LanePace::holds(piece.frame.class) {
            self.under_way += u64::from(piece.body.length);
        }
    }

    fn ended(&mut self, piece: &Piece) {
        if LanePace::holds(piece.frame.class) {
            self.under_way -= u64::from(piece.body.length);
        }
    }
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
            gate: PaceGate::new(),
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
    pub(super) fn flush<E>(&mut self, now: LocalNs, out: &mut Out<E>) -> bool {
        self.gate.waits_until = None;
        for ((class, to), lane) in &mut self.lanes {
            while !lane.is_blocked && lane.under_way < UNDER_WAY {
                if out.room() == 0 {
                    return true;
                }
                let (order, piece) = match lane.returned.pop_first() {
                    Some(returned) => returned,
                    None => {
                        let Some(most) = self.gate.piece(now, *class, lane, self.piece_max) else {
                            break;
                        };
                        let Some(piece) = lane.cut_piece(self.kind, most) else { break };
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
                self.gate.left(&piece);
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
        self.gate.ended(&piece);
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
    /// Returns the bytes of the next piece, in its parcel's header or data.
    fn next_bytes(&self, piece_max: u32) -> Option<Span> {
        let Parcel { header, data, .. } = self.parcels.front()?;
        let (of, from) = match self.cut.checked_sub(header.length) {
            None => (header, self.cut),
            Some(from) => (data, from),
        };
        // A piece lies in the header or in one frame of the data.
        let length = (of.length - from).min(piece_max).min(FRAME - from % FRAME);
        Some(Span { offset: of.offset + u64::from(from), length, ..*of })
    }

    fn cut_piece(&mut self, kind: ParcelKind, piece_max: u32) -> Option<Piece> {
        let body = self.next_bytes(piece_max)?;
        let length = body.length;
        let Parcel { number, class, header, data } = *self.parcels.front()?;
        let at = self.cut;
        let frame =
            PieceFrame { kind, class, number, header: header.length, data: data.length, at };
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
