//! API keys that calls make, rotate and revoke.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use notification::{Name, Timestamp};
use tokio::sync::watch;

use crate::StoreError;

/// The SHA-256 of the text of a key.
pub type KeyHash = [u8; 32];

/// An API key that a call made.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// Its name, unique among the stored ones.
    pub name: Name,
    /// Whose notifications it creates and sees.
    pub tenant: Name,
    /// The key.
    pub sha256: KeyHash,
    /// The key before it, which is good for a while yet.
    pub former: Option<FormerKey>,
    /// The calls that it is good for, in the words of the API; at most [`limits::GRANTS_BYTES`](notification::limits::GRANTS_BYTES). The
    /// store understands nothing of it.
    pub grants: String,
    /// When it was made.
    pub made_at: Timestamp,
}

/// The key that another one has replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FormerKey {
    /// The key.
    pub sha256: KeyHash,
    /// The last instant at which it is good.
    pub until: Timestamp,
}

/// A change of the stored keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// A new one.
    Add(StoredKey),
    /// Another key in place of the one that is there, which is its former one from now on.
    Rotate {
        /// Its name.
        name: Name,
        /// The key that is replaced, as it was when it was decided to.
        of: KeyHash,
        /// The new one.
        sha256: KeyHash,
        /// The last instant at which the replaced one is good.
        former_until: Timestamp,
    },
    /// Takes a key away, with its former one.
    Revoke(Name),
}

/// The answer to a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChanged {
    /// A key was added or rotated, durably.
    Done {
        /// The key after it.
        key: StoredKey,
        /// True if it is in force in every process. Unknown, and so false, of a process that did not answer in time.
        is_everywhere: bool,
    },
    /// There is no key of this name, durably.
    Revoked {
        /// The key that was there; `None` if there was none, or one that could not be read.
        key: Option<StoredKey>,
        /// As with [`Done`](Self::Done).
        is_everywhere: bool,
    },
    /// The key is another one by now: nothing has changed.
    Overtaken,
    /// There is a key of this name already: nothing has changed.
    Exists,
    /// There is no key of this name: nothing has changed.
    Unknown,
    /// The limit of [`limits::STORED_KEYS`](notification::limits::STORED_KEYS) is reached: nothing has changed.
    TooMany,
}

/// All stored keys, by name.
pub type StoredKeys = Arc<Vec<StoredKey>>;

/// Keeps API keys. All of them are held in the memory of each process.
#[async_trait]
pub trait KeyStore: Send + Sync + fmt::Debug {
    /// Makes `change`, and waits until every process goes by it, or for as long as a process may be silent that is taken for alive.
    async fn change_key(&self, change: KeyChange) -> Result<KeyChanged, StoreError>;

    /// The keys as they are from now on. Another process's change is seen within
    /// [`limits::WORKER_BEAT`](notification::limits::WORKER_BEAT).
    fn watch_keys(&self) -> watch::Receiver<StoredKeys>;
}

// === impl KeyChange ===

impl KeyChange {
    /// The key that it changes.
    pub const fn name(&self) -> &Name {
        match self {
            Self::Add(StoredKey { name, .. }) | Self::Rotate { name, .. } | Self::Revoke(name) => {
                name
            }
        }
    }
}

// === impl StoredKey ===

impl StoredKey {
    /// This one with another key in place of its own, which is its former one up to `until`.
    pub(crate) fn rotated(self, sha256: KeyHash, until: Timestamp) -> Self {
        let former = FormerKey { sha256: self.sha256, until };
        Self { sha256, former: Some(former), ..self }
    }
}

// A hash is no secret, and yet nothing that a log should have.
impl fmt::Debug for StoredKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, tenant, sha256: _, former, grants, made_at } = self;
        let mut shown = formatter.debug_struct("StoredKey");
        shown.field("name", name).field("tenant", tenant).field("former", former);
        shown.field("grants", grants).field("made_at", made_at).finish_non_exhaustive()
    }
}

// === impl FormerKey ===

impl fmt::Debug for FormerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FormerKey").field("until", &self.until).finish_non_exhaustive()
    }
}
