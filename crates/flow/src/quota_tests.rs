//! Places of a quota and their times, also where its number changes.

use super::*;
use crate::Clock;
use proptest::prelude::*;

const LONG: Duration = Duration::from_hours(24);

fn per_minute(count: u32) -> Quota {
    Quota::new(NonZeroU32::new(count))
}

fn start() -> Instant {
    Clock::starting_at(Duration::ZERO).monotonic()
}

proptest! {
    #[test]
    fn no_minute_gets_more_than_the_quota(
        count in 1_u32..2_000,
        arrivals in prop::collection::vec(0_u64..20_000, 1..200),
    ) {
        let (quota, start) = (per_minute(count), start());
        let mut now = start;
        let mut through = Vec::new();
        for pause_millis in arrivals {
            now += Duration::from_millis(pause_millis);
            for _ in 0..=count / 20 {
                through.push(now + quota.reserve(now, LONG).unwrap());
            }
        }
        through.sort_unstable();
        let many = usize::try_from(count).unwrap();
        for window in through.windows(many + 1) {
            let span = window[many] - window[0];
            prop_assert!(span >= Duration::from_mins(1), "{} within {span:?}", many + 1);
        }
    }
}

proptest! {
    #[test]
    fn no_minute_gets_more_than_the_greatest_number_that_holds_in_it(
        first in 1_u32..2_000,
        steps in prop::collection::vec((0_u64..90_000, prop::option::of(1_u32..2_000)), 1..60),
    ) {
        let (quota, start) = (per_minute(first), start());
        // The numbers, and from when each holds.
        let mut numbers = vec![(start, first)];
        let (mut now, mut through) = (start, Vec::new());
        for (pause_millis, number) in steps {
            while let Ok(wait) = quota.reserve(now, WAIT_MAX) {
                through.push(now + wait);
            }
            now += Duration::from_millis(pause_millis);
            if let Some(number) = number {
                quota.change(NonZeroU32::new(number), now);
                numbers.push((now, number));
            }
        }
        through.sort_unstable();
        for (index, begin) in through.iter().enumerate() {
            let end = *begin + Duration::from_mins(1);
            // Places reserved before a change are used up to the longest wait after it.
            let holds = |position: usize| {
                let until = numbers.get(position + 1).map(|(until, _)| *until + WAIT_MAX);
                numbers[position].0 < end && until.is_none_or(|until| until > *begin)
            };
            let greatest = (0..numbers.len()).filter(|position| holds(*position));
            let greatest = greatest.map(|position| numbers[position].1).max().unwrap();
            let within = through[index..].iter().take_while(|at| **at < end).count();
            prop_assert!(within <= usize::try_from(greatest).unwrap(), "{within} of {greatest}");
        }
    }
}

#[test]
fn a_number_that_changes_makes_no_burst_and_holds_at_once() {
    let (quota, start) = (per_minute(6_000), start());
    let at_once = |now| std::iter::from_fn(|| quota.reserve(now, Duration::ZERO).ok()).count();
    assert_eq!(at_once(start), 100);
    quota.change(NonZeroU32::new(12_000), start);
    assert_eq!(at_once(start), 0, "the burst is used up");
    let later = start + Duration::from_mins(1);
    assert_eq!(at_once(later), 200);
    quota.change(NonZeroU32::new(6), later);
    let wait = quota.wait(later);
    assert!(wait > Duration::from_secs(11) && wait < Duration::from_secs(13), "{wait:?}");
    quota.change(None, later);
    assert!(quota.is_open());
    assert_eq!(quota.within(WAIT_MAX), usize::MAX);
    quota.change(NonZeroU32::new(6_000), later);
    assert_eq!(at_once(later), 1, "who knows what was used");
    let raised = later + Duration::from_mins(1);
    quota.change(NonZeroU32::new(1), raised);
    assert_eq!(at_once(raised), 1);
    quota.change(NonZeroU32::new(6_000), raised + Duration::from_secs(1));
    assert!(
        quota.wait(raised + Duration::from_secs(1)) < Duration::from_millis(11),
        "not after a minute"
    );
}

#[test]
fn those_without_a_place_come_back_one_after_the_other() {
    let (quota, start) = (per_minute(61), start());
    let groups: [QuotaGroup; 100] = std::array::from_fn(|_| QuotaGroup::default());
    let least = Duration::from_secs(3);
    let appointed = |group: &QuotaGroup, now| quota.appoint(group, now, least).as_secs();
    assert_eq!([0, 1, 2, 1].map(|group| appointed(&groups[group], start)), [3, 4, 5, 4]);
    let longest = groups.iter().map(|group| appointed(group, start)).max();
    assert_eq!(longest, Some(63), "not for longer than a minute");
    let later = start + Duration::from_mins(2);
    assert_eq!(appointed(&groups[0], later), 3, "those of the past count no more");
}

#[test]
fn without_a_number_pauses_hold_all_the_same() {
    let (quota, start) = (Quota::new(None), start());
    assert!(quota.is_open());
    quota.pause(start, Duration::from_secs(2));
    assert!(!quota.is_open());
    assert_eq!(quota.reserve(start, Duration::ZERO), Err(Duration::from_secs(2)));
    quota.change(NonZeroU32::new(60), start);
    assert_eq!(quota.wait(start), Duration::from_secs(2), "a new number does not end it");
    quota.change(None, start);
    let later = start + Duration::from_secs(2);
    assert_eq!(quota.reserve(later, Duration::ZERO), Ok(Duration::ZERO));
    assert!(quota.is_open());
}

#[test]
fn a_minute_of_demand_uses_nearly_all_of_the_quota() {
    let (quota, start) = (per_minute(600_000), start());
    let within = (0..600_000)
        .filter(|_| quota.reserve(start, LONG).unwrap() < Duration::from_mins(1))
        .count();
    assert!((595_000..=600_000).contains(&within), "{within}");
}

#[test]
fn a_wait_beyond_the_bound_is_answered_with_its_length_and_reserves_nothing() {
    let (quota, start) = (per_minute(60), start());
    assert_eq!(quota.reserve(start, Duration::ZERO), Ok(Duration::ZERO));
    let wait = quota.reserve(start, Duration::ZERO).unwrap_err();
    assert_eq!(quota.reserve(start, Duration::ZERO), Err(wait), "nothing was reserved");
    assert!(wait > Duration::from_secs(1) && wait < Duration::from_millis(1_020), "{wait:?}");
    assert_eq!(quota.reserve(start, wait), Ok(wait));
    assert_eq!(quota.reserve(start + wait * 2, Duration::ZERO), Ok(Duration::ZERO));
}

#[test]
fn a_span_has_its_part_of_the_quota_and_a_burst() {
    let span = Duration::from_secs(5);
    assert_eq!(per_minute(1).within(span), 1);
    assert_eq!(per_minute(60).within(span), 4 + 1);
    assert_eq!(per_minute(6_000).within(span), 491 + 100);
}

#[test]
fn a_pause_holds_all_and_ends_without_a_rush() {
    let (quota, start) = (per_minute(6_000), start());
    quota.pause(start, Duration::from_mins(1));
    quota.pause(start, Duration::from_secs(1));
    let wait = quota.reserve(start, LONG).unwrap();
    assert_eq!(wait, Duration::from_mins(1));
    let next = quota.reserve(start, LONG).unwrap().checked_sub(wait).unwrap();
    assert!(next > Duration::from_millis(10) && next < Duration::from_millis(11), "{next:?}");
}

#[test]
fn a_quota_of_one_lets_one_through_a_minute() {
    let (quota, start) = (per_minute(1), start());
    assert_eq!(quota.reserve(start, LONG), Ok(Duration::ZERO));
    assert_eq!(quota.reserve(start, LONG), Ok(Duration::from_mins(1)));
}

/// Has `quota` refuse more than ten a second, from one second to another.
fn refuse_more_than_ten(quota: &Quota, seconds: std::ops::Range<u64>) {
    for second in seconds {
        let now = start() + Duration::from_secs(second);
        quota.accepted(now, 10);
        (0..20).for_each(|_| quota.refused(now, now, Duration::ZERO));
    }
}

#[test]
fn a_rate_is_learned_where_there_is_no_number_and_given_up_for_one() {
    let numbered = per_minute(6_000);
    refuse_more_than_ten(&numbered, 0..10);
    assert!(!numbered.is_learning());
    let quota = per_minute(0);
    refuse_more_than_ten(&quota, 0..2);
    assert!(quota.is_learning() && quota.is_open(), "it is counted first");
    refuse_more_than_ten(&quota, 2..5);
    assert!(!quota.is_open());
    let now = start() + Duration::from_secs(5);
    let rate = quota.accepted(now, 0).unwrap().get();
    assert!((450..=700).contains(&rate), "{rate}");
    quota.change(None, now);
    assert!(quota.is_learning(), "a reload changes nothing");
    let booked = (0..20).filter(|_| quota.reserve(now, Duration::from_secs(1)).is_ok()).count();
    assert!((5..=12).contains(&booked), "{booked}");
    quota.change(NonZeroU32::new(60), now);
    assert!(!quota.is_learning());
    assert_eq!(quota.accepted(now, 1), None);
}

#[test]
fn a_learned_rate_is_forgotten_when_nothing_waits_for_it() {
    let quota = per_minute(0);
    refuse_more_than_ten(&quota, 0..5);
    let later = start() + Duration::from_hours(2);
    assert_eq!(quota.reserve(later, Duration::ZERO), Ok(Duration::ZERO));
    assert!(quota.is_open() && !quota.is_learning());
    let counted_only = per_minute(0);
    refuse_more_than_ten(&counted_only, 0..1);
    counted_only.accepted(start() + Duration::from_mins(3), 1);
    assert!(!counted_only.is_learning());
}
