//! `[[server.keys]]`: who may call, and what for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use api::{ApiKey, Grants, KeyScope};
use notification::{Name, Priority, Timestamp};
use pipeline::ingest::{EndpointPrefix, FromPattern, SenderGrants};
use serde::{Deserialize, Deserializer, de};

use super::channels::ChannelConfig;
use super::problem::Mistake;
use super::units;

/// `[[server.keys]]`: one caller.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyConfig {
    /// Says in logs whose key it is. Required, unique.
    pub(crate) name: Name,
    /// Whose notifications the caller sends and sees. Required.
    tenant: Name,
    /// SHA-256 of the key; `belfry api-key` makes both. Required.
    #[serde(deserialize_with = "units::sha256")]
    sha256: [u8; 32],
    /// The calls that the key is good for. Default [`KeyScope::OF_TENANT`].
    #[serde(default = "scopes_of_tenant", deserialize_with = "set")]
    scopes: BTreeSet<KeyScope>,
    /// The channels that it sends by. Default all.
    channels: Option<BTreeSet<Name>>,
    /// The priorities that it sends with. Default all.
    #[serde(default, deserialize_with = "some_set")]
    priorities: Option<BTreeSet<Priority>>,
    /// The addresses that mail is from. Default all.
    #[serde(default, deserialize_with = "some_set")]
    from: Option<BTreeSet<FromPattern>>,
    /// The endpoints that webhooks go to. Default all.
    #[serde(default, deserialize_with = "some_set")]
    endpoints: Option<BTreeSet<EndpointPrefix>>,
    /// The last instant at which the key is good. Default none.
    #[serde(default, deserialize_with = "some_instant")]
    not_after: Option<Timestamp>,
    /// Requests in a minute, at each process. Default any number.
    requests_per_minute: Option<NonZeroU32>,
}

fn scopes_of_tenant() -> BTreeSet<KeyScope> {
    KeyScope::OF_TENANT.into()
}

/// Reads a list of words.
fn set<'de, D, T>(deserializer: D) -> Result<BTreeSet<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Ord + FromStr<Err: Display>,
{
    let words = Vec::<String>::deserialize(deserializer)?;
    words.iter().map(|word| word.parse().map_err(de::Error::custom)).collect()
}

fn some_set<'de, D, T>(deserializer: D) -> Result<Option<BTreeSet<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Ord + FromStr<Err: Display>,
{
    set(deserializer).map(Some)
}

fn some_instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(de::Error::custom)
}

// === impl KeyConfig ===

impl KeyConfig {
    /// The key as the API knows it.
    pub(super) fn api_key(&self) -> ApiKey {
        ApiKey {
            name: self.name.clone(),
            tenant: self.tenant.clone(),
            sha256: self.sha256,
            grants: Grants {
                scopes: self.scopes.clone(),
                channels: self.channels.clone(),
                priorities: self.priorities.clone(),
                senders: Arc::new(SenderGrants {
                    from: self.from.clone(),
                    endpoints: self.endpoints.clone(),
                }),
                not_after: self.not_after,
                requests_per_minute: self.requests_per_minute,
            },
        }
    }

    /// The channels that one of `keys` names and that are not there. No mistake: a channel may be taken out for a while.
    pub(super) fn warnings(keys: &[Self], channels: &BTreeMap<Name, ChannelConfig>) -> Vec<String> {
        let of_key = |(i, key): (usize, &Self)| {
            let absent = key.channels.iter().flatten().filter(|name| !channels.contains_key(*name));
            let warning = |name| format!("server.keys[{i}].channels: there is no channel {name:?}");
            absent.map(warning).collect::<Vec<_>>()
        };
        keys.iter().enumerate().flat_map(of_key).collect()
    }

    /// The problems of all of `keys`.
    pub(super) fn check_all(keys: &[Self]) -> Vec<Mistake> {
        let (mut problems, mut names, mut hashes) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for (i, key) in keys.iter().enumerate() {
            let mut add = |field: &str, message: String| {
                problems.push(Mistake::new(format!("server.keys[{i}].{field}"), message));
            };
            if !names.insert(&key.name) {
                add("name", format!("another key is named {:?} already", key.name));
            }
            if !hashes.insert(key.sha256) {
                add("sha256", "another key is the same: make one with `belfry api-key`".to_owned());
            }
            if key.scopes.is_empty() {
                add("scopes", "a key without a scope is good for nothing: name some".to_owned());
            }
            let lists = [
                ("channels", key.channels.as_ref().map(BTreeSet::len)),
                ("priorities", key.priorities.as_ref().map(BTreeSet::len)),
                ("from", key.from.as_ref().map(BTreeSet::len)),
                ("endpoints", key.endpoints.as_ref().map(BTreeSet::len)),
            ];
            for (field, _) in lists.into_iter().filter(|(_, length)| *length == Some(0)) {
                add(field, "names none: leave it out for all of them".to_owned());
            }
        }
        problems
    }
}
