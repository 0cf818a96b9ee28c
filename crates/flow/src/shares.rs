//! Shares of something that is scarce: a bounded number of permits for each of those who share it, however many there are.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

/// Semaphores by key, each with the same number of permits. Memory is taken only for the keys of which permits are out.
pub struct Shares<K> {
    each_max: usize,
    in_use: Mutex<HashMap<K, Arc<Semaphore>>>,
}

// === impl Shares ===

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Shares of `each_max` permits.
    pub fn new(each_max: usize) -> Self {
        Self { each_max, in_use: Mutex::default() }
    }

    /// The permits of `key`. Whoever takes one holds the semaphore with it ([`OwnedSemaphorePermit`](tokio::sync::OwnedSemaphorePermit)), so
    /// that all of a key come from the same one.
    pub fn of(&self, key: &K) -> Arc<Semaphore> {
        // Every critical section leaves the map whole, even if it panicked.
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = in_use.get(key) {
            return Arc::clone(share);
        }
        // A permit holds its semaphore, so one that only the map holds is not in use.
        in_use.retain(|_, share| Arc::strong_count(share) > 1);
        let share = Arc::new(Semaphore::new(self.each_max));
        in_use.insert(key.clone(), Arc::clone(&share));
        share
    }

    /// Keys that take memory: those of which permits are out, and others until the next one comes.
    pub fn keys_kept(&self) -> usize {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).len()
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
        assert!(take(10_000).is_ok());
        assert_eq!(shares.keys_kept(), 1);
    }
}
