//! The command line. What a command does is in the module of its name.

use std::convert::Infallible;
use std::path::PathBuf;

use channel::Secret;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use notification::{Guarantee, LatePolicy, Name, NotificationId, Priority, Timestamp};
use serde_json::value::RawValue;

use crate::config::Flags;
use crate::exit;

/// Delivers notifications, and accounts for every single one
#[derive(Debug, Parser)]
#[command(name = "belfry", version, after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct Global {
    /// Configuration file [default: belfry.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address of the engine [default: where the configuration has it listen]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Key to call the engine with
    #[arg(long, global = true, value_name = "KEY", env = "BELFRY_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the engine: take notifications in and deliver them
    Serve(RunArgs),
    /// Run the half that takes notifications in and hands them to consumers through a broker
    Produce(RunArgs),
    /// Run the half that delivers what producers hand out
    Consume(RunArgs),
    /// Hand a file of notifications to the engine
    Import(ImportArgs),
    /// Hand one content to the engine, for one recipient or for many
    Send(SendArgs),
    /// Show what was accepted, what came of it, and who works on it
    Status(StatusArgs),
    /// Show the delivery log (reads the store, the engine need not run)
    Log(LogArgs),
    /// Cancel a notification or a broadcast
    Cancel(CancelArgs),
    /// Send again what was given up
    Requeue(RequeueArgs),
    /// Count everything from the ground up (reads the store, the engine need not run)
    Audit(AuditArgs),
    /// Read and change the list of recipients that are not tried
    #[command(subcommand)]
    Suppressions(crate::suppressions::SuppressionsCommand),
    /// Deliver a million notifications to a local provider, with a crash halfway
    Demo(crate::demo::DemoArgs),
    /// Run local providers that speak the real protocols
    ProviderSim(Box<provider_sim::Options>),
    /// Check a configuration without touching the network
    CheckConfig(CheckConfigArgs),
    /// Seal the secrets of a configuration
    #[command(subcommand)]
    Credential(crate::credential::CredentialCommand),
    /// Make a key for callers of the engine
    ApiKey(ApiKeyArgs),
    /// Make a key pair with which browsers know who sends (Web Push, VAPID)
    VapidKey,
    /// Print the reference of the command line
    #[command(hide = true)]
    Reference,
}

/// Which store a command reads.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[arg(
        long,
        value_name = "STORE",
        value_parser = secret,
        help = "Store: a directory (SQLite), or postgres://USER@HOST/DATABASE [default: as configured]"
    )]
    pub(crate) store: Option<Secret>,
}

/// `belfry serve`, `belfry produce`, `belfry consume`
#[derive(Debug, Args)]
#[command(
    after_help = "A password in a URL is seen by everybody on the machine: set it in the environment \
                        (BELFRY__STORE__URL) or name a file (`password_file`) instead."
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[arg(
        long,
        value_name = "URL",
        value_parser = secret,
        help = "Broker: amqp://USER@HOST, amqps://USER@HOST or nats://HOST [default: as configured]"
    )]
    pub(crate) queue: Option<Secret>,
}

/// `belfry import`
#[derive(Debug, Args)]
#[command(after_long_help = crate::import::HELP)]
pub(crate) struct ImportArgs {
    /// File to read; `-` is standard input
    pub(crate) file: PathBuf,
    /// Format of the file [default: by its name, else ndjson]
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// What to do with a bad row
    #[arg(long, value_name = "ACTION", default_value = "stop")]
    pub(crate) on_error: OnError,
    /// File that gets the bad rows with `--on-error skip` [default: FILE.rejects]
    #[arg(long, value_name = "FILE")]
    pub(crate) rejects: Option<PathBuf>,
    /// First line to import; those before it were imported earlier
    #[arg(long, value_name = "LINE", default_value = "1")]
    pub(crate) from_line: u64,
    /// Give every row the idempotency key PREFIX and its line number, so that no re-run doubles it
    #[arg(long, value_name = "PREFIX")]
    pub(crate) idempotency_prefix: Option<String>,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON object per line
    Ndjson,
    /// Comma-separated values with a header
    Csv,
}

/// What to do with a bad row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    /// Import what is before it, and stop
    Stop,
    /// Write it to the rejects, and go on
    Skip,
}

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
    /// What to send, in the channel's own format
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
    /// What a crash may cost: `at_least_once` or `at_most_once`
    #[arg(long)]
    pub(crate) guarantee: Option<Guarantee>,
    /// Who goes first: `urgent`, `normal` or `bulk`
    #[arg(long)]
    pub(crate) priority: Option<Priority>,
    /// Not to be sent before this instant (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    pub(crate) send_at: Option<Timestamp>,
    /// Not to be sent at or after this instant (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    pub(crate) expires_at: Option<Timestamp>,
    /// What to do when it could not be sent in time: `send` or `skip`
    #[arg(long, value_name = "POLICY")]
    pub(crate) late: Option<LatePolicy>,
    /// The same key twice is one notification
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Print the engine's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `belfry status`
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[arg(
        long,
        value_name = "STORE",
        value_parser = secret,
        help = "Ask the store and no engine: a directory (SQLite), or postgres://USER@HOST/DATABASE"
    )]
    pub(crate) store: Option<Secret>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print again every second, until interrupted
    #[arg(long)]
    pub(crate) watch: bool,
}

/// `belfry log`
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Position to start from, as an earlier line showed it
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub(crate) position: u64,
    /// Wait for more at the end
    #[arg(long)]
    pub(crate) follow: bool,
    /// Show the history of one notification
    #[arg(long, value_name = "NOTIFICATION", conflicts_with_all = ["position", "follow"])]
    pub(crate) id: Option<NotificationId>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `belfry cancel`
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// A notification (a UUID) or a broadcast (`bc_` and a number)
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `belfry requeue`
#[derive(Debug, Args)]
pub(crate) struct RequeueArgs {
    /// A notification (a UUID), or a broadcast (`bc_` and a number) whose dead ones are meant
    pub(crate) id: Option<String>,
    /// All dead ones that match the other options
    #[arg(long, conflicts_with = "id")]
    pub(crate) all: bool,
    /// Those of this channel
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// Those to this destination: a host, a bundle, a domain, as the lanes of `belfry status` name it
    #[arg(long)]
    pub(crate) destination: Option<String>,
    /// Those that died at this instant or later (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    pub(crate) since: Option<String>,
    /// Those that died before this instant (RFC 3339)
    #[arg(long, value_name = "INSTANT")]
    pub(crate) until: Option<String>,
    /// Those whose last words in the log have this in them
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// At most so many
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
    /// Only count
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `belfry audit`
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `belfry check-config`
#[derive(Debug, Args)]
pub(crate) struct CheckConfigArgs {
    /// File to check [default: what the other commands would read]
    pub(crate) file: Option<PathBuf>,
    /// Print the default configuration, documented
    #[arg(long, conflicts_with = "file")]
    pub(crate) print_default: bool,
    /// Print the reference page of the configuration
    #[arg(long, conflicts_with_all = ["file", "print_default"])]
    pub(crate) reference: bool,
}

/// `belfry api-key`
#[derive(Debug, Args)]
pub(crate) struct ApiKeyArgs {
    /// Says in logs whose key it is
    pub(crate) name: Name,
    /// Whose notifications the caller sends and sees
    #[arg(long)]
    pub(crate) tenant: Name,
}

// === impl StoreArgs ===

impl StoreArgs {
    /// What they say of the configuration.
    pub(crate) fn flags(&self) -> Flags {
        Flags { store: self.store.clone(), queue: None }
    }
}

// === impl SendArgs ===

impl SendArgs {
    /// Whether recipients may have variables or fallbacks.
    pub(crate) fn takes_objects(&self) -> bool {
        self.template.is_some() || self.variables.is_some() || self.fallback.is_some()
    }
}

// === impl StatusArgs ===

impl StatusArgs {
    /// What they say of the configuration, if it is the store that is asked.
    pub(crate) fn flags(&self) -> Option<Flags> {
        self.store.clone().map(|store| Flags { store: Some(store), queue: None })
    }
}

// === impl RunArgs ===

impl RunArgs {
    /// What they say of the configuration.
    pub(crate) fn flags(&self) -> Flags {
        Flags { queue: self.queue.clone(), ..self.store.flags() }
    }
}

/// `docs/reference/cli.md`.
pub(crate) fn to_markdown() -> String {
    let mut page = String::from(
        "# Command line\n\nGenerated by `make docs` from `crates/belfry/src/cli.rs`; do not edit.\n",
    );
    let mut root = Cli::command().term_width(100);
    root.build();
    let root_help = root.render_long_help().to_string();
    push_help(&mut page, "belfry", &root_help);
    for command in root.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        let name = format!("belfry {}", command.get_name());
        if command.get_name() == "help" {
            continue;
        }
        push_help(&mut page, &name, &command.render_long_help().to_string());
        for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
            let name = format!("{name} {}", inner.get_name());
            push_help(&mut page, &name, &inner.render_long_help().to_string());
        }
    }
    page
}

fn push_help(page: &mut String, name: &str, help: &str) {
    let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    page.extend(["\n## ", name, "\n\n```text\n", &help.join("\n"), "\n```\n"]);
}

/// A URL may have a password in it.
#[expect(clippy::unnecessary_wraps, reason = "clap wants a result")]
fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

/// The text as it is: numbers, spaces and the order of fields are the caller's.
fn json(text: &str) -> Result<Box<RawValue>, String> {
    serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_contradicts_nothing() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_reference_of_the_command_line_is_up_to_date() {
        let page = include_str!("../../../docs/reference/cli.md");
        assert!(to_markdown() == page, "docs/reference/cli.md is old: run `make docs`");
    }
}
