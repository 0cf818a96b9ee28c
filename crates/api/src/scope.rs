//! Scope of a request: the tenant that it is about, and of one to pause, resume or cancel a broadcast, a lane, a channel, or all that a
//! tenant has.

use axum::http::Uri;
use notification::{Name, Scope};

use crate::caller::Caller;
use crate::problem::Problem;
use crate::query::Query;

/// Tenant and scope that a request names.
pub(crate) struct NamedScope {
    pub(crate) tenant: Name,
    pub(crate) scope: Scope,
}

/// The parameters that name it.
pub(crate) const NAMES: [&str; 6] =
    ["broadcast", "channel", "destination", "priority", "all", "tenant"];

/// The parameters of a request whose query names a tenant at most.
pub(crate) const TENANT: [&str; 1] = ["tenant"];

/// The tenant that the query of `uri` names, which has no other parameter, or the caller's.
pub(crate) fn tenant_alone(uri: &Uri, caller: &Caller) -> Result<Name, Problem> {
    tenant_of(&mut Query::read(uri, &TENANT)?, caller)
}

/// The tenant that a request names, or the caller's.
pub(crate) fn tenant_of(query: &mut Query, caller: &Caller) -> Result<Name, Problem> {
    let tenant = query.parse("tenant")?.unwrap_or_else(|| caller.tenant.clone());
    if tenant != caller.tenant && !caller.is_operator {
        let detail = "to name another tenant needs an operator's key";
        return Err(Problem::missing_scope(detail));
    }
    Ok(tenant)
}

// === impl NamedScope ===

impl NamedScope {
    pub(crate) fn read(query: &mut Query, caller: &Caller) -> Result<Self, Problem> {
        let broadcast = query.parse("broadcast")?;
        let channel: Option<Name> = query.parse("channel")?;
        let destination: Option<String> = query.parse("destination")?;
        let priority = query.parse("priority")?;
        let is_all = query.parse("all")?.unwrap_or(false);
        let scope = match (broadcast, channel, destination, priority, is_all) {
            (Some(id), None, None, None, false) => Scope::Broadcast(id),
            (None, None, None, None, true) => Scope::Tenant,
            (None, Some(channel), None, None, false) => Scope::Channel(channel),
            (None, Some(channel), Some(destination), Some(priority), false) => {
                Scope::Lane { channel, destination: destination.into(), priority }
            }
            _ => {
                let detail = "name one of: broadcast; channel; channel, destination and priority, as the lanes of \
                              /v1/status do; all=true";
                return Err(Problem::parameter(detail));
            }
        };
        Ok(Self { tenant: tenant_of(query, caller)?, scope })
    }
}
