//! The content of a broadcast, and that of each of its recipients.

use std::borrow::Cow;
use std::sync::Arc;

use channel::Channel;
use notification::{Alternative, ByteString, Bytes, Content, Fallback};

use super::InvalidField;
use super::catalog::Catalog;
use super::content::check_content;
use super::content_source::ContentSource;
use super::fallback::{FallbackSource, alternatives, fallback_sources};
use super::sender_grants::SenderGrants;
use super::submission::Submission;
use super::template::Variables;

/// The content of a broadcast, checked as far as it can be before there are recipients.
#[derive(Debug)]
pub(super) struct BroadcastContent {
    channel: Arc<dyn Channel>,
    source: ContentSource,
    /// Variables that all recipients share.
    variables: Variables,
    fallbacks: Vec<FallbackSource>,
    senders: Option<Arc<SenderGrants>>,
}

/// The content of one recipient of a broadcast.
#[derive(Debug, Default)]
pub(super) struct RecipientContent {
    /// `None` when it is the broadcast's.
    pub(super) content: Option<Content>,
    /// Bytes that it shares with no other recipient.
    pub(super) bytes: usize,
}

// === impl BroadcastContent ===

impl BroadcastContent {
    /// Checks what can be checked before there are recipients.
    pub(super) fn new(
        catalog: &Catalog,
        (channel, source): (Arc<dyn Channel>, ContentSource),
        submission: &Submission<'_>,
    ) -> Result<Self, InvalidField> {
        let variables = Variables::read(submission.variables.as_deref().unwrap_or_default())?;
        let fallbacks = fallback_sources(catalog, submission)?;
        let senders = submission.senders.clone();
        let mut content = Self { channel, source, variables, fallbacks, senders };
        if content.source.is_constant() {
            check_content(content.channel(), &content.source.written())?;
        }
        for (index, fallback) in content.fallbacks.iter_mut().enumerate() {
            let checked = fallback.check_constant();
            checked.map_err(|invalid| invalid.within(&format!("/fallback/{index}")))?;
        }
        Ok(content)
    }

    /// Its channel, with the senders that are granted for it.
    pub(super) fn channel(&self) -> (&dyn Channel, Option<&SenderGrants>) {
        (&*self.channel, self.senders.as_deref())
    }

    /// The content as the caller wrote it, for each recipient that has none of its own.
    pub(super) fn written(&self) -> Content {
        self.source.written()
    }

    /// True if the content differs from one recipient to another.
    pub(super) fn renders(&self) -> bool {
        !self.source.is_constant() || self.fallbacks.iter().any(|fallback| !fallback.is_constant())
    }

    /// The content of the recipient with these `variables`, whose fallbacks go to `addresses`. An error names a field of the
    /// recipient, not of the broadcast.
    pub(super) fn for_recipient(
        &self,
        variables: Option<Bytes>,
        addresses: Vec<Option<ByteString>>,
    ) -> Result<RecipientContent, InvalidField> {
        // Before the short way below: what has no effect is refused, and not passed over in silence.
        self.check_own(variables.is_some(), addresses.len())?;
        let variables = match variables {
            Some(json) => Cow::Owned(Variables::read(&json)?.over(&self.variables)),
            None => Cow::Borrowed(&self.variables),
        };
        if self.source.is_constant() && self.fallbacks.is_empty() {
            return Ok(RecipientContent::default());
        }
        self.content(&variables, addresses).map_err(|invalid| match &*invalid.pointer {
            pointer if pointer.starts_with("/content") || pointer.starts_with("/options") => {
                let message = format!("with these, {invalid}");
                InvalidField { message, ..invalid.at("/variables") }
            }
            _ => invalid,
        })
    }

    fn content(
        &self,
        variables: &Variables,
        addresses: Vec<Option<ByteString>>,
    ) -> Result<RecipientContent, InvalidField> {
        let mut content = self.source.render(variables)?;
        let mut bytes = 0;
        if !self.source.is_constant() {
            check_content(self.channel(), &content)?;
            bytes += content.bytes();
        }
        let next = alternatives(&self.fallbacks, addresses.into_iter(), variables)?;
        // Fallbacks that are the same for all are stored with many of the recipients.
        let is_shared = self.fallbacks.iter().all(FallbackSource::is_constant);
        let of = if is_shared { Alternative::address_bytes } else { Alternative::bytes };
        bytes += next.iter().map(of).sum::<usize>();
        if !next.is_empty() {
            content.fallback = Some(Arc::new(Fallback { of: None, next }));
        }
        Ok(RecipientContent { content: Some(content), bytes })
    }

    fn check_own(&self, has_variables: bool, addresses: usize) -> Result<(), InvalidField> {
        let is_template = matches!(self.source, ContentSource::Template(_))
            || self.fallbacks.iter().any(FallbackSource::is_template);
        if has_variables && !is_template {
            let message = "the broadcast's content is no template: give the broadcast `variables`, `{}` will do";
            return Err(InvalidField::new("/variables", message));
        }
        if addresses > self.fallbacks.len() {
            let message = match self.fallbacks.len() {
                0 => "the broadcast has no `fallback`: say there what is sent, and here to whom"
                    .to_owned(),
                count => format!(
                    "must have at most {count} addresses, as the broadcast's `fallback` has items"
                ),
            };
            return Err(InvalidField::new("/fallback", message));
        }
        Ok(())
    }
}
