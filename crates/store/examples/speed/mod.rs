//! The work that both measurements do, and the counters of a process that they read.

#![expect(clippy::expect_used, reason = "a measurement fails by panicking")]

use notification::{
    ByteString, Bytes, Chunk, Disposition, Draft, OutcomeGroup, Settlement, State, limits,
};
use store::conformance::{BroadcastShape, Shape, at};
use store::{BroadcastOpened, Ingest, RecipientGroup};

/// A device token of 64 characters.
pub(crate) fn token(number: usize) -> ByteString {
    format!("{number:064x}").into()
}

/// A broadcast to `count` recipients, `step` of them at a time.
pub(crate) async fn broadcast(store: &dyn Ingest, count: usize, step: usize) {
    let draft = BroadcastShape::default().draft();
    let opened = store.open_broadcast(draft, at(0)).await.expect("open");
    let BroadcastOpened::Opened(id) = opened else { return };
    for first in (0..count).step_by(step) {
        let recipients = (first..count.min(first + step)).map(token).collect();
        let groups = vec![RecipientGroup { recipients, ..RecipientGroup::new("apns".into()) }];
        store.add_recipients(id, groups, at(0)).await.expect("add");
    }
    assert_eq!(store.seal_broadcast(id, at(0)).await.expect("seal"), count as u64);
}

/// Makes `count` drafts in requests of 1,000, each with its own content of 200 bytes.
pub(crate) fn make_own(count: usize) {
    for first in (0..count).step_by(limits::BATCH_ITEMS) {
        std::hint::black_box(own_drafts(first));
    }
}

/// Makes drafts and ingests them, eight callers at a time.
pub(crate) async fn ingest_own(store: &dyn Ingest, count: usize) {
    for first in (0..count).step_by(8 * limits::BATCH_ITEMS) {
        let request =
            |part: usize| store.ingest(own_drafts(first + part * limits::BATCH_ITEMS), at(0));
        let _answers = tokio::join!(
            request(0),
            request(1),
            request(2),
            request(3),
            request(4),
            request(5),
            request(6),
            request(7),
        );
    }
}

/// All of `chunk` delivered, in parts of `part`.
pub(crate) fn parts(chunk: &Chunk, part: usize) -> impl Iterator<Item = Settlement> + '_ {
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

/// User and system time of a process; 0 when it is gone.
pub(crate) fn cpu_us(process: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).flat_map(str::parse::<u64>).sum();
    ticks * 10_000
}

fn own_drafts(first: usize) -> Vec<Draft> {
    let shape = Shape { destination: "apns", ..Shape::default() };
    let draft = |number: usize| {
        let payload = Bytes::from(format!("{number:0200}"));
        Shape { payload, ..shape.clone() }.draft(&token(number))
    };
    (first..first + limits::BATCH_ITEMS).map(draft).collect()
}
