//! A connection whose peer is a test: frames by hand, time by hand.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "built for tests and for the fuzzer only"
)]
#![cfg_attr(not(test), expect(dead_code, reason = "the fuzzer needs a part of it"))]

use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use flow::Clock;
use http::uri::Authority;
use http::{HeaderMap, HeaderName};
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::time::Instant;

use super::answer::NoReply;
use super::connection::{Connection, Priming};
use super::driver::Wire;
use super::frames::{self, HEAD_BYTES};
use super::outcomes::{RequestOutcome, RequestOutcomes};
use super::session::Http2Session;
use crate::exchange::Reply;
use crate::request_head::{OwnField, RequestHead, SharedHead};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RESET: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const WHOLE: u8 = END_STREAM | END_HEADERS;
/// A header block: `:status: 200`.
pub(super) const OK: &[u8] = &[0x88];
pub(super) const REFUSED: u32 = 7;
pub(super) const INTERNAL_ERROR: u32 = 2;

/// Parts of a frame: kind, flags, stream and payload.
pub(super) type FrameParts = (u8, u8, u32, Vec<u8>);

impl RequestOutcome {
    pub(super) fn reply(self) -> Result<Reply, NoReply> {
        self.0.map(|answer| answer.reply).map_err(|why| *why)
    }
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub(super) fn status(code: u16) -> Vec<u8> {
    [&[0x08, 3], code.to_string().as_bytes()].concat()
}

pub(super) fn setting(number: u16, value: u32) -> Vec<u8> {
    [&number.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

pub(super) fn go_away(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// The frames of `bytes`, which are whole.
pub(super) fn parts(mut bytes: &[u8]) -> Vec<FrameParts> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
        frames.push((bytes[3], bytes[4], stream, bytes[HEAD_BYTES..HEAD_BYTES + length].to_vec()));
        bytes = &bytes[HEAD_BYTES + length..];
    }
    frames
}

pub(super) static READ_FIELDS: [HeaderName; 1] = [HeaderName::from_static("a")];

/// A connection whose peer is the test.
pub(super) struct SessionRig {
    pub(super) session: Http2Session,
    pub(super) now: Instant,
    outcomes: Rc<RequestOutcomes>,
    /// Those that have come, with their keys.
    arrived: Vec<(u16, RequestOutcome)>,
}

/// State of a request at the end of a test.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SeenOutcome {
    Pending,
    Answer(u16, Vec<u8>),
    /// `leave` if the connection takes no more.
    NotProcessed {
        leave: bool,
    },
    Http11Required,
    Lost,
}

pub(super) const NOT_PROCESSED: SeenOutcome = SeenOutcome::NotProcessed { leave: true };

impl SessionRig {
    /// A connection that has just begun.
    pub(super) fn begin() -> Self {
        let now = Clock::starting_at(Duration::ZERO).monotonic();
        Self {
            session: Http2Session::new(&READ_FIELDS, now),
            now,
            outcomes: Rc::default(),
            arrived: Vec::new(),
        }
    }

    /// A connection whose peer has granted `settings`, and has read what was said so far.
    pub(super) fn new(settings: &[u8]) -> Self {
        let mut rig = Self::begin();
        rig.feed(&frame(SETTINGS, 0, 0, settings));
        rig.feed(&frame(SETTINGS, ACK, 0, &[]));
        rig.feed(&frame(PING, ACK, 0, &1_u64.to_be_bytes()));
        assert!(rig.session.is_ready());
        rig.written();
        rig
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.session.receive(bytes, self.now);
    }

    /// All that the client writes.
    pub(super) fn written(&mut self) -> Vec<FrameParts> {
        let mut bytes = Vec::new();
        loop {
            let piece = self.session.offer();
            if piece.is_empty() {
                break;
            }
            let length = piece.len();
            bytes.extend_from_slice(piece);
            self.session.out.took(length);
        }
        let begin = if bytes.starts_with(frames::PREFACE) { frames::PREFACE.len() } else { 0 };
        parts(&bytes[begin..])
    }

    pub(super) fn send(&mut self, body: &[u8]) -> u32 {
        self.try_send(&request(), body).unwrap()
    }

    pub(super) fn try_send(&mut self, head: &TestHead, body: &[u8]) -> Result<u32, NoReply> {
        // The key is the stream that it will have.
        let key =
            self.session.streams.next().and_then(|stream| u16::try_from(stream & 0xffff).ok());
        self.session.send(head, Bytes::copy_from_slice(body), (&self.outcomes, key.unwrap_or(0)))
    }

    /// The outcome of the request on a stream.
    pub(super) fn fetch(&mut self, stream: u32) -> Option<Result<Reply, NoReply>> {
        while let Some(arrived) = self.outcomes.take() {
            self.arrived.push(arrived);
        }
        let place = self.arrived.iter().position(|(key, _)| u32::from(*key) == stream & 0xffff)?;
        Some(self.arrived.swap_remove(place).1.reply())
    }

    pub(super) fn outcome(&mut self, stream: u32) -> SeenOutcome {
        match self.fetch(stream) {
            None => SeenOutcome::Pending,
            Some(Ok(reply)) => SeenOutcome::Answer(reply.status, reply.body),
            Some(Err(NoReply::NotProcessed)) => {
                SeenOutcome::NotProcessed { leave: !self.session.takes_requests() }
            }
            Some(Err(NoReply::Http11Required)) => SeenOutcome::Http11Required,
            Some(Err(NoReply::Lost(words))) => {
                assert!(words.starts_with("no answer"), "{words}");
                SeenOutcome::Lost
            }
        }
    }

    pub(super) fn pass(&mut self, span: Duration, is_in_use: bool) {
        let until = self.now + span;
        while self.session.ending().is_none()
            && let Some(at) = self.session.wake_at()
            && at <= until
        {
            self.now = at;
            self.session.on_time(self.now, is_in_use);
        }
        self.now = until;
    }

    /// The code of the GOAWAY that was written last.
    pub(super) fn goodbye(&mut self) -> Option<u32> {
        let last = self.written().pop().filter(|(kind, ..)| *kind == GOAWAY)?;
        Some(u32::from_be_bytes(last.3[4..8].try_into().unwrap()))
    }
}

/// A head of which as much is shared as a test says.
pub(super) struct TestHead {
    pub(super) address: Rc<SharedHead>,
    pub(super) shared: Rc<SharedHead>,
    pub(super) path: String,
    pub(super) own: HeaderMap,
}

impl TestHead {
    /// A head to `path`, with shared fields that no other head has.
    pub(super) fn new(path: &str, fields: HeaderMap) -> Self {
        let authority = Authority::from_static("host.example");
        Self {
            address: Rc::new(SharedHead::address(&authority, None)),
            shared: shared(fields),
            path: path.to_owned(),
            own: HeaderMap::new(),
        }
    }
}

/// A shared part with these fields.
pub(super) fn shared(fields: HeaderMap) -> Rc<SharedHead> {
    let mut shared = SharedHead::default();
    let mut last = None;
    for (name, value) in fields {
        last = name.or(last);
        shared.push(last.as_ref().unwrap(), value);
    }
    Rc::new(shared)
}

impl RequestHead for TestHead {
    fn address(&self) -> &Rc<SharedHead> {
        &self.address
    }

    fn shared(&self) -> Option<&Rc<SharedHead>> {
        Some(&self.shared)
    }

    fn path(&self) -> [&[u8]; 2] {
        [self.path.as_bytes(), &[]]
    }

    fn put_own(&self, put: &mut dyn FnMut(OwnField<'_>)) {
        for (name, value) in &self.own {
            let is_sensitive = value.is_sensitive();
            put(OwnField { name, value: value.as_bytes(), is_sensitive });
        }
    }
}

/// A connection over `socket` on which nothing was said yet, of whose answers the header fields `read_fields` are kept.
pub(super) fn wire<Socket: AsyncBufRead + AsyncWrite + Unpin>(
    socket: Socket,
    read_fields: &'static [HeaderName],
) -> Wire<Socket> {
    let clock = Clock::starting_at(Duration::ZERO);
    Wire::new("test", Connection::new(Priming::Unprimed, read_fields, clock), socket)
}

/// Sends a request over `connection` at once; the future waits for the answer.
pub(super) fn exchange(
    connection: &Connection,
    head: &TestHead,
    body: Bytes,
) -> impl Future<Output = Result<Reply, NoReply>> + use<> {
    let outcomes = Rc::default();
    let begun = connection.act(|session| session.send(head, body, (&outcomes, 0)));
    async move {
        begun?;
        outcomes.next().await.1.reply()
    }
}

pub(super) fn request() -> TestHead {
    TestHead::new("/3/device/1", HeaderMap::new())
}

pub(super) fn kinds(frames: &[FrameParts]) -> Vec<(u8, u32)> {
    frames.iter().map(|(kind, _, stream, _)| (*kind, *stream)).collect()
}

/// Has `play` play as many seeds as `BELFRY_WIRE_SCRIPTS` says, each of which counts as `cost`, or `scripts`, or the one of
/// `BELFRY_WIRE_SEED`; names the one that fails. Gives how many there were.
pub(super) fn for_each_seed(scripts: u64, cost: u64, mut play: impl FnMut(u64)) -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "how many scripts a test plays is no setting of the engine"
    )]
    let setting = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match setting("BELFRY_WIRE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("BELFRY_WIRE_SCRIPTS").map_or(scripts, |all| all / cost),
    };
    for seed in seeds.clone() {
        let played = std::panic::catch_unwind(AssertUnwindSafe(|| play(seed)));
        played.unwrap_or_else(|_| panic!("BELFRY_WIRE_SEED={seed} plays it again"));
    }
    seeds.end - seeds.start
}
