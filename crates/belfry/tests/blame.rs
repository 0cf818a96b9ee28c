//! Which notification repeated crashes are blamed on: the binary, killed by SIGKILL while a request is on the wire.
//!
//! A suspect is tried two seconds after each crash, so on the embedded store each of these takes about a minute. On PostgreSQL a
//! process looks for dead ones four seconds after it has started, so there it is two.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::time::Duration;

use bench::workload::token;
use bench::{Finished, Setup, Trial, Workload, WorkloadGuarantee};
use notification::limits;
use tempfile::TempDir;
use testbed::Database;

const PATIENCE: Duration = Duration::from_mins(2);
const CONTENT: &str = r#"{"aps":{}}"#;

/// An engine that is killed, and its store.
struct Victim {
    trial: Trial,
    /// None with the embedded store.
    database: Option<Database>,
    directory: TempDir,
}

/// The lease of a process that was killed ends now, not in ten seconds; but first the server has to notice that its connections
/// are gone, by which a process that was killed is told from one that was cut off. Waits for that two minutes at most.
const END_LEASES: &str = "DO $$ BEGIN \
     FOR look IN 1..1200 LOOP \
       PERFORM pg_stat_clear_snapshot(); \
       EXIT WHEN NOT EXISTS (SELECT FROM belfry.worker JOIN pg_stat_activity ON pid = backend); \
       PERFORM pg_sleep(0.1); \
     END LOOP; \
     UPDATE belfry.worker SET alive_until = clock_timestamp() - interval '1 second'; END $$";
/// Waits, two minutes at most, until no worker is overdue: what they had claimed is due again, or dead.
const AWAIT_RECOVERY: &str = "DO $$ BEGIN \
     FOR look IN 1..1200 LOOP \
       IF NOT EXISTS (SELECT FROM belfry.worker WHERE alive_until < clock_timestamp()) THEN RETURN; END IF; \
       PERFORM pg_sleep(0.1); \
     END LOOP; \
     RAISE EXCEPTION 'a worker stays overdue'; END $$";

// === impl Victim ===

impl Victim {
    fn start(database: Option<Database>, simulator_flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let binary = env!("CARGO_BIN_EXE_belfry");
        let setup = Setup::new(binary, directory.path(), simulator_flags);
        let store = database.as_ref().map(|database| database.url().to_owned());
        let trial = Trial::start_on(setup, store).unwrap();
        Self { trial, database, directory }
    }

    fn kill(&mut self) {
        self.trial.kill().unwrap();
        if let Some(database) = &self.database {
            database.query(END_LEASES).unwrap();
        }
    }

    /// Starts it again, and returns when what it had claimed is recovered.
    fn restart(&mut self) {
        self.trial.restart().unwrap();
        if let Some(database) = &self.database {
            database.query(AWAIT_RECOVERY).unwrap();
        }
    }

    /// Stops it; gives what it and the provider counted.
    fn finish(self, tokens: u64) -> Finished {
        let finished = self.trial.finish(&Workload { tokens, webhooks: Vec::new() }).unwrap();
        self.directory.close().unwrap();
        finished
    }
}

#[test]
fn an_innocent_notification_in_flight_at_twenty_kills_is_delivered() {
    on_both_stores(deliver_the_innocent);
}

#[test]
fn one_that_ends_the_process_whenever_it_is_sent_is_found_and_the_others_are_delivered() {
    on_both_stores(find_the_guilty);
}

/// Does it on the embedded store and on PostgreSQL at once: nearly all of it is waiting.
fn on_both_stores(attempt: fn(Option<Database>)) {
    std::thread::scope(|scope| {
        let _joined_by_the_scope = scope.spawn(|| attempt(None));
        attempt(Some(testbed::postgres::shared().unwrap().create().unwrap()));
    });
}

fn deliver_the_innocent(database: Option<Database>) {
    const KILLS: usize = 20;
    let recipient = token(0);
    let mut victim = Victim::start(database, &["--silent-to", &recipient]);
    victim.trial.broadcast(0..1, CONTENT, WorkloadGuarantee::AtLeastOnce).unwrap();
    for kill in 1..=KILLS {
        victim.trial.wait_for_requests(&recipient, kill, PATIENCE).unwrap();
        victim.kill();
        if kill == KILLS {
            victim.trial.replace_simulator(&[]).unwrap();
        }
        victim.restart();
        assert_eq!(victim.trial.audit().unwrap().dead, 0, "after {kill} kills");
    }
    victim.trial.drain(PATIENCE, || Ok(())).unwrap();
    let finished = victim.finish(1);
    let (audit, tally) = (finished.audit, finished.books.tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.delivered), (1, 1), "{audit:?}");
    assert_eq!(tally.processed_max as usize, KILLS + 1, "it was in flight at each kill");
}

fn find_the_guilty(database: Option<Database>) {
    const COUNT: u64 = 200;
    const POISON: u64 = 100;
    // Crashes until it is suspected; divisions of 200 until it is alone, each of which may be needed twice; and then those
    // that quarantine it.
    let most = limits::CRASHES_BEFORE_SUSPICION + 2 * 2 + limits::WEIGHT_BEFORE_QUARANTINE;
    let poison = token(POISON);
    let mut victim = Victim::start(database, &["--silent-to", &poison]);
    victim.trial.broadcast(0..COUNT, CONTENT, WorkloadGuarantee::AtLeastOnce).unwrap();
    let mut kills = 0;
    while victim.trial.audit().unwrap().dead == 0 {
        assert!(kills < most, "{kills} kills");
        victim.trial.wait_for_requests(&poison, usize::from(kills) + 1, PATIENCE).unwrap();
        victim.kill();
        kills += 1;
        victim.restart();
    }
    victim.trial.drain(PATIENCE, || Ok(())).unwrap();
    let audit = victim.trial.audit().unwrap();
    assert_eq!((audit.delivered, audit.dead), (COUNT - 1, 1), "after {kills} kills: {audit:?}");

    // Its cause is gone.
    victim.kill();
    victim.trial.replace_simulator(&[]).unwrap();
    victim.restart();
    let requeue = |reason| {
        let mut command = victim.trial.engine().client().command("requeue");
        let output = command.args(["--all", "--reason", reason]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(requeue("another"), "0 of 0 dead notifications requeued\n");
    let words = "the process ended each time this was sent";
    assert_eq!(requeue(words), "1 of 1 dead notifications requeued\n");
    victim.trial.drain(PATIENCE, || Ok(())).unwrap();
    let finished = victim.finish(COUNT);
    let (audit, tally) = (finished.audit, finished.books.tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.delivered, audit.dead), (COUNT, COUNT, 0), "{audit:?}");
    assert_eq!(tally.missing, 0);
}
