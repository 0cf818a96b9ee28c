//! `belfry send`: hands one content to the engine, for one recipient or for many.

mod recipients;

use std::path::PathBuf;

use api::{BroadcastCreated, Located, NotificationCreated, PreviewAnswer};
use clap::Args;
use notification::{Guarantee, LatePolicy, Name, Priority, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::args::json;
use crate::client::Client;
use crate::exit::{self, CliError, FailureKind};
use crate::output;

/// `belfry send`. Its JSON is the notification, or the first line of a broadcast.
#[derive(Debug, Args, Serialize)]
pub(crate) struct SendArgs {
    /// Channel, as the configuration names it
    #[arg(long)]
    pub(crate) channel: Name,
    /// Device token, URL, address
    #[arg(long, value_name = "RECIPIENT", required_unless_present = "to_file")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    /// One recipient per line (`-` is standard input): a broadcast, accepted whole or not at all. With a template or
    /// fallbacks, a line may be `{"to": ..., "variables": {...}, "external_id": ..., "fallback": [...]}`
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    #[serde(skip)]
    pub(crate) to_file: Option<PathBuf>,
    /// The content, in the channel's own format
    #[arg(long, value_name = "JSON", value_parser = json, required_unless_present = "template")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<Box<RawValue>>,
    /// Name of a configured template, in place of a content
    #[arg(long, value_name = "NAME", conflicts_with = "content")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<Name>,
    /// A JSON object: the content is a template, and this is put into it
    #[arg(long, value_name = "JSON", value_parser = json)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) variables: Option<Box<RawValue>>,
    /// A JSON array of {"channel", "to", "content"}: tried in order once the one before is definitely refused. With a file of
    /// recipients it has no "to"
    #[arg(long, value_name = "JSON", value_parser = json)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fallback: Option<Box<RawValue>>,
    /// Show what would be sent, and send nothing
    #[arg(long, conflicts_with = "to_file")]
    #[serde(skip)]
    pub(crate) preview: bool,
    /// The channel's options
    #[arg(long, value_name = "JSON", value_parser = json)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) options: Option<Box<RawValue>>,
    /// The guarantee across a crash: `at_least_once` or `at_most_once`
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) guarantee: Option<Guarantee>,
    /// The priority: `urgent`, `normal` or `bulk`
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<Priority>,
    /// Not to be sent before this instant (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) send_at: Option<Timestamp>,
    /// Not to be sent at or after this instant (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
    /// The action when it could not be sent in time: `send` or `skip`
    #[arg(long, value_name = "POLICY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) late: Option<LatePolicy>,
    /// Idempotency key: the same key twice is one notification
    #[arg(long, value_name = "KEY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency_key: Option<String>,
    /// Your own id of whom or what it is about, to find it by
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) external_id: Option<String>,
    /// A tag to find it by, and to follow its events by; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    #[serde(rename = "tags", skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    /// A JSON object that comes back with it in lists and events
    #[arg(long, value_name = "JSON", value_parser = json)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<Box<RawValue>>,
    /// Print the engine's answer as JSON
    #[arg(long)]
    #[serde(skip)]
    pub(crate) json: bool,
}

/// Prints the identifier of the notification, or of the broadcast.
pub(crate) fn run(args: &SendArgs, client: &Client) -> anyhow::Result<()> {
    if args.preview {
        return preview(args, client);
    }
    match &args.to_file {
        None => {
            let created: NotificationCreated = client.post("/v1/notifications", args)?;
            output::json_or(args.json, &created, || &created.id)
        }
        Some(file) => {
            let body = recipients::body(serde_json::to_vec(args)?, file, args.takes_objects())?;
            let created: BroadcastCreated = client.upload("/v1/broadcasts", body)?;
            let BroadcastCreated { id, accepted, .. } = &created;
            output::json_or(args.json, &created, || format!("{id} ({accepted} notifications)"))
        }
    }
}

/// Prints what would be sent. What its channel says to it goes to standard error.
fn preview(args: &SendArgs, client: &Client) -> anyhow::Result<()> {
    let preview: PreviewAnswer = client.post("/v1/preview", args)?;
    output::json_or(args.json, &preview, || {
        let options = preview.options.as_ref().map(|options| format!("\noptions: {options}"));
        let content = preview.content.as_deref().map_or("null", RawValue::get);
        format!("{content}{}", options.unwrap_or_default())
    })?;
    if let Some(Located { pointer, message, .. }) = preview.error {
        let field = pointer.trim_start_matches('/');
        return Err(CliError::new(FailureKind::BadInput, format!("{field}: {message}")).into());
    }
    exit::complain(&format!("{} bytes, which the channel accepts", preview.bytes));
    Ok(())
}

// === impl SendArgs ===

impl SendArgs {
    /// True if recipients may have variables or fallbacks.
    pub(crate) fn takes_objects(&self) -> bool {
        self.template.is_some() || self.variables.is_some() || self.fallback.is_some()
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, CliCommand};
    use clap::Parser as _;

    #[test]
    fn json_is_sent_as_it_was_written() {
        let content = r#"{"b": 1.10, "a":12345678901234567890123}"#;
        let words = ["belfry", "send", "--channel", "ios", "--to", "t", "--content", content];
        let CliCommand::Send(args) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        let body = serde_json::to_string(&args).unwrap();
        assert_eq!(body, format!(r#"{{"channel":"ios","to":"t","content":{content}}}"#));
    }
}
