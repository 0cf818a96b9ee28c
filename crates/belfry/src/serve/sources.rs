//! The sources of a process: a reader for each, and their metrics.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::anyhow;
use feed::{SourceCounts, SourceReader};
use notification::Name;
use pipeline::Intake;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::relayed::RelayRoute;
use super::stages::StageParts;
use crate::config::OpenedSource;
use crate::streams::SourceParts;
#[cfg(feature = "kinesis")]
use crate::streams::StorePositions;

/// Counts of all sources, as they are at a scrape.
#[derive(Debug)]
struct SourceMetrics(Vec<(Name, Arc<SourceCounts>)>);

/// A reader for each source of the configuration, whose counts are among the metrics; and for that of `route`. Connects to nothing yet.
///
/// # Errors
/// When a source cannot be opened, with its name.
pub(super) fn open(
    parts: &mut StageParts<'_>,
    intake: &Arc<Intake>,
    route: Option<RelayRoute>,
) -> anyhow::Result<Vec<SourceReader>> {
    let mut readers = Vec::new();
    let usual_tenant: Name = "default".parse()?;
    for config in &parts.config.sources {
        let (name, tenant) = (&config.name, config.tenant(&usual_tenant));
        let source_parts = source_parts(parts, name, config.reader());
        let opened =
            config.open(source_parts).map_err(|error| anyhow!("source {name}: {error}"))?;
        readers.push(reader(parts, (name.clone(), tenant), opened, intake));
    }
    if let Some(route) = route {
        let RelayRoute { source_name: name, from, shape, dead_letters, counts, .. } = route;
        let source = from.source(source_parts(parts, &name, route.reader))?;
        let opened = OpenedSource { source, shape, dead_letters };
        let reader = reader(parts, (name, usual_tenant), opened, intake);
        readers.push(SourceReader { counts, ..reader });
    }
    let counts = |reader: &SourceReader| (reader.name.clone(), Arc::clone(&reader.counts));
    parts.sources = readers.iter().map(counts).collect();
    if !readers.is_empty() {
        parts.registry.register_collector(Box::new(SourceMetrics(parts.sources.clone())));
    }
    Ok(readers)
}

/// The needs of the source `name`; its readers in all processes are called `reads_as` in its system.
fn source_parts(parts: &mut StageParts<'_>, name: &Name, reads_as: String) -> SourceParts {
    let mut random = parts.random.fork();
    SourceParts {
        reader: reads_as,
        clock: parts.clock,
        random: random.fork(),
        #[cfg(feature = "kinesis")]
        positions: Arc::new(StorePositions::new(
            name.clone(),
            random.u64(..),
            parts.backend.store() as _,
            parts.backend.reads(),
            parts.clock,
        )),
    }
}

fn reader(
    parts: &mut StageParts<'_>,
    (name, tenant): (Name, Name),
    OpenedSource { source, shape, dead_letters }: OpenedSource,
    intake: &Arc<Intake>,
) -> SourceReader {
    SourceReader {
        name,
        source: Arc::from(source),
        tenant,
        shape,
        intake: Arc::clone(intake),
        dead_letters,
        counts: Arc::default(),
        random: parts.random.fork(),
    }
}

// === impl SourceMetrics ===

impl Collector for SourceMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Messages of sources by what became of them";
        let name = "belfry_source_messages";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (source, counts) in &self.0 {
            let SourceCounts { read, accepted, repeated, dead, acknowledged, .. } = &**counts;
            let fates = [
                ("read", read),
                ("accepted", accepted),
                ("repeated", repeated),
                ("dead_lettered", dead),
                ("acknowledged", acknowledged),
            ];
            for (fate, count) in fates {
                let labels = [("source", source.as_str()), ("fate", fate)];
                let count = ConstCounter::new(count.load(Ordering::Relaxed));
                count.encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Whether a source waits for something that fails: itself, the store, its dead letters; 0 or 1";
        let name = "belfry_source_failing";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (source, counts) in &self.0 {
            let is_failing = u32::from(counts.trouble().is_some());
            let labels = [("source", source.as_str())];
            ConstGauge::new(is_failing).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
