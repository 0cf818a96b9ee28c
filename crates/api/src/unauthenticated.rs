//! Connections by which no key came so far: a bounded number of each address, so that silent sockets of one leave places for others. And
//! the note on a connection, which says whose it is.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notification::Name;
use tokio::sync::watch;

use crate::problem::Problem;
use crate::tenant_connections::{TenantConnection, TenantConnections, TenantStream};

/// The numbers of such connections.
#[derive(Debug)]
pub(crate) struct Unauthenticated {
    each_max: usize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// The place of one of them; free when dropped.
#[derive(Debug)]
pub(crate) struct UnauthenticatedPlace {
    counts: Arc<Unauthenticated>,
    address: IpAddr,
}

/// A note on a connection, which its requests share.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionNote(Arc<NoteState>);

#[derive(Debug)]
struct NoteState {
    owner: Mutex<ConnectionOwner>,
    tenants: Arc<TenantConnections>,
    stage: watch::Sender<ConnectionStage>,
}

#[derive(Debug)]
struct ConnectionOwner {
    /// `None` once a key came that is known.
    unauthenticated: Option<UnauthenticatedPlace>,
    /// The tenant whose key came last.
    tenant: Option<TenantConnection>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionStage {
    /// Without a request so far.
    New,
    /// The head of a request came.
    Asked,
    /// It is to be closed: it came beyond the share of its tenant.
    Unwanted,
}

// === impl Unauthenticated ===

impl Unauthenticated {
    /// At most `each_max` connections of an address.
    pub(crate) fn new(each_max: usize) -> Self {
        Self { each_max, by_address: Mutex::default() }
    }

    /// A place for a connection from `address`, if there is one.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<UnauthenticatedPlace> {
        let address = network(address);
        let mut by_address = self.lock();
        let count = by_address.entry(address).or_default();
        if *count >= self.each_max {
            return None;
        }
        *count += 1;
        Some(UnauthenticatedPlace { counts: Arc::clone(self), address })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Every critical section leaves the counts whole, even if it panicked.
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address of IPv4 in either spelling, or the first 64 bits of one of IPv6: one machine has all addresses behind these.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

// === impl UnauthenticatedPlace ===

impl Drop for UnauthenticatedPlace {
    fn drop(&mut self) {
        let mut by_address = self.counts.lock();
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            // Addresses come without end: one without a connection is forgotten.
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

// === impl ConnectionNote ===

impl ConnectionNote {
    /// A note on a new connection of a listener whose `tenants` share its connections, and its place if it takes one.
    pub(crate) fn new(
        place: impl Into<Option<UnauthenticatedPlace>>,
        tenants: &Arc<TenantConnections>,
    ) -> Self {
        let owner = Mutex::new(ConnectionOwner { unauthenticated: place.into(), tenant: None });
        let stage = watch::Sender::new(ConnectionStage::New);
        Self(Arc::new(NoteState { owner, tenants: Arc::clone(tenants), stage }))
    }

    /// Notes that the head of a request came.
    pub(crate) fn note_request(&self) {
        // Looked at first: it is noted with the first request alone, and each one comes by here.
        if *self.0.stage.borrow() == ConnectionStage::New {
            self.0.stage.send_replace(ConnectionStage::Asked);
        }
    }

    /// Notes that a request had a key that is known, of `tenant`, or needed none: the place is free, and the connection is that of the tenant.
    ///
    /// # Errors
    /// When the tenant has as many connections as it may. Then this one is to be closed.
    pub(crate) fn note_key(&self, tenant: Option<&Name>) -> Result<(), Problem> {
        // Every critical section leaves the owner whole, even if it panicked.
        let mut owner = self.0.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tenant) = tenant {
            // One that is refused keeps its place: until its caller lets it end, it counts for its address.
            self.0.tenants.count(&mut owner.tenant, tenant).inspect_err(|_| {
                self.0.stage.send_replace(ConnectionStage::Unwanted);
            })?;
        }
        owner.unauthenticated = None;
        Ok(())
    }

    /// Counts a request of `tenant` that came by HTTP/2.
    pub(crate) fn begin_stream(&self, tenant: &Name) -> Result<TenantStream, Problem> {
        self.0.tenants.begin_stream(tenant)
    }

    /// Waits for the head of the first request.
    pub(crate) async fn asked(&self) {
        self.reaches(|stage| stage != ConnectionStage::New).await;
    }

    /// Waits until it is to be closed.
    pub(crate) async fn unwanted(&self) {
        self.reaches(|stage| stage == ConnectionStage::Unwanted).await;
    }

    async fn reaches(&self, is_it: impl Fn(ConnectionStage) -> bool) {
        let mut stage = self.0.stage.subscribe();
        // The sender is here: the wait ends in no other way.
        let _reached = stage.wait_for(|stage| is_it(*stage)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_places_and_one_by_which_a_key_came_takes_none() {
        let counts = Arc::new(Unauthenticated::new(2));
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let slots = Arc::new(tokio::sync::Semaphore::new(0));
        let tenants = Arc::new(TenantConnections::new(slots, 1));
        let first = ConnectionNote::new(counts.admit(one).unwrap(), &tenants);
        let second = counts.admit("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert!(counts.admit(one).is_none(), "it has two, however they are written");
        assert!(counts.admit(other).is_some(), "another has its own");
        first.note_key(None).unwrap();
        let third = counts.admit(one).unwrap();
        assert!(counts.admit(one).is_none());
        drop((second, third));
        assert!(counts.lock().is_empty(), "nothing is kept of an address that is gone");
        first.note_key(None).unwrap();
        assert!(counts.lock().is_empty());
    }

    #[test]
    fn the_addresses_of_one_machine_by_ipv6_are_one() {
        let counts = Arc::new(Unauthenticated::new(1));
        let admit = |address: &str| counts.admit(address.parse().unwrap());
        let _place = admit("2001:db8:0:1::1").unwrap();
        assert!(admit("2001:db8:0:1:ffff::2").is_none());
        assert!(admit("2001:db8:0:2::1").is_some());
    }
}
