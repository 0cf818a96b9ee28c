//! The stores that measurements are made on: a directory, or a server of its own.

use std::path::PathBuf;

use flow::Clock;
use store::conformance::at;
use store::{Postgres, Sqlite, Store, postgres, sqlite};
use testbed::PostgresServer;
use testbed::postgres::{Database, PostgresOptions};

/// The place of the store.
pub(crate) enum MeasuredStore {
    Directory(PathBuf),
    Server(PostgresServer, Database),
}

/// The store, opened.
pub(crate) enum OpenStore {
    Sqlite(Box<Sqlite>),
    Postgres(Box<Postgres>),
}

// === impl OpenStore ===

impl OpenStore {
    pub(crate) fn get(&self) -> &dyn Store {
        match self {
            Self::Sqlite(store) => &**store,
            Self::Postgres(store) => &**store,
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => store.close().await,
        }
    }
}

// === impl MeasuredStore ===

impl MeasuredStore {
    pub(crate) fn new(place: &str) -> Self {
        if place == "postgres" {
            // With the settings of an ordinary server, which syncs each commit.
            // Days pass in seconds, so the server looks for what is to be vacuumed as often.
            let settings = &[("shared_buffers", "1GB"), ("autovacuum_naptime", "1s")];
            let options = PostgresOptions { settings, tls: None };
            let server = PostgresServer::start_with(options).expect("a server");
            let database = server.create_database().expect("a database");
            return Self::Server(server, database);
        }
        let directory = PathBuf::from(place);
        assert!(!directory.exists(), "a directory that is not there yet");
        Self::Directory(directory)
    }

    pub(crate) async fn open(&self) -> OpenStore {
        match self {
            Self::Directory(directory) => {
                let (store, _) =
                    Sqlite::open(directory, sqlite::Options::new(1), at(0)).expect("a store");
                OpenStore::Sqlite(Box::new(store))
            }
            Self::Server(_, database) => {
                let options = postgres::Options::new(database.url());
                let store = Postgres::open(options, Clock::system()).await.expect("a store");
                OpenStore::Postgres(Box::new(store))
            }
        }
    }

    /// Has a server start anew.
    pub(crate) fn restart(&mut self) {
        if let Self::Server(server, _) = self {
            server.stop_immediate().expect("it stops");
            server.start_again().expect("it starts");
        }
    }
}
