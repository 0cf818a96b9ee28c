//! The calls of a schedule, drawn from the book, and how their answers are booked.

use std::sync::Arc;
use std::time::Duration;

use flow::Clock;
use futures_util::future::BoxFuture;
use notification::{
    Alternative, BroadcastId, Bytes, Chunk, Disposition, Draft, Fallback, Guarantee, Settlement,
    State,
};

use super::super::request::WriterRequest;
use super::super::{broadcast, cancel, claim, ingest, outbox, reap, requeue, settle, suppress};
use super::applications;
use super::book::{Book, Held};
use super::cluster::{Engine, WRITERS, recipient};
use super::feed;
use super::themes::Kind;
use crate::conformance::{BroadcastShape, Shape, at, claim_request, groups_in_turn, name, part};
use crate::{
    BroadcastOpened, CancelTarget, ClaimRequest, Filter, Lift, Mark, ReadStore as _, StoreError,
    Suppression,
};

/// Writes an answer down.
pub(super) type Heard = Box<dyn FnOnce(&mut Book) + Send>;

/// A call under way.
pub(super) struct Call {
    /// The writer that does it.
    pub(super) actor: usize,
    pub(super) words: String,
    pub(super) answer: BoxFuture<'static, Heard>,
}

/// The source of a call: the book it draws from, the random numbers, and the engines.
pub(super) struct Caller<'a> {
    pub(super) book: &'a mut Book,
    pub(super) random: &'a mut fastrand::Rng,
    pub(super) engines: &'a [Engine],
}

/// Number of recipients that may be listed while they are claimed.
const RECIPIENTS: usize = 6;
/// Window for probes, so small that only the first lane is given more than one delivery at a time.
const PROBE_WINDOW: usize = 256;
/// Lease of a claim; waits come to more now and then.
pub(super) const LEASE: Duration = Duration::from_mins(1);

// === impl Caller ===

impl Caller<'_> {
    /// The next call; `None` when the call that was drawn cannot be made now.
    pub(super) fn draw(&mut self, theme: &[Kind]) -> Option<Call> {
        let engine = self.random.usize(..self.engines.len());
        match self.pick(theme)? {
            Kind::Ingest => Some(self.ingest(engine, None)),
            Kind::IngestKeyed => {
                let key = *self.pick(&["k", "l"])?;
                let content = self.random.u8(..2);
                Some(self.ingest(engine, Some((key, content))))
            }
            Kind::OpenBroadcast => Some(self.open_broadcast(engine)),
            Kind::AddOrSeal => self.add_or_seal(),
            Kind::Claim => Some(self.claim(engine)),
            Kind::Issue => Some(self.issue(engine)),
            Kind::Take => self.take(engine),
            Kind::Begin => self.begin(),
            Kind::Settle => {
                let held = self.held()?;
                self.settle(held, None)
            }
            Kind::SettleLate => {
                let held = self.held_before()?;
                self.settle(held, None)
            }
            Kind::Die => {
                let held = self.held()?;
                self.settle(held, Some(Disposition::Ended(State::Dead)))
            }
            Kind::CancelOne => self.cancel_one(engine),
            Kind::CancelMember => self.cancel_member(engine),
            Kind::CancelBroadcast => self.cancel_broadcast(engine),
            Kind::CancelScope => self.cancel_scope(engine),
            Kind::Release => Some(self.release(engine)),
            Kind::WriteOff => Some(self.write_off(engine)),
            Kind::Pause => self.pause(engine),
            Kind::Resume => self.resume(engine),
            Kind::Suppress => Some(self.suppress(engine)),
            Kind::Lift => Some(self.lift(engine)),
            Kind::Reap => Some(self.reap(engine)),
            Kind::Doubt => {
                let held = self.held()?;
                self.doubt(held)
            }
            Kind::Requeue => self.requeue(engine),
            Kind::Resolve => self.resolve(engine),
            Kind::Reschedule => self.reschedule(engine),
            Kind::Drain => Some(self.drain(engine)),
            Kind::MoveFeed => Some(self.move_feed(engine)),
            Kind::Prune => Some(self.prune(engine)),
            Kind::Erase => self.erase(engine),
            Kind::IngestOther => Some(self.ingest_other(engine)),
            Kind::Assign => Some(self.assign(engine)),
        }
    }

    /// Some of anything, to begin with.
    pub(super) fn ingest(&mut self, engine: usize, key: Option<(&'static str, u8)>) -> Call {
        let now = self.book.now;
        let shape = Shape {
            destination: if self.random.bool() { "a" } else { "b" },
            guarantee: if self.random.bool() {
                Guarantee::AtMostOnce
            } else {
                Guarantee::AtLeastOnce
            },
            due_at: now,
            expires_at: (key.is_none() && self.random.u8(..3) == 0).then_some(now + 30_000),
            key,
            ..Shape::default()
        };
        self.ingest_like(engine, &shape)
    }

    /// Some of these.
    pub(super) fn ingest_like(&mut self, engine: usize, shape: &Shape) -> Call {
        let (now, key) = (self.book.now, shape.key);
        let has_fallback = key.is_none() && self.random.u8(..3) == 0;
        let count = if key.is_some() { 1 } else { self.random.usize(1..4) };
        let draft = |_| {
            let mut draft = shape.draft(&recipient(self.random.usize(..RECIPIENTS)));
            if has_fallback {
                let next = vec![alternative()];
                draft.content.fallback = Some(Arc::new(Fallback { of: None, next }));
            }
            draft
        };
        let drafts: Vec<Draft> = (0..count).map(draft).collect();
        let words = format!("ingest {count} {key:?} {:?}", shape.guarantee);
        let request = ingest::IngestDrafts { drafts, now: at(now) };
        self.intake(engine, words, request, move |book, answer| book.ingested(key, answer))
    }

    pub(super) fn open_broadcast(&mut self, engine: usize) -> Call {
        let request = broadcast::OpenBroadcast(BroadcastShape::default().draft(), at(0));
        self.intake(engine, "open a broadcast".to_owned(), request, move |book, answer| {
            if let Some(BroadcastOpened::Opened(id)) = book.answer(answer) {
                book.broadcasts.entry(id).or_default().engine = engine;
            }
        })
    }

    pub(super) fn add_or_seal(&mut self) -> Option<Call> {
        let known = self.book.broadcasts.iter().map(|(id, it)| (*id, it.engine, it.added));
        let (id, engine, added) = *self.pick(&known.collect::<Vec<_>>())?;
        if added == 0 || self.random.u8(..4) == 0 {
            let count = self.random.usize(1..4);
            let groups = groups_in_turn(count);
            let request =
                broadcast::AddRecipients { broadcast: id, groups, now: at(self.book.now) };
            let words = format!("add {count} recipients to {id}");
            return Some(self.intake(engine, words, request, move |book, answer| {
                if book.answer(answer).is_some() {
                    book.broadcasts.entry(id).or_default().added += count as u64;
                }
            }));
        }
        let request = broadcast::SealBroadcast(id, at(self.book.now));
        Some(self.intake(engine, format!("seal {id}"), request, move |book, answer| {
            book.sealed(id, answer);
        }))
    }

    pub(super) fn claim(&mut self, engine: usize) -> Call {
        self.reload(engine);
        let (request, called) = (self.request(), self.book.call());
        let words = format!("claim at {}", request.now);
        self.work(engine, words, claim::ClaimChunks(request), move |book, answer| {
            let chunks = book.answer(answer).map(|claim| claim.chunks).unwrap_or_default();
            book.claimed(engine, called, chunks);
        })
    }

    fn issue(&mut self, engine: usize) -> Call {
        self.reload(engine);
        let request = self.request();
        let words = format!("issue tickets at {}", request.now);
        self.work(engine, words, claim::IssueTickets(request), |book, answer| {
            let tickets = book.answer(answer).map(|claim| claim.chunks).unwrap_or_default();
            book.issued(tickets);
        })
    }

    fn take(&mut self, engine: usize) -> Option<Call> {
        let ticket = *self.pick(&self.book.tickets.clone())?;
        let tickets = vec![ticket];
        let (now, called) = (at(self.book.now), self.book.call());
        let request = claim::TakeChunks { tickets, now, lease: LEASE };
        let words = format!("take {:?} {:?} at {now}", ticket.chunk, ticket.epoch);
        Some(self.work(engine, words, request, move |book, answer| {
            let chunks = book.answer(answer).unwrap_or_default();
            book.claimed(engine, called, chunks.into_iter().flatten().collect());
        }))
    }

    fn begin(&mut self) -> Option<Call> {
        let (engine, chunk, _) = self.held()?;
        let last = chunk.deliveries.last()?.index;
        let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through: self.random.u16(..=last) };
        let (words, called) = (format!("begin {mark:?}"), self.book.begin(mark));
        Some(self.work(engine, words, settle::BeginDeliveries(vec![mark]), move |book, answer| {
            for answer in book.answer(answer).unwrap_or_default() {
                book.begun(&chunk, mark, called, answer);
            }
        }))
    }

    /// Settles with a random outcome, or with `outcome`.
    pub(super) fn settle(
        &mut self,
        (engine, chunk, rest): (usize, Chunk, Vec<u16>),
        outcome: Option<Disposition>,
    ) -> Option<Call> {
        let settlement = self.settlement(&chunk, rest, outcome)?;
        let words = format!("settle {settlement:?}");
        let request = settle::SettleChunks([settlement.clone()].into());
        let called = self.book.settle(&settlement);
        Some(self.work(engine, words, request, move |book, answer| {
            for answer in book.answer(answer).unwrap_or_default() {
                book.settled(&chunk, &settlement, called, answer);
            }
        }))
    }

    /// A settlement of all or some of the rest of a chunk, with any outcome.
    fn settlement(
        &mut self,
        chunk: &Chunk,
        rest: Vec<u16>,
        outcome: Option<Disposition>,
    ) -> Option<Settlement> {
        let some = self.random.usize(1..=rest.len().max(1));
        let indexes: Vec<u16> = rest.into_iter().take(some).collect();
        let now = self.book.now;
        let drawn = *self.pick(&[
            Disposition::Ended(State::Delivered),
            Disposition::Ended(State::Delivered),
            Disposition::Ended(State::Refused),
            Disposition::Ended(State::Dead),
            Disposition::Ended(State::Expired),
            Disposition::TooLate,
            Disposition::Retry { at: at(now + 10) },
            Disposition::HandedBack { at: at(now + 10) },
        ])?;
        let disposition = outcome.unwrap_or(drawn);
        let is_refused = disposition == Disposition::Ended(State::Refused);
        let refused =
            chunk.deliveries.iter().filter(|it| is_refused && indexes.contains(&it.index));
        let fallbacks = refused.filter_map(|it| chunk.draft_in_place_of(it, at(now))).collect();
        let is_listable = chunk.envelope.lane.channel == name("channel");
        let suppress = is_listable && is_refused && self.random.bool();
        let mut settlement = part(chunk, &indexes, disposition);
        settlement.groups[0].suppress = suppress;
        Some(Settlement { at: at(now), fallbacks, ..settlement })
    }

    pub(super) fn cancel_one(&mut self, engine: usize) -> Option<Call> {
        let mut known: Vec<_> = self.book.accepted.iter().copied().collect();
        if self.random.u8(..4) > 0 {
            known.retain(|id| self.book.may_be_ready(*id));
        }
        let id = *self.pick(&known)?;
        let request =
            cancel::CancelNotification { id, tenant: name("tenant"), now: at(self.book.now) };
        let called = self.book.call();
        Some(self.work(engine, format!("cancel {id}"), request, move |book, answer| {
            book.cancelled(CancelTarget::Notification(id), called, answer);
        }))
    }

    pub(super) fn sealed(&mut self) -> Option<BroadcastId> {
        let sealed = self.book.broadcasts.iter().filter(|(_, it)| it.sealed.is_some());
        let sealed: Vec<_> = sealed.map(|(id, _)| *id).collect();
        self.pick(&sealed).copied()
    }

    /// Cancels a member of a sealed broadcast, whether its batch has its chunk or waits for it.
    fn cancel_member(&mut self, engine: usize) -> Option<Call> {
        let (broadcast, place) = (self.sealed()?, self.random.usize(..RECIPIENTS));
        let (reader, handle) =
            (self.engines[engine].reader.clone(), self.engines[engine].work.clone());
        let (now, called) = (at(self.book.now), self.book.call());
        let answer = Box::pin(async move {
            let filter = Filter { broadcast: Some(broadcast), ..Filter::default() };
            let members = reader.list(filter, None, RECIPIENTS).await.unwrap().items;
            let id = members[place % members.len()].id;
            let answer =
                handle.run(cancel::CancelNotification { id, tenant: name("tenant"), now }).await;
            Box::new(move |book: &mut Book| book.member_cancelled(broadcast, id, called, answer))
                as Heard
        });
        let words = format!("cancel one of {broadcast}");
        Some(Call { actor: engine * WRITERS + 1, words, answer })
    }

    fn cancel_broadcast(&mut self, engine: usize) -> Option<Call> {
        let (id, now, called) = (self.sealed()?, at(self.book.now), self.book.call());
        let handle = self.engines[engine].work.clone();
        let answer = Box::pin(async move {
            let answer = handle.cancel_broadcast(id, name("tenant"), now).await;
            let target = CancelTarget::Broadcast(id);
            Box::new(move |book: &mut Book| book.cancelled(target, called, answer)) as Heard
        });
        Some(Call { actor: engine * WRITERS + 1, words: format!("cancel {id}"), answer })
    }

    fn suppress(&mut self, engine: usize) -> Call {
        let (recipient, now) = (recipient(self.random.usize(..RECIPIENTS)), at(self.book.now));
        let suppressions = vec![Suppression {
            channel: name("channel"),
            recipient: recipient.clone(),
            reason: "by hand".to_owned(),
            status: 0,
            since: now,
        }];
        let (request, called) = (suppress::AddSuppressions { suppressions, now }, self.book.call());
        self.work(engine, format!("suppress {recipient}"), request, move |book, answer| {
            if book.answer(answer).is_some() {
                book.suppressed(recipient, called);
            }
        })
    }

    fn lift(&mut self, engine: usize) -> Call {
        let recipient = recipient(self.random.usize(..RECIPIENTS));
        let words = format!("lift {recipient}");
        let lift = Lift { channel: name("channel"), recipient, registered_at: None };
        self.book.lifting(&lift);
        let request =
            suppress::LiftSuppressions { lifts: vec![lift.clone()], now: at(self.book.now) };
        self.work(engine, words, request, move |book, answer| {
            let was_listed = book.answer(answer).is_some_and(|were_listed| were_listed == [true]);
            book.lifted(&lift, was_listed);
        })
    }

    pub(super) fn reap(&mut self, engine: usize) -> Call {
        let request = reap::ReapWorker { now: at(self.book.now) };
        self.work(engine, "end the claims of dead workers".to_owned(), request, |book, answer| {
            book.answer(answer);
        })
    }

    /// Sends a notification again that is dead or cancelled by an answer, or any other now and then; often one that another call
    /// sends again.
    fn requeue(&mut self, engine: usize) -> Option<Call> {
        let ended = self.book.ended.iter().filter(|(_, (state, _))| state.may_be_requeued());
        let mut known: Vec<_> = ended.map(|(id, _)| *id).collect();
        let contested: Vec<_> =
            known.iter().copied().filter(|id| self.book.may_be_taken_back(*id)).collect();
        let others = if self.book.met_a_scope { 2 } else { 8 };
        if known.is_empty() || self.random.u8(..others) == 0 {
            known = self.book.seen();
        } else if !contested.is_empty() && self.random.bool() {
            known = contested;
        }
        let id = *self.pick(&known)?;
        let now = at(self.book.now);
        let request = requeue::RequeueNotifications {
            ids: vec![id],
            states: [State::Dead, State::Cancelled, State::Refused, State::InDoubt].into(),
            tenant: name("tenant"),
            now,
        };
        let called = self.book.taking_back(id);
        Some(self.work(engine, format!("requeue {id}"), request, move |book, answer| {
            let answer = book.answer(answer).and_then(|answers| answers.first().copied());
            book.requeued(id, called, answer);
        }))
    }

    pub(super) fn drain(&mut self, engine: usize) -> Call {
        let (intake, now) = (self.engines[engine].intake.clone(), at(self.book.now));
        let answer = Box::pin(async move {
            let drained = outbox::drain(&intake, applications::validator(), now, Clock::system());
            let answer = drained.await;
            let tell =
                |book: &mut Book| book.answer(answer).map(|drained| book.rows.drained(drained));
            Box::new(move |book: &mut Book| tell(book).unwrap_or_default()) as Heard
        });
        Call { actor: engine * WRITERS, words: "drain the outbox".to_owned(), answer }
    }

    /// Moves the feed from its present cursor, or an earlier one, to a new place.
    fn move_feed(&mut self, engine: usize) -> Call {
        let (from, to) = (self.book.feed.draw(self.random), self.book.feed.next());
        let request = suppress::MoveFeed { feed: feed::name(), from, to };
        let words = format!("move the feed from {} to {}", from.position, to.position);
        self.work(engine, words, request, move |book, answer| {
            if let Some(answer) = book.answer(answer) {
                let finding = book.feed.moved(from, to, answer);
                book.findings.extend(finding);
            }
        })
    }

    /// A claim of all due chunks, or within the evidence, which cuts chunks.
    fn request(&mut self) -> ClaimRequest {
        let probe_window = self.random.bool().then_some(PROBE_WINDOW);
        ClaimRequest { lease: LEASE, probe_window, ..claim_request(self.book.now) }
    }

    fn reload(&mut self, engine: usize) {
        if self.random.u8(..4) > 0 {
            self.engines[engine].reload();
        }
    }

    /// A chunk that an engine holds or held, and the rest of it.
    fn held(&mut self) -> Option<(usize, Chunk, Vec<u16>)> {
        let claims_too_late = self.random.u8(..8) == 0;
        let is_open = |held: &&Held| claims_too_late || !held.rest.is_empty();
        let held: Vec<&Held> = self.book.held.iter().filter(is_open).collect();
        let held = held.get(self.random.usize(..held.len().max(1)))?;
        let rest = if claims_too_late {
            held.chunk.deliveries.iter().map(|delivery| delivery.index).collect()
        } else {
            held.rest.iter().copied().collect()
        };
        Some((held.engine, held.chunk.clone(), rest))
    }

    /// A chunk that an engine held before another claim of it, and the rest of it then.
    fn held_before(&mut self) -> Option<(usize, Chunk, Vec<u16>)> {
        let is_over = |held: &&Held| {
            !held.rest.is_empty() && self.book.is_over(held.chunk.id, held.chunk.epoch)
        };
        let held: Vec<&Held> = self.book.held.iter().filter(is_over).collect();
        let held = held.get(self.random.usize(..held.len().max(1)))?;
        Some((held.engine, held.chunk.clone(), held.rest.iter().copied().collect()))
    }

    pub(super) fn pick<'c, T>(&mut self, choices: &'c [T]) -> Option<&'c T> {
        choices.get(self.random.usize(..choices.len().max(1)))
    }

    pub(super) fn intake<R: WriterRequest>(
        &self,
        engine: usize,
        words: String,
        request: R,
        hear: impl FnOnce(&mut Book, Result<R::Answer, StoreError>) + Send + 'static,
    ) -> Call {
        let handle = self.engines[engine].intake.clone();
        let answer = Box::pin(async move {
            let answer = handle.run(request).await;
            Box::new(move |book: &mut Book| hear(book, answer)) as Heard
        });
        Call { actor: engine * WRITERS, words, answer }
    }

    pub(super) fn work<R: WriterRequest>(
        &self,
        engine: usize,
        words: String,
        request: R,
        hear: impl FnOnce(&mut Book, Result<R::Answer, StoreError>) + Send + 'static,
    ) -> Call {
        let handle = self.engines[engine].work.clone();
        let answer = Box::pin(async move {
            let answer = handle.run(request).await;
            Box::new(move |book: &mut Book| hear(book, answer)) as Heard
        });
        Call { actor: engine * WRITERS + 1, words, answer }
    }
}

/// The fallback of a notification, for when it is refused or suppressed.
fn alternative() -> Alternative {
    Alternative {
        channel: name("other"),
        destination: "there".into(),
        recipient: "elsewhere".into(),
        payload: Bytes::from_static(b"[1]"),
        options: Bytes::from_static(b"{}"),
    }
}
