//! The command line: names every command. What one takes and does is in the module of its name.

use clap::builder::styling::{AnsiColor, Styles};
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::account::AccountArgs;
use crate::acts::ActsArgs;
use crate::api_key::ApiKeyArgs;
use crate::args::Global;
use crate::audit::AuditArgs;
use crate::backup::BackupArgs;
use crate::bench::BenchCommand;
use crate::broadcasts::BroadcastsArgs;
use crate::cancel::CancelArgs;
use crate::channels::ChannelsArgs;
use crate::check_config::CheckConfigArgs;
use crate::compact::CompactArgs;
use crate::completions::CompletionsArgs;
use crate::credential::CredentialCommand;
use crate::demo::DemoArgs;
use crate::erase::EraseArgs;
use crate::estimate::EstimateArgs;
use crate::events::EventsArgs;
use crate::exit;
use crate::get::GetArgs;
use crate::health::HealthArgs;
use crate::import::ImportArgs;
use crate::init::InitArgs;
use crate::keys::KeysCommand;
use crate::list::ListArgs;
use crate::log::LogArgs;
use crate::man::ManArgs;
use crate::pause::PauseArgs;
use crate::plan::PlanArgs;
use crate::prune::PruneArgs;
use crate::relay::RelayArgs;
use crate::reload::ReloadArgs;
use crate::requeue::RequeueArgs;
use crate::reschedule::RescheduleArgs;
use crate::resolve::ResolveArgs;
use crate::send::SendArgs;
use crate::serve::RunArgs;
use crate::status::StatusArgs;
use crate::suppressions::SuppressionsCommand;
use crate::tenants::TenantsArgs;
#[cfg(feature = "top")]
use crate::top::TopArgs;
use crate::try_channel::TestArgs;

/// Delivers notifications, and accounts for every single one
#[derive(Debug, Parser)]
#[command(name = "belfry", version, after_help = exit::HELP, max_term_width = 100, styles = STYLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// Colours of help and errors, where those are printed to a terminal and `NO_COLOR` is not set.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Make a configuration, an operator's key and a store, and say how to go on
    Init(InitArgs),
    /// Run the engine: take notifications in and deliver them
    Serve(RunArgs),
    /// Run the half that takes notifications in and hands them to consumers through a broker
    Produce(RunArgs),
    /// Run the half that delivers what producers hand out
    Consume(RunArgs),
    /// Hand a file of notifications to the engine
    Import(ImportArgs),
    /// Relay messages from one stream into another: Kafka, SQS, Kinesis, RabbitMQ, NATS
    Relay(Box<RelayArgs>),
    /// Hand one content to the engine, for one recipient or for many
    Send(SendArgs),
    /// Send a test message through a channel, and say what its provider answered
    Test(TestArgs),
    /// Show what was accepted, what came of it, and who works on it
    Status(StatusArgs),
    /// Show an engine as it works, in the terminal
    #[cfg(feature = "top")]
    Top(TopArgs),
    /// Tell by the exit code whether the engine lives, for supervisors and containers
    Health(HealthArgs),
    /// Show how long a broadcast would take that is not created yet
    Estimate(EstimateArgs),
    /// Show all that the engine knows of a notification or a broadcast
    Get(GetArgs),
    /// List the channels that the engine has
    Channels(ChannelsArgs),
    /// Find notifications and what came of them (reads the store, or asks the engine at --url)
    List(ListArgs),
    /// List the broadcasts of a tenant (reads the store, or asks the engine at --url)
    Broadcasts(BroadcastsArgs),
    /// Show the delivery log (reads the store, or asks the engine at --url)
    Log(LogArgs),
    /// Print what became of the notifications of a tenant (reads the store, the engine need not run)
    Events(EventsArgs),
    /// Cancel what is not sent yet: a notification, a broadcast, a lane, a channel, or all of a tenant
    Cancel(CancelArgs),
    /// Give a notification, or what waits of a broadcast, another time, earlier or later
    Reschedule(RescheduleArgs),
    /// Send nothing of a broadcast, a channel, a lane or a tenant until it is resumed
    Pause(PauseArgs),
    /// End a pause
    Resume(PauseArgs),
    /// Send again what was given up
    Requeue(RequeueArgs),
    /// Write down what became of notifications that are in doubt, without sending them
    Resolve(ResolveArgs),
    /// Show where all notifications of a tenant stand (reads the store, or asks the engine at --url)
    Account(AccountArgs),
    /// List the tenants that have anything, with their accounts (reads the store, or asks the engine at --url)
    Tenants(TenantsArgs),
    /// Count everything from the ground up (reads the store, or asks the engine at --url)
    Audit(AuditArgs),
    /// Remove what has outlived its lifetime now, and not with the next look
    Prune(PruneArgs),
    /// Erase what is stored about a recipient: contents, addresses, suppressions
    Erase(EraseArgs),
    /// Write the embedded store anew, without the room and the bytes of what was removed (the engine must not run)
    Compact(CompactArgs),
    /// Copy the embedded store while the engine runs
    Backup(BackupArgs),
    /// Read and change the list of recipients that are not tried
    #[command(subcommand)]
    Suppressions(SuppressionsCommand),
    /// Deliver a million notifications to a local provider, with a crash halfway
    Demo(DemoArgs),
    /// Measure what others have published, and more, on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Say how many machines, connections and how much memory a rate needs, by what `bench` has measured here
    Plan(PlanArgs),
    /// Run local providers that speak the real protocols
    ProviderSim(Box<provider_sim::SimulatorOptions>),
    /// Have a running engine read its configuration again, and say what changed
    Reload(ReloadArgs),
    /// Check a configuration without touching the network
    CheckConfig(CheckConfigArgs),
    /// Seal the secrets of a configuration
    #[command(subcommand)]
    Credential(CredentialCommand),
    /// Show who has cancelled, paused, requeued, erased, suppressed and so on, and what came of it
    Acts(ActsArgs),
    /// List, make, rotate and revoke keys of callers while the engine runs
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Make a key for callers of the engine, for its configuration
    ApiKey(ApiKeyArgs),
    /// Make a key pair with which browsers know who sends (Web Push, VAPID)
    VapidKey,
    /// Print what a shell completes command lines of Belfry with
    Completions(CompletionsArgs),
    /// Write manual pages, one for each command
    Man(ManArgs),
    /// Print the reference of the command line
    #[command(hide = true)]
    Reference,
}

/// `docs/reference/cli.md`.
pub(crate) fn to_markdown() -> String {
    let mut page = String::from(
        "# Command line\n\nGenerated by `make docs` from `crates/belfry/src/cli.rs`; do not edit.\n",
    );
    // Set, so that the page is the same whatever terminal it is made on.
    let mut root = Cli::command().term_width(100);
    // Hands the options of all commands on to the subcommands, whose help is rendered by itself.
    root.build();
    let root_help = root.render_long_help().to_string();
    push_help(&mut page, "belfry", &root_help);
    for command in root.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        let name = format!("belfry {}", command.get_name());
        if command.get_name() == "help" {
            continue;
        }
        push_help(&mut page, &name, &command.render_long_help().to_string());
        let is_shown =
            |inner: &&mut clap::Command| inner.get_name() != "help" && !inner.is_hide_set();
        for inner in command.get_subcommands_mut().filter(is_shown) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_contradicts_nothing() {
        Cli::command().debug_assert();
    }

    /// On a command's own page they would hide what it is asked for.
    #[test]
    fn the_options_of_all_commands_come_after_those_of_the_command() {
        let page = to_markdown();
        let commands: Vec<&str> = page.split("\n## ").skip(1).collect();
        assert!(commands.len() > 50, "{}", commands.len());
        for help in commands {
            let (own, all) = help.split_once("\nOptions of all commands:\n").unwrap();
            assert!(own.contains("-h, --help") && own.contains("\nOptions:\n"), "{help}");
            let names: Vec<&str> = all
                .lines()
                .filter_map(|line| line.strip_prefix("      --")?.split(' ').next())
                .collect();
            let expect = [
                "config",
                "url",
                "api-key",
                "api-key-file",
                "ca-file",
                "client-cert",
                "client-key",
            ];
            assert_eq!(names, expect, "{help}");
        }
    }

    #[test]
    fn the_reference_of_the_command_line_is_up_to_date() {
        let page = include_str!("../../../docs/reference/cli.md");
        assert!(to_markdown() == page, "docs/reference/cli.md is old: run `make docs`");
    }
}
