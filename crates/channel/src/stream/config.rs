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
    /// The Kafka cluster of recipients that begin with `kafka:`. Default none.
    pub kafka: Option<StreamServer>,
    /// The SQS of recipients that begin with `sqs:`. Default none.
    pub sqs: Option<AwsServer>,
    /// The Kinesis of recipients that begin with `kinesis:`. Default none.
    pub kinesis: Option<AwsServer>,
    /// Records under way at a time, per target and process. Default learned.
    pub concurrency: Concurrency,
    /// Records in any minute, per target, over all processes that share a store; 0 is no limit. Default 0.
    pub messages_per_minute: u32,
}

/// A server that is reached by a URL.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamServer {
    /// Its address: `nats://user@host:port` or `tls://`, `amqp://user@host:port/vhost` or `amqps://`, `kafka://user@host:port,host:port`
    /// with the parameters `security`, `mechanism` and `record_bytes`.
    pub url: Secret,
    /// The password of the user in `url`. Either this or `password_file`.
    pub password: Option<Secret>,
    /// The file that holds it. Either this or `password`.
    pub password_file: Option<PathBuf>,
    /// More root certificates to trust, PEM, for this server only.
    pub ca_file: Option<PathBuf>,
}

/// A service of AWS, and as whom it is used. What is not set comes from where AWS's own tools look: the environment, the shared files, a
/// web identity, a container's or machine's role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AwsServer {
    /// The region, such as `eu-central-1`.
    pub region: Option<String>,
    /// The URL of a server other than the region's.
    pub endpoint: Option<String>,
    /// More root certificates to trust, PEM, for this service only.
    pub ca_file: Option<PathBuf>,
    /// The profile of the shared files of AWS's tools. Either this or `access_key_id`.
    pub profile: Option<String>,
    /// The ARN of a role to assume with the credentials that are there.
    pub role: Option<String>,
    /// The external identifier that the role asks for.
    pub external_id: Option<String>,
    /// The URL of a server other than the region's, to assume the role at.
    pub sts_endpoint: Option<String>,
    /// A fixed access key. Either this or `profile`.
    pub access_key_id: Option<String>,
    /// The secret of `access_key_id`. Either this or `secret_access_key_file`.
    pub secret_access_key: Option<Secret>,
    /// The file that holds it. Either this or `secret_access_key`.
    pub secret_access_key_file: Option<PathBuf>,
    /// The token of a fixed key that is temporary. Either this or `session_token_file`.
    pub session_token: Option<Secret>,
    /// The file that holds it. Either this or `session_token`.
    pub session_token_file: Option<PathBuf>,
    /// SQS alone: the account that the queues are of, if not that of the credentials.
    pub account: Option<String>,
    /// Kinesis alone: whether records of one key keep their order whatever fails, a call for each. Default false.
    pub ordered: bool,
}

// === impl Settings ===

impl Settings {
    pub(super) fn check(&self) -> Result<(), ChannelError> {
        require(self.concurrency.is_possible(), "concurrency", "must be at least 1")?;
        let is_ordered = self.sqs.as_ref().is_some_and(|server| server.ordered);
        let message = "ordered: the name of a queue says it: a FIFO queue's ends with .fifo";
        require(!is_ordered, "sqs", message)?;
        let has_account = self.kinesis.as_ref().is_some_and(|server| server.account.is_some());
        let message = "account: a stream of another account is reached by a `role` there";
        require(!has_account, "kinesis", message)
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
        read_secret(("password", password), ("password_file", file))
    }
}

// === impl AwsServer ===

impl AwsServer {
    /// The secret of the access key, from its setting or its file; `None` when there is neither.
    ///
    /// # Errors
    /// When there are both, or the file cannot be read.
    pub fn read_secret_access_key(&self) -> Result<Option<Cow<'_, str>>, ChannelError> {
        let (secret, file) = (&self.secret_access_key, &self.secret_access_key_file);
        read_secret(
            ("secret_access_key", secret.as_ref()),
            ("secret_access_key_file", file.as_ref()),
        )
    }

    /// The token of a temporary key, likewise.
    ///
    /// # Errors
    /// As [`read_secret_access_key`](Self::read_secret_access_key).
    pub fn read_session_token(&self) -> Result<Option<Cow<'_, str>>, ChannelError> {
        let (token, file) = (&self.session_token, &self.session_token_file);
        read_secret(("session_token", token.as_ref()), ("session_token_file", file.as_ref()))
    }
}

/// A secret, from its setting or its file, each after its name.
fn read_secret<'a>(
    (name, secret): (&'static str, Option<&'a Secret>),
    (file_name, file): (&'static str, Option<&'a PathBuf>),
) -> Result<Option<Cow<'a, str>>, ChannelError> {
    let is_one = secret.is_none() || file.is_none();
    require(is_one, file_name, format!("there is `{name}` as well: leave one of them out"))?;
    let Some(text) = SettingText::of(name, secret, file) else { return Ok(None) };
    Ok(Some(match text.read("the secret cannot be read")? {
        // Editors end a file with a line break, which is no part of the secret.
        Cow::Owned(text) => Cow::Owned(text.trim_end_matches(['\r', '\n']).to_owned()),
        text @ Cow::Borrowed(_) => text,
    }))
}
