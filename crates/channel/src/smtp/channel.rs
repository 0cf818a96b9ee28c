//! SMTP as a channel.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flow::{Clock, LogThrottle, Signal, Timing};
use net::guard::Guard;
use net::{tls, words};
use notification::{Answer, Delivery, Report};

use super::address;
use super::config::{MailTarget, Relay, Settings, TlsMode};
use super::dkim::DkimSigner;
use super::dns::{Dns, ResolveMail};
use super::pool::{NoSession, PooledSession, SessionPool, SessionPoolBounds};
use super::request::{AddressedMail, Composer, Mail};
use super::response::{Advice, SmtpDelays, declined, interpret};
use super::route::{Exchangers, Router, Servers};
use super::session::{NoConnection, SessionConfig};
use super::session_limits::may_end_session;
use super::transaction::{MailEnd, SmtpStage, transact};
use super::wire::SmtpReply;
use crate::answers::SETTINGS_DELAY;
use crate::checks::both;
use crate::{
    Attempt, Channel, ChannelError, Invalid, Job, LearnedBounds, SendBounds, Sender, Start, Tools,
    drive_patiently, own_or_shared, timestamp,
};

/// How long everything up to the last byte of a message may take. Five minutes is what RFC 5321, section 4.5.3.2, has for
/// one command; together with the ten for the final dot an attempt stays below
/// [`notification::limits::PATIENT_ATTEMPT_TIMEOUT`].
const UNTIL_SENT: Duration = Duration::from_mins(5);
/// How soon a mail is due again that found all connections in use.
const NO_SESSION_DELAY: Duration = Duration::from_secs(1);
/// The first learned number of mails under way to a domain's own servers: with as many Postfix begins
/// (`initial_destination_concurrency`).
const FIRST_TO_DOMAIN: usize = 5;
/// The first learned number of mails under way to a relay, which is there for our mail: as many as Postfix has under way to any
/// destination at most (`default_destination_concurrency_limit`).
const FIRST_TO_RELAY: usize = 20;

/// A channel to mailboxes.
#[derive(Debug, Clone)]
pub struct SmtpChannel {
    target: MailTarget,
    /// `None` where each domain is its own.
    destination: Option<Arc<str>>,
    /// The relay with the name that we log in by; `None` without one.
    quota_key: Option<Arc<str>>,
    session_config: SessionConfig,
    guard: Guard,
    name_servers: Vec<std::net::SocketAddr>,
    /// `None`: the name servers.
    resolver: Option<Arc<dyn ResolveMail>>,
    composer: Composer,
    bounds: SendBounds,
    limits: SessionPoolBounds,
    delays: SmtpDelays,
}

#[derive(Debug)]
struct SmtpSender {
    channel: SmtpChannel,
    pool: SessionPool,
    clock: Clock,
    log_throttle: LogThrottle,
}

// === impl SmtpChannel ===

impl SmtpChannel {
    /// A channel with `settings`. Reads the files that they name, and connects to nothing.
    pub fn new(settings: &Settings) -> Result<Self, ChannelError> {
        let checked = settings.check().and_then(|checked| {
            let connector = match checked.tls {
                TlsMode::Opportunistic => tls::client_without_verification(),
                TlsMode::Require | TlsMode::Off => {
                    tls::client(settings.ca_file.as_deref(), &[], None)
                }
            };
            Ok((checked, connector?))
        });
        let secrets = both(settings.credentials(), signer(settings));
        let ((checked, connector), (credentials, signer)) = both(checked, secrets)?;
        let session_config =
            SessionConfig { tls: checked.tls, connector, helo: settings.helo.clone(), credentials };
        let composer = Composer { from: checked.from, return_path: checked.return_path, signer };
        let (destination, first): (Option<Arc<str>>, _) = match &checked.target {
            MailTarget::Relay(relay) => (Some(Relay::to_string(relay).into()), FIRST_TO_RELAY),
            MailTarget::Mx { .. } => (None, FIRST_TO_DOMAIN),
        };
        let quota_key = destination.as_ref().zip(settings.username.as_ref());
        let quota_key = quota_key.map(|(relay, username)| format!("{relay}/{username}").into());
        // More mails than connections would only wait for them.
        let learned = LearnedBounds { first, min: 1, max: settings.connections_max };
        Ok(Self {
            target: checked.target,
            destination,
            quota_key,
            session_config,
            guard: Guard::new(settings.allow_networks.clone())
                .denying(settings.deny_networks.clone()),
            name_servers: settings.name_servers.clone(),
            resolver: None,
            composer,
            bounds: SendBounds::new(settings.concurrency, learned, settings.messages_per_minute),
            limits: SessionPoolBounds {
                connections_max: settings.connections_max,
                deliveries_per_connection: settings.deliveries_per_connection,
            },
            delays: SmtpDelays {
                deferred: settings.deferred_delay,
                greylisted: settings.greylisted_delay,
            },
        })
    }

    /// This channel with mail exchangers and their addresses found by `resolver`. The addresses are checked all the same.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn ResolveMail>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// The record that the domain has to publish for its signatures, as `SELECTOR._domainkey.DOMAIN`; `None` when nothing is signed.
    pub fn dkim_record(&self) -> Option<String> {
        self.composer.signer.as_ref().map(DkimSigner::record)
    }

    /// The destination of `recipient`, in its canonical spelling.
    fn destination_of(&self, recipient: &str) -> Arc<str> {
        match &self.destination {
            Some(relay) => Arc::clone(relay),
            None => address::domain_of(recipient).into(),
        }
    }

    fn router(&self) -> Result<Router, ChannelError> {
        let servers = match &self.target {
            MailTarget::Relay(relay) => Servers::Relay(relay.clone()),
            MailTarget::Mx { port } => {
                let resolver = match &self.resolver {
                    Some(resolver) => Arc::clone(resolver),
                    None => Arc::new(Dns::new(&self.name_servers)?),
                };
                Servers::Exchangers(Exchangers { resolver, guard: self.guard.clone(), port: *port })
            }
        };
        Ok(Router { session_config: self.session_config.clone(), servers })
    }
}

impl Channel for SmtpChannel {
    fn canonical<'a>(&self, recipient: &'a str) -> Result<Cow<'a, str>, Invalid> {
        address::canonical(recipient)
    }

    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        Ok(self.destination_of(&address::canonical(recipient)?))
    }

    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        self.composer.check(payload, options)
    }

    fn html_fields(&self) -> &'static [&'static str] {
        &["html"]
    }

    fn sender_address(&self, payload: &[u8]) -> Option<String> {
        self.composer.sender_address(payload)
    }

    fn bounds(&self) -> SendBounds {
        self.bounds
    }

    fn quota_key(&self, destination: &Arc<str>) -> Arc<str> {
        Arc::clone(self.quota_key.as_ref().unwrap_or(destination))
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let clock = tools.clock;
        Ok(Box::new(SmtpSender {
            pool: SessionPool::new(self.router()?, self.limits, tools),
            channel: self.clone(),
            clock,
            log_throttle: LogThrottle::default(),
        }))
    }
}

fn signer(settings: &Settings) -> Result<Option<DkimSigner>, ChannelError> {
    let Some(dkim) = &settings.dkim else { return Ok(None) };
    let key = dkim.key()?;
    let signer = DkimSigner::new(&key.read("cannot be read")?, &dkim.domain, &dkim.selector);
    Ok(Some(signer.map_err(|message| key.refuse(message))?))
}

// === impl SmtpSender ===

#[async_trait(?Send)]
impl Sender for SmtpSender {
    async fn send(&self, job: Job<'_>) {
        let shared = job.chunk.content.as_ref();
        let shared = shared.map(|content| self.channel.composer.compose(content));
        drive_patiently(job, |delivery| self.attempt(job, shared.as_ref(), delivery)).await;
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

impl SmtpSender {
    async fn attempt(
        &self,
        job: Job<'_>,
        shared: Option<&Result<Mail, Invalid>>,
        delivery: &Delivery,
    ) -> Result<Attempt, Attempt> {
        let own = delivery.content.as_deref().map(|content| self.channel.composer.compose(content));
        let mail = own_or_shared(own.as_ref(), shared)?;
        let recipient = address::canonical(&delivery.recipient)?;
        let id = job.chunk.notification_id(delivery.index);
        // Fixed for all attempts, since receivers know a repetition by it, and not before the mail was to leave.
        let date = job.chunk.due_since(delivery.index);
        let message = mail
            .message(&recipient, id, date, timestamp(self.clock))
            .ok_or_else(|| Attempt::unsent("the mail cannot be dated or signed", None))?;
        let destination = self.channel.destination_of(&recipient);
        Ok(self.deliver(Start::of(&job, delivery), &destination, &message).await)
    }

    /// Sends `message` over one connection after the other, until one does not end before it could be told anything.
    async fn deliver(
        &self,
        start: Start<'_>,
        destination: &Arc<str>,
        message: &AddressedMail<'_>,
    ) -> Attempt {
        let waiting_since = self.clock.monotonic();
        // One time for all connections that are tried: the lease reckons with a single attempt.
        let deadline = waiting_since + UNTIL_SENT;
        let mut refusal = None;
        while self.clock.monotonic() < deadline {
            let waiting = Box::pin(self.pool.session(destination));
            let mut session = match tokio::time::timeout_at(deadline, waiting).await {
                Ok(Ok(session)) => session,
                Ok(Err(NoSession::Full)) => return Attempt::handed_back(NO_SESSION_DELAY),
                Ok(Err(NoSession::Failed { why, is_new })) => {
                    return self.conclude_without(why, is_new);
                }
                Err(_elapsed) => break,
            };
            if let Err(report) = start.begin().await {
                // Nothing was said over it about this mail.
                self.pool.keep(session);
                return Attempt::not_started(report);
            }
            // Behind the mark, whose wait is no time of the server's.
            let sent_at = self.clock.monotonic();
            match transact(&mut session.connection, message, deadline).await {
                // On an old connection the server speaks of that, and not of this mail.
                MailEnd::Replied(stage, reply)
                    if session.is_reused && reply.is_closing() && stage != SmtpStage::Message => {}
                // A server may end an idle connection at any moment. It does not have the whole
                // mail, so another one can be tried.
                MailEnd::Cut(_) if session.is_reused => {}
                MailEnd::Replied(stage, reply)
                    if session.connection.mails_taken > 0 && may_end_session(stage, &reply) =>
                {
                    refusal = Some(self.pool.retire(session));
                }
                MailEnd::Replied(stage, reply) => {
                    // This session has taken the sender that the former one refused, so the
                    // refusal was about that session.
                    if stage != SmtpStage::Mail
                        && let Some(refusal) = refusal
                    {
                        self.pool.learn(refusal);
                    }
                    let reply = self.channel.session_config.redact(reply);
                    let (attempt, advice) = interpret(stage, &reply, self.channel.delays);
                    self.conclude(session, &reply, advice);
                    let on_wire = self.clock.monotonic() - sent_at;
                    return attempt.timed(Timing { waited: sent_at - waiting_since, on_wire });
                }
                MailEnd::Cut(why) => return Attempt::unsent(why, None),
                MailEnd::Lost(why) => return Attempt::lost(why),
                MailEnd::Impossible(why) => {
                    // Found before the first byte, so the connection is as good as before.
                    self.pool.keep(session);
                    return Attempt::impossible(why);
                }
            }
        }
        Attempt::unsent("no connection stood long enough", None)
    }

    fn conclude(&self, session: PooledSession, reply: &SmtpReply, advice: Advice) {
        if advice == Advice::Alert {
            self.log_refusal(&reply.status());
        }
        if advice != Advice::LeaveConnection && session.connection.is_good() {
            self.pool.keep(session);
        }
    }

    /// The result of an attempt without a connection.
    fn conclude_without(&self, why: NoConnection, is_new: bool) -> Attempt {
        match why {
            NoConnection::Unreachable(_, why) => Attempt::unsent(words::short(why), None),
            NoConnection::Busy(reply) => {
                // 4yz passes by itself; anything else needs an operator.
                if is_new && !matches!(reply.code, 400..=499) {
                    self.log_refusal(&reply.status());
                }
                Attempt::pushed_back(declined(&reply, None))
            }
            NoConnection::NotLoggedIn(reply) => {
                let why = format!("the server refuses user name or password: {}", reply.status());
                if is_new {
                    self.log_refusal(&why);
                }
                let answer = Answer::deferred(reply.code, Some(SETTINGS_DELAY), why).acted(false);
                let report = Report::Attempted(answer);
                Attempt::new(report, Signal::Silent)
            }
            NoConnection::Misconfigured(_, why) => {
                if is_new {
                    self.log_refusal(&why);
                }
                Attempt::unsent(words::short(why), Some(SETTINGS_DELAY))
            }
            NoConnection::NoHost(_, why) => Attempt::impossible(words::short(why)),
            // What a relay would answer (RFC 7505, section 4.2).
            NoConnection::NullMx(why) => {
                Attempt::answered(Answer::refused(556, true, words::short(why)))
            }
        }
    }

    /// Codes and our own words only: servers repeat addresses in theirs.
    fn log_refusal(&self, what: &str) {
        if self.log_throttle.admits(self.clock) {
            tracing::error!(
                what,
                "a mail server refuses more than one mail: check the channel's settings, and what the server's documentation says of this code"
            );
        }
    }
}
