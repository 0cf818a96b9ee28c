//! The notification of a message: the message itself, or what is made of it.

use std::sync::Arc;

use bytes::Bytes;
use notification::{Guarantee, Name};
use pipeline::Intake;
use pipeline::ingest::{EventMap, IngestError, InvalidField, SourceEvent};
use serde::Serialize;
use serde_json::value::RawValue;
use stream::StreamMessage;
use stream::record_map::RecordMap;

/// How a message becomes a notification.
#[derive(Debug, Clone)]
pub enum MessageShape {
    /// It is one, as the API takes it.
    Notification,
    /// The map makes one of it.
    Event(Arc<EventMap>),
    /// One carries its record to a target.
    Record(RecordCarrier),
}

/// Makes notifications that carry records to one target of a stream channel. The record is the content, byte for byte, so it must
/// be JSON; its key is the key that order goes by.
#[derive(Debug, Clone)]
pub struct RecordCarrier {
    /// The record of a message.
    pub map: Arc<dyn RecordMap>,
    /// Stream channel.
    pub channel: Name,
    /// Target, as the channel names its recipients: `kafka:orders`.
    pub to: String,
    /// Guarantee of its deliveries.
    pub guarantee: Guarantee,
}

/// A notification that carries a record, as the API takes it.
#[derive(Debug, Serialize)]
struct CarryingNotification<'a> {
    channel: &'a str,
    to: &'a str,
    guarantee: &'static str,
    content: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<RecordOptions<'a>>,
}

#[derive(Debug, Serialize)]
struct RecordOptions<'a> {
    key: &'a str,
}

// === impl MessageShape ===

impl MessageShape {
    /// The JSON of the notification that `message` of `tenant` becomes.
    ///
    /// # Errors
    /// [`IngestError::Invalid`] when there is none; others while there is no room to make one.
    pub(crate) async fn notification(
        &self,
        message: &StreamMessage,
        intake: &Intake,
        tenant: &Name,
    ) -> Result<Bytes, IngestError> {
        let content = || {
            let body = message.body.clone();
            body.ok_or_else(|| InvalidField::new("", "it has no content"))
        };
        match self {
            Self::Notification => Ok(content()?),
            Self::Event(map) => {
                let (id, key, body) = (message.id.clone(), message.key.clone(), content()?);
                intake.map(tenant, map, SourceEvent { id, key, body }).await
            }
            Self::Record(carrier) => {
                let json = carrier.notification(message);
                Ok(json.map_err(|reason| InvalidField::new("", reason))?)
            }
        }
    }
}

// === impl RecordCarrier ===

impl RecordCarrier {
    fn notification(&self, message: &StreamMessage) -> Result<Bytes, String> {
        let record = self.map.record(message)?;
        let content: &RawValue = serde_json::from_slice(&record.body)
            .map_err(|error| format!("it is not JSON, which a store keeps ({error})"))?;
        let key = record.key.as_deref().filter(|key| !key.is_empty()).map(str::from_utf8);
        let key = key.transpose().map_err(|_bytes| "its key is not UTF-8")?;
        let notification = CarryingNotification {
            channel: self.channel.as_str(),
            to: &self.to,
            guarantee: self.guarantee.as_str(),
            content,
            options: key.map(|key| RecordOptions { key }),
        };
        let json = serde_json::to_vec(&notification);
        json.map(Bytes::from).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use stream::StreamReceipt;
    use stream::record_map::Unchanged;

    use super::*;

    fn carried(key: Option<&'static [u8]>, body: Option<&'static [u8]>) -> Result<String, String> {
        let carrier = RecordCarrier {
            map: Arc::new(Unchanged),
            channel: "relay".parse().unwrap(),
            to: "kafka:orders".to_owned(),
            guarantee: Guarantee::default(),
        };
        let (key, body) = (key.map(Bytes::from_static), body.map(Bytes::from_static));
        let message = StreamMessage { id: "7".to_owned(), key, body, receipt: StreamReceipt(1) };
        carrier.notification(&message).map(|json| String::from_utf8(json.to_vec()).unwrap())
    }

    #[test]
    fn a_record_is_carried_byte_for_byte_with_its_key() {
        let beginning =
            r#"{"channel":"relay","to":"kafka:orders","guarantee":"at_least_once","content":"#;
        let body = br#"{"n": 18446744073709551617,  "a":"\u00e9"}"#;
        let expected = format!(
            "{beginning}{},\"options\":{{\"key\":\"k\\\"1\"}}}}",
            str::from_utf8(body).unwrap()
        );
        assert_eq!(carried(Some(b"k\"1"), Some(body)).unwrap(), expected);
        assert_eq!(carried(None, Some(b"[]")).unwrap(), format!("{beginning}[]}}"));
        assert_eq!(carried(Some(b""), Some(b"[]")).unwrap(), format!("{beginning}[]}}"));
    }

    #[test]
    fn a_record_that_no_notification_can_carry_says_why() {
        for (key, body, reason) in [
            (None, Some(&b"1,\"to\":\"kafka:others\""[..]), "not JSON"),
            (None, Some(b"garbage"), "not JSON"),
            (None, Some(b"\"\xff\""), "not JSON"),
            (None, None, "tombstone"),
            (Some(&b"\xff"[..]), Some(b"1"), "its key is not UTF-8"),
        ] {
            let error = carried(key, body).unwrap_err();
            assert!(error.contains(reason), "{body:?}: {error}");
        }
    }
}
