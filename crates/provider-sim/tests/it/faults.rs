//! Faults on request, as a client and the books see them.

use std::io::ErrorKind;
use std::time::Duration;

use crate::support::{Client, PAYLOAD, Sim, answer, device, id, push};
use h2::Reason;
use provider_sim::is_dead;
use provider_sim::journal::JournalStatus;

/// Pushes one after the other and returns what came back: a status, or 0 for none.
async fn push_all(client: &mut Client, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for number in 0..count {
        let status = client.push(&id(number), &device(number)).await;
        statuses.push(status.map_or(0, |status| status.as_u16()));
    }
    statuses
}

#[tokio::test]
async fn the_same_seed_gives_the_same_answers() {
    let mut runs = Vec::new();
    for seed in [5, 5, 6] {
        let sim = Sim::start(|options| {
            options.faults.seed = seed;
            options.faults.error_rate = 0.3;
            options.faults.throttle_rate = 0.2;
            options.faults.drop_rate = 0.1;
        });
        runs.push(push_all(&mut sim.apns().await, 100).await);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    for status in [0, 200, 429, 500, 503] {
        assert!(runs[0].contains(&status), "{status} in {:?}", runs[0]);
    }
}

#[tokio::test]
async fn a_dead_token_is_unregistered_every_time() {
    let sim = Sim::start(|options| options.faults.dead_tokens = 0.3);
    let mut client = sim.apns().await;
    let statuses = push_all(&mut client, 50).await;
    for (number, status) in statuses.iter().enumerate() {
        let expect = if is_dead(&device(number), 0.3) { 410 } else { 200 };
        assert_eq!(*status, expect, "{}", device(number));
    }
    assert_eq!(push_all(&mut client, 50).await, statuses);
    let number = statuses.iter().position(|status| *status == 410).unwrap();
    let gone = client.ask(push(&id(number), &device(number)), PAYLOAD).await.unwrap();
    let body: serde_json::Value = serde_json::from_str(&gone.body).unwrap();
    assert_eq!(body["reason"], "Unregistered");
    let timestamp_ms = body["timestamp"].as_u64().unwrap();
    let received_ms = sim.journal().last().unwrap().received_us / 1000;
    assert_eq!(received_ms - timestamp_ms, 86_400_000);
}

#[tokio::test]
async fn throttling_says_when_to_come_back() {
    let sim = Sim::start(|options| {
        options.faults.throttle_rate = 1.0;
        options.faults.retry_after = 17;
    });
    let answer = sim.apns().await.ask(push(&id(1), &device(1)), PAYLOAD).await.unwrap();
    assert_eq!(answer.status.as_u16(), 429);
    assert_eq!(answer.headers["retry-after"], "17");
    assert_eq!(answer.body, r#"{"reason":"TooManyRequests"}"#);
}

#[tokio::test]
async fn a_dropped_request_is_recorded_and_never_answered() {
    let sim = Sim::start(|options| options.faults.drop_rate = 1.0);
    let mut client = sim.apns().await;
    for number in 0..3 {
        let error = client.push(&id(number), &device(number)).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::CANCEL));
        assert_eq!(sim.journal()[number].status, JournalStatus::Drop);
    }
    assert_eq!((sim.summary().ids.accepted, sim.summary().ids.arrived), (0, 3));
}

#[tokio::test]
async fn a_refused_request_is_not_recorded_as_processed() {
    let sim = Sim::start(|options| options.faults.refuse_rate = 1.0);
    let error = sim.apns().await.push(&id(1), &device(1)).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM));
    assert_eq!(sim.journal()[0].status, JournalStatus::Refuse);
    assert_eq!(sim.summary().ids.arrived, 0);
}

#[tokio::test]
async fn a_disconnect_takes_the_whole_connection() {
    let sim = Sim::start(|options| options.faults.disconnect_rate = 1.0);
    let mut client = sim.apns().await;
    client.push(&id(1), &device(1)).await.unwrap_err();
    client.push(&id(2), &device(2)).await.unwrap_err();
    let lines = sim.journal();
    assert_eq!((lines.len(), lines[0].status), (1, JournalStatus::Drop));
}

#[tokio::test]
async fn a_graceful_goaway_answers_everything_under_way() {
    let sim = Sim::start(|options| {
        options.faults.goaway_every = 5.try_into().ok();
        options.faults.latency = Duration::from_millis(5);
    });
    for round in 0..2 {
        let mut client = sim.apns().await;
        let mut under_way = Vec::new();
        for number in round * 10..(round + 1) * 10 {
            let begun = client.begin(push(&id(number), &device(number)), PAYLOAD).await;
            under_way.push(begun.unwrap());
        }
        for response in under_way {
            assert_eq!(answer(response).await.unwrap().status.as_u16(), 200);
        }
        // The second of the two to close may find the other gone.
        let is_gone = |error: &h2::Error| {
            let kind = error.get_io().map(std::io::Error::kind);
            matches!(kind, Some(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset))
        };
        let ended = client.end().await;
        assert!(ended.as_ref().map_or_else(is_gone, |()| true), "{ended:?}");
    }
    assert_eq!((sim.summary().accepted(), sim.summary().ids.arrived_twice), (20, 0));
}

#[tokio::test]
async fn an_abrupt_goaway_leaves_later_streams_unprocessed() {
    let sim = Sim::start(|options| {
        options.faults.goaway_every = 5.try_into().ok();
        options.faults.goaway_abrupt = true;
    });
    let mut client = sim.apns().await;
    let mut under_way = Vec::new();
    for number in 0..20 {
        let begun = client.begin(push(&id(number), &device(number)), PAYLOAD).await;
        under_way.push(begun.unwrap());
    }
    let mut accepted = Vec::new();
    for (number, response) in under_way.into_iter().enumerate() {
        match answer(response).await {
            Ok(answer) => accepted.push((number, answer.status.as_u16())),
            Err(error) => assert!(error.is_go_away() && error.is_remote(), "{number} {error:?}"),
        }
    }
    assert_eq!(accepted, [(0, 200), (1, 200), (2, 200), (3, 200), (4, 200)]);
    let mut recorded: Vec<(String, JournalStatus)> =
        sim.journal().into_iter().map(|line| (line.id, line.status)).collect();
    recorded.sort();
    let processed = recorded.iter().filter(|(_, status)| status.has_arrived());
    assert!(processed.map(|(id, _)| id.clone()).eq((0..5).map(id)), "{recorded:?}");
    assert!(recorded[5..].iter().all(|(_, status)| *status == JournalStatus::Refuse));
}

#[tokio::test]
async fn latency_passes_between_request_and_answer() {
    let sim = Sim::start(|options| {
        options.faults.latency = Duration::from_millis(20);
        options.faults.latency_jitter = Duration::from_millis(5);
    });
    assert_eq!(push_all(&mut sim.apns().await, 4).await, [200; 4]);
    let received: Vec<u64> = sim.journal().iter().map(|line| line.received_us).collect();
    for pair in received.windows(2) {
        assert!(pair[1] - pair[0] >= 20_000, "{received:?}");
    }
}

#[tokio::test]
async fn answers_of_different_latency_overtake_each_other() {
    let sim = Sim::start(|options| options.faults.latency_jitter = Duration::from_millis(30));
    let mut client = sim.apns().await;
    let mut under_way = tokio::task::JoinSet::new();
    for number in 0..50 {
        let response = client.begin(push(&id(number), &device(number)), PAYLOAD).await.unwrap();
        under_way.spawn(async move { (number, answer(response).await.unwrap().status.as_u16()) });
    }
    let answered = under_way.join_all().await;
    assert!(answered.iter().all(|(_, status)| *status == 200));
    assert!(!answered.is_sorted(), "{answered:?}");
}

#[tokio::test]
async fn an_outage_answers_everything_503() {
    let sim = Sim::start(|options| {
        options.faults.outage_after = Some(3);
        options.faults.outage_for = Duration::from_hours(1);
    });
    let statuses = push_all(&mut sim.apns().await, 6).await;
    assert_eq!(statuses, [200, 200, 200, 503, 503, 503]);
}

#[tokio::test]
async fn silence_does_not_hold_up_the_end_of_a_connection() {
    for abrupt in [false, true] {
        let sim = Sim::start(|options| {
            options.faults.silent_to = Some(device(7));
            options.faults.goaway_every = 2.try_into().ok();
            options.faults.goaway_abrupt = abrupt;
        });
        let mut client = sim.apns().await;
        let silent = client.begin(push(&id(7), &device(7)), PAYLOAD).await.unwrap();
        assert_eq!(push_all(&mut client, 1).await, [200]);
        assert!(answer(silent).await.is_err(), "it was answered");
    }
}

#[tokio::test]
async fn a_silent_outage_answers_nothing_and_records_everything() {
    let sim = Sim::start(|options| {
        options.faults.outage_after = Some(1);
        options.faults.outage_for = Duration::from_hours(1);
        options.faults.outage_silent = true;
    });
    let mut client = sim.apns().await;
    assert_eq!(push_all(&mut client, 1).await, [200]);
    let mut responses = Vec::new();
    for number in 1..4 {
        responses.push(client.begin(push(&id(number), &device(number)), PAYLOAD).await.unwrap());
    }
    while sim.journal().len() < 4 {
        tokio::task::yield_now().await;
    }
    assert!(sim.journal().iter().all(|line| line.status.has_arrived()));
    sim.stop();
    for response in responses {
        assert!(answer(response).await.is_err(), "it was answered");
    }
}
