//! Rules under permanent backlog against their formulas and against literal readings of their
//! sources.

use proptest::prelude::*;

use super::*;
use crate::spec::VlArbitration;

const ALL: u32 = 0xffff;
type TestLanes = [u32; VIRTUAL_LANES_MAX];

/// Returns the bytes of each lane after `grants` packets, where lane `v` always has a packet of
/// `bytes[v]` if it is in `backlogged`.
fn run(
    rule: &Arbiter,
    backlogged: u32,
    bytes: &TestLanes,
    grants: u32,
) -> [u64; VIRTUAL_LANES_MAX] {
    let mut arbitration = ArbiterState::new(rule);
    let mut sent = [0; VIRTUAL_LANES_MAX];
    for _ in 0..grants {
        let Some(choice) = arbitration.pick(backlogged, bytes) else { break };
        sent[usize::from(choice.lane)] += u64::from(choice.bytes);
        arbitration.grant(choice);
    }
    sent
}

/// Asserts that `sent` is in proportion to `share`, in parts per million of the total.
fn assert_proportional(
    sent: &[u64; VIRTUAL_LANES_MAX],
    share: &[u64; VIRTUAL_LANES_MAX],
    within_ppm: u64,
) {
    let (total, whole): (u64, u64) = (sent.iter().sum(), share.iter().sum());
    assert!(total > 0 && whole > 0, "{sent:?} {share:?}");
    for lane in 0..VIRTUAL_LANES_MAX {
        let (got, want) = (sent[lane] * 1_000_000 / total, share[lane] * 1_000_000 / whole);
        assert!(
            got.abs_diff(want) <= within_ppm,
            "lane {lane}: {got} ppm, not {want}: {sent:?} {share:?}"
        );
    }
}

fn tables(high: &[(u8, u8)], low: &[(u8, u8)], high_limit: u8) -> Arbiter {
    Arbiter::Tables(VlArbitration { high: high.to_vec(), low: low.to_vec(), high_limit })
}

/// Returns the tables of the published staging experiment: lane 0 alone is high, the others share
/// by powers of two.
fn staging(high_limit: u8) -> Arbiter {
    let low = [(0, 0), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 64), (7, 128)];
    tables(&[(0, 40), (1, 0), (2, 0)], &low, high_limit)
}

#[test]
fn tables__a_limit_of_255_starves_low_priority() {
    let sent = run(&staging(255), 0xff, &[4096; 16], 10_000);
    assert_eq!((sent[0], sent.iter().sum()), (10_000 * 4096, 10_000 * 4096));
    assert_eq!(shares(&staging(255), 0xff, 4096)[1..], [0; 15]);
}

#[test]
fn tables__weights_below_a_packet_collapse_to_one_packet() {
    let lanes = 0b1111_1110;
    for (mtu, packets) in [(2048, [0, 1, 1, 1, 1, 1, 2, 4]), (4096, [0, 1, 1, 1, 1, 1, 1, 2])] {
        let round: u64 = packets.iter().sum();
        let sent = run(&staging(255), lanes, &[mtu; 16], 100 * round as u32);
        for (lane, packets) in packets.iter().enumerate() {
            assert_eq!(sent[lane], 100 * packets * u64::from(mtu), "lane {lane} at {mtu}");
            assert_eq!(shares(&staging(255), lanes, mtu)[lane], *packets);
        }
    }
}

#[test]
fn tables__small_packets_have_the_shares_that_were_written() {
    let sent = run(&staging(255), 0b1111_1110, &[64; 16], 254 * 10);
    assert_eq!(
        sent[..8].iter().map(|bytes| bytes / 640).collect::<Vec<_>>(),
        [0, 2, 4, 8, 16, 32, 64, 128]
    );
}

#[test]
fn tables__the_limit_counts_whole_packets_and_zero_is_one() {
    let rule = |limit| tables(&[(0, 1)], &[(1, 1)], limit);
    // (limit, packet, packets of high priority for each of low)
    for (limit, bytes, burst) in [
        (0, 4096, 1),
        (0, 64, 1),
        (1, 4096, 1),
        (1, 2048, 2),
        (1, 4097, 1),
        (3, 4100, 3),
        (6, 4096, 6),
    ] {
        let sent = run(&rule(limit), 0b11, &[bytes; 16], 1_000 * (burst + 1));
        assert_eq!(
            sent[..2],
            [u64::from(burst * bytes) * 1_000, u64::from(bytes) * 1_000],
            "{limit} {bytes}"
        );
    }
}

#[test]
fn tables__an_opportunity_that_nobody_takes_passes() {
    let mut arbitration = ArbiterState::new(&tables(&[(0, 1)], &[(1, 1)], 1));
    let mut next = |eligible| {
        let choice = arbitration.pick(eligible, &[2048; 16]).expect("a lane");
        arbitration.grant(choice);
        choice.lane
    };
    // Two packets are a limit of one. The third begins it afresh, so only the fifth is preceded by
    // low priority.
    assert_eq!([next(1), next(1), next(1), next(0b11), next(0b11), next(0b11)], [0, 0, 0, 0, 1, 0]);
}

#[test]
fn tables__management_goes_before_everything_and_changes_nothing() {
    let mut arbitration = ArbiterState::new(&staging(0));
    let before = arbitration.clone();
    let choice = arbitration.pick(0x8001, &[256; 16]).expect("a lane");
    arbitration.grant(choice);
    assert_eq!((choice.lane, &arbitration), (15, &before));
}

#[test]
fn tables__lanes_of_no_table_or_of_weight_zero_are_never_served() {
    let arbitration = ArbiterState::new(&staging(0));
    assert_eq!(arbitration.pick(0xff00 & 0x7fff, &[64; 16]), None);
    let low_zero = ArbiterState::new(&tables(&[], &[(0, 0), (3, 0), (15, 9)], 0));
    assert_eq!(low_zero.pick(0x7fff, &[64; 16]), None);
}

#[test]
fn tables__a_lane_listed_several_times_and_in_both_tables() {
    let rule = tables(&[(0, 64), (1, 64), (0, 64)], &[(2, 64), (0, 64)], 4);
    let sent = run(&rule, 0b111, &[4096; 16], 30 * 5 * 2);
    assert_proportional(&sent, &shares(&rule, 0b111, 4096), 5_000);
    // Four of five are high, two thirds of them lane 0; one half of the fifth.
    assert_eq!(shares(&rule, 0b111, 4096)[..3], [2 * 4 * 2 + 3, 4 * 2, 3]);
}

#[test]
fn tables__one_entry_serves_again_and_again() {
    assert_eq!(run(&tables(&[], &[(4, 1)], 0), 1 << 4, &[4096; 16], 50)[4], 50 * 4096);
}

#[test]
fn strict__lower_ranks_wait_and_equal_ones_take_turns() {
    let mut rank = [9; 16];
    (rank[3], rank[5], rank[1]) = (0, 0, 1);
    let rule = Arbiter::Strict { rank };
    assert_eq!(run(&rule, 0b10_1010, &[100; 16], 10)[..6], [0, 0, 0, 500, 0, 500]);
    assert_eq!(run(&rule, 0b00_0011, &[100; 16], 10)[..2], [0, 1_000]);
    assert_eq!(shares(&rule, 0b10_1010, 100)[..6], [0, 0, 0, 1, 0, 1]);
}

#[test]
fn weighted__lanes_that_go_first_leave_deficits_alone() {
    let (mut quantum, mut first) = ([0; 16], [None; 16]);
    (quantum[0], quantum[1], first[7]) = (1_000, 3_000, Some(0));
    let rule = Arbiter::Weighted { quantum, first };
    assert_eq!(shares(&rule, 0b1000_0011, 100)[7], 1);
    let mut arbitration = ArbiterState::new(&rule);
    let mut sent = [0u32; 16];
    for round in 0..8_000 {
        let eligible = if round % 2 == 0 { 0b11 } else { 0b1000_0011 };
        let choice = arbitration.pick(eligible, &[1_000; 16]).expect("a lane");
        arbitration.grant(choice);
        sent[usize::from(choice.lane)] += 1;
    }
    assert_eq!((sent[0], sent[1], sent[7]), (1_000, 3_000, 4_000));
}

#[test]
fn state__is_small_for_a_hundred_thousand_channels() {
    assert!(size_of::<ArbiterState>() <= 24, "{}", size_of::<ArbiterState>());
}

/// Deficit round robin as the paper writes it: turn by turn, each adding its quantum.
struct LiteralDrr {
    turn: usize,
    deficit: TestLanes,
}

impl LiteralDrr {
    fn next(&mut self, quantum: &TestLanes, eligible: u32, bytes: &TestLanes) -> usize {
        for lane in 0..VIRTUAL_LANES_MAX {
            if eligible & 1 << lane == 0 {
                self.deficit[lane] = 0;
            }
        }
        while eligible & 1 << self.turn == 0 || self.deficit[self.turn] < bytes[self.turn] {
            self.turn = (self.turn + 1) % VIRTUAL_LANES_MAX;
            if eligible & 1 << self.turn != 0 {
                self.deficit[self.turn] += quantum[self.turn];
            }
        }
        self.deficit[self.turn] -= bytes[self.turn];
        self.turn
    }
}

fn any_rule() -> impl Strategy<Value = Arbiter> {
    let entry = || proptest::collection::vec((0u8..16, prop_oneof![Just(0u8), any::<u8>()]), 0..12);
    let rank = proptest::array::uniform16(0u8..4);
    let quantum = || proptest::array::uniform16(1u32..20_000);
    let first = proptest::array::uniform16(proptest::option::weighted(0.2, 0u8..3));
    let limit = prop_oneof![Just(0u8), Just(255u8), any::<u8>()];
    prop_oneof![
        Just(Arbiter::RoundRobin),
        rank.prop_map(|rank| Arbiter::Strict { rank }),
        (quantum(), first).prop_map(|(quantum, first)| Arbiter::Weighted { quantum, first }),
        (entry(), entry(), limit).prop_map(|(high, low, limit)| tables(&high, &low, limit)),
    ]
}

fn offers() -> impl Strategy<Value = Vec<(u32, TestLanes)>> {
    let bytes = proptest::array::uniform16(prop_oneof![1u32..300, Just(4126u32), 1u32..10_000]);
    proptest::collection::vec((0u32..=ALL, bytes), 1..60)
}

proptest! {
    #[test]
    fn pick__is_pure_and_among_the_eligible(rule in any_rule(), offers in offers()) {
        let mut asked = ArbiterState::new(&rule);
        let mut once = asked.clone();
        for (n, (eligible, bytes)) in offers.iter().enumerate() {
            let before = asked.clone();
            let choice = asked.pick(*eligible, bytes);
            // Asking for other lanes and again in between is not seen by anyone.
            asked.pick(!*eligible & ALL, bytes);
            prop_assert_eq!(asked.pick(*eligible, bytes), choice);
            prop_assert_eq!(&asked, &before);
            prop_assert_eq!(once.pick(*eligible, bytes), choice);
            let Some(choice) = choice else { continue };
            prop_assert!(eligible & 1 << choice.lane != 0);
            if n % 3 != 2 {
                asked.grant(choice);
                once.grant(choice);
            }
        }
        prop_assert_eq!(asked, once);
    }

    #[test]
    fn weighted__is_deficit_round_robin_as_written(quantum in proptest::array::uniform16(1u32..9_000), offers in offers()) {
        let mut arbitration = ArbiterState::new(&Arbiter::Weighted { quantum, first: [None; 16] });
        let mut literal = LiteralDrr { turn: 15, deficit: [0; 16] };
        for (eligible, bytes) in offers {
            let Some(choice) = arbitration.pick(eligible, &bytes) else { continue };
            arbitration.grant(choice);
            prop_assert_eq!(usize::from(choice.lane), literal.next(&quantum, eligible, &bytes));
        }
    }
}

/// Returns whether lanes get their shares, of enough packets that a started round counts little.
fn backlogged_lanes_get_their_shares(
    rule: &Arbiter,
    backlogged: u32,
    packet: u32,
) -> Result<(), TestCaseError> {
    let share = shares(rule, backlogged, packet);
    let sent = run(rule, backlogged, &[packet; 16], 60_000);
    prop_assert_eq!(share.iter().sum::<u64>() == 0, sent.iter().sum::<u64>() == 0);
    if share.iter().sum::<u64>() > 0 {
        // What a started round may add: less than 1,600 packets of 60,000, of which a lane has
        // half.
        assert_proportional(&sent, &share, 20_000);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 40 } else { 2_000 }))]
    #[test]
    fn shares__are_what_backlogged_lanes_get(rule in any_rule(), backlogged in 1u32..=ALL, packet in 64u32..9_000) {
        backlogged_lanes_get_their_shares(&rule, backlogged, packet)?;
    }
}
