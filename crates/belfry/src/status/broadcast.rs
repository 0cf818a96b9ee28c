//! `belfry status BROADCAST`: where one broadcast stands, and when it will be complete.

use std::fmt::{self, Write as _};

use api::{BroadcastAnswer, EstimateAnswer};

use crate::account;
use crate::progress::lasting;

/// The lines for people.
pub(crate) fn text(broadcast: &BroadcastAnswer) -> Result<String, fmt::Error> {
    let BroadcastAnswer { id, channel, accepted_at, totals, estimate, .. } = broadcast;
    let mut text = format!("broadcast {id} on {channel}, accepted {accepted_at}\n");
    account::push_text(totals, &mut text)?;
    writeln!(text, "complete   {}", end_text(estimate))?;
    Ok(text)
}

/// When it will be complete, in words.
fn end_text(estimate: &EstimateAnswer) -> String {
    let EstimateAnswer { state, since, earliest, latest, least_seconds, most_seconds } = estimate;
    let lasts = least_seconds.zip(*most_seconds).map(|(least, most)| lasting(least, most));
    let since = since.as_deref().unwrap_or("-");
    match (state.as_str(), earliest, latest, lasts) {
        ("complete", ..) => "now: nothing is pending".to_owned(),
        ("running", Some(earliest), Some(latest), Some(lasts)) => {
            format!("in {lasts}, between {earliest} and {latest} (four times out of five)")
        }
        ("paused", _, _, Some(lasts)) => {
            format!("{lasts} after it is resumed; paused since {since}")
        }
        ("paused", ..) => format!("not before it is resumed; paused since {since}"),
        ("stalled", ..) => {
            format!("unknown: it has not got on since {since}; see the lanes of `belfry status`")
        }
        ("scheduled", Some(begins), ..) => format!("unknown: it begins at {begins}"),
        _ => "unknown: too little of it has ended to tell".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(more: &serde_json::Value) -> EstimateAnswer {
        let mut estimate = serde_json::json!({"state": "early"});
        estimate.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(estimate).unwrap()
    }

    #[test]
    fn the_end_is_told_with_its_error_or_that_it_is_unknown() {
        for (more, expect) in [
            (serde_json::json!({}), "unknown: too little of it has ended to tell"),
            (
                serde_json::json!({"state": "running", "earliest": "10:00", "latest": "10:10", "least_seconds": 61.0, "most_seconds": 661.0}),
                "in 1 to 11 min, between 10:00 and 10:10 (four times out of five)",
            ),
            (
                serde_json::json!({"state": "paused", "since": "09:00", "least_seconds": 1.0, "most_seconds": 2.5}),
                "1.0 to 2.5 s after it is resumed; paused since 09:00",
            ),
            (
                serde_json::json!({"state": "stalled", "since": "09:00"}),
                "unknown: it has not got on since 09:00; see the lanes of `belfry status`",
            ),
            (
                serde_json::json!({"state": "scheduled", "earliest": "11:00"}),
                "unknown: it begins at 11:00",
            ),
            (serde_json::json!({"state": "complete"}), "now: nothing is pending"),
        ] {
            assert_eq!(end_text(&estimate(&more)), expect);
        }
    }
}
