//! `belfry send`: hands one content to the engine, for one recipient or for many.

mod recipients;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use notification::{Guarantee, LatePolicy, Name, Priority, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::args::json;
use crate::client::Client;
use crate::exit::{self, CliError, FailureKind};
use crate::output;

/// `belfry send`
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Channel, as the configuration names it
    #[arg(long)]
    pub(crate) channel: Name,
    /// Device token, URL, address
    #[arg(long, value_name = "RECIPIENT", required_unless_present = "to_file")]
    pub(crate) to: Option<String>,
    /// One recipient per line (`-` is standard input): a broadcast, accepted whole or not at all. With a template or
    /// fallbacks, a line may be {"to": ..., "variables": {...}, "fallback": [...]}
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    pub(crate) to_file: Option<PathBuf>,
    /// The content, in the channel's own format
    #[arg(long, value_name = "JSON", value_parser = json, required_unless_present = "template")]
    pub(crate) content: Option<Box<RawValue>>,
    /// Name of a configured template, in place of a content
    #[arg(long, value_name = "NAME", conflicts_with = "content")]
    pub(crate) template: Option<Name>,
    /// A JSON object: the content is a template, and this is put into it
    #[arg(long, value_name = "JSON", value_parser = json)]
    pub(crate) variables: Option<Box<RawValue>>,
    /// A JSON array of {"channel", "to", "content"}: tried in order once the one before is definitely refused. With a file of
    /// recipients it has no "to"
    #[arg(long, value_name = "JSON", value_parser = json)]
    pub(crate) fallback: Option<Box<RawValue>>,
    /// Show what would be sent, and send nothing
    #[arg(long, conflicts_with = "to_file")]
    pub(crate) preview: bool,
    /// The channel's options
    #[arg(long, value_name = "JSON", value_parser = json)]
    pub(crate) options: Option<Box<RawValue>>,
    /// The guarantee across a crash: `at_least_once` or `at_most_once`
    #[arg(long)]
    pub(crate) guarantee: Option<Guarantee>,
    /// The priority: `urgent`, `normal` or `bulk`
    #[arg(long)]
    pub(crate) priority: Option<Priority>,
    /// Not to be sent before this instant (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    pub(crate) send_at: Option<Timestamp>,
    /// Not to be sent at or after this instant (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    pub(crate) expires_at: Option<Timestamp>,
    /// The action when it could not be sent in time: `send` or `skip`
    #[arg(long, value_name = "POLICY")]
    pub(crate) late: Option<LatePolicy>,
    /// Idempotency key: the same key twice is one notification
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Print the engine's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Serialize)]
struct SendBody<'a> {
    channel: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variables: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guarantee: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SendAnswer {
    id: String,
    replayed: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct BroadcastBody {
    id: String,
    accepted: u64,
    replayed: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct PreviewAnswer {
    content: Box<RawValue>,
    options: Option<Box<RawValue>>,
    bytes: u64,
    accepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<PreviewError>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PreviewError {
    pointer: String,
    message: String,
}

/// Prints the identifier of the notification, or of the broadcast.
pub(crate) fn run(args: &SendArgs, client: &Client) -> anyhow::Result<ExitCode> {
    if args.preview {
        return preview(args, client);
    }
    match &args.to_file {
        None => {
            let created: SendAnswer = client.post("/v1/notifications", &SendBody::from(args))?;
            show(args, &created, &created.id)?;
        }
        Some(file) => {
            let head = serde_json::to_vec(&SendBody::from(args))?;
            let created: BroadcastBody = client
                .upload("/v1/broadcasts", recipients::body(head, file, args.takes_objects())?)?;
            show(args, &created, &format!("{} ({} notifications)", created.id, created.accepted))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what would be sent. What its channel says to it goes to standard error.
fn preview(args: &SendArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let preview: PreviewAnswer = client.post("/v1/preview", &SendBody::from(args))?;
    if args.json {
        output::json(&preview)?;
    } else {
        output::line(&preview.content)?;
        if let Some(options) = &preview.options {
            output::line(format_args!("options: {options}"))?;
        }
    }
    if let Some(PreviewError { pointer, message }) = preview.error {
        let field = pointer.trim_start_matches('/');
        return Err(CliError::new(FailureKind::BadInput, format!("{field}: {message}")).into());
    }
    exit::complain(&format!("{} bytes, which the channel accepts", preview.bytes));
    Ok(ExitCode::SUCCESS)
}

fn show(args: &SendArgs, answer: &impl Serialize, line: &str) -> anyhow::Result<()> {
    if args.json { output::json(answer) } else { Ok(output::line(line)?) }
}

// === impl SendArgs ===

impl SendArgs {
    /// True if recipients may have variables or fallbacks.
    pub(crate) fn takes_objects(&self) -> bool {
        self.template.is_some() || self.variables.is_some() || self.fallback.is_some()
    }
}

// === impl SendBody ===

impl<'a> From<&'a SendArgs> for SendBody<'a> {
    fn from(args: &'a SendArgs) -> Self {
        Self {
            channel: args.channel.as_str(),
            to: args.to.as_deref(),
            content: args.content.as_deref(),
            template: args.template.as_ref().map(Name::as_str),
            variables: args.variables.as_deref(),
            fallback: args.fallback.as_deref(),
            options: args.options.as_deref(),
            guarantee: args.guarantee.map(Guarantee::as_str),
            priority: args.priority.map(Priority::as_str),
            send_at: args.send_at.map(|instant| instant.to_string()),
            expires_at: args.expires_at.map(|instant| instant.to_string()),
            late: args.late.map(LatePolicy::as_str),
            idempotency_key: args.idempotency_key.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, CliCommand};
    use clap::Parser as _;

    #[test]
    fn json_is_sent_as_it_was_written() {
        let content = r#"{"b": 1.10, "a":12345678901234567890123}"#;
        let words = ["belfry", "send", "--channel", "ios", "--to", "t", "--content", content];
        let CliCommand::Send(args) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        let body = serde_json::to_string(&SendBody::from(&args)).unwrap();
        assert_eq!(body, format!(r#"{{"channel":"ios","to":"t","content":{content}}}"#));
    }
}
