//! The trail of acts: each request that changes what was handed in before, or how it is sent, or a key, is written down durably before it
//! is done, and what came of it afterwards.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{MatchedPath, Query, Request};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use notification::{BroadcastId, Name, NotificationId};
use percent_encoding::{AsciiSet, CONTROLS, PercentEncode, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};
use store::{ActBegun, ActEnded};
use tower::{Service, ServiceExt as _};

use crate::ApiState;
use crate::problem::Problem;
use crate::request_mark::{CallerNames, RequestMark};

/// The outcome of an act, on its way out with the answer.
#[derive(Debug, Clone)]
struct ActOutcome {
    /// The tenant that it concerns, where the request did not say.
    tenant: Option<Name>,
    answer: String,
}

/// Parameters whose values stand in the trail: they tell of no person, and have no secret. What others have, or one that a caller has
/// mistyped, may be an address, which is erased on request, and the trail is not.
const SHOWN: [&str; 20] = [
    "after",
    "all",
    "as",
    "attempts",
    "broadcast",
    "channel",
    "destination",
    "dry_run",
    "former_until",
    "from",
    "limit",
    "may_repeat",
    "order",
    "priority",
    "since",
    "state",
    "suppressions",
    "tenant",
    "until",
    "wait",
];
/// Stands in the trail in place of the others.
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
    noted(None, outcome.to_string(), Json(answer).into_response())
}

/// [`acted`], of an act that concerns `tenant`, as its request did not say.
pub(crate) fn acted_for(tenant: Option<Name>, answer: impl Serialize) -> Response {
    let outcome = serde_json::to_string(&answer).unwrap_or_default();
    noted(tenant, outcome, Json(answer).into_response())
}

/// `response` to an act, of which the trail says `answer` alone, and whom it concerns if the request did not.
pub(crate) fn noted(tenant: Option<Name>, answer: String, mut response: Response) -> Response {
    response.extensions_mut().insert(ActOutcome { tenant, answer });
    response
}

/// Has `next` do what `request` asks for, between two lines of the trail.
///
/// # Errors
/// When the first cannot be written: then nothing is done.
pub(crate) async fn recorded<S>(
    shared: &Arc<ApiState>,
    (mark, is_operator): (&RequestMark, bool),
    request: Request,
    next: S,
) -> Result<Response, Problem>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let Some(CallerNames { key, tenant: caller }) = mark.caller().cloned() else {
        return Ok(answer_of(next, request).await);
    };
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let Asked { tenant, asked } = Asked::of(route, request.uri());
    // Others may not name one, and are refused: their acts stay among their own.
    let tenant = tenant.filter(|_| is_operator);
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
    let mut response = answer_of(next, request).await;
    let outcome = response.extensions_mut().remove::<ActOutcome>();
    let status = response.status().as_u16();
    let (tenant, answer) = outcome.map(|it| (it.tenant, it.answer)).unzip();
    let end = ActEnded { at: shared.intake.now(), status, tenant: tenant.flatten(), answer };
    // It was done, or not, and is answered so: the trail has its beginning.
    if let Err(error) = shared.trail.end_act(id, end).await {
        tracing::warn!(id, %error, "the trail of acts has no end of one");
    }
    Ok(response)
}

/// The answer of a route, which never fails.
pub(crate) async fn answer_of<S>(route: S, request: Request) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    match route.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
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
    fn of(route: &str, uri: &Uri) -> Self {
        // A path whose part is no identifier and no name may be anything, too.
        let is_plain = uri.path().split('/').all(is_identifier);
        let path = if is_plain { uri.path() } else { route };
        let (mut tenant, mut asked) = (None, path.to_owned());
        // Read as the handler does: a name may be written in several ways. A query that cannot be read does nothing.
        let query = Query::<Vec<(String, String)>>::try_from_uri(uri).unwrap_or_default();
        for (i, (name, value)) in query.0.iter().enumerate() {
            if name == "tenant" {
                tenant = value.parse().ok();
            }
            let is_shown = SHOWN.contains(&name.as_str());
            let (name, value) =
                if is_shown { (name.as_str(), value.as_str()) } else { (known(name), HIDDEN) };
            let mark = if i == 0 { '?' } else { '&' };
            let (name, value) = (encoded(name), encoded(value));
            asked.extend([format!("{mark}{name}={value}")]);
        }
        asked.truncate(asked.floor_char_boundary(ASKED_BYTES));
        Self { tenant, asked }
    }
}

/// True for a part of a path that is a word of a route, an identifier, or a name.
fn is_identifier(part: &str) -> bool {
    part.is_empty()
        || part.parse::<Name>().is_ok()
        || part.parse::<NotificationId>().is_ok()
        || part.parse::<BroadcastId>().is_ok()
}

/// The name of a parameter that a route may have, whose value is not shown; of another one nothing is.
fn known(name: &str) -> &str {
    const KNOWN: [&str; 6] = ["external_id", "key", "note", "reason", "tag", "to"];
    if KNOWN.contains(&name) { name } else { HIDDEN }
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
        let asked = |uri: &str| Asked::of("/v1/{of}", &uri.parse().unwrap());
        for plain in [
            "/v1/cancel?channel=ios&tenant=shop",
            "/v1/broadcasts/bc_7/cancel",
            "/v1/notifications/019aa4f0-6b2e-8c11-8000-000000010000/resolve?as=delivered",
            "/v1/keys/shop/rotate?former_until=2027-01-01T00:00:00Z",
        ] {
            assert_eq!(asked(plain).asked, plain);
        }
        assert_eq!(asked("/v1/cancel?tenant=shop").tenant, Some("shop".parse().unwrap()));
        for (uri, shown) in [
            ("/v1/recipients?to=ann%40example.com", "/v1/recipients?to=[hidden]"),
            ("/v1/resolve?as=dead&note=ann+called", "/v1/resolve?as=dead&note=[hidden]"),
            ("/v1/requeue?external%5Fid=ann", "/v1/requeue?external_id=[hidden]"),
            ("/v1/requeue?tag=ann", "/v1/requeue?tag=[hidden]"),
            ("/v1/requeue?ann=1&To=ann", "/v1/requeue?[hidden]=[hidden]&[hidden]=[hidden]"),
            ("/v1/notifications/ann@example.com/cancel", "/v1/{of}"),
        ] {
            assert_eq!(asked(uri).asked, shown);
        }
        let long = asked(&format!("/v1/cancel?destination={}", "d".repeat(9_000)));
        assert_eq!(long.asked.len(), ASKED_BYTES);
    }
}
