//! Checks a submission: its channel, its times, its key, and the words for guarantee, priority and lateness.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use channel::Channel;
use notification::limits::{CLOCK_TOLERANCE, KEY_BYTES, LATE_AFTER};
use notification::{
    Guarantee, Idempotency, Labels, LatePolicy, Name, PassedBound, Priority, Timestamp,
};

use super::InvalidField;
use super::catalog::Catalog;
use super::content_source::ContentSource;
use super::labels::check_labels;
use super::submission::Submission;
use crate::ingest::limits::SCHEDULE_AHEAD;

/// A [`Submission`] whose fields are right, each by itself and together.
pub(super) struct CheckedFields<'a> {
    pub(super) name: &'a Name,
    pub(super) channel: &'a Arc<dyn Channel>,
    pub(super) guarantee: Guarantee,
    pub(super) priority: Priority,
    send_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    late: LatePolicy,
    /// The bound that has passed, of a submission whose key may have been used before.
    passed: Option<PassedBound>,
    pub(super) source: ContentSource,
    pub(super) labels: Labels,
}

// === impl CheckedFields ===

impl<'a> CheckedFields<'a> {
    /// Checks what `submission` says, as of `now`. A bound in time that has passed is an error unless there is a key: then the
    /// store decides, which knows whether the key was used before ([`Idempotency::passed`]).
    pub(super) fn new(
        catalog: &'a Catalog,
        submission: &Submission<'_>,
        now: Timestamp,
    ) -> Result<Self, InvalidField> {
        let (name, channel) = catalog.channel(&submission.channel)?;
        let send_at = parse("/send_at", submission.send_at.as_deref())?;
        let expires_at = parse("/expires_at", submission.expires_at.as_deref())?;
        let passed = check_times(send_at, expires_at, now)?;
        if let Some(bound) = passed
            && !submission.has_key()
        {
            return Err(InvalidField::passed(bound, now));
        }
        Ok(Self {
            name,
            channel,
            guarantee: parse("/guarantee", submission.guarantee.as_deref())?.unwrap_or_default(),
            priority: parse("/priority", submission.priority.as_deref())?.unwrap_or_default(),
            send_at,
            expires_at,
            late: parse("/late", submission.late.as_deref())?.unwrap_or_default(),
            passed,
            source: ContentSource::new(catalog, (name, &**channel), submission)?,
            labels: check_labels(submission)?,
        })
    }

    /// Refuses a bound in time that has passed, where nothing is stored.
    pub(super) fn check_bound(&self, now: Timestamp) -> Result<(), InvalidField> {
        self.passed.map_or(Ok(()), |bound| Err(InvalidField::passed(bound, now)))
    }

    /// Due time: the present second if the caller gave none.
    pub(super) fn due_at(&self, now: Timestamp) -> Timestamp {
        self.send_at.unwrap_or_else(|| now.whole_second())
    }

    /// Time at which the notification ends unsent: the caller's expiry, or the time at which a late one is skipped.
    pub(super) fn ends_at(&self) -> Option<Timestamp> {
        let too_late = match (self.late, self.send_at) {
            (LatePolicy::Skip, Some(send_at)) => Some(send_at.plus(LATE_AFTER)),
            (LatePolicy::Skip, None) | (LatePolicy::Send, _) => None,
        };
        self.expires_at.into_iter().chain(too_late).min()
    }

    /// Idempotency key of the caller and fingerprint of the request, if there is a key.
    pub(super) fn idempotency(
        &self,
        submission: &Submission<'_>,
        to: &str,
    ) -> Result<Option<Idempotency>, InvalidField> {
        let passed = self.passed;
        let Some(key) = submission.idempotency_key.clone() else {
            // Of one fingerprint: a message that comes again is the same one, whatever a template makes of it by then.
            let own = submission.message_key.clone().map(Idempotency::of_engine);
            return Ok(own.map(|idempotency| Idempotency { passed, ..idempotency }));
        };
        if key.is_empty() || key.len() > KEY_BYTES {
            let message = format!("must have 1 to {KEY_BYTES} bytes, has {}", key.len());
            return Err(InvalidField::new("/idempotency_key", message));
        }
        // Keys with a control character are the engine's own: those of fallbacks and of the feed.
        if key.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(InvalidField::new("/idempotency_key", "must not have control characters"));
        }
        Ok(Some(Idempotency { key, fingerprint: self.fingerprint(submission, to), passed }))
    }

    /// SHA-256 of the request, each part after its length; the key and the present time are no part.
    fn fingerprint(&self, submission: &Submission<'_>, to: &str) -> [u8; 32] {
        let time = |instant: Option<Timestamp>| instant.map(|at| at.millis().to_be_bytes());
        let (send_at, expires_at) = (time(self.send_at), time(self.expires_at));
        // Codes and not texts: a default that is left out is the same as one that is written.
        let codes = [self.guarantee.code(), self.priority.code(), self.late.code()];
        // The fields as they were sent, before rendering: a retry after a reload is still the same request.
        let parts: [&[u8]; 7] = [
            self.name.as_str().as_bytes(),
            to.as_bytes(),
            &submission.content,
            &submission.options,
            &codes,
            send_at.as_ref().map_or(&[], |bytes| bytes.as_slice()),
            expires_at.as_ref().map_or(&[], |bytes| bytes.as_slice()),
        ];
        let template =
            [submission.template.as_deref().map(str::as_bytes), submission.variables.as_deref()];
        // A request without a template has the fingerprint that it had before there were any.
        let template = template.iter().filter(|_| template.iter().any(Option::is_some));
        let template = template.map(|part| part.unwrap_or_default());
        let fallback = submission.fallback.iter().flat_map(|item| {
            let template = item.template.as_deref().unwrap_or_default().as_bytes();
            [item.channel.as_bytes(), item.to.as_bytes(), &item.content, &item.options, template]
        });
        // One part: those of a fallback are five, so that labels are never taken for these.
        let labels = (!self.labels.is_empty()).then(|| self.labels_digest());
        let labels = labels.as_ref().map(<[u8; 32]>::as_slice);
        digest(parts.into_iter().chain(template).chain(fallback).chain(labels))
    }

    fn labels_digest(&self) -> [u8; 32] {
        let (external_id, metadata) = (self.labels.external_id.as_bytes(), self.labels.metadata());
        let tags = self.labels.tags().iter().map(|tag| &**tag.as_bytes());
        digest([&**external_id, metadata].into_iter().chain(tags))
    }
}

// === helpers ===

/// SHA-256 of parts, each after its length: so bytes cannot move from one to the next unnoticed.
fn digest<'a>(parts: impl Iterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut digest = [0; 32];
    for (byte, computed) in digest.iter_mut().zip(context.finish().as_ref()) {
        *byte = *computed;
    }
    digest
}

fn parse<T: FromStr<Err: fmt::Display>>(
    pointer: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, InvalidField> {
    text.map(|text| {
        text.parse().map_err(|error: T::Err| InvalidField::new(pointer, error.to_string()))
    })
    .transpose()
}

/// Checks that a notification may be scheduled for `send_at`.
pub(super) fn check_ahead(send_at: Timestamp, now: Timestamp) -> Result<(), InvalidField> {
    let latest = now.plus(SCHEDULE_AHEAD);
    if send_at > latest {
        let message = format!("is too far ahead: at most {latest}");
        return Err(InvalidField::new("/send_at", message));
    }
    Ok(())
}

/// Checks the times of a notification, and gives the bound that has passed.
fn check_times(
    send_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<PassedBound>, InvalidField> {
    if let Some(send_at) = send_at {
        // Callers' clocks differ from ours: what they mean by "now" may be a little past here.
        if send_at < now.minus(CLOCK_TOLERANCE) {
            return Ok(Some(PassedBound::SendAt(send_at)));
        }
        check_ahead(send_at, now)?;
    }
    let Some(expires_at) = expires_at else { return Ok(None) };
    if expires_at <= now {
        return Ok(Some(PassedBound::ExpiresAt));
    }
    if send_at.is_some_and(|send_at| expires_at <= send_at) {
        return Err(InvalidField::new("/expires_at", "must be after `send_at`"));
    }
    Ok(None)
}
