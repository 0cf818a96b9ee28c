//! The parts of a quota that two processes are given, and what they have together.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use flow::quota::{Tokens, whole};
use flow::quota_share::{Share, ShareAsk, Stake};
use flow::shared_rate::{RateNews, TURN_MAX, TurnAnswer, TurnAsk};
use futures_util::future::join_all;

use super::support::at;
use crate::QuotaLedger;

const NUMBER: u32 = 600;

fn number() -> NonZeroU32 {
    NonZeroU32::new(NUMBER).unwrap_or(NonZeroU32::MIN)
}

fn ask(wants: u64, held: u64) -> ShareAsk {
    let stake = Stake { number: number(), wants, held };
    ShareAsk { stake, idle_for: Duration::ZERO, full_in: Duration::ZERO }
}

async fn give(ledger: &impl QuotaLedger, holder: i64, key: &str, ask: ShareAsk) -> Share {
    let shares = ledger.exchange(holder, vec![(Arc::from(key), ask)], at(0)).await.unwrap();
    let [share] = shares[..] else { panic!("{shares:?}") };
    share
}

pub(super) async fn a_part_is_raised_by_what_no_other_holds<L: QuotaLedger>(one: &L, other: &L) {
    let all = whole(number());
    let first = give(one, 1, "key", ask(all, 0)).await;
    assert!(first.held > all * 9 / 10 && first.held <= all, "{first:?}");
    assert_eq!((first.part, first.tokens), (first.held, Tokens::Full), "it is alone");
    let second = give(other, 2, "key", ask(all, 0)).await;
    assert!(second.held > 0 && first.held + second.held <= all, "{second:?}");
    assert_eq!(second.tokens, Tokens::None);
    let lowered = give(one, 1, "key", ask(all, first.held)).await;
    assert_eq!(lowered.held, first.held, "places are reserved still");
    assert!(lowered.part < first.held * 6 / 10, "{lowered:?}");
    let waiting = give(other, 2, "key", ask(all, second.held)).await;
    assert_eq!(waiting.held, second.held, "the first one has not given it back");
    let back = give(one, 1, "key", ask(all, lowered.part)).await;
    assert_eq!(back.held, lowered.part);
    let raised = give(other, 2, "key", ask(all, second.held)).await;
    assert_eq!(raised.held, lowered.part, "half each");
}

pub(super) async fn each_quota_has_its_own_number<L: QuotaLedger>(one: &L, other: &L) {
    let all = whole(number());
    let first = give(one, 1, "key", ask(all, 0)).await;
    let asks = ["another", "key"].map(|key| (Arc::from(key), ask(all, 0)));
    let shares = other.exchange(2, asks.to_vec(), at(0)).await.unwrap();
    assert_eq!(shares.first().map(|share| share.held), Some(first.held), "in order");
    assert!(shares.last().is_some_and(|share| share.held < all / 10), "{shares:?}");
    let half = NonZeroU32::new(NUMBER / 2).unwrap_or(NonZeroU32::MIN);
    let mut smaller = ask(all, 0);
    smaller.stake.number = half;
    give(one, 1, "numbers", smaller).await;
    let share = give(other, 2, "numbers", ask(all, 0)).await;
    assert!(share.held <= whole(half), "the smallest number holds: {share:?}");
}

pub(super) async fn what_is_given_back_is_free<L: QuotaLedger>(one: &L, other: &L) {
    let all = whole(number());
    let first = give(one, 1, "key", ask(all, 0)).await;
    let over = give(one, 1, "key", ask(0, first.held)).await;
    assert_eq!((over.held, over.part), (first.held, 0));
    assert_eq!(give(one, 1, "key", ask(0, 0)).await.held, 0);
    let second = give(other, 2, "key", ask(all, 0)).await;
    assert_eq!(
        (second.held, second.tokens),
        (first.held, Tokens::Full),
        "as if no message had been sent"
    );
}

pub(super) async fn those_who_ask_at_once_are_given_no_more_than_there_is<L: QuotaLedger>(
    one: &L,
    other: &L,
) {
    let all = whole(number());
    for round in 0..4 {
        let key = format!("round {round}");
        let exchange = async |holder: i64| {
            let ledger = if holder % 2 == 0 { one } else { other };
            give(ledger, holder, &key, ask(all, 0)).await.held
        };
        let held = join_all((0..8).map(exchange)).await;
        assert!(held.iter().sum::<u64>() <= all, "{held:?}");
        assert!(held.iter().any(|held| *held > all / 2), "{held:?}");
    }
}

/// A question about a turn, of a process that goes by the rate of `generation`.
fn turn(news: RateNews, generation: u64) -> TurnAsk {
    let (climbed, pause) = (Duration::ZERO, Duration::ZERO);
    TurnAsk { news, generation, climbed, pause, wants: TURN_MAX }
}

async fn take(ledger: &impl QuotaLedger, key: &str, ask: TurnAsk, now: Duration) -> TurnAnswer {
    let answers = ledger.take_turns(vec![(Arc::from(key), ask)], now).await.unwrap();
    let [answer] = answers[..] else { panic!("{answers:?}") };
    answer
}

pub(super) async fn turns_of_two_processes_follow_each_other<L: QuotaLedger>(one: &L, other: &L) {
    let now = at(0).to_unix();
    let first = take(one, "key", turn(RateNews::Counted(100.0), 0), now).await;
    let generation = first.rate.unwrap().generation;
    let elsewhere = take(other, "elsewhere", turn(RateNews::None, 0), now).await;
    assert_eq!(elsewhere, TurnAnswer::default(), "nothing is known of it");
    let mut ends_in = Duration::ZERO;
    for round in 0_u8..20 {
        let ledger = if round % 2 == 0 { other } else { one };
        let answer = take(ledger, "key", turn(RateNews::None, generation), now).await;
        let Some(turn) = answer.turn else { break };
        assert!(turn.starts_in >= ends_in + turn.interval / 2 || round == 0, "{turn:?}");
        ends_in = turn.starts_in + turn.interval * (turn.messages - 1);
        assert!(ends_in < Duration::from_secs(5), "it is not booked for ever");
    }
    assert!(ends_in > Duration::from_secs(3), "{ends_in:?}");
    let later = take(one, "key", turn(RateNews::None, generation), now + TURN_MAX * 10).await;
    assert_eq!(later.turn.map(|turn| turn.starts_in), Some(Duration::ZERO), "those have passed");
}

pub(super) async fn what_one_process_learns_the_other_goes_by<L: QuotaLedger>(one: &L, other: &L) {
    let now = at(0).to_unix();
    let alone = take(one, "key", turn(RateNews::Counted(60.0), 0), now).await.rate.unwrap();
    let both = take(other, "key", turn(RateNews::Counted(40.0), 0), now).await.rate.unwrap();
    assert!((95.0..105.0).contains(&both.found), "what each has counted adds up: {both:?}");
    let stale = turn(RateNews::Refused(1.0), alone.generation);
    assert_eq!(take(one, "key", stale, now).await.rate, Some(both), "it is of another rate");
    let refused = turn(RateNews::Refused(80.0), both.generation);
    let refused = TurnAsk { pause: Duration::from_secs(10), ..refused };
    let lower = take(one, "key", refused, now).await.rate.unwrap();
    assert!((79.9..80.1).contains(&lower.found) && lower.generation > both.generation, "{lower:?}");
    let heard = take(other, "key", turn(RateNews::None, both.generation), now).await;
    assert_eq!(heard.rate, Some(lower));
    assert_eq!((heard.turn, heard.paused_for), (None, Duration::from_secs(10)));
    let held_back = Duration::from_secs(8);
    let climbed = TurnAsk { climbed: held_back, ..turn(RateNews::None, lower.generation) };
    let climbed = take(other, "key", climbed, now).await.rate.unwrap();
    assert!(climbed.climbed > Duration::ZERO && climbed.climbed <= held_back, "{climbed:?}");
    let hours = Duration::from_hours(2);
    let forgotten = take(one, "key", turn(RateNews::None, 0), now + hours).await;
    assert_eq!(forgotten.rate, None, "nobody has asked for an hour");
}

pub(super) async fn a_rate_that_ends_no_refusals_is_given_up_by_all<L: QuotaLedger>(
    one: &L,
    other: &L,
) {
    let now = at(0).to_unix();
    let first = take(one, "key", turn(RateNews::Counted(60.0), 0), now).await.rate.unwrap();
    let over = take(one, "key", turn(RateNews::GivenUp, first.generation), now).await;
    assert!(over.rate.is_none() && !over.rests_for.is_zero(), "{over:?}");
    let heard = take(other, "key", turn(RateNews::Counted(60.0), first.generation), now).await;
    assert!(heard.rate.is_none() && !heard.rests_for.is_zero(), "{heard:?}");
    let later = now + over.rests_for + Duration::from_secs(1);
    let anew = take(other, "key", turn(RateNews::Counted(60.0), 0), later).await;
    assert!(anew.rate.is_some() && anew.turn.is_some(), "{anew:?}");
}
