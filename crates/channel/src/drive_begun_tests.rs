//! Attempts that are begun at once: their time, their panics, their places.

use net::http2::{Http2Pool, Http2Stream, RequestOutcome, RequestOutcomes};

use super::*;

/// Attempts that are begun at once and have no outcome; the first panics.
#[derive(Debug)]
struct Silent {
    given_up: Rc<Cell<usize>>,
}

/// Counts attempts that are given up.
#[derive(Debug)]
struct GivenUp(Rc<Cell<usize>>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

impl<'job> Attempts<'job> for Silent {
    type Begun = GivenUp;

    fn pool(&self) -> Option<&Http2Pool> {
        None
    }

    fn begin(
        &self,
        delivery: &'job Delivery,
        _stream: Option<Http2Stream>,
        _to: (&Rc<RequestOutcomes>, u16),
    ) -> Option<GivenUp> {
        assert_ne!(delivery.index, 0, "as planned");
        (delivery.index < 4).then(|| GivenUp(Rc::clone(&self.given_up)))
    }

    fn conclude(
        &self,
        _delivery: &'job Delivery,
        _begun: GivenUp,
        _sent_at: Instant,
        _outcome: RequestOutcome,
    ) -> Result<Attempt, Again> {
        unreachable!("there are no outcomes");
    }

    async fn attempt(&self, _delivery: &'job Delivery, _again: Again) -> Result<Attempt, Attempt> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(accepted())
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_at_once_ends_when_its_time_is_up_or_it_panics() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 6), Gate::new(Box::new(Fixed(3))));
    let settle = SettleDouble::new(100);
    let (started, given_up) = (clock.monotonic(), Rc::default());
    drive_all(job(&chunk, &gate, &settle, clock), &Silent { given_up: Rc::clone(&given_up) }).await;
    let (lost, accepted) = (Verdict::Unknown, Verdict::Accepted);
    assert_eq!(settle.verdicts(), [lost, lost, lost, lost, accepted, accepted]);
    let waited = clock.monotonic() - started;
    assert_eq!(waited, limits::ATTEMPT_TIMEOUT + Duration::from_secs(1), "three places");
    assert_eq!((given_up.get(), gate.in_flight()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_at_once_is_given_up_with_its_job() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 6), Gate::new(Box::new(Fixed(10))));
    let (settle, given_up) = (SettleDouble::new(100), Rc::default());
    let silent = Silent { given_up: Rc::clone(&given_up) };
    let driving = drive_all(job(&chunk, &gate, &settle, clock), &silent);
    assert!(tokio::time::timeout(Duration::from_secs(2), driving).await.is_err());
    assert_eq!((given_up.get(), gate.in_flight()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn what_must_be_sent_at_most_once_is_not_begun_without_its_mark() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 2), Gate::new(Box::new(Fixed(10))));
    let (settle, given_up) = (SettleDouble::new(100), Rc::default());
    let job = Job { fence: Some(&BeginsFirst), ..job(&chunk, &gate, &settle, clock) };
    drive_all(job, &Silent { given_up }).await;
    assert_eq!(settle.verdicts(), [Verdict::Accepted; 2], "each went the long way");
}
