//! One schedule: the order in which writers go on, drawn from a seed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::super::pause_points::COMMITTED;
use super::book::Book;
use super::calls::{Call, Caller, Heard};
use super::cluster::{Cluster, Engine, WRITERS, are_blocked};
use super::controls::Event;
use super::gate::{Arrival, Verdict};
use super::themes::{Kind, theme};

/// A schedule under way.
pub(super) struct Schedule<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) engines: Vec<Engine>,
    pub(super) book: Book,
    random: fastrand::Rng,
    pub(super) theme: Vec<Kind>,
    actors: Vec<Actor>,
    calls: FuturesUnordered<BoxFuture<'static, (usize, usize, Heard)>>,
    called: usize,
    cuts_left: usize,
    trace: String,
}

/// A writer, as the scheduler sees it.
#[derive(Debug, Default)]
struct Actor {
    activity: Activity,
    /// Process of the session with which it was last seen.
    backend: i32,
    /// The statement that it was let go on with.
    statement: &'static str,
    /// Calls that it has not answered.
    unanswered: usize,
    is_in_transaction: bool,
}

#[derive(Debug, Default)]
enum Activity {
    #[default]
    Idle,
    Running,
    Paused(Arrival),
}

/// Calls that a writer may have before it at a time: with two, some transactions have several.
const CALLS_MAX: usize = 2;
/// Connections that are lost in one schedule, at most: each takes as long as the rest of it.
const CUTS_MAX: usize = 1;
/// Commits, and statements, of which one loses its connection.
const COMMITS_PER_CUT: u32 = 40;
const STATEMENTS_PER_CUT: u32 = 800;
/// Time given to statements to end: asking the server for waits takes as long as most statements do. The schedule does not depend
/// on it.
const ASK_AFTER: Duration = Duration::from_millis(1);
/// Seeds of which one has three engines instead of two.
const SEEDS_PER_TRIO: u64 = 3;

// === impl Schedule ===

impl<'a> Schedule<'a> {
    pub(super) async fn begin(cluster: &'a mut Cluster, seed: u64) -> Self {
        let count = if seed.is_multiple_of(SEEDS_PER_TRIO) { 3 } else { 2 };
        let engines = cluster.engines(count, seed).await;
        Self {
            cluster,
            engines,
            book: Book::default(),
            random: fastrand::Rng::with_seed(seed),
            theme: theme(seed),
            actors: (0..count * WRITERS).map(|_| Actor::default()).collect(),
            calls: FuturesUnordered::new(),
            called: 0,
            cuts_left: CUTS_MAX,
            trace: String::new(),
        }
    }

    /// Plays `steps` calls and events, and compares the rest; the error is the finding, with the schedule.
    pub(super) async fn play(mut self, steps: usize) -> Result<(), String> {
        let mut left = steps;
        for engine in [0, 1, 0, 1] {
            let call = self.caller().ingest(engine, None);
            self.call(call);
            self.finish_calls().await;
        }
        if self.theme.first() == Some(&Kind::Claim) && self.random.bool() {
            for engine in [0, 1] {
                let call = self.caller().claim(engine);
                self.call(call);
                self.finish_calls().await;
            }
        }
        while self.theme.first() == Some(&Kind::Release) && self.caller().sealed().is_none() {
            let call = match self.caller().add_or_seal() {
                Some(call) => call,
                None => self.caller().open_broadcast(0),
            };
            self.call(call);
            self.finish_calls().await;
        }
        loop {
            self.come_to_rest().await;
            let paused = self.paused();
            if !self.book.findings.is_empty() || left == 0 && paused.is_empty() {
                break;
            }
            if left > 0 && (paused.is_empty() || self.random.u8(..3) == 0) {
                left -= 1;
                self.step().await;
            } else if let Some(actor) = paused.get(self.random.usize(..paused.len().max(1))) {
                let verdict = self.verdict(*actor);
                self.go(*actor, verdict);
            }
        }
        self.conclude().await
    }

    /// Plays `calls` that are made at once, and compares the rest.
    pub(super) async fn interleave(&mut self, calls: Vec<Call>) {
        for call in calls {
            self.call(call);
        }
        loop {
            self.come_to_rest().await;
            let paused = self.paused();
            let Some(actor) = paused.get(self.random.usize(..paused.len().max(1))) else { return };
            self.go(*actor, Verdict::Go);
        }
    }

    /// Compares the store with the answers; the error is the finding, with the schedule.
    pub(super) async fn conclude(mut self) -> Result<(), String> {
        if self.book.findings.is_empty() {
            self.compare().await;
        }
        let Self { cluster, engines, book, trace, .. } = self;
        if book.findings.is_empty() {
            cluster.retire(engines).await;
            return Ok(());
        }
        Err(format!("{trace}=> {}", book.findings.join("\n=> ")))
    }

    pub(super) fn note(&mut self, words: std::fmt::Arguments<'_>) {
        writeln!(self.trace, "{words}").unwrap();
    }

    pub(super) fn caller(&mut self) -> Caller<'_> {
        let Self { book, random, engines, .. } = self;
        Caller { book, random, engines }
    }

    fn draw(&mut self) -> Option<Call> {
        let Self { book, random, engines, theme, .. } = self;
        Caller { book, random, engines }.draw(theme)
    }

    /// A call, or an event.
    async fn step(&mut self) {
        if self.random.u8(..3) == 0 {
            let event = Event::draw(&mut self.random, self.engines.len(), &self.theme);
            self.note(format_args!("{event:?}"));
            match event {
                Event::Wait(millis) => self.book.now += millis,
                Event::Silence(engine) => self.book.silence(engine),
                Event::Apply(application, step) => {
                    let rows = &mut self.book.rows;
                    self.cluster.applications[application].go(step, rows).await;
                }
                Event::Beat(_) | Event::HandOver(..) | Event::FoldBefore => {}
            }
            self.cluster.happen(event, &self.engines).await;
        } else if let Some(call) = self.draw()
            && self.actors[call.actor].unanswered < CALLS_MAX
        {
            self.call(call);
        }
    }

    pub(super) fn call(&mut self, call: Call) {
        let Call { actor, words, answer } = call;
        self.called += 1;
        let number = self.called;
        self.note(format_args!("{}: call {number}: {words}", name_of(actor)));
        self.calls.push(Box::pin(async move { (actor, number, answer.await) }));
        let actor = &mut self.actors[actor];
        actor.unanswered += 1;
        if matches!(actor.activity, Activity::Idle) {
            actor.activity = Activity::Running;
        }
    }

    /// Plays `call` until its writer stands before `statement`; the server's process of its session.
    pub(super) async fn go_until(&mut self, call: Call, statement: &str) -> i32 {
        let actor = call.actor;
        self.call(call);
        loop {
            self.come_to_rest().await;
            if let Activity::Paused(arrival) = &self.actors[actor].activity
                && arrival.statement == statement
            {
                return arrival.backend;
            }
            self.go(actor, Verdict::Go);
        }
    }

    /// Plays until every call is answered, without pauses.
    pub(super) async fn finish_calls(&mut self) {
        loop {
            self.come_to_rest().await;
            let Some(actor) = self.paused().first().copied() else { return };
            self.go(actor, Verdict::Go);
        }
    }

    /// Waits until every writer is done, stands before a statement, or waits for one that does.
    async fn come_to_rest(&mut self) {
        loop {
            let is_running = |actor: &&Actor| matches!(actor.activity, Activity::Running);
            let running: Vec<i32> =
                self.actors.iter().filter(is_running).map(|actor| actor.backend).collect();
            if running.is_empty() {
                return;
            }
            let holds = |actor: &&Actor| {
                actor.is_in_transaction && matches!(actor.activity, Activity::Paused(_))
            };
            let paused: BTreeSet<i32> =
                self.actors.iter().filter(holds).map(|actor| actor.backend).collect();
            let may_wait = !paused.is_empty()
                && self.actors.iter().filter(is_running).all(|actor| may_wait(actor.statement));
            let Self { cluster, calls, .. } = self;
            let Cluster { arrivals, control, .. } = &mut **cluster;
            tokio::select! {
                biased;
                Some(arrival) = arrivals.recv() => self.arrive(arrival),
                Some((actor, number, heard)) = calls.next(), if !calls.is_empty() => {
                    self.hear(actor, number, heard);
                }
                are_blocked = async {
                    tokio::time::sleep(ASK_AFTER).await;
                    are_blocked(control, &running, &paused).await
                }, if may_wait => {
                    if are_blocked {
                        return;
                    }
                }
            }
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let actor = &mut self.actors[arrival.actor];
        actor.backend = arrival.backend;
        actor.is_in_transaction = arrival.statement != "BEGIN" && arrival.statement != COMMITTED;
        actor.activity = Activity::Paused(arrival);
    }

    fn hear(&mut self, actor: usize, number: usize, heard: Heard) {
        self.note(format_args!("{}: call {number} is answered", name_of(actor)));
        heard(&mut self.book);
        let actor = &mut self.actors[actor];
        actor.unanswered -= 1;
        if actor.unanswered == 0 && matches!(actor.activity, Activity::Running) {
            actor.activity = Activity::Idle;
        }
    }

    fn paused(&self) -> Vec<usize> {
        let is_paused =
            |(_, actor): &(usize, &Actor)| matches!(actor.activity, Activity::Paused(_));
        self.actors.iter().enumerate().filter(is_paused).map(|(number, _)| number).collect()
    }

    /// Verdict on a writer that is held up.
    fn verdict(&mut self, actor: usize) -> Verdict {
        let Activity::Paused(arrival) = &self.actors[actor].activity else { return Verdict::Go };
        let is_commit = ["COMMIT", COMMITTED].contains(&arrival.statement);
        let one_in = if is_commit { COMMITS_PER_CUT } else { STATEMENTS_PER_CUT };
        if self.cuts_left > 0 && self.random.u32(..one_in) == 0 {
            self.cuts_left -= 1;
            return Verdict::Cut;
        }
        Verdict::Go
    }

    fn go(&mut self, actor: usize, verdict: Verdict) {
        let state = &mut self.actors[actor];
        let Activity::Paused(arrival) = std::mem::replace(&mut state.activity, Activity::Running)
        else {
            return;
        };
        let cut = if verdict == Verdict::Cut { "[its connection is lost] " } else { "" };
        state.statement = if verdict == Verdict::Cut { "" } else { arrival.statement };
        let words = short(arrival.statement);
        self.note(format_args!("{}: {cut}{words}", name_of(actor)));
        // A writer that does not wait any more is seen by its next statement.
        let _gone = arrival.go.send(verdict);
    }
}

fn name_of(actor: usize) -> String {
    format!("{} {}", actor / WRITERS, ["intake", "work"][actor % WRITERS])
}

/// True if a statement may have to wait for another transaction. Asking the server takes as long as most statements do.
fn may_wait(statement: &str) -> bool {
    let locks = statement.contains(" FOR ") || statement.contains("_lock");
    let only_reads = statement.starts_with("SELECT") && !locks;
    let is_alone = ["BEGIN", "COMMIT", COMMITTED, ""].contains(&statement)
        || statement.starts_with("COPY batch")
        || statement.starts_with("INSERT INTO totals_delta")
        || statement.starts_with("INSERT INTO commit_token")
        || statement.starts_with("WITH RECURSIVE");
    !only_reads && !is_alone
}

/// The first words of a statement.
fn short(statement: &str) -> String {
    statement.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(110).collect()
}
