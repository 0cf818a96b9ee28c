//! Sets up the log: to standard error, as text for people or JSON for machines.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use crate::config::{LogConfig, LogFormat, LogLevel};

/// Starts logging for the whole process; once.
pub(crate) fn start(config: &LogConfig) -> Result<(), TryInitError> {
    let level = LevelFilter::from(config.level);
    // What these libraries say of every connection, our own links say better.
    let talkative = level.min(LevelFilter::WARN);
    let targets = Targets::new().with_default(level);
    let targets = targets.with_target("async_nats", talkative).with_target("lapin", talkative);
    // All of the SDK's crates, and its HTTP client. At the lowest level it writes what it signs.
    let targets = targets.with_target("aws_", talkative).with_target("hyper_util", talkative);
    // It warns of every connection that is given up on purpose.
    let targets = targets.with_target("krafka", level.min(LevelFilter::ERROR));
    let registry = tracing_subscriber::registry().with(targets);
    let lines = fmt::layer().with_writer(io::stderr).with_target(false);
    match config.format {
        LogFormat::Text => {
            registry.with(lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr()))).try_init()
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    }
}

// === impl LogLevel ===

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}
