//! What charts of broadcasts in a laboratory are drawn from, and how a report of broadcasts is shown.

mod casting;
mod pages;
#[cfg(test)]
mod sample;
mod scaling;

use clearway_proto::base::{LocalNs, Rank};

use super::Broadcasts;
use super::figures::{BYTES, LOSS, MODE};
use super::outcome::{Outcome, ROOT};
use super::plan::Plan;
use super::table::{rows, scaling_rows};
use super::words::{Account, Rhythm};
use crate::report::model::{Labels, Real, Report};
use crate::report::present::Presenter;
use casting::{CastFilm, CastRun, CastSymbols, Casting};

/// Fewer samples of an object are no picture of how it came in.
const SAMPLES_MIN: usize = 24;

/// The material of `outcomes` on hosts with these `names`; a bare exchange and batches have none.
pub(crate) fn casting(plan: &Plan, names: Vec<String>, outcomes: &[Outcome]) -> Casting {
    let is_shown = |outcome: &&Outcome| matches!(outcome.cast.rhythm, Rhythm::Ordered | Rhythm::Apart(_));
    let rate = plan.rate.map_or(Real::INFINITE, |rate| Real::or_infinite(rate.0 as f64 / 1e6));
    let casts = outcomes.iter().filter(is_shown).map(|outcome| run(plan, outcome)).collect();
    Casting { hosts: names, rate_mbps: rate, casts }
}

fn run(plan: &Plan, outcome: &Outcome) -> CastRun {
    let cast = &outcome.cast;
    let all = |rank: u32| outcome.accounts.get(&Rank(rank));
    let receivers = || (1..plan.ranks).map(all);
    let (record, lost) = (outcome.record(), receivers().flatten().map(|account| account.lost).sum());
    let label = |key: &str, value: String| (key.to_owned(), value);
    let labels = [
        label(BYTES, cast.length.to_string()),
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
        links: (0..plan.ranks).filter_map(|rank| Some(all(rank)?.traffic?.map(|bytes| bytes.0))).map(turned).collect(),
        sources: (0..plan.ranks).map(|rank| all(rank).map_or(Vec::new(), |account| account.sources.clone())).collect(),
        film: film(outcome, &receivers().collect::<Vec<_>>()),
    }
}

/// Sent before received.
fn turned([received, sent]: [u64; 2]) -> [u64; 2] {
    [sent, received]
}

fn film(outcome: &Outcome, receivers: &[Option<&Account>]) -> Option<CastFilm> {
    let object = outcome.cast.filmed();
    let [begin, _] = *outcome.accounts.get(&ROOT)?.times.get(object as usize)?;
    if !outcome.is_one_clock || receivers.iter().flatten().map(|account| account.film.len()).max()? < SAMPLES_MIN {
        return None;
    }
    let ms = |at: LocalNs| Real::or_infinite(at.since(begin).as_micros_f64() / 1e3);
    let have = |account: &Option<&Account>| Some(account.as_ref()?.times.get(object as usize)?[0]);
    let end = receivers.iter().filter_map(have).max()?;
    let progress = |account: &Option<&Account>| {
        let film = account.map_or(&[][..], |account| &account.film);
        // The last sample is of the whole object.
        let whole = film.last().map_or(1, |last| last.symbols.max(1)) as f64;
        let since = film.iter().filter(|sample| sample.at >= begin);
        since.map(|sample| (ms(sample.at), Real::or_infinite(100.0 * sample.symbols as f64 / whole))).collect()
    };
    let meanwhile = outcome.ways.iter().filter(|(_, at)| (begin..=end).contains(at));
    Some(CastFilm {
        object,
        whole_ms: receivers.iter().map(|account| have(account).map(ms)).collect(),
        switches: meanwhile.map(|(way, at)| (ms(*at), way.name().to_owned())).collect(),
        progress: receivers.iter().map(progress).collect(),
    })
}

impl Presenter for Broadcasts {
    fn check(&self, report: &Report) -> Result<(), String> {
        report.check_part::<Casting>()
    }

    fn tables(&self, report: &Report) -> Vec<Vec<String>> {
        vec![casting_table(report)]
    }

    fn sections(&self, report: &Report, _queues: &[String]) -> String {
        pages::casting(report) + &scaling::scaling(report)
    }
}

/// How long broadcasts took by each mode.
fn casting_table(report: &Report) -> Vec<String> {
    let Some(casting) = report.part::<Casting>() else {
        let rows = scaling_rows(&report.figures);
        let title = "Broadcasts, until the last rank has the object";
        return if rows.is_empty() {
            rows
        } else {
            [title.to_owned(), String::new()].into_iter().chain(rows).collect()
        };
    };
    let receivers = casting.hosts.len().saturating_sub(1);
    let mut lines = vec![format!("Broadcasts from one host to {receivers} others, every byte compared"), String::new()];
    lines.extend(rows(&report.figures));
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clearway_proto::base::{BitsPerSec, Bytes, Nanos};
    use clearway_proto::broadcast::{Algorithm, BroadcastRecord};

    use super::super::figures::{DOUBLED, REPAIRS};
    use super::super::outcome::Cast;
    use super::super::plan::{Mode, Share};
    use super::super::rough::Rough;
    use super::super::words::Sample;
    use super::*;
    use crate::report::html::browser;
    use crate::report::terminal::{Paint, render};

    fn plan() -> Plan {
        Plan {
            ranks: 3,
            leaves: 1,
            modes: vec![Mode::Auto],
            modes_up_to: None,
            lengths: vec![Bytes(1000)],
            losses: vec![Share(0)],
            objects: None,
            rate: Some(BitsPerSec::mega(200)),
            silence: Nanos::from_secs(1),
            kills: Vec::new(),
            stops: Vec::new(),
            filter: None,
            seed: 1,
        }
    }

    fn outcome(rhythm: Rhythm) -> Outcome {
        let ms = |ms: u64| LocalNs(ms * 1_000_000);
        let root = Account {
            times: vec![[ms(100), ms(120)], [ms(200), ms(230)]],
            traffic: Some([Bytes(7), Bytes(2000)]),
            ..Account::default()
        };
        let receiver = Account {
            times: vec![[ms(110); 2], [ms(220); 2]],
            traffic: Some([Bytes(2000), Bytes(9)]),
            lost: 2,
            sources: vec![20],
            record: BroadcastRecord { received: 20, doubled: 1, ..BroadcastRecord::default() },
            film: (0..=30).map(|n| Sample { at: ms(190 + n), symbols: n }).collect(),
            ..Account::default()
        };
        let accounts = [root, receiver.clone(), receiver];
        Outcome {
            cast: Cast {
                mode: Mode::Auto,
                length: Bytes(1000),
                loss: Share(1000),
                rough: Rough::default(),
                rhythm,
                objects: 2,
            },
            way: Algorithm::Multicast,
            ways: vec![(Algorithm::Tree, ms(50)), (Algorithm::Chain, ms(210))],
            accounts: (0..).map(Rank).zip(accounts).collect::<BTreeMap<_, _>>(),
            gone: BTreeMap::new(),
            out: Default::default(),
            is_one_clock: true,
        }
    }

    #[test]
    fn casting__films_the_object_in_the_middle_from_its_own_beginning_on() {
        let names = vec!["h0".to_owned(), "h1".to_owned(), "h2".to_owned()];
        let all = [outcome(Rhythm::Ordered), outcome(Rhythm::Bare), outcome(Rhythm::Batches(16))];
        let casting = casting(&plan(), names, &all);
        assert_eq!((casting.casts.len(), casting.rate_mbps), (1, Real::or_infinite(200.0)));
        let run = &casting.casts[0];
        assert_eq!(run.links, [[2000, 7], [9, 2000], [9, 2000]]);
        assert_eq!((run.symbols.needed, run.symbols.lost, run.symbols.doubled), (40, 4, 2));
        let film = run.film.as_ref().expect("thirty samples are a film");
        assert_eq!((film.object, film.whole_ms[0]), (1, Some(Real::or_infinite(20.0))));
        assert_eq!(film.switches, [(Real::or_infinite(10.0), "chain".to_owned())], "not what came before the object");
        assert!(film.progress[0].iter().all(|(at, _)| *at >= Real::or_infinite(0.0)), "nor how it waited for it");
        assert_eq!(film.progress[0].last(), Some(&(Real::or_infinite(20.0), Real::or_infinite(100.0))));
    }

    #[test]
    fn casting__shares_of_symbols_are_those_of_the_figures() {
        let outcomes = [outcome(Rhythm::Ordered)];
        let figures = super::super::figures(&plan(), &outcomes);
        let figure = |name: &str| figures.iter().find(|figure| figure.name == name).map(|figure| figure.value.get());
        let symbols = casting(&plan(), Vec::new(), &outcomes).casts[0].symbols;
        let share = |count: u64| Some(count as f64 / symbols.needed as f64);
        assert_eq!((share(symbols.repairs), share(symbols.doubled)), (figure(REPAIRS), figure(DOUBLED)));
        assert_eq!(figure(DOUBLED), Some(0.05));
    }

    #[test]
    fn casting__what_is_here_at_once_has_no_film() {
        let mut outcome = outcome(Rhythm::Ordered);
        outcome.accounts.values_mut().for_each(|account| account.film.truncate(3));
        assert_eq!(casting(&plan(), Vec::new(), &[outcome]).casts[0].film, None);
    }

    #[test]
    fn tables__of_a_foreign_file_do_not_steer_the_terminal() {
        let mut report = sample::casting();
        for figure in &mut report.figures {
            figure.labels.insert(MODE.to_owned(), "\u{1b}[31mtree".to_owned());
        }
        let text = render(&report, &[&Broadcasts], Paint::Plain);
        assert!(text.contains("[31mtree") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn page__shows_broadcasts_in_every_window() {
        browser::check("casting", &sample::casting(), &[&Broadcasts], 0);
    }

    #[test]
    fn page__shows_broadcasts_on_machines_in_every_window() {
        browser::check("scaling", &sample::scaling(), &[&Broadcasts], 0);
    }
}
