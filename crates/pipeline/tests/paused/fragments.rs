//! Deliveries that come in small pieces, or fall into them: as many are under way as of a broadcast, and retries stay together.

use std::time::Duration;

use notification::{Answer, Guarantee};
use store::ReadStore as _;

use crate::rig::{Rig, on_one_thread};
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

/// Sends notifications that are due at once, or each at an instant of its own: the most that were under way together, and the time
/// until the last was accepted.
fn send(is_apart: bool) -> (usize, Duration) {
    on_one_thread(async || {
        let rig = Rig::new(Script::new(LATENCY, 2 * ONE_OFFS));
        let draft = |number: usize| {
            let mut draft = rig.draft(&number.to_string(), Guarantee::AtLeastOnce);
            if is_apart {
                let before = Duration::from_millis(number as u64);
                draft.envelope.due_at = draft.envelope.due_at.minus(before);
            }
            draft
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
