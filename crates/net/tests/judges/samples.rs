//! Requests that differ in path, header fields and body, and what an answer to each has to say.

use std::rc::Rc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use net::exchange::Reply;
use net::request_head::{OwnField, RequestHead, SharedHead};
use testbed::Http2Program;
use testbed::http2::HELD;

/// A request of its own.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) path: String,
    number: usize,
    token: String,
    pub(crate) body: Bytes,
}

/// The head of a sample's request.
#[derive(Debug)]
pub(crate) struct SampleHead<'a> {
    pub(crate) address: &'a Rc<SharedHead>,
    pub(crate) sample: &'a Sample,
}

static X_NUMBER: HeaderName = HeaderName::from_static("x-number");
static X_TOKEN: HeaderName = HeaderName::from_static("x-token");

/// Bodies of all sizes, most of them small; every tenth is large.
const BODY_BYTES: [usize; 10] = [0, 1, 300, 4_000, 90, 0, 16_384, 1_000, 20, 100_000];

/// Part that all samples to `authority` share.
pub(crate) fn address(authority: &str) -> Rc<SharedHead> {
    let mut key = HeaderValue::from_static("bearer a-credential-that-no-table-may-have");
    key.set_sensitive(true);
    let address = SharedHead::address(&authority.try_into().unwrap(), None);
    let topic = HeaderValue::from_static("com.example.app");
    Rc::new(address.with(&AUTHORIZATION, key).with(&HeaderName::from_static("topic"), topic))
}

// === impl SampleHead ===

impl RequestHead for SampleHead<'_> {
    fn address(&self) -> &Rc<SharedHead> {
        self.address
    }

    fn path(&self) -> [&[u8]; 2] {
        [self.sample.path.as_bytes(), &[]]
    }

    fn put_own(&self, put: &mut dyn FnMut(OwnField<'_>)) {
        let number = self.sample.number.to_string();
        for (name, value) in [(&X_NUMBER, &number), (&X_TOKEN, &self.sample.token)] {
            put(OwnField { name, value: value.as_bytes(), is_sensitive: false });
        }
    }
}

// === impl Sample ===

impl Sample {
    /// Request `number` to `/kind/number`, with a body of at most `bytes_max`.
    pub(crate) fn new(kind: &str, number: usize, bytes_max: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(number as u64);
        let token = (0..random.usize(1..200)).map(|_| random.alphanumeric()).collect();
        let bytes = BODY_BYTES[number % BODY_BYTES.len()].min(bytes_max);
        let body = (0..bytes).map(|_| random.u8(..)).collect();
        Self { path: format!("/{kind}/{number}"), number, token, body }
    }

    /// A request that nghttpd can answer: for a file whose length is the request's number.
    pub(crate) fn of_length(number: usize, bytes_max: usize) -> Self {
        Self::new("length", number, bytes_max)
    }

    /// Checks that `reply` is the answer to this request, by all that the server can say.
    pub(crate) fn check(&self, program: Http2Program, reply: &Reply) {
        let said = |name: &str| reply.headers.get(name).and_then(|value| value.to_str().ok());
        if program == Http2Program::Nghttpd {
            assert_eq!(said("content-length"), Some(&*self.number.to_string()), "{reply:?}");
            return;
        }
        if reply.status == HELD && program == Http2Program::Haproxy {
            return;
        }
        let is_early = self.path.starts_with("/early/");
        let echoes_body =
            matches!(program, Http2Program::Node | Http2Program::Go | Http2Program::Netty)
                && !is_early;
        // nginx writes no field without a value, and knows no length of a body that is empty.
        let tells_length = echoes_body
            || program == Http2Program::Nginx
                && self.path.starts_with("/echo/")
                && !self.body.is_empty();
        let (length, hash) = (self.body.len().to_string(), self.hash());
        assert_eq!(said("x-path"), Some(&*self.path), "{reply:?}");
        assert_eq!(said("x-number"), Some(&*self.number.to_string()), "{reply:?}");
        assert_eq!(said("x-token"), Some(&*self.token), "{reply:?}");
        assert_eq!(said("x-length"), tells_length.then_some(&*length), "{}: {reply:?}", self.path);
        assert_eq!(said("x-hash"), echoes_body.then_some(&*hash), "{reply:?}");
    }

    /// FNV-1a.
    fn hash(&self) -> String {
        let add = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        format!("{:08x}", self.body.iter().fold(0x811c_9dc5, add))
    }
}
