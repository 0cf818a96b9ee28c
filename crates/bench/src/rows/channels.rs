//! `channels`: each channel by itself, to a provider that answers at once.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::job::{BroadcastResult, JobUsage};
use super::{Bench, PATIENCE, floor};
use crate::report::{RowReport, Unit};
use crate::tally::{JournalBooks, Tally};
use crate::trial::{Setup, Trial};
use crate::workload::{number_of, token};

/// A channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BenchChannel {
    Apns,
    Fcm,
    WebPush,
    Smtp,
    Webhook,
}

const LOCAL: &str = "127.0.0.1:0";

pub(super) fn run(bench: &Bench) -> Result<Vec<RowReport>> {
    let title = "Each channel alone: one content each, a provider that answers at once";
    let mut report = bench.report("channels", title, Unit::PerMinute);
    report.configuration = vec![
        ("store".into(), "SQLite, synchronous=FULL".into()),
        ("notifications".into(), "imported, each with a content of its own".into()),
        ("concurrency".into(), "auto".into()),
    ];
    let floor = floor::http2(bench, bench.size.pick(300_000, 3_000_000))?;
    let mail_floor = floor::smtp(bench, bench.size.pick(60_000, 300_000))?;
    for channel in BenchChannel::ALL {
        let mut runs = Vec::new();
        for run in 1..=bench.repetitions {
            bench.say(format!("{}, run {run}", channel.name()));
            runs.push(channel.measure(bench)?);
        }
        let mut point =
            BroadcastResult::to_point(&runs, channel.name().into(), None, Unit::PerMinute);
        point.floor = match channel {
            BenchChannel::Apns | BenchChannel::Fcm | BenchChannel::WebPush => floor.as_ref().ok(),
            BenchChannel::Smtp => mail_floor.as_ref().ok(),
            BenchChannel::Webhook => None,
        }
        .cloned();
        report.points.push(point);
    }
    report.notes.extend(floor.err().into_iter().chain(mail_floor.err()));
    report.notes.push(
        "a Web Push message is encrypted for its browser: a key pair and a key agreement on P-256 each".into(),
    );
    Ok(vec![report])
}

// === impl BenchChannel ===

impl BenchChannel {
    const ALL: [Self; 5] = [Self::Apns, Self::Fcm, Self::WebPush, Self::Smtp, Self::Webhook];

    const fn name(self) -> &'static str {
        match self {
            Self::Apns => "APNs",
            Self::Fcm => "FCM",
            Self::WebPush => "Web Push",
            Self::Smtp => "SMTP",
            Self::Webhook => "webhook",
        }
    }

    /// Notifications of one run: some seconds of work.
    fn count(self, bench: &Bench) -> u64 {
        match self {
            Self::Apns | Self::Fcm => bench.size.pick(500_000, 3_000_000),
            Self::WebPush => bench.size.pick(20_000, 100_000),
            Self::Smtp => bench.size.pick(60_000, 300_000),
            Self::Webhook => bench.size.pick(100_000, 500_000),
        }
    }

    fn simulator_flags(self, count: u64) -> Vec<String> {
        let flags: &[&str] = match self {
            Self::Apns | Self::Webhook => &[],
            Self::Fcm => &["--fcm", LOCAL],
            Self::WebPush => &["--web-push", LOCAL, "--web-push-subscriptions"],
            Self::Smtp => &["--smtp", LOCAL],
        };
        let mut flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        if self == Self::WebPush {
            flags.push(count.to_string());
        }
        flags
    }

    fn measure(self, bench: &Bench) -> Result<BroadcastResult> {
        let (directory, count) = (bench.directory()?, self.count(bench));
        let setup = Setup {
            simulator_flags: self.simulator_flags(count),
            // What Google grants a project by default would be the bound.
            engine_settings: vec![(
                "BELFRY__CHANNELS__ANDROID__MESSAGES_PER_MINUTE".into(),
                "0".into(),
            )]
            .into_iter()
            .filter(|_| self == Self::Fcm)
            .collect(),
            ..Setup::new(bench.binary(), directory.path(), &[])
        };
        let trial = Trial::start(setup)?;
        let before = JobUsage::of(&trial)?;
        let asked_us = u64::try_from(flow::Clock::system().wall().as_micros())?;
        self.submit(&trial, count)?;
        trial.drain(PATIENCE, || Ok(()))?;
        let after = JobUsage::of(&trial)?;
        let tally = self.tally(&trial.simulator().ready.journal, count)?;
        Ok(BroadcastResult::of(&tally, asked_us, count, before, after))
    }

    fn submit(self, trial: &Trial, count: u64) -> Result<()> {
        let ready = &trial.simulator().ready;
        if self == Self::WebPush {
            return trial.submit(ready.subscriptions.iter().map(|subscription| {
                let to = serde_json::Value::from(subscription.to_string());
                format!(r#"{{"channel":"web","to":{to},"content":{{"title":"news"}}}}"#)
            }));
        }
        trial.submit((0..count).map(|number| self.row(number, &ready.webhook)))
    }

    /// The line of an import for the recipient `number`; `hooks` is the address of the webhook provider.
    fn row(self, number: u64, hooks: &str) -> String {
        let to = token(number);
        let (channel, to, content) = match self {
            Self::Apns => ("ios", to, format!(r#"{{"aps":{{"alert":"{number}"}}}}"#)),
            Self::Fcm => ("android", to, format!(r#"{{"notification":{{"title":"{number}"}}}}"#)),
            Self::Smtp => (
                "mail",
                format!("{to}@example.net"),
                format!(r#"{{"subject":"news","text":"{number}"}}"#),
            ),
            Self::Webhook | Self::WebPush => {
                ("hooks", format!("https://{hooks}/{to}"), format!(r#"{{"news":"{number}"}}"#))
            }
        };
        format!(r#"{{"channel":"{channel}","to":"{to}","content":{content}}}"#)
    }

    fn tally(self, journal: &Path, count: u64) -> Result<Tally> {
        let number = |recipient: &str| {
            let name = recipient.rsplit('/').next()?;
            if self == Self::WebPush { name.parse().ok() } else { number_of(name) }
        };
        let books = JournalBooks::read_numbered(journal, count, number);
        Ok(books.with_context(|| self.name().to_owned())?.tally())
    }
}
