//! Findings: an engine's faults in words, the worst first.

use api::{LaneAnswer, StatusAnswer};
use notification::Timestamp;

/// Seconds from which on what waits is late.
const LATE: f64 = 60.0;
/// Days until the disk is full from which on it is told.
const FULL_SOON: f64 = 7.0;
/// Destinations that are named.
const NAMED: usize = 3;

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopFinding {
    /// True if notifications are not delivered because of it.
    pub(super) is_bad: bool,
    pub(super) text: String,
}

/// All that is wrong as of `now`; empty where nothing is.
pub(super) fn findings(status: &StatusAnswer, now: Timestamp) -> Vec<TopFinding> {
    let mut found = Vec::new();
    of_workers(status, &mut found);
    of_work(status, now, &mut found);
    of_others(status, &mut found);
    // Stable: those of a kind stay in their order.
    found.sort_by_key(|finding| !finding.is_bad);
    found
}

fn of_workers(status: &StatusAnswer, found: &mut Vec<TopFinding>) {
    let Some(cluster) = &status.cluster else { return };
    for worker in cluster.workers.iter().filter(|worker| worker.alive_for_seconds <= 0.0) {
        found.push(TopFinding::bad(format!(
            "worker {} is gone: what it held goes to others",
            worker.name
        )));
    }
    if cluster.partitions_free > 0 {
        found
            .push(TopFinding::bad(format!("{} partitions have no owner", cluster.partitions_free)));
    }
    for worker in cluster.workers.iter().filter(|worker| worker.standing_by) {
        found.push(TopFinding::mild(format!("worker {} is standing by", worker.name)));
    }
    if cluster.outbox_rejected > 0 {
        let rows = cluster.outbox_rejected;
        found.push(TopFinding::mild(format!(
            "{rows} rows of the outbox were put aside: see belfry.outbox_rejected"
        )));
    }
    if cluster.outbox_oldest_seconds > LATE {
        found.push(TopFinding::bad(format!(
            "the outbox is behind: a row that waits was inserted {:.0} s ago",
            cluster.outbox_oldest_seconds
        )));
    }
}

fn of_work(status: &StatusAnswer, now: Timestamp, found: &mut Vec<TopFinding>) {
    if status.lag_seconds > LATE {
        found.push(TopFinding::bad(format!(
            "what waits longest has been due for {:.0} s",
            status.lag_seconds
        )));
    }
    let closed: Vec<&LaneAnswer> =
        status.lanes.iter().filter(|lane| is_closed(lane, now)).collect();
    if !closed.is_empty() {
        let lane = |lane: &&LaneAnswer| format!("{} {}", lane.channel, lane.destination);
        let named: Vec<String> = closed.iter().take(NAMED).map(lane).collect();
        let more = closed.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        found.push(TopFinding::bad(format!("every attempt fails: {}{more}", named.join(", "))));
    }
    for parked in &status.parked {
        let (count, channel) = (parked.notifications, &parked.channel);
        found.push(TopFinding::bad(format!(
            "{count} wait for the channel {channel}, which is not configured"
        )));
    }
    for source in &status.sources {
        if let Some(reason) = &source.waits_for {
            let reason = crate::output::plain(reason);
            found.push(TopFinding::bad(format!("source {} waits: {reason}", source.name)));
        }
    }
}

fn of_others(status: &StatusAnswer, found: &mut Vec<TopFinding>) {
    if let Some(days) =
        status.space.as_ref().and_then(|space| space.full_in_days).filter(|days| *days < FULL_SOON)
    {
        found.push(TopFinding::mild(format!("the disk is full in {days:.1} days")));
    }
    let feeds = status.feeds.iter().map(|feed| (&*feed.name, &feed.progress));
    let feeds = feeds.chain(status.suppression_feed.iter().map(|it| ("suppressions", it)));
    for (name, progress) in feeds.filter(|(_, progress)| progress.lag_seconds > LATE) {
        found
            .push(TopFinding::mild(format!("feed {name} is {:.0} s behind", progress.lag_seconds)));
    }
    for pause in &status.pauses {
        found.push(TopFinding::mild(format!(
            "paused: {} of {}, since {}",
            pause.scope, pause.tenant, pause.since
        )));
    }
}

/// True if every attempt of `lane` fails, and the next one is not made yet.
pub(super) fn is_closed(lane: &LaneAnswer, now: Timestamp) -> bool {
    let until = lane.closed_until.as_deref().and_then(|until| until.parse::<Timestamp>().ok());
    until.is_some_and(|until| until > now)
}

// === impl TopFinding ===

impl TopFinding {
    fn bad(text: String) -> Self {
        Self { is_bad: true, text }
    }

    fn mild(text: String) -> Self {
        Self { is_bad: false, text }
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{NOW, status, troubled};
    use super::*;

    #[test]
    fn an_engine_that_works_has_nothing_wrong() {
        assert_eq!(findings(&status(), NOW.parse().unwrap()), []);
    }

    #[test]
    fn what_keeps_notifications_from_being_delivered_is_told_first() {
        let found = findings(&troubled(), NOW.parse().unwrap());
        let texts: Vec<&str> = found.iter().map(|finding| &*finding.text).collect();
        assert_eq!(
            texts,
            [
                "worker b-17 is gone: what it held goes to others",
                "2 partitions have no owner",
                "the outbox is behind: a row that waits was inserted 61 s ago",
                "what waits longest has been due for 75 s",
                "every attempt fails: hooks down.example",
                "7 wait for the channel old, which is not configured",
                "source orders waits: no such queue",
                "1 rows of the outbox were put aside: see belfry.outbox_rejected",
                "the disk is full in 2.5 days",
                "feed ends is 64 s behind",
                "paused: channel/hooks of shop, since 2026-11-21T08:20:00.000Z",
            ]
        );
        // Once the next attempt may be made, the lane is not closed.
        let later = "2026-11-21T08:32:00.000Z".parse().unwrap();
        assert!(!findings(&troubled(), later).iter().any(|it| it.text.starts_with("every")));
    }
}
