//! Recipients: a system, and the name of a target in it.

use crate::Invalid;

/// The systems that there are, with the form of a recipient of each.
const FORMS: &[(&str, &str)] = &[
    ("amqp", "amqp:exchange/key"),
    ("kafka", "kafka:topic"),
    ("kinesis", "kinesis:stream"),
    ("nats", "nats:subject"),
    ("sqs", "sqs:queue"),
];

/// The system and the name of `recipient`.
pub(super) fn parse(recipient: &str) -> Result<(&'static str, &str), Invalid> {
    let (system, name) = recipient.split_once(':').unwrap_or((recipient, ""));
    let known = FORMS.iter().find(|(known, _)| *known == system);
    match known {
        Some((system, _)) if !name.is_empty() => Ok((system, name)),
        Some((_, form)) => Err(Invalid::new(format!("must be {form}"))),
        None => {
            let forms: Vec<&str> = FORMS.iter().map(|(_, form)| *form).collect();
            Err(Invalid::new(format!("must be one of {}", forms.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipient_is_a_system_and_a_name() {
        assert_eq!(parse("nats:a.b"), Ok(("nats", "a.b")));
        assert_eq!(parse("amqp:/queue:1"), Ok(("amqp", "/queue:1")));
        assert_eq!(parse("kafka:").unwrap_err().message, "must be kafka:topic");
        for text in ["", "nats", "http://x", "NATS:a"] {
            assert!(parse(text).unwrap_err().message.starts_with("must be "), "{text}");
        }
    }
}
