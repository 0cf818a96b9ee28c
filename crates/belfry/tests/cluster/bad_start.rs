//! The messages of a process that cannot start, and how long it tries.

use crate::support::{Cluster, eventually};

/// Exit code and output of `belfry serve` on a store at `url`.
fn refusal(url: &str) -> String {
    let cluster = Cluster::new(url, 1, &[]);
    let mut engine = cluster.start_unready("serve", "engine", "127.0.0.1:0");
    assert_eq!(engine.ended(), 1, "{}", engine.said());
    let said = engine.said();
    assert!(!said.contains("canary"), "{said}");
    said.lines().last().unwrap_or_default().to_owned()
}

fn assert_says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}

#[test]
fn a_database_that_refuses_ends_the_start_at_once_with_what_to_do() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let role = testbed::unique_prefix();
    database.query(&format!("CREATE ROLE {role} LOGIN PASSWORD 'canary'")).unwrap();
    let (start, rest) = database.url().split_once("://").unwrap();
    let (_, place) = rest.rsplit_once('@').unwrap();
    let url = |user: &str| format!("{start}://{user}@{place}");

    assert_says(&refusal(&url(&format!("{role}:canary-but-wrong"))), &[&role, "password"]);
    let nowhere =
        url(&format!("{role}:canary")).replace(place.rsplit('/').next().unwrap(), "nowhere");
    assert_says(&refusal(&nowhere), &["there is no database nowhere", "CREATE DATABASE"]);
    assert_says(
        &refusal(&url(&format!("{role}:canary"))),
        &[&role, "CREATE SCHEMA belfry AUTHORIZATION"],
    );

    let cluster = Cluster::new(database.url(), 1, &[]);
    cluster.start("serve", "first").stop();
    assert_says(&refusal(&url(&format!("{role}:canary"))), &[&role, "GRANT"]);
    database.query("UPDATE belfry.refinery_schema_history SET version = version + 1000").unwrap();
    assert_says(&refusal(database.url()), &["schema", "newer belfry"]);
    database.query(&format!("DROP ROLE {role}")).unwrap();
}

#[test]
fn a_database_that_cannot_be_reached_yet_is_waited_for() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let link = testbed::Proxy::before(database.url()).unwrap();
    link.cut();
    let cluster = Cluster::new(link.url(), 1, &[]);
    let listen = free_address();
    let mut engine = cluster.start_unready("serve", "engine", &listen);
    eventually("it lives", || engine.get("/healthz") == Some(200));
    assert_eq!((engine.get("/readyz"), engine.get("/v1/status")), (Some(503), Some(503)));
    eventually("it says what it waits for", || engine.said().contains("nothing listens at"));
    link.pass();
    engine.await_ready();
    assert_eq!(engine.get("/readyz"), Some(200));
    engine.stop();
}

#[test]
fn a_process_that_waits_for_its_broker_can_be_stopped() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let broker = format!("amqp://me:canary@{}", free_address());
    let cluster = Cluster::new(database.url(), 1, &[]).with_queue(&broker);
    let listen = free_address();
    let mut producer = cluster.start_unready("produce", "producer", &listen);
    eventually("it says what it waits for", || producer.said().contains("RabbitMQ"));
    assert_eq!((producer.get("/healthz"), producer.get("/readyz")), (Some(200), Some(503)));
    assert!(!producer.said().contains("canary"), "{}", producer.said());
    producer.terminate();
    assert_eq!(producer.ended(), 0, "{}", producer.said());
}

/// An address without a listener.
fn free_address() -> String {
    format!("127.0.0.1:{}", testbed::free_port().unwrap())
}
