//! Checks a content: the bounds that all channels share, and the rules of its own channel.

use channel::Channel;
use notification::Content;
use notification::limits::{OPTIONS_BYTES, PAYLOAD_BYTES};

use super::InvalidField;
use super::sender_grants::SenderGrants;
use crate::ingest::limits::CONTENT_DEPTH;

/// Checks a content for `channel`, with the bounds of all channels, and that its sender is granted.
pub(super) fn check_content(
    (channel, senders): (&dyn Channel, Option<&SenderGrants>),
    content: &Content,
) -> Result<(), InvalidField> {
    let Content { payload, options, fallback: _ } = content;
    if payload.len() > PAYLOAD_BYTES {
        let message = format!("must have at most {PAYLOAD_BYTES} bytes, has {}", payload.len());
        return Err(InvalidField::new("/content", message));
    }
    if options.len() > OPTIONS_BYTES {
        let message = format!("must have at most {OPTIONS_BYTES} bytes, has {}", options.len());
        return Err(InvalidField::new("/options", message));
    }
    if is_too_deep(payload) {
        return Err(InvalidField::new(
            "/content",
            format!("is nested deeper than {CONTENT_DEPTH} levels"),
        ));
    }
    let Err(invalid) = channel.check_content(payload, options) else {
        return senders.map_or(Ok(()), |senders| senders.check_payload(channel, payload));
    };
    // A channel names a part without saying whose: a payload that is fine on its own puts it on the options.
    let options_are_wrong = !options.is_empty() && channel.check_content(payload, b"").is_ok();
    Err(InvalidField::below(if options_are_wrong { "/options" } else { "/content" }, invalid))
}

/// True if valid JSON is nested deeper than [`CONTENT_DEPTH`].
fn is_too_deep(json: &[u8]) -> bool {
    let opens = |byte: &u8| matches!(byte, b'[' | b'{');
    // Most contents open fewer brackets than there may be levels, strings included: those need no closer look.
    if json.iter().filter(|byte| opens(byte)).count() <= CONTENT_DEPTH {
        return false;
    }
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            // In valid JSON a backslash stands within strings only.
            b'\\' => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => depth += 1,
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > CONTENT_DEPTH {
            return true;
        }
    }
    false
}
