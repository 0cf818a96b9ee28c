//! The configuration: one TOML file in which every key is optional, and an overlay from the environment.
//!
//! `belfry.default.toml` is the reference for users: the page in `docs/reference` is generated from it, and
//! tests hold it against these structures.

mod channels;
mod feeds;
mod flags;
mod keys;
mod kinds;
mod lifetimes;
mod load;
mod places;
mod problem;
mod reference;
mod retention;
mod retry;
mod server;
mod server_url;
mod sources;
mod stream_systems;
mod suppressions;
mod table;
mod templates;
mod tenants;
mod traces;
pub(crate) mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::Context as _;
use api::{AccessLog, ChannelCredential, ConfiguredChannel};
use channel::ExpiringCredential;
use feed::FeedPlan;
use flow::{Backoff, Clock};
use notification::{Name, Timestamp};
use pipeline::ingest::TemplateSource;
use pipeline::{Channels, QuotaNumbers, RetryPolicy};
use serde::Deserialize;

pub(crate) use channels::ChannelConfig;
pub(crate) use feeds::DeliveryFeedConfig;
pub(crate) use flags::Flags;
pub(crate) use kinds::ChannelResources;
pub(crate) use load::{SYSTEM_FILE, USUAL_FILE, file_to_read, master_key, service_directory};
pub(crate) use places::{QueueConfig, StoreConfig, StorePlace};
pub(crate) use reference::{DEFAULT_FILE, to_markdown};
pub(crate) use retention::RetentionConfig;
pub(crate) use server::{ListenPlace, ServerConfig, fault_of_time};
pub(crate) use server_url::{BrokerKind, ServerUrl};
pub(crate) use sources::{OpenedSource, SourceConfig};
pub(crate) use suppressions::SuppressionsConfig;
pub(crate) use templates::TemplateConfig;
pub(crate) use tenants::TenantConfig;
pub(crate) use traces::TracesConfig;

use problem::Mistake;
use retry::RetryConfig;

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Config {
    /// How callers reach the engine.
    pub(crate) server: ServerConfig,
    /// Where notifications are kept.
    pub(crate) store: StoreConfig,
    /// The broker that carries work from producers to consumers.
    pub(crate) queue: QueueConfig,
    /// How notifications are sent.
    pub(crate) delivery: DeliveryConfig,
    /// The log.
    pub(crate) log: LogConfig,
    /// Traces.
    pub(crate) traces: Box<TracesConfig>,
    /// Feed of the suppression list.
    pub(crate) suppressions: SuppressionsConfig,
    /// How long what is settled is kept.
    pub(crate) retention: RetentionConfig,
    /// The channels, by name. None by default.
    pub(crate) channels: BTreeMap<Name, ChannelConfig>,
    /// Contents that callers name in place of one. None by default.
    pub(crate) templates: BTreeMap<Name, TemplateConfig>,
    /// Settings of single tenants, by name. None by default.
    pub(crate) tenants: BTreeMap<Name, TenantConfig>,
    /// Streams that notifications are read from. None by default.
    pub(crate) sources: Vec<SourceConfig>,
    /// Feeds of delivery events. None by default.
    pub(crate) feeds: Vec<DeliveryFeedConfig>,
    /// Warnings: no mistakes, but worth a look.
    pub(crate) warnings: Vec<String>,
}

/// `[delivery]`: how notifications are sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DeliveryConfig {
    /// Sender threads, 0 to 256; 0, the default, is one per core.
    pub(crate) senders: usize,
}

/// `[log]`: what is logged, to standard error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    /// The form of a line. Default `text`.
    pub(crate) format: LogFormat,
    /// The least important line that is logged. Default `info`.
    pub(crate) level: LogLevel,
    /// The requests that have a line. Default `acts`.
    pub(crate) requests: AccessLog,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// How important a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// Something was lost, or a person must act.
    Error,
    /// Something is wrong and the engine copes.
    Warn,
    /// Every step that the engine takes as a whole.
    #[default]
    Info,
    /// The details of each step.
    Debug,
    /// Everything.
    Trace,
}

// === impl Config ===

impl Config {
    /// Builds every channel, but those that were built from the same settings and files before: `current` has them. Reads
    /// the files that they name, and connects to nothing.
    pub(crate) fn build_channels(
        &self,
        shared: &ChannelResources,
        current: Option<(&Self, &Channels)>,
    ) -> anyhow::Result<Channels> {
        let mut channels = Channels::default();
        for (name, channel) in &self.channels {
            let same = current.and_then(|(config, built)| {
                let before = config.channels.get(name)?;
                before.is_built_like(channel).then(|| built.get(name.as_str()))?
            });
            // The same object keeps its connections (decision 0014).
            let built = match same {
                Some(same) => Arc::clone(same),
                None => channel
                    .kind
                    .settings()
                    .build(shared)
                    .with_context(|| format!("channels.{name}"))?,
            };
            channels.insert(name.clone(), built);
        }
        Ok(channels)
    }

    /// The channels whose tokens for Apple are made anew with every start, for want of a place to keep them.
    pub(crate) fn forgetful_channels<'a>(
        &'a self,
        shared: &'a ChannelResources,
    ) -> impl Iterator<Item = &'a Name> {
        let forgets = |channel: &ChannelConfig| channel.kind.settings().forgets_its_token(shared);
        self.channels.iter().filter(move |(_, channel)| forgets(channel)).map(|(name, _)| name)
    }

    /// All templates. Reads the files that they name.
    pub(crate) fn template_sources(&self) -> anyhow::Result<BTreeMap<Name, TemplateSource>> {
        let source = |(name, template): (&Name, &TemplateConfig)| {
            let source = template.read();
            let source = source.map_err(|wrong| anyhow::anyhow!("templates.{name}.{wrong}"))?;
            Ok((name.clone(), source))
        };
        self.templates.iter().map(source).collect()
    }

    /// The settings that differ from `other` and are read at the start only.
    pub(crate) fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let tables = [
            ("store", self.store != other.store),
            ("queue", self.queue != other.queue),
            ("delivery", self.delivery != other.delivery),
            ("log", self.log != other.log),
            ("traces", self.traces != other.traces),
            ("suppressions", self.suppressions != other.suppressions),
            ("retention", self.retention != other.retention),
            ("sources", self.sources != other.sources),
            ("feeds", self.feeds != other.feeds),
        ];
        // Of `[server]` the keys and certificates follow a reload, as channels, templates and tenants do.
        let mut differences = self.server.fixed_differences(&other.server);
        differences
            .extend(tables.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name));
        differences
    }

    /// The differences from the channels of `other`.
    pub(crate) fn channel_differences(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<&Name> = self.channels.keys().chain(other.channels.keys()).collect();
        let difference = |name: &Name| match (self.channels.get(name), other.channels.get(name)) {
            (Some(before), Some(after)) if before == after => None,
            (Some(before), Some(after)) if before.kind.name() != after.kind.name() => {
                let (before, after) = (before.kind.name(), after.kind.name());
                Some(format!(
                    "channels.{name} (no longer {before} but {after}: so goes what waits)"
                ))
            }
            (Some(_), Some(_)) => Some(format!("channels.{name}")),
            (None, _) => Some(format!("channels.{name} (new)")),
            (_, None) => Some(format!("channels.{name} (gone)")),
        };
        names.into_iter().filter_map(difference).collect()
    }

    /// This one with what `other` says of that which needs no restart.
    pub(crate) fn follow(&mut self, other: Self) {
        self.server.follow(other.server);
        self.channels = other.channels;
        self.templates = other.templates;
        self.tenants = other.tenants;
    }

    /// The feeds of it.
    pub(crate) fn feed_plans(&self) -> anyhow::Result<Vec<FeedPlan>> {
        let usual = "default".parse()?;
        let mut plans = Vec::from_iter(self.suppressions.plan()?);
        plans.extend(self.feeds.iter().map(|feed| feed.plan(&usual)));
        Ok(plans)
    }

    /// How many may be sent in any minute through `channels`, and for each tenant.
    pub(crate) fn quota_numbers(&self, channels: &Channels) -> QuotaNumbers {
        let number = |(name, tenant): (&Name, &TenantConfig)| {
            Some((name.clone(), NonZeroU32::new(tenant.messages_per_minute)?))
        };
        QuotaNumbers::new(channels, self.tenants.iter().filter_map(number).collect())
    }

    /// The channels as callers are told of them; `channels` were built from it.
    pub(crate) fn configured_channels(
        &self,
        channels: &Channels,
    ) -> BTreeMap<Name, ConfiguredChannel> {
        let configured = |(name, channel): (&Name, &ChannelConfig)| {
            let built = channels.get(name.as_str());
            let messages_per_minute = built.and_then(|built| built.bounds().messages_per_minute);
            let ends = built.map(|built| built.credentials(Clock::system())).unwrap_or_default();
            // A token is renewed by itself: its end asks nothing of an operator.
            let replaced = ends.into_iter().filter(|it| it.what == ExpiringCredential::CERTIFICATE);
            let credentials = replaced
                .map(|ExpiringCredential { expires_at, .. }| ChannelCredential {
                    what: "client certificate",
                    expires_at: Timestamp::from_millis(expires_at.saturating_mul(1_000)),
                })
                .collect();
            let kind = channel.kind.name();
            (name.clone(), ConfiguredChannel { kind, messages_per_minute, credentials })
        };
        self.channels.iter().map(configured).collect()
    }

    /// How often and when each channel tries again.
    pub(crate) fn retry_policies(&self) -> anyhow::Result<BTreeMap<Name, RetryPolicy>> {
        let policy = |(name, channel): (&Name, &ChannelConfig)| {
            let RetryConfig { attempts, base, cap } = channel.retry;
            let attempts = attempts.unwrap_or_else(|| channel.kind.settings().attempts());
            Ok((name.clone(), RetryPolicy { attempts, backoff: Backoff::new(base, cap)? }))
        };
        self.channels.iter().map(policy).collect()
    }

    /// The problems of settings that are valid each and wrong together. Reads the files that it names; touches no network.
    fn check(&self) -> Vec<Mistake> {
        let mut problems = self.server.check();
        problems.extend(self.store.check());
        problems.extend(self.queue.check(&self.store));
        if self.delivery.senders > 256 {
            problems
                .push(Mistake::new("delivery.senders", "must be at most 256; 0 is one per core"));
        }
        for (name, channel) in &self.channels {
            problems.extend(channel.check(name));
        }
        for (name, template) in &self.templates {
            problems.extend(template.check(name, &self.channels));
        }
        problems.extend(self.traces.check());
        problems.extend(self.suppressions.check(&self.channels));
        problems.extend(self.retention.check(&self.tenants));
        problems.extend(SourceConfig::check_all(&self.sources));
        problems.extend(DeliveryFeedConfig::check_all(&self.feeds, &self.channels));
        problems
    }
}

// === impl DeliveryConfig ===

impl DeliveryConfig {
    /// Sender threads to start.
    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if self.senders == 0 { cores() } else { self.senders }
    }
}

#[cfg(test)]
mod channel_tests;
#[cfg(test)]
mod feed_tests;
#[cfg(test)]
mod secret_tests;
#[cfg(test)]
mod template_tests;
#[cfg(test)]
mod tests;
