//! APNs as a channel.

use std::sync::Arc;

use async_trait::async_trait;
use flow::Clock;
use http::HeaderValue;
use http::uri::Authority;
use notification::Delivery;

use super::config::Settings;
use super::request::{Common, Encoded, Encoder, check_payload, check_token};
use super::response::{Advice, Delays, interpret};
use super::token::Token;
use crate::complaint::Complaint;
use crate::http2::{Dial, Pool, Priming, Reply, Stream};
use crate::tcp::Anywhere;
use crate::{Attempt, Channel, ChannelError, Invalid, Job, Sender, Tools, drive, timestamp, tls};

/// A way to Apple's devices.
#[derive(Debug, Clone)]
pub struct ApnsChannel {
    dial: Dial,
    authority: Authority,
    destination: Arc<str>,
    token: Arc<Token>,
    topic: String,
    concurrency: usize,
    connections_max: usize,
    delays: Delays,
}

#[derive(Debug)]
struct ApnsSender {
    pool: Pool,
    encoder: Encoder,
    token: Arc<Token>,
    delays: Delays,
    clock: Clock,
    complaint: Complaint,
}

/// A job, with what its deliveries share.
#[derive(Debug)]
struct Prepared<'a> {
    job: Job<'a>,
    common: Common,
    /// The chunk's own content, if it has one.
    shared: Option<Result<Encoded, Invalid>>,
}

// === impl ApnsChannel ===

impl ApnsChannel {
    /// A channel with `settings`. Reads the key and the certificates, and connects to nothing.
    pub fn new(settings: &Settings) -> Result<Self, ChannelError> {
        let (origin, authority) = settings.check()?;
        let token = Token::new(&settings.key_pem()?, &settings.key_id, &settings.team_id).map_err(
            |message| match &settings.key_file {
                Some(path) => ChannelError::File {
                    path: path.display().to_string(),
                    message: message.to_owned(),
                },
                None => ChannelError::Setting { setting: "key", message: message.to_owned() },
            },
        )?;
        let dial = Dial {
            provider: "APNs",
            origin,
            tls: tls::client(settings.ca_file.as_deref(), &[b"h2"])?,
            reach: Arc::new(Anywhere),
            priming: Priming::OneStream,
        };
        Ok(Self {
            dial,
            destination: authority.as_str().into(),
            authority,
            token: Arc::new(token),
            topic: settings.topic.clone(),
            concurrency: settings.concurrency,
            connections_max: settings.connections_max,
            delays: Delays {
                server_error: settings.server_error_delay,
                throttle: settings.throttle_delay,
            },
        })
    }
}

impl Channel for ApnsChannel {
    fn kind(&self) -> &'static str {
        "apns"
    }

    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        check_token(recipient)?;
        Ok(Arc::clone(&self.destination))
    }

    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        check_payload(payload, options)
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let clock = tools.clock;
        Ok(Box::new(ApnsSender {
            pool: Pool::new(self.dial.clone(), self.connections_max, tools),
            encoder: Encoder::new(self.authority.clone(), self.topic.clone()),
            token: Arc::clone(&self.token),
            delays: self.delays,
            clock,
            complaint: Complaint::default(),
        }))
    }
}

// === impl ApnsSender ===

#[async_trait(?Send)]
impl Sender for ApnsSender {
    async fn send(&self, job: Job<'_>) {
        let Some(authorization) = self.token.authorization(timestamp(self.clock)) else {
            tracing::error!("the APNs key does not sign");
            return drive(job, |_| async { Attempt::unsent("the APNs key does not sign", None) })
                .await;
        };
        let common = Common::new(job.chunk, authorization);
        let shared = job.chunk.content.as_ref();
        let shared = shared.map(|content| self.encoder.encode(content, &common));
        let prepared = Prepared { job, common, shared };
        drive(job, |delivery| self.attempt(&prepared, delivery)).await;
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

impl ApnsSender {
    async fn attempt(&self, prepared: &Prepared<'_>, delivery: &Delivery) -> Attempt {
        let Prepared { job, common, shared } = prepared;
        let own = delivery.content.as_ref().map(|content| self.encoder.encode(content, common));
        let encoded = match own.as_ref().or(shared.as_ref()) {
            Some(Ok(encoded)) => encoded,
            Some(Err(invalid)) => return Attempt::impossible(invalid.message.clone()),
            None => return Attempt::impossible("the store holds no content for it"),
        };
        let id = job.chunk.notification_id(delivery.index);
        let make = || self.encoder.request(encoded, &delivery.recipient, id);
        match self.pool.exchange(*job, &encoded.payload, make).await {
            Ok((reply, stream)) => self.conclude(&reply, &stream, &common.authorization),
            Err(attempt) => attempt,
        }
    }

    fn conclude(&self, reply: &Reply, stream: &Stream, authorization: &HeaderValue) -> Attempt {
        let (attempt, advice) = interpret(reply, self.delays);
        match advice {
            Advice::CarryOn => {}
            Advice::RenewToken => self.token.expired(authorization, timestamp(self.clock)),
            Advice::LeaveConnection => {
                stream.leave_connection();
            }
            Advice::Complain => self.complain(&attempt),
        }
        attempt
    }

    fn complain(&self, attempt: &Attempt) {
        if self.complaint.is_due(self.clock) {
            tracing::error!(answer = ?attempt.report, "APNs refuses the key: check key, key_id and team_id");
        }
    }
}
