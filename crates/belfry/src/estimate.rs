//! `belfry estimate`: how long a broadcast would take, before it is created.

use api::ProspectAnswer;
use clap::Args;
use notification::Name;

use crate::client::{Client, with_query};
use crate::output;
use crate::progress::lasting;

/// `belfry estimate`
#[derive(Debug, Args)]
pub(crate) struct EstimateArgs {
    /// Name of a configured channel
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Name,
    /// How many recipients
    #[arg(long, value_name = "COUNT")]
    pub(crate) recipients: u64,
    /// Where to, as the lanes of `belfry status` name it; needed if the channel has several
    #[arg(long, value_name = "DESTINATION")]
    pub(crate) destination: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints how long they would take, or why that is not known.
pub(crate) fn run(args: &EstimateArgs, client: &Client) -> anyhow::Result<()> {
    let recipients = args.recipients.to_string();
    let path = with_query(
        "/v1/estimate",
        &[
            ("channel", Some(args.channel.as_str())),
            ("recipients", Some(&recipients)),
            ("destination", args.destination.as_deref()),
        ],
    );
    let answer: ProspectAnswer = client.get(&path)?;
    output::json_or(args.json, &answer, || text(&answer))
}

fn text(answer: &ProspectAnswer) -> String {
    let ProspectAnswer { ahead, ahead_at_least, measured_at, least_seconds, most_seconds, .. } =
        answer;
    if let Some(unknown) = &answer.unknown {
        return format!("unknown: {unknown}");
    }
    let bound = if *ahead_at_least { "at least " } else { "" };
    let basis = format!(
        "{bound}{ahead} of the channel may come before them; as fast as at {}",
        measured_at.as_deref().unwrap_or("-")
    );
    match (*least_seconds, *most_seconds) {
        (Some(least), Some(most)) => {
            format!("{} (four times out of five): {basis}", lasting(least, most))
        }
        (Some(least), None) => format!("{least:.0} s at least: {basis}"),
        (None, _) => format!("unknown: {basis}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_it_goes_by_or_why_it_does_not_know() {
        let answer = |more: serde_json::Value| -> ProspectAnswer {
            let mut answer = serde_json::json!({"channel": "ios", "recipients": 5, "ahead": 7, "ahead_at_least": false, "measured_at": "T"});
            answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(answer).unwrap()
        };
        let told = answer(serde_json::json!({"least_seconds": 200.0, "most_seconds": 900.0}));
        assert_eq!(
            text(&told),
            "3 to 15 min (four times out of five): 7 of the channel may come before them; as fast as at T"
        );
        let told = answer(serde_json::json!({"least_seconds": 200.0, "ahead_at_least": true}));
        assert_eq!(
            text(&told),
            "200 s at least: at least 7 of the channel may come before them; as fast as at T"
        );
        assert_eq!(text(&answer(serde_json::json!({"unknown": "why"}))), "unknown: why");
    }
}
