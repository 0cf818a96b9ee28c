//! Traces: a notification keeps the trace of the request that it comes from until its last attempt, and so does what stands in for it.

use std::sync::Arc;

use notification::{
    Alternative, ByteString, Bytes, Chunk, Disposition, Draft, Fallback, State, TraceContext,
    limits,
};

use super::fallbacks::refusal;
use super::requeueing::requeue;
use super::support::{
    BroadcastShape, Shape, at, claim_all, claim_one, name, settle_all, settle_one,
};
use crate::{RecipientGroup, Requeued, Store};

fn trace(number: u8) -> Option<TraceContext> {
    TraceContext::from_bytes(&[number; 24])
}

fn traced(recipient: &str, trace: Option<TraceContext>) -> Draft {
    Draft { trace, ..Shape::default().draft(recipient) }
}

/// The recipients of `chunks`, each with its trace.
fn traces_of(chunks: &[Chunk]) -> Vec<(String, Option<TraceContext>)> {
    let deliveries = chunks.iter().flat_map(|chunk| {
        chunk.deliveries.iter().map(|it| (it.recipient.to_string(), chunk.trace(it.index)))
    });
    let mut found: Vec<_> = deliveries.collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

pub(super) async fn a_trace_goes_with_each_attempt(store: &dyn Store) {
    let drafts = [("a", None), ("b", trace(1)), ("c", trace(2)), ("d", trace(1)), ("e", None)];
    let expected = drafts.map(|(recipient, trace)| (recipient.to_owned(), trace));
    let drafts = drafts.map(|(recipient, trace)| traced(recipient, trace));
    store.ingest(drafts.to_vec(), at(0)).await.unwrap();
    let claimed = claim_all(store, 0).await;
    assert_eq!(traces_of(&claimed), expected);
    assert_eq!(claimed.len(), 1, "traced ones share a batch with others");
    for chunk in &claimed {
        settle_all(store, chunk, Disposition::Retry { at: at(9) }).await;
    }
    let again = claim_all(store, 9).await;
    assert_eq!(traces_of(&again), expected);
    assert!(again.iter().all(|chunk| chunk.attempt == 2));
}

pub(super) async fn what_is_sent_again_has_another_span(store: &dyn Store) {
    store.ingest(vec![traced("a", trace(1))], at(0)).await.unwrap();
    let first = claim_one(store, 0).await;
    let id = first.notification_id(first.deliveries[0].index);
    settle_all(store, &first, Disposition::Ended(State::Dead)).await;
    assert_eq!(requeue(store, &[id], 9).await, [Requeued::Requeued]);
    let again = claim_one(store, 10).await;
    assert_eq!((again.attempt, again.trace(again.deliveries[0].index)), (1, trace(1)));
    let span = |chunk: &Chunk| chunk.attempt_trace(chunk.deliveries[0].index).unwrap();
    assert_ne!(span(&first).span, span(&again).span);
    assert_eq!(span(&first).trace, span(&again).trace);
}

pub(super) async fn what_stands_in_for_a_traced_one_is_traced(store: &dyn Store) {
    let next = Alternative {
        channel: name("other"),
        destination: "there".into(),
        recipient: "b".into(),
        payload: Bytes::from_static(b"[1]"),
        options: Bytes::new(),
    };
    let mut draft = traced("a", trace(1));
    draft.content.fallback = Some(Arc::new(Fallback { of: None, next: vec![next] }));
    store.ingest(vec![draft], at(0)).await.unwrap();
    let first = claim_one(store, 0).await;
    settle_one(store, refusal(&first)).await;
    assert_eq!(traces_of(&[claim_one(store, 7).await]), [("b".to_owned(), trace(1))]);
}

pub(super) async fn some_recipients_of_a_broadcast_are_traced(store: &dyn Store) {
    let id = BroadcastShape::default().open(store, 0).await;
    let mut group = RecipientGroup::new("here".into());
    let traced = [0, limits::BATCH_ITEMS - 1, limits::BATCH_ITEMS + 8];
    for number in 0..limits::BATCH_ITEMS + 9 {
        group.push(format!("{number:04}").into(), None, ByteString::new());
        if traced.contains(&number) {
            group.trace_last(trace(3).unwrap());
        }
    }
    store.add_recipients(id, vec![group], at(0)).await.unwrap();
    store.seal_broadcast(id, at(0)).await.unwrap();
    let chunks = claim_all(store, 0).await;
    assert_eq!(chunks.len(), 2, "as many as without traces");
    let expected = (0..limits::BATCH_ITEMS + 9)
        .map(|number| (format!("{number:04}"), trace(3).filter(|_| traced.contains(&number))));
    assert_eq!(traces_of(&chunks), expected.collect::<Vec<_>>());
    for chunk in &chunks {
        let content = chunk.content_of(&chunk.deliveries[0]).unwrap();
        assert_eq!(content.payload, BroadcastShape::default().draft().content.payload);
    }
}
