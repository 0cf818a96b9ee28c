//! Records by a map in a file.

use std::path::Path;

use bytes::Bytes;
use pipeline::ingest::{EventMap, SourceEvent};
use serde::Deserialize;
use serde_json::value::RawValue;
use stream::record_map::{RecordMap, Unchanged};
use stream::{Record, StreamMessage};

use crate::streams::read_map;

/// A map in a file.
#[derive(Debug)]
struct FileMap(EventMap);

/// A message in the shape of the map.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MappedRecord<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
    /// Empty is none.
    key: Option<String>,
}

/// The map in `file`, or none.
///
/// # Errors
/// When it cannot be read, or is no map.
pub(super) fn read(file: Option<&Path>) -> Result<Box<dyn RecordMap>, String> {
    Ok(match file {
        Some(file) => Box::new(FileMap(read_map(file)?)),
        None => Box::new(Unchanged),
    })
}

impl RecordMap for FileMap {
    fn record(&self, message: &StreamMessage) -> Result<Record, String> {
        let plain = Unchanged.record(message)?;
        let event =
            SourceEvent { id: message.id.clone(), key: message.key.clone(), body: plain.body };
        let json = self.0.apply(&event).map_err(|invalid| invalid.to_string())?;
        let mapped: MappedRecord<'_> = serde_json::from_slice(&json)
            .map_err(|error| format!("the map makes no record of it ({error})"))?;
        let body = json.slice_ref(mapped.content.get().as_bytes());
        let key = match mapped.key {
            Some(key) => Some(Bytes::from(key)).filter(|key| !key.is_empty()),
            None => plain.key,
        };
        Ok(Record { key, body, id: plain.id })
    }
}

#[cfg(test)]
mod tests {
    use stream::StreamReceipt;

    use super::*;

    fn record(map: &str, body: Option<&'static str>) -> Result<Record, String> {
        let map = FileMap(EventMap::compile(&Bytes::copy_from_slice(map.as_bytes())).unwrap());
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let (key, body) = (Some(bytes("k")), body.map(bytes));
        map.record(&StreamMessage { id: "7".to_owned(), key, body, receipt: StreamReceipt(1) })
    }

    #[test]
    fn a_record_has_the_content_and_the_key_of_the_map() {
        let map = r#"{"content": {"n": "{{ body.n }}", "of": "{{ id }}"}, "key": "{{ body.to }}"}"#;
        let made = record(map, Some(r#"{"n": "x", "to": "me"}"#)).unwrap();
        assert_eq!(made.body, r#"{"n": "x", "of": "7"}"#);
        assert_eq!(made.key.as_deref(), Some(&b"me"[..]));
        let made = record(r#"{"content": 1}"#, Some("{}")).unwrap();
        assert_eq!((made.body.as_ref(), made.key.as_deref()), (&b"1"[..], Some(&b"k"[..])));
    }

    #[test]
    fn what_is_no_record_says_why() {
        for (map, body, word) in [
            (r#"{"key": "k"}"#, Some("{}"), "content"),
            (r#"{"content": 1, "to": "x"}"#, Some("{}"), "to"),
            (r#"{"content": "{{ body.n }}"}"#, Some("no json"), "JSON"),
            (r#"{"content": 1}"#, None, "tombstone"),
        ] {
            let error = record(map, body).unwrap_err();
            assert!(error.contains(word), "{map}: {error}");
        }
    }
}
