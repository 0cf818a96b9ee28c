//! Request bodies that are gzip (RFC 1952), inflated piece by piece.

use std::io;

use async_compression::tokio::bufread::GzipDecoder;
use axum::body::{Body, BodyDataStream};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use futures_util::stream::MapErr;
use pipeline::ingest::Reservation;
use tokio::io::AsyncReadExt as _;
use tokio::task::coop::consume_budget;
use tokio_util::io::StreamReader;

use crate::limits::INFLATED_BYTES;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;

/// A gzip body that is being read.
#[derive(Debug)]
pub(crate) struct GzipBody {
    decoder: GzipDecoder<CompressedReader>,
    buffer: BytesMut,
    /// Memory that the decoder takes.
    _reservation: Reservation,
}

type CompressedReader = StreamReader<MapErr<BodyDataStream, fn(axum::Error) -> io::Error>, Bytes>;

/// The connection failed, and not the decoder.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct BrokeOff(axum::Error);

/// True if `headers` say that the body is gzip.
///
/// # Errors
/// When they name another coding, or several.
pub(crate) fn is_gzip(headers: &HeaderMap) -> Result<bool, Problem> {
    let Some(coding) = headers.get(CONTENT_ENCODING) else { return Ok(false) };
    let is = |name: &str| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    match headers.get_all(CONTENT_ENCODING).iter().count() {
        // Recipients take both names for the same (RFC 9110, section 8.4.1.3).
        1 if is("gzip") || is("x-gzip") => Ok(true),
        1 if is("identity") || is("") => Ok(false),
        _ => {
            let detail = "the content coding must be gzip, or none: Content-Encoding names others";
            Err(Problem::new(ProblemCode::UnsupportedCoding, detail))
        }
    }
}

// === impl GzipBody ===

impl GzipBody {
    /// Reads `body` with the memory that was reserved for the decoder.
    pub(crate) fn new(body: Body, reservation: Reservation) -> Self {
        let broke_off: fn(axum::Error) -> io::Error = |error| io::Error::other(BrokeOff(error));
        let reader = StreamReader::new(body.into_data_stream().map_err(broke_off));
        let mut decoder = GzipDecoder::new(reader);
        decoder.multiple_members(true);
        Self { decoder, buffer: BytesMut::new(), _reservation: reservation }
    }

    /// The next piece, at most [`INFLATED_BYTES`]; `None` at the end. A call that is dropped before it is done loses nothing.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, Problem> {
        // What came at once may inflate to a thousand times as much: each piece costs the task a part of its turn, as a read from a
        // socket does.
        consume_budget().await;
        self.buffer.reserve(INFLATED_BYTES);
        let mut room = (&mut self.buffer).limit(INFLATED_BYTES);
        match self.decoder.read_buf(&mut room).await {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(self.buffer.split().freeze())),
            Err(error) => Err(problem(&error)),
        }
    }

    /// The rest of the body, as it was sent.
    pub(crate) fn into_rest(self) -> Body {
        Body::from_stream(self.decoder.into_inner().into_inner())
    }
}

// === helpers ===

fn problem(error: &io::Error) -> Problem {
    let is_broken =
        error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<BrokeOff>);
    if is_broken {
        return Problem::new(ProblemCode::BrokenBody, format!("the body broke off: {error}"));
    }
    let detail = if error.kind() == io::ErrorKind::UnexpectedEof {
        "the body ends before its gzip does".to_owned()
    } else {
        format!("the body is not gzip: {error}")
    };
    Problem::new(ProblemCode::InvalidGzip, detail)
}
