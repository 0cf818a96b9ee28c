//! `[[feeds]]`: applications that are told what became of notifications.

use std::collections::{BTreeMap, BTreeSet};

use feed::{FeedPlan, FeedSource};
use notification::{Name, State};
use pipeline::ingest::fault_of_tag;
use serde::{Deserialize, Deserializer, de};
use store::DeliveryFilter;

use super::channels::ChannelConfig;
use super::problem::Mistake;
use super::suppressions::{FEED_NAME, check_endpoint};

/// `[[feeds]]`: one application that is told what became of the notifications of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeliveryFeedConfig {
    /// Says in the store, in requests, logs and metrics which feed it is. Required, unique.
    pub(crate) name: Name,
    /// Whose notifications it tells of, and whose its own are. Default `default`.
    pub(crate) tenant: Option<Name>,
    /// A channel of this configuration, of the kind `webhook`, by which it is sent. Required.
    pub(crate) channel: Name,
    /// The application's endpoint. Required.
    pub(crate) to: String,
    /// Channels whose notifications it tells of. All by default.
    #[serde(default)]
    channels: BTreeSet<Name>,
    /// Tags, of which a notification that it tells of has one. All notifications by default.
    #[serde(default)]
    tags: BTreeSet<String>,
    /// Ends that it tells of. All by default.
    #[serde(default, deserialize_with = "read_outcomes")]
    outcomes: BTreeSet<State>,
    /// True if it also tells of attempts that another one follows. Default `false`.
    #[serde(default)]
    attempts: bool,
    /// Where it begins when it is new: `end`, with what comes from then on, or `start`, with the oldest that is kept.
    /// Default `end`.
    #[serde(default)]
    from: FeedBeginning,
}

/// Where a feed begins that is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FeedBeginning {
    /// With the oldest event that is kept.
    Start,
    /// With the first event after it was seen for the first time.
    #[default]
    End,
}

fn read_outcomes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<State>, D::Error> {
    let outcome = |text: &String| match text.parse::<State>() {
        Ok(state) if state.is_terminal() => Ok(state),
        Ok(state) => Err(de::Error::custom(format!(
            "{state} is no end of a notification: set `attempts = true` to be told of attempts"
        ))),
        Err(error) => Err(de::Error::custom(error)),
    };
    Vec::<String>::deserialize(deserializer)?.iter().map(outcome).collect()
}

// === impl DeliveryFeedConfig ===

impl DeliveryFeedConfig {
    /// The tenant of the feed and of the notifications that it tells of.
    pub(crate) fn tenant(&self, usual: &Name) -> Name {
        self.tenant.as_ref().unwrap_or(usual).clone()
    }

    /// The feed, as those who look at its progress know it; `usual` is the tenant of one that names none.
    pub(crate) fn plan(&self, usual: &Name) -> FeedPlan {
        let Self { channels, tags, outcomes, attempts, from, .. } = self;
        let filter = DeliveryFilter {
            tenant: self.tenant(usual),
            channels: channels.clone(),
            tags: tags.iter().map(|tag| tag.as_str().into()).collect(),
            states: outcomes.clone(),
            attempts: *attempts,
        };
        let from_start = *from == FeedBeginning::Start;
        FeedPlan { name: self.name.clone(), source: FeedSource::Deliveries { filter, from_start } }
    }

    /// Everything that is wrong with `feeds`.
    pub(super) fn check_all(
        feeds: &[Self],
        channels: &BTreeMap<Name, ChannelConfig>,
    ) -> Vec<Mistake> {
        let (mut problems, mut names) = (Vec::new(), BTreeSet::new());
        for (index, feed) in feeds.iter().enumerate() {
            let path = format!("feeds[{index}]");
            if feed.name.as_str() == FEED_NAME {
                let message = format!("{FEED_NAME:?} is the feed of `[suppressions.feed]`");
                problems.push(Mistake::new(format!("{path}.name"), message));
            }
            if !names.insert(&feed.name) {
                let message = format!("another feed is named {:?} already", feed.name.as_str());
                problems.push(Mistake::new(format!("{path}.name"), message));
            }
            for name in feed.channels.iter().filter(|name| !channels.contains_key(*name)) {
                let message = format!("there is no channel {:?}", name.as_str());
                problems.push(Mistake::new(format!("{path}.channels"), message));
            }
            for tag in &feed.tags {
                if let Some(fault) = fault_of_tag(tag) {
                    let message = format!("{fault}: no notification has the tag {tag:?}");
                    problems.push(Mistake::new(format!("{path}.tags"), message));
                }
            }
            problems.extend(check_endpoint(&path, &feed.channel, &feed.to, channels));
        }
        problems
    }
}
