//! A request that comes in, field by field and piece by piece.

use http::Method;

use crate::exchange::{Request, SimContent};
use crate::fields::Fields;

/// A request whose end has not come.
#[derive(Debug, Default)]
pub(super) struct IncomingRequest {
    pub(super) stream: u32,
    method: Option<Method>,
    authority: String,
    path: String,
    has_scheme: bool,
    fields: Fields,
    has_fields: bool,
    pub(super) content_length: Option<usize>,
    pub(super) body: Vec<u8>,
    /// Window of the stream: bytes of the body that the client may still send.
    pub(super) window: usize,
    /// It has no body.
    pub(super) is_whole: bool,
}

/// Connection-specific fields, which a request may not have (RFC 9113, section 8.2.2).
const OF_CONNECTIONS: [&[u8]; 5] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];

// === impl IncomingRequest ===

impl IncomingRequest {
    /// Adds a field of the head.
    ///
    /// # Errors
    /// The rule that it breaks (RFC 9113, sections 8.2 and 8.3).
    pub(super) fn add_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if !every_byte(value, |byte| matches!(byte, b' '..=b'~' | 0x80.. | b'\t')) {
            return Err("a value has a control character");
        }
        if let Some(pseudo) = name.strip_prefix(b":") {
            if self.has_fields {
                return Err("a pseudo-header field comes behind others");
            }
            return self.add_pseudo_field(pseudo, value);
        }
        self.has_fields = true;
        let is_of_token = |byte: u8| {
            byte.is_ascii_lowercase()
                | byte.is_ascii_digit()
                | matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
        };
        if name.is_empty() || !every_byte(name, is_of_token) {
            return Err("a name is none, or not in lower case");
        }
        if OF_CONNECTIONS.contains(&name) || name == b"te" && value != b"trailers" {
            return Err("a field of connections");
        }
        if name == b"content-length" {
            let length = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            let length = length.filter(|_| self.content_length.is_none());
            self.content_length = Some(length.ok_or("content-length is not one number")?);
        }
        self.fields.push(name, value);
        Ok(())
    }

    fn add_pseudo_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let text = str::from_utf8(value).map_err(|_| "a pseudo-header field is no text")?;
        match name {
            b"method" if self.method.is_none() => {
                let method = Method::from_bytes(value).map_err(|_| "the method is none")?;
                self.method = Some(method);
            }
            b"scheme" if !self.has_scheme => self.has_scheme = true,
            b"authority" if self.authority.is_empty() => self.authority.push_str(text),
            b"path" if self.path.is_empty() => self.path.push_str(text),
            _ => return Err("a pseudo-header field is unknown, or comes twice"),
        }
        Ok(())
    }

    /// Checks the head, once it is complete.
    ///
    /// # Errors
    /// The rule that the request as a whole breaks.
    pub(super) fn check(&self, bytes_max: usize) -> Result<(), &'static str> {
        if self.method.is_none() || !self.has_scheme || !self.path.starts_with('/') {
            return Err("a pseudo-header field is missing");
        }
        if self.is_whole && self.content_length.is_some_and(|length| length > 0) {
            return Err("its body is missing");
        }
        if self.fields.list_bytes() > bytes_max {
            return Err("its header fields are too large");
        }
        Ok(())
    }

    /// The request, with `content` for its body.
    pub(super) fn request<'a>(&'a self, content: SimContent<'a>) -> Request<'a> {
        Request {
            method: self.method.as_ref().unwrap_or(&Method::GET),
            authority: &self.authority,
            // A query is no part of the recipient in the books.
            path: self.path.split('?').next().unwrap_or_default(),
            headers: &self.fields,
            content,
        }
    }

    /// Forgets all but the memory.
    pub(super) fn clear(&mut self) {
        self.method = None;
        self.authority.clear();
        self.path.clear();
        (self.has_scheme, self.has_fields, self.is_whole) = (false, false, false);
        self.fields.clear();
        self.content_length = None;
        self.body.clear();
    }
}

/// Looks at every byte whatever the first ones are: that can be done for many at once.
fn every_byte(bytes: &[u8], is_good: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(true, |are_good, byte| are_good & is_good(*byte))
}
