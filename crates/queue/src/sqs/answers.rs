//! Acknowledgements: handed over without a wait, and sent in batches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flow::Tasks;
use futures_util::future::join_all;
use notification::Priority;
use tokio::sync::mpsc;

use super::topology::SqsTopology;
use crate::broker::error::BrokerError;
use crate::broker::limits::PREFETCH_TICKETS;

/// Hands answers to the task that sends them.
#[derive(Debug)]
pub(super) struct SqsAnswers {
    /// None once the link has ended.
    send: Mutex<Option<mpsc::Sender<TicketAnswer>>>,
    task: tokio::sync::Mutex<Tasks>,
}

/// An answer for a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SqsAnswer {
    /// It is done.
    Delete,
    /// It is visible to others after this time.
    Hide(Duration),
}

#[derive(Debug)]
struct TicketAnswer {
    priority: Priority,
    handle: String,
    answer: SqsAnswer,
}

/// Answers that wait to be sent: one for each ticket that a consumer holds, and one to keep each of them.
const ANSWERS_MAX: usize = 2 * PREFETCH_TICKETS * Priority::ALL.len();

// === impl SqsAnswers ===

impl SqsAnswers {
    /// Starts the task.
    pub(super) fn start(topology: Arc<SqsTopology>) -> Self {
        let (send, receive) = mpsc::channel(ANSWERS_MAX);
        let mut tasks = Tasks::default();
        tasks.spawn("sqs-answers", send_all(topology, receive));
        Self { send: Mutex::new(Some(send)), task: tokio::sync::Mutex::new(tasks) }
    }

    /// Hands an answer over. SQS is not waited for.
    ///
    /// # Errors
    /// When the link has ended, or too many wait already.
    pub(super) fn answer(
        &self,
        priority: Priority,
        handle: String,
        answer: SqsAnswer,
    ) -> Result<(), BrokerError> {
        let send = self.send.lock().unwrap_or_else(PoisonError::into_inner);
        let send = send.as_ref().ok_or_else(|| BrokerError("the link has ended".to_owned()))?;
        let handed_over = send.try_send(TicketAnswer { priority, handle, answer });
        handed_over.map_err(|_full| BrokerError("too many answers wait for SQS".to_owned()))
    }

    /// Sends what was handed over, and ends the task.
    pub(super) async fn finish(&self) {
        drop(self.send.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.task.lock().await.drain().await;
    }
}

/// Sends answers, those that wait together in one call of ten for each kind.
async fn send_all(topology: Arc<SqsTopology>, mut receive: mpsc::Receiver<TicketAnswer>) {
    let mut answers = Vec::with_capacity(ANSWERS_MAX);
    while receive.recv_many(&mut answers, ANSWERS_MAX).await > 0 {
        let mut groups: BTreeMap<(u8, SqsAnswer), (Priority, Vec<String>)> = BTreeMap::new();
        for TicketAnswer { priority, handle, answer } in answers.drain(..) {
            let group = groups.entry((priority.code(), answer));
            group.or_insert_with(|| (priority, Vec::new())).1.push(handle);
        }
        let topology = &topology;
        let sends = groups.into_iter().map(|((_, answer), (priority, handles))| async move {
            let queue = topology.queue(priority);
            let sent = match answer {
                SqsAnswer::Delete => queue.delete(&handles).await,
                SqsAnswer::Hide(time) => queue.set_visibility(&handles, time).await,
            };
            // These come again, and the store refuses them.
            let failed: Vec<_> = sent.into_iter().filter_map(Result::err).collect();
            if let Some(first) = failed.first() {
                let (count, error) = (failed.len(), &first.text);
                tracing::debug!(count, error, "answers for tickets failed");
            }
        });
        join_all(sends).await;
    }
}
