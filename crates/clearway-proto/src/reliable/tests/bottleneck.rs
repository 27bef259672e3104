//! Streams that meet in one queue: how they share a path, and what they leave to others.
//!
//! # Model
//! One queue of a few packets in front of one link; what does not fit is lost. A fragment waits,
//! takes its time on the link (drawn a little around the mean) and reaches the receiver after the
//! distance, which acknowledges every eighth, a missing one at once, and everything else after
//! 500 us, as the receiving half does. Senders have something to send all the time: streams by
//! their [`StreamPath`], and one that reacts to nothing but loss, as TCP does.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::super::stream_path::StreamPath;
use super::super::{ANSWER_EVERY, ANSWER_MAX};
use super::*;

/// The link: 1400 bytes at 200 Mb/s with headers, 100 us there and back, and 6 ms of queue.
const LAB: Link = Link { packet: Nanos(60_000), distance: Nanos(100_000), places: 100 };
/// A faster and longer one.
const HALL: Link = Link { packet: Nanos(12_000), distance: Nanos(400_000), places: 500 };
/// As much under way as three queues of the target hold.
const FAR: Link = Link { packet: Nanos(12_000), distance: Nanos(1_500_000), places: 300 };

#[derive(Clone, Copy, Debug)]
struct Link {
    packet: Nanos,
    distance: Nanos,
    places: usize,
}

/// A sender that halves nothing before it loses something: additive increase, three tenths less
/// after a loss, once a round trip.
struct LossBased {
    window: f64,
    under_way: u32,
    next: u64,
    answered: u64,
    /// No second reduction before this fragment is answered.
    recovers_until: u64,
    threshold: f64,
}

enum BottleneckSender {
    Stream(StreamPath, Nanos),
    Loss(LossBased),
}

impl BottleneckSender {
    fn stream(class: Class) -> Self {
        let allowance = StreamConfig::new(2).allowance[class.index()];
        Self::Stream(StreamPath::new(class), allowance)
    }

    fn loss_based() -> Self {
        Self::Loss(LossBased {
            window: 10.0,
            under_way: 0,
            next: 0,
            answered: 0,
            recovers_until: 0,
            threshold: f64::MAX,
        })
    }

    /// Sends the next fragment, if it may; returns its number.
    fn leave(&mut self, now: LocalNs) -> Option<(u64, bool)> {
        match self {
            Self::Stream(path, _) => {
                (path.room(now) > 0).then(|| (path.leave(now), path.wants_answer()))
            }
            Self::Loss(tcp) => (f64::from(tcp.under_way) < tcp.window).then(|| {
                (tcp.under_way, tcp.next) = (tcp.under_way + 1, tcp.next + 1);
                (tcp.next - 1, false)
            }),
        }
    }

    fn lost(&mut self) {
        match self {
            Self::Stream(path, _) => path.packet_lost(),
            Self::Loss(tcp) => {
                tcp.under_way -= 1;
                if tcp.answered >= tcp.recovers_until {
                    tcp.window = (tcp.window * 0.7).max(2.0);
                    (tcp.threshold, tcp.recovers_until) = (tcp.window, tcp.next);
                }
            }
        }
    }

    fn answered(&mut self, now: LocalNs, numbers: &[u64], newest: Nanos) {
        match self {
            Self::Stream(path, allowance) => {
                path.measure(now, newest);
                numbers.iter().for_each(|number| path.answer(now, *number));
                path.adapt(now, *allowance);
            }
            Self::Loss(tcp) => {
                for number in numbers {
                    tcp.under_way -= 1;
                    tcp.answered = tcp.answered.max(number + 1);
                    let is_slow_start = tcp.window < tcp.threshold;
                    tcp.window += if is_slow_start { 1.0 } else { 1.0 / tcp.window };
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Begins,
    /// A fragment is at the receiver.
    Arrives {
        number: u64,
        left: LocalNs,
        at_once: bool,
    },
    /// An answer has waited long enough; valid if as many were sent until then.
    AnswerDue {
        sent: u64,
    },
    /// An answer is back.
    Answered {
        sent: u64,
    },
    /// What was lost is known to be lost, at the latest now.
    Lost,
}

/// What a receiver has to say.
#[derive(Default)]
struct BottleneckReceiver {
    waiting: Vec<u64>,
    first_at: LocalNs,
    next: u64,
    newest: Option<(LocalNs, LocalNs)>,
    sent: u64,
    answers: VecDeque<(Vec<u64>, Nanos)>,
}

struct Bottleneck {
    link: Link,
    random: RandomStream,
    senders: Vec<BottleneckSender>,
    receivers: Vec<BottleneckReceiver>,
    events: BinaryHeap<Reverse<(LocalNs, u64, usize, Happening)>>,
    count: u64,
    link_free: LocalNs,
    /// Fragments that arrived, by sender and millisecond.
    carried: Vec<Vec<u64>>,
    /// The queue that a fragment met, summed, and how many met one.
    waited: (u64, u64),
}

const MILLI: u64 = 1_000_000;

impl Bottleneck {
    fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            random: RandomKey::new(seed).purpose("bottleneck").stream(),
            senders: Vec::new(),
            receivers: Vec::new(),
            events: BinaryHeap::new(),
            count: 0,
            link_free: LocalNs(0),
            carried: Vec::new(),
            waited: (0, 0),
        }
    }

    fn add(&mut self, at: Nanos, sender: BottleneckSender) {
        let which = self.senders.len();
        self.senders.push(sender);
        self.receivers.push(BottleneckReceiver::default());
        self.carried.push(Vec::new());
        let start = LocalNs(at.0 + self.random.below(MILLI));
        self.schedule(start, which, Happening::Begins);
    }

    fn schedule(&mut self, at: LocalNs, which: usize, event: Happening) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, which, event)));
    }

    fn run(&mut self, until: Nanos) {
        while let Some(Reverse((now, _, which, event))) = self.events.pop() {
            if now.0 >= until.0 {
                break;
            }
            match event {
                Happening::Begins => {}
                Happening::Arrives { number, left, at_once } => {
                    self.arrives(now, which, number, left, at_once)
                }
                Happening::AnswerDue { sent } => {
                    if self.receivers[which].sent == sent {
                        self.answer(now, which);
                    }
                }
                Happening::Answered { .. } => {
                    let (numbers, trip) =
                        self.receivers[which].answers.pop_front().expect("an answer");
                    self.senders[which].answered(now, &numbers, trip);
                }
                Happening::Lost => self.senders[which].lost(),
            }
            while let Some((number, at_once)) = self.senders[which].leave(now) {
                self.send(now, which, number, at_once);
            }
        }
    }

    fn send(&mut self, now: LocalNs, which: usize, number: u64, at_once: bool) {
        let Link { packet, distance, places } = self.link;
        let queue = self.link_free.since(now);
        if queue.0 / packet.0 >= places as u64 {
            // A round trip and the queue later three others have been answered.
            return self.schedule(now + queue + distance, which, Happening::Lost);
        }
        self.waited = (self.waited.0 + queue.0, self.waited.1 + 1);
        let takes = packet.0 * 19 / 20 + self.random.below(packet.0 / 10);
        self.link_free = self.link_free.max(now) + Nanos(takes);
        let at = self.link_free + Nanos(distance.0 / 2);
        self.schedule(at, which, Happening::Arrives { number, left: now, at_once });
    }

    fn arrives(&mut self, now: LocalNs, which: usize, number: u64, left: LocalNs, at_once: bool) {
        let milli = (now.0 / MILLI) as usize;
        let carried = &mut self.carried[which];
        carried.resize(carried.len().max(milli + 1), 0);
        carried[milli] += 1;
        let receiver = &mut self.receivers[which];
        if receiver.waiting.is_empty() {
            receiver.first_at = now;
            let sent = receiver.sent;
            self.schedule(now + ANSWER_MAX, which, Happening::AnswerDue { sent });
        }
        let receiver = &mut self.receivers[which];
        receiver.waiting.push(number);
        receiver.newest = Some((left, now));
        let is_gap = number > receiver.next;
        receiver.next = number + 1;
        if at_once || is_gap || receiver.waiting.len() >= ANSWER_EVERY as usize {
            self.answer(now, which);
        }
    }

    fn answer(&mut self, now: LocalNs, which: usize) {
        let receiver = &mut self.receivers[which];
        let Some((left, came)) = receiver.newest.take() else { return };
        receiver.sent += 1;
        let trip = Nanos(came.since(left).0 + self.link.distance.0 / 2);
        receiver.answers.push_back((core::mem::take(&mut receiver.waiting), trip));
        let sent = receiver.sent;
        self.schedule(now + Nanos(self.link.distance.0 / 2), which, Happening::Answered { sent });
    }

    /// Returns the share of the link that a sender had between two instants.
    fn share(&self, which: usize, from: Nanos, until: Nanos) -> f64 {
        let carried = self.carried_between(which, from, until);
        carried as f64 * self.link.packet.0 as f64 / (until.0 - from.0) as f64
    }

    fn carried_between(&self, which: usize, from: Nanos, until: Nanos) -> u64 {
        let millis = &self.carried[which];
        let [from, until] = [from, until].map(|at| (at.0 / MILLI) as usize);
        millis.iter().skip(from).take(until - from).sum()
    }
}

const SECOND: Nanos = Nanos::from_secs(1);

/// Runs senders that begin at the given seconds.
fn run(link: Link, seed: u64, seconds: u64, senders: Vec<(u64, BottleneckSender)>) -> Bottleneck {
    let mut path = Bottleneck::new(link, seed);
    senders.into_iter().for_each(|(at, sender)| path.add(SECOND.times(at), sender));
    path.run(SECOND.times(seconds));
    path
}

/// Returns Jain's index of two shares: 1 if they are equal, 0.5 if one has all.
fn fairness(both: [u64; 2]) -> f64 {
    let [one, other] = both.map(|share| share as f64);
    (one + other).powi(2) / (2.0 * (one.powi(2) + other.powi(2)))
}

fn scavenger() -> BottleneckSender {
    BottleneckSender::stream(Class::Scavenger)
}

#[test]
fn scavenger__alone_it_has_nine_tenths_of_the_link_and_a_queue_below_its_target() {
    for link in [LAB, HALL, FAR] {
        for seed in 0..2 {
            let path = run(link, seed, 3, vec![(0, scavenger())]);
            let share = path.share(0, Nanos::from_millis(250), SECOND.times(3));
            assert!(share >= 0.9, "{share} of {link:?}");
            let waited = Nanos(path.waited.0 / path.waited.1);
            std::println!("alone: {share:.3} of the link, {waited} of queue; {link:?}");
            assert!(waited <= Nanos::from_micros(500), "{waited:?} at {link:?}");
        }
    }
}

#[test]
fn scavenger__has_little_of_a_queue_that_another_fills_whoever_came_first() {
    for link in [LAB, HALL, FAR] {
        for (first, second) in [(0, 1), (1, 0)] {
            let senders = vec![(first, scavenger()), (second, BottleneckSender::loss_based())];
            let path = run(link, 7, 3, senders);
            let [own, other] = [0, 1].map(|which| path.share(which, SECOND, SECOND.times(3)));
            // Its fair share is a half.
            std::println!("with a full queue: {:.3} of its fair share; {link:?}", 2.0 * own);
            assert!(own <= 0.15 / 2.0 && other >= 0.9, "{own} and {other} of {link:?}");
        }
    }
}

#[test]
fn scavenger__a_latecomer_and_an_old_one_share_evenly() {
    for (link, seeds) in [(LAB, 4), (HALL, 1), (FAR, 1)] {
        for seed in 0..seeds {
            let path = run(link, seed, 5, vec![(0, scavenger()), (1, scavenger())]);
            let both = [0, 1].map(|which| path.carried_between(which, SECOND, SECOND.times(5)));
            let index = fairness(both);
            std::println!("a latecomer and an old one: {index:.3}; {link:?}");
            assert!(index >= 0.9, "{index} of {link:?}: {both:?}");
        }
    }
}

#[test]
fn scavenger__it_slows_down_now_and_then_and_a_bulk_stream_never_does() {
    let slowest = |class| {
        let path = run(HALL, 3, 2, vec![(0, BottleneckSender::stream(class))]);
        let millis = SECOND.0 / MILLI;
        (millis..2 * millis - 1).map(|at| path.carried[0][at as usize]).min()
    };
    let full = MILLI / HALL.packet.0;
    assert!(slowest(Class::Bulk) >= Some(full * 9 / 10), "{:?}", slowest(Class::Bulk));
    assert!(slowest(Class::Scavenger) <= Some(full / 4), "{:?}", slowest(Class::Scavenger));
}
