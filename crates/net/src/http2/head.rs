//! The head of a request: what it shares with others, which each connection encodes once, and what is its own.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use http::header::{HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri};

use super::answer::all;

/// Shared parts that are kept: more than a channel has kinds of contents at a time.
const SHARED_HEADS: usize = 8;

/// The head of a request, which is a POST over TLS. It is asked for once for each try.
pub trait RequestHead {
    /// To whom it goes, and what all requests that go there from here have in common, such as the credential.
    fn address(&self) -> &Rc<SharedHead>;

    /// The fields that it shares with requests of the same content, for example.
    fn shared(&self) -> Option<&Rc<SharedHead>> {
        None
    }

    /// Its path, in two pieces; none where its address has one.
    fn path(&self) -> [&[u8]; 2] {
        [&[], &[]]
    }

    /// Gives `put` each field that is its own.
    fn put_own(&self, _put: &mut dyn FnMut(OwnField<'_>)) {}

    /// True if its path can be written: one of visible characters, without a fragment.
    fn is_writable(&self) -> bool {
        let [begin, end] = self.path();
        let has_path = self.address().path.is_some() || begin.first() == Some(&b'/');
        has_path && is_path(begin) && is_path(end)
    }

    /// This head as a request; `None` when it cannot be written.
    fn to_request(&self) -> Option<Request<()>> {
        let address = self.address();
        let path = match &address.path {
            Some(path) => path.clone(),
            None => PathAndQuery::try_from(self.path().concat()).ok()?,
        };
        let authority = address.authority.clone()?;
        let uri = Uri::builder().scheme(Scheme::HTTPS).authority(authority).path_and_query(path);
        let mut request = Request::post(uri.build().ok()?).body(()).ok()?;
        let headers = request.headers_mut();
        for part in [Some(address), self.shared()].into_iter().flatten() {
            headers.extend(part.fields.iter().cloned());
        }
        let mut is_writable = true;
        self.put_own(&mut |field| match HeaderValue::from_bytes(field.value) {
            Ok(mut value) => {
                value.set_sensitive(field.is_sensitive);
                headers.append(field.name, value);
            }
            Err(_) => is_writable = false,
        });
        is_writable.then_some(request)
    }
}

/// A part of the heads of many requests. A connection recognises it by its place in memory: as long as the same one is used, its
/// encoded bytes are copied. `Debug` shows no value: one may be a credential.
#[derive(Default, PartialEq, Eq)]
pub struct SharedHead {
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    fields: Vec<(HeaderName, HeaderValue)>,
}

/// The shared parts that were made last: equal ones become one, so that connections recognise them.
#[derive(Debug, Default)]
pub struct SharedHeads(RefCell<VecDeque<Rc<SharedHead>>>);

/// A field of one request alone.
#[derive(Debug, Clone, Copy)]
pub struct OwnField<'a> {
    /// Its name, in lower case.
    pub name: &'a HeaderName,
    /// Its value: visible characters and spaces, none of these at its ends (RFC 9113, section 8.2.1).
    pub value: &'a [u8],
    /// True if it must not come into any table of header fields, nor show in a log.
    pub is_sensitive: bool,
}

// === impl SharedHead ===

impl SharedHead {
    /// Part that all requests to `authority` share; with `path`, if they share it, too.
    pub const fn address(authority: Authority, path: Option<PathAndQuery>) -> Self {
        Self { authority: Some(authority), path, fields: Vec::new() }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.push(name, value);
        self
    }

    /// Adds a field.
    pub fn push(&mut self, name: HeaderName, value: HeaderValue) {
        self.fields.push((name, value));
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// All fields, those in front of all others first (RFC 9113, section 8.3): name, value, and whether it is sensitive.
    pub(super) fn all_fields(&self) -> impl Iterator<Item = (&[u8], &[u8], bool)> {
        let authority = self.authority.as_ref().map(|authority| (":authority", authority.as_str()));
        let path = self.path.as_ref().map(|path| (":path", path.as_str()));
        let front = authority.into_iter().chain(path);
        let front = front.map(|(name, value)| (name.as_bytes(), value.as_bytes(), false));
        front.chain(self.fields.iter().map(|(name, value)| {
            (name.as_str().as_bytes(), value.as_bytes(), value.is_sensitive())
        }))
    }
}

impl fmt::Debug for SharedHead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&HeaderName> = self.fields.iter().map(|(name, _)| name).collect();
        let mut shown = formatter.debug_struct("SharedHead");
        shown.field("authority", &self.authority).field("names", &names).finish_non_exhaustive()
    }
}

// === impl SharedHeads ===

impl SharedHeads {
    /// `head`, or the one that is equal to it.
    pub fn unique(&self, head: SharedHead) -> Rc<SharedHead> {
        let mut kept = self.0.borrow_mut();
        if let Some(same) = kept.iter().find(|other| ***other == head) {
            return Rc::clone(same);
        }
        if kept.len() == SHARED_HEADS {
            kept.pop_front();
        }
        let head = Rc::new(head);
        kept.push_back(Rc::clone(&head));
        head
    }
}

/// True if they are visible characters, without the one that begins a fragment.
fn is_path(bytes: &[u8]) -> bool {
    all(bytes, |byte| matches!(byte, b'!'..=b'"' | b'$'..=b'~'))
}
