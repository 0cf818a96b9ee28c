//! The store behind the engine.

use std::net::SocketAddr;
use std::sync::Arc;

use flow::{Clock, Tenure};
use notification::Ticket;
use store::sqlite::Sqlite;
use store::{Claims, Outbox, Store, StoreError, Take};
use tokio::sync::watch;

use super::Role;
use crate::config::{Config, StorePlace};

/// The store of this process.
#[derive(Debug)]
pub(super) enum Backend {
    /// For this process alone.
    Sqlite(Arc<Sqlite>),
}

// === impl Backend ===

impl Backend {
    /// Opens the store, and recovers what a former process left in it if it was alone with it.
    pub(super) async fn open(
        role: Role,
        config: &Config,
        listen: SocketAddr,
        clock: Clock,
        seed: u64,
    ) -> anyhow::Result<Self> {
        match config.store.place() {
            StorePlace::Directory(directory) => {
                let options = config.store.options(seed);
                let (store, recovery) =
                    Sqlite::open(directory, options, pipeline::timestamp(clock))?;
                tracing::info!(?recovery, "store opened");
                Ok(Self::Sqlite(Arc::new(store)))
            }
            StorePlace::Server(url) => anyhow::bail!("{url}: not yet"),
        }
    }

    /// What all stages share.
    pub(super) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::clone(store) as _,
        }
    }

    /// Where tickets for chunks come from, if several processes share the store.
    pub(super) fn tickets(&self) -> Option<Arc<dyn Claims<Ticket>>> {
        match self {
            Self::Sqlite(_) => None,
        }
    }

    /// Where chunks are taken for tickets, if several processes share the store.
    pub(super) fn take(&self) -> Option<Arc<dyn Take>> {
        match self {
            Self::Sqlite(_) => None,
        }
    }

    /// Where applications write notifications themselves, if they can.
    pub(super) fn outbox(&self) -> Option<Arc<dyn Outbox>> {
        match self {
            Self::Sqlite(_) => None,
        }
    }

    /// Its name for readiness, and whether it can be reached; nothing when it cannot be away.
    pub(super) fn available(&self) -> Option<(&'static str, watch::Receiver<bool>)> {
        match self {
            Self::Sqlite(_) => None,
        }
    }

    /// The name of this process among those that share the store.
    pub(super) fn worker(&self) -> Option<&str> {
        match self {
            Self::Sqlite(_) => None,
        }
    }

    /// The time that everybody who shares the store goes by.
    pub(super) fn clock(&self, own: Clock) -> Clock {
        match self {
            Self::Sqlite(_) => own,
        }
    }

    /// Until when this process may start attempts.
    pub(super) fn tenure(&self) -> Tenure {
        match self {
            Self::Sqlite(_) => Tenure::unlimited(),
        }
    }

    /// Tells when it failed for good, and why.
    pub(super) fn failed(&self) -> watch::Receiver<Option<StoreError>> {
        match self {
            Self::Sqlite(store) => store.failed(),
        }
    }

    /// Leaves it in good order.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close().await,
        }
    }
}
