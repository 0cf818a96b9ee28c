//! Tests of the gate.

use super::*;
use crate::limit::Fixed;
use futures_util::FutureExt;

/// Grows by one with each answer, so that a change of the limit shows.
#[derive(Debug)]
struct Growing(usize);

impl Limit for Growing {
    fn current(&self) -> usize {
        self.0
    }

    fn learn(&mut self, sample: Sample) {
        assert!(sample.in_flight >= 1, "a sample counts itself");
        self.0 += usize::from(sample.signal == Signal::Answered);
    }
}

#[test]
fn no_more_enter_than_the_limit_says() {
    let gate = Gate::new(Box::new(Fixed(2)));
    let first = gate.try_enter().unwrap();
    let _second = gate.try_enter().unwrap();
    assert!(gate.try_enter().is_none());
    assert!(gate.enter().now_or_never().is_none());
    drop(first);
    assert_eq!(gate.in_flight(), 1);
    assert!(gate.enter().now_or_never().is_some());
}

#[test]
fn a_destination_that_does_not_answer_is_tried_by_few_at_a_time() {
    let gate = Gate::new(Box::new(Fixed(100)));
    let later = || Duration::from_hours(1);
    (0..20).for_each(|_| gate.try_enter().unwrap().note(false, Duration::ZERO));
    let small = Gate::new(Box::new(Fixed(1)));
    (0..20).for_each(|_| small.try_enter().unwrap().note(false, Duration::ZERO));
    let own = small.try_enter().unwrap();
    assert!(small.is_shut(None, later) && !small.is_shut(Some(&own), later));
    let mut tries = Vec::new();
    let at = |number: usize| later() + Duration::from_millis(500 * number as u64);
    for number in 0..TRIES {
        assert!(!gate.is_shut(None, || at(number)), "{number} are tried");
        tries.push(gate.try_enter().unwrap());
        assert!(number == 0 || gate.is_shut(None, || at(number)), "another one so soon");
    }
    assert!(gate.is_shut(None, || at(TRIES)));
    tries[0].note(true, later());
    assert!(!gate.is_shut(None, later));
}

#[test]
fn a_limit_of_zero_still_lets_one_through() {
    assert!(Gate::new(Box::new(Fixed(0))).try_enter().is_some());
}

#[test]
fn the_limit_learns_from_finished_attempts_and_not_from_dropped_ones() {
    let gate = Gate::new(Box::new(Growing(1)));
    drop(gate.try_enter().unwrap());
    assert_eq!(gate.limit(), 1);
    gate.try_enter().unwrap().finish(Signal::Answered, Some(Timing::default()), Duration::ZERO);
    assert_eq!(gate.limit(), 2);
    gate.try_enter().unwrap().finish(Signal::Dropped, None, Duration::ZERO);
    assert_eq!(gate.limit(), 2);
}

#[test]
fn a_group_that_comes_with_little_does_not_wait_behind_one_that_has_much() {
    for limit in [1, 2, 10] {
        let busy = Gate::new(Box::new(Fixed(limit)));
        let mut held: Vec<Pass> = (0..limit).map(|_| busy.try_enter().unwrap()).collect();
        let other = busy.for_group(1);
        let mut waits = std::pin::pin!(other.enter());
        assert!(waits.as_mut().now_or_never().is_none());
        held.pop();
        assert!(busy.try_enter().is_none(), "it is the other's turn");
        assert!(waits.now_or_never().is_some());
        assert!(busy.try_enter().is_some(), "nobody waits any more");
    }
}

#[test]
fn groups_with_few_places_have_a_reserve() {
    let busy = Gate::new(Box::new(Fixed(2 * RESERVE_DIVISOR)));
    let enter = |gate: &Gate| std::iter::from_fn(|| gate.try_enter()).collect::<Vec<_>>();
    let mut of_busy = enter(&busy);
    assert_eq!(of_busy.len(), 2 * RESERVE_DIVISOR - 2);
    assert!(busy.enter().now_or_never().is_none());
    let other = busy.for_group(1);
    let of_other = enter(&other);
    assert_eq!(of_other.len(), 2);
    // The one that is freed is the reserve again.
    of_busy.pop();
    assert!(busy.try_enter().is_none() && other.try_enter().is_none());
    drop(of_other);
    assert!(busy.try_enter().is_some());
}

#[test]
fn a_gate_at_rest_leaves_all_places_to_the_others() {
    let answered = |pass: Pass| pass.finish(Signal::Answered, None, Duration::ZERO);
    for limit in [2, 3, 200] {
        let shared = SharedLimit::new(Box::new(Fixed(limit)));
        let [busy, other, _idle] = [(); 3].map(|()| Gate::sharing(Arc::clone(&shared)));
        let take_all = |gate: &Gate| -> Vec<Pass> {
            std::iter::from_fn(|| gate.enter().now_or_never()).collect()
        };
        let reserve = usize::from(limit >= RESERVED_FROM) * (limit / RESERVE_DIVISOR).max(1);
        let held = take_all(&busy);
        assert_eq!(held.len(), limit - reserve);
        // It waits as well, and gives up.
        assert!(take_all(&other).len() <= reserve);
        assert_eq!(other.in_flight(), 0);
        held.into_iter().for_each(answered);
        let held = take_all(&other);
        assert_eq!(held.len(), limit - reserve);
        held.into_iter().for_each(answered);
        assert_eq!(take_all(&busy).len(), limit - reserve);
    }
}

/// A gate with many places, of which another thread's gate gets a half: what is urgent does not wait until the rest fits.
#[test]
fn a_group_with_few_does_not_wait_for_a_part_that_becomes_smaller() {
    let shared = SharedLimit::new(Box::new(Fixed(1_000)));
    let [busy, other] = [(); 2].map(|()| Gate::sharing(Arc::clone(&shared)));
    let of_busy: Vec<Pass> = std::iter::from_fn(|| busy.enter().now_or_never()).take(900).collect();
    assert_eq!(of_busy.len(), 900);
    assert!(busy.enter().now_or_never().is_some(), "it wants them all");
    let _of_other: Vec<Pass> = std::iter::from_fn(|| other.enter().now_or_never()).collect();
    assert!(busy.try_enter().is_none());
    let urgent = busy.for_group(8);
    let of_urgent: Vec<Pass> = std::iter::from_fn(|| urgent.try_enter()).collect();
    assert!((1..1_000 / RESERVE_DIVISOR).contains(&of_urgent.len()), "{}", of_urgent.len());
}

#[test]
fn groups_that_wait_come_to_equal_parts() {
    let busy = Gate::new(Box::new(Fixed(9)));
    let mut held = vec![(0..9).map(|_| busy.try_enter().unwrap()).collect::<Vec<_>>()];
    let mut gates = vec![busy];
    for _ in 0..2 {
        gates.push(gates[0].for_group(1));
        held.push(Vec::new());
    }
    let mut random = fastrand::Rng::with_seed(5);
    let mut waits: Vec<_> = gates.iter().map(|gate| Box::pin(gate.enter())).collect();
    for _ in 0..1_000 {
        for (position, wait) in waits.iter_mut().enumerate() {
            if let Some(pass) = wait.now_or_never() {
                held[position].push(pass);
                let gate = &gates[position];
                *wait = Box::pin(gate.enter());
                assert!(wait.now_or_never().is_none(), "waits again at once");
            }
        }
        // An answer comes for any of the nine.
        let (in_flight, mut before) = (gates[0].in_flight(), 0);
        let freed = random.usize(..in_flight);
        let group = held.iter().position(|passes| {
            before += passes.len();
            freed < before
        });
        held[group.unwrap()].pop();
    }
    let parts: Vec<usize> = held.iter().map(Vec::len).collect();
    assert_eq!(parts.iter().sum::<usize>(), 8);
    assert!(parts.iter().all(|part| (2..=3).contains(part)), "{parts:?}");
}

/// A freed place without a waiter that takes it would stay free for ever.
#[tokio::test]
async fn no_place_is_lost_whoever_gives_up() {
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        let limit = if random.bool() { random.usize(1..4) } else { random.usize(60..200) };
        let first = Gate::new(Box::new(Fixed(limit)));
        let gates = [first.clone(), first.for_group(1), first.for_group(1)];
        let enter = |gate| std::iter::from_fn(move || Gate::try_enter(gate));
        let held: Vec<Pass> = gates.iter().flat_map(enter).collect();
        assert_eq!(held.len(), limit);
        let local = tokio::task::LocalSet::new();
        let waiting = |gate: &Gate| {
            let gate = gate.clone();
            local.spawn_local(async move { drop(gate.enter().await) })
        };
        let waiting: Vec<_> = (0..12).map(|number| waiting(&gates[number % 3])).collect();
        local
            .run_until(async {
                tokio::task::yield_now().await;
                drop(held);
                for wait in waiting {
                    if random.bool() {
                        wait.abort();
                    }
                    let _given_up = wait.await;
                }
            })
            .await;
        assert_eq!(first.in_flight(), 0);
        assert!(first.group.gate.waiting.borrow().is_empty());
    }
}

#[tokio::test]
async fn a_wait_that_is_dropped_does_not_swallow_the_place() {
    let gate = Gate::new(Box::new(Fixed(1)));
    let held = gate.try_enter().unwrap();
    assert!(gate.enter().now_or_never().is_none(), "queues and goes away");
    let local = tokio::task::LocalSet::new();
    let waiting = gate.clone();
    let handle = local.spawn_local(async move { waiting.enter().await });
    local
        .run_until(async {
            tokio::task::yield_now().await;
            drop(held);
            drop(handle.await.unwrap());
        })
        .await;
    assert_eq!(gate.in_flight(), 0);
}
