//! The pipeline as a whole, on one thread, under paused time, with doubles at its seams: no test sleeps on
//! the wall clock, and every run is the same.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

mod broker;
mod fallback;
mod fragments;
mod learned_rates;
mod outage;
mod quotas;
mod rig;
mod script;
mod threads;

use std::time::Duration;

use notification::{Account, Answer, Guarantee, Lane, Pause, Priority, Scope, State, limits};
use store::{CancelTarget, Operations as _, ReadStore as _};

use rig::{Rig, name, on_one_thread};
use script::Script;

const MS: Duration = Duration::from_millis(1);

fn rig() -> Rig {
    Rig::new(Script::new(10 * MS, 100))
}

#[test]
fn without_a_fault_everything_is_delivered_once() {
    on_one_thread(async || {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let rig = rig();
            let running = rig.start();
            let recipients: Vec<String> = (0..2_500).map(|number| format!("r{number}")).collect();
            let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
            rig.accept(&recipients, guarantee).await;
            let account = rig.drained().await;
            assert_eq!(
                account,
                Account { accepted: 2_500, delivered: 2_500, ..Account::default() }
            );
            let mut attempts = rig.script.attempts();
            attempts.sort_unstable();
            attempts.dedup();
            assert_eq!(attempts.len(), 2_500);
            assert_eq!(rig.script.attempts().len(), 2_500, "nobody was tried twice");
            assert_eq!(rig.script.under_way_max(), 99, "the gate is used, but for its reserve");
            running.stop().await;
        }
    });
}

#[test]
fn what_is_deferred_is_tried_again_and_what_is_refused_is_not() {
    on_one_thread(async || {
        let rig = rig();
        rig.script.answers(
            "later",
            [Answer::deferred(503, None, "busy"), Answer::deferred(429, None, "busy")],
        );
        rig.script.answers("never", [Answer::refused(400, false, "BadTopic")]);
        let running = rig.start();
        let ids = rig.accept(&["later", "never", "now"], Guarantee::AtLeastOnce).await;
        let account = rig.drained().await;
        assert_eq!((account.delivered, account.refused), (2, 1));
        assert_eq!(rig.script.attempts_for("later"), 3);
        assert_eq!(rig.script.attempts_for("never"), 1);
        let history = rig.store.find(ids[0]).await.unwrap().unwrap();
        let log: Vec<_> = history
            .attempts
            .iter()
            .map(|entry| (entry.attempt, entry.state, entry.status))
            .collect();
        assert_eq!(
            log,
            [(1, State::Pending, 503), (2, State::Pending, 429), (3, State::Delivered, 200)]
        );
        running.stop().await;
    });
}

#[test]
fn a_wait_that_the_provider_asked_for_is_kept() {
    on_one_thread(async || {
        let rig = rig();
        let asked = Duration::from_mins(15);
        rig.script.answers("later", [Answer::deferred(500, Some(asked), "InternalServerError")]);
        let running = rig.start();
        let ids = rig.accept(&["later"], Guarantee::AtLeastOnce).await;
        rig.drained().await;
        let history = rig.store.find(ids[0]).await.unwrap().unwrap();
        let waited = history.attempts[1].at.since(history.attempts[0].at);
        assert!(waited >= asked && waited < asked + Duration::from_secs(2), "{waited:?}");
        running.stop().await;
    });
}

#[test]
fn when_every_attempt_is_used_up_it_is_dead() {
    on_one_thread(async || {
        let rig = rig();
        rig.script.answers("never", std::iter::repeat_n(Answer::deferred(503, None, "down"), 10));
        let running = rig.start();
        rig.accept(&["never"], Guarantee::AtLeastOnce).await;
        assert_eq!(rig.drained().await.dead, 1);
        assert_eq!(rig.script.attempts_for("never"), 4, "the policy's attempts");
        running.stop().await;
    });
}

#[test]
fn a_lost_answer_is_repeated_or_in_doubt_as_the_guarantee_says() {
    on_one_thread(async || {
        let rig = rig();
        rig.script.answers("least", [Answer::unknown("cut")]);
        rig.script.answers("most", [Answer::unknown("cut")]);
        let running = rig.start();
        let least = rig.accept(&["least"], Guarantee::AtLeastOnce).await;
        let most = rig.accept(&["most"], Guarantee::AtMostOnce).await;
        rig.drained().await;
        assert_eq!(rig.state(least[0]).await, State::Delivered);
        assert_eq!(rig.script.attempts_for("least"), 2);
        assert_eq!(rig.state(most[0]).await, State::InDoubt);
        assert_eq!(rig.script.attempts_for("most"), 1);
        running.stop().await;
    });
}

#[test]
fn a_server_that_failed_may_have_acted_and_one_that_declined_has_not() {
    on_one_thread(async || {
        let rig = rig();
        rig.script.answers("failed", [Answer::deferred(500, None, "oops")]);
        rig.script.answers("declined", [Answer::deferred(503, None, "busy")]);
        let running = rig.start();
        let ids = rig.accept(&["failed", "declined"], Guarantee::AtMostOnce).await;
        rig.drained().await;
        assert_eq!(rig.state(ids[0]).await, State::InDoubt);
        assert_eq!(rig.script.attempts_for("failed"), 1, "never on the wire twice");
        assert_eq!(rig.state(ids[1]).await, State::Delivered);
        running.stop().await;
    });
}

#[test]
fn an_attempt_that_panics_costs_one_notification_and_not_the_pipeline() {
    on_one_thread(async || {
        let rig = rig();
        rig.script.answers("poison", std::iter::repeat_n(Answer::unknown("panic"), 10));
        let running = rig.start();
        rig.accept(&["before", "poison", "after"], Guarantee::AtLeastOnce).await;
        let account = rig.drained().await;
        assert_eq!((account.delivered, account.dead), (2, 1));
        running.stop().await;
    });
}

#[test]
fn what_a_sender_that_panics_has_not_reported_is_given_back() {
    on_one_thread(async || {
        let rig = rig();
        rig.script.break_once();
        let (started, running) = (rig.clock.monotonic(), rig.start());
        rig.accept(&["one", "other"], Guarantee::AtLeastOnce).await;
        assert_eq!(rig.drained().await.delivered, 2);
        let waited = rig.clock.monotonic() - started;
        assert!(waited >= Duration::from_mins(1), "a defect that is always met makes no loop");
        assert!(waited < limits::LEASE, "nobody waits for the lease to end: {waited:?}");
        assert_eq!(rig.script.attempts().len(), 2);
        running.stop().await;
    });
}

#[test]
fn of_what_a_sender_that_panics_has_begun_nothing_is_sent_again_at_most_once() {
    on_one_thread(async || {
        let rig = Rig::new(Script::new(20 * MS, 10));
        rig.script.break_after_attempts(25);
        let running = rig.start();
        let recipients: Vec<String> = (0..300).map(|number| number.to_string()).collect();
        let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
        rig.accept(&recipients, Guarantee::AtMostOnce).await;
        let account = rig.drained().await;
        let begun = limits::BEGIN_ITEMS as u64;
        assert_eq!((account.delivered + account.in_doubt, account.pending), (300, 0));
        assert!((10..=begun).contains(&account.in_doubt), "{account:?}");
        for recipient in recipients {
            assert!(rig.script.attempts_for(recipient) <= 1, "{recipient}");
        }
        running.stop().await;
    });
}

#[test]
fn nothing_is_sent_before_it_is_due_nor_after_it_expired() {
    on_one_thread(async || {
        let rig = rig();
        let running = rig.start();
        let mut later = rig.draft("later", Guarantee::AtLeastOnce);
        later.envelope.due_at = rig.now().plus(Duration::from_hours(1));
        let mut expires = rig.draft("expires", Guarantee::AtLeastOnce);
        expires.envelope.expires_at = Some(rig.now().plus(Duration::from_secs(30)));
        rig.script
            .answers("expires", [Answer::deferred(503, Some(Duration::from_mins(2)), "down")]);
        let ids = rig.accept_drafts(vec![later, expires]).await;
        let account = rig.drained().await;
        assert_eq!((account.delivered, account.expired), (1, 1));
        assert_eq!(rig.script.attempts_for("expires"), 1);
        let history = rig.store.find(ids[0]).await.unwrap().unwrap();
        let late = history.attempts[0].at.since(history.envelope.due_at);
        assert!(late < Duration::from_secs(1), "woken by its due time: {late:?} late");
        running.stop().await;
    });
}

#[test]
fn what_could_only_be_tried_again_too_late_is_expired_at_once() {
    on_one_thread(async || {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let rig = rig();
            let running = rig.start();
            let mut draft = rig.draft("expires", guarantee);
            draft.envelope.expires_at = Some(rig.now().plus(Duration::from_secs(30)));
            let asked = Some(Duration::from_mins(2));
            rig.script.answers("expires", [Answer::deferred(503, asked, "busy")]);
            let (began, ids) = (rig.now(), rig.accept_drafts(vec![draft]).await);
            assert_eq!(rig.drained().await.expired, 1);
            assert!(rig.now().since(began) < Duration::from_secs(1), "nobody waits for it");
            let history = rig.store.find(ids[0]).await.unwrap().unwrap();
            let [line] = &history.attempts[..] else { panic!("{history:?}") };
            assert_eq!((line.attempt, line.state, line.status), (1, State::Expired, 503));
            assert_eq!(line.detail, "busy; the next attempt would come after it expired");
            running.stop().await;
        }
    });
}

#[test]
fn a_gone_recipient_is_not_tried_again() {
    on_one_thread(async || {
        let rig = rig();
        rig.script.answers("gone", [Answer::refused(410, true, "Unregistered")]);
        let running = rig.start();
        rig.accept(&["gone"], Guarantee::AtLeastOnce).await;
        assert_eq!(rig.drained().await.refused, 1);
        rig.accept(&["gone", "here"], Guarantee::AtLeastOnce).await;
        let account = rig.drained().await;
        assert_eq!((account.suppressed, account.delivered), (1, 1));
        assert_eq!(rig.script.attempts_for("gone"), 1);
        running.stop().await;
    });
}

#[test]
fn what_is_cancelled_in_time_is_not_sent() {
    on_one_thread(async || {
        let rig = rig();
        let running = rig.start();
        let mut draft = rig.draft("withdrawn", Guarantee::AtLeastOnce);
        draft.envelope.due_at = rig.now().plus(Duration::from_mins(1));
        let ids = rig.accept_drafts(vec![draft]).await;
        let target = CancelTarget::Notification(ids[0]);
        let cancelled =
            rig.store.cancel(target, name("default"), rig.now()).await.unwrap().unwrap();
        assert_eq!(cancelled.cancelled, 1);
        assert_eq!(rig.drained().await.cancelled, 1);
        assert_eq!(rig.script.attempts(), Vec::<String>::new());
        running.stop().await;
    });
}

#[test]
fn a_crash_repeats_only_what_was_in_flight_and_doubts_only_what_was_begun() {
    on_one_thread(async || {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let rig = Rig::new(Script::new(10 * MS, 50));
            let running = rig.start();
            let recipients: Vec<String> = (0..1_000).map(|number| format!("r{number}")).collect();
            let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
            rig.accept(&recipients, guarantee).await;
            tokio::time::sleep(55 * MS).await;
            let settled = rig.account().await.delivered;
            assert!(settled > 0 && settled < 1_000, "the crash comes halfway: {settled}");
            running.crash().await;
            rig.store.crash(store::Ending::Killed, rig.now());
            let sent_before = rig.script.attempts().len() as u64;
            let running = rig.start();
            let account = rig.drained().await;
            let in_flight = sent_before - settled;
            let twice =
                rig.script.attempts().len() as u64 - (1_000 - account.in_doubt).max(sent_before);
            match guarantee {
                Guarantee::AtLeastOnce => {
                    assert_eq!(account.delivered, 1_000);
                    assert_eq!(rig.script.attempts().len() as u64 - 1_000, in_flight);
                }
                Guarantee::AtMostOnce => {
                    assert_eq!(account.delivered + account.in_doubt, 1_000);
                    assert!(
                        account.in_doubt <= 2 * limits::BEGIN_ITEMS as u64,
                        "{}",
                        account.in_doubt
                    );
                    assert!(
                        recipients.iter().all(|recipient| rig.script.attempts_for(recipient) <= 1),
                        "{twice}"
                    );
                }
            }
            running.stop().await;
        }
    });
}

#[test]
fn a_stop_finishes_what_is_under_way_and_leaves_the_rest_pending() {
    on_one_thread(async || {
        let rig = Rig::new(Script::new(10 * MS, 10));
        let running = rig.start();
        let recipients: Vec<String> = (0..100).map(|number| format!("r{number}")).collect();
        let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
        rig.accept(&recipients, Guarantee::AtMostOnce).await;
        tokio::time::sleep(25 * MS).await;
        running.stop().await;
        let account = rig.account().await;
        assert_eq!(account.in_doubt, 0);
        assert_eq!(
            account.delivered,
            rig.script.attempts().len() as u64,
            "everything sent is settled"
        );
        assert_eq!(account.pending, 100 - account.delivered);
        let running = rig.start();
        assert_eq!(rig.drained().await.delivered, 100);
        assert_eq!(rig.script.attempts().len(), 100);
        running.stop().await;
    });
}

/// Wait of one notification in the lane `of_one` behind a campaign of 5,000 in the lane `of_campaign`: both functions are given
/// the usual lane of one destination. It takes ten at a time, and 10 ms for each.
fn waited(of_campaign: fn(&mut Lane), of_one: fn(&mut Lane)) -> Duration {
    waited_behind(5_000, Script::new(10 * MS, 10), of_campaign, of_one)
}

/// [`waited`] for another campaign and another destination.
fn waited_behind(
    campaign: usize,
    script: Script,
    of_campaign: fn(&mut Lane),
    of_one: fn(&mut Lane),
) -> Duration {
    on_one_thread(async || {
        let rig = Rig::new(script);
        let running = rig.start();
        let draft = |recipient: &str, of: fn(&mut Lane)| {
            let mut draft = rig.draft(recipient, Guarantee::AtLeastOnce);
            of(&mut draft.envelope.lane);
            draft
        };
        let campaign = (0..campaign).map(|number| draft(&format!("r{number}"), of_campaign));
        rig.accept_drafts(campaign.collect()).await;
        tokio::time::sleep(100 * MS).await;
        let ids = rig.accept_drafts(vec![draft("one", of_one)]).await;
        rig.drained().await;
        let history = rig.store.find(*ids.first().unwrap()).await.unwrap().unwrap();
        running.stop().await;
        history.attempts.first().unwrap().at.since(history.accepted_at)
    })
}

#[test]
fn an_urgent_one_does_not_wait_behind_a_campaign() {
    let waited =
        waited(|lane| lane.priority = Priority::Bulk, |lane| lane.priority = Priority::Urgent);
    assert!(waited <= 22 * MS, "two answers' latency, not the campaign's five seconds: {waited:?}");
}

#[test]
fn a_tenant_does_not_wait_behind_the_campaign_of_another() {
    let waited = waited(|lane| lane.tenant = name("large"), |lane| lane.tenant = name("small"));
    assert!(waited <= 22 * MS, "for the next place that is freed, and for an answer: {waited:?}");
}

#[test]
fn no_minute_has_more_than_the_quota_and_nearly_all_of_it_is_used() {
    let (a_minute, minutes) = (120, 4);
    on_one_thread(async || {
        let rig = Rig::new(Script::new(50 * MS, 16).per_minute(120));
        let running = rig.start();
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let draft = |number| rig.draft(&format!("{guarantee:?} {number}"), guarantee);
            rig.accept_drafts((0..a_minute * minutes / 2).map(draft).collect()).await;
        }
        assert_eq!(rig.drained().await.delivered, 480);
        running.stop().await;
        let attempts = rig.script.attempted_at();
        assert_eq!(attempts.len(), a_minute * minutes, "none is made in vain");
        for more_than_a_minute in attempts.windows(a_minute + 1) {
            let took = more_than_a_minute[a_minute] - more_than_a_minute[0];
            assert!(took >= Duration::from_mins(1), "{took:?}");
        }
        let took = *attempts.last().unwrap() - attempts[0];
        assert!(took <= Duration::from_mins(4) * 21 / 20, "{took:?}");
    });
}

#[test]
fn a_backlog_leaves_room_in_the_quota_for_others() {
    // One every ten seconds, one a second, and ten a second.
    for (per_minute, backlog) in [(7, 20), (61, 100), (610, 1_000)] {
        let between = Duration::from_mins(1) / per_minute;
        let waited = |of_campaign, of_one| {
            let script = Script::new(10 * MS, 10).per_minute(per_minute);
            waited_behind(backlog, script, of_campaign, of_one)
        };
        let of_tenant =
            waited(|lane| lane.tenant = name("large"), |lane| lane.tenant = name("small"));
        assert!(of_tenant <= 3 * between + Duration::from_secs(5), "{per_minute}: {of_tenant:?}");
        let urgent = waited(|_| (), |lane| lane.priority = Priority::Urgent);
        assert!(urgent <= 2 * between + Duration::from_secs(5), "{per_minute}: {urgent:?}");
        let bulk = waited(|_| (), |lane| lane.priority = Priority::Bulk);
        assert!(bulk <= 5 * between + Duration::from_secs(5), "{per_minute}: {bulk:?}");
    }
}

/// Stores as many notifications of a lane as leave most of them in the queue when the first are sent.
async fn accept_many(rig: &Rig, guarantee: Guarantee) {
    let recipients: Vec<String> = (0..2_500).map(|number| format!("r{number}")).collect();
    let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
    rig.accept(&recipients, guarantee).await;
}

/// Deliveries that are claimed and not settled.
async fn claimed(rig: &Rig) -> u64 {
    rig.store.lanes().await.unwrap().lanes.iter().map(|lane| lane.claimed).sum()
}

#[test]
fn nothing_begins_after_a_pause_was_answered_though_it_is_claimed() {
    on_one_thread(async || {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let rig = rig();
            let running = rig.start();
            accept_many(&rig, guarantee).await;
            while claimed(&rig).await < 200 {
                tokio::time::sleep(MS).await;
            }
            let scope = Scope::Channel(name("script"));
            let pause = Pause { tenant: name("default"), scope: scope.clone(), since: rig.now() };
            rig.store.pause(pause).await.unwrap();
            let begun = rig.script.attempts().len();
            let under_way = rig.script.under_way_max();
            assert!(begun < 2_000 && under_way < 100, "{begun}, and the rest is in the queue");
            tokio::time::sleep(Duration::from_hours(1)).await;
            assert_eq!(rig.script.attempts().len(), begun, "nothing has begun since");
            let account = rig.account().await;
            assert_eq!(account.delivered, begun as u64, "what was under way has ended");
            assert_eq!(account.pending, 2_500 - begun as u64);
            assert_eq!(claimed(&rig).await, 0, "nothing is held for what is paused");
            assert!(rig.store.resume(name("default"), scope).await.unwrap());
            assert_eq!(rig.drained().await.delivered, 2_500);
            let mut attempts = rig.script.attempts();
            attempts.sort_unstable();
            attempts.dedup();
            assert_eq!((attempts.len(), rig.script.attempts().len()), (2_500, 2_500));
            running.stop().await;
        }
    });
}
