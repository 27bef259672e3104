//! Shows timeslice building: what each policy carried, how long timeslices took, how full rings
//! were, who waited for what, and who sent to whom.

use super::building::{BuildingPolicy, BuildingReport};
use crate::report::html::drawing::{coloured, figure, legend, pairs};
use crate::report::html::section;
use crate::report::html::tables::{cell, head, number, table};
use crate::report::model::{ExtendedReal, Figure, Report, labels};

mod drawing;

/// Returns the sections, or nothing where nothing was built.
pub(super) fn building(report: &Report) -> String {
    let Some(building) = &report.part::<BuildingReport>() else { return String::new() };
    [
        overview(report, building),
        completion(building),
        fills(building),
        pulse(building),
        intervals(building),
        blocked(building),
        gantts(building),
    ]
    .concat()
}

fn name(place: usize, policy: &BuildingPolicy) -> String {
    coloured(place, &policy.policy)
}

fn legend_of(policies: &[(usize, &BuildingPolicy)]) -> String {
    legend(policies.iter().map(|(place, policy)| name(*place, policy)))
}

/// Returns places and policies that `keep` keeps.
fn those(
    building: &BuildingReport,
    keep: impl Fn(&BuildingPolicy) -> bool,
) -> Vec<(usize, &BuildingPolicy)> {
    building.policies.iter().enumerate().filter(|(_, policy)| keep(policy)).collect()
}

/// Returns the figure called `name` of `policy`, of a quantile where it has one.
fn find<'a>(
    report: &'a Report,
    name: &str,
    policy: &str,
    quantile: Option<&str>,
) -> Option<&'a Figure> {
    let same = |figure: &&Figure| {
        figure.name == name
            && figure.label("policy") == Some(policy)
            && figure.label(labels::QUANTILE) == quantile
    };
    report.figures.iter().find(same)
}

fn overview(report: &Report, building: &BuildingReport) -> String {
    let row = |(place, policy): (usize, &BuildingPolicy)| {
        let of = |figure: &str, quantile| find(report, figure, &policy.policy, quantile);
        let shown = |figure: &str, quantile, scale: f64| {
            let value = of(figure, quantile)
                .and_then(|figure| ExtendedReal::new(figure.value.get() * scale));
            value.map_or_else(|| "\u{2013}".to_owned(), number)
        };
        let fraction = of("timeslice_throughput_fraction", None);
        format!(
            "<tr><th scope=\"row\">{}</th>{}{}{}{}{}{}{}{}</tr>\n",
            name(place, policy),
            cell("of raw", "n", &shown("timeslice_throughput_fraction", None, 1.0)),
            cell("", "drawn", &drawing::bar(place, fraction)),
            cell("of the line", "n", &shown("timeslice_line_fraction", None, 1.0)),
            cell("ms, p50", "n", &shown("timeslice_completion_ms", Some("p50"), 1.0)),
            cell("rotations, p50", "n", &shown("timeslice_completion_rotations", Some("p50"), 1.0)),
            cell("rotations, p99", "n", &shown("timeslice_completion_rotations", Some("p99"), 1.0)),
            cell("ring %, p99", "n", &shown("builder_buffer_fill_fraction", Some("p99"), 100.0)),
            cell("ahead, p99", "n", &shown("synchronisation_gap_contributions", Some("p99"), 1.0)),
        )
    };
    let body: String = building.policies.iter().enumerate().map(row).collect();
    let columns = [
        ("Policy", ""),
        ("Of raw", "n"),
        ("", ""),
        ("Of its interface", "n"),
        ("Complete, ms (p50)", "n"),
        ("Rotations (p50)", "n"),
        ("Rotations (p99)", "n"),
        ("Ring, % (p99)", "n"),
        ("Ahead (p99)", "n"),
    ];
    let caption = format!(
        "<b>Raw</b> is writes in turn that nobody waits for: the achievable line, at which all inputs need {} ms for a <b>rotation</b>, \
         one contribution to each builder; bars show it as a mark, and least and most of the seeds. Completion is from the first to the last contribution of a timeslice; <b>ahead</b> is by how \
         many contributions the furthest input leads the last.",
        number(ExtendedReal::or_infinite(building.rotation_ms))
    );
    let lead = format!(
        "{} inputs, {} builders, contributions of {} KiB, a ring of {} KiB for each connection.",
        building.inputs,
        building.builders,
        number(ExtendedReal::or_infinite(building.contribution_bytes as f64 / 1024.0)),
        number(ExtendedReal::or_infinite(building.ring_bytes as f64 / 1024.0)),
    );
    section(
        "building",
        "Timeslices",
        &lead,
        &table("cards classes", &caption, &head(&columns), &body),
    )
}

fn completion(building: &BuildingReport) -> String {
    let those = those(building, |policy| policy.completion_ms.is_some());
    if those.is_empty() {
        return String::new();
    }
    let candles: Vec<(usize, &str, [f64; 5])> = those
        .iter()
        .filter_map(|(place, policy)| {
            Some((*place, policy.policy.as_str(), policy.completion_ms?.map(ExtendedReal::get)))
        })
        .collect();
    let caption = "Thin line: least to most; bar: p10 to p90; mark: the median. The scale is logarithmic; dashed lines are one rotation and ten.";
    let body = figure(
        "Time to complete, ms",
        "",
        &drawing::candles(&candles, building.rotation_ms),
        caption,
    );
    section(
        "completion",
        "How long timeslices take",
        "From a timeslice\u{2019}s first contribution to its last, all builders, first seed.",
        &body,
    )
}

fn fills(building: &BuildingReport) -> String {
    let body: String = those(building, |policy| !policy.fills.is_empty())
        .into_iter()
        .map(|(place, policy)| {
            let caption = format!(
                "{} builders, fullest first. Line: median; dark band: p10 to p90; light band: least to most.",
                policy.fills.len()
            );
            figure(&name(place, policy), "", &drawing::fills(place, &policy.fills), &caption)
        })
        .collect();
    section(
        "fills",
        "How full rings are",
        "Percent of each connection\u{2019}s ring that holds contributions to timeslices that are not complete, looked at whenever one is.",
        &pairs("", &body),
    )
}

fn pulse(building: &BuildingReport) -> String {
    let those = those(building, |policy| policy.pulse.len() > 1);
    if those.is_empty() {
        return String::new();
    }
    let slower = building.slower_ms.map(|ends| ends.map(ExtendedReal::get));
    let caption = match slower {
        Some(_) => {
            "What landed in each step, over what raw writes carry. Grey: every input was slower."
        }
        None => "What landed in each step, over what raw writes carry.",
    };
    let body = figure(
        "Throughput over time",
        &legend_of(&those),
        &drawing::pulse(&those, slower),
        caption,
    );
    let title = if slower.is_some() { "Recovery" } else { "Throughput over time" };
    section(
        "pulse",
        title,
        "First seed, behind the warm-up; the dashed line is the achievable one.",
        &body,
    )
}

fn intervals(building: &BuildingReport) -> String {
    let those = those(building, |policy| !policy.intervals.is_empty());
    let body: String = those
        .iter()
        .map(|(place, policy)| {
            let durations = drawing::durations(*place, &policy.intervals);
            let starts = drawing::starts(*place, &policy.intervals);
            let first = "Line: what inputs took (median); grey: what was proposed. Where the grey line falls, a stage of the speed-up is tried.";
            let second = "Line: how much later than proposed an interval began (the middle of all inputs); band: from the first input to the last.";
            format!(
                "{}{}",
                figure(&format!("{}: duration of intervals, ms", name(*place, policy)), "", &durations, first),
                figure(&format!("{}: start against proposal, ms", name(*place, policy)), "", &starts, second)
            )
        })
        .collect();
    section(
        "intervals",
        "Intervals, proposed and measured",
        "Since the beginning, warm-up included; first seed.",
        &body,
    )
}

fn blocked(building: &BuildingReport) -> String {
    let those = those(building, |policy| !policy.blocked.is_empty());
    if those.is_empty() {
        return String::new();
    }
    let caption = "Percent of all inputs\u{2019} time, by what they waited for; the rest they were posting. An input that has nothing to post may have writes under way.";
    section(
        "blocked",
        "What inputs wait for",
        "",
        &figure(
            "Time in which nothing could be posted",
            &drawing::causes(&those),
            &drawing::blocked(&those),
            caption,
        ),
    )
}

fn gantts(building: &BuildingReport) -> String {
    let body: String = those(building, |policy| policy.gantt.is_some())
        .into_iter()
        .filter_map(|(place, policy)| {
            let gantt = policy.gantt.as_ref()?;
            let caption = "Each row is an input, each colour a builder: where its contributions land. Even stripes that climb are a shift in which nobody \
                           meets anybody; one colour in many rows is many inputs at one builder; gaps are inputs that wait.";
            Some(figure(&name(place, policy), "", &drawing::gantt(gantt, building.builders), caption))
        })
        .collect();
    section(
        "film",
        "Who sends to whom",
        "Two rotations behind the end of what was counted; first seed.",
        &body,
    )
}
