//! The loop that senders share: start while the gate lets in, collect what is done, report it.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use flow::{Clock, Pass};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use notification::{Delivery, Report, limits};

use crate::{Attempt, Job, MayStart};

/// Runs `attempt` for every delivery of `job`, as many at a time as the gate admits, and reports each.
///
/// Finished attempts are reported in the batches in which they became ready, so a busy lane pays for few
/// messages and a quiet one waits for nobody. An attempt that panics costs its own delivery an unknown
/// verdict; an attempt over time is dropped, and its verdict is unknown.
pub async fn drive<'job, Make, Attempting>(job: Job<'job>, attempt: Make)
where
    Make: Fn(&'job Delivery) -> Attempting,
    Attempting: Future<Output = Attempt>,
{
    let mut waiting = job.deliveries.iter();
    let mut under_way = FuturesUnordered::new();
    let mut reports = Vec::new();
    let mut next = waiting.next();
    while next.is_some() || !under_way.is_empty() {
        // Answers first: they free places and are what crashes would lose.
        while let Some(Some(report)) = under_way.next().now_or_never() {
            reports.push(report);
        }
        if let Some(delivery) = next
            && reports.len() < limits::REPORT_ITEMS
            && let Some(pass) = job.gate.try_enter()
        {
            match job.may_start() {
                MayStart::Yes => {
                    under_way.push(run(delivery.index, attempt(delivery), pass, job.clock));
                }
                MayStart::Expired => reports.push((delivery.index, Report::Expired)),
                MayStart::No => {
                    reports.push((
                        delivery.index,
                        Report::HandedBack { after: std::time::Duration::ZERO },
                    ));
                }
            }
            next = waiting.next();
            continue;
        }
        if !reports.is_empty() {
            job.reports.report(std::mem::take(&mut reports)).await;
            continue;
        }
        tokio::select! {
            biased;
            Some(report) = under_way.next(), if !under_way.is_empty() => reports.push(report),
            pass = job.gate.enter(), if next.is_some() => drop(pass),
        }
    }
    if !reports.is_empty() {
        job.reports.report(reports).await;
    }
}

async fn run(
    index: u16,
    attempt: impl Future<Output = Attempt>,
    pass: Pass,
    clock: Clock,
) -> (u16, Report) {
    let started = clock.monotonic();
    let guarded = AssertUnwindSafe(attempt).catch_unwind();
    let finished = match tokio::time::timeout(limits::ATTEMPT_TIMEOUT, guarded).await {
        Ok(Ok(finished)) => finished,
        Ok(Err(_panic)) => Attempt::lost("the attempt panicked"),
        Err(_elapsed) => Attempt::lost("no answer in time"),
    };
    pass.finish(clock.monotonic().duration_since(started), finished.signal);
    (index, Report::Attempted(finished.answer))
}
