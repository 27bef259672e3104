//! Congestors: messages sent on schedule at a rate, and what the receiving side counts of them.
//!
//! # Model
//! A flow sends one message every `link bytes of a message / rate`; the packets of a message leave
//! back to back, as an MPI message does. Get flows send small requests on that schedule and the
//! target answers with the message. A flow with a window has that many messages under way at most
//! (not yet gone, not acknowledged, or not answered, by its style), and its schedule stands still
//! while it waits for one. A flow that finds its transmit queue full waits for room; one whose
//! process was elsewhere catches up [`CATCH_UP`] at most. A message that was due and did not leave
//! is counted, so that a load which never reached its rate is seen in the record.
//!
//! # Source
//! Patterns and 4 KiB messages: GPCNeT's congestors. There, a congestor's figures are taken before
//! the victims run; here every arriving byte is counted in the slices of the victims' samples.
//!
//! # Invariants
//! I1. `offered = left for the network + refused + skipped`, in link bytes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::base::{Bytes, Class, LocalNs, Nanos, Rank};
use crate::wire::{Datagram, More, Token};

use super::context::{CongestionConfig, CongestionContext, CongestionEvent};
use super::frame::{CongestionFrame, SegmentPosition};
use super::record::{LoadSeries, PhaseRecord, SliceBytes};
use super::task::{Flow, FlowStyle, LoadKind, LoadTask, Phase};

/// How far behind its schedule a flow may be and still catch up: the time a busy machine commonly
/// keeps a process waiting (a scheduler slice and a half on Linux), well below the time slices of
/// the record.
const CATCH_UP: Nanos = Nanos::from_millis(6);
/// A message whose acknowledgement or answer has not come after this long no longer counts as under
/// way: several full queues of 100 packets at 25 Mb/s (46 ms each).
const TIMEOUT: Nanos = Nanos::from_millis(200);
/// One burn of a processor load; short enough that the process still reads its arrivals often.
const BURN_PERIOD: Nanos = Nanos::from_millis(10);
/// The longest message that a get request can ask for: bounds what one small request can make this
/// rank send.
const GET_MAX: u32 = 64 << 10;
/// Bytes of a bulk header, for rates: kind, class, phase, message, part.
const BULK_HEAD: usize = 11;
/// The bit of a token that says: the last packet of a message. Below it are the packet's bytes on
/// the link.
const LAST: u64 = 1 << 31;
/// Room that one message may need in the effect buffer: `GET_MAX` in packets of an Ethernet frame.
const MESSAGE_EFFECTS: usize = 64;

/// One load task under way.
#[derive(Debug)]
pub(super) struct ActiveLoad {
    index: usize,
    class: Class,
    begin: LocalNs,
    until: LocalNs,
    work: LoadWork,
}

#[derive(Debug)]
enum LoadWork {
    Flows(Vec<FlowState>),
    Burn { busy: Nanos, next: LocalNs },
}

#[derive(Debug)]
struct FlowState {
    flow: Flow,
    gap: Nanos,
    next: LocalNs,
    turn: usize,
    message: u32,
    waiting: BTreeMap<u32, LocalNs>,
    blocked: bool,
}

/// Splits a message into packet bodies: all of `body_max` but the last.
fn packets(message: u64, body_max: u32) -> impl Iterator<Item = (u32, bool)> {
    let body_max = u64::from(body_max.max(1));
    let count = message.div_ceil(body_max).max(1);
    let body = message.div_ceil(count).max(1);
    (0..count).map(move |i| (message.saturating_sub(i * body).min(body) as u32, i + 1 == count))
}

/// Returns the bytes of a whole message on the link.
fn link_bytes(message: Bytes, phase: &Phase, config: &CongestionConfig) -> Bytes {
    let count = packets(message.0, config.body_max).count() as u64;
    Bytes(message.0 + count * (phase.overhead.0 + BULK_HEAD as u64))
}

impl ActiveLoad {
    pub(super) fn new(
        index: usize,
        task: &LoadTask,
        phase: &Phase,
        config: &CongestionConfig,
    ) -> Self {
        let begin = phase.begin + task.from;
        let key = config
            .key
            .purpose("load stagger")
            .node(u64::from(phase.number))
            .node(u64::from(config.rank.0));
        let mut stagger = key.node(index as u64).stream();
        let work = match &task.kind {
            LoadKind::Burn { percent } => LoadWork::Burn {
                busy: Nanos(BURN_PERIOD.0 / 100 * u64::from(*percent).min(100)),
                next: begin,
            },
            // Engines that run next to this one do these.
            LoadKind::Cast(_) | LoadKind::Staging(_) => LoadWork::Flows(Vec::new()),
            LoadKind::Flows(flows) => LoadWork::Flows(
                flows
                    .iter()
                    .filter(|flow| !flow.targets.is_empty() && flow.rate.0 > 0)
                    .enumerate()
                    .map(|(i, flow)| {
                        let gap = Nanos(
                            flow.rate.time_for(link_bytes(flow.message, phase, config)).0.max(1),
                        );
                        // Flows begin at different points of their gap, so that senders do not beat
                        // in step.
                        let next = begin + Nanos(stagger.below(gap.0));
                        // Message numbers tell flows apart: a flow owns those that equal it modulo
                        // 2^24.
                        let message = (i as u32) << 24;
                        let flow = flow.clone();
                        FlowState {
                            flow,
                            gap,
                            next,
                            turn: 0,
                            message,
                            waiting: BTreeMap::new(),
                            blocked: false,
                        }
                    })
                    .collect(),
            ),
        };
        Self { index, class: task.class, begin, until: phase.begin + task.until, work }
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        match &self.work {
            LoadWork::Burn { next, .. } => (*next < self.until).then_some(*next),
            LoadWork::Flows(flows) => {
                flows.iter().filter_map(|flow| flow.deadline(self.until)).min()
            }
        }
    }

    /// Sends what is due.
    pub(super) fn tick(&mut self, cx: &mut CongestionContext<'_>) -> More {
        match &mut self.work {
            LoadWork::Burn { busy, next } => {
                if *next <= cx.now && cx.now < self.until {
                    cx.out.notify(CongestionEvent::Burn(*busy));
                    *next = cx.now + BURN_PERIOD;
                }
                More::No
            }
            LoadWork::Flows(flows) => {
                let mut more = More::No;
                for (i, flow) in flows.iter_mut().enumerate() {
                    let token = (self.index as u64) << 48 | (i as u64) << 32;
                    if flow.tick(cx, self.class, self.begin, self.until, token) == More::Yes {
                        more = More::Yes;
                    }
                }
                more
            }
        }
    }

    /// Records that a message of this rank has arrived.
    pub(super) fn acknowledged(&mut self, message: u32) {
        self.over(message, |flow| flow.style == FlowStyle::Put);
    }

    /// Records that `from` has answered a request of this rank to the last byte. Its own messages
    /// look the same; their numbers are not this rank's.
    pub(super) fn answered(&mut self, from: Rank, message: u32) {
        self.over(message, |flow| flow.style == FlowStyle::Get && flow.targets.contains(&from));
    }

    fn over(&mut self, message: u32, concerns: impl Fn(&Flow) -> bool) {
        if let LoadWork::Flows(flows) = &mut self.work {
            for state in flows.iter_mut().filter(|state| concerns(&state.flow)) {
                state.waiting.remove(&message);
            }
        }
    }

    /// Records that a packet has left this node.
    pub(super) fn left(&mut self, token: Token) {
        if token.0 >> 48 == self.index as u64
            && token.0 & LAST != 0
            && let LoadWork::Flows(flows) = &mut self.work
            && let Some(state) = flows.get_mut((token.0 >> 32 & 0xffff) as usize)
            && state.flow.style == FlowStyle::Push
        {
            state.waiting.pop_first();
        }
    }

    /// Records that a packet found no room, or was refused for good.
    pub(super) fn refused(&mut self, token: Token, record: &mut PhaseRecord) {
        if token.0 >> 48 != self.index as u64 {
            return;
        }
        record.refused.0 += token.0 & (LAST - 1);
        // A message that never started is not under way.
        self.left(token);
        if let LoadWork::Flows(flows) = &mut self.work
            && let Some(flow) = flows.get_mut((token.0 >> 32 & 0xffff) as usize)
        {
            flow.blocked = true;
        }
    }

    /// Continues: a transmit queue has room again.
    pub(super) fn room(&mut self, class: Class) {
        if let LoadWork::Flows(flows) = &mut self.work
            && class == self.class
        {
            flows.iter_mut().for_each(|flow| flow.blocked = false);
        }
    }
}

impl FlowState {
    fn deadline(&self, until: LocalNs) -> Option<LocalNs> {
        if self.blocked || self.next >= until {
            return None;
        }
        if self.window_full() { self.waiting.values().min().copied() } else { Some(self.next) }
    }

    fn window_full(&self) -> bool {
        self.flow.window.is_some_and(|window| self.waiting.len() >= window as usize)
    }

    fn tick(
        &mut self,
        cx: &mut CongestionContext<'_>,
        class: Class,
        begin: LocalNs,
        until: LocalNs,
        token: u64,
    ) -> More {
        self.waiting.retain(|_, timeout_ends| *timeout_ends > cx.now);
        if self.flow.window.is_some() && cx.now >= until {
            // A message that waited for an acknowledgement was not due before it came.
            self.next = self.next.max(until);
        }
        while !self.blocked && self.next <= cx.now && self.next < until {
            if self.pause_between_bursts(begin) {
                continue;
            }
            self.skip_what_is_too_late(cx);
            if self.window_full() {
                // The schedule of a flow that waits for acknowledgements stands still: what it did
                // not send was not due.
                self.next = cx.now;
                return More::No;
            }
            if cx.out.room() < MESSAGE_EFFECTS {
                return More::Yes;
            }
            self.send(cx, class, token);
            self.next += self.gap;
        }
        More::No
    }

    /// Moves the schedule to the next burst if it stands in a pause.
    fn pause_between_bursts(&mut self, begin: LocalNs) -> bool {
        let Some(burst) = self.flow.burst else { return false };
        let since = self.next.since(begin);
        let rounds = since.steps_of(burst.period);
        let inside = since - burst.period.times(rounds);
        let pausing = inside >= burst.on && burst.on < burst.period;
        if pausing {
            self.next = begin + burst.period.times(rounds + 1);
        }
        pausing
    }

    fn skip_what_is_too_late(&mut self, cx: &mut CongestionContext<'_>) {
        let late = cx.now.since(self.next);
        if late > CATCH_UP {
            let missed = (late - CATCH_UP).steps_of(self.gap);
            let bytes = link_bytes(self.flow.message, cx.phase, cx.config).0.saturating_mul(missed);
            cx.record.skipped.0 += bytes;
            cx.record.offered.0 += bytes;
            self.next += self.gap.times(missed);
        }
    }

    fn send(&mut self, cx: &mut CongestionContext<'_>, class: Class, token: u64) {
        let target = self.flow.targets[self.turn % self.flow.targets.len()];
        self.turn += 1;
        let message = self.message;
        self.message = (self.message & 0xff00_0000) | (self.message.wrapping_add(1) & 0x00ff_ffff);
        if self.flow.window.is_some() {
            self.waiting.insert(message, cx.now + TIMEOUT);
        }
        if self.flow.style == FlowStyle::Get {
            let bytes = u32::try_from(self.flow.message.0).unwrap_or(GET_MAX).min(GET_MAX);
            let token = Some(Token(token | cx.link_bytes(14, 0)));
            cx.send(target, class, CongestionFrame::GetRequest { message, bytes }, 0, token);
            return;
        }
        let acknowledged = self.flow.style == FlowStyle::Put && self.flow.window.is_some();
        let last =
            if acknowledged { SegmentPosition::Last } else { SegmentPosition::LastUnacknowledged };
        for (body, is_last) in packets(self.flow.message.0, cx.config.body_max) {
            let part = if is_last { last } else { SegmentPosition::Inner };
            let link = cx.link_bytes(BULK_HEAD, u64::from(body));
            cx.record.offered.0 += link;
            let end = if is_last { LAST } else { 0 };
            cx.send(
                target,
                class,
                CongestionFrame::Bulk { message, part },
                body,
                Some(Token(token | link | end)),
            );
        }
    }
}

/// What this rank received of others' load, and its answers to it.
#[derive(Debug, Default)]
pub(super) struct ReceivedLoad {
    series: Vec<(LoadSeries, LocalNs)>,
}

impl ReceivedLoad {
    /// Counts an arrived load packet and acknowledges the end of a put.
    pub(super) fn bulk(
        &mut self,
        cx: &mut CongestionContext<'_>,
        asked: Class,
        datagram: &Datagram<'_>,
        frame: CongestionFrame,
    ) {
        let at = datagram.at.instant();
        let body = u64::from(datagram.body.length);
        let link = cx.link_bytes(datagram.head.len(), body);
        let slice = cx.slice_at(at);
        let (series, last) = self.series_of(datagram.from, asked, at);
        series.longest_gap = series.longest_gap.max(at.since(*last));
        *last = at;
        let entry = match series.slices.iter_mut().rev().find(|entry| entry.slice == slice) {
            Some(entry) => entry,
            None => {
                series.slices.push(SliceBytes { slice, ..SliceBytes::default() });
                series.slices.last_mut().expect("just pushed")
            }
        };
        entry.messages += 1;
        entry.body += body;
        entry.link += link;
        if let CongestionFrame::Bulk { message, part: SegmentPosition::Last } = frame {
            cx.send(datagram.from, asked, CongestionFrame::BulkAck { message }, 0, None);
        }
    }

    /// Sends the message that `to` asked for.
    pub(super) fn answer_get(
        &self,
        cx: &mut CongestionContext<'_>,
        class: Class,
        to: Rank,
        message: u32,
        bytes: u32,
    ) {
        for (body, is_last) in packets(u64::from(bytes.min(GET_MAX)), cx.config.body_max) {
            let part =
                if is_last { SegmentPosition::LastUnacknowledged } else { SegmentPosition::Inner };
            cx.record.offered.0 += cx.link_bytes(BULK_HEAD, u64::from(body));
            cx.send(to, class, CongestionFrame::Bulk { message, part }, body, None);
        }
    }

    pub(super) fn into_series(mut self) -> Vec<LoadSeries> {
        self.series
            .iter_mut()
            .for_each(|(series, _)| series.slices.sort_by_key(|entry| entry.slice));
        self.series.into_iter().map(|(series, _)| series).collect()
    }

    fn series_of(&mut self, peer: Rank, class: Class, at: LocalNs) -> &mut (LoadSeries, LocalNs) {
        let place =
            self.series.iter().position(|(series, _)| series.peer == peer && series.class == class);
        let place = place.unwrap_or_else(|| {
            let series = LoadSeries { peer, class, slices: Vec::new(), longest_gap: Nanos::ZERO };
            self.series.push((series, at));
            self.series.len() - 1
        });
        &mut self.series[place]
    }
}
