//! Shares of something that is scarce: a bounded number of permits for each of those who share it, however many there are.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

/// Semaphores by key, each with the same number of permits. Those of which no permit is out are forgotten when as many keys have come anew
/// as were in use, and [`IDLE_KEYS`].
pub struct Shares<K> {
    each_max: usize,
    kept: Mutex<KeptShares<K>>,
}

struct KeptShares<K> {
    by_key: HashMap<K, Arc<Semaphore>>,
    /// The number of keys at which those that are not in use are forgotten: rarely, so that it costs little for each key.
    forget_at: usize,
}

/// Keys without permits out that are kept in any case.
pub const IDLE_KEYS: usize = 64;

// === impl Shares ===

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Shares of `each_max` permits.
    pub fn new(each_max: usize) -> Self {
        let kept = KeptShares { by_key: HashMap::new(), forget_at: IDLE_KEYS };
        Self { each_max, kept: Mutex::new(kept) }
    }

    /// The permits of `key`, to be taken with the semaphore ([`OwnedSemaphorePermit`](tokio::sync::OwnedSemaphorePermit)): it is kept while
    /// one is out, so that all of a key come from the same one.
    pub fn of(&self, key: &K) -> Arc<Semaphore> {
        // Every critical section leaves the map whole, even if it panicked.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = kept.by_key.get(key) {
            return Arc::clone(share);
        }
        if kept.by_key.len() >= kept.forget_at {
            // A permit holds its semaphore, so one that only the map holds is not in use.
            kept.by_key.retain(|_, share| Arc::strong_count(share) > 1);
            kept.forget_at = 2 * kept.by_key.len() + IDLE_KEYS;
        }
        let share = Arc::new(Semaphore::new(self.each_max));
        kept.by_key.insert(key.clone(), Arc::clone(&share));
        share
    }

    /// Keys that take memory.
    pub fn keys_kept(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).by_key.len()
    }
}

impl<K> fmt::Debug for Shares<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shares").field("each_max", &self.each_max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_permits_and_one_without_any_out_is_forgotten() {
        let shares = Shares::new(2);
        let take = |key: u32| shares.of(&key).try_acquire_owned();
        let held: Vec<_> = (0..10_000).flat_map(|key| [take(key), take(key)]).collect();
        assert!(held.iter().all(Result::is_ok));
        assert!((0..10_000).all(|key| take(key).is_err()), "each has its own, and no more");
        assert_eq!(shares.keys_kept(), 10_000);
        drop(held);
        assert!((10_000..40_000).all(|key| take(key).is_ok()));
        assert!(shares.keys_kept() <= IDLE_KEYS, "{}", shares.keys_kept());
    }
}
