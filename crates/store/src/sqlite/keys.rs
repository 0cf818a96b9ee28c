//! API keys that calls made.

use std::sync::Arc;

use notification::{Name, Timestamp, limits};
use rusqlite::{Connection, Row, params};

use super::rows::signed;
use super::transaction::Transaction;
use crate::rows::keys::{ApiKeyRow, readable};
use crate::{KeyChange, KeyChanged, KeyHash, StoreError, StoredKey};

impl Transaction<'_> {
    pub(super) fn change_key(&mut self, change: KeyChange) -> Result<KeyChanged, StoreError> {
        match change {
            KeyChange::Add(key) => self.add_key(key),
            KeyChange::Rotate { name, of, sha256, former_until } => {
                self.rotate_key((&name, of), sha256, former_until)
            }
            KeyChange::Revoke(name) => self.revoke_key(&name),
        }
    }

    fn add_key(&mut self, key: StoredKey) -> Result<KeyChanged, StoreError> {
        let StoredKey { name, tenant, sha256, former: _, grants, made_at } = &key;
        let name = name.as_str();
        if self.sql("SELECT 1 FROM api_key WHERE name = ?1")?.exists([name])? {
            return Ok(KeyChanged::Exists);
        }
        let count: i64 =
            self.sql("SELECT count(*) FROM api_key")?.query_row([], |row| row.get(0))?;
        if count >= signed(limits::STORED_KEYS) {
            return Ok(KeyChanged::TooMany);
        }
        let insert = "INSERT INTO api_key (name, tenant, sha256, grants, made_at) VALUES (?1, ?2, ?3, ?4, ?5)";
        let parameters = params![name, tenant.as_str(), sha256, grants, made_at.millis()];
        self.sql(insert)?.execute(parameters)?;
        self.change_keys()?;
        Ok(KeyChanged::Done { key, is_everywhere: true })
    }

    fn rotate_key(
        &mut self,
        (name, of): (&Name, KeyHash),
        sha256: KeyHash,
        former_until: Timestamp,
    ) -> Result<KeyChanged, StoreError> {
        let Some(key) = self.known_key(name)? else { return Ok(KeyChanged::Unknown) };
        if key.sha256 != of {
            return Ok(KeyChanged::Overtaken);
        }
        self.sql(
            "UPDATE api_key SET former = sha256, sha256 = ?2, former_until = ?3 WHERE name = ?1",
        )?
        .execute(params![name.as_str(), sha256, former_until.millis()])?;
        self.change_keys()?;
        Ok(KeyChanged::Done { key: key.rotated(sha256, former_until), is_everywhere: true })
    }

    fn revoke_key(&mut self, name: &Name) -> Result<KeyChanged, StoreError> {
        // One that cannot be read is good for nothing already, and goes all the same.
        let key = self.known_key(name)?;
        self.sql("DELETE FROM api_key WHERE name = ?1")?.execute([name.as_str()])?;
        self.change_keys()?;
        Ok(KeyChanged::Revoked { key, is_everywhere: true })
    }

    fn known_key(&self, name: &Name) -> Result<Option<StoredKey>, StoreError> {
        let select = "SELECT name, tenant, sha256, former, former_until, grants, made_at FROM api_key WHERE name = ?1";
        let mut select = self.sql(select)?;
        let mut rows = select.query([name.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(readable([key_at(row)?]).pop())
    }

    /// Reads the changed keys, which are in force with the commit.
    fn change_keys(&mut self) -> Result<(), StoreError> {
        self.keys = Some(Arc::new(keys(self.connection)?));
        Ok(())
    }
}

/// All keys, by name.
pub(super) fn keys(connection: &Connection) -> Result<Vec<StoredKey>, StoreError> {
    let select = "SELECT name, tenant, sha256, former, former_until, grants, made_at FROM api_key ORDER BY name";
    let mut select = connection.prepare_cached(select)?;
    let mut rows = select.query([])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(key_at(row)?);
    }
    Ok(readable(keys))
}

/// The key in a row, or why it cannot be read.
fn key_at(row: &Row<'_>) -> Result<Result<StoredKey, StoreError>, StoreError> {
    let row = ApiKeyRow {
        name: row.get_ref(0)?.as_str()?,
        tenant: row.get_ref(1)?.as_str()?,
        sha256: row.get_ref(2)?.as_blob()?,
        former: row.get_ref(3)?.as_blob_or_null()?,
        former_until: row.get(4)?,
        grants: row.get_ref(5)?.as_str()?,
        made_at: row.get(6)?,
    };
    Ok(row.key())
}
