//! The trail of acts.

use notification::Timestamp;

use super::books::Books;
use crate::acts::ACTS_LOOKED_AT;
use crate::{Act, ActBegun, ActEnded, ActFilter, ActPage, Retention};

impl Books {
    pub(super) fn begin_act(&mut self, begun: ActBegun) -> u64 {
        let id = self.acts.last().map_or(1, |act| act.id + 1);
        self.acts.push(Act { id, begun, ended: None });
        id
    }

    pub(super) fn end_act(&mut self, id: u64, end: ActEnded) {
        if let Some(act) = self.acts.iter_mut().find(|act| act.id == id) {
            if let Some(tenant) = &end.tenant {
                act.begun.tenant = tenant.clone();
            }
            act.ended = Some(ActEnded { tenant: None, ..end });
        }
    }

    pub(super) fn acts(&self, filter: &ActFilter, after: Option<u64>, items_max: usize) -> ActPage {
        let of_tenant =
            |act: &&Act| filter.tenant.as_ref().is_none_or(|tenant| act.begun.tenant == *tenant);
        let behind = |act: &&Act| after.is_none_or(|after| act.id < after);
        let rows = self.acts.iter().rev().filter(behind).filter(of_tenant);
        ActPage::of(rows.take(ACTS_LOOKED_AT).cloned().collect(), filter, items_max)
    }

    /// Removes old acts, but the last; the number of those.
    pub(super) fn prune_acts(&mut self, retention: &Retention, now: Timestamp) -> u64 {
        let Some(lifetime) = retention.acts else { return 0 };
        let (before, last) = (self.acts.len(), self.acts.last().map(|act| act.id));
        self.acts.retain(|act| act.begun.at.plus(lifetime) > now || Some(act.id) == last);
        (before - self.acts.len()) as u64
    }
}
