//! Histograms and counts that are kept in atomics, as metrics.

use std::fmt;

use flow::HistogramTotal;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// A histogram whose values are counted in parts of the unit that is shown.
#[derive(Debug)]
pub struct ShownHistogram {
    total: HistogramTotal,
    /// How many of them are one of the unit.
    per_unit: f64,
}

/// A name and what it tells.
pub type Described<'a> = (&'a str, &'a str);

// === impl ShownHistogram ===

impl ShownHistogram {
    /// Of values in microseconds, shown in seconds.
    pub const fn seconds(total: HistogramTotal) -> Self {
        Self { total, per_unit: 1e6 }
    }

    /// Of plain numbers.
    pub const fn numbers(total: HistogramTotal) -> Self {
        Self { total, per_unit: 1.0 }
    }
}

impl EncodeMetric for ShownHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a metric is a 64-bit float, and sums are exact up to 2^53"
        )]
        let scaled = |value: u64| value as f64 / self.per_unit;
        let bound = |bound: Option<u64>| bound.map_or(f64::INFINITY, scaled);
        let buckets = self.total.buckets().map(|(upper, count)| (bound(upper), count));
        let buckets: Vec<(f64, u64)> = buckets.collect();
        let (sum, count) = (scaled(self.total.sum), self.total.count());
        encoder.encode_histogram::<[(&str, &str); 0]>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Writes a counter with a value for each set of labels; nothing without any.
///
/// # Errors
/// When it cannot be written.
pub fn show_counters<Labels: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Described<'_>,
    values: impl IntoIterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let values = values.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value)));
    show(encoder, (name, help, MetricType::Counter), values)
}

/// Writes a gauge, likewise.
///
/// # Errors
/// When it cannot be written.
pub fn show_gauges<Labels: EncodeLabelSet, Value: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Described<'_>,
    values: impl IntoIterator<Item = (Labels, Value)>,
) -> fmt::Result {
    let values = values.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value)));
    show(encoder, (name, help, MetricType::Gauge), values)
}

/// Writes a histogram, likewise.
///
/// # Errors
/// When it cannot be written.
pub fn show_histograms<Labels: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Described<'_>,
    values: impl IntoIterator<Item = (Labels, ShownHistogram)>,
) -> fmt::Result {
    show(encoder, (name, help, MetricType::Histogram), values)
}

/// Writes a gauge without labels.
///
/// # Errors
/// When it cannot be written.
pub fn show_gauge<Value: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Described<'_>,
    value: Value,
) -> fmt::Result {
    let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(gauge)
}

/// Writes a histogram without labels.
///
/// # Errors
/// When it cannot be written.
pub fn show_histogram(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Described<'_>,
    histogram: &ShownHistogram,
) -> fmt::Result {
    histogram.encode(encoder.encode_descriptor(name, help, None, MetricType::Histogram)?)
}

fn show<Labels: EncodeLabelSet, Value: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, kind): (&str, &str, MetricType),
    values: impl IntoIterator<Item = (Labels, Value)>,
) -> fmt::Result {
    let mut values = values.into_iter().peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    values.try_for_each(|(labels, value)| value.encode(family.encode_family(&labels)?))
}

#[cfg(test)]
mod tests {
    use flow::Histogram;
    use flow::histogram::doubling;
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    static BOUNDS: [u64; 2] = doubling(500_000);

    #[derive(Debug)]
    struct Shown;

    impl Collector for Shown {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let histogram = Histogram::new(&BOUNDS);
            for micros in [500_000, 500_001, 3_000_000] {
                histogram.observe(micros);
            }
            let shown = ShownHistogram::seconds(histogram.total());
            show_histogram(&mut encoder, ("took_seconds", "Spans"), &shown)?;
            show_counters::<[(&str, &str); 1]>(&mut encoder, ("none", "None"), [])
        }
    }

    #[test]
    fn a_histogram_is_shown_in_its_unit_and_cumulative_and_what_has_no_values_is_not_there() {
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(Shown));
        encode(&mut text, &registry).unwrap();
        let expect = "# HELP took_seconds Spans\n# TYPE took_seconds histogram\ntook_seconds_sum 4.000001\n\
             took_seconds_count 3\ntook_seconds_bucket{le=\"0.5\"} 1\ntook_seconds_bucket{le=\"1.0\"} 2\n\
             took_seconds_bucket{le=\"+Inf\"} 3\n# EOF\n";
        assert_eq!(text, expect);
    }
}
