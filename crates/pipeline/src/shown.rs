//! Histograms and counts that are kept in atomics, as metrics.

use std::fmt;

use flow::HistogramTotal;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// A histogram whose values are counted in parts of the unit that is shown.
#[derive(Debug)]
pub struct ShownHistogram {
    total: HistogramTotal,
    /// How many of the unit one is.
    scale: f64,
}

/// A name and what it tells.
pub type Described<'a> = (&'a str, &'a str);

// === impl ShownHistogram ===

impl ShownHistogram {
    /// Of values in microseconds, shown in seconds.
    pub const fn seconds(total: HistogramTotal) -> Self {
        Self { total, scale: 1e-6 }
    }

    /// Of plain numbers.
    pub const fn numbers(total: HistogramTotal) -> Self {
        Self { total, scale: 1.0 }
    }
}

impl EncodeMetric for ShownHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let scaled = |value: u64| value as f64 * self.scale;
        let bound = |bound: Option<u64>| bound.map_or(f64::MAX, scaled);
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
pub fn show_gauges<Labels: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Described<'_>,
    values: impl IntoIterator<Item = (Labels, f64)>,
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
