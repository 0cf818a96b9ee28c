//! From the source to the target, without a store between them.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use channel::Secret;
use flow::Clock;
use stream::StreamError;
use stream::relay::{
    RelayBuffer, RelayCounts, RelayEnd, RelayError, RelayGuarantee, RelayOptions, StreamRelay,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Duration, interval};

use super::args::RelayArgs;
use super::map;
#[cfg(feature = "kinesis")]
use super::positions::FilePositions;
use super::report::{LOOK_EVERY, RelayProgress};
use crate::config::ServerUrl;
use crate::exit::{CliError, FailureKind};
use crate::output;
use crate::streams::{SourceParts, StreamPlace};

/// Time in which the source must be reached once.
const PATIENCE: Duration = Duration::from_secs(30);

/// Relays, tells how far it is, and prints what was done.
pub(super) async fn run(args: &RelayArgs) -> anyhow::Result<ExitCode> {
    let mut ends = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let relay = open(args)?;
    let mut progress = RelayProgress::new(Arc::clone(&relay.counts), relay.clock);
    let (stop, stopping) = watch::channel(false);
    let mut looks = interval(LOOK_EVERY);
    let mut running = pin!(relay.run(stopping));
    let ended = loop {
        tokio::select! {
            ended = &mut running => break ended,
            () = told(&mut ends) => {
                if stop.send_replace(true) {
                    let summary = progress.summary();
                    output::json_or(args.json, &summary, || summary.to_string())?;
                    return Err(anyhow::anyhow!("told twice: what is in hand comes again, unless it is at most once"));
                }
            }
            _look = looks.tick() => progress.tell(),
        }
    };
    let summary = progress.summary();
    output::json_or(args.json, &summary, || summary.to_string())?;
    match ended {
        Ok(RelayEnd::Empty | RelayEnd::Stopped) if summary.lost == 0 => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::FAILURE),
        Err(error) => Err(CliError::new(kind(&error), error.to_string()).into()),
    }
}

/// One of the signals came.
async fn told([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn kind(error: &RelayError) -> FailureKind {
    match error {
        RelayError::Refused { .. } | RelayError::Letter { .. } => FailureKind::BadInput,
        RelayError::Source(_) => FailureKind::Config,
        RelayError::Unreachable(_) => FailureKind::Unreachable,
    }
}

/// The relay that `args` ask for. Connects to nothing.
fn open(args: &RelayArgs) -> Result<StreamRelay, CliError> {
    let (clock, mut random) = (Clock::system(), fastrand::Rng::new());
    let from = place("--from", &args.from)?;
    let wrong = |argument: &'static str| move |error: StreamError| usage(argument, &error);
    let parts = SourceParts {
        reader: args.reader.clone(),
        clock,
        random: random.fork(),
        #[cfg(feature = "kinesis")]
        positions: positions_of(args, &from)?,
    };
    let source = from.source(parts).map_err(wrong("--from"))?;
    let target = place("--to", &args.to)?.target(clock).map_err(wrong("--to"))?;
    let dead_letters = match &args.dead_letter {
        Some(url) => {
            let argument = "--dead-letter";
            Some(place(argument, url)?.target(clock).map_err(wrong(argument))?)
        }
        None => None,
    };
    let map = map::read(args.map.as_deref()).map_err(|error| usage("--map", &error))?;
    let mut buffer = RelayBuffer::before(target.limits());
    if let Some(messages) = args.buffer {
        buffer.messages = messages as usize;
    }
    let guarantee =
        if args.at_most_once { RelayGuarantee::AtMostOnce } else { RelayGuarantee::AtLeastOnce };
    let until_empty = args.until_empty();
    Ok(StreamRelay {
        source: source.into(),
        target: target.into(),
        dead_letters: dead_letters.map(Into::into),
        map: map.into(),
        options: RelayOptions { buffer, guarantee, until_empty, patience: PATIENCE },
        counts: Arc::new(RelayCounts::default()),
        clock,
        random,
    })
}

fn place(argument: &str, url: &Secret) -> Result<StreamPlace, CliError> {
    let url: ServerUrl = url.expose().parse().map_err(|message: &str| usage(argument, &message))?;
    StreamPlace::parse(&url, None).map_err(|error| usage(argument, &error))
}

#[cfg(feature = "kinesis")]
fn positions_of(
    args: &RelayArgs,
    from: &StreamPlace,
) -> Result<Arc<dyn stream::kinesis::Positions>, CliError> {
    let argument = "--positions";
    match &args.positions {
        Some(file) => {
            let opened = FilePositions::open(file);
            Ok(Arc::new(opened.map_err(|error| usage(argument, &error))?))
        }
        None if matches!(from, StreamPlace::Kinesis(_)) => Err(usage(
            argument,
            &"Kinesis does not keep how far it was read: name a file that does",
        )),
        None => Ok(Arc::new(stream::kinesis::MemoryPositions::default())),
    }
}

fn usage(argument: &str, error: &dyn std::fmt::Display) -> CliError {
    CliError::new(FailureKind::Usage, format!("{argument}: {error}"))
}
