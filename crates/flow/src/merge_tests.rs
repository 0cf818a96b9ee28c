//! Merging: the members of groups, their order, and their outcomes.

use std::collections::BTreeSet;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::task::unconstrained;

use super::*;
use crate::Tasks;

const BOUNDS: Bounds = Bounds { items: 100, weight: 1_000, waiting: 10_000 };
/// Kinds of callers.
const KINDS: usize = 2;

/// An item with the sender of its outcome.
#[derive(Debug)]
struct Work {
    number: usize,
    weight: usize,
    outcome: oneshot::Sender<usize>,
}

impl Weighted for Work {
    fn weight(&self) -> usize {
        self.weight
    }
}

/// Calls under way; each gives its outcome.
type Calls = Vec<std::pin::Pin<Box<dyn Future<Output = Result<usize, Closed>>>>>;

fn one_loop(bounds: Bounds) -> ([MergeHandle<Work>; KINDS], Groups<Work>, Control) {
    let Merge { callers, mut loops, control } = Merge::new(Merging::Shared, bounds);
    (callers, loops.remove(0), control)
}

async fn call(caller: MergeHandle<Work>, number: usize, weight: usize) -> Result<usize, Closed> {
    caller.call(|outcome| Work { number, weight, outcome }).await
}

/// Calls that have handed in their items, as far as the bounds let them.
fn handed_in(caller: &MergeHandle<Work>, numbers: Range<usize>, weight: usize) -> Calls {
    let mut calls: Calls = Vec::new();
    for number in numbers {
        // Without the budget of a task: with it they would not get as far as that.
        let mut call = Box::pin(unconstrained(call(caller.clone(), number, weight)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
        calls.push(call);
    }
    calls
}

fn numbers(group: &[Work]) -> Vec<usize> {
    group.iter().map(|work| work.number).collect()
}

fn answer(group: Vec<Work>) {
    for Work { number, outcome, .. } in group {
        outcome.send(number).unwrap();
    }
}

/// Time is paused and nothing moves it: a timer in here would never end.
#[tokio::test(start_paused = true)]
async fn an_item_alone_is_a_group_at_once() {
    let ([caller, _other], mut groups, control) = one_loop(BOUNDS);
    for number in 0..3 {
        let performed = async { answer(groups.next().await.unwrap()) };
        let (outcome, ()) = tokio::join!(call(caller.clone(), number, 1), performed);
        assert_eq!(outcome, Ok(number));
    }
    assert_eq!(control.counts(), Counts { groups: 3, items: 3 });
}

#[test]
fn what_is_handed_in_during_a_group_is_the_next() {
    let ([caller, other], mut groups, _control) = one_loop(BOUNDS);
    let _first = handed_in(&caller, 0..1, 1);
    assert!(groups.ready_blocking());
    assert_eq!(numbers(&groups.take_now()), [0]);
    let _more = (handed_in(&caller, 1..4, 1), handed_in(&other, 10..12, 1));
    assert!(groups.ready_blocking());
    assert_eq!(
        numbers(&groups.take_now()).into_iter().collect::<BTreeSet<_>>(),
        [1, 2, 3, 10, 11].into()
    );
    assert!(groups.take_now().is_empty());
}

#[test]
fn what_comes_while_the_connection_is_busy_goes_along() {
    let ([caller, other], mut groups, _control) = one_loop(BOUNDS);
    let _first = handed_in(&caller, 0..1, 1);
    assert!(groups.ready_blocking());
    // Here a loop waits for its connection.
    let _late = handed_in(&other, 10..11, 1);
    assert_eq!(numbers(&groups.take_now()), [0, 10]);
}

/// A hundred times as many as a group holds wait, and one of another kind comes behind them: it is in the next group, and half
/// of each group is of its kind while it has more. No order within a kind is changed.
#[test]
fn a_kind_with_a_hundred_groups_waiting_delays_another_by_one() {
    let ([crowd, single], mut groups, _control) = one_loop(BOUNDS);
    let _crowd = handed_in(&crowd, 0..10_000, 1);
    let mut expected = 0..10_000;
    for round in 0..10 {
        let _single = handed_in(&single, 20_000..20_001, 1);
        assert!(groups.ready_blocking());
        let group = numbers(&groups.take_now());
        assert_eq!(group.len(), BOUNDS.items);
        let (of_single, of_crowd): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|number| *number >= 20_000);
        assert_eq!(of_single, [20_000], "round {round}");
        assert!(of_crowd.into_iter().eq(expected.by_ref().take(BOUNDS.items - 1)));
    }
    let _more = handed_in(&single, 30_000..30_500, 1);
    let group = numbers(&groups.take_now());
    assert_eq!(group.iter().filter(|number| **number >= 30_000).count(), BOUNDS.items / 2);
}

/// An item too heavy for the rest of a group is not passed by its own kind, is the first of its kind in the next group, and does
/// not keep lighter ones of another kind from the rest.
#[test]
fn a_heavy_kind_leaves_room_for_a_light_one() {
    let ([heavy, light], mut groups, _control) = one_loop(BOUNDS);
    let _heavy = handed_in(&heavy, 0..10, 600);
    let _light = handed_in(&light, 10..40, 0);
    let group = numbers(&groups.take_now());
    assert_eq!(group.iter().filter(|number| **number < 10).count(), 1);
    assert_eq!(group.len(), 31);
    assert_eq!(numbers(&groups.take_now()), [1]);
    // Alone it goes, however heavy it is.
    let _giant = handed_in(&light, 40..41, 5_000);
    let both = [numbers(&groups.take_now()), numbers(&groups.take_now())];
    assert_eq!(both.concat().into_iter().collect::<BTreeSet<_>>(), [2, 40].into());
}

/// A kind whose queue is full has its callers wait, and only those; its callers go on in their order.
#[test]
fn a_full_queue_holds_up_its_own_kind_only() {
    let ([full, other], mut groups, _control) = one_loop(Bounds { waiting: 4, ..BOUNDS });
    let mut waiting = handed_in(&full, 0..6, 1);
    let _other = handed_in(&other, 10..11, 1);
    let mut group = numbers(&groups.take_now());
    group.sort_unstable();
    assert_eq!(group, [0, 1, 2, 3, 10]);
    // The two that had no place have one now.
    let mut context = Context::from_waker(Waker::noop());
    for call in waiting.iter_mut().skip(4) {
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(numbers(&groups.take_now()), [4, 5]);
}

#[tokio::test(start_paused = true)]
async fn each_caller_gets_its_own_outcome_whatever_the_order_of_answers() {
    let ([caller, other], mut groups, _control) = one_loop(BOUNDS);
    let mut tasks = Tasks::default();
    tasks.spawn("loop", async move {
        while let Some(mut group) = groups.next().await {
            group.reverse();
            // One is dropped in each group: it alone has no outcome.
            answer(group.split_off(1));
        }
    });
    let calls = (0..50).map(|number| {
        let caller = if number % 2 == 0 { &caller } else { &other };
        call(caller.clone(), number, 1)
    });
    let outcomes = join_all(calls).await;
    let lost = outcomes.iter().filter(|outcome| **outcome == Err(Closed)).count();
    assert_eq!(lost, 1, "they are one group");
    for (number, outcome) in outcomes.iter().enumerate() {
        assert!(*outcome == Ok(number) || *outcome == Err(Closed));
    }
    drop((caller, other));
    tasks.drain().await;
}

/// Eight callers are answered together and come back one after the other, the last of them many yields later. They are a group
/// each time, and the first that does not come back is waited for in vain once.
#[tokio::test(start_paused = true)]
async fn callers_that_were_answered_together_are_the_next_group() {
    let ([caller, other], mut groups, _control) = one_loop(BOUNDS);
    let mut tasks = Tasks::default();
    for number in 0..8 {
        let caller = if number % 2 == 0 { caller.clone() } else { other.clone() };
        tasks.spawn("caller", async move {
            for _time in 0..10 + number / 7 {
                for _yield in 0..number * (YIELDS / 2) {
                    yield_now().await;
                }
                call(caller.clone(), number, 1).await.unwrap();
            }
        });
    }
    drop((caller, other));
    let mut sizes = Vec::new();
    while let Some(group) = groups.next().await {
        sizes.push(group.len());
        answer(group);
    }
    // Nothing is known of the first callers before they came; from then on they are known by their number.
    let together =
        sizes.iter().rposition(|size| *size < 8 && *size > 1).map_or(0, |place| place + 1);
    assert!(together <= 4, "{sizes:?}");
    assert_eq!(sizes.last(), Some(&1), "{sizes:?}");
    tasks.drain().await;
}

#[tokio::test(start_paused = true)]
async fn an_item_alone_is_not_kept_waiting() {
    let ([caller, _other], mut groups, _control) = one_loop(BOUNDS);
    for last in [1, 1, 8, 1, 1] {
        let calls = handed_in(&caller, 0..last, 1);
        assert!(groups.ready().await);
        // Taken without a yield, whatever was before: but for the first after a group of several, below.
        assert_eq!(groups.take().now_or_never().map(|group| group.len()), Some(last));
        drop(calls);
        if last > 1 {
            let _single = handed_in(&caller, 0..1, 1);
            assert!(groups.ready().await);
            assert_eq!(groups.take().await.len(), 1);
        }
    }
}

/// A loop without work is not polled, whatever time passes; an item, and a control, wake it once.
#[tokio::test(start_paused = true)]
async fn an_idle_loop_is_parked() {
    struct Counting(AtomicU64);
    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let ([caller, _other], mut groups, control) = one_loop(BOUNDS);
    let counting = Arc::new(Counting(AtomicU64::new(0)));
    let woken = || counting.0.load(Ordering::Relaxed);
    let waker = Waker::from(Arc::clone(&counting));
    let mut context = Context::from_waker(&waker);
    assert!(groups.poll_ready(&mut context).is_pending());
    tokio::time::advance(std::time::Duration::from_hours(1)).await;
    yield_now().await;
    assert_eq!(woken(), 0);
    let look = Waker::from(Arc::new(control));
    look.wake_by_ref();
    look.wake_by_ref();
    assert_eq!(woken(), 1);
    assert!(groups.poll_ready(&mut context).is_ready());
    assert!(groups.take_now().is_empty());
    assert!(groups.poll_ready(&mut context).is_pending());
    let _call = handed_in(&caller, 0..1, 1);
    assert_eq!(woken(), 2);
    assert!(groups.poll_ready(&mut context).is_ready());
}

#[tokio::test(start_paused = true)]
async fn closing_finishes_what_waits_and_refuses_what_comes() {
    for merging in [Merging::Shared, Merging::Separate] {
        let Merge { callers, loops, control } = Merge::<Work, KINDS>::new(merging, BOUNDS);
        let calls: Vec<_> = callers.iter().map(|caller| handed_in(caller, 0..150, 1)).collect();
        control.close().await;
        let mut tasks = Tasks::default();
        for mut groups in loops {
            tasks.spawn("loop", async move {
                while let Some(group) = groups.next().await {
                    answer(group);
                }
            });
        }
        tasks.drain().await;
        for caller in callers {
            assert_eq!(call(caller, 0, 1).await, Err(Closed));
        }
        let outcomes = join_all(calls.into_iter().flatten()).await;
        assert_eq!(outcomes.into_iter().flatten().count(), 300);
    }
}

#[test]
fn a_loop_ends_when_its_callers_are_gone() {
    let (callers, mut groups, control) = one_loop(BOUNDS);
    let calls = handed_in(&callers[0], 0..1, 1);
    drop(callers);
    assert!(groups.goes_on() && groups.ready_blocking(), "the call holds its kind open");
    assert_eq!(numbers(&groups.take_now()), [0]);
    assert!(groups.goes_on());
    drop(calls);
    assert!(!groups.goes_on() && !groups.ready_blocking());
    // It needs no callers, and keeps no loop.
    drop(control);
}

#[test]
fn a_thread_is_woken_by_an_item() {
    let ([caller, other], mut groups, _control) = one_loop(BOUNDS);
    let performing = thread::spawn(move || {
        let mut taken = 0;
        while groups.ready_blocking() {
            let group = groups.take_now();
            taken += group.len();
            answer(group);
        }
        taken
    });
    for number in 0..1_000 {
        let caller = if number % 2 == 0 { &caller } else { &other };
        assert_eq!(block_on(call(caller.clone(), number, 1)), Ok(number));
    }
    drop((caller, other));
    assert_eq!(performing.join().unwrap(), 1_000);
}

#[test]
fn separate_loops_have_a_kind_each() {
    let Merge { callers, mut loops, .. } = Merge::<Work, KINDS>::new(Merging::Separate, BOUNDS);
    let _calls: Vec<_> =
        callers.iter().zip([0, 10]).map(|(one, at)| handed_in(one, at..at + 3, 1)).collect();
    let groups: Vec<_> = loops.iter_mut().map(|groups| numbers(&groups.take_now())).collect();
    assert_eq!(groups, [[0, 1, 2], [10, 11, 12]]);
}

#[test]
fn what_waits_behind_a_group_is_added_whatever_it_weighs() {
    let ([caller, other], mut groups, _control) = one_loop(BOUNDS);
    let _calls = (handed_in(&caller, 0..3, 900), handed_in(&other, 10..13, 900));
    let mut group = groups.take_now();
    assert_eq!(numbers(&group), [0]);
    groups.add_waiting(&mut group, 5);
    assert_eq!(group.len(), 5);
    groups.add_waiting(&mut group, 100);
    assert_eq!(numbers(&group).into_iter().collect::<BTreeSet<_>>(), [0, 1, 2, 10, 11, 12].into());
}

/// Performs `0..items` like transactions, each of which `perform` does or not; the outcomes, and how many it took.
fn unmerged(
    items: usize,
    mut perform: impl FnMut(Range<usize>) -> Result<(), Undone<usize>>,
) -> (Vec<Result<(), usize>>, usize) {
    let (mut parts, mut groups) = (Unmerge::new(items), 0);
    while let Some(part) = parts.part() {
        parts.ended(perform(part));
        groups += 1;
    }
    (parts.outcomes(), groups)
}

#[test]
fn a_failed_item_fails_alone() {
    let bad = BTreeSet::from([0, 77, 78, 999]);
    let mut done = Vec::new();
    let (outcomes, groups) = unmerged(1_000, |part| {
        if let Some(cause) = bad.range(part.clone()).next() {
            return Err(Undone::OneItemFailed(*cause));
        }
        done.extend(part);
        Ok(())
    });
    for (item, outcome) in outcomes.iter().enumerate() {
        assert_eq!(*outcome, if bad.contains(&item) { Err(item) } else { Ok(()) });
    }
    assert_eq!(outcomes.len(), 1_000);
    assert!(done.into_iter().eq((0..1_000).filter(|item| !bad.contains(item))), "once, in order");
    assert!(groups <= 4 * 20, "{groups}");
}

#[test]
fn a_lost_connection_is_told_to_all_that_are_not_done() {
    let (outcomes, groups) = unmerged(8, |part| match part {
        Range { start: 0, end: 4 } => Ok(()),
        Range { start: 4, .. } => Err(Undone::AllFailed(7)),
        _ => Err(Undone::OneItemFailed(0)),
    });
    assert_eq!(outcomes, [[Ok(()); 4], [Err(7); 4]].concat());
    assert_eq!(groups, 3);
}
