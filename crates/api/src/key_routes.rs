//! `/v1/keys`: the keys that there are, and new ones, others in their place, and the end of them, without a restart.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::header::{CACHE_CONTROL, LOCATION};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use notification::{Name, Timestamp, limits};
use pipeline::ingest::InvalidField;
use pipeline::ingest::json::{Object, ParseError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{FormerKey, KeyChange, KeyChanged, StoredKey};

use crate::ApiState;
use crate::act_trail::{acted_for, noted};
use crate::body::{BodyFormat, format, with_body};
use crate::caller::Caller;
use crate::grants::Grants;
use crate::grants_json::{self, GrantsAnswer};
use crate::keys::{ApiKey, generate, sha256};
use crate::limits::{FORMER_KEY_MAX, FORMER_KEY_USUAL, LIST_SLICE};
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::query::Query;
use crate::view::{ListAnswer, show};

/// A key that a call made, or put in the place of another one. Nothing else ever shows the key itself.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct KeyMade {
    /// Its name.
    pub name: String,
    /// Whose notifications it creates and sees.
    pub tenant: String,
    /// The key, for its caller.
    pub key: String,
    /// The last instant at which the key before it is good.
    pub former_until: Option<String>,
    /// True if every process is known to go by it.
    pub everywhere: bool,
}

/// The answer to revoking a key.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct KeyRevoked {
    /// True if there was such a key.
    pub revoked: bool,
    /// True if every process is known to go by it.
    pub everywhere: bool,
}

/// A key, as its holder may know it.
#[derive(JsonSchema, Serialize)]
pub(crate) struct OwnKey {
    /// Null where no keys are configured.
    name: Option<Name>,
    tenant: Name,
    #[serde(flatten)]
    grants: GrantsAnswer,
}

/// A key, as operators see it.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct KeyItem {
    /// Its name.
    pub name: String,
    /// Whose notifications it creates and sees.
    pub tenant: String,
    /// The calls that it is good for.
    #[serde(flatten)]
    pub grants: GrantsAnswer,
    /// `configuration`, or `store`.
    pub kept_in: String,
    /// When it was made, in the store.
    pub made_at: Option<String>,
    /// The last instant at which the key before it is good.
    pub former_until: Option<String>,
}

/// The body of a request for a new key.
struct KeyDraft {
    name: Name,
    tenant: Name,
    grants: Grants,
}

/// The parameters of a list of keys.
pub(crate) const LIST_PARAMETERS: [&str; 2] = ["after", "limit"];
/// Those of a rotation.
pub(crate) const ROTATE_PARAMETERS: [&str; 1] = ["former_until"];
/// Where keys are kept.
const CONFIGURATION: &str = "configuration";
const STORE: &str = "store";
/// The fields of the body of a request for a new key.
pub(crate) const DRAFT_FIELDS: &[&str] = &[
    "name",
    "tenant",
    "scopes",
    "channels",
    "priorities",
    "from",
    "endpoints",
    "not_after",
    "requests_per_minute",
];

/// `GET /v1/keys/self`: the key that the caller has.
pub(crate) async fn own(Extension(caller): Extension<Caller>) -> Response {
    let name = caller.key().map(|key| key.name.clone());
    let grants = GrantsAnswer::of(&caller.grants());
    Json(OwnKey { name, tenant: caller.tenant, grants }).into_response()
}

/// `GET /v1/keys`: all keys that this process knows, by name.
pub(crate) async fn list(
    State(shared): State<Arc<ApiState>>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &LIST_PARAMETERS)?;
    let after: Option<Name> = query.parse("after")?;
    let items_max = query.limit(LIST_SLICE, limits::LIST_ITEMS)?;
    let (configured, stored) = (shared.keys.configured(), shared.keys.stored());
    let mut items: Vec<KeyItem> = configured
        .iter()
        .map(KeyItem::configured)
        .chain(stored.iter().map(KeyItem::stored))
        .collect();
    items.retain(|item| after.as_ref().is_none_or(|after| item.name.as_str() > after.as_str()));
    items.sort_by(|one, other| (&one.name, &one.kept_in).cmp(&(&other.name, &other.kept_in)));
    // A page does not end between two keys of one name: the next one begins behind the name.
    let is_same = |at: usize| match (items.get(at.wrapping_sub(1)), items.get(at)) {
        (Some(last), Some(next)) => last.name == next.name,
        _ => false,
    };
    let items_max = items_max + usize::from(is_same(items_max));
    let is_more = items.len() > items_max;
    items.truncate(items_max);
    let next = items.last().filter(|_| is_more).map(|item| item.name.clone());
    Ok(Json(ListAnswer { items, next }).into_response())
}

/// `POST /v1/keys`: a new key.
pub(crate) async fn add(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    check_keyed(&caller)?;
    with_body(request, async |parts, incoming| {
        format(&parts.headers, &[BodyFormat::Json])?;
        let (whole, _reservation) =
            incoming.whole(&parts.headers, (&shared.intake, &caller.tenant)).await?;
        let KeyDraft { name, tenant, grants } = KeyDraft::read(&whole)?;
        caller.grants().check_within(&grants).map_err(beyond)?;
        if shared.keys.configured().iter().any(|key| key.name == name) {
            return Err(exists(&name, CONFIGURATION));
        }
        let text = grants_json::write(&grants);
        if text.len() > limits::GRANTS_BYTES {
            let message = format!("the grants have more than {} bytes", limits::GRANTS_BYTES);
            return Err(InvalidField::new("", message).into());
        }
        let (key, made_at) = (new_key()?, shared.intake.now());
        let sha256 = sha256(&key);
        let stored = StoredKey { name, tenant, sha256, former: None, grants: text, made_at };
        let made = change(&shared, KeyChange::Add(stored)).await?;
        let location = [(LOCATION, format!("/v1/keys/{}", made.0.name))];
        let (tenant, outcome) = (Some(made.0.tenant.clone()), outcome(&made.0));
        Ok(noted(
            tenant,
            outcome,
            (StatusCode::CREATED, location, shown_once(key, made)).into_response(),
        ))
    })
    .await
}

/// `POST /v1/keys/{name}/rotate`: another key in the place of one, which is good for a while yet.
pub(crate) async fn rotate(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    check_keyed(&caller)?;
    let now = shared.intake.now();
    let asked: Option<Timestamp> = Query::read(&uri, &ROTATE_PARAMETERS)?.parse("former_until")?;
    let former_until = asked.unwrap_or_else(|| now.plus(FORMER_KEY_USUAL));
    if former_until > now.plus(FORMER_KEY_MAX) {
        let days = FORMER_KEY_MAX.as_secs() / Duration::from_hours(24).as_secs();
        let detail = format!("parameter former_until: may be {days} days ahead at most");
        return Err(Problem::parameter(detail));
    }
    let name = named(&shared, &name)?;
    // The answer shows the new key, and so lends all that it may do. The store compares that it is this one that is replaced.
    let stored = shared.keys.stored();
    let known = stored.iter().find(|key| key.name == name).ok_or_else(|| unknown(&name))?;
    let unreadable = |_| {
        let detail = format!(
            "the grants of {name:?} were written by a newer belfry: revoke it, and make another one"
        );
        Problem::new(ProblemCode::UnreadableGrants, detail)
    };
    let grants = grants_json::read(&known.grants).map_err(unreadable)?;
    caller.grants().check_within(&grants).map_err(beyond)?;
    let of = known.sha256;
    let key = new_key()?;
    let sha256 = sha256(&key);
    let made = change(&shared, KeyChange::Rotate { name, of, sha256, former_until }).await?;
    let (tenant, outcome) = (Some(made.0.tenant.clone()), outcome(&made.0));
    Ok(noted(tenant, outcome, shown_once(key, made).into_response()))
}

/// `DELETE /v1/keys/{name}`: a key that is good for nothing any more, and neither is the one before it.
pub(crate) async fn revoke(
    State(shared): State<Arc<ApiState>>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let name = named(&shared, &name)?;
    let changed = shared.keys.store().change_key(KeyChange::Revoke(name.clone())).await?;
    let KeyChanged::Revoked { key, is_everywhere } = changed else { return Err(overtaken(&name)) };
    let answer = KeyRevoked { revoked: key.is_some(), everywhere: is_everywhere };
    Ok(acted_for(key.map(|key| key.tenant), answer))
}

/// A stored key after a change, and whether that is in force everywhere.
type Changed = (StoredKey, bool);

async fn change(shared: &ApiState, change: KeyChange) -> Result<Changed, Problem> {
    let name = change.name().clone();
    match shared.keys.store().change_key(change).await? {
        KeyChanged::Done { key, is_everywhere } => Ok((key, is_everywhere)),
        KeyChanged::Exists => Err(exists(&name, STORE)),
        KeyChanged::Unknown => Err(unknown(&name)),
        KeyChanged::Overtaken | KeyChanged::Revoked { .. } => Err(overtaken(&name)),
        KeyChanged::TooMany => {
            let detail = format!("there are {} stored keys: revoke some", limits::STORED_KEYS);
            Err(Problem::new(ProblemCode::TooManyKeys, detail))
        }
    }
}

/// A key that was made or rotated, as the trail has it.
fn outcome(stored: &StoredKey) -> String {
    serde_json::to_string(&KeyItem::stored(stored)).unwrap_or_default()
}

/// The answer with a key, which nothing on the way may keep.
fn shown_once(key: String, (stored, everywhere): Changed) -> impl IntoResponse {
    let former_until = stored.former.map(|FormerKey { until, .. }| show(until));
    let (name, tenant) = (show(stored.name), show(stored.tenant));
    let made = KeyMade { name, tenant, key, former_until, everywhere };
    ([(CACHE_CONTROL, "no-store")], Json(made))
}

fn new_key() -> Result<String, Problem> {
    let failed =
        |error: crate::keys::KeyError| Problem::new(ProblemCode::InternalError, error.to_string());
    generate().map_err(failed)
}

/// Without a configured key every caller may do everything, and a further one would take nothing from that.
fn check_keyed(caller: &Caller) -> Result<(), Problem> {
    if caller.key().is_some() {
        return Ok(());
    }
    let detail = "without a configured key every caller on this machine may do everything: make the first one with `belfry api-key`, \
                  with the scope `operate`, and configure it";
    Err(Problem::new(ProblemCode::NoConfiguredKey, detail))
}

/// The name in a path, which is not that of a configured key alone.
fn named(shared: &ApiState, text: &str) -> Result<Name, Problem> {
    let shown: String = text.chars().take(80).collect();
    let name: Name =
        text.parse().map_err(|_| Problem::not_found(format!("there is no API key {shown:?}")))?;
    let is_stored = shared.keys.stored().iter().any(|key| key.name == name);
    if !is_stored && shared.keys.configured().iter().any(|key| key.name == name) {
        let detail =
            format!("the API key {name:?} is in the configuration: change it there, and reload");
        return Err(Problem::new(ProblemCode::ConfiguredKey, detail));
    }
    Ok(name)
}

fn unknown(name: &Name) -> Problem {
    Problem::not_found(format!("there is no API key {name:?}"))
}

fn overtaken(name: &Name) -> Problem {
    let detail = format!("another call has changed the API key {name:?} meanwhile: ask again");
    Problem::new(ProblemCode::Overtaken, detail)
}

fn exists(name: &Name, place: &str) -> Problem {
    let detail = format!(
        "there is an API key {name:?} in the {place} already: take another name, or rotate it"
    );
    Problem::new(ProblemCode::KeyExists, detail)
}

fn beyond(invalid: InvalidField) -> Problem {
    Problem::not_granted(invalid.into())
}

// === impl KeyItem ===

impl KeyItem {
    fn configured(key: &ApiKey) -> Self {
        Self {
            name: show(&key.name),
            tenant: show(&key.tenant),
            grants: GrantsAnswer::of(&key.grants),
            kept_in: CONFIGURATION.to_owned(),
            made_at: None,
            former_until: None,
        }
    }

    fn stored(key: &StoredKey) -> Self {
        // One whose grants cannot be read is good for nothing here, and is listed without any.
        let grants = grants_json::read(&key.grants);
        Self {
            name: show(&key.name),
            tenant: show(&key.tenant),
            grants: grants.as_ref().map(GrantsAnswer::of).unwrap_or_default(),
            kept_in: STORE.to_owned(),
            made_at: Some(show(key.made_at)),
            former_until: key.former.map(|former| show(former.until)),
        }
    }
}

// === impl KeyDraft ===

impl KeyDraft {
    fn read(json: &str) -> Result<Self, ParseError> {
        let object = Object::read(json, DRAFT_FIELDS)?;
        let name = |field: &'static str| {
            let text = Object::required(field, object.text(field)?)?;
            let wrong = |error| InvalidField::new(format!("/{field}"), format!("{error}"));
            text.parse::<Name>().map_err(wrong)
        };
        let grants = grants_json::from_object(&object)?;
        Ok(Self { name: name("name")?, tenant: name("tenant")?, grants })
    }
}
