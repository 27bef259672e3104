//! What was in force in a run, by the names of its flags.

use clearway_proto::microslice::{SizeDistribution, SliceRule};

use super::schedule::flag;
use crate::command::flagged::{FlagValues, joined};
use crate::mechanism::timeslice::{
    MadeMicroslices, ScheduledAction, SinkKind, SourceKind, TimeslicePlan, TimesliceTask,
};

/// Returns what every run has.
pub(super) fn plan_values(plan: &TimeslicePlan) -> FlagValues {
    let mut values = vec![
        ("inputs", plan.inputs.to_string()),
        ("builders", plan.builders.to_string()),
        ("policy", joined(plan.policies.iter().map(|policy| policy.name()))),
        ("contribution", plan.contribution.to_string()),
        ("ring", plan.ring.to_string()),
        ("window", format!("{}-{}", plan.window.least, plan.window.most)),
        ("interval", plan.dfs.interval.to_string()),
        ("history", plan.dfs.history.to_string()),
        ("speed-up", plan.dfs.speed_up.map_or(0, |speed_up| speed_up.step).to_string()),
        ("start-skew", plan.start_skew.to_string()),
        ("seed", joined(&plan.seeds)),
    ];
    values.extend(plan.heartbeat.map(|every| ("heartbeat", every.to_string())));
    if let Some(grant) = &plan.grant {
        values.push(("class", grant.granted.to_string()));
        values.push(("site-policy", grant.sentence()));
    }
    if !plan.weights.is_empty() {
        values.push(("weights", joined(&plan.weights)));
    }
    for wanted in [ScheduledAction::Death, ScheduledAction::Retirement, ScheduledAction::Return] {
        let of =
            plan.changes.iter().filter(|change| change.wanted == wanted).map(|change| change.when);
        let ranks: Vec<String> = of.map(|when| format!("{}@{}", when.rank, when.at)).collect();
        if !ranks.is_empty() {
            values.push((flag(wanted).trim_start_matches('-'), ranks.join(",")));
        }
    }
    values
}

/// Returns for how long something is measured.
pub(super) fn time_values(plan: &TimeslicePlan) -> FlagValues {
    vec![("warm-up", plan.warm_up.to_string()), ("measured", plan.measured.to_string())]
}

/// Returns what is built in a lab or a job.
pub(super) fn task_values(task: &TimesliceTask) -> FlagValues {
    let feed = &task.feed;
    let (source, sizes): (&str, Option<SizeDistribution>) = match &feed.source {
        SourceKind::Memory(_) | SourceKind::Mixed(_) => ("memory", None),
        SourceKind::Pattern(made) => ("pattern", Some(made.sizes)),
        SourceKind::Archives(template) => (template, None),
    };
    let sink = match &feed.sink {
        SinkKind::Discard => "discard".to_owned(),
        SinkKind::Check => "check".to_owned(),
        SinkKind::Consumer(socket) => format!("consumer:{socket}"),
        SinkKind::Archives(template) | SinkKind::Compressed(template) => template.clone(),
    };
    let mut values =
        vec![("source", source.to_owned()), ("sink", sink), ("memory", task.memory.to_string())];
    match feed.slices {
        SliceRule::ByIndex { core, overlap } => values.extend([
            ("slice", "index".to_owned()),
            ("timeslice-size", core.to_string()),
            ("overlap", overlap.to_string()),
        ]),
        SliceRule::ByTime(times) => {
            values.extend([
                ("slice", "time".to_owned()),
                ("duration", times.duration.to_string()),
                ("before", times.before.to_string()),
                ("after", times.after.to_string()),
                ("max-gap", times.max_gap.to_string()),
            ]);
            values.extend(times.silence.map(|silence| ("silence", silence.to_string())));
            values.extend(times.step.map(|step| ("microslice", step.to_string())));
        }
    }
    values.extend(sizes.map(|sizes| ("sizes", sizes.to_string())));
    if let SourceKind::Pattern(MadeMicroslices { step, mean, buffer: Some(buffer), .. }) =
        feed.source
    {
        values.extend([
            ("source-buffer", buffer.to_string()),
            ("microslice step", step.to_string()),
            ("microslice bytes", mean.to_string()),
        ]);
    }
    values.extend(feed.timeslices.map(|count| ("timeslices", count.to_string())));
    if matches!(feed.sink, SinkKind::Compressed(_)) {
        values.push(("compress", "true".to_owned()));
    }
    values
}
