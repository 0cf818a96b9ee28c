//! Deliveries that come in small pieces, or fall into them: as many are under way as of a broadcast, and retries stay together.

use std::collections::BTreeSet;
use std::time::Duration;

use notification::{Account, Answer, Draft, Guarantee, NotificationId, State, Verdict};
use store::ReadStore as _;

use crate::broker::broker;
use crate::rig::{Rig, Running, on_one_thread};
use crate::script::Script;

/// Notifications of one lane.
const ONE_OFFS: usize = 300;
/// Latency of the provider.
const LATENCY: Duration = Duration::from_secs(1);
/// Rounds of attempts that fail.
const ROUNDS: usize = 3;
/// Chunks of a thousand deliveries in one round: its answers come over half a second, which is three steps of its first wait and
/// less of later ones.
const HANDFUL: usize = 8;

/// Lets paused time pass until no notification is pending.
async fn settled(rig: &Rig) {
    while rig.store.totals().await.unwrap().pending > 0 {
        tokio::time::sleep(LATENCY).await;
    }
}

/// A draft that is due and expires at instants of its own: a batch of its own.
fn one_off(rig: &Rig, number: usize) -> Draft {
    let mut draft = rig.draft(&number.to_string(), Guarantee::AtLeastOnce);
    let own = Duration::from_millis(number as u64);
    draft.envelope.due_at = draft.envelope.due_at.minus(own);
    draft.envelope.expires_at = Some(rig.now().plus(Duration::from_hours(1) + own));
    draft
}

/// Sends notifications that are due at once, or each at an instant of its own: the most that were under way together, and the time
/// until the last was accepted.
fn send(is_apart: bool) -> (usize, Duration) {
    on_one_thread(async || {
        let rig = Rig::new(Script::new(LATENCY, 2 * ONE_OFFS));
        let draft = |number: usize| {
            let together = || rig.draft(&number.to_string(), Guarantee::AtLeastOnce);
            if is_apart { one_off(&rig, number) } else { together() }
        };
        rig.accept_drafts((0..ONE_OFFS).map(draft).collect()).await;
        let began = rig.clock.monotonic();
        let running = rig.start();
        settled(&rig).await;
        let took = *rig.script.accepted_at().last().unwrap() - began;
        running.stop().await;
        (rig.script.under_way_max(), took)
    })
}

/// Has nine of ten attempts deferred in each round, with the same words or each with its own: the number of chunks by attempt.
fn chunks_by_attempt(have_own_words: bool) -> Vec<usize> {
    on_one_thread(async || {
        let script = Script::new(Duration::from_millis(100), 2 * ONE_OFFS);
        let rig = Rig::new(script.spread(Duration::from_millis(500)));
        let recipients: Vec<String> = (0..1_000_usize).map(|number| number.to_string()).collect();
        for (number, recipient) in recipients.iter().enumerate() {
            let words = if have_own_words { format!("busy {number}") } else { "busy".to_owned() };
            let fails = (0..ROUNDS).take_while(|round| (number / 10 + round + number) % 10 != 0);
            let busy = |_| Answer::deferred(503, None, words.clone());
            rig.script.answers(recipient, fails.map(busy));
        }
        let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
        rig.accept(&recipients, Guarantee::AtLeastOnce).await;
        let running = rig.start();
        settled(&rig).await;
        running.stop().await;
        rig.script.chunks_by_attempt()
    })
}

#[test]
fn one_offs_are_under_way_as_many_as_one_envelope() {
    let ((together, one_took), (apart, all_took)) = (send(false), send(true));
    assert!(apart >= together, "{apart} were under way, of one envelope {together}");
    assert!(all_took <= one_took, "they took {all_took:?}, one envelope {one_took:?}");
}

#[test]
fn retries_of_a_chunk_are_a_handful_of_chunks_in_every_round() {
    for have_own_words in [false, true] {
        let chunks = chunks_by_attempt(have_own_words);
        assert_eq!(chunks.len(), 1 + ROUNDS, "{chunks:?}");
        assert!(chunks.iter().all(|count| *count <= HANDFUL), "{chunks:?}");
    }
}

/// The end of one-off `number`, whose answers are by its last digit: refused, deferred and then accepted, lost and then accepted, or
/// accepted.
fn end_of(number: usize) -> (Vec<Answer>, State, usize) {
    let refused = Answer { verdict: Verdict::Refused { gone: false }, ..Answer::unknown("no") };
    match number % 10 {
        0 => (vec![refused], State::Refused, 1),
        1 => (vec![Answer::deferred(503, None, format!("busy {number}"))], State::Delivered, 2),
        2 => (vec![Answer::unknown("lost")], State::Delivered, 2),
        _ => (Vec::new(), State::Delivered, 1),
    }
}

#[test]
fn one_offs_are_sent_together_and_each_keeps_its_own_account() {
    for is_behind_a_broker in [false, true] {
        on_one_thread(async || {
            let rig = Rig::new(Script::new(LATENCY, 2 * ONE_OFFS));
            for number in 0..ONE_OFFS {
                rig.script.answers(&number.to_string(), end_of(number).0);
            }
            let drafts = (0..ONE_OFFS).map(|number| one_off(&rig, number)).collect();
            let ids = rig.accept_drafts(drafts).await;
            let batches: BTreeSet<_> = ids.iter().map(|id| id.batch()).collect();
            assert_eq!(batches.len(), ONE_OFFS, "each is a batch");
            let running =
                if is_behind_a_broker { rig.start_behind(&broker()) } else { rig.start() };
            settled(&rig).await;
            running.stop().await;
            let jobs = rig.script.chunks_by_attempt();
            assert_eq!(jobs.len(), 2, "{jobs:?}");
            assert!(jobs.iter().all(|count| *count <= 2 * HANDFUL), "{jobs:?}");
            assert_each_has_its_end(&rig, ids).await;
        });
    }
}

/// That each of all one-offs has come to its own end, by its own attempts.
async fn assert_each_has_its_end(rig: &Rig, ids: Vec<NotificationId>) {
    let (account, tenth) = (rig.account().await, ONE_OFFS as u64 / 10);
    assert_eq!((account.refused, account.delivered), (tenth, 9 * tenth));
    for (number, id) in ids.into_iter().enumerate() {
        let (answers, state, attempts) = end_of(number);
        let history = rig.store.find(id).await.unwrap().unwrap();
        assert_eq!((history.state, history.attempts.len()), (state, attempts), "{number}");
        assert_eq!(rig.script.attempts_for(&number.to_string()), attempts);
        let first = answers.first().map_or("", |answer| &*answer.detail);
        let words = history.attempts.first().map(|attempt| &*attempt.detail);
        assert_eq!(words, Some(first), "its own words");
    }
}

/// Ends the run of 300 one-offs by `end` when some were answered: the account, and the number of attempts.
fn end_halfway(end: impl AsyncFnOnce(&Rig, Running) -> Running) -> (Account, u64) {
    on_one_thread(async || {
        let rig = Rig::new(Script::new(10 * LATENCY / 1_000, 50));
        let drafts = (0..ONE_OFFS).map(|number| one_off(&rig, number)).collect();
        rig.accept_drafts(drafts).await;
        let running = rig.start();
        tokio::time::sleep(LATENCY * 35 / 1_000).await;
        let delivered = rig.account().await.delivered;
        assert!((1..ONE_OFFS as u64).contains(&delivered), "it comes halfway: {delivered}");
        let running = end(&rig, running).await;
        settled(&rig).await;
        running.stop().await;
        (rig.account().await, rig.script.attempts().len() as u64)
    })
}

#[test]
fn one_offs_that_are_sent_together_survive_a_crash_and_a_panic_of_the_sender() {
    let mut under_way = 0;
    let (account, attempts) = end_halfway(async |rig, running| {
        under_way = rig.script.attempts().len() as u64 - rig.account().await.delivered;
        running.crash().await;
        rig.store.crash(store::Ending::Killed, rig.now());
        rig.start()
    });
    assert_eq!(account.delivered, ONE_OFFS as u64);
    assert_eq!(
        attempts,
        ONE_OFFS as u64 + under_way,
        "what was under way is repeated, and nothing else"
    );
    let (account, _) = end_halfway(async |rig, running| {
        rig.script.break_after_attempts(rig.script.attempts().len());
        running
    });
    assert_eq!(account.delivered, ONE_OFFS as u64);
}
