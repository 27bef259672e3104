//! Messages of one size between this rank and the others of its slice: cut into segments, counted,
//! sent again when lost.
//!
//! # Model
//! A *channel* is a pair of counters for each direction. The sender knows how many segments it was
//! asked to send, has sent, and knows to be through; the receiver how many have arrived without a
//! gap, and which beyond. A message is through when its last segment is. Where the wire loses
//! nothing a segment is through when the network has it, unless the receiver's word is wanted; on a
//! lossy wire it always is, and what has not been confirmed in time is sent again. The time-out is
//! learned from the peer's earlier confirmations ([`super::trip`]).
//!
//! # Invariants
//! I1. A segment counts once, however often it comes.
//! I2. No segment is sent more than 128 beyond the first one that is not through.
//!
//! # Not here
//! What is waited for: [`super::exchange`].

use alloc::vec::Vec;

use super::context::{GpcnetContext, GpcnetLabel, GpcnetPurpose};
use super::frame::GpcnetFrame;
use super::round_trip::RoundTrip;
use crate::base::{Bytes, LocalNs, Rank};
use crate::wire::{Delivery, Status};

/// Segments between receipts: a quarter of the window of a lossy wire, so that it never runs dry
/// waiting for one.
const RECEIPT_EVERY: u32 = 4;

/// The side that says that a message is through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionSource {
    /// The wire, when the network has it.
    OfWire,
    /// The receiver, in messages of its own.
    OfReceiver,
    /// The receiver, in its own messages of the other direction, of which there are as many.
    Carried,
}

/// How a message is cut.
#[derive(Clone, Copy, Debug)]
struct ChannelSegmentation {
    segments: u32,
    body: u32,
    last: u32,
}

impl ChannelSegmentation {
    fn new(message: Bytes, body_max: u32) -> Self {
        let body = u64::from(body_max.max(1));
        let segments = message.0.div_ceil(body).max(1);
        Self {
            segments: segments as u32,
            body: body as u32,
            last: (message.0 - (segments - 1) * body) as u32,
        }
    }

    fn body_of(self, sequence: u64) -> u32 {
        if (sequence + 1).is_multiple_of(u64::from(self.segments)) { self.last } else { self.body }
    }

    fn messages(self, segments: u64) -> u64 {
        segments / u64::from(self.segments)
    }
}

/// The state of one pair. All counts are segments since the test began.
#[derive(Clone, Debug)]
struct PairChannel {
    peer: Rank,
    asked: u64,
    sent: u64,
    through: u64,
    through_beyond: u128,
    /// Sent in vain: bit `i` is segment `through + i`.
    again: u128,
    trip: RoundTrip,
    timeout_at: Option<LocalNs>,
    received: u64,
    received_beyond: u128,
    since_receipt: u32,
}

/// Moves `base` over the bits that are set without a gap.
fn advance(base: &mut u64, beyond: &mut u128) {
    let run = (!*beyond).trailing_zeros();
    *base += u64::from(run);
    *beyond = beyond.checked_shr(run).unwrap_or(0);
}

/// What an input changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChannelProgress {
    /// Messages that are complete here now and were not before.
    pub(super) arrived: u64,
    /// Own messages that are through now and were not before.
    pub(super) through: u64,
}

/// All channels of a rank in one test.
#[derive(Debug)]
pub(super) struct PairChannels {
    channels: Vec<PairChannel>,
    /// Places by rank.
    places: Vec<(Rank, u32)>,
    shape: ChannelSegmentation,
    receipts: CompletionSource,
    window: u32,
    /// A transmit queue is full.
    blocked: bool,
    /// The effect buffer was full: something is left to send.
    pub(super) unfinished: bool,
    /// No channel times out before.
    timeout_at: Option<LocalNs>,
    /// Messages that are under way, all channels together.
    pub(super) under_way: u64,
    /// Segments sent again because nobody confirmed them in time.
    pub(super) resent: u64,
}

impl PairChannels {
    /// Creates a `PairChannels` between `me` and each of `slice`, for messages of `message`.
    pub(super) fn new(
        slice: &[Rank],
        message: Bytes,
        receipts: CompletionSource,
        cx: &GpcnetContext<'_>,
    ) -> Self {
        let lossy = cx.config.delivery == Delivery::Lossy;
        let receipts = if lossy && receipts == CompletionSource::OfWire {
            CompletionSource::OfReceiver
        } else {
            receipts
        };
        let receipts = if !lossy && receipts == CompletionSource::Carried {
            CompletionSource::OfWire
        } else {
            receipts
        };
        let channel = |peer: &Rank| PairChannel {
            peer: *peer,
            asked: 0,
            sent: 0,
            through: 0,
            through_beyond: 0,
            again: 0,
            trip: RoundTrip::new(),
            timeout_at: None,
            received: 0,
            received_beyond: 0,
            since_receipt: 0,
        };
        let mut places: Vec<(Rank, u32)> = slice.iter().copied().zip(0..).collect();
        places.sort_unstable();
        Self {
            channels: slice.iter().map(channel).collect(),
            places,
            shape: ChannelSegmentation::new(message, cx.body_max),
            receipts,
            window: cx.config.window(),
            blocked: false,
            unfinished: false,
            timeout_at: None,
            under_way: 0,
            resent: 0,
        }
    }

    /// Returns the place of `rank` in the slice.
    pub(super) fn place_of(&self, rank: Rank) -> Option<usize> {
        let found = self.places.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
        self.places.get(found).map(|(_, place)| *place as usize)
    }

    /// Returns the rank at `place`.
    pub(super) fn peer(&self, place: usize) -> Rank {
        self.channels[place].peer
    }

    /// Returns the messages of the rank at `place` that are complete here.
    pub(super) fn received(&self, place: usize) -> u64 {
        self.shape.messages(self.channels[place].received)
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        self.timeout_at
    }

    /// Sends one message to the rank at `place`, now or as soon as the window allows.
    pub(super) fn post(&mut self, cx: &mut GpcnetContext<'_>, place: usize) {
        self.channels[place].asked += u64::from(self.shape.segments);
        self.under_way += 1;
        self.pump(cx, place);
    }

    /// Sends what the window and the buffers allow.
    fn pump(&mut self, cx: &mut GpcnetContext<'_>, place: usize) {
        loop {
            if self.blocked {
                return;
            }
            let window = u64::from(self.window);
            let channel = &mut self.channels[place];
            let fresh = channel.sent < channel.asked && channel.sent - channel.through < window;
            if channel.again == 0 && !fresh {
                return;
            }
            if cx.out.room() == 0 {
                self.unfinished = true;
                return;
            }
            let sequence = if channel.again == 0 {
                channel.sent += 1;
                channel.trip.sent(channel.sent - 1, cx.now);
                channel.sent - 1
            } else {
                let first = channel.again.trailing_zeros();
                channel.again &= !(1 << first);
                channel.through + u64::from(first)
            };
            self.send(cx, place, sequence);
        }
    }

    fn send(&mut self, cx: &mut GpcnetContext<'_>, place: usize, sequence: u64) {
        let channel = &mut self.channels[place];
        let frame = GpcnetFrame::Segment { sequence, received: channel.received };
        let label = GpcnetLabel { purpose: GpcnetPurpose::Segment, place, sequence };
        cx.send(channel.peer, frame, self.shape.body_of(sequence), Some(label));
        if self.receipts != CompletionSource::OfWire && channel.timeout_at.is_none() {
            let at = cx.now + channel.trip.timeout();
            channel.timeout_at = Some(at);
            self.timeout_at = Some(self.timeout_at.map_or(at, |other| other.min(at)));
        }
    }

    /// Takes a segment of the rank at `place`.
    pub(super) fn segment(
        &mut self,
        cx: &mut GpcnetContext<'_>,
        place: usize,
        sequence: u64,
        received: u64,
    ) -> ChannelProgress {
        let through = if self.receipts == CompletionSource::OfWire {
            0
        } else {
            self.confirmed(cx, place, received, 0)
        };
        let (shape, channel) = (self.shape, &mut self.channels[place]);
        let beyond = sequence.wrapping_sub(channel.received);
        let seen = sequence < channel.received
            || (beyond < 128 && channel.received_beyond & (1 << beyond) != 0);
        let before = shape.messages(channel.received);
        if !seen && beyond < 128 {
            channel.received_beyond |= 1 << beyond;
            advance(&mut channel.received, &mut channel.received_beyond);
            channel.since_receipt += 1;
        }
        let arrived = shape.messages(channel.received) - before;
        let due = arrived > 0 || channel.since_receipt >= RECEIPT_EVERY;
        if seen && self.receipts != CompletionSource::OfWire
            || due && self.receipts == CompletionSource::OfReceiver
        {
            channel.since_receipt = 0;
            let frame = GpcnetFrame::Receipt {
                received: channel.received,
                beyond: channel.received_beyond,
            };
            cx.send(channel.peer, frame, 0, None);
        }
        ChannelProgress { arrived, through }
    }

    /// Takes a receipt of the rank at `place`.
    pub(super) fn receipt(
        &mut self,
        cx: &mut GpcnetContext<'_>,
        place: usize,
        received: u64,
        beyond: u128,
    ) -> ChannelProgress {
        let through = if self.receipts == CompletionSource::OfWire {
            0
        } else {
            self.confirmed(cx, place, received, beyond)
        };
        ChannelProgress { arrived: 0, through }
    }

    /// Records that the receiver has `received` segments, and those of `beyond`. Returns the
    /// messages that are through by that.
    fn confirmed(
        &mut self,
        cx: &mut GpcnetContext<'_>,
        place: usize,
        received: u64,
        beyond: u128,
    ) -> u64 {
        let channel = &mut self.channels[place];
        // A peer's count is not trusted beyond what was sent.
        let Some(moved) = received.min(channel.sent).checked_sub(channel.through) else { return 0 };
        let shift = moved.min(128) as u32;
        let mask = u128::MAX
            .checked_shr(128 - (channel.sent - channel.through - moved).min(128) as u32)
            .unwrap_or(0);
        let known = channel.through_beyond.checked_shr(shift).unwrap_or(0);
        let through_beyond = known | beyond & mask;
        if moved == 0 && through_beyond == known {
            return 0;
        }
        let before = self.shape.messages(channel.through);
        channel.through += moved;
        channel.again = channel.again.checked_shr(shift).unwrap_or(0) & !through_beyond;
        channel.through_beyond = through_beyond;
        channel.trip.confirmed(channel.through, cx.now);
        self.restart_timer(cx, place);
        self.settle(cx, place, before)
    }

    /// Segments of the rank at `place` are through: counts the messages, and sends what has room
    /// now.
    fn settle(&mut self, cx: &mut GpcnetContext<'_>, place: usize, before: u64) -> u64 {
        let channel = &mut self.channels[place];
        let old = channel.through;
        advance(&mut channel.through, &mut channel.through_beyond);
        channel.again =
            channel.again.checked_shr((channel.through - old).min(128) as u32).unwrap_or(0);
        let through = self.shape.messages(channel.through) - before;
        self.under_way -= through;
        self.pump(cx, place);
        through
    }

    /// Restarts the timer: there was news, so the peer lives, and the time begins anew if something
    /// is still under way.
    fn restart_timer(&mut self, cx: &GpcnetContext<'_>, place: usize) {
        let channel = &mut self.channels[place];
        channel.timeout_at =
            (channel.through < channel.sent).then_some(cx.now + channel.trip.timeout());
        if let Some(at) = channel.timeout_at {
            self.timeout_at = Some(self.timeout_at.map_or(at, |other| other.min(at)));
        }
    }

    /// Handles the end of a segment's operation.
    pub(super) fn done(
        &mut self,
        cx: &mut GpcnetContext<'_>,
        label: GpcnetLabel,
        status: Status,
    ) -> ChannelProgress {
        let Some(channel) = self.channels.get_mut(label.place) else {
            return ChannelProgress::default();
        };
        let beyond = label.distance_from(channel.through);
        if beyond >= 128 || channel.through + beyond >= channel.sent {
            return ChannelProgress::default();
        }
        match status {
            Status::Complete if self.receipts == CompletionSource::OfWire => {
                let before = self.shape.messages(channel.through);
                channel.through_beyond |= 1 << beyond;
                ChannelProgress { arrived: 0, through: self.settle(cx, label.place, before) }
            }
            Status::NoRoom => {
                if channel.through_beyond & (1 << beyond) == 0 {
                    channel.again |= 1 << beyond;
                }
                channel.trip.forget();
                self.blocked = true;
                ChannelProgress::default()
            }
            _ => ChannelProgress::default(),
        }
    }

    /// Continues: a transmit queue has room again.
    pub(super) fn room(&mut self, cx: &mut GpcnetContext<'_>) {
        if self.blocked {
            self.blocked = false;
            self.pump_all(cx);
        }
    }

    fn pump_all(&mut self, cx: &mut GpcnetContext<'_>) {
        self.unfinished = false;
        for place in 0..self.channels.len() {
            if self.unfinished || self.blocked {
                return;
            }
            self.pump(cx, place);
        }
    }

    /// Sends again what was not confirmed in time, and what the effect buffer could not take.
    /// O(channels) when due.
    pub(super) fn tick(&mut self, cx: &mut GpcnetContext<'_>) {
        if self.unfinished {
            self.pump_all(cx);
        }
        if self.timeout_at.is_none_or(|at| at > cx.now) {
            return;
        }
        for channel in &mut self.channels {
            if channel.timeout_at.is_some_and(|at| at <= cx.now) {
                let under_way = (channel.sent - channel.through).min(128) as u32;
                let all = u128::MAX.checked_shr(128 - under_way).unwrap_or(0);
                channel.again = all & !channel.through_beyond;
                self.resent += u64::from(channel.again.count_ones());
                channel.trip.missed();
                channel.timeout_at = (under_way > 0).then_some(cx.now + channel.trip.timeout());
            }
        }
        self.timeout_at = self.channels.iter().filter_map(|channel| channel.timeout_at).min();
        self.pump_all(cx);
    }
}
