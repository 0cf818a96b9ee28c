//! Grants as JSON: in requests that make keys, and in the store.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use notification::Timestamp;
use pipeline::ingest::json::{Object, ParseError, list, text};
use pipeline::ingest::{InvalidField, SenderGrants};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grants::{Grants, KeyScope};
use crate::view::show;

/// Grants as they are written, and as answers show them.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct GrantsAnswer {
    /// The scopes.
    pub scopes: Vec<String>,
    /// The channels; null for all.
    pub channels: Option<Vec<String>>,
    /// The priorities; null for all.
    pub priorities: Option<Vec<String>>,
    /// The addresses that mail is from; null for all.
    pub from: Option<Vec<String>>,
    /// The endpoints that webhooks go to; null for all.
    pub endpoints: Option<Vec<String>>,
    /// The last instant; null for ever.
    pub not_after: Option<String>,
    /// Requests in a minute; null for any number.
    pub requests_per_minute: Option<NonZeroU32>,
}

/// The fields of grants.
const FIELDS: &[&str] =
    &["scopes", "channels", "priorities", "from", "endpoints", "not_after", "requests_per_minute"];

/// Grants as they were written.
///
/// # Errors
/// When they were written in another way, as a newer Belfry may have done.
pub(crate) fn read(json: &str) -> Result<Grants, ParseError> {
    from_object(&Object::read(json, FIELDS)?)
}

/// Grants among the fields of `object`. Without scopes they are those of a tenant.
///
/// # Errors
/// The first field that is wrong.
pub(crate) fn from_object(object: &Object<'_>) -> Result<Grants, ParseError> {
    let scopes = words(object, "scopes", "a key without a scope is good for nothing: name some")?;
    let of_all = "names none: leave it out for all of them";
    let not_after = object.text("not_after")?.map(|text| text.parse::<Timestamp>()).transpose();
    let wrong_time = |error| InvalidField::new("/not_after", format!("{error}"));
    Ok(Grants {
        scopes: scopes.unwrap_or_else(|| KeyScope::OF_TENANT.into()),
        channels: words(object, "channels", of_all)?,
        priorities: words(object, "priorities", of_all)?,
        senders: Arc::new(SenderGrants {
            from: words(object, "from", of_all)?,
            endpoints: words(object, "endpoints", of_all)?,
        }),
        not_after: not_after.map_err(wrong_time)?,
        requests_per_minute: rate(object)?,
    })
}

/// `grants` as they are stored.
pub(crate) fn write(grants: &Grants) -> String {
    // Names, words and a time: there is nothing in it that could not be written.
    serde_json::to_string(&GrantsAnswer::of(grants)).unwrap_or_default()
}

fn rate(object: &Object<'_>) -> Result<Option<NonZeroU32>, InvalidField> {
    let field = "requests_per_minute";
    let wrong = || InvalidField::new(format!("/{field}"), "must be a whole number from 1 on");
    object.raw(field).map(|value| value.get().parse().map_err(|_| wrong())).transpose()
}

/// The words of a field, which are not none.
fn words<T: Ord + FromStr<Err: Display>>(
    object: &Object<'_>,
    field: &'static str,
    if_empty: &str,
) -> Result<Option<BTreeSet<T>>, ParseError> {
    let Some(value) = object.raw(field) else { return Ok(None) };
    let (values, _) = list(value.get(), usize::MAX)
        .map_err(|_| InvalidField::new(format!("/{field}"), "must be a list of words"))?;
    if values.is_empty() {
        return Err(InvalidField::new(format!("/{field}"), if_empty.to_owned()).into());
    }
    let word = |(i, value)| {
        let wrong = |message: String| InvalidField::new(format!("/{field}/{i}"), message);
        let word = text(value).map_err(|message| wrong(message.to_owned()))?;
        word.parse().map_err(|error: T::Err| wrong(error.to_string()).into())
    };
    values.into_iter().enumerate().map(word).collect::<Result<_, ParseError>>().map(Some)
}

// === impl GrantsAnswer ===

impl GrantsAnswer {
    pub(crate) fn of(grants: &Grants) -> Self {
        let Grants { scopes, channels, priorities, senders, not_after, requests_per_minute } =
            grants;
        Self {
            scopes: scopes.iter().map(show).collect(),
            channels: channels.as_ref().map(|channels| channels.iter().map(show).collect()),
            priorities: priorities.as_ref().map(|some| some.iter().map(show).collect()),
            from: senders.from.as_ref().map(|from| from.iter().map(show).collect()),
            endpoints: senders.endpoints.as_ref().map(|some| some.iter().map(show).collect()),
            not_after: not_after.map(show),
            requests_per_minute: *requests_per_minute,
        }
    }
}

#[cfg(test)]
mod tests {
    use notification::Priority;

    use super::*;

    #[test]
    fn grants_are_read_as_they_are_written() {
        let everything = Grants::of(KeyScope::ALL);
        let some = Grants {
            channels: Some(BTreeSet::from(["ios".parse().unwrap(), "web".parse().unwrap()])),
            priorities: Some(BTreeSet::from([Priority::Bulk])),
            senders: Arc::new(SenderGrants {
                from: Some(BTreeSet::from(["@example.com".parse().unwrap()])),
                endpoints: Some(BTreeSet::from(["https://a.example/b".parse().unwrap()])),
            }),
            not_after: Some("2027-01-01T00:00:00Z".parse().unwrap()),
            requests_per_minute: NonZeroU32::new(600),
            ..Grants::of([KeyScope::Send])
        };
        for grants in [everything, some] {
            assert_eq!(read(&write(&grants)), Ok(grants));
        }
        assert_eq!(read("{}"), Ok(Grants::of(KeyScope::OF_TENANT)));
    }

    #[test]
    fn a_field_that_is_wrong_is_named() {
        for (json, expect) in [
            (r#"{"scopes":[]}"#, "/scopes"),
            (r#"{"scopes":"send"}"#, "/scopes"),
            (r#"{"scopes":["send","rule"]}"#, "/scopes/1"),
            (r#"{"scopes":[7]}"#, "/scopes/0"),
            (r#"{"channels":[]}"#, "/channels"),
            (r#"{"channels":["No Name"]}"#, "/channels/0"),
            (r#"{"priorities":["now"]}"#, "/priorities/0"),
            (r#"{"from":["example.com"]}"#, "/from/0"),
            (r#"{"endpoints":["https://a.example","a.example"]}"#, "/endpoints/1"),
            (r#"{"not_after":"soon"}"#, "/not_after"),
            (r#"{"rate":7}"#, "/rate"),
            (r#"{"requests_per_minute":0}"#, "/requests_per_minute"),
            (r#"{"requests_per_minute":"7"}"#, "/requests_per_minute"),
        ] {
            let Err(ParseError::Invalid(invalid)) = read(json) else { panic!("{json}") };
            assert_eq!(invalid.pointer, expect, "{json}");
        }
    }
}
