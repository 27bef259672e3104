//! Casts to receivers behind slow links: the group goes at the pace of the slowest good one, hardly
//! anything is dropped, and one below the floor is named.
//!
//! # Model
//! Members are behind links with a rate and a queue. Rates, queues, algorithm and the slow one are
//! drawn. What is dropped is counted at the links, and the time compared with that of the slowest
//! link for all packets.

use super::trial::{BroadcastPlan, BroadcastTrial, SYMBOL};
use super::*;
use crate::base::{BitsPerSec, Bytes, LocalNs, Nanos, RandomKey, RandomStream, Rank};

/// Bytes on the link of one full symbol of a trial.
const PACKET: u64 = 200;
/// A port of a switch has more.
const LEAST_QUEUE: Bytes = Bytes(64 << 10);

/// Bytes of a cast: in symbols some windows.
const BYTES: u32 = 1_600_000;
const SYMBOLS: u64 = BYTES as u64 / SYMBOL as u64;

/// A cast to members of which one is behind a slow link.
#[derive(Clone, Debug)]
struct SlowLinkCase {
    ranks: u32,
    fast: BitsPerSec,
    slow: (u32, BitsPerSec),
    queue: Nanos,
    rate: Option<BitsPerSec>,
    algorithm: Algorithm,
    seed: u64,
}

impl SlowLinkCase {
    /// Draws one whose slow link has a half to a ninth of the others' rate.
    fn draw(stream: &mut RandomStream, seed: u64) -> Self {
        let mut below = |bound: u64| stream.below(bound);
        let ranks = 3 + below(6) as u32;
        let slow = 1 + below(u64::from(ranks) - 1) as u32;
        let fast = 50 + below(200);
        Self {
            ranks,
            fast: BitsPerSec::mega(fast),
            slow: (slow, BitsPerSec::mega(fast / (2 + below(8)))),
            queue: Nanos::from_millis(5 + below(40)),
            rate: (below(3) == 0).then(|| BitsPerSec::mega(fast)),
            algorithm: [Algorithm::Multicast, Algorithm::Chain, Algorithm::Tree][below(3) as usize],
            seed,
        }
    }

    fn trial(&self) -> BroadcastTrial {
        let lengths = [BYTES / 4; 4];
        let plan = BroadcastPlan {
            rate: self.rate,
            first_rate: Some(BitsPerSec::mega(100)),
            window: 4096,
            silence: Nanos::from_secs(30),
            algorithm: self.algorithm,
            places_first: Some(4),
            seed: self.seed,
            until: LocalNs(60_000_000_000),
            ..BroadcastPlan::new(self.ranks, &lengths)
        };
        let mut trial = BroadcastTrial::new(plan);
        for rank in 0..self.ranks {
            let rate = if rank == self.slow.0 { self.slow.1 } else { self.fast };
            let room = Bytes(rate.0 / 8 * (self.queue.0 / 1_000_000) / 1_000).max(LEAST_QUEUE);
            trial.fabric.limit_rate(Rank(rank), rate, room);
        }
        trial.cast(lengths.len());
        trial
    }

    /// Returns the time, in hundredths of what the slow link needs for everything once, and how many
    /// hundredths of all symbols were dropped, at all links.
    fn outcome(&self, trial: &BroadcastTrial) -> (u64, u64) {
        let once = self.slow.1.time_for(Bytes(SYMBOLS * PACKET));
        let dropped = (0..self.ranks).map(|rank| trial.fabric.passed_and_dropped(Rank(rank)).1);
        (trial.fabric.now().0 * 100 / once.0, dropped.sum::<u64>() * 100 / SYMBOLS)
    }
}

#[test]
fn slow_link__the_group_goes_at_its_pace_and_little_is_dropped() {
    let seeds = std::env::var("SWARM_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(6) {
        let mut stream = RandomKey::new(seed).purpose("slow links").stream();
        let case = SlowLinkCase::draw(&mut stream, seed);
        let mut trial = case.trial();
        trial.run();
        assert!(trial.is_over(), "{case:?}");
        let (time, dropped) = case.outcome(&trial);
        // What is lost along a chain or tree is asked for one hop after the other.
        let most = if case.algorithm == Algorithm::Multicast { 125 } else { 300 };
        assert!(time < most, "{time} % of the slow link's time: {case:?}");
        assert!(dropped <= 15, "{dropped} % of all symbols dropped: {case:?}");
        let named = |event: &BroadcastEvent| matches!(event, BroadcastEvent::BelowFloor { .. });
        assert!(!trial.processes[0].events.iter().any(named), "a good receiver: {case:?}");
    }
}

#[test]
fn below_floor__a_receiver_is_named_and_the_others_are_as_fast_as_they_can_without_it() {
    for (seed, algorithm) in [(0, Algorithm::Multicast), (1, Algorithm::Chain)] {
        let case = SlowLinkCase {
            ranks: 5,
            fast: BitsPerSec::mega(200),
            slow: (3, BitsPerSec(1_500_000)),
            queue: Nanos::from_millis(20),
            rate: None,
            algorithm,
            seed,
        };
        let mut trial = case.trial();
        let named = BroadcastEvent::BelowFloor { rank: Rank(3) };
        while !trial.processes[0].events.contains(&named) {
            trial.turn();
            assert!(trial.fabric.now() < LocalNs(6_000_000_000), "{algorithm:?}: nobody is named");
        }
        let then = trial.fabric.now();
        trial.command(0, BroadcastCommand::Dead { rank: Rank(3) });
        while trial.processes[0].stable.len() < 4 {
            trial.turn();
        }
        let once = case.fast.time_for(Bytes(SYMBOLS * PACKET));
        let took = trial.fabric.now().since(then);
        assert!(took < once.times(3), "{took} where {once} are needed: {algorithm:?}");
    }
}

#[test]
fn below_floor__nobody_is_where_all_are_slow() {
    let slow = BitsPerSec::mega(2);
    let mut trial = SlowLinkCase {
        ranks: 4,
        fast: slow,
        slow: (1, slow),
        queue: Nanos::from_millis(20),
        rate: Some(BitsPerSec::mega(1_000)),
        algorithm: Algorithm::Multicast,
        seed: 3,
    }
    .trial();
    while trial.fabric.now() < LocalNs(6_000_000_000) {
        trial.turn();
    }
    let named = |event: &BroadcastEvent| matches!(event, BroadcastEvent::BelowFloor { .. });
    assert!(!trial.processes[0].events.iter().any(named));
}
