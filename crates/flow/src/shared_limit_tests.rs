//! Tests of the division of a limit.

use super::*;
use crate::limit::{Fixed, Signal};
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

fn take(part: &Part) -> bool {
    part.try_take(|PlaceState { all, taken }| taken < all)
}

fn take_all(part: &Part) -> usize {
    std::iter::repeat_with(|| take(part)).take_while(|has_taken| *has_taken).count()
}

fn answered(count: usize) -> Vec<Sample> {
    let sample = Sample {
        timing: None,
        signal: Signal::Answered,
        in_flight: 1,
        at: std::time::Duration::ZERO,
    };
    vec![sample; count]
}

/// Has as many places as it is told by the last sample's time, seconds.
#[derive(Debug)]
struct Told(usize);

impl Limit for Told {
    fn current(&self) -> usize {
        self.0
    }

    fn learn(&mut self, sample: Sample) {
        self.0 = usize::try_from(sample.at.as_secs()).unwrap();
    }
}

#[test]
fn gates_that_wait_come_to_equal_parts_and_an_idle_one_leaves_its_own_to_them() {
    let shared = SharedLimit::new(Box::new(Fixed(90)));
    let [busy, other, idle] = [(); 3].map(|()| shared.join());
    shared.wait(&busy);
    let held = take_all(&busy);
    assert!((88..=90).contains(&held), "{held}: one or two are kept for those that come");
    shared.wait(&other);
    // What was taken is not given away before it is free.
    assert!(take_all(&other) <= 90 - held);
    for _ in 0..held {
        shared.free(&busy);
        take(&busy);
        take_all(&other);
        assert!(busy.taken() + other.taken() + idle.taken() <= 90);
    }
    let parts = [busy.taken(), other.taken()];
    assert!(parts.iter().all(|part| (44..=46).contains(part)), "{parts:?}");
}

#[test]
fn a_place_fewer_than_gates_goes_round() {
    let shared = SharedLimit::new(Box::new(Fixed(1)));
    let parts = [(); 3].map(|()| shared.join());
    for part in &parts {
        shared.wait(part);
    }
    let mut turns = [0; 3];
    for _ in 0..30 {
        let holders: Vec<usize> = (0..3).filter(|number| take(&parts[*number])).collect();
        let [holder] = holders[..] else { panic!("{holders:?}") };
        turns[holder] += 1;
        shared.learn(&parts[holder], &mut answered(1), true);
        shared.free(&parts[holder]);
    }
    assert_eq!(turns, [10; 3]);
}

#[test]
fn a_limit_that_falls_is_kept_as_soon_as_what_is_under_way_has_ended() {
    let shared = SharedLimit::new(Box::new(Told(100)));
    let parts = [(); 2].map(|()| shared.join());
    for part in &parts {
        shared.wait(part);
    }
    let held: usize = parts.iter().map(|part| take_all(part)).sum();
    assert_eq!(held, 100);
    let at = |seconds| {
        let at = std::time::Duration::from_secs(seconds);
        answered(1).into_iter().map(|sample| Sample { at, ..sample }).collect::<Vec<_>>()
    };
    shared.learn(&parts[0], &mut at(10), true);
    assert_eq!(shared.current(), 10);
    for _ in 0..90 {
        assert!(parts.iter().all(|part| !take(part)));
        shared.free(parts.iter().max_by_key(|part| part.taken()).unwrap());
    }
    shared.free(&parts[1]);
    assert!(take(&parts[1]) && !take(&parts[1]) && !take(&parts[0]));
    shared.learn(&parts[0], &mut at(30), true);
    assert_eq!(take_all(&parts[0]), 10);
    assert_eq!(take_all(&parts[1]), 10);
}

#[test]
fn a_gate_that_is_dropped_leaves_its_part() {
    let shared = SharedLimit::new(Box::new(Fixed(10)));
    let [first, second] = [(); 2].map(|()| shared.join());
    shared.wait(&first);
    shared.wait(&second);
    assert_eq!(take_all(&first), 5);
    shared.leave(&second);
    assert_eq!(take_all(&first), 5);
}

/// The limit learns what is under way from all gates.
#[test]
fn a_sample_counts_the_attempts_of_all_gates() {
    #[derive(Debug)]
    struct Seen(Arc<Mutex<Vec<usize>>>);
    impl Limit for Seen {
        fn current(&self) -> usize {
            100
        }
        fn learn(&mut self, sample: Sample) {
            self.0.lock().unwrap().push(sample.in_flight);
        }
    }
    let seen = Arc::default();
    let shared = SharedLimit::new(Box::new(Seen(Arc::clone(&seen))));
    let parts = [(); 2].map(|()| shared.join());
    assert!((0..3).all(|_| take(&parts[0])) && take(&parts[1]));
    shared.learn(&parts[0], &mut answered(2), false);
    assert_eq!(*seen.lock().unwrap(), [5, 4]);
}

/// Four threads that take and free places as fast as they can, while the parts are divided anew all the time.
#[test]
fn threads_never_hold_more_than_the_limit_together() {
    const LIMIT: usize = 7;
    let shared = SharedLimit::new(Box::new(Fixed(LIMIT)));
    let (held, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (shared, held, is_over, start) = (&shared, &held, &is_over, &start);
            scope.spawn(move || {
                let (part, mut mine) = (shared.join(), 0);
                let mut random = fastrand::Rng::with_seed(thread);
                start.wait();
                for _ in 0..50_000 {
                    if random.bool() && take(&part) {
                        mine += 1;
                        if held.fetch_add(1, Ordering::SeqCst) >= LIMIT {
                            is_over.store(true, Ordering::SeqCst);
                        }
                    } else if mine > 0 {
                        held.fetch_sub(1, Ordering::SeqCst);
                        shared.free(&part);
                        mine -= 1;
                    } else {
                        shared.wait(&part);
                    }
                    if random.u8(..8) == 0 {
                        shared.learn(&part, &mut answered(1), random.bool());
                    }
                }
                (0..mine).for_each(|_| {
                    held.fetch_sub(1, Ordering::SeqCst);
                    shared.free(&part);
                });
                shared.leave(&part);
            });
        }
    });
    assert!(!is_over.into_inner(), "more than {LIMIT} at a time");
}
