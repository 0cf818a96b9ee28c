//! The loop that senders share: start while the gate lets in, collect what is done, report it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use flow::Pass;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use notification::{Delivery, Report, limits};

use crate::{Attempt, Job, MayStart};

/// Attempts started before other tasks of the thread get a turn: among them the one that writes what was
/// started, so the first bytes leave while the rest is still being encoded.
const STARTS_PER_TURN: usize = 64;

/// Runs `attempt` for every delivery of `job`, as many at a time as the gate admits, and reports each.
///
/// Finished attempts are reported in the batches in which they became ready, so a busy lane pays for few
/// messages and a quiet one waits for nobody. An attempt that panics costs its own delivery an unknown
/// verdict; an attempt over time is dropped, and its verdict is unknown. Of jobs that share a gate, the one
/// under way refills its own places first: earlier chunks end before later ones, and their leases are kept.
pub async fn drive<'job, Make, Attempting>(job: Job<'job>, attempt: Make)
where
    Make: Fn(&'job Delivery) -> Attempting,
    Attempting: Future<Output = Attempt>,
{
    drive_with(Pace::USUAL, job, attempt).await;
}

/// [`drive`] for attempts that may take [`limits::PATIENT_ATTEMPT_TIMEOUT`].
pub async fn drive_patiently<'job, Make, Attempting>(job: Job<'job>, attempt: Make)
where
    Make: Fn(&'job Delivery) -> Attempting,
    Attempting: Future<Output = Attempt>,
{
    drive_with(Pace::PATIENT, job, attempt).await;
}

/// How long attempts may take, and how much of a lease must be left for one to start.
#[derive(Debug, Clone, Copy)]
struct Pace {
    timeout: Duration,
    margin: Duration,
}

async fn drive_with<'job, Make, Attempting>(pace: Pace, job: Job<'job>, attempt: Make)
where
    Make: Fn(&'job Delivery) -> Attempting,
    Attempting: Future<Output = Attempt>,
{
    let mut waiting = job.deliveries.iter();
    let mut next = waiting.next();
    let mut held: Option<Pass> = None;
    let mut started = 0_usize;
    let mut under_way = FuturesUnordered::new();
    let mut reports = Vec::new();
    loop {
        // Answers first: they free places and are what crashes would lose.
        while reports.len() < limits::REPORT_ITEMS
            && let Some(Some(report)) = under_way.next().now_or_never()
        {
            reports.push(report);
        }
        if let Some(delivery) = next
            && reports.len() < limits::REPORT_ITEMS
        {
            if let Some(report) = pace.may_start(job).report_otherwise() {
                reports.push((delivery.index, report));
                next = waiting.next();
                continue;
            }
            if let Some(pass) = held.take().or_else(|| job.gate.try_enter()) {
                under_way.push(run(pace, job, delivery, &attempt, pass));
                next = waiting.next();
                started += 1;
                if started.is_multiple_of(STARTS_PER_TURN) {
                    tokio::task::yield_now().await;
                }
                continue;
            }
        }
        if !reports.is_empty() {
            job.reports.report(std::mem::take(&mut reports)).await;
            continue;
        }
        if next.is_none() && under_way.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            Some(report) = under_way.next(), if !under_way.is_empty() => reports.push(report),
            pass = job.gate.enter(), if next.is_some() => held = Some(pass),
        }
    }
}

// === impl Pace ===

impl Pace {
    const USUAL: Self = Self { timeout: limits::ATTEMPT_TIMEOUT, margin: limits::LEASE_MARGIN };
    const PATIENT: Self =
        Self { timeout: limits::PATIENT_ATTEMPT_TIMEOUT, margin: limits::PATIENT_LEASE_MARGIN };

    fn may_start(self, job: Job<'_>) -> MayStart {
        job.may_start_with(self.margin)
    }
}

async fn run<'job, Make, Attempting>(
    pace: Pace,
    job: Job<'job>,
    delivery: &'job Delivery,
    attempt: &Make,
    pass: Pass,
) -> (u16, Report)
where
    Make: Fn(&'job Delivery) -> Attempting,
    Attempting: Future<Output = Attempt>,
{
    let started = job.clock.monotonic();
    // Reporting may have waited long for settle since this was let in.
    if let Some(report) = pace.may_start(job).report_otherwise() {
        return (delivery.index, report);
    }
    let guarded = AssertUnwindSafe(async { attempt(delivery).await }).catch_unwind();
    let finished = match tokio::time::timeout(pace.timeout, guarded).await {
        Ok(Ok(finished)) => finished,
        Ok(Err(_panic)) => Attempt::lost("the attempt panicked"),
        Err(_elapsed) => Attempt::lost("no answer in time"),
    };
    pass.finish(job.clock.monotonic().duration_since(started), finished.signal);
    (delivery.index, finished.report)
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
