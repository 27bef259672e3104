//! Writes figures as OpenMetrics text: names, units, labels and histograms.
//!
//! # Model
//! A name consists of `clearway_`, the name of its title, its unit, and `_total` for a counter. A
//! command writes each title once, with all samples.
//!
//! # Source
//! OpenMetrics 1.0.0, text format.

use std::fmt;
use std::sync::Arc;

use clearway_proto::base::Nanos;
use clearway_proto::stats::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, MetricEncoder,
    NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::MetricSource;

/// The prefix of all names.
const PREFIX: &str = "clearway";
/// Upper bounds of buckets of times, in ns: from a fast disk or network to delays that users notice.
const TIME_BOUNDS: [u64; 17] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricUnit {
    /// A count; the name says of what.
    Number,
    Bytes,
    BytesPerSecond,
    Seconds,
    /// A share, from 0 to 1.
    Ratio,
}

impl MetricUnit {
    fn suffix(self) -> Option<Unit> {
        match self {
            Self::Number => None,
            Self::Bytes => Some(Unit::Bytes),
            Self::BytesPerSecond => Some(Unit::Other("bytes_per_second".to_owned())),
            Self::Seconds => Some(Unit::Seconds),
            // OpenMetrics names base units in the plural, except this one.
            Self::Ratio => Some(Unit::Other("ratio".to_owned())),
        }
    }
}

/// The name, help and unit of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetricTitle {
    /// Without prefix, unit and `_total`.
    pub(crate) name: &'static str,
    /// One sentence.
    pub(crate) help: &'static str,
    pub(crate) unit: MetricUnit,
}

/// Labels of a sample: names and values.
pub(crate) type MetricLabels = Vec<(&'static str, String)>;

/// The text under construction.
pub(crate) struct MetricSheet<'a>(DescriptorEncoder<'a>);

impl MetricSheet<'_> {
    /// Writes numbers that only grow.
    pub(crate) fn counters(
        &mut self,
        title: &MetricTitle,
        samples: impl IntoIterator<Item = (MetricLabels, u64)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, value)| (labels, counter(value)));
        self.write(title, MetricType::Counter, samples)
    }

    /// Writes a number that only grows.
    pub(crate) fn counter(&mut self, title: &MetricTitle, value: u64) -> fmt::Result {
        self.counters(title, [(MetricLabels::new(), value)])
    }

    /// Writes times that only grow.
    pub(crate) fn time_counters(
        &mut self,
        title: &MetricTitle,
        samples: impl IntoIterator<Item = (MetricLabels, Nanos)>,
    ) -> fmt::Result {
        let samples = samples.into_iter();
        let samples = samples.map(|(labels, value)| (labels, counter(value.as_secs_f64())));
        self.write(title, MetricType::Counter, samples)
    }

    /// Writes numbers that grow and shrink.
    pub(crate) fn gauges(
        &mut self,
        title: &MetricTitle,
        samples: impl IntoIterator<Item = (MetricLabels, u64)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, value)| (labels, gauge(value)));
        self.write(title, MetricType::Gauge, samples)
    }

    /// Writes a number that grows and shrinks.
    pub(crate) fn gauge(&mut self, title: &MetricTitle, value: u64) -> fmt::Result {
        self.gauges(title, [(MetricLabels::new(), value)])
    }

    /// Writes shares, from 0 to 1.
    pub(crate) fn ratios(
        &mut self,
        title: &MetricTitle,
        samples: impl IntoIterator<Item = (MetricLabels, f64)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, value)| (labels, gauge(value)));
        self.write(title, MetricType::Gauge, samples)
    }

    /// Writes distributions of times in ns. Infinite times count above all bounds, and not in the sum.
    pub(crate) fn times<'h>(
        &mut self,
        title: &MetricTitle,
        samples: impl IntoIterator<Item = (MetricLabels, &'h Histogram)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, times)| (labels, TimeBuckets(times)));
        self.write(title, MetricType::Histogram, samples)
    }

    fn write(
        &mut self,
        title: &MetricTitle,
        kind: MetricType,
        samples: impl Iterator<Item = (MetricLabels, impl EncodeMetric)>,
    ) -> fmt::Result {
        let unit = title.unit.suffix();
        let mut family = self.0.encode_descriptor(title.name, title.help, unit.as_ref(), kind)?;
        for (labels, value) in samples {
            // It is the only one.
            if labels.is_empty() {
                return value.encode(family);
            }
            value.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn counter<N: EncodeCounterValue>(value: N) -> ConstCounter<N> {
    ConstCounter::new(value)
}

fn gauge<N: EncodeGaugeValue>(value: N) -> ConstGauge<N> {
    ConstGauge::new(value)
}

/// Times in ns as buckets in seconds.
struct TimeBuckets<'h>(&'h Histogram);

impl EncodeMetric for TimeBuckets<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let mut below = 0;
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(TIME_BOUNDS.len() + 1);
        for bound in TIME_BOUNDS {
            let up_to = self.0.count_up_to(bound);
            buckets.push((seconds(bound), up_to - below));
            below = up_to;
        }
        buckets.push((f64::INFINITY, self.0.count() - below));
        let sum = self.0.sum() as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(sum, self.0.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// The adapter through which the library collects figures.
struct SourceCollector {
    command: &'static str,
    source: Arc<dyn MetricSource>,
}

impl fmt::Debug for SourceCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.command)
    }
}

impl Collector for SourceCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut sheet = MetricSheet(encoder);
        let help = "The program and the command that serves these figures.";
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("command", self.command)];
        sheet.0.encode_descriptor("build", help, None, MetricType::Info)?.encode_info(&labels)?;
        self.source.write(&mut sheet)
    }
}

/// Returns the figures of `source` and of the program as text.
pub(super) fn text(command: &'static str, source: &Arc<dyn MetricSource>) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(SourceCollector { command, source: Arc::clone(source) }));
    let mut text = String::new();
    // Text in memory takes everything.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: MetricTitle =
        MetricTitle { name: "some", help: "Bytes.", unit: MetricUnit::Bytes };
    const COUNT: MetricTitle =
        MetricTitle { name: "things", help: "Things.", unit: MetricUnit::Number };
    const WAITS: MetricTitle =
        MetricTitle { name: "waits", help: "Waits.", unit: MetricUnit::Seconds };

    struct Figures;

    impl MetricSource for Figures {
        fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result {
            sheet.counter(&BYTES, u64::MAX)?;
            sheet.gauges(&COUNT, [(vec![("name", "a \"b\"\n\\".to_owned())], 7)])?;
            let mut times: Histogram =
                [1, 100_000, 3_000_000_000, 60_000_000_000].into_iter().collect();
            times.record_infinite(1);
            sheet.times(&WAITS, [(Vec::new(), &times)])
        }
    }

    #[test]
    fn text__is_what_the_standard_says() {
        let source: Arc<dyn MetricSource> = Arc::new(Figures);
        let text = text("mount", &source);
        let version = env!("CARGO_PKG_VERSION");
        let first = format!("clearway_build_info{{version=\"{version}\",command=\"mount\"}} 1\n");
        assert!(text.contains(&first), "{text}");
        for line in [
            "# TYPE clearway_some_bytes counter\n# UNIT clearway_some_bytes bytes\nclearway_some_bytes_total 18446744073709551615\n",
            "# TYPE clearway_things gauge\nclearway_things{name=\"a \\\"b\\\"\\n\\\\\"} 7\n",
            "clearway_waits_seconds_sum 63.000100001\nclearway_waits_seconds_count 5\n",
            "clearway_waits_seconds_bucket{le=\"0.00005\"} 1\n",
            "clearway_waits_seconds_bucket{le=\"0.0001\"} 2\n",
            "clearway_waits_seconds_bucket{le=\"2.5\"} 2\n",
            "clearway_waits_seconds_bucket{le=\"10.0\"} 3\n",
            "clearway_waits_seconds_bucket{le=\"+Inf\"} 5\n# EOF\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
