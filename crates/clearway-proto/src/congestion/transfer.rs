//! One timed message of many packets from one rank to another: in pieces, acknowledged, sent again
//! when lost.
//!
//! # Model
//! A message is at most 128 segments. The receiver answers with a bitmap of what it has, every
//! [`ACK_EVERY`] new segments, when all are there, and when one comes twice. The sender keeps
//! [`WINDOW`] segments under way and sends the unacknowledged ones again after a time-out that
//! doubles. Both sides number iterations; a peer can be one iteration ahead, never two, because it
//! needs this rank's part of the current one.
//!
//! # Invariants
//! I1. A segment counts once, however often it comes.
//!
//! # Not here
//! General reliable messages: these transfers exist to be timed on a lossy wire, between ranks that
//! trust each other's counts.

use crate::base::{Bytes, Class, LocalNs, Nanos, Rank};

use super::context::CongestionContext;
use super::frame::CongestionFrame;

/// Segments under way: GPCNeT keeps 8 messages of 128 KiB outstanding; 16 packets already fill a
/// 100 Mb/s link for 1.8 ms, longer than the round trip of a lab, and leave most of a 100-packet
/// queue to others.
const WINDOW: u32 = 16;
/// New segments between acknowledgements: a quarter of the window, so that it never runs dry
/// waiting for one.
const ACK_EVERY: u32 = 4;
/// First time-out: twice a full queue of 100 packets at 100 Mb/s (11.5 ms).
pub(super) const TIMEOUT_FIRST: Nanos = Nanos::from_millis(25);
/// Longest time-out: four full queues of 100 packets at 25 Mb/s.
pub(super) const TIMEOUT_MAX: Nanos = Nanos::from_millis(200);

/// How a message is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segmentation {
    segments: u8,
    body: u32,
    last: u32,
}

impl Segmentation {
    /// Cuts `message` into segments of at most `body_max` bytes, and at most 128 of them.
    pub(super) fn new(message: Bytes, body_max: u32) -> Self {
        let body = u64::from(body_max.max(1)).max(message.0.div_ceil(128));
        let segments = message.0.div_ceil(body).clamp(1, 128);
        let last = message.0 - (segments - 1) * body;
        Self { segments: segments as u8, body: body as u32, last: last as u32 }
    }

    /// Returns the bitmap in which every segment is set.
    fn all(self) -> u128 {
        u128::MAX >> (128 - u32::from(self.segments))
    }

    fn body_of(self, index: u8) -> u32 {
        if index + 1 == self.segments { self.last } else { self.body }
    }
}

/// The sending side of one peer.
#[derive(Debug)]
pub(super) struct OutgoingTransfer {
    pub(super) peer: Rank,
    shape: Segmentation,
    iteration: u32,
    acked: u128,
    sent: u8,
    timeout: Nanos,
    timeout_at: Option<LocalNs>,
}

impl OutgoingTransfer {
    pub(super) fn new(peer: Rank, shape: Segmentation) -> Self {
        Self {
            peer,
            shape,
            iteration: 0,
            acked: shape.all(),
            sent: 0,
            timeout: TIMEOUT_FIRST,
            timeout_at: None,
        }
    }

    pub(super) fn start(&mut self, cx: &mut CongestionContext<'_>, class: Class, iteration: u32) {
        self.iteration = iteration;
        self.acked = 0;
        self.sent = 0;
        self.timeout = TIMEOUT_FIRST;
        self.timeout_at = Some(cx.now + self.timeout);
        self.pump(cx, class);
    }

    pub(super) fn complete(&self) -> bool {
        self.acked == self.shape.all()
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        self.timeout_at
    }

    pub(super) fn acknowledged(
        &mut self,
        cx: &mut CongestionContext<'_>,
        class: Class,
        iteration: u32,
        received: u128,
    ) {
        let news = received & self.shape.all() & !self.acked;
        if iteration != self.iteration || news == 0 {
            return;
        }
        self.acked |= news;
        self.timeout = TIMEOUT_FIRST;
        self.timeout_at = if self.complete() { None } else { Some(cx.now + self.timeout) };
        self.pump(cx, class);
    }

    /// Sends again what is not acknowledged, if it is time.
    pub(super) fn tick(&mut self, cx: &mut CongestionContext<'_>, class: Class) {
        if self.timeout_at.is_none_or(|at| at > cx.now) {
            return;
        }
        let lost = (0..self.sent).filter(|i| self.acked & (1 << i) == 0).take(WINDOW as usize);
        for index in lost.collect::<alloc::vec::Vec<_>>() {
            self.send(cx, class, index);
            cx.record.resent += 1;
        }
        self.timeout = TIMEOUT_MAX.min(self.timeout.times(2));
        self.timeout_at = Some(cx.now + self.timeout);
    }

    fn pump(&mut self, cx: &mut CongestionContext<'_>, class: Class) {
        while self.sent < self.shape.segments
            && u32::from(self.sent) - self.acked.count_ones() < WINDOW
        {
            self.send(cx, class, self.sent);
            self.sent += 1;
        }
    }

    fn send(&self, cx: &mut CongestionContext<'_>, class: Class, index: u8) {
        let frame = CongestionFrame::Segment {
            iteration: self.iteration,
            index,
            count: self.shape.segments,
        };
        cx.send(self.peer, class, frame, self.shape.body_of(index), None);
    }
}

/// The receiving side of one peer.
#[derive(Debug)]
pub(super) struct IncomingTransfer {
    pub(super) peer: Rank,
    shape: Segmentation,
    iteration: u32,
    received: u128,
    ahead: u128,
}

impl IncomingTransfer {
    pub(super) fn new(peer: Rank, shape: Segmentation) -> Self {
        Self { peer, shape, iteration: 0, received: 0, ahead: 0 }
    }

    /// Goes on to the next iteration, of which some segments may be here already.
    pub(super) fn start(&mut self, iteration: u32) {
        if iteration != self.iteration {
            self.iteration = iteration;
            self.received = core::mem::take(&mut self.ahead);
        }
    }

    pub(super) fn complete(&self) -> bool {
        self.received == self.shape.all()
    }

    pub(super) fn segment(
        &mut self,
        cx: &mut CongestionContext<'_>,
        class: Class,
        iteration: u32,
        index: u8,
        count: u8,
    ) {
        if count != self.shape.segments || index >= count {
            cx.record.foreign += 1;
            return;
        }
        let bit = 1u128 << index;
        let bitmap = match iteration.wrapping_sub(self.iteration) {
            0 => &mut self.received,
            1 => &mut self.ahead,
            u32::MAX => {
                let received = self.shape.all();
                cx.send(
                    self.peer,
                    class,
                    CongestionFrame::SegmentAck { iteration, received },
                    0,
                    None,
                );
                return;
            }
            _ => {
                cx.record.foreign += 1;
                return;
            }
        };
        let seen_before = *bitmap & bit != 0;
        *bitmap |= bit;
        let received = *bitmap;
        if seen_before
            || received == self.shape.all()
            || received.count_ones().is_multiple_of(ACK_EVERY)
        {
            cx.send(self.peer, class, CongestionFrame::SegmentAck { iteration, received }, 0, None);
        }
    }
}
