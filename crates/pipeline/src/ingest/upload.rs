//! A broadcast on its way in: opened, filled, and sealed, or abandoned.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use notification::{BroadcastId, ByteString, Name, TraceContext, limits};
use store::{RecipientGroup, StoreError};

use super::broadcast_content::{BroadcastContent, RecipientContent};
use super::labels::check_external_id;
use super::recipient::{CheckedRecipient, check_recipient};
use super::submission::BroadcastRecipient;
use super::{IngestError, Intake, InvalidField};

/// The answer to opening a broadcast.
#[derive(Debug)]
pub enum BroadcastOpening {
    /// The broadcast takes recipients.
    Open(Upload),
    /// Its key was used before for the same content: this is that broadcast.
    Replayed(BroadcastId),
}

/// An open broadcast that takes recipients. Nothing of it counts before [`Upload::seal`]; one that is
/// dropped is abandoned.
pub struct Upload {
    intake: Arc<Intake>,
    id: BroadcastId,
    tenant: Name,
    content: Arc<BroadcastContent>,
    /// The trace of which some of the recipients are a part.
    trace: Option<TraceContext>,
    groups: Vec<RecipientGroup>,
    group_of: HashMap<Arc<str>, usize>,
    collected_items: usize,
    collected_bytes: usize,
    accepted: u64,
    calls: FuturesUnordered<BoxFuture<'static, Result<(), StoreError>>>,
    is_closed: bool,
}

/// A recipient that was checked, with its content.
struct UploadItem {
    checked: CheckedRecipient,
    content: RecipientContent,
    external_id: ByteString,
}

// === impl UploadItem ===

impl UploadItem {
    fn new(
        broadcast: &BroadcastContent,
        recipient: BroadcastRecipient,
    ) -> Result<Self, InvalidField> {
        let BroadcastRecipient { to, variables, external_id, fallback } = recipient;
        let checked = check_recipient(broadcast.channel(), to)?;
        let external_id = check_external_id(external_id)?;
        Ok(Self { checked, content: broadcast.for_recipient(variables, fallback)?, external_id })
    }
}

// === impl Upload ===

impl Upload {
    /// An upload for a tenant's open broadcast `id`, whose request may be part of a trace. Each recipient is sent its content, or one of
    /// its own.
    pub(super) fn new(
        intake: Arc<Intake>,
        (id, trace): (BroadcastId, Option<TraceContext>),
        (tenant, content): (Name, BroadcastContent),
    ) -> Self {
        Self {
            intake,
            id,
            tenant,
            content: Arc::new(content),
            trace,
            groups: Vec::new(),
            group_of: HashMap::new(),
            collected_items: 0,
            collected_bytes: 0,
            accepted: 0,
            calls: FuturesUnordered::new(),
            is_closed: false,
        }
    }

    /// Its number.
    pub fn id(&self) -> BroadcastId {
        self.id
    }

    /// Checks and collects recipients; answers in order. Where contents are rendered, that is one piece of work: give no
    /// more at a time than may delay other requests. After it, see whether the upload [is full](Self::is_full).
    ///
    /// # Errors
    /// The errors of [`Renderer::run`](super::Renderer::run). Then none of the recipients is collected.
    pub async fn add(
        &mut self,
        recipients: Vec<BroadcastRecipient>,
    ) -> Result<Vec<Result<(), InvalidField>>, IngestError> {
        let content = Arc::clone(&self.content);
        let work = move || {
            let made = recipients.into_iter().map(|recipient| UploadItem::new(&content, recipient));
            made.collect::<Vec<_>>()
        };
        let made = match &self.intake.renderer {
            Some(renderer) if self.content.renders() => renderer.run(&self.tenant, work).await?,
            _ => work(),
        };
        Ok(made.into_iter().map(|made| made.map(|made| self.collect(made))).collect())
    }

    fn collect(&mut self, UploadItem { checked, content, external_id }: UploadItem) {
        let CheckedRecipient { recipient, destination } = checked;
        let RecipientContent { content, bytes } = content;
        let number = self.accepted + self.collected_items as u64;
        let trace = self.trace.filter(|_| number.is_multiple_of(limits::TRACED_EVERY));
        self.collected_items += 1;
        self.collected_bytes += recipient.len() + bytes + external_id.len();
        let group = self.group(destination);
        group.push(recipient, content, external_id, trace);
    }

    /// True if the collected recipients are to be flushed.
    pub fn is_full(&self) -> bool {
        self.collected_items >= limits::STREAM_RECIPIENTS
            || self.collected_bytes >= limits::STREAM_GROUP_BYTES
    }

    /// True if each recipient's content is rendered, which takes its time.
    pub fn renders(&self) -> bool {
        self.content.renders()
    }

    /// Hands the collected recipients to the store. Waits only while too many calls are under way.
    pub async fn flush(&mut self) -> Result<(), StoreError> {
        // Counted when they are handed over: what fails then fails the whole broadcast.
        self.accepted += std::mem::take(&mut self.collected_items) as u64;
        self.collected_bytes = 0;
        // Its positions are those of the groups that go now.
        self.group_of.clear();
        let groups = std::mem::take(&mut self.groups);
        if groups.is_empty() {
            return Ok(());
        }
        let (intake, id) = (Arc::clone(&self.intake), self.id);
        let now = intake.now();
        self.calls
            .push(Box::pin(async move { intake.store.add_recipients(id, groups, now).await }));
        // Futures here run only when they are polled: this starts the new call, and takes those that have ended.
        while let Poll::Ready(Some(done)) = futures_util::poll!(self.calls.next()) {
            done?;
        }
        while self.calls.len() >= limits::STREAM_CALLS {
            self.calls.next().await.transpose()?;
        }
        Ok(())
    }

    /// Accepts the whole broadcast, and says how many notifications it has. Durable on return.
    pub async fn seal(mut self) -> Result<u64, IngestError> {
        let sealed = self.try_seal().await;
        if sealed.is_err() {
            // A broadcast that was sealed although the answer was lost is no longer open, and no part of it is removed.
            self.abandon().await;
        }
        sealed
    }

    /// Abandons the broadcast: no part of it stays.
    pub async fn abandon(self) {
        let intake = Arc::clone(&self.intake);
        // The drop puts it on the list of uploads to be swept.
        drop(self);
        intake.sweep().await;
    }

    async fn try_seal(&mut self) -> Result<u64, IngestError> {
        self.flush().await?;
        // A recipient that is stored after the sealing would be refused.
        while let Some(done) = self.calls.next().await {
            done?;
        }
        if self.accepted == 0 {
            return Err(InvalidField::new("/recipients", "must have at least one recipient").into());
        }
        let sealed = self.intake.store.seal_broadcast(self.id, self.intake.now()).await?;
        debug_assert_eq!(sealed, self.accepted, "every recipient is one notification");
        self.is_closed = true;
        Ok(sealed)
    }

    /// The group with this destination. Most channels have one only, so the last is tried first.
    #[expect(clippy::indexing_slicing, reason = "positions in `group_of` are those of `groups`")]
    fn group(&mut self, destination: Arc<str>) -> &mut RecipientGroup {
        // Of no groups this wraps, and is not used as it is: one more than it is the next position, 0.
        let last = self.groups.len().wrapping_sub(1);
        if self.groups.last().is_some_and(|group| group.destination == destination) {
            return &mut self.groups[last];
        }
        let position = *self.group_of.entry(destination).or_insert_with_key(|destination| {
            self.groups.push(RecipientGroup::new(Arc::clone(destination)));
            last.wrapping_add(1)
        });
        &mut self.groups[position]
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_closed {
            // A drop cannot wait for the store: `Intake::sweep` does.
            self.intake.left_open().push(self.id);
        }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Upload");
        debug.field("id", &self.id).field("accepted", &self.accepted).finish_non_exhaustive()
    }
}
