//! Shares of tenants in what the API itself has few of: streams of events, and turns of the tools that watch the engine.

use std::sync::Arc;

use flow::Shares;
use notification::Name;
use notification::limits::OVERLOAD_RETRY_AFTER;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{EVENT_STREAMS, OPERATOR_WATCHES, TENANT_EVENT_STREAMS, TENANT_WATCHES};
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::tenant_share::TenantShare;

/// The rest of the shares, in one process.
#[derive(Debug)]
pub struct ApiShares {
    streams: Arc<Semaphore>,
    streams_of_tenants: Shares<Name>,
    /// Turns of operators that watch.
    operators: Arc<Semaphore>,
    /// The turn of tenants that watch.
    tenants: Arc<Semaphore>,
    turns_of_tenants: Shares<Name>,
    watches_of_tenants: Shares<Name>,
}

/// Room for a stream of events, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamRoom {
    _permit: OwnedSemaphorePermit,
    _of_tenant: Option<OwnedSemaphorePermit>,
}

/// The turn of a request that watches the engine, until it is dropped.
#[derive(Debug)]
pub(crate) struct WatchTurn {
    _permit: Option<OwnedSemaphorePermit>,
    _of_tenant: Option<[OwnedSemaphorePermit; 2]>,
}

// === impl ApiShares ===

impl ApiShares {
    /// Room for a stream of events to `tenant`; `None` where no keys are configured, so that there are no tenants that could share.
    pub(crate) fn open_stream(&self, tenant: Option<&Name>) -> Result<StreamRoom, Problem> {
        let of_tenant = match tenant {
            None => None,
            Some(tenant) => {
                let own = self.streams_of_tenants.of(tenant).try_acquire_owned();
                Some(own.map_err(|_| {
                    let detail = format!(
                        "this tenant has {TENANT_EVENT_STREAMS} streams of events open: close one, or use `wait`"
                    );
                    Problem::beyond(TenantShare::EventStreams, detail)
                        .retry_after(OVERLOAD_RETRY_AFTER)
                })?)
            }
        };
        let permit = Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let detail =
                format!("{EVENT_STREAMS} streams of events are open: ask again, or use `wait`");
            Problem::new(ProblemCode::TooManyStreams, detail).retry_after(OVERLOAD_RETRY_AFTER)
        })?;
        Ok(StreamRoom { _permit: permit, _of_tenant: of_tenant })
    }

    /// Waits until it is the turn of a request of `tenant` that watches the engine; `None` is an operator. Operators take turns among
    /// themselves, and wait for no tenant; tenants have one turn together, which goes around.
    pub(crate) async fn watch(&self, tenant: Option<&Name>) -> Result<WatchTurn, Problem> {
        // None of them is ever closed.
        let Some(tenant) = tenant else {
            let permit = Arc::clone(&self.operators).acquire_owned().await.ok();
            return Ok(WatchTurn { _permit: permit, _of_tenant: None });
        };
        let place = self.watches_of_tenants.of(tenant).try_acquire_owned();
        let place = place.map_err(|_| {
            let detail = format!(
                "{TENANT_WATCHES} requests of this tenant wait for metrics: ask one at a time"
            );
            Problem::beyond(TenantShare::Watches, detail).retry_after(OVERLOAD_RETRY_AFTER)
        })?;
        // Its own first: a tenant stands in the line of all once, however often it asks.
        let turn = self.turns_of_tenants.of(tenant).acquire_owned().await.ok();
        let permit = Arc::clone(&self.tenants).acquire_owned().await.ok();
        Ok(WatchTurn { _permit: permit, _of_tenant: turn.map(|turn| [place, turn]) })
    }
}

impl Default for ApiShares {
    fn default() -> Self {
        Self {
            streams: Arc::new(Semaphore::new(EVENT_STREAMS)),
            streams_of_tenants: Shares::new(TENANT_EVENT_STREAMS),
            operators: Arc::new(Semaphore::new(OPERATOR_WATCHES)),
            tenants: Arc::new(Semaphore::new(1)),
            turns_of_tenants: Shares::new(1),
            watches_of_tenants: Shares::new(TENANT_WATCHES),
        }
    }
}

#[cfg(test)]
mod tests {
    use flow::shares::IDLE_KEYS;
    use futures_util::FutureExt as _;

    use super::*;

    fn tenant(name: &str) -> Name {
        name.parse().unwrap()
    }

    #[test]
    fn a_tenant_that_streams_without_end_leaves_room_for_others() {
        let (shares, greedy, modest) = (ApiShares::default(), tenant("greedy"), tenant("modest"));
        let opened: Vec<_> =
            (0..100 * EVENT_STREAMS).map(|_| shares.open_stream(Some(&greedy))).collect();
        assert_eq!(opened.iter().filter(|room| room.is_ok()).count(), TENANT_EVENT_STREAMS);
        let refused = opened.iter().filter_map(|room| room.as_ref().err());
        assert!(refused.map(|problem| problem.code).all(|code| code == ProblemCode::TenantStreams));
        let others: Vec<_> = (TENANT_EVENT_STREAMS..EVENT_STREAMS)
            .map(|number| shares.open_stream(Some(&tenant(&format!("t{number}")))))
            .collect();
        assert!(others.iter().all(Result::is_ok));
        let beyond = shares.open_stream(Some(&modest)).unwrap_err();
        assert_eq!(beyond.code, ProblemCode::TooManyStreams, "that is of all together");
        drop(opened);
        assert!(shares.open_stream(Some(&modest)).is_ok());
    }

    #[test]
    fn operators_watch_however_many_tenants_do_and_tenants_take_turns() {
        let shares = ApiShares::default();
        let [greedy, modest] = ["greedy", "modest"].map(tenant);
        let mut asked: Vec<_> =
            (0..100 * TENANT_WATCHES).map(|_| Box::pin(shares.watch(Some(&greedy)))).collect();
        let mut turns: Vec<_> =
            asked.iter_mut().map(futures_util::FutureExt::now_or_never).collect();
        let refused = turns.iter().filter(|turn| matches!(turn, Some(Err(_)))).count();
        assert_eq!(refused, 99 * TENANT_WATCHES);
        assert_eq!(turns.iter().filter(|turn| matches!(turn, Some(Ok(_)))).count(), 1);
        for _ in 0..100 {
            assert!(matches!(shares.watch(None).now_or_never(), Some(Ok(_))));
        }
        let mut other = Box::pin(shares.watch(Some(&modest)));
        assert!((&mut other).now_or_never().is_none());
        // The first has had its turn: the next is not again the greedy one's, which has seven more in its own line.
        turns.clear();
        let turn = (&mut other).now_or_never();
        assert!(matches!(turn, Some(Ok(_))), "{turn:?}");
    }

    #[test]
    fn ten_thousand_tenants_leave_nothing_behind() {
        let shares = ApiShares::default();
        for number in 0..10_000 {
            let tenant = tenant(&format!("t{number}"));
            assert!(shares.open_stream(Some(&tenant)).is_ok());
            assert!(matches!(shares.watch(Some(&tenant)).now_or_never(), Some(Ok(_))));
        }
        for kept in
            [&shares.streams_of_tenants, &shares.turns_of_tenants, &shares.watches_of_tenants]
        {
            assert!(kept.keys_kept() <= IDLE_KEYS);
        }
    }
}
