//! Tags that compare: a step of the engine that may look at all of the variables.
//!
//! `xs == ys`, `x in xs` and `text[1:]` are one step each, however large the values are. Comparing with a literal takes no longer
//! than the literal does, and the other steps look at one value, so only templates with tags that compare are charged by the
//! weight of the variables. A tag that is not certain to be cheap counts as comparing.

/// Tests of the kind of a value, or of one number.
const TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "even",
    "false",
    "float",
    "int",
    "integer",
    "mapping",
    "none",
    "number",
    "odd",
    "sequence",
    "string",
    "true",
    "undefined",
];
/// Words that a parenthesis may follow without being a call.
const BEFORE_GROUPS: &[&str] = &["and", "elif", "else", "for", "if", "in", "not", "or"];
const LITERALS: &[&str] = &["false", "False", "none", "None", "true", "True"];
const COMPARISONS: &[&str] = &["==", "!=", "<", "<=", ">", ">="];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparedToken<'a> {
    Word(&'a str),
    Number,
    Text,
    Sign(&'a str),
}

/// True if the tag, without its braces, has a step that may look at more than one value.
pub(super) fn compares(tag: &str) -> bool {
    let tokens = tokens(tag);
    // A sign at the start (`{%- for`) trims white space and is no part of the statement.
    let is_for = tokens
        .iter()
        .find(|token| **token != ComparedToken::Sign("-") && **token != ComparedToken::Sign("+"))
        == Some(&ComparedToken::Word("for"));
    // The first `in` of a loop is the loop's own.
    let own_in = tokens.iter().position(|token| is_for && *token == ComparedToken::Word("in"));
    tokens.iter().enumerate().any(|(at, token)| match *token {
        ComparedToken::Word("in") => own_in != Some(at),
        ComparedToken::Word("is") => !is_cheap_test(&tokens, at),
        ComparedToken::Sign("[") => is_subscript(&tokens, at) && !is_key(&tokens, at),
        ComparedToken::Sign("(") => is_call(&tokens, at),
        ComparedToken::Sign(sign) if COMPARISONS.contains(&sign) => !is_with_literal(&tokens, at),
        ComparedToken::Word(_)
        | ComparedToken::Number
        | ComparedToken::Text
        | ComparedToken::Sign(_) => false,
    })
}

/// True if the `is` at `at` begins one of the cheap tests.
fn is_cheap_test(tokens: &[ComparedToken<'_>], at: usize) -> bool {
    let skipped = usize::from(tokens.get(at + 1) == Some(&ComparedToken::Word("not")));
    matches!(tokens.get(at + 1 + skipped), Some(ComparedToken::Word(test)) if TESTS.contains(test))
}

/// True if the bracket at `at` takes a part out of a value, and does not begin a list.
pub(super) fn is_subscript(tokens: &[ComparedToken<'_>], at: usize) -> bool {
    match at.checked_sub(1).and_then(|before| tokens.get(before)) {
        Some(ComparedToken::Word(word)) => {
            let is_attribute = at > 1 && tokens.get(at - 2) == Some(&ComparedToken::Sign("."));
            is_attribute || !BEFORE_GROUPS.contains(word)
        }
        Some(ComparedToken::Sign(sign)) => matches!(*sign, ")" | "]"),
        Some(ComparedToken::Number | ComparedToken::Text) => true,
        None => false,
    }
}

/// True if the bracket at `at` is around one text: the key of an object.
fn is_key(tokens: &[ComparedToken<'_>], at: usize) -> bool {
    tokens.get(at + 1) == Some(&ComparedToken::Text)
        && tokens.get(at + 2) == Some(&ComparedToken::Sign("]"))
}

/// True if the parenthesis at `at` is a call, and not that of a filter, a cheap test, or a group.
pub(super) fn is_call(tokens: &[ComparedToken<'_>], at: usize) -> bool {
    let before = |count: usize| at.checked_sub(count).and_then(|at| tokens.get(at)).copied();
    match (before(2), before(1)) {
        (_, None) | (Some(ComparedToken::Sign("|")), Some(ComparedToken::Word(_))) => false,
        (Some(ComparedToken::Word("is" | "not")), Some(ComparedToken::Word(word)))
            if TESTS.contains(&word) =>
        {
            false
        }
        (Some(ComparedToken::Sign(".")), Some(ComparedToken::Word(_)))
        | (_, Some(ComparedToken::Number | ComparedToken::Text)) => true,
        (_, Some(ComparedToken::Word(word))) => !BEFORE_GROUPS.contains(&word),
        (_, Some(ComparedToken::Sign(sign))) => matches!(sign, ")" | "]"),
    }
}

/// True if the operator at `at` has a literal on one side that no filter, subscript or call changes.
fn is_with_literal(tokens: &[ComparedToken<'_>], at: usize) -> bool {
    let before = |count: usize| at.checked_sub(count).and_then(|at| tokens.get(at));
    let is_literal = |token: Option<&ComparedToken<'_>>| match token {
        Some(ComparedToken::Number | ComparedToken::Text) => true,
        Some(ComparedToken::Word(word)) => LITERALS.contains(word),
        Some(ComparedToken::Sign(_)) | None => false,
    };
    let left = is_literal(before(1)) && before(2) != Some(&ComparedToken::Sign("."));
    // A negative number is a sign and a number.
    let next = at + 1 + usize::from(tokens.get(at + 1) == Some(&ComparedToken::Sign("-")));
    let is_changed =
        matches!(tokens.get(next + 1), Some(ComparedToken::Sign("|" | "[" | "." | "(")));
    left || (is_literal(tokens.get(next)) && !is_changed)
}

/// The words and signs of a tag.
pub(super) fn tokens(tag: &str) -> Vec<ComparedToken<'_>> {
    let (mut tokens, mut rest) = (Vec::new(), tag.trim_start());
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '"' | '\'' => (ComparedToken::Text, text_length(rest, first)),
            _ if first.is_ascii_digit() => (ComparedToken::Number, number_length(rest)),
            _ if is_word(first) => {
                let length = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
                (ComparedToken::Word(rest.get(..length).unwrap_or_default()), length)
            }
            _ => {
                let is_two = COMPARISONS.iter().any(|it| it.len() == 2 && rest.starts_with(it));
                let length = if is_two { 2 } else { first.len_utf8() };
                (ComparedToken::Sign(rest.get(..length).unwrap_or_default()), length)
            }
        };
        tokens.push(token);
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    tokens
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Bytes of the text that `rest` begins with, quotes included.
fn text_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    let closes = rest.char_indices().skip(1).find(|&(_, character)| {
        let closes = !is_escaped && character == quote;
        is_escaped = !is_escaped && character == '\\';
        closes
    });
    closes.map_or(rest.len(), |(at, _)| at + 1)
}

/// Bytes of the number that `rest` begins with: a point belongs to it when a digit follows.
fn number_length(rest: &str) -> usize {
    let is_point = |at: usize| {
        rest.get(at + 1..).is_some_and(|behind| behind.starts_with(|it: char| it.is_ascii_digit()))
    };
    rest.char_indices()
        .find(|&(at, character)| !(is_word(character) || character == '.' && is_point(at)))
        .map_or(rest.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_look_at_one_value_do_not_compare() {
        for tag in [
            "-name|default('a == b') -",
            "user.name if user['name'] is defined else 'x'",
            "% for (key, value) in items|dictsort",
            "for item in items if item.price > 5 and not (item.off)",
            "- for item in items",
            "elif x == 'it\\'s' or -1.5 <= x or x != none or 3 < x",
            "if x >= -2",
            "if loop.index is divisibleby(2) and x is not string",
            "if (x|round(2)) == 1.25",
            "items|join(', ')",
            "[name, surname]|join(' ')",
            "for x in [1, 2]",
        ] {
            let tag = tag.trim_start_matches('%');
            assert!(!compares(tag), "{tag}");
        }
    }

    #[test]
    fn steps_that_may_look_at_all_variables_compare() {
        for tag in [
            "if xs == ys",
            "if xs != 1 == ys and ys < xs",
            "if -1 in xs",
            "if 'x' not in xs",
            "for x in xs if x in ys",
            "if xs is eq(ys)",
            "if xs is not sameas ys",
            "if 1 is in xs",
            "text[1:]",
            "text[60000]",
            "m[text]",
            "[xs, ys][0]",
            "if [xs] == [ys]",
            "if xs == ''|default(ys, true)",
            "if xs == -1|default(ys)",
            "if xs.1 == ys",
            "if true.x == ys",
            "if ys == none.x",
            "if (xs) == (ys)",
            "if loop.changed(xs)",
            "loop(xs)",
            "if xs == ys[0]",
            "if xs is iterable",
            "if 'quoted \\\\' == 'x' or xs == ys",
        ] {
            assert!(compares(tag), "{tag}");
        }
    }
}
