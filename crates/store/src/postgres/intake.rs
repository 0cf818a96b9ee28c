//! The writer of what comes in: the drafts of all callers of a round packed into shared batches, and broadcasts.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;

use futures_util::SinkExt as _;
use notification::{
    BatchId, BroadcastId, ByteString, Bytes, Draft, Envelope, Lane, Name, NotificationId, Timestamp,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::connection::Session;
use super::copy::encode;
use super::round::{Interrupted, NewChunk, Round};
use super::shared::{Role, Shared};
use super::table::{self, unsigned};
use super::writer::{Asked, Command, Desk, Slot};
use crate::rows::lanes::LaneId;
use crate::rows::packing::{Batches, Filling, Known, Packing};
use crate::{Admission, BroadcastDraft, BroadcastOpened, RecipientGroup, StoreError};

/// What the intake is asked.
#[derive(Debug)]
pub(super) enum Intake {
    Ingest { drafts: Vec<Draft>, now: Timestamp, slot: Slot<Vec<Admission>> },
    Open { draft: BroadcastDraft, slot: Slot<BroadcastOpened> },
    Add { id: BroadcastId, groups: Vec<RecipientGroup>, now: Timestamp, slot: Slot<()> },
    Seal { id: BroadcastId, now: Timestamp, slot: Slot<u64> },
    Abandon { id: BroadcastId, slot: Slot<()> },
}

/// What the intake keeps in memory.
#[derive(Debug)]
pub(super) struct IntakeDesk {
    pub(super) shared: Arc<Shared>,
    /// Numbers that were drawn and not used.
    numbers: VecDeque<BatchId>,
    rounds: u32,
}

/// What one transaction takes in.
pub(super) struct Intaken {
    pub(super) packing: Packing,
    /// Batches of broadcasts.
    pub(super) batches: Vec<Filling>,
    pub(super) lanes: HashMap<Lane, LaneId>,
    pub(super) keys: StoredKeys,
    /// Broadcasts that are open, and locked.
    pub(super) open: BTreeMap<BroadcastId, OpenBroadcast>,
    /// Keys of broadcasts that are sealed.
    pub(super) sealed: Vec<(Name, ByteString, [u8; 32], BroadcastId)>,
}

/// A broadcast whose recipients are still coming.
#[derive(Debug, Clone)]
pub(super) struct OpenBroadcast {
    /// What its batches have in common; the destination is left empty.
    pub(super) envelope: Envelope,
    pub(super) key: Option<(ByteString, [u8; 32])>,
}

/// What stored keys were used for.
pub(super) type StoredKeys = HashMap<(Name, ByteString), (Known, [u8; 32])>;

/// Hands out numbers to batches.
struct Numbering<'a> {
    realm: u16,
    numbers: &'a mut VecDeque<BatchId>,
    keys: &'a StoredKeys,
}

/// Numbers that the sequence skips with each draw.
const BLOCK: u64 = 64;
/// Rounds between two foldings of the running totals.
const ROUNDS_TO_FOLD: u32 = 256;

const DRAW_NUMBERS: &str = "SELECT nextval('batch_number') FROM generate_series(1, $1)";
const ADD_LANES: &str = "INSERT INTO lane (channel, destination, priority) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::smallint[]) ON CONFLICT DO NOTHING";
const SELECT_LANES: &str = "SELECT l.id, l.channel, l.destination, l.priority FROM lane AS l \
     JOIN unnest($1::text[], $2::text[], $3::smallint[]) AS n (channel, destination, priority) \
     ON l.channel = n.channel COLLATE \"C\" AND l.destination = n.destination COLLATE \"C\" \
       AND l.priority = n.priority";
const SELECT_KEYS: &str = "SELECT i.tenant, i.key, i.fingerprint, i.notification, i.broadcast \
     FROM unnest($1::text[], $2::text[]) AS n (tenant, key) JOIN idempotency AS i \
     ON i.tenant = n.tenant COLLATE \"C\" AND i.key = n.key COLLATE \"C\"";
const ADD_KEYS: &str = "INSERT INTO idempotency (tenant, key, fingerprint, notification, broadcast) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[], $5::bigint[])";
const COPY_BATCHES: &str = "COPY batch (id, lane, guarantee, accepted_at, due_at, expires_at, \
     broadcast, count, tenant, options, payload, items) FROM STDIN (FORMAT binary)";

// === impl Intake ===

impl Command for Intake {
    fn items(&self) -> usize {
        match self {
            Self::Ingest { drafts, .. } => drafts.len(),
            Self::Add { groups, .. } => groups.iter().map(|group| group.recipients.len()).sum(),
            Self::Open { .. } | Self::Seal { .. } | Self::Abandon { .. } => 0,
        }
    }

    fn is_impatient(&self) -> bool {
        true
    }

    fn answer(self) {
        match self {
            Self::Ingest { slot, .. } => slot.send(),
            Self::Open { slot, .. } => slot.send(),
            Self::Add { slot, .. } | Self::Abandon { slot, .. } => slot.send(),
            Self::Seal { slot, .. } => slot.send(),
        }
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Ingest { slot, .. } => slot.refuse(error),
            Self::Open { slot, .. } => slot.refuse(error),
            Self::Add { slot, .. } | Self::Abandon { slot, .. } => slot.refuse(error),
            Self::Seal { slot, .. } => slot.refuse(error),
        }
    }
}

// === impl IntakeDesk ===

impl Desk for IntakeDesk {
    type Command = Intake;

    async fn round(
        &mut self,
        session: &Session,
        commands: &mut [Asked<Intake>],
    ) -> Result<(), Interrupted> {
        if commands.is_empty() {
            return Ok(());
        }
        self.draw_numbers(session, commands).await?;
        let shared = Arc::clone(&self.shared);
        let mut round = Round::begin(session, &shared, Role::Intake, "BEGIN").await?;
        let mut intaken = Intaken {
            packing: Packing::default(),
            batches: Vec::new(),
            lanes: HashMap::new(),
            keys: StoredKeys::new(),
            open: BTreeMap::new(),
            sealed: Vec::new(),
        };
        intaken.find(&round, commands).await?;
        for asked in commands.iter_mut() {
            if let Intake::Ingest { drafts, now, slot } = &mut asked.command {
                slot.fill(self.pack(&mut intaken, drafts, *now)?);
            }
        }
        self.broadcasts(&mut round, &mut intaken, commands).await?;
        self.write(&mut round, &mut intaken).await?;
        for asked in commands.iter_mut() {
            if let Intake::Seal { id, now, slot } = &mut asked.command {
                let sealed = super::broadcast::seal(&mut round, &mut intaken, *id, *now).await?;
                slot.fill(sealed);
            }
        }
        add_keys(&round, &intaken).await?;
        let woke = round.woke;
        round.commit().await?;
        if woke {
            self.shared.wake();
        }
        self.fold_totals(session).await
    }

    async fn connected(&mut self, _session: &Session) -> Result<(), Interrupted> {
        Ok(())
    }

    fn wakes_at(&self) -> Option<Instant> {
        None
    }

    fn undone(&mut self) {}
}

impl IntakeDesk {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), numbers: VecDeque::new(), rounds: 0 }
    }

    /// Has a number in hand for every batch that the commands may need: one for each notification, at most.
    async fn draw_numbers(
        &mut self,
        session: &Session,
        commands: &[Asked<Intake>],
    ) -> Result<(), Interrupted> {
        let needed: usize = commands.iter().map(|asked| asked.command.items()).sum();
        let missing = needed.saturating_sub(self.numbers.len()) as u64;
        if missing == 0 {
            return Ok(());
        }
        let blocks = i32::try_from(missing.div_ceil(BLOCK)).unwrap_or(i32::MAX);
        let statement = session.prepared(DRAW_NUMBERS).await?;
        for row in session.client.query(&statement, &[&blocks]).await? {
            let first = unsigned(&row, 0)?;
            self.numbers.extend((first..first + BLOCK).map(BatchId));
        }
        Ok(())
    }

    /// Takes the drafts of one caller in, or refuses them all.
    fn pack(
        &mut self,
        intaken: &mut Intaken,
        drafts: &[Draft],
        now: Timestamp,
    ) -> Result<Result<Vec<Admission>, StoreError>, StoreError> {
        let realm = self.shared.realm;
        let mut numbering = Numbering { realm, numbers: &mut self.numbers, keys: &intaken.keys };
        // They may be needed again, so what is packed shares their bytes.
        match intaken.packing.pack(&mut numbering, drafts.to_vec(), now) {
            Err(error) if error.kind() == crate::ErrorKind::Fatal => Err(error),
            answer => Ok(answer),
        }
    }

    /// Everything about broadcasts but sealing, which comes when their batches are written.
    async fn broadcasts(
        &mut self,
        round: &mut Round<'_>,
        intaken: &mut Intaken,
        commands: &mut [Asked<Intake>],
    ) -> Result<(), Interrupted> {
        for asked in commands {
            match &mut asked.command {
                Intake::Open { draft, slot } => {
                    slot.fill(super::broadcast::open(round, intaken, draft).await?);
                }
                Intake::Add { id, groups, now, slot } => {
                    let numbers = &mut self.numbers;
                    let mut next = || next_number(numbers);
                    let added = super::broadcast::add(intaken, *id, groups, *now, &mut next);
                    slot.fill(added);
                }
                Intake::Abandon { id, slot } => {
                    slot.fill(super::broadcast::abandon(round, intaken, *id).await?);
                }
                Intake::Ingest { .. } | Intake::Seal { .. } => {}
            }
        }
        Ok(())
    }

    /// Writes the batches, and makes due what is not of a broadcast.
    async fn write(&self, round: &mut Round<'_>, intaken: &mut Intaken) -> Result<(), Interrupted> {
        let batches = || intaken.packing.batches.iter().chain(&intaken.batches);
        let wanted: BTreeSet<&Lane> = batches().map(|batch| &batch.envelope.lane).collect();
        intaken.lanes = self.lane_numbers(round.session, wanted).await?;
        if batches().next().is_some() {
            copy_batches(round.session, batches(), &intaken.lanes).await?;
        }
        for batch in &intaken.packing.batches {
            round.count_accepted(batch.items.len() as u64);
            round.add_chunk(NewChunk {
                batch: batch.id,
                lane: lane_of(&intaken.lanes, batch)?,
                due_at: batch.envelope.due_at,
                attempt: 1,
                crashes: 0,
                count: batch.items.len(),
                members: None,
            });
        }
        Ok(())
    }

    /// The numbers of lanes. New ones are stored.
    async fn lane_numbers(
        &self,
        session: &Session,
        wanted: BTreeSet<&Lane>,
    ) -> Result<HashMap<Lane, LaneId>, Interrupted> {
        let mut known = HashMap::new();
        let mut missing = Vec::new();
        {
            let board = self.shared.board();
            for lane in wanted {
                match board.number_of(lane) {
                    Some(id) => _ = known.insert(lane.clone(), id),
                    None => missing.push(lane.clone()),
                }
            }
        }
        if missing.is_empty() {
            return Ok(known);
        }
        let channels: Vec<&str> = missing.iter().map(|lane| lane.channel.as_str()).collect();
        let destinations: Vec<&str> = missing.iter().map(|lane| &*lane.destination).collect();
        let priorities: Vec<i16> =
            missing.iter().map(|lane| i16::from(lane.priority.code())).collect();
        let (add, select) =
            (session.prepared(ADD_LANES).await?, session.prepared(SELECT_LANES).await?);
        session.client.execute(&add, &[&channels, &destinations, &priorities]).await?;
        let rows = session.client.query(&select, &[&channels, &destinations, &priorities]).await?;
        let mut board = self.shared.board();
        for row in rows {
            let (id, lane) = (LaneId::from(row.try_get::<_, i32>(0)?), table::lane(&row, 1)?);
            board.learn(id, lane.clone());
            known.insert(lane, id);
        }
        Ok(known)
    }

    /// Now and then puts the changes of the running totals together. One process at a time.
    async fn fold_totals(&mut self, session: &Session) -> Result<(), Interrupted> {
        self.rounds += 1;
        if self.rounds < ROUNDS_TO_FOLD {
            return Ok(());
        }
        self.rounds = 0;
        super::totals::fold(session).await
    }
}

// === impl Intaken ===

impl Intaken {
    /// Reads what is stored under the keys, and locks the open broadcasts, of all commands.
    async fn find(
        &mut self,
        round: &Round<'_>,
        commands: &[Asked<Intake>],
    ) -> Result<(), Interrupted> {
        let mut wanted: BTreeSet<(&Name, &ByteString)> = BTreeSet::new();
        let mut broadcasts: BTreeSet<BroadcastId> = BTreeSet::new();
        for asked in commands {
            match &asked.command {
                Intake::Ingest { drafts, .. } => wanted.extend(drafts.iter().filter_map(|draft| {
                    let idempotency = draft.idempotency.as_ref()?;
                    Some((&draft.envelope.tenant, &idempotency.key))
                })),
                Intake::Open { draft, .. } => {
                    let key = draft.idempotency.as_ref().map(|idempotency| &idempotency.key);
                    wanted.extend(key.map(|key| (&draft.tenant, key)));
                }
                Intake::Add { id, .. } | Intake::Seal { id, .. } | Intake::Abandon { id, .. } => {
                    broadcasts.insert(*id);
                }
            }
        }
        self.open = super::broadcast::lock(round, &broadcasts).await?;
        for broadcast in self.open.values() {
            wanted.extend(broadcast.key.iter().map(|(key, _)| (&broadcast.envelope.tenant, key)));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let tenants: Vec<&str> = wanted.iter().map(|(tenant, _)| tenant.as_str()).collect();
        let keys: Vec<&str> = wanted.iter().map(|(_, key)| &***key).collect();
        for row in round.query(SELECT_KEYS, &[&tenants, &keys]).await? {
            let known = match row.try_get::<_, Option<Uuid>>(3)? {
                Some(id) => Known::Notification(NotificationId::from_bytes(id.into_bytes())),
                None => Known::Broadcast(BroadcastId(unsigned(&row, 4)?)),
            };
            let key = ByteString::from(row.try_get::<_, &str>(1)?);
            let tenant = crate::rows::model::name(row.try_get(0)?)?;
            self.keys.insert((tenant, key), (known, fingerprint(row.try_get(2)?)?));
        }
        Ok(())
    }

    /// Whether a key was used, be it in this transaction.
    pub(super) fn is_used(&self, tenant: &Name, key: &ByteString) -> bool {
        let key = (tenant.clone(), key.clone());
        self.keys.contains_key(&key)
            || self.packing.keys.contains_key(&key)
            || self.sealed.iter().any(|(tenant, used, ..)| (tenant, used) == (&key.0, &key.1))
    }
}

// === impl Numbering ===

impl Batches for Numbering<'_> {
    fn realm(&self) -> u16 {
        self.realm
    }

    fn known_key(&self, tenant: &Name, key: &str) -> Result<Option<(Known, [u8; 32])>, StoreError> {
        Ok(self.keys.get(&(tenant.clone(), ByteString::from(key))).copied())
    }

    fn next_batch(&mut self) -> BatchId {
        next_number(self.numbers)
    }
}

#[expect(clippy::expect_used, reason = "one was drawn for every notification of the round")]
fn next_number(numbers: &mut VecDeque<BatchId>) -> BatchId {
    numbers.pop_front().expect("enough numbers were drawn")
}

pub(super) fn fingerprint(bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    bytes
        .try_into()
        .map_err(|_| StoreError::Damaged("a fingerprint is not 32 bytes long".to_owned()))
}

pub(super) fn lane_of(
    lanes: &HashMap<Lane, LaneId>,
    batch: &Filling,
) -> Result<LaneId, StoreError> {
    let lane = &batch.envelope.lane;
    let missing = || StoreError::Damaged(format!("the lane of {} is missing", lane.destination));
    lanes.get(lane).copied().ok_or_else(missing)
}

/// Writes batches, and nothing that would make them due.
async fn copy_batches<'a>(
    session: &Session,
    batches: impl Iterator<Item = &'a Filling>,
    lanes: &HashMap<Lane, LaneId>,
) -> Result<(), Interrupted> {
    let statement = session.prepared(COPY_BATCHES).await?;
    let mut sink = pin!(session.client.copy_in::<_, Bytes>(&statement).await?);
    for piece in encode(batches, |batch| lane_of(lanes, batch))? {
        sink.send(piece).await?;
    }
    sink.finish().await?;
    Ok(())
}

/// Notes what the keys of this transaction are used for: in one order, so that two processes never wait for each other.
async fn add_keys(round: &Round<'_>, intaken: &Intaken) -> Result<(), Interrupted> {
    let notifications = intaken.packing.keys.iter().map(|((tenant, key), (fingerprint, id))| {
        (tenant, key, &fingerprint[..], Some(Uuid::from_bytes(id.to_bytes())), None)
    });
    let broadcasts = intaken.sealed.iter().map(|(tenant, key, fingerprint, id)| {
        (tenant, key, &fingerprint[..], None, Some(id.0.cast_signed()))
    });
    let mut used: Vec<_> = notifications.chain(broadcasts).collect();
    if used.is_empty() {
        return Ok(());
    }
    used.sort_by_key(|(tenant, key, ..)| (*tenant, *key));
    let tenants: Vec<&str> = used.iter().map(|(tenant, ..)| tenant.as_str()).collect();
    let keys: Vec<&str> = used.iter().map(|(_, key, ..)| &***key).collect();
    let fingerprints: Vec<&[u8]> =
        used.iter().map(|(_, _, fingerprint, ..)| *fingerprint).collect();
    let notifications: Vec<Option<Uuid>> = used.iter().map(|(_, _, _, id, _)| *id).collect();
    let broadcasts: Vec<Option<i64>> = used.iter().map(|(.., id)| *id).collect();
    round.query(ADD_KEYS, &[&tenants, &keys, &fingerprints, &notifications, &broadcasts]).await?;
    Ok(())
}
