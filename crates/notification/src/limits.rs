//! The bounds that crates share or hold against each other, with their owners and reasons. A bound of one crate alone stands
//! where it is used. There are no unbounded queues.

use std::time::Duration;

// --- The size of requests (owner: api, ingest) ---

/// Recipient, bytes. The longest in use are Web Push endpoints and URLs with tokens in them.
pub const RECIPIENT_BYTES: usize = 2048;
/// Payload, bytes. Providers take 4 KiB, webhooks are advised to stay under 20 kB; the largest example
/// payloads of GitHub's webhooks are near 30 kB.
pub const PAYLOAD_BYTES: usize = 256 * 1024;
/// A channel's options, bytes.
pub const OPTIONS_BYTES: usize = 4096;
/// Idempotency key, bytes.
pub const KEY_BYTES: usize = 255;
/// External id, bytes: as long as a key, for it is one in another system.
pub const EXTERNAL_ID_BYTES: usize = 255;
/// Tags of a notification: each costs an entry of the search index.
pub const TAGS: usize = 8;
/// A tag, bytes.
pub const TAG_BYTES: usize = 64;
/// Metadata, bytes. They come back with every event and every list.
pub const METADATA_BYTES: usize = 1024;
/// How far in the past `send_at` may lie: the caller's clock may differ from ours.
pub const CLOCK_TOLERANCE: Duration = Duration::from_mins(1);
/// How late a notification with the policy `skip` may still be sent.
pub const LATE_AFTER: Duration = Duration::from_mins(1);
/// Notifications in one atomic request. Bounds how long one caller holds the writer.
pub const REQUEST_ITEMS: usize = 10_000;
/// Body of one atomic request, bytes.
pub const REQUEST_BYTES: usize = 16 * 1024 * 1024;
/// One line of a stream, bytes: a payload, its recipient and the JSON around them.
pub const LINE_BYTES: usize = PAYLOAD_BYTES + 16 * 1024;
/// Bytes of request bodies being parsed or waiting for their commit, over all callers; more is answered
/// with 503 and Retry-After.
pub const INGEST_BYTES: usize = 64 * 1024 * 1024;
/// The share of [`INGEST_BYTES`] that one tenant may hold; more is answered with 429 and Retry-After. Two of the largest requests, or
/// 16 streams.
pub const INGEST_TENANT_BYTES: usize = 2 * REQUEST_BYTES;
/// The part of [`INGEST_BYTES`] that only small requests may use, so that however much large ones hold, a
/// single notification finds room.
pub const INGEST_RESERVE: usize = 8 * 1024 * 1024;
/// A request that holds no more than this is small, bytes.
pub const INGEST_SMALL: usize = 64 * 1024;
/// The bytes of [`INGEST_BYTES`] that one stream reserves while it holds anything: the groups that are with the
/// store, the one being collected, and a long line. One that waits for its next line holds nothing.
pub const STREAM_BYTES: usize = 2 * 1024 * 1024;
/// Store calls of one stream under way at a time: one commits while the next is read.
pub const STREAM_CALLS: usize = 2;
/// Notifications of a stream handed to the store at once, in whole batches.
pub const STREAM_ITEMS: usize = 2 * BATCH_ITEMS;
/// Recipients of a broadcast handed to the store at once, in whole batches.
pub const STREAM_RECIPIENTS: usize = 8 * BATCH_ITEMS;
/// Notifications that a traced request hands in, recipients of a broadcast as well, to one that is traced: the first one, and so on. A
/// million are a thousand traced ones.
pub const TRACED_EVERY: u64 = 1_000;
/// Bytes of a stream handed to the store at once.
pub const STREAM_GROUP_BYTES: usize = STREAM_BYTES / 4;
/// Bytes of all fallbacks of a notification: with its own content they fit a batch.
pub const FALLBACK_BYTES: usize = PAYLOAD_BYTES;
/// The Retry-After of an answer when the bytes are used up: a few commits.
pub const OVERLOAD_RETRY_AFTER: Duration = Duration::from_secs(1);

// --- How slowly a caller may send, and how much it reads at once (owner: api) ---

/// Between two pieces of a body, or of an answer that the caller does not read.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Questions that the store answers at a time, each with a connection of its own; more wait.
pub const READERS: u32 = 4;
/// The part of [`READERS`] that tenants may use together. The rest answers operators, and the engine itself.
pub const TENANTS_READERS: usize = 3;
/// The share of [`TENANTS_READERS`] that one tenant may have.
pub const TENANT_READERS: usize = 2;
/// Questions of one tenant that are answered or wait; more is answered with 429 and Retry-After. A page of a list takes some 20 ms where the
/// disk is slow, so the last one waits for a second.
pub const TENANT_READS: usize = 64;
/// Questions of all tenants that are answered or wait; more is answered with 503 and Retry-After.
pub const TENANTS_READS: usize = 1_024;
/// Items of a list in one answer.
pub const LIST_ITEMS: usize = 1_000;

// --- How work is cut (owner: store) ---

/// Notifications in one batch, and so in one chunk: large enough to make the per-row cost vanish, small
/// enough that one claim is a few milliseconds of sending. An index has 16 bits.
pub const BATCH_ITEMS: usize = 1_000;
/// Bytes of recipients, contents, labels and traces in one batch: one row is read and decoded as a whole.
pub const BATCH_BYTES: usize = 1024 * 1024;
/// Commands of one kind waiting for a writer of the store; beyond it callers of this kind wait.
pub const WRITER_COMMANDS: usize = 4_096;
/// Commands in one transaction: bounds the time until the first of them is durable.
pub const TRANSACTION_COMMANDS: usize = 1_024;
/// Notifications ingested in one transaction, for the same reason.
pub const TRANSACTION_ITEMS: usize = 50_000;
/// Batches of a broadcast that get their chunks, or whose chunks are withdrawn, in one transaction. Other requests have their
/// turn between two of these. It is all of two million recipients of one destination; of rare destinations, so many.
pub const SLICE_BATCHES: usize = 2_048;
/// Rows of the outbox taken in one transaction, for the same reason.
pub const OUTBOX_ROWS: usize = 20_000;
/// Bytes of such rows, about: they are in memory until then.
pub const OUTBOX_BYTES: usize = 16 * 1024 * 1024;

// --- Free space on the disk (owner: store) ---

/// Free bytes below which nothing more is accepted: twice what is in [`INGEST_BYTES`], once for the write-ahead log and once
/// for the database.
pub const DISK_LOW: u64 = 2 * INGEST_BYTES as u64;
/// Free bytes from which on something is accepted again: half as much more, so that it does not change with every file.
pub const DISK_RESUME: u64 = DISK_LOW / 2 * 3;
/// Bytes kept for what is under way when other programs fill the disk. The log and the write-ahead log of a notification that was
/// stored alone take about 2 KiB when it is settled with unrelated ones, and a thousand of one chunk 64 KiB: so this is 20,000 of
/// those, or 640,000 of these, and what is settled frees room in the database for the next.
pub const DISK_RESERVE: u64 = 64 * 1024 * 1024;
/// The part of it that is left for settling and for recovery: no attempt is begun that would need it.
pub const DISK_RESERVE_LAST: u64 = DISK_RESERVE / 4;
/// Bytes that one transaction that accepts nothing may write: [`TRANSACTION_COMMANDS`] of some pages each.
pub const DISK_TRANSACTION: u64 = 16 * 1024 * 1024;
/// Bytes that the reserve gives back at a time.
pub const DISK_STEP: u64 = 8 * 1024 * 1024;
/// How often a disk that is nearly full is looked at, at least.
pub const DISK_LOOK: Duration = Duration::from_secs(5);
/// Bytes of the write-ahead log from which on nothing more is accepted: a reader of another process keeps it from starting
/// anew. Four times what it has when readers are asked to make way.
pub const WAL_BYTES: u64 = 1024 * 1024 * 1024;

// --- How much is under way (owner: dispatch, deliver) ---

/// The weight of a claimed chunk beside its deliveries: the task, message and rows that even a chunk of one
/// takes. So a slow destination of many one-offs holds about a hundred chunks, not thousands.
pub const CHUNK_WEIGHT: usize = 64;
/// Deliveries of one lane that may be claimed and unsettled, weighed by [`CHUNK_WEIGHT`], however many its destination takes: four
/// fifths of what [`PROBE_WINDOW`] and the part for urgent ones leave of [`CLAIMED_ITEMS`], rounded up to whole batches. With a
/// provider that takes 300 ms it is 1,040,000 a second, since each takes 311 there and a chunk has its weight.
pub const LANE_WINDOW: usize = 346 * BATCH_ITEMS;
/// Chunks that other sender threads have handed to one and it has not begun. Beyond, they send them themselves.
pub const HANDED_CHUNKS: usize = 1_024;
/// Deliveries claimed and unsettled over all lanes, weighed likewise; their bytes have a bound of their own,
/// [`CLAIMED_BYTES`]. A lane holds at most twice as much as is left, one that is nearly alone four times.
pub const CLAIMED_ITEMS: usize = 640 * BATCH_ITEMS;
/// The part of [`CLAIMED_ITEMS`] for destinations that have not answered lately: a fifth, which is 1,960 of them with one delivery
/// each.
pub const PROBE_WINDOW: usize = CLAIMED_ITEMS / 5;
/// Bytes of recipients and contents that the chunks in the queue of a process may hold before no more is claimed, delivered
/// ones included until their chunk is settled as a whole. They may be in memory twice: as stored, and as written to the wire.
pub const CLAIMED_BYTES: usize = 32 * 1024 * 1024;
/// Bytes claimed at once, and so what is in hand beside them; one chunk may go beyond.
pub const CLAIM_BYTES: usize = 8 * 1024 * 1024;
/// Bytes that are included in the weight of one delivery. Each half as many beyond them add one, since bytes may be in memory
/// twice.
pub const WEIGHT_BYTES: usize = 512;
/// Bytes of a claimed delivery beside its recipient and content, its attempt over HTTP/2 included: 390 were measured with
/// recipients of 64, and less while one waits for a stream. One that is sent again, or at most once, takes twice that, a webhook or a
/// mail 1.7 to 2.7 kB and a socket.
pub const DELIVERY_BYTES: usize = 512;
/// Deliveries claimed at once.
pub const CLAIM_ITEMS: usize = 8 * BATCH_ITEMS;
/// How long a claim lasts: more than twice the longest attempt with its margin, so that most of it is usable. A process
/// that dies or stalls is found out sooner ([`WORKER_LEASE`], or its next start); this is for a chunk that a defect lost.
pub const LEASE: Duration = Duration::from_mins(40);
/// No attempt starts when less than this is left of the lease, so none can outlive it.
pub const LEASE_MARGIN: Duration = Duration::from_secs(45);
/// How long one attempt may take; below [`LEASE_MARGIN`], so that its answer is settled within the lease.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an attempt may take over a protocol whose answers do: SMTP allows ten minutes for the last one (RFC 5321,
/// section 4.5.3.2.6), and five before it.
pub const PATIENT_ATTEMPT_TIMEOUT: Duration = Duration::from_mins(16);
/// [`LEASE_MARGIN`] for those attempts.
pub const PATIENT_LEASE_MARGIN: Duration =
    Duration::from_secs(PATIENT_ATTEMPT_TIMEOUT.as_secs() + 15);
/// Weight of the in-process queue where claims feed it: far above what they let under way, so publishing never waits and
/// no lane holds up another.
pub const QUEUE_WEIGHT: usize = 20 * CLAIMED_ITEMS;
/// Weight of the in-process queue where tickets feed it: what one consumer holds.
pub const CONSUMER_WEIGHT: usize = CLAIMED_ITEMS;
/// Tickets taken at once: one round trip to the store.
pub const TAKE_TICKETS: usize = 64;
/// How long a ticket is good. Consumers take tickets as they come, so one that is older was lost by its broker, and is
/// issued anew.
pub const TICKET_LEASE: Duration = Duration::from_secs(30);
/// Deliveries of an at-most-once chunk marked as begun at a time: what one crash can leave in doubt beside what was on the wire.
pub const BEGIN_ITEMS: usize = 128;
/// Batches of reports waiting for settle; beyond it deliver waits.
pub const REPORT_BATCHES: usize = 256;
/// Reports sent to settle at once.
pub const REPORT_ITEMS: usize = 256;
/// Bytes of a report with the provider's words.
pub const REPORT_BYTES: usize = DETAIL_BYTES + 64;
/// Crashes that a chunk may be in flight in before it is suspected. A single crash, and the one after it, return the work
/// as it was.
pub const CRASHES_BEFORE_SUSPICION: u16 = 3;
/// Parts that suspected deliveries are divided into after each crash, tried one after the other: 256,000 are told apart
/// in five crashes, and all parts of one division have started within half a minute.
pub const SUSPECT_PARTS: usize = 16;
/// Between the starts of two suspected parts, and before the first: longer than most attempts take, and a process that
/// such a part ends starts less than five times in ten seconds, which is when systemd gives a unit up.
pub const SUSPECT_PAUSE: Duration = Duration::from_secs(2);
/// A delivery that was claimed for longer when its process ended was not the cause, unless the process failed by itself:
/// what ends a process does so while it is sent or soon after, and a long attempt is in flight at many unrelated ends.
pub const SUSPECT_TRIAL: Duration = Duration::from_mins(1);
/// The weight of one crash by a fault of the process; one of unknown cause weighs 1.
pub const FAULT_WEIGHT: u16 = 6;
/// Weight of crashes with a single suspected notification in flight after which it is quarantined: four by a fault, or 24
/// in a row by an unknown cause. More than three, so that another one that is not suspected yet and ends the
/// process three times cannot be mistaken for it; more than twenty kills, because an operator kills.
pub const WEIGHT_BEFORE_QUARANTINE: u16 = 24;

// --- The memory that all of this may take (owner: belfry) ---

/// Everything that is held of notifications between a caller and a provider, bytes: what is coming in, what is claimed, what is
/// written to the wire, what is reported, and the pages of the embedded store. Not in it are the program itself, the heads
/// of requests, and lists of what is suppressed or known.
pub const MEMORY_BYTES: usize = 528 * 1024 * 1024;
/// Pages of the embedded store in memory, bytes: those of its writer and of four readers.
pub const STORE_CACHE_BYTES: usize = 48 * 1024 * 1024;

/// The weight of a chunk of `items` deliveries for holding `bytes`, beside its deliveries and [`CHUNK_WEIGHT`].
pub const fn weight_of_bytes(items: usize, bytes: usize) -> usize {
    bytes.saturating_sub(items * WEIGHT_BYTES) / (WEIGHT_BYTES / 2)
}

/// Pauses of a store, of all tenants together: each process has all of them in memory.
pub const PAUSES: usize = 10_000;

/// API keys that calls made, of all tenants together: each process has all of them in memory.
pub const STORED_KEYS: usize = 10_000;
/// The grants of a stored API key, bytes.
pub const GRANTS_BYTES: usize = 16 * 1024;

// --- Workers of a cluster (owner: store) ---

/// Virtual partitions: more than there will be producers, so that shares differ little; few enough to lease one by one.
pub const PARTITIONS: u16 = 64;
/// How often a worker says that it is alive.
pub const WORKER_BEAT: Duration = Duration::from_secs(2);
/// How long a worker is alive after its last heartbeat. A process that was killed is taken over from after this; one that pauses for less loses
/// nothing. It starts no attempt in the second half, so what it sends is answered before another worker sends it.
pub const WORKER_LEASE: Duration = Duration::from_secs(10);

// --- Tickets in a broker (owner: queue) ---

/// Tickets of one priority that may wait in a broker: the windows of sixteen consumers, all of the lightest chunks.
pub const BROKER_TICKETS: u64 = 163_840;

// --- The part of an answer that is kept (owner: channel) ---

/// The provider's words kept per attempt, bytes.
pub const DETAIL_BYTES: usize = 200;

const _: () = {
    assert!(BATCH_ITEMS <= u16::MAX as usize, "an index within a batch has 16 bits");
    assert!(REQUEST_ITEMS <= u16::MAX as usize, "and one within a group of recipients");
    assert!(
        ATTEMPT_TIMEOUT.as_secs() < LEASE_MARGIN.as_secs(),
        "an attempt must end within the lease"
    );
    assert!(LEASE_MARGIN.as_secs() < PATIENT_LEASE_MARGIN.as_secs());
    assert!(PATIENT_LEASE_MARGIN.as_secs() < LEASE.as_secs() / 2, "most of a lease must be usable");
    // A window that is larger than the sum of all would never be reached.
    assert!(LANE_WINDOW <= CLAIMED_ITEMS && CLAIM_ITEMS <= CLAIMED_ITEMS);
    // Windows count what is unsettled, the queue whole chunks; an eighth of the queue is left to urgent ones.
    assert!(
        CLAIMED_ITEMS / (CHUNK_WEIGHT + 1) * (CHUNK_WEIGHT + BATCH_ITEMS) <= QUEUE_WEIGHT / 8 * 7,
        "publishing must not wait, even if all but one delivery of every chunk is settled"
    );
    assert!(BEGIN_ITEMS <= BATCH_ITEMS);
    assert!(
        DISK_TRANSACTION <= DISK_RESERVE_LAST
            && DISK_STEP <= DISK_TRANSACTION
            && DISK_TRANSACTION < DISK_LOW
    );
    assert!(
        CRASHES_BEFORE_SUSPICION * FAULT_WEIGHT < WEIGHT_BEFORE_QUARANTINE,
        "a neighbour is suspected before an innocent one is quarantined"
    );
    assert!(OUTBOX_ROWS <= TRANSACTION_ITEMS);
    // Contents are in memory as they are stored and as they are written to the wire.
    let under_way = 2 * CLAIMED_BYTES
        + CLAIMED_ITEMS * DELIVERY_BYTES
        + REPORT_BATCHES * REPORT_ITEMS * REPORT_BYTES;
    // A claim may exceed its bound by one chunk.
    assert!(
        INGEST_BYTES + CLAIM_BYTES + BATCH_BYTES + under_way + STORE_CACHE_BYTES <= MEMORY_BYTES,
        "a process that does everything"
    );
    assert!(
        2 * TAKE_TICKETS * BATCH_BYTES <= MEMORY_BYTES - under_way,
        "a consumer takes chunks for tickets twice at a time: urgent ones, and all"
    );
    assert!(WORKER_BEAT.as_secs() * 2 < WORKER_LEASE.as_secs() / 2, "a beat may fail");
    assert!(
        (CLAIMED_ITEMS / (CHUNK_WEIGHT + 1) * 16) as u64 <= BROKER_TICKETS,
        "what sixteen consumers may have under way must fit"
    );
    assert!(LINE_BYTES <= REQUEST_BYTES && REQUEST_BYTES <= INGEST_BYTES);
    assert!(LINE_BYTES <= STREAM_GROUP_BYTES && STREAM_BYTES <= INGEST_TENANT_BYTES);
    assert!(INGEST_TENANT_BYTES + INGEST_RESERVE < INGEST_BYTES, "one tenant leaves room");
    assert!(
        TENANT_READERS < TENANTS_READERS && TENANTS_READERS < READERS as usize,
        "others have some left"
    );
    assert!(TENANT_READS < TENANTS_READS, "one tenant leaves room");
    assert!(INGEST_SMALL < INGEST_RESERVE, "small requests fit the reserve");
    // The calls, the group that is collected, and a long line.
    assert!((STREAM_CALLS + 2) * STREAM_GROUP_BYTES <= STREAM_BYTES);
    assert!(STREAM_RECIPIENTS <= REQUEST_ITEMS && STREAM_ITEMS <= REQUEST_ITEMS);
    assert!(
        BATCH_BYTES >= PAYLOAD_BYTES + RECIPIENT_BYTES + OPTIONS_BYTES + FALLBACK_BYTES,
        "any one must fit"
    );
};
