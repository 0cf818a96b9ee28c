//! APNs as a channel.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use flow::{Clock, LogThrottle};
use http::header::AUTHORIZATION;
use http::uri::Authority;
use net::exchange::Reply;
use net::http2::{Dial, Http2Pool, Http2Stream, Priming, RequestOutcome, RequestOutcomes};
use net::request_head::SharedHead;
use net::tcp::Anywhere;
use net::tls::{self, Identity};
use net::tries;
use notification::Delivery;
use tokio::time::Instant;

use super::config::{Credential, Settings};
use super::request::{
    ApnsContent, ApnsEncoder, ApnsHead, canonical_token, check_payload, check_token,
};
use super::response::{Advice, ApnsDelays, Confirmed, READ_FIELDS, interpret};
use super::state::StateFile;
use super::token::{ProviderToken, ProviderTokens, TokenSigner};
use crate::attempts::{Again, Attempts};
use crate::checks::both;
use crate::{
    Attempt, Channel, ChannelError, ExpiringCredential, Invalid, Job, LearnedBounds, SendBounds,
    Sender, Start, Tools, drive, drive_all, own_or_shared, timestamp,
};

/// A channel to Apple's devices.
#[derive(Debug, Clone)]
pub struct ApnsChannel {
    dial: Dial,
    authority: Authority,
    destination: Arc<str>,
    quota_key: Arc<str>,
    /// `None` with a certificate.
    token: Option<Arc<ProviderToken>>,
    confirmations: Arc<Confirmations>,
    topic: String,
    collapses_on_retry: bool,
    bounds: SendBounds,
    connections_max: usize,
    delays: ApnsDelays,
    /// Until when its certificate is good, in seconds of Unix time.
    certificate_ends: Option<i64>,
}

/// Facts that acceptances have confirmed since the start, on any thread.
#[derive(Debug, Default)]
struct Confirmations {
    environment: OnceLock<()>,
    own_topic: OnceLock<()>,
}

#[derive(Debug)]
struct ApnsSender {
    channel: ApnsChannel,
    pool: Http2Pool,
    encoder: ApnsEncoder,
    clock: Clock,
    log_throttle: LogThrottle,
}

/// A job, with what its deliveries share.
#[derive(Debug)]
struct ApnsJob<'a> {
    sender: &'a ApnsSender,
    job: Job<'a>,
    /// With the current token: all deliveries that come after one that had to have it renewed use the new one. Without any where
    /// connections have a certificate.
    address: RefCell<Rc<SharedHead>>,
    /// The chunk's own content, if it has one.
    shared: Option<Result<ApnsContent, Invalid>>,
}

/// A request that waits for its outcome, and what it was made of.
#[derive(Debug)]
struct BegunApns {
    stream: Http2Stream,
    address: Rc<SharedHead>,
    own: Option<Box<Result<ApnsContent, Invalid>>>,
}

// === impl ApnsChannel ===

impl ApnsChannel {
    /// A channel with `settings`, whose token is one of `tokens`. Reads the key and the certificates, and connects to
    /// nothing.
    pub fn new(settings: &Settings, tokens: &ProviderTokens) -> Result<Self, ChannelError> {
        // APNs speaks nothing but HTTP/2.
        let client = |identity| tls::client(settings.ca_file.as_deref(), &[b"h2"], identity);
        let credential = both(credential(settings, tokens), client(None));
        let ((origin, authority), ((token, identity), tls)) = both(settings.check(), credential)?;
        let certificate_ends = identity.as_ref().and_then(Identity::not_after);
        // Made without the identity first, so that a mistake in `ca_file` is named beside one in the credential.
        let tls = if identity.is_some() { client(identity)? } else { tls };
        let dial = Dial {
            provider: "APNs",
            origin,
            tls,
            reach: Arc::new(Anywhere),
            // A certificate has been accepted before the first request.
            priming: if token.is_some() { Priming::OneStream } else { Priming::Unprimed },
            read_fields: &READ_FIELDS,
        };
        Ok(Self {
            dial,
            destination: authority.as_str().into(),
            quota_key: format!("{authority}/{}", settings.topic).into(),
            authority,
            token,
            confirmations: Arc::default(),
            topic: settings.topic.clone(),
            collapses_on_retry: settings.collapse_on_retry,
            bounds: SendBounds::new(
                settings.concurrency,
                LearnedBounds::PUSH_SERVICE,
                settings.messages_per_minute,
            ),
            connections_max: settings.connections_max,
            delays: ApnsDelays {
                server_error: settings.server_error_delay,
                throttle: settings.throttle_delay,
            },
            certificate_ends,
        })
    }
}

/// The credential: a token, or the certificate of the connections.
fn credential<'a>(
    settings: &'a Settings,
    tokens: &ProviderTokens,
) -> Result<(Option<Arc<ProviderToken>>, Option<Identity<'a>>), ChannelError> {
    match settings.credential()? {
        Credential::Key { key, pem, key_id, team_id } => {
            let directory = settings.state_directory.as_deref();
            let file = directory.map(|path| StateFile::new(path, team_id, key_id));
            let token = tokens.of(TokenSigner { key_pem: &pem, key_id, team_id }, file);
            Ok((Some(token.map_err(|message| key.refuse(message))?), None))
        }
        Credential::Certificate { certificate, key } => {
            Ok((None, Some(Identity::read(certificate, key)?)))
        }
    }
}

impl Channel for ApnsChannel {
    fn canonical<'a>(&self, recipient: &'a str) -> Result<Cow<'a, str>, Invalid> {
        Ok(canonical_token(recipient))
    }

    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        check_token(recipient)?;
        Ok(Arc::clone(&self.destination))
    }

    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        check_payload(payload, options)
    }

    fn credentials(&self, _clock: Clock) -> Vec<ExpiringCredential> {
        self.certificate_ends.map(ExpiringCredential::certificate).into_iter().collect()
    }

    fn bounds(&self) -> SendBounds {
        self.bounds
    }

    /// The topic: it is of one team, and tells its apps apart.
    fn quota_key(&self, _destination: &Arc<str>) -> Arc<str> {
        Arc::clone(&self.quota_key)
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let clock = tools.clock;
        let (authority, topic) = (self.authority.clone(), self.topic.clone());
        Ok(Box::new(ApnsSender {
            pool: Http2Pool::new(self.dial.clone(), self.connections_max, clock, tools.seed)
                .counted(tools.connections),
            encoder: ApnsEncoder::new(authority, topic, self.collapses_on_retry),
            channel: self.clone(),
            clock,
            log_throttle: LogThrottle::default(),
        }))
    }
}

// === impl ApnsSender ===

#[async_trait(?Send)]
impl Sender for ApnsSender {
    async fn send(&self, job: Job<'_>) {
        let Some(address) = self.address() else {
            tracing::error!("the APNs key does not sign");
            // What is not sent takes no place in the quota.
            let job = Job { quota: None, ..job };
            let refused = || Attempt::unsent("the APNs key does not sign", None);
            return drive(job, async |_| Err(refused())).await;
        };
        let shared = job.chunk.content.as_ref();
        let shared = shared.map(|content| self.encoder.encode(content, &job.chunk.envelope));
        let address = RefCell::new(address);
        drive_all(job, &ApnsJob { sender: self, job, address, shared }).await;
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

impl<'job> Attempts<'job> for ApnsJob<'job> {
    type Begun = BegunApns;

    fn pool(&self) -> Option<&Http2Pool> {
        Some(&self.sender.pool)
    }

    fn begin(
        &self,
        delivery: &'job Delivery,
        stream: Option<Http2Stream>,
        to: (&Rc<RequestOutcomes>, u16),
    ) -> Option<BegunApns> {
        let own = self.own(delivery);
        let encoded = self.encoded(own.as_deref()).ok()?;
        // Kept with the request: its answer is about the token that it was sent with, whichever the job uses by then.
        let address = Rc::clone(&self.address.borrow());
        let head = self.head(&address, encoded, delivery);
        let stream = stream?.begun(&head, &encoded.payload, to)?;
        Some(BegunApns { stream, address, own })
    }

    fn conclude(
        &self,
        delivery: &'job Delivery,
        mut begun: BegunApns,
        sent_at: Instant,
        outcome: RequestOutcome,
    ) -> Result<Attempt, Again> {
        let encoded = match self.encoded(begun.own.as_deref()) {
            Ok(encoded) => encoded,
            Err(impossible) => return Ok(impossible),
        };
        let head = self.head(&begun.address, encoded, delivery);
        match begun.stream.conclude(outcome, &head, sent_at) {
            Ok(answer) => {
                let (attempt, advice) = self.sender.conclude(encoded, &answer.reply, &begun.stream);
                if advice == Advice::RenewToken && self.renew(&begun.address) {
                    return Err(Again::with_another_credential());
                }
                Ok(attempt)
            }
            Err(failure) => Again::unless(failure, sent_at),
        }
    }

    async fn attempt(&self, delivery: &'job Delivery, again: Again) -> Result<Attempt, Attempt> {
        let own = self.own(delivery);
        let encoded = self.encoded(own.as_deref())?;
        // Once for a delivery: a new token that is refused as well is no better.
        let mut may_renew = !again.is_refused;
        loop {
            let address = Rc::clone(&self.address.borrow());
            let head = self.head(&address, encoded, delivery);
            let start = Start::of(&self.job, delivery);
            let exchange =
                tries::exchange(&self.sender.pool, start, &encoded.payload, &head, again.since);
            let (reply, stream) = exchange.await?;
            let (attempt, advice) = self.sender.conclude(encoded, &reply, &stream);
            if advice != Advice::RenewToken || !may_renew || !self.renew(&address) {
                return Ok(attempt);
            }
            may_renew = false;
        }
    }
}

impl ApnsJob<'_> {
    /// The content of a delivery, if it has one. Boxed: every attempt would carry the room for it.
    fn own(&self, delivery: &Delivery) -> Option<Box<Result<ApnsContent, Invalid>>> {
        let own = delivery.content.as_deref()?;
        Some(Box::new(self.sender.encoder.encode(own, &self.job.chunk.envelope_of(delivery.index))))
    }

    fn encoded<'a>(
        &'a self,
        own: Option<&'a Result<ApnsContent, Invalid>>,
    ) -> Result<&'a ApnsContent, Attempt> {
        own_or_shared(own, self.shared.as_ref())
    }

    fn head<'a>(
        &'a self,
        address: &'a Rc<SharedHead>,
        encoded: &'a ApnsContent,
        delivery: &'a Delivery,
    ) -> ApnsHead<'a> {
        ApnsHead { address, encoded, chunk: self.job.chunk, delivery }
    }

    /// Has the job go on with another token than the one of `expired`; APNs checks it first, so what had that was certainly not
    /// processed. Says whether there is one: it may be too soon.
    fn renew(&self, expired: &Rc<SharedHead>) -> bool {
        let sender = self.sender;
        // Told before the next one is asked for, or that would be this one again.
        if let (Some(token), Some(expired)) =
            (&sender.channel.token, expired.get(AUTHORIZATION.as_str()))
        {
            token.expired(expired, timestamp(sender.clock));
        }
        let Some(renewed) = sender.address() else { return false };
        // By value: the same token may be in a head of its own, made anew.
        let is_another = renewed.get(AUTHORIZATION.as_str()) != expired.get(AUTHORIZATION.as_str());
        if is_another {
            self.address.replace(renewed);
        }
        is_another
    }
}

impl ApnsSender {
    /// Interprets an answer. Its advice is followed but for a new token.
    fn conclude(
        &self,
        encoded: &ApnsContent,
        reply: &Reply,
        stream: &Http2Stream,
    ) -> (Attempt, Advice) {
        let confirmations = &self.channel.confirmations;
        let confirmed = confirmations.so_far(encoded.is_own_topic);
        let (attempt, advice) = interpret(reply, self.channel.delays, confirmed);
        if reply.status == 200 {
            confirmations.add(encoded.is_own_topic);
        }
        self.follow(advice, &attempt, stream);
        (attempt.timed(reply.timing), advice)
    }

    /// APNs, with the token as of now; `None` when the key does not sign.
    fn address(&self) -> Option<Rc<SharedHead>> {
        let authorization = match &self.channel.token {
            Some(token) => Some(token.authorization(timestamp(self.clock))?),
            None => None,
        };
        Some(self.encoder.address(authorization))
    }

    fn follow(&self, advice: Advice, attempt: &Attempt, stream: &Http2Stream) {
        match advice {
            // A new token is a matter of the job.
            Advice::CarryOn | Advice::RenewToken => {}
            Advice::LeaveConnection => {
                stream.leave_connection();
            }
            Advice::Alert => self.log_refusal(attempt, "check key, key_id, team_id or the certificate"),
            Advice::Doubt => self.log_refusal(
                attempt,
                "no device was accepted since the start: check whether endpoint and topic are the app's",
            ),
        }
    }

    fn log_refusal(&self, attempt: &Attempt, advice: &str) {
        // A wrong key fails every delivery alike: one line now and then says it for all.
        if self.log_throttle.admits(self.clock) {
            tracing::error!(answer = %attempt.words(), advice, "APNs refuses");
        }
    }
}

// === impl Confirmations ===

impl Confirmations {
    /// The facts by which the next answer is read.
    fn so_far(&self, is_own_topic: bool) -> Confirmed {
        Confirmed {
            environment: self.environment.get().is_some(),
            topic: is_own_topic && self.own_topic.get().is_some(),
        }
    }

    /// A device was accepted.
    fn add(&self, is_own_topic: bool) {
        // Every acceptance comes here, on every thread: all but the first only read.
        self.environment.get_or_init(|| ());
        if is_own_topic {
            self.own_topic.get_or_init(|| ());
        }
    }
}
