//! Recovery from a process that ended with deliveries in flight.
//!
//! A killed process leaves its files as a copy of them shows them that is made while the store is open.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use std::io::Write as _;

use notification::{Chunk, Disposition, NotificationId, State, Timestamp, limits};
use store::conformance::{Shape, at, claim_request, settle_all, the_books_balance};
use store::sqlite::Options;
use store::{ClaimRequest, Claims, Ending, ReadStore, Recovery, Sqlite};
use tempfile::TempDir;

const DELIVERED: Disposition = Disposition::Ended(State::Delivered);

/// A store, the directory it is in, and the time.
struct World {
    store: Sqlite,
    directory: TempDir,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Sqlite::open(directory.path(), Options::new(1), at(0)).unwrap().0;
        Self { store, directory, now: at(0) }
    }

    /// The process ends, and the next one starts at once.
    fn end(&mut self, ending: Ending) -> Recovery {
        if ending == Ending::Faulted {
            self.store.fault_mark().unwrap().write_all(b"X").unwrap();
        }
        let image = tempfile::tempdir().unwrap();
        for file in ["belfry.db", "belfry.db-wal", "belfry.lock"] {
            std::fs::copy(self.directory.path().join(file), image.path().join(file)).unwrap();
        }
        if ending == Ending::Left {
            // Its machine went down with it.
            let another_run = format!("{:<63}\n", "4711 another-run-of-the-machine");
            std::fs::write(image.path().join("belfry.lock"), another_run).unwrap();
        }
        let (store, recovery) = Sqlite::open(image.path(), Options::new(1), self.now).unwrap();
        (self.store, self.directory) = (store, image);
        recovery
    }

    /// The process ends in order, and the next one starts at once.
    fn again(self) -> Self {
        let Self { store, directory, now } = self;
        drop(store);
        let store = Sqlite::open(directory.path(), Options::new(1), now).unwrap().0;
        Self { store, directory, now }
    }

    /// The next chunks that are due, at the instant at which they are.
    async fn next(&mut self) -> Vec<Chunk> {
        loop {
            let request = claim_request(self.now.millis());
            let request = ClaimRequest { lease: limits::LEASE, ..request };
            let claim = self.store.claim(request).await.unwrap();
            match claim.next_at {
                Some(next_at) if claim.chunks.is_empty() => self.now = next_at.max(self.now),
                _ => return claim.chunks,
            }
        }
    }

    async fn state(&self, id: NotificationId) -> State {
        self.store.reader().find(id).await.unwrap().unwrap().state
    }
}

/// True if `chunk` holds the notification of which the process is about to die.
fn holds(chunk: &Chunk, id: NotificationId) -> bool {
    chunk.deliveries.iter().any(|delivery| chunk.notification_id(delivery.index) == id)
}

#[tokio::test]
async fn a_delivery_that_ends_the_process_is_found_and_the_others_are_delivered() {
    for (ending, bound) in [(Ending::Faulted, 3 + 3 + 4), (Ending::Killed, 3 + 3 + 24)] {
        let mut world = World::new();
        let ids = Shape::default().ingest(&world.store, 3_500).await;
        let poison = ids[1_234];
        let mut crashes = 0;
        while world.state(poison).await != State::Dead {
            let chunks = world.next().await;
            if chunks.iter().any(|chunk| holds(chunk, poison)) {
                world.end(ending);
                crashes += 1;
            } else {
                for chunk in chunks {
                    settle_all(&world.store, &chunk, DELIVERED).await;
                }
            }
        }
        assert!(crashes <= bound, "{ending:?}: {crashes}");
        for chunk in world.next().await {
            settle_all(&world.store, &chunk, DELIVERED).await;
        }
        let account = world.store.reader().totals().await.unwrap();
        assert_eq!((account.delivered, account.dead), (3_499, 1), "{ending:?}");
        let history = world.store.reader().find(poison).await.unwrap().unwrap();
        assert!(history.attempts[0].detail.starts_with("quarantined: "), "{history:?}");
        the_books_balance(&world.store).await;
    }
}

#[tokio::test]
async fn an_innocent_one_alone_in_flight_at_twenty_kills_is_delivered() {
    let mut world = World::new();
    let ids = Shape::default().ingest(&world.store, 1).await;
    for kill in 1..=20 {
        let chunks = world.next().await;
        assert_eq!(chunks.len(), 1, "after {kill} kills");
        assert_eq!(world.end(Ending::Killed).returned, 1, "after {kill} kills");
    }
    let chunk = world.next().await.remove(0);
    settle_all(&world.store, &chunk, DELIVERED).await;
    assert_eq!(world.state(ids[0]).await, State::Delivered);
}

#[tokio::test]
async fn ends_that_no_delivery_caused_are_held_against_none() {
    let mut world = World::new();
    Shape::default().ingest(&world.store, 1_000).await;
    for _ in 0..100 {
        assert_eq!(world.next().await.len(), 1, "it is whole, and due at once");
        let recovery = world.end(Ending::Left);
        assert_eq!((recovery.returned, recovery.suspected), (1_000, 0));
        // In order, with work in flight: a drain that took too long, a disk that was full.
        assert_eq!(world.next().await.len(), 1);
        world = world.again();
    }
    assert_eq!(world.now, at(0));
}

#[tokio::test]
async fn a_long_attempt_is_not_blamed_for_kills_that_come_late() {
    let mut world = World::new();
    Shape::default().ingest(&world.store, 1).await;
    for _ in 0..100 {
        assert_eq!(world.next().await.len(), 1);
        world.now = world.now.plus(2 * limits::SUSPECT_TRIAL);
        assert_eq!(world.end(Ending::Killed).suspected, 0);
    }
}

#[tokio::test]
async fn a_kill_without_a_suspect_in_flight_clears_those_that_wait() {
    let mut world = World::new();
    let ids = Shape::default().ingest(&world.store, 1).await;
    for _ in 0..4 {
        for _ in 0..20 {
            assert_eq!(world.next().await.len(), 1);
            world.end(Ending::Killed);
        }
        // Nothing is in flight, so none of these is the cause.
        world.end(Ending::Killed);
    }
    assert_eq!(world.state(ids[0]).await, State::Pending);
    let chunk = world.next().await.remove(0);
    settle_all(&world.store, &chunk, DELIVERED).await;
}

#[tokio::test]
async fn what_was_sent_and_is_tried_again_is_not_suspected_any_more() {
    let mut world = World::new();
    Shape::default().ingest(&world.store, 1).await;
    for _ in 0..10 {
        for _ in 0..20 {
            assert_eq!(world.next().await.len(), 1);
            world.end(Ending::Killed);
        }
        let chunk = world.next().await.remove(0);
        settle_all(&world.store, &chunk, Disposition::Retry { at: world.now }).await;
    }
    assert_eq!(world.next().await[0].attempt, 11);
}
