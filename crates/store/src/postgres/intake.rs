//! The writer of what comes in: the drafts of all callers of a round packed into shared batches, and broadcasts.
//!
//! What can be found out beforehand is: keys, lanes, numbers. The transaction itself is short, and another process that
//! was faster makes it fail and run again.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use notification::{BatchId, BroadcastId, ByteString, Draft, Lane, Name, Timestamp};
use tokio::time::Instant;

use super::broadcast::{self, OpenBroadcast};
use super::connection::Session;
use super::ingest::{self, Numbering, StoredKeys};
use super::round::{Interrupted, NewChunk, Round};
use super::shared::{Role, Shared};
use super::writer::{Asked, Command, Desk, Slot};
use crate::rows::lanes::LaneId;
use crate::rows::packing::{Filling, Packing};
use crate::{Admission, BroadcastDraft, BroadcastOpened, ErrorKind, RecipientGroup, StoreError};

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
    shared: Arc<Shared>,
    /// Numbers that were drawn and not used.
    numbers: VecDeque<BatchId>,
    rounds: u32,
}

/// What one transaction takes in.
#[derive(Debug, Default)]
pub(super) struct Intaken {
    pub(super) packing: Packing,
    /// Batches of broadcasts.
    pub(super) batches: Vec<Filling>,
    pub(super) lanes: HashMap<Lane, LaneId>,
    /// What is stored under the keys that are named.
    pub(super) keys: StoredKeys,
    /// Broadcasts that are open.
    pub(super) open: BTreeMap<BroadcastId, OpenBroadcast>,
    /// Keys of broadcasts that are sealed.
    pub(super) sealed: Vec<(Name, ByteString, [u8; 32], BroadcastId)>,
}

/// Rounds between two foldings of the running totals.
const ROUNDS_TO_FOLD: u32 = 256;

// === impl Intake ===

impl Intake {
    fn broadcast(&self) -> Option<BroadcastId> {
        match self {
            Self::Add { id, .. } | Self::Seal { id, .. } | Self::Abandon { id, .. } => Some(*id),
            Self::Ingest { .. } | Self::Open { .. } => None,
        }
    }
}

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
        self.fold_totals(session).await?;
        if commands.is_empty() {
            return Ok(());
        }
        let mut intaken = self.prepare(session, commands).await?;
        let shared = Arc::clone(&self.shared);
        let mut round = Round::begin(session, &shared, Role::Intake, "BEGIN").await?;
        broadcast::lock(&round, &intaken.open).await?;
        for asked in commands.iter_mut() {
            if let Intake::Open { draft, slot } = &mut asked.command {
                slot.fill(broadcast::open(&round, &intaken, draft).await?);
            } else if let Intake::Abandon { id, slot } = &mut asked.command {
                slot.fill(broadcast::abandon(&round, &mut intaken, *id).await?);
            }
        }
        ingest::copy(session, &intaken).await?;
        for asked in commands.iter_mut() {
            if let Intake::Seal { id, now, slot } = &mut asked.command {
                slot.fill(broadcast::seal(&mut round, &mut intaken, *id, *now).await?);
            }
        }
        release(&mut round, &intaken)?;
        ingest::add_keys(&round, &intaken).await?;
        let woke = round.woke;
        round.commit().await?;
        if woke {
            self.shared.wake();
        }
        Ok(())
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

    /// Reads what there is, and packs what comes.
    async fn prepare(
        &mut self,
        session: &Session,
        commands: &mut [Asked<Intake>],
    ) -> Result<Intaken, Interrupted> {
        let needed = commands.iter().map(|asked| asked.command.items()).sum();
        ingest::draw_numbers(session, &mut self.numbers, needed).await?;
        let broadcasts: BTreeSet<BroadcastId> =
            commands.iter().filter_map(|asked| asked.command.broadcast()).collect();
        let open = broadcast::find_open(session, &broadcasts).await?;
        let keys = ingest::find_keys(session, &named_keys(commands, &open)).await?;
        let mut intaken = Intaken { keys, open, ..Intaken::default() };
        for asked in commands.iter_mut() {
            if let Intake::Ingest { drafts, now, slot } = &mut asked.command {
                slot.fill(self.pack(&mut intaken, drafts, *now)?);
            } else if let Intake::Add { id, groups, now, slot } = &mut asked.command {
                let next = &mut || ingest::next_number(&mut self.numbers);
                slot.fill(broadcast::add(&mut intaken, *id, groups, *now, next));
            }
        }
        let batches = intaken.packing.batches.iter().chain(&intaken.batches);
        let wanted: BTreeSet<&Lane> = batches.map(|batch| &batch.envelope.lane).collect();
        intaken.lanes = ingest::lane_numbers(session, &self.shared, wanted).await?;
        Ok(intaken)
    }

    /// Takes the drafts of one caller in, or refuses them all. They may be needed again, so what is packed shares their
    /// bytes.
    fn pack(
        &mut self,
        intaken: &mut Intaken,
        drafts: &[Draft],
        now: Timestamp,
    ) -> Result<Result<Vec<Admission>, StoreError>, StoreError> {
        let realm = self.shared.realm;
        let mut numbering = Numbering { realm, numbers: &mut self.numbers, keys: &intaken.keys };
        match intaken.packing.pack(&mut numbering, drafts.to_vec(), now) {
            Err(error) if error.kind() == ErrorKind::Fatal => Err(error),
            answer => Ok(answer),
        }
    }

    /// Now and then puts the changes of the running totals together.
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
    /// Whether a key was used, be it in this transaction.
    pub(super) fn is_used(&self, tenant: &Name, key: &ByteString) -> bool {
        let key = (tenant.clone(), key.clone());
        self.keys.contains_key(&key)
            || self.packing.keys.contains_key(&key)
            || self.sealed.iter().any(|(tenant, used, ..)| (tenant, used) == (&key.0, &key.1))
    }
}

/// All keys that the commands name, those of their broadcasts among them.
fn named_keys<'a>(
    commands: &'a [Asked<Intake>],
    open: &'a BTreeMap<BroadcastId, OpenBroadcast>,
) -> BTreeSet<(&'a Name, &'a ByteString)> {
    let mut keys = BTreeSet::new();
    for asked in commands {
        if let Intake::Ingest { drafts, .. } = &asked.command {
            keys.extend(drafts.iter().filter_map(|draft| {
                let idempotency = draft.idempotency.as_ref()?;
                Some((&draft.envelope.tenant, &idempotency.key))
            }));
        } else if let Intake::Open { draft, .. } = &asked.command {
            let key = draft.idempotency.as_ref().map(|idempotency| &idempotency.key);
            keys.extend(key.map(|key| (&draft.tenant, key)));
        }
    }
    for broadcast in open.values() {
        keys.extend(broadcast.key.iter().map(|(key, _)| (&broadcast.envelope.tenant, key)));
    }
    keys
}

/// Makes due what was packed.
fn release(round: &mut Round<'_>, intaken: &Intaken) -> Result<(), StoreError> {
    for batch in &intaken.packing.batches {
        round.count_accepted(batch.items.len() as u64);
        round.add_chunk(NewChunk {
            batch: batch.id,
            lane: ingest::lane_of(&intaken.lanes, batch)?,
            due_at: batch.envelope.due_at,
            attempt: 1,
            crashes: 0,
            count: batch.items.len(),
            members: None,
        });
    }
    Ok(())
}
