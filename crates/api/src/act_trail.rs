//! The trail of acts: each request that changes what was handed in before, or how it is sent, or a key, is written down durably before it
//! is done, and what came of it afterwards.

use std::sync::Arc;

use axum::Json;
use axum::extract::{MatchedPath, Query, Request};
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use notification::Name;
use percent_encoding::{AsciiSet, CONTROLS, PercentEncode, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};
use store::{ActBegun, ActEnded};

use crate::ApiState;
use crate::problem::Problem;
use crate::request_mark::{CallerNames, RequestMark};

/// The outcome of an act, on its way out with the answer.
#[derive(Debug, Clone)]
struct ActOutcome(String);

/// Parameters whose values tell of a person: they are erased on request, and the trail is not.
const PRIVATE: [&str; 3] = ["to", "recipient", "external_id"];
/// Stands in the trail in their place.
const HIDDEN: &str = "[hidden]";
/// Bytes of a path and query in the trail; the rest is cut off.
const ASKED_BYTES: usize = 2 * 1024;

/// The answer to an act, whose body stands in the trail as well. It must tell of no person, and have no secret.
pub(crate) fn acted(answer: impl Serialize) -> Response {
    acted_on(json!({}), answer)
}

/// [`acted`], where the trail also says what the body of the request asked for.
pub(crate) fn acted_on(asked: Value, answer: impl Serialize) -> Response {
    let mut outcome = asked;
    // Both are objects.
    if let (Value::Object(fields), Ok(Value::Object(answer))) =
        (&mut outcome, serde_json::to_value(&answer))
    {
        fields.extend(answer);
    }
    noted(outcome.to_string(), Json(answer).into_response())
}

/// `response` to an act, of which the trail says `outcome` alone.
pub(crate) fn noted(outcome: String, mut response: Response) -> Response {
    response.extensions_mut().insert(ActOutcome(outcome));
    response
}

/// Has `next` do what `request` asks for, between two lines of the trail.
///
/// # Errors
/// When the first cannot be written: then nothing is done.
pub(crate) async fn recorded(
    shared: &Arc<ApiState>,
    mark: &RequestMark,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let Some(CallerNames { key, tenant: caller }) = mark.caller().cloned() else {
        return Ok(next.run(request).await);
    };
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let Asked { tenant, asked } = Asked::of(request.uri());
    let begun = ActBegun {
        at: shared.intake.now(),
        request: mark.id().to_owned(),
        key,
        tenant: tenant.unwrap_or_else(|| caller.clone()),
        caller,
        call: format!("{} {route}", request.method()),
        asked,
    };
    let id = shared.trail.begin_act(begun).await?;
    let mut response = next.run(request).await;
    let outcome = response.extensions_mut().remove::<ActOutcome>();
    let status = response.status().as_u16();
    let end = ActEnded { at: shared.intake.now(), status, answer: outcome.map(|it| it.0) };
    // It was done, or not, and is answered so: the trail has its beginning.
    if let Err(error) = shared.trail.end_act(id, end).await {
        tracing::warn!(id, %error, "the trail of acts has no end of one");
    }
    Ok(response)
}

/// The request, as the trail has it.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    /// The tenant that it names.
    tenant: Option<Name>,
    asked: String,
}

// === impl Asked ===

impl Asked {
    fn of(uri: &Uri) -> Self {
        let (mut tenant, mut asked) = (None, uri.path().to_owned());
        // Read as the handler does: a name may be written in several ways. A query that cannot be read does nothing.
        let query = Query::<Vec<(String, String)>>::try_from_uri(uri).unwrap_or_default();
        for (i, (name, value)) in query.0.iter().enumerate() {
            if name == "tenant" {
                tenant = value.parse().ok();
            }
            let shown = if PRIVATE.contains(&name.as_str()) { HIDDEN } else { value };
            let mark = if i == 0 { '?' } else { '&' };
            let (name, shown) = (encoded(name), encoded(shown));
            asked.extend([format!("{mark}{name}={shown}")]);
        }
        asked.truncate(asked.floor_char_boundary(ASKED_BYTES));
        Self { tenant, asked }
    }
}

/// `text` so that it can be told where it ends in a query.
fn encoded(text: &str) -> PercentEncode<'_> {
    const AMBIGUOUS: &AsciiSet =
        &CONTROLS.add(b' ').add(b'%').add(b'&').add(b'=').add(b'#').add(b'+');
    utf8_percent_encode(text, AMBIGUOUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_of_a_person_is_not_written_down() {
        let asked = |uri: &str| Asked::of(&uri.parse().unwrap());
        let plain = asked("/v1/cancel?channel=ios&tenant=shop");
        assert_eq!(plain.asked, "/v1/cancel?channel=ios&tenant=shop");
        assert_eq!(plain.tenant, Some("shop".parse().unwrap()));
        for uri in [
            "/v1/recipients?to=ann%40example.com",
            "/v1/requeue?state=dead&recipient=ann%40example.com",
            "/v1/requeue?external%5Fid=ann%40example.com",
            "/v1/requeue?t%6f=ann%40example.com",
        ] {
            let hidden = asked(uri);
            assert!(hidden.asked.ends_with("=[hidden]"), "{hidden:?}");
            assert!(!hidden.asked.contains("ann"), "{hidden:?}");
            assert_eq!(hidden.tenant, None);
        }
        let long = asked(&format!("/v1/cancel?tag={}", "t".repeat(9_000)));
        assert_eq!(long.asked.len(), ASKED_BYTES);
    }
}
