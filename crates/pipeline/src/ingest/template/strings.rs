//! The positions of those strings of a JSON text that are values, and so may be templates.

use std::fmt::Write as _;
use std::ops::Range;

/// A string that is a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text<T> {
    /// Its bytes in the JSON text, quotes included.
    pub(super) at: Range<usize>,
    /// Its JSON pointer.
    pub(super) pointer: String,
    /// The text that it becomes.
    pub(super) made: T,
}

/// An object or array that is not closed yet.
enum OpenString {
    /// The key whose value is next; `None` while the next string is a key.
    Object(Option<String>),
    /// The index of the next value.
    Array(usize),
}

/// The strings among the values of `json`, which is valid, in order, of whose JSON `make` makes something; no more than one above
/// `most`, for a pointer may be as long as all keys together.
pub(super) fn values<T>(json: &str, most: usize, make: impl Fn(&str) -> Option<T>) -> Vec<Text<T>> {
    let mut found = Vec::new();
    let mut open: Vec<OpenString> = Vec::new();
    let mut position = 0;
    // One more than is allowed is enough to refuse them all.
    while found.len() <= most
        && let Some(&byte) = json.as_bytes().get(position)
    {
        let start = position;
        position += 1;
        match byte {
            b'{' => open.push(OpenString::Object(None)),
            b'[' => open.push(OpenString::Array(0)),
            b'}' | b']' => {
                open.pop();
            }
            b',' => match open.last_mut() {
                Some(OpenString::Object(key)) => *key = None,
                Some(OpenString::Array(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                position = end_of_string(json.as_bytes(), position);
                let text = json.get(start..position).unwrap_or_default();
                match open.last_mut() {
                    Some(OpenString::Object(key @ None)) => *key = serde_json::from_str(text).ok(),
                    _ => found.extend(make(text).map(|made| Text {
                        at: start..position,
                        pointer: pointer(&open),
                        made,
                    })),
                }
            }
            _ => {}
        }
    }
    found
}

/// Behind the quote that closes the string whose contents begin at `position`.
fn end_of_string(json: &[u8], mut position: usize) -> usize {
    let mut is_escaped = false;
    while let Some(byte) = json.get(position) {
        position += 1;
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => break,
            _ => {}
        }
    }
    position
}

fn pointer(open: &[OpenString]) -> String {
    let mut pointer = String::new();
    for step in open {
        let written = match step {
            OpenString::Object(key) => {
                // `~` before `/`, or the `~1` that stands for a slash would be escaped again (RFC 6901, section 3).
                let key = key.as_deref().unwrap_or_default();
                write!(pointer, "/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            OpenString::Array(index) => write!(pointer, "/{index}"),
        };
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_with_their_pointers_and_keys_are_none() {
        let check = |json: &str, expect: &[(&str, &str)]| {
            let found = values(json, 9, |text| Some(text.to_owned()));
            let show = |it: &'_ Text<String>| (it.pointer.clone(), it.made.clone());
            let expect: Vec<_> =
                expect.iter().map(|&(pointer, text)| (pointer.into(), text.into())).collect();
            assert_eq!(found.iter().map(show).collect::<Vec<(String, String)>>(), expect, "{json}");
            assert!(found.iter().all(|it| json.get(it.at.clone()) == Some(&*it.made)), "{json}");
            assert_eq!(values(json, 1, |_| Some(())).len(), expect.len().min(2));
        };
        check(r#""alone""#, &[("", r#""alone""#)]);
        check(
            r#"{"a": "x", "b": {"c": ["y", 1, "z"]}}"#,
            &[("/a", r#""x""#), ("/b/c/0", r#""y""#), ("/b/c/2", r#""z""#)],
        );
        check(
            r#"{"a/b~": "", "ü": "\"}{,\\", "last": [[], {}, "e"]}"#,
            &[("/a~1b~0", r#""""#), ("/ü", r#""\"}{,\\""#), ("/last/2", r#""e""#)],
        );
        check(r#"[1, true, null, {}, {"a": {"b": 1}}]"#, &[]);
        check(r#"[{"a": "p"}, "q"]"#, &[("/0/a", r#""p""#), ("/1", r#""q""#)]);
    }
}
