//! Lists of lanes: which are listed, of few with long backlogs and of too many.

use std::time::Duration;

use notification::{Draft, Priority};

use super::support::{Shape, at, claim_one, name};
use crate::{LANES_LISTED, LaneEvidence, LaneList, LaneStatus, Store, WaitingCounts};

pub(super) async fn all_lanes_are_listed_however_long_their_backlogs_are(store: &dyn Store) {
    let here = Shape::default();
    // One is due in more spans of 16 s than lanes are listed, and another one behind them.
    let mut drafts = due_in_spans(&here, LANES_LISTED + 10);
    let (first, last) = (drafts[0].envelope.due_at, drafts[LANES_LISTED + 9].envelope.due_at);
    let there = Shape { destination: "there", ..Shape::default() };
    let mut hidden = there.draft("0");
    hidden.envelope.due_at = last.plus(Duration::from_hours(1));
    let (hidden_due_at, hidden_lane) = (hidden.envelope.due_at, hidden.envelope.lane.clone());
    drafts.push(hidden);
    store.ingest(drafts, at(0)).await.unwrap();
    let status = |lane, claimed, next_due_at| LaneStatus {
        lane,
        claimed,
        next_due_at: Some(next_due_at),
        evidence: LaneEvidence::default(),
    };
    let lane = here.draft("0").envelope.lane;
    let hidden = status(hidden_lane, 0, hidden_due_at);
    let expect = all_of(vec![status(lane.clone(), 0, first), hidden.clone()]);
    assert_eq!(store.reader().lanes().await.unwrap(), expect);
    // What is claimed of it has no entry, and the rest has.
    let claimed = claim_one(store, first.millis()).await;
    let second = first.plus(Duration::from_millis(1 << 14));
    let expect = all_of(vec![status(lane, claimed.deliveries.len() as u64, second), hidden]);
    assert_eq!(store.reader().lanes().await.unwrap(), expect);
}

pub(super) async fn what_waits_is_counted_by_channel_and_priority_up_to_a_bound(store: &dyn Store) {
    let waiting = async |chunks_max| store.reader().waiting_counts(chunks_max).await.unwrap();
    assert_eq!(waiting(1).await, WaitingCounts::default());
    // Claimed as a whole, since it alone is due.
    Shape::default().ingest(store, 2).await;
    let claimed = claim_one(store, 5).await;
    assert_eq!(claimed.deliveries.len(), 2);
    assert_eq!(waiting(1).await, WaitingCounts::default());
    let (later, elsewhere) = (20, "there");
    let shape =
        |destination, priority, due_at| Shape { destination, priority, due_at, ..Shape::default() };
    let mut drafts = shape("here", Priority::Normal, later).drafts(3);
    drafts.extend(shape(elsewhere, Priority::Normal, 5).drafts(3));
    drafts.extend(shape(elsewhere, Priority::Bulk, later).drafts(3));
    let mut other = shape("here", Priority::Urgent, later).drafts(3);
    for draft in &mut other {
        draft.envelope.lane.channel = name("other");
    }
    drafts.extend(other);
    store.ingest(drafts, at(0)).await.unwrap();
    let all = [
        ("channel", Priority::Normal, 6),
        ("channel", Priority::Bulk, 3),
        ("other", Priority::Urgent, 3),
    ];
    let all = all.map(|(channel, priority, count)| ((name(channel), priority), count));
    let expect = WaitingCounts { notifications: all.into(), is_at_least: false };
    assert_eq!(waiting(5).await, expect);
    // As many chunks as are counted: there may be more.
    assert_eq!(waiting(4).await, WaitingCounts { is_at_least: true, ..expect.clone() });
    let cut = waiting(2).await;
    assert!(cut.is_at_least);
    assert_eq!(cut.notifications.values().sum::<u64>(), 6);
    assert!(
        cut.notifications.iter().all(|(key, count)| Some(count) <= expect.notifications.get(key))
    );
}

pub(super) async fn of_too_many_lanes_those_that_are_due_first_are_listed(store: &dyn Store) {
    let lane = |number: usize, due_at| {
        let mut draft = Shape { due_at, ..Shape::default() }.draft("0");
        draft.envelope.lane.destination = format!("there-{number:05}").into();
        draft
    };
    let span = |number: usize| i64::try_from(number).unwrap() << 14;
    let drafts = (0..LANES_LISTED).map(|number| lane(number, span(number + 10))).collect();
    store.ingest(drafts, at(0)).await.unwrap();
    let listed = store.reader().lanes().await.unwrap();
    assert_eq!((listed.lanes.len(), listed.are_all()), (LANES_LISTED, true));
    // The first of all, and one that has a backlog and is due before most.
    let mut drafts = vec![lane(LANES_LISTED, 5)];
    drafts.extend(due_in_spans(&Shape { due_at: span(15), ..Shape::default() }, LANES_LISTED));
    store.ingest(drafts, at(0)).await.unwrap();
    let listed = store.reader().lanes().await.unwrap();
    assert_eq!(listed.lanes.len(), LANES_LISTED);
    assert!(!listed.are_all());
    let until = listed.until.unwrap();
    let of = |destination: &str| {
        let mut lanes = listed.lanes.iter();
        lanes.find(|it| &*it.lane.destination == destination).and_then(|it| it.next_due_at)
    };
    assert_eq!(of(&format!("there-{LANES_LISTED:05}")), Some(at(5)));
    assert_eq!(of("here"), Some(at(span(15))));
    // Half of the entries that were read are of the one with the backlog.
    assert!(until >= at(span(400)) && until <= at(span(600)), "{until:?}");
    for number in 0..LANES_LISTED {
        let due_at = at(span(number + 10));
        let is_listed = of(&format!("there-{number:05}")).is_some();
        assert!(is_listed || due_at > until, "{number} is due before {until:?}");
    }
    assert!(listed.lanes.is_sorted_by(|one, other| one.lane < other.lane));
}

fn all_of(lanes: Vec<LaneStatus>) -> LaneList {
    LaneList { lanes, until: None }
}

/// One notification for each of `spans` spans of 16 s.
fn due_in_spans(shape: &Shape, spans: usize) -> Vec<Draft> {
    let mut drafts = shape.drafts(spans);
    for (span, draft) in (0..).zip(&mut drafts) {
        draft.envelope.due_at = draft.envelope.due_at.plus(Duration::from_millis(span << 14));
    }
    drafts
}
