//! Reading through a durable pull consumer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{self, AckKind};
use async_nats::{Client, StatusCode, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use flow::{Clock, Tasks};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout, timeout_at};

use super::link::{ANSWER_TIMEOUT, NatsConnector, close, is_connected};
use crate::connect::NatsAddress;
use crate::{Source, StreamError, StreamMessage, StreamReceipt};

/// Options of a source.
#[derive(Debug, Clone)]
pub struct NatsSourceOptions {
    /// The subject, wildcards included. Messages of it must be in one stream.
    pub subject: String,
    /// The durable consumer, which sources of one name share. Created when it is missing: it begins with the oldest message then.
    pub consumer: String,
    /// More root certificates to trust, PEM.
    pub ca_file: Option<PathBuf>,
}

/// A subject that is read from. Connects with the first fetch.
#[derive(Debug)]
pub struct NatsSource {
    connector: NatsConnector,
    options: NatsSourceOptions,
    link: tokio::sync::Mutex<Option<SourceLink>>,
    held: Arc<Mutex<HeldMessages>>,
}

/// A connection, and the request that is under way.
#[derive(Debug)]
struct SourceLink {
    client: Client,
    jetstream: jetstream::Context,
    /// Subject of requests for messages.
    subject: String,
    /// Subject on which messages arrive.
    inbox: String,
    subscriber: Subscriber,
    /// Messages that the request under way may still bring; 0 when there is none.
    missing: usize,
    /// When the request under way has ended for certain.
    ends_at: Instant,
    /// Messages that arrived for a fetch that is not done, or was dropped.
    arrived: Vec<StreamMessage>,
    /// Keeps what is held from being given out again.
    _keeping: Tasks,
    clock: Clock,
}

/// The messages that were given and not acknowledged, by their receipts.
#[derive(Default)]
struct HeldMessages {
    next: u64,
    messages: BTreeMap<u64, Arc<Acker>>,
}

/// Time for which a silent source may hold a message before another one gets it.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Interval in which the server is told that what is held is being worked on.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// Further time after which a request is taken for lost.
const GRACE: Duration = Duration::from_secs(5);

const _: () = assert!(2 * KEEP_EVERY.as_secs() < ANSWER_WAIT.as_secs());

// === impl NatsSource ===

impl NatsSource {
    /// A source at the server of `address`.
    pub fn new(address: NatsAddress, options: NatsSourceOptions, clock: Clock) -> Self {
        let NatsSourceOptions { subject, ca_file, .. } = &options;
        let (ca_file, name) = (ca_file.clone(), format!("from {subject}"));
        let connector = NatsConnector { address, ca_file, name, clock };
        Self { connector, options, link: tokio::sync::Mutex::default(), held: Arc::default() }
    }

    async fn connect(&self) -> Result<SourceLink, StreamError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| self.connector.failed(what, error);
        let (client, jetstream) = self.connector.connect().await?;
        let NatsSourceOptions { subject, consumer: name, .. } = &self.options;
        let stream = jetstream.stream_by_subject(subject).await;
        let what = format!("there must be a stream of {subject}");
        let stream = stream.map_err(|error| failed(&what, &error))?;
        let config = pull::Config {
            durable_name: Some(name.clone()),
            filter_subject: subject.clone(),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ANSWER_WAIT,
            // What a source holds is bounded by its caller.
            max_ack_pending: -1,
            ..pull::Config::default()
        };
        let what = format!("consumer {name} of stream {stream}");
        let found = jetstream.get_stream_no_info(&stream).await;
        let found = found.map_err(|error| failed(&what, &error))?;
        let consumer = found.get_or_create_consumer(name, config).await;
        let consumer: PullConsumer = consumer.map_err(|error| failed(&what, &error))?;
        let config = &consumer.cached_info().config;
        if config.filter_subject != *subject || config.ack_policy != AckPolicy::Explicit {
            return Err(StreamError::Refused(format!(
                "NATS at {}: {what} has another subject, or acknowledges otherwise: delete it, or choose another name",
                self.connector.address
            )));
        }
        let inbox = client.new_inbox();
        let subscriber = client.subscribe(inbox.clone()).await;
        let subscriber = subscriber.map_err(|error| failed("an inbox", &error))?;
        let mut keeping = Tasks::default();
        keeping.spawn("kept messages of NATS", keep(Arc::clone(&self.held)));
        let clock = self.connector.clock;
        Ok(SourceLink {
            client,
            jetstream,
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"),
            inbox,
            subscriber,
            missing: 0,
            ends_at: clock.monotonic(),
            arrived: Vec::new(),
            _keeping: keeping,
            clock,
        })
    }

    async fn acknowledge_held(&self, held: &[Option<Arc<Acker>>]) -> Result<(), StreamError> {
        let failed = |error: &dyn std::fmt::Display| self.connector.failed("acknowledging", error);
        let mut ackers = held.iter().flatten();
        let last = ackers.next_back();
        for acker in ackers {
            acker.ack().await.map_err(|error| failed(&error))?;
        }
        // The server takes acknowledgements of one connection in order: with the last one it confirms all.
        let Some(last) = last else { return Ok(()) };
        last.double_ack().await.map_err(|error| failed(&error))
    }
}

#[async_trait]
impl Source for NatsSource {
    async fn fetch(
        &self,
        messages: usize,
        wait: Duration,
    ) -> Result<Vec<StreamMessage>, StreamError> {
        let mut link = self.link.lock().await;
        let is_lost = link.as_ref().is_none_or(|link| !is_connected(&link.client));
        if is_lost {
            // What was held by the lost one comes again.
            *link = None;
            self.held().messages.clear();
        }
        let current = match &mut *link {
            Some(current) => current,
            none => none.insert(self.connect().await?),
        };
        let fetched = current.fetch(messages, wait, &self.held).await;
        if fetched.is_err() {
            *link = None;
            self.held().messages.clear();
        }
        fetched.map_err(|error| self.connector.failed("fetching", error))
    }

    async fn acknowledge(&self, receipts: &[StreamReceipt]) -> Vec<Result<(), StreamError>> {
        let held = self.take_held(receipts);
        let answer = timeout(ANSWER_TIMEOUT, self.acknowledge_held(&held)).await;
        let answer =
            answer.unwrap_or_else(|late| Err(self.connector.failed("acknowledging", late)));
        let one = |held: &Option<Arc<Acker>>| match held {
            Some(_) => answer.clone(),
            None => Err(self.connector.failed("acknowledging", "it came by another connection")),
        };
        held.iter().map(one).collect()
    }

    async fn give_back(&self, receipts: &[StreamReceipt]) {
        for acker in self.take_held(receipts).iter().flatten() {
            if acker.ack_with(AckKind::Nak(None)).await.is_err() {
                return;
            }
        }
    }

    async fn close(&self) {
        let Some(link) = self.link.lock().await.take() else { return };
        let receipts: Vec<StreamReceipt> =
            self.held().messages.keys().copied().map(StreamReceipt).collect();
        self.give_back(&receipts).await;
        close(&link.client).await;
    }
}

impl NatsSource {
    fn held(&self) -> MutexGuard<'_, HeldMessages> {
        lock(&self.held)
    }

    fn take_held(&self, receipts: &[StreamReceipt]) -> Vec<Option<Arc<Acker>>> {
        let mut held = self.held();
        receipts.iter().map(|receipt| held.messages.remove(&receipt.0)).collect()
    }
}

// === impl SourceLink ===

impl SourceLink {
    /// Messages of one request, or of the one that a dropped fetch left.
    async fn fetch(
        &mut self,
        messages: usize,
        wait: Duration,
        held: &Mutex<HeldMessages>,
    ) -> Result<Vec<StreamMessage>, String> {
        let deadline = self.clock.monotonic() + wait;
        while self.arrived.len() < messages {
            if self.missing == 0 {
                let left = deadline.saturating_duration_since(self.clock.monotonic());
                if left.is_zero() || !self.arrived.is_empty() {
                    break;
                }
                self.ask(messages, left).await?;
            }
            let Ok(arrived) = timeout_at(self.ends_at, self.subscriber.next()).await else {
                // The server ends every request, unless it never got it.
                return Err(format!("a request to {} was not answered", self.subject));
            };
            match arrived {
                None => return Err("the connection was lost".to_owned()),
                Some(message) => self.take(message, held)?,
            }
        }
        let count = messages.min(self.arrived.len());
        Ok(self.arrived.drain(..count).collect())
    }

    /// Asks for what there is, up to `messages`; the server waits for the first of them.
    async fn ask(&mut self, messages: usize, wait: Duration) -> Result<(), String> {
        let expires = wait.as_nanos();
        let request =
            format!("{{\"batch\":{messages},\"no_wait\":true,\"expires\":{expires}}}").into();
        let (subject, inbox) = (self.subject.clone(), self.inbox.clone());
        let asked = self.client.publish_with_reply(subject, inbox, request).await;
        asked.map_err(|error| error.to_string())?;
        (self.missing, self.ends_at) = (messages, self.clock.monotonic() + wait + GRACE);
        Ok(())
    }

    fn take(
        &mut self,
        message: async_nats::Message,
        held: &Mutex<HeldMessages>,
    ) -> Result<(), String> {
        match message.status {
            None => {
                self.missing = self.missing.saturating_sub(1);
                let message = jetstream::Message { message, context: self.jetstream.clone() };
                let id = match message.info() {
                    Ok(info) => {
                        let stored_at = info.published.unix_timestamp_nanos();
                        format!("{}:{}:{stored_at}", info.stream, info.stream_sequence)
                    }
                    Err(error) => return Err(error.to_string()),
                };
                let (message, acker) = message.split();
                let receipt = lock(held).hold(acker);
                let key = Some(Bytes::copy_from_slice(message.subject.as_bytes()));
                self.arrived.push(StreamMessage { id, key, body: Some(message.payload), receipt });
                Ok(())
            }
            // The server ends a request in these ways when its time is over, or when nothing more waits.
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                self.missing = 0;
                Ok(())
            }
            Some(StatusCode::NO_RESPONDERS) => Err("its consumer was deleted".to_owned()),
            Some(status) => {
                let text = message.description.unwrap_or_default();
                Err(format!("the server ended a request: {status} {text}"))
            }
        }
    }
}

// === impl HeldMessages ===

impl HeldMessages {
    fn hold(&mut self, acker: Acker) -> StreamReceipt {
        self.next += 1;
        self.messages.insert(self.next, Arc::new(acker));
        StreamReceipt(self.next)
    }

    /// The first that is held, from `receipt` on.
    fn first_from(&self, receipt: u64) -> Option<(u64, Arc<Acker>)> {
        let (receipt, acker) = self.messages.range(receipt..).next()?;
        Some((*receipt, Arc::clone(acker)))
    }
}

impl std::fmt::Debug for HeldMessages {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("HeldMessages")
            .field("held", &self.messages.len())
            .finish_non_exhaustive()
    }
}

/// Tells the server now and then that what is held is being worked on.
async fn keep(held: Arc<Mutex<HeldMessages>>) {
    let mut turns = tokio::time::interval(KEEP_EVERY);
    loop {
        turns.tick().await;
        let mut next = 0;
        // One at a time: the lock is not kept over a wait, and what is acknowledged meanwhile is not asked for any more.
        loop {
            let one = lock(&held).first_from(next);
            let Some((receipt, acker)) = one else { break };
            next = receipt + 1;
            if acker.ack_with(AckKind::Progress).await.is_err() {
                break;
            }
        }
    }
}

fn lock(held: &Mutex<HeldMessages>) -> MutexGuard<'_, HeldMessages> {
    // Whole between any two statements.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
