//! Finds partitions of a topic that no member of its group reads, so that a member joins anew and they are given out.
//!
//! The client gives partitions out only when the members of its group change, and by what it knew of the topic before. One that an
//! operator adds later would be read by no member, and so would one that left a member which took itself for lost in the meantime.

use std::collections::BTreeSet;
use std::time::Duration;

use krafka::Kafka;
use krafka::admin::{ConsumerGroupDescription, DescribeConsumerGroupsOptions};
use krafka::consumer::Consumer;

use super::client::{CLIENT_ID, explain};
use super::settings::KafkaSettings;
use crate::StreamError;

/// The looks at a group.
#[derive(Debug)]
pub(super) struct UnreadWatch {
    /// Partitions that no member had at the last looks.
    unread: BTreeSet<i32>,
    /// Looks at which they had none, one after the other.
    looks: u32,
    /// Looks after which this member joins anew.
    looks_max: u32,
}

/// A group that is not changing, as its coordinator describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupStanding {
    /// Partitions of the topic that no member has.
    unread: BTreeSet<i32>,
    /// True for one of Belfry's members: all see the same, and one that joins anew is enough.
    is_first: bool,
}

/// The state of a group whose members all have what they were given.
const STABLE: &str = "Stable";
/// Looks until the first time that a member joins anew. Each time that was in vain doubles them: who gives partitions out may be an
/// older engine, or another client.
const FEWEST_LOOKS: u32 = 2;
/// Most looks until then: ten minutes.
const MOST_LOOKS: u32 = 120;

// === impl UnreadWatch ===

impl Default for UnreadWatch {
    fn default() -> Self {
        Self { unread: BTreeSet::new(), looks: 0, looks_max: FEWEST_LOOKS }
    }
}

impl UnreadWatch {
    /// Looks at the group, `None` while it changes. Gives a partition that no member had now and at the looks before, if it is this
    /// member that joins anew for it.
    pub(super) fn look(&mut self, standing: Option<GroupStanding>) -> Option<i32> {
        let Some(GroupStanding { unread, is_first }) = standing else {
            self.looks = 0;
            return None;
        };
        if unread.is_empty() {
            *self = Self::default();
            return None;
        }
        let same = self.looks > 0 && unread.intersection(&self.unread).next().is_some();
        self.looks = if same { self.looks + 1 } else { 1 };
        if same {
            self.unread.retain(|partition| unread.contains(partition));
        } else {
            self.unread = unread;
        }
        if self.looks < self.looks_max || !is_first {
            return None;
        }
        self.looks = 0;
        self.looks_max = (2 * self.looks_max).min(MOST_LOOKS);
        self.unread.first().copied()
    }
}

/// Asks the coordinator of the group for its members, and a broker for the partitions of the topic: by the same knowledge of the topic
/// this member gives partitions out, if the group has it do so. `None` while the group changes, or this member is in none.
pub(super) async fn group_standing(
    kafka: &Kafka,
    consumer: &Consumer,
    settings: &KafkaSettings,
    patience: Duration,
) -> Result<Option<GroupStanding>, StreamError> {
    let topic = settings.topic.as_str();
    let explained = |error| explain(settings, &error);
    let metadata = consumer.fetch_metadata(Some(topic)).await.map_err(explained)?;
    let partitions = metadata.topics.iter().flat_map(|topic| topic.partitions.keys().copied());
    let Some(member) = consumer.group_metadata().await else { return Ok(None) };
    let options = DescribeConsumerGroupsOptions::default().timeout(patience);
    let groups = kafka.admin().describe_consumer_groups([member.group_id()], options).await;
    let Some(group) = groups.map_err(explained)?.remove(member.group_id()) else { return Ok(None) };
    Ok(standing(&group.map_err(explained)?, member.member_id(), topic, partitions.collect()))
}

fn standing(
    group: &ConsumerGroupDescription,
    member_id: &str,
    topic: &str,
    partitions: BTreeSet<i32>,
) -> Option<GroupStanding> {
    if group.state != STABLE {
        return None;
    }
    let mut unread = partitions;
    for member in &group.members {
        // Of one whose assignment cannot be read it is not known which it has.
        for assigned in member.assignment.as_ref()? {
            if assigned.topic_name == topic {
                unread.retain(|partition| !assigned.partitions.contains(partition));
            }
        }
    }
    // A group may have members that read other topics, and they do not see this.
    let reads = |topics: &Vec<String>| topics.iter().any(|read| read == topic);
    let ours = group.members.iter().filter(|member| {
        member.client_id == CLIENT_ID && member.subscribed_topic_names.as_ref().is_none_or(reads)
    });
    let first = ours.map(|member| member.member_id.as_str()).min();
    Some(GroupStanding { unread, is_first: first == Some(member_id) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(unread: impl IntoIterator<Item = i32>, is_first: bool) -> GroupStanding {
        GroupStanding { unread: unread.into_iter().collect(), is_first }
    }

    #[test]
    fn a_partition_that_no_member_has_at_two_looks_is_found_by_the_first_member() {
        let mut watch = UnreadWatch::default();
        assert_eq!(watch.look(Some(standing([], true))), None);
        assert_eq!(watch.look(Some(standing([3], true))), None, "it may be on its way to a member");
        assert_eq!(watch.look(Some(standing([4, 5], true))), None, "others are");
        assert_eq!(watch.look(None), None, "the group changes");
        assert_eq!(watch.look(Some(standing([4, 5], true))), None, "it is another one since");
        assert_eq!(watch.look(Some(standing([5, 6], true))), Some(5));
        let mut watch = UnreadWatch::default();
        for _ in 0..10 {
            assert_eq!(watch.look(Some(standing([5], false))), None, "another member joins anew");
        }
    }

    #[test]
    fn a_member_that_joins_anew_in_vain_does_so_less_and_less_often() {
        let mut watch = UnreadWatch::default();
        let mut looks_until = || {
            let looks = (1..=1_000).find(|_look| watch.look(Some(standing([5], true))).is_some());
            // It leaves the group and is in it again.
            assert_eq!(watch.look(None), None);
            looks.unwrap()
        };
        let looks: Vec<u32> = (0..8).map(|_time| looks_until()).collect();
        assert_eq!(looks, [2, 4, 8, 16, 32, 64, 120, 120]);
        assert_eq!(watch.look(Some(standing([], true))), None, "they are read again");
        assert_eq!(watch.look(Some(standing([5], true))), None);
        assert_eq!(watch.look(Some(standing([5], true))), Some(5));
    }
}
