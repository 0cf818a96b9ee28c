//! A load under faults, and what must hold after it: nothing lost, nothing doubled beyond the promise.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::faults::{ClusterFault, FaultedServer, Harm, PAST_LEASE, Plan, Planned};
use super::{Backing, Cluster, ClusterSetup, ClusterWorker, at_once};
use crate::client::AuditOutput;
use crate::process::EngineRole;
use crate::rate::{longest_silence, per_second};
use crate::tally::JournalBooks;
use crate::workload::{Workload, WorkloadGuarantee};

/// The settings of a round.
#[derive(Debug, Clone)]
pub struct Round {
    /// The binary under test.
    pub binary: PathBuf,
    /// Where everything goes; should be empty.
    pub directory: PathBuf,
    /// The servers.
    pub backing: Backing,
    /// Draws the faults, and how fast provider and engines are.
    pub seed: u64,
    /// Number of faults.
    pub faults: usize,
    /// Within which time they begin. There is work for longer.
    pub within: Duration,
}

/// How fast a round's provider and engines are, and what they are given to do.
#[derive(Debug, Clone, Copy)]
struct LoadPace {
    latency_ms: u64,
    /// Attempts under way at a time in one engine.
    concurrency: u64,
    /// Of each guarantee.
    notifications: u64,
}

/// The result of a round; a result says that every promise held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundSurvived {
    /// The faults that happened in it.
    pub faults: usize,
    /// Recipients of at-least-once notifications that got theirs more than once: how often.
    pub duplicates: u64,
    /// Notifications that the faulted workers had claimed at the faults: the most that may be repeated.
    pub claimed: u64,
    /// At-most-once notifications that ended in doubt.
    pub in_doubt: u64,
    /// The longest time in which nothing was delivered.
    pub silence: Duration,
    /// Deliveries in each second, from the first one on.
    pub delivered: Vec<u64>,
    /// From the end of the last fault and of the load until nothing was pending.
    pub drained_after: Duration,
}

/// Notes that are taken while faults happen.
#[derive(Debug, Default)]
struct Notes {
    claimed: u64,
    /// The longest time that a server was down.
    outage: Duration,
}

/// Notifications of one guarantee on their way in.
#[derive(Debug, Clone)]
struct RoundLoad {
    numbers: Range<u64>,
    guarantee: WorkloadGuarantee,
}

const PRODUCERS: usize = 2;
const CONSUMERS: usize = 3;
/// Callers of each guarantee while faults happen.
const CALLERS: u64 = 4;
/// Rows of one import: an interrupted one is repeated as a whole.
const SLICE: u64 = 250;
/// The load goes on for so long after the last fault began.
const LOAD_AFTER: Duration = Duration::from_secs(3);
/// How long callers try to get their notifications accepted.
const CALLER_PATIENCE: Duration = Duration::from_mins(2);
/// Between two tries of a caller.
const TRY_EVERY: Duration = Duration::from_millis(200);
/// How long a round may take to drain: twice the longest lease, and the work, at the end perhaps of one engine alone.
const PATIENCE: Duration = Duration::from_mins(5);
/// From the end of an outage or of a lease until work goes on.
const RECOVERY_MAX: Duration = Duration::from_secs(10);

// === impl Round ===

impl Round {
    /// The faults that this round will meet.
    pub fn plan(&self) -> Vec<Planned> {
        let plan = Plan {
            workers: PRODUCERS + CONSUMERS,
            has_broker: self.backing != Backing::Postgres,
            faults: self.faults,
            within: self.within,
        };
        plan.draw(self.seed)
    }

    /// Runs it.
    ///
    /// # Errors
    /// When a promise was broken, with the figures; or when something could not be run.
    pub fn run(&self) -> Result<RoundSurvived> {
        let pace = self.pace();
        let cluster = Cluster::start(&self.setup(pace))?;
        let plan = self.plan();
        let notes = Mutex::new(Notes::default());
        let lasts = self.within + LOAD_AFTER;
        let half = pace.notifications;
        let (least, most) = (0..half, half..2 * half);
        // Most of it is there when the faults begin, so that there is always work.
        let (least_first, least_later) = RoundLoad::split(&least, WorkloadGuarantee::AtLeastOnce);
        let (most_first, most_later) = RoundLoad::split(&most, WorkloadGuarantee::AtMostOnce);
        at_once([&least_first, &most_first], |load| load.run(&cluster, Duration::ZERO))?;
        let later = [least_later, most_later].concat();
        std::thread::scope(|scope| {
            let faults = plan.iter().map(|one| scope.spawn(|| befall(&cluster, one, &notes)));
            let loads = later.iter().map(|load| scope.spawn(|| load.run(&cluster, lasts)));
            faults.chain(loads).collect::<Vec<_>>().into_iter().try_for_each(super::join)
        })?;
        let clock = flow::Clock::system();
        let ended = clock.monotonic();
        let workload = Workload { tokens: most.end, webhooks: Vec::new() };
        cluster.drain(workload.tokens, PATIENCE)?;
        let drained_after = clock.monotonic().duration_since(ended);
        cluster.stop()?;
        let audit = cluster.operator().audit()?;
        let books = cluster.books(&workload)?;
        let delivered_at_us = books.tally().accepted_at_us;
        let notes = notes.into_inner()?;
        let survived = RoundSurvived {
            faults: plan.len(),
            duplicates: books.tally_of(least.clone()).duplicates,
            claimed: notes.claimed,
            in_doubt: audit.in_doubt,
            silence: longest_silence(&delivered_at_us),
            delivered: per_second(&delivered_at_us),
            drained_after,
        };
        judge(&audit, &books, (least, most))?;
        ensure!(
            survived.duplicates <= survived.claimed,
            "more duplicates than claims: {survived:?}"
        );
        let silence_max = notes.outage + self.backing.lease() + RECOVERY_MAX;
        ensure!(survived.silence <= silence_max, "silent beyond {silence_max:?}: {survived:?}");
        Ok(survived)
    }

    /// Enough work at full speed for the time of the faults and what the longest of them takes.
    fn pace(&self) -> LoadPace {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let (latency_ms, concurrency) = (random.u64(40..60), random.u64(6..11));
        let roles = self.backing.roles(PRODUCERS, CONSUMERS);
        let engines = roles.iter().filter(|role| **role != EngineRole::Produce).count() as u64;
        let lasts = self.within + PAST_LEASE;
        // What all engines together send in that time at this latency, half of it with each guarantee.
        let notifications = engines * concurrency * 1000 / latency_ms * lasts.as_secs() / 2;
        LoadPace { latency_ms, concurrency, notifications }
    }

    fn setup(&self, pace: LoadPace) -> ClusterSetup {
        let setting = |name: &str, value: String| (format!("BELFRY__{name}"), value);
        ClusterSetup {
            binary: self.binary.clone(),
            directory: self.directory.clone(),
            backing: self.backing,
            roles: self.backing.roles(PRODUCERS, CONSUMERS),
            has_links: true,
            engine_settings: vec![setting(
                "CHANNELS__IOS__CONCURRENCY",
                pace.concurrency.to_string(),
            )],
            store_settings: Vec::new(),
            simulator_flags: vec!["--latency".into(), format!("{}ms", pace.latency_ms)],
        }
    }
}

// === impl Backing ===

impl Backing {
    /// After so long the last of what a fault left behind is due again: a worker's lease, or a ticket's.
    const fn lease(self) -> Duration {
        match self {
            Self::Postgres => Duration::from_secs(10),
            Self::RabbitMq | Self::Nats | Self::Kafka => Duration::from_secs(30),
        }
    }
}

// === impl RoundLoad ===

impl RoundLoad {
    /// The load from the start, and the load that callers bring later; each waits for its answers, however long they take.
    fn split(numbers: &Range<u64>, guarantee: WorkloadGuarantee) -> (Self, Vec<Self>) {
        let first = numbers.start..numbers.start + (numbers.end - numbers.start) / 4 * 3;
        let share = (numbers.end - first.end).div_ceil(CALLERS).max(1);
        let later = (first.end..numbers.end)
            .step_by(usize::try_from(share).unwrap_or(usize::MAX))
            .map(|start| Self { numbers: start..(start + share).min(numbers.end), guarantee });
        let later = later.collect();
        (Self { numbers: first, guarantee }, later)
    }

    /// Gets the slices accepted, evenly over the time that it `lasts`, by whichever engine takes it; what was not answered is asked again,
    /// under the same keys.
    fn run(&self, cluster: &Cluster, lasts: Duration) -> Result<()> {
        let clock = flow::Clock::system();
        let started = clock.monotonic();
        let producers = cluster.producers();
        let mut producers = producers.iter().cycle();
        let slices = (self.numbers.end - self.numbers.start).div_ceil(SLICE);
        let every = lasts / u32::try_from(slices)?.max(1);
        for (i, from) in self.numbers.clone().step_by(usize::try_from(SLICE)?).enumerate() {
            let due = every * u32::try_from(i)?;
            std::thread::sleep(due.saturating_sub(clock.monotonic().duration_since(started)));
            let numbers = from..(from + SLICE).min(self.numbers.end);
            let key = format!("{}-{from}-", self.guarantee.as_str());
            let asked = clock.monotonic();
            loop {
                let producer = producers.next().context("nobody takes anything in")?;
                let Err(error) = producer.client()?.import(numbers.clone(), self.guarantee, &key)
                else {
                    break;
                };
                if clock.monotonic().duration_since(asked) > CALLER_PATIENCE {
                    return Err(error.context(format!("{} accepts nothing", producer.name)));
                }
                std::thread::sleep(TRY_EVERY);
            }
        }
        Ok(())
    }
}

/// Waits for the moment of `planned`, and lets it happen and pass.
fn befall(cluster: &Cluster, planned: &Planned, notes: &Mutex<Notes>) -> Result<()> {
    std::thread::sleep(planned.at);
    happen(cluster, planned.fault, notes).with_context(|| planned.to_string())
}

fn happen(cluster: &Cluster, fault: ClusterFault, notes: &Mutex<Notes>) -> Result<()> {
    let worker = |i: usize| cluster.workers().get(i).context("no such worker");
    let clock = flow::Clock::system();
    let began = clock.monotonic();
    match fault {
        ClusterFault::Kill { worker: i, down } => {
            worker(i)?.kill()?;
            // Behind the kill: until then it goes on claiming.
            note_claims(cluster, Some(worker(i)?), notes)?;
            std::thread::sleep(down);
            worker(i)?.start()
        }
        ClusterFault::Pause { worker: i, lasts } => {
            // A process that ended by itself takes signals until it is waited for: only this finds out.
            worker(i)?.check()?;
            worker(i)?.signal(Signal::STOP)?;
            note_claims(cluster, Some(worker(i)?), notes)?;
            std::thread::sleep(lasts);
            worker(i)?.signal(Signal::CONT)
        }
        ClusterFault::Link { worker: i, server, harm, lasts } => {
            harm_link(worker(i)?, server, harm)?;
            // Without its broker a process goes on with what it has: nothing of that may be repeated.
            if server == FaultedServer::Store {
                note_claims(cluster, Some(worker(i)?), notes)?;
            }
            std::thread::sleep(lasts);
            link_of(worker(i)?, server)?.pass();
            Ok(())
        }
        ClusterFault::StoreStop { down } => {
            note_claims(cluster, None, notes)?;
            let mut store = cluster.store();
            store.stop_immediate()?;
            std::thread::sleep(down);
            store.start_again()?;
            drop(store);
            // The start is part of it: nothing is delivered before its end.
            note_outage(clock.monotonic().duration_since(began), notes)?;
            note_claims(cluster, None, notes)
        }
        ClusterFault::BrokerKill { down } => {
            let mut broker = cluster.broker().context("there is no broker")?;
            broker.kill()?;
            std::thread::sleep(down);
            broker.start_again()?;
            note_outage(clock.monotonic().duration_since(began), notes)
        }
        ClusterFault::BrokerWipe => {
            cluster.broker().context("there is no broker")?.wipe()?;
            note_outage(clock.monotonic().duration_since(began), notes)
        }
    }
}

fn harm_link(worker: &ClusterWorker, server: FaultedServer, harm: Harm) -> Result<()> {
    let link = link_of(worker, server)?;
    match harm {
        Harm::Cut => link.cut(),
        Harm::HalfOpen => link.half_open(),
        Harm::Frozen => link.freeze(),
    }
    Ok(())
}

fn link_of(worker: &ClusterWorker, server: FaultedServer) -> Result<&testbed::Proxy> {
    let access = match server {
        FaultedServer::Store => Some(&worker.store),
        FaultedServer::Broker => worker.broker.as_ref(),
    };
    access.and_then(|access| access.link.as_ref()).context("there is no such link")
}

/// Notes what `worker`, or every worker, has claimed: it may be under way, and be repeated.
fn note_claims(
    cluster: &Cluster,
    worker: Option<&ClusterWorker>,
    notes: &Mutex<Notes>,
) -> Result<()> {
    let of_whom = match worker {
        Some(worker) => format!("w.listen = '{}'", worker.listen()),
        None => "true".to_owned(),
    };
    let query = format!(
        "SELECT coalesce(sum(c.count), 0) FROM belfry.chunk c JOIN belfry.worker w ON w.id = c.worker \
         WHERE NOT c.is_ticket AND {of_whom}"
    );
    // While the server is down there are no claims; what was claimed before it is noted when it is back.
    if let Ok(claimed) = cluster.database().query(&query) {
        notes.lock().map_err(poisoned)?.claimed += claimed.parse::<u64>()?;
    }
    Ok(())
}

fn note_outage(lasted: Duration, notes: &Mutex<Notes>) -> Result<()> {
    let mut notes = notes.lock().map_err(poisoned)?;
    notes.outage = notes.outage.max(lasted);
    Ok(())
}

/// Checks the promises after a round in which everything was accepted.
fn judge(
    audit: &AuditOutput,
    books: &JournalBooks,
    (least, most): (Range<u64>, Range<u64>),
) -> Result<()> {
    let all = most.end;
    let (least, most) = (books.tally_of(least), books.tally_of(most));
    ensure!(audit.balanced && audit.pending == 0, "the account does not balance: {audit:?}");
    ensure!(audit.accepted == all, "not everything was accepted once: {audit:?}");
    ensure!(
        least.missing == 0,
        "{} at-least-once notifications are lost, {audit:?}",
        least.missing
    );
    ensure!(
        most.processed_max <= 1,
        "an at-most-once notification was on the wire {} times, {audit:?}",
        most.processed_max
    );
    ensure!(most.missing <= audit.in_doubt, "{} at-most-once lost, {audit:?}", most.missing);
    ensure!(
        audit.delivered + audit.in_doubt == audit.accepted,
        "some ended in another way: {audit:?}"
    );
    Ok(())
}

fn poisoned<T>(_: T) -> anyhow::Error {
    anyhow::anyhow!("a thread of the harness panicked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::token;
    use std::io::Write as _;

    /// Two of each guarantee; the books have these lines: number and status.
    fn verdict(lines: &[(u64, &str)], in_doubt: u64) -> Result<()> {
        let mut journal = tempfile::NamedTempFile::new()?;
        for (number, status) in lines {
            writeln!(journal, "10\tapns\t{status}\tid\t{}", token(*number))?;
        }
        let books =
            JournalBooks::read(journal.path(), &Workload { tokens: 4, webhooks: Vec::new() })?;
        let audit = AuditOutput {
            accepted: 4,
            delivered: 4 - in_doubt,
            refused: 0,
            expired: 0,
            cancelled: 0,
            suppressed: 0,
            in_doubt,
            dead: 0,
            pending: 0,
            balanced: true,
        };
        judge(&audit, &books, (0..2, 2..4))
    }

    #[test]
    fn a_round_is_judged_by_the_providers_books() {
        let check = |lines: &[(u64, &str)], in_doubt, expect: &str| {
            let said =
                verdict(lines, in_doubt).map_or_else(|error| error.to_string(), |()| String::new());
            assert!(
                said.contains(expect) && said.is_empty() == expect.is_empty(),
                "{lines:?}: {said}"
            );
        };
        let all = [(0, "200"), (1, "200"), (2, "200"), (3, "200")];
        check(&all, 0, "");
        check(&[&all[..], &[(1, "200")]].concat(), 0, "");
        check(&all[..3], 1, "");
        check(&all[..3], 0, "1 at-most-once lost");
        check(&all[1..], 1, "1 at-least-once notifications are lost");
        check(&[&all[..], &[(2, "200")]].concat(), 0, "on the wire 2 times");
        check(&[&all[..], &[(2, "drop")]].concat(), 1, "on the wire 2 times");
    }
}
