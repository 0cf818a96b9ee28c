//! The configured channels, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use channel::Channel;
use notification::Name;

/// Every channel of a configuration. A sender goes by the newest one.
#[derive(Debug, Clone, Default)]
pub struct Channels {
    by_name: BTreeMap<Name, Arc<dyn Channel>>,
}

// === impl Channels ===

impl Channels {
    /// Adds a channel under `name`, in place of one that had it.
    pub fn insert(&mut self, name: Name, channel: Arc<dyn Channel>) {
        self.by_name.insert(name, channel);
    }

    /// The channel called `name`.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Channel>> {
        self.by_name.get(name)
    }

    /// The channel called `name`, with the shared copy of its name.
    pub fn get_named(&self, name: &str) -> Option<(&Name, &Arc<dyn Channel>)> {
        self.by_name.get_key_value(name)
    }

    /// Names and channels, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Arc<dyn Channel>)> {
        self.by_name.iter()
    }
}
