//! Engines whose clocks are wrong, are set, drift, and sleep.

use std::collections::BTreeMap;
use std::time::Duration;

use flow::{Clock, Steering};
use notification::{Account, Timestamp};

use super::{BrokerKind, Deployment, EngineWorld, TestArrival, eventually, settled};
use crate::serve::engine::Engine;

/// A step of a clock, ms.
const STEP: i64 = 60_000;
/// Due at once, under each guarantee.
const COUNT: usize = 200;
/// Scheduled.
const LATER: usize = 50;
/// How long after the rest those are due.
const DELAY: Duration = Duration::from_secs(4);

/// An engine, and what moves the clock of its machine.
struct Machine {
    engine: Engine,
    steering: &'static Steering,
}

impl EngineWorld {
    /// Starts `deployment`, each process on a machine of its own, whose clock is off by `off` milliseconds.
    async fn machines(&self, deployment: Deployment, off: i64) -> Vec<Machine> {
        let mut machines = Vec::new();
        for role in deployment.roles() {
            let (clock, steering) = Clock::system().steered();
            steering.step(off);
            let engine = self.start(*role, clock).await;
            machines.push(Machine { engine, steering });
        }
        machines
    }

    /// Waits until all `count` are delivered, checks that each arrived once, and gives when.
    async fn all_arrived_once(
        &self,
        intake: &Engine,
        count: usize,
    ) -> BTreeMap<String, TestArrival> {
        let accepted = count as u64;
        let account = settled(intake, accepted).await;
        assert_eq!(account, Account { accepted, delivered: accepted, ..Account::default() });
        let arrivals = self.arrivals();
        assert_eq!(arrivals.len(), count);
        for (id, arrival) in &arrivals {
            assert_eq!(arrival.times, 1, "{id}");
        }
        arrivals
    }

    /// Has many accepted on one machine that are due at once, moves its clock by `under_way` milliseconds while they are
    /// sent, and by `idle` when nothing but what is due at `due_at` is left. Each arrives once.
    async fn on_one_machine(&self, due_at: Timestamp, under_way: i64, idle: i64) {
        let machines = self.machines(Deployment::OneMachine, 0).await;
        let intake = &machines[0].engine;
        self.send(intake, COUNT, "at_least_once", None).await;
        self.send(intake, COUNT, "at_most_once", None).await;
        self.send(intake, LATER, "at_least_once", Some(due_at)).await;
        self.arrived(COUNT / 2).await;
        step_all(&machines, under_way);
        let store = intake.store();
        eventually("the first are settled", async || {
            // What was not claimed when the clock was set back is not due any more, as it shows.
            let is_idle =
                store.reader().lanes().await.unwrap().lanes.iter().all(|lane| lane.claimed == 0);
            is_idle
                && (under_way < 0 || store.reader().totals().await.unwrap().pending == LATER as u64)
        })
        .await;
        step_all(&machines, idle);
        self.all_arrived_once(intake, 2 * COUNT + LATER).await;
        drain(machines).await;
    }
}

fn now() -> Timestamp {
    pipeline::timestamp(Clock::system())
}

/// Sends some at once and some later, lets `disturb` move the clocks while they are under way, and checks that each
/// arrived once, none before it was due by the clock that goes right, and that the account balances.
async fn each_arrives_once(deployment: Deployment, off: i64, disturb: impl AsyncFn(&[Machine])) {
    let world = EngineWorld::of(deployment).await;
    let machines = world.machines(deployment, off).await;
    let intake = &machines[0].engine;
    let due_at = now().plus(DELAY);
    let mut ids = world.send(intake, COUNT, "at_least_once", None).await;
    ids.extend(world.send(intake, COUNT, "at_most_once", None).await);
    let later = world.send(intake, LATER, "at_least_once", Some(due_at)).await;
    world.arrived(COUNT / 2).await;
    disturb(&machines).await;
    let arrivals = world.all_arrived_once(intake, 2 * COUNT + LATER).await;
    for id in &later {
        let first_ms = arrivals[id].first_us / 1_000;
        assert!(first_ms >= due_at.millis().unsigned_abs(), "{id} arrived before {due_at}");
    }
    drain(machines).await;
}

/// Consumers first, as an operator would.
async fn drain(machines: Vec<Machine>) {
    for machine in machines.into_iter().rev() {
        let mut engine = machine.engine;
        engine.drain().await.unwrap();
    }
}

fn step_all(machines: &[Machine], millis: i64) {
    for machine in machines {
        machine.steering.step(millis);
    }
}

/// Every process was started a minute slow and is set right, and is then a minute fast; the machine with the consumer
/// sleeps for longer than it may be silent.
async fn in_a_cluster(deployment: Deployment) {
    each_arrives_once(deployment, -STEP, async |machines| {
        step_all(machines, STEP);
        for machine in machines {
            machine.steering.drift(500);
        }
        step_all(machines, STEP);
        machines[machines.len() - 1].steering.suspend(Duration::from_secs(20));
        step_all(machines, -3 * STEP);
    })
    .await;
    // The other way round.
    each_arrives_once(deployment, STEP, async |machines| step_all(machines, -2 * STEP)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_a_broker_goes_by_the_databases_clock() {
    in_a_cluster(Deployment::Shared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_behind_rabbitmq_goes_by_the_databases_clock() {
    in_a_cluster(Deployment::Behind(BrokerKind::RabbitMq)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_behind_nats_goes_by_the_databases_clock() {
    in_a_cluster(Deployment::Behind(BrokerKind::Nats)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_behind_kafka_goes_by_the_databases_clock() {
    in_a_cluster(Deployment::Behind(BrokerKind::Kafka)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_machine_a_clock_that_is_set_back_and_right_again_repeats_and_loses_nothing() {
    each_arrives_once(Deployment::OneMachine, 0, async |machines| {
        step_all(machines, -STEP);
        step_all(machines, STEP);
    })
    .await;
}

/// Nothing else happens then, and the timer until the due time was set before: the clock is looked at once a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_machine_what_the_clock_is_set_past_is_sent() {
    let world = EngineWorld::of(Deployment::OneMachine).await;
    world.on_one_machine(now().plus(Duration::from_mins(10)), STEP, 10 * STEP).await;
}

/// The timer was set while the clock was three minutes slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_machine_a_clock_that_was_set_back_and_is_set_right_delays_for_a_minute_at_most() {
    let world = EngineWorld::of(Deployment::OneMachine).await;
    world.on_one_machine(now().plus(DELAY), -3 * STEP, 3 * STEP).await;
}

/// A timer until the due time fires early each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_machine_whose_clock_goes_at_half_speed_nothing_is_sent_before_it_shows_the_time() {
    let world = EngineWorld::of(Deployment::OneMachine).await;
    let machines = world.machines(Deployment::OneMachine, 0).await;
    let (intake, steering) = (&machines[0].engine, machines[0].steering);
    let slow_since = now();
    steering.drift(-500_000);
    let due_at = now().plus(DELAY);
    world.send(intake, COUNT, "at_least_once", None).await;
    let later = world.send(intake, LATER, "at_most_once", Some(due_at)).await;
    let arrivals = world.all_arrived_once(intake, COUNT + LATER).await;
    for id in &later {
        let arrived = Timestamp::from_millis((arrivals[id].first_us / 1_000).cast_signed());
        // It has been slow for longer than that: it showed this at the latest.
        let shown = arrived.minus(arrived.since(slow_since) / 2);
        assert!(
            shown >= due_at,
            "{id} was sent when the clock showed {shown}, and is due {due_at}"
        );
    }
    drain(machines).await;
}
