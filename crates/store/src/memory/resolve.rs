//! Resolution by hand, one notification after the other.

use notification::{Event, Name, NotificationId, State, Timestamp};

use super::books::Books;
use crate::rows::resolve::ResolutionLines;
use crate::{Resolution, Resolved};

impl Books {
    pub(super) fn resolve(
        &mut self,
        id: NotificationId,
        resolution: &Resolution,
        tenant: &Name,
        now: Timestamp,
    ) -> Resolved {
        let Some((batch, index)) = self.place(id) else { return Resolved::Unknown };
        if &self.batch(batch).envelope.lane.tenant != tenant {
            return Resolved::Unknown;
        }
        if self.entry(batch, index).state != State::InDoubt {
            return Resolved::OtherState;
        }
        let event =
            if resolution.is_delivered { Event::ResolveDelivered } else { Event::ResolveDead };
        self.advance(batch, index, event);
        let lines = ResolutionLines::new(resolution, now);
        self.note(batch, index, lines.taking_back());
        self.note(batch, index, lines.end());
        Resolved::Resolved
    }
}
