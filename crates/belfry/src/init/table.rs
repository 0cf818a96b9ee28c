//! The table of the first channel: that of the default file, with what it takes filled in or marked.

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use channel::webpush::VapidKey;
use clap::ValueEnum;

use crate::config::DEFAULT_FILE;

/// The kind of the first channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FirstChannel {
    /// Does everything but the last byte
    DryRun,
    /// Signed requests to any HTTPS endpoint
    Webhook,
    /// Apple Push Notification service
    Apns,
    /// Firebase Cloud Messaging
    Fcm,
    /// Browsers
    Webpush,
    /// E-mail
    Smtp,
    /// Records of NATS, RabbitMQ, Kafka, SQS and Kinesis
    Stream,
}

/// A setting that the table has, and is no example.
#[derive(Debug)]
struct PutSetting {
    /// `url`, or `nats.url` where it stands in a table within.
    name: &'static str,
    /// In place of the example's.
    value: Option<String>,
    /// True if only the user knows what it is.
    is_to_fill_in: bool,
}

/// Bytes of a webhook's secret, as many as its signature has.
const SECRET_BYTES: usize = 32;

// === impl FirstChannel ===

impl FirstChannel {
    /// As the setting `kind` has it; the channel is named so, too.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DryRun => "dry-run",
            Self::Webhook => "webhook",
            Self::Apns => "apns",
            Self::Fcm => "fcm",
            Self::Webpush => "webpush",
            Self::Smtp => "smtp",
            Self::Stream => "stream",
        }
    }

    /// A recipient for the first message, as the user is shown it.
    pub(super) fn recipient(self) -> &'static str {
        match self {
            Self::DryRun => "anyone",
            Self::Webhook => "https://example.com/hook",
            Self::Apns => "DEVICE_TOKEN",
            Self::Fcm => "REGISTRATION_TOKEN",
            Self::Webpush => "SUBSCRIPTION",
            Self::Smtp => "you@example.com",
            Self::Stream => "nats:SUBJECT",
        }
    }

    /// True if the table has a secret in it.
    pub(super) fn has_secret(self) -> bool {
        matches!(self, Self::Webhook | Self::Webpush)
    }

    /// The settings that the user has to fill in.
    pub(super) fn to_fill_in(self) -> &'static [&'static str] {
        match self {
            Self::DryRun | Self::Webhook => &[],
            Self::Apns => &["key_file", "key_id", "team_id", "topic"],
            Self::Fcm => &["service_account_file"],
            Self::Webpush => &["subject"],
            Self::Smtp => &["relay", "from"],
            Self::Stream => &["nats.url"],
        }
    }

    /// The table, with every setting of the kind, explained. Secrets are made anew with each call.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub(super) fn table(self) -> anyhow::Result<String> {
        let kind = PutSetting { name: "kind", value: None, is_to_fill_in: false };
        let to_fill_in = self.to_fill_in().iter();
        let mut put: Vec<PutSetting> = to_fill_in
            .map(|&name| PutSetting { name, value: None, is_to_fill_in: true })
            .chain([kind])
            .collect();
        if let Some((name, value)) = self.secret()? {
            put.push(PutSetting { name, value: Some(value), is_to_fill_in: false });
        }
        let blocks: Vec<&str> = DEFAULT_FILE.split("\n\n").collect();
        let kind_line = format!("#kind = \"{}\"", self.name());
        let own = blocks.iter().find(|block| block.lines().any(|line| line == kind_line));
        let example = own.and_then(|block| heading(block)).context("the default file has it")?;
        let within = format!("{example}.");
        let tables = blocks.iter().filter_map(|block| {
            let name = heading(block)?;
            let is_own = name == example || name.starts_with(&within);
            let inner = name.strip_prefix(&within).unwrap_or_default();
            is_own.then(|| self.fill(block, (example, inner), &put))
        });
        Ok(tables.collect::<Vec<_>>().join("\n"))
    }

    /// The setting that is a secret of our own making.
    fn secret(self) -> anyhow::Result<Option<(&'static str, String)>> {
        let no_random = || anyhow!("the system has no random numbers");
        match self {
            Self::Webhook => {
                let mut bytes = [0; SECRET_BYTES];
                aws_lc_rs::rand::fill(&mut bytes).map_err(|_| no_random())?;
                let secret = BASE64_STANDARD.encode(bytes);
                Ok(Some(("secrets", format!("[\"whsec_{secret}\"]"))))
            }
            Self::Webpush => {
                let pair = VapidKey::generate().ok_or_else(no_random)?;
                Ok(Some(("key", format!("\"{}\"", pair.private.expose()))))
            }
            Self::DryRun | Self::Apns | Self::Fcm | Self::Smtp | Self::Stream => Ok(None),
        }
    }

    /// `block` of the default file, whose table is `inner` within that of `example`, with its settings that are `put`.
    fn fill(self, block: &str, (example, inner): (&str, &str), put: &[PutSetting]) -> String {
        let full = |name: &str| {
            if inner.is_empty() { name.to_owned() } else { format!("{inner}.{name}") }
        };
        let setting_of = |line: &str| {
            let name = full(line.strip_prefix('#')?.split_once(" = ")?.0);
            put.iter().find(|setting| setting.name == name)
        };
        let is_used = block.lines().any(|line| setting_of(line).is_some());
        let mut text = String::new();
        for line in block.lines() {
            if let Some(PutSetting { value, is_to_fill_in, .. }) = setting_of(line) {
                let (name, usual) =
                    line.trim_start_matches('#').split_once(" = ").unwrap_or_default();
                let value = value.as_deref().unwrap_or(usual);
                let mark = if *is_to_fill_in { "# FILL IN:\n" } else { "" };
                text.extend([mark, name, " = ", value, "\n"]);
            } else if line.starts_with("#[") {
                let line = line.replacen(example, &format!("channels.{}", self.name()), 1);
                let line = if is_used { line.trim_start_matches('#') } else { line.as_str() };
                text.extend([line, "\n"]);
            } else {
                text.extend([line, "\n"]);
            }
        }
        text
    }
}

/// The name of the table that a block of the default file shows and does not set.
fn heading(block: &str) -> Option<&str> {
    let line = block.lines().find(|line| line.starts_with("#["))?;
    Some(line.trim_start_matches(['#', '[']).trim_end_matches(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_toml_and_has_every_setting_that_it_takes() {
        for &kind in FirstChannel::value_variants() {
            let text = kind.table().unwrap();
            let table: toml::Table = text.parse().unwrap();
            let table = table.get("channels").unwrap().get(kind.name()).unwrap();
            assert_eq!(table.get("kind").unwrap().as_str(), Some(kind.name()));
            let mut marks = 0;
            for name in kind.to_fill_in() {
                let value = name.split('.').try_fold(table, |table, step| table.get(step));
                assert!(value.is_some(), "{name} is not in {text}");
                marks += 1;
            }
            assert_eq!(text.matches("# FILL IN:\n").count(), marks, "{text}");
            assert_eq!(kind.name(), kind.to_possible_value().unwrap().get_name());
        }
        assert_ne!(FirstChannel::Webhook.table().unwrap(), FirstChannel::Webhook.table().unwrap());
    }
}
