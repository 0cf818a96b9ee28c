//! The partitions of new chunks, by the rule alone and of two workers.

use std::collections::HashSet;

use flow::Clock;
use notification::{BatchId, Disposition, Timestamp, limits};
use testbed::Database;

use super::{DestinationHash, HOT_FROM, RecentArrivals};
use crate::conformance::{Shape, at, claim_all, claim_request, settle_all};
use crate::postgres::{Options, Postgres};
use crate::rows::members::Members;
use crate::rows::model::NewChunk;
use crate::{Claim, ClaimRequest, Claims};

/// The partitions of chunks of the batches `first`, `first + 1`, ..., with so many members, made together.
fn place(
    arrivals: &mut RecentArrivals,
    destination: &str,
    first: u64,
    counts: &[usize],
    now: Timestamp,
) -> Vec<i16> {
    let destination = DestinationHash::of("channel", destination);
    let chunk = |(batch, count): (u64, &usize)| {
        (destination, NewChunk::first(BatchId(batch), 1, now, Members::all(*count)))
    };
    let new = (first..).zip(counts).map(chunk).collect();
    arrivals.place(new, now).map(|chunk| chunk.partition).collect()
}

/// The least and the most of these counts of the partitions, in percent of their mean.
fn shares(partitions: impl Iterator<Item = i16>) -> (usize, usize) {
    let mut counts = [0; limits::PARTITIONS as usize];
    partitions.for_each(|partition| counts[usize::try_from(partition).unwrap()] += 1);
    let all: usize = counts.iter().sum();
    let percent = |count: &usize| count * 100 * counts.len() / all;
    (counts.iter().map(percent).min().unwrap(), counts.iter().map(percent).max().unwrap())
}

#[test]
fn chunks_of_a_cold_destination_lie_in_its_partition() {
    let mut arrivals = RecentArrivals::new(HOT_FROM);
    let home = DestinationHash::of("channel", "here").partition();
    for batch in 0..1_000 {
        let partitions = place(&mut arrivals, "here", batch, &[1, 1], at(0));
        assert_eq!(partitions, [home; 2]);
    }
    let other = place(&mut RecentArrivals::new(HOT_FROM), "here", 7_000, &[1], at(9_000_000));
    assert_eq!(other, [home], "in every process and at any time");
}

#[test]
fn a_large_group_is_spread_from_its_first_chunk_on() {
    let mut arrivals = RecentArrivals::new(HOT_FROM);
    let spread = place(&mut arrivals, "here", 1, &[1_000; 4], at(0));
    assert_eq!(spread.iter().collect::<HashSet<_>>().len(), 4);
    let cold = place(&mut arrivals, "there", 1, &[1_000; 3], at(0));
    assert_eq!(cold, [DestinationHash::of("channel", "there").partition(); 3]);
}

#[test]
fn a_destination_gets_hot_by_many_small_groups_and_cold_by_two_quiet_minutes() {
    let mut arrivals = RecentArrivals::new(100);
    let home = DestinationHash::of("channel", "here").partition();
    // One more of a hot one is in another partition than the one before it.
    let mut is_hot = |count, second: i64| {
        let now = at(1_000 * second);
        let partitions = [count, 1]
            .map(|count| place(&mut arrivals, "here", 1, &vec![1; count], now).last().copied());
        partitions != [Some(home); 2]
    };
    assert!(!is_hot(50, 0));
    assert!(!is_hot(47, 59));
    assert!(is_hot(1, 59));
    assert!(is_hot(1, 60), "as in the last minute");
    assert!(is_hot(1, 30), "the clock was set back");
    assert!(!is_hot(1, 180));
    assert!(!is_hot(96, 239));
    assert!(is_hot(1, 239));
    assert!(is_hot(1, 299));
    assert!(!is_hot(1, 300), "two in the last minute, and two in this");
}

#[test]
fn partitions_hold_equal_shares_of_a_hot_destination_and_of_many_cold_ones() {
    // Chunks of a hot one, of batches that have numbers with any distance: a broadcast's follow each other, and those of one-offs are
    // as far apart as many are stored together.
    for distance in [1, 64, 987, 1_008, 1_024] {
        let mut arrivals = RecentArrivals::new(0);
        let batches = (0..6_400).map(|chunk| chunk * distance);
        let partitions: Vec<i16> = batches
            .flat_map(|batch| place(&mut arrivals, "here", batch, &[1_000], at(0)))
            .collect();
        for round in partitions.chunks(64) {
            assert_eq!(shares(round.iter().copied()), (100, 100), "one chunk in each partition");
        }
        // Lanes of the destination that take turns: each of them comes to all partitions alike.
        for turns in [2, 3, 10, 64] {
            let (least, most) = shares(partitions.iter().copied().step_by(turns));
            assert!(least >= 50 && most <= 150, "{turns}: {least} to {most} % of the mean");
        }
    }
    // Writers that store a little each begin elsewhere.
    let firsts = (0..1_000).flat_map(|writer| {
        place(&mut RecentArrivals::new(0), "here", 64 * writer, &[1_000], at(0))
    });
    let (least, most) = shares(firsts);
    assert!(least >= 80 && most <= 120, "{least} to {most} % of the mean");
    // Three ways in which destinations are named.
    let names: [fn(u32) -> String; 3] = [
        |number| number.to_string(),
        |number| format!("https://hooks-{number}.example.com:443"),
        |number| format!("customer{}.example.org", number.wrapping_mul(0x9e37_79b9)),
    ];
    for name in names {
        let mut arrivals = RecentArrivals::new(HOT_FROM);
        // Each gets two chunks, of other minutes.
        let partitions: Vec<i16> = (0..200_000_u32)
            .flat_map(|number| {
                let now = at(i64::from(number));
                place(&mut arrivals, &name(number % 100_000), number.into(), &[1], now)
            })
            .collect();
        let (least, most) = shares(partitions.into_iter());
        assert!(least >= 90 && most <= 110, "{least} to {most} % of the mean");
    }
}

/// Two workers, each with half of the partitions.
async fn two_workers(database: &Database) -> [Postgres; 2] {
    let join = async || Postgres::open(Options::new(database.url()), Clock::system()).await;
    let workers = [join().await.unwrap(), join().await.unwrap()];
    for worker in &workers {
        let mut membership = worker.membership.clone();
        membership.wait_for(|its| its.partitions.len() == 32).await.unwrap();
    }
    workers
}

/// Has `count` more deliveries to a destination claimed: how many each worker got.
async fn claim(workers: &[Postgres; 2], count: usize) -> [usize; 2] {
    let mut changes = workers.each_ref().map(Claims::<notification::Chunk>::changes);
    let mut claimed = [0; 2];
    loop {
        for ((worker, claimed), changes) in workers.iter().zip(&mut claimed).zip(&mut changes) {
            changes.borrow_and_update();
            let chunks = claim_all(worker, 5).await;
            *claimed += chunks.iter().map(|chunk| chunk.deliveries.len()).sum::<usize>();
        }
        if claimed.iter().sum::<usize>() == count {
            return claimed;
        }
        // A worker learns of what the other one has stored by a notice.
        let [one, other] = &mut changes;
        tokio::select! {
            told = one.changed() => told.unwrap(),
            told = other.changed() => told.unwrap(),
        }
    }
}

/// Stores `count` notifications one by one, by both workers in turn, and has them claimed.
async fn send_alone(workers: &[Postgres; 2], shape: &Shape, count: usize) -> [usize; 2] {
    for worker in workers.iter().cycle().take(count) {
        shape.ingest(worker, 1).await;
    }
    claim(workers, count).await
}

#[tokio::test]
async fn one_worker_claims_a_cold_destination_and_both_claim_a_hot_one() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let workers = two_workers(&database).await;
    let here = Shape { destination: "here", ..Shape::default() };
    let urgent = Shape { priority: notification::Priority::Urgent, ..here.clone() };
    let there = Shape { destination: "there", ..Shape::default() };
    let cold = send_alone(&workers, &here, 40).await;
    assert!(cold.contains(&40), "{cold:?}");
    assert_eq!(send_alone(&workers, &urgent, 40).await, cold, "with any priority");

    here.ingest(&workers[0], 20_000).await;
    let claimed = claim(&workers, 20_000).await;
    assert!(claimed.iter().all(|count| *count >= 5_000), "{claimed:?}");
    // The worker that stored so much spreads what comes after it, and the other one goes by what it has stored itself.
    for _ in 0..40 {
        here.ingest(&workers[0], 1).await;
    }
    let claimed = claim(&workers, 40).await;
    assert!(claimed.iter().all(|count| *count >= 10), "{claimed:?}");
    let cold = send_alone(&workers, &there, 40).await;
    assert!(cold.contains(&40), "{cold:?}");
}

#[tokio::test]
async fn all_that_comes_of_a_chunk_stays_in_its_partition() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let worker = Postgres::open(Options::new(database.url()), Clock::system()).await.unwrap();
    worker.membership.clone().wait_for(|its| its.partitions.len() == 64).await.unwrap();
    let shape = Shape::default();
    shape.ingest(&worker, 20).await;
    shape.ingest(&worker, 20_000).await;
    // The first chunk is cut, and of the part that is claimed a retry is made.
    let request =
        ClaimRequest { probe_window: Some(1_000), total_window: 2_000, ..claim_request(5) };
    let claimed: Claim<notification::Chunk> = worker.claim(request).await.unwrap();
    assert_eq!(claimed.chunks[0].deliveries.len(), 16);
    settle_all(&worker, &claimed.chunks[0], Disposition::Retry { at: at(9) }).await;
    let parts = format!(
        "SELECT count(*), sum(count), min(partition), max(partition) FROM belfry.chunk WHERE batch = {}",
        claimed.chunks[0].batch.0
    );
    let home = DestinationHash::of("channel", shape.destination).partition();
    assert_eq!(database.query(&parts).unwrap().trim(), format!("2|20|{home}|{home}"));
}
