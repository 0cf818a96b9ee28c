//! Ingest: the requests of callers become drafts, and drafts are stored.
//!
//! The flow, file by file:
//! ```text
//! parse      JSON -> Submission (a notification or a broadcast in the caller's words)
//! check      Submission -> Checked: channel, times, key       recipient, content: what the channel takes
//! render     content_source, fallback, broadcast_content      template: what the words of contents mean      event_map: of events
//! draft      Checked and rendered -> Draft                    upload: the recipients of a broadcast
//! ```
//! Every error of a caller is reported here, once, as an [`InvalidField`] with the JSON pointer of its field. An edge (HTTP, the
//! outbox, a feed) brings the text or the submission, and gives the answer in its own protocol.
//!
//! A notification that is not scheduled is due at the whole second in which it was accepted, so that callers of the same second share an
//! envelope, and with it a batch.

mod invalid_field;
mod submission;

pub mod json;
pub mod limits;
pub mod parse;

mod catalog;
mod check;
mod content;
mod labels;
mod recipient;
mod sender_grants;

mod broadcast_content;
mod content_source;
mod event_map;
mod fallback;
mod template;

mod draft;
mod upload;

mod reschedule;

mod budget;
mod error;
mod outbox;
mod renderer;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use flow::Clock;
use notification::{BroadcastId, ByteString, Bytes, Draft, Name, Timestamp};
use prometheus_client::registry::Registry;
use store::{Admission, BroadcastOpened, Ingest, StoreError};
use tokio::sync::watch;

use crate::Channels;

pub use budget::Reservation;
pub use draft::DraftPreview;
pub use error::{IngestError, IngestShare};
pub use event_map::{EventMap, SourceEvent};
pub use invalid_field::InvalidField;
pub use labels::fault_of_tag;
pub use outbox::OutboxRelay;
pub use renderer::Renderer;
pub use reschedule::{NEW_TIME, new_time};
pub use sender_grants::{EndpointPrefix, FromPattern, SenderGrants};
pub use submission::{BroadcastRecipient, FallbackSubmission, Submission};
pub use template::{NamedTemplate, TemplateSource, Templates};
pub use upload::{BroadcastOpening, Upload};

use budget::Budget;
use catalog::Catalog;
use recipient::{CheckedRecipient, check_recipient};

/// The ingest stage. Shared by all edges.
#[derive(Debug)]
pub struct Intake {
    store: Arc<dyn Ingest>,
    /// The channels and templates that callers may name, as they are now.
    catalog: watch::Sender<Arc<Catalog>>,
    clock: Clock,
    budget: Budget,
    /// The threads that render templates; without them, the caller's does.
    renderer: Option<Renderer>,
    /// Broadcasts whose upload was dropped half-way, for [`Intake::sweep`].
    left_open: Mutex<Vec<BroadcastId>>,
}

// === impl Intake ===

impl Intake {
    /// An intake for `channels` into `store`.
    pub fn new(store: Arc<dyn Ingest>, channels: Arc<Channels>, clock: Clock) -> Self {
        let catalog = Arc::new(Catalog { channels, templates: Templates::default() });
        let catalog = watch::Sender::new(catalog);
        let (budget, left_open) = (Budget::new(), Mutex::default());
        Self { store, catalog, clock, budget, renderer: None, left_open }
    }

    /// Adds the metrics of its renderer.
    pub fn register(&self, registry: &mut Registry) {
        if let Some(renderer) = &self.renderer {
            registry.register_collector(renderer.metrics());
        }
    }

    /// Renders templates on the threads of `renderer`. Without one, a template is rendered on the caller's thread.
    #[must_use]
    pub fn with_renderer(self, renderer: Renderer) -> Self {
        Self { renderer: Some(renderer), ..self }
    }

    /// Offers these named templates, which were compiled for its channels.
    #[must_use]
    pub fn with_templates(self, templates: Templates) -> Self {
        self.replace(Arc::clone(&self.catalog().channels), templates);
        self
    }

    /// The named templates, as they are now.
    pub fn templates(&self) -> Templates {
        self.catalog().templates.clone()
    }

    /// Goes by `channels` and `templates`, which were compiled for them, from now on.
    pub fn replace(&self, channels: Arc<Channels>, templates: Templates) {
        self.catalog.send_replace(Arc::new(Catalog { channels, templates }));
    }

    /// Adds `bytes` to what `held` sets aside for a request of `tenant`, or refuses at once: it never waits.
    ///
    /// # Errors
    /// [`IngestError::TenantOverloaded`] and [`IngestError::Overloaded`].
    pub fn reserve(
        &self,
        tenant: &Name,
        bytes: usize,
        held: &mut Reservation,
    ) -> Result<(), IngestError> {
        self.budget.take(tenant, bytes, held)
    }

    /// Sets [`notification::limits::STREAM_BYTES`] aside for a stream of `tenant` that holds nothing yet; waits until there is room, for
    /// [`notification::limits::IDLE_TIMEOUT`] at most.
    ///
    /// # Errors
    /// The errors of [`Intake::reserve`].
    pub async fn reserve_for_stream(&self, tenant: &Name) -> Result<Reservation, IngestError> {
        self.budget.wait(tenant, notification::limits::STREAM_BYTES).await
    }

    /// Clock of the intake.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// The present time. One value serves a whole request.
    pub fn now(&self) -> Timestamp {
        channel::timestamp(self.clock)
    }

    /// Checks one notification, here and now. Pure but for its arguments.
    pub fn check(
        &self,
        tenant: &Name,
        submission: &Submission<'_>,
        to: ByteString,
        now: Timestamp,
    ) -> Result<Draft, InvalidField> {
        draft::notification(&self.catalog(), tenant, submission, to, now)
    }

    /// [`Intake::check`] with the templates rendered on threads of their own, so that they delay no other caller.
    ///
    /// # Errors
    /// An invalid field, and the errors of [`Renderer::run`].
    pub async fn check_in_turn(
        &self,
        tenant: &Name,
        submission: Submission<'_>,
        to: ByteString,
        now: Timestamp,
    ) -> Result<Draft, IngestError> {
        let (catalog, whose) = (self.catalog(), tenant.clone());
        let check = move |submission: &Submission<'_>| {
            draft::notification(&catalog, &whose, submission, to, now)
        };
        Ok(self.render(tenant, submission, check).await??)
    }

    /// The notification that [`Intake::check`] would accept, also when the channel refuses the content. Stores nothing.
    ///
    /// # Errors
    /// Every other invalid field, after which there is no content to show, and the errors of [`Renderer::run`].
    pub async fn preview(
        &self,
        tenant: &Name,
        submission: Submission<'_>,
        to: ByteString,
    ) -> Result<DraftPreview, IngestError> {
        let (catalog, whose, now) = (self.catalog(), tenant.clone(), self.now());
        let check = move |submission: &Submission<'_>| {
            draft::preview(&catalog, &whose, submission, to, now)
        };
        Ok(self.render(tenant, submission, check).await??)
    }

    /// Runs `work` with `submission`: on the threads for templates, if there are any and it uses one.
    async fn render<T: Send + 'static>(
        &self,
        tenant: &Name,
        submission: Submission<'_>,
        work: impl FnOnce(&Submission<'_>) -> T + Send + 'static,
    ) -> Result<T, IngestError> {
        match &self.renderer {
            Some(renderer) if submission.has_templates() => {
                let submission = submission.into_owned();
                renderer.run(tenant, move || work(&submission)).await
            }
            _ => Ok(work(&submission)),
        }
    }

    /// [`EventMap::apply`] on the threads for templates, so that it delays no caller.
    ///
    /// # Errors
    /// An invalid field, and the errors of [`Renderer::run`].
    pub async fn map(
        &self,
        tenant: &Name,
        map: &Arc<EventMap>,
        event: SourceEvent,
    ) -> Result<Bytes, IngestError> {
        let Some(renderer) = &self.renderer else { return Ok(map.apply(&event)?) };
        let map = Arc::clone(map);
        Ok(renderer.run(tenant, move || map.apply(&event)).await??)
    }

    /// Checks that `to` is a recipient that `channel` could have; gives the channel's shared name, and the spelling
    /// under which the recipient is stored.
    pub fn check_recipient(
        &self,
        channel: &str,
        to: ByteString,
    ) -> Result<(Name, ByteString), InvalidField> {
        let catalog = self.catalog();
        let (name, channel) = catalog.channel(channel)?;
        let CheckedRecipient { recipient, destination: _ } =
            check_recipient((&**channel, None), to)?;
        Ok((name.clone(), recipient))
    }

    /// Stores all of `drafts`, or none. Durable on return.
    pub async fn accept_all(&self, drafts: Vec<Draft>) -> Result<Vec<Admission>, StoreError> {
        self.store.ingest(drafts, self.now()).await
    }

    /// Stores each of `drafts` but those whose key was used for something else, and those that come too late and were not accepted
    /// before; answers in order.
    ///
    /// The store takes all or none, so what stands before a refused draft goes on its own: every draft is
    /// looked at a fixed number of times, however many are refused.
    pub async fn accept_each(
        &self,
        drafts: Vec<Draft>,
    ) -> Result<Vec<Result<Admission, InvalidField>>, StoreError> {
        // Only its key refuses a draft by itself: used before, or not used before although it is too late.
        if drafts.iter().all(|draft| draft.idempotency.is_none()) {
            return Ok(self.accept_all(drafts).await?.into_iter().map(Ok).collect());
        }
        let mut answers = Vec::with_capacity(drafts.len());
        let mut end = drafts.len();
        while let Some(open) = drafts.get(answers.len()..end)
            && !open.is_empty()
        {
            // A copy, since the rest of the drafts is sent again when one is refused.
            let (index, refused) = match self.accept_all(open.to_vec()).await {
                Ok(admissions) => {
                    answers.extend(admissions.into_iter().map(Ok));
                    end = drafts.len();
                    continue;
                }
                Err(StoreError::KeyReused { index }) => (index, InvalidField::key_reused()),
                Err(StoreError::BoundPassed { index, bound, now }) => {
                    (index, InvalidField::passed(bound, now))
                }
                Err(error) => return Err(error),
            };
            end = answers.len() + index;
            if index == 0 {
                answers.push(Err(refused));
                end = drafts.len();
            }
        }
        Ok(answers)
    }

    /// Opens a broadcast: checks its submission, and stores them.
    pub async fn open_broadcast(
        self: &Arc<Self>,
        tenant: &Name,
        submission: Submission<'_>,
    ) -> Result<BroadcastOpening, IngestError> {
        self.sweep().await;
        let (catalog, whose, now) = (self.catalog(), tenant.clone(), self.now());
        let trace = submission.trace;
        let check =
            move |submission: &Submission<'_>| draft::broadcast(&catalog, &whose, submission, now);
        let (draft, content) = self.render(tenant, submission, check).await??;
        let whose = tenant.clone();
        match self.store.open_broadcast(draft, now).await {
            Ok(BroadcastOpened::Replayed(id)) => Ok(BroadcastOpening::Replayed(id)),
            Ok(BroadcastOpened::Opened(id)) => {
                let upload = Upload::new(Arc::clone(self), (id, trace), (whose, content));
                Ok(BroadcastOpening::Open(upload))
            }
            Err(StoreError::BoundPassed { bound, now, .. }) => {
                Err(InvalidField::passed(bound, now).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Abandons the broadcasts whose upload was dropped half-way: a caller that hung up. The task that drops
    /// requests calls this afterwards; opening the next broadcast does, too, and so does a restart.
    pub async fn sweep(&self) {
        // One at a time, so that the lock is not held during a request to the store.
        while let Some(broadcast) = self.next_left_open() {
            if let Err(error) = self.store.abandon_broadcast(broadcast).await {
                // A broadcast that stays open counts for nothing, and recovery removes it once this process has ended.
                tracing::debug!(%broadcast, %error, "broadcast not abandoned");
            }
        }
    }

    /// The names of the channels, as of now.
    pub fn channel_names(&self) -> BTreeSet<Name> {
        self.catalog().channels.iter().map(|(name, _)| name.clone()).collect()
    }

    fn catalog(&self) -> Arc<Catalog> {
        // A copy of the pointer: a request keeps the catalog that it began with while a reload replaces it.
        Arc::clone(&self.catalog.borrow())
    }

    fn next_left_open(&self) -> Option<BroadcastId> {
        self.left_open().pop()
    }

    fn left_open(&self) -> std::sync::MutexGuard<'_, Vec<BroadcastId>> {
        self.left_open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
