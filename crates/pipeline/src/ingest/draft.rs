//! Drafts: submissions that are checked, rendered, and complete, ready to be stored.

use std::sync::Arc;

use notification::{ByteString, Content, Draft, Envelope, Lane, Name, Timestamp};
use store::BroadcastDraft;

use super::InvalidField;
use super::broadcast_content::BroadcastContent;
use super::catalog::Catalog;
use super::check::CheckedFields;
use super::content::check_content;
use super::fallback::fallback;
use super::recipient::{CheckedRecipient, check_recipient};
use super::submission::Submission;
use super::template::Variables;

/// The content that a notification would have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftPreview {
    /// Rendered.
    pub content: Content,
    /// Refusal by its channel; `None` if the channel accepts it.
    pub refused: Option<InvalidField>,
}

/// The content of a notification, before its channel has checked it.
struct Rendered<'a> {
    checked: CheckedFields<'a>,
    variables: Variables,
    content: Content,
}

/// Checks one notification.
pub(super) fn notification(
    catalog: &Catalog,
    tenant: &Name,
    submission: &Submission<'_>,
    to: ByteString,
    now: Timestamp,
) -> Result<Draft, InvalidField> {
    let rendered = Rendered::new(catalog, submission, now)?;
    complete((catalog, tenant, submission), to, now, rendered)
}

/// Checks one notification of which the content is to be shown, also when its channel will not have it.
pub(super) fn preview(
    catalog: &Catalog,
    tenant: &Name,
    submission: &Submission<'_>,
    to: ByteString,
    now: Timestamp,
) -> Result<DraftPreview, InvalidField> {
    let rendered = Rendered::new(catalog, submission, now)?;
    rendered.checked.check_bound(now)?;
    // Kept for the case that the channel refuses it: it is rendered once, and the bytes are shared.
    let content = rendered.content.clone();
    match complete((catalog, tenant, submission), to, now, rendered) {
        Ok(draft) => Ok(DraftPreview { content: draft.content, refused: None }),
        Err(invalid) if invalid.is_about_content() => {
            Ok(DraftPreview { content, refused: Some(invalid) })
        }
        Err(invalid) => Err(invalid),
    }
}

/// Checks a rendered content with its options and fallbacks, and completes the draft.
fn complete(
    (catalog, tenant, submission): (&Catalog, &Name, &Submission<'_>),
    to: ByteString,
    now: Timestamp,
    rendered: Rendered<'_>,
) -> Result<Draft, InvalidField> {
    let Rendered { checked, variables, mut content } = rendered;
    let (channel, senders) = (&**checked.channel, submission.senders.as_deref());
    check_content((channel, senders), &content)?;
    content.fallback = fallback(catalog, submission, &variables)?;
    let CheckedRecipient { recipient, destination } = check_recipient((channel, senders), to)?;
    // With the recipient in its channel's spelling: another spelling of it is the same request.
    let idempotency = checked.idempotency(submission, &recipient)?;
    let (channel, tenant) = (checked.name.clone(), tenant.clone());
    let envelope = Envelope {
        lane: Lane { channel, destination, priority: checked.priority, tenant },
        guarantee: checked.guarantee,
        due_at: checked.due_at(now),
        expires_at: checked.ends_at(),
        broadcast: None,
    };
    let (labels, trace) = (checked.labels, submission.trace);
    Ok(Draft { envelope, recipient, content, idempotency, labels, trace })
}

/// Checks a broadcast before its recipients are known.
pub(super) fn broadcast(
    catalog: &Catalog,
    tenant: &Name,
    submission: &Submission<'_>,
    now: Timestamp,
) -> Result<(BroadcastDraft, BroadcastContent), InvalidField> {
    let checked = CheckedFields::new(catalog, submission, now)?;
    // The recipients are no part of the fingerprint: they are not known yet.
    let idempotency = checked.idempotency(submission, "")?;
    let (due_at, expires_at) = (checked.due_at(now), checked.ends_at());
    let source = (Arc::clone(checked.channel), checked.source);
    let content = BroadcastContent::new(catalog, source, submission)?;
    let draft = BroadcastDraft {
        tenant: tenant.clone(),
        channel: checked.name.clone(),
        priority: checked.priority,
        guarantee: checked.guarantee,
        due_at,
        expires_at,
        idempotency,
        content: content.written(),
        labels: checked.labels,
    };
    Ok((draft, content))
}

// === impl Rendered ===

impl<'a> Rendered<'a> {
    fn new(
        catalog: &'a Catalog,
        submission: &Submission<'_>,
        now: Timestamp,
    ) -> Result<Self, InvalidField> {
        let checked = CheckedFields::new(catalog, submission, now)?;
        let variables = Variables::read(submission.variables.as_deref().unwrap_or_default())?;
        let content = checked.source.render(&variables)?;
        Ok(Self { checked, variables, content })
    }
}
