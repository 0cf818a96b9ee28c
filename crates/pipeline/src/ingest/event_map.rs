//! Maps: what becomes of an event that has a shape of its own.
//!
//! ```text
//! {"channel": "hooks", "to": "{{ body.url }}", "content": {"total": "{{ body.order.total }}"}}
//! ```
//!
//! A map is JSON of the shape that is wanted. Every string among its values is a template, as in contents: `body` is the event's JSON,
//! `id` its identifier and `key` its key. Below `content/html`, values are escaped for HTML.

use notification::Bytes;

use super::InvalidField;
use super::json::ParseError;
use super::parse;
use super::template::{Template, Variables};

/// A compiled map. What it makes of an event still has to pass the checks of what it is to be.
#[derive(Debug)]
pub struct EventMap {
    template: Template,
    json: Bytes,
}

/// An event, as a source gives it.
#[derive(Debug, Clone)]
pub struct SourceEvent {
    /// Its identifier.
    pub id: String,
    /// Its key, if it has one. Bytes that are no UTF-8 are replaced.
    pub key: Option<Bytes>,
    /// Its content, JSON.
    pub body: Bytes,
}

/// Where mails have HTML.
const HTML: &[&str] = &[
    "content/html",
    "fallback/0/content/html",
    "fallback/1/content/html",
    "fallback/2/content/html",
];

// === impl EventMap ===

impl EventMap {
    /// Compiles a map.
    ///
    /// # Errors
    /// When `json` is no JSON, or one of its strings is no template; with the place of the string.
    pub fn compile(json: &Bytes) -> Result<Self, InvalidField> {
        serde_json::from_slice::<serde::de::IgnoredAny>(json)
            .map_err(|error| InvalidField::new("", format!("is not JSON: {error}")))?;
        // What stands around it would be a part of every result.
        let json = json.slice_ref(json.trim_ascii());
        let template = Template::compile_whole(&json, HTML)?;
        Ok(Self { template, json })
    }

    /// Checks that it makes notifications, as far as that shows without an event: the fields that it has, and lacks.
    ///
    /// # Errors
    /// The first field that no notification has, or that one must have.
    pub fn check_notification(&self) -> Result<(), InvalidField> {
        let json = std::str::from_utf8(&self.json).unwrap_or_default();
        parse::map(json).map_err(|error| match error {
            ParseError::Syntax(message) => InvalidField::new("", message),
            ParseError::Invalid(invalid) => invalid,
        })
    }

    /// The JSON that `event` becomes. It takes milliseconds at worst ([`Intake::map`](super::Intake::map) has it done elsewhere).
    ///
    /// # Errors
    /// When the event is no JSON or too large, or lacks what the map needs.
    pub fn apply(&self, event: &SourceEvent) -> Result<Bytes, InvalidField> {
        let key = event.key.as_deref().map(String::from_utf8_lossy);
        let variables = Variables::of_event(&event.id, key.as_deref(), &event.body)?;
        let rendered = self.template.render(&variables).map_err(|invalid| {
            // There are no variables here in the eyes of a reader: the event is what lacks something.
            let is_about_event = invalid.pointer.starts_with("/variables");
            let pointer = if is_about_event { "".into() } else { invalid.pointer };
            InvalidField::new(pointer, invalid.message)
        })?;
        Ok(rendered.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = r#" {"channel": "mail", "to": "{{ body.to }}", "content": {"id": "{{ id }}/{{ key }}",
        "n": "{{ body.n }}", "text": "<{{ body.x }}>", "html": "<b>{{ body.x }}</b>"}} "#;

    fn map(json: &str) -> Result<EventMap, InvalidField> {
        EventMap::compile(&Bytes::copy_from_slice(json.as_bytes()))
    }

    fn apply(json: &str, body: &str) -> Result<String, String> {
        let key = Some(Bytes::from_static(b"k\xff"));
        let event =
            SourceEvent { id: "7".to_owned(), key, body: Bytes::copy_from_slice(body.as_bytes()) };
        let mapped = map(json).unwrap().apply(&event);
        mapped.map(|json| String::from_utf8(json.to_vec()).unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn an_event_becomes_what_the_map_says_with_its_types_and_escapes() {
        map(MAP).unwrap().check_notification().unwrap();
        let mapped = apply(MAP, r#"{"to": "a@b", "n": [1, null], "x": "\"<&"}"#).unwrap();
        let mapped: serde_json::Value = serde_json::from_str(&mapped).unwrap();
        let expected = serde_json::json!({"channel": "mail", "to": "a@b", "content": {
            "id": "7/k\u{fffd}", "n": [1, null], "text": "<\"<&>", "html": "<b>&quot;&lt;&amp;</b>",
        }});
        assert_eq!(mapped, expected);
    }

    #[test]
    fn an_event_that_does_not_fit_is_refused_with_the_reason() {
        for (body, reason) in [
            ("{", "is not JSON"),
            ("", "is not JSON"),
            ("1,\"id\":2", "is not JSON"),
            ("{\"to\": 1}", "`body.n` is missing: /content/n needs it"),
            ("7", "`body.to` is missing: /to needs it"),
        ] {
            let error = apply(MAP, body).unwrap_err();
            assert!(error.contains(reason), "{body}: {error}");
        }
        let large = format!("\"{}\"", "x".repeat(notification::limits::LINE_BYTES));
        assert!(apply("\"{{ body }}\"", &large).unwrap_err().contains("bytes to be mapped"));
    }

    #[test]
    fn a_map_that_cannot_work_is_refused_when_it_is_compiled() {
        for (json, reason) in [
            ("{", "is not JSON"),
            ("{\"to\": \"{{ body.\"}", "to: is no template"),
            ("{\"to\": \"{{ 9 * 9 }}\"}", "to: "),
        ] {
            let error = map(json).unwrap_err().to_string();
            assert!(error.contains(reason), "{json}: {error}");
        }
        for (json, reason) in [
            ("[]", "object"),
            ("{\"to\": \"x\", \"content\": {}}", "channel"),
            ("{\"channel\": \"x\", \"content\": {}}", "to"),
            ("{\"channel\": \"x\", \"to\": \"x\"}", "content"),
            ("{\"channel\": \"x\", \"to\": \"x\", \"content\": {}, \"colour\": 1}", "colour"),
            (
                "{\"channel\": \"x\", \"to\": \"x\", \"content\": {}, \"variables\": {}}",
                "variables: go with `template`",
            ),
        ] {
            let error = map(json).unwrap().check_notification().unwrap_err().to_string();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }
}
