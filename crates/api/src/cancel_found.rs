//! `/v1/cancel` by recipient or label: what waits of the notifications that a search finds is cancelled.

use futures_util::future::try_join_all;
use notification::{ByteString, Name, NotificationId, State, Timestamp};
use store::{CancelTarget, Filter, History, Operations, StoreError};

use crate::ApiState;
use crate::answer_time::AnswerTime;
use crate::caller::Caller;
use crate::limits::LIST_SLICE;
use crate::problem::Problem;
use crate::query::Query;
use crate::scope::tenant_of;

/// A search, and where it goes on.
pub(crate) struct FoundToCancel {
    pub(crate) tenant: Name,
    filter: Filter,
    next: Option<NotificationId>,
    is_dry: bool,
}

/// The counts of a call.
#[derive(Debug, Default)]
pub(crate) struct FoundCounts {
    /// Those that are cancelled now; of a dry run, that would be.
    pub(crate) cancelled: u64,
    /// Those that were claimed, and perhaps on the wire.
    pub(crate) under_way: u64,
    /// Where the next call goes on; `None` at the end.
    pub(crate) next: Option<NotificationId>,
}

/// The parameters of which one at least is given.
pub(crate) const SEARCHES: [&str; 3] = ["to", "external_id", "tag"];

// === impl FoundToCancel ===

impl FoundToCancel {
    /// The search that `query` names; `None` if it names none.
    pub(crate) fn read(query: &mut Query, caller: &Caller) -> Result<Option<Self>, Problem> {
        let mut text = |name| Ok::<_, Problem>(query.parse::<String>(name)?.map(ByteString::from));
        let [recipient, external_id, tag] = [text("to")?, text("external_id")?, text("tag")?];
        if recipient.is_none() && external_id.is_none() && tag.is_none() {
            return Ok(None);
        }
        let tenant = tenant_of(query, caller)?;
        let filter = Filter {
            tenant: Some(tenant.clone()),
            channel: query.parse("channel")?,
            broadcast: query.parse("broadcast")?,
            states: [State::Pending, State::Claimed, State::Begun].into(),
            recipient,
            external_id,
            tag,
            ..Filter::default()
        };
        for name in ["destination", "priority", "all"] {
            if query.parse::<String>(name)?.is_some() {
                let detail = format!(
                    "parameter {name}: goes with no search; with to, external_id or tag give channel or broadcast"
                );
                return Err(Problem::parameter(detail));
            }
        }
        let (next, is_dry) = (query.parse("after")?, query.parse("dry_run")?.unwrap_or(false));
        Ok(Some(Self { tenant, filter, next, is_dry }))
    }

    /// Cancels those that are found, as far as the time of a call allows.
    pub(crate) async fn cancel(
        &self,
        (shared, caller): (&ApiState, &Caller),
        operations: &dyn Operations,
        now: Timestamp,
    ) -> Result<FoundCounts, Problem> {
        let mut counts = FoundCounts { next: self.next, ..FoundCounts::default() };
        let mut time = AnswerTime::of_work(shared);
        let reads = shared.patient_reads_of(caller);
        loop {
            let page = reads.list(self.filter.clone(), counts.next, LIST_SLICE).await?;
            let (waiting, under_way): (Vec<_>, Vec<_>) =
                page.items.into_iter().partition(|found| found.state == State::Pending);
            counts.under_way += under_way.len() as u64;
            if self.is_dry {
                counts.cancelled += waiting.len() as u64;
            } else {
                // Together, so that the store writes them together.
                let calls = waiting.iter().map(|found| self.cancel_one(found, operations, now));
                for (cancelled, under_way) in try_join_all(calls).await? {
                    counts.cancelled += cancelled;
                    counts.under_way += under_way;
                }
            }
            counts.next = page.next;
            // A search may find hardly any that wait: the caller goes on with `next`.
            if counts.next.is_none() || time.is_over() {
                break;
            }
        }
        Ok(counts)
    }

    /// How many were cancelled, and how many were claimed meanwhile.
    async fn cancel_one(
        &self,
        found: &History,
        operations: &dyn Operations,
        now: Timestamp,
    ) -> Result<(u64, u64), StoreError> {
        let target = CancelTarget::Notification(found.id);
        let cancelled = operations.cancel(target, self.tenant.clone(), now).await?;
        Ok(cancelled.map_or((0, 0), |it| (it.cancelled, it.under_way)))
    }
}
