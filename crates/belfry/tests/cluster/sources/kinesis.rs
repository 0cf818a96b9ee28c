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

/// A stream of a test's own.
struct TestStream {
    name: String,
    url: String,
    client: Client,
    runtime: Runtime,
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
        Self { name, url, client, runtime }
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

    fn put_good(&self, numbers: Range<u64>, keys: u64) {
        self.put(numbers, keys, |number| notification(number).to_string().into());
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
}

/// The hash keys of a shard, the last one in `end`.
fn hash_keys(shard: &Shard) -> Range<u128> {
    let range = shard.hash_key_range.as_ref().unwrap();
    range.starting_hash_key.parse().unwrap()..range.ending_hash_key.parse().unwrap()
}

fn key(number: u64, keys: u64) -> String {
    format!("key {}", number % keys)
}

/// The recipients of all notifications, in the order in which the engine accepted them.
fn accepted(engine: &Process) -> Vec<String> {
    let (mut recipients, mut after) = (Vec::new(), String::new());
    loop {
        let page = engine.fetch(&format!("/v1/notifications?limit=1000{after}")).unwrap();
        let page: Value = serde_json::from_str(&page).unwrap();
        let items = page["items"].as_array().unwrap();
        recipients.extend(items.iter().map(|item| item["to"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return recipients,
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
    /// Messages that are put until both engines read, at a time.
    const FEW: u64 = 40;
    const MANY: u64 = 4_000;
    let stream = TestStream::create(4);
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster =
        Cluster::new(database.url(), 20_000, &[]).with("BELFRY__SOURCES", stream.source());
    let [one, two] = ["one", "two"].map(|name| cluster.start("serve", name));
    let put = Cell::new(0);
    let put_more = |count| {
        stream.put_good(put.get()..put.get() + count, u64::MAX);
        put.set(put.get() + count);
    };
    let accepted = |engines: &[&Process]| -> u64 {
        engines.iter().map(|engine| messages(engine, "accepted")).sum()
    };
    // The first has all shards until the second is known.
    eventually("both of them read", || {
        if accepted(&[&one, &two]) == put.get() {
            put_more(FEW);
        }
        [&one, &two].into_iter().all(|engine| accepted(&[engine]) > 0)
    });
    let until = accepted(&[&one]) + fastrand::Rng::with_seed(4711).u64(1..MANY / 4);
    put_more(MANY);
    eventually("the first reads", || accepted(&[&one]) >= until);
    // Either engine may have the shard that is split: its children are found by the one that lives.
    stream.split(&stream.open_shards()[0]);
    put_more(FEW);
    one.kill();
    cluster.drained(&two, put.get());
    put_more(FEW);
    cluster.drained(&two, put.get());
    assert!(cluster.audit(&two).balanced);
    two.stop();
}

#[test]
fn shards_that_are_split_and_merged_lose_nothing_and_keep_the_order_of_keys() {
    const PART: u64 = 1_500;
    const PARTS: u64 = 4;
    const KEYS: u64 = 23;
    let stream = TestStream::create(2);
    let cluster = Cluster::on_disk(PARTS * PART, &[]).with("BELFRY__SOURCES", stream.source());
    let engine = cluster.start("serve", "engine");
    let put = |part: u64| stream.put_good(part * PART..(part + 1) * PART, KEYS);
    // Each part lies before an engine that has read some of the part before.
    let reads = |part: u64| {
        eventually("it reads", || messages(&engine, "accepted") > part * PART + PART / 10);
    };
    put(0);
    reads(0);
    let [low, high] = stream.open_shards().try_into().unwrap();
    stream.split(&low);
    put(1);
    stream.split(&high);
    reads(1);
    put(2);
    let [_, second, third, _] = stream.open_shards().try_into().unwrap();
    stream.merge(&second, &third);
    put(3);
    cluster.drained(&engine, PARTS * PART);
    eventually("all is acknowledged", || messages(&engine, "acknowledged") == PARTS * PART);
    assert_eq!(messages(&engine, "repeated"), 0);
    let numbers: BTreeMap<String, u64> =
        (0..PARTS * PART).map(|number| (token(number), number)).collect();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for recipient in accepted(&engine) {
        let number = numbers[&recipient];
        let before = last.insert(number % KEYS, number);
        assert!(before < Some(number), "{number} was accepted behind {before:?}");
    }
    assert_eq!(last.len() as u64, KEYS);
    engine.stop();
}
