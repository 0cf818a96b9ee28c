//! Answer to a request: its head, checked, then its body, or the reason why there is none.

use std::str::FromStr;

use flow::Timing;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::hpack::FIELD_BYTES;
use crate::ANSWER_BYTES;
use crate::exchange::Reply;
use crate::request_head::all;

/// The size of a list of header fields that is still read, bytes, each with [`FIELD_BYTES`] more. The peer is told so.
pub(super) const HEADER_LIST_BYTES_MAX: u16 = 16 * 1024;
/// Fields that only HTTP/1.1 has (RFC 9113, section 8.2.2).
const OF_CONNECTIONS: [&[u8]; 5] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];

/// Why a try over one stream has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoReply {
    /// The server certainly did not process the request.
    NotProcessed,
    /// The server wants it over HTTP/1.1, and did not process it (RFC 9113, section 7).
    Http11Required,
    /// It may have processed it.
    Lost(String),
}

/// An answer whose head has come.
#[derive(Debug)]
pub struct IncomingReply {
    /// The answer, as far as it has come.
    pub reply: Reply,
    /// Bytes of the body that have come.
    bytes: usize,
    /// Bytes that it was said to have.
    announced: Option<usize>,
}

/// A list of header fields, as it is read. All are checked; those are kept that the channel reads.
#[derive(Debug, Default)]
pub(super) struct FieldList {
    read: &'static [HeaderName],
    status: Option<u16>,
    /// True once another field than the status has come.
    has_begun: bool,
    content_length: Option<usize>,
    headers: HeaderMap,
    bytes: usize,
    fault: Option<&'static str>,
}

/// A result of checking header fields: an error where they are malformed.
type Checked<T> = Result<T, &'static str>;

// === impl FieldList ===

impl FieldList {
    /// An empty list, of which the fields `read` will be kept.
    pub(super) fn new(read: &'static [HeaderName]) -> Self {
        Self { read, ..Self::default() }
    }

    /// Adds a field. What is behind a fault is not kept. Says whether the field is valid and of no interest; one that
    /// `is_passed_over` was found to be that before.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8], is_passed_over: bool) -> bool {
        self.bytes += name.len() + value.len() + FIELD_BYTES;
        if self.bytes > usize::from(HEADER_LIST_BYTES_MAX) {
            // Noted, and nothing more: the decoder has to read the block to its end, since later ones build on its
            // table.
            self.fault = Some("its header fields are too large");
        }
        if is_passed_over {
            self.has_begun = true;
            return true;
        }
        if self.fault.is_some() {
            return false;
        }
        let is_of_interest = self.keep(name, value);
        self.fault = is_of_interest.err();
        is_of_interest == Ok(false)
    }

    /// Checks a field, and keeps what is read of it. Says whether it is of interest.
    fn keep(&mut self, name: &[u8], value: &[u8]) -> Checked<bool> {
        if name == b":status" {
            // Section 8.3: pseudo-header fields stand in front of all others, and none comes twice.
            if self.status.is_some() || self.has_begun {
                return Err("its status is not in front, or comes twice");
            }
            self.status = Some(status(value).ok_or("its status is no number of three digits")?);
            return Ok(true);
        }
        self.has_begun = true;
        // A colon is no part of a name, so this refuses other pseudo-header fields as well.
        if name.is_empty() || !all(name, is_of_name) {
            return Err("a header field's name is not one");
        }
        // Section 8.2.1 has names in lower case, and section 8.2.2 none of fields that are about a connection.
        if OF_CONNECTIONS.contains(&name) || name.iter().any(u8::is_ascii_uppercase) {
            return Err("it has a header field that HTTP/2 does not");
        }
        if !all(value, is_of_value) {
            return Err("a header field's value is not one");
        }
        let is_length = name == b"content-length";
        if is_length {
            let length = number(value).filter(|_| self.content_length.is_none());
            self.content_length = Some(length.ok_or("its content-length is not one number")?);
        }
        let read = self.read.iter().find(|read| read.as_str().as_bytes() == name);
        if let Some(name) = read
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            self.headers.try_append(name, value).map_err(|_| "it has too many header fields")?;
        }
        Ok(is_length || read.is_some())
    }

    /// Judges them as the head of an answer; `is_last` where no body follows. `None` when it is one in front of the answer's own, as of
    /// 100 Continue.
    pub(super) fn into_head(self, is_last: bool) -> Checked<Option<Box<IncomingReply>>> {
        self.fault.map_or(Ok(()), Err)?;
        let status = self.status.ok_or("it has no status")?;
        if status < 200 {
            // A change of protocol is not for HTTP/2 (section 8.6).
            let is_interim = !is_last && status != 101;
            return if is_interim { Ok(None) } else { Err("it ends before its status is final") };
        }
        let announced = self.content_length;
        // What never has a body may announce the one that it stands for (section 8.1.1).
        let may_lack = matches!(status, 204 | 304);
        if is_last && !may_lack && announced.is_some_and(|bytes| bytes > 0) {
            return Err("its body is missing");
        }
        let (headers, body, timing) = (self.headers, Vec::new(), Timing::default());
        let reply = Reply { status, headers, body, timing };
        Ok(Some(Box::new(IncomingReply { reply, bytes: 0, announced })))
    }
}

/// The status codes that three digits can have.
fn status(value: &[u8]) -> Option<u16> {
    number(value).filter(|status| value.len() == 3 && *status >= 100)
}

/// A number in digits alone: `parse` would take a sign.
fn number<Number: FromStr>(value: &[u8]) -> Option<Number> {
    let is_digits = value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_digits)?.parse().ok()
}

/// The bytes of a token (RFC 9110, section 5.6.2).
const fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// The bytes of a field's value (RFC 9110, section 5.5).
const fn is_of_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

// === impl IncomingReply ===

impl IncomingReply {
    /// Adds a piece of the body, and keeps it unless the answer is an acceptance. Says whether more is of use: the status
    /// decides nearly all, so a body that is longer than it was said to be, or than [`ANSWER_BYTES`], is cut.
    pub(super) fn add(&mut self, piece: &[u8]) -> bool {
        let room = ANSWER_BYTES.saturating_sub(self.bytes);
        self.bytes += piece.len();
        if !(200..300).contains(&self.reply.status) {
            self.reply.body.extend_from_slice(piece.get(..room).unwrap_or(piece));
        }
        self.bytes < ANSWER_BYTES && self.announced.is_none_or(|announced| self.bytes <= announced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)], is_last: bool) -> Checked<Option<Box<IncomingReply>>> {
        static READ: [HeaderName; 1] = [HeaderName::from_static("x")];
        let mut list = FieldList::new(&READ);
        for (name, value) in fields {
            let _is_passed_over = list.add(name.as_bytes(), value.as_bytes(), false);
        }
        list.into_head(is_last)
    }

    #[test]
    fn a_head_is_an_answer_or_in_front_of_one() {
        for status in ["200", "204", "304", "410", "599", "999"] {
            let length = if status == "200" { "0" } else { "5" };
            let fields = [(":status", status), ("content-length", length), ("x", "y"), ("x", "z")];
            let Ok(Some(answer)) = head(&fields, matches!(status, "200" | "204" | "304")) else {
                panic!("{status}");
            };
            assert_eq!(answer.reply.status.to_string(), status);
            assert_eq!(answer.reply.headers.get_all("x").iter().count(), 2);
            assert!(answer.reply.headers.get("content-length").is_none(), "nobody reads it");
        }
        for status in ["100", "103", "199"] {
            assert!(matches!(head(&[(":status", status)], false), Ok(None)));
        }
    }

    #[test]
    fn a_malformed_head_is_refused_by_its_fault() {
        let refused = |fields: &[(&str, &str)], is_last: bool, expect: &str| {
            assert_eq!(head(fields, is_last).err(), Some(expect), "{fields:?}");
        };
        let ok = (":status", "200");
        refused(&[], true, "it has no status");
        refused(&[("x", "y")], true, "it has no status");
        refused(&[ok, ok], true, "its status is not in front, or comes twice");
        refused(&[("x", "y"), ok], true, "its status is not in front, or comes twice");
        for status in ["", "20", "2000", "+20", "099", "2 0", "ab1"] {
            refused(&[(":status", status)], true, "its status is no number of three digits");
        }
        refused(&[(":status", "100")], true, "it ends before its status is final");
        refused(&[(":status", "101")], false, "it ends before its status is final");
        for name in ["connection", "transfer-encoding", "upgrade", "keep-alive", "X-Upper"] {
            refused(&[ok, (name, "x")], true, "it has a header field that HTTP/2 does not");
        }
        for name in [":path", ":method", "", "a b", "a:"] {
            refused(&[ok, (name, "x")], true, "a header field's name is not one");
        }
        refused(&[ok, ("a", "x\ny")], true, "a header field's value is not one");
        refused(&[ok, ("a", "x\0y")], true, "a header field's value is not one");
        for length in ["", "-1", "+1", "1,1", "99999999999999999999999"] {
            refused(
                &[ok, ("content-length", length)],
                false,
                "its content-length is not one number",
            );
        }
        let twice = [ok, ("content-length", "1"), ("content-length", "1")];
        refused(&twice, false, "its content-length is not one number");
        refused(&[ok, ("content-length", "1")], true, "its body is missing");
        let large = "x".repeat(HEADER_LIST_BYTES_MAX.into());
        refused(&[ok, ("a", &large)], true, "its header fields are too large");
        let many: Vec<_> = std::iter::once(ok).chain(std::iter::repeat_n(("a", ""), 500)).collect();
        refused(&many, true, "its header fields are too large");
    }

    #[test]
    fn a_body_is_kept_up_to_a_bound_and_not_of_an_acceptance() {
        let answer = |status, length| {
            let fields = [(":status", status), ("content-length", length)];
            let Ok(Some(answer)) = head(&fields, false) else { panic!("{length}") };
            answer
        };
        let mut refusal = answer("400", "3");
        assert!(refusal.add(b"ab") && refusal.add(b"c") && !refusal.add(b"d"));
        assert_eq!(refusal.reply.body, b"abcd");
        let mut acceptance = answer("200", "3");
        assert!(acceptance.add(b"abc"));
        assert_eq!(acceptance.reply.body, b"");
        let mut huge = answer("400", "1000000");
        assert!(huge.add(&[b'x'; ANSWER_BYTES - 1]) && !huge.add(b"xyz"));
        assert_eq!(huge.reply.body.len(), ANSWER_BYTES);
    }
}
