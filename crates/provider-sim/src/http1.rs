//! HTTP/1.1, for senders that do not speak HTTP/2.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use crate::clock;
use crate::exchange::{Request, SimContent, SimReply};
use crate::fields::Fields;
use crate::provider::Provider;
use crate::tls::TlsStream;

/// Ends a connection without an answer.
#[derive(Debug, thiserror::Error)]
enum Abort {
    #[error("the request is left without an answer")]
    Unanswered,
    #[error("the request broke off: {0}")]
    Incomplete(Box<dyn std::error::Error + Send + Sync>),
}

/// Serves one connection until either side closes it.
pub(crate) async fn serve(tls: TlsStream, provider: Rc<Provider>) -> Result<(), hyper::Error> {
    let accepted = Cell::new(0_u64);
    let service = service_fn(|request| {
        accepted.set(accepted.get() + 1);
        let goaway_every = provider.options.faults.goaway_every;
        let is_last = goaway_every.is_some_and(|count| count.get() == accepted.get());
        answer(&provider, request, is_last)
    });
    http1::Builder::new().serve_connection(TokioIo::new(tls), service).await
}

async fn answer(
    provider: &Provider,
    request: hyper::Request<Incoming>,
    is_last: bool,
) -> Result<Response<Full<Bytes>>, Abort> {
    let (parts, body) = request.into_parts();
    let collected = Limited::new(body, provider.content_bytes_max()).collect().await;
    let whole = match collected {
        Ok(collected) => Some(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => None,
        Err(error) => return Err(Abort::Incomplete(error)),
    };
    let authority = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let verdict = provider.receive(&Request {
        method: &parts.method,
        authority: authority.unwrap_or_default(),
        path: parts.uri.path(),
        headers: &Fields::from(&parts.headers),
        content: whole.as_deref().map_or(SimContent::TooLong, SimContent::Whole),
    });
    // In the books before it is answered: what a client takes for delivered is always there.
    poll_fn(|context| provider.journal.poll_written(verdict.record, context)).await;
    if verdict.due_us > 0 {
        let wait_us = verdict.due_us.saturating_sub(clock::unix_us());
        tokio::time::sleep(Duration::from_micros(wait_us)).await;
    }
    let SimReply::Answer(answer) = verdict.reply else {
        // An error makes hyper close the connection, which is all that HTTP/1.1 has for these faults.
        return Err(Abort::Unanswered);
    };
    let mut response = answer.into_response(Full::new);
    if is_last {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}
