//! The ending that the store notes of an engine that fails while a request is on the wire.

use flow::Clock;
use store::Sqlite;

use super::{Deployment, EngineWorld, PATIENCE, SILENT, eventually};
use crate::serve::Role;

/// Starts an engine, makes `task` panic once the provider has had `requests` requests in all, and ends as the process does.
async fn fail(world: &EngineWorld, task: &'static str, requests: usize) {
    let mut engine = world.start(Role::Both, Clock::system()).await;
    if requests == 1 {
        let to = format!("https://{}{SILENT}", world.provider.webhook);
        world
            .post(&engine, format!(r#"[{{"channel": "hooks", "to": "{to}", "content": {{}}}}]"#))
            .await;
    }
    eventually("the request arrives", async || {
        world.arrivals().values().map(|arrival| arrival.times).sum::<usize>() == requests
    })
    .await;
    engine.sabotage(task).await;
    let failed = tokio::time::timeout(PATIENCE, engine.failed()).await.unwrap();
    assert_eq!(failed.to_string(), format!("the task {task} panicked"));
    engine.abandon(failed.ending()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_machine_only_what_handles_deliveries_fails_by_one() {
    for (task, suspected) in [("settle", 1), ("api", 0)] {
        let world = EngineWorld::of(Deployment::OneMachine).await;
        for requests in 1..=3 {
            fail(&world, task, requests).await;
        }
        let data = world.directory.path().join("data");
        let now = pipeline::timestamp(Clock::system());
        let (_store, recovery) = Sqlite::open(&data, store::sqlite::Options::new(1), now).unwrap();
        assert_eq!((recovery.returned, recovery.suspected), (1, suspected), "{task}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_shared_store_only_what_handles_deliveries_fails_by_one() {
    for (task, ended) in [("settle", "by a fault"), ("api", "in order"), ("store-work", "in order")]
    {
        let world = EngineWorld::of(Deployment::Shared).await;
        fail(&world, task, 1).await;
        let database = world.database.as_ref().unwrap();
        let said = database.query("SELECT ended FROM belfry.worker").unwrap();
        assert_eq!(said.trim(), ended, "{task}");
    }
}
