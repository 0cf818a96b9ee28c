//! The template engine with its settings and limits.

use std::io;
use std::sync::{Arc, LazyLock};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Object, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};

use super::{TemplateKind, work};

/// Recursion of a loop, at most.
const RECURSION: usize = 32;

/// A recipient's variables over those of all.
#[derive(Debug)]
pub(super) struct LayeredVariables {
    pub(super) own: Value,
    pub(super) common: Value,
}

/// Takes no more than `bytes_max`.
#[derive(Debug)]
pub(super) struct LimitedWriter<'a> {
    pub(super) target: &'a mut Vec<u8>,
    pub(super) bytes_max: usize,
}

/// Lets JSON be written where a template writes.
struct BoundedWriter<'a, 'b>(&'a mut Output<'b>);

/// An environment without templates.
pub(super) fn environment() -> Environment<'static> {
    // Set up once: a clone shares the filters.
    static BASE: LazyLock<Environment<'static>> = LazyLock::new(|| {
        let mut base = Environment::new();
        // `range` makes values of any size and `dict` objects, `namespace` keeps values, and `debug` shows all variables.
        for function in ["range", "dict", "debug", "namespace"] {
            base.remove_global(function);
        }
        work::limit_filters(&mut base);
        // A text with a gap must not be sent: a missing variable is an error.
        base.set_undefined_behavior(UndefinedBehavior::Strict);
        // The engine would drop a line end at the end of a text.
        let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
        base.set_syntax(syntax.unwrap_or_default());
        // Each level takes some of the thread's stack, which the steps do not bound.
        base.set_recursion_limit(RECURSION);
        base.set_auto_escape_callback(|name| {
            let is_html = name.starts_with(TemplateKind::Html.prefix());
            if is_html { AutoEscape::Html } else { AutoEscape::None }
        });
        base.set_formatter(format);
        base
    });
    BASE.clone()
}

/// The error, in words for the template's author.
pub(super) fn in_words(error: &Error) -> String {
    let what = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "takes too many steps".to_owned(),
        (ErrorKind::UndefinedError, _) => "uses a value that is undefined".to_owned(),
        (_, Some(detail)) => detail.to_owned(),
        (kind, None) => kind.to_string(),
    };
    match error.line() {
        Some(line) if line > 1 => format!("{what} (line {line})"),
        _ => what,
    }
}

/// The variable that `template` needs and `variables` lack: the first by name, if there is one.
pub(super) fn missing(template: &minijinja::Template<'_, '_>, variables: &Value) -> Option<String> {
    let is_missing = |path: &String| {
        let mut value = variables.clone();
        for step in path.split('.') {
            value = match value.get_attr(step) {
                Ok(value) if !value.is_undefined() => value,
                _ => return true,
            };
        }
        false
    };
    used(template).filter(is_missing).min()
}

/// The variables that `template` uses, as paths such as `user.name`, in no order.
pub(super) fn used(template: &minijinja::Template<'_, '_>) -> impl Iterator<Item = String> {
    // The engine's own; only a loop has it.
    let is_own = |path: &String| path == "loop" || path.starts_with("loop.");
    template.undeclared_variables(true).into_iter().filter(move |path| !is_own(path))
}

/// Writes a value where a template puts it.
fn format(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if !state.name().starts_with(TemplateKind::Json.prefix()) {
        // As JSON has them, from which they come; and null is nothing.
        if value.is_none() {
            return Ok(());
        }
        if value.kind() == ValueKind::Bool {
            return Ok(out.write_str(if value.is_true() { "true" } else { "false" })?);
        }
        return minijinja::escape_formatter(out, state, value);
    }
    // Nothing, as `{{ x if y }}` gives it.
    if value.is_undefined() {
        return Ok(out.write_str("\"\"")?);
    }
    serde_json::to_writer(BoundedWriter(out), value)
        .map_err(|error| Error::new(ErrorKind::WriteFailure, error.to_string()))
}

// === impl LayeredVariables ===

impl Object for LayeredVariables {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let of = |values: &Value| values.get_item(key).ok().filter(|value| !value.is_undefined());
        of(&self.own).or_else(|| of(&self.common))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }
}

// === impl LimitedWriter ===

impl io::Write for LimitedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.target.len() + bytes.len() > self.bytes_max {
            // The engine makes a write failure of it, from which `Slot::render` concludes that the result is too long.
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.target.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === impl BoundedWriter ===

impl io::Write for BoundedWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        self.0.write_str(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
