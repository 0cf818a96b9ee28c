//! The embedded store, opened with either variant. Every operation is synced to the disk before it is answered.

use anyhow::{Result, ensure};
use flow::merge::{Counts, Merging};
use notification::{Account, Chunk, Disposition, OutcomeGroup, Settlement, State, limits};
use store::conformance::{Shape, at, claim_request};
use store::sqlite::Options;
use store::{
    Admission, ClaimRequest, Claims, Ingest, ReadStore as _, Settled, Settlements, Sqlite,
};
use tempfile::TempDir;

/// A store of its own.
pub(super) struct EmbeddedStore {
    store: Sqlite,
    /// Chunks that callers settle.
    chunks: Vec<Chunk>,
    callers: usize,
    /// Removed with it.
    _directory: TempDir,
}

/// Chunks that a caller settles, delivery by delivery: enough for 3 s at 10,000 a second.
const CHUNKS: usize = 32;

// === impl EmbeddedStore ===

impl EmbeddedStore {
    /// With claimed chunks for those of the `callers` that settle.
    pub(super) async fn open(merging: Merging, callers: usize) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let options = Options { merging, ..Options::new(1) };
        let (store, _recovery) = Sqlite::open(directory.path(), options, at(0))?;
        let drafts = Shape::default().drafts(limits::BATCH_ITEMS);
        for _chunk in 0..callers / 2 * CHUNKS {
            store.ingest(drafts.clone(), at(0)).await?;
        }
        let mut chunks = Vec::new();
        let windows = ClaimRequest {
            items: limits::CLAIM_ITEMS,
            lane_window: usize::MAX / 4,
            total_window: usize::MAX / 2,
            ..claim_request(0)
        };
        while let claimed = store.claim(windows).await?.chunks
            && !claimed.is_empty()
        {
            chunks.extend(claimed);
        }
        ensure!(chunks.len() == callers / 2 * CHUNKS, "{} chunks", chunks.len());
        Ok(Self { store, chunks, callers, _directory: directory })
    }

    /// Even callers hand in a notification, odd ones settle a delivery.
    pub(super) async fn operate(&self, caller: usize, number: usize) -> Result<()> {
        if caller.is_multiple_of(2) {
            let draft = Shape::default().draft(&format!("{caller}-{number}"));
            let admissions = self.store.ingest(vec![draft], at(0)).await?;
            ensure!(matches!(admissions[..], [Admission::Accepted(_)]), "{admissions:?}");
        } else {
            let settled = self.store.settle(vec![self.settlement(caller / 2, number)?]).await?;
            ensure!(matches!(settled[..], [Settled::Applied { .. }]), "{settled:?}");
        }
        Ok(())
    }

    /// Of one delivery of the chunks of the `place`th caller that settles.
    fn settlement(&self, place: usize, number: usize) -> Result<Settlement> {
        let (turn, index) = (number / limits::BATCH_ITEMS, number % limits::BATCH_ITEMS);
        let chunk = self.chunks.get(turn * (self.callers / 2) + place);
        let delivery = chunk.and_then(|chunk| Some((chunk, chunk.deliveries.get(index)?)));
        let (chunk, delivery) = delivery.ok_or_else(|| {
            anyhow::anyhow!("a caller has settled all its deliveries: CHUNKS is too small here")
        })?;
        let group = OutcomeGroup {
            disposition: Disposition::Ended(State::Delivered),
            status: 200,
            detail: "".into(),
            suppress: false,
            gone_since: [].into(),
            indexes: vec![delivery.index],
        };
        Ok(Settlement {
            chunk: chunk.id,
            epoch: chunk.epoch,
            at: at(1),
            groups: vec![group],
            places: 0,
            latency: None,
            rate_per_minute: None,
            fallbacks: Vec::new(),
        })
    }

    /// Operations of callers whose outcome is in the store.
    pub(super) async fn stored(&self) -> Result<u64> {
        let Account { accepted, delivered, .. } = self.store.reader().totals().await?;
        let filled = self.chunks.iter().map(|chunk| chunk.deliveries.len() as u64).sum();
        Ok((accepted + delivered).saturating_sub(filled))
    }

    pub(super) fn counts(&self) -> Counts {
        self.store.merged()
    }

    pub(super) async fn close(&self) {
        self.store.close().await;
    }
}
