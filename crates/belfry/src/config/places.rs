//! `[store]` and `[queue]`: where notifications are kept, and what carries them between processes.

use std::path::{Path, PathBuf};

use channel::Secret;
use notification::Name;
use serde::Deserialize;
use store::sqlite;

use super::problem::Mistake;
use super::server_url::{self, ServerUrl};

/// `[store]`: where notifications are kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreConfig {
    /// Directory of the store's files, made at first start. Default `./data`. Not together with `url`.
    pub(crate) directory: Option<PathBuf>,
    /// When a commit to these files counts as durable. Default `full`.
    pub(crate) synchronous: sqlite::Synchronous,
    /// A PostgreSQL database that several processes share, instead of the directory.
    #[serde(deserialize_with = "server_url::store")]
    pub(crate) url: Option<ServerUrl>,
    /// More root certificates to trust, PEM, for the database only.
    pub(crate) ca_file: Option<PathBuf>,
    /// The password of the user in `url`. Not together with `password_file`.
    pub(crate) password: Option<Secret>,
    /// File with the password of the user in `url`.
    pub(crate) password_file: Option<PathBuf>,
}

/// `[queue]`: what carries work from producers to consumers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct QueueConfig {
    /// A RabbitMQ or NATS broker. None by default: the processes divide the work in the database.
    #[serde(deserialize_with = "server_url::queue")]
    pub(crate) url: Option<ServerUrl>,
    /// The prefix of all names in the broker. Default `belfry`.
    pub(crate) prefix: String,
    /// More root certificates to trust, PEM, for the broker only.
    pub(crate) ca_file: Option<PathBuf>,
    /// The password of the user in `url`. Not together with `password_file`.
    pub(crate) password: Option<Secret>,
    /// File with the password of the user in `url`.
    pub(crate) password_file: Option<PathBuf>,
}

/// Which store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorePlace<'a> {
    /// SQLite, in a directory that belongs to one process.
    Directory(&'a Path),
    /// A database that several processes share.
    Server(&'a ServerUrl),
}

const USUAL_DIRECTORY: &str = "./data";

// === impl StoreConfig ===

impl StoreConfig {
    /// Which store it is.
    pub(crate) fn place(&self) -> StorePlace<'_> {
        match (&self.url, &self.directory) {
            // That a directory is named as well is refused by the check.
            (Some(url), _) => StorePlace::Server(url),
            (None, Some(directory)) => StorePlace::Directory(directory),
            (None, None) => StorePlace::Directory(Path::new(USUAL_DIRECTORY)),
        }
    }

    /// The options of a store in a directory; a new one draws its id from `seed`.
    pub(crate) fn options(&self, seed: u64) -> sqlite::Options {
        sqlite::Options { synchronous: self.synchronous, ..sqlite::Options::new(seed) }
    }

    pub(super) fn check(&self) -> Vec<Mistake> {
        let password = self.password.is_some();
        let files = (self.ca_file.as_deref(), self.password_file.as_deref());
        let mut problems = check_of_url("store", self.url.as_ref(), password, files);
        if self.url.is_some() && self.directory.is_some() {
            let message = "is not used when `url` is set: leave one of them out";
            problems.push(Mistake::new("store.directory", message));
        }
        problems
    }
}

// === impl QueueConfig ===

impl Default for QueueConfig {
    fn default() -> Self {
        let prefix = "belfry".to_owned();
        Self { url: None, prefix, ca_file: None, password: None, password_file: None }
    }
}

impl QueueConfig {
    pub(super) fn check(&self, store: &StoreConfig) -> Vec<Mistake> {
        let password = self.password.is_some();
        let files = (self.ca_file.as_deref(), self.password_file.as_deref());
        let mut problems = check_of_url("queue", self.url.as_ref(), password, files);
        if let Err(error) = self.prefix.parse::<Name>() {
            problems.push(Mistake::new("queue.prefix", error.to_string()));
        }
        if self.url.is_some() && store.url.is_none() {
            let message = "a broker carries work between processes, and a SQLite store belongs to one: \
                           set `url` in [store] to a postgres:// URL, or leave this out";
            problems.push(Mistake::new("queue.url", message));
        }
        problems
    }
}

// === helpers ===

/// Settings that belong to a URL that is not there, and a file of certificates that cannot be read.
fn check_of_url(
    table: &str,
    url: Option<&ServerUrl>,
    has_password: bool,
    (ca_file, password_file): (Option<&Path>, Option<&Path>),
) -> Vec<Mistake> {
    let mut problems = Vec::new();
    let given = [
        ("ca_file", ca_file.is_some()),
        ("password", has_password),
        ("password_file", password_file.is_some()),
    ];
    for (key, is_given) in given {
        if is_given && url.is_none() {
            problems.push(Mistake::new(format!("{table}.{key}"), "is not used without `url`"));
        }
    }
    if let Some(file) = ca_file
        && let Err(error) = std::fs::read(file)
    {
        let message = format!("{}: cannot be read: {error}", file.display());
        problems.push(Mistake::new(format!("{table}.ca_file"), message));
    }
    problems
}

/// Puts the password of `table`, or the one in its file, into the URL.
pub(super) fn add_password(
    table: &str,
    url: &mut Option<ServerUrl>,
    (password, file): (Option<&Secret>, Option<&Path>),
    problems: &mut Vec<Mistake>,
) {
    let Some(bare) = url.as_ref() else { return };
    let read = match (password, file) {
        (None, None) => return,
        (Some(password), None) => Ok(password.expose().to_owned()),
        (None, Some(file)) => std::fs::read_to_string(file)
            .map_err(|error| format!("{}: cannot be read: {error}", file.display())),
        (Some(_), Some(_)) => Err("not together with `password`: leave one out".to_owned()),
    };
    // An editor ends the last line of a file.
    let added = read.and_then(|text| bare.with_password(text.trim_end_matches(['\n', '\r'])));
    match added {
        Ok(whole) => *url = Some(whole),
        Err(message) => {
            let key = if file.is_some() { "password_file" } else { "password" };
            problems.push(Mistake::new(format!("{table}.{key}"), message));
        }
    }
}
