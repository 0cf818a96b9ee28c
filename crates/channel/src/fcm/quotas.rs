//! The quotas of one process. Google counts per project, over all its senders.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flow::Quota;

/// The quotas of one process: channels that send for the same project at the same rate share one, and so do a channel and the
/// one that replaces it. Different rates for one project are shares of its quota that the settings have divided.
#[derive(Debug, Default)]
pub struct Quotas(Mutex<Vec<SharedQuota>>);

#[derive(Debug)]
struct SharedQuota {
    project: Arc<str>,
    per_minute: NonZeroU32,
    quota: Weak<Quota>,
}

// === impl Quotas ===

impl Quotas {
    /// The quota of `project`, the same for all that ask while it is in use.
    pub(super) fn of(&self, project: &Arc<str>, per_minute: NonZeroU32) -> Arc<Quota> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|known| known.quota.strong_count() > 0);
        let is_meant =
            |known: &&SharedQuota| known.project == *project && known.per_minute == per_minute;
        let shared = known.iter().find(is_meant).and_then(|known| known.quota.upgrade());
        shared.unwrap_or_else(|| {
            let quota = Arc::new(Quota::per_minute(per_minute));
            let project = Arc::clone(project);
            known.push(SharedQuota { project, per_minute, quota: Arc::downgrade(&quota) });
            quota
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_one_quota_for_as_long_as_it_has_users() {
        let quotas = Quotas::default();
        let of = |project: &str, count: u32| {
            quotas.of(&Arc::from(project), NonZeroU32::new(count).unwrap())
        };
        let first = of("shop", 600);
        assert!(Arc::ptr_eq(&first, &of("shop", 600)));
        assert!(!Arc::ptr_eq(&first, &of("other", 600)));
        assert!(!Arc::ptr_eq(&first, &of("shop", 300)), "a share of its own");
        drop(first);
        let _next = of("third", 1);
        assert_eq!(quotas.0.lock().unwrap().len(), 1, "a quota without users is forgotten");
    }
}
