//! What a caller may ask for, and what it is told when it may not.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use channel::{Channel, Invalid};
use notification::limits::{
    CLOCK_TOLERANCE, KEY_BYTES, LATE_AFTER, RECIPIENT_BYTES, SCHEDULE_AHEAD,
};
use notification::{
    ByteString, Bytes, Content, Draft, Envelope, Guarantee, Idempotency, Lane, LatePolicy, Name,
    Priority, Timestamp,
};
use store::BroadcastDraft;

use super::Preview;
use super::content::{Recipe, What, check_content, fallback};
use super::template::{Templates, Variables};
use crate::Channels;

/// Everything a caller says of a notification but whom it is for, in the caller's own words.
#[derive(Debug, Clone, Default)]
pub struct Terms<'a> {
    /// The channel's name.
    pub channel: Cow<'a, str>,
    /// The payload: valid JSON, byte for byte. A template when there are variables.
    pub content: Bytes,
    /// The channel's options: a JSON object, empty when there are none. A template likewise.
    pub options: Bytes,
    /// The name of a configured template, in place of content and options.
    pub template: Option<Cow<'a, str>>,
    /// What is put into the template: valid JSON.
    pub variables: Option<Bytes>,
    /// What stands in for it once it is definitely refused, in order.
    pub fallback: Vec<FallbackTerms<'a>>,
    /// A [`Guarantee`].
    pub guarantee: Option<Cow<'a, str>>,
    /// A [`Priority`].
    pub priority: Option<Cow<'a, str>>,
    /// When to send it (RFC 3339); now when absent.
    pub send_at: Option<Cow<'a, str>>,
    /// When it is no longer worth sending (RFC 3339).
    pub expires_at: Option<Cow<'a, str>>,
    /// A [`LatePolicy`]; without effect when `send_at` is absent.
    pub late: Option<Cow<'a, str>>,
    /// The caller's key.
    pub idempotency_key: Option<ByteString>,
}

/// Another way to tell somebody the same, in the caller's own words.
#[derive(Debug, Clone, Default)]
pub struct FallbackTerms<'a> {
    /// The channel's name.
    pub channel: Cow<'a, str>,
    /// Device token, endpoint, address. Unused in a broadcast, where each recipient has its own.
    pub to: ByteString,
    /// As in [`Terms`].
    pub content: Bytes,
    /// As in [`Terms`].
    pub options: Bytes,
    /// As in [`Terms`].
    pub template: Option<Cow<'a, str>>,
}

/// One thing a caller got wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// JSON pointer of the field (RFC 6901); empty when it is the whole.
    pub pointer: Cow<'static, str>,
    /// What is wrong and what would be right.
    pub message: String,
}

/// What callers may name.
#[derive(Debug)]
pub(super) struct Catalog {
    pub(super) channels: Arc<Channels>,
    pub(super) templates: Templates,
}

/// A broadcast whose recipients are not known yet.
pub(super) struct Broadcast {
    pub(super) draft: BroadcastDraft,
    pub(super) recipe: Recipe,
}

/// Whom a notification is for.
pub(super) struct Recipient {
    /// In the channel's canonical spelling.
    pub(super) to: ByteString,
    /// Where the channel sends it to.
    pub(super) destination: Arc<str>,
}

/// What notifications and broadcasts have in common, understood.
struct Checked<'a> {
    name: &'a Name,
    channel: &'a Arc<dyn Channel>,
    guarantee: Guarantee,
    priority: Priority,
    send_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    late: LatePolicy,
    what: What,
}

/// What a notification sends, before its channel was asked.
struct Rendered<'a> {
    checked: Checked<'a>,
    variables: Variables,
    content: Content,
}

/// Checks one notification.
pub(super) fn notification(
    catalog: &Catalog,
    tenant: &Name,
    terms: &Terms<'_>,
    to: ByteString,
    now: Timestamp,
) -> Result<Draft, Fault> {
    let rendered = Rendered::new(catalog, terms, now)?;
    complete((catalog, tenant, terms), to, now, rendered)
}

/// Checks one notification of which the content is to be shown, also when its channel will not have it.
pub(super) fn preview(
    catalog: &Catalog,
    tenant: &Name,
    terms: &Terms<'_>,
    to: ByteString,
    now: Timestamp,
) -> Result<Preview, Fault> {
    let rendered = Rendered::new(catalog, terms, now)?;
    let content = rendered.content.clone();
    match complete((catalog, tenant, terms), to, now, rendered) {
        Ok(draft) => Ok(Preview { content: draft.content, refused: None }),
        Err(fault) if fault.is_about_content() => Ok(Preview { content, refused: Some(fault) }),
        Err(fault) => Err(fault),
    }
}

/// Checks what is rendered, and what goes with it.
fn complete(
    (catalog, tenant, terms): (&Catalog, &Name, &Terms<'_>),
    to: ByteString,
    now: Timestamp,
    rendered: Rendered<'_>,
) -> Result<Draft, Fault> {
    let Rendered { checked, variables, mut content } = rendered;
    check_content(&**checked.channel, &content)?;
    content.fallback = fallback(catalog, terms, &variables)?;
    let Recipient { to, destination } = recipient(&**checked.channel, to)?;
    let idempotency = checked.idempotency(terms, &to)?;
    let envelope = Envelope {
        tenant: tenant.clone(),
        lane: Lane { channel: checked.name.clone(), destination, priority: checked.priority },
        guarantee: checked.guarantee,
        due_at: checked.due_at(now),
        expires_at: checked.ends_at(),
        broadcast: None,
    };
    Ok(Draft { envelope, recipient: to, content, idempotency })
}

/// Checks a broadcast before its recipients are known.
pub(super) fn broadcast(
    catalog: &Catalog,
    tenant: &Name,
    terms: &Terms<'_>,
    now: Timestamp,
) -> Result<Broadcast, Fault> {
    let checked = Checked::new(catalog, terms, now)?;
    let idempotency = checked.idempotency(terms, "")?;
    let (due_at, expires_at) = (checked.due_at(now), checked.ends_at());
    let recipe = Recipe::new(catalog, (Arc::clone(checked.channel), checked.what), terms)?;
    let draft = BroadcastDraft {
        tenant: tenant.clone(),
        channel: checked.name.clone(),
        priority: checked.priority,
        guarantee: checked.guarantee,
        due_at,
        expires_at,
        idempotency,
        content: recipe.source(),
    };
    Ok(Broadcast { draft, recipe })
}

/// The channel called `name`, with its name as everybody else shares it.
pub(super) fn channel<'a>(
    channels: &'a Channels,
    name: &str,
) -> Result<(&'a Name, &'a Arc<dyn Channel>), Fault> {
    channels.get_named(name).ok_or_else(|| unknown_channel(channels, name))
}

/// Checks a recipient, and says where its channel sends it to.
pub(super) fn recipient(channel: &dyn Channel, to: ByteString) -> Result<Recipient, Fault> {
    if to.is_empty() || to.len() > RECIPIENT_BYTES {
        let message = format!("must have 1 to {RECIPIENT_BYTES} bytes, has {}", to.len());
        return Err(Fault::new("/to", message));
    }
    if to.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(Fault::new("/to", "must not have control characters"));
    }
    let below = |invalid| Fault::below("/to", invalid);
    let respelled = match channel.canonical(&to).map_err(below)? {
        Cow::Borrowed(_as_given) => None,
        Cow::Owned(canonical) => Some(canonical),
    };
    let to = respelled.map_or(to, ByteString::from);
    let destination = channel.destination(&to).map_err(below)?;
    Ok(Recipient { to, destination })
}

// === impl Fault ===

impl Fault {
    /// The field at `pointer` is wrong.
    pub fn new(pointer: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }

    /// The same of a part at `pointer`; what is wrong with the variables is wrong with all parts.
    pub(super) fn within(self, pointer: &str) -> Self {
        if self.pointer.starts_with("/variables") {
            return self;
        }
        Self { pointer: format!("{pointer}{}", self.pointer).into(), ..self }
    }

    pub(super) fn key_reused() -> Self {
        Self::new("/idempotency_key", "was used before for something else: take a new key")
    }

    /// Whether it is about what is sent.
    pub(super) fn is_about_content(&self) -> bool {
        self.pointer.starts_with("/content") || self.pointer.starts_with("/options")
    }

    pub(super) fn below(pointer: &'static str, invalid: Invalid) -> Self {
        if invalid.pointer.is_empty() {
            return Self::new(pointer, invalid.message);
        }
        Self::new(format!("{pointer}{}", invalid.pointer), invalid.message)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.strip_prefix('/') {
            Some(field) => write!(formatter, "{field}: {}", self.message),
            None => formatter.write_str(&self.message),
        }
    }
}

// === impl Terms ===

impl Terms<'_> {
    /// Whether something of it is rendered.
    pub(super) fn has_templates(&self) -> bool {
        self.template.is_some() || self.variables.is_some()
    }

    /// The same, borrowed from nobody.
    pub(super) fn into_owned(self) -> Terms<'static> {
        let owned = |text: Option<Cow<'_, str>>| text.map(|text| Cow::Owned(text.into_owned()));
        let fallback = self.fallback.into_iter().map(|item| FallbackTerms {
            channel: Cow::Owned(item.channel.into_owned()),
            template: owned(item.template),
            to: item.to,
            content: item.content,
            options: item.options,
        });
        Terms {
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
        }
    }
}

// === impl Rendered ===

impl<'a> Rendered<'a> {
    fn new(catalog: &'a Catalog, terms: &Terms<'_>, now: Timestamp) -> Result<Self, Fault> {
        let checked = Checked::new(catalog, terms, now)?;
        let variables = Variables::of(terms)?;
        let content = checked.what.render(&variables)?;
        Ok(Self { checked, variables, content })
    }
}

// === impl Checked ===

impl<'a> Checked<'a> {
    fn new(catalog: &'a Catalog, terms: &Terms<'_>, now: Timestamp) -> Result<Self, Fault> {
        let (name, channel) = channel(&catalog.channels, &terms.channel)?;
        let send_at = parse("/send_at", terms.send_at.as_deref())?;
        let expires_at = parse("/expires_at", terms.expires_at.as_deref())?;
        check_times(send_at, expires_at, now)?;
        Ok(Self {
            name,
            channel,
            guarantee: parse("/guarantee", terms.guarantee.as_deref())?.unwrap_or_default(),
            priority: parse("/priority", terms.priority.as_deref())?.unwrap_or_default(),
            send_at,
            expires_at,
            late: parse("/late", terms.late.as_deref())?.unwrap_or_default(),
            what: What::new(catalog, (name, &**channel), terms)?,
        })
    }

    /// When to send it: the present second if nothing else was said.
    fn due_at(&self, now: Timestamp) -> Timestamp {
        self.send_at.unwrap_or_else(|| now.whole_second())
    }

    /// When it ends unsent: asked for, or too late.
    fn ends_at(&self) -> Option<Timestamp> {
        let too_late = match (self.late, self.send_at) {
            (LatePolicy::Skip, Some(send_at)) => Some(send_at.plus(LATE_AFTER)),
            (LatePolicy::Skip, None) | (LatePolicy::Send, _) => None,
        };
        self.expires_at.into_iter().chain(too_late).min()
    }

    fn idempotency(&self, terms: &Terms<'_>, to: &str) -> Result<Option<Idempotency>, Fault> {
        let Some(key) = terms.idempotency_key.clone() else { return Ok(None) };
        if key.is_empty() || key.len() > KEY_BYTES {
            let message = format!("must have 1 to {KEY_BYTES} bytes, has {}", key.len());
            return Err(Fault::new("/idempotency_key", message));
        }
        if key.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(Fault::new("/idempotency_key", "must not have control characters"));
        }
        Ok(Some(Idempotency { key, fingerprint: self.fingerprint(terms, to) }))
    }

    /// SHA-256 of what was asked for, each part after its length; the key and the present time are no part.
    fn fingerprint(&self, terms: &Terms<'_>, to: &str) -> [u8; 32] {
        let time = |instant: Option<Timestamp>| instant.map(|at| at.millis().to_be_bytes());
        let (send_at, expires_at) = (time(self.send_at), time(self.expires_at));
        let codes = [self.guarantee.code(), self.priority.code(), self.late.code()];
        let parts: [&[u8]; 7] = [
            self.name.as_str().as_bytes(),
            to.as_bytes(),
            &terms.content,
            &terms.options,
            &codes,
            send_at.as_ref().map_or(&[], |bytes| bytes.as_slice()),
            expires_at.as_ref().map_or(&[], |bytes| bytes.as_slice()),
        ];
        let template = [terms.template.as_deref().map(str::as_bytes), terms.variables.as_deref()];
        // What has no template has the fingerprint that it had before there were any.
        let template = template.iter().filter(|_| template.iter().any(Option::is_some));
        let template = template.map(|part| part.unwrap_or_default());
        let fallback = terms.fallback.iter().flat_map(|item| {
            let template = item.template.as_deref().unwrap_or_default().as_bytes();
            [item.channel.as_bytes(), item.to.as_bytes(), &item.content, &item.options, template]
        });
        let mut context = Context::new(&SHA256);
        for part in parts.into_iter().chain(template).chain(fallback) {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut fingerprint = [0; 32];
        for (byte, digest) in fingerprint.iter_mut().zip(context.finish().as_ref()) {
            *byte = *digest;
        }
        fingerprint
    }
}

// === helpers ===

fn unknown_channel(channels: &Channels, name: &str) -> Fault {
    let known: Vec<String> = channels.iter().map(|(name, _)| format!("`{name}`")).collect();
    let asked: String = name.chars().take(64).collect();
    let message = match known.as_slice() {
        [] => format!("there is no channel {asked:?}: none is configured"),
        _ => format!("there is no channel {asked:?}: the channels are {}", known.join(", ")),
    };
    Fault::new("/channel", message)
}

fn parse<T: FromStr<Err: fmt::Display>>(
    pointer: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, Fault> {
    text.map(|text| text.parse().map_err(|error: T::Err| Fault::new(pointer, error.to_string())))
        .transpose()
}

fn check_times(
    send_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), Fault> {
    if let Some(send_at) = send_at {
        if send_at < now.minus(CLOCK_TOLERANCE) {
            let message = format!("{send_at} has passed (it is {now}): leave it out to send now");
            return Err(Fault::new("/send_at", message));
        }
        let latest = now.plus(SCHEDULE_AHEAD);
        if send_at > latest {
            return Err(Fault::new("/send_at", format!("is too far ahead: at most {latest}")));
        }
    }
    let Some(expires_at) = expires_at else { return Ok(()) };
    if expires_at <= now {
        return Err(Fault::new("/expires_at", format!("has passed (it is {now})")));
    }
    if send_at.is_some_and(|send_at| expires_at <= send_at) {
        return Err(Fault::new("/expires_at", "must be after `send_at`"));
    }
    Ok(())
}
