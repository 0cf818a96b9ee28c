//! Reads JSON into submissions. It checks names and types of fields; the next step checks their values.

use std::borrow::Cow;

use notification::limits::{REQUEST_ITEMS, TAGS};
use notification::{ByteString, Bytes};
use serde_json::value::RawValue;

use super::InvalidField;
use super::json::{Object, ParseError, list, share, text};
use super::submission::{BroadcastRecipient, FallbackSubmission, Submission};
use crate::ingest::limits::FALLBACKS;

/// The fields of a [`Submission`], and more.
macro_rules! with_submission {
    ($($more:literal),*) => {
        &["channel", "content", "options", "template", "variables", "guarantee", "priority", "send_at",
          "expires_at", "late", "idempotency_key", "external_id", "tags", "metadata", "fallback", $($more),*]
    };
}

/// The fields of a notification.
pub const NOTIFICATION: &[&str] = with_submission!("to");
/// The fields of a broadcast whose recipients follow in lines of their own.
pub const BROADCAST: &[&str] = with_submission!();
/// The fields of a broadcast with its recipients.
pub const BROADCAST_WITH_RECIPIENTS: &[&str] = with_submission!("recipients");
/// The fields of a recipient of a broadcast that is not just a text.
pub const RECIPIENT: &[&str] = &["to", "variables", "external_id", "fallback"];
/// The fields of a fallback; one of a broadcast has no `to`.
pub const FALLBACK: &[&str] = &["channel", "to", "content", "options", "template"];

/// A broadcast with all of its recipients in one text.
#[derive(Debug)]
pub struct BroadcastWithRecipients<'a> {
    /// The content, as the caller gave it.
    pub submission: Submission<'a>,
    /// Its recipients, for [`recipient`].
    pub recipients: Vec<&'a RawValue>,
    /// Length of the text without its recipients, bytes.
    pub head_bytes: usize,
}

/// The field that says to which recipient a fallback goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecipientField {
    /// The fallback itself: a notification has one recipient.
    Here,
    /// Each recipient of a broadcast.
    WithRecipient,
}

/// A notification and its recipient, from `json`, a part of `whole`.
///
/// # Errors
/// When `json` is no JSON, or no notification.
pub fn notification<'a>(
    whole: &ByteString,
    json: &'a str,
) -> Result<(Submission<'a>, ByteString), ParseError> {
    let object = Object::read(json, NOTIFICATION)?;
    let submission = submission(&object, whole, RecipientField::Here)?;
    let to = Object::required("to", object.text("to")?)?;
    Ok((submission, share(whole, to)))
}

/// Checks that the map `json` has the fields of a notification. Their values are templates.
///
/// # Errors
/// When it is no JSON object, or has other fields, or lacks one.
pub(super) fn map(json: &str) -> Result<(), ParseError> {
    let object = Object::read(json, NOTIFICATION)?;
    for field in ["channel", "to"] {
        Object::required(field, object.raw(field))?;
    }
    if object.raw("template").is_none() {
        Object::required("content", object.raw("content"))?;
        // The content would be a template again, with what the event put into it.
        if object.raw("variables").is_some() {
            let message = "go with `template`: a content of a map has `body`, `id` and `key`";
            return Err(InvalidField::new("/variables", message).into());
        }
    }
    Ok(())
}

/// The notifications in the array `json`, each for [`notification()`].
///
/// # Errors
/// When it is no JSON array, or has more than [`REQUEST_ITEMS`].
pub fn notifications(json: &str) -> Result<Vec<&RawValue>, ParseError> {
    let (items, count) = list(json, REQUEST_ITEMS)?;
    if count > REQUEST_ITEMS { Err(too_many_items("", count).into()) } else { Ok(items) }
}

/// A broadcast whose recipients follow.
///
/// # Errors
/// When `json` is no JSON, or no broadcast.
pub fn broadcast(whole: &ByteString) -> Result<Submission<'_>, ParseError> {
    let object = Object::read(whole, BROADCAST)?;
    Ok(submission(&object, whole, RecipientField::WithRecipient)?)
}

/// A broadcast that has its recipients with it.
///
/// # Errors
/// When it is no JSON, no broadcast, or has more than [`REQUEST_ITEMS`] recipients.
pub fn broadcast_with_recipients(
    whole: &ByteString,
) -> Result<BroadcastWithRecipients<'_>, ParseError> {
    let object = Object::read(whole, BROADCAST_WITH_RECIPIENTS)?;
    let recipients = Object::required("recipients", object.raw("recipients"))?;
    let head_bytes = whole.len() - recipients.get().len();
    let Ok((recipients, count)) = list(recipients.get(), REQUEST_ITEMS) else {
        return Err(InvalidField::new("/recipients", "must be an array").into());
    };
    if count > REQUEST_ITEMS {
        return Err(too_many_items("/recipients", count).into());
    }
    let submission = submission(&object, whole, RecipientField::WithRecipient)?;
    Ok(BroadcastWithRecipients { submission, recipients, head_bytes })
}

/// A recipient of a broadcast from `json`, a part of `whole`: a text, or an object with `to`. Says whether it was a text.
///
/// # Errors
/// When it is no recipient.
pub fn recipient(
    whole: &ByteString,
    json: &RawValue,
) -> Result<(BroadcastRecipient, bool), ParseError> {
    if json.get().starts_with('{') {
        let object = Object::read(json.get(), RECIPIENT)?;
        let to = Object::required("to", object.text("to")?)?;
        let variables = object.object("variables", whole)?;
        let external_id = object.text("external_id")?.map(|id| share(whole, id));
        let fallback = addresses(&object, whole)?;
        let to = share(whole, to);
        return Ok((BroadcastRecipient { to, variables, external_id, fallback }, false));
    }
    let to = text(json)
        .map_err(|_| InvalidField::new("", "must be a string, or an object with `to`"))?;
    Ok((BroadcastRecipient { to: share(whole, to), ..BroadcastRecipient::default() }, true))
}

/// More items in one atomic request than it may have.
pub fn too_many_items(pointer: &'static str, count: usize) -> InvalidField {
    let message = format!(
        "must have at most {REQUEST_ITEMS} items, has {count}: send application/x-ndjson instead"
    );
    InvalidField::new(pointer, message)
}

/// The fallbacks of a notification, from an array; `json` is a part of `whole`.
pub(super) fn fallback<'a>(
    json: &'a str,
    whole: &ByteString,
    address: RecipientField,
) -> Result<Vec<FallbackSubmission<'a>>, InvalidField> {
    let Ok((items, count)) = list(json, FALLBACKS) else {
        return Err(InvalidField::new("/fallback", "must be an array"));
    };
    if count > FALLBACKS {
        return Err(too_many(count));
    }
    let mut fallback = Vec::with_capacity(count);
    for (index, item) in items.into_iter().enumerate() {
        let item = read_fallback(item.get(), whole, address);
        fallback.push(item.map_err(|invalid| {
            let pointer = format!("/fallback/{index}{}", invalid.pointer);
            InvalidField::new(pointer, invalid.message)
        })?);
    }
    Ok(fallback)
}

/// The tags of a notification or a broadcast, from an array; `json` is a part of `whole`.
pub(super) fn tags(json: &str, whole: &ByteString) -> Result<Vec<ByteString>, InvalidField> {
    let Ok((items, count)) = list(json, TAGS) else {
        return Err(InvalidField::new("/tags", "must be an array of strings"));
    };
    if count > TAGS {
        let message = format!("must have at most {TAGS} tags, has {count}");
        return Err(InvalidField::new("/tags", message));
    }
    let tag = |(index, item): (usize, &RawValue)| {
        let tag = text(item).map(|tag| share(whole, tag));
        tag.map_err(|message| InvalidField::new(format!("/tags/{index}"), message))
    };
    items.into_iter().enumerate().map(tag).collect()
}

/// Submission of `object`, without its recipient. `whole` is the complete text of the request.
fn submission<'a>(
    object: &Object<'a>,
    whole: &ByteString,
    address: RecipientField,
) -> Result<Submission<'a>, InvalidField> {
    let channel = Object::required("channel", object.text("channel")?)?;
    let (template, content) = content(object, whole)?;
    let fallback = object.raw("fallback").map(|json| fallback(json.get(), whole, address));
    let tags = object.raw("tags").map(|json| tags(json.get(), whole));
    Ok(Submission {
        channel,
        content,
        options: object.object("options", whole)?.unwrap_or_default(),
        template,
        variables: object.object("variables", whole)?,
        fallback: fallback.transpose()?.unwrap_or_default(),
        guarantee: object.text("guarantee")?,
        priority: object.text("priority")?,
        send_at: object.text("send_at")?,
        expires_at: object.text("expires_at")?,
        late: object.text("late")?,
        idempotency_key: object.text("idempotency_key")?.map(|key| share(whole, key)),
        message_key: None,
        external_id: object.text("external_id")?.map(|id| share(whole, id)),
        tags: tags.transpose()?.unwrap_or_default(),
        metadata: object.object("metadata", whole)?.unwrap_or_default(),
        senders: None,
        trace: None,
    })
}

/// The fields `content` and `template`: one of them, the other is `None` or empty.
fn content<'a>(
    object: &Object<'a>,
    whole: &ByteString,
) -> Result<(Option<Cow<'a, str>>, Bytes), InvalidField> {
    let template = object.text("template")?;
    let content = match (object.raw("content"), &template) {
        (Some(_), Some(_)) => {
            let message = "is a content already: give `content` or `template`";
            return Err(InvalidField::new("/template", message));
        }
        (None, Some(_)) => Bytes::new(),
        (content, None) => {
            let content = Object::required("content", content)?;
            whole.as_bytes().slice_ref(content.get().as_bytes())
        }
    };
    Ok((template, content))
}

/// Addresses of one recipient for the fallbacks of a broadcast, from its field `fallback`.
fn addresses(
    object: &Object<'_>,
    whole: &ByteString,
) -> Result<Vec<Option<ByteString>>, InvalidField> {
    let Some(json) = object.raw("fallback") else { return Ok(Vec::new()) };
    let Ok((items, count)) = list(json.get(), FALLBACKS) else {
        return Err(InvalidField::new("/fallback", "must be an array of addresses"));
    };
    if count > FALLBACKS {
        return Err(too_many(count));
    }
    let address = |(index, item): (usize, &RawValue)| {
        if item.get() == "null" {
            return Ok(None);
        }
        let wrong = |_| {
            InvalidField::new(format!("/fallback/{index}"), "must be an address, a string, or null")
        };
        text(item).map(|text| Some(share(whole, text))).map_err(wrong)
    };
    items.into_iter().enumerate().map(address).collect()
}

fn too_many(count: usize) -> InvalidField {
    InvalidField::new("/fallback", format!("must have at most {FALLBACKS} items, has {count}"))
}

fn read_fallback<'a>(
    json: &'a str,
    whole: &ByteString,
    address: RecipientField,
) -> Result<FallbackSubmission<'a>, InvalidField> {
    let object = Object::read(json, FALLBACK).map_err(|error| match error {
        ParseError::Invalid(invalid) => invalid,
        ParseError::Syntax(message) => InvalidField::new("", message),
    })?;
    let to = match (address, object.text("to")?) {
        (RecipientField::Here, to) => share(whole, Object::required("to", to)?),
        (RecipientField::WithRecipient, None) => ByteString::new(),
        (RecipientField::WithRecipient, Some(_)) => {
            let message = "is given by each recipient: {\"to\": ..., \"fallback\": [...]}";
            return Err(InvalidField::new("/to", message));
        }
    };
    let (template, content) = content(&object, whole)?;
    Ok(FallbackSubmission {
        channel: Object::required("channel", object.text("channel")?)?,
        to,
        content,
        options: object.object("options", whole)?.unwrap_or_default(),
        template,
    })
}
