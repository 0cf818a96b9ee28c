//! The form of a mail as callers write it, in JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::Invalid;
use crate::object::ByName;

/// A mail.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Form<'a> {
    #[serde(borrow)]
    pub(super) from: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) reply_to: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) subject: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) html: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(super) attachments: Vec<ByName<AttachmentForm<'a>>>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(borrow)]
    pub(super) unsubscribe: Option<ByName<UnsubscribeForm<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttachmentForm<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) content: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnsubscribeForm<'a> {
    #[serde(borrow)]
    pub(super) url: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) mailto: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) one_click: bool,
}

/// The longest value of a header field, bytes before it is encoded.
const VALUE_BYTES_MAX: usize = 4096;

/// Reads the form of a mail.
///
/// # Errors
/// The mistake in it, and its place.
pub(super) fn read(payload: &[u8]) -> Result<Form<'_>, Invalid> {
    let mut reader = serde_json::Deserializer::from_slice(payload);
    let ByName(form): ByName<Form<'_>> =
        serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let pointer = if path == "." { String::new() } else { pointer(&path) };
            Invalid::at(pointer, error.inner().to_string())
        })?;
    // Whatever follows the first value would pass unread.
    reader.end().map_err(|error| Invalid::new(format!("is not valid JSON: {error}")))?;
    if form.text.is_none() && form.html.is_none() {
        return Err(Invalid::new("needs `text`, `html` or both"));
    }
    // NUL must be found here: composing would find it only when the mail is on its way.
    for (field, text) in [("/text", &form.text), ("/html", &form.html)] {
        if text.as_ref().is_some_and(|text| text.contains('\0')) {
            return Err(Invalid::at(field, "must not contain NUL"));
        }
    }
    Ok(form)
}

/// `attachments[0].type` as `/attachments/0/type`.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace(['.', '['], "/").replace(']', ""))
}

/// Admits a text that may stand in a header field once it is encoded.
pub(super) fn plain<'a>(pointer: &str, text: &'a str) -> Result<Cow<'a, str>, Invalid> {
    if text.chars().any(char::is_control) {
        return Err(Invalid::at(pointer, "must not have control characters or line breaks"));
    }
    if text.len() > VALUE_BYTES_MAX {
        let message = format!("must have at most {VALUE_BYTES_MAX} bytes, has {}", text.len());
        return Err(Invalid::at(pointer, message));
    }
    Ok(Cow::Borrowed(text))
}
