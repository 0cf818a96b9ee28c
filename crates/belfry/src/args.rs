//! Arguments that several commands take.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use channel::Secret;
use clap::Args;
use notification::{BroadcastId, ByteString, NotificationId, Priority, Timestamp};
use serde_json::value::RawValue;
use store::ListOrder;

use crate::client::with_query;
use crate::config::Flags;
use crate::exit::{CliError, FailureKind};

/// The arguments of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct Global {
    /// Configuration file [default: belfry.toml, or else /etc/belfry/belfry.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address of the engine, or unix:PATH of its socket [default: where the configuration has it listen]
    #[arg(long, global = true, value_name = "URL", env = "BELFRY_URL")]
    pub(crate) url: Option<String>,
    /// Key to call the engine with; a list of processes shows it: better in the environment or a file
    #[arg(long, global = true, value_name = "KEY", env = "BELFRY_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// File with the key to call the engine with
    #[arg(long, global = true, value_name = "FILE", env = "BELFRY_API_KEY_FILE")]
    api_key_file: Option<PathBuf>,
    /// More root certificates to trust, PEM, where the engine is called by https
    #[arg(long, global = true, value_name = "FILE", env = "BELFRY_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// Certificate to show where the engine asks callers for one, PEM, with those that lead to its authority
    #[arg(long, global = true, value_name = "FILE", env = "BELFRY_CLIENT_CERT")]
    client_cert: Option<PathBuf>,
    /// Key of that certificate, PEM
    #[arg(long, global = true, value_name = "FILE", env = "BELFRY_CLIENT_KEY")]
    client_key: Option<PathBuf>,
}

/// Which store a command reads.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[arg(
        long,
        value_name = "STORE",
        value_parser = secret,
        help = "Store: a directory (SQLite), or postgres://USER@HOST/DATABASE [default: as configured]"
    )]
    pub(crate) store: Option<Secret>,
}

/// Scope of a command, where it is no broadcast.
#[derive(Debug, Args)]
pub(crate) struct ScopeArgs {
    /// All that the tenant has
    #[arg(long, conflicts_with = "channel")]
    pub(crate) all: bool,
    /// Notifications that go by this channel
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// Of these, those that go to this destination, as the lanes of `belfry status` name it
    #[arg(long, requires_all = ["channel", "priority"])]
    pub(crate) destination: Option<String>,
    /// And has this priority
    #[arg(long, requires = "destination")]
    pub(crate) priority: Option<Priority>,
    /// Tenant, with an operator's key [default: the key's]
    #[arg(long)]
    pub(crate) tenant: Option<String>,
}

/// The names that an application has given to what is listed.
#[derive(Debug, Args)]
pub(crate) struct NamedArgs {
    /// Only those with this external id of their own, byte for byte
    #[arg(long, value_name = "ID")]
    pub(crate) external_id: Option<ByteString>,
    /// Only those with this tag, byte for byte
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<ByteString>,
    /// Only the one for which this idempotency key was used
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<ByteString>,
}

/// The part of a list that is shown, by the time of acceptance, and in which order.
#[derive(Debug, Args)]
pub(crate) struct ShownArgs {
    /// Only those accepted at this instant or later (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    pub(crate) since: Option<Timestamp>,
    /// Only those accepted before this instant (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    pub(crate) until: Option<Timestamp>,
    /// The newest ones first (as without it)
    #[arg(long, conflicts_with = "oldest")]
    newest: bool,
    /// The oldest ones first
    #[arg(long)]
    oldest: bool,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    pub(crate) limit: NonZeroUsize,
}

/// The arguments of [`ScopeArgs`] that name a scope by themselves.
pub(crate) const SCOPES: [&str; 2] = ["all", "channel"];

/// The files by which a command and an engine know each other over https.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TlsFiles<'a> {
    /// Further roots to trust.
    pub(crate) ca: Option<&'a Path>,
    /// A certificate to show, and its key.
    pub(crate) identity: Option<(&'a Path, &'a Path)>,
}

/// The thing that an identifier names.
pub(crate) enum TargetId {
    Notification(NotificationId),
    Broadcast(BroadcastId),
}

// === impl Global ===

impl Global {
    /// The key to call the engine with, if one was given.
    ///
    /// # Errors
    /// When its file cannot be read, or there is a key as well.
    pub(crate) fn key(&self) -> Result<Option<String>, CliError> {
        let refuse = |message: String| CliError::new(FailureKind::Usage, message);
        // As `BELFRY_API_KEY=` in an environment is: none.
        let key = self.api_key.clone().filter(|key| !key.is_empty());
        match (key, &self.api_key_file) {
            (key, None) => Ok(key),
            (Some(_), Some(_)) => Err(refuse(
                "both a key and a file with one are given (--api-key or BELFRY_API_KEY, --api-key-file or \
                 BELFRY_API_KEY_FILE): leave one of them out"
                    .to_owned(),
            )),
            (None, Some(file)) => {
                let text = std::fs::read_to_string(file).map_err(|error| {
                    refuse(format!("cannot read the API key from {}: {error}", file.display()))
                })?;
                match text.trim() {
                    "" => Err(refuse(format!("{} has no API key", file.display()))),
                    key => Ok(Some(key.to_owned())),
                }
            }
        }
    }

    /// The files by which the engine is trusted, and is shown a certificate.
    ///
    /// # Errors
    /// When there is a certificate without a key, or a key without a certificate.
    pub(crate) fn tls_files(&self) -> Result<TlsFiles<'_>, CliError> {
        let lacks = |given: &str, missing: &str| {
            let message = format!("{given} is given without {missing}: name both files");
            Err(CliError::new(FailureKind::Usage, message))
        };
        // As `BELFRY_CLIENT_CERT=` in an environment is: none.
        let [certificate, key] = [&self.client_cert, &self.client_key]
            .map(|file| file.as_deref().filter(|path| !path.as_os_str().is_empty()));
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return lacks(
                    "--client-cert (BELFRY_CLIENT_CERT)",
                    "--client-key (BELFRY_CLIENT_KEY)",
                );
            }
            (None, Some(_)) => {
                return lacks(
                    "--client-key (BELFRY_CLIENT_KEY)",
                    "--client-cert (BELFRY_CLIENT_CERT)",
                );
            }
        };
        Ok(TlsFiles { ca: self.ca_file.as_deref(), identity })
    }
}

// === impl ScopeArgs ===

impl ScopeArgs {
    /// The path of a call with what is meant, be it `broadcast`, and with more parameters.
    pub(crate) fn path(
        &self,
        action: &str,
        broadcast: Option<BroadcastId>,
        more: &[(&str, Option<&str>)],
    ) -> String {
        let Self { all, channel, destination, priority, tenant } = self;
        let broadcast = broadcast.map(|id| id.to_string());
        let given = [
            ("broadcast", broadcast.as_deref()),
            ("all", all.then_some("true")),
            ("channel", channel.as_deref()),
            ("destination", destination.as_deref()),
            ("priority", priority.map(Priority::as_str)),
            ("tenant", tenant.as_deref()),
        ];
        with_query(&format!("/v1/{action}"), &[&given[..], more].concat())
    }
}

// === impl ShownArgs ===

impl ShownArgs {
    /// The newest ones first, unless it is said otherwise.
    pub(crate) fn order(&self) -> ListOrder {
        if self.oldest { ListOrder::OldestFirst } else { ListOrder::NewestFirst }
    }
}

// === impl StoreArgs ===

impl StoreArgs {
    /// The settings among them.
    pub(crate) fn flags(&self) -> Flags {
        Flags { store: self.store.clone(), queue: None }
    }
}

// === impl TargetId ===

impl FromStr for TargetId {
    type Err = CliError;

    fn from_str(id: &str) -> Result<Self, CliError> {
        let broadcast = id.parse().map(Self::Broadcast).ok();
        let target = broadcast.or_else(|| id.parse().map(Self::Notification).ok());
        let message = format!("{id:?} is neither a notification (a UUID) nor a broadcast (bc_1)");
        target.ok_or_else(|| CliError::new(FailureKind::BadInput, message))
    }
}

// === helpers ===

/// A URL may have a password in it.
#[expect(clippy::unnecessary_wraps, reason = "clap wants a result")]
pub(crate) fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

/// The text as it is: numbers, spaces and the order of fields are the caller's.
pub(crate) fn json(text: &str) -> Result<Box<RawValue>, String> {
    serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))
}
