//! Turns in single steps, and processes with their real quotas before a destination that counts all of them.

use std::future::Future as _;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;
use crate::learned_rate::hidden::{Destination, Hidden};
use crate::{Clock, Quota};

/// A question on its way to the ledger, and the answer on its way back.
#[derive(Debug)]
struct Exchange {
    asked_at: Duration,
    ask: TurnAsk,
    arrives_at: Duration,
    answer: Option<(Duration, TurnAnswer)>,
}

struct Process {
    quota: Quota,
    wake: Arc<Notify>,
    exchange: Option<Exchange>,
    next_round: Duration,
    /// Time between two messages; zero for a backlog.
    every: Duration,
    next_message: Duration,
    /// Messages that were handed back come again then.
    back_at: Duration,
    /// Reserved places, in order.
    booked: Vec<Duration>,
    /// When each message was sent whose answer has not come, and the time to wait if it was refused.
    under_way: Vec<(Duration, Option<Duration>)>,
    /// Its clock is so much behind.
    behind: Duration,
    /// It is there from one time to another.
    lives: (Duration, Duration),
}

struct World {
    start: Instant,
    now: Duration,
    destination: Destination,
    processes: Vec<Process>,
    row: Option<RateRow>,
    random: fastrand::Rng,
    /// When the ledger is away.
    away: (Duration, Duration),
    shares: bool,
    fastest: f64,
    /// When each message was sent, seconds, by whom, and whether it was accepted.
    sent: Vec<(f64, usize, bool)>,
    exchanges: usize,
}

const ROUND_TRIP: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);
/// How far ahead a lane with a backlog books.
const HORIZON: Duration = Duration::from_millis(1_250);
const NEVER: Duration = Duration::from_hours(24);

impl World {
    fn new(hidden: Hidden, rates: (f64, f64)) -> Self {
        Self {
            start: Clock::starting_at(Duration::ZERO).monotonic(),
            now: Duration::ZERO,
            destination: Destination::new(hidden, rates),
            processes: Vec::new(),
            row: None,
            random: fastrand::Rng::with_seed(1),
            away: (NEVER, NEVER),
            shares: true,
            fastest: 4.0 * rates.0.max(rates.1),
            sent: Vec::new(),
            exchanges: 0,
        }
    }

    /// With so many processes that have backlogs.
    fn with(mut self, backlogs: u32) -> Self {
        (0..backlogs).for_each(|_| self.join((Duration::ZERO, NEVER), Duration::ZERO));
        self
    }

    fn join(&mut self, lives: (Duration, Duration), every: Duration) {
        let place = u32::try_from(self.processes.len()).unwrap();
        self.processes.push(Process {
            quota: Quota::new(None),
            wake: Arc::default(),
            exchange: None,
            next_round: Duration::ZERO,
            every,
            next_message: lives.0 + Duration::from_millis(7) * place,
            back_at: Duration::ZERO,
            booked: Vec::new(),
            under_way: Vec::new(),
            behind: Duration::from_micros(self.random.u64(..1_000)),
            lives,
        });
    }

    fn run(mut self, seconds: u64) -> Self {
        let rate = self.destination.rates.0.max(self.destination.rates.1);
        let step = Duration::from_secs_f64((1.0 / rate / 2.0).clamp(0.001, 0.01));
        while self.now < Duration::from_secs(seconds) {
            self.now += step;
            let mut due = Vec::new();
            for place in 0..self.processes.len() {
                let mut process = self.processes.swap_remove(place);
                if (process.lives.0..process.lives.1).contains(&self.now) {
                    self.talk(&mut process);
                    due.extend(self.sends(&mut process).into_iter().map(|at| (at, place)));
                }
                self.processes.push(process);
                let last = self.processes.len() - 1;
                self.processes.swap(place, last);
            }
            due.sort_unstable();
            for (at, place) in due {
                let refused = self.destination.asked(at.as_secs_f64());
                self.sent.push((at.as_secs_f64(), place, refused.is_none()));
                let refused = refused.map(Duration::from_secs_f64);
                self.processes[place].under_way.push((at, refused));
            }
            for process in &mut self.processes {
                process.hear(self.start, self.now);
            }
        }
        self
    }

    fn talk(&mut self, process: &mut Process) {
        if !self.shares {
            return;
        }
        let instant = self.start + self.now;
        if let Some(exchange) = &mut process.exchange {
            if exchange.answer.is_none() && self.now >= exchange.arrives_at {
                let asked = exchange.asked_at.saturating_sub(process.behind);
                let (row, answer) = take_turn(self.row, &exchange.ask, asked);
                self.row = row;
                let back = self.now + Duration::from_micros(self.random.u64(500..20_000));
                exchange.answer = Some((back, answer));
            }
            if let Some((_, answer)) = exchange.answer.filter(|(at, _)| self.now >= *at) {
                let asked_at = self.start + exchange.asked_at;
                process.quota.hear_turn(&answer, asked_at, instant);
                process.exchange = None;
            } else if self.now >= exchange.asked_at + 2 * SECOND {
                process.exchange = None;
            }
            return;
        }
        let is_woken = self.now + SECOND >= process.next_round + Duration::from_millis(20)
            && process.is_woken();
        if !is_woken && self.now < process.next_round {
            return;
        }
        process.next_round = self.now + SECOND;
        let Some(ask) = process.quota.turn_ask(&process.wake, instant) else { return };
        self.exchanges += 1;
        let is_away = (self.away.0..self.away.1).contains(&self.now);
        let takes = Duration::from_micros(self.random.u64(500..20_000));
        let arrives_at = if is_away { NEVER } else { self.now + takes };
        process.exchange = Some(Exchange { asked_at: self.now, ask, arrives_at, answer: None });
    }

    /// When messages of `process` are due by now.
    fn sends(&self, process: &mut Process) -> Vec<Duration> {
        let mut due = Vec::new();
        let instant = self.start + self.now;
        let is_light = !process.every.is_zero();
        let gap = Duration::from_secs_f64(1.0 / self.fastest).max(process.every);
        while process.next_message <= self.now && (process.quota.is_open() || is_light) {
            if process.quota.is_open() {
                due.push(process.next_message);
            } else if process.quota.awaits_part(instant).is_some()
                || process.reserve(self.start, self.now).is_err()
            {
                break;
            }
            process.next_message += gap;
        }
        if !is_light && !process.quota.is_open() {
            process.next_message = self.now;
            while self.now >= process.back_at && process.quota.awaits_part(instant).is_none() {
                let Err(wait) = process.reserve(self.start, self.now) else { continue };
                let soon = wait.saturating_sub(HORIZON).as_secs() + 1;
                process.back_at = self.now + Duration::from_secs(soon);
            }
        }
        process.booked.sort_unstable();
        let passed = process.booked.partition_point(|at| *at <= self.now);
        due.extend(process.booked.drain(..passed));
        due
    }

    /// Messages of one process that were accepted from one second to another.
    fn by(&self, process: usize, (from, until): (f64, f64)) -> usize {
        let is_of = |(at, by, is_accepted): &&(f64, usize, bool)| {
            *by == process && *is_accepted && (from..until).contains(at)
        };
        self.sent.iter().filter(is_of).count()
    }

    /// Parts from one second to another: of what could be sent, what was accepted; of what was sent, what was refused.
    fn used(&self, rate: f64, (from, until): (f64, f64)) -> (f64, f64) {
        let within = self.sent.iter().filter(|(at, ..)| (from..until).contains(at));
        let (mut accepted, mut refused) = (0.0, 0.0);
        for (.., is_accepted) in within {
            *(if *is_accepted { &mut accepted } else { &mut refused }) += 1.0;
        }
        (accepted / (rate * (until - from)), refused / (accepted + refused))
    }
}

// === impl Process ===

impl Process {
    fn is_woken(&self) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut notified = std::pin::pin!(self.wake.notified());
        notified.as_mut().poll(&mut context).is_ready()
    }

    fn reserve(&mut self, start: Instant, now: Duration) -> Result<(), Duration> {
        let wait = self.quota.reserve(start + now, HORIZON)?;
        self.booked.push(now + wait);
        Ok(())
    }

    fn hear(&mut self, start: Instant, now: Duration) {
        let come = self.under_way.partition_point(|(at, _)| *at + ROUND_TRIP <= now);
        for (at, refused) in self.under_way.drain(..come) {
            match refused {
                None if self.quota.is_learning() => drop(self.quota.accepted(start + now, 1)),
                None => {}
                Some(after) => self.quota.refused(start + now, start + at, after),
            }
        }
    }
}

const ALL: [Hidden; 4] =
    [Hidden::Bucket(0.0), Hidden::Bucket(1.0), Hidden::Bucket(60.0), Hidden::Minutes];
const BACKLOG: Duration = Duration::ZERO;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Least part of a rate that is to be used, and greatest part that is to be refused.
fn bounds(hidden: Hidden) -> (f64, f64) {
    match hidden {
        // What is on its way when the minute's number is used up is refused.
        Hidden::Minutes => (0.9, 0.06),
        Hidden::Bucket(_) | Hidden::Nothing => (0.92, 0.03),
    }
}

#[test]
fn processes_use_a_rate_together_also_where_messages_keep_a_distance() {
    for hidden in ALL {
        for (processes, rate) in
            [(2, 1.0), (8, 1.0), (2, 10.0), (4, 10.0), (8, 10.0), (2, 100.0), (8, 100.0)]
        {
            let world = World::new(hidden, (rate, rate)).with(processes).run(400);
            let (used, refused) = world.used(rate, (120.0, 400.0));
            let (least, most) = bounds(hidden);
            let what = format!("{hidden:?} {processes} {rate}: {used} {refused}");
            assert!(used >= least && refused <= most, "{what}");
            // About three questions in a second of all processes.
            let exchanges = world.exchanges;
            assert!(exchanges <= 400 * (2 + processes as usize), "{what} {exchanges}");
        }
    }
}

#[test]
fn without_a_ledger_they_lose_a_destination_that_wants_a_distance() {
    for processes in [2, 8] {
        let mut world = World::new(Hidden::Bucket(0.0), (10.0, 10.0)).with(processes);
        world.shares = false;
        let (used, _) = world.run(400).used(10.0, (120.0, 400.0));
        assert!(used < 0.3, "{processes}: {used}");
    }
}

#[test]
fn another_rate_is_used_within_a_minute() {
    for hidden in [Hidden::Bucket(0.0), Hidden::Bucket(1.0), Hidden::Bucket(60.0)] {
        for rates in [(10.0, 5.0), (10.0, 20.0), (100.0, 50.0), (100.0, 200.0), (100.0, 10.0)] {
            let world = World::new(hidden, rates).with(4).run(600);
            let (used, refused) = world.used(rates.1, (460.0, 600.0));
            let what = format!("{hidden:?} {rates:?}: {used} {refused}");
            // A bucket that was filled by a greater rate is emptied first, faster than is let through for long.
            assert!(used >= 0.9 && refused <= 0.06, "{what}");
        }
    }
}

#[test]
fn one_that_dies_costs_no_more_than_its_turns_and_one_that_joins_learns_from_the_others() {
    for hidden in [Hidden::Bucket(0.0), Hidden::Bucket(1.0), Hidden::Bucket(60.0)] {
        for rate in [10.0, 100.0] {
            let mut world = World::new(hidden, (rate, rate)).with(3);
            world.join((Duration::ZERO, seconds(200)), BACKLOG);
            world.join((seconds(250), NEVER), BACKLOG);
            let world = world.run(300);
            let dead = world.used(rate, (203.0, 250.0));
            assert!(dead.0 >= 0.85 && dead.1 <= 0.05, "{hidden:?} {rate}: {dead:?}");
            let joined = world.used(rate, (255.0, 300.0));
            assert!(joined.0 >= 0.85 && joined.1 <= 0.05, "{hidden:?} {rate}: {joined:?}");
            assert!(world.by(4, (255.0, 300.0)) > 45, "it has turns, too");
        }
    }
}

#[test]
fn those_that_reach_no_ledger_go_on_alone_and_share_again_when_they_do() {
    for hidden in [Hidden::Bucket(0.0), Hidden::Bucket(1.0), Hidden::Bucket(60.0)] {
        let mut world = World::new(hidden, (10.0, 10.0)).with(4);
        world.away = (seconds(150), seconds(200));
        let world = world.run(300);
        let alone = world.used(10.0, (150.0, 200.0));
        // As if there were no ledger at all.
        let least = if matches!(hidden, Hidden::Bucket(0.0)) { 0.05 } else { 0.85 };
        assert!(alone.0 >= least, "{hidden:?}: {alone:?}");
        let again = world.used(10.0, (240.0, 300.0));
        assert!(again.0 >= 0.9 && again.1 <= 0.05, "{hidden:?}: {again:?}");
    }
}

#[test]
fn those_with_little_have_it_and_one_with_a_backlog_has_the_rest() {
    for hidden in [Hidden::Bucket(0.0), Hidden::Bucket(1.0)] {
        let mut world = World::new(hidden, (10.0, 10.0)).with(1);
        (0..3).for_each(|_| world.join((Duration::ZERO, NEVER), seconds(2)));
        let world = world.run(400);
        let (used, refused) = world.used(10.0, (120.0, 400.0));
        assert!(used >= 0.9 && refused <= 0.03, "{hidden:?}: {used} {refused}");
        let each = [1, 2, 3].map(|process| world.by(process, (120.0, 400.0)));
        // A refused one would be tried again.
        assert!(each.iter().all(|count| (130..=141).contains(count)), "{each:?}");
    }
}

fn ask(news: RateNews, generation: u64) -> TurnAsk {
    TurnAsk { news, generation, climbed: Duration::ZERO, pause: Duration::ZERO, wants: TURN_MAX }
}

#[test]
fn turns_are_booked_one_behind_the_other_and_not_too_far_ahead() {
    let now = seconds(1_000);
    let (mut row, mut until) = (None, Duration::ZERO);
    for place in 0_u8.. {
        let news = if place == 0 { RateNews::Counted(100.0) } else { RateNews::None };
        let (next, answer) = take_turn(row, &ask(news, 0), now);
        row = next;
        let Some(turn) = answer.turn else {
            assert!(until > seconds(3) && until <= BOOKED_MAX + GUARD, "{until:?}");
            break;
        };
        assert_eq!(turn.starts_in, until, "behind the last one");
        until = turn.starts_in + turn.interval * turn.messages + GUARD;
    }
    let slow = take_turn(None, &ask(RateNews::Refused(0.1), 0), now).1;
    assert_eq!(slow.turn, None, "not before all others have told what they counted");
    let later = take_turn(
        take_turn(None, &ask(RateNews::Refused(0.1), 0), now).0,
        &ask(RateNews::None, 0),
        now + Duration::from_mins(2),
    );
    assert_eq!(later.1.turn.map(|turn| turn.messages), Some(1), "one message at least");
}

#[test]
fn a_rate_that_is_not_known_is_not_made_up() {
    for news in [RateNews::None, RateNews::Counting(5.0), RateNews::GivenUp] {
        let (row, answer) = take_turn(None, &ask(news, 0), seconds(1));
        assert_eq!((row, answer), (None, TurnAnswer::default()), "{news:?}");
    }
}
