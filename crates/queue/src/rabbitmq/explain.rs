//! Explanations of what RabbitMQ says to a queue of tickets.

use lapin::ErrorKind;
use stream::connect::AmqpAddress;

use crate::broker::error::BrokerError;

/// Replies of the broker, as in AMQP 0-9-1 section 1.2.
const ACCESS_REFUSED: u16 = 403;
const PRECONDITION_FAILED: u16 = 406;

/// Explanation of `error`, with the remedy.
pub(super) fn explain(address: &AmqpAddress, error: &lapin::Error) -> BrokerError {
    let ErrorKind::ProtocolError(reply) = error.kind() else {
        return BrokerError(address.explain(error).to_string());
    };
    let text = reply.get_message().as_str();
    BrokerError(match reply.get_id() {
        ACCESS_REFUSED if !text.contains("Login was refused") => format!(
            "RabbitMQ at {address} denies a right ({text}): let user {:?} configure, write and read the names that \
             begin with the prefix (rabbitmqctl set_permissions)",
            address.user()
        ),
        PRECONDITION_FAILED if text.contains("inequivalent arg") => format!(
            "RabbitMQ at {address} has a queue or exchange of that name with other arguments ({text}): delete it, \
             tickets in it are issued anew; or choose another prefix"
        ),
        PRECONDITION_FAILED => format!("RabbitMQ at {address} took its tickets back ({text})"),
        _other => address.explain(error).to_string(),
    })
}
