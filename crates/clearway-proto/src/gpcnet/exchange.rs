//! One iteration of a pattern: who sends what to whom, and when that is over.
//!
//! # Model
//! A two-sided iteration is over when everything that is expected has arrived and what was sent is
//! *settled*: long messages when they are through, as with a rendezvous; short ones when not more
//! than [`EAGER`] are on their way, as with a library that copies them and returns. A one-sided
//! iteration is over when all its operations are complete.
//!
//! # Source
//! GPCNeT v1.3. Its alltoall is left to the library there; here it is the pairwise exchange that
//! its congestor spells out: with `n` ranks, in step `i` to `me + i` and from `me - i`, or both
//! with `me xor i` where `n` is a power of two.
//!
//! # Invariants
//! I1. A message that comes before it is expected counts for the next iteration: nothing is lost by
//!     being early.

use alloc::vec;
use alloc::vec::Vec;

use super::channel::{ChannelProgress, CompletionSource, PairChannels};
use super::context::{GpcnetContext, GpcnetLabel, GpcnetPurpose, TestFailure};
use super::frame::GpcnetFrame;
use super::kinds::OUTSTANDING;
use super::reduce::{Reduction, ReductionLane, ReductionOperator};
use crate::base::{Bytes, LocalNs, Rank};
use crate::wire::{Operation, PathId, RemoteSpan, Span, Status};

/// Short messages that a rank runs ahead of their arrival: 128 KiB of 4 KiB each, which is what
/// socket buffers and eager buffers of message-passing libraries commonly hold. Our choice; the
/// published benchmark leaves it to the library.
const EAGER: u64 = 32;
/// Messages up to this length are copied and sent at once (libraries commonly: 4 KiB to 64 KiB).
const EAGER_LENGTH: Bytes = Bytes(4096);

/// What an iteration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangePattern {
    /// To and from two neighbours, this many messages each.
    Neighbours([usize; 2], u32),
    /// The same, then a barrier.
    NeighboursSync([usize; 2], u32),
    /// Writes to two neighbours, this many each.
    Puts([usize; 2], u32),
    /// A read from each of two neighbours.
    Gets([usize; 2]),
    /// A sum over the slice.
    Sum,
    /// To and from each other rank, one after the other.
    Pairwise,
    /// All to the first.
    Incast,
    /// One write to the first.
    PutToRoot,
    /// One read from the first.
    GetFromRoot,
}

/// When a message that was sent no longer holds up its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendCompletion {
    /// As a message-passing library does it.
    ByLength,
    /// When the receiver has said that it is there.
    OnArrival,
}

/// How far the iteration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IterationState {
    /// None has begun.
    Resting,
    /// Messages are under way.
    Moving,
    /// The ranks wait for each other, or for their sum.
    Reducing,
    /// It is over.
    Over,
}

/// The one-sided operations of an iteration.
#[derive(Clone, Copy, Debug, Default)]
struct OneSided {
    /// How many are not complete.
    open: u32,
    /// Bit `i`: operation `i` found no room.
    again: u32,
}

/// A rank's part in one iteration after another.
#[derive(Debug)]
pub(super) struct IteratedExchange {
    pub(super) channels: PairChannels,
    /// The lane of the slice.
    pub(super) slice: Reduction,
    /// Iterations with a wrong sum.
    pub(super) wrong: u64,
    me: usize,
    ranks: usize,
    message: Bytes,
    eager: u64,
    pattern: ExchangePattern,
    state: IterationState,
    /// Messages expected from each place since the test began.
    expected: Vec<u64>,
    /// Expected messages that are not here.
    missing: u64,
    step: usize,
    one_sided: OneSided,
}

impl IteratedExchange {
    /// Creates an `IteratedExchange` for `me` among `slice`, with messages of `message`.
    pub(super) fn new(
        slice: &[Rank],
        message: Bytes,
        settled: SendCompletion,
        carried: CompletionSource,
        cx: &GpcnetContext<'_>,
    ) -> Self {
        let receipts = if settled == SendCompletion::OnArrival {
            CompletionSource::OfReceiver
        } else {
            carried
        };
        let eager =
            if settled == SendCompletion::ByLength && message <= EAGER_LENGTH { EAGER } else { 0 };
        let channels = PairChannels::new(slice, message, receipts, cx);
        Self {
            me: channels.place_of(cx.config.rank).unwrap_or(0),
            ranks: slice.len(),
            slice: Reduction::new(ReductionLane::Slice, slice, cx.config.rank),
            channels,
            message,
            eager,
            pattern: ExchangePattern::Sum,
            state: IterationState::Resting,
            expected: vec![0; slice.len()],
            missing: 0,
            step: 0,
            one_sided: OneSided::default(),
            wrong: 0,
        }
    }

    /// Returns this rank's place in its slice.
    pub(super) fn me(&self) -> usize {
        self.me
    }

    /// Returns whether the iteration that was begun last is over.
    pub(super) fn is_over(&self) -> bool {
        self.state == IterationState::Over
    }

    /// Begins an iteration; the one before must be over.
    pub(super) fn begin(&mut self, cx: &mut GpcnetContext<'_>, pattern: ExchangePattern) {
        self.pattern = pattern;
        self.state = IterationState::Moving;
        match pattern {
            ExchangePattern::Neighbours(places, messages)
            | ExchangePattern::NeighboursSync(places, messages) => {
                places.into_iter().for_each(|place| self.expect(place, messages));
                for _ in 0..messages {
                    places.into_iter().for_each(|place| self.channels.post(cx, place));
                }
            }
            ExchangePattern::Puts(_, messages) => self.issue(cx, 2 * messages),
            ExchangePattern::Gets(_) => self.issue(cx, 2),
            ExchangePattern::PutToRoot | ExchangePattern::GetFromRoot => self.issue(cx, 1),
            ExchangePattern::Sum => {
                self.state = IterationState::Reducing;
                self.slice.start(cx, self.me as u64 + 1, ReductionOperator::Sum);
            }
            ExchangePattern::Pairwise => {
                self.step = 1;
                self.start_step(cx);
            }
            ExchangePattern::Incast if self.me == 0 => {
                (1..self.ranks).for_each(|place| self.expect(place, 1))
            }
            ExchangePattern::Incast => self.channels.post(cx, 0),
        }
        self.go_on(cx);
    }

    /// Waits for `messages` more of `place` from now on.
    fn expect(&mut self, place: usize, messages: u32) {
        let before = self.expected[place].max(self.channels.received(place));
        self.expected[place] += u64::from(messages);
        self.missing += self.expected[place].saturating_sub(before);
    }

    /// Starts one step of the pairwise exchange.
    fn start_step(&mut self, cx: &mut GpcnetContext<'_>) {
        let (n, me, step) = (self.ranks, self.me, self.step);
        let (to, from) = if n.is_power_of_two() {
            (me ^ step, me ^ step)
        } else {
            ((me + step) % n, (me + n - step) % n)
        };
        self.expect(from, 1);
        self.channels.post(cx, to);
    }

    /// Takes every turn that has become possible.
    fn go_on(&mut self, cx: &mut GpcnetContext<'_>) {
        while self.state == IterationState::Moving
            && self.one_sided.open == 0
            && self.missing == 0
            && self.is_settled()
        {
            match self.pattern {
                ExchangePattern::NeighboursSync(..) => {
                    self.state = IterationState::Reducing;
                    self.slice.start(cx, self.me as u64 + 1, ReductionOperator::Sum);
                }
                ExchangePattern::Pairwise if self.step + 1 < self.ranks => {
                    self.step += 1;
                    self.start_step(cx);
                }
                _ => self.state = IterationState::Over,
            }
        }
        if self.state == IterationState::Reducing
            && let Some(sum) = self.slice.result()
        {
            // Every rank adds its place, counted from one.
            let n = self.ranks as u64;
            self.wrong += u64::from(sum != n * (n + 1) / 2);
            self.state = IterationState::Over;
        }
    }

    fn is_settled(&self) -> bool {
        self.channels.under_way <= self.eager
    }

    fn issue(&mut self, cx: &mut GpcnetContext<'_>, operations: u32) {
        self.one_sided = OneSided { open: operations, again: 0 };
        (0..operations).for_each(|i| self.operate(cx, i));
    }

    /// Asks for the one-sided operation `i` of the iteration; neighbours take turns.
    fn operate(&self, cx: &mut GpcnetContext<'_>, i: u32) {
        let place = match self.pattern {
            ExchangePattern::Puts(places, _) | ExchangePattern::Gets(places) => {
                places[i as usize % 2]
            }
            _ => 0,
        };
        let Span { region, offset, .. } = cx.config.memory;
        let (peer, path, class) = (self.channels.peer(place), PathId(0), cx.class);
        let local = Span { length: self.message.0 as u32, ..cx.config.memory };
        let remote = RemoteSpan { region, offset };
        let token = cx.token(GpcnetLabel {
            purpose: GpcnetPurpose::OneSided,
            place,
            sequence: u64::from(i),
        });
        cx.out.operate(match self.pattern {
            ExchangePattern::Gets(_) | ExchangePattern::GetFromRoot => {
                Operation::Read { peer, path, class, from: remote, into: local, token }
            }
            _ => Operation::Write {
                to: peer,
                path,
                class,
                from: local,
                into: remote,
                immediate: Some(0),
                token: Some(token),
            },
        });
    }

    /// Takes a frame of the slice.
    pub(super) fn arrival(&mut self, cx: &mut GpcnetContext<'_>, from: Rank, frame: GpcnetFrame) {
        let Some(place) = self.channels.place_of(from) else { return };
        let news = match frame {
            GpcnetFrame::Segment { sequence, received } => {
                self.channels.segment(cx, place, sequence, received)
            }
            GpcnetFrame::Receipt { received, beyond } => {
                self.channels.receipt(cx, place, received, beyond)
            }
            GpcnetFrame::Step { round, step, value, answer, .. } => {
                self.slice.arrival(cx, from, round, step, value, answer);
                ChannelProgress::default()
            }
        };
        if news.arrived > 0 {
            let (now, expected) = (self.channels.received(place), self.expected[place]);
            self.missing -= now.min(expected).saturating_sub((now - news.arrived).min(expected));
        }
        self.go_on(cx);
    }

    /// Handles the end of an operation.
    ///
    /// # Errors
    /// What ends the test: the wire refuses, or a peer is gone.
    pub(super) fn done(
        &mut self,
        cx: &mut GpcnetContext<'_>,
        label: GpcnetLabel,
        status: Status,
    ) -> Result<(), TestFailure> {
        match status {
            Status::Refused(_) => return Err(TestFailure::Refused),
            Status::Flushed => return Err(TestFailure::Gone),
            _ => {}
        }
        match (label.purpose, status) {
            (GpcnetPurpose::Segment, _) => drop(self.channels.done(cx, label, status)),
            (GpcnetPurpose::Step, Status::NoRoom) => self.slice.no_room(),
            (GpcnetPurpose::OneSided, Status::NoRoom) => {
                self.one_sided.again |= 1 << (label.sequence & 31)
            }
            (GpcnetPurpose::OneSided, _) => {
                self.one_sided.open = self.one_sided.open.saturating_sub(1)
            }
            (GpcnetPurpose::Step, _) => {}
        }
        self.go_on(cx);
        Ok(())
    }

    /// Continues: a transmit queue has room again.
    pub(super) fn room(&mut self, cx: &mut GpcnetContext<'_>) {
        self.channels.room(cx);
        self.slice.room(cx);
        let again = core::mem::take(&mut self.one_sided.again);
        (0..2 * OUTSTANDING).filter(|i| again & (1 << i) != 0).for_each(|i| self.operate(cx, i));
        self.go_on(cx);
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        [self.channels.deadline(), self.slice.deadline()].into_iter().flatten().min()
    }

    pub(super) fn tick(&mut self, cx: &mut GpcnetContext<'_>) {
        self.channels.tick(cx);
        self.slice.tick(cx);
        self.go_on(cx);
    }
}
