//! FCM as a channel.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use flow::{Clock, LogThrottle};
use http::uri::Authority;
use net::exchange::Reply;
use net::http2::{Dial, Pool, Priming};
use net::tasks::LocalTasks;
use net::tcp::Anywhere;
use net::tls;
use notification::{Delivery, Report, Verdict};

use super::config::{CheckedSettings, Settings};
use super::oauth::Refused;
use super::request::{Encoded, Encoder, FcmHead, FcmTarget, check_content};
use super::response::{Advice, READ_FIELDS, interpret};
use super::token::TokenSource;
use crate::checks::both;
use crate::{
    Attempt, Channel, ChannelError, Concurrency, Invalid, Job, LearnedBounds, Sender, Start, Tools,
    drive, own_or_shared, timestamp,
};

/// How long messages wait whose account is refused: an operator has to correct it.
const ACCOUNT_DELAY: Duration = Duration::from_mins(15);

/// A channel to the apps of one Firebase project.
#[derive(Debug, Clone)]
pub struct FcmChannel {
    dial: Dial,
    authority: Authority,
    project_id: String,
    destination: Arc<str>,
    tokens: Arc<TokenSource>,
    messages_per_minute: Option<NonZeroU32>,
    concurrency: Concurrency,
    connections_max: usize,
}

#[derive(Debug)]
struct FcmSender {
    pool: Pool,
    encoder: Encoder,
    tokens: Arc<TokenSource>,
    clock: Clock,
    random: RefCell<fastrand::Rng>,
    /// Asks for the next token. Ends with the sender.
    renewal: LocalTasks,
    log_throttle: LogThrottle,
}

/// A job, with what its deliveries share.
#[derive(Debug)]
struct Prepared<'a> {
    job: Job<'a>,
    /// The current one: all deliveries that come after one that had to have it renewed use the new one.
    head: RefCell<Rc<FcmHead>>,
    /// Whether its first acceptance was noted.
    is_accepted: Cell<bool>,
    /// The chunk's own content, if it has one.
    shared: Option<Result<Encoded, Invalid>>,
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
        let CheckedSettings { account, project_id, origin, authority, token_uri } = checked;
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
            messages_per_minute: NonZeroU32::new(settings.messages_per_minute),
            destination,
            concurrency: settings.concurrency,
            connections_max: settings.connections_max,
        })
    }
}

impl Channel for FcmChannel {
    fn kind(&self) -> &'static str {
        "fcm"
    }

    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        FcmTarget::parse(recipient)?;
        Ok(Arc::clone(&self.destination))
    }

    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        check_content(payload, options)
    }

    fn concurrency(&self) -> Concurrency {
        self.concurrency
    }

    fn learned_bounds(&self) -> LearnedBounds {
        LearnedBounds::PUSH_SERVICE
    }

    fn messages_per_minute(&self) -> Option<NonZeroU32> {
        self.messages_per_minute
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let encoder = Encoder::new(self.authority.clone(), &self.project_id);
        let encoder = encoder.ok_or_else(|| ChannelError::Setting {
            setting: "project_id",
            message: "makes no address with the endpoint".to_owned(),
        })?;
        Ok(Box::new(FcmSender {
            pool: Pool::new(self.dial.clone(), self.connections_max, tools.clock, tools.seed),
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
                return drive(job, |_| async { unsent(&refused) }).await;
            }
        };
        let shared = job.chunk.content.as_ref().map(|content| {
            Encoded::new(content, job.chunk.envelope.expires_at, timestamp(self.clock))
        });
        let prepared = Prepared { job, head, is_accepted: Cell::new(false), shared };
        drive(job, |delivery| self.attempt(&prepared, delivery)).await;
    }

    async fn close(&self) {
        self.pool.close().await;
        self.renewal.abort().await;
    }
}

impl FcmSender {
    async fn attempt(&self, prepared: &Prepared<'_>, delivery: &Delivery) -> Attempt {
        let body = match self.body(prepared, delivery) {
            Ok(body) => body,
            Err(impossible) => return impossible,
        };
        let start = Start::of(&prepared.job, delivery);
        let mut may_renew = true;
        loop {
            let head = Rc::clone(&prepared.head.borrow());
            let (attempt, advice) = match self.pool.exchange(start, &body, &*head).await {
                Ok((reply, _stream)) => self.interpret(&reply, start),
                Err(failure) => return failure.into(),
            };
            // FCM checks the token first, so the message was certainly not processed. A new one that is no better is not renewed
            // again.
            let has_expired = advice == Advice::RenewToken
                && may_renew
                && self.tokens.rejected(&head.authorization, self.clock.monotonic());
            if !has_expired {
                self.note(prepared, &head, &attempt);
                return self.follow(advice, &prepared.job, attempt);
            }
            may_renew = false;
            // Dropped, and boxed: every attempt would carry the room for both.
            drop(attempt);
            if let Err(refused) = Box::pin(self.renew(prepared)).await {
                return unsent(&refused);
            }
        }
    }

    fn interpret(&self, reply: &Reply, start: Start<'_>) -> (Attempt, Advice) {
        let (attempt, advice) = interpret(reply, start.attempt_number(), timestamp(self.clock));
        (attempt.timed(reply.timing), advice)
    }

    /// Has the token's source know that the account is good, once in a job.
    fn note(&self, prepared: &Prepared<'_>, head: &FcmHead, attempt: &Attempt) {
        let is_acceptance = matches!(&attempt.report,
            Report::Attempted(answer) if answer.verdict == Verdict::Accepted);
        if is_acceptance && !prepared.is_accepted.get() {
            prepared.is_accepted.set(self.tokens.accepted(&head.authorization));
        }
    }

    /// Has the job go on with another token.
    async fn renew(&self, prepared: &Prepared<'_>) -> Result<(), Refused> {
        let renewed = self.head().await?;
        prepared.head.replace(Rc::new(renewed));
        // The acceptance that was noted was one of the former token.
        prepared.is_accepted.set(false);
        Ok(())
    }

    /// The body for `delivery`; otherwise what is to be reported.
    fn body(&self, prepared: &Prepared<'_>, delivery: &Delivery) -> Result<Bytes, Attempt> {
        let Prepared { job, shared, .. } = prepared;
        let expires_at = job.chunk.envelope.expires_at;
        let own = delivery.content.as_deref();
        let own = own.map(|content| Encoded::new(content, expires_at, timestamp(self.clock)));
        let encoded = own_or_shared(own.as_ref(), shared.as_ref())?;
        let target = FcmTarget::parse(&delivery.recipient)
            .and_then(|target| encoded.check_size(target).map(|()| target))
            .map_err(|invalid| Attempt::impossible(invalid.message))?;
        Ok(self.encoder.body(encoded, target))
    }

    /// The head of requests, with the access token as of now.
    async fn head(&self) -> Result<FcmHead, Refused> {
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

/// The result of an attempt without an access token.
fn unsent(refused: &Refused) -> Attempt {
    match refused {
        Refused::Account(message) => Attempt::unsent(message.clone(), Some(ACCOUNT_DELAY)),
        Refused::ForNow(message) => Attempt::unsent(message.clone(), None),
    }
}
