//! The metrics of lanes, by channel and priority.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

use notification::{Name, Pauses, Priority, Timestamp};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use store::{LaneList, LaneStatus, WaitingCounts};

use crate::status::{lag, oldest_due};

type LaneLabels = [(&'static str, String); 2];
type ByLane<Value> = Family<LaneLabels, Gauge<Value, AtomicU64>>;

/// Adds what `list` says of the lanes of `channels` and of every priority. What is claimed is always listed, and of the others those
/// that are due first: how many there are, and how many are closed, is only known where all are listed, and is missing otherwise. So
/// is an age, unless a lane that is not listed cannot be due before.
pub(crate) fn add_lanes(
    list: LaneList,
    (pauses, channels): (&Pauses, &BTreeSet<Name>),
    now: Timestamp,
    registry: &mut Registry,
) {
    let (are_all, until) = (list.are_all(), list.until);
    let mut groups = BTreeMap::<(Name, Priority), Vec<LaneStatus>>::new();
    for channel in channels {
        for priority in Priority::ALL {
            groups.insert((channel.clone(), *priority), Vec::new());
        }
    }
    for status in list.lanes {
        // What waits for a channel that is not configured is parked.
        let key = (status.lane.channel.clone(), status.lane.priority);
        if let Some(group) = groups.get_mut(&key) {
            group.push(status);
        }
    }
    let (due, claimed) = (ByLane::<f64>::default(), ByLane::<u64>::default());
    let (waiting, closed) = (ByLane::<u64>::default(), ByLane::<u64>::default());
    for ((channel, priority), lanes) in groups {
        let labels = [("channel", channel.to_string()), ("priority", priority.as_str().to_owned())];
        let oldest = oldest_due(&lanes, pauses);
        if are_all || oldest.is_some_and(|due| Some(due) <= until) {
            due.get_or_create(&labels).set(lag(oldest, now).as_secs_f64());
        }
        claimed.get_or_create(&labels).set(lanes.iter().map(|status| status.claimed).sum());
        if are_all {
            let is_waiting = |status: &&LaneStatus| status.next_due_at.is_some();
            waiting.get_or_create(&labels).set(lanes.iter().filter(is_waiting).count() as u64);
            let is_closed =
                |status: &&LaneStatus| status.evidence.closed_until.is_some_and(|at| at > now);
            closed.get_or_create(&labels).set(lanes.iter().filter(is_closed).count() as u64);
        }
    }
    let help = "For how many seconds the notification of the channel and priority that waits longest has been due";
    registry.register("belfry_lane_oldest_due_seconds", help, due);
    let help = "Notifications that are claimed and not settled";
    registry.register("belfry_claimed_notifications", help, claimed);
    let help = "Lanes in which something waits, due or not; missing while not all can be listed";
    registry.register("belfry_lanes_waiting", help, waiting);
    let help = "Lanes that are not sent to now, since every attempt fails; missing while not all can be listed";
    registry.register("belfry_lanes_closed", help, closed);
}

/// Adds how much waits for each of `channels`, by priority. Where the count reached its bound, each number is a lower bound, and
/// that of a channel and priority that it did not reach is missing.
pub(crate) fn add_waiting(
    counts: &WaitingCounts,
    channels: &BTreeSet<Name>,
    registry: &mut Registry,
) {
    let waiting = ByLane::<u64>::default();
    for channel in channels {
        for priority in Priority::ALL {
            let counted = counts.notifications.get(&(channel.clone(), *priority)).copied();
            let labels =
                [("channel", channel.to_string()), ("priority", priority.as_str().to_owned())];
            if let Some(known) = counted.or((!counts.is_at_least).then_some(0)) {
                waiting.get_or_create(&labels).set(known);
            }
        }
    }
    let help = "Notifications that wait and are not claimed, due or not, counted up to a bound";
    registry.register("belfry_waiting_notifications", help, waiting);
    let cut = Gauge::<u64, AtomicU64>::default();
    cut.set(counts.is_at_least.into());
    let help = "Whether the count of belfry_waiting_notifications reached its bound, 0 or 1";
    registry.register("belfry_waiting_notifications_cut", help, cut);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use notification::Lane;
    use prometheus_client::encoding::text::encode;
    use store::{LANES_LISTED, LaneEvidence};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(10_000);

    /// The lane to a host of its number, which is due at `due_at`.
    fn lane(number: usize, channel: &str, due_at: Option<i64>) -> LaneStatus {
        let lane = Lane {
            tenant: "default".parse().unwrap(),
            channel: channel.parse().unwrap(),
            destination: Arc::from(format!("host-{number}")),
            priority: Priority::Bulk,
        };
        let next_due_at = due_at.map(Timestamp::from_millis);
        LaneStatus { lane, claimed: 2, next_due_at, evidence: LaneEvidence::default() }
    }

    /// The lines of lanes, which are all, or listed up to a due time.
    fn lines(lanes: Vec<LaneStatus>, until: Option<i64>) -> Vec<String> {
        let channels = ["ios", "hooks"].map(|name| name.parse().unwrap()).into();
        let mut registry = Registry::default();
        let list = LaneList { lanes, until: until.map(Timestamp::from_millis) };
        add_lanes(list, (&Pauses::default(), &channels), NOW, &mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn lanes_are_told_by_channel_and_priority() {
        let mut closed = lane(1, "ios", Some(7_500));
        closed.evidence.closed_until = Some(NOW.plus(std::time::Duration::from_millis(1)));
        let mut open_again = lane(2, "ios", None);
        open_again.evidence.closed_until = Some(NOW);
        let lines = lines(vec![closed, open_again, lane(3, "gone", Some(0))], None);
        assert_eq!(lines.len(), 4 * 2 * 3, "{lines:?}");
        let bulk = "{channel=\"ios\",priority=\"bulk\"}";
        for line in [
            format!("belfry_lane_oldest_due_seconds{bulk} 2.5"),
            format!("belfry_claimed_notifications{bulk} 4"),
            format!("belfry_lanes_waiting{bulk} 1"),
            format!("belfry_lanes_closed{bulk} 1"),
            "belfry_claimed_notifications{channel=\"hooks\",priority=\"urgent\"} 0".to_owned(),
        ] {
            assert!(lines.contains(&line), "{line} {lines:?}");
        }
    }

    #[test]
    fn what_the_count_did_not_reach_is_missing() {
        let channels = ["ios", "hooks"].map(|name| name.parse().unwrap()).into();
        let lines = |is_at_least| {
            let counted = [("ios", 7), ("gone", 5)];
            let counted =
                counted.map(|(name, count)| ((name.parse().unwrap(), Priority::Bulk), count));
            let counts = WaitingCounts { notifications: counted.into(), is_at_least };
            let mut registry = Registry::default();
            add_waiting(&counts, &channels, &mut registry);
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let reached = "belfry_waiting_notifications{channel=\"ios\",priority=\"bulk\"} 7";
        assert_eq!(lines(true), [reached, "belfry_waiting_notifications_cut 1"]);
        let all = lines(false);
        assert_eq!(all.len(), 2 * 3 + 1, "{all:?}");
        let none = "belfry_waiting_notifications{channel=\"hooks\",priority=\"urgent\"} 0";
        for line in [reached, none, "belfry_waiting_notifications_cut 0"] {
            assert!(all.iter().any(|it| it == line), "{line} {all:?}");
        }
    }

    #[test]
    fn an_age_is_missing_where_a_lane_that_is_not_listed_may_be_due_before() {
        // All that are listed for what they wait for are due after 1 to 1,000 ms.
        let mut listed: Vec<_> = (0..LANES_LISTED)
            .map(|number| {
                let due_at = i64::try_from(number).unwrap() + 1;
                LaneStatus { claimed: 0, ..lane(number, "ios", Some(due_at)) }
            })
            .collect();
        // Listed for what is claimed of them: lanes of their channel that are due before may be missing.
        let claimed = |number, due_at| lane(LANES_LISTED + number, "hooks", Some(due_at));
        let due = |lanes: &[LaneStatus]| {
            let shown = lines(lanes.to_vec(), Some(1_000));
            shown.into_iter().filter(|line| line.contains("oldest_due")).collect::<Vec<_>>()
        };
        let of = |channel, age| {
            format!(
                "belfry_lane_oldest_due_seconds{{channel=\"{channel}\",priority=\"bulk\"}} {age}"
            )
        };
        listed.push(claimed(0, 1_001));
        assert_eq!(due(&listed), [of("ios", "9.999")]);
        listed.push(claimed(1, 1_000));
        let mut both = due(&listed);
        both.sort();
        assert_eq!(both, [of("hooks", "9.0"), of("ios", "9.999")]);
    }

    #[test]
    fn a_hundred_times_the_lanes_that_are_listed_make_no_more_series_and_what_is_not_known_is_missing()
     {
        let many = (0..100 * LANES_LISTED).map(|number| lane(number, "ios", Some(0)));
        let lines = lines(many.collect(), Some(0));
        let due: Vec<_> = lines.iter().filter(|line| line.contains("oldest_due")).collect();
        assert_eq!(due, ["belfry_lane_oldest_due_seconds{channel=\"ios\",priority=\"bulk\"} 10.0"]);
        assert_eq!(lines.len(), 1 + 2 * 3, "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("lanes_waiting")), "{lines:?}");
    }
}
