//! `[[sources]]`: streams of other systems that notifications are read from.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use channel::Secret;
use feed::{DeadLetters, MessageShape};
use flow::Clock;
use notification::Name;
use pipeline::ingest::EventMap;
use serde::{Deserialize, Deserializer, de};
use stream::{Source, StreamError};
use toml::Table;

use super::places::add_password;
use super::problem::Mistake;
use super::server_url::ServerUrl;
use crate::streams::{SourceParts, StreamPlace, read_map};

/// `[[sources]]`: one stream that notifications are read from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceConfig {
    /// Says in logs and metrics which source it is, and is a part of the idempotency keys of its messages. Required, unique.
    pub(crate) name: Name,
    /// Its place. Required.
    #[serde(deserialize_with = "read_url")]
    url: ServerUrl,
    /// Whose notifications its messages are. Default `default`.
    tenant: Option<Name>,
    /// The password of the user in `url`. Not together with `password_file`.
    password: Option<Secret>,
    /// File with the password of the user in `url`.
    password_file: Option<PathBuf>,
    /// More root certificates to trust, PEM, for this source only.
    ca_file: Option<PathBuf>,
    /// The notification that a message becomes, with templates. Not together with `map_file`.
    map: Option<Table>,
    /// File with it as JSON.
    map_file: Option<PathBuf>,
    /// The name of a stream in the same system for messages that are no notifications. One of this, `dead_letter_path` and
    /// `drop_bad_messages`.
    dead_letters: Option<String>,
    /// A file for them.
    dead_letter_path: Option<PathBuf>,
    /// True to have them counted and dropped.
    #[serde(default)]
    drop_bad_messages: bool,
}

/// A source with all that its reader needs.
#[derive(Debug)]
pub(crate) struct OpenedSource {
    pub(crate) source: Box<dyn Source>,
    pub(crate) shape: MessageShape,
    pub(crate) dead_letters: DeadLetters,
}

fn read_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ServerUrl, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

// === impl SourceConfig ===

impl SourceConfig {
    /// The tenant of its notifications.
    pub(crate) fn tenant(&self, usual: &Name) -> Name {
        self.tenant.as_ref().unwrap_or(usual).clone()
    }

    /// The names of readers of it in its system: all engines share the messages.
    pub(crate) fn reader(&self) -> String {
        format!("belfry-{}", self.name)
    }

    /// Opens it. Reads the file of its map; connects with the first fetch.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn open(&self, parts: SourceParts) -> Result<OpenedSource, String> {
        let (place, clock) = (self.place().map_err(|error| error.to_string())?, parts.clock);
        let map = self.read_map().map_err(|Mistake { message, .. }| message)?;
        let opened = |error: StreamError| error.to_string();
        Ok(OpenedSource {
            source: place.source(parts).map_err(opened)?,
            shape: map.map_or(MessageShape::Notification, |map| MessageShape::Event(Arc::new(map))),
            dead_letters: self.dead_letters(&place, clock).map_err(opened)?,
        })
    }

    /// Puts the password into the URL.
    pub(super) fn resolve(&mut self, path: &str, problems: &mut Vec<Mistake>) {
        let mut url = Some(self.url.clone());
        let given = (self.password.as_ref(), self.password_file.as_deref());
        add_password(path, &mut url, given, problems);
        self.url = url.unwrap_or_else(|| self.url.clone());
    }

    /// Everything that is wrong with `sources`. Reads files; touches no network.
    pub(super) fn check_all(sources: &[Self]) -> Vec<Mistake> {
        let (mut problems, mut names) = (Vec::new(), BTreeSet::new());
        for (index, source) in sources.iter().enumerate() {
            let mut problem = |key: &str, message: String| {
                problems.push(Mistake::new(format!("sources[{index}].{key}"), message));
            };
            if !names.insert(&source.name) {
                problem("name", format!("another source is named {:?} already", source.name));
            }
            for Mistake { path, message } in source.check() {
                problem(&path, message);
            }
        }
        problems
    }

    fn check(&self) -> Vec<Mistake> {
        let mut problems = Vec::new();
        match self.place().and_then(|place| place.check_source().map(|()| place)) {
            Err(error) => problems.push(Mistake::new("url", error.to_string())),
            Ok(place) => {
                // Built, and forgotten: a name that cannot be one is refused by its system's own rule.
                if let Err(error) = self.dead_letters(&place, Clock::system()) {
                    problems.push(Mistake::new("dead_letters", error.to_string()));
                }
            }
        }
        let destinations =
            [self.dead_letters.is_some(), self.dead_letter_path.is_some(), self.drop_bad_messages];
        if destinations.iter().filter(|is_set| **is_set).count() != 1 {
            let message = "where messages go that are no notifications: set either this, `dead_letter_path`, or \
                           `drop_bad_messages = true`";
            problems.push(Mistake::new("dead_letters", message));
        }
        if let Some(file) = &self.ca_file
            && let Err(error) = std::fs::read(file)
        {
            let message = format!("{}: cannot be read: {error}", file.display());
            problems.push(Mistake::new("ca_file", message));
        }
        problems.extend(self.read_map().err());
        problems
    }

    fn place(&self) -> Result<StreamPlace, StreamError> {
        StreamPlace::parse(&self.url, self.ca_file.as_deref())
    }

    fn dead_letters(&self, place: &StreamPlace, clock: Clock) -> Result<DeadLetters, StreamError> {
        Ok(match (&self.dead_letters, &self.dead_letter_path) {
            (Some(name), _) => DeadLetters::Stream(place.beside(name).target(clock)?.into()),
            (None, Some(file)) => DeadLetters::File(file.clone()),
            (None, None) => DeadLetters::Dropped,
        })
    }

    /// The map, if there is one, compiled.
    fn read_map(&self) -> Result<Option<EventMap>, Mistake> {
        let (key, map) = match (&self.map, &self.map_file) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(Mistake::new("map_file", "not together with `map`: leave one out"));
            }
            (Some(map), None) => ("map", compile(map)),
            (None, Some(file)) => ("map_file", read_map(file)),
        };
        let map = map.map_err(|message| Mistake::new(key, message))?;
        map.check_notification().map_err(|invalid| Mistake::new(key, invalid.to_string()))?;
        Ok(Some(map))
    }
}

fn compile(map: &Table) -> Result<EventMap, String> {
    let json = serde_json::to_vec(map).map_err(|error| error.to_string())?;
    EventMap::compile(&json.into()).map_err(|invalid| invalid.to_string())
}

#[cfg(test)]
mod tests {
    use crate::config::load::ConfigSource;

    /// The complaints about a source with these settings.
    fn complaints(settings: &str) -> Vec<String> {
        let text = format!("[[sources]]\nname = \"orders\"\n{settings}");
        let read = ConfigSource { text, ..ConfigSource::default() }.read();
        let problems = read.err().unwrap_or_default();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_source_that_can_work_is_taken() {
        for settings in [
            "url = \"nats://host/orders\"\ndead_letters = \"orders.dead\"",
            "url = \"amqp://me@host/v?queue=orders\"\npassword = \"hidden\"\ndrop_bad_messages = true\ntenant = \"shop\"",
            "url = \"nats://host/orders\"\ndead_letter_path = \"/var/dead.ndjson\"\n\
             map = { channel = \"a\", to = \"{{ body.to }}\", content = { n = \"{{ body.n }}\" } }",
        ] {
            assert_eq!(complaints(settings), [""; 0], "{settings}");
        }
    }

    #[test]
    fn what_cannot_work_is_named_without_a_secret() {
        let nats = "url = \"nats://host/orders\"\n";
        let check = |settings: &str, expect: &str| {
            let complaints = complaints(settings).join("\n");
            assert!(complaints.contains(expect), "{settings}: {complaints}");
            assert!(!complaints.contains("canary"), "{complaints}");
        };
        check("drop_bad_messages = true", "sources[0]: missing field `url`");
        check("url = \"canary\"\ndrop_bad_messages = true", "sources[0].url: must be a URL");
        check(
            "url = \"postgres://me:canary@host/x\"\ndrop_bad_messages = true",
            "sources[0].url: there is no stream for postgres://",
        );
        check(
            "url = \"nats://me:canary@host\"\ndrop_bad_messages = true",
            "sources[0].url: it names no subject",
        );
        check(
            "url = \"nats://host/x\"\npassword = \"canary\"\ndrop_bad_messages = true",
            "sources[0].password: the URL must name a user",
        );
        check(nats, "sources[0].dead_letters: where messages go");
        check(
            &format!("{nats}dead_letters = \"a\"\ndrop_bad_messages = true"),
            "sources[0].dead_letters: where messages go",
        );
        check(
            &format!("{nats}dead_letters = \"a b\""),
            "sources[0].dead_letters: \"a b\" is not a subject",
        );
        let nats = format!("{nats}drop_bad_messages = true\n");
        check(&format!("{nats}map = {{ to = \"x\" }}"), "sources[0].map: channel: is missing");
        check(&format!("{nats}map = {{ to = \"{{{{ 9 * 9 }}}}\" }}"), "sources[0].map: to: ");
        check(&format!("{nats}map_file = \"/none.json\""), "sources[0].map_file: cannot read");
        check(
            &format!("{nats}map_file = \"a\"\nmap = {{}}"),
            "sources[0].map_file: not together with `map`",
        );
        check(
            &format!("{nats}[[sources]]\nname = \"orders\"\n{nats}"),
            "sources[1].name: another source is named",
        );
    }
}
