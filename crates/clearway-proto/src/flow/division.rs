//! Divides a rate among demands: small ones are met, and the others share the rest equally.
//!
//! # Source
//! Max-min fairness: Bertsekas and Gallager, "Data Networks" (1992), 6.5.
//!
//! # Invariants
//! I1. Parts above the floor are together at most the rate, and no part is above its demand.

use alloc::vec::Vec;

/// Returns the part of each name of `demands` in `rate`, the least demand first; each is `floor` at
/// least, also where there is no room for it.
pub(super) fn max_min<N: Ord>(
    mut demands: Vec<(u64, N)>,
    rate: u64,
    floor: u64,
) -> impl Iterator<Item = (N, u64)> {
    demands.sort_unstable();
    let (mut left, mut count) = (rate, demands.len() as u64);
    demands.into_iter().map(move |(demand, name)| {
        let part = demand.max(floor).min(left / count.max(1)).max(floor);
        left = left.saturating_sub(part);
        count = count.saturating_sub(1);
        (name, part)
    })
}
