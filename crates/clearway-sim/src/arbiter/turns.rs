//! Taking turns, and taking turns within the first rank that can send.

use crate::spec::VIRTUAL_LANES_MAX;

/// Returns the first of `lanes` after `last`, going round.
pub(super) fn after(lanes: u32, last: u8) -> Option<u8> {
    let behind = lanes & !((2u32 << last) - 1);
    let from = if behind == 0 { lanes } else { behind };
    (from != 0).then(|| from.trailing_zeros() as u8)
}

/// Lanes by rank, most urgent first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PriorityRanks(Vec<u32>);

impl PriorityRanks {
    /// Creates turns that serve lower ranks first; lanes without a rank are not served.
    pub(super) fn new(rank: &[Option<u8>; VIRTUAL_LANES_MAX]) -> Self {
        let mut ranks: Vec<u8> = rank.iter().flatten().copied().collect();
        ranks.sort_unstable();
        ranks.dedup();
        let lanes = |wanted| {
            (0..VIRTUAL_LANES_MAX)
                .filter(|lane| rank[*lane] == Some(wanted))
                .fold(0, |all, lane| all | 1 << lane)
        };
        Self(ranks.into_iter().map(lanes).collect())
    }

    /// Returns those of `eligible` that are of the most urgent rank present; zero if none has a
    /// rank.
    pub(super) fn urgent(&self, eligible: u32) -> u32 {
        self.0.iter().map(|rank| rank & eligible).find(|lanes| *lanes != 0).unwrap_or(0)
    }

    /// Returns the next of the most urgent rank.
    pub(super) fn pick(&self, eligible: u32, last: u8) -> Option<u8> {
        after(self.urgent(eligible), last)
    }
}
