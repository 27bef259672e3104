//! What a congestion test found: cases, each over its draws.

use clearway_proto::base::Nanos;
use clearway_proto::congestion::{CongestorKind, Draw, Verdict};
use clearway_proto::stats::Resampled;

use super::cell::Case;
use super::evidence::Evidence;
use super::stage::Sighting;
use super::windows::Windows;
use crate::scenario::Congestion;

/// One case over all its draws.
pub(super) struct CaseResult<'a> {
    pub(super) case: Case<'a>,
    /// By draw.
    pub(super) draws: Vec<DrawResult>,
    /// Medians over draws of the quantiles without congestors.
    pub(super) isolated: [Resampled; 3],
    /// The same beside congestors.
    pub(super) congested: [Resampled; 3],
    /// Medians over draws of the impact factors; absent where the base case itself was lost.
    pub(super) factors: [Option<Resampled>; 3],
    /// What may be said of it; absent for patterns that put nothing on the network to judge.
    pub(super) verdict: Option<Verdict>,
}

/// One draw of a case.
pub(super) struct DrawResult {
    pub(super) draw: Draw,
    pub(super) evidence: Evidence,
    pub(super) sighting: Sighting,
    pub(super) fair_mbps: Option<f64>,
    pub(super) windows: Windows,
    /// What the congestors offered of the fullest link that victims use.
    pub(super) overload: Option<f64>,
    /// One full frame on each link of the longest path.
    pub(super) floor: Nanos,
}

impl DrawResult {
    /// The impact factor on the `i`-th quantile.
    pub(super) fn factor(&self, i: usize) -> Option<Resampled> {
        self.evidence.congested[i].ratio(&self.evidence.isolated[i])
    }
}

impl CaseResult<'_> {
    /// Whether this case only proves the machine: it was not asked for.
    pub(super) fn is_control(&self, test: &Congestion) -> bool {
        self.case.congestor == CongestorKind::None && !test.congestors.contains(&CongestorKind::None)
    }
}
