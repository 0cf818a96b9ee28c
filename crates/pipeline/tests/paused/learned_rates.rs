//! Destinations with a rate that no configuration names.

use std::time::Duration;

use notification::{Answer, Draft, Guarantee};
use store::{Peers, ReadStore as _};
use tokio::time::Instant;

use crate::MS;
use crate::rig::{Rig, on_one_thread};
use crate::script::Script;

fn drafts(rig: &Rig, count: usize) -> Vec<Draft> {
    (0..count).map(|number| rig.draft(&number.to_string(), Guarantee::AtLeastOnce)).collect()
}

/// How many of `times` lie between the minutes `from` and `until` after `start`.
fn between(times: &[Instant], start: Instant, (from, until): (u64, u64)) -> usize {
    let [from, until] = [from, until].map(|minutes| start + Duration::from_mins(minutes));
    times.iter().filter(|at| (from..until).contains(*at)).count()
}

#[test]
fn a_rate_that_nobody_configured_is_learned_from_refusals_and_used() {
    on_one_thread(async || {
        for (a_second, (learned, ended)) in [(2, (2, 6)), (20, (1, 3))] {
            // So many places that the rate alone holds anything back.
            let mut rig = Rig::new(Script::new(20 * MS, 64).rate_limited(a_second));
            rig.policy.attempts = 1_000;
            let running = rig.start();
            let start = rig.clock.monotonic();
            let minutes = |count: u64| usize::try_from(60 * count).unwrap() * a_second as usize;
            rig.accept_drafts(drafts(&rig, minutes(ended + 1))).await;
            tokio::time::sleep(Duration::from_mins(ended)).await;
            let lanes = rig.store.lanes().await.unwrap().lanes;
            let shown = lanes[0].evidence.rate_per_minute.unwrap().get();
            let span = (learned, ended);
            let attempts = between(&rig.script.attempted_at(), start, span);
            let accepted = between(&rig.script.accepted_at(), start, span);
            let all = minutes(ended - learned);
            let refused = attempts - accepted;
            assert!(
                accepted * 100 >= all * 90,
                "{a_second}: {accepted} of {all}, {refused} refused"
            );
            assert!(refused * 100 <= attempts * 2, "{a_second}: {refused} of {attempts} refused");
            let shown_part = f64::from(shown) / f64::from(60 * a_second);
            assert!((0.9..1.1).contains(&shown_part), "{a_second}: {shown} a minute");
            println!(
                "{a_second}: {accepted} of {all}, {refused} of {attempts} refused, {shown} shown"
            );
            running.crash().await;
        }
    });
}

/// Two processes with backlogs before one destination, for five minutes: what was accepted of what could be in the last three, and what
/// was refused of what was sent.
async fn two_before(script: Script, a_second: u32, are_there: bool) -> (f64, f64) {
    let mut one = Rig::new(script);
    one.policy.attempts = 1_000;
    let mut other = one.with_other();
    other.policy.attempts = 1_000;
    one.store.show_peers(Peers { worker: 1, are_there });
    let start = one.clock.monotonic();
    let running = [one.start(), other.start()];
    let minutes = |count: u64| usize::try_from(60 * count).unwrap() * a_second as usize;
    for process in [&one, &other] {
        process.accept_drafts(drafts(process, minutes(6))).await;
    }
    tokio::time::sleep(Duration::from_mins(5)).await;
    let attempts = between(&one.script.attempted_at(), start, (2, 5));
    let accepted = between(&one.script.accepted_at(), start, (2, 5));
    for process in running {
        process.crash().await;
    }
    let float = |count: usize| f64::from(u32::try_from(count).unwrap());
    let part = |some: usize, all: usize| float(some) / float(all);
    (part(accepted, minutes(3)), part(attempts - accepted, attempts))
}

#[test]
fn two_processes_keep_the_distance_that_a_destination_wants() {
    on_one_thread(async || {
        let script = || Script::new(20 * MS, 64);
        for a_second in [2, 10] {
            let (used, refused) = two_before(script().spaced(a_second), a_second, true).await;
            assert!(used >= 0.9 && refused <= 0.03, "{a_second}: {used} {refused}");
        }
        let (used, refused) = two_before(script().rate_limited(10), 10, true).await;
        assert!(used >= 0.95 && refused <= 0.03, "with a bucket: {used} {refused}");
        let (used, _) = two_before(script().spaced(2), 2, false).await;
        assert!(used < 0.4, "if they knew nothing of each other: {used}");
    });
}

#[test]
fn recipients_with_rates_of_their_own_hold_up_no_others() {
    on_one_thread(async || {
        let count = 1_200;
        let mut took = Vec::new();
        // None, and one in six, which is told to wait for a minute whenever it is tried.
        for every in [usize::MAX, 6] {
            let rig = Rig::new(Script::new(20 * MS, 4));
            let limited = |number: &usize| number % every == every - 1;
            for number in (0..count).filter(limited) {
                let answer = Answer::deferred(429, Some(Duration::from_mins(1)), "too many");
                rig.script.answers(&number.to_string(), std::iter::repeat_n(answer, 3));
            }
            let others = count - (0..count).filter(limited).count();
            let running = rig.start();
            let start = rig.clock.monotonic();
            rig.accept_drafts(drafts(&rig, count)).await;
            let account = rig.drained().await;
            assert_eq!(account.delivered, count as u64);
            let all_others_at = rig.script.accepted_at()[others - 1];
            took.push((all_others_at - start) / u32::try_from(others).unwrap());
            running.stop().await;
        }
        assert!(took[1] * 4 <= took[0] * 5, "{took:?} each");
    });
}
