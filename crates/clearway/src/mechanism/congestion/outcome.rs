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
    /// The same under load.
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

impl<'a> CaseResult<'a> {
    /// Returns those of `results` that the verdict rests on, which are all that were asked for, but
    /// of groups that grew the largest only.
    pub(crate) fn deciding<'b>(
        results: &'b [Self],
        test: &CongestionSection,
    ) -> Vec<&'b CaseResult<'a>> {
        let is_last = |result: &&'b Self| {
            let beyond = |it: &Self| it.case.members > result.case.members;
            !result.series_in(results).any(beyond)
        };
        results.iter().filter(|result| !result.is_control(test)).filter(is_last).collect()
    }

    /// Returns those of `results` that differ from this one in the size of groups at most, itself
    /// among them.
    fn series_in<'b>(&self, results: &'b [Self]) -> impl Iterator<Item = &'b Self> {
        let (case, members) = (self.case, self.case.members);
        results.iter().filter(move |it| Case { members, ..it.case } == case)
    }

    /// Says what smaller groups did, where groups grew.
    pub(crate) fn growth(&self, results: &[Self]) -> Option<String> {
        let largest = self.case.members?;
        let each = self.series_in(results).filter(|it| it.case.members < Some(largest));
        let each = each.filter_map(|it| {
            Some(format!("{} of {}", it.verdict.as_ref()?.outcome, it.case.members?))
        });
        let smaller: Vec<String> = each.collect();
        let before =
            if smaller.is_empty() { "none smaller".to_owned() } else { smaller.join(", ") };
        Some(format!("groups of {largest} hosts; before: {before}"))
    }
    /// Returns whether this case only proves the machine: it was not asked for.
    pub(crate) fn is_control(&self, test: &CongestionSection) -> bool {
        self.case.congestor == CongestorKind::None
            && !test.congestors.contains(&CongestorKind::None)
    }
}
