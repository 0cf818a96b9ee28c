//! Submissions of callers: fields as texts, read and not yet checked.

use std::borrow::Cow;
use std::sync::Arc;

use notification::{ByteString, Bytes, TraceContext};

use super::sender_grants::SenderGrants;

/// A notification without its recipient, or a broadcast without its recipients, as the caller wrote it.
#[derive(Debug, Clone, Default)]
pub struct Submission<'a> {
    /// The channel's name.
    pub channel: Cow<'a, str>,
    /// The content: valid JSON, byte for byte. A template when there are variables.
    pub content: Bytes,
    /// The channel's options: a JSON object, empty when there are none. A template likewise.
    pub options: Bytes,
    /// The name of a configured template, in place of content and options.
    pub template: Option<Cow<'a, str>>,
    /// The template's variables: valid JSON.
    pub variables: Option<Bytes>,
    /// Its fallbacks, in order: the first is sent once it is definitely refused.
    pub fallback: Vec<FallbackSubmission<'a>>,
    /// A [`Guarantee`](notification::Guarantee).
    pub guarantee: Option<Cow<'a, str>>,
    /// A [`Priority`](notification::Priority).
    pub priority: Option<Cow<'a, str>>,
    /// Due time (RFC 3339); now when absent.
    pub send_at: Option<Cow<'a, str>>,
    /// Time after which it is no longer worth sending (RFC 3339).
    pub expires_at: Option<Cow<'a, str>>,
    /// A [`LatePolicy`](notification::LatePolicy); without effect when `send_at` is absent.
    pub late: Option<Cow<'a, str>>,
    /// The caller's key.
    pub idempotency_key: Option<ByteString>,
    /// The engine's own key of the message that brought it, which counts if the caller has given none.
    pub message_key: Option<ByteString>,
    /// The application's own id of whom or what it is about; of a broadcast, its own.
    pub external_id: Option<ByteString>,
    /// Tags: of a broadcast, those of each of its notifications as well.
    pub tags: Vec<ByteString>,
    /// A JSON object, empty when there is none; it goes with the tags.
    pub metadata: Bytes,
    /// The senders that its caller is granted; `None` for all of them. No part of the request's text.
    pub senders: Option<Arc<SenderGrants>>,
    /// The trace of the request that brought it, if that is traced. No part of the request's text either.
    pub trace: Option<TraceContext>,
}

/// A content for another channel, sent once the one before it is definitely refused.
#[derive(Debug, Clone, Default)]
pub struct FallbackSubmission<'a> {
    /// The channel's name.
    pub channel: Cow<'a, str>,
    /// Device token, endpoint, address. Unused in a broadcast, where each recipient has its own.
    pub to: ByteString,
    /// Content, as in [`Submission`].
    pub content: Bytes,
    /// Options of the content, as in [`Submission`].
    pub options: Bytes,
    /// Name of a template, as in [`Submission`].
    pub template: Option<Cow<'a, str>>,
}

/// A recipient of a broadcast, as the caller wrote it.
#[derive(Debug, Clone, Default)]
pub struct BroadcastRecipient {
    /// Device token, endpoint, address.
    pub to: ByteString,
    /// Its variables (JSON), if the content is a template: they go before those of all.
    pub variables: Option<Bytes>,
    /// The application's own id of whom it is.
    pub external_id: Option<ByteString>,
    /// Addresses for the broadcast's fallbacks, in their order; `None` for a fallback that the recipient does not have.
    pub fallback: Vec<Option<ByteString>>,
}

// === impl Submission ===

impl Submission<'_> {
    /// True if it may use a template, whose rendering takes milliseconds.
    pub(super) fn has_templates(&self) -> bool {
        self.template.is_some() || self.variables.is_some()
    }

    /// True if it has a key, under which it may have been accepted before.
    pub(super) fn has_key(&self) -> bool {
        self.idempotency_key.is_some() || self.message_key.is_some()
    }

    /// An owned copy, for work on another thread. Contents are shared and not copied.
    pub(super) fn into_owned(self) -> Submission<'static> {
        let owned = |text: Option<Cow<'_, str>>| text.map(|text| Cow::Owned(text.into_owned()));
        let fallback = self.fallback.into_iter().map(|item| FallbackSubmission {
            channel: Cow::Owned(item.channel.into_owned()),
            template: owned(item.template),
            to: item.to,
            content: item.content,
            options: item.options,
        });
        Submission {
            channel: Cow::Owned(self.channel.into_owned()),
            template: owned(self.template),
            fallback: fallback.collect(),
            guarantee: owned(self.guarantee),
            priority: owned(self.priority),
            send_at: owned(self.send_at),
            expires_at: owned(self.expires_at),
            late: owned(self.late),
            content: self.content,
            options: self.options,
            variables: self.variables,
            idempotency_key: self.idempotency_key,
            message_key: self.message_key,
            external_id: self.external_id,
            tags: self.tags,
            metadata: self.metadata,
            senders: self.senders,
            trace: self.trace,
        }
    }
}
