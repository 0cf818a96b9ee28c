//! Pauses of engines that are sending.

use bench::WorkloadGuarantee::{AtLeastOnce, AtMostOnce};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Cluster, Process, checked, eventually};

/// As many as a process may have under way at a time.
const UNDER_WAY: u64 = 100;

/// Processes with so few places that most of what they have claimed is in their queues.
fn with_few_places(cluster: Cluster) -> Cluster {
    cluster.with("BELFRY__CHANNELS__IOS__CONCURRENCY", UNDER_WAY.to_string())
}

/// Runs `belfry pause` or `belfry resume` and gives its answer.
fn run(cluster: &Cluster, process: &Process, name: &str, arguments: &[&str]) -> Value {
    let output = cluster.command(process, name).args(arguments).arg("--json").output().unwrap();
    serde_json::from_str(&checked(&output)).unwrap()
}

/// Deliveries that are claimed and not settled, by any process.
fn claimed(cluster: &Cluster, process: &Process) -> u64 {
    let status = cluster.status(process);
    let lanes = status["lanes"].as_array().unwrap();
    lanes.iter().map(|lane| lane["claimed"].as_u64().unwrap()).sum()
}

/// Stops the provider and waits until nothing more is delivered: attempts are under way, and stay so. How many are delivered.
fn hold_answers(cluster: &Cluster, process: &Process) -> u64 {
    cluster.signal_provider(Signal::STOP);
    let (mut delivered, mut looks) = (u64::MAX, 0);
    eventually("all answers are settled", || {
        let now = cluster.status(process)["totals"]["delivered"].as_u64().unwrap();
        looks = if now == delivered { looks + 1 } else { 0 };
        delivered = now;
        looks == 20
    });
    delivered
}

/// Waits until nothing is under way any more; how many requests the provider has had then.
fn rests(cluster: &Cluster, process: &Process) -> u64 {
    eventually("what was under way is settled", || claimed(cluster, process) == 0);
    let delivered = cluster.status(process)["totals"]["delivered"].as_u64().unwrap();
    cluster.requested(delivered);
    delivered
}

#[test]
fn a_broadcast_that_is_being_sent_is_paused_and_stays_so_over_a_crash() {
    let cluster = with_few_places(Cluster::on_disk(24_100, &["--latency", "20ms"]));
    let engine = cluster.start("serve", "engine");
    let least = cluster.broadcast(&engine, 0..12_000, AtLeastOnce);
    let most = cluster.broadcast(&engine, 12_000..24_000, AtMostOnce);
    eventually("it is sent", || cluster.requests() > 1_000);
    // The queue of the engine is full.
    let delivered = hold_answers(&cluster, &engine);
    for id in [&least, &most] {
        let paused = run(&cluster, &engine, "pause", &[id]);
        assert_eq!((&paused["everywhere"], &paused["tenant"]), (&json!(true), &json!("default")));
        assert_eq!(run(&cluster, &engine, "pause", &[id])["since"], paused["since"]);
    }
    cluster.signal_provider(Signal::CONT);
    let sent = rests(&cluster, &engine);
    assert!(sent <= delivered + UNDER_WAY && sent < 20_000, "{sent}, {delivered} before");
    engine.kill();
    let engine = cluster.start("serve", "engine-again");
    let status = cluster.status(&engine);
    assert_eq!(status["pauses"].as_array().unwrap().len(), 2, "{status}");
    // Of the same lane, and behind all of it.
    cluster.broadcast(&engine, 24_000..24_100, AtLeastOnce);
    eventually("another one is delivered", || {
        cluster.status(&engine)["totals"]["delivered"] == sent + 100
    });
    assert_eq!(rests(&cluster, &engine), sent + 100);
    for id in [&least, &most] {
        assert_eq!(run(&cluster, &engine, "resume", &[id]), json!({"resumed": true}));
    }
    cluster.drained(&engine, 24_100);
    let (audit, tally) = (cluster.audit(&engine), cluster.books().tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.delivered, audit.in_doubt), (24_100, 0), "{audit:?}");
    assert_eq!((tally.accepted, tally.duplicates, tally.missing), (24_100, 0, 0));
    engine.stop();
}

#[test]
fn a_pause_through_one_engine_is_in_force_in_the_other_and_outlives_either() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = with_few_places(Cluster::new(database.url(), 24_000, &["--latency", "20ms"]));
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    let id = cluster.broadcast(&one, 0..12_000, AtLeastOnce);
    cluster.broadcast(&two, 12_000..24_000, AtMostOnce);
    eventually("it is sent", || cluster.requests() > 1_000);
    let delivered = hold_answers(&cluster, &one);
    for arguments in [&[id.as_str()][..], &["--channel", "ios"]] {
        let paused = run(&cluster, &two, "pause", arguments);
        assert_eq!(paused["everywhere"], json!(true), "{paused}");
    }
    cluster.signal_provider(Signal::CONT);
    let sent = rests(&cluster, &one);
    assert!(sent <= delivered + 2 * UNDER_WAY && sent < 20_000, "{sent}, {delivered} before");
    one.kill();
    eventually("the other has taken over", || {
        cluster.status(&two)["cluster"]["workers"].as_array().unwrap().len() == 1
    });
    assert_eq!(run(&cluster, &two, "resume", &["--channel", "ios"]), json!({"resumed": true}));
    eventually("the other half is delivered", || {
        let waiting = &cluster.status(&two)["totals"]["pending"];
        waiting.as_u64().unwrap() <= 12_000 && claimed(&cluster, &two) == 0
    });
    let broadcast = two.fetch(&format!("/v1/broadcasts/{id}")).unwrap();
    let broadcast: Value = serde_json::from_str(&broadcast).unwrap();
    let pending = cluster.status(&two)["totals"]["pending"].clone();
    assert!(broadcast["paused_since"].is_string() && broadcast["pending"] == pending, "{pending}");
    assert_eq!(run(&cluster, &two, "resume", &[&id]), json!({"resumed": true}));
    cluster.drained(&two, 24_000);
    let (audit, tally) = (cluster.audit(&two), cluster.books().tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.delivered, audit.in_doubt), (24_000, 0), "{audit:?}");
    assert_eq!((tally.accepted, tally.duplicates, tally.missing), (24_000, 0, 0));
    two.stop();
}

#[test]
fn a_channel_is_paused_cancelled_and_sent_again_and_everybody_gets_it_once() {
    let cluster = with_few_places(Cluster::on_disk(12_000, &["--latency", "20ms"]));
    let engine = cluster.start("serve", "engine");
    cluster.broadcast(&engine, 0..6_000, AtLeastOnce);
    cluster.broadcast(&engine, 6_000..12_000, AtMostOnce);
    eventually("it is sent", || cluster.requests() > 1_000);
    let channel = ["--channel", "ios"];
    run(&cluster, &engine, "pause", &channel);
    let sent = rests(&cluster, &engine);
    assert!(sent < 11_000, "{sent} were sent before the pause");
    let cancel = |flags: &[&str]| {
        let answer = run(&cluster, &engine, "cancel", flags);
        assert_eq!(
            (&answer["cancelled"], &answer["under_way"]),
            (&json!(12_000 - sent), &json!(0))
        );
        answer["at"].as_str().unwrap().to_owned()
    };
    cancel(&["--channel", "ios", "--dry-run"]);
    assert_eq!(cluster.status(&engine)["totals"]["cancelled"], json!(0));
    let since = cancel(&channel);
    assert_eq!(run(&cluster, &engine, "resume", &channel), json!({"resumed": true}));
    cluster.drained(&engine, 12_000);
    assert_eq!(rests(&cluster, &engine), sent, "nothing of it was left to be sent");
    engine.kill();
    let engine = cluster.start("serve", "engine-again");
    let flags = ["--all", "--state", "cancelled", "--since", &since];
    let requeued = run(&cluster, &engine, "requeue", &flags);
    let missed = 12_000 - sent;
    let expect = json!({"matched": missed, "requeued": missed, "expired": 0, "not_yet": 0, "content_removed": 0, "replaced": 0});
    assert_eq!(requeued, expect);
    cluster.drained(&engine, 12_000);
    let (audit, tally) = (cluster.audit(&engine), cluster.books().tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.delivered, audit.cancelled, audit.in_doubt), (12_000, 0, 0), "{audit:?}");
    assert_eq!((tally.accepted, tally.duplicates, tally.missing), (12_000, 0, 0));
    engine.stop();
}
