//! `[channels.NAME]`: one way out. What may stand there depends on its `kind`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use channel::{Channel, ChannelError, apns, dry_run, fcm, smtp, webhook, webpush};
use notification::Name;
use toml::{Table, Value};

use super::load::read_table;
use super::{Problem, RetryConfig, StorePlace};

/// One way out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChannelConfig {
    /// What becomes of what the provider put off.
    pub(crate) retry: RetryConfig,
    /// The protocol and its settings.
    pub(crate) kind: ChannelKind,
    /// SHA-256 of the files that it names, so that a change of one is seen. `None` where one cannot be read.
    files: BTreeMap<String, Option<Vec<u8>>>,
}

/// The protocol and its settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ChannelKind {
    /// Apple Push Notification service.
    Apns(apns::Settings),
    /// Firebase Cloud Messaging.
    Fcm(fcm::Settings),
    /// HTTPS with signatures (Standard Webhooks).
    Webhook(webhook::Settings),
    /// Browsers, through the push service that each of them chose.
    WebPush(webpush::Settings),
    /// E-mail over SMTP.
    Smtp(Box<smtp::Settings>),
    /// Everything but the last byte.
    DryRun(dry_run::Settings),
}

/// What the names of settings end with that name a file.
const FILE: &str = "_file";

/// What all channels of a process share, also those that replace others.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The tokens for Apple.
    pub(crate) apns_tokens: apns::Tokens,
    /// What Google grants each project.
    pub(crate) fcm_quotas: fcm::Quotas,
    /// Where channels keep what must outlive a restart, unless they say where.
    pub(crate) state_directory: Option<PathBuf>,
}

// === impl Shared ===

impl Shared {
    /// For the channels of a process that was started with a store at `place`. `service_directory` is where the service
    /// manager wants state to be kept, if one does.
    pub(crate) fn new(place: StorePlace<'_>, service_directory: Option<PathBuf>) -> Self {
        let directory = match place {
            StorePlace::Directory(directory) => Some(directory.to_owned()),
            StorePlace::Server(_) => service_directory,
        };
        let state_directory = directory.map(|directory| directory.join("state"));
        Self { state_directory, ..Self::default() }
    }
}

// === impl ChannelConfig ===

impl ChannelConfig {
    /// Reads the table at `path`. `kind` says how to read the rest; an internally tagged enum would do the
    /// same and forget which key was wrong.
    pub(super) fn read(mut table: Table, path: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let retry = match table.remove("retry") {
            None => Some(RetryConfig::default()),
            Some(Value::Table(retry)) => read_table(retry, &format!("{path}.retry"), problems),
            Some(_) => {
                problems.push(Problem::new(format!("{path}.retry"), "must be a table"));
                None
            }
        };
        let mut files = BTreeMap::new();
        add_digests(&table, &mut files);
        let kind = if let Some(Value::String(kind)) = table.remove("kind") {
            ChannelKind::read(&kind, table, path, problems)
        } else {
            let message = "missing: `apns`, `fcm`, `webhook`, `webpush`, `smtp` or `dry-run`";
            problems.push(Problem::new(format!("{path}.kind"), message));
            None
        };
        Some(Self { retry: retry?, kind: kind?, files })
    }

    /// Whether a channel that was built from this is the same as one built from `other`.
    pub(super) fn is_built_like(&self, other: &Self) -> bool {
        self.kind == other.kind && self.files == other.files
    }

    /// Builds the channel, which reads the files that it names, and forgets it.
    pub(super) fn check(&self, name: &Name) -> Vec<Problem> {
        let mut problems = self.retry.check(&format!("channels.{name}.retry"));
        let errors = self.kind.build(&Shared::default()).err().map(ChannelError::each);
        problems.extend(errors.into_iter().flatten().map(|error| match error {
            ChannelError::Setting { setting, message } => {
                Problem::new(format!("channels.{name}.{setting}"), message)
            }
            error @ (ChannelError::File { .. } | ChannelError::Several(_)) => {
                Problem::new(format!("channels.{name}"), error.to_string())
            }
        }));
        problems
    }

    /// What is allowed, and fails with some contents.
    pub(super) fn warning(&self, name: &Name) -> Option<String> {
        match &self.kind {
            ChannelKind::Smtp(settings) if settings.from.is_none() => Some(format!(
                "channels.{name}.from: is not set: mail whose content has no `from` of its own is refused"
            )),
            ChannelKind::Smtp(_)
            | ChannelKind::Apns(_)
            | ChannelKind::Fcm(_)
            | ChannelKind::Webhook(_)
            | ChannelKind::WebPush(_)
            | ChannelKind::DryRun(_) => None,
        }
    }
}

// === impl ChannelKind ===

impl ChannelKind {
    /// As the setting `kind` has it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Apns(_) => "apns",
            Self::Fcm(_) => "fcm",
            Self::Webhook(_) => "webhook",
            Self::WebPush(_) => "webpush",
            Self::Smtp(_) => "smtp",
            Self::DryRun(_) => "dry-run",
        }
    }

    /// Attempts before a notification is given up, unless the settings say otherwise.
    pub(crate) fn attempts(&self) -> u16 {
        if matches!(self, Self::Smtp(_)) { 240 } else { 32 }
    }

    /// Builds the channel. Reads the files that it names, and connects to nothing.
    pub(crate) fn build(&self, shared: &Shared) -> Result<Arc<dyn Channel>, ChannelError> {
        Ok(match self {
            Self::Apns(settings) => {
                let mut settings = settings.clone();
                settings.state_directory =
                    settings.state_directory.or_else(|| shared.state_directory.clone());
                Arc::new(apns::ApnsChannel::new(&settings, &shared.apns_tokens)?)
            }
            Self::Fcm(settings) => Arc::new(fcm::FcmChannel::new(settings, &shared.fcm_quotas)?),
            Self::Webhook(settings) => Arc::new(webhook::WebhookChannel::new(settings)?),
            Self::WebPush(settings) => Arc::new(webpush::WebPushChannel::new(settings)?),
            Self::Smtp(settings) => Arc::new(smtp::SmtpChannel::new(settings)?),
            Self::DryRun(settings) => Arc::new(dry_run::DryRunChannel::new(settings.clone())?),
        })
    }

    /// Whether its token for Apple is made anew with every start.
    pub(super) fn forgets_its_token(&self, shared: &Shared) -> bool {
        match self {
            Self::Apns(settings) => {
                let directory = settings.state_directory.as_ref();
                let has_token = settings.certificate_file.is_none();
                has_token && directory.or(shared.state_directory.as_ref()).is_none()
            }
            Self::Fcm(_)
            | Self::Webhook(_)
            | Self::WebPush(_)
            | Self::Smtp(_)
            | Self::DryRun(_) => false,
        }
    }

    fn read(kind: &str, table: Table, path: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        match kind {
            "apns" => read_table(table, path, problems).map(Self::Apns),
            "fcm" => read_table(table, path, problems).map(Self::Fcm),
            "webhook" => read_table(table, path, problems).map(Self::Webhook),
            "webpush" => read_table(table, path, problems).map(Self::WebPush),
            "smtp" => read_table(table, path, problems).map(Box::new).map(Self::Smtp),
            "dry-run" => read_table(table, path, problems).map(Self::DryRun),
            _ => {
                let message = format!(
                    "{kind:?} is not `apns`, `fcm`, `webhook`, `webpush`, `smtp` or `dry-run`"
                );
                problems.push(Problem::new(format!("{path}.kind"), message));
                None
            }
        }
    }
}

/// Adds the files that `table` and what is in it name.
fn add_digests(table: &Table, files: &mut BTreeMap<String, Option<Vec<u8>>>) {
    for (key, value) in table {
        match value {
            Value::String(path) if key.ends_with(FILE) => {
                let content = std::fs::read(path).ok();
                let digest = content.map(|content| digest(&SHA256, &content).as_ref().to_vec());
                files.insert(path.clone(), digest);
            }
            Value::Table(inner) => add_digests(inner, files),
            Value::Array(values) => {
                for inner in values.iter().filter_map(Value::as_table) {
                    add_digests(inner, files);
                }
            }
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_) => {}
        }
    }
}
