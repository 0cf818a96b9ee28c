//! Shares in single steps, and processes that come, go, stall and are cut off, with their real quotas and a ledger that loses
//! messages.

use super::*;
use crate::Clock;

/// A defect that is planted to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A part is raised before the others have lowered theirs.
    RaisesAtOnce,
    /// A process of which nothing was heard for two rounds counts as gone.
    ForgetsTheSilent,
    /// A part counts as lowered while places are reserved under the greater one.
    GivesBackTooSoon,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Backlog,
    /// One message in so many milliseconds.
    Each(u64),
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    /// It does nothing at all, and goes on later.
    Stalls(u64),
    /// It sends, and reaches no ledger.
    IsCutOff(u64),
    IsGone,
}

/// A question on its way to the ledger, and the answer on its way back.
#[derive(Debug)]
struct Exchange {
    asked_at: Instant,
    ask: ShareAsk,
    /// Milliseconds; `None` if it is lost.
    arrives_at: Option<u64>,
    answer: Option<Share>,
    answered_at: Option<u64>,
}

struct Process {
    holder: i64,
    quota: Quota,
    share: Option<Shareholder>,
    wake: Arc<Notify>,
    work: Work,
    state: State,
    next_message: u64,
    next_round: u64,
    exchange: Option<Exchange>,
    /// Places to come, milliseconds, and the part under which each was reserved.
    booked: Vec<(u64, u64)>,
}

struct World {
    number: NonZeroU32,
    /// A smaller number, to which processes change and back.
    lesser: Option<NonZeroU32>,
    fault: Fault,
    random: fastrand::Rng,
    start: Instant,
    /// Milliseconds.
    now: u64,
    processes: Vec<Process>,
    /// By holder: the stake, when it was told, and until when it counts.
    ledger: Vec<(i64, Stake, u64, u64)>,
    sent: Vec<u64>,
    /// The greatest amount that all of them went by at any instant.
    gone_by: u64,
    is_calm: bool,
}

const STEP: u64 = 20;
const MINUTE: u64 = 60_000;
const SECOND: u64 = 1_000;

fn number(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

impl World {
    fn new(count: u32, fault: Fault, seed: u64) -> Self {
        Self {
            number: number(count),
            lesser: None,
            fault,
            random: fastrand::Rng::with_seed(seed),
            start: Clock::starting_at(Duration::ZERO).monotonic(),
            now: 0,
            processes: Vec::new(),
            ledger: Vec::new(),
            sent: Vec::new(),
            gone_by: 0,
            is_calm: false,
        }
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn join(&mut self, work: Work) {
        let quota = Quota::new(Some(self.number));
        let wake = Arc::new(Notify::new());
        let share = Shareholder::of_none(&quota, self.number, &wake, self.instant());
        self.processes.push(Process {
            holder: i64::try_from(self.processes.len()).unwrap(),
            quota,
            share: Some(share),
            wake,
            work,
            state: State::Runs,
            next_message: self.now,
            next_round: self.now,
            exchange: None,
            booked: Vec::new(),
        });
    }

    fn living(&self) -> usize {
        self.processes.iter().filter(|process| process.state != State::IsGone).count()
    }

    /// Something happens to one of them, now and then.
    fn disturb(&mut self) {
        if self.is_calm || self.random.u32(..150) != 0 {
            return;
        }
        let work = match self.random.u8(..4) {
            0 | 1 => Work::Backlog,
            2 => Work::Each(self.random.u64(200..15_000)),
            _ => Work::Nothing,
        };
        let span = self.now + self.random.u64(500..20_000);
        let (what, place) = (self.random.u8(..8), self.random.usize(..self.processes.len()));
        let instant = self.instant();
        let process = &mut self.processes[place];
        match what {
            0..4 => process.work = work,
            4 => process.state = State::Stalls(span),
            5 => process.state = State::IsCutOff(span),
            6 => process.state = State::IsGone,
            _ if matches!(process.state, State::Runs | State::IsCutOff(_)) => {
                let share = process.share.as_mut().unwrap();
                let other = self.lesser.filter(|lesser| share.number != *lesser);
                let other = other.unwrap_or(self.number);
                share.change(&process.quota, other, instant);
            }
            _ => {}
        }
        // As many as there were, so that there is always something to divide.
        while self.living() < 4 {
            self.join(work);
        }
    }

    fn run(&mut self, millis: u64) {
        let end = self.now + millis;
        while self.now < end {
            self.now += STEP;
            self.disturb();
            for place in 0..self.processes.len() {
                let mut process = self.processes.swap_remove(place);
                self.step(&mut process);
                self.processes.push(process);
                let last = self.processes.len() - 1;
                self.processes.swap(place, last);
            }
            let instant = self.instant();
            let goes_by = |process: &Process| process.goes_by(instant, self.now);
            self.gone_by = self.gone_by.max(self.processes.iter().map(goes_by).sum());
        }
    }

    fn step(&mut self, process: &mut Process) {
        // The ledger answers also one that stalls or has died since.
        self.serve(process);
        match process.state {
            State::Stalls(until) | State::IsCutOff(until) if self.now >= until => {
                process.state = State::Runs;
            }
            State::IsGone | State::Stalls(_) => return,
            State::Runs | State::IsCutOff(_) => {}
        }
        self.talk(process);
        self.send(process);
    }

    /// Performs the exchange of `process`, if it has reached the ledger.
    fn serve(&mut self, process: &mut Process) {
        let Some(exchange) = &mut process.exchange else { return };
        if exchange.answer.is_some() || exchange.arrives_at.is_none_or(|at| at > self.now) {
            return;
        }
        let (fault, now) = (self.fault, self.now);
        self.ledger.retain(|(_, _, told_at, until)| {
            let is_silent = fault == Fault::ForgetsTheSilent && told_at + 2 * SECOND < now;
            *until > now && !is_silent
        });
        let others = self.ledger.iter().filter(|(holder, ..)| *holder != process.holder);
        let mut others: Vec<Stake> = others.map(|(_, stake, ..)| *stake).collect();
        let mut ask = exchange.ask;
        if fault == Fault::RaisesAtOnce {
            for other in &mut others {
                other.held = 0;
            }
        }
        if fault == Fault::GivesBackTooSoon {
            ask.stake.held = process.share.as_ref().unwrap().part;
        }
        let share = divide(&ask, &others);
        let is_over = share.held == 0 && ask.stake.wants == 0;
        let lasts = if is_over { ask.full_in } else { HELD_FOR };
        let until = now + u64::try_from(lasts.as_millis()).unwrap();
        self.ledger.retain(|(holder, ..)| *holder != process.holder);
        let stake = Stake { held: share.held, ..ask.stake };
        self.ledger.push((process.holder, stake, now, until));
        exchange.answer = Some(share);
        let is_lost = !self.is_calm && self.random.u8(..20) == 0;
        exchange.answered_at = (!is_lost).then(|| now + self.random.u64(1..200));
    }

    fn talk(&mut self, process: &mut Process) {
        let instant = self.instant();
        if matches!(process.state, State::IsCutOff(_)) {
            // What it asks is lost.
            process.share.as_mut().unwrap().ask(&process.quota, &process.wake, instant);
            process.exchange = None;
            return;
        }
        if let Some(exchange) = &process.exchange {
            let is_given_up = instant >= exchange.asked_at + PART_LASTS;
            if exchange.answered_at.is_some_and(|at| at <= self.now) {
                let (asked_at, answer) = (exchange.asked_at, exchange.answer.unwrap());
                let share = process.share.as_mut().unwrap();
                share.hear(&process.quota, answer, &process.wake, (asked_at, instant));
                process.exchange = None;
            } else if is_given_up {
                process.exchange = None;
            }
        } else if self.now >= process.next_round {
            process.next_round = self.now + SECOND;
            let share = process.share.as_mut().unwrap();
            let Some(ask) = share.ask(&process.quota, &process.wake, instant) else { return };
            let is_lost = !self.is_calm && self.random.u8(..20) == 0;
            let slow = if !self.is_calm && self.random.u8(..20) == 0 { 4_000 } else { 50 };
            let arrives_at = (!is_lost).then(|| self.now + self.random.u64(1..slow));
            let (answer, answered_at) = (None, None);
            process.exchange =
                Some(Exchange { asked_at: instant, ask, arrives_at, answer, answered_at });
        }
    }

    fn send(&mut self, process: &mut Process) {
        let (instant, now) = (self.instant(), self.now);
        let mut reserve = || {
            let place = process.quota.reserve(instant, WAIT_MAX * 3 / 4).ok()?;
            let at = now + u64::try_from(place.as_millis()).unwrap();
            process.booked.push((at, process.share.as_ref().unwrap().part));
            Some(())
        };
        let has_work = match process.work {
            Work::Backlog => true,
            Work::Each(_) => now >= process.next_message,
            Work::Nothing => false,
        };
        if has_work && process.quota.awaits_part(instant).is_none() {
            if let Work::Each(millis) = process.work {
                process.next_message = now + millis;
                reserve();
            } else {
                while reserve().is_some() {}
            }
        }
        // A place is given up a second after its time.
        let sent = process.booked.iter().filter(|(at, _)| *at <= now && at + SECOND >= now);
        self.sent.extend(sent.map(|_| now));
        process.booked.retain(|(at, _)| *at > now);
    }

    /// The greatest count of any so many milliseconds.
    fn most(&self, millis: u64) -> usize {
        let within = |(place, from): (usize, &u64)| {
            self.sent[place..].partition_point(|at| *at < from + millis)
        };
        self.sent.iter().enumerate().map(within).max().unwrap_or(0)
    }

    fn since(&self, from: u64) -> usize {
        self.sent.iter().filter(|at| **at >= from).count()
    }
}

// === impl Process ===

impl Process {
    /// The amount that it goes by: the greatest of those under which it has reserved places, or may reserve one.
    fn goes_by(&self, instant: Instant, now: u64) -> u64 {
        if self.state == State::IsGone {
            return 0;
        }
        let share = self.share.as_ref().unwrap();
        let part = if instant < share.part_until { share.part } else { 0 };
        let to_come = self.booked.iter().filter(|(at, _)| at + SECOND >= now);
        to_come.map(|(_, part)| *part).max().unwrap_or(0).max(part)
    }
}

/// Ten minutes in which four processes come, go, stall and are cut off.
fn troubled(count: u32, fault: Fault, seed: u64) -> World {
    let mut world = World::new(count, fault, seed);
    for _ in 0..4 {
        world.join(Work::Backlog);
    }
    world.run(10 * MINUTE);
    world
}

/// By how much all of them went beyond what they may together: the amount at an instant, the messages in a minute, and in 10 s.
fn excess(world: &World) -> (u64, usize, usize) {
    let all = whole(world.number);
    let minute = usize::try_from(world.number.get()).unwrap();
    // A token bucket has its burst, and what goes evenly meanwhile.
    let seconds = usize::try_from(burst_of(world.number) + all / 6_000).unwrap();
    (
        world.gone_by.saturating_sub(all),
        world.most(MINUTE).saturating_sub(minute),
        world.most(10 * SECOND).saturating_sub(seconds),
    )
}

fn burst_of(number: NonZeroU32) -> u64 {
    u64::from(number.get()) - whole(number) / 1_000
}

/// Beyond the number, each process may send one message at most.
const SLACK: usize = 4;

#[test]
fn no_minute_has_more_than_the_number_whoever_comes_goes_or_stalls() {
    for count in [6, 60, 600, 6_000] {
        for seed in 0..10 {
            let world = troubled(count, Fault::None, seed);
            let (amount, minute, seconds) = excess(&world);
            assert_eq!(amount, 0, "{count} {seed}");
            assert!(minute <= SLACK && seconds <= SLACK, "{count} {seed}: {minute} {seconds}");
        }
    }
}

#[test]
fn no_minute_has_more_than_the_greater_number_while_processes_change_it() {
    for (count, lesser) in [(60, 20), (600, 60), (6_000, 3_000)] {
        for seed in 0..10 {
            let mut world = World::new(count, Fault::None, seed);
            world.lesser = Some(number(lesser));
            (0..4).for_each(|_| world.join(Work::Backlog));
            world.run(10 * MINUTE);
            let (amount, minute, seconds) = excess(&world);
            assert_eq!(amount, 0, "{count} {seed}");
            assert!(minute <= SLACK && seconds <= SLACK, "{count} {seed}: {minute} {seconds}");
            // When all of them have the smaller one, and what was reserved before has passed.
            world.is_calm = true;
            world.run(20 * SECOND);
            let instant = world.instant();
            for process in &mut world.processes {
                process.work = Work::Backlog;
                let share = process.share.as_mut().unwrap();
                share.change(&process.quota, number(lesser), instant);
            }
            world.run(10 * SECOND);
            world.gone_by = 0;
            world.run(MINUTE);
            assert!(world.gone_by <= whole(number(lesser)), "{count} {seed}: {}", world.gone_by);
            let used = world.since(world.now - MINUTE);
            let most = usize::try_from(lesser).unwrap();
            assert!(used <= most + SLACK && used * 2 >= most, "{lesser} {seed}: {used}");
        }
    }
}

/// Faults are found where there is no excess without them: `no_minute_has_more_than_the_number_whoever_comes_goes_or_stalls`.
#[test]
fn a_planted_fault_is_found() {
    let most = |fault, count| {
        let worlds = (0..6).map(|seed| excess(&troubled(count, fault, seed)));
        worlds.fold((0, 0, 0), |most: (u64, usize, usize), it| {
            (most.0.max(it.0), most.1.max(it.1), most.2.max(it.2))
        })
    };
    for fault in [Fault::RaisesAtOnce, Fault::ForgetsTheSilent, Fault::GivesBackTooSoon] {
        let (amount, minute, seconds) = most(fault, 6_000);
        assert!(amount > 0, "{fault:?}: {amount} {minute} {seconds}");
        assert!(seconds > 10 * SLACK, "{fault:?}: {amount} {minute} {seconds}");
    }
}

#[test]
fn what_is_given_is_fair_and_leaves_room_for_those_who_begin() {
    let all = whole(number(600));
    let ask = |wants, held| {
        let stake = Stake { number: number(600), wants, held };
        ShareAsk { stake, idle_for: Duration::ZERO, full_in: Duration::ZERO }
    };
    let other = |wants, held| Stake { number: number(600), wants, held };
    let held = |ask: ShareAsk, others: &[Stake]| {
        let Share { held, part, .. } = divide(&ask, others);
        (held, part)
    };
    let divided = all - all / 32;
    assert_eq!(held(ask(1, 0), &[]), (divided, divided), "what no other one wants");
    assert_eq!(
        held(ask(all, 0), &[other(all, divided)]).0,
        all - all / 64 - divided,
        "to begin with"
    );
    assert_eq!(held(ask(all, 1_000), &[other(all, divided)]).0, 1_000, "not for all others");
    assert_eq!(held(ask(all, divided), &[other(all, 0)]), (divided, divided / 2), "half each");
    let (small, large) = (other(60_000, 0), other(all, 0));
    let rest = (divided - 60_000) / 2;
    assert_eq!(held(ask(all, 0), &[small, large]).0, rest, "who wants little gets it");
    assert_eq!(held(ask(60_000, 0), &[large, large]).0, 60_000);
    let both_want_little = held(ask(60_000, 0), &[other(30_000, 0)]).0;
    assert_eq!(both_want_little, 60_000 + (divided - 90_000) / 2, "the rest is divided");
    assert_eq!(held(ask(0, 9), &[]), (9, 0), "until places that are reserved have passed");
    let tokens =
        |idle_for, others: &[Stake]| divide(&ShareAsk { idle_for, ..ask(all, 0) }, others).tokens;
    let hour = Duration::from_hours(1);
    assert_eq!(tokens(Duration::ZERO, &[]), Tokens::Full);
    assert_eq!(tokens(Duration::from_secs(30), &[other(0, 0)]), Tokens::None);
    assert_eq!(tokens(hour, &[other(all, all / 2)]), Tokens::One);
}

#[test]
fn those_who_have_work_use_nearly_all_of_the_number_together() {
    for (count, backlogs, others) in [
        (60, 3, 0),
        (60, 1, 2),
        (600, 1, 3),
        (600, 3, 0),
        (600, 2, 2),
        (6_000, 8, 8),
        (600_000, 3, 1),
    ] {
        let mut world = World::new(count, Fault::None, 1);
        world.is_calm = true;
        for _ in 0..backlogs {
            world.join(Work::Backlog);
        }
        for _ in 0..others {
            world.join(Work::Nothing);
        }
        world.run(30 * SECOND);
        let before = world.now;
        world.run(2 * MINUTE);
        let used = world.since(before);
        let all = usize::try_from(2 * count).unwrap();
        assert!(used * 100 >= all * 90 && used <= all, "{count} {backlogs}: {used} of {all}");
    }
}
