//! The JSON objects that requests are.

use notification::ByteString;
pub(crate) use pipeline::ingest::json::{Address, Object, ReadError, list, share, text, utf8};
use pipeline::ingest::{Fault, Terms};

/// The fields of [`Terms`].
macro_rules! with_terms {
    ($($more:literal),*) => {
        &["channel", "content", "options", "template", "variables", "guarantee", "priority", "send_at",
          "expires_at", "late", "idempotency_key", "fallback", $($more),*]
    };
}

/// The fields of a notification.
pub(crate) const NOTIFICATION: &[&str] = with_terms!("to");
/// The fields of a broadcast whose recipients come in further lines.
pub(crate) const BROADCAST: &[&str] = with_terms!();
/// The fields of a broadcast that has its recipients with it.
pub(crate) const BROADCAST_WHOLE: &[&str] = with_terms!("recipients");
/// The fields of a recipient that is not just a string.
pub(crate) const RECIPIENT: &[&str] = &["to", "variables", "fallback"];

/// Everything that `object` says but the recipient. `whole` is the text that was read.
pub(crate) fn terms<'a>(
    object: &Object<'a>,
    whole: &ByteString,
    address: Address,
) -> Result<Terms<'a>, Fault> {
    let channel = Object::required("channel", object.text("channel")?)?;
    let (template, content) = object.content(whole)?;
    Ok(Terms {
        channel,
        content,
        options: object.object("options", whole)?.unwrap_or_default(),
        template,
        variables: object.object("variables", whole)?,
        fallback: object.fallback(whole, address)?,
        guarantee: object.text("guarantee")?,
        priority: object.text("priority")?,
        send_at: object.text("send_at")?,
        expires_at: object.text("expires_at")?,
        late: object.text("late")?,
        idempotency_key: object.text("idempotency_key")?.map(|key| share(whole, key)),
    })
}
