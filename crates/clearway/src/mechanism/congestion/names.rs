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
/// What a program of the user's gave, in `ms` where it is its time; labels queue, victim,
/// congestor, phase.
pub(crate) const PROGRAM: &str = "program_figure";
/// How many times worse a program does beside the congestor, in `x`; labels queue, victim,
/// congestor.
pub(crate) const SLOWDOWN: &str = "program_slowdown";
