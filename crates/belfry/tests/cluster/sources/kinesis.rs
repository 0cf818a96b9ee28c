//! Kinesis: shards, whose positions are kept in the store.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, Shard};
use bench::workload::token;
use serde_json::Value;
use stream::kinesis::KinesisSettings;
use tokio::runtime::Runtime;

use super::{messages, notification, runtime};
use crate::support::{Cluster, Process, eventually};

/// Messages that are put between two changes of the shards.
const PART: u64 = 1_500;
/// Messages that are put at a time until all engines read.
const FEW: u64 = 40;
/// Keys of what is put: with several shards, each has some.
const KEYS: u64 = 23;
/// Messages of a test, at most.
const NUMBERS_MAX: u64 = 20_000;

/// A stream of a test's own.
struct TestStream {
    name: String,
    url: String,
    client: Client,
    runtime: Runtime,
    /// Good messages that were put by [`Self::put_more`].
    put: Cell<u64>,
}

impl TestStream {
    fn create(shards: i32) -> Self {
        let (endpoint, name) = (testbed::aws::shared_moto_url().unwrap(), testbed::unique_prefix());
        let url = format!("kinesis://key:secret@{name}?region=us-east-1&endpoint={endpoint}");
        let (settings, runtime) = (KinesisSettings::from_url(&url).unwrap(), runtime());
        let client = runtime.block_on(async {
            let client = Client::new(&stream::aws::sdk_config(&settings.aws).await.unwrap());
            client.create_stream().stream_name(&name).shard_count(shards).send().await.unwrap();
            client
        });
        Self { name, url, client, runtime, put: Cell::new(0) }
    }

    /// The setting of an engine that reads it.
    fn source(&self) -> String {
        format!("[{{ name = \"orders\", url = \"{}\", drop_bad_messages = true }}]", self.url)
    }

    /// Puts a body for each of `numbers`, by a key of `keys`.
    fn put(&self, numbers: Range<u64>, keys: u64, body: impl Fn(u64) -> Vec<u8>) {
        let entry = |number: u64| {
            let entry = PutRecordsRequestEntry::builder().partition_key(key(number, keys));
            entry.data(Blob::new(body(number))).build().unwrap()
        };
        let entries: Vec<_> = numbers.map(entry).collect();
        for entries in entries.chunks(450) {
            let call = self.client.put_records().stream_name(&self.name);
            let call = call.set_records(Some(entries.to_vec()));
            let answer = self.runtime.block_on(call.send()).unwrap();
            assert_eq!(answer.failed_record_count, Some(0));
        }
    }

    /// Puts notifications with the next numbers, by a key of [`KEYS`].
    fn put_more(&self, count: u64) {
        let next = self.put.get();
        self.put(next..next + count, KEYS, |number| notification(number).to_string().into());
        self.put.set(next + count);
    }

    /// Puts a few at a time until both engines read: the first has all shards until the second is known.
    fn put_until_both_read(&self, engines: [&Process; 2]) {
        eventually("both of them read", || {
            if total(&engines, "accepted") == self.put.get() {
                self.put_more(FEW);
            }
            engines.into_iter().all(|engine| messages(engine, "accepted") > 0)
        });
    }

    /// The shards that are open, in the order of their hash keys.
    fn open_shards(&self) -> Vec<Shard> {
        let call = self.client.list_shards().stream_name(&self.name);
        let mut shards = self.runtime.block_on(call.send()).unwrap().shards.unwrap();
        let is_open = |shard: &Shard| {
            shard.sequence_number_range.as_ref().unwrap().ending_sequence_number.is_none()
        };
        shards.retain(is_open);
        shards.sort_by_key(|shard| hash_keys(shard).start);
        shards
    }

    /// Divides a shard in the middle.
    fn split(&self, shard: &Shard) {
        let Range { start, end } = hash_keys(shard);
        let middle = (start + (end - start) / 2).to_string();
        let call = self.client.split_shard().stream_name(&self.name);
        let call = call.shard_to_split(&shard.shard_id).new_starting_hash_key(middle);
        self.runtime.block_on(call.send()).unwrap();
    }

    /// Makes one of two neighbours.
    fn merge(&self, shard: &Shard, next: &Shard) {
        let call = self.client.merge_shards().stream_name(&self.name);
        let call = call.shard_to_merge(&shard.shard_id).adjacent_shard_to_merge(&next.shard_id);
        self.runtime.block_on(call.send()).unwrap();
    }

    /// Splits and merges the shards of a stream of two, each time before `engines` have read what was put before.
    fn reshard_while_read(&self, engines: &[&Process]) {
        let reads = || {
            let before = self.put.get() - PART;
            eventually("they read", || total(engines, "accepted") > before + PART / 10);
        };
        self.put_more(PART);
        reads();
        let [low, high] = self.open_shards().try_into().unwrap();
        self.split(&low);
        self.put_more(PART);
        self.split(&high);
        reads();
        self.put_more(PART);
        let [_, second, third, _] = self.open_shards().try_into().unwrap();
        self.merge(&second, &third);
        self.put_more(PART);
    }
}

/// The hash keys of a shard, the last one in `end`.
fn hash_keys(shard: &Shard) -> Range<u128> {
    let range = shard.hash_key_range.as_ref().unwrap();
    range.starting_hash_key.parse().unwrap()..range.ending_hash_key.parse().unwrap()
}

fn key(number: u64, keys: u64) -> String {
    format!("key {}", number % keys)
}

/// The numbers of all notifications in the order of the list, and when each was accepted.
fn accepted(engine: &Process) -> Vec<(u64, String)> {
    let numbers: BTreeMap<String, u64> =
        (0..NUMBERS_MAX).map(|number| (token(number), number)).collect();
    let (mut accepted, mut after) = (Vec::new(), String::new());
    loop {
        let page = engine.fetch(&format!("/v1/notifications?limit=1000{after}")).unwrap();
        let page: Value = serde_json::from_str(&page).unwrap();
        let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
        let items = page["items"].as_array().unwrap();
        accepted.extend(
            items.iter().map(|item| (numbers[&text(item, "to")], text(item, "accepted_at"))),
        );
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return accepted,
        }
    }
}

#[test]
fn an_engine_reads_a_stream_of_kinesis_on_from_where_the_one_before_it_ended() {
    const PART: u64 = 900;
    let stream = TestStream::create(3);
    let body = |number: u64| match number % PART {
        7 => b"{".to_vec(),
        _ => notification(number).to_string().into(),
    };
    let cluster = Cluster::on_disk(2 * PART, &[]).with("BELFRY__SOURCES", stream.source());
    for part in 0..2 {
        stream.put(part * PART..(part + 1) * PART, u64::MAX, body);
        let engine = cluster.start("serve", "engine");
        eventually("all is acknowledged", || messages(&engine, "acknowledged") == PART);
        let fates = ["read", "accepted", "repeated", "dead_lettered"];
        assert_eq!(fates.map(|fate| messages(&engine, fate)), [PART, PART - 1, 0, 1]);
        cluster.drained(&engine, (part + 1) * (PART - 1));
        engine.stop();
    }
}

#[test]
fn an_engine_takes_over_the_shards_of_one_that_was_killed() {
    const MANY: u64 = 4_000;
    let stream = TestStream::create(4);
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster =
        Cluster::new(database.url(), NUMBERS_MAX, &[]).with("BELFRY__SOURCES", stream.source());
    let [one, two] = ["one", "two"].map(|name| cluster.start("serve", name));
    stream.put_until_both_read([&one, &two]);
    let until = messages(&one, "accepted") + fastrand::Rng::with_seed(4711).u64(1..MANY / 4);
    stream.put_more(MANY);
    eventually("the first reads", || messages(&one, "accepted") >= until);
    // Either engine may have the shard that is split: its children are found by the one that lives.
    stream.split(&stream.open_shards()[0]);
    stream.put_more(FEW);
    one.kill();
    cluster.drained(&two, stream.put.get());
    stream.put_more(FEW);
    cluster.drained(&two, stream.put.get());
    assert!(cluster.audit(&two).balanced);
    two.stop();
}

#[test]
fn shards_that_are_split_and_merged_lose_nothing_and_keep_the_order_of_keys() {
    let stream = TestStream::create(2);
    let cluster = Cluster::on_disk(NUMBERS_MAX, &[]).with("BELFRY__SOURCES", stream.source());
    let engine = cluster.start("serve", "engine");
    stream.reshard_while_read(&[&engine]);
    let all = stream.put.get();
    cluster.drained(&engine, all);
    eventually("all is acknowledged", || messages(&engine, "acknowledged") == all);
    assert_eq!(messages(&engine, "repeated"), 0);
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for (number, _at) in accepted(&engine) {
        let before = last.insert(number % KEYS, number);
        assert!(before < Some(number), "{number} was accepted behind {before:?}");
    }
    assert_eq!(last.len() as u64, KEYS);
    engine.stop();
}

#[test]
fn two_engines_keep_the_order_of_keys_while_shards_are_split_and_merged() {
    let stream = TestStream::create(2);
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster =
        Cluster::new(database.url(), NUMBERS_MAX, &[]).with("BELFRY__SOURCES", stream.source());
    let engines = ["one", "two"].map(|name| cluster.start("serve", name));
    let [one, two] = &engines;
    stream.put_until_both_read([one, two]);
    stream.reshard_while_read(&[one, two]);
    cluster.drained(one, stream.put.get());
    // Each engine numbers its batches from a stretch of its own: what came first is seen from the times alone.
    let accepted: BTreeMap<u64, String> = accepted(one).into_iter().collect();
    assert_eq!(accepted.len() as u64, stream.put.get());
    for (number, at) in &accepted {
        let next = accepted.get(&(number + KEYS));
        assert!(next.is_none_or(|next| at <= next), "{number} at {at}, and then {next:?}");
    }
    for engine in engines {
        engine.stop();
    }
}

/// The messages of the source that had this fate in any of these processes.
fn total(engines: &[&Process], fate: &str) -> u64 {
    engines.iter().map(|engine| messages(engine, fate)).sum()
}
