//! Opens the store for questions, next to a running engine or without one.

use std::fmt::Display;

use store::postgres::PostgresReader;
use store::sqlite::Sqlite;
use store::{ReadStore, StoreError};

use crate::client::Client;
use crate::config::{StoreConfig, StorePlace};
use crate::exit::{CliError, FailureKind};

/// The rule, for the help of these commands.
pub(crate) const SOURCE_HELP: &str = "\
With --url (or BELFRY_URL), and without --store, the engine there is asked, which takes a key. \
Else the store is read, and the engine need not run.";

/// Whom a command asks that can read a store as well as call an engine.
pub(crate) enum ReadSource {
    /// An engine, by its API: where `--url` says, and no store is named.
    Engine(Box<Client>),
    /// The store itself: the engines need not answer, or be there.
    Store(StoreConfig),
}

/// A store that is open for questions.
pub(crate) struct StoreReader {
    runtime: tokio::runtime::Runtime,
    reader: Box<dyn ReadStore>,
}

/// Runs `work` with a reader of the configured store.
pub(crate) fn ask<T>(
    config: &StoreConfig,
    work: impl AsyncFnOnce(&dyn ReadStore) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    StoreReader::open(config)?.ask(work)
}

// === impl StoreReader ===

impl StoreReader {
    /// Opens the configured store.
    pub(crate) fn open(config: &StoreConfig) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let reader: Box<dyn ReadStore> = match config.place() {
            StorePlace::Directory(directory) => {
                let opened = Sqlite::open_read_only(directory);
                Box::new(opened.map_err(|error| cannot_read(directory.display(), &error))?)
            }
            StorePlace::Server(url) => {
                let opened = runtime
                    .block_on(PostgresReader::open(&url.expose(), config.ca_file.as_deref()));
                Box::new(opened.map_err(|error| cannot_read(url, &error))?)
            }
        };
        Ok(Self { runtime, reader })
    }

    /// Runs `work` with it.
    pub(crate) fn ask<T>(
        &self,
        work: impl AsyncFnOnce(&dyn ReadStore) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.runtime.block_on(work(&*self.reader))
    }
}

// === helpers ===

fn cannot_read(place: impl Display, error: &StoreError) -> CliError {
    CliError::new(FailureKind::Failed, format!("cannot read the store in {place}: {error}"))
}
