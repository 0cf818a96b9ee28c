//! The address of a NATS server, and explanations of why it cannot be reached.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions, ServerAddr};

use super::{CONNECT_TIMEOUT, HEARTBEAT};
use crate::StreamError;

/// An address with credentials. Shown without them.
#[derive(Clone)]
pub struct NatsAddress {
    server: ServerAddr,
    /// A token, when there is no password.
    user: Option<String>,
    password: Option<String>,
    credentials: Option<PathBuf>,
}

/// Interval without data after which the client pings the server; it gives up at the third.
const PING_EVERY: Duration = Duration::from_secs(3);

const _: () = assert!(PING_EVERY.as_secs() * 3 < HEARTBEAT.as_secs() * 2);

// === impl NatsAddress ===

impl NatsAddress {
    /// # Errors
    /// When `text` is no address. It is not repeated in the message: it has a password in it.
    pub fn parse(text: &str) -> Result<Self, StreamError> {
        let refuse = |why: &str| {
            Err(StreamError::Refused(format!(
                "the address of NATS is not nats://user:password@host:port ({why})"
            )))
        };
        if !text.starts_with("nats://") && !text.starts_with("tls://") {
            return refuse("it begins with neither nats:// nor tls://");
        }
        let (server, query) = text.split_once('?').unwrap_or((text, ""));
        let mut credentials = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("credentials", path)) => credentials = Some(PathBuf::from(path)),
                _other => return refuse("the only parameter is ?credentials=/path/to/file"),
            }
        }
        let Ok(server) = server.parse::<ServerAddr>() else {
            return refuse("it cannot be read as a URL");
        };
        let decode =
            |text: Option<&str>| text.map_or(Some(None), |text| percent_decode(text).map(Some));
        match (decode(server.username()), decode(server.password())) {
            (Some(user), Some(password)) => Ok(Self { server, user, password, credentials }),
            _other => refuse("the user or the password is not percent-encoded UTF-8"),
        }
    }

    /// The address in the library's form.
    pub fn server(&self) -> ServerAddr {
        self.server.clone()
    }

    /// Options of a connection that is named `belfry NAME`, whose writer holds up to `messages`; with TLS the server must be certified
    /// by an authority of the system or of `ca_file`, PEM. The library does not connect again by itself: the user of the
    /// connection makes the next one, and declares first what it needs.
    ///
    /// # Errors
    /// When the file of credentials cannot be read.
    pub async fn options(
        &self,
        name: &str,
        messages: usize,
        ca_file: Option<&Path>,
    ) -> Result<ConnectOptions, StreamError> {
        let mut options = ConnectOptions::new()
            .name(format!("belfry {name}"))
            .connection_timeout(CONNECT_TIMEOUT)
            .ping_interval(PING_EVERY)
            // Servers take turns by the addresses of the configuration alone.
            .ignore_discovered_servers()
            .max_reconnects(1)
            // An answer that finds no place is not given; they come in bursts.
            .client_capacity(messages);
        if let Some(path) = ca_file {
            options = options.add_root_certificates(path.to_owned());
        }
        let options = match (self.user.clone(), self.password.clone()) {
            (Some(user), Some(password)) => options.user_and_password(user, password),
            (Some(token), None) => options.token(token),
            (None, _) => options,
        };
        let Some(path) = &self.credentials else { return Ok(options) };
        let file = path.display();
        options.credentials_file(path).await.map_err(|error| {
            StreamError::Refused(format!(
                "cannot use the NATS credentials in {file} ({error}): correct the file or the URL"
            ))
        })
    }

    /// The meaning of `error`, and what to do about it.
    pub fn explain_connect(&self, error: &ConnectError) -> StreamError {
        let kind = error.kind();
        if matches!(
            kind,
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication
        ) {
            return StreamError::Refused(format!(
                "NATS at {self} refuses this user, password, token or file of credentials: correct the URL"
            ));
        }
        StreamError::Unavailable(if kind == ConnectErrorKind::Tls {
            format!("no TLS with NATS at {self} ({error}): does the system trust its certificate?")
        } else {
            format!(
                "cannot reach NATS at {self} ({error}): is it running, and is the address right?"
            )
        })
    }

    /// The meaning of a lost connection, for operators.
    pub fn explain_loss(&self) -> StreamError {
        StreamError::Unavailable(format!("the connection to NATS at {self} was lost"))
    }
}

impl fmt::Display for NatsAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.server.host(), self.server.port())
    }
}

impl fmt::Debug for NatsAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// True if an error of the server reports a missing right.
pub fn is_denial(last_error: &str) -> bool {
    last_error.contains("Permissions Violation")
}

/// `text` with every `%41` as the byte that it stands for.
fn percent_decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<2>()?;
        rest = behind;
        let digits = std::str::from_utf8(digits).ok()?;
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_credentials() {
        let address =
            NatsAddress::parse("nats://someone:hidden@host:1234?credentials=/a/b").unwrap();
        assert_eq!(format!("{address} {address:?}"), "host:1234 host:1234");
        assert_eq!(address.credentials, Some(PathBuf::from("/a/b")));
        assert_eq!(address.user.as_deref(), Some("someone"));
        let encoded = NatsAddress::parse("nats://a%40b:%C3%BC%25@host").unwrap();
        assert_eq!(
            (encoded.user.as_deref(), encoded.password.as_deref()),
            (Some("a@b"), Some("ü%"))
        );
        assert_eq!(NatsAddress::parse("tls://host").unwrap().to_string(), "host:4222");
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for text in [
            "",
            "hidden",
            "http://hidden@host",
            "nats://hidden@host:port",
            "nats://h?hidden=1",
            "nats://hidden:%f@h",
        ] {
            let error = NatsAddress::parse(text).unwrap_err().to_string();
            assert!(error.contains("nats://user:password@host:port"), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
