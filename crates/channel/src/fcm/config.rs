//! The settings of an FCM channel, and what they are checked into.

use std::path::PathBuf;

use http::uri::Authority;
use net::endpoint::{Endpoint, Origin};
use net::redact::Secret;
use net::setting::SettingText;
use serde::Deserialize;

use super::account::ServiceAccount;
use crate::checks::{both, each, require};
use crate::settings::{connections_max, provider};
use crate::{ChannelError, Concurrency};

/// The address of FCM, and the identity towards it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The service account's key, the JSON file that Google hands out. Either this or `service_account`.
    pub service_account_file: Option<PathBuf>,
    /// The content of that file. Either this or `service_account_file`.
    pub service_account: Option<Secret>,
    /// The Firebase project. Default: the service account's own.
    pub project_id: Option<String>,
    /// Where FCM listens. Default `https://fcm.googleapis.com`.
    #[serde(default = "endpoint_default")]
    pub endpoint: String,
    /// Where access tokens are got. Default `https://oauth2.googleapis.com/token`. What the service account's JSON says is
    /// never followed: a file that was tampered with would have assertions sent elsewhere.
    pub token_uri: Option<String>,
    /// More root certificates to trust, PEM, for this channel only.
    pub ca_file: Option<PathBuf>,
    /// Messages in any minute, over all threads of this process, all tenants and all its channels of the project; 0 is no
    /// limit. Default 600000, which is what Google grants a project. In a cluster give each process its share.
    #[serde(default = "messages_per_minute_default")]
    pub messages_per_minute: u32,
    /// Attempts under way at a time, per destination and process. Default learned.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// Connections per sender thread. A further one opens when all streams of the open ones are in use. FCM grants about
    /// 100 streams on each. Default 64.
    #[serde(default = "connections_max")]
    pub connections_max: usize,
}

/// The settings once they are checked.
#[derive(Debug)]
pub(super) struct CheckedFcmSettings {
    pub(super) account: ServiceAccount,
    pub(super) project_id: String,
    pub(super) origin: Origin,
    pub(super) authority: Authority,
    pub(super) token_uri: TokenUri,
}

/// Where access tokens are got.
#[derive(Debug, Clone)]
pub(super) struct TokenUri {
    /// As it is written, which is the assertion's audience.
    pub(super) text: String,
    pub(super) endpoint: Endpoint,
}

const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

fn endpoint_default() -> String {
    "https://fcm.googleapis.com".to_owned()
}

const fn messages_per_minute_default() -> u32 {
    600_000
}

// === impl Settings ===

impl Settings {
    /// Checks them, and reads the service account.
    pub(super) fn check(&self) -> Result<CheckedFcmSettings, ChannelError> {
        let numbers = each([
            require(self.concurrency.is_possible(), "concurrency", "must be at least 1"),
            require(self.connections_max > 0, "connections_max", "must be at least 1"),
        ]);
        let endpoint = provider("endpoint", &self.endpoint, "https://fcm.googleapis.com");
        let account = self.read_account().and_then(|account| {
            let (token_uri, project_id) =
                both(self.token_uri(&account), self.project_id(&account))?;
            Ok((account, token_uri, project_id))
        });
        let (_, ((origin, authority), (account, token_uri, project_id))) =
            both(numbers, both(endpoint, account))?;
        Ok(CheckedFcmSettings { account, project_id, origin, authority, token_uri })
    }

    fn read_account(&self) -> Result<ServiceAccount, ChannelError> {
        let (json, file) = (self.service_account.as_ref(), self.service_account_file.as_ref());
        let account = SettingText::of("service_account", json, file).ok_or_else(|| {
            let message = "name the service account's JSON file, or give its content as `service_account`: one of them";
            ChannelError::setting("service_account_file", message)
        })?;
        let json = account.read("the account cannot be read")?;
        Ok(ServiceAccount::read(&json).map_err(|message| account.refuse(message))?)
    }

    fn project_id(&self, account: &ServiceAccount) -> Result<String, ChannelError> {
        let project_id = self.project_id.as_ref().unwrap_or(&account.project_id);
        // Dots and colons stand in the identifiers of a domain's projects: `example.com:shop`.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
        let is_right = !project_id.is_empty() && project_id.bytes().all(is_plain);
        require(is_right, "project_id", "must be the project's identifier, such as shop-1a2b3")?;
        Ok(project_id.clone())
    }

    fn token_uri(&self, account: &ServiceAccount) -> Result<TokenUri, ChannelError> {
        let text = match &self.token_uri {
            Some(text) => text,
            None if account.token_uri == TOKEN_URI => TOKEN_URI,
            None => {
                let message = format!(
                    "the service account names {:?}, which is not {TOKEN_URI:?}: if you trust it, write it here",
                    account.token_uri
                );
                return Err(ChannelError::setting("token_uri", message));
            }
        };
        let endpoint = Endpoint::parse(text)
            .map_err(|malformed| ChannelError::setting("token_uri", malformed.to_string()))?;
        // The assertion that is sent there is good for an hour to any reader.
        require(endpoint.origin.is_https, "token_uri", "must start with https://")?;
        Ok(TokenUri { text: text.to_owned(), endpoint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fcm::account::tests::account_json;

    fn settings(more: &serde_json::Value) -> Settings {
        let mut json =
            serde_json::json!({ "service_account": account_json(&serde_json::json!({})) });
        for (name, value) in more.as_object().unwrap() {
            json[name] = value.clone();
        }
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_shortest_settings_mean_google() {
        let settings = settings(&serde_json::json!({}));
        let checked = settings.check().unwrap();
        assert_eq!(checked.authority, "fcm.googleapis.com");
        assert_eq!(checked.token_uri.text, "https://oauth2.googleapis.com/token");
        assert_eq!(checked.project_id, "shop-1a2b3");
        assert_eq!(settings.messages_per_minute, 600_000);
        assert!(!format!("{settings:?} {checked:?}").contains("PRIVATE"), "a key shows in no log");
    }

    #[test]
    fn a_setting_that_makes_no_sense_is_refused_by_name() {
        let check = |more: serde_json::Value, expect: &str| {
            let error = settings(&more).check().unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        };
        check(serde_json::json!({ "concurrency": 0 }), "concurrency:");
        check(serde_json::json!({ "connections_max": 0 }), "connections_max:");
        check(serde_json::json!({ "endpoint": "http://127.0.0.1" }), "endpoint:");
        check(serde_json::json!({ "project_id": "a/b" }), "project_id:");
        check(serde_json::json!({ "project_id": "" }), "project_id:");
        check(serde_json::json!({ "token_uri": "http://127.0.0.1/token" }), "token_uri:");
        check(serde_json::json!({ "service_account": null }), "service_account_file:");
        check(serde_json::json!({ "service_account_file": "a.json" }), "service_account_file:");
        check(serde_json::json!({ "service_account": "{" }), "service_account:");
        let missing =
            serde_json::json!({ "service_account": null, "service_account_file": "/none" });
        check(missing, "/none: the account cannot be read");
    }

    #[test]
    fn the_accounts_own_token_uri_is_never_followed() {
        let elsewhere = serde_json::json!({ "token_uri": "https://evil.example/token" });
        let elsewhere = serde_json::json!({ "service_account": account_json(&elsewhere) });
        let error = settings(&elsewhere).check().unwrap_err().to_string();
        assert!(error.starts_with("token_uri: the service account names"), "{error}");
        assert!(error.contains("evil.example"), "{error}");
        let mut named = settings(&elsewhere);
        named.token_uri = Some("https://127.0.0.1:8444/token".to_owned());
        let checked = named.check().unwrap();
        assert_eq!(checked.token_uri.endpoint.origin.to_string(), "https://127.0.0.1:8444");
    }
}
