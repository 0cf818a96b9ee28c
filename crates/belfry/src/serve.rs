//! `belfry serve`, `belfry produce` and `belfry consume`: builds the engine, or a half of it, runs it until it is told to stop, and drains it.

mod backend;
mod broker;
mod certificates;
mod credential_metrics;
mod engine;
#[cfg(test)]
mod engine_tests;
mod failed;
mod growth;
mod indexing;
mod listeners;
mod live;
mod open_files;
mod process_metrics;
mod relayed;
mod retention;
mod role;
mod senders;
mod sources;
mod stages;
mod store_metrics;
mod totals;
#[cfg(feature = "otlp")]
mod traces;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use api::{ReloadError, Reloaded};
use channel::Secret;
use clap::Args;
use flow::Clock;
use store::Ending;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{StoreArgs, secret};
use crate::config::{Config, Flags};
use crate::exit::CliError;
use crate::logging;
use crate::signals::EndSignals;
pub(crate) use engine::Engine;
use failed::Failed;
pub(crate) use relayed::RelayRoute;
pub(crate) use role::Role;

/// `belfry serve`, `belfry produce`, `belfry consume`
#[derive(Debug, Args)]
#[command(
    after_help = "A password in a URL is seen by every user of the machine: set it in the environment \
                        (BELFRY__STORE__URL) or name a file (`password_file`) instead."
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[arg(
        long,
        value_name = "URL",
        value_parser = secret,
        help = "Broker: amqp://USER@HOST, amqps://USER@HOST, nats://HOST, kafka://HOST or sqs://REGION [default: as configured]"
    )]
    pub(crate) queue: Option<Secret>,
}

/// Threads for dispatch, settle and the store. They mostly wait: for the store's writer. Callers have threads of their own.
const CONTROL_THREADS: usize = 2;

/// How long a store or broker that cannot be reached is waited for at the start.
const START_PATIENCE: Duration = Duration::from_mins(1);
/// Between two tries to reach the store, each of which may take its own time.
const START_RETRY: Duration = Duration::from_secs(1);

// === impl RunArgs ===

impl RunArgs {
    /// The settings among them.
    pub(crate) fn flags(&self) -> Flags {
        Flags { queue: self.queue.clone(), ..self.store.flags() }
    }
}

/// Runs the engine until SIGTERM or SIGINT. With SIGHUP, and when a caller asks for it, it goes by what `read` reads then. The exit code is
/// 1 when it had to stop by itself.
pub(crate) fn run(
    role: Role,
    config: &Config,
    read: impl Fn() -> Result<Config, CliError>,
) -> anyhow::Result<ExitCode> {
    logging::start(&config.log)?;
    warn(config);
    runtime()?.block_on(serve(role, config, read))
}

/// The runtime of an engine, in a process that may open as many files as the system lets it.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    open_files::raise();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()
}

async fn serve(
    role: Role,
    config: &Config,
    read: impl Fn() -> Result<Config, CliError>,
) -> anyhow::Result<ExitCode> {
    // Before the start, which may wait for a store or a broker: a signal ends it in order.
    let mut ends = EndSignals::new()?;
    // From here on it ends nothing; what came during the start is looked at after it.
    let mut hangup = signal(SignalKind::hangup())?;
    let mut engine = tokio::select! {
        started = Engine::start(role, config, Clock::system()) => started?,
        // Nothing was taken in or claimed before the end of the start.
        () = ends.next() => return Ok(ExitCode::SUCCESS),
    };
    announce(&engine)?;
    // A start without a relay has the receiver.
    let mut calls = engine.take_reload_calls().context("the engine takes no reloads")?;
    let failure = loop {
        tokio::select! {
            () = ends.next() => break None,
            failure = engine.failed() => break Some(failure),
            _ = hangup.recv() => {
                // The log has what came of it.
                let _logged = reload(&mut engine, &read).await;
            }
            Some(call) = calls.recv() => call.answer(reload(&mut engine, &read).await),
        }
    };
    // Those that wait are told that nothing changes any more: the drain waits for their answers.
    drop(calls);
    Ok(end(engine, failure, &mut ends).await)
}

/// Ends `engine`: drains it, unless it failed or a second signal comes. The exit code is 1 when something is left to recovery.
pub(crate) async fn end(
    mut engine: Engine,
    failure: Option<Failed>,
    ends: &mut EndSignals,
) -> ExitCode {
    if let Some(failure) = failure {
        // What is under way could not be settled: the restart recovers it, as after any crash.
        tracing::error!(%failure, "stopped: nothing is lost, start again to recover");
        engine.abandon(failure.ending()).await;
        return ExitCode::FAILURE;
    }
    tracing::info!("draining: what is under way is finished, the rest stays pending");
    let drained = tokio::select! {
        // The drain waits for providers to answer; a second signal asks not to.
        drained = engine.drain() => drained,
        () = ends.next() => Err("told twice"),
    };
    match drained {
        Ok(()) => tracing::info!("stopped"),
        Err(reason) => {
            tracing::warn!(reason, "stopped at once: nothing is lost, a restart recovers");
            engine.abandon(Ending::Left).await;
        }
    }
    if drained.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Goes by the configuration as it is now, if it is right; if not, everything stays. What came of it is logged and given.
async fn reload(
    engine: &mut Engine,
    read: impl Fn() -> Result<Config, CliError>,
) -> Result<Reloaded, ReloadError> {
    let reloaded = match read() {
        Ok(new) => {
            warn(&new);
            engine.reload(new).await
        }
        Err(error) => Err(error.into()),
    };
    engine.note_reload(reloaded.is_ok());
    let reloaded = reloaded.map_err(|error| {
        let wrong = format!("{error:#}");
        for line in wrong.lines() {
            tracing::error!("not reloaded, everything stays as it was: {line}");
        }
        error.downcast().map_or(ReloadError::Configuration(wrong), ReloadError::Store)
    })?;
    let Reloaded { changed, needs_restart, .. } = &reloaded;
    let changed = if changed.is_empty() { "nothing".to_owned() } else { changed.join(", ") };
    tracing::info!(changed, "reloaded: what is sent and asked from now on goes by it");
    if !needs_restart.is_empty() {
        tracing::warn!("{} differs too, and needs a restart", needs_restart.join(", "));
    }
    Ok(reloaded)
}

fn warn(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
}

/// One line of JSON on standard output: ready, and where.
fn announce(engine: &Engine) -> anyhow::Result<()> {
    let ready = serde_json::to_string(engine.places())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{ready}").and_then(|()| out.flush()).context("cannot write to standard output")
}
