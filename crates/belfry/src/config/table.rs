//! Reads a table of the configuration into a structure, and names everything that does not fit.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::{Table, Value};

use super::problem::Mistake;

/// Reads `table`. Serde stops at the first error, so what it names is taken out and the rest read again:
/// that way every problem is found. `None` when nothing useful is left.
pub(super) fn read_table<T: DeserializeOwned>(
    mut table: Table,
    prefix: &str,
    problems: &mut Vec<Mistake>,
) -> Option<T> {
    let mut removed = Vec::new();
    loop {
        // Of a copy: reading consumes the table, and the next round needs what is left of it.
        let error = match serde_path_to_error::deserialize::<_, T>(table.clone()) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let message = error.inner().message();
        let segments: Vec<Segment> = error.path().iter().cloned().collect();
        let path = join(prefix, &segments);
        // A field that was taken out as wrong is missing in the next round, and was named already.
        let is_missing_by_removal = quoted(message, "missing field ")
            .is_some_and(|field| removed.contains(&dotted(&path, field)));
        if !is_missing_by_removal {
            problems.push(Mistake::new(path.clone(), explain(message)));
        }
        // Each round takes something out, so there is a last one.
        if !remove(&mut table, &segments) {
            return None;
        }
        removed.push(path);
    }
}

/// Serde's words, as a person would put them. A text of the wrong type is not shown: it may be a secret.
fn explain(message: &str) -> String {
    if message.starts_with("invalid type: string ")
        && let Some((_text, expected)) = message.rsplit_once(", expected ")
    {
        return format!("invalid type: a string, expected {expected}");
    }
    let Some(key) = quoted(message, "unknown field ") else { return message.replace('\n', ", ") };
    let known: Vec<&str> = expected(message).collect();
    match nearest(key, &known) {
        Some(near) => format!("unknown key, did you mean `{near}`?"),
        None => format!("unknown key, known here: {}", known.join(", ")),
    }
}

/// The word in backticks right after `intro`.
fn quoted<'a>(message: &'a str, intro: &str) -> Option<&'a str> {
    message.strip_prefix(intro)?.split('`').nth(1)
}

/// The names that serde says it expected.
pub(super) fn expected(message: &str) -> impl Iterator<Item = &str> {
    let (_, list) = message.split_once(", expected ").unwrap_or_default();
    list.split('`').skip(1).step_by(2)
}

/// The name that differs least from `key`, if it is close enough to be meant.
fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let distances = known.iter().map(|name| (strsim::levenshtein(key, name), *name));
    let (distance, name) = distances.min()?;
    (distance <= 1 + key.len() / 4).then_some(name)
}

fn join(prefix: &str, segments: &[Segment]) -> String {
    segments.iter().fold(prefix.to_owned(), |path, segment| match segment {
        Segment::Seq { index } => format!("{path}[{index}]"),
        Segment::Map { key } => dotted(&path, key),
        Segment::Enum { .. } | Segment::Unknown => path,
    })
}

fn dotted(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Takes out what `segments` name; of an array all of it, for the indexes behind it would shift.
fn remove(table: &mut Table, segments: &[Segment]) -> bool {
    let [Segment::Map { key }, rest @ ..] = segments else { return false };
    let inner = table.get_mut(key).and_then(Value::as_table_mut);
    inner.is_some_and(|inner| remove(inner, rest)) || table.remove(key).is_some()
}
