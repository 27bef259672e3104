//! Bytes of packets and messages, and a node whose scavengers fill a queue before its peers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::base::{BitsPerSec, LocalNs, RandomKey, RandomStream};

const LINK: BitsPerSec = BitsPerSec(1_000_000_000);
const MOST: BitsPerSec = BitsPerSec(u64::MAX);
/// A round trip without any queue.
const QUIET: u64 = 100_000;
const TICK: u64 = 1_000_000;

/// A node, its scavengers, and the queue that all probes pass.
struct ProbedNode {
    agent: NodeAgent,
    now: LocalNs,
    scavengers: BTreeMap<u64, (AgentFollower, BitsPerSec)>,
    random: RandomStream,
    /// The rate that the port carries, and bits that wait before it.
    port: u64,
    queue: u64,
    /// Bits of others in a second.
    others: u64,
    peers_answer: bool,
    answers: Vec<(LocalNs, usize, u64)>,
    sent: u128,
}

impl ProbedNode {
    fn new(seed: u64) -> Self {
        let random = RandomKey::new(seed).purpose("agent").stream();
        let now = LocalNs(7_000_000_000);
        let mut node = Self {
            agent: NodeAgent::new(now, LINK, 3),
            now,
            scavengers: BTreeMap::new(),
            random,
            port: LINK.0,
            queue: 0,
            others: 0,
            peers_answer: true,
            answers: Vec::new(),
            sent: 0,
        };
        node.agent.align(LocalNs(123_456_789));
        node.pass(2_000);
        node
    }

    /// Joins as a scavenger of its own user.
    fn join(&mut self, name: u64, demand: BitsPerSec) {
        self.agent.demand(self.now, name, name as u32, demand).expect("a place");
        self.scavengers.insert(name, (AgentFollower::default(), demand));
    }

    fn pass(&mut self, millis: u64) {
        (0..millis).for_each(|_| self.step());
    }

    /// Passes a millisecond.
    fn step(&mut self) {
        self.now = LocalNs(self.now.0 + TICK);
        let now = self.now;
        let used: u64 = self
            .scavengers
            .values_mut()
            .map(|(follower, demand)| {
                let rate = follower.take(now, None).unwrap_or(BitsPerSec(LINK.0 / 100));
                let rate = rate.min(*demand).0;
                if follower.paused_until(now).is_some() { 0 } else { rate }
            })
            .sum();
        self.sent += u128::from(used) * u128::from(TICK);
        let in_tick = |rate: u64| rate / 1_000;
        self.queue += in_tick(used) + in_tick(self.others);
        self.queue = self.queue.saturating_sub(in_tick(self.port)).min(self.port / 20);
        self.agent.advance(now);
        let nonce = self.random.next_u64();
        if let Some((peer, packet)) = self.agent.probe(now, nonce) {
            assert_eq!(packet, ProbePacket::Probe { nonce });
            // A burst of a scavenger is before the probe as often as the port is busy.
            let busy = self.random.below(self.port) < used + self.others;
            let wait = self.queue * 1_000 / (self.port / 1_000_000) + u64::from(busy) * 12_000;
            let took = QUIET + wait + self.random.below(5_000);
            if self.peers_answer {
                self.answers.push((LocalNs(now.0 + took), peer, nonce));
            }
        }
        let due: Vec<_> = self.answers.extract_if(.., |(at, ..)| *at <= now).collect();
        for (at, peer, nonce) in due {
            self.agent.answer(at, peer, nonce).expect("it was asked");
        }
        self.grants();
    }

    /// Delivers all grants; they are together at most what is allowed.
    fn grants(&mut self) {
        let mut rates = BTreeMap::new();
        while let Some((name, grant)) = self.agent.grant(self.now) {
            let bytes = AgentAnswer::Granted(grant).encode();
            assert_eq!(AgentAnswer::decode(&bytes), Some(AgentAnswer::Granted(grant)));
            rates.insert(name, grant.rate.0);
            if let Some((follower, _)) = self.scavengers.get_mut(&name) {
                follower.grant(self.now, grant);
            }
        }
        assert!(rates.values().sum::<u64>() <= self.agent.allowed().0, "{rates:?}");
    }

    fn allowed_percent(&self) -> u64 {
        self.agent.allowed().0 * 100 / LINK.0
    }
}

#[test]
fn probe__there_are_three_a_second_and_48_while_scavengers_send() {
    let mut node = ProbedNode::new(1);
    let before = node.agent.figures().probes;
    node.pass(10_000);
    let slow = node.agent.figures().probes - before;
    assert!((28..=31).contains(&slow), "{slow}");
    node.join(1, MOST);
    node.pass(10_000);
    let fast = node.agent.figures().probes - before - slow;
    assert!((440..=500).contains(&fast), "{fast}");
    let figures = node.agent.figures();
    assert_eq!((figures.peers, figures.peers_reachable, figures.demanding), (3, 3, 1));
    assert!(figures.round_trips.count() > 400);
}

#[test]
fn advance__the_rate_begins_at_the_least_and_reaches_a_link_that_nobody_else_needs() {
    let mut node = ProbedNode::new(2);
    node.port = 2 * LINK.0;
    assert_eq!(node.allowed_percent(), 1);
    node.join(1, MOST);
    node.grants();
    assert_eq!(node.scavengers[&1].0.clone().take(node.now, None), Some(BitsPerSec(LINK.0 / 100)));
    node.pass(10_000);
    assert_eq!(node.allowed_percent(), 100);
    assert_eq!(node.scavengers[&1].0.held().least, BitsPerSec(LINK.0 / 100));
}

#[test]
fn advance__scavengers_that_fill_a_queue_slow_down_and_come_back() {
    let mut node = ProbedNode::new(3);
    node.join(1, MOST);
    node.join(2, MOST);
    node.pass(4_000);
    node.port = LINK.0 / 4;
    node.pass(20_000);
    let allowed = node.allowed_percent();
    assert!((4..32).contains(&allowed), "{allowed}");
    let held = node.scavengers[&1].0.held();
    assert!(held.time > Nanos::from_secs(15) && held.mean() >= held.least, "{held:?}");
    node.port = 3 * LINK.0;
    node.pass(60_000);
    assert_eq!(node.allowed_percent(), 100);
}

#[test]
fn decide__a_load_of_others_does_not_slow_scavengers_down() {
    let mut node = ProbedNode::new(4);
    node.port = 2 * LINK.0;
    node.join(1, MOST);
    node.pass(10_000);
    // Others fill the queue all along; pauses become long, and show that.
    node.others = 3 * LINK.0;
    node.pass(10_000);
    assert_eq!(node.allowed_percent(), 100);
}

#[test]
fn see__an_agent_to_which_no_peer_answers_limits_nothing() {
    let mut node = ProbedNode::new(5);
    node.join(1, MOST);
    node.pass(1_000);
    assert!(node.allowed_percent() < 10);
    node.peers_answer = false;
    node.pass(4_000);
    let figures = node.agent.figures();
    assert_eq!((figures.allowed, figures.peers_reachable), (LINK, 0));
    let (follower, _) = &mut node.scavengers.get_mut(&1).expect("it joined");
    assert_eq!(follower.take(node.now, None), Some(LINK));
    assert!(figures.unanswered > 0);
    node.peers_answer = true;
    node.pass(2_500);
    assert!(node.allowed_percent() < 50);
}

#[test]
fn answer__what_was_not_asked_is_refused() {
    let now = LocalNs(1);
    let mut agent = NodeAgent::new(now, LINK, 2);
    let (peer, _) = agent.probe(now, 77).expect("the first");
    assert_eq!(agent.answer(now, 1 - peer, 77), Err(ProbeFault::Unsolicited), "another peer");
    assert_eq!(agent.answer(now, peer, 78), Err(ProbeFault::Unsolicited), "another nonce");
    assert_eq!(agent.answer(now, 9, 77), Err(ProbeFault::Unsolicited));
    assert_eq!(agent.answer(now, peer, 77), Ok(()));
    assert_eq!(agent.answer(now, peer, 77), Err(ProbeFault::Unsolicited), "twice");
    let (peer, _) = agent.probe(now + Nanos::from_millis(330), 5).expect("another");
    agent.advance(now + Nanos::from_secs(2));
    assert_eq!(
        agent.answer(now + Nanos::from_secs(2), peer, 5),
        Err(ProbeFault::Unsolicited),
        "late"
    );
}

#[test]
fn demand__there_is_an_end_of_places() {
    let mut agent = NodeAgent::new(LocalNs(0), LINK, 0);
    for name in 0..SCAVENGERS_MAX as u64 {
        assert_eq!(agent.demand(LocalNs(0), name, 7, MOST), Ok(()));
    }
    assert_eq!(agent.demand(LocalNs(0), 999, 8, MOST), Err(AgentAnswer::Full));
    assert_eq!(agent.demand(LocalNs(0), 3, 7, BitsPerSec(0)), Ok(()), "it has a place");
    agent.leave(LocalNs(0), 3);
    assert_eq!(agent.demand(LocalNs(0), 999, 8, MOST), Ok(()));
}

/// All grants that are due.
fn granted(agent: &mut NodeAgent, now: LocalNs) -> BTreeMap<u64, u64> {
    core::iter::from_fn(|| agent.grant(now)).map(|(name, grant)| (name, grant.rate.0)).collect()
}

#[test]
fn demand__one_that_comes_and_goes_renews_grants_once_in_a_tenth_of_a_second() {
    let at = |millis| LocalNs(0) + Nanos::from_millis(millis);
    let mut agent = NodeAgent::new(at(0), LINK, 0);
    agent.advance(at(0));
    for name in 0..3 {
        agent.demand(at(0), name, 1, MOST).expect("a place");
    }
    let mut grants = 0;
    for millis in 1..=1_000 {
        agent.demand(at(millis), 9, 2, MOST).expect("a place");
        agent.advance(at(millis));
        grants += granted(&mut agent, at(millis)).len();
        agent.leave(at(millis), 9);
    }
    assert!((3..=4 * 11).contains(&grants), "{grants}");
}

#[test]
fn demand__what_changes_soon_after_a_renewal_counts_when_the_time_is_over() {
    let mut agent = NodeAgent::new(LocalNs(0), LINK, 0);
    agent.demand(LocalNs(5), 1, 1, MOST).expect("a place");
    assert_eq!(granted(&mut agent, LocalNs(5)), [(1, LINK.0)].into());
    agent.demand(LocalNs(6), 2, 2, MOST).expect("a place");
    let due = LocalNs(5) + Nanos::from_millis(100);
    assert_eq!((agent.deadline(), granted(&mut agent, LocalNs(6)).len()), (due, 0));
    agent.advance(LocalNs(due.0 - 1));
    assert_eq!(granted(&mut agent, LocalNs(due.0 - 1)).len(), 0);
    agent.advance(due);
    assert_eq!(granted(&mut agent, due), [(1, LINK.0 / 2), (2, LINK.0 / 2)].into());
    agent.demand(due + Nanos::from_millis(100), 2, 2, BitsPerSec(8_000_000)).expect("a place");
    let rates = granted(&mut agent, due + Nanos::from_millis(100));
    assert_eq!(rates, [(1, LINK.0 - 8_000_000), (2, 8_000_000)].into(), "at once");
}

#[test]
fn grant__ten_connections_of_a_user_share_what_one_gets() {
    let mut agent = NodeAgent::new(LocalNs(0), LINK, 0);
    for name in 0..10 {
        agent.demand(LocalNs(0), name, 1, MOST).expect("a place");
    }
    agent.demand(LocalNs(0), 10, 2, MOST).expect("a place");
    let later = LocalNs(0) + Nanos::from_secs(1);
    agent.advance(later);
    let rates = granted(&mut agent, later);
    assert_eq!((rates[&0], rates[&9], rates[&10]), (LINK.0 / 20, LINK.0 / 20, LINK.0 / 2));
}

#[test]
fn grant__pauses_are_common_and_begin_at_multiples_on_the_wall_clock() {
    let mut node = ProbedNode::new(6);
    node.join(1, MOST);
    node.join(2, BitsPerSec(1_000));
    node.join(3, BitsPerSec(0));
    node.pass(1_000);
    let mut pauses = 0;
    for _ in 0..5_000 {
        node.step();
        let ends: Vec<_> =
            node.scavengers.values().map(|(it, _)| it.paused_until(node.now)).collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{ends:?}");
        pauses += usize::from(ends[0].is_some());
    }
    // Ten pauses of 40 ms.
    assert!((390..=410).contains(&pauses), "{pauses}");
    let rate = |name: u64, node: &ProbedNode| node.scavengers[&name].0.clone().take(node.now, None);
    assert_eq!(rate(2, &node), Some(BitsPerSec(node.agent.allowed().0 / 256)));
}

#[test]
fn take__after_the_lease_the_last_rate_stays_without_pauses_until_the_agent_ends_in_order() {
    let mut follower = AgentFollower::default();
    let at = |millis| LocalNs(0) + Nanos::from_millis(millis);
    let rate = BitsPerSec::mega(5);
    let pause = Nanos::from_millis(40);
    let grant = AgentGrant {
        rate,
        is_held: true,
        lease: Nanos::from_millis(300),
        pause_at: at(400),
        pause,
    };
    follower.grant(at(0), grant);
    assert_eq!((follower.deadline(at(0)), follower.is_following(at(299))), (Some(at(400)), true));
    assert_eq!(follower.take(at(299), Some(rate)), Some(rate));
    assert_eq!(follower.held().time, Nanos::ZERO, "others allow no more");
    assert_eq!((follower.take(at(900), None), follower.is_following(at(300))), (Some(rate), false));
    assert_eq!((follower.paused_until(at(410)), follower.deadline(at(300))), (None, None));
    follower.rest(at(5_000));
    assert_eq!(follower.take(at(5_010), None), Some(rate));
    let held = follower.held();
    assert_eq!((held.time, held.least, held.mean()), (Nanos::from_millis(611), rate, rate));
    follower.release();
    assert_eq!(follower.take(at(6_000), None), None);
}

#[test]
fn encode__bytes_of_packets_and_messages() {
    let probe = ProbePacket::Probe { nonce: 0x0102 }.encode();
    assert_eq!(probe, *b"CWap\x01\x01\0\0\x02\x01\0\0\0\0\0\0");
    let answer = ProbePacket::Answer { nonce: 0x0102 }.encode();
    assert_eq!((answer[5], answer.len()), (2, probe.len()));
    for packet in [probe, answer] {
        assert_eq!(ProbePacket::decode(&packet).map(|it| it.encode()), Ok(packet));
        assert_eq!(ProbePacket::decode(&packet[..15]), Err(ProbeFault::Malformed));
        assert!(ProbePacket::decode(&[&packet[..], &[0]].concat()).is_err());
    }
    let demand = AgentDemand(BitsPerSec(0x0304)).encode();
    assert_eq!(demand[..16], *b"CWsc\x01\0\0\0\x04\x03\0\0\0\0\0\0");
    assert_eq!(AgentDemand::decode(&demand), Some(AgentDemand(BitsPerSec(0x0304))));
    assert_eq!(AgentDemand::decode(&demand[..39]), None);
    let grant = AgentGrant {
        rate: BitsPerSec(5),
        is_held: true,
        lease: GRANT_LEASE,
        pause_at: LocalNs(9),
        pause: PROBE_PAUSE_MAX,
    };
    for answer in [AgentAnswer::Granted(grant), AgentAnswer::Ends, AgentAnswer::Full] {
        assert_eq!(AgentAnswer::decode(&answer.encode()), Some(answer));
    }
    for stopping in [
        AgentGrant { rate: BitsPerSec(0), ..grant },
        AgentGrant { pause: PROBE_PAUSE_MAX + Nanos(1), ..grant },
        AgentGrant { lease: Nanos::from_secs(61), ..grant },
    ] {
        assert_eq!(AgentAnswer::decode(&AgentAnswer::Granted(stopping).encode()), None);
    }
}

proptest! {
    #[test]
    fn decode__any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(packet) = ProbePacket::decode(&bytes) {
            prop_assert_eq!(&packet.encode()[..], &bytes[..]);
        }
        if let Some(demand) = AgentDemand::decode(&bytes) {
            prop_assert_eq!(&demand.encode()[..], &bytes[..]);
        }
        if let Some(answer) = AgentAnswer::decode(&bytes) {
            prop_assert_eq!(&answer.encode()[..], &bytes[..]);
        }
    }

    #[test]
    fn grant__parts_are_together_at_most_what_is_allowed(
        seed: u64,
        steps in proptest::collection::vec((1_u64..6, prop_oneof![Just(0), 1_u64..2_000_000_000, Just(u64::MAX)], 1_u64..700), 1..12),
    ) {
        let mut node = ProbedNode::new(seed);
        for (name, demand, millis) in steps {
            if demand == 1 {
                node.agent.leave(node.now, name);
                node.scavengers.remove(&name);
            } else {
                node.join(name, BitsPerSec(demand));
            }
            // Each step asserts it.
            node.pass(millis);
            prop_assert!(node.agent.allowed().0 >= LINK.0 / 100);
        }
    }

    /// Nobody can get more but from a party that has no more: first among users, then among the
    /// connections of each.
    #[test]
    fn grant__users_share_max_min_fairly_and_each_of_them_its_part(
        all in proptest::collection::vec((0_u32..6, prop_oneof![
            4_000_000_u64..2_000_000_000, 4_000_000_u64..100_000_000, Just(u64::MAX)
        ]), 1..40),
    ) {
        let mut agent = NodeAgent::new(LocalNs(0), LINK, 0);
        for ((user, demand), name) in all.iter().zip(0..) {
            agent.demand(LocalNs(0), name, *user, BitsPerSec(*demand)).expect("a place");
        }
        let later = LocalNs(0) + Nanos::from_secs(1);
        agent.advance(later);
        let rates = granted(&mut agent, later);
        prop_assert!(rates.values().sum::<u64>() <= LINK.0);
        let mut users: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for ((user, demand), rate) in all.iter().zip(rates.values()) {
            users.entry(*user).or_default().push((*demand, *rate));
        }
        let sum = |of: &[(u64, u64)]| of.iter().fold((0_u64, 0), |(demand, rate), one| {
            (demand.saturating_add(one.0), rate + one.1)
        });
        let totals: Vec<_> = users.values().map(|of| sum(of)).collect();
        for parties in users.values().chain([&totals]) {
            let most = parties.iter().map(|(_, rate)| *rate).max().unwrap_or(0);
            for (demand, rate) in parties {
                // What does not divide evenly stays.
                let is_met = rate + 40 >= *demand;
                prop_assert!(rate <= demand && (is_met || rate + 40 >= most), "{parties:?}");
            }
        }
        let is_unmet = totals.iter().any(|(demand, rate)| rate + 40 < *demand);
        prop_assert!(!is_unmet || sum(&totals).1 + 40 * 40 >= LINK.0, "{totals:?}");
    }

    #[test]
    fn advance__a_narrow_port_is_spared_and_used(seed: u64, percent in 10_u64..90) {
        let mut node = ProbedNode::new(seed);
        node.port = LINK.0 / 100 * percent;
        node.join(1, MOST);
        node.pass(15_000);
        node.sent = 0;
        node.pass(20_000);
        let sent = node.sent / 1_000_000_000 / 20;
        prop_assert!(sent <= u128::from(node.port), "{sent}");
        prop_assert!(sent >= u128::from(node.port / 4), "{sent}");
    }
}
