//! The notifications that a request means among those that have ended: a filter, how many of its matches, and from which on.

use std::collections::BTreeSet;

use notification::{ByteString, Name, NotificationId, Priority, State, Timestamp, limits};
use store::{Filter, History};

use crate::ApiState;
use crate::answer_time::AnswerTime;
use crate::caller::Caller;
use crate::limits::LIST_SLICE;
use crate::problem::Problem;
use crate::query::Query;
use crate::scope::tenant_of;

/// The parameters of a request, read from its query.
pub(crate) struct Matching {
    /// Whose notifications are meant.
    pub(crate) tenant: Name,
    filter: Filter,
    narrow: Narrow,
    items_max: usize,
    /// True to count only.
    pub(crate) is_dry: bool,
    /// The last match of the request before, and after [`Matching::collect`] the one from which the next goes on.
    pub(crate) next: Option<NotificationId>,
}

/// The filters that the store does not apply.
struct Narrow {
    destination: Option<String>,
    priority: Option<Priority>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

/// The parameters that [`Matching::read`] reads.
pub(crate) const NAMES: [&str; 13] = [
    "broadcast",
    "channel",
    "external_id",
    "tag",
    "destination",
    "priority",
    "tenant",
    "since",
    "until",
    "reason",
    "after",
    "limit",
    "dry_run",
];

// === impl Matching ===

impl Matching {
    /// The parameters in `query`, of a `caller` who names no other tenant unless that is an operator.
    pub(crate) fn read(query: &mut Query, caller: &Caller) -> Result<Self, Problem> {
        let tenant = tenant_of(query, caller)?;
        let filter = Filter {
            tenant: Some(tenant.clone()),
            channel: query.parse("channel")?,
            broadcast: query.parse("broadcast")?,
            external_id: query.parse::<String>("external_id")?.map(ByteString::from),
            tag: query.parse::<String>("tag")?.map(ByteString::from),
            reason: query.parse("reason")?,
            ..Filter::default()
        };
        let narrow = Narrow {
            destination: query.parse("destination")?,
            priority: query.parse("priority")?,
            since: query.parse("since")?,
            until: query.parse("until")?,
        };
        let items_max = query.limit(limits::LIST_ITEMS, limits::LIST_ITEMS)?;
        let is_dry = query.parse("dry_run")?.unwrap_or(false);
        Ok(Self { tenant, filter, narrow, items_max, is_dry, next: query.parse("after")? })
    }

    /// True if it names a broadcast, or since when its matches have stood where they stand.
    pub(crate) fn is_bounded(&self) -> bool {
        self.filter.broadcast.is_some() || self.narrow.since.is_some()
    }

    /// Reads the store a slice at a time, like a list, and returns those of the matches in one of `states` that `takes` takes, up to
    /// the limit. [`Matching::next`] is where the next request goes on, `None` at the end.
    pub(crate) async fn collect(
        &mut self,
        (shared, caller): (&ApiState, &Caller),
        states: BTreeSet<State>,
        mut takes: impl FnMut(&History) -> bool + Send,
    ) -> Result<Vec<NotificationId>, Problem> {
        let filter = Filter { states, ..self.filter.clone() };
        let mut matched = Vec::new();
        let mut time = AnswerTime::of_work(shared);
        let reads = shared.patient_reads_of(caller);
        loop {
            let slice = LIST_SLICE.min(self.items_max - matched.len());
            let page = reads.list(filter.clone(), self.next, slice).await?;
            for history in page.items.iter().filter(|history| self.narrow.matches(history)) {
                if takes(history) {
                    matched.push(history.id);
                }
            }
            self.next = page.next;
            // A filter may match hardly anything: the caller goes on with `next`.
            if self.next.is_none() || matched.len() >= self.items_max || time.is_over() {
                break;
            }
        }
        Ok(matched)
    }
}

// === impl Narrow ===

impl Narrow {
    fn matches(&self, history: &History) -> bool {
        let Self { destination, priority, since, until } = self;
        // The last line in the log of one that has ended is its end.
        let Some(end) = history.attempts.last() else { return false };
        destination.as_ref().is_none_or(|it| **it == *history.envelope.lane.destination)
            && priority.is_none_or(|priority| priority == history.envelope.lane.priority)
            && since.is_none_or(|since| end.at >= since)
            && until.is_none_or(|until| end.at < until)
    }
}
