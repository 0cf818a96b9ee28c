//! Request bodies: bounded in size, in time, and in what they may hold of the memory.

use std::future::Future;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use notification::{ByteString, Name, limits};
use pipeline::Intake;
use pipeline::ingest::Reservation;
use pipeline::ingest::json::utf8;
use tokio::time::timeout;

use crate::inflate::{GzipBody, is_gzip};
use crate::limits::{BODY_TIMEOUT, DISCARD_TIMEOUT, GZIP_BYTES};
use crate::problem::Problem;
use crate::problem_code::ProblemCode;

/// A body that is being read.
#[derive(Debug)]
pub(crate) struct Incoming {
    source: BodySource,
}

/// Where the bytes of a body come from.
#[derive(Debug)]
enum BodySource {
    /// From the caller as they are.
    Plain(Body),
    /// From a decoder.
    Gzip(Box<GzipBody>),
}

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    /// `application/json`
    Json,
    /// `application/x-ndjson`
    Lines,
}

/// Answers `request` with what `answer` makes of it. When that is a problem, the rest of the body is read
/// and thrown away for a while: a caller that is still writing would not see the answer otherwise.
pub(crate) async fn with_body<T>(
    request: Request,
    answer: impl AsyncFnOnce(&Parts, &mut Incoming) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let (parts, body) = request.into_parts();
    let mut incoming = Incoming::new(body);
    let answered = answer(&parts, &mut incoming).await;
    if answered.is_err() {
        incoming.discard().await;
    }
    answered
}

/// The format that the content type names, one of `allowed`.
pub(crate) fn format(headers: &HeaderMap, allowed: &[BodyFormat]) -> Result<BodyFormat, Problem> {
    let named = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    // A parameter such as `charset` is not looked at: what is no UTF-8 is refused when it is read.
    let essence = named.and_then(|text| text.split(';').next()).map_or("", str::trim);
    let format = allowed.iter().find(|format| essence.eq_ignore_ascii_case(format.media_type()));
    format.copied().ok_or_else(|| {
        let right: Vec<_> = allowed.iter().map(|format| format.media_type()).collect();
        let detail = format!("the content type must be {}", right.join(" or "));
        Problem::new(ProblemCode::UnsupportedMediaType, detail)
    })
}

// === impl BodyFormat ===

impl BodyFormat {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Lines => "application/x-ndjson",
        }
    }
}

// === impl Incoming ===

impl Incoming {
    /// A body to be read for longer than its handler runs.
    pub(crate) fn new(body: Body) -> Self {
        Self { source: BodySource::Plain(body) }
    }

    /// Has the body inflated from here on, if `headers` say that it is gzip. Every reader calls it before the first piece.
    pub(crate) fn decode(
        &mut self,
        headers: &HeaderMap,
        (intake, tenant): (&Intake, &Name),
    ) -> Result<(), Problem> {
        if !is_gzip(headers)? {
            return Ok(());
        }
        let mut reservation = Reservation::default();
        intake.reserve(tenant, GZIP_BYTES, &mut reservation)?;
        let body = self.take_rest();
        self.source = BodySource::Gzip(Box::new(GzipBody::new(body, reservation)));
        Ok(())
    }

    /// The rest of the body, as it was sent. Nothing is left here.
    fn take_rest(&mut self) -> Body {
        match std::mem::replace(&mut self.source, BodySource::Plain(Body::empty())) {
            BodySource::Plain(body) => body,
            BodySource::Gzip(gzip) => gzip.into_rest(),
        }
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, Problem> {
        match timeout(limits::IDLE_TIMEOUT, self.next_piece()).await {
            Ok(piece) => piece,
            Err(_) => Err(too_slow()),
        }
    }

    /// The next piece, if it is here already.
    pub(crate) fn piece_at_hand(&mut self) -> Option<Result<Option<Bytes>, Problem>> {
        // A look that finds nothing loses nothing: what comes later stays with the body.
        self.next_piece().now_or_never()
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>, Problem> {
        match &mut self.source {
            BodySource::Plain(body) => next_piece(body).await,
            BodySource::Gzip(gzip) => gzip.piece().await,
        }
    }

    /// Reads the rest and throws it away.
    pub(crate) async fn skip(&mut self) -> Result<(), Problem> {
        // As it was sent: nothing is gained by inflating it.
        self.source = BodySource::Plain(self.take_rest());
        while self.piece().await?.is_some() {}
        Ok(())
    }

    /// The whole body, which is to be UTF-8, and the bytes set aside for it.
    pub(crate) async fn whole(
        &mut self,
        headers: &HeaderMap,
        (intake, tenant): (&Intake, &Name),
    ) -> Result<(ByteString, Reservation), Problem> {
        // A body that says that it is too long is refused before a byte of it is read.
        let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        // `None`, of a body that announces no length, is less than any number.
        if announced.and_then(|text| text.parse().ok()) > Some(limits::REQUEST_BYTES) {
            return Err(Problem::too_large(limits::REQUEST_BYTES));
        }
        self.decode(headers, (intake, tenant))?;
        // A byte now and then would keep each piece in time: the whole has a time as well, since it holds memory.
        let read = self.read_whole(intake, tenant);
        timeout(BODY_TIMEOUT, read).await.unwrap_or_else(|_| Err(too_slow()))
    }

    async fn read_whole(
        &mut self,
        intake: &Intake,
        tenant: &Name,
    ) -> Result<(ByteString, Reservation), Problem> {
        let mut reservation = Reservation::default();
        let mut whole = BytesMut::new();
        while let Some(piece) = self.piece().await? {
            // A chunked body has announced nothing, and a gzip body what it was compressed to.
            if whole.len() + piece.len() > limits::REQUEST_BYTES {
                return Err(Problem::too_large(limits::REQUEST_BYTES));
            }
            // As it comes and not as it was announced: a slow caller holds only what it has sent (decision 0020).
            intake.reserve(tenant, piece.len(), &mut reservation)?;
            whole.extend_from_slice(&piece);
        }
        Ok((utf8(whole.freeze())?, reservation))
    }

    async fn discard(&mut self) {
        if timeout(DISCARD_TIMEOUT, self.skip()).await.is_err() {
            tracing::debug!("refused body not read to its end");
        }
    }
}

// === helpers ===

fn next_piece(body: &mut Body) -> impl Future<Output = Result<Option<Bytes>, Problem>> {
    body.frame().map(|frame| match frame {
        None => Ok(None),
        // A frame without data is trailers: nothing to read, and not the end either.
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(error)) => {
            Err(Problem::new(ProblemCode::BrokenBody, format!("the body broke off: {error}")))
        }
    })
}

pub(crate) fn too_slow() -> Problem {
    Problem::new(ProblemCode::SlowBody, "the body took too long to arrive")
}
