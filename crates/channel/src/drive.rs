//! The loop that senders share: start while the gate lets in, collect what is done, report it.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use flow::Pass;
use flow::quota::WAIT_MAX;
use futures_util::StreamExt;
use notification::{Delivery, Report, limits};
use tokio::time::Instant;

use crate::attempts::{Again, Attempts};
use crate::lane_quota::Booking;
use crate::under_way::UnderWay;
use crate::{Attempt, Job};

/// Attempts started before other tasks of the thread get a turn: among them the one that writes what was
/// started, so the first bytes leave while the rest is still being encoded.
const STARTS_PER_TURN: usize = 64;
/// How soon a delivery is due again whose destination does not answer.
const SHUT_WAIT: Duration = Duration::from_secs(1);

/// Runs `attempt` for every delivery of `job`, as many at a time as the gate admits, and reports each. Its error is the result of an
/// attempt that ended early, so that `?` ends one.
///
/// Finished attempts are reported in the batches in which they became ready, so a busy lane pays for few
/// messages and a quiet one waits for no other. An attempt that panics costs its own delivery an unknown
/// verdict; an attempt over time is dropped, and its verdict is unknown. Of jobs of one lane, the one
/// under way takes the passes that it frees first, unless another lane waits: earlier chunks end before later ones, and their
/// leases are kept. A delivery over the quota of its tenant or its destination waits without a pass, and goes back to the store when
/// it would wait for long.
pub async fn drive<'job, Make, Attempting>(job: Job<'job>, attempt: Make)
where
    Make: Fn(&'job Delivery) -> Attempting,
    Attempting: Future<Output = Result<Attempt, Attempt>>,
{
    drive_all(job, &attempt).await;
}

/// [`drive`] for attempts of which most can be begun at once.
pub(crate) async fn drive_all<'job, All: Attempts<'job>>(job: Job<'job>, all: &All) {
    drive_with(AttemptTimes::USUAL, job, all).await;
}

/// [`drive`] for attempts that may take [`limits::PATIENT_ATTEMPT_TIMEOUT`].
pub async fn drive_patiently<'job, Make, Attempting>(job: Job<'job>, attempt: Make)
where
    Make: Fn(&'job Delivery) -> Attempting,
    Attempting: Future<Output = Result<Attempt, Attempt>>,
{
    drive_with(AttemptTimes::PATIENT, job, &attempt).await;
}

/// When a delivery may join those that wait for the gate.
#[derive(Debug)]
enum MayWait<'job> {
    /// It may: there is no quota.
    Free,
    /// It may at the time of its places in the quotas, when all are booked.
    Booked(Booking<'job>),
    /// It may not before this process has its part of a number that it shares with others, which is looked at again then.
    Shared(Instant),
}

/// How long attempts may take, and how much of a lease must be left for one to start.
#[derive(Debug, Clone, Copy)]
struct AttemptTimes {
    timeout: Duration,
    margin: Duration,
}

async fn drive_with<'job, All: Attempts<'job>>(
    pace: &'static AttemptTimes,
    job: Job<'job>,
    all: &All,
) {
    let mut waiting = (0..).zip(job.deliveries);
    let mut next = waiting.next();
    let (mut admission, mut waited) = (None::<MayWait<'_>>, Duration::ZERO);
    let mut held: Option<Pass> = None;
    let mut started = 0_usize;
    let later = |delivery, again| attempt_if_still(pace, &job, all, delivery, again);
    let mut under_way = UnderWay::new(&job, all, later, pace.timeout);
    let mut reports = Vec::new();
    loop {
        // Answers first: they free places and are what crashes would lose.
        while reports.len() < limits::REPORT_ITEMS
            && let Some(report) = under_way.next_ended()
        {
            reports.push(report);
        }
        if let Some((place, delivery)) = next
            && reports.len() < limits::REPORT_ITEMS
        {
            // Asked before the gate, so that what must not start any more needs no place to be handed back.
            let may_start = pace.may_start(&job, delivery);
            let is_open = may_start.and_then(|()| shut_out(&job, held.as_ref()));
            let earlier = admission.take();
            match is_open.and_then(|()| admit((&job, delivery), earlier, &mut waited)) {
                Err(report) => {
                    reports.push((delivery.index, report));
                    next = waiting.next();
                    // Without another one to send, the place is for other jobs.
                    held = held.filter(|_| next.is_some());
                    continue;
                }
                Ok(admitted) => {
                    if admitted.not_before(&job).is_some() {
                        // The place is free meanwhile for other jobs of the lane.
                        held = None;
                    } else if let Some(pass) = held.take().or_else(|| job.gate.try_enter()) {
                        under_way.push(place, delivery, pass);
                        next = waiting.next();
                        started += 1;
                        if started.is_multiple_of(STARTS_PER_TURN) {
                            tokio::task::yield_now().await;
                            under_way.end_turn();
                        }
                        continue;
                    }
                    admission = Some(admitted);
                }
            }
        }
        // Nothing that is known stays here while the loop sleeps. And a full batch leaves before more is started, so a
        // settle that cannot keep up holds new attempts back.
        if !reports.is_empty() {
            let mut reporting = pin!(job.reports.report(std::mem::take(&mut reports)));
            // Answers that come meanwhile end their attempts: the wait for settle is no latency of the provider.
            loop {
                tokio::select! {
                    biased;
                    () = &mut reporting => break,
                    Some(report) = under_way.next(), if reports.len() < limits::REPORT_ITEMS => reports.push(report),
                }
            }
            under_way.end_turn();
            continue;
        }
        if next.is_none() && under_way.is_empty() {
            return;
        }
        // Answers come first here, too. The wait that loses is dropped, and a gate hands
        // the wake-up of a dropped wait on.
        tokio::select! {
            biased;
            Some(report) = under_way.next(), if !under_way.is_empty() => reports.push(report),
            pass = wait_to_start(job, next, admission.as_ref()), if next.is_some() => held = pass,
        }
        under_way.end_turn();
    }
}

/// Books places in the quotas for `delivery`, the next one of a job whose deliveries have waited for `waited` so far, one after the
/// other; `earlier` is what it has so far. When they would wait for longer than [`WAIT_MAX`] together, it goes back to the store, and
/// makes room for others.
fn admit<'job>(
    (job, delivery): (&Job<'job>, &Delivery),
    earlier: Option<MayWait<'job>>,
    waited: &mut Duration,
) -> Result<MayWait<'job>, Report> {
    let is_booked = matches!(earlier, Some(MayWait::Booked(_)));
    // Without a limit the time is not asked, which each start would pay for.
    let Some(quota) = job.quota.filter(|quota| is_booked || !quota.is_open()) else {
        return Ok(MayWait::Free);
    };
    let now = job.clock.monotonic();
    // A place that comes when it has expired would be used by no attempt.
    let wait_max =
        WAIT_MAX.saturating_sub(*waited).min(job.expires_in(delivery).unwrap_or(WAIT_MAX));
    // One that is stale ends before another one is booked.
    let booked = match earlier.filter(|earlier| !earlier.is_stale(job)) {
        Some(MayWait::Booked(booking)) if booking.is_complete() || booking.is_early(job.clock) => {
            return Ok(MayWait::Booked(booking));
        }
        Some(MayWait::Booked(booking)) => {
            booking.complete(job.clock, job.priority(), wait_max).map(Some)
        }
        _ => match quota.awaits_part(now) {
            Some(at) => return Ok(MayWait::Shared(at)),
            None => quota.book(job.clock, job.priority(), wait_max),
        },
    };
    let booked = booked.map_err(|after| Report::HandedBack { after })?;
    let Some(booking) = booked else { return Ok(MayWait::Free) };
    *waited += booking.wait_since(now);
    Ok(MayWait::Booked(booking))
}

/// The report of a delivery whose destination does not answer: what waits for it would hold memory and lease in vain, and the store
/// knows better when to try again. A few at a time are tried nevertheless. Who has a pass, `own`, asks, too: those that waited
/// for one are many, and get theirs all at once when what hung has timed out. What must be sent at most once waits: to hand it back it
/// would have to be marked as begun.
fn shut_out(job: &Job<'_>, own: Option<&Pass>) -> Result<(), Report> {
    if job.fence.is_none() && job.gate.is_shut(own, || job.clock.wall()) {
        return Err(Report::HandedBack { after: SHUT_WAIT });
    }
    Ok(())
}

/// Makes an attempt unless it must not start any more: reporting may have waited long for settle since it was let in.
async fn attempt_if_still<'job, All: Attempts<'job>>(
    pace: &AttemptTimes,
    job: &Job<'_>,
    all: &All,
    delivery: &'job Delivery,
    again: Again,
) -> Attempt {
    // Dropped before the wait, or every attempt would carry it.
    if let Err(report) = pace.may_start(job, delivery) {
        return Attempt::not_started(report);
    }
    all.attempt(delivery, again).await.unwrap_or_else(|ended| ended)
}

/// Waits for what the next delivery waits for: its admission, or a pass. Not for longer than until it expires.
async fn wait_to_start(
    job: Job<'_>,
    next: Option<(u16, &Delivery)>,
    admission: Option<&MayWait<'_>>,
) -> Option<Pass> {
    let wait = async {
        if let Some(at) = admission.and_then(|admission| admission.not_before(&job)) {
            tokio::time::sleep_until(at).await;
            return None;
        }
        Some(job.gate.enter().await)
    };
    match next.and_then(|(_, delivery)| job.expires_in(delivery)) {
        // Without a pass then: the loop finds that it has expired.
        Some(left) => tokio::time::timeout(left, wait).await.ok().flatten(),
        None => wait.await,
    }
}

// === impl MayWait ===

impl MayWait<'_> {
    fn not_before(&self, job: &Job<'_>) -> Option<Instant> {
        match self {
            Self::Booked(booking) => booking.not_before(job.clock),
            Self::Shared(at) => Some(*at),
            Self::Free => None,
        }
    }

    fn is_stale(&self, job: &Job<'_>) -> bool {
        matches!(self, Self::Booked(booking) if booking.is_stale(job.clock))
    }
}

// === impl AttemptTimes ===

impl AttemptTimes {
    const USUAL: &Self = &Self { timeout: limits::ATTEMPT_TIMEOUT, margin: limits::LEASE_MARGIN };
    const PATIENT: &Self =
        &Self { timeout: limits::PATIENT_ATTEMPT_TIMEOUT, margin: limits::PATIENT_LEASE_MARGIN };

    fn may_start(&self, job: &Job<'_>, delivery: &Delivery) -> Result<(), Report> {
        job.may_start_with(delivery.index, self.margin)
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
