//! Shares of tenants in what the API itself has few of: streams of events, and turns of the tools that watch the engine.

use std::sync::Arc;

use flow::Shares;
use notification::Name;
use notification::limits::OVERLOAD_RETRY_AFTER;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller::Caller;
use crate::limits::{EVENT_STREAMS, OPERATOR_WATCHES, TENANT_EVENT_STREAMS, TENANT_WATCHES};
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::tenant_share::TenantShare;

/// What is left of the shares, in one process.
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
    /// Room for a stream of events to `caller`.
    pub(crate) fn open_stream(&self, caller: &Caller) -> Result<StreamRoom, Problem> {
        // Without keys there are no tenants that could share.
        let of_tenant = match caller.key() {
            None => None,
            Some(_) => {
                let own = self.streams_of_tenants.of(&caller.tenant).try_acquire_owned();
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

    /// Waits until it is the turn of a request of `caller` that watches the engine. Operators take turns among themselves, and wait for no
    /// tenant; tenants have one turn together, which goes around.
    pub(crate) async fn watch(&self, caller: &Caller) -> Result<WatchTurn, Problem> {
        // None of them is ever closed.
        if caller.is_operator {
            let permit = Arc::clone(&self.operators).acquire_owned().await.ok();
            return Ok(WatchTurn { _permit: permit, _of_tenant: None });
        }
        let place = self.watches_of_tenants.of(&caller.tenant).try_acquire_owned();
        let place = place.map_err(|_| {
            let detail = format!(
                "{TENANT_WATCHES} requests of this tenant wait for metrics: ask one at a time"
            );
            Problem::beyond(TenantShare::Watches, detail).retry_after(OVERLOAD_RETRY_AFTER)
        })?;
        // Its own first: a tenant stands in the line of all once, however often it asks.
        let turn = self.turns_of_tenants.of(&caller.tenant).acquire_owned().await.ok();
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
