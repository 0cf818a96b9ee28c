//! `[tenants.NAME]`: what holds for one tenant.

use serde::Deserialize;

use super::lifetimes::LifetimesConfig;

/// `[tenants.NAME]`: what holds for one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TenantConfig {
    /// Messages in any minute, over all channels; 0, the default, is no limit.
    pub(crate) messages_per_minute: u32,
    /// Lifetimes of its notifications where they differ from `[retention]`. None by default.
    pub(crate) retention: Option<LifetimesConfig>,
}
