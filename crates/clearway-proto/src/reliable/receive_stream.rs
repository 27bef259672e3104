//! The receiving half of a stream: fragments in any order, each taken once; messages in the order
//! in which they were sent.
//!
//! # Model
//! A fragment says where its bytes belong, so it is copied there when it comes, and its digest is
//! taken *there*. Only what is as it was counts as arrived. A message is reported when its last
//! fragment and everything before it have arrived.
//!
//! # Invariants
//! I1. A fragment counts once; what counted is never written again.
//! I2. A body goes nowhere but into registered memory of this rank or the free part of this
//!     stream's inbox.
//! I3. The memory kept is bounded: numbers lie within [`super::WINDOW`] of the first that is
//!     missing.

use alloc::collections::BTreeMap;

use super::frame::{
    Acknowledgement, BITMAP_WORDS, BodyPlacement, CarriedAnswer, FragmentHeader, INBOX,
    MessageTrailer, position, whole,
};
use super::{ANSWER_EVERY, ANSWER_MAX, WINDOW};
use crate::base::{LocalNs, Nanos};
use crate::wire::{PathId, Span};

/// The report of a message when its turn has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeliveredMessage {
    pub(super) tail: MessageTrailer,
    /// Where its bytes lie.
    pub(super) body: Span,
    /// The position behind it, if it lies in the inbox.
    pub(super) end: u64,
    /// When its last fragment came.
    pub(super) at: LocalNs,
    pub(super) is_skipped: bool,
}

/// What to do with a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FragmentAction {
    /// Nothing: it was here before, or cannot be.
    Ignore,
    /// Copy its body to this place and take the digest there, under the fragment's whole number.
    Take { into: Span, number: u64 },
    /// It has arrived, for it has no body.
    Taken,
    /// Its bytes are not what they were.
    Damaged,
    /// Its place does not exist.
    Refuse,
}

/// A fragment whose bytes are where they belong, or soon.
#[derive(Clone, Copy, Debug)]
struct PlacedFragment {
    digest: u32,
    arrived: Option<DeliveredMessage>,
}

/// How a fragment came.
#[derive(Clone, Copy, Debug)]
pub(super) struct FragmentArrival {
    pub(super) number: u32,
    pub(super) body: u32,
    pub(super) path: PathId,
    pub(super) is_marked: bool,
    pub(super) at: LocalNs,
}

/// The receiving half of a stream.
#[derive(Debug)]
pub(super) struct ReceiveStream {
    pub(super) generation: u16,
    /// This stream's part of the inbox; its length is a power of two.
    inbox: Span,
    /// How long the acknowledgement of a whole message waits.
    answer_soon: Nanos,
    /// Everything below has arrived.
    received: u64,
    /// Bit `i` of word `j`: fragment `received + 1 + 64 * j + i` has arrived.
    above: [u64; BITMAP_WORDS],
    checking: BTreeMap<u64, PlacedFragment>,
    tails: BTreeMap<u64, DeliveredMessage>,
    /// Positions of the inbox: up to which the application is done.
    freed: u64,
    advertised_free: u64,
    newest: Option<(u64, PathId, LocalNs)>,
    is_marked: bool,
    unanswered: u32,
    /// A question that waits for the digests of fragments that came before it: its path, and how
    /// many.
    asked: Option<(PathId, usize)>,
    /// The fragment the other way that had the newest acknowledgement with it.
    carrier: Option<u64>,
    /// When an acknowledgement is due.
    pub(super) due: Option<LocalNs>,
    /// When somebody will look whether one is due.
    pub(super) armed: Option<LocalNs>,
}

impl ReceiveStream {
    pub(super) const fn new(generation: u16, inbox: Span, answer_soon: Nanos) -> Self {
        Self {
            generation,
            inbox,
            answer_soon,
            received: 0,
            above: [0; BITMAP_WORDS],
            checking: BTreeMap::new(),
            tails: BTreeMap::new(),
            freed: 0,
            advertised_free: 0,
            newest: None,
            is_marked: false,
            unanswered: 0,
            asked: None,
            carrier: None,
            due: None,
            armed: None,
        }
    }

    /// Looks at a fragment.
    pub(super) fn fragment_arrived(
        &mut self,
        now: LocalNs,
        coming: FragmentArrival,
        data: &FragmentHeader,
    ) -> FragmentAction {
        let number = whole(self.received, coming.number);
        if number < self.received || number > self.received + u64::from(WINDOW) || self.has(number)
        {
            // Our answer was lost, or it is on its way.
            self.due = Some(now);
            return FragmentAction::Ignore;
        }
        // A second copy would be written over the first, whose digest may be good.
        if self.checking.contains_key(&number) {
            return FragmentAction::Ignore;
        }
        self.is_marked |= coming.is_marked;
        self.newest = Some((number, coming.path, coming.at));
        if data.at_once || number > self.received + self.checking.len() as u64 {
            self.due = Some(now);
        }
        if data.is_skipped {
            let arrived = data.tail.map(|tail| DeliveredMessage {
                tail,
                body: Span::EMPTY,
                end: 0,
                at: coming.at,
                is_skipped: true,
            });
            self.has_arrived(now, number, arrived);
            return FragmentAction::Taken;
        }
        let Some((into, end)) = self.place(data.place, coming.body) else {
            return FragmentAction::Ignore;
        };
        let arrived = match data.tail {
            None => None,
            Some(tail) => match self.whole_message(tail, data.place, into, end) {
                Some(body) => {
                    Some(DeliveredMessage { tail, body, end, at: coming.at, is_skipped: false })
                }
                None => return FragmentAction::Ignore,
            },
        };
        if coming.body == 0 && data.place.region == INBOX {
            self.has_arrived(now, number, arrived);
            return FragmentAction::Taken;
        }
        self.checking.insert(number, PlacedFragment { digest: data.digest, arrived });
        FragmentAction::Take { into, number }
    }

    /// Returns the whole number that ends in `low`.
    pub(super) const fn whole(&self, low: u32) -> u64 {
        whole(self.received, low)
    }

    /// Returns the path on which the newest fragment came.
    pub(super) fn path(&self) -> PathId {
        self.newest.map_or(PathId(0), |(_, path, _)| path)
    }

    /// Returns whether fragment `number` has arrived.
    const fn has(&self, number: u64) -> bool {
        if number <= self.received {
            return number < self.received;
        }
        let bit = number - self.received - 1;
        let word = (bit / 64) as usize;
        word < BITMAP_WORDS && self.above[word] & 1 << (bit % 64) != 0
    }

    /// Returns where `length` bytes for `place` go, and the position behind them; nothing for a
    /// part of the inbox that is not free.
    fn place(&self, place: BodyPlacement, length: u32) -> Option<(Span, u64)> {
        if place.region != INBOX {
            return Some((Span { region: place.region, offset: place.offset, length }, 0));
        }
        let room = u64::from(self.inbox.length);
        let from = position(self.freed, place.offset);
        let end = from.checked_add(u64::from(length))?;
        let turn = from % room;
        let is_free =
            from >= self.freed && end <= self.freed + room && turn + u64::from(length) <= room;
        let into = Span { region: self.inbox.region, offset: self.inbox.offset + turn, length };
        is_free.then_some((into, end))
    }

    /// Returns all bytes of the message that ends with `into`.
    fn whole_message(
        &self,
        tail: MessageTrailer,
        place: BodyPlacement,
        into: Span,
        end: u64,
    ) -> Option<Span> {
        let (MessageTrailer::Message { length, .. } | MessageTrailer::Landed { length, .. }) = tail;
        let before = u64::from(length.checked_sub(into.length)?);
        // The last fragment of a message with bytes has one of them.
        if into.length == 0 && length > 0 {
            return None;
        }
        let offset = into.offset.checked_sub(before)?;
        let is_inside = place.region != INBOX
            || (offset >= self.inbox.offset && end - u64::from(into.length) >= self.freed + before);
        is_inside.then_some(Span { region: into.region, offset, length })
    }

    /// Records that a question came on `path`; returns whether it can be answered now. Otherwise it
    /// can be when what came before it is known to be good or not.
    pub(super) fn question(&mut self, path: PathId) -> bool {
        self.asked = (!self.checking.is_empty()).then_some((path, self.checking.len()));
        self.asked.is_none()
    }

    /// Returns the path of a question that can be answered now that one more fragment is known to
    /// be good or not.
    pub(super) fn question_due(&mut self) -> Option<PathId> {
        let (path, left) = self.asked.take()?;
        if left > 1 {
            self.asked = Some((path, left - 1));
        }
        (left <= 1).then_some(path)
    }

    /// Returns the digest of the bytes of fragment `number` where they belong; nothing when there
    /// is no such place.
    pub(super) fn checked(
        &mut self,
        now: LocalNs,
        number: u64,
        digest: Option<u32>,
    ) -> FragmentAction {
        let Some(placed) = self.checking.remove(&number) else { return FragmentAction::Ignore };
        match digest {
            Some(digest) if digest == placed.digest => {
                self.has_arrived(now, number, placed.arrived);
                FragmentAction::Taken
            }
            Some(_) => FragmentAction::Damaged,
            None => FragmentAction::Refuse,
        }
    }

    fn has_arrived(&mut self, now: LocalNs, number: u64, arrived: Option<DeliveredMessage>) {
        if number < self.received || self.has(number) {
            return;
        }
        let is_last = arrived.is_some();
        if let Some(arrived) = arrived {
            self.tails.insert(number, arrived);
        }
        if number == self.received {
            self.advance();
        } else {
            let bit = number - self.received - 1;
            if let Some(word) = self.above.get_mut((bit / 64) as usize) {
                *word |= 1 << (bit % 64);
            }
        }
        self.unanswered += 1;
        let due = match (is_last, self.unanswered >= ANSWER_EVERY) {
            (_, true) => now,
            (true, false) => now + self.answer_soon,
            (false, false) => now + ANSWER_MAX,
        };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Moves past the first missing fragment, which has come, and all behind it that are here.
    fn advance(&mut self) {
        loop {
            self.received += 1;
            let is_next_here = self.above[0] & 1 != 0;
            for word in 0..BITMAP_WORDS {
                let carried = self.above.get(word + 1).map_or(0, |next| next << 63);
                self.above[word] = self.above[word] >> 1 | carried;
            }
            if !is_next_here {
                return;
            }
        }
    }

    /// Returns the next message whose turn has come.
    pub(super) fn next_delivered(&mut self) -> Option<DeliveredMessage> {
        let first = self.tails.first_entry()?;
        (*first.key() < self.received).then(|| first.remove())
    }

    /// Frees the inbox up to `position`: the application is done with it.
    pub(super) fn free(&mut self, now: LocalNs, position: u64) {
        self.freed = self.freed.max(position);
        let is_much = self.freed - self.advertised_free >= u64::from(self.inbox.length) / 4;
        let due = if is_much { now } else { now + ANSWER_MAX };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Returns an acknowledgement for fragment `by`, which leaves the other way, if one is due soon
    /// and nothing is missing.
    pub(super) fn carried_answer(&mut self, now: LocalNs, by: u64) -> Option<CarriedAnswer> {
        if self.due.is_none() || self.above != [0; BITMAP_WORDS] {
            return None;
        }
        let (number, acknowledgement) = self.answer(now);
        self.carrier = Some(by);
        CarriedAnswer::new(self.generation, number as u32, &acknowledgement)
    }

    /// Records that fragment `by` did not leave: if it had the newest acknowledgement with it, the
    /// next one is due at once.
    pub(super) fn not_carried(&mut self, now: LocalNs, by: u64) {
        if self.carrier == Some(by) {
            (self.carrier, self.due) = (None, Some(now));
        }
    }

    /// Returns an acknowledgement, with the number up to which all has arrived.
    pub(super) fn answer(&mut self, now: LocalNs) -> (u64, Acknowledgement) {
        (self.due, self.unanswered, self.advertised_free) = (None, 0, self.freed);
        self.carrier = None;
        let (newest, path, at) = self.newest.unwrap_or((0, PathId(0), now));
        let acknowledgement = Acknowledgement {
            is_marked: core::mem::take(&mut self.is_marked),
            is_answer: false,
            freed: self.freed % super::frame::OFFSET_LIMIT,
            path,
            newest: newest as u32,
            waited_ns: now.since(at).0.min(u64::from(u32::MAX)) as u32,
            bitmap: self.above,
        };
        (self.received, acknowledgement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RegionId;

    const PATH: PathId = PathId(1);

    /// Returns a fragment of a write.
    fn come(stream: &mut ReceiveStream, number: u32) -> FragmentAction {
        let place = BodyPlacement { region: RegionId(9), offset: 0 };
        let data = FragmentHeader {
            is_open: false,
            is_skipped: false,
            at_once: false,
            digest: 7,
            place,
            carried: None,
            tail: None,
        };
        let coming =
            FragmentArrival { number, body: 5, path: PATH, is_marked: false, at: LocalNs(1) };
        stream.fragment_arrived(LocalNs(1), coming, &data)
    }

    #[test]
    fn comes__a_second_copy_is_not_written_over_one_that_is_being_looked_at() {
        let mut stream = ReceiveStream::new(
            0,
            Span { region: RegionId(0), offset: 0, length: 4_096 },
            Nanos::ZERO,
        );
        assert!(matches!(come(&mut stream, 0), FragmentAction::Take { .. }));
        assert_eq!(come(&mut stream, 0), FragmentAction::Ignore);
        assert_eq!(stream.checked(LocalNs(2), 0, Some(8)), FragmentAction::Damaged);
        assert!(
            matches!(come(&mut stream, 0), FragmentAction::Take { .. }),
            "the next copy, after a bad one"
        );
    }

    #[test]
    fn question__is_answered_when_what_came_before_it_was_looked_at() {
        let mut stream = ReceiveStream::new(
            0,
            Span { region: RegionId(0), offset: 0, length: 4_096 },
            Nanos::ZERO,
        );
        assert!(stream.question(PATH));
        (0..2).for_each(|number| {
            assert!(matches!(come(&mut stream, number), FragmentAction::Take { .. }))
        });
        assert!(!stream.question(PATH));
        assert!(matches!(come(&mut stream, 2), FragmentAction::Take { .. }));
        let due = [0, 1, 2].map(|number| {
            stream.checked(LocalNs(2), number, Some(7));
            stream.question_due()
        });
        assert_eq!(due, [None, Some(PATH), None]);
    }

    #[test]
    fn not_carried__an_acknowledgement_is_due_again_if_the_newest_did_not_leave() {
        let mut stream = ReceiveStream::new(
            0,
            Span { region: RegionId(0), offset: 0, length: 4_096 },
            Nanos::from_micros(20),
        );
        assert_eq!(stream.carried_answer(LocalNs(1), 3), None, "nothing has come");
        stream.not_carried(LocalNs(1), 3);
        assert_eq!(stream.due, None, "nothing was lost");
        assert!(matches!(come(&mut stream, 0), FragmentAction::Take { .. }));
        stream.checked(LocalNs(2), 0, Some(7));
        let carried = stream.carried_answer(LocalNs(3), 4).expect("one is due");
        assert_eq!((carried.number, stream.due), (1, None));
        stream.not_carried(LocalNs(4), 3);
        assert_eq!(stream.due, None, "another fragment had it");
        stream.not_carried(LocalNs(4), 4);
        assert_eq!(stream.due, Some(LocalNs(4)));
        stream.answer(LocalNs(5));
        stream.not_carried(LocalNs(6), 4);
        assert_eq!(stream.due, None, "a newer one has left");
    }
}
