//! A destination and its senders, event by event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::time::Duration;

use flow::{Limit, Sample, Signal, Timing};

/// A destination, and what happens to it. Instants are seconds from the beginning.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Senders, and how long after each other they begin.
    pub(crate) lanes: usize,
    pub(crate) apart: f64,
    /// Duration of the run and beginning of the measurement, seconds.
    pub(crate) lasts: f64,
    pub(crate) counts_from: f64,
    /// Duration of a request alone, seconds, and the factor by which it changes over time.
    pub(crate) takes: f64,
    pub(crate) slower: fn(f64) -> f64,
    /// Relative slowdown of a request when all of the destination's places are taken; half of it when half of them are.
    pub(crate) crowded: f64,
    /// Relative variation of a duration in both directions, and the share of requests that take twenty times as long.
    pub(crate) noise: f64,
    pub(crate) tail: f64,
    /// Requests that are worked on at a time; others wait, or are pushed back.
    pub(crate) knee: fn(f64) -> usize,
    pub(crate) pushes_back: bool,
    /// A share of all requests is pushed back, whatever the load.
    pub(crate) storm: fn(f64) -> f64,
    /// Begin and end of an outage, and the duration of an attempt in it, seconds.
    pub(crate) outage: Option<(f64, f64, f64)>,
    /// Requests that each sender has per second; as many as it can send when there is no number.
    pub(crate) offered: Option<f64>,
}

/// Measures of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// Answers as a share of what the destination could have given.
    pub(crate) utilisation: f64,
    /// The 99th percentile of the latency as a multiple of the unloaded destination's.
    pub(crate) slowdown: f64,
    /// The share of requests that were pushed back.
    pub(crate) over_limit: f64,
    /// Equality of the senders (Jain's index).
    pub(crate) fairness: f64,
    /// Seconds from the end of an outage until nine tenths of the former rate.
    pub(crate) recovery: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A sender begins, or has something to send again.
    Wake(usize),
    /// A request leaves its place at the destination.
    Served(usize, u64),
    /// The sender hears of its end.
    Ended(usize, u64, End),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Answered,
    PushedBack,
    Dropped,
}

struct Lane {
    limit: Box<dyn Limit>,
    has_begun: bool,
    in_flight: usize,
    answers: u64,
    /// Requests that are left to send, and the instant of that count, if they are limited.
    offered: (f64, u64),
    is_waking: bool,
}

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    random: fastrand::Rng,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    planned: u64,
    now: u64,
    lanes: Vec<Lane>,
    busy: usize,
    waiting: VecDeque<(usize, u64)>,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    capacity: f64,
    counted_until: u64,
    latencies: Vec<f64>,
    ended: u64,
    pushed_back: u64,
    answers_after_outage: VecDeque<u64>,
    recovery: Option<f64>,
}

/// Microseconds.
const SECOND: f64 = 1e6;
/// Between two looks at how much the destination could do.
const STEP: u64 = 10_000;
/// The wall time at the beginning.
const START: Duration = Duration::from_hours(500_000);

/// The noise of the page.
pub(crate) const SEED: u64 = 42;

/// Plays `scenario` with limits that `make` gives, and the noise that `seed` gives.
pub(crate) fn play(scenario: &Scenario, seed: u64, make: &dyn Fn() -> Box<dyn Limit>) -> Outcome {
    let lane = |_| Lane {
        limit: make(),
        has_begun: false,
        in_flight: 0,
        answers: 0,
        offered: (0.0, 0),
        is_waking: false,
    };
    let mut world = World {
        scenario,
        random: fastrand::Rng::with_seed(seed),
        events: BinaryHeap::new(),
        planned: 0,
        now: 0,
        lanes: (0..scenario.lanes).map(lane).collect(),
        busy: 0,
        waiting: VecDeque::new(),
        tally: Tally::default(),
    };
    for lane in 0..scenario.lanes {
        world.plan(scenario.apart * lane as f64, Event::Wake(lane));
    }
    world.run();
    world.outcome()
}

impl World<'_> {
    fn seconds(&self) -> f64 {
        self.now as f64 / SECOND
    }

    fn plan(&mut self, after: f64, event: Event) {
        self.planned += 1;
        let at = self.now + (after * SECOND) as u64;
        self.events.push(Reverse((at, self.planned, event)));
    }

    fn run(&mut self) {
        let end = (self.scenario.lasts * SECOND) as u64;
        while let Some(Reverse((at, _, event))) = self.events.pop()
            && at <= end
        {
            self.now = at;
            self.count_capacity();
            match event {
                Event::Wake(lane) => {
                    self.lanes[lane].has_begun = true;
                    self.lanes[lane].is_waking = false;
                    self.send(lane);
                }
                Event::Served(lane, begun) => self.served(lane, begun),
                Event::Ended(lane, begun, end) => self.ended(lane, begun, end),
            }
        }
    }

    /// Random duration of a request once it has a place, seconds.
    fn draw(&mut self) -> f64 {
        let scenario = self.scenario;
        let noise = 1.0 + scenario.noise * (2.0 * self.random.f64() - 1.0);
        let tail = if self.random.f64() < scenario.tail { 20.0 } else { 1.0 };
        let knee = (scenario.knee)(self.seconds()) as f64;
        let crowded = 1.0 + scenario.crowded * (self.busy as f64 / knee).min(1.0);
        scenario.takes * (scenario.slower)(self.seconds()) * crowded * noise * tail
    }

    fn serve(&mut self, lane: usize, begun: u64) {
        self.busy += 1;
        let takes = self.draw();
        self.plan(takes, Event::Served(lane, begun));
    }

    fn served(&mut self, lane: usize, begun: u64) {
        self.busy -= 1;
        let is_refused = self.random.f64() < (self.scenario.storm)(self.seconds());
        let end = if is_refused { End::PushedBack } else { End::Answered };
        self.plan(0.0, Event::Ended(lane, begun, end));
        while self.busy < (self.scenario.knee)(self.seconds())
            && let Some((lane, begun)) = self.waiting.pop_front()
        {
            self.serve(lane, begun);
        }
    }

    fn ended(&mut self, number: usize, begun: u64, end: End) {
        let latency = (self.now - begun) as f64 / SECOND;
        let at = START + Duration::from_micros(self.now);
        let counts = self.now > (self.scenario.counts_from * SECOND) as u64;
        let lane = &mut self.lanes[number];
        let timing = (end == End::Answered)
            .then(|| Timing { waited: Duration::ZERO, on_wire: Duration::from_secs_f64(latency) });
        let signal = match end {
            End::Answered => Signal::Answered,
            End::PushedBack => Signal::PushedBack,
            End::Dropped => Signal::Dropped,
        };
        lane.limit.learn(Sample { timing, signal, in_flight: lane.in_flight, at });
        lane.in_flight -= 1;
        if counts {
            self.tally.ended += 1;
            self.tally.pushed_back += u64::from(end == End::PushedBack);
        }
        if counts && end == End::Answered {
            lane.answers += 1;
            let slower = (self.scenario.slower)(begun as f64 / SECOND);
            self.tally.latencies.push(latency / slower);
        }
        if end == End::Answered {
            self.look_for_recovery();
        }
        self.send(number);
    }

    /// Sends as much as the limit of a sender allows.
    fn send(&mut self, number: usize) {
        let scenario = self.scenario;
        let now = self.now;
        loop {
            let lane = &mut self.lanes[number];
            if !lane.has_begun || lane.in_flight >= lane.limit.current() {
                return;
            }
            if let Some(rate) = scenario.offered {
                lane.offered.0 += (now - lane.offered.1) as f64 / SECOND * rate;
                lane.offered.1 = now;
                if lane.offered.0 < 1.0 {
                    let after = (1.0 - lane.offered.0) / rate + 1.0 / SECOND;
                    if !std::mem::replace(&mut lane.is_waking, true) {
                        self.plan(after, Event::Wake(number));
                    }
                    return;
                }
                lane.offered.0 -= 1.0;
            }
            lane.in_flight += 1;
            let seconds = self.seconds();
            if let Some((from, to, takes)) = scenario.outage
                && (from..to).contains(&seconds)
            {
                self.plan(takes, Event::Ended(number, now, End::Dropped));
            } else if self.busy < (scenario.knee)(seconds) {
                self.serve(number, now);
            } else if scenario.pushes_back {
                self.plan(scenario.takes * 0.3, Event::Ended(number, now, End::PushedBack));
            } else {
                self.waiting.push_back((number, now));
            }
        }
    }

    /// Answers per second that the destination can give.
    fn rate(&self, now: f64) -> f64 {
        let scenario = self.scenario;
        let takes = scenario.takes
            * (scenario.slower)(now)
            * (1.0 + scenario.crowded)
            * (1.0 + scenario.tail * 19.0);
        let rate = (scenario.knee)(now) as f64 / takes;
        let offered = scenario.offered.map(|each| each * scenario.lanes as f64);
        offered.map_or(rate, |offered| rate.min(offered))
    }

    fn count_capacity(&mut self) {
        while self.now - self.tally.counted_until >= STEP {
            self.tally.counted_until += STEP;
            let at = self.tally.counted_until as f64 / SECOND;
            let is_out = self.scenario.outage.is_some_and(|(from, to, _)| (from..to).contains(&at));
            if at > self.scenario.counts_from && !is_out {
                self.tally.capacity += self.rate(at) * STEP as f64 / SECOND;
            }
        }
    }

    fn look_for_recovery(&mut self) {
        let Some((_, over, _)) = self.scenario.outage else { return };
        let now = self.seconds();
        if now < over || self.tally.recovery.is_some() {
            return;
        }
        let half_a_second = (SECOND / 2.0) as u64;
        let recent = &mut self.tally.answers_after_outage;
        recent.push_back(self.now);
        while recent.front().is_some_and(|at| self.now - at > half_a_second) {
            recent.pop_front();
        }
        let count = recent.len() as f64;
        if count * 2.0 >= 0.9 * self.rate(now) {
            self.tally.recovery = Some(now - over);
        }
    }

    fn outcome(mut self) -> Outcome {
        let answers: Vec<f64> = self.lanes.iter().map(|lane| lane.answers as f64).collect();
        let sum: f64 = answers.iter().sum();
        let squares: f64 = answers.iter().map(|count| count * count).sum();
        self.now = 0;
        // Without a queue, at the load that gives the full rate.
        self.busy = (self.scenario.knee)(0.0);
        let slower = (self.scenario.slower)(0.0);
        let mut unloaded: Vec<f64> = (0..20_000).map(|_| self.draw() / slower).collect();
        let unloaded = percentile(&mut unloaded);
        Outcome {
            utilisation: sum / self.tally.capacity,
            slowdown: percentile(&mut self.tally.latencies) / unloaded,
            over_limit: self.tally.pushed_back as f64 / self.tally.ended as f64,
            fairness: sum * sum / (answers.len() as f64 * squares),
            recovery: self.scenario.outage.map(|_| self.tally.recovery.unwrap_or(f64::INFINITY)),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { utilisation, slowdown, over_limit, fairness, recovery } = self;
        let over_limit = over_limit * 100.0;
        write!(
            formatter,
            "{utilisation:.2} | {slowdown:.1} | {over_limit:.1} % | {fairness:.2} | "
        )?;
        match recovery {
            Some(seconds) if seconds.is_finite() => write!(formatter, "{seconds:.1} s"),
            Some(_) => formatter.write_str("never"),
            None => Ok(()),
        }
    }
}

/// The 99th of a hundred.
fn percentile(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[(values.len() - 1) * 99 / 100]
}
