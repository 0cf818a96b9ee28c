//! Deliveries over a fixture: notifications are created, claimed, and end as a test wants.

use notification::{Chunk, Disposition, OutcomeGroup, Priority, Settlement, State};
use store::{Begin, Claim, ClaimRequest, Claims, Mark, Settlements};

use crate::support::{Fixture, JSON, notification};

/// Creates a notification to `to` with `more` fields; its identifier.
pub(crate) async fn create(fixture: &Fixture, to: &str, more: &str) -> String {
    let created = fixture.post("/v1/notifications", JSON, notification(to, more)).await;
    created.json()["id"].as_str().unwrap().to_owned()
}

/// Claims all that is due, and begins it.
pub(crate) async fn claim(fixture: &Fixture) -> Vec<Chunk> {
    let lease = notification::limits::LEASE;
    let (now, items, lowest) = (fixture.now(), usize::MAX, Priority::Bulk);
    let (lane_window, total_window, probe_window) = (items, items, None);
    let request =
        ClaimRequest { now, lease, items, lowest, lane_window, total_window, probe_window };
    let claim: Claim<Chunk> = fixture.store.claim(request).await.unwrap();
    for chunk in &claim.chunks {
        let through = chunk.deliveries.iter().map(|delivery| delivery.index).max().unwrap();
        let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through };
        fixture.store.begin(vec![mark]).await.unwrap();
    }
    claim.chunks
}

/// Has all of `chunks` end in `state`, with these words. Where it is refused, its fallback is accepted.
pub(crate) async fn end(fixture: &Fixture, chunks: Vec<Chunk>, state: State, detail: &'static str) {
    for chunk in chunks {
        let falls_back = state == State::Refused;
        let refused = chunk.deliveries.iter().filter(|_| falls_back);
        let fallbacks =
            refused.filter_map(|it| chunk.draft_in_place_of(it, fixture.now())).collect();
        let group = OutcomeGroup {
            disposition: Disposition::Ended(state),
            status: 503,
            detail: detail.into(),
            suppress: false,
            gone_since: [].into(),
            indexes: chunk.deliveries.iter().map(|delivery| delivery.index).collect(),
        };
        let settlement = Settlement {
            chunk: chunk.id,
            epoch: chunk.epoch,
            at: fixture.now(),
            groups: vec![group],
            places: 0,
            latency: None,
            rate_per_minute: None,
            fallbacks,
        };
        fixture.store.settle(vec![settlement]).await.unwrap();
    }
}
