//! `GET /openapi.json`: the description of the API.

use std::sync::LazyLock;

use axum::http::HeaderMap;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;

use crate::description::document;
use crate::polled::polled_json;
use crate::routes::routes;

/// The description of the API (OpenAPI 3.1).
pub fn openapi() -> Value {
    document(&routes())
}

pub(crate) async fn read(headers: HeaderMap) -> Response {
    static TEXT: LazyLock<Bytes> =
        LazyLock::new(|| serde_json::to_vec(&openapi()).unwrap_or_default().into());
    // It changes with the version of the engine alone.
    ([(CACHE_CONTROL, "max-age=3600")], polled_json(&headers, TEXT.clone())).into_response()
}
