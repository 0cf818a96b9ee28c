//! Notifications that were in doubt and end by an operator's word.

use notification::{Name, NotificationId, State, Timestamp};

use super::transaction::Transaction;
use crate::rows::codec::LogRow;
use crate::rows::requeue::by_batch;
use crate::rows::resolve::ResolutionLines;
use crate::{Resolution, Resolved, StoreError};

impl Transaction<'_> {
    pub(super) fn resolve(
        &mut self,
        ids: &[NotificationId],
        resolution: &Resolution,
        tenant: &Name,
        now: Timestamp,
    ) -> Result<Vec<Resolved>, StoreError> {
        let lines = ResolutionLines::new(resolution, now);
        let mut answers = vec![Resolved::Unknown; ids.len()];
        for (batch, asked) in by_batch(ids) {
            let Some((_, owned)) = self.owned(batch, tenant)? else { continue };
            let members = owned.resolve(&asked, &mut answers);
            if members.is_empty() {
                continue;
            }
            let mut taken_back = LogRow::new();
            taken_back.push(&lines.taking_back(), members.iter());
            self.count_taken_back(tenant, State::InDoubt, members.len());
            self.add_log(batch, &taken_back)?;
            self.end((tenant, batch), &lines.end(), &members)?;
        }
        Ok(answers)
    }
}
