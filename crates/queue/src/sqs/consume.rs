//! Consuming: long polls for as many tickets as there are places for; a message that is no ticket is deleted.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use notification::Priority;
use stream::aws::AwsFailure;
use stream::aws::sqs_queue::{ENTRIES_MAX, SqsMessage};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::answers::{SqsAnswer, SqsAnswers};
use super::topology::{SqsTopology, of_failure};
use crate::broker::error::BrokerError;
use crate::broker::held_tickets::{BrokerMessage, HeldTickets};
use crate::broker::limits::{PREFETCH_TICKETS, TICKET_ANSWER_WAIT, TICKET_DELIVERIES};
use crate::ticket;

/// Receives the tickets of one priority.
#[derive(Debug)]
pub(super) struct SqsConsumer {
    topology: Arc<SqsTopology>,
    priority: Priority,
    answers: Arc<SqsAnswers>,
    /// Receives under way. Not owned by the future that runs, which is dropped when the queue closes.
    receives: Mutex<JoinSet<Result<usize, AwsFailure>>>,
}

/// A message of the broker.
#[derive(Debug)]
pub(super) struct SqsTicket {
    handle: String,
    priority: Priority,
    receives: u32,
    answers: Arc<SqsAnswers>,
}

/// Time for which one receive waits. What SQS gives to one that was abandoned is invisible for [`TICKET_ANSWER_WAIT`], so it is
/// shorter than SQS allows.
const WAIT: Duration = Duration::from_secs(5);
/// Receives at a time while much waits.
const RECEIVES_MAX: usize = PREFETCH_TICKETS / ENTRIES_MAX;
/// Time for which a ticket that is given back repeatedly stays away.
const REST: Duration = Duration::from_secs(1);

// === impl SqsConsumer ===

impl SqsConsumer {
    pub(super) fn new(
        topology: Arc<SqsTopology>,
        priority: Priority,
        answers: Arc<SqsAnswers>,
    ) -> Self {
        Self { topology, priority, answers, receives: Mutex::default() }
    }

    /// Holds what arrives, until that fails; says why.
    pub(super) async fn run(&self, held: &Arc<HeldTickets<SqsTicket>>) -> BrokerError {
        let mut is_busy = false;
        loop {
            let wanted = held.wants(self.priority, PREFETCH_TICKETS).await;
            let mut receives = self.receives.lock().await;
            // One that waits; or, while receives are full, several that do not.
            let (calls, wait) = if is_busy {
                (wanted.div_ceil(ENTRIES_MAX).clamp(1, RECEIVES_MAX), Duration::ZERO)
            } else {
                (1, WAIT)
            };
            for call in 0..calls {
                let most = wanted.saturating_sub(call * ENTRIES_MAX).clamp(1, ENTRIES_MAX);
                self.begin(&mut receives, most, wait, held);
            }
            let mut arrived = 0;
            while let Some(ended) = receives.join_next().await {
                match ended {
                    Ok(Ok(count)) => arrived += count,
                    Ok(Err(failure)) => return of_failure(failure),
                    Err(_panicked_or_ended) => {
                        return BrokerError("a receive ended without an answer".to_owned());
                    }
                }
            }
            is_busy = arrived >= ENTRIES_MAX;
        }
    }

    /// Receives no more.
    pub(super) async fn stop(&self) {
        self.receives.lock().await.shutdown().await;
    }

    fn begin(
        &self,
        receives: &mut JoinSet<Result<usize, AwsFailure>>,
        most: usize,
        wait: Duration,
        held: &Arc<HeldTickets<SqsTicket>>,
    ) {
        let (topology, held) = (Arc::clone(&self.topology), Arc::clone(held));
        let (priority, answers) = (self.priority, Arc::clone(&self.answers));
        receives.spawn(async move {
            let queue = topology.queue(priority);
            let messages = queue.receive(most, wait, TICKET_ANSWER_WAIT).await?;
            let count = messages.len();
            for message in messages {
                put(message, priority, &answers, &held);
            }
            Ok(count)
        });
    }
}

fn put(
    message: SqsMessage,
    priority: Priority,
    answers: &Arc<SqsAnswers>,
    held: &HeldTickets<SqsTicket>,
) {
    let SqsMessage { handle, body, receives, .. } = message;
    let answers = Arc::clone(answers);
    let delivered = SqsTicket { handle, priority, receives, answers };
    let bytes = BASE64_STANDARD.decode(&body).unwrap_or_default();
    match ticket::decode(&bytes) {
        Ok(ticket) if receives <= u32::from(TICKET_DELIVERIES) => held.put(ticket, delivered),
        Ok(_given_out_too_often) => {
            // It is issued anew when its lease ends. If the deletion does not get there, the message comes again.
            let _deleted = delivered.acknowledge();
        }
        Err(error) => {
            tracing::warn!(%priority, %error, "a message is no ticket: it is deleted");
            let _deleted = delivered.acknowledge();
        }
    }
}

// === impl SqsTicket ===

impl BrokerMessage for SqsTicket {
    fn acknowledge(&self) -> Result<(), BrokerError> {
        self.answers.answer(self.priority, self.handle.clone(), SqsAnswer::Delete)
    }

    fn give_back(&self) {
        let rest = if self.receives > 1 { REST } else { Duration::ZERO };
        // If it does not get there, SQS gives it out again after a while.
        let _handed_over =
            self.answers.answer(self.priority, self.handle.clone(), SqsAnswer::Hide(rest));
    }

    fn keep(&self) {
        let hide = SqsAnswer::Hide(TICKET_ANSWER_WAIT);
        let _handed_over = self.answers.answer(self.priority, self.handle.clone(), hide);
    }
}
