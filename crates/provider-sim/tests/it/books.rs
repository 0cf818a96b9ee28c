//! The journal across threads, restarts and crashes.

use std::fs::OpenOptions;
use std::io::Write;

use crate::support::{self, Sim, answer, device, id, push};
use provider_sim::{Error, Simulator, SimulatorOptions};

/// Pushes `numbers` over one connection, all at once.
async fn push_range(sim: &Sim, numbers: std::ops::Range<usize>) {
    let mut client = sim.apns().await;
    let mut under_way = Vec::new();
    for number in numbers {
        let begun = client.begin(push(&id(number), &device(number)), support::PAYLOAD).await;
        under_way.push(begun.unwrap());
    }
    for response in under_way {
        assert_eq!(answer(response).await.unwrap().status.as_u16(), 200);
    }
}

#[tokio::test]
async fn with_fsync_records_are_there_before_their_answers_too() {
    let sim = Sim::start(|options| options.fsync = true);
    for round in 0..5 {
        push_range(&sim, round * 100..(round + 1) * 100).await;
        assert_eq!(sim.summary().ids.accepted, (u64::try_from(round).unwrap() + 1) * 100);
    }
    assert_eq!(sim.summary().ids.accepted_twice, 0);
}

#[tokio::test]
async fn threads_share_a_journal_of_whole_lines() {
    let sim = Sim::start(|options| options.threads = 3.try_into().unwrap());
    let rounds = (0..12).map(|round| push_range(&sim, round * 200..(round + 1) * 200));
    futures_join(rounds.collect()).await;
    let summary = sim.summary();
    assert_eq!((summary.records, summary.ids.accepted), (2400, 2400));
    assert_eq!(summary.ids.arrived_twice, 0);
}

/// Drives all futures on this task.
async fn futures_join<F: Future>(futures: Vec<F>) {
    let mut futures: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    std::future::poll_fn(|context| {
        for slot in &mut futures {
            if slot.as_mut().is_some_and(|future| future.as_mut().poll(context).is_ready()) {
                *slot = None;
            }
        }
        if futures.iter().all(Option::is_none) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

#[tokio::test]
async fn a_restart_repairs_the_torn_line_and_continues() {
    let sim = Sim::start(|_| {});
    push_range(&sim, 0..10).await;
    let journal = sim.running.journal.clone();
    let directory = sim.stop();
    let mut file = OpenOptions::new().append(true).open(&journal).unwrap();
    file.write_all(b"1732161600123456\tapns\t200\t0000").unwrap();
    drop(file);
    assert_eq!(support::lines(&journal).len(), 10);

    let sim = Sim::start_in(directory, |_| {});
    push_range(&sim, 10..20).await;
    let ids: Vec<String> = sim.journal().into_iter().map(|line| line.id).collect();
    assert!(ids.into_iter().eq((0..20).map(id)));
}

#[tokio::test]
async fn a_journal_has_one_simulator_at_a_time() {
    let sim = Sim::start(|_| {});
    let mut options = SimulatorOptions::default();
    options.apns.set_port(0);
    options.webhook.set_port(0);
    options.tls_dir = sim.directory.path().join("tls");
    options.journal.clone_from(&sim.running.journal);
    assert!(matches!(Simulator::start(options), Err(Error::JournalInUse { .. })));
}

#[tokio::test]
async fn stopping_ends_open_connections() {
    let sim = Sim::start(|_| {});
    let mut client = sim.apns().await;
    client.push(&id(1), &device(1)).await.unwrap();
    let _directory = sim.stop();
    client.push(&id(2), &device(2)).await.unwrap_err();
}
