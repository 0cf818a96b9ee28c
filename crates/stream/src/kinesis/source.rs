//! The source: all shards of a stream, each in order, a shard after its parents.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::types::{Shard, ShardIteratorType};
use bytes::Bytes;
use flow::Clock;
use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use super::positions::Positions;
use super::settings::{KinesisSettings, ReadFrom};
use super::shards::{DueShard, ReadRecord, ShardBook, ShardStart};
use crate::aws::{AwsFailure, AwsFailureKind, sdk_config};
use crate::{Source, StreamError, StreamMessage, StreamReceipt};

/// A stream to read from.
///
/// A reader tells the others every few seconds, with its fetches, that it lives. A message of a shard that went to another reader
/// meanwhile is refused when it is acknowledged, and comes again there.
///
/// An acknowledgement is durable once all earlier messages of its shard are acknowledged: after a restart, those behind the first
/// that is not come again. What is given back is kept here and given with the next fetch, since Kinesis knows no holders.
#[derive(Debug)]
pub struct KinesisSource {
    client: Client,
    settings: KinesisSettings,
    place: String,
    clock: Clock,
    positions: Arc<dyn Positions>,
    /// Held for no longer than a look.
    book: StdMutex<ShardBook>,
    /// The one fetch at a time.
    fetching: Mutex<()>,
    /// True if a shard was finished, and its children are to be found.
    must_list: AtomicBool,
    /// The one save at a time: positions of a shard only move forward.
    saving: Mutex<()>,
    /// When the shards were last leased.
    leased_at: StdMutex<Option<Instant>>,
}

/// Time between two reads of a shard: Kinesis allows five a second, for all readers together.
const READ_EVERY: Duration = Duration::from_millis(250);
/// Time between two leases of shards.
const LEASE_EVERY: Duration = Duration::from_secs(5);
/// Time for which a shard that is read too fast is left alone.
const REST: Duration = Duration::from_secs(1);
/// Records of one read: Kinesis gives no more.
const READ_RECORDS: usize = 10_000;

// === impl KinesisSource ===

impl KinesisSource {
    /// Finds the stream of `settings`, and reads on from `positions`.
    ///
    /// # Errors
    /// When settings cannot work, the stream is not there or may not be used, or positions cannot be loaded.
    pub async fn open(
        settings: &KinesisSettings,
        positions: Arc<dyn Positions>,
        clock: Clock,
    ) -> Result<Self, StreamError> {
        settings.check()?;
        let client = Client::new(&sdk_config(&settings.aws).await?);
        let source = Self {
            client,
            settings: settings.clone(),
            place: settings.place(),
            clock,
            positions,
            book: StdMutex::default(),
            fetching: Mutex::new(()),
            must_list: AtomicBool::new(false),
            saving: Mutex::new(()),
            leased_at: StdMutex::default(),
        };
        source.list(settings.from).await?;
        Ok(source)
    }

    /// Adds the shards that are not known yet, and leases. Shards without a position begin at `from`, if none of these has one.
    async fn list(&self, from: ReadFrom) -> Result<(), StreamError> {
        let mut listed: Vec<Shard> = Vec::new();
        let mut token = None;
        loop {
            // A token stands for the stream.
            let (name, arn) = match token {
                None => self.settings.name_and_arn(),
                Some(_) => (None, None),
            };
            let page = self.client.list_shards().set_stream_name(name).set_stream_arn(arn);
            let page = page.set_next_token(token).send().await;
            let page =
                page.map_err(|error| AwsFailure::of(&error, &self.place).into_stream_error())?;
            listed.extend(page.shards.unwrap_or_default());
            token = page.next_token;
            if token.is_none() {
                break;
            }
        }
        listed.retain(|shard| !self.book().knows(&shard.shard_id));
        let names: Vec<String> = listed.iter().map(|shard| shard.shard_id.clone()).collect();
        let is_new = match from {
            ReadFrom::Oldest => false,
            ReadFrom::Newest => {
                let leases = self.positions.lease(&names).await?;
                leases.iter().all(|lease| lease.position.is_none())
            }
        };
        for shard in listed {
            let is_closed = shard
                .sequence_number_range
                .is_some_and(|range| range.ending_sequence_number.is_some());
            // The newest records are in shards that are open.
            let begin = if is_new {
                (!is_closed).then_some(ShardStart::Newest)
            } else {
                Some(ShardStart::Oldest)
            };
            let parents = [shard.parent_shard_id, shard.adjacent_parent_shard_id];
            self.book().add(shard.shard_id, parents.into_iter().flatten().collect(), begin);
        }
        self.lease().await
    }

    /// Keeps and takes shards, and forgets those that other readers have.
    async fn lease(&self) -> Result<(), StreamError> {
        // Between two saves: what is saved meanwhile belongs to the lease before.
        let _one_at_a_time = self.saving.lock().await;
        let names = self.book().names();
        let leases = self.positions.lease(&names).await?;
        let mut book = self.book();
        for (name, lease) in names.iter().zip(leases) {
            if book.leased(name, lease) {
                self.must_list.store(true, Ordering::Release);
            }
        }
        drop(book);
        *self.leased_at() = Some(self.clock.monotonic());
        Ok(())
    }

    /// True if it is time to tell the other readers that this one lives.
    fn must_lease(&self) -> bool {
        let now = self.clock.monotonic();
        self.leased_at().is_none_or(|at| at + LEASE_EVERY <= now)
    }

    fn leased_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.leased_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads `due` shards side by side, `records` of each at most.
    ///
    /// # Errors
    /// When nothing was read, and a shard failed.
    async fn read(
        &self,
        due: Vec<DueShard>,
        records: usize,
    ) -> Result<Vec<StreamMessage>, StreamError> {
        let reads = due.iter().map(|shard| self.read_shard(shard, records));
        let answers = join_all(reads).await;
        let (now, mut messages, mut failed) = (self.clock.monotonic(), Vec::new(), None);
        for (DueShard { shard, .. }, answer) in due.iter().zip(answers) {
            match answer {
                Ok((records, iterator)) => {
                    let read = self.book().read(shard, records, iterator, now + READ_EVERY);
                    messages.extend(read);
                }
                Err(failure) if failure.is(&["ExpiredIteratorException"]) => {
                    self.book().forget_iterator(shard, now);
                }
                Err(failure) => {
                    self.book().postpone(shard, now + REST);
                    if failure.kind != AwsFailureKind::Throttled {
                        failed = Some(failure);
                    }
                }
            }
        }
        match failed {
            Some(failure) if messages.is_empty() => Err(failure.into_stream_error()),
            _other => Ok(messages),
        }
    }

    async fn read_shard(
        &self,
        due: &DueShard,
        records: usize,
    ) -> Result<(Vec<ReadRecord>, Option<String>), AwsFailure> {
        let iterator = match &due.iterator {
            Some(iterator) => Some(iterator.clone()),
            None => self.iterator(due).await?,
        };
        let (_, arn) = self.settings.name_and_arn();
        let read = self.client.get_records().set_shard_iterator(iterator).set_stream_arn(arn);
        let limit = i32::try_from(records.clamp(1, READ_RECORDS)).unwrap_or(1);
        let read = read.limit(limit).send().await;
        let read = read.map_err(|error| AwsFailure::of(&error, &self.place))?;
        let records = read.records.into_iter().map(|record| ReadRecord {
            sequence_number: record.sequence_number,
            key: record.partition_key,
            body: Bytes::from(record.data.into_inner()),
        });
        Ok((records.collect(), read.next_shard_iterator))
    }

    async fn iterator(&self, due: &DueShard) -> Result<Option<String>, AwsFailure> {
        let (kind, number) = match &due.begin {
            ShardStart::Oldest => (ShardIteratorType::TrimHorizon, None),
            ShardStart::Newest => (ShardIteratorType::Latest, None),
            ShardStart::After(number) => {
                (ShardIteratorType::AfterSequenceNumber, Some(number.clone()))
            }
        };
        let (name, arn) = self.settings.name_and_arn();
        let call = self.client.get_shard_iterator().set_stream_name(name).set_stream_arn(arn);
        let call = call.shard_id(&due.shard).shard_iterator_type(kind);
        let answer = call.set_starting_sequence_number(number).send().await;
        Ok(answer.map_err(|error| AwsFailure::of(&error, &self.place))?.shard_iterator)
    }

    /// Saves positions that have moved. Gives the shards of which the position could not be saved.
    async fn save(&self) -> Vec<(String, StreamError)> {
        let _one_at_a_time = self.saving.lock().await;
        let unsaved = self.book().unsaved();
        let mut failed = Vec::new();
        for (shard, position) in unsaved {
            match self.positions.save(&shard, &position).await {
                Ok(()) => {
                    if self.book().saved(&shard, &position) {
                        self.must_list.store(true, Ordering::Release);
                    }
                }
                Err(error) => failed.push((shard, error)),
            }
        }
        failed
    }

    fn book(&self) -> MutexGuard<'_, ShardBook> {
        // Every critical section leaves the book whole, even if it panicked.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a shard may be read again, or `deadline`; an acknowledgement may finish a shard meanwhile.
    async fn rest(&self, later: Option<Instant>, deadline: Instant) {
        let soon = self.clock.monotonic() + READ_EVERY;
        sleep_until(later.unwrap_or(soon).min(soon).min(deadline)).await;
    }
}

#[async_trait]
impl Source for KinesisSource {
    async fn fetch(
        &self,
        messages: usize,
        wait: Duration,
    ) -> Result<Vec<StreamMessage>, StreamError> {
        let deadline = self.clock.monotonic() + wait;
        let _one_at_a_time = self.fetching.lock().await;
        loop {
            let again = self.book().again(messages);
            if !again.is_empty() {
                return Ok(again);
            }
            if self.must_lease() {
                self.lease().await?;
            }
            // A shard that was read to its end without a message left is finished by this.
            if let Some((_, error)) = self.save().await.into_iter().next() {
                return Err(error);
            }
            if self.must_list.load(Ordering::Acquire) {
                // Before the call: a shard may be finished meanwhile.
                self.must_list.store(false, Ordering::Release);
                let listed = self.list(ReadFrom::Oldest).await;
                if listed.is_err() {
                    self.must_list.store(true, Ordering::Release);
                }
                listed?;
            }
            let now = self.clock.monotonic();
            let (due, later) = self.book().due(now, messages.max(1));
            let records = messages / due.len().max(1);
            let read = self.read(due, records).await?;
            if !read.is_empty() {
                return Ok(read);
            }
            if self.clock.monotonic() >= deadline {
                return Ok(Vec::new());
            }
            self.rest(later, deadline).await;
        }
    }

    async fn acknowledge(&self, receipts: &[StreamReceipt]) -> Vec<Result<(), StreamError>> {
        let acknowledge = |receipt: &StreamReceipt| self.book().acknowledge(*receipt);
        let shards: Vec<Option<String>> = receipts.iter().map(acknowledge).collect();
        let failed = self.save().await;
        let answer = |shard: Option<String>| {
            let Some(shard) = shard else {
                return Err(StreamError::Refused("no such message is held here".to_owned()));
            };
            let error = failed.iter().find(|(name, _)| *name == shard);
            error.map_or(Ok(()), |(_, error)| Err(error.clone()))
        };
        shards.into_iter().map(answer).collect()
    }

    async fn give_back(&self, receipts: &[StreamReceipt]) {
        let mut book = self.book();
        for receipt in receipts {
            book.give_back(*receipt);
        }
    }

    async fn close(&self) {
        for (shard, error) in self.save().await {
            tracing::warn!(shard, %error, "a position was not saved: messages come again");
        }
        self.positions.release().await;
    }
}
