//! The end of a schedule: the store is compared with the answers, and then all work is brought to its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use notification::{
    BroadcastId, ByteString, Chunk, ChunkId, Epoch, NotificationId, Scope, Settlement, State,
};
use tokio_postgres::types::ToSql;

use super::super::release::Releaser;
use super::super::writer_state::Membership;
use super::super::{claim, pause, settle};
use super::applications::TAKEN;
use super::cluster::Engine;
use super::controls::ONLY_ONE;
use super::feed;
use super::schedule::Schedule;
use super::themes::Kind;
use crate::conformance::{DELIVERED, at, indexes, name, part};
use crate::{Change, ClaimRequest, EventPosition, Filter, History, Mark, ReadStore as _};

/// More than one schedule makes.
const HISTORIES: usize = 1_000;
/// Rounds of taking over from dead workers, and of claiming the rest, in which all of it must be done.
const ROUNDS: usize = 20;
/// More slices than the broadcasts of a schedule have.
const SLICES: usize = 200;
/// Past every lease, retry and expiry, milliseconds.
const LATER: i64 = 1_000_000;

pub(super) const STRANDED: &str = "SELECT count(*) FROM chunk WHERE lease_until IS NOT NULL \
     AND NOT EXISTS (SELECT FROM worker WHERE worker.id = chunk.worker)";
/// Pending notifications by the running totals, and true if a total is below zero, which is no count: the readers take it for a
/// very large one.
const TOTALS: &str = "SELECT coalesce(sum(total) FILTER (WHERE state = 0), 0)::int8, coalesce(bool_or(total < 0), false) \
     FROM (SELECT state, sum(change) AS total FROM totals_delta GROUP BY state) AS totals";
const OTHERS_ARE_DEAD: &str = "UPDATE worker SET alive_until = clock_timestamp() + \
     CASE WHEN id = $1 THEN interval '1 hour' ELSE interval '-1 second' END";
const NOT_HELD: &str = "SELECT * FROM unnest($1::int8[], $2::int8[]) AS claim (id, epoch) WHERE NOT EXISTS ( \
     SELECT FROM chunk WHERE chunk.id = claim.id AND chunk.epoch = claim.epoch AND lease_until IS NOT NULL)";
const STILL_ITS_OWN: &str = "SELECT chunk.id, chunk.epoch FROM chunk \
     JOIN unnest($1::int8[], $2::int8[], $3::int8[], $4::int4[]) AS mark (id, epoch, worker, through) USING (id, epoch, worker) \
     WHERE lease_until IS NOT NULL AND coalesce(begun_through, -1) < through";
const PUT_ASIDE: &str = "SELECT count(*) FROM outbox_rejected";
const WORKERS: &str = "SELECT count(*) FROM worker";

// === impl Schedule ===

impl Schedule<'_> {
    /// Brings all that is pending to its end, and compares the store with the answers.
    pub(super) async fn compare(&mut self) {
        self.compare_what_was_too_late().await;
        self.compare_claims().await;
        self.compare_refused_marks().await;
        if !self.book.broadcasts.is_empty() {
            // Between slices, too.
            self.audit().await;
        }
        self.bring_to_an_end().await;
        if self.pending().await.is_none() {
            return self.book.find("a running total is below zero".to_owned());
        }
        if self.theme.contains(&Kind::Assign) {
            self.assign_all().await;
        }
        self.audit().await;
        let histories = self.histories().await;
        self.compare_histories(&histories);
        self.compare_broadcasts(&histories);
        self.compare_suppressions().await;
        self.compare_outbox(&histories).await;
        let end = self.cluster.reader.feed(feed::name()).await.unwrap();
        let finding = self.book.feed.ended(end);
        self.book.findings.extend(finding);
        for history in histories.iter().filter(|history| !history.state.is_terminal()) {
            self.book.find(format!("{} is stranded: {:?}", history.id, history.state));
        }
    }

    /// Compares the notifications that were too late to be cancelled: they must have ended, before the rest is brought to its
    /// end.
    async fn compare_what_was_too_late(&mut self) {
        for id in self.book.too_late.clone() {
            let found = self.cluster.reader.find(id).await.unwrap();
            if found.is_none_or(|history| !history.state.is_terminal()) {
                self.book.find(format!("{id} was said to have ended, and has not"));
            }
        }
    }

    /// Compares the claims that nothing has ended: the store must have each, else its holder sends deliveries that it could never
    /// settle.
    async fn compare_claims(&mut self) {
        let claims = self.book.valid_claims();
        let numbers = |claim: &(ChunkId, Epoch)| (claim.0.0.cast_signed(), i64::from(claim.1.0));
        let (ids, epochs): (Vec<i64>, Vec<i64>) = claims.iter().map(numbers).unzip();
        let statement = self.cluster.control.prepared(NOT_HELD).await.unwrap();
        for row in self.cluster.control.client.query(&statement, &[&ids, &epochs]).await.unwrap() {
            let (chunk, epoch): (i64, i64) = (row.get(0), row.get(1));
            self.book.find(format!("chunk {chunk} was claimed in epoch {epoch}, and is not"));
        }
    }

    /// Compares the marks that were refused for good: none may be of the worker that holds the claim still, for no process would
    /// send the chunk.
    async fn compare_refused_marks(&mut self) {
        let refused = std::mem::take(&mut self.book.refused);
        let of = |number: fn(&(Mark, u64)) -> i64| refused.iter().map(number).collect::<Vec<_>>();
        let ids = of(|(mark, _)| mark.chunk.0.cast_signed());
        let epochs = of(|(mark, _)| i64::from(mark.epoch.0));
        let workers = of(|(_, worker)| worker.cast_signed());
        let throughs: Vec<i32> = refused.iter().map(|(mark, _)| i32::from(mark.through)).collect();
        let control = &self.cluster.control;
        let statement = control.prepared(STILL_ITS_OWN).await.unwrap();
        let marks: [&(dyn ToSql + Sync); 4] = [&ids, &epochs, &workers, &throughs];
        for row in control.client.query(&statement, &marks).await.unwrap() {
            let (chunk, epoch): (i64, i64) = (row.get(0), row.get(1));
            self.book.find(format!(
                "a mark of chunk {chunk} in epoch {epoch} was refused to its holder"
            ));
        }
    }

    async fn audit(&mut self) {
        let audit = self.cluster.reader.audit().await.unwrap();
        for problem in &audit.problems {
            self.book.find(format!("audit: {problem}"));
        }
        if !audit.account.is_balanced() {
            self.book.find(format!("audit: {:?} is not balanced", audit.account));
        }
    }

    /// Looks for claims without a worker: each must belong to one that will be reaped when it ends.
    async fn look_for_strays(&mut self) {
        let stranded: i64 = self.cluster.ask(STRANDED).await.get(0);
        if stranded > 0 {
            self.book.find(format!("{stranded} chunks are held by no worker that is known"));
        }
    }

    async fn histories(&mut self) -> Vec<History> {
        let page = self.cluster.reader.list(Filter::default(), None, HISTORIES).await;
        match page {
            Ok(page) => page.items,
            Err(error) => {
                self.book.find(format!("what is there cannot be read: {error}"));
                Vec::new()
            }
        }
    }

    /// Compares the histories: every accepted notification is there, in the state that was answered, and no other one is.
    fn compare_histories(&mut self, histories: &[History]) {
        let book = &mut self.book;
        let by_id: BTreeMap<NotificationId, &History> =
            histories.iter().map(|history| (history.id, history)).collect();
        for id in book.accepted.clone() {
            if !by_id.contains_key(&id) {
                book.find(format!("{id} was accepted, and is not there"));
            }
        }
        for (id, (state, _)) in book.ended.clone() {
            let is = by_id.get(&id).map(|history| history.state);
            if is != Some(state) {
                book.find(format!("{id} was said to be {state:?}, and is {is:?}"));
            }
        }
        let mut stand_ins = std::collections::BTreeSet::new();
        for history in histories {
            // Of a content that was removed it is not known any more.
            let fallback = history.content.as_ref().and_then(|content| content.fallback.as_ref());
            let next = fallback.is_some_and(|it| !it.next.is_empty());
            let falls_back = matches!(history.state, State::Refused | State::Suppressed);
            match history.fallback_id {
                Some(other) => _ = stand_ins.insert(other),
                None if next && falls_back => {
                    book.find(format!("nothing stands in for {}", history.id));
                }
                None => {}
            }
            let is_erased = history.recipient.is_none();
            if is_erased != book.erased.contains(&history.id)
                || is_erased && !history.state.is_terminal()
            {
                let (id, state) = (history.id, history.state);
                book.find(format!("{id} is {state:?}, and erased is {is_erased}"));
            }
            let ends = history.attempts.iter().filter(|it| it.state.is_terminal()).count();
            let taken_back = book.taken_back.get(&history.id).map_or(0, |calls| calls.done);
            if ends != taken_back + usize::from(history.state.is_terminal()) {
                let finding = format!("{} has {ends} ends and is {:?}", history.id, history.state);
                book.find(format!("{finding}: an end was taken back {taken_back} times"));
            }
        }
        for history in histories {
            let is_asked_for = match history.envelope.broadcast {
                Some(id) => book.broadcasts.get(&id).is_some_and(|it| it.sealed.is_some()),
                None => {
                    book.accepted.contains(&history.id)
                        || stand_ins.contains(&history.id)
                        || history.recipient.as_ref().is_some_and(|it| it.starts_with(TAKEN))
                        || history.fallback_of().is_some_and(|of| {
                            // Of what is sent again the history has no stand-in any more; the API leaves those alone.
                            book.erased.contains(&of) || book.taken_back.contains_key(&of)
                        })
                }
            };
            if !is_asked_for {
                book.find(format!("{} is there, and no answer said so", history.id));
            }
        }
    }

    /// Compares the broadcasts: each has as many members, and as many of each and of all were withdrawn, as was answered.
    fn compare_broadcasts(&mut self, histories: &[History]) {
        let withdrawals = |history: &History| {
            history.attempts.iter().filter(|it| it.state == State::Cancelled).count() as u64
        };
        let (all, said) = (histories.iter().map(withdrawals).sum::<u64>(), self.book.cancelled);
        if all != said {
            self.book.find(format!("{all} were cancelled, not {said}"));
        }
        let mut counted: BTreeMap<BroadcastId, (u64, u64)> = BTreeMap::new();
        for history in histories {
            if let Some(id) = history.envelope.broadcast {
                let (all, cancelled) = counted.entry(id).or_default();
                *all += 1;
                *cancelled += withdrawals(history);
            }
        }
        let mut findings = Vec::new();
        for (id, broadcast) in &self.book.broadcasts {
            let (all, cancelled) = counted.get(id).copied().unwrap_or_default();
            let said = (broadcast.sealed.unwrap_or(0), broadcast.cancelled);
            // Of some it is not said which broadcast they are of.
            let is_said =
                if self.book.met_a_scope { all == said.0 } else { (all, cancelled) == said };
            if !is_said {
                findings
                    .push(format!("{id} has {all}, {cancelled} of them cancelled: not {said:?}"));
            }
        }
        self.book.findings.extend(findings);
    }

    /// Compares the list with its changes, and the number of lifts with the answers.
    async fn compare_suppressions(&mut self) {
        let reader = &self.cluster.reader;
        let page = reader.suppression_events(EventPosition::default(), HISTORIES).await.unwrap();
        let listed = reader.suppressions(name("channel"), None, HISTORIES).await.unwrap();
        let mut is_listed: BTreeMap<ByteString, Option<(String, u16)>> = BTreeMap::new();
        let mut times: BTreeMap<_, usize> = BTreeMap::new();
        for event in page.events {
            let words = match event.change {
                Change::Suppressed { reason, status, .. } => Some((reason, status)),
                Change::Lifted => None,
            };
            *times.entry(event.recipient.clone()).or_default() += usize::from(words.is_none());
            let before = is_listed.insert(event.recipient.clone(), words.clone()).flatten();
            if before == words {
                self.book.find(format!("{} changed twice alike", event.recipient));
            }
        }
        is_listed.retain(|_, words| words.is_some());
        if !listed.iter().map(|entry| &entry.recipient).eq(is_listed.keys()) {
            self.book.find(format!("listed are {listed:?}, and by their changes {is_listed:?}"));
        }
        for recipient in self.book.listed.keys().cloned().collect::<Vec<_>>() {
            if !is_listed.contains_key(&recipient) {
                self.book.find(format!("{recipient} was said to be listed, and is not"));
            }
        }
        for (recipient, said) in self.book.lifted.clone() {
            let happened = times.get(&recipient).copied().unwrap_or(0);
            if happened != said {
                self.book.find(format!("{recipient} was lifted {happened} times, not {said}"));
            }
        }
    }

    /// Compares the outbox: each row that an application committed was taken once, and the drains counted it.
    async fn compare_outbox(&mut self, histories: &[History]) {
        let put_aside = self.cluster.ask(PUT_ASIDE).await.get(0);
        let of = |recipient: &str| {
            histories.iter().filter(|it| it.recipient.as_deref() == Some(recipient)).count()
        };
        let findings = self.book.rows.compare(of, put_aside);
        self.book.findings.extend(findings);
    }

    /// Drains the rows that applications have committed; those in open transactions are never committed.
    async fn drain(&mut self) {
        for application in &mut self.cluster.applications {
            application.reset().await;
        }
        let rounds = if self.book.rows.ended.is_empty() { 0 } else { ROUNDS };
        for _ in 0..rounds {
            let before = self.book.rows.said;
            let call = self.caller().drain(0);
            self.call(call);
            self.finish_calls().await;
            if self.book.rows.said == before {
                return;
            }
        }
    }

    /// All but the first process are dead. It takes over, claims all that is left, and settles it.
    async fn bring_to_an_end(&mut self) {
        let worker = self.cluster.join().await;
        self.cluster.change(ONLY_ONE, &[&worker]).await;
        self.cluster.change(OTHERS_ARE_DEAD, &[&worker]).await;
        let partitions = self.cluster.owned(worker).await;
        let membership = Membership { worker, partitions, producers: 1, consumers: 1 };
        self.engines[0].membership.send_replace(membership);
        for round in 0.. {
            let call = self.caller().reap(0);
            self.call(call);
            self.finish_calls().await;
            if self.cluster.ask(WORKERS).await.get::<_, i64>(0) == 1 {
                break;
            }
            if round > ROUNDS {
                return self.book.find("the claims of dead workers do not end".to_owned());
            }
        }
        self.look_for_strays().await;
        self.drain().await;
        self.resume_all().await;
        self.book.now += LATER;
        for _ in 0..ROUNDS {
            // A claim that ends everything it found may have accepted what stands in for it.
            if self.pending().await.unwrap_or(0) == 0 {
                return;
            }
            self.make_slices().await;
            let chunks = self.claim_rest().await;
            if !chunks.is_empty() {
                self.deliver(chunks).await;
            }
        }
        self.book.find("what is left does not come to an end".to_owned());
    }

    /// Pending notifications by the running totals; `None` when one of these is below zero.
    async fn pending(&self) -> Option<i64> {
        let row = self.cluster.ask(TOTALS).await;
        let (pending, is_negative): (i64, bool) = (row.get(0), row.get(1));
        (!is_negative).then_some(pending)
    }

    /// Ends all pauses; all that was put away must come back.
    async fn resume_all(&mut self) {
        let work = self.engines[0].work.clone();
        for id in self.book.broadcasts.keys().copied().collect::<Vec<_>>() {
            let (tenant, scope) = (name("tenant"), Scope::Broadcast(id));
            if let Err(error) = self.through(work.run(pause::EndPause { tenant, scope })).await {
                self.book.find(format!("the store failed: {error}"));
            }
        }
        self.engines[0].pauses.send_replace(Arc::default());
    }

    /// Makes the chunks of all broadcasts that wait.
    async fn make_slices(&mut self) {
        let Engine { intake, work, .. } = &self.engines[0];
        let releaser = Releaser::new(intake, work, &Arc::default());
        for _ in 0..SLICES {
            match self.through(releaser.make_slice()).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.book.find(format!("the store failed: {error}")),
            }
        }
        self.book.find("the slices of broadcasts do not come to an end".to_owned());
    }

    async fn claim_rest(&mut self) -> Vec<Chunk> {
        let request: ClaimRequest = crate::conformance::claim_request(self.book.now);
        self.engines[0].reload();
        let work = self.engines[0].work.clone();
        let claimed =
            self.through(async move { work.run(claim::ClaimChunks(request)).await }).await;
        let (called, chunks) = (self.book.call(), self.book.answer(claimed));
        let chunks = chunks.map(|claim| claim.chunks).unwrap_or_default();
        self.book.claimed(0, called, chunks.clone());
        chunks
    }

    async fn deliver(&mut self, chunks: Vec<Chunk>) {
        let now = at(self.book.now);
        let delivered =
            |chunk: &Chunk| Settlement { at: now, ..part(chunk, &indexes(chunk), DELIVERED) };
        let settlements: Vec<Settlement> = chunks.iter().map(delivered).collect();
        let work = self.engines[0].work.clone();
        let asked = settlements.clone();
        let called = self.book.call();
        let settled =
            self.through(async move { work.run(settle::SettleChunks(asked.into())).await }).await;
        let answers = self.book.answer(settled).unwrap_or_default();
        for ((chunk, settlement), answer) in chunks.iter().zip(&settlements).zip(answers) {
            self.book.settled(chunk, settlement, called, answer);
        }
    }

    /// Waits for an answer, and lets all actors go on meanwhile.
    pub(super) async fn through<T>(&mut self, asking: impl Future<Output = T>) -> T {
        let mut asking = std::pin::pin!(asking);
        loop {
            tokio::select! {
                biased;
                answer = &mut asking => return answer,
                Some(arrival) = self.cluster.arrivals.recv() => {
                    let _gone = arrival.go.send(super::gate::Verdict::Go);
                }
            }
        }
    }
}
