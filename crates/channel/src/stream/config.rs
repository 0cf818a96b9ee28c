//! The settings of a stream channel: one section for each system that it may use.

use std::borrow::Cow;
use std::path::PathBuf;

use net::redact::Secret;
use net::setting::SettingText;
use serde::Deserialize;

use crate::checks::require;
use crate::{ChannelError, Concurrency};

/// Where records may go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The NATS server of recipients that begin with `nats:`. Default none.
    pub nats: Option<StreamServer>,
    /// The RabbitMQ broker of recipients that begin with `amqp:`. Default none.
    pub amqp: Option<StreamServer>,
    /// Records under way at a time, per target and process. Default learned.
    pub concurrency: Concurrency,
    /// Records in any minute, per target, over all processes that share a store; 0 is no limit. Default 0.
    pub messages_per_minute: u32,
}

/// A server that is reached by a URL.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamServer {
    /// Its address: `nats://user@host:port` or `tls://`, `amqp://user@host:port/vhost` or `amqps://`.
    pub url: Secret,
    /// The password of the user in `url`. Either this or `password_file`.
    pub password: Option<Secret>,
    /// The file that holds it. Either this or `password`.
    pub password_file: Option<PathBuf>,
    /// More root certificates to trust, PEM, for this server only.
    pub ca_file: Option<PathBuf>,
}

// === impl Settings ===

impl Settings {
    pub(super) fn check(&self) -> Result<(), ChannelError> {
        require(self.concurrency.is_possible(), "concurrency", "must be at least 1")
    }
}

// === impl StreamServer ===

impl StreamServer {
    /// The password, from its setting or its file; `None` when there is neither.
    ///
    /// # Errors
    /// When there are both, or the file cannot be read.
    pub fn read_password(&self) -> Result<Option<Cow<'_, str>>, ChannelError> {
        let (password, file) = (self.password.as_ref(), self.password_file.as_ref());
        require(
            password.is_none() || file.is_none(),
            "password_file",
            "there is a `password` as well: leave one of them out",
        )?;
        let Some(text) = SettingText::of("password", password, file) else { return Ok(None) };
        Ok(Some(match text.read("the password cannot be read")? {
            // Editors end a file with a line break, which is no part of the password.
            Cow::Owned(text) => Cow::Owned(text.trim_end_matches(['\r', '\n']).to_owned()),
            text @ Cow::Borrowed(_) => text,
        }))
    }
}
