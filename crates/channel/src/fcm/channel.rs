//! FCM as a channel.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use flow::{Clock, LogThrottle};
use http::uri::Authority;
use net::exchange::Reply;
use net::http2::{Dial, Http2Pool, Http2Stream, Priming, RequestOutcome, RequestOutcomes};
use net::tasks::LocalTasks;
use net::tcp::Anywhere;
use net::{tls, tries};
use notification::{Delivery, Report, Verdict};
use tokio::time::Instant;

use super::config::{CheckedFcmSettings, Settings};
use super::oauth::TokenError;
use super::request::{FcmContent, FcmEncoder, FcmHead, FcmTarget, check_content};
use super::response::{Advice, READ_FIELDS, interpret};
use super::token::TokenSource;
use crate::answers::SETTINGS_DELAY;
use crate::attempts::{Again, Attempts};
use crate::checks::both;
use crate::{
    Attempt, Channel, ChannelError, ExpiringCredential, Invalid, Job, LearnedBounds, SendBounds,
    Sender, Start, Tools, drive, drive_all, own_or_shared, timestamp,
};

/// A channel to the apps of one Firebase project.
#[derive(Debug, Clone)]
pub struct FcmChannel {
    dial: Dial,
    authority: Authority,
    project_id: String,
    destination: Arc<str>,
    tokens: Arc<TokenSource>,
    bounds: SendBounds,
    connections_max: usize,
}

#[derive(Debug)]
struct FcmSender {
    pool: Http2Pool,
    encoder: FcmEncoder,
    tokens: Arc<TokenSource>,
    clock: Clock,
    random: RefCell<fastrand::Rng>,
    /// Asks for the next token. Ends with the sender.
    renewal: LocalTasks,
    log_throttle: LogThrottle,
}

/// A job, with what its deliveries share.
#[derive(Debug)]
struct FcmJob<'a> {
    sender: &'a FcmSender,
    job: Job<'a>,
    /// The current one: all deliveries that come after one that had to have it renewed use the new one.
    head: RefCell<Rc<FcmHead>>,
    /// True once its first acceptance was noted.
    is_accepted: Cell<bool>,
    /// The chunk's own content, if it has one.
    shared: Option<Result<FcmContent, Invalid>>,
}

/// A request that waits for its outcome, and its head.
#[derive(Debug)]
struct BegunFcm {
    stream: Http2Stream,
    head: Rc<FcmHead>,
}

// === impl FcmChannel ===

impl FcmChannel {
    /// A channel with `settings`. Reads the account and the certificates, and connects to nothing.
    pub fn new(settings: &Settings) -> Result<Self, ChannelError> {
        let ca_file = settings.ca_file.as_deref();
        // Messages go over HTTP/2, and the token endpoint is asked in HTTP/1.1.
        let tls =
            both(tls::client(ca_file, &[b"h2"], None), tls::client(ca_file, &[b"http/1.1"], None));
        let (checked, (tls, tls_http1)) = both(settings.check(), tls)?;
        let CheckedFcmSettings { account, project_id, origin, authority, token_uri } = checked;
        let tokens = TokenSource::new(account, token_uri, tls_http1);
        let destination: Arc<str> = format!("{authority}/{project_id}").into();
        Ok(Self {
            dial: Dial {
                provider: "FCM",
                origin,
                tls,
                reach: Arc::new(Anywhere),
                priming: Priming::Unprimed,
                read_fields: &READ_FIELDS,
            },
            authority,
            project_id,
            tokens: Arc::new(tokens),
            destination,
            bounds: SendBounds::new(
                settings.concurrency,
                LearnedBounds::PUSH_SERVICE,
                settings.messages_per_minute,
            ),
            connections_max: settings.connections_max,
        })
    }
}

impl Channel for FcmChannel {
    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        FcmTarget::parse(recipient)?;
        Ok(Arc::clone(&self.destination))
    }

    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        check_content(payload, options)
    }

    fn credentials(&self, clock: Clock) -> Vec<ExpiringCredential> {
        let (now, wall) = (clock.monotonic(), clock.wall());
        let ends = self.tokens.ends_at().and_then(|ends_at| {
            let left = ends_at.saturating_duration_since(now);
            let past = now.saturating_duration_since(ends_at);
            i64::try_from((wall + left).saturating_sub(past).as_secs()).ok()
        });
        let token = |expires_at| ExpiringCredential { what: "access_token", expires_at };
        ends.map(token).into_iter().collect()
    }

    fn bounds(&self) -> SendBounds {
        self.bounds
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let encoder = FcmEncoder::new(self.authority.clone(), &self.project_id);
        let encoder = encoder.ok_or_else(|| {
            ChannelError::setting("project_id", "makes no address with the endpoint")
        })?;
        Ok(Box::new(FcmSender {
            pool: Http2Pool::new(self.dial.clone(), self.connections_max, tools.clock, tools.seed)
                .counted(tools.connections),
            encoder,
            tokens: Arc::clone(&self.tokens),
            clock: tools.clock,
            random: RefCell::new(fastrand::Rng::with_seed(tools.seed)),
            renewal: LocalTasks::default(),
            log_throttle: LogThrottle::default(),
        }))
    }
}

// === impl FcmSender ===

#[async_trait(?Send)]
impl Sender for FcmSender {
    async fn send(&self, job: Job<'_>) {
        let head = match self.head().await {
            Ok(head) => RefCell::new(Rc::new(head)),
            // What is not sent takes no place in the quota.
            Err(refused) => {
                let job = Job { quota: None, ..job };
                return drive(job, async |_| Err(refused.clone().into())).await;
            }
        };
        let shared = job.chunk.content.as_ref().map(|content| {
            FcmContent::new(content, job.chunk.envelope.expires_at, timestamp(self.clock))
        });
        let is_accepted = Cell::new(false);
        drive_all(job, &FcmJob { sender: self, job, head, is_accepted, shared }).await;
    }

    async fn close(&self) {
        self.pool.close().await;
        self.renewal.abort().await;
    }
}

impl<'job> Attempts<'job> for FcmJob<'job> {
    type Begun = BegunFcm;

    fn pool(&self) -> Option<&Http2Pool> {
        Some(&self.sender.pool)
    }

    fn begin(
        &self,
        delivery: &'job Delivery,
        stream: Option<Http2Stream>,
        to: (&Rc<RequestOutcomes>, u16),
    ) -> Option<BegunFcm> {
        let body = self.body(delivery).ok()?;
        // Kept with the request: its answer is about the token that it was sent with, whichever the job uses by then.
        let head = Rc::clone(&self.head.borrow());
        let stream = stream?.begun(&*head, &body, to)?;
        Some(BegunFcm { stream, head })
    }

    fn conclude(
        &self,
        _delivery: &'job Delivery,
        mut begun: BegunFcm,
        sent_at: Instant,
        outcome: RequestOutcome,
    ) -> Result<Attempt, Again> {
        match begun.stream.conclude(outcome, &*begun.head, sent_at) {
            Ok(answer) => {
                let (attempt, advice) = self.interpret(&answer.reply);
                if advice == Advice::RenewToken && self.has_expired(&begun.head) {
                    return Err(Again::with_another_credential());
                }
                Ok(self.end(&begun.head, attempt, advice))
            }
            Err(failure) => Again::unless(failure, sent_at),
        }
    }

    async fn attempt(&self, delivery: &'job Delivery, again: Again) -> Result<Attempt, Attempt> {
        let body = self.body(delivery)?;
        let start = Start::of(&self.job, delivery);
        let mut is_refused = again.is_refused;
        loop {
            if is_refused {
                // Boxed: every attempt would carry the room for it.
                Box::pin(self.renew()).await?;
            }
            let head = Rc::clone(&self.head.borrow());
            let exchange = tries::exchange(&self.sender.pool, start, &body, &*head, again.since);
            let (reply, _stream) = exchange.await?;
            let (attempt, advice) = self.interpret(&reply);
            // A new one that is no better is not renewed again.
            if advice != Advice::RenewToken || is_refused || !self.has_expired(&head) {
                return Ok(self.end(&head, attempt, advice));
            }
            is_refused = true;
        }
    }
}

impl FcmJob<'_> {
    fn interpret(&self, reply: &Reply) -> (Attempt, Advice) {
        let now = timestamp(self.sender.clock);
        let (attempt, advice) = interpret(reply, self.job.chunk.attempt, now);
        (attempt.timed(reply.timing), advice)
    }

    /// True if the access token of `head`, which was refused, is given up for another one. FCM checks it first, so the message was
    /// certainly not processed.
    fn has_expired(&self, head: &FcmHead) -> bool {
        self.sender.tokens.rejected(&head.authorization, self.sender.clock.monotonic())
    }

    /// Has the job go on with another token.
    async fn renew(&self) -> Result<(), TokenError> {
        let renewed = self.sender.head().await?;
        self.head.replace(Rc::new(renewed));
        // The acceptance that was noted was one of the former token.
        self.is_accepted.set(false);
        Ok(())
    }

    /// Ends an attempt that was answered. Has the token's source know that the account is good, once in a job.
    fn end(&self, head: &FcmHead, attempt: Attempt, advice: Advice) -> Attempt {
        let is_acceptance = matches!(&attempt.report,
            Report::Attempted(answer) if answer.verdict == Verdict::Accepted);
        // The source is behind a lock that all threads share.
        if is_acceptance && !self.is_accepted.get() {
            self.is_accepted.set(self.sender.tokens.accepted(&head.authorization));
        }
        self.sender.follow(advice, &self.job, attempt)
    }

    /// The body for `delivery`; otherwise what is to be reported.
    fn body(&self, delivery: &Delivery) -> Result<Bytes, Attempt> {
        let expires_at = self.job.chunk.expires_at(delivery.index);
        let own = delivery.content.as_deref();
        let own =
            own.map(|content| FcmContent::new(content, expires_at, timestamp(self.sender.clock)));
        let encoded = own_or_shared(own.as_ref(), self.shared.as_ref())?;
        let target = FcmTarget::parse(&delivery.recipient)?;
        encoded.check_size(target)?;
        Ok(self.sender.encoder.body(encoded, target))
    }
}

impl FcmSender {
    /// The head of requests, with the access token as of now.
    async fn head(&self) -> Result<FcmHead, TokenError> {
        // A fork, since a borrow of the generator must not last over the wait.
        let (clock, mut random) = (self.clock, self.random.borrow_mut().fork());
        let (authorization, renewal) = self.tokens.authorization(clock, &mut random).await?;
        if let Some(asking) = renewal {
            self.renewal.spawn(async move { asking.ask(clock, &mut random).await });
        }
        Ok(self.encoder.head(authorization))
    }

    /// Does what an answer asks for, and gives back what its attempt came to.
    fn follow(&self, advice: Advice, job: &Job<'_>, attempt: Attempt) -> Attempt {
        match advice {
            Advice::CarryOn => {}
            Advice::Pause(span) => {
                // All threads share it, so no other one sends into a quota that is used up.
                if let Some(quota) = job.quota {
                    quota.pause(self.clock.monotonic(), span);
                }
            }
            Advice::RenewToken | Advice::Alert => {
                if self.log_throttle.admits(self.clock) {
                    tracing::error!(
                        answer = %attempt.words(),
                        "FCM refuses the service account: check its project, its rights and the project's set-up"
                    );
                }
            }
        }
        attempt
    }
}

impl From<TokenError> for Attempt {
    /// The result of an attempt without an access token.
    fn from(refused: TokenError) -> Self {
        match refused {
            TokenError::Account(message) => Self::unsent(message, Some(SETTINGS_DELAY)),
            TokenError::ForNow(message) => Self::unsent(message, None),
        }
    }
}
