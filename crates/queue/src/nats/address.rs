//! Where a broker is, and what is said when it cannot be worked with.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions, ServerAddr};
use notification::limits;

use super::topology::Failure;
use crate::QueueError;
use crate::broker::link::Fault;

/// An address with credentials. Shown without them.
#[derive(Clone)]
pub(super) struct Address {
    server: ServerAddr,
    credentials: Option<PathBuf>,
}

/// The client asks for a sign of life at every such interval in which nothing arrived, and gives up at the third.
const PING_EVERY: Duration = Duration::from_secs(3);

const _: () = assert!(PING_EVERY.as_secs() * 3 < limits::LINK_HEARTBEAT.as_secs() * 2);

// === impl Address ===

impl Address {
    /// # Errors
    /// When `text` is no address. It is not repeated in the message: it has a password in it.
    pub(super) fn parse(text: &str) -> Result<Self, QueueError> {
        let refuse = |why: &str| {
            Err(QueueError::Refused(format!(
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
        match server.parse() {
            Ok(server) => Ok(Self { server, credentials }),
            Err(_may_repeat_it) => refuse("it cannot be read as a URL"),
        }
    }

    /// For the library.
    pub(super) fn server(&self) -> ServerAddr {
        self.server.clone()
    }

    /// How to connect.
    ///
    /// # Errors
    /// When the file of credentials cannot be read.
    pub(super) async fn options(&self, prefix: &str) -> Result<ConnectOptions, Fault> {
        let options = ConnectOptions::new()
            .name(format!("belfry {prefix}"))
            .connection_timeout(limits::LINK_TIMEOUT)
            .ping_interval(PING_EVERY)
            .ignore_discovered_servers()
            // Lost is lost: whoever made the connection makes the next one, and looks after the stream before.
            .max_reconnects(1)
            // An answer that finds no place is not given; they come in bursts.
            .client_capacity(8 * limits::PUBLISH_TICKETS);
        let Some(path) = &self.credentials else { return Ok(options) };
        let file = path.display();
        options.credentials_file(path).await.map_err(|error| {
            Fault(format!(
                "cannot use the NATS credentials in {file} ({error}): correct the file or the URL"
            ))
        })
    }

    /// What `error` means and what to do about it.
    pub(super) fn explain_connect(&self, error: &ConnectError) -> Fault {
        let kind = error.kind();
        Fault(
            if matches!(
                kind,
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication
            ) {
                format!(
                    "NATS at {self} refuses this user, password, token or file of credentials: correct the URL"
                )
            } else if kind == ConnectErrorKind::Tls {
                format!(
                    "no TLS with NATS at {self} ({error}): does the system trust its certificate?"
                )
            } else {
                format!(
                    "cannot reach NATS at {self} ({error}): is it running, and is the address right?"
                )
            },
        )
    }

    /// What a lost connection means.
    pub(super) fn explain_loss(&self) -> Fault {
        Fault(format!("the connection to NATS at {self} was lost"))
    }

    /// What `error` means and what to do about it; `complaint` is what the server said last.
    pub(super) fn explain(&self, error: &Failure, complaint: Option<&str>) -> Fault {
        if let Some(complaint) = complaint.filter(|text| text.contains("Permissions Violation")) {
            return Fault(format!(
                "NATS at {self} denies a right ({complaint}): let the user publish to $JS.API.>, $JS.ACK.> and the \
                 subjects that begin with the prefix, and subscribe to _INBOX.>"
            ));
        }
        Fault(match error {
            Failure::JetStream(ErrorCode::JETSTREAM_NOT_ENABLED, _) | Failure::NoJetStream => {
                format!(
                    "NATS at {self} runs without JetStream: start it with -js or a jetstream block in its configuration"
                )
            }
            Failure::JetStream(ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT, _) => {
                format!(
                    "NATS at {self} has no JetStream for this account: enable it in the account's configuration"
                )
            }
            Failure::JetStream(_code, text) => format!("NATS at {self} refused something ({text})"),
            Failure::Other(text) => format!("NATS at {self} did not do what it was asked ({text})"),
            Failure::Mismatch(text) => format!(
                "NATS at {self} has a stream or consumer of that name that cannot carry tickets ({text}): delete it, \
                 tickets in it are issued anew; or choose another prefix"
            ),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.server.host(), self.server.port())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_credentials() {
        let address = Address::parse("nats://someone:hidden@host:1234?credentials=/a/b").unwrap();
        assert_eq!(format!("{address} {address:?}"), "host:1234 host:1234");
        assert_eq!(address.credentials, Some(PathBuf::from("/a/b")));
        assert_eq!(Address::parse("tls://host").unwrap().to_string(), "host:4222");
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for text in
            ["", "hidden", "http://hidden@host", "nats://hidden@host:port", "nats://h?hidden=1"]
        {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains("nats://user:password@host:port"), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
