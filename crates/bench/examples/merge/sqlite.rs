//! The embedded store, opened with either variant. Every operation is synced to the disk before it is answered.

use anyhow::{Result, ensure};
use flow::merge::{Counts, Merging};
use notification::{Chunk, Disposition, OutcomeGroup, Settlement, State, limits};
use store::conformance::{Shape, at, claim_request};
use store::sqlite::Options;
use store::{Admission, ClaimRequest, Claims, Ingest, Settled, Settlements, Sqlite};
use tempfile::TempDir;

/// A store of its own.
pub(crate) struct EmbeddedStore {
    store: Sqlite,
    /// Chunks that callers settle.
    chunks: Vec<Chunk>,
    callers: usize,
    /// Removed with it.
    _directory: TempDir,
}

/// Chunks that a caller settles, delivery by delivery.
const CHUNKS: usize = 16;

// === impl EmbeddedStore ===

impl EmbeddedStore {
    /// With claimed chunks for those of the `callers` that settle.
    pub(crate) async fn open(merging: Merging, callers: usize) -> Result<Self> {
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
    pub(crate) async fn operate(&self, caller: usize, number: usize) -> Result<()> {
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
        let (chunk, delivery) =
            delivery.ok_or_else(|| anyhow::anyhow!("fewer SECONDS: all is settled"))?;
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

    pub(crate) fn counts(&self) -> Counts {
        self.store.merged()
    }

    pub(crate) async fn close(&self) {
        self.store.close().await;
    }
}
