//! What simulated broadcasts took, as figures and as a table in 80 columns.

use anyhow::Result;
use clearway_proto::base::Nanos;
use clearway_proto::broadcast::{Algorithm, Costs, MulticastReach};

use super::super::figures::{BYTES, KNOWN, LOSS, MODE, REPAIRS, SECONDS};
use super::super::outcome::quantile;
use super::super::plan::BroadcastPlan;
use super::{BroadcastTestBed, SimulatedResult};
use crate::report::model::{ExtendedReal, Figure, labels};
use crate::report::numerals::digits;

/// Symbols that the root sent beyond one for each of the object, over those; labels bytes, loss,
/// mode.
const ROOT_AGAIN: &str = "broadcast_root_again_fraction";
/// Reports that the root heard for each poll; labels bytes, loss, mode.
const ROOT_REPORTS: &str = "broadcast_root_reports";
/// Bytes that links carried, over the object's and the number of receivers; labels bytes, loss,
/// mode, links.
const LINKS: &str = "broadcast_link_bytes";
/// p99 of neighbours' round trips during the cast over that before it; labels bytes, loss, mode.
const NEIGHBOURS: &str = "broadcast_neighbours_slowdown";
/// The same if each receiver got the object by itself, headers not counted; labels links.
const UNICAST: &str = "broadcast_unicast_link_bytes";
const KIND: &str = "links";
/// Where a figure of several machines or numbers of ranks is from.
pub(crate) const FABRIC: &str = "fabric";
pub(crate) const RANKS: &str = "ranks";
/// Kinds of link, in the order of [`SimulatedResult::links`].
const KINDS: [&str; 3] = ["from-hosts", "to-hosts", "between-switches"];
/// Round trips of neighbours below which there is no quantile.
const LEAST: usize = 20;

/// Runs `plan` on the machine `name` under `queue` and returns its figures, with the labels fabric
/// and ranks.
pub(crate) fn on_machine(
    name: &str,
    queue: Option<&str>,
    plan: &BroadcastPlan,
) -> Result<Vec<Figure>> {
    let test_bed = BroadcastTestBed::open(name, queue, plan.ranks, None)?;
    let mut all = figures(&test_bed, &test_bed.run(plan)?);
    let receivers = f64::from(plan.ranks.saturating_sub(1)).max(1.0);
    let crossings = test_bed.unicast_crossings() as f64 / receivers;
    for (kind, ratio) in KINDS.iter().zip([1.0, 1.0, crossings]) {
        all.push(
            Figure::counted(
                UNICAST,
                "",
                ExtendedReal::or_infinite(ratio),
                1,
                "shortest ways, no headers",
            )
            .with(KIND, *kind),
        );
    }
    Ok(all
        .into_iter()
        .map(|figure| figure.with(FABRIC, name).with(RANKS, plan.ranks.to_string()))
        .collect())
}

/// Returns all figures of `outcomes`.
pub(crate) fn figures(test_bed: &BroadcastTestBed, outcomes: &[SimulatedResult]) -> Vec<Figure> {
    outcomes.iter().flat_map(|outcome| cast_figures(test_bed, outcome)).collect()
}

fn seconds(times: &[Nanos]) -> Vec<f64> {
    let mut seconds: Vec<f64> = times.iter().map(|time| time.0 as f64 / 1e9).collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}

/// Returns p99 under load over p99 alone.
fn slowdown(outcome: &SimulatedResult) -> Option<f64> {
    if outcome.loaded.len() < LEAST || outcome.alone.len() < LEAST {
        return None;
    }
    let p99 = |times: &[Nanos]| quantile(&seconds(times), 0.99);
    Some(p99(&outcome.loaded)? / p99(&outcome.alone)?)
}

/// Returns the symbols of the objects, and copies of each that the root has to send at least.
fn least(test_bed: &BroadcastTestBed, outcome: &SimulatedResult) -> (f64, f64) {
    let symbols =
        outcome.all.received as f64 / f64::from(test_bed.ranks.saturating_sub(1)).max(1.0);
    let copies = match outcome.way {
        Algorithm::Multicast | Algorithm::Chain | Algorithm::Segments => 1.0,
        Algorithm::Tree => (outcome.root.sent - outcome.root.repairs) as f64 / symbols,
    };
    (symbols, copies)
}

fn cast_figures(test_bed: &BroadcastTestBed, outcome: &SimulatedResult) -> Vec<Figure> {
    let count = outcome.received.len() as u64;
    let receivers = f64::from(test_bed.ranks.saturating_sub(1)).max(1.0);
    let (symbols, copies) = least(test_bed, outcome);
    let plain = |name: &str, value: f64, source: &str| {
        Figure::counted(name, "", ExtendedReal::or_infinite(value), count, source)
    };
    let mut figures = Vec::new();
    for (name, times, source) in [
        (SECONDS, &outcome.received, "until the last receiver has it"),
        (KNOWN, &outcome.known, "until the root knows"),
    ] {
        if let Some(median) = quantile(&seconds(times), 0.5) {
            let figure =
                Figure::counted(name, "s", ExtendedReal::or_infinite(median), count, source);
            figures.push(if name == SECONDS {
                figure
            } else {
                figure.with(labels::QUANTILE, "p50")
            });
        }
    }
    figures.push(plain(
        REPAIRS,
        outcome.all.repairs as f64 / symbols / receivers,
        "sent because asked for, of all",
    ));
    let again = outcome.root.sent as f64 / symbols - copies;
    figures.push(plain(ROOT_AGAIN, again, "symbols of the root beyond one for each"));
    let polls = outcome.root.polls.max(1) as f64;
    figures.push(plain(
        ROOT_REPORTS,
        outcome.root.reports as f64 / polls,
        "heard by the root for each poll",
    ));
    for (kind, bytes) in KINDS.iter().zip(outcome.links) {
        let ratio = bytes as f64 / (outcome.length.0 * count) as f64 / receivers;
        figures.push(plain(LINKS, ratio, "headers and control included").with(KIND, *kind));
    }
    if let Some(slowdown) = slowdown(outcome) {
        let source = "p99 of round trips during the cast over before";
        figures.push(Figure::counted(
            NEIGHBOURS,
            "",
            ExtendedReal::or_infinite(slowdown),
            outcome.loaded.len() as u64,
            source,
        ));
    }
    let labelled = |figure: Figure| {
        figure
            .with(BYTES, outcome.length.0.to_string())
            .with(LOSS, outcome.loss.to_string())
            .with(MODE, outcome.mode.name())
    };
    figures.into_iter().map(labelled).collect()
}

/// Returns `outcomes` as text that ends with a newline.
pub(crate) fn table(test_bed: &BroadcastTestBed, outcomes: &[SimulatedResult]) -> String {
    let mut lines = vec![
        format!("broadcasts on {}, simulated", test_bed.name()),
        format!(
            "one root, {} receivers; {}B in a symbol",
            test_bed.ranks.saturating_sub(1),
            test_bed.symbol()
        ),
        String::new(),
        format!(
            "{:<10}{:>9}{:>7}{:>10}{:>10}{:>8}{:>7}{:>7}{:>6}{:>6}",
            "mode", "bytes", "lost", "all have", "known", "again", "root", "polls", "links", "near"
        ),
    ];
    lines.extend(outcomes.iter().map(|outcome| row(test_bed, outcome)));
    lines.push(String::new());
    lines.push(
        "all have, known: from the order until the last receiver has it, and the root".into(),
    );
    lines.push(
        "knows (median); again: symbols sent because somebody missed them, for each that".into(),
    );
    lines.push(
        "arrived; root: what the root sent beyond one of each; polls: reports that it".into(),
    );
    lines.push("heard for each; links: bytes on all links for each received; near: p99 of".into());
    lines.push("neighbours' round trips during the cast over before".into());
    lines.join("\n") + "\n"
}

fn row(test_bed: &BroadcastTestBed, outcome: &SimulatedResult) -> String {
    let receivers = f64::from(test_bed.ranks.saturating_sub(1)).max(1.0);
    let (symbols, copies) = least(test_bed, outcome);
    let time = |times: &[Nanos]| {
        quantile(&seconds(times), 0.5).map_or("-".into(), |it| Nanos((it * 1e9) as u64).to_string())
    };
    let percent = |share: f64| format!("{}%", digits(ExtendedReal::or_infinite(100.0 * share)));
    let links: u64 = outcome.links.iter().sum();
    let links =
        links as f64 / (outcome.length.0 * outcome.received.len() as u64) as f64 / receivers;
    format!(
        "{:<10}{:>9}{:>7}{:>10}{:>10}{:>8}{:>7}{:>7}{:>6}{:>6}",
        outcome.mode.name(),
        outcome.length.to_string(),
        outcome.loss.to_string(),
        time(&outcome.received),
        time(&outcome.known),
        percent(outcome.all.repairs as f64 / symbols / receivers),
        percent(outcome.root.sent as f64 / symbols - copies),
        digits(ExtendedReal::or_infinite(
            outcome.root.reports as f64 / outcome.root.polls.max(1) as f64
        )),
        digits(ExtendedReal::or_infinite(links)),
        slowdown(outcome).map_or("-".into(), |it| digits(ExtendedReal::or_infinite(it))),
    )
}

/// Returns what each way costs by the engine's model, and which one that makes the best.
pub(crate) fn explained(test_bed: &BroadcastTestBed, outcomes: &[SimulatedResult]) -> String {
    let mut text = String::from("\nwhat each way costs by the model:\n");
    let mut known = Vec::new();
    for SimulatedResult { length, loss, .. } in outcomes {
        if known.contains(&(*length, *loss)) {
            continue;
        }
        known.push((*length, *loss));
        let costs = Costs::new(&test_bed.circumstances(*length, *loss), MulticastReach::All);
        text += &format!("  {length}, {loss} lost: {costs}; best: {}\n", costs.best().name());
    }
    text
}
