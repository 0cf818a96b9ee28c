//! The address of a RabbitMQ server, and explanations of its errors.

use std::fmt;

use lapin::ErrorKind;
use lapin::protocol::AMQPError;
use lapin::uri::AMQPUri;

use super::HEARTBEAT;
use crate::StreamError;

/// An address with credentials. Shown without the password.
#[derive(Clone)]
pub struct AmqpAddress(AMQPUri);

/// Replies of the broker, as in AMQP 0-9-1 section 1.2.
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const CONNECTION_FORCED: u16 = 320;
const NOT_ALLOWED: u16 = 530;

// === impl AmqpAddress ===

impl AmqpAddress {
    /// # Errors
    /// When `text` is no address. It is not repeated in the message: it has a password in it.
    pub fn parse(text: &str) -> Result<Self, StreamError> {
        let refuse = |why: &str| {
            Err(StreamError::Refused(format!(
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
        let heartbeat = HEARTBEAT.as_secs();
        uri.query.heartbeat = Some(u16::try_from(heartbeat).unwrap_or(u16::MAX));
        Ok(Self(uri))
    }

    /// The address in the library's form.
    pub fn uri(&self) -> AMQPUri {
        self.0.clone()
    }

    /// Explanation of `error`, with the remedy.
    pub fn explain(&self, error: &lapin::Error) -> StreamError {
        if let ErrorKind::ProtocolError(error) = error.kind() {
            return self.explain_reply(error);
        }
        StreamError::Unavailable(if let ErrorKind::IOError(error) = error.kind() {
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

    fn explain_reply(&self, error: &AMQPError) -> StreamError {
        let (user, vhost) = (self.user(), &self.0.vhost);
        let text = error.get_message().as_str();
        let refused = match error.get_id() {
            ACCESS_REFUSED if text.contains("Login was refused") => {
                format!(
                    "RabbitMQ at {self} refuses user {user:?} with this password: correct the URL"
                )
            }
            ACCESS_REFUSED => format!(
                "RabbitMQ at {self} denies a right ({text}): let user {user:?} read the queue or write to the exchange \
                 (rabbitmqctl set_permissions)"
            ),
            NOT_ALLOWED => format!(
                "RabbitMQ at {self} has no virtual host {vhost:?} for user {user:?} ({text}): create it \
                 (rabbitmqctl add_vhost, set_permissions) or correct the URL"
            ),
            NOT_FOUND => format!("RabbitMQ at {self} misses something ({text})"),
            CONNECTION_FORCED => {
                return StreamError::Unavailable(format!(
                    "RabbitMQ at {self} is stopping ({text})"
                ));
            }
            _other => {
                return StreamError::Unavailable(format!(
                    "RabbitMQ at {self} refused something ({text})"
                ));
            }
        };
        StreamError::Refused(refused)
    }

    /// Name of the user that logs in.
    pub fn user(&self) -> &str {
        &self.0.authority.userinfo.username
    }
}

impl fmt::Display for AmqpAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.0.authority.host, self.0.authority.port)
    }
}

impl fmt::Debug for AmqpAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let address = AmqpAddress::parse("amqp://someone:hidden@host:1234/there").unwrap();
        assert_eq!(format!("{address} {address:?}"), "host:1234 host:1234");
        assert_eq!(address.uri().vhost, "there");
        assert_eq!(AmqpAddress::parse("amqp://host/").unwrap().uri().vhost, "/");
        assert_eq!(AmqpAddress::parse("amqp://host").unwrap().uri().vhost, "/");
        assert_eq!(AmqpAddress::parse("amqps://host").unwrap().uri().authority.port, 5671);
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
            let error = AmqpAddress::parse(text).unwrap_err().to_string();
            assert!(error.contains("amqp://user:password@host:port/vhost"), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
