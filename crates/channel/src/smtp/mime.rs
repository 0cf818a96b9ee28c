//! The body of a mail: its parts, their encodings, and what may leave at all.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use mail_builder::MessageBuilder;
use mail_builder::headers::content_type::ContentType;
use mail_builder::mime::{BodyPart, MimePart};
use notification::limits::PAYLOAD_BYTES;

use super::form::{AttachmentForm, Form, plain};
use crate::Invalid;
use crate::object::ByName;

/// Attachments of one mail.
pub(super) const ATTACHMENTS: usize = 16;
/// Their bytes before base64, in all: within [`PAYLOAD_BYTES`] that leaves 16 KiB for everything else.
pub(super) const ATTACHMENT_BYTES: usize = 180 * 1024;
const _: () = assert!(ATTACHMENT_BYTES.div_ceil(3) * 4 + 16 * 1024 <= PAYLOAD_BYTES);
/// A line of a message, without its end (RFC 5322, section 2.1.1).
const LINE_BYTES_MAX: usize = 998;
const BASE64_LINE_BYTES: usize = 76;
/// As file systems have it; encoded, it fits into a line.
const FILE_NAME_BYTES_MAX: usize = 255;

/// The body with the header fields that say its form.
pub(super) fn encode_body(form: &Form<'_>) -> Result<Vec<u8>, Invalid> {
    // A boundary must not occur in the parts it separates; no text can hold its own digest.
    let boundary = |part: &str| {
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        for text in
            [Some(&form.subject), form.text.as_ref(), form.html.as_ref()].into_iter().flatten()
        {
            context.update(text.as_bytes());
        }
        for ByName(attachment) in &form.attachments {
            context.update(attachment.content.as_bytes());
        }
        let digest = context.finish();
        let digest = BASE64_URL_SAFE_NO_PAD.encode(digest.as_ref());
        format!("=_{part}_{digest}")
    };
    let multipart = |kind: &'static str, parts: Vec<MimePart<'static>>| {
        let kind_of =
            ContentType::new(format!("multipart/{kind}")).attribute("boundary", boundary(kind));
        MimePart::new(kind_of, BodyPart::Multipart(parts))
    };
    let text_part = |kind: &'static str, text: &str| {
        MimePart::new(kind, BodyPart::Text(with_crlf(text).into()))
    };
    let mut texts: Vec<MimePart<'static>> = Vec::new();
    texts.extend(form.text.as_ref().map(|text| text_part("text/plain", text)));
    texts.extend(form.html.as_ref().map(|html| text_part("text/html", html)));
    // One at least: a form with neither is refused when it is read.
    let mut body = match texts.len() {
        1 => texts.pop(),
        _ => Some(multipart("alternative", texts)),
    };
    if !form.attachments.is_empty() {
        let attachments = attachments(&form.attachments)?;
        body = Some(multipart("mixed", body.into_iter().chain(attachments).collect()));
    }
    let mut output = Vec::new();
    if let Some(body) = body {
        MessageBuilder::new().body(body).serialize_body(&mut output);
    }
    Ok(output)
}

fn attachments(forms: &[ByName<AttachmentForm<'_>>]) -> Result<Vec<MimePart<'static>>, Invalid> {
    let contents = read_attachments(forms)?;
    let part = |(ByName(form), bytes): (&ByName<AttachmentForm<'_>>, Vec<u8>)| {
        let lines = BodyPart::Binary(in_lines(&bytes).into());
        let part = MimePart::new(form.kind.clone().into_owned(), lines);
        part.attachment(form.name.clone().into_owned()).transfer_encoding("base64")
    };
    Ok(forms.iter().zip(contents).map(part).collect())
}

/// The attachments, checked and decoded.
pub(super) fn read_attachments(
    forms: &[ByName<AttachmentForm<'_>>],
) -> Result<Vec<Vec<u8>>, Invalid> {
    if forms.len() > ATTACHMENTS {
        let message = format!("must be at most {ATTACHMENTS}, are {}", forms.len());
        return Err(Invalid::at("/attachments", message));
    }
    let mut contents = Vec::with_capacity(forms.len());
    for (i, ByName(form)) in forms.iter().enumerate() {
        let at = |field: &str| format!("/attachments/{i}/{field}");
        let bytes = BASE64_STANDARD
            .decode(form.content.as_bytes())
            .map_err(|error| Invalid::at(at("content"), format!("is not base64: {error}")))?;
        contents.push(bytes);
        let name = plain(&at("name"), &form.name)?;
        if name.contains(['/', '\\']) {
            let message = "must be a file name alone: without folders, so without / and \\";
            return Err(Invalid::at(at("name"), message));
        }
        if !(1..=FILE_NAME_BYTES_MAX).contains(&name.len()) {
            let message = format!("must be a file name of 1 to {FILE_NAME_BYTES_MAX} bytes");
            return Err(Invalid::at(at("name"), message));
        }
        if !is_media_type(&form.kind) {
            let message = if form.kind.contains(';') {
                "must be a media type without parameters, such as text/plain: what is attached is sent as it is"
            } else {
                "must be a media type such as application/pdf"
            };
            return Err(Invalid::at(at("type"), message));
        }
    }
    let total: usize = contents.iter().map(Vec::len).sum();
    if total > ATTACHMENT_BYTES {
        let over = total - ATTACHMENT_BYTES;
        let message = format!(
            "must have at most {ATTACHMENT_BYTES} bytes in all, have {total}: {over} too many"
        );
        return Err(Invalid::at("/attachments", message));
    }
    Ok(contents)
}

/// `type/subtype`, tokens of RFC 2045. What the form of a mail is made of cannot be attached.
fn is_media_type(text: &str) -> bool {
    let is_token = |token: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        (1..=127).contains(&token.len()) && token.bytes().all(is_letter)
    };
    let lower = text.to_ascii_lowercase();
    let is_composite = lower.starts_with("multipart/") || lower.starts_with("message/");
    !is_composite && text.split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub))
}

/// Base64 in lines (RFC 2045, section 6.8).
fn in_lines(bytes: &[u8]) -> Vec<u8> {
    let text = BASE64_STANDARD.encode(bytes);
    let mut lines = Vec::with_capacity(text.len() + text.len() / 32 + 2);
    for line in text.as_bytes().chunks(BASE64_LINE_BYTES) {
        lines.extend_from_slice(line);
        lines.extend_from_slice(b"\r\n");
    }
    lines
}

/// Every line break, however it is written, as CR and LF.
fn with_crlf(text: &str) -> String {
    // In this order, or CR and LF together would become two line breaks.
    text.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n")
}

/// Moves the header fields of `encoded` to `head`; what is left begins with the empty line, and ends with a line's end.
pub(super) fn split_body(mut encoded: Vec<u8>, head: &mut Vec<u8>) -> Result<Vec<u8>, Invalid> {
    let end = encoded.windows(4).position(|window| window == b"\r\n\r\n");
    let Some(end) = end else { return Err(Invalid::new("cannot be written as a mail")) };
    let mut body = encoded.split_off(end + 2);
    head.extend_from_slice(&encoded);
    // The empty line alone ends the header, so a body without a line gets an end of its own.
    if !body.ends_with(b"\r\n") || body.len() == 2 {
        body.extend_from_slice(b"\r\n");
    }
    Ok(body)
}

/// The last word on what leaves: lines end with CR and LF, which occur nowhere else, are short enough, and have no NUL.
pub(super) fn check_lines(bytes: &[u8]) -> Result<(), Invalid> {
    let refuse = || Invalid::new("cannot be written as lines of a mail");
    let lines = bytes.strip_suffix(b"\n").ok_or_else(refuse)?.split(|byte| *byte == b'\n');
    for line in lines {
        let line = line.strip_suffix(b"\r").ok_or_else(refuse)?;
        if line.len() > LINE_BYTES_MAX || line.iter().any(|byte| matches!(byte, b'\r' | b'\0')) {
            return Err(refuse());
        }
    }
    Ok(())
}

/// Every line that begins with a dot gets another (RFC 5321, section 4.5.2).
pub(super) fn stuffed(body: &[u8]) -> Option<Vec<u8>> {
    let mut output = Vec::new();
    let mut copied = 0;
    // A body comes with the empty line before it, so its first line is seen like all others.
    for (i, window) in body.windows(2).enumerate() {
        if window == b"\n." {
            output.extend_from_slice(body.get(copied..=i).unwrap_or_default());
            output.push(b'.');
            copied = i + 1;
        }
    }
    output.extend_from_slice(body.get(copied..).unwrap_or_default());
    (copied > 0).then_some(output)
}
