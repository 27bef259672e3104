//! What an input has to send: contributions in its memory, in the order of their timeslices.
//!
//! # Model
//! A contribution is a few spans of memory, sent one behind the other: descriptors and contents,
//! each in two where a ring of the source ends. The application gives one for each timeslice in
//! order ([`Supply::Given`]), or says once how long they are ([`Supply::Endless`]): then nothing is
//! ever waited for, and all come from the same memory.
//!
//! # Invariants
//! I1. Memory is given back in the order in which it was given, whatever the order of release.

use alloc::collections::VecDeque;

use crate::base::{Bytes, RandomKey};
use crate::wire::Span;

/// The most writes of one contribution: descriptors and contents, each cut in two where its ring
/// ends.
pub(super) const PIECES_MAX: usize = 4;

/// How long contributions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContributionSizes {
    /// All the same.
    Constant(Bytes),
    /// Evenly drawn between two lengths, the second one included; the same for the same key and
    /// timeslice.
    Between(Bytes, Bytes, RandomKey),
    /// All the same, each with three short messages behind it: what FLESnet sends for each
    /// contribution.
    Mixed(Bytes),
}

/// FLESnet sends one message of 16 and two of 64 bytes with each contribution (CUG 2019, slide 14).
const SHORT_MESSAGES: [u32; 3] = [16, 64, 64];

impl ContributionSizes {
    /// Bytes of the short messages of [`Self::Mixed`].
    pub const SHORT_MESSAGES_BYTES: Bytes =
        Bytes((SHORT_MESSAGES[0] + SHORT_MESSAGES[1] + SHORT_MESSAGES[2]) as u64);

    /// Returns the length of the contribution to `timeslice`.
    pub fn length_at(&self, timeslice: u64) -> Bytes {
        match *self {
            Self::Constant(length) => length,
            Self::Mixed(length) => Bytes(length.0 + Self::SHORT_MESSAGES_BYTES.0),
            Self::Between(least, most, key) => {
                let spread = most.0.saturating_sub(least.0).saturating_add(1);
                Bytes(least.0 + key.node(timeslice).stream().below(spread.max(1)))
            }
        }
    }
}

/// Where contributions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContributionSource {
    /// Every contribution is there from the beginning, at the beginning of the same memory.
    Endless(Span, ContributionSizes),
    /// The application gives them.
    Given,
}

/// One contribution: at most four spans, in the order in which they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContributionSpans {
    spans: [Span; PIECES_MAX],
    count: u8,
}

impl ContributionSpans {
    /// Creates a body of these spans; empty ones are left out. `None` when more than four are left,
    /// or none.
    pub fn new(spans: impl IntoIterator<Item = Span>) -> Option<Self> {
        let mut pieces = Self { spans: [Span::EMPTY; PIECES_MAX], count: 0 };
        for span in spans.into_iter().filter(|span| span.length > 0) {
            *pieces.spans.get_mut(usize::from(pieces.count))? = span;
            pieces.count += 1;
        }
        (pieces.count > 0).then_some(pieces)
    }

    /// Returns the spans.
    pub(super) fn spans(&self) -> &[Span] {
        &self.spans[..usize::from(self.count)]
    }

    /// Returns the bytes of all.
    pub(super) fn length(&self) -> u64 {
        self.spans().iter().map(|span| u64::from(span.length)).sum()
    }
}

/// A contribution that the application gave.
#[derive(Clone, Copy, Debug)]
struct Entry {
    pieces: ContributionSpans,
    released: bool,
}

/// The contributions of an input.
#[derive(Debug)]
pub(super) struct Supply {
    source: ContributionSource,
    /// Timeslices below this one were given back.
    first: u64,
    entries: VecDeque<Entry>,
    /// Where the stream ends, once that is known.
    end: Option<u64>,
    /// Bytes of the longest contribution so far.
    longest: u64,
    /// The most contributions that were held at a time: in this term, and in the one before.
    recent_peak: [u64; 2],
}

impl Supply {
    /// Creates a `Supply` from timeslice `first` on.
    pub(super) const fn new(source: ContributionSource, first: u64) -> Self {
        let longest = match source {
            ContributionSource::Endless(
                _,
                ContributionSizes::Constant(length) | ContributionSizes::Between(_, length, _),
            ) => length.0,
            ContributionSource::Endless(_, ContributionSizes::Mixed(length)) => {
                length.0 + ContributionSizes::SHORT_MESSAGES_BYTES.0
            }
            ContributionSource::Given => 0,
        };
        Self { source, first, entries: VecDeque::new(), end: None, longest, recent_peak: [0; 2] }
    }

    /// Timeslices below this one can be sent, or were.
    pub(super) fn ready(&self) -> u64 {
        let ready = match self.source {
            ContributionSource::Endless(..) => u64::MAX,
            ContributionSource::Given => self.first + self.entries.len() as u64,
        };
        ready.min(self.end.unwrap_or(u64::MAX))
    }

    /// Returns the first timeslice that was not given back.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// Returns the most contributions that were held at a time, in this term or the one before.
    pub(super) fn recent_peak(&self) -> u64 {
        match self.source {
            ContributionSource::Endless(..) => u64::MAX,
            ContributionSource::Given => self.recent_peak[0].max(self.recent_peak[1]),
        }
    }

    /// Begins another term of what [`Self::recent_peak`] counts.
    pub(super) fn begin_term(&mut self) {
        self.recent_peak = [self.entries.len() as u64, self.recent_peak[0]];
    }

    /// Returns the bytes of the longest contribution so far.
    pub(super) const fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns where the stream ends.
    pub(super) const fn end(&self) -> Option<u64> {
        self.end
    }

    /// Ends the stream before `timeslice`, or where it has come to, if that is later.
    pub(super) fn finish(&mut self, timeslice: u64) {
        self.end = Some(timeslice.max(self.first + self.entries.len() as u64));
    }

    /// Gives one more contribution.
    pub(super) fn give(&mut self, pieces: ContributionSpans) {
        self.longest = self.longest.max(pieces.length());
        self.entries.push_back(Entry { pieces, released: false });
        self.recent_peak[0] = self.recent_peak[0].max(self.entries.len() as u64);
    }

    /// Returns the contribution to `timeslice`, which is ready and not released.
    pub(super) fn pieces(&self, timeslice: u64) -> Option<ContributionSpans> {
        match self.source {
            ContributionSource::Endless(memory, ContributionSizes::Mixed(length)) => {
                let most = u64::from(memory.length)
                    .saturating_sub(ContributionSizes::SHORT_MESSAGES_BYTES.0);
                let mut offset = memory.offset;
                ContributionSpans::new(
                    [length.0.clamp(1, most.max(1)) as u32].into_iter().chain(SHORT_MESSAGES).map(
                        |length| {
                            let span = Span { offset, length, ..memory };
                            offset += u64::from(length);
                            span
                        },
                    ),
                )
            }
            ContributionSource::Endless(memory, sizes) => {
                let length = sizes.length_at(timeslice).0.clamp(1, u64::from(memory.length)) as u32;
                ContributionSpans::new([Span { length, ..memory }])
            }
            ContributionSource::Given => self
                .entries
                .get(timeslice.checked_sub(self.first)? as usize)
                .map(|entry| entry.pieces),
        }
    }

    /// Releases the contribution to `timeslice`, which is no longer needed. Returns the timeslice
    /// below which all memory is free, if that moved.
    pub(super) fn release(&mut self, timeslice: u64) -> Option<u64> {
        let place = timeslice.checked_sub(self.first)? as usize;
        self.entries.get_mut(place)?.released = true;
        let before = self.first;
        while self.entries.front().is_some_and(|entry| entry.released) {
            self.entries.pop_front();
            self.first += 1;
        }
        (self.first > before).then_some(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RegionId;

    fn span(offset: u64, length: u32) -> Span {
        Span { region: RegionId(0), offset, length }
    }

    #[test]
    fn release__gives_memory_back_in_order() {
        let mut supply = Supply::new(ContributionSource::Given, 0);
        (0..3).for_each(|i| {
            supply.give(ContributionSpans::new([span(i * 8, 8)]).expect("one piece"))
        });
        assert_eq!(supply.ready(), 3);
        assert_eq!(supply.release(1), None);
        assert_eq!(supply.release(0), Some(2));
        assert_eq!(supply.release(0), None, "it was given back");
        assert_eq!(supply.release(7), None, "it is not there");
        assert_eq!(supply.pieces(2), ContributionSpans::new([span(16, 8)]));
        supply.finish(1);
        assert_eq!(supply.end(), Some(3), "what was given will be sent");
    }

    #[test]
    fn recent_peak__is_of_this_term_and_the_one_before() {
        let mut supply = Supply::new(ContributionSource::Given, 0);
        let piece = ContributionSpans::new([span(0, 8)]).expect("one piece");
        (0..5).for_each(|_| supply.give(piece));
        (0..4).for_each(|timeslice| {
            supply.release(timeslice);
        });
        assert_eq!((supply.recent_peak(), supply.first()), (5, 4));
        supply.begin_term();
        assert_eq!(supply.recent_peak(), 5);
        supply.give(piece);
        supply.begin_term();
        assert_eq!(supply.recent_peak(), 2);
    }

    #[test]
    fn pieces__are_the_spans_that_are_not_empty() {
        let pieces =
            ContributionSpans::new([span(0, 4), Span::EMPTY, span(8, 2)]).expect("two pieces");
        assert_eq!(pieces.spans(), [span(0, 4), span(8, 2)]);
        assert_eq!(pieces.length(), 6);
        assert_eq!(ContributionSpans::new([Span::EMPTY]), None);
        assert_eq!(ContributionSpans::new([span(0, 1); 5]), None);
    }

    #[test]
    fn sizes__a_mix_is_four_messages_behind_each_other() {
        let supply = Supply::new(
            ContributionSource::Endless(span(8, 244), ContributionSizes::Mixed(Bytes(100))),
            0,
        );
        assert_eq!(
            supply.pieces(7),
            ContributionSpans::new([span(8, 100), span(108, 16), span(124, 64), span(188, 64)])
        );
        assert_eq!(
            (supply.longest(), ContributionSizes::Mixed(Bytes(100)).length_at(1)),
            (244, Bytes(244))
        );
    }

    #[test]
    fn sizes__are_a_function_of_the_timeslice() {
        let sizes = ContributionSizes::Between(Bytes(10), Bytes(12), RandomKey::new(3));
        assert!((0..100).all(|t| (10..=12).contains(&sizes.length_at(t).0)
            && sizes.length_at(t) == sizes.length_at(t)));
        assert_eq!((0..100).map(|t| sizes.length_at(t).0).max(), Some(12));
        let mut supply = Supply::new(ContributionSource::Endless(span(0, 11), sizes), 0);
        assert!((0..100).all(|t| supply.pieces(t).is_some_and(|pieces| pieces.length() <= 11)));
        supply.finish(5);
        assert_eq!(supply.ready(), 5);
    }
}
