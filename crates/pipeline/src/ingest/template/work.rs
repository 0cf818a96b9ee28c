//! The bounds of filters: a step of the engine is one filter, and one filter may sort sixty thousand values.
//!
//! A filter that looks at all of its value therefore takes units of work besides, one for each value in it and for every sixteen
//! bytes of text, and a render has a number of units for each of its steps. The results of filters are bounded as well.

use minijinja::value::{Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};
use notification::limits::PAYLOAD_BYTES;

use crate::ingest::limits::{TEMPLATE_PARTS, TEMPLATE_STEPS, TEMPLATE_UNITS};

/// Filters that take a text. Made of a list or an object, that would escape the texts within, and with each turn be as long
/// again and slower to make.
const OF_TEXTS: &[&str] = &[
    "capitalize",
    "e",
    "escape",
    "lower",
    "safe",
    "split",
    "string",
    "title",
    "trim",
    "upper",
    "urlencode",
];

/// Units that the filters of a render may still take.
struct WorkBudget(u64);

/// Filters that look at the characters of a text, at the keys of an object, and at one value of a list.
const OF_OUTSIDES: &[&str] = &["count", "first", "float", "int", "last", "length"];

/// Puts each filter behind a count of its work, under a name that no template can say.
macro_rules! limit {
    ($environment:ident: $($name:literal, $units:literal, $filter:path;)*) => {
        $(
            $environment.add_filter(concat!("engine ", $name), $filter);
            let limited = |state: &mut State<'_, '_>, values: Rest<ValueOrKwargs>| {
                count_and_apply(state, ($name, concat!("engine ", $name)), $units, values)
            };
            $environment.add_filter($name, limited);
        )*
    };
}

/// Sets the filters up whose work depends on their value. To put in order compares each value several times.
pub(super) fn limit_filters(environment: &mut Environment<'static>) {
    limit!(environment:
        "capitalize", 1, filters::capitalize;
        "count", 1, filters::length;
        "dictsort", 8, filters::dictsort;
        "e", 1, filters::escape;
        "escape", 1, filters::escape;
        "first", 1, filters::first;
        "float", 1, filters::float;
        "int", 1, filters::int;
        "items", 1, filters::items;
        "join", 1, join;
        "last", 1, filters::last;
        "length", 1, filters::length;
        "list", 1, filters::list;
        "lower", 1, filters::lower;
        "max", 1, filters::max;
        "min", 1, filters::min;
        "reverse", 1, filters::reverse;
        "safe", 1, filters::safe;
        "sort", 8, filters::sort;
        "split", 1, filters::split;
        "string", 1, filters::string;
        "title", 1, filters::title;
        "trim", 1, filters::trim;
        "unique", 8, filters::unique;
        "upper", 1, filters::upper;
        "urlencode", 1, filters::urlencode;
    );
}

/// About how much there is to look at in variables, from their JSON.
pub(super) fn weight_of_json(json: &[u8]) -> u64 {
    let opens = json.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    (opens + json.len() / 16) as u64
}

fn count_and_apply(
    state: &mut State<'_, '_>,
    (filter, of_engine): (&str, &str),
    units: u64,
    values: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let values = values.into_values();
    if OF_TEXTS.contains(&filter) && values.first().is_some_and(has_parts) {
        let message = format!("`{filter}` takes a text, and not a list or an object");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let weigh = if OF_OUTSIDES.contains(&filter) { outer_weight } else { weight };
    let work = units * values.iter().map(weigh).sum::<u64>();
    charge(state, work)?;
    let is_text = values.first().is_some_and(|value| value.kind() == ValueKind::String);
    let made = state.apply_filter(of_engine, &values)?;
    // A joined text is longer than its parts.
    charge(state, outer_weight(&made).saturating_sub(work))?;
    // A text is a value; its parts may be as many as it has characters.
    if is_text
        && made.kind() != ValueKind::String
        && made.len().is_some_and(|parts| parts > TEMPLATE_PARTS)
    {
        let message = format!("makes a list of more than {TEMPLATE_PARTS} parts");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    Ok(made)
}

/// Takes units from those that are left.
fn charge(state: &mut State<'_, '_>, work: u64) -> Result<(), Error> {
    // With the first filter of a render the units are set, from all its steps: those taken and those left.
    let (used, left) = state.fuel_levels().unwrap_or_default();
    let left = state.get_or_insert_extension_with(|| WorkBudget(TEMPLATE_UNITS * (used + left)));
    left.0 = left.0.checked_sub(work).ok_or_else(|| Error::from(ErrorKind::OutOfFuel))?;
    Ok(())
}

/// True if a value is a list or an object.
fn has_parts(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map)
}

/// Units that it takes to look at all of a value; of one that takes more than there ever are, not all are counted.
fn weight(value: &Value) -> u64 {
    let mut sum = 0;
    add_weight(value, &mut sum);
    sum
}

fn add_weight(value: &Value, sum: &mut u64) {
    *sum += 1 + value.as_str().map_or(0, str::len) as u64 / 16;
    if !has_parts(value) {
        return;
    }
    for part in value.try_iter().into_iter().flatten() {
        // A value that weighs more than there are units is refused, however much more it weighs.
        if *sum > TEMPLATE_UNITS * TEMPLATE_STEPS {
            return;
        }
        if value.kind() == ValueKind::Map
            && let Ok(item) = value.get_item(&part)
        {
            add_weight(&item, sum);
        }
        add_weight(&part, sum);
    }
}

/// Units that it takes to look at a text, or at the keys of an object. The last value of an iterable comes after all the rest.
fn outer_weight(value: &Value) -> u64 {
    let kind = value.kind();
    if kind == ValueKind::Map {
        return 1 + value.len().unwrap_or_default() as u64;
    }
    if matches!(kind, ValueKind::String | ValueKind::Iterable) { weight(value) } else { 1 }
}

/// The filter `join`: bounded, unlike the engine's.
fn join(values: &Value, separator: Option<&str>) -> Result<String, Error> {
    let mut joined = String::new();
    for (position, value) in values.try_iter()?.enumerate() {
        if position > 0 {
            joined.push_str(separator.unwrap_or_default());
        }
        if has_parts(&value) {
            let message = "`join` takes texts, and not lists or objects";
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        match value.as_str() {
            Some(text) => joined.push_str(text),
            None => joined.push_str(&value.to_string()),
        }
        // Before the text is charged for: it must not grow without a bound meanwhile.
        if joined.len() > PAYLOAD_BYTES {
            let message = format!("joins to more than {PAYLOAD_BYTES} bytes");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(joined)
}
