//! The stream and its consumers.
//!
//! | name | what |
//! |---|---|
//! | stream `<prefix>` | work queue in files, subjects `<prefix>.urgent`, `.normal`, `.bulk`, each of bounded length; nothing older than a lease |
//! | consumers `urgent`, `normal`, `bulk` | durable, pull, explicit acknowledgement |
//!
//! A stream that is there is used as it is, if it can carry tickets: so an operator may choose replicas, placement or memory by creating
//! the stream first, and a later version with other bounds works beside this one. No option is sent that only servers since 2.10
//! support.

use std::error::Error;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind, RequestError,
    RequestErrorKind,
};
use async_nats::jetstream::stream::{
    Config, ConsumerError, ConsumerErrorKind, DiscardPolicy, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{Context, ErrorCode};
use futures_util::TryStreamExt;
use notification::{Priority, limits};

use crate::broker::capacity::WaitingTickets;
use crate::broker::limits::{PREFETCH_TICKETS, TICKET_ANSWER_WAIT, TICKET_DELIVERIES};

/// The names and bounds of one prefix.
#[derive(Debug, Clone)]
pub(super) struct NatsTopology {
    pub(super) prefix: String,
    pub(super) tickets_max: u64,
}

/// Requests for tickets that the server keeps per priority: one for each process that consumes. Whose request is beyond
/// gets it refused, and connects again.
const CONSUMERS_MAX: i64 = 4_096;

/// Failure to declare the stream or a consumer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NatsError {
    /// The server said so.
    #[error("{1}")]
    JetStream(ErrorCode, String),
    /// The server has no JetStream to answer.
    #[error("JetStream is not enabled")]
    NoJetStream,
    /// The stream or consumer that is there is of another kind.
    #[error("{0}")]
    Mismatch(String),
    /// The connection is gone.
    #[error("the connection was lost")]
    Lost,
    /// The server did not say why.
    #[error("{0}")]
    Other(String),
}

// === impl NatsTopology ===

impl NatsTopology {
    /// The subject of `priority`.
    pub(super) fn subject(&self, priority: Priority) -> String {
        format!("{}.{priority}", self.prefix)
    }

    /// Creates what is missing. Returns the number of tickets of one priority that may wait: the stream may be smaller than its
    /// bound here.
    pub(super) async fn create(&self, jetstream: &Context) -> Result<u64, NatsError> {
        let stream = match jetstream.get_stream(&self.prefix).await.map_err(|error| of_get(&error))
        {
            Err(NatsError::JetStream(ErrorCode::STREAM_NOT_FOUND, _text)) => {
                self.create_stream(jetstream).await?
            }
            found => found?,
        };
        let config = &stream.cached_info().config;
        self.check(config)?;
        // The server writes -1 or 0 where there is no bound.
        let bound =
            |limit| u64::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(u64::MAX);
        let tickets_max = bound(config.max_messages_per_subject).min(self.tickets_max);
        for priority in Priority::ALL {
            self.create_consumer(&stream, *priority).await?;
        }
        Ok(tickets_max)
    }

    /// Tickets waiting per priority.
    pub(super) async fn waiting(&self, jetstream: &Context) -> Result<WaitingTickets, NatsError> {
        let stream = jetstream.get_stream_no_info(&self.prefix).await;
        let stream = stream.map_err(|error| NatsError::Other(error.to_string()))?;
        let filter = format!("{}.*", self.prefix);
        let counts = stream.info_with_subjects(filter).await;
        let mut counts = counts.map_err(|error| NatsError::Other(error.to_string()))?;
        let mut waiting = WaitingTickets::default();
        while let Some((subject, count)) =
            counts.try_next().await.map_err(|error| NatsError::Other(error.to_string()))?
        {
            for (waiting, priority) in waiting.iter_mut().zip(Priority::ALL) {
                if subject == self.subject(*priority) {
                    *waiting = u64::try_from(count).unwrap_or(u64::MAX);
                }
            }
        }
        Ok(waiting)
    }

    async fn create_stream(&self, jetstream: &Context) -> Result<Stream, NatsError> {
        let config = Config {
            name: self.prefix.clone(),
            subjects: self.subjects(),
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            // A lost ticket is issued anew (decision 0007), so copies would buy little. A
            // stream that is there may have them.
            num_replicas: 1,
            max_age: limits::TICKET_LEASE,
            // Bounded by subject only: else bulk tickets would take the room of urgent ones.
            max_messages: -1,
            max_bytes: -1,
            max_consumers: -1,
            max_messages_per_subject: i64::try_from(self.tickets_max).unwrap_or(i64::MAX),
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            ..Config::default()
        };
        match jetstream.create_stream(config).await.map_err(|error| of_create(&error)) {
            Err(NatsError::JetStream(ErrorCode::STREAM_SUBJECT_OVERLAP, text)) => {
                Err(NatsError::Mismatch(format!(
                    "{text}: another stream has subjects of {}.*",
                    self.prefix
                )))
            }
            created => created,
        }
    }

    async fn create_consumer(&self, stream: &Stream, priority: Priority) -> Result<(), NatsError> {
        let pending = self.tickets_max.max(PREFETCH_TICKETS as u64);
        let config = pull::Config {
            durable_name: Some(priority.as_str().to_owned()),
            filter_subject: self.subject(priority),
            ack_policy: AckPolicy::Explicit,
            ack_wait: TICKET_ANSWER_WAIT,
            // A ticket that was given out more often stays in the stream until it is too old.
            max_deliver: TICKET_DELIVERIES.into(),
            // As many as may wait: the tickets that a consumer holds are bounded by its requests.
            max_ack_pending: i64::try_from(pending).unwrap_or(i64::MAX),
            max_waiting: CONSUMERS_MAX,
            ..pull::Config::default()
        };
        let created = stream.get_or_create_consumer(priority.as_str(), config).await;
        let consumer: PullConsumer = created.map_err(|error| of_consumer(&error))?;
        let config = &consumer.cached_info().config;
        // Nothing else of it is asked for: with another subject it gives tickets of another priority, and where none is
        // acknowledged they go with the process that holds them.
        if config.filter_subject != self.subject(priority)
            || config.ack_policy != AckPolicy::Explicit
        {
            let text = format!("consumer {priority} has another subject or acknowledges otherwise");
            return Err(NatsError::Mismatch(text));
        }
        Ok(())
    }

    fn check(&self, config: &Config) -> Result<(), NatsError> {
        let mut subjects = config.subjects.clone();
        subjects.sort_unstable();
        let mut expected = self.subjects();
        expected.sort_unstable();
        if subjects != expected {
            let expected = self.subjects().join(", ");
            let text = format!("stream {} has other subjects than {expected}", self.prefix);
            return Err(NatsError::Mismatch(text));
        }
        if config.retention != RetentionPolicy::WorkQueue {
            return Err(NatsError::Mismatch(format!("stream {} is no work queue", self.prefix)));
        }
        self.check_limits(config)
    }

    /// Checks that the stream refuses messages beyond its bounds, which may be as small as its operator likes: messages that it
    /// drops instead would be confirmed.
    fn check_limits(&self, config: &Config) -> Result<(), NatsError> {
        let is_bounded = config.max_messages > 0 || config.max_bytes > 0;
        let is_bounded_per_subject = config.max_messages_per_subject > 0;
        let drops = (is_bounded || is_bounded_per_subject) && config.discard == DiscardPolicy::Old;
        if drops || (is_bounded_per_subject && !config.discard_new_per_subject) {
            let text = format!(
                "stream {} drops old messages when it is full: it needs the discard policy \"new\", per subject too",
                self.prefix
            );
            return Err(NatsError::Mismatch(text));
        }
        if !config.max_age.is_zero() && config.max_age < limits::TICKET_LEASE {
            let text = format!(
                "stream {} drops messages after {} s: it needs a maximum age of {} s, or none",
                self.prefix,
                config.max_age.as_secs_f32(),
                limits::TICKET_LEASE.as_secs()
            );
            return Err(NatsError::Mismatch(text));
        }
        Ok(())
    }

    fn subjects(&self) -> Vec<String> {
        Priority::ALL.iter().map(|priority| self.subject(*priority)).collect()
    }
}

fn of_get(error: &GetStreamError) -> NatsError {
    if let GetStreamErrorKind::JetStream(error) = error.kind() {
        return of_server(&error);
    }
    of_request(error)
}

fn of_create(error: &CreateStreamError) -> NatsError {
    if let CreateStreamErrorKind::JetStream(error) = error.kind() {
        return of_server(&error);
    }
    of_request(error)
}

fn of_consumer(error: &ConsumerError) -> NatsError {
    let kind = error.kind();
    if let ConsumerErrorKind::JetStream(error) = kind {
        return of_server(&error);
    }
    if kind == ConsumerErrorKind::InvalidConsumerType {
        return NatsError::Mismatch("a consumer of that name pushes".to_owned());
    }
    of_request(error)
}

fn of_server(error: &async_nats::jetstream::Error) -> NatsError {
    NatsError::JetStream(error.error_code(), error.to_string())
}

/// The error of a request that JetStream did not answer: where it is not enabled, its subjects have no listener.
fn of_request(error: &(dyn Error + 'static)) -> NatsError {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let request = error.downcast_ref::<RequestError>();
        if request.is_some_and(|request| request.kind() == RequestErrorKind::NoResponders) {
            return NatsError::NoJetStream;
        }
        cause = error.source();
    }
    NatsError::Other(error.to_string())
}
