//! Lists within lists, written in a tag: `{% for a in [[x, x]] %}{% for b in [[a, a]] %}` doubles with each loop.
//!
//! The variable of a loop outlives the tag, so its value must not be larger than the variables are: a list that is written in a
//! tag holds no list that is written there.

use super::compare::{ComparedToken, is_call, is_subscript, tokens};

/// The role of a bracket or parenthesis; the whole tag is a group.
#[derive(Debug, Clone, Copy, Default)]
struct OpenBracket {
    /// A list, or a group with a comma in it.
    is_list: bool,
    /// The arguments of a filter: its commas make no list.
    is_arguments: bool,
    /// A list was written within it.
    holds_list: bool,
}

/// True if the tag, without its braces, has a list that is written within a list.
pub(super) fn nests_lists(tag: &str) -> bool {
    let tokens = tokens(tag);
    let mut opens = vec![OpenBracket::default()];
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            ComparedToken::Sign("[") => {
                let is_list = !is_subscript(&tokens, at);
                opens.push(OpenBracket { is_list, is_arguments: !is_list, holds_list: false });
            }
            ComparedToken::Sign("(") => {
                let is_arguments = is_of_filter(&tokens, at) || is_call(&tokens, at);
                opens.push(OpenBracket { is_arguments, ..OpenBracket::default() });
            }
            // The tag as a whole stays open, also where brackets do not match: that is left to the engine's parser.
            ComparedToken::Sign("]" | ")") if opens.len() > 1 => {
                let closed = opens.pop().unwrap_or_default();
                if let Some(around) = opens.last_mut() {
                    around.holds_list |= closed.is_list || closed.holds_list;
                }
            }
            // The words before the `in` of a loop are names.
            ComparedToken::Word("in") if opens.len() == 1 => opens = vec![OpenBracket::default()],
            ComparedToken::Sign(",") => {
                if let Some(open) = opens.last_mut() {
                    open.is_list |= !open.is_arguments;
                }
            }
            ComparedToken::Word(_)
            | ComparedToken::Number
            | ComparedToken::Text
            | ComparedToken::Sign(_) => {}
        }
        let is_within = opens.iter().filter(|open| open.is_list).count() > 1;
        if is_within || opens.iter().any(|open| open.is_list && open.holds_list) {
            return true;
        }
    }
    false
}

fn is_of_filter(tokens: &[ComparedToken<'_>], at: usize) -> bool {
    let before = |count: usize| at.checked_sub(count).and_then(|at| tokens.get(at));
    before(2) == Some(&ComparedToken::Sign("|"))
        && matches!(before(1), Some(ComparedToken::Word(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_within_a_list_is_found_however_it_is_written() {
        for tag in [
            "for a in [[x, x]]",
            "for a in [(x, x)]",
            "for a in ((x, x),)",
            "for a in ([x, x],)",
            "for a in [x, x], y",
            "for a in y, [x, x]",
            "for a in [y|default([x, x])]",
            "for a in [y if z else [x]]",
            "loop([[a, a]])",
            "loop([y[0], (a, a)])",
        ] {
            assert!(nests_lists(tag), "{tag}");
        }
    }

    #[test]
    fn lists_of_values_are_no_lists_of_lists() {
        for tag in [
            "for a in [x, y]",
            "for key, value in m|default([])|items",
            "for (key, value) in (x, y)",
            "[x|join(', '), (y or z), m['a']]|join(' ')",
            "x|default([1, 2], true)",
            "xs[1:2]",
            "[x, y][0]",
        ] {
            assert!(!nests_lists(tag), "{tag}");
        }
    }
}
