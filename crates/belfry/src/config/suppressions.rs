//! `[suppressions]`: who is told of recipients that are gone.

use std::collections::BTreeMap;

use feed::{FeedPlan, FeedSource};
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

/// Name under which the store keeps how far the feed of the suppression list is.
pub(super) const FEED_NAME: &str = "suppressions";

// === impl SuppressionsConfig ===

impl SuppressionsConfig {
    /// The feed, if there is one, as those who look at its progress know it.
    pub(crate) fn plan(&self) -> anyhow::Result<Option<FeedPlan>> {
        let plan = |_: &FeedConfig| {
            Ok(FeedPlan { name: FEED_NAME.parse()?, source: FeedSource::Suppressions })
        };
        self.feed.as_ref().map(plan).transpose()
    }

    pub(super) fn check(&self, channels: &BTreeMap<Name, ChannelConfig>) -> Vec<Mistake> {
        let Some(FeedConfig { channel, to }) = &self.feed else { return Vec::new() };
        check_endpoint("suppressions.feed", channel, to, channels)
    }
}

/// Everything that is wrong with the channel and the endpoint of the feed that is configured at `path`.
pub(super) fn check_endpoint(
    path: &str,
    channel: &Name,
    to: &str,
    channels: &BTreeMap<Name, ChannelConfig>,
) -> Vec<Mistake> {
    let Some(config) = channels.get(channel) else {
        let message = format!("there is no channel {:?}", channel.as_str());
        return vec![Mistake::new(format!("{path}.channel"), message)];
    };
    // One that cannot be built is told of already.
    let Ok(built) = config.kind.settings().build(&ChannelResources::default()) else {
        return Vec::new();
    };
    let kind = config.kind.name();
    if kind != "webhook" {
        let message = format!("is of the kind `{kind}`: name one of the kind `webhook`");
        return vec![Mistake::new(format!("{path}.channel"), message)];
    }
    let refused = built.destination(to).err();
    let problem = |invalid: channel::Invalid| Mistake::new(format!("{path}.to"), invalid.message);
    refused.map(problem).into_iter().collect()
}
