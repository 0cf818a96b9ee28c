//! The metrics of what goes over the wire: latencies, signs of load, and connections.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::send_counts::{ProcessCounts, SendTotal};
use super::shown::{ShownHistogram, show_counters, show_gauges, show_histograms};

/// The metrics of sends and connections, as they are at a scrape.
#[derive(Debug)]
pub(super) struct SendMetrics(pub(super) ProcessCounts);

// === impl SendMetrics ===

impl Collector for SendMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let totals = self.0.totals();
        let name = "belfry_attempt_wire_seconds";
        let help = "Seconds from the first byte of an attempt to the last of its answer, waits before it not counted";
        let latencies = totals.iter().map(|(channel, total)| {
            let latency = ShownHistogram::seconds(total.on_wire_us.clone());
            ([("channel", channel.as_str())], latency)
        });
        show_histograms(encoder, (name, help), latencies)?;
        let name = "belfry_pushes_back";
        let help =
            "Answers by which a provider asked for less: it is busy, or too many come in a time";
        let pushes = totals.iter().flat_map(|(channel, total)| {
            let pushes = [("busy", total.busy), ("rate", total.over_rate)];
            pushes.map(|(kind, count)| ([("channel", channel.as_str()), ("kind", kind)], count))
        });
        show_counters(encoder, (name, help), pushes)?;
        let of_channels = |value: fn(&SendTotal) -> u64| {
            totals
                .iter()
                .map(move |(channel, total)| ([("channel", channel.as_str())], value(total)))
        };
        let name = "belfry_attempts_lost";
        let help = "Attempts without an answer in time, or whose connection was lost";
        show_counters(encoder, (name, help), of_channels(|total| total.lost))?;
        let name = "belfry_connections_opened";
        let help = "Connections to providers that were made";
        show_counters(encoder, (name, help), of_channels(|total| total.opened))?;
        let name = "belfry_connections_gone_away";
        let help = "Connections over HTTP/2 that the provider has ended with GOAWAY";
        show_counters(encoder, (name, help), of_channels(|total| total.gone_away))?;
        let name = "belfry_connections_failed";
        let help = "Connections to providers that could not be made, by the part that failed";
        let failed = totals.iter().flat_map(|(channel, total)| {
            let labels = |cause| [("channel", channel.as_str()), ("cause", cause)];
            total.failed.map(|(fault, count)| (labels(fault.as_str()), count))
        });
        show_counters(encoder, (name, help), failed)?;
        let name = "belfry_connections_open";
        let help = "Connections to providers that are open";
        let open =
            totals.iter().map(|(channel, total)| ([("channel", channel.as_str())], total.open));
        show_gauges(encoder, (name, help), open)
    }
}
