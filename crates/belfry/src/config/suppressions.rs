//! `[suppressions]`: who is told of recipients that are gone.

use std::collections::BTreeMap;

use notification::Name;
use serde::Deserialize;

use super::channels::ChannelConfig;
use super::kinds::ChannelResources;
use super::problem::Mistake;

/// `[suppressions]`: what becomes of recipients that are gone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SuppressionsConfig {
    /// The feed of changes to an application. None by default.
    pub(crate) feed: Option<FeedConfig>,
}

/// `[suppressions.feed]`: the application that is told of every change of the suppression list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeedConfig {
    /// A channel of this configuration, of the kind `webhook`. Required.
    pub(crate) channel: Name,
    /// The application's endpoint. Required.
    pub(crate) to: String,
}

// === impl SuppressionsConfig ===

impl SuppressionsConfig {
    /// Under which name the store remembers how far the feed is, if there is one.
    pub(crate) fn feed_name(&self) -> anyhow::Result<Option<Name>> {
        Ok(self.feed.as_ref().map(|_| "suppressions".parse()).transpose()?)
    }

    pub(super) fn check(&self, channels: &BTreeMap<Name, ChannelConfig>) -> Vec<Mistake> {
        let Some(FeedConfig { channel, to }) = &self.feed else { return Vec::new() };
        let Some(config) = channels.get(channel) else {
            let message = format!("there is no channel {:?}", channel.as_str());
            return vec![Mistake::new("suppressions.feed.channel", message)];
        };
        // One that cannot be built is told of already.
        let Ok(built) = config.kind.settings().build(&ChannelResources::default()) else {
            return Vec::new();
        };
        let kind = config.kind.name();
        if kind != "webhook" {
            let message = format!("is of the kind `{kind}`: name one of the kind `webhook`");
            return vec![Mistake::new("suppressions.feed.channel", message)];
        }
        let refused = built.destination(to).err();
        let problem =
            |invalid: channel::Invalid| Mistake::new("suppressions.feed.to", invalid.message);
        refused.map(problem).into_iter().collect()
    }
}
