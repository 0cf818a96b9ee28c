//! A field of a request that cannot be accepted, and why.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use channel::Invalid;
use notification::{PassedBound, Timestamp};

/// A field that cannot be accepted. Callers see both parts, so neither holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct InvalidField {
    /// JSON pointer of the field (RFC 6901); empty when it is the whole.
    pub pointer: Cow<'static, str>,
    /// The mistake, and what would be right.
    pub message: String,
    /// True if the field is right by itself, and the caller's key is not granted it.
    pub is_not_granted: bool,
}

// === impl InvalidField ===

impl InvalidField {
    /// The field at `pointer` is wrong.
    pub fn new(pointer: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into(), is_not_granted: false }
    }

    /// The field at `pointer` says `given`, and the caller's key has `granted` alone.
    pub fn not_granted<T: fmt::Display>(
        pointer: impl Into<Cow<'static, str>>,
        given: impl fmt::Display,
        granted: &BTreeSet<T>,
    ) -> Self {
        let granted: Vec<String> = granted.iter().map(ToString::to_string).collect();
        let given: String = given.to_string().chars().take(80).collect();
        let granted = granted.join(", ");
        let message = format!("{given:?} is not granted to this key: it has {granted}");
        Self { is_not_granted: true, ..Self::new(pointer, message) }
    }

    /// This field, at `pointer`.
    #[must_use]
    pub fn at(self, pointer: impl Into<Cow<'static, str>>) -> Self {
        Self { pointer: pointer.into(), ..self }
    }

    /// The field as a part of the request at `pointer`. All parts share the variables, so a pointer to these is unchanged.
    pub(super) fn within(self, pointer: &str) -> Self {
        if self.pointer.starts_with("/variables") {
            return self;
        }
        let pointer = format!("{pointer}{}", self.pointer);
        self.at(pointer)
    }

    /// The idempotency key belongs to another request.
    pub(super) fn key_reused() -> Self {
        Self::new("/idempotency_key", "was used before for something else: take a new key")
    }

    /// The `bound` of the request has passed as of `now`.
    pub fn passed(bound: PassedBound, now: Timestamp) -> Self {
        match bound {
            PassedBound::SendAt(send_at) => {
                let message =
                    format!("{send_at} has passed (it is {now}): leave it out to send now");
                Self::new("/send_at", message)
            }
            PassedBound::ExpiresAt => Self::new("/expires_at", format!("has passed (it is {now})")),
        }
    }

    /// True if the field is the idempotency key.
    pub fn is_key(&self) -> bool {
        self.pointer == "/idempotency_key"
    }

    /// True if the field is a part of the content or its options, and would be wrong of every caller.
    pub(super) fn is_about_content(&self) -> bool {
        !self.is_not_granted
            && (self.pointer.starts_with("/content") || self.pointer.starts_with("/options"))
    }

    /// The refusal of the field at `pointer` by a channel.
    pub(super) fn below(pointer: &'static str, invalid: Invalid) -> Self {
        if invalid.pointer.is_empty() {
            return Self::new(pointer, invalid.message);
        }
        Self::new(format!("{pointer}{}", invalid.pointer), invalid.message)
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.strip_prefix('/') {
            Some(field) => write!(formatter, "{field}: {}", self.message),
            None => formatter.write_str(&self.message),
        }
    }
}
