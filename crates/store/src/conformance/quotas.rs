//! The parts of a quota that two processes are given, and what they have together.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use flow::quota::{Tokens, whole};
use flow::quota_share::{Share, ShareAsk, Stake};
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
