//! The settings of a webhook channel.

use std::path::PathBuf;

use ipnet::IpNet;
use serde::Deserialize;

use crate::ChannelError;
use crate::settings::Secret;

/// How requests are signed, and where they may go.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// What requests are signed with: `whsec_` and the base64 of 24 to 64 random bytes. With several, every
    /// request carries a signature by each, so that receivers can change over from one to the next.
    pub secrets: Vec<Secret>,
    /// More root certificates to trust, PEM, for this channel only.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Whether endpoints may be `http:`. Default `false`.
    #[serde(default)]
    pub allow_http: bool,
    /// Networks that may be reached although they are not public, such as `10.1.0.0/16`. Default none.
    #[serde(default)]
    pub allow_networks: Vec<IpNet>,
    /// The ports that may be reached. Default any.
    #[serde(default)]
    pub allow_ports: Vec<u16>,
    /// Attempts under way at a time, per endpoint, lane and sender thread. Default 16.
    #[serde(default = "concurrency_default")]
    pub concurrency: usize,
}

const fn concurrency_default() -> usize {
    16
}

// === impl Settings ===

impl Settings {
    pub(super) fn check(&self) -> Result<(), ChannelError> {
        let refuse = |setting, message: &str| {
            Err(ChannelError::Setting { setting, message: message.to_owned() })
        };
        if self.secrets.is_empty() {
            return refuse(
                "secrets",
                "at least one is needed: whsec_ and the base64 of 24 to 64 bytes",
            );
        }
        if self.concurrency == 0 {
            return refuse("concurrency", "must be at least 1");
        }
        Ok(())
    }
}
