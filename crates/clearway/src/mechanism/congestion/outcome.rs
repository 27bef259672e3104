//! What a congestion test found: cases, each over its draws.

use clearway_proto::base::Nanos;
use clearway_proto::congestion::{CongestorKind, Draw, Verdict};
use clearway_proto::stats::Resampled;

use super::cell::Case;
use super::evidence::Evidence;
use super::windows::Windows;
use crate::mechanism::congestion::CongestionSection;
use crate::mechanism::congestion::phases::PhaseResult;

/// One case over all its draws.
pub(crate) struct CaseResult<'a> {
    pub(crate) case: Case<'a>,
    /// By draw.
    pub(crate) draws: Vec<DrawResult>,
    /// Medians over draws of the quantiles without congestors.
    pub(crate) isolated: [Resampled; 3],
    /// The same beside congestors.
    pub(crate) congested: [Resampled; 3],
    /// Medians over draws of the impact factors; absent where the base case itself was lost.
    pub(crate) factors: [Option<Resampled>; 3],
    /// What may be said of it; absent for patterns that put nothing on the network to judge.
    pub(crate) verdict: Option<Verdict>,
}

/// One draw of a case.
pub(crate) struct DrawResult {
    pub(crate) draw: Draw,
    pub(crate) evidence: Evidence,
    pub(crate) phase_result: PhaseResult,
    pub(crate) fair_mbps: Option<f64>,
    pub(crate) windows: Windows,
    /// What the congestors offered of the fullest link that victims use.
    pub(crate) overload: Option<f64>,
    /// One full frame on each link of the longest path.
    pub(crate) floor: Nanos,
}

impl DrawResult {
    /// Returns the impact factor on the `i`-th quantile.
    pub(crate) fn factor(&self, i: usize) -> Option<Resampled> {
        self.evidence.congested[i].ratio(&self.evidence.isolated[i])
    }
}

impl CaseResult<'_> {
    /// Returns whether this case only proves the machine: it was not asked for.
    pub(crate) fn is_control(&self, test: &CongestionSection) -> bool {
        self.case.congestor == CongestorKind::None
            && !test.congestors.contains(&CongestorKind::None)
    }
}
