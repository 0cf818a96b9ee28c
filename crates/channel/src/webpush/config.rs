//! The settings of a Web Push channel.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use net::redact::Secret;
use net::setting::SettingText;
use serde::Deserialize;

use super::encryption::PLAINTEXT_BYTES_MAX;
use super::request::TTL_SECONDS_MAX;
use crate::checks::{each, require};
use crate::settings::{connections_max, duration, networks};
use crate::{ChannelError, Concurrency};

/// In whose name messages are sent, and how.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The file of the key pair that proves who sends (VAPID): PEM, a P-256 key. Either this or `key`.
    pub key_file: Option<PathBuf>,
    /// The private key itself: base64url as `belfry vapid-key` prints it, or PEM. Either this or `key_file`.
    pub key: Option<Secret>,
    /// Whom push services write to when something is wrong: `mailto:` or `https:`.
    pub subject: String,
    /// How long push services keep messages for browsers that are away, unless a notification says it (`ttl`,
    /// `expires_at`). At most 672 hours, the default.
    #[serde(default = "ttl_default", deserialize_with = "duration")]
    pub ttl: Duration,
    /// Contents are padded to a multiple of this many bytes before they are encrypted, so that a push service cannot tell
    /// them apart by their length. 1 pads nothing. Default 128.
    #[serde(default = "pad_to_default")]
    pub pad_to: usize,
    /// More root certificates to trust, PEM, for this channel only.
    pub ca_file: Option<PathBuf>,
    /// Networks that may be reached although they are not public, such as `10.1.0.0/16`, or addresses. Default none.
    #[serde(default, deserialize_with = "networks")]
    pub allow_networks: Vec<IpNet>,
    /// Networks that must not be reached although they are public or allowed, such as one of your own, or addresses. Default none.
    #[serde(default, deserialize_with = "networks")]
    pub deny_networks: Vec<IpNet>,
    /// The ports that may be reached. Default any.
    #[serde(default)]
    pub allow_ports: Vec<u16>,
    /// Attempts under way at a time, per push service and process. Default learned.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// Messages in any minute, per push service, over all threads of this process, all tenants and all its channels that send
    /// there; 0 is no limit. Default 0. In a cluster give each process its share.
    #[serde(default)]
    pub messages_per_minute: u32,
    /// Connections per push service and sender thread. A further one opens when all streams of the open ones are
    /// in use. Default 64.
    #[serde(default = "connections_max")]
    pub connections_max: usize,
}

const fn ttl_default() -> Duration {
    Duration::from_secs(TTL_SECONDS_MAX)
}

const fn pad_to_default() -> usize {
    128
}

// === impl Settings ===

impl Settings {
    /// Checks what needs no file.
    pub(super) fn check(&self) -> Result<(), ChannelError> {
        // A sender's contact is either of the two (RFC 8292, section 2.1).
        let is_address = self.subject.strip_prefix("mailto:").is_some_and(|to| to.contains('@'));
        let is_page = self.subject.strip_prefix("https://").is_some_and(|rest| !rest.is_empty());
        let is_graphic = self.subject.bytes().all(|byte| byte.is_ascii_graphic());
        let is_padded = (1..=PLAINTEXT_BYTES_MAX).contains(&self.pad_to);
        each([
            require(
                (is_address || is_page) && is_graphic,
                "subject",
                "must be mailto:SOMEBODY@EXAMPLE.COM, or a page that starts with https://",
            ),
            require(
                self.ttl.as_secs() <= TTL_SECONDS_MAX,
                "ttl",
                "must be at most 672h: push services keep nothing longer",
            ),
            require(is_padded, "pad_to", format!("must be 1 to {PLAINTEXT_BYTES_MAX}")),
            require(self.concurrency.is_possible(), "concurrency", "must be at least 1"),
            require(self.connections_max > 0, "connections_max", "must be at least 1"),
        ])
        .map(drop)
    }

    /// The key.
    pub(super) fn key(&self) -> Result<SettingText<'_>, ChannelError> {
        SettingText::of("key", self.key.as_ref(), self.key_file.as_ref()).ok_or_else(|| {
            let message = "name the key's file, or give the key as `key`: one of them";
            ChannelError::setting("key_file", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::both;

    fn settings() -> Settings {
        serde_json::from_str(r#"{"key":"canary","subject":"mailto:ops@example.com"}"#).unwrap()
    }

    #[test]
    fn the_shortest_settings_are_a_key_and_a_subject() {
        let settings = settings();
        settings.check().unwrap();
        assert_eq!(settings.ttl, Duration::from_hours(672));
        assert!(!format!("{settings:?}").contains("canary"), "a key shows in no log");
    }

    #[test]
    fn a_setting_that_makes_no_sense_is_refused_by_name() {
        let check = |change: fn(&mut Settings), expect: &str| {
            let mut settings = settings();
            change(&mut settings);
            let error = both(settings.check(), settings.key()).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        };
        check(|settings| settings.key = None, "key_file:");
        check(|settings| settings.key_file = Some("x.pem".into()), "key_file:");
        check(|settings| settings.subject = "ops@example.com".to_owned(), "subject:");
        check(|settings| settings.subject = "mailto:".to_owned(), "subject:");
        check(|settings| settings.subject = "http://example.com".to_owned(), "subject:");
        check(|settings| settings.subject = "https://a b".to_owned(), "subject:");
        check(|settings| settings.ttl = Duration::from_hours(673), "ttl:");
        check(|settings| settings.pad_to = 0, "pad_to:");
        check(|settings| settings.pad_to = 4_000, "pad_to:");
        check(|settings| settings.concurrency = Concurrency::Fixed(0), "concurrency:");
        check(|settings| settings.connections_max = 0, "connections_max:");
    }
}
