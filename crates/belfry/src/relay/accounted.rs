//! From the source to the target through an engine in this process, whose store accounts for each message.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use channel::Channel as _;
use channel::stream::{Settings, StreamChannel, StreamSystems};
use feed::{DeadLetters, MessageShape, RecordCarrier, SourceCounts};
use flow::Clock;
use notification::{Account, Guarantee, Name};
use serde::Serialize;
use tokio::time::{Duration, Instant, interval};

use super::args::RelayArgs;
use super::map;
use super::place::{place, usage};
use super::report::{LOOK_EVERY, PATIENCE, RelayLine, push_counts, read};
use crate::config::{Config, StorePlace};
use crate::exit::{CliError, FailureKind};
use crate::serve::{self, Engine, RelayRoute};
use crate::signals::EndSignals;
use crate::streams::PlaceTargets;
use crate::{output, reader};

/// Watches how far a relay is.
#[derive(Debug)]
struct RelayWatch {
    counts: Arc<SourceCounts>,
    /// Account of the store when the relay began.
    before: Account,
    clock: Clock,
    begun: Instant,
    until_empty: Option<Duration>,
    line: RelayLine,
    /// Messages read at the last look, and since when there are no more.
    read: u64,
    silent_since: Instant,
}

/// A relay that has ended.
#[derive(Debug)]
struct EndedRelay {
    code: ExitCode,
    counts: Arc<SourceCounts>,
    before: Account,
    begun: Instant,
}

/// Counts at the end.
#[derive(Debug, Serialize)]
struct AccountedSummary {
    read: u64,
    repeated: u64,
    dead_letters: u64,
    acknowledged: u64,
    seconds: f64,
    /// Of this run, but for what is pending: that is all.
    account: Account,
}

/// File in a store's directory for messages that cannot be relayed.
const DEAD_LETTERS: &str = "dead-letters.ndjson";

/// Relays until it is told to end, or as `args` say, and prints what was done. The exit code is 1 when it was told twice, or
/// something failed.
pub(super) fn run(args: &RelayArgs) -> anyhow::Result<ExitCode> {
    let (config, clock) = (Config::of_store(&args.store())?, Clock::system());
    let route = route(args, &config, clock)?;
    let Some(ended) = serve::runtime()?.block_on(relay(args, &config, route, clock))? else {
        return Ok(ExitCode::SUCCESS);
    };
    // When all that was under way has ended.
    let after = reader::ask(&config.store, async |reads| Ok(reads.totals().await?))?;
    let summary = AccountedSummary::new(&ended, &after, clock);
    output::json_or(args.json, &summary, || summary.to_string())?;
    if ended.code == ExitCode::SUCCESS { summary.verdict(args) } else { Ok(ended.code) }
}

/// Relays until the end; `None` if that came before the beginning.
async fn relay(
    args: &RelayArgs,
    config: &Config,
    route: RelayRoute,
    clock: Clock,
) -> anyhow::Result<Option<EndedRelay>> {
    let (mut ends, counts) = (EndSignals::new()?, Arc::clone(&route.counts));
    let mut engine = tokio::select! {
        started = Engine::start_relay(config, route, clock) => started?,
        () = ends.next() => return Ok(None),
    };
    let mut watch = RelayWatch::new(args, &engine, counts, clock);
    let mut looks = interval(LOOK_EVERY);
    let (failure, looked) = loop {
        tokio::select! {
            () = ends.next() => break (None, Ok(true)),
            failure = engine.failed() => break (Some(failure), Ok(true)),
            _look = looks.tick() => match watch.look(&engine).await {
                Ok(false) => {}
                looked => break (None, looked),
            },
        }
    };
    watch.line.finish();
    let code = serve::end(engine, failure, &mut ends).await;
    looked?;
    let RelayWatch { counts, before, begun, .. } = watch;
    Ok(Some(EndedRelay { code, counts, before, begun }))
}

/// The way that `args` ask for. Connects to nothing.
fn route(args: &RelayArgs, config: &Config, clock: Clock) -> Result<RelayRoute, CliError> {
    let from = place("--from", &args.from)?;
    from.check_source().map_err(|error| usage("--from", &error))?;
    let target = place("--to", &args.to)?;
    let (system, name) = target.recipient().map_err(|error| usage("--to", &error))?;
    let targets = Arc::new(PlaceTargets { place: target, clock });
    let channel =
        StreamChannel::new(&Settings::default(), StreamSystems::from([(system, targets as _)]))
            .map_err(|error| usage("--to", &error))?;
    let to = format!("{system}:{name}");
    channel.destination(&to).map_err(|invalid| usage("--to", &invalid.message))?;
    let map = map::read(args.map.as_deref()).map_err(|error| usage("--map", &error))?;
    let guarantee = if args.at_most_once { Guarantee::AtMostOnce } else { Guarantee::AtLeastOnce };
    let to_name = |text: String| text.parse::<Name>().map_err(|error| usage("--to", &error));
    // Of its system: what waits for a target of another one stays parked until a relay goes there again.
    let channel_name = to_name(format!("relay-{system}"))?;
    Ok(RelayRoute {
        source_name: to_name(source_name(args.from.expose()))?,
        from,
        reader: args.reader.clone(),
        shape: MessageShape::Record(RecordCarrier {
            map: map.into(),
            channel: channel_name.clone(),
            to,
            guarantee,
        }),
        dead_letters: dead_letters(args, config.store.place(), clock)?,
        counts: Arc::default(),
        channel_name,
        channel: Arc::new(channel),
    })
}

/// The name of the source at `url`: with the identifier of a message it says whether the store had that message before, so sources that
/// are not one have two names. Credentials, and parameters that only say how it is read, do not count.
fn source_name(url: &str) -> String {
    let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
    let host = rest.rsplit_once('@').map_or(rest, |(_user, host)| host);
    let counts =
        |pair: &&str| ["region=", "endpoint=", "queue="].iter().any(|name| pair.starts_with(name));
    let mut parameters: Vec<&str> = parameters.split('&').filter(counts).collect();
    parameters.sort_unstable();
    let text = format!("{scheme}://{host}?{}", parameters.join("&"));
    let digest = digest(&SHA256, text.as_bytes());
    let number =
        digest.as_ref().iter().take(4).fold(0, |number, byte| number << 8 | u32::from(*byte));
    format!("relay-{number:08x}")
}

/// The stream that `args` name, or else a file in the store's directory.
fn dead_letters(
    args: &RelayArgs,
    store: StorePlace<'_>,
    clock: Clock,
) -> Result<DeadLetters, CliError> {
    let argument = "--dead-letter";
    match (&args.dead_letter, store) {
        (Some(url), _) => {
            let target = place(argument, url)?.target(clock);
            Ok(DeadLetters::Stream(target.map_err(|error| usage(argument, &error))?.into()))
        }
        (None, StorePlace::Directory(directory)) => {
            Ok(DeadLetters::File(directory.join(DEAD_LETTERS)))
        }
        (None, StorePlace::Server(_)) => {
            let message = "a database has no place for messages that cannot be relayed: name a stream for them";
            Err(usage(argument, &message))
        }
    }
}

// === impl RelayWatch ===

impl RelayWatch {
    fn new(args: &RelayArgs, engine: &Engine, counts: Arc<SourceCounts>, clock: Clock) -> Self {
        let begun = clock.monotonic();
        Self {
            counts,
            before: engine.began_with(),
            clock,
            begun,
            until_empty: args.until_empty(),
            line: RelayLine::new(),
            read: 0,
            silent_since: begun,
        }
    }

    /// Tells how far it is; true when it is at its end.
    ///
    /// # Errors
    /// When the source was not reached from the beginning, or the store cannot be read.
    async fn look(&mut self, engine: &Engine) -> anyhow::Result<bool> {
        let (now, all_read) = (self.clock.monotonic(), read(&self.counts.read));
        let trouble = self.counts.trouble();
        if let Some(trouble) = &trouble
            && all_read == 0
            && now - self.begun >= PATIENCE
        {
            let message =
                format!("nothing was read within {} s: {}", PATIENCE.as_secs(), trouble.reason);
            return Err(CliError::new(FailureKind::Unreachable, message).into());
        }
        if trouble.is_some() || all_read > self.read {
            (self.read, self.silent_since) = (all_read, now);
        }
        let Account { delivered, pending, .. } = engine.account().await?;
        let delivered = delivered - self.before.delivered;
        let [repeated, dead] = [&self.counts.repeated, &self.counts.dead].map(read);
        self.line.tell(delivered, |rate| {
            let mut text = format!("{delivered} delivered, {rate}/s, {pending} pending");
            push_counts(&mut text, ", ", &[(dead, "dead letters"), (repeated, "read again")]);
            text
        });
        let is_silent = |span: Duration| now - self.silent_since >= span;
        Ok(pending == 0 && self.until_empty.is_some_and(is_silent))
    }
}

/// `after` without what ended, or was accepted, before.
fn since(after: &Account, before: &Account) -> Account {
    Account {
        accepted: after.accepted - before.accepted,
        delivered: after.delivered - before.delivered,
        refused: after.refused - before.refused,
        expired: after.expired - before.expired,
        cancelled: after.cancelled - before.cancelled,
        suppressed: after.suppressed - before.suppressed,
        in_doubt: after.in_doubt - before.in_doubt,
        dead: after.dead - before.dead,
        pending: after.pending,
    }
}

// === impl AccountedSummary ===

impl AccountedSummary {
    /// Of `ended`, whose store has the account `after` now.
    fn new(ended: &EndedRelay, after: &Account, clock: Clock) -> Self {
        let SourceCounts { read: all_read, repeated, dead, acknowledged, .. } = &*ended.counts;
        Self {
            read: read(all_read),
            repeated: read(repeated),
            dead_letters: read(dead),
            acknowledged: read(acknowledged),
            seconds: (clock.monotonic() - ended.begun).as_secs_f64(),
            account: since(after, &ended.before),
        }
    }

    /// The exit code: not all that ended was delivered.
    fn verdict(&self, args: &RelayArgs) -> anyhow::Result<ExitCode> {
        let Account { refused, in_doubt, dead, .. } = self.account;
        if refused + in_doubt + dead == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let store = args.store();
        let shown = if Path::new(store.expose()).is_dir() { store.expose() } else { "STORE" };
        let message = format!(
            "{} messages were not put: `belfry log --store {shown}` has the reason of each",
            refused + in_doubt + dead
        );
        Err(CliError::new(FailureKind::BadInput, message).into())
    }
}

impl std::fmt::Display for AccountedSummary {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { account, seconds, .. } = self;
        let Account { accepted, delivered, .. } = account;
        let mut text = format!("{accepted} accepted and {delivered} delivered in {seconds:.1} s");
        let counts = [
            (self.repeated, "read again and not put again"),
            (self.dead_letters, "to the dead letters"),
            (account.refused, "refused"),
            (account.in_doubt, "in doubt"),
            (account.dead, "given up"),
            (account.pending, "pending: the next start goes on with them"),
        ];
        push_counts(&mut text, "; ", &counts);
        formatter.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_one_name_whoever_reads_it_and_however() {
        let name = source_name("sqs://key:secret@orders?region=a&endpoint=http://h:1");
        assert_eq!(
            name,
            source_name("sqs://orders?visibility_seconds=9&endpoint=http://h:1&region=a")
        );
        assert_eq!(name.len(), "relay-01234567".len());
        for other in [
            "sqs://orders?region=b&endpoint=http://h:1",
            "sqs://others?region=a&endpoint=http://h:1",
            "sqs://orders?region=a",
            "kinesis://orders?region=a&endpoint=http://h:1",
        ] {
            assert_ne!(name, source_name(other), "{other}");
        }
    }
}
