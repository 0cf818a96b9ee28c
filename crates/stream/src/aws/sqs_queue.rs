//! A queue of SQS, by batches: every entry of every answer is looked at.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::BuildError;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessageBatchRequestEntry, MessageSystemAttributeName, QueueAttributeName,
    SendMessageBatchRequestEntry,
};
use futures_util::{StreamExt as _, stream};

use super::failure::{AwsFailure, AwsFailureKind, entry_failure};

/// Entries of a batch: SQS takes no more.
pub const ENTRIES_MAX: usize = 10;
/// Longest time that SQS waits for a message.
pub const WAIT_MAX: Duration = Duration::from_secs(20);
/// Longest time for which a received message can be invisible.
pub const VISIBILITY_MAX: Duration = Duration::from_hours(12);

/// A queue by its URL.
#[derive(Debug, Clone)]
pub struct SqsQueue {
    client: Client,
    url: String,
    place: String,
    is_fifo: bool,
}

/// A message that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqsMessage {
    /// Its identifier: the same each time that it is received.
    pub id: String,
    /// The handle of this reception.
    pub handle: String,
    /// Its content.
    pub body: String,
    /// The message group, of a FIFO queue.
    pub group: Option<String>,
    /// Times that it was received, this one included.
    pub receives: u32,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqsEntry {
    /// Its content: text of the characters that XML has.
    pub body: String,
    /// Message group and deduplication identifier, for a FIFO queue.
    pub order: Option<SqsOrder>,
}

/// The place of a message in a FIFO queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqsOrder {
    /// The group that its order goes by.
    pub group: String,
    /// The identifier by which SQS drops repeated ones for five minutes.
    pub deduplication: String,
}

/// Calls under way at a time for one list of entries.
const CALLS: usize = 8;
/// Tries of a call that may be repeated, the first included.
const TRIES: u32 = 3;
/// Time for an answer beyond the time that the server was asked to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

// === impl SqsQueue ===

impl SqsQueue {
    /// Finds the queue `name` of `account`, or of the credentials' own. A name that is a URL is taken as the queue's.
    ///
    /// # Errors
    /// When it is not there or may not be used.
    pub async fn find(
        config: &SdkConfig,
        name: &str,
        account: Option<&str>,
    ) -> Result<Self, AwsFailure> {
        let client = Client::new(config);
        let place = place(config, name);
        let is_url = name.starts_with("https://") || name.starts_with("http://");
        let url = if is_url {
            name.to_owned()
        } else {
            let call = client.get_queue_url().queue_name(name);
            let call = call.set_queue_owner_aws_account_id(account.map(str::to_owned));
            let found = Box::pin(call.send()).await;
            let found = found.map_err(|error| AwsFailure::of(&error, &place))?;
            found.queue_url.unwrap_or_default()
        };
        Ok(Self::new(client, url, place))
    }

    /// Finds the queue `name`, or creates it with `attributes` by their names in SQS. One that is there is left as it is.
    ///
    /// # Errors
    /// When it is not there and cannot be created, or may not be used.
    pub async fn find_or_create(
        config: &SdkConfig,
        name: &str,
        attributes: &[(&str, String)],
    ) -> Result<Self, AwsFailure> {
        match Self::find(config, name, None).await {
            Err(failure) if failure.is(&["NonExistentQueue", "QueueDoesNotExist"]) => {}
            found => return found,
        }
        let mut create = Client::new(config).create_queue().queue_name(name);
        for (attribute, value) in attributes {
            create = create.attributes(QueueAttributeName::from(*attribute), value);
        }
        let place = place(config, name);
        let created = Box::pin(create.send()).await;
        let created = created.map_err(|error| AwsFailure::of(&error, &place))?;
        Ok(Self::new(Client::new(config), created.queue_url.unwrap_or_default(), place))
    }

    /// Its attributes by their names in SQS.
    pub async fn attributes(&self) -> Result<BTreeMap<String, String>, AwsFailure> {
        let call = self.client.get_queue_attributes().queue_url(&self.url);
        let call = call.attribute_names(QueueAttributeName::All);
        let answer = Box::pin(call.send()).await;
        let answer = answer.map_err(|error| AwsFailure::of(&error, &self.place))?;
        let attributes = answer.attributes.unwrap_or_default();
        Ok(attributes.into_iter().map(|(name, value)| (name.as_str().to_owned(), value)).collect())
    }

    /// The queue at `url`, which `place` calls in messages.
    pub fn new(client: Client, url: String, place: String) -> Self {
        let is_fifo = url.rsplit_once('.').is_some_and(|(_, end)| end == "fifo");
        Self { client, url, place, is_fifo }
    }

    /// True if it has message groups, and an order in each.
    pub fn is_fifo(&self) -> bool {
        self.is_fifo
    }

    /// Its name for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Receives up to `messages`, [`ENTRIES_MAX`] at most, as soon as there is one, or none after `wait` ([`WAIT_MAX`] at most). They are
    /// invisible to others for `visibility`. Both times are in whole seconds.
    pub async fn receive(
        &self,
        messages: usize,
        wait: Duration,
        visibility: Duration,
    ) -> Result<Vec<SqsMessage>, AwsFailure> {
        let wait = wait.min(WAIT_MAX);
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(wait + ANSWER_TIMEOUT);
        let overriding = aws_sdk_sqs::Config::builder().timeout_config(timeouts.build());
        // Boxed, here and below: the SDK's futures have several kilobytes, and would be a part of every future above them.
        let call = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(i32::try_from(messages.clamp(1, ENTRIES_MAX)).unwrap_or(1))
            .wait_time_seconds(seconds(wait))
            .visibility_timeout(seconds(visibility))
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .message_system_attribute_names(MessageSystemAttributeName::MessageGroupId)
            .customize()
            .config_override(overriding);
        let received = Box::pin(call.send()).await;
        let received = received.map_err(|error| AwsFailure::of(&error, &self.place))?;
        Ok(received.messages.unwrap_or_default().into_iter().filter_map(SqsMessage::read).collect())
    }

    /// Deletes messages by their handles, and answers for each, in order.
    pub async fn delete(&self, handles: &[String]) -> Vec<Result<(), AwsFailure>> {
        let mut calls = Vec::new();
        for batch in handles.chunks(ENTRIES_MAX) {
            calls.push(self.delete_batch(batch));
        }
        stream::iter(calls).buffered(CALLS).concat().await
    }

    /// Makes messages visible to others after `visibility` from now, and answers for each, in order.
    pub async fn set_visibility(
        &self,
        handles: &[String],
        visibility: Duration,
    ) -> Vec<Result<(), AwsFailure>> {
        let mut calls = Vec::new();
        for batch in handles.chunks(ENTRIES_MAX) {
            calls.push(self.set_visibility_of_batch(batch, visibility));
        }
        stream::iter(calls).buffered(CALLS).concat().await
    }

    /// Sends `entries`, [`ENTRIES_MAX`] at most, in order, and answers for each, in order. Nothing is repeated.
    pub async fn send(&self, entries: Vec<SqsEntry>) -> Vec<Result<(), AwsFailure>> {
        let count = entries.len();
        let sent = async {
            let entries = entries.into_iter().enumerate().map(|(number, entry)| {
                let (group, deduplication) =
                    entry.order.map(|order| (order.group, order.deduplication)).unzip();
                SendMessageBatchRequestEntry::builder()
                    .id(number.to_string())
                    .message_body(entry.body)
                    .set_message_group_id(group)
                    .set_message_deduplication_id(deduplication)
                    .build()
            });
            let entries = entries.collect::<Result<Vec<_>, BuildError>>();
            let call = self.client.send_message_batch().queue_url(&self.url);
            let call = call.set_entries(Some(entries.map_err(|error| self.unsent(&error))?));
            let answer = Box::pin(call.send()).await;
            let answer = answer.map_err(|error| AwsFailure::of(&error, &self.place))?;
            let done = answer.successful.into_iter().map(|entry| entry.id).collect();
            Ok((done, answer.failed))
        };
        let answer = sent.await;
        self.verdicts(count, answer)
    }

    async fn delete_batch(&self, handles: &[String]) -> Vec<Result<(), AwsFailure>> {
        let deleted = async {
            let entries = handles.iter().enumerate().map(|(number, handle)| {
                let entry = DeleteMessageBatchRequestEntry::builder();
                entry.id(number.to_string()).receipt_handle(handle).build()
            });
            let entries = entries.collect::<Result<Vec<_>, BuildError>>();
            let call = self.client.delete_message_batch().queue_url(&self.url);
            let call = call.set_entries(Some(entries.map_err(|error| self.unsent(&error))?));
            let call = call.customize().config_override(repeating());
            let answer = Box::pin(call.send()).await;
            let answer = answer.map_err(|error| AwsFailure::of(&error, &self.place))?;
            let done = answer.successful.into_iter().map(|entry| entry.id).collect();
            Ok((done, answer.failed))
        };
        let answer = deleted.await;
        self.verdicts(handles.len(), answer)
    }

    async fn set_visibility_of_batch(
        &self,
        handles: &[String],
        visibility: Duration,
    ) -> Vec<Result<(), AwsFailure>> {
        let changed = async {
            let entries = handles.iter().enumerate().map(|(number, handle)| {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder();
                let entry = entry.id(number.to_string()).receipt_handle(handle);
                entry.visibility_timeout(seconds(visibility)).build()
            });
            let entries = entries.collect::<Result<Vec<_>, BuildError>>();
            let call = self.client.change_message_visibility_batch().queue_url(&self.url);
            let call = call.set_entries(Some(entries.map_err(|error| self.unsent(&error))?));
            let call = call.customize().config_override(repeating());
            let answer = Box::pin(call.send()).await;
            let answer = answer.map_err(|error| AwsFailure::of(&error, &self.place))?;
            let done = answer.successful.into_iter().map(|entry| entry.id).collect();
            Ok((done, answer.failed))
        };
        let answer = changed.await;
        self.verdicts(handles.len(), answer)
    }

    /// The answer for each of `count` entries.
    fn verdicts(
        &self,
        count: usize,
        answer: Result<BatchAnswer, AwsFailure>,
    ) -> Vec<Result<(), AwsFailure>> {
        let (done, failed) = match answer {
            Ok(answer) => answer,
            Err(failure) => return vec![Err(failure.of_each(count)); count],
        };
        let verdict = |number: usize| {
            let id = number.to_string();
            if let Some(entry) = failed.iter().find(|entry| entry.id == id) {
                let message = entry.message.as_deref().unwrap_or_default();
                return Err(entry_failure(&entry.code, entry.sender_fault, message, &self.place));
            }
            if done.contains(&id) {
                return Ok(());
            }
            let text = format!("{} answered for other entries only", self.place);
            Err(AwsFailure { kind: AwsFailureKind::Unclear, code: None, after: None, text })
        };
        (0..count).map(verdict).collect()
    }

    fn unsent(&self, error: &BuildError) -> AwsFailure {
        let text = format!("no request to {} ({error})", self.place);
        AwsFailure { kind: AwsFailureKind::Invalid, code: None, after: None, text }
    }
}

/// The identifiers of the entries that were done, and those that were not.
type BatchAnswer = (Vec<String>, Vec<BatchResultErrorEntry>);

// === impl SqsMessage ===

impl SqsMessage {
    /// SQS leaves out none of these.
    fn read(message: aws_sdk_sqs::types::Message) -> Option<Self> {
        let mut attributes = message.attributes.unwrap_or_default();
        let receives = attributes.get(&MessageSystemAttributeName::ApproximateReceiveCount);
        let receives = receives.and_then(|text| text.parse().ok()).unwrap_or(1);
        let group = attributes.remove(&MessageSystemAttributeName::MessageGroupId);
        let (id, handle) = (message.message_id?, message.receipt_handle?);
        Some(Self { id, handle, body: message.body.unwrap_or_default(), group, receives })
    }
}

/// The name of a queue for messages.
fn place(config: &SdkConfig, name: &str) -> String {
    let at = config.endpoint_url().or(config.region().map(AsRef::as_ref)).unwrap_or_default();
    format!("the SQS queue {name} at {at}")
}

/// For calls that may be repeated: what they ask for is the same the second time.
fn repeating() -> aws_sdk_sqs::config::Builder {
    let retry = RetryConfig::standard().with_max_attempts(TRIES);
    aws_sdk_sqs::Config::builder().retry_config(retry)
}

/// Whole seconds; a part of one counts as one.
fn seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds.min(VISIBILITY_MAX.as_secs())).unwrap_or_default()
}
