//! Batches, back-pressure, panics, time and turns, under paused time.

use super::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use flow::{Clock, Fixed, Gate, Quota, WorkerDeadline};
use notification::{Answer, Chunk, Pause, Pauses, Scope, Verdict, sample};
use tokio::sync::{Semaphore, watch};

use crate::{Fence, LaneQuota, Reports, timestamp};

const NOW: Duration = Duration::from_hours(500_000);

/// Takes as many batches as it has permits for.
#[derive(Debug)]
struct SettleDouble {
    batches: Semaphore,
    reports: RefCell<BTreeMap<u16, Report>>,
    sizes: RefCell<Vec<usize>>,
    stopping: watch::Receiver<bool>,
    pauses: watch::Receiver<Arc<Pauses>>,
}

#[async_trait(?Send)]
impl Reports for SettleDouble {
    async fn report(&self, reports: Vec<(u16, Report)>) {
        self.batches.acquire().await.unwrap().forget();
        self.sizes.borrow_mut().push(reports.len());
        for (index, report) in reports {
            assert_eq!(self.reports.borrow_mut().insert(index, report), None, "{index} twice");
        }
    }
}

impl SettleDouble {
    fn new(batches: usize) -> Self {
        let (batches, (_, stopping)) = (Semaphore::new(batches), watch::channel(false));
        let (reports, sizes) = (RefCell::default(), RefCell::default());
        Self { batches, reports, sizes, stopping, pauses: watch::channel(Arc::default()).1 }
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let verdict = |report: &Report| match report {
            Report::Attempted(answer) => answer.verdict,
            Report::HandedBack { .. } | Report::Expired => panic!("no attempt: {report:?}"),
        };
        self.reports.borrow().values().map(verdict).collect()
    }
}

fn chunk(clock: Clock, count: usize) -> Chunk {
    sample::chunk(timestamp(clock), vec!["x"; count])
}

fn job<'a>(chunk: &'a Chunk, gate: &'a Gate, reports: &'a SettleDouble, clock: Clock) -> Job<'a> {
    let (stopping, pauses) = (&reports.stopping, &reports.pauses);
    let (deliveries, worker_deadline) = (&chunk.deliveries, &flow::worker_deadline::UNLIMITED);
    let (quota, fence) = (None, None);
    Job { chunk, deliveries, gate, quota, fence, reports, clock, stopping, pauses, worker_deadline }
}

/// A quota; 0 is no limit.
fn per_minute(count: u32) -> Arc<Quota> {
    Arc::new(Quota::new(NonZeroU32::new(count)))
}

fn accepted() -> Attempt {
    Attempt::answered(Answer::accepted(200))
}

#[tokio::test(start_paused = true)]
async fn what_finishes_together_is_reported_together_in_bounded_batches() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 600), Gate::new(Box::new(Fixed(1000))));
    let settle = SettleDouble::new(100);
    drive(job(&chunk, &gate, &settle, clock), async |_| {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(accepted())
    })
    .await;
    assert_eq!(settle.verdicts(), vec![Verdict::Accepted; 600]);
    let sizes = settle.sizes.borrow();
    assert!(sizes.iter().all(|size| *size <= limits::REPORT_ITEMS), "{sizes:?}");
    assert!(sizes.len() <= 6, "{sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_does_not_keep_up_stops_the_starts() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 500), Gate::new(Box::new(Fixed(10))));
    let settle = SettleDouble::new(3);
    let started = Cell::new(0);
    let driving = drive(job(&chunk, &gate, &settle, clock), async |_| {
        started.set(started.get() + 1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(accepted())
    });
    let stuck = tokio::time::timeout(Duration::from_hours(1), driving).await;
    assert!(stuck.is_err(), "nobody took the reports");
    assert!(started.get() <= 50, "{} were started", started.get());
    assert_eq!(gate.in_flight(), 0, "giving up frees the places");
}

#[tokio::test(start_paused = true)]
async fn attempts_end_while_settle_takes_the_reports_of_others() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 5), Gate::new(Box::new(Fixed(10))));
    let settle = SettleDouble::new(0);
    let driving = drive(job(&chunk, &gate, &settle, clock), async |delivery: &Delivery| {
        tokio::time::sleep(Duration::from_millis(u64::from(delivery.index))).await;
        Ok(accepted())
    });
    let mut driving = std::pin::pin!(driving);
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut driving).await.is_err());
    assert_eq!(gate.in_flight(), 0, "their places are free");
    settle.batches.add_permits(2);
    driving.await;
    assert_eq!((&*settle.sizes.borrow(), settle.verdicts().len()), (&vec![1, 4], 5));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_panics_costs_its_own_delivery() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 3), Gate::new(Box::new(Fixed(10))));
    let settle = SettleDouble::new(100);
    drive(job(&chunk, &gate, &settle, clock), async |delivery: &Delivery| {
        assert_ne!(delivery.index, 1, "as planned");
        Ok(accepted())
    })
    .await;
    assert_eq!(settle.verdicts(), [Verdict::Accepted, Verdict::Unknown, Verdict::Accepted]);
    assert_eq!(gate.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_over_time_is_unknown_and_holds_no_other_up() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 40), Gate::new(Box::new(Fixed(2))));
    let settle = SettleDouble::new(100);
    let started = clock.monotonic();
    drive(job(&chunk, &gate, &settle, clock), async |delivery: &Delivery| {
        if delivery.index == 0 {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(accepted())
    })
    .await;
    let verdicts = settle.verdicts();
    assert_eq!(verdicts[0], Verdict::Unknown);
    assert_eq!(verdicts[1..], vec![Verdict::Accepted; 39]);
    assert_eq!(clock.monotonic() - started, limits::ATTEMPT_TIMEOUT);
}

/// Begins the first delivery, and no other.
#[derive(Debug)]
struct BeginsFirst;

#[async_trait(?Send)]
impl Fence for BeginsFirst {
    fn is_begun(&self, index: u16) -> bool {
        index == 0
    }

    async fn begin(&self, index: u16) -> Result<(), Report> {
        if self.is_begun(index) { Ok(()) } else { std::future::pending().await }
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_mark_for_too_long_was_not_sent() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 2), Gate::new(Box::new(Fixed(10))));
    let settle = SettleDouble::new(100);
    let fenced = Job { fence: Some(&BeginsFirst), ..job(&chunk, &gate, &settle, clock) };
    drive(fenced, async |delivery: &Delivery| {
        BeginsFirst.begin(delivery.index).await.unwrap();
        std::future::pending().await
    })
    .await;
    let reports = settle.reports.borrow();
    assert_eq!(reports[&1], Report::HandedBack { after: Duration::ZERO });
    assert!(
        matches!(&reports[&0], Report::Attempted(answer) if answer.verdict == Verdict::Unknown)
    );
}

#[tokio::test(start_paused = true)]
async fn other_tasks_get_a_turn_while_many_are_started() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 1000), Gate::new(Box::new(Fixed(1000))));
    let settle = SettleDouble::new(100);
    let started = Rc::new(Cell::new(0));
    let seen = Rc::clone(&started);
    let local = tokio::task::LocalSet::new();
    let first_turn = local.spawn_local(async move {
        // Not before the first start.
        while seen.get() == 0 {
            tokio::task::yield_now().await;
        }
        seen.get()
    });
    local
        .run_until(async {
            drive(job(&chunk, &gate, &settle, clock), async |_| {
                started.set(started.get() + 1);
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(accepted())
            })
            .await;
            assert!(first_turn.await.unwrap() <= 2 * STARTS_PER_TURN);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_later_job_gets_the_places_of_an_earlier_one_as_soon_as_that_runs_out_of_starts() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 10), Gate::new(Box::new(Fixed(4))));
    let (one, other) = (SettleDouble::new(100), SettleDouble::new(100));
    let started = clock.monotonic();
    let last_is_slow = async |delivery: &Delivery| {
        let seconds = if delivery.index == 9 { 10 } else { 1 };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(accepted())
    };
    tokio::join!(
        drive(job(&chunk, &gate, &one, clock), last_is_slow),
        drive(job(&chunk, &gate, &other, clock), last_is_slow),
    );
    assert_eq!((one.verdicts().len(), other.verdicts().len()), (10, 10));
    let took = clock.monotonic() - started;
    assert!(took <= Duration::from_secs(16), "{took:?}: places stood empty");
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_after_the_deadline_of_the_worker() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 6), Gate::new(Box::new(Fixed(2))));
    let settle = SettleDouble::new(100);
    let worker_deadline = WorkerDeadline::passed();
    worker_deadline.extend(0, clock.boot(), Duration::from_secs(5));
    let job = Job { worker_deadline: &worker_deadline, ..job(&chunk, &gate, &settle, clock) };
    drive(job, async |_: &Delivery| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(accepted())
    })
    .await;
    let reports = settle.reports.take();
    let started = reports.values().filter(|report| matches!(report, Report::Attempted(_))).count();
    assert_eq!(started, 4, "two at 0 s and two at 3 s: {reports:?}");
    let handed_back = |report: &&Report| matches!(report, Report::HandedBack { .. });
    assert_eq!(reports.values().filter(handed_back).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_once_it_is_paused_though_it_waits_for_a_place() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 6), Gate::new(Box::new(Fixed(2))));
    let settle = SettleDouble::new(100);
    let (pause, pauses) = watch::channel(Arc::default());
    let lane = &chunk.envelope.lane;
    let (tenant, scope) = (lane.tenant.clone(), Scope::Channel(lane.channel.clone()));
    let channel = Pauses::from_iter([Pause { tenant, scope, since: chunk.accepted_at }]);
    let job = Job { pauses: &pauses, ..job(&chunk, &gate, &settle, clock) };
    let sending = drive(job, async |_: &Delivery| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(accepted())
    });
    let pausing = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        pause.send_replace(Arc::new(channel));
    };
    tokio::join!(sending, pausing);
    let reports = settle.reports.take();
    let started = reports.values().filter(|report| matches!(report, Report::Attempted(_))).count();
    assert_eq!(started, 4, "two at 0 s and two at 3 s: {reports:?}");
    let after = Duration::ZERO;
    let handed_back = |report: &&Report| **report == Report::HandedBack { after };
    assert_eq!(reports.values().filter(handed_back).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_quota_holds_no_place_and_who_would_wait_long_goes_back() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 6), Gate::new(Box::new(Fixed(1))));
    let quota = LaneQuota::new(per_minute(0), per_minute(41));
    let settle = SettleDouble::new(100);
    let (start, began) = (clock.monotonic(), RefCell::new(Vec::new()));
    let limited = Job { quota: Some(&quota), ..job(&chunk, &gate, &settle, clock) };
    let driving = drive(limited, async |delivery| {
        began.borrow_mut().push((delivery.index, (clock.monotonic() - start).as_millis() / 100));
        Ok(accepted())
    });
    let looking = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(gate.in_flight(), 0);
    };
    futures_util::future::join(driving, looking).await;
    // One at once, and then every 1.5 s, as long as they wait for less than 5 s.
    assert_eq!(began.into_inner(), [(0, 0), (1, 15), (2, 30), (3, 45)]);
    let reports = settle.reports.borrow();
    let handed_back = Report::HandedBack { after: Duration::from_secs(1) };
    assert_eq!((reports.len(), &reports[&4], &reports[&5]), (6, &handed_back, &handed_back));
}

#[tokio::test(start_paused = true)]
async fn places_in_the_quota_that_passed_before_the_gate_are_not_used_at_once() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 1), Gate::new(Box::new(Fixed(1))));
    let quota = per_minute(61);
    let lanes = [(); 3].map(|()| LaneQuota::new(per_minute(0), Arc::clone(&quota)));
    let (start, began) = (clock.monotonic(), RefCell::new(Vec::new()));
    let busy = gate.try_enter().unwrap();
    let settles: Vec<_> = (0..3).map(|_| SettleDouble::new(100)).collect();
    let jobs = settles.iter().zip(&lanes).map(|(settle, lane)| {
        drive(Job { quota: Some(lane), ..job(&chunk, &gate, settle, clock) }, async |_| {
            began.borrow_mut().push((clock.monotonic() - start).as_millis() / 100);
            Ok(accepted())
        })
    });
    let opening = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        drop(busy);
    };
    futures_util::future::join(futures_util::future::join_all(jobs), opening).await;
    assert_eq!(began.into_inner(), [200, 210, 220]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_its_tenants_quota_holds_no_place_in_the_destinations() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 4), Gate::new(Box::new(Fixed(1))));
    let destination = per_minute(121);
    // One every 2 s of the tenant, one every half a second of the destination.
    let tenant = per_minute(31);
    let limited = [(); 2].map(|()| LaneQuota::new(Arc::clone(&tenant), Arc::clone(&destination)));
    let free = LaneQuota::new(per_minute(0), destination);
    let start = clock.monotonic();
    let run = async |lane: &LaneQuota, count: usize| {
        let (settle, began) = (SettleDouble::new(100), RefCell::new(Vec::new()));
        let deliveries = &chunk.deliveries[..count];
        let job = Job { quota: Some(lane), deliveries, ..job(&chunk, &gate, &settle, clock) };
        drive(job, async |_| {
            began.borrow_mut().push((clock.monotonic() - start).as_millis() / 100);
            Ok(accepted())
        })
        .await;
        began.into_inner()
    };
    let waiting = futures_util::future::join(run(&limited[0], 1), run(&limited[1], 1));
    let ((first, second), others) = futures_util::future::join(waiting, run(&free, 4)).await;
    assert_eq!((first, second), (vec![0], vec![20]));
    assert_eq!(others, [0, 5, 10, 15], "a burst of two with the first, and no hole after it");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_has_a_place_in_both_quotas_or_goes_back() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 4), Gate::new(Box::new(Fixed(9))));
    // One every second of the tenant, one every 1.5 s of the destination; and the other way round.
    for (tenant, destination) in [(61, 41), (41, 61)] {
        let lane = LaneQuota::new(per_minute(tenant), per_minute(destination));
        let (settle, began) = (SettleDouble::new(100), RefCell::new(Vec::new()));
        let start = clock.monotonic();
        drive(Job { quota: Some(&lane), ..job(&chunk, &gate, &settle, clock) }, async |_| {
            began.borrow_mut().push((clock.monotonic() - start).as_millis() / 100);
            Ok(accepted())
        })
        .await;
        assert_eq!(began.into_inner(), [0, 15, 30, 45], "the slower one counts");
        // The destination takes nothing for a while: no place of the tenant's is used up for that.
        lane.pause(clock.monotonic(), Duration::from_mins(1));
        let of_tenant = lane.tenant().wait(clock.monotonic());
        let settle = SettleDouble::new(100);
        drive(Job { quota: Some(&lane), ..job(&chunk, &gate, &settle, clock) }, async |_| {
            Ok(accepted())
        })
        .await;
        let goes_back = |report: &Report| matches!(report, Report::HandedBack { .. });
        assert!(settle.reports.borrow().values().all(goes_back));
        assert_eq!(lane.tenant().wait(clock.monotonic()), of_tenant);
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_stops_answering_gets_the_rest_handed_back() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 1_000), Gate::new(Box::new(Fixed(20))));
    let settle = SettleDouble::new(1_000);
    let tried = Cell::new(0);
    drive(job(&chunk, &gate, &settle, clock), async |_| {
        tried.set(tried.get() + 1);
        if tried.get() <= 100 {
            return Ok(accepted());
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(Attempt::lost("no answer"))
    })
    .await;
    let (mut attempted, mut handed_back) = (0, 0);
    for report in settle.reports.borrow().values() {
        match report {
            Report::Attempted(_) => attempted += 1,
            Report::HandedBack { after } => {
                assert_eq!(*after, SHUT_WAIT);
                handed_back += 1;
            }
            Report::Expired => panic!("it does not expire"),
        }
    }
    assert_eq!((attempted, handed_back), (tried.get(), 1_000 - tried.get()));
    assert!((120..=140).contains(&tried.get()), "{} were tried", tried.get());
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_for_a_place_do_not_all_try_a_destination_that_fell_silent() {
    let clock = Clock::starting_at(NOW);
    let (chunk, gate) = (chunk(clock, 1_000), Gate::new(Box::new(Fixed(20))));
    let (settle, tried) = (SettleDouble::new(1_000), Cell::new(0));
    let hangs = async |_: &Delivery| {
        tried.set(tried.get() + 1);
        if tried.get() <= 20 {
            return Ok(accepted());
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(Attempt::lost("no answer"))
    };
    let jobs = chunk.deliveries.chunks(10);
    let jobs = jobs.map(|deliveries| Job { deliveries, ..job(&chunk, &gate, &settle, clock) });
    futures_util::future::join_all(jobs.map(|job| drive(job, hangs))).await;
    assert_eq!(settle.reports.borrow().len(), 1_000);
    assert!((40..=60).contains(&tried.get()), "{} were tried", tried.get());
}

#[path = "drive_begun_tests.rs"]
mod begun;

#[path = "drive_expiry_tests.rs"]
mod expiry;
