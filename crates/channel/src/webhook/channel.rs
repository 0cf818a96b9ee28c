//! Webhooks as a channel.

use std::sync::Arc;

use async_trait::async_trait;
use flow::Clock;
use net::endpoint::{Endpoint, Host};
use net::guard::{Guard, Resolve};
use net::http1::{Http1Pool, HttpTarget};
use notification::Delivery;

use super::config::Settings;
use super::endpoints::Endpoints;
use super::request::{WebhookContent, check_content};
use super::response::interpret;
use crate::checks::both;
use crate::{
    Attempt, Channel, ChannelError, Invalid, Job, LearnedBounds, SendBounds, Sender, Start, Tools,
    drive, own_or_shared, timestamp,
};

/// A channel to endpoints.
#[derive(Debug, Clone)]
pub struct WebhookChannel {
    guard: Guard,
    endpoints: Endpoints,
    rules: Rules,
    bounds: SendBounds,
}

/// Which endpoints are acceptable, as far as that can be said without resolving their names.
#[derive(Debug, Clone)]
struct Rules {
    allow_http: bool,
    /// Empty: any.
    allow_ports: Vec<u16>,
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
            guard: Guard::new(settings.allow_networks.clone()),
            endpoints,
            rules: Rules {
                allow_http: settings.allow_http,
                allow_ports: settings.allow_ports.clone(),
            },
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
        self.guard = self.guard.with_resolver(resolver);
        self
    }

    /// The endpoint that `recipient` names, if it is acceptable by its spelling.
    fn endpoint(&self, recipient: &str) -> Result<Endpoint, Invalid> {
        let endpoint = Endpoint::parse(recipient)?;
        let origin = &endpoint.origin;
        if !origin.is_https && !self.rules.allow_http {
            return Err(Invalid::new("must start with https://"));
        }
        if !self.rules.allow_ports.is_empty() && !self.rules.allow_ports.contains(&origin.port) {
            return Err(Invalid::new(format!("has port {}, which is not allowed", origin.port)));
        }
        // Told to the caller at once; a name is judged by the address that it leads to when it is connected to.
        if let Host::Address(address) = origin.host {
            self.guard.check(address).map_err(|error| Invalid::new(error.to_string()))?;
        }
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

    fn bounds(&self) -> SendBounds {
        self.bounds
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let reach = Arc::new(self.guard.clone());
        let pool = Http1Pool::new(reach, self.endpoints.tls.clone(), tools.clock);
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
        let now = timestamp(self.clock);
        let profile = self.channel.endpoints.profile(&endpoint);
        let request = prepared
            .request(&endpoint, id, profile, now)
            .ok_or_else(|| Attempt::impossible("the endpoint cannot be written as a request"))?;
        let target = HttpTarget { origin: endpoint.origin, tls: profile.tls };
        let reply = self.pool.exchange(Start::of(&job, delivery), &target, request).await?;
        Ok(interpret(&reply, timestamp(self.clock)).timed(reply.timing))
    }
}
