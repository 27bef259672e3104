//! What charts of broadcasts in a laboratory are drawn from, and how a report of broadcasts is
//! shown.

mod casting;
mod pages;
#[cfg(test)]
mod sample;
mod scaling;

use std::collections::BTreeMap;

use clearway_proto::base::{LocalNs, Rank};

use super::BroadcastMechanism;
use super::figures::{BYTES, LOSS, MODE, SECONDS};
use super::messages::{BroadcastResult, CastTiming};
use super::outcome::{CastResult, ROOT};
use super::plan::BroadcastPlan;
use super::simulated::{FABRIC, RANKS};
use super::table::{rows, scaling_rows};
use crate::report::model::{ExtendedReal, Figure, Labels, Report};
use crate::report::numerals::{digits, length_shown};
use crate::report::present::Presenter;
use casting::{BroadcastReport, CastProgressSamples, CastRun, CastSymbols};

/// Fewer samples of an object are no picture of how it came in.
const SAMPLES_MIN: usize = 24;

/// Returns the material of `outcomes` on hosts with these `names`; a bare exchange and batches have
/// none.
pub(crate) fn casting(
    plan: &BroadcastPlan,
    names: Vec<String>,
    outcomes: &[CastResult],
) -> BroadcastReport {
    let is_shown = |outcome: &&CastResult| {
        matches!(outcome.cast.rhythm, CastTiming::Ordered | CastTiming::Apart(_))
    };
    let rate = plan
        .rate
        .map_or(ExtendedReal::INFINITE, |rate| ExtendedReal::or_infinite(rate.0 as f64 / 1e6));
    let casts = outcomes.iter().filter(is_shown).map(|outcome| run(plan, outcome)).collect();
    BroadcastReport { hosts: names, rate_mbps: rate, casts }
}

fn run(plan: &BroadcastPlan, outcome: &CastResult) -> CastRun {
    let cast = &outcome.cast;
    let all = |rank: u32| outcome.accounts.get(&Rank(rank));
    let receivers = || (1..plan.ranks).map(all);
    let (record, lost) =
        (outcome.record(), receivers().flatten().map(|account| account.lost).sum());
    let label = |key: &str, value: String| (key.to_owned(), value);
    let labels = [
        label(BYTES, cast.length.0.to_string()),
        label(LOSS, cast.loss.to_string()),
        label(MODE, cast.mode.name().to_owned()),
    ];
    CastRun {
        labels: Labels::from(labels),
        bytes: cast.length.0,
        objects: cast.objects,
        way: outcome.way.name().to_owned(),
        symbols: CastSymbols {
            needed: record.received,
            lost,
            damaged: record.damaged,
            early: record.early,
            repairs: record.repairs,
            doubled: record.doubled,
        },
        links: (0..plan.ranks)
            .filter_map(|rank| Some(all(rank)?.traffic?.map(|bytes| bytes.0)))
            .map(turned)
            .collect(),
        sources: (0..plan.ranks)
            .map(|rank| all(rank).map_or(Vec::new(), |account| account.sources.clone()))
            .collect(),
        samples: progress_samples(outcome, &receivers().collect::<Vec<_>>()),
    }
}

/// Returns sent before received.
fn turned([received, sent]: [u64; 2]) -> [u64; 2] {
    [sent, received]
}

fn progress_samples(
    outcome: &CastResult,
    receivers: &[Option<&BroadcastResult>],
) -> Option<CastProgressSamples> {
    let object = outcome.cast.sampled_object();
    let [begin, _] = *outcome.accounts.get(&ROOT)?.times.get(object as usize)?;
    if !outcome.is_one_clock
        || receivers.iter().flatten().map(|account| account.samples.len()).max()? < SAMPLES_MIN
    {
        return None;
    }
    let ms = |at: LocalNs| ExtendedReal::or_infinite(at.since(begin).as_micros_f64() / 1e3);
    let have =
        |account: &Option<&BroadcastResult>| Some(account.as_ref()?.times.get(object as usize)?[0]);
    let end = receivers.iter().filter_map(have).max()?;
    let progress = |account: &Option<&BroadcastResult>| {
        let samples = account.map_or(&[][..], |account| &account.samples);
        // The last sample is of the whole object.
        let whole = samples.last().map_or(1, |last| last.symbols.max(1)) as f64;
        let since = samples.iter().filter(|sample| sample.at >= begin);
        since
            .map(|sample| {
                (ms(sample.at), ExtendedReal::or_infinite(100.0 * sample.symbols as f64 / whole))
            })
            .collect()
    };
    let meanwhile = outcome.ways.iter().filter(|(_, at)| (begin..=end).contains(at));
    Some(CastProgressSamples {
        object,
        whole_ms: receivers.iter().map(|account| have(account).map(ms)).collect(),
        switches: meanwhile.map(|(way, at)| (ms(*at), way.name().to_owned())).collect(),
        progress: receivers.iter().map(progress).collect(),
    })
}

impl Presenter for BroadcastMechanism {
    fn check(&self, report: &Report) -> Result<(), String> {
        report.check_part::<BroadcastReport>()
    }

    fn conclusion(&self, report: &Report) -> Option<String> {
        conclusion(&report.figures)
    }

    fn tables(&self, report: &Report) -> Vec<Vec<String>> {
        vec![casting_table(report)]
    }

    fn sections(&self, report: &Report, _queues: &[String]) -> String {
        pages::casting(report) + &scaling::scaling(report)
    }
}

/// Returns how long the longest of the broadcasts that lost nothing takes by the fastest algorithm, and
/// how much longer by the next one.
fn conclusion(figures: &[Figure]) -> Option<String> {
    let mut casts: BTreeMap<Labels, Vec<(f64, &str)>> = BTreeMap::new();
    for figure in figures.iter().filter(|figure| figure.name == SECONDS && figure.value.is_finite())
    {
        let Some(mode) = figure.label(MODE).filter(|_| figure.label(LOSS) == Some("0")) else {
            continue;
        };
        let mut cast = figure.labels.clone();
        cast.remove(MODE);
        casts.entry(cast).or_default().push((figure.value.get(), mode));
    }
    for times in casts.values_mut() {
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let best = |times: &[(f64, &str)]| times.first().map_or(0.0, |first| first.0);
    let (cast, times) = casts.iter().max_by(|a, b| best(a.1).total_cmp(&best(b.1)))?;
    let &(seconds, mode) = times.first()?;
    let label = |key: &str, before: &str, behind: &str| {
        cast.get(key).map_or_else(String::new, |value| format!("{before}{value}{behind}"))
    };
    let to = match label(RANKS, " reaches ", " ranks") {
        ranks if ranks.is_empty() => " reaches all".to_owned(),
        ranks => ranks + &label(FABRIC, " of ", ""),
    };
    let time = digits(ExtendedReal::or_infinite(seconds * 1e3));
    let next = times.get(1).map_or_else(String::new, |(other, by)| {
        let times = digits(ExtendedReal::or_infinite(other / seconds));
        format!("; {by} takes {times} times as long")
    });
    let bytes = length_shown(&label(BYTES, "", ""));
    Some(format!("{bytes}{to} in {time} ms by {mode}{next}"))
}

/// Returns how long broadcasts took by each mode.
fn casting_table(report: &Report) -> Vec<String> {
    let Some(casting) = report.part::<BroadcastReport>() else {
        let rows = scaling_rows(&report.figures);
        let title = "Broadcasts, until the last rank has the object";
        return if rows.is_empty() {
            rows
        } else {
            [title.to_owned(), String::new()].into_iter().chain(rows).collect()
        };
    };
    let receivers = casting.hosts.len().saturating_sub(1);
    let mut lines = vec![
        format!("Broadcasts from one host to {receivers} others, every byte compared"),
        String::new(),
    ];
    lines.extend(rows(&report.figures));
    lines
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::{BitsPerSec, Bytes, Nanos};
    use clearway_proto::broadcast::{Algorithm, BroadcastRecord};

    use super::super::fault_injection::ArrivalFaults;
    use super::super::figures::{DOUBLED, REPAIRS};
    use super::super::messages::ProgressSample;
    use super::super::outcome::CastParameters;
    use super::super::plan::{CastMode, Millionths};
    use super::*;
    use crate::report::html::browser;
    use crate::report::terminal::{ColourMode, render};

    fn plan() -> BroadcastPlan {
        BroadcastPlan {
            ranks: 3,
            leaves: 1,
            modes: vec![CastMode::Auto],
            modes_up_to: None,
            lengths: vec![Bytes(1000)],
            losses: vec![Millionths(0)],
            objects: None,
            rate: Some(BitsPerSec::mega(200)),
            silence: Nanos::from_secs(1),
            kills: Vec::new(),
            stops: Vec::new(),
            filter: None,
            seed: 1,
        }
    }

    fn outcome(rhythm: CastTiming) -> CastResult {
        let ms = |ms: u64| LocalNs(ms * 1_000_000);
        let root = BroadcastResult {
            times: vec![[ms(100), ms(120)], [ms(200), ms(230)]],
            traffic: Some([Bytes(7), Bytes(2000)]),
            ..BroadcastResult::default()
        };
        let receiver = BroadcastResult {
            times: vec![[ms(110); 2], [ms(220); 2]],
            traffic: Some([Bytes(2000), Bytes(9)]),
            lost: 2,
            sources: vec![20],
            record: BroadcastRecord { received: 20, doubled: 1, ..BroadcastRecord::default() },
            samples: (0..=30).map(|n| ProgressSample { at: ms(190 + n), symbols: n }).collect(),
            ..BroadcastResult::default()
        };
        let accounts = [root, receiver.clone(), receiver];
        CastResult {
            cast: CastParameters {
                mode: CastMode::Auto,
                length: Bytes(1000),
                loss: Millionths(1000),
                faults: ArrivalFaults::default(),
                rhythm,
                objects: 2,
            },
            way: Algorithm::Multicast,
            ways: vec![(Algorithm::Tree, ms(50)), (Algorithm::Chain, ms(210))],
            accounts: (0..).map(Rank).zip(accounts).collect::<BTreeMap<_, _>>(),
            dead_ranks: BTreeMap::new(),
            out: Default::default(),
            is_one_clock: true,
        }
    }

    #[test]
    fn conclusion__is_of_the_longest_broadcast_without_losses() {
        let cast = |bytes: &str, loss: &str, mode: &str, seconds| {
            let figure = Figure::counted(SECONDS, "s", ExtendedReal::finite(seconds), 1, "");
            let figure = figure.with(BYTES, bytes).with(LOSS, loss).with(MODE, mode);
            figure.with(RANKS, "64").with(FABRIC, "edr")
        };
        let figures = [
            cast("4", "0", "tree", 6e-6),
            cast("1048576", "0", "tree", 1.6e-3),
            cast("1048576", "0", "multicast", 0.4e-3),
            cast("1 MiB", "0.01", "multicast", 9.0),
        ];
        let sentence =
            "1 MiB reaches 64 ranks of edr in 0.40 ms by multicast; tree takes 4.00 times as long";
        assert_eq!(conclusion(&figures).as_deref(), Some(sentence));
        assert_eq!(conclusion(&[]), None);
    }

    #[test]
    fn casting__films_the_object_in_the_middle_from_its_own_beginning_on() {
        let names = vec!["h0".to_owned(), "h1".to_owned(), "h2".to_owned()];
        let all = [
            outcome(CastTiming::Ordered),
            outcome(CastTiming::Bare),
            outcome(CastTiming::Batches(16)),
        ];
        let casting = casting(&plan(), names, &all);
        assert_eq!((casting.casts.len(), casting.rate_mbps), (1, ExtendedReal::or_infinite(200.0)));
        let run = &casting.casts[0];
        assert_eq!(run.links, [[2000, 7], [9, 2000], [9, 2000]]);
        assert_eq!((run.symbols.needed, run.symbols.lost, run.symbols.doubled), (40, 4, 2));
        let samples = run.samples.as_ref().expect("thirty samples are a film");
        assert_eq!(
            (samples.object, samples.whole_ms[0]),
            (1, Some(ExtendedReal::or_infinite(20.0)))
        );
        assert_eq!(
            samples.switches,
            [(ExtendedReal::or_infinite(10.0), "chain".to_owned())],
            "not what came before the object"
        );
        assert!(
            samples.progress[0].iter().all(|(at, _)| *at >= ExtendedReal::or_infinite(0.0)),
            "nor how it waited for it"
        );
        assert_eq!(
            samples.progress[0].last(),
            Some(&(ExtendedReal::or_infinite(20.0), ExtendedReal::or_infinite(100.0)))
        );
    }

    #[test]
    fn casting__shares_of_symbols_are_those_of_the_figures() {
        let outcomes = [outcome(CastTiming::Ordered)];
        let figures = super::super::figures(&plan(), &outcomes);
        let figure = |name: &str| {
            figures.iter().find(|figure| figure.name == name).map(|figure| figure.value.get())
        };
        let symbols = casting(&plan(), Vec::new(), &outcomes).casts[0].symbols;
        let share = |count: u64| Some(count as f64 / symbols.needed as f64);
        assert_eq!(
            (share(symbols.repairs), share(symbols.doubled)),
            (figure(REPAIRS), figure(DOUBLED))
        );
        assert_eq!(figure(DOUBLED), Some(0.05));
    }

    #[test]
    fn casting__what_is_here_at_once_has_no_film() {
        let mut outcome = outcome(CastTiming::Ordered);
        outcome.accounts.values_mut().for_each(|account| account.samples.truncate(3));
        assert_eq!(casting(&plan(), Vec::new(), &[outcome]).casts[0].samples, None);
    }

    #[test]
    fn tables__of_a_foreign_file_do_not_steer_the_terminal() {
        let mut report = sample::casting();
        for figure in &mut report.figures {
            figure.labels.insert(MODE.to_owned(), "\u{1b}[31mtree".to_owned());
        }
        let text = render(&report, &[&BroadcastMechanism], ColourMode::Plain);
        assert!(text.contains("[31mtree") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn page__shows_broadcasts_in_every_window() {
        browser::check("casting", &sample::casting(), &[&BroadcastMechanism], 0);
    }

    #[test]
    fn page__shows_broadcasts_on_machines_in_every_window() {
        browser::check("scaling", &sample::scaling(), &[&BroadcastMechanism], 0);
    }
}
