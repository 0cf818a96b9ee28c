//! Opens the store for questions, next to a running engine or without one.

use std::fmt::Display;

use store::postgres::PostgresReader;
use store::sqlite::Sqlite;
use store::{ReadStore, StoreError};

use crate::config::{StoreConfig, StorePlace};
use crate::exit::{CliError, FailureKind};

/// Runs `work` with a reader of the configured store.
pub(crate) fn ask<T>(
    config: &StoreConfig,
    work: impl AsyncFnOnce(&dyn ReadStore) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reader: Box<dyn ReadStore> = match config.place() {
        StorePlace::Directory(directory) => {
            let opened = Sqlite::open_read_only(directory);
            Box::new(opened.map_err(|error| cannot_read(directory.display(), &error))?)
        }
        StorePlace::Server(url) => {
            let opened =
                runtime.block_on(PostgresReader::open(&url.expose(), config.ca_file.as_deref()));
            Box::new(opened.map_err(|error| cannot_read(url, &error))?)
        }
    };
    runtime.block_on(work(&*reader))
}

fn cannot_read(place: impl Display, error: &StoreError) -> CliError {
    CliError::new(FailureKind::Failed, format!("cannot read the store in {place}: {error}"))
}
