//! A server of limited size: so many requests are served at the same time, and the others wait for their turn.
//!
//! Below its capacity each request takes the latency. Above it the rate stays at capacity by latency, and what is sent more only waits
//! longer: that is the knee which a learned limit has to find.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A capacity, and from when on it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityStep {
    /// Requests that are served at the same time, at least 1.
    pub count: usize,
    /// Time after the first request.
    pub after: Duration,
}

/// The capacity of one process, common to its threads and providers.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// In the order in which they begin to hold.
    steps: Vec<CapacityStep>,
    places: Mutex<ServingPlaces>,
}

#[derive(Debug, Default)]
struct ServingPlaces {
    /// Microseconds since the Unix epoch.
    first_us: Option<u64>,
    /// When each place is free, earliest first.
    free_us: BinaryHeap<Reverse<u64>>,
}

// === impl Capacity ===

impl Capacity {
    pub(crate) fn new(mut steps: Vec<CapacityStep>) -> Self {
        // The flags may name the steps in any order.
        steps.sort_by_key(|step| step.after);
        Self { steps, places: Mutex::default() }
    }

    /// When a request that came at `now_us` and takes `latency_us` is answered, microseconds since the Unix epoch.
    pub(crate) fn answered_us(&self, now_us: u64, latency_us: u64) -> u64 {
        // The lock is for servers of limited size only: all others answer hundreds of thousands of requests a second.
        if self.steps.is_empty() {
            return now_us.saturating_add(latency_us);
        }
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let first_us = *places.first_us.get_or_insert(now_us);
        let since_first = Duration::from_micros(now_us.saturating_sub(first_us));
        places.resize(self.count(since_first));
        // There always is a place: a step has at least one.
        let free_us = places.free_us.pop().map_or(0, |Reverse(free_us)| free_us);
        let answered_us = free_us.max(now_us).saturating_add(latency_us);
        places.free_us.push(Reverse(answered_us));
        answered_us
    }

    fn count(&self, since_first: Duration) -> usize {
        let steps = self.steps.iter().take_while(|step| step.after <= since_first);
        // Before the first step the server has the size that it is given first.
        steps.last().or(self.steps.first()).map_or(1, |step| step.count)
    }
}

// === impl ServingPlaces ===

impl ServingPlaces {
    /// A smaller server ends what it has begun, so it is the places that are free first which go.
    fn resize(&mut self, count: usize) {
        while self.free_us.len() > count {
            self.free_us.pop();
        }
        while self.free_us.len() < count {
            self.free_us.push(Reverse(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY_US: u64 = 100;

    fn capacity(steps: &[(usize, u64)]) -> Capacity {
        let step =
            |(count, after_us)| CapacityStep { count, after: Duration::from_micros(after_us) };
        Capacity::new(steps.iter().copied().map(step).collect())
    }

    fn answers(capacity: &Capacity, now_us: u64, requests: usize) -> Vec<u64> {
        (0..requests).map(|_| capacity.answered_us(now_us, LATENCY_US)).collect()
    }

    #[test]
    fn without_a_capacity_every_request_takes_the_latency() {
        assert_eq!(answers(&capacity(&[]), 1, 3), [101, 101, 101]);
    }

    #[test]
    fn what_finds_no_place_waits_for_one() {
        let server = capacity(&[(2, 0)]);
        assert_eq!(answers(&server, 1, 5), [101, 101, 201, 201, 301]);
        assert_eq!(answers(&server, 1000, 1), [1100], "idle places are not made up for");
    }

    #[test]
    fn the_capacity_moves_with_the_time_since_the_first_request() {
        let server = capacity(&[(3, 0), (1, 1000), (2, 2000)]);
        assert_eq!(answers(&server, 10_000, 3), [10_100, 10_100, 10_100]);
        assert_eq!(answers(&server, 11_000, 3), [11_100, 11_200, 11_300]);
        assert_eq!(answers(&server, 12_000, 2), [12_100, 12_100]);
    }

    #[test]
    fn a_server_that_shrinks_ends_what_it_has_begun() {
        let server = capacity(&[(3, 0), (1, 50)]);
        assert_eq!(answers(&server, 0, 3), [100, 100, 100]);
        assert_eq!(answers(&server, 60, 2), [200, 300]);
    }
}
