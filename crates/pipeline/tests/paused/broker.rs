//! The pipeline with a broker between dispatch and deliver that may lose or repeat any ticket.

use notification::{Account, ChunkId, Epoch, Guarantee, Priority, Ticket, limits};
use queue::{Consume as _, MemoryQueue, Publish as _};

use crate::rig::{Rig, Running, on_one_thread};
use crate::{MS, Script, rig};

pub(crate) fn broker() -> MemoryQueue<Ticket> {
    MemoryQueue::new(usize::MAX)
}

/// A consumer with a slow provider, behind a broker with more than it has room for.
async fn overfed() -> (Rig, MemoryQueue<Ticket>, Running) {
    let (rig, broker) = (Rig::new(Script::new(limits::ATTEMPT_TIMEOUT, 1)), broker());
    for _ in 0..limits::CONSUMER_WEIGHT / limits::BATCH_ITEMS + 64 {
        let drafts = (0..limits::BATCH_ITEMS).map(|_| rig.draft("x", Guarantee::AtLeastOnce));
        rig.accept_drafts(drafts.collect()).await;
    }
    broker.publish(rig.issue_tickets().await).await;
    let running = rig.start_behind(&broker);
    tokio::time::sleep(1_000 * MS).await;
    (rig, broker, running)
}

#[test]
fn through_a_broker_everything_is_delivered_once() {
    on_one_thread(async || {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let rig = rig();
            let recipients: Vec<String> = (0..2_500).map(|number| format!("r{number}")).collect();
            let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
            let running = rig.start_behind(&broker());
            rig.accept(&recipients, guarantee).await;
            let expect = Account { accepted: 2_500, delivered: 2_500, ..Account::default() };
            assert_eq!(rig.drained().await, expect);
            assert_eq!(rig.script.attempts().len(), 2_500);
            running.stop().await;
        }
    });
}

#[test]
fn a_ticket_that_the_broker_repeats_is_sent_once() {
    on_one_thread(async || {
        let (rig, broker) = (rig(), broker());
        rig.accept(&["one", "two"], Guarantee::AtLeastOnce).await;
        let tickets = rig.issue_tickets().await;
        for _ in 0..3 {
            broker.publish(tickets.clone()).await;
        }
        let running = rig.start_behind(&broker);
        assert_eq!(rig.drained().await.delivered, 2);
        running.stop().await;
        assert_eq!(rig.script.attempts().len(), 2);
        broker.close();
        assert!(broker.receive(Priority::Bulk, 9).await.is_empty(), "void tickets are forgotten");
    });
}

#[test]
fn a_ticket_that_the_broker_lost_is_issued_again_when_it_is_overdue() {
    on_one_thread(async || {
        let rig = rig();
        rig.accept(&["one"], Guarantee::AtMostOnce).await;
        let started = rig.clock.monotonic();
        drop(rig.issue_tickets().await);
        let running = rig.start_behind(&broker());
        assert_eq!(rig.drained().await.delivered, 1);
        assert!(rig.clock.monotonic() - started < 2 * limits::TICKET_LEASE);
        assert_eq!(rig.script.attempts().len(), 1);
        running.stop().await;
    });
}

#[test]
fn nothing_is_claimed_while_the_broker_takes_nothing() {
    on_one_thread(async || {
        let rig = rig();
        let broker = MemoryQueue::new(limits::CHUNK_WEIGHT + 1);
        let (chunk, epoch, lease_until) = (ChunkId(99), Epoch(1), rig.now());
        let other = Ticket { chunk, epoch, priority: Priority::Urgent, lease_until, count: 1 };
        broker.publish(vec![other]).await;
        rig.accept(&["one"], Guarantee::AtLeastOnce).await;
        let running = rig.start_before(&broker);
        tokio::time::sleep(10 * limits::TICKET_LEASE).await;
        for message in broker.receive(Priority::Bulk, 1).await {
            assert_eq!(message.item, other);
            message.receipt.acknowledge().await.unwrap();
        }
        let messages = broker.receive(Priority::Bulk, 1).await;
        assert_eq!(messages[0].item.epoch, Epoch(1), "claimed once");
        assert_eq!(messages[0].item.lease_until, rig.now().plus(limits::TICKET_LEASE));
        running.stop().await;
    });
}

#[test]
fn what_is_urgent_does_not_wait_behind_what_has_no_room() {
    on_one_thread(async || {
        let (rig, broker, running) = overfed().await;
        let mut urgent = rig.draft("urgent", Guarantee::AtLeastOnce);
        // Of another destination: the only place of this one is taken.
        let lane = &mut urgent.envelope.lane;
        (lane.priority, lane.destination) = (Priority::Urgent, "elsewhere".into());
        rig.accept_drafts(vec![urgent]).await;
        broker.publish(rig.issue_tickets().await).await;
        tokio::time::sleep(1_000 * MS).await;
        assert_eq!(rig.script.attempts_for("urgent"), 1);
        running.crash().await;
    });
}

#[test]
fn a_consumer_leaves_to_others_what_it_has_no_room_for() {
    on_one_thread(async || {
        let (_rig, broker, running) = overfed().await;
        let left = broker.receive(Priority::Bulk, usize::MAX).await.len();
        assert!(left >= 64, "{left} tickets are left");
        running.crash().await;
    });
}
