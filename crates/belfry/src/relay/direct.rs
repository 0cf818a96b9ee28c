//! From the source to the target, without a store between them.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use flow::Clock;
use stream::StreamError;
use stream::relay::{
    RelayBuffer, RelayCounts, RelayEnd, RelayError, RelayGuarantee, RelayOptions, StreamRelay,
};
use tokio::sync::watch;
use tokio::time::interval;

use super::args::RelayArgs;
use super::map;
use super::place::{place, usage};
#[cfg(feature = "kinesis")]
use super::positions::FilePositions;
use super::report::{LOOK_EVERY, PATIENCE, RelayProgress};
use crate::exit::{CliError, FailureKind};
use crate::output;
use crate::signals::EndSignals;
use crate::streams::{SourceParts, StreamPlace};

/// Relays, tells how far it is, and prints what was done.
pub(super) async fn run(args: &RelayArgs) -> anyhow::Result<ExitCode> {
    let mut ends = EndSignals::new()?;
    let relay = open(args)?;
    let mut progress = RelayProgress::new(Arc::clone(&relay.counts), relay.clock);
    let (stop, stopping) = watch::channel(false);
    let mut looks = interval(LOOK_EVERY);
    let mut running = pin!(relay.run(stopping));
    let ended = loop {
        tokio::select! {
            ended = &mut running => break ended,
            () = ends.next() => {
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

fn kind(error: &RelayError) -> FailureKind {
    match error {
        RelayError::Refused { .. } | RelayError::Letter { .. } => FailureKind::BadInput,
        RelayError::Source(_) => FailureKind::Config,
        RelayError::Unreachable(_) => FailureKind::Unreachable,
    }
}

/// The relay that `args` ask for. Connects to nothing.
fn open(args: &RelayArgs) -> Result<StreamRelay, CliError> {
    if args.at_most_once && args.dead_letter.is_none() {
        return Err(usage("--at-most-once", &"what may have been taken needs --dead-letter URL"));
    }
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
