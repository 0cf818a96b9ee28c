//! API keys as both backends store them.

use notification::Timestamp;

use super::codes;
use crate::{FormerKey, KeyHash, StoreError, StoredKey};

/// A row of `api_key`.
#[derive(Debug)]
pub(crate) struct ApiKeyRow<'a> {
    pub(crate) name: &'a str,
    pub(crate) tenant: &'a str,
    pub(crate) sha256: &'a [u8],
    pub(crate) former: Option<&'a [u8]>,
    pub(crate) former_until: Option<i64>,
    pub(crate) grants: &'a str,
    pub(crate) made_at: i64,
}

// === impl ApiKeyRow ===

impl ApiKeyRow<'_> {
    /// The key in this row.
    pub(crate) fn key(self) -> Result<StoredKey, StoreError> {
        let hash = |bytes: &[u8]| -> Result<KeyHash, StoreError> {
            let damaged = |_| StoreError::Damaged(format!("the API key {:?}", self.name));
            bytes.try_into().map_err(damaged)
        };
        let former = match self.former.zip(self.former_until) {
            None => None,
            Some((sha256, until)) => {
                Some(FormerKey { sha256: hash(sha256)?, until: Timestamp::from_millis(until) })
            }
        };
        Ok(StoredKey {
            name: codes::name(self.name)?,
            tenant: codes::name(self.tenant)?,
            sha256: hash(self.sha256)?,
            former,
            grants: self.grants.to_owned(),
            made_at: Timestamp::from_millis(self.made_at),
        })
    }
}

/// The keys that can be read of `rows`. One that cannot is good for nothing, and said.
pub(crate) fn readable(
    rows: impl IntoIterator<Item = Result<StoredKey, StoreError>>,
) -> Vec<StoredKey> {
    let read = |row: Result<StoredKey, StoreError>| {
        row.inspect_err(|error| tracing::error!(%error, "an API key is good for nothing")).ok()
    };
    rows.into_iter().filter_map(read).collect()
}
