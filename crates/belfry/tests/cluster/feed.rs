//! The changes of the suppression list that an application gets from engines that share it: by webhook, and by reading on from a
//! position.

use std::collections::BTreeSet;

use bench::WorkloadGuarantee::AtLeastOnce;
use serde_json::{Value, json};

use crate::receiver::{Answer, Receiver};
use crate::support::{Cluster, Process, checked, eventually};

const TOKENS: u64 = 6_000;

/// A cluster whose provider finds every other token gone, and whose engines tell `receiver` of it.
fn cluster(store: &str, receiver: &Receiver) -> Cluster {
    Cluster::new(store, TOKENS, &["--dead-tokens", "0.5"])
        .with("BELFRY__SUPPRESSIONS__FEED__CHANNEL", "hooks")
        .with("BELFRY__SUPPRESSIONS__FEED__TO", receiver.url())
}

/// The lines that `belfry suppressions ARGUMENTS --json` prints.
fn suppressions(cluster: &Cluster, process: &Process, arguments: &[&str]) -> Vec<Value> {
    let mut command = cluster.command(process, "suppressions");
    let printed = checked(&command.args(arguments).arg("--json").output().unwrap());
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until the application was told of everything that is an event now, and gives that.
fn told_of_all(cluster: &Cluster, process: &Process, receiver: &Receiver) -> Vec<Value> {
    let events = suppressions(cluster, process, &["feed"]);
    receiver.until("it was told of everything", |requests| requests.told().len() >= events.len());
    assert_eq!(receiver.requests().told(), events);
    events
}

/// Everybody to whom something changed.
fn recipients(events: &[Value]) -> BTreeSet<&str> {
    events.iter().map(|event| event["to"].as_str().unwrap()).collect()
}

/// The state of the feed as `process` shows it: the position, and for how long something waits.
fn standing(cluster: &Cluster, process: &Process) -> (Value, f64) {
    let feed = cluster.status(process)["suppression_feed"].clone();
    (feed["position"].clone(), feed["lag_seconds"].as_f64().unwrap())
}

#[test]
fn several_engines_tell_an_application_of_everything_once_and_in_order() {
    for names in [&["one", "two"][..], &["one", "two", "three"]] {
        let database = testbed::postgres::shared().unwrap().create().unwrap();
        let receiver = Receiver::start();
        let cluster = cluster(database.url(), &receiver);
        let engines: Vec<Process> = names.iter().map(|name| cluster.start("serve", name)).collect();
        cluster.broadcast(&engines[0], 0..TOKENS / 2, AtLeastOnce);
        cluster.broadcast(&engines[1], TOKENS / 2..TOKENS, AtLeastOnce);
        eventually("nothing is under way", || {
            cluster.status(&engines[0])["totals"]["pending"] == 0
        });
        let events = told_of_all(&cluster, &engines[1], &receiver);
        let listed = suppressions(&cluster, &engines[0], &["export"]);
        assert!((2_500..3_500).contains(&listed.len()), "{}", listed.len());
        assert_eq!((events.len(), recipients(&events).len()), (listed.len(), listed.len()));
        let untils: Vec<String> =
            receiver.requests().taken().map(|request| request["until"].to_string()).collect();
        let (taken, told) = (untils.len(), receiver.requests().told().len());
        assert!(taken * 10 <= told, "{taken} requests for {told} changes");
        let untils = BTreeSet::from_iter(untils);
        assert_eq!(untils.len(), taken, "nothing is told twice");

        let back = listed[0]["to"].as_str().unwrap();
        suppressions(&cluster, &engines[1], &["lift", "--channel", "ios", "--to", back]);
        let events = told_of_all(&cluster, &engines[0], &receiver);
        let last = events.last().unwrap();
        assert_eq!((&last["change"], &last["to"]), (&json!("lifted"), &json!(back)));
        let whole = (last["position"].clone(), 0.0);
        eventually("nothing waits", || standing(&cluster, &engines[1]) == whole);
        engines.into_iter().for_each(Process::stop);
    }
}

#[test]
fn the_feed_goes_on_when_the_engine_that_feeds_is_killed() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let receiver = Receiver::start();
    let cluster = cluster(database.url(), &receiver);
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    receiver.answer(Answer::Hold);
    cluster.broadcast(&one, 0..TOKENS / 2, AtLeastOnce);
    receiver.until("a request is on the wire", |requests| requests.count(Answer::Hold) > 0);
    // One of these two has it; the one that is new does not.
    let three = cluster.start("serve", "three");
    cluster.broadcast(&three, TOKENS / 2..TOKENS, AtLeastOnce);
    one.kill();
    two.kill();
    receiver.answer(Answer::Status(200));
    cluster.drained_but_for_the_feed(&three, TOKENS);
    let events = told_of_all(&cluster, &three, &receiver);
    let listed = suppressions(&cluster, &three, &["export"]);
    assert!((2_500..3_500).contains(&listed.len()), "{}", listed.len());
    assert_eq!((events.len(), recipients(&events).len()), (listed.len(), listed.len()));
    three.stop();
}

#[test]
fn the_feed_waits_for_an_application_that_does_not_take_it_and_skips_nothing() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let receiver = Receiver::start();
    let cluster = cluster(database.url(), &receiver);
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    receiver.answer(Answer::Status(500));
    cluster.broadcast(&one, 0..TOKENS, AtLeastOnce);
    receiver.until("it failed", |requests| requests.count(Answer::Status(500)) > 2);
    let (position, lag) = standing(&cluster, &two);
    assert!(position == json!("0-0") && lag > 0.0, "{position} {lag}");
    let metrics = one.fetch("/metrics").unwrap();
    let gauge =
        metrics.lines().find(|line| line.starts_with("belfry_suppression_feed_lag_seconds "));
    assert_ne!(gauge, Some("belfry_suppression_feed_lag_seconds 0.0"), "{metrics}");
    assert!(gauge.is_some(), "{metrics}");
    receiver.answer(Answer::Nothing);
    receiver.until("it is silent", |requests| requests.count(Answer::Nothing) > 0);
    receiver.answer(Answer::Status(410));
    let list = ["export", "--channel", "hooks"];
    eventually("it is gone", || suppressions(&cluster, &two, &list).len() == 1);
    receiver.answer(Answer::Status(200));
    suppressions(&cluster, &two, &["lift", "--channel", "hooks", "--to", &receiver.url()]);
    cluster.drained_but_for_the_feed(&one, TOKENS);
    let events = told_of_all(&cluster, &two, &receiver);
    let ends: Vec<&Value> = events.iter().filter(|event| event["channel"] == "hooks").collect();
    assert_eq!(
        ends.iter().map(|event| &event["change"]).collect::<Vec<_>>(),
        ["suppressed", "lifted"]
    );
    let says = one.said() + &two.said();
    assert!(says.contains("the feed stands still"), "{says}");
    assert!(!says.contains(&receiver.url()), "where it leads is a secret");
    one.stop();
    two.stop();
}

#[test]
fn who_reads_on_from_a_position_misses_nothing_while_engines_come_and_go() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), TOKENS, &["--dead-tokens", "0.5"]);
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    cluster.broadcast(&one, 0..TOKENS / 2, AtLeastOnce);
    let (mut read, mut position) = (Vec::new(), "0".to_owned());
    // In small pieces, and each from another engine.
    let mut go_on = |engines: &[&Process], pieces: usize| {
        for engine in engines.iter().cycle().take(pieces) {
            let path = format!("/v1/suppressions/events?position={position}&limit=50&wait=1");
            let lines = engine.fetch(&path).unwrap();
            let mut lines: Vec<Value> =
                lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            position = lines.pop().unwrap()["next"].as_str().unwrap().to_owned();
            read.extend(lines);
        }
        read.len()
    };
    assert!(go_on(&[&one, &two], 10) > 0);
    one.kill();
    cluster.broadcast(&two, TOKENS / 2..TOKENS, AtLeastOnce);
    go_on(&[&two], 10);
    let one = cluster.start("serve", "one-again");
    cluster.drained(&two, TOKENS);
    let listed = suppressions(&cluster, &one, &["export"]).len();
    eventually("everything is read", || go_on(&[&two, &one], 10) >= listed);
    let events = suppressions(&cluster, &one, &["feed"]);
    assert_eq!((read.len(), recipients(&read).len()), (listed, listed));
    assert_eq!(read, events, "the command reads the same");
    let rest = suppressions(&cluster, &two, &["feed", "--position", &position]);
    assert_eq!(rest, [] as [Value; 0]);
    one.stop();
    two.stop();
}
