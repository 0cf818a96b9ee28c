//! Fallbacks: which one is sent, and when none is.

use std::sync::Arc;
use std::time::Duration;

use notification::{
    Alternative, Answer, ByteString, Bytes, Draft, Fallback, Guarantee, NotificationId, Priority,
    State,
};
use store::{CancelTarget, Ending, Filter, History, Operations as _, ReadStore as _, Suppression};

use crate::rig::{Rig, name, on_one_thread};
use crate::script::Script;

const MS: Duration = Duration::from_millis(1);

fn rig() -> Rig {
    Rig::new(Script::new(10 * MS, 100))
}

/// A draft for `recipient`, with fallbacks to `next` on the same channel.
fn draft(rig: &Rig, recipient: &str, next: &[&str], guarantee: Guarantee) -> Draft {
    let alternative = |recipient: &&str| Alternative {
        channel: name("script"),
        destination: "elsewhere".into(),
        recipient: ByteString::from(*recipient),
        payload: Bytes::from_static(b"[]"),
        options: Bytes::new(),
    };
    let mut draft = rig.draft(recipient, guarantee);
    let fallback = Fallback { of: None, next: next.iter().map(alternative).collect() };
    draft.content.fallback = Some(Arc::new(fallback));
    draft
}

fn refused() -> Answer {
    Answer::refused(400, false, "no")
}

async fn find(rig: &Rig, id: NotificationId) -> History {
    rig.store.find(id).await.unwrap().unwrap()
}

/// The states of a notification and of what stands in for it, to the end of the chain.
async fn chain(rig: &Rig, first: NotificationId) -> Vec<State> {
    let mut states = Vec::new();
    let (mut before, mut next) = (None, Some(first));
    while let Some(id) = next {
        let history = find(rig, id).await;
        assert_eq!(history.fallback_of(), before);
        states.push(history.state);
        (before, next) = (Some(id), history.fallback_id);
    }
    states
}

#[test]
fn each_refusal_leads_to_the_next_of_the_list() {
    use State::{Delivered, Refused};
    on_one_thread(async || {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let rig = rig();
            rig.script.answers("a", [refused()]);
            rig.script.answers("b", [Answer::refused(410, true, "gone")]);
            rig.script.answers("d", [refused()]);
            let running = rig.start();
            let drafts = vec![
                draft(&rig, "a", &["b", "c", "unused"], guarantee),
                draft(&rig, "d", &[], guarantee),
                rig.draft("e", guarantee),
            ];
            let ids = rig.accept_drafts(drafts).await;
            let account = rig.drained().await;
            assert_eq!(chain(&rig, ids[0]).await, [Refused, Refused, Delivered]);
            assert_eq!(chain(&rig, ids[1]).await, [Refused]);
            assert_eq!((account.accepted, account.refused, account.delivered), (5, 3, 2));
            for recipient in ["a", "b", "c", "d", "e"] {
                assert_eq!(rig.script.attempts_for(recipient), 1);
            }
            let first = find(&rig, ids[0]).await;
            let second = find(&rig, first.fallback_id.unwrap()).await;
            assert_eq!(second.envelope.guarantee, guarantee);
            assert_eq!(second.envelope.lane.priority, first.envelope.lane.priority);
            running.stop().await;
        }
    });
}

#[test]
fn nothing_stands_in_for_what_may_have_arrived_or_ended_otherwise() {
    use Guarantee::{AtLeastOnce, AtMostOnce};
    let check = async |guarantee, answers: Vec<Answer>, state: State| {
        let rig = rig();
        rig.script.answers("a", answers);
        let running = rig.start();
        let mut draft = draft(&rig, "a", &["b"], guarantee);
        draft.envelope.expires_at = Some(rig.now().plus(Duration::from_mins(1)));
        // The double gives no notice of an end by a claim, but of a later settlement.
        let mut last = rig.draft("last", guarantee);
        last.envelope.due_at = rig.now().plus(Duration::from_mins(3));
        let ids = rig.accept_drafts(vec![draft, last]).await;
        rig.drained().await;
        assert_eq!(chain(&rig, ids[0]).await, [state]);
        assert_eq!(rig.account().await.accepted, 2);
        assert_eq!(rig.script.attempts_for("b"), 0);
        running.stop().await;
    };
    on_one_thread(async || {
        check(AtMostOnce, vec![Answer::unknown("cut")], State::InDoubt).await;
        check(AtMostOnce, vec![Answer::deferred(500, None, "oops")], State::InDoubt).await;
        check(AtLeastOnce, vec![Answer::unknown("cut"); 9], State::Dead).await;
        check(AtLeastOnce, vec![Answer::deferred(503, None, "busy"); 9], State::Dead).await;
        let long = Some(Duration::from_mins(2));
        check(AtLeastOnce, vec![Answer::deferred(503, long, "busy")], State::Expired).await;
        check(AtLeastOnce, vec![Answer::deferred(503, None, "busy")], State::Delivered).await;
    });
}

#[test]
fn what_is_cancelled_has_no_fallback_and_a_fallback_can_be_cancelled() {
    on_one_thread(async || {
        let rig = rig();
        let mut later = draft(&rig, "a", &["b"], Guarantee::AtLeastOnce);
        later.envelope.due_at = rig.now().plus(Duration::from_mins(1));
        let ids = rig.accept_drafts(vec![later]).await;
        let target = CancelTarget::Notification(ids[0]);
        rig.store.cancel(target, name("default"), rig.now()).await.unwrap();
        let running = rig.start();
        rig.drained().await;
        assert_eq!(chain(&rig, ids[0]).await, [State::Cancelled]);
        assert_eq!(rig.script.attempts(), Vec::<String>::new());

        rig.script.answers("c", [refused()]);
        rig.script.answers("d", [Answer::deferred(503, Some(Duration::from_mins(2)), "busy")]);
        let ids =
            rig.accept_drafts(vec![draft(&rig, "c", &["d", "e"], Guarantee::AtMostOnce)]).await;
        while rig.script.attempts_for("d") == 0 {
            tokio::time::sleep(MS).await;
        }
        tokio::time::sleep(1_000 * MS).await;
        let fallback = find(&rig, ids[0]).await.fallback_id.unwrap();
        let target = CancelTarget::Notification(fallback);
        rig.store.cancel(target, name("default"), rig.now()).await.unwrap();
        let account = rig.drained().await;
        assert_eq!(chain(&rig, ids[0]).await, [State::Refused, State::Cancelled]);
        assert_eq!((account.accepted, account.refused, account.cancelled), (3, 1, 2));
        running.stop().await;
    });
}

#[test]
fn a_fallback_ends_when_its_notification_would_have_and_goes_as_urgently() {
    on_one_thread(async || {
        let rig = rig();
        rig.script.answers("a", [refused()]);
        rig.script.answers("b", [Answer::deferred(503, Some(Duration::from_mins(2)), "busy")]);
        let running = rig.start();
        let mut urgent = draft(&rig, "a", &["b", "c"], Guarantee::AtLeastOnce);
        urgent.envelope.lane.priority = Priority::Urgent;
        urgent.envelope.expires_at = Some(rig.now().plus(Duration::from_mins(1)));
        // The double gives no notice of an end by a claim, but of a later settlement.
        let mut last = rig.draft("last", Guarantee::AtLeastOnce);
        last.envelope.due_at = rig.now().plus(Duration::from_mins(3));
        let ids = rig.accept_drafts(vec![urgent, last]).await;
        let account = rig.drained().await;
        assert_eq!(chain(&rig, ids[0]).await, [State::Refused, State::Expired]);
        let first = find(&rig, ids[0]).await;
        let second = find(&rig, first.fallback_id.unwrap()).await;
        assert_eq!(second.envelope.expires_at, first.envelope.expires_at);
        assert_eq!(second.envelope.lane.priority, Priority::Urgent);
        assert_eq!((account.accepted, account.refused, account.expired), (3, 1, 1));
        assert_eq!(rig.script.attempts_for("c"), 0, "nobody wants it any more");
        running.stop().await;
    });
}

#[test]
fn a_suppressed_recipient_is_passed_over_for_its_fallback() {
    on_one_thread(async || {
        let rig = rig();
        let gone = |recipient: &'static str| Suppression {
            channel: name("script"),
            recipient: recipient.into(),
            reason: "gone".to_owned(),
            status: 0,
            since: rig.now(),
        };
        rig.store.suppress(vec![gone("a"), gone("b")], rig.now()).await.unwrap();
        let running = rig.start();
        let list = draft(&rig, "a", &["b", "c"], Guarantee::AtMostOnce);
        let ids = rig.accept_drafts(vec![list]).await;
        rig.drained().await;
        let expect = [State::Suppressed, State::Suppressed, State::Delivered];
        assert_eq!(chain(&rig, ids[0]).await, expect);
        assert_eq!(rig.script.attempts(), ["c"]);
        running.stop().await;
    });
}

#[test]
fn a_crash_anywhere_makes_no_fallback_twice_and_loses_none() {
    on_one_thread(async || {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let mut all = 0;
            for crash_at in [5, 15, 25, 35, 45, 55] {
                let rig = Rig::new(Script::new(10 * MS, 20));
                let numbers: Vec<String> = (0..50).map(|number| number.to_string()).collect();
                let drafts = numbers.iter().map(|number| {
                    rig.script.answers(number, vec![refused(); 9]);
                    draft(&rig, number, &[&format!("instead of {number}")], guarantee)
                });
                let drafts = drafts.collect();
                let running = rig.start();
                let ids = rig.accept_drafts(drafts).await;
                tokio::time::sleep(crash_at * MS).await;
                running.crash().await;
                rig.store.crash(Ending::Killed, rig.now());
                let running = rig.start();
                rig.drained().await;
                let listed = rig.store.list(Filter::default(), None, 1_000).await.unwrap().items;
                let mut fallbacks = 0;
                for id in ids {
                    let history = find(&rig, id).await;
                    let of_this = listed.iter().filter(|it| it.fallback_of() == Some(id));
                    let count = of_this.count();
                    assert_eq!(count, usize::from(history.state == State::Refused), "{history:?}");
                    fallbacks += count;
                }
                all += fallbacks;
                assert_eq!(rig.account().await.accepted, 50 + fallbacks as u64);
                if guarantee == Guarantee::AtMostOnce {
                    for number in &numbers {
                        assert!(rig.script.attempts_for(&format!("instead of {number}")) <= 1);
                    }
                }
                running.stop().await;
            }
            assert!(all > 0, "{guarantee}: some crashes come late enough");
        }
    });
}
