//! Web Push as a channel.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use flow::{Clock, LogThrottle};
use net::exchange::Reply;
use net::guard::{Guard, Resolve};
use net::request_head::SharedHeads;
use net::tls;
use notification::{Content, Delivery};

use super::config::Settings;
use super::encryption::{Ephemeral, encrypt};
use super::encryption_turns::EncryptionTurns;
use super::request::{Terms, WebPushContent, WebPushHead, check_content};
use super::response::{Advice, interpret};
use super::routes::{PushDial, Routes};
use super::subscription::Subscription;
use super::vapid::{Proof, Vapid};
use crate::checks::both;
use crate::endpoint_rules::EndpointRules;
use crate::{
    Attempt, Channel, ChannelError, Invalid, Job, LearnedBounds, SendBounds, Sender, Start, Tools,
    drive, own_or_shared, timestamp,
};

/// A channel to browsers.
#[derive(Debug, Clone)]
pub struct WebPushChannel {
    rules: EndpointRules,
    vapid: Arc<Vapid>,
    dial: PushDial,
    ttl: Duration,
    pad_to: usize,
    bounds: SendBounds,
}

#[derive(Debug)]
struct WebPushSender {
    channel: WebPushChannel,
    routes: Routes,
    heads: SharedHeads,
    encryption_turns: EncryptionTurns,
    clock: Clock,
    log_throttle: LogThrottle,
}

// === impl WebPushChannel ===

impl WebPushChannel {
    /// A channel with `settings`. Reads the key and the certificates, and connects to nothing.
    pub fn new(settings: &Settings) -> Result<Self, ChannelError> {
        let ca_file = settings.ca_file.as_deref();
        let tls = both(
            tls::client(ca_file, &[b"h2", b"http/1.1"], None),
            tls::client(ca_file, &[b"http/1.1"], None),
        );
        let ((), (vapid, (tls, tls_http1))) = both(settings.check(), both(vapid(settings), tls))?;
        let guard =
            Guard::new(settings.allow_networks.clone()).denying(settings.deny_networks.clone());
        let dial = PushDial {
            reach: Arc::new(guard.clone()),
            tls,
            tls_http1,
            connections_max: settings.connections_max,
        };
        Ok(Self {
            rules: EndpointRules { guard, allow_ports: settings.allow_ports.clone() },
            vapid: Arc::new(vapid),
            dial,
            ttl: settings.ttl,
            pad_to: settings.pad_to,
            bounds: SendBounds::new(
                settings.concurrency,
                LearnedBounds::PUSH_SERVICE,
                settings.messages_per_minute,
            ),
        })
    }

    /// This channel with names resolved by `resolver`.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.rules.guard = self.rules.guard.with_resolver(resolver);
        self.dial.reach = Arc::new(self.rules.guard.clone());
        self
    }

    /// The subscription that `recipient` spells, if it is acceptable by its spelling.
    fn subscription(&self, recipient: &str) -> Result<Subscription, Invalid> {
        let subscription = Subscription::parse(recipient)?;
        self.rules.check(&subscription.endpoint.origin)?;
        Ok(subscription)
    }
}

impl Channel for WebPushChannel {
    fn canonical<'a>(&self, recipient: &'a str) -> Result<Cow<'a, str>, Invalid> {
        let canonical = self.subscription(recipient)?.to_string();
        Ok(if canonical == recipient { Cow::Borrowed(recipient) } else { Cow::Owned(canonical) })
    }

    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        let subscription = self.subscription(recipient)?;
        subscription.keys.check()?;
        Ok(subscription.endpoint.origin.to_string().into())
    }

    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        check_content(payload, options)
    }

    fn bounds(&self) -> SendBounds {
        self.bounds
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let clock = tools.clock;
        Ok(Box::new(WebPushSender {
            heads: SharedHeads::default(),
            channel: self.clone(),
            routes: Routes::new(self.dial.clone(), tools),
            encryption_turns: EncryptionTurns::new(),
            clock,
            log_throttle: LogThrottle::default(),
        }))
    }
}

/// The key that identifies the sender.
fn vapid(settings: &Settings) -> Result<Vapid, ChannelError> {
    let key = settings.key()?;
    let text = key.read("the key cannot be read")?;
    Ok(Vapid::new(&text, &settings.subject).map_err(|message| key.refuse(message))?)
}

// === impl WebPushSender ===

#[async_trait(?Send)]
impl Sender for WebPushSender {
    async fn send(&self, job: Job<'_>) {
        let shared = job.chunk.content.as_ref().map(|content| self.prepare(&job, content));
        drive(job, |delivery| self.attempt(&job, shared.as_ref(), delivery)).await;
    }

    async fn close(&self) {
        self.routes.close().await;
    }
}

impl WebPushSender {
    async fn attempt(
        &self,
        job: &Job<'_>,
        shared: Option<&Result<WebPushContent, Invalid>>,
        delivery: &Delivery,
    ) -> Result<Attempt, Attempt> {
        // Boxed: every attempt would carry the room for it.
        let own = delivery.content.as_deref().map(|content| Box::new(self.prepare(job, content)));
        let prepared = own_or_shared(own.as_deref(), shared)?;
        let Subscription { endpoint, keys } = self.channel.subscription(&delivery.recipient)?;
        let route = self.routes.route(&endpoint.origin)?;
        let WebPushChannel { vapid, ttl, pad_to, .. } = &self.channel;
        let Some(proof) = vapid.proof(&route.audience, timestamp(self.clock)) else {
            tracing::error!("the Web Push key does not sign");
            return Err(Attempt::unsent("the Web Push key does not sign", None));
        };
        // Last, since it is the dear part, and in vain without a route and a proof.
        let encrypting = self
            .encryption_turns
            .run(|| encrypt(&prepared.plaintext, &keys, &Ephemeral::generate()?, *pad_to));
        let refuse =
            |_| Attempt::impossible("the subscription's keys or the content cannot be used");
        let body = Bytes::from(encrypting.await.map_err(refuse)?);
        let head = WebPushHead {
            address: &route.address,
            prepared,
            path: &endpoint.path,
            authorization: &proof.authorization,
            bytes: body.len(),
            terms: Terms { expires_at: job.chunk.expires_at(delivery.index), ttl: *ttl },
            now: || timestamp(self.clock),
        };
        let reply = self.routes.exchange(Start::of(job, delivery), &route, &body, &head).await?;
        Ok(self.conclude(&reply, &proof))
    }

    fn prepare(&self, job: &Job<'_>, content: &Content) -> Result<WebPushContent, Invalid> {
        WebPushContent::new(content, job.priority(), &self.heads)
    }

    fn conclude(&self, reply: &Reply, proof: &Proof) -> Attempt {
        let (attempt, advice) = interpret(reply, timestamp(self.clock), proof.is_accepted());
        if (200..300).contains(&reply.status) {
            proof.accepted();
        }
        if advice == Advice::Alert && self.log_throttle.admits(self.clock) {
            tracing::error!(
                answer = %attempt.words(),
                "a push service refuses to know us: check key, subject and clock, and with which key pages subscribe"
            );
        }
        attempt.timed(reply.timing)
    }
}
