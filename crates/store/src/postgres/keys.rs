//! API keys that calls made. A change raises the version of the [pauses](super::pause), too: a worker that says that it goes by it has
//! read the keys before.

use std::sync::Arc;

use async_trait::async_trait;
use notification::{Name, Timestamp, limits};
use tokio::sync::watch;
use tokio_postgres::{Error, Row};

use super::columns::signed;
use super::connection::PostgresSession;
use super::pause::NEXT_VERSION;
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction};
use crate::rows::keys::{ApiKeyRow, readable};
use crate::{KeyChange, KeyChanged, KeyHash, StoreError, StoredKey, StoredKeys};

/// The keys that this process has read.
#[derive(Debug, Default)]
pub(super) struct KnownKeys {
    pub(super) view: watch::Sender<StoredKeys>,
    /// The version that the view has.
    read: Option<i64>,
}

const SELECT_KEYS: &str =
    "SELECT name, tenant, sha256, former, former_until, grants, made_at FROM api_key ORDER BY name";
const LOCK_VERSION: &str = "SELECT FROM meta WHERE key = 'keys' FOR UPDATE";
const RAISE_VERSION: &str = "UPDATE meta SET value = value + 1 WHERE key = 'keys'";

/// Gives the version from which on the change is in force.
#[async_trait]
impl WriterRequest for KeyChange {
    type Answer = (KeyChanged, i64);

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        // First: changes wait for each other here.
        transaction.execute(LOCK_VERSION, &[]).await?;
        let changed = match self {
            Self::Add(key) => transaction.add_key(key).await?,
            Self::Rotate { name, of, sha256, former_until } => {
                transaction.rotate_key((name, *of), *sha256, *former_until).await?
            }
            Self::Revoke(name) => transaction.revoke_key(name).await?,
        };
        let version = match &changed {
            KeyChanged::Done { .. } | KeyChanged::Revoked { .. } => {
                // Also by a revocation of what is not there: the caller that revoked it may not know yet that it is in force.
                transaction.execute(RAISE_VERSION, &[]).await?;
                transaction.notify_cluster().await?;
                transaction.row(NEXT_VERSION, &[]).await?.try_get(0)?
            }
            KeyChanged::Exists
            | KeyChanged::Unknown
            | KeyChanged::Overtaken
            | KeyChanged::TooMany => 0,
        };
        Ok((changed, version))
    }
}

impl Transaction<'_> {
    async fn add_key(&mut self, key: &StoredKey) -> Result<KeyChanged, RunError> {
        let StoredKey { name, tenant, sha256, former: _, grants, made_at } = key;
        let (name, tenant) = (name.as_str(), tenant.as_str());
        if !self.rows("SELECT FROM api_key WHERE name = $1", &[&name]).await?.is_empty() {
            return Ok(KeyChanged::Exists);
        }
        let select = "SELECT count(*) FROM (SELECT FROM api_key LIMIT $1) AS counted";
        let keys_max = signed(limits::STORED_KEYS);
        if self.row(select, &[&keys_max]).await?.try_get::<_, i64>(0)? >= keys_max {
            return Ok(KeyChanged::TooMany);
        }
        let insert = "INSERT INTO api_key (name, tenant, sha256, grants, made_at) VALUES ($1, $2, $3, $4, $5)";
        let (sha256, made_at) = (sha256.as_slice(), made_at.millis());
        self.execute(insert, &[&name, &tenant, &sha256, grants, &made_at]).await?;
        Ok(done(key.clone()))
    }

    async fn rotate_key(
        &mut self,
        (name, of): (&Name, KeyHash),
        sha256: KeyHash,
        former_until: Timestamp,
    ) -> Result<KeyChanged, RunError> {
        let Some(key) = self.known_key(name).await? else { return Ok(KeyChanged::Unknown) };
        if key.sha256 != of {
            return Ok(KeyChanged::Overtaken);
        }
        let update =
            "UPDATE api_key SET former = sha256, sha256 = $2, former_until = $3 WHERE name = $1";
        let (hash, until) = (sha256.as_slice(), former_until.millis());
        self.execute(update, &[&name.as_str(), &hash, &until]).await?;
        Ok(done(key.rotated(sha256, former_until)))
    }

    async fn revoke_key(&mut self, name: &Name) -> Result<KeyChanged, RunError> {
        // One that cannot be read is good for nothing already, and goes all the same.
        let key = self.known_key(name).await?;
        self.execute("DELETE FROM api_key WHERE name = $1", &[&name.as_str()]).await?;
        Ok(KeyChanged::Revoked { key, is_everywhere: false })
    }

    async fn known_key(&mut self, name: &Name) -> Result<Option<StoredKey>, RunError> {
        let select = "SELECT name, tenant, sha256, former, former_until, grants, made_at FROM api_key WHERE name = $1";
        let rows = self.rows(select, &[&name.as_str()]).await?;
        Ok(readable(rows.iter().map(key_at)).pop())
    }
}

// === impl KnownKeys ===

impl KnownKeys {
    /// Reads them if `version` is another one than the view has.
    pub(super) async fn follow(
        &mut self,
        session: &PostgresSession,
        version: i64,
    ) -> Result<(), Error> {
        if self.read != Some(version) {
            let select = session.prepared(SELECT_KEYS).await?;
            let rows = session.client.query(&select, &[]).await?;
            self.view.send_replace(Arc::new(readable(rows.iter().map(key_at))));
            // They may be newer than the version, and are read once more then.
            self.read = Some(version);
        }
        Ok(())
    }
}

fn key_at(row: &Row) -> Result<StoredKey, StoreError> {
    let row = ApiKeyRow {
        name: row.try_get(0)?,
        tenant: row.try_get(1)?,
        sha256: row.try_get(2)?,
        former: row.try_get(3)?,
        former_until: row.try_get(4)?,
        grants: row.try_get(5)?,
        made_at: row.try_get(6)?,
    };
    row.key()
}

/// Whether it is in force everywhere is known after the commit.
const fn done(key: StoredKey) -> KeyChanged {
    KeyChanged::Done { key, is_everywhere: false }
}
