//! Broadcasts on a terminal, in 80 columns.

use super::figures::{
    AMORTISED, BARE, BYTES, DOUBLED, GOODPUT, KIND, LOSS, MODE, PROCESSOR, RATIO, REPAIRS, SECONDS,
    SLOW, STALL,
};
use super::plan::BroadcastPlan;
use super::simulated::{FABRIC, RANKS};
use crate::report::model::{ExtendedReal, Figure, labels};
use crate::report::numerals::{digits, fit, length_shown};

/// Returns the figures of a run on `place` as text that ends with a newline.
pub(crate) fn table(place: &str, plan: &BroadcastPlan, figures: &[Figure]) -> String {
    let mut lines = vec![
        format!("broadcasts on {place}"),
        format!(
            "one root, {} receivers; every byte compared at every receiver",
            plan.ranks.saturating_sub(1)
        ),
        String::new(),
    ];
    lines.extend(rows(figures));
    lines.join("\n") + "\n"
}

/// Returns a row for each mode, length and loss, short objects next to the bare exchange, and what
/// the words mean.
pub(super) fn rows(figures: &[Figure]) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<10}{:>9}{:>8}{:>12}{:>12}{:>8}{:>10}{:>8}",
        "mode", "bytes", "lost", "p50", "p99", "line", "sender", "again"
    )];
    for figure in figures.iter().filter(|figure| figure.name == SECONDS) {
        lines.push(row(figure, figures));
    }
    lines.push(String::new());
    lines.extend(
        figures
            .iter()
            .filter(|figure| is(figure, AMORTISED, "p50"))
            .map(|figure| short(figure, figures)),
    );
    lines.extend(
        figures.iter().filter(|figure| figure.name == STALL).map(|figure| long(figure, figures)),
    );
    for bare in figures.iter().filter(|figure| is(figure, BARE, "p50")) {
        let p99 = figures
            .iter()
            .find(|figure| is(figure, BARE, "p99") && figure.label(LOSS) == bare.label(LOSS));
        lines.push(format!(
            "bare, {} lost: p50 {}, p99 {}",
            bare.label(LOSS).unwrap_or_default(),
            time(Some(bare.value)),
            time(p99.map(|figure| figure.value))
        ));
    }
    lines.push(String::new());
    lines.push(
        "line: bytes over what the link carries in the median time; sender: processor".into(),
    );
    lines.push(
        "time of the root for an object; again: symbols sent again, of all that receivers".into(),
    );
    lines.push("need; bare: one datagram to all and an answer of each, without any engine".into());
    lines
}

/// Returns a row for each machine, number of ranks and length, a column for each mode, where the
/// same was cast on several.
pub(super) fn scaling_rows(figures: &[Figure]) -> Vec<String> {
    let times =
        || figures.iter().filter(|figure| figure.name == SECONDS && figure.label(RANKS).is_some());
    let mut modes: Vec<&str> = Vec::new();
    let mut rows: Vec<[&str; 4]> = Vec::new();
    for figure in times() {
        let [fabric, ranks, bytes, loss, mode] =
            [FABRIC, RANKS, BYTES, LOSS, MODE].map(|key| figure.label(key).unwrap_or_default());
        if !modes.contains(&mode) {
            modes.push(mode);
        }
        if !rows.contains(&[fabric, ranks, bytes, loss]) {
            rows.push([fabric, ranks, bytes, loss]);
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let line = |first: [&str; 4], rest: Vec<String>| {
        let [fabric, ranks, bytes, loss] = first;
        let bytes = length_shown(bytes);
        let rest: String = rest.iter().map(|column| format!("{:>12}", fit(column, 11))).collect();
        format!("  {:<12}{ranks:>7}{bytes:>10}{loss:>7}{rest}", fit(fabric, 11))
    };
    let row = |row: &[&str; 4]| {
        let value = |mode: &&str| {
            let keys = [FABRIC, RANKS, BYTES, LOSS].iter().zip(row);
            let keys = keys.chain([(&MODE, mode)]);
            time(
                times()
                    .find(|figure| {
                        keys.clone().all(|(key, value)| figure.label(key) == Some(*value))
                    })
                    .map(|it| it.value),
            )
        };
        line(*row, modes.iter().map(value).collect())
    };
    let head = line(
        ["machine", "ranks", "bytes", "lost"],
        modes.iter().map(|mode| (*mode).to_owned()).collect(),
    );
    [head].into_iter().chain(rows.iter().map(row)).collect()
}

fn is(figure: &Figure, name: &str, quantile: &str) -> bool {
    figure.name == name && figure.label(labels::QUANTILE) == Some(quantile)
}

/// Returns the figure `name` with the labels of `of`.
fn related_figure<'a>(
    of: &Figure,
    figures: &'a [Figure],
    name: &str,
    extra: Option<(&str, &str)>,
) -> Option<&'a Figure> {
    let same = |figure: &&Figure| {
        figure.name == name
            && [BYTES, LOSS, MODE].iter().all(|key| figure.label(key) == of.label(key))
            && extra.is_none_or(|(key, value)| figure.label(key) == Some(value))
    };
    figures.iter().find(same)
}

fn row(figure: &Figure, figures: &[Figure]) -> String {
    let value =
        |name, extra| related_figure(figure, figures, name, extra).map(|figure| figure.value);
    format!(
        "{:<10}{:>9}{:>8}{:>12}{:>12}{:>8}{:>10}{:>8}",
        figure.label(MODE).unwrap_or_default(),
        length_shown(figure.label(BYTES).unwrap_or_default()),
        figure.label(LOSS).unwrap_or_default(),
        time(Some(figure.value)),
        time(value(SLOW, None)),
        percent(value(GOODPUT, None)),
        time(value(PROCESSOR, None)),
        percent(value(REPAIRS, None)),
    )
}

/// Describes the objects of a batch; those of one symbol next to the bare exchange.
fn short(figure: &Figure, figures: &[Figure]) -> String {
    let [mode, bytes, loss] =
        [MODE, BYTES, LOSS].map(|label| figure.label(label).unwrap_or_default());
    let bytes = length_shown(bytes);
    let each = time(Some(figure.value));
    let ratio = |kind| {
        related_figure(figure, figures, RATIO, Some((KIND, kind)))
            .map(|figure| digits(figure.value))
    };
    match ratio("alone").zip(ratio("amortised")) {
        Some((alone, amortised)) => {
            format!(
                "{mode} of {bytes}, {loss} lost: {alone} of bare alone; 16 at once {each} each, {amortised} of bare"
            )
        }
        None => format!("{mode} of {bytes}, {loss} lost: 16 at once {each} each"),
    }
}

/// Returns what receivers of long objects felt.
fn long(figure: &Figure, figures: &[Figure]) -> String {
    format!(
        "{} of {}, {} lost: longest stall {}; {} of all symbols came twice",
        figure.label(MODE).unwrap_or_default(),
        length_shown(figure.label(BYTES).unwrap_or_default()),
        figure.label(LOSS).unwrap_or_default(),
        time(Some(figure.value)),
        percent(related_figure(figure, figures, DOUBLED, None).map(|figure| figure.value)),
    )
}

fn percent(value: Option<ExtendedReal>) -> String {
    value.map_or_else(
        || "-".into(),
        |v| format!("{}%", digits(ExtendedReal::finite(100.0 * v.get()))),
    )
}

/// Returns the seconds with the unit that suits them.
fn time(seconds: Option<ExtendedReal>) -> String {
    let Some(seconds) = seconds.map(ExtendedReal::get) else { return "-".to_owned() };
    let (value, unit) = match seconds {
        _ if seconds < 1e-3 => (seconds * 1e6, "us"),
        _ if seconds < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    format!("{} {unit}", digits(ExtendedReal::or_infinite(value)))
}
