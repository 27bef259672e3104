//! Puts the verdicts of all cases into words for a person: one outcome, one sentence, one clause
//! for each case.

use std::collections::BTreeMap;

use clearway_proto::base::Nanos;
use clearway_proto::congestion::{NetworkOutcome, Rules, Verdict as NetworkVerdict};
use clearway_proto::stats::Resampled;

use super::evidence::P99;
use super::figures::labels_of;
use super::outcome::CaseResult;
use crate::mechanism::congestion::CongestionSection;
use crate::report::model::{self, ExtendedReal, PartVerdict, Verdict, VerdictRule};

/// Returns a time in nanoseconds that may be infinite, for a person.
pub(crate) fn duration(ns: f64) -> String {
    if ns.is_finite() { Nanos(ns.max(0.0) as u64).to_string() } else { "lost".to_owned() }
}

/// Returns the verdict of the run: that of the last queue, unless some part of it allows no
/// statement.
pub(crate) fn verdict(
    test: &CongestionSection,
    rules: &Rules,
    results: &[CaseResult<'_>],
) -> Option<Verdict> {
    let judged = test.queues.last()?;
    let (all, results) = (results, CaseResult::deciding(results, test));
    let mut parts = Vec::new();
    let mut worst: BTreeMap<&str, NetworkOutcome> = BTreeMap::new();
    for result in &results {
        let Some(verdict) = &result.verdict else { continue };
        let outcome = worst.entry(result.case.queue).or_insert(NetworkOutcome::Contained);
        *outcome = (*outcome).max(verdict.outcome);
        let reasons = verdict.reasons.iter().cloned().chain(result.growth(all));
        let sentence = reasons.collect::<Vec<_>>().join("; ");
        parts.push(PartVerdict {
            labels: labels_of(test, result),
            outcome: outcome_word(verdict.outcome),
            sentence,
        });
    }
    let invalid = worst.values().any(|outcome| *outcome == NetworkOutcome::Invalid);
    let outcome = if invalid { NetworkOutcome::Invalid } else { *worst.get(judged.as_str())? };
    let sentence = sentence(test, (rules, &results), &worst, outcome);
    Some(Verdict {
        outcome: outcome_word(outcome),
        sentence,
        reasons: next_steps(results.iter().filter_map(|result| result.verdict.as_ref())),
        parts,
        rules: rules_in_force(rules),
    })
}

/// Returns what to change so that all of `verdicts` allow a statement, each sentence once.
pub(super) fn next_steps<'a>(verdicts: impl Iterator<Item = &'a NetworkVerdict>) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    for step in verdicts.flat_map(|verdict| &verdict.next_steps) {
        if !steps.contains(step) {
            steps.push(step.clone());
        }
    }
    steps
}

/// Returns the outcome as a report has it.
pub(crate) fn outcome_word(outcome: NetworkOutcome) -> model::RunOutcome {
    match outcome {
        NetworkOutcome::Contained => model::RunOutcome::Contained,
        NetworkOutcome::Congested => model::RunOutcome::Congested,
        NetworkOutcome::Invalid => model::RunOutcome::Invalid,
    }
}

/// Returns the one sentence that a hurried reader takes along.
fn sentence(
    test: &CongestionSection,
    (rules, results): (&Rules, &[&CaseResult<'_>]),
    worst: &BTreeMap<&str, NetworkOutcome>,
    outcome: NetworkOutcome,
) -> String {
    if outcome == NetworkOutcome::Invalid {
        let why = results.iter().filter_map(|result| Some((result.case, result.verdict.as_ref()?)));
        let first = why.into_iter().find(|(_, verdict)| verdict.outcome == NetworkOutcome::Invalid);
        let reason = first.map_or_else(String::new, |(case, verdict)| {
            format!(" {case}: {}.", verdict.reasons.join("; "))
        });
        return format!("This run allows no statement.{reason}");
    }
    let of_queue = |name: &&str| {
        let worst_case = results
            .iter()
            .filter(|result| result.case.queue == *name && result.verdict.is_some())
            .max_by(|a, b| value(&a.factors[P99]).total_cmp(&value(&b.factors[P99])));
        let outcome = worst.get(name).copied().unwrap_or(NetworkOutcome::Invalid);
        worst_case.map(|result| {
            let why = if rests_on_frames(rules, result) { BY_FRAMES } else { "" };
            format!("with {name} queues {outcome}: {}{why}", effect(result))
        })
    };
    let queues: Vec<&str> = test.queues.iter().map(String::as_str).collect();
    let text = queues.iter().filter_map(of_queue).collect::<Vec<_>>().join("; ");
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

/// Why a victim counts as protected although it is more times slower than the limit.
const BY_FRAMES: &str = ", less than full frames in service cost";

/// Returns whether `result` is CONTAINED because of the time of frames, and not by its factor.
fn rests_on_frames(rules: &Rules, result: &CaseResult<'_>) -> bool {
    let is_contained = |verdict: &NetworkVerdict| verdict.outcome == NetworkOutcome::Contained;
    let high = result.factors[P99].as_ref().map_or(f64::INFINITY, |it| it.estimate().high);
    result.verdict.as_ref().is_some_and(is_contained) && high > rules.factor_max
}

/// Returns what congestors did to a victim.
fn effect(result: &CaseResult<'_>) -> String {
    let victim = result.case.victim.name();
    let congestor = match result.case.members {
        None => result.case.congestor.name().to_owned(),
        Some(members) => format!("{} of {members} hosts", result.case.congestor.name()),
    };
    let [isolated, congested] =
        [&result.isolated, &result.congested].map(|all| all[P99].estimate().value);
    let from_to = format!("from {} to {}", duration(isolated), duration(congested));
    if !congested.is_finite() {
        return format!("{congestor} loses {:.1} % of {victim}", loss(result) * 100.0);
    }
    format!("{congestor} moves the p99 of {victim} {from_to}")
}

/// Returns the messages of the victims that never arrived, as a part of one, over all draws.
fn loss(result: &CaseResult<'_>) -> f64 {
    let each = result.draws.iter().map(|draw| draw.evidence.loss());
    each.sum::<f64>() / (result.draws.len() as f64).max(1.0)
}

fn value(factor: &Option<Resampled>) -> f64 {
    factor.as_ref().map_or(f64::INFINITY, |factor| factor.estimate().value)
}

/// Returns a limit as a report has it.
pub(crate) fn rule(name: &str, limit: f64, unit: &str, sentence: &str) -> VerdictRule {
    let limit = ExtendedReal::or_infinite(limit);
    let [name, unit, sentence] = [name, unit, sentence].map(str::to_owned);
    VerdictRule { name, limit, unit, sentence }
}

fn rules_in_force(rules: &Rules) -> Vec<VerdictRule> {
    vec![
        rule(
            "factor-max",
            rules.factor_max,
            "x",
            "upper end of the impact factor on p99 that still counts as contained",
        ),
        rule("null-low", rules.null_low, "x", "lower limit of the null control's interval"),
        rule("null-high", rules.null_high, "x", "upper limit of the null control's interval"),
        rule(
            "congestor-share-min",
            rules.congestor_share_min,
            "",
            "part of their fair rate that congestors must reach",
        ),
        rule(
            "overload-min",
            rules.overload_min,
            "",
            "offered part of the fullest link that victims use",
        ),
        rule(
            "noise-ratio",
            rules.noise_ratio,
            "x",
            "excess of p99 over its change without congestors",
        ),
        rule(
            "delay-ratio",
            rules.delay_ratio,
            "x",
            "excess of p99 over the delay of processes by processors",
        ),
    ]
}
