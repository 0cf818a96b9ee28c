//! The metrics of what is under way and may be.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::destination_limits::{ChannelLoad, DestinationLimits};
use crate::metrics::shown::show_gauges;

/// The attempts that are under way and that may be, by channel, as they are at a scrape.
#[derive(Debug)]
pub struct LoadMetrics(pub Arc<DestinationLimits>);

/// A name, what it tells, and its value.
type LoadGauge = (&'static str, &'static str, fn(&ChannelLoad) -> u64);

// === impl LoadMetrics ===

impl Collector for LoadMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let load = self.0.load();
        let gauges: [LoadGauge; 3] = [
            ("belfry_attempts_in_flight", "Attempts that are under way", |load| load.in_flight),
            (
                "belfry_attempts_limit",
                "Attempts that may be under way at a time, to all destinations of the channel together",
                |load| load.limit,
            ),
            ("belfry_destinations", "Destinations to which something was sent lately", |load| {
                load.destinations
            }),
        ];
        gauges.into_iter().try_for_each(|(name, help, value)| {
            let values =
                load.iter().map(|(channel, load)| ([("channel", channel.as_str())], value(load)));
            show_gauges(&mut encoder, (name, help), values)
        })
    }
}
