//! What the tests of all contents share.

use crate::Invalid;

/// Holds what `check` says of a payload and its options against what is expected: nothing, or a pointer and some words of the
/// message.
pub(crate) fn content_check(
    check: impl Fn(&[u8], &[u8]) -> Result<(), Invalid>,
) -> impl Fn(&str, &str, Option<(&str, &str)>) {
    move |payload, options, expect| match (check(payload.as_bytes(), options.as_bytes()), expect) {
        (Ok(()), None) => {}
        (Err(invalid), Some((pointer, message))) => {
            assert_eq!(invalid.pointer, pointer, "{invalid}");
            assert!(invalid.message.contains(message), "{invalid}");
        }
        (found, _) => panic!("{payload:.40} {options}: {found:?}"),
    }
}
