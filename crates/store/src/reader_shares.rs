//! Shares of readers: a tenant asks few questions at a time, so that its questions hold up no other tenant's, and none of an operator.

use std::fmt::Debug;
use std::sync::Arc;

use flow::Shares;
use notification::Name;
use notification::limits::{TENANT_READERS, TENANT_READS, TENANTS_READERS, TENANTS_READS};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::{ReadStore, StoreError};

/// Gives readers whose questions are those of a tenant.
pub trait TenantReads: Debug + Send + Sync {
    /// A reader for `tenant`. Its questions take turns with those of other tenants, [`TENANT_READERS`] of them at a time, beside which every
    /// other tenant finds a reader. They wait as `patience` says.
    fn of_tenant(&self, tenant: &Name, patience: Patience) -> Arc<dyn ReadStore>;
}

/// Whether a question waits behind many others of its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It is refused where [`TENANT_READS`] of the tenant are answered or wait ([`StoreError::TenantReads`]), or [`TENANTS_READS`] of all
    /// tenants ([`StoreError::TenantsReads`]).
    Bounded,
    /// It waits however many there are: its request has begun to change something, or to be answered.
    Unbounded,
}

/// The one whose question it is.
#[derive(Debug, Clone)]
pub(crate) enum Asker {
    /// The engine, or an operator: nothing is shared.
    Engine,
    Tenant(Name, Patience),
}

/// Questions of tenants that may be under way.
#[derive(Debug)]
pub(crate) struct ReaderShares {
    readers: Arc<Semaphore>,
    of_tenants: Shares<Name>,
    places: Arc<Semaphore>,
    places_of_tenants: Shares<Name>,
}

/// The permission to ask a question, until it is dropped. It must not be dropped before the question is answered, even if its caller is gone.
#[derive(Debug)]
pub(crate) struct ReaderTurn {
    _permits: Option<[OwnedSemaphorePermit; 2]>,
    _places: Option<[OwnedSemaphorePermit; 2]>,
}

// === impl ReaderShares ===

impl ReaderShares {
    pub(crate) fn new() -> Self {
        Self {
            readers: Arc::new(Semaphore::new(TENANTS_READERS)),
            of_tenants: Shares::new(TENANT_READERS),
            places: Arc::new(Semaphore::new(TENANTS_READS)),
            places_of_tenants: Shares::new(TENANT_READS),
        }
    }

    /// Waits until it is the turn of a question of `asker`.
    pub(crate) async fn turn(&self, asker: &Asker) -> Result<ReaderTurn, StoreError> {
        let Asker::Tenant(tenant, patience) = asker else {
            return Ok(ReaderTurn { _permits: None, _places: None });
        };
        let places = match patience {
            Patience::Bounded => Some(self.places(tenant)?),
            Patience::Unbounded => None,
        };
        // None of them is ever closed: the error is for the type alone.
        let closed = |error: AcquireError| StoreError::Broken(error.to_string());
        // The tenant's own first: it then has no more questions in the line of all tenants than it has readers, however many it asks,
        // and so the line serves tenants in turn.
        let own = self.of_tenants.of(tenant).acquire_owned().await.map_err(closed)?;
        let common = Arc::clone(&self.readers).acquire_owned().await.map_err(closed)?;
        Ok(ReaderTurn { _permits: Some([own, common]), _places: places })
    }

    fn places(&self, tenant: &Name) -> Result<[OwnedSemaphorePermit; 2], StoreError> {
        let own = self.places_of_tenants.of(tenant).try_acquire_owned();
        let own = own.map_err(|_| StoreError::TenantReads)?;
        let common = Arc::clone(&self.places).try_acquire_owned();
        Ok([own, common.map_err(|_| StoreError::TenantsReads)?])
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use flow::shares::IDLE_KEYS;

    use super::*;

    type Asked<'a> = Pin<Box<dyn Future<Output = Result<ReaderTurn, StoreError>> + 'a>>;

    fn tenant(name: &str, patience: Patience) -> Asker {
        Asker::Tenant(name.parse().unwrap(), patience)
    }

    /// The turn of a question, if it has come.
    fn look(asked: &mut Asked<'_>) -> Option<Result<ReaderTurn, StoreError>> {
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(turn) => Some(turn),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn a_tenant_that_asks_without_end_leaves_a_reader_to_another_and_is_refused_beyond_its_places()
    {
        let shares = ReaderShares::new();
        let (greedy, modest) =
            (tenant("greedy", Patience::Bounded), tenant("modest", Patience::Bounded));
        let mut asked: Vec<Asked<'_>> =
            (0..100 * TENANT_READS).map(|_| Box::pin(shares.turn(&greedy)) as Asked<'_>).collect();
        let mut looked: Vec<_> = asked.iter_mut().map(look).collect();
        let refused = looked.iter().filter(|it| matches!(it, Some(Err(StoreError::TenantReads))));
        assert_eq!(refused.count(), 99 * TENANT_READS);
        let answered = looked.iter().filter(|it| matches!(it, Some(Ok(_))));
        assert_eq!(answered.count(), TENANT_READERS);
        for _ in 0..1_000 {
            let mut other: Asked<'_> = Box::pin(shares.turn(&modest));
            assert!(matches!(look(&mut other), Some(Ok(_))), "at once, each time");
        }
        // One that cannot be refused waits behind those that came before.
        let patient = tenant("greedy", Patience::Unbounded);
        let mut last: Asked<'_> = Box::pin(shares.turn(&patient));
        assert!(look(&mut last).is_none());
        looked.clear();
        drop(asked);
        assert!(matches!(look(&mut last), Some(Ok(_))));
    }

    #[test]
    fn tenants_take_turns_and_the_engine_waits_for_none() {
        let shares = ReaderShares::new();
        let names = ["a", "b", "c"].map(|name| tenant(name, Patience::Bounded));
        // Ten questions of the first, and one of each other, in this order.
        let mut asked: Vec<(usize, Asked<'_>)> = [0; 10]
            .into_iter()
            .chain([1, 2])
            .map(|of| (of, Box::pin(shares.turn(&names[of])) as Asked<'_>))
            .collect();
        let mut turns: Vec<_> = asked.iter_mut().map(|(of, asked)| (*of, look(asked))).collect();
        let has_turn = |turns: &[(usize, Option<_>)], of| {
            turns.iter().filter(|(one, turn)| *one == of && turn.is_some()).count()
        };
        assert_eq!([0, 1, 2].map(|of| has_turn(&turns, of)), [2, 1, 0]);
        // The first of the two is answered: it is the third tenant's turn, although eight of the first came before.
        turns[0].1 = None;
        for (place, (_, asked)) in asked.iter_mut().enumerate().skip(1) {
            if turns[place].1.is_none() {
                turns[place].1 = look(asked);
            }
        }
        assert_eq!([0, 1, 2].map(|of| has_turn(&turns, of)), [1, 1, 1]);
        let mut engine: Asked<'_> = Box::pin(shares.turn(&Asker::Engine));
        assert!(matches!(look(&mut engine), Some(Ok(_))));
    }

    #[test]
    fn the_places_of_all_tenants_are_bounded_and_ten_thousand_tenants_leave_nothing_behind() {
        let shares = ReaderShares::new();
        let askers: Vec<_> =
            (0..10_000).map(|i| tenant(&format!("t{i}"), Patience::Bounded)).collect();
        let mut asked: Vec<Asked<'_>> =
            askers.iter().map(|asker| Box::pin(shares.turn(asker)) as Asked<'_>).collect();
        let looked: Vec<_> = asked.iter_mut().map(look).collect();
        let refused = looked.iter().filter(|it| matches!(it, Some(Err(StoreError::TenantsReads))));
        assert_eq!(refused.count(), 10_000 - TENANTS_READS);
        drop((asked, looked));
        for number in 0..30_000 {
            let later = tenant(&format!("later-{number}"), Patience::Bounded);
            let mut asked: Asked<'_> = Box::pin(shares.turn(&later));
            assert!(matches!(look(&mut asked), Some(Ok(_))));
        }
        for kept in [&shares.of_tenants, &shares.places_of_tenants] {
            assert!(kept.keys_kept() <= IDLE_KEYS, "{}", kept.keys_kept());
        }
    }
}
