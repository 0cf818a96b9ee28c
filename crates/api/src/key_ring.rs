//! The keys that a process knows: those of its configuration, and those that calls made.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use flow::{Clock, WorkerDeadline};
use notification::Name;
use store::{FormerKey, KeyHash, KeyStore, StoredKey, StoredKeys};
use tokio::sync::watch;

use crate::grants::Grants;
use crate::grants_json;
use crate::key_rates::KeyRates;
use crate::keys::{ApiKey, Keys};
use crate::sessions::{SessionToken, Sessions};

/// The keys of callers, as they are when a request comes.
pub struct KeyRing {
    configured: watch::Receiver<Keys>,
    store: Arc<dyn KeyStore>,
    stored: watch::Receiver<StoredKeys>,
    read: RwLock<ReadKeys>,
    rates: KeyRates,
    sessions: Sessions,
    /// Passed while this process may not know of a change.
    deadline: WorkerDeadline,
    clock: Clock,
}

/// Stored keys cannot be told to be good: this process is cut off from its store, where they may have been revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeysUnknown;

/// Stored keys, and what was read of them.
#[derive(Default)]
struct ReadKeys {
    of: StoredKeys,
    keys: Keys,
}

// === impl KeyRing ===

impl KeyRing {
    /// The keys that `configured` has, and those in `store`. Its keys are good up to `deadline`, by which a process that is cut off from
    /// the store may be taken for gone.
    pub fn new(
        configured: watch::Receiver<Keys>,
        store: Arc<dyn KeyStore>,
        (deadline, clock): (WorkerDeadline, Clock),
    ) -> Self {
        let (stored, read, rates) = (store.watch_keys(), RwLock::default(), KeyRates::default());
        let sessions = Sessions::default();
        Self { configured, store, stored, read, rates, sessions, deadline, clock }
    }

    /// True if no keys are configured: then every caller that reaches the server may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.configured.borrow().is_empty()
    }

    /// The key with this hash.
    pub(crate) fn find(&self, hash: &KeyHash) -> Result<Option<Arc<ApiKey>>, KeysUnknown> {
        if let Some(key) = self.configured.borrow().find(hash) {
            return Ok(Some(key));
        }
        let found = self.find_stored(hash);
        // Of a key that is not known nothing is said: it may be one that was made meanwhile.
        if found.is_some() && self.deadline.is_over(self.clock) {
            return Err(KeysUnknown);
        }
        Ok(found)
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

    /// The sessions of browsers that stand for keys, in this process.
    pub(crate) const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// True while the session of `token` has not ended.
    pub(crate) fn has_session(&self, token: &SessionToken) -> bool {
        self.sessions.has(token, self.clock.boot())
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::{KeyChange, Memory};

    use super::*;
    use crate::grants::KeyScope;
    use crate::grants_json::write;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_is_cut_off_from_the_store_knows_the_configured_keys_alone() {
        let grants = Grants::of([KeyScope::Send]);
        let stored = StoredKey {
            name: name("stored"),
            tenant: name("shop"),
            sha256: [1; 32],
            former: None,
            grants: write(&grants),
            made_at: notification::Timestamp::from_millis(0),
        };
        let store = Memory::new();
        store.change_key(KeyChange::Add(stored)).await.unwrap();
        let key = ApiKey { name: name("own"), tenant: name("shop"), sha256: [2; 32], grants };
        let configured = watch::channel(Keys::new(vec![key])).1;
        let (deadline, clock) = (WorkerDeadline::passed(), Clock::starting_at(Duration::ZERO));
        let ring = KeyRing::new(configured, Arc::new(store), (deadline.clone(), clock));
        let found = |byte| ring.find(&[byte; 32]).map(|key| key.map(|key| key.name.to_string()));
        assert_eq!(found(1), Err(KeysUnknown));
        assert_eq!(found(2), Ok(Some("own".to_owned())));
        assert_eq!(found(3), Ok(None));
        deadline.extend(7, clock.boot(), Duration::from_secs(5));
        assert_eq!(found(1), Ok(Some("stored".to_owned())));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(found(1), Err(KeysUnknown));
    }
}
