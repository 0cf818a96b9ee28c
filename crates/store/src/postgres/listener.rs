//! The connection that receives the notifications of other processes.

use std::sync::Arc;
use std::time::Duration;

use flow::{Backoff, Clock};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::MissedTickBehavior;
use tokio_postgres::Error;

use super::connection::{Connector, OnNotification};
use super::errors;
use super::notices::{Notice, NoticeSender, from_payload};
use super::writer_state::Membership;

/// The connection that listens.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) connector: Connector,
    /// Sender of notices to the writer that claims.
    pub(super) notices: NoticeSender,
    /// Wakes the stages that wait for work.
    pub(super) changes: watch::Sender<u64>,
    /// Wakes the task that renews the worker.
    pub(super) cluster: Arc<Notify>,
    pub(super) outbox: watch::Sender<u64>,
    pub(super) membership: watch::Receiver<Membership>,
    pub(super) clock: Clock,
    pub(super) random: fastrand::Rng,
}

/// Time after which everything is read anew although no notification asks for it: some may have been lost.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The longest pause between attempts to connect. Everything is read anew before each.
const LOOK_EVERY_DISCONNECTED: Duration = Duration::from_secs(5);
/// Time that the server may take to show that it is there.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

// === impl Listener ===

impl Listener {
    /// Listens for ever.
    pub(super) async fn run(mut self) {
        let backoff = Backoff::new(Duration::from_millis(100), LOOK_EVERY_DISCONNECTED);
        let mut failures = 0;
        loop {
            let error = match self.listen(&mut failures).await {
                Ok(()) => "it fell silent".to_owned(),
                Err(error) => errors::in_words(&error),
            };
            tracing::warn!(error, "cannot receive the notifications of other processes");
            failures += 1;
            let delay = backoff.map_or(LOOK_EVERY_DISCONNECTED, |backoff| {
                backoff.delay(failures, None, &mut self.random)
            });
            tokio::time::sleep(delay).await;
            // Nothing was notified meanwhile, and the writers' connections may work although this one cannot be made.
            self.reload_everything();
        }
    }

    /// Listens until the connection is lost.
    async fn listen(&mut self, failures: &mut u16) -> Result<(), Error> {
        let (received, mut payloads) = mpsc::channel(super::NOTICES);
        let overflowed = Arc::new(Notify::new());
        let (cluster, outbox, missed) =
            (Arc::clone(&self.cluster), self.outbox.clone(), Arc::clone(&overflowed));
        let on_notification: OnNotification =
            Arc::new(move |notification| match notification.channel() {
                // These two carry no payload: what changed is read anew, so one wake-up stands for any number of them.
                "belfry_cluster" => cluster.notify_one(),
                "belfry_outbox" => outbox.send_modify(|change| *change += 1),
                _ => {
                    // Called by the task of the connection, which must not wait.
                    if received.try_send(notification.payload().to_owned()).is_err() {
                        missed.notify_one();
                    }
                }
            });
        let session = self.connector.connect(Some(on_notification)).await?;
        let channels = "LISTEN belfry_work; LISTEN belfry_cluster; LISTEN belfry_outbox";
        session.client.batch_execute(channels).await?;
        // Not before LISTEN was answered: a server that lets sessions in and ends them at once would be tried again without a
        // pause.
        *failures = 0;
        // After LISTEN: earlier changes are found by looking, and later ones are notified.
        self.reload_everything();
        let mut looked_at = self.clock.monotonic();
        // Other events meanwhile put off neither.
        let mut checks = tokio::time::interval(ANSWER_WITHIN);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                payload = payloads.recv() => match payload {
                    Some(payload) => self.receive(&payload),
                    // The sender belongs to the connection's task, which has ended.
                    None => return Ok(()),
                },
                () = overflowed.notified() => self.reload_everything(),
                _ = checks.tick() => {
                    // A link that is silently dead shows only by a query.
                    let answer = session.client.batch_execute("");
                    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
                        Ok(answer) => answer?,
                        Err(_elapsed) => return Ok(()),
                    }
                    if self.clock.monotonic().duration_since(looked_at) >= LOOK_EVERY {
                        looked_at = self.clock.monotonic();
                        self.reload_everything();
                    }
                }
            }
        }
    }

    fn receive(&self, payload: &str) {
        let (worker, notices) = from_payload(payload);
        // This process's writers have passed on their own already.
        if worker != Some(self.membership.borrow().worker) {
            self.pass_on(notices);
        }
    }

    fn reload_everything(&self) {
        self.pass_on(vec![Notice::Everything]);
        self.outbox.send_modify(|change| *change += 1);
        self.cluster.notify_one();
    }

    fn pass_on(&self, notices: Vec<Notice>) {
        // Before the wake-up: a claim that is woken first would go by what is not known yet.
        self.notices.send(notices);
        self.changes.send_modify(|change| *change += 1);
    }
}
