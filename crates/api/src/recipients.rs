//! `/v1/recipients`: what is stored about a recipient is erased.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::response::Response;
use notification::{ByteString, Name, NotificationId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{CancelTarget, Erased, Filter, History, Operations, ReadStore};

use crate::ApiState;
use crate::access::WithOperations;
use crate::act_trail::acted;
use crate::answer_time::AnswerTime;
use crate::caller::Caller;
use crate::limits::LIST_SLICE;
use crate::problem::Problem;
use crate::query::Query;
use crate::scope::tenant_of;
use crate::view::show;

/// Counts of what a call has erased.
#[derive(Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct ErasureAnswer {
    /// Notifications of which recipient and content are gone, fallbacks among them.
    pub erased: u64,
    /// Those of them that waited, and were cancelled for it.
    pub cancelled: u64,
    /// Notifications that are being sent: nothing of them is erased yet.
    pub under_way: u64,
    /// Channels on whose suppression list the recipient was. The last call counts them.
    pub suppressions: u64,
    /// Place at which the next call goes on; `None` at the end.
    pub next: Option<String>,
}

/// An erasure under way.
struct Erasure {
    shared: Arc<ApiState>,
    reads: Arc<dyn ReadStore>,
    operations: Arc<dyn Operations>,
    tenant: Name,
    answer: ErasureAnswer,
    /// True if the addresses of what is erased are taken off the suppression list.
    forgets: bool,
}

/// The person about whom everything is erased.
enum Whom {
    Address(ByteString),
    ExternalId(ByteString),
}

/// Parameters of a request.
pub(crate) const PARAMETERS: [&str; 5] = ["to", "external_id", "tenant", "after", "suppressions"];

/// `DELETE /v1/recipients`: asks the store for a slice at a time, like a list.
pub(crate) async fn erase(
    State(shared): State<Arc<ApiState>>,
    State(WithOperations(operations)): State<WithOperations>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &PARAMETERS)?;
    let tenant = tenant_of(&mut query, &caller)?;
    let whom = Whom::read(&mut query)?;
    let with_suppressions = query.parse("suppressions")?.unwrap_or(caller.is_operator);
    if with_suppressions && !caller.is_operator {
        let detail =
            "the suppression list is that of all tenants: to erase from it needs an operator's key";
        return Err(Problem::missing_scope(detail));
    }
    let filter = whom.filter(&tenant);
    let mut next: Option<NotificationId> = query.parse("after")?;
    let answer = ErasureAnswer::default();
    // The addresses of an external id are known from its notifications alone, so they are forgotten before these are.
    let forgets = with_suppressions && whom.address().is_none();
    let reads = shared.patient_reads_of(&caller);
    let mut erasure = Erasure { shared, reads, operations, tenant, answer, forgets };
    let mut time = AnswerTime::of_work(&erasure.shared);
    loop {
        let page = erasure.reads.list(filter.clone(), next, LIST_SLICE).await?;
        erasure.take(page.items).await?;
        next = page.next;
        // A recipient may have a long past: the caller goes on with `next`.
        if next.is_none() || time.is_over() {
            break;
        }
    }
    let Erasure { operations, mut answer, .. } = erasure;
    if with_suppressions
        && next.is_none()
        && let Some(address) = whom.address()
    {
        answer.suppressions = operations.forget(address).await?;
    }
    answer.next = next.map(show);
    Ok(acted(answer))
}

// === impl Whom ===

impl Whom {
    fn read(query: &mut Query) -> Result<Self, Problem> {
        let mut given = |name: &str| {
            let value = query.parse::<String>(name)?.map(ByteString::from);
            match value {
                Some(value) if value.is_empty() => {
                    Err(Problem::parameter(format!("parameter {name}: must not be empty")))
                }
                value => Ok(value),
            }
        };
        match (given("to")?, given("external_id")?) {
            (Some(address), None) => Ok(Self::Address(address)),
            (None, Some(external_id)) => Ok(Self::ExternalId(external_id)),
            (Some(_), Some(_)) | (None, None) => {
                Err(Problem::parameter("give the parameter `to`, or `external_id`, and not both"))
            }
        }
    }

    fn address(&self) -> Option<ByteString> {
        match self {
            Self::Address(address) => Some(address.clone()),
            Self::ExternalId(_) => None,
        }
    }

    /// The notifications that are about it.
    fn filter(&self, tenant: &Name) -> Filter {
        let of_tenant = Filter { tenant: Some(tenant.clone()), ..Filter::default() };
        match self {
            Self::Address(address) => {
                Filter { recipient: Some(address.clone()), or_fallback: true, ..of_tenant }
            }
            Self::ExternalId(id) => Filter { external_id: Some(id.clone()), ..of_tenant },
        }
    }
}

/// The recipient of a notification, and those of its fallbacks.
fn addresses_of(history: &History) -> Vec<ByteString> {
    let fallback = history.content.as_ref().and_then(|content| content.fallback.as_ref());
    let others = fallback.iter().flat_map(|fallback| &fallback.next);
    let others = others.map(|next| next.recipient.clone());
    history.recipient.clone().into_iter().chain(others).collect()
}

// === impl Erasure ===

impl Erasure {
    /// Erases a slice of what was found.
    async fn take(&mut self, histories: Vec<History>) -> Result<(), Problem> {
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for history in histories {
            let (id, addresses) = (history.id, addresses_of(&history));
            match self.ended(history).await? {
                Some(linked) => {
                    self.forget(addresses).await?;
                    found.push(id);
                    others.extend(linked.into_iter().filter(|other| *other != id));
                }
                None => self.answer.under_way += 1,
            }
        }
        others.retain(|other| !found.contains(other));
        // What was found goes last: nothing else leads to the others.
        let left = self.erase(others).await?;
        if left > 0 {
            self.answer.under_way += left;
            return Ok(());
        }
        self.answer.under_way += self.erase(found).await?;
        Ok(())
    }

    /// Takes addresses off the suppression list, if that is asked for.
    async fn forget(&mut self, addresses: Vec<ByteString>) -> Result<(), Problem> {
        for address in addresses.into_iter().filter(|_| self.forgets) {
            self.answer.suppressions += self.operations.forget(address).await?;
        }
        Ok(())
    }

    /// Erases what has ended; the number of those that have not, because they were requeued just now.
    async fn erase(&mut self, ids: Vec<NotificationId>) -> Result<u64, Problem> {
        let mut left = 0;
        for answer in self.operations.erase(ids, self.tenant.clone()).await? {
            match answer {
                Erased::Erased => self.answer.erased += 1,
                Erased::Pending => left += 1,
                // Another caller was faster.
                Erased::Unknown => {}
            }
        }
        Ok(left)
    }

    /// The notification with those that were sent in its place, or in whose place it was sent, when all of them have ended, by being
    /// cancelled if they waited. `None` when one is being sent. From then on none is sent in their place any more.
    async fn ended(&mut self, history: History) -> Result<Option<Vec<NotificationId>>, Problem> {
        let (mut all, mut rest) = (Vec::new(), vec![history]);
        while let Some(history) = rest.pop() {
            let Some(history) = self.end(history).await? else { return Ok(None) };
            all.push(history.id);
            for linked in history.fallback_of().into_iter().chain(history.fallback_id) {
                if !all.contains(&linked) {
                    rest.extend(self.reads.find(linked).await?);
                }
            }
        }
        Ok(Some(all))
    }

    /// The notification once it has ended; `None` if it is being sent.
    async fn end(&mut self, history: History) -> Result<Option<History>, Problem> {
        if history.state.is_terminal() {
            return Ok(Some(history));
        }
        let (id, now) = (history.id, self.shared.intake.now());
        let target = CancelTarget::Notification(id);
        let cancelled = self.operations.cancel(target, self.tenant.clone(), now).await?;
        self.answer.cancelled += cancelled.map_or(0, |cancelled| cancelled.cancelled);
        let found = self.reads.find(id).await?;
        Ok(found.filter(|found| found.state.is_terminal()))
    }
}
