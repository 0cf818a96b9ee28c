//! `belfry test`: sends one message through a channel, waits for its end, and says what the provider answered.

use std::process::ExitCode;
use std::time::Duration;

use api::NotificationCreated;
use clap::Args;
use notification::{Name, Priority};
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::args::json;
use crate::channels::{self, ListedChannel};
use crate::client::Client;
use crate::config::units;
use crate::exit::{CliError, FailureKind, complain};
use crate::got::GotNotification;
use crate::output;

/// `belfry test`
#[derive(Debug, Args)]
#[command(
    after_help = "It is an urgent notification like any other: it is counted, and in the log.\n\
    Exit code 0: the provider has taken it. 1: it has not, or nothing is known of it when the time is over."
)]
pub(crate) struct TestArgs {
    /// Channel, as the configuration names it
    channel: Name,
    /// Device token, URL, address
    to: String,
    /// The content, in the channel's own format [default: the shortest that a channel of this kind takes]
    #[arg(long, value_name = "JSON", value_parser = json)]
    content: Option<Box<RawValue>>,
    /// The channel's options
    #[arg(long, value_name = "JSON", value_parser = json)]
    options: Option<Box<RawValue>>,
    /// How long to wait for its end
    #[arg(long, value_name = "SPAN", value_parser = units::span, default_value = "30s")]
    wait: Duration,
    /// Print the notification as JSON, as the engine tells of it
    #[arg(long)]
    json: bool,
}

/// The notification.
#[derive(Serialize)]
struct TestMessage<'a> {
    channel: &'a Name,
    to: &'a str,
    content: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<&'a RawValue>,
    priority: &'static str,
}

/// Between two questions for its end.
const ASK_PERIOD: Duration = Duration::from_millis(100);
/// Its text, where a channel has room for words.
const WORDS: &str = "A test message of Belfry";

/// Sends it and waits. The exit code is 1 unless it was delivered.
pub(crate) fn run(args: &TestArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let content = match &args.content {
        Some(content) => content.clone(),
        None => minimal_content(&kind_of(&args.channel, client)?)?,
    };
    let message = TestMessage {
        channel: &args.channel,
        to: &args.to,
        content: &content,
        options: args.options.as_deref(),
        priority: Priority::Urgent.as_str(),
    };
    let created: NotificationCreated = client.post("/v1/notifications", &message)?;
    let (answer, got) = wait(args.wait, &created.id, client)?;
    if args.json {
        output::line(answer)?;
    } else {
        output::line(got.head())?;
        got.attempt_lines().try_for_each(output::line)?;
    }
    if got.is_pending() {
        let (id, span) = (&got.id, args.wait);
        complain(&format!(
            "not delivered within {span:?}, and still tried: see `belfry get {id}`, or `belfry cancel {id}`"
        ));
    }
    Ok(if got.state == "delivered" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks for the notification until it has ended or `patience` is over; at least once.
fn wait(
    patience: Duration,
    id: &str,
    client: &Client,
) -> anyhow::Result<(Box<RawValue>, GotNotification)> {
    let mut left = patience;
    loop {
        let answer: Box<RawValue> = client.get(&format!("/v1/notifications/{id}"))?;
        let got: GotNotification = serde_json::from_str(answer.get())?;
        if !got.is_pending() || left.is_zero() {
            return Ok((answer, got));
        }
        let pause = ASK_PERIOD.min(left);
        left = left.saturating_sub(pause);
        std::thread::sleep(pause);
    }
}

/// The kind of the channel, as the engine has it.
fn kind_of(channel: &Name, client: &Client) -> anyhow::Result<String> {
    let all = channels::all(client)?;
    let names: Vec<&str> = all.iter().map(|listed| listed.name.as_str()).collect();
    let refuse = || {
        let there_are = match names.as_slice() {
            [] => "it has none: add one to its configuration".to_owned(),
            names => format!("it has {}", names.join(", ")),
        };
        let message = format!("the engine has no channel {:?}: {there_are}", channel.as_str());
        CliError::new(FailureKind::BadInput, message)
    };
    let found = all.iter().find(|listed| listed.name == channel.as_str()).ok_or_else(refuse)?;
    let ListedChannel { kind, .. } = found;
    Ok(kind.clone())
}

/// The shortest content with words in it that channels of this kind take.
fn minimal_content(kind: &str) -> serde_json::Result<Box<RawValue>> {
    let content = match kind {
        "apns" => json!({"aps": {"alert": WORDS}}),
        "fcm" => json!({"notification": {"title": "Test", "body": WORDS}}),
        "smtp" => json!({"subject": WORDS, "text": WORDS}),
        // The others take any JSON.
        _ => json!({"text": WORDS}),
    };
    to_raw_value(&content)
}
