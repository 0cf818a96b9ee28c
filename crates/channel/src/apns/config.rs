//! The settings of an APNs channel, and what they are checked into.

use std::path::PathBuf;
use std::time::Duration;

use http::uri::Authority;
use serde::Deserialize;

use crate::endpoint::Origin;
use crate::settings::{Secret, duration, provider};
use crate::{ChannelError, Invalid};

/// How to reach APNs, and as whom.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The signing key (`.p8`, as Apple hands it out). Either this or `key`.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// The signing key itself, PEM. Either this or `key_file`.
    #[serde(default)]
    pub key: Option<Secret>,
    /// The key's identifier, 10 characters.
    pub key_id: String,
    /// The developer team's identifier, 10 characters.
    pub team_id: String,
    /// The topic of notifications whose options name none: usually the app's bundle identifier.
    pub topic: String,
    /// Where APNs listens: `https://api.push.apple.com` (default), `https://api.sandbox.push.apple.com`,
    /// or a simulator such as `https://127.0.0.1:8443`.
    #[serde(default = "endpoint_default")]
    pub endpoint: String,
    /// More root certificates to trust, PEM, for this channel only.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Attempts under way at a time, per lane and sender thread. Default 1000.
    #[serde(default = "concurrency_default")]
    pub concurrency: usize,
    /// Connections per sender thread. A further one opens when all streams of the others are in use.
    /// Default 4.
    #[serde(default = "connections_max_default")]
    pub connections_max: usize,
    /// How long to wait after a server error (5xx). Default `15m`, which is Apple's advice.
    #[serde(default = "server_error_delay_default", deserialize_with = "duration")]
    pub server_error_delay: Duration,
    /// How long to wait after "too many requests for this device". Default `1m`.
    #[serde(default = "throttle_delay_default", deserialize_with = "duration")]
    pub throttle_delay: Duration,
}

const TOPIC_BYTES_MAX: usize = 255;

fn endpoint_default() -> String {
    "https://api.push.apple.com".to_owned()
}

const fn concurrency_default() -> usize {
    1000
}

const fn connections_max_default() -> usize {
    4
}

const fn server_error_delay_default() -> Duration {
    Duration::from_mins(15)
}

const fn throttle_delay_default() -> Duration {
    Duration::from_mins(1)
}

// === impl Settings ===

impl Settings {
    /// Checks what needs no file.
    pub(super) fn check(&self) -> Result<(Origin, Authority), ChannelError> {
        let refuse = |setting, message: &str| {
            Err(ChannelError::Setting { setting, message: message.to_owned() })
        };
        if self.key_file.is_some() == self.key.is_some() {
            return refuse(
                "key_file",
                "name the key's file, or give the key as `key`: one of them",
            );
        }
        let identifies =
            |text: &str| text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !identifies(&self.key_id) {
            return refuse("key_id", "must be the 10 letters and digits that Apple gave the key");
        }
        if !identifies(&self.team_id) {
            return refuse("team_id", "must be the 10 letters and digits that Apple gave the team");
        }
        if let Err(invalid) = check_topic(&self.topic) {
            return refuse("topic", &invalid.message);
        }
        if self.concurrency == 0 {
            return refuse("concurrency", "must be at least 1");
        }
        if self.connections_max == 0 {
            return refuse("connections_max", "must be at least 1");
        }
        provider("endpoint", &self.endpoint, "https://api.push.apple.com")
    }

    /// The key's PEM text.
    pub(super) fn key_pem(&self) -> Result<String, ChannelError> {
        if let Some(path) = &self.key_file {
            return std::fs::read_to_string(path).map_err(|error| ChannelError::File {
                path: path.display().to_string(),
                message: format!("the key cannot be read: {error}"),
            });
        }
        Ok(self.key.as_ref().map(|key| key.expose().to_owned()).unwrap_or_default())
    }
}

/// A topic goes into a header.
pub(super) fn check_topic(topic: &str) -> Result<(), Invalid> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if !topic.is_empty() && topic.len() <= TOPIC_BYTES_MAX && topic.bytes().all(plain) {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "must be a bundle identifier, 1 to {TOPIC_BYTES_MAX} letters, digits, dots, hyphens and underscores"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    const SHORTEST: &str =
        r#"{"key":"k","key_id":"ABCDE12345","team_id":"TEAM012345","topic":"a.b"}"#;

    #[test]
    fn the_shortest_settings_mean_the_production_endpoint_with_apples_advice() {
        let settings = settings(SHORTEST);
        let (origin, authority) = settings.check().unwrap();
        assert_eq!(authority, "api.push.apple.com");
        assert_eq!(origin.to_string(), "https://api.push.apple.com:443");
        assert_eq!(settings.server_error_delay, Duration::from_mins(15));
        assert!(!format!("{settings:?}").contains("\"k\""), "a key shows in no log");
    }

    #[test]
    fn a_setting_that_makes_no_sense_is_refused_by_name() {
        let check = |change: fn(&mut Settings), expect: &str| {
            let mut settings = settings(SHORTEST);
            change(&mut settings);
            let error = settings.check().unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        };
        check(|settings| settings.key = None, "key_file:");
        check(|settings| settings.key_file = Some("x.p8".into()), "key_file:");
        check(|settings| settings.key_id = "short".to_owned(), "key_id:");
        check(|settings| settings.team_id = "\"injected".to_owned(), "team_id:");
        check(|settings| settings.topic = "a b".to_owned(), "topic:");
        check(|settings| settings.concurrency = 0, "concurrency:");
        check(|settings| settings.connections_max = 0, "connections_max:");
        check(|settings| settings.endpoint = "https://a/path".to_owned(), "endpoint:");
    }
}
