//! The queues: one for each priority.

use std::collections::BTreeMap;
use std::time::Duration;

use notification::{Priority, limits};
use stream::aws::AwsFailure;
use stream::aws::SdkConfig;
use stream::aws::sqs_queue::SqsQueue;
use tokio::time::timeout;

use crate::broker::capacity::WaitingTickets;
use crate::broker::error::BrokerError;
use crate::broker::limits::{LINK_TIMEOUT, TICKET_ANSWER_WAIT};

/// The queues of one prefix.
#[derive(Debug)]
pub(super) struct SqsTopology {
    config: SdkConfig,
    prefix: String,
    queues: [SqsQueue; Priority::ALL.len()],
}

/// The shortest time for which SQS can keep a message: longer than a ticket is good. A queue that is there may keep them longer.
const RETENTION: Duration = Duration::from_mins(1);

const _: () = assert!(RETENTION.as_secs() >= limits::TICKET_LEASE.as_secs());

// === impl SqsTopology ===

impl SqsTopology {
    /// Finds the queues, or creates them.
    pub(super) async fn create(config: SdkConfig, prefix: &str) -> Result<Self, BrokerError> {
        let queues = tokio::try_join!(
            declared(&config, prefix, Priority::Urgent),
            declared(&config, prefix, Priority::Normal),
            declared(&config, prefix, Priority::Bulk),
        );
        let (urgent, normal, bulk) = queues?;
        Ok(Self { config, prefix: prefix.to_owned(), queues: [urgent, normal, bulk] })
    }

    /// Creates what is gone.
    pub(super) async fn declare(&self) -> Result<(), BrokerError> {
        for priority in Priority::ALL {
            declared(&self.config, &self.prefix, *priority).await?;
        }
        Ok(())
    }

    /// The queue of `priority`.
    pub(super) fn queue(&self, priority: Priority) -> &SqsQueue {
        let [urgent, normal, bulk] = &self.queues;
        match priority {
            Priority::Urgent => urgent,
            Priority::Normal => normal,
            Priority::Bulk => bulk,
        }
    }

    /// Tickets waiting per priority, about.
    pub(super) async fn waiting(&self) -> Result<WaitingTickets, BrokerError> {
        let mut waiting = WaitingTickets::default();
        for (count, priority) in waiting.iter_mut().zip(Priority::ALL) {
            *count = self.waiting_of(*priority).await?;
        }
        Ok(waiting)
    }

    /// Tickets of `priority` that wait, about.
    pub(super) async fn waiting_of(&self, priority: Priority) -> Result<u64, BrokerError> {
        let attributes = self.queue(priority).attributes().await.map_err(of_failure)?;
        Ok(number(&attributes, "ApproximateNumberOfMessages").unwrap_or_default())
    }

    /// Asks for something, to see whether it is answered.
    ///
    /// # Errors
    /// When it is not.
    pub(super) async fn probe(&self) -> Result<(), BrokerError> {
        let answer = timeout(LINK_TIMEOUT, self.queue(Priority::Urgent).attributes()).await;
        let place = self.queue(Priority::Urgent).place();
        let silent = || BrokerError(format!("{place} does not answer"));
        answer.map_err(|_late| silent())?.map(|_attributes| ()).map_err(of_failure)
    }
}

/// The queue of `priority`, found or created.
async fn declared(
    config: &SdkConfig,
    prefix: &str,
    priority: Priority,
) -> Result<SqsQueue, BrokerError> {
    let attributes = [
        ("MessageRetentionPeriod", RETENTION.as_secs().to_string()),
        ("VisibilityTimeout", TICKET_ANSWER_WAIT.as_secs().to_string()),
    ];
    let name = format!("{prefix}-{priority}");
    let queue = SqsQueue::find_or_create(config, &name, &attributes).await.map_err(of_failure)?;
    let attributes = queue.attributes().await.map_err(of_failure)?;
    check(&attributes).map_err(|why| {
        let place = queue.place();
        BrokerError(format!(
            "{place} cannot carry tickets ({why}): delete it, or choose another prefix"
        ))
    })?;
    Ok(queue)
}

/// Checks that a queue that is there, perhaps made by an operator, gives what it takes at once, and keeps it for as long as a ticket is good.
fn check(attributes: &BTreeMap<String, String>) -> Result<(), String> {
    let lease = limits::TICKET_LEASE.as_secs();
    match number(attributes, "MessageRetentionPeriod") {
        Some(seconds) if seconds < lease => {
            return Err(format!("it drops messages after {seconds} s, and needs {lease}"));
        }
        _other => {}
    }
    match number(attributes, "DelaySeconds") {
        Some(seconds) if seconds > 0 => Err(format!("it delays messages by {seconds} s")),
        _other => Ok(()),
    }
}

fn number(attributes: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    attributes.get(name)?.parse().ok()
}

/// A failure in the words of a broker.
pub(super) fn of_failure(failure: AwsFailure) -> BrokerError {
    BrokerError(failure.text)
}
