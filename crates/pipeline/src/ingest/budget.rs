//! The memory that requests may hold: one sum for all, a share for each tenant, and a reserve for small requests.

use std::sync::Arc;

use flow::Shares;
use notification::Name;
use notification::limits::{
    IDLE_TIMEOUT, INGEST_BYTES, INGEST_RESERVE, INGEST_SMALL, INGEST_TENANT_BYTES,
    OVERLOAD_RETRY_AFTER,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::{IngestError, IngestShare};

/// Bytes that are not held.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes free to any request.
    common: Arc<Semaphore>,
    /// Bytes free only to requests of at most [`INGEST_SMALL`].
    reserve: Arc<Semaphore>,
    /// Bytes free to each tenant that holds some.
    of_tenants: Shares<Name>,
}

/// Bytes set aside for one request; given back when dropped.
#[derive(Debug, Default)]
pub struct Reservation {
    of_tenant: Option<OwnedSemaphorePermit>,
    common: Option<OwnedSemaphorePermit>,
    reserve: Option<OwnedSemaphorePermit>,
}

// === impl Budget ===

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            common: Arc::new(Semaphore::new(INGEST_BYTES - INGEST_RESERVE)),
            reserve: Arc::new(Semaphore::new(INGEST_RESERVE)),
            of_tenants: Shares::new(INGEST_TENANT_BYTES),
        }
    }

    /// Adds `bytes` to the bytes that `tenant` holds in `held`, or refuses at once. Requests that are small altogether find room
    /// in the reserve when the rest is used up.
    pub(super) fn take(
        &self,
        tenant: &Name,
        bytes: usize,
        held: &mut Reservation,
    ) -> Result<(), IngestError> {
        let retry_after = OVERLOAD_RETRY_AFTER;
        // More than a semaphore can count is refused like anything that finds no room.
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let of_tenant = self.of_tenants.of(tenant).try_acquire_many_owned(permits);
        let of_tenant = of_tenant.map_err(|_| IngestError::TenantOverloaded {
            share: IngestShare::Bytes,
            retry_after,
        })?;
        // When there is no room beyond the tenant's share, the permit of the share is dropped, and so given back.
        let common = Arc::clone(&self.common).try_acquire_many_owned(permits);
        let is_small = held.bytes() + bytes <= INGEST_SMALL;
        match common {
            Ok(common) => merge(&mut held.common, common),
            // Small ones alone: a few large requests would use the reserve up.
            Err(_) if is_small => {
                let reserve = Arc::clone(&self.reserve).try_acquire_many_owned(permits);
                let reserve = reserve.map_err(|_| IngestError::Overloaded { retry_after })?;
                merge(&mut held.reserve, reserve);
            }
            Err(_) => return Err(IngestError::Overloaded { retry_after }),
        }
        // At the end: a refusal leaves what is held as it was.
        merge(&mut held.of_tenant, of_tenant);
        Ok(())
    }

    /// Waits until `tenant` may hold `bytes`, behind earlier waits, for [`IDLE_TIMEOUT`] at most.
    pub(super) async fn wait(
        &self,
        tenant: &Name,
        bytes: usize,
    ) -> Result<Reservation, IngestError> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let retry_after = OVERLOAD_RETRY_AFTER;
        let share = self.of_tenants.of(tenant);
        let room = async {
            // The tenant's own first: while that is waited for, no other tenant lacks anything. Neither is ever closed.
            let of_tenant = Arc::clone(&share).acquire_many_owned(permits).await.ok();
            let common = Arc::clone(&self.common).acquire_many_owned(permits).await.ok();
            Reservation { of_tenant, common, reserve: None }
        };
        timeout(IDLE_TIMEOUT, room).await.map_err(|_| {
            // The exhausted budget decides the answer: the tenant's (429) or that of all tenants together (503).
            if share.available_permits() < bytes {
                return IngestError::TenantOverloaded { share: IngestShare::Bytes, retry_after };
            }
            IngestError::Overloaded { retry_after }
        })
    }
}

// === impl Reservation ===

impl Reservation {
    /// True if no bytes are reserved.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Bytes of the reservation.
    fn bytes(&self) -> usize {
        self.of_tenant.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

fn merge(held: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Name {
        name.parse().unwrap()
    }

    fn take(budget: &Budget, whose: &str, bytes: usize) -> Result<Reservation, IngestError> {
        let mut held = Reservation::default();
        budget.take(&tenant(whose), bytes, &mut held).map(|()| held)
    }

    #[test]
    fn a_tenant_that_holds_its_share_keeps_no_other_tenant_from_anything() {
        let budget = Budget::new();
        let retry_after = OVERLOAD_RETRY_AFTER;
        let most = take(&budget, "greedy", INGEST_TENANT_BYTES).unwrap();
        let refused = take(&budget, "greedy", 1).unwrap_err();
        assert_eq!(
            refused,
            IngestError::TenantOverloaded { share: IngestShare::Bytes, retry_after }
        );
        assert!(
            take(&budget, "other", INGEST_BYTES - INGEST_RESERVE - INGEST_TENANT_BYTES).is_ok()
        );
        drop(most);
        assert!(take(&budget, "greedy", INGEST_TENANT_BYTES).is_ok());
    }

    #[test]
    fn small_requests_find_room_when_large_ones_hold_everything() {
        let budget = Budget::new();
        let rest = INGEST_BYTES - INGEST_RESERVE - INGEST_TENANT_BYTES;
        let _large = (take(&budget, "a", INGEST_TENANT_BYTES), take(&budget, "b", rest).unwrap());
        let refused = take(&budget, "c", INGEST_SMALL + 1).unwrap_err();
        assert_eq!(refused, IngestError::Overloaded { retry_after: OVERLOAD_RETRY_AFTER });
        let mut small = take(&budget, "c", INGEST_SMALL - 1).unwrap();
        budget.take(&tenant("c"), 1, &mut small).unwrap();
        assert!(budget.take(&tenant("c"), 1, &mut small).is_err(), "it is not small any more");
        let all: Vec<Reservation> = (1..INGEST_RESERVE / INGEST_SMALL)
            .map(|_| take(&budget, "c", INGEST_SMALL).unwrap())
            .collect();
        assert!(take(&budget, "c", 1).is_err(), "the reserve is bounded too");
        drop(all);
        assert!(take(&budget, "c", 1).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_room_has_it_once_it_is_given_back_or_learns_whose_fault_it_is() {
        let (budget, retry_after) = (Budget::new(), OVERLOAD_RETRY_AFTER);
        let held = take(&budget, "a", INGEST_TENANT_BYTES).unwrap();
        let refused = budget.wait(&tenant("a"), 2).await.unwrap_err();
        assert_eq!(
            refused,
            IngestError::TenantOverloaded { share: IngestShare::Bytes, retry_after }
        );
        let a = tenant("a");
        let mut waiting = Box::pin(budget.wait(&a, 2));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(held);
        assert_eq!(waiting.await.unwrap().bytes(), 2);
        assert_eq!(budget.of_tenants.keys_kept(), 1, "one share for all of a tenant");

        let rest = INGEST_BYTES - INGEST_RESERVE - INGEST_TENANT_BYTES;
        let _all = (take(&budget, "a", INGEST_TENANT_BYTES), take(&budget, "b", rest).unwrap());
        let refused = budget.wait(&tenant("c"), 2).await.unwrap_err();
        assert_eq!(refused, IngestError::Overloaded { retry_after });
    }
}
