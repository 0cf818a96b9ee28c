//! `[channels.NAME]`: one channel. Its settings depend on its `kind`.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use channel::{ChannelError, SettingError};
use notification::Name;
use toml::{Table, Value};

use super::kinds::{ChannelKind, ChannelResources};
use super::problem::Mistake;
use super::retry::RetryConfig;
use super::table::read_table;

/// One channel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChannelConfig {
    /// The retries of deferred deliveries.
    pub(crate) retry: RetryConfig,
    /// The protocol and its settings.
    pub(crate) kind: ChannelKind,
    /// SHA-256 of the files that it names, so that a change of one is seen. `None` where one cannot be read.
    files: BTreeMap<String, Option<Vec<u8>>>,
}

/// The suffix of settings that name a file.
const FILE: &str = "_file";

// === impl ChannelConfig ===

impl ChannelConfig {
    /// Reads the table at `path`. What stands there besides `retry` depends on its `kind`.
    pub(super) fn read(mut table: Table, path: &str, problems: &mut Vec<Mistake>) -> Option<Self> {
        let retry = match table.remove("retry") {
            None => Some(RetryConfig::default()),
            Some(Value::Table(retry)) => read_table(retry, &format!("{path}.retry"), problems),
            Some(_) => {
                problems.push(Mistake::new(format!("{path}.retry"), "must be a table"));
                None
            }
        };
        let mut files = BTreeMap::new();
        add_digests(&table, &mut files);
        let kind = ChannelKind::read(table.remove("kind").as_ref(), table, path, problems);
        Some(Self { retry: retry?, kind: kind?, files })
    }

    /// True if a channel that was built from this is the same as one built from `other`.
    pub(super) fn is_built_like(&self, other: &Self) -> bool {
        // Without the retries: settle reads them for itself, so a change of them alone keeps the connections.
        self.kind == other.kind && self.files == other.files
    }

    /// Builds the channel, which reads the files that it names, and forgets it.
    pub(super) fn check(&self, name: &Name) -> Vec<Mistake> {
        let mut problems = self.retry.check(&format!("channels.{name}.retry"));
        let errors =
            self.kind.settings().build(&ChannelResources::default()).err().map(ChannelError::each);
        problems.extend(errors.into_iter().flatten().map(|error| match error {
            SettingError::Setting { setting, message } => {
                Mistake::new(format!("channels.{name}.{setting}"), message)
            }
            error @ SettingError::File { .. } => {
                Mistake::new(format!("channels.{name}"), error.to_string())
            }
        }));
        problems
    }

    /// Warnings: settings that are allowed, and fail with some contents.
    pub(super) fn warning(&self, name: &Name) -> Option<String> {
        self.kind.settings().warning().map(|warning| format!("channels.{name}.{warning}"))
    }
}

// === helpers ===

/// Adds the files that `table` and what is in it name.
fn add_digests(table: &Table, files: &mut BTreeMap<String, Option<Vec<u8>>>) {
    for (key, value) in table {
        match value {
            Value::String(path) if key.ends_with(FILE) => {
                // One that cannot be read is told of when the channel is built.
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
