//! Publishing to a subject, a batch at a time.

use std::error::Error;
use std::path::PathBuf;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{Client, HeaderMap};
use async_trait::async_trait;
use flow::Clock;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::link::{ANSWER_TIMEOUT, NatsConnector, close, is_connected};
use crate::connect::NatsAddress;
use crate::{BatchLimits, OpenTargets, PutError, Record, StreamError, Target};

/// A subject that records are published to. Connects with the first of them.
#[derive(Debug)]
pub struct NatsTarget {
    connector: NatsConnector,
    subject: String,
    link: Mutex<Option<(Client, jetstream::Context)>>,
}

/// The subjects of a server, to publish to.
#[derive(Debug)]
pub struct NatsTargets {
    /// The server.
    pub address: NatsAddress,
    /// More root certificates to trust, PEM.
    pub ca_file: Option<PathBuf>,
    /// The time.
    pub clock: Clock,
}

/// A server takes messages of 1 MiB unless it says otherwise, headers included; one of a larger record is refused by itself.
const LIMITS: BatchLimits =
    BatchLimits { records: 1_000, bytes: 8 << 20, record_bytes: (1 << 20) - HEADER_BYTES };
/// Bytes of the headers of a message.
const HEADER_BYTES: usize = 256;

// === impl NatsTargets ===

impl OpenTargets for NatsTargets {
    fn check(&self, name: &str) -> Result<(), StreamError> {
        check_subject(name)
    }

    fn open(&self, name: &str) -> Result<Box<dyn Target>, StreamError> {
        let (address, ca_file) = (self.address.clone(), self.ca_file.clone());
        Ok(Box::new(NatsTarget::new(address, ca_file, name, self.clock)?))
    }
}

// === impl NatsTarget ===

impl NatsTarget {
    /// `subject` at the server of `address`; with TLS it must be certified by an authority of the system or of `ca_file`, PEM.
    ///
    /// # Errors
    /// When `subject` is none that can be published to.
    pub fn new(
        address: NatsAddress,
        ca_file: Option<PathBuf>,
        subject: &str,
        clock: Clock,
    ) -> Result<Self, StreamError> {
        check_subject(subject)?;
        let connector = NatsConnector { address, ca_file, name: format!("to {subject}"), clock };
        Ok(Self { connector, subject: subject.to_owned(), link: Mutex::default() })
    }

    async fn jetstream(&self) -> Result<jetstream::Context, StreamError> {
        let mut link = self.link.lock().await;
        match &*link {
            Some((client, jetstream)) if is_connected(client) => Ok(jetstream.clone()),
            _lost => Ok(link.insert(self.connector.connect().await?).1.clone()),
        }
    }
}

/// Checks that `subject` can be published to: tokens with dots between them, no spaces, no wildcards.
///
/// # Errors
/// [`StreamError::Refused`] otherwise.
pub(super) fn check_subject(subject: &str) -> Result<(), StreamError> {
    let is_plain = |token: &str| {
        !token.is_empty()
            && token.chars().all(|c| !c.is_whitespace() && !c.is_control() && !"*>".contains(c))
    };
    if subject.len() <= SUBJECT_BYTES && subject.split('.').all(is_plain) {
        return Ok(());
    }
    Err(StreamError::Refused(format!(
        "{subject:?} is not a subject of NATS: words with dots between them, without spaces, * and >"
    )))
}

/// Bytes of a subject.
const SUBJECT_BYTES: usize = 255;

#[async_trait]
impl Target for NatsTarget {
    fn limits(&self) -> BatchLimits {
        LIMITS
    }

    fn keeps_order(&self) -> bool {
        true
    }

    async fn put(&self, records: &[Record]) -> Vec<Result<(), PutError>> {
        if records.is_empty() {
            return Vec::new();
        }
        let deadline = self.connector.clock.monotonic() + ANSWER_TIMEOUT;
        let jetstream = match self.jetstream().await {
            Ok(jetstream) => jetstream,
            Err(error) => return vec![Err(PutError::NotTaken(error.to_string())); records.len()],
        };
        // All are sent before the first answer is waited for.
        let mut sent = Vec::with_capacity(records.len());
        for record in records {
            let mut headers = HeaderMap::new();
            headers.insert(NATS_MESSAGE_ID, record.id.as_str());
            let (subject, body) = (self.subject.clone(), record.body.clone());
            let publish = jetstream.publish_with_headers(subject, headers, body);
            sent.push(timeout_at(deadline, publish).await);
        }
        let mut answers = Vec::with_capacity(records.len());
        for sent in sent {
            answers.push(match sent {
                Ok(Ok(acknowledgement)) => answer(acknowledgement, deadline).await,
                Ok(Err(error)) => Err(unsent(&error)),
                // It may have been handed over at the last moment.
                Err(_late) => Err(late()),
            });
        }
        answers
    }

    async fn close(&self) {
        if let Some((client, _)) = self.link.lock().await.take() {
            close(&client).await;
        }
    }
}

async fn answer(acknowledgement: PublishAckFuture, deadline: Instant) -> Result<(), PutError> {
    match timeout_at(deadline, acknowledgement).await {
        Ok(Ok(_stored)) => Ok(()),
        Ok(Err(error)) => Err(refused(&error)),
        Err(_late) => Err(late()),
    }
}

/// The meaning of an error of a record that was handed to the connection.
fn refused(error: &PublishError) -> PutError {
    let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
    let words = format!("{error}{cause}");
    match error.kind() {
        // No stream listens to the subject, said the server; or the connection has no room for it.
        PublishErrorKind::StreamNotFound | PublishErrorKind::MaxAckPending => {
            PutError::NotTaken(words)
        }
        PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence
        | PublishErrorKind::MaxPayloadExceeded => PutError::Refused(words),
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => PutError::Unknown(words),
        PublishErrorKind::Other => of_server(error, words),
    }
}

/// An error that the stream gave, or that has no known origin.
fn of_server(error: &PublishError, words: String) -> PutError {
    let server = error.source().and_then(|cause| cause.downcast_ref::<jetstream::Error>());
    match server.map(jetstream::Error::error_code) {
        Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM) => PutError::Refused(words),
        // It is full, or it has no leader: it says so instead of storing.
        Some(_other) => PutError::NotTaken(words),
        None => PutError::Unknown(words),
    }
}

/// The meaning of an error of a record that was not handed over.
fn unsent(error: &PublishError) -> PutError {
    let kind = error.kind();
    if kind == PublishErrorKind::MaxPayloadExceeded {
        PutError::Refused(error.to_string())
    } else if kind == PublishErrorKind::TimedOut {
        late()
    } else {
        PutError::NotTaken(error.to_string())
    }
}

fn late() -> PutError {
    PutError::Unknown(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))
}
