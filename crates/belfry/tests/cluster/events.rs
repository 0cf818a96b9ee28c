//! Delivery events that an application gets by webhook, from engines that are killed at any moment.

use std::collections::BTreeSet;

use bench::WorkloadGuarantee::AtLeastOnce;
use serde_json::Value;

use crate::receiver::{Answer, Receiver};
use crate::support::{Cluster, Process, checked};

const TOKENS: u64 = 3_000;
/// Tokens of each broadcast; some thousand events are several requests.
const SHARE: u64 = 1_000;

/// A feed of the outcomes of `ios` that are named, to `receiver`.
fn feed(receiver: &Receiver, outcomes: &str) -> String {
    let to = receiver.url();
    format!(
        r#"[{{name = "outcomes", channel = "hooks", to = "{to}", channels = ["ios"], outcomes = [{outcomes}], from = "start"}}]"#
    )
}

/// The lines that `belfry events --json` prints.
fn events(cluster: &Cluster, process: &Process, arguments: &[&str]) -> Vec<Value> {
    let mut command = cluster.command(process, "events");
    let printed = checked(&command.args(arguments).arg("--json").output().unwrap());
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until the application was told of everything that the store has, once and in order, and gives that.
fn told_of_all(
    cluster: &Cluster,
    process: &Process,
    receiver: &Receiver,
    count: u64,
) -> Vec<Value> {
    receiver.until("it was told of everything", |requests| requests.told().len() as u64 >= count);
    let told = receiver.requests().told();
    assert_eq!(told, events(cluster, process, &["--channel", "ios"]));
    let ids: BTreeSet<&str> = told.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!((told.len() as u64, ids.len() as u64), (count, count), "each of them once");
    told
}

/// One round: engines are killed while requests are on the wire, answered or not, and the application is away in between.
fn round(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let receiver = Receiver::start();
    let cluster = Cluster::on_disk(TOKENS, &[]).with("BELFRY__FEEDS", feed(&receiver, ""));
    let mut engine = cluster.start("serve", "0");
    for number in 0..TOKENS / SHARE {
        cluster.broadcast(&engine, number * SHARE..(number + 1) * SHARE, AtLeastOnce);
        let answer = *random.choice(&[Answer::Status(200), Answer::Nothing, Answer::Hold]).unwrap();
        receiver.answer(answer);
        let before = receiver.requests().count(answer);
        if random.bool() {
            receiver.until("a request came", |requests| requests.count(answer) > before);
        }
        engine.kill();
        if random.bool() {
            receiver.answer(Answer::Status(200));
        }
        engine = cluster.start("serve", &(number + 1).to_string());
    }
    receiver.answer(Answer::Status(200));
    told_of_all(&cluster, &engine, &receiver, TOKENS);
    engine.stop();
}

/// `BELFRY_EVENT_ROUNDS=50` for more of them.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the knob of a test, which is no part of a configuration"
)]
fn a_kill_at_any_moment_loses_no_event_and_repeats_only_what_was_not_acknowledged() {
    let rounds = std::env::var("BELFRY_EVENT_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap());
    for seed in 1..=rounds {
        println!("seed {seed}");
        round(seed);
    }
}

#[test]
fn engines_that_share_a_store_tell_of_every_event_once_while_one_is_killed() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let receiver = Receiver::start();
    let cluster =
        Cluster::new(database.url(), TOKENS, &[]).with("BELFRY__FEEDS", feed(&receiver, ""));
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    receiver.answer(Answer::Hold);
    cluster.broadcast(&one, 0..TOKENS / 2, AtLeastOnce);
    receiver.until("a request is on the wire", |requests| requests.count(Answer::Hold) > 0);
    one.kill();
    receiver.answer(Answer::Status(200));
    let three = cluster.start("serve", "three");
    cluster.broadcast(&three, TOKENS / 2..TOKENS, AtLeastOnce);
    told_of_all(&cluster, &two, &receiver, TOKENS);
    two.stop();
    three.stop();
}

#[test]
fn a_feed_tells_of_the_outcomes_that_it_is_asked_for() {
    let receiver = Receiver::start();
    let cluster = Cluster::on_disk(TOKENS, &["--dead-tokens", "0.5"])
        .with("BELFRY__FEEDS", feed(&receiver, r#""refused""#));
    let engine = cluster.start("serve", "one");
    cluster.broadcast(&engine, 0..TOKENS, AtLeastOnce);
    cluster.drained_but_for_the_feed(&engine, TOKENS);
    let refused = events(&cluster, &engine, &["--channel", "ios", "--state", "refused"]);
    assert!((1_200..1_800).contains(&refused.len()), "{}", refused.len());
    receiver.until("it was told", |requests| requests.told().len() >= refused.len());
    assert_eq!(receiver.requests().told(), refused);
    assert_eq!(receiver.requests().taken().next().unwrap()["feed"], "outcomes");
    // Of what was sent to the application itself there is no event.
    assert!(events(&cluster, &engine, &["--channel", "hooks", "--attempts"]).is_empty());
    let shown = cluster.status(&engine)["feeds"][0].clone();
    assert_eq!((&shown["name"], &shown["lag_seconds"]), (&"outcomes".into(), &0.0.into()));
    engine.stop();
}
