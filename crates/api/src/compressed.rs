//! Answers that are compressed for callers that accept it (RFC 9110, section 12.5.3).
//!
//! A layer of the routes that read, and of no others. So no answer that holds a new key is compressed: the length of one would tell
//! something of what stands in it (BREACH).

use std::io::{self, Write as _};

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue, VARY,
};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::MethodRouter;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use crate::limits::{COMPRESSED_AT_ONCE, COMPRESSED_FROM, COMPRESSIONS};

/// Types of answers that compress well. Those that come line by line are not among them: each line would have to be flushed.
const TYPES: [&str; 4] =
    ["application/json", "application/problem+json", "application/openmetrics-text", "text/plain"];

/// The compressors that are free. A process has one runtime for callers, so it has one bound.
static COMPRESSORS: Semaphore = Semaphore::const_new(COMPRESSIONS);

/// `routes`, with answers compressed where the caller accepts it.
pub(crate) fn when_accepted<S: Clone + Send + Sync + 'static>(
    routes: MethodRouter<S>,
) -> MethodRouter<S> {
    // Not of the answer to a method that the path does not take.
    routes.route_layer(from_fn(layer))
}

async fn layer(request: Request, next: Next) -> Response {
    let is_accepted = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    let is_known = response.status() == StatusCode::NOT_MODIFIED;
    if !is_known && !is_compressible(response.headers()) {
        return response;
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    if is_accepted && is_known {
        // Without its body it is not known how long that is. A weak tag stands for both.
        weaken(response.headers_mut());
    }
    let bytes = response.body().size_hint().exact();
    if !is_accepted || bytes.is_none_or(|bytes| bytes < COMPRESSED_FROM) {
        return response;
    }
    match COMPRESSORS.try_acquire() {
        Ok(_permit) => compressed(response).await,
        Err(_) => response,
    }
}

/// `response` with its body compressed.
async fn compressed(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    // It is in memory as a whole already: its length is known.
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let failed = futures_util::stream::once(async { Err::<Bytes, _>(error) });
            return Response::from_parts(parts, Body::from_stream(failed));
        }
    };
    let Ok(shorter) = gzip(&body).await else {
        return Response::from_parts(parts, Body::from(body));
    };
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.remove(CONTENT_LENGTH);
    weaken(&mut parts.headers);
    Response::from_parts(parts, Body::from(shorter))
}

async fn gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    // A list compresses to a fifth or less.
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    for slice in body.chunks(COMPRESSED_AT_ONCE) {
        encoder.write_all(slice)?;
        yield_now().await;
    }
    encoder.finish()
}

fn is_compressible(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = media_type.and_then(|text| text.split(';').next()).map_or("", str::trim);
    TYPES.contains(&essence) && !headers.contains_key(CONTENT_ENCODING)
}

/// Makes the entity tag a weak one: the bytes of the body differ from those of the plain answer (RFC 9110, section 8.8.1).
fn weaken(headers: &mut HeaderMap) {
    let Some(tag) = headers.get(ETAG).filter(|tag| tag.as_bytes().starts_with(b"\"")) else {
        return;
    };
    let weak = [b"W/", tag.as_bytes()].concat();
    if let Ok(weak) = HeaderValue::from_bytes(&weak) {
        headers.insert(ETAG, weak);
    }
}

/// True if the caller accepts gzip, and likes it no less than none.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let (mut gzip, mut any, mut identity) = (None, None, None);
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    for item in values.flat_map(|value| value.split(',')) {
        let (coding, parameters) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight(parameters);
        match coding.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => gzip = Some(weight),
            "identity" => identity = Some(weight),
            "*" => any = Some(weight),
            _ => {}
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    // What is not named is accepted as well, and liked less than what is.
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

/// Thousandths that `parameters` weigh, such as `q=0.5` (RFC 9110, section 12.4.2). One that cannot be read weighs nothing.
fn weight(parameters: &str) -> u16 {
    let mut named = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let Some((_, weight)) = named.find(|(name, _)| name.trim().eq_ignore_ascii_case("q")) else {
        return 1_000;
    };
    let weight = weight.trim().parse::<f32>().ok().filter(|weight| (0.0..=1.0).contains(weight));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 1000"
    )]
    weight.map_or(0, |weight| (weight * 1_000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_for_callers_that_name_it_and_do_not_prefer_none() {
        let check = |accepted: Option<&str>, expect: bool| {
            let mut headers = HeaderMap::new();
            if let Some(accepted) = accepted {
                headers.insert(ACCEPT_ENCODING, accepted.parse().unwrap());
            }
            assert_eq!(accepts_gzip(&headers), expect, "{accepted:?}");
        };
        check(None, false);
        for yes in [
            "gzip",
            "GZIP",
            "br, gzip",
            "deflate, gzip;q=1.0, *;q=0.5",
            "*",
            "x-gzip",
            "gzip ; Q = 0.001",
        ] {
            check(Some(yes), true);
        }
        for no in ["", "br", "identity", "gzip;q=0", "*;q=0", "gzip;q=0, *", "gzip;q=x", "gzip;q=2"]
        {
            check(Some(no), false);
        }
        check(Some("identity, gzip"), true);
        check(Some("identity;q=0.5, gzip"), true);
        check(Some("identity, gzip;q=0.5"), false);
        check(Some("identity;q=0, *"), true);
    }
}
