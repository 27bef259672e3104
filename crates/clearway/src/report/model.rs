//! What a report holds: the schema `clearway-report/1`, field by field.
//!
//! # Invariants
//! I1. Every list may be missing in what is read, and unknown fields are kept as they are: a newer
//!     minor version stays readable.
//! I2. A number is finite or infinite, never NaN; infinite is written `"inf"` because JSON has no
//!     number for it.
//!
//! # Not here
//! Files (`store`), drawing (`terminal`, `html`).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clearway_proto::stats::{Estimate, Histogram, Quantile};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use culprit::Culprit;
pub(crate) use fabric::{FabricLink, PhaseLoad, PortLoad, ReportFabric, Switch, SwitchArrangement};
pub(crate) use part::ReportPart;
pub(crate) use real::{ExtendedReal, rounded, write_rounded};
pub(crate) use slow::{LongestWait, SlowMessage, Slowest};

mod culprit;
mod fabric;
mod part;
mod real;
mod slow;

/// The schema that is written. Readers accept the same number with any minor version
/// (`clearway-report/1.4`).
pub(crate) const SCHEMA: &str = "clearway-report/1";

/// Points of one survival curve: more than a page can show side by side.
const CURVE_POINTS: usize = 400;

/// The unit of plain numbers, as in UCUM.
const ONE: &str = "1";

/// What tells figures of one name apart.
pub(crate) type Labels = BTreeMap<String, String>;

/// Keys of labels.
pub(crate) mod labels {
    /// Where it was measured; only in a run at several places.
    pub(crate) const PLACE: &str = "place";
    /// The queue discipline of the network under test: `fifo`, `strict`.
    pub(crate) const QUEUE: &str = "queue";
    /// The pattern whose latency is measured.
    pub(crate) const VICTIM: &str = "victim";
    /// The pattern that loads the network.
    pub(crate) const CONGESTOR: &str = "congestor";
    /// The congestor's offered load in percent; only where a run has several.
    pub(crate) const INTENSITY: &str = "intensity";
    /// When the congestor sends: `10ms/90ms`, `steady`; only where a run has several.
    pub(crate) const BURSTS: &str = "bursts";
    /// Hosts of a congestor group, where groups grow.
    pub(crate) const MEMBERS: &str = "members";
    /// Value of [`CONGESTOR`]: nobody, as in a null control.
    pub(crate) const NOBODY: &str = "none";
    /// [`ISOLATED`] or [`CONGESTED`].
    pub(crate) const PHASE: &str = "phase";
    /// `p50`, `p99`, `p99.9`.
    pub(crate) const QUANTILE: &str = "quantile";
    /// Value of [`PHASE`]: the victim alone.
    pub(crate) const ISOLATED: &str = "isolated";
    /// Value of [`PHASE`]: the victim under load.
    pub(crate) const CONGESTED: &str = "congested";
}

/// One run: everything that was measured, and everything needed to measure it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    /// The program that wrote the report.
    pub(crate) program: ReportProgram,
    /// When the run ended: RFC 3339, UTC.
    pub(crate) created: String,
    /// The command as it was typed, program first.
    pub(crate) command: Vec<String>,
    /// Where it ran: `lab`, `sim`, `cluster`; `sim,lab` when several.
    pub(crate) place: String,
    /// What was run.
    pub(crate) scenario: ReportScenario,
    /// The seed of every random choice.
    pub(crate) seed: u64,
    /// The judgement, when the mechanism gives one.
    #[serde(default)]
    pub(crate) verdict: Option<Verdict>,
    /// Every figure of the run.
    #[serde(default)]
    pub(crate) figures: Vec<Figure>,
    /// Every parameter in force.
    #[serde(default)]
    pub(crate) parameters: Vec<Parameter>,
    /// The machine.
    #[serde(default)]
    pub(crate) host: ReportHost,
    /// What a reader must know before believing the figures.
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
    /// Chart: how many samples are slower than a value.
    #[serde(default)]
    pub(crate) survival: Vec<SurvivalCurve>,
    /// Chart: what happened when.
    #[serde(default)]
    pub(crate) timelines: Vec<Timeline>,
    /// Chart: which pair of hosts suffers.
    #[serde(default)]
    pub(crate) heat: Vec<HeatMap>,
    /// The class table.
    #[serde(default)]
    pub(crate) shares: Vec<ClassShare>,
    /// Chart: what the choice of hosts alone changes.
    #[serde(default)]
    pub(crate) draws: Vec<Draw>,
    /// The same figures from several places, side by side.
    #[serde(default, rename = "beside", skip_serializing_if = "Vec::is_empty")]
    pub(crate) place_comparisons: Vec<PlaceComparison>,
    /// The simulated network; absent where the network was real.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fabric: Option<ReportFabric>,
    /// The slowest messages of the worst cell; none where nothing was simulated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) slowest: Vec<Slowest>,
    /// Where victims of congested cells wait, and for whom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) culprits: Vec<Culprit>,
    /// What each simulated phase did, as hexadecimal digests, from phase 1. Equal for equal phases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) digests: Vec<String>,
    /// Everything else by its name: what one mechanism alone understands, and fields of newer
    /// versions.
    #[serde(flatten)]
    pub(crate) parts: BTreeMap<String, Value>,
}

/// One figure at two places, and how far they are apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlaceComparison {
    /// The figure's name.
    pub(crate) name: String,
    /// The figure's labels, without the place.
    #[serde(default)]
    pub(crate) labels: Labels,
    pub(crate) unit: String,
    /// Place and value, two of them.
    pub(crate) values: Vec<(String, ExtendedReal)>,
    /// The first value over the second; absent where that is nothing (both zero).
    pub(crate) ratio: Option<ExtendedReal>,
    /// What the ratio, or one over it, may be at most.
    pub(crate) limit: ExtendedReal,
    pub(crate) distance: FigureDistance,
}

/// How far two values of one figure are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FigureDistance {
    /// At most the limit.
    Within,
    /// More.
    Beyond,
}

impl FigureDistance {
    /// Returns the word, as it stands in JSON.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Beyond => "beyond",
        }
    }
}

/// The program that wrote a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReportProgram {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The commit it was built from, when the build knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
}

/// A scenario as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReportScenario {
    pub(crate) name: String,
    /// The whole file.
    pub(crate) text: String,
}

/// What a run says about the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum RunOutcome {
    /// The run does not support a judgement.
    Invalid,
    /// Victims are protected, and not by throttling the others.
    Contained,
    /// Victims suffer.
    Congested,
}

impl RunOutcome {
    /// Returns the word, as it stands in JSON.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Invalid => "INVALID",
            Self::Contained => "CONTAINED",
            Self::Congested => "CONGESTED",
        }
    }
}

/// The judgement over a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) outcome: RunOutcome,
    /// The one sentence that a hurried reader takes along.
    pub(crate) sentence: String,
    /// Why, one clause each.
    #[serde(default)]
    pub(crate) reasons: Vec<String>,
    /// The same question for each part of the run, such as each queue.
    #[serde(default)]
    pub(crate) parts: Vec<PartVerdict>,
    /// The limits that were applied.
    #[serde(default)]
    pub(crate) rules: Vec<VerdictRule>,
}

/// The judgement over the part of a run that `labels` names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartVerdict {
    pub(crate) labels: Labels,
    pub(crate) outcome: RunOutcome,
    pub(crate) sentence: String,
}

/// One limit that decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct VerdictRule {
    pub(crate) name: String,
    pub(crate) limit: ExtendedReal,
    pub(crate) unit: String,
    /// What is compared with the limit.
    pub(crate) sentence: String,
}

/// One number with its uncertainty and its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) labels: Labels,
    pub(crate) value: ExtendedReal,
    /// `us`, `%`, `x`; `1` for fractions and counts.
    pub(crate) unit: String,
    /// Lower end of the 95 % interval; absent for what was counted, not estimated.
    #[serde(default)]
    pub(crate) low: Option<ExtendedReal>,
    /// Upper end of the 95 % interval.
    #[serde(default)]
    pub(crate) high: Option<ExtendedReal>,
    /// Samples it stands on.
    #[serde(default)]
    pub(crate) samples: u64,
    /// How it was obtained.
    #[serde(default)]
    pub(crate) source: String,
}

impl Figure {
    /// Creates a figure with the interval of `estimate`, whose numbers are multiplied by `scale`
    /// (nanoseconds to `us`: 1e-3).
    pub(crate) fn estimate(
        name: &str,
        unit: &str,
        estimate: &Estimate,
        scale: f64,
        source: &str,
    ) -> Self {
        let [value, low, high] =
            [estimate.value, estimate.low, estimate.high].map(|n| ExtendedReal::new(n * scale));
        Self {
            low,
            high,
            ..Self::counted(
                name,
                unit,
                value.unwrap_or(ExtendedReal::INFINITE),
                estimate.samples,
                source,
            )
        }
    }

    /// Creates a figure without an interval. What has no unit, a fraction or a count, has the unit
    /// [`ONE`].
    pub(crate) fn counted(
        name: &str,
        unit: &str,
        value: ExtendedReal,
        samples: u64,
        source: &str,
    ) -> Self {
        let unit = if unit.is_empty() { ONE } else { unit };
        let [name, unit, source] = [name, unit, source].map(str::to_owned);
        Self { name, labels: Labels::new(), value, unit, low: None, high: None, samples, source }
    }

    /// Returns the same figure with one more label.
    pub(crate) fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.labels.insert(key.to_owned(), value.into());
        self
    }

    /// Returns whether at least ten samples lie beyond the quantile that the figure is labelled
    /// with; true without such a label.
    pub(crate) fn is_supported(&self) -> bool {
        let quantile =
            self.label(labels::QUANTILE).and_then(|label| label.parse::<Quantile>().ok());
        quantile.is_none_or(|quantile| quantile.is_supported_by(self.samples))
    }

    /// Returns the unit as people read it behind a number; empty for plain numbers.
    pub(crate) fn shown_unit(&self) -> &str {
        if self.unit == ONE { "" } else { &self.unit }
    }

    /// Returns the value of one label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// One parameter in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    /// As a scenario would write it.
    pub(crate) value: String,
    #[serde(default)]
    pub(crate) unit: String,
    pub(crate) origin: ParameterOrigin,
}

/// What chose a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ParameterOrigin {
    /// Nobody: the program's own choice.
    Default,
    /// The scenario file.
    Scenario,
    /// The command line.
    Flag,
}

impl ParameterOrigin {
    /// Returns the word, as it stands in JSON.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Scenario => "scenario",
            Self::Flag => "flag",
        }
    }
}

/// The machine a run was made on, and how busy it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReportHost {
    #[serde(default)]
    pub(crate) kernel: String,
    #[serde(default)]
    pub(crate) cpus: u32,
    #[serde(default)]
    pub(crate) memory_bytes: u64,
    /// Load averages over 1, 5 and 15 minutes when the run began.
    #[serde(default)]
    pub(crate) load_before: Option<[f64; 3]>,
    /// The same when it ended.
    #[serde(default)]
    pub(crate) load_after: Option<[f64; 3]>,
    /// The hypervisor below the kernel, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hypervisor: Option<String>,
    /// Anything else worth knowing: offloads, clock source, mitigations.
    #[serde(default)]
    pub(crate) facts: BTreeMap<String, String>,
}

/// A survival curve: the fraction of samples above each value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SurvivalCurve {
    /// Queue, victim, congestor, phase.
    #[serde(default)]
    pub(crate) labels: Labels,
    /// (microseconds, fraction), ascending; the last fraction is the share that never came back.
    pub(crate) points: Vec<(f64, f64)>,
}

impl SurvivalCurve {
    /// Creates the curve of a histogram of nanoseconds.
    pub(crate) fn from_histogram(histogram: &Histogram, labels: Labels) -> Self {
        let curve = histogram.survival(CURVE_POINTS);
        let point = |value: u64, fraction| (rounded(value as f64 / 1e3), rounded(fraction));
        Self { labels, points: curve.into_iter().map(|at| point(at.value, at.fraction)).collect() }
    }
}

/// What victim, congestor and processors did, step by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timeline {
    /// Queue, victim, congestor.
    #[serde(default)]
    pub(crate) labels: Labels,
    /// Length of a step.
    #[serde(serialize_with = "write_rounded")]
    pub(crate) step_ms: f64,
    /// When the first step begins, in seconds of the run.
    #[serde(default, serialize_with = "write_rounded")]
    pub(crate) start_s: f64,
    /// 99 % latency of the victim; `null` when it sent nothing, `"inf"` when the quantile was lost.
    pub(crate) victim_p99_us: Vec<Option<ExtendedReal>>,
    /// What all congestors together delivered.
    pub(crate) goodput_mbps: Vec<Option<ExtendedReal>>,
    /// Share of the step that the run's threads waited for a processor, in percent.
    #[serde(default)]
    pub(crate) cpu_noise: Vec<Option<ExtendedReal>>,
    /// What the congestors could deliver at most.
    #[serde(default)]
    pub(crate) ideal_mbps: Option<ExtendedReal>,
    /// Named stretches of the run.
    #[serde(default)]
    pub(crate) phases: Vec<TimelinePhase>,
}

/// A named stretch of a timeline, in seconds of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimelinePhase {
    pub(crate) name: String,
    #[serde(serialize_with = "write_rounded")]
    pub(crate) from_s: f64,
    #[serde(serialize_with = "write_rounded")]
    pub(crate) to_s: f64,
}

/// One ratio for each ordered pair of hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeatMap {
    /// Queue, victim, congestor.
    #[serde(default)]
    pub(crate) labels: Labels,
    /// Names of rows and of columns, in order.
    pub(crate) ranks: Vec<String>,
    /// `rows[from][to]`: p99 congested over isolated; `null` where nothing was measured.
    pub(crate) rows: Vec<Vec<Option<ExtendedReal>>>,
}

/// What one class was promised and what it got when all classes were busy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClassShare {
    /// Queue.
    #[serde(default)]
    pub(crate) labels: Labels,
    /// The class by its name.
    pub(crate) class: String,
    /// The mark that senders set.
    pub(crate) asked: String,
    /// The mark that receivers saw, and the queue it reached.
    pub(crate) granted: String,
    /// Promised share of the link, in percent; `null` when none is promised.
    #[serde(default)]
    pub(crate) configured: Option<ExtendedReal>,
    /// Measured share of the link, in percent.
    #[serde(default)]
    pub(crate) reached: Option<ExtendedReal>,
    /// The longest time without any delivery.
    #[serde(default)]
    pub(crate) starved_ms: Option<ExtendedReal>,
}

impl ClassShare {
    /// Returns the mark that receivers saw, without the word where it stands below a heading that
    /// says so.
    pub(crate) fn mark_seen(&self) -> &str {
        self.granted.strip_suffix(" seen").unwrap_or(&self.granted)
    }
}

/// One random assignment of hosts to roles, and its factors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Draw {
    /// Its number, from 0.
    pub(crate) draw: u32,
    /// The seed that makes this draw alone.
    pub(crate) seed: u64,
    /// One factor for each queue (victim, congestor, quantile).
    pub(crate) cif: Vec<DrawFactor>,
}

/// A congestion impact factor of one draw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DrawFactor {
    #[serde(default)]
    pub(crate) labels: Labels,
    pub(crate) value: ExtendedReal,
    #[serde(default)]
    pub(crate) low: Option<ExtendedReal>,
    #[serde(default)]
    pub(crate) high: Option<ExtendedReal>,
}

impl Report {
    /// Creates a report of this program, made now, with nothing measured in it yet.
    pub(crate) fn new(
        command: Vec<String>,
        place: &str,
        scenario: ReportScenario,
        seed: u64,
    ) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self {
            schema: SCHEMA.to_owned(),
            program: ReportProgram {
                name: env!("CARGO_PKG_NAME").to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                commit: option_env!("CLEARWAY_COMMIT").map(str::to_owned),
            },
            created: rfc3339(since_1970.as_secs()),
            command,
            place: place.to_owned(),
            scenario,
            seed,
            verdict: None,
            figures: Vec::new(),
            parameters: Vec::new(),
            host: ReportHost::default(),
            warnings: Vec::new(),
            survival: Vec::new(),
            timelines: Vec::new(),
            heat: Vec::new(),
            shares: Vec::new(),
            draws: Vec::new(),
            place_comparisons: Vec::new(),
            fabric: None,
            slowest: Vec::new(),
            culprits: Vec::new(),
            digests: Vec::new(),
            parts: BTreeMap::new(),
        }
    }

    /// Returns whether the run measured or promised any class a share of the link, and not only how
    /// marks travel.
    pub(crate) fn has_shares(&self) -> bool {
        self.shares.iter().any(|share| share.configured.is_some() || share.reached.is_some())
    }
}

/// Returns an instant as RFC 3339 text in UTC.
///
/// Days to date: the civil calendar in years that begin in March, so that the leap day is the last
/// of its year (Hinnant, "chrono-compatible low-level date algorithms").
pub(crate) fn rfc3339(seconds_since_1970: u64) -> String {
    let (days, second) = (seconds_since_1970 / 86_400, seconds_since_1970 % 86_400);
    let since_0000_march = days + 719_468;
    let (era, day_of_era) = (since_0000_march / 146_097, since_0000_march % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339__knows_leap_days_and_year_ends() {
        // `date -u -d @N +%FT%TZ`
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(rfc3339(seconds), expected);
        }
    }

    #[test]
    fn figure__keeps_infinite_ends_and_scales_finite_ones() {
        let estimate = Estimate::new(2_000.0, [1_000.0, f64::INFINITY], 7);
        let figure = Figure::estimate("latency", "us", &estimate, 1e-3, "blocks")
            .with(labels::QUEUE, "fifo");
        assert_eq!(
            (figure.value, figure.high),
            (ExtendedReal::finite(2.0), Some(ExtendedReal::INFINITE))
        );
        assert_eq!(
            (figure.low, figure.label(labels::QUEUE)),
            (Some(ExtendedReal::finite(1.0)), Some("fifo"))
        );
    }

    #[test]
    fn figure__of_a_rare_quantile_needs_samples_beyond_it() {
        let figure =
            |samples| Figure::counted("latency", "us", ExtendedReal::finite(1.0), samples, "");
        assert!(!figure(999).with(labels::QUANTILE, "p99").is_supported());
        assert!(figure(1_000).with(labels::QUANTILE, "p99").is_supported());
        assert!(
            figure(0).is_supported() && figure(0).with(labels::QUANTILE, "most").is_supported()
        );
    }

    #[test]
    fn survival__is_in_microseconds_and_bounded() {
        let histogram: Histogram = (1..200_000u64).map(|n| n * n).collect();
        let curve = SurvivalCurve::from_histogram(&histogram, Labels::new());
        assert!(curve.points.len() <= CURVE_POINTS);
        assert_eq!(curve.points.last(), Some(&(39_999_600.0, 0.0)));
    }
}
