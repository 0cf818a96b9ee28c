//! The marks that are requested, and the reports of a run that was refused one.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use channel::Fence as _;
use flow::{Clock, Fixed, Gate};
use futures_util::FutureExt as _;
use notification::{Guarantee, Pauses, sample};
use tokio::sync::watch;

use super::*;

/// A store that grants marks that rise, and keeps where they are.
#[derive(Debug, Default)]
struct Rising(Mutex<Vec<u16>>);

#[async_trait]
impl Begin for Rising {
    async fn begin(&self, marks: Vec<Mark>) -> Result<Vec<MarkAnswer>, StoreError> {
        let mut granted = self.0.lock().unwrap();
        let answers = marks.iter().map(|mark| {
            let rises = granted.last().is_none_or(|last| mark.through > *last);
            if rises {
                granted.push(mark.through);
            }
            if rises { MarkAnswer::Granted } else { MarkAnswer::Stale }
        });
        Ok(answers.collect())
    }

    fn watch_pauses(&self) -> watch::Receiver<Arc<Pauses>> {
        watch::channel(Arc::default()).1
    }
}

impl Rising {
    fn marks(&self) -> Vec<u16> {
        self.0.lock().unwrap().clone()
    }
}

/// Keeps all reports.
#[derive(Debug, Default)]
struct CollectedReports(RefCell<Vec<(u16, Report)>>);

#[async_trait(?Send)]
impl Reports for CollectedReports {
    async fn report(&self, reports: Vec<(u16, Report)>) {
        self.0.borrow_mut().extend(reports);
    }
}

const CLOCK_START: Duration = Duration::from_hours(500_000);

fn chunk(clock: Clock, count: usize) -> Chunk {
    let mut chunk = sample::chunk(channel::timestamp(clock), vec!["recipient"; count]);
    chunk.envelope.guarantee = Guarantee::AtMostOnce;
    chunk
}

/// Runs `asking` to its end while the fence marks.
async fn beside<T>(fence: &ChunkFence<'_>, asking: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        answer = asking => answer,
        _never = fence.mark() => unreachable!("it marks for as long as it is asked"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_mark_rises_slice_by_slice_up_to_what_was_asked_for() {
    let store = Rising::default();
    let chunk = chunk(Clock::starting_at(CLOCK_START), 1_000);
    let fence = ChunkFence::new(&store, &chunk);
    assert!(!fence.is_begun(0));
    assert_eq!(beside(&fence, fence.begin(0)).await, Ok(()));
    assert_eq!(store.marks(), [127], "one slice, though the chunk has eight");
    assert!(fence.is_begun(127) && !fence.is_begun(128));
    assert!(fence.last_asked().now_or_never().is_none(), "the next chunk has to wait");
    assert_eq!(beside(&fence, fence.begin(300)).await, Ok(()));
    assert_eq!(store.marks(), [127, 255, 383], "no slice is passed over");
    assert_eq!(beside(&fence, fence.begin(999)).await, Ok(()));
    assert_eq!(store.marks().last(), Some(&999));
    assert!(fence.last_asked().now_or_never().is_some());
}

/// A store whose worker is overdue for the first requests.
#[derive(Debug, Default)]
struct OverdueFirst {
    store: Rising,
    requests: AtomicUsize,
}

#[async_trait]
impl Begin for OverdueFirst {
    async fn begin(&self, marks: Vec<Mark>) -> Result<Vec<MarkAnswer>, StoreError> {
        if self.requests.fetch_add(1, Ordering::Relaxed) < 3 {
            return Ok(vec![MarkAnswer::Overdue; marks.len()]);
        }
        self.store.begin(marks).await
    }

    fn watch_pauses(&self) -> watch::Receiver<Arc<Pauses>> {
        self.store.watch_pauses()
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_overdue_asks_again_until_it_is_not() {
    let store = OverdueFirst::default();
    let chunk = chunk(Clock::starting_at(CLOCK_START), 1_000);
    let fence = ChunkFence::new(&store, &chunk);
    assert_eq!(beside(&fence, fence.begin(0)).await, Ok(()));
    assert_eq!((store.store.marks(), store.requests.into_inner()), (vec![127], 4));
}

#[tokio::test(start_paused = true)]
async fn of_two_runs_of_a_chunk_one_sends_and_reports() {
    let (store, clock) = (Rising::default(), Clock::starting_at(CLOCK_START));
    let chunk = chunk(clock, 1_000);
    let (gate, reports) = (Gate::new(Box::new(Fixed(1))), CollectedReports::default());
    let (_running, stopping) = watch::channel(false);
    let job = Job {
        chunk: &chunk,
        deliveries: &chunk.deliveries,
        gate: &gate,
        quota: None,
        fence: None,
        reports: &reports,
        clock,
        stopping: &stopping,
        pauses: &store.watch_pauses(),
        worker_deadline: &flow::worker_deadline::UNLIMITED,
    };
    let [one, other] = [(); 2].map(|()| ChunkFence::new(&store, &chunk));
    let [of_one, of_other] = [&one, &other].map(|fence| FencedReports { fence, job });
    assert_eq!(beside(&one, one.begin(0)).await, Ok(()));
    // The other run requests more than the first has begun, and is refused all the same.
    let refused = beside(&other, other.begin(999)).await;
    assert_eq!(refused, Err(Report::HandedBack { after: REFUSED_DELAY }));
    let report = |index| vec![(index, Report::HandedBack { after: Duration::ZERO })];
    beside(&other, of_other.report(report(5))).await;
    beside(&one, of_one.report(report(6))).await;
    assert_eq!(*reports.0.borrow(), report(6), "the refused run says nothing of the chunk");
    assert_eq!(store.marks(), [127]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_begun_nothing_begins_a_slice_before_it_reports() {
    let (store, clock) = (Rising::default(), Clock::starting_at(CLOCK_START));
    let chunk = chunk(clock, 300);
    let (gate, reports) = (Gate::new(Box::new(Fixed(1))), CollectedReports::default());
    let (_running, stopping) = watch::channel(false);
    let job = Job {
        chunk: &chunk,
        deliveries: &chunk.deliveries,
        gate: &gate,
        quota: None,
        fence: None,
        reports: &reports,
        clock,
        stopping: &stopping,
        pauses: &store.watch_pauses(),
        worker_deadline: &flow::worker_deadline::UNLIMITED,
    };
    let fence = ChunkFence::new(&store, &chunk);
    let fenced = FencedReports { fence: &fence, job };
    let no_stream = vec![(200, Report::HandedBack { after: Duration::ZERO })];
    beside(&fence, fenced.report(no_stream)).await;
    assert_eq!((store.marks(), reports.0.borrow().len()), (vec![127], 1));
    let unsent = Report::Attempted(notification::Answer::deferred(0, None, "no connection"));
    beside(&fence, fenced.report(vec![(200, unsent)])).await;
    assert_eq!((store.marks(), reports.0.borrow().len()), (vec![127, 255], 2));
}
