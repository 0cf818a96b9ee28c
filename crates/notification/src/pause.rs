//! Scopes: what of a tenant's an operator means; and pauses: what of it is not sent until it is resumed.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::terms::TermError;
use crate::{BroadcastId, Envelope, Lane, Name, Priority, Timestamp};

/// Part of a tenant's notifications that is paused, resumed or cancelled. Stores keep its text, which never changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// All that the tenant has: `tenant`.
    Tenant,
    /// Notifications by a channel: `channel/push`.
    Channel(Name),
    /// Notifications by a channel to a destination with a priority: `lane/push/bulk/api.push.apple.com`.
    Lane {
        /// The configured channel.
        channel: Name,
        /// Where the channel sends to, in its own words.
        destination: Arc<str>,
        /// The priority.
        priority: Priority,
    },
    /// A broadcast: `broadcast/bc_7`.
    Broadcast(BroadcastId),
}

/// One pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Whose notifications wait.
    pub tenant: Name,
    /// Which of them.
    pub scope: Scope,
    /// Since when.
    pub since: Timestamp,
}

/// All pauses of a store, as of one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pauses {
    by_tenant: HashMap<Name, HashMap<Scope, Timestamp>>,
}

// === impl Scope ===

impl Scope {
    /// True if `envelope`, of the tenant that is meant, is part of it.
    pub fn has(&self, envelope: &Envelope) -> bool {
        let Lane { channel, destination, priority, .. } = &envelope.lane;
        match self {
            Self::Tenant => true,
            Self::Channel(meant) => meant == channel,
            Self::Lane { channel: meant, destination: to, priority: with } => {
                (meant, to, with) == (channel, destination, priority)
            }
            Self::Broadcast(id) => envelope.broadcast == Some(*id),
        }
    }

    /// The lane of `tenant` that it is, if it is one.
    pub fn lane_of(&self, tenant: &Name) -> Option<Lane> {
        let Self::Lane { channel, destination, priority } = self else { return None };
        let (channel, destination) = (channel.clone(), Arc::clone(destination));
        Some(Lane { channel, destination, priority: *priority, tenant: tenant.clone() })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant => formatter.write_str("tenant"),
            Self::Channel(channel) => write!(formatter, "channel/{channel}"),
            Self::Lane { channel, destination, priority } => {
                write!(formatter, "lane/{channel}/{priority}/{destination}")
            }
            Self::Broadcast(id) => write!(formatter, "broadcast/{id}"),
        }
    }
}

impl FromStr for Scope {
    type Err = TermError;

    fn from_str(text: &str) -> Result<Self, TermError> {
        let wrong = || TermError::new(text, "a scope");
        let (kind, rest) = text.split_once('/').unwrap_or((text, ""));
        match kind {
            "tenant" if rest.is_empty() => Ok(Self::Tenant),
            "channel" => Ok(Self::Channel(rest.parse()?)),
            "lane" => {
                // In three parts: the destination is the last, and may have slashes of its own.
                let mut parts = rest.splitn(3, '/');
                let mut part = || parts.next().ok_or_else(wrong);
                let (channel, priority) = (part()?.parse()?, part()?.parse()?);
                Ok(Self::Lane { channel, priority, destination: part()?.into() })
            }
            "broadcast" => Ok(Self::Broadcast(rest.parse().map_err(|_| wrong())?)),
            _ => Err(wrong()),
        }
    }
}

// === impl Pauses ===

impl Pauses {
    /// True if there is none, as almost always.
    pub fn is_empty(&self) -> bool {
        self.by_tenant.is_empty()
    }

    /// True if the notifications of `envelope` must not be sent.
    pub fn covers(&self, envelope: &Envelope) -> bool {
        self.covers_lane(&envelope.lane) || self.broadcast_of(envelope).is_some()
    }

    /// The broadcast of `envelope`, if it is paused by itself.
    pub fn broadcast_of(&self, envelope: &Envelope) -> Option<BroadcastId> {
        let scopes = self.by_tenant.get(&envelope.lane.tenant)?;
        envelope.broadcast.filter(|id| scopes.contains_key(&Scope::Broadcast(*id)))
    }

    /// True if the broadcast `id` is paused by itself, whosever it is.
    pub fn has_broadcast(&self, id: BroadcastId) -> bool {
        let scope = Scope::Broadcast(id);
        self.by_tenant.values().any(|scopes| scopes.contains_key(&scope))
    }

    /// True if nothing of `lane` may be sent.
    pub fn covers_lane(&self, lane: &Lane) -> bool {
        let Some(scopes) = self.by_tenant.get(&lane.tenant) else { return false };
        let Lane { channel, destination, priority, .. } = lane;
        let (channel, destination) = (channel.clone(), Arc::clone(destination));
        scopes.contains_key(&Scope::Tenant)
            || scopes.contains_key(&Scope::Channel(channel.clone()))
            || scopes.contains_key(&Scope::Lane { channel, destination, priority: *priority })
    }

    /// Since when `scope` of `tenant` is paused, by a pause of just that.
    pub fn since(&self, tenant: &Name, scope: &Scope) -> Option<Timestamp> {
        self.by_tenant.get(tenant)?.get(scope).copied()
    }

    /// Since when all notifications of `tenant` by `channel` are paused, or those of `broadcast`, by whichever pause began first.
    pub fn since_of_all(
        &self,
        tenant: &Name,
        channel: &Name,
        broadcast: Option<BroadcastId>,
    ) -> Option<Timestamp> {
        let whole = [Scope::Tenant, Scope::Channel(channel.clone())];
        let scopes = whole.into_iter().chain(broadcast.map(Scope::Broadcast));
        scopes.filter_map(|scope| self.since(tenant, &scope)).min()
    }

    /// Every pause, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Pause> {
        self.by_tenant.iter().flat_map(|(tenant, scopes)| {
            let pause = |(scope, since): (&Scope, &Timestamp)| Pause {
                tenant: tenant.clone(),
                scope: scope.clone(),
                since: *since,
            };
            scopes.iter().map(pause)
        })
    }

    /// Number of pauses.
    pub fn len(&self) -> usize {
        self.by_tenant.values().map(HashMap::len).sum()
    }
}

impl FromIterator<Pause> for Pauses {
    fn from_iter<T: IntoIterator<Item = Pause>>(pauses: T) -> Self {
        let mut by_tenant: HashMap<Name, HashMap<Scope, Timestamp>> = HashMap::new();
        for Pause { tenant, scope, since } in pauses {
            by_tenant.entry(tenant).or_default().insert(scope, since);
        }
        Self { by_tenant }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(tenant: &str, channel: &str, destination: &str) -> Lane {
        Lane {
            channel: channel.parse().unwrap(),
            destination: destination.into(),
            priority: Priority::Bulk,
            tenant: tenant.parse().unwrap(),
        }
    }

    #[test]
    fn every_scope_is_read_back_from_its_text() {
        let texts = [
            "tenant",
            "channel/push",
            "lane/hooks/bulk/https://example.com:8443/with/slashes",
            "broadcast/bc_7",
        ];
        for text in texts {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "tenant/x",
            "channel",
            "channel/",
            "lane/push",
            "lane/push/low/x",
            "broadcast/7",
            "all",
        ] {
            assert!(text.parse::<Scope>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pause_covers_its_scope_of_its_tenant_and_nothing_else() {
        let paused = |scope: &str| {
            let (tenant, since) = ("a".parse().unwrap(), Timestamp::from_millis(1));
            Pauses::from_iter([Pause { tenant, scope: scope.parse().unwrap(), since }])
        };
        let lanes = [
            lane("a", "push", "here"),
            lane("a", "push", "there"),
            lane("a", "mail", "here"),
            lane("b", "push", "here"),
        ];
        let covered = |scope| lanes.each_ref().map(|lane| paused(scope).covers_lane(lane));
        assert_eq!(covered("tenant"), [true, true, true, false]);
        assert_eq!(covered("channel/push"), [true, true, false, false]);
        assert_eq!(covered("lane/push/bulk/here"), [true, false, false, false]);
        assert_eq!(covered("lane/push/urgent/here"), [false; 4]);
        assert_eq!(lanes.each_ref().map(|lane| Pauses::default().covers_lane(lane)), [false; 4]);
    }

    #[test]
    fn all_of_a_channel_is_paused_since_the_first_pause_of_what_it_is_part_of() {
        let pause = |(scope, since): (&str, i64)| {
            let (tenant, since) = ("a".parse().unwrap(), Timestamp::from_millis(since));
            Pause { tenant, scope: scope.parse().unwrap(), since }
        };
        let of_all = |scopes: &[(&str, i64)], broadcast: Option<u64>| {
            let pauses: Pauses = scopes.iter().copied().map(pause).collect();
            let broadcast = broadcast.map(BroadcastId);
            let (tenant, channel) = ("a".parse().unwrap(), "push".parse().unwrap());
            pauses.since_of_all(&tenant, &channel, broadcast).map(Timestamp::millis)
        };
        let all = [("channel/push", 3), ("broadcast/bc_7", 2), ("tenant", 4)];
        assert_eq!(of_all(&all, None), Some(3));
        assert_eq!(of_all(&all, Some(7)), Some(2));
        assert_eq!(of_all(&all, Some(8)), Some(3));
        assert_eq!(of_all(&[("channel/mail", 1), ("lane/push/bulk/here", 1)], Some(7)), None);
    }
}
