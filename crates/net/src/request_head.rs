//! The head of a request: what it shares with others, which each connection encodes once, and what is its own.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue};

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
        let has_path = begin.first() == Some(&b'/') || self.address().get(":path").is_some();
        has_path && is_path(begin) && is_path(end)
    }

    /// Its fields but for those in front of all others; `None` where a value cannot be written.
    fn headers(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        let shared = [Some(self.address()), self.shared()].into_iter().flatten();
        for (name, value) in shared.flat_map(|part| &part.fields) {
            if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                headers.append(name, value.clone());
            }
        }
        let mut is_writable = true;
        self.put_own(&mut |field| match HeaderValue::from_bytes(field.value) {
            Ok(mut value) => {
                value.set_sensitive(field.is_sensitive);
                headers.append(field.name, value);
            }
            Err(_) => is_writable = false,
        });
        is_writable.then_some(headers)
    }
}

/// A part of the heads of many requests. A connection recognises it by its place in memory: as long as the same one is used, its
/// encoded bytes are copied. `Debug` shows no value: one may be a credential.
#[derive(Default, PartialEq, Eq)]
pub struct SharedHead {
    /// Those in front of all others first (RFC 9113, section 8.3).
    fields: Vec<(Cow<'static, str>, HeaderValue)>,
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
    pub fn address(authority: &Authority, path: Option<&PathAndQuery>) -> Self {
        let path = path.map(|path| (":path", path.as_str()));
        let front = [(":authority", authority.as_str())].into_iter().chain(path);
        // Bytes: a path may have others than those of ASCII, which are the server's to judge.
        let field = |(name, text): (_, &str)| {
            Some((Cow::Borrowed(name), HeaderValue::from_bytes(text.as_bytes()).ok()?))
        };
        Self { fields: front.filter_map(field).collect() }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &HeaderName, value: HeaderValue) -> Self {
        self.push(name, value);
        self
    }

    /// Adds a field.
    pub fn push(&mut self, name: &HeaderName, value: HeaderValue) {
        self.fields.push((Cow::Owned(name.as_str().to_owned()), value));
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: &str) -> Option<&HeaderValue> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// All fields: name, value, and whether it is sensitive.
    pub(crate) fn all_fields(&self) -> impl Iterator<Item = (&[u8], &[u8], bool)> {
        let fields = self.fields.iter();
        fields.map(|(name, value)| (name.as_bytes(), value.as_bytes(), value.is_sensitive()))
    }
}

impl fmt::Debug for SharedHead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.fields.iter().map(|(name, _)| name).collect();
        formatter.debug_struct("SharedHead").field("names", &names).finish_non_exhaustive()
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
        let head = Rc::new(head);
        push_within(&mut kept, SHARED_HEADS, Rc::clone(&head));
        head
    }
}

/// Adds to a queue in which the oldest makes room when there are `items_max`.
pub(crate) fn push_within<Item>(queue: &mut VecDeque<Item>, items_max: usize, item: Item) {
    if queue.len() == items_max {
        queue.pop_front();
    }
    queue.push_back(item);
}

/// Looks at every byte without an early end: so the compiler looks at many at once.
pub(crate) fn all(bytes: &[u8], is_one: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(true, |are_all, byte| are_all & is_one(*byte))
}

/// True if they are visible characters, without the one that begins a fragment.
fn is_path(bytes: &[u8]) -> bool {
    all(bytes, |byte| matches!(byte, b'!'..=b'"' | b'$'..=b'~'))
}
