//! What the settings of all channels have in common: durations as people write them, and secrets.

use std::fmt;
use std::time::Duration;

use http::uri::Authority;
use serde::{Deserialize, Deserializer, de};

use crate::ChannelError;
use crate::endpoint::{Endpoint, Origin};

/// A text that must not be seen: its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

// === impl Secret ===

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one who needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

/// Where a provider listens, from the setting of that name: `https`, a host, perhaps a port, and nothing more. Also as the
/// `:authority` of requests.
pub(crate) fn provider(
    setting: &'static str,
    text: &str,
    example: &str,
) -> Result<(Origin, Authority), ChannelError> {
    let refuse = |why: &str| ChannelError::Setting {
        setting,
        message: format!("{text:?} is not an address such as {example}{why}"),
    };
    let endpoint = Endpoint::parse(text).map_err(|invalid| refuse(&format!(": {invalid}")))?;
    if !endpoint.origin.is_https || endpoint.path != "/" {
        return Err(refuse(""));
    }
    let authority = Authority::try_from(endpoint.origin.authority()).map_err(|_| refuse(""))?;
    Ok((endpoint.origin, authority))
}

/// Reads a span such as `250ms`, `30s`, `15m` or `1h 30m`.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|span| Duration::try_from(span).ok())
        .ok_or_else(|| {
            de::Error::invalid_value(
                de::Unexpected::Str(&text),
                &"a span of time such as 250ms, 30s, 15m or 1h 30m",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sample {
        #[serde(deserialize_with = "duration")]
        span: Duration,
    }

    #[test]
    fn a_duration_is_written_as_people_write_it() {
        let check = |text: &str, expect: Option<Duration>| {
            let json = serde_json::json!({ "span": text }).to_string();
            let span = serde_json::from_str(&json).ok().map(|sample: Sample| sample.span);
            assert_eq!(span, expect, "{text:?}");
        };
        check("250ms", Some(Duration::from_millis(250)));
        check("30s", Some(Duration::from_secs(30)));
        check("1h 30m", Some(Duration::from_mins(90)));
        check("-1s", None);
        check("soon", None);
        check("15", None);
    }

    #[test]
    fn where_a_provider_listens_is_an_address_without_a_path() {
        let (origin, authority) = provider("endpoint", "https://[::1]:8443", "x").unwrap();
        assert_eq!(origin.to_string(), "https://[::1]:8443");
        assert_eq!(authority, "[::1]:8443");
        for text in ["", "example.com", "http://a", "https://a/path", "https://u@a", "https://a?b"]
        {
            let error = provider("endpoint", text, "https://example.com").unwrap_err();
            let expect =
                format!("endpoint: {text:?} is not an address such as https://example.com");
            assert!(error.to_string().starts_with(&expect), "{error}");
        }
    }

    #[test]
    fn a_secret_does_not_show() {
        assert_eq!(format!("{:?}", Secret::new("canary")), "[secret]");
    }
}
