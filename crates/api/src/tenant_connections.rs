//! Connections of a listener by tenant: a share of each, so that those of one leave places for others. What no other one wants a tenant may
//! have beyond its share, until there are few places left: its requests by those connections are refused from then on, and the connections
//! closed.
//!
//! A connection counts for the tenant whose key came by it last. One that a tenant keeps open and silent counts for it; one of a proxy,
//! which carries requests of many, moves from one to the next. Over HTTP/1.1 that bounds the requests under way as well. Over HTTP/2, where
//! a connection carries many at a time, these are counted by themselves.

use std::sync::Arc;

use flow::Shares;
use notification::{Name, limits::OVERLOAD_RETRY_AFTER};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::TENANT_STREAMS;
use crate::problem::Problem;
use crate::tenant_share::TenantShare;

/// The shares of tenants in a listener.
#[derive(Debug)]
pub(crate) struct TenantConnections {
    /// The places of the listener.
    slots: Arc<Semaphore>,
    /// The share of one tenant; with as many places free, others have theirs.
    share: usize,
    connections: Shares<Name>,
    streams: Shares<Name>,
}

/// A connection of a tenant; counted until this is dropped.
#[derive(Debug)]
pub(crate) struct TenantConnection {
    tenant: Name,
    /// `None` beyond the share.
    permit: Option<OwnedSemaphorePermit>,
}

/// A request of a tenant over HTTP/2; counted until all clones are dropped.
#[derive(Debug, Clone)]
pub(crate) struct TenantStream {
    _permit: Arc<OwnedSemaphorePermit>,
}

// === impl TenantConnections ===

impl TenantConnections {
    /// For each tenant `share` of the connections that take `slots`, and more while as many are free; and [`TENANT_STREAMS`] requests over
    /// HTTP/2.
    pub(crate) fn new(slots: Arc<Semaphore>, share: usize) -> Self {
        let (connections, streams) = (Shares::new(share), Shares::new(TENANT_STREAMS));
        Self { slots, share, connections, streams }
    }

    /// Counts a connection by which a key of `tenant` came; `held` is the tenant that it counted for so far.
    ///
    /// # Errors
    /// When the tenant has as many others as it may. Then it counts as before, and is to be closed.
    pub(crate) fn count(
        &self,
        held: &mut Option<TenantConnection>,
        tenant: &Name,
    ) -> Result<(), Problem> {
        // Mostly it is the same one, and nothing is to be counted.
        if held.as_ref().is_some_and(|held| held.tenant == *tenant && held.permit.is_some()) {
            return Ok(());
        }
        let permit = self.connections.of(tenant).try_acquire_owned().ok();
        if permit.is_none() && self.slots.available_permits() < self.share {
            let share = self.share;
            let detail = format!(
                "this tenant has more than its {share} connections to this address, and few are left for others: send further requests by \
                 fewer connections, and close those that are idle"
            );
            return Err(Problem::beyond(TenantShare::Connections(share), detail)
                .retry_after(OVERLOAD_RETRY_AFTER));
        }
        *held = Some(TenantConnection { tenant: tenant.clone(), permit });
        Ok(())
    }

    /// Counts a request of `tenant` over HTTP/2.
    ///
    /// # Errors
    /// When the tenant has as many others under way as it may.
    pub(crate) fn begin_stream(&self, tenant: &Name) -> Result<TenantStream, Problem> {
        let permit = self.streams.of(tenant).try_acquire_owned().map_err(|_| {
            let detail = format!(
                "this tenant has {TENANT_STREAMS} requests under way already: send fewer at a time"
            );
            Problem::beyond(TenantShare::Requests, detail).retry_after(OVERLOAD_RETRY_AFTER)
        })?;
        Ok(TenantStream { _permit: Arc::new(permit) })
    }
}

#[cfg(test)]
mod tests {
    use flow::shares::IDLE_KEYS;

    use super::*;

    fn tenant(number: usize) -> Name {
        format!("t{number}").parse().unwrap()
    }

    /// The shares in a listener without a free place.
    fn crowded(share: usize) -> TenantConnections {
        TenantConnections::new(Arc::new(Semaphore::new(0)), share)
    }

    #[test]
    fn what_is_free_is_for_those_beyond_their_share_until_others_come() {
        let slots = Arc::new(Semaphore::new(2));
        let counts = TenantConnections::new(Arc::clone(&slots), 2);
        let mut held: Vec<Option<TenantConnection>> = (0..4).map(|_| None).collect();
        for connection in &mut held {
            assert!(counts.count(connection, &tenant(1)).is_ok());
        }
        let [first, _second, third, fourth] = held.as_mut_slice() else { return };
        let other = slots.try_acquire().unwrap();
        assert!(counts.count(&mut None, &tenant(2)).is_ok());
        assert!(counts.count(first, &tenant(1)).is_ok(), "it is within the share");
        assert!(counts.count(third, &tenant(1)).is_err());
        assert!(counts.count(fourth, &tenant(1)).is_err());
        *first = None;
        assert!(counts.count(third, &tenant(1)).is_ok(), "now it is within the share");
        assert!(counts.count(fourth, &tenant(1)).is_err());
        drop(other);
        assert!(counts.count(fourth, &tenant(1)).is_ok());
    }

    #[test]
    fn a_connection_counts_for_the_tenant_whose_key_came_last() {
        let counts = crowded(2);
        let (a, b) = (tenant(1), tenant(2));
        let mut connections: Vec<Option<TenantConnection>> = (0..3).map(|_| None).collect();
        let [first, second, third] = connections.as_mut_slice() else { return };
        assert!(counts.count(first, &a).is_ok());
        assert!(counts.count(second, &a).is_ok());
        assert!(counts.count(first, &a).is_ok(), "it is counted once");
        assert!(counts.count(third, &a).is_err());
        // A proxy sends a request of another tenant by the first one: there is room again.
        assert!(counts.count(first, &b).is_ok());
        assert!(counts.count(third, &a).is_ok());
        assert!(counts.count(first, &a).is_err(), "it stays the other's");
        assert!(counts.count(first, &b).is_ok());
        *second = None;
        assert!(counts.count(first, &a).is_ok());
    }

    #[test]
    fn ten_thousand_tenants_by_one_connection_leave_nothing_behind() {
        let (counts, mut connection) = (crowded(1), None);
        for number in 0..10_000 {
            assert!(counts.count(&mut connection, &tenant(number)).is_ok());
            assert!(counts.begin_stream(&tenant(number)).is_ok());
        }
        assert!(counts.connections.keys_kept() <= 2 * IDLE_KEYS);
        assert!(counts.streams.keys_kept() <= IDLE_KEYS);
    }

    #[test]
    fn requests_over_http2_are_counted_by_tenant() {
        let counts = crowded(1);
        let (a, b) = (tenant(1), tenant(2));
        let held: Vec<_> = (0..TENANT_STREAMS).map(|_| counts.begin_stream(&a)).collect();
        assert!(held.iter().all(Result::is_ok));
        assert!(counts.begin_stream(&a).is_err());
        assert!(counts.begin_stream(&b).is_ok());
        drop(held);
        assert!(counts.begin_stream(&a).is_ok());
    }
}
