//! The settings of a webhook channel, for all endpoints and for some.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ipnet::IpNet;
use net::redact::Secret;
use serde::Deserialize;

use crate::checks::{each, require};
use crate::settings::networks;
use crate::{ChannelError, Concurrency};

/// How requests are signed, and where they may go.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The key that requests are signed with: `whsec_` and the base64 of 24 to 64 random bytes (`v1`), or `whsk_` and the base64 of
    /// an Ed25519 key (`v1a`). With several, every request carries a signature by each, so that receivers can change over
    /// from one to the next.
    pub secrets: Vec<Secret>,
    /// More root certificates to trust, PEM, for this channel only.
    pub ca_file: Option<PathBuf>,
    /// True if endpoints may be `http:`. Default `false`.
    #[serde(default)]
    pub allow_http: bool,
    /// Networks that may be reached although they are not public, such as `10.1.0.0/16`, or addresses. Default none.
    #[serde(default, deserialize_with = "networks")]
    pub allow_networks: Vec<IpNet>,
    /// Networks that must not be reached although they are public or allowed, such as one of your own, or addresses. Default none.
    #[serde(default, deserialize_with = "networks")]
    pub deny_networks: Vec<IpNet>,
    /// The ports that may be reached. Default any.
    #[serde(default)]
    pub allow_ports: Vec<u16>,
    /// Attempts under way at a time, per endpoint and process. Default learned.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// Messages in any minute, per origin of endpoints (scheme, host and port), over all threads of this process, all tenants
    /// and all its channels that send there; 0 is no limit. Default 0. In a cluster give each process its share.
    #[serde(default)]
    pub messages_per_minute: u32,
    /// Settings for some endpoints that differ from the channel's. Default none.
    #[serde(default)]
    pub endpoints: Vec<EndpointSettings>,
}

/// Settings for the endpoints below a URL. Of several that fit, the longest URL counts, alone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointSettings {
    /// Which endpoints: this URL and whatever lies below its path, such as `https://example.com` or
    /// `https://example.com/hooks`.
    pub url: String,
    /// The key that requests to them are signed with, instead of the channel's own. Default the channel's own.
    #[serde(default)]
    pub secrets: Vec<Secret>,
    /// Headers of requests to them, such as `authorization`. Those of a notification's own options come first. Default none.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// The certificate with which to show ourselves to them, PEM, with its chain. With a key only. Either this or
    /// `certificate`.
    pub certificate_file: Option<PathBuf>,
    /// The certificate itself. Either this or `certificate_file`.
    pub certificate: Option<Secret>,
    /// The key of the certificate, PEM. With a certificate only. Either this or `key`.
    pub key_file: Option<PathBuf>,
    /// The key itself. Either this or `key_file`.
    pub key: Option<Secret>,
}

// === impl Settings ===

impl Settings {
    pub(super) fn check(&self) -> Result<(), ChannelError> {
        let advice = "at least one is needed: whsec_ and the base64 of 24 to 64 bytes";
        each([
            require(!self.secrets.is_empty(), "secrets", advice),
            require(self.concurrency.is_possible(), "concurrency", "must be at least 1"),
        ])
        .map(drop)
    }
}
