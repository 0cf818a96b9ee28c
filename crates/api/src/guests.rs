//! Connections that have shown no key yet: so many from each address, so that one that opens sockets and is silent leaves places for
//! others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The connections without a key, by address.
#[derive(Debug)]
pub(crate) struct Guests {
    each_max: usize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// The place of one connection among them; free when dropped.
#[derive(Debug)]
pub(crate) struct GuestPlace {
    guests: Arc<Guests>,
    address: IpAddr,
}

/// A connection, as its requests know it.
#[derive(Debug, Clone)]
pub(crate) struct Guest(Arc<GuestState>);

#[derive(Debug)]
struct GuestState {
    /// `None` once it has shown a key.
    place: Mutex<Option<GuestPlace>>,
    /// True once the head of a request came.
    asked: watch::Sender<bool>,
}

// === impl Guests ===

impl Guests {
    /// At most `each_max` connections of an address.
    pub(crate) fn new(each_max: usize) -> Self {
        Self { each_max, by_address: Mutex::default() }
    }

    /// A place for a connection from `address`, if there is one.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<GuestPlace> {
        // An IPv4 address may be written as IPv6.
        let address = address.to_canonical();
        let mut by_address = self.lock();
        let count = by_address.entry(address).or_default();
        if *count >= self.each_max {
            return None;
        }
        *count += 1;
        Some(GuestPlace { guests: Arc::clone(self), address })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Every critical section leaves the counts whole, even if it panicked.
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl GuestPlace ===

impl Drop for GuestPlace {
    fn drop(&mut self) {
        let mut by_address = self.guests.lock();
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            // Addresses come without end: one without a connection is forgotten.
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

// === impl Guest ===

impl Guest {
    pub(crate) fn new(place: GuestPlace) -> Self {
        let state = GuestState { place: Mutex::new(Some(place)), asked: watch::Sender::new(false) };
        Self(Arc::new(state))
    }

    /// Notes that the head of a request came.
    pub(crate) fn note_request(&self) {
        self.0.asked.send_if_modified(|asked| !std::mem::replace(asked, true));
    }

    /// Notes that a request had a key that is known: it is no guest any more.
    pub(crate) fn note_key(&self) {
        drop(self.0.place.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Waits for the head of the first request.
    pub(crate) async fn asked(&self) {
        let mut asked = self.0.asked.subscribe();
        // The sender is here: the wait ends in no other way.
        let _asked = asked.wait_for(|asked| *asked).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_places_and_one_that_showed_a_key_takes_none() {
        let guests = Arc::new(Guests::new(2));
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let first = Guest::new(guests.admit(one).unwrap());
        let second = guests.admit("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert!(guests.admit(one).is_none(), "it has two, however they are written");
        assert!(guests.admit(other).is_some(), "another has its own");
        first.note_key();
        let third = guests.admit(one).unwrap();
        assert!(guests.admit(one).is_none());
        drop((second, third));
        assert!(guests.lock().is_empty(), "nothing is kept of an address that is gone");
        first.note_key();
        assert!(guests.lock().is_empty());
    }
}
