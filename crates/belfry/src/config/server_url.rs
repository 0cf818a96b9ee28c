//! Addresses of servers. They may hold a password, so they show without it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use crate::client::percent_encoded;

/// Address of a database or a broker, `scheme://user:password@host/name`, or of several brokers of one cluster, separated by
/// commas. Its `Debug` and `Display` forms hide who logs in, and everything after the path.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// At least one; all of one scheme.
    servers: Vec<ServerAddress>,
}

#[derive(Clone, PartialEq, Eq)]
struct ServerAddress {
    text: String,
    /// Where the scheme ends, before `://`.
    scheme_end: usize,
    /// Where host and port begin, after `@` if there is one.
    host_start: usize,
}

/// The brokers that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokerKind {
    RabbitMq,
    Nats,
    Kafka,
    Sqs,
}

/// The stores that have a URL.
const STORE_SCHEMES: [&str; 2] = ["postgres", "postgresql"];

/// Reads the URL of a store.
pub(super) fn store<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ServerUrl>, D::Error> {
    let url = read(deserializer)?;
    match url.scheme() {
        scheme if STORE_SCHEMES.contains(&scheme) => Ok(Some(url)),
        "sqlite" | "file" => Err(de::Error::custom(
            "SQLite has no URL: leave it out and set `directory`, or begin it with postgres://",
        )),
        scheme => Err(de::Error::custom(format!(
            "there is no store for {scheme}:// URLs: begin it with postgres://, or leave it out and have SQLite in \
             `directory`"
        ))),
    }
}

/// Reads the URL of a broker.
pub(super) fn queue<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ServerUrl>, D::Error> {
    let url = read(deserializer)?;
    if url.broker().is_some() {
        return Ok(Some(url));
    }
    let scheme = url.scheme();
    Err(de::Error::custom(format!(
        "there is no broker for {scheme}:// URLs: begin it with amqp:// or amqps:// (RabbitMQ), nats:// or tls:// (NATS), \
         kafka:// (Kafka), sqs:// (Amazon SQS)"
    )))
}

fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ServerUrl, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

// === impl ServerUrl ===

impl ServerUrl {
    /// All of it, for the one who connects.
    pub(crate) fn expose(&self) -> String {
        self.join(|server| server.text.clone())
    }

    /// The scheme: the part before `://`.
    pub(crate) fn scheme(&self) -> &str {
        self.servers.first().map(ServerAddress::scheme).unwrap_or_default()
    }

    /// The broker that is at such a URL; `None` for a scheme that none has.
    pub(crate) fn broker(&self) -> Option<BrokerKind> {
        match self.scheme() {
            "amqp" | "amqps" => Some(BrokerKind::RabbitMq),
            "nats" | "tls" => Some(BrokerKind::Nats),
            "kafka" => Some(BrokerKind::Kafka),
            "sqs" => Some(BrokerKind::Sqs),
            _ => None,
        }
    }

    /// This URL with a password for its user.
    ///
    /// # Errors
    /// When it names no user, or has a password already.
    pub(super) fn with_password(&self, password: &str) -> Result<Self, String> {
        let servers = self.servers.iter().map(|server| server.with_password(password));
        Ok(Self { servers: servers.collect::<Result<_, _>>()? })
    }

    fn join(&self, show: impl Fn(&ServerAddress) -> String) -> String {
        self.servers.iter().map(show).collect::<Vec<_>>().join(",")
    }
}

impl FromStr for ServerUrl {
    type Err = &'static str;

    /// Never says what stands in `text`: part of it may be a password.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A comma between hosts is a part of one URL.
        let is_list = text.matches("://").count() > 1;
        let parts = if is_list { text.split(',').collect() } else { vec![text] };
        let servers =
            parts.into_iter().map(str::parse).collect::<Result<Vec<ServerAddress>, _>>()?;
        let mut schemes = servers.iter().map(ServerAddress::scheme);
        let first = schemes.next();
        if schemes.any(|scheme| Some(scheme) != first) {
            return Err("all servers must have the same scheme");
        }
        Ok(Self { servers })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.join(ServerAddress::shown))
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ServerUrl({self})")
    }
}

// === impl ServerAddress ===

impl ServerAddress {
    fn scheme(&self) -> &str {
        self.text.get(..self.scheme_end).unwrap_or_default()
    }

    /// Without who logs in, and without options, which may hold a password.
    fn shown(&self) -> String {
        let rest = self.text.get(self.host_start..).unwrap_or_default();
        let shown = rest.split(['?', '#']).next().unwrap_or_default();
        format!("{}://{shown}", self.scheme())
    }

    fn with_password(&self, password: &str) -> Result<Self, String> {
        let user = self.user_info().ok_or("the URL must name a user: scheme://USER@host")?;
        if user.contains(':') {
            return Err("the URL has a password already: leave one of them out".to_owned());
        }
        // One back from the host: in front of the `@`, which is there as a user is named.
        let (before, after) = self.text.split_at(self.host_start.saturating_sub(1));
        // Only unreserved characters stay as they are: another one could end the password.
        Ok(format!("{before}:{}{after}", percent_encoded(password)).parse()?)
    }

    /// User and password: the part before `@`.
    fn user_info(&self) -> Option<&str> {
        self.text.get(self.scheme_end + "://".len()..self.host_start)?.strip_suffix('@')
    }
}

impl FromStr for ServerAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) =
            text.split_once("://").ok_or("must be a URL: scheme://user@host/name")?;
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if scheme.is_empty() || !scheme.bytes().all(is_plain) {
            return Err("must begin with a scheme in lower-case letters: scheme://user@host/name");
        }
        if text.bytes().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
            return Err("must not have spaces or control characters: write them as %20");
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // What is not clearly a password could be shown as a host.
        if path.contains('@') {
            return Err(
                "has an @ after the host: in a user or password write / ? # @ , as %2F %3F %23 %40 %2C",
            );
        }
        // The last one, so that no part of a password is shown as the host.
        let user_end = authority.rfind('@').map_or(0, |at| at + 1);
        let host_start = scheme.len() + "://".len() + user_end;
        Ok(Self { text: text.to_owned(), scheme_end: scheme.len(), host_start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_shows_without_its_secrets() {
        let check = |text: &str, expect: &str| {
            let url: ServerUrl = text.parse().unwrap();
            assert_eq!((url.to_string().as_str(), url.expose().as_str()), (expect, text));
            assert!(!format!("{url:?}").contains("canary"), "{url:?}");
        };
        check("postgres://me:canary@db:5432/belfry", "postgres://db:5432/belfry");
        check("postgres://me:canary@a,b/belfry?sslmode=require", "postgres://a,b/belfry");
        check("postgres://db/belfry?user=me&password=canary", "postgres://db/belfry");
        check("postgres://%2Fvar%2Frun/belfry", "postgres://%2Fvar%2Frun/belfry");
        check("postgres:///belfry?host=/run", "postgres:///belfry");
        check("amqps://me:canary@mq/%2F", "amqps://mq/%2F");
        check("nats://canary@n1:4222", "nats://n1:4222");
        check("amqp://me:ca@nary@mq", "amqp://mq");
        check("nats://n1#canary", "nats://n1");
        check("sqs://me:canary@eu-central-1?endpoint=http://sqs", "sqs://eu-central-1");
        check("nats://me:canary@n1:1,nats://canary@n2", "nats://n1:1,nats://n2");
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused_without_being_shown() {
        for text in [
            "canary",
            "://canary",
            "Postgres://me:canary@db",
            "postgres://me:can/ary@db",
            "postgres://me:can?ary@db",
            "postgres://me:can#ary@db",
            "postgres://me:can ary@db",
            "postgres://db/x?password=can@ary",
            "amqp://me:canary@a,amqps://me:canary@b",
            "amqp://me:canary@a,me:canary@b://",
        ] {
            let error = text.parse::<ServerUrl>().unwrap_err();
            assert!(!error.contains("canary") && !error.contains("ary@"), "{text}: {error}");
        }
    }

    #[test]
    fn a_broker_is_known_by_its_scheme_and_no_other_is_taken_for_one() {
        let broker = |text: &str| text.parse::<ServerUrl>().unwrap().broker();
        for (text, expect) in [
            ("amqp://a", Some(BrokerKind::RabbitMq)),
            ("amqps://a", Some(BrokerKind::RabbitMq)),
            ("nats://a", Some(BrokerKind::Nats)),
            ("tls://a", Some(BrokerKind::Nats)),
            ("sqs://eu-central-1?endpoint=http://a", Some(BrokerKind::Sqs)),
            ("kafka://a,b:9", Some(BrokerKind::Kafka)),
            ("amqpx://a", None),
            ("postgres://a", None),
        ] {
            assert_eq!(broker(text), expect, "{text}");
        }
    }

    #[test]
    fn a_password_is_put_in_whatever_it_is_made_of() {
        let add = |text: &str, password: &str| {
            text.parse::<ServerUrl>().unwrap().with_password(password).map(|url| url.expose())
        };
        assert_eq!(
            add("postgres://me@db/x?a=b", "p@s/s é%").as_deref(),
            Ok("postgres://me:p%40s%2Fs%20%C3%A9%25@db/x?a=b")
        );
        assert!(add("postgres://db/x", "p").unwrap_err().contains("USER@"));
        assert!(add("postgres://me:old@db/x", "p").unwrap_err().contains("already"));
    }
}
