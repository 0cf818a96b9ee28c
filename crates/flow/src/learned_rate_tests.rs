//! Destinations with numbers that they do not publish, in simulated time.

use std::collections::VecDeque;

use super::hidden::{CHANGE, Destination, Hidden};
use super::*;

const ALL: [Hidden; 4] =
    [Hidden::Bucket(0.0), Hidden::Bucket(1.0), Hidden::Bucket(60.0), Hidden::Minutes];

/// When the simulation ends, seconds.
const END: f64 = 900.0;
const ROUND_TRIP: f64 = 0.05;

/// A process with a backlog before a destination.
struct Process {
    learned: LearnedRate,
    /// When each message was sent whose answer has not come, and the seconds to wait if it was refused.
    under_way: VecDeque<(f64, Option<f64>)>,
    paused_until: f64,
    fastest: f64,
    /// When it sends the next one.
    next: f64,
}

impl Process {
    /// Sends a message, and finds out when the next may be sent.
    fn send(&mut self, destination: &mut Destination) -> (f64, bool) {
        let now = self.next;
        let refused = destination.asked(now);
        self.under_way.push_back((now, refused));
        self.learned.hold_back(Duration::from_secs_f64(now));
        let planned = self.after(now);
        self.hear(planned);
        let after = self.after(now).max(planned);
        self.hear(after);
        self.next = after;
        (now, refused.is_none())
    }

    fn after(&self, now: f64) -> f64 {
        let rate = self.learned.per_second().map_or(self.fastest, |rate| rate.min(self.fastest));
        (now + 1.0 / rate).max(self.paused_until)
    }

    /// Each refusal or acceptance is heard of a round trip later.
    fn hear(&mut self, until: f64) {
        let span = Duration::from_secs_f64;
        let has_come = |(at, _): &mut (f64, Option<f64>)| *at + ROUND_TRIP <= until;
        while let Some((at, refused)) = self.under_way.pop_front_if(has_come) {
            let now = at + ROUND_TRIP;
            match refused {
                None => self.learned.accept(span(now), 1),
                Some(after) => {
                    let pause = self.learned.refuse(span(now), span(at), span(after));
                    self.paused_until = self.paused_until.max(now + pause.as_secs_f64());
                }
            }
        }
    }
}

/// Backlogs of several processes before a destination: when each message was sent, and whether it was accepted.
fn play_together(hidden: Hidden, rates: (f64, f64), processes: u8) -> Vec<(f64, bool)> {
    let mut destination = Destination::new(hidden, rates);
    let begun = |place: u8| Process {
        learned: LearnedRate::new(Duration::ZERO),
        under_way: VecDeque::new(),
        paused_until: 0.0,
        fastest: 4.0 * rates.0.max(rates.1),
        // Not all at the same instant.
        next: f64::from(place) * 0.007,
    };
    let mut all: Vec<_> = (0..processes).map(begun).collect();
    let mut sent = Vec::new();
    loop {
        let first = all.iter_mut().min_by(|one, other| one.next.total_cmp(&other.next));
        let process = first.unwrap();
        if process.next >= END {
            return sent;
        }
        sent.push(process.send(&mut destination));
    }
}

/// A backlog before a destination: when each message was sent, and whether it was accepted.
fn play(hidden: Hidden, rates: (f64, f64)) -> Vec<(f64, bool)> {
    play_together(hidden, rates, 1)
}

/// Parts of what could be sent from one second to another: accepted, and of what was sent: refused.
fn used(sent: &[(f64, bool)], rate: f64, (from, until): (f64, f64)) -> (f64, f64) {
    let within: Vec<bool> =
        sent.iter().filter(|(at, _)| (from..until).contains(at)).map(|(_, is)| *is).collect();
    let count = |is: bool| within.iter().filter(|accepted| **accepted == is).count();
    let float = |count: usize| f64::from(u32::try_from(count).unwrap());
    let accepted = float(count(true)) / (rate * (until - from));
    (accepted, float(count(false)) / float(within.len()))
}

#[test]
fn a_rate_that_is_not_published_is_found_and_used() {
    for hidden in ALL {
        for rate in [1.0, 10.0, 100.0, 1_000.0] {
            let sent = play(hidden, (rate, rate));
            let (accepted, refused) = used(&sent, rate, (300.0, END));
            assert!(accepted >= 0.9, "{hidden:?} {rate}: {accepted} {refused}");
            // Two of 62 in a minute of the clock with 60: what is told too late for the first is refused as well.
            let most = if matches!(hidden, Hidden::Minutes) && rate < 2.0 { 0.03 } else { 0.02 };
            assert!(refused <= most, "{hidden:?} {rate}: {accepted} {refused}");
        }
    }
}

#[test]
fn another_rate_is_found_within_a_minute() {
    for hidden in ALL {
        for rates in [(10.0, 5.0), (10.0, 20.0), (100.0, 50.0), (100.0, 200.0), (100.0, 10.0)] {
            let sent = play(hidden, rates);
            // A minute after the change; of one that counts by minutes, the next whole one.
            let from = if matches!(hidden, Hidden::Minutes) { 480.0 } else { CHANGE + 60.0 };
            let (soon, _) = used(&sent, rates.1, (from, from + 60.0));
            let (accepted, refused) = used(&sent, rates.1, (from, END));
            assert!(soon >= 0.9, "{hidden:?} {rates:?}: {soon} {accepted} {refused}");
            assert!(accepted >= 0.9, "{hidden:?} {rates:?}: {soon} {accepted} {refused}");
            let most = if matches!(hidden, Hidden::Minutes) { 0.03 } else { 0.02 };
            assert!(refused <= most, "{hidden:?} {rates:?}: {soon} {accepted} {refused}");
        }
    }
}

#[test]
fn one_that_refuses_nothing_is_not_held_back() {
    let sent = play(Hidden::Nothing, (10.0, 10.0));
    let (accepted, refused) = used(&sent, 40.0, (0.0, END));
    assert!(accepted >= 0.999 && refused == 0.0, "{accepted} {refused}");
}

/// `count` rounds of a second: how many are accepted in each, and how many refused.
fn rounds(learned: &mut LearnedRate, (from, count): (u64, u64), accepted: u32, refused: u32) {
    for second in from..from + count {
        let sent_at = Duration::from_secs(second);
        let heard_at = sent_at + Duration::from_millis(5);
        learned.accept(heard_at, accepted);
        (0..refused).for_each(|_| {
            learned.refuse(heard_at, sent_at, Duration::from_secs(1));
        });
    }
}

#[test]
fn a_few_refusals_beside_much_that_is_accepted_are_no_rate() {
    let mut learned = LearnedRate::new(Duration::from_secs(1));
    rounds(&mut learned, (1, 60), 100, 20);
    assert_eq!(learned.per_second(), None);
    assert!(!learned.is_over(Duration::from_secs(62)));
    assert!(learned.is_over(Duration::from_mins(4)), "they have ended");
    rounds(&mut learned, (100, 5), 10, 20);
    let found = learned.per_second().unwrap();
    assert!((8.0..=14.0).contains(&found), "{found}");
}

#[test]
fn a_rate_is_kept_while_little_is_sent_and_forgotten_after_an_hour() {
    let mut learned = LearnedRate::new(Duration::from_secs(1));
    rounds(&mut learned, (1, 20), 10, 20);
    let found = learned.per_second().unwrap();
    learned.accept(Duration::from_mins(30), 1);
    assert_eq!(learned.per_second(), Some(found), "nothing was held back");
    learned.hold_back(Duration::from_mins(30));
    assert_eq!(learned.per_second(), Some(found), "not the whole time until then");
    assert!(!learned.is_over(Duration::from_mins(80)) && learned.is_over(Duration::from_mins(91)));
}

#[test]
fn a_rate_that_does_not_end_the_refusals_is_given_up() {
    let mut learned = LearnedRate::new(Duration::from_secs(1));
    rounds(&mut learned, (1, 12), 10, 20);
    assert!(learned.per_second().is_some());
    // A recipient with a rate of its own, whatever is sent to the others.
    rounds(&mut learned, (13, 100), 10, 20);
    assert_eq!(learned.per_second(), None);
    // It is tried again.
    rounds(&mut learned, (500, 12), 10, 20);
    assert!(learned.per_second().is_some());
}

#[test]
fn processes_that_learn_one_rate_use_it_together() {
    // Not where each message has to keep a distance from the last one of any process: none knows of the others.
    for hidden in [Hidden::Bucket(1.0), Hidden::Bucket(60.0), Hidden::Minutes] {
        for (processes, rate) in [(2, 10.0), (2, 1_000.0), (4, 100.0), (8, 10.0), (8, 1_000.0)] {
            let sent = play_together(hidden, (rate, rate), processes);
            let (accepted, refused) = used(&sent, rate, (300.0, END));
            let what = format!("{hidden:?} {processes} {rate}: {accepted} {refused}");
            assert!(accepted >= 0.98 && refused <= 0.03, "{what}");
        }
    }
}
