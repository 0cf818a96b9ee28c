//! The keys that a process knows: those of its configuration, and those that calls made.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use notification::Name;
use store::{FormerKey, KeyHash, KeyStore, StoredKey, StoredKeys};
use tokio::sync::watch;

use crate::grants::Grants;
use crate::grants_json;
use crate::key_rates::KeyRates;
use crate::keys::{ApiKey, Keys};

/// The keys of callers, as they are when a request comes.
pub struct KeyRing {
    configured: watch::Receiver<Keys>,
    store: Arc<dyn KeyStore>,
    stored: watch::Receiver<StoredKeys>,
    read: RwLock<ReadKeys>,
    rates: KeyRates,
}

/// Stored keys, and what was read of them.
#[derive(Default)]
struct ReadKeys {
    of: StoredKeys,
    keys: Keys,
}

// === impl KeyRing ===

impl KeyRing {
    /// The keys that `configured` has, and those in `store`.
    pub fn new(configured: watch::Receiver<Keys>, store: Arc<dyn KeyStore>) -> Self {
        let stored = store.watch_keys();
        Self { configured, store, stored, read: RwLock::default(), rates: KeyRates::default() }
    }

    /// True if no keys are configured: then every caller that reaches the server may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.configured.borrow().is_empty()
    }

    /// The key with this hash.
    pub(crate) fn find(&self, hash: &KeyHash) -> Option<Arc<ApiKey>> {
        self.configured.borrow().find(hash).or_else(|| self.find_stored(hash))
    }

    /// The configured keys.
    pub(crate) fn configured(&self) -> Keys {
        self.configured.borrow().clone()
    }

    /// The stored keys, by name.
    pub(crate) fn stored(&self) -> StoredKeys {
        Arc::clone(&self.stored.borrow())
    }

    /// Changes the stored keys.
    pub(crate) fn store(&self) -> &dyn KeyStore {
        &*self.store
    }

    /// The rates of keys, in this process.
    pub(crate) const fn rates(&self) -> &KeyRates {
        &self.rates
    }

    fn find_stored(&self, hash: &KeyHash) -> Option<Arc<ApiKey>> {
        let stored = self.stored();
        let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&read.of, &stored) {
            return read.keys.find(hash);
        }
        drop(read);
        // Each change is read once, by the first request after it.
        let keys = Keys::new(stored.iter().flat_map(usable).collect());
        let found = keys.find(hash);
        let mut read = self.read.write().unwrap_or_else(PoisonError::into_inner);
        *read = ReadKeys { of: stored, keys };
        found
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyRing").finish_non_exhaustive()
    }
}

/// The keys that callers may use of a stored one: itself, and the one before it.
fn usable(stored: &StoredKey) -> Vec<ApiKey> {
    let StoredKey { name, tenant, sha256, former, grants, .. } = stored;
    let Some(grants) = read_grants(name, grants) else { return Vec::new() };
    let key =
        |sha256, grants| ApiKey { name: name.clone(), tenant: tenant.clone(), sha256, grants };
    let of_former = |former: &FormerKey| {
        let not_after = grants.not_after.map_or(former.until, |last| last.min(former.until));
        key(former.sha256, Grants { not_after: Some(not_after), ..grants.clone() })
    };
    let former = former.as_ref().map(of_former);
    former.into_iter().chain([key(*sha256, grants)]).collect()
}

/// The grants of a stored key. Those that cannot be read, as those of a newer Belfry may be, are none.
fn read_grants(name: &Name, text: &str) -> Option<Grants> {
    let read = grants_json::read(text).inspect_err(|error| {
        tracing::error!(key = %name, ?error, "a stored API key is good for nothing here: its grants cannot be read");
    });
    read.ok()
}
