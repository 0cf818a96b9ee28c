//! The way in: checks what callers ask for, and hands drafts to the store.
//!
//! An edge (HTTP, command line) cuts a request into [`Terms`] and recipients without understanding them;
//! everything a caller can get wrong is said here, once, as a [`Fault`] with the JSON pointer of its field.
//! What is not scheduled is due at the whole second in which it was accepted, so that callers of the same
//! second share an envelope, and with it a batch.

mod broadcast;
mod check;
mod content;
pub mod object;
mod outbox;
mod template;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flow::Clock;
use notification::{BroadcastId, ByteString, Content, Draft, Name, Timestamp, limits};
use store::{Admission, BroadcastOpened, Ingest, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::Channels;

pub use broadcast::{Addressee, Opening, Upload};
pub use check::{FallbackTerms, Fault, Terms};
pub use outbox::Drain;
pub use template::{TemplateSource, Templates};

use check::{Broadcast, Catalog};

/// The ingest stage. Shared by all edges.
#[derive(Debug)]
pub struct Intake {
    store: Arc<dyn Ingest>,
    /// What callers may name, as of now.
    catalog: watch::Sender<Arc<Catalog>>,
    clock: Clock,
    bytes: Arc<Semaphore>,
    /// Broadcasts whose upload was dropped half-way, for [`Intake::sweep`].
    left_open: Mutex<Vec<BroadcastId>>,
}

/// What a notification would send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// What is sent, rendered.
    pub content: Content,
    /// Why its channel will not have it.
    pub refused: Option<Fault>,
}

/// Bytes set aside for one request; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    permit: OwnedSemaphorePermit,
}

/// Why nothing was accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// The caller asked for something that cannot be.
    #[error("{0}")]
    Invalid(#[from] Fault),
    /// Too much is being taken in at the moment.
    #[error("too much is being taken in: try again in {} s", retry_after.as_secs())]
    Overloaded {
        /// When it is worth trying again.
        retry_after: Duration,
    },
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl Intake ===

impl Intake {
    /// An intake for `channels` into `store`.
    pub fn new(store: Arc<dyn Ingest>, channels: Arc<Channels>, clock: Clock) -> Self {
        let bytes = Arc::new(Semaphore::new(limits::INGEST_BYTES));
        let catalog = Arc::new(Catalog { channels, templates: Templates::default() });
        let catalog = watch::Sender::new(catalog);
        Self { store, catalog, clock, bytes, left_open: Mutex::default() }
    }

    /// The same with named templates, which were compiled for its channels.
    #[must_use]
    pub fn with_templates(self, templates: Templates) -> Self {
        self.replace(Arc::clone(&self.catalog().channels), templates);
        self
    }

    /// Goes by `channels` and `templates`, which were compiled for them, from now on.
    pub fn replace(&self, channels: Arc<Channels>, templates: Templates) {
        self.catalog.send_replace(Arc::new(Catalog { channels, templates }));
    }

    /// Sets `bytes` aside for a request that will be parsed, or refuses at once: it never waits.
    ///
    /// # Errors
    /// [`IngestError::Overloaded`].
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, IngestError> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        match Arc::clone(&self.bytes).try_acquire_many_owned(permits) {
            Ok(permit) => Ok(Reservation { permit }),
            Err(_) => Err(IngestError::Overloaded { retry_after: limits::OVERLOAD_RETRY_AFTER }),
        }
    }

    /// The time it is. One value serves a whole request.
    pub fn now(&self) -> Timestamp {
        channel::timestamp(self.clock)
    }

    /// Checks one notification. Pure but for its arguments.
    pub fn check(
        &self,
        tenant: &Name,
        terms: &Terms<'_>,
        to: ByteString,
        now: Timestamp,
    ) -> Result<Draft, Fault> {
        check::notification(&self.catalog(), tenant, terms, to, now)
    }

    /// What [`Intake::check`] would accept, also when the channel will not have the content. Stores nothing.
    ///
    /// # Errors
    /// What is wrong besides, so that there is nothing to show.
    pub fn preview(
        &self,
        tenant: &Name,
        terms: &Terms<'_>,
        to: ByteString,
    ) -> Result<Preview, Fault> {
        match self.check(tenant, terms, to, self.now()) {
            Ok(draft) => Ok(Preview { content: draft.content, refused: None }),
            Err(fault) => match content::rendered(&self.catalog(), terms) {
                Ok(content) if fault.is_about_content() => {
                    Ok(Preview { content, refused: Some(fault) })
                }
                Ok(_) | Err(_) => Err(fault),
            },
        }
    }

    /// Checks that `to` is a recipient that `channel` could have; gives the channel's shared name, and the spelling
    /// under which the recipient is stored.
    pub fn check_recipient(
        &self,
        channel: &str,
        to: ByteString,
    ) -> Result<(Name, ByteString), Fault> {
        let catalog = self.catalog();
        let (name, channel) = check::channel(&catalog.channels, channel)?;
        Ok((name.clone(), check::recipient(&**channel, to)?.to))
    }

    /// Stores all of `drafts`, or none. Durable on return.
    pub async fn accept_all(&self, drafts: Vec<Draft>) -> Result<Vec<Admission>, StoreError> {
        self.store.ingest(drafts, self.now()).await
    }

    /// Stores each of `drafts` but those whose key was used for something else; answers in order.
    ///
    /// The store takes all or none, so what stands before a refused draft goes on its own: every draft is
    /// looked at a fixed number of times, however many are refused.
    pub async fn accept_each(
        &self,
        drafts: Vec<Draft>,
    ) -> Result<Vec<Result<Admission, Fault>>, StoreError> {
        if drafts.iter().all(|draft| draft.idempotency.is_none()) {
            return Ok(self.accept_all(drafts).await?.into_iter().map(Ok).collect());
        }
        let mut answers = Vec::with_capacity(drafts.len());
        let mut end = drafts.len();
        while let Some(open) = drafts.get(answers.len()..end)
            && !open.is_empty()
        {
            match self.accept_all(open.to_vec()).await {
                Ok(admissions) => {
                    answers.extend(admissions.into_iter().map(Ok));
                    end = drafts.len();
                }
                Err(StoreError::KeyReused { index: 0 }) => {
                    answers.push(Err(Fault::key_reused()));
                    end = drafts.len();
                }
                Err(StoreError::KeyReused { index }) => end = answers.len() + index,
                Err(error) => return Err(error),
            }
        }
        Ok(answers)
    }

    /// Opens a broadcast: checks its terms, and stores them.
    pub async fn open_broadcast(
        self: &Arc<Self>,
        tenant: &Name,
        terms: &Terms<'_>,
    ) -> Result<Opening, IngestError> {
        self.sweep().await;
        let now = self.now();
        let Broadcast { draft, recipe } = check::broadcast(&self.catalog(), tenant, terms, now)?;
        Ok(match self.store.open_broadcast(draft, now).await? {
            BroadcastOpened::Replayed(id) => Opening::Replayed(id),
            BroadcastOpened::Opened(id) => Opening::Open(Upload::new(Arc::clone(self), id, recipe)),
        })
    }

    /// Abandons the broadcasts whose upload was dropped half-way: a caller that hung up. Whoever drops
    /// requests calls this afterwards; opening the next broadcast does, too, and so does a restart.
    pub async fn sweep(&self) {
        while let Some(broadcast) = self.next_left_open() {
            if let Err(error) = self.store.abandon_broadcast(broadcast).await {
                tracing::debug!(%broadcast, %error, "broadcast not abandoned");
            }
        }
    }

    /// Whether there is a channel called `name`, as of now.
    pub fn has_channel(&self, name: &str) -> bool {
        self.catalog().channels.get(name).is_some()
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    fn next_left_open(&self) -> Option<BroadcastId> {
        self.left_open().pop()
    }

    fn left_open(&self) -> std::sync::MutexGuard<'_, Vec<BroadcastId>> {
        self.left_open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Reservation ===

impl Reservation {
    /// Adds the bytes of `other`.
    pub fn merge(&mut self, other: Self) {
        self.permit.merge(other.permit);
    }
}
