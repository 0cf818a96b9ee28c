//! Connections of a listener by tenant: a bounded number of each, so that those of one leave places for others.
//!
//! A connection counts for the tenant whose key came by it last. One that a tenant keeps open and silent counts for it; one of a proxy,
//! which carries requests of many, moves from one to the next. Over HTTP/1.1 that bounds the requests under way as well. Over HTTP/2, where
//! a connection carries many at a time, these are counted by themselves.

use std::sync::Arc;

use flow::Shares;
use notification::{Name, limits::OVERLOAD_RETRY_AFTER};
use tokio::sync::OwnedSemaphorePermit;

use crate::limits::TENANT_STREAMS;
use crate::problem::Problem;
use crate::tenant_share::TenantShare;

/// The shares of tenants in a listener.
#[derive(Debug)]
pub(crate) struct TenantConnections {
    connections_max: usize,
    connections: Shares<Name>,
    streams: Shares<Name>,
}

/// A connection of a tenant; counted until this is dropped.
#[derive(Debug)]
pub(crate) struct TenantConnection {
    tenant: Name,
    _permit: OwnedSemaphorePermit,
}

/// A request of a tenant over HTTP/2; counted until all clones are dropped.
#[derive(Debug, Clone)]
pub(crate) struct TenantStream {
    _permit: Arc<OwnedSemaphorePermit>,
}

// === impl TenantConnections ===

impl TenantConnections {
    /// At most `connections_max` connections of a tenant, and [`TENANT_STREAMS`] requests over HTTP/2.
    pub(crate) fn new(connections_max: usize) -> Self {
        let (connections, streams) = (Shares::new(connections_max), Shares::new(TENANT_STREAMS));
        Self { connections_max, connections, streams }
    }

    /// Counts a connection by which a key of `tenant` came; `held` is the tenant that it counted for so far.
    ///
    /// # Errors
    /// When the tenant has as many others as it may. Then it counts as before.
    pub(crate) fn count(
        &self,
        held: &mut Option<TenantConnection>,
        tenant: &Name,
    ) -> Result<(), Problem> {
        // Mostly it is the same one, and nothing is to be counted.
        if held.as_ref().is_some_and(|held| held.tenant == *tenant) {
            return Ok(());
        }
        let permit = self.connections.of(tenant).try_acquire_owned().map_err(|_| {
            let max = self.connections_max;
            let detail = format!(
                "this tenant has {max} connections to this address already: send further requests by these, and close those that are idle"
            );
            Problem::beyond(TenantShare::Connections(max), detail).retry_after(OVERLOAD_RETRY_AFTER)
        })?;
        *held = Some(TenantConnection { tenant: tenant.clone(), _permit: permit });
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

    #[test]
    fn a_connection_counts_for_the_tenant_whose_key_came_last() {
        let counts = TenantConnections::new(2);
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
        let (counts, mut connection) = (TenantConnections::new(1), None);
        for number in 0..10_000 {
            assert!(counts.count(&mut connection, &tenant(number)).is_ok());
            assert!(counts.begin_stream(&tenant(number)).is_ok());
        }
        assert!(counts.connections.keys_kept() <= 2 * IDLE_KEYS);
        assert!(counts.streams.keys_kept() <= IDLE_KEYS);
    }

    #[test]
    fn requests_over_http2_are_counted_by_tenant() {
        let counts = TenantConnections::new(1);
        let (a, b) = (tenant(1), tenant(2));
        let held: Vec<_> = (0..TENANT_STREAMS).map(|_| counts.begin_stream(&a)).collect();
        assert!(held.iter().all(Result::is_ok));
        assert!(counts.begin_stream(&a).is_err());
        assert!(counts.begin_stream(&b).is_ok());
        drop(held);
        assert!(counts.begin_stream(&a).is_ok());
    }
}
