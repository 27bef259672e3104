//! Timeslice building on a terminal, in 80 columns.

use clearway_proto::timeslice::Policy;

use super::figures::{
    COMPLETION, DETECTION, DUPLICATED, FILL, FRACTION, GAP, LOST, POLICY, RATE, RECOVERY,
    REDISTRIBUTION, ROTATIONS, WINDOW,
};
use super::plan::TimeslicePlan;
use crate::report::model::{ExtendedReal, Figure, labels};
use crate::report::numerals::{digits, digits_or_dash, fit};

/// Returns the figures of a run on `place` as text that ends with a newline.
pub(crate) fn table(place: &str, plan: &TimeslicePlan, figures: &[Figure]) -> String {
    let TimeslicePlan { inputs, builders, contribution, ring, .. } = plan;
    let seeds = plan.seeds.len();
    let policies: Vec<&str> = plan.policies.iter().map(|policy| policy.name()).collect();
    let mut lines = vec![
        format!("timeslices on {place}: {inputs} inputs, {builders} builders"),
        format!(
            "contributions of {contribution}, rings of {ring} for each connection; median of {seeds} seed(s)"
        ),
        String::new(),
    ];
    lines.extend(rows(&policies, figures));
    lines.extend(policies.iter().filter_map(|policy| loss(policy, figures)));
    lines.join("\n") + "\n"
}

/// Returns a row for `raw` and each of `policies`, below a head and above what its words mean.
pub(super) fn rows(policies: &[&str], figures: &[Figure]) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{:12}{:>9}{:>8}{:>20}{:>12}{:>8}{:>6}",
            "", "GB/s of", "part of", "ms to complete", "rotations", "ring", ""
        ),
        format!(
            "{:12}{:>9}{:>8}{:>10}{:>10}{:>6}{:>6}{:>8}{:>6}{:>5}",
            "policy", "an input", "raw", "p50", "p99", "p50", "p99", "p99", "gap", "K"
        ),
    ];
    let raw = Policy::Raw.name();
    let others = policies.iter().copied().filter(|policy| *policy != raw);
    lines.extend([raw].into_iter().chain(others).map(|policy| row(policy, figures)));
    lines.push(String::new());
    let legend = [
        "raw: writes in turn that nobody waits for",
        "rotation: one contribution of each input to each builder, at the rate of raw",
        "ring: how full it is; K: how many contributions are let in at a time",
        "gap: by how many contributions the first input leads the last",
    ];
    lines.extend(legend.map(str::to_owned));
    lines
}

/// Returns how `policy` went on without a rank that died.
fn loss(policy: &str, figures: &[Figure]) -> Option<String> {
    let find = |name: &str| {
        let same = |figure: &&Figure| figure.name == name && figure.label(POLICY) == Some(policy);
        figures.iter().find(same).map(|figure| figure.value)
    };
    let [first, last, back] = [find(DETECTION)?, find(REDISTRIBUTION)?, find(RECOVERY)?];
    let known = match last.is_finite() {
        true => format!("is known after {} ms, to all after {} ms", digits(first), digits(last)),
        false => "is not known to all when the run ends".to_owned(),
    };
    let back = match back.is_finite() {
        true => format!("is back after {} rotations", digits(back)),
        false => "is not back when the run ends".to_owned(),
    };
    let lost = find(LOST)
        .zip(find(DUPLICATED))
        .map(|counts| <[ExtendedReal; 2]>::from(counts).map(digits));
    let lost = lost
        .map_or_else(String::new, |[lost, twice]| format!("; lost: {lost}, built twice: {twice}"));
    Some(format!("{policy}: the death {known}, and throughput {back}{lost}"))
}

fn row(policy: &str, figures: &[Figure]) -> String {
    let find = |name: &str, quantile: Option<&str>| {
        let same = |figure: &&Figure| {
            figure.name == name
                && figure.label(POLICY) == Some(policy)
                && figure.label(labels::QUANTILE) == quantile
        };
        figures.iter().find(same).map(|figure| figure.value)
    };
    let of = |name, quantile| digits_or_dash(find(name, Some(quantile)));
    let percent =
        |value: ExtendedReal| format!("{} %", digits(ExtendedReal::finite(100.0 * value.get())));
    let ring = find(FILL, Some("p99")).map_or_else(|| "-".into(), percent);
    format!(
        "{:12}{:>9}{:>8}{:>10}{:>10}{:>6}{:>6}{:>8}{:>6}{:>5}",
        fit(policy, 11),
        digits_or_dash(find(RATE, None)),
        digits_or_dash(find(FRACTION, None)),
        of(COMPLETION, "p50"),
        of(COMPLETION, "p99"),
        of(ROTATIONS, "p50"),
        of(ROTATIONS, "p99"),
        ring,
        of(GAP, "p99"),
        digits_or_dash(find(WINDOW, None)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::numerals::fold;
    use crate::report::terminal::WIDTH;

    #[test]
    fn loss__what_did_not_come_within_the_run_is_said_in_words() {
        let reported = |values: [ExtendedReal; 3]| {
            let names = [DETECTION, REDISTRIBUTION, RECOVERY].into_iter().zip(values);
            let figures: Vec<Figure> = names
                .map(|(name, value)| Figure::counted(name, "", value, 1, "").with(POLICY, "dfs"))
                .collect();
            loss("dfs", &figures).expect("a death")
        };
        let [soon, late, back] = [1.0, 2.0, 30.0].map(ExtendedReal::finite);
        let on_terminal = fold(&reported([soon, late, back]), WIDTH);
        assert!(on_terminal.lines().all(|line| line.chars().count() <= WIDTH), "{on_terminal}");
        assert_eq!(
            reported([soon, late, back]),
            "dfs: the death is known after 1.00 ms, to all after 2.00 ms, and throughput is back after 30.0 rotations"
        );
        assert!(
            reported([soon, late, ExtendedReal::INFINITE])
                .ends_with("and throughput is not back when the run ends")
        );
        let nobody = reported([ExtendedReal::INFINITE; 3]);
        assert!(
            nobody.contains("is not known to all when the run ends") && !nobody.contains("inf"),
            "{nobody}"
        );
    }
}
