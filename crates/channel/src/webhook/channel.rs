//! Webhooks as a channel.

use std::sync::Arc;

use async_trait::async_trait;
use flow::Clock;
use net::endpoint::Endpoint;
use net::guard::{Guard, Resolve};
use net::http1::{Http1Pool, HttpTarget};
use notification::Delivery;

use super::config::Settings;
use super::endpoints::Endpoints;
use super::request::{WebhookContent, check_content};
use super::response::interpret;
use crate::checks::both;
use crate::endpoint_rules::EndpointRules;
use crate::{
    Attempt, Channel, ChannelError, ExpiringCredential, Invalid, Job, LearnedBounds, SendBounds,
    Sender, Start, Tools, drive, own_or_shared, timestamp,
};

/// A channel to endpoints.
#[derive(Debug, Clone)]
pub struct WebhookChannel {
    endpoints: Endpoints,
    rules: EndpointRules,
    allow_http: bool,
    bounds: SendBounds,
}

#[derive(Debug)]
struct WebhookSender {
    pool: Http1Pool,
    channel: WebhookChannel,
    clock: Clock,
}

// === impl WebhookChannel ===

impl WebhookChannel {
    /// A channel with `settings`. Reads the certificates, and connects to nothing.
    pub fn new(settings: &Settings) -> Result<Self, ChannelError> {
        let ((), endpoints) = both(settings.check(), Endpoints::new(settings))?;
        Ok(Self {
            endpoints,
            rules: EndpointRules {
                guard: Guard::new(settings.allow_networks.clone())
                    .denying(settings.deny_networks.clone()),
                allow_ports: settings.allow_ports.clone(),
            },
            allow_http: settings.allow_http,
            bounds: SendBounds::new(
                settings.concurrency,
                LearnedBounds::SMALL,
                settings.messages_per_minute,
            ),
        })
    }

    /// This channel with names resolved by `resolver`.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.rules.guard = self.rules.guard.with_resolver(resolver);
        self
    }

    /// The endpoint that `recipient` names, if it is acceptable by its spelling.
    fn endpoint(&self, recipient: &str) -> Result<Endpoint, Invalid> {
        let endpoint = Endpoint::parse(recipient)?;
        let origin = &endpoint.origin;
        if !origin.is_https && !self.allow_http {
            return Err(Invalid::new("must start with https://"));
        }
        self.rules.check(origin)?;
        Ok(endpoint)
    }
}

impl Channel for WebhookChannel {
    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        Ok(self.endpoint(recipient)?.origin.to_string().into())
    }

    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        check_content(payload, options)
    }

    fn endpoint_of(&self, recipient: &str) -> Option<Endpoint> {
        self.endpoint(recipient).ok()
    }

    fn credentials(&self, _clock: Clock) -> Vec<ExpiringCredential> {
        let ends = self.endpoints.certificate_ends;
        ends.map(ExpiringCredential::certificate).into_iter().collect()
    }

    fn bounds(&self) -> SendBounds {
        self.bounds
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let reach = Arc::new(self.rules.guard.clone());
        let pool = Http1Pool::new(reach, self.endpoints.tls.clone(), tools.clock)
            .counted(tools.connections);
        Ok(Box::new(WebhookSender { pool, channel: self.clone(), clock: tools.clock }))
    }
}

// === impl WebhookSender ===

#[async_trait(?Send)]
impl Sender for WebhookSender {
    async fn send(&self, job: Job<'_>) {
        let shared = job.chunk.content.as_ref().map(WebhookContent::new);
        drive(job, |delivery| self.attempt(job, shared.as_ref(), delivery)).await;
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

impl WebhookSender {
    async fn attempt(
        &self,
        job: Job<'_>,
        shared: Option<&Result<WebhookContent, Invalid>>,
        delivery: &Delivery,
    ) -> Result<Attempt, Attempt> {
        let own = delivery.content.as_deref().map(WebhookContent::new);
        let prepared = own_or_shared(own.as_ref(), shared)?;
        // Judged once more: the settings may have changed since it was handed in.
        let endpoint = self.channel.endpoint(&delivery.recipient)?;
        let id = job.chunk.notification_id(delivery.index);
        let trace = job.chunk.attempt_trace(delivery.index);
        let now = timestamp(self.clock);
        let profile = self.channel.endpoints.profile(&endpoint);
        let request = prepared
            .request(&endpoint, id, profile, (now, trace))
            .ok_or_else(|| Attempt::impossible("the endpoint cannot be written as a request"))?;
        let target = HttpTarget { origin: endpoint.origin, tls: profile.tls };
        let reply = self.pool.exchange(Start::of(&job, delivery), &target, request).await?;
        Ok(interpret(&reply, timestamp(self.clock)).timed(reply.timing))
    }
}
