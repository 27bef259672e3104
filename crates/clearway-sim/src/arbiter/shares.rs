//! What share of a channel each lane gets when it never runs dry: the rules as formulas.

use super::tables::{limit_units, units};
use super::turns::PriorityRanks;
use crate::spec::{Arbiter, VIRTUAL_LANES_MAX, VlArbitration};

/// Returns a number for each virtual lane, in proportion to the bytes it sends in the long run
/// while all lanes of `backlogged` (a bit for each) always have packets of `packet` bytes, headers
/// included, and nothing else holds them up.
///
/// A lane of which the result is zero though it is in `backlogged` is starved by the rule.
pub fn shares(rule: &Arbiter, backlogged: u32, packet: u32) -> [u64; VIRTUAL_LANES_MAX] {
    match rule {
        Arbiter::RoundRobin => equal(backlogged),
        Arbiter::Strict { rank } => equal(PriorityRanks::new(&rank.map(Some)).urgent(backlogged)),
        Arbiter::Weighted { quantum, first } => {
            match PriorityRanks::new(first).urgent(backlogged) {
                0 => per_lane(backlogged, |lane| u64::from(quantum[lane])),
                urgent => equal(urgent),
            }
        }
        Arbiter::Tables(rule) => of_tables(rule, backlogged, units(packet).max(1)),
    }
}

/// Returns one for each of `lanes`.
fn equal(lanes: u32) -> [u64; VIRTUAL_LANES_MAX] {
    per_lane(lanes, |_| 1)
}

/// Returns `share` for each of `lanes`.
fn per_lane(lanes: u32, share: impl Fn(usize) -> u64) -> [u64; VIRTUAL_LANES_MAX] {
    core::array::from_fn(|lane| if lanes & 1 << lane == 0 { 0 } else { share(lane) })
}

/// Creates the shares of tables: `high` packets of the high table for each one of the low table,
/// and within a table as its entries say.
fn of_tables(rule: &VlArbitration, backlogged: u32, packet: u32) -> [u64; VIRTUAL_LANES_MAX] {
    if backlogged & 1 << 15 != 0 {
        return equal(1 << 15);
    }
    let high = round(&rule.high, backlogged, packet);
    let low = round(&rule.low, backlogged, packet);
    let (of_high, of_low): (u64, u64) = (high.iter().sum(), low.iter().sum());
    match limit_units(rule.high_limit) {
        _ if of_high == 0 => low,
        None => high,
        _ if of_low == 0 => high,
        Some(limit) => {
            let burst = u64::from(u32::from(limit).div_ceil(packet));
            core::array::from_fn(|lane| high[lane] * burst * of_low + low[lane] * of_high)
        }
    }
}

/// Returns the packets of `packet` units that each lane sends in one round of a table.
fn round(table: &[(u8, u8)], backlogged: u32, packet: u32) -> [u64; VIRTUAL_LANES_MAX] {
    let mut packets = [0; VIRTUAL_LANES_MAX];
    for (lane, weight) in table.iter().filter(|(lane, _)| *lane < 15 && backlogged & 1 << lane != 0)
    {
        packets[usize::from(*lane)] += u64::from(u32::from(*weight).div_ceil(packet));
    }
    packets
}
