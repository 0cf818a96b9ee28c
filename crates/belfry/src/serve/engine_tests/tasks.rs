//! Tasks that end without being stopped.

use flow::Clock;

use super::{BrokerKind, Deployment, EngineWorld, PATIENCE};

/// Makes each task of each process of `deployment` panic, one in each run: the list is what the engine itself runs.
async fn every_panic_is_a_failure(deployment: Deployment, at_least: &[&str]) {
    let world = EngineWorld::of(deployment).await;
    let mut seen = Vec::new();
    for role in deployment.roles() {
        let engine = world.start(*role, Clock::system()).await;
        let tasks = engine.tasks().await;
        // It is over before the next one opens the same store.
        engine.abort().await;
        assert!(tasks.len() > 1, "{tasks:?}");
        for name in tasks {
            let mut engine = world.start(*role, Clock::system()).await;
            engine.sabotage(name).await;
            let failure = tokio::time::timeout(PATIENCE, engine.failed()).await;
            let failure = failure.unwrap();
            assert_eq!(failure.to_string(), format!("the task {name} panicked"), "{deployment:?}");
            engine.abort().await;
            seen.push(name);
        }
    }
    let missing: Vec<_> = at_least.iter().filter(|name| !seen.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are not among {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_any_task_ends_an_engine_on_one_machine() {
    every_panic_is_a_failure(
        Deployment::OneMachine,
        &["api", "search", "totals", "dispatch", "settle"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_any_task_ends_a_process_of_a_cluster() {
    let stages = ["api", "outbox", "totals", "share", "dispatch", "collect", "settle"];
    let below = ["store-intake", "store-work", "store-listener", "store-worker", "broker-session"];
    let all = [&stages[..], &below[..]].concat();
    every_panic_is_a_failure(Deployment::Behind(BrokerKind::Nats), &all).await;
}
