//! The catalog: channels and templates, by the names that callers use.

use std::sync::Arc;

use channel::Channel;
use notification::Name;

use super::InvalidField;
use super::template::Templates;
use crate::Channels;

/// The channels and templates of one configuration.
#[derive(Debug)]
pub(super) struct Catalog {
    pub(super) channels: Arc<Channels>,
    pub(super) templates: Templates,
}

// === impl Catalog ===

impl Catalog {
    /// The channel called `name`, with the shared copy of its name.
    pub(super) fn channel(&self, name: &str) -> Result<(&Name, &Arc<dyn Channel>), InvalidField> {
        self.channels.get_named(name).ok_or_else(|| self.unknown_channel(name))
    }

    fn unknown_channel(&self, name: &str) -> InvalidField {
        let known: Vec<String> =
            self.channels.iter().map(|(name, _)| format!("`{name}`")).collect();
        // A caller's text may be of any length, and is repeated in the answer.
        let asked: String = name.chars().take(64).collect();
        let message = match known.as_slice() {
            [] => format!("there is no channel {asked:?}: none is configured"),
            _ => format!("there is no channel {asked:?}: the channels are {}", known.join(", ")),
        };
        InvalidField::new("/channel", message)
    }
}
