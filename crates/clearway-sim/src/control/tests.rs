//! Incasts onto one port, with control at its edge: senders at the rate of the port, one latency
//! between, an endless queue.

use std::collections::VecDeque;

use clearway_proto::base::BitsPerSec;

use super::edge::{EdgeNotice, EdgePort, EdgeRules, ONE};
use super::throttle::Throttle;
use crate::event::{Event, EventQueueKind, PendingEvents};
use crate::time::{Pace, Picos};

const PACKET: u32 = 4_160;
/// From a sender to the port, and back.
const DELAY: Picos = Picos::from_nanos(1_000);

/// When a sender has something to send.
#[derive(Clone, Copy)]
struct SendTimes {
    from: Picos,
    until: Picos,
    /// Time between packets it would like.
    gap: Picos,
    bytes: u32,
}

#[derive(Clone)]
struct Sender {
    wish: SendTimes,
    throttle: Throttle,
    in_network: u64,
    delivered: u64,
}

/// What was seen at the end of each span of time.
#[derive(Debug)]
struct IncastSample {
    /// Longest queue in the span, in packets.
    queue_max: u64,
    /// Bytes delivered in the span over what fits, in thousandths.
    goodput: u64,
    /// Least and most bytes of a sender in the span.
    least: u64,
    most: u64,
}

struct Incast {
    rules: EdgeRules,
    port: EdgePort,
    queue: VecDeque<(u32, u32)>,
    senders: Vec<Sender>,
    events: PendingEvents,
    sent_notices: Vec<EdgeNotice>,
    notices: Vec<EdgeNotice>,
}

impl Incast {
    fn new(wishes: &[SendTimes]) -> Self {
        let pace = Pace::from_rate(BitsPerSec::mega(200_000));
        let rules = EdgeRules {
            threshold: 128 * 1024,
            sources: 2,
            notice_delay: DELAY,
            pace,
            packet: PACKET,
        };
        let sender = |wish: &SendTimes| Sender {
            wish: *wish,
            throttle: Throttle::OPEN,
            in_network: 0,
            delivered: 0,
        };
        let mut events = PendingEvents::new(EventQueueKind::Wheel);
        for (n, wish) in wishes.iter().enumerate() {
            events.push(Event::new(wish.from, 0, n as u32, 0));
        }
        Self {
            rules,
            port: EdgePort::default(),
            queue: VecDeque::new(),
            senders: wishes.iter().map(sender).collect(),
            events,
            sent_notices: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Runs to the end of each span of `length` and says what was seen in it.
    fn run(&mut self, length: Picos, spans: u64) -> Vec<IncastSample> {
        (1..=spans).map(|n| self.span(Picos(length.0 * n), length)).collect()
    }

    fn span(&mut self, end: Picos, length: Picos) -> IncastSample {
        let before: Vec<u64> = self.senders.iter().map(|sender| sender.delivered).collect();
        let mut queue_max = 0;
        while let Some(event) = self.events.pop_until(end) {
            self.step(event);
            queue_max = queue_max.max(self.port.queued() / u64::from(PACKET));
        }
        let bytes: Vec<u64> = self
            .senders
            .iter()
            .zip(before)
            .map(|(sender, before)| sender.delivered - before)
            .collect();
        let time = self.rules.pace.time(bytes.iter().sum::<u64>() as u32);
        let goodput = time.0 * 1_000 / length.0;
        IncastSample {
            queue_max,
            goodput,
            least: *bytes.iter().min().unwrap(),
            most: *bytes.iter().max().unwrap(),
        }
    }

    fn step(&mut self, event: Event) {
        let (now, id) = (event.at, event.entity());
        match event.kind() {
            0 => self.send(now, id),
            1 => {
                self.port.arrived(&self.rules, now, id, event.arg, &mut self.notices);
                for notice in self.notices.drain(..) {
                    self.events.push(Event::new(
                        now + DELAY,
                        3,
                        notice.source,
                        self.sent_notices.len() as u32,
                    ));
                    self.sent_notices.push(notice);
                }
                self.queue.push_back((id, event.arg));
                if self.queue.len() == 1 {
                    self.events.push(Event::new(now + self.rules.pace.time(event.arg), 2, 0, 0));
                }
            }
            2 => {
                let (id, bytes) = self.queue.pop_front().expect("a packet that was being sent");
                self.port.left(now, id, bytes);
                self.senders[id as usize].delivered += u64::from(bytes);
                self.events.push(Event::new(now + DELAY, 4, id, bytes));
                if let Some((_, bytes)) = self.queue.front() {
                    self.events.push(Event::new(now + self.rules.pace.time(*bytes), 2, 0, 0));
                }
            }
            3 => {
                let notice = self.sent_notices[event.arg as usize];
                let sender = &mut self.senders[id as usize];
                sender.throttle.handle_notice(
                    now,
                    notice,
                    sender.in_network,
                    self.rules.pace,
                    PACKET,
                );
            }
            _ => self.senders[id as usize].in_network -= u64::from(event.arg),
        }
    }

    fn send(&mut self, now: Picos, id: u32) {
        let pace = self.rules.pace;
        let sender = &mut self.senders[id as usize];
        let SendTimes { until, gap, bytes, .. } = sender.wish;
        let ready = sender.throttle.ready_at(now);
        if ready > now {
            // Asked again soon: a notice may come meanwhile.
            self.events.push(Event::new(ready.min(now + DELAY), 0, id, 0));
        } else if now < until {
            sender.throttle.sent(now, bytes, pace);
            sender.in_network += u64::from(bytes);
            self.events.push(Event::new(now + DELAY, 1, id, bytes));
            self.events.push(Event::new(now + gap.max(pace.time(bytes)), 0, id, 0));
        }
    }
}

const ALWAYS: SendTimes =
    SendTimes { from: Picos::ZERO, until: Picos::NEVER, gap: Picos::ZERO, bytes: PACKET };

const SPAN: Picos = Picos::from_micros(100);

#[test]
fn edge__an_incast_settles_at_even_parts_and_a_short_queue() {
    // (senders, spans until what they sent before the first notice has left: 96 times two
    // microseconds and more)
    for (senders, settled) in [(2usize, 1), (8, 1), (96, 7)] {
        let seen = Incast::new(&vec![ALWAYS; senders]).run(SPAN, 20);
        for (n, seen) in seen.iter().enumerate() {
            assert!(seen.goodput >= 940, "{senders} senders: {seen:?}");
            assert!(n < settled || seen.queue_max <= 8, "{senders} senders, span {n}: {seen:?}");
            assert!(
                n < settled || seen.most - seen.least <= u64::from(PACKET),
                "{senders} senders, span {n}: {seen:?}"
            );
        }
    }
}

#[test]
fn edge__others_join_and_leave() {
    let guest =
        SendTimes { from: Picos::from_micros(1_000), until: Picos::from_micros(2_000), ..ALWAYS };
    let wishes: Vec<SendTimes> = (0..48).map(|n| if n % 2 == 0 { ALWAYS } else { guest }).collect();
    let seen = Incast::new(&wishes).run(SPAN, 30);
    for (n, seen) in seen.iter().enumerate() {
        // One span for the first packets of those who come, one for those who stay to speed up.
        assert!(seen.goodput >= if n == 20 { 800 } else { 940 }, "span {n}: {seen:?}");
        assert!([0, 10, 11].contains(&n) || seen.queue_max <= 32, "span {n}: {seen:?}");
    }
    let even = |seen: &IncastSample| seen.most - seen.least <= u64::from(PACKET);
    assert!(seen[13..20].iter().all(even), "{:?}", &seen[13..20]);
}

#[test]
fn edge__senders_that_want_less_leave_the_rest_to_others() {
    // 32 senders want an eighth of the port between them, at times of their own.
    let modest = |n: u64| SendTimes {
        from: Picos::from_nanos(1_210 * n),
        gap: Picos::from_micros(40),
        ..ALWAYS
    };
    let wishes: Vec<SendTimes> = (0..36).map(|n| if n < 4 { ALWAYS } else { modest(n) }).collect();
    let seen = Incast::new(&wishes).run(SPAN, 30);
    for (n, seen) in seen.iter().enumerate().skip(5) {
        assert!(seen.goodput >= 850 && seen.queue_max <= 32, "span {n}: {seen:?}");
        // By even parts alone it would be a thirty-sixth.
        assert!(seen.most * 8 > 2_500_000, "span {n}: {seen:?}");
    }
}

#[test]
fn edge__short_packets_and_few_sources_are_left_alone() {
    let pings = SendTimes { gap: Picos::ZERO, bytes: 64, ..ALWAYS };
    for wishes in [vec![pings; 40], vec![ALWAYS; 1]] {
        let mut incast = Incast::new(&wishes);
        incast.run(Picos::from_micros(50), 2);
        assert!(incast.sent_notices.is_empty());
    }
}

/// A notice for one of four.
const QUARTER: EdgeNotice =
    EdgeNotice { source: 3, divisor: 4 * ONE, slot: 2, life: Picos::from_micros(10) };

#[test]
fn throttle__first_pays_for_what_is_in_the_network_then_keeps_its_pace() {
    let pace = Pace::from_rate(BitsPerSec::mega(200_000));
    let packet = pace.time(PACKET);
    let mut throttle = Throttle::OPEN;
    assert_eq!(throttle.ready_at(Picos(7)), Picos(7));
    throttle.handle_notice(Picos(100), QUARTER, 3 * u64::from(PACKET), pace, PACKET);
    // Three packets at a quarter of the pace, then two slots.
    let ready = Picos(100 + 14 * packet.0);
    assert_eq!(throttle.ready_at(Picos(100)), ready);
    throttle.sent(ready, PACKET, pace);
    assert_eq!(throttle.ready_at(ready), ready + Picos(4 * packet.0));
    // Twice as many share: what is left to wait doubles.
    throttle.handle_notice(ready, EdgeNotice { divisor: 8 * ONE, ..QUARTER }, 0, pace, PACKET);
    assert_eq!(throttle.ready_at(ready), ready + Picos(8 * packet.0));
}

#[test]
fn throttle__doubles_its_pace_with_each_life_without_notice() {
    let pace = Pace::from_rate(BitsPerSec::mega(200_000));
    let mut throttle = Throttle::OPEN;
    throttle.handle_notice(Picos::ZERO, QUARTER, 0, pace, PACKET);
    let gap = |throttle: &mut Throttle, now: Picos| {
        throttle.sent(now, PACKET, pace);
        (throttle.ready_at(now) - now).0 / pace.time(PACKET).0
    };
    assert_eq!(gap(&mut throttle, Picos::from_micros(9)), 4);
    assert_eq!(gap(&mut throttle, Picos::from_micros(15)), 2);
    assert!(!throttle.is_open(Picos::from_micros(19)));
    assert_eq!(gap(&mut throttle, Picos::from_micros(25)), 0);
    assert!(throttle.is_open(Picos::from_micros(25)));
}
