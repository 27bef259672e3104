//! Patterns that drive a fabric without any engine: for closed forms, comparisons and benchmarks.
//!
//! # Model
//! A pattern posts messages and hears notices. Open patterns post on schedule, whatever happens;
//! closed ones post the next message of a host when its last one has left.
//!
//! # Invariants
//! I1. Percentiles are over what was injected: a message that did not arrive counts as one that
//!     takes forever.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use clearway_proto::base::{Class, RandomKey, RandomStream};
use clearway_proto::stats::Histogram;

use crate::fabric::{Fabric, Notice, NoticeSet, SendRequest, Target};
use crate::graph::DeviceId;
use crate::time::Picos;

/// What became of a pattern's messages.
#[derive(Clone, Debug)]
pub struct TrafficOutcome {
    /// Messages posted.
    pub injected: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// From post to delivery in nanoseconds; infinite for what was not delivered.
    pub latency: Histogram,
    /// When the last delivery was.
    pub end: Picos,
}

impl TrafficOutcome {
    fn new() -> Self {
        Self { injected: 0, delivered: 0, latency: Histogram::new(), end: Picos::ZERO }
    }

    fn arrived(&mut self, posted: u64, at: Picos) {
        self.delivered += 1;
        self.latency.record((at.0 - posted) / 1_000);
        self.end = self.end.max(at);
    }

    fn close(mut self) -> Self {
        self.latency.record_infinite(self.injected - self.delivered);
        self
    }
}

/// Returns a message of `bytes` for the patterns below.
pub fn order(
    from: u32,
    to: u32,
    class: Class,
    bytes: u64,
    reports: NoticeSet,
    tag: u64,
) -> SendRequest {
    SendRequest {
        from: DeviceId(from),
        to: Target::Host(DeviceId(to)),
        class,
        bytes,
        rail: 0,
        reports,
        tag,
    }
}

/// When a host of [`shifted_all_to_all`] posts its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostingRule {
    /// Each when the one before has left.
    InTurn,
    /// All at time zero: for interfaces that serve in order ([`crate::spec::Service::InOrder`]).
    AtOnce,
}

/// Sends `bytes` from every host to every other in shifted order: host i to i+1, then i+2, ... One
/// message of a host is on its way at a time, so that on a network without conflicts nobody ever
/// waits.
pub fn shifted_all_to_all(fabric: &mut Fabric, bytes: u64, posting: PostingRule) -> TrafficOutcome {
    let hosts = fabric.graph().hosts();
    let mut outcome = TrafficOutcome::new();
    let (first, reports) = match posting {
        PostingRule::InTurn => (1..2, NoticeSet::SentAndDelivery),
        PostingRule::AtOnce => (1..hosts, NoticeSet::Delivery),
    };
    // The tag is the time of the post.
    let send =
        |fabric: &mut Fabric, outcome: &mut TrafficOutcome, at: Picos, from: u32, shift: u32| {
            fabric.post(at, order(from, (from + shift) % hosts, Class::Bulk, bytes, reports, at.0));
            outcome.injected += 1;
        };
    let mut next = vec![first.end; hosts as usize];
    for from in 0..hosts {
        for shift in first.clone().filter(|shift| *shift < hosts) {
            send(fabric, &mut outcome, Picos::ZERO, from, shift);
        }
    }
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
        for notice in notices.drain(..) {
            match notice {
                Notice::Sent { from, at, .. } => {
                    let shift = next[from.index()];
                    if shift < hosts {
                        next[from.index()] += 1;
                        send(fabric, &mut outcome, at, from.0, shift);
                    }
                }
                Notice::Delivered { tag, at, .. } => outcome.arrived(tag, at),
                Notice::Acknowledged { .. } | Notice::Doubled { .. } | Notice::Lost { .. } => {}
            }
        }
    }
    outcome.close()
}

/// A stream of posts from one host.
#[derive(Clone, Debug)]
pub struct TrafficSource {
    /// The sender.
    pub from: u32,
    /// One receiver, or any other host.
    pub to: Option<u32>,
    /// The class.
    pub class: Class,
    /// Bytes of a message.
    pub bytes: u64,
    /// Mean time between messages.
    pub interval: Picos,
    /// How times are drawn.
    pub arrivals: Arrivals,
    /// Whether its messages are timed.
    pub timed: Timed,
}

/// How the times between posts are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Always the mean, from a random beginning.
    Regular,
    /// Exponentially distributed: a Poisson process.
    Poisson,
}

/// Whether messages enter the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// Those posted from this instant on.
    From(Picos),
    /// None: they are there to be in the way.
    No,
}

/// Runs `sources` from time zero until `until`, then stops posting and listens until `last`.
pub fn open(
    fabric: &mut Fabric,
    sources: &[TrafficSource],
    until: Picos,
    last: Picos,
    key: RandomKey,
) -> TrafficOutcome {
    let hosts = fabric.graph().hosts();
    let mut outcome = TrafficOutcome::new();
    let mut streams: Vec<RandomStream> =
        (0..sources.len()).map(|i| key.node(i as u64).stream()).collect();
    let mut due = BinaryHeap::new();
    for (i, source) in sources.iter().enumerate() {
        due.push(Reverse((streams[i].below(source.interval.0.max(1)), i)));
    }
    let mut posts: Vec<u64> = Vec::new();
    let mut notices = Vec::new();
    loop {
        let next = due.peek().map(|Reverse((at, _))| *at).filter(|at| *at < until.0);
        let stop = Picos(next.unwrap_or(last.0));
        let reached = fabric.advance(stop, &mut notices);
        for notice in notices.drain(..) {
            if let Notice::Delivered { tag, at, .. } = notice
                && tag != UNTIMED
            {
                outcome.arrived(posts[tag as usize], at);
            }
        }
        if reached < stop {
            continue;
        }
        let Some(at) = next else { return outcome.close() };
        // It stays where it is until its next time is known: one way through the heap, not two.
        let Some(mut first) = due.peek_mut() else { return outcome.close() };
        let Reverse((_, i)) = *first;
        let source = &sources[i];
        let to = source.to.unwrap_or_else(|| {
            (source.from + 1 + streams[i].below(u64::from(hosts) - 1) as u32) % hosts
        });
        let timed = matches!(source.timed, Timed::From(from) if at >= from.0);
        let tag = if timed { posts.len() as u64 } else { UNTIMED };
        if timed {
            posts.push(at);
            outcome.injected += 1;
        }
        fabric.post(
            Picos(at),
            order(source.from, to, source.class, source.bytes, NoticeSet::Delivery, tag),
        );
        let gap = match source.arrivals {
            Arrivals::Regular => source.interval.0,
            Arrivals::Poisson => exponential(source.interval.0, streams[i].next_u64()),
        };
        *first = Reverse((at + gap.max(1), i));
    }
}

/// The tag of messages that are not timed.
const UNTIMED: u64 = u64::MAX;

/// Binary digits behind the point of [`minus_ln`].
const LN_POINT: u32 = 32;
/// ln 2 with 32 digits behind the point, rounded.
const LN_2: u128 = 2_977_044_472;

/// Returns an exponentially distributed length with this mean, from 64 random bits. Integers only:
/// the same on every machine.
pub fn exponential(mean: u64, random: u64) -> u64 {
    let product = u128::from(mean) * minus_ln(random | 1);
    u64::try_from(product >> LN_POINT).unwrap_or(u64::MAX)
}

/// Computes -ln(u / 2^64) with 32 digits behind the point: the power of two exactly, the rest bit
/// by bit by squaring.
fn minus_ln(u: u64) -> u128 {
    let shift = u.leading_zeros();
    // x in [1, 2) with 63 digits behind the point; u = x * 2^(63 - shift).
    let mut x = u << shift;
    let mut log2 = 0u128;
    for _ in 0..LN_POINT {
        // The bits are random: a branch would be guessed wrong every other time.
        let square = u128::from(x) * u128::from(x);
        let bit = square >> 127;
        x = (square >> (63 + bit)) as u64;
        log2 = log2 << 1 | bit;
    }
    // u / 2^64 = x * 2^(-1 - shift), so -log2 = 1 + shift - log2(x).
    let minus_log2 = (u128::from(shift + 1) << LN_POINT) - log2;
    (minus_log2 * LN_2) >> LN_POINT
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::BitsPerSec;

    use super::*;
    use crate::fabric::FabricOptions;
    use crate::spec::{FabricSpec, Routing, Service, Topology};
    use crate::topology;

    /// Returns the outcome of 64 KiB from each of 16 hosts to each other on a tree of full
    /// bisection.
    fn all_to_all(posting: PostingRule) -> TrafficOutcome {
        let shape =
            Topology::FatTree { children: vec![4, 4], parents: vec![1, 4], cables: vec![1, 1] };
        let mut spec =
            FabricSpec::plain(shape, Routing::DestinationModulo, BitsPerSec::mega(100_000));
        spec.host.service = Service::InOrder;
        let network = topology::build(&spec).expect("a sound network");
        let mut fabric = Fabric::new(&spec, network, 1, FabricOptions::default());
        shifted_all_to_all(&mut fabric, 65_536, posting)
    }

    /// 65,536 bytes at 80 ps, four cables of 5 ns and three switches of 100 ns, in ns.
    const FAR_NS: u64 = 5_242 + 320;

    #[test]
    fn shifted_all_to_all__in_turn_nobody_waits() {
        let outcome = all_to_all(PostingRule::InTurn);
        assert_eq!((outcome.injected, outcome.delivered), (240, 240));
        let worst = outcome.latency.max().expect("messages");
        assert!((FAR_NS..FAR_NS + 100).contains(&worst), "{worst}");
    }

    #[test]
    fn shifted_all_to_all__at_once_the_last_waits_for_all_before() {
        let outcome = all_to_all(PostingRule::AtOnce);
        assert_eq!((outcome.injected, outcome.delivered), (240, 240));
        let ideal = 15 * 65_536 * 80;
        assert!((ideal..ideal + 400_000).contains(&outcome.end.0), "{}", outcome.end.0);
    }

    #[test]
    fn exponential__has_its_mean_and_its_tail() {
        let mut stream = RandomKey::new(4).stream();
        let draws: Vec<u64> =
            (0..100_000).map(|_| exponential(1_000_000, stream.next_u64())).collect();
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        // Standard error of the mean: 0.32 %.
        assert!((990_000..1_010_000).contains(&mean), "{mean}");
        let above = draws.iter().filter(|draw| **draw > 3_000_000).count();
        // e^-3 of them: 4979 expected, standard deviation 69.
        assert!((4_700..5_260).contains(&above), "{above}");
    }
}
