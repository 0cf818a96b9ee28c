//! The lanes that a cancellation walks over: those of a channel, in order of their numbers, and channel by channel those of a tenant.

use notification::{Name, Scope};

use super::codes::LaneId;
use crate::cancel::LanePlace;

/// The part of one tenant's lanes that a call walks, and its beginning.
#[derive(Debug)]
pub(crate) struct LaneWalk<'a> {
    pub(crate) from: LanePlace,
    /// The lane, if there is only one.
    pub(crate) only: Option<LaneId>,
    tenant: &'a Name,
    /// True if other channels follow.
    is_of_all_channels: bool,
}

/// The channel and the priority of what may be part of a scope; `None` is any.
pub(crate) fn channel_and_priority(scope: &Scope) -> (Option<&str>, Option<u8>) {
    match scope {
        Scope::Tenant | Scope::Broadcast(_) => (None, None),
        Scope::Channel(channel) => (Some(channel.as_str()), None),
        Scope::Lane { channel, priority, .. } => (Some(channel.as_str()), Some(priority.code())),
    }
}

// === impl LaneWalk ===

impl<'a> LaneWalk<'a> {
    /// The lanes of `scope`, whose number is `only` if it is one lane. A place outside of them counts for nothing: callers hand it back,
    /// and may hand back anything.
    pub(crate) fn new(
        tenant: &'a Name,
        scope: &Scope,
        only: Option<LaneId>,
        place: Option<LanePlace>,
    ) -> Self {
        let (channel, _) = channel_and_priority(scope);
        let is_inside = |place: &LanePlace| {
            channel.is_none_or(|channel| channel == place.channel)
                && only.is_none_or(|lane| lane == place.lane)
        };
        let first = || LanePlace::before(channel.unwrap_or_default(), only.unwrap_or(0));
        let from = place.filter(is_inside).unwrap_or_else(first);
        Self { from, only, tenant, is_of_all_channels: channel.is_none() }
    }

    /// The channel of its lanes, as their index has it.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.tenant, self.from.channel)
    }

    /// True if another channel of the tenant may follow.
    pub(crate) const fn is_of_all_channels(&self) -> bool {
        self.is_of_all_channels
    }

    /// The place before a channel, by its key in the index, if the tenant has it.
    pub(crate) fn before(&self, key: &str) -> Option<LanePlace> {
        let (tenant, channel) = key.split_once('/')?;
        (tenant == self.tenant.as_str()).then(|| LanePlace::before(channel, 0))
    }

    /// Number of lanes to look at, `lanes_max` at most.
    pub(crate) fn lanes_max(&self, lanes_max: usize) -> usize {
        self.only.map_or(lanes_max, |_| 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_outside_of_the_scope_is_its_beginning() {
        let place = LanePlace { due_at: 5, chunk: 6, ..LanePlace::before("mail", 7) };
        let tenant = "tenant".parse().unwrap();
        let from = |scope: &str, only| {
            LaneWalk::new(&tenant, &scope.parse().unwrap(), only, Some(place.clone())).from
        };
        assert_eq!(from("tenant", None), place);
        assert_eq!(from("channel/mail", None), place);
        assert_eq!(from("channel/push", None), LanePlace::before("push", 0));
        assert_eq!(from("channel/a", None), LanePlace::before("a", 0));
        assert_eq!(from("lane/mail/bulk/here", Some(7)), place);
        assert_eq!(from("lane/mail/bulk/here", Some(8)), LanePlace::before("mail", 8));
    }

    #[test]
    fn channels_of_other_tenants_do_not_follow() {
        let tenant = "tenant".parse().unwrap();
        let walk = LaneWalk::new(&tenant, &Scope::Tenant, None, None);
        assert_eq!(walk.key(), "tenant/");
        assert_eq!(walk.before("tenant/mail"), Some(LanePlace::before("mail", 0)));
        assert_eq!(walk.before("tenant-2/mail"), None);
        assert_eq!(walk.before("u/mail"), None);
    }
}
