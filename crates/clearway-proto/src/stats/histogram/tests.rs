//! What histograms promise: error bound, order-free merging, and a refusal of everything that was
//! never recorded.

use super::*;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use proptest::prelude::*;

/// Returns values over the whole range, with an even chance for each power of two.
fn values() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec((any::<u64>(), 0u32..64).prop_map(|(v, shift)| v >> shift), 1..300)
}

fn histogram() -> impl Strategy<Value = Histogram> {
    (values(), 0u64..20).prop_map(|(values, lost)| {
        let mut histogram: Histogram = values.into_iter().collect();
        histogram.record_infinite(lost);
        histogram
    })
}

fn any_quantile() -> impl Strategy<Value = Quantile> {
    (0u32..=1_000_000)
        .prop_map(|n| format!("p{}.{:04}", n / 10_000, n % 10_000).parse().expect("a quantile"))
}

#[test]
fn buckets__tile_the_whole_range_without_gap_or_overlap() {
    let mut next = Some(0u64);
    for bucket in 0..BUCKETS {
        let (low, high) = edges(bucket);
        assert_eq!(Some(low), next, "bucket {bucket}");
        assert_eq!((bucket_of(low), bucket_of(high)), (bucket, bucket));
        assert!((high - low) as f64 <= low as f64 / 128.0, "bucket {bucket} is too wide");
        next = high.checked_add(1);
    }
    assert_eq!(next, None, "the last bucket ends with the last value");
}

#[test]
fn count_up_to__counts_what_is_at_most_that_and_the_sum_is_exact() {
    let mut histogram: Histogram = [0, 7, 7, 255, 100_000, u64::MAX].into_iter().collect();
    histogram.record_infinite(2);
    let counts = [0, 6, 7, 254, 255, 99_000, 100_000, u64::MAX - 1];
    assert_eq!(counts.map(|bound| histogram.count_up_to(bound)), [1, 1, 3, 3, 4, 4, 5, 6]);
    assert_eq!(histogram.sum(), 100_269 + u128::from(u64::MAX));
    assert_eq!((Histogram::new().sum(), Histogram::new().count_up_to(u64::MAX)), (0, 0));
}

#[test]
fn quantile__of_nothing_is_empty_and_of_losses_only_is_infinite() {
    let mut histogram = Histogram::new();
    assert_eq!(histogram.quantile(Quantile::P50), QuantileValue::Empty);
    assert!(histogram.is_empty());
    histogram.record_infinite(3);
    assert_eq!(histogram.quantile(Quantile::P50), QuantileValue::Infinite);
    assert_eq!((histogram.count(), histogram.min(), histogram.mean()), (3, None, None));
}

#[test]
fn quantile__losses_push_the_finite_ranks_down() {
    let mut histogram: Histogram = (0..98).map(|_| 10).collect();
    histogram.record_infinite(1);
    assert_eq!(histogram.quantile(Quantile::P99), QuantileValue::Infinite, "rank 99 of 99");
    histogram.record(10);
    assert_eq!(histogram.quantile(Quantile::P99), QuantileValue::Finite(10), "rank 99 of 100");
}

#[test]
fn mean__is_exact_where_buckets_are_not() {
    let mut histogram = Histogram::new();
    histogram.record_n(1_000_003, 2);
    histogram.record(1_000_000);
    histogram.record_n(77, 0);
    assert_eq!(histogram.mean(), Some(1_000_002.0));
    assert_eq!(
        (histogram.min(), histogram.max(), histogram.count()),
        (Some(1_000_000), Some(1_000_003), 3)
    );
}

#[test]
fn counts__saturate_instead_of_overflowing() {
    let mut histogram = Histogram::new();
    histogram.record_n(u64::MAX, u64::MAX);
    histogram.record_n(u64::MAX, u64::MAX);
    histogram.record_n(1, u64::MAX);
    histogram.record_infinite(u64::MAX);
    histogram.record_infinite(1);
    assert_eq!(histogram.count(), u64::MAX);
    assert_eq!(histogram.quantile(Quantile::P50), QuantileValue::Finite(1));
    let text = serde_json::to_string(&histogram).expect("written");
    assert_eq!(serde_json::from_str::<Histogram>(&text).expect("read back"), histogram);
}

#[test]
fn serde__a_nearly_empty_histogram_is_small() {
    let text = serde_json::to_string(&Histogram::from_iter([28_000])).expect("written");
    assert_eq!(text, r#"{"buckets":[[1114,1]],"infinite":0,"extent":[28000,28000,0,28000]}"#);
}

#[test]
fn serde__refuses_what_was_never_recorded() {
    let cases = [
        (r#"{"buckets":[[2,1],[1,1]],"infinite":0,"extent":[1,2,0,3]}"#, "must ascend"),
        (r#"{"buckets":[[1,1],[1,1]],"infinite":0,"extent":[1,1,0,2]}"#, "must ascend"),
        (r#"{"buckets":[[1,0]],"infinite":0,"extent":[1,1,0,0]}"#, "must ascend"),
        (r#"{"buckets":[[7424,1]],"infinite":0,"extent":[1,1,0,1]}"#, "below 7424"),
        (r#"{"buckets":[[1,1]],"infinite":0,"extent":null}"#, "contradicts"),
        (r#"{"buckets":[],"infinite":0,"extent":[1,1,0,1]}"#, "contradicts"),
        (r#"{"buckets":[[1,1],[9,1]],"infinite":0,"extent":[1,8,0,10]}"#, "contradicts"),
        (r#"{"buckets":[[1,1],[9,1]],"infinite":0,"extent":[1,9,0,11]}"#, "contradicts"),
        (r#"{"buckets":[[1,1]],"infinite":-1,"extent":[1,1,0,1]}"#, "invalid value"),
    ];
    for (text, expected) in cases {
        let sentence = format!("{}", serde_json::from_str::<Histogram>(text).expect_err(text));
        assert!(sentence.contains(expected), "{text}: {sentence}");
    }
}

#[test]
fn serde__a_long_hostile_list_is_refused_at_its_first_repeat() {
    let mut text = String::from(r#"{"buckets":["#);
    (0..100_000u32).for_each(|i| text.push_str(&format!("[{},1],", i % 7_000)));
    text.push_str(r#"[0,1]],"infinite":0,"extent":null}"#);
    let error = serde_json::from_str::<Histogram>(&text).expect_err("refused");
    assert!(error.column() < 80_000, "stopped at column {}", error.column());
}

#[test]
fn survival__first_and_last_bucket_survive_thinning() {
    let mut histogram: Histogram = (0..1000u64).map(|i| i * i).collect();
    histogram.record_infinite(1000);
    let curve = histogram.survival(10);
    assert!((2..=10).contains(&curve.len()), "{}", curve.len());
    assert_eq!(curve[0], SurvivalPoint { value: 0, fraction: 1999.0 / 2000.0 });
    assert_eq!(curve.last(), Some(&SurvivalPoint { value: 998_001, fraction: 0.5 }));
    assert!(curve.is_sorted_by(|a, b| a.value < b.value && a.fraction > b.fraction));
    assert_eq!(histogram.survival(0), vec![]);
    assert_eq!(Histogram::new().survival(5), vec![]);
}

proptest! {
    #[test]
    fn quantile__is_within_the_error_bound_of_the_sorted_samples(
        mut values in values(), lost in 0usize..20, quantile in any_quantile()
    ) {
        let mut histogram: Histogram = values.iter().copied().collect();
        histogram.record_infinite(lost as u64);
        values.sort_unstable();
        let rank = quantile.rank((values.len() + lost) as u64).expect("samples") as usize;
        match (values.get(rank - 1), histogram.quantile(quantile)) {
            (None, reading) => prop_assert_eq!(reading, QuantileValue::Infinite),
            (Some(exact), QuantileValue::Finite(reported)) => {
                prop_assert!(*exact <= reported);
                prop_assert!(u128::from(reported - exact) * 128 <= u128::from(*exact));
            }
            (Some(_), reading) => prop_assert!(false, "{reading:?}"),
        }
    }

    #[test]
    fn merge__order_and_grouping_do_not_matter(a in histogram(), b in histogram(), c in histogram()) {
        let left = Histogram::merged([&Histogram::merged([&a, &b]), &c]);
        let right = Histogram::merged([&a, &Histogram::merged([&c, &b])]);
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(left.count(), a.count() + b.count() + c.count());
    }

    #[test]
    fn merge__equals_recording_everything_in_one(a in values(), b in values()) {
        let merged = Histogram::merged([&a.iter().copied().collect(), &b.iter().copied().collect()]);
        prop_assert_eq!(merged, a.into_iter().chain(b).collect::<Histogram>());
    }

    #[test]
    fn serde__reads_back_as_itself(histogram in histogram()) {
        let text = serde_json::to_string(&histogram).expect("written");
        prop_assert_eq!(serde_json::from_str::<Histogram>(&text).expect("read"), histogram);
    }

    #[test]
    fn serde__any_bytes_give_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = serde_json::from_slice::<Histogram>(&bytes);
    }

    #[test]
    fn serde__any_pairs_give_a_usable_histogram_or_an_error(
        pairs in prop::collection::vec((0u16..7500, any::<u64>()), 0..6), extent in any::<Option<(u64, u64, u64, u64)>>()
    ) {
        let text = serde_json::to_string(&(pairs, extent)).expect("written");
        let (pairs, extent): (serde_json::Value, serde_json::Value) = serde_json::from_str(&text).expect("read");
        let whole = serde_json::json!({"buckets": pairs, "infinite": u64::MAX, "extent": extent});
        if let Ok(histogram) = serde_json::from_value::<Histogram>(whole) {
            let _ = (histogram.quantile(Quantile::P99), histogram.mean(), histogram.survival(64));
        }
    }
}
