//! Recipients, checked and spelled as their channel does.

use std::borrow::Cow;
use std::sync::Arc;

use channel::Channel;
use notification::ByteString;
use notification::limits::RECIPIENT_BYTES;

use super::InvalidField;
use super::sender_grants::SenderGrants;

/// A recipient that its channel accepts.
pub(super) struct CheckedRecipient {
    /// Recipient in the channel's canonical spelling.
    pub(super) recipient: ByteString,
    /// Destination to which the channel sends.
    pub(super) destination: Arc<str>,
}

/// Checks a recipient and that its endpoint is granted, and says where its channel sends it to.
pub(super) fn check_recipient(
    (channel, senders): (&dyn Channel, Option<&SenderGrants>),
    to: ByteString,
) -> Result<CheckedRecipient, InvalidField> {
    if to.is_empty() || to.len() > RECIPIENT_BYTES {
        let message = format!("must have 1 to {RECIPIENT_BYTES} bytes, has {}", to.len());
        return Err(InvalidField::new("/to", message));
    }
    // A recipient gets into SMTP commands and header fields, where a line end would begin another one.
    if to.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(InvalidField::new("/to", "must not have control characters"));
    }
    let below = |invalid| InvalidField::below("/to", invalid);
    // A recipient that is spelled right stays a part of the request's text and is not copied.
    let respelled = match channel.canonical(&to).map_err(below)? {
        Cow::Borrowed(_as_given) => None,
        Cow::Owned(canonical) => Some(canonical),
    };
    let recipient = respelled.map_or(to, ByteString::from);
    let destination = channel.destination(&recipient).map_err(below)?;
    senders.map_or(Ok(()), |senders| senders.check_recipient(channel, &recipient))?;
    Ok(CheckedRecipient { recipient, destination })
}
