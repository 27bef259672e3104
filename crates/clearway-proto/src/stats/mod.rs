//! What is said about samples: histograms, quantiles, 95 % intervals, fairness; every answer
//! bounded, none of them NaN.
//!
//! # Model
//! Samples are recorded where they are taken, into one [`Histogram`] for each *block*: a slice of
//! time (100 ms, say) of all pairs that share a queue. Samples of one queue episode resemble each
//! other, so blocks and not samples are resampled for intervals ([`Resampled`]). A lost message is
//! a sample of infinite latency: it moves quantiles, it cannot be forgotten.
//!
//! ```
//! use clearway_proto::base::RandomKey;
//! use clearway_proto::stats::{Histogram, Quantile, Resampled};
//! let block = |shift: u64| (0..100u64).map(move |i| 20_000 + shift + i * 10).collect::<Histogram>();
//! let isolated: Vec<Histogram> = (0..50).map(|i| block(i)).collect();
//! let congested: Vec<Histogram> = (0..50).map(|i| block(40_000 + i)).collect();
//! let key = RandomKey::new(19);
//! let [base] = Resampled::quantiles(&isolated, [Quantile::P99], key.purpose("isolated")).unwrap();
//! let [load] = Resampled::quantiles(&congested, [Quantile::P99], key.purpose("congested")).unwrap();
//! let cif = load.ratio(&base).unwrap().estimate();
//! assert!(cif.low > 2.8 && cif.high < 3.0);
//! ```
//!
//! # Source
//! Statistical practice: Hoefler and Belli, "Scientific benchmarking of parallel computing systems"
//! (SC15): intervals, quantiles chosen on purpose, the base case with each ratio. Each module names
//! its own.
//!
//! # Not here
//! Units and names of figures, JSON: the report of the binary.

mod bootstrap;
mod estimate;
mod fairness;
mod histogram;
mod proportion;
mod quantile;
mod sign;

pub use bootstrap::Resampled;
pub use estimate::Estimate;
pub use fairness::jain;
pub use histogram::{Histogram, HistogramError, SurvivalPoint};
pub use quantile::{Quantile, QuantileError, QuantileValue};
pub use sign::MEDIAN_MAX;
