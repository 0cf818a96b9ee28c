//! Notifications that are handed to a store, claimed from it and settled.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use futures_util::stream;
use notification::{
    ByteString, Bytes, Chunk, Disposition, Draft, OutcomeGroup, Settlement, State, limits,
};
use store::conformance::{BroadcastShape, Shape, at, claim_request};
use store::{Admission, BroadcastOpened, Claim, ClaimRequest, RecipientGroup, Settled, Store};

use super::meter::{StepMeter, StoreStep};

/// A kind of notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreLoad {
    /// One content for all.
    Broadcast,
    /// A content of 200 bytes for each, to one destination, in requests of 1,000 by eight callers.
    Own,
    /// Two at a time for each of 1,000 destinations, as webhooks are.
    Scattered,
}

/// A store under measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeasuredStore<'a> {
    pub(super) store: &'a dyn Store,
    /// First process of its server.
    pub(super) server: Option<u32>,
}

/// Bytes of a content.
const CONTENT: usize = 200;
/// Callers that hand in requests at a time.
const CALLERS: usize = 8;
const DESTINATIONS: usize = 1_000;
/// Nothing that is claimed is to become due again within a run.
const LEASE: Duration = Duration::from_hours(1);
/// Calls that settle at a time: each settles what was claimed by one.
const SETTLING: usize = 3;

// === impl StoreLoad ===

impl StoreLoad {
    pub(super) const ALL: [Self; 3] = [Self::Broadcast, Self::Own, Self::Scattered];

    /// As a setting has it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "one broadcast",
            Self::Own => "contents of their own",
            Self::Scattered => "1,000 destinations",
        }
    }

    /// How many of it there are, where the others have `count`: one at a time costs more.
    pub(super) const fn items(self, count: usize) -> usize {
        match self {
            Self::Broadcast | Self::Own => count,
            Self::Scattered => count / 10,
        }
    }

    /// Deliveries of a settlement: a fast provider answers for all of a chunk together, others in parts.
    const fn part(self) -> usize {
        match self {
            Self::Broadcast => limits::BATCH_ITEMS,
            Self::Own | Self::Scattered => 100,
        }
    }

    /// The way through `subject`: ingest, claim and settle of `count`, which are counted in it after each step.
    pub(super) async fn run(
        self,
        subject: MeasuredStore<'_>,
        count: usize,
    ) -> Result<[StoreStep; 3]> {
        let count = self.items(count);
        let reader = subject.store.reader();
        let before = reader.totals().await?;
        let ingest = self.ingest(subject, count).await?;
        let pending = reader.totals().await?.pending - before.pending;
        let (claim, claims) = claim(subject, count).await?;
        let settle = self.settle(subject, &claims, count).await?;
        let after = reader.totals().await?;
        let delivered = after.delivered - before.delivered;
        ensure!(after.pending == before.pending, "{} are pending after all", after.pending);
        Ok([ingest.counted(count as u64, pending), claim, settle.counted(count as u64, delivered)])
    }

    pub(super) async fn ingest(
        self,
        MeasuredStore { store, server }: MeasuredStore<'_>,
        count: usize,
    ) -> Result<StoreStep> {
        let mut meter = StepMeter::start(server)?;
        match self {
            Self::Broadcast => broadcast(store, count, &mut meter).await?,
            Self::Own => {
                for first in (0..count).step_by(CALLERS * limits::BATCH_ITEMS) {
                    let end = count.min(first + CALLERS * limits::BATCH_ITEMS);
                    let drafts = meter.leave_out(|| (first..end).map(own).collect::<Vec<Draft>>());
                    let requests = drafts.chunks(limits::BATCH_ITEMS).map(<[Draft]>::to_vec);
                    let requests: Vec<Vec<Draft>> = meter.leave_out(|| requests.collect());
                    try_join_all(requests.into_iter().map(|drafts| accept(store, drafts))).await?;
                }
            }
            Self::Scattered => {
                for first in (0..count).step_by(2 * DESTINATIONS) {
                    let end = count.min(first + 2 * DESTINATIONS);
                    let drafts = meter.leave_out(|| (first..end).map(scattered).collect());
                    accept(store, drafts).await?;
                }
            }
        }
        meter.stop(count)
    }

    /// Settles all of `claims` as delivered.
    async fn settle(
        self,
        MeasuredStore { store, server }: MeasuredStore<'_>,
        claims: &[Vec<Chunk>],
        count: usize,
    ) -> Result<StoreStep> {
        let meter = StepMeter::start(server)?;
        let calls = claims.iter().map(|chunks| async move {
            let parts = chunks.iter().flat_map(|chunk| settlements(chunk, self.part()));
            let settled = store.settle(parts.collect()).await?;
            let is_applied = |it: &Settled| matches!(it, Settled::Applied { .. });
            ensure!(settled.iter().all(is_applied), "a settlement of a current claim is stale");
            Ok(())
        });
        let mut calls = stream::iter(calls).buffer_unordered(SETTLING);
        while let Some(settled) = calls.next().await {
            settled?;
        }
        meter.stop(count)
    }
}

/// A device token of 64 characters.
pub(super) fn token(number: usize) -> String {
    format!("{number:064x}")
}

/// The content of a notification, if each has its own.
pub(super) fn content(number: usize) -> String {
    format!("{number:0CONTENT$}")
}

async fn broadcast(store: &dyn Store, count: usize, meter: &mut StepMeter) -> Result<()> {
    let opened = store.open_broadcast(BroadcastShape::default().draft(), at(0)).await?;
    let BroadcastOpened::Opened(id) = opened else { bail!("a broadcast that was there before") };
    for first in (0..count).step_by(limits::STREAM_RECIPIENTS) {
        let numbers = first..count.min(first + limits::STREAM_RECIPIENTS);
        let recipients =
            meter.leave_out(|| numbers.map(|number| ByteString::from(token(number))).collect());
        let groups = vec![RecipientGroup { recipients, ..RecipientGroup::new("apns".into()) }];
        store.add_recipients(id, groups, at(0)).await?;
    }
    let sealed = store.seal_broadcast(id, at(0)).await?;
    ensure!(sealed == count as u64, "{sealed} recipients of {count}");
    Ok(())
}

async fn accept(store: &dyn Store, drafts: Vec<Draft>) -> Result<()> {
    let admissions = store.ingest(drafts, at(0)).await?;
    let is_new = |it: &Admission| matches!(it, Admission::Accepted(_));
    ensure!(admissions.iter().all(is_new), "a notification without a key was there before");
    Ok(())
}

fn own(number: usize) -> Draft {
    let payload = Bytes::from(content(number));
    Shape { destination: "apns", payload, ..Shape::default() }.draft(&token(number))
}

fn scattered(number: usize) -> Draft {
    let mut draft = own(number);
    draft.envelope.lane.destination = format!("https://{}.example", number % DESTINATIONS).into();
    draft
}

/// Claims everything that is due: the step, and the chunks of each claim, without what a settlement does not need.
async fn claim(
    MeasuredStore { store, server }: MeasuredStore<'_>,
    count: usize,
) -> Result<(StoreStep, Vec<Vec<Chunk>>)> {
    let request = ClaimRequest { items: limits::CLAIM_ITEMS, lease: LEASE, ..claim_request(0) };
    let (mut claims, mut counts) = (Vec::new(), ClaimCounts::new(count));
    let mut meter = StepMeter::start(server)?;
    loop {
        let Claim { chunks: mut claimed, next_at } = store.claim(request).await?;
        if claimed.is_empty() && next_at.is_none_or(|at| at > request.now) {
            break;
        }
        meter.leave_out(|| claimed.iter_mut().try_for_each(|chunk| counts.note(chunk)))?;
        claims.push(claimed);
    }
    Ok((counts.counted(meter.stop(count)?), claims))
}

/// How often each recipient was claimed.
#[derive(Debug)]
struct ClaimCounts(Vec<u32>);

// === impl ClaimCounts ===

impl ClaimCounts {
    fn new(count: usize) -> Self {
        Self(vec![0; count])
    }

    /// Counts all of `chunk`, and takes out what a settlement does not need: a million contents would fill the memory.
    fn note(&mut self, chunk: &mut Chunk) -> Result<()> {
        ensure!(chunk.origins.is_empty(), "a store joins no chunks");
        chunk.content = None;
        for delivery in &mut chunk.deliveries {
            let number = usize::from_str_radix(&delivery.recipient, 16).ok();
            let times = number.and_then(|number| self.0.get_mut(number));
            *times.context("a recipient that was never handed in")? += 1;
            delivery.content = None;
            delivery.recipient = ByteString::new();
        }
        Ok(())
    }

    fn counted(&self, step: StoreStep) -> StoreStep {
        let (mut lost, mut duplicated) = (0, 0);
        for times in &self.0 {
            lost += u64::from(*times == 0);
            duplicated += u64::from(times.saturating_sub(1));
        }
        StoreStep { lost, duplicated, ..step }
    }
}

/// All of `chunk` delivered, in parts of `part`.
fn settlements(chunk: &Chunk, part: usize) -> impl Iterator<Item = Settlement> + '_ {
    chunk.deliveries.chunks(part).map(|deliveries| Settlement {
        chunk: chunk.id,
        epoch: chunk.epoch,
        at: at(1),
        groups: vec![OutcomeGroup {
            disposition: Disposition::Ended(State::Delivered),
            status: 200,
            detail: "".into(),
            suppress: false,
            gone_since: [].into(),
            indexes: deliveries.iter().map(|delivery| delivery.index).collect(),
        }],
        places: 0,
        latency: None,
        rate_per_minute: None,
        fallbacks: Vec::new(),
    })
}
