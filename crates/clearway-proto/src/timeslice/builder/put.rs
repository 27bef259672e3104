//! A builder's side of puts: copies what came along, fetches what did not, and says how many it
//! has.
//!
//! # Invariants
//! I1. A put touches no byte outside the ring of the input that it came from.

use alloc::collections::{BTreeMap, VecDeque};

use super::Builder;
use crate::base::Rank;
use crate::timeslice::context::{TimesliceContext, TimesliceEvent, TimesliceLabel};
use crate::timeslice::frame::SEQUENCE_MASK;
use crate::timeslice::policy::Policy;
use crate::wire::{More, Operation, PathId, RemoteSpan, Span, Status};

/// Puts that one input may have announced: many times what an honest one has.
const ANNOUNCED_MAX: u32 = 64;

/// What is being fetched.
#[derive(Debug, Default)]
pub(super) struct PendingFetches {
    under_way: BTreeMap<u32, Fetch>,
    /// Numbers of those that found no room.
    again: VecDeque<u32>,
    number: u32,
}

#[derive(Clone, Copy, Debug)]
struct Fetch {
    peer: Rank,
    place: usize,
    from: RemoteSpan,
    into: Span,
}

impl Builder {
    /// Handles a put of the input at `place`: `length` bytes, which came as `body` or lie at
    /// `from`, to `into` of its ring.
    pub(in crate::timeslice) fn put(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        place: usize,
        (into, from, length): (u64, RemoteSpan, u32),
        body: Span,
    ) -> More {
        let (ring, rings) = (cx.config.ring.0, cx.config.rings);
        let fits = into.checked_add(u64::from(length)).is_some_and(|end| end <= ring) && length > 0;
        let announced = self.puts.under_way.len() as u64;
        if cx.config.policy != Policy::Put
            || !fits
            || announced >= u64::from(ANNOUNCED_MAX) * self.lines.len() as u64
        {
            self.record.strangers += 1;
            return More::No;
        }
        let into = Span {
            region: rings.region,
            offset: rings.offset + place as u64 * ring + into,
            length,
        };
        if body.length == length {
            cx.out.operate(Operation::Copy { from: body, into });
            self.take_in(place, length);
        } else {
            let number = self.puts.number & SEQUENCE_MASK;
            self.puts.number = self.puts.number.wrapping_add(1);
            self.puts
                .under_way
                .insert(number, Fetch { peer: self.lines[place].peer, place, from, into });
            self.fetch(cx, number);
        }
        self.go_on(cx)
    }

    fn fetch(&mut self, cx: &mut TimesliceContext<'_>, number: u32) {
        let Some(Fetch { peer, place, from, into }) = self.puts.under_way.get(&number).copied()
        else {
            return;
        };
        let place = place as u32;
        let token = TimesliceLabel::Write { place, sequence: number, piece: 0, life: 0 }.token();
        cx.out.operate(Operation::Read {
            peer,
            path: PathId(0),
            class: cx.config.class,
            from,
            into,
            token,
        });
    }

    /// Handles the end of a fetch.
    pub(super) fn fetched(&mut self, cx: &mut TimesliceContext<'_>, number: u32, status: Status) {
        if status == Status::NoRoom {
            return self.puts.again.push_back(number);
        }
        let Some(Fetch { peer, place, into, .. }) = self.puts.under_way.remove(&number) else {
            return;
        };
        match status {
            Status::Complete => self.take_in(place, into.length),
            Status::Refused(missing) => cx.out.notify(TimesliceEvent::Refused { peer, missing }),
            _ => {}
        }
    }

    /// Fetches what found no room, now that there is some.
    pub(super) fn fetch_again(&mut self, cx: &mut TimesliceContext<'_>) {
        for _ in 0..self.puts.again.len() {
            if let Some(number) = self.puts.again.pop_front() {
                self.fetch(cx, number);
            }
        }
    }

    /// Takes in a put of the input at `place`.
    fn take_in(&mut self, place: usize, length: u32) {
        self.record.contributions += 1;
        self.record.bytes += u64::from(length);
        let line = &mut self.lines[place];
        line.granted = line.granted.wrapping_add(1);
        line.pending.credit = true;
        self.outbox.want(place);
    }
}
