//! Parcels of one peer that arrive.
//!
//! # Invariants
//! I1. A piece that is not the next one of its class is a violation.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::frame::PieceFrame;
use super::frames::FramePool;
use super::{CallConfig, FRAME, ReceivedParcel, header_frames};
use crate::base::Class;
use crate::wire::{Operation, Out, Span};

/// The peer broke a rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation;

/// A parcel of which some pieces have arrived.
#[derive(Debug)]
struct PartialParcel {
    frame: PieceFrame,
    received: u32,
    frames: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct ParcelInbox {
    pool: FramePool,
    partial: [Option<PartialParcel>; Class::ALL.len()],
    /// Frames of whole parcels, by the number of the call.
    whole: BTreeMap<u64, Vec<u32>>,
}

impl PartialParcel {
    /// Returns the frame and the place in it of the byte at `at`; the first frame is the header's.
    const fn place(&self, at: u32) -> (usize, u32) {
        if at < self.frame.header || self.frame.data == 0 {
            return (0, at);
        }
        let at = at - self.frame.header;
        let first = header_frames(self.frame.header, self.frame.data) as usize;
        (first + (at / FRAME) as usize, at % FRAME)
    }
}

impl ParcelInbox {
    pub(super) fn new(config: &CallConfig, place: u32) -> Self {
        Self {
            pool: FramePool::new(config.frames, place, config.window),
            partial: core::array::from_fn(|_| None),
            whole: BTreeMap::new(),
        }
    }

    /// Takes a piece; returns its parcel if it is whole now.
    pub(super) fn take<E>(
        &mut self,
        frame: PieceFrame,
        body: Span,
        out: &mut Out<E>,
    ) -> Result<Option<ReceivedParcel>, Violation> {
        let slot = &mut self.partial[frame.class.index()];
        let mut parcel = match slot.take() {
            Some(parcel) => parcel,
            None if self.whole.contains_key(&frame.number) => return Err(Violation),
            None => PartialParcel { frame, received: 0, frames: Vec::new() },
        };
        let begun = PieceFrame { at: parcel.received, ..parcel.frame };
        if frame != begun {
            self.pool.give_back(parcel.frames);
            return Err(Violation);
        }
        let total = frame.header + frame.data;
        let (number, at) = parcel.place(frame.at);
        // A piece lies in the header or in one frame of the data.
        let most = if frame.at < frame.header { frame.header } else { FRAME } - at;
        let is_good = body.length <= most
            && u64::from(frame.at) + u64::from(body.length) <= u64::from(total)
            && (body.length > 0 || total == 0);
        if !is_good {
            self.pool.give_back(parcel.frames);
            return Err(Violation);
        }
        while parcel.frames.len() <= number {
            match self.pool.take() {
                Some(frame) => parcel.frames.push(frame),
                None => {
                    self.pool.give_back(parcel.frames);
                    return Err(Violation);
                }
            }
        }
        if body.length > 0 {
            let into = self.pool.span(parcel.frames[number], at, body.length);
            out.operate(Operation::Copy { from: body, into });
        }
        parcel.received += body.length;
        if parcel.received < total {
            *slot = Some(parcel);
            return Ok(None);
        }
        Ok(Some(self.finish(parcel)))
    }

    fn finish(&mut self, parcel: PartialParcel) -> ReceivedParcel {
        let PartialParcel { frame, frames, .. } = parcel;
        let count = header_frames(frame.header, frame.data) as usize;
        let (header, data) = frames.split_at(count.min(frames.len()));
        let header =
            header.first().map_or(Span::EMPTY, |first| self.pool.span(*first, 0, frame.header));
        let spans = data.iter().zip((0..frame.data).step_by(FRAME as usize));
        let spans = spans
            .map(|(number, at)| self.pool.span(*number, 0, FRAME.min(frame.data - at)))
            .collect();
        self.whole.insert(frame.number, frames);
        ReceivedParcel { number: frame.number, class: frame.class, header, data: spans }
    }

    /// Returns whether no frame is in use.
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.partial.iter().all(Option::is_none)
    }

    /// Frees the frames of a parcel.
    pub(super) fn release(&mut self, number: u64) {
        if let Some(frames) = self.whole.remove(&number) {
            self.pool.give_back(frames);
        }
    }
}
