//! Traces: a notification keeps the trace of the request that it comes from until its last attempt, and so does what stands in for it.

use std::ops::Range;
use std::sync::Arc;

use notification::{
    Alternative, ByteString, Bytes, Chunk, Disposition, Draft, Fallback, State, TraceContext,
    limits,
};

use super::claim_request;
use super::fallbacks::refusal;
use super::requeueing::requeue;
use super::support::{
    BroadcastShape, Shape, at, claim_all, claim_one, name, part, settle_all, settle_one,
    suppression,
};
use crate::{Claim, ClaimRequest, RecipientGroup, Requeued, Store};

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
    // The first and the third have arrived, the others are tried again.
    for (indexes, disposition) in [
        ([0, 2].as_slice(), Disposition::Ended(State::Delivered)),
        (&[1, 3, 4], Disposition::Retry { at: at(9) }),
    ] {
        settle_one(store, part(&claimed[0], indexes, disposition)).await;
    }
    let again = claim_all(store, 9).await;
    assert_eq!(traces_of(&again), [1, 3, 4].map(|index: usize| expected[index].clone()));
    assert!(again.iter().all(|chunk| chunk.attempt == 2));
}

pub(super) async fn a_part_of_a_chunk_has_the_traces_of_its_deliveries_alone(store: &dyn Store) {
    let recipients = (0..20_u8).map(|number| format!("{number:02}"));
    let drafts = recipients.zip(1..).map(|(to, number)| traced(&to, trace(number)));
    store.ingest(drafts.collect(), at(0)).await.unwrap();
    let probe = ClaimRequest { probe_window: Some(1_000), ..claim_request(0) };
    let Claim::<Chunk> { chunks, .. } = store.claim(probe).await.unwrap();
    assert_eq!(
        chunks[0].deliveries.len(),
        16,
        "as many as a flow without a success is probed with"
    );
    let expected = |range: Range<u8>| -> Vec<_> {
        range.map(|number| (format!("{number:02}"), trace(number + 1))).collect()
    };
    assert_eq!(traces_of(&chunks), expected(0..16));
    assert_eq!(chunks[0].trace(16), None);
    settle_all(store, &chunks[0], Disposition::Ended(State::Delivered)).await;
    let rest = claim_all(store, 1).await;
    assert_eq!(traces_of(&rest), expected(16..20));
    assert_eq!(rest[0].trace(0), None);
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
    let with_fallback = |recipient: &str, number: u8| {
        let next = Alternative {
            channel: name("other"),
            destination: "there".into(),
            recipient: format!("{recipient} by another way").into(),
            payload: Bytes::from_static(b"[1]"),
            options: Bytes::new(),
        };
        let mut draft = traced(recipient, trace(number));
        draft.content.fallback = Some(Arc::new(Fallback { of: None, next: vec![next] }));
        draft
    };
    let drafts = [("plain", 0), ("refused", 1), ("suppressed", 2)];
    store
        .ingest(drafts.map(|(to, number)| with_fallback(to, number)).to_vec(), at(0))
        .await
        .unwrap();
    store.suppress(vec![suppression("suppressed", "asked")], at(0)).await.unwrap();
    let first = claim_all(store, 0).await;
    let sent = first.iter().find(|chunk| chunk.envelope.lane.channel == name("channel")).unwrap();
    settle_one(store, refusal(sent)).await;
    let mut found = traces_of(&first);
    found.extend(traces_of(&claim_all(store, 7).await));
    found.retain(|(recipient, _)| recipient.ends_with("way"));
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let expected = drafts.map(|(to, number)| (format!("{to} by another way"), trace(number)));
    assert_eq!(found, expected);
}

pub(super) async fn some_recipients_of_a_broadcast_are_traced(store: &dyn Store) {
    let id = BroadcastShape::default().open(store, 0).await;
    let mut group = RecipientGroup::new("here".into());
    let traced = [0, limits::BATCH_ITEMS - 1, limits::BATCH_ITEMS + 8];
    for number in 0..limits::BATCH_ITEMS + 9 {
        let trace = trace(3).filter(|_| traced.contains(&number));
        group.push(format!("{number:04}").into(), None, ByteString::new(), trace);
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
