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
#[derive(Debug, Default)]
pub(super) struct UnreadWatch {
    /// Partitions that no member had at the last look.
    unread: BTreeSet<i32>,
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

// === impl UnreadWatch ===

impl UnreadWatch {
    /// Looks at the group, `None` while it changes. Gives a partition that no member had now and at the look before, if it is this
    /// member that joins anew for it.
    pub(super) fn look(&mut self, standing: Option<GroupStanding>) -> Option<i32> {
        let Some(standing) = standing else {
            self.unread.clear();
            return None;
        };
        let before = std::mem::replace(&mut self.unread, standing.unread);
        self.unread.intersection(&before).next().copied().filter(|_partition| standing.is_first)
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
    for assigned in group.members.iter().flat_map(|member| member.assignment.iter().flatten()) {
        if assigned.topic_name == topic {
            unread.retain(|partition| !assigned.partitions.contains(partition));
        }
    }
    let ours = group.members.iter().filter(|member| member.client_id == CLIENT_ID);
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
        assert_eq!(watch.look(Some(standing([5, 6], false))), None, "another member joins anew");
    }
}
