//! The settings that a process changes without a restart: its channels with their credentials and retries, its templates, the quotas of
//! its tenants, and who may call.

use pipeline::ingest::limits::RENDER_THREADS;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use api::{ConfiguredChannel, Reloaded};
use flow::Clock;
use notification::Name;
use pipeline::ingest::{Renderer, TemplateSource, Templates};
use pipeline::{Channels, Intake, LaneQuotas, RetryPolicy};
use store::Ingest;
use tokio::sync::watch;

use super::Role;
use super::relayed::RelayRoute;
use crate::config::{ChannelResources, Config, service_directory};

/// The configuration that a process goes by.
#[derive(Debug)]
pub(super) struct Live {
    config: Config,
    shared: ChannelResources,
    templates: BTreeMap<Name, TemplateSource>,
    channels: watch::Sender<Channels>,
    policies: watch::Sender<BTreeMap<Name, RetryPolicy>>,
    configured: watch::Sender<BTreeMap<Name, ConfiguredChannel>>,
    keys: watch::Sender<api::Keys>,
    quotas: Arc<LaneQuotas>,
}

// === impl Live ===

impl Live {
    /// Builds what `config` says. Reads the files that it names, and connects to nothing.
    /// The channel of `route` is there beside them, if there is one.
    pub(super) fn new(
        config: &Config,
        route: Option<&RelayRoute>,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let shared = ChannelResources::new(config.store.place(), service_directory());
        let mut channels = config.build_channels(&shared, None)?;
        let mut policies = config.retry_policies()?;
        let mut configured = config.configured_channels(&channels);
        if let Some(RelayRoute { channel_name, channel, .. }) = route {
            channels.insert(channel_name.clone(), Arc::clone(channel));
            policies.insert(channel_name.clone(), RelayRoute::policy());
            configured.insert(channel_name.clone(), RelayRoute::configured());
        }
        let quotas = Arc::new(LaneQuotas::new(clock));
        quotas.follow(config.quota_numbers(&channels));
        Ok(Self {
            templates: config.template_sources()?,
            channels: watch::Sender::new(channels),
            quotas,
            policies: watch::Sender::new(policies),
            configured: watch::Sender::new(configured),
            keys: watch::Sender::new(config.server.api_keys()),
            config: config.clone(),
            shared,
        })
    }

    /// Names the channels that keep nothing over a restart and should, if this process sends by them.
    pub(super) fn warn_of_forgetful(&self, role: Role) {
        if !role.consumes() {
            return;
        }
        for channel in self.config.forgetful_channels(&self.shared) {
            tracing::warn!(
                %channel,
                "every start makes a new token for Apple, which wants few: name a directory that outlives restarts as `state_directory`"
            );
        }
    }

    /// Goes by `new`. Everything is built before the first thing is replaced.
    ///
    /// # Errors
    /// When `new` cannot be used; then nothing has changed.
    pub(super) fn reload(
        &mut self,
        new: Config,
        intake: &Intake,
        listen: impl IntoIterator<Item = SocketAddr>,
    ) -> anyhow::Result<Reloaded> {
        let keys = new.server.api_keys();
        // An address stays until a restart: if it is beyond loopback, taking the last key away would open it to all.
        for address in listen {
            api::check_listen(address, &keys)
                .context("server.keys: the address stays until a restart")?;
        }
        let channels =
            new.build_channels(&self.shared, Some((&self.config, &self.channels.borrow())))?;
        let sources = new.template_sources()?;
        let templates = compile(&sources, &channels)?;
        let policies = new.retry_policies()?;

        let mut made = self.config.channel_differences(&new);
        made.extend((self.config.server.keys != new.server.keys).then(|| "server.keys".to_owned()));
        made.extend((self.templates != sources).then(|| "templates".to_owned()));
        made.extend((self.config.tenants != new.tenants).then(|| "tenants".to_owned()));
        let warnings = new.warnings.clone();
        let fixed = self.config.fixed_differences(&new).into_iter();
        let needs_restart = fixed.map(str::to_owned).collect();
        self.policies.send_replace(policies);
        self.quotas.follow(new.quota_numbers(&channels));
        self.configured.send_replace(new.configured_channels(&channels));
        // Before anything is taken in for a channel that is new.
        self.channels.send_replace(channels.clone());
        intake.replace(Arc::new(channels), templates);
        self.keys.send_replace(keys);
        self.templates = sources;
        // What needs a restart stays as it was at the start, so the next reload names it again.
        self.config.follow(new);
        Ok(Reloaded { changed: made, needs_restart, warnings })
    }

    /// The intake of notifications.
    pub(super) fn intake(&self, store: Arc<dyn Ingest>, clock: Clock) -> anyhow::Result<Intake> {
        let channels = self.channels.borrow().clone();
        let templates = compile(&self.templates, &channels)?;
        let renderer = Renderer::start(RENDER_THREADS).context("cannot start a thread")?;
        let intake = Intake::new(store, Arc::new(channels), clock);
        Ok(intake.with_templates(templates).with_renderer(renderer))
    }

    /// The channels, as they are from now on.
    pub(super) fn channels(&self) -> watch::Receiver<Channels> {
        self.channels.subscribe()
    }

    /// The names of the channels as they are now. What waits for another one is parked.
    pub(super) fn channel_names(&self) -> Arc<BTreeSet<Name>> {
        Arc::new(self.channels.borrow().iter().map(|(name, _)| name.clone()).collect())
    }

    /// How often and when each channel tries again, as it is from now on.
    pub(super) fn policies(&self) -> watch::Receiver<BTreeMap<Name, RetryPolicy>> {
        self.policies.subscribe()
    }

    /// The channels as callers are told of them, from now on.
    pub(super) fn configured_channels(&self) -> watch::Receiver<BTreeMap<Name, ConfiguredChannel>> {
        self.configured.subscribe()
    }

    /// How many may be sent in any minute, as it is from now on.
    pub(super) fn quotas(&self) -> Arc<LaneQuotas> {
        Arc::clone(&self.quotas)
    }

    /// Keys of callers, as they are from now on.
    pub(super) fn keys(&self) -> watch::Receiver<api::Keys> {
        self.keys.subscribe()
    }
}

fn compile(
    sources: &BTreeMap<Name, TemplateSource>,
    channels: &Channels,
) -> anyhow::Result<Templates> {
    Templates::compile(sources, channels)
        .map_err(|(name, fault)| anyhow::anyhow!("templates.{name}.{fault}"))
}
