//! Contents as templates: compiled once, rendered for each recipient, and complete before anything is stored.
//!
//! ```text
//! {"aps": {"alert": "Dear {{ name }}", "badge": "{{ count }}"}}     the content
//!  ^^^^^^^^^^^^^^^^  ^^^^^^^^^^^^^^^^           ^^^^^^^^^^^^^
//!  copied            a text, escaped for JSON   one expression: keeps its type
//! ```
//!
//! Every string among the values is a template by itself; the rest of the JSON is copied byte for byte. The result is therefore
//! valid JSON whatever the variables hold, and authors write no escapes.

mod compare;
mod engine;
mod named;
mod nest;
mod strings;
#[cfg(test)]
mod tests;
mod variables;
mod vet;
mod work;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use minijinja::value::Value;
use minijinja::{Environment, ErrorKind};
use notification::limits::{OPTIONS_BYTES, PAYLOAD_BYTES};
use notification::{Bytes, Content};

use super::InvalidField;
use crate::ingest::limits::{TEMPLATE_BYTES, TEMPLATE_STEPS, TEMPLATE_STRINGS, TEMPLATE_WORK};
use engine::LimitedWriter;
pub use named::{NamedTemplate, TemplateSource, Templates};
pub(super) use variables::Variables;

/// A compiled content. Its results still have to pass the channel's check.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    /// Steps of the engine that each of its strings may take.
    steps: u64,
    /// True if one of its steps may look at all of the variables.
    compares: bool,
    payload: Pattern,
    options: Pattern,
}

/// A JSON text with strings to be rendered.
#[derive(Debug)]
struct Pattern {
    /// `/content` or `/options`.
    pointer: &'static str,
    json: Bytes,
    slots: Vec<TemplatedString>,
    /// True if one of the strings compares values.
    compares: bool,
    /// Bytes that it may have when rendered.
    bytes_max: usize,
}

/// A string that is rendered.
#[derive(Debug)]
struct TemplatedString {
    at: Range<usize>,
    /// A JSON pointer, relative to the pattern's.
    pointer: String,
    /// The name of its template in the environment.
    name: String,
    kind: TemplateKind,
}

/// The way in which a rendered string becomes JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateKind {
    /// A string of the JSON text.
    Text,
    /// A string of the JSON text; values are escaped for HTML within it.
    Html,
    /// The JSON of a single value.
    Json,
}

/// Reason for which a string cannot be rendered.
enum TemplateReason {
    /// The variables lack the one of this name.
    Missing(String),
    /// Another reason, in words.
    Other(String),
}

// === impl Template ===

impl Template {
    /// Compiles a content. Strings below the top-level keys `html` are HTML.
    pub(super) fn compile(content: &Content, html: &[&str]) -> Result<Self, InvalidField> {
        let (payload, options) = (&content.payload, &content.options);
        Self::compile_parts(("/content", payload), ("/options", options), html)
    }

    /// Compiles a whole request, or whatever else is one valid JSON text. Strings below the keys `html`, paths from the top, are HTML.
    pub(super) fn compile_whole(json: &Bytes, html: &[&str]) -> Result<Self, InvalidField> {
        Self::compile_parts(("", json), ("", &Bytes::new()), html)
    }

    fn compile_parts(
        payload: (&'static str, &Bytes),
        options: (&'static str, &Bytes),
        html: &[&str],
    ) -> Result<Self, InvalidField> {
        let bytes = payload.1.len() + options.1.len();
        if bytes > TEMPLATE_BYTES {
            let message =
                format!("a template must have at most {TEMPLATE_BYTES} bytes, has {bytes}");
            return Err(InvalidField::new(payload.0, message));
        }
        let mut environment = engine::environment();
        let pointer = payload.0;
        let payload = Pattern::compile(payload, html, PAYLOAD_BYTES, &mut environment)?;
        let options = Pattern::compile(options, &[], OPTIONS_BYTES, &mut environment)?;
        let strings = payload.slots.len() + options.slots.len();
        if strings > TEMPLATE_STRINGS {
            let message = format!("must have at most {TEMPLATE_STRINGS} strings with tags");
            return Err(InvalidField::new(pointer, message));
        }
        let steps = TEMPLATE_STEPS / strings.max(1) as u64;
        // An equal share for each string: what one of them takes is never another one's lack.
        environment.set_fuel(Some(steps));
        let compares = payload.compares || options.compares;
        Ok(Self { environment, steps, compares, payload, options })
    }

    /// True if the template renders the same for all recipients.
    pub(super) fn is_constant(&self) -> bool {
        self.payload.slots.is_empty() && self.options.slots.is_empty()
    }

    /// The variables that it uses, as paths such as `user.name`.
    fn variables(&self) -> BTreeSet<String> {
        let slots = self.payload.slots.iter().chain(&self.options.slots);
        let templates = slots.filter_map(|slot| self.environment.get_template(&slot.name).ok());
        templates.flat_map(|template| engine::used(&template).collect::<Vec<_>>()).collect()
    }

    /// The content as it was written.
    pub(super) fn source(&self) -> Content {
        Content {
            payload: self.payload.json.clone(),
            options: self.options.json.clone(),
            fallback: None,
        }
    }

    /// Renders it. A fault names the string that could not be rendered.
    pub(super) fn render(&self, variables: &Variables) -> Result<Content, InvalidField> {
        let environment = self.environment_for(variables.weight);
        Ok(Content {
            payload: self.payload.render(&environment, &variables.value)?,
            options: self.options.render(&environment, &variables.value)?,
            fallback: None,
        })
    }

    /// The environment for variables of this weight. A step that compares may look at all of the variables: where there are many,
    /// a template with comparing steps has fewer.
    fn environment_for(&self, weight: u64) -> Cow<'_, Environment<'static>> {
        let share = TEMPLATE_WORK / TEMPLATE_STEPS;
        if !self.compares || weight <= share {
            return Cow::Borrowed(&self.environment);
        }
        // The steps are a setting of the environment, which other renders share.
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(self.steps * share / weight));
        Cow::Owned(environment)
    }
}

// === impl Pattern ===

impl Pattern {
    fn compile(
        (pointer, json): (&'static str, &Bytes),
        html: &[&str],
        bytes_max: usize,
        environment: &mut Environment<'static>,
    ) -> Result<Self, InvalidField> {
        // It was read as JSON before, so it is UTF-8.
        let text = std::str::from_utf8(json).unwrap_or_default();
        let template = |json: &str| {
            // A brace may be written as an escape.
            let text: String =
                json.contains(['{', '\\']).then(|| serde_json::from_str(json).ok())??;
            ["{{", "{%", "{#"].iter().any(|open| text.contains(open)).then_some(text)
        };
        let (mut slots, mut compares) = (Vec::new(), false);
        for found in strings::values(text, TEMPLATE_STRINGS, template) {
            let template = found.made;
            let refuse =
                |message: String| InvalidField::new(format!("{pointer}{}", found.pointer), message);
            compares |= vet::vet(&template).map_err(refuse)?;
            let is_html = |key: &&str| is_below(&found.pointer, key);
            let kind = TemplateKind::of(&template, html.iter().any(is_html), environment);
            let name = format!("{}{pointer}{}", kind.prefix(), found.pointer);
            environment
                .add_template_owned(name.clone(), template)
                .map_err(|error| refuse(format!("is no template: {}", engine::in_words(&error))))?;
            slots.push(TemplatedString { at: found.at, pointer: found.pointer, name, kind });
        }
        Ok(Self { pointer, json: json.clone(), slots, compares, bytes_max })
    }

    fn render(
        &self,
        environment: &Environment<'_>,
        variables: &Value,
    ) -> Result<Bytes, InvalidField> {
        if self.slots.is_empty() {
            return Ok(self.json.clone());
        }
        let mut rendered = Vec::with_capacity(2 * self.json.len());
        let mut copied = 0;
        for slot in &self.slots {
            rendered.extend_from_slice(self.json.get(copied..slot.at.start).unwrap_or_default());
            copied = slot.at.end;
            slot.render(environment, variables, self.bytes_max, &mut rendered)
                .map_err(|reason| self.invalid(slot, reason))?;
        }
        rendered.extend_from_slice(self.json.get(copied..).unwrap_or_default());
        Ok(rendered.into())
    }

    /// A variable that is missing is the variables' fault, anything else the template's.
    fn invalid(&self, slot: &TemplatedString, reason: TemplateReason) -> InvalidField {
        let place = format!("{}{}", self.pointer, slot.pointer);
        match reason {
            TemplateReason::Missing(variable) => InvalidField::new(
                "/variables",
                format!("`{variable}` is missing: {place} needs it"),
            ),
            TemplateReason::Other(message) => InvalidField::new(place, message),
        }
    }
}

// === impl TemplatedString ===

impl TemplatedString {
    /// Appends the string's rendered value to `rendered`, unless it would have more than `bytes_max` then: all strings together
    /// are bounded, not each alone.
    fn render(
        &self,
        environment: &Environment<'_>,
        variables: &Value,
        bytes_max: usize,
        rendered: &mut Vec<u8>,
    ) -> Result<(), TemplateReason> {
        let other = |error| TemplateReason::Other(engine::in_words(&error));
        let too_long = || {
            TemplateReason::Other(format!(
                "has more than {bytes_max} bytes when rendered, with all that stands before it"
            ))
        };
        let template = environment.get_template(&self.name).map_err(other)?;
        let failed = |error: minijinja::Error| {
            // Looked for after a failure only: it takes a walk over the template.
            let missing = || engine::missing(&template, variables).map(TemplateReason::Missing);
            if error.kind() == ErrorKind::WriteFailure {
                return too_long();
            }
            let is_undefined = error.kind() == ErrorKind::UndefinedError;
            is_undefined.then(missing).flatten().unwrap_or_else(|| other(error))
        };
        let render = |target: LimitedWriter<'_>| {
            template.render_captured_to(variables.clone(), target).map(drop).map_err(failed)
        };
        if self.kind == TemplateKind::Json {
            // The engine writes its values as JSON already, by the formatter of its environment.
            return render(LimitedWriter { target: rendered, bytes_max });
        }
        let mut text = Vec::new();
        // JSON makes a text longer, never shorter.
        let bytes_left = bytes_max.saturating_sub(rendered.len());
        render(LimitedWriter { target: &mut text, bytes_max: bytes_left })?;
        let text = std::str::from_utf8(&text).unwrap_or_default();
        serde_json::to_writer(LimitedWriter { target: rendered, bytes_max }, text)
            .map_err(|_| too_long())
    }
}

// === impl TemplateKind ===

impl TemplateKind {
    /// The kind of a string that holds `template`.
    fn of(template: &str, is_html: bool, environment: &Environment<'_>) -> Self {
        let inner = template.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        // Two tags and the text between them do not read as one expression.
        let is_one = inner.is_some_and(|inner| {
            let inner = inner.strip_prefix('-').unwrap_or(inner);
            let inner = inner.strip_suffix('-').unwrap_or(inner);
            environment.compile_expression(inner).is_ok()
        });
        match (is_html, is_one) {
            (true, _) => Self::Html,
            (false, true) => Self::Json,
            (false, false) => Self::Text,
        }
    }

    /// Prefix of its names in the environment, by which the engine decides on escaping.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Html => "html",
            Self::Json => "json",
        }
    }
}

/// True if `pointer` leads to the top-level key `key`, or below it.
fn is_below(pointer: &str, key: &str) -> bool {
    let rest = pointer.strip_prefix('/').and_then(|rest| rest.strip_prefix(key));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
