//! Names the figures of the congestion test. Saved reports hold these names, and `clearway diff`
//! finds figures by them: none changes.

/// Latency of a victim, in `us`; labels queue, victim, congestor (absent when isolated), phase,
/// quantile.
pub(crate) const LATENCY: &str = "victim_latency";
/// Congestion impact factor, in `x`: congested over isolated; labels queue, victim, congestor,
/// quantile.
pub(crate) const CIF: &str = "congestion_impact_factor";
/// Messages of a victim that never came back, in `%`; labels as for latency, without quantile.
pub(crate) const LOSS: &str = "victim_loss";
/// What the congestor moved while the victim was measured, in `%` of the ideal; labels queue,
/// victim, congestor.
pub(crate) const GOODPUT_SHARE: &str = "congestor_goodput_share";
/// One-way p99 of a victim, in `us`; labels as for latency, without quantile.
pub(crate) const ONEWAY_P99: &str = "victim_oneway_p99_us";
/// What a class got of a busy port, as a fraction; labels queue, class.
pub(crate) const CLASS_SHARE: &str = "class_share";
/// What the class is configured to get of it; the same labels.
pub(crate) const CLASS_SHARE_CONFIGURED: &str = "class_share_configured";
/// Runs with a verdict for each; labels queue, victim, congestor (`none` in A = A runs), outcome.
pub(crate) const SINGLE_RUNS: &str = "single_runs";
/// A = A runs that were CONGESTED, in `%` of those with a verdict; labels queue, victim, congestor
/// `none`.
pub(crate) const FALSE_ALARMS: &str = "false_alarms";
/// Loaded runs that were CONGESTED, in `%` of all; labels queue, victim, congestor.
pub(crate) const FOUND: &str = "congestion_found";
/// The label of [`SINGLE_RUNS`]: `contained`, `congested` or `invalid`.
pub(crate) const OUTCOME: &str = "outcome";
/// What a program of the user's gave, in `ms` where it is its time; labels queue, victim,
/// congestor, phase.
pub(crate) const PROGRAM: &str = "program_figure";
/// How many times worse a program does under load, in `x`; labels queue, victim,
/// congestor.
pub(crate) const SLOWDOWN: &str = "program_slowdown";
