//! Notifications that were in doubt and end by an operator's word. They have no chunk, before and after.

use async_trait::async_trait;
use notification::{Name, NotificationId, State, Timestamp};

use super::request::WriterRequest;
use super::transaction::{RunError, Transaction, Writes};
use crate::rows::codec::LogRow;
use crate::rows::requeue::by_batch;
use crate::rows::resolve::ResolutionLines;
use crate::{Resolution, Resolved};

/// Ends notifications that are in doubt as an operator says.
#[derive(Debug)]
pub(super) struct ResolveNotifications {
    pub(super) ids: Vec<NotificationId>,
    pub(super) resolution: Resolution,
    pub(super) tenant: Name,
    pub(super) now: Timestamp,
}

#[async_trait]
impl WriterRequest for ResolveNotifications {
    type Answer = Vec<Resolved>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        let lines = ResolutionLines::new(&self.resolution, self.now);
        let mut answers = vec![Resolved::Unknown; self.ids.len()];
        let asked = by_batch(&self.ids);
        let numbers: Vec<i64> = asked.keys().map(|batch| batch.0.cast_signed()).collect();
        let mut writes = Writes::default();
        for (_, _, owned) in transaction.owned(&self.tenant, &numbers).await? {
            let asked = asked.get(&owned.id).map(Vec::as_slice).unwrap_or_default();
            let members = owned.resolve(asked, &mut answers);
            let mut taken_back = LogRow::new();
            if !members.is_empty() {
                taken_back.push(&lines.taking_back(), members.iter());
            }
            transaction.count_taken_back(&self.tenant, State::InDoubt, members.len());
            writes.log(owned.id, &taken_back);
            let of = (&self.tenant, owned.id);
            transaction.end(&mut writes, of, &lines.end(), &members);
        }
        transaction.write(writes).await?;
        Ok(answers)
    }
}
