//! The address of a RabbitMQ server, and explanations of its errors.

use std::fmt;

use lapin::ErrorKind;
use lapin::protocol::AMQPError;
use lapin::uri::AMQPUri;

use crate::QueueError;
use crate::broker::error::BrokerError;
use crate::broker::limits::LINK_HEARTBEAT;

/// An address with credentials. Shown without the password.
#[derive(Clone)]
pub(super) struct RabbitMqAddress(AMQPUri);

/// Replies of the broker, as in AMQP 0-9-1 section 1.2.
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
const CONNECTION_FORCED: u16 = 320;
const NOT_ALLOWED: u16 = 530;

// === impl RabbitMqAddress ===

impl RabbitMqAddress {
    /// # Errors
    /// When `text` is no address. It is not repeated in the message: it has a password in it.
    pub(super) fn parse(text: &str) -> Result<Self, QueueError> {
        let refuse = |why: &str| {
            Err(QueueError::Refused(format!(
                "the address of RabbitMQ is not amqp://user:password@host:port/vhost ({why})"
            )))
        };
        if !text.starts_with("amqp://") && !text.starts_with("amqps://") {
            return refuse("it begins with neither amqp:// nor amqps://");
        }
        let mut uri: AMQPUri = match text.parse() {
            Ok(uri) => uri,
            Err(_may_repeat_it) => return refuse("it cannot be read as a URL"),
        };
        if uri.vhost.is_empty() {
            // A slash at the end means nothing to most people, but the virtual host without a name to AMQP.
            "/".clone_into(&mut uri.vhost);
        }
        let heartbeat = LINK_HEARTBEAT.as_secs();
        uri.query.heartbeat = Some(u16::try_from(heartbeat).unwrap_or(u16::MAX));
        Ok(Self(uri))
    }

    /// The address in the library's form.
    pub(super) fn uri(&self) -> AMQPUri {
        self.0.clone()
    }

    /// Explanation of `error`, with the remedy.
    pub(super) fn explain(&self, error: &lapin::Error) -> BrokerError {
        BrokerError(if let ErrorKind::ProtocolError(error) = error.kind() {
            self.explain_reply(error)
        } else if let ErrorKind::IOError(error) = error.kind() {
            format!(
                "cannot reach RabbitMQ at {self} ({error}): is it running, and is the address right?"
            )
        } else if let ErrorKind::MissingHeartbeatError = error.kind() {
            format!(
                "RabbitMQ at {self} gave no sign of life: the network or the broker stands still"
            )
        } else {
            format!("the connection to RabbitMQ at {self} failed ({error})")
        })
    }

    fn explain_reply(&self, error: &AMQPError) -> String {
        let (user, vhost) = (&self.0.authority.userinfo.username, &self.0.vhost);
        let text = error.get_message().as_str();
        match error.get_id() {
            ACCESS_REFUSED if text.contains("Login was refused") => {
                format!(
                    "RabbitMQ at {self} refuses user {user:?} with this password: correct the URL"
                )
            }
            ACCESS_REFUSED => format!(
                "RabbitMQ at {self} denies a right ({text}): let user {user:?} configure, write and read the names that \
                 begin with the prefix (rabbitmqctl set_permissions)"
            ),
            NOT_ALLOWED => format!(
                "RabbitMQ at {self} has no virtual host {vhost:?} for user {user:?} ({text}): create it \
                 (rabbitmqctl add_vhost, set_permissions) or correct the URL"
            ),
            PRECONDITION_FAILED if text.contains("inequivalent arg") => format!(
                "RabbitMQ at {self} has a queue or exchange of that name with other arguments ({text}): delete it, \
                 tickets in it are issued anew; or choose another prefix"
            ),
            PRECONDITION_FAILED => format!("RabbitMQ at {self} took its tickets back ({text})"),
            NOT_FOUND => format!("RabbitMQ at {self} misses something ({text})"),
            CONNECTION_FORCED => format!("RabbitMQ at {self} is stopping ({text})"),
            _other => format!("RabbitMQ at {self} refused something ({text})"),
        }
    }
}

impl fmt::Display for RabbitMqAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.0.authority.host, self.0.authority.port)
    }
}

impl fmt::Debug for RabbitMqAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let address = RabbitMqAddress::parse("amqp://someone:hidden@host:1234/there").unwrap();
        assert_eq!(format!("{address} {address:?}"), "host:1234 host:1234");
        assert_eq!(address.uri().vhost, "there");
        assert_eq!(RabbitMqAddress::parse("amqp://host/").unwrap().uri().vhost, "/");
        assert_eq!(RabbitMqAddress::parse("amqp://host").unwrap().uri().vhost, "/");
        assert_eq!(RabbitMqAddress::parse("amqps://host").unwrap().uri().authority.port, 5671);
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for text in [
            "",
            "hidden",
            "http://a:hidden@host",
            "amqp://a:hidden@host:port",
            "amqp://a:hidden@h?heartbeat=x",
        ] {
            let error = RabbitMqAddress::parse(text).unwrap_err().to_string();
            assert!(error.contains("amqp://user:password@host:port/vhost"), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
