//! The settings of an APNs channel, and what they are checked into.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::Authority;
use net::endpoint::Origin;
use net::redact::Secret;
use net::setting::SettingText;
use serde::Deserialize;

use crate::checks::{both, each, require};
use crate::settings::{duration, provider};
use crate::{ChannelError, Concurrency, Invalid};

/// The address of APNs, and the identity towards it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The signing key (`.p8`, as Apple hands it out). Either this, `key` or `certificate_file`.
    pub key_file: Option<PathBuf>,
    /// The signing key itself, PEM.
    pub key: Option<Secret>,
    /// The key's identifier, 10 characters. Required with a key.
    pub key_id: Option<String>,
    /// The developer team's identifier, 10 characters. Required with a key.
    pub team_id: Option<String>,
    /// The client certificate with its chain, PEM, instead of a key. Either this or `certificate`.
    pub certificate_file: Option<PathBuf>,
    /// The client certificate itself. Either this or `certificate_file`.
    pub certificate: Option<Secret>,
    /// The certificate's private key, PEM. Default: beside the certificate. Either this or `certificate_key`.
    pub certificate_key_file: Option<PathBuf>,
    /// The certificate's private key itself. Either this or `certificate_key_file`.
    pub certificate_key: Option<Secret>,
    /// The topic of notifications whose options name none: usually the app's bundle identifier.
    pub topic: String,
    /// Where APNs listens: `https://api.push.apple.com` (default), `https://api.sandbox.push.apple.com`,
    /// or a simulator such as `https://127.0.0.1:8443`.
    #[serde(default = "endpoint_default")]
    pub endpoint: String,
    /// More root certificates to trust, PEM, for this channel only.
    pub ca_file: Option<PathBuf>,
    /// Directory where the provider token is kept over restarts, made when it is needed. Apple wants few tokens, and a
    /// process that cannot stay up would ask for many. Default: the token is kept in memory only.
    pub state_directory: Option<PathBuf>,
    /// True if a notification that has no `collapse_id` gets its own identifier as one, so that a device which gets it twice,
    /// because an answer was lost, shows it once. Default `false`.
    #[serde(default)]
    pub collapse_on_retry: bool,
    /// Attempts under way at a time, per destination and process. Default learned.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// Messages in any minute, per endpoint and topic, over all threads of this process, all tenants and all its channels that
    /// send there; 0 is no limit. Default 0. In a cluster give each process its share.
    #[serde(default)]
    pub messages_per_minute: u32,
    /// Connections per sender thread. A further one opens when all streams of the open ones are in use.
    /// Default 192.
    #[serde(default = "connections_max_default")]
    pub connections_max: usize,
    /// How long to wait after a server error (5xx). Default `15m`, which is Apple's advice.
    #[serde(default = "server_error_delay_default", deserialize_with = "duration")]
    pub server_error_delay: Duration,
    /// How long to wait after "too many requests for this device". Default `1m`.
    #[serde(default = "throttle_delay_default", deserialize_with = "duration")]
    pub throttle_delay: Duration,
}

/// The identity towards APNs.
#[derive(Debug)]
pub(super) enum Credential<'a> {
    /// With tokens that a key signs.
    Key {
        key: SettingText<'a>,
        /// Its text.
        pem: Cow<'a, str>,
        key_id: &'a str,
        team_id: &'a str,
    },
    /// With a client certificate.
    Certificate {
        certificate: SettingText<'a>,
        /// It may be the same.
        key: SettingText<'a>,
    },
}

const TOPIC_BYTES_MAX: usize = 255;

fn endpoint_default() -> String {
    "https://api.push.apple.com".to_owned()
}

const fn connections_max_default() -> usize {
    // With the 1,000 streams that APNs grants on each, two threads have all in flight that a lane may hold.
    192
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
        let settings = each([
            check_topic(&self.topic)
                .map_err(|invalid| ChannelError::setting("topic", invalid.message)),
            require(self.concurrency.is_possible(), "concurrency", "must be at least 1"),
            require(self.connections_max > 0, "connections_max", "must be at least 1"),
        ]);
        let endpoint = provider("endpoint", &self.endpoint, "https://api.push.apple.com");
        both(settings, endpoint).map(|(_, endpoint)| endpoint)
    }

    /// The identity towards APNs. Reads the key, if that is it.
    pub(super) fn credential<'a>(&'a self) -> Result<Credential<'a>, ChannelError> {
        let (text, file) = (self.certificate.as_ref(), self.certificate_file.as_ref());
        let (key, key_file) = (self.key.as_ref(), self.key_file.as_ref());
        let are_set = [text.is_some(), file.is_some(), key.is_some(), key_file.is_some()];
        let refuse = || {
            let message = "name the key's file, give the key as `key`, or name a `certificate_file`: one of them";
            ChannelError::setting("key_file", message)
        };
        if are_set.into_iter().filter(|is_set| *is_set).count() != 1 {
            return Err(refuse());
        }
        if let Some(certificate) = SettingText::of("certificate", text, file) {
            return self.own_certificate(certificate);
        }
        let key = SettingText::of("key", key, key_file).ok_or_else(refuse)?;
        let identifier = |setting, text: &'a Option<String>| {
            let message = "must be the 10 letters and digits that Apple gave it";
            let text = text.as_deref().filter(|text| identifies(text));
            text.ok_or_else(|| ChannelError::setting(setting, message))
        };
        let identifiers =
            both(identifier("key_id", &self.key_id), identifier("team_id", &self.team_id));
        let (pem, (key_id, team_id)) = both(key.read("the key cannot be read"), identifiers)?;
        Ok(Credential::Key { key, pem, key_id, team_id })
    }

    fn own_certificate<'a>(
        &'a self,
        certificate: SettingText<'a>,
    ) -> Result<Credential<'a>, ChannelError> {
        let (key, key_file) = (self.certificate_key.as_ref(), self.certificate_key_file.as_ref());
        let message = "name the file, or give the key as `certificate_key`: one of them";
        require(key.is_none() || key_file.is_none(), "certificate_key_file", message)?;
        let key = SettingText::of("certificate_key", key, key_file).unwrap_or(certificate);
        Ok(Credential::Certificate { certificate, key })
    }
}

fn identifies(text: &str) -> bool {
    text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
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
            let credential = settings.credential().map(drop);
            let error = settings.check().map(drop).and(credential).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        };
        check(|settings| settings.key = None, "key_file:");
        check(|settings| settings.key_file = Some("x.p8".into()), "key_file:");
        check(|settings| settings.certificate_file = Some("x.pem".into()), "key_file:");
        check(|settings| settings.certificate = Some(Secret::new("x")), "key_file:");
        check(|settings| settings.key_id = Some("short".to_owned()), "key_id:");
        check(|settings| settings.key_id = None, "key_id:");
        check(|settings| settings.team_id = Some("\"injected".to_owned()), "team_id:");
        check(|settings| settings.topic = "a b".to_owned(), "topic:");
        check(|settings| settings.concurrency = Concurrency::Fixed(0), "concurrency:");
        check(|settings| settings.connections_max = 0, "connections_max:");
        check(|settings| settings.endpoint = "https://a/path".to_owned(), "endpoint:");
    }
}
