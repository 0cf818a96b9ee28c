//! Opens the store for questions, next to a running engine or without one.

use store::Ledger;
use store::sqlite::Sqlite;

use crate::config::StoreConfig;
use crate::exit::{Failure, FailureKind};

/// Runs `work` with the ledger of the configured store.
pub(crate) fn ask<T>(
    config: &StoreConfig,
    work: impl AsyncFnOnce(&dyn Ledger) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reader = Sqlite::open_read_only(&config.directory).map_err(|error| {
        let directory = config.directory.display();
        let message = format!("cannot read the store in {directory}: {error}");
        Failure::new(FailureKind::Failed, message)
    })?;
    runtime.block_on(work(&reader))
}
