//! Operations on API keys, and the trail of acts.

use axum::http::Method;
use notification::Name;
use notification::limits::LIST_ITEMS;
use serde_json::json;

use super::operation::{JSON, Operation, component};
use super::parameters::limit;
use super::types::Types;
use crate::acts::{self, ActList};
use crate::key_routes::{self, KeyItem, KeyMade, KeyRevoked, OwnKey};
use crate::limits::LIST_SLICE;
use crate::problem_code::ProblemCode::{
    ConfiguredKey, InternalError, KeyExists, MissingScope, NoConfiguredKey, NotGranted,
    TooManyKeys, UnreadableGrants,
};
use crate::view::ListAnswer;

pub(super) fn operations(types: &mut Types) -> Vec<Operation> {
    let mut all = keys(types);
    let after = json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX });
    all.push(
        operation(Method::GET, "/v1/acts", "list_acts", "Read who has changed what")
            .about("Newest first: those that concern the caller's tenant, whoever did them; with an operator's key all.")
            .takes(&acts::PARAMETERS)
            .with("key", types.of::<Name>(), "Name of the caller's key.")
            .with("after", after, "`next` of the answer before: go on from there.")
            .with("limit", limit(LIST_SLICE, LIST_ITEMS), "Items of the answer at most.")
            .json("Some of the acts.", types.of::<ActList>())
            .may(&[MissingScope])
            .reads(),
    );
    all
}

fn keys(types: &mut Types) -> Vec<Operation> {
    let made = types.of::<KeyMade>();
    let example = json!({ "name": "billing", "tenant": "shop", "scopes": ["send", "read"] });
    vec![
        operation(Method::GET, "/v1/keys/self", "read_own_key", "Tell what the caller's key is good for")
            .json("The key.", types.of::<OwnKey>()),
        operation(Method::GET, "/v1/keys", "list_keys", "List API keys")
            .about("Those of the configuration of the process that answers, and the stored ones, by name. Never the keys themselves.")
            .takes(&key_routes::LIST_PARAMETERS)
            .with("after", types.of::<Name>(), "`next` of the answer before: go on from there.")
            .with("limit", limit(LIST_SLICE, LIST_ITEMS), "Items of the answer at most.")
            .json("Some of the keys.", types.of::<ListAnswer<KeyItem>>()),
        operation(Method::POST, "/v1/keys", "add_key", "Make an API key")
            .about("It is good at once, in every process that shares the store. The answer alone shows it.")
            .body(JSON, &component("KeyDraft"), &[("billing", example)])
            .answers(201, "The key.", &[(JSON, made.clone())])
            .may(&[KeyExists, NoConfiguredKey, NotGranted, TooManyKeys, InternalError])
            .writes(),
        operation(Method::POST, "/v1/keys/{name}/rotate", "rotate_key", "Put another API key in the place of one")
            .takes(&key_routes::ROTATE_PARAMETERS)
            .json("The new key.", made)
            .may(&[ConfiguredKey, NoConfiguredKey, NotGranted, UnreadableGrants, InternalError])
            .writes(),
        operation(Method::DELETE, "/v1/keys/{name}", "revoke_key", "Take an API key away")
            .json("It is good for nothing.", types.of::<KeyRevoked>())
            .may(&[ConfiguredKey])
            .writes(),
    ]
}

fn operation(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Operation {
    Operation::new((method, path), "operating", id, summary)
}
