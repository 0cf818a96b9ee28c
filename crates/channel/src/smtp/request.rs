//! From a notification to a message: what callers write, checked, and the MIME form of it.
//!
//! Everything but date, identifier and recipient is the same for all mails of a content, so it is encoded once
//! ([`Mail`]), and each recipient's message is that with a few lines before it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::tz::TimeZone;
use mail_builder::headers::Header as _;
use mail_builder::headers::address::Address;
use mail_builder::headers::raw::Raw;
use mail_builder::headers::text::Text;
use notification::{Content, NotificationId, Timestamp};

use super::address::Mailbox;
use super::dkim::{BodyHash, DkimSigner};
use super::form::{Form, UnsubscribeForm, plain, read};
use super::mime::{check_lines, encode_body, read_attachments, split_body, stuffed};
use crate::Invalid;
use crate::object::{ByName, members};

/// Turns contents into mail, with what the channel adds to all of it.
#[derive(Debug, Clone)]
pub(super) struct Composer {
    pub(super) from: Option<Mailbox>,
    pub(super) return_path: Option<Mailbox>,
    pub(super) signer: Option<DkimSigner>,
}

/// A composed content, ready but for its recipient.
#[derive(Debug, Clone)]
pub(super) struct Mail {
    /// The envelope's sender.
    pub(super) return_path: String,
    /// The domain of message identifiers.
    domain: String,
    /// Header fields that are the same for all, those of the body's form among them; without the empty line.
    head: Vec<u8>,
    /// From the empty line on, with a line's end as its own.
    body: Vec<u8>,
    /// The body with the dots doubled that `DATA` wants doubled, when it has any.
    stuffed: Option<Vec<u8>>,
    signature: Option<(DkimSigner, BodyHash)>,
}

/// One recipient's message.
#[derive(Debug)]
pub(super) struct AddressedMail<'a> {
    pub(super) recipient: &'a str,
    pub(super) mail: &'a Mail,
    /// Header fields of its own.
    pub(super) head: Vec<u8>,
}

/// Names of fields that this channel sets.
const RESERVED: &[&str] = &[
    "authentication-results",
    "bcc",
    "cc",
    "date",
    "dkim-signature",
    "from",
    "list-unsubscribe",
    "list-unsubscribe-post",
    "message-id",
    "mime-version",
    "received",
    "reply-to",
    "return-path",
    "sender",
    "subject",
    "to",
];
const RESERVED_PREFIXES: &[&str] = &["arc-", "content-", "resent-"];

/// Bytes of text in an encoded word: with `Subject: ` before it, a line has at most 76 characters (RFC 2047, section 2).
const ENCODED_WORD_BYTES: usize = 39;
const NAME_BYTES_MAX: usize = 76;
/// A way to unsubscribe, which has to fit into one line.
const WAY_BYTES_MAX: usize = 900;
/// A word of a header that is written as it is: lines are broken between words only, and end after 998 bytes.
const WORD_BYTES_MAX: usize = 900;

// === impl Composer ===

impl Composer {
    /// Checks a content without encoding it: what passes can be composed.
    pub(super) fn check(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        check_options(options)?;
        let form = read(payload)?;
        self.head(&form)?;
        read_attachments(&form.attachments).map(|_| ())
    }

    /// The address in `From` of the mails of a checked payload.
    pub(super) fn sender_address(&self, payload: &[u8]) -> Option<String> {
        let form = read(payload).ok()?;
        self.from(&form).ok().map(|from| from.address)
    }

    /// Composes the mail of `content`.
    pub(super) fn compose(&self, content: &Content) -> Result<Mail, Invalid> {
        check_options(&content.options)?;
        let form = read(&content.payload)?;
        let (from, mut head) = self.head(&form)?;
        // This adds the header fields of the body's form, so the head is checked once more.
        let body = split_body(encode_body(&form)?, &mut head)?;
        check_lines(&head)?;
        check_lines(&body)?;
        let return_path = self.return_path.as_ref().unwrap_or(&from);
        Ok(Mail {
            return_path: return_path.address.clone(),
            domain: from.domain().to_owned(),
            signature: self.signer.clone().map(|signer| (signer, BodyHash::of(&body))),
            stuffed: stuffed(&body),
            head,
            body,
        })
    }

    /// The sender: the form's, or else the channel's.
    fn from(&self, form: &Form<'_>) -> Result<Mailbox, Invalid> {
        match (&form.from, &self.from) {
            (Some(text), _) => mailbox("/from", text),
            (None, Some(from)) => Ok(from.clone()),
            (None, None) => {
                Err(Invalid::at("/from", "is missing, and the channel has no sender of its own"))
            }
        }
    }

    /// The sender, and the header fields but for those that say the body's form.
    fn head(&self, form: &Form<'_>) -> Result<(Mailbox, Vec<u8>), Invalid> {
        let from = self.from(form)?;
        let mut head = Vec::new();
        write_mailbox(&mut head, "From", &from);
        if let Some(text) = &form.reply_to {
            write_mailbox(&mut head, "Reply-To", &mailbox("/reply_to", text)?);
        }
        write_text(&mut head, "Subject", &plain("/subject", &form.subject)?);
        if let Some(ByName(unsubscribe)) = &form.unsubscribe {
            write_unsubscribe(&mut head, unsubscribe)?;
        }
        for (name, value) in &form.headers {
            write_custom(&mut head, name, value)?;
        }
        head.extend_from_slice(b"MIME-Version: 1.0\r\n");
        check_lines(&head)?;
        Ok((from, head))
    }
}

// === impl Mail ===

impl Mail {
    /// The message to `recipient`, a checked address. The same notification is the same message at every attempt, but
    /// for its signature's time, so that receivers can tell a repetition.
    pub(super) fn message<'a>(
        &'a self,
        recipient: &'a str,
        id: NotificationId,
        date: Timestamp,
        now: Timestamp,
    ) -> Option<AddressedMail<'a>> {
        let mut buffer = [0; 36];
        let id: &str = id.encode(&mut buffer);
        let date = jiff::Timestamp::from_millisecond(date.millis()).ok()?;
        let date =
            date.to_zoned(TimeZone::UTC).strftime("%a, %-d %b %Y %H:%M:%S +0000").to_string();
        let own =
            format!("Date: {date}\r\nMessage-ID: <{id}@{}>\r\nTo: {recipient}\r\n", self.domain);
        let mut head = Vec::new();
        if let Some((signer, body_hash)) = &self.signature {
            head = signer.sign(&[own.as_bytes(), &self.head], body_hash, now)?;
        }
        head.extend_from_slice(own.as_bytes());
        Some(AddressedMail { recipient, mail: self, head })
    }
}

// === impl AddressedMail ===

impl AddressedMail<'_> {
    /// Its bytes as `BDAT` takes them.
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.mail.head.len() + self.mail.body.len()
    }

    /// Appends it as it is.
    pub(super) fn write_plain(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.head);
        output.extend_from_slice(&self.mail.head);
        output.extend_from_slice(&self.mail.body);
    }

    /// Appends it as `DATA` takes it: with its dots doubled and the final dot.
    pub(super) fn write_dotted(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.head);
        output.extend_from_slice(&self.mail.head);
        output.extend_from_slice(self.mail.stuffed.as_deref().unwrap_or(&self.mail.body));
        output.extend_from_slice(b".\r\n");
    }
}

// === reading ===

fn mailbox(pointer: &'static str, text: &str) -> Result<Mailbox, Invalid> {
    Mailbox::parse(text).map_err(|invalid| Invalid::at(pointer, invalid.message))
}

fn check_options(options: &[u8]) -> Result<(), Invalid> {
    match members(options)?.keys().next() {
        Some(key) => Err(Invalid::within(&[key], "is unknown: an e-mail has no options")),
        None => Ok(()),
    }
}

// === writing ===

fn write_mailbox(head: &mut Vec<u8>, field: &str, mailbox: &Mailbox) {
    start(head, field);
    let address = Address::new_address(mailbox.name.as_deref(), mailbox.address.as_str());
    address.write_header(head, field.len() + 2);
}

fn write_text(head: &mut Vec<u8>, field: &str, text: &str) {
    start(head, field);
    if text.contains("=?") {
        // It would be taken for an encoded word, and what readers show would be another text.
        head.extend_from_slice(encoded_words(text).as_bytes());
    } else {
        Text::new(text).write_header(head, field.len() + 2);
    }
}

/// `text` as encoded words, a line each (RFC 2047, section 2).
fn encoded_words(text: &str) -> String {
    let (mut words, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        // Each word has to hold whole characters (RFC 2047, section 5).
        let (word, behind) = rest.split_at(rest.floor_char_boundary(ENCODED_WORD_BYTES));
        words.push(format!("=?utf-8?B?{}?=", BASE64_STANDARD.encode(word)));
        rest = behind;
    }
    words.join("\r\n ") + "\r\n"
}

fn start(head: &mut Vec<u8>, field: &str) {
    head.extend_from_slice(field.as_bytes());
    head.extend_from_slice(b": ");
}

fn write_custom(head: &mut Vec<u8>, name: &str, value: &str) -> Result<(), Invalid> {
    let refuse = |message: String| Invalid::within(&["headers", name], message);
    let lower = name.to_ascii_lowercase();
    let is_reserved = RESERVED.contains(&lower.as_str())
        || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    if is_reserved {
        return Err(refuse("is set by Belfry itself".to_owned()));
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_name) {
        let message =
            format!("is not a header name: 1 to {NAME_BYTES_MAX} letters, digits, - and _");
        return Err(refuse(message));
    }
    let value = plain("", value).map_err(|invalid| refuse(invalid.message))?;
    let fits = value.split(' ').all(|word| word.len() <= WORD_BYTES_MAX);
    if value.is_ascii() && fits {
        // Unencoded: mail programs read message identifiers and the like out of it (RFC 2047, section 5).
        start(head, name);
        Raw::new(&*value).write_header(head, name.len() + 2);
    } else {
        write_text(head, name, &value);
    }
    Ok(())
}

/// RFC 2369, section 3.2, and RFC 8058.
fn write_unsubscribe(head: &mut Vec<u8>, form: &UnsubscribeForm<'_>) -> Result<(), Invalid> {
    let check = |field: &str, text: &str, is_start_good: bool, example: &str| {
        // Any of `<>,"` would end the URL within the header field, or begin another one.
        let is_plain =
            text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>,\"".contains(&byte));
        if is_start_good && is_plain && text.len() <= WAY_BYTES_MAX {
            return Ok(());
        }
        let message = format!("must be like {example}, with at most {WAY_BYTES_MAX} bytes");
        Err(Invalid::at(format!("/unsubscribe/{field}"), message))
    };
    let mut ways = Vec::new();
    if let Some(url) = &form.url {
        check(
            "url",
            url,
            url.starts_with("https://"),
            "https://example.com/u?token=1, encoded as RFC 3986 says",
        )?;
        ways.push(format!("<{url}>"));
    }
    if let Some(mailto) = &form.mailto {
        let address = mailto.split('?').next().unwrap_or_default();
        let is_good = super::address::canonical(address).is_ok();
        check("mailto", mailto, is_good, "unsubscribe@example.com?subject=token")?;
        ways.push(format!("<mailto:{mailto}>"));
    }
    if ways.is_empty() {
        return Err(Invalid::at("/unsubscribe", "needs `url`, `mailto` or both"));
    }
    if form.one_click && form.url.is_none() {
        return Err(Invalid::at("/unsubscribe/one_click", "needs `url`, which is posted to"));
    }
    head.extend_from_slice(format!("List-Unsubscribe: {}\r\n", ways.join(",\r\n ")).as_bytes());
    if form.one_click {
        head.extend_from_slice(b"List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n");
    }
    Ok(())
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
