//! Destinations with a rate that no configuration names.

use std::time::Duration;

use notification::{Answer, Draft, Guarantee};
use store::ReadStore as _;
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
            let lanes = rig.store.lanes().await.unwrap();
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
