//! DCQCN: switches mark, receivers notify, senders keep a rate for each flow.
//!
//! # Source
//! After Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015), as
//! described in NVIDIA's documentation of DCQCN (the marking curve, who notifies, who reacts) and
//! in the model for ns-3 that came with HPCC (`rdma-hw.cc`: the cut, the estimate, the least rate).
//! That model counts rounds of the timer only. The byte counter, the three kinds of rounds and the
//! numbers called the paper's are from memory of the paper, which was not at hand.
//!
//! # Invariants
//! I1. `least <= current <= target <= line`, in bits per second.
//! I2. The rate is a function of notices and bytes and their times; when it is asked for makes no
//!     difference.

use clearway_proto::base::BitsPerSec;

use crate::spec::Dcqcn;
use crate::time::{Pace, Picos};

/// Rounds of fast recovery: F of the paper.
const FAST_ROUNDS: u32 = 5;
/// Bytes of a round of the byte counter: B of the paper, 10 MB (so also in the parameters of others
/// who repeated it on ns-3).
const ROUND_BYTES: u64 = 10_000_000;
/// Steps of hyper increase over those of additive increase: 50 and 5 Mb/s in QCN, from memory.
const HYPER: u64 = 10;
/// The least rate, as a part of the line: the model for ns-3 keeps 100 Mb/s, of 100 Gb/s here.
const LEAST: u64 = 1_000;
/// One, in the fixed point of `alpha`.
const ALPHA_ONE: u32 = 1 << 16;

/// Returns whether a packet is marked that meets `queued` bytes; `hash` is uniform and its own.
pub(crate) fn marks(rule: &Dcqcn, queued: u64, hash: u32) -> bool {
    let (least, most) = (rule.mark_min.0, rule.mark_max.0);
    if queued <= least {
        return false;
    }
    if queued >= most {
        return true;
    }
    let millionths =
        u128::from(rule.mark_probability) * u128::from(queued - least) / u128::from(most - least);
    // `hash` / 2^32 < millionths / 10^6
    u128::from(hash) * 1_000_000 < millionths << 32
}

/// The receiver's side of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notifier {
    last: Option<Picos>,
}

impl Notifier {
    /// Records that a marked packet came; returns whether the sender is to be notified.
    pub(crate) fn marked(&mut self, rule: &Dcqcn, now: Picos) -> bool {
        let due = self.last.is_none_or(|last| now - last >= rule.notice_interval);
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// The sender's side of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reaction {
    line: u64,
    target: u64,
    current: u64,
    /// The congestion estimate, in 65536ths.
    alpha: u32,
    alpha_due: Picos,
    timer_due: Picos,
    timer_rounds: u32,
    byte_rounds: u32,
    bytes: u64,
    /// Before this no packet may begin.
    next: Picos,
}

impl Reaction {
    /// Creates a flow that may use all of `line`.
    pub(crate) fn new(line: BitsPerSec) -> Self {
        let line = line.0.max(LEAST);
        Self {
            line,
            target: line,
            current: line,
            alpha: ALPHA_ONE,
            alpha_due: Picos::NEVER,
            timer_due: Picos::NEVER,
            timer_rounds: 0,
            byte_rounds: 0,
            bytes: 0,
            next: Picos::ZERO,
        }
    }

    /// Cuts the rate by half of the estimate on a notification, and estimates higher.
    pub(crate) fn notified(&mut self, rule: &Dcqcn, now: Picos) {
        self.advance(rule, now);
        self.target = self.current;
        let cut = u128::from(self.current) * u128::from(self.alpha) / u128::from(2 * ALPHA_ONE);
        self.current = (self.current - cut as u64).max(self.line / LEAST);
        self.alpha = self.alpha - (self.alpha >> rule.gain_shift) + (ALPHA_ONE >> rule.gain_shift);
        self.alpha_due = now + alpha_period(rule);
        self.timer_due = now + rule.increase_period;
        (self.timer_rounds, self.byte_rounds, self.bytes) = (0, 0, 0);
    }

    /// Returns the first instant from `now` at which a packet may begin.
    pub(crate) fn ready_at(&self, now: Picos) -> Picos {
        self.next.max(now)
    }

    /// Records that a packet of `bytes` begins.
    pub(crate) fn sent(&mut self, rule: &Dcqcn, now: Picos, bytes: u32) {
        self.advance(rule, now);
        self.next = self.next.max(now) + Pace::from_rate(BitsPerSec(self.current)).time(bytes);
        if self.current < self.line {
            self.bytes += u64::from(bytes);
            while self.bytes >= ROUND_BYTES {
                self.bytes -= ROUND_BYTES;
                self.byte_rounds += 1;
                self.raise(rule);
            }
        }
    }

    /// Returns the rate at `now`.
    #[cfg(test)]
    pub(crate) fn rate(&mut self, rule: &Dcqcn, now: Picos) -> BitsPerSec {
        self.advance(rule, now);
        BitsPerSec(self.current)
    }

    /// Does what the timers would have done up to `now`.
    fn advance(&mut self, rule: &Dcqcn, now: Picos) {
        while self.alpha_due <= now {
            let less = self.alpha >> rule.gain_shift;
            self.alpha -= less;
            // Too small to become smaller: it will not change until the next notice.
            self.alpha_due =
                if less == 0 { Picos::NEVER } else { self.alpha_due + alpha_period(rule) };
        }
        while self.timer_due <= now {
            self.timer_rounds += 1;
            self.raise(rule);
            let done = self.current == self.line;
            self.timer_due = if done {
                Picos::NEVER
            } else {
                self.timer_due + rule.increase_period.max(Picos(1))
            };
        }
    }

    /// Raises the rate after one round of timer or byte counter.
    fn raise(&mut self, rule: &Dcqcn) {
        let (fewer, more) =
            (self.timer_rounds.min(self.byte_rounds), self.timer_rounds.max(self.byte_rounds));
        let step = if more < FAST_ROUNDS {
            0
        } else if fewer > FAST_ROUNDS {
            u64::from(fewer - FAST_ROUNDS) * HYPER * rule.increase.0
        } else {
            rule.increase.0
        };
        self.target = self.target.saturating_add(step).min(self.line);
        // Rounded up, so that it arrives.
        self.current = (self.current + self.target).div_ceil(2);
    }
}

/// Returns the time after which the estimate decays when no notice came, a tenth more than the
/// interval of notices: 55 and 50 us in the paper.
fn alpha_period(rule: &Dcqcn) -> Picos {
    Picos((rule.notice_interval.0 / 10 * 11).max(1))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use clearway_proto::base::{Bytes, RandomKey};
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Event, PendingEvents};
    use crate::fabric::EventQueueKind;

    /// The paper's parameters, for 40 Gb/s.
    const PAPER: Dcqcn = Dcqcn {
        mark_min: Bytes(5_000),
        mark_max: Bytes(200_000),
        mark_probability: 10_000,
        notice_interval: Picos::from_micros(50),
        increase_period: Picos::from_micros(55),
        increase: BitsPerSec::mega(40),
        gain_shift: 8,
    };
    const LINE: BitsPerSec = BitsPerSec::mega(40_000);
    const PACKET: u32 = 1_060;
    const DELAY: Picos = Picos::from_nanos(2_000);

    /// Flows that begin one after the other and share one port.
    struct Shared {
        events: PendingEvents,
        port: VecDeque<u32>,
        flows: Vec<(Reaction, Notifier, u64)>,
        hash: clearway_proto::base::RandomStream,
        longest: usize,
    }

    impl Shared {
        fn new(starts: &[Picos]) -> Self {
            let mut events = PendingEvents::new(EventQueueKind::Wheel);
            starts
                .iter()
                .enumerate()
                .for_each(|(n, at)| events.push(Event::new(*at, 0, n as u32, 0)));
            let flows =
                starts.iter().map(|_| (Reaction::new(LINE), Notifier::default(), 0)).collect();
            Self {
                events,
                port: VecDeque::new(),
                flows,
                hash: RandomKey::new(3).stream(),
                longest: 0,
            }
        }

        /// Returns the bytes of each flow until `end`, from now.
        fn run(&mut self, end: Picos) -> Vec<u64> {
            let before: Vec<u64> = self.flows.iter().map(|flow| flow.2).collect();
            self.longest = 0;
            while let Some(event) = self.events.pop_until(end) {
                self.step(event);
                self.longest = self.longest.max(self.port.len());
            }
            self.flows.iter().zip(before).map(|(flow, before)| flow.2 - before).collect()
        }

        fn step(&mut self, event: Event) {
            let (now, id) = (event.at, event.entity());
            let time = Pace::from_rate(LINE).time(PACKET);
            let (reaction, notifier, bytes) = &mut self.flows[id as usize];
            match event.kind() {
                0 => {
                    reaction.sent(&PAPER, now, PACKET);
                    self.events.push(Event::new(now + DELAY, 1, id, 0));
                    self.events.push(Event::new(reaction.ready_at(now + time), 0, id, 0));
                }
                1 => {
                    let queued = self.port.len() as u64 * u64::from(PACKET);
                    if marks(&PAPER, queued, self.hash.next_u64() as u32)
                        && notifier.marked(&PAPER, now)
                    {
                        self.events.push(Event::new(now + DELAY + DELAY, 3, id, 0));
                    }
                    self.port.push_back(id);
                    if self.port.len() == 1 {
                        self.events.push(Event::new(now + time, 2, id, 0));
                    }
                }
                2 => {
                    *bytes += u64::from(PACKET);
                    self.port.pop_front();
                    if let Some(id) = self.port.front() {
                        self.events.push(Event::new(now + time, 2, *id, 0));
                    }
                }
                _ => reaction.notified(&PAPER, now),
            }
        }
    }

    #[test]
    fn flows__that_begin_apart_share_evenly_and_keep_the_queue_short() {
        let mut shared = Shared::new(&[Picos::ZERO, Picos::from_micros(1_000)]);
        shared.run(Picos::from_micros(60_000));
        let bytes = shared.run(Picos::from_micros(140_000));
        let fits = 80_000 * 5_000;
        let sum: u64 = bytes.iter().sum();
        assert!(sum * 100 >= fits * 90, "{bytes:?} of {fits}");
        assert!(bytes.iter().all(|flow| flow * 100 / sum >= 40), "{bytes:?}");
        assert!(
            shared.longest as u64 * u64::from(PACKET) < PAPER.mark_max.0,
            "{} packets",
            shared.longest
        );
    }

    #[test]
    fn marks__follow_the_curve() {
        let share = |queued| {
            let mut stream = RandomKey::new(7).stream();
            (0..100_000).filter(|_| marks(&PAPER, queued, stream.next_u64() as u32)).count()
        };
        assert_eq!((share(5_000), share(200_000)), (0, 100_000));
        // Half way, half of one per cent: 500 expected, standard deviation 22; six of them either
        // way.
        assert!((366..634).contains(&share(102_500)), "{}", share(102_500));
    }

    #[test]
    fn notifier__one_notice_in_an_interval() {
        let mut notifier = Notifier::default();
        let due = [0, 1, 49, 50, 99, 100].map(|us| notifier.marked(&PAPER, Picos::from_micros(us)));
        assert_eq!(due, [true, false, false, true, false, true]);
    }

    #[test]
    fn reaction__halves_at_first_and_recovers_half_of_the_rest_each_round() {
        let mut flow = Reaction::new(LINE);
        flow.notified(&PAPER, Picos::ZERO);
        let at = |flow: &mut Reaction, us| flow.rate(&PAPER, Picos::from_micros(us)).0 / 1_000_000;
        assert_eq!(
            [0, 54, 55, 110, 165, 220].map(|us| at(&mut flow, us)),
            [20_000, 20_000, 30_000, 35_000, 37_500, 38_750]
        );
        assert_eq!(at(&mut flow, 1_000_000), 40_000);
    }

    #[test]
    fn reaction__many_notices_end_at_the_least_rate() {
        let mut flow = Reaction::new(LINE);
        (0..200).for_each(|n| flow.notified(&PAPER, Picos::from_micros(50 * n)));
        assert_eq!(flow.rate(&PAPER, Picos::from_micros(50 * 199)), BitsPerSec::mega(40));
    }

    proptest! {
        #[test]
        fn reaction__asking_makes_no_difference(steps in proptest::collection::vec((0u64..400, 0u32..3), 1..60)) {
            let (mut asked, mut left) = (Reaction::new(LINE), Reaction::new(LINE));
            let mut now = Picos::ZERO;
            for (us, what) in steps {
                for _ in 0..us / 20 {
                    now += Picos::from_micros(20);
                    asked.rate(&PAPER, now);
                }
                match what {
                    0 => [&mut asked, &mut left].map(|flow| flow.notified(&PAPER, now)),
                    _ => [&mut asked, &mut left].map(|flow| flow.sent(&PAPER, now, 1 << 20)),
                };
                prop_assert_eq!(asked, left);
                prop_assert!(asked.current <= asked.target && asked.target <= asked.line);
                prop_assert!(asked.current >= asked.line / LEAST);
            }
        }
    }
}
