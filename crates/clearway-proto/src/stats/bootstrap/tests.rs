//! What intervals promise: they contain what they should about as often as they say, and infinity
//! stays infinity.

use super::*;
use crate::stats::QuantileValue;
use proptest::prelude::*;

const KEY: RandomKey = RandomKey::new(2026);

/// Returns a latency of a made-up network: 20 us, a long tail, and a level that all samples of one
/// block share.
fn sample(stream: &mut RandomStream, level: u64) -> u64 {
    let tail = 1u64 << stream.below(12).min(stream.below(12));
    20_000 + level + tail * (1 + stream.below(16))
}

fn blocks(key: RandomKey, count: u64, each: u64) -> Vec<Histogram> {
    let mut stream = key.stream();
    let block = |_| {
        let level = stream.below(4_000);
        (0..each).map(|_| sample(&mut stream, level)).collect()
    };
    (0..count).map(block).collect()
}

fn one(blocks: &[Histogram], quantile: Quantile, key: RandomKey) -> Resampled {
    let [made] = Resampled::quantiles(blocks, [quantile], key).expect("samples");
    made
}

fn flat(value: u64, count: usize) -> Vec<Histogram> {
    vec![Histogram::from_iter([value; 10]); count]
}

/// Checks how many of `runs` samples give an interval that covers the truth: 95 % when exact;
/// percentile intervals of tail quantiles run a little short.
fn covers(runs: u64) {
    let truth = one(&blocks(KEY.purpose("truth"), 20_000, 20), Quantile::P99, KEY).value;
    let covered = (0..runs).filter(|run| {
        let estimate = one(&blocks(KEY.node(*run), 60, 20), Quantile::P99, KEY).estimate();
        (estimate.low..=estimate.high).contains(&truth)
    });
    let covered = covered.count() as u64;
    let share = covered * 100 / runs;
    assert!((85..=99).contains(&share), "{covered} of {runs} intervals cover {truth}");
}

#[test]
fn interval__of_the_p99_covers_the_truth_about_as_often_as_it_says() {
    covers(20);
}

#[test]
fn interval__of_the_p99_covers_the_truth_in_many_runs() {
    if cfg!(debug_assertions) {
        return std::eprintln!("skipped: takes seconds; `cargo xtask swarm` runs it");
    }
    covers(400);
}

#[test]
fn interval__of_the_cif_of_two_samples_of_one_network_contains_one() {
    let runs = 40;
    let contains = (0..runs).filter(|run| {
        let [a, b] = ["a", "b"].map(|side| {
            one(&blocks(KEY.node(*run).purpose(side), 40, 50), Quantile::P99, KEY.purpose(side))
        });
        let cif = a.ratio(&b).expect("a finite base").estimate();
        cif.low <= 1.0 && 1.0 <= cif.high
    });
    let contains = contains.count();
    assert!(contains >= 34, "{contains} of {runs}");
}

#[test]
fn interval__is_wider_when_blocks_differ_than_their_samples_suggest() {
    let correlated = blocks(KEY, 30, 100);
    let mut stream = KEY.stream();
    let mut independent = vec![Histogram::new(); 30];
    for (bucket_value, count) in correlated
        .iter()
        .flat_map(|block| block.survival(usize::MAX).into_iter().zip(block.occupied()))
    {
        (0..count.1)
            .for_each(|_| independent[stream.below(30) as usize].record(bucket_value.value));
    }
    let width = |blocks: &[Histogram]| {
        let estimate = one(blocks, Quantile::P50, KEY).estimate();
        estimate.high - estimate.low
    };
    assert!(width(&correlated) > 2.0 * width(&independent));
}

#[test]
fn interval__of_few_blocks_claims_nothing() {
    let five = one(&flat(10, 5), Quantile::P50, KEY).estimate();
    assert_eq!(five, Estimate::unbounded(10.0, 50));
    let six = one(&flat(10, 6), Quantile::P50, KEY).estimate();
    assert_eq!(six, Estimate::new(10.0, [10.0, 10.0], 60));
}

#[test]
fn quantiles__empty_blocks_are_left_out_and_nothing_gives_nothing() {
    assert!(Resampled::quantiles(&[], [Quantile::P50], KEY).is_none());
    assert!(Resampled::quantiles(&[Histogram::new()], [Quantile::P50], KEY).is_none());
    let mut blocks = flat(10, 6);
    blocks.push(Histogram::new());
    assert_eq!(one(&blocks, Quantile::P50, KEY), one(&flat(10, 6), Quantile::P50, KEY));
}

#[test]
fn loss__makes_the_quantile_the_ratio_and_the_median_infinite() {
    let mut lossy = flat(10, 10);
    lossy.iter_mut().for_each(|block| block.record_infinite(1));
    let [p50, p99] =
        Resampled::quantiles(&lossy, [Quantile::P50, Quantile::P99], KEY).expect("samples");
    assert_eq!(p50.estimate().value, 10.0);
    assert_eq!(p99.estimate(), Estimate::new(f64::INFINITY, [f64::INFINITY; 2], 110));
    let base = one(&flat(10, 10), Quantile::P99, KEY.node(1));
    let cif = p99.ratio(&base).expect("a finite base");
    assert_eq!(cif.estimate().low, f64::INFINITY);
    assert_eq!(base.ratio(&p99), None, "no base case");
    let median = Resampled::median(&[cif.clone(), cif.clone(), base], KEY).expect("draws");
    assert_eq!((median.estimate().value, median.estimate().low), (f64::INFINITY, 10.0));
}

#[test]
fn loss__of_some_blocks_leaves_the_upper_end_open() {
    let mut lossy = flat(10, 20);
    lossy[0].record_infinite(3);
    let estimate = one(&lossy, Quantile::P99, KEY).estimate();
    assert_eq!((estimate.low, estimate.high), (10.0, f64::INFINITY));
}

#[test]
fn median__lies_between_the_draws_and_spans_their_spread() {
    let draws: Vec<Resampled> =
        (1..=9).map(|n| one(&flat(n * 10, 8), Quantile::P50, KEY.node(n))).collect();
    let estimate = Resampled::median(&draws, KEY).expect("draws").estimate();
    assert_eq!((estimate.value, estimate.samples), (50.0, 720));
    assert!(estimate.low <= 30.0 && estimate.high >= 70.0, "{estimate:?}");
    assert!(Resampled::median(&[], KEY).is_none());
}

#[test]
fn median__of_one_draw_is_the_interval_of_its_blocks() {
    let draw = one(&blocks(KEY, 40, 50), Quantile::P99, KEY);
    let median = Resampled::median(core::slice::from_ref(&draw), KEY).expect("a draw").estimate();
    let alone = draw.estimate();
    assert_eq!(median.value, alone.value);
    // Replicates are drawn a second time: the ends move by little.
    for (of_median, of_draw) in [(median.low, alone.low), (median.high, alone.high)] {
        assert!((of_median / of_draw - 1.0).abs() < 0.1, "{median:?} {alone:?}");
    }
}

#[test]
fn estimate__same_key_same_figures() {
    let blocks = blocks(KEY, 20, 20);
    assert_eq!(one(&blocks, Quantile::P99, KEY), one(&blocks, Quantile::P99, KEY));
    assert_ne!(
        one(&blocks, Quantile::P99, KEY).replicates,
        one(&blocks, Quantile::P99, KEY.node(1)).replicates
    );
}

#[test]
fn estimate__figures_are_frozen() {
    // Reports quote intervals with a seed; a change here changes every interval ever quoted.
    let estimate = one(&blocks(KEY, 20, 20), Quantile::P99, KEY).estimate();
    assert_eq!((estimate.value, estimate.low, estimate.high, estimate.samples), FROZEN);
}

const FROZEN: (f64, f64, f64, u64) = (46_079.0, 33_535.0, 49_151.0, 400);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn value__is_the_quantile_of_the_merged_blocks(
        sets in prop::collection::vec((prop::collection::vec(any::<u64>(), 0..20), 0u64..3), 1..12)
    ) {
        let blocks: Vec<Histogram> = sets.into_iter().map(|(values, lost)| {
            let mut block: Histogram = values.into_iter().collect();
            block.record_infinite(lost);
            block
        }).collect();
        let merged = Histogram::merged(&blocks);
        let made = Resampled::quantiles(&blocks, [Quantile::P50, Quantile::P99], KEY);
        prop_assert_eq!(made.is_none(), merged.is_empty());
        for (resampled, quantile) in made.into_iter().flatten().zip([Quantile::P50, Quantile::P99]) {
            prop_assert_eq!(Some(resampled.value), merged.quantile(quantile).as_f64());
            prop_assert!(resampled.replicates.iter().all(|value| !value.is_nan()));
            prop_assert_ne!(merged.quantile(quantile), QuantileValue::Empty);
            let _ = resampled.estimate();
        }
    }
}
