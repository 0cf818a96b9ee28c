//! Expiry of deliveries that wait for their attempt, under paused time.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_waits_behind_a_full_gate_expires_or_is_handed_back_in_time() {
    let clock = Clock::starting_at(NOW);
    let gate = Gate::new(Box::new(Fixed(1)));
    let settle = SettleDouble::new(100);
    let mut chunk = chunk(clock, 4);
    chunk.envelope.expires_at = Some(timestamp(clock).plus(Duration::from_secs(5)));
    let slow = async |_: &Delivery| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(accepted())
    };
    drive(job(&chunk, &gate, &settle, clock), slow).await;
    let reports = settle.reports.take();
    let expired = reports.values().filter(|report| **report == Report::Expired).count();
    assert_eq!(expired, 2, "started at 0 s and 3 s, too late at 6 s: {reports:?}");
    chunk.envelope.expires_at = None;
    chunk.lease_until = timestamp(clock).plus(limits::LEASE_MARGIN + Duration::from_secs(5));
    drive(job(&chunk, &gate, &settle, clock), slow).await;
    let handed_back = |report: &&Report| matches!(report, Report::HandedBack { .. });
    assert_eq!(settle.reports.borrow().values().filter(handed_back).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn each_delivery_of_a_joined_chunk_expires_at_its_own_time() {
    let clock = Clock::starting_at(NOW);
    let (settle, gate) = (SettleDouble::new(100), Gate::new(Box::new(Fixed(1))));
    let chunks = [None, Some(2), Some(7), Some(5)].map(|seconds| {
        let mut chunk = chunk(clock, 1);
        let expires_at = |after| timestamp(clock).plus(Duration::from_secs(after));
        chunk.envelope.expires_at = seconds.map(expires_at);
        chunk
    });
    let joined = notification::join(chunks.into());
    let slow = async |_: &Delivery| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(accepted())
    };
    drive(job(&joined[0], &gate, &settle, clock), slow).await;
    let expired = settle.reports.take().into_iter();
    let expired = expired.filter(|(_, report)| *report == Report::Expired).map(|(index, _)| index);
    assert_eq!(expired.collect::<Vec<_>>(), [1, 3], "at 3 s and at 6 s; the third went at 3 s");
}

#[tokio::test(start_paused = true)]
async fn what_expires_behind_a_gate_that_stays_full_is_reported_then() {
    let clock = Clock::starting_at(NOW);
    let gate = Gate::new(Box::new(Fixed(1)));
    let busy = gate.try_enter().unwrap();
    let settle = SettleDouble::new(100);
    let mut chunk = chunk(clock, 4);
    let (began, expires_in) = (clock.monotonic(), Duration::from_secs(5));
    chunk.envelope.expires_at = Some(timestamp(clock).plus(expires_in));
    drive(job(&chunk, &gate, &settle, clock), async |_| panic!("it is not tried")).await;
    assert_eq!(settle.reports.take().into_values().collect::<Vec<_>>(), vec![Report::Expired; 4]);
    assert_eq!((clock.monotonic() - began).as_secs(), expires_in.as_secs());
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn no_place_in_the_quota_is_booked_for_what_will_have_expired() {
    let clock = Clock::starting_at(NOW);
    let (settle, gate) = (SettleDouble::new(100), Gate::new(Box::new(Fixed(10))));
    let quota = LaneQuota::new(per_minute(0), per_minute(61));
    let limited = |chunk| Job { quota: Some(&quota), ..job(chunk, &gate, &settle, clock) };
    let mut expires = chunk(clock, 2);
    expires.envelope.expires_at = Some(timestamp(clock).plus(Duration::from_millis(300)));
    let began = clock.monotonic();
    drive(limited(&expires), async |_| Ok(accepted())).await;
    let reports = settle.reports.take();
    assert!(matches!(reports[&0], Report::Attempted(_)), "there is a place at once: {reports:?}");
    // What is not tried goes back for longer than until it expires.
    assert!(matches!(reports[&1], Report::HandedBack { after } if after.as_millis() > 300));
    assert_eq!(clock.monotonic(), began, "nobody waits for it");
    // The next place is free for another one, a second later.
    let other = chunk(clock, 1);
    drive(limited(&other), async |_| Ok(accepted())).await;
    assert!((clock.monotonic() - began).as_millis() <= 1_001);
}
