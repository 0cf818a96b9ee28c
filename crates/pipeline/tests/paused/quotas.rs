//! Quotas of tenants, and numbers that change.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use notification::{Draft, Guarantee, Lane, Priority};
use pipeline::QuotaNumbers;
use store::{Peers, ReadStore as _};
use tokio::time::Instant;

use crate::MS;
use crate::rig::{Rig, name, on_one_thread};
use crate::script::Script;

/// Drafts of a tenant, each for one of `destinations` in turn.
fn drafts_to(rig: &Rig, tenant: &str, destinations: usize, count: usize) -> Vec<Draft> {
    let draft = |number: usize| {
        let mut draft = rig.draft(&format!("{tenant} {number}"), Guarantee::AtLeastOnce);
        draft.envelope.lane.tenant = name(tenant);
        draft.envelope.lane.destination = format!("d{}", number % destinations).into();
        draft
    };
    (0..count).map(draft).collect()
}

/// Times of the attempts of a tenant.
fn attempts_of(rig: &Rig, tenant: &str) -> Vec<Instant> {
    let attempts = rig.script.attempts().into_iter().zip(rig.script.attempted_at());
    let is_of = |(recipient, _): &(String, Instant)| recipient.starts_with(tenant);
    attempts.filter(is_of).map(|(_, at)| at).collect()
}

#[test]
fn a_tenant_has_its_quota_over_all_destinations_and_holds_up_no_other() {
    let a_minute = 120;
    // A few destinations with a backlog, and many with two.
    for (destinations, count) in [(3, 480), (80, 160)] {
        on_one_thread(async || {
            let mut rig = Rig::new(Script::new(50 * MS, 16));
            rig.tenants = BTreeMap::from([(name("limited"), NonZeroU32::new(120).unwrap())]);
            let running = rig.start();
            rig.accept_drafts(drafts_to(&rig, "limited", destinations, count)).await;
            tokio::time::sleep(100 * MS).await;
            rig.accept_drafts(drafts_to(&rig, "free", destinations, 3)).await;
            // As long as that many take, and a twentieth.
            tokio::time::sleep(Duration::from_mins(count as u64) / 120 * 21 / 20).await;
            assert_eq!(rig.account().await.delivered, count as u64 + 3, "{destinations}");
            running.stop().await;
            let attempts = attempts_of(&rig, "limited");
            assert_eq!(attempts.len(), count, "none is made in vain");
            for more_than_a_minute in attempts.windows(a_minute + 1) {
                let took = more_than_a_minute[a_minute] - more_than_a_minute[0];
                assert!(took >= Duration::from_secs(59), "{took:?}");
            }
            let free = attempts_of(&rig, "free");
            let waited = *free.last().unwrap() - attempts[0];
            assert!(waited <= 200 * MS, "{destinations}: {waited:?}");
        });
    }
}

#[test]
fn a_backlog_leaves_room_in_the_quota_of_its_tenant_for_other_destinations() {
    for priority in [Priority::Urgent, Priority::Normal, Priority::Bulk] {
        on_one_thread(async || {
            let mut rig = Rig::new(Script::new(10 * MS, 10));
            rig.tenants = BTreeMap::from([(name("limited"), NonZeroU32::new(61).unwrap())]);
            let running = rig.start();
            rig.accept_drafts(drafts_to(&rig, "limited", 1, 100)).await;
            tokio::time::sleep(100 * MS).await;
            let mut one = rig.draft("one", Guarantee::AtLeastOnce);
            one.envelope.lane =
                Lane { tenant: name("limited"), priority, ..one.envelope.lane.clone() };
            let ids = rig.accept_drafts(vec![one]).await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            let history = rig.store.find(*ids.first().unwrap()).await.unwrap().unwrap();
            running.stop().await;
            let waited = history.attempts.first().unwrap().at.since(history.accepted_at);
            let places = if priority == Priority::Urgent { 2 } else { 5 };
            assert!(waited <= Duration::from_secs(places + 5), "{priority:?}: {waited:?}");
        });
    }
}

#[test]
fn a_number_that_changes_holds_at_once_and_makes_no_burst() {
    on_one_thread(async || {
        let mut rig = Rig::new(Script::new(50 * MS, 16));
        rig.tenants = BTreeMap::from([(name("limited"), NonZeroU32::new(60).unwrap())]);
        let running = rig.start();
        rig.accept_drafts(drafts_to(&rig, "limited", 2, 400)).await;
        let sleep = tokio::time::sleep;
        let give = |count| {
            let tenants = NonZeroU32::new(count).map(|count| (name("limited"), count));
            let tenants = tenants.into_iter().collect();
            rig.quotas.follow(QuotaNumbers { tenants, ..QuotaNumbers::default() });
        };
        let minute = Duration::from_mins(1);
        sleep(minute).await;
        let first = attempts_of(&rig, "limited").len();
        give(240);
        sleep(minute).await;
        let second = attempts_of(&rig, "limited").len() - first;
        give(6);
        sleep(minute).await;
        let third = attempts_of(&rig, "limited").len() - first - second;
        assert!((55..=60).contains(&first), "{first}");
        assert!((220..=240).contains(&second), "{second}");
        // Those that had a place.
        assert!((5..=6 + 240 * 5 / 60).contains(&third), "{third}");
        give(0);
        let before = rig.now();
        rig.drained().await;
        // What was handed back at six a minute comes back when it was appointed to, wherever in its turn the change falls.
        let took = rig.now().since(before);
        assert!(took < Duration::from_secs(40), "without a number all may go: {took:?}");
        running.stop().await;
    });
}

/// Attempts of a minute from `from` on.
fn minute_from(attempts: &[Instant], from: Instant) -> usize {
    let end = from + Duration::from_mins(1);
    attempts.iter().filter(|at| **at >= from && **at < end).count()
}

#[test]
fn two_processes_share_a_number_and_use_nearly_all_of_it() {
    on_one_thread(async || {
        let number = 120;
        let mut one = Rig::new(Script::new(10 * MS, 16));
        one.tenants = BTreeMap::from([(name("limited"), NonZeroU32::new(number).unwrap())]);
        let other = one.with_other();
        one.store.show_peers(Peers { worker: 1, are_there: true });
        let running = [one.start(), other.start()];
        for process in [&one, &other] {
            process.accept_drafts(drafts_to(process, "limited", 4, 500)).await;
        }
        tokio::time::sleep(Duration::from_mins(3)).await;
        let attempts = attempts_of(&one, "limited");
        for more_than_a_minute in attempts.windows(122) {
            let took = more_than_a_minute[121] - more_than_a_minute[0];
            assert!(took >= Duration::from_secs(59), "{took:?}");
        }
        // One that is left alone has all of it.
        let [first, second] = running;
        let before = attempts.last().copied().unwrap();
        let steady = minute_from(&attempts, before - Duration::from_mins(2));
        assert!((108..=120).contains(&steady), "{steady}");
        first.stop().await;
        tokio::time::sleep(Duration::from_secs(90)).await;
        let alone = minute_from(&attempts_of(&one, "limited"), before + Duration::from_secs(20));
        assert!((108..=120).contains(&alone), "{alone}");
        second.stop().await;
    });
}

#[test]
fn a_process_asks_for_no_share_while_it_is_alone_and_divides_with_one_that_comes() {
    on_one_thread(async || {
        let mut one = Rig::new(Script::new(10 * MS, 16));
        one.tenants = BTreeMap::from([(name("limited"), NonZeroU32::new(120).unwrap())]);
        let other = one.with_other();
        let running = one.start();
        for process in [&one, &other] {
            process.accept_drafts(drafts_to(process, "limited", 4, 400)).await;
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        let alone = attempts_of(&one, "limited");
        assert!((117..=120).contains(&alone.len()), "all of the number: {}", alone.len());
        one.store.show_peers(Peers { worker: 1, are_there: true });
        let second = other.start();
        tokio::time::sleep(Duration::from_mins(2)).await;
        let attempts = attempts_of(&one, "limited");
        for more_than_a_minute in attempts.windows(122) {
            let took = more_than_a_minute[121] - more_than_a_minute[0];
            assert!(took >= Duration::from_secs(59), "{took:?}");
        }
        let together = minute_from(&attempts, alone[0] + Duration::from_secs(100));
        assert!((108..=120).contains(&together), "{together}");
        running.stop().await;
        second.stop().await;
    });
}
