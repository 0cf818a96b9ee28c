//! The check of a template's powers: to put values into a text, decide, and loop.
//!
//! The engine counts steps, and a step may make a value of any size: `"x" * 100000000` is one. No operator is therefore allowed
//! that makes large values of small ones, and no value outlives its tag; the results of filters are counted besides
//! ([`super::work`]). Decision 0015 gives the reasons.

use super::{compare, nest};
use crate::ingest::limits::{TEMPLATE_ELIFS, TEMPLATE_TAG_BYTES};

/// The filters that templates may use.
pub(super) const FILTERS: &[&str] = &[
    "abs",
    "bool",
    "capitalize",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "first",
    "float",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "max",
    "min",
    "reverse",
    "round",
    "safe",
    "sort",
    "split",
    "string",
    "title",
    "trim",
    "unique",
    "upper",
    "urlencode",
];
/// The statements that templates may use.
const STATEMENTS: &[&str] = &["if", "elif", "else", "endif", "for", "endfor"];

/// Checks the tags of `template`; true if it compares values ([`compare`]). Malformed tags are left to the engine's parser. The
/// error is the reason for which the template may not be used.
pub(super) fn vet(template: &str) -> Result<bool, String> {
    let (mut rest, mut elifs, mut compares) = (template, 0, false);
    while let Some((_, opened)) = rest.split_once('{') {
        let Some(kind @ (b'{' | b'%' | b'#')) = opened.bytes().next() else {
            rest = opened;
            continue;
        };
        let inside = opened.get(1..).unwrap_or_default();
        // Nothing in a comment runs.
        if kind == b'#' {
            rest = inside.split_once("#}").map_or("", |(_, behind)| behind);
            continue;
        }
        let close = if kind == b'{' { "}}" } else { "%}" };
        // A tag that is not closed ends with the text, so it is vetted as well.
        let end = end_of_tag(inside, close);
        let (tag, behind) = inside.split_at_checked(end).unwrap_or((inside, ""));
        if kind == b'%' {
            elifs += usize::from(vet_statement(tag)? == "elif");
        }
        if elifs > TEMPLATE_ELIFS {
            return Err(format!("must have at most {TEMPLATE_ELIFS} `{{% elif %}}`"));
        }
        vet_expression(tag)?;
        compares |= compare::compares(tag);
        rest = behind.get(close.len()..).unwrap_or_default();
    }
    Ok(compares)
}

/// End of the tag that begins with `inside`: the position of the first `close` outside a string.
fn end_of_tag(inside: &str, close: &str) -> usize {
    let closes = |position: usize| inside.get(position..).is_some_and(|it| it.starts_with(close));
    let mut ends = outside_strings(inside).filter(|(position, _)| closes(*position));
    ends.next().map_or(inside.len(), |(position, _)| position)
}

fn vet_statement(tag: &str) -> Result<&str, String> {
    let tag = tag.strip_prefix(['-', '+']).unwrap_or(tag);
    let word = word(tag);
    if STATEMENTS.contains(&word) {
        return Ok(word);
    }
    let known = STATEMENTS.join(", ");
    Err(format!("`{{% {word} %}}` is not available: the statements are {known}"))
}

fn vet_expression(tag: &str) -> Result<(), String> {
    if tag.len() > TEMPLATE_TAG_BYTES {
        let length = tag.len();
        return Err(format!(
            "a tag must have at most {TEMPLATE_TAG_BYTES} bytes, one has {length}"
        ));
    }
    if nest::nests_lists(tag) {
        let message = "a list within a list is not available within a tag: give it as a variable";
        return Err(message.to_owned());
    }
    // Colons within each open bracket.
    let mut brackets = Vec::new();
    for (position, operator) in outside_strings(tag) {
        let behind = tag.get(position + 1..).unwrap_or_default();
        match operator {
            '*' | '~' | '+' => {
                return Err(format!(
                    "`{operator}` is not available: put values next to each other, or give what is computed as a variable"
                ));
            }
            // Without braces a tag ends where it seems to: the engine lets those within brackets go by.
            '{' | '}' => {
                return Err(format!(
                    "`{operator}` is not available within a tag: give what is an object as a variable"
                ));
            }
            '|' if !FILTERS.contains(&word(behind)) => {
                let known = FILTERS.join(", ");
                return Err(format!(
                    "the filter `{}` is not available: the filters are {known}",
                    word(behind)
                ));
            }
            '[' => brackets.push(0),
            ']' => drop(brackets.pop()),
            ':' => count_colon(&mut brackets)?,
            _ => {}
        }
    }
    Ok(())
}

/// Refuses the second colon of a slice: with a step below zero the engine panics on an empty text.
fn count_colon(brackets: &mut [u32]) -> Result<(), String> {
    let Some(colons) = brackets.last_mut() else { return Ok(()) };
    *colons += 1;
    if *colons > 1 {
        return Err("a slice has no step: `|reverse` puts values in the opposite order".to_owned());
    }
    Ok(())
}

/// The characters of a tag that are in no string, and where they stand.
fn outside_strings(tag: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quote, mut is_escaped) = (None, false);
    tag.char_indices().filter(move |&(_, character)| match quote {
        Some(_) if is_escaped => {
            is_escaped = false;
            false
        }
        Some(opened) => {
            is_escaped = character == '\\';
            if character == opened {
                quote = None;
            }
            false
        }
        None if character == '"' || character == '\'' => {
            quote = Some(character);
            false
        }
        None => true,
    })
}

/// The word that `text` begins with, behind white space.
fn word(text: &str) -> &str {
    let text = text.trim_start();
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.split(|character| !is_part(character)).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, expect: Option<&str>) {
        let refused = vet(template).err();
        match expect {
            None => assert_eq!(refused, None, "{template}"),
            Some(part) => assert!(
                refused.as_ref().is_some_and(|refused| refused.contains(part)),
                "{template}: {refused:?}"
            ),
        }
    }

    #[test]
    fn values_decisions_and_loops_are_allowed() {
        check("plain { text } with a * and a | and {", None);
        check("{{ name }} {{ name|upper }} {{- name | default('a | b * c ~ d') -}}", None);
        check("{% if a and b > 1 %}x{% elif not c %}y{%- else -%}z{% endif %}", None);
        check("{% for x in xs|sort %}{{ loop.index }}{% endfor %}", None);
        check("{# a comment with {% set %} and * #}{{ x['}}'] }}{{ \"\\\"*\" }}", None);
        check("{{ never closed", None);
    }

    #[test]
    fn what_makes_large_values_of_small_ones_is_refused() {
        check("{{ 'x' * 100000000 }}", Some("`*` is not available"));
        check("{{ x ~ x }}", Some("`~` is not available"));
        check("{{ x + x }}", Some("`+` is not available"));
        check("{{ 2 ** 9 }}", Some("`*`"));
        check("{{ [{'a':{}}, 'x' * 90000000]|length }}", Some("`{` is not available"));
        check("{% if [{'a':{%}}, x * 2] %}", Some("`{` is not available"));
        check("{{ x['{'] }} {{ '}}' }}", None);
        check("{{ '{{' }}{{ x * 2 }}", Some("`*`"));
        check("{{ x|replace('a', x) }}", Some("the filter `replace` is not available"));
        check("{{ xs | map('replace') }}", Some("the filter `map`"));
        check("{{ x[::-1] }}", Some("a slice has no step"));
        check("{{ x[1:y[2:3]:z] }}", Some("a slice has no step"));
        check("{{ x[1:y[2:3]] }} {{ x[:2] }} {{ x['::'] }}", None);
        check("{% set x = x %}", Some("`{% set %}` is not available"));
        check("{%- with x = 1 %}{% endwith %}", Some("`{% with %}`"));
        check("{% raw %}{{ x }}{% endraw %}", Some("`{% raw %}`"));
        check("{% filter upper %}{% endfilter %}", Some("`{% filter %}`"));
        check("{% macro m() %}{% endmacro %}", Some("`{% macro %}`"));
        check("{% include 'x' %}", Some("`{% include %}`"));
        check(&format!("{{{{ {} }}}}", "x".repeat(TEMPLATE_TAG_BYTES)), Some("a tag must have"));
    }
}
