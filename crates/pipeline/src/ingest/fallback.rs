//! Fallbacks: contents for other channels, sent in order once the one before is definitely refused.

use std::sync::Arc;

use channel::Channel;
use notification::limits::FALLBACK_BYTES;
use notification::{Alternative, ByteString, Content, Fallback, Name};

use super::InvalidField;
use super::catalog::Catalog;
use super::content::check_content;
use super::content_source::ContentSource;
use super::recipient::{CheckedRecipient, check_recipient};
use super::sender_grants::SenderGrants;
use super::submission::{FallbackSubmission, Submission};
use super::template::Variables;
use crate::ingest::limits::FALLBACKS;

/// A fallback of a notification or broadcast, without its recipient.
#[derive(Debug)]
pub(super) struct FallbackSource {
    name: Name,
    channel: Arc<dyn Channel>,
    source: ContentSource,
    senders: Option<Arc<SenderGrants>>,
    /// True if its channel has accepted the content, which is checked once if it is the same for all recipients.
    is_checked: bool,
}

/// The fallbacks of a notification, each checked and rendered as if it were sent by itself.
pub(super) fn fallback(
    catalog: &Catalog,
    submission: &Submission<'_>,
    variables: &Variables,
) -> Result<Option<Arc<Fallback>>, InvalidField> {
    if submission.fallback.is_empty() {
        return Ok(None);
    }
    let sources = fallback_sources(catalog, submission)?;
    let addresses = submission.fallback.iter().map(|item| Some(item.to.clone()));
    let next = alternatives(&sources, addresses, variables)?;
    Ok(Some(Arc::new(Fallback { of: None, next })))
}

/// The fallbacks of `submission`, in order.
pub(super) fn fallback_sources(
    catalog: &Catalog,
    submission: &Submission<'_>,
) -> Result<Vec<FallbackSource>, InvalidField> {
    if submission.fallback.len() > FALLBACKS {
        let message =
            format!("must have at most {FALLBACKS} items, has {}", submission.fallback.len());
        return Err(InvalidField::new("/fallback", message));
    }
    let senders = &submission.senders;
    let source = |item: &FallbackSubmission<'_>| {
        let (name, channel) = catalog.channel(&item.channel)?;
        let submission = Submission {
            content: item.content.clone(),
            options: item.options.clone(),
            template: item.template.clone(),
            variables: submission.variables.clone(),
            // Times, key and guarantee are those of the notification that it stands in for.
            ..Submission::default()
        };
        let source = ContentSource::new(catalog, (name, &**channel), &submission)?;
        Ok(FallbackSource {
            name: name.clone(),
            channel: Arc::clone(channel),
            source,
            senders: senders.clone(),
            is_checked: false,
        })
    };
    let sources = submission.fallback.iter().enumerate().map(|(index, item)| {
        source(item).map_err(|invalid: InvalidField| invalid.within(&format!("/fallback/{index}")))
    });
    sources.collect()
}

/// The alternatives of those `sources` that have an address, each checked as a content of its own.
pub(super) fn alternatives(
    sources: &[FallbackSource],
    addresses: impl Iterator<Item = Option<ByteString>>,
    variables: &Variables,
) -> Result<Vec<Alternative>, InvalidField> {
    let mut next = Vec::with_capacity(sources.len());
    // A recipient of a broadcast may have fewer addresses than there are fallbacks: the last ones do not reach it.
    for (index, (source, to)) in sources.iter().zip(addresses).enumerate() {
        let Some(to) = to else { continue };
        let alternative = source.alternative(to, variables);
        next.push(alternative.map_err(|invalid| invalid.within(&format!("/fallback/{index}")))?);
    }
    let bytes: usize = next.iter().map(Alternative::bytes).sum();
    if bytes > FALLBACK_BYTES {
        let message = format!("must have at most {FALLBACK_BYTES} bytes together, has {bytes}");
        return Err(InvalidField::new("/fallback", message));
    }
    Ok(next)
}

// === impl FallbackSource ===

impl FallbackSource {
    /// True if all recipients are sent the same content.
    pub(super) fn is_constant(&self) -> bool {
        self.source.is_constant()
    }

    /// True if the content is rendered from a template.
    pub(super) fn is_template(&self) -> bool {
        matches!(self.source, ContentSource::Template(_))
    }

    /// Checks a content that is the same for all recipients against its channel, now instead of for each.
    pub(super) fn check_constant(&mut self) -> Result<(), InvalidField> {
        if self.is_constant() {
            check_content(self.channel(), &self.source.written())?;
            self.is_checked = true;
        }
        Ok(())
    }

    /// Its channel, with the senders that are granted for it.
    fn channel(&self) -> (&dyn Channel, Option<&SenderGrants>) {
        (&*self.channel, self.senders.as_deref())
    }

    fn alternative(
        &self,
        to: ByteString,
        variables: &Variables,
    ) -> Result<Alternative, InvalidField> {
        let content = self.source.render(variables)?;
        if !self.is_checked {
            check_content(self.channel(), &content)?;
        }
        let CheckedRecipient { recipient, destination } = check_recipient(self.channel(), to)?;
        let Content { payload, options, fallback: _ } = content;
        Ok(Alternative { channel: self.name.clone(), destination, recipient, payload, options })
    }
}
