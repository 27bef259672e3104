//! Names what stands out in a matrix of host pairs: a receiver, a sender, or one pair that neither
//! explains.
//!
//! # Model
//! A host stands out when the median of its row or column is more than twice the median of all
//! pairs. What a pair should be is row median x column median / median of all, as in Tukey's
//! two-way tables; it stands out at 1.5 times that, and of all. A hot port therefore is named once,
//! as a receiver, and a bad cable behind it is still found. A host of which one pair or two were
//! measured says nothing about hosts: its pairs speak for themselves.
//!
//! # Source
//! Tukey, "Exploratory data analysis" (1977), two-way fits by medians, here for ratios.

use crate::report::model::{ExtendedReal, HeatMap};

/// How far a host's median must lie above that of all pairs.
const HOST_FACTOR: f64 = 2.0;

/// How far a pair must lie above what its row and column suggest.
const PAIR_FACTOR: f64 = 1.5;

/// The most that is named of each kind: a list that nobody reads to its end names nothing.
const NAMED_MAX: usize = 5;

/// A host whose messages are slow as a whole.
pub(super) struct SlowHost<'a> {
    pub(super) name: &'a str,
    pub(super) median: f64,
}

/// A pair that is slower than its two hosts explain.
pub(super) struct SlowPair<'a> {
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    pub(super) value: f64,
    pub(super) expected: f64,
}

/// What stands out, worst first.
pub(super) struct Standouts<'a> {
    pub(super) receivers: Vec<SlowHost<'a>>,
    pub(super) senders: Vec<SlowHost<'a>>,
    pub(super) pairs: Vec<SlowPair<'a>>,
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The pair in row `from` and column `to` of a map, with its ratio.
pub(super) struct MeasuredPair<'a> {
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    pub(super) value: ExtendedReal,
}

/// Returns the pairs that were measured, slowest first.
pub(super) fn measured(heat: &HeatMap) -> Vec<MeasuredPair<'_>> {
    let mut pairs: Vec<MeasuredPair<'_>> = Vec::new();
    for (from, row) in heat.ranks.iter().zip(&heat.rows) {
        let cells = heat.ranks.iter().zip(row);
        pairs.extend(
            cells.filter_map(|(to, cell)| Some(MeasuredPair { from, to, value: (*cell)? })),
        );
    }
    pairs.sort_by(|a, b| b.value.get().total_cmp(&a.value.get()));
    pairs
}

/// Returns whether no measured pair is [`PAIR_FACTOR`] slower than another, so that nothing can
/// stand out.
pub(super) fn is_even(pairs: &[MeasuredPair<'_>]) -> bool {
    match (pairs.first(), pairs.last()) {
        (Some(slowest), Some(fastest)) => slowest.value.get() <= fastest.value.get() * PAIR_FACTOR,
        _ => true,
    }
}

/// Returns the hosts and pairs of `heat` that stand out; nothing does when most pairs lose what
/// they send.
pub(super) fn standouts(heat: &HeatMap) -> Standouts<'_> {
    let n = heat.ranks.len();
    let rows = heat.rows.iter().take(n).enumerate();
    let row = |(from, row): (usize, &'_ Vec<Option<ExtendedReal>>)| -> Vec<(usize, usize, f64)> {
        row.iter()
            .take(n)
            .enumerate()
            .filter_map(|(to, cell)| Some((from, to, (*cell)?.get())))
            .collect()
    };
    let cells: Vec<(usize, usize, f64)> = rows.flat_map(row).collect();
    let medians = |side: fn(&(usize, usize, f64)) -> usize| -> Vec<Option<f64>> {
        let mut lists = vec![Vec::new(); n];
        for cell in &cells {
            if let Some(list) = lists.get_mut(side(cell)) {
                list.push(cell.2);
            }
        }
        lists.into_iter().map(|list| if list.len() < 3 { None } else { median(list) }).collect()
    };
    let (rows, columns) = (medians(|cell| cell.0), medians(|cell| cell.1));
    let Some(all) = median(cells.iter().map(|cell| cell.2).collect()).filter(|all| all.is_finite())
    else {
        return Standouts { receivers: Vec::new(), senders: Vec::new(), pairs: Vec::new() };
    };
    Standouts {
        receivers: hosts(heat, &columns, all),
        senders: hosts(heat, &rows, all),
        pairs: pairs(heat, &cells, (&rows, &columns), all),
    }
}

fn hosts<'a>(heat: &'a HeatMap, medians: &[Option<f64>], all: f64) -> Vec<SlowHost<'a>> {
    let named = heat
        .ranks
        .iter()
        .zip(medians)
        .filter_map(|(name, median)| Some(SlowHost { name, median: (*median)? }));
    let mut found: Vec<SlowHost<'a>> =
        named.filter(|host| host.median > all * HOST_FACTOR).collect();
    found.sort_by(|a, b| b.median.total_cmp(&a.median));
    found.truncate(NAMED_MAX);
    found
}

type Medians<'m> = (&'m [Option<f64>], &'m [Option<f64>]);

fn pairs<'a>(
    heat: &'a HeatMap,
    cells: &[(usize, usize, f64)],
    (rows, columns): Medians<'_>,
    all: f64,
) -> Vec<SlowPair<'a>> {
    let pair = |&(from, to, value): &(usize, usize, f64)| {
        let (row, column) = (rows.get(from)?.unwrap_or(all), columns.get(to)?.unwrap_or(all));
        let expected = row * column / all;
        let stands_out = value > expected.max(all) * PAIR_FACTOR;
        stands_out.then_some(SlowPair {
            from: heat.ranks.get(from)?,
            to: heat.ranks.get(to)?,
            value,
            expected,
        })
    };
    let mut found: Vec<SlowPair<'a>> = cells.iter().filter_map(pair).collect();
    found.sort_by(|a, b| (b.value / b.expected).total_cmp(&(a.value / a.expected)));
    found.truncate(NAMED_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Labels;

    fn map(n: usize, value: impl Fn(usize, usize) -> f64) -> HeatMap {
        let cell = |from: usize, to: usize| {
            (from != to).then(|| ExtendedReal::new(value(from, to))).flatten()
        };
        HeatMap {
            labels: Labels::new(),
            ranks: (0..n).map(|i| format!("h{i}")).collect(),
            rows: (0..n).map(|from| (0..n).map(|to| cell(from, to)).collect()).collect(),
        }
    }

    #[test]
    fn standouts__a_hot_port_is_one_receiver_and_a_bad_cable_one_pair() {
        let heat = map(8, |from, to| match (from, to) {
            (_, 0) => 400.0,
            (5, 2) => 4.0,
            _ => 1.0,
        });
        let found = standouts(&heat);
        let receivers: Vec<&str> = found.receivers.iter().map(|host| host.name).collect();
        let pairs: Vec<(&str, &str)> =
            found.pairs.iter().map(|pair| (pair.from, pair.to)).collect();
        assert_eq!((receivers, found.senders.len(), pairs), (vec!["h0"], 0, vec![("h5", "h2")]));
    }

    #[test]
    fn standouts__hosts_with_one_measured_pair_leave_the_blame_to_the_pair() {
        let mut ring = map(8, |from, _| if from == 3 { 90.0 } else { 1.0 });
        for (from, row) in ring.rows.iter_mut().enumerate() {
            row.iter_mut()
                .enumerate()
                .filter(|(to, _)| *to != (from + 1) % 8)
                .for_each(|(_, cell)| *cell = None);
        }
        let found = standouts(&ring);
        let pairs: Vec<(&str, &str, f64)> =
            found.pairs.iter().map(|pair| (pair.from, pair.to, pair.value)).collect();
        assert_eq!(
            (found.senders.len(), found.receivers.len(), pairs),
            (0, 0, vec![("h3", "h4", 90.0)])
        );
    }

    #[test]
    fn measured__is_sorted_and_even_only_without_a_slow_pair() {
        let heat = map(3, |from, to| if (from, to) == (2, 1) { 173.0 } else { 0.63 });
        let pairs = measured(&heat);
        assert_eq!((pairs.len(), pairs[0].from, pairs[0].to), (6, "h2", "h1"));
        assert!(!is_even(&pairs) && is_even(&pairs[1..]) && is_even(&[]));
        assert!(!is_even(&measured(&map(3, |from, _| if from == 0 {
            f64::INFINITY
        } else {
            1.0
        }))));
    }

    #[test]
    fn standouts__nothing_in_an_even_empty_or_ragged_matrix() {
        for heat in [map(8, |_, _| 3.0), map(1, |_, _| 1.0), map(0, |_, _| 1.0)] {
            let found = standouts(&heat);
            assert!(
                found.receivers.is_empty() && found.senders.is_empty() && found.pairs.is_empty()
            );
        }
        let mut ragged = map(3, |_, _| 1.0);
        ragged.rows.push(vec![Some(ExtendedReal::INFINITE); 9]);
        assert!(standouts(&ragged).pairs.is_empty());
        assert!(standouts(&map(4, |_, _| f64::INFINITY)).pairs.is_empty());
    }
}
